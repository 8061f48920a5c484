"""Bounded HTTP/1 on both sides.

mitmproxy keeps an incomplete head, a line between chunks and pipelined requests, however long. This
module bounds them: heads and lines at a length that nobody exceeds in practice, and bytes after an
unanswered request by the connection's room (`rooms.Room`). It also decides how an origin is told
where a body ends. INVARIANT: neither client nor origin fills memory with data that never becomes a
request, a response or a body. `install` replaces mitmproxy's classes.
"""

import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import h11
from h11._readers import ChunkedReader
from mitmproxy import http
from mitmproxy.connection import ConnectionState
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers import http as _http
from mitmproxy.proxy.layers.http import _http1
from mitmproxy.proxy.layers.http._base import ReceiveHttp
from mitmproxy.proxy.layers.http._events import (
    ErrorCode,
    HttpEvent,
    RequestData,
    RequestHeaders,
    RequestTrailers,
    ResponseHeaders,
    ResponseProtocolError,
)
from mitmproxy.proxy.layers.http._http1 import Http1Client, Http1Server

from supervisor.egress.admission.rooms import Room, RoomShare
from supervisor.egress.loop import refusals
from supervisor.egress.loop.refusals import UNREADABLE, RefusalBody
from supervisor.egress.protocols.checks import MOST_HEAD_BYTES, SPOKEN

# From an origin: more than clients accept (curl: 300 kB for all headers, of which 100 kB in one).
MOST_ANSWER_HEAD_BYTES = 320 * 1024
# Over HTTP/2 each field is compared with the others; Node's clients accept this many.
MOST_ANSWER_FIELDS = 2000
# The status line of an interim answer. 101 isn't one: another protocol follows it.
_EARLY = re.compile(rb"HTTP/1\.[01] 1(?!01)[0-9]{2}(?=[ \r\n])")


class BoundedReader(ChunkedReader):
    """Reads a chunked body with bounded lines, and drops its trailers. mitmproxy can't pass
    trailers on and would hang waiting for them (`_http1.read_body`).

    Removing the chunks allows dropping trailers: RFC 9112 7.1.2.
    """

    def __call__(self, buf: Any) -> Any:
        event = super().__call__(buf)
        # A chunk's data is taken at once; what remains is an endless line or endless trailers.
        if event is None and len(buf) > MOST_HEAD_BYTES:
            raise h11.RemoteProtocolError("a line between chunks is too long")
        return h11.EndOfMessage() if isinstance(event, h11.EndOfMessage) else event


class BoundedHttp1Server(Http1Server):
    """HTTP/1 from the client. Input that comes while a request is judged and answered uses up the
    `room`, so reading pauses. `unreadable` is called for input that is no request, which nobody
    else sees."""

    def __init__(self, context: Context, room: Room, unreadable: Callable[[], None]) -> None:
        super().__init__(context)
        self._held = RoomShare(room)
        self._unreadable = unreadable

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        yield from super()._handle_event(event)
        self._held.set(len(self.buf) if self.state == self.wait else 0)

    def send(self, event: HttpEvent) -> layer.CommandGenerator[None]:
        # A connection that mitmproxy closed stays for one more turn; anything it says then would be
        # a second answer.
        if self.conn.state & ConnectionState.CAN_WRITE:
            yield from super().send(event)

    def read_headers(self, event: events.ConnectionEvent) -> layer.CommandGenerator[None]:
        for command in super().read_headers(event):
            # INVARIANT: a request line that claims HTTP/2 is refused here, since everything behind
            # this would believe it.
            said = command.event if isinstance(command, ReceiveHttp) else None
            if isinstance(said, RequestHeaders) and said.request.http_version not in SPOKEN:
                self.state, self.request = self.done, None
                yield commands.SendData(self.conn, error_response(505))
                yield commands.CloseConnection(self.conn)
                break
            yield command
        if self.state == self.read_headers and len(self.buf) > MOST_HEAD_BYTES:
            self.buf.maybe_extract_at_most(len(self.buf))
            self.state = self.done
            yield commands.SendData(self.conn, error_response(431))
            yield commands.CloseConnection(self.conn)
        if (
            self.state == self.done
            and self.request is None
            and isinstance(event, events.DataReceived)
        ):
            self._unreadable()


