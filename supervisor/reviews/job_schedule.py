"""Scheduled jobs of `.reviewerc`: known from the default branch, due by the clock, offered as runs.

A job that is due gets one run, however often it was missed, in the transaction that moves its next
time. INVARIANT: a job has one unfinished run at most.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from zoneinfo import ZoneInfo

from sqlalchemy import Engine

from supervisor.base import log
from supervisor.base.clock import Clock
from supervisor.errors import GatehouseError, NotFoundError, UserError
from supervisor.reviews.budgets import RecordEvent
from supervisor.reviews.configurations import Configurations
from supervisor.reviews.core.schedules import next_due
from supervisor.reviews.queue.base import Queue
from supervisor.reviews.store import allowances, jobs, queries
from supervisor.reviews.targets import find_repository

LOOK_S = 0.2
# How many repositories are read at each poll: each takes a fetch.
MOST_AT_ONCE = 100
# Who pauses a job that fails, and how many of them a page names.
OWN, MOST_NAMED = "gatehouse", 3


class RepositoryJobs:
    """The schedule of one supervisor."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        configurations: Configurations,
        queue: Queue,
        record: RecordEvent,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._configurations = configurations
        self._queue = queue
        self._record = record
        self._read_at: dict[int, float] = {}
        # What every page shows: asked of the database once for each change.
        self._paused: str | None = None
        self.on_change: Callable[[], None] = lambda: None

    async def refresh(self, name: str = "") -> None:
        """Read the jobs of the default branches that weren't read for the longest time, of one
        repository or of all of `OWNER/`."""
        with self._engine.connect() as connection:
            known = queries.all_repositories(connection)
        oldest = sorted(known, key=lambda one: self._read_at.get(one.id, 0.0))
        enabled = [
            one
            for one in oldest
            if one.enabled and one.removed_at is None and _is_of(one.full_name, name)
        ]
        for one in enabled[:MOST_AT_ONCE]:
            self._read_at[one.id] = self._clock.monotonic()
            try:
                await self.refresh_one(one)
            except GatehouseError as error:
                log.warning("jobs can't be read", repo=one.full_name, error=str(error))

    async def refresh_one(self, repository: queries.Repository) -> None:
        """Read the jobs of a repository. A schedule that changed counts from now on."""
        config = await self._configurations.of_default_branch(repository)
        cron, zone = config.cron.value, config.timezone.value
        names = [one.value.id for one in config.jobs] if config.scheduled.value and cron else []
        now = self._clock.now()
        with self._engine.begin() as connection:
            known = jobs.jobs_of(connection, repository.id)
            jobs.unschedule(connection, repository.id, names)
            for name in names:
                old = known.get(name)
                due = next_due(cron or "", ZoneInfo(zone), now, old.last_due_at if old else 0.0)
                if old is not None and (old.cron, old.timezone) == (cron, zone):
                    # Only a clock that was set back makes it come earlier; what is due stays so.
                    due = min(filter(None, (due, old.next_due_at)), default=None)
                facts = {"cron": cron, "timezone": zone, "next_due_at": due}
                jobs.put_job(connection, repository.id, name, **facts)
        self._changed()

    async def adopt(self, repository: queries.Repository) -> list[str]:
        """Know the jobs of a repository without a schedule of ours; return their names."""
        config = await self._configurations.of_default_branch(repository)
        names = [one.value.id for one in config.jobs] if config.scheduled.value else []
        with self._engine.begin() as connection:
            for name in names:
                facts = {"cron": "", "timezone": "UTC", "next_due_at": None}
                jobs.put_job(connection, repository.id, name, **facts)
        return names

    def know_pushed(self, repository: queries.Repository, name: str, commit: str) -> None:
        """Store what was pushed to a job's branch last, as its pull request says."""
        with self._engine.begin() as connection:
            jobs.change_job(connection, self._job(repository, name).id, pushed=commit)

    def look(self) -> None:
        """Give each job that is due a run, and offer the runs that nobody has begun."""
        now = self._clock.now()
        with self._engine.connect() as connection:
            is_due = bool(jobs.due(connection, now))
        if is_due:
            with self._engine.begin() as connection:
                allowances.lock(connection)
                for job in jobs.due(connection, now):
                    due = next_due(job.cron, ZoneInfo(job.timezone), now, job.next_due_at or now)
                    facts = {"next_due_at": due, "last_due_at": job.next_due_at}
                    jobs.change_job(connection, job.id, **facts)
                    jobs.add_run(connection, secrets.token_hex(8), job.id, now)
        with self._engine.connect() as connection:
            for run_id in jobs.waiting(connection, now):
                self._queue.put(run_id)

    def take_up_lost(self) -> None:
        """At start-up: have the runs that an earlier process began done again."""
        now = self._clock.now()
        with self._engine.begin() as connection:
            for run in jobs.lost_runs(connection):
                facts: dict[str, object] = {"attempt": run.attempt + 1, "due_at": now}
                if run.attempt >= jobs.MOST_ATTEMPTS:
                    reason = "the supervisor died in each of its attempts"
                    facts = {"ended_at": now, "outcome": "failed", "reason": reason}
                jobs.change_run(connection, run.id, **facts)

    def run_now(self, repository: queries.Repository, name: str, *, by: str) -> str:
        """Have a job run now; return the run's id. Raise `UserError` if it is running already."""
        job, run_id = self._job(repository, name), secrets.token_hex(8)
        with self._engine.begin() as connection:
            allowances.lock(connection)
            if any(one.ended_at is None for one in jobs.runs_of(connection, job.id, 1)):
                raise UserError(f"the job `{name}` is running", "wait for its end")
            jobs.add_run(connection, run_id, job.id, self._clock.now(), by)
        self._queue.put(run_id)
        return run_id

    async def run_once_known(self, full_name: str, name: str, *, by: str) -> str:
        """Have a job run as soon as its repository's configuration was read."""
        while True:
            with self._engine.connect() as connection:
                repository = find_repository(connection, full_name)
            with contextlib.suppress(NotFoundError):
                if repository is not None:
                    return self.run_now(repository, name, by=by)
            await asyncio.sleep(LOOK_S)

    def pause(self, repository: queries.Repository, name: str, *, by: str, why: str = "") -> None:
        """Have a job run no more until it is resumed."""
        self._change(repository, name, "job_paused", by, paused_by=by, paused_why=why[:500])

    def resume(self, repository: queries.Repository, name: str, *, by: str) -> None:
        """Let a paused job run again, from its next time on."""
        job = self._job(repository, name)
        due = next_due(job.cron, ZoneInfo(job.timezone), self._clock.now(), job.last_due_at)
        facts = {"paused_by": "", "paused_why": "", "failures": 0, "next_due_at": due}
        self._change(repository, name, "job_resumed", by, **facts)

    def paused_words(self) -> str:
        """Return in words which jobs Gatehouse paused because they fail; "" for none."""
        if self._paused is None:
            with self._engine.connect() as connection:
                found = jobs.paused_by(connection, OWN, MOST_NAMED)
            self._paused = "; ".join(f"{job} of {name}: {why}" for name, job, why in found)
        return self._paused

    def _changed(self) -> None:
        self._paused = None
        self.on_change()

    def _change(
        self, repository: queries.Repository, name: str, event: str, by: str, **facts: object
    ) -> None:
        job = self._job(repository, name)
        with self._engine.begin() as connection:
            jobs.change_job(connection, job.id, **facts)
        why = facts.get("paused_why", "")
        self._record(event, session=repository.session_id, job=name, by=by, why=why)
        self._changed()

    def _job(self, repository: queries.Repository, name: str) -> jobs.RepositoryJob:
        with self._engine.connect() as connection:
            found = jobs.jobs_of(connection, repository.id).get(name)
        if found is None:
            raise NotFoundError(
                f"{repository.full_name} has no job `{name[:64]}`",
                "its `.reviewerc` on the default branch names them",
            )
        return found


def _is_of(full_name: str, wanted: str) -> bool:
    """Return whether a repository is the wanted one, or one of the wanted `OWNER/`."""
    mine, other = full_name.casefold(), wanted.casefold()
    return mine.startswith(other) if other.endswith("/") else other in ("", mine)
