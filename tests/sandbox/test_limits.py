"""Bounds: what is set on a process, what the watchdog counts, and that what can't be counted
doesn't go on."""

import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.sandbox import limits as module
from supervisor.sandbox.base import MIB, SandboxLimits
from supervisor.sandbox.cgroups import Cgroup
from supervisor.sandbox.limits import (
    Sample,
    Watchdog,
    Watched,
    apply_rlimits,
    exceeded,
    rlimits,
    sample,
)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def watched(pid: int, **bounds: int) -> Watched:
    return Watched(
        init_pid=pid, init_fd=os.pidfd_open(pid), limits=SandboxLimits(**bounds), cgroup=None
    )


def test_rlimits_are_set_hard_from_outside_and_never_raised(
    sleeper: subprocess.Popen[bytes],
) -> None:
    resource.prlimit(sleeper.pid, resource.RLIMIT_NOFILE, (100, 100))
    apply_rlimits(sleeper.pid, SandboxLimits(processes=7, files=4096, file_bytes=5, cpu_s=3))
    got = {kind: resource.prlimit(sleeper.pid, kind) for kind in rlimits(SandboxLimits(cpu_s=3))}
    assert got[resource.RLIMIT_NPROC] == (7, 7)
    assert got[resource.RLIMIT_NOFILE] == (100, 100)
    assert got[resource.RLIMIT_FSIZE] == (5, 5)
    assert got[resource.RLIMIT_CORE] == (0, 0)
    assert got[resource.RLIMIT_CPU] == (5, 5)


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (Sample(5, 5, 5.0), ""),
        (Sample(6, 5, 5.0), "more than 5 processes"),
        (Sample(5, 6, 5.0), "memory above 5 bytes"),
        (Sample(5, 5, 5.1), "more than 5 s of CPU time"),
        (Sample(5, 5, 5.0, 7), "the disk of its copy is nearly full: 7 bytes too few are free"),
    ],
)
def test_each_bound_is_named_when_it_is_exceeded(
    sleeper: subprocess.Popen[bytes], now: Sample, why: str
) -> None:
    one = watched(sleeper.pid, processes=5, memory_bytes=5, cpu_s=5)
    assert exceeded(one, now) == why
    os.close(one.init_fd)


def test_memory_shared_by_a_fork_is_counted_once() -> None:
    script = (
        "import os,sys\nb=b'x'*(64<<20)\nfor _ in range(4):\n  if os.fork()==0: sys.stdin.read();"
        " os._exit(0)\nprint(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-S", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        one = watched(process.pid, memory_bytes=128 * MIB)
        now = sample(one)
        assert now.tasks == 5
        assert 64 * MIB < now.memory_bytes < 128 * MIB
        assert process.stdin is not None
        process.stdin.close()
    os.close(one.init_fd)


def test_the_watchdog_kills_what_it_cannot_count(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Watched) -> Sample:
        raise RuntimeError("no /proc")

    monkeypatch.setattr(module, "sample", fail)
    watchdog, one = Watchdog(), watched(sleeper.pid)
    watchdog.watch(one)
    assert sleeper.wait(timeout=60) == -signal.SIGKILL
    assert one.killed_why == "its use couldn't be counted: no /proc"
    watchdog.forget(one)
    os.close(one.init_fd)


def test_nothing_is_signalled_after_it_was_forgotten(sleeper: subprocess.Popen[bytes]) -> None:
    watchdog, one = Watchdog(), watched(sleeper.pid)
    watchdog.watch(one)
    watchdog.forget(one)
    os.close(one.init_fd)
    one.kill("late")
    assert (one.killed_why, sleeper.poll()) == ("", None)
    assert sum(thread.name == "sandbox-watchdog" for thread in threading.enumerate()) >= 1


def test_a_group_counts_bounds_and_is_removed(sleeper: subprocess.Popen[bytes]) -> None:
    group = Cgroup.make("test", memory_bytes=64 * MIB, processes=9)
    if group is None:
        pytest.skip("no control group may be made here")
    group.add([sleeper.pid])
    assert group.layers
    assert not group.remove()
    assert not group.out_of_memory()
    sleeper.kill()
    sleeper.wait()
    assert group.remove()


def test_groups_of_a_killed_supervisor_are_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    monkeypatch.setattr(os, "getpid", lambda: gone.pid)
    group = Cgroup.make("left", memory_bytes=64 * MIB, processes=9)
    monkeypatch.undo()
    if group is None:
        pytest.skip("no control group may be made here")
    mine = Cgroup.make("kept", memory_bytes=64 * MIB, processes=9)
    assert mine is not None
    Cgroup.sweep()
    assert list(Path("/sys/fs/cgroup").glob(f"**/gatehouse-{gone.pid}-left")) == []
    assert list(Path("/sys/fs/cgroup").glob(f"**/gatehouse-{os.getpid()}-kept")) != []
    assert mine.remove()
