"""WebSockets that are looked into, their messages bounded: mitmproxy keeps each until it is whole, however long it becomes.

It decides only how much of messages that aren't whole yet is kept, of one and of all that a session sends and gets; what is more ends the connection with
1009 (RFC 6455 7.4.1), which tells both sides why. It is apart from `layers` because nothing here is a request. `install` puts it in mitmproxy's place.
"""

from collections.abc import Generator
from typing import Any

from mitmproxy.proxy import events, layer
from mitmproxy.proxy.layers import websocket as _websocket

from supervisor.egress.sessions import Session

MOST_MESSAGE_BYTES = 16 * 1024 * 1024
MOST_OF_SESSION_BYTES = 96 * 1024 * 1024
# The key of `flow.metadata` under which the session is found.
SESSION = "gatehouse_session"
_TOO_BIG = 1009
_events = _websocket.wsproto.events  # type: ignore[attr-defined]


class BoundedConnection(_websocket.WebsocketConnection):
    """One direction. `session` keeps the sum of all."""

    session: Session | None = None
    _kept_bytes = 0

    def events(self) -> Generator[Any]:
        for event in super().events():
            if isinstance(event, _events.Message) and not self._may_keep(len(event.data)):
                self.let_go()
                yield _events.CloseConnection(code=_TOO_BIG, reason="a message is longer than Gatehouse keeps")
                return
            if isinstance(event, _events.CloseConnection) or getattr(event, "message_finished", False):
                self.let_go()
            yield event

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


class BoundedWebsocket(_websocket.WebsocketLayer):
    """Both directions."""

    def start(self, event: events.Event) -> layer.CommandGenerator[None]:
        yield from super().start(event)
        session = self.flow.metadata.get(SESSION)
        for one in (self.client_ws, self.server_ws):
            if isinstance(one, BoundedConnection) and isinstance(session, Session):
                one.session = session

    _handle_event = start

    def relay_messages(self, event: events.Event) -> layer.CommandGenerator[None]:
        yield from super().relay_messages(event)
        if self._handle_event == self.done:
            for one in (self.client_ws, self.server_ws):
                if isinstance(one, BoundedConnection):
                    one.let_go()


def install() -> None:
    """mitmproxy gives no way to choose either: both are found by these names."""
    _websocket.WebsocketConnection = BoundedConnection  # type: ignore[misc]
    _websocket.WebsocketLayer = BoundedWebsocket  # type: ignore[misc]
