"""Steps shared by all effects: intend, place, keep.

A file is replaced by renaming a synced temporary file in the same folder. So a reader sees the old
content or the new one, a hard link elsewhere keeps the old one, and kill -9 leaves at most a
temporary file, which the journal names. Replaced or removed content is kept first. Apply and undo
share these steps, so that both take the same care. It must never follow a symlink, write through a
hard link, or touch `.git` or the supervisor's data.

Only a checked file is replaced. A new file is put in place by link(2), which never replaces. Any
other is swapped in, and swapped back where an unexpected file came out (`swap`). What remains: on a
file system without swaps, a save by the person within some microseconds before the placing is lost;
the same holds for a deletion.
"""

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from supervisor.core.files.changes import Known, Seen, Signature, signature_of
from supervisor.core.files.undo_steps import HeldContent, held_of
from supervisor.core.policy.git_folders import FOLDER, UNKNOWN, RepositoryPiece
from supervisor.errors import GatehouseError
from supervisor.workspace.apply.rechecks import (
    check_still,
    holds,
    identity,
    is_identical,
    is_same,
)
from supervisor.workspace.disk.beneath import AS_UMASK, FILE, Modes, Root, split
from supervisor.workspace.disk.host_errors import stale
from supervisor.workspace.disk.swap import discard, drop_folder, link_new, replace
from supervisor.workspace.disk.syncing import Syncs
from supervisor.workspace.trees.history import History
from supervisor.workspace.trees.journal import decode_name
from supervisor.workspace.trees.repositories import RepositoryGuard, piece_at

TEMPORARY_PREFIX = ".gatehouse-"
FOLDER_ITSELF = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Beyond this many folders, temporary files are found by their paths alone: the supervisor needs its
# descriptors elsewhere.
MOST_HELD = 200


class HeldFolders:
    """Folders of one side's temporary files, held open until each file is placed or removed.

    A person may move a folder away in the middle of an effect. Its path then leads nowhere or to
    another folder, but the descriptor still leads here. Placing opens the path again, and finds the
    file there or nothing. A folder is released with its last temporary file.
    """

    def __init__(self) -> None:
        self._fds: dict[str, int] = {}
        self._folders: dict[str, str] = {}

    def opened(self, folder: str) -> int | None:
        """Return the descriptor of the folder that had this path when a file was made in it, if it
        is held."""
        return self._fds.get(folder)

    def keep(self, temporary: str, folder: str, fd: int) -> None:
        """Note that a temporary file is in this folder. This object owns `fd` from now on, if it
        isn't held already."""
        if folder not in self._fds:
            if len(self._fds) >= MOST_HELD:
                os.close(fd)
                return
            self._fds[folder] = fd
        self._folders[temporary] = folder

    def forget(self, temporary: str) -> None:
        """Note that the temporary name is gone."""
        self._folders.pop(temporary, None)
        self._close_if_unused()

    def remove(self, temporary: str) -> bool:
        """Remove the file, wherever its folder is by now. Return False where the folder isn't
        held."""
        folder = self._folders.pop(temporary, None)
        if folder is None:
            return False
        with contextlib.suppress(
            OSError
        ):  # it is gone with its folder, or can't be: the next start tries again
            discard(self._fds[folder], temporary)
        self._close_if_unused()
        return True

    def clear(self) -> None:
        """Remove all remaining files."""
        for temporary in list(self._folders):
            self.remove(temporary)

    def _close_if_unused(self) -> None:
        if self._folders:
            return
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()


class Applied(NamedTuple):
    """An effect: the side's state now, and before and after as values for `Restorer`.

    `changed` is False where the side already held the result: then there is nothing to take back.
    `folders` are the new parent folders, outermost first.
    """

    known: Known | None
    before: HeldContent | None
    after: HeldContent | None
    folders: tuple[str, ...] = ()
    changed: bool = True


