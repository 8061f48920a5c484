"""What the next start takes for a sandbox that outlived its supervisor."""

import os
import subprocess

import pytest

from supervisor.sandbox import running


def test_a_process_that_runs_is_killed_and_one_that_ended_is_none() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        started = running.started_ticks(child.pid)
        assert started > 0
        assert not running.kill(child.pid, started + 1), (
            "another process with the number of an old one"
        )
        assert child.poll() is None
        assert running.kill(child.pid, started)
        assert child.wait() == -9


def test_what_ended_but_was_not_reaped_yet_no_longer_runs() -> None:
    with subprocess.Popen(["true"]) as child:
        os.waitid(
            os.P_PID, child.pid, os.WEXITED | os.WNOWAIT
        )  # until it is a zombie, and leaves it one
        assert running.started_ticks(child.pid) == 0


@pytest.mark.parametrize(("pid", "started"), [(None, None), (1, None), (1, 0), (2**22 + 1, 5)])
def test_what_was_never_started_or_is_long_gone_is_not_killed(
    pid: int | None, started: int | None
) -> None:
    assert not running.kill(pid, started)
