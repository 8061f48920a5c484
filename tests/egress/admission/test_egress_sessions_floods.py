"""A session that floods egress: the others go on, memory stays bounded, and it is told why. Each
is tried against a real egress."""

import asyncio
import contextlib
import resource
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import h2.connection
import h2.errors
import h2.events
import h2.settings
import pytest
import pytest_asyncio
import trustme
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from wsproto import ConnectionType

from supervisor.core.network.egress_wire import Answer, Question
from supervisor.egress.admission.egress_sessions import (
    MOST_CONNECTIONS_PER_SESSION,
    EgressSession,
    Sessions,
)
from supervisor.egress.mitm import websockets
from supervisor.egress.mitm.http2 import (
    MOST_RESETS_AT_ONCE,
    MOST_WAITING_BYTES,
    MOST_WAITING_OF_ALL_BYTES,
)
from supervisor.egress.mitm.websockets import MOST_MESSAGE_BYTES, BoundedConnection
from tests.egress.egress_harness import (
    FakeSupervisor,
    Origin,
    Proxy,
    allow,
    answer_of,
    body_of,
    serving,
    status_of,
)
from tests.egress.h2_client import h2_client
from tests.egress.hellos import record
from tests.fakes.h2_origin import h2_origin
from tests.fakes.waiting import PATIENCE_S

pytestmark = pytest.mark.asyncio(loop_scope="module")
LOOKS_AT_PROCESS = True

MUCH_BYTES = 48 * 1024 * 1024
# A body of which no more than this is taken while its request waits: the bound, what both ends'
# kernels hold, and what is under way.
FEW_BYTES = 24 * 1024 * 1024


@pytest_asyncio.fixture(loop_scope="module")
async def other(egress: FakeSupervisor, proxy: Proxy) -> AsyncIterator[Proxy]:
    """Another session of the same egress."""
    async with serving(egress, f"{proxy.session_id}-other") as found:
        yield found


def request_to(origin: Origin, headers: str = "") -> bytes:
    target = f"origin.test:{origin.port}"
    return f"POST http://{target}/ HTTP/1.1\r\nHost: {target}\r\n{headers}\r\n".encode()


def hold(session_id: str, operation: str) -> object:
    """Leaves what a session asks open, and allows everything else."""

    def decide(question: Question) -> Answer | None:
        is_held = question.session_id == session_id and question.action.operation == operation
        return None if is_held else allow(question)

    return decide


def memory_bytes(supervisor: FakeSupervisor) -> int:
    lines = Path(f"/proc/{supervisor.child.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) * 1024


async def pushed(writer: asyncio.StreamWriter) -> int:
    """How much of a long body was written until nothing more was taken, for a moment."""
    written = 0
    with contextlib.suppress(TimeoutError):
        while written < MUCH_BYTES:
            writer.write(bytes(256 * 1024))
            written += 256 * 1024
            async with asyncio.timeout(1):
                await writer.drain()
    return written


async def test_a_long_body_of_a_request_that_waits_fills_no_memory(
    egress: FakeSupervisor, proxy: Proxy, other: Proxy, http: Origin
) -> None:
    await other.send(request_to(http))  # mitmproxy is started
    answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def later(question: Question) -> Answer:
        if question.session_id == proxy.session_id:
            await answered
        return allow(question)

    egress.decide = later
    http.reset()
    before = memory_bytes(egress)
    reader, writer = await proxy.open()
    writer.write(request_to(http, f"Content-Length: {MUCH_BYTES}\r\n"))
    written = await pushed(writer)
    assert written < FEW_BYTES
    assert memory_bytes(egress) - before < FEW_BYTES
    assert status_of(await other.send(request_to(http))) == 200
    http.reset()
    # Once it is answered all of it goes on, in order.
    answered.set_result(None)
    writer.write(bytes(MUCH_BYTES - written))
    assert status_of(await answer_of(reader)) == 200
    assert len(http.received) > MUCH_BYTES
    writer.close()


async def test_a_hello_without_end_is_no_hello(proxy: Proxy, http: Origin, https: Origin) -> None:
    """Of one that is looked into: it may say that it is 16 MB long."""
    assert status_of(await proxy.send(request_to(http))) == 200  # mitmproxy is started
    piece = record(bytes(2**14)) * 64
    reader, writer = await proxy.open()
    target = f"origin.test:{https.port}"
    writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    assert status_of(await answer_of(reader)) == 200
    writer.write(record(b"\x01\xff\xff\xff"))
    async with asyncio.TaskGroup() as tasks:
        going_on = tasks.create_task(written_until_refused(writer, piece))
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionError):
                await reader.read()
        going_on.cancel()
    writer.close()
    assert https.untouched


