"""An agent's terminal over a real WebSocket: who may take it, what goes in and comes out, and
what its loss means."""

import asyncio
import os
import pty
import struct
import termios
from collections.abc import Iterator
from fcntl import ioctl
from typing import Any, cast

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from supervisor.sandbox.base import Running
from supervisor.server.operator.terminals import CLOSE_REFUSED, CLOSE_TAKEN, CLOSE_UNKNOWN, GONE
from tests.fakes.parts import FakeParts
from tests.server.conftest import PATIENCE_S, OnSocket
from tests.server.operator.test_live import cookie_of


class Inside:
    """The terminal of a sandbox, without one: `agent` is the descriptor that its program would
    have."""

    def __init__(self) -> None:
        self.master_fd, self.agent = pty.openpty()
        os.set_blocking(self.master_fd, False)
        os.set_blocking(self.agent, False)
        self.sizes: list[tuple[int, int]] = []

    def resize(self, rows: int, columns: int) -> None:
        self.sizes.append((rows, columns))
        ioctl(self.master_fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def raw(self) -> None:
        import tty

        tty.setraw(self.agent)


@pytest.fixture
def inside(running: FakeParts) -> Iterator[Inside]:
    made = Inside()
    running.sessions.sandboxes["one"] = cast("Running", made)
    yield made
    os.close(made.master_fd)
    os.close(made.agent)


def taken(door: OnSocket, session: str = "one", **headers: str) -> Any:
    given = headers or {"Authorization": f"Bearer {door.auth.cli_token}"}
    url = f"{door.url.replace('http', 'ws')}/ws/sessions/{session}/terminal"
    return connect(url, additional_headers=given, compression=None, proxy=None, max_size=None)


async def closed_with(socket: Any) -> int:
    """The code that the connection is closed with, after all that still comes."""
    try:
        while True:
            await asyncio.wait_for(socket.recv(), PATIENCE_S)
    except ConnectionClosed as closed:
        return 0 if closed.rcvd is None else int(closed.rcvd.code)


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({"X-Nothing": "x"}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Bearer token-of-one"}, 401),  # the agent's own
        ({"Authorization": "Bearer wrong", "Origin": "http://evil.example.org"}, 403),
    ],
)
async def test_who_may_not_take_a_terminal(
    operator_door: OnSocket, headers: dict[str, str], wanted: int
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with taken(operator_door, **headers):
            pass
    assert refused.value.response.status_code == wanted


async def test_a_page_types_into_no_terminal(
    operator_door: OnSocket, running: FakeParts, inside: Inside
) -> None:
    headers = {"Cookie": cookie_of(operator_door.auth), "Origin": operator_door.url}
    async with taken(operator_door, **headers) as socket:
        assert await closed_with(socket) == CLOSE_REFUSED
    assert running.sessions.stopped == []


async def test_a_terminal_is_one_clis_and_of_a_session_that_there_is(
    operator_door: OnSocket, inside: Inside
) -> None:
    async with taken(operator_door), taken(operator_door) as second:
        assert await closed_with(second) == CLOSE_TAKEN
    async with taken(operator_door, "nothing") as socket:
        assert await closed_with(socket) == CLOSE_UNKNOWN


async def test_keys_and_sizes_go_in_and_output_comes_out_as_it_is(
    operator_door: OnSocket, running: FakeParts, inside: Inside
) -> None:
    inside.raw()
    running.sessions.say("one", b"before \x1b[2J\xff")
    async with taken(operator_door) as socket:
        assert await asyncio.wait_for(socket.recv(), PATIENCE_S) == b"before \x1b[2J\xff"
        await socket.send(b"s" + struct.pack("!HH", 33, 111))
        keys = (
            bytes(range(256)) * 64
        )  # more than a terminal holds: it waits until the program reads
        for at in range(0, len(keys), 2048):
            await socket.send(b"k" + keys[at : at + 2048])
        got = b""
        async with asyncio.timeout(PATIENCE_S):
            while len(got) < len(keys):
                try:
                    got += os.read(inside.agent, 4096)
                except BlockingIOError:
                    await asyncio.sleep(0.005)
        assert got == keys
        assert inside.sizes == [(33, 111)]
        await socket.send(b"s\0\0\0")  # of another length
        await socket.send(b"?nonsense")
        running.sessions.say("one", b"after")
        assert await asyncio.wait_for(socket.recv(), PATIENCE_S) == b"after"
        running.sessions.change("one", agent_exited_at=1.0, exit_code=0)
        assert await closed_with(socket) == 1000
    assert running.sessions.stopped == []


async def test_the_loss_of_the_terminal_ends_the_session(
    operator_door: OnSocket, running: FakeParts, inside: Inside
) -> None:
    async with taken(operator_door) as socket:
        running.sessions.say("one", b"x")
        await asyncio.wait_for(socket.recv(), PATIENCE_S)
        socket.transport.abort()
    async with asyncio.timeout(PATIENCE_S):
        while not running.sessions.stopped:
            await asyncio.sleep(0.01)
    assert running.sessions.stopped == [("one", GONE, "operator (cli)")]
