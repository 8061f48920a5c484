"""The Sessions page: what runs, the form that starts more, jobs, what ended; and the first run.

A session is shown by its one view (`common.views`), with what its requests come to beside it.
"""

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from litestar import Response, get, post
from litestar.enums import MediaType
from litestar.params import QueryParameter

from supervisor.core.actions import Exec, title
from supervisor.core.agents.agents import AGENTS, NAMES, AgentName, agent_named
from supervisor.core.approvals import status
from supervisor.core.files.changes import name_fields
from supervisor.core.jobs import Job
from supervisor.core.quarantine.quarantine_answers import dropped_words
from supervisor.core.session_names import has_own_folder, shown_workspace
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
from supervisor.core.text.utf8 import is_text
from supervisor.errors import GatehouseError, UserError
from supervisor.parts import Parts
from supervisor.server.common.spend_views import spend_view
from supervisor.server.common.views import SessionView, clock_text, identity_of, session_view, shown
from supervisor.server.operator.operator_api import AnyRequest, parts_of
from supervisor.server.operator.pages import page_frame
from supervisor.server.operator.pages.network_page import size_text
from supervisor.server.operator.pages.page_frame import Form
from supervisor.sessions import agent_programs, demo_project
from supervisor.sessions.scheduled_jobs import read_jobs
from supervisor.sessions.session_plans import RECORDED
from supervisor.sessions.start_session import StartSession
from supervisor.settings import WORKSPACE_IN_COMPOSE, copy_mode_of, network_mode_of
from supervisor.store.requests import RequestTally
from supervisor.workspace.trees.trees import COPY

ENDED_ROWS = 20
MOST_RECENT = 4
# Folders that a completion offers, and entries that it looks at for them.
MOST_FOLDERS = 20
MOST_ENTRIES = 5000
_Typed = Annotated[str, QueryParameter(max_length=4096)]
_Skip = Annotated[int, QueryParameter(ge=0, le=1_000_000)]
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
_CONCLUSIONS = {
    "approve": ("approves the change", "good"),
    "comment": ("comments", ""),
    "request_changes": ("requests changes", "bad"),
}
Preset = Literal["review", "claude", "codex", "opencode", "maintenance", "agent"]


class StartPreset(NamedTuple):
    """A way to start a session. `icon` and `hue` are its avatar's."""

    kind: Preset
    title: str
    about: str
    icon: str
    hue: int

    @property
    def noun(self) -> str:
        """Return what the form's button says that it starts."""
        if self.kind == "agent":
            return "command"
        return self.kind if self.kind in ("review", "maintenance") else self.title


TASK = "Carries out a task"
PRESETS = (
    StartPreset("review", "Review my changes", "Reads your diff, changes nothing", "eye", 3),
    StartPreset("claude", AGENTS["claude"].title, TASK, "spark", 1),
    StartPreset("codex", AGENTS["codex"].title, TASK, "hex", 2),
    StartPreset("opencode", AGENTS["opencode"].title, TASK, "braces", 4),
    StartPreset("maintenance", "Maintain", "One task within a scope", "wrench", 5),
    StartPreset("agent", "Command", "Any program, in the same sandbox", "exec", 6),
)


class SessionCard(NamedTuple):
    """A session on this page. `state` is a component's name, `words` says it; `waits` is the
    address of what waits first."""

    view: SessionView
    tally: RequestTally
    state: str
    words: str
    last: str = ""
    time_percent: int = 0
    left: str = ""
    ran: str = ""
    may_resume: bool = False
    waits: str = ""


@get("/sessions", include_in_schema=False, sync_to_thread=False)
def sessions(
    request: AnyRequest,
    kind: Annotated[str, QueryParameter(max_length=20)] = "",
    skip: _Skip = 0,
) -> Response[str]:
    """Return what runs, the form, the jobs and what ended. `kind`: the preset that is chosen."""
    parts = parts_of(request)
    values = {
        **_running(parts),
        **_ended(parts, skip),
        **_form(parts, kind),
        "jobs": _jobs(parts),
    }
    return page_frame.page(request, "sessions.html", "sessions", **values)


@get("/parts/running", include_in_schema=False, sync_to_thread=False)
def running_part(request: AnyRequest) -> Response[str]:
    return page_frame.html("parts/running.html", **_running(parts_of(request)))


@get("/parts/ended", include_in_schema=False, sync_to_thread=False)
def ended_part(request: AnyRequest, skip: _Skip = 0) -> Response[str]:
    return page_frame.html("parts/ended.html", **_ended(parts_of(request), skip))


