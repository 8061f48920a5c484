"""What egress costs: through ours, through plain mitmdump, and direct, taken in turns in one run.

Ours asks the real gate about each request, with rules, audit and database; mitmdump lets everything through. Both are mitmproxy,
both verify the origin. The origin is one small asyncio server, so a figure says what the way costs, not the origin.
"""

import asyncio
import contextlib
import os
import socket
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import NamedTuple

import trustme

from bench import Figure
from supervisor.approval_queue import ApprovalQueue
from supervisor.audit import Audit
from supervisor.brokers.ca import ensure_ca
from supervisor.brokers.network import NetworkBroker
from supervisor.clock import RealClock
from supervisor.core.redact import Redactor
from supervisor.core.sessions import Session, SessionId
from supervisor.gate import Gate
from supervisor.kill_switch import KillSwitch
from supervisor.policy_files import PolicyFiles
from supervisor.process import spawn
from supervisor.settings import ROOT
from supervisor.store.engine import open_database

HOST = "127.0.0.1"
ROUNDS = 5
KEPT_REQUESTS = 60
NEW_CONNECTIONS = 12
PARALLEL = 16
PARALLEL_REQUESTS = 20
LARGE_BYTES = 24 * 1024 * 1024


class Way(NamedTuple):
    """How a client gets to the origins: by a proxy's port, None for directly, trusting this authority."""

    port: int | None
    trust: Path
    pid: int | None = None


class Origins(NamedTuple):
    http: int
    https: int


def main() -> list[Figure]:
    """Medians of five rounds of each case."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure(Path(folder)))


async def _measure(folder: Path) -> list[Figure]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "origin-ca.pem"))
    async with _origins(authority) as origins, _mitmdump(folder) as plain, _ours(folder, origins) as ours:
        direct = Way(None, folder / "origin-ca.pem")
        ways = (ours, plain, direct)
        for tls in (False, True):  # certificates are made and caches filled before anything counts
            for way in ways:
                await _kept(way, origins, tls, 3)
        return await _figures(ways, origins)


async def _figures(ways: tuple[Way, Way, Way], origins: Origins) -> list[Figure]:
    figures = []
    for tls, name in ((False, "HTTP"), (True, "HTTPS")):
        kept = await _in_turns(ways, lambda way, tls=tls: _kept(way, origins, tls, KEPT_REQUESTS))
        new = await _in_turns(ways, lambda way, tls=tls: _new(way, origins, tls))
        many = await _in_turns(ways, lambda way, tls=tls: _many(way, origins, tls))
        large = await _in_turns(ways, lambda way, tls=tls: _large(way, origins, tls))
        figures += [
            *_pair(f"egress {name}, request on a kept connection", kept, "ms", 1000 / KEPT_REQUESTS, 1.15),
            *_pair(f"egress {name}, new connection and request", new, "ms", 1000 / NEW_CONNECTIONS, 1.15),
            *_rates(f"egress {name}, requests/s, {PARALLEL} clients", many, "/s", PARALLEL * PARALLEL_REQUESTS, 0.9),
            *_rates(f"egress {name}, large body", large, "MB/s", LARGE_BYTES / 1e6, 0.9),
        ]
    return figures


def _pair(name: str, seconds: list[float], unit: str, factor: float, wanted: float) -> list[Figure]:
    ours, plain, direct = (one * factor for one in seconds)
    return [
        Figure(name, ours, unit, plain, "mitmdump", wanted),
        Figure(name, ours, unit, direct, "direct"),
    ]


def _rates(name: str, seconds: list[float], unit: str, amount: float, wanted: float) -> list[Figure]:
    ours, plain, direct = (amount / one for one in seconds)
    return [
        Figure(name, ours, unit, plain, "mitmdump", wanted, is_rate=True),
        Figure(name, ours, unit, direct, "direct", None, is_rate=True),
    ]


async def _in_turns(ways: tuple[Way, ...], do: Callable[[Way], Coroutine[None, None, None]]) -> list[float]:
    """The median seconds of each way."""
    taken: list[list[float]] = [[] for _ in ways]
    for _ in range(ROUNDS):
        for times, way in zip(taken, ways, strict=True):
            began = time.perf_counter()
            await do(way)
            times.append(time.perf_counter() - began)
    return [statistics.median(times) for times in taken]


# -- the client --------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _client(
    way: Way, origins: Origins, tls: bool
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, str]]:
    """A connection by a way, and how targets are written on it."""
    port = origins.https if tls else origins.http
    reader, writer = await asyncio.open_connection("127.0.0.1", way.port or port)
    try:
        if tls:
            if way.port is not None:
                writer.write(f"CONNECT {HOST}:{port} HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n".encode())
                assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
            await writer.start_tls(ssl.create_default_context(cafile=str(way.trust)), server_hostname=HOST)
        yield reader, writer, f"http://{HOST}:{port}" if way.port is not None and not tls else ""
    finally:
        writer.close()


async def _get(client: tuple[asyncio.StreamReader, asyncio.StreamWriter, str], port: int, path: str) -> None:
    reader, writer, base = client
    writer.write(f"GET {base}{path} HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in head.split(b"\r\n", 1)[0], head
    length = next(
        int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
    )
    while length:
        length -= len(await reader.read(min(length, 1 << 18)))


async def _kept(way: Way, origins: Origins, tls: bool, count: int) -> None:
    async with _client(way, origins, tls) as client:
        for _ in range(count):
            await _get(client, origins.https if tls else origins.http, "/small")


async def _new(way: Way, origins: Origins, tls: bool) -> None:
    for _ in range(NEW_CONNECTIONS):
        await _kept(way, origins, tls, 1)


async def _many(way: Way, origins: Origins, tls: bool) -> None:
    async with asyncio.TaskGroup() as tasks:
        for _ in range(PARALLEL):
            tasks.create_task(_kept(way, origins, tls, PARALLEL_REQUESTS))


async def _large(way: Way, origins: Origins, tls: bool) -> None:
    async with _client(way, origins, tls) as client:
        await _get(client, origins.https if tls else origins.http, "/large")


# -- what is measured --------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _origins(authority: trustme.CA) -> AsyncIterator[Origins]:
    bodies = {b"/small": b"x" * 200, b"/large": b"x" * LARGE_BYTES}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = bodies[head.split(b" ", 2)[1]]
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
                writer.write(body)
                await writer.drain()
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(HOST).configure_cert(context)
    plain = await asyncio.start_server(serve, "127.0.0.1", 0)
    secure = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield Origins(plain.sockets[0].getsockname()[1], secure.sockets[0].getsockname()[1])
    finally:
        plain.close()
        secure.close()


@contextlib.asynccontextmanager
async def _mitmdump(folder: Path) -> AsyncIterator[Way]:
    """Stock and quiet."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = Path(sys.executable).parent / "mitmdump"
    options = (
        "--set",
        f"confdir={folder / 'mitm'}",
        "--set",
        f"ssl_verify_upstream_trusted_ca={folder / 'origin-ca.pem'}",
    )
    child = await spawn(
        [program, "-q", "--listen-host", "127.0.0.1", "--listen-port", str(port), *options],
        env={"PATH": os.defpath, "HOME": str(folder)},
    )
    try:
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                await asyncio.sleep(0.1)
        yield Way(port, folder / "mitm" / "mitmproxy-ca-cert.pem", child.pid)
    finally:
        child.close()


