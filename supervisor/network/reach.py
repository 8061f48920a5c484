"""What one approved command may reach besides what its session's rules allow.

An install that a person approved reaches the package index and the download hosts on its card, and
nothing else, on listening sockets of its own. Egress knows these as a session apart (`stand_in`),
so that nothing which it remembers of the command helps the session. Deny rules hold as ever.
"""

import itertools
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from supervisor.core.network.egress_wire import (
    Draw,
    EgressRefused,
    FromEgress,
    Question,
    Reserve,
    Used,
)

_NUMBERS = itertools.count(1)


class Reach(NamedTuple):
    """`session_id` is the session that the command belongs to, `hosts` are (host, port)."""

    session_id: str
    hosts: frozenset[tuple[str, int]]


def stand_in(session_id: str) -> str:
    """Return the id of a session that egress hasn't seen, for one command of this one."""
    return f"{session_id}+{next(_NUMBERS)}"


def meant(message: FromEgress, reaches: Mapping[str, Reach]) -> FromEgress:
    """Return a message about a stand-in as one about its session; a question stays as it is."""
    return message if isinstance(message, Question) else of_session(message, reaches)


def of_session[M: FromEgress](message: M, reaches: Mapping[str, Reach]) -> M:
    """Return a message, a question too, as one about the session that a stand-in belongs to."""
    if not reaches or not isinstance(message, Question | Reserve | Draw | EgressRefused | Used):
        return message
    reach = reaches.get(message.session_id)
    if reach is None:
        return message
    return msgspec.structs.replace(message, session_id=reach.session_id)
