"""What a session's workspace must remember over a crash: the baseline, and each change of it since.

`baseline.msgpack` is written once, when the copy is made; `workspace.journal` grows by a line for every effect on the
host: first its intent (with the temporary file's place), then what host and copy agree on afterwards. Replaying gives
the baseline of the moment of the crash and names what may have been left lying about. It must never be needed to
decide whether something may be done: that is the gate's alone.
"""

import base64
import os
from pathlib import Path

import msgspec

from supervisor.core.changes import Known

BASELINE = "baseline.msgpack"
JOURNAL = "workspace.journal"


class Intent(msgspec.Struct, frozen=True, tag="intent"):
    """An effect was about to happen: `temporary` is the leaf name of its file beside the target. `name` is base64."""

    request: str
    name: str
    temporary: str


class Agreed(msgspec.Struct, frozen=True, tag="agreed"):
    """Host and copy agree on this about a path now (None: it is gone). `request` names the effect that made it so."""

    name: str
    known: Known | None
    request: str | None = None


_Line = Intent | Agreed


class Replayed(msgspec.Struct):
    """What the files say: the baseline now, and the intents that nothing is known of."""

    baseline: dict[str, Known]
    open_intents: dict[str, Intent]


def write_baseline(folder: Path, baseline: dict[str, Known]) -> None:
    """Write the baseline durably and whole, or not at all."""
    data = msgspec.msgpack.encode([(os.fsencode(name), known) for name, known in baseline.items()])
    temporary = folder / f".{BASELINE}.tmp"
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(folder / BASELINE)


def replay(folder: Path) -> Replayed:
    """Read both files. FileNotFoundError where the copy was never finished; a torn last line is passed over."""
    pairs = msgspec.msgpack.decode((folder / BASELINE).read_bytes(), type=list[tuple[bytes, Known]])
    state = Replayed({os.fsdecode(name): known for name, known in pairs}, {})
    try:
        lines = (folder / JOURNAL).read_bytes().split(b"\n")
    except FileNotFoundError:
        return state
    for line in lines:
        try:
            entry = msgspec.json.decode(line, type=_Line)
        except msgspec.DecodeError:
            continue
        if isinstance(entry, Intent):
            state.open_intents[entry.request] = entry
            continue
        if entry.request is not None:
            state.open_intents.pop(entry.request, None)
        name = decode_name(entry.name)
        if entry.known is None:
            state.baseline.pop(name, None)
        else:
            state.baseline[name] = entry.known
    return state


class Journal:
    """The open journal. Lines reach the kernel at once, so they survive kill -9; after a power cut replaying less is
    harmless, because reconciling compares with the host itself."""

    def __init__(self, folder: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(folder / JOURNAL, flags, 0o600)
        if os.fstat(self._fd).st_size:
            os.write(self._fd, b"\n")  # ends a line that a crash cut short

    def intent(self, request: str, name: str, temporary: str) -> None:
        """Record that an effect is about to happen."""
        self._write(Intent(request, encode_name(name), temporary))

    def agreed(self, name: str, known: Known | None, request: str | None = None) -> None:
        """Record what both sides agree on now."""
        self._write(Agreed(encode_name(name), known, request))

    def close(self) -> None:
        """Give the descriptor back."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self, line: Intent | Agreed) -> None:
        os.write(self._fd, msgspec.json.encode(line) + b"\n")


def encode_name(name: str) -> str:
    """A name as text that any bytes survive in."""
    return base64.b64encode(os.fsencode(name)).decode()


def decode_name(text: str) -> str:
    """The name that `encode_name` wrote."""
    return os.fsdecode(base64.b64decode(text))
