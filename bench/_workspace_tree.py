"""Measure a workspace of 50,000 files and 265 MB: start, empty pass, cost when idle.

Baselines: a pipe of two tars, and `rsync -a --delete` with nothing to do where it is installed. Run
as a program it measures its own memory: `python -m bench._workspace_tree WORKSPACE FOLDER
copy|overlay`.
"""

import asyncio
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench import Figure
from supervisor.base.process import children
from supervisor.sandbox.overlay_mount import make_removable
from supervisor.workspace.channel import FULL_COMPARISON_S
from supervisor.workspace.copy.snapshot import make_copy
from supervisor.workspace.disk.watch import at_rest_s
from supervisor.workspace.incoming.incoming import FULL_PASS_S
from tests.workspace.conftest import Desk

FILES = 50_000
IN_A_FOLDER = 100
LEAST_BYTES, SPREAD_BYTES = 2650, 5300
ROUNDS = 5
IDLE_S = 10.0
NO_RSYNC = "rsync isn't installed"


def figures(place: Path) -> list[Figure]:
    """Return all figures; takes about a minute."""
    tree = _make_tree(place / "tree")
    copied, tarred, ready = asyncio.run(_copies(tree, place))
    mounted, overlaid = asyncio.run(_overlays(tree, place))
    before_mb, peak_mb = _memory(tree, place / "memory")
    _, overlay_mb = _memory(tree, place / "memory-overlay", "overlay")
    passed, rsynced, idle = asyncio.run(_passes(tree, place / "passes"))
    name = f"workspace of {FILES} files"
    against = "rsync -a --delete that finds nothing" if rsynced else NO_RSYNC
    return [
        Figure(f"{name}: private copy", copied, "ms", tarred, "tar | tar", wanted=1.3),
        Figure(
            f"{name}: session ready, copied and watched",
            ready,
            "ms",
            tarred,
            "tar | tar",
            wanted=1.3,
        ),
        Figure(
            f"{name}: memory of that, at most",
            peak_mb,
            "MB",
            before_mb,
            "the process before",
            limit=200.0,
        ),
        Figure(f"{name}: overlay, mounted", mounted, "ms", tarred, "tar | tar", limit=100.0),
        Figure(
            f"{name}: session ready, overlay and watched",
            overlaid,
            "ms",
            tarred,
            "tar | tar",
            limit=100.0,
        ),
        Figure(
            f"{name}: memory of that, at most",
            overlay_mb,
            "MB",
            before_mb,
            "the process before",
            limit=200.0,
        ),
        Figure(f"{name}: pass over the unchanged copy", passed, "ms", rsynced, against, wanted=1.1),
        Figure(
            f"{name}: at rest, with its passes",
            idle,
            "% of a core",
            100.0,
            "a whole core",
            wanted=0.01,
        ),
    ]


def _make_tree(tree: Path) -> Path:
    noise = os.urandom(LEAST_BYTES + SPREAD_BYTES)
    for number in range(FILES):
        folder = tree / f"{number // IN_A_FOLDER // 10}" / f"{number // IN_A_FOLDER}"
        if number % IN_A_FOLDER == 0:
            folder.mkdir(parents=True)
        (folder / f"{number}.txt").write_bytes(noise[: LEAST_BYTES + number * 37 % SPREAD_BYTES])
    return tree


async def _copies(tree: Path, place: Path) -> tuple[float, float, float]:
    """Return medians in ms, taken in turns: our copy, the tars, our copy and a started channel."""
    ours, tars, ready = [], [], []
    for turn in range(ROUNDS):
        started = time.perf_counter()
        desk = Desk(place / f"ours{turn}", tree)
        begun = time.perf_counter()
        async with desk.running(start=False):
            ours.append((time.perf_counter() - begun) * 1000)
            await desk.channel.start()
            ready.append((time.perf_counter() - begun) * 1000)
        desk.close()
        target = place / f"tar{turn}"
        target.mkdir()
        started = time.perf_counter()
        subprocess.run(["sh", "-c", f"tar -C {tree} -cf - . | tar -C {target} -xf -"], check=True)
        tars.append((time.perf_counter() - started) * 1000)
        for made in (target, desk.data):
            shutil.rmtree(made)
    return statistics.median(ours), statistics.median(tars), statistics.median(ready)


