"""Many changed files as one card in the browser: opened folder by folder, one denied, a folder
approved, then the rest; by keyboard, too."""

import re

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from supervisor.core.actions import FileChange, content_hash, fingerprint
from supervisor.core.approvals import Request, status
from supervisor.core.files.change_card import Side
from tests.browser.conftest import Watch
from tests.browser.operator_site import Site

HOSTILE = "<script>document.title='x'</script>\u202e.py"
OLD, NEW = b"x=1\n", b"x = 1\n"


def change(
    site: Site, path: str, *, new: bytes | None = NEW, hazards: tuple[str, ...] = ()
) -> FileChange:
    before, after = content_hash(OLD), None if new is None else content_hash(new)
    operation = "delete" if new is None else "write"
    action = FileChange(operation=operation, path=path, before=before, after=after, hazards=hazards)  # type: ignore[arg-type]
    side = None if new is None else Side(data=new, size=len(new), mode=0o644)
    site.workspace.sides[fingerprint(action)] = (
        Side(data=OLD, size=len(OLD), mode=0o644),
        side,
        False,
    )
    return action


def ask(site: Site, actions: list[FileChange]) -> list[Request]:
    return site.parts.gate.ask_all(actions, session_id="one", origin="workspace")


def states(site: Site, requests: list[Request]) -> list[str]:
    return [status(site.parts.queue.get(one.id)) for one in requests]


@pytest_asyncio.fixture(loop_scope="session")
async def requests(site: Site) -> list[Request]:
    """What a formatter did."""
    site.parts.gate.handlers.on_ready("filesystem", "workspace", site._apply)
    names = [
        f"{folder}/{number}.py" for folder in ("src", "src/deep", "tests") for number in range(20)
    ]
    return ask(site, [change(site, name) for name in names])


async def test_open_deny_one_approve_a_folder_approve_the_rest(
    site: Site, page: Page, requests: list[Request]
) -> None:
    card = page.locator("#changes-one")
    await expect(card.locator("[data-role=sum]")).to_have_text("60 files changed")
    await expect(card.locator("[data-role=changed]")).to_have_text("60 changed")
    await expect(page.locator(".card[data-request]")).to_have_count(0)
    await expect(page.locator("#pending-count")).to_have_text("60")
    # Down to one file, whose diff comes when it is opened.
    await card.locator("summary", has_text=re.compile("^src/")).click()
    await card.locator("summary", has_text=re.compile("^deep/")).click()
    third = card.locator(f'details[data-file="{requests[23].id}"]')
    await third.locator("summary").click()
    await expect(third.locator(".change")).to_contain_text("x = 1")
    await third.get_by_role("button", name="Deny this").click()
    await expect(card.locator("[data-role=sum]")).to_have_text("59 files changed")
    assert status(site.parts.queue.get(requests[23].id)) == "denied"
    # What was open stays open.
    await expect(card.locator(f'details[data-file="{requests[24].id}"]')).to_be_visible()
    await card.get_by_role("button", name="Approve deep/", exact=True).click()
    await expect(card.locator("[data-role=sum]")).to_have_text("40 files changed")
    assert {*states(site, requests[20:23]), *states(site, requests[24:40])} == {"used"}
    await card.get_by_role("button", name="Approve all").click()
    await page.locator("#confirm-yes").click()
    await expect(card).to_have_attribute("data-status", "done")
    await expect(card.locator("[data-role=last]")).to_contain_text("40 approved")
    await expect(page.locator("#pending-count")).to_have_text("")
    assert set(states(site, requests[:20] + requests[40:])) == {"used"}


