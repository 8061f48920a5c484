"""A person is told elsewhere what waits: over real HTTP, and by a `notify-send` on PATH."""

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doors.conftest import House, until
from tests.fakes.quiet_http import QuietHandler, QuietServer

pytestmark = [pytest.mark.timeout(300)]

SECRET = "B0SECRETOFTHEADDRESS"
TOKEN = "ghp_" + "1aB2" * 9
NAME = "<!here> @everyone `x` [redacted]"
# The same where a target reads markup and mentions.
PLAIN = "\u2039!here\u203a \uff20everyone 'x' [redacted]"


class _Handler(QuietHandler):
    server: "Chats"

    def do_POST(self) -> None:
        path, body = self.path.removeprefix(f"/{SECRET}"), self.body()
        if path == "/slow":
            self.server.over.wait()
            return
        if path == "/moved":
            self.send_response(307)
            self.send_header("location", f"/{SECRET}/elsewhere")
            self.send_header("content-length", "0")
            self.end_headers()
            return
        self.server.told.append((path, dict(self.headers), body.decode()))
        fails = path == "/busy" and sum(one == path for one, _, _ in self.server.told) == 1
        self.respond(503 if fails else 200, "text/plain", b"")


class Chats(QuietServer):
    """Chats that one machine serves: what each was told, by its path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.told: list[tuple[str, dict[str, str], str]] = []
        self.over = threading.Event()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{SECRET}{path}"

    def lines(self, path: str) -> list[str]:
        return [body for one, _, body in self.told if one == path]


@pytest.fixture
def chats() -> Iterator[Chats]:
    with Chats() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.over.set()
        server.shutdown()


def desktop(house: House) -> Path:
    """A `notify-send` that writes its words to the file that is returned."""
    said, folder = house.folder / "said.txt", house.folder / "bin"
    folder.mkdir()
    (folder / "notify-send").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {said}\n')
    (folder / "notify-send").chmod(0o755)
    return said


def test_a_request_that_waits_is_told_once_at_every_target(house: House, chats: Chats) -> None:
    said = desktop(house)
    paths = ("ntfy", "slack", "discord", "webhook")
    more = {
        "GATEHOUSE_TELL": ", ".join(
            ["desktop", f"webhook={chats.url('/slow')}", f"webhook={chats.url('/moved')}"]
            + [f"{one}={chats.url(f'/{one}')}" for one in paths]
            + [f"webhook={chats.url('/busy')}"]
        ),
        "GATEHOUSE_TELL_AFTER": "500ms",
        "PATH": f"{house.folder / 'bin'}:{os.environ['PATH']}",
    }
    started = house.up(**more)
    house.agent(f"printf CONTENT > '{NAME.replace('[redacted]', TOKEN)}.txt'")
    until(lambda: all(chats.lines(f"/{one}") for one in paths), "the chats")
    (card,) = house.requests()
    address = f"{house.page.base_url}".rstrip("/") + f"/requests/{card['id']}"

    told = until(lambda: said.exists() and said.read_text().splitlines(), "notify-send")
    assert told[:2] == ["--app-name=Gatehouse", "--"]
    (name,) = [one["name"] for one in house.sessions()]
    assert told[2:] == [f"{name} wants to create a file: write {PLAIN}.txt {address}"]
    headers = next(headers for one, headers, _ in chats.told if one == "/ntfy")
    assert headers["Click"] == address
    assert chats.lines("/ntfy") == [f"{name} wants to create a file: write {NAME}.txt"]
    shown = f"`{name}` wants to create a file: `write {PLAIN}.txt` {address}"
    assert [json.loads(one)["text"] for one in chats.lines("/slack")] == [shown]
    assert [json.loads(one)["content"] for one in chats.lines("/discord")] == [shown]
    assert json.loads(chats.lines("/webhook")[0])["address"] == address

    until(lambda: len(chats.lines("/busy")) == 2, "the retry")

    def untold() -> str:
        return str(house.http("GET", "/api/status")[1]["untold"])

    until(lambda: "no answer within 10 s" in untold() and "answered 307" in untold(), "the notice")
    assert "503" not in untold(), "the retry was heard"
    assert "/elsewhere" not in [one for one, _, _ in chats.told]
    page = house.page.get("/").text
    assert "Not told:" in page
    record = (house.data / "audit.log").read_text()
    for text in (page, untold(), record, started.printed):
        assert SECRET not in text
    assert "CONTENT" not in str(chats.told)
    assert TOKEN not in str(chats.told) + said.read_text()


def test_many_are_one_line_and_a_restart_tells_nothing_twice(house: House, chats: Chats) -> None:
    first = house.up()
    house.ended("for name in a b c; do echo $name > $name.txt; done")
    house.ended("for name in d e f g; do echo $name > $name.txt; done")
    first.process.terminate()
    assert first.ended() == 0

    more = {
        "GATEHOUSE_TELL": f"webhook={chats.url('/one')}",
        "GATEHOUSE_TELL_AFTER": "500ms",
    }
    second = house.up(**more)
    until(lambda: chats.lines("/one"), "the line")
    body = json.loads(chats.lines("/one")[0])
    assert body["text"] == "7 requests wait in 2 sessions"
    assert body["address"].endswith("/")
    until(lambda: (house.data / "told.json").exists(), "that it is kept")
    assert SECRET not in (house.data / "told.json").read_text()
    second.process.terminate()
    assert second.ended() == 0

    more["GATEHOUSE_TELL"] += f", webhook={chats.url('/two')}"
    house.up(**more)
    until(lambda: chats.lines("/two"), "the new target's line")
    assert len(chats.lines("/one")) == 1, "a target isn't told twice"


def test_doctor_sends_a_test_line_and_names_what_fails(house: House, chats: Chats) -> None:
    tell = f"ntfy={chats.url('/ntfy')}, slack={chats.url('/moved')}, desktop"
    done = house.run("doctor", GATEHOUSE_TELL=tell, PATH=os.environ["PATH"])
    assert "ok    telling ntfy: a test line was sent" in done.stdout
    assert "note  telling Slack: it answered 307" in done.stdout
    assert "test line" in chats.lines("/ntfy")[0]
    assert SECRET not in done.stdout + done.stderr
    done = house.run("doctor", GATEHOUSE_TELL="pager=x")
    assert "GATEHOUSE_TELL: number 1 is of no known kind" in done.stdout
