"""Commands that an agent asks for, run in real tool sandboxes and asked for through the real
agent API from inside a sandbox."""

import asyncio
import contextlib
import http.server
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import pytest_asyncio

from supervisor.base.process import descendants
from supervisor.channels.exec import KEPT_BYTES, MOST_AT_ONCE
from supervisor.core.actions import Exec
from supervisor.core.approvals import Request, status
from supervisor.core.sessions import Session
from supervisor.network import network
from tests.fakes.processes import open_files
from tests.fakes.sandboxed_agent import agent_command, answers
from tests.fakes.supervised import PATIENCE_S, Supervised, make_repository, settings_in, supervised

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOST = "host.test"
OUTPUT_BYTES = 256 * 1024
# How long a command gets: longer where the machine was too slow to begin it in that time.
SHORT_S = (0.5, 1.5, 4.5, 13.5, 40.5)


class _Site(http.server.BaseHTTPRequestHandler):
    paths: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.paths.append(self.path)
        body = b"hello from outside\n"
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class's name)
        """Quiet."""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """A web server on this machine, at a name that egress knows."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Site) as server:
        threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()
        yield f"http://{HOST}:{server.server_address[1]}"
        server.shutdown()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory, site: str) -> AsyncIterator[Supervised]:
    port = site.rpartition(":")[2]
    policy = f"""
version: 1
allow:
  - exec(echo allowed *)
  - network({HOST}:{port})
  - network(127.0.0.1:{port})
deny:
  - exec(rm *)
