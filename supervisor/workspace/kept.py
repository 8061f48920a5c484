"""What files on the host held before an effect, by hash and compressed, under `data/sessions/ID/before`.

It is separate from `blobs` because the two are dropped for different reasons: a request's snapshot when nobody asks
about it any more, a before-content when it is older than the history that is kept. With a folder each, neither can
take away what the other needs. It must never hand out bytes under a name that isn't their hash.

zstandard at level 1: a third of the size of source code, five times as fast as zlib at its own level 1.
"""

import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

import zstandard

from supervisor.core.actions import content_hash
from supervisor.errors import GatehouseError
from supervisor.workspace.scan import BLOCK_BYTES

BEFORE = "before"
LEVEL = 1
# Below a block of the disk's, compressing takes time and saves no room.
SMALLEST_COMPRESSED_BYTES = 4096
_COMPRESSED = ".zst"


class NotKeptError(GatehouseError):
    """The content isn't here (any more), or is damaged."""

    http_status = 409


class KeptContents:
    """One session's, `total_bytes` of it on the disk. Blocking: call it in a thread, one at a time."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._sizes: dict[str, int] = {}
        for name in os.listdir(self._fd):  # noqa: PTH208  # of a descriptor
            if name.startswith("."):
                os.unlink(name, dir_fd=self._fd)  # a copy that a crash cut short
            else:
                size = os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_size
                self._sizes[name.removesuffix(_COMPRESSED)] = size
        self.total_bytes = sum(self._sizes.values())

    def close(self) -> None:
        """Give the folder's descriptor back. May be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def digests(self) -> set[str]:
        """What is here."""
        return set(self._sizes)

    def has(self, digest: str) -> bool:
        """Whether the content is here."""
        return digest in self._sizes

    def keep(self, source: int, digest: str) -> bool:
        """Store what an open file holds from its position on, durably; False where that isn't what `digest` names."""
        return self.has(digest) or self._store(_blocks(source), digest, os.fstat(source).st_size)

    def keep_bytes(self, data: bytes) -> str:
        """Store `data`, durably; its hash."""
        digest = content_hash(data)
        if not self.has(digest):
            self._store([data], digest, len(data))
        return digest

    def _store(self, content: Iterable[bytes], digest: str, size_bytes: int) -> bool:
        compress = size_bytes >= SMALLEST_COMPRESSED_BYTES
        temporary = f".{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        writing = os.open(temporary, flags, 0o600, dir_fd=self._fd)
        try:
            if _write(content, writing, compress) != digest:
                return False
            os.fsync(writing)
            name = digest + (_COMPRESSED if compress else "")
            size = os.fstat(writing).st_size
            os.rename(temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
            os.fsync(self._fd)
            self._sizes[digest] = size
            self.total_bytes += size
            return True
        finally:
            os.close(writing)
            self._forget(temporary)

    def blocks(self, digest: str) -> Iterator[bytes]:
        """The content in pieces. Raises NotKeptError, at the end too: what came may only be used once all of it has."""
        state = hashlib.blake2b(digest_size=32)
        try:
            with self._opened(digest) as reading:
                while block := reading.read(BLOCK_BYTES):
                    state.update(block)
                    yield block
        except zstandard.ZstdError:
            raise _damaged() from None
        if state.hexdigest() != digest:
            raise _damaged()

    def read(self, digest: str, limit_bytes: int) -> bytes | None:
        """Up to `limit_bytes + 1` bytes, so that the caller sees that there is more; None where it isn't here."""
        try:
            with self._opened(digest) as reading:
                data: bytes = reading.read(limit_bytes + 1)
        except (NotKeptError, zstandard.ZstdError):
            return None
        return data

    def size(self, digest: str) -> int:
        """What it takes on the disk; 0 where it isn't here."""
        return self._sizes.get(digest, 0)

    def drop(self, digest: str) -> None:
        """Delete it, if it is here."""
        size = self._sizes.pop(digest, None)
        if size is not None:
            self.total_bytes -= size
            self._forget(digest)
            self._forget(digest + _COMPRESSED)

    @contextlib.contextmanager
    def _opened(self, digest: str) -> Iterator[zstandard.ZstdDecompressionReader]:
        if digest not in self._sizes:
            raise NotKeptError("what was there before is no longer kept", "take it from a backup or from git")
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            plain = os.open(digest, flags, dir_fd=self._fd)
        except FileNotFoundError:
            pass
        else:
            with os.fdopen(plain, "rb") as file:
                yield file  # type: ignore[misc]  # read(size) is all that is used of it
            return
        try:
            packed = os.open(digest + _COMPRESSED, flags, dir_fd=self._fd)
        except FileNotFoundError:
            raise NotKeptError("what was there before is no longer kept", "take it from a backup or from git") from None
        with os.fdopen(packed, "rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as reading:
            yield reading

    def _forget(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._fd)


def _blocks(fd: int) -> Iterator[bytes]:
    while block := os.read(fd, BLOCK_BYTES):
        yield block


def _write(content: Iterable[bytes], writing: int, compress: bool) -> str:
    """Copy all of it, packed or as it is; the hash of what was read."""
    state = hashlib.blake2b(digest_size=32)
    packer = zstandard.ZstdCompressor(level=LEVEL).compressobj() if compress else None
    for block in content:
        state.update(block)
        write_all(writing, packer.compress(block) if packer else block)
    if packer:
        write_all(writing, packer.flush())
    return state.hexdigest()


def write_all(fd: int, data: bytes) -> None:
    """All of it, however often that takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _damaged() -> NotKeptError:
    return NotKeptError("what was kept of the content before is damaged", "take it from a backup or from git")
