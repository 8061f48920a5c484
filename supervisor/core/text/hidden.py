"""Characters that nobody sees, or that change how others are seen: one idea of them for commands,
paths, words and rules.

Decides by what Unicode says of a character (control, format, separator, unassigned, private),
with the few letters and marks that show nothing besides. It is apart because whoever reads an
agent's text must agree on it: what is hidden in one place and not in another is a way around the
first. How such a character is shown is `display`'s.
"""

import re
import unicodedata

_ASCII = re.compile(r"[\x00-\x1f\x7f]")
_CATEGORIES = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn"})
# Characters that show nothing and that Unicode doesn't class as format characters: fillers,
# joiners, variation selectors for text, the braille pattern without dots.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\U000e0100-\U000e01ef]"
)


def first_hidden(text: str, *, kept: str = "") -> str | None:
    """The first character that must not be in the text, None where there is none. `kept`: those
    that may be."""
    found = (
        next((one for one in _ASCII.findall(text) if one not in kept), None)
        if _ASCII.search(text)
        else None
    )
    if found is not None or text.isascii():
        return found
    return next((one for one in text if one > "\x7f" and one not in kept and is_hidden(one)), None)


def is_hidden(char: str) -> bool:
    """Whether a character beyond ASCII shows nothing, or moves what is shown."""
    return unicodedata.category(char) in _CATEGORIES or _INVISIBLE.match(char) is not None
