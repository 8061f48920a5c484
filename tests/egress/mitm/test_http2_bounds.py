"""HTTP/2 of which more is said than anybody has to: heads that don't end, pieces without
anything in them, streams by the hundred."""

import asyncio
import contextlib
import struct
from pathlib import Path
from types import SimpleNamespace

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest
import trustme
from mitmproxy import connection
from mitmproxy.proxy.context import Context

from supervisor.core.network.egress_wire import EgressRefused
from supervisor.egress.admission.egress_sessions import PIECE_BYTES
from supervisor.egress.admission.rooms import Room
from supervisor.egress.mitm.http2 import (
    MOST_REMEMBERED_BYTES,
    BoundedHttp2Client,
    BoundedHttp2Server,
    Unsent,
)
from supervisor.egress.protocols.checks import MOST_HEAD_BYTES
from tests.egress.egress_harness import Origin, Proxy, server_context
from tests.egress.h2_client import h2_client
from tests.fakes.waiting import PATIENCE_S

pytestmark = pytest.mark.asyncio(loop_scope="module")

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, CONTINUATION = 0, 1, 4, 9
END_STREAM = 1


def frame(kind: int, flags: int, stream: int, data: bytes) -> bytes:
    return (
        struct.pack("!I", len(data))[1:] + bytes([kind, flags]) + struct.pack("!I", stream) + data
    )


async def test_a_head_that_does_not_end_is_the_end(
    proxy: Proxy, https: Origin, ca_file: Path
) -> None:
    reader, writer = await proxy.tunnel(f"origin.test:{https.port}", trust=ca_file, alpn=["h2"])
    writer.write(PREFACE + frame(SETTINGS, 0, 0, b"") + frame(HEADERS, 1, 1, bytes(16_000)))
    for _ in range(MOST_HEAD_BYTES // 16_000):
        writer.write(frame(CONTINUATION, 0, 1, bytes(16_000)))
    async with asyncio.timeout(PATIENCE_S):
        with contextlib.suppress(ConnectionError):
            while await reader.read(65536):
                pass
    writer.close()
    await proxy.supervisor.until_one(
        lambda one: isinstance(one, EgressRefused) and "can't be read" in one.why
    )
    assert https.untouched


async def test_a_head_of_an_origin_that_does_not_end_is_the_end(
    proxy: Proxy, authority: trustme.CA, ca_file: Path
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frame(SETTINGS, 0, 0, b"") + frame(HEADERS, 1, 1, bytes(16_000)))
        for _ in range(MOST_HEAD_BYTES // 16_000):
            writer.write(frame(CONTINUATION, 0, 1, bytes(16_000)))
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()

    context = server_context(authority, "origin.test")
    context.set_alpn_protocols(["h2"])
    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as origin:
        target = f"origin.test:{origin.sockets[0].getsockname()[1]}"
        async with h2_client(proxy, target, ca_file) as client:
            assert (await client.answered("/")).status == 502


def open_client() -> Context:
    client = connection.Client(peername=("127.0.0.1", 1), sockname=("127.0.0.1", 2))
    client.state = connection.ConnectionState.OPEN
    return Context(client, SimpleNamespace(validate_inbound_headers=True, proxy_debug=False))  # type: ignore[arg-type]


def begun(server: BoundedHttp2Server, number: int = 1) -> None:
    """A request whose body goes on."""
    server.h2_conn.initiate_connection()
    client = h2.connection.H2Connection()
    client.initiate_connection()
    pseudo = [
        (b":method", b"POST"),
        (b":scheme", b"https"),
        (b":authority", b"a.test"),
        (b":path", b"/"),
    ]
    client.send_headers(number, pseudo)
    server.h2_conn.receive_data(client.data_to_send())


async def test_pieces_with_nothing_in_them_are_not_kept() -> None:
    server = BoundedHttp2Server(open_client(), Room(), Room(), lambda: None)
    begun(server)
    nothing = h2.events.DataReceived(stream_id=1, data=b"", flow_controlled_length=0)
    assert list(server.handle_h2_event(nothing)) == []


async def test_what_waits_counts_by_its_pieces_too() -> None:
    up, unread = Room(10 * PIECE_BYTES), Room(10 * PIECE_BYTES)
    server = BoundedHttp2Server(open_client(), up, unread, lambda: None)
    begun(server)
    server.h2_conn.received[1] = 100
    list(server.count(lambda stream_id: Unsent(10, 10)))
    assert not up.is_full
    list(server.count(lambda stream_id: Unsent(11, 11)))
    assert up.is_full
    list(server.count(lambda stream_id: Unsent(0, 0)))
    assert not up.is_full
    server.h2_conn.send_headers(1, [(b":status", b"200")])
    server.h2_conn.send_data(1, bytes(65_535))  # all that its client takes
    for _ in range(10):
        server.h2_conn.send_data(1, b"x")
    list(server.count(lambda stream_id: Unsent()))
    assert unread.is_full
    server.conn.state = connection.ConnectionState.CLOSED
    list(server.count(lambda stream_id: Unsent()))
    assert not unread.is_full


@pytest.mark.parametrize("says_bytes", [100, 2**31 - 1])
@pytest.mark.parametrize("of", ["client", "origin"])
async def test_of_heads_no_more_is_remembered_than_anybody_has_to(of: str, says_bytes: int) -> None:
    """A peer that says it remembers everything would have us look through everything for each
    name, for minutes."""
    peer = h2.connection.H2Connection(h2.config.H2Configuration(client_side=of == "client"))
    peer.initiate_connection()
    peer.update_settings({h2.settings.SettingCodes.HEADER_TABLE_SIZE: says_bytes})
    if of == "client":
        ours = BoundedHttp2Server(open_client(), Room(), Room(), lambda: None).h2_conn
        peer.send_headers(
            1, [(":method", "GET"), (":scheme", "https"), (":authority", "a.test"), (":path", "/")]
        )
        begins = [(b":status", b"200")]
    else:
        ours = BoundedHttp2Client(open_client()).h2_conn
        begins = [
            (b":method", b"GET"),
            (b":scheme", b"https"),
            (b":authority", b"a.test"),
            (b":path", b"/"),
        ]
    ours.initiate_connection()
    ours.receive_data(peer.data_to_send())
    peer.receive_data(ours.data_to_send())
    ours.receive_data(peer.data_to_send())
    head = [(b"x-%d" % number, b"y") for number in range(1000)]
    ours.send_headers(1, begins + head)
    entries = ours.encoder.header_table.dynamic_entries
    assert (
        0
        < sum(32 + len(name) + len(value) for name, value in entries)
        <= min(says_bytes, MOST_REMEMBERED_BYTES)
    )
    (read,) = [
        event for event in peer.receive_data(ours.data_to_send()) if hasattr(event, "headers")
    ]
    assert [field for field in read.headers if field[0].startswith(b"x-")] == head


async def test_what_was_sent_before_the_peer_said_that_it_takes_less_is_no_error() -> None:
    peer = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    ours = BoundedHttp2Client(open_client()).h2_conn
    ours.initiate_connection()
    begins = [
        (b":method", b"POST"),
        (b":scheme", b"https"),
        (b":authority", b"a.test"),
        (b":path", b"/"),
    ]
    ours.send_headers(1, begins)
    for _ in range(3):
        ours.send_data(1, bytes(16_384))
    peer.initiate_connection()
    read = peer.receive_data(ours.data_to_send())
    peer.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 1000})
    ours.receive_data(peer.data_to_send())
    ours.send_data(1, b"more")
    ours.end_stream(1)
    read += peer.receive_data(ours.data_to_send())
    while not isinstance(read[-1], h2.events.StreamEnded):
        peer.increment_flow_control_window(16_384, 1)
        ours.receive_data(peer.data_to_send())
        read += peer.receive_data(ours.data_to_send())
    said = b"".join(event.data for event in read if isinstance(event, h2.events.DataReceived))
    assert said == bytes(3 * 16_384) + b"more"


