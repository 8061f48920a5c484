"""A person's browser: `--open` opens the page in it, and its buttons take and drop what is left."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.browser.conftest import ARGS, PATIENCE_MS, SHOWN
from tests.doors.conftest import House, until
from tests.doors.test_sessions import COMMITS, branches

expect.set_options(timeout=PATIENCE_MS)
pytestmark = [pytest.mark.timeout(300)]

# A browser that notes what it was told to open, and what that is.
BROWSER = """#!/bin/sh
printf '%s\\n' "$@" > {folder}/told
cat "${{1#file://}}" > {folder}/opening
mv {folder}/opening {folder}/opened
"""


@pytest.fixture
def page(browser_path: Path | None) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=ARGS)
        made = browser.new_page()
        made.set_default_timeout(PATIENCE_MS)
        yield made
        browser.close()


@pytest.mark.parametrize("verb", ["up", "run", pytest.param("demo", marks=pytest.mark.many)])
def test_the_page_is_opened_in_a_browser(house: House, verb: str) -> None:
    browser = house.folder / "browser"
    browser.write_text(BROWSER.format(folder=house.folder))
    browser.chmod(0o755)
    words = ("--workspace", str(house.workspace), "--", "sleep", "1000") if verb == "run" else ()
    started = house.start(
        verb, "--open", *words, DISPLAY=":0", BROWSER=str(browser), XDG_CACHE_HOME=str(house.folder)
    )
    until((house.folder / "opened").exists, "the browser")
    told, opened = ((house.folder / one).read_text() for one in ("told", "opened"))
    link = re.search(r"href='(http://127\.0\.0\.1:[^']+)'", opened)
    assert link is not None
    assert link[1] in started.printed
    assert "login" not in told, "every user of the machine sees what a browser is told"


def test_what_is_left_is_taken_and_dropped_by_its_buttons(house: House, page: Page) -> None:
    house.up()
    taken = house.ended(COMMITS)
    dropped = house.ended("echo a > a.txt; echo b > b.txt")
    url = house.ok("url").strip()
    home = url.partition("login")[0]
    page.goto(url)
    page.wait_for_url(home)
    row = page.locator(f"[data-left='{dropped}']")
    row.get_by_role("button", name="Drop all").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("2 changes")
    dialog.get_by_role("button", name="Drop all").click()
    expect(row).to_have_count(0)
    assert not [one for one in house.requests() if one["session_id"] == dropped]
    assert not (house.workspace / "a.txt").exists()
    assert dropped not in json.dumps(house.http("GET", "/api/left")[1])

    page.goto(f"{home}sessions/{taken}")
    page.get_by_role("button", name="Take into my repository").click()
    expect(page.locator("[data-role=taken]")).to_have_text("night")
    with page.expect_response(f"**/parts/sessions/{taken}?**"):
        page.evaluate("document.body.dispatchEvent(new CustomEvent('gatehouse:session'))")
    page.evaluate(SHOWN)
    expect(page.locator("[data-role=taken]")).to_have_text("night")
    assert "night Work at night" in branches(house)
