"""Content decoders for inspecting a body, which passes on unchanged. Pure.

It decides which codings can be read (also several on top of each other), and how far they may
expand. It never holds or makes more than one step of decoded bytes at once: a few bytes may stand
for a gigabyte, and the caller may let others have their turn between steps.
"""

import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Protocol

import brotli
import zstandard

STEP_BYTES = 64 * 1024
# Any body may expand to this much, and longer bodies to a multiple of their length. Text expands 3
# to 20 times; deflate's maximum is about 1,000.
MOST_UNPACKED_BYTES = 64 * 1024 * 1024
MOST_RATIO = 100
MOST_CODINGS = 3
# Names that don't transform the body: S3's frames around pieces, and a charset put there by
# mistake.
_PLAIN = ("", "identity", "aws-chunked", "utf-8")
_OFFERED = ("gzip", "deflate", "identity")
# The codings of a beginning: also the old name (RFC 9110 8.4.1.3), and never several at once. This
# many steps take about a millisecond, and yield more than anybody is shown.
_READ_AT_ONCE = (*_OFFERED, "x-gzip", "")
_STEPS_AT_ONCE = 4
# zlib's parameters for an automatically detected gzip or zlib header, and for no header.
_WITH_HEADER, _BARE = zlib.MAX_WBITS | 32, -zlib.MAX_WBITS
_HEADER_BYTES = 2
_GZIP_BEGINS = b"\x1f"
# RFC 9659: decoders of this coding need no larger window.
_ZSTD_WINDOW_BYTES = 8 * 1024 * 1024
# A block of 4 bytes may stand for 128 KB (RFC 8878 3.1.1.2.4), and zstandard has no limit on its
# output.
_ZSTD_FED_BYTES = 32
# Steps without output count, too.
_MOST_SILENT_STEPS = 64
UNKNOWN = (
    "the body is coded in a way that isn't known here and can't be looked through; send it as it"
    " is, or with gzip, deflate, br or zstd"
)
BROKEN = (
    "the body isn't coded as its Content-Encoding says and can't be looked through; send it as"
    " it is"
)
TOO_MUCH = (
    f"a body that unpacks to more than {MOST_UNPACKED_BYTES >> 20} MB, and to more than"
    f" {MOST_RATIO} times its length, can't be looked through; send it as it is, or in parts"
)

TOO_MANY = (
    "too many bodies that are packed with br or zstd are on their way at once; send it with gzip,"
    " or wait for the others"
)


class _Coding(Protocol):
    """One coding: decodes a piece in steps. Raises `ValueError` where it can't be read."""

    def steps(self, piece: bytes) -> Iterator[bytes]: ...


class _Zlib:
    """gzip and deflate."""

    def __init__(self, *, may_be_bare: bool) -> None:
        self._may_be_bare = may_be_bare
        self._begun = b""
        self._inflater = zlib.decompressobj(_WITH_HEADER)
        self._is_over = False

    def steps(self, piece: bytes) -> Iterator[bytes]:
        left = self._from_header(piece) if self._may_be_bare else piece
        while left := self._of_member(left):
            try:
                found = self._inflater.decompress(left, STEP_BYTES)
                yield found
                while len(found) == STEP_BYTES and not self._inflater.unconsumed_tail:
                    found = self._inflater.decompress(
                        b"", STEP_BYTES
                    )  # it may have taken all and not yet given all
                    yield found
            except zlib.error as error:
                raise ValueError(BROKEN) from error
            left = self._inflater.unconsumed_tail or self._inflater.unused_data

    def _from_header(self, piece: bytes) -> bytes:
        """Find the format from the first two bytes, since many servers send `deflate` without
        zlib's header (RFC 9110 8.4.1.2). Return nothing until both arrived."""
        self._begun += piece
        if len(self._begun) < _HEADER_BYTES:
            return b""
        self._may_be_bare = False
        try:
            zlib.decompressobj(_WITH_HEADER).decompress(self._begun[:_HEADER_BYTES])
        except zlib.error:
            self._inflater = zlib.decompressobj(_BARE)
        return self._begun

    def _of_member(self, left: bytes) -> bytes:
        """Return the remaining bytes if they belong to a member or begin another gzip member (RFC
        1952 2.2). Readers ignore other trailing bytes.

        INVARIANT: a finished inflater gets no more input: it would keep all of it, and copy it with
        each piece.
        """
        if not self._inflater.eof:
            return left
        rest = b"" if self._is_over else left.lstrip(b"\0")
        if rest.startswith(_GZIP_BEGINS):
            self._inflater = zlib.decompressobj(_WITH_HEADER)
            return rest
        self._is_over = self._is_over or bool(rest)
        return b""


