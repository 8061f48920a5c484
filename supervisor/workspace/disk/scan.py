"""Read a folder's entries, a path's state, a file's digest or content. Changes nothing.

The copy is read while the agent writes to it. So every look goes through a descriptor, a file that
changes during the look is reported as unsteady, and sizes are bounded. It must never follow a
symlink or wait to open a fifo.
"""

import ctypes
import errno
import hashlib
import os
import stat
import struct
from collections.abc import Callable, Iterator

from supervisor.base.clock import wait_out_tick
from supervisor.core.files.changes import Seen, Signature, kind_of, signature_of
from supervisor.errors import UserError
from supervisor.workspace.disk.beneath import FILE, Neighbours, PathError, Root, is_regular

BLOCK_BYTES = 1 << 20
LARGEST_FILE_BYTES = 512 << 20
LARGEST_EDIT_BYTES = 16 << 20
# statx(2): the flag, the mask of the birth time, and the offsets of mask and time in the answer.
AT_SYMLINK_NOFOLLOW, STATX_BTIME = 0x100, 0x800
_ANSWER_BYTES, _MASK, _BTIME = 256, struct.Struct("=I"), struct.Struct("=80xqI")
_libc = ctypes.CDLL(None, use_errno=True)


class UnsteadyError(Exception):
    """The file was written to while it was read. Look again later."""


class TooLargeError(Exception):
    """The file is larger than LARGEST_FILE_BYTES."""


