"""What the agents' doors hold of bodies, by real sockets: of one agent, and of all of them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx
import pytest

from supervisor.server.app import build_agent_app
from supervisor.server.common import request_guard
from supervisor.server.common.listening import listen
from supervisor.server.common.request_guard import MOST_OF_ALL, MOST_OF_SESSION, BodyRoom
from supervisor.server.common.serve import serve_agent
from tests.fakes.parts import FakeParts
from tests.server.conftest import PATIENCE_S, OnSocket, client_of, on_socket

MB = 1024 * 1024
PARTS = 20


@contextlib.asynccontextmanager
async def half_sent(port: int, path: str, token: str) -> AsyncIterator[asyncio.Future[bytes]]:
    """A call whose body of 20 MB has been sent but for its end; what is answered to it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    said = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {PARTS * MB + 1}\r\n\r\n"
    )
    answer = asyncio.ensure_future(_read(reader))
    writer.write(said.encode() + b'{"path": "a", "content": "')
    with contextlib.suppress(ConnectionError):
        for _ in range(PARTS):
            writer.write(b"x" * (MB - 2))
            await writer.drain()
    try:
        yield answer
    finally:
        answer.cancel()
        writer.close()


async def _read(reader: asyncio.StreamReader) -> bytes:
    """What is answered; nothing where the connection was ended while the body was still coming."""
    try:
        return await reader.read(65536)
    except ConnectionError:
        return b""


def is_refused(answer: bytes) -> bool:
    return not answer or answer.startswith(b"HTTP/1.1 503")


@pytest.mark.parametrize("path", ["/v1/files/write", "/mcp"])
async def test_bodies_of_one_agent_are_bounded_together(agent_door: OnSocket, path: str) -> None:
    port = agent_door.serving.port
    async with contextlib.AsyncExitStack() as calls:
        answers = [
            await calls.enter_async_context(half_sent(port, path, "token-of-one"))
            for _ in range(MOST_OF_SESSION // (PARTS * MB) + 1)
        ]
        done, waiting = await asyncio.wait(
            answers, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED
        )
        assert len(done) == 1
        assert len(waiting) == 2
        assert is_refused(done.pop().result())
    # Room is there again as soon as they are over.
    content = {"path": "a", "content": "x" * (7 * MB)}
    headers = {"authorization": "Bearer token-of-one"}
    async with httpx.AsyncClient(headers=headers, timeout=PATIENCE_S) as agent:
        for _ in range(10):
            answer = await agent.post(f"{agent_door.url}/v1/files/write", json=content)
            assert answer.status_code == 202, answer.text


async def test_bodies_of_all_agents_are_bounded_together(
    running: FakeParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_guard, "_of_all", BodyRoom(30 * MB))
    async with contextlib.AsyncExitStack() as doors:
        one, two = [
            await doors.enter_async_context(
                on_socket(serve_agent(build_agent_app(running, name), listen(0)))
            )
            for name in ("one", "two")
        ]
        first = half_sent(one.port, "/v1/files/write", "token-of-one")
        second = half_sent(two.port, "/v1/files/write", "token-of-two")
        async with first as has_room, second as has_none:
            await asyncio.wait(
                (has_room, has_none), timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED
            )
            assert has_room.done() != has_none.done()


async def test_what_has_no_room_is_told_so(
    parts: FakeParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_guard, "MOST_OF_SESSION", 1000)
    headers = {"authorization": "Bearer token-of-one"}
    async with client_of(build_agent_app(parts, "one"), **headers) as agent:
        for _ in range(3):
            answer = await agent.post("/v1/exec", json={"command": "x" * 1000})
            assert answer.status_code == 503
            assert "together too long" in answer.json()["why"]
            assert answer.headers["retry-after"] == "1"
            assert (await agent.post("/v1/exec", json={"command": "x" * 900})).status_code == 202


async def test_who_goes_away_amid_a_body_is_no_fault_of_ours(
    running: FakeParts, capfd: pytest.CaptureFixture[str]
) -> None:
    """An agent could fill the log with traces."""
    door = serve_agent(build_agent_app(running, "one"), listen(0))
    async with on_socket(door), half_sent(door.port, "/v1/files/write", "token-of-one"):
        pass
    assert not capfd.readouterr().err


def test_room_in_the_own_and_in_the_shared_one_is_taken_and_given_back_together() -> None:
    shared = BodyRoom(10)
    one, two = BodyRoom(8, shared), BodyRoom(8, shared)
    assert one.take(8)
    assert not one.take(1)
    assert two.take(2)
    assert not two.take(1)
    one.give_back(8)
    assert two.take(6)
    assert not two.take(1)
    assert MOST_OF_SESSION < MOST_OF_ALL
