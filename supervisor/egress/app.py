"""Put egress together and carry out the supervisor's messages.

It decides nothing about connections. It serves nothing until it is configured. When the supervisor
is gone, it refuses waiting questions, ends every connection and exits.
"""

import asyncio
import contextlib
import functools
import socket
from typing import TYPE_CHECKING, NamedTuple

from supervisor.base import log
from supervisor.base.clock import Clock
from supervisor.base.event_loop import close_listener
from supervisor.core.network.egress_wire import (
    Answer,
    CloseConnection,
    CloseListener,
    CloseSession,
    Configure,
    ForbidEndpoints,
    KeepBodies,
    OpenListener,
    PutCredentials,
    Ready,
    RulesChanged,
    ToEgress,
)
from supervisor.egress.admission.admission import Admission
from supervisor.egress.admission.egress_sessions import (
    EgressSession,
    Server,
    Sessions,
    Starting,
    own_socket,
)
from supervisor.egress.admission.link import Link, LinkDownError
from supervisor.egress.admission.portions import Allowances
from supervisor.egress.admission.questions import Progress, Questions
from supervisor.egress.admission.resolver import Resolver
from supervisor.egress.early_connect import Likely
from supervisor.egress.front import Front
from supervisor.egress.loop.dialler import PinnedLoop
from supervisor.egress.loop.failures import where
from supervisor.egress.loop.relay import ClientEnd

if TYPE_CHECKING:
    from supervisor.egress.mitm.inspector import Inspector
    from supervisor.egress.name_server import NameServer


# When the supervisor is gone: how long waiting clients get, at most, to read their refusal.
FAREWELL_S = 0.5


class _Work(NamedTuple):
    """The parts of the process, once the supervisor has configured it."""

    configured: Configure
    questions: Questions
    allowances: Allowances
    admission: Admission
    front: Front


