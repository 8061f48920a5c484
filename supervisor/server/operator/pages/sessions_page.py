"""The pages of sessions: the list with its form, one session, its buttons, its review.

An agent wrote the review about code that may be hostile: every field may be missing or contain
anything.
"""

import contextlib
import shlex
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from litestar import Response, get, post
from litestar.enums import MediaType
from litestar.params import FromPath
from litestar.types import ControllerRouterHandler

from supervisor.core.agents.agents import NAMES, AgentName, agent_named
from supervisor.core.files.changes import name_fields
from supervisor.core.jobs import Job
from supervisor.core.quarantine.quarantine_answers import dropped_words
from supervisor.core.session_names import shown_workspace
from supervisor.core.sessions import (
    Kind,
    Session,
    copy_left,
    job_words,
    own_limits,
    remaining_s,
    state,
)
from supervisor.core.text.duration import format_duration, parse_duration
from supervisor.errors import GatehouseError, UserError
from supervisor.parts import Parts
from supervisor.server.common.spend_views import spend_view
from supervisor.server.common.views import clock_text, identity_of, shown
from supervisor.server.operator import decisions
from supervisor.server.operator.operator_api import AnyRequest, caller, parts_of
from supervisor.server.operator.pages import page_frame, request_cards
from supervisor.server.operator.pages.network_page import size_text
from supervisor.server.operator.pages.page_frame import Form
from supervisor.sessions import agent_programs
from supervisor.sessions.scheduled_jobs import read_jobs
from supervisor.sessions.start_session import StartSession
from supervisor.settings import WORKSPACE_IN_COMPOSE, copy_mode_of, network_mode_of

# The end of an agent's output that a page starts with.
OUTPUT_TAIL_BYTES = 256 * 1024
MOST_NAMED = 3
_STATE_CLASS = {
    "running": "good",
    "paused": "warn",
    "waiting": "warn",
    "starting": "warn",
    "stopping": "warn",
    "ended": "",
}
_STATE_TEXT = {
    "starting": "the private copy is being made and the sandbox started",
    "running": "the agent is at work",
    "paused": "its processes stand still, and so does its uptime",
    "waiting": "the agent is done; its changes wait for your answer",
    "stopping": "the agent is being stopped and the workspace compared for the last time",
    "ended": "",
}
_SEVERITIES = ("critical", "high", "medium", "low", "info")
_SEVERITY_CLASS = {"critical": "bad", "high": "bad", "medium": "warn"}
_CONCLUSIONS = {
    "approve": ("approves the change", "good"),
    "comment": ("comments", ""),
    "request_changes": ("requests changes", "bad"),
}


@get("/sessions", include_in_schema=False, sync_to_thread=False)
def sessions(request: AnyRequest) -> Response[str]:
    """Return every session, and a form to start one."""
    parts = parts_of(request)
    recent = parts.sessions.recent()
    values = {
        "sessions": [session_data(parts, one) for one in recent],
        "copies": size_text(parts.kept_copies.total_bytes),
        "most_copies": size_text(parts.kept_copies.limit_bytes),
        "agents": agent_programs.available(parts.settings),
        "jobs": _jobs(parts),
        "default_workspace": next(filter(None, map(shown_workspace, recent)), "")
        or _only_workspace(parts),
        "include_ignored": parts.settings.include_ignored,
        "keep_bodies": parts.settings.keep_bodies,
        "default_budget": parts.settings.max_cost or "no limit",
        "default_copy": parts.settings.copy_mode,
        "default_network": parts.settings.network_mode,
        "default_uptime": format_duration(parts.settings.max_uptime_s).replace(" ", ""),
    }
    return page_frame.page(request, "sessions.html", "sessions", **values)


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


@get("/parts/strip", include_in_schema=False, sync_to_thread=False)
def strip_part(request: AnyRequest) -> Response[str]:
    return page_frame.html("parts/strip.html", live_sessions=live_sessions(parts_of(request)))


@get("/parts/sessions", include_in_schema=False, sync_to_thread=False)
def sessions_part(request: AnyRequest) -> Response[str]:
    parts = parts_of(request)
    return page_frame.html(
        "parts/sessions.html",
        sessions=[session_data(parts, one) for one in parts.sessions.recent()],
    )


@get("/parts/sessions/{session_id:str}", include_in_schema=False, sync_to_thread=False)
def session_part(request: AnyRequest, session_id: FromPath[str]) -> Response[str]:
    parts = parts_of(request)
    return page_frame.html(
        "parts/session.html", session=session_data(parts, parts.sessions.get(session_id))
    )


@post("/sessions", include_in_schema=False, status_code=200)
async def start_session(request: AnyRequest, data: Form) -> Response[str]:
    """Start a session and go to its page; an error is shown under the form."""
    return await _started(request, lambda: _wanted(data))


