"""The workspace: a changed file to the host, a burst of them, and the private copy; on tmpfs where there is one.

The baselines do the same work without any of the checks: a bare inotify loop that copies by temporary file and rename,
waiting as long for quiet as ours does. A large tree has a module of its own: `_workspace_tree`.
"""

import asyncio
import os
import shutil
import statistics
import tempfile
import threading
import time
from pathlib import Path

from bench import Figure, _workspace_tree
from supervisor.core.actions import FileChange
from supervisor.core.undoing import Selection
from supervisor.workspace.apply import Applier
from supervisor.workspace.beneath import Root
from supervisor.workspace.journal import write_baseline
from supervisor.workspace.scan import look
from supervisor.workspace.sides import Sides
from supervisor.workspace.undo import Undo
from supervisor.workspace.watch import LONGEST_BATCH_S, QUIET_S, Watcher
from tests.workspace.conftest import Desk, make_repository

WRITES = 25
BURST = 500
BURSTS = 5
# What an allowed change may take beyond the quiet that is waited for.
BEYOND_QUIET_MS = 10
UNDONE = 1000


def main() -> list[Figure]:
    """Latency and burst by the real gate and database, everything allowed; a large tree; undo."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=base) as folder:
        place = Path(folder)
        bare_ms, bare_burst_ms = asyncio.run(_bare(place / "bare"))
        ours_ms, ours_burst_ms = asyncio.run(_ours(place / "ours"))
        back_ms, back_burst_ms = asyncio.run(_ours(place / "back", back=True))
        of_tree = _workspace_tree.figures(place / "tree")
        undo_ms, durable_ms, plain_ms = asyncio.run(_undo(place / "undo"))
    loop = f"bare inotify loop, same {QUIET_S * 1000:.0f} ms of quiet"
    limit_ms = QUIET_S * 1000 + BEYOND_QUIET_MS
    return [
        Figure("workspace: allowed change on the host, p50", ours_ms, "ms", bare_ms, loop, wanted=1.5, limit=limit_ms),
        Figure(f"workspace: {BURST} allowed files at once", ours_burst_ms, "ms", bare_burst_ms, loop, wanted=2.0),
        Figure("workspace: the host's edit in the copy, p50", back_ms, "ms", bare_ms, loop, wanted=2.0),
        Figure(f"workspace: {BURST} files of the host's at once", back_burst_ms, "ms", bare_burst_ms, loop),
        *of_tree,
        Figure(
            f"workspace: undo of {UNDONE} files",
            undo_ms,
            "ms",
            durable_ms,
            "loop of copy, fsync and rename",
            wanted=2.0,
        ),
        Figure(f"workspace: undo of {UNDONE} files", undo_ms, "ms", plain_ms, "loop of shutil.copy2", wanted=2.0),
    ]


async def _ours(place: Path, *, back: bool = False) -> tuple[float, float]:
    """From the copy to the host; with `back`, what the person does on the host to the copy."""
    host = make_repository(place / "host", {"free/a.txt": "a\n"})
    desk = Desk(place / "data", host)
    async with desk.running():
        sides = desk.copy / "free", host / "free"
        figures = await _measure(*reversed(sides) if back else sides)
        await desk.until(lambda: all(request.settled_at for request in desk.requests()))
    desk.close()
    return figures


async def _bare(place: Path) -> tuple[float, float]:
    source, target = place / "source", place / "target"
    source.mkdir(parents=True)
    target.mkdir()
    root = Root(source)
    watcher = Watcher(root)
    watcher.add("")

    async def follow() -> None:
        seen: dict[str, int] = {}
        while True:
            await watcher.batch(1.0)
            for entry in os.scandir(source):
                if seen.get(entry.name) != entry.stat().st_mtime_ns:
                    seen[entry.name] = entry.stat().st_mtime_ns
                    shutil.copyfile(entry.path, target / ".temporary")
                    (target / ".temporary").rename(target / entry.name)

    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(follow())
        figures = await _measure(source, target)
        following.cancel()
    watcher.close()
    root.close()
    return figures


async def _measure(source: Path, target: Path) -> tuple[float, float]:
    """(p50 of one file, time until a whole burst is there: best of BURSTS), in ms. The prober is a thread of its own."""
    taken = []
    for number in range(WRITES):
        started = time.perf_counter()
        (source / f"one{number}.txt").write_text("content\n" * 20)
        await asyncio.to_thread(_wait_for, target / f"one{number}.txt")
        taken.append((time.perf_counter() - started) * 1000)
    return statistics.median(taken), min([await _burst(source, target, f"burst{turn}") for turn in range(BURSTS)])


async def _burst(source: Path, target: Path, name: str) -> float:
    await asyncio.sleep(LONGEST_BATCH_S)  # what came of the one before is over
    started = time.perf_counter()
    for number in range(BURST):
        (source / f"{name}-{number}.txt").write_text(f"{number}\n")
    await asyncio.to_thread(_wait_for, *(target / f"{name}-{number}.txt" for number in range(BURST)))
    return (time.perf_counter() - started) * 1000


def _wait_for(*paths: Path) -> None:
    pause = threading.Event()
    for path in paths:
        for _ in range(60_000):
            if path.exists():
                break
            pause.wait(0.001)
        else:
            raise TimeoutError(path)


async def _undo(place: Path) -> tuple[float, float, float]:
    """Taking back a change of each of 1,000 files of 5 kB, beside copying these files as durably, and plainly; best of five,
    in ms."""
    host = make_repository(place / "host", {"x.txt": "x"})
    desk = Desk(place / "data", host)
    names = [f"{number // 100}/{number}.py" for number in range(UNDONE)]
    for name in names:
        (host / name).parent.mkdir(exist_ok=True)
        (host / name).write_text(f"a line of {name}\n" * 250)
    ours, durable, plain = [], [], []
    for turn in range(5):
        session = place / f"session{turn}"
        (session / "merged").mkdir(parents=True)
        write_baseline(session, {})
        sides = Sides(host, session, ())
        _change_all(sides, names, f"turn {turn}")
        undo = Undo(sides, desk.gate, "bench", session)
        plan = await undo.plan(Selection())
        started = time.perf_counter()
        await undo.carry_out(Selection(), token=plan.token, by="bench")
        ours.append((time.perf_counter() - started) * 1000)
        assert (host / names[-1]).read_text().startswith("a line of")
        sides.close()
        durable.append(_durable_copy(host, place / f"durable{turn}", names))
        plain.append(_plain_copy(host, place / f"copy{turn}", names))
    desk.close()
    return min(ours), min(durable), min(plain)


def _change_all(sides: Sides, names: list[str], text: str) -> None:
    applier = Applier(sides.host, sides.blobs, sides.history)
    for name in names:
        host = look(sides.host, name)
        after = sides.blobs.keep(f"{text} of {name}\n".encode() * 250)
        action = FileChange(operation="write", path=name, before=host.token if host else None, after=after, mode=0o644)
        sides.agreed(name, applier.apply(action, name, lambda rebuilt: None).known, name)


def _plain_copy(source: Path, target: Path, names: list[str]) -> float:
    """Each file with its times and mode, nothing more; in ms."""
    started = time.perf_counter()
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source / name, target / name)
    return (time.perf_counter() - started) * 1000


def _durable_copy(source: Path, target: Path, names: list[str]) -> float:
    """Each file to a temporary one, with its times and mode, synced, and renamed; in ms."""
    started = time.perf_counter()
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        temporary = target / name.replace("/", "-")
        shutil.copy2(source / name, temporary)
        fd = os.open(temporary, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        temporary.rename(target / name)
    return (time.perf_counter() - started) * 1000
