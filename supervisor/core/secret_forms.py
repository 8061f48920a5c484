"""Known secrets in text, also where they are written in another way: escaped as in JSON, percent-encoded, in base64, or one in the other.

It decides which stretches of a text tell a secret, so that whoever shows the text can put a mark there. It is apart from `redact`, which is
used on every line of the record and looks for secrets as they are, because this is for bodies: long, encoded by their sender, and cut off
anywhere. It must never change what isn't a secret. It doesn't know other ways to write one (hexadecimal, compressed, encrypted).

The text is read as it is and as each way of writing would have it read, a few of them in one another (a form in JSON in JSON). In each reading
plain searches are made, for the secret and for its base64 from each of the three places in a group that it can begin at.
"""

import base64
import functools
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

SHORTEST_SECRET = 8
# So many ways of writing inside of one another are read.
MOST_LAYERS = 3
# And so many readings: whoever writes a text decides how many there could be.
MOST_READINGS = 16

_PERCENT = re.compile(rb"%[0-9A-Fa-f]{2}")
_FORM = re.compile(rb"%[0-9A-Fa-f]{2}|\+")
_HEX = "0123456789abcdefABCDEF"
_PERCENT_CODES = {f"%{one}{two}".encode(): bytes.fromhex(one + two) for one in _HEX for two in _HEX} | {b"+": b" "}
# RFC 8259 7. What follows no backslash of JSON's is left as it is, and so is half a pair that the text ends with: the other half was cut off.
_HIGH = rb"\\u[dD][89abAB][0-9A-Fa-f]{2}"
_PART = rb"\\(?:u[0-9A-Fa-f]{0,3})?"
_JSON = re.compile(
    rb"""%s\\u[dD][c-fC-F][0-9A-Fa-f]{2}|(?!%s(?:%s)?\Z)\\u[0-9A-Fa-f]{4}|\\["\\/bfnrt]""" % (_HIGH, _HIGH, _PART)
)
_JSON_SHORT = {b"\\" + bytes([code]): bytes([byte]) for code, byte in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True)}
# Base64 is broken into lines by mail, PEM and many a program; those lines are long.
_BREAK = re.compile(rb"(?=[\r\n])(?<=[A-Za-z0-9+/_-]{32})\r?\n[ \t]*(?=[A-Za-z0-9+/_-])")
# What a text may end with where it was cut off inside of an escape.
_TORN = re.compile(rb"(?:%%[0-9A-Fa-f]?|(?:%s)?%s|%s)\Z" % (_HIGH, _PART, _HIGH))
_MOST_TORN_BYTES = 11


class _Way(NamedTuple):
    """A way of writing: what stands for something else, and for what."""

    pattern: re.Pattern[bytes]
    read: Callable[[re.Match[bytes]], bytes]

    def is_in(self, text: bytes) -> bool:
        """Whether anything is written so."""
        return self.pattern.search(text) is not None


class _Stretch(NamedTuple):
    """A part of a reading: where it begins, and from where to where it came from. An escape is hidden as a whole."""

    here: int
    begins: int
    ends: int
    is_escape: bool