@post("/sessions/{session_id:str}/resume", include_in_schema=False, status_code=200)
async def resume_session(request: AnyRequest, session_id: FromPath[str]) -> Response[str]:
    """Start a session that continues on the copy of an ended one, and go to its page."""
    return await _started(request, lambda: StartSession(resume=session_id))


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


async def _started(request: AnyRequest, wanted: Callable[[], StartSession]) -> Response[str]:
    try:
        started = await parts_of(request).sessions.start(wanted())
    except GatehouseError as error:
        return page_frame.html("parts/error.html", error=str(error))
    return Response(
        "", headers={"HX-Redirect": f"/sessions/{started.id}"}, media_type=MediaType.HTML
    )


def _wanted(data: dict[str, str]) -> StartSession:
    """Parse the form of the Sessions page."""
    kind = data.get("kind", "review")
    uptime = data.get("max_uptime", "").strip()
    workspace = data.get("workspace", "").strip()
    if not Path(workspace).is_absolute():
        raise UserError(
            f"`{workspace}` is not a whole path",
            "write the folder from / on, such as /home/me/project",
        )
    named = agent_named(kind) if kind in NAMES else None
    try:
        words = tuple(shlex.split(data.get("arguments" if named else "command", "")))
    except ValueError as error:
        raise UserError(
            f"the command can't be read: {str(error).lower()}", "close every quote"
        ) from error
    if kind == "agent" and not words:
        raise UserError(
            "the command is missing", "write the command that runs as the agent, such as claude"
        )
    return StartSession(
        workspace=Path(workspace),
        kind=_kind(kind),
        command=(named, *words) if named else words if kind == "agent" else (),
        agent=named or _worker(data) if kind != "review" else None,
        job=_job(data) if kind == "maintenance" else None,
        base=data.get("base", "").strip() or None if kind == "review" else None,
        max_uptime_s=parse_duration(uptime, "the time") if uptime else None,
        budget=data.get("budget", "").strip() or None,
        include_ignored="include_ignored" in data,
        copy=copy_mode_of(data["copy"], "the private copy") if data.get("copy") else None,
        network=network_mode_of(data["network"], "the network") if data.get("network") else None,
        keep_bodies="keep_bodies" in data,
    )


def _kind(text: str) -> Kind:
    kinds: dict[str, Kind] = {"review": "review", "maintenance": "maintenance"}
    return kinds.get(text, "agent")


def _worker(data: dict[str, str]) -> AgentName | None:
    """Return which agent does a job; None for the built-in one."""
    name = data.get("agent", "") if data.get("kind") == "maintenance" else ""
    return agent_named(name) if name else None


def _job(data: dict[str, str]) -> Job:
    prompt = data.get("prompt", "").strip()
    if not prompt:
        raise UserError("the job has no prompt", "say what is to be done")
    return Job(
        prompt=prompt,
        scope=tuple(data.get("scope", "").split()),
        tests=data.get("tests", "").strip(),
        branch="branch" in data,
    )


def _only_workspace(parts: Parts) -> str:
    return str(WORKSPACE_IN_COMPOSE) if parts.settings.backend == "compose" else ""


def _jobs(parts: Parts) -> dict[str, Any]:
    """Return the jobs, and why others, or their file, can't be used; empty where there are none."""
    now = parts.clock.now()
    try:
        jobs, faults = read_jobs(parts.settings.jobs_file)
    except GatehouseError as error:
        return {"error": shown(str(error), parts.redactor), "rows": []}
    found = []
    for name, job in jobs.items():
        last = parts.sessions.last_of_job(name)
        due = datetime.fromtimestamp(job.next_after(now)).astimezone()
        found.append(
            {
                "name": shown(name, parts.redactor),
                "cron": job.cron,
                "workspace": shown(str(job.workspace), parts.redactor),
                "next": due.strftime("%a %d %b %H:%M"),
                "last_id": last.id if last else "",
                "last_ago": format_duration(now - last.created_at) if last else "",
            }
        )
    wrong = shown("; ".join(faults.values()), parts.redactor)
    return {"error": wrong, "rows": found} if found or wrong else {}


def live_sessions(parts: Parts) -> list[dict[str, Any]]:
    """Return the sessions that haven't ended."""
    return [session_data(parts, one) for one in parts.sessions.recent(20) if one.ended_at is None]


