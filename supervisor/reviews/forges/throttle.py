"""Waits for a forge's limits, so that no call is dropped.

GitHub's: docs.github.com/rest, "Rate limits", secondary limits on requests that create content.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable

AT_ONCE = 20
# The maximum number of posts in this many seconds.
POSTS = ((80, 60.0), (500, 3600.0))


class Throttle:
    """Rate limiter, one per forge. `limits` are for posts, or for all calls (`counts_all`); `now`
    is monotonic."""

    def __init__(
        self,
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        *,
        limits: tuple[tuple[int, float], ...] = POSTS,
        counts_all: bool = False,
    ) -> None:
        self._now = now
        self._sleep = sleep
        self._limits = limits
        self._counts_all = counts_all
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._done: deque[float] = deque(maxlen=max(most for most, _ in limits))
        self._one = asyncio.Lock()
        self._rests_until = 0.0

    @contextlib.asynccontextmanager
    async def turn(self, *, posts: bool) -> AsyncIterator[None]:
        """Wait until another call may be made; it counts as running until the block ends."""
        if posts or self._counts_all:
            # They take their turn in the order of arrival.
            async with self._one:
                while (wait_s := self.wait_s()) > 0:
                    await self._sleep(wait_s)
                self._done.append(self._now())
        async with self._turns:
            yield

    def rest(self, seconds: float) -> None:
        """Make no counted call for this long: the forge said that there were too many."""
        self._rests_until = max(self._rests_until, self._now() + seconds)

    def wait_s(self) -> float:
        """Return how long until another counted call is allowed."""
        now = self._now()
        wait_s = max(0.0, self._rests_until - now)
        for most, within_s in self._limits:
            if len(self._done) >= most:
                wait_s = max(wait_s, self._done[-most] + within_s - now)
        return wait_s
