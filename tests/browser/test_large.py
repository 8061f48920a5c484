"""Inbox and History with 5,000 things on them: the browser complains of nothing, axe-core neither.
Run with `-s` it prints how long the first card takes, and the server in processor time."""

import time

import httpx
import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import BrowserContext, Page, expect

from supervisor.core.actions import Exec
from supervisor.records.approval_queue import MOST_PENDING_PER_SESSION
from tests.browser.conftest import opened
from tests.browser.operator_site import Site

MANY = 5000
SHOWN_AT = """() => new Promise((done) => {
  const look = () => document.querySelector('#pane[data-request] #card-title')
    ? requestAnimationFrame(() => done(performance.now())) : requestAnimationFrame(look);
  look();
})"""


async def _is_clean(page: Page) -> None:
    results = await Axe().run(page)
    assert [one["id"] for one in results.response["violations"]] == []
    assert not await page.evaluate("document.documentElement.scrollWidth > innerWidth + 1")


async def _server_ms(site: Site, path: str) -> float:
    cookie = {site.auth.cookie_name: site.auth.sign_in(site.auth.new_login_token()) or ""}
    async with httpx.AsyncClient(base_url=site.url, cookies=cookie, timeout=60) as client:
        took = []
        for _ in range(5):
            began = time.process_time()
            assert (await client.get(path)).status_code == 200
            took.append(time.process_time() - began)
    return 1000 * sorted(took)[len(took) // 2]


@pytest.mark.many
async def test_an_inbox_and_a_history_of_5000(site: Site, context: BrowserContext) -> None:
    for number in range(0, MANY, MOST_PENDING_PER_SESSION):
        session = site.parts.sessions.add(f"session-{number}")
        ids = range(number, number + MOST_PENDING_PER_SESSION)
        actions = [Exec(command=f"make part-{one}") for one in ids]
        site.parts.gate.ask_all(actions, session_id=session.id, origin="agent_api")
    page = await context.new_page()
    await page.goto(f"{site.url}/", wait_until="commit")
    first_card_ms = await page.evaluate(SHOWN_AT)
    await expect(page.locator("#live")).to_have_attribute("data-state", "on")
    await expect(page.locator("#pending-count")).to_have_text(str(MANY))
    await expect(page.locator("[data-settling]")).to_have_count(0)
    await _is_clean(page)
    page = await opened(context, site, "/history")
    for number in range(2, 5):
        await page.get_by_role("button", name="Older records").click()
        await expect(page.locator("#history details.record")).to_have_count(100 * number)
    await _is_clean(page)
    figures = {
        "first card in the browser, ms": first_card_ms,
        "inbox on the server, ms": await _server_ms(site, "/"),
        "history on the server, ms": await _server_ms(site, "/history"),
        "the oldest of history on the server, ms": await _server_ms(
            site, "/parts/history?before=200"
        ),
    }
    for name, value in figures.items():
        print(f"{name}: {value:.0f}")