async def written_until_refused(writer: asyncio.StreamWriter, piece: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        for _ in range(8):
            writer.write(piece)
            await writer.drain()


class H2Flood:
    """A client that keeps to no rules of HTTP/2 but its framing."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, authority: str
    ) -> None:
        self.reader, self.writer = reader, writer
        self._authority = authority
        self.http2 = h2.connection.H2Connection()
        self.http2.initiate_connection()
        self.events: list[h2.events.Event] = []

    async def start(self) -> None:
        self.flush()
        while not any(isinstance(one, h2.events.RemoteSettingsChanged) for one in self.events):
            await self.read()
        self.http2.remote_settings[h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS] = 2**31
        self.http2.remote_settings.acknowledge()

    def open_stream(self, *, ends: bool) -> int:
        stream = self.http2.get_next_available_stream_id()
        named = {
            ":method": "POST",
            ":path": f"/{stream}",
            ":scheme": "https",
            ":authority": self._authority,
        }
        self.http2.send_headers(stream, list(named.items()), end_stream=ends)
        return stream

    def flush(self) -> None:
        self.writer.write(self.http2.data_to_send())

    async def read(self) -> bool:
        """Take in what comes; whether there is more to come."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                data = await self.reader.read(65536)
            except ConnectionError:
                return False
        if data:
            self.events += self.http2.receive_data(data)
        return bool(data)


@pytest_asyncio.fixture(loop_scope="module")
async def flood(proxy: Proxy, https: Origin, ca_file: Path) -> AsyncIterator[H2Flood]:
    authority = f"origin.test:{https.port}"
    found = H2Flood(*await proxy.tunnel(authority, trust=ca_file, alpn=["h2"]), authority)
    await found.start()
    yield found
    found.writer.close()


async def test_who_opens_streams_and_gives_them_up_is_cut_off_and_told(
    egress: FakeSupervisor, flood: H2Flood, other: Proxy, http: Origin
) -> None:
    for _ in range(4 * MOST_RESETS_AT_ONCE):
        flood.http2.reset_stream(flood.open_stream(ends=True))
    flood.flush()
    while await flood.read():
        pass
    ended = [one for one in flood.events if isinstance(one, h2.events.ConnectionTerminated)]
    assert [one.error_code for one in ended] == [h2.errors.ErrorCodes.ENHANCE_YOUR_CALM]
    asked = Counter(question.session_id for question in egress.questions)
    assert (
        sum(asked.values()) <= MOST_RESETS_AT_ONCE + 100
    )  # streams that weren't given up yet, and the tunnel
    assert status_of(await other.send(request_to(http))) == 200


async def test_a_few_streams_that_are_given_up_end_nothing(flood: H2Flood) -> None:
    for _ in range(MOST_RESETS_AT_ONCE // 4):
        flood.http2.reset_stream(flood.open_stream(ends=True))
    last = flood.open_stream(ends=True)
    flood.flush()
    while not any(
        isinstance(one, h2.events.StreamEnded) and one.stream_id == last for one in flood.events
    ):
        assert await flood.read()


async def test_many_streams_that_wait_are_bounded_and_hold_nobody_up(
    egress: FakeSupervisor, proxy: Proxy, flood: H2Flood, other: Proxy, http: Origin
) -> None:
    egress.decide = hold(proxy.session_id, "request")  # type: ignore[assignment]
    for _ in range(1000):
        flood.open_stream(ends=False)
    flood.flush()
    while await flood.read():
        pass
    assert len([one for one in egress.questions if one.session_id == proxy.session_id]) <= 102
    assert status_of(await other.send(request_to(http))) == 200


class Nobody(asyncio.Transport):
    """Of a client that says nothing."""

    def abort(self) -> None:
        """It is gone."""


async def test_no_session_takes_the_share_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (200, 200))
    sessions = Sessions()
    greedy, modest = sessions.get("greedy"), sessions.get("modest")
    transport = Nobody()
    taken = [sessions.connect(greedy, transport, 0.0) for _ in range(100)]
    assert len([one for one in taken if one is not None]) == 30
    assert all(sessions.connect(modest, transport, 0.0) for _ in range(15))
    # Two files for each, and one on its way, are below the limit.
    assert len(greedy.connections | modest.connections) * 3 < 200
    for one in taken:
        if one is not None:
            sessions.disconnect(one)
            sessions.disconnect(one)  # said twice, it counts once
    sessions.close("modest")
    assert sessions.connect(greedy, transport, 0.0)


@pytest.mark.parametrize("files", [256, 1024, 4096, 16384])
async def test_greedy_sessions_that_come_one_by_one_leave_room_for_the_next(
    files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A share that shrinks takes nothing back from those who have theirs."""
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (files, files))
    sessions = Sessions()
    total = 0
    for number in range(4):
        session = sessions.get(f"s{number}")
        taken = [
            sessions.connect(session, Nobody(), 0.0)
            for _ in range(MOST_CONNECTIONS_PER_SESSION + 1)
        ]
        held = len([one for one in taken if one is not None])
        assert 0 < held <= MOST_CONNECTIONS_PER_SESSION
        total += held
        assert total * 3 < files
    most = MOST_CONNECTIONS_PER_SESSION
    assert total == 4 * most or files < 16384, "where there are enough, nobody has less than before"


@pytest.mark.parametrize(("files", "starts"), [(128, False), (1024, True)])
async def test_few_open_files_are_told_and_too_few_start_nothing(files: int, starts: bool) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.close()  # whoever starts finds no supervisor, and ends
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({min(files, 100)}, {
        files
    })); "
    code = f"{limited}import sys; from supervisor.egress.__main__ import main; main()"
    with theirs:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            code,
            "--channel-fd",
            str(theirs.fileno()),
            stderr=asyncio.subprocess.PIPE,
            pass_fds=[theirs.fileno()],
        )
        async with asyncio.timeout(PATIENCE_S):
            _, said = await child.communicate()
    assert b"few open files" in said
    assert b"ulimit -n" in said
    assert b"most=%d" % files in said, "the soft limit was raised to the hard one"
    assert (child.returncode == 0) == starts
    assert (b"too few open files" in said) != starts


async def test_half_a_head_from_thousands_of_connections_holds_nobody_up(
    egress: FakeSupervisor, proxy: Proxy, other: Proxy, http: Origin
) -> None:
    opened = []
    for _ in range(MOST_CONNECTIONS_PER_SESSION):
        reader, writer = await proxy.open()
        writer.write(b"CONNECT origin.test:443 HTTP/1.1\r\nHost: ori")
        opened.append((reader, writer))
    # Whoever comes now is told, as one who can't be served: a whole request that comes at once,
    # too.
    for sent in (b"", request_to(http)):
        reader, writer = await proxy.open()
        writer.write(sent)
        answer = await answer_of(reader)
        assert status_of(answer) == 503
        assert "as many connections already" in body_of(answer)["why"]
        writer.close()
    assert status_of(await other.send(request_to(http))) == 200
    assert memory_bytes(egress) < 400 * 1024 * 1024
    opened.pop()[1].close()
    while (
        status_of(await proxy.send(request_to(http))) != 200
    ):  # its place is free once its end was seen
        await asyncio.sleep(0)
    for _, writer in opened:
        writer.close()


@pytest_asyncio.fixture(loop_scope="module")
async def silent() -> AsyncIterator[int]:
    """A WebSocket server that says nothing until it was told something, and then too much."""

    async def talk(connection: ServerConnection) -> None:
        async for message in connection:
            if message == "too much":
                await connection.send(
                    bytes(1024 * 1024) for _ in range(MOST_MESSAGE_BYTES // 2**20 + 1)
                )
            else:
                await connection.send(str(len(message)))

    async with serve(talk, "127.0.0.1", 0, max_size=None) as server:
        yield next(iter(server.sockets)).getsockname()[1]


async def test_a_message_without_end_fills_no_memory_and_is_told_so(
    egress: FakeSupervisor, proxy: Proxy, silent: int
) -> None:
    async with connect(
        f"ws://origin.test:{silent}/", proxy=proxy.url, compression=None, max_size=None
    ) as socket:
        await socket.send(bytes(1024 * 1024) for _ in range(4))
        assert await socket.recv() == str(4 * 2**20)
        before = memory_bytes(egress)
        with contextlib.suppress(ConnectionClosed):
            await socket.send(bytes(1024 * 1024) for _ in range(MOST_MESSAGE_BYTES // 2**20 + 1))
        with pytest.raises(ConnectionClosed) as ended:
            await socket.recv()
        assert ended.value.rcvd is not None
        assert ended.value.rcvd.code == 1009
        assert memory_bytes(egress) - before < 8 * MOST_MESSAGE_BYTES
    # Nor one of the origin's; and a few compressed bytes are counted by what they stand for.
    async with connect(f"ws://origin.test:{silent}/", proxy=proxy.url, max_size=None) as socket:
        await socket.send("too much")
        with pytest.raises(ConnectionClosed) as ended:
            await socket.recv()
        assert ended.value.rcvd is not None
        assert ended.value.rcvd.code == 1009


async def test_messages_that_went_on_fill_no_memory(
    egress: FakeSupervisor, proxy: Proxy, silent: int
) -> None:
    async with connect(
        f"ws://origin.test:{silent}/", proxy=proxy.url, compression=None, max_size=None
    ) as socket:
        before = memory_bytes(egress)
        for _ in range(8 * MOST_MESSAGE_BYTES >> 20):
            await socket.send(bytes(2**20))
            assert await socket.recv() == str(2**20)
        assert memory_bytes(egress) - before < 4 * MOST_MESSAGE_BYTES


async def test_messages_of_one_session_are_counted_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(websockets, "MOST_OF_SESSION_BYTES", 100)
    session = EgressSession("s")
    both = [BoundedConnection(ConnectionType.SERVER, conn=None) for _ in range(2)]
    for one in both:
        one.session = session
    assert both[0]._may_keep(60)
    assert not both[1]._may_keep(60)
    both[1].let_go()
    assert session.message_bytes == 60
    both[0].let_go()
    assert both[1]._may_keep(60)
    unknown = BoundedConnection(ConnectionType.SERVER, conn=None)
    assert not unknown._may_keep(1)
    unknown.let_go()


@pytest.mark.many
async def test_what_a_client_of_http2_does_not_take_fills_no_memory(
    egress: FakeSupervisor, proxy: Proxy, https: Origin, ca_file: Path
) -> None:
    length = 32_000_000
    https.respond = lambda head: (
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length + bytes(length)
    )
    async with h2_client(proxy, f"origin.test:{https.port}", ca_file) as client:
        before = memory_bytes(egress)
        number, stream = client.ask("/")
        client.lies.add(number)
        for _ in range(20):
            await asyncio.sleep(0.1)
            assert memory_bytes(egress) - before < length // 2
        assert len(stream.body) < length
        client.take_up(number)
        await client.until(lambda: stream.over)
        assert len(stream.body) == length


@pytest.mark.parametrize("wants", ["window", "stream"])
async def test_what_an_origin_of_http2_does_not_take_fills_no_memory_and_holds_up_no_other(
    wants: str, egress: FakeSupervisor, proxy: Proxy, authority: trustme.CA, ca_file: Path
) -> None:
    async with h2_origin(authority, "origin.test") as origin:
        origin.most_streams = 1 if wants == "stream" else 100
        async with h2_client(proxy, f"origin.test:{origin.port}", ca_file) as client:
            first, _ = client.ask("/open")
            await client.until(lambda: origin.requests == ["GET /open"])
            before = memory_bytes(egress)
            number, stream = client.ask(
                "/lies" if wants == "window" else "/", method="POST", end=False
            )
            sent = await client.push(number, MUCH_BYTES)
            assert sent <= 2 * MOST_WAITING_BYTES  # and what the origin's window is
            assert memory_bytes(egress) - before < FEW_BYTES
            if wants == "window":
                assert (await client.answered("/")).status == 200
                origin.take_up()
            else:
                client.reset(first)
            client.send(number, b"", end=True)
            await client.until(lambda: stream.over)
            assert (stream.status, len(origin.received)) == (200, sent)


async def test_a_body_of_http2_that_waits_for_an_answer_holds_up_no_other(
    proxy: Proxy, authority: trustme.CA, ca_file: Path
) -> None:
    answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def decide(question: Question) -> Answer | asyncio.Future[Answer]:
        if question.action.path != "/held":
            return allow(question)
        asyncio.get_running_loop().call_later(0, held.append, question)
        return answer

    held: list[Question] = []
    proxy.supervisor.decide = decide
    async with (
        h2_origin(authority, "origin.test") as origin,
        h2_client(proxy, f"origin.test:{origin.port}", ca_file) as client,
    ):
        number, stream = client.ask("/held", method="POST", end=False)
        sent = await client.push(number, MUCH_BYTES)
        assert sent <= MOST_WAITING_BYTES
        assert (await client.answered("/")).status == 200
        answer.set_result(allow(held[0]))
        sent += await client.push(number, 8 * MOST_WAITING_BYTES, patience_s=PATIENCE_S)
        client.send(number, b"", end=True)
        await client.until(lambda: stream.over)
        assert (stream.status, len(origin.received)) == (200, sent)
        assert sent > 8 * MOST_WAITING_BYTES


async def test_bodies_that_went_nowhere_leave_room_for_others(
    proxy: Proxy, authority: trustme.CA, ca_file: Path
) -> None:
    async with (
        h2_origin(authority, "origin.test") as origin,
        h2_client(proxy, f"origin.test:{origin.port}", ca_file) as client,
    ):
        # More than may wait of all streams together.
        for _ in range(2 * MOST_WAITING_OF_ALL_BYTES // MOST_WAITING_BYTES):
            number, stream = client.ask("/lies", method="POST", end=False)
            await origin.until_one_lies()
            assert await client.push(number, MOST_WAITING_BYTES)
            origin.hang_up()
            print("hung", number, stream, flush=True)
            await client.until(lambda stream=stream: stream.over)
        number, stream = client.ask("/", method="POST", end=False)
        assert (
            await client.push(number, 2 * MOST_WAITING_BYTES, patience_s=PATIENCE_S)
            >= 2 * MOST_WAITING_BYTES
        )
        client.send(number, b"", end=True)
        await client.until(lambda: stream.over)
        assert stream.status == 200