"""
    settings = settings_in(tmp_path_factory.mktemp("exec"), policy, output_bytes=OUTPUT_BYTES)
    names = {HOST: ("127.0.0.1",)}
    async with supervised(settings, names=names, egress=network.EGRESS) as running:
        yield running


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project")


async def ask(
    running: Supervised, workspace: Path, *bodies: dict[str, Any]
) -> list[dict[str, Any]]:
    """What an agent is answered that asks for these commands one after another; each is
    approved."""
    with running.answering(lambda request: "approved"):
        _, output = await running.run(
            workspace, *agent_command(*(("/v1/exec", body) for body in bodies))
        )
    found = answers(output)
    assert len(found) == len(bodies), running.story()
    return found


async def test_an_approved_command_gives_its_output_and_exit_code(
    running: Supervised, workspace: Path
) -> None:
    command = "pwd; cat README.md; echo oops >&2; exit 3"
    session = await running.start(
        workspace, *agent_command(("/v1/exec", {"command": command, "reason": "to look"}))
    )
    request = await running.asked("exec", where=lambda one: one.session_id == session.id)
    assert request.reason == "to look"
    running.approve(request)
    await running.ended(session)
    (answer,) = answers(running.output(session))
    assert answer["allowed"]
    assert answer["outcome"]["exit_code"] == 3
    assert answer["outcome"]["stdout"] == "/workspace/merged\n# demo\n"
    assert answer["outcome"]["stderr"] == "oops\n"
    assert not answer["outcome"]["truncated"]
    assert not answer["outcome"]["timed_out"]
    (settled,) = running.audit("effect_settled", request=request.id)
    assert settled["detail"]["exit_code"] == 3
    assert (settled["outcome"], settled["detail"]["error"]) == ("failed", "exit code 3")
    assert (answer["outcome"]["ok"], answer["outcome"]["error"]) == (False, "exit code 3")


async def test_a_command_finds_a_server_of_the_machine_at_its_port(
    running: Supervised, workspace: Path, site: str
) -> None:
    """A rule names it; a program that knows no proxy is joined with it as it is."""
    port = site.rpartition(":")[2]
    line = f"curl -sS --noproxy '*' http://127.0.0.1:{port}/raw"
    with running.answering(lambda request: "approved"):
        _, output = await running.run(
            workspace,
            *agent_command(("/v1/exec", {"command": line})),
            host_ports=(int(port),),
        )
    (found,) = answers(output)
    assert found["outcome"]["stdout"] == "hello from outside\n", found


async def test_rules_answer_without_a_person(running: Supervised, workspace: Path) -> None:
    calls = [
        ("/v1/exec", {"command": "echo allowed here"}),
        ("/v1/exec", {"command": "rm -rf src"}),
    ]
    session, output = await running.run(workspace, *agent_command(*calls))
    allowed, denied = answers(output)
    assert allowed["outcome"]["stdout"] == "allowed here\n"
    assert denied["status"] == "denied"
    assert denied["rule"] == "exec(rm *)"
    assert denied["outcome"] is None
    assert [status(request) for request in running.requests(session)] == ["used", "denied"]


async def test_a_denied_command_never_runs(running: Supervised, workspace: Path) -> None:
    with running.answering(lambda request: "denied"):
        _, output = await running.run(
            workspace, *agent_command(("/v1/exec", {"command": "echo x > ran.txt"}))
        )
    (answer,) = answers(output)
    assert answer["status"] == "denied"
    assert "denied by the test" in answer["why"]
    assert not (workspace / "ran.txt").exists()


async def test_a_command_that_takes_too_long_is_killed_with_all_it_started(
    running: Supervised, workspace: Path
) -> None:
    command = "sleep 1000 & echo begun; sleep 1000"
    for timeout_s in SHORT_S:
        (answer,) = await ask(running, workspace, {"command": command, "timeout_s": timeout_s})
        assert answer["outcome"]["timed_out"]
        assert answer["outcome"]["exit_code"] != 0
        assert f"{timeout_s} s" in answer["outcome"]["killed_why"]
        assert answer["outcome"]["error"] == answer["outcome"]["killed_why"]
        assert not _commands_like("sleep 1000")
        if answer["outcome"]["stdout"] == "begun\n":
            return
    raise AssertionError("it never began")


async def test_long_output_is_cut_and_says_so(running: Supervised, workspace: Path) -> None:
    """The last part is kept, where a build says what is wrong; what is beyond the session's own
    bound isn't kept at all."""
    middling = f"head -c {KEPT_BYTES} /dev/zero | tr '\\0' a; echo the end"
    endless = f"yes no | head -c {8 * OUTPUT_BYTES}; sleep 1000"
    (answer,) = await ask(running, workspace, {"command": middling})
    assert answer["outcome"]["truncated"]
    assert len(answer["outcome"]["stdout"]) == KEPT_BYTES
    assert answer["outcome"]["stdout"].endswith("a" * 50 + "the end\n")
    for timeout_s in SHORT_S:
        (answer,) = await ask(running, workspace, {"command": endless, "timeout_s": timeout_s})
        assert len(answer["outcome"]["stdout"]) <= KEPT_BYTES
        if answer["outcome"]["truncated"]:
            return
    raise AssertionError("it was never cut")


async def test_a_working_folder_outside_of_the_workspace_is_refused(
    running: Supervised, workspace: Path
) -> None:
    bodies = [
        {"command": "pwd", "cwd": cwd}
        for cwd in ("..", "/etc", "src/../../..", "/workspace/lower", "no/such")
    ]
    bodies += [{"command": "pwd", "cwd": cwd} for cwd in ("src", "/workspace/merged/src")]
    *refused, missing, inside, absolute = await ask(running, workspace, *bodies)
    assert all(
        answer["http"] == 400 and "outside the workspace" in answer["why"] for answer in refused
    )
    assert not missing["outcome"]["ok"]
    assert inside["outcome"]["stdout"] == absolute["outcome"]["stdout"] == "/workspace/merged/src\n"


