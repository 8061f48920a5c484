"""Bodies as their readers see them, on their way: what is coded is decoded for whoever looks at it, and passed on as it came. Pure.

It decides which codings can be read. It never holds more than a step of what it decodes: a few bytes may stand for a gigabyte.
"""

import zlib
from collections.abc import Iterator

_STEP_BYTES = 64 * 1024
_PLAIN, _ZIPPED = ("", "identity"), ("gzip", "x-gzip", "deflate")
_OFFERED = ("gzip", "deflate", "identity")
# zlib's words for a header of gzip's or zlib's, whichever comes, and for none.
_WITH_HEADER, _BARE = zlib.MAX_WBITS | 32, -zlib.MAX_WBITS
_HEADER_BYTES = 2
_GZIP_BEGINS = b"\x1f"


class Decoder:
    """One body, piece by piece. `is_readable` is False where its coding isn't known, or it wasn't coded so."""

    def __init__(self, coding: str) -> None:
        kind = coding.strip().lower()
        self.is_coded = kind not in _PLAIN
        self.is_readable = not self.is_coded or kind in _ZIPPED
        self._may_be_bare = kind == "deflate"
        self._begun = b""
        self._inflater = zlib.decompressobj(_WITH_HEADER)

    def decode(self, piece: bytes) -> Iterator[bytes]:
        """What the piece stands for, in steps. Nothing of what can't be read."""
        if not self.is_coded:
            yield piece
            return
        left = self._from_header(piece) if self._may_be_bare else piece
        while left and self.is_readable:
            try:
                found = self._inflater.decompress(left, _STEP_BYTES)
                yield found
                while len(found) == _STEP_BYTES and not self._inflater.unconsumed_tail:
                    found = self._inflater.decompress(b"", _STEP_BYTES)  # it may have taken all and not yet given all
                    yield found
            except zlib.error:
                self.is_readable = False
            left = self._inflater.unconsumed_tail or self._next_member()

    def _from_header(self, piece: bytes) -> bytes:
        """Many a server sends `deflate` without zlib's header (RFC 9110 8.4.1.2): the first two bytes tell. Nothing until they came."""
        self._begun += piece
        if len(self._begun) < _HEADER_BYTES:
            return b""
        self._may_be_bare = False
        try:
            zlib.decompressobj(_WITH_HEADER).decompress(self._begun[:_HEADER_BYTES])
        except zlib.error:
            self._inflater = zlib.decompressobj(_BARE)
        return self._begun

    def _next_member(self) -> bytes:
        """What follows the end where that is another member of gzip's (RFC 1952 2.2). Whatever else it is, readers pass over it."""
        rest = self._inflater.unused_data.lstrip(b"\0") if self._inflater.eof else b""
        if not rest.startswith(_GZIP_BEGINS):
            return b""
        self._inflater = zlib.decompressobj(_WITH_HEADER)
        return rest


def readable_only(accepted: str) -> str:
    """What of an Accept-Encoding leads to answers that can be read: every client that takes others takes these, too."""
    parts = [part.strip() for part in accepted.split(",")]
    return ", ".join(part for part in parts if part.partition(";")[0].strip().lower() in _OFFERED) or "identity"
