"""A crowd at a door, idle or talking nonsense: the operator comes in all the same, and the
terminal stays readable."""

import asyncio
import contextlib
import logging
import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from supervisor.server.app import build_agent_app
from supervisor.server.common import crowds
from supervisor.server.common import serve as serve_module
from supervisor.server.common.listening import listen
from supervisor.server.common.serve import AGENT_CONNECTIONS, serve_agent
from tests.fakes.parts import FakeParts
from tests.server.conftest import PATIENCE_S, OnSocket, on_socket

# Opens so many connections, says so, and holds them until its input ends. Each that was closed for
# it stays counted.
CROWD = """\
import resource, socket, sys
port, count = map(int, sys.argv[1:])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
held = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
print("here", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def descriptors() -> None:
    """As at a supervisor's start: an ordinary user has 1,024 at first."""
    crowds.raise_descriptor_limit()


@contextlib.asynccontextmanager
async def crowd(port: int, count: int) -> AsyncIterator[None]:
    """A process of its own, so that the descriptors are not ours."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        CROWD,
        str(port),
        str(count),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        assert await asyncio.wait_for(child.stdout.readline(), PATIENCE_S) == b"here\n"
        yield
    finally:
        child.stdin.close()
        await child.wait()


async def expect_operator_in(door: OnSocket) -> None:
    """A page is opened and the CLI asks, each on a connection of its own."""
    async with httpx.AsyncClient(timeout=PATIENCE_S) as page:
        answer = await page.get(f"{door.url}/login", params={"token": door.auth.new_login_token()})
        assert answer.status_code == 200
    for _ in range(3):
        async with httpx.AsyncClient(
            timeout=PATIENCE_S, headers={"authorization": f"Bearer {door.auth.cli_token}"}
        ) as cli:
            assert (await cli.get(f"{door.url}/api/status")).status_code == 200


async def test_2000_idle_connections_at_the_operators_port_keep_nobody_out(
    operator_door: OnSocket,
) -> None:
    async with crowd(operator_door.serving.port, 2000):
        await expect_operator_in(operator_door)


async def test_a_page_that_is_open_stays_while_a_crowd_comes(operator_door: OnSocket) -> None:
    headers = {"authorization": f"Bearer {operator_door.auth.cli_token}"}
    async with httpx.AsyncClient(timeout=PATIENCE_S, headers=headers) as cli:
        assert (await cli.get(f"{operator_door.url}/api/status")).status_code == 200
        async with crowd(operator_door.serving.port, 600):
            # On the same connection: who said something goes last.
            stream = await cli.get(f"{operator_door.url}/api/status")
            assert stream.status_code == 200


async def test_2000_idle_connections_at_an_agents_door_keep_nobody_out(
    operator_door: OnSocket, agent_door: OnSocket
) -> None:
    async with crowd(agent_door.serving.port, 2000):
        await expect_operator_in(operator_door)


async def test_all_agents_together_leave_descriptors_for_the_operator(
    operator_door: OnSocket, running: FakeParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowds, "agent_room", lambda: 30)
    monkeypatch.setattr(
        serve_module, "HEAD_S", 10 * PATIENCE_S
    )  # what is closed is closed for want of room
    async with contextlib.AsyncExitStack() as stack:
        doors = [
            await stack.enter_async_context(
                on_socket(serve_agent(build_agent_app(running, name), listen(0)))
            )
            for name in ("one", "two")
        ]
        held = [
            await asyncio.open_connection("127.0.0.1", door.port)
            for door in doors
            for _ in range(25)
        ]
        gone = 0
        for reader, _ in held[30:]:
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
            gone += 1
        assert gone == 20
        assert AGENT_CONNECTIONS > 25
        await expect_operator_in(operator_door)
        for _, writer in held:
            writer.close()


def test_agents_get_what_the_operator_and_the_supervisor_leave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for soft, room in ((1024, 512), (65536, 65024), (600, 300), (resource.RLIM_INFINITY, 1 << 20)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        assert crowds.agent_room() == room


def test_the_supervisor_takes_all_descriptors_that_it_may_have() -> None:
    program = (
        "import resource; from supervisor.server.common.crowds import raise_descriptor_limit\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))\n"
        "raise_descriptor_limit()\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(hard, 65536))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """What uvicorn prints on the terminal."""
    found: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    handler = Handler()
    logging.getLogger("uvicorn.error").addHandler(handler)
    yield found
    logging.getLogger("uvicorn.error").removeHandler(handler)


NONSENSE = (
    b"GARBAGE\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
)


@pytest.mark.parametrize("sent", NONSENSE)
async def test_malformed_requests_are_counted_and_not_told_one_by_one(
    agent_door: OnSocket, lines: list[str], monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    tell = []
    monkeypatch.setattr(crowds, "call_later", lambda _, told: tell.append(told))
    for _ in range(44):
        reader, writer = await asyncio.open_connection("127.0.0.1", agent_door.serving.port)
        writer.write(sent)
        assert (await asyncio.wait_for(reader.readline(), PATIENCE_S)).startswith(b"HTTP/1.1 4")
        writer.close()
    assert len(lines) == 1
    assert len(tell) == 1
    tell.pop()()
    assert len(lines) == 2
    assert lines[1].startswith("43 more ")
    # A flood that goes on is told of once in each such time, and one that ended no more.
    tell.pop()()
    assert not tell
    assert len(lines) == 2
