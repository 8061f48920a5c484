"""Compressed WebSocket messages that stand for more than may be kept: nothing beyond that is ever made, and both sides are told why."""

import tracemalloc
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from wsproto import ConnectionType
from wsproto.events import BytesMessage, CloseConnection, TextMessage
from wsproto.extensions import PerMessageDeflate
from wsproto.frame_protocol import Opcode

from supervisor.egress import websockets
from supervisor.egress.sessions import Session
from supervisor.egress.websockets import MOST_MESSAGE_BYTES, BoundedConnection

# What egress reads at once; deflate makes a thousand times as much of it.
READ_BYTES = 64 * 1024


def deflated(data: bytes, times: int = 1) -> bytes:
    """A message's payload (RFC 7692 7.2.1), without ever having it whole."""
    made = zlib.compressobj(9, zlib.DEFLATED, -15)
    return (b"".join(made.compress(data) for _ in range(times)) + made.flush(zlib.Z_SYNC_FLUSH)).removesuffix(
        b"\0\0\xff\xff"
    )


def frame(payload: bytes, opcode: Opcode, *, fin: bool = True, compressed: bool = True) -> bytes:
    """A frame as a server sends it: without a mask."""
    size = len(payload)
    length = bytes([size]) if size < 126 else b"\x7e" + size.to_bytes(2) if size < 2**16 else b"\x7f" + size.to_bytes(8)
    return bytes([fin << 7 | compressed << 6 | opcode]) + length + payload


def receiving(session: Session | None) -> BoundedConnection:
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
    connection = receiving(Session("s"))
    pieces = frame(b"", Opcode.BINARY, fin=False, compressed=False)
    pieces += frame(b"", Opcode.CONTINUATION, fin=False, compressed=False) * 5000
    *_, last = events_of(connection, pieces)
    assert isinstance(last, CloseConnection)
    assert last.code == 1009


def test_of_a_bomb_no_more_is_made_than_may_be_kept() -> None:
    session = Session("s")
    connection = receiving(session)
    bomb = frame(deflated(bytes(2**20), 4 * MOST_MESSAGE_BYTES >> 20), Opcode.BINARY)
    assert len(bomb) <= READ_BYTES + 2048, "one read, or a little more"
    tracemalloc.start()
    try:
        last = [event for event in events_of(connection, bomb) if isinstance(event, CloseConnection)]
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [(one.code, one.reason) for one in last] == [(1009, "a message is longer than Gatehouse keeps")]
    assert peak_bytes < 2 * MOST_MESSAGE_BYTES + 2**20, "64 MiB were never made"
    assert session.message_bytes == 0


@pytest.mark.parametrize("opcode", [Opcode.BINARY, Opcode.TEXT])
def test_what_may_be_kept_comes_through_whole(opcode: Opcode) -> None:
    connection = receiving(Session("s"))
    data = b"ab" * 100_000
    parts = [data[:70_000], data[70_000:]]
    sent = frame(deflated(data), opcode)
    for _ in range(2):  # the second message has what the first left behind
        came = [one for one in events_of(connection, sent) if isinstance(one, BytesMessage | TextMessage)]
        whole = "".join(one.data if isinstance(one.data, str) else one.data.decode() for one in came)
        assert whole == "".join(part.decode() for part in parts)
        assert came[-1].message_finished


def test_messages_of_other_connections_leave_less_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websockets, "MOST_OF_SESSION_BYTES", 10_000)
    session = Session("s")
    session.message_bytes = 9_000
    assert [one.code for one in events_of(receiving(session), frame(deflated(bytes(2_000)), Opcode.BINARY))] == [1009]
    session.message_bytes = 0
    (message,) = events_of(receiving(session), frame(deflated(bytes(2_000)), Opcode.BINARY))
    assert len(message.data) == 2_000
    assert [one.code for one in events_of(receiving(None), frame(deflated(b"a"), Opcode.BINARY))] == [1009], (
        "of no session"
    )


def test_pieces_without_a_byte_are_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websockets, "MOST_MESSAGE_BYTES", 10_000)
    first = frame(b"", Opcode.BINARY, fin=False, compressed=False)
    more = frame(b"", Opcode.CONTINUATION, fin=False, compressed=False)
    came = list(events_of(receiving(Session("s")), first + more * 1_000))
    assert isinstance(came[-1], CloseConnection)
    assert len(came) < 200


def test_what_is_no_deflate_ends_the_connection() -> None:
    (ended,) = events_of(receiving(Session("s")), frame(b"\xff" * 100, Opcode.BINARY))
    assert (ended.code, ended.reason) == (1007, "a message can't be read")


def test_a_close_of_the_other_side_is_passed_on_as_it_is() -> None:
    (ended,) = events_of(
        receiving(Session("s")), frame((1009).to_bytes(2) + b"too big", Opcode.CLOSE, compressed=False)
    )
    assert (ended.code, ended.reason) == (1009, "too big")
