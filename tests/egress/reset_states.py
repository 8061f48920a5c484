"""The states that a connection can be in when it is reset: what its client and its origin have
said by then, as `test_resets` holds them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from supervisor.core.network.egress_wire import Answer, Question, Reserve
from tests.egress.counting_egress import until_held
from tests.egress.egress_harness import (
    PATIENCE_S,
    FakeSupervisor,
    Proxy,
    allow,
)
from tests.egress.hellos import client_hello, server_hello
from tests.fakes.resets import reset_on_close

HOST = "origin.test"
HELLO = client_hello(HOST)
MESSAGE = b'{"model": "m", "max_tokens": 10, "messages": []}'
UPGRADE = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key:"
    " MDEyMzQ1Njc4OWFiY2RlZg==\r\n"
)
# RFC 6455 5.2: the first part of a text, and of one that is masked.
FRAGMENT, MASKED_FRAGMENT = b"\x01\x05hello", b"\x01\x85\0\0\0\0hello"


@dataclass
class Peer:
    """One end of a connection: the test's."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def until(self, end: bytes) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.readuntil(end)

    def reset(self) -> None:
        """End it in anger."""
        reset_on_close(self.writer.get_extra_info("socket"))
        self.writer.transport.abort()


@dataclass
class Far:
    """An origin that does nothing but accept."""

    port: int = 0
    taken: asyncio.Queue[Peer] = field(default_factory=asyncio.Queue)
    connections: int = 0


@dataclass
class Place:
    """One session, its client, and the two origins: one of bytes, one of TLS."""

    supervisor: FakeSupervisor
    proxy: Proxy
    plain: Far
    tls: Far
    ca_file: Path
    client: Peer | None = None
    origin: Peer | None = None
    # What is held is asked about, and not answered.
    holds: Callable[[Question], bool] = lambda question: False
    looks_inside: bool = True
    # What its client says next, where nobody listens to the origin before that.
    rest: bytes = b""
    # The questions that were not answered, those that were allowed and want an outcome, and the
    # calls of models that were.
    open: list[int] = field(default_factory=list)
    allowed: set[int] = field(default_factory=set)
    given: set[int] = field(default_factory=set)

    def decide(self, question: Question) -> Answer | None:
        if self.holds(question):
            self.open.append(question.question_id)
            return None
        if question.after is None:
            self.allowed.add(question.question_id)
        return msgspec.structs.replace(allow(question), look_inside=self.looks_inside)

    async def dial(self, said: bytes) -> Peer:
        self.client = Peer(*await self.proxy.open())
        self.client.writer.write(said)
        return self.client

    async def asked(self, wanted: Callable[[Question], bool]) -> None:
        await self.supervisor.until_one(lambda one: isinstance(one, Question) and wanted(one))

    async def reached(self, far: Far) -> Peer:
        async with asyncio.timeout(PATIENCE_S):
            self.origin = await far.taken.get()
        return self.origin

    async def connect(self, far: Far, *, host: str = HOST) -> Peer:
        client = await self.dial(connecting(far, host))
        await client.until(b"\r\n\r\n")
        return client

    async def request(self, said: bytes) -> tuple[Peer, Peer]:
        """A request in the clear at its origin, its head read."""
        client = await self.dial(said)
        origin = await self.reached(self.plain)
        await origin.until(b"\r\n\r\n")
        return client, origin

    async def inside(self) -> Peer:
        self.client = Peer(*await self.proxy.tunnel(f"{HOST}:{self.tls.port}", trust=self.ca_file))
        return self.client


def connecting(far: Far, host: str = HOST) -> bytes:
    return f"CONNECT {host}:{far.port} HTTP/1.1\r\nHost: {host}:{far.port}\r\n\r\n".encode()


def asking(
    far: Far, *, host: str = HOST, method: str = "GET", path: str = "/", headers: str = ""
) -> bytes:
    target = f"{host}:{far.port}"
    return f"{method} http://{target}{path} HTTP/1.1\r\nHost: {target}\r\n{headers}\r\n".encode()


# -- states in which nothing was allowed yet, or nothing dialled ----------------------------------


async def half_a_connect(place: Place) -> None:
    await place.dial(b"CONNECT origin.te")


