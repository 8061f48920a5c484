"""The Network tab as a person uses it: what a hostile session and its origins say stays text
and in its place, and the archive is one."""

import json
from pathlib import Path

import pytest
from playwright.async_api import BrowserContext, Locator, Page, expect

from supervisor.core.actions import Network
from supervisor.core.network.egress_wire import Answer, Body, Question, Settled
from tests.browser.conftest import SHOWN, opened
from tests.browser.operator_site import Site
from tests.browser.test_hostile_text import DECEPTIVE, PAYLOADS, harmless
from tests.core.har_reader import read_har

LONG = "/" + "a" * 16_000
# So high may a row be that has a long path in it: a fifth of a small window.
MOST_ROW_PX = 250
TEXTS = [PAYLOADS[3], " ".join(PAYLOADS), DECEPTIVE]


def exchange(
    site: Site, number: int, path: str, said: str = "fine", host: str = "h.example.org"
) -> None:
    """One request that was let through and answered, each of its texts made by somebody hostile."""
    action = Network(
        operation="request", host=host, port=443, scheme="https", method=said[:60], path=path
    )
    log = site.parts.network_log
    question = Question(
        question_id=number,
        session_id="one",
        connection_id="c",
        action=action,
        headers=((said, said),),
    )
    log.answered(question, Answer(question_id=number, decision="allow", why=said, rule=said))
    log.body(
        Body(
            question_id=number,
            of="request",
            media_type=said[:200],
            data=said.encode(),
            whole_bytes=len(said),
        )
    )
    log.body(
        Body(
            question_id=number,
            of="response",
            media_type=said[:200],
            data=said.encode(),
            whole_bytes=len(said),
        )
    )
    detail: dict[str, str | int | float | None] = {"status": 500, "error": said, "duration_s": 0.25}
    log.settled(
        Settled(
            question_id=number,
            outcome="done",
            detail=detail,
            headers=((said, said), ("location", said)),
        )
    )


async def test_what_origins_and_programs_say_is_text(
    site: Site, context: BrowserContext, tmp_path: Path
) -> None:
    for number, text in enumerate(TEXTS, 1):
        exchange(site, number, f"/{text}?a={text}", text)
    for width in (1200, 390):
        page = await opened(context, site, "/network?session=one")
        await page.set_viewport_size({"width": width, "height": 900})
        await page.locator("details.host > summary").click()
        await expect(page.locator("[data-label=What] code")).to_have_count(len(TEXTS))
        await harmless(page, site)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await page.close()
    page = await opened(context, site, "/network?session=one")
    for number in range(1, len(TEXTS) + 1):
        await page.goto(f"{site.url}/network/one/{number}")
        await expect(page.locator("[data-role=body-of-response]")).to_be_visible()
        await harmless(page, site)
    await page.goto(f"{site.url}/network?session=one")
    async with page.expect_download() as coming:
        await page.get_by_role("link", name="Download as HAR").click()
    await (await coming.value).save_as(tmp_path / "one.har")
    assert len(read_har(json.loads((tmp_path / "one.har").read_text()))) == len(TEXTS)


async def height(page: Page, selector: str) -> float:
    """How high it is; in one step, since the list may be another in the next."""
    await expect(page.locator(selector)).to_be_visible()
    found = await page.evaluate(
        "(selector) => document.querySelector(selector).getBoundingClientRect().height", selector
    )
    return float(found)


async def test_a_long_path_takes_no_more_room_than_others(
    site: Site, context: BrowserContext
) -> None:
    exchange(site, 1, LONG)
    page = await opened(context, site, "/network?session=one")
    await page.locator("details.host > summary").click()
    row = page.locator("table.exchanges tbody tr")
    for width, most_px in ((1200, MOST_ROW_PX), (390, 2 * MOST_ROW_PX)):
        await page.set_viewport_size({"width": width, "height": 900})
        assert await height(page, "table.exchanges tbody tr") < most_px
    await row.get_by_role("link").click()
    await expect(page.locator("[data-role=target]")).to_contain_text(LONG)


@pytest.mark.many
async def test_a_long_address_that_waits_takes_no_more_room_either(
    site: Site, context: BrowserContext
) -> None:
    action = Network(
        operation="request", host="h.example.org", port=443, scheme="https", method="GET", path=LONG
    )
    site.ask(action, origin="egress", hold_s=60)
    for width in (1200, 390):
        page = await opened(context, site, "/network?session=one")
        await page.set_viewport_size({"width": width, "height": 900})
        assert await height(page, "section.waits li") < MOST_ROW_PX
        await page.close()
    page = await opened(context, site)
    await expect(page.locator("article.card [data-unfold]").first).to_be_visible()


def host(page: Page, name: str) -> Locator:
    return page.locator(place(name))


