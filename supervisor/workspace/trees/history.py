"""History of effects on the host, with the content before each: the basis of undo.

Before an effect, first the content that it replaces is kept, then its intent is journaled. So after
any crash, an effect that happened has its before-content on the disk. It must never delay the
agent's work to keep old history: the oldest entry is dropped first, and dropped entries are counted
and reported.
"""

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import zstandard

from supervisor.base.clock import Clock, RealClock
from supervisor.core.actions import content_hash
from supervisor.core.files.undo_steps import MADE_FOLDER, Effect, HeldContent
from supervisor.errors import GatehouseError
from supervisor.workspace.disk.blobs import BlobStore, ContentFolder, write_all
from supervisor.workspace.disk.scan import BLOCK_BYTES
from supervisor.workspace.trees.journal import (
    BatchBegun,
    BatchEnded,
    Done,
    Forgotten,
    Intent,
    Journal,
    Replayed,
    UndoBegun,
    UndoEnded,
    decode_name,
    encode_name,
    of_batch,
    of_undo,
)

MOST_KEPT_BYTES = 1 << 30
LONGEST_KEPT_S = 30 * 24 * 3600.0
BEFORE = "before"
LEVEL = 1
# Below the disk's block size, compression takes time and saves no room.
SMALLEST_COMPRESSED_BYTES = 4096
# Largest content read and compressed in one piece.
SMALL_BYTES = 256 * 1024
_COMPRESSED = ".zst"


class NotKeptError(GatehouseError):
    """The content isn't here (any more), or is damaged."""

    http_status = 409


