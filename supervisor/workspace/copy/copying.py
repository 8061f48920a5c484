"""Copy files into the private copy. Also run as `python -I -S copying.py FD`.

A few of these processes copy a tree of many files (`copy_pool`), since one Python makes system
calls from one thread at a time. A thread runs this code for a small tree. So it imports nothing of
ours and little else, and starts in milliseconds. It is told what to copy and decides nothing; it
reports what it copied as numbers, as there are many.

It must never follow a symlink, open what is out of bounds, share an inode with the host, or change
anything on the host. Every folder is opened relative to its parent's descriptor, on both sides.

A request is a line of JSON: [root, prefix, [[folder, [leaf, ...]], ...]]. `root` is a folder's
resolved path, "" for the workspace. The answer is any number of lines `{"bytes": so far}`, then a
line of JSON with the fields of `Copied`, and the numbers.
"""

import contextlib
import errno
import fcntl
import gc
import json
import os
import stat
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import BinaryIO, NamedTuple

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
WRITING = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
FICLONE = 0x40049409  # linux/fs.h
BLOCK_BYTES = 32 << 20
# Errors that end the copy; any other error of one file only leaves that file out.
FATAL = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EIO,
    errno.EROFS,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
}
# Errors where the kernel can't copy between these two files (copy_file_range(2)).
CANNOT = {errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.ETXTBSY}

# One row per leaf: outcome, permissions, and the signatures on the host and in the copy
# (`core.files.changes`).
ROW = 12
NOTHING, STEADY, UNSTEADY, LINK, FOLDER = range(5)
_NO_ROW = (NOTHING,) + (0,) * (ROW - 1)

type FolderBatch = tuple[str, list[str]]


class Copied(NamedTuple):
    """Outcome of one request. `links`: the targets of the LINK rows, in order; `folders`: path and
    permissions of entered folders; `skipped`: path and why."""

    rows: "array[int]"
    links: list[str]
    folders: list[tuple[str, int]]
    skipped: list[tuple[str, str]]
    bytes: int


