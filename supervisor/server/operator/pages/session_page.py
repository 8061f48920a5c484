"""The pages of one session: its timeline, changes, output, network and spend, each with an address.

Each tab shows what another module reads; what its buttons do, the session manager does. The head
above the tabs and the panel of facts are parts that follow the session.
"""

import asyncio
from typing import Annotated, Any, Literal

import msgspec
from litestar import Response, get, post
from litestar.params import FromQuery, JSONBody, QueryParameter

from supervisor.core.git.taken_branch import TakenBranch
from supervisor.core.network.exchanges import by_host
from supervisor.core.quarantine.quarantine_answers import dropped_words
from supervisor.core.sessions import Session, state
from supervisor.errors import GatehouseError, UserError
from supervisor.parts import Parts
from supervisor.server.common.session_views import SessionView, session_view
from supervisor.server.common.views import shown, shown_view
from supervisor.server.operator import decisions, session_changes, session_timeline_view
from supervisor.server.operator.change_views import coloured_changes
from supervisor.server.operator.operator_api import AnyRequest, CallBody, Id, Text, caller, parts_of
from supervisor.server.operator.pages import network_page, page_frame, spend_page
from supervisor.server.operator.pages.page_frame import Form
from supervisor.server.operator.pages.pages import WhyBody
from supervisor.server.operator.pages.sessions_page import may_resume, started
from supervisor.server.operator.screens import Screens, ScreenView
from supervisor.server.operator.session_timeline_view import SessionTimeline, TimelineWanted
from supervisor.sessions.session_output import as_text, complete_part
from supervisor.sessions.start_session import StartSession

_NEWS = page_frame.news("session")
Tab = Literal["timeline", "changes", "output", "network", "spend"]
# The end of an agent's output that a page starts with.
OUTPUT_TAIL_BYTES = 256 * 1024
# Rows of a changed file's difference.
MOST_ROWS = 1000
_SEVERITIES = ("critical", "high", "medium", "low", "info")
_VERDICTS = {
    "approve": "approves the change",
    "comment": "comments",
    "request_changes": "requests changes",
    "": "no verdict",
}
# Defaults for what an agent reported: each field may be missing or odd.
_REPORT = {"verdict": "", "summary": "", "model": ""}
_FINDING: dict[str, Any] = {"title": "", "path": "", "line": None, "body": "", "suggestion": ""}
_Skip = Annotated[int, QueryParameter(ge=0)]


class TakeBody(CallBody, frozen=True, kw_only=True):
    """`branch` of the agent's copy; by default the one that is checked out there."""

    branch: Annotated[str, msgspec.Meta(max_length=500)] = ""


class NameBody(CallBody, frozen=True, kw_only=True):
    name: Text


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """Text from `offset` on, in bytes. Ask again with `next_offset`; `is_final` when nothing
    follows."""

    text: str
    next_offset: int
    is_final: bool


# -- the tabs -------------------------------------------------------------------------------------


@get("/sessions/{session_id:str}", include_in_schema=False)
async def timeline_tab(request: AnyRequest, session_id: Id) -> Response[str]:
    """Return what the session asked and did, newest first."""
    session = parts_of(request).sessions.get(session_id)
    found = await _timeline(parts_of(request), session, TimelineWanted())
    return await _page(request, session, "timeline", **found)


@get("/sessions/{session_id:str}/changes", include_in_schema=False)
async def changes_tab(
    request: AnyRequest, session_id: Id, undo: FromQuery[str] = ""
) -> Response[str]:
    """Return what the session changed; with `undo`, what undoing all of it would do."""
    parts = parts_of(request)
    session = parts.sessions.get(session_id)
    found = await session_changes.changed_files(parts, session)
    return await _page(request, session, "changes", changes=found, skip=0, undo=undo)


