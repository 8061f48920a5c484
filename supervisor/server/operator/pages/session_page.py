"""The page of one session, and its buttons."""

import contextlib

from litestar import Response, get, post
from litestar.params import FromPath
from litestar.types import ControllerRouterHandler

from supervisor.errors import GatehouseError, UserError
from supervisor.server.common.views import shown
from supervisor.server.operator import decisions
from supervisor.server.operator.operator_api import AnyRequest, caller, parts_of
from supervisor.server.operator.pages import page_frame, request_cards
from supervisor.server.operator.pages.page_frame import Form
from supervisor.server.operator.pages.sessions_page import session_data, started
from supervisor.sessions.start_session import StartSession

# The end of an agent's output that a page starts with.
OUTPUT_TAIL_BYTES = 256 * 1024


@get("/sessions/{session_id:str}", include_in_schema=False)
async def session(request: AnyRequest, session_id: FromPath[str]) -> Response[str]:
    """Return one session: state, time, output, review, requests."""
    parts = parts_of(request)
    found = parts.sessions.get(session_id)
    start = max(0, parts.sessions.output_size(session_id) - OUTPUT_TAIL_BYTES)
    values = {
        "session": session_data(parts, found),
        "output_start": start,
        "answered": request_cards.answered(parts, session_id),
        "waiting": len(parts.queue.pending_ids_but([], session_id, now=parts.clock.now())),
    }
    return page_frame.page(request, "session.html", "sessions", **values)


@get("/parts/sessions/{session_id:str}", include_in_schema=False, sync_to_thread=False)
def session_part(request: AnyRequest, session_id: FromPath[str]) -> Response[str]:
    parts = parts_of(request)
    return page_frame.html(
        "parts/session.html", session=session_data(parts, parts.sessions.get(session_id))
    )


@post("/sessions/{session_id:str}/stop", include_in_schema=False, status_code=200)
async def stop_session(request: AnyRequest, session_id: FromPath[str]) -> Response[str]:
    """Begin the orderly end of a session."""
    parts = parts_of(request)
    await parts.sessions.stop(session_id, reason="stopped by the operator", by=caller(request).name)
    return page_frame.html(
        "parts/session.html", session=session_data(parts, parts.sessions.get(session_id))
    )


@post(
    "/sessions/{session_id:str}/pause",
    include_in_schema=False,
    status_code=200,
    sync_to_thread=False,
)
def pause_session(request: AnyRequest, session_id: FromPath[str], data: Form) -> Response[str]:
    """Stop its processes, or let them continue. Return the session as it is afterwards."""
    parts = parts_of(request)
    do = parts.sessions.unpause if data.get("go_on") else parts.sessions.pause
    with contextlib.suppress(UserError):  # it went on, or ended, meanwhile: the page shows it
        do(session_id, by=caller(request).name)
    return page_frame.html(
        "parts/session.html", session=session_data(parts, parts.sessions.get(session_id))
    )


@post(
    "/sessions/{session_id:str}/name",
    include_in_schema=False,
    status_code=200,
    sync_to_thread=False,
)
def rename_session(request: AnyRequest, session_id: FromPath[str], data: Form) -> Response[str]:
    """Give a session another name. Return its heading; with an error, why it has the old one."""
    parts, error = parts_of(request), ""
    try:
        parts.sessions.rename(session_id, data.get("name", ""), by=caller(request).name)
    except UserError as refused:
        error = str(refused)
    session = parts.sessions.get(session_id)
    return page_frame.html(
        "parts/session_name.html", session=session_data(parts, session), error=error
    )


@post("/sessions/{session_id:str}/take", include_in_schema=False, status_code=200)
async def take_branch(request: AnyRequest, session_id: FromPath[str]) -> Response[str]:
    """Copy the agent's branch into the host's repository."""
    parts = parts_of(request)
    try:
        taken = await decisions.take_branch(parts, session_id, "", by=caller(request).name)
    except GatehouseError as error:
        return page_frame.html("parts/taken.html", error=shown(str(error), parts.redactor))
    return page_frame.html(
        "parts/taken.html",
        branch=shown(taken.branch, parts.redactor),
        source=shown(taken.source, parts.redactor),
        commits=taken.commits,
    )


@post("/sessions/{session_id:str}/resume", include_in_schema=False, status_code=200)
async def resume_session(request: AnyRequest, session_id: FromPath[str]) -> Response[str]:
    """Start a session that continues on the copy of an ended one, and go to its page."""
    return await started(request, lambda: StartSession(resume=session_id))


def handlers() -> list[ControllerRouterHandler]:
    """Return every route of this module."""
    return [
        session,
        session_part,
        resume_session,
        stop_session,
        pause_session,
        rename_session,
        take_branch,
    ]
