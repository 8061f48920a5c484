"""Move a file to another path of the same tree: one rename, never over anything.

Folders are opened one by one. The file keeps its inode, owner, times and mode. The journal has an
intent for each of the two paths, with what both held before, so that undo and a batch can put them
back like any other change.

It must never replace a file at the new path, nor move anything but the file that was checked: a
file saved at the old path in the last moment is moved back.
"""

import os
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from supervisor.core.actions import FileChange
from supervisor.core.files.changes import (
    PERMISSIONS,
    Known,
    Seen,
    names_of,
    rename_of,
    signature_of,
)
from supervisor.core.files.new_folders import modes_on_way
from supervisor.core.files.undo_steps import held_of
from supervisor.core.policy.git_folders import UNKNOWN
from supervisor.errors import GatehouseError
from supervisor.workspace.apply.placing import Applied, Placer
from supervisor.workspace.apply.rechecks import check_still, holds, is_identical
from supervisor.workspace.disk.beneath import Modes, Root, split
from supervisor.workspace.disk.host_errors import StaleError, stale
from supervisor.workspace.disk.scan import look
from supervisor.workspace.disk.swap import move_new
from supervisor.workspace.trees.repositories import piece_at


class Ends(NamedTuple):
    """The contents of a move's two paths."""

    old: Seen | None
    new: Seen | None


class _Place(NamedTuple):
    """An open folder and a name in it."""

    folder: int
    leaf: str


class Mover:
    """Carries out renames below `root`. Blocking: call it in a thread, one at a time. `at` is
    `Applier`'s."""

    def __init__(self, root: Root, placer: Placer, at: Callable[[str], None]) -> None:
        self._root = root
        self._placer = placer
        self._at = at

    def check(self, action: FileChange, request_id: str) -> Ends:
        """Return the state of both paths, where the action fits it or is done. Raise StaleError,
        PathError or OSError."""
        name, to = _paths(action)
        ends = look_at_ends(self._root, action)
        if is_moved(action, ends) or self._has_both_names(request_id, to, ends):
            return ends
        if ends.old is None or ends.old.token != action.before:
            raise stale(name)
        if ends.new is not None:
            raise _taken(to)
        if ends.old.kind != "file":
            raise GatehouseError(
                f"`{name}` is a {ends.old.kind}: only files are moved", "move the files in it"
            )
        return ends

    def carry_out(
        self, action: FileChange, ends: Ends, request_id: str, use: Callable[[FileChange], None]
    ) -> Applied:
        """Do the move. `ends` is the result of `check`. In the outcome, `known` is the new path's
        state, `before` the old one's."""
        name, to = _paths(action)
        moved = ends.old or ends.new
        assert moved is not None
        # Rebuilt from what is about to be done; see `rebuilt`.
        again = rename_of(name, to, moved.token, action.hazards)
        use(
            msgspec.structs.replace(again, folders=action.folders, repositories=action.repositories)
        )
        known = Known(
            moved.kind, moved.mode & PERMISSIONS, moved.digest, moved.target, moved.signature
        )
        if ends.old is None:
            return self._placer.done_before(request_id, name, known)
        if ends.new is not None:
            self._placer.remove(name, moved)
            return self._placer.done_before(request_id, name, known)
        around = action.repositories
        begun = self._placer.begin(
            request_id, name, action.operation, moved, None, repositories=around
        )
        there = self._placer.begin(
            request_id, to, action.operation, None, held_of(moved), repositories=around
        )
        self._at("both intended")
        status = self._move(name, to, moved, modes_on_way(action))
        known = msgspec.structs.replace(known, host_signature=signature_of(status))
        return begun._replace(known=known, folders=there.folders)

    def _has_both_names(self, request_id: str, to: str, ends: Ends) -> bool:
        """Return whether this request's move was interrupted on a file system that needs two steps
        for it."""
        if ends.old is None or ends.new is None or ends.old.signature != ends.new.signature:
            return False
        return self._placer.done_before(request_id, to, None).changed

    def _move(self, name: str, to: str, moved: Seen, modes: Modes) -> os.stat_result:
        making = self._root.parent(to, create=self._placer.sync, modes=modes)
        known_as = split(to)[-1]
        with (
            self._root.parent(name) as here,
            self._placer.naming(to, lambda: piece_at(*here, known_as) or UNKNOWN),
            making as there,
        ):
            check_still(*here, name, moved)
            self._at("checked")
            try:
                move_new(*here, *there)
            except FileExistsError:
                raise _taken(to) from None
            self._at("placed")
            status = os.stat(there[1], dir_fd=there[0], follow_symlinks=False)
            # The change time isn't compared: the rename itself sets it.
            if not (
                is_identical(status, moved.signature)
                and holds(*there, moved.digest, status.st_size)
            ):
                self._go_back(_Place(*here), name, _Place(*there), to)
            self._placer.sync_folder(there[0], to)
            self._placer.sync_folder(here[0], name)
            return status

    def _go_back(self, here: _Place, name: str, there: _Place, to: str) -> None:
        """Move a file back that was saved at the old path between the check and the rename."""
        try:
            move_new(*there, *here)
        except FileExistsError:  # and once more since
            raise StaleError(
                f"`{name}` was saved meanwhile: an older version is at `{to}` now", "look at both"
            ) from None
        raise stale(name)


def look_at_ends(root: Root, action: FileChange) -> Ends:
    """Return the state of a rename's two paths. Raise as `look`, or PathError where one is no
    path."""
    name, to = _paths(action)
    return Ends(look(root, name), look(root, to))


def is_moved(action: FileChange, ends: Ends) -> bool:
    """Return whether the paths already have the action's result."""
    return ends.old is None and ends.new is not None and ends.new.token == action.after


def _paths(action: FileChange) -> tuple[str, str]:
    name, to = names_of(action)
    split(name)
    split(to)
    return name, to


def _taken(to: str) -> StaleError:
    return StaleError(
        f"there is something at `{to}` on the host; nothing was overwritten", "choose another name"
    )
