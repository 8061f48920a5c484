"""Sessions and their reviews for the pages: plain data for the templates, no markup, no decision.

A review was written by an agent about code that may be hostile: every field may be missing or be
anything here.
"""

import shlex
from collections.abc import Mapping
from itertools import islice
from typing import Any

import msgspec

from supervisor.core.files.changes import name_fields
from supervisor.core.quarantine.quarantine_answers import dropped_words
from supervisor.core.sessions import Session, copy_left, job_words, own_limits, remaining_s, state
from supervisor.core.text.duration import format_duration
from supervisor.server.common.parts import Parts
from supervisor.server.common.spend_views import spend_view
from supervisor.server.common.views import clock_text
from supervisor.server.operator.routes.page_views import session_name

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


def _commands(parts: Parts, session: Session) -> str:
    """Say whether commands run without a question, and why not; empty where the policy asks about
    them anyway."""
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


def session_data(parts: Parts, session: Session) -> dict[str, Any]:
    """A session for strip, list and page."""
    now = parts.clock.now()
    current = state(session)
    redact = parts.redactor.text
    spend = spend_view(parts, session)
    return {
        "id": session.id,
        "kind": session.kind,
        "workspace": redact(session.workspace),
        "workspace_name": session_name(session),
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


def _of_the_host(parts: Parts, session: Session) -> list[str]:
    """Return what keeps the person's own changes from the agent's copy, or the agent's from the
    host, with nobody asked."""
    workspace = parts.workspace_of(session.id)
    if workspace is None:
        return []
    changes = workspace.host_changes()
    return [
        *(changes.notices() if changes is not None else []),
        *_never_carried(workspace.refused()),
    ]


def _never_carried(refused: Mapping[str, str]) -> list[str]:
    """A line about what the agent made and nobody is asked about."""
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
    """Return what of an answer from quarantine was dropped."""
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
