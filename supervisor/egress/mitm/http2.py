"""Bounded HTTP/2 on both sides.

mitmproxy accepts and keeps any amount of a body that can't go on yet, and h2 accepts heads of 8 MB.
This module bounds what a client may send before its origin takes it or somebody answers for it
(flow control: RFC 9113 5.2), how much of its answers waits, how many requests it may give up, how
long a head is, and how much is remembered of heads and closed streams. INVARIANT: a waiting body
holds up no other stream of its connection, and fills no memory. `install` replaces mitmproxy's
classes.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Container, Sequence
from typing import Any, NamedTuple, Self

from h2.config import H2Configuration
from h2.connection import ConnectionState as H2State
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, Event, RequestReceived, StreamReset, TrailersReceived
from h2.exceptions import DenialOfServiceError
from h2.frame_buffer import FrameBuffer
from h2.stream import StreamClosedBy
from h2.utilities import SizeLimitDict
from hpack import Encoder
from hyperframe.frame import (
    ContinuationFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PushPromiseFrame,
    RstStreamFrame,
)
from mitmproxy.connection import ConnectionState
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers import http as _http
from mitmproxy.proxy.layers.http._base import HttpEvent, ReceiveHttp
from mitmproxy.proxy.layers.http._events import (
    ErrorCode,
    RequestData,
    RequestHeaders,
    RequestProtocolError,
    ResponseProtocolError,
)
from mitmproxy.proxy.layers.http._http2 import (
    Http2Client,
    Http2Connection,
    Http2Server,
    StreamState,
)
from mitmproxy.proxy.layers.http._http_h2 import BufferedH2Connection, SendH2Data

from supervisor.egress.admission.egress_sessions import PIECE_BYTES
from supervisor.egress.admission.rooms import Room, RoomShare
from supervisor.egress.loop.fair_turns import Bucket
from supervisor.egress.protocols.checks import MOST_HEAD_BYTES

# What a client may send before any of it goes on, per stream and in total. Between processes of one
# machine this is no slower than no bound.
MOST_WAITING_BYTES = 256 * 1024
MOST_WAITING_OF_ALL_BYTES = 1024 * 1024
# Requests that a connection's client may give up: as a burst, and per second.
MOST_RESETS_AT_ONCE = 200
MOST_RESETS_A_SECOND = 20.0
_ENHANCE_YOUR_CALM = 0xB  # RFC 9113 7
_FIRST_WINDOW_BYTES = 65_535  # RFC 9113 6.9.2
# Size of the header table: the initial value of every peer (RFC 9113 6.5.2).
MOST_REMEMBERED_BYTES = 4096
# Reset streams to remember: frames that the peer sent before it heard of the reset may still come.
MOST_REMEMBERED_RESETS = 1000
_BY_RESET = (StreamClosedBy.SEND_RST_STREAM, StreamClosedBy.RECV_RST_STREAM)
_OF_A_HEAD = (HeadersFrame, ContinuationFrame, PushPromiseFrame)


class Unsent(NamedTuple):
    """The part of a body that hasn't gone on yet."""

    pieces: int = 0
    bytes: int = 0

    @classmethod
    def of(cls, pieces: Sequence[RequestData | SendH2Data]) -> Self:
        return cls(len(pieces), sum(len(one.data) for one in pieces))

    def and_(self, other: Self) -> "Unsent":
        return Unsent(self.pieces + other.pieces, self.bytes + other.bytes)


class _Frames(FrameBuffer):
    """Bounds a head at the length of an HTTP/1 one. h2 accepts 64 frames of 128 kB, and parsing
    them at once takes seconds."""

    def _update_header_buffer(self, frame: Frame | None) -> Frame | None:
        parts = (*self._headers_buffer, frame) if isinstance(frame, _OF_A_HEAD) else ()
        if sum(len(one.data) for one in parts) > MOST_HEAD_BYTES:
            raise DenialOfServiceError("a head is too long")
        return super()._update_header_buffer(frame)


class _Encoder(Encoder):
    """Bounds the header table. A peer may ask for gigabytes; ours would be as large, and each name
    is searched in all of it."""

    @property
    def header_table_size(self) -> int:
        return self.header_table.maxsize

    @header_table_size.setter
    def header_table_size(self, value: int) -> None:
        self.header_table.maxsize = min(value, MOST_REMEMBERED_BYTES)
        if self.header_table.resized:
            self.table_size_changes.append(self.header_table.maxsize)


