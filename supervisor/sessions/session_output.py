"""Output of an agent: kept beside its session as `output.log`, and as text for a page.

Bytes are appended as they come and never rewritten. Beside them `output.times` says when which part
came, and `output.sizes` how large the terminal was. If output can't be stored, a log line says so:
a full disk never blocks an agent or ends its session. A page shows no terminal control, no half
characters, and no secret cut in two by the end of a read.
"""

import re
from bisect import bisect_left
from pathlib import Path
from typing import NamedTuple

from supervisor.base import log
from supervisor.core.secrets.redact import Redactor
from supervisor.core.text.display import visible

CHUNK_BYTES = 256 * 1024
# Colours and cursor movement (ECMA-48 CSI), window titles and links (OSC): a page shows neither,
# and `visible` would spell them out.
_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][0-9A-B]|\x1b[=>78M]"
)
# A line that is longer is shown in pieces.
LONGEST_LINE_BYTES = 8 * 1024
# Output is marked when it comes after such a pause, and at least so often.
PAUSE_S = 0.2
MARK_EVERY_S = 2.0
# The newest marks that are read: those of a day of output without a pause.
MOST_MARK_BYTES = 1 << 20


class TerminalSize(NamedTuple):
    """The terminal's size from a byte of the output on."""

    offset: int
    rows: int
    columns: int


class OutputTimes(NamedTuple):
    """When output came: times in seconds since the epoch, and the bytes before each. Both rise."""

    at: list[float]
    offsets: list[int]

    def since(self, at: float) -> tuple[float, int] | None:
        """Return the first mark from that time on."""
        number = bisect_left(self.at, at)
        return (self.at[number], self.offsets[number]) if number < len(self.at) else None


def append(folder: Path, data: bytes) -> None:
    """Append new output."""
    try:
        with _file(folder).open("ab") as file:
            file.write(data)
    except OSError as error:
        log.error("output not kept", session=folder.name, error=error.strerror)


def mark_time(folder: Path, at: float) -> None:
    """Note that what is appended next comes at that time."""
    _mark(folder / "output.times", f"{at:.1f} {size(folder)}")


def mark_size(folder: Path, rows: int, columns: int) -> None:
    """Note that the terminal has this size from here on."""
    _mark(folder / "output.sizes", f"{size(folder)} {rows} {columns}")


def times(folder: Path) -> OutputTimes:
    """Return when the newest output came."""
    found = [(float(at), int(offset)) for at, offset in _marks(folder / "output.times", 2)]
    return OutputTimes([at for at, _ in found], [offset for _, offset in found])


def sizes(folder: Path, offset: int) -> list[TerminalSize]:
    """Return the terminal's size at that byte, and the later ones."""
    found = [TerminalSize(*map(int, words)) for words in _marks(folder / "output.sizes", 3)]
    first = max(0, bisect_left(found, (offset + 1,)) - 1)
    return found[first:]


def _mark(path: Path, line: str) -> None:
    try:
        with path.open("a") as file:
            file.write(f"{line}\n")
    except OSError as error:
        log.error("output not marked", session=path.parent.name, error=error.strerror)


def _marks(path: Path, words: int) -> list[list[str]]:
    """Return the newest lines, without one that a crash or the start cut."""
    start = max(0, _size(path) - MOST_MARK_BYTES)
    try:
        with path.open("rb") as file:
            file.seek(start)
            lines = file.read().decode("ascii", "replace").split("\n")
    except FileNotFoundError:
        return []
    found = [line.split() for line in lines[bool(start) : -1]]
    return [one for one in found if len(one) == words]


def read(folder: Path, offset: int) -> tuple[bytes, int]:
    """Return the output from byte `offset` on, at most 256 kB, and the next offset."""
    begin = max(0, offset)
    try:
        with _file(folder).open("rb") as file:
            file.seek(begin)
            data = file.read(CHUNK_BYTES)
    except FileNotFoundError:
        data = b""
    return data, begin + len(data)


def tail(folder: Path, most_bytes: int) -> str:
    """Return the end of the output as text."""
    data, offset = b"", max(0, size(folder) - most_bytes)
    while part := read(folder, offset)[0]:
        data, offset = data + part, offset + len(part)
    return data.decode("utf-8", "replace")


def size(folder: Path) -> int:
    """Return the number of kept bytes."""
    return _size(_file(folder))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _file(folder: Path) -> Path:
    return folder / "output.log"


def complete_part(data: bytes, *, is_final: bool) -> bytes:
    """Return the part of a read that can be shown, up to the end of its last line. The rest is read
    again with the next offset.
    """
    if is_final:
        return data
    end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
    return data[:end] if end or len(data) < LONGEST_LINE_BYTES else data[: _whole_characters(data)]


def as_text(data: bytes, redactor: Redactor) -> str:
    """Return output as a person may see it."""
    text = _CONTROL.sub("", data.decode(errors="replace")).replace("\r\n", "\n").replace("\r", "\n")
    return visible(redactor.printed(text))


def _whole_characters(data: bytes) -> int:
    """Return how much of `data` ends with a whole UTF-8 character."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:
            break
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) if back >= needed else len(data) - back
    return len(data)
