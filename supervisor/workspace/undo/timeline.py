"""Timeline of what was applied to the host, oldest first.

It has one row for each request, for requests that were answered and carried out together, and for
each undo. It changes nothing.
"""

import posixpath
from collections.abc import Collection

import msgspec

from supervisor.core.files.changes import name_fields
from supervisor.core.files.text_diff import MOST_TEXT_BYTES, diff
from supervisor.core.files.undo_steps import Effect, HeldContent, in_force
from supervisor.workspace.trees.history import History
from supervisor.workspace.trees.trees import Sides

MOST_PATHS = 20
# Rows about more files have no line counts: they would take too long for a page.
MOST_COUNTED = 8


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A change. `number` is the last of its effects' places in the history. `undoes`: what an undo
    took back, in words.

    `in_force`: whether any path still holds its result, by the record. `by` is the operator of an
    undo. `requests`: how many were answered together, all of them below `folder`; `taken_back`: how
    many of them are no longer in force.
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
    requests: int = 1
    taken_back: int = 0
    folder: str = ""


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """All rows, and how many older changes are no longer kept, and why."""

    rows: tuple[Row, ...]
    forgotten: int = 0
    forgotten_why: str = ""


def timeline(history: History, of: str = "") -> Timeline:
    """Return the changes that can be undone, oldest first. With `of`, return one by one the
    requests that were answered together under that id."""
    effects = history.effects()
    forced = in_force(effects, {undo.id: undo.of for undo in history.undos.values()})
    together = {
        request: one
        for one, requests in history.batches.items()
        if len(requests) > 1
        for request in requests
    }
    found: dict[str, list[Effect]] = {}
    for effect in effects:
        batch = together.get(effect.request, "")
        if not of or batch == of:
            found.setdefault(effect.request if of else batch or effect.request, []).append(effect)
    rows = tuple(_row(history, one, some, forced) for one, some in found.items())
    return Timeline(
        rows=rows, forgotten=history.forgotten.number, forgotten_why=history.forgotten.why
    )


def line_counts(sides: Sides, row_id: str) -> tuple[int, int] | None:
    """Return the lines added and removed by a row's requests or undo, or None where they aren't
    counted: too many, too large, no text."""
    of = frozenset(sides.history.requests_of([row_id]))
    files = [
        one for one in sides.history.effects() if one.request in of and "dir" not in _kinds(one)
    ]
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


def _row(history: History, row_id: str, effects: list[Effect], forced: Collection[str]) -> Row:
    undo = history.undos.get(row_id)
    names = _told(effects)
    requests = {one.request for one in effects}
    kept = len(requests.intersection(forced))
    is_one = len(requests) == 1
    return Row(
        id=row_id,
        number=effects[-1].number,
        at=effects[-1].at,
        operation="undo" if undo else _operation(effects, names[:1] if is_one else names),
        paths=tuple(name_fields(name)[0] for name in names[:MOST_PATHS]),
        count=len(names),
        undoes=undo.what if undo else "",
        by=undo.by if undo else "",
        in_force=kept > 0,
        requests=len(requests),
        taken_back=len(requests) - kept,
        folder=""
        if is_one
        else name_fields(posixpath.commonpath([posixpath.dirname(name) for name in names]))[0],
    )


def _operation(effects: list[Effect], names: list[str]) -> str:
    """Return the operation on these paths, if it is the same for each."""
    of = set(names)
    operations = dict.fromkeys(one.operation for one in effects if one.name in of)
    return next(iter(operations), "") if len(operations) < 2 or len(of) == 1 else "change"


def _told(effects: list[Effect]) -> list[str]:
    """Return the paths to show: parent folders only if there is nothing else."""
    names = dict.fromkeys(one.name for one in effects)
    files = dict.fromkeys(one.name for one in effects if "dir" not in _kinds(one))
    return list(files or names)


def _kinds(effect: Effect) -> set[str]:
    return {held.kind for held in (effect.before, effect.after) if held is not None}


def _content(sides: Sides, held: HeldContent | None) -> bytes | None:
    """Return a file's content for counting lines; empty for a missing path or a link."""
    if held is None or held.kind != "file" or held.digest is None:
        return b""
    found = sides.history.kept.read(held.digest, MOST_TEXT_BYTES)
    if found is None:
        found = sides.blobs.read(held.digest, MOST_TEXT_BYTES)
    return None if found is None or len(found) > MOST_TEXT_BYTES else found