async def test_the_tool_sandbox_has_no_token_and_no_agent_door(
    running: Supervised, workspace: Path
) -> None:
    probe = (
        "env | sort; echo PROCESSES; ls -d /proc/[0-9]*; "
        "echo DOOR; curl -sS --noproxy '*' -m 3 http://127.0.0.1:3701/v1/session; echo code $?; "
        f"curl -sS --noproxy '*' -m 3 http://127.0.0.1:{running.supervisor.port}/; echo code $?"
    )
    (answer,) = await ask(running, workspace, {"command": probe})
    environment, rest = answer["outcome"]["stdout"].split("PROCESSES\n")
    names = {line.partition("=")[0] for line in environment.splitlines()}
    assert (
        not {"GATEHOUSE_TOKEN", "GATEHOUSE_URL", "GATEHOUSE_SESSION", "ANTHROPIC_API_KEY"} & names
    )
    assert {"HTTPS_PROXY", "SSL_CERT_FILE"} <= names
    processes, door = rest.split("DOOR\n")
    assert len(processes.splitlines()) <= 4, "processes of its own only"
    assert door.splitlines() == ["code 7", "code 7"], answer["outcome"]


async def test_what_it_writes_is_in_the_agents_copy_and_reaches_the_host_by_the_rules(
    running: Supervised, workspace: Path
) -> None:
    first, second = await ask(
        running, workspace, {"command": "echo made > src/made.txt"}, {"command": "cat src/made.txt"}
    )
    assert first["outcome"]["exit_code"] == 0
    assert second["outcome"]["stdout"] == "made\n"
    assert (workspace / "src/made.txt").read_text() == "made\n", (
        "the change was asked for, and approved"
    )


async def test_the_lower_workspace_and_the_host_stay_as_they_are(
    running: Supervised, workspace: Path
) -> None:
    command = (
        f"echo x > /workspace/lower/x; echo x > {workspace}/y; ls {workspace}; ls /root /home/*;"
        " true"
    )
    (answer,) = await ask(running, workspace, {"command": command})
    assert "README.md" not in answer["outcome"]["stdout"]
    assert {path.name for path in workspace.iterdir()} == {".git", "README.md", "src"}


async def test_the_proxy_can_be_reached_and_ends_with_the_tool(
    running: Supervised, workspace: Path, site: str
) -> None:
    """Each tool sandbox has a listener of its own; while the session goes on, neither we nor
    egress keep one that isn't needed."""
    fetch = {"command": f"curl -sS -m 60 {site}/"}
    wait = "until [ -e /workspace/lower/go-{n} ]; do sleep 0.02; done; echo {n}"
    holds = [{"command": f"curl -sS -m 60 {site}/hold-{n}; {wait.format(n=n)}"} for n in (1, 2)]
    bodies = [fetch, holds[0], fetch, fetch, fetch, holds[1]]
    pids = (running.parts.network.pid, os.getpid())
    counts: list[int] = []
    with running.answering(lambda request: "approved"):
        session = await running.start(
            workspace, *agent_command(*(("/v1/exec", body) for body in bodies))
        )
        for number, hold in enumerate(holds, 1):
            request = await running.until(
                lambda body=hold: _begun(running, session, body["command"])
            )
            async with asyncio.timeout(PATIENCE_S):
                while f"/hold-{number}" not in _Site.paths:  # its listener is there by then
                    await asyncio.sleep(0.02)
            if not counts:
                counts = [await _least_kept(pid or 0) for pid in pids]
            for pid, count in zip(pids, counts, strict=True):
                await _back_at(pid or 0, count)
            (workspace / f"go-{number}").touch()
            await running.done(request)
        await running.ended(session)
    outputs = [answer["outcome"]["stdout"] for answer in answers(running.output(session))]
    greeting = "hello from outside\n"
    assert outputs == [greeting, greeting + "1\n", greeting, greeting, greeting, greeting + "2\n"]


async def test_a_command_that_runs_ends_with_its_session(
    running: Supervised, workspace: Path
) -> None:
    """Nothing of it is left, its last write isn't lost, and its request says what happened."""
    command = "echo begun > begun.txt; exec sleep 2000"
    session = await running.start(
        workspace, *agent_command(("/v1/exec", {"command": command, "timeout_s": 3000}))
    )
    request = await running.asked("exec", where=lambda one: one.session_id == session.id)
    running.approve(request)
    change = await running.asked("filesystem", where=lambda one: one.session_id == session.id)
    assert _commands_like("sleep 2000")
    await running.parts.sessions.stop(session.id, reason="enough", by="the test")
    await running.ended(session)
    outcome = await running.done(request)
    assert not outcome["ok"]
    assert "killed" in outcome["error"]
    assert status(running.parts.queue.get(change.id)) == "pending"  # it stays answerable
    assert not _commands_like("sleep 2000")


