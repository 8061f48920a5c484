"""The Network page as a person uses it: what a hostile session and its origins say stays text and in its place, and the archive is one."""

import json
from pathlib import Path

from playwright.async_api import BrowserContext, expect

from supervisor.core.actions import Network
from supervisor.core.egress_wire import Answer, Body, Question, Settled
from tests.browser.conftest import opened
from tests.browser.operator_site import Site
from tests.browser.test_hostile_text import DECEPTIVE, PAYLOADS, harmless
from tests.core.har_reader import read_har

LONG = "/" + "a" * 16_000
# So high may a row be that has a long path in it: a fifth of a small window.
MOST_ROW_PX = 250
TEXTS = [PAYLOADS[3], " ".join(PAYLOADS), DECEPTIVE]


def exchange(site: Site, number: int, path: str, said: str = "fine") -> None:
    """One request that was let through and answered, each of its texts made by somebody hostile."""
    action = Network(operation="request", host="h.example.org", port=443, scheme="https", method=said[:60], path=path)
    log = site.parts.network_log
    question = Question(question_id=number, session_id="one", connection_id="c", action=action, headers=((said, said),))
    log.answered(question, Answer(question_id=number, decision="allow", why=said, rule=said))
    log.body(Body(question_id=number, of="request", media_type=said[:200], data=said.encode(), whole_bytes=len(said)))
    log.body(Body(question_id=number, of="response", media_type=said[:200], data=said.encode(), whole_bytes=len(said)))
    detail: dict[str, str | int | float | None] = {"status": 500, "error": said, "duration_s": 0.25}
    log.settled(Settled(question_id=number, outcome="done", detail=detail, headers=((said, said), ("location", said))))


async def test_what_origins_and_programs_say_is_text(site: Site, context: BrowserContext, tmp_path: Path) -> None:
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


async def test_a_long_path_takes_no_more_room_than_others(site: Site, context: BrowserContext) -> None:
    exchange(site, 1, LONG)
    page = await opened(context, site, "/network?session=one")
    await page.locator("details.host > summary").click()
    row = page.locator("table.exchanges tbody tr")
    for width, most_px in ((1200, MOST_ROW_PX), (390, 2 * MOST_ROW_PX)):
        await page.set_viewport_size({"width": width, "height": 900})
        box = await row.bounding_box()
        assert box is not None
        assert box["height"] < most_px
    await row.get_by_role("link").click()
    await expect(page.locator("[data-role=target]")).to_contain_text(LONG)
