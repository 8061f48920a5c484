"""A hostile script in a real sandbox: each attempt is one line of a table, as root and as an
ordinary user.

`pytest tests/escape -s` shows the table. What it tries and how is in `hostile`; the world around
it in `driver.py`.
"""

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from supervisor.sandbox.limits import MOST_FILES
from tests.escape import driver, users

SCRIPT = Path(driver.__file__)
MIB = 1024 * 1024
WHO = [
    "self",
    pytest.param(
        "ordinary",
        marks=pytest.mark.skipif(os.geteuid() != 0, reason="is an ordinary user already"),
    ),
]


@pytest.fixture(params=WHO)
def who(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def drive(who: str, case: str) -> dict[str, Any]:
    answer = users.drive(who, SCRIPT, case)
    assert isinstance(answer, dict)
    return answer


def test_every_attempt_is_stopped(who: str, record_property: Any) -> None:
    answer = drive(who, "probe")
    assert answer["attempts"], answer
    names = [name for name, _, _ in answer["attempts"]]
    assert len(names) == len(set(names)) > 80
    print(f"\n{'attempt':45} {'result':8} what it met  (as {who})")
    for name, escaped, detail in answer["attempts"]:
        print(f"{name:45} {'ESCAPED' if escaped else 'stopped':8} {detail[:90]}")
    record_property("escape_report", json.dumps(answer["attempts"]))
    assert [name for name, escaped, _ in answer["attempts"] if escaped] == []
    # The host's side of the story: nobody was reached, nothing has changed, and the script ended by
    # itself.
    assert answer["world"]["hits"] == []
    assert answer["world"]["lower"] == "of the host"
    assert answer["world"]["names"] == ["agent.sock", "data", "datagram.sock", "file"]
    assert (answer["result"]["code"], answer["result"]["why"]) == (0, "")


def test_the_same_attempts_succeed_outside(who: str) -> None:
    answer = drive(who, "control")
    got = {name: escaped for name, escaped, _ in answer["attempts"]}
    assert got == dict.fromkeys(driver.CONTROLS, True)
    assert len(answer["hits"]) >= 9


def test_a_fork_bomb_is_bounded(who: str) -> None:
    answer = drive(who, "fork_bomb")
    assert "refused at" in answer["stdout"] or "more than 48 processes" in answer["why"]
    assert "survived with 400" not in answer["stdout"]
    assert (answer["left"], answer["children"]) == ([], [])


@pytest.mark.parametrize("case", ["memory_bomb", "shared_bomb", "socket_bomb", "page_table_bomb"])
def test_memory_is_bounded(who: str, case: str) -> None:
    answer = drive(who, case)
    assert "survived" not in answer["stdout"]
    assert answer["why"] == f"memory above {128 * MIB} bytes"
    assert (answer["left"], answer["children"]) == ([], [])


def test_open_files_are_bounded_together(who: str) -> None:
    answer = drive(who, "files_bomb")
    assert answer["why"] == f"more than {MOST_FILES} open files"
    assert (answer["left"], answer["children"]) == ([], [])


def test_temporary_files_are_bounded(who: str) -> None:
    answer = drive(who, "tmpfs_bomb")
    assert answer["stdout"].count(" 28\n") == 5
    assert "wrote 80" in answer["stdout"]


def test_one_files_size_is_bounded(who: str) -> None:
    assert "File too large" in drive(who, "file_bomb")["stderr"]


def test_an_output_flood_is_dropped_without_blocking_the_program(who: str) -> None:
    answer = drive(who, "output_flood")
    assert (answer["code"], answer["truncated"]) == (0, True)
    assert answer["bytes"] < MIB + 200
    assert "is dropped]" in answer["stdout"]


@pytest.mark.parametrize("case", ["cpu_burn", "cpu_burn_by_many"])
def test_cpu_time_is_bounded(who: str, case: str) -> None:
    answer = drive(who, case)
    assert (answer["code"], answer["why"]) == (137, "more than 1 s of CPU time")


def test_a_tool_that_takes_too_long_is_killed(who: str) -> None:
    answer = drive(who, "timeout")
    assert (answer["code"], answer["timed_out"], answer["left"], answer["children"]) == (
        137,
        True,
        [],
        [],
    )


def test_a_daemon_does_not_survive_its_command(who: str) -> None:
    answer = drive(who, "daemon")
    assert (answer["code"], answer["stdout"], answer["left"]) == (0, "left a daemon\n", [])


@pytest.mark.parametrize("when", ["running", "starting"])
def test_when_the_supervisor_is_killed_the_whole_sandbox_dies(who: str, when: str) -> None:
    argv, env = users.command(who, [str(SCRIPT), "supervise", when])
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        merged = Path(json.loads(supervisor.stdout.readline())["merged"])
        world = merged.parts[2]
        inside = processes_of(world)
        # running: bubblewrap's init, the shell, a child of it and a grandchild in another session;
        # starting: init and the gate
        assert len(inside) >= (4 if when == "running" else 2)
        supervisor.send_signal(signal.SIGKILL)
        supervisor.wait()
    deadline = time.monotonic() + 10
    while processes_of(world) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert processes_of(world) == []
    assert (merged / "ran").exists() is (when == "running")
    subprocess.run(["rm", "-rf", f"/tmp/{world}"], check=True)


def processes_of(world: str) -> list[str]:
    """Every process on this machine that has this world mounted."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                if world in (process / "mountinfo").read_text():
                    found.append(process.name)
    return found
