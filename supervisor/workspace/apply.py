"""Effects on the host's workspace: each exactly what a grant says, whole or not at all.

It decides nothing but whether the host is still what the request was about: `before` must be there now, and content is
taken from the snapshot whose hash is `after`. A file is replaced by rename of a synced temporary file in the same folder,
so a reader sees the old content or the new one, a hard link elsewhere keeps the old one, and kill -9 leaves at most a
temporary file, which the journal names. It is separate because it is the only code that writes to the user's folder.
It must never follow a symlink, write through a hard link, set a set-id bit, or touch `.git` or the supervisor's data.

What remains: between the last look at the host's file and the rename lie microseconds in which a save by the person
would be replaced. A new file has no such gap: it is put in place by link(2), which never replaces.
"""

import contextlib
import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator

from supervisor.core.actions import FileChange
from supervisor.core.changes import PERMISSIONS, Known, Seen, link_token, name_fields, name_of, signature_of
from supervisor.errors import GatehouseError
from supervisor.workspace.beneath import PathError, Root, split
from supervisor.workspace.blobs import BlobStore
from supervisor.workspace.journal import Intent, Journal, decode_name
from supervisor.workspace.scan import BLOCK_BYTES, UnsteadyError, digest_fd, look

TEMPORARY_PREFIX = ".gatehouse-"
NEW_FILE_MODE = 0o644
# File systems without hard links answer link(2) with one of these.
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


class StaleError(GatehouseError):
    """The host isn't what the request was about any more. Nothing was changed."""

    http_status = 409


def stale(name: str) -> StaleError:
    """The error for a path that changed on the host."""
    return StaleError(f"`{name}` changed on the host since; nothing was overwritten", "look at it and ask again")