@get("/sessions/{session_id:str}/output", include_in_schema=False)
async def output_tab(
    request: AnyRequest, session_id: Id, lines: FromQuery[bool] = False
) -> Response[str]:
    """Return what the agent prints: as its screen where it draws on one, else line by line."""
    parts = parts_of(request)
    session = parts.sessions.get(session_id)
    start = max(0, parts.sessions.output_size(session_id) - OUTPUT_TAIL_BYTES)
    screen = await _screens(request).view(session_id)
    values = {"screen": screen, "as_lines": lines or not screen.is_drawn, "output_start": start}
    return await _page(request, session, "output", **values)


@get("/sessions/{session_id:str}/network", include_in_schema=False)
async def network_tab(request: AnyRequest, session_id: Id) -> Response[str]:
    """Return where the session connected to."""
    parts = parts_of(request)
    session = parts.sessions.get(session_id)
    values = await asyncio.to_thread(network_page.hosts, network_page.shown_list(parts, session))
    return await _page(request, session, "network", **values)


@get("/sessions/{session_id:str}/spend", include_in_schema=False)
async def spend_tab(
    request: AnyRequest, session_id: Id, span: FromQuery[spend_page.Span] = "session"
) -> Response[str]:
    """Return what its models cost."""
    session = parts_of(request).sessions.get(session_id)
    values = spend_page.values(parts_of(request), session, span)
    return await _page(request, session, "spend", spend=values)


async def _page(request: AnyRequest, session: Session, tab: Tab, **values: Any) -> Response[str]:
    head = await _head(parts_of(request), session, tab)
    frame = page_frame.frame(request, "sessions")
    return await _html(f"session_{tab}.html", **(frame | head | values))


async def _html(template: str, **values: Any) -> Response[str]:
    """Return an answer made in a thread: an agent chooses how much stands in it (law 14)."""
    return await asyncio.to_thread(lambda: page_frame.html(template, **values))


# -- their parts ----------------------------------------------------------------------------------


@get("/parts/sessions/{session_id:str}", include_in_schema=False)
async def head_part(
    request: AnyRequest, session_id: Id, tab: FromQuery[Tab] = "timeline"
) -> Response[str]:
    """Return the head of the session's page: name, state, buttons, tabs."""
    parts = parts_of(request)
    values = await _head(parts, parts.sessions.get(session_id), tab)
    return page_frame.html("parts/session_head.html", **values)


@get("/parts/sessions/{session_id:str}/facts", include_in_schema=False)
async def facts_part(request: AnyRequest, session_id: Id) -> Response[str]:
    """Return the panel beside the timeline."""
    parts = parts_of(request)
    values = await _head(parts, parts.sessions.get(session_id), "timeline")
    return page_frame.html("parts/session_facts.html", **values)


@get("/parts/sessions/{session_id:str}/timeline", include_in_schema=False)
async def timeline_part(
    request: AnyRequest,
    session_id: Id,
    before: FromQuery[str] = "",
    output: FromQuery[bool] = False,
    rules: FromQuery[bool] = False,
) -> Response[str]:
    """Return a page of the timeline."""
    parts = parts_of(request)
    wanted = TimelineWanted(before=before, output=output, rules=rules)
    found = await _timeline(parts, parts.sessions.get(session_id), wanted)
    return await _html("parts/session_timeline.html", session_id=session_id, **found)


@get("/parts/sessions/{session_id:str}/changes", include_in_schema=False)
async def changes_part(request: AnyRequest, session_id: Id, skip: _Skip = 0) -> Response[str]:
    """Return a page of the changed files."""
    parts = parts_of(request)
    found = await session_changes.changed_files(parts, parts.sessions.get(session_id), skip)
    values = {"session_id": session_id, "changes": found, "skip": skip}
    return page_frame.html("parts/session_changes.html", **values)


@get("/parts/sessions/{session_id:str}/changes/{request_id:str}", include_in_schema=False)
async def change_part(request: AnyRequest, session_id: Id, request_id: Id) -> Response[str]:
    """Return one changed file's difference from what was there before the session."""
    parts = parts_of(request)
    try:
        card = await session_changes.whole_change(parts, parts.queue.get(request_id))
    except GatehouseError as error:
        return page_frame.html("parts/error.html", error=str(error))
    (view,) = await coloured_changes(parts, f"of-{request_id}", [card], most_rows=MOST_ROWS)
    return page_frame.html("parts/session_change.html", change=view)


