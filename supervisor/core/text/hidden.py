"""Classify characters that are invisible, or change how others are seen.

Decides by the Unicode category (control, format, separator, unassigned, private), with the few
letters and marks that show nothing besides. All readers of agent text must agree on it: a character
hidden in one place and not in another is a way around the first. `display` shows such a character.
"""

import re
import unicodedata

_ASCII = re.compile(r"[\x00-\x1f\x7f]")
_CATEGORIES = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn"})
# Characters that show nothing and that Unicode doesn't class as format characters: fillers,
# joiners, variation selectors for text, the braille pattern without dots.
INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\U000e0100-\U000e01ef]"
)


def first_hidden(text: str, *, kept: str = "") -> str | None:
    """Return the first character that must not be in the text, None where there is none. `kept`:
    those that may be."""
    found = (
        next((one for one in _ASCII.findall(text) if one not in kept), None)
        if _ASCII.search(text)
        else None
    )
    if found is not None or text.isascii():
        return found
    return next((one for one in text if one > "\x7f" and one not in kept and is_hidden(one)), None)


def is_hidden(char: str) -> bool:
    """Return whether a character beyond ASCII is invisible, or moves others."""
    return unicodedata.category(char) in _CATEGORIES or INVISIBLE.match(char) is not None
