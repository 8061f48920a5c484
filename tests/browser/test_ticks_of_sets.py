"""Single changes of files are ticked among many files, in a whole supervisor, and stay so when the
page is loaded anew."""

from pathlib import Path

from playwright.async_api import Browser, Locator, Page, expect

from supervisor.core.actions import FileChange
from tests.browser.inbox import steady
from tests.browser.session_page import page_of
from tests.fakes.supervised import make_repository, settings_in, supervised

LINES = [f"line {number}\n" for number in range(1, 41)]
WORK = (
    "for f in a b c; do sed -i -e '2s/$/ first/' -e '35s/$/ second/' $f.txt; done;"
    " until [ -e end ]; do sleep 0.05; done"
)


def file_of(page: Page, name: str) -> Locator:
    return page.locator("article[data-file]", has=page.get_by_text(name, exact=True))


def hunk(page: Page, name: str, number: int) -> Locator:
    return file_of(page, name).locator(f"input[data-hunk][data-number='{number}']")


async def test_a_part_of_a_file_is_approved_with_the_others(
    browser: Browser, tmp_path: Path
) -> None:
    workspace = make_repository(tmp_path / "project")
    for name in "abc":
        (workspace / f"{name}.txt").write_text("".join(LINES))
    async with supervised(settings_in(tmp_path, "version: 1\n")) as running:
        session = await running.start(workspace, "sh", "-c", WORK)
        queue = running.parts.queue
        await running.until(lambda: len(queue.pending(session.id)) == 3 or None)
        async with page_of(browser, running, session) as page:
            await page.goto(f"http://127.0.0.1:{running.supervisor.port}/changes/{session.id}")
            await hunk(page, "a.txt", 2).uncheck()
            await hunk(page, "c.txt", 1).uncheck()
            await hunk(page, "c.txt", 2).uncheck()
            await page.reload()
            left = page.locator("[data-role=left-out]")
            await expect(left).to_contain_text("Of 1 file only what is ticked; the rest waits.")
            await expect(page.locator("[data-role=approve]")).to_have_text("Approve 2 of 3")
            await expect(hunk(page, "a.txt", 1)).to_be_checked()
            await expect(hunk(page, "a.txt", 2)).not_to_be_checked()
            await expect(file_of(page, "c.txt").locator("[data-take]")).not_to_be_checked()
            one = file_of(page, "a.txt").get_by_role("button", name="Approve ticked")
            await expect(one).to_be_visible()
            await steady(page.locator("article.changes"))
            await page.locator("[data-approve-ticked]").click()
            await expect(page.locator("#done")).to_contain_text("2 files approved")
        texts = {name: (workspace / f"{name}.txt").read_text() for name in "abc"}
        assert texts["a"] == "".join(LINES).replace("line 2\n", "line 2 first\n")
        assert texts["b"].count("first") == texts["b"].count("second") == 1
        assert texts["c"] == "".join(LINES)

        def waiting() -> list[str] | None:
            actions = [one.action for one in queue.pending(session.id)]
            paths = sorted(one.path for one in actions if isinstance(one, FileChange))
            return paths if paths == ["a.txt", "c.txt"] else None

        await running.until(waiting, "the rest of a.txt waits")
        (workspace / "end").touch()
