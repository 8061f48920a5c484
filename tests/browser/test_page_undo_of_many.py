"""Many changes that a person answered as one are one row of the session's page: taken back as
one, or one by one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from supervisor.core.sessions import Session
from supervisor.server.operator.pages import undo_api
from tests.browser.conftest import SHOWN
from tests.browser.session_page import page_of
from tests.fakes.gated import answer_all
from tests.fakes.supervised import Supervised, make_repository, settings_in, supervised

MANY = 24


@pytest_asyncio.fixture(loop_scope="session")
async def running(tmp_path: Path) -> AsyncIterator[Supervised]:
    async with supervised(settings_in(tmp_path, "version: 1\n")) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def session(running: Supervised, tmp_path: Path) -> Session:
    """One that has ended; all that it did was approved at once."""
    workspace = make_repository(tmp_path / "project")
    work = f"mkdir part; for n in $(seq {MANY}); do echo $n > part/$n.txt; done"
    session = await running.start(workspace, "sh", "-c", work)
    parts = running.parts
    waiting = await running.until(
        lambda: found if len(found := parts.queue.pending(session.id)) == MANY else None
    )
    answer_all(parts.gate, [one.id for one in waiting], "approved", by="operator")
    return await running.ended(session)


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser, running: Supervised, session: Session) -> AsyncIterator[Page]:
    async with page_of(browser, running, session, "/changes") as made:
        yield made


async def test_one_row_that_opens_and_is_taken_back_as_one(
    page: Page, running: Supervised, session: Session
) -> None:
    folder = Path(session.workspace) / "part"
    rows = page.locator("#timeline > .table-wrap > table > tbody > tr")
    await expect(rows).to_have_count(1)
    row = rows.first
    await expect(row.locator("summary")).to_have_text(f"{MANY} paths of part, answered as one")
    shown = await undo_api.preview(
        running.parts, undo_api.UndoBody(id=await row.get_attribute("data-change"))
    )
    assert (shown.session_id, shown.what) == (
        session.id,
        f"{MANY} changes",
    )  # by its id alone, as on the command line
    await row.locator("summary").click()
    each = row.locator(".answered tbody tr")
    await expect(each).to_have_count(MANY)
    # Stays open when the list is fetched anew.
    async with page.expect_response(f"**/parts/timeline/{session.id}"):
        await page.evaluate("document.body.dispatchEvent(new CustomEvent('gatehouse:session'))")
    await page.evaluate(SHOWN)
    await expect(each).to_have_count(MANY)
    await row.get_by_role("button", name="Undo part/7.txt").click()
    await page.locator("[data-role=undo-now]").click()
    await expect(page.locator("[data-role=undone]")).to_contain_text("1 change")
    assert len(list(folder.iterdir())) == MANY - 1
    whole = rows.last
    await expect(whole).to_contain_text(f"1 of {MANY} taken back")
    await whole.get_by_role("button", name=f"Undo {MANY} paths").click()
    await page.locator("[data-role=undo-now]").click()
    await expect(page.locator("[data-role=undone]")).to_contain_text(f"{MANY} changes")
    await expect(whole.locator(".badge").first).to_have_text("write, taken back")
    assert not folder.exists()
    # The undo is one row, too, and can be taken back itself.
    undo = rows.first
    await expect(undo).to_contain_text(f"of {MANY} changes, by operator (browser)")
    await undo.get_by_role("button", name="Undo", exact=False).first.click()
    await page.locator("[data-role=undo-now]").click()
    await expect(rows).to_have_count(4)
    assert len(list(folder.iterdir())) == MANY - 1
