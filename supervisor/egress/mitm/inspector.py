"""mitmproxy, put together: inspect the connections that the front hands over.

It is imported with the first such connection, since mitmproxy takes a second and 60 MB; only
modules that it imports know of mitmproxy. It decides nothing: `guard` asks, and `layers` refuse
whatever wasn't allowed.
"""

import asyncio
import contextlib
import dataclasses
import gc
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Self

from mitmproxy import http, options
from mitmproxy.addons import core, proxyserver
from mitmproxy.connection import Connection as AnyConnection
from mitmproxy.connection import ConnectionState
from mitmproxy.hooks import Hook
from mitmproxy.master import Master
from mitmproxy.proxy import commands, events, mode_specs, server_hooks
from mitmproxy.proxy.layers import modes
from mitmproxy.proxy.layers.http._hooks import HttpRequestHook, HttpResponseHook
from mitmproxy.proxy.mode_servers import ProxyConnectionHandler
from mitmproxy.utils import asyncio_utils

from supervisor.base import log
from supervisor.base.clock import Clock
from supervisor.core.network.egress_wire import Configure
from supervisor.egress.admission.admission import Admission
from supervisor.egress.admission.egress_sessions import (
    ORIGINS_EACH,
    TOO_MANY,
    ClientConnection,
    Sessions,
)
from supervisor.egress.admission.portions import Allowances
from supervisor.egress.admission.questions import Questions
from supervisor.egress.loop.failures import where
from supervisor.egress.loop.relay import FAREWELL_S, MOST_DROPPED_BYTES, HeldEnd
from supervisor.egress.mitm import http1, http2, websockets
from supervisor.egress.mitm.bodies import BodyCapture
from supervisor.egress.mitm.body_inspection import BodyPieceHook
from supervisor.egress.mitm.guard import Guard
from supervisor.egress.mitm.held_bodies import HeldBodies
from supervisor.egress.mitm.layers import RequestWithdrawn
from supervisor.egress.mitm.meter import Meter
from supervisor.egress.mitm.signing import Signer
from supervisor.egress.mitm.tls import GuardedTls

IDLE_TIMEOUT_S = 600
# How long a slow client gets to read the rest of a response; until then its connection counts.
LINGER_S = 60.0
# How long the end of a connection waits for running inspections.
LOOKED_S = 10.0
# How often a paused connection is checked for a hang-up.
LOOK_S = 0.1
# HTTP/2's number of concurrent streams; with mitmproxy's 5, the sixth event stream would wait for
# ever.
MOST_ORIGINS = 100
STREAM_ABOVE = "64k"
# Hooks that wait for an inspection. Without their client they wait for nothing.
_LOOKS = (BodyPieceHook, HttpRequestHook, HttpResponseHook)
MODE = mode_specs.ProxyMode.parse("regular")
# An addon's function for a hook. It returns an awaitable, or None.
type Listener = Callable[[Any], Awaitable[None] | None]


class Hooks:
    """All addons' functions for mitmproxy's hooks, in order, looked up once per hook type.
    mitmproxy walks over all addons' attributes for each hook, which takes a quarter of a request's
    time. Exceptions are logged, as in mitmproxy, and `guard` and `layers` refuse by default (law
    3)."""

    def __init__(self, addons: Iterable[object]) -> None:
        self._addons = tuple(addons)
        # By hook type: the attribute passed to the functions, and the functions.
        self._listeners: dict[type[Hook], tuple[str, tuple[Listener, ...]]] = {}

    async def run(self, hook: Hook) -> None:
        """Call the functions one after the other. An exception in one doesn't skip the others."""
        attribute, functions = self._of(type(hook))
        data = getattr(hook, attribute)
        for function in functions:
            try:
                waits = function(data)
                if waits is not None:
                    await waits
            except Exception as error:
                log.error("hook failed", hook=hook.name, error=where(error))

    def _of(self, kind: type[Hook]) -> tuple[str, tuple[Listener, ...]]:
        if kind not in self._listeners:
            # Every connection hook has exactly one attribute.
            (field,) = dataclasses.fields(kind)  # type: ignore[arg-type]
            functions = tuple(
                function
                for addon in self._addons
                if (function := getattr(addon, kind.name, None)) is not None
            )
            self._listeners[kind] = field.name, functions
        return self._listeners[kind]


