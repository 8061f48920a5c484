"""The front of egress: read the head of each connection and choose its way.

    refused       the head is no request, contradicts itself, or the supervisor denies it
    tunnelled     a CONNECT to a host that needs no inspection (`tunnels`)
    inspected     everything else, by mitmproxy (`inspector`), started by the first connection that
                  needs it

A client that knows no proxy is redirected here, and the kernel tells its destination; that is a
client's claim, like a CONNECT. Its TLS is treated as a CONNECT, its HTTP as a request through the
proxy, a DNS query goes to the name server, and anything else is refused before anybody is asked.

It knows nothing of mitmproxy: a tunnel costs no more than its bytes. Tunnels and the inspector
judge by the same `checks` and the same `admission`. It must never pass a byte on before an explicit
allow, and any exception in it is a refusal (law 3).
"""

import asyncio
import functools
import ipaddress
import re
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Literal, NamedTuple

import h11

from supervisor.base import log
from supervisor.base.clock import Clock
from supervisor.core.actions import Network
from supervisor.core.models.model_calls import is_model_host
from supervisor.core.text import hosts
from supervisor.egress.admission import secrets
from supervisor.egress.admission.admission import NAMES_PORT, Admission
from supervisor.egress.admission.egress_sessions import (
    TOO_MANY,
    ClientConnection,
    EgressSession,
    OpenQuestion,
    Sessions,
)
from supervisor.egress.admission.names import Names, is_given
from supervisor.egress.early_connect import Likely
from supervisor.egress.loop import refusals
from supervisor.egress.loop.failures import where
from supervisor.egress.loop.fair_turns import Share
from supervisor.egress.loop.refusals import RefusalBody, RefusedConnectionError
from supervisor.egress.loop.relay import MOST_HELD_BYTES, GoneError, HeldEnd, in_s
from supervisor.egress.protocols import checks, connect_head
from supervisor.egress.tunnels import ESTABLISHED, Tunnels

if TYPE_CHECKING:
    from supervisor.egress.mitm.inspector import Inspector

# How long a client may take for its first head.
HEAD_TIMEOUT_S = 60.0
_HTTP_PORT = 80
_STALE = "this address stands for no name, or for none any more"
_UNREAD = "what goes to this port is looked into, and here it can't be read"
_TOO_MANY = refusals.as_http(RefusalBody(why=TOO_MANY, remedy="close some of them"), 503)
_BUSY = refusals.as_http(refusals.of_answer(refusals.BUSY), 503)
_A_PROXY = (
    "this is an HTTP proxy: send an HTTP/1.1 request with an absolute target, or CONNECT host:port"
)
type Speech = Literal["TLS", "HTTP"]

# linux/netfilter_ipv4.h; linux/netfilter_ipv6/ip6_tables.h has the same number.
_SO_ORIGINAL_DST = 80
# Port in network order, then the address: netinet/in.h.
_SOCKADDR_IN, _SOCKADDR_IN6 = struct.Struct("!2xH4s8x"), struct.Struct("!2xH4x16s4x")
# How long a client may wait for the other side to speak first.
FIRST_WORD_S = 15.0
_TLS_HANDSHAKE = b"\x16"
_HTTP_START = re.compile(rb"[A-Z][A-Z-]{0,31} ")
_HTTP_PERHAPS = re.compile(rb"[A-Z][A-Z-]{0,31}|")


