"""Queries for the ledger of model calls.

Each function takes part in its caller's transaction. Money is pico-dollars.
"""

from typing import Any, NamedTuple

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Row,
    case,
    cast,
    func,
    insert,
    literal,
    select,
    update,
)

from supervisor.core.budget import Amounts, Kind, Scope
from supervisor.core.models.model_calls import Tokens
from supervisor.store import traffic
from supervisor.store.tables import TOKEN_KINDS, budget_raises, sessions, spending

_KIND_SUMS = [func.sum(spending.c[kind]).label(kind) for kind in TOKEN_KINDS]


class UnsettledCall(NamedTuple):
    """A reserved call that wasn't settled yet."""

    id: str
    session_id: str
    call: dict[str, Any]
    reserved: dict[str, Any]


class OfModel(NamedTuple):
    """Usage of a session's calls of one model. `flags`: how many calls have each."""

    model: str
    calls: int
    cost: int
    tokens: Tokens


class OfTime(NamedTuple):
    """Usage of one model's calls in one stretch of time; the first was asked for at `first_at`."""

    when: int | str
    model: str
    calls: int
    tokens: Tokens
    cost: int
    first_at: float


def add(connection: Connection, tokens: Tokens, **facts: object) -> None:
    """Add a call that is about to go out, at its reserved cost."""
    connection.execute(insert(spending).values(**facts, **_columns(tokens)))


def unsettled(connection: Connection, reservation_id: str | None = None) -> list[UnsettledCall]:
    """Return the calls without an end: the given one, or all."""
    query = select(spending.c.id, spending.c.session_id, spending.c.call, spending.c.reserved)
    query = query.where(spending.c.settled_at.is_(None)).order_by(spending.c.asked_at)
    if reservation_id is not None:
        query = query.where(spending.c.id == reservation_id)
    return [UnsettledCall(*row) for row in connection.execute(query)]


def has_open(connection: Connection, session_id: str) -> bool:
    """Return whether a call of a session has no end yet."""
    where = _session(session_id) & spending.c.settled_at.is_(None)
    return connection.execute(select(spending.c.id).where(where).limit(1)).first() is not None


def last_call(connection: Connection, session_id: str) -> tuple[Amounts, Amounts]:
    """Return the reserved and the real cost of a session's newest call; zeros where it made
    none."""
    query = select(spending.c.reserved, spending.c.cost, spending.c.tokens)
    query = query.where(_session(session_id)).order_by(spending.c.asked_at.desc()).limit(1)
    row = connection.execute(query).first()
    if row is None:
        return Amounts(), Amounts()
    reserved = msgspec.convert(row[0]["tokens"], Tokens)
    return (
        Amounts(cost=int(row[0]["cost_picousd"]), tokens=reserved.total),
        Amounts(cost=int(row[1]), tokens=int(row[2])),
    )


def settle(connection: Connection, reservation_id: str, tokens: Tokens, **facts: object) -> bool:
    """Record a call's end, once. Return whether this call recorded it."""
    where = (spending.c.id == reservation_id) & spending.c.settled_at.is_(None)
    values = facts | _columns(tokens)
    return connection.execute(update(spending).where(where).values(**values)).rowcount == 1


def used(connection: Connection, scope: Scope, key: str, *, is_over: bool = False) -> Amounts:
    """Return the use of a session, a day or everything: open calls at their reserved cost, traffic
    with its held portions. With `is_over`, only finished calls."""
    sums = select(
        func.coalesce(func.sum(spending.c.cost), 0), func.coalesce(func.sum(spending.c.tokens), 0)
    )
    sums = sums.where(spending.c.settled_at.is_not(None)) if is_over else sums
    where = _of(scope, key)
    row = connection.execute(sums if where is None else sums.where(where)).one()
    requests, bytes_out = traffic.sums(connection, scope, key)
    return Amounts(cost=int(row[0]), tokens=int(row[1]), requests=requests, bytes_out=bytes_out)


def by_model(connection: Connection, session_id: str) -> list[OfModel]:
    """Return a session's spending, the dearest model first."""
    cost = func.sum(spending.c.cost)
    query = (
        select(spending.c.model, func.count(), cost, *_KIND_SUMS)
        .where(spending.c.session_id == session_id)
        .group_by(spending.c.model)
        .order_by(cost.desc(), spending.c.model)
    )
    return [
        OfModel(row[0], int(row[1]), int(row[2]), _tokens(row)) for row in connection.execute(query)
    ]


