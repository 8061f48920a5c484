"""Encodings of text, and decoders that keep source spans.

Handles text that is escaped as in JSON, a program or a page, percent-encoded, in UTF-16, split into
lines, or in hexadecimal digits. It decides how a text reads once each is decoded, and which bytes a
stretch came from. It must never depend on well-formed input: anything that isn't an escape is left
as it is.
"""

import functools
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from html.entities import html5
from typing import NamedTuple

# The maximum number of nested encodings that are undone.
MOST_LAYERS = 3
# The longest form of one character in some encodings.
MOST_BYTES_EACH = 12

# RFC 8259 7, with what JavaScript, Python and shells know beside it; RFC 3986 2.1; HTML 13.1.4.
# Half a surrogate pair at the end of the text is left alone: the other half was cut off.
_HIGH = rb"[dD][89abAB][0-9A-Fa-f]{2}"
_LOW = rb"[dD][c-fC-F][0-9A-Fa-f]{2}"
_PART = rb"\\(?:u[0-9A-Fa-f]{0,3}|x[0-9A-Fa-f]?)?"
# It begins with a set of bytes, so that `re` skips all others quickly.
_ESCAPE = re.compile(
    rb"[%%\\&](?:(?<=%%)[0-9A-Fa-f]{2}"
    rb"""|(?<=\\)(?:u%(high)s\\u%(low)s|(?!u%(high)s(?:%(part)s)?\Z)u[0-9A-Fa-f]{4}|u\{[0-9A-Fa-f]{1,6}\}|x[0-9A-Fa-f]{2}|["'/bfnrt\\])"""
    rb"|(?<=&)(?:#[xX][0-9A-Fa-f]{1,8};?|#[0-9]{1,8};?|[A-Za-z]{2,31};))"
    % {b"high": _HIGH, b"low": _LOW, b"part": _PART}
)
_SHORT = {
    b"\\" + bytes([code]): bytes([byte])
    for code, byte in zip(b"\"'/bfnrt", b"\"'/\b\f\n\r\t", strict=True)
}
_ENTITIES = {
    f"&{name}".encode(): text.encode() for name, text in html5.items() if name.endswith(";")
}
# Possible partial escapes at the end of a cut text.
_TORN = re.compile(
    rb"(?:%%[0-9A-Fa-f]?|(?:\\u%s)?%s|\\u%s|\\u\{[0-9A-Fa-f]{0,6}|&#?[0-9A-Za-z]{0,9})\Z"
    % (_HIGH, _PART, _HIGH)
)
MOST_TORN_BYTES = 12

_ZEROS = re.compile(rb"\0+")
_SPACES = re.compile(rb"[ \t\r\n]+")
# Zeros are removed too, because of `0x`, in the text and in the search terms.
_NO_DIGITS = b"0xX \t\r\n:,;.-_\\|'\"[](){}"
_BETWEEN_DIGITS = re.compile(rb"[%s]+" % re.escape(_NO_DIGITS))
_TO_LOWER = bytes.maketrans(b"ABCDEF", b"abcdef")
# Base64 of URLs (RFC 4648 5) is read as the other.
_TO_STANDARD = bytes.maketrans(b"-_", b"+/")


class _Stretch(NamedTuple):
    """Decoded offset and source span of a part of a reading. An escape is hidden as a whole."""

    here: int
    begins: int
    ends: int
    is_escape: bool


