"""The timeline of a session's page: every request once, in order, whatever their number."""

import re
import threading
from typing import Any

import httpx
import msgspec
import pytest

from supervisor.core.actions import Exec, FileChange, content_hash
from supervisor.server.operator import session_timeline_view
from supervisor.server.operator.pages import page_frame
from supervisor.server.operator.session_timeline_view import (
    MOST_ENTRIES,
    MOST_OUTPUT_LINES,
    MOST_READ_CHARS,
    MOST_TITLE_CHARS,
)
from supervisor.store import requests as store
from tests.fakes.parts import SECRET, FakeParts
from tests.worst_cases import Case, slowest


def many(parts: FakeParts, number: int, *, files: bool) -> None:
    """So many requests of session one, a second apart, the last one now."""
    first = parts.gate.ask(Exec(command="make"), session_id="one", reason="", origin="agent_api")
    rows = []
    for at in range(1, number):
        action = (
            FileChange(operation="write", path=f"f{at}.txt", after=content_hash(b"x"))
            if files
            else Exec(command=f"make {at}")
        )
        rows.append(
            msgspec.structs.replace(
                first, id=f"{at:032x}", action=action, subject=f"s{at}",
                asked_at=first.asked_at + at, fingerprint=f"{at:064x}",
            )
        )  # fmt: skip
    with parts.engine.begin() as connection:
        for at in range(0, len(rows), 1000):
            store.add_all(connection, rows[at : at + 1000])
    parts.clock.advance(number)


def shown(text: str) -> list[str]:
    return re.findall(r"<code>(.*?)</code>", text)


def older(text: str) -> str:
    found = re.search(r'hx-get="([^"]*before=[^"]*)"', text)
    return found[1].replace("&amp;", "&") if found else ""


