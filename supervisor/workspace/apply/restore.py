"""Put back what a path held: content, permissions, times, link targets, folders.

A path that held nothing is removed again. A folder gets its permissions back, but not its time,
which changes with its entries.

It carries out no request: the restored state was there before, and comes from the history. It must
never overwrite anything unexpected, follow a symlink, or give a set-id bit to a file whose owner
has changed.
"""

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from supervisor.core.files.changes import OWNER, PERMISSIONS, SET_ID, Seen
from supervisor.core.files.undo_steps import HeldContent, held_of, is_as, is_mode_of_folder, is_same
from supervisor.core.policy.git_folders import FOLDER, MOST_HEAD_BYTES, RepositoryPiece
from supervisor.errors import GatehouseError
from supervisor.workspace.apply.access import keep_access
from supervisor.workspace.apply.placing import Applied, Placer
from supervisor.workspace.disk.beneath import Root, split
from supervisor.workspace.disk.blobs import write_all
from supervisor.workspace.disk.host_errors import as_errors, stale
from supervisor.workspace.disk.scan import look
from supervisor.workspace.trees.history import History

OPERATION = "undo"


class StagedBack(NamedTuple):
    """A finished file under a temporary name beside its place. `begun` is what `place` returns."""

    name: str
    host: Seen | None
    temporary: str
    begun: Applied


