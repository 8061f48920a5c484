"""What was applied to the host, as a person looks back on it: one row for each request and each undo, oldest first.

It is separate from `undo` because it only tells. It changes nothing.
"""

import msgspec

from supervisor.core.changes import name_fields
from supervisor.core.text_diff import MOST_TEXT_BYTES, diff
from supervisor.core.undoing import Effect, Held, in_force
from supervisor.workspace.history import History
from supervisor.workspace.sides import Sides

MOST_PATHS = 20
# Where one row is about many files, their lines aren't counted: nobody waits that long for a page.
MOST_COUNTED = 8


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A change. `number` is the last of its effects' place in the history. `undoes`: what an undo took back, in words.

    `in_force`: whether any path still holds what it did, by the record; `by` is the operator of an undo.
    """

    id: str
    number: int
    at: float
    operation: str
    paths: tuple[str, ...]
    count: int
    undoes: str = ""
    by: str = ""
    in_force: bool = True


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """All rows, and how many older changes are no longer kept, and why."""

    rows: tuple[Row, ...]
    forgotten: int = 0
    forgotten_why: str = ""


def timeline(history: History) -> Timeline:
    """What can be undone, oldest first."""
    effects = history.effects()
    forced = in_force(effects, {undo.id: undo.of for undo in history.undos.values()})
    found: dict[str, list[Effect]] = {}
    for effect in effects:
        found.setdefault(effect.request, []).append(effect)
    rows = tuple(_row(history, request, of, request in forced) for request, of in found.items())
    return Timeline(rows=rows, forgotten=history.forgotten.number, forgotten_why=history.forgotten.why)


def line_counts(sides: Sides, request: str) -> tuple[int, int] | None:
    """Lines added and removed by a request or an undo; None where they aren't counted: too many, too large, no text."""
    files = [one for one in sides.history.effects() if one.request == request and "dir" not in _kinds(one)]
    if len(files) > MOST_COUNTED:
        return None
    added = removed = 0
    for effect in files:
        old, new = (_content(sides, held) for held in (effect.before, effect.after))
        if old is None or new is None:
            return None
        compared = diff(old, new)
        if compared.binary or compared.too_large:
            return None
        added, removed = added + compared.added, removed + compared.removed
    return added, removed


def _row(history: History, request: str, effects: list[Effect], forced: bool) -> Row:
    undo = history.undos.get(request)
    names = _told(effects)
    return Row(
        id=request,
        number=effects[-1].number,
        at=effects[-1].at,
        operation="undo" if undo else next((one.operation for one in effects if one.name == names[0]), ""),
        paths=tuple(name_fields(name)[0] for name in names[:MOST_PATHS]),
        count=len(names),
        undoes=undo.what if undo else "",
        by=undo.by if undo else "",
        in_force=forced,
    )


def _told(effects: list[Effect]) -> list[str]:
    """The paths that a person thinks of: not the folders on the way, unless there is nothing else."""
    names = dict.fromkeys(one.name for one in effects)
    files = dict.fromkeys(one.name for one in effects if "dir" not in _kinds(one))
    return list(files or names)


def _kinds(effect: Effect) -> set[str]:
    return {held.kind for held in (effect.before, effect.after) if held is not None}


def _content(sides: Sides, held: Held | None) -> bytes | None:
    """A file's content for counting lines; nothing for what isn't there or is a link."""
    if held is None or held.kind != "file" or held.digest is None:
        return b""
    found = sides.history.kept.read(held.digest, MOST_TEXT_BYTES)
    if found is None:
        found = sides.blobs.read(held.digest, MOST_TEXT_BYTES)
    return None if found is None or len(found) > MOST_TEXT_BYTES else found
