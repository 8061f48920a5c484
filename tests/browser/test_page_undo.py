"""A person takes back what an agent did, on the session's page of a whole supervisor: real
session, real files."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from supervisor.core.sessions import Session
from supervisor.server.operator.pages import undo_api
from tests.browser.conftest import SHOWN
from tests.browser.session_page import page_of
from tests.fakes.supervised import Supervised, make_repository, settings_in, supervised

POLICY = 'version: 1\nallow: ["filesystem(**)"]\n'
WORK = (
    "printf 'one\\nagent\\n' > README.md; until [ -e go ]; do sleep 0.05; done; "
    "echo '<script>alert(1)</script>' > '<img src=x onerror=alert(2)>.txt'"
)


@pytest_asyncio.fixture(loop_scope="session")
async def running(tmp_path: Path) -> AsyncIterator[Supervised]:
    async with supervised(settings_in(tmp_path, POLICY)) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def session(running: Supervised, tmp_path: Path) -> Session:
    """One that has ended, having changed a file and made one with a hostile name."""
    workspace = make_repository(tmp_path / "project")
    (workspace / "README.md").write_text("one\n")
    session = await running.start(workspace, "sh", "-c", WORK)
    await running.until(lambda: (workspace / "README.md").read_text() == "one\nagent\n" or None)
    (
        workspace / "go"
    ).touch()  # brought into the copy, so that the second change comes after the first one
    return await running.ended(session)


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser, running: Supervised, session: Session) -> AsyncIterator[Page]:
    async with page_of(browser, running, session, "/changes") as made:
        yield made


async def test_undo_shows_the_diff_and_brings_the_file_back(page: Page, session: Session) -> None:
    workspace = Path(session.workspace)
    assert (workspace / "README.md").read_text() == "one\nagent\n"
    row = page.locator("#timeline tr", has_text="README.md")
    await expect(row.locator(".sums .plus")).to_have_text("+1")
    await expect(row.locator(".sums .minus")).to_have_count(0)
    await row.get_by_role("button", name="Undo README.md").click()
    shown = page.locator("[data-role=undo]")
    await expect(shown.locator("tr.rem")).to_contain_text("agent")
    assert (workspace / "README.md").read_text() == "one\nagent\n"
    await shown.locator("[data-role=undo-now]").click()
    await expect(page.locator("[data-role=undone]")).to_contain_text("Undone")
    assert (workspace / "README.md").read_text() == "one\n"
    await expect(row.filter(has_text="taken back")).to_have_count(1)
    # The undo is on the timeline, and can be undone itself.
    undone = page.locator("#timeline tr", has_text="by operator (browser)")
    await undone.get_by_role("button", name="Undo README.md").click()
    await page.locator("[data-role=undo-now]").click()
    await expect(undone.filter(has_text="taken back")).to_have_count(1)
    assert (workspace / "README.md").read_text() == "one\nagent\n"


@pytest.mark.many
async def test_everything_by_the_keyboard_and_hostile_names_are_text(
    page: Page, session: Session
) -> None:
    workspace = Path(session.workspace)
    assert len(list(workspace.glob("<img*"))) == 1
    await expect(page.locator("#timeline")).to_contain_text("<img src=x onerror=alert(2)>.txt")
    await page.get_by_role("button", name="Undo everything").focus()
    await page.keyboard.press("Enter")
    shown = page.locator("[data-role=undo]")
    await expect(shown.locator("h3")).to_be_focused()
    await expect(shown).to_contain_text("<script>alert(1)</script>")
    button = shown.locator("[data-role=undo-now]")
    for _ in range(20):
        await page.keyboard.press("Tab")
        if await button.evaluate("one => one === document.activeElement"):
            break
    await page.keyboard.press("Enter")
    await expect(page.locator("[data-role=undone]")).to_contain_text("2 paths")
    assert (workspace / "README.md").read_text() == "one\n"
    assert not list(workspace.glob("<img*"))


@pytest.mark.many
async def test_rewinding_to_a_point_takes_back_what_came_after(
    page: Page, session: Session
) -> None:
    workspace = Path(session.workspace)
    row = page.locator("#timeline tr", has_text="README.md")
    await row.get_by_role("button", name="Rewind to just after README.md").click()
    await expect(page.locator("[data-role=undo] summary")).to_contain_text(["<img src=x"])
    await page.locator("[data-role=undo-now]").click()
    await expect(page.locator("[data-role=undone]")).to_be_visible()
    assert (workspace / "README.md").read_text() == "one\nagent\n"
    assert not list(workspace.glob("<img*"))


@pytest.mark.many
async def test_any_point_of_a_long_timeline_can_be_reached(
    page: Page, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undo_api, "TIMELINE_ROWS", 1)
    await page.reload()
    await page.locator("#steps > summary").click()
    rows = page.locator("#timeline tbody tr")
    await expect(rows).to_contain_text(["<img src=x"])
    await expect(page.locator("#timeline")).to_contain_text("1 older changes aren't shown")
    await page.get_by_role("button", name="Show older").click()
    await expect(rows).to_contain_text(["README.md"])
    await expect(page.get_by_role("button", name="Show older")).to_have_count(0)
    # Stays so when the list is fetched anew.
    async with page.expect_response("**/parts/timeline/**") as again:
        await page.evaluate("document.body.dispatchEvent(new CustomEvent('gatehouse:session'))")
    await (await again.value).finished()
    await page.evaluate(SHOWN)
    await expect(rows).to_contain_text(["README.md"])
    await page.get_by_role("button", name="Show the newest").click()
    await expect(rows).to_contain_text(["<img src=x"])
    await page.get_by_role("button", name="Show older").click()
    await page.get_by_role("button", name="Rewind to just after README.md").click()
    await page.locator("[data-role=undo-now]").click()
    await expect(page.locator("[data-role=undone]")).to_be_visible()
    workspace = Path(session.workspace)
    assert (workspace / "README.md").read_text() == "one\nagent\n"
    assert not list(workspace.glob("<img*"))


@pytest.mark.many
async def test_what_was_edited_since_is_named_and_nothing_is_undone(
    page: Page, session: Session
) -> None:
    workspace = Path(session.workspace)
    row = page.locator("#timeline tr", has_text="README.md")
    await row.get_by_role("button", name="Undo README.md").click()
    await expect(page.locator("[data-role=undo-now]")).to_be_visible()
    (workspace / "README.md").write_text("mine\n")  # after the look
    await page.locator("[data-role=undo-now]").click()
    shown = page.locator("[data-role=undo]")
    await expect(shown).to_contain_text("changed since by you")
    await expect(shown.locator("[data-role=undo-now]")).to_have_count(0)
    await shown.get_by_role("button", name="Try to merge").click()
    await expect(shown).to_contain_text("changed both ways")
    assert (workspace / "README.md").read_text() == "mine\n"
    await shown.get_by_role("link", name="Cancel").click()
    await expect(page.locator("[data-role=undo]")).to_have_count(0)
