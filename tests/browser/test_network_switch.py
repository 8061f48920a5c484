"""The switch of the Network page that keeps bodies: by keyboard, seen at once in another tab too, gone when the session has ended."""

from playwright.async_api import BrowserContext, Locator, Page, expect

from tests.browser.conftest import PATIENCE_MS, opened
from tests.browser.operator_site import Site

PATH = "/network?session=one"


async def press_until(page: Page, switch: Locator, words: str) -> None:
    """Once more where the part of the page was fetched anew in the instant of the key: it says the same again, and never the opposite."""
    for timeout_ms in (5_000, 5_000, PATIENCE_MS):
        await switch.focus()
        await page.keyboard.press("Enter")
        try:
            return await expect(switch).to_have_text(words, timeout=timeout_ms)
        except AssertionError:
            if timeout_ms == PATIENCE_MS:
                raise
    return None


async def test_bodies_are_switched_on_and_off_by_keyboard(site: Site, context: BrowserContext) -> None:
    other, page = await opened(context, site, PATH), await opened(context, site, PATH)
    switch, elsewhere = page.locator("#keep-bodies button"), other.locator("#keep-bodies button")
    for words, is_on in (("Keep no more bodies", True), ("Keep bodies from now on", False)):
        await press_until(page, switch, words)
        await expect(switch).to_be_focused()
        await expect(elsewhere).to_have_text(words)
        assert site.parts.sessions.get("one").keep_bodies is is_on
    site.parts.sessions.change("one", ended_at=1.0)
    await expect(switch).to_have_count(0)