@get("/parts/sessions/{session_id:str}/screen", include_in_schema=False)
async def screen_part(
    request: AnyRequest, session_id: Id, gone: FromQuery[bool] = False
) -> Response[str]:
    """Return the session's screen as it is now; with `gone`, what left it at its top."""
    view = await _screens(request).view(session_id, with_gone=gone)
    name = "parts/screen_gone.html" if gone else "parts/screen.html"
    return page_frame.html(name, session_id=session_id, screen=view)


@get("/api/sessions/{session_id:str}/events")
async def session_events(
    request: AnyRequest,
    session_id: Id,
    before: FromQuery[str] = "",
    output: FromQuery[bool] = True,
    rules: FromQuery[bool] = True,
) -> SessionTimeline:
    """Return what the session asked, did and printed, newest first: a page of it, the next one
    `before` the `next` of this one."""
    parts = parts_of(request)
    wanted = TimelineWanted(before=before, output=output, rules=rules)
    return await session_timeline_view.session_timeline(
        parts, parts.sessions.get(session_id), wanted
    )


@get("/api/sessions/{session_id:str}/screen")
async def session_screen(request: AnyRequest, session_id: Id) -> ScreenView:
    """Return the agent's output as its terminal shows it, with what left the screen at its top."""
    return await _screens(request).view(session_id, with_gone=True)


# -- the same for programs; buttons without a form use these, too ---------------------------------


@get("/api/sessions/{session_id:str}")
async def get_session(request: AnyRequest, session_id: Id) -> SessionView:
    """Return one session."""
    return await session_view(parts_of(request), session_id)


@post("/api/sessions/{session_id:str}/stop", status_code=200, response_headers=_NEWS)
async def stop_session(
    request: AnyRequest, session_id: Id, data: JSONBody[WhyBody | None] = None
) -> SessionView:
    """Begin the orderly end of a session."""
    parts = parts_of(request)
    reason = (data.reason if data else "") or "stopped by the operator"
    await parts.sessions.stop(session_id, reason=reason, by=caller(request).name)
    return await session_view(parts, session_id)


@post("/api/sessions/{session_id:str}/pause", status_code=200, response_headers=_NEWS)
async def pause_session(request: AnyRequest, session_id: Id) -> SessionView:
    """Stop all processes of a session; its uptime doesn't count meanwhile."""
    parts = parts_of(request)
    parts.sessions.pause(session_id, by=caller(request).name)
    return await session_view(parts, session_id)


@post("/api/sessions/{session_id:str}/unpause", status_code=200, response_headers=_NEWS)
async def unpause_session(request: AnyRequest, session_id: Id) -> SessionView:
    """Let a paused session continue."""
    parts = parts_of(request)
    parts.sessions.unpause(session_id, by=caller(request).name)
    return await session_view(parts, session_id)


@post("/api/sessions/{session_id:str}/name", status_code=200)
async def rename_session(
    request: AnyRequest, session_id: Id, data: JSONBody[NameBody]
) -> SessionView:
    """Give a session another name; an empty one gives the usual one back."""
    parts = parts_of(request)
    parts.sessions.rename(session_id, data.name, by=caller(request).name)
    return await session_view(parts, session_id)


@post("/api/sessions/{session_id:str}/take", status_code=200)
async def take_branch(
    request: AnyRequest, session_id: Id, data: JSONBody[TakeBody | None] = None
) -> TakenBranch:
    """Copy the agent's branch into the host's repository; nothing else there changes."""
    parts = parts_of(request)
    branch = data.branch if data else ""
    return await decisions.take_branch(parts, session_id, branch, by=caller(request).name)


