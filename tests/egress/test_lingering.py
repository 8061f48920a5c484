"""What egress holds for clients that take nothing, and for sockets that are given up at once: none of it stays."""

import asyncio
import os
import signal
import socket
from pathlib import Path

import dns.message
import pytest

from supervisor.core.egress_wire import CloseListener, CloseSession, OpenListener, Settled
from supervisor.egress import names as names_module
from supervisor.egress.ends import GoneError, Held
from supervisor.egress.name_server import serve_stream
from supervisor.egress.names import Names
from tests.egress.egress_harness import FakeSupervisor, Origin, Proxy, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

MUCH_BYTES = 16 * 1024 * 1024


def descriptors(supervisor: FakeSupervisor) -> int:
    return len(list(Path(f"/proc/{supervisor.child.pid}/fd").iterdir()))


async def until_back_at(supervisor: FakeSupervisor, count: int) -> None:
    async with asyncio.timeout(20):
        while descriptors(supervisor) > count:
            await asyncio.sleep(0.05)


def much(head: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % MUCH_BYTES + bytes(MUCH_BYTES)


async def test_a_client_that_reads_nothing_and_leaves_half_holds_no_descriptor(
    egress: FakeSupervisor, plain_origin: Origin
) -> None:
    plain_origin.respond = much
    async with serving(egress, "s-takes-nothing") as proxy:
        await proxy.send(b"GET / HTTP/1.1\r\n\r\n")  # what looks inside has begun
        before = descriptors(egress)
        target = f"origin.test:{plain_origin.port}"
        ask = f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()
        clients = []
        for _ in range(8):
            client = socket.create_connection(("127.0.0.1", proxy.port))
            client.sendall(ask)
            clients.append(client)
        async with asyncio.timeout(20):
            while plain_origin.connections < 8:
                await asyncio.sleep(0.05)
        for client in clients:
            client.shutdown(socket.SHUT_WR)
        await egress.until(Settled, 8)  # of each the request is over
        # They count as the session's until they have read, so that none is left behind, and end with it.
        egress.send(CloseSession(session_id=proxy.session_id))
        await until_back_at(egress, before)
        for client in clients:
            client.close()


async def test_a_socket_that_is_given_up_at_once_is_served_by_nobody(egress: FakeSupervisor, proxy: Proxy) -> None:
    """As of a tool sandbox that ends right away: both messages are there when egress looks."""
    await proxy.send(b"GET / HTTP/1.1\r\n\r\n")
    before, pid = descriptors(egress), egress.child.pid
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(8)]
    os.kill(pid, signal.SIGSTOP)
    try:
        for number, listener in enumerate(listeners, 100):
            egress.send(OpenListener(session_id=proxy.session_id, listener_id=number), [listener.fileno()])
            egress.send(CloseListener(session_id=proxy.session_id, listener_id=number))
    finally:
        os.kill(pid, signal.SIGCONT)
    await proxy.send(b"GET / HTTP/1.1\r\n\r\n")
    await until_back_at(egress, before)
    for listener in listeners:
        port = listener.getsockname()[1]
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)


async def test_who_asks_for_names_and_reads_no_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names_module, "MOST_AT_ONCE", 100_000)
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(Held, sock=ours)
    query = dns.message.make_query("a" * 60 + ".test", "A").to_wire()
    serving = asyncio.create_task(serve_stream(client, Names(), lambda host, why: None))
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