class _Reading:
    """A text as one way of writing has it read."""

    def __init__(self, text: bytes, way: _Way | None = None, of: "_Reading | None" = None) -> None:
        self.text = text if way is None else way.pattern.sub(way.read, text)
        self._way = way
        self._of = of

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Where the stretch from `start` to `end` came from in the very first text."""
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
        """Made only where something was found: it takes ten times as long as the reading itself."""
        assert self._way is not None
        assert self._of is not None
        text = self._of.text
        found = []
        here = there = 0
        for escape in self._way.pattern.finditer(text):
            found.append(_Stretch(here, there, escape.start(), is_escape=False))
            here += escape.start() - there
            there = escape.end()
            found.append(_Stretch(here, escape.start(), there, is_escape=True))
            here += len(self._way.read(escape))
        return [*found, _Stretch(here, there, len(text), is_escape=False)]


class SecretForms:
    """Finds some secrets, whichever way they are written. Those under 8 bytes would hide ordinary text, and are left out."""

    def __init__(self, secrets: Iterable[str]) -> None:
        # What can't be encoded is part of nothing that was.
        plain = {one.encode("utf-8", "ignore") for one in secrets}
        self._secrets = sorted((one for one in plain if len(one) >= SHORTEST_SECRET), key=len, reverse=True)
        self._base64 = sorted({code for one in self._secrets for code in _in_base64(one)}, key=len, reverse=True)
        shortest = min(map(len, self._base64), default=SHORTEST_SECRET)
        self._run = re.compile(rb"[A-Za-z0-9+/_-]{%d,}" % shortest)
        self._longest = max(map(len, (*self._secrets, *self._base64)), default=0) + _MOST_TORN_BYTES
        ways = [_Way(_JSON, _of_json), _Way(_PERCENT, _of_percent), _Way(_BREAK, lambda found: b"")]
        if any(b" " in one for one in self._secrets):
            ways.append(_Way(_FORM, _of_percent))
        self._ways = ways

    def without(self, text: bytes, mark: bytes) -> bytes:
        """The text with a mark in place of each secret, and of what a secret begins with where the text ends in that: it may be cut off."""
        spans = sorted(self._spans(text)) if self._secrets else []
        if not spans:
            return text
        pieces = []
        shown_to = 0
        for start, end in spans:
            if start >= shown_to:
                pieces += [text[shown_to:start], mark]
            shown_to = max(shown_to, end)
        return b"".join([*pieces, text[shown_to:]])

    def _spans(self, text: bytes) -> Iterator[tuple[int, int]]:
        for reading in self._readings(text):
            for needle in self._secrets:
                yield from (reading.origin(*one) for one in _all(reading.text, needle))
            if self._has_base64(reading.text):
                for run in self._run.finditer(reading.text):
                    yield from (reading.origin(*one) for one in self._in_run(run))
            torn_from = self._torn_from(reading.text)
            if torn_from is not None:
                yield reading.origin(torn_from, torn_from + 1)[0], len(text)

    def _has_base64(self, text: bytes) -> bool:
        """Whether any run of what may be base64 has a secret. Most texts have few such runs: searching only those takes a tenth of the time."""
        runs = b" ".join(self._run.findall(text))
        return any(needle in runs for needle in self._base64)

    def _in_run(self, run: re.Match[bytes]) -> Iterator[tuple[int, int]]:
        """Where a run of what may be base64 has a secret, with the characters on both sides that hold bits of its first and last byte."""
        for needle in self._base64:
            for start, end in _all(run[0], needle):
                yield run.start() + max(0, start - 1), min(run.start() + end + 1, run.end())

    def _readings(self, text: bytes) -> list[_Reading]:
        """The text as it is, and each other reading of it once."""
        seen = {text}
        found = layer = [_Reading(text)]
        for _ in range(MOST_LAYERS):
            inner = []
            for reading in (_Reading(one.text, way, one) for one in layer for way in self._ways if way.is_in(one.text)):
                if reading.text not in seen and len(seen) < MOST_READINGS:
                    seen.add(reading.text)
                    inner.append(reading)
            found, layer = [*found, *inner], inner
        return found

    def _torn_from(self, text: bytes) -> int | None:
        """Where the beginning of a secret begins that the text ends with; 8 bytes of it at least."""
        end = _TORN.sub(b"", text[-self._longest :])
        before = max(0, len(text) - self._longest)
        starts = [
            before + start
            for needle in (*self._secrets, *self._base64)
            for start, _ in _all(end, needle[:SHORTEST_SECRET])
            if needle.startswith(end[start:])
        ]
        return min(starts, default=None)


def _all(text: bytes, needle: bytes) -> Iterator[tuple[int, int]]:
    start = text.find(needle)
    while start >= 0:
        yield start, start + len(needle)
        start = text.find(needle, start + 1)


def _in_base64(secret: bytes) -> Iterator[bytes]:
    """What of a secret's base64 depends on nothing around it, for each place in a group of three bytes that it can begin at."""
    for before in range(3):
        code = base64.b64encode(bytes(before) + secret)
        first = (before * 8 + 5) // 6
        whole = code[first : (before + len(secret)) * 8 // 6]
        yield whole
        yield whole.translate(bytes.maketrans(b"+/", b"-_"))


def _of_percent(found: re.Match[bytes]) -> bytes:
    return _PERCENT_CODES[found[0]]


def _of_json(found: re.Match[bytes]) -> bytes:
    return _meant_by(found[0])


@functools.lru_cache(maxsize=1024)
def _meant_by(code: bytes) -> bytes:
    if code[1:2] != b"u":
        return _JSON_SHORT[code]
    units = "".join(code[at + 2 : at + 6].decode("ascii") for at in range(0, len(code), 6))
    return bytes.fromhex(units).decode("utf-16-be", "replace").encode("utf-8")