class Handler(ProxyConnectionHandler):
    """Handles one client connection, and counts its bytes.

    INVARIANT: of an allowed request, only bytes that the session's allowance covers go on.
    Otherwise reading from the client pauses until it does, or the client is cut off. Bytes between
    requests go to the guard, which refuses with the reason.
    """

    def __init__(
        self,
        connection: ClientConnection,
        sessions: Sessions,
        allowances: Allowances,
        hooks: Hooks,
        *args: Any,
    ) -> None:
        super().__init__(*args)  # type: ignore[no-untyped-call]
        self._connection = connection
        self._sessions = sessions
        self._allowances = allowances
        self._hooks = hooks
        self._looking: set[asyncio.Task[Any]] = set()
        self.max_conns = defaultdict(lambda: asyncio.Semaphore(MOST_ORIGINS))

    def cut(self) -> None:
        """End it at once with its origins. Data for an origin that doesn't read would keep it open,
        and must not be sent any more."""
        for one in list(self.transports.values()):
            if isinstance(one.writer, asyncio.StreamWriter):
                one.writer.transport.abort()
            if one.handler is not None:
                one.handler.cancel("cut off")

    def end_request(self, flow_id: str) -> None:
        """End one request of a client that has several at once."""
        ended = self.server_event(RequestWithdrawn(flow_id))
        asyncio_utils.create_task(
            ended, name="withdraw", keep_ref=True, client=self.client.peername
        )

    async def hook_task(self, hook: commands.StartHook) -> None:
        task = asyncio.current_task()
        if task is not None and isinstance(hook, _LOOKS):
            self._looking.add(task)
            task.add_done_callback(self._looking.discard)
        await super().hook_task(hook)

    async def handle_hook(self, hook: commands.StartHook) -> None:
        with self.timeout_watchdog.disarm():
            if isinstance(hook, server_hooks.ClientDisconnectedHook):
                await self._looked()
            await self._hooks.run(hook)

    async def _looked(self) -> None:
        """Wait until no body of the client is being inspected, so that its end is reported
        correctly, with the kept bodies. The layers hear of the end afterwards; the report of the
        connection's end is the last."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOKED_S):
                while self._looking:
                    await asyncio.wait(self._looking)

    async def open_connection(self, command: commands.OpenConnection) -> None:
        """INVARIANT: a client's open origin connections count as its session's, so that it gets no
        descriptors beyond its share."""
        others = [one for one in self.transports if one not in (self.client, command.connection)]
        is_one_more = False
        if self.client.alpn != b"h2":  # it asks one at a time, and goes on elsewhere now
            for one in others[: 1 - ORIGINS_EACH]:
                self._let_go(one)
        elif len(others) >= ORIGINS_EACH:
            is_one_more = self._sessions.reach_another(self._connection.session)
            if not is_one_more:
                command.connection.error = TOO_MANY
        try:
            await super().open_connection(command)
        finally:
            if is_one_more:
                self._sessions.leave_another(self._connection.session)
            await self._end(command.connection)

    def _let_go(self, connection: AnyConnection) -> None:
        handler = self.transports[connection].handler
        if handler is not None:
            handler.cancel("its client goes on elsewhere")

    async def handle_connection(self, connection: AnyConnection) -> None:
        try:
            await super().handle_connection(connection)
        finally:
            await self._end(connection)

    async def _end(self, connection: AnyConnection) -> None:
        """INVARIANT: no connection outlives its task, and the layers hear of its end. Otherwise the
        other side would wait for ever.

        mitmproxy does both after its calls of `server_event`, and assumes that none is cancelled
        half-way. Ours wait, so they can be.
        """
        left = self.transports.pop(connection, None)
        if left is not None and left.writer is not None:
            left.writer.close()
            connection.state = ConnectionState.CLOSED
            await self.server_event(events.ConnectionClosed(connection))

    async def server_event(self, event: events.Event) -> None:
        if isinstance(event, events.DataReceived):
            if event.connection is not self.client:
                self._connection.down_bytes += len(event.data)
            elif not await self._is_covered(self._connection, len(event.data)):
                return
        await self._in_steps(event)
        if isinstance(event, events.DataReceived) and event.connection is self.client:
            await self._connection.up.wait()  # its client is read no further meanwhile
        elif isinstance(event, events.DataReceived):
            await self._connection.down.wait()  # nor is its origin
            await self._connection.unread.wait()

    async def _in_steps(self, event: events.Event) -> None:
        """Pass the event to the layers within the session's share. Data is split into parts, until
        the layers end the connection."""
        share = self._connection.session.share
        if not isinstance(event, events.DataReceived):
            is_told = False
            try:
                async with share:
                    is_told = True
                    await super().server_event(event)
            finally:
                if not is_told:  # cancelled: what began or ended did so all the same
                    await super().server_event(event)
            return
        for part in share.parts(event.data):
            async with share:
                await super().server_event(events.DataReceived(event.connection, part))
            if not event.connection.state & ConnectionState.CAN_READ:
                return

    def log(self, message: str, level: int = logging.INFO, exc_info: Any = None) -> None:
        """INVARIANT: an exception in a layer ends the connection (law 3). mitmproxy itself only
        logs it, and leaves both sides waiting for ever."""
        super().log(message, level, exc_info)
        if exc_info is not None:
            self._connection.cut()

    async def _is_covered(self, connection: ClientConnection, count: int) -> bool:
        """Return whether the client's bytes may be passed to the layers. If not, the client is cut
        off.

        INVARIANT: uncovered bytes that lie in the layers until their request is judged are covered
        before any later bytes.
        """
        connection.up_bytes += count
        connection.uncovered_bytes += count
        if connection.session.use("bytes_out", connection.uncovered_bytes):
            connection.over, connection.uncovered_bytes = None, 0
            return True
        connection.over = await self._allowances.take(
            connection.session, "bytes_out", connection.uncovered_bytes
        )
        if connection.over is None:
            connection.uncovered_bytes = 0
            return True
        if not connection.sending:
            return True
        connection.cut_for = connection.over.why
        connection.cut()
        return False


class _Writer(asyncio.StreamWriter):
    """Writes to a client. When mitmproxy closes it, only the write side is shut down; `_farewell`
    ends the connection."""

    def close(self) -> None:
        if not self.is_closing():
            self.write_eof()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the value. A Unix socket's address (our client of package registries) isn't the
        pair that mitmproxy expects."""
        found = super().get_extra_info(name, default)
        is_text = name in ("peername", "sockname") and isinstance(found, str | bytes)
        return ("127.0.0.1", 0) if is_text else found