async def half_a_head(place: Place) -> None:
    await place.dial(b"GET http://origin.test/ HTTP/1.1\r\nHo")


async def a_connect_held(place: Place) -> None:
    place.holds = lambda question: True
    await place.dial(connecting(place.plain))
    await place.asked(lambda question: True)


async def a_connect_and_its_hello_held(place: Place) -> None:
    place.holds = lambda question: True
    await place.dial(connecting(place.plain) + HELLO)
    await place.asked(lambda question: True)


async def a_request_held(place: Place) -> None:
    place.holds = lambda question: True
    await place.dial(asking(place.plain))
    await place.asked(lambda question: True)


async def a_request_and_its_body_held(place: Place) -> None:
    place.holds = lambda question: True
    await place.dial(
        asking(place.plain, method="POST", headers="Content-Length: 300000\r\n") + bytes(250_000)
    )
    await place.asked(lambda question: True)


async def a_request_inside_held(place: Place) -> None:
    place.holds = lambda question: question.in_tunnel
    client = await place.inside()
    client.writer.write(b"GET / HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % (HOST.encode(), place.tls.port))
    await place.asked(lambda question: question.in_tunnel)


async def the_addresses_held(place: Place) -> None:
    place.holds = lambda question: question.after is not None
    await place.dial(asking(place.plain))
    await place.asked(lambda question: question.after is not None)


async def half_a_hello_to_be_looked_into(place: Place) -> None:
    client = await place.connect(place.tls)
    client.writer.write(HELLO[:40])


async def inside_and_nothing_said(place: Place) -> None:
    await place.inside()


async def half_a_head_inside(place: Place) -> None:
    client = await place.inside()
    client.writer.write(b"GET / HTTP/1.1\r\nHo")


async def half_a_models_body(place: Place) -> None:
    head = asking(
        place.plain, method="POST", path="/v1/messages", headers="Content-Length: 100000\r\n"
    )
    await place.dial(head + bytes(50_000))
    await until_held(place.supervisor, lambda facts: facts["body_bytes"] > 0)


async def a_models_call_not_reserved(place: Place) -> None:
    head = asking(
        place.plain,
        method="POST",
        path="/v1/messages",
        headers=f"Content-Length: {len(MESSAGE)}\r\n",
    )
    await place.dial(head + MESSAGE)
    await place.supervisor.until(Reserve)


NOTHING_DIALLED = [
    half_a_connect,
    half_a_head,
    a_connect_held,
    a_connect_and_its_hello_held,
    a_request_held,
    a_request_and_its_body_held,
    a_request_inside_held,
    the_addresses_held,
    half_a_hello_to_be_looked_into,
    inside_and_nothing_said,
    half_a_head_inside,
    half_a_models_body,
    a_models_call_not_reserved,
]

# -- states with both ends ------------------------------------------------------------------------


async def a_tunnel_and_no_hello(place: Place) -> None:
    place.looks_inside = False
    await place.connect(place.plain)
    await place.reached(place.plain)
    place.rest = HELLO


async def a_tunnel_and_half_a_hello(place: Place) -> None:
    await a_tunnel_and_no_hello(place)
    assert place.client is not None
    place.client.writer.write(HELLO[:40])
    place.rest = HELLO[40:]


async def a_tunnel_and_no_answer(place: Place) -> None:
    place.looks_inside = False
    await place.dial(connecting(place.plain) + HELLO)
    origin = await place.reached(place.plain)
    async with asyncio.timeout(PATIENCE_S):
        assert await origin.reader.readexactly(len(HELLO)) == HELLO


async def a_tunnel_joined(place: Place) -> None:
    await a_tunnel_and_no_answer(place)
    assert place.client is not None
    assert place.origin is not None
    place.origin.writer.write(server_hello())
    await place.client.until(server_hello())


async def a_tunnel_with_much_on_its_way(place: Place) -> None:
    await a_tunnel_joined(place)
    assert place.client is not None
    assert place.origin is not None
    for one in (place.client, place.origin):
        one.writer.transport.set_write_buffer_limits(high=64 * 1024 * 1024)
        one.writer.write(bytes(8 * 1024 * 1024))
    await place.origin.reader.readexactly(1000)


async def the_origins_own_hello(place: Place) -> None:
    # Inside of TLS with the client, and the origin of bytes, which answers none.
    place.client = Peer(
        *await place.proxy.tunnel(f"{HOST}:{place.plain.port}", trust=place.ca_file)
    )
    place.client.writer.write(
        b"GET / HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % (HOST.encode(), place.plain.port)
    )
    origin = await place.reached(place.plain)
    async with asyncio.timeout(PATIENCE_S):
        assert await origin.reader.readexactly(3) == b"\x16\x03\x01"


async def no_answer(place: Place) -> None:
    await place.request(asking(place.plain))


async def no_answer_inside(place: Place) -> None:
    client = await place.inside()
    client.writer.write(b"GET / HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % (HOST.encode(), place.tls.port))
    await (await place.reached(place.tls)).until(b"\r\n\r\n")


async def half_a_streamed_body(place: Place) -> None:
    head = asking(place.plain, method="POST", headers="Transfer-Encoding: chunked\r\n")
    _, origin = await place.request(head + b"5\r\nhello\r\n5\r\nhe")
    await origin.until(b"hello")


async def half_an_answers_head(place: Place) -> None:
    _, origin = await place.request(asking(place.plain))
    origin.writer.write(b"HTTP/1.1 200 OK\r\nConte")


async def half_an_answer(place: Place) -> None:
    client, origin = await place.request(asking(place.plain))
    origin.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\nhello")
    await client.until(b"hello")


async def half_an_answer_inside(place: Place) -> None:
    await no_answer_inside(place)
    assert place.client is not None
    assert place.origin is not None
    place.origin.writer.write(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
    )
    await place.client.until(b"hello")


async def a_models_call(place: Place) -> None:
    head = asking(
        place.plain,
        method="POST",
        path="/v1/messages",
        headers=f"Content-Length: {len(MESSAGE)}\r\n",
    )
    await place.dial(head + MESSAGE)
    reserve = await place.supervisor.until(Reserve)
    place.given.add(reserve.question_id)
    place.supervisor.send(Answer(question_id=reserve.question_id, decision="allow", settle=True))
    await (await place.reached(place.plain)).until(MESSAGE)


async def half_a_models_answer(place: Place) -> None:
    await a_models_call(place)
    assert place.client is not None
    assert place.origin is not None
    event = b'event: ping\ndata: {"type": "ping"}\n\n'
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    place.origin.writer.write(head + b"%x\r\n%s\r\n" % (len(event), event))
    await place.client.until(b"ping")


async def a_websocket_asked_for(place: Place) -> None:
    await place.request(asking(place.plain, headers=UPGRADE))


async def a_websocket(place: Place) -> None:
    await a_websocket_asked_for(place)
    assert place.client is not None
    assert place.origin is not None
    accept = (
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept:"
        " ybA5DN2oQtgvmvC1jXW93DFSvQ4=\r\n"
    )
    place.origin.writer.write(f"HTTP/1.1 101 Switching Protocols\r\n{accept}\r\n".encode())
    await place.client.until(b"\r\n\r\n")


async def half_a_message_up(place: Place) -> None:
    await a_websocket(place)
    assert place.client is not None
    place.client.writer.write(MASKED_FRAGMENT)
    await until_held(place.supervisor, lambda facts: facts["message_bytes"] > 0)


async def half_a_message_down(place: Place) -> None:
    await a_websocket(place)
    assert place.origin is not None
    place.origin.writer.write(FRAGMENT)
    await until_held(place.supervisor, lambda facts: facts["message_bytes"] > 0)


BOTH = [
    a_tunnel_and_no_hello,
    a_tunnel_and_half_a_hello,
    a_tunnel_and_no_answer,
    a_tunnel_joined,
    a_tunnel_with_much_on_its_way,
    the_origins_own_hello,
    no_answer,
    no_answer_inside,
    half_a_streamed_body,
    half_an_answers_head,
    half_an_answer,
    half_an_answer_inside,
    a_models_call,
    half_a_models_answer,
    a_websocket_asked_for,
    a_websocket,
    half_a_message_up,
    half_a_message_down,
]
