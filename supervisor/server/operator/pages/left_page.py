"""What ended sessions left to answer: a list on the inbox, and dropping a session's requests.

The cards themselves are in the inbox like all others; this says until when they are kept.
"""

from typing import Any

import msgspec
from litestar import Response, get, post

from supervisor.core.sessions import Session, job_words
from supervisor.core.text.duration import format_duration
from supervisor.gate.left_to_answer import LeftOfSession
from supervisor.parts import Parts
from supervisor.server.common.views import identity_of, view_of
from supervisor.server.operator import decisions
from supervisor.server.operator.operator_api import AnyRequest, Id, caller, parts_of
from supervisor.server.operator.pages import page_frame


class LeftView(msgspec.Struct, frozen=True, kw_only=True):
    """A session's remaining requests. `counts` is in words; times are seconds since the epoch.
    `branch` waits to be taken; `job` is the outcome of a maintenance job, in a line."""

    session_id: str
    name: str
    workspace: str
    ended_at: float
    end_reason: str
    kept_until: float
    count: int
    counts: str
    branch: str = ""
    job: str = ""


class Dropped(msgspec.Struct, frozen=True, kw_only=True):
    """How many requests were denied."""

    dropped: int


@get("/api/left", sync_to_thread=False)
def get_left(request: AnyRequest) -> list[LeftView]:
    """Return what ended sessions left to answer."""
    return _views(parts_of(request))


@post(
    "/api/sessions/{session_id:str}/drop",
    status_code=200,
    response_headers=page_frame.news("requests"),
)
async def drop(request: AnyRequest, session_id: Id) -> Dropped:
    """Deny everything that a session left to answer."""
    parts = parts_of(request)
    dropped = await decisions.drop_left(parts, session_id, by=caller(request).name)
    return Dropped(dropped=dropped)


@get("/parts/left", include_in_schema=False, sync_to_thread=False)
def left_part(request: AnyRequest) -> Response[str]:
    return page_frame.html("parts/left.html", **values(parts_of(request)))


def values(parts: Parts) -> dict[str, Any]:
    """Return the values of `parts/left.html`."""
    now = parts.clock.now()
    rows = [
        msgspec.to_builtins(one)
        | {
            "ago": format_duration(now - one.ended_at),
            "stays": format_duration(one.kept_until - now),
        }
        for one in _views(parts)
    ]
    return {"left": rows}


def _views(parts: Parts) -> list[LeftView]:
    found = {one.session_id: one for one in parts.left.all()}
    branches = {one.id: one for one in parts.sessions.with_branches()}
    sessions = {one: parts.sessions.get(one) for one in found} | branches
    return [_view(parts, session, found.get(one)) for one, session in sessions.items()]


def _view(parts: Parts, session: Session, left: LeftOfSession | None) -> LeftView:
    """Return what a session left: requests, or only a branch."""
    result, ended_at = session.job_result, session.ended_at or 0.0
    return view_of(
        LeftView,
        session,
        parts.redactor,
        session_id=session.id,
        name=identity_of(parts, session).name,
        ended_at=ended_at,
        kept_until=left.until if left else ended_at + parts.settings.keep_left_s,
        count=len(left.requests) if left else 1,
        counts=left.counts if left else "1 branch",
        branch=result.branch if result is not None and result.waits else "",
        job=job_words(session),
    )
