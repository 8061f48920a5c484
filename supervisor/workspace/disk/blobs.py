"""Snapshots of request content by hash, under `data/sessions/ID/blobs`.

A card shows a blob and an approval applies that blob, so what the agent does to its file meanwhile
can't matter (law 2). Three parts rely on it: the channel that takes the snapshot, the card, and
apply. It must never return bytes under a name that isn't their hash.
"""

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from supervisor.core.actions import content_hash
from supervisor.core.files.changes import signature_of
from supervisor.errors import StorageError
from supervisor.workspace.disk.scan import (
    BLOCK_BYTES,
    LARGEST_FILE_BYTES,
    TooLargeError,
    UnsteadyError,
)
from supervisor.workspace.disk.syncing import Syncs

# An agent can write large files for as long as it runs; replaced contents must not fill the
# supervisor's disk.
MOST_BYTES = 4 << 30
# Smaller ones stay for the history.
SMALL_BYTES = 256 * 1024
_is_hash = re.compile("[0-9a-f]{64}").fullmatch


class Writing(NamedTuple):
    """A file that is being written: its temporary name and the open file."""

    temporary: str
    fd: int


class ContentFolder:
    """A folder of contents by hash, opened once. Each file is written completely and named last.
    Only the supervisor can reach it.

    A crash at any moment leaves at most a temporary file, which the next start removes. INVARIANT:
    an unfinished file gets no name. Blocking: call it in a thread, one at a time.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._syncs: Syncs | None = None
        self._unnamed: dict[str, tuple[str, int]] = {}
        self._postponed: set[str] = set()

    def close(self) -> None:
        """Close the folder's descriptor. May be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @contextlib.contextmanager
    def sharing_sync(self) -> Iterator[None]:
        """Sync the files of this block together, at its end. Only then are they durable and named;
        nothing that relies on them may happen before. Raise OSError where that fails: then none was
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
        """Record that the content is here from now on."""
        raise NotImplementedError

    def _at(self, name: str) -> str:
        """Return the content's present name, if it is here."""
        return self._unnamed[name][0] if name in self._unnamed else name

    def _sync(self, fd: int) -> None:
        """Make a file durable now, or at the end of `sharing_sync`."""
        if self._syncs is not None:
            self._syncs.add(fd)
        else:
            os.fsync(fd)

    def _contents(self) -> Iterator[tuple[str, int]]:
        """Yield each content's name and size, and remove files that a crash cut short."""
        for name in os.listdir(self._fd):  # noqa: PTH208  # of a descriptor
            if name.startswith("."):
                self._forget(name)
            else:
                yield name, os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_size

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Writing]:
        """Open a new file. It is removed at the end unless it got a name."""
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
        """Name a finished file of `size` bytes; sync it first if it must survive a power cut."""
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
    """Write all bytes, in as many calls as needed."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


class BlobStore(ContentFolder):
    """Content by `content_hash`, in one folder that only the supervisor can reach. Blocking: call
    it in a thread."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        sizes = dict(self._contents())
        self._bytes = sum(sizes.values())
        self._large = {name: size for name, size in sizes.items() if size > SMALL_BYTES}
        self._durable: dict[
            str, int
        ] = {}  # the size of those of which this process saw that they are on the disk

    def keep(self, data: bytes, *, durable: bool = True) -> str:
        """Store `data`; if `durable`, it survives a power cut. Return its hash."""
        digest = content_hash(data)
        if not self.has(digest):
            with self._writing() as writing:
                write_all(writing.fd, data)
                self._commit(writing, digest, len(data), durable)
        return digest

    def keep_file(self, source: int, before: os.stat_result | None) -> str:
        """Store an open file's content. Return its hash. Raise UnsteadyError where the file isn't
        as `before` at the end, or TooLargeError."""
        with self._writing() as writing:
            state = hashlib.blake2b(digest_size=32)
            total = 0
            while block := os.read(source, BLOCK_BYTES):
                total += len(block)
                if total > LARGEST_FILE_BYTES:
                    raise TooLargeError
                state.update(block)
                write_all(writing.fd, block)
            if before is not None and signature_of(os.fstat(source)) != signature_of(before):
                raise UnsteadyError
            digest = state.hexdigest()
            if not self.has(digest):
                self._commit(writing, digest, total)
            return digest

    def has(self, digest: str) -> bool:
        """Return whether the content is here."""
        try:
            os.stat(self._at(_name(digest)), dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def open(self, digest: str) -> int:
        """Return a descriptor to read the content from; the caller closes it. Raise
        FileNotFoundError where it isn't here."""
        return os.open(
            self._at(_name(digest)), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._fd
        )

    def read(self, digest: str, limit_bytes: int) -> bytes | None:
        """Return up to `limit_bytes + 1` bytes, so that the caller notices if there are more.
        Return None where the content isn't here."""
        try:
            fd = self.open(digest)
        except FileNotFoundError:
            return None
        with os.fdopen(fd, "rb") as file:
            return file.read(limit_bytes + 1)

    def size(self, digest: str) -> int | None:
        """Return the length in bytes, or None where the content isn't here."""
        with contextlib.suppress(FileNotFoundError):
            return os.stat(self._at(_name(digest)), dir_fd=self._fd).st_size
        return None

    def link(self, digest: str, folder: int, sync: Callable[[int], None] = os.fsync) -> int | None:
        """Give the content a second name in another folder of the session's; `sync` makes it
        durable. Return its size, or None where it isn't here.

        A file with a name here is never written to, so both names keep meaning these bytes.
        """
        try:
            size = self._durable.get(digest)
            if size is None:
                fd = self.open(digest)
                try:
                    size = os.fstat(fd).st_size
                    sync(fd)
                finally:
                    os.close(fd)
            os.link(
                _name(digest), digest, src_dir_fd=self._fd, dst_dir_fd=folder, follow_symlinks=False
            )
            return size
        except OSError:
            return None

    def large(self) -> dict[str, int]:
        """Return the contents larger than SMALL_BYTES, with their sizes."""
        return dict(self._large)

    def drop(self, digest: str) -> None:
        """Delete it, if it is here."""
        self._large.pop(digest, None)
        size = self.size(digest)
        if size is not None:
            self._forget(_name(digest))
            self._durable.pop(digest, None)
            self._bytes -= size

    def _commit(self, writing: Writing, digest: str, size: int, durable: bool = True) -> None:
        if self._bytes + size > MOST_BYTES:
            raise StorageError(
                "the session's snapshots take too much room",
                f"more than {MOST_BYTES >> 30} GB of changes wait",
            )
        self._give_name(writing, _name(digest), size, durable=durable)
        self._bytes += size
        if size > SMALL_BYTES:
            self._large[digest] = size

    def _note(self, name: str, size: int, *, durable: bool) -> None:
        if durable:
            self._durable[name] = size


def _name(digest: str) -> str:
    # INVARIANT: a name in this folder is a hash and nothing else, whatever an action's field says.
    if not _is_hash(digest):
        raise FileNotFoundError(f"`{digest[:80]}` is not a content hash")
    return digest
