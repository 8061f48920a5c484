"""What never becomes a request, a response or a body is kept as far as a bound only: more is
read no further, or is the end. Against a real egress."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from supervisor.core.network.egress_wire import Question
from supervisor.egress.loop.relay import MOST_HELD_BYTES, HeldEnd
from supervisor.egress.mitm import inspector
from supervisor.egress.mitm.http1 import MOST_ANSWER_FIELDS, MOST_ANSWER_HEAD_BYTES
from supervisor.egress.protocols import checks
from supervisor.egress.protocols.checks import MOST_HEAD_BYTES, MOST_HEADERS
from tests.egress.admission.test_egress_sessions_floods import (
    FEW_BYTES,
    MUCH_BYTES,
    memory_bytes,
    pushed,
    request_to,
)
from tests.egress.egress_harness import (
    FakeSupervisor,
    Origin,
    Proxy,
    allow,
    answer_of,
    body_of,
    status_of,
)
from tests.fakes.waiting import PATIENCE_S

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHUNKED = "Transfer-Encoding: chunked\r\n"
# What begins, and what it goes on with for ever.
NEVER_ENDS = {
    "a line between chunks": (b"5;", b"x" * 65536),
    "trailers": (b"0\r\n", b"X-More: and more\r\n" * 4096),
}


async def until_refused(writer: asyncio.StreamWriter, piece: bytes) -> int:
    """How much was written until the other side wanted no more of it."""
    written = 0
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(PATIENCE_S):
            while written < MUCH_BYTES:
                writer.write(piece)
                written += len(piece)
                await writer.drain()
    return written


@pytest.mark.parametrize(("begin", "piece"), NEVER_ENDS.values(), ids=NEVER_ENDS)
async def test_what_a_client_never_ends_is_cut_off(
    proxy: Proxy, http: Origin, begin: bytes, piece: bytes
) -> None:
    reader, writer = await proxy.open()
    writer.write(request_to(http, CHUNKED) + begin)
    async with asyncio.TaskGroup() as tasks:
        going_on = tasks.create_task(until_refused(writer, piece))
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionError):
                assert status_of(await reader.read()) != 200
        going_on.cancel()
    writer.close()


class Endless:
    """An origin that answers with `begin`, and goes on with `piece` until nobody wants more."""

    def __init__(self, begin: bytes, piece: bytes) -> None:
        self._begin, self._piece = begin, piece
        self.written: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\n" + self._begin)
        self.written.set_result(await until_refused(writer, self._piece))
        writer.close()


@contextlib.asynccontextmanager
async def answered_by(begin: bytes, piece: bytes) -> AsyncIterator[tuple[Endless, Origin]]:
    endless = Endless(begin, piece)
    server = await asyncio.start_server(endless.serve, "127.0.0.1", 0)
    try:
        yield endless, Origin(server.sockets[0].getsockname()[1])
    finally:
        server.close()


HEADS = {
    "a head of many lines": (b"", b"X-More: and more\r\n" * 4096),
    "one of a long line": (b"X: ", b"x" * 65536),
}


@pytest.mark.parametrize(("begin", "piece"), HEADS.values(), ids=HEADS)
async def test_a_head_that_an_origin_never_ends_is_no_answer(
    proxy: Proxy, begin: bytes, piece: bytes
) -> None:
    async with answered_by(begin, piece) as (endless, at):
        answer = await proxy.send(request_to(at))
        assert status_of(answer) == 502
        assert "the head of the response is longer than 320 KiB" in body_of(answer)["why"]
        assert await endless.written < MUCH_BYTES


async def test_a_head_of_more_fields_than_anybody_sends_is_no_answer(
    proxy: Proxy, http: Origin
) -> None:
    """Each is looked for among others where it goes on over HTTP/2: tens of thousands took half
    a second of everybody's time."""
    for fields in (MOST_ANSWER_FIELDS - 1, MOST_ANSWER_FIELDS):
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + b"a: b\r\n" * fields
        http.respond = lambda _, head=head: head + b"\r\nok"  # type: ignore[misc]
        answer = await proxy.send(request_to(http))
        assert status_of(answer) == (200 if fields < MOST_ANSWER_FIELDS else 502)
    assert "the response has more than 2,000 header fields" in body_of(answer)["why"]


@pytest.mark.parametrize(("begin", "piece"), NEVER_ENDS.values(), ids=NEVER_ENDS)
async def test_an_origin_does_not_go_on_for_ever_in_a_body(
    proxy: Proxy, begin: bytes, piece: bytes
) -> None:
    async with answered_by(CHUNKED.encode() + b"\r\n" + begin, piece) as (endless, at):
        _, writer = await proxy.open()
        writer.write(request_to(at))
        assert await endless.written < MUCH_BYTES
        writer.close()


