"""Folder of hashed contents: opened once, written whole, named last.

Only the supervisor can reach it. Snapshots (`blobs`) and what the host held before
(`before_contents`) are written with this same care, and share nothing else. A crash at any moment
leaves at most a temporary file, which the next start removes. It must never give a name to a file
that isn't finished.
"""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from supervisor.workspace.disk.syncing import Syncs


class Writing(NamedTuple):
    """A file that is being written: its temporary name, and the open file."""

    temporary: str
    fd: int


class ContentFolder:
    """Blocking: call it in a thread, one at a time."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._syncs: Syncs | None = None
        self._unnamed: dict[str, tuple[str, int]] = {}
        self._postponed: set[str] = set()

    def close(self) -> None:
        """Give the folder's descriptor back. May be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @contextlib.contextmanager
    def sharing_sync(self) -> Iterator[None]:
        """Sync the files of this block together, at its end: only then are they durable and named,
        and what relies on them must not happen before. OSError where that fails: then none was
        kept."""
        self._syncs = Syncs()
        try:
            yield
        finally:
            syncs, self._syncs = self._syncs, None
            unnamed, self._unnamed = self._unnamed, {}
            try:
                syncs.finish()
                for name, (temporary, size) in unnamed.items():
                    os.rename(temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
                    self._note(name, size, durable=True)
                os.fsync(self._fd)
            finally:
                postponed, self._postponed = self._postponed, set()
                for temporary in postponed:
                    self._forget(temporary)

    def _note(self, name: str, size: int, *, durable: bool) -> None:
        """It is here from now on."""
        raise NotImplementedError

    def _at(self, name: str) -> str:
        """Under which name it is now, if it is here."""
        return self._unnamed[name][0] if name in self._unnamed else name

    def _sync(self, fd: int) -> None:
        """Make a file durable now, or at the end of `sharing_sync`."""
        if self._syncs is not None:
            self._syncs.add(fd)
        else:
            os.fsync(fd)

    def _contents(self) -> Iterator[tuple[str, int]]:
        """Return name and size of each, and remove files that a crash cut short."""
        for name in os.listdir(self._fd):  # noqa: PTH208  # of a descriptor
            if name.startswith("."):
                self._forget(name)
            else:
                yield name, os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_size

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Writing]:
        """Open a new file; it is removed at the end unless it got a name."""
        temporary = f".{secrets.token_hex(8)}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(temporary, flags, 0o600, dir_fd=self._fd)
        try:
            yield Writing(temporary, fd)
        finally:
            os.close(fd)
            if temporary not in self._postponed:
                self._forget(temporary)

    def _give_name(self, writing: Writing, name: str, size: int, *, durable: bool = True) -> None:
        """It is finished, and `size` bytes: sync it, where it is to survive a power cut, and
        name it."""
        if durable:
            self._sync(writing.fd)
        if durable and self._syncs is not None:
            self._unnamed[name] = writing.temporary, size
            self._postponed.add(writing.temporary)
            return
        os.rename(writing.temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        if durable:
            os.fsync(self._fd)
        self._note(name, size, durable=durable)

    def _forget(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._fd)


def write_all(fd: int, data: bytes) -> None:
    """Write all bytes, in as many calls as that takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