class _StagingIn:
    """Result of `Placer.staging`, written by hand for speed like that of `Root.parent`. Adds the
    folder to those that are `there`, and leaves it open for `held`; opens it only if needed."""

    __slots__ = (
        "_fd",
        "_folder",
        "_held",
        "_is_held",
        "_name",
        "_naming",
        "_parent",
        "_temporary",
        "_there",
    )

    def __init__(
        self, placer: "Placer", name: str, temporary: str, there: set[str], modes: Modes
    ) -> None:
        self._parent = placer.root.parent(name, create=placer.sync, modes=modes)
        self._name, self._temporary, self._there, self._held = name, temporary, there, placer.held
        self._naming = placer.naming
        self._folder = name.rpartition("/")[0]

    def __enter__(self) -> tuple[int, str]:
        held = self._held.opened(self._folder)
        self._is_held = held is not None
        if held is not None:
            self._fd, leaf = held, split(self._name)[-1]
        else:
            with self._naming(self._folder, consent_of=self._name):  # it may be made
                self._fd, leaf = self._parent.__enter__()
        self._there.add(self._folder)
        return self._fd, leaf

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self._held.keep(self._temporary, self._folder, self._fd)
            return
        try:
            with contextlib.suppress(FileNotFoundError):
                discard(self._fd, self._temporary)
        finally:
            if not self._is_held:
                self._parent.__exit__()
        if self._is_held and isinstance(error, FileNotFoundError):
            raise stale(self._name) from None  # the folder was deleted since


class _PlacingIn:
    """Gives (folder, leaf) to a block that places a temporary file; afterwards the temporary name
    is gone in any case.

    Raise StaleError where the person moved the folder away since the file was staged; no other
    folder is made.
    """

    __slots__ = ("_name", "_parent", "_placer", "_temporary")

    def __init__(self, placer: "Placer", name: str, temporary: str) -> None:
        self._placer, self._name, self._temporary = placer, name, temporary
        self._parent = placer.root.parent(name)

    def __enter__(self) -> tuple[int, str]:
        try:
            return self._parent.__enter__()
        except BaseException as error:
            self._failed(error)
            raise

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._parent.__exit__()
        if error is None:
            self._placer.placed(self._temporary)
        else:
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        self._placer.unstage(self._name, self._temporary)
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            raise stale(self._name) from None


