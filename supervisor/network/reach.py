"""Hosts that one approved command may reach beyond its session's rules.

An install that a person approved may read (GET, HEAD) at the package index and the download hosts
on its card, and nothing else, on listening sockets of its own. So may the plan of an install,
before the answer: with no secret, and where the rules ask only at the person's own index (law 11).
For egress, each is a separate session (`stand_in`), so that nothing it remembers of the command
helps the session. Deny rules hold as ever. An operator's MCP server is one, too, with rules of its
own.
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
from supervisor.core.policy.rules import Policy

_NUMBERS = itertools.count(1)
# No session id contains it.
_MARK = "+"


class Reach(NamedTuple):
    """The hosts of one command. `session_id` is the command's session, `hosts` are (host, port).
    `covered` are the hosts where nothing asks."""

    session_id: str
    hosts: frozenset[tuple[str, int]]
    covered: frozenset[tuple[str, int]]
    # Instead of hosts: the rules of an operator's MCP server, which does more than read.
    own: Policy | None = None


def stand_in(session_id: str) -> str:
    """Return the id of a session that egress hasn't seen, for one command of this session."""
    return f"{session_id}{_MARK}{next(_NUMBERS)}"


def meant(message: FromEgress) -> FromEgress:
    """Return a message about a stand-in as one about its session. Questions stay as they are, and
    so do traffic reports, which may be the last of the stand-in but not of its session."""
    return message if isinstance(message, Question | Used) else of_session(message)


def of_session[M: FromEgress](message: M) -> M:
    """Return a message, also a question, as one about the stand-in's session. Late messages about a
    closed stand-in belong to its session as well."""
    if not isinstance(message, Question | Reserve | Draw | EgressRefused | Used):
        return message
    session_id, mark, _ = message.session_id.partition(_MARK)
    return msgspec.structs.replace(message, session_id=session_id) if mark else message
