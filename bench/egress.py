"""Cost of egress beside squid, tinyproxy, sandbox-runtime, plain mitmdump and no proxy.

All take turns in one run on loopback. Tunnelled, ours is compared with squid and tinyproxy;
inspected, with mitmdump and sandbox-runtime. Ours asks the real gate about each connection and
request, with rules, audit and database; the others let everything through. Every proxy runs on one
processor, ours with its supervisor, so that ours pays for its questions; the client and the origin
share another. The origin is one small server, so a figure shows the cost of the proxy.
"""

import asyncio
import contextlib
import json
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path

import msgspec
import trustme
import uvloop

from bench import Figure, interleaved_ms
from bench._egress_answers import answer_figures
from bench._egress_ours import HOST, Ours, memory_mb
from bench._egress_peers import Way, mitmdump, rivals, sandbox_runtime
from supervisor.core.actions import Network
from supervisor.core.policy.evaluate import evaluate
from supervisor.core.policy.policy_text import policy_from_data
from supervisor.core.policy.rules import Policy
from supervisor.settings import ROOT

ROUNDS = 5
# Passed on unread a round takes a tenth of a second, and what a proxy adds is the difference of two
# figures: five left both a tenth apart.
UNREAD_ROUNDS = 40
# Looked into a round takes longer, and scatters less.
LOOKED_INTO_ROUNDS = 15
KEPT_REQUESTS = 300
NEW_CONNECTIONS = 30
PARALLEL = 64
PARALLEL_REQUESTS = 40
LARGE_BYTES = 100 * 1024 * 1024
RULES = 1_000


type Origins = dict[str, int]
# What each way took, by its name, in seconds: each round, or the median request of each round.
type Taken = dict[str, list[float]]
# What is done in a round; it tells what each request took where they were made one after another.
type Do = Callable[[Way], Coroutine[None, None, Sequence[float]]]


def main() -> list[Figure]:
    """Return medians of as many rounds of each case as needed."""
    with (
        tempfile.TemporaryDirectory() as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        Path(folder).chmod(0o755)  # squid gives up being root
        figures = runner.run(_measure(Path(folder)))
    return figures + _verdicts()


async def _measure(folder: Path) -> list[Figure]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "origin-ca.pem"))
    processors = sorted(os.sched_getaffinity(0))
    others, proxies = {processors[-1]}, {processors[0]}
    async with contextlib.AsyncExitStack() as stack:
        origins = await stack.enter_async_context(_origins(authority))
        os.sched_setaffinity(0, proxies)  # inherited by what is started now
        ours = await stack.enter_async_context(_ours(folder, origins))
        peers = [await stack.enter_async_context(way) for way in rivals(folder)]
        began = time.perf_counter()
        plain = await stack.enter_async_context(mitmdump(folder))
        plain_s, plain_mb = time.perf_counter() - began, memory_mb(plain.pid, "VmRSS")
        runtime = [await stack.enter_async_context(way) for way in sandbox_runtime(folder)]
        os.sched_setaffinity(0, others)
        direct = Way("direct", None, folder / "origin-ca.pem")
        unread = _way(ours, "unread", direct.trust)
        looked_into = _way(ours, "looked into", Path(ours.certificate))
        return [
            Figure(
                "supervisor and egress start",
                ours.started_s * 1000,
                "ms",
                plain_s * 1000,
                "mitmdump",
                limit=2000,
            ),
            Figure("egress idles", ours.idle_mb, "MB", plain_mb, "mitmdump", limit=120),
            *await _unread_figures(unread, peers, [*runtime[:1], direct], origins["unread"]),
            *await _looked_into_figures(
                looked_into, plain, runtime[1:], direct, origins["looked into"]
            ),
            *await answer_figures(ours, origins["asked"], origins["unread"]),
        ]


async def _unread_figures(
    ours: Way, rivals: Sequence[Way], others: Sequence[Way], origin: int
) -> list[Figure]:
    """Return figures beside all proxies. The limit is relative to the best of the rivals. The last
    of the others is no proxy."""
    ways = [ours, *rivals, *others]
    figures = []
    for what, do, count in _cases(origin):
        taken, requests = await _in_turns(ways, do, UNREAD_ROUNDS)
        rates = _rates(taken, count)
        best = max((way.name for way in rivals), key=rates.__getitem__, default=None)
        for way in ways[1:]:
            wanted = 0.9 if way.name == best else None
            figures.append(_rate(f"unread, {what}", rates, way.name, wanted))
        if what.startswith("1 "):
            figures += _added(what, requests, rivals)
    taken, _ = await _in_turns(ways, lambda way: _large(way, origin))
    rates = _rates(taken, LARGE_BYTES / 1e6)
    for way in ways[1:]:
        figures.append(
            _rate("unread, 100 MB", rates, way.name, 0.8 if way.name == "squid" else None, "MB/s")
        )
    return figures


