"""Changes of the host to bring into the copy: the mirror of `changes.want`.

Pure. Each path is compared three ways, as there: `known` (the state on which both sides last
agreed), `mine` (the agent's copy) and `host`. The two directions must never act on the same path: a
path is brought into the copy only if the agent has not touched it; `want` asks about it in every
other case. INVARIANT: for no three states do both `want` and `incoming` ask for something.
"""

from typing import Literal

import msgspec

from supervisor.core.files.changes import (
    PERMISSIONS,
    SPECIAL,
    Known,
    Seen,
    Want,
    agree,
    conflict,
    is_still,
)

# `nothing`: the host is unchanged. `agreed`: both sides hold the same by now. `bring`: the copy
# must follow the host. `conflict`: the agent changed the path, too, and a person decides. `never`:
# the host has a kind that no copy gets.
Verdict = Literal["nothing", "agreed", "bring", "conflict", "never"]


class Incoming(msgspec.Struct, frozen=True):
    """A change for the copy. `steps` lists what must happen in the copy, in this order, for it to
    follow the host."""

    verdict: Verdict
    steps: tuple[Want, ...] = ()


NOTHING, AGREED, CONFLICT, NEVER = (
    Incoming(one) for one in ("nothing", "agreed", "conflict", "never")
)


def incoming(known: Known | None, mine: Seen | None, host: Seen | None) -> Incoming:
    """Return the change that the host's state asks of the agent's copy for one path."""
    if mine is None and host is None:
        return NOTHING if known is None else AGREED
    if mine is not None and agree(known, mine, host):
        return NOTHING if known is not None and is_known_of(known, mine, host) else AGREED
    if not conflict(known, host, mine):
        return NOTHING
    if _agent_changed(known, mine):
        return CONFLICT
    if host is not None and host.kind in SPECIAL:
        return NEVER
    return Incoming("bring", steps(mine, host))


def is_known_of(known: Known, mine: Seen, host: Seen | None) -> bool:
    """Return whether an agreement is exactly about these two states, so that nothing needs to be
    written."""
    if mine.kind == "dir":
        has_looked = known.kind == "dir" and known.host_signature is not None
        return has_looked and known.mode == mine.mode & PERMISSIONS and not conflict(known, host)
    return host is not None and (known.host_signature, known.copy_signature) == (
        host.signature,
        mine.signature,
    )


def _agent_changed(known: Known | None, mine: Seen | None) -> bool:
    if known is None or mine is None:
        return (known is None) != (mine is None)
    return not is_still(mine, known)


def steps(mine: Seen | None, host: Seen | None) -> tuple[Want, ...]:
    """Return the steps that bring the copy's path to the host's state, in order."""
    before = mine.token if mine else None
    if host is None:
        return (Want("delete", before),)
    if mine is not None and (host.kind == "dir") != (mine.kind == "dir"):
        # A folder replaces a file, or the reverse: the old entry is removed first.
        return (Want("delete", before), *steps(None, host))
    if host.kind == "symlink":
        return (Want("symlink", before, host.token, link_target=host.target),)
    mode = host.mode & PERMISSIONS
    if host.kind == "dir":
        return (Want("chmod" if mine is not None else "mkdir", before, "dir", mode),)
    same_content = mine is not None and mine.kind == "file" and mine.digest == host.digest
    return (Want("chmod" if same_content else "write", before, host.token, mode),)