async def _overlays(tree: Path, place: Path) -> tuple[float, float]:
    """Return medians in ms: an overlay over the tree as a repository, the same and a started
    channel."""
    subprocess.run(["git", "-C", str(tree), "init", "-q"], check=True)
    subprocess.run(["git", "-C", str(tree), "add", "-A"], check=True)
    mounted, ready = [], []
    for turn in range(ROUNDS):
        desk = Desk(place / f"overlay{turn}", tree, is_overlay=True)
        begun = time.perf_counter()
        async with desk.running(start=False):
            mounted.append((time.perf_counter() - begun) * 1000)
            await desk.channel.start()
            ready.append((time.perf_counter() - begun) * 1000)
        desk.close()
        make_removable(desk.folder)
        shutil.rmtree(desk.data)
    shutil.rmtree(tree / ".git")
    return statistics.median(mounted), statistics.median(ready)


async def _passes(tree: Path, place: Path) -> tuple[float, float, float]:
    """Return our pass over the copy and rsync's, medians in ms, and the processor time at rest,
    between passes and in them, in %."""
    desk = Desk(place, tree)
    passed, rsynced = [], []
    async with desk.running():
        channel = desk.channel
        await _digested(desk)
        opened = await channel._open()
        for _ in range(ROUNDS):
            async with channel._turn:
                started = time.perf_counter()
                await opened.comparison.run(None)
                passed.append((time.perf_counter() - started) * 1000)
            if shutil.which("rsync"):
                started = time.perf_counter()
                subprocess.run(["rsync", "-a", "--delete", f"{tree}/", f"{desk.copy}/"], check=True)
                rsynced.append((time.perf_counter() - started) * 1000)
        used = time.process_time()
        await asyncio.sleep(IDLE_S)
        idle = (time.process_time() - used) / IDLE_S
        async with channel._turn:
            idle += await _share(opened.comparison.run, FULL_COMPARISON_S) + await _share(
                opened.incoming.run, FULL_PASS_S
            )
    desk.close()
    return statistics.median(passed), statistics.median(rsynced) if rsynced else 0.0, idle * 100


async def _share(run: Callable[[None], Awaitable[object]], usual_s: float) -> float:
    """Return the processor time of a pass that finds nothing, divided by the time until the next
    one."""
    used, started = time.process_time(), time.perf_counter()
    await run(None)
    return (time.process_time() - used) / at_rest_s(usual_s, time.perf_counter() - started)


def _memory(tree: Path, folder: Path, mode: str = "copy") -> tuple[float, float]:
    """Return the memory of a process that does nothing else, with its helpers, in MB: before the
    copy, and its peak during the copy and the channel's start."""
    program = [sys.executable, "-m", "bench._workspace_tree", str(tree), str(folder), mode]
    done = subprocess.run(program, check=True, capture_output=True, text=True)
    before, after = json.loads(done.stdout)
    return before, after


async def _one_session(tree: Path, folder: Path, mode: str) -> float:
    """Return the peak of the helpers together, in MB."""
    helpers: dict[int, float] = {}

    def look(*progress: int) -> None:
        for pid in children(os.getpid()):
            helpers[pid] = _peak_mb(pid)

    desk = Desk(folder, tree, is_overlay=mode == "overlay")
    if not desk.is_overlay:
        await make_copy(tree, desk.copy, exclude=(desk.data,), on_progress=look)
    async with desk.running(copy=desk.is_overlay):
        await _digested(desk)
    desk.close()
    return sum(helpers.values())


async def _digested(desk: Desk) -> None:
    await asyncio.wait([loop for loop in desk.channel._loops if "digests" in loop.get_name()])


def _peak_mb(pid: int) -> float:
    """Return the peak of this program alone: getrusage's value begins with its parent's."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
    return 0.0


if __name__ == "__main__":
    begun_mb = _peak_mb(os.getpid())
    helpers_mb = asyncio.run(_one_session(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
    print(json.dumps([begun_mb, _peak_mb(os.getpid()) + helpers_mb]))
