"""What an id, or its start, may be the id of: people type as much of it as says which is meant."""

from itertools import islice
from typing import Literal

import msgspec

from supervisor.core.text.id_starts import only_of
from supervisor.parts import Parts
from supervisor.server.operator import rules_view

# Of each kind: enough to say that a start isn't that of one thing alone.
MOST = 10


class KnownId(msgspec.Struct, frozen=True, kw_only=True):
    """An id, and of what."""

    id: str
    of: Literal["request", "session", "rule"]


def known_ids(parts: Parts, start: str) -> list[KnownId]:
    """Return what has an id that begins so."""
    sessions = (one for one in parts.sessions.ids() if one.startswith(start))
    rules = (one.id for one in rules_view.rules(parts) if one.id and one.id.startswith(start))
    return [
        *(KnownId(id=one, of="request") for one in parts.queue.ids_from(start, MOST)),
        *(KnownId(id=one, of="session") for one in islice(sessions, MOST)),
        *(KnownId(id=one, of="rule") for one in islice(rules, MOST)),
    ]


def to_undo(parts: Parts, start: str) -> str:
    """Return the one id of a request or session that begins so; the text where nothing does."""
    return only_of(start, (one.id for one in known_ids(parts, start) if one.of != "rule"))
