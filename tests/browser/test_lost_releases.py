"""What a press, a page of a list or an answer began and nobody heard the end of: the page goes
on all the same, and shows what is so."""

from playwright.async_api import BrowserContext, Page, Request, Route, expect

from supervisor.core.actions import Exec
from supervisor.core.approvals import status
from tests.browser.conftest import PATIENCE_S, SHOWN, Watch, opened
from tests.browser.inbox import approve_button, card_of, row_of, steady
from tests.browser.operator_site import Site
from tests.browser.test_live_parts import calm, news

KEYS = """(keys) => {
    for (const [type, key] of keys) document.body.dispatchEvent(new KeyboardEvent(type, { key, code: "Space", bubbles: true }));
}"""  # noqa: E501
# As a finger does: the click comes in a turn after that of the pointer's release.
TAP = """(button) => {
    for (const type of ["pointerdown", "pointerup"])
        button.dispatchEvent(new PointerEvent(type, { pointerType: "touch", button: 0, bubbles: true }));
    window.wasThere = new Promise((done) => setTimeout(() => setTimeout(() => {
        done(button.isConnected);
        if (button.isConnected) button.click();
    })));
}"""  # noqa: E501
OLDER = '<button hx-get="/parts/timeline/one?skip=100" hx-target="#timeline">Show older</button>'


async def test_space_whose_release_is_that_of_another_character(site: Site, page: Page) -> None:
    """With another key beside it, some keyboards make the release that of a no-break space."""
    await page.evaluate(KEYS, [["keydown", " "], ["keyup", "\u00a0"]])
    request = site.ask(Exec(command="make one"))
    await expect(row_of(page, request)).to_be_visible()


async def test_a_list_that_the_space_bar_drops_down(site: Site, context: BrowserContext) -> None:
    """Chromium gives the release to the list, and the page hears nothing of it."""
    page = await opened(context, site, "/network?session=one")
    await calm(page)
    await page.locator("#network").evaluate("(one) => one.before(document.createElement('select'))")
    await page.locator("select").focus()
    await page.keyboard.press(" ")
    await page.keyboard.press("Escape")
    site.parts.sessions.change("one", keep_bodies=True)
    await expect(page.locator("#keep-bodies button")).to_have_text("Stop keeping bodies")


async def test_a_tap_ends_on_what_it_began_on_though_news_came_in_between(
    site: Site, context: BrowserContext
) -> None:
    page = await opened(context, site, "/network?session=one")
    await calm(page)
    button = page.locator("#keep-bodies button")
    async with page.expect_response("**/parts/network/bodies**") as came:
        await button.evaluate("""(button) => {
                for (const type of ["pointerdown"])
                    button.dispatchEvent(new PointerEvent(type, { pointerType: "touch", button: 0, bubbles: true }));
                document.body.dispatchEvent(new CustomEvent("gatehouse:session"));
            }""")  # noqa: E501
    await (await came.value).finished()
    await page.evaluate(SHOWN)
    await button.evaluate(TAP)
    assert await page.evaluate("window.wasThere")
    await expect(button).to_have_text("Stop keeping bodies")
    assert site.parts.sessions.get("one").keep_bodies


async def test_an_answer_that_was_given_and_lost(site: Site, page: Page, watch: Watch) -> None:
    watch.expected = ("Failed to load resource", "htmx:")
    request = site.ask(Exec(command="make one"))
    card = await card_of(page, request)

    async def lose(route: Route) -> None:
        await route.fetch()
        await expect(page.locator("#pending-count")).to_be_empty()
        await route.abort()

    await page.route(f"**/requests/{request.id}/approved", lose, times=1)
    await steady(card)
    await approve_button(card).press("Enter")
    await expect(page.locator("#toast")).to_be_visible()
    assert status(await site.parts.gate.wait(request.id, PATIENCE_S)) in ("approved", "used")
    await expect(card).not_to_have_attribute("data-status", "pending")
    await expect(card).to_be_focused()


async def test_a_page_of_a_list_that_failed_is_not_what_news_bring(
    site: Site, context: BrowserContext, watch: Watch
) -> None:
    watch.expected = ("Failed to load resource", "Response Status Error Code 500")
    asked: list[str] = []

    async def answer(route: Route, request: Request) -> None:
        asked.append(request.url)
        is_older = "skip" in request.url
        await route.fulfill(
            status=500 if is_older else 200,
            content_type="text/html",
            body="" if is_older else OLDER,
        )

    page = await context.new_page()
    await page.route("**/parts/timeline/one**", answer)
    await page.goto(f"{site.url}/sessions/one/changes")
    await page.locator("#steps > summary").click()
    await page.wait_for_selector('#live[data-state="on"]')
    await calm(page)
    await page.get_by_role("button", name="Show older").click()
    await expect(page.locator("#toast")).to_be_visible()
    async with page.expect_request("**/parts/timeline/one**") as again:
        news(site)
    assert "skip" not in (await again.value).url
