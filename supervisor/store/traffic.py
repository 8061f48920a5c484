"""Queries for traffic sent, by session and day.

Each function takes part in its caller's transaction.
"""

from collections.abc import Mapping
from typing import Literal

from sqlalchemy import ColumnElement, Connection, func, insert, select, update

from supervisor.core.budget import Scope
from supervisor.store.tables import traffic

type TrafficKind = Literal["requests", "bytes_out"]
KINDS: tuple[TrafficKind, ...] = ("requests", "bytes_out")
_HELD = {"requests": traffic.c.held_requests, "bytes_out": traffic.c.held_bytes_out}
_USED = {"requests": traffic.c.requests, "bytes_out": traffic.c.bytes_out}


def sums(connection: Connection, scope: Scope, key: str) -> tuple[int, int]:
    """Return requests and bytes of a session, of a day or of everything, with held portions."""
    query = select(*(func.coalesce(func.sum(_USED[kind] + _HELD[kind]), 0) for kind in KINDS))
    if scope != "total":
        query = query.where((traffic.c.session_id if scope == "session" else traffic.c.day) == key)
    row = connection.execute(query).one()
    return int(row[0]), int(row[1])


def hold(connection: Connection, session_id: str, day: str, kind: TrafficKind, count: int) -> None:
    """Hold this much for a session."""
    _ensure(connection, session_id, day)
    connection.execute(
        update(traffic).where(_row(session_id, day)).values({_HELD[kind]: _HELD[kind] + count})
    )


def use(connection: Connection, session_id: str, day: str, used: Mapping[TrafficKind, int]) -> None:
    """Record a session's traffic: first out of its held portions, oldest first, the rest on this
    day."""
    for kind in KINDS:
        beyond = _take(connection, session_id, kind, used[kind], is_sent=True)
        if beyond:
            _ensure(connection, session_id, day)
            _move(connection, _row(session_id, day), kind, used=beyond, held=0)


def release(connection: Connection, session_id: str, back: Mapping[TrafficKind, int]) -> None:
    """Release this much of a session's held portions, oldest first: it was not sent. Portions that
    others hold for the same session (an install's own connections) stay held."""
    for kind in KINDS:
        _take(connection, session_id, kind, back[kind], is_sent=False)


def lose_held(connection: Connection) -> None:
    """After a crash, count outstanding portions as sent."""
    values = {_USED[kind]: _USED[kind] + _HELD[kind] for kind in KINDS} | dict.fromkeys(
        _HELD.values(), 0
    )
    connection.execute(update(traffic).values(values))


def _take(
    connection: Connection, session_id: str, kind: TrafficKind, count: int, *, is_sent: bool
) -> int:
    """Take this much out of a session's held portions. Return the part that they lack."""
    if not count:
        return 0
    rows = (
        select(traffic.c.day, _HELD[kind])
        .where((traffic.c.session_id == session_id) & (_HELD[kind] > 0))
        .order_by(traffic.c.day)
    )
    for day, held in connection.execute(rows).all():
        moved = min(count, held)
        count -= moved
        used = moved if is_sent else 0
        _move(connection, _row(session_id, day), kind, used=used, held=moved)
    return count


def _move(
    connection: Connection, where: ColumnElement[bool], kind: TrafficKind, *, used: int, held: int
) -> None:
    if used or held:
        values = {_USED[kind]: _USED[kind] + used, _HELD[kind]: _HELD[kind] - held}
        connection.execute(update(traffic).where(where).values(values))


def _ensure(connection: Connection, session_id: str, day: str) -> None:
    if connection.execute(select(traffic.c.day).where(_row(session_id, day))).first() is None:
        empty = {"requests": 0, "bytes_out": 0, "held_requests": 0, "held_bytes_out": 0}
        connection.execute(insert(traffic).values(session_id=session_id, day=day, **empty))


def _row(session_id: str, day: str) -> ColumnElement[bool]:
    return (traffic.c.session_id == session_id) & (traffic.c.day == day)