def _rates(taken: Taken, count: float) -> dict[str, float]:
    """Return each way's rate per second, at the machine's speed in our median round.

    Each round is compared with ours of the same round. The machine's speed may change by half
    within a run, which would distort a median over all rounds.
    """
    ours = count / statistics.median(taken["ours"])
    return {name: ours / _beside(taken, name, "ours") for name in taken}


def _beside(taken: Taken, name: str, other: str) -> float:
    """Return how many times as long one way takes as another, in the median round."""
    return statistics.median(one / two for one, two in zip(taken[name], taken[other], strict=True))


def _rate(
    what: str, rates: dict[str, float], against: str, wanted: float | None, unit: str = "/s"
) -> Figure:
    return Figure(what, rates["ours"], unit, rates[against], against, wanted, is_rate=True)


def _added(what: str, requests: Taken, rivals: Sequence[Way]) -> list[Figure]:
    """Return what a proxy adds to the median request."""
    if not rivals:
        return []
    direct_ms = statistics.median(requests["direct"]) * 1000
    added = {name: direct_ms * (_beside(requests, name, "direct") - 1) for name in requests}
    best = min((way.name for way in rivals), key=added.__getitem__)
    return [Figure(f"unread, {what}: added p50", added["ours"], "ms", added[best], best, 1.2)]


async def _looked_into_figures(
    ours: Way, plain: Way, runtime: Sequence[Way], direct: Way, origin: int
) -> list[Figure]:
    """Return figures also beside no proxy: the difference is what could still be gained on a new
    connection."""
    figures = []
    ways = [ours, plain, *runtime, direct]
    for way in ways:  # certificates are made and caches filled before anything counts
        await _kept(way, origin, 3)
    for what, do, count in _cases(origin):
        if what.startswith("64 ") and "new" in what:
            continue  # seconds each with any
        taken, _ = await _in_turns(ways, do, LOOKED_INTO_ROUNDS)
        rates = _rates(taken, count)
        is_kept = "kept" in what
        figures.append(_rate(f"looked into, {what}", rates, plain.name, 0.9 if is_kept else None))
        figures += [
            _rate(f"looked into, {what}", rates, way.name, None if is_kept else 4)
            for way in runtime
        ]
        figures.append(_rate(f"looked into, {what}", rates, direct.name, None))
    figures += await _plain_figures(ways, origin)
    grown = {}
    seconds = {}
    for way in (ours, plain):
        before, began = memory_mb(way.pid, "VmRSS"), time.perf_counter()
        await _large(way, origin)
        seconds[way.name] = time.perf_counter() - began
        grown[way.name] = memory_mb(way.pid, "VmHWM") - before
    figures.append(
        Figure(
            "looked into, 100 MB: memory added",
            grown["ours"],
            "MB",
            grown["mitmdump"],
            "mitmdump",
            limit=20,
        )
    )
    rates = {name: LARGE_BYTES / 1e6 / one for name, one in seconds.items()}
    figures.append(_rate("looked into, 100 MB", rates, plain.name, None, "MB/s"))
    return figures


async def _plain_figures(ways: Sequence[Way], origin: int) -> list[Figure]:
    """Return figures of new connections by a client without low-delay settings, whose requests wait
    for acknowledgements (`_egress_plain`)."""
    taken: Taken = {way.name: [] for way in ways}
    for _ in range(ROUNDS):
        for way in ways:
            arguments = (str(way.port or 0), str(origin), str(way.trust), str(NEW_CONNECTIONS))
            client = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "bench._egress_plain",
                *arguments,
                stdout=subprocess.PIPE,
                cwd=ROOT,
            )
            said, _ = await client.communicate()
            taken[way.name] += json.loads(said)
    rates = {name: 1 / statistics.median(seconds) for name, seconds in taken.items()}
    return [
        _rate(
            "looked into, 1 new connection after another by a plain blocking socket",
            rates,
            way.name,
            None,
        )
        for way in ways[1:]
    ]


def _cases(origin: int) -> list[tuple[str, Do, int]]:
    """Return each case's name, its function, and its number of requests."""
    return [
        ("1 connection kept", lambda way: _kept(way, origin, KEPT_REQUESTS), KEPT_REQUESTS),
        ("1 new connection after another", lambda way: _new(way, origin), NEW_CONNECTIONS),
        (
            "64 connections kept",
            lambda way: _many(way, origin, PARALLEL_REQUESTS),
            PARALLEL * PARALLEL_REQUESTS,
        ),
        ("64 new connections at once", lambda way: _many(way, origin, 1), PARALLEL),
    ]


async def _in_turns(ways: Sequence[Way], do: Do, rounds: int = ROUNDS) -> tuple[Taken, Taken]:
    """Return each round's time, and the time of its median request.

    Another way begins each round: after a way that left the proxies' processor idle, the next one
    takes longer.
    """
    taken: Taken = {way.name: [] for way in ways}
    requests: Taken = {way.name: [] for way in ways}
    for number in range(rounds):
        first = number % len(ways)
        for way in (*ways[first:], *ways[:first]):
            began = time.perf_counter()
            each = await do(way)
            taken[way.name].append(time.perf_counter() - began)
            if each:
                requests[way.name].append(statistics.median(each))
    return taken, requests


