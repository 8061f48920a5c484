"""Journal of a session's workspace: the baseline, and each change of it since.

`baseline.msgpack` is written once, when the copy is made. `workspace.journal` grows by a line for
every effect on the host: first its intent (the temporary file's place, the state before and after),
then what host and copy agree on afterwards. After a crash, replay returns the baseline, the effects
so far in their order, and the names of possible leftovers. It must never be needed to decide
whether something may be done: only the gate decides.
"""

import base64
import errno
import functools
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from supervisor.core.files.changes import Known
from supervisor.core.files.undo_steps import HeldContent

BASELINE = "baseline.msgpack"
JOURNAL = "workspace.journal"


class Intent(msgspec.Struct, frozen=True, tag="intent", omit_defaults=True, gc=False):
    """An effect was about to happen. Names are base64."""

    request: str
    name: str
    # The leaf name of its file beside the target.
    temporary: str
    # Empty in lines from before there was undo.
    operation: str = ""
    # The old state, whose content is kept by then.
    before: HeldContent | None = None
    # The new state.
    after: HeldContent | None = None
    # Missing parents that it makes, outermost first.
    folders: tuple[str, ...] = ()
    # Seconds since the epoch.
    at: float = 0.0
    # The repositories that it was judged in.
    repositories: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """Return the intent's key. One request has one intent per path; an undo covers many
        paths."""
        return (self.request, self.name)


class Agreed(msgspec.Struct, frozen=True, tag="agreed", gc=False):
    """Host and copy now agree on this about a path (None: it is gone). `request` names the effect
    that caused it."""

    name: str
    known: Known | None
    request: str | None = None


class Done(msgspec.Struct, frozen=True, tag="done", gc=False):
    """The host was changed as an intent says, without effect on the copy."""

    request: str
    name: str


class Forgotten(msgspec.Struct, frozen=True, tag="forgotten"):
    """The oldest `number` changes can't be undone any more."""

    number: int
    why: str