class Front:
    """One per process. `inspector` returns the inspector, started where it isn't yet; `model_hosts`
    serve models."""

    def __init__(
        self,
        sessions: Sessions,
        admission: Admission,
        likely: Likely,
        inspector: Callable[[], Awaitable["Inspector"]],
        clock: Clock,
        model_hosts: Iterable[str] = (),
    ) -> None:
        self._sessions = sessions
        self._admission = admission
        self._inspector = inspector
        self._clock = clock
        self._model_hosts = frozenset(model_hosts)
        self._likely = likely
        self._tunnels = Tunnels(admission, likely)

    async def serve(
        self,
        session: EgressSession,
        client: HeldEnd,
        *,
        is_redirected: bool = False,
        host_port: int | None = None,
    ) -> None:
        """Serve one client to its end. Raise only if cancelled. `host_port`: it wants this port of
        this machine, whatever it speaks."""
        speaks_first = is_redirected or host_port is not None
        try:
            is_busy = self._admission.is_busy
            began = self._clock.monotonic()
            connection = (
                None if is_busy else self._sessions.connect(session, client.transport, began)
            )
            if connection is None:
                # A surplus client is answered in one step: nothing it sends is read.
                client.send(
                    b"" if speaks_first or session.closed else _BUSY if is_busy else _TOO_MANY
                )
                client.end()
                return
            try:
                client.on_gone = connection.leave
                find_way = self._find_redirected_way if is_redirected else self._find_way
                if host_port is not None:
                    find_way = functools.partial(self._join_host, host_port)
                await self._serve(client, connection, find_way)
            finally:
                self._sessions.disconnect(connection)
                self._admission.ended_all(connection)
                client.end()
        except Exception as error:
            client.cut()
            log.error("connection failed", error=where(error))

    async def _serve(
        self,
        client: HeldEnd,
        connection: ClientConnection,
        find_way: Callable[[HeldEnd, ClientConnection], Awaitable[None]],
    ) -> None:
        """Choose the connection's way and take it, or send the refusal."""
        try:
            await find_way(client, connection)
        except GoneError:
            return
        except RefusedConnectionError as refused:
            await client.farewell(refused.said)
        except Exception as error:
            log.error("connection failed", error=where(error))
            await client.farewell(refusals.as_http(refusals.BROKEN))

    async def _find_way(self, client: HeldEnd, connection: ClientConnection) -> None:
        try:
            head = await _first_head(client, connection.session.share)
        except (RefusedConnectionError, GoneError):
            if client.data:
                self._admission.refused_nameless(connection)
            raise
        if head.method != "CONNECT":
            await self._look_into(client, connection)
            return
        await self._connect(client, connection, self._judge_head(connection, head), ESTABLISHED)

    async def _find_redirected_way(self, client: HeldEnd, connection: ClientConnection) -> None:
        host, port, is_stale = destination(client.transport, connection.session.names)
        if port == NAMES_PORT:
            from supervisor.egress.name_server import (
                serve_stream,
            )  # as in `app`: it was imported with the door

            session = connection.session
            refuse = functools.partial(self._admission.refused_name, session.id)
            await serve_stream(client, session.names, session.share, refuse)
            return
        action = Network(operation="connect", host=host, port=port)
        try:
            speech = await protocol_of(client)
        except SpeechError as error:
            self._admission.refused(connection, action, str(error))
            raise RefusedConnectionError(RefusalBody(why=str(error)), said=b"") from None
        try:
            if is_stale:
                self._admission.refused(connection, action, _STALE)
                raise RefusedConnectionError(
                    RefusalBody(why=_STALE, remedy="look the name up again")
                )
            if speech == "HTTP":
                connection.target, connection.is_plain = (host, port), True
                await self._look_into(client, connection)
            else:
                await self._connect(client, connection, action, b"")
        except RefusedConnectionError as refused:
            refused.said = refused.said_in_tls if speech == "TLS" else refused.said
            raise

    async def _join_host(self, port: int, client: HeldEnd, connection: ClientConnection) -> None:
        """Join a client with a port of this machine, once that is allowed."""
        action = Network(operation="connect", host=hosts.THIS_MACHINE, port=port)
        client.can_wait = False
        answer = await self._admission.admit(connection, action)
        if answer.decision != "allow":
            raise RefusedConnectionError(refusals.of_answer(answer), said=b"")
        question = OpenQuestion(answer, self._clock.monotonic(), is_all=True)
        connection.unsettled[answer.question_id] = question
        try:
            if answer.look_inside or self._looks_inside(connection, action):
                refusal = RefusalBody(why=_UNREAD, remedy="go by the proxy, in HTTP")
                raise RefusedConnectionError(refusal, said=b"")
            end = await self._tunnels.run(client, connection, action, answer, b"", is_raw=True)
            self._admission.ended(
                connection, answer.question_id, "done", {"way": "tunnel", "end": end}
            )
        except BaseException as error:
            self._admission.ended(connection, answer.question_id, "failed", {"error": _why(error)})
            raise

    async def _connect(
        self, client: HeldEnd, connection: ClientConnection, action: Network, established: bytes
    ) -> None:
        """Ask for a connection that the client wants for itself, and serve it. `established` is
        sent to the client then."""
        client.can_wait = False
        if client.is_gone or len(client.data) > MOST_HELD_BYTES:
            raise GoneError
        is_told = established != b"" and self._likely.is_allowed(connection.session, action)
        if is_told:
            # INVARIANT: nothing else happens before the verdict; whatever the client sends
            # meanwhile is held.
            client.send(established)
        try:
            await self._serve_connect(client, connection, action, b"" if is_told else established)
        except RefusedConnectionError as refused:
            self._likely.failed(connection.session, action)
            if is_told and not client.data[:1].isalpha():  # text is answered in text
                refused.said = refused.said_in_tls
            raise

    async def _serve_connect(
        self, client: HeldEnd, connection: ClientConnection, action: Network, established: bytes
    ) -> None:
        answer = await self._admission.admit(connection, action)
        if answer.decision != "allow":
            refusal = refusals.of_answer(answer)
            raise RefusedConnectionError(refusal, refusals.status_of(refusal))
        connection.unsettled[answer.question_id] = OpenQuestion(
            answer, self._clock.monotonic(), is_all=True
        )
        try:
            if answer.look_inside or self._looks_inside(connection, action):
                self._likely.failed(connection.session, action)
                connection.quiet.add(answer.question_id)
                connection.target = (action.host, action.port)
                client.send(established)
                await self._look_into(client, connection)
            else:
                end = await self._tunnels.run(client, connection, action, answer, established)
                self._admission.ended(
                    connection, answer.question_id, "done", {"way": "tunnel", "end": end}
                )
        except BaseException as error:
            self._admission.ended(connection, answer.question_id, "failed", {"error": _why(error)})
            raise

    def _judge_head(self, connection: ClientConnection, head: checks.Head) -> Network:
        """Return the action that a CONNECT asks for. Raise `RefusedConnectionError` where its head
        contradicts itself."""
        action, why = head.asked
        if action is None:
            self._admission.refused_nameless(connection)
            raise RefusedConnectionError(
                RefusalBody(
                    why="the target of CONNECT is not host:port", remedy="name a host and a port"
                )
            )
        if why is not None:
            self._admission.refused(connection, action, why)
            raise RefusedConnectionError(refusals.of_contradiction(why))
        return action

    def _looks_inside(self, connection: ClientConnection, action: Network) -> bool:
        """Return whether egress must inspect the connection for a reason of its own, whatever the
        rules say."""
        return (
            action.port
            # spoken in the clear: there is nothing to decrypt, and each request is judged
            == _HTTP_PORT
            or is_model_host(action.host, self._model_hosts)  # metered
            or secrets.has_any(connection.session.credentials, action.host, action.port)
        )

    async def _look_into(self, client: HeldEnd, connection: ClientConnection) -> None:
        inspector = await self._inspector()
        if not client.is_lost:
            await inspector.serve(connection, client)


