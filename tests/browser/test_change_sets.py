"""Many changed files as one card in the browser: opened folder by folder, one denied, a folder
approved, then the rest; by keyboard, too."""

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Locator, Page, expect

from supervisor.core.actions import FileChange, content_hash, fingerprint
from supervisor.core.approvals import Request, status
from supervisor.core.files.change_card import Side
from tests.browser.conftest import Watch, opened
from tests.browser.inbox import rows, steady
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


async def say(page: Page, file: Locator, text: str) -> None:
    """Comment on the first new line of a file."""
    await file.locator("tr.add .code").first.hover()
    await file.get_by_role("button", name="Comment on line 1").click()
    await file.get_by_label("Your comment on line 1, for the agent").fill(text)


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


@pytest.mark.many
async def test_look_at_and_approve_60_files_but_one(
    site: Site, page: Page, requests: list[Request]
) -> None:
    """From the inbox: a link, a tick taken away, Approve."""
    card = page.locator("#changes-one")
    await expect(rows(page)).to_have_count(1)
    await expect(rows(page)).to_contain_text("60 changed files")
    await expect(page.locator("#pending-count")).to_have_text("60")
    await page.get_by_role("link", name="Look at the changes").click()
    await expect(page).to_have_url(f"{site.url}/changes/one")
    # Each file's change comes as it comes into view.
    third = page.locator(f"#file-{requests[3].id}")
    await third.scroll_into_view_if_needed()
    await expect(third.locator("tr.add .code")).to_have_text("x = 1")
    tree = page.get_by_role("navigation", name="Changed files")
    await tree.get_by_label("Approve src/3.py").uncheck()
    await expect(third.get_by_label("Approve src/3.py")).not_to_be_checked()
    await expect(page.locator("[data-role=left-out]")).to_have_text(
        "1 file waits on. Can be undone."
    )
    await steady(card)
    await card.get_by_role("button", name="Approve 59 of 60").click()
    await expect(card.locator("[data-role=last]")).to_contain_text("59 approved")
    await expect(card.locator("[data-role=sum]")).to_have_text("Change 1 file in project")
    await expect(page.locator("#pending-count")).to_have_text("1")
    left = requests.pop(3)
    assert set(states(site, requests)) == {"used"}
    assert states(site, [left]) == ["pending"]
    # What lost its tick has none in what is left, either.
    await expect(third.get_by_label("Approve src/3.py")).not_to_be_checked()
    await expect(card.get_by_role("button", name="Approve 0 of 1")).to_be_disabled()


async def test_one_is_denied_a_folder_approved_then_the_rest(
    site: Site, context: BrowserContext, requests: list[Request]
) -> None:
    page = await opened(context, site, "/changes/one")
    card = page.locator("#changes-one")
    tree = page.get_by_role("navigation", name="Changed files")
    file = page.locator(f"#file-{requests[23].id}")
    await tree.get_by_role("link", name="3.py").nth(1).click()
    await file.scroll_into_view_if_needed()
    await expect(file.locator("[data-loading]")).to_have_count(0)
    await steady(card)
    await file.get_by_role("button", name="Deny this").click()
    await expect(card.locator("[data-role=sum]")).to_have_text("Change 59 files in project")
    assert status(site.parts.queue.get(requests[23].id)) == "denied"
    await tree.locator("[data-take-all]").uncheck()
    await expect(card.get_by_role("button", name="Approve 0 of 59")).to_be_disabled()
    await tree.get_by_label("Approve all in src/deep/").check()
    await steady(card)
    await card.get_by_role("button", name="Approve 19 of 59").click()
    await expect(card.locator("[data-role=sum]")).to_have_text("Change 40 files in project")
    assert {*states(site, requests[20:23]), *states(site, requests[24:40])} == {"used"}
    await tree.locator("[data-take-all]").check()
    await steady(card)
    await card.get_by_role("button", name="Approve 40 of 40").click()
    await expect(card).to_have_attribute("data-status", "done")
    await expect(card.locator("[data-role=last]")).to_contain_text("40 approved")
    await expect(page.locator("#pending-count")).to_have_text("")
    assert set(states(site, requests[:20] + requests[40:])) == {"used"}


