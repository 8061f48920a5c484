"""The page of one session of a whole supervisor, signed in to; whatever it complains of fails
the test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, Page

from supervisor.core.sessions import Session
from tests.browser.conftest import PATIENCE_MS
from tests.fakes.supervised import Supervised


@asynccontextmanager
async def page_of(
    browser: Browser, running: Supervised, session: Session, tab: str = ""
) -> AsyncIterator[Page]:
    """`tab`: its address after the session's, such as `/changes`; there the steps are unfolded."""
    context = await browser.new_context(viewport={"width": 1200, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    complaints: list[str] = []
    made = await context.new_page()
    made.on(
        "console",
        lambda message: complaints.append(message.text) if message.type == "error" else None,
    )
    made.on("pageerror", lambda error: complaints.append(str(error)))
    made.on("dialog", lambda dialog: complaints.append(dialog.message))
    await made.goto(running.supervisor.login_url())
    await made.wait_for_url("**/")
    await made.goto(f"http://127.0.0.1:{running.supervisor.port}/sessions/{session.id}{tab}")
    if tab == "/changes":
        await made.locator("#steps > summary").click()
    yield made
    await context.close()
    assert complaints == []
