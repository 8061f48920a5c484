"""What was done to the host, in its order, and what was there before: the memory that undo works from.

Before an effect the content that it replaces is kept and its intent is journaled, in this order; so whatever moment a
crash picks, an effect that happened has its before on the disk. It is separate because apply writes it, undo reads it,
and its bounds are its own. It must never hold up the agent's work to keep old history: the oldest goes first, and what
went is counted and said.
"""

from collections import Counter
from pathlib import Path

from supervisor.clock import Clock, RealClock
from supervisor.core.undoing import Held
from supervisor.workspace.journal import Done, Forgotten, Intent, Journal, Replayed, encode_name
from supervisor.workspace.kept import BEFORE, KeptContents

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
        clock: Clock | None = None,
        most_bytes: int = MOST_KEPT_BYTES,
    ) -> None:
        self.kept = KeptContents(folder / BEFORE)
        self.open = replayed.open_intents
        self.done = replayed.done
        self.forgotten = replayed.forgotten
        self._journal = journal
        self._clock = clock or RealClock()
        self._most_bytes = most_bytes
        self._uses = Counter(digest for intent in (*self.done, *self.open.values()) if (digest := _digest(intent)))
        for digest in self.kept.digests() - self._uses.keys():
            self.kept.drop(digest)  # kept for an effect that a crash or a refusal came before
        self._trim()

    def close(self) -> None:
        """Give the descriptors back. May be called twice."""
        self.kept.close()

    def keep(self, source: int, digest: str) -> bool:
        """Keep what an open file holds; False where that is no longer what `digest` names."""
        return self.kept.keep(source, digest)

    def intend(
        self,
        request: str,
        name: str,
        temporary: str,
        operation: str,
        before: Held | None,
        after: Held | None,
        folders: tuple[str, ...] = (),
    ) -> None:
        """Record that an effect is about to happen. The content of `before` has been kept."""
        made = tuple(encode_name(folder) for folder in folders)
        at = round(self._clock.now(), 3)
        intent = Intent(request, encode_name(name), temporary, operation, before, after, made, at)
        self._journal.write(intent)
        old = self.open.get(intent.key)
        self.open[intent.key] = intent
        if digest := _digest(intent):
            self._uses[digest] += 1
        if old is not None:
            self._unuse(old)

    def intended(self, request: str, name: str) -> Intent | None:
        """The intent of an effect that nothing more is known of, from before a crash perhaps."""
        return self.open.get((request, encode_name(name)))

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

    def _trim(self) -> None:
        """Let go of the oldest where there is too much, or it is too old."""
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


def _digest(intent: Intent) -> str | None:
    return intent.before.digest if intent.before is not None and intent.before.kind == "file" else None
