"""Make agent text safe to show (law 6): invisible characters become visible.

Controls, bidi marks and zero-width characters. Templates escape markup; this handles what escaping
leaves alone: an ESC that moves a terminal's cursor, a right-to-left override that makes `gpj.exe`
read as `exe.jpg`, a zero-width space inside a host name, a tower of accents that covers the lines
above. `folding` shows long text so that nothing goes unnoticed.
"""

import re
import unicodedata

from supervisor.core.text.hidden import INVISIBLE

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
    # Each distinct character is looked at once: most texts have few (law 14).
    chars = set(text)
    if marks := "".join(filter(is_stacked, chars)):
        text = re.sub(f"[{marks}]{{{MOST_STACKED + 1},}}", _unstacked, text)
    # Not printable: controls, format characters, surrogates, unassigned, and every space but the
    # plain one (a no-break space makes one word of what looks like two).
    odd = {char for char in chars if not char.isprintable()}
    odd.update(INVISIBLE.findall("".join(chars)))
    if not one_line:
        odd -= _KEPT
    return text.translate(_table(odd)) if odd else text


def _unstacked(found: re.Match[str]) -> str:
    over = found[0][MOST_STACKED:]
    return found[0][:MOST_STACKED] + over.translate(_table(set(over)))


def _table(chars: set[str]) -> dict[int, str]:
    return {ord(char): _spelled(char) for char in chars}


def is_stacked(char: str) -> bool:
    """Return whether a character takes no place of its own, but stands on the one before."""
    return char > "\u02ff" and unicodedata.category(char) in ("Mn", "Me")


def _spelled(char: str) -> str:
    return "\\n" if char == "\n" else f"\\u{{{ord(char):x}}}"
