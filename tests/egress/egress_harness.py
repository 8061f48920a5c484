"""A supervisor's end of the channel that tests answer for, origins that note every byte, and raw
clients.

The egress process is the real one, with the real mitmproxy; only the gate behind the channel is
the test's.
"""

import asyncio
import contextlib
import json
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import trustme

from supervisor import settings
from supervisor.base import process
from supervisor.base.clock import RealClock
from supervisor.core.budget import UNLIMITED
from supervisor.core.network.egress_wire import (
    MAX_MESSAGE_BYTES,
    Answer,
    CloseSession,
    Configure,
    Credential,
    Draw,
    ForbidEndpoints,
    FromEgress,
    OpenListener,
    Outcomes,
    PutCredentials,
    Question,
    Ready,
    Settled,
    ToEgress,
    decode_from_egress,
    encode,
)
from supervisor.network import ca, network
from tests.fakes import warm_egress
from tests.fakes.waiting import PATIENCE_S

type Decide = Callable[[Question], Answer | Awaitable[Answer] | None]

# Every name that the tests use; each stands for this machine unless a test wants otherwise.
NAMES = {
    "origin.test": ("127.0.0.1",),
    "other.test": ("127.0.0.1",),
    "two.test": ("127.0.0.1",),
}


def allow(question: Question) -> Answer:
    return Answer(question_id=question.question_id, decision="allow", private_ok=True, settle=True)


def deny(question: Question, why: str = "denied by a test") -> Answer:
    return Answer(
        question_id=question.question_id,
        decision="deny",
        why=why,
        rule="network(origin.test)",
        remedy="do without",
        request_id="r-1",
    )


