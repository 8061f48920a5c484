"""Names, icons and colours of sessions, by which people tell them apart.

Pure. "shop · Claude Code · 12:15" is the project's folder, the agent's title and the local start. A
person may give another name. The path of a clone of our own is never shown.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from supervisor.core.sessions import Session
from supervisor.errors import UserError

MOST_NAME_CHARS = 120
MOST_PART_CHARS = 40
HUES = 6
# Titles of the agents that Gatehouse knows (`core.agents`), by the names of their programs.
AGENT_TITLES: Mapping[str, str] = {
    "claude": "Claude Code",
    "codex": "Codex",
    "opencode": "OpenCode",
}
_AGENT_ICONS: Mapping[str, str] = {"claude": "spark", "codex": "hex", "opencode": "braces"}
_KIND_ICONS = {"review": "eye", "quarantine": "eye", "standing": "eye", "maintenance": "wrench"}


class SessionIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """How a session appears. `icon` is a symbol of web/templates/icons.html, `hue` from 1 to 6."""

    name: str
    icon: str
    hue: int


def identity(session: Session, number: int, *, started: datetime, now: datetime) -> SessionIdentity:
    """Return how a session appears. `number`: it is the n-th that was ever started, so that those
    that run at the same time take hues in turn. The times are local."""
    icon = _KIND_ICONS.get(session.kind) or _AGENT_ICONS.get(_agent(session), "exec")
    name = session.name or _made_name(session, started, now)
    return SessionIdentity(name=name, icon=icon, hue=(number - 1) % HUES + 1)


def has_own_folder(session: Session) -> bool:
    """Return whether its folder is one that Gatehouse made: a checkout for a pull request or for a
    scheduled job of a repository, or the empty one of a repository's session."""
    is_pull = session.kind == "review" and "--pull" in session.command
    is_scheduled = session.job is not None and bool(session.job.branch_name)
    return is_pull or is_scheduled or session.kind == "standing"


def shown_workspace(session: Session) -> str:
    """Return the path of a session's folder; empty if a person knows nothing of it."""
    return "" if has_own_folder(session) else session.workspace


def project_name(workspace: str) -> str:
    """Return the last part of a workspace's path; the path itself where that is empty (`/`)."""
    return _short(workspace.rstrip("/").rpartition("/")[2] or workspace)


def pull_name(repository: str, number: int, round_number: int, prompt: str = "") -> str:
    """Return the name of a session that reads a pull request: `acme/shop#1 · Review, round 2`."""
    what = f"{_short(prompt or 'Review')}, round {round_number}"
    return f"{_short(repository)}#{number} · {what}"


def checked_name(text: str) -> str:
    """Return a name that a person gives; "" for the usual one. `UserError` if it can't be one."""
    name = " ".join(text.split())
    if len(name) > MOST_NAME_CHARS:
        raise UserError(f"a name has at most {MOST_NAME_CHARS} characters", "give a shorter one")
    if not name.isprintable():
        raise UserError("a name has only printable characters", "leave the others out")
    return name


def _made_name(session: Session, started: datetime, now: datetime) -> str:
    if session.kind == "standing":
        return session.command[-1]
    where = "a pull request" if has_own_folder(session) else project_name(session.workspace)
    job = session.job.name if session.job else ""
    return f"{where} · {_title(session)} · {job or _start(started, now)}"


def _title(session: Session) -> str:
    if session.kind == "review":
        return "Review"
    if session.kind == "maintenance":
        return "Maintain"
    title = AGENT_TITLES.get(_agent(session)) or _command_title(session.command)
    return f"{title} in quarantine" if session.kind == "quarantine" else title


def _agent(session: Session) -> str:
    """Return the agent that a session runs, or the name of its program: an agent may be called as
    a command, too."""
    return session.agent or (session.command[0].rpartition("/")[2] if session.command else "")


def _command_title(command: tuple[str, ...]) -> str:
    """Return the program's name, and the next word if that is a word: `make deploy`."""
    program, *more = command or ("Command",)
    title = program.rpartition("/")[2] or program
    if more and more[0].isidentifier():
        title += f" {more[0]}"
    return _short(title)


def _start(started: datetime, now: datetime) -> str:
    days = (now.date() - started.date()).days
    if days == 0:
        return f"{started:%H:%M}"
    if days == 1:
        return f"yesterday {started:%H:%M}"
    year = "" if started.year == now.year else f" {started.year}"
    return f"{started.day} {started:%b}{year}, {started:%H:%M}"


def _short(text: str) -> str:
    return text if len(text) <= MOST_PART_CHARS else f"{text[: MOST_PART_CHARS - 1]}…"
