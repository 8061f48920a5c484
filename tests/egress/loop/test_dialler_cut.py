"""A connection that is cut while its origin is dialled is dialled no further; cut in the very
turn of the loop in which that is reached, its hello, which is here already, doesn't go out."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from supervisor.core.network.egress_wire import (
    Answer,
    CloseConnection,
    CloseSession,
    Question,
    Settled,
    ToEgress,
)
from tests.egress.egress_harness import allow, running_egress, serving
from tests.egress.hellos import client_hello
from tests.fakes.waiting import PATIENCE_S

HOST = "origin.test"

pytestmark = pytest.mark.asyncio(loop_scope="module")

CUT_ONCE_DIALLED = """
from supervisor.egress.loop import relay as ends
from supervisor.egress.loop.dialler import PinnedLoop

clients, dials = [], []
made, dial = ends.HeldEnd.connection_made, PinnedLoop.dial

def noted(self, transport):
    clients.append(self)
    made(self, transport)

async def dialled(self, *where):
    sock = await dial(self, *where)
    dials.append(where)
    if len(dials) > 1:
        clients[-1].cut()
    return sock

ends.HeldEnd.connection_made, PinnedLoop.dial = noted, dialled
"""


def unread(question: Question) -> Answer:
    return msgspec.structs.replace(allow(question), look_inside=False)


async def test_nothing_goes_out(tmp_path: Path, upstream_ca: Path) -> None:
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.put_nowait(await reader.read(65536))
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    hello = client_hello(HOST)
    async with (
        server,
        running_egress(tmp_path, upstream_ca, preface=CUT_ONCE_DIALLED) as supervisor,
        serving(supervisor, "s") as proxy,
    ):
        supervisor.decide = unread
        # The first has the session's allowance granted, for which the second would otherwise wait
        # some turns of the loop.
        for sent in (hello, b""):
            _, writer = await proxy.open()
            writer.write(
                f"CONNECT {HOST}:{port} HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n".encode() + hello
            )
            async with asyncio.timeout(PATIENCE_S):
                assert await heard.get() == sent
            writer.close()


@contextlib.contextmanager
def deaf(address: str, port: int = 0) -> Iterator[int]:
    """A port that answers nobody, since more wait there than it takes."""
    with contextlib.ExitStack() as open_sockets:
        listening = open_sockets.enter_context(socket.socket())
        listening.bind((address, port))
        listening.listen(0)
        for _ in range(3):
            waiting = open_sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(listening.getsockname())
        yield listening.getsockname()[1]


@pytest.mark.parametrize("how", ["connection", "session", "client"])
async def test_it_is_dialled_no_further(tmp_path: Path, upstream_ca: Path, how: str) -> None:
    """At none of the addresses that are left, and not until the one that doesn't answer was
    waited for."""
    reached = asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        writer.close()

    names = {HOST: ("127.0.0.1", "127.0.0.2", "127.0.0.3")}
    with deaf("127.0.0.1") as port, deaf("127.0.0.2", port):
        async with (
            await asyncio.start_server(listen, "127.0.0.3", port),
            running_egress(tmp_path, upstream_ca, names=names) as supervisor,
            serving(supervisor, "s") as proxy,
        ):
            supervisor.decide = unread
            _, writer = await proxy.open()
            writer.write(
                f"CONNECT {HOST}:{port} HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n".encode()
                + client_hello(HOST)
            )
            question = await supervisor.until(Question, 2)
            await asyncio.sleep(0.2)  # so that it waits for the first address
            cuts: dict[str, ToEgress] = {
                "connection": CloseConnection(
                    session_id="s", connection_id=question.connection_id, why="no longer"
                ),
                "session": CloseSession(session_id="s"),
            }
            if how == "client":
                writer.transport.abort()
            else:
                supervisor.send(cuts[how])
            async with asyncio.timeout(10):  # an address that doesn't answer is waited for longer
                settled = await supervisor.until(Settled)
            assert settled.outcome == "failed"
            assert settled.detail["error"] == (
                "no longer" if how == "connection" else "the client went away"
            )
            assert not reached.is_set()
            writer.close()
