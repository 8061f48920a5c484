"""The page of one session: a full-screen program's screen, the order of what happened, undo."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PATIENCE_MS
from tests.doors.conftest import House, one_line, until
from tests.doors.terminal import Terminal
from tests.doors.test_page_buttons import page  # noqa: F401

expect.set_options(timeout=PATIENCE_MS)
pytestmark = [pytest.mark.timeout(300)]
ROWS, COLUMNS = 18, 70
# A program that takes the whole screen, and says which key was pressed last.
CURSES = """
import curses
def main(screen):
    curses.start_color()
    curses.init_pair(1, curses.COLOR_RED, curses.COLOR_BLACK)
    curses.curs_set(0)
    key = "none"
    while key != "q":
        screen.erase()
        screen.border()
        screen.addstr(3, 5, "the key is " + key, curses.color_pair(1) | curses.A_BOLD)
        screen.addstr(4, 5, "%d by %d" % screen.getmaxyx())
        screen.refresh()
        pressed = screen.getkey()
        key = key if pressed == "KEY_RESIZE" else pressed
print("before the screen")
curses.wrapper(main)
print("after the screen")
"""
TABS = ("", "/changes", "/output", "/network", "/spend")


def home_of(house: House, page: Page) -> str:  # noqa: F811
    url = house.ok("url").strip()
    page.goto(url)
    home = url.partition("login")[0]
    page.wait_for_url(home)
    return home


def drawn(page: Page) -> list[str]:  # noqa: F811
    return page.locator("[data-role=screen]").inner_text().splitlines()


@pytest.mark.many
def test_a_full_screen_program_is_seen_as_its_terminal_shows_it(
    house: House,
    page: Page,  # noqa: F811
) -> None:
    house.up()
    home = home_of(house, page)
    terminal = Terminal(
        house, "run", "--", "/usr/bin/python3", "-c", CURSES, rows=ROWS, columns=COLUMNS
    )
    session = house.until_told(house.sessions, "the session")[0]["id"]
    address = f"{home}sessions/{session}/output"
    page.goto(address)
    until(
        lambda: (
            f"{ROWS} by {COLUMNS}" in str(house.http("GET", f"/api/sessions/{session}/screen")[1])
        ),
        "the program's screen",
    )
    page.goto(address)
    expect(page.locator("[data-role=screen]")).to_contain_text("the key is none")
    lines = drawn(page)
    assert lines[3].index("the key is none") == 5
    assert f"{ROWS} by {COLUMNS}" in lines[4]
    assert len(lines) == ROWS
    assert all(len(line) == COLUMNS for line in lines)
    expect(page.locator("[data-role=screen] .red.bold")).to_have_text("the key is none")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x1b]", "".join(lines))

    terminal.types("n")  # live, without a person's doing
    expect(page.locator("[data-role=screen]")).to_contain_text("the key is n")
    view = house.http("GET", f"/api/sessions/{session}/screen")[1]
    assert (view["rows"], view["columns"], view["is_drawn"]) == (ROWS, COLUMNS, True)
    assert view["is_alternate"]

    terminal.types("q")
    assert terminal.process.wait(60) == 0
    house.end()
    house.up()
    page.goto(f"{home_of(house, page)}sessions/{session}/output")
    screen = page.locator("[data-role=screen]")
    expect(screen).to_contain_text("before the screen")
    expect(screen).to_contain_text("after the screen")
    expect(screen).not_to_contain_text("the key is")
    page.get_by_role("link", name="Lines").click()
    expect(page.locator("#output")).to_contain_text("after the screen")


@pytest.fixture
def worked(house: House) -> tuple[House, str]:
    """A session that printed, and whose changes were approved, denied and left waiting."""
    house.up()
    script = """
