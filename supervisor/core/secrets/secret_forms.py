"""Search for known secrets in text and streams, in any of their encodings.

Finds a secret escaped as in JSON or HTML, percent-encoded, in base64, in hexadecimal, in UTF-16, as
a list of numbers, or in some of these nested. All data that leaves, comes back, is stored or is
shown is searched here and nowhere else: a second search that knew fewer forms would let a secret
through. It must never find what isn't a secret. It doesn't know other encodings (base32, base64 of
base64, encrypted); callers decompress first (`egress.codings`).

`encodings` decodes the text layer by layer. Each reading is searched in linear time: for the
secret, its base64 from each of the three places in a group at which it can begin, its hexadecimal
digits and its bytes as numbers.
"""

import base64
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from supervisor.core.secrets.encodings import (
    MOST_BYTES_EACH,
    MOST_LAYERS,
    MOST_TORN_BYTES,
    DecodedText,
    as_digits,
    digits,
    in_one_line,
    readings,
    unescaped,
)

SHORTEST_SECRET = 8
# Half of a shorter secret may be a coincidence.
_LEAST_HALVED = 20
# A shorter part of a secret may be a coincidence: don't hold pieces back for it.
_LEAST_BEGUN = 4
# Text right before or after a secret may form an escape with its first or last characters (`%4`
# before `1`). So this many characters may be wrong in decoded text, and this many must be right.
_MOST_SWALLOWED = 5
_LEAST_LEFT = 10


def with_halves(secrets: Iterable[str]) -> frozenset[str]:
    """Return secrets, and both halves of each with 20 characters or more: most of a secret contains
    one of these halves.

    For real secrets only: all placeholders share their first half.
    """
    found = set(secrets)
    for one in tuple(found):
        if len(one) >= _LEAST_HALVED:
            half = len(one) // 2
            found |= {one[:half], one[half:]}
    return frozenset(found)


def in_any_case(secrets: Iterable[str]) -> frozenset[str]:
    """Return secrets, and each in lower and upper case: any of these reveals all of a secret (of
    hexadecimal digits), or nearly all."""
    return frozenset(form for one in secrets for form in (one, one.lower(), one.upper()))


