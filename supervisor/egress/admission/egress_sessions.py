"""Sessions in the egress process, and their clients' connections.

A connection belongs to the session of the listening socket that accepted it. Nothing that a client
sends can change that.
"""

import asyncio
import contextlib
import itertools
import resource
import socket
import struct
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from supervisor.core.network.egress_wire import Answer, Credential, Listener
from supervisor.core.secrets.secret_forms import Begun, SecretForms, in_any_case, with_halves
from supervisor.egress.admission.names import Names
from supervisor.egress.admission.rooms import HeldBySession, Room
from supervisor.egress.loop.dialler import Pin
from supervisor.egress.loop.fair_turns import Share
from supervisor.egress.loop.relay import Moved
from supervisor.egress.protocols.codings import Decoder

MOST_CONNECTIONS_PER_SESSION = 512
# Beyond this many connections, each new one gets only a part of the usual windows and buffers.
MANY_CONNECTIONS = 64
PART_OF_MANY = 16
# Descriptors of one connection: the client's, and two for origins (or one origin and a connection
# attempt). A tenth of all descriptors is kept for other uses.
ORIGINS_EACH = 2
_FILES_EACH = 1 + ORIGINS_EACH
TOO_MANY = "this session has as many connections already as it may"
_KEPT_PART = 10
# Answers a connection's open questions when its client goes away.
_GONE = Answer(question_id=0, decision="deny", why="the client went away", remedy="try again")
# Guessing a credential needs one new length per letter. With four lengths beyond the known prefix,
# an agent learns a dozen letters in a million requests.
MOST_BEGINNINGS = 4
# A retrying program causes a few echoes. Measuring what passed before each echo takes about a
# hundred per letter.
MOST_ECHOES = 12
_MOST_FORMS = 64
# Each may take 16 MB.
_MOST_WIDE = 8
# An HTTP/2 client chooses each stream's window. This is more than one stream may fill, so a client
# that leaves one stream unread can still read the others.
MOST_UNREAD_BYTES = 8 * 1024 * 1024
# Memory of one body piece besides its bytes. Pieces may be empty, and their number isn't bounded.
PIECE_BYTES = 64
# Closing with this option resets the connection, so the peer knows it is incomplete: socket(7),
# SO_LINGER.
_RESETS = struct.pack("ii", 1, 0)
# The kinds of traffic that are counted (`portions`).
Kind = Literal["requests", "bytes_out"]


class Server(Protocol):
    """A server of one socket."""

    def close(self) -> None:
        """Stop serving."""