class NextLayer:
    """Takes the name of mitmproxy's addon for the next layer; the guard chooses
    (`layers.next_layer_for`)."""

    name = "nextlayer"


class Inspector:
    """One per process; made by `start`."""

    def __init__(self, master: Master, sessions: Sessions, allowances: Allowances) -> None:
        self._master = master
        self._sessions = sessions
        self._allowances = allowances
        self._hooks = Hooks(master.addons.chain)

    @classmethod
    async def start(
        cls,
        configure: Configure,
        sessions: Sessions,
        questions: Questions,
        admission: Admission,
        clock: Clock,
    ) -> Self:
        """Do what `Master.run` does, without its eager tasks: uvloop's fail with some releases of
        Python 3.13."""
        held_bodies = HeldBodies()
        meter = Meter(questions, configure.model_hosts, held_bodies)
        guard = Guard(
            sessions, admission, clock, meter, BodyCapture(questions), Signer(held_bodies)
        )
        master = _build(configure, sessions, guard)
        await master.running()
        # All imported objects stay. Letting the garbage collector check them takes 50 ms now and
        # then, which stalls everybody.
        gc.freeze()
        return cls(master, sessions, admission.allowances)

    async def stop(self) -> None:
        """End mitmproxy."""
        await self._master.done()

    async def serve(self, connection: ClientConnection, client: HeldEnd) -> None:
        """Serve a client to its end, its buffered bytes first; inside `connection.target` where
        that is set."""
        reader, writer = _streams(client)
        ours = connection, self._sessions, self._allowances, self._hooks
        handler = Handler(*ours, self._master, reader, writer, self._master.options, MODE)
        context = handler.layer.context
        context.server.address = connection.target
        handler.layer = (
            modes.HttpProxy(context)
            if connection.target is None
            else modes.TransparentProxy(context)
        )
        connection.cut_origin, connection.end_request = handler.cut, handler.end_request
        self._sessions.name_client(handler.client.id, connection)
        try:
            await handler.handle_client()
        finally:
            self._sessions.forget_client(handler.client.id)
            await _farewell(reader, writer)


