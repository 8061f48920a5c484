"""A folder in the place of a file or a link, or the other way round: everything that goes and comes
by it as one action. Pure.

It is separate from `changes`, which looks at one path, because here the fate of many hangs on
one answer. An action carries each of them as a step, so that its fingerprint is over all of it;
judging and carrying out take it apart again. It must never leave out anything that goes or
comes.
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

# More paths than this are no change that a person can judge as one.
MOST_STEPS = 2000
# Nor are names that take more than this together: the card, the request and the record each hold
# all of them, and two thousand names may have 4 kB each.
MOST_NAMED_BYTES = 512 * 1024

# A path below it, and what must happen there.
type Below = tuple[str, Want]


def named_bytes(name: str, target: str | None = None) -> int:
    """What naming a path takes in an action, with the target of a link; one that isn't UTF-8 is
    named twice."""
    shown, encoded = name_fields(name)
    return len(shown.encode()) + len(encoded or "") + len(os.fsencode(target or ""))


def going(known: Known | None, host: Seen) -> Want:
    """What a path of the host's asks for that goes with its folder."""
    return Want("delete", host.token, hazards=conflict(known, host))


def whole(name: str, wanted: Want, below: Iterable[Below]) -> FileChange:
    """The action for a path that is swapped (`wanted`) with all that goes and comes below it."""
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
    """What an action consists of, each a change of one path: a swap's own, which is the whole
    action still, and its steps."""
    if action.operation != "swap":
        return [action]
    around = action.repositories
    return [
        action,
        *(FileChange(**msgspec.structs.asdict(step), repositories=around) for step in action.steps),
    ]


def made_by(action: FileChange) -> str:
    """What a swap makes of everything below it, in one word: the same for the same outcome,
    whatever the host held before."""
    outcome = [
        (step.operation, step.path_b64 or step.path, step.after, step.mode, step.link_target)
        for step in action.steps
    ]
    return content_hash(msgspec.msgpack.encode((action.link_target, outcome)))


def strays(action: FileChange, there: Iterable[str]) -> list[str]:
    """Of the names below a folder that is about to go, those that the action doesn't speak of:
    they would go unseen."""
    spoken = {name_of(one) for one in single_changes(action)}
    return sorted(name for name in there if name not in spoken)
