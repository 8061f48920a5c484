"""States of paths before and after effects, and the steps that undo them.

Pure. The journal, apply and undo must agree on what "unchanged" means, and an undo must be testable
without a file system. It must never call two states equal that a person would see as different:
content, link target and permissions all count.
"""

import base64
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from supervisor.core.files.changes import ANY_MODE, OWNER, Kind, Seen, link_token


class HeldContent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """State of a path. `target` is base64, so that any bytes survive; `mtime_ns` 0, `uid` and `gid`
    -1 mean unknown.

    `mode` is stat's without the kind: it includes the set-id bits.
    """

    kind: Kind
    mode: int
    digest: str | None = None
    target: str | None = None
    mtime_ns: int = 0
    uid: int = -1
    gid: int = -1

    @property
    def token(self) -> str:
        """Return the state's token, as in `Seen.token`."""
        if self.kind == "file":
            return self.digest or ""
        return link_token(self.link_target) if self.kind == "symlink" else self.kind

    @property
    def link_target(self) -> str:
        """Return a symlink's target, as the file system names it."""
        return os.fsdecode(base64.b64decode(self.target or ""))


# The permissions that the owner needs to create, replace and remove entries of a folder.
CHANGES_WITHIN = 0o300
MADE_FOLDER = HeldContent("dir", ANY_MODE)


class Effect(msgspec.Struct, frozen=True, gc=False):
    """One effect on one path. `number` is its place in the session's history, from 1, shared with
    folders that a file needed. `at` is in seconds since the epoch."""

    number: int
    request: str
    name: str
    operation: str
    before: HeldContent | None
    after: HeldContent | None
    at: float


class Restoration(msgspec.Struct, frozen=True, gc=False):
    """A path that shall hold `to` again (None: nothing) and now holds `expected`."""

    name: str
    to: HeldContent | None
    expected: HeldContent | None


class _Stack(msgspec.Struct, frozen=True, gc=False):
    """A stack of effects on one path, shared between the moments of a history, since a file may
    change often."""

    request: str
    beneath: "_Stack | None"


class Selection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Effects to take back: those of these requests and undos, or those after a place in the
    history or after a time (seconds since the epoch). If nothing is given, all of them."""

    ids: tuple[str, ...] = ()
    after: int | None = None
    since: float | None = None


def chosen(history: Sequence[Effect], selection: Selection) -> list[Effect]:
    """Return the effects that a selection means."""
    if selection.ids:
        ids = frozenset(selection.ids)
        return [effect for effect in history if effect.request in ids]
    if selection.after is not None:
        return [effect for effect in history if effect.number > selection.after]
    if selection.since is not None:
        return [effect for effect in history if effect.at > selection.since]
    return list(history)


def held_of(seen: Seen | None) -> HeldContent | None:
    """Convert a look's result to a value for the journal."""
    if seen is None:
        return None
    target = None if seen.target is None else _encoded(seen.target)
    return HeldContent(
        seen.kind, seen.mode, seen.digest, target, seen.signature[1], seen.uid, seen.gid
    )


def held_link(target: str) -> HeldContent:
    """Return the state of a symlink with this target."""
    return HeldContent("symlink", 0o777, None, _encoded(target))


def is_as(seen: Seen | None, held: HeldContent | None) -> bool:
    """Return whether a path is in this state: kind, content, target and permissions. Times and a
    folder's entries don't count."""
    return is_same(held_of(seen), held)


def is_same(one: HeldContent | None, other: HeldContent | None) -> bool:
    """Return whether two states look the same to a person."""
    if one is None or other is None:
        return one is None and other is None
    if one.kind != other.kind or one.token != other.token:
        return False
    return one.kind == "symlink" or ANY_MODE in (one.mode, other.mode) or _mode(one) == _mode(other)


