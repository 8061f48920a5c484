"""What waits of many connections: bounded together, and nobody stops for ever."""

import asyncio
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from supervisor.egress.admission.egress_sessions import (
    MANY_CONNECTIONS,
    MOST_CONNECTIONS_PER_SESSION,
    ClientConnection,
    Sessions,
)
from supervisor.egress.admission.rooms import (
    LEAST_BYTES,
    MOST_OF_SESSION_BYTES,
    HeldBySession,
    Room,
)
from supervisor.egress.loop.relay import MOST_WAITING_BYTES
from supervisor.egress.mitm.http2 import MOST_WAITING_OF_ALL_BYTES

PIECE = 64 * 1024


class Transport:
    def get_extra_info(self, name: str) -> None:
        return None


def connections(count: int) -> tuple[Sessions, list[ClientConnection]]:
    sessions = Sessions()
    session = sessions.get("s")
    made = [
        ClientConnection(str(number), session, cast("Any", Transport()), 0.0)
        for number in range(count)
    ]
    session.connections.update(made)
    return sessions, made


async def test_what_nobody_reads_of_512_connections_is_bounded() -> None:
    """Each is filled, a read at a time, as far as its sender is read."""
    sessions, made = connections(MOST_CONNECTIONS_PER_SESSION)
    held = 0
    for connection in made:
        for room in (connection.up, connection.down, connection.unread):
            while not room.is_full:
                room.hold(PIECE)
                held += PIECE
    most = MOST_OF_SESSION_BYTES + 3 * len(made) * (LEAST_BYTES + PIECE)
    assert held <= most < 220 * 1024 * 1024
    for connection in made:
        sessions.disconnect(connection)
    assert not made[0].session.waiting.is_much
    assert not Room(waiting=made[0].session.waiting).is_full


async def test_who_waits_goes_on_when_another_connection_ends() -> None:
    sessions, (much, little) = connections(2)
    much.unread.hold(MOST_OF_SESSION_BYTES)
    little.up.hold(LEAST_BYTES)
    assert not little.up.is_full, "each has a little, whatever the others keep"
    little.up.hold(1)
    waits = asyncio.create_task(little.up.wait())
    await asyncio.sleep(0)
    assert not waits.done()
    sessions.disconnect(much)
    await waits


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, MOST_OF_SESSION_BYTES)), max_size=30))
def test_what_is_left_counts_no_more(steps: list[tuple[int, int]]) -> None:
    waiting = HeldBySession()
    rooms = [Room(waiting=waiting) for _ in range(4)]
    for at, count in steps:
        rooms[at].hold(count)
    for room in rooms:
        room.leave()
        room.hold(-1)  # what its layers still say of it
        room.leave()
    other = Room(waiting=waiting)
    other.hold(MOST_OF_SESSION_BYTES)
    assert not waiting.is_much
    other.hold(1)
    assert waiting.is_much


async def test_of_many_connections_each_has_smaller_windows_and_buffers() -> None:
    _, made = connections(MOST_CONNECTIONS_PER_SESSION)
    session = made[0].session
    later = MOST_CONNECTIONS_PER_SESSION - MANY_CONNECTIONS
    for most in (MOST_WAITING_OF_ALL_BYTES, 2 * MOST_WAITING_BYTES):
        each = session.each_may_hold(most)
        assert MANY_CONNECTIONS * most + later * each < 100 * 1024 * 1024
    session.connections.clear()
    assert session.each_may_hold(MOST_WAITING_BYTES) == MOST_WAITING_BYTES