async def test_what_changes_meanwhile_is_told_and_never_answered(
    site: Site, context: BrowserContext, requests: list[Request], watch: Watch
) -> None:
    watch.expected = ("409 (Conflict)",)
    page = await opened(context, site, "/changes/one")
    card = page.locator("#changes-one")
    (newer,) = ask(site, [change(site, "src/3.py", new=b"evil\n")])
    await expect(card.locator(".news")).to_contain_text("the agent changed it again")
    await steady(card)
    await card.get_by_role("button", name="Approve 60 of 60").click()
    await expect(card.locator(".error")).to_contain_text("not what was shown")
    assert states(site, [newer, *requests[4:]]) == ["pending"] * 57
    # The page is the present one now, and can be answered.
    await steady(card)
    await card.get_by_role("button", name="Approve 60 of 60").click()
    await expect(card).to_have_attribute("data-status", "done")
    assert status(site.parts.queue.get(newer.id)) == "used"


async def test_later_ones_stay_and_hazards_must_be_ticked(
    site: Site, context: BrowserContext, requests: list[Request]
) -> None:
    link, other = ask(
        site,
        [
            change(site, "a-link", hazards=("symlink",)),
            change(site, "b-exec", hazards=("new-executable",)),
        ],
    )
    page = await opened(context, site, "/changes/one")
    card = page.locator("#changes-one")
    await expect(card.locator(".careful")).to_contain_text("a-link")
    await expect(card.locator(f"#file-{link.id} [data-loading]")).to_have_count(0)
    await card.get_by_label("Approve a-link with the rest").check()
    (later,) = ask(site, [change(site, "later.py")])
    await expect(card.locator(".news")).to_contain_text("1 more changed since")
    await steady(card)
    await card.get_by_role("button", name="Approve 61 of 62").click()
    await expect(card.locator("[data-role=sum]")).to_have_text("Change 2 files in project")
    assert states(site, [link, other, later]) == ["used", "pending", "pending"]


async def test_a_comment_goes_back_with_its_file_and_survives_a_reload(
    site: Site, context: BrowserContext, requests: list[Request]
) -> None:
    page = await opened(context, site, "/changes/one")
    card = page.locator("#changes-one")
    said = requests[0]
    file = page.locator(f"#file-{said.id}")
    line = file.locator("tr.add .code")
    await expect(line).to_have_text("x = 1")
    await line.hover()
    await file.get_by_role("button", name="Comment on line 1").click()
    await file.get_by_label("Your comment on line 1, for the agent").fill("rename this")
    # The file has lost its tick by that.
    await expect(file.get_by_label("Approve src/0.py")).not_to_be_checked()
    await page.reload()
    await expect(file.get_by_label("Your comment on line 1, for the agent")).to_have_value(
        "rename this"
    )
    await expect(page.locator("[data-role=left-out]")).to_contain_text(
        "1 file goes back with your comments"
    )
    await steady(card)
    await card.get_by_role("button", name="Approve 59 of 60").click()
    await expect(card).to_have_attribute("data-status", "done")
    asked = site.parts.queue.get(said.id)
    assert (status(asked), asked.answer_reason) == ("denied", "src/0.py:1: rename this")
    assert set(states(site, requests[1:])) == {"used"}


@pytest.mark.many
async def test_by_keyboard(site: Site, context: BrowserContext, requests: list[Request]) -> None:
    page = await opened(context, site, "/changes/one")
    card = page.locator("#changes-one")
    lines = page.locator(f"#file-{requests[0].id} [data-say]")
    await lines.focus()
    for _ in range(2):
        await page.keyboard.press("ArrowDown")
    await page.keyboard.press("c")
    await page.keyboard.type("why?")
    await page.keyboard.press("Escape")
    await expect(page.get_by_label("Approve src/0.py").first).not_to_be_checked()
    tree = page.get_by_role("navigation", name="Changed files")
    await tree.get_by_label("Approve all in tests/").focus()
    await page.keyboard.press("Space")
    await card.focus()
    await steady(card)
    await page.keyboard.press("a")
    await expect(card.locator("[data-role=sum]")).to_have_text("Change 20 files in project")
    assert states(site, requests[:1]) == ["denied"]
    assert site.parts.queue.get(requests[0].id).answer_reason == "src/0.py:1: why?"
    await card.focus()
    await steady(card)
    await page.keyboard.press("d")
    await expect(card).to_have_attribute("data-status", "done")
    assert set(states(site, requests[40:])) == {"denied"}


