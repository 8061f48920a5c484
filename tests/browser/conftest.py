"""One headless Chromium for the tests of this folder that one process runs, a site and a signed-in
page for each test; whatever the page complains of fails it."""

import asyncio
import inspect
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from tests.browser.operator_site import Site, serving

ARGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
# A bound for what should take milliseconds, on a machine that does ten other things.
PATIENCE_MS = 90_000
PATIENCE_S = PATIENCE_MS / 1000
# Two frames and a turn: whatever an answer does to a page, it has done.
SHOWN = (
    "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() =>"
    " setTimeout(done))))"
)
expect.set_options(timeout=PATIENCE_MS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests here run in one event loop, that of the process's browser, a file by one process."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.xdist_group(f"browser/{item.path.stem}"))
            if inspect.iscoroutinefunction(getattr(item, "function", None)):
                item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(browser_path: Path | None) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=browser_path, args=ARGS)
        yield started
        await started.close()


@pytest_asyncio.fixture(loop_scope="session")
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with serving(tmp_path / "data") as made:
        yield made


class Watch:
    """What a page complained of, and what it asked of anybody but the site."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.complaints: list[str] = []
        self.expected: tuple[str, ...] = ()

    def follow(self, page: Page) -> None:
        page.on(
            "console",
            lambda message: self.note(
                f"console {message.type}: {message.text} {message.location}", message.type
            ),
        )
        page.on("pageerror", lambda error: self.note(f"error: {error}"))
        page.on(
            "dialog",
            lambda dialog: (
                self.note(f"dialog: {dialog.message}"),
                asyncio.ensure_future(dialog.dismiss()),
            ),
        )
        page.on("request", lambda request: self.request(request.url))

    def note(self, text: str, kind: str = "error") -> None:
        if kind in ("error", "warning") and not any(part in text for part in self.expected):
            self.complaints.append(text)

    def request(self, url: str) -> None:
        if not url.startswith((self.url, self.url.replace("http", "ws"))):
            self.complaints.append(f"asked {url}")


@pytest_asyncio.fixture(loop_scope="session")
async def watch(site: Site) -> AsyncIterator[Watch]:
    made = Watch(site.url)
    yield made
    assert made.complaints == []


@pytest_asyncio.fixture(loop_scope="session")
async def context(browser: Browser, site: Site, watch: Watch) -> AsyncIterator[BrowserContext]:
    """A browser profile that is signed in; `test_signing_in` does it with the printed link."""
    made = await browser.new_context(
        viewport={"width": 1200, "height": 900}, reduced_motion="reduce"
    )
    made.set_default_timeout(PATIENCE_MS)
    made.on("page", watch.follow)
    value = site.auth.sign_in(site.auth.new_login_token())
    await made.add_cookies([
        {"name": site.auth.cookie_name, "value": value or "", "url": site.url, "httpOnly": True,
         "sameSite": "Strict"}
    ])  # fmt: skip
    yield made
    await made.close()


@pytest_asyncio.fixture(loop_scope="session")
async def page(context: BrowserContext, site: Site) -> Page:
    """The inbox, connected."""
    return await opened(context, site)


async def opened(context: BrowserContext, site: Site, path: str = "/", **_: Any) -> Page:
    """A page of the site, connected."""
    made = await context.new_page()
    await made.goto(site.url + path)
    await made.wait_for_selector('#live[data-state="on"]')
    return made
