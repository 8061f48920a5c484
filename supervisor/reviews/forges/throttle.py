"""Rate limits of a forge: concurrent calls, and posts per minute and per hour. Too many wait; none
is dropped.

Source: docs.github.com/rest, "Rate limits": secondary limits on requests that create content.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable

AT_ONCE = 20
# So many in so many seconds.
POSTS = ((80, 60.0), (500, 3600.0))


class Throttle:
    """One per forge. `now` is monotonic."""

    def __init__(
        self,
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._now = now
        self._sleep = sleep
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._posted: deque[float] = deque(maxlen=max(most for most, _ in POSTS))
        self._one = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def turn(self, *, posts: bool) -> AsyncIterator[None]:
        """Wait until another call may be made; it counts as under way until the block ends."""
        if posts:
            # In the order in which they come.
            async with self._one:
                while (wait_s := self._wait_s()) > 0:
                    await self._sleep(wait_s)
                self._posted.append(self._now())
        async with self._turns:
            yield

    def _wait_s(self) -> float:
        """Return how long until another post is allowed."""
        now, wait_s = self._now(), 0.0
        for most, within_s in POSTS:
            if len(self._posted) >= most:
                wait_s = max(wait_s, self._posted[-most] + within_s - now)
        return wait_s
