"""A file that the person and the agent both changed, in the browser over a real workspace: each
answer by click and by key."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Locator, Page, expect

from supervisor.core.approvals import status
from supervisor.workspace.channel import WorkspaceChannel
from supervisor.workspace.copy.snapshot import make_copy
from tests.browser.conftest import opened
from tests.browser.inbox import nothing_waits, row_of, settled_on
from tests.browser.operator_site import Site
from tests.browser.test_diff_cards import LINES, OLD, PATH, Desk, cards, until


def changed(text: str, *numbers: int) -> str:
    """The file with these lines replaced."""
    return "".join(f"{text}\n" if number in numbers else line for number, line in enumerate(LINES))


@pytest_asyncio.fixture(loop_scope="session")
async def desk(site: Site, tmp_path: Path) -> AsyncIterator[Desk]:
    """The agent has changed lines 5 and 6, and no look at the host was taken yet."""
    host, folder = tmp_path / "host", tmp_path / "session"
    host.mkdir()
    (host / PATH).write_text(OLD)
    channel = WorkspaceChannel(
        session_id="one", workspace=host, folder=folder, gate=site.parts.gate
    )
    site.parts.workspace_of = lambda session_id: channel if session_id == "one" else None  # type: ignore[assignment, return-value, method-assign]
    site.parts.gate.handlers.on_ready("filesystem", "workspace", channel.carry_out)
    await make_copy(host, folder / "merged")
    async with channel._turn:
        opened_ = await channel._open()
        opened_.sides.fill_digests(opened_.sides.without_digest())
        (folder / "merged" / PATH).write_text(changed("agent", 5, 6))
        await opened_.comparison.run(None)
    yield Desk(site, host, channel, folder / "merged")
    await channel.stop()


async def conflict(desk: Desk, page: Page, text: str) -> Locator:
    """The person saves, and the card says what both did."""
    (desk.host / PATH).write_text(text)
    await desk.channel.start()
    card = cards(page)
    await expect(card.locator("[data-role=conflict]")).to_be_visible()
    await expect(card).to_have_count(1)
    await expect(
        card.get_by_text("You edited it on the host; the agent edited it in its copy.")
    ).to_be_visible()
    return card


def in_copy(desk: Desk) -> str:
    return (desk.copy / PATH).read_text()


async def test_the_merge_is_looked_at_and_applied(desk: Desk, page: Page) -> None:
    card = await conflict(desk, page, changed("person", 40))
    merge = card.locator("details", has_text="The merge")
    await expect(merge.locator("tr.add").first).to_have_text("6+agent")
    # Nothing of the person's goes by it; the plain approval would take it away, and says so by not
    # being the green one.
    await expect(merge.locator(".diff")).not_to_contain_text("person")
    whole = card.get_by_role("button", name="Approve the agent's version")
    await expect(whole).not_to_have_class(re.compile("approve|good"))
    await card.locator("summary", has_text="Your change on the host").click()
    await expect(card.locator("details", has_text="Your change").locator("tr.add")).to_contain_text(
        "person"
    )
    await card.get_by_role("button", name="Apply the merge on both sides").click()
    both = changed("agent", 5, 6).replace("line 40\n", "person\n")
    await until(page, lambda: desk.on_host() == both)
    await nothing_waits(page)
    await until(page, lambda: in_copy(desk) == both)
    assert not desk.pending()


async def test_where_both_changed_a_line_the_persons_is_kept_and_given(
    desk: Desk, page: Page
) -> None:
    mine = changed("person", 6, 7)
    card = await conflict(desk, page, mine)
    await expect(card.locator("[data-role=no-merge]")).to_have_text(
        "No merge: 1 place in it was changed both ways."
    )
    await expect(card.locator("[data-role=merge]")).to_have_count(0)
    await card.get_by_role("button", name="Keep mine, and give it to the agent").click()
    await nothing_waits(page)
    assert desk.on_host() == mine
    await until(page, lambda: in_copy(desk) == mine)
    assert "denied" in {status(one) for one in desk.requests()}


async def test_the_agents_version_is_taken_only_by_its_own_button(desk: Desk, page: Page) -> None:
    card = await conflict(desk, page, changed("person", 6, 7))
    await card.get_by_role("button", name="Approve the agent's version").click()
    await until(page, lambda: desk.on_host() == changed("agent", 5, 6))
    await nothing_waits(page)


@pytest.mark.many
async def test_by_keys_alone(desk: Desk, page: Page) -> None:
    await conflict(desk, page, changed("person", 40))
    await settled_on(page, desk.pending()[0])
    await page.keyboard.press("m")
    await until(page, lambda: "person" in desk.on_host() and "agent" in desk.on_host())
    await nothing_waits(page)


@pytest.mark.many
async def test_giving_it_to_the_agent_by_keys_alone(desk: Desk, page: Page) -> None:
    await conflict(desk, page, changed("person", 5))
    await settled_on(page, desk.pending()[0])
    await page.keyboard.press("m")  # there is no merge: nothing happens
    await page.keyboard.press("g")
    await nothing_waits(page)
    await until(page, lambda: desk.on_host() == in_copy(desk) == changed("person", 5))


async def test_a_further_save_of_the_persons_makes_another_card(desk: Desk, page: Page) -> None:
    card = await conflict(desk, page, changed("person", 40))
    await expect(card.locator("[data-role=merge]")).to_be_visible()
    first = await card.get_attribute("data-request")
    (desk.host / PATH).write_text(changed("person again", 6))
    await expect(cards(page).locator("[data-role=no-merge]")).to_be_visible()
    assert await cards(page).get_attribute("data-request") != first
    assert desk.on_host() == changed("person again", 6)


@pytest.mark.many
async def test_on_a_narrow_window_nothing_is_cut_off(
    desk: Desk, context: BrowserContext, site: Site
) -> None:
    page = await opened(context, site)
    long = "a sentence that is much longer than a small window is wide, and " * 4
    card = await conflict(desk, page, changed(long, 40))
    await page.set_viewport_size({"width": 360, "height": 740})
    await row_of(page, desk.pending()[0]).locator("[data-open]").click()
    await expect(card.locator("[data-role=merge]")).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for button in await card.locator("button:visible").all():
        box = await button.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
    await card.get_by_role("button", name="Apply the merge on both sides").click()
    await until(page, lambda: long.strip() in desk.on_host() and "agent" in desk.on_host())