class Copier:
    """Copies leaves. `workspace` and `target` are descriptors of folders, `forbidden` the (device,
    inode) pairs of folders to leave out."""

    def __init__(self, workspace: int, target: int, forbidden: Iterable[tuple[int, int]]) -> None:
        self._workspace = workspace
        self._target = target
        self._forbidden = set(forbidden)
        self._can_clone = self._can_range = True
        self._stack: list[tuple[str, int, int]] = []
        self._tell: Callable[[int], object] = int
        self._begin()

    def _begin(self) -> None:
        self._rows: array[int] = array("q")
        self._links: list[str] = []
        self._folders: list[tuple[str, int]] = []
        self._skipped: list[tuple[str, str]] = []
        self._bytes = 0

    def copy(
        self, root: str, prefix: str, groups: Sequence[FolderBatch], tell: Callable[[int], object]
    ) -> Copied:
        """Copy these leaves of these folders of `root` to below `prefix`. Raise OSError (FATAL)
        where copying can't go on.

        `tell(bytes)` is called while much is copied.
        """
        self._begin()
        self._tell = tell
        opened: list[int] = []
        try:
            target = self._open_target(prefix, opened)
            source = self._open_source(root, prefix, opened)
            for folder, leaves in groups:
                self._folder(source, target, prefix, folder, leaves)
        finally:
            self._pop_to(0)
            for fd in opened:
                os.close(fd)
        return Copied(self._rows, self._links, self._folders, self._skipped, self._bytes)

    # -- folders ----------------------------------------------------------------------------------

    def _open_target(self, prefix: str, opened: list[int]) -> int:
        fd = self._target
        for part in prefix.split("/"):
            if part:
                fd = _make_folder(fd, part)
                opened.append(fd)
        return fd

    def _open_source(self, root: str, prefix: str, opened: list[int]) -> int | None:
        """Return the folder's descriptor. Return None, and report it once, where the folder is
        gone; the rest of the copy goes on."""
        if not root:
            return self._workspace
        try:
            fd = os.open(root, DIRECTORY)
            opened.append(fd)
            if os.readlink(f"/proc/self/fd/{fd}") == root:  # noqa: PTH115  # pathlib would double the time to start
                return fd
            error = OSError(
                errno.ELOOP, os.strerror(errno.ELOOP)
            )  # something on the way is a symlink by now
        except OSError as found:
            _raise_fatal(found)
            error = found
        self._skip(prefix.rstrip("/"), _why_no_folder(error))
        return None

    def _folder(
        self, source: int | None, target: int, prefix: str, folder: str, leaves: list[str]
    ) -> None:
        try:
            parts = folder.split("/") if folder else []
            ends = self._enter(source, target, prefix, parts) if source is not None else None
        except FileNotFoundError:
            ends = None  # it was deleted meanwhile
        except OSError as error:
            _raise_fatal(error)
            self._skip(prefix + folder, _why_no_folder(error))
            ends = None
        if ends is None:
            self._rows.extend(_NO_ROW * len(leaves))
            return
        at = f"{prefix}{folder}/" if folder else prefix
        for leaf in leaves:
            try:
                row = self.leaf(*ends, leaf, at)
            except FileNotFoundError:
                row = _NO_ROW  # deleted, perhaps long ago: git lists it still
            except FileExistsError:
                self._skip(
                    at + leaf, "the copy's file system takes its name for one that is there already"
                )
                row = _NO_ROW
            except OSError as error:
                _raise_fatal(error)
                self._skip(at + leaf, error.strerror or str(error))
                row = _NO_ROW
            self._rows.extend(row)

    def _enter(
        self, source: int, target: int, prefix: str, parts: list[str]
    ) -> tuple[int, int] | None:
        """Return the folder's descriptors on both sides, or None where it is out of bounds."""
        common = 0
        while (
            common < min(len(parts), len(self._stack)) and self._stack[common][0] == parts[common]
        ):
            common += 1
        self._pop_to(common)
        for depth in range(common, len(parts)):
            if self._stack:
                _, source, target = self._stack[-1]
            inner = os.open(parts[depth], DIRECTORY, dir_fd=source)
            try:
                status = os.fstat(inner)
                if (status.st_dev, status.st_ino) in self._forbidden:
                    os.close(inner)
                    return None
                made = _make_folder(target, parts[depth])
            except OSError:
                os.close(inner)
                raise
            self._stack.append((parts[depth], inner, made))
            self._folders.append((prefix + "/".join(parts[: depth + 1]), status.st_mode & 0o777))
        return self._stack[-1][1:] if self._stack else (source, target)

    def _pop_to(self, depth: int) -> None:
        while len(self._stack) > depth:
            _, source, target = self._stack.pop()
            os.close(source)
            os.close(target)

    # -- what is in them --------------------------------------------------------------------------

    def leaf(self, source: int, target: int, leaf: str, at: str = "") -> tuple[int, ...]:
        """Copy a leaf (no folder's content) from one open folder to another. Return its row."""
        try:
            reading = os.open(leaf, READING, dir_fd=source)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENXIO):  # a symlink, a socket
                raise
            return self._not_a_file(source, target, leaf, at)
        try:
            before = os.fstat(reading)
            if stat.S_ISREG(before.st_mode):
                return self._file(reading, before, target, leaf)
        finally:
            os.close(reading)
        return self._not_a_file(source, target, leaf, at)

    def _file(
        self, reading: int, before: os.stat_result, target: int, leaf: str
    ) -> tuple[int, ...]:
        mode = before.st_mode & 0o777
        writing = os.open(leaf, WRITING, mode, dir_fd=target)
        try:
            self._content(reading, writing, before)
            os.utime(writing, ns=(before.st_atime_ns, before.st_mtime_ns))
            made = os.fstat(writing)
            if made.st_mode & 0o777 != mode:  # by a umask
                os.fchmod(writing, mode)
                made = os.fstat(writing)
        finally:
            os.close(writing)
        # Written to while it was copied: the agreed state is unknown.
        host = _signature(before)
        what = STEADY if _signature(os.fstat(reading)) == host else UNSTEADY
        return (what, mode, *host, *_signature(made))

    def _not_a_file(self, source: int, target: int, leaf: str, at: str) -> tuple[int, ...]:
        status = os.stat(leaf, dir_fd=source, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            link = os.readlink(leaf, dir_fd=source)
            if not _is_text(link):
                self._skip(at + leaf, "the link's target isn't text")
                return _NO_ROW
            os.symlink(link, leaf, dir_fd=target)
            made = os.stat(leaf, dir_fd=target, follow_symlinks=False)
            self._links.append(link)
            return (LINK, 0o777, *_signature(status), *_signature(made))
        if stat.S_ISDIR(
            status.st_mode
        ):  # a repository of its own, or a submodule that isn't checked out
            if (status.st_dev, status.st_ino) in self._forbidden:
                return _NO_ROW
            os.close(_make_folder(target, leaf))
            return (FOLDER, status.st_mode & 0o777) + (0,) * (ROW - 2)
        kinds = {stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket"}
        self._skip(
            at + leaf, f"a {kinds.get(stat.S_IFMT(status.st_mode), 'device')} is never copied"
        )
        return _NO_ROW

    def _skip(self, path: str, why: str) -> None:
        self._skipped.append((path, why))

    # -- content ----------------------------------------------------------------------------------

    def _content(self, reading: int, writing: int, status: os.stat_result) -> None:
        size = status.st_size
        if self._can_clone and size:
            try:
                fcntl.ioctl(writing, FICLONE, reading)
            except OSError:
                self._can_clone = (
                    False  # not this file system; a second try costs a call for each file
                )
            else:
                self._bytes += size
                return
        if status.st_blocks * 512 < size:
            self._sparse(reading, writing, size)
        else:
            self._range(reading, writing, 0, size)

    def _sparse(self, reading: int, writing: int, size: int) -> None:
        """Copy a file with its holes."""
        os.ftruncate(writing, size)
        at = 0
        while at < size:
            try:
                begin = os.lseek(reading, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                return  # nothing but a hole follows
            at = min(os.lseek(reading, begin, os.SEEK_HOLE), size)
            self._range(reading, writing, begin, at)

    def _range(self, reading: int, writing: int, at: int, end: int) -> None:
        while at < end:
            done = self._some(reading, writing, at, min(end - at, BLOCK_BYTES))
            if not done:
                return  # it was cut short meanwhile: the signature says so
            at += done
            self._bytes += done
            if done == BLOCK_BYTES:
                self._tell(self._bytes)

    def _some(self, reading: int, writing: int, at: int, most: int) -> int:
        if self._can_range:
            try:
                done = os.copy_file_range(reading, writing, most, at, at)
            except OSError as error:
                if error.errno not in CANNOT:
                    raise
                self._can_range = False
            else:
                if done:
                    return done
        # A result of 0 may only mean that the kernel can't copy (copy_file_range(2), bugs); a read
        # shows.
        block = os.pread(reading, min(most, 1 << 20), at)
        done = 0
        while done < len(block):
            done += os.pwrite(writing, block[done:], at + done)
        return done


def _make_folder(parent: int, leaf: str) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkdir(leaf, 0o700, dir_fd=parent)
    return os.open(leaf, DIRECTORY, dir_fd=parent)


def _signature(status: os.stat_result) -> tuple[int, int, int, int, int]:
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_mode)


def _is_text(target: str) -> bool:
    try:
        target.encode()
    except UnicodeEncodeError:
        return False
    return True


def _raise_fatal(error: OSError) -> None:
    if error.errno in FATAL:
        raise error


def _why_no_folder(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENOENT):
        return "it was a folder when the copy began and isn't any more"
    return f"the folder can't be read: {error.strerror}"


def serve(reading: BinaryIO, writing: BinaryIO, copier: Copier) -> None:
    """Answer requests until the other end closes."""

    def say(answer: object, rows: bytes = b"") -> None:
        writing.write(json.dumps(answer).encode() + b"\n" + rows)
        writing.flush()

    for line in reading:
        root, prefix, groups = json.loads(line)
        try:
            rows, *rest = copier.copy(root, prefix, groups, lambda so_far: say({"bytes": so_far}))
        except OSError as error:
            say({"errno": error.errno, "why": error.strerror})
        else:
            say({"copied": rest, "rows": len(rows)}, rows.tobytes())


if __name__ == "__main__":
    import socket

    gc.disable()  # nothing here makes cycles, and collecting would take a tenth of the time
    os.umask(0)  # permissions are those of the host's files, and the copy's own folder is private
    channel = socket.socket(fileno=int(sys.argv[1]))
    out_of_bounds = [(device, inode) for device, inode in json.loads(sys.argv[4])]
    with channel.makefile("rb") as requests, channel.makefile("wb") as answers:
        serve(requests, answers, Copier(int(sys.argv[2]), int(sys.argv[3]), out_of_bounds))