@contextlib.asynccontextmanager
async def _ours(folder: Path, origins: Origins) -> AsyncIterator[Way]:
    clock, redactor = RealClock(), Redactor([])
    policy = folder / "base.yaml"
    named = [f"network({HOST}:{port})" for port in origins]
    policy.write_text("version: 1\nallow:\n" + "".join(f"  - {rule}\n" for rule in named))
    engine = open_database(folder / "gatehouse.db")
    audit = Audit(folder / "audit.log", clock, redactor)
    gate = Gate(
        policies=PolicyFiles(policy, folder / "policy.yaml", clock),
        queue=ApprovalQueue(engine),
        audit=audit,
        kill_switch=KillSwitch(folder / "stopped"),
        clock=clock,
        redactor=redactor,
    )
    now = clock.now()
    gate.open_session(
        Session(
            id=SessionId("bench"), kind="agent", workspace=str(ROOT), command=("sh",), token_hash="",
            created_at=now, deadline_at=now + 3600,
        )
    )  # fmt: skip
    certificate = ensure_ca(folder / "ca", clock)
    broker = NetworkBroker(
        gate,
        ca_directory=folder / "ca",
        ca_certificate=certificate,
        upstream_ca_bundle=folder / "origin-ca.pem",
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with asyncio.TaskGroup() as tasks:
            await broker.start(tasks)
            await broker.open_session("bench", listener)
            try:
                yield Way(listener.getsockname()[1], certificate, broker.pid)
            finally:
                await broker.stop()
    audit.close()
    engine.dispose()