def _why(error: BaseException) -> str:
    """Return the recorded reason why an allowed connection failed."""
    match error:
        case RefusedConnectionError():
            return error.refusal.why
        case GoneError():
            return "the client went away"
    return refusals.BROKEN.why


async def _first_head(client: HeldEnd, share: Share) -> checks.Head:
    """Read the head of the first request. After a CONNECT, the following bytes stay in
    `client.data`; for other requests all bytes stay."""
    by = in_s(HEAD_TIMEOUT_S)
    try:
        if not client.data:
            await client.more(by)
        ordinary = connect_head.read(client.data)
        if ordinary is not None:
            head, length = ordinary
            del client.data[:length]
            return head
        return await _any_head(client, share, by)
    except h11.RemoteProtocolError as error:
        refusal = RefusalBody(why=refusals.UNREADABLE, remedy=_A_PROXY)
        raise RefusedConnectionError(refusal, error.error_status_hint) from None
    except TimeoutError:
        raise RefusedConnectionError(
            RefusalBody(why="no request came in time", remedy=_A_PROXY), 408
        ) from None


async def _any_head(client: HeldEnd, share: Share, by: float) -> checks.Head:
    """Read any head, by h11."""
    parser = h11.Connection(h11.SERVER, max_incomplete_event_size=checks.MOST_HEAD_BYTES)
    read_bytes = 0
    event: object = h11.NEED_DATA
    while event is h11.NEED_DATA:
        if len(client.data) == read_bytes:
            await client.more(by)
        async with share:  # it may have thousands of lines
            parser.receive_data(bytes(client.data[read_bytes:]))
            read_bytes = len(client.data)
            event = parser.next_event()
    if not isinstance(event, h11.Request):
        raise GoneError
    if event.method == b"CONNECT":
        # INVARIANT: these bytes are the first in the tunnel, never another request.
        client.data[:] = parser.trailing_data[0]
    return connect_head.of(event.method, event.target, event.headers, event.http_version)