class Egress:
    """The process, from opening its channel to its exit."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sessions = Sessions()
        self._likely = Likely(self._sessions, clock)
        self._ended = asyncio.Event()
        self._work: _Work | None = None
        self._link: Link | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._starting = asyncio.Lock()
        self._inspector: Inspector | None = None

    async def run(self, channel: socket.socket) -> None:
        """Serve until the supervisor is gone."""
        async with asyncio.TaskGroup() as self._tasks:
            self._link = Link(channel, self._on_message, self._on_end)
            await self._ended.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FAREWELL_S):
                    await self._sessions.until_left()
            self._sessions.close_all()
        if self._inspector is not None:
            await self._inspector.stop()

    # -- the supervisor's word --------------------------------------------------------------------

    def _on_message(self, message: ToEgress, fds: list[int]) -> None:
        match message:
            case Answer() if self._work is not None:
                self._work.questions.answered(message)  # first, since somebody waits for each
            case Configure():
                self._configure(message)
            case OpenListener() if len(fds) == 1:
                self._open_listener(message, fds[0])
            case CloseListener():
                self._sessions.close_listener(message.session_id, message.listener_id)
            case CloseSession():
                session = self._sessions.get(message.session_id)
                self._sessions.close(message.session_id)
                if self._work is not None:
                    self._work.questions.closed(session.id)
                    # Its last report: the stopping supervisor waits only for this.
                    self._work.allowances.close(session)
            case CloseConnection():
                self._sessions.cut(
                    message.session_id, message.connection_id, message.why, message.question_id
                )
            case PutCredentials():
                self._sessions.get(message.session_id).put(message.credentials)
                self._likely.forget()
            case KeepBodies():
                self._sessions.get(message.session_id).keep_bodies = message.is_on
            case ForbidEndpoints():
                self._forbid(frozenset(message.endpoints))
            case RulesChanged():
                self._likely.forget()
            case _:
                log.error("message out of place", message=type(message).__name__)

    def _on_end(self) -> None:
        # INVARIANT: this happens at once, also because a person's stop of everything arrives here
        # (`NetworkBroker.end_connections`).
        self._sessions.cut_what_goes_on()
        if self._work is not None:
            self._work.questions.deny_all()
        self._sessions.stop_listening()
        self._ended.set()

    def _configure(self, message: Configure) -> None:
        if self._work is not None or self._link is None:
            log.error("configured twice")
            return
        self._sessions.start = message.start
        questions = Questions(self._link, message.hold_s)
        allowances = Allowances(questions, self._sessions, self._clock)
        resolver = Resolver(self._clock, message.names)
        admission = Admission(questions, resolver, self._clock, allowances)
        Progress(self._sessions, questions.tell).start()
        front = Front(
            self._sessions,
            admission,
            self._likely,
            self._look_inside,
            self._clock,
            message.model_hosts,
        )
        self._work = _Work(message, questions, allowances, admission, front)
        try:
            self._link.send(Ready())
        except LinkDownError:
            self._ended.set()

    async def _look_inside(self) -> "Inspector":
        """Return the inspector. The first connection that needs it starts it; others wait."""
        async with self._starting:
            if self._inspector is None:
                assert self._work is not None
                # In a thread, so that tunnels go on while mitmproxy is imported.
                found = await asyncio.to_thread(_import_inspector)
                configured, questions, _, admission, _ = self._work
                self._inspector = await found.start(
                    configured, self._sessions, questions, admission, self._clock
                )
            return self._inspector

    def _forbid(self, endpoints: frozenset[tuple[str, int]]) -> None:
        self._likely.forget()
        if self._work is not None:
            self._work.admission.forbid(endpoints)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, PinnedLoop)
        loop.forbidden = endpoints

    # -- clients ----------------------------------------------------------------------------------

    def _open_listener(self, message: OpenListener, fd: int) -> None:
        session = self._sessions.get(message.session_id)
        if self._tasks is None or self._work is None or message.listener_id in session.servers:
            log.error("listener out of place", session=session.id)
            return
        try:
            sock = own_socket(fd, message.kind)
        except OSError:
            log.error("not a socket of this kind", session=session.id, kind=message.kind)
            return
        # Registered at once: it may be closed before its task begins.
        starting = session.servers[message.listener_id] = Starting()
        listen = self._listen(self._work, self._tasks, session, message, sock, starting)
        self._tasks.create_task(listen, name=f"listen-{session.id}")

    async def _listen(
        self,
        work: _Work,
        tasks: asyncio.TaskGroup,
        session: EgressSession,
        message: OpenListener,
        sock: socket.socket,
        starting: Starting,
    ) -> None:
        """Serve one socket. Its failures don't end any other."""

        def serve(client: ClientEnd) -> None:
            served = work.front.serve(
                session,
                client,
                is_redirected=message.kind == "door",
                host_port=message.port if message.kind == "host" else None,
            )
            tasks.create_task(served, name=f"client-{session.id}")

        try:
            if message.kind == "names":
                # In a thread, so that tunnels go on while dnspython is imported.
                name_server = await asyncio.to_thread(_import_name_server)
                refuse = functools.partial(work.admission.refused_name, session.id)
                names = name_server(sock, session.names, session.share, refuse)
                _serves(session, message.listener_id, starting, names)
                await names.serve()
            else:
                server = await asyncio.get_running_loop().create_server(
                    lambda: ClientEnd(serve), sock=sock
                )
                _serves(session, message.listener_id, starting, _Listener(server))
        except Exception as error:  # such as no thread to import in, or no memory
            log.error(
                "socket isn't served", session=session.id, kind=message.kind, error=where(error)
            )
            session.servers.pop(message.listener_id, starting).close()
            sock.close()


class _Listener(NamedTuple):
    """A session's listening socket."""

    server: asyncio.Server

    def close(self) -> None:
        close_listener(self.server)


def _serves(session: EgressSession, listener_id: int, starting: Starting, server: Server) -> None:
    """Register the server as the session's, unless it was closed while starting."""
    if starting.is_closed:
        server.close()
    else:
        session.servers[listener_id] = server


def _import_name_server() -> "type[NameServer]":
    from supervisor.egress.name_server import NameServer

    return NameServer


def _import_inspector() -> "type[Inspector]":
    from supervisor.egress.mitm.inspector import Inspector

    return Inspector
