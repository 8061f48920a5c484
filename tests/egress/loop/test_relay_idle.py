"""When a tunnel is over because nothing moves: the clock is moved by hand, tick by tick."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
import pytest_asyncio

from supervisor.egress.loop import relay
from supervisor.egress.loop.relay import MOST_QUIET_TICKS, MOST_WAITING_BYTES, HeldEnd, Tunnel
from tests.fakes.waiting import PATIENCE_S


class Covered:
    """An allowance without a limit."""

    def use(self, count: int) -> bool:
        return True

    def draw(self, count: int) -> asyncio.Future[str]:
        raise AssertionError("nothing is drawn")


class Joined(NamedTuple):
    """A tunnel, and the far sides of both of its ends."""

    tunnel: Tunnel
    running: asyncio.Task[str]
    client: socket.socket
    origin: socket.socket

    def tick(self, times: int) -> None:
        for _ in range(times):
            if self.tunnel._timer is not None:
                self.tunnel._timer.cancel()
            self.tunnel._tick()


async def held() -> tuple[HeldEnd, socket.socket]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    _, made = await asyncio.get_running_loop().create_connection(HeldEnd, sock=ours)
    return made, theirs


@pytest_asyncio.fixture
async def joined() -> AsyncIterator[Joined]:
    (client, client_side), (origin, origin_side) = await held(), await held()
    tunnel = Tunnel(client, origin, Covered())
    running = asyncio.create_task(tunnel.run())
    await asyncio.sleep(0)  # it has begun, and ticked once
    yield Joined(tunnel, running, client_side, origin_side)
    tunnel.cut()
    await running
    client_side.close()
    origin_side.close()


async def received(sock: socket.socket) -> bytes:
    async with asyncio.timeout(PATIENCE_S):
        return await asyncio.get_running_loop().sock_recv(sock, 65536)


async def test_a_tunnel_in_which_nothing_moves_is_cut(joined: Joined) -> None:
    joined.tick(MOST_QUIET_TICKS - 1)
    assert not joined.running.done()
    joined.tick(1)
    assert await joined.running == "idle"
    for side in (joined.client, joined.origin):
        with contextlib.suppress(ConnectionError):
            assert await received(side) == b""


@pytest.mark.parametrize("up", [True, False], ids=["up", "down"])
async def test_a_byte_now_and_then_keeps_it(joined: Joined, up: bool) -> None:
    here, there = (joined.client, joined.origin) if up else (joined.origin, joined.client)
    for _ in range(3):
        joined.tick(MOST_QUIET_TICKS - 1)
        here.send(b"x")
        assert await received(there) == b"x"
        joined.tick(1)  # this one found that something moved
        assert not joined.running.done()
    joined.tick(MOST_QUIET_TICKS)
    assert not joined.running.done()
    joined.tick(1)
    assert await joined.running == "idle"


async def test_who_never_reads_is_cut_too(joined: Joined) -> None:
    sent = 0
    while sent <= 8 * MOST_WAITING_BYTES:
        try:
            sent += joined.origin.send(bytes(65536))
        except BlockingIOError:
            before = joined.tunnel.moved().down_bytes
            for _ in range(50):
                await asyncio.sleep(0)
            if joined.tunnel.moved().down_bytes == before:
                break
    assert joined.tunnel.moved().down_bytes > 0
    joined.tick(1)  # notes what moved
    joined.tick(MOST_QUIET_TICKS + 1)
    assert await joined.running == "idle"


async def test_the_timer_runs_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "TICK_S", 0.0)
    (client, client_side), (origin, origin_side) = await held(), await held()
    async with asyncio.timeout(PATIENCE_S):
        assert await Tunnel(client, origin, Covered()).run() == "idle"
    client_side.close()
    origin_side.close()
