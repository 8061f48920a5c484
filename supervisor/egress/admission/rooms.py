"""How much data of a session's connections waits in memory.

Each connection has a room for each direction: data waits there for an answer, an origin, an
inspection or a reader. All rooms of a session share one bound, `HeldBySession`; beyond it each room
has little, so 512 connections fill no more memory than a few. It decides only when reading from a
sender pauses.
"""

import asyncio

from supervisor.egress.loop.relay import MOST_HELD_BYTES

# Most that may wait in all rooms of a session. Beyond it, each room still has a minimum, or one
# unread connection would stop the others.
MOST_OF_SESSION_BYTES = 64 * 1024 * 1024
LEAST_BYTES = 32 * 1024


class HeldBySession:
    """Counts what waits in all rooms of one session."""

    def __init__(self) -> None:
        self._bytes = 0
        self.stopped: set[Room] = set()

    @property
    def is_much(self) -> bool:
        return self._bytes > MOST_OF_SESSION_BYTES

    def add(self, count: int) -> None:
        """Add to the count; a negative number reduces it."""
        was_much = self.is_much
        self._bytes += count
        if was_much and not self.is_much:
            for one in tuple(self.stopped):
                one.go_on()


class Room:
    """One direction's waiting bytes."""

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
        """Count this many more bytes as waiting; a negative number releases them."""
        self._held_bytes += count
        if not self._is_left:
            self._of_all.add(count)
        self.go_on()

    def leave(self) -> None:
        """Release everything, since its connection is over."""
        if not self._is_left:
            self._is_left = True
            self._of_all.add(-self._held_bytes)
            self.go_on()

    def go_on(self) -> None:
        """Wake the waiting readers, unless it is full."""
        if not self.is_full:
            self._of_all.stopped.discard(self)
            for one in self._waiting:
                if not one.done():
                    one.set_result(None)
            self._waiting.clear()

    async def wait(self) -> None:
        """Wait until reading may continue. INVARIANT: data sent to a paused reader doesn't
        accumulate in memory."""
        while self.is_full:
            self._of_all.stopped.add(self)
            self._waiting.append(asyncio.get_running_loop().create_future())
            await self._waiting[-1]


class RoomShare:
    """One user's share of a room."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._held_bytes = 0

    def set(self, held_bytes: int) -> None:
        """Set how much it holds now."""
        if held_bytes != self._held_bytes:
            self._room.hold(held_bytes - self._held_bytes)
            self._held_bytes = held_bytes
