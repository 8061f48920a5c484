"""Real sockets: bodies that are too long, connections that never end, ports that are taken,
doors that come and go."""

import asyncio
import contextlib
import gc
import signal
import socket
import sys
import weakref

import httpx
import pytest

from supervisor.core.actions import Exec
from supervisor.errors import UserError
from supervisor.server.app import build_agent_app
from supervisor.server.common import serve as serve_module
from supervisor.server.common.listening import listen
from supervisor.server.common.serve import AGENT_CONNECTIONS, serve_agent
from tests.fakes.parts import FakeParts
from tests.server.conftest import PATIENCE_S, OnSocket, on_socket

AGENT = {"authorization": "Bearer token-of-one"}


async def raw(port: int, *parts: bytes) -> bytes:
    """Send bytes as they are, and give what comes back until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    got = b""
    with contextlib.suppress(ConnectionError):
        for part in parts:
            writer.write(part)
            await writer.drain()
        while more := await asyncio.wait_for(reader.read(65536), PATIENCE_S):
            got += more
    writer.close()
    return got


def head(
    port: int, path: str, *lines: str, method: str = "POST", token: str = "token-of-one"
) -> bytes:
    fixed = (
        f"{method} {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        f"Authorization: Bearer {token}",
    )
    return "\r\n".join([*fixed, "Content-Type: application/json", *lines, "", ""]).encode()


@pytest.mark.parametrize("path", ["/v1/exec", "/v1/files/write", "/v1/review"])
async def test_a_body_of_1_gb_is_refused_before_it_is_sent(agent_door: OnSocket, path: str) -> None:
    answer = await raw(
        agent_door.serving.port, head(agent_door.serving.port, path, f"Content-Length: {1 << 30}")
    )
    assert answer.startswith(b"HTTP/1.1 413")
    assert b'"error":"' in answer
    assert b"connection: close" in answer.lower()


async def test_a_stream_without_a_length_is_cut_off(agent_door: OnSocket) -> None:
    port = agent_door.serving.port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head(port, "/v1/exec", "Transfer-Encoding: chunked"))
    chunk = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
    sent = 0
    try:
        while sent < 1 << 30 and not reader.at_eof():
            writer.write(chunk)
            await asyncio.wait_for(writer.drain(), PATIENCE_S)
            sent += len(chunk)
            await asyncio.sleep(0)
    except ConnectionError:
        pass
    writer.close()
    assert sent < 64 << 20  # what the kernels' buffers take, not what was offered


async def test_a_command_of_10_mb_is_refused(agent_door: OnSocket) -> None:
    async with httpx.AsyncClient(headers=AGENT, timeout=PATIENCE_S) as agent:
        try:
            answer = await agent.post(
                f"{agent_door.url}/v1/exec", json={"command": "x" * 10_000_000}
            )
            assert answer.status_code == 413
        except httpx.TransportError:
            pass  # the connection was closed while the body was being sent: refused all the same
        assert (await agent.get(f"{agent_door.url}/v1/requests")).json() == []


async def test_a_body_for_nobody_is_not_read(operator_door: OnSocket) -> None:
    port = operator_door.serving.port
    answer = await raw(port, head(port, "/api/rules", f"Content-Length: {1 << 30}", token="wrong"))
    assert answer.startswith(b"HTTP/1.1 401")
    assert b"connection: close" in answer.lower()


async def test_a_long_body_that_is_allowed_arrives_whole(
    agent_door: OnSocket, running: FakeParts
) -> None:
    async with httpx.AsyncClient(headers=AGENT, timeout=PATIENCE_S) as agent:
        answer = await agent.post(
            f"{agent_door.url}/v1/files/write", json={"path": "a", "content": "ü" * 2_000_000}
        )
    assert answer.status_code == 202


async def test_a_request_that_never_comes_ends(
    agent_door: OnSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve_module, "HEAD_S", 0.05)
    port = agent_door.serving.port
    assert await raw(port) == b""
    assert await raw(port, b"GET /v1/session HTTP/1.1\r\nX: ") == b""
    # After an answer the same holds for the next request on the connection.
    monkeypatch.setattr(serve_module, "HEAD_S", PATIENCE_S)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head(port, "/v1/session", method="GET"))
    assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
    monkeypatch.setattr(serve_module, "HEAD_S", 0.05)
    writer.write(b"GET /v1")
    assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
    writer.close()


async def test_a_body_that_is_dripped_ends(
    agent_door: OnSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("supervisor.server.common.request_guard.BODY_S", 0.05)
    port = agent_door.serving.port
    answer = await raw(port, head(port, "/v1/exec", "Content-Length: 100000"), b'{"command"')
    assert answer.startswith(b"HTTP/1.1 408")


async def test_connections_of_an_agent_are_bounded(agent_door: OnSocket) -> None:
    port = agent_door.serving.port
    held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(AGENT_CONNECTIONS + 20)]
    refused = 0
    for reader, _ in held[AGENT_CONNECTIONS:]:
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
        refused += 1
    assert refused == 20
    for _, writer in held:
        writer.close()
    async with httpx.AsyncClient(headers=AGENT, timeout=PATIENCE_S) as agent:
        while True:
            try:
                if (await agent.get(f"{agent_door.url}/v1/session")).status_code == 200:
                    break
            except httpx.TransportError:
                await asyncio.sleep(0)


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\nConnection: close\r\n\r\n",
        b"POST /v1/exec HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        (
            b"POST /v1/exec HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding:"
            b" chunked\r\nConnection: close\r\n\r\n0\r\n\r\n"
        ),
        (
            b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade:"
            b" h2c\r\nHTTP2-Settings: AA\r\n\r\n"
        ),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
async def test_malformed_requests_get_nowhere(agent_door: OnSocket, request_bytes: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", agent_door.serving.port)
    writer.write(request_bytes)
    line = await asyncio.wait_for(reader.readline(), PATIENCE_S)
    assert line.split()[1] in (b"400", b"401", b"431")
    writer.close()


async def test_the_answer_does_not_name_the_server(agent_door: OnSocket) -> None:
    async with httpx.AsyncClient(headers=AGENT, timeout=PATIENCE_S) as agent:
        answer = await agent.get(f"{agent_door.url}/v1/session")
    assert "server" not in answer.headers


def test_a_taken_port_is_one_line() -> None:
    first = listen(0)
    port = first.getsockname()[1]
    with pytest.raises(UserError, match=f"port {port} is taken; another Gatehouse may be running"):
        listen(port)
    first.close()


async def test_doors_come_and_go_and_leave_nothing(running: FakeParts) -> None:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    socks = []
    for _ in range(3):
        async with asyncio.TaskGroup() as tasks:
            listening = [listen(0) for _ in range(3)]
            doors = [serve_agent(build_agent_app(running, "one"), sock) for sock in listening]
            for door in doors:
                tasks.create_task(door.run())
                await door.started.wait()
            async with httpx.AsyncClient(headers=AGENT, timeout=PATIENCE_S) as agent:
                for door in doors:
                    assert (
                        await agent.get(f"http://127.0.0.1:{door.port}/v1/session")
                    ).status_code == 200
            for door in doors:
                await door.stop()
            socks += listening
    # Not by their ports, which may be anybody's by now.
    assert {sock.fileno() for sock in socks} == {-1}
    assert {number: signal.getsignal(number) for number in handlers} == handlers
    gc.collect()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_door_that_is_cancelled_closes_its_socket(running: FakeParts) -> None:
    sock = listen(0)
    door = serve_agent(build_agent_app(running, "one"), sock)
    task = asyncio.ensure_future(door.run())
    await door.started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sock.fileno() == -1


@pytest.mark.many
@pytest.mark.parametrize("turns", range(5))
async def test_who_comes_as_a_door_closes_is_no_error(
    running: FakeParts, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """asyncio of 3.13.0 prints a traceback for a connection that it had accepted, but not yet set
    up, when its server was closed."""
    errors: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", errors.append)
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    async with on_socket(serve_agent(build_agent_app(running, "one"), listen(0))) as door:
        with socket.create_connection(("127.0.0.1", door.port)):
            for _ in range(turns):
                await asyncio.sleep(0)
            await door.stop()
    gc.collect()
    assert errors == []


async def test_a_door_whose_socket_was_closed_meanwhile_ends_in_order(running: FakeParts) -> None:
    """A sandbox whose start fails closes its sockets, and a session's end doesn't wait for its
    door."""
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    for is_closed_before in (True, False):
        sock = listen(0)
        async with on_socket(serve_agent(build_agent_app(running, "one"), sock)) as door:
            if is_closed_before:
                sock.close()
            await door.stop()
            sock.close()
    assert errors == []


async def test_stopping_does_not_wait_for_parked_waits(
    running: FakeParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve_module, "GRACE_S", 0)
    request = running.gate.ask(Exec(command="make"), session_id="one")
    async with (
        on_socket(serve_agent(build_agent_app(running, "one"), listen(0))) as door,
        httpx.AsyncClient(headers=AGENT, timeout=PATIENCE_S) as agent,
    ):
        waiting = asyncio.ensure_future(
            agent.get(f"http://127.0.0.1:{door.port}/v1/requests/{request.id}?wait=60")
        )
        while not running.queue._waiters:
            await asyncio.sleep(0)
        await door.stop()
        with contextlib.suppress(httpx.TransportError):
            assert (await waiting).status_code >= 500
    assert running.gate.queue.get(request.id).answer is None


async def test_an_agents_socket_may_be_made_elsewhere(running: FakeParts) -> None:
    """As the sandbox hands it over: bound and listening, blocking."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen()
    async with (
        on_socket(serve_agent(build_agent_app(running, "two"), sock)) as door,
        httpx.AsyncClient(
            headers={"authorization": "Bearer token-of-two"}, timeout=PATIENCE_S
        ) as agent,
    ):
        assert (await agent.get(f"http://127.0.0.1:{door.port}/v1/session")).json()["id"] == "two"


async def test_a_sessions_app_is_forgotten_with_its_session(running: FakeParts) -> None:
    app = build_agent_app(running, "one")
    async with (
        on_socket(serve_agent(app, listen(0))) as door,
        httpx.AsyncClient(headers=AGENT, timeout=PATIENCE_S) as agent,
    ):
        assert (await agent.get(f"http://127.0.0.1:{door.port}/v1/session")).status_code == 200
    kept = weakref.ref(app.asgi_handler)
    del app, door
    gc.collect()
    assert kept() is None
