"""Sums over the review service's tables, for metrics, the page and `doctor`."""

import msgspec
from sqlalchemy import Connection, func, select

from supervisor.reviews.store.tables import deliveries, holds, receipts, runs, slots

# A webhook that isn't handled for this long is a failure that nothing else would show.
OLDEST_S = 300.0


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """The backlog: unhandled webhooks, when the oldest came (seconds since the epoch), and reviews
    that are wanted and not begun."""

    unhandled: int
    oldest_at: float | None
    waiting: int


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """All counts. `runs` and `deliveries` by outcome, `holds` by scope; `not_posted`: reviews that
    the forge didn't accept."""

    backlog: Backlog
    under_way: int
    runs: dict[str, int]
    deliveries: dict[str, int]
    holds: dict[str, int]
    not_posted: int


def backlog(connection: Connection) -> Backlog:
    """Return the backlog."""
    query = select(func.count(), func.min(deliveries.c.received_at))
    count, oldest = connection.execute(query.where(deliveries.c.handled_at.is_(None))).one()
    debouncing = select(func.count()).select_from(slots).where(slots.c.due_at.is_not(None))
    unclaimed = (
        select(func.count())
        .select_from(runs)
        .where(runs.c.ended_at.is_(None), runs.c.claimed_attempt < runs.c.attempt)
    )
    waiting = sum(int(connection.execute(one).scalar_one()) for one in (debouncing, unclaimed))
    return Backlog(unhandled=int(count), oldest_at=oldest, waiting=waiting)


def figures(connection: Connection) -> Figures:
    """Return all counts."""
    under_way = select(func.count()).where(
        runs.c.ended_at.is_(None), runs.c.claimed_attempt == runs.c.attempt
    )
    ended = (
        select(runs.c.outcome, func.count())
        .where(runs.c.ended_at.is_not(None))
        .group_by(runs.c.outcome)
    )
    handled = (
        select(deliveries.c.outcome, func.count())
        .where(deliveries.c.handled_at.is_not(None))
        .group_by(deliveries.c.outcome)
    )
    held = (
        select(holds.c.scope, func.count())
        .where(holds.c.released_at.is_(None))
        .group_by(holds.c.scope)
    )
    not_posted = select(func.count()).where(
        receipts.c.outcome == "failed", receipts.c.reason == "not-posted"
    )
    return Figures(
        backlog=backlog(connection),
        under_way=int(connection.execute(under_way).scalar_one()),
        runs={outcome: int(count) for outcome, count in connection.execute(ended)},
        deliveries={outcome: int(count) for outcome, count in connection.execute(handled)},
        holds={scope: int(count) for scope, count in connection.execute(held)},
        not_posted=int(connection.execute(not_posted).scalar_one()),
    )