@get("/parts/folders", include_in_schema=False, sync_to_thread=True)
def folders_part(request: AnyRequest, workspace: _Typed = "") -> Response[str]:
    """Return the folders that begin with what was typed, as options."""
    return page_frame.html("parts/folders.html", folders=folders_like(workspace))


@post("/sessions", include_in_schema=False, status_code=200)
async def start_session(request: AnyRequest, data: Form) -> Response[str]:
    """Start a session and go to its page; an error is shown under the form."""
    return await started(request, lambda: _wanted(data))


@post("/demo", include_in_schema=False, status_code=200)
async def start_demo(request: AnyRequest) -> Response[str]:
    """Have a recorded agent ask for one action of each kind, in a throw-away project."""
    parts = parts_of(request)
    used = [one.workspace for one in parts.sessions.live()]
    try:
        made = await demo_project.make_project(parts.settings.demos_dir.resolve(), used)
    except GatehouseError as error:
        return _refused(error)
    demo = StartSession(workspace=made, kind="review", review_model=RECORDED, name="shop · Demo")
    return await started(request, lambda: demo)


def first_run(parts: Parts) -> dict[str, Any]:
    """Return the values of `parts/first_run.html`, the ways to begin; empty where something
    runs."""
    if parts.sessions.live():
        return {}
    return {"folder": _short_path(_this_folder(parts, _recent_folders(parts)))}


async def started(request: AnyRequest, wanted: Callable[[], StartSession]) -> Response[str]:
    """Start a session and go to its page. An error is shown where it was asked for."""
    try:
        begun = await parts_of(request).sessions.start(wanted())
    except GatehouseError as error:
        return _refused(error)
    return Response("", headers={"HX-Redirect": f"/sessions/{begun.id}"}, media_type=MediaType.HTML)


def _refused(error: GatehouseError) -> Response[str]:
    return page_frame.html("parts/refused.html", error=error)


# -- what runs and what ended ---------------------------------------------------------------------


def _running(parts: Parts) -> dict[str, Any]:
    found = parts.sessions.live()
    tallies = _tallies(parts, found)
    return {
        "running": [_running_card(parts, one, tallies[one.id]) for one in found],
        "copies": size_text(parts.kept_copies.total_bytes),
        "most_copies": size_text(parts.kept_copies.limit_bytes),
    }


def _ended(parts: Parts, skip: int) -> dict[str, Any]:
    found, count = parts.sessions.ended(ENDED_ROWS, skip)
    tallies = _tallies(parts, found)
    return {
        "ended": [_ended_card(parts, one, tallies[one.id]) for one in found],
        "count_ended": count,
        "skip": skip,
        "newer": max(0, skip - ENDED_ROWS) if skip else None,
        "older": skip + ENDED_ROWS if skip + ENDED_ROWS < count else None,
    }


def _tallies(parts: Parts, found: Sequence[Session]) -> dict[str, RequestTally]:
    ids = [one.id for one in found]
    counted = parts.queue.tallies(ids, now=parts.clock.now())
    return {one: counted.get(one, RequestTally()) for one in ids}


def _running_card(parts: Parts, session: Session, tally: RequestTally) -> SessionCard:
    view = session_view(parts, session)
    state, words = state_words(session, view, tally)
    lasts_s = max(1.0, session.deadline_at - session.created_at)
    newest = parts.queue.of_session(session.id, 1)
    last = ""
    if newest:
        action = newest[0].action
        last = f"$ {action.command}" if isinstance(action, Exec) else title(action)
        if status(newest[0]) == "denied":
            last = f"denied: {last}"
    return SessionCard(
        view=view,
        tally=tally,
        state=state,
        words=words,
        last=shown(last, parts.redactor),
        time_percent=round(100 * view.remaining_s / lasts_s),
        left=format_duration(view.remaining_s),
        waits=_first_waiting(parts, session),
    )


def _first_waiting(parts: Parts, session: Session) -> str:
    found = parts.queue.pending_but([], session.id, limit=1, now=parts.clock.now())
    return f"/requests/{found[0].id}" if found else ""


def may_resume(parts: Parts, session: Session) -> bool:
    """Return whether a session can be continued: it has ended, and its copy is still there."""
    copy = parts.settings.sessions_dir / session.id / COPY
    is_done = session.ended_at is not None and not has_own_folder(session)
    return is_done and session.kind != "quarantine" and copy.is_dir()


