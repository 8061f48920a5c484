"""The door for webhooks under strangers who send without end: what it holds of them is bounded,
and a forge's webhook comes through."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

from supervisor.reviews.core.deliveries import MOST_BYTES
from supervisor.reviews.webhooks import (
    MOST_BODIES,
    MOST_HELD_BYTES,
    WebhookAnswer,
    WebhookApp,
    WebhookDoor,
)
from supervisor.server.common.listening import listen
from supervisor.server.common.serve import Serving

SIGNATURE = f"sha256={'0' * 64}"


class Door:
    """The door, served; `taken` has the bodies that reached the intake."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.taken: list[bytes] = []

    async def begin(
        self, length: int | str, signature: str = SIGNATURE
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Begin a webhook with a body of this length."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = (
            f"POST /github HTTP/1.1\r\nHost: x\r\nX-Hub-Signature-256: {signature}\r\n"
            f"Content-Length: {length}\r\n\r\n"
        )
        writer.write(head.encode("latin-1"))
        await writer.drain()
        return reader, writer

    async def send(self, body: bytes, **more: str) -> int:
        """Return the answer's status."""
        reader, writer = await self.begin(len(body), **more)
        writer.write(body)
        status = await answered(reader)
        writer.close()
        return status


async def answered(reader: asyncio.StreamReader) -> int:
    return int((await reader.readline()).split()[1])


@contextlib.asynccontextmanager
async def door() -> AsyncIterator[Door]:
    taken: list[bytes] = []

    def take(headers: dict[str, str], body: bytes) -> WebhookAnswer:
        taken.append(body)
        return WebhookAnswer(202, "stored")

    serving = Serving(
        listen(0), WebhookApp({"github": WebhookDoor("x-hub-signature-256", take)}), ws="none"
    )
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(serving.run())
        await serving.started.wait()
        found = Door(serving.port)
        found.taken = taken
        try:
            yield found
        finally:
            await serving.stop()


async def test_what_arrives_for_longest_gives_way_to_what_comes() -> None:
    async with door() as at:
        begun = [await at.begin(1000) for _ in range(MOST_BODIES + 3)]
        assert [await answered(reader) for reader, _ in begun[:3]] == [408, 408, 408]
        assert await at.send(b"{}") == 202
        assert await answered(begun[3][0]) == 408
        for number, (_, writer) in enumerate(begun[4:]):
            writer.write(json.dumps({"number": number}).ljust(1000).encode())
        assert {await answered(reader) for reader, _ in begun[4:]} == {202}
        assert len(at.taken) == MOST_BODIES
        for _, writer in begun:
            writer.close()


async def test_what_strangers_send_without_an_end_takes_so_much_memory_and_no_more() -> None:
    most = MOST_HELD_BYTES // MOST_BYTES
    async with door() as at:
        begun = [await at.begin(MOST_BYTES) for _ in range(most + 2)]
        for _, writer in begun:
            writer.write(b"x" * (MOST_BYTES - 1))
        # So much has been given up that what is left fits.
        assert [await answered(reader) for reader, _ in begun[:2]] == [408, 408]
        assert await at.send(b"{}") == 202
        for _, writer in begun:
            writer.close()


async def test_without_a_signature_nothing_is_read() -> None:
    async with door() as at:
        for wrong in ("", "sha256=", "sha1=" + "0" * 40, SIGNATURE + "0"):
            reader, writer = await at.begin(MOST_BYTES, wrong)
            assert await answered(reader) == 401
            writer.close()
        assert at.taken == []


async def test_a_length_that_is_none_is_refused() -> None:
    async with door() as at:
        for wrong in ("²", "-1", str(MOST_BYTES + 1), "9" * 4400):
            reader, writer = await at.begin(wrong)
            assert await answered(reader) in (400, 413)
            writer.close()
        assert await at.send(b"{}") == 202
