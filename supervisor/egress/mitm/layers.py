"""mitmproxy's HTTP layers, refusing by default.

mitmproxy forwards a request whose hook raised, buffers the body of one that an addon answers, and
raises when a refused request streams. Here the layer itself refuses: a stream goes on only where
the addon allowed it (`exchange`). Otherwise it is answered 403 with the recorded reason, before its
body is read and before anything is dialled. So a hook that raises, was forgotten or never ran ends
in a refusal (law 3).

The overridden methods are mitmproxy 12.2's `HttpStream` and `HttpLayer`;
`tests/egress/loop/test_failures.py` fails when a newer mitmproxy no longer calls them.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from mitmproxy import flow, http
from mitmproxy.connection import ConnectionState
from mitmproxy.net.http.validate import validate_headers
from mitmproxy.net.tls import starts_like_tls_record
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers import modes
from mitmproxy.proxy.layers.http import (
    DropStream,
    GetHttpConnection,
    HttpLayer,
    HTTPMode,
    HttpStream,
    SendHttp,
)
from mitmproxy.proxy.layers.http._events import (
    ErrorCode,
    RequestData,
    RequestHeaders,
    RequestProtocolError,
    ResponseData,
    ResponseEndOfMessage,
    ResponseHeaders,
    ResponseProtocolError,
)
from mitmproxy.proxy.layers.http._hooks import HttpErrorHook, HttpRequestHook
from mitmproxy.proxy.layers.tls import ClientTLSLayer, ServerTLSLayer

from supervisor.core.models.model_errors import ModelError
from supervisor.egress.admission.egress_sessions import PIECE_BYTES, ClientConnection
from supervisor.egress.admission.rooms import Room
from supervisor.egress.loop.refusals import RefusalBody, phrase, status_of
from supervisor.egress.loop.relay import MOST_DROPPED_BYTES
from supervisor.egress.mitm import exchange, held_bodies
from supervisor.egress.mitm.body_inspection import BodyPiece, BodyPieceHook, Direction
from supervisor.egress.mitm.http1 import BoundedHttp1Server
from supervisor.egress.mitm.http2 import (
    MOST_WAITING_OF_ALL_BYTES,
    BoundedHttp2Server,
    Unsent,
    forget_over,
    goes_away,
    waiting_for,
)
from supervisor.egress.protocols.checks import says_body
from supervisor.egress.protocols.client_hello import HelloError, HelloReader

_NO_RESPONSE = (ErrorCode.CONNECT_FAILED, ErrorCode.GENERIC_SERVER_ERROR)
_WITHDRAWN = "allowed no longer"
_MALFORMED = "the head of the response is malformed"
TLS_PREFIX_BYTES = 3
_HTTP_START = re.compile(rb"[A-Z][A-Z-]{0,31} ")
_UNDECIDED = re.compile(rb"[A-Z][A-Z-]{0,31}|\x16\x03?|")


@dataclass
class RequestWithdrawn(events.Event):
    """This request may not go on; others of its connection may."""

    flow_id: str


def refusal_response(
    refusal: RefusalBody, http_version: str, error: ModelError | None = None, status: int = 403
) -> http.Response:
    """Return the refusal as the last response of its connection. `error` replaces it for callers of
    a model."""
    said = error or ModelError(status, {}, msgspec.json.encode(refusal))
    headers = {
        "Content-Type": "application/json",
        "Content-Length": str(len(said.body)),
        "Cache-Control": "no-store",
    }
    if not http_version.startswith("HTTP/2"):
        headers["Connection"] = "close"
    response = http.Response.make(said.status, said.body, headers | said.headers)
    if error is None:
        response.reason = phrase(refusal, status)
    return response


class GuardedStream(HttpStream):
    """One request and its response."""

    refused = False
    drained_bytes = 0
    _has_body = True

    def __init__(self, context: Context, stream_id: int) -> None:
        super().__init__(context, stream_id)
        self._held_bytes: dict[Room, int] = {}

    def handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        # The event waits until the running hook is done, so the hook is told here. Otherwise a
        # person would still be asked for a client that left.
        if self._paused and isinstance(event, RequestProtocolError):
            state = exchange.of(self.flow)
            state.gave_up = True
            if state.leave is not None:
                state.leave()
        if self._paused and isinstance(event, RequestData | ResponseData):
            state = exchange.of(self.flow)
            self._hold(
                state.up if isinstance(event, RequestData) else state.down,
                PIECE_BYTES + len(event.data),
            )
        yield from super().handle_event(event)
        if not self._paused and self._held_bytes:
            for room, count in self._held_bytes.items():
                room.hold(-count)
            self._held_bytes.clear()

    def paused(self) -> Unsent:
        """Return how much of the request's body waits for the running hook."""
        return Unsent.of(
            [event for event in self._paused_event_queue if isinstance(event, RequestData)]
        )

    def _hold(self, way: Direction, count: int) -> None:
        if way.room is not None:
            self._held_bytes[way.room] = self._held_bytes.get(way.room, 0) + count
            way.room.hold(count)

    def state_stream_request_body(self, event: events.Event) -> layer.CommandGenerator[None]:
        state = exchange.of(self.flow)
        if not isinstance(event, RequestData) or (yield from self._looked_at(state.up, event.data)):
            yield from self._stream_on(event)
        if state.is_cut and self.client_state == self.state_stream_request_body:
            # The origin must not take the part it has for the whole body.
            error = RequestProtocolError(self.stream_id, "cut off", ErrorCode.CLIENT_DISCONNECTED)
            yield from self.handle_protocol_error(error)
            self.client_state = self.state_errored

    def _stream_on(self, event: events.Event) -> layer.CommandGenerator[None]:
        """INVARIANT: if its last hook refused a request, neither its trailers nor its end go on.
        mitmproxy asks nobody once it streams."""
        for command in super().state_stream_request_body(event):
            yield command
            if isinstance(command, HttpRequestHook) and not exchange.of(self.flow).is_allowed:
                yield from self._cut_off()
                return

    def state_stream_response_body(self, event: events.Event) -> layer.CommandGenerator[None]:
        if not isinstance(event, ResponseData) or (
            yield from self._looked_at(exchange.of(self.flow).down, event.data)
        ):
            yield from super().state_stream_response_body(event)

    def send_response(self, already_streamed: bool = False) -> layer.CommandGenerator[None]:
        yield from super().send_response(already_streamed)
        goes_on = (
            self.server_state == self.state_done
            and self.client_state == self.state_stream_request_body
        )
        if goes_on and self.flow.request.is_http2:
            # The response's end, which mitmproxy delays until the request's. A client that waits
            # for it sends in vain, or sends nothing.
            yield SendHttp(ResponseEndOfMessage(self.stream_id), self.context.client)

    def _looked_at(self, way: Direction, data: bytes) -> layer.CommandGenerator[bool]:
        """Inspect a body piece before it goes on. Return whether that was possible. INVARIANT: an
        uninspected piece doesn't go on."""
        if way.look is None or way.look.try_at_once(data):
            return True
        piece = BodyPiece(way.look, data)
        yield BodyPieceHook(piece)
        if not piece.is_seen:
            yield from self._cut_off()
        return piece.is_seen

    def _cut_off(self) -> layer.CommandGenerator[None]:
        """End the stream half-way, with its client's connection."""
        exchange.of(self.flow).is_cut = True
        yield commands.CloseConnection(self.context.client)

    def state_wait_for_request_headers(self, event: events.Event) -> layer.CommandGenerator[None]:
        self._has_body = not (isinstance(event, RequestHeaders) and event.end_stream)
        yield from super().state_wait_for_request_headers(event)

    def check_invalid(self, request: bool) -> layer.CommandGenerator[bool]:
        if not request:
            return (yield from self._check_invalid_answer())
        if (yield from super().check_invalid(request)):
            if self.flow.request.is_http2:
                yield DropStream(
                    self.stream_id
                )  # which mitmproxy would keep until its connection ends
            return True
        # mitmproxy forgets right after this how the client wrote the target.
        state = exchange.of(self.flow)
        state.authority = self.flow.request.authority
        state.has_body = self._has_body or says_body(self.flow.request.headers.fields)
        state.in_tunnel = self.mode is HTTPMode.transparent
        return False

    def _check_invalid_answer(self) -> layer.CommandGenerator[bool]:
        """INVARIANT: nothing of an uninspected head goes on. mitmproxy's own answer quotes it, and
        it may contain the credential that the origin was sent."""
        assert self.flow.response is not None
        try:
            validate_headers(self.flow.response)
        except ValueError:
            self.flow.response = None
            # Over HTTP/1 that closes the connection; over HTTP/2 it ends only this stream.
            wrong = RequestProtocolError(self.stream_id, _MALFORMED, ErrorCode.CANCEL)
            yield SendHttp(wrong, self.context.server)
            error = ResponseProtocolError(
                self.stream_id, _MALFORMED, ErrorCode.GENERIC_SERVER_ERROR
            )
            yield from self.handle_protocol_error(error)
            return True
        return False

    def check_killed(self, emit_error_hook: bool) -> layer.CommandGenerator[bool]:
        # Called after each hook, before its decision takes effect.
        if self.refused:
            return True
        if (yield from super().check_killed(emit_error_hook)):
            return True
        if exchange.of(self.flow).is_allowed:
            return False
        yield from self.refuse()
        return True

    def check_body_size(self, request: bool) -> layer.CommandGenerator[bool]:
        """Hold a body that must be seen whole, instead of streaming it."""
        held = held_bodies.of(self.flow)
        if not request or held is None:
            return (yield from super().check_body_size(request))
        if held.may_hold(len(self.request_body_buf)):
            return False
        held.let_go()
        self.request_body_buf.clear()  # type: ignore[no-untyped-call]
        state = exchange.of(self.flow)
        state.is_allowed = False
        state.refusal = RefusalBody(why=held_bodies.TOO_LONG, remedy="send less in one request")
        yield from self.refuse()
        return True

    def make_server_connection(self) -> layer.CommandGenerator[bool]:
        if not exchange.of(self.flow).is_allowed:
            yield from self.refuse()
            return False
        if not (yield from super().make_server_connection()):
            return False
        # Given up or withdrawn while the origin was dialled: its head isn't sent any more.
        return not (yield from self.check_killed(True))

    def handle_protocol_error(
        self, event: RequestProtocolError | ResponseProtocolError
    ) -> layer.CommandGenerator[None]:
        """Answer for an origin that gave no response, with the addon's reason."""
        exchange.of(self.flow).gave_up = isinstance(event, RequestProtocolError)
        if (
            self.server_state == self.state_done
            and self.client_state == self.state_stream_request_body
        ):
            # The rest of the request isn't wanted any more or doesn't come, and mitmproxy reports
            # neither.
            yield HttpErrorHook(self.flow)
            if isinstance(event, RequestProtocolError):
                yield SendHttp(event, self.context.server)
        is_ours = (
            isinstance(event, ResponseProtocolError)
            and event.code in _NO_RESPONSE
            and self.flow.response is None
        )
        if self.refused or not is_ours or self.client_state == self.state_errored:
            yield from super().handle_protocol_error(event)
            return
        self.flow.error = flow.Error(event.message)
        yield HttpErrorHook(self.flow)
        yield from self.refuse()

    def refuse(self) -> layer.CommandGenerator[None]:
        """Answer with the reason, and take no further part."""
        self.refused = True
        state = exchange.of(self.flow)
        if state.question_id is not None:
            # Allowed first, then refused where nobody reports it: its body is too long, or a hook
            # raised.
            yield HttpErrorHook(self.flow)
        version, status = self.flow.request.http_version, status_of(state.refusal)
        response = refusal_response(state.refusal, version, state.model_error, status)
        self.flow.response = response
        self.flow.live = False
        self.server_state = self.state_errored
        self.client_state = self.state_refused
        client = self.context.client
        yield SendHttp(ResponseHeaders(self.stream_id, response, end_stream=False), client)
        if self.flow.request.method != "HEAD":
            yield SendHttp(ResponseData(self.stream_id, response.raw_content or b""), client)
        yield SendHttp(ResponseEndOfMessage(self.stream_id), client)
        if self.flow.request.is_http2:
            yield DropStream(self.stream_id)

    def state_refused(self, event: events.Event) -> layer.CommandGenerator[None]:
        """Drop the rest of a refused request; a long one is cut off."""
        if isinstance(event, RequestData):
            self.drained_bytes += len(event.data)
            if self.drained_bytes > MOST_DROPPED_BYTES:
                yield commands.CloseConnection(self.context.client)


