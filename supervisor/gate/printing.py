"""What programs print under a grant while they run: the end of each stream, until it is settled.

A person sees it on the card. It is kept in memory alone, as bytes: whoever shows it redacts it.
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from supervisor.base.process import Printed
from supervisor.gate.grants import Grant

KEPT_BYTES = 64 * 1024

type Follower = Callable[[int, bytes], None]


class Printing:
    """`on_change(request_id)` is called for each block that is printed."""

    def __init__(self) -> None:
        self.on_change: Callable[[str], None] = lambda request_id: None
        self._streams: dict[str, tuple[bytearray, bytearray]] = {}
        self._followers: defaultdict[str, list[Follower]] = defaultdict(list)

    def streams_of(self, grant: Grant) -> Printed:
        """Return what is to be called with standard output, and with standard error."""
        request_id = grant.request_id or ""
        kept = self._streams[request_id] = (bytearray(), bytearray())

        def keep(number: int, block: bytes) -> None:
            stream = kept[number]
            stream += block
            if len(stream) > 2 * KEPT_BYTES:  # so that a byte is moved at most once
                del stream[:-KEPT_BYTES]
            self.on_change(request_id)
            for follower in self._followers.get(request_id, ()):
                follower(number, block)

        return (lambda block: keep(0, block)), (lambda block: keep(1, block))

    @contextlib.contextmanager
    def followed(self, request_id: str, follower: Follower) -> Iterator[None]:
        """Give each block that is printed from now on to `follower`, too, with 0 for standard
        output and 1 for standard error."""
        self._followers[request_id].append(follower)
        try:
            yield
        finally:
            self._followers[request_id].remove(follower)
            if not self._followers[request_id]:
                del self._followers[request_id]

    def is_followed(self, request_id: str) -> bool:
        """Return whether somebody waits for what it prints."""
        return request_id in self._followers

    def printed(self, request_id: str) -> tuple[bytes, bytes]:
        """Return the end of both streams; nothing where it doesn't run."""
        out, err = self._streams.get(request_id, (b"", b""))
        return bytes(out), bytes(err)

    def forget(self, request_ids: Iterable[str | None]) -> None:
        """The outcomes of these are known."""
        for one in request_ids:
            self._streams.pop(one or "", None)
