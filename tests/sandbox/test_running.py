"""Signals to all of a sandbox: to each process of it, and to no other."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from supervisor.base.process import descendants
from supervisor.sandbox.base import SandboxLimits
from supervisor.sandbox.limits import Watched
from supervisor.sandbox.running import signal_all

# Children that ignore SIGTERM, and note that it came.
STUBBORN = """
import os, signal, sys
reading, writing = os.pipe()
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        os.write(writing, b"r")
        while True:
            signal.sigwait({signal.SIGTERM})
            os.write(writing, b"t")
os.close(writing)
while True:
    os.write(1, os.read(reading, 1))
"""


@contextmanager
def stubborn(count: int) -> Iterator[tuple[Watched, subprocess.Popen[bytes]]]:
    words = [sys.executable, "-S", "-c", STUBBORN, str(count)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(count) == b"r" * count
        children = descendants(process.pid)
        one = Watched(process.pid, os.pidfd_open(process.pid), SandboxLimits(), None)
        try:
            yield one, process
        finally:
            for pid in (*children, process.pid):
                os.kill(pid, signal.SIGKILL)
            os.close(one.init_fd)


def cpu_s(count: int) -> float:
    """CPU time of telling so many that they end; the least of three."""
    spent = []
    with stubborn(count) as (one, process):
        assert process.stdout is not None
        for _ in range(3):
            begun = time.process_time()
            signal_all(one, signal.SIGTERM, 1)
            spent.append(time.process_time() - begun)
            assert process.stdout.read(count) == b"t" * count
    return min(spent)


def test_each_is_told_in_time_that_grows_with_their_number() -> None:
    assert cpu_s(400) < 8 * cpu_s(100)


def test_nobody_is_told_for_a_sandbox_that_is_over() -> None:
    with stubborn(1) as (one, process):
        one.ended = True
        signal_all(one, signal.SIGKILL, 5)
        one.ended = False
        signal_all(one, signal.SIGTERM, 1)
        assert process.stdout is not None
        assert process.stdout.read(1) == b"t"
