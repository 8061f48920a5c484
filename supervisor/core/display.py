"""Text of an agent made safe to look at (law 6): controls, bidi marks and zero-width characters become visible.

Markup is escaped by the templates; this is about what escaping leaves alone: an ESC that moves a terminal's cursor,
a right-to-left override that makes `gpj.exe` read as `exe.jpg`, a zero-width space inside a host name.
"""

_KEPT = {"\n", "\t"}
# Letters by their category, that show nothing.
_INVISIBLE = {"\u115f", "\u1160", "\u3164", "\uffa0", "\u2800"}


def visible(text: str, *, one_line: bool = False) -> str:
    """`text` with every deceptive character written as `\\u{...}`; with `one_line`, newlines and tabs too."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_visible_char(char, one_line) for char in text)


def _visible_char(char: str, one_line: bool) -> str:
    if char in _KEPT and not one_line:
        return char
    if char == "\n":
        return "\\n"
    # Not printable: controls, format characters, surrogates, unassigned, and every space but the plain one (a no-break space
    # makes one word of what looks like two).
    if char in _INVISIBLE or not char.isprintable():
        return f"\\u{{{ord(char):x}}}"
    return char
