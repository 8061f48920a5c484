"""Walk of one side: paths that differ by signature from the baseline.

An unchanged file costs one look at its folder's entry and no memory; only differences are kept.
`compare` and `incoming` share this walk, and differ only in their `WalkSide`. It must never read a
file, follow a link, or look into an ignored folder.
"""

import asyncio
import os
import stat
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from supervisor.core.files.changes import Known, Signature, signature_of
from supervisor.workspace.disk.watch import Watcher
from supervisor.workspace.trees.ignores import Ignores
from supervisor.workspace.trees.trees import Sides

# Beyond this, a tree isn't followed further in one go: an endless loop of new folders must not
# become ours.
MOST_PATHS = 500_000


class WalkSide(Protocol):
    """The parts of a walk that differ between the two directions."""

    def entries(self, folder: str) -> Iterable[tuple[str, os.stat_result | None]]:
        """Return a folder's entries to look at, with lstat; None: it is gone. Raise OSError. Called
        in a thread."""

    def gone(self, folder: str, seen: set[str], unseen: set[str]) -> set[str]:
        """Return known paths in a folder that are missing from `entries`. Called in a thread."""

    def is_hidden(self, leaf: str) -> bool:
        """Return whether a name is skipped in every folder."""

    def agreed(self, name: str, known: Known | None) -> Signature | None:
        """Return the signature with which a file or link needs no look."""

    def differs(self, known: Known | None, mode: int) -> bool:
        """Return whether a folder with this `st_mode` needs a look itself."""

    def enters(self, known: Known | None) -> bool:
        """Return whether to enter a folder even if its own events arrive."""

    def is_gone(self, name: str) -> None:
        """Note that one of the paths that `gone` returned isn't ignored."""

    def ignored(self, name: str) -> None:
        """Note that a path is skipped because it is ignored."""

    def found_git(self, folder: str) -> None:
        """Note that a folder has a `.git` in it. Called in a thread."""

    def is_empty_if_unreadable(self, folder: str, error: OSError) -> bool:
        """Return whether the entries of an unreadable folder count as gone. Called in a thread."""


class Walked(NamedTuple):
    """Result of a walk. `found`: paths that need a look, and whether something is there; `visited`:
    folders that were entered, `empty`: those without entries; `is_whole`: `MOST_PATHS` cut nothing
    off."""

    found: dict[str, bool]
    visited: set[str]
    empty: set[str]
    is_whole: bool = True


class _Folder(NamedTuple):
    """Differences in one folder: entries by path, and known paths that are gone."""

    entries: dict[str, os.stat_result]
    gone: set[str]
    number: int


class Walk:
    """Walks one side of one session. Calls must not overlap."""

    def __init__(self, side: WalkSide, sides: Sides, ignores: Ignores, watcher: Watcher) -> None:
        self._side = side
        self._sides = sides
        self._ignores = ignores
        self._watcher = watcher

    async def candidates(self, folders: set[str] | None) -> Walked:
        """Look into these folders, and into new ones below them; None: into all."""
        walked = Walked({}, set(), set())
        waiting = {""} if folders is None else set(folders)
        paths = 0
        while waiting and paths < MOST_PATHS:
            level = sorted(waiting - walked.visited)
            walked.visited.update(waiting)
            looks = await asyncio.to_thread(self._look_into, level)
            ignored = await self._ignores.among(self._unknown(looks.values()))
            waiting = set()
            for folder, look in looks.items():
                paths += look.number
                if not look.number:
                    walked.empty.add(folder)
                waiting |= self._differing(look, ignored, walked.found, everything=folders is None)
        if folders is None:
            self._watcher.keep_only(walked.visited)
        return walked._replace(is_whole=not waiting)

    def _look_into(self, folders: list[str]) -> dict[str, _Folder]:
        """Look into folders, which are watched first, so that nothing is missed in between."""
        out: dict[str, _Folder] = {}
        for folder in folders:
            self._watcher.add(folder)
            try:
                out[folder] = self._look(folder)
            except OSError as error:
                if self._side.is_empty_if_unreadable(folder, error):
                    out[folder] = _Folder({}, self._sides.children(folder), 0)
        return out

    def _look(self, folder: str) -> _Folder:
        """Look into one folder: the inner loop of a pass over an unchanged tree."""
        side, is_hidden, agreed, known_of = (
            self._side,
            self._side.is_hidden,
            self._side.agreed,
            self._sides.known,
        )
        prefix = f"{folder}/" if folder else ""
        names: set[str] = set()
        unseen: set[str] = set()
        entries: dict[str, os.stat_result] = {}
        for leaf, status in side.entries(folder):
            if is_hidden(leaf):
                if leaf == ".git":
                    side.found_git(folder)
                continue
            name = prefix + leaf
            if status is None:
                unseen.add(name)
                continue
            names.add(name)
            known = known_of(name)
            if known is None or known.kind == "dir" or agreed(name, known) != signature_of(status):
                entries[name] = status
        return _Folder(entries, side.gone(folder, names, unseen), len(names))

    def _unknown(self, looks: Iterable[_Folder]) -> list[str]:
        known, names = self._sides.known, list[str]()
        for look in looks:
            names += (
                _asked_as(name, status)
                for name, status in look.entries.items()
                if known(name) is None
            )
            # It is unknown whether it was a folder.
            names += (
                asked for name in look.gone if known(name) is None for asked in (name, f"{name}/")
            )
        return names

    def _differing(
        self, look: _Folder, ignored: set[str], found: dict[str, bool], *, everything: bool
    ) -> set[str]:
        """Add paths that need a look to `found`. Return the folders to enter next."""
        into: set[str] = set()
        for name, there in look.entries.items():
            if _asked_as(name, there) in ignored:
                self._side.ignored(name)
                continue
            known = self._sides.known(name)
            if not stat.S_ISDIR(there.st_mode):
                if self._side.agreed(name, known) != signature_of(there):
                    found[name] = True
                if self._was_folder(name):
                    into.add(name)  # not there any more as a folder: neither is what was in it
                continue
            if everything or self._side.enters(known) or not self._watcher.is_watched(name):
                into.add(name)
            if self._side.differs(known, there.st_mode):
                found[name] = True
        for name in look.gone:
            if not ignored.isdisjoint((name, f"{name}/")):
                continue
            self._side.is_gone(name)
            found[name] = False
            if self._was_folder(name):
                into.add(name)
        return into

    def _was_folder(self, name: str) -> bool:
        """Return whether a path was a folder, also by its entries: where the person changed a
        folder's mode, both sides' first state is unknown."""
        known = self._sides.known(name)
        return (known is not None and known.kind == "dir") or self._sides.holds_known(name)


def _asked_as(name: str, status: os.stat_result) -> str:
    """Return the name to ask `Ignores` about."""
    return f"{name}/" if stat.S_ISDIR(status.st_mode) else name
