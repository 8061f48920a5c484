"""Open paths beneath a folder, safe against renames and links (law 4).

A path is walked component by component from a directory descriptor with O_NOFOLLOW, so a folder
that is swapped for a symlink between two steps is an error and never a way out. openat2(2) promises
this with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS; it is done by hand because each folder on the way
must also be compared with those that are out of bounds.

Snapshot, scan and apply must all walk the same way. It must never resolve a whole path at once,
accept `..`, or enter `.git` or the supervisor's own data, by whatever name they are reached.
"""

import contextlib
import errno
import functools
import os
import stat
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from supervisor.errors import GatehouseError

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a fifo must not wait for a writer. It changes nothing for regular files.
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
MOST_PARTS = 256
LONGEST_PATH_BYTES = 4096
# Called with the parent of a newly made folder, to make it durable.
type Create = Callable[[int], object]

# Permissions of parent folders to make, by depth; the umask decides for the others.
type Modes = Mapping[int, int]
AS_UMASK: Modes = MappingProxyType({})


class PathError(GatehouseError):
    """A path can't be reached beneath the workspace, or must not be."""


class Root:
    """A folder held by a descriptor: it stays this folder when its path is renamed or replaced.

    `out_of_bounds` are folders that must not be entered even if they lie inside (the supervisor's
    data); `forbidden` are their device and inode.
    """

    def __init__(self, path: Path, *, out_of_bounds: Sequence[Path] = ()) -> None:
        self.path = path.resolve()
        self.fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.forbidden: set[tuple[int, int]] = set()
        for folder in out_of_bounds:
            with contextlib.suppress(FileNotFoundError):
                status = folder.stat()
                self.forbidden.add((status.st_dev, status.st_ino))

    @classmethod
    def of(cls, fd: int, path: Path) -> "Root":
        """Take over a folder's descriptor. `path` is its name in messages."""
        root = cls.__new__(cls)
        root.path, root.fd, root.forbidden = path, fd, set()
        return root

    def close(self) -> None:
        """Close the descriptor. May be called twice."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def directory(self, name: str) -> "_Directory":
        """Give a descriptor of the folder `name` (`""`: the root itself), closed at the end of the
        block.

        Raise PathError, or OSError where a component is missing, or is a symlink or a file.
        """
        return _Directory(self, name)

    def parent(
        self, name: str, *, create: Create | None = None, modes: Modes = AS_UMASK
    ) -> "_Parent":
        """Give the descriptor of the folder that holds `name`, and its last component. With
        `create`, missing folders are made. Raise as `directory`."""
        return _Parent(self, name, create, modes)

    def is_forbidden(self, status: os.stat_result) -> bool:
        """Return whether this is one of the folders that are out of bounds."""
        return (status.st_dev, status.st_ino) in self.forbidden

    def open(
        self, folders: Sequence[str], create: Create | None = None, modes: Modes = AS_UMASK
    ) -> int:
        """Return a descriptor of the last of these nested folders."""
        if not folders:
            return os.dup(self.fd)
        fd = self._enter(self.fd, folders[0], create, modes.get(0))
        for depth, part in enumerate(folders[1:], 1):
            try:
                inner = self._enter(fd, part, create, modes.get(depth))
            finally:
                os.close(fd)
            fd = inner
        return fd

    def _enter(self, fd: int, part: str, create: Create | None, mode: int | None) -> int:
        is_made = False
        try:
            inner = os.open(part, DIRECTORY, dir_fd=fd)
        except FileNotFoundError:
            if create is None:
                raise
            with contextlib.suppress(FileExistsError):
                # INVARIANT: the folder never has more than the mode, not even before it is set.
                os.mkdir(part, 0o777 if mode is None else mode, dir_fd=fd)
                is_made = True
                create(fd)
            inner = os.open(part, DIRECTORY, dir_fd=fd)
        try:
            if self.forbidden and self.is_forbidden(os.fstat(inner)):
                raise PathError(
                    "the path leads into the supervisor's own data", "choose another place"
                )
            if create is not None and mode is not None:
                _have_mode(inner, part, mode, is_made=is_made)
        except BaseException:
            os.close(inner)
            raise
        return inner


def _have_mode(fd: int, part: str, mode: int, *, is_made: bool) -> None:
    """Give a folder that was just made its permissions. Raise FileExistsError where one with wider
    permissions was there already."""
    now = stat.S_IMODE(os.fstat(fd).st_mode)
    if is_made and now & 0o777 != mode:
        os.fchmod(fd, mode | (now & ~0o777))  # a set-id bit is that of the folder around it
    elif now & 0o777 & ~mode:
        raise FileExistsError(errno.EEXIST, "the folder is open to more than was asked about", part)


class _Directory:
    """Result of `Root.directory`, written by hand: `contextlib` would double the time of an
    open."""

    __slots__ = ("_fd", "_name", "_root")

    def __init__(self, root: Root, name: str) -> None:
        self._root, self._name = root, name

    def __enter__(self) -> int:
        self._fd = self._root.open(split(self._name) if self._name else ())
        return self._fd

    def __exit__(self, *raised: object) -> None:
        os.close(self._fd)


class _Parent:
    """Result of `Root.parent`."""

    __slots__ = ("_create", "_fd", "_modes", "_name", "_root")

    def __init__(self, root: Root, name: str, create: Create | None, modes: Modes) -> None:
        self._root, self._name, self._create, self._modes = root, name, create, modes

    def __enter__(self) -> tuple[int, str]:
        *folders, leaf = split(self._name)
        self._fd = self._root.open(folders, self._create, self._modes)
        return self._fd, leaf

    def __exit__(self, *raised: object) -> None:
        os.close(self._fd)


class Neighbours:
    """`Root.parent` for many paths, mostly consecutive ones in the same folder, which is opened
    once.

    INVARIANT: for reads only. The folder may be moved away while it is held here; a writer must
    open its path again.
    """

    def __init__(self, root: Root) -> None:
        self._root = root
        self._folder: str | None = None
        self._fd = -1
        self.is_forbidden = root.is_forbidden

    def parent(self, name: str) -> contextlib.AbstractContextManager[tuple[int, str]]:
        """Do as `Root.parent`; the descriptor stays open."""
        folder, _, leaf = name.rpartition("/")
        if folder != self._folder:
            self.close()
            *folders, leaf = split(name)
            self._fd = self._root.open(folders)
            self._folder = folder
        else:
            split(name)
        return contextlib.nullcontext((self._fd, leaf))

    def close(self) -> None:
        """Close the descriptor. May be called twice."""
        if self._folder is not None:
            os.close(self._fd)
            self._folder = None


@functools.lru_cache(maxsize=8192)  # one effect opens its path some ten times
def split(name: str) -> tuple[str, ...]:
    """Return the components of a relative path. Raise PathError where one isn't a plain name, or
    names git's own folder."""
    parts = name.split("/")
    if len(parts) > MOST_PARTS or len(os.fsencode(name)) > LONGEST_PATH_BYTES:
        raise PathError(
            "the path is too long", f"at most {LONGEST_PATH_BYTES} bytes and {MOST_PARTS} folders"
        )
    for part in parts:
        if part in ("", ".", "..") or "\0" in part:
            raise PathError(
                f"`{name}` is not a plain path below the workspace", "no empty part, `.` or `..`"
            )
        if is_git_name(part):
            raise PathError("`.git` is never written to by sync", "ask for a git operation instead")
    return tuple(parts)


def is_git_name(part: str) -> bool:
    """Return whether some file system takes this name for `.git`: by case, Unicode form, ignored
    characters (HFS+), trailing dots and spaces, streams or short names (NTFS). The list is git's
    own (`is_hfs_dotgit`, `is_ntfs_dotgit`)."""
    if part == ".git":
        return True
    if "git" not in part.casefold() and part.isascii():
        return False
    folded = unicodedata.normalize("NFKC", part).casefold()
    seen = "".join(char for char in folded if unicodedata.category(char) != "Cf")
    stem = seen.split(":", 1)[0].rstrip(". ")
    return stem in (".git", "git~1")


def is_regular(status: os.stat_result) -> bool:
    """Return whether it is a regular file."""
    return stat.S_ISREG(status.st_mode)