def state_words(session: Session, view: SessionView, tally: RequestTally) -> tuple[str, str]:
    """Return a session's state: the one that icon and colour are chosen by, and its words."""
    return _live_state(view, tally) if session.ended_at is None else _end_state(session, view)


def _live_state(view: SessionView, tally: RequestTally) -> tuple[str, str]:
    if view.progress:
        return "doing", (
            f"copying: {view.progress['done']:,} of {view.progress['total']:,} files"
            f"{copy_left(view.progress)}"
        )
    if tally.held:
        return "held", "held: waits for you"
    if view.state in ("paused", "stopping"):
        return "paused" if view.state == "paused" else "doing", view.state
    if tally.waiting or view.state == "waiting":
        return "waiting", "waits for you"
    return "doing", "working" if view.state == "running" else "starting"


def _ended_card(parts: Parts, session: Session, tally: RequestTally) -> SessionCard:
    view = session_view(parts, session)
    state, words = state_words(session, view, tally)
    return SessionCard(
        view=view,
        tally=tally,
        state=state,
        words=words,
        ran=format_duration((session.ended_at or 0.0) - session.created_at),
        may_resume=may_resume(parts, session),
        waits=_first_waiting(parts, session) if tally.waiting else "",
    )


def _end_state(session: Session, view: SessionView) -> tuple[str, str]:
    """Return how a session ended, by its facts."""
    if session.agent_exited_at is not None and session.exit_code == 0:
        return "done", view.job_words or "finished"
    if session.agent_exited_at is not None:
        return "failed", f"exit status {session.exit_code}"
    if (session.ended_at or 0.0) >= session.deadline_at:
        return "expired", "time limit reached"
    return "failed" if session.started_at is None else "expired", view.end_reason


# -- the form -------------------------------------------------------------------------------------


def _form(parts: Parts, kind: str) -> dict[str, Any]:
    settings = parts.settings
    recent = _recent_folders(parts)
    installed = agent_programs.available(settings)
    presets = [
        one._replace(about="Not installed on this machine")
        if one.kind in NAMES and one.kind not in installed
        else one
        for one in PRESETS
    ]
    is_fixed = settings.backend == "compose"
    return {
        "presets": presets,
        "chosen": kind if any(one.kind == kind for one in presets) else _usual_kind(parts),
        "agents": installed,
        "recent": [] if is_fixed else [_short_path(one) for one in recent],
        "workspace": _short_path(_this_folder(parts, recent)),
        "is_fixed": is_fixed,
        "include_ignored": settings.include_ignored,
        "keep_bodies": settings.keep_bodies,
        "default_budget": settings.max_cost or "no limit",
        "default_copy": settings.copy_mode,
        "default_network": settings.network_mode,
        "default_uptime": _typed_duration(settings.max_uptime_s),
    }


def _typed_duration(seconds: float) -> str:
    """Return a duration as a person would type it: `4h`, `1h30m`."""
    return format_duration(seconds).removesuffix(" 00m").replace(" ", "")


def _usual_kind(parts: Parts) -> str:
    """Return what was started last."""
    last = next((one for one in parts.sessions.recent(10) if not has_own_folder(one)), None)
    if last is None or last.kind == "quarantine":
        return "review"
    return last.agent or last.kind if last.kind == "agent" else last.kind


def _recent_folders(parts: Parts) -> list[str]:
    """Return the folders of the newest sessions."""
    found = dict.fromkeys(
        one.workspace
        for one in parts.sessions.recent()
        if not has_own_folder(one) and not demo_project.is_demo(one.workspace)
    )
    return list(found)[:MOST_RECENT]


def _this_folder(parts: Parts, recent: Sequence[str]) -> str:
    """Return the folder that a person probably means: that of the last session, or the repository
    that Gatehouse was started in; empty where there is none."""
    if parts.settings.backend == "compose":
        return str(WORKSPACE_IN_COMPOSE)
    if recent:
        return recent[0]
    started_in = Path.cwd()
    return str(started_in) if (started_in / ".git").exists() else ""


def _short_path(path: str) -> str:
    """Return a path as a person writes it: from `~` on, where it is in their home."""
    home = str(Path.home())
    return f"~{path[len(home) :]}" if f"{path}/".startswith(f"{home}/") and home != "/" else path


