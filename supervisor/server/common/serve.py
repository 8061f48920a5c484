"""Runs apps on listening sockets with uvicorn: many in one event loop, one per session.

It adds limits that uvicorn lacks, because a client of the agent's door is hostile: connections per
listener, time until a request's head is complete, time to close. `app` handles signals. Requests
aren't logged: paths hold tokens.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from litestar import Litestar
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState

from supervisor.base.event_loop import close_listener
from supervisor.server.common import crowds

OPERATOR_CONNECTIONS = 256
# An agent parks a few waits at a time; its own tools share the door.
AGENT_CONNECTIONS = 64
# From the first instant of a connection, or the first byte after an answer, to the end of the
# request's head.
HEAD_S = 15.0
HEAD_BYTES = 16 * 1024
KEEP_ALIVE_S = 30
# What runs when the server ends is given this long; a parked wait is cut off, and begins anew after
# a restart.
GRACE_S = 2
# What is cut off then has this long to notice.
END_S = 3
# A client that was accepted is a connection of uvicorn's this many turns of the loop later.
SETTING_UP_TURNS = 3
# A lost page's transport keeps what it could not send; this long after its task ended, that is
# thrown away.
LINGER_S = 5.0
# Nothing is taken from pages, so nothing long is.
MESSAGE_BYTES = 4096


class _Http(H11Protocol):
    """h11 with a bound on connections and on the time until a request is there."""

    _head_timer: asyncio.TimerHandle | None = None
    idle_since: float | None = None
    has_asked = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # asyncio does so only for sockets made with a protocol number, which a socket from a
        # sandbox need not be. With Nagle's algorithm on, the second of two small writes waits up to
        # 40 ms for the peer's delayed acknowledgement.
        with contextlib.suppress(OSError):  # not TCP
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self._has_room():
            transport.abort()
            return
        self._arm()

    def _has_room(self) -> bool:
        if self.limit_concurrency is not None:
            return len(self.connections) <= self.limit_concurrency and crowds.admit_agent(self)
        # The operator comes in: who only sits there goes.
        others = (one for one in self.connections if isinstance(one, _Http) and one is not self)
        return len(self.connections) <= OPERATOR_CONNECTIONS or crowds.make_room(others)

    def give_way(self) -> None:
        """Somebody else needs the place."""
        self.connections.discard(self)
        self.idle_since = None
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        crowds.forget_agent(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.get_protocol() is not self:  # it became a WebSocket
            self._disarm()
        elif self.cycle is None or self.cycle.response_complete:
            self._arm()
        else:
            self.has_asked = True
            self._disarm()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle is None or self.cycle.response_complete:
            self.idle_since = self.loop.time()

    def _arm(self) -> None:
        if self.idle_since is None:
            self.idle_since = self.loop.time()
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_S, self.transport.abort)

    def _disarm(self) -> None:
        self.idle_since = None
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class _WebSockets(WebSocketsSansIOProtocol):
    """A stalled client's transport doesn't outlive its task: `close` alone waits for a buffer
    that never empties."""

    async def send(self, message: Any) -> None:
        await super().send(message)
        # Uvicorn takes an answer of HTTP for none, and says so on the terminal at each try of a
        # page that is signed out.
        if message["type"] == "websocket.http.response.body" and not message.get(
            "more_body", False
        ):
            self.handshake_complete = True

    def schedule_ping(self) -> None:
        """Not for terminals: one that stands still answers no ping, and the connection is of
        this machine."""
        if not self.scope["path"].endswith("/terminal"):
            super().schedule_ping()

    async def run_asgi(self) -> None:
        try:
            await super().run_asgi()
        finally:
            self.loop.call_later(LINGER_S, self.transport.abort)

    def shutdown(self) -> None:
        """At the end of the server. A page that says goodbye in this very instant must not break
        the end off for all others."""
        try:
            super().shutdown()
        except (
            InvalidState
        ):  # uvicorn says goodbye to whoever is still there, without asking whether that one has
            self.transport.close()


class _Cut:
    """An app whose calls can be cut off in peace: uvicorn tells the terminal of each that it cuts
    off itself, with a traceback."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.is_over = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if not self.is_over:
                raise
            # It was a wait, mostly, and begins anew after a restart; nobody may be there any more.
            with contextlib.suppress(Exception):
                await send({"type": "http.response.start", "status": 503, "headers": []})
                await send({"type": "http.response.body", "body": b""})