class GuardedHttpLayer(HttpLayer):
    """`HttpLayer` with our streams. Early input and untaken output of a client wait in the rooms of
    its connection."""

    def __init__(
        self,
        context: Context,
        mode: HTTPMode,
        connection: ClientConnection,
        unreadable: Callable[[], None],
    ) -> None:
        super().__init__(context, mode)
        self._connection = connection
        self._unreadable = unreadable
        self._h2: BoundedHttp2Server | None = None

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        if isinstance(event, events.Start):
            context = self.context.fork()
            if self.context.client.alpn == b"h2":
                rooms = self._connection.up, self._connection.unread
                window = self._connection.session.each_may_hold(MOST_WAITING_OF_ALL_BYTES)
                self._h2 = BoundedHttp2Server(context, *rooms, self._unreadable, window)
            self.connections[self.context.client] = self._h2 or BoundedHttp1Server(
                context, self._connection.up, self._unreadable
            )
        if isinstance(event, RequestWithdrawn):
            yield from self._withdraw(event.flow_id)
        elif not isinstance(event, events.ConnectionEvent) or event.connection in self.connections:
            yield from super()._handle_event(event)
        # After all effects of an event: mitmproxy keeps each request's ids until its connection
        # ends.
        for one in self.connections.values():
            forget_over(one)
        if self._h2 is not None:
            self._h2.forget(self.streams)
            yield from self._h2.count(self._waiting)

    def get_connection(
        self, event: GetHttpConnection, *, reuse: bool = True
    ) -> layer.CommandGenerator[None]:
        self._forget()
        # mitmproxy reuses any open connection, so those that are going away are hidden meanwhile.
        leaving = {one: origin for one, origin in self.connections.items() if goes_away(origin)}
        for one in leaving:
            del self.connections[one]
        try:
            yield from super().get_connection(event, reuse=reuse)
        finally:
            self.connections |= leaving

    def _forget(self) -> None:
        """Forget closed origin connections. mitmproxy keeps each one until the client's ends: for
        an HTTP/2 client of an HTTP/1 origin, one per request. And it keeps answering with the error
        of a connection that failed."""
        in_use = {
            stream.context.server for stream in self.streams.values()
        } | self.waiting_for_establishment.keys()
        for one in list(self.connections):
            if (
                one is not self.context.client
                and one.state is ConnectionState.CLOSED
                and one not in in_use
            ):
                del self.connections[one]

    def _withdraw(self, flow_id: str) -> layer.CommandGenerator[None]:
        """End a request as if its client had given it up, which every part can handle, and tell the
        client."""
        for stream_id, stream in list(self.streams.items()):
            if stream.flow.id == flow_id:
                told = ResponseProtocolError(stream_id, _WITHDRAWN, ErrorCode.CANCEL)
                yield from self.event_to_child(self.connections[self.context.client], told)
                given_up = RequestProtocolError(stream_id, _WITHDRAWN, ErrorCode.CANCEL)
                yield from self.event_to_child(stream, given_up)

    def _waiting(self, stream_id: int) -> Unsent:
        """Return how much of a request's body hasn't gone on yet."""
        stream = self.streams.get(stream_id)
        if not isinstance(stream, GuardedStream):
            return Unsent()  # over: what an origin left lying of it goes nowhere
        found = stream.paused()
        for one in self.connections.values():
            found = found.and_(waiting_for(one, stream_id))
        return found

    def make_stream(self, stream_id: int) -> layer.CommandGenerator[None]:
        stream = GuardedStream(self.context.fork(), stream_id)
        self.streams[stream_id] = stream
        yield from self.event_to_child(stream, events.Start())


