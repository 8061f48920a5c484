"""Time as a port: the real clock, and a fake one that tests move by hand (`tests/fakes/clock.py`).

`now()` is wall time (seconds since the epoch, for records); `monotonic()` never jumps (for deadlines in
one process). Nothing else in the supervisor reads a clock.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Where the time comes from."""

    def now(self) -> float:
        """Seconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary point; never goes back."""


class RealClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()
