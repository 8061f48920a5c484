"""HTTP/2 from the client, bounded: mitmproxy takes all that comes of a body and keeps what doesn't go on, however much that is.

It decides how much a client may send of what its origin doesn't take yet, or nobody has answered for yet (flow control: RFC 9113 5.2), how much of
what it asked for lies until it takes it, and how many of its requests it may give up. INVARIANT: a body that waits holds up no other stream of its
connection, and fills no memory. It is apart from `layers`, which decide what goes on.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from h2.config import H2Configuration
from h2.connection import ConnectionState, H2Connection
from h2.errors import ErrorCodes
from h2.events import StreamReset
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http._events import RequestData
from mitmproxy.proxy.layers.http._http2 import Http2Client, Http2Server
from mitmproxy.proxy.layers.http._http_h2 import BufferedH2Connection

from supervisor.egress.bucket import Bucket
from supervisor.egress.sessions import Room

# What a client may send before any of it has gone on, of a stream and of all. Between processes of one machine that is no slower than without bound.
MOST_WAITING_BYTES = 256 * 1024
MOST_WAITING_OF_ALL_BYTES = 1024 * 1024
# Requests of one connection that its client gives up, at once and in a second.
MOST_RESETS_AT_ONCE = 200
MOST_RESETS_A_SECOND = 20.0
_ENHANCE_YOUR_CALM = 0xB  # RFC 9113 7
_FIRST_WINDOW_BYTES = 65_535  # RFC 9113 6.9.2


class _Connection(BufferedH2Connection):
    """What was received is only given back where it has gone on: `received` is what hasn't, by its stream."""

    def __init__(self, config: H2Configuration) -> None:
        super().__init__(config)
        self.received: Counter[int] = Counter()
        self.local_settings.initial_window_size = MOST_WAITING_BYTES
        self.local_settings.acknowledge()

    def initiate_connection(self) -> None:
        H2Connection.initiate_connection(self)
        self.increment_flow_control_window(MOST_WAITING_OF_ALL_BYTES - _FIRST_WINDOW_BYTES)

    def acknowledge_received_data(self, acknowledged_size: int, stream_id: int) -> None:
        self.received[stream_id] += acknowledged_size

    def gone_on(self, stream_id: int, waiting_bytes: int) -> None:
        """All that was received of a stream has gone on but so much."""
        count = self.received[stream_id] - waiting_bytes
        if count > 0 and self.state_machine.state is not ConnectionState.CLOSED:
            super().acknowledge_received_data(count, stream_id)
            self.received[stream_id] -= count
        if self.received[stream_id] <= 0:
            del self.received[stream_id]


class BoundedHttp2Server(Http2Server):
    """From the client, which gives up few of its requests: one that opens streams and resets them, some thousand a second, leaves the other sessions no
    time (CVE-2023-44487). What it asks for and doesn't take is held in `unread`. `unreadable` is called where it says what is no HTTP/2, which nobody else sees."""

    h2_conn: _Connection

    def __init__(self, context: Context, unread: Room, unreadable: Callable[[], None]) -> None:
        super().__init__(context)
        self._unreadable = unreadable
        self.h2_conn = _Connection(self.h2_conf)
        self._resets = Bucket(MOST_RESETS_AT_ONCE, MOST_RESETS_A_SECOND)
        self._unread = unread
        self._unread_bytes = 0

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        yield from super()._handle_event(event)
        waiting = {} if isinstance(event, events.ConnectionClosed) else self.h2_conn.stream_buffers
        unread_bytes = sum(len(piece.data) for pieces in waiting.values() for piece in pieces)
        if unread_bytes != self._unread_bytes:
            self._unread.hold(unread_bytes - self._unread_bytes)
            self._unread_bytes = unread_bytes

    def handle_h2_event(self, event: Any) -> layer.CommandGenerator[bool]:
        if isinstance(event, StreamReset):
            now = asyncio.get_running_loop().time()
            if self._resets.wait_s(now):
                yield from self.protocol_error("too many requests are given up", _ENHANCE_YOUR_CALM)
                return True
            self._resets.take()
        return (yield from super().handle_h2_event(event))

    def protocol_error(self, message: str, error_code: int = ErrorCodes.PROTOCOL_ERROR) -> layer.CommandGenerator[None]:
        self._unreadable()
        yield from super().protocol_error(message, error_code)

    def take_more(self, waiting_bytes: Callable[[int], int]) -> layer.CommandGenerator[None]:
        """Let the client send as much as has gone on. `waiting_bytes` tells what of a stream hasn't."""
        for stream_id in tuple(self.h2_conn.received):
            self.h2_conn.gone_on(stream_id, waiting_bytes(stream_id))
        data = self.h2_conn.data_to_send()
        if data:
            yield commands.SendData(self.conn, data)


def waiting_bytes(origin: layer.Layer, stream_id: int) -> int:
    """What of a request's body an origin doesn't take yet, where it speaks HTTP/2: for its window, or until another of its streams ends."""
    while not isinstance(origin, Http2Client):
        inner = getattr(origin, "child_layer", None)  # TLS, and what dials
        if inner is None:
            return 0
        origin = inner
    pieces = origin.h2_conn.stream_buffers.get(origin.our_stream_id.get(stream_id, 0), ())
    queued = origin.stream_queue.get(stream_id, ())
    return sum(len(one.data) for one in pieces) + sum(len(one.data) for one in queued if isinstance(one, RequestData))
