"""Scheduled jobs and their runs as the page and the JSON API show them."""

from collections.abc import Mapping

import msgspec

from supervisor.core.approvals import Request, Status, status
from supervisor.core.forge_acts import spelled
from supervisor.core.jobs import Job, JobResult, scope_words
from supervisor.core.text.numbers import whole_number
from supervisor.errors import NotFoundError
from supervisor.reviews.service import ReviewService
from supervisor.reviews.store import jobs, queries


class JobRunView(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a job. `outcome` is `waiting` or `running` until it ends, and `reason` says why it
    is so; `request_id` is the request for its act, and `answer` its status, `done` once it was
    carried out; both "" without one. Times are in seconds since the epoch, the cost is in
    pico-dollars."""

    id: str
    job_id: int
    job: str
    repository: str
    wanted_by: str
    wanted_at: float
    ended_at: float | None
    outcome: str
    reason: str
    session_id: str
    cost: int
    head: str
    prompt: str
    scope: str
    tests: str
    tests_output: str
    request_id: str
    answer: str


class RepositoryJobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job of a repository. `next_due_at`: None if it isn't scheduled any more. `last` is its
    newest run."""

    id: int
    repository: str
    name: str
    cron: str
    timezone: str
    next_due_at: float | None
    paused_by: str
    paused_why: str
    last: JobRunView | None


def all_jobs(service: ReviewService, repository_id: int | None = None) -> list[RepositoryJobView]:
    """Return the jobs of all repositories, or of one."""
    found = []
    with service.engine.connect() as connection:
        for repository in queries.all_repositories(connection):
            if repository_id not in (None, repository.id):
                continue
            asked = service.job_requests(repository.session_id)
            for job in jobs.jobs_of(connection, repository.id).values():
                runs = jobs.runs_of(connection, job.id, 1)
                last = _run_view(runs[0], job, repository, asked) if runs else None
                found.append(_job_view(job, repository, last))
    return found


def job_of(service: ReviewService, job_id: str) -> tuple[jobs.RepositoryJob, queries.Repository]:
    """Return a job by its id in a path, and its repository. Raise `NotFoundError` if there is
    none."""
    with service.engine.connect() as connection:
        found = jobs.find_job(connection, whole_number(job_id, 9) or 0)
        if found is None:
            raise NotFoundError("no such job", "`gatehouse jobs list` lists them")
        return found, queries.repository_of(connection, found.repository_id)


def runs(service: ReviewService, job_id: str) -> list[JobRunView]:
    """Return the newest runs of a job."""
    job, repository = job_of(service, job_id)
    with service.engine.connect() as connection:
        found = jobs.runs_of(connection, job.id)
    asked = service.job_requests(repository.session_id)
    return [_run_view(one, job, repository, asked) for one in found]


def run(service: ReviewService, run_id: str) -> JobRunView:
    """Return one run. Raise `NotFoundError` if there is none."""
    with service.engine.connect() as connection:
        found = jobs.run(connection, run_id)
        if found is None:
            raise NotFoundError("no such run of a job", "`gatehouse jobs log` lists them")
        job = jobs.job(connection, found.job_id)
        repository = queries.repository_of(connection, job.repository_id)
    return _run_view(found, job, repository, service.job_requests(repository.session_id))


def _job_view(
    job: jobs.RepositoryJob, repository: queries.Repository, last: JobRunView | None
) -> RepositoryJobView:
    return RepositoryJobView(
        id=job.id,
        repository=spelled(repository.forge, repository.full_name),
        name=job.name,
        cron=job.cron,
        timezone=job.timezone,
        next_due_at=job.next_due_at,
        paused_by=job.paused_by,
        paused_why=job.paused_why,
        last=last,
    )


def _run_view(
    one: jobs.JobRun,
    job: jobs.RepositoryJob,
    repository: queries.Repository,
    requests: Mapping[str, Request],
) -> JobRunView:
    task = None if one.task is None else msgspec.convert(one.task, Job)
    result = None if one.result is None else msgspec.convert(one.result, JobResult)
    asked = requests.get(one.id)
    begun = "running" if one.claimed_attempt >= one.attempt else "waiting"
    return JobRunView(
        id=one.id,
        job_id=job.id,
        job=job.name,
        repository=spelled(repository.forge, repository.full_name),
        wanted_by=one.wanted_by,
        wanted_at=one.wanted_at,
        ended_at=one.ended_at,
        outcome=one.outcome if one.ended_at is not None else begun,
        reason=one.reason,
        session_id=one.session_id,
        cost=one.cost,
        head=one.head_sha,
        prompt="" if task is None else task.prompt,
        scope="" if task is None or result is None else scope_words(task, result.proof),
        tests="" if result is None else result.tests,
        tests_output="" if result is None else result.tests_output,
        request_id="" if asked is None else asked.id,
        answer="" if asked is None else _answer(status(asked)),
    )


def _answer(one: Status) -> str:
    return "done" if one == "used" else one