class FakeSupervisor:
    """Speaks the channel's protocol. `decide` answers a question; None leaves it open."""

    def __init__(self, child: process.Child, sock: socket.socket) -> None:
        self.child = child
        self.sock = sock
        self.decide: Decide = allow
        self.grant: Callable[[Draw], None] = self.grant_all
        self.messages: list[FromEgress] = []
        self.ready = asyncio.Event()
        self.changed = asyncio.Condition()
        self.ended = asyncio.Event()
        self.reads = asyncio.Event()
        self.reads.set()
        self._over: set[str] = set()
        self._asked_by: dict[int, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def questions(self) -> list[Question]:
        return [message for message in self.messages if isinstance(message, Question)]

    def of_type[T](self, kind: type[T]) -> list[T]:
        return [message for message in self.messages if isinstance(message, kind)]

    def reset(self) -> None:
        self.decide = allow
        self.messages.clear()

    def end(self, session_id: str) -> None:
        """Close a session, and hear no more of it: what is told of it late belongs to no test
        that comes after."""
        self._over.add(session_id)
        with contextlib.suppress(OSError):
            self.send(CloseSession(session_id=session_id))

    def _is_over(self, message: FromEgress) -> bool:
        question_id = getattr(message, "question_id", None)
        session_id = getattr(message, "session_id", None) or self._asked_by.get(question_id or 0)
        if question_id is not None and session_id is not None:
            self._asked_by[question_id] = session_id
        return session_id in self._over

    def send(self, message: ToEgress, fds: Sequence[int] = ()) -> None:
        socket.send_fds(self.sock, [encode(message)], list(fds))

    async def until[T](self, kind: type[T], count: int = 1) -> T:
        """The latest message of a kind, once there are so many."""
        async with asyncio.timeout(PATIENCE_S), self.changed:
            await self.changed.wait_for(lambda: len(self.of_type(kind)) >= count)
        return self.of_type(kind)[-1]

    async def until_one(self, wanted: Callable[[FromEgress], bool]) -> None:
        """Until there is such a message; others, of connections that ended late, may come
        before."""
        async with asyncio.timeout(PATIENCE_S), self.changed:
            await self.changed.wait_for(lambda: any(map(wanted, self.messages)))

    async def settled(self) -> Settled:
        """The outcome of a question that was asked since the last look; those of connections
        that ended before may come first."""

        def found() -> list[Settled]:
            asked = {question.question_id for question in self.questions}
            return [one for one in self.of_type(Settled) if one.question_id in asked]

        async with asyncio.timeout(PATIENCE_S), self.changed:
            await self.changed.wait_for(found)
        return found()[-1]

    async def read(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self.reads.wait()
            try:
                packet = await loop.sock_recv(self.sock, MAX_MESSAGE_BYTES)
            except OSError:
                packet = b""
            if not packet:
                self.ended.set()
                return
            message = decode_from_egress(packet)
            told = message.settled if isinstance(message, Outcomes) else (message,)
            if heard := [one for one in told if not self._is_over(one)]:
                await self._hear(heard)

    async def _hear(self, heard: Sequence[FromEgress]) -> None:
        async with self.changed:
            self.messages += heard
            self.changed.notify_all()
        for message in heard:
            if isinstance(message, Ready):
                self.ready.set()
            if isinstance(message, Draw):
                self.grant(message)
            if isinstance(message, Question):
                task = asyncio.create_task(self._answer(message))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def grant_all(self, draw: Draw) -> None:
        """Let a session send as much as it likes."""
        with contextlib.suppress(OSError):
            self.send(Answer(question_id=draw.question_id, decision="allow", granted=UNLIMITED))

    async def _answer(self, question: Question) -> None:
        answer = self.decide(question)
        if isinstance(answer, Awaitable):
            answer = await answer
        if answer is not None:
            with contextlib.suppress(OSError):
                self.send(answer)


@contextlib.asynccontextmanager
async def running_egress(
    tmp_path: Path,
    upstream_ca: Path,
    *,
    names: dict[str, tuple[str, ...]] | None = None,
    hold_s: float = PATIENCE_S,
    broken: str | None = None,
    preface: str | None = None,
    channel_bytes: int | None = None,
) -> AsyncIterator[FakeSupervisor]:
    """A real egress process, configured and ready. `broken` names a hook that raises
    (`broken_egress.py`); with `preface` it is started as the product starts it, after that was run;
    `channel_bytes` is how much the channel holds for a supervisor that doesn't read."""
    ca.ensure_ca(tmp_path / "ca", RealClock())
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    if preface is None:
        breaks = f"from tests.egress.broken_egress import break_all\nbreak_all({broken!r})"
        start = warm_egress.command(breaks if broken else "")
    else:
        text = f"{preface}\nfrom supervisor.egress.__main__ import main\nmain()"
        start = (sys.executable, "-c", text) if preface else network.EGRESS
    with theirs:
        if channel_bytes is not None:
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, channel_bytes)
        child = await process.spawn(
            [*start, "--channel-fd", str(theirs.fileno())],
            env={"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(settings.ROOT)},
            cwd=settings.ROOT,
            stderr=None,
            pass_fds=[theirs.fileno()],
        )
    supervisor = FakeSupervisor(child, ours)
    reader = asyncio.create_task(supervisor.read())
    try:
        supervisor.send(
            Configure(
                ca_directory=str(tmp_path / "ca"),
                upstream_ca_bundle=str(upstream_ca),
                hold_s=hold_s,
                names=NAMES if names is None else names,
            )
        )
        async with asyncio.timeout(PATIENCE_S):
            await supervisor.ready.wait()
        yield supervisor
    finally:
        reader.cancel()
        await asyncio.wait([reader])  # before its descriptor is another's
        ours.close()
        async with asyncio.timeout(PATIENCE_S):
            await child.wait()
        child.close()


@dataclass
class Proxy:
    """One session's listening socket, served by egress."""

    supervisor: FakeSupervisor
    session_id: str
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def credentials(self, *credentials: Credential) -> None:
        self.supervisor.send(PutCredentials(session_id=self.session_id, credentials=credentials))

    def forbid(self, *endpoints: tuple[str, int]) -> None:
        self.supervisor.send(ForbidEndpoints(endpoints=endpoints))

    async def send(self, data: bytes, *, eof: bool = False) -> bytes:
        """What comes back for these raw bytes, until the proxy closes or falls silent after a
        whole answer."""
        reader, writer = await self.open()
        try:
            writer.write(data)
            if eof:
                writer.write_eof()
            return await answer_of(reader)
        finally:
            writer.close()

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def get_inside(self, target: str, ca_file: Path) -> bytes:
        """The answer to a GET inside of a tunnel to `host:port`, whose certificate this
        authority signed."""
        reader, writer = await self.tunnel(target, trust=ca_file)
        try:
            writer.write(f"GET / HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
            return await answer_of(reader)
        finally:
            writer.close()

    async def tunnel(
        self, target: str, *, sni: str | None = "", trust: Path, alpn: Sequence[str] = ()
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A TLS stream inside of CONNECT; `sni` "" means the target's host, None means none."""
        reader, writer = await self.open()
        writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in head.split(b"\r\n", 1)[0]:
                raise RefusedTunnelError(head + await reader.read())
        except BaseException:
            writer.close()
            raise
        context = ssl.create_default_context(cafile=str(trust))
        context.check_hostname = False
        if alpn:
            context.set_alpn_protocols(list(alpn))
        host = target.rpartition(":")[0].strip("[]")
        try:
            await writer.start_tls(context, server_hostname=(host if sni == "" else sni) or "")
        except BaseException:
            writer.close()
            raise
        return reader, writer


class RefusedTunnelError(Exception):
    """The proxy's answer to a CONNECT that it refused."""

    def __init__(self, answer: bytes) -> None:
        super().__init__(answer)
        self.answer = answer

    @property
    def body(self) -> dict[str, str]:
        return body_of(self.answer)


def body_of(answer: bytes) -> dict[str, str]:
    found: dict[str, str] = json.loads(answer.partition(b"\r\n\r\n")[2])
    return found


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/") else 0


async def answer_of(reader: asyncio.StreamReader) -> bytes:
    """One response: its head, and its body by Content-Length or to the end. b"" where the peer
    just closed."""
    async with asyncio.timeout(PATIENCE_S):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            return error.partial
        except ConnectionError:
            return b""
        for line in head.split(b"\r\n"):
            if line.lower().startswith(b"content-length:"):
                return head + await reader.readexactly(int(line.split(b":")[1]))
        if status_of(head) in (101, 204) or b"Connection established" in head:
            return head
        return head + await reader.read()


@dataclass
class Origin:
    """A server on this machine that notes every byte it gets."""

    port: int
    received: bytearray = field(default_factory=bytearray)
    connections: int = 0
    respond: Callable[[bytes], bytes] | None = None

    @property
    def untouched(self) -> bool:
        return self.connections == 0 and not self.received

    def reset(self) -> None:
        self.received = bytearray()
        self.connections = 0
        self.respond = None


@contextlib.asynccontextmanager
async def running_origin(context: ssl.SSLContext | None = None) -> AsyncIterator[Origin]:
    """Answers each request with 200 and its request line."""
    origin = Origin(0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        origin.connections += 1
        received = origin.received  # what is cut off in the middle belongs to the test that sent it
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                origin.received += head
                async for piece in _body(head, reader):
                    origin.received += piece
                line = head.split(b"\r\n", 1)[0]
                answer = origin.respond(head) if origin.respond else _ok(line)
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            received += getattr(error, "partial", b"")
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    origin.port = server.sockets[0].getsockname()[1]
    try:
        yield origin
    finally:
        server.close()


async def _body(head: bytes, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """What follows a request's head, as it comes over the wire; all of it, since who hangs up on
    unread bytes resets its own answer."""
    fields = [line.lower().partition(b":")[::2] for line in head.split(b"\r\n")]
    if any(
        name == b"transfer-encoding" and value.strip().endswith(b"chunked")
        for name, value in fields
    ):
        while size := int((line := await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
            yield line
            yield await reader.readexactly(size + len(b"\r\n"))
        while line != b"\r\n":  # the last chunk's line, its trailers
            yield line
            line = await reader.readuntil(b"\r\n")
        yield line
        return
    for name, value in fields:
        if name == b"content-length":
            yield await reader.readexactly(int(value))


def _ok(line: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s" % (
        len(line),
        line,
    )


@contextlib.asynccontextmanager
async def serving(supervisor: FakeSupervisor, session_id: str) -> AsyncIterator[Proxy]:
    """A session with a listening socket of its own."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        supervisor.send(PutCredentials(session_id=session_id, credentials=()))
        supervisor.send(OpenListener(session_id=session_id), [listener.fileno()])
        try:
            yield Proxy(supervisor, session_id, listener.getsockname()[1])
        finally:
            supervisor.end(session_id)


@contextlib.contextmanager
def nobody_at(port: int = 0, address: str = "127.0.0.1") -> Iterator[int]:
    """A port at which every connection is refused, and that no other process comes to listen at
    meanwhile."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((address, port))
        yield bound.getsockname()[1]


def server_context(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context