def restorations(history: Sequence[Effect], chosen: Sequence[Effect]) -> list[Restoration]:
    """Return the steps that take the chosen effects back, in order: removals from the inside out,
    then creations from the outside in; a folder's permissions before or after all other steps, as
    those need them. If several effects changed a path, the state before the first and the state
    after the last count.

    A folder that the session made is removed with the last file in it, whichever effect made it,
    unless it holds anything else. A folder that the session removed comes back with the first file
    in it, whichever effect removed it, so that it gets its own permissions; if it exists again, it
    is left as it is.
    """
    first: dict[str, HeldContent | None] = {}
    last: dict[str, HeldContent | None] = {}
    for effect in chosen:
        first.setdefault(effect.name, effect.before)
        last[effect.name] = effect.after
    net = [
        Restoration(name, to, last[name])
        for name, to in first.items()
        if not is_same(to, last[name])
    ]
    going = [one for one in net if one.to is None or _swaps(one)]
    gone = {one.name for one in going}
    made = made_folders(history)
    above = {
        folder for one in going if one.to is None for folder in _above(one.name) if folder in made
    }
    going += [Restoration(folder, None, MADE_FOLDER) for folder in above - first.keys()]
    modes = [one for one in net if is_mode_of_folder(one.to, one.expected)]
    coming = [
        one for one in net if one.to is not None and not is_mode_of_folder(one.to, one.expected)
    ]
    taken = _taken_folders(history)
    needed = {folder for one in coming for folder in _above(one.name) if folder in taken}
    coming += [Restoration(folder, taken[folder], None) for folder in needed - first.keys()]
    return [
        *sorted((one for one in modes if lets_in(one.to)), key=_by_name),
        *(
            Restoration(one.name, None, one.expected)
            for one in sorted(going, reverse=True, key=_by_name)
        ),
        *(
            Restoration(one.name, one.to, None if one.name in gone else one.expected)
            for one in sorted(coming, key=_by_name)
        ),
        *sorted((one for one in modes if not lets_in(one.to)), reverse=True, key=_by_name),
    ]


def with_open_folders(steps: Iterable[Restoration]) -> list[Restoration]:
    """Add steps for a user who isn't root, who can't remove from or add to a folder that denies
    access to its owner. Such a folder is opened first if it is to be removed, and closed last, from
    the inside out, if it comes back."""
    steps = list(steps)
    opening: list[Restoration] = []
    between: list[Restoration] = []
    shutting: list[Restoration] = []
    for one in steps:
        if one.to is None and (expected := _opened(one.expected)) is not None:
            opening.append(Restoration(one.name, expected, one.expected))
            between.append(msgspec.structs.replace(one, expected=expected))
        elif one.expected is None and (to := _opened(one.to)) is not None:
            between.append(msgspec.structs.replace(one, to=to))
            shutting.append(Restoration(one.name, one.to, to))
        else:
            between.append(one)
    return [*sorted(opening, key=_by_name), *between, *sorted(shutting, reverse=True, key=_by_name)]


def kept_out_of(steps: Iterable[Restoration], name: str) -> bool:
    """Return whether the only reason that a path can't be read is a closed folder above it, which
    these steps open before they reach the path."""
    above = set(_above(name))
    return any(
        one.name in above
        and _opened(one.expected) is not None
        and (one.to is None or lets_in(one.to))
        for one in steps
    )


def _opened(held: HeldContent | None) -> HeldContent | None:
    """Return a folder that denies access to its owner as it would be with access; None for anything
    else."""
    if held is None or held.kind != "dir" or held.mode == ANY_MODE or held.mode & OWNER == OWNER:
        return None
    return msgspec.structs.replace(held, mode=held.mode | OWNER)


def made_folders(history: Iterable[Effect]) -> set[str]:
    """Return the folders that didn't exist before the session."""
    first: dict[str, Effect] = {}
    for effect in history:
        first.setdefault(effect.name, effect)
    return {
        name
        for name, effect in first.items()
        if effect.before is None and effect.after and effect.after.kind == "dir"
    }


