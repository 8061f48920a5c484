"""How long a request takes to the page, and an answer to the waiting agent, against bare uvicorn
doing the same moves.

Both sides are real sockets in one process: the agent posts on its door, the page holds a
WebSocket, the agent parks a long poll. The baseline is an ASGI function on the same uvicorn that
forwards a POST to a WebSocket and releases a parked GET, with no rules, no database and no audit
log; so the ratio shows what being recorded costs. Fan-out is against `websockets.broadcast`.
Last, how long the slowest of a session's requests takes while a new rule answers 5,000 of
others.
"""

import asyncio
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import uvicorn
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import broadcast, serve

from bench import Figure
from supervisor.core.actions import Exec
from supervisor.server.app import build_agent_app, build_operator_app
from supervisor.server.common.listening import listen
from supervisor.server.common.serve import Serving, _config, serve_agent, serve_operator
from tests.fakes.parts import FakeParts

ROUNDS = 200
CLIENTS = 50
EVENTS = 400
WAITING = 5000


class Http:
    """A keep-alive connection that does no more than it must, so that the client's cost hides
    nothing."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int, token: str
    ) -> None:
        self._reader, self._writer = reader, writer
        self._head = (
            f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\nContent-Type:"
            " application/json\r\n"
        )

    @classmethod
    async def open(cls, port: int, token: str) -> "Http":
        return cls(*await asyncio.open_connection("127.0.0.1", port), port, token)

    async def call(self, method: str, path: str, body: bytes = b"") -> bytes:
        self._writer.write(
            f"{method} {path} HTTP/1.1\r\n{self._head}Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        assert b" 20" in head[:13], head
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return await self._reader.readexactly(length)

    def close(self) -> None:
        self._writer.close()


class Bare:
    """The same two moves with nothing in between."""

    def __init__(self) -> None:
        self._send: Any = None
        self._parked: asyncio.Future[bytes] = asyncio.Future()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            self._send = send
            while (await receive())["type"] != "websocket.disconnect":
                pass
            return
        body = (await receive())["body"]
        if scope["path"] == "/ask":
            await self._send({"type": "websocket.send", "text": body.decode()})
        elif scope["path"] == "/answer":
            self._parked.set_result(body)
        else:
            body = await self._parked
            self._parked = asyncio.Future()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@contextlib.asynccontextmanager
async def serving(*doors: Serving) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        for door in doors:
            tasks.create_task(door.run())
            await door.started.wait()
        yield
        for door in doors:
            await door.stop()


def page_of(port: int, token: str) -> connect:
    return connect(
        f"ws://127.0.0.1:{port}/ws",
        additional_headers={"Authorization": f"Bearer {token}"},
        compression=None,
        proxy=None,
    )


async def bare_rounds(port: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each move: POST to WebSocket, POST to parked GET."""
    asks, answers = [], []
    async with page_of(port, "x") as page:
        poster, waiter = await Http.open(port, "x"), await Http.open(port, "x")
        body = b"x" * 900  # about what an event has
        for _ in range(ROUNDS):
            start = time.perf_counter()
            posted = asyncio.ensure_future(poster.call("POST", "/ask", body))
            await page.recv()
            asks.append((time.perf_counter() - start) * 1000)
            await posted
            parked = asyncio.ensure_future(waiter.call("GET", "/wait"))
            await asyncio.sleep(0.002)
            start = time.perf_counter()
            posted = asyncio.ensure_future(poster.call("POST", "/answer", body))
            await parked
            answers.append((time.perf_counter() - start) * 1000)
            await posted
        poster.close()
        waiter.close()
    return asks, answers


async def our_rounds(
    agent_port: int, operator_port: int, token: str, parts: FakeParts
) -> tuple[list[float], list[float]]:
    asks, answers = [], []
    async with page_of(operator_port, token) as page:
        poster, waiter = (
            await Http.open(agent_port, "token-of-one"),
            await Http.open(agent_port, "token-of-one"),
        )
        operator = await Http.open(operator_port, token)
        await page.recv()
        for number in range(ROUNDS):
            parts.clock.advance(1)
            body = json.dumps({"command": f"make {number}", "reason": "because"}).encode()
            start = time.perf_counter()
            posted = asyncio.ensure_future(poster.call("POST", "/v1/exec", body))
            await page.recv()
            asks.append((time.perf_counter() - start) * 1000)
            request_id = json.loads(await posted)["id"]
            shown = json.dumps({"fingerprint": parts.queue.get(request_id).fingerprint}).encode()
            parked = asyncio.ensure_future(waiter.call("GET", f"/v1/requests/{request_id}?wait=60"))
            while request_id not in parts.queue._waiters:
                await asyncio.sleep(0)
            start = time.perf_counter()
            posted = asyncio.ensure_future(
                operator.call("POST", f"/api/requests/{request_id}/deny", shown)
            )
            await parked
            answers.append((time.perf_counter() - start) * 1000)
            await posted
            await page.recv()
        for connection in (poster, waiter, operator):
            connection.close()
    return asks, answers


async def drain(page: ClientConnection, events: int) -> None:
    for _ in range(events):
        await page.recv()


