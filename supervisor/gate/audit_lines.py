"""The audit lines on requests, verdicts, effects and rules: one function writes each event.

docs/record.md says what the fields mean to a reader. A line whose fields were encoded ahead is
given these instead.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from supervisor.core.actions import Action, Effect, Network, category_of, fingerprint
from supervisor.core.approvals import Request, last_printed
from supervisor.core.secrets import command_secrets
from supervisor.core.secrets.redact import hidden
from supervisor.core.verdicts import Rule, Verdict
from supervisor.gate.grants import Grant
from supervisor.records.audit import Encoded, Event

LONG_CHARS = 500

type LineFields = Mapping[str, Any] | Encoded


def verdict_given(fields: LineFields) -> tuple[Literal["verdict_given"], LineFields]:
    """The line of a verdict, with the fields that `judged` made."""
    return "verdict_given", fields


def judged(
    action: Action, verdict: Verdict, session_id: str, by: str | None = None
) -> dict[str, Any]:
    """Fields of `verdict_given`; `by` is who refused, where no rules were asked. Like all of a
    line they pass the redactor when it is written."""
    recorded, known = (
        hidden(action),
        () if isinstance(action, Network) else command_secrets.secrets_in(action),
    )
    fields = {
        "session": session_id,
        "category": category_of(action),
        "action": msgspec.to_builtins(recorded),
        "fingerprint": fingerprint(action),
        "verdict": verdict.decision,
        "rule": verdict.rule,
        "why": command_secrets.without(verdict.why, known),
        "by_policy": by is None and verdict.by_policy,
    }
    return fields if by is None else fields | {"by": by}


def refused(
    action: Action, session_id: str, why: str, *, by: str, count: int = 1
) -> tuple[Literal["verdict_given"], LineFields]:
    """The line of a refusal before any rule: of `count` that are alike, the newest."""
    fields = judged(action, Verdict("deny", why), session_id, by)
    return verdict_given(fields | {"count": count} if count > 1 else fields)


def request_asked(request: Request) -> tuple[Literal["request_asked"], LineFields]:
    """The line of a new request."""
    return "request_asked", {
        "request": request.id,
        "session": request.session_id,
        "category": category_of(request.action),
        "action": msgspec.to_builtins(request.action),
        "fingerprint": request.fingerprint,
        "reason": request.reason,
        "verdict": request.decision,
        "rule": request.rule,
        "why": request.why,
        "by_policy": request.by_policy,
    }


def answered(request: Request, rule: str | None) -> dict[str, Any]:
    """Fields of `request_answered`; `rule` where one gave the answer."""
    return {
        "request": request.id,
        "session": request.session_id,
        "answer": request.answer,
        "by": request.answered_by,
        "reason": request.answer_reason,
        "rule": rule,
    }


def request_answered(fields: LineFields) -> tuple[Literal["request_answered"], LineFields]:
    """The line of an answer, with the fields that `answered` made."""
    return "request_answered", fields


def request_superseded(
    request_id: str, newer_id: str, session_id: str
) -> tuple[Literal["request_superseded"], dict[str, Any]]:
    """The line of a request whose place a newer one took."""
    fields = {"request": request_id, "by": newer_id, "session": session_id}
    return "request_superseded", fields


def request_closed(request: Request, why: str) -> tuple[Literal["request_closed"], dict[str, Any]]:
    """The line of a request that nobody needs an answer to any more."""
    fields = {"request": request.id, "session": request.session_id, "why": why}
    return "request_closed", fields


def ends_of(request: Request) -> list[tuple[Event, LineFields]]:
    """The lines of how a request ended, as far as its facts say so; each says when it did."""
    lines: list[tuple[Event, LineFields]] = []
    at = {"answered_at": request.answered_at}
    if request.superseded_by is not None:
        newer = request_superseded(request.id, request.superseded_by, request.session_id)
        lines.append((newer[0], newer[1] | at))
    elif request.answer is not None:
        lines.append(request_answered(answered(request, request.rule) | at))
    if request.closed_at is not None and request.answer != "denied":  # whose end was lifted
        closed = request_closed(request, request.closed_why)
        lines.append((closed[0], closed[1] | {"closed_at": request.closed_at}))
    return lines


def rule_added(
    rule_id: str, effect: Effect, rule: str, *, by: str, saved_in: str, **more: Any
) -> tuple[Literal["rule_added"], dict[str, Any]]:
    """The line of a saved rule; `more` says why, of which request and until when."""
    said = {"rule_id": rule_id, "effect": effect, "rule": rule, "by": by, "saved_in": saved_in}
    return "rule_added", said | more


def rule_ended(rule: Rule) -> tuple[Literal["rule_ended"], dict[str, Any]]:
    """The line of a rule that is over: `until` is the time that it was given, `for_session` the
    session that is over."""
    return "rule_ended", {
        "rule_id": rule.id,
        "effect": rule.effect,
        "rule": rule.text,
        "until": rule.expires_at,
        "for_session": rule.session,
    }


def begun(request: Request, *, resumed: bool) -> dict[str, Any]:
    """Fields of `effect_started`. Who said yes stands here too: the line of the answer is missing
    where the disk was full just then."""
    return {
        "request": request.id,
        "session": request.session_id,
        "fingerprint": request.fingerprint,
        "verdict": request.decision,
        "rule": request.rule,
        "by": request.answered_by,
        "resumed": resumed,
    }


def effect_started(fields: LineFields) -> tuple[Literal["effect_started"], LineFields]:
    """The line of an effect that begins, with the fields that `begun` made."""
    return "effect_started", fields


def effect_settled(
    grant: Grant, facts: dict[str, Any]
) -> tuple[Literal["effect_settled"], LineFields]:
    """The line of what came of an effect. Long texts stay in the database, but for the end of what
    a failed one printed."""
    return "effect_settled", {
        "request": grant.request_id,
        "session": grant.session_id,
        "grant": grant.id,
        "outcome": "done" if facts["ok"] else "failed",
        "detail": {
            key: value
            for key, value in facts.items()
            if not isinstance(value, str) or len(value) <= LONG_CHARS
        }
        | ({} if facts["ok"] or not (said := last_printed(facts)) else {"printed": said}),
    }