async def test_long_ones_that_end_pass(proxy: Proxy, http: Origin) -> None:
    long = b"X-Long: " + b"x" * (MOST_HEAD_BYTES - 1024) + b"\r\n"
    assert len(long) * 4 < MOST_ANSWER_HEAD_BYTES
    chunks = b"5;" + b"x" * (MOST_HEAD_BYTES - 1024) + b"\r\nhello\r\n0\r\n" + long + b"\r\n"
    http.respond = lambda head: (
        b"HTTP/1.1 200 OK\r\n" + long * 4 + CHUNKED.encode() + b"\r\n" + chunks
    )
    reader, writer = await proxy.open()
    writer.write(request_to(http, CHUNKED) + chunks)
    answer = b""
    async with asyncio.timeout(PATIENCE_S):
        while not answer.endswith(b"hello\r\n0\r\n\r\n"):
            answer += await reader.read(65536)
    assert answer.count(b"X-Long") == 4
    assert b"hello" in http.received
    writer.close()


def held(until: "asyncio.Future[None]", session_id: str) -> Callable[[Question], object]:
    async def decide(question: Question) -> object:
        if question.session_id == session_id:
            await until
        return allow(question)

    return decide


async def test_what_comes_behind_a_request_that_waits_fills_no_memory(
    egress: FakeSupervisor, proxy: Proxy, http: Origin
) -> None:
    assert status_of(await proxy.send(request_to(http))) == 200  # mitmproxy is started
    answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    egress.decide = held(answered, proxy.session_id)  # type: ignore[assignment]
    before = memory_bytes(egress)
    reader, writer = await proxy.open()
    writer.write(request_to(http) + request_to(http, f"Content-Length: {MUCH_BYTES}\r\n"))
    written = await pushed(writer)
    assert written < FEW_BYTES
    assert memory_bytes(egress) - before < FEW_BYTES
    # Once the first is answered all that came behind it is read, in order.
    answered.set_result(None)
    assert status_of(await answer_of(reader)) == 200
    writer.write(bytes(MUCH_BYTES - written))
    assert status_of(await answer_of(reader)) == 200
    assert len(http.received) > MUCH_BYTES
    writer.close()


class Reading(asyncio.Transport):
    """Of a client that says more as long as it is read."""

    is_read = True
    is_ended = False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Whoever it is."""

    def is_closing(self) -> bool:
        return self.is_ended

    def write_eof(self) -> None:
        self.is_ended = True

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


@pytest.mark.parametrize("count", [0, 1024, MOST_HELD_BYTES])
async def test_who_said_much_before_it_is_looked_into_is_read_no_further(count: int) -> None:
    client, transport = HeldEnd(), Reading()
    client.connection_made(transport)
    client.data += bytes(count)
    reader, writer = inspector._streams(client)
    assert transport.is_read == (count < MOST_HELD_BYTES)
    assert len(await reader.read(count)) == count
    assert transport.is_read
    writer.close()


CANT_BE_READ = [
    "Content-Length: x",
    "Transfer-Encoding: xchunked",
    "Content-Length: 1\r\nTransfer-Encoding: chunked",
]


@pytest.mark.parametrize("header", CANT_BE_READ)
async def test_what_cant_be_read_is_answered_once(proxy: Proxy, http: Origin, header: str) -> None:
    """A second answer behind the end was a reset, which may come before the first, and a line of
    the log for each."""
    reader, writer = await proxy.open()
    writer.write(request_to(http))
    assert status_of(await answer_of(reader)) == 200
    writer.write(request_to(http, f"{header}\r\n"))
    async with asyncio.timeout(PATIENCE_S):
        answer = await reader.read()
    writer.close()
    assert status_of(answer) == 400
    assert answer.count(b"HTTP/1.1 ") == 1


async def test_a_request_of_more_headers_than_anybody_sends_says_so(
    proxy: Proxy, http: Origin
) -> None:
    answer = await proxy.send(request_to(http, "a: b\r\n" * MOST_HEADERS))
    assert "the request has more than 200 headers" in body_of(answer)["why"]
    assert http.received == b""
    long = checks.Head(
        "GET", "https", b"/", "origin.test", ((b"a", b"x" * MOST_HEAD_BYTES),), "HTTP/2.0"
    )
    assert checks.headers(long) == "the headers of the request are longer than 64 KiB together"
