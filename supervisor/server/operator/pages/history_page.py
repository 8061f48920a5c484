"""The History page: audit records as rows, newest first.

The complete record, as it is in the file, is one click away. Security events are records, too.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from litestar import Response, get
from litestar.params import FromQuery, QueryParameter

from supervisor.core.actions import (
    Action,
    category_of,
    title,
)
from supervisor.core.secrets.redact import Redactor
from supervisor.parts import Parts
from supervisor.records import audit_chain
from supervisor.server.common.views import shown_data
from supervisor.server.operator.operator_api import AnyRequest, Limit, parts_of
from supervisor.server.operator.pages import page_frame
from supervisor.store import requests as store

HISTORY_ROWS = 100
_Before = Annotated[int | None, QueryParameter(ge=1)]
MOST_RECORD_CHARS = 8000
_STATES = {
    **dict.fromkeys(("allow", "approved", "done"), "done"),
    **dict.fromkeys(("deny", "denied"), "denied"),
    "failed": "failed",
}
# Fields that say what a record is about, the most telling first.
_ABOUT = ("command", "name", "workspace", "rule", "rule_id", "policy", "request", "session")
_SAID = ("rule", "why", "reason", "by")


@get("/api/audit", sync_to_thread=True)
def audit_records(
    request: AnyRequest, limit: Limit = 100, before: _Before = None
) -> list[dict[str, Any]]:
    """Return records of the audit log, newest first; only those before the sequence number `before`
    if that is given."""
    return _records(parts_of(request), limit, before)


@get("/api/security", sync_to_thread=True)
def security_events(
    request: AnyRequest, limit: Limit = 100, before: _Before = None
) -> list[dict[str, Any]]:
    """Return the same of security events: denials in quarantine, and dropped parts of its
    answers."""
    return _records(parts_of(request), limit, before, parts_of(request).quarantines.EVENT)


@get("/security", include_in_schema=False, sync_to_thread=True)
def security(request: AnyRequest, before: _Before = None) -> Response[str]:
    """Return the page of security events alone."""
    parts = parts_of(request)
    found = _records(parts, HISTORY_ROWS, before, parts.quarantines.EVENT)
    older = found[-1].get("seq") if len(found) == HISTORY_ROWS else None
    return page_frame.page(request, "security.html", "history", events=found, next_before=older)


def _records(parts: Parts, limit: int, before: int | None, event: str = "") -> list[dict[str, Any]]:
    path = parts.settings.data_dir / "audit.log"
    found = audit_chain.newest_first(path, limit, before, event)
    return [shown_data(record, parts.redactor) for record in found]


@get("/history", include_in_schema=False, sync_to_thread=True)
def history(request: AnyRequest) -> Response[str]:
    """The audit log, newest first."""
    return page_frame.page(request, "history.html", "history", **_values(parts_of(request), None))


@get("/parts/history", include_in_schema=False, sync_to_thread=True)
def history_part(request: AnyRequest, before: FromQuery[int]) -> Response[str]:
    return page_frame.html("parts/history.html", **_values(parts_of(request), before))


def _values(parts: Parts, before: int | None) -> dict[str, Any]:
    """Return the values of `parts/history.html`: a page of records before that number, or the
    newest."""
    path = parts.settings.data_dir / "audit.log"
    newest = audit_chain.newest_first(path, HISTORY_ROWS, before)
    found = [_without_own_folder(parts, record) for record in newest]
    ids = {
        str(record["request"])
        for record in found
        if record.get("request") and not record.get("action")
    }
    known = parts.queue.read(lambda connection: [store.get(connection, one) for one in ids])
    titles: dict[str, str] = {one.id: title(one.action) for one in known if one is not None}
    return {
        "records": [record_data(record, parts.redactor, titles) for record in found],
        "next_before": found[-1].get("seq") if len(found) == HISTORY_ROWS else None,
        "is_older": before is not None,
    }


def _without_own_folder(parts: Parts, record: dict[str, Any]) -> dict[str, Any]:
    """Return a record without the path of a clone of our own, of which a person knows nothing."""
    own = (f"{parts.settings.clones_dir}/", f"{parts.settings.sessions_dir}/")
    if not str(record.get("workspace", "")).startswith(own):
        return record
    return {name: value for name, value in record.items() if name != "workspace"}


def record_data(
    record: dict[str, Any], redactor: Redactor, titles: Mapping[str, str]
) -> dict[str, Any]:
    """Return one record. Any field may be missing or odd: the file is read as it is. `titles` are
    those of requests, by id."""
    at = record.get("at")
    at = float(at) if isinstance(at, int | float) else 0.0
    badge = str(record.get("verdict") or record.get("answer") or record.get("outcome") or "")
    if _exit_code(record):  # older records say `done` of a command that ran, however it ended
        badge = "failed"
    whole = redactor.text(json.dumps(record, indent=2, ensure_ascii=False))
    about, subject = _about(record, titles)
    said = dict.fromkeys(
        str(record[name]) for name in _SAID if record.get(name) and name != subject
    )
    return {
        "seq": record.get("seq", 0),
        "at": at,
        "event": str(record.get("event", "unknown")).replace("_", " "),
        "category": str(record.get("category") or ""),
        "about": redactor.text(about),
        "badge": badge,
        "state": _STATES.get(badge, "waiting"),
        "said": redactor.text(" · ".join([*said, *_outcome(record)])),
        "session": str(record.get("session") or ""),
        "whole": whole[:MOST_RECORD_CHARS],
        "left_out": max(0, len(whole) - MOST_RECORD_CHARS),
    }  # fmt: skip


def _about(record: dict[str, Any], titles: Mapping[str, str]) -> tuple[str, str]:
    """Return what the record is about, and the field that said so."""
    if isinstance(record.get("action"), dict):
        try:
            action: Action = msgspec.convert(record["action"], Action)
        except msgspec.ValidationError:
            return json.dumps(record["action"]), "action"
        return f"{category_of(action)}: {title(action)}", "action"
    if record.get("request") in titles:
        return titles[record["request"]], "request"
    for name in _ABOUT:
        value = record.get(name)
        if value:
            text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
            return (f"{name} {text}" if name in ("request", "session") else text), name
    return "", ""


def _outcome(record: dict[str, Any]) -> list[str]:
    detail, code = record.get("detail"), _exit_code(record)
    said = [str(detail["error"])] if isinstance(detail, dict) and detail.get("error") else []
    return list(dict.fromkeys([*said, *([] if code is None else [f"exit code {code}"])]))


def _exit_code(record: dict[str, Any]) -> int | None:
    """Return how a command, or an agent, ended."""
    detail = record.get("detail")
    code = (detail if isinstance(detail, dict) else record).get("exit_code")
    return code if isinstance(code, int) else None
