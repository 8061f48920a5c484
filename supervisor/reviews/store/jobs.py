"""Queries about scheduled jobs and their runs. Each takes a connection, as in `queries`."""

from collections.abc import Collection
from typing import Any

import msgspec
from sqlalchemy import Connection, insert, select, update
from sqlalchemy.dialects.sqlite import insert as insert_or

from supervisor.reviews.store.queries import Repository
from supervisor.reviews.store.tables import job_runs, jobs, repositories

MOST_ATTEMPTS = 3


class RepositoryJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of a repository. `next_due_at`: None if it isn't scheduled any more."""

    id: int
    repository_id: int
    name: str
    cron: str
    timezone: str
    next_due_at: float | None
    last_due_at: float
    pushed: str
    failures: int
    paused_by: str
    paused_why: str


class JobRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a job. `task` is a `core.jobs.Job`, `result` a `JobResult`."""

    id: str
    job_id: int
    wanted_by: str
    wanted_at: float
    due_at: float
    attempt: int
    claimed_attempt: int
    ended_at: float | None
    outcome: str
    reason: str
    session_id: str
    cost: int
    base_sha: str
    head_sha: str
    pack: bytes
    task: dict[str, Any] | None
    result: dict[str, Any] | None


def jobs_of(connection: Connection, repository_id: int) -> dict[str, RepositoryJob]:
    """Return the jobs of a repository by name."""
    query = select(jobs).where(jobs.c.repository_id == repository_id).order_by(jobs.c.name)
    return {row.name: RepositoryJob(**row._mapping) for row in connection.execute(query)}


def find_job(connection: Connection, job_id: int) -> RepositoryJob | None:
    row = connection.execute(select(jobs).where(jobs.c.id == job_id)).one_or_none()
    return None if row is None else RepositoryJob(**row._mapping)


def job(connection: Connection, job_id: int) -> RepositoryJob:
    found = find_job(connection, job_id)
    assert found is not None
    return found


def put_job(connection: Connection, repository_id: int, name: str, **facts: object) -> None:
    """Add a job, or change it."""
    query = insert_or(jobs).values(repository_id=repository_id, name=name, **facts)
    connection.execute(
        query.on_conflict_do_update(index_elements=["repository_id", "name"], set_=facts)
    )


def change_job(connection: Connection, job_id: int, **facts: object) -> None:
    connection.execute(update(jobs).where(jobs.c.id == job_id).values(facts))


def pushed_jobs(connection: Connection) -> list[RepositoryJob]:
    """Return the jobs whose branch may be there."""
    rows = connection.execute(select(jobs).where(jobs.c.pushed != "").order_by(jobs.c.id))
    return [RepositoryJob(**row._mapping) for row in rows]


def paused_by(connection: Connection, by: str, limit: int) -> list[tuple[str, str, str]]:
    """Return the jobs that somebody paused: repository, name and why."""
    query = (
        select(repositories.c.full_name, jobs.c.name, jobs.c.paused_why)
        .join(repositories, jobs.c.repository_id == repositories.c.id)
        .where(jobs.c.paused_by == by, jobs.c.next_due_at.is_not(None))
        .order_by(jobs.c.id)
        .limit(limit)
    )
    return [(row[0], row[1], row[2]) for row in connection.execute(query)]


def unschedule(connection: Connection, repository_id: int, but: Collection[str]) -> None:
    """Have no job of a repository due any more, but these."""
    query = update(jobs).where(jobs.c.repository_id == repository_id, jobs.c.name.not_in(but))
    connection.execute(query.values(next_due_at=None))


def due(connection: Connection, now: float) -> list[RepositoryJob]:
    """Return the jobs that are due, of enabled repositories, without an unfinished run."""
    unfinished = select(job_runs.c.job_id).where(job_runs.c.ended_at.is_(None))
    query = (
        select(jobs)
        .join(repositories, jobs.c.repository_id == repositories.c.id)
        .where(
            jobs.c.next_due_at <= now,
            jobs.c.paused_by == "",
            repositories.c.enabled,
            repositories.c.removed_at.is_(None),
            jobs.c.id.not_in(unfinished),
        )
        .order_by(jobs.c.next_due_at)
    )
    return [RepositoryJob(**row._mapping) for row in connection.execute(query)]


def add_run(connection: Connection, run_id: str, job_id: int, now: float, by: str = "") -> None:
    facts = {"wanted_by": by, "wanted_at": now, "due_at": now, "pack": b""}
    connection.execute(insert(job_runs).values(id=run_id, job_id=job_id, **facts))


def run(connection: Connection, run_id: str) -> JobRun | None:
    row = connection.execute(select(job_runs).where(job_runs.c.id == run_id)).one_or_none()
    return None if row is None else JobRun(**row._mapping)


def change_run(connection: Connection, run_id: str, **facts: object) -> None:
    connection.execute(update(job_runs).where(job_runs.c.id == run_id).values(facts))


def runs_of(connection: Connection, job_id: int, limit: int = 100) -> list[JobRun]:
    """Return a job's runs, newest first."""
    query = select(job_runs).where(job_runs.c.job_id == job_id)
    rows = connection.execute(query.order_by(job_runs.c.wanted_at.desc()).limit(limit))
    return [JobRun(**row._mapping) for row in rows]


def commits_of(connection: Connection, job_id: int) -> set[str]:
    """Return every commit that runs of a job made."""
    query = select(job_runs.c.head_sha).where(job_runs.c.job_id == job_id)
    return set(connection.execute(query.where(job_runs.c.head_sha != "")).scalars())


def waiting(connection: Connection, now: float) -> list[str]:
    """Return the runs that nobody has claimed yet and may start now, oldest first."""
    query = select(job_runs.c.id).where(
        job_runs.c.ended_at.is_(None),
        job_runs.c.claimed_attempt < job_runs.c.attempt,
        job_runs.c.due_at <= now,
    )
    return list(connection.execute(query.order_by(job_runs.c.wanted_at)).scalars())


def unfinished(connection: Connection) -> list[JobRun]:
    """Return the runs that haven't ended."""
    rows = connection.execute(select(job_runs).where(job_runs.c.ended_at.is_(None)))
    return [JobRun(**row._mapping) for row in rows]


def claim(connection: Connection, run_id: str) -> JobRun | None:
    """Take a run, once for each attempt; None if it is taken or over."""
    query = (
        update(job_runs)
        .where(
            job_runs.c.id == run_id,
            job_runs.c.ended_at.is_(None),
            job_runs.c.claimed_attempt < job_runs.c.attempt,
        )
        .values(claimed_attempt=job_runs.c.attempt)
        .returning(job_runs)
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else JobRun(**row._mapping)


def lost_runs(connection: Connection) -> list[JobRun]:
    """Return the claimed runs that haven't ended: at start-up, those of an earlier process."""
    query = select(job_runs).where(
        job_runs.c.ended_at.is_(None), job_runs.c.claimed_attempt >= job_runs.c.attempt
    )
    return [JobRun(**row._mapping) for row in connection.execute(query)]


def repository_of_run(connection: Connection, run_id: str) -> Repository:
    """Return the repository of a job's run."""
    query = (
        select(repositories)
        .join(jobs, jobs.c.repository_id == repositories.c.id)
        .join(job_runs, job_runs.c.job_id == jobs.c.id)
        .where(job_runs.c.id == run_id)
    )
    return Repository(**connection.execute(query).one()._mapping)