class DecodedText:
    """A text with one encoding undone: `read` decodes each match of `pattern`."""

    def __init__(
        self,
        text: bytes,
        of: "DecodedText | None" = None,
        pattern: re.Pattern[bytes] = _ZEROS,
        read: Callable[[re.Match[bytes]], bytes] = lambda found: b"",
    ) -> None:
        self.text = text
        # Neighbouring characters may have formed an escape together with a part of a match.
        self.is_unescaped: bool = pattern is _ESCAPE or (of is not None and of.is_unescaped)
        self._of = of
        self._pattern = pattern
        self._read = read

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Return the span in the original text of the stretch from `start` to `end`."""
        if self._of is None:
            return start, end
        first, last = self._at(start), self._at(end - 1)
        begins = first.begins + (0 if first.is_escape else start - first.here)
        ends = last.ends if last.is_escape else last.begins + end - last.here
        return self._of.origin(begins, ends)

    def _at(self, place: int) -> _Stretch:
        return self._stretches[bisect_right(self._stretches, place, key=lambda one: one.here) - 1]

    @functools.cached_property
    def _stretches(self) -> list[_Stretch]:
        """Return the stretches. They are computed only if something was found: this takes ten times
        as long as the reading itself."""
        assert self._of is not None
        text = self._of.text
        found = []
        here = there = 0
        for escape in self._pattern.finditer(text):
            found.append(_Stretch(here, there, escape.start(), is_escape=False))
            here += escape.start() - there
            there = escape.end()
            meant = len(self._read(escape))
            if meant:
                found.append(_Stretch(here, escape.start(), there, is_escape=True))
            here += meant
        return [*found, _Stretch(here, there, len(text), is_escape=False)]


def readings(
    text: bytes, layers: int = MOST_LAYERS, *, is_torn: bool = False
) -> Iterator[DecodedText]:
    """Return the text as it is, then with its escapes undone once, twice and so on, until there are
    none left. If it `is_torn`, a partial escape at its end is left out.

    INVARIANT: each reading is made in one pass over the one before it, and none is longer: no text
    can make this take more than linear time.
    """
    reading = DecodedText(text)
    yield reading
    if b"\0" in text:
        # In UTF-16 and UTF-32, in either byte order, only NULs are between the characters of a
        # token.
        reading = DecodedText(text.replace(b"\0", b""), reading)
        yield reading
    for _ in range(layers):
        written = _without_torn_end(reading.text) if is_torn else reading.text
        undone = unescaped(written)
        if undone == reading.text:
            return
        reading = DecodedText(undone, reading, _ESCAPE, _meant)
        yield reading


def unescaped(text: bytes) -> bytes:
    """Return the text with every escape undone once."""
    if b"%" in text or b"\\" in text or b"&" in text:
        return _ESCAPE.sub(_meant, text)
    return text


def in_one_line(reading: DecodedText) -> DecodedText:
    """Return the text without white space, and with one alphabet of base64."""
    return DecodedText(reading.text.translate(_TO_STANDARD, b" \t\r\n"), reading, _SPACES)


def as_digits(reading: DecodedText) -> DecodedText:
    """Return hexadecimal digits except zeros, in lower case, without separators."""
    return DecodedText(digits(reading.text), reading, _BETWEEN_DIGITS)


def digits(text: bytes) -> bytes:
    """Return the hexadecimal digits of a text in the form in which they are searched for."""
    return text.translate(_TO_LOWER, _NO_DIGITS)


def _without_torn_end(text: bytes) -> bytes:
    torn = _TORN.search(text, max(0, len(text) - MOST_TORN_BYTES))
    return text if torn is None else text[: torn.start()]


def _meant(found: re.Match[bytes]) -> bytes:
    return _meant_by(found[0])


@functools.lru_cache(maxsize=4096)
def _meant_by(code: bytes) -> bytes:
    kind = code[1:2]
    if code[:1] == b"%":
        return bytes.fromhex(code[1:].decode("ascii"))
    if code[:1] == b"&":
        return _of_page(code)
    if kind == b"x":
        return bytes.fromhex(code[2:].decode("ascii"))
    if kind == b"u" and code[2:3] == b"{":
        return _character(int(code[3:-1], 16))
    if kind == b"u":
        units = "".join(code[at + 2 : at + 6].decode("ascii") for at in range(0, len(code), 6))
        return bytes.fromhex(units).decode("utf-16-be", "replace").encode("utf-8")
    return _SHORT.get(code, b"\\")


def _of_page(code: bytes) -> bytes:
    if code[1:2] != b"#":
        return _ENTITIES.get(code, code)
    digits = code[2:].rstrip(b";")
    return _character(int(digits[1:], 16) if digits[:1] in b"xX" else int(digits))


def _character(number: int) -> bytes:
    return chr(number).encode("utf-8", "replace") if number < 0x110000 else b"?"
