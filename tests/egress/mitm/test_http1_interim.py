"""What an origin says before its answer (RFC 9110 15.2) is neither the answer nor kept: each
request gets its own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.egress.egress_harness import Origin, Proxy, answer_of, status_of
from tests.egress.mitm.test_leaks import answering

pytestmark = pytest.mark.asyncio(loop_scope="module")

HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n"
INTERIM = {
    "hints": HINTS,
    "to go on": b"HTTP/1.1 100 Continue\r\n\r\n",
    "no reason": b"HTTP/1.1 102\r\n\r\n",
    "many": (HINTS + b"HTTP/1.0 100 x\r\n\r\n") * 2000,
    "with a length": b"HTTP/1.1 103 x\r\nContent-Length: 5\r\n\r\n",
}


def get(port: int, path: str) -> bytes:
    return (
        f"GET http://origin.test:{port}{path} HTTP/1.1\r\nHost: origin.test:{port}\r\n\r\n".encode()
    )


@pytest.mark.parametrize("interim", INTERIM.values(), ids=INTERIM)
async def test_each_request_gets_its_own_answer(proxy: Proxy, http: Origin, interim: bytes) -> None:
    http.respond = lambda head: interim + answering(head.split(b" ")[1])
    reader, writer = await proxy.open()
    for path in ("/one", "/two"):
        writer.write(get(http.port, path))
        answer = await answer_of(reader)
        assert (status_of(answer), answer.partition(b"\r\n\r\n")[2]) == (200, path.encode())
    writer.close()


@pytest_asyncio.fixture(loop_scope="module")
async def dribbling() -> AsyncIterator[int]:
    """Says it byte by byte."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                for byte in HINTS + answering(b"whole"):
                    writer.write(bytes([byte]))
                    await writer.drain()
                    await asyncio.sleep(0)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def test_wherever_it_is_cut(proxy: Proxy, dribbling: int) -> None:
    answer = await proxy.send(get(dribbling, "/"))
    assert (status_of(answer), answer[-5:]) == (200, b"whole")
