"""Ways round a budget of bytes: what an agent sends while nobody has answered yet, and after the
origin has."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest_asyncio

from tests.egress.egress_harness import answer_of, body_of, status_of
from tests.fakes.waiting import PATIENCE_S
from tests.network.conftest import Setting
from tests.network.test_network_traffic_budget import KB, approve, let, proxy, until, used

PIECE = b"2710\r\n" + b"x" * 10_000 + b"\r\n"


@dataclass
class Hasty:
    """An origin that answers as soon as it has a head, and goes on reading."""

    port: int = 0
    taken_bytes: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            self.taken_bytes += len(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            while data := await reader.read(65536):
                self.taken_bytes += len(data)
        writer.close()


@pytest_asyncio.fixture
async def hasty() -> AsyncIterator[Hasty]:
    found = Hasty()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()


async def denied_at_the_limit(place: Setting) -> None:
    """As GATEHOUSE_AT_LIMIT=deny."""
    place.broker._ask_at_limit = False
    place.broker.end_connections()
    await place.broker.wait_healthy(after_starts=1)


def head(port: int) -> bytes:
    target = f"origin.test:{port}"
    return f"POST http://{target}/up HTTP/1.1\r\nHost: {target}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()  # noqa: E501


async def test_what_is_sent_while_a_person_thinks_is_covered_or_stays_here(
    place: Setting, hasty: Hasty
) -> None:
    place.office.policy(f"allow:\n  - network(127.0.0.1:{hasty.port})\n")
    mine = place.office.open(place.session_id, budget="100kb")
    await denied_at_the_limit(place)
    reader, writer = await proxy(place).open()
    writer.write(head(hasty.port))
    await place.office.asked()
    writer.write(PIECE * 100)
    await until(lambda: place.office.audited("budget_refused"))
    await writer.drain()
    # What comes last is covered again: the portion isn't used up.
    for _ in range(20):
        writer.write(b"1\r\nx\r\n")
        await asyncio.sleep(0)
    writer.write(b"0\r\n\r\n")
    await approve(place)
    answer = await answer_of(reader)
    writer.close()
    assert hasty.taken_bytes <= 100 * KB
    assert status_of(answer) == 403
    assert "the budget of this session" in body_of(answer)["why"]
    assert used(place, mine).bytes_out <= 100 * KB
    await until(
        lambda: any('"by":"egress"' in line for line in place.office.audited("verdict_given"))
    )


async def test_an_answer_that_comes_early_ends_no_counting(place: Setting, hasty: Hasty) -> None:
    mine = let(place, hasty.port, budget="100kb")
    await denied_at_the_limit(place)
    reader, writer = await proxy(place).open()
    writer.write(head(hasty.port) + PIECE)
    assert status_of(await reader.readuntil(b"\r\n\r\n")) == 200
    with contextlib.suppress(ConnectionError):
        for _ in range(100):
            writer.write(PIECE)
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        async with asyncio.timeout(PATIENCE_S):
            await reader.read()  # it is cut off
    writer.transport.abort()
    await until(lambda: place.office.audited("budget_refused"))
    assert hasty.taken_bytes <= 100 * KB
    assert used(place, mine).bytes_out <= 100 * KB