class _Needle:
    """A search term. It stands for `count` bytes of a secret. `begins_before` and `ends_behind`:
    one more character of base64 on that side holds bits of these bytes."""

    def __init__(
        self, text: bytes, count: int, *, begins_before: bool = False, ends_behind: bool = False
    ) -> None:
        self.text = text
        self._count = count
        self._begins_before, self._ends_behind = begins_before, ends_behind
        self._swallowed = max(0, min(_MOST_SWALLOWED, (len(text) - _LEAST_LEFT) // 2))
        self.core = text[self._swallowed : len(text) - self._swallowed]

    def spans(self, text: bytes, *, is_unescaped: bool) -> Iterator[tuple[int, int]]:
        """Return the spans of the term in a reading."""
        swallowed = self._swallowed if is_unescaped else 0
        core = self.core if is_unescaped else self.text
        start = text.find(core)
        while start >= 0:
            yield self._whole(text, start, start + len(core), swallowed)
            start = text.find(core, start + 1)

    def torn_from(self, end: bytes, least: int) -> int | None:
        """Return the start of the term's partial match at a reading's end, if that match stands for
        at least `least` bytes of the secret."""
        first = self.text[: -(-len(self.text) * least // self._count)]
        start = end.find(first)
        while start >= 0:
            if self.text.startswith(end[start:]):
                return start
            start = end.find(first, start + 1)
        return None

    def _whole(self, text: bytes, start: int, end: int, swallowed: int) -> tuple[int, int]:
        """Extend a match on both sides: by the rest of it, or by the escape that a part of it was
        taken for."""
        before, after = swallowed, len(self.text) - swallowed
        while before and start and text[start - 1] == self.text[before - 1]:
            start, before = start - 1, before - 1
        while after < len(self.text) and end < len(text) and text[end] == self.text[after]:
            end, after = end + 1, after + 1
        return (
            max(0, start - (self._begins_before or before > 0)),
            min(len(text), end + (self._ends_behind or after < len(self.text))),
        )


class _Needles:
    """The search terms of one kind of reading."""

    def __init__(self, needles: Iterable[_Needle]) -> None:
        self.all = tuple(needles)
        self._whole = tuple(one.text for one in self.all)
        self._cores = tuple(one.core for one in self.all)

    def are_in(self, reading: DecodedText) -> bool:
        """Return whether any term is in the reading. It uses no generators, which take three times
        as long: this runs several times for each verdict."""
        text = reading.text
        for part in self._cores if reading.is_unescaped else self._whole:  # noqa: SIM110
            if part in text:
                return True
        return False


class SecretForms:
    """Finds some secrets in any encoding. Secrets under 8 bytes are left out, because they would
    hide ordinary text."""

    def __init__(self, secrets: Iterable[str]) -> None:
        # An encoder may leave out a character that it can't encode, or not.
        plain = {one.encode("utf-8", how) for one in secrets for how in ("ignore", "surrogatepass")}
        known = sorted((one for one in plain if len(one) >= SHORTEST_SECRET), key=len, reverse=True)
        self._is_empty = not known
        self._plain = _Needles(
            _Needle(form, len(one)) for one in known for form in _as_it_reads(one)
        )
        in_numbers = [_Needle(b",".join(b"%d" % byte for byte in one), len(one)) for one in known]
        self._in_line = _Needles(
            [*(needle for one in known for needle in _in_base64(one)), *in_numbers]
        )
        self._in_digits = _Needles(_Needle(digits(one.hex().encode()), len(one)) for one in known)
        # The longest encoded form of a secret: this much of the data before a piece is searched
        # again with it.
        self.reach = MOST_BYTES_EACH * max(map(len, known)) + MOST_TORN_BYTES if known else 0

    def __bool__(self) -> bool:
        return not self._is_empty

    def is_in(self, text: bytes, layers: int = MOST_LAYERS) -> bool:
        """Return whether the text holds one of the secrets."""
        return not self._is_empty and any(
            needles.are_in(one) for one, needles in self._searched(text, layers)
        )

    def without(self, text: bytes, mark: bytes, *, may_be_cut: bool = True) -> bytes:
        """Return the text with a mark in place of each secret. If the text `may_be_cut` off, a
        partial secret at its end is replaced too."""
        spans = sorted(self._spans(text, may_be_cut=may_be_cut)) if self else []
        if not spans:
            return text
        pieces = []
        shown_to = 0
        for start, end in spans:
            if start >= shown_to:
                pieces += [text[shown_to:start], mark]
            shown_to = max(shown_to, end)
        return b"".join([*pieces, text[shown_to:]])

    def begun_bytes(self, end: bytes, least: int = _LEAST_BEGUN) -> int:
        """Return the encoded length of a partial secret that ends a text, given the text's `end`; 0
        if there is none."""
        begins = [] if self._is_empty else list(self._torn(end, least))
        return min(self.reach, len(end)) - min(begins) if begins else 0

    def _searched(
        self, text: bytes, layers: int = MOST_LAYERS, *, is_torn: bool = False
    ) -> Iterator[tuple[DecodedText, _Needles]]:
        """Yield each reading with the search terms that may be in it."""
        for reading in readings(text, layers, is_torn=is_torn):
            yield reading, self._plain
            yield in_one_line(reading), self._in_line
            yield as_digits(reading), self._in_digits

    def _spans(self, text: bytes, *, may_be_cut: bool) -> Iterator[tuple[int, int]]:
        for reading, needles in self._searched(text):
            for needle in needles.all:
                found = needle.spans(reading.text, is_unescaped=reading.is_unescaped)
                yield from (reading.origin(*one) for one in found)
        if may_be_cut:
            before = max(0, len(text) - self.reach)
            yield from (
                (before + start, len(text)) for start in self._torn(text[before:], SHORTEST_SECRET)
            )

    def _torn(self, end: bytes, least: int) -> Iterator[int]:
        """Return the starts of partial secrets at a text's end."""
        for reading, needles in self._searched(end[-self.reach :], is_torn=True):
            for needle in needles.all:
                start = needle.torn_from(reading.text, least)
                if start is not None:
                    yield reading.origin(start, start + 1)[0]


class Begun(NamedTuple):
    """A partial secret at the end of something: its start and its length."""

    at: int
    length_bytes: int


class SecretSearch:
    """Searches for secrets in data that arrives in pieces, wherever it is cut. It keeps no more
    data than the longest form of a secret may take."""

    def __init__(self, forms: SecretForms) -> None:
        self._forms = forms
        self._tail = b""
        self._seen_bytes = 0

    def finds(self, piece: bytes) -> bool:
        """Return whether the data so far holds a secret."""
        text = self._tail + piece
        self._seen_bytes += len(piece)
        self._tail = text[max(0, len(text) - self._forms.reach) :]
        return self._forms.is_in(text)

    @property
    def begun(self) -> Begun | None:
        """Return the partial secret at the end of the data so far."""
        found = self._forms.begun_bytes(self._tail)
        return Begun(self._seen_bytes - found, found) if found else None


def _as_it_reads(secret: bytes) -> set[bytes]:
    """Return a secret, and its decoded form if it looks escaped itself. A form writes a space as a
    plus sign."""
    found = {secret, secret.replace(b" ", b"+")}
    for _ in range(MOST_LAYERS):
        found |= {unescaped(one) for one in found}
    return {one for one in found if len(one) >= SHORTEST_SECRET}


def _in_base64(secret: bytes) -> Iterator[_Needle]:
    """Return the parts of a secret's base64 that don't depend on the surrounding text, for each
    place in a group of three bytes."""
    for before in range(3):
        bits = (before + len(secret)) * 8
        code = base64.b64encode(bytes(before) + secret)[(before * 8 + 5) // 6 : bits // 6]
        yield _Needle(code, len(secret), begins_before=before > 0, ends_behind=bits % 6 > 0)
