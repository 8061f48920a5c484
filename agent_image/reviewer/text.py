"""Make untrusted text safe: a plain line for a person, a block for the model.

Text from files, commands and the network can contain terminal controls, characters that reorder
text, and words addressed to the model. The first two are made visible here. The third can't be
filtered: it is put between marks that it can't forge, and the instructions explain the marks.
"""

import secrets
import unicodedata

_LINE_CHARACTERS = 300


def plain(text: str, limit: int = _LINE_CHARACTERS) -> str:
    """Return `text` as one line without control, format or unassigned characters, cut at `limit`
    characters."""
    shown = "".join(_visible(character) for character in " ".join(text[: limit * 4].split()))
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def _visible(character: str) -> str:
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn"):
        return f"\\u{{{ord(character):x}}}"
    return character


def capped(data: bytes, limit_bytes: int, remedy: str = "ask for a smaller part") -> str:
    """Return `data` as text of at most `limit_bytes` bytes, with a note of how much was cut.
    Invalid UTF-8 is replaced."""
    if len(data) <= limit_bytes:
        return data.decode("utf-8", "replace")
    kept = data[:limit_bytes].decode("utf-8", "ignore")
    return f"{kept}\n[cut: {len(data) - limit_bytes} of {len(data)} bytes are not shown; {remedy}]"


class Quarantine:
    """Marks text as data. The mark is random per review, so that no file can contain it."""

    def __init__(self) -> None:
        self.mark = f"untrusted-{secrets.token_hex(8)}"

    def wrap(self, source: str, text: str) -> str:
        """Return `text` between this review's marks; `source` says where it comes from."""
        label = plain(source, 200).replace('"', "'").replace("<", "(").replace(">", ")")
        return f'<{self.mark} source="{label}">\n{text}\n</{self.mark}>'