class Applier:
    """Carries out file changes below `root`. Blocking: call it in a thread, one at a time. The host's has a journal.

    `at(step)` is called before and after each step that a crash could fall between; tests end the process there.
    """

    def __init__(
        self, root: Root, blobs: BlobStore, journal: Journal | None, *, at: Callable[[str], None] = lambda step: None
    ) -> None:
        self._root = root
        self._blobs = blobs
        self._journal = journal
        self._at = at

    def apply(self, action: FileChange, request_id: str, use: Callable[[FileChange], None]) -> Known | None:
        """Do what the action says; what the host then holds. `use` is the grant's, called right before the effect.

        Doing again what is done already is no error. Raises StaleError, PathError, RefusedError or another
        GatehouseError, after which nothing has changed (but perhaps new empty folders on the way).
        """
        name = name_of(action)
        split(name)
        try:
            host = look(self._root, name)
            if _is_done(action, host):
                use(action)
                return _known(action, host)
            if (host.token if host else None) != action.before:
                raise stale(name)
            return self._carry_out(action, name, host, request_id, use)
        except UnsteadyError:
            raise stale(name) from None
        except FileExistsError:
            raise stale(name) from None
        except OSError as error:
            raise GatehouseError(f"`{name}` can't be changed on the host: {error.strerror}", _remedy(error)) from error

    def _carry_out(
        self, action: FileChange, name: str, host: Seen | None, request_id: str, use: Callable[[FileChange], None]
    ) -> Known | None:
        is_folder = host is not None and host.kind == "dir"
        match action.operation:
            case "write" | "edit":
                return self._put_file(action, name, host, request_id, use)
            case "chmod" if not is_folder:
                return self._put_file(action, name, host, request_id, use)
            case "chmod":
                return self._folder_mode(action, name, host, use)
            case "mkdir":
                return self._make_folder(action, name, use)
            case "symlink":
                return self._put_link(action, name, host, request_id, use)
            case "delete":
                self._delete(action, name, host, request_id, use)
                return None
            case _:
                raise GatehouseError(
                    f"`{action.operation}` is not carried out", "delete the old path and write the new one"
                )

    # -- effects ----------------------------------------------------------------------------------------------------

    def _put_file(
        self, action: FileChange, name: str, host: Seen | None, request_id: str, use: Callable[[FileChange], None]
    ) -> Known:
        mode = (action.mode if action.mode is not None else NEW_FILE_MODE) & PERMISSIONS
        with self._content(action) as (reading, digest):
            use(_rebuilt(action, name, host, after=digest, mode=action.mode))
            with self._placing(name, request_id) as (fd, leaf, temporary):
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                writing = os.open(temporary, flags, 0o600, dir_fd=fd)
                try:
                    self._at("created")
                    _copy_verified(reading, writing, digest)
                    _keep_owner(writing, fd, leaf)
                    os.fchmod(writing, mode)
                    os.fsync(writing)
                finally:
                    os.close(writing)
                self._at("written")
                status = self._place(fd, temporary, leaf, name, host)
        seen_mode = mode | (stat.S_ISUID if "setuid" in action.hazards else 0)
        return Known("file", seen_mode, digest, None, signature_of(status))

    def _put_link(
        self, action: FileChange, name: str, host: Seen | None, request_id: str, use: Callable[[FileChange], None]
    ) -> Known:
        target = action.link_target or ""
        use(_rebuilt(action, name, host, after=link_token(target), link_target=target))
        with self._placing(name, request_id) as (fd, leaf, temporary):
            os.symlink(target, temporary, dir_fd=fd)
            self._at("written")
            status = self._place(fd, temporary, leaf, name, host)
        return Known("symlink", 0o777, None, target, signature_of(status))

    def _make_folder(self, action: FileChange, name: str, use: Callable[[FileChange], None]) -> Known:
        use(_rebuilt(action, name, None, after="dir", mode=action.mode))
        with self._root.parent(name, create=True) as (fd, leaf):
            os.mkdir(leaf, dir_fd=fd)
            self._at("placed")
            os.fsync(fd)
        return self._set_folder_mode(action, name)

    def _folder_mode(
        self, action: FileChange, name: str, host: Seen | None, use: Callable[[FileChange], None]
    ) -> Known:
        use(_rebuilt(action, name, host, after="dir", mode=action.mode))
        return self._set_folder_mode(action, name)

    def _set_folder_mode(self, action: FileChange, name: str) -> Known:
        mode = (action.mode if action.mode is not None else 0o755) & PERMISSIONS
        with self._root.directory(name) as inner:
            os.fchmod(inner, mode)
        return Known("dir", mode)

    def _delete(
        self, action: FileChange, name: str, host: Seen | None, request_id: str, use: Callable[[FileChange], None]
    ) -> None:
        use(_rebuilt(action, name, host, after=None))
        self._intend(request_id, name, "")
        with self._root.parent(name) as (fd, leaf):
            _check_still(fd, leaf, name, host)
            if host is not None and host.kind == "dir":
                os.rmdir(leaf, dir_fd=fd)
            else:
                os.unlink(leaf, dir_fd=fd)
            self._at("placed")
            os.fsync(fd)

    def prune(self, name: str, is_gone: Callable[[str], bool]) -> list[str]:
        """Remove folders above a deleted path that are empty and that the copy hasn't either, as git would; their names."""
        removed: list[str] = []
        parts = split(name)[:-1]
        while parts and is_gone("/".join(parts)):
            try:
                with self._root.parent("/".join(parts)) as (fd, leaf):
                    os.rmdir(leaf, dir_fd=fd)
            except (OSError, PathError):
                break
            removed.append("/".join(parts))
            parts.pop()
        return removed

    # -- steps ------------------------------------------------------------------------------------------------------

    def _intend(self, request_id: str, name: str, temporary: str) -> None:
        if self._journal is not None:
            self._journal.intent(request_id, name, temporary)
        self._at("intended")

    @contextlib.contextmanager
    def _content(self, action: FileChange) -> Iterator[tuple[int, str]]:
        """The snapshot that the action is bound to, opened, and the hash of what is really in it."""
        try:
            fd = self._blobs.open(action.after or "")
        except FileNotFoundError:
            raise GatehouseError("the content of this request is no longer kept", "make the change again") from None
        try:
            yield fd, digest_fd(fd)
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def _placing(self, name: str, request_id: str) -> Iterator[tuple[int, str, str]]:
        """(folder, leaf, name of a temporary file that is in the journal and gone afterwards)."""
        temporary = f"{TEMPORARY_PREFIX}{secrets.token_hex(12)}"
        self._intend(request_id, name, temporary)
        with self._root.parent(name, create=True) as (fd, leaf):
            try:
                yield fd, leaf, temporary
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=fd)

    def _place(self, fd: int, temporary: str, leaf: str, name: str, host: Seen | None) -> os.stat_result:
        """Put the finished temporary file in its place, durably, unless the place isn't what it was."""
        _check_still(fd, leaf, name, host)
        self._at("checked")
        if host is None:
            _link_new(fd, temporary, leaf)
        else:
            os.rename(temporary, leaf, src_dir_fd=fd, dst_dir_fd=fd)
        self._at("placed")
        os.fsync(fd)
        return os.stat(leaf, dir_fd=fd, follow_symlinks=False)