class Destination(NamedTuple):
    """A connection's destination: the name that its address stands for, else the address.
    `is_stale`: the address stood for a name earlier."""

    host: str
    port: int
    is_stale: bool


class SpeechError(Exception):
    """A protocol that is never passed on. Its text is a complete why."""


def destination(transport: asyncio.Transport, names: Names) -> Destination:
    """Return an accepted connection's destination. Raise `OSError` where the kernel doesn't know
    it, `GoneError` where the connection was reset before."""
    from_where = transport.get_extra_info("peername")
    if from_where is None:
        raise GoneError
    peer = ipaddress.ip_address(from_where[0])
    with socket.socket(fileno=socket.dup(transport.get_extra_info("socket").fileno())) as sock:
        # A dual-stack listener shows IPv4 peers as IPv6-mapped addresses.
        if isinstance(peer, ipaddress.IPv4Address) or peer.ipv4_mapped is not None:
            raw = sock.getsockopt(socket.SOL_IP, _SO_ORIGINAL_DST, _SOCKADDR_IN.size)
            port, packed = _SOCKADDR_IN.unpack(raw)
        else:
            raw = sock.getsockopt(socket.IPPROTO_IPV6, _SO_ORIGINAL_DST, _SOCKADDR_IN6.size)
            port, packed = _SOCKADDR_IN6.unpack(raw)
    return _meant(ipaddress.ip_address(packed), port, names)


def _meant(address: hosts.Address, port: int, names: Names) -> Destination:
    if not is_given(address):
        return Destination(hosts.canonical_host(str(address)), port, is_stale=False)
    name = names.name_of(address)
    return Destination(name or str(address), port, is_stale=name is None)


async def protocol_of(client: HeldEnd) -> Speech:
    """Return the protocol of the client's first bytes, which stay in place. Raise `SpeechError`
    where they are neither TLS nor HTTP."""
    by = in_s(FIRST_WORD_S)
    try:
        while not client.data or _HTTP_PERHAPS.fullmatch(client.data):
            await client.more(by)
    except TimeoutError:
        raise SpeechError(
            "the client waits for the other side to speak first; only TLS and HTTP are let through"
        ) from None
    except GoneError:
        if not client.data:
            raise
        raise SpeechError("the client ended before it said what it wants") from None
    if client.data.startswith(_TLS_HANDSHAKE):
        return "TLS"
    if _HTTP_START.match(client.data):
        return "HTTP"
    raise SpeechError("this is neither TLS nor HTTP, and nothing else is let through")
