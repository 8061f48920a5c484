"""One session's share of the loop: one step at a time, long ones paid back.

A few bytes may be much work. A read of 64 kB may hold thousands of frames, chunks or header lines,
and take seconds of the one processor of all sessions. This module decides only when a session's
next step begins, and how many bytes it handles. INVARIANT: while others have work, a session runs
in one turn of the loop for at most `QUANTUM_S` and one step, however many connections it has. After
a long step the others get as much time as it took. Only this thread's processor time counts, so
other load on the machine is charged to nobody.
"""

import asyncio
from collections.abc import Callable, Iterator
from types import TracebackType

from supervisor.base.clock import worked_s

# An ordinary step (a request, a body read, a handshake) takes a tenth to a half of it.
QUANTUM_S = 0.005
# Longer steps are paid back.
LONG_S = 2 * QUANTUM_S
# After a step longer than this, a session works in short steps for a while. Short steps aren't the
# rule, since splitting slows large transfers.
VERY_LONG_S = 0.05
SHORT_FOR_S = 60.0
SHORT_BYTES = 4096


class Share:
    """A session's turn: `async with` it around a step. INVARIANT: a step awaits only what is ready,
    or others' time would be counted."""

    def __init__(self, is_shared: Callable[[], bool] = lambda: True) -> None:
        """`is_shared` returns whether other sessions exist. Without others, yielding is useless and
        would cost a quarter of all throughput."""
        self._is_shared = is_shared
        self._is_paying_back = False
        self._waiting: list[asyncio.Future[None]] = []
        self._began_s = self._owed_s = 0.0
        self._short_until = 0.0

    def parts(self, data: bytes) -> Iterator[bytes]:
        """Split input into one part per step."""
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
        """Let the others have their turn, and after a long step as much time as it took."""
        owed_s, self._owed_s = self._owed_s, 0.0
        if owed_s >= VERY_LONG_S:
            self._short_until = asyncio.get_running_loop().time() + SHORT_FOR_S
        self._is_paying_back = True
        try:
            await asyncio.sleep(owed_s if owed_s >= LONG_S else 0)
        finally:
            self._is_paying_back = False
            waiting, self._waiting = self._waiting, []
            # Waiters whose turn doesn't come before the quantum is used up keep their order.
            for one in waiting:
                if not one.done():
                    one.set_result(None)


class Bucket:
    """A token bucket: a burst, and a rate per second. It refills with time up to `most`."""

    def __init__(self, most: int, per_second: float) -> None:
        self._most, self._per_second = float(most), per_second
        self._left, self._at = self._most, 0.0

    def wait_s(self, now: float) -> float:
        """Return the seconds until the next token; 0 where there is one. `now` is the loop's
        time."""
        self._left = min(self._most, self._left + max(0.0, now - self._at) * self._per_second)
        self._at = now
        return max(0.0, 1 - self._left) / self._per_second

    def take(self) -> None:
        """Take one token. A caller that didn't wait goes into debt."""
        self._left -= 1