async def test_an_empty_frame_is_no_error_where_no_window_is_left() -> None:
    """What has nothing in it needs no window: RFC 9113 6.9.1."""
    peer = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    ours = BoundedHttp2Client(open_client()).h2_conn
    ours.initiate_connection()
    ours.send_headers(
        1,
        [
            (b":method", b"POST"),
            (b":scheme", b"https"),
            (b":authority", b"a.test"),
            (b":path", b"/"),
        ],
    )
    ours.send_data(1, bytes(2000))
    peer.initiate_connection()
    peer.receive_data(ours.data_to_send())
    peer.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 1000})
    ours.receive_data(peer.data_to_send())
    ours.data_to_send()
    ours.send_data(1, b"")
    assert ours.data_to_send() == b""
    ours.end_stream(1)
    assert ours.data_to_send() == frame(DATA, END_STREAM, 1, b"")


async def test_trailers_of_a_stream_that_was_given_up_are_not_kept() -> None:
    for is_by_peer in (True, False):
        peer = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        ours = BoundedHttp2Client(open_client()).h2_conn
        ours.initiate_connection()
        ours.send_headers(
            1,
            [
                (b":method", b"POST"),
                (b":scheme", b"https"),
                (b":authority", b"a.test"),
                (b":path", b"/"),
            ],
        )
        ours.send_data(1, bytes(100_000))
        ours.send_trailers(1, [(b"x-sum", b"a")])
        peer.initiate_connection()
        peer.receive_data(ours.data_to_send())
        if is_by_peer:
            peer.reset_stream(1)
            ours.receive_data(peer.data_to_send())
        else:
            ours.reset_stream(1)
        assert not ours.stream_buffers
        assert not ours.stream_trailers


async def test_streams_that_do_not_end_keep_none_from_an_origin_of_http1(
    proxy: Proxy, authority: trustme.CA, ca_file: Path
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
            await reader.read()
        writer.close()

    context = server_context(authority, "origin.test")
    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as origin:
        target = f"origin.test:{origin.sockets[0].getsockname()[1]}"
        async with h2_client(proxy, target, ca_file) as client:
            streams = [client.ask(f"/{number}")[1] for number in range(12)]
            await client.until(lambda: all(stream.status == 200 for stream in streams))
