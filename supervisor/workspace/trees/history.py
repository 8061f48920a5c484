"""History of effects on the host, with what was there before: the basis of undo.

Before an effect the content that it replaces is kept and its intent is journaled, in this order; so
at any crash, an effect that happened has its before-content on the disk. It is separate because
apply writes it, undo reads it, and its bounds are its own. It must never hold up the agent's work
to keep old history: the oldest entry goes first, and dropped entries are counted and reported.
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from supervisor.base.clock import Clock, RealClock
from supervisor.core.files.undoing import MADE_FOLDER, Effect, HeldContent
from supervisor.workspace.disk.blobs import BlobStore
from supervisor.workspace.trees.before_contents import BEFORE, KeptContents
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


class History:
    """One session's. Blocking: call it in a thread, one at a time. `done` is oldest first."""

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
        """Give the descriptors back. May be called twice."""
        self.kept.close()

    def now(self) -> float:
        """Return the time as lines carry it."""
        return round(self._clock.now(), 3)

    def adopt(self, digest: str) -> bool:
        """Keep one of the session's snapshots, as an agent's change leaves in a file; False where
        it isn't there."""
        return self._snapshots is not None and self.kept.adopt(digest, self._snapshots)

    def keep(self, source: int, digest: str) -> bool:
        """Keep what an open file holds; False where that is no longer what `digest` names."""
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
        """Return the repositories that changes of this path were judged in: it may be changed in
        them, and put back."""
        return self._consents.get(encode_name(name), frozenset())

    def _note_consent(self, intent: Intent) -> None:
        if intent.repositories:
            self._consents[intent.name] = self._consents.get(intent.name, frozenset()) | set(
                intent.repositories
            )

    def intended(self, request: str, name: str) -> Intent | None:
        """Return the intent of an effect that nothing more is known of, from before a crash
        perhaps."""
        return self.open.get((request, encode_name(name)))

    def has_before(self, intent: Intent) -> bool:
        """Return whether what an effect was to replace is kept."""
        digest = _digest(intent)
        return digest is None or self.kept.has(digest)

    def has_all(self, request: str, names: Iterable[str]) -> bool:
        """Return whether a request's effects on all of these paths are on record, as begun or as
        done."""
        done = {one.name for one in self.done if one.request == request}
        return all((request, name) in self.open or name in done for name in map(encode_name, names))

    def confirm(self, request: str, name: str) -> None:
        """The effect happened, and is on record in the journal."""
        intent = self.open.pop((request, encode_name(name)), None)
        if intent is not None and intent.operation:
            self.done.append(intent)
            self._trim()

    def confirm_alone(self, request: str, name: str) -> None:
        """The effect happened, and nothing is agreed with the copy: put it on record."""
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
        """Record an undo that is about to happen. Until its end nothing is dropped that it may
        need."""
        self._journal.write(undo)
        self.undos[undo.id] = self.open_undo = undo

    def end_undo(self, undo: UndoBegun, *, rolled_back: bool) -> None:
        """Record that the undo is done, or that nothing of it is in effect."""
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
        """Put on record which requests are carried out together. Until its end nothing is let go
        that it may need."""
        if self.open_batch != batch:
            self._journal.write(batch)
            self.open_batch = batch

    def end_batch(
        self, batch: BatchBegun, *, rolled_back: bool, stays: Iterable[Intent] = ()
    ) -> None:
        """Record that the batch is done; or that nothing of it is in effect but what `stays`, and
        its other intents count as never made."""
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
        """Let go of the oldest where there is too much, or it is too old."""
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
        """One use less of its content; its digest where that was the last."""
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