def each_entry(root: Root, folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the names in a folder with their lstat; nothing where it is no folder (any more).

    Names that are out of bounds are left out. Raise OSError where the folder can't be read.
    """
    may_be_forbidden = bool(root.forbidden)
    try:
        with root.directory(folder) as fd, os.scandir(fd) as listing:
            for entry in listing:
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if not (may_be_forbidden and root.is_forbidden(status)):
                    yield entry.name, status
    except (FileNotFoundError, NotADirectoryError, PathError):
        return
    except OSError as error:
        if error.errno != errno.ELOOP:  # a symlink where a folder was
            raise


def readable_entries(root: Root, folder: str) -> list[tuple[str, os.stat_result]]:
    """Return the same as `each_entry`, but nothing where the agent has made the folder unreadable
    for us, too. Raise OSError for all else."""
    try:
        return list(each_entry(root, folder))
    except PermissionError:
        return []


def each_name(root: Root, folder: str) -> Iterator[str]:
    """Yield the paths below a folder, at any depth and of any kind. Raise OSError where a folder
    can't be read."""
    waiting = [folder]
    while waiting:
        inside = waiting.pop()
        for leaf, status in each_entry(root, inside):
            name = f"{inside}/{leaf}"
            yield name
            if stat.S_ISDIR(status.st_mode):
                waiting.append(name)


def look(
    root: Root | Neighbours,
    name: str,
    *,
    digest_of: Callable[[int, os.stat_result], str] | None = None,
    is_read: bool = True,
    known: Seen | None = None,
) -> Seen | None:
    """Return a path's state now, or None where nothing is there, or a symlink or a file is on the
    way.

    A file is read for its digest, by `digest_of(fd, status)` if given. Unless `is_read`, no file is
    opened, and none has a digest. `known`, from an earlier look, is returned for a file with the
    same signature. INVARIANT: a file isn't read before the clock tick of its last change is over,
    so a later write never has the signature that goes with this digest. Raise UnsteadyError,
    TooLargeError, PathError (out of bounds), OSError (not readable).
    """
    try:
        with root.parent(name) as (fd, leaf):
            status = os.stat(leaf, dir_fd=fd, follow_symlinks=False)
            if known is not None and signature_of(status) == known.signature:
                return known
            if stat.S_ISDIR(status.st_mode) and root.is_forbidden(status):
                raise PathError("the path is the supervisor's own data", "choose another place")
            if stat.S_ISLNK(status.st_mode):
                return _seen(status, target=os.readlink(leaf, dir_fd=fd))
            if not is_regular(status) or not is_read:
                return _seen(status)
            opened = os.open(leaf, FILE, dir_fd=fd)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise
    try:
        status = os.fstat(opened)
        if not is_regular(status):
            raise UnsteadyError
        if status.st_size > LARGEST_FILE_BYTES:
            raise TooLargeError  # told without reading it, or keeping half a gigabyte of it
        wait_out_tick(status.st_ctime_ns)
        digest = (digest_of or steady_digest)(opened, status)
        return _seen(status, digest=digest)
    finally:
        os.close(opened)


def steady_digest(fd: int, before: os.stat_result) -> str:
    """Return the `content_hash` of an open file. Raise UnsteadyError where it changed while it was
    read."""
    digest = digest_fd(fd, before.st_size)
    if signature_of(os.fstat(fd)) != signature_of(before):
        raise UnsteadyError
    return digest


def digest_fd(fd: int, size_bytes: int = LARGEST_FILE_BYTES) -> str:
    """Return the `content_hash` of everything from the descriptor's position on, read in blocks.
    With `size_bytes` from a stat, a small file takes one read."""
    state = hashlib.blake2b(digest_size=32)
    total = 0
    asked = min(size_bytes + 1, BLOCK_BYTES)
    while block := os.read(fd, asked):
        total += len(block)
        if total > LARGEST_FILE_BYTES:
            raise TooLargeError
        state.update(block)
        if total == size_bytes and len(block) < asked:
            break  # there was room for more, so this is its end
        asked = BLOCK_BYTES
    return state.hexdigest()


def signature_at(root: Root, name: str) -> Signature | None:
    """Return a path's signature without reading it, or None where `look` would return None."""
    try:
        with root.parent(name) as (fd, leaf):
            return signature_of(os.stat(leaf, dir_fd=fd, follow_symlinks=False))
    except (OSError, PathError):
        return None


def _seen(status: os.stat_result, *, digest: str | None = None, target: str | None = None) -> Seen:
    return Seen(
        kind=kind_of(status.st_mode),
        mode=stat.S_IMODE(status.st_mode),
        signature=signature_of(status),
        digest=digest,
        target=target,
        links=status.st_nlink,
        uid=status.st_uid,
        gid=status.st_gid,
    )


def born_ns(root: Root, name: str) -> int | None:
    """Return a path's birth time, in nanoseconds since the epoch, or None where the file system
    doesn't record it. Raise OSError where the parent folder is gone.

    Only this distinguishes a folder whose permissions changed from one that was deleted and made
    anew, as git does at every checkout: file systems reuse the old inode at once. Python has no
    function for statx(2) yet.
    """
    answer = ctypes.create_string_buffer(_ANSWER_BYTES)
    with root.parent(name) as (fd, leaf):
        path = ctypes.c_char_p(leaf.encode(errors="surrogateescape"))
        if _libc.statx(fd, path, AT_SYMLINK_NOFOLLOW, STATX_BTIME, answer):
            return None
    if not _MASK.unpack_from(answer)[0] & STATX_BTIME:
        return None
    seconds, nanoseconds = _BTIME.unpack_from(answer)
    return int(seconds) * 1_000_000_000 + int(nanoseconds)


def look_quietly(root: Root, name: str) -> Seen | None:
    """Return a path's state, or None where nothing is there, or on any error."""
    try:
        return look(root, name)
    except Exception:
        return None


def read_file(
    root: Root, name: str, limit_bytes: int = LARGEST_EDIT_BYTES, *, cut: bool = False
) -> bytes:
    """Return a file's content. Raise `UserError` where it is longer than the limit, unless it may
    be `cut`; OSError where it can't be read."""
    with root.parent(name) as (folder, leaf):
        fd = os.open(leaf, FILE, dir_fd=folder)
    with os.fdopen(fd, "rb") as file:
        if not is_regular(os.fstat(fd)):
            raise PathError(f"`{name}` is not a regular file", "choose another")
        data = file.read(limit_bytes + 1)
    if len(data) > limit_bytes and not cut:
        raise UserError(
            f"`{name}` is too large to edit", f"at most {limit_bytes >> 20} MB; write it as a whole"
        )
    return data[:limit_bytes]


def decode(data: bytes) -> str:
    """Return text that preserves any bytes; `encode` returns them."""
    return data.decode("utf-8", "surrogateescape")


def encode(text: str) -> bytes:
    """Return the bytes that `decode` was given."""
    return text.encode("utf-8", "surrogateescape")
