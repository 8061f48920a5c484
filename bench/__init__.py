"""Measurements: each figure is a ratio to something measured in the same run.

A bare number says more about the machine than about the program, so a `Figure` carries its
baseline. One module measures one thing. Its `main()` returns figures and asserts nothing, since
tests shouldn't limit time. `python -m bench` runs them all, each in a process of its own.
"""

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple


class Figure(NamedTuple):
    """One measured thing: ours and the baseline in the same unit, and the intended ratio.

    `wanted` bounds ours / baseline from above, or from below where `is_rate` (more is better).
    `limit` bounds ours itself from above, for promises in a unit; whether it holds also depends on
    the machine.
    """

    name: str
    ours: float
    unit: str
    baseline: float
    against: str
    wanted: float | None = None
    is_rate: bool = False
    limit: float | None = None

    @property
    def ratio(self) -> float:
        return self.ours / self.baseline if self.baseline else float("nan")

    @property
    def is_as_wanted(self) -> bool | None:
        """Return whether the ratio is as wanted, or None where nothing is wanted of it."""
        if self.wanted is None:
            return None
        return self.ratio >= self.wanted if self.is_rate else self.ratio <= self.wanted

    @property
    def is_within_limit(self) -> bool | None:
        """Return whether it is within its limit, or None where it has none."""
        return None if self.limit is None else self.ours <= self.limit


def interleaved_ms(*work: Callable[[], object], rounds: int = 15) -> list[float]:
    """Return the median milliseconds of each piece of work. They take turns, so that a busy moment
    affects all alike."""
    taken: list[list[float]] = [[] for _ in work]
    for _ in range(rounds):
        for times, do in zip(taken, work, strict=True):
            start = time.perf_counter()
            do()
            times.append((time.perf_counter() - start) * 1000)
    return [statistics.median(times) for times in taken]
