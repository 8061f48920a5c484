"""WebSockets that are looked into, their messages bounded: mitmproxy keeps each until it is whole, however long it becomes.

It decides only how much of messages that aren't whole yet is kept, of one and of all that a session sends and gets; what is more ends the connection with
1009 (RFC 6455 7.4.1), which tells both sides why. INVARIANT: what a few compressed bytes stand for is never made, not even for a moment, beyond
what may be kept. It is apart from `layers` because nothing here is a request. `install` puts it in mitmproxy's place.
"""

import zlib
from collections.abc import Callable, Generator, Iterable
from typing import Any

from mitmproxy.proxy import events as proxy_events
from mitmproxy.proxy import layer
from mitmproxy.proxy.layers import websocket as _websocket
from wsproto import events
from wsproto.extensions import PerMessageDeflate
from wsproto.frame_protocol import CloseReason

from supervisor.egress.sessions import Session

MOST_MESSAGE_BYTES = 16 * 1024 * 1024
MOST_OF_SESSION_BYTES = 96 * 1024 * 1024
# The key of `flow.metadata` under which the session is found.
SESSION = "gatehouse_session"
_TOO_BIG = 1009
_TOO_LONG = "a message is longer than Gatehouse keeps"
_UNREADABLE = "a message can't be read"
_BY_EXTENSION = "error in extension"  # what wsproto says of whatever `BoundedDeflate` finds
# What a piece of a message takes besides its bytes: it may have none, and there may be any number of them.
PIECE_BYTES = 64


class BoundedDeflate(PerMessageDeflate):
    """Messages compressed one by one (RFC 7692), of which no more is inflated than there is `room` for."""

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
            found = self._decompressor.decompress(bytes(data), room + 1)  # 0 would mean without a limit
        except zlib.error:
            return CloseReason.INVALID_FRAME_PAYLOAD_DATA
        return found if len(found) <= room else CloseReason.MESSAGE_TOO_BIG


class BoundedConnection(_websocket.WebsocketConnection):
    """One direction. `session` keeps the sum of all."""

    session: Session | None = None
    _kept_bytes = 0

    def __init__(self, kind: Any, extensions: Iterable[Any] = (), **options: Any) -> None:
        super().__init__(kind, [BoundedDeflate(one, self._room) for one in extensions], **options)

    def events(self) -> Generator[Any]:
        for event in super().events():
            is_message = isinstance(event, events.Message)
            is_too_long = is_message and not self._may_keep(PIECE_BYTES + _length_bytes(event.data))
            if is_too_long or (isinstance(event, events.CloseConnection) and event.reason == _BY_EXTENSION):
                self.let_go()
                code = _TOO_BIG if is_message else event.code
                yield events.CloseConnection(code=code, reason=_TOO_LONG if code == _TOO_BIG else _UNREADABLE)
                return
            if isinstance(event, events.CloseConnection) or getattr(event, "message_finished", False):
                self.let_go()
            yield event

    def _room(self) -> int:
        """How much more of a message may be kept."""
        if self.session is None:
            return 0
        return min(MOST_MESSAGE_BYTES - self._kept_bytes, MOST_OF_SESSION_BYTES - self.session.message_bytes)

    def _may_keep(self, count: int) -> bool:
        if self.session is None:
            return False
        self._kept_bytes += count
        self.session.message_bytes += count
        return self._kept_bytes <= MOST_MESSAGE_BYTES and self.session.message_bytes <= MOST_OF_SESSION_BYTES

    def let_go(self) -> None:
        """What was kept is sent on, or dropped."""
        if self.session is not None:
            self.session.message_bytes -= self._kept_bytes
        self._kept_bytes = 0


def _length_bytes(data: str | bytes) -> int:
    return len(data.encode()) if isinstance(data, str) else len(data)


class BoundedWebsocket(_websocket.WebsocketLayer):
    """Both directions."""

    def start(self, event: proxy_events.Event) -> layer.CommandGenerator[None]:
        yield from super().start(event)
        session = self.flow.metadata.get(SESSION)
        for one in (self.client_ws, self.server_ws):
            if isinstance(one, BoundedConnection) and isinstance(session, Session):
                one.session = session

    _handle_event = start

    def relay_messages(self, event: proxy_events.Event) -> layer.CommandGenerator[None]:
        yield from super().relay_messages(event)
        if self._handle_event == self.done:
            for one in (self.client_ws, self.server_ws):
                if isinstance(one, BoundedConnection):
                    one.let_go()


def install() -> None:
    """mitmproxy gives no way to choose either: both are found by these names."""
    _websocket.WebsocketConnection = BoundedConnection  # type: ignore[misc,assignment]
    _websocket.WebsocketLayer = BoundedWebsocket  # type: ignore[misc]
