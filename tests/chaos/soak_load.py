"""The load of a soak, as an agent in the sandbox: `soak_load.py PROXY_PORT TUNNELLED INSIDE DENIED`
(ports of 127.0.0.1).

It uses every kind of connection once, says WARM, and waits for `go` in the workspace; then 64
clients do one kind after the other, by chance, until `stop` is there; it says PLAYED once each
kind was done again. Its last line is what it counted: JSON, kind -> how often. What doesn't go
as its kind must is counted as `wrong` and said. It imports nothing of the project, since the
sandbox doesn't show it.
"""

import asyncio
import collections
import json
import random
import socket
import ssl
import struct
import sys
from pathlib import Path

PROXY, TUNNELLED, INSIDE, DENIED = (int(word) for word in sys.argv[1:5])
CLIENTS = 64
LOWER = Path("/workspace/lower")
# So that the load is that of a busy agent, and not all that the machine can take for half an hour.
MOST_PAUSE_S = 0.15
SLOW_BYTES = 400_000
counts: collections.Counter[str] = collections.Counter()
chance = random.Random(1)

type Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class RefusedError(Exception):
    """The proxy refused a CONNECT with 403."""


def cut(writer: asyncio.StreamWriter) -> None:
    """Reset it, as a program that is killed does."""
    found = writer.get_extra_info("socket")
    if found is not None:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def connect(port: int, *, tls: bool = True) -> Streams:
    reader, writer = await asyncio.open_connection("127.0.0.1", PROXY)
    try:
        writer.write(
            f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
        )
        line = await reader.readline()
        if b" 403 " in line:
            await reader.read()
            raise RefusedError
        assert b" 200 " in line, line
        while await reader.readline() not in (b"\r\n", b""):
            pass
        if tls:
            await writer.start_tls(context(), server_hostname="127.0.0.1")
    except BaseException:
        writer.transport.abort()
        raise
    return reader, writer


def context() -> ssl.SSLContext:
    if not made:
        made.append(ssl.create_default_context())
    return made[0]


made: list[ssl.SSLContext] = []


async def ask(streams: Streams, port: int, path: str, *, read: bool = True) -> tuple[int, int]:
    """The status and the length of the body of one GET."""
    reader, writer = streams
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    status = int((await reader.readline()).split()[1])
    length = 0
    while (line := await reader.readline()) not in (b"\r\n", b""):
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    if read:
        assert len(await reader.readexactly(length)) == length
    return status, length


async def some(port: int, path: str, count: int, wanted: tuple[int, ...]) -> None:
    streams = await connect(port)
    try:
        for _ in range(count):
            status, _ = await ask(streams, port, path)
            assert status in wanted, status
            if status != 200:
                return  # a refusal is the last of its connection
    finally:
        streams[1].close()


async def denied() -> None:
    try:
        await connect(DENIED)
    except RefusedError:
        return
    raise AssertionError("a denied host was let through")


async def aborted() -> None:
    """Cut off at a moment by chance: after the CONNECT, or in the middle of a body."""
    port = chance.choice((TUNNELLED, INSIDE))
    if chance.random() < 0.5:
        _, writer = await connect(port, tls=False)
        writer.write(b"\x16\x03\x01\x02")
    else:
        reader, writer = streams = await connect(port)
        await ask(streams, port, f"/open/{SLOW_BYTES}", read=False)
        await reader.readexactly(1000)
    cut(writer)


async def slow() -> None:
    """A reader who takes its time over a body."""
    port = chance.choice((TUNNELLED, INSIDE))
    reader, writer = streams = await connect(port)
    try:
        _, length = await ask(streams, port, f"/open/{SLOW_BYTES}", read=False)
        while length:
            piece = await reader.read(min(length, 20_000))
            assert piece
            length -= len(piece)
            await asyncio.sleep(0.02)
    finally:
        writer.close()


async def asked() -> None:
    """A person approves, denies, or is away."""
    await some(INSIDE, f"/asked/{chance.randrange(1_000_000)}", 1, (200, 403))


KINDS = {
    "new tunnelled": (30, lambda: some(TUNNELLED, "/open/100", 1, (200,))),
    "kept tunnelled": (15, lambda: some(TUNNELLED, "/open/2000", 20, (200,))),
    "new inside": (15, lambda: some(INSIDE, "/open/100", 1, (200,))),
    "kept inside": (10, lambda: some(INSIDE, "/open/2000", 10, (200,))),
    "denied host": (8, denied),
    "denied inside": (6, lambda: some(INSIDE, "/denied/x", 1, (403,))),
    "aborted": (9, aborted),
    "slow": (4, slow),
    "asked": (3, asked),
}


async def do(kind: str) -> None:
    try:
        async with asyncio.timeout(60):
            await KINDS[kind][1]()
    except Exception as error:
        counts["wrong"] += 1
        print("WRONG", kind, repr(error), flush=True)
    counts[kind] += 1
    if counts[kind] == 1 and KINDS.keys() <= counts.keys():
        print("PLAYED", flush=True)


async def client(stop: asyncio.Event) -> None:
    kinds, weights = list(KINDS), [weight for weight, _ in KINDS.values()]
    while not stop.is_set():
        await do(chance.choices(kinds, weights)[0])
        await asyncio.sleep(chance.random() * MOST_PAUSE_S)


async def until(name: str) -> None:
    while not (LOWER / name).exists():
        await asyncio.sleep(0.1)


async def main() -> None:
    for kind in KINDS:
        await do(kind)
    print("WARM", flush=True)
    await until("go")
    counts.clear()
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(CLIENTS):
            tasks.create_task(client(stop))
        await until("stop")
        stop.set()
    print("COUNTED", json.dumps(counts), flush=True)
    await until("end")


asyncio.run(main())
