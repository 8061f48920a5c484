"""Scheduled jobs as pages and JSON: what is scheduled, what runs did, run now, pause and resume."""

import asyncio
from typing import Annotated

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, JSONBody

from supervisor.core.forge_acts import Act
from supervisor.reviews.pages import job_views, post_views, review_views
from supervisor.reviews.pages.job_views import JobRunView, RepositoryJobView
from supervisor.reviews.pages.review_views import service_of
from supervisor.server.operator.operator_api import AnyRequest, CallBody, caller, parts_of
from supervisor.server.operator.pages import page_frame


class PauseWanted(CallBody, frozen=True, kw_only=True):
    """Why a job is paused."""

    why: Annotated[str, msgspec.Meta(max_length=500)] = ""


@get("/api/jobs", sync_to_thread=True)
def list_jobs(request: AnyRequest) -> list[RepositoryJobView]:
    """Return the scheduled jobs of every repository, each with its newest run."""
    return job_views.all_jobs(service_of(request))


@get("/api/jobs/{job_id:str}/runs", sync_to_thread=True)
def list_runs(request: AnyRequest, job_id: FromPath[str]) -> list[JobRunView]:
    """Return the newest runs of a job."""
    return job_views.runs(service_of(request), job_id)


@post("/api/jobs/{job_id:str}/run", status_code=200, sync_to_thread=False)
def run_job(request: AnyRequest, job_id: FromPath[str]) -> JobRunView:
    """Have a job run now; return the run."""
    service = service_of(request)
    job, repository = job_views.job_of(service, job_id)
    run_id = service.schedule.run_now(repository, job.name, by=caller(request).name)
    return job_views.run(service, run_id)


@post("/api/jobs/{job_id:str}/pause", status_code=200, sync_to_thread=False)
def pause_job(
    request: AnyRequest, job_id: FromPath[str], data: JSONBody[PauseWanted]
) -> list[RepositoryJobView]:
    """Have a job run no more until it is resumed; return the jobs of its repository."""
    service = service_of(request)
    job, repository = job_views.job_of(service, job_id)
    service.schedule.pause(repository, job.name, by=caller(request).name, why=data.why)
    return job_views.all_jobs(service, repository.id)


@post("/api/jobs/{job_id:str}/resume", status_code=200, sync_to_thread=False)
def resume_job(request: AnyRequest, job_id: FromPath[str]) -> list[RepositoryJobView]:
    """Let a paused job run again from its next time on; return the jobs of its repository."""
    service = service_of(request)
    job, repository = job_views.job_of(service, job_id)
    service.schedule.resume(repository, job.name, by=caller(request).name)
    return job_views.all_jobs(service, repository.id)


@post("/jobs/{job_id:str}/{wish:str}", include_in_schema=False, status_code=200)
async def change_job(
    request: AnyRequest, job_id: FromPath[str], wish: FromPath[str]
) -> Response[str]:
    """Run a job now, pause or resume it; show the jobs of its repository then."""
    service, by = service_of(request), caller(request).name
    job, repository = job_views.job_of(service, job_id)
    if wish == "run":
        service.schedule.run_now(repository, job.name, by=by)
    elif wish == "pause":
        service.schedule.pause(repository, job.name, by=by)
    else:
        service.schedule.resume(repository, job.name, by=by)
    found = await asyncio.to_thread(job_views.all_jobs, service, repository.id)
    return page_frame.html("parts/jobs.html", jobs=found)


@get("/job-runs/{run_id:str}", include_in_schema=False)
async def job_run(request: AnyRequest, run_id: FromPath[str]) -> Response[str]:
    """Show one run of a job: what was asked, what came of it, its tests, its cost and turns."""
    parts, service = parts_of(request), service_of(request)
    view = await asyncio.to_thread(job_views.run, service, run_id)
    post = None
    if view.request_id and isinstance(parts.queue.get(view.request_id).action, Act):
        post = await post_views.post_view(parts, parts.queue.get(view.request_id))
    others = await asyncio.to_thread(job_views.runs, service, str(view.job_id))
    turns = await asyncio.to_thread(review_views.trace, parts, view.session_id)
    return page_frame.page(
        request, "job_run.html", "reviews", run=view, post=post, runs=others[:20], turns=turns
    )