async def top(page: Page, name: str) -> float:
    """Where a host is on the screen now; in one step, since the list may be another in the next."""
    found = await page.evaluate(
        "(name) => document.querySelector(name).getBoundingClientRect().top", place(name)
    )
    return float(found)


def place(name: str) -> str:
    return f'details.host[data-keep="{name}"]'


async def into_view(page: Page, name: str) -> None:
    await page.evaluate(
        "(name) => document.querySelector(name).scrollIntoView({ block: 'center' })", place(name)
    )


@pytest.mark.many
async def test_what_went_to_a_host_comes_when_it_is_opened_and_stays_with_the_focus(
    site: Site, context: BrowserContext
) -> None:
    exchange(site, 1, "/first")
    page = await opened(context, site, "/network?session=one")
    summary = host(page, "h.example.org").locator("summary").first
    await expect(page.locator("table.exchanges")).to_have_count(0)
    await summary.press("Enter")
    await expect(page.locator("table.exchanges tbody tr")).to_have_count(1)
    exchange(site, 2, "/second")
    await expect(page.locator("table.exchanges tbody tr")).to_have_count(2)
    await expect(summary).to_be_focused()
    await summary.press("Enter")
    exchange(site, 3, "/third")
    await expect(host(page, "h.example.org")).to_contain_text("3 requests")
    await expect(page.locator("table.exchanges")).to_have_count(0)


@pytest.mark.many
async def test_what_the_pointer_or_the_focus_is_on_stays_where_it_is(
    site: Site, context: BrowserContext
) -> None:
    for number in range(40):
        exchange(site, number, "/", host=f"h{number}.example.org")
    page = await opened(context, site, "/network?session=one")
    for is_by_pointer in (True, False):
        name = "h20.example.org"
        await into_view(page, name)
        if is_by_pointer:
            await page.mouse.move(300, await top(page, name) + 5)
        else:
            await host(page, name).locator("summary").focus()
        was = await top(page, name)
        exchange(site, 50 + is_by_pointer, "/", host=f"new-{is_by_pointer}.example.org")
        exchange(site, 60 + is_by_pointer, "/", host="h39.example.org")
        await expect(host(page, f"new-{is_by_pointer}.example.org")).to_have_count(1)
        await page.evaluate(SHOWN)
        assert abs(await top(page, name) - was) < 1, is_by_pointer
        await page.mouse.move(5, 5)


async def test_what_is_read_further_down_stays_though_nobody_points_at_it(
    site: Site, context: BrowserContext
) -> None:
    for number in range(40):
        exchange(site, number, "/", host=f"h{number}.example.org")
    page = await opened(context, site, "/network?session=one")
    await into_view(page, "h0.example.org")
    was = await top(page, "h0.example.org")
    exchange(site, 50, "/", host="new.example.org")
    await expect(host(page, "new.example.org")).to_have_count(1)
    await page.evaluate(SHOWN)
    assert abs(await top(page, "h0.example.org") - was) < 1


async def test_the_link_to_a_request_says_which_it_is(site: Site, context: BrowserContext) -> None:
    exchange(site, 1, "/one/file.txt", said="GET")
    page = await opened(context, site, "/network?session=one")
    await host(page, "h.example.org").locator("summary").first.click()
    await page.get_by_role("link", name="GET https://h.example.org/one/file.txt").click()
    await expect(page.locator("[data-role=target]")).to_contain_text("/one/file.txt")


async def test_the_page_of_a_request_follows_it_to_its_end(
    site: Site, context: BrowserContext
) -> None:
    action = Network(
        operation="request", host="h.example.org", port=443, scheme="https", method="GET", path="/"
    )
    log = site.parts.network_log
    question = Question(question_id=1, session_id="one", connection_id="c", action=action)
    log.answered(question, Answer(question_id=1, decision="allow"))
    page = await opened(context, site, "/network/one/1")
    await expect(page.locator("#exchange")).to_contain_text("under way")
    log.settled(Settled(question_id=1, outcome="done", detail={"status": 200, "up_bytes": 7}))
    await expect(page.locator("#exchange")).to_contain_text("7 B out")
    await expect(page.locator("#exchange")).not_to_contain_text("under way")


async def test_a_host_is_found_by_words_of_its_name(site: Site, context: BrowserContext) -> None:
    for number, name in enumerate(("api.one.org", "api.two.org", "www.one.org")):
        exchange(site, number, "/", host=name)
    page = await opened(context, site, "/network?session=one")
    await page.get_by_label("Find").fill("one api")
    await expect(page.locator("details.host")).to_have_count(1)
    exchange(site, 9, "/", host="api.one.net")
    await expect(page.locator("details.host")).to_have_count(2)
    await page.get_by_label("Find").fill("nobody")
    await expect(page.locator("#network")).to_contain_text("No host has these words")
