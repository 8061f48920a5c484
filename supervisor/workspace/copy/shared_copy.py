"""Keep the private copy on a volume shared by containers while its session runs.

Afterwards the copy is in the session's own folder. A volume can't be moved, so its content is,
whatever it holds: an agent wrote it. While the copy is on the volume, the session's folder has a
link. It must never follow a link, wait for a fifo, or stop at entries without permissions.
"""

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

from supervisor.base import log
from supervisor.errors import UserError
from supervisor.workspace.copy.copying import DIRECTORY, FATAL, Copier
from supervisor.workspace.trees.trees import COPY

_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
# Deeper folders are left behind: each level keeps two descriptors open.
MOST_DEPTH = 128
_REMEDY = "make room, or give back its permissions; docker compose logs says more"


def lend(folder: Path, volume: Path, is_running: Callable[[str], bool]) -> None:
    """Move a session's copy, as far as its folder holds one, to the volume. Raise `UserError` where
    the volume holds another session's that is still running or can't be taken back."""
    for other in folder.parent.iterdir():
        if other != folder and (other / COPY).is_symlink():
            if is_running(other.name):
                raise UserError(
                    f"compose runs one session at a time, and {other.name} hasn't ended",
                    f"answer what it asked, or end it: gatehouse stop {other.name}",
                )
            take_back(other)
    copy = folder / COPY
    try:
        with _folder(volume) as there:
            _empty(there)
            if copy.is_dir() and not copy.is_symlink():
                with _folder(copy) as source:
                    _Move(source, there).all()
                copy.rmdir()
        if not copy.is_symlink():
            copy.symlink_to(volume)
    except OSError as error:
        raise UserError(f"the copy can't be on its volume: {error}", _REMEDY) from error


def take_back(folder: Path) -> None:
    """Move the copy into the session's folder, if it isn't there. Raise `UserError` where that
    fails: it then stays on the volume, and this may be called again."""
    copy = folder / COPY
    if not copy.is_symlink():
        return
    fresh = folder / f"{COPY}.new"
    try:
        fresh.mkdir(mode=0o700, exist_ok=True)
        with _folder(copy.readlink()) as volume, _folder(fresh) as target:
            _Move(volume, target).all()
        copy.unlink()
        fresh.rename(copy)
    except OSError as error:
        raise UserError(
            f"the copy of session {folder.name} can't be taken off its volume: {error}", _REMEDY
        ) from error


class _Move:
    """Moves the entries of one folder, by its descriptor, into another."""

    def __init__(self, source: int, target: int) -> None:
        self._source, self._target = source, target
        self._copier = Copier(source, target, ())
        # A file with several names is copied once: by inode number, where its first copy is.
        self._names: dict[int, str] = {}
        self._left_out = 0

    def all(self) -> None:
        """Move all entries. Raise OSError where the disk is full or broken; entries moved by then
        stay moved."""
        self._folder(self._source, self._target, "", 0)
        _empty(self._source)
        if self._left_out:
            log.warning("left out of the copy", entries=self._left_out, why="no files, or too deep")

    def _folder(self, source: int, target: int, at: str, depth: int) -> None:
        for name in os.listdir(source):
            try:
                with _pinned(source, name) as status:
                    if stat.S_ISDIR(status.st_mode):
                        self._below(source, target, at, name, status, depth)
                        continue
                    with contextlib.suppress(FileNotFoundError):  # of a move that was cut short
                        os.unlink(name, dir_fd=target)
                    self._leaf(source, target, at, name, status)
                os.unlink(name, dir_fd=source)
            except OSError as error:
                if error.errno in FATAL:
                    raise
                self._left_out += 1

    def _below(
        self, source: int, target: int, at: str, name: str, status: os.stat_result, depth: int
    ) -> None:
        if depth == MOST_DEPTH:
            self._left_out += 1
            return
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=target)
        inner = os.open(name, DIRECTORY, dir_fd=source)
        try:
            made = os.open(name, DIRECTORY, dir_fd=target)
            try:
                self._folder(inner, made, f"{at}{name}/", depth + 1)
                os.fchmod(made, status.st_mode & 0o777)
                os.utime(made, ns=(status.st_atime_ns, status.st_mtime_ns))
            finally:
                os.close(made)
        finally:
            os.close(inner)

    def _leaf(self, source: int, target: int, at: str, name: str, status: os.stat_result) -> None:
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
            self._left_out += 1
            return
        if status.st_nlink > 1 or status.st_ino in self._names:  # its others are moved by now
            first = self._names.setdefault(status.st_ino, f"{at}{name}")
            if first != f"{at}{name}":
                os.link(
                    first, name, src_dir_fd=self._target, dst_dir_fd=target, follow_symlinks=False
                )
                return
        self._copier.leaf(source, target, name)
        if stat.S_ISREG(status.st_mode):
            os.chmod(name, status.st_mode & 0o777, dir_fd=target)


@contextlib.contextmanager
def _folder(path: Path) -> Iterator[int]:
    descriptor = os.open(path, DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _pinned(folder: int, name: str) -> Iterator[os.stat_result]:
    """Yield an entry's status, and give it the permissions needed to move it."""
    pin = os.open(name, _PATH, dir_fd=folder)
    try:
        status = os.fstat(pin)
        mode = stat.S_IMODE(status.st_mode)
        wanted = {stat.S_IFDIR: 0o700, stat.S_IFREG: 0o400}.get(stat.S_IFMT(status.st_mode), 0)
        if wanted & ~mode:
            # This very entry, even if it is renamed meanwhile.
            Path(f"/proc/self/fd/{pin}").chmod(mode | wanted)
        yield status
    finally:
        os.close(pin)


def _empty(folder: int) -> None:
    """Remove everything of ours. Deep entries are moved up first, so that no path gets long and few
    folders are open at any depth."""
    while entries := [name for name in os.listdir(folder) if _is_ours(folder, name)]:
        for name in entries:
            with _pinned(folder, name) as status:
                if not stat.S_ISDIR(status.st_mode):
                    os.unlink(name, dir_fd=folder)
                    continue
                inner = os.open(name, DIRECTORY, dir_fd=folder)
            try:
                for below in os.listdir(inner):  # noqa: PTH208 - by its descriptor
                    with _pinned(inner, below):
                        os.rename(below, uuid4().hex, src_dir_fd=inner, dst_dir_fd=folder)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=folder)


def _is_ours(folder: int, name: str) -> bool:
    return os.stat(name, dir_fd=folder, follow_symlinks=False).st_uid == os.geteuid()