class _Uvicorn(uvicorn.Server):
    """Without signal handlers, and without a tick ten times a second for each session."""

    def __init__(self, config: uvicorn.Config, app: _Cut) -> None:
        super().__init__(config)
        self._app = app
        self.is_up = asyncio.Event()
        self.leave = asyncio.Event()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let running requests end within `GRACE_S`, and cut off the rest."""
        timer = asyncio.get_running_loop().call_later(GRACE_S, self._cut_off)
        # Whom uvicorn doesn't know yet, it waits for, and never says goodbye to.
        for _ in range(SETTING_UP_TURNS):
            await asyncio.sleep(0)
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()

    def _cut_off(self) -> None:
        self._app.is_over = True
        for task in self.server_state.tasks:
            task.cancel()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        self.is_up.set()
        await self.leave.wait()


class Serving:
    """An app on a socket. `await run()` in a task; `started` is set when it answers; `stop()`
    ends it and `run` returns."""

    def __init__(self, sock: socket.socket, app: Any, **more: Any) -> None:
        whole = _Cut(app)
        self._server = _Uvicorn(_config(whole, **more), whole)
        self._sock = sock
        self._app = app
        self.port: int = (
            sock.getsockname()[1] if sock.family in (socket.AF_INET, socket.AF_INET6) else 0
        )

    @property
    def started(self) -> asyncio.Event:
        return self._server.is_up

    async def run(self) -> None:
        """Serve until `stop`. Cancelling ends it too, without telling the pages."""
        try:
            await self._server.serve(sockets=[self._sock])
        finally:
            # After an orderly end there is nothing left to do here; a cancelled one leaves listener
            # and connections behind.
            self._take_no_more()
            for connection in list(self._server.server_state.connections):
                connection.transport.abort()
            # After the listeners, which close a turn later and need it open until then.
            asyncio.get_running_loop().call_soon(self._sock.close)

    async def stop(self, why: str = "Gatehouse is shutting down") -> None:
        """Tell open pages, close the listener, and let running requests end within `GRACE_S`.
        Returns once pages are told and nobody new is let in.
        """
        live = self._app.state.get("live")
        if live is not None:
            await live.shutdown(why)
        # Who made the socket may close it as soon as this returns, and its number be another's.
        self._take_no_more()
        await asyncio.sleep(0)
        self._server.leave.set()

    def _take_no_more(self) -> None:
        for server in getattr(self._server, "servers", ()):
            close_listener(server)


class LazyServing:
    """An agent's door that costs nothing until its first client comes. `build` gives the app;
    `run` has the serving run in a task."""

    def __init__(
        self,
        sock: socket.socket,
        build: Callable[[], Litestar],
        run: Callable[[Serving], object],
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._build = build
        self._run = run
        self._serving: Serving | None = None
        asyncio.get_running_loop().add_reader(sock, self._begin)

    def _begin(self) -> None:
        asyncio.get_running_loop().remove_reader(self._sock)
        self._serving = serve_agent(self._build(), self._sock)
        self._run(self._serving)

    async def stop(self) -> None:
        """End it, and close the socket."""
        if self._serving is None:
            asyncio.get_running_loop().remove_reader(self._sock)
            self._sock.close()
        else:
            await self._serving.stop()


def serve_operator(app: Litestar, sock: socket.socket) -> Serving:
    """Return the operator's door on a socket of `listening.listen`; the caller runs it."""
    return Serving(sock, app, ws=_WebSockets, ws_max_size=MESSAGE_BYTES)


def serve_agent(app: Litestar, sock: socket.socket) -> Serving:
    """Return a session's door on the listening socket inside its sandbox; the caller runs it."""
    sock.setblocking(False)
    return Serving(sock, app, ws="none", limit_concurrency=AGENT_CONNECTIONS)


def _config(app: Any, **more: Any) -> uvicorn.Config:
    crowds.count_lines()
    return uvicorn.Config(
        app,
        http=_Http,
        loop="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        ws_per_message_deflate=False,
        h11_max_incomplete_event_size=HEAD_BYTES,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S + END_S,
        **more,
    )
