"""Sessions in the egress process, and the connections of their clients.

A connection belongs to the session of the listening socket that accepted it; nothing that a client
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
# From so many on each has a part of the windows and buffers that the first ones have.
MANY_CONNECTIONS = 64
PART_OF_MANY = 16
# The client's descriptor, and those of two origins, or of one and what is on its way; a tenth of
# all is kept for what isn't a connection.
ORIGINS_EACH = 2
_FILES_EACH = 1 + ORIGINS_EACH
TOO_MANY = "this session has as many connections already as it may"
_KEPT_PART = 10
# What a connection waits for is answered so when its client goes away.
_GONE = Answer(question_id=0, decision="deny", why="the client went away", remedy="try again")
# Of so many lengths, each longer than what is known of a credential anyway, one could learn a dozen
# letters in a million requests.
MOST_BEGINNINGS = 4
# A program that tries again has some; a letter takes a hundred who measures what passed before each
# of them.
MOST_ECHOES = 12
_MOST_FORMS = 64
# Each may take 16 MB.
_MOST_WIDE = 8
# Over HTTP/2 a client takes of each stream as much as it says. It is more than one of them may
# want, so that who lets one lie can read the others.
MOST_UNREAD_BYTES = 8 * 1024 * 1024
# What a piece of a body takes besides its bytes: it may have none, and there may be any number of
# them.
PIECE_BYTES = 64
# Who closes with it says nothing more, and that it wasn't all: socket(7), SO_LINGER.
_RESETS = struct.pack("ii", 1, 0)
# What of traffic is counted (`portions`).
Kind = Literal["requests", "bytes_out"]


class Server(Protocol):
    """A server of one socket."""

    def close(self) -> None:
        """Serve no more."""


class Starting:
    """A server that is being started. If it is closed meanwhile, it never serves."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True


class Beginnings:
    """How long the beginnings of credentials were that answers to a session ended a piece in, and
    that didn't become one; and how many answers had a whole one.

    By chance there is one now and then, in a text that speaks of such credentials, as long as
    what all of them begin with. An agent that has an origin repeat its guesses sees of each
    whether it was right, since that piece waits, and goes on with a longer one.
    """

    def __init__(self) -> None:
        self.lengths_bytes: set[int] = set()
        self.echoes = 0

    @property
    def are_guesses(self) -> bool:
        """Return whether there are more than would occur by chance."""
        return len(self.lengths_bytes) > MOST_BEGINNINGS

    @property
    def are_echoes(self) -> bool:
        """Return whether so many answers had one that somebody may want to learn something from how
        they end."""
        return self.echoes >= MOST_ECHOES


class Wait:
    """One answer, whose pieces wait where they end so."""

    def __init__(self, beginnings: Beginnings) -> None:
        self._lengths = beginnings.lengths_bytes
        self._places: tuple[int, ...] = ()
        self._new: set[int] = set()

    def goes_on(self, begun: tuple[Begun, ...], *, is_whole: bool) -> None:
        """A piece came that ends in these. One that goes on as the credential does tells nothing
        yet: only as far as it went in the end.

        INVARIANT: counted before the piece waits, or hanging up would be a way to look without
        being seen.
        """
        places = tuple(one.at for one in begun)
        if is_whole or places == self._places:
            self._lengths -= self._new
        self._new = {one.length_bytes for one in begun} - self._lengths
        self._lengths |= self._new
        self._places = places