class Placer:
    """Steps of effects on one side. With a history (the host's), each effect is journaled and
    replaced content is kept.

    Not `durable`: a power cut may undo an effect, and nothing that relies on it may be recorded.
    """

    def __init__(
        self,
        root: Root,
        history: History | None,
        at: Callable[[str], None],
        *,
        durable: bool = True,
    ) -> None:
        self.root = root
        self._durable = durable
        self.at = at
        self._history = history
        self.guard = RepositoryGuard(root, history.consents) if history is not None else None
        self._postponed: set[str] | None = None
        self._staging: Syncs | None = None
        self._there: set[str] = set()
        self.held = HeldFolders()

    @contextlib.contextmanager
    def sharing_syncs(self) -> Iterator[None]:
        """Sync each folder once, at the end of this block, instead of after each effect in it."""
        if self._postponed is not None:
            yield
            return
        self._postponed = set()
        try:
            yield
        finally:
            self.held.clear()
            folders, self._postponed = self._postponed, None
            for folder in folders:
                # A folder that is gone needs no sync; its parent is among these.
                with (
                    contextlib.suppress(FileNotFoundError, NotADirectoryError),
                    self.root.directory(folder) as fd,
                ):
                    os.fsync(fd)

    @contextlib.contextmanager
    def staging_together(self) -> Iterator[None]:
        """Sync the temporary files made in this block together, at its end; none may be placed
        before. Raise OSError where that fails."""
        self._staging = Syncs()
        try:
            with (
                self._history.kept.sharing_sync()
                if self._history is not None
                else contextlib.nullcontext()
            ):
                yield
        finally:
            staging, self._staging = self._staging, None
            self._there.clear()
            staging.finish()

    def sync(self, fd: int) -> None:
        """Make an open file or folder durable, if effects are to be durable."""
        if not self._durable:
            return
        if self._staging is not None:
            self._staging.add(fd)
        else:
            os.fsync(fd)

    def unstage(self, name: str, temporary: str) -> None:
        """Remove a temporary file that won't be placed, wherever its folder is by now."""
        if not self.held.remove(temporary):
            with contextlib.suppress(OSError, GatehouseError), self.root.parent(name) as (fd, _):
                discard(fd, temporary)

    def placed(self, temporary: str) -> None:
        """Note that a temporary file was placed, and its temporary name is gone."""
        self.held.forget(temporary)

    def naming(
        self,
        name: str,
        piece: Callable[[], RepositoryPiece] = lambda: FOLDER,
        *,
        consent_of: str | None = None,
    ) -> contextlib.AbstractContextManager[None]:
        """Guard a block that gives something this name: see `RepositoryGuard.naming`."""
        if self.guard is None:
            return contextlib.nullcontext()
        return self.guard.naming(name, piece, consent_of or name)

    def sync_folder(self, fd: int, name: str) -> None:
        """Make a change of the folder that holds `name` durable, now or at the end of
        `sharing_syncs`."""
        if self._postponed is None:
            self.sync(fd)
        else:
            self._postponed.add(name.rpartition("/")[0])

    def begin(
        self,
        request_id: str,
        name: str,
        operation: str,
        host: Seen | None,
        after: HeldContent | None,
        temporary: str = "",
        repositories: tuple[str, ...] = (),
    ) -> Applied:
        """Keep the old content and record the intent. Return the future `Applied`, without `known`.

        The effect itself must not begin before this returns, and must not do anything else.
        """
        before = self.keep(name, host)
        # Begun again after a crash: the folders that it made then still belong to it.
        earlier = self._history.intended(request_id, name) if self._history is not None else None
        made = (
            tuple(decode_name(folder) for folder in earlier.folders) if earlier is not None else ()
        )
        folders = (
            tuple(dict.fromkeys((*made, *self._missing_folders(name)))) if host is None else ()
        )
        self.at("kept")
        if self._history is not None:
            self._history.intend(
                request_id, name, temporary, operation, before, after, folders, repositories
            )
        self.at("intended")
        if not set(folders).issuperset(self._missing_folders(name)):
            raise stale(
                name
            )  # moved away since: to make it anew would be an effect that isn't on record
        return Applied(None, before, after, folders)

    def done_before(self, request_id: str, name: str, known: Known | None) -> Applied:
        """Return the outcome of an effect that the side already shows, through this request before
        a crash, or through somebody else."""
        intent = self._history.intended(request_id, name) if self._history is not None else None
        if intent is None:
            return Applied(known, None, None, (), changed=False)
        return Applied(
            known,
            intent.before,
            intent.after,
            tuple(decode_name(folder) for folder in intent.folders),
        )

    def temporary(self) -> str:
        """Return an unused leaf name."""
        return f"{TEMPORARY_PREFIX}{secrets.token_hex(12)}"

    def staging(self, name: str, temporary: str, modes: Modes = AS_UMASK) -> "_StagingIn":
        """Give (folder, leaf) to a block that makes the temporary file. It stays for `place`,
        unless the block fails."""
        there = self._there if self._staging is not None else set[str]()
        return _StagingIn(self, name, temporary, there, modes)

    def was_there(self, name: str) -> bool:
        """Return whether the folder that holds a path existed a moment ago, when something was
        staged or placed in it."""
        folder = name.rpartition("/")[0]
        return folder in self._there or (self._postponed is not None and folder in self._postponed)

    def place(self, name: str, temporary: str, host: Seen | None) -> None:
        """Put the finished temporary file in its place, durably, unless the place has changed. The
        temporary name is gone afterwards."""
        with _PlacingIn(self, name, temporary) as (fd, leaf):
            self._place(fd, temporary, leaf, name, host)

    def place_signed(
        self, name: str, temporary: str, host: Seen | None, digest: str | None
    ) -> Signature | None:
        """Do as `place`. Return the signature of the placed file, whose content is `digest` (None:
        it is a link).

        Return None where somebody saved over it at once. INVARIANT: that file's signature is never
        taken for ours: it would count as agreed, and the next effect would replace it unseen.
        """
        with _PlacingIn(self, name, temporary) as (fd, leaf):
            made = identity(os.stat(temporary, dir_fd=fd, follow_symlinks=False))
            self._place(fd, temporary, leaf, name, host)
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(leaf, dir_fd=fd, follow_symlinks=False)
                is_ours = identity(status) == made and holds(fd, leaf, digest, status.st_size)
                return signature_of(status) if is_ours else None
            return None

    def _place(self, fd: int, temporary: str, leaf: str, name: str, host: Seen | None) -> None:
        is_taken = True
        try:
            self._give_name(fd, temporary, leaf, name, host)
            is_taken = (
                host is not None
            )  # by what was replaced; a new file was given its name in its stead
        finally:
            if is_taken:
                with contextlib.suppress(FileNotFoundError):
                    discard(fd, temporary)

    def _give_name(self, fd: int, temporary: str, leaf: str, name: str, host: Seen | None) -> None:
        check_still(fd, leaf, name, host)
        is_folder = host is not None and host.kind == "dir"
        ours = identity(os.stat(temporary, dir_fd=fd, follow_symlinks=False)) if is_folder else None
        self.at("checked")
        with self.naming(name, lambda: piece_at(fd, temporary, leaf) or UNKNOWN):
            if host is None:
                link_new(fd, temporary, leaf)
            elif not _replace(fd, temporary, leaf, host):
                raise stale(name)
        if is_folder:
            self.at("swapped")
            if not drop_folder(fd, temporary, leaf, lambda _, status: identity(status) == ours):
                raise stale(name)
        self.at("placed")
        self.sync_folder(fd, name)

    def remove(self, name: str, host: Seen) -> None:
        """Remove a file, a link or an empty folder, durably, unless it has changed."""
        with self.root.parent(name) as (fd, leaf):
            check_still(fd, leaf, name, host)
            if host.kind == "dir":
                os.rmdir(leaf, dir_fd=fd)
            else:
                os.unlink(leaf, dir_fd=fd)
            self.at("placed")
            self.sync_folder(fd, name)

    def set_folder_mode(self, name: str, mode: int, host: Seen | None) -> Signature:
        """Give a folder these permissions, durably, readable or not, unless it has changed. Return
        its new signature.

        What remains: permissions that the person sets within some microseconds are replaced, as
        fchmod(2) compares nothing.
        """
        with self.root.parent(name) as (fd, leaf):
            folder = os.open(leaf, FOLDER_ITSELF, dir_fd=fd)
            try:
                if host is not None and not is_same(signature_of(os.fstat(folder)), host):
                    raise stale(name)
                self.at("checked")
                self._set_mode(f"/proc/self/fd/{folder}", mode)
                self.at("placed")
                return signature_of(os.fstat(folder))
            finally:
                os.close(folder)

    def _set_mode(self, folder: str, mode: int) -> None:
        """Set an open folder's mode by a name that stands for exactly this one: fchmod(2) accepts
        no descriptor of an unreadable folder. Sync it where it is readable before or afterwards."""
        with contextlib.ExitStack() as opened:
            is_readable = _keep_open(folder, opened)
            Path(folder).chmod(mode)
            reading = is_readable if is_readable is not None else _keep_open(folder, opened)
            if reading is not None:
                self.sync(reading)

    def keep(self, name: str, host: Seen | None) -> HeldContent | None:
        """Keep content that is about to be replaced or removed; repeating it costs nothing. Raise
        StaleError where it has changed."""
        if host is None or host.kind != "file" or self._history is None:
            return held_of(host)
        if self._history.adopt(host.digest or ""):
            return held_of(
                host
            )  # whether it is still there is looked at once more before it is replaced
        with self.root.parent(name) as (folder, leaf):
            fd = os.open(leaf, FILE, dir_fd=folder)
        try:
            if signature_of(os.fstat(fd)) != host.signature or not self._history.keep(
                fd, host.digest or ""
            ):
                raise stale(name)
            return held_of(host)
        finally:
            os.close(fd)

    def _missing_folders(self, name: str) -> tuple[str, ...]:
        """Return the missing parent folders, outermost first."""
        if self.was_there(name):
            return ()
        parts = split(name)[:-1]
        for number in range(len(parts), 0, -1):
            try:
                with self.root.directory("/".join(parts[:number])):
                    return tuple("/".join(parts[: more + 1]) for more in range(number, len(parts)))
            except FileNotFoundError:
                continue
        return tuple("/".join(parts[: more + 1]) for more in range(len(parts)))


def _replace(fd: int, temporary: str, leaf: str, host: Seen) -> bool:
    """Replace the checked file by the temporary one. Return False where another file is there at
    that moment.

    INVARIANT: content is compared, too. The swap sets the change time, so nothing else shows bytes
    written in place, with the old size and time, since the check.
    """

    def is_expected(leaf: str, status: os.stat_result) -> bool:
        if host.kind == "dir":
            return is_same(signature_of(status), host)
        return is_identical(status, host.signature) and holds(fd, leaf, host.digest, status.st_size)

    try:
        return replace(fd, temporary, leaf, is_expected)
    except FileNotFoundError:
        return False


def _keep_open(folder: str, opened: contextlib.ExitStack) -> int | None:
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        return None
    opened.callback(os.close, fd)
    return fd