class _Resets(SizeLimitDict):
    """Remembers reset streams only, not all 65,536 that h2 does; frames on cleanly closed streams
    are errors anyway."""

    def __setitem__(self, key: int, value: Any) -> None:
        if value in _BY_RESET:
            super().__setitem__(key, value)


class _Bounded(BufferedH2Connection):
    """What both sides have in common."""

    def __init__(self, config: H2Configuration) -> None:
        super().__init__(config)
        self._closed_streams = _Resets(size_limit=MOST_REMEMBERED_RESETS)
        self.encoder = _Encoder()
        self.incoming_buffer = _Frames(server=not config.client_side)

    def receive_data(self, data: bytes) -> list[Event]:
        events: list[Event] = super().receive_data(data)
        for event in events:
            if isinstance(event, StreamReset):
                self.stream_trailers.pop(event.stream_id, None)
        return events

    def reset_stream(self, stream_id: int, error_code: int = 0) -> None:
        # Trailers that wait behind an untaken body: mitmproxy keeps them even when the body is
        # gone.
        self.stream_trailers.pop(stream_id, None)
        super().reset_stream(stream_id, error_code)

    def local_flow_control_window(self, stream_id: int) -> int:
        """Return the window, at least 0. A peer may make it negative (RFC 9113 6.9.2), and
        mitmproxy would then slice the data by it and send all but the last bytes."""
        return max(0, super().local_flow_control_window(stream_id))

    def send_data(
        self, stream_id: int, data: Any, end_stream: bool = False, pad_length: Any = None
    ) -> None:
        """Send data; an empty frame needs no window. h2 raises where the window is negative, unless
        the frame ends the stream."""
        if data or self.stream_buffers.get(stream_id):
            super().send_data(stream_id, data, end_stream, pad_length)
        elif end_stream:
            H2Connection.end_stream(self, stream_id)

    def end_stream(self, stream_id: int) -> None:
        """End the stream once. `layers` ends a response a second time if it was over before its
        request. A second end behind a queued one would be a connection error."""
        lying = self.stream_buffers.get(stream_id)
        if not (lying and lying[-1].end_stream):
            super().end_stream(stream_id)


class _Connection(_Bounded):
    """Returns flow-control credit only for data that has gone on. `received` is the rest, by
    stream."""

    def __init__(self, config: H2Configuration, most_bytes: int) -> None:
        super().__init__(config)
        self._most_bytes = max(most_bytes, _FIRST_WINDOW_BYTES + 1)
        self.received: Counter[int] = Counter()
        self.local_settings.initial_window_size = MOST_WAITING_BYTES
        self.local_settings.acknowledge()

    def initiate_connection(self) -> None:
        H2Connection.initiate_connection(self)
        self.increment_flow_control_window(self._most_bytes - _FIRST_WINDOW_BYTES)

    def acknowledge_received_data(self, acknowledged_size: int, stream_id: int) -> None:
        self.received[stream_id] += acknowledged_size

    def gone_on(self, stream_id: int, waiting_bytes: int) -> None:
        """Return the credit for all received bytes of a stream except those still waiting."""
        count = self.received[stream_id] - waiting_bytes
        if count > 0 and self.state_machine.state is not H2State.CLOSED:
            super().acknowledge_received_data(count, stream_id)
            self.received[stream_id] -= count
        if self.received[stream_id] <= 0:
            del self.received[stream_id]


class _ToOrigin(_Bounded):
    """`goes_away`: the origin accepts no more requests on this connection, but finishes those it
    accepted (RFC 9113 6.8). h2 and mitmproxy would end those, too."""

    goes_away = False

    def _receive_goaway_frame(self, frame: GoAwayFrame) -> tuple[list[Frame], list[Event]]:
        going_on = {number for number, stream in self.streams.items() if not stream.closed}
        taken = {number for number in going_on if number <= frame.last_stream_id}
        if frame.error_code or not taken:
            return super()._receive_goaway_frame(frame)
        self.goes_away = True
        frames: list[Frame] = []
        ends: list[Event] = []
        for number in sorted(going_on - taken):
            sent, events = self._receive_rst_stream_frame(
                RstStreamFrame(number, ErrorCodes.REFUSED_STREAM)
            )
            frames, ends = frames + sent, ends + events
        return frames, ends


