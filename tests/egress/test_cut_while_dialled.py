"""A connection that is cut in the very turn of the loop in which its origin was reached: its hello, which is here already, doesn't go out."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from supervisor.core.egress_wire import Answer, Question
from tests.egress.egress_harness import allow, running_egress, serving
from tests.egress.hellos import client_hello
from tests.fakes.waiting import PATIENCE_S

HOST = "origin.test"

pytestmark = pytest.mark.asyncio(loop_scope="module")

CUT_ONCE_DIALLED = """
from supervisor.egress import ends
from supervisor.egress.dialler import PinnedLoop

clients, dials = [], []
made, dial = ends.Held.connection_made, PinnedLoop.dial

def noted(self, transport):
    clients.append(self)
    made(self, transport)

async def dialled(self, host, port):
    sock = await dial(self, host, port)
    dials.append(host)
    if len(dials) > 1:
        clients[-1].cut()
    return sock

ends.Held.connection_made, PinnedLoop.dial = noted, dialled
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
        # The first has the session's allowance granted, for which the second would otherwise wait some turns of the loop.
        for sent in (hello, b""):
            _, writer = await proxy.open()
            writer.write(f"CONNECT {HOST}:{port} HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n".encode() + hello)
            async with asyncio.timeout(PATIENCE_S):
                assert await heard.get() == sent
            writer.close()