class BoundedHttp1Client(Http1Client):
    """HTTP/1 to the origin. Interim answers such as `103 Early Hints` are dropped (a proxy may: RFC
    9110 15.2), since mitmproxy takes them for the final answer and the rest for the next request's.

    INVARIANT: the head says where the body ends, and nothing is sent after that. An origin would
    read it as another request, which nobody judged.
    """

    def send(self, event: HttpEvent) -> layer.CommandGenerator[None]:
        if isinstance(event, RequestHeaders) and not event.end_stream:
            event = RequestHeaders(event.stream_id, _framed(event.request), end_stream=False)
        # An empty chunk would end the body early. Trailers may be dropped (RFC 9110 6.5.1), as a
        # client's are over HTTP/1: mitmproxy can't write them, and some origins take them for
        # headers.
        is_dropped = isinstance(event, RequestTrailers) or (
            isinstance(event, RequestData) and not event.data
        )
        if not is_dropped:
            yield from super().send(event)

    def read_headers(self, event: events.ConnectionEvent) -> layer.CommandGenerator[None]:
        # Their number isn't limited: each costs only its own time.
        while self.request and _EARLY.match(self.buf._data) and self.buf.maybe_extract_lines():
            pass
        for command in super().read_headers(event):
            said = command.event if isinstance(command, ReceiveHttp) else None
            if (
                isinstance(said, ResponseHeaders)
                and len(said.response.headers.fields) > MOST_ANSWER_FIELDS
            ):
                yield from self._refuse(
                    f"the response has more than {MOST_ANSWER_FIELDS:,} header fields"
                )
                break
            yield command
        if (
            self.state == self.read_headers
            and self.stream_id
            and len(self.buf) > MOST_ANSWER_HEAD_BYTES
        ):
            yield from self._refuse(
                f"the head of the response is longer than {MOST_ANSWER_HEAD_BYTES >> 10} KiB"
            )

    def _refuse(self, why: str) -> layer.CommandGenerator[None]:
        assert self.stream_id is not None
        self.buf.maybe_extract_at_most(len(self.buf))
        self.state = self.done
        yield commands.CloseConnection(self.conn)
        yield ReceiveHttp(
            ResponseProtocolError(self.stream_id, why, ErrorCode.GENERIC_SERVER_ERROR)
        )


def _framed(request: http.Request) -> http.Request:
    """Return the request with a head that says where its body ends, which HTTP/2 doesn't need. The
    flow keeps the request as the client sent it."""
    if "content-length" in request.headers or "transfer-encoding" in request.headers:
        return request
    framed = request.copy()
    if request.raw_content is None:
        framed.headers["Transfer-Encoding"] = "chunked"
    else:  # held until it was whole; S3, for one, takes nothing in chunks
        framed.headers["Content-Length"] = str(len(request.raw_content))
    return framed


def error_response(status_code: int, message: str = "") -> bytes:
    """Return the response to an unreadable request. mitmproxy's own page would quote it, and with
    it any password in its address."""
    refusal = RefusalBody(
        error="unreadable",
        why="the request's head is too long"
        if status_code == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        else UNREADABLE,
        remedy="send one with a valid head, and an address without a user and password in it",
    )
    return refusals.as_http(refusal, status_code)


def install() -> None:
    """Replace mitmproxy's classes by name, since it has no option to choose them."""
    _http1.make_error_response = error_response
    _http1.ChunkedReader = BoundedReader  # type: ignore[attr-defined]
    _http.Http1Client = BoundedHttp1Client  # type: ignore[attr-defined]