class KeptContents(ContentFolder):
    """Before-contents of one session: what host files held before an effect, by hash and
    compressed, below `data/sessions/ID/before`. `total_bytes` is their size on the disk. Blocking:
    call it in a thread, one at a time.

    Snapshots (`blobs`) are dropped for other reasons, so each has a folder of its own. INVARIANT:
    no bytes are returned under a name that isn't their hash. zstandard at level 1 compresses source
    code to a third, five times as fast as zlib at its level 1.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        # One compressor for all contents, since the calls don't overlap. A new one per content
        # would take longer than all the rest.
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
        """Store what an open file holds from its position on, durably. Return False where its hash
        isn't `digest`."""
        return self.has(digest) or self._store(_blocks(source), digest, os.fstat(source).st_size)

    def adopt(self, digest: str, snapshots: BlobStore) -> bool:
        """Keep one of a session's snapshots without copying it. Return False where it isn't
        there."""
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
        """Store `data`, durably. Return its hash."""
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
        """Yield the content in pieces. Raise NotKeptError, possibly at the end: use the pieces only
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
        """Return up to `limit_bytes + 1` bytes, so that the caller notices if there are more.
        Return None where the content isn't here."""
        try:
            with self._opened(digest) as reading:
                data = reading.read(limit_bytes + 1)
        except (NotKeptError, zstandard.ZstdError):
            return None
        return data

    def size(self, digest: str) -> int:
        """Return its size on the disk in bytes; 0 where it isn't here."""
        return self._sizes.get(digest, 0)

    def drop(self, digest: str) -> None:
        """Delete it, if it is here."""
        size = self._sizes.pop(digest, None)
        if size is not None:
            self.total_bytes -= size
            self._forget(self._names.pop(digest))

    @contextlib.contextmanager
    def _opened(self, digest: str) -> Iterator[BinaryIO | zstandard.ZstdDecompressionReader]:
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
        """Return the whole content if it is small, skipping steps that take longer than reading
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
    """Copy everything, compressed or not. Return the hash of the bytes read."""
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


class History:
    """One session's history. Blocking: call it in a thread, one at a time. `done` is oldest
    first."""

    def __init__(
        self,
        folder: Path,
        journal: Journal,
        replayed: Replayed,
        *,
        snapshots: BlobStore | None = None,
        clock: Clock | None = None,
        most_bytes: int = MOST_KEPT_BYTES,
    ) -> None:
        self.kept = KeptContents(folder / BEFORE)
        self.open = replayed.open_intents
        self.done = replayed.done
        self.forgotten = replayed.forgotten
        self.undos = replayed.undos
        self.open_undo = replayed.open_undo
        self.open_batch = replayed.open_batch
        self.batches = replayed.batches
        self.progress: tuple[int, int] | None = None
        """How many of so many effects are prepared, while they are carried out together."""
        self._journal = journal
        self._snapshots = snapshots
        self._clock = clock or RealClock()
        self._most_bytes = most_bytes
        self._uses = Counter(
            digest for intent in (*self.done, *self.open.values()) if (digest := _digest(intent))
        )
        needed = _needed(self.open_undo) | self._uses.keys()
        for digest in self.kept.digests() - needed:
            self.kept.drop(digest)  # kept for an effect that a crash or a refusal came before
        self._consents: dict[str, frozenset[str]] = {}
        for intent in (*self.done, *self.open.values()):
            self._note_consent(intent)
        self._trim()

    def close(self) -> None:
        """Close the descriptors. May be called twice."""
        self.kept.close()

    @contextlib.contextmanager
    def counting(self, total: int) -> Iterator[None]:
        """Let `count` say how far so many effects are."""
        self.progress = (0, total)
        try:
            yield
        finally:
            self.progress = None

    def count(self) -> None:
        if self.progress is not None:
            self.progress = (self.progress[0] + 1, self.progress[1])

    def now(self) -> float:
        """Return the time in the form used by journal lines."""
        return round(self._clock.now(), 3)

    def adopt(self, digest: str) -> bool:
        """Keep one of the session's snapshots, as an agent's change leaves it in a file. Return
        False where it isn't there."""
        return self._snapshots is not None and self.kept.adopt(digest, self._snapshots)

    def keep(self, source: int, digest: str) -> bool:
        """Keep what an open file holds. Return False where its hash is no longer `digest`."""
        return self.kept.keep(source, digest)

    def intend(
        self,
        request: str,
        name: str,
        temporary: str,
        operation: str,
        before: HeldContent | None,
        after: HeldContent | None,
        folders: tuple[str, ...] = (),
        repositories: tuple[str, ...] = (),
    ) -> None:
        """Record that an effect is about to happen. The content of `before` has been kept."""
        made = tuple(encode_name(folder) for folder in folders)
        now = self.now()
        intent = Intent(
            request, encode_name(name), temporary, operation, before, after, made, now, repositories
        )
        self._note_consent(intent)
        self._journal.write(intent)
        old = self.open.get(intent.key)
        self.open[intent.key] = intent
        if digest := _digest(intent):
            self._uses[digest] += 1
        if old is not None:
            self._unuse(old)

    def consents(self, name: str) -> frozenset[str]:
        """Return the repositories that changes of this path were judged in: in those it may be
        changed, and put back."""
        return self._consents.get(encode_name(name), frozenset())

    def _note_consent(self, intent: Intent) -> None:
        if intent.repositories:
            self._consents[intent.name] = self._consents.get(intent.name, frozenset()) | set(
                intent.repositories
            )

    def intended(self, request: str, name: str) -> Intent | None:
        """Return the intent of an effect with no known outcome, perhaps from before a crash."""
        return self.open.get((request, encode_name(name)))

    def has_before(self, intent: Intent) -> bool:
        """Return whether the content that an effect was to replace is kept."""
        digest = _digest(intent)
        return digest is None or self.kept.has(digest)

    def has_all(self, request: str, names: Iterable[str]) -> bool:
        """Return whether a request's effects on all of these paths are recorded, as begun or as
        done."""
        done = {one.name for one in self.done if one.request == request}
        return all((request, name) in self.open or name in done for name in map(encode_name, names))

    def confirm(self, request: str, name: str) -> None:
        """Note that the effect happened, and that the journal has it."""
        intent = self.open.pop((request, encode_name(name)), None)
        if intent is not None and intent.operation:
            self.done.append(intent)
            self._trim()

    def confirm_alone(self, request: str, name: str) -> None:
        """Record that the effect happened, without an agreement with the copy."""
        self._journal.write(Done(request, encode_name(name)))
        self.confirm(request, name)

    def requests_of(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Return the requests that these ids stand for: a batch's id stands for all of its
        requests."""
        return tuple(request for one in ids for request in self.batches.get(one, (one,)))

    def contents_made(self) -> set[str]:
        """Return the contents made by effects that can still be undone: an undo shows them, and
        merges with them."""
        return {
            one.after.digest
            for one in self.done
            if one.after is not None and one.after.digest is not None
        }

    def effects(self) -> list[Effect]:
        """Return all effects that can still be undone, oldest first; parent folders before what
        they are for."""
        found: list[Effect] = []
        for number, one in enumerate(self.done, self.forgotten.number + 1):
            found += [
                Effect(number, one.request, decode_name(folder), "mkdir", None, MADE_FOLDER, one.at)
                for folder in one.folders
            ]
            name = decode_name(one.name)
            found.append(
                Effect(number, one.request, name, one.operation, one.before, one.after, one.at)
            )
        return found

    def begin_undo(self, undo: UndoBegun) -> None:
        """Record an undo that is about to happen. Until its end, nothing that it may need is
        dropped."""
        self._journal.write(undo)
        self.undos[undo.id] = self.open_undo = undo

    def end_undo(self, undo: UndoBegun, *, rolled_back: bool) -> None:
        """Record that the undo is done, or that none of it is in effect."""
        self._journal.write(UndoEnded(undo.id, rolled_back))
        self.open_undo = None
        if rolled_back:
            del self.undos[undo.id]
            for key in of_undo(self.open, undo.id):
                self._let_go(self._unuse(self.open.pop(key)))
            gone = [intent for intent in self.done if intent.request == undo.id]
            self.done = [intent for intent in self.done if intent.request != undo.id]
            for intent in gone:
                self._let_go(self._unuse(intent))
        self._trim()

    def begin_batch(self, batch: BatchBegun) -> None:
        """Record which requests are carried out together. Until its end, nothing that it may need
        is dropped."""
        if self.open_batch != batch:
            self._journal.write(batch)
            self.open_batch = batch

    def end_batch(
        self, batch: BatchBegun, *, rolled_back: bool, stays: Iterable[Intent] = ()
    ) -> None:
        """Record that the batch is done, or that none of it is in effect except `stays`; its other
        intents then count as never made."""
        for intent in stays:
            self.confirm_alone(intent.request, decode_name(intent.name))
        self._journal.write(BatchEnded(batch.id, rolled_back))
        self.open_batch = None
        if not rolled_back:
            self.batches[batch.id] = batch.requests
        else:
            for key in of_batch(self.open, batch):
                self._let_go(self._unuse(self.open.pop(key)))
        self._trim()

    def _trim(self) -> None:
        """Drop the oldest entries where the kept contents are too large, or they are too old."""
        if self.open_undo is not None or self.open_batch is not None:
            return
        oldest = self._clock.now() - LONGEST_KEPT_S
        unused: list[str] = []
        number = freed = 0
        why = ""
        for intent in self.done:
            if self.kept.total_bytes - freed > self._most_bytes:
                why = f"more than {self._most_bytes >> 20} MB of former contents were kept"
            elif intent.at < oldest:
                why = f"they were older than {LONGEST_KEPT_S / 86400:.0f} days"
            else:
                break
            number += 1
            if digest := self._unuse(intent):
                unused.append(digest)
                freed += self.kept.size(digest)
        if number:
            self._journal.write(Forgotten(number, why))
            del self.done[:number]
            self.forgotten = Forgotten(self.forgotten.number + number, why)
        for digest in unused:
            self._let_go(digest)

    def _let_go(self, digest: str | None) -> None:
        if digest is not None:
            self.kept.drop(digest)

    def _unuse(self, intent: Intent) -> str | None:
        """Count one use less of the intent's content. Return its digest where that was the last
        use."""
        digest = _digest(intent)
        if digest is None:
            return None
        self._uses[digest] -= 1
        if self._uses[digest] > 0:
            return None
        del self._uses[digest]
        return digest


def _needed(undo: UndoBegun | None) -> set[str]:
    """Return the contents that an interrupted undo puts back: a merged one isn't any effect's
    before-content."""
    steps = undo.steps if undo is not None else ()
    return {step.to.digest for step in steps if step.to is not None and step.to.digest is not None}


def _digest(intent: Intent) -> str | None:
    return (
        intent.before.digest if intent.before is not None and intent.before.kind == "file" else None
    )