def _way(ours: Ours, session: str, trust: Path) -> Way:
    return Way("ours", ours.ports[session], trust, ours.egress_pid)


def _verdicts() -> list[Figure]:
    """Return verdict times under many rules and under few. On a connection, rules name as many
    hosts; on a request, as many paths of its host are denied, each compared with every spelling. No
    two share a host or a path."""
    asked = iter(range(10_000_000))

    def connection(policy: Policy) -> None:
        for _ in range(100):
            host = f"api.host{next(asked)}.example.com"
            evaluate(policy, Network(operation="connect", host=host, port=443), now=0.0)

    def request(policy: Policy) -> None:
        for _ in range(100):
            number = next(asked)
            path = f"/org{number % RULES}/{number}"
            action = Network(
                operation="request",
                host="api.example.com",
                port=443,
                scheme="https",
                method="GET",
                path=path,
            )
            evaluate(policy, action, now=0.0)

    cases = (
        ("connection", connection, "allow", "network(*.host{}.example.com)"),
        ("request", request, "deny", "network(* https://api.example.com/org{}/never/**)"),
    )
    figures = []
    for what, verdict, effect, rule in cases:
        many, few = (
            policy_from_data({effect: [rule.format(number) for number in range(count)]})
            for count in (RULES, 10)
        )
        ours, baseline = (
            ms * 10 for ms in interleaved_ms(partial(verdict, many), partial(verdict, few))
        )
        figures.append(
            Figure(f"verdict on a {what}, 1,000 rules", ours, "us", baseline, "10 rules", limit=100)
        )
    return figures


# -- the client -----------------------------------------------------------------------------------


_contexts: dict[Path, ssl.SSLContext] = {}


@contextlib.asynccontextmanager
async def _client(
    way: Way, origin: int
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Yield a TLS connection by a way."""
    reader, writer = await asyncio.open_connection(HOST, way.port or origin)
    try:
        if way.port is not None:
            writer.write(
                f"CONNECT {HOST}:{origin} HTTP/1.1\r\nHost: {HOST}:{origin}\r\n\r\n".encode()
            )
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        if way.trust not in _contexts:
            _contexts[way.trust] = ssl.create_default_context(cafile=str(way.trust))
        await writer.start_tls(_contexts[way.trust], server_hostname=HOST)
        yield reader, writer
    finally:
        writer.close()


async def _get(
    client: tuple[asyncio.StreamReader, asyncio.StreamWriter], origin: int, path: str
) -> None:
    reader, writer = client
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {HOST}:{origin}\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in head.split(b"\r\n", 1)[0], head
    length = next(
        int(line.split(b":")[1])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length")
    )
    while length:
        length -= len(await reader.read(min(length, 1 << 18)))


async def _kept(way: Way, origin: int, count: int) -> list[float]:
    """Return the time of each request on one kept connection."""
    async with _client(way, origin) as client:
        return [await _timed(_get(client, origin, "/small")) for _ in range(count)]


async def _new(way: Way, origin: int) -> list[float]:
    """Return for several connections the time from connecting to the end of the answer."""
    return [await _timed(_kept(way, origin, 1)) for _ in range(NEW_CONNECTIONS)]


async def _many(way: Way, origin: int, count: int) -> tuple[()]:
    async with asyncio.TaskGroup() as tasks:
        for _ in range(PARALLEL):
            tasks.create_task(_kept(way, origin, count))
    return ()


async def _large(way: Way, origin: int) -> tuple[()]:
    async with _client(way, origin) as client:
        await _get(client, origin, "/large")
    return ()


async def _timed(what: Coroutine[None, None, object]) -> float:
    began = time.perf_counter()
    await what
    return time.perf_counter() - began


# -- what is measured -----------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _origins(authority: trustme.CA) -> AsyncIterator[Origins]:
    """Yield an origin for each kind of connection, so that neither finds the other's state."""
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
    servers = {
        name: await asyncio.start_server(serve, HOST, 0, ssl=context)
        for name in ("unread", "looked into", "asked")
    }
    try:
        yield {name: server.sockets[0].getsockname()[1] for name, server in servers.items()}
    finally:
        for server in servers.values():
            server.close()


@contextlib.asynccontextmanager
async def _ours(folder: Path, origins: Origins) -> AsyncIterator[Ours]:
    """Yield the whole supervisor with its egress, its sessions' sockets ready."""
    policy = folder / "base.yaml"
    policy.write_text("version: 1\n")
    environment = {
        **os.environ,
        "GATEHOUSE_DATA": str(folder / "data"),
        "GATEHOUSE_PORT": "0",
        "GATEHOUSE_POLICY": str(policy),
        "GATEHOUSE_UPSTREAM_CA": str(folder / "origin-ca.pem"),
    }
    program = [sys.executable, "-m", "bench._egress_ours", json.dumps(origins)]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=ROOT
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            yield msgspec.json.decode(await asyncio.to_thread(child.stdout.readline), type=Ours)
        finally:
            child.stdin.close()
            await asyncio.to_thread(child.wait)