class BoundedClientTLS(ClientTLSLayer):
    """TLS from the client. Its hello is parsed as for a tunnel: mitmproxy keeps up to 16 MB of one,
    and re-parses it with each piece."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._hello = HelloReader()
        self._held = bytearray()

    def receive_handshake_data(
        self, data: bytes
    ) -> layer.CommandGenerator[tuple[bool, str | None]]:
        if not self.client_hello_parsed:
            self._held += data
            try:
                if self._hello.read(self._held) is None:
                    return False, None
            except HelloError as error:
                return (
                    False,
                    f"Cannot parse ClientHello: {error}",
                )  # by these words mitmproxy knows what it is
            data = bytes(self._held)
            self._held.clear()
        return (yield from super().receive_handshake_data(data))


class RefuseLayer(layer.Layer):
    """Cut off a client that speaks neither TLS nor HTTP. Nothing is ever dialled."""

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        if isinstance(event, events.Start):
            yield commands.CloseConnection(self.context.client)


def next_layer_for(
    context: Context, data: bytes, connection: ClientConnection, unreadable: Callable[[], None]
) -> layer.Layer | None:
    """Return the next layer, by the client's first bytes, or None until there are enough.
    `unreadable` is called for input that is no request.

    The proxy itself speaks HTTP/1 only. Inside of CONNECT come TLS or HTTP; inside of TLS comes
    HTTP. Everything else is refused: nothing is ever relayed unread.
    """
    if len(context.layers) == 1 and isinstance(context.layers[0], modes.HttpProxy):
        return GuardedHttpLayer(context, HTTPMode.regular, connection, unreadable)
    if any(isinstance(parent, ClientTLSLayer) for parent in context.layers):
        return GuardedHttpLayer(context, HTTPMode.transparent, connection, unreadable)
    if len(data) >= TLS_PREFIX_BYTES and starts_like_tls_record(data):
        server = ServerTLSLayer(context)
        server.child_layer = BoundedClientTLS(context)
        return server
    if _HTTP_START.match(data):
        return GuardedHttpLayer(context, HTTPMode.transparent, connection, unreadable)
    if _UNDECIDED.fullmatch(data):
        return None
    return RefuseLayer(context)
