"""Compressed WebSocket messages that stand for more than may be kept: nothing beyond that is
ever made, and both sides are told why. What was kept is given back."""

import asyncio
import contextlib
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from wsproto import ConnectionType
from wsproto.events import BytesMessage, CloseConnection, TextMessage
from wsproto.extensions import PerMessageDeflate
from wsproto.frame_protocol import Opcode

from supervisor.core.network.egress_wire import Credential
from supervisor.egress.admission.egress_sessions import EgressSession
from supervisor.egress.mitm import websockets
from supervisor.egress.mitm.body_inspection import MOST_AT_ONCE_BYTES
from supervisor.egress.mitm.websockets import MOST_MESSAGE_BYTES, BoundedConnection
from tests.egress.egress_harness import Proxy, running_egress, serving
from tests.fakes.waiting import PATIENCE_S

# What egress reads at once; deflate makes a thousand times as much of it.
READ_BYTES = 64 * 1024


def deflated(data: bytes, times: int = 1) -> bytes:
    """A message's payload (RFC 7692 7.2.1), without ever having it whole."""
    made = zlib.compressobj(9, zlib.DEFLATED, -15)
    return (
        b"".join(made.compress(data) for _ in range(times)) + made.flush(zlib.Z_SYNC_FLUSH)
    ).removesuffix(b"\0\0\xff\xff")


def frame(payload: bytes, opcode: Opcode, *, fin: bool = True, compressed: bool = True) -> bytes:
    """A frame as a server sends it: without a mask."""
    size = len(payload)
    length = (
        bytes([size])
        if size < 126
        else b"\x7e" + size.to_bytes(2)
        if size < 2**16
        else b"\x7f" + size.to_bytes(8)
    )
    return bytes([fin << 7 | compressed << 6 | opcode]) + length + payload


def receiving(session: EgressSession | None) -> BoundedConnection:
    deflate = PerMessageDeflate()
    deflate.finalize("permessage-deflate")
    made = BoundedConnection(ConnectionType.CLIENT, [deflate], conn=None)
    made.session = session
    return made


def events_of(connection: BoundedConnection, data: bytes) -> Iterator[Any]:
    for at in range(0, len(data), READ_BYTES):
        connection.receive_data(data[at : at + READ_BYTES])
        for event in connection.events():
            yield event
            if isinstance(event, CloseConnection):
                return


def test_a_message_has_few_pieces() -> None:
    """All of them go on in one step, in which nobody else gets anything."""
    connection = receiving(EgressSession("s"))
    pieces = frame(b"", Opcode.BINARY, fin=False, compressed=False)
    pieces += frame(b"", Opcode.CONTINUATION, fin=False, compressed=False) * 5000
    *_, last = events_of(connection, pieces)
    assert isinstance(last, CloseConnection)
    assert last.code == 1009


def test_of_a_bomb_no_more_is_made_than_may_be_kept() -> None:
    session = EgressSession("s")
    connection = receiving(session)
    bomb = frame(deflated(bytes(2**20), 4 * MOST_MESSAGE_BYTES >> 20), Opcode.BINARY)
    assert len(bomb) <= READ_BYTES + 2048, "one read, or a little more"
    tracemalloc.start()
    try:
        last = [
            event for event in events_of(connection, bomb) if isinstance(event, CloseConnection)
        ]
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [(one.code, one.reason) for one in last] == [
        (1009, "a message is longer than Gatehouse keeps")
    ]
    assert peak_bytes < 2 * MOST_MESSAGE_BYTES + 2**20, "64 MiB were never made"
    assert session.message_bytes == 0


@pytest.mark.parametrize("opcode", [Opcode.BINARY, Opcode.TEXT])
def test_what_may_be_kept_comes_through_whole(opcode: Opcode) -> None:
    connection = receiving(EgressSession("s"))
    data = b"ab" * 100_000
    parts = [data[:70_000], data[70_000:]]
    sent = frame(deflated(data), opcode)
    for _ in range(2):  # the second message has what the first left behind
        came = [
            one
            for one in events_of(connection, sent)
            if isinstance(one, BytesMessage | TextMessage)
        ]
        whole = "".join(
            one.data if isinstance(one.data, str) else one.data.decode() for one in came
        )
        assert whole == "".join(part.decode() for part in parts)
        assert came[-1].message_finished


def test_messages_of_other_connections_leave_less_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websockets, "MOST_OF_SESSION_BYTES", 10_000)
    session = EgressSession("s")
    session.message_bytes = 9_000
    assert [
        one.code
        for one in events_of(receiving(session), frame(deflated(bytes(2_000)), Opcode.BINARY))
    ] == [1009]
    session.message_bytes = 0
    (message,) = events_of(receiving(session), frame(deflated(bytes(2_000)), Opcode.BINARY))
    assert len(message.data) == 2_000
    assert [
        one.code for one in events_of(receiving(None), frame(deflated(b"a"), Opcode.BINARY))
    ] == [1009], "of no session"


