"""The Sessions page: what runs, the form that starts more, jobs, what ended; and the first run.

A session is shown by its one view (`server/common/session_views.py`).
"""

import asyncio
import os
import shlex
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from litestar import Response, get, post
from litestar.enums import MediaType
from litestar.params import JSONBody, QueryParameter

from supervisor.core.actions import Exec, title
from supervisor.core.agents.agents import AGENTS, NAMES, AgentName, agent_named
from supervisor.core.approvals import status
from supervisor.core.jobs import Job
from supervisor.core.session_names import has_own_folder
from supervisor.core.sessions import Kind, Session
from supervisor.core.text.duration import format_duration, parse_duration
from supervisor.core.text.utf8 import is_text
from supervisor.errors import GatehouseError, UserError
from supervisor.parts import Parts
from supervisor.server.common.session_views import SessionView, session_view, session_views
from supervisor.server.common.views import shown
from supervisor.server.operator.operator_api import AnyRequest, Limit, parts_of
from supervisor.server.operator.pages import page_frame
from supervisor.server.operator.pages.page_frame import Form
from supervisor.sessions import agent_programs, demo_project
from supervisor.sessions.scheduled_jobs import read_jobs
from supervisor.sessions.session_plans import RECORDED
from supervisor.sessions.start_session import StartSession
from supervisor.settings import WORKSPACE_IN_COMPOSE, copy_mode_of, network_mode_of
from supervisor.workspace.trees.trees import COPY

ENDED_ROWS = 20
MOST_RECENT = 4
# A second press of "Start the demo" this soon means the same one.
PRESSED_TWICE_S = 10.0
# Folders that a completion offers, and entries that it looks at for them.
MOST_FOLDERS = 20
MOST_ENTRIES = 5000
_Typed = Annotated[str, QueryParameter(max_length=4096)]
_Skip = Annotated[int, QueryParameter(ge=0, le=1_000_000)]
Preset = Literal["review", "claude", "codex", "opencode", "maintenance", "agent"]
_KINDS: dict[str, Kind] = {"review": "review", "maintenance": "maintenance"}


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


@get("/api/sessions")
async def list_sessions(request: AnyRequest, limit: Limit = 100) -> list[SessionView]:
    """Return the sessions, newest first."""
    parts = parts_of(request)
    return await session_views(parts, parts.sessions.recent(limit))


@post("/api/sessions", status_code=201)
async def start_session(request: AnyRequest, data: JSONBody[StartSession]) -> SessionView:
    """Start a session. It is recorded when this returns; copying and starting continue."""
    parts = parts_of(request)
    return await session_view(parts, (await parts.sessions.start(data)).id)


@get("/sessions", include_in_schema=False)
async def sessions(
    request: AnyRequest,
    kind: Annotated[str, QueryParameter(max_length=20)] = "",
    skip: _Skip = 0,
) -> Response[str]:
    """Return what runs, the form, the jobs and what ended. `kind`: the preset that is chosen."""
    parts = parts_of(request)
    values = {
        **await _running(parts),
        **await _ended(parts, skip),
        **_form(parts, kind),
        "jobs": _jobs(parts),
    }
    return page_frame.page(request, "sessions.html", "sessions", **values)


@get("/parts/running", include_in_schema=False)
async def running_part(request: AnyRequest) -> Response[str]:
    return page_frame.html("parts/running.html", **await _running(parts_of(request)))


@get("/parts/ended", include_in_schema=False)
async def ended_part(request: AnyRequest, skip: _Skip = 0) -> Response[str]:
    return page_frame.html("parts/ended.html", **await _ended(parts_of(request), skip))


@get("/parts/folders", include_in_schema=False, sync_to_thread=True)
def folders_part(request: AnyRequest, workspace: _Typed = "") -> Response[str]:
    """Return the folders that begin with what was typed, as options."""
    return page_frame.html("parts/folders.html", folders=folders_like(workspace))


@post("/sessions", include_in_schema=False, status_code=200)
async def start_from_page(request: AnyRequest, data: Form) -> Response[str]:
    """Start a session and go to its page; an error is shown under the form."""
    return await started(request, lambda: _wanted(data))


@post("/demo", include_in_schema=False, status_code=200)
async def start_demo(request: AnyRequest) -> Response[str]:
    """Have a recorded agent ask for one action of each kind, in a throw-away project."""
    parts = parts_of(request)
    async with request.app.state.setdefault("demo_turn", asyncio.Lock()):
        live = parts.sessions.live()
        since = parts.clock.now() - PRESSED_TWICE_S
        for one in live:
            if demo_project.is_demo(one.workspace) and one.created_at > since:
                return _go_to(one)
        try:
            used = [one.workspace for one in live]
            made = await demo_project.make_project(parts.settings.demos_dir.resolve(), used)
        except GatehouseError as error:
            return _refused(error)
        demo = StartSession(
            workspace=made, kind="review", review_model=RECORDED, name="shop · Demo"
        )
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
    return _go_to(begun)


def _go_to(session: Session) -> Response[str]:
    headers = {"HX-Redirect": f"/sessions/{session.id}"}
    return Response("", headers=headers, media_type=MediaType.HTML)


def _refused(error: GatehouseError) -> Response[str]:
    return page_frame.html("parts/refused.html", error=error)


# -- what runs and what ended ---------------------------------------------------------------------


async def _running(parts: Parts) -> dict[str, Any]:
    found = parts.sessions.live()
    return {
        "running": await session_views(parts, found),
        "last": {one.id: _last_asked(parts, one) for one in found},
        "copies": parts.kept_copies,
    }


async def _ended(parts: Parts, skip: int) -> dict[str, Any]:
    found, count = parts.sessions.ended(ENDED_ROWS, skip)
    views = await session_views(parts, found)
    return {
        "ended": views,
        "may_resume": {one.id for one in found if may_resume(parts, one)},
        "count_ended": count,
        "skip": skip,
        "newer": max(0, skip - ENDED_ROWS) if skip else None,
        "older": skip + ENDED_ROWS if skip + ENDED_ROWS < count else None,
    }


def _last_asked(parts: Parts, session: Session) -> str:
    """Return the newest request, in a line; empty where there is none."""
    for newest in parts.queue.of_session(session.id, 1):
        action = newest.action
        last = f"$ {action.command}" if isinstance(action, Exec) else title(action)
        denied = "denied: " if status(newest) == "denied" else ""
        return shown(f"{denied}{last}", parts.redactor)
    return ""


def may_resume(parts: Parts, session: Session) -> bool:
    """Return whether a session can be continued: it has ended, and its copy is still there."""
    copy = parts.settings.sessions_dir / session.id / COPY
    is_done = session.ended_at is not None and not has_own_folder(session)
    return is_done and session.kind != "quarantine" and copy.is_dir()


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
    # A job without a named agent is done by the built-in one.
    worker = data.get("agent", "") if kind == "maintenance" else ""
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
        kind=_KINDS.get(kind, "agent"),
        command=command,
        agent=named or (agent_named(worker) if worker else None),
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
