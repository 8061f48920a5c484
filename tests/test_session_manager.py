"""What the next start takes for a sandbox that outlived its supervisor. The rest of sessions is tried whole, in tests/scenarios."""

import os
import subprocess

import pytest

from supervisor.core.sessions import Session, SessionId
from supervisor.session_manager import _kill_left_behind, _process_start


def session(pid: int | None, started: int | None) -> Session:
    return Session(
        id=SessionId("one"), kind="agent", workspace="/tmp", command=("sh",), token_hash="", created_at=0.0, deadline_at=1.0,
        pid=pid, pid_started=started,
    )  # fmt: skip


def test_a_process_that_runs_is_killed_and_one_that_ended_is_none() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        started = _process_start(child.pid)
        assert started is not None
        assert not _kill_left_behind(session(child.pid, started + 1)), "another process with the number of an old one"
        assert child.poll() is None
        assert _kill_left_behind(session(child.pid, started))
        assert child.wait() == -9


def test_what_ended_but_was_not_reaped_yet_no_longer_runs() -> None:
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # until it is a zombie, and leaves it one
        assert _process_start(child.pid) is None


@pytest.mark.parametrize(("pid", "started"), [(None, None), (1, None), (2**22 + 1, 5)])
def test_what_was_never_started_or_is_long_gone_is_not_killed(pid: int | None, started: int | None) -> None:
    assert not _kill_left_behind(session(pid, started))
