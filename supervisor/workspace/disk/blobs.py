"""Snapshots of request content by hash, under `data/sessions/ID/blobs`.

A card shows a blob and an approval applies that blob: what the agent does to its file in the
meantime can't matter (law 2). Three parts rely on it: the channel that takes the snapshot, the
card, and apply. It must never hand out bytes under a name that isn't their hash.
"""

import contextlib
import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path

from supervisor.core.actions import content_hash
from supervisor.core.files.changes import signature_of
from supervisor.errors import StorageError
from supervisor.workspace.disk.content_folder import ContentFolder, Writing, write_all
from supervisor.workspace.disk.scan import (
    BLOCK_BYTES,
    LARGEST_FILE_BYTES,
    TooLargeError,
    UnsteadyError,
)

# An agent can write large files for as long as it runs; the supervisor's disk must not fill up with
# what it replaced.
MOST_BYTES = 4 << 30
# Smaller ones stay for the history.
SMALL_BYTES = 256 * 1024
_is_hash = re.compile("[0-9a-f]{64}").fullmatch


class BlobStore(ContentFolder):
    """Content by `content_hash`, in one folder that only the supervisor can reach. Blocking:
    call it in a thread."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        sizes = dict(self._contents())
        self._bytes = sum(sizes.values())
        self._large = {name: size for name, size in sizes.items() if size > SMALL_BYTES}
        self._durable: dict[
            str, int
        ] = {}  # the size of those of which this process saw that they are on the disk

    def keep(self, data: bytes, *, durable: bool = True) -> str:
        """Store `data`, so that it survives a power cut if it is to be `durable`; its hash."""
        digest = content_hash(data)
        if not self.has(digest):
            with self._writing() as writing:
                write_all(writing.fd, data)
                self._commit(writing, digest, len(data), durable)
        return digest

    def keep_file(self, source: int, before: os.stat_result | None) -> str:
        """Store an open file's content; return its hash. UnsteadyError where it isn't as `before`
        at the end, TooLargeError."""
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
        """A descriptor to read it from; the caller closes it. FileNotFoundError where it isn't
        here."""
        return os.open(
            self._at(_name(digest)), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._fd
        )

    def read(self, digest: str, limit_bytes: int) -> bytes | None:
        """Return up to `limit_bytes + 1` bytes, so that the caller sees that there are more; None
        where it isn't here."""
        try:
            fd = self.open(digest)
        except FileNotFoundError:
            return None
        with os.fdopen(fd, "rb") as file:
            return file.read(limit_bytes + 1)

    def size(self, digest: str) -> int | None:
        """Its length in bytes; None where it isn't here."""
        with contextlib.suppress(FileNotFoundError):
            return os.stat(self._at(_name(digest)), dir_fd=self._fd).st_size
        return None

    def link(self, digest: str, folder: int, sync: Callable[[int], None] = os.fsync) -> int | None:
        """Give the content a second name in another folder of the session's, where `sync` makes it
        durable; its size, None where it isn't here.

        Nothing is ever written into what has a name here, so both names keep meaning these bytes.
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
        """Those that are larger than SMALL_BYTES, with their sizes."""
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
