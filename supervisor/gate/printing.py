"""What programs print under a grant while they run: the end of each stream, until it is settled.

A person sees it on the card. It is kept in memory alone, as bytes: whoever shows it redacts it.
"""

from collections.abc import Callable, Iterable

from supervisor.base.process import Printed
from supervisor.gate.grants import Grant

KEPT_BYTES = 64 * 1024


class Printing:
    """`on_change(request_id)` is called for each block that is printed."""

    def __init__(self) -> None:
        self.on_change: Callable[[str], None] = lambda request_id: None
        self._streams: dict[str, tuple[bytearray, bytearray]] = {}

    def streams_of(self, grant: Grant) -> Printed:
        """Return what is to be called with standard output, and with standard error."""
        request_id = grant.request_id or ""
        kept = self._streams[request_id] = (bytearray(), bytearray())

        def keep(stream: bytearray, block: bytes) -> None:
            stream += block
            if len(stream) > 2 * KEPT_BYTES:  # so that a byte is moved at most once
                del stream[:-KEPT_BYTES]
            self.on_change(request_id)

        return (lambda block: keep(kept[0], block)), (lambda block: keep(kept[1], block))

    def printed(self, request_id: str) -> tuple[bytes, bytes]:
        """Return the end of both streams; nothing where it doesn't run."""
        out, err = self._streams.get(request_id, (b"", b""))
        return bytes(out), bytes(err)

    def forget(self, request_ids: Iterable[str | None]) -> None:
        """The outcomes of these are known."""
        for one in request_ids:
            self._streams.pop(one or "", None)
