"""How much of what comes over a session's connections waits in memory.

Each connection has a room for each way: for an answer, for an origin, to be looked at, to be read.
All rooms of a session together have one bound, `HeldBySession`, beyond which each has little: so
512 connections fill no more memory than a few. It decides only when a sender is read no further.
"""

import asyncio

from supervisor.egress.loop.relay import MOST_HELD_BYTES

# What may wait of all connections of a session. Beyond it each room still has so much, or one
# connection that nobody reads would stop the others.
MOST_OF_SESSION_BYTES = 64 * 1024 * 1024
LEAST_BYTES = 32 * 1024


class HeldBySession:
    """What waits in all rooms of one session."""

    def __init__(self) -> None:
        self._bytes = 0
        self.stopped: set[Room] = set()

    @property
    def is_much(self) -> bool:
        return self._bytes > MOST_OF_SESSION_BYTES

    def add(self, count: int) -> None:
        """Count so much more; less where it is negative."""
        was_much = self.is_much
        self._bytes += count
        if was_much and not self.is_much:
            for one in tuple(self.stopped):
                one.go_on()


class Room:
    """One of them."""

    def __init__(
        self, most_bytes: int = MOST_HELD_BYTES, waiting: HeldBySession | None = None
    ) -> None:
        self._most_bytes = most_bytes
        self._of_all = waiting or HeldBySession()
        self._held_bytes = 0
        self._is_left = False
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def is_full(self) -> bool:
        is_much = self._of_all.is_much and not self._is_left
        return self._held_bytes > (
            min(LEAST_BYTES, self._most_bytes) if is_much else self._most_bytes
        )

    def hold(self, count: int) -> None:
        """Count so much more as waiting; a negative number waits no more."""
        self._held_bytes += count
        if not self._is_left:
            self._of_all.add(count)
        self.go_on()

    def leave(self) -> None:
        """Its connection is over: nothing of it counts any more for the others."""
        if not self._is_left:
            self._is_left = True
            self._of_all.add(-self._held_bytes)
            self.go_on()

    def go_on(self) -> None:
        """Wake whoever waits, unless it is full."""
        if not self.is_full:
            self._of_all.stopped.discard(self)
            for one in self._waiting:
                if not one.done():
                    one.set_result(None)
            self._waiting.clear()

    async def wait(self) -> None:
        """Wait until the sender may be read on. INVARIANT: what is sent for something that waits
        fills nobody's memory."""
        while self.is_full:
            self._of_all.stopped.add(self)
            self._waiting.append(asyncio.get_running_loop().create_future())
            await self._waiting[-1]


class RoomShare:
    """The share of a room that one of its users holds."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._held_bytes = 0

    def set(self, held_bytes: int) -> None:
        """So much it is now."""
        if held_bytes != self._held_bytes:
            self._room.hold(held_bytes - self._held_bytes)
            self._held_bytes = held_bytes
