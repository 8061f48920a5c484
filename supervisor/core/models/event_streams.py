"""Decoder of server-sent events and AWS event streams, in any chunks.

It decides where an event begins and ends, not what it means. Its buffer is bounded: an event that
is too long is skipped and reported (`lost`). Sources: the HTML standard's "server-sent events",
AWS's "event stream encoding".
"""

from collections.abc import Iterator
from typing import NamedTuple

MOST_EVENT_BYTES = 4 * 1024 * 1024
# A byte order mark may start a stream of server-sent events.
_BOM = b"\xef\xbb\xbf"
_PRELUDE_BYTES = 12
_CRC_BYTES = 4
_STRING = 7
# Sizes of header values by their type, where they are fixed: true, false, byte, short, int, long,
# timestamp, uuid.
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}


class StreamEvent(NamedTuple):
    """One event. `kind` is its name, empty if it has none."""

    kind: str
    data: bytes


class ServerSent:
    """Decoder of `text/event-stream`."""

    def __init__(self) -> None:
        self.lost = False
        self._rest = bytearray()
        self._after_cr = False
        self._kind = ""
        self._data = bytearray()
        self._is_long = False
        self._skips = False
        self._is_first = True

    def feed(self, chunk: bytes) -> Iterator[StreamEvent]:
        """Return the events that end in this chunk."""
        if not chunk:
            return
        behind, self._after_cr = self._after_cr, chunk.endswith(b"\r")
        if behind and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        *lines, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            whole = bytes(self._rest) + line
            self._rest.clear()
            skipped, self._skips = self._skips, False
            if not skipped:
                yield from self._line(whole)
        self._rest += rest
        if len(self._rest) > MOST_EVENT_BYTES:
            self._rest.clear()
            self._skips = self.lost = True

    def end(self) -> Iterator[StreamEvent]:
        """Return the last event of a stream that ended without its last blank line."""
        if self._rest and not self._skips:
            yield from self._line(bytes(self._rest))
        yield from self._line(b"")
        self._rest.clear()

    def _line(self, line: bytes) -> Iterator[StreamEvent]:
        if self._is_first:
            line, self._is_first = line.removeprefix(_BOM), False
        if not line:
            if self._data:
                yield StreamEvent(self._kind, bytes(self._data[:-1]))
            self._kind, self._is_long = "", False
            self._data.clear()
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            self._kind = value[:100].decode("utf-8", "replace")
        elif name == b"data" and not self._is_long:
            # Each with its newline, as the standard has it: a line without content takes room, too.
            self._data += value + b"\n"
            if len(self._data) - 1 > MOST_EVENT_BYTES:
                self._data.clear()
                self._is_long = self.lost = True


class AwsEvents:
    """Decoder of `application/vnd.amazon.eventstream`. `kind` is the header `:event-type` or
    `:exception-type`."""

    def __init__(self) -> None:
        self.lost = False
        self._rest = bytearray()
        self._skip_bytes = 0

    def feed(self, chunk: bytes) -> Iterator[StreamEvent]:
        """Return the events that end in this chunk."""
        self._rest += chunk
        while True:
            skipped = min(self._skip_bytes, len(self._rest))
            del self._rest[:skipped]
            self._skip_bytes -= skipped
            if self._skip_bytes or len(self._rest) < _PRELUDE_BYTES:
                return
            total = int.from_bytes(self._rest[:4])
            head_bytes = int.from_bytes(self._rest[4:8])
            if total > MOST_EVENT_BYTES or total < _PRELUDE_BYTES + head_bytes + _CRC_BYTES:
                # The frame is too long, or this isn't such a stream: nothing after it can be
                # located reliably.
                self.lost, self._skip_bytes = True, max(total, len(self._rest))
                continue
            if len(self._rest) < total:
                return
            frame = bytes(self._rest[:total])
            del self._rest[:total]
            head = frame[_PRELUDE_BYTES : _PRELUDE_BYTES + head_bytes]
            yield StreamEvent(_kind_of(head), frame[_PRELUDE_BYTES + head_bytes : -_CRC_BYTES])

    def end(self) -> Iterator[StreamEvent]:
        """Return nothing: a frame that was cut off is no event."""
        self.lost = self.lost or bool(self._rest)
        self._rest.clear()
        return iter(())


def _kind_of(head: bytes) -> str:
    """Return the event's name from a frame's headers; empty if they can't be read."""
    at = 0
    while at < len(head):
        name_end = at + 1 + head[at]
        name, value_type = head[at + 1 : name_end], head[name_end : name_end + 1]
        at = name_end + 1
        if not value_type:
            return ""
        if value_type[0] in _SIZES:
            at += _SIZES[value_type[0]]
            continue
        size = int.from_bytes(head[at : at + 2])
        value = head[at + 2 : at + 2 + size]
        at += 2 + size
        if value_type[0] == _STRING and name in (b":event-type", b":exception-type"):
            return value.decode("utf-8", "replace")
    return ""
