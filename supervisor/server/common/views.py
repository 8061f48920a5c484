"""Records as people and agents see them: each view is a type that names its fields, so that no
other field of a record gets out by accident.

Every text passes `display.visible` here (law 6); secrets were redacted before it was stored, and
are redacted once more.
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
from supervisor.core.secrets.redact import Redactor
from supervisor.core.session_names import SessionIdentity
from supervisor.core.sessions import Session
from supervisor.core.text.display import visible
from supervisor.core.text.duration import format_duration
from supervisor.parts import Parts

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


def agent_request(request: Request, redactor: Redactor) -> AgentRequest:
    """For the agent's door."""
    current = status(request)
    found = view_of(
        AgentRequest,
        request,
        redactor,
        status=current,
        decided=current != "pending",
        allowed=current in ("allowed", "approved", "used"),
        settled=is_settled(request),
        category=category_of(request.action),
        title=title(request.action),
        why=explanation(request),
        outcome=None,
    )
    # What its command printed, it gets as it is.
    return msgspec.structs.replace(found, outcome=request.outcome)


def view_of[View: msgspec.Struct](
    kind: type[View], record: object, redactor: Redactor, /, **made: Any
) -> View:
    """Return a record as its view (`with_fields_of`), each text as people may see it."""
    return shown_view(with_fields_of(record, kind, **made), redactor)


def with_fields_of[View: msgspec.Struct](record: object, kind: type[View], /, **made: Any) -> View:
    """Return the view that has the record's fields of the same names, and what is `made`. What the
    view doesn't name stays inside."""
    own = (name for name in kind.__struct_fields__ if name not in made)
    return kind(**made, **{name: getattr(record, name) for name in own})


def listed(requests: Iterable[Request], most_chars: int = MOST_LISTED_CHARS) -> list[Request]:
    """Return the first of these, as many as together stay short: an agent's texts may be long, and
    the answer is made in the event loop (law 14).
    """
    found: list[Request] = []
    chars = 0
    for one in requests:
        found.append(one)
        chars += len(msgspec.json.encode(one))
        if chars >= most_chars:
            break
    return found


def identity_of(parts: Parts, session: Session) -> SessionIdentity:
    """Return a session's name, icon and colour, as people may see them."""
    found = parts.sessions.identity(session)
    name = visible(parts.redactor.text(found.name), one_line=True)
    return msgspec.structs.replace(found, name=name)


def shown_view[View: msgspec.Struct](view: View, redactor: Redactor) -> View:
    """Return a view with each text as people may see it."""
    return msgspec.convert(shown_data(msgspec.to_builtins(view), redactor), type(view))


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


def size_text(size_bytes: int) -> str:
    """Return a number of bytes for people."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= scale:
            return f"{size_bytes / scale:,.1f} {unit}"
    return f"{size_bytes} B"
