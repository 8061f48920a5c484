"""Bodies as their readers see them, on their way: what is coded is decoded for whoever looks at it, and passed on as it came. Pure.

It decides which codings can be read. It never holds more than a step of what it decodes: a few bytes may stand for a gigabyte.
"""

import zlib
from collections.abc import Iterator

_STEP_BYTES = 64 * 1024
_PLAIN, _ZIPPED = ("", "identity"), ("gzip", "x-gzip", "deflate")
_OFFERED = ("gzip", "deflate", "identity")


class Decoder:
    """One body, piece by piece. `is_readable` is False where its coding isn't known, or it wasn't coded so."""

    def __init__(self, coding: str) -> None:
        kind = coding.strip().lower()
        self.is_coded = kind not in _PLAIN
        self.is_readable = not self.is_coded or kind in _ZIPPED
        self._inflater = zlib.decompressobj(zlib.MAX_WBITS | 32)

    def decode(self, piece: bytes) -> Iterator[bytes]:
        """What the piece stands for, in steps. Nothing of what can't be read."""
        if not self.is_coded:
            yield piece
        left = piece if self.is_coded else b""
        while left and self.is_readable:
            try:
                yield self._inflater.decompress(left, _STEP_BYTES)
            except zlib.error:
                self.is_readable = False
            left = self._inflater.unconsumed_tail


def readable_only(accepted: str) -> str:
    """What of an Accept-Encoding leads to answers that can be read: every client that takes others takes these, too."""
    parts = [part.strip() for part in accepted.split(",")]
    return ", ".join(part for part in parts if part.partition(";")[0].strip().lower() in _OFFERED) or "identity"