def session_data(parts: Parts, session: Session) -> dict[str, Any]:
    """Return a session for strip, list and page."""
    now = parts.clock.now()
    current = state(session)
    redact = parts.redactor.text
    spend = spend_view(parts, session)
    return {
        "id": session.id,
        "kind": session.kind,
        "workspace": redact(shown_workspace(session)),
        "who": identity_of(parts, session),
        "command": redact(shlex.join(session.command)),
        "agent": session.agent,
        "job": parts.redactor.data(msgspec.to_builtins(session.job)),
        "job_words": redact(job_words(session)),
        "job_closed": session.job_result.closed if session.job_result else "",
        "base": redact(session.base or ""),
        "model": redact(session.model or ""),
        "network": session.network,
        "commands": redact(_commands(parts, session)),
        "keep_bodies": session.keep_bodies,
        "policy_file": redact(session.policy_file),
        "limits": own_limits(session.limits),
        "state": current,
        "state_class": _STATE_CLASS[current],
        "state_text": _STATE_TEXT[current],
        "notices": [
            redact(notice)
            for notice in (*session.notices, *spend.notices, *_of_the_host(parts, session))
        ],
        "spend": spend,
        "created_at": session.created_at,
        "created_text": clock_text(session.created_at),
        "deadline_at": session.deadline_at,
        "uptime": format_duration((session.ended_at or now) - session.created_at),
        "remaining": format_duration(remaining_s(session, now)),
        "end_reason": redact(session.end_reason),
        "exit_code": session.exit_code,
        "progress": _progress(parts, session),
        "review": _review(parts.redactor.data(session.review)) if session.review else None,
    }


def _commands(parts: Parts, session: Session) -> str:
    """Return whether commands run without a question, and why not; empty where the policy asks
    about them anyway."""
    if not parts.gate.rulings.runs_contained(session.id):
        return ""
    problems = parts.containment.result(session.id)
    if problems is None:
        return "asked until it is known whether they can change anything outside"
    if problems:
        return f"asked, since they don't run contained: {'; '.join(problems)}"
    return (
        "run contained, without a question: on the private copy, with this session's network"
        " rules; of the host they see your workspace and system folders, read-only"
    )


def _of_the_host(parts: Parts, session: Session) -> list[str]:
    """Return what keeps the person's changes from the agent's copy, or the agent's from the host,
    without a question to anybody."""
    workspace = parts.workspace_of(session.id)
    if workspace is None:
        return []
    changes = workspace.host_changes()
    return [
        *(changes.notices() if changes is not None else []),
        *_never_carried(workspace.refused()),
    ]


def _never_carried(refused: Mapping[str, str]) -> list[str]:
    """Return a line about the agent's changes that nobody is asked about."""
    if not refused:
        return []
    named = ", ".join(
        f"`{name_fields(name)[0]}` ({why})" for name, why in islice(refused.items(), MOST_NAMED)
    )
    more = f" and {len(refused) - MOST_NAMED} more" if len(refused) > MOST_NAMED else ""
    return [f"stays in the agent's copy: {named}{more}"]


def _progress(parts: Parts, session: Session) -> dict[str, Any] | None:
    found = parts.sessions.progress(session.id)
    if not found:
        return None
    size = found.get("bytes", 0)
    return {
        "done": found.get("done", 0),
        "total": found.get("total", 0),
        "left": copy_left(found),
        "size": f"{size / 1e6:,.1f} MB" if size >= 100_000 else f"{size:,} bytes",
    }


def _review(review: dict[str, Any]) -> dict[str, Any]:
    given = review.get("findings")
    items = given if isinstance(given, list) else []
    findings = sorted(
        (_finding(item) for item in items if isinstance(item, dict)),
        key=lambda found: found["rank"],
    )
    word, css = _CONCLUSIONS.get(
        str(review.get("verdict")), (str(review.get("verdict") or "no verdict"), "")
    )
    used = review.get("usage")
    usage = used if isinstance(used, dict) else {}
    return {
        "verdict": word,
        "verdict_class": css,
        "summary": _text(review, "summary"),
        "model": _text(review, "model"),
        "base": _text(review, "base"),
        "head": _text(review, "head"),
        "turns": _text(usage, "turns"),
        "tokens": " + ".join(f"{usage[name]:,}" for name in ("input_tokens",
        "output_tokens") if isinstance(usage.get(name), int)),
        "findings": findings,
        "dropped": _dropped(review) if "is_answer" in review else "",
    }  # fmt: skip


def _dropped(review: dict[str, Any]) -> str:
    """Return which parts of an answer from quarantine were dropped."""
    dropped = review.get("dropped")
    return dropped_words(dropped) if isinstance(dropped, dict) else ""


def _finding(item: dict[str, Any]) -> dict[str, Any]:
    severity = _text(item, "severity")
    line = item.get("line")
    return {
        "severity": severity or "info",
        "severity_class": _SEVERITY_CLASS.get(severity, ""),
        "rank": _SEVERITIES.index(severity) if severity in _SEVERITIES else len(_SEVERITIES),
        "title": _text(item, "title"),
        "place": f"{_text(item, 'path')}:{line}" if isinstance(line, int) else _text(item, "path"),
        "body": _text(item, "body"),
        "suggestion": _text(item, "suggestion"),
    }


def _text(data: dict[str, Any], name: str) -> str:
    value = data.get(name)
    return "" if value is None else str(value)


def handlers() -> list[ControllerRouterHandler]:
    """Return every route of this module."""
    return [
        sessions,
        session,
        strip_part,
        sessions_part,
        session_part,
        start_session,
        resume_session,
        stop_session,
        pause_session,
        rename_session,
        take_branch,
    ]
