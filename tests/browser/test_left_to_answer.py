"""What a session left, on the inbox: until when it is kept, answered there, and dropped."""

from pathlib import Path

from playwright.async_api import Browser, expect

from tests.browser.inbox import approve
from tests.browser.session_page import page_of
from tests.fakes.sandboxed_agent import agent_command
from tests.fakes.supervised import make_repository, settings_in, supervised

WORK = "echo '<b>one</b>' > one.txt; echo two > two.txt; echo three > three.txt"


async def test_what_a_session_left_is_listed_answered_and_dropped(
    browser: Browser, tmp_path: Path
) -> None:
    workspace = make_repository(tmp_path / "project")
    (tmp_path / "data").mkdir()
    policy = "version: 1\nmodes: {exec: contained}\n"
    async with supervised(settings_in(tmp_path / "data", policy)) as running:
        call = ("/v1/exec", {"command": WORK})
        session = await running.start(workspace, *agent_command(call))
        change = await running.asked("filesystem", where=lambda one: one.action.path == "one.txt")  # type: ignore[union-attr]
        await running.until(lambda: len(running.parts.queue.pending(session.id)) == 3 or None)
        async with page_of(browser, running, session) as page:
            await page.goto(f"http://127.0.0.1:{running.supervisor.port}/requests/{change.id}")
            await expect(page.locator("[data-left]")).to_have_count(0)
            await running.parts.sessions.stop(session.id, reason="by <b>me</b>", by="the test")
            await running.ended(session)
            row = page.locator("[data-left]")
            await expect(row).to_contain_text("3 changes")
            await expect(row).to_contain_text("by <b>me</b>")
            await expect(row.locator("[data-until]")).to_contain_text("kept for")
            await approve(page, change)
            await running.until(lambda: running.parts.queue.get(change.id).settled_at)
            assert (workspace / "one.txt").read_text() == "<b>one</b>\n"
            await row.get_by_role("button", name="Drop all").click()
            await page.get_by_role("dialog").get_by_role("button", name="Drop all").click()
            await expect(page.locator("[data-left]")).to_have_count(0)
        assert not running.parts.queue.pending(session.id)
    assert not (workspace / "two.txt").exists()
