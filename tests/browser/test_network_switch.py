"""The switch of the Network tab that keeps bodies: by keyboard, seen at once in another tab
too, gone when the session has ended."""

from playwright.async_api import BrowserContext, expect

from tests.browser.conftest import opened
from tests.browser.operator_site import Site

PATH = "/network?session=one"


async def test_bodies_are_switched_on_and_off_by_keyboard(
    site: Site, context: BrowserContext
) -> None:
    other, page = await opened(context, site, PATH), await opened(context, site, PATH)
    switch, elsewhere = page.locator("#keep-bodies button"), other.locator("#keep-bodies button")
    for words, is_on in (("Stop keeping bodies", True), ("Keep bodies from now on", False)):
        await switch.focus()
        await page.keyboard.press("Enter")
        await expect(switch).to_have_text(words)
        await expect(switch).to_be_focused()
        await expect(elsewhere).to_have_text(words)
        assert site.parts.sessions.get("one").keep_bodies is is_on
    site.parts.sessions.change("one", ended_at=1.0)
    await expect(switch).to_have_count(0)