class Restorer:
    """Puts back paths below `root`. Blocking: call it in a thread, one at a time. `at` is
    `Applier`'s."""

    def __init__(
        self, root: Root, history: History, *, at: Callable[[str], None] = lambda step: None
    ) -> None:
        self._root = root
        self._history = history
        self._at = at
        self._placer = Placer(root, history, at)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Restore several paths: each folder is synced once, at the end of the block."""
        with self._placer.sharing_syncs():
            yield

    def staging_together(self) -> contextlib.AbstractContextManager[None]:
        """Do as `Applier.staging_together`."""
        return self._placer.staging_together()

    def stage(
        self,
        request_id: str,
        name: str,
        held: HeldContent | None,
        expected: HeldContent | None,
        seen: Seen | None = None,
    ) -> StagedBack | None:
        """Write a file beside its place, as `restore` would. Return None where that isn't possible,
        or not yet: `restore` then does everything, or says why not."""
        if held is None or held.kind != "file":
            return None
        with as_errors(name):
            try:
                self._refuse_repositories(name, held)
                host = seen if seen is not None else look(self._root, name)
            except PermissionError:
                return None  # its folder is opened before it
            now = held_of(host)
            if (
                (host is not None and host.kind == "dir")
                or is_same(now, held)
                or not is_same(now, expected)
            ):
                return None
            if not (self._placer.was_there(name) or self._is_open_to(name)):
                return None  # its folder comes back before it, or the right to write there
            return self._stage_file(request_id, name, held, host)

    def _is_open_to(self, name: str) -> bool:
        try:
            with self._root.parent(name) as (fd, _):
                return os.access(".", os.W_OK | os.X_OK, dir_fd=fd, effective_ids=True)
        except OSError:
            return False

    def place(self, staged: StagedBack) -> Applied:
        """Put the staged file in its place. Raise as `restore`."""
        with as_errors(staged.name):
            return self._place(staged)

    def unstage(self, staged: StagedBack) -> None:
        """Remove a staged file that won't be placed."""
        self._placer.unstage(staged.name, staged.temporary)

    def restore(
        self,
        request_id: str,
        name: str,
        held: HeldContent | None,
        expected: HeldContent | None,
        seen: Seen | None = None,
    ) -> Applied:
        """Put a path back to `held` (None: nothing), if it is in the state `expected` now. `seen`
        is the result of a look just now: then the file isn't read again, and its signature shows
        whether it is unchanged.

        Its intent is journaled under `request_id` and the old content is kept, as for any effect;
        the caller confirms it. Repeating it is no error. Raise StaleError, NotKeptError, PathError
        or another GatehouseError; then nothing has changed.
        """
        split(name)
        with as_errors(name):
            host = seen if seen is not None else look(self._root, name)
            if not is_mode_of_folder(
                held_of(host), held
            ):  # what such a folder holds was there, and may not be looked at yet
                self._refuse_repositories(name, held)
            if is_as(host, held):
                return self._placer.done_before(request_id, name, None)
            if not is_as(host, expected):
                raise stale(name)
            return self._put_back(request_id, name, held, host)

    def _refuse_repositories(self, name: str, held: HeldContent | None) -> None:
        if held is not None and self._placer.guard is not None:
            self._placer.guard.check_back(name, piece_held(held, self._history))

    def let_in(self, name: str, held: HeldContent | None) -> None:
        """Let the owner into a folder in the state `held`, to take back its entries. Raise as
        `restore`."""
        with as_errors(name):
            host = look(self._root, name)
            if host is not None and is_as(host, held) and host.mode & OWNER != OWNER:
                self._placer.set_folder_mode(name, host.mode | OWNER, host)

    def _put_back(
        self, request_id: str, name: str, held: HeldContent | None, host: Seen | None
    ) -> Applied:
        if held is not None and host is not None and (held.kind == "dir") != (host.kind == "dir"):
            raise stale(
                name
            )  # the one thing has to go before the other comes: two steps, for two calls
        if held is None:
            begun = self._placer.begin(request_id, name, OPERATION, host, None)
            if host is not None:
                self._placer.remove(name, host)
            return begun
        match held.kind:
            case "file":
                return self._place(self._stage_file(request_id, name, held, host))
            case "symlink":
                return self._link(request_id, name, held, host)
            case "dir":
                return self._folder(request_id, name, held, host)
            case _:
                raise GatehouseError(
                    f"`{name}` was a {held.kind}, which isn't brought back", "make it yourself"
                )

    def _stage_file(
        self, request_id: str, name: str, held: HeldContent, host: Seen | None
    ) -> StagedBack:
        temporary = self._placer.temporary()
        begun = self._placer.begin(request_id, name, OPERATION, host, held, temporary)
        with self._placer.staging(name, temporary) as (fd, leaf):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            writing = os.open(temporary, flags, 0o600, dir_fd=fd)
            try:
                self._at("created")
                for block in self._history.kept.blocks(held.digest or ""):
                    write_all(writing, block)
                mode = stat.S_IMODE(held.mode)
                kept = keep_access(writing, mode, host, (fd, leaf), held.gid)
                if kept != mode:
                    less = msgspec.structs.replace(held, mode=kept)
                    begun = self._placer.begin(request_id, name, OPERATION, host, less, temporary)
                os.fchmod(writing, _mode_for(kept, os.fstat(writing).st_uid == held.uid))
                if held.mtime_ns:
                    os.utime(writing, ns=(held.mtime_ns, held.mtime_ns))
                self._placer.sync(writing)
            finally:
                os.close(writing)
            self._at("written")
        return StagedBack(name, host, temporary, begun)

    def _place(self, staged: StagedBack) -> Applied:
        self._placer.place(staged.name, staged.temporary, staged.host)
        return staged.begun

    def _link(self, request_id: str, name: str, held: HeldContent, host: Seen | None) -> Applied:
        temporary = self._placer.temporary()
        begun = self._placer.begin(request_id, name, OPERATION, host, held, temporary)
        with self._placer.staging(name, temporary) as (fd, _):
            os.symlink(held.link_target, temporary, dir_fd=fd)
            if held.mtime_ns:
                os.utime(
                    temporary, ns=(held.mtime_ns, held.mtime_ns), dir_fd=fd, follow_symlinks=False
                )
            self._at("written")
        self._placer.place(name, temporary, host)
        return begun

    def _folder(self, request_id: str, name: str, held: HeldContent, host: Seen | None) -> Applied:
        begun = self._placer.begin(request_id, name, OPERATION, host, held)
        if host is None:
            making = self._root.parent(name, create=self._placer.sync)
            with self._placer.naming(name), making as (fd, leaf):
                os.mkdir(
                    leaf, held.mode & PERMISSIONS, dir_fd=fd
                )  # never more than it had, not for an instant
                self._at("placed")
                self._placer.sync_folder(fd, name)
        self._placer.set_folder_mode(name, stat.S_IMODE(held.mode), host)
        return begun


def piece_held(held: HeldContent, history: History) -> RepositoryPiece:
    """Return which part of a repository's folder a restored path may be."""
    match held.kind:
        case "file":
            return RepositoryPiece(
                "file", history.kept.read(held.digest or "", MOST_HEAD_BYTES - 1)
            )
        case "symlink":
            return RepositoryPiece("symlink", os.fsencode(held.link_target))
        case _:
            return FOLDER


def _mode_for(mode: int, is_same_owner: bool) -> int:
    """Return the old permissions; a set-id bit only for the owner that it was set for."""
    return mode & (PERMISSIONS | SET_ID | stat.S_ISVTX if is_same_owner else PERMISSIONS)
