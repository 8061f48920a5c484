"""What the pages show of requests, sessions and records: plain data for the templates, no markup, no decision."""

import time
from typing import Any

import msgspec

from supervisor.core.actions import (
    CATEGORIES,
    Action,
    Exec,
    FileChange,
    Git,
    Network,
    Packages,
    Proposal,
    category_of,
    title,
)
from supervisor.core.approvals import Request, explanation, status
from supervisor.core.change_card import ChangeCard
from supervisor.core.duration import format_duration
from supervisor.core.redact import Redactor
from supervisor.core.sessions import Session, remaining_s, state
from supervisor.server.parts import Parts
from supervisor.server.views import may_always

_STATUS_CLASS = {
    "approved": "good",
    "used": "good",
    "allowed": "good",
    "denied": "bad",
    "expired": "bad",
    "superseded": "",
}
_STATE_CLASS = {"running": "good", "waiting": "warn", "starting": "", "stopping": "warn", "ended": ""}
_STICKY_WHY = {
    "sandbox": "a change of the policy is always yours to decide",
    "filesystem": "this kind of change has no rule but one that spells it out",
}


def card(parts: Parts, request: Request) -> dict[str, Any]:
    """A request as its card. The diff is only made for what still waits."""
    redact = parts.redactor.text
    current = status(request)
    category = category_of(request.action)
    session = parts.sessions.get(request.session_id)
    return {
        "id": request.id,
        "category": category,
        "title": redact(title(request.action)),
        "details": [(label, redact(text)) for label, text in _details(request.action)],
        "status": current,
        "status_class": _STATUS_CLASS.get(current, ""),
        "why": redact(request.why),
        "explanation": redact(explanation(request)),
        "reason": redact(request.reason),
        "rule": request.rule,
        "sticky": not may_always(request),
        "sticky_why": f"the rule {request.rule} says so"
        if request.rule
        else _STICKY_WHY.get(category, "no rule can allow it"),
        "asked_times": request.asked_times,
        "asked_at": request.asked_at,
        "asked_text": clock_text(request.asked_at),
        "hold_until": request.hold_until,
        "deadline_at": session.deadline_at,
        "fingerprint": request.fingerprint,
        "session_id": request.session_id,
        "workspace_name": workspace_name(session.workspace),
        "hazards": ", ".join(request.action.hazards) if isinstance(request.action, FileChange) else "",
        "change": _change(parts, request) if current == "pending" else None,
        "outcome_text": redact(_outcome_text(request)),
    }


def groups(parts: Parts, requests: list[Request]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Waiting requests by category, in the order of the categories, oldest first."""
    cards: dict[str, list[dict[str, Any]]] = {category: [] for category in CATEGORIES}
    for request in requests:
        cards[category_of(request.action)].append(card(parts, request))
    return [(category, found) for category, found in cards.items() if found]


def session_data(parts: Parts, session: Session) -> dict[str, Any]:
    """A session for strip, list and page."""
    now = parts.clock.now()
    current = state(session)
    shown: dict[str, Any] = parts.redactor.data(msgspec.to_builtins(session))
    return {
        "id": session.id,
        "workspace": shown["workspace"],
        "workspace_name": workspace_name(session.workspace),
        "command": " ".join(shown["command"]),
        "model": session.model,
        "state": current,
        "state_class": _STATE_CLASS[current],
        "notices": shown["notices"],
        "created_at": session.created_at,
        "created_text": clock_text(session.created_at),
        "deadline_at": session.deadline_at,
        "uptime": format_duration((session.ended_at or now) - session.created_at),
        "remaining": format_duration(remaining_s(session, now)),
        "end_reason": shown["end_reason"],
        "exit_code": session.exit_code,
        "progress": parts.sessions.progress(session.id),
        "review": shown["review"],
    }


def record_data(record: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    """An audit record as a row of the History page."""
    at = float(record.get("at", 0))
    badge = str(record.get("verdict") or record.get("answer") or record.get("outcome") or "")
    said = [str(record[name]) for name in ("rule", "why", "reason", "by", "detail") if record.get(name)]
    return {
        "seq": record.get("seq", 0),
        "at": at,
        "at_text": clock_text(at),
        "event": str(record.get("event", "")).replace("_", " "),
        "about": redactor.text(_about(record)),
        "badge": badge,
        "badge_class": {
            "allow": "good",
            "approved": "good",
            "done": "good",
            "deny": "bad",
            "denied": "bad",
            "failed": "bad",
        }.get(badge, "warn"),
        "said": redactor.text(" · ".join(said)),
    }


def clock_text(at: float) -> str:
    """A time for those without scripts: local to this machine."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def workspace_name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2] or path


def _about(record: dict[str, Any]) -> str:
    if isinstance(record.get("action"), dict):
        try:
            action: Action = msgspec.convert(record["action"], Action)
            return f"{category_of(action)}: {title(action)}"
        except msgspec.ValidationError:
            return str(record["action"])
    for name in ("command", "workspace", "request", "session", "rule_id", "port"):
        if record.get(name):
            return " ".join(map(str, record[name])) if isinstance(record[name], list) else str(record[name])
    return ""


def _details(action: Action) -> list[tuple[str, str]]:
    """What the title doesn't say."""
    match action:
        case Exec():
            return [("runs in", action.cwd), ("at most", format_duration(action.timeout_s))]
        case Network():
            return [
                ("host", f"{action.host}:{action.port}"),
                *([("address", ", ".join(action.resolved))] if action.resolved else []),
            ]
        case Git():
            facts = (
                ("remote", action.remote),
                ("refs", " ".join(action.refspecs)),
                ("forces", "yes" if action.force else ""),
                ("deletes", "yes" if action.delete else ""),
            )
            return [(label, text) for label, text in facts if text]
        case Packages():
            facts = (
                ("manager", action.manager),
                ("packages", " ".join(action.names)),
                ("options", " ".join(action.flags)),
            )
            return [(label, text) for label, text in facts if text]
        case Proposal():
            return [
                ("would be saved as", f"{action.effect}: {action.rule}"),
                *([("because", action.why)] if action.why else []),
            ]
    return []


def _change(parts: Parts, request: Request) -> dict[str, Any] | None:
    workspace = parts.workspace_of(request.session_id)
    if workspace is None or not isinstance(request.action, FileChange):
        return None
    shown: ChangeCard = workspace.card(request)
    notes = [*shown.notes]
    if shown.content == "binary":
        notes.append("binary content")
    if shown.content in ("binary", "large"):
        notes.append(
            f"{_size(shown.old_size)} before, {_size(shown.new_size)} after; new hash {(shown.after or 'none')[:16]}"
        )
    if shown.truncated:
        notes.append("too long to be shown whole")
    redact = parts.redactor.text
    hunks = [
        {
            "header": hunk.header,
            "lines": [
                {
                    "kind": line.kind,
                    "old_number": line.old_number,
                    "new_number": line.new_number,
                    "spans": [(redact(text), marked) for text, marked in line.spans],
                }
                for line in hunk.lines
            ],
        }
        for hunk in shown.diff.hunks
    ]
    return {"path": shown.path, "note": "; ".join(notes), "hunks": hunks}


def _outcome_text(request: Request) -> str:
    outcome = request.outcome or {}
    if "exit_code" in outcome:
        return f"exit code {outcome['exit_code']}"
    return str(outcome.get("error") or "")[:300]


def _size(size: int | None) -> str:
    return "nothing" if size is None else f"{size:,} bytes"
