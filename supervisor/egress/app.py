"""Puts egress together and does what the supervisor says.

It decides nothing about connections. Until it is configured it serves nothing; when the supervisor is gone it refuses what
waits, ends every connection and is done.
"""

import asyncio
import logging
import socket
from pathlib import Path

import structlog
from mitmproxy import options
from mitmproxy.addons import core, proxyserver
from mitmproxy.master import Master
from mitmproxy.proxy import events, mode_specs
from mitmproxy.proxy.layers import modes
from mitmproxy.proxy.mode_servers import ProxyConnectionHandler

from supervisor.clock import Clock
from supervisor.core.egress_wire import (
    Answer,
    CloseListener,
    CloseSession,
    Configure,
    ForbidEndpoints,
    OpenListener,
    PutCredentials,
    Ready,
    ToEgress,
)
from supervisor.egress.admission import Admission
from supervisor.egress.dialler import PinnedLoop
from supervisor.egress.guard import Guard, where
from supervisor.egress.link import Link, LinkDownError
from supervisor.egress.meter import Meter
from supervisor.egress.questions import Questions
from supervisor.egress.resolver import Resolver
from supervisor.egress.sessions import Connection, Session, Sessions, listening_socket
from supervisor.egress.tls import GuardedTls

log = structlog.get_logger("egress")

# How long clients that waited get to read their refusal when the supervisor is gone.
FAREWELL_S = 0.5
IDLE_TIMEOUT_S = 600
STREAM_ABOVE = "64k"
MODE = mode_specs.ProxyMode.parse("regular")


class Handler(ProxyConnectionHandler):
    """One client connection; counts its bytes."""

    counted: Connection | None = None

    async def server_event(self, event: events.Event) -> None:
        if self.counted is not None and isinstance(event, events.DataReceived):
            if event.connection is self.client:
                self.counted.up_bytes += len(event.data)
            else:
                self.counted.down_bytes += len(event.data)
        await super().server_event(event)


class MitmLog(logging.Handler):
    """What mitmproxy has to say of its own failures. Its texts quote what clients sent, so only type and place are kept."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        log.error("mitmproxy failed", logger=record.name, error=where(error) if error else "")


class Egress:
    """The process, from the descriptor of its channel to its end."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sessions = Sessions()
        self._ended = asyncio.Event()
        self._questions: Questions | None = None
        self._admission: Admission | None = None
        self._master: Master | None = None
        self._link: Link | None = None
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self, channel: socket.socket) -> None:
        """Serve until the supervisor is gone."""
        async with asyncio.TaskGroup() as self._tasks:
            self._link = Link(channel, self._on_message, self._on_end)
            await self._ended.wait()
        self._sessions.close_all()

    # -- the supervisor's word --------------------------------------------------------------------------------------

    def _on_message(self, message: ToEgress, fds: list[int]) -> None:
        match message:
            case Configure():
                self._configure(message)
            case OpenListener() if len(fds) == 1:
                self._open_listener(message, fds[0])
            case CloseListener():
                self._sessions.close_listener(message.session_id, message.listener_id)
            case CloseSession():
                self._sessions.close(message.session_id)
            case PutCredentials():
                self._sessions.get(message.session_id).credentials = message.credentials
            case ForbidEndpoints():
                self._forbid(frozenset(message.endpoints))
            case Answer() if self._questions is not None:
                self._questions.answered(message)
            case _:
                log.error("message out of place", message=type(message).__name__)

    def _on_end(self, why: str) -> None:
        log.info("the channel ended", why=why)
        if self._questions is not None:
            self._questions.deny_all()
        self._sessions.stop_listening()
        asyncio.get_running_loop().call_later(FAREWELL_S, self._ended.set)

    def _configure(self, message: Configure) -> None:
        assert self._tasks is not None
        if self._master is not None:
            log.error("configured twice")
            return
        self._questions = Questions(message.hold_s)
        self._questions.link = self._link
        self._admission = Admission(self._questions, Resolver(self._clock, message.names), self._clock)
        meter = Meter(self._questions, message.model_hosts)
        self._master = self._build(message, Guard(self._sessions, self._admission, self._clock, meter))
        self._tasks.create_task(self._proxy(self._master), name="mitmproxy")

    async def _proxy(self, master: Master) -> None:
        """What `Master.run` does, without its eager tasks: uvloop's don't work with every Python 3.13."""
        assert self._link is not None
        await master.running()
        try:
            self._link.send(Ready())
        except LinkDownError:
            self._ended.set()
        await self._ended.wait()
        await master.done()

    def _build(self, message: Configure, guard: Guard) -> Master:
        """mitmproxy with five addons instead of its thirty: no onboarding page, no scripts, no commands from files."""
        master = Master(options.Options(), event_loop=asyncio.get_running_loop())
        # INVARIANT: the guard comes first, so that nothing before it can answer or change a request.
        addons = (guard, core.Core(), proxyserver.Proxyserver(), NextLayer(), GuardedTls(self._sessions))  # type: ignore[no-untyped-call]
        master.addons.add(*addons)  # type: ignore[no-untyped-call]
        master.options.update(  # type: ignore[no-untyped-call]
            confdir=str(Path(message.ca_directory)),
            server=False,  # we bring the listening sockets
            connection_strategy="lazy",
            rawtcp=False,
            http3=False,
            ssl_insecure=False,
            ssl_verify_upstream_trusted_ca=message.upstream_ca_bundle,
            upstream_cert=False,
            validate_inbound_headers=True,
            stream_large_bodies=STREAM_ABOVE,
            keep_host_header=False,
            tcp_timeout=IDLE_TIMEOUT_S,
        )
        return master

    def _forbid(self, endpoints: frozenset[tuple[str, int]]) -> None:
        if self._admission is not None:
            self._admission.forbid(endpoints)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, PinnedLoop)
        loop.forbidden = endpoints

    # -- clients ----------------------------------------------------------------------------------------------------

    def _open_listener(self, message: OpenListener, fd: int) -> None:
        session = self._sessions.get(message.session_id)
        if self._tasks is None or self._master is None or message.listener_id in session.servers:
            log.error("listener out of place", session=session.id)
            return
        try:
            sock = listening_socket(fd)
        except OSError:
            log.error("not a listening socket", session=session.id)
            return
        self._tasks.create_task(self._listen(session, message.listener_id, sock), name=f"listen-{session.id}")

    async def _listen(self, session: Session, listener_id: int, sock: socket.socket) -> None:
        async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(session, reader, writer)

        server = await asyncio.start_server(client, sock=sock)
        if session.closed:
            server.close()
        else:
            session.servers[listener_id] = server

    async def _serve(self, session: Session, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._master is not None
        handler = Handler(self._master, reader, writer, self._master.options, MODE)  # type: ignore[no-untyped-call]
        connection = self._sessions.connect(session, handler.client.id, writer, self._clock.monotonic())
        if connection is None:
            writer.transport.abort()
            return
        handler.counted = connection
        handler.layer = modes.HttpProxy(handler.layer.context)
        try:
            await handler.handle_client()
        except Exception as error:
            log.error("connection failed", error=where(error))
        finally:
            self._sessions.disconnect(handler.client.id)
            writer.close()


class NextLayer:
    """Stands where mitmproxy looks for its addon of this name; the choice is the guard's (`layers.next_layer_for`)."""

    name = "nextlayer"
