"""A request with its facts, and what is said about it; its status is derived (law 8).

`approval_states` says which facts make which status. Nothing here knows about a database or about
waiting: `store.requests` keeps the facts, `approval_queue` wakes the waiting callers.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal, NewType

import msgspec

from supervisor.core.actions import Action, Category, Effect
from supervisor.core.approval_states import FINAL, Answer, Status, status_of

__all__ = ["Answer", "Status"]  # what a request's fields and `status` are typed with

RequestId = NewType("RequestId", str)
# The channel that asked; it carries out the approved action.
Origin = Literal["agent_api", "workspace", "egress", "agent_tool", "reviews", "mcp"]
# How many lines and characters of a failed effect's output are shown.
MOST_PRINTED_LINES, MOST_PRINTED_CHARS = 40, 8000
# The default reason for a request that a newer one replaced.
SUPERSEDED = "superseded by a newer request for the same thing"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded request with every known fact. Times are seconds since the epoch.

    `action` is as shown and stored, secrets redacted; `fingerprint` is of the action as asked.
    `outcome` is the result of carrying it out: `{"ok": bool, ...}`; `taken_back` in it says that a
    person undid it.

    `by_policy` is False if Gatehouse itself gave the verdict, whatever a policy says. `held_up`:
    the change is asked again because it kept others from being carried out, and `reason` says why.
    `in_part`: it is the part of a larger request that a person took.
    """

    id: RequestId
    session_id: str
    origin: Origin
    action: Action
    fingerprint: str
    subject: str
    asked_at: float
    decision: Effect
    why: str
    reason: str = ""
    rule: str | None = None
    remedy: str = ""
    sticky: bool = False
    by_policy: bool = True
    held_up: bool = False
    asked_times: int = 1
    hold_until: float | None = None
    answer: Answer | None = None
    answered_at: float | None = None
    answered_by: str | None = None
    answer_reason: str = ""
    in_part: bool = False
    superseded_by: str | None = None
    closed_at: float | None = None
    closed_why: str = ""
    used_at: float | None = None
    settled_at: float | None = None
    outcome: dict[str, Any] | None = None


class RequestTally(msgspec.Struct, frozen=True):
    """A session's requests, counted: those that wait, and of these held connections; files that
    were changed; what rules answered, and what people did; all; files that it asked to change."""

    waiting: int = 0
    held: int = 0
    changed_files: int = 0
    by_rules: int = 0
    by_people: int = 0
    asked: int = 0
    files: int = 0


def status(request: Request) -> Status:
    """Return the request's status."""
    return status_of(partial(getattr, request))


def is_settled(request: Request) -> bool:
    """Return whether nothing more can happen to it: it was refused or closed, or its outcome is
    known."""
    return request.settled_at is not None or status(request) in FINAL


def goes_on(origin: Origin, category: Category) -> bool:
    """Return whether its channel waits for the answer and continues by itself: a connection, a
    tool of the agent's. If nobody waits any more, an approved action goes through when it is tried
    again."""
    return origin == "egress" or (origin == "agent_tool" and category == "exec")


def failure(request: Request) -> str:
    """Return why carrying it out failed; empty if it didn't fail, or that isn't known yet."""
    outcome = request.outcome or {}
    # For a command that ran: older supervisors stored `ok` however it ended.
    ran_badly = f"exit code {outcome['exit_code']}" if outcome.get("exit_code") else ""
    if request.outcome is None or (outcome.get("ok") and not ran_badly):
        return ""
    return str(outcome.get("error") or ran_badly or "no reason was given")


def last_printed(outcome: Mapping[str, Any] | None) -> str:
    """Return the last lines of its output, errors after the rest; empty if it printed nothing."""
    streams = [str((outcome or {}).get(name) or "") for name in ("stdout", "stderr", "said")]
    lines = [line for text in streams for line in text.splitlines()]
    return "\n".join(lines[-MOST_PRINTED_LINES:])[-MOST_PRINTED_CHARS:]


def explanation(request: Request) -> str:
    """Return the one-line reason for the present status (law 5)."""
    current = status(request)
    if current == "superseded":
        said = request.answer_reason if request.answered_by == "gatehouse" else ""
        return said or SUPERSEDED
    if current == "expired":
        return request.closed_why
    if request.outcome is not None and request.outcome.get("taken_back"):
        return str(request.outcome["taken_back"])
    if request.answer is not None:
        said = f"{request.answer} by {request.answered_by}"
        return f"{said}: {request.answer_reason}" if request.answer_reason else said
    return request.why
