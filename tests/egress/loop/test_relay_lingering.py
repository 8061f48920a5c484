"""What egress holds for clients that take nothing, and for sockets that are given up at once:
none of it stays."""

import asyncio
import contextlib
import os
import signal
import socket
from pathlib import Path

import dns.message
import pytest

from supervisor.core.network.egress_wire import CloseListener, CloseSession, OpenListener, Settled
from supervisor.egress.admission import egress_sessions as sessions_module
from supervisor.egress.admission import names as names_module
from supervisor.egress.admission.egress_sessions import ORIGINS_EACH, Sessions
from supervisor.egress.admission.names import Names
from supervisor.egress.loop.fair_turns import Share
from supervisor.egress.loop.relay import GoneError, HeldEnd
from supervisor.egress.name_server import serve_stream
from tests.egress.egress_harness import (
    FakeSupervisor,
    Origin,
    Proxy,
    answer_of,
    body_of,
    deny,
    running_egress,
    serving,
    status_of,
)
from tests.fakes.processes import open_files
from tests.fakes.waiting import PATIENCE_S

pytestmark = pytest.mark.asyncio(loop_scope="module")
LOOKS_AT_PROCESS = True

# Of this machine too; a port that is given up there isn't another test's the next moment.
NO_ONE_ELSES = "127.0.71.1"
MUCH_BYTES = 16 * 1024 * 1024


def descriptors(supervisor: FakeSupervisor) -> int:
    return open_files(supervisor.child.pid)


