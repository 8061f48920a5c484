"""Apply one granted change to the host's workspace, completely or not at all.

It decides only whether the host is still what the request was about: `before` must be there now,
and content comes from the snapshot whose hash is `after`. It and `restore` are the only code that
writes to the user's folder, by the steps of `placing`. It must never follow a symlink, set a set-id
bit, or touch `.git` or the supervisor's data.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable

import msgspec

from supervisor.core.actions import FileChange
from supervisor.core.files.changes import (
    OWNER,
    PERMISSIONS,
    Known,
    Seen,
    name_fields,
    name_of,
)
from supervisor.core.files.new_folders import modes_on_way
from supervisor.core.files.swaps import strays
from supervisor.core.files.undo_steps import HeldContent
from supervisor.core.policy.git_folders import MOST_HEAD_BYTES
from supervisor.errors import GatehouseError
from supervisor.workspace.apply.moving import Mover
from supervisor.workspace.apply.placing import Applied, Placer
from supervisor.workspace.apply.rechecks import rebuilt
from supervisor.workspace.apply.staging import EffectContents, Staged, Stager, Use, folder_mode_of
from supervisor.workspace.disk.beneath import DIRECTORY, Root, split
from supervisor.workspace.disk.host_errors import StaleError, as_errors, stale
from supervisor.workspace.disk.scan import each_name, look, look_quietly
from supervisor.workspace.trees.history import History


class Applier:
    """Carries out file changes below `root`. Blocking: call it in a thread, one at a time. The
    host's applier has a history.

    `at(step)` is called before and after each step that a crash could separate; tests end the
    process there.
    """

    def __init__(
        self,
        root: Root,
        blobs: EffectContents,
        history: History | None,
        *,
        at: Callable[[str], None] = lambda step: None,
        durable: bool = True,
    ) -> None:
        self._root = root
        self._blobs = blobs
        self._at = at
        self._placer = Placer(root, history, at, durable=durable)
        self._stager = Stager(blobs, self._placer, at)
        self._mover = Mover(root, self._placer, at)

    def apply(
        self, action: FileChange, request_id: str, use: Use, *, mtime_ns: int | None = None
    ) -> Applied:
        """Apply the action. Return what the host then holds, and what it held. `use` is the
        grant's.

        Repeating a finished action is no error. `mtime_ns` is the time for a written file, unless
        that would hide the change from programs that compare times. Raise StaleError, PathError,
        RefusedError or another GatehouseError; then nothing has changed, except that new empty
        folders may exist on the way.
        """
        if action.operation == "rename":
            return self.move(action, request_id, use)
        host = self.check(action, request_id)
        return self.shut(action, self.carry_out(action, host, request_id, use, mtime_ns=mtime_ns))

    def check_move(self, action: FileChange, request_id: str) -> Seen | None:
        """Return the state of a rename's old path, if the rename is possible now, or done. Raise as
        `apply`."""
        with as_errors(name_of(action)):
            self._refuse_repositories(action)
            return self._mover.check(action, request_id).old

    def keep(self, action: FileChange, host: Seen | None) -> None:
        """Keep the content that a deletion or rename will remove from its path. `host` is the
        path's state. Raise as `apply`."""
        with as_errors(name_of(action)):
            self._placer.keep(name_of(action), host)

    def move(self, action: FileChange, request_id: str, use: Use) -> Applied:
        """Do a rename; see `Mover`. Raise as `apply`."""
        with as_errors(name_of(action)):
            self._refuse_repositories(action)
            return self._mover.carry_out(
                action, self._mover.check(action, request_id), request_id, use
            )

    def sharing_syncs(self) -> contextlib.AbstractContextManager[None]:
        """Sync each folder once, at the end of this block. Effects in the block aren't settled
        before."""
        return self._placer.sharing_syncs()

    def check(self, action: FileChange, request_id: str) -> Seen | None:
        """Return the host's state: what the action is about, or the action's complete or begun
        result. Raise as `apply`."""
        name = name_of(action)
        split(name)
        with as_errors(name):
            self._refuse_repositories(action)
            host = look(self._root, name)
            is_ours = self._is_done(action, host, request_id) or self._is_unfinished(
                action, host, request_id
            )
            if not is_ours and (host.token if host else None) != action.before:
                raise stale(name)
            if (
                action.operation == "swap"
                and host is not None
                and host.kind == "dir"
                and action.after != "dir"
            ):
                self._check_below(action)
            return host

    def _refuse_repositories(self, action: FileChange) -> None:
        if self._placer.guard is not None:
            self._placer.guard.check(action, self._begins)

    def _begins(self, digest: str) -> bytes | None:
        try:
            fd = self._blobs.open(digest)
        except FileNotFoundError:
            return None
        with os.fdopen(fd, "rb") as file:
            return file.read(MOST_HEAD_BYTES)

    def _check_below(self, action: FileChange) -> None:
        """INVARIANT: a folder is removed only where the action names everything in it."""
        found = strays(action, each_name(self._root, name_of(action)))
        if found:
            text = (
                f"`{name_fields(found[0])[0]}` is in the folder, too, and no part of this; nothing"
                " was changed"
            )
            raise StaleError(text, "look at it and ask again")

    def stage(
        self,
        action: FileChange,
        host: Seen | None,
        request_id: str,
        use: Use,
        *,
        mtime_ns: int | None = None,
    ) -> Staged | None:
        """Write a file or link beside its place. `host` is the result of `check`. Return None where
        there is nothing to stage, or not yet: `carry_out` then does everything. Raise as `apply`.
        """
        name = name_of(action)
        is_folder = host is not None and host.kind == "dir" and action.operation != "swap"
        if (
            self._is_done(action, host, request_id)
            or action.operation in ("delete", "mkdir")
            or is_folder
        ):
            return None
        if self._is_unfinished(action, host, request_id):
            return None
        with as_errors(name):
            if not self._placer.was_there(name) and self._is_in_the_way(name):
                return None  # it may go with the other changes
            if action.operation == "chmod" and host is not None:
                mtime_ns = host.signature[1]
            return self._stager.stage(action, name, host, request_id, use, mtime_ns)

    def _is_in_the_way(self, name: str) -> bool:
        """Return whether a non-folder stands where a parent folder should be, or a parent folder
        isn't writable (yet)."""
        try:
            with self._root.parent(name) as (fd, _):
                return not os.access(".", os.W_OK | os.X_OK, dir_fd=fd, effective_ids=True)
        except FileNotFoundError:
            return False  # it is made
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                return True
            raise

    def staging_together(self) -> contextlib.AbstractContextManager[None]:
        """Make everything staged in this block durable at its end; only then may any of it be
        placed. Raise OSError where that fails."""
        return self._placer.staging_together()

    def unstage(self, staged: Staged) -> None:
        """Remove a staged file that won't be placed."""
        self._placer.unstage(staged.name, staged.temporary)

    def place(self, staged: Staged) -> Applied:
        """Put the staged file or link in its place. Raise as `apply`."""
        with as_errors(staged.name):
            return self._place(staged)

    def carry_out(
        self,
        action: FileChange,
        host: Seen | None,
        request_id: str,
        use: Use,
        *,
        mtime_ns: int | None = None,
    ) -> Applied:
        """Do the whole effect. `host` is the result of `check`. Raise as `apply`."""
        name = name_of(action)
        with as_errors(name):
            if self._is_done(action, host, request_id):
                use(action)
                return self._placer.done_before(request_id, name, _known(action, host))
            if self._is_unfinished(action, host, request_id):
                use(action)
                return self._placer.done_before(request_id, name, _known(action, host))
            return self._carry_out(action, name, host, request_id, use, mtime_ns)

    def shut(self, action: FileChange, applied: Applied) -> Applied:
        """Set a new folder's own permissions once all its entries are there: without root's rights,
        no entry could be added later. Permissions that the person set since stay. Raise as `apply`.
        """
        if not _makes_folder(action):
            return applied
        name, mode = name_of(action), folder_mode_of(action)
        with as_errors(name):
            host = look(self._root, name)
            if host is None or host.kind != "dir" or host.mode & PERMISSIONS & ~(mode | OWNER):
                raise stale(name)
            if host.mode & PERMISSIONS == mode:
                return applied
            self._at("shutting")
            # The set-id bit comes from the parent folder.
            return applied._replace(
                known=self._set_folder_mode(name, mode | (host.mode & ~PERMISSIONS), host)
            )

    def _is_done(self, action: FileChange, host: Seen | None, request_id: str) -> bool:
        """Return whether the host already has the action's result. A file that this request placed
        before a crash counts, with the permissions that it may have (see `access`)."""
        if _has_result(action, host):
            return True
        if host is None or host.kind != "file" or host.token != action.after:
            return False
        placed = self._placer.done_before(request_id, name_of(action), None).after
        return placed is not None and (placed.token, placed.mode) == (
            host.token,
            host.mode & PERMISSIONS,
        )

    def _is_unfinished(self, action: FileChange, host: Seen | None, request_id: str) -> bool:
        """Return whether this is a folder that this request made before a crash, without its
        permissions yet."""
        if not _makes_folder(action) or host is None or host.kind != "dir":
            return False
        is_begun = self._placer.done_before(request_id, name_of(action), None).changed
        return is_begun and not host.mode & PERMISSIONS & ~(folder_mode_of(action) | OWNER)

    def found_done(self, action: FileChange, request_id: str, use: Use) -> Applied | None:
        """Return the outcome of an action that was carried out before a crash, or None where the
        path was changed since. Changes nothing."""
        host = look_quietly(self._root, name_of(action))
        is_done = self._is_done(action, host, request_id)
        return self.carry_out(action, host, request_id, use) if is_done else None

    def _place(self, staged: Staged) -> Applied:
        name, host, temporary, begun = staged
        signature = self._placer.place_signed(
            name, temporary, host, begun.known.digest if begun.known else None
        )
        known = begun.known and msgspec.structs.replace(begun.known, host_signature=signature)
        return begun._replace(known=known)

    def _carry_out(
        self,
        action: FileChange,
        name: str,
        host: Seen | None,
        request_id: str,
        use: Use,
        mtime_ns: int | None,
    ) -> Applied:
        is_folder = host is not None and host.kind == "dir"
        match action.operation:
            case "write" | "edit" | "symlink" if is_folder:
                # A swap would replace the folder, with everything in it, by a file's old version.
                raise GatehouseError(
                    f"`{name}` is a folder on the host; nothing was changed", "choose another name"
                )
            case "write" | "edit" | "symlink" | "swap":
                return self._place(
                    self._stager.stage(action, name, host, request_id, use, mtime_ns)
                )
            case "chmod" if host is not None and host.kind == "dir":
                return self._folder_mode(action, name, host, request_id, use)
            case "chmod":
                kept_ns = host.signature[1] if host is not None else None
                return self._place(
                    self._stager.stage_file(action, name, host, request_id, use, kept_ns)
                )
            case "mkdir":
                return self._make_folder(action, name, request_id, use)
            case "delete":
                return self._delete(action, name, host, request_id, use)
            case _:
                raise GatehouseError(
                    f"`{action.operation}` is no change of one path", "ask for the change again"
                )

    # -- effects ----------------------------------------------------------------------------------

    def _make_folder(self, action: FileChange, name: str, request_id: str, use: Use) -> Applied:
        use(rebuilt(action, name, None, after="dir", mode=action.mode))
        mode = folder_mode_of(action)
        begun = self._stager.begin(request_id, action, None, HeldContent("dir", mode))
        making = self._root.parent(name, create=self._placer.sync, modes=modes_on_way(action))
        with self._placer.naming(name), making as (fd, leaf):
            # As close to the final mode as the umask allows, in case a crash comes right after.
            os.mkdir(leaf, mode | OWNER, dir_fd=fd)
            self._at("placed")
            made = os.open(leaf, DIRECTORY, dir_fd=fd)
            try:
                self._placer.sync(made)
            finally:
                os.close(made)
            self._placer.sync_folder(fd, name)
        return begun._replace(known=Known("dir", mode))

    def _folder_mode(
        self, action: FileChange, name: str, host: Seen, request_id: str, use: Use
    ) -> Applied:
        use(rebuilt(action, name, host, after="dir", mode=action.mode))
        # Set-id and sticky bits stay the folder's own: they decide the group of new entries.
        mode = folder_mode_of(action) | (host.mode & ~PERMISSIONS)
        begun = self._stager.begin(request_id, action, host, HeldContent("dir", mode))
        return begun._replace(known=self._set_folder_mode(name, mode, host))

    def _set_folder_mode(self, name: str, mode: int, host: Seen | None = None) -> Known:
        signature = self._placer.set_folder_mode(name, mode, host)
        return Known("dir", mode & PERMISSIONS, host_signature=signature)

    def _delete(
        self, action: FileChange, name: str, host: Seen | None, request_id: str, use: Use
    ) -> Applied:
        use(rebuilt(action, name, host, after=None))
        begun = self._stager.begin(request_id, action, host, None)
        if host is not None:
            self._placer.remove(name, host)
        return begun

    def prune(self, name: str, is_gone: Callable[[str], bool], request_id: str) -> list[str]:
        """Remove empty folders above a deleted path that the copy lacks too, as git would. Return
        their names."""
        removed: list[str] = []
        parts = list(split(name)[:-1])
        while parts and is_gone("/".join(parts)):
            folder = "/".join(parts)
            try:
                host = look(self._root, folder)
                if host is None and not self._placer.done_before(request_id, folder, None).changed:
                    break  # somebody else removed it
                if host is not None:
                    if not self._is_empty(folder):
                        break
                    self._placer.begin(request_id, folder, "delete", host, None)
                    self._placer.remove(folder, host)
            except (OSError, GatehouseError):
                break
            removed.append(folder)
            parts.pop()
        return removed

    def _is_empty(self, folder: str) -> bool:
        with self._root.directory(folder) as fd, os.scandir(fd) as listing:
            return next(listing, None) is None


def _has_result(action: FileChange, host: Seen | None) -> bool:
    """Return whether the host already has the action's result, mode included."""
    if action.operation == "delete":
        return host is None
    if host is None or host.token != action.after:
        return False
    return (
        host.kind == "symlink"
        or action.mode is None
        or host.mode & PERMISSIONS == action.mode & PERMISSIONS
    )


def _known(action: FileChange, host: Seen | None) -> Known | None:
    if host is None:
        return None
    seen_bit = stat.S_ISUID if "setuid" in action.hazards else 0
    # A file may have fewer permissions than requested; both sides agreed on the copy's.
    agreed = action.mode if host.kind == "file" and action.mode is not None else host.mode
    return Known(
        host.kind, agreed & PERMISSIONS | seen_bit, host.digest, host.target, host.signature
    )


def _makes_folder(action: FileChange) -> bool:
    return action.operation == "mkdir" or (action.operation == "swap" and action.after == "dir")
