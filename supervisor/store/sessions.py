"""Queries for sessions."""

import msgspec
from sqlalchemy import Connection, Row, func, insert, select, update

from supervisor.core.jobs import Job, JobResult
from supervisor.core.sessions import OwnLimits, Session
from supervisor.store.tables import sessions as table

_STRUCTS = ("limits", "job", "job_result")
_ENDED = (table.c.ended_at.is_not(None)) & (table.c.kind != "standing")


def add(connection: Connection, session: Session) -> None:
    facts = {name: getattr(session, name) for name in Session.__struct_fields__} | {
        name: msgspec.to_builtins(getattr(session, name)) for name in _STRUCTS
    }
    connection.execute(insert(table).values(facts))


def get(connection: Connection, session_id: str) -> Session | None:
    row = connection.execute(select(table).where(table.c.id == session_id)).one_or_none()
    return _session(row) if row else None


def newest(connection: Connection, limit: int = 100) -> list[Session]:
    """Return the last `limit` sessions of agents, newest first."""
    query = select(table).where(table.c.kind != "standing")
    rows = connection.execute(query.order_by(table.c.created_at.desc()).limit(limit))
    return [_session(row) for row in rows]


def ended(connection: Connection, limit: int, skip: int) -> list[Session]:
    """Return ended sessions, newest first, from the one at `skip` on."""
    query = select(table).where(_ENDED).order_by(table.c.created_at.desc())
    return [_session(row) for row in connection.execute(query.limit(limit).offset(skip))]


def count_ended(connection: Connection) -> int:
    query = select(func.count()).select_from(table).where(_ENDED)
    return int(connection.execute(query).scalar_one())


def in_order(connection: Connection) -> list[str]:
    """Return the ids of all sessions, oldest first."""
    query = select(table.c.id).order_by(table.c.created_at, table.c.id)
    return list(connection.execute(query).scalars())


def newest_of_job(connection: Connection, name: str) -> Session | None:
    """Return the last session of a named job."""
    query = select(table).where(table.c.job["name"].as_string() == name)
    row = connection.execute(query.order_by(table.c.created_at.desc()).limit(1)).one_or_none()
    return _session(row) if row else None


def newest_jobs(connection: Connection, limit: int = 200) -> list[Session]:
    """Return the last sessions of maintenance jobs, newest first."""
    query = select(table).where(table.c.kind == "maintenance")
    return [
        _session(row)
        for row in connection.execute(query.order_by(table.c.created_at.desc()).limit(limit))
    ]


def not_ended(connection: Connection) -> list[Session]:
    """Return sessions without a recorded end; at start-up, those that a crash left."""
    return [
        _session(row)
        for row in connection.execute(
            select(table).where(table.c.ended_at.is_(None), table.c.kind != "standing")
        )
    ]


def standing(connection: Connection) -> list[Session]:
    """Return the sessions without an agent that haven't ended."""
    query = select(table).where(table.c.ended_at.is_(None), table.c.kind == "standing")
    return [_session(row) for row in connection.execute(query)]


def change(connection: Connection, session_id: str, **facts: object) -> Session:
    """Record new facts of an existing session. Return it."""
    row = connection.execute(
        update(table)
        .where(table.c.id == session_id)
        .values(msgspec.to_builtins(facts))
        .returning(table)
    ).one()
    return _session(row)


def _session(row: Row) -> Session:  # type: ignore[type-arg]
    values = dict(row._mapping)
    for name in ("command", "notices", "remotes"):
        values[name] = tuple(values[name])
    values["limits"] = msgspec.convert(values["limits"], OwnLimits)
    values["job"] = msgspec.convert(values["job"], Job | None)
    values["job_result"] = msgspec.convert(values["job_result"], JobResult | None)
    return Session(**values)