class Starting:
    """A server that is still starting. If it is closed meanwhile, it never serves."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True


class Beginnings:
    """Partial and whole credentials seen at the end of pieces of a session's answers.

    By chance, a text about such credentials contains their common prefix, always of the same
    length. An agent that makes an origin repeat its guesses can tell a right guess, because that
    piece is held back, and continues with a longer one.
    """

    def __init__(self) -> None:
        # Lengths of partial credentials that didn't become whole ones.
        self.lengths_bytes: set[int] = set()
        # Answers with a whole credential.
        self.echoes = 0

    @property
    def are_guesses(self) -> bool:
        """Return whether there are more lengths than would occur by chance."""
        return len(self.lengths_bytes) > MOST_BEGINNINGS

    @property
    def are_echoes(self) -> bool:
        """Return whether there were so many echoes that an agent may be learning from where answers
        stop."""
        return self.echoes >= MOST_ECHOES


class Wait:
    """One answer, whose pieces are held back while they end in part of a credential."""

    def __init__(self, beginnings: Beginnings) -> None:
        self._lengths = beginnings.lengths_bytes
        self._places: tuple[int, ...] = ()
        self._new: set[int] = set()

    def goes_on(self, begun: tuple[Begun, ...], *, is_whole: bool) -> None:
        """Count a piece that ends in these partial credentials. While a piece continues the
        credential, only its final length counts.

        INVARIANT: it is counted before the piece is held back. Otherwise a client could look and
        hang up uncounted.
        """
        places = tuple(one.at for one in begun)
        if is_whole or places == self._places:
            self._lengths -= self._new
        self._new = {one.length_bytes for one in begun} - self._lengths
        self._lengths |= self._new
        self._places = places


@dataclass(eq=False)
class EgressSession:
    """One session, with the servers of its sandbox's and its own tool sandboxes' sockets."""

    id: str
    servers: dict[int, Server] = field(default_factory=dict)
    # Which address stands for which name, for programs that know no proxy.
    names: Names = field(default_factory=Names)
    credentials: tuple[Credential, ...] = ()
    # Finds the secrets of its credentials, and their placeholders.
    hides: SecretForms = field(default_factory=lambda: SecretForms(()))
    keep_bodies: bool = False
    connections: set["ClientConnection"] = field(default_factory=set)
    closed: bool = False
    # By host and port: until when a connection is likely to be allowed (`early_connect`).
    likely: dict[tuple[str, int], float] = field(default_factory=dict)
    # What it may still send of its drawn portions.
    left: dict[Kind, int] = field(default_factory=lambda: {"requests": 0, "bytes_out": 0})
    # Bytes of incomplete WebSocket messages.
    message_bytes: int = 0
    # What it has sent since the last report.
    used: dict[Kind, int] = field(default_factory=lambda: {"requests": 0, "bytes_out": 0})
    # Bodies in transit whose decoders keep much.
    wide: weakref.WeakSet[Decoder] = field(default_factory=weakref.WeakSet)
    # Open origin connections beyond those counted with their clients.
    more_origins: int = 0
    # Held while one of its bodies is inspected (`body_inspection`).
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    beginnings: Beginnings = field(default_factory=Beginnings)
    # Held while input of one of its connections is processed.
    share: Share = field(default_factory=Share)
    # What all its connections keep in memory.
    waiting: HeldBySession = field(default_factory=HeldBySession)
    _forms: dict[frozenset[str], SecretForms] = field(default_factory=dict)
    _real: set[str] = field(default_factory=set)
    _placeholders: set[str] = field(default_factory=set)

    def put(self, credentials: tuple[Credential, ...]) -> None:
        """Replace its credentials."""
        self.credentials = credentials
        self._forms.clear()
        # A secret may be one key of a pair, or a pair itself (`sigv4`). Halves and any case are
        # searched for, as in answers, since the body of an answer that is cut off for them was kept
        # up to there. Earlier credentials stay: an origin may still echo one.
        self._real |= {text for one in credentials for text in (one.secret, *one.secret.split(":"))}
        self._placeholders |= {one.placeholder for one in credentials}
        self.hides = SecretForms(self._placeholders | with_halves(in_any_case(self._real)))

    def forms_of(self, texts: frozenset[str]) -> SecretForms:
        """Return a finder for these placeholders and secrets. It is cached, since a session's
        requests are similar."""
        if len(self._forms) > _MOST_FORMS:
            self._forms.clear()
        if texts not in self._forms:
            self._forms[texts] = SecretForms(texts)
        return self._forms[texts]

    def may_unpack(self, decoder: Decoder) -> bool:
        """Return whether another body whose decoder keeps much may be in transit."""
        if not decoder.is_wide:
            return True
        if sum(one.is_wide for one in self.wide) >= _MOST_WIDE:
            return False
        self.wide.add(decoder)
        return True

    def use(self, kind: Kind, count: int) -> bool:
        """Use up this much where it is covered. Return whether it was."""
        if self.left[kind] < count:
            return False
        self.left[kind] -= count
        self.used[kind] += count
        return True

    def each_may_hold(self, most_bytes: int) -> int:
        """Return how much a new connection may hold that could hold `most_bytes` alone: only a part
        of it where there are many connections."""
        is_one_of_many = len(self.connections) > MANY_CONNECTIONS
        return most_bytes // PART_OF_MANY if is_one_of_many else most_bytes

    def announced_bytes(self) -> int:
        """Return the total length that the heads of its open requests announce for their bodies."""
        return sum(
            one.body_bytes
            for connection in self.connections
            for one in connection.unsettled.values()
        )

    def stop_listening(self) -> None:
        """Accept no more clients."""
        self.closed = True
        for server in self.servers.values():
            server.close()
        self.servers.clear()


class OpenQuestion(NamedTuple):
    """An allowed question whose outcome hasn't been reported yet."""

    answer: Answer
    started_at: float
    # Whether it covers the whole connection, and so all its bytes. A request gets only the bytes
    # since the last one ended, so that requests on a kept connection add up.
    is_all: bool = False
    # The request, where several share the connection.
    flow_id: str = ""
    # Why the supervisor ended it.
    ended_for: str = ""
    # The body length that its head announced.
    body_bytes: int = 0


