"""The supervisor's side of a container against a runner that says and hands over what it likes."""

import asyncio
import contextlib
import json
import os
import pty
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from supervisor.errors import SandboxError
from supervisor.sandbox import compose
from supervisor.sandbox.base import Spec, ToolResult
from supervisor.sandbox.compose import MOST_LINKS, Compose

DEEP = b"[" * 8000 + b"]" * 8000


class Hostile:
    """Connections to the backend, as from a container's runner, and this process's descriptors."""

    def __init__(self, backend: Compose, base: Path) -> None:
        self.backend, self.base = backend, base
        self.opened = contextlib.ExitStack()
        self.before = self.descriptors()

    def descriptors(self) -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    def connect(self) -> socket.socket:
        made = self.opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        made.connect(str(self.base / "tools/runner.sock"))
        made.setblocking(False)
        return made

    async def is_hung_up(self, made: socket.socket) -> bool:
        for _ in range(200):
            await asyncio.sleep(0.01)
            try:
                return made.recv(1) == b""
            except BlockingIOError:
                continue
            except ConnectionResetError:
                return True
        return False

    async def job(self) -> tuple[socket.socket, asyncio.Task[ToolResult]]:
        """A connection that has been given a job of one output and one port."""
        made = self.connect()
        made.send(b'{"hello": 1}')
        spec = Spec(
            command=("true",), workspace_lower=None, workspace_merged=self.base, ports=(3128,)
        )
        task = asyncio.create_task(self.backend.run_tool(spec, timeout_s=60))
        for _ in range(500):
            await asyncio.sleep(0.01)
            with contextlib.suppress(BlockingIOError):
                data, files, _, _ = socket.recv_fds(made, 200_000, 16)
                assert "start" in json.loads(data)
                for one in files:
                    os.close(one)
                return made, task
        raise AssertionError("no job came")


@pytest.fixture
async def hostile(tmp_path: Path) -> AsyncIterator[Hostile]:
    for side in ("agent", "tools"):
        (tmp_path / side).mkdir()
    backend = Compose(tmp_path)
    backend.open()
    made = Hostile(backend, tmp_path)
    with made.opened:
        yield made
        await backend.close()


@pytest.mark.parametrize(
    "said",
    [
        b"no json",
        b"",
        b"\xff{}",
        b"[]",
        b"{}",
        b'{"hello": "1"}',
        b'{"hello": 1, "more": 1}',
        b'{"exit": 0}',
        b'{"exit": 1e400}',
        b'{"ready": []}',
        b'{"error": "x"}',
        DEEP,
        b'{"hello": ' + DEEP + b"}",
        b'{"hello": 1, "error": "' + b"x" * 100_000 + b'"}',
        b'{"hello": ' + b"9" * 10_000 + b"}",
    ],
)
async def test_what_is_said_out_of_turn_ends_the_connection(hostile: Hostile, said: bytes) -> None:
    made = hostile.connect()
    if said:
        socket.send_fds(made, [said], [0, 1, 2])
    else:
        made.shutdown(socket.SHUT_WR)
    assert await hostile.is_hung_up(made)
    made.close()
    assert hostile.descriptors() == hostile.before


async def test_descriptors_that_come_with_a_greeting_are_closed(hostile: Hostile) -> None:
    made = hostile.connect()
    socket.send_fds(made, [b'{"hello": 1}'], [0] * 16)
    assert await hostile.is_hung_up(made)
    other = hostile.connect()
    other.send(b'{"hello": 1}')
    # Until nobody reads any more, or an ordinary user has too many under way (unix(7)).
    with contextlib.suppress(OSError):
        for _ in range(100):
            socket.send_fds(other, [b'{"hello": 1}'], [0] * 200)
    assert await hostile.is_hung_up(other)
    made.close()
    other.close()
    assert hostile.descriptors() == hostile.before


async def test_connections_that_say_nothing_are_few(hostile: Hostile) -> None:
    made = []
    for _ in range(5 * MOST_LINKS):
        made.append(hostile.connect())
        await asyncio.sleep(0.001)
    assert hostile.descriptors() == hostile.before + len(made) + MOST_LINKS


def listening(
    address: str = "127.0.0.1", port: int = 3128, *, is_listening: bool = True
) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((address, port))
    if is_listening:
        made.listen(1)
    return made


def pipe() -> int:
    reading, writing = os.pipe()
    os.close(writing)
    return reading


def opened(path: str) -> int:
    return os.open(path, os.O_RDONLY)


def terminal() -> int:
    master, slave = pty.openpty()
    os.close(slave)
    return master


HANDED: dict[str, Callable[[], list[int | socket.socket]]] = {
    "nothing": list,
    "too little": lambda: [pipe(), pipe()],
    "too much": lambda: [pipe(), pipe(), listening(), pipe()],
    "a file": lambda: [opened("/etc/passwd"), pipe(), listening()],
    "a folder": lambda: [pipe(), opened("/"), listening()],
    "a device": lambda: [opened("/dev/zero"), pipe(), listening()],
    "a terminal": lambda: [terminal(), pipe(), listening()],
    "no socket": lambda: [pipe(), pipe(), opened("/etc/passwd")],
    "a socket that doesn't listen": lambda: [pipe(), pipe(), listening(is_listening=False)],
    "every address": lambda: [pipe(), pipe(), listening("0.0.0.0")],
    "another port": lambda: [pipe(), pipe(), listening(port=0)],
    "another family": lambda: [pipe(), pipe(), socket.socket(socket.AF_UNIX)],
}


@pytest.mark.parametrize("handed", HANDED)
@pytest.mark.xdist_group("port 3128")
async def test_only_what_was_asked_for_is_taken(hostile: Hostile, handed: str) -> None:
    made, task = await hostile.job()
    given = [one if isinstance(one, int) else one.detach() for one in HANDED[handed]()]
    socket.send_fds(made, [b'{"ready": [3128]}'], given)
    for one in given:
        os.close(one)
    with pytest.raises(SandboxError, match="handed over"):
        await task
    assert await hostile.is_hung_up(made)
    made.close()
    assert hostile.descriptors() == hostile.before


@pytest.mark.xdist_group("port 3128")
async def test_a_runner_that_never_says_the_end_is_hung_up_on(
    hostile: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compose, "KILL_S", 0.1)
    monkeypatch.setattr(compose, "DRAIN_S", 0.1)
    for says_end in (False, True):
        made, task = await hostile.job()
        given = [pipe(), pipe(), listening().detach()]
        socket.send_fds(made, [b'{"ready": [3128]}'], given)
        for one in given:
            os.close(one)
        if says_end:
            made.send(b'{"exit": 3}')
            assert (await task).exit_code == 3
        else:
            await asyncio.sleep(0.1)
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()
        made.close()
