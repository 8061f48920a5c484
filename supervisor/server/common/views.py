"""Requests and sessions as each API shows them: one function per shape, so that no field of a
record gets out by accident.

Text passes `display.visible` here (law 6); secrets were redacted before it was stored, and are
redacted once more.
"""

import time
from collections.abc import Iterable
from typing import Any

import msgspec

from supervisor.core.actions import Category, category_of, title
from supervisor.core.approvals import (
    Request,
    Status,
    explanation,
    is_settled,
    status,
)
from supervisor.core.jobs import Job, JobResult
from supervisor.core.secrets.redact import Redactor
from supervisor.core.session_names import SessionIdentity, shown_workspace
from supervisor.core.sessions import (
    Kind,
    NetworkMode,
    OwnLimits,
    Session,
    State,
    job_words,
    remaining_s,
    state,
)
from supervisor.core.text.display import visible
from supervisor.core.text.duration import format_duration
from supervisor.parts import Parts
from supervisor.server.common.spend_views import SpendView, spend_view

# A list of requests ends with the one that has passed this.
MOST_LISTED_CHARS = 512 * 1024


class AgentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as the agent that asked sees it. Times are seconds since the epoch.

    `decided`: it waits for no answer any more. `allowed`: the answer was yes. `settled`: its
    outcome is final.
    """

    id: str
    status: Status
    decided: bool
    allowed: bool
    settled: bool
    category: Category
    title: str
    why: str
    rule: str | None
    remedy: str
    reason: str
    asked_at: float
    answered_at: float | None
    outcome: dict[str, Any] | None
    superseded_by: str | None


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """A session as the operator sees it. Durations in seconds, times in seconds since the epoch.
    `policy_file` judges it, and what is saved from its requests is in `saved_rules_file`: "" for
    the supervisor's own. `limits` are those that it has of its own. `job_words`: what came of its
    job, in a line. `name`, `icon` and `hue` are what people tell it by (`core.session_names`).
    """

    id: str
    name: str
    icon: str
    hue: int
    kind: Kind
    state: State
    workspace: str
    command: tuple[str, ...]
    agent: str
    job: Job | None
    job_result: JobResult | None
    job_words: str
    base: str | None
    model: str | None
    network: NetworkMode
    keep_bodies: bool
    policy_file: str
    saved_rules_file: str
    limits: OwnLimits
    created_at: float
    started_at: float | None
    deadline_at: float
    remaining_s: float
    agent_exited_at: float | None
    exit_code: int | None
    ended_at: float | None
    end_reason: str
    notices: tuple[str, ...]
    review: dict[str, Any] | None
    progress: dict[str, int] | None
    spend: SpendView


def agent_request(request: Request, redactor: Redactor) -> AgentRequest:
    """For the agent's door."""
    current = status(request)
    return AgentRequest(
        id=request.id,
        status=current,
        decided=current != "pending",
        allowed=current in ("allowed", "approved", "used"),
        settled=is_settled(request),
        category=category_of(request.action),
        title=shown(title(request.action), redactor),
        why=shown(explanation(request), redactor),
        rule=request.rule and shown(request.rule, redactor),
        remedy=shown(request.remedy, redactor),
        reason=shown(request.reason, redactor),
        asked_at=request.asked_at,
        answered_at=request.answered_at,
        outcome=request.outcome,
        superseded_by=request.superseded_by,
    )


def listed(requests: Iterable[Request]) -> list[Request]:
    """Return the first of these, as many as together stay short: an agent's texts may be long, and
    the answer is made in the event loop (law 14).
    """
    found: list[Request] = []
    chars = 0
    for one in requests:
        found.append(one)
        chars += len(msgspec.json.encode(one))
        if chars >= MOST_LISTED_CHARS:
            break
    return found


def identity_of(parts: Parts, session: Session) -> SessionIdentity:
    """Return a session's name, icon and colour, as people may see them."""
    found = parts.sessions.identity(session)
    name = visible(parts.redactor.text(found.name), one_line=True)
    return msgspec.structs.replace(found, name=name)


def session_view(parts: Parts, session: Session) -> SessionView:
    """Return a session for the operator, without the token's hash and the policy's text."""
    redactor = parts.redactor
    who = identity_of(parts, session)
    return SessionView(
        id=session.id,
        name=who.name,
        icon=who.icon,
        hue=who.hue,
        kind=session.kind,
        state=state(session),
        workspace=shown(shown_workspace(session), redactor),
        command=tuple(shown(word, redactor) for word in session.command),
        agent=session.agent,
        job=msgspec.convert(shown_data(msgspec.to_builtins(session.job), redactor), Job | None),
        job_result=session.job_result,
        job_words=shown(job_words(session), redactor),
        base=session.base,
        model=session.model,
        network=session.network,
        keep_bodies=session.keep_bodies,
        policy_file=shown(session.policy_file, redactor),
        saved_rules_file=shown(session.saved_rules_file, redactor),
        limits=session.limits,
        created_at=session.created_at,
        started_at=session.started_at,
        deadline_at=session.deadline_at,
        remaining_s=remaining_s(session, parts.clock.now()),
        agent_exited_at=session.agent_exited_at,
        exit_code=session.exit_code,
        ended_at=session.ended_at,
        end_reason=shown(session.end_reason, redactor),
        notices=tuple(shown(notice, redactor) for notice in session.notices),
        review=shown_data(session.review, redactor),
        progress=parts.sessions.progress(session.id),
        spend=spend_view(parts, session),
    )


def shown(text: str, redactor: Redactor) -> str:
    """Return text as people may see it."""
    return visible(redactor.text(text))


def shown_data(data: Any, redactor: Redactor) -> Any:
    """The same for JSON-like data, keys included."""
    return _visible_data(redactor.data(data))


def _visible_data(data: Any) -> Any:
    if isinstance(data, str):
        return visible(data)
    if isinstance(data, dict):
        return {visible(str(key)): _visible_data(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_visible_data(item) for item in data]
    return data


def clock_text(at: float) -> str:
    """A time, seconds since the epoch, local to this machine."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def duration_text(seconds: float) -> str:
    """Return how long something took: in milliseconds below a second."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 59.95 else format_duration(round(seconds))