@dataclass(eq=False)
class EgressSession:
    """One session and the servers of its sockets: its sandbox's, and those of tool sandboxes of its
    own.

    `names` are what addresses mean to programs that know no proxy. `left` is what it may still
    send of what was drawn for it; `used` what it sent since that was reported. `likely` is until
    when a connection to a host and port is likely to be allowed (`early_connect`). `hides` knows
    the secrets of its credentials, and what stands for them. `message_bytes` of WebSockets'
    messages wait to be whole. `more_origins` are open beyond those that are counted with their
    clients. `wide` are the bodies on their way of which much is kept to decode them. Whoever
    looks at one of its bodies holds `turn` (`body_inspection`); whoever reads what came over one
    of its connections works in its `share`. `waiting` is what all of them keep in memory.
    """

    id: str
    servers: dict[int, Server] = field(default_factory=dict)
    names: Names = field(default_factory=Names)
    credentials: tuple[Credential, ...] = ()
    hides: SecretForms = field(default_factory=lambda: SecretForms(()))
    keep_bodies: bool = False
    connections: set["ClientConnection"] = field(default_factory=set)
    closed: bool = False
    likely: dict[tuple[str, int], float] = field(default_factory=dict)
    left: dict[Kind, int] = field(default_factory=lambda: {"requests": 0, "bytes_out": 0})
    message_bytes: int = 0
    used: dict[Kind, int] = field(default_factory=lambda: {"requests": 0, "bytes_out": 0})
    wide: weakref.WeakSet[Decoder] = field(default_factory=weakref.WeakSet)
    more_origins: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    beginnings: Beginnings = field(default_factory=Beginnings)
    share: Share = field(default_factory=Share)
    waiting: HeldBySession = field(default_factory=HeldBySession)
    _forms: dict[frozenset[str], SecretForms] = field(default_factory=dict)
    _real: set[str] = field(default_factory=set)
    _placeholders: set[str] = field(default_factory=set)

    def put(self, credentials: tuple[Credential, ...]) -> None:
        """These are its credentials from now on."""
        self.credentials = credentials
        self._forms.clear()
        # A secret may be one key of a pair, or a pair itself (`sigv4`). In halves and in any case,
        # too, as answers are looked through: one that is cut off for them was kept until then. And
        # those from before: an origin may still give one back.
        self._real |= {text for one in credentials for text in (one.secret, *one.secret.split(":"))}
        self._placeholders |= {one.placeholder for one in credentials}
        self.hides = SecretForms(self._placeholders | with_halves(in_any_case(self._real)))

    def forms_of(self, texts: frozenset[str]) -> SecretForms:
        """Return what finds these of its placeholders and secrets; kept, since its requests are
        much alike."""
        if len(self._forms) > _MOST_FORMS:
            self._forms.clear()
        if texts not in self._forms:
            self._forms[texts] = SecretForms(texts)
        return self._forms[texts]

    def may_unpack(self, decoder: Decoder) -> bool:
        """Return whether one more body may be on its way that much is kept of."""
        if not decoder.is_wide:
            return True
        if sum(one.is_wide for one in self.wide) >= _MOST_WIDE:
            return False
        self.wide.add(decoder)
        return True

    def use(self, kind: Kind, count: int) -> bool:
        """Use so much up where it is covered. Return whether it is."""
        if self.left[kind] < count:
            return False
        self.left[kind] -= count
        self.used[kind] += count
        return True

    def each_may_hold(self, most_bytes: int) -> int:
        """Return how much a new connection may hold that would hold this much alone: a part of it
        where there are many."""
        is_one_of_many = len(self.connections) > MANY_CONNECTIONS
        return most_bytes // PART_OF_MANY if is_one_of_many else most_bytes

    def announced_bytes(self) -> int:
        """Return how long the bodies are, by their heads, of the requests that are under way."""
        return sum(
            one.body_bytes
            for connection in self.connections
            for one in connection.unsettled.values()
        )

    def stop_listening(self) -> None:
        """Take no more clients."""
        self.closed = True
        for server in self.servers.values():
            server.close()
        self.servers.clear()


class OpenQuestion(NamedTuple):
    """An allowed question whose outcome wasn't reported yet. `is_all`: it is about the whole
    connection, all whose bytes are its own; those of a request are what moved since the last one
    ended, so that those of a connection that is kept add up. `flow_id` is that of a request
    beside others on its connection; `body_bytes` as much as its head announced; `ended_for` why
    the supervisor ended it."""

    answer: Answer
    started_at: float
    is_all: bool = False
    flow_id: str = ""
    ended_for: str = ""
    body_bytes: int = 0


@dataclass(eq=False)
class ClientConnection:
    """One client connection. `pins` are the checked addresses that it may dial, by host and port.

    `target` is the host and port of the CONNECT that it is inside of, once that was allowed;
    `server_name_ok` that the TLS client then named the same. `is_plain`: it was redirected to
    the door and speaks HTTP in the clear, so that nobody has judged it yet when its first
    request comes. `waiting` are open questions, each with the task that waits for its answer.
    `unsettled` are allowed questions whose outcome wasn't reported yet, and `quiet` those among
    them of which nothing goes on by itself: the CONNECT that is looked into, a request whose
    model call waits for the budget. `cut_for` is why the supervisor ended it, if it did;
    `cut_origin` ends the other end of a tunnel, `end_request` one of several requests.
    `withdrawn` says why of allowed questions that are allowed no longer, and that nothing began
    with when that was said. `over` is the denial of what its client sent last, where a budget
    doesn't cover that, and `uncovered_bytes` how much of that came; `sending` are the flows of
    it whose request may still go on. `up` is how much of its client's bodies waits in memory,
    and `down` of its origins'; `unread` is what its client, over HTTP/2, doesn't take yet.
    `up_bytes` and `down_bytes` went through here, `in_tunnel` tells what went over it besides;
    `ended` is what had when its last request ended.
    """

    id: str
    session: EgressSession
    transport: asyncio.Transport
    started_at: float
    pins: dict[tuple[str, int], Pin] = field(default_factory=dict)
    waiting: dict[asyncio.Future[Answer], asyncio.Task[object] | None] = field(default_factory=dict)
    target: tuple[str, int] | None = None
    server_name_ok: bool = False
    is_plain: bool = False
    unsettled: dict[int, OpenQuestion] = field(default_factory=dict)
    quiet: set[int] = field(default_factory=set)
    up_bytes: int = 0
    down_bytes: int = 0
    in_tunnel: Callable[[], Moved] = Moved
    ended: Moved = field(default_factory=Moved)
    cut_for: str = ""
    cut_origin: Callable[[], None] | None = None
    end_request: Callable[[str], None] | None = None
    withdrawn: dict[int, str] = field(default_factory=dict)
    over: Answer | None = None
    uncovered_bytes: int = 0
    sending: set[str] = field(default_factory=set)
    up: Room = field(init=False)
    down: Room = field(init=False)
    unread: Room = field(init=False)

    def __post_init__(self) -> None:
        waiting = self.session.waiting
        self.up, self.down = Room(waiting=waiting), Room(waiting=waiting)
        self.unread = Room(MOST_UNREAD_BYTES, waiting)

    def moved(self) -> Moved:
        """Return the bytes that went over it so far, each way."""
        in_tunnel = self.in_tunnel()
        return Moved(self.up_bytes + in_tunnel.up_bytes, self.down_bytes + in_tunnel.down_bytes)

    def moved_for(self, unsettled: OpenQuestion) -> Moved:
        """Return what of that is said to be of one of its questions."""
        moved, before = self.moved(), Moved() if unsettled.is_all else self.ended
        return Moved(moved.up_bytes - before.up_bytes, moved.down_bytes - before.down_bytes)

    def cut(self) -> None:
        """End it at once, what waits to be sent included.

        By a reset, since an answer without a length would seem whole where its connection just
        ends.
        """
        self.leave()
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            # Closed already, it may be there without a descriptor: then uvloop's says ValueError,
            # and asyncio's OSError.
            with contextlib.suppress(OSError, ValueError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESETS)
        self.transport.abort()
        if self.cut_origin is not None:
            self.cut_origin()

    def withdraw(self, question_id: int, why: str) -> None:
        """Stop what was allowed as this question. A question that is over belongs to no connection
        any more."""
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
        """End what a client waits for, since it went away; with `waiter` only what this task, a
        stream's, waits for.
        """
        for future, task in list(self.waiting.items()):
            if (waiter is None or task is waiter) and not future.done():
                future.set_result(_GONE)