async def until_back_at(supervisor: FakeSupervisor, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while descriptors(supervisor) > count:
            await asyncio.sleep(0.05)


def much(head: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % MUCH_BYTES + bytes(MUCH_BYTES)


async def test_a_client_that_reads_nothing_and_leaves_half_holds_no_descriptor(
    egress: FakeSupervisor, http: Origin
) -> None:
    http.respond = much
    async with serving(egress, "s-takes-nothing") as proxy:
        await proxy.send(b"GET / HTTP/1.1\r\n\r\n")  # what looks inside has begun
        before = descriptors(egress)
        target = f"origin.test:{http.port}"
        ask = f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()
        clients = []
        for _ in range(8):
            client = socket.create_connection(("127.0.0.1", proxy.port))
            client.sendall(ask)
            clients.append(client)
        async with asyncio.timeout(PATIENCE_S):
            while http.connections < 8:
                await asyncio.sleep(0.05)
        for client in clients:
            client.shutdown(socket.SHUT_WR)
        await egress.until(Settled, 8)  # of each the request is over
        # They count as the session's until they have read, so that none is left behind, and end
        # with it.
        egress.send(CloseSession(session_id=proxy.session_id))
        await until_back_at(egress, before)
        for client in clients:
            client.close()


# Where nothing is collected as garbage, and clients mostly leave while their origin's answer waits
# for its turn.
UNCOLLECTED = """
import asyncio, gc
from supervisor.egress.mitm.inspector import Handler
gc.disable()
in_steps = Handler._in_steps
async def slowly(self, event):
    await asyncio.sleep(0.02)
    await in_steps(self, event)
Handler._in_steps = slowly
"""


async def test_an_origins_connection_ends_with_its_clients(
    tmp_path: Path, upstream_ca: Path, http: Origin
) -> None:
    http.respond = much
    running = running_egress(tmp_path, upstream_ca, preface=UNCOLLECTED)
    async with running as supervisor, serving(supervisor, "s") as proxy:
        await proxy.send(b"GET / HTTP/1.1\r\n\r\n")  # what looks inside has begun
        before, connections = descriptors(supervisor), http.connections
        target = f"origin.test:{http.port}"
        for count in range(1, 5):
            with socket.create_connection(("127.0.0.1", proxy.port)) as client:
                client.sendall(f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
                async with asyncio.timeout(PATIENCE_S):
                    while http.connections < connections + count:
                        await asyncio.sleep(0.01)
        await supervisor.until(Settled, 4)
        await until_back_at(supervisor, before)


# Of a client that is read no further, so that what it says is not the measure of how long it gets
# to read.
PATIENT = (
    "from supervisor.egress.loop import relay\nfrom supervisor.egress.mitm import"
    " inspector\nrelay.FAREWELL_S = inspector.FAREWELL_S = 60.0"
)


@pytest.mark.parametrize(
    "head",
    [
        "CONNECT {at} HTTP/1.1\r\nHost: {at}\r\n\r\n",
        "POST http://{at}/ HTTP/1.1\r\nHost: {at}\r\nContent-Length: 99999999\r\n\r\n",
    ],
    ids=["front", "inside"],
)
async def test_who_goes_on_talking_is_told_why_before_it_is_cut_off(
    tmp_path: Path, upstream_ca: Path, head: str
) -> None:
    """A reset would reach it first where it writes before it reads, as clients do that send a
    body."""
    async with (
        running_egress(tmp_path, upstream_ca, preface=PATIENT) as supervisor,
        serving(supervisor, "s") as proxy,
    ):
        supervisor.decide = deny
        with socket.create_connection(("127.0.0.1", proxy.port)) as client:
            client.sendall(head.replace("{at}", "origin.test:443").encode())
            await asyncio.to_thread(client.recv, 1, socket.MSG_PEEK)
            await asyncio.to_thread(talk, client)
            answer = b""
            while not answer.endswith(b"}") and (
                data := await asyncio.to_thread(client.recv, 65536)
            ):
                answer += data
    assert status_of(answer) == 403
    assert body_of(answer)["why"] == "denied by a test"


def talk(client: socket.socket) -> None:
    """Say as much as is taken, until nothing more is for a while."""
    client.settimeout(0.5)
    with contextlib.suppress(TimeoutError):
        for _ in range(MUCH_BYTES // 65536 * 8):
            client.sendall(bytes(65536))
    client.settimeout(PATIENCE_S)


async def test_a_socket_that_is_given_up_at_once_is_served_by_nobody(
    egress: FakeSupervisor, proxy: Proxy
) -> None:
    """As of a tool sandbox that ends right away: both messages are there when egress looks."""
    await proxy.send(b"GET / HTTP/1.1\r\n\r\n")
    before, pid = descriptors(egress), egress.child.pid
    listeners = [socket.create_server((NO_ONE_ELSES, 0)) for _ in range(8)]
    os.kill(pid, signal.SIGSTOP)
    try:
        for number, listener in enumerate(listeners, 100):
            egress.send(
                OpenListener(session_id=proxy.session_id, listener_id=number), [listener.fileno()]
            )
            egress.send(CloseListener(session_id=proxy.session_id, listener_id=number))
    finally:
        os.kill(pid, signal.SIGCONT)
    await proxy.send(b"GET / HTTP/1.1\r\n\r\n")
    await until_back_at(egress, before)
    for listener in listeners:
        port = listener.getsockname()[1]
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(NO_ONE_ELSES, port)


async def test_who_hung_up_is_answered_no_more_of_the_names_that_it_asked_for() -> None:
    """There may be ten thousand of them, at 200 a second, in which its place is another's."""
    ours, theirs = socket.socketpair()
    _, client = await asyncio.get_running_loop().create_connection(HeldEnd, sock=ours)
    query = dns.message.make_query("a.test", "A").to_wire()
    client.data_received((len(query).to_bytes(2) + query) * 1000)
    serving = asyncio.create_task(serve_stream(client, Names(), Share(), lambda host, why: None))
    await asyncio.sleep(0)
    client.cut()
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(GoneError):
            await serving
    assert len(client.data) > 900 * len(query)
    theirs.close()


async def test_who_asks_for_names_and_reads_no_answer_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(names_module, "MOST_AT_ONCE", 100_000)
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(HeldEnd, sock=ours)
    query = dns.message.make_query("a" * 60 + ".test", "A").to_wire()
    serving = asyncio.create_task(serve_stream(client, Names(), Share(), lambda host, why: None))
    sent = 0
    while not serving.done() and sent < 100_000:
        client.data_received((len(query).to_bytes(2) + query) * 100)
        sent += 100
        while client.data and not serving.done():
            await asyncio.sleep(0)
    with pytest.raises(GoneError):
        serving.result()
    assert client.transport.get_write_buffer_size() < 128 * 1024
    client.cut()
    theirs.close()


# Where what comes of an origin waits for its turn for longer than it takes to lose that origin.
WAITING = """
import asyncio
from mitmproxy.proxy import events
from supervisor.egress.mitm.inspector import Handler
from supervisor.egress.loop.fair_turns import Share
in_steps, enter, slow = Handler._in_steps, Share.__aenter__, set()
async def slowly(self, event):
    if isinstance(event, events.{event}) and getattr(event, "connection", None) is not self.client:
        slow.add(asyncio.current_task())
    try:
        await in_steps(self, event)
    finally:
        slow.discard(asyncio.current_task())
async def enter_slowly(self):
    if asyncio.current_task() in slow:
        await asyncio.sleep(0.5)
    await enter(self)
Handler._in_steps, Share.__aenter__ = slowly, enter_slowly
"""


@pytest.mark.parametrize("event", ["OpenConnectionCompleted", "DataReceived", "ConnectionClosed"])
async def test_a_client_is_told_of_the_end_of_an_origin_of_which_something_still_waits(
    event: str, tmp_path: Path, upstream_ca: Path
) -> None:
    """What is written to an origin that is gone ends the task that reads it, wherever that
    waits. Client and layers would wait for ever."""

    async def answer_and_reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if event != "OpenConnectionCompleted":
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nnot all of it")
            await writer.drain()
            await asyncio.sleep(0.2)
        writer.transport.abort()

    async with (
        await asyncio.start_server(answer_and_reset, "127.0.0.1", 0, limit=1024) as origin,
        running_egress(
            tmp_path, upstream_ca, preface=WAITING.replace("{event}", event)
        ) as supervisor,
        serving(supervisor, "s") as proxy,
    ):
        target = f"origin.test:{origin.sockets[0].getsockname()[1]}"
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(
            f"POST http://{target}/ HTTP/1.1\r\nHost: {target}\r\nContent-Length: 99999999\r\n\r\n".encode()  # noqa: E501
        )
        writer.write(bytes(MUCH_BYTES))
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionError):
                await reader.read()
        writer.close()


@pytest.mark.parametrize("how", ["session", "channel"])
async def test_a_cut_reaches_what_waits_for_an_origin_that_takes_nothing(
    how: str, tmp_path: Path, upstream_ca: Path
) -> None:
    """Of what egress still held nothing goes out any more, and it ends with its supervisor."""
    reached, goes_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    taken: list[int] = []

    async def take_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        reached.set()
        await goes_on.wait()
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                taken.append(len(data))
        writer.close()
        ended.set()

    async with (
        await asyncio.start_server(take_nothing, "127.0.0.1", 0) as origin,
        running_egress(tmp_path, upstream_ca) as supervisor,
        serving(supervisor, "s") as proxy,
    ):
        target = f"origin.test:{origin.sockets[0].getsockname()[1]}"
        _, writer = await proxy.open()
        writer.write(
            f"POST http://{target}/ HTTP/1.1\r\nHost: {target}\r\nContent-Length: 99999999\r\n\r\n".encode()  # noqa: E501
        )
        async with asyncio.timeout(PATIENCE_S):
            await reached.wait()
        sent = 0
        with contextlib.suppress(TimeoutError):
            while True:
                writer.write(bytes(262_144))
                sent += 262_144
                async with asyncio.timeout(1):
                    await writer.drain()
        if how == "session":
            supervisor.end("s")
        else:
            supervisor.sock.close()
            async with asyncio.timeout(PATIENCE_S):
                await supervisor.child.wait()
        goes_on.set()
        async with asyncio.timeout(PATIENCE_S):
            await ended.wait()
        assert sum(taken) < sent
        writer.close()


async def test_one_client_keeps_few_origins_open(proxy: Proxy) -> None:
    open_now = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_now
        open_now += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        open_now -= 1
        writer.close()

    async with contextlib.AsyncExitStack() as stack:
        reader, writer = await proxy.open()
        for _ in range(8):
            origin = await stack.enter_async_context(
                await asyncio.start_server(serve, "127.0.0.1", 0)
            )
            target = f"origin.test:{origin.sockets[0].getsockname()[1]}"
            for _ in range(2):
                writer.write(f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
                assert status_of(await answer_of(reader)) == 200
        async with asyncio.timeout(PATIENCE_S):
            while open_now > ORIGINS_EACH:
                await asyncio.sleep(0.01)
        writer.close()


async def test_more_origins_of_a_session_count_as_its_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions_module, "MOST_CONNECTIONS_PER_SESSION", 3)
    sessions = Sessions()
    session = sessions.get("s")
    connection = sessions.connect(session, asyncio.Transport(), 0.0)
    assert connection is not None
    assert [sessions.reach_another(session) for _ in range(3)] == [True, True, False]
    assert sessions.connect(session, asyncio.Transport(), 0.0) is None
    sessions.leave_another(session)
    other = sessions.connect(session, asyncio.Transport(), 0.0)
    assert other is not None
    assert not sessions.reach_another(session)
    sessions.disconnect(other)
    assert sessions.reach_another(session)
