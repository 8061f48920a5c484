"""The list of keys and its switch; the number in the icon, and the browser's notifications."""

import re

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Locator, Page, expect

from supervisor.core.actions import Exec
from tests.browser.conftest import PATIENCE_S, SHOWN, Watch, opened
from tests.browser.operator_site import Site

# What a browser has for notifications, which a headless one only refuses. `away`: another window
# has the focus.
NOTIFICATIONS = """
window.shown = []; window.asked = 0; window.away = false;
document.hasFocus = () => !window.away;
const tell = () => {
  const said = shown.map((one) => one.isOpen ? one.body : "closed");
  document.documentElement.dataset.shown = said.join("; ");
};
window.Notification = class {
  static permission = "default";
  static async requestPermission() {
    window.asked += 1;
    return window.Notification.permission = "granted";
  }
  constructor(title, more) {
    shown.push(Object.assign(this, more, { isOpen: true }));
    tell();
  }
  close() { this.isOpen = false; tell(); }
};
"""


async def told(page: Page, shown: str) -> None:
    """Wait until these are the notifications, oldest first; of a closed one that it is."""
    await expect(page.locator("html")).to_have_attribute("data-shown", shown)


@pytest.mark.many
async def test_the_icon_has_the_number_of_what_waits(site: Site, context: BrowserContext) -> None:
    page = await opened(context, site, "/rules")
    link = page.locator("link[rel=icon]")
    await expect(link).to_have_attribute("href", "/static/gatehouse.svg")
    first = site.ask(Exec(command="make one"))
    await expect(link).to_have_attribute("href", "/static/icons/waiting-1.svg")
    await expect(page).to_have_title(re.compile(r"^\(1\) "))
    site.parts.gate.resolve(first.id, "denied", by="operator (cli)")
    await expect(link).to_have_attribute("href", "/static/gatehouse.svg")
    for number in range(10):
        site.ask(Exec(command=f"make {number}"))
    await expect(link).to_have_attribute("href", "/static/icons/waiting-more.svg")
    for name in (*range(1, 10), "more"):
        answer = await context.request.get(f"{site.url}/static/icons/waiting-{name}.svg")
        assert answer.headers["content-type"].startswith("image/svg+xml")


def dialog_of(page: Page) -> Locator:
    return page.get_by_role("dialog", name="Keys")


@pytest_asyncio.fixture(loop_scope="session")
async def page(context: BrowserContext, site: Site) -> Page:
    """A page of a browser that can show notifications, with the focus elsewhere."""
    await context.add_init_script(NOTIFICATIONS)
    site.ask(Exec(command="make before"))
    made = await opened(context, site, "/rules")
    await made.evaluate("window.away = true")
    return made


async def test_a_browser_tells_what_waits_once_it_was_asked_to(
    site: Site, page: Page, watch: Watch
) -> None:
    watch.expected = ("status of 404",)
    site.ask(Exec(command="make unasked"))
    await expect(page.locator("#pending-count")).to_have_text("2")
    assert await page.evaluate("[asked, shown.length]") == [0, 0], "by a button, never by itself"
    await page.get_by_role("button", name="Tell me in this browser").click()
    await expect(page.locator("#notify")).to_have_attribute("aria-pressed", "true")
    one = site.ask(Exec(command="make one\nsecond line"))
    await told(page, "make one")
    site.parts.gate.resolve(one.id, "denied", by="operator (cli)")
    await told(page, "closed")
    asked = [site.ask(Exec(command=f"make {number}")) for number in range(3)]
    await told(page, "closed; 3 requests wait for you")
    site.parts.gate.resolve(asked[0].id, "denied", by="operator (cli)")
    last = site.ask(Exec(command="make last"))
    await told(page, "closed; 3 requests wait for you; make last")
    await page.evaluate("shown[2].onclick()")
    await page.wait_for_url(f"**/requests/{last.id}", timeout=PATIENCE_S * 1000)


@pytest.mark.many
async def test_who_looks_at_the_page_is_not_notified(site: Site, page: Page) -> None:
    await page.locator("#notify").click()
    await page.evaluate("window.away = false")
    site.ask(Exec(command="make seen"))
    await expect(page.locator("#pending-count")).to_have_text("2")
    await page.evaluate("window.away = true")
    site.ask(Exec(command="make unseen"))
    await told(page, "make unseen")
    await page.locator("#notify").click()
    await expect(page.locator("#notify")).to_have_attribute("aria-pressed", "false")


@pytest.mark.many
async def test_the_keys_are_listed_and_can_be_switched_off(
    site: Site, context: BrowserContext
) -> None:
    asked = [site.ask(Exec(command=f"make {name}")) for name in ("docs", "lint")]
    page = await opened(context, site, "/rules")
    dialog = dialog_of(page)
    await page.keyboard.press("?")
    await expect(dialog).to_be_visible()
    for row in ("a approve", "d deny", "j next request"):
        found = re.compile(row.replace(" ", r"\s*"), re.DOTALL)
        await expect(dialog.locator("dl > div", has_text=found)).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden()
    await page.get_by_role("textbox", name="Rule").press("?")
    await expect(dialog).to_be_hidden()
    await expect(page.get_by_role("textbox", name="Rule")).to_have_value("?")

    await page.get_by_role("button", name="Keys").click()
    await dialog.get_by_label("Keys of a single character").uncheck()
    await dialog.get_by_role("button", name="Close").click()
    await page.locator("h1").click()
    await page.keyboard.press("?")
    await expect(dialog).to_be_hidden()

    inbox = await opened(context, site)
    rows = [inbox.locator(f'.row a[href="/requests/{one.id}"]') for one in asked]
    shown = [index for index, row in enumerate(rows) if await row.get_attribute("aria-current")]
    await inbox.keyboard.press("j")
    await inbox.evaluate(SHOWN)
    await expect(rows[shown[0]]).to_have_attribute("aria-current", "true")
    await inbox.get_by_role("button", name="Keys").click()
    await inbox.keyboard.press("j")
    await dialog_of(inbox).get_by_label("Keys of a single character").check()
    await inbox.keyboard.press("j")
    await inbox.evaluate(SHOWN)
    await expect(rows[shown[0]]).to_have_attribute("aria-current", "true")
    await inbox.keyboard.press("Escape")
    await inbox.keyboard.press("j")
    await expect(rows[1 - shown[0]]).to_have_attribute("aria-current", "true")


async def test_nothing_moves_for_who_wants_no_motion(site: Site, context: BrowserContext) -> None:
    """The context of these tests asks for reduced motion, as a person's system does."""
    site.ask(Exec(command="make docs"))
    page = await opened(context, site, "/rules")
    await page.locator("#stop-all").click()
    await expect(page.locator("#confirm")).to_be_visible()
    moving = await page.evaluate(
        """() => [...document.querySelectorAll("*")].filter((one) => {
          const style = getComputedStyle(one);
          return style.animationName !== "none" || style.transitionDuration !== "0s";
        }).length"""
    )
    assert moving == 0