@get("/api/sessions/{session_id:str}/output", sync_to_thread=False)
def session_output(
    request: AnyRequest, session_id: Id, offset: Annotated[int, QueryParameter(ge=0)] = 0
) -> Output:
    """Return the agent's output from byte `offset` on, up to its last complete line."""
    parts = parts_of(request)
    has_ended = state(parts.sessions.get(session_id)) == "ended"
    data, after = parts.sessions.output(session_id, offset)
    start = after - len(data)
    whole = complete_part(data, is_final=has_ended)
    return Output(
        text=as_text(whole, parts.redactor),
        next_offset=start + len(whole),
        is_final=has_ended and not data,
    )


# -- what its buttons do --------------------------------------------------------------------------


@post("/sessions/{session_id:str}/resume", include_in_schema=False, status_code=200)
async def resume_session(request: AnyRequest, session_id: Id) -> Response[str]:
    """Start a session that continues on the copy of an ended one, and go to its page."""
    return await started(request, lambda: StartSession(resume=session_id))


@post("/sessions/{session_id:str}/name", include_in_schema=False, status_code=200)
async def rename_from_page(request: AnyRequest, session_id: Id, data: Form) -> Response[str]:
    """Give a session another name. Return its heading; with an error, why it has the old one."""
    parts, error = parts_of(request), ""
    try:
        parts.sessions.rename(session_id, data.get("name", ""), by=caller(request).name)
    except UserError as refused:
        error = str(refused)
    session = await session_view(parts, session_id)
    return page_frame.html("parts/session_name.html", session=session, error=error)


@post("/sessions/{session_id:str}/take", include_in_schema=False, status_code=200)
async def take_from_page(request: AnyRequest, session_id: Id) -> Response[str]:
    """Copy the agent's branch into the host's repository."""
    parts = parts_of(request)
    try:
        taken = await decisions.take_branch(parts, session_id, "", by=caller(request).name)
    except GatehouseError as error:
        return page_frame.html("parts/taken.html", error=shown(str(error), parts.redactor))
    return page_frame.html("parts/taken.html", taken=shown_view(taken, parts.redactor))


# -- inside ---------------------------------------------------------------------------------------


def _screens(request: AnyRequest) -> Screens:
    found: Screens = request.app.state["screens"]
    return found


async def _timeline(parts: Parts, session: Session, wanted: TimelineWanted) -> dict[str, Any]:
    found = await session_timeline_view.session_timeline(parts, session, wanted)
    review = None if wanted.before else _report(parts, session)
    is_report = session.job is not None
    return {"timeline": found, "wanted": wanted, "review": review, "is_report": is_report}


async def _head(parts: Parts, session: Session, tab: Tab) -> dict[str, Any]:
    """Return the values of head and facts."""
    held = parts.network_log.held(session.id).exchanges
    hosts = await asyncio.to_thread(by_host, held)
    return {
        "session": await session_view(parts, session.id),
        "tab": tab,
        "may_resume": may_resume(parts, session),
        "reached": len(hosts),
        "sent": sum(one.up_bytes for one in hosts),
        "received": sum(one.down_bytes for one in hosts),
    }


def _report(parts: Parts, session: Session) -> dict[str, Any] | None:
    """Return what its agent found, the gravest first; None where it reported nothing."""
    if not session.review:
        return None
    report: dict[str, Any] = _REPORT | parts.redactor.data(session.review)
    findings = [_finding(one) for one in report.get("findings", ()) if isinstance(one, dict)]
    dropped = report.get("dropped") if "is_answer" in report else None
    return report | {
        "verdict": _VERDICTS.get(report["verdict"], report["verdict"]),
        "usage": report.get("usage") or {},
        "is_against": report["verdict"] == "request_changes",
        "findings": sorted(findings, key=lambda one: one["rank"]),
        "dropped": dropped_words(dropped) if isinstance(dropped, dict) else "",
    }


def _finding(given: dict[str, Any]) -> dict[str, Any]:
    severity = str(given.get("severity") or "info")
    rank = _SEVERITIES.index(severity) if severity in _SEVERITIES else len(_SEVERITIES)
    look = severity if rank < _SEVERITIES.index("low") else "low"
    return _FINDING | given | {"severity": severity, "rank": rank, "look": look}
