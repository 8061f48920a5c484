"""WebSockets with bounded messages.

mitmproxy keeps each message until it is complete, however long it becomes. This module decides only
how much is kept of incomplete messages, per message and per session. Beyond that the connection
ends with 1009 (RFC 6455 7.4.1), which tells both sides why. INVARIANT: compressed bytes are never
inflated beyond what may be kept, not even for a moment. `install` replaces mitmproxy's classes.
"""

import contextlib
import functools
import zlib
from collections.abc import Callable, Generator, Iterable
from typing import Any

from mitmproxy.proxy import events as proxy_events
from mitmproxy.proxy import layer
from mitmproxy.proxy.layers import websocket as _websocket
from wsproto import events
from wsproto.extensions import PerMessageDeflate
from wsproto.frame_protocol import CloseReason

from supervisor.egress.admission.egress_sessions import EgressSession
from supervisor.egress.admission.rooms import Room
from supervisor.egress.mitm import exchange
from supervisor.egress.mitm.body_inspection import BodyPiece, BodyPieceHook

MOST_MESSAGE_BYTES = 16 * 1024 * 1024
MOST_OF_SESSION_BYTES = 96 * 1024 * 1024
_TOO_BIG = 1009
_AGAINST_POLICY = 1008
_TOO_LONG = "a message is longer than Gatehouse keeps"
_UNREADABLE = "a message can't be read"
_BY_EXTENSION = "error in extension"  # what wsproto says of whatever `BoundedDeflate` finds
# Added to the size of each message piece: pieces may be empty, and all pieces of a message go on in
# one step.
MESSAGE_PIECE_BYTES = 4096


class BoundedDeflate(PerMessageDeflate):
    """Inflates individually compressed messages (RFC 7692), up to the `room` that is left."""

    def __init__(self, like: PerMessageDeflate, room: Callable[[], int]) -> None:
        super().__init__(
            like.client_no_context_takeover,
            like.client_max_window_bits,
            like.server_no_context_takeover,
            like.server_max_window_bits,
        )
        self._enabled = like.enabled()
        self._room = room

    def frame_inbound_payload_data(self, proto: Any, data: bytes) -> Any:
        if not self._inbound_compressed or not self._inbound_is_compressible:
            return data
        assert self._decompressor is not None
        room = max(0, self._room())
        try:
            found = self._decompressor.decompress(
                bytes(data), room + 1
            )  # 0 would mean without a limit
        except zlib.error:
            return CloseReason.INVALID_FRAME_PAYLOAD_DATA
        return found if len(found) <= room else CloseReason.MESSAGE_TOO_BIG


class BoundedConnection(_websocket.WebsocketConnection):
    """One direction. `session` keeps the sum of all connections."""

    session: EgressSession | None = None
    # Whether the content of a ping, a pong or a close may go on.
    passes: Callable[[bytes], bool] | None = None
    _kept_bytes = 0

    def __init__(self, kind: Any, extensions: Iterable[Any] = (), **options: Any) -> None:
        super().__init__(kind, [BoundedDeflate(one, self._room) for one in extensions], **options)

    def events(self) -> Generator[Any]:
        for event in super().events():
            is_message = isinstance(event, events.Message)
            is_too_long = is_message and not self._may_keep(
                MESSAGE_PIECE_BYTES + _length_bytes(event.data)
            )
            if is_too_long or (
                isinstance(event, events.CloseConnection) and event.reason == _BY_EXTENSION
            ):
                self.let_go()
                code = _TOO_BIG if is_message else event.code
                yield events.CloseConnection(
                    code=code, reason=_TOO_LONG if code == _TOO_BIG else _UNREADABLE
                )
                return
            if self.passes is not None and not self.passes(_said(event)):
                self.let_go()
                yield events.CloseConnection(code=_AGAINST_POLICY)
                return
            if isinstance(event, events.CloseConnection) or getattr(
                event, "message_finished", False
            ):
                self.let_go()
            yield event

    def _room(self) -> int:
        """Return how much more of a message may be kept."""
        if self.session is None:
            return 0
        return min(
            MOST_MESSAGE_BYTES - self._kept_bytes,
            MOST_OF_SESSION_BYTES - self.session.message_bytes,
        )

    def _may_keep(self, count: int) -> bool:
        if self.session is None:
            return False
        self._kept_bytes += count
        self.session.message_bytes += count
        return (
            self._kept_bytes <= MOST_MESSAGE_BYTES
            and self.session.message_bytes <= MOST_OF_SESSION_BYTES
        )

    def let_go(self) -> None:
        """Release the kept bytes, which were sent on or dropped."""
        if self.session is not None:
            self.session.message_bytes -= self._kept_bytes
        self._kept_bytes = 0


