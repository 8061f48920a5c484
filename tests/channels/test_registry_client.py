"""Our client of package registries, through a real egress, at hostile indexes."""

import asyncio
import gzip
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from supervisor.channels.install_sandbox import Hosts
from supervisor.channels.registry_client import MOST_BYTES, RegistryClient
from tests.fakes.supervised import Supervised, make_repository, settings_in, supervised


class Index:
    """Answers as it likes; `asked` are the heads of requests."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.asked.append(head)
            path = head.split()[1].rpartition(b"/")[2]
            headers, body = b"", b"{}"
            status = b"200 OK"
            if path == b"coded":
                headers, body = b"Content-Encoding: gzip\r\n", gzip.compress(bytes(1000))
            if path == b"moved":
                status, headers = b"302 Found", b"Location: /good\r\n"
            if path == b"round":
                status, headers = b"302 Found", b"Location: /round\r\n"
            if path == b"away":
                status, headers = b"302 Found", b"Location: http://elsewhere.test/\r\n"
            length = MOST_BYTES + 1 if path == b"long" else len(body)
            writer.write(
                b"HTTP/1.1 %s\r\n%sContent-Length: %d\r\nConnection: close\r\n\r\n"
                % (status, headers, length)
            )
            writer.write(body if path != b"long" else bytes(length))
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@pytest_asyncio.fixture
async def index() -> AsyncIterator[Index]:
    found = Index()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    yield found
    server.close()


@pytest_asyncio.fixture
async def running(tmp_path: Path, index: Index) -> AsyncIterator[Supervised]:
    policy = f"version: 1\nallow: [network(127.0.0.1:{index.port})]\n"
    async with supervised(settings_in(tmp_path, policy)) as running:
        yield running


async def test_answers_are_bounded_and_nobody_else_may_ask_so(
    running: Supervised, index: Index, tmp_path: Path
) -> None:
    network = running.parts.network
    doors: list[tuple[int, int]] = []

    async def opening(session_id: str, listener: object, hosts: Hosts, own: Hosts | None) -> str:
        door = Path(listener.getsockname())  # type: ignore[attr-defined]
        facts = door.parent.stat()
        doors.append((facts.st_mode, facts.st_uid))
        return await network.open_reach(session_id, listener, hosts, own=own)  # type: ignore[arg-type]

    ca_bundle = running.parts.surroundings.ca_bundle
    client = RegistryClient(opening, network.close_session, ca_bundle)
    workspace = make_repository(tmp_path / "project")
    session = await running.start(workspace, "sh", "-c", "echo it is up; exec sleep 300")
    await running.printed(session, "it is up")
    hosts: Hosts = frozenset({("127.0.0.1", index.port)})

    def read(url: str, body: bytes) -> bytes:
        if url.endswith("odd"):
            raise ValueError("it isn't what it should be")
        return body

    names = ("good", "coded", "long", "moved", "round", "away", "odd")
    urls = {name: f"http://127.0.0.1:{index.port}/{name}" for name in names}
    found = await client.fetch(session.id, urls.values(), hosts, own=hosts, read=read)
    assert found == {urls["good"]: b"{}", urls["moved"]: b"{}"}
    assert all(head.startswith(b"GET ") for head in index.asked)
    assert all(b"accept-encoding: identity" in head.lower() for head in index.asked)
    # The way to egress is no port: a folder that only this user may enter.
    (door,) = doors
    assert stat.S_IMODE(door[0]) == 0o700
    assert await client.fetch(session.id, [], hosts, own=hosts, read=read) == {}
    await running.parts.sessions.stop(session.id, reason="the test is over", by="the test")
    await running.ended(session)
