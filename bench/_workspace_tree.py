"""A workspace of 50,000 files and 265 MB: until its session is ready, a pass that finds nothing, and what being idle costs.

Baselines: a pipe of two tars, and `rsync -a --delete` with nothing to do where it is installed. Run as a program it measures
its own memory: `python -m bench._workspace_tree WORKSPACE FOLDER`.
"""

import asyncio
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench import Figure
from tests.workspace.conftest import Desk

FILES = 50_000
IN_A_FOLDER = 100
LEAST_BYTES, SPREAD_BYTES = 2650, 5300
ROUNDS = 5
IDLE_S = 90.0
NO_RSYNC = "rsync isn't installed"


def figures(place: Path) -> list[Figure]:
    """All of it; about three minutes, most of them idle."""
    tree = _make_tree(place / "tree")
    copied, tarred, ready = asyncio.run(_copies(tree, place))
    before_mb, peak_mb = _memory(tree, place / "memory")
    passed, rsynced, idle = asyncio.run(_passes(tree, place / "passes"))
    name = f"workspace of {FILES} files"
    against = "rsync -a --delete that finds nothing" if rsynced else NO_RSYNC
    return [
        Figure(f"{name}: private copy", copied, "ms", tarred, "tar | tar", wanted=1.3),
        Figure(f"{name}: session ready, copied and watched", ready, "ms", tarred, "tar | tar", wanted=1.3),
        Figure(f"{name}: memory of that, at most", peak_mb, "MB", before_mb, "the process before", limit=200.0),
        Figure(f"{name}: pass over the unchanged copy", passed, "ms", rsynced, against, wanted=1.1),
        Figure(f"{name}: idle for {IDLE_S:.0f} s", idle, "% of a core", 100.0, "a whole core", wanted=0.01),
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
    """(our copy, the tars, our copy and a channel that has begun), medians in ms, in turns."""
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


async def _passes(tree: Path, place: Path) -> tuple[float, float, float]:
    """(our pass over the copy, rsync's, medians in ms; the processor time of being idle in % of a core)."""
    desk = Desk(place, tree)
    passed, rsynced = [], []
    async with desk.running():
        channel = desk.channel
        await asyncio.wait([loop for loop in channel._loops if "digests" in loop.get_name()])
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
        idle = (time.process_time() - used) / IDLE_S * 100
    desk.close()
    return statistics.median(passed), statistics.median(rsynced) if rsynced else 0.0, idle


def _memory(tree: Path, folder: Path) -> tuple[float, float]:
    """Before the copy and at most during it and the channel's begin, in MB: of a process that does nothing else, and of its
    helpers."""
    program = [sys.executable, "-m", "bench._workspace_tree", str(tree), str(folder)]
    done = subprocess.run(program, check=True, capture_output=True, text=True)
    before, after = json.loads(done.stdout)
    return before, after


async def _one_session(tree: Path, folder: Path) -> None:
    desk = Desk(folder, tree)
    async with desk.running():
        await asyncio.wait([loop for loop in desk.channel._loops if "digests" in loop.get_name()])
    desk.close()


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    begun_mb = _peak_mb()
    asyncio.run(_one_session(Path(sys.argv[1]), Path(sys.argv[2])))
    helper_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(json.dumps([begun_mb, _peak_mb() + (os.cpu_count() or 1) * helper_mb]))
