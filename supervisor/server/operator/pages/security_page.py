"""The page of security events: denials in quarantine, and dropped parts of its answers.

They are records of the audit log; this page shows only them.
"""

from typing import Annotated, Any

from litestar import Response, get
from litestar.params import QueryParameter

from supervisor.parts import Parts
from supervisor.records import audit_chain
from supervisor.server.common.views import clock_text, shown_data
from supervisor.server.operator.operator_api import AnyRequest, parts_of
from supervisor.server.operator.pages import page_frame

ROWS = 100
# By risk; only the denial of a tool has one.
_CLASSES = {"critical": "flag", "high": "flag", "medium": "flag warn", "low": ""}


@get("/api/security", sync_to_thread=True)
def security_events(
    request: AnyRequest,
    limit: Annotated[int, QueryParameter(ge=1, le=500)] = ROWS,
    before: Annotated[int | None, QueryParameter(ge=1)] = None,
) -> list[dict[str, Any]]:
    """Return security events of the audit log, newest first; only those before the sequence number
    `before` if that is given."""
    return _records(parts_of(request), limit, before)


@get("/security", include_in_schema=False, sync_to_thread=True)
def security(
    request: AnyRequest, before: Annotated[int | None, QueryParameter(ge=1)] = None
) -> Response[str]:
    records = _records(parts_of(request), ROWS, before)
    values = {
        "events": [_row(record) for record in records],
        "next_before": records[-1].get("seq") if len(records) == ROWS else None,
    }
    return page_frame.page(request, "security.html", "history", **values)


def _records(parts: Parts, limit: int, before: int | None) -> list[dict[str, Any]]:
    path = parts.settings.data_dir / "audit.log"
    found = audit_chain.newest_first(path, limit, before, parts.quarantines.EVENT)
    return [shown_data(record, parts.redactor) for record in found]


def _row(record: dict[str, Any]) -> dict[str, Any]:
    """Return one row. Any field may be missing or odd: the file is read as it is."""
    at = record.get("at")
    at = float(at) if isinstance(at, int | float) else 0.0
    words = {
        name: str(record.get(name) or "") for name in ("kind", "tool", "risk", "why", "session")
    }
    return {
        **words,
        "kind": words["kind"].replace("_", " "),
        "class": _CLASSES.get(words["risk"], "flag warn"),
        "at": at,
        "at_text": clock_text(at),
    }
