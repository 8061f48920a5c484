"""What one approved command may reach besides what its session's rules allow.

An install that a person approved reads (GET, HEAD) at the package index and the download hosts on
its card, and nothing else, on listening sockets of its own. So does the plan of one, before the
answer: with no secret, and where the rules ask only at the person's own index (law 11). Egress
knows these as a session apart (`stand_in`), so that nothing which it remembers of the command helps
the session. Deny rules hold as ever.
"""

import itertools
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
# No id of a session has it.
_MARK = "+"


class Reach(NamedTuple):
    """`session_id` is the session that the command belongs to, `hosts` are (host, port). `covered`
    are those of them where nothing asks."""

    session_id: str
    hosts: frozenset[tuple[str, int]]
    covered: frozenset[tuple[str, int]]


def stand_in(session_id: str) -> str:
    """Return the id of a session that egress hasn't seen, for one command of this one."""
    return f"{session_id}{_MARK}{next(_NUMBERS)}"


def meant(message: FromEgress) -> FromEgress:
    """Return a message about a stand-in as one about its session. A question stays as it is, and so
    does a report of traffic, which may be the last of the stand-in but not of its session."""
    return message if isinstance(message, Question | Used) else of_session(message)


def of_session[M: FromEgress](message: M) -> M:
    """Return a message, a question too, as one about the session that a stand-in belongs to. What
    egress still says of one that was closed belongs to its session as well."""
    if not isinstance(message, Question | Reserve | Draw | EgressRefused | Used):
        return message
    session_id, mark, _ = message.session_id.partition(_MARK)
    return msgspec.structs.replace(message, session_id=session_id) if mark else message
