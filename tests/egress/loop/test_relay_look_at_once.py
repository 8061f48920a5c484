"""What came at an end already is taken in without a turn of the loop; its end, and what breaks
it, are as they would be without that."""

import asyncio
import select
import socket
from collections.abc import Awaitable, Callable

import pytest

from supervisor.egress.loop.relay import MOST_HELD_BYTES, GoneError, HeldEnd, in_s
from tests.egress.admission.test_resolver import in_pinned_loop
from tests.fakes.resets import reset_on_close
from tests.fakes.waiting import PATIENCE_S


def run(test: Callable[[HeldEnd, socket.socket], Awaitable[None]]) -> None:
    """In the loop of egress, with an end and the socket at its other side."""

    async def both() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            peer = socket.create_connection(server.getsockname())
            accepted, _ = server.accept()
        with peer:
            _, held = await asyncio.get_running_loop().connect_accepted_socket(HeldEnd, accepted)
            try:
                await test(held, peer)
            finally:
                held.cut()

    in_pinned_loop(both)


def until_it_came(held: HeldEnd) -> None:
    """Without a turn of the loop."""
    assert select.select([held.transport.get_extra_info("socket").fileno()], [], [], PATIENCE_S)[0]


def test_what_came_is_there_once_and_in_order() -> None:
    async def test(held: HeldEnd, peer: socket.socket) -> None:
        for part in (b"one", b"two"):
            peer.sendall(part)
            until_it_came(held)
            held.look()
        assert held.take() == b"onetwo"
        peer.sendall(b"three")
        await held.more(in_s(PATIENCE_S))
        assert held.take() == b"three"

    run(test)


def test_nothing_is_waited_for() -> None:
    async def test(held: HeldEnd, peer: socket.socket) -> None:
        held.look()
        assert (held.take(), held.is_gone) == (b"", False)
        peer.sendall(b"later")
        await held.more(in_s(PATIENCE_S))
        assert held.take() == b"later"

    run(test)


def test_the_end_is_the_loops_to_tell() -> None:
    async def test(held: HeldEnd, peer: socket.socket) -> None:
        peer.sendall(b"last")
        peer.shutdown(socket.SHUT_WR)
        until_it_came(held)
        held.look()
        held.look()
        assert (held.take(), held.is_gone) == (b"last", False)
        with pytest.raises(GoneError):
            await held.more(in_s(PATIENCE_S))
        assert not held.is_lost  # it may still read why

    run(test)


def test_a_reset_is_the_end() -> None:
    async def test(held: HeldEnd, peer: socket.socket) -> None:
        reset_on_close(peer)
        peer.close()
        until_it_came(held)
        held.look()
        with pytest.raises(GoneError):
            await held.more(in_s(PATIENCE_S))
        assert held.is_lost

    run(test)


def test_who_may_not_go_on_isnt_read() -> None:
    async def test(held: HeldEnd, peer: socket.socket) -> None:
        held.transport.pause_reading()
        peer.sendall(b"more")
        until_it_came(held)
        held.look()
        assert held.data == b""
        held.transport.resume_reading()
        held.look()
        assert held.take() == b"more"

    run(test)


def test_what_is_too_much_is_too_much_here_too() -> None:
    async def test(held: HeldEnd, peer: socket.socket) -> None:
        peer.setblocking(False)
        while not held.transport.is_closing():
            peer.send(bytes(MOST_HELD_BYTES))
            until_it_came(held)
            held.look()
        with pytest.raises(GoneError):
            await held.more(in_s(PATIENCE_S))

    run(test)