async def test_hostile_names_are_text(
    site: Site, context: BrowserContext, requests: list[Request]
) -> None:
    ask(site, [change(site, f"{HOSTILE}/{HOSTILE}")])
    page = await opened(context, site, "/changes/one")
    card = page.locator("#changes-one")
    await expect(card.locator("[data-role=sum]")).to_have_text("Change 61 files in project")
    tree = page.get_by_role("navigation", name="Changed files")
    await expect(tree.get_by_text("\\u{202e}").first).to_be_visible()
    assert (await page.title()).endswith("61 changed files · Gatehouse")
    assert await page.locator("main script").count() == 0


@pytest.mark.many
async def test_generated_files_are_folded_and_the_tree_can_be_filtered(
    site: Site, context: BrowserContext, requests: list[Request]
) -> None:
    (lock,) = ask(site, [change(site, "a/uv.lock")])
    page = await opened(context, site, "/changes/one")
    file = page.locator(f"#file-{lock.id}")
    await expect(file.locator("tr")).to_have_count(0)
    await file.get_by_role("button", name="Show this lock file").click()
    await expect(file.locator("tr.add")).to_have_count(1)
    tree = page.get_by_role("navigation", name="Changed files")
    await tree.get_by_label("Filter files").fill("LOCK")
    await expect(tree.locator(".leaf[data-name]:visible")).to_have_count(1)


async def test_rows_become_one_when_there_are_many(site: Site, page: Page) -> None:
    first = ask(site, [change(site, f"few/{number}.py") for number in range(5)])
    await expect(rows(page)).to_contain_text("5 changed files")
    ask(site, [change(site, f"many/{number}.py") for number in range(30)])
    await expect(rows(page)).to_contain_text("35 changed files")
    await expect(rows(page)).to_have_count(1)
    await expect(page.locator("#pending-count")).to_have_text("35")
    assert set(states(site, first)) == {"pending"}


def many(site: Site, folder: str, number: int) -> list[Request]:
    return ask(site, [change(site, f"{folder}/{one:03}.py") for one in range(number)])


@pytest.mark.many
async def test_a_folder_without_its_tick_keeps_what_is_not_listed_of_it(
    site: Site, context: BrowserContext, requests: list[Request]
) -> None:
    """300 files, of which 200 are listed; one of these is ticked again."""
    big = many(site, "big", 300)
    page = await opened(context, site, "/changes/one")
    card = page.locator("#changes-one")
    tree = page.get_by_role("navigation", name="Changed files")
    await expect(tree).to_contain_text("and 100 more files, which are answered with the folder")
    await tree.get_by_label("Approve all in big/").uncheck()
    await expect(card.get_by_role("button", name="Approve 60 of 360")).to_be_enabled()
    await tree.get_by_label("Approve big/001.py").check()
    await steady(card)
    await card.get_by_role("button", name="Approve 61 of 360").click()
    await expect(card.locator("[data-role=last]")).to_contain_text("61 approved")
    assert set(states(site, [*requests, big[1]])) == {"used"}
    assert states(site, [big[0], *big[2:]]) == ["pending"] * 299
    await expect(card.get_by_role("button", name="Approve 0 of 299")).to_be_disabled()


@pytest.mark.many
async def test_a_folder_that_is_opened_or_comes_again_stays_without_its_tick(
    site: Site, context: BrowserContext, requests: list[Request]
) -> None:
    """So many files that folders are loaded when they are opened."""
    lazy = [*many(site, "lazy/in", 150), *many(site, "lazy/out", 150), *many(site, "other", 150)]
    page = await opened(context, site, "/changes/one")
    card = page.locator("#changes-one")
    tree = page.get_by_role("navigation", name="Changed files")
    folder = tree.get_by_label("Approve all in lazy/", exact=True)
    await folder.uncheck()
    await tree.locator("summary", has_text="lazy/").click()
    inner = tree.get_by_label("Approve all in lazy/in/")
    await expect(inner).not_to_be_checked()
    await expect(folder).not_to_be_checked()
    await expect(card.get_by_role("button", name="Approve 210 of 510")).to_be_enabled()
    await inner.check()
    await expect(folder).to_have_js_property("indeterminate", True)
    # Another answer brings the page anew: the folder opens by itself, with its ticks.
    await steady(card)
    first = page.locator(f"#file-{lazy[0].id}")
    await expect(first.locator("[data-loading]")).to_have_count(0)
    await first.get_by_role("button", name="Deny this").click()
    await expect(card.locator("[data-role=sum]")).to_have_text("Change 509 files in project")
    await expect(inner).to_be_checked()
    await expect(tree.get_by_label("Approve all in lazy/out/")).not_to_be_checked()
    await steady(card)
    await card.get_by_role("button", name="Approve 359 of 509").click()
    await expect(card.locator("[data-role=sum]")).to_have_text("Change 150 files in project")
    assert set(states(site, [*requests, *lazy[1:150], *lazy[300:]])) == {"used"}
    assert states(site, lazy[150:300]) == ["pending"] * 150