@dataclass(eq=False)
class ClientConnection:
    """One client connection."""

    id: str
    session: EgressSession
    transport: asyncio.Transport
    started_at: float
    # The checked addresses that it may dial, by host and port.
    pins: dict[tuple[str, int], Pin] = field(default_factory=dict)
    # Open questions, each with the task that waits for its answer.
    waiting: dict[asyncio.Future[Answer], asyncio.Task[object] | None] = field(default_factory=dict)
    # Host and port of the allowed CONNECT that it is inside of.
    target: tuple[str, int] | None = None
    # Whether the client then named the same host in TLS.
    server_name_ok: bool = False
    # Whether it was redirected here and speaks plain HTTP: nothing was judged before its first
    # request.
    is_plain: bool = False
    # Allowed questions whose outcome hasn't been reported yet.
    unsettled: dict[int, OpenQuestion] = field(default_factory=dict)
    # Those of them without activity of their own: an inspected CONNECT, or a request whose model
    # call waits for the budget.
    quiet: set[int] = field(default_factory=set)
    # What went through here. `in_tunnel` gives what a tunnel moved besides.
    up_bytes: int = 0
    down_bytes: int = 0
    in_tunnel: Callable[[], Moved] = Moved
    # The total when its last request ended.
    ended: Moved = field(default_factory=Moved)
    # Why the supervisor ended it, if it did.
    cut_for: str = ""
    # Ends the other end of a tunnel.
    cut_origin: Callable[[], None] | None = None
    # Ends one of several requests.
    end_request: Callable[[str], None] | None = None
    # Why allowed questions were withdrawn before anything began with them.
    withdrawn: dict[int, str] = field(default_factory=dict)
    # The denial where a budget doesn't cover what the client sent last, and how much of that came.
    over: Answer | None = None
    uncovered_bytes: int = 0
    # Its flows whose request may still continue.
    sending: set[str] = field(default_factory=set)
    # How much waits in memory of its client's bodies, and of its origins' bodies.
    up: Room = field(init=False)
    down: Room = field(init=False)
    # What its HTTP/2 client doesn't accept yet.
    unread: Room = field(init=False)

    def __post_init__(self) -> None:
        waiting = self.session.waiting
        self.up, self.down = Room(waiting=waiting), Room(waiting=waiting)
        self.unread = Room(MOST_UNREAD_BYTES, waiting)

    def moved(self) -> Moved:
        """Return how many bytes went over it so far, each way."""
        in_tunnel = self.in_tunnel()
        return Moved(self.up_bytes + in_tunnel.up_bytes, self.down_bytes + in_tunnel.down_bytes)

    def moved_for(self, unsettled: OpenQuestion) -> Moved:
        """Return how many of those bytes are reported for one of its questions."""
        moved, before = self.moved(), Moved() if unsettled.is_all else self.ended
        return Moved(moved.up_bytes - before.up_bytes, moved.down_bytes - before.down_bytes)

    def cut(self) -> None:
        """End it at once, and drop what still waits to be sent.

        It is reset: an answer without a length would seem complete if its connection just closed.
        """
        self.leave()
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            # A closed socket may have no descriptor any more: uvloop's then raises ValueError, and
            # asyncio's OSError.
            with contextlib.suppress(OSError, ValueError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESETS)
        self.transport.abort()
        if self.cut_origin is not None:
            self.cut_origin()

    def withdraw(self, question_id: int, why: str) -> None:
        """Stop what this question allowed. A question that is over no longer belongs to any
        connection."""
        found = self.unsettled.get(question_id)
        if found is None:
            self.withdrawn[question_id] = why
        elif not found.ended_for:
            self.unsettled[question_id] = found._replace(ended_for=why)
            if found.flow_id and self.end_request is not None:
                self.end_request(found.flow_id)
            else:
                self.cut()

    def leave(self, waiter: asyncio.Task[object] | None = None) -> None:
        """End the client's waits, since it went away; with `waiter`, only those of this stream's
        task."""
        for future, task in list(self.waiting.items()):
            if (waiter is None or task is waiter) and not future.done():
                future.set_result(_GONE)