class BoundedHttp2Client(Http2Client):
    """HTTP/2 to an origin. Requests that wait for a free stream end with its connection."""

    h2_conn: _ToOrigin

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.h2_conn = _ToOrigin(self.h2_conf)
        self.h2_conn.local_settings.enable_push = 0  # as mitmproxy has it
        self.h2_conn.local_settings.acknowledge()

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        """INVARIANT: a request that was given up or withdrawn while it waited sends nothing. Events
        of a forgotten request are dropped: mitmproxy would assign them to the next one."""
        is_known = (
            isinstance(event, RequestHeaders)
            or getattr(event, "stream_id", 0) in self.our_stream_id
        )
        if isinstance(event, HttpEvent) and not is_known:
            if isinstance(event, RequestProtocolError):
                self.stream_queue.pop(event.stream_id, None)
            if event.stream_id not in self.stream_queue:
                return
        yield from super()._handle_event(event)

    def forget(self) -> None:
        """Forget streams that are closed both ways. INVARIANT: only after all events of one read.
        For h2 they are closed before their end was reported here."""
        streams = self.h2_conn.streams
        for ours in [
            one for one in self.their_stream_id if one not in streams or streams[one].closed
        ]:
            self.our_stream_id.pop(self.their_stream_id.pop(ours), None)
            self.streams.pop(ours, None)

    def handle_h2_event(self, event: Any) -> layer.CommandGenerator[bool]:
        _remember_reset(self, event)
        return (yield from super().handle_h2_event(event))

    def _handle_event2(self, event: events.Event) -> layer.CommandGenerator[None]:
        yield from super()._handle_event2(event)
        if isinstance(event, RequestProtocolError):
            # INVARIANT: giving up a request isn't reported back here: its layer is busy with that,
            # and isn't re-entrant.
            self.streams.pop(event.stream_id, None)
        # Only after all events of one read: for h2 a stream is closed before its end was reported
        # here.
        if self.h2_conn.goes_away:
            yield from self._give_up_queued("it takes no more requests over this connection")
            if self.conn.connected and not self.h2_conn.open_outbound_streams:
                yield from self.close_connection("it went away")

    def close_connection(self, msg: str) -> layer.CommandGenerator[None]:
        yield from self._give_up_queued(msg)
        yield from super().close_connection(msg)

    def _give_up_queued(self, why: str) -> layer.CommandGenerator[None]:
        queued = list(self.stream_queue)
        self.stream_queue.clear()
        for number in queued:
            # Waiting requests have no stream id of ours yet; mitmproxy looks theirs up by it.
            self.their_stream_id[-number] = number
            yield ReceiveHttp(ResponseProtocolError(-number, why, ErrorCode.GENERIC_SERVER_ERROR))