def _length_bytes(data: str | bytes) -> int:
    return len(data.encode()) if isinstance(data, str) else len(data)


def _said(event: Any) -> bytes:
    """Return the payload of a control frame: RFC 6455 5.5."""
    if isinstance(event, events.Ping | events.Pong):
        return bytes(event.payload)
    return (event.reason or "").encode() if isinstance(event, events.CloseConnection) else b""


class BoundedWebsocket(_websocket.WebsocketLayer):
    """Both directions. While a message is inspected, later messages wait, and so do their
    senders."""

    def __init__(self, context: Any, flow: Any) -> None:
        super().__init__(context, flow)
        self._waiting: list[tuple[Room, int]] = []

    def handle_event(self, event: proxy_events.Event) -> layer.CommandGenerator[None]:
        if self._paused and isinstance(event, proxy_events.DataReceived):
            state = exchange.of(self.flow)
            way = state.up if event.connection == self.context.client else state.down
            if way.room is not None:
                self._waiting.append((way.room, len(event.data)))
                way.room.hold(len(event.data))
        yield from super().handle_event(event)
        if not self._paused:
            for room, count in self._waiting:
                room.hold(-count)
            self._waiting.clear()

    def start(self, event: proxy_events.Event) -> layer.CommandGenerator[None]:
        yield from super().start(event)
        state = exchange.of(self.flow)
        session, passes = state.session, state.passes
        for one in (self.client_ws, self.server_ws):
            if isinstance(one, BoundedConnection) and session is not None:
                one.session = session
                one.passes = (
                    None if passes is None else functools.partial(passes, one is self.client_ws)
                )

    _handle_event = start

    def relay_messages(self, event: proxy_events.Event) -> layer.CommandGenerator[None]:
        commands = super().relay_messages(event)
        with contextlib.suppress(StopIteration):
            command = next(commands)
            while True:
                if isinstance(command, _websocket.WebsocketMessageHook):
                    yield from self._looked_at()
                command = commands.send((yield command))
        if self._handle_event == self.done:
            for one in (self.client_ws, self.server_ws):
                if isinstance(one, BoundedConnection):
                    one.let_go()

    def _looked_at(self) -> layer.CommandGenerator[None]:
        """Inspect the next message before it goes on. INVARIANT: an uninspected message doesn't go
        on."""
        assert self.flow.websocket is not None
        message = self.flow.websocket.messages[-1]
        state = exchange.of(self.flow)
        look = (state.up if message.from_client else state.down).look
        if look is None or look.try_at_once(message.content):
            return
        piece, session = BodyPiece(look, message.content), state.session
        assert session is not None
        session.message_bytes += len(piece.data)
        yield BodyPieceHook(piece)
        session.message_bytes -= len(piece.data)
        if not piece.is_seen:
            message.drop()  # type: ignore[no-untyped-call]


def install() -> None:
    """Replace mitmproxy's classes by name, since it has no option to choose them."""
    _websocket.WebsocketConnection = BoundedConnection  # type: ignore[misc,assignment]
    _websocket.WebsocketLayer = BoundedWebsocket  # type: ignore[misc]
