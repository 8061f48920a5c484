"""A session's screen by page and API: fed once, bounded, without secrets."""

import httpx
import pytest

from supervisor.server.operator import screens
from supervisor.server.operator.screens import REPLAY_BYTES, Screens
from supervisor.sessions import session_output
from tests.fakes.parts import SECRET, FakeParts

FULL = "\x1b[?1049h\x1b[2J"


async def test_a_screen_goes_on_where_it_was(cli: httpx.AsyncClient, parts: FakeParts) -> None:
    sessions = parts.sessions
    sessions.say("one", f"{FULL}\x1b[2;3Hone".encode())
    found = (await cli.get("/api/sessions/one/screen")).json()
    assert [found[name] for name in ("is_drawn", "is_alternate", "rows", "columns")] == [
        *(True, True, 24, 80)
    ]
    assert [row["spans"][0]["text"] for row in found["lines"] if row["spans"]] == ["  one"]
    session_output.mark_size(sessions.folder("one"), 5, 20)
    sessions.say("one", b"\x1b[5;1Htw\xc3")
    sessions.say("one", b"\xa9\x1b[?1049l")
    session_output.mark_size(sessions.folder("one"), 6, 30)
    found = (await cli.get("/api/sessions/one/screen")).json()
    assert (found["rows"], found["columns"], found["is_alternate"]) == (6, 30, False)
    assert found["next_offset"] == sessions.output_size("one")
    part = (await cli.get("/parts/sessions/one/screen")).text
    assert "30 columns, 6 rows" in part
    assert (await cli.get("/api/sessions/none/screen")).status_code == 404


async def test_output_that_is_printed_is_no_screen(
    cli: httpx.AsyncClient, browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    parts.sessions.say("one", b"line\n\x1b[31mred\x1b[0m\n")
    found = (await cli.get("/api/sessions/one/screen")).json()
    assert (found["is_drawn"], found["lines"]) == (False, [])
    page = (await browser.get("/sessions/one/output")).text
    assert 'id="output"' in page
    assert "data-screen" not in page
    parts.sessions.say("one", f"{FULL}now".encode())
    assert 'data-screen="one"' in (await browser.get("/sessions/one/output")).text
    assert 'id="output"' in (await browser.get("/sessions/one/output?lines=true")).text


async def test_a_secret_shows_nowhere_though_it_goes_on_in_the_next_row(
    cli: httpx.AsyncClient, parts: FakeParts
) -> None:
    begin = f"{FULL}\x1b[31m" + "x" * 74 + SECRET + "\x1b[5;1H\x1b[32mgreen"
    parts.sessions.say("one", begin.encode())
    text = (await cli.get("/api/sessions/one/screen")).text
    assert "[redacted]" in text
    assert SECRET[:6] not in text.replace("[redacted]", "")
    assert "green" in text
    parts.sessions.say("two", f"{SECRET[:8]}\r\n\x1b[A".encode() + SECRET.encode() + b"\r\n" * 40)
    gone = (await cli.get("/parts/sessions/two/screen?gone=true")).text
    assert SECRET not in gone
    assert "[redacted]" in gone


async def test_a_secret_over_the_top_edge_shows_no_half(
    cli: httpx.AsyncClient, browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    text = (
        f"{FULL}\x1b[?1049l\x1b[32mabove\x1b[0m\r\n" + "x" * 72 + SECRET + "\r\n" * 22 + "end\r\n"
    )
    parts.sessions.say("one", text.encode())
    found = (await cli.get("/api/sessions/one/screen")).json()
    shown = {
        name: ["".join(span["text"] for span in row["spans"]) for row in found[name]]
        for name in ("gone", "lines")
    }
    assert [shown["gone"], shown["lines"][0]] == [["above"], "x" * 72 + "[redacted]"]
    assert "end" in shown["lines"]
    assert found["gone"][0]["spans"][0]["looks"] == "green"  # a line without a secret keeps them
    for gone in ("false", "true"):
        page = (await browser.get(f"/parts/sessions/one/screen?gone={gone}")).text
        assert SECRET[:6] not in page
        assert SECRET[-6:] not in page


async def test_a_long_line_over_the_top_edge_stays_in_its_rows_beside_a_secret(
    parts: FakeParts,
) -> None:
    wrapped = "a" * 80 + "b" * 5
    parts.sessions.say("one", f"\x1b[H{SECRET}\r\n{wrapped}\r\n{SECRET}".encode() + b"\r\n" * 22)
    found = await Screens(parts).view("one", with_gone=True)  # type: ignore[arg-type]
    assert [row.text for row in found.gone] == ["[redacted]", "a" * 80]
    assert [row.text for row in found.lines][:3] == ["b" * 5, "[redacted]", ""]


async def test_a_key_of_many_lines_over_the_top_edge_is_one_secret(parts: FakeParts) -> None:
    key = [f"{number:02}" + "k3Y/" * 15 for number in range(20)]
    said = ["-----BEGIN RSA PRIVATE KEY-----", *key, "-----END RSA PRIVATE KEY-----"]
    parts.sessions.say("one", ("\x1b[H" + "\r\n".join(["above", *said, "below"])).encode())
    parts.sessions.say("one", b"\r\n" * 10)
    for gone in (False, True):
        found = await Screens(parts).view("one", with_gone=gone)  # type: ignore[arg-type]
        text = "\n".join(row.text for row in [*found.gone, *found.lines])
        assert "k3Y" not in text
        assert "below" in text


async def test_only_the_end_of_a_long_output_is_replayed(parts: FakeParts) -> None:
    parts.sessions.say("one", b"first\r\n" * (REPLAY_BYTES // 4) + b"\x1b[2Jlast")
    made = Screens(parts)  # type: ignore[arg-type]
    found = await made.view("one", with_gone=True)
    assert (found.is_cut, found.next_offset) == (True, parts.sessions.output_size("one"))
    assert "last" in found.lines[-1].text
    parts.sessions.say("one", b"more" * REPLAY_BYTES)
    again = await made.view("one")
    assert again.next_offset == parts.sessions.output_size("one")


async def test_few_screens_are_kept(parts: FakeParts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screens, "MOST_SCREENS", 1)
    made = Screens(parts)  # type: ignore[arg-type]
    for name in ("one", "two", "one"):
        parts.sessions.say(name, f"\x1b[H{name}".encode())
        assert (await made.view(name)).lines[0].text.strip() == name
    assert len(made._kept) == 1