class BoundedHttp2Server(Http2Server):
    """HTTP/2 from the client, which may give up only a few requests. A client that opens and resets
    thousands of streams a second would leave the other sessions no time (CVE-2023-44487).

    Answers that it doesn't take are counted in `unread`; the overhead of waiting body pieces is
    counted in `up`. `unreadable` is called for input that is no HTTP/2, which nobody else sees. A
    client sends at most `most_bytes` before any of it goes on.
    """

    h2_conn: _Connection

    def __init__(
        self,
        context: Context,
        up: Room,
        unread: Room,
        unreadable: Callable[[], None],
        most_bytes: int = MOST_WAITING_OF_ALL_BYTES,
    ) -> None:
        super().__init__(context)
        self._up, self._unread = RoomShare(up), RoomShare(unread)
        self._unreadable = unreadable
        self.h2_conn = _Connection(self.h2_conf, most_bytes)
        self._resets = Bucket(MOST_RESETS_AT_ONCE, MOST_RESETS_A_SECOND)

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        if isinstance(event, ResponseProtocolError) and self._has_all(event.stream_id):
            # Only the rest of its request isn't wanted any more: RFC 9113 8.1.
            self.h2_conn.reset_stream(event.stream_id, ErrorCodes.NO_ERROR)
            yield commands.SendData(self.conn, self.h2_conn.data_to_send())
        else:
            yield from super()._handle_event(event)

    def _has_all(self, stream_id: int) -> bool:
        """Return whether all of a response was sent while its request continues."""
        return (
            not self.is_closed(stream_id)
            and not self.is_open_for_us(stream_id)
            and not self.h2_conn.stream_buffers.get(stream_id)
        )

    def handle_h2_event(self, event: Any) -> layer.CommandGenerator[bool]:
        _remember_reset(self, event)
        if isinstance(event, StreamReset):
            now = asyncio.get_running_loop().time()
            if self._resets.wait_s(now):
                yield from self.protocol_error("too many requests are given up", _ENHANCE_YOUR_CALM)
                return True
            self._resets.take()
        if isinstance(event, DataReceived) and not (event.data or event.stream_ended):
            # It carries no data and uses up none of the stream's window.
            self.h2_conn.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            return False
        if (
            isinstance(event, RequestReceived | TrailersReceived)
            and event.stream_ended
            and self._is_cut_short(event)
        ):
            yield from self.protocol_error("a body is shorter than its head says")
            return True
        return (yield from super().handle_h2_event(event))

    def _is_cut_short(self, event: RequestReceived | TrailersReceived) -> bool:
        """Return whether a request ends before its announced length; h2 checks that only in data
        frames (RFC 9113 8.1.1).

        INVARIANT: such a request isn't passed on. An origin that converts it to HTTP/1 would take
        the next request for the missing rest.
        """
        stream = self.h2_conn.streams.get(event.stream_id or 0)
        return (
            stream is not None
            and (stream._expected_content_length or 0) > stream._actual_content_length
        )

    def protocol_error(
        self, message: str, error_code: int = ErrorCodes.PROTOCOL_ERROR
    ) -> layer.CommandGenerator[None]:
        self._unreadable()
        yield from super().protocol_error(message, error_code)

    def forget(self, going_on: Container[int]) -> None:
        """Forget requests that aren't in `going_on`, which have no client any more."""
        for stream_id in [one for one in self.streams if one not in going_on]:
            del self.streams[stream_id]

    def count(self, waiting: Callable[[int], Unsent]) -> layer.CommandGenerator[None]:
        """Once per event: let the client send as much as has gone on, and note what it doesn't
        take. `waiting` returns what of a stream's body hasn't gone on."""
        pieces = 0
        for stream_id in tuple(self.h2_conn.received):
            of_stream = waiting(stream_id)
            pieces += of_stream.pieces
            self.h2_conn.gone_on(stream_id, of_stream.bytes)
        is_over = not self.conn.state & ConnectionState.CAN_WRITE
        self._up.set(0 if is_over else pieces * PIECE_BYTES)
        unread = [] if is_over else list(self.h2_conn.stream_buffers.values())
        self._unread.set(
            sum(map(len, unread)) * PIECE_BYTES
            + sum(len(one.data) for some in unread for one in some)
        )
        data = self.h2_conn.data_to_send()
        if data:
            yield commands.SendData(self.conn, data)


def _remember_reset(connection: Http2Connection, event: Event) -> None:
    """Have a stream's reset reported, too, where it came together with the stream's end. h2 closes
    the stream before either is reported, and mitmproxy forgets it at its end."""
    if isinstance(event, StreamReset):
        connection.streams.setdefault(event.stream_id, StreamState.HEADERS_RECEIVED)


def waiting_for(origin: layer.Layer, stream_id: int) -> Unsent:
    """Return the part of a request's body that an HTTP/2 origin doesn't accept yet. It waits for
    the window, or for another stream to end."""
    found = _http2_of(origin)
    if found is None:
        return Unsent()
    sent = found.h2_conn.stream_buffers.get(found.our_stream_id.get(stream_id, 0), ())
    queued = found.stream_queue.get(stream_id, ())
    return Unsent.of([*sent, *(one for one in queued if isinstance(one, RequestData))])


def forget_over(origin: layer.Layer) -> None:
    """Forget an origin's closed streams."""
    found = _http2_of(origin)
    if found is not None:
        found.forget()


def goes_away(origin: layer.Layer) -> bool:
    """Return whether an origin takes no more requests over this connection."""
    found = _http2_of(origin)
    return found is not None and found.h2_conn.goes_away


def _http2_of(origin: layer.Layer) -> BoundedHttp2Client | None:
    """Return the HTTP/2 layer to an origin; None where there is none."""
    while not isinstance(origin, BoundedHttp2Client):
        inner = getattr(origin, "child_layer", None)  # TLS, and what dials
        if inner is None:
            return None
        origin = inner
    return origin


def install() -> None:
    """Replace mitmproxy's class by name, since it has no option to choose it."""
    _http.Http2Client = BoundedHttp2Client  # type: ignore[attr-defined]
