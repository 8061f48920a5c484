"""Make agent text safe to show (law 6): invisible characters become visible.

Handles controls, bidi marks and zero-width characters. Templates escape markup; this handles what
escaping leaves alone: an ESC that moves a terminal's cursor, a right-to-left override that makes
`gpj.exe` read as `exe.jpg`, a zero-width space inside a host name, a tower of accents that covers
the lines above. `folding` shows long text so that nothing goes unnoticed.

A character counts as invisible by its Unicode category (control, format, separator, unassigned,
private); a few letters and marks that show nothing are added. All readers of agent text must agree
on this: a character that is hidden in one place but not in another is a way around the first.
"""

import re
import unicodedata

_KEPT = {"\n", "\t"}
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_CONTROLS_OF_A_LINE = re.compile(r"[\x00-\x1f\x7f]")
# No writing system has more marks than this on one letter; more would reach over its neighbours.
MOST_STACKED = 4
_ASCII = re.compile(r"[\x00-\x1f\x7f]")
_CATEGORIES = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn"})
# Characters that show nothing and that Unicode doesn't class as format characters: fillers,
# joiners, variation selectors for text, the braille pattern without dots.
INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\U000e0100-\U000e01ef]"
)


def first_hidden(text: str, *, kept: str = "") -> str | None:
    """Return the first character that must not be in the text; None if there is none. `kept`:
    characters that are allowed."""
    found = (
        next((one for one in _ASCII.findall(text) if one not in kept), None)
        if _ASCII.search(text)
        else None
    )
    if found is not None or text.isascii():
        return found
    return next((one for one in text if one > "\x7f" and one not in kept and is_hidden(one)), None)


def is_hidden(char: str) -> bool:
    """Return whether a character beyond ASCII is invisible or moves others."""
    return unicodedata.category(char) in _CATEGORIES or INVISIBLE.match(char) is not None


def visible(text: str, *, one_line: bool = False) -> str:
    """Return `text` with every deceptive character written as `\\u{...}`; with `one_line`, newlines
    and tabs too."""
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
    """Return whether a character takes no space of its own, but stands on the one before."""
    return char > "\u02ff" and unicodedata.category(char) in ("Mn", "Me")


def _spelled(char: str) -> str:
    return "\\n" if char == "\n" else f"\\u{{{ord(char):x}}}"
