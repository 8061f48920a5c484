"""Read files of the workspace, and in maintenance write them, without ever leaving it.

INVARIANT: no path from a model reaches a file outside the root and the folders that may be read
besides: not by `..`, an absolute path or a symlink, nor by a swap between check and use. The path
is resolved and checked first, then opened from the root one name at a time without following links.
Anything but a regular file or folder is refused (a fifo would block, a device isn't a file).
"""

import contextlib
import fnmatch
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NEW = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_MAX_VISITED = 100_000
_SKIPPED = frozenset({".git"})


class PathError(Exception):
    """The path can't be used. The message is for the model."""


class Workspace:
    """The private copy under review; `root` is a resolved folder. Files of the folders `also` are
    read by their whole paths."""

    def __init__(self, root: Path, also: Sequence[Path] = ()) -> None:
        self.root = root.resolve()
        self._also = tuple(one.resolve() for one in also)

    def relative(self, name: str) -> str:
        """Return `name` as a path relative to the root, `/`-separated, links resolved; below
        another folder the whole path. Raise `PathError`."""
        root, path = self.place(name)
        return path if root == self.root else str(root / path)

    def place(self, name: str) -> tuple[Path, str]:
        """Return the folder that a path lies in, and the path relative to it."""
        if "\0" in name or not name:
            raise PathError("the path is empty or holds a NUL; give a path below the workspace")
        try:
            resolved = (self.root / name).resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise PathError(
                f"`{name}` can't be opened: {getattr(error, 'strerror', None) or 'too many links'}"
            ) from error
        for root in (self.root, *self._also):
            if resolved.is_relative_to(root):
                return root, PurePosixPath(resolved.relative_to(root)).as_posix()
        raise PathError(f"`{name}` is outside the workspace; only files below it can be read")

    def read(self, name: str, limit_bytes: int) -> tuple[bytes, int]:
        """Return the first `limit_bytes` bytes of a file, and its full size. Raise `PathError`."""
        descriptor = self._open(*self.place(name), name, _FILE)
        try:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode):
                raise PathError(f"`{name}` is not a regular file; use list_files for a folder")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                return file.read(limit_bytes), facts.st_size
        finally:
            os.close(descriptor)

    def write(self, name: str, data: bytes) -> None:
        """Write a whole file, and make missing folders. Raise `PathError`."""
        folder, last = self._parent(name)
        try:
            descriptor = os.open(last, _NEW, 0o666, dir_fd=folder)
            with os.fdopen(descriptor, "wb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise PathError(f"`{name}` is not a regular file")
                file.truncate()
                file.write(data)
        except OSError as error:
            raise PathError(f"`{name}` can't be written: {error.strerror}") from error
        finally:
            os.close(folder)

    def delete(self, name: str) -> None:
        """Delete a file, or a link. Raise `PathError`."""
        folder, last = self._parent(name)
        try:
            os.unlink(last, dir_fd=folder)
        except OSError as error:
            raise PathError(f"`{name}` can't be deleted: {error.strerror}") from error
        finally:
            os.close(folder)

    def _parent(self, name: str) -> tuple[int, str]:
        """Return a descriptor of the path's parent folder, and the path's last name. A missing
        folder is made; no link is followed."""
        parts = PurePosixPath(name).parts
        if not parts or "\0" in name or parts[0] == "/" or {"..", ".git"} & set(parts):
            raise PathError(f"`{name}` is no file below the workspace that can be changed")
        current = os.open(self.root, _DIRECTORY)
        try:
            for part in parts[:-1]:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=current)
                following = os.open(part, _DIRECTORY, dir_fd=current)
                os.close(current)
                current = following
        except OSError as error:
            os.close(current)
            raise PathError(f"`{name}` can't be opened: {error.strerror}") from error
        return current, parts[-1]

    def walk(self, name: str, pattern: str = "", deepest: int = 0) -> Iterator[str]:
        """Yield files below a folder, sorted, without `.git`; links are marked and not followed.
        `deepest`: how many names a path may have below the folder; 0 for any. Raise `PathError`."""
        root, path = self.place(name)
        start = self.relative(name)
        descriptor = self._open(root, path, name, _DIRECTORY)
        visited = 0
        try:
            for folder, folders, files, _ in os.fwalk(
                ".", dir_fd=descriptor, follow_symlinks=False
            ):
                folders[:] = sorted(entry for entry in folders if entry not in _SKIPPED)
                if deepest and folder.count("/") + 1 >= deepest:
                    folders.clear()
                for file in sorted(files):
                    visited += 1
                    path = PurePosixPath(start, folder, file).as_posix()
                    if (
                        not pattern
                        or fnmatch.fnmatchcase(path, pattern)
                        or fnmatch.fnmatchcase(file, pattern)
                    ):
                        yield path
                if visited > _MAX_VISITED:
                    return
        finally:
            os.close(descriptor)

    def _open(self, root: Path, relative: str, name: str, flags: int) -> int:
        """Return a descriptor of a resolved path. Each name is opened from its parent folder, and
        no link is followed."""
        parts = PurePosixPath(relative).parts
        current = os.open(root, _DIRECTORY)
        try:
            for position, part in enumerate(parts):
                last = position == len(parts) - 1
                following = os.open(part, flags if last else _DIRECTORY, dir_fd=current)
                os.close(current)
                current = following
        except OSError as error:
            os.close(current)
            raise PathError(f"`{name}` can't be opened: {error.strerror}") from error
        return current
