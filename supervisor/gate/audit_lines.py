"""The fields of the lines that the gate writes to the audit log; docs/record.md says what they
mean to a reader."""

from typing import Any

import msgspec

from supervisor.core.actions import Action, Network, category_of, fingerprint
from supervisor.core.approvals import Request
from supervisor.core.secrets import command_secrets
from supervisor.core.secrets.redact import hidden
from supervisor.core.verdicts import Rule, Verdict
from supervisor.gate.grants import Grant

LONG_CHARS = 500


def judged(
    action: Action, verdict: Verdict, session_id: str, by: str | None = None
) -> dict[str, Any]:
    """`verdict_given`; `by` is who refused, where no rules were asked. Like all of a line it
    passes the redactor when it is written."""
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


def asked(request: Request) -> dict[str, Any]:
    """`request_asked`."""
    return {
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
    """`request_answered`; `rule` where one gave the answer."""
    return {
        "request": request.id,
        "session": request.session_id,
        "answer": request.answer,
        "by": request.answered_by,
        "reason": request.answer_reason,
        "rule": rule,
    }


def superseded(request_id: str, newer: Request) -> dict[str, Any]:
    """`request_superseded`."""
    return {"request": request_id, "by": newer.id, "session": newer.session_id}


def rule_ended(rule: Rule) -> dict[str, Any]:
    """`rule_ended`: `until` is the time that it was given, `for_session` the session that is
    over."""
    return {
        "rule_id": rule.id,
        "effect": rule.effect,
        "rule": rule.text,
        "until": rule.expires_at,
        "for_session": rule.session,
    }


def begun(request: Request, *, resumed: bool) -> dict[str, Any]:
    """`effect_started`. Who said yes stands here too: the line of the answer is missing where
    the disk was full just then."""
    return {
        "request": request.id,
        "session": request.session_id,
        "fingerprint": request.fingerprint,
        "verdict": request.decision,
        "rule": request.rule,
        "by": request.answered_by,
        "resumed": resumed,
    }


def settled(grant: Grant, facts: dict[str, Any]) -> dict[str, Any]:
    """`effect_settled`. Long texts stay in the database."""
    return {
        "request": grant.request_id,
        "session": grant.session_id,
        "grant": grant.id,
        "outcome": "done" if facts["ok"] else "failed",
        "detail": {
            key: value
            for key, value in facts.items()
            if not isinstance(value, str) or len(value) <= LONG_CHARS
        },
    }