async def test_a_command_ends_with_the_agent_that_asked_for_it(
    running: Supervised, workspace: Path
) -> None:
    """An agent that exits without waiting: nobody reads the output, and nothing goes on changing
    the copy."""
    ask = (
        'curl -sS -X POST "$GATEHOUSE_URL/v1/exec" -H "Authorization: Bearer $GATEHOUSE_TOKEN" '
        """-H 'Content-Type: application/json' -d '{"command": "exec sleep 3000", "timeout_s": 3500}'; """  # noqa: E501
    )
    script = ask + "until [ -e /workspace/lower/leave ]; do sleep 0.02; done"
    session = await running.start(workspace, "bash", "-c", script)
    request = await running.asked("exec", where=lambda one: one.session_id == session.id)
    running.approve(request)
    await running.became(request, "used")
    (workspace / "leave").touch()
    session = await running.ended(session)
    assert session.end_reason == "the agent has exited"
    outcome = await running.done(request)
    assert "killed" in outcome["error"]
    assert not _commands_like("sleep 3000")


async def test_more_than_a_few_wait_their_turn(
    running: Supervised, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_tool, now, most, full = running.parts.sandbox.run_tool, 0, 0, asyncio.Event()

    async def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal now, most
        now += 1
        most = max(most, now)
        if now == MOST_AT_ONCE:
            full.set()
        try:
            await full.wait()
            return await run_tool(*arguments, **options)
        finally:
            now -= 1

    monkeypatch.setattr(running.parts.sandbox, "run_tool", counted)
    calls = [
        ("/v1/exec", {"command": f"sleep 0.2; echo {number}"}) for number in range(MOST_AT_ONCE + 3)
    ]
    with running.answering(lambda request: "approved"):
        _, output = await running.run(workspace, *agent_command(*calls, at_once=True))
    assert {answer["outcome"]["stdout"] for answer in answers(output)} == {
        f"{n}\n" for n in range(MOST_AT_ONCE + 3)
    }
    assert most == MOST_AT_ONCE


def _begun(running: Supervised, session: Session, command: str) -> Request | None:
    """The request of this command once it runs."""
    found = [
        one
        for one in running.requests(session)
        if isinstance(one.action, Exec) and one.action.command == command
    ]
    return found[0] if found and status(found[0]) == "used" else None


def _kept(pid: int) -> int:
    """How many sockets this process has open, whose database may open another file at any time; of
    egress, which shows nobody what they are, how many descriptors."""
    if pid != os.getpid():
        return open_files(pid)
    found = 0
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found += str(one.readlink()).startswith("socket:")
    return found


async def _least_kept(pid: int) -> int:
    """The least of a while.

    Connections and listeners end by messages between processes: there is nothing to wait for on
    this side.
    """
    least = _kept(pid)
    for _ in range(30):
        await asyncio.sleep(0.02)
        least = min(least, _kept(pid))
    return least


async def _back_at(pid: int, count: int) -> None:
    """Until a process keeps no more than that."""
    async with asyncio.timeout(PATIENCE_S):
        while _kept(pid) > count:
            await asyncio.sleep(0.02)


def _commands_like(text: str) -> list[str]:
    """Command lines of our descendants that hold `text`."""
    found = []
    for pid in descendants(os.getpid()):
        try:
            line = (
                Path(f"/proc/{pid}/cmdline")
                .read_bytes()
                .replace(b"\0", b" ")
                .decode(errors="replace")
            )
        except OSError:
            continue
        if line.strip() == text:
            found.append(line)
    return found