def _taken_folders(history: Iterable[Effect]) -> dict[str, HeldContent]:
    """Return the folders that the session's last effect on them removed, in their former state."""
    taken: dict[str, HeldContent] = {}
    for effect in history:
        taken.pop(effect.name, None)
        if effect.after is None and effect.before is not None and effect.before.kind == "dir":
            taken[effect.name] = effect.before
    return taken


def in_force(history: Iterable[Effect], undos: Mapping[str, Collection[str]]) -> set[str]:
    """Return the requests and undos whose effect at least one path still has. `undos`: id -> whose
    effects it took back.

    Effects stack on each path. An undo restores the state beneath the first effect that it took
    back, so an undo of an undo brings back what that undo took away.
    """
    return _Laid(undos).with_more(history)


def in_force_until(
    history: Iterable[Effect], then: Iterable[Effect], undos: Mapping[str, Collection[str]]
) -> tuple[set[str], set[str]]:
    """Return `in_force` after the history alone, and after the history with the effects in
    `then`."""
    laid = _Laid(undos)
    return laid.with_more(history), laid.with_more(then)


class _Laid:
    """Effects as they lie on each other, path by path, and the state of each path before each of
    its effects."""

    def __init__(self, undos: Mapping[str, Collection[str]]) -> None:
        self._of = {
            undo: frozenset(ids) for undo, ids in undos.items()
        }  # of thousands, each is looked for in all
        self._past: dict[str, list[tuple[str, _Stack | None]]] = {}
        self._stacks: dict[str, _Stack | None] = {}

    def with_more(self, effects: Iterable[Effect]) -> set[str]:
        """Return the state after these further effects."""
        for effect in effects:
            before = self._past.setdefault(effect.name, [])
            stack = beneath = self._stacks.get(effect.name)
            ids = self._of.get(effect.request)
            if ids is not None:
                taken = [request in ids or request == effect.request for request, _ in before]
                if True in taken:
                    first = taken.index(True)
                    beneath = before[first][1] if all(taken[first:]) else _without(stack, ids)
            before.append((effect.request, stack))
            self._stacks[effect.name] = _Stack(effect.request, beneath)
        found: set[str] = set()
        for on_top in self._stacks.values():
            stack = on_top
            while stack is not None:
                found.add(stack.request)
                stack = stack.beneath
        return found


def _without(stack: _Stack | None, ids: Collection[str]) -> _Stack | None:
    rest: _Stack | None = None
    for request in reversed([one for one in _requests(stack) if one not in ids]):
        rest = _Stack(request, rest)
    return rest


def is_mode_of_folder(one: HeldContent | None, other: HeldContent | None) -> bool:
    """Return whether two states differ only in the permissions of a folder."""
    return one is not None and other is not None and one.kind == other.kind == "dir"


def lets_in(held: HeldContent | None) -> bool:
    """Return whether a folder's owner may change its entries: then this mode must be set before
    such a change, otherwise after it."""
    return held is not None and (held.mode & CHANGES_WITHIN) == CHANGES_WITHIN


def _requests(stack: _Stack | None) -> Iterator[str]:
    """Yield the requests on the stack, from the top."""
    while stack is not None:
        yield stack.request
        stack = stack.beneath


def _swaps(one: Restoration) -> bool:
    """Return whether a folder replaces something else, or the reverse: the old entry must be
    removed before the new one appears."""
    return (
        one.to is not None
        and one.expected is not None
        and (one.to.kind == "dir") != (one.expected.kind == "dir")
    )


def _by_name(one: Restoration) -> list[str]:
    return one.name.split("/")


def _above(name: str) -> list[str]:
    parts = name.split("/")[:-1]
    return ["/".join(parts[:number]) for number in range(1, len(parts) + 1)]


def _mode(held: HeldContent) -> int:
    return stat.S_IMODE(held.mode)


def _encoded(target: str) -> str:
    return base64.b64encode(os.fsencode(target)).decode()
