"""Make agent text safe to show (law 6): invisible characters become visible.

Controls, bidi marks and zero-width characters. Templates escape markup; this handles what escaping
leaves alone: an ESC that moves a terminal's cursor, a right-to-left override that makes `gpj.exe`
read as `exe.jpg`, a zero-width space inside a host name, a tower of accents that covers the lines
above. `folding` shows long text so that nothing goes unnoticed.
"""

import re
import unicodedata

from supervisor.core.text.hidden import is_hidden

_KEPT = {"\n", "\t"}
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_CONTROLS_OF_A_LINE = re.compile(r"[\x00-\x1f\x7f]")
# More marks than this on one letter are no writing system's, and reach over its neighbours.
MOST_STACKED = 4


def visible(text: str, *, one_line: bool = False) -> str:
    """`text` with every deceptive character written as `\\u{...}`; with `one_line`, newlines and
    tabs too."""
    if text.isascii():
        if text.isprintable():
            return text
        controls = _CONTROLS_OF_A_LINE if one_line else _CONTROLS
        return controls.sub(lambda found: _spelled(found[0]), text)
    shown, stacked = [], 0
    for char in text:
        stacked = stacked + 1 if is_stacked(char) else 0
        shown.append(_spelled(char) if stacked > MOST_STACKED else _visible_char(char, one_line))
    return "".join(shown)


def is_stacked(char: str) -> bool:
    """Return whether a character takes no place of its own, but stands on the one before."""
    return char > "\u02ff" and unicodedata.category(char) in ("Mn", "Me")


def _visible_char(char: str, one_line: bool) -> str:
    if char in _KEPT and not one_line:
        return char
    # Not printable: controls, format characters, surrogates, unassigned, and every space but the
    # plain one (a no-break space makes one word of what looks like two).
    if not char.isprintable() or (not char.isascii() and is_hidden(char)):
        return _spelled(char)
    return char


def _spelled(char: str) -> str:
    return "\\n" if char == "\n" else f"\\u{{{ord(char):x}}}"