async def _farewell(reader: asyncio.StreamReader, writer: _Writer) -> None:
    """End a connection once its client has hung up too, or had time to read its refusal, as in
    `HeldEnd.farewell`."""
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(FAREWELL_S):
            left_bytes = MOST_DROPPED_BYTES
            while left_bytes > 0 and (data := await reader.read(left_bytes)):
                left_bytes -= len(data)
            while left_bytes <= 0 and not writer.is_closing():  # noqa: ASYNC110  # it may be cut off meanwhile, which tells nobody
                await asyncio.sleep(LOOK_S)
    writer.transport.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(LINGER_S):
            await writer.wait_closed()


def _streams(client: HeldEnd) -> tuple[asyncio.StreamReader, _Writer]:
    """Return the client's end as the streams that mitmproxy expects. Buffered bytes are read
    first."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    client.transport.set_protocol(protocol)
    protocol.connection_made(client.transport)
    # INVARIANT: this precedes feeding the reader: with much data, the reader pauses the transport
    # until it is read.
    if not (client.is_gone or client.transport.is_closing()):
        client.transport.resume_reading()
    if client.data:
        reader.feed_data(client.take())
    if client.is_gone:
        reader.feed_eof()
    return reader, _Writer(client.transport, protocol, reader, loop)


def _build(configure: Configure, sessions: Sessions, guard: Guard) -> Master:
    """Build mitmproxy with five addons instead of its thirty: no onboarding page, no scripts, no
    commands from files."""
    websockets.install()
    http1.install()
    http2.install()
    # It checks the types of everything that mitmproxy's own parsers made. That takes an eighth of a
    # request, and doesn't run under `python -O`.
    http.MessageData.__post_init__ = lambda message: None  # type: ignore[method-assign]
    master = Master(options.Options(), event_loop=asyncio.get_running_loop())
    # INVARIANT: the guard comes first, so that nothing before it can answer or change a request.
    addons = (guard, core.Core(), proxyserver.Proxyserver(), NextLayer(), GuardedTls(sessions))  # type: ignore[no-untyped-call]
    master.addons.add(*addons)  # type: ignore[no-untyped-call]
    master.options.update(  # type: ignore[no-untyped-call]
        confdir=str(Path(configure.ca_directory)),
        server=False,  # we bring the listening sockets
        connection_strategy="lazy",
        rawtcp=False,
        http3=False,
        ssl_insecure=False,
        ssl_verify_upstream_trusted_ca=configure.upstream_ca_bundle,
        upstream_cert=False,
        validate_inbound_headers=True,
        stream_large_bodies=STREAM_ABOVE,
        keep_host_header=False,
        tcp_timeout=IDLE_TIMEOUT_S,
    )
    return master
