"""Caps on what reviews cost, and how much of them one run may reserve.

    a run $2 · a pull request over its life $10 · a repository and day $5
    an owner and month · everything and day

Pure. All caps apply at once: a run gets what the tightest of them has left, and nothing if that is
less than a useful part of a run. Reserved money counts as used until its run is over. Amounts are
pico-dollars; days and months are those of UTC.

INVARIANT: used and reserved money together never exceed a cap, in any order of reservations and
ends, as long as no run uses more than it reserved (egress enforces that).
"""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

import msgspec

CapScope = Literal["run", "pull", "repository", "owner", "all"]
# Narrowest first.
CAP_SCOPES: tuple[CapScope, ...] = ("run", "pull", "repository", "owner", "all")
NOTICE_PERCENTS = (50, 80, 100)
# A run with less than this part (a quarter) of its cap could only report that it has no money: its
# first call reserves its maximum cost.
LEAST_PART = 4
# Costs count as creeping up from this many runs, and from this factor (3/2) on.
CREEP_LEAST_TODAY, CREEP_LEAST_BEFORE = 5, 20
# A higher cap is proposed if the present one held reviews on this many days of a week.
MOST_HELD_DAYS = 3


class Caps(msgspec.Struct, frozen=True, kw_only=True):
    """The maximum of each scope; None: no cap. A run always has one."""

    run: int
    pull: int | None = None
    repository: int | None = None
    owner: int | None = None
    all: int | None = None


class Payer(msgspec.Struct, frozen=True, kw_only=True):
    """The repository whose money a run spends. `repository` is `OWNER/REPO`; `number` is its pull
    request, 0 for a job's run."""

    forge: str
    repository: str
    number: int
    run_id: str


class Layer(NamedTuple):
    """One cap that applies to a run. `period` is a day, a month, or "" for all time."""

    scope: CapScope
    key: str
    period: str
    cap: int | None


class LayerUse(NamedTuple):
    """The amounts of a layer that ended runs used, and that current runs reserved."""

    layer: Layer
    used: int
    reserved: int

    @property
    def left(self) -> int | None:
        """Return the amount that is left; None if there is no cap."""
        cap = self.layer.cap
        return None if cap is None else max(0, cap - self.used - self.reserved)


def day_of(now: float) -> str:
    """Return the day of a time, as `2026-11-26`."""
    return f"{datetime.fromtimestamp(now, UTC):%Y-%m-%d}"


def month_of(now: float) -> str:
    """Return the month of a time, as `2026-11`."""
    return f"{datetime.fromtimestamp(now, UTC):%Y-%m}"


def refills_at(period: str) -> float | None:
    """Return when a period ends; None for all time."""
    if not period:
        return None
    is_month = period.count("-") == 1
    first = datetime.strptime(period, "%Y-%m" if is_month else "%Y-%m-%d").replace(tzinfo=UTC)
    after = (first + timedelta(days=31)).replace(day=1) if is_month else first + timedelta(days=1)
    return after.timestamp()


def layers(caps: Caps, payer: Payer, now: float) -> tuple[Layer, ...]:
    """Return every layer of a run that starts now, narrowest first."""
    repository = f"{payer.forge}:{payer.repository.lower()}"
    day, month = day_of(now), month_of(now)
    pull = Layer("pull", f"{repository}#{payer.number}", "", caps.pull)
    return (
        Layer("run", payer.run_id, "", caps.run),
        *((pull,) if payer.number else ()),
        Layer("repository", repository, day, caps.repository),
        Layer("owner", repository.partition("/")[0], month, caps.owner),
        Layer("all", "", day, caps.all),
    )


def reservable(uses: Sequence[LayerUse]) -> int | Layer:
    """Return how much a run may reserve in all of its layers, or the first layer that has too
    little left. Layers come narrowest first, and the narrowest has a cap."""
    run_cap = uses[0].layer.cap
    assert run_cap is not None
    caps = [use.layer.cap for use in uses if use.layer.cap is not None]
    # This also covers a cap that is smaller than that part.
    least = max(1, min(run_cap // LEAST_PART, *caps))
    most = run_cap
    for use in uses:
        left = use.left
        if left is not None and left < least:
            return use.layer
        most = most if left is None else min(most, left)
    return most


def due_notices(use: LayerUse, said: Collection[int]) -> list[int]:
    """Return the marks (50, 80, 100 %) of a cap that are reached and weren't announced in
    `said`."""
    cap = use.layer.cap
    if cap is None:
        return []
    return [
        percent
        for percent in NOTICE_PERCENTS
        if use.used * 100 >= cap * percent and percent not in said
    ]


def share(reserved: int, given: Sequence[int], parts: int) -> int:
    """Return the budget of the next of a run's `parts` sessions, after those that were `given`:
    together they never exceed the run's reservation."""
    return max(0, min(reserved // max(1, parts), reserved - sum(given)))


def p95(costs: Sequence[int]) -> int:
    """Return the 95th percentile by nearest rank; 0 for an empty list."""
    ordered = sorted(costs)
    return ordered[-(-len(ordered) * 95 // 100) - 1] if ordered else 0


def creeps(today: Sequence[int], before: Sequence[int]) -> bool:
    """Return whether runs cost clearly more today than in the days before, at the 95th
    percentile."""
    if len(today) < CREEP_LEAST_TODAY or len(before) < CREEP_LEAST_BEFORE:
        return False
    return p95(today) * 2 > p95(before) * 3


def proposed(cap: int, held_days: Collection[str]) -> int | None:
    """Return a higher cap if this one held reviews on too many days of a week."""
    return 2 * cap if len(set(held_days)) >= MOST_HELD_DAYS else None