async def fan_out(publish: Any, pages: list[ClientConnection], batch: int = 50) -> float:
    """Deliveries a second to all pages."""
    start = time.perf_counter()
    reading = [asyncio.ensure_future(drain(page, EVENTS)) for page in pages]
    for number in range(EVENTS):
        publish(number)
        if number % batch == batch - 1:
            await asyncio.sleep(0)
    await asyncio.gather(*reading)
    return EVENTS * len(pages) / (time.perf_counter() - start)


async def our_fan_out(port: int, token: str, live: Any) -> float:
    async with contextlib.AsyncExitStack() as stack:
        pages = [await stack.enter_async_context(page_of(port, token)) for _ in range(CLIENTS)]
        for page in pages:
            await page.recv()
        return await fan_out(
            lambda number: live.publish("output", session_id="x" * 250 + str(number)), pages
        )


async def their_fan_out() -> float:
    async def hold(page: Any) -> None:
        await page.wait_closed()

    async with (
        serve(hold, "127.0.0.1", 0, compression=None) as server,
        contextlib.AsyncExitStack() as stack,
    ):
        port = server.sockets[0].getsockname()[1]
        pages = [await stack.enter_async_context(page_of(port, "x")) for _ in range(CLIENTS)]
        text = json.dumps({"type": "output", "session_id": "x" * 250})
        return await fan_out(lambda _: broadcast(server.connections, text), pages)


async def slowest_while_answered(folder: Path) -> tuple[float, float]:
    """The slowest of another session's requests to its door, in milliseconds: while nothing else
    is done, and while a new rule answers 5,000 requests that wait."""
    parts = FakeParts(folder)
    for number in range(WAITING // 500):
        parts.sessions.add(f"crowd-{number}")
        actions = [Exec(command=f"npm run {number} {one}") for one in range(500)]
        parts.gate.ask_all(actions, session_id=f"crowd-{number}")
    sock, agent_sock = listen(0), listen(0)
    auth = parts.new_auth(sock.getsockname()[1])
    doors = (
        serve_operator(build_operator_app(parts, auth), sock),
        serve_agent(build_agent_app(parts, "one"), agent_sock),
    )
    async with serving(*doors), parts.running():
        agent = await Http.open(agent_sock.getsockname()[1], "token-of-one")
        operator = await Http.open(sock.getsockname()[1], auth.cli_token)
        alone = await slowest(agent, asyncio.ensure_future(asyncio.sleep(2)))
        rule = b'{"effect": "deny", "rule": "exec(npm run *)"}'
        beside = await slowest(
            agent, asyncio.ensure_future(operator.call("POST", "/api/rules", rule))
        )
        agent.close()
        operator.close()
    assert not parts.queue.count_waiting()
    parts.close()
    return alone, beside


# Between two asks: a session that asks without a pause is refused after a few seconds.
PAUSE_S = 0.025


async def slowest(agent: Http, until: asyncio.Future[Any]) -> float:
    found = 0.0
    while not until.done():
        start = time.perf_counter()
        await agent.call("POST", "/v1/exec", b'{"command": "git status"}')
        found = max(found, (time.perf_counter() - start) * 1000)
        await asyncio.sleep(PAUSE_S)
    await until
    return found


async def measure(folder: Path) -> list[Figure]:
    parts = FakeParts(folder / "rounds")
    sock, agent_sock, bare_sock = listen(0), listen(0), listen(0)
    auth = parts.new_auth(sock.getsockname()[1])
    app = build_operator_app(parts, auth)
    operator, agent = (
        serve_operator(app, sock),
        serve_agent(build_agent_app(parts, "one"), agent_sock),
    )
    bare = BareServing(bare_sock)
    async with serving(operator, agent), parts.running(), bare.running():
        bare_asks, bare_answers = await bare_rounds(bare.port)
        asks, answers = await our_rounds(agent.port, operator.port, auth.cli_token, parts)
        ours = await our_fan_out(operator.port, auth.cli_token, app.state["live"])
    theirs = await their_fan_out()
    parts.close()
    alone, beside = await slowest_while_answered(folder / "crowd")
    middle = statistics.median
    against = "bare uvicorn, nothing recorded"
    return [
        Figure("request to page, p50", middle(asks), "ms", middle(bare_asks), against),
        Figure("request to page, p99", _p99(asks), "ms", _p99(bare_asks), against),
        Figure(
            "answer to waiting agent, p50", middle(answers), "ms", middle(bare_answers), against
        ),
        Figure("answer to waiting agent, p99", _p99(answers), "ms", _p99(bare_answers), against),
        Figure(
            f"fan-out to {CLIENTS} pages",
            ours,
            "/s",
            theirs,
            "websockets.broadcast",
            0.8,
            is_rate=True,
        ),
        Figure(
            "slowest request while a rule answers 5,000",
            beside,
            "ms",
            alone,
            "while nothing else is done",
            limit=100.0,
        ),
    ]


class BareServing:
    """The baseline on the same uvicorn with the same settings."""

    def __init__(self, sock: Any) -> None:
        self.port: int = sock.getsockname()[1]
        self._sock = sock
        self._server = uvicorn.Server(_config(Bare(), ws="websockets-sansio"))  # type: ignore[arg-type]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.ensure_future(self._server._serve([self._sock]))
        while not self._server.started:
            await asyncio.sleep(0.01)
        yield
        self._server.should_exit = True
        await task


def _p99(times: list[float]) -> float:
    return statistics.quantiles(times, n=100)[98]


def main() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(measure(Path(folder)))
