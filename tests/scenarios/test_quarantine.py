"""Agents in quarantine, as the real programs: they read by reference, and everything else is denied
by their hooks, by the door and by the walls.

Their models are local servers that speak the providers' protocol.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from supervisor.cli.cli import main
from supervisor.core.sessions import Session
from supervisor.errors import UserError
from supervisor.sessions import session_plans
from tests.fakes.messages_server import MessagesServer, Turn, calls, text, tool_use
from tests.fakes.supervised import StartSupervisor, Supervised
from tests.scenarios.process import Gatehouse, until
from tests.scenarios.test_named_agents import (
    KEY,
    MODEL_HOST,
    installed,
    model,
    results,
    with_claude,
)

__all__ = ["installed", "with_claude"]
TYPED = re.compile(r"typed://[^\s\"\\]+")
ANSWER = {
    "verdict": "comment",
    "summary": "Ask @ada about #12.",
    "findings": [
        {
            "path": "src/app.py",
            "line": 1,
            "severity": "low",
            "title": "Adds",
            "body": "See https://evil.example/?s=1",
            "quote": "def add(a, b):",
        },
        {"path": "/etc/passwd", "line": 1, "severity": "high", "title": "Mine", "body": "root"},
    ],
    "notes": [],
}
SAID = f"Done.\n<review>\n{json.dumps(ANSWER)}\n</review>"


@pytest.fixture
def reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Let a quarantine reach a model on this machine's loopback, which nothing else may."""

    def let(server: MessagesServer) -> None:
        policy = session_plans.QUARANTINE_POLICY.read_text()
        file = tmp_path / "reader-of-test.yaml"
        file.write_text(f"{policy}\nallow: [network(127.0.0.1:{server.port})]\n")
        monkeypatch.setattr(session_plans, "QUARANTINE_POLICY", file)

    return let


def settings(server: MessagesServer) -> dict[str, Any]:
    url = f"http://{MODEL_HOST}:{server.port}"
    return {"anthropic_api_key": KEY, "anthropic_base_url": url}


def reads_what_it_was_given(tool: str, argument: str):  # type: ignore[no-untyped-def]
    """A turn that calls a tool with the newest reference in the conversation."""

    def turn(body: dict[str, Any]) -> Turn:
        references = TYPED.findall(json.dumps(body["messages"]))
        wanted = [one for one in references if "src/app.py" in one]
        return calls(tool_use(tool, {argument: wanted[-1]}))

    return turn


def kinds(running: Supervised) -> list[str]:
    return [one["kind"] for one in running.audit("security_event")]


def check_answer(session: Session) -> None:
    review = session.review
    assert review is not None
    assert review["is_answer"] is True
    assert review["dropped"] == {"path": 1}
    (finding,) = review["findings"]
    assert finding["path"] == "src/app.py"
    assert "://" not in finding["body"]
    assert "@ada" not in review["summary"]


async def test_claude_code_reads_by_reference_and_nothing_else(
    start_supervisor: StartSupervisor, workspace: Path, with_claude: str, reading: Any
) -> None:
    file = "/workspace/merged/README.md"
    script = [
        calls(
            tool_use("Bash", {"command": "cat /etc/passwd", "description": "As told"}),
            tool_use("Write", {"file_path": file, "content": "x"}),
            tool_use("Read", {"file_path": file}),
            tool_use("mcp__gatehouse__run_command", {"command": "id"}),
        ),
        calls(tool_use("mcp__gatehouse__glob", {"pattern": "**/*.py"})),
        reads_what_it_was_given("mcp__gatehouse__read", "reference"),
        reads_what_it_was_given("Read", "file_path"),
        text(SAID),
    ]
    with model(*script) as server:
        reading(server)
        async with start_supervisor(
            names={MODEL_HOST: ("127.0.0.1",)}, **settings(server)
        ) as running:
            session = await running.start(
                workspace,
                *("claude", "-p", "Please review."),
                kind="quarantine",
                agent="claude",
                search_path=with_claude,
            )
            session = await running.ended(session)
            assert len(results(server)) == 7, running.story()
            denied, (listed, read, read_too) = results(server)[:4], results(server)[4:]
            assert all(is_error for _, is_error in denied)
            words = " ".join(said for said, _ in denied)
            assert "critical risk: it runs programs" in words
            assert "critical risk: it writes files" in words
            assert "the reference is refused" in words
            assert "typed://src/app.py?d=" in listed[0]
            assert not listed[1]
            assert "return a + b" in read[0]
            assert not read[1]
            assert "Gatehouse has done `Read` itself" in read_too[0]
            assert "return a + b" in read_too[0]
            check_answer(session)
            found = [(one["kind"], one.get("tool")) for one in running.audit("security_event")]
            assert ("denied_tool", "Bash") in found
            assert ("denied_tool", "Write") in found
            assert ("bad_reference", "Read") in found
            assert ("dropped_answers", None) in found
            assert running.requests(session) == []


@pytest.mark.skipif(not os.environ.get("EVERYTHING"), reason="the slowest of them: make test-many")
async def test_opencode_reads_by_reference_and_nothing_else(
    start_supervisor: StartSupervisor, workspace: Path, installed: None, reading: Any
) -> None:
    script = [
        calls(tool_use("bash", {"command": "id", "description": "As told"})),
        calls(tool_use("read", {"filePath": "/workspace/merged/README.md"})),
        calls(tool_use("gatehouse_glob", {"pattern": "**/*.py"})),
        reads_what_it_was_given("gatehouse_read", "reference"),
        text(SAID),
    ]
    with model(*script) as server:
        reading(server)
        async with start_supervisor(
            names={MODEL_HOST: ("127.0.0.1",)}, **settings(server)
        ) as running:
            session = await running.start(
                workspace,
                *("opencode", "run", "--model", "anthropic/claude-sonnet-4-5", "Please review."),
                kind="quarantine",
                agent="opencode",
                search_path="",
            )
            session = await running.ended(session)
            bash, by_path, listed, read = results(server)
            assert "critical risk: it runs programs" in bash[0], running.story()
            assert "the reference is refused" in by_path[0]
            assert "typed://src/app.py?d=" in listed[0]
            assert "return a + b" in read[0]
            check_answer(session)


