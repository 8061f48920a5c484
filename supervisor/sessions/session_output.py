"""Output of an agent: kept beside its session as `output.log`, and as text for a page.

Bytes are appended as they come and never rewritten. If output can't be stored, a log line says so:
a full disk never blocks an agent or ends its session. A page shows no terminal control, no half
characters, and no secret cut in two by the end of a read.
"""

import re
from pathlib import Path

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


def append(folder: Path, data: bytes) -> None:
    """Append new output."""
    try:
        with _file(folder).open("ab") as file:
            file.write(data)
    except OSError as error:
        log.error("output not kept", session=folder.name, error=error.strerror)


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
    try:
        return _file(folder).stat().st_size
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
