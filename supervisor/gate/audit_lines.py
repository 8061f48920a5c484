"""The audit lines on requests, verdicts, effects and rules: one function writes each event.

docs/record.md explains the fields. Functions for lines with pre-encoded fields take those instead.
"""

import contextlib
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from supervisor.core.actions import Action, Effect, Network, category_of, fingerprint
from supervisor.core.approvals import Request, last_printed
from supervisor.core.secrets import command_secrets
from supervisor.core.secrets.redact import Redactor, hidden
from supervisor.core.verdicts import Rule, Verdict
from supervisor.errors import StorageError
from supervisor.gate.grants import Grant
from supervisor.records.audit import Audit, Encoded, Event

LONG_CHARS = 500
# Verdicts on connections whose encoded fields are kept. What is longer is encoded anew each time:
# what agents send must not fill the memory.
MOST_KEPT = 256
MOST_BYTES = 4096

type LineFields = Mapping[str, Any] | Encoded


def verdict_given(fields: LineFields) -> tuple[Literal["verdict_given"], LineFields]:
    """The line of a verdict, with the fields that `judged` made."""
    return "verdict_given", fields


def judged(
    action: Action, verdict: Verdict, session_id: str, by: str | None = None
) -> dict[str, Any]:
    """Return the fields of `verdict_given`; `by` is who refused, where no rules were asked. They
    are redacted when the line is written.
    """
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
    """The line of a refusal before any rule: the newest of `count` similar ones."""
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
    """Return the fields of `request_answered`; `rule` where a rule gave the answer."""
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
    """The line of a request that a newer one superseded."""
    fields = {"request": request_id, "by": newer_id, "session": session_id}
    return "request_superseded", fields


def request_closed(request: Request, why: str) -> tuple[Literal["request_closed"], dict[str, Any]]:
    """The line of a request that no longer needs an answer."""
    fields = {"request": request.id, "session": request.session_id, "why": why}
    return "request_closed", fields


def ends_of(request: Request) -> list[tuple[Event, LineFields]]:
    """Return lines about a request's end, as far as its facts tell, each with its time."""
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
    """The line of a saved rule; `more` has the reason, the request and the expiry."""
    said = {"rule_id": rule_id, "effect": effect, "rule": rule, "by": by, "saved_in": saved_in}
    return "rule_added", said | more


def rule_ended(rule: Rule) -> tuple[Literal["rule_ended"], dict[str, Any]]:
    """The line of an expired rule: `until` is its expiry time, `for_session` the session that
    ended.
    """
    return "rule_ended", {
        "rule_id": rule.id,
        "effect": rule.effect,
        "rule": rule.text,
        "until": rule.expires_at,
        "for_session": rule.session,
    }


def begun(request: Request, *, resumed: bool) -> dict[str, Any]:
    """Return the fields of `effect_started`. They include who approved, because the answer's own
    line is missing if the disk was full then.
    """
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
    """The line of a starting effect, with the fields that `begun` made."""
    return "effect_started", fields


def effect_settled(
    grant: Grant, facts: dict[str, Any]
) -> tuple[Literal["effect_settled"], LineFields]:
    """The line of an effect's outcome. Long texts stay in the database, except the end of a failed
    effect's output.
    """
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


def record_unknown(audit: Audit, request_id: str, session_id: str) -> None:
    """Record that nobody knows whether an action that was being carried out has happened."""
    audit.record("effect_unknown", request=request_id, session=session_id)


def record_refusal(audit: Audit, action: Action, session_id: str, why: str) -> None:
    """Record that a channel itself refused, before any rule. Never raises."""
    with contextlib.suppress(StorageError):
        audit.record_all([refused(action, session_id, why, by="gatehouse")])


class _Judged(NamedTuple):
    action: Network
    verdict: Verdict
    session_id: str


class VerdictLines:
    """Writes the verdicts of one gate, each at once in a line of its own.

    Programs connect again and again, so the fields of a connection's verdict are encoded and
    redacted once for the same action, verdict and session.
    """

    def __init__(self, audit: Audit, redactor: Redactor) -> None:
        self._audit = audit
        self._redactor = redactor
        self._known_secrets = redactor.changes
        self._kept: dict[_Judged, Encoded] = {}

    def write(self, action: Action, verdict: Verdict, session_id: str) -> None:
        """Put a verdict on record. `StorageError` where it can't be written."""
        if isinstance(action, Network) and action.operation == "connect":
            fields: LineFields = self._fields(_Judged(action, verdict, session_id))
        else:
            fields = judged(action, verdict, session_id)
        self._audit.record_all([verdict_given(fields)])

    def _fields(self, one: _Judged) -> Encoded | dict[str, object]:
        if self._known_secrets != self._redactor.changes:
            # INVARIANT: what was clean is looked through anew once there is another secret to look
            # for.
            self._kept.clear()
            self._known_secrets = self._redactor.changes
        try:
            kept = self._kept.get(one)
        except TypeError:  # an action with something in it that can still change
            return judged(*one)
        return self._made(one) if kept is None else kept

    def _made(self, one: _Judged) -> Encoded | dict[str, object]:
        fields = judged(*one)
        encoded = self._audit.encoded(fields)
        if encoded is None or len(encoded.text) > MOST_BYTES:
            return fields
        if len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        self._kept[one] = encoded
        return encoded
