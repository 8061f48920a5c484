"""One session's share of the loop: one step at a time, long ones paid back.

A few bytes may be much work: a read of 64 kB holds thousands of frames, chunks or lines of a head,
and takes seconds of the one processor of all sessions. It decides only when a session's next step
begins, and of how many bytes. INVARIANT: while others have work, a session works in one turn of the
loop for no longer than `QUANTUM_S` and one step, however many connections it has; after a long step
the others get as much time as it took. Processor time of this thread counts, so that other load on
the machine is charged to nobody.
"""

import asyncio
from collections.abc import Callable, Iterator
from types import TracebackType

from supervisor.base.clock import worked_s

# Ordinary steps (a request, a read of a body, a handshake) take a tenth of it to a half.
QUANTUM_S = 0.005
# What took more is paid back.
LONG_S = 2 * QUANTUM_S
# A session with a step longer than anything ordinary works in short ones for a while: to
# divide what comes costs those who send much.
VERY_LONG_S = 0.05
SHORT_FOR_S = 60.0
SHORT_BYTES = 4096


class Share:
    """`async with` it, around a step. INVARIANT: nothing is awaited in a step but what is there
    already, or others' time would be counted."""

    def __init__(self, is_shared: Callable[[], bool] = lambda: True) -> None:
        """`is_shared` tells whether there is anybody else. Where there isn't, turns are given to
        nobody, and cost a quarter of all there is."""
        self._is_shared = is_shared
        self._is_paying_back = False
        self._waiting: list[asyncio.Future[None]] = []
        self._began_s = self._owed_s = 0.0
        self._short_until = 0.0

    def parts(self, data: bytes) -> Iterator[bytes]:
        """Split what came at once into as many parts as steps are to be made of it."""
        size = SHORT_BYTES if asyncio.get_running_loop().time() < self._short_until else len(data)
        return (data[at : at + size] for at in range(0, len(data), size or 1))

    async def __aenter__(self) -> None:
        while self._is_paying_back:
            self._waiting.append(asyncio.get_running_loop().create_future())
            await self._waiting[-1]
        self._began_s = worked_s()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._owed_s += worked_s() - self._began_s
        if self._owed_s >= LONG_S or (self._owed_s >= QUANTUM_S and self._is_shared()):
            await self._pay_back()
        elif self._owed_s >= QUANTUM_S:
            self._owed_s = 0.0

    async def _pay_back(self) -> None:
        """Let the others have their turn, and as long as it took where that was long."""
        owed_s, self._owed_s = self._owed_s, 0.0
        if owed_s >= VERY_LONG_S:
            self._short_until = asyncio.get_running_loop().time() + SHORT_FOR_S
        self._is_paying_back = True
        try:
            await asyncio.sleep(owed_s if owed_s >= LONG_S else 0)
        finally:
            self._is_paying_back = False
            waiting, self._waiting = self._waiting, []
            # Those whose turn doesn't come before the next quantum is used up wait on, in the same
            # order.
            for one in waiting:
                if not one.done():
                    one.set_result(None)


class Bucket:
    """A token bucket: so many times at once, and so many in a second. It fills with the time that
    goes by, up to `most`."""

    def __init__(self, most: int, per_second: float) -> None:
        self._most, self._per_second = float(most), per_second
        self._left, self._at = self._most, 0.0

    def wait_s(self, now: float) -> float:
        """Return the seconds until the next time, 0 for now. `now` is the time of the loop."""
        self._left = min(self._most, self._left + max(0.0, now - self._at) * self._per_second)
        self._at = now
        return max(0.0, 1 - self._left) / self._per_second

    def take(self) -> None:
        """Count one. A caller that didn't wait goes into debt."""
        self._left -= 1