def of_kind(connection: Connection, kind: str) -> tuple[int, Tokens]:
    """Return cost and tokens of all sessions of a kind."""
    ids = select(sessions.c.id).where(sessions.c.kind == kind)
    sums = [func.coalesce(func.sum(spending.c[one]), 0).label(one) for one in TOKEN_KINDS]
    query = select(func.coalesce(func.sum(spending.c.cost), 0).label("cost"), *sums)
    row = connection.execute(query.where(spending.c.session_id.in_(ids))).one()
    return int(row.cost), _tokens(row)


def first_at(connection: Connection, session_id: str | None = None) -> float | None:
    """Return when the first call of a session, or of all, was asked for; None where there is
    none."""
    query = select(func.min(spending.c.asked_at))
    found: float | None = connection.execute(
        query if session_id is None else query.where(_session(session_id))
    ).scalar()
    return found


def over_time(
    connection: Connection,
    *,
    since: float,
    width_s: int | None,
    models: int,
    others: str,
    session_id: str | None,
) -> list[OfTime]:
    """Return the spending since then, by time and by model: the dearest `models`, and the rest
    together as `others`.

    `when` is the number of the stretch of `width_s` since `since`, or the day (in this machine's
    zone) where `width_s` is None.
    """
    where = spending.c.asked_at >= since
    if session_id is not None:
        where &= _session(session_id)
    cost = func.sum(spending.c.cost)
    dearest = select(spending.c.model).where(where).group_by(spending.c.model)
    named = (
        connection.execute(dearest.order_by(cost.desc(), spending.c.model).limit(models))
        .scalars()
        .all()
    )
    model = case((spending.c.model.in_(named), spending.c.model), else_=literal(others))
    when = (
        spending.c.day
        if width_s is None
        else cast(func.floor((spending.c.asked_at - since) / width_s), Integer)
    )
    first_at = func.min(spending.c.asked_at).label("first_at")
    query = (
        select(when, model, func.count(), cost, *_KIND_SUMS, first_at)
        .where(where)
        .group_by(when, model)
    )
    return [
        OfTime(row[0], row[1], int(row[2]), _tokens(row), int(row[3]), float(row.first_at))
        for row in connection.execute(query)
    ]


def flags(connection: Connection, session_id: str) -> dict[str, int]:
    """Return how many of a session's calls have each flag."""
    found: dict[str, int] = {}
    query = select(spending.c.flags).where(spending.c.session_id == session_id)
    for (several,) in connection.execute(query):
        for flag in several:
            found[flag] = found.get(flag, 0) + 1
    return found


def raises(connection: Connection, scope: Scope, key: str) -> Amounts:
    """Return the amounts granted on top of a budget."""
    query = (
        select(budget_raises.c.kind, func.sum(budget_raises.c.amount))
        .where((budget_raises.c.scope == scope) & (budget_raises.c.scope_key == key))
        .group_by(budget_raises.c.kind)
    )
    return Amounts(**{kind: int(total) for kind, total in connection.execute(query)})


def add_raise(
    connection: Connection,
    *,
    raise_id: str,
    scope: Scope,
    key: str,
    kind: Kind,
    by: int,
    now: float,
) -> None:
    """Record that a person added to a budget."""
    values = {
        "id": raise_id,
        "scope": scope,
        "scope_key": key,
        "kind": kind,
        "amount": by,
        "raised_at": now,
    }
    connection.execute(insert(budget_raises).values(values))


def _columns(tokens: Tokens) -> dict[str, int]:
    return {"tokens": tokens.total} | msgspec.structs.asdict(tokens)


def _tokens(row: Row[Any]) -> Tokens:
    return Tokens(**{kind: int(row._mapping[kind]) for kind in TOKEN_KINDS})


def _of(scope: Scope, key: str) -> ColumnElement[bool] | None:
    if scope == "session":
        return _session(key)
    return spending.c.day == key if scope == "day" else None


def _session(session_id: str) -> ColumnElement[bool]:
    return spending.c.session_id == session_id