class Step(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A path of an undo: base64, its state after the undo, and the state expected before."""

    name: str
    to: HeldContent | None
    expected: HeldContent | None


class UndoBegun(msgspec.Struct, frozen=True, tag="undo"):
    """An undo was begun: it takes back the effects of `of` (requests and other undos), in these
    steps, or does nothing."""

    id: str
    by: str
    what: str
    at: float
    of: tuple[str, ...]
    steps: tuple[Step, ...]


class UndoEnded(msgspec.Struct, frozen=True, tag="undo-ended"):
    """All of its steps were done or, with `rolled_back`, none is in effect."""

    id: str
    rolled_back: bool


class BatchBegun(msgspec.Struct, frozen=True, tag="batch"):
    """Several requests are about to be carried out together: all of them, or none is in effect."""

    id: str
    requests: tuple[str, ...]


class BatchEnded(msgspec.Struct, frozen=True, tag="batch-ended"):
    """All of them were carried out or, with `rolled_back`, none is in effect."""

    id: str
    rolled_back: bool


Line = Intent | Agreed | Done | Forgotten | UndoBegun | UndoEnded | BatchBegun | BatchEnded


class Replayed(msgspec.Struct):
    """Result of a replay: the baseline now, the open intents, the effects in their order, and the
    undos among them. `open_undo` is one that a crash cut short; `nothing` are paths known to be
    gone; `batches` are the requests of each finished batch, by its id."""

    baseline: dict[str, Known]
    open_intents: dict[tuple[str, str], Intent]
    done: list[Intent]
    forgotten: Forgotten
    undos: dict[str, UndoBegun]
    open_undo: UndoBegun | None = None
    open_batch: BatchBegun | None = None
    nothing: set[str] = msgspec.field(default_factory=set)
    batches: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


def write_baseline(folder: Path, baseline: dict[str, Known]) -> None:
    """Write the baseline durably and completely, or not at all."""
    # No name contains a NUL, and converting one string takes a tenth of the time of many.
    names = os.fsencode("\0".join(baseline)).split(b"\0") if baseline else []
    data = msgspec.msgpack.encode(list(zip(names, baseline.values(), strict=True)))
    temporary = folder / f".{BASELINE}.tmp"
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(folder / BASELINE)


def replay(folder: Path) -> Replayed:
    """Read both files. Raise FileNotFoundError where the copy was never finished. A torn last line
    is ignored."""
    pairs = msgspec.msgpack.decode((folder / BASELINE).read_bytes(), type=list[tuple[bytes, Known]])
    names = os.fsdecode(b"\0".join(name for name, _ in pairs)).split("\0") if pairs else []
    baseline = dict(zip(names, (known for _, known in pairs), strict=True))
    state = Replayed(baseline, {}, [], Forgotten(0, ""), {})
    try:
        lines = (folder / JOURNAL).read_bytes().split(b"\n")
    except FileNotFoundError:
        return state
    decoder = msgspec.json.Decoder(Line)
    for line in lines:
        try:
            _take(state, decoder.decode(line))
        except msgspec.DecodeError:
            continue
    return state


def _take(state: Replayed, line: Line) -> None:
    """Apply one line to the state so far."""
    match line:
        case Intent():
            state.open_intents[line.key] = line
        case Done():
            _close_intent(state, line.request, line.name)
        case Forgotten():
            del state.done[: line.number]
            state.forgotten = Forgotten(state.forgotten.number + line.number, line.why)
        case UndoBegun():
            state.undos[line.id] = state.open_undo = line
        case UndoEnded():
            state.open_undo = None
            if line.rolled_back:
                del state.undos[line.id]
                state.done = [intent for intent in state.done if intent.request != line.id]
                for key in of_undo(state.open_intents, line.id):
                    del state.open_intents[key]
        case BatchBegun() | BatchEnded():
            _take_batch(state, line)
        case Agreed():
            if line.request is not None:
                _close_intent(state, line.request, line.name)
            name = decode_name(line.name)
            if line.known is None:
                state.baseline.pop(name, None)
                state.nothing.add(name)
            else:
                state.nothing.discard(name)
                state.baseline[name] = line.known


def _take_batch(state: Replayed, line: BatchBegun | BatchEnded) -> None:
    if isinstance(line, BatchBegun):
        state.open_batch = line
        return
    batch, state.open_batch = state.open_batch, None
    if batch is None:
        return
    if not line.rolled_back:
        state.batches[batch.id] = batch.requests
        return
    for key in of_batch(state.open_intents, batch):
        del state.open_intents[key]


def of_batch(intents: Iterable[tuple[str, str]], batch: BatchBegun) -> list[tuple[str, str]]:
    """Return the keys of a batch's intents, and of the intents that reverted them."""
    ids = {batch.id, *batch.requests}
    return [key for key in intents if key[0] in ids]


def of_undo(intents: Iterable[tuple[str, str]], undo_id: str) -> list[tuple[str, str]]:
    """Return the keys of the undo's intents that have no known outcome."""
    return [key for key in intents if key[0] == undo_id]


def _close_intent(state: Replayed, request: str, name: str) -> None:
    intent = state.open_intents.pop((request, name), None)
    if intent is not None and intent.operation:
        state.done.append(intent)


class Journal:
    """The open journal. Lines reach the kernel at once, so they survive kill -9. After a power cut,
    replaying fewer lines is harmless, because reconciling compares with the host itself."""

    def __init__(self, folder: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(folder / JOURNAL, flags, 0o600)
        if os.fstat(self._fd).st_size:
            os.write(self._fd, b"\n")  # ends a line that a crash cut short

    def write(self, line: Line) -> None:
        """Add a line. Raise OSError where that fails: then nothing that relies on it may happen."""
        data = msgspec.json.encode(line) + b"\n"
        if os.write(self._fd, data) != len(data):
            raise OSError(
                errno.ENOSPC, os.strerror(errno.ENOSPC)
            )  # a short write to a file means just that

    def agreed(self, name: str, known: Known | None, request: str | None = None) -> None:
        """Record what both sides agree on now."""
        self.write(Agreed(encode_name(name), known, request))

    def close(self) -> None:
        """Close the descriptor."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


@functools.lru_cache(maxsize=8192)  # each effect says its name several times
def encode_name(name: str) -> str:
    """Return a name as text that preserves any bytes."""
    return base64.b64encode(os.fsencode(name)).decode()


@functools.lru_cache(maxsize=8192)
def decode_name(text: str) -> str:
    """Return the name that `encode_name` wrote."""
    return os.fsdecode(base64.b64decode(text))
