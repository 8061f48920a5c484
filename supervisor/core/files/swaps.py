"""Swaps: a folder replaced by a file or link, or the reverse, as one action.

Pure. An action carries each changed path as a step, so that its fingerprint covers all; judging and
carrying out take it apart again. It must never leave out a path that disappears or appears.
"""

import os
from collections.abc import Iterable

import msgspec

from supervisor.core.actions import FileChange, FileStep, content_hash
from supervisor.core.files.changes import (
    Known,
    Seen,
    Want,
    conflict,
    name_fields,
    name_of,
    to_action,
)

# A person can't judge more paths than this as one change.
MOST_STEPS = 2000
# Bound on the bytes of all names together: the card, the request and the record each hold them, and
# two thousand names may have 4 kB each.
MOST_NAMED_BYTES = 512 * 1024

# A path below it, and what must happen there.
type Below = tuple[str, Want]


def named_bytes(name: str, target: str | None = None) -> int:
    """Return the bytes that a path's name takes in an action, including a link's target; a name
    that isn't UTF-8 counts twice."""
    shown, encoded = name_fields(name)
    return len(shown.encode()) + len(encoded or "") + len(os.fsencode(target or ""))


def going(known: Known | None, host: Seen) -> Want:
    """Return the deletion of a host path that disappears together with its folder."""
    return Want("delete", host.token, hazards=conflict(known, host))


def whole(name: str, wanted: Want, below: Iterable[Below]) -> FileChange:
    """Return the action that swaps a path (`wanted`), with everything that disappears and appears
    below it."""
    parts = sorted(below, key=lambda one: one[0])
    gone = [one for one in reversed(parts) if one[1].operation == "delete"]
    steps = tuple(
        _step(*one) for one in (*gone, *(one for one in parts if one[1].operation != "delete"))
    )
    hazards = dict.fromkeys(
        (*wanted.hazards, *(hazard for step in steps for hazard in step.hazards))
    )
    return msgspec.structs.replace(to_action(name, wanted), steps=steps, hazards=tuple(hazards))


def _step(name: str, wanted: Want) -> FileStep:
    shown, encoded = name_fields(name)
    fields = {
        field: getattr(wanted, field)
        for field in ("operation", "before", "after", "mode", "link_target", "hazards")
    }
    return FileStep(path=shown, path_b64=encoded, **fields)


def single_changes(action: FileChange) -> list[FileChange]:
    """Return an action's single-path changes: the swap's own change, which is still the whole
    action, and its steps."""
    if action.operation != "swap":
        return [action]
    around = action.repositories
    return [
        action,
        *(FileChange(**msgspec.structs.asdict(step), repositories=around) for step in action.steps),
    ]


def made_by(action: FileChange) -> str:
    """Return a token for a swap's outcome: the same outcome has the same token, whatever the host
    held before."""
    outcome = [
        (step.operation, step.path_b64 or step.path, step.after, step.mode, step.link_target)
        for step in action.steps
    ]
    return content_hash(msgspec.msgpack.encode((action.link_target, outcome)))


def strays(action: FileChange, there: Iterable[str]) -> list[str]:
    """Return the names below a folder that will be removed which the action doesn't name: they
    would be deleted unseen."""
    spoken = {name_of(one) for one in single_changes(action)}
    return sorted(name for name in there if name not in spoken)
