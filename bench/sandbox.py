"""How long a sandbox takes to start, against plain bubblewrap with the same arguments and against
fork and exec.

`start` is until the command may run, listening sockets and bounds included; `start and end` is
until all of it is gone. The plain baseline gets our argument list and nothing else: no sockets,
no gate, no bounds. Rounds are taken in turns.
"""

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench import Figure
from supervisor.base.process import spawn
from supervisor.sandbox import host_paths, seccomp
from supervisor.sandbox.arguments import arguments
from supervisor.sandbox.base import Spec
from supervisor.sandbox.bubblewrap import BWRAP, Bubblewrap
from supervisor.sandbox.host import read_host

ROUNDS = 60
PARALLEL = 16
WANTED = 1.25
WANTED_RATE = 0.85


def main() -> list[Figure]:
    """Medians of 60 rounds, and the rate with 16 in flight."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure(Path(folder)))


async def _measure(folder: Path) -> list[Figure]:
    spec = spec_in(folder)
    listening = spec_in(folder, ports=(3128, 3701))
    options = arguments(host_paths.resolved(spec), read_host(folder / "etc"))
    backend = Bubblewrap(folder / "runtime")
    starts: dict[bool, list[float]] = {True: [], False: []}

    async def plain() -> None:
        await plain_bwrap(options)

    async def fork_and_exec() -> None:
        assert await (await spawn(["/usr/bin/true"], env={})).wait() == 0

    async def ours(spec: Spec) -> None:
        began = time.perf_counter()
        running = await backend.start(spec, on_output=lambda _: None)
        starts[bool(spec.ports)].append((time.perf_counter() - began) * 1e3)
        assert await running.wait() == 0
        for listener in running.listeners.values():
            listener.close()

    async def without_ports() -> None:
        await ours(spec)

    async def with_ports() -> None:
        await ours(listening)

    whole = await interleaved(fork_and_exec, plain, without_ports, with_ports)
    started = starts[True][2:]
    rates = [await _rate(plain), await _rate(without_ports)]
    await backend.close()
    base, bare, no_ports, ports = (statistics.median(times) for times in whole)
    plainly = "plain bwrap, same arguments and filter"
    return [
        Figure("sandbox, start and end", no_ports, "ms", bare, plainly, WANTED),
        Figure("sandbox with two sockets, start and end", ports, "ms", bare, plainly),
        Figure(
            "sandbox with two sockets, until it runs",
            statistics.median(started),
            "ms",
            bare,
            "plain bwrap to its end",
            WANTED,
        ),
        Figure("sandbox, start and end", no_ports, "ms", base, "fork and exec of `true`"),
        Figure(
            f"sandboxes, {PARALLEL} in flight",
            rates[1],
            "/s",
            rates[0],
            "plain bwrap loop",
            WANTED_RATE,
            is_rate=True,
        ),
    ]


async def plain_bwrap(options: list[str]) -> None:
    """Run `true` in plain bubblewrap with these arguments and our filter."""
    filters = [_memfd(program) for program in seccomp.programs()]
    words = [word for one in filters for word in ("--add-seccomp-fd", str(one))]
    child = await spawn([BWRAP, *options, *words, "--", "true"], env={}, pass_fds=filters)
    assert await child.wait() == 0
    for one in filters:
        os.close(one)


async def interleaved(*what: Callable[[], Awaitable[None]]) -> list[list[float]]:
    """Milliseconds of each, round by round; two rounds to warm up aren't counted."""
    times: list[list[float]] = [[] for _ in what]
    for number in range(ROUNDS + 2):
        # Each goes first in turn: what runs after a sandbox pays for the kernel's clearing up
        # behind that one.
        for index in ((number + at) % len(what) for at in range(len(what))):
            began = time.perf_counter()
            await what[index]()
            if number >= 2:
                times[index].append((time.perf_counter() - began) * 1e3)
    return times


async def _rate(one: Callable[[], Awaitable[None]]) -> float:
    """How many a second with PARALLEL in flight."""

    async def worker() -> None:
        for _ in range(10):
            await one()

    began = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(PARALLEL)))
    return PARALLEL * 10 / (time.perf_counter() - began)


def spec_in(folder: Path, ports: tuple[int, ...] = ()) -> Spec:
    for name in ("lower", "merged"):
        (folder / name).mkdir(exist_ok=True)
    return Spec(
        command=("true",),
        workspace_lower=folder / "lower",
        workspace_merged=folder / "merged",
        ports=ports,
    )


def _memfd(data: bytes) -> int:
    descriptor = os.memfd_create("filter")
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
