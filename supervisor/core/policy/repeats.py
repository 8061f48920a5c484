"""Repeated requests: which ones mean the same, and how long a denial stands.

Pure. It decides only what is *refused* without asking again. INVARIANT: nothing here ever allows:
mistaking two requests for the same costs an agent some minutes, and no more. So it may ignore what
a rule must never ignore, such as a query string.
"""

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from supervisor.core.actions import Action, Exec, Git, Network, Packages, Proposal
from supervisor.core.shell.shell import parse
from supervisor.core.text.duration import format_duration
from supervisor.core.text.hosts import canonical_host
from supervisor.core.text.urls import DEFAULT_PORTS, normalise_path

type Likeness = tuple[str, ...]

# How long a wish isn't asked again after its first, second and third denial; after a fourth, it
# isn't asked again in this session.
BACK_OFF_S = (60.0, 300.0, 900.0)
_DO_WITHOUT = "do without it, or ask the operator for a rule"


class DenialCount(NamedTuple):
    """How often a wish was denied again after its last denial had expired, and until when the
    latest denial stands."""

    times: int
    until: float


def likeness(action: Action) -> Likeness | None:
    """Return what an action has in common with its repetitions; None if only an identical action
    repeats it.

    File changes differ by their content, and we ask about them, not an agent in a loop; each raise
    of the budget stands alone.
    """
    match action:
        case Network():
            return _of_network(action)
        case Exec():
            return ("exec", action.cwd, *_programs(action.command))
        case Git():
            how = [
                name
                for name, is_so in (("forces", action.force), ("deletes", action.delete))
                if is_so
            ]
            return (
                "git",
                action.operation,
                action.remote or "",
                *how,
                *sorted(action.flags),
                "",
                *action.refspecs,
            )
        case Packages():
            return (
                "packages",
                action.manager,
                action.operation,
                *sorted(action.flags),
                "",
                *sorted(action.names),
            )
        case Proposal():
            return ("sandbox", action.effect, "".join(action.rule.split()))
    return None


def standing(denied_at: Iterable[float]) -> DenialCount:
    """Derive how long a wish is denied from the times of its denials, in seconds since the
    epoch."""
    times, until = 0, -math.inf
    for at in sorted(denied_at):
        if at >= until:  # denied together, or by "deny all", is denied once
            times += 1
            until = at + BACK_OFF_S[times - 1] if times <= len(BACK_OFF_S) else math.inf
    return DenialCount(times, until)


def remedy(until: float, now: float) -> str:
    """Tell an agent when it may ask again after a denial that stands until then, and what else it
    may do."""
    if until == math.inf:
        return f"it isn't asked again in this session: {_DO_WITHOUT}"
    if until <= now:
        return f"it may be asked again; or {_DO_WITHOUT}"
    at = datetime.fromtimestamp(math.ceil(until), UTC)
    return (
        f"ask again after {at:%H:%M:%S} UTC (in {format_duration(math.ceil(until - now))}), or do"
        " without it"
    )


def _of_network(action: Network) -> Likeness:
    """Return host, port (80 and 443 are one), and a request's method and path without its query."""
    try:
        host = canonical_host(action.host)
    except ValueError:
        host = action.host
    port = "web" if action.port in DEFAULT_PORTS.values() else str(action.port)
    if action.operation == "connect":
        return ("connect", host, port)
    return (
        "request",
        host,
        port,
        (action.method or "").upper(),
        normalise_path(action.path or "/").text,
    )


def _programs(command: str) -> Iterable[str]:
    """Return the commands of a line, word by word. A line that can't be split stands for itself,
    with its spaces normalised."""
    script = parse(command)
    if script.constructs:
        yield " ".join(command.split())
        return
    for one in script.commands:
        yield str(len(one.words))
        yield from (f"={word.text}" if word.is_literal else f"~{word.raw}" for word in one.words)