class _Brotli:
    """RFC 7932. Readers ignore bytes after its end."""

    def __init__(self) -> None:
        self._inflater = brotli.Decompressor()

    def steps(self, piece: bytes) -> Iterator[bytes]:
        try:
            found = (
                b""
                if self._inflater.is_finished()
                else self._inflater.process(piece, output_buffer_limit=STEP_BYTES)
            )
            yield found
            # Input may be consumed before all output is made, or neither may be complete.
            while not self._inflater.is_finished() and (
                found or not self._inflater.can_accept_more_data()
            ):
                found = self._inflater.process(b"", output_buffer_limit=STEP_BYTES)
                yield found
        except brotli.error as error:
            raise ValueError(BROKEN) from error


class _Zstd:
    """RFC 8878, a sequence of frames."""

    def __init__(self) -> None:
        self._inflater = zstandard.ZstdDecompressor(
            max_window_size=_ZSTD_WINDOW_BYTES
        ).decompressobj(read_across_frames=True)

    def steps(self, piece: bytes) -> Iterator[bytes]:
        try:
            for at in range(0, len(piece), _ZSTD_FED_BYTES):
                yield self._inflater.decompress(piece[at : at + _ZSTD_FED_BYTES])
        except zstandard.ZstdError as error:
            raise ValueError(BROKEN) from error


_CODINGS: dict[str, Callable[[], _Coding]] = {
    "gzip": lambda: _Zlib(may_be_bare=False),
    "x-gzip": lambda: _Zlib(may_be_bare=False),
    "deflate": lambda: _Zlib(may_be_bare=True),
    "br": _Brotli,
    "zstd": _Zstd,
}
# These keep a window of their output for back-references; the others keep 32 KB.
_WIDE = ("br", "zstd")


class Decoder:
    """Decodes one body, piece by piece. `why` is set once it can't be read: its coding is unknown,
    its data is invalid, or it expands too much."""

    def __init__(self, coding: str) -> None:
        names = [name for part in coding.split(",") if (name := part.strip().lower()) not in _PLAIN]
        self.is_coded = bool(names)
        self.is_wide = any(name in _WIDE for name in names)
        self.why = (
            ""
            if len(names) <= MOST_CODINGS and all(name in _CODINGS for name in names)
            else UNKNOWN
        )
        # The last coding was applied last (RFC 9110 8.4).
        self._codings = [] if self.why else [_CODINGS[name]() for name in reversed(names)]
        self._taken_bytes = self._made_bytes = 0

    @property
    def is_readable(self) -> bool:
        """Return whether the body could be read so far."""
        return not self.why

    def decode(self, piece: bytes) -> Iterator[bytes]:
        """Decode a piece in steps of about `STEP_BYTES`; some steps are empty. Yields nothing of an
        unreadable body."""
        self._taken_bytes += len(piece)
        if not self.is_coded:
            yield piece
            return
        parts: list[bytes] = []
        try:
            for count, part in enumerate(self._through(piece, 0) if not self.why else (), 1):
                parts.append(part)
                if sum(map(len, parts)) >= STEP_BYTES or count % _MOST_SILENT_STEPS == 0:
                    yield b"".join(parts)
                    parts.clear()
                    if self.why:  # the caller refused it
                        return
        except ValueError as error:
            self.why = str(error)
        yield b"".join(parts)

    def refuse(self, why: str) -> None:
        """Stop reading the body, for this reason."""
        self.why = why
        self.end()

    def end(self) -> None:
        """Drop all kept data, since the body is over."""
        self._codings = []
        self.is_wide = False

    def _through(self, piece: bytes, number: int) -> Iterator[bytes]:
        """Yield a piece decoded by the codings from this one on. Each step of each coding counts as
        a step."""
        if number == len(self._codings):
            yield piece
            return
        for part in self._codings[number].steps(piece):
            self._made_bytes += len(part)
            if self._made_bytes > max(MOST_UNPACKED_BYTES, MOST_RATIO * self._taken_bytes):
                raise ValueError(TOO_MUCH)
            yield b""
            yield from self._through(part, number + 1)


def beginning(body: bytes, coding: str, most_bytes: int) -> bytes:
    """Decode the beginning of a body, in at most `_STEPS_AT_ONCE` steps and this many bytes. Return
    nothing if it can't be read so."""
    name = coding.strip().lower()
    if name not in _READ_AT_ONCE:
        return b""
    decoder = Decoder(name)
    said = b"".join(islice(decoder.decode(body), _STEPS_AT_ONCE))
    return said[:most_bytes] if decoder.is_readable else b""


def readable_only(accepted: str) -> str:
    """Reduce an Accept-Encoding to codings that can be read here. Every client that accepts others
    accepts these, too."""
    parts = [part.strip() for part in accepted.split(",")]
    return (
        ", ".join(part for part in parts if part.partition(";")[0].strip().lower() in _OFFERED)
        or "identity"
    )
