"""The Sessions page in a browser: each preset starts what it says, folders are completed, what
ended goes on by its button, and a name that a person gave stays."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.browser.conftest import ARGS, PATIENCE_MS
from tests.doors.conftest import House

expect.set_options(timeout=PATIENCE_MS)
pytestmark = [pytest.mark.timeout(300)]

KEYS = {"ANTHROPIC_API_KEY": "sk-ant-test-4f1d2c7be0a94c3b8e55d0", "OPENAI_API_KEY": "sk-test-4f1d"}
# What stands in for an agent's own program: it says how it was called.
AGENT = '#!/bin/sh\nprintf "<%s>" "$@"\n'


@pytest.fixture
def page(browser_path: Path | None) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=ARGS)
        made = browser.new_page()
        made.set_default_timeout(PATIENCE_MS)
        complaints: list[str] = []
        made.on("pageerror", lambda error: complaints.append(str(error)))
        made.on("console", lambda one: complaints.append(one.text) if one.type == "error" else None)
        yield made
        browser.close()
        assert complaints == []


def sign_in(house: House, page: Page) -> str:
    """Open the inbox; the address of the page."""
    url = house.ok("url").strip()
    home = url.partition("login")[0]
    page.goto(url)
    page.wait_for_url(home)
    return home


def started(house: House, page: Page, name: str) -> str:
    """Press the form's button, and wait for the page of what it started; the session's id."""
    page.get_by_role("button", name=f"Start {name}", exact=True).click()
    page.wait_for_url(re.compile(r"/sessions/[0-9a-f]{32}$"))
    return page.url.rpartition("/")[2]


def test_the_form_starts_a_review_a_job_and_a_command(house: House, page: Page) -> None:
    (house.workspace / "README.md").write_text("# Shop\n\nOpen.\n")
    house.up(ANTHROPIC_API_KEY="")
    home = sign_in(house, page)
    page.goto(f"{home}sessions")
    page.get_by_label("Review my changes").check()
    page.get_by_label("Folder").fill(str(house.workspace))
    review = house.session(started(house, page, "review"))
    assert (review["kind"], review["icon"]) == ("review", "eye")
    expect(page.locator("h1")).to_have_text(review["name"])

    page.goto(f"{home}sessions")
    card = page.locator(f"[data-session='{review['id']}']")
    expect(card).to_contain_text(review["name"])
    expect(card.get_by_role("link", name=re.compile("wait"))).to_be_visible()
    page.get_by_label("Maintain").check()
    expect(page.get_by_label("Folder")).to_have_value(re.compile(house.workspace.name))
    page.get_by_label("Task").fill("Keep the notes in order.")
    page.get_by_label("Scope").fill("notes/**")
    page.get_by_text("More:").click()
    page.get_by_label("Tests of the result").fill("true")
    page.get_by_label("Time limit").fill("30m")
    expect(page.locator("#start-more")).to_contain_text("time limit 30m")
    job = house.session(started(house, page, "maintenance"))
    assert (job["kind"], job["job"]["scope"]) == ("maintenance", ["notes/**"])
    assert (job["job"]["tests"], job["icon"]) == ("true", "wrench")

    page.goto(f"{home}sessions")
    page.get_by_label("Command", exact=True).and_(page.get_by_role("radio")).check()
    page.get_by_role("textbox", name="Command").fill("sh -c 'sleep 60'")
    command = started(house, page, "command")
    assert house.session(command)["command"] == ["sh", "-c", "sleep 60"]
    page.goto(f"{home}sessions")
    card = page.locator(f"[data-session='{command}']")
    expect(card).to_contain_text("working")
    card.get_by_role("button", name="Pause").click()
    expect(card).to_contain_text("paused")
    card.get_by_role("button", name="Go on").click()
    expect(card).to_contain_text("working")
    card.get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop it").click()
    expect(page.locator(f"#ended [data-session='{command}']")).to_contain_text("stopped by")


@pytest.mark.many
def test_the_form_starts_each_agent_on_its_task(house: House, page: Page) -> None:
    programs = house.folder / "programs"
    programs.mkdir()
    for name in ("claude", "codex", "opencode"):
        (programs / name).write_text(AGENT)
        (programs / name).chmod(0o755)
    house.up(PATH=f"{programs}:{os.environ['PATH']}", **KEYS)
    home = sign_in(house, page)
    for kind, title, before in (
        ("claude", "Claude Code", "<-p>"),
        ("codex", "Codex", "<exec>"),
        ("opencode", "OpenCode", "<run>"),
    ):
        page.goto(f"{home}sessions?kind={kind}")
        expect(page.get_by_label(title)).to_be_checked()
        page.get_by_label("Folder").fill(str(house.workspace))
        page.get_by_role("button", name=f"Start {title}").click()
        expect(page.locator("#start-said")).to_contain_text(f"run `gatehouse {kind}` in a terminal")
        page.get_by_label("Task").fill("Move the <b>discounts</b>")
        session = started(house, page, title)
        assert house.session(session)["agent"] == kind
        assert re.fullmatch(
            rf"{house.workspace.name} · {title} · \d\d:\d\d", house.session(session)["name"]
        )
        page.goto(f"{home}sessions/{session}/output")
        expect(page.locator("main")).to_contain_text(f"{before}<Move the <b>discounts</b>>")


def test_an_agent_that_is_not_there_is_told_with_its_remedy(house: House, page: Page) -> None:
    folder = house.folder / "empty"
    folder.mkdir()
    house.up(PATH="/usr/bin:/bin", XDG_CACHE_HOME=str(folder), **KEYS)
    page.goto(f"{sign_in(house, page)}sessions?kind=codex")
    expect(page.locator("#n-codex")).to_have_text("Not installed on this machine")
    page.get_by_label("Folder").fill(str(house.workspace))
    page.get_by_label("Task").fill("Anything")
    page.get_by_role("button", name="Start Codex").click()
    expect(page.locator("#start-said")).to_contain_text("Codex isn't installed")
    expect(page.locator("#start-said")).to_contain_text("run `gatehouse codex` once")
    assert house.sessions() == []


@pytest.mark.many
def test_folders_are_completed_as_they_are_typed(house: House, page: Page) -> None:
    place = house.folder / "src"
    for name in ("shop", "shelf", "other", ".hidden"):
        (place / name).mkdir(parents=True)
    (place / "short").symlink_to(house.workspace)
    (place / "sheet").write_text("a file")
    house.up()
    page.goto(f"{sign_in(house, page)}sessions")
    offered = page.locator("#folders option")
    page.get_by_label("Folder").press_sequentially(f"{place}/sh")
    expect(offered).to_have_count(2)
    values = [one.get_attribute("value") for one in offered.all()]
    assert values == [f"{place}/shelf", f"{place}/shop"]
    page.get_by_label("Folder").fill(f"{place}/")
    expect(offered).to_have_count(3)
    page.get_by_label("Folder").fill(f"{place}/nothing-like-it")
    expect(offered).to_have_count(0)


@pytest.mark.many
def test_an_empty_inbox_offers_three_ways_to_begin(house: House, page: Page) -> None:
    (house.workspace / "README.md").write_text("# Shop\n\nOpen.\n")
    house.up(ANTHROPIC_API_KEY="")
    home = sign_in(house, page)
    begin = page.locator("#first-run")
    expect(begin).to_contain_text("Nothing waits for you")
    begin.get_by_role("link", name="Choose a folder").click()
    expect(page.get_by_label("Review my changes")).to_be_checked()
    page.goto(home)
    begin.get_by_role("link", name="Choose an agent").click()
    expect(page.get_by_label("Claude Code")).to_be_checked()

    page.goto(home)
    begin.get_by_role("button", name="Start the demo").click()
    page.wait_for_url(re.compile(r"/sessions/[0-9a-f]{32}$"))
    demo = house.session(page.url.rpartition("/")[2])
    assert (demo["name"], demo["model"]) == ("shop · Demo", "recorded")
    house.until_told(
        lambda: {"exec", "network", "packages"} <= {one["category"] for one in house.requests()},
        "one action of each kind",
    )
    page.goto(home)
    expect(page.locator("#inbox")).to_contain_text("shop · Demo")
    expect(begin).to_have_count(0)
    house.stop(demo["id"])
    for one in house.requests():
        house.run("deny", one["id"])

    # Where a folder is known, the review begins at once; the demo's is none of the person's.
    house.ended("true")
    page.goto(home)
    begin.get_by_role("button", name="Review my changes").click()
    page.wait_for_url(re.compile(r"/sessions/[0-9a-f]{32}$"))
    review = house.session(page.url.rpartition("/")[2])
    assert (review["kind"], review["workspace"]) == ("review", str(house.workspace))


@pytest.mark.many
def test_what_ended_goes_on_by_its_button(house: House, page: Page) -> None:
    house.up()
    first = house.ended("echo half > work.txt; cat work.txt")
    page.goto(f"{sign_in(house, page)}sessions")
    row = page.locator(f"#ended [data-session='{first}']")
    expect(row).to_contain_text(house.session(first)["name"])
    row.get_by_role("button", name="Resume").click()
    page.wait_for_url(re.compile(r"/sessions/[0-9a-f]{32}$"))
    again = page.url.rpartition("/")[2]
    assert again != first
    assert first in " ".join(house.session(again)["notices"])


@pytest.mark.many
def test_a_name_that_was_given_on_the_page_stays(house: House, page: Page) -> None:
    house.up()
    session = house.ended("true")
    home = sign_in(house, page)
    page.goto(f"{home}sessions/{session}")
    page.get_by_text("Rename").first.click()
    page.get_by_label("Name of this session").fill("the <i>nightly</i> one")
    page.get_by_role("button", name="Rename").click()
    expect(page.locator("h1")).to_have_text("the <i>nightly</i> one")
    page.goto("about:blank")
    house.end()
    house.up()
    page.goto(f"{sign_in(house, page)}sessions")
    row = page.locator(f"#ended [data-session='{session}']")
    expect(row).to_contain_text("the <i>nightly</i> one")
