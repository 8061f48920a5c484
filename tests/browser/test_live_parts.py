"""News come while a person acts: what is fetched anew takes away no press, no focus and no
place, and shows nothing from before an answer."""

import asyncio
from typing import Self

from playwright.async_api import BrowserContext, Page, Route, expect

from supervisor.core.actions import Exec
from supervisor.core.approvals import status
from tests.browser.conftest import PATIENCE_S, SHOWN, opened
from tests.browser.inbox import approve_button, card_of, row_of, shown_card, steady
from tests.browser.operator_site import Site
from tests.browser.test_change_sets import ask, change

NETWORK = "/network?session=one"
SWITCH = "#keep-bodies button"
ON, OFF = "Stop keeping bodies", "Keep bodies from now on"


def news(site: Site) -> None:
    """The session of the page changed; which its parts are fetched anew for."""
    site.parts.sessions.change("one", model="another")


async def calm(page: Page) -> None:
    """No part is being fetched, as all are when a page begins to listen."""
    await expect(page.locator(".htmx-request")).to_have_count(0)


class Held:
    """The next answer to a path: asked of the site at once, and given to the page when it is let
    go."""

    def __init__(self) -> None:
        self.there, self.go, self.done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def __call__(self, route: Route) -> None:
        answer = await route.fetch()
        self.there.set()
        await asyncio.wait_for(self.go.wait(), PATIENCE_S)
        await route.fulfill(response=answer)
        self.done.set()

    @classmethod
    async def on(cls, page: Page, path: str) -> Self:
        made = cls()
        await page.route(path, made, times=1)
        return made

    async def let_go(self) -> None:
        self.go.set()
        await asyncio.wait_for(self.done.wait(), PATIENCE_S)


async def watch_switch(page: Page) -> None:
    """Keep each text that the switch had."""
    await page.evaluate(
        """(switched) => {
            window.texts = [];
            new MutationObserver(() => {
                const text = document.querySelector(switched)?.textContent;
                if (text && text !== window.texts.at(-1)) window.texts.push(text);
            }).observe(document.getElementById("keep-bodies"), { childList: true, subtree: true });
        }""",
        SWITCH,
    )


async def test_what_was_asked_for_before_an_answer_is_not_shown_after_it(
    site: Site, context: BrowserContext
) -> None:
    page = await opened(context, site, NETWORK)
    await calm(page)
    held = await Held.on(page, "**/parts/network/bodies**")
    news(site)
    await asyncio.wait_for(held.there.wait(), PATIENCE_S)
    await watch_switch(page)
    await page.locator(SWITCH).press("Enter")
    await expect(page.locator(SWITCH)).to_have_text(ON)
    async with page.expect_response(
        "**/parts/network/bodies**"
    ):  # which is asked for again in its place
        await held.let_go()
        await page.evaluate(SHOWN)
    assert await page.evaluate("window.texts") == [ON]
    await expect(page.locator(SWITCH)).to_be_focused()


async def test_news_wait_for_the_answer_and_are_not_lost(
    site: Site, context: BrowserContext
) -> None:
    page = await opened(context, site, NETWORK)
    await calm(page)
    held = await Held.on(page, "**/network/one/bodies")
    asked: list[str] = []
    page.on(
        "request",
        lambda request: (
            asked.append(request.url) if "/parts/network/bodies" in request.url else None
        ),
    )
    await page.locator(SWITCH).press("Enter")
    await asyncio.wait_for(held.there.wait(), PATIENCE_S)
    async with page.expect_response(
        "**/parts/sessions/one**"
    ):  # which is fetched upon the same news
        news(site)
    assert asked == []
    await watch_switch(page)
    async with page.expect_response("**/parts/network/bodies**"):
        await held.let_go()
    await expect(page.locator(SWITCH)).to_have_text(ON)
    assert await page.evaluate("window.texts") == [ON]


async def test_a_part_that_just_came_can_be_used_at_once(
    site: Site, context: BrowserContext
) -> None:
    page = await opened(context, site, NETWORK)
    await calm(page)
    await page.evaluate(
        """(switched) => document.getElementById("keep-bodies").addEventListener(
            "htmx:afterSwap", () => queueMicrotask(() => document.querySelector(switched).click()), { once: true })""",  # noqa: E501
        SWITCH,
    )
    news(site)
    await expect(page.locator(SWITCH)).to_have_text(ON)
    assert site.parts.sessions.get("one").keep_bodies