@pytest.mark.many
async def test_what_left_the_page_stays_without_its_tick_and_goes_back_with_its_comments(
    site: Site, context: BrowserContext, requests: list[Request]
) -> None:
    big = many(site, "all", 110)
    page = await opened(context, site, "/changes/one")
    card = page.locator("#changes-one")
    await card.get_by_role("button", name="Show the next files").click()
    off, said = (page.locator(f"#file-{big[number].id}") for number in (100, 101))
    await off.get_by_label("Approve all/100.py").uncheck()
    await said.scroll_into_view_if_needed()
    await say(page, said, "rename this")
    third = page.locator(f"#file-{big[3].id}")
    await third.scroll_into_view_if_needed()
    await expect(third.locator("[data-loading]")).to_have_count(0)
    await steady(card)
    await third.get_by_role("button", name="Deny this").click()
    await expect(card.locator("[data-role=sum]")).to_have_text("Change 169 files in project")
    await expect(off).to_have_count(0)
    await expect(page.locator("[data-role=left-out]")).to_contain_text(
        "1 file goes back with your comments. 1 file waits on."
    )
    await steady(card)
    await card.get_by_role("button", name="Approve 167 of 169").click()
    await expect(card.locator("[data-role=sum]")).to_have_text("Change 1 file in project")
    assert states(site, [big[100], big[101], big[3]]) == ["pending", "denied", "denied"]
    assert site.parts.queue.get(big[101].id).answer_reason == "all/101.py:1: rename this"
    assert set(states(site, big[102:])) == {"used"}


@pytest.mark.many
async def test_comments_and_ticks_go_over_to_what_the_agent_changed_again(
    site: Site, context: BrowserContext, requests: list[Request], watch: Watch
) -> None:
    watch.expected = ("409 (Conflict)",)
    page = await opened(context, site, "/changes/one")
    card = page.locator("#changes-one")
    await say(page, page.locator(f"#file-{requests[0].id}"), "rename this")
    tree = page.get_by_role("navigation", name="Changed files")
    await tree.get_by_label("Approve src/1.py").uncheck()
    again, other = ask(site, [change(site, f"src/{one}.py", new=b"x = 2\n") for one in (0, 1)])
    await expect(card.locator(".news")).to_contain_text("the agent changed it again")
    await steady(card)
    await card.get_by_role("button", name="Approve 58 of 60").click()
    await expect(card.locator(".error")).to_contain_text("not what was shown")
    await expect(tree.get_by_label("Approve src/0.py")).not_to_be_checked()
    await expect(tree.get_by_label("Approve src/1.py")).not_to_be_checked()
    await steady(card)
    await card.get_by_role("button", name="Approve 58 of 60").click()
    await expect(card.locator("[data-role=sum]")).to_have_text("Change 1 file in project")
    assert states(site, [again, other]) == ["denied", "pending"]
    assert site.parts.queue.get(again.id).answer_reason == "src/0.py:1: rename this"


@pytest.mark.many
async def test_one_is_not_approved_without_its_comments_unasked(
    site: Site, context: BrowserContext, requests: list[Request]
) -> None:
    page = await opened(context, site, "/changes/one")
    card = page.locator("#changes-one")
    file = page.locator(f"#file-{requests[0].id}")
    await say(page, file, "rename this")
    await steady(card)
    await file.get_by_role("button", name="Approve this").click()
    dialog = page.get_by_role("dialog", name="Approve without your comments?")
    await expect(dialog).to_contain_text("Your comment goes with a denial only")
    await dialog.get_by_role("button", name="Cancel").click()
    assert states(site, requests[:1]) == ["pending"]
    await file.get_by_role("button", name="Approve this").click()
    await dialog.get_by_role("button", name="Approve").click()
    await expect(card.locator("[data-role=sum]")).to_have_text("Change 59 files in project")
    assert states(site, requests[:1]) == ["used"]
    await expect(page.locator("[data-role=left-out]")).to_have_text("Can be undone.")