def test_pieces_without_a_byte_are_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websockets, "MOST_MESSAGE_BYTES", 10_000)
    first = frame(b"", Opcode.BINARY, fin=False, compressed=False)
    more = frame(b"", Opcode.CONTINUATION, fin=False, compressed=False)
    came = list(events_of(receiving(EgressSession("s")), first + more * 1_000))
    assert isinstance(came[-1], CloseConnection)
    assert len(came) < 200


def test_what_is_no_deflate_ends_the_connection() -> None:
    (ended,) = events_of(receiving(EgressSession("s")), frame(b"\xff" * 100, Opcode.BINARY))
    assert (ended.code, ended.reason) == (1007, "a message can't be read")


def test_a_close_of_the_other_side_is_passed_on_as_it_is() -> None:
    (ended,) = events_of(
        receiving(EgressSession("s")),
        frame((1009).to_bytes(2) + b"too big", Opcode.CLOSE, compressed=False),
    )
    assert (ended.code, ended.reason) == (1009, "too big")


@dataclass
class Counting:
    """A server that says of each message how long it was."""

    port: int = 0
    heard: list[int] = field(default_factory=list)
    connections: list[ServerConnection] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"ws://origin.test:{self.port}/"

    async def talk(self, connection: ServerConnection) -> None:
        self.connections.append(connection)
        async for message in connection:
            self.heard.append(len(message))
            await connection.send(str(len(message)))


@contextlib.asynccontextmanager
async def counting() -> AsyncIterator[Counting]:
    found = Counting()
    async with serve(found.talk, "127.0.0.1", 0) as server:
        found.port = next(iter(server.sockets)).getsockname()[1]
        yield found


# Of another host: what goes to this one is looked through, and what is long in steps.
CREDENTIAL = Credential(
    placeholder="gatehouse-placeholder-it-0123456789",
    secret="the-key",
    header="x-api-key",
    hosts=("other.test",),
)
LONG = bytes(4 * MOST_AT_ONCE_BYTES)
# In short parts, each of which counts more than its bytes, two of them take nearly as much.
FIVE = (
    "from supervisor.egress.mitm import websockets\nwebsockets.MOST_OF_SESSION_BYTES ="
    f" {5 * len(LONG)}"
)


async def test_what_a_sessions_messages_took_is_given_back(
    tmp_path: Path, upstream_ca: Path
) -> None:
    """Once one went on, and where the origin goes away in the midst of one."""

    async def without_end(begun: asyncio.Event) -> AsyncIterator[bytes]:
        yield LONG + LONG
        begun.set()
        await asyncio.Event().wait()

    async with (
        counting() as server,
        running_egress(tmp_path, upstream_ca, preface=FIVE) as supervisor,
        serving(supervisor, "s") as proxy,
        asyncio.timeout(PATIENCE_S),
    ):
        proxy.credentials(CREDENTIAL)
        for _ in range(3):
            async with connect(server.url, proxy=proxy.url, compression=None) as socket:
                for _ in range(2):
                    await socket.send(LONG)
                    assert await socket.recv() == str(len(LONG))
                begun = asyncio.Event()
                sending = asyncio.create_task(socket.send(without_end(begun)))
                await begun.wait()
                await (await socket.ping())  # it is behind what was sent
                await server.connections[-1].close()
                with pytest.raises(ConnectionClosed):
                    await socket.recv()
                sending.cancel()
                await asyncio.wait([sending])


@pytest.mark.asyncio(loop_scope="module")
async def test_what_waits_behind_a_message_is_read_on_after_it(proxy: Proxy) -> None:
    proxy.credentials(CREDENTIAL)
    async with (
        counting() as server,
        connect(server.url, proxy=proxy.url, compression=None) as socket,
    ):
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(40):
                await socket.send(LONG)
            for _ in range(40):
                assert await socket.recv() == str(len(LONG))


async def test_a_message_that_could_not_be_looked_at_does_not_go_on(
    tmp_path: Path, upstream_ca: Path
) -> None:
    async with (
        counting() as server,
        running_egress(tmp_path, upstream_ca, broken="Guard.body_piece") as supervisor,
        serving(supervisor, "s") as proxy,
        asyncio.timeout(PATIENCE_S),
    ):
        proxy.credentials(CREDENTIAL)
        async with connect(server.url, proxy=proxy.url, compression=None) as socket:
            await socket.send(LONG)
            await socket.send("short")
            assert await socket.recv() == "5"
    assert server.heard == [5]