class Sessions:
    """All sessions of this process, and the connections by mitmproxy's client id.

    `start` is the one in `Configure`.
    """

    start = 0

    def __init__(self) -> None:
        most_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most_connections = (most_files - most_files // _KEPT_PART) // _FILES_EACH
        self._open_connections = 0
        self._left = asyncio.Event()
        self._sessions: dict[str, EgressSession] = {}
        self._by_client: dict[str, ClientConnection] = {}
        self._ids = itertools.count(1)

    def close_listener(self, session_id: str, listener_id: int) -> None:
        """Accept no more clients from one of a session's sockets."""
        session = self._sessions.get(session_id)
        server = session.servers.pop(listener_id, None) if session is not None else None
        if server is not None:
            server.close()

    def get(self, session_id: str) -> EgressSession:
        """Return the session with this id, created if it is new."""
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = EgressSession(
                session_id, names=Names(session_id, self.start)
            )
            session.share = Share(lambda: self._open_connections > len(session.connections))
        return session

    def all(self) -> list[EgressSession]:
        """Return all sessions."""
        return list(self._sessions.values())

    def connect(
        self, session: EgressSession, transport: asyncio.Transport, started_at: float
    ) -> ClientConnection | None:
        """Register a client. Return None where the session is closed or has too many.

        INVARIANT: no session takes descriptors from another's share, and all sessions together stay
        below the limit. No session may have more connections than are still free, so newcomers
        always find some.
        """
        if session.closed or not self._has_room(session):
            return None
        self._open_connections += 1
        connection = ClientConnection(
            f"{session.id}/{next(self._ids)}", session, transport, started_at
        )
        session.connections.add(connection)
        return connection

    def reach_another(self, session: EgressSession) -> bool:
        """Return whether a client may reach one origin more than is counted with it. That origin
        counts as a connection; call `leave_another` afterwards."""
        if not self._has_room(session):
            return False
        self._open_connections += 1
        session.more_origins += 1
        return True

    def leave_another(self, session: EgressSession) -> None:
        """Release an origin that `reach_another` counted."""
        self._open_connections -= 1
        session.more_origins -= 1

    def _has_room(self, session: EgressSession) -> bool:
        share = self._most_connections // max(1, len(self._sessions))
        left = self._most_connections - self._open_connections
        return len(session.connections) + session.more_origins < min(
            MOST_CONNECTIONS_PER_SESSION, share, left
        )

    def disconnect(self, connection: ClientConnection) -> None:
        """Forget a client whose connection ended."""
        if connection in connection.session.connections:
            self._open_connections -= 1
            self._left.set()
        connection.session.connections.discard(connection)
        connection.leave()
        for room in (connection.up, connection.down, connection.unread):
            room.leave()

    def name_client(self, client_id: str, connection: ClientConnection) -> None:
        """Register the id that mitmproxy gives this connection's client."""
        self._by_client[client_id] = connection

    def forget_client(self, client_id: str) -> None:
        """Forget mitmproxy's id of a client, so that its later events belong to no connection."""
        self._by_client.pop(client_id, None)

    def of_client(self, client_id: str) -> ClientConnection | None:
        """Return the connection of mitmproxy's client, or None where it is unknown or ended."""
        return self._by_client.get(client_id)

    def cut(
        self, session_id: str, connection_id: str, why: str, question_id: int | None = None
    ) -> None:
        """End a connection, or only what this question allowed on it, for the supervisor's
        reason."""
        session = self._sessions.get(session_id)
        for connection in list(session.connections) if session is not None else ():
            if connection.id != connection_id:
                continue
            if question_id is not None:
                connection.withdraw(question_id, why)
            else:
                connection.cut_for = why
                connection.cut()

    def close(self, session_id: str) -> None:
        """Stop serving a session and end its connections."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        session.stop_listening()
        for connection in list(session.connections):
            connection.cut()

    def stop_listening(self) -> None:
        """Accept no more clients in any session."""
        for session in self._sessions.values():
            session.stop_listening()

    def cut_what_goes_on(self) -> None:
        """End every connection with allowed activity. Clients that only wait for an answer may
        still read it."""
        for session in self._sessions.values():
            for connection in list(session.connections):
                if connection.unsettled and (
                    not connection.waiting or connection.unsettled.keys() - connection.quiet
                ):
                    connection.cut()

    async def until_left(self) -> None:
        """Wait until no session has a connection left."""
        while any(session.connections for session in self._sessions.values()):
            self._left.clear()
            await self._left.wait()

    def close_all(self) -> None:
        """Close every session."""
        for session_id in list(self._sessions):
            self.close(session_id)


def own_socket(fd: int, kind: Listener) -> socket.socket:
    """Return our own copy of a socket that the supervisor passed. Raise `OSError` where it isn't of
    this kind."""
    sock = socket.socket(fileno=socket.dup(fd))
    listens = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    expected = (socket.SOCK_DGRAM, 0) if kind == "names" else (socket.SOCK_STREAM, 1)
    if (sock.type, listens) != expected:
        sock.close()
        raise OSError("the descriptor isn't a socket of this kind")
    return sock