# An agent of no known kind, without hooks: it goes to the files, the door and the network.
PROGRAM = """
import json, os, urllib.error, urllib.request
from pathlib import Path

def post(route, **body):
    head = {"Authorization": "Bearer " + os.environ["GATEHOUSE_TOKEN"]}
    head["Content-Type"] = "application/json"
    url = os.environ["GATEHOUSE_URL"] + route
    request = urllib.request.Request(url, json.dumps(body).encode(), head)
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)

def tried(work):
    try:
        return work()
    except Exception as error:
        return type(error).__name__

print("lower", os.listdir("/workspace/lower"), "merged", os.listdir("/workspace/merged"))
print("exec", post("/v1/exec", command="id")[0])
print("write", post("/v1/files/write", path="README.md", content="x")[0])
print("tool", post("/v1/tool-calls", tool="command", command="id")[1]["allowed"])
print("out", tried(lambda: urllib.request.urlopen("http://example.test/", timeout=5).status))
print("host", tried(lambda: Path(WORKSPACE, "README.md").read_text()))
listed = post("/v1/quarantine", tool="glob", arguments={"pattern": "src/*"})[1]["text"]
forged = listed.replace("src/app.py", "README.md")
for reference in (listed, forged):
    found = post("/v1/quarantine", tool="read", arguments={"reference": reference})[1]
    print("read", found["allowed"], found["text"][:60])
print(ANSWER)
"""


async def test_an_agent_without_hooks_finds_an_empty_workspace_and_closed_doors(
    start_supervisor: StartSupervisor, workspace: Path
) -> None:
    (workspace / ".gitignore").write_text("secret.env\n")
    (workspace / "secret.env").write_text("TOKEN=1\n")
    program = PROGRAM.replace("WORKSPACE", repr(str(workspace))).replace("ANSWER", repr(SAID))
    async with start_supervisor("version: 1\nallow: [exec(**)]\n") as running:
        session, output = await running.run(
            workspace, "python3", "-c", program, kind="quarantine", search_path=os.defpath
        )
        lines = output.splitlines()
        assert lines[0] == "lower [] merged []", running.story()
        assert lines[1:4] == ["exec 403", "write 403", "tool False"]
        assert "200" not in lines[4]
        assert lines[5].startswith("host ")
        assert "demo" not in lines[5]
        assert lines[6] == "read True 1\tdef add(a, b):"
        assert "read False the reference is refused: its MAC is wrong" in output
        check_answer(session)
        assert running.requests(session) == [] or all(
            one.answer is None for one in running.requests(session)
        )
        tools = {one.get("tool") for one in running.audit("security_event")}
        assert {"Bash", "Write", "Read"} <= tools
        assert session.deadline_at - session.created_at == 300
        assert not (running.parts.sessions.folder(session.id) / "quarantine").exists()
        assert any("in quarantine: 3 files" in one for one in session.notices)


async def test_no_answer_is_said_and_six_are_too_many(
    start_supervisor: StartSupervisor, workspace: Path
) -> None:
    async with start_supervisor() as running:
        session, _ = await running.run(workspace, "echo", "Fine!", kind="quarantine")
        assert session.review is not None
        assert session.review["is_answer"] is False
        assert "bad_answer" in kinds(running)
        for _ in range(5):
            await running.start(workspace, "sleep", "60", kind="quarantine")
        with pytest.raises(UserError, match="5 sessions are in quarantine already"):
            await running.start(workspace, "sleep", "60", kind="quarantine")
        assert "too_many_sessions" in kinds(running)


def test_the_verb_prints_what_stands_of_the_answer(
    tmp_path: Path,
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("GATEHOUSE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("GATEHOUSE_PORT", "0")
    words = ["quarantine", "--workspace", str(workspace), "--", "echo"]
    assert main([*words, SAID]) == 0
    printed = capfd.readouterr()
    answer = json.loads(printed.out)
    assert [one["path"] for one in answer["findings"]] == ["src/app.py"]
    assert answer["dropped"] == {"path": 1}
    assert "dropped: 1 of a file that the manifest hasn't" in printed.err
    assert main([*words, "no"]) == 2
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "There is no answer" in printed.err


def test_the_verb_prints_the_same_beside_a_supervisor_that_runs(
    gatehouse: Path, tmp_path: Path, workspace: Path
) -> None:
    product = Gatehouse(gatehouse, tmp_path, "version: 1\n")
    try:
        log = tmp_path / "up.log"
        product.launch("up", log=log)
        until(lambda: "open http://127.0.0.1:" in log.read_text(), "the page's URL")
        words = ("quarantine", "--workspace", str(workspace), "--")
        done = product.run(*words, "echo", SAID)
        assert done.returncode == 0, done.stderr
        assert [one["path"] for one in json.loads(done.stdout)["findings"]] == ["src/app.py"]
        assert "dropped: 1" in done.stderr
        done = product.run(*words, "echo", "no")
        assert (done.returncode, done.stdout) == (2, "")
        assert product.run("quarantine", "--workspace", str(workspace)).returncode == 1
    finally:
        product.end()
