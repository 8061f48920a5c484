"""One session as the operator sees it: the value that pages render, and JSON and the CLI print."""

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from supervisor.core.approvals import RequestTally
from supervisor.core.files.changes import name_fields
from supervisor.core.jobs import Job, JobResult
from supervisor.core.session_names import shown_workspace
from supervisor.core.sessions import (
    Kind,
    NetworkMode,
    OwnLimits,
    Session,
    State,
    copy_left,
    job_words,
    own_limits,
    remaining_s,
    state,
)
from supervisor.parts import Parts
from supervisor.server.common.spend_views import SpendView, spend_view
from supervisor.server.common.views import identity_of, view_of

MOST_NAMED = 3


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """A session as the operator sees it. Durations in seconds, times in seconds since the epoch.
    `policy_file` judges it, and what is saved from its requests is in `saved_rules_file`: "" for
    the supervisor's own. `limits` are those that it has of its own. `job_words`: what came of its
    job, in a line. `name`, `icon` and `hue` are what people tell it by (`core.session_names`).
    `state_look` is the state as pages draw it, which knows what waits for a person, and
    `state_words` says it. `commands`: whether commands run without a question, and why not; empty
    where the policy asks about them anyway. `not_carried`: what stays on the host, or in the
    agent's copy, without a question to anybody.
    """

    id: str
    name: str
    icon: str
    hue: int
    kind: Kind
    state: State
    state_look: str
    state_words: str
    workspace: str
    command: tuple[str, ...]
    agent: str
    job: Job | None
    job_result: JobResult | None
    job_words: str
    base: str | None
    model: str | None
    network: NetworkMode
    commands: str
    keep_bodies: bool
    policy_file: str
    saved_rules_file: str
    limits: OwnLimits
    created_at: float
    started_at: float | None
    deadline_at: float
    remaining_s: float
    uptime_s: float
    agent_exited_at: float | None
    exit_code: int | None
    ended_at: float | None
    end_reason: str
    notices: tuple[str, ...]
    not_carried: tuple[str, ...]
    review: dict[str, Any] | None
    progress: dict[str, int] | None
    tally: RequestTally
    spend: SpendView

    @property
    def command_line(self) -> str:
        """Return its command as a person types it."""
        return shlex.join(self.command)

    @property
    def whole_s(self) -> float:
        """Return how long it may run in all."""
        return max(1.0, self.deadline_at - self.created_at)

    @property
    def own_limits(self) -> list[tuple[str, str]]:
        """Return its own limits in words."""
        return own_limits(self.limits)

    @property
    def copying(self) -> str:
        """Return how far its private copy is, in words; empty where nothing is copied."""
        return _copying(self.progress)


async def session_view(parts: Parts, session_id: str) -> SessionView:
    """Return a session for the operator, without the token's hash and the policy's text."""
    return (await session_views(parts, [parts.sessions.get(session_id)]))[0]


async def session_views(parts: Parts, sessions: Sequence[Session]) -> list[SessionView]:
    """Return several. Their requests are counted in a thread: there can be many (law 14)."""
    now, ids = parts.clock.now(), [one.id for one in sessions]
    tallies = await asyncio.to_thread(parts.queue.tallies, ids, now=now)
    return [_view(parts, one, tallies[one.id], now) for one in sessions]


def _view(parts: Parts, session: Session, tally: RequestTally, now: float) -> SessionView:
    who, progress = identity_of(parts, session), parts.sessions.progress(session.id)
    look, words = _state_words(session, progress, tally)
    return view_of(
        SessionView,
        session,
        parts.redactor,
        name=who.name,
        icon=who.icon,
        hue=who.hue,
        state=state(session),
        state_look=look,
        state_words=words,
        workspace=shown_workspace(session),
        job_words=job_words(session),
        commands=_commands(parts, session),
        remaining_s=remaining_s(session, now),
        uptime_s=(session.ended_at or now) - session.created_at,
        not_carried=_not_carried(parts, session),
        progress=progress,
        tally=tally,
        spend=spend_view(parts, session),
    )


def _state_words(
    session: Session, progress: dict[str, int] | None, tally: RequestTally
) -> tuple[str, str]:
    """Return a session's state: the one that icon and colour are chosen by, and its words."""
    current = state(session)
    if current == "ended":
        return _end_words(session)
    if progress:
        return "doing", f"copying: {_copying(progress)}"
    if tally.held:
        return "held", "held: waits for you"
    if current in ("paused", "stopping"):
        return "paused" if current == "paused" else "doing", current
    if tally.waiting or current == "waiting":
        return "waiting", "waits for you"
    return "doing", "working" if current == "running" else "starting"


def _end_words(session: Session) -> tuple[str, str]:
    """Return how a session ended, by its facts."""
    if session.job_result is not None and session.job_result.refused:
        return "failed", job_words(session)
    if session.agent_exited_at is not None and session.exit_code == 0:
        return "done", job_words(session) or _reported(session) or "finished"
    if session.agent_exited_at is not None:
        return "failed", f"exit status {session.exit_code}"
    if (session.ended_at or 0.0) >= session.deadline_at:
        return "expired", "time limit reached"
    return "failed" if session.started_at is None else "expired", session.end_reason


def _reported(session: Session) -> str:
    """Return what a review found, in words; empty for any other session."""
    found = (session.review or {}).get("findings")
    if not isinstance(found, list):
        return ""
    return f"reported {len(found)} finding{'' if len(found) == 1 else 's'}"


def _copying(progress: dict[str, int] | None) -> str:
    if not progress:
        return ""
    size = progress["bytes"]
    amount = f"{size / 1e6:,.1f} MB" if size >= 100_000 else f"{size:,} bytes"
    return f"{progress['done']:,} of {progress['total']:,} files, {amount}{copy_left(progress)}"


def _commands(parts: Parts, session: Session) -> str:
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


def _not_carried(parts: Parts, session: Session) -> list[str]:
    workspace = parts.workspace_of(session.id)
    if workspace is None:
        return []
    changes = workspace.host_changes()
    return [
        *(changes.notices() if changes is not None else []),
        *_refused_words(workspace.refused()),
    ]


def _refused_words(refused: Mapping[str, str]) -> list[str]:
    """Return a line about the agent's changes that nobody is asked about."""
    if not refused:
        return []
    named = ", ".join(
        f"`{name_fields(name)[0]}` ({why})" for name, why in islice(refused.items(), MOST_NAMED)
    )
    more = f" and {len(refused) - MOST_NAMED} more" if len(refused) > MOST_NAMED else ""
    return [f"stays in the agent's copy: {named}{more}"]
