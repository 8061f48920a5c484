"""Queries about the money of reviews: reservations, the sessions that spend them, notices.

Each takes a connection, so that the caller controls the transaction. Money is pico-dollars. An
attempt of a run has one row in each of its layers; they are made and settled together.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, case, exists, func, insert, select, update
from sqlalchemy.dialects.sqlite import insert as insert_or

from supervisor.reviews.core.allowances import CAP_SCOPES, CapScope, Layer, LayerUse
from supervisor.reviews.store.tables import (
    allowances,
    budget_notices,
    job_runs,
    jobs,
    paid_sessions,
    pulls,
    receipts,
    repositories,
    runs,
    slots,
)

_USED = case((allowances.c.settled_at.is_not(None), allowances.c.used), else_=0)
_RESERVED = case((allowances.c.settled_at.is_(None), allowances.c.reserved), else_=0)


class Attempt(NamedTuple):
    """An unsettled attempt of a run, and its reservation."""

    run_id: str
    attempt: int
    reserved: int


class PaidSession(NamedTuple):
    """A session of an attempt. `session_id` is "" until it has started; `lost`: it isn't known
    whether it did."""

    id: int
    budget: int
    session_id: str
    lost: bool


class HeldSlot(NamedTuple):
    """A pull request whose review waits for money, and its newest head."""

    pull_id: int
    head: str
    full: bool


class AttemptCost(NamedTuple):
    """The cost of an attempt that reserved money at `at`; its reservation if it isn't over."""

    at: float
    repository: str
    model: str
    cost: int
    settled: bool


def lock(connection: Connection) -> None:
    """Begin a transaction as the only writer, so that the data read stays valid until its end. It
    must be a connection's first statement."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def uses(connection: Connection, layers: Sequence[Layer]) -> list[LayerUse]:
    """Return the used and reserved amounts of each layer."""
    return [LayerUse(layer, *_sums(connection, layer)) for layer in layers]


def _sums(connection: Connection, layer: Layer) -> tuple[int, int]:
    query = select(func.coalesce(func.sum(_USED), 0), func.coalesce(func.sum(_RESERVED), 0)).where(
        allowances.c.scope == layer.scope,
        allowances.c.key == layer.key,
        allowances.c.period == layer.period,
    )
    used, reserved = connection.execute(query).one()
    return int(used), int(reserved)


def reserve(
    connection: Connection,
    run_id: str,
    attempt: int,
    *,
    layers: Sequence[Layer],
    amount: int,
    now: float,
) -> None:
    """Reserve an amount in every layer."""
    connection.execute(
        insert(allowances),
        [
            {
                "run_id": run_id,
                "attempt": attempt,
                "scope": layer.scope,
                "key": layer.key,
                "period": layer.period,
                "reserved": amount,
                "at": now,
            }
            for layer in layers
        ],
    )


def settle(connection: Connection, one: Attempt, used: int, now: float) -> None:
    """Return the unused part of an attempt's reservation, in every layer."""
    connection.execute(
        update(allowances)
        .where(*_is_attempt(one), allowances.c.settled_at.is_(None))
        .values(used=used, settled_at=now)
    )


def layers_of(connection: Connection, one: Attempt) -> list[Layer]:
    """Return the layers of an attempt, without their caps."""
    query = select(allowances.c.scope, allowances.c.key, allowances.c.period)
    rows = connection.execute(query.where(*_is_attempt(one)))
    found = [Layer(*row, None) for row in rows]
    return sorted(found, key=lambda layer: CAP_SCOPES.index(layer.scope))


def _is_attempt(one: Attempt) -> tuple[ColumnElement[bool], ...]:
    return allowances.c.run_id == one.run_id, allowances.c.attempt == one.attempt


def open_attempt(connection: Connection, run_id: str) -> Attempt | None:
    """Return the unsettled attempt of a run."""
    return next((one for one in _unsettled(connection) if one.run_id == run_id), None)


def attempts_over(connection: Connection) -> list[Attempt]:
    """Return the unsettled attempts that neither a slot nor a job has running."""
    is_running = exists().where(
        slots.c.run_id == allowances.c.run_id,
        slots.c.attempt == allowances.c.attempt,
        slots.c.lease_until.is_not(None),
    )
    is_of_job = exists().where(
        job_runs.c.id == allowances.c.run_id,
        job_runs.c.attempt == allowances.c.attempt,
        job_runs.c.ended_at.is_(None),
    )
    return _unsettled(connection, ~is_running, ~is_of_job)


def _unsettled(connection: Connection, *where: ColumnElement[bool]) -> list[Attempt]:
    query = (
        select(allowances.c.run_id, allowances.c.attempt, allowances.c.reserved)
        .where(allowances.c.scope == "run", allowances.c.settled_at.is_(None), *where)
        .order_by(allowances.c.id)
    )
    return [Attempt(*row) for row in connection.execute(query)]


def sessions_of(connection: Connection, one: Attempt) -> list[PaidSession]:
    """Return the sessions of an attempt."""
    query = select(
        paid_sessions.c.id,
        paid_sessions.c.budget,
        paid_sessions.c.session_id,
        paid_sessions.c.lost,
    ).where(paid_sessions.c.run_id == one.run_id, paid_sessions.c.attempt == one.attempt)
    return [PaidSession(*row) for row in connection.execute(query.order_by(paid_sessions.c.id))]