async def test_a_press_ends_on_what_it_began_on_though_news_came_in_between(
    site: Site, context: BrowserContext
) -> None:
    page = await opened(context, site, NETWORK)
    for words, is_by_pointer in ((ON, True), (OFF, False)):
        await calm(page)
        await page.locator(SWITCH).hover()
        await page.locator(SWITCH).focus()
        async with page.expect_response("**/parts/network/bodies**") as came:
            # Asked for before the press, or heard of after it: both wait.
            await page.evaluate("document.body.dispatchEvent(new CustomEvent('gatehouse:session'))")
            await (page.mouse.down() if is_by_pointer else page.keyboard.down(" "))
        await (await came.value).finished()
        await page.evaluate(SHOWN)
        await (page.mouse.up() if is_by_pointer else page.keyboard.up(" "))
        await expect(page.locator(SWITCH)).to_have_text(words)
        await expect(page.locator(SWITCH)).to_be_focused()


async def test_a_card_stays_under_a_pressed_button(site: Site, page: Page) -> None:
    first, second = site.ask(Exec(command="make one")), site.ask(Exec(command="make two"))
    await expect(row_of(page, second)).to_be_visible()
    card = await card_of(page, second)
    await steady(card)
    await calm(page)
    await approve_button(card).hover()
    await page.mouse.down()
    site.parts.gate.resolve(first.id, "denied", by="operator (cli)")
    assert site.ask(Exec(command="make two")).id == second.id  # the card itself has news, too
    await page.evaluate("fetch('/api/status')")  # which is behind the news
    await page.evaluate(SHOWN)
    await expect(card.locator("[data-role=times]")).to_be_hidden()
    await page.mouse.up()
    assert status(await site.parts.gate.wait(second.id, PATIENCE_S)) in ("approved", "used")
    await expect(row_of(page, first)).to_have_attribute("data-state", "denied")


async def test_a_row_stays_under_a_pressed_button(site: Site, page: Page) -> None:
    first, second = site.ask(Exec(command="make one")), site.ask(Exec(command="make two"))
    await card_of(page, first)
    await row_of(page, second).locator("[data-open]").hover()
    await page.mouse.down()
    site.parts.gate.resolve(first.id, "denied", by="operator (cli)")
    await page.evaluate("fetch('/api/status')")
    await page.evaluate(SHOWN)
    await page.mouse.up()
    await expect(shown_card(page, second)).to_be_focused()
    assert status(site.parts.queue.get(second.id)) == "pending"


async def test_the_focus_stays_on_a_control_of_a_list_that_is_fetched_anew(
    site: Site, context: BrowserContext
) -> None:
    for name in ("a", "b", "c"):
        site.parts.policies.add_rule("allow", f"network({name}.example.org)", why="", by="test")
    page = await opened(context, site, "/rules")
    button = page.get_by_role("button", name="Remove network(b.example.org)")
    await button.focus()
    site.parts.policies.add_rule("allow", "network(0.example.org)", why="", by="test")
    site.app.state["live"].policy_changed()
    await expect(page.locator("tr", has_text="network(0.example.org)")).to_be_visible()
    await expect(button).to_be_focused()


async def test_what_a_person_is_asked_about_stays_until_they_answered(
    site: Site, context: BrowserContext
) -> None:
    page = await opened(context, site, "/sessions/one")
    await calm(page)
    for answer, stopped in (("Cancel", 0), ("Stop it", 1)):
        await page.get_by_role("button", name="Stop session", exact=True).click()
        await expect(page.locator("#confirm-title")).to_have_text("Stop this session?")
        async with page.expect_response(
            "**/sessions/one/timeline**"
        ):  # another part, for the same news
            news(site)
        await page.evaluate(SHOWN)
        async with page.expect_response("**/parts/sessions/one?**"):  # then the news are looked at
            await page.get_by_role("button", name=answer, exact=True).click()
        assert len(site.parts.sessions.stopped) == stopped


async def test_many_files_stay_as_they_are_until_their_answer_is_there(
    site: Site, context: BrowserContext
) -> None:
    """The news that all of it is answered come before the answer itself, which must find its
    page."""
    site.parts.gate.handlers.on_ready("filesystem", "workspace", site._apply)
    ask(site, [change(site, f"src/{number}.py") for number in range(30)])
    page = await opened(context, site, "/changes/one")
    card = page.locator("#changes-one")
    await card.evaluate("(one) => { one.dataset.mine = 'yes' }")
    await expect(card).not_to_have_attribute("data-settling", "all")
    held = await Held.on(page, "**/changes/one/approved")
    await card.get_by_role("button", name="Approve 30 of 30").click()
    await asyncio.wait_for(held.there.wait(), PATIENCE_S)
    await expect(page.locator("#pending-count")).to_be_empty()
    await page.evaluate(SHOWN)
    await expect(card).to_have_attribute("data-mine", "yes")
    await held.let_go()
    await expect(card.locator("[data-role=last]")).to_contain_text("30 approved")
    await expect(card).to_have_attribute("data-status", "done")
