"""A server that takes a request and never answers it, as behind a connection that died half-way:
the page asks again, and shows what is so."""

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio
from playwright.async_api import BrowserContext, Page, Route, expect

from supervisor.core.actions import Exec
from tests.browser.conftest import PATIENCE_S, Watch, opened
from tests.browser.inbox import row_of, rows, shown_card
from tests.browser.operator_site import Site
from tests.browser.test_change_sets import ask, change
from tests.browser.test_live_parts import calm

# What takes a while for a person takes little here.
HURRIED = (
    "const bound = AbortSignal.timeout.bind(AbortSignal); AbortSignal.timeout = (ms) => bound(ms /"
    " 20);"
)
BOUND_MS = 750


class Unanswered:
    """The first request to a path, which is given no answer; those after it are."""

    def __init__(self) -> None:
        self.came = asyncio.Event()

    async def __call__(self, _: Route) -> None:
        self.came.set()

    @classmethod
    async def on(cls, page: Page, path: str) -> "Unanswered":
        made = cls()
        await page.route(path, made, times=1)
        return made


@pytest_asyncio.fixture(loop_scope="session")
async def hurried(context: BrowserContext, watch: Watch) -> AsyncIterator[BrowserContext]:
    await context.add_init_script(HURRIED)
    watch.expected = ("htmx:",)
    yield context
    for page in context.pages:
        await page.unroute_all(behavior="ignoreErrors")


async def test_new_requests_come_though_the_answer_with_the_first_never_did(
    site: Site, hurried: BrowserContext
) -> None:
    page = await opened(hurried, site)
    unanswered = await Unanswered.on(page, "**/parts/inbox**")
    first = site.ask(Exec(command="make one"))
    await asyncio.wait_for(unanswered.came.wait(), PATIENCE_S)
    second = site.ask(Exec(command="make two"))
    for request in (first, second):
        await expect(row_of(page, request)).to_be_visible()


async def test_the_card_comes_though_its_first_answer_never_did(
    site: Site, hurried: BrowserContext
) -> None:
    page = await opened(hurried, site)
    unanswered = await Unanswered.on(page, "**/parts/card/**")
    request = site.ask(Exec(command="make one"))
    await asyncio.wait_for(unanswered.came.wait(), PATIENCE_S)
    await expect(shown_card(page, request)).to_be_visible()


async def test_many_files_come_as_one_row(site: Site, hurried: BrowserContext) -> None:
    page = await opened(hurried, site)
    unanswered = await Unanswered.on(page, "**/parts/inbox**")
    ask(site, [change(site, f"src/{number}.py") for number in range(30)])
    await asyncio.wait_for(unanswered.came.wait(), PATIENCE_S)
    await expect(rows(page)).to_contain_text("30 changed files")


async def test_a_part_that_news_came_of_is_fetched_again(
    site: Site, hurried: BrowserContext
) -> None:
    page = await opened(hurried, site, "/network?session=one")
    await calm(page)
    await page.evaluate("(ms) => { htmx.config.timeout = ms }", BOUND_MS)
    unanswered = await Unanswered.on(page, "**/parts/network/bodies**")
    site.parts.sessions.change("one", keep_bodies=True)
    await asyncio.wait_for(unanswered.came.wait(), PATIENCE_S)
    await expect(page.locator("#keep-bodies button")).to_have_text("Stop keeping bodies")


async def test_what_a_program_prints_is_read_on(site: Site, hurried: BrowserContext) -> None:
    page = await hurried.new_page()
    unanswered = await Unanswered.on(page, "**/api/sessions/one/output**")
    await page.goto(f"{site.url}/sessions/one/output")
    await asyncio.wait_for(unanswered.came.wait(), PATIENCE_S)
    async with page.expect_response("**/api/sessions/one/output**"):
        pass
