"""Every page in every width, light and dark, with nothing, one and thirty things on it: the browser
complains of nothing, and axe-core finds nothing that keeps people out."""

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, expect

from supervisor.core.actions import Exec, Network
from tests.browser.conftest import PATIENCE_MS, Watch
from tests.browser.operator_site import Site, fill
from tests.tables import share

TABS = ("", "/changes", "/output", "/network", "/spend")
PATHS = (
    *("/", "/sessions", "/changes/one", "/rules", "/history", "/security"),
    *(f"/sessions/one{tab}" for tab in TABS),
)
WIDTHS = (390, 1300, 1920)
VIEWS = [
    (number, width, scheme)
    for number in (0, 1, 30)
    for width in WIDTHS
    for scheme in ("light", "dark")
]


def _put(site: Site, number: int) -> None:
    """So many requests wait, of every kind where there are more than one."""
    if number > 1:
        for _ in fill(site):
            number -= 1
    for at in range(number):
        if at % 3 == 2:
            site.ask(Network(operation="connect", host=f"h{at}.example.org", port=443))
        else:
            site.ask(Exec(command=f"make {at}"), reason="to see")


@pytest.mark.parametrize("view", share(VIEWS, (30, 390, "light")))
async def test_every_page(
    browser: Browser, site: Site, watch: Watch, view: tuple[int, int, str]
) -> None:
    number, width, scheme = view
    _put(site, number)
    context = await browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
    )
    context.set_default_timeout(PATIENCE_MS)
    context.on("page", watch.follow)
    value = site.auth.sign_in(site.auth.new_login_token())
    await context.add_cookies([
        {"name": site.auth.cookie_name, "value": value or "", "url": site.url, "httpOnly": True,
         "sameSite": "Strict"}
    ])  # fmt: skip
    page = await context.new_page()
    found = {}
    asked = [f"/requests/{one}" for one in site.parts.queue.pending_ids()[:8]]
    for path in (*PATHS, *asked):
        await page.goto(site.url + path)
        await page.wait_for_selector('#live[data-state="on"]')
        # In their first second answers are shut, and dimmed.
        await expect(page.locator("[data-settling]")).to_have_count(0)
        # Nothing lies beyond the right edge, where nobody would look for it.
        wide = await page.evaluate("document.documentElement.scrollWidth > innerWidth + 1")
        assert not wide, path
        results = await Axe().run(page)
        for one in results.response["violations"]:
            nodes = "; ".join(node["html"][:150] for node in one["nodes"][:3])
            found[f"{path} {one['id']}"] = f"{one['help']}: {nodes}"
    await context.close()
    assert found == {}