def folders_like(typed: str) -> list[str]:
    """Return folders that begin with what was typed, as it was typed; hidden ones only where their
    dot was. No link is offered, since it may lead elsewhere."""
    above, slash, begins = typed.rpartition("/")
    if not slash or not (typed.startswith(("/", "~/"))):
        return []
    try:
        with os.scandir(Path(f"{above}/").expanduser()) as entries:
            found = [
                entry.name
                for entry in islice(entries, MOST_ENTRIES)
                if entry.name.startswith(begins)
                and (begins.startswith(".") or not entry.name.startswith("."))
                and is_text(entry.name)
                and entry.is_dir(follow_symlinks=False)
            ]
    except (OSError, ValueError, RuntimeError):  # it isn't there, can't be read, or is no path
        return []
    return [f"{above}/{name}" for name in sorted(found)[:MOST_FOLDERS]]


def _wanted(data: dict[str, str]) -> StartSession:
    """Parse the form."""
    kind = data.get("kind", "review")
    uptime = data.get("max_uptime", "").strip()
    named = agent_named(kind) if kind in NAMES else None
    command: tuple[str, ...] = ()
    if named:
        command = _agent_command(named, data)
    elif kind == "agent":
        command = _words(data.get("command", ""))
        if not command:
            raise UserError(
                "the command is missing", "write the command that runs as the agent, such as claude"
            )
    return StartSession(
        workspace=_folder(data.get("workspace", "")),
        kind=_kind(kind),
        command=command,
        agent=named or _worker(data) if kind != "review" else None,
        job=_job(data) if kind == "maintenance" else None,
        base=data.get("base", "").strip() or None if kind == "review" else None,
        max_uptime_s=parse_duration(uptime, "the time") if uptime else None,
        budget=data.get("budget", "").strip() or None,
        # Without the whole form, as the settings say.
        include_ignored="include_ignored" in data if "copy" in data else None,
        copy=copy_mode_of(data["copy"], "the private copy") if data.get("copy") else None,
        network=network_mode_of(data["network"], "the network") if data.get("network") else None,
        keep_bodies="keep_bodies" in data if "copy" in data else None,
    )


def _folder(typed: str) -> Path:
    typed = typed.strip()
    if not typed.startswith(("/", "~/")) and typed != "~":
        raise UserError(
            f"`{typed}` is not a whole path",
            "write the folder from / on, such as /home/me/project, or from ~/ on",
        )
    try:
        return Path(typed).expanduser()
    except RuntimeError as error:
        raise UserError(f"`{typed}`: {error}", "write the folder from / on") from error


def _agent_command(name: AgentName, data: dict[str, str]) -> tuple[str, ...]:
    """Return an agent's name with the person's arguments; with a task, what has it carried out."""
    words, task = _words(data.get("arguments", "")), data.get("prompt", "").strip()
    if task:
        return (name, *AGENTS[name].headless, *words, task)
    if not words:
        raise UserError(
            "the task is missing",
            f"say what is to be done, or run `gatehouse {name}` in a terminal, where you can type",
        )
    return (name, *words)


def _words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise UserError(
            f"the command can't be read: {str(error).lower()}", "close every quote"
        ) from error


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
        raise UserError("the job has no task", "say what is to be done")
    return Job(
        prompt=prompt,
        scope=tuple(data.get("scope", "").split()),
        tests=data.get("tests", "").strip(),
        branch="branch" in data,
    )


# -- jobs -----------------------------------------------------------------------------------------


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
                "workspace": shown(_short_path(str(job.workspace)), parts.redactor),
                "next": due.strftime("%a %d %b %H:%M"),
                "last_id": last.id if last else "",
                "last_ago": format_duration(now - last.created_at) if last else "",
            }
        )
    wrong = shown("; ".join(faults.values()), parts.redactor)
    return {"error": wrong, "rows": found} if found or wrong else {}


# -- one session, for its page ---------------------------------------------------------------------


def session_data(parts: Parts, session: Session) -> dict[str, Any]:
    """Return a session for its page."""
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


def review_of(parts: Parts, session: Session) -> dict[str, Any] | None:
    """Return what its agent found; None where it reported nothing."""
    if not session.review:
        return None
    review: dict[str, Any] = parts.redactor.data(session.review)
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
        "look": severity if severity in _SEVERITIES[:3] else "low",
        "rank": _SEVERITIES.index(severity) if severity in _SEVERITIES else len(_SEVERITIES),
        "title": _text(item, "title"),
        "place": f"{_text(item, 'path')}:{line}" if isinstance(line, int) else _text(item, "path"),
        "body": _text(item, "body"),
        "suggestion": _text(item, "suggestion"),
    }


def _text(data: dict[str, Any], name: str) -> str:
    value = data.get(name)
    return "" if value is None else str(value)