async def test_what_changes_meanwhile_is_told_and_never_answered(
    site: Site, page: Page, requests: list[Request], watch: Watch
) -> None:
    watch.expected = ("409 (Conflict)",)
    card = page.locator("#changes-one")
    await expect(card.locator("[data-role=sum]")).to_have_text("60 files changed")
    (newer,) = ask(site, [change(site, "src/3.py", new=b"evil\n")])
    await expect(card.locator(".news")).to_contain_text("the agent changed it again")
    await card.get_by_role("button", name="Approve all").click()
    await page.locator("#confirm-yes").click()
    await expect(card.locator(".error")).to_contain_text("not what was shown")
    assert states(site, [newer, *requests[4:]]) == ["pending"] * 57
    # The card is the present one now, and can be answered.
    await card.get_by_role("button", name="Approve all").click()
    await page.locator("#confirm-yes").click()
    await expect(card).to_have_attribute("data-status", "done")
    assert status(site.parts.queue.get(newer.id)) == "used"


async def test_later_ones_stay_and_hazards_must_be_ticked(
    site: Site, page: Page, requests: list[Request]
) -> None:
    link, other = ask(
        site,
        [
            change(site, "a-link", hazards=("symlink",)),
            change(site, "b-exec", hazards=("new-executable",)),
        ],
    )
    card = page.locator("#changes-one")
    await page.reload()
    await expect(card.locator(".careful")).to_contain_text("a-link")
    await card.get_by_label("Approve a-link with the rest").check()
    (later,) = ask(site, [change(site, "later.py")])
    await expect(card.locator(".news")).to_contain_text("1 more changed since")
    await card.get_by_role("button", name="Approve all").click()
    await page.locator("#confirm-yes").click()
    await expect(card.locator("[data-role=sum]")).to_have_text("2 files changed")
    assert states(site, [link, other, later]) == ["used", "pending", "pending"]


@pytest.mark.many
async def test_by_keyboard(site: Site, page: Page, requests: list[Request]) -> None:
    card = page.locator("#changes-one")
    await expect(card.locator("[data-role=sum]")).to_have_text("60 files changed")
    await page.keyboard.press("j")
    await expect(card).to_be_focused()
    await card.locator("summary", has_text=re.compile("^tests/")).focus()
    await page.keyboard.press("Enter")
    await expect(card.locator(f'details[data-file="{requests[40].id}"]')).to_be_visible()
    await page.keyboard.press("Tab")
    await expect(card.get_by_role("button", name="Approve tests/")).to_be_focused()
    await expect(page.locator(".card[data-settling]")).to_have_count(0)
    await page.keyboard.press("Enter")
    await expect(card.locator("[data-role=sum]")).to_have_text("40 files changed")
    await card.focus()
    await expect(page.locator(".card[data-settling]")).to_have_count(0)
    await page.keyboard.press("d")
    await page.locator("#confirm-yes").click()
    await expect(card).to_have_attribute("data-status", "done")
    assert set(states(site, requests[:40])) == {"denied"}


async def test_hostile_names_are_text(site: Site, page: Page, requests: list[Request]) -> None:
    title = await page.title()
    ask(site, [change(site, f"{HOSTILE}/{HOSTILE}")])
    await page.reload()
    card = page.locator("#changes-one")
    await expect(card.locator("[data-role=sum]")).to_have_text("61 files changed")
    await card.locator("summary", has_text="script").first.click()
    await expect(card.get_by_text("\\u{202e}").first).to_be_visible()
    assert (await page.title()).replace("(61) ", "") == title.replace("(60) ", "")


async def test_cards_become_one_when_there_are_many(site: Site, page: Page) -> None:
    first = ask(site, [change(site, f"few/{number}.py") for number in range(5)])
    await expect(page.locator(".card[data-request]")).to_have_count(5)
    ask(site, [change(site, f"many/{number}.py") for number in range(30)])
    await expect(page.locator("#changes-one [data-role=sum]")).to_have_text("35 files changed")
    await expect(page.locator(".card[data-request]")).to_have_count(0)
    await expect(page.locator("#pending-count")).to_have_text("35")
    assert set(states(site, first)) == {"pending"}