async def test_a_long_timeline_is_read_page_by_page(
    browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    many(parts, 130, files=False)
    seen: list[str] = []
    path = "/parts/sessions/one/timeline"
    pages = 0
    while path:
        text = (await browser.get(path)).text
        seen += shown(text)
        path, pages = older(text), pages + 1
    assert pages == -(-130 // MOST_ENTRIES)
    assert seen == [*(f"make {at}" for at in range(129, 0, -1)), "make", "sh"]


@pytest.mark.many
@pytest.mark.parametrize("files", [False, True])
async def test_twenty_thousand_requests_are_no_more_work(
    browser: httpx.AsyncClient,
    parts: FakeParts,
    monkeypatch: pytest.MonkeyPatch,
    files: bool,
) -> None:
    many(parts, 20_000, files=files)
    read: list[int] = []
    timeline_of = parts.queue.timeline_of

    def counted(*given: object, **named: object) -> object:
        found = timeline_of(*given, **named)  # type: ignore[arg-type]
        read.append(len(found))
        return found

    monkeypatch.setattr(parts.queue, "timeline_of", counted)
    answer = await browser.get("/sessions/one")
    assert answer.status_code == 200
    assert len(answer.text) < 150_000
    assert "20,000 <small>0 by rule, 0 by you, 20,000 wait" in answer.text
    assert sum(read) <= session_timeline_view.MOST_READ
    if files:
        assert "and 4,999 more" in answer.text  # all that was read is one entry
    assert (await browser.get(older(answer.text))).status_code == 200
    listed = (await browser.get("/sessions/one/changes")).text
    assert listed.count("data-path=") == (200 if files else 0)


async def test_what_rules_allowed_comes_when_it_is_wanted(
    browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    for command in ("git status", "rm -rf x"):
        parts.gate.ask(Exec(command=command), session_id="one", reason="", origin="agent_api")
    page = (await browser.get("/sessions/one")).text
    assert "2 by rules" in page
    assert shown(page)[-2:] == ["rm -rf x", "sh"]
    assert "denied by a rule" in page
    text = (await browser.get("/parts/sessions/one/timeline?rules=true")).text
    assert "git status" in shown(text)
    assert "Allowed by exec(git status)" in text


async def test_output_stands_where_it_was_printed(
    browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    for name in ("first", "second"):
        parts.sessions.say("one", f"{name} <b>{SECRET}\n".encode() + b"line\n" * 30)
        parts.clock.advance(5)
        parts.gate.ask(
            Exec(command=f"make {name}"), session_id="one", reason="", origin="agent_api"
        )
        parts.clock.advance(5)
    parts.sessions.say("one", b"\x1b[2J\x1b[Hgarbage")
    text = (await browser.get("/parts/sessions/one/timeline?output=true")).text
    order = re.findall(r"drew on its screen|make first|make second|\bline\b", text)
    lines = ["line"] * MOST_OUTPUT_LINES
    assert list(dict.fromkeys(order)) == ["drew on its screen", "make second", "line", "make first"]
    assert order == ["drew on its screen", "make second", *lines, "make first", *lines]
    assert "garbage" not in text
    assert SECRET not in text
    assert "<b>" not in text


@pytest.mark.parametrize("path", ["/sessions/one", "/parts/sessions/one/timeline?output=true"])
async def test_long_titles_hold_neither_the_loop_nor_the_page(
    browser: httpx.AsyncClient, parts: FakeParts, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """An agent's denied requests have no bound in number, and each may be 64 kB long."""
    denied = parts.gate.ask(
        Exec(command="rm -rf x"), session_id="one", reason="", origin="agent_api"
    )
    assert denied.decision == "deny"
    outcome = {"ok": True, "stdout": "\u202e" * 65_000}
    rows = [
        msgspec.structs.replace(
            denied, id=f"{at:032x}", action=Exec(command="rm -rf x" + "\u202e" * 65_000),
            subject=f"s{at}", fingerprint=f"{at:064x}", outcome=outcome,
        )
        for at in range(1, MOST_ENTRIES)
    ]  # fmt: skip
    with parts.engine.begin() as connection:
        store.add_all(connection, rows)
    on_loop: list[str] = []

    def watched(where: Any, name: str) -> None:
        real = getattr(where, name)

        def called(*given: Any, **named: Any) -> Any:
            if threading.current_thread() is threading.main_thread():
                on_loop.append(name)
            return real(*given, **named)

        monkeypatch.setattr(where, name, called)

    watched(session_timeline_view, "_entry")
    watched(session_timeline_view, "shown")
    watched(page_frame, "render")
    text = (await browser.get(path)).text
    assert text.count("data-place=") == MOST_ENTRIES + 1
    assert len(text) < 2_000_000
    assert on_loop == []


def test_a_title_takes_no_more_time_the_longer_it_is(parts: FakeParts) -> None:
    units = ("\u202e", "a\u200b", "http://a:b@", "key=val;", "x", f"{SECRET} ", "[redacted")
    worst = slowest(
        lambda text: session_timeline_view._brief(text, parts.redactor), map(Case, units)
    )
    assert worst is not None
    assert not worst.is_bad, worst
    assert worst.at_large is not None
    assert worst.at_large < 1


@pytest.mark.parametrize("back", [*range(len(SECRET) + 2)])
def test_a_title_is_cut_in_no_secret(parts: FakeParts, back: int) -> None:
    for at in (MOST_TITLE_CHARS, MOST_READ_CHARS):
        text = ("x" * (at - back - 1) + f" {SECRET} ").ljust(2 * MOST_READ_CHARS, "y")
        found = session_timeline_view._brief(text, parts.redactor)
        assert SECRET[:1] not in found.replace("[redacted]", "")
        assert len(found) <= MOST_TITLE_CHARS + len("[redacted]…")


@pytest.mark.parametrize("at", [1, 7, len(SECRET) - 1])
async def test_a_secret_that_is_printed_in_two_parts_shows_in_none(
    browser: httpx.AsyncClient, parts: FakeParts, at: int
) -> None:
    for number, said in enumerate([f"begun {SECRET[:at]}", f"{SECRET[at:]} ended\n", "more\n"]):
        parts.sessions.say("one", said.encode())
        parts.clock.advance(5)
        parts.gate.ask(
            Exec(command=f"make {number}"), session_id="one", reason="", origin="agent_api"
        )
        parts.clock.advance(5)
    text = (await browser.get("/parts/sessions/one/timeline?output=true")).text
    printed = re.findall(r'<pre class="term">(.*?)</pre>', text, re.DOTALL)
    assert printed == ["more", " ended", "begun [redacted]"]


async def test_a_secret_at_the_beginning_of_what_is_read_shows_no_end(
    browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    most = session_timeline_view.MOST_OUTPUT_BYTES
    for at in range(1, len(SECRET)):
        session = "one" if at % 2 else "two"
        parts.sessions.say(session, f"{SECRET}".encode() + b"." * (most - at))
        text = (await browser.get(f"/parts/sessions/{session}/timeline?output=true")).text
        assert SECRET[-at:] + "." not in text
