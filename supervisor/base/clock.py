"""Clock as a port: the real one, and a fake (`tests/fakes/clock.py`) for tests.

`now()` is wall time (seconds since the epoch, for records); `monotonic()` never jumps (for
deadlines in one process). Nothing else in the supervisor reads a clock.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Source of the time."""

    def now(self) -> float:
        """Seconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary point; never goes back."""


class RealClock:
    """The machine's clock."""

    # As they are: each verdict looks at the clock several times.
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)


def worked_s() -> float:
    """Seconds of processor time that this thread has had."""
    return time.thread_time()


# A kernel's tick is 1 to 10 ms. A time further ahead than that is of another clock, as of a file
# server's.
LONGEST_TICK_NS = 10_000_000
REALTIME_COARSE = 5  # linux/time.h: the clock that such a kernel takes these times from


def wait_out_tick(stamp_ns: int) -> None:
    """Return once whatever is written from now on gets a later time than this, which is a file's
    change time.

    Kernels before 6.13 give files the time of their last tick: two writes within one have the
    same. Blocks for a tick at most, and only where the file was changed in this very one.
    """
    while 0 <= stamp_ns - time.clock_gettime_ns(REALTIME_COARSE) < LONGEST_TICK_NS:
        time.sleep(0.001)
