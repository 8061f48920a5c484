"""Before-contents: what host files held before an effect, by hash and compressed.

They lie under `data/sessions/ID/before`. It is separate from `blobs` because the two are dropped
for different reasons: a request's snapshot when nobody asks about it any more, a before-content
when it is older than the history that is kept. With a folder each, neither can take away what the
other needs. It must never hand out bytes under a name that isn't their hash.

zstandard at level 1: a third of the size of source code, five times as fast as zlib at its own
level 1.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

import zstandard

from supervisor.core.actions import content_hash
from supervisor.errors import GatehouseError
from supervisor.workspace.disk.blobs import BlobStore
from supervisor.workspace.disk.content_folder import ContentFolder, write_all
from supervisor.workspace.disk.scan import BLOCK_BYTES

BEFORE = "before"
LEVEL = 1
# Below a block of the disk's, compressing takes time and saves no room.
SMALLEST_COMPRESSED_BYTES = 4096
# Largest content read and packed as a whole.
SMALL_BYTES = 256 * 1024
_COMPRESSED = ".zst"


class NotKeptError(GatehouseError):
    """The content isn't here (any more), or is damaged."""

    http_status = 409


class _Reads(Protocol):
    def read(self, size: int, /) -> bytes: ...


class KeptContents(ContentFolder):
    """Before-contents of one session, `total_bytes` on the disk. Blocking: call it in a thread, one
    at a time."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        # One for all, as the class is used: made anew for each content it would take longer than
        # all the rest.
        self._packer = zstandard.ZstdCompressor(level=LEVEL)
        self._unpacker = zstandard.ZstdDecompressor()
        self._sizes: dict[str, int] = {}
        self._names: dict[str, str] = {}
        self.total_bytes = 0
        for name, size in self._contents():
            self._note(name, size, durable=True)

    def digests(self) -> set[str]:
        """Return the digests of all contents."""
        return set(self._sizes)

    def has(self, digest: str) -> bool:
        """Return whether the content is here."""
        return (
            digest in self._sizes
            or digest in self._unnamed
            or digest + _COMPRESSED in self._unnamed
        )

    def keep(self, source: int, digest: str) -> bool:
        """Store what an open file holds from its position on, durably; False where that isn't
        what `digest` names."""
        return self.has(digest) or self._store(_blocks(source), digest, os.fstat(source).st_size)

    def adopt(self, digest: str, snapshots: BlobStore) -> bool:
        """Keep one of a session's snapshots, without copying it; False where it isn't there."""
        if self.has(digest):
            return True
        size = snapshots.link(digest, self._fd, self._sync)
        if size is None:
            return False
        if self._syncs is None:
            os.fsync(self._fd)
        self._note(digest, size, durable=True)
        return True

    def keep_bytes(self, data: bytes) -> str:
        """Store `data`, durably; its hash."""
        digest = content_hash(data)
        if not self.has(digest):
            self._store([data], digest, len(data))
        return digest

    def _store(self, content: Iterable[bytes], digest: str, size_bytes: int) -> bool:
        compress = size_bytes >= SMALLEST_COMPRESSED_BYTES
        with self._writing() as writing:
            if (
                _write(content, writing.fd, self._packer if compress else None, size_bytes)
                != digest
            ):
                return False
            name = digest + (_COMPRESSED if compress else "")
            self._give_name(writing, name, os.fstat(writing.fd).st_size)
            return True

    def blocks(self, digest: str) -> Iterator[bytes]:
        """Yield the content in pieces. Raises NotKeptError, at the end too: use the pieces only
        once all came."""
        state = hashlib.blake2b(digest_size=32)
        try:
            if (data := self._small(digest)) is not None:
                if content_hash(data) != digest:
                    raise _damaged()
                yield data
                return
            with self._opened(digest) as reading:
                while block := reading.read(BLOCK_BYTES):
                    state.update(block)
                    yield block
        except zstandard.ZstdError:
            raise _damaged() from None
        if state.hexdigest() != digest:
            raise _damaged()

    def read(self, digest: str, limit_bytes: int) -> bytes | None:
        """Up to `limit_bytes + 1` bytes, so that the caller sees that there is more; None where
        it isn't here."""
        try:
            with self._opened(digest) as reading:
                data = reading.read(limit_bytes + 1)
        except (NotKeptError, zstandard.ZstdError):
            return None
        return data

    def size(self, digest: str) -> int:
        """Return the bytes on the disk; 0 where it isn't here."""
        return self._sizes.get(digest, 0)

    def drop(self, digest: str) -> None:
        """Delete it, if it is here."""
        size = self._sizes.pop(digest, None)
        if size is not None:
            self.total_bytes -= size
            self._forget(self._names.pop(digest))

    @contextlib.contextmanager
    def _opened(self, digest: str) -> Iterator[_Reads]:
        with os.fdopen(self._open(digest), "rb") as file:
            is_packed = self._names[digest] != digest
            yield zstandard.ZstdDecompressor().stream_reader(file) if is_packed else file

    def _open(self, digest: str) -> int:
        try:
            return os.open(
                self._names[digest], os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._fd
            )
        except (KeyError, FileNotFoundError):
            raise NotKeptError(
                "what was there before is no longer kept", "take it from a backup or from git"
            ) from None

    def _small(self, digest: str) -> bytes | None:
        """Return the whole content, where it is small: without what takes longer than reading
        it."""
        size = self._sizes.get(digest, 0)
        if size > SMALL_BYTES:
            return None
        fd = self._open(digest)
        try:
            data = os.read(fd, size)
        finally:
            os.close(fd)
        if self._names[digest] == digest:
            return data
        return (
            self._unpacker.decompress(data)
            if 0 < zstandard.frame_content_size(data) <= SMALL_BYTES
            else None
        )

    def _note(self, name: str, size: int, *, durable: bool) -> None:
        digest = name.removesuffix(_COMPRESSED)
        self._names[digest] = name
        self._sizes[digest] = size
        self.total_bytes += size


def _blocks(fd: int) -> Iterator[bytes]:
    while block := os.read(fd, BLOCK_BYTES):
        yield block


def _write(
    content: Iterable[bytes],
    writing: int,
    compressor: zstandard.ZstdCompressor | None,
    size_bytes: int,
) -> str:
    """Copy all of it, packed or not; return the hash of the bytes read."""
    if compressor and size_bytes <= SMALL_BYTES:
        data = b"".join(content)
        write_all(writing, compressor.compress(data))
        return content_hash(data)
    state = hashlib.blake2b(digest_size=32)
    packer = compressor.compressobj() if compressor else None
    for block in content:
        state.update(block)
        write_all(writing, packer.compress(block) if packer else block)
    if packer:
        write_all(writing, packer.flush())
    return state.hexdigest()


def _damaged() -> NotKeptError:
    return NotKeptError(
        "what was kept of the content before is damaged", "take it from a backup or from git"
    )
