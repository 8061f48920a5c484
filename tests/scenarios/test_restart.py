"""kill -9 of the supervisor, of egress and of the agent at each step of a pending approval.

Nothing acknowledged is lost, nothing is left running, and the next start says what it found.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.process import PATIENCE_S, Gatehouse, descendants, is_alive, until

pytestmark = pytest.mark.timeout(300)

POLICY = """
version: 1
modes: {filesystem: ask, network: ask, exec: ask}
allow: [filesystem(allowed/*)]
"""
# An agent that changes a file, asks for a command and goes on living.
AGENT = """
mkdir -p allowed && echo one > asked.txt && echo one > allowed/a.txt
curl -s -X POST -H "Authorization: Bearer $GATEHOUSE_TOKEN" -H 'Content-Type: application/json' \
     $GATEHOUSE_URL/v1/exec -d '{"command": "touch made-by-exec", "reason": "to see"}'
sleep 600 & sleep 600
"""

# One that asks for a command that takes long.
SLOW = """
curl -s -X POST -H "Authorization: Bearer $GATEHOUSE_TOKEN" -H 'Content-Type: application/json' \
     $GATEHOUSE_URL/v1/exec -d '{"command": "sleep 300", "reason": "to see"}'
sleep 600
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "old.txt").write_text("old\n")
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "one"],
    ):
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    return folder


@pytest.fixture
def supervised(
    gatehouse: Path, tmp_path: Path, workspace: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[Gatehouse, subprocess.Popen[bytes]]]:
    """The parameter, if any, is how the private copy is made."""
    product = Gatehouse(gatehouse, tmp_path, POLICY)
    mode = f"--copy={getattr(request, 'param', 'auto')}"
    process = product.launch(
        "run",
        mode,
        "--workspace",
        str(workspace),
        "--",
        "sh",
        "-c",
        AGENT,
        log=tmp_path / "first.log",
    )
    product.until_all_wait("write asked.txt", "touch made-by-exec")
    yield product, process
    product.end()


def kill_whole(process: subprocess.Popen[bytes]) -> None:
    """kill -9, then wait until everything that it had started is gone."""
    below = descendants(process.pid)
    assert len(below) >= 3  # egress, the sandbox and what runs in it
    process.kill()
    process.wait()
    until(lambda: not any(is_alive(pid) for pid in below), f"{below} to die with the supervisor")


@pytest.mark.parametrize("supervised", ["copy", "overlay"], indirect=True)
def test_a_killed_supervisor_takes_all_along_and_the_next_start_says_what_it_found(
    supervised: tuple[Gatehouse, subprocess.Popen[bytes]], workspace: Path, tmp_path: Path
) -> None:
    product, process = supervised
    until(lambda: (workspace / "allowed/a.txt").exists(), "the allowed file on the host")
    waiting = product.waiting()
    kill_whole(process)
    assert not (workspace / "asked.txt").exists()

    product.launch("up", log=tmp_path / "second.log")
    product.until_event("supervisor_started", 2)
    assert "the supervisor died" in until(
        (tmp_path / "second.log").read_text, "what the start found"
    )
    assert [record["killed"] for record in product.events("session_found_dead")] == [False]
    # The change still waits and can still be approved; the command can't, since its agent is gone.
    still = product.until_all_wait("write asked.txt")
    assert still == {"write asked.txt": waiting["write asked.txt"]}
    product.ok("approve", still["write asked.txt"])
    until(lambda: (workspace / "asked.txt").exists(), "the approved file on the host")
    product.until_event("session_ended")
    assert product.run("audit", "--verify").returncode == 0
    closed = {record["request"]: record["why"] for record in product.events("request_closed")}
    assert "agent" in closed[waiting["touch made-by-exec"]]


@pytest.mark.parametrize("supervised", ["copy", "overlay"], indirect=True)
def test_an_answer_that_was_acknowledged_before_the_kill_is_carried_out_after_it(
    supervised: tuple[Gatehouse, subprocess.Popen[bytes]], workspace: Path, tmp_path: Path
) -> None:
    product, process = supervised
    product.ok("approve", product.waiting()["write asked.txt"])
    kill_whole(process)
    product.launch("up", log=tmp_path / "second.log")
    until(lambda: (workspace / "asked.txt").exists(), "the approved file on the host")
    assert (workspace / "asked.txt").read_text() == "one\n"
    assert product.run("audit", "--verify").returncode == 0
    assert len(product.events("request_answered")) == 1


@pytest.mark.many
def test_a_denial_that_was_acknowledged_stays_one(
    supervised: tuple[Gatehouse, subprocess.Popen[bytes]], workspace: Path, tmp_path: Path
) -> None:
    product, process = supervised
    product.ok("deny", product.waiting()["write asked.txt"], "--reason", "not this one")
    kill_whole(process)
    product.launch("up", log=tmp_path / "second.log")
    product.until_event("session_ended")
    assert not (workspace / "asked.txt").exists()


@pytest.mark.many
def test_a_command_that_ran_when_the_supervisor_died_is_said_to_be_unknown(
    supervised: tuple[Gatehouse, subprocess.Popen[bytes]], workspace: Path, tmp_path: Path
) -> None:
    product, process = supervised
    product.ok("rules", "add", "allow", "exec(touch made-by-exec)")
    product.until_event("effect_settled", 2)  # the allowed file, and the command
    copy = next((product.data / "sessions").glob("*/merged"))
    assert (copy / "made-by-exec").exists()
    log = tmp_path / "slow.log"
    product.launch("run", "--workspace", str(workspace), "--", "sh", "-c", SLOW, log=log)
    slow = product.until_all_wait("sleep 300")["sleep 300"]
    product.ok("approve", slow)
    until(
        lambda: slow in {record["request"] for record in product.events("effect_started")},
        "the command to start",
    )
    kill_whole(process)
    product.launch("up", log=tmp_path / "second.log")
    (record,) = product.until_event("effect_unknown")
    assert record["request"] == slow
    until(
        lambda: "it may or may not have happened" in (tmp_path / "second.log").read_text(),
        "what the start found",
    )


def test_a_killed_egress_is_started_again_and_allows_nothing_meanwhile(
    supervised: tuple[Gatehouse, subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    product, process = supervised
    egress = next(
        pid
        for pid in descendants(process.pid)
        if b"supervisor.egress" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )
    os.kill(egress, signal.SIGKILL)
    product.until_event("egress_lost")
    product.until_event("egress_started", 2)
    assert process.poll() is None
    assert "write asked.txt" in product.waiting()  # the requests are still there


@pytest.mark.many
def test_a_killed_agent_leaves_its_changes_waiting(
    supervised: tuple[Gatehouse, subprocess.Popen[bytes]], workspace: Path
) -> None:
    product, process = supervised
    inside = [
        pid
        for pid in descendants(process.pid)
        if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep\x00")
    ]
    assert inside
    for pid in inside:
        with contextlib.suppress(ProcessLookupError):  # it ended with the one before
            os.kill(pid, signal.SIGKILL)
    product.until_event("agent_exited")
    product.ok("approve", product.until_all_wait("write asked.txt")["write asked.txt"])
    until(lambda: (workspace / "asked.txt").exists(), "the approved file on the host")
    assert process.wait(PATIENCE_S) in (0, 137)
