"""An agent's output as text for a page: no terminal control, no half characters, no secret cut
in two by where a read ended."""

import re

from supervisor.core.secrets.redact import Redactor
from supervisor.core.text.display import visible

# Colours and cursor movement (ECMA-48 CSI), window titles and links (OSC): a page shows neither,
# and `visible` would spell them out.
_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][0-9A-B]|\x1b[=>78M]"
)
# A line that is longer is shown in pieces.
LONGEST_LINE_BYTES = 8 * 1024


def complete_part(data: bytes, *, is_final: bool) -> bytes:
    """The part of a read that can be shown: up to the end of its last line. What follows is read
    again with the next offset."""
    if is_final:
        return data
    end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
    return data[:end] if end or len(data) < LONGEST_LINE_BYTES else data[: _whole_characters(data)]


def as_text(data: bytes, redactor: Redactor) -> str:
    """Output as a person may see it."""
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