echo said-first
echo one > a.txt
until [ -e answered ]; do sleep 0.1; done
echo said-later
echo two > b.txt
echo new >> README.md
"""
    place = ("--workspace", str(house.workspace))
    house.start("run", *place, "--", "sh", "-c", script)
    waiting = house.until_all_wait("write a.txt")
    house.ok("approve", waiting["write a.txt"])
    until((house.workspace / "a.txt").exists, "the first file")
    (house.workspace / "answered").write_text("")
    waiting = house.until_all_wait("write b.txt", "write README.md")
    house.ok("deny", waiting["write b.txt"], "--reason", "not in the root")
    return house, str(house.sessions()[0]["id"])


def entries(house: House, session: str, more: str = "output=true") -> list[str]:
    """The entries of a timeline in words, newest first."""
    text = house.page.get(f"/parts/sessions/{session}/timeline?{more}").text
    found = re.findall(r"<li data-place.*?</li>", text, re.DOTALL)
    return [" ".join(re.sub(r"<[^>]*>", " ", one).split()) for one in found]


def test_the_timeline_says_what_was_asked_answered_done_and_undone(
    worked: tuple[House, str],
) -> None:
    house, session = worked
    asked = {one["title"]: one["id"] for one in house.http("GET", "/api/requests?status=all")[1]}
    assert house.run("undo", asked["write a.txt"], "--yes").returncode == 0
    assert not (house.workspace / "a.txt").exists()
    found = entries(house, session)
    # The two files were asked about in the same moment.
    order = ["undo of 1 change", "README.md", "said-later", "a.txt", "said-first", "sh -c"]
    at = [next(number for number, one in enumerate(found) if word in one) for word in order]
    assert at == sorted(at), found
    by_word = dict(zip(order, (found[number] for number in at), strict=True))
    assert "waits for you" in by_word["README.md"]
    (denied,) = (one for one in found if "b.txt" in one and "sh -c" not in one)
    assert "denied by you" in denied
    assert "“not in the root”" in denied
    assert "undone" in by_word["a.txt"]
    assert "You approved after" in by_word["a.txt"]
    assert "started" in by_word["sh -c"]
    assert not [one for one in entries(house, session, "output=false") if one.startswith("said-")]
    one_line(house.run("undo", "0" * 32, "--yes"))
    assert house.page.get(f"/parts/sessions/{session}/timeline?before=x").status_code == 400

    house.end()
    house.up()
    again = entries(house, session)
    assert denied in again
    assert "said-first" in " ".join(again)


def test_one_file_is_undone_on_the_changes_tab(
    worked: tuple[House, str],
    page: Page,  # noqa: F811
) -> None:
    house, session = worked
    home = home_of(house, page)
    page.goto(f"{home}sessions/{session}/changes")
    states = {
        one.get_attribute("data-path"): one.get_attribute("data-state")
        for one in page.locator("details[data-state]").all()
    }
    assert states == {"README.md": "waiting", "a.txt": "applied", "b.txt": "denied"}
    for path, line in {"README.md": "new", "a.txt": "one", "b.txt": "two"}.items():
        expect(page.locator(f"[data-path='{path}'] tr.add .code")).to_have_text(line)
    page.get_by_role("button", name="Undo a.txt").click()
    page.get_by_role("button", name="Undo 1 path").click()
    expect(page.locator("[data-role=undone]")).to_be_visible()
    expect(page.locator("[data-path='a.txt']")).to_have_attribute("data-state", "undone")
    assert not (house.workspace / "a.txt").exists()
    assert (house.workspace / "README.md").read_text() == "# Shop\n"


@pytest.mark.many
@pytest.mark.parametrize("width", [390, 1300])
def test_each_tab_has_an_address_and_fits(
    worked: tuple[House, str],
    page: Page,  # noqa: F811
    width: int,
) -> None:
    house, session = worked
    complaints: list[str] = []
    page.on("console", lambda one: complaints.append(one.text) if one.type == "error" else None)
    page.set_viewport_size({"width": width, "height": 900})
    home = home_of(house, page)
    page.goto(f"{home}sessions/{session}")
    for tab in TABS:
        link = page.locator(f".tabs a[href='/sessions/{session}{tab}']")
        link.click()
        page.wait_for_url(f"{home}sessions/{session}{tab}")
        expect(link).to_have_attribute("aria-current", "page")
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{tab} is {wide} px wide"
    page.goto(f"{home}network?session={session}")
    page.wait_for_url(f"{home}sessions/{session}/network")
    assert complaints == []
