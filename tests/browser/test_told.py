"""What a person just did stands in the corner, and is undone there, by button and by key: in a
whole supervisor, with real files."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, Route, expect

from supervisor.core.actions import Exec
from supervisor.core.approvals import Request, status
from supervisor.core.sessions import Session
from tests.browser.conftest import opened
from tests.browser.inbox import always_form, approve, card_of, deny, settled_card, steady
from tests.browser.operator_site import Site
from tests.browser.session_page import page_of
from tests.fakes.supervised import Supervised, make_repository, settings_in, supervised

TOKEN = "ghp_" + "a1B2" * 9
WORK = (
    "printf 'one\\nagent\\n' > README.md; until [ -e go ]; do sleep 0.05; done;"
    " mkdir part; for n in $(seq 0 59); do echo $n > part/$n.txt; done;"
    " until [ -e end ]; do sleep 0.05; done"
)


def toast(page: Page) -> Locator:
    return page.locator("#done")


@pytest_asyncio.fixture(loop_scope="session")
async def running(tmp_path: Path) -> AsyncIterator[Supervised]:
    async with supervised(settings_in(tmp_path, "version: 1\n")) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def session(running: Supervised, tmp_path: Path) -> Session:
    """One that changed a file, and changes 60 once `go` is there."""
    workspace = make_repository(tmp_path / "project")
    (workspace / "README.md").write_text("one\n")
    return await running.start(workspace, "sh", "-c", WORK)


async def test_an_applied_change_is_undone_from_the_corner_alone_and_together(
    browser: Browser, running: Supervised, session: Session
) -> None:
    workspace, queue = Path(session.workspace), running.parts.queue
    asked = await running.until(lambda: next(iter(queue.pending(session.id)), None))
    async with page_of(browser, running, session) as page:
        await page.goto(f"http://127.0.0.1:{running.supervisor.port}/")
        await approve(page, asked)
        await expect(toast(page)).to_contain_text("Approved: write README.md")
        await expect(toast(page).get_by_role("button", name="Undo")).to_be_visible()
        assert (workspace / "README.md").read_text() == "one\nagent\n"
        await page.keyboard.press("z")
        await expect(toast(page)).to_contain_text("Undone")
        assert (workspace / "README.md").read_text() == "one\n"
        card = await settled_card(page, asked, "undone")
        await expect(card.locator("[data-undo-now]")).to_have_count(0)

        (workspace / "go").touch()
        await running.until(lambda: len(queue.pending(session.id)) >= 60 or None)
        await page.goto(f"http://127.0.0.1:{running.supervisor.port}/changes/{session.id}")
        await steady(page.locator("article.changes"))
        await page.locator("[data-approve-ticked]").click()
        await expect(toast(page)).to_contain_text("60 files approved")
        await toast(page).get_by_role("button", name="Undo").click()
        await expect(toast(page)).to_contain_text("Undone: 60 changes")
        assert not list(workspace.glob("part/*"))
    (workspace / "end").touch()


@pytest.mark.many
async def test_a_command_that_runs_shows_its_last_lines_as_they_come(
    browser: Browser, running: Supervised, session: Session
) -> None:
    command = (
        f"TOKEN={TOKEN}; echo collecting; echo '<b>1 failed</b>' >&2; echo token=$TOKEN;"
        " until [ -e more ]; do sleep 0.05; done; echo '2 passed'; until [ -e go ];"
        " do sleep 0.05; done; exit 3"
    )
    await running.until(lambda: running.parts.queue.pending(session.id) or None)
    asked = running.parts.gate.ask(
        Exec(command=command), session_id=session.id, origin="agent_api", reason=""
    )
    workspace = Path(session.workspace)
    async with page_of(browser, running, session) as page:
        await page.goto(f"http://127.0.0.1:{running.supervisor.port}/requests/{asked.id}")
        await approve(page, asked)
        await page.goto(f"http://127.0.0.1:{running.supervisor.port}/requests/{asked.id}")
        card = page.locator(f"#pane[data-request='{asked.id}']")
        printed = card.locator("[data-role=printed]")
        await expect(printed).to_contain_text("collecting")
        await expect(printed).to_contain_text("<b>1 failed</b>")
        await expect(printed).not_to_contain_text(TOKEN)
        await expect(card.locator(".answer .state")).to_have_class("state doing")
        (workspace / "more").touch()
        await expect(printed).to_contain_text("2 passed")
        (workspace / "go").touch()
        await expect(card.locator(".answer .state")).to_have_class("state failed")
        await expect(printed).to_contain_text("2 passed")
    assert running.parts.gate.printing.printed(asked.id) == (b"", b"")
    (workspace / "end").touch()


@pytest.mark.many
async def test_a_denial_is_lifted_and_a_saved_rule_removed(site: Site, page: Page) -> None:
    request = site.ask(Exec(command="make deploy-docs"))
    await deny(page, request)
    await expect(toast(page)).to_contain_text("Denied by you: make deploy-docs")

    async def slow(route: Route) -> None:
        """What takes long says so."""
        await expect(page.locator("#slow")).to_have_text(re.compile(r"^Let it ask again: \d s$"))
        await route.continue_()

    await page.route("**/undo", slow)
    await page.keyboard.press("z")
    await expect(toast(page)).to_contain_text("The agent may ask again")
    await expect(page.locator("#slow")).to_be_empty()
    await page.unroute("**/undo")
    assert site.ask(Exec(command="make deploy-docs")).id != request.id

    other = site.ask(Exec(command="make docs"))
    form = await always_form(await card_of(page, other))
    await form.get_by_role("button", name="Save rule and approve").click()
    await expect(toast(page)).to_contain_text("Rule saved. Approved: make docs")
    assert status(site.parts.queue.get(other.id)) != "pending"
    assert _is_allowed(site.ask(Exec(command="make docs")))
    await toast(page).get_by_role("button", name="Undo").click()
    await expect(toast(page)).to_contain_text("Removed again: exec(make docs)")
    assert not _is_allowed(site.ask(Exec(command="make docs")))


@pytest.mark.many
async def test_what_cant_be_undone_offers_nothing_and_the_message_leaves(
    site: Site, page: Page
) -> None:
    request = site.ask(Exec(command="make"))
    await approve(page, request)
    await expect(toast(page)).to_contain_text("Approved: make")
    await expect(toast(page).get_by_role("button")).to_have_count(0)
    await toast(page).get_by_role("link", name="Look").click()
    await expect(page.locator("#pane .answer .state")).to_have_text("done, exit code 0")
    await page.locator("#find").hover()
    await expect(toast(page)).to_be_empty()


def _is_allowed(request: Request) -> bool:
    return status(request) in ("allowed", "used")


async def test_each_page_has_the_corner(site: Site, page: Page) -> None:
    rules = await opened(page.context, site, "/rules")
    await expect(toast(rules)).to_have_count(1)