def clean_leftovers(root: Root, intents: list[Intent]) -> list[str]:
    """Remove the temporary files that a crash left, by the journal's word; their names."""
    removed: list[str] = []
    for intent in intents:
        if not intent.temporary.startswith(TEMPORARY_PREFIX) or "/" in intent.temporary:
            continue
        with contextlib.suppress(OSError, PathError), root.parent(decode_name(intent.name)) as (fd, _):
            os.unlink(intent.temporary, dir_fd=fd)
            removed.append(intent.temporary)
    return removed


def _is_done(action: FileChange, host: Seen | None) -> bool:
    """Whether the host holds what the action would make of it, mode included."""
    if action.operation == "delete":
        return host is None
    if host is None or host.token != action.after:
        return False
    return host.kind == "symlink" or action.mode is None or host.mode & PERMISSIONS == action.mode & PERMISSIONS


def _known(action: FileChange, host: Seen | None) -> Known | None:
    if host is None:
        return None
    seen_bit = stat.S_ISUID if "setuid" in action.hazards else 0
    return Known(host.kind, host.mode & PERMISSIONS | seen_bit, host.digest, host.target, host.signature)


def _rebuilt(
    action: FileChange,
    name: str,
    host: Seen | None,
    *,
    after: str | None,
    mode: int | None = None,
    link_target: str | None = None,
) -> FileChange:
    """The action anew, from what is about to be done. INVARIANT: nothing in it that takes effect comes unlooked-at
    from the request (law 2): the state before from the host now, the content from the bytes that will be written."""
    shown, encoded = name_fields(name)
    hazards = action.hazards
    was_executable = host is not None and host.kind == "file" and host.mode & 0o111
    writes = action.operation in ("write", "edit", "chmod") and after != "dir"
    if writes and (mode or 0) & 0o111 and not was_executable and "new-executable" not in hazards:
        hazards = (*hazards, "new-executable")
    if action.operation == "symlink" and "symlink" not in hazards:
        hazards = (*hazards, "symlink")
    return FileChange(
        operation=action.operation,
        path=shown,
        path_b64=encoded,
        before=host.token if host else None,
        after=after,
        mode=mode,
        link_target=link_target,
        hazards=hazards,
    )


def _check_still(fd: int, leaf: str, name: str, host: Seen | None) -> None:
    try:
        status = os.stat(leaf, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        if host is not None:
            raise stale(name) from None
        return
    if host is None or not _is_same(signature_of(status), host):
        raise stale(name)


def _is_same(signature: tuple[int, ...], host: Seen) -> bool:
    # A folder's times change with what is in it: for a folder, being the same folder is enough.
    return signature[3:] == host.signature[3:] if host.kind == "dir" else signature == host.signature


def _copy_verified(reading: int, writing: int, digest: str) -> None:
    os.lseek(reading, 0, os.SEEK_SET)
    state = hashlib.blake2b(digest_size=32)
    while block := os.read(reading, BLOCK_BYTES):
        state.update(block)
        view = memoryview(block)
        while view:
            view = view[os.write(writing, view) :]
    if state.hexdigest() != digest:
        raise GatehouseError("the snapshot of this request is damaged", "make the change again")


def _keep_owner(writing: int, fd: int, leaf: str) -> None:
    """Give the new file the old one's owner, where there is one and we may."""
    try:
        old = os.stat(leaf, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return
    made = os.fstat(writing)
    if stat.S_ISREG(old.st_mode) and (old.st_uid, old.st_gid) != (made.st_uid, made.st_gid):
        with contextlib.suppress(PermissionError):
            os.fchown(writing, old.st_uid, old.st_gid)


def _link_new(fd: int, temporary: str, leaf: str) -> None:
    """Give the temporary file its name; FileExistsError where something has that name by now."""
    try:
        os.link(temporary, leaf, src_dir_fd=fd, dst_dir_fd=fd, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.rename(temporary, leaf, src_dir_fd=fd, dst_dir_fd=fd)
    else:
        os.unlink(temporary, dir_fd=fd)


def _remedy(error: OSError) -> str:
    remedies = {
        errno.ENOSPC: "make room on the host's disk",
        errno.EDQUOT: "make room on the host's disk",
        errno.EACCES: "check the permissions on the host",
        errno.EPERM: "check the permissions on the host",
        errno.EROFS: "the workspace's file system is read-only",
        errno.ENOTEMPTY: "the folder holds more than the session knows of",
        errno.ENOTDIR: "a folder on the way is a symlink or a file on the host",
        errno.ELOOP: "a folder on the way is a symlink or a file on the host",
        errno.ENAMETOOLONG: "choose a shorter name",
    }
    return remedies.get(error.errno or 0, "look at the path on the host")