class Sessions:
    """All sessions of this process, and the connections by the id that mitmproxy gives their
    client. `start` is as of `Configure`."""

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
        """Take no more clients from one of a session's sockets."""
        session = self._sessions.get(session_id)
        server = session.servers.pop(listener_id, None) if session is not None else None
        if server is not None:
            server.close()

    def get(self, session_id: str) -> EgressSession:
        """Return the session with this id; a new one is made."""
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = EgressSession(
                session_id, names=Names(session_id, self.start)
            )
            session.share = Share(lambda: self._open_connections > len(session.connections))
        return session

    def all(self) -> list[EgressSession]:
        """Every session."""
        return list(self._sessions.values())

    def connect(
        self, session: EgressSession, transport: asyncio.Transport, started_at: float
    ) -> ClientConnection | None:
        """Register a client; None where the session is closed or has too many.

        INVARIANT: no session takes the descriptors that are another's share, and all together
        never more than there are: none has more connections than are left, so that whoever comes
        later finds some.
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
        """Return whether a client may reach one origin more than are counted with it;
        `leave_another` follows. It counts as a connection."""
        if not self._has_room(session):
            return False
        self._open_connections += 1
        session.more_origins += 1
        return True

    def leave_another(self, session: EgressSession) -> None:
        """That origin is left."""
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
        """Forget mitmproxy's id of a client: its later events belong to no connection."""
        self._by_client.pop(client_id, None)

    def of_client(self, client_id: str) -> ClientConnection | None:
        """Return the connection of mitmproxy's client; None where it is unknown or ended."""
        return self._by_client.get(client_id)

    def cut(
        self, session_id: str, connection_id: str, why: str, question_id: int | None = None
    ) -> None:
        """End a connection, or what this question on it allowed, with the supervisor's reason."""
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
        """Take no more clients, of any session."""
        for session in self._sessions.values():
            session.stop_listening()

    def cut_what_goes_on(self) -> None:
        """End every connection on which what was allowed goes on; who only waits for an answer
        may still read it."""
        for session in self._sessions.values():
            for connection in list(session.connections):
                if connection.unsettled and (
                    not connection.waiting or connection.unsettled.keys() - connection.quiet
                ):
                    connection.cut()

    async def until_left(self) -> None:
        """Wait until no connection of any session is left."""
        while any(session.connections for session in self._sessions.values()):
            self._left.clear()
            await self._left.wait()

    def close_all(self) -> None:
        """Close every session."""
        for session_id in list(self._sessions):
            self.close(session_id)


def own_socket(fd: int, kind: Listener) -> socket.socket:
    """Return our own copy of a socket that the supervisor passed. `OSError` where it isn't of this
    kind."""
    sock = socket.socket(fileno=socket.dup(fd))
    listens = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    expected = (socket.SOCK_DGRAM, 0) if kind == "names" else (socket.SOCK_STREAM, 1)
    if (sock.type, listens) != expected:
        sock.close()
        raise OSError("the descriptor isn't a socket of this kind")
    return sock