def add_session(connection: Connection, one: Attempt, budget: int) -> int:
    """Record a session that is about to start; return its row."""
    facts = {"run_id": one.run_id, "attempt": one.attempt, "budget": budget}
    query = insert(paid_sessions).values(facts).returning(paid_sessions.c.id)
    return int(connection.execute(query).scalar_one())


def session_started(connection: Connection, row: int, session_id: str) -> None:
    """Record that a session started, or with "" that it never did."""
    if session_id:
        query = update(paid_sessions).where(paid_sessions.c.id == row)
        connection.execute(query.values(session_id=session_id))
    else:
        connection.execute(paid_sessions.delete().where(paid_sessions.c.id == row))


def lose_sessions(connection: Connection) -> None:
    """At start-up: mark sessions that an earlier process was about to start as lost."""
    connection.execute(
        update(paid_sessions).where(paid_sessions.c.session_id == "").values(lost=True)
    )


def held_slots(connection: Connection) -> list[HeldSlot]:
    """Return the open pull requests whose review waits for money, longest waiting first."""
    query = (
        select(slots.c.pull_id, pulls.c.head_sha, slots.c.full)
        .join(pulls, slots.c.pull_id == pulls.c.id)
        .join(repositories, pulls.c.repository_id == repositories.c.id)
        .where(
            slots.c.wanted_sha != "",
            slots.c.due_at.is_(None),
            slots.c.lease_until.is_(None),
            and_(pulls.c.closed_at.is_(None), repositories.c.enabled),
        )
        .order_by(slots.c.pull_id)
    )
    return [HeldSlot(*row) for row in connection.execute(query)]


def said(connection: Connection, layer: Layer) -> list[int]:
    """Return the notices that a layer has already given, in percent."""
    return list(
        connection.execute(
            select(budget_notices.c.percent).where(
                budget_notices.c.scope == layer.scope,
                budget_notices.c.key == layer.key,
                budget_notices.c.period == layer.period,
            )
        ).scalars()
    )


def say(
    connection: Connection, scope: str, key: str, period: str, *, percent: int, now: float
) -> bool:
    """Record a notice; return whether it is the first."""
    query = insert_or(budget_notices).values(
        scope=scope, key=key, period=period, percent=percent, at=now
    )
    return bool(connection.execute(query.on_conflict_do_nothing()).rowcount)


def notices(connection: Connection, since: float) -> list[tuple[str, str, str, int]]:
    """Return the notices given since then, newest first: scope, key, period, percent."""
    query = select(
        budget_notices.c.scope,
        budget_notices.c.key,
        budget_notices.c.period,
        budget_notices.c.percent,
    ).where(budget_notices.c.at >= since, budget_notices.c.percent > 0)
    rows = connection.execute(query.order_by(budget_notices.c.at.desc()).limit(100))
    return [(scope, key, period, int(percent)) for scope, key, period, percent in rows]


def in_use(connection: Connection, scope: CapScope, period: str, cap: int | None) -> list[LayerUse]:
    """Return the used and reserved amounts of each layer of a scope and period, the most used
    first."""
    total = func.sum(_USED) + func.sum(_RESERVED)
    query = (
        select(allowances.c.key, func.sum(_USED), func.sum(_RESERVED))
        .where(allowances.c.scope == scope, allowances.c.period == period)
        .group_by(allowances.c.key)
        .order_by(total.desc(), allowances.c.key)
        .limit(200)
    )
    return [
        LayerUse(Layer(scope, key, period, cap), int(used), int(reserved))
        for key, used, reserved in connection.execute(query)
    ]


def held_since(connection: Connection, reason: str, since: float) -> list[tuple[str, str, float]]:
    """Return the receipts of reviews that were held for a reason since then: forge, repository,
    when."""
    query = (
        select(repositories.c.forge, repositories.c.full_name, receipts.c.at)
        .join(pulls, receipts.c.pull_id == pulls.c.id)
        .join(repositories, pulls.c.repository_id == repositories.c.id)
        .where(receipts.c.reason == reason, receipts.c.at >= since)
    )
    return [(forge, name, float(at)) for forge, name, at in connection.execute(query)]


def spent_since(connection: Connection, since: float) -> list[AttemptCost]:
    """Return the attempts since then, oldest first."""
    cost = case((allowances.c.settled_at.is_not(None), allowances.c.used), else_=_RESERVED)
    query = (
        select(
            allowances.c.at,
            repositories.c.full_name,
            func.coalesce(runs.c.model, ""),
            cost,
            allowances.c.settled_at.is_not(None),
        )
        .join(runs, allowances.c.run_id == runs.c.id, isouter=True)
        .join(pulls, runs.c.pull_id == pulls.c.id, isouter=True)
        .join(job_runs, allowances.c.run_id == job_runs.c.id, isouter=True)
        .join(jobs, job_runs.c.job_id == jobs.c.id, isouter=True)
        .join(
            repositories,
            repositories.c.id == func.coalesce(pulls.c.repository_id, jobs.c.repository_id),
        )
        .where(allowances.c.scope == "run", allowances.c.at >= since)
        .order_by(allowances.c.id)
    )
    return [AttemptCost(*row) for row in connection.execute(query)]
