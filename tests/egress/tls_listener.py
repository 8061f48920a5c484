"""An origin for what passes unread: it sees the bytes of TLS, and answers by hand."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest_asyncio

from tests.egress.hellos import client_hello
from tests.fakes.waiting import PATIENCE_S

HOST = "origin.test"
HELLO = client_hello(HOST)


class Listener:
    """An origin without TLS: it notes each byte at once, and says what the test wants it to."""

    def __init__(self) -> None:
        self.port = 0
        self.received = bytearray()
        self.changed = asyncio.Condition()
        self.open = self.connections = 0
        self.says: Callable[[bytes], bytes] = lambda received: b""
        self.greeting = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.connections += 1
        self.writer = writer
        await self._tell()
        writer.write(self.greeting)
        try:
            while data := await reader.read(65536):
                self.received += data
                await self._tell()
                writer.write(self.says(data))
        except ConnectionError:
            pass
        finally:
            self.open -= 1
            writer.close()
            await self._tell()

    async def untouched(self) -> bool:
        """Whether nobody has connected. One more connection, which is taken after all that came
        before it, is waited for."""
        before = self.connections
        _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        await self.until(lambda: self.connections > before)
        writer.close()
        await self.until(lambda: not self.open)
        self.connections -= 1
        return self.connections == 0 and not self.received

    async def until(self, wanted: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S), self.changed:
            await self.changed.wait_for(wanted)

    async def _tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()


@pytest_asyncio.fixture(loop_scope="module")
async def origin() -> AsyncIterator[Listener]:
    listener = Listener()
    server = await asyncio.start_server(listener.serve, "127.0.0.1", 0)
    listener.port = server.sockets[0].getsockname()[1]
    yield listener
    server.close()


async def rest(reader: asyncio.StreamReader) -> bytes:
    """What still comes until the end."""
    found = b""
    async with asyncio.timeout(PATIENCE_S):
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                found += data
    return found
