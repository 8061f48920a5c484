"""The hook of Claude Code and Codex, as they start it: what it asks for a call, and that whatever
goes wrong blocks the tool."""

import http.server
import io
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from agent_image.hooks import gate
from agent_image.hooks.pre_tool_use import main, questions
from supervisor.settings import ROOT

HOOK = ROOT / "agent_image/hooks/pre_tool_use.py"
PATCH = (
    "*** Begin Patch\n*** Update File: src/a.py\n*** Move to: src/b.py\n@@\n-x\n+y\n*** Add File: n"
)


def called(tool: str, **given: Any) -> dict[str, Any]:
    return {"tool_name": tool, "tool_input": given, "cwd": "/workspace/merged/src"}


@pytest.mark.parametrize(
    ("call", "asked"),
    [
        (
            called("Bash", command="make", description="Build it"),
            [{"tool": "command", "command": "make", "reason": "Build it"}],
        ),
        (called("Monitor", command="tail -f log"), [{"tool": "command", "command": "tail -f log"}]),
        (called("Write", file_path="/tmp/x", content="y"), [{"tool": "edit", "path": "/tmp/x"}]),
        (called("NotebookEdit", notebook_path="a.ipynb"), [{"tool": "edit", "path": "a.ipynb"}]),
        (
            called("apply_patch", command=PATCH),
            [{"tool": "edit", "path": one} for one in ("src/a.py", "src/b.py", "n")],
        ),
        (called("WebFetch", url="https://x.test/"), [{"tool": "fetch", "url": "https://x.test/"}]),
        (
            called("mcp__git_hub__get_issue", number=3),
            [
                {
                    "tool": "mcp",
                    "server": "git_hub",
                    "name": "get_issue",
                    "arguments": '{"number": 3}',
                }
            ],
        ),
        (called("Read", file_path="/etc/passwd"), []),
        (called("TodoWrite", todos=[]), []),
    ],
)
def test_a_call_becomes_a_question(call: dict[str, Any], asked: list[dict[str, Any]]) -> None:
    found = questions(call)
    assert len(found) == len(asked)
    for one, wanted in zip(found, asked, strict=True):
        assert wanted.items() <= one.items()
        assert one.get("cwd") in (None, "/workspace/merged/src")


def test_in_quarantine_every_call_is_asked_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEHOUSE_QUARANTINE", "1")
    asked = [{"tool": "named", "name": "Read", "arguments": {"file_path": "x"}}]
    assert questions(called("Read", file_path="x")) == asked
    asked = [{"tool": "named", "name": "Write", "arguments": {}}]
    assert questions(called("Write", file_path="x", content="y")) == asked
    (asked_of_read,) = questions(called("Read", file_path="/workspace/merged/typed:/a.py?d=0"))
    assert asked_of_read["arguments"] == {"file_path": "typed://a.py?d=0"}
    (asked_of_mcp,) = questions(called("mcp__notes__wipe", all=True))
    assert asked_of_mcp["name"] == "mcp__notes__wipe"


@contextmanager
def door(status: int, body: bytes) -> Iterator[list[dict[str, Any]]]:
    """A door that gives this answer; what it was asked."""
    asked: list[dict[str, Any]] = []

    class Door(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["content-length"]))
            asked.append(json.loads(raw) | {"token": self.headers["authorization"]})
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Door)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    before, gate.DOOR = gate.DOOR, ("127.0.0.1", server.server_address[1])
    try:
        yield asked
    finally:
        gate.DOOR = before
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_yes_is_one_and_names_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEHOUSE_TOKEN", "the-token")
    with door(200, b'{"allowed": true, "why": "by a rule", "request_id": null}') as asked:
        assert gate.ask({"tool": "command", "command": "ls"}) == (True, "by a rule")
    assert asked == [{"tool": "command", "command": "ls", "token": "Bearer the-token"}]


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, b'{"allowed": false, "why": "not that"}', "not that"),
        (200, b'{"allowed": "yes", "why": "odd"}', "odd"),
        (200, b'{"allowed": true', "no whole answer"),
        (200, b"", "no whole answer"),
        (200, b"[]", "no whole answer"),
        (400, b'{"error": "not understood", "remedy": "send less"}', "not understood; send less"),
        (429, b'{"error": "too often", "remedy": ""}', "too often; nothing was asked"),
        (500, b"Internal", "no whole answer"),
    ],
)
def test_everything_else_is_a_no(status: int, body: bytes, said: str) -> None:
    with door(status, body):
        allowed, why = gate.ask({"tool": "command", "command": "ls"})
    assert not allowed
    assert said in why


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (called("Bash", command="ls"), {"permissionDecision": "allow"}),
        # Codex, which takes a yes that changes nothing for a fault.
        (called("Bash", command="ls") | {"turn_id": "1"}, None),
    ],
)
def test_a_yes_is_told_as_each_agent_reads_it(
    call: dict[str, Any],
    said: dict[str, Any] | None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(call)))
    with door(200, b'{"allowed": true, "why": "by a rule"}'):
        assert main() == 0
    out = capsys.readouterr().out
    if said is None:
        assert out == ""
    else:
        assert json.loads(out)["hookSpecificOutput"].items() >= said.items()


def run(given: str) -> subprocess.CompletedProcess[str]:
    """The program as an agent starts it. Nobody listens at the door here."""
    return subprocess.run(
        [sys.executable, "-I", "-S", HOOK], input=given, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (json.dumps(called("Bash", command="ls")), "can't be reached"),
        ("{", "hook failed"),
        ("[]", "hook failed"),
        (json.dumps(called("WebFetch")), "hook failed"),
        (json.dumps(called("Edit", old="x")), "hook failed"),
        (json.dumps(called("mcp__odd")), "hook failed"),
    ],
)
def test_what_can_not_be_asked_blocks_the_tool(given: str, said: str) -> None:
    done = run(given)
    assert done.returncode == 2, "of every other code an agent only takes note"
    assert said in done.stderr
    assert done.stdout == ""


def test_what_only_reads_is_not_asked_about() -> None:
    done = run(json.dumps(called("Read", file_path="README.md")))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
