"""The workspace: a changed file to the host, a burst of them, undo, and the private copy; on tmpfs
where there is one.

The baselines do the same work without any of the checks (`_workspace_loops`). A large tree has a
module of its own: `_workspace_tree`.
"""

import asyncio
import contextlib
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

from bench import Figure, _workspace_loops, _workspace_tree
from bench._workspace_prober import Prober
from supervisor.core.actions import FileChange
from supervisor.core.files.undo_steps import Selection
from supervisor.workspace.apply.apply import Applier
from supervisor.workspace.disk.scan import look
from supervisor.workspace.disk.watch import DEBOUNCE_S, LONGEST_BATCH_S
from supervisor.workspace.trees.journal import write_baseline
from supervisor.workspace.trees.trees import Sides
from supervisor.workspace.undo.undo import Undo
from tests.workspace.conftest import Desk, make_repository

# Each way is opened anew in each round, so that a busy moment hits all alike.
ROUNDS = 5
WRITES = 5
BURST = 500
BURSTS = 2
# What an allowed change may take beyond the quiet that is waited for.
BEYOND_QUIET_MS = 10
UNDONE = 1000
UNDOS = 7
STEP_MS = 1


class Taken(NamedTuple):
    """Medians in ms: until one file is there, and until the last of a burst is."""

    one: float
    burst: float


def main() -> list[Figure]:
    """Latency and burst by the real gate and database, everything allowed; a large tree; undo."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=base) as folder:
        place = Path(folder)
        of_changes = _of_changes(asyncio.run(_in_turns(place / "ways")))
        of_tree = _workspace_tree.figures(place / "tree")
        of_undo = asyncio.run(_undo(place / "undo"))
    return [*of_changes, *of_tree, *of_undo]


def _of_changes(taken: dict[str, Taken]) -> list[Figure]:
    ours, back, inotify, waiting, eager = (taken[way] for way in WAYS)
    by_inotify = f"bare inotify loop, same {DEBOUNCE_S * 1000:.0f} ms of quiet"
    # The loop that a burst is held against is this one: as we do, it lets changes come to an end
    # before it looks at them.
    by_default = "bare watchfiles loop, its defaults"
    # This one waits for no end of them; of ours it is the whole quiet that lies between.
    by_step = f"bare watchfiles loop, step={STEP_MS}"
    one, limit_ms = (
        "workspace: allowed change on the host, p50",
        DEBOUNCE_S * 1000 + BEYOND_QUIET_MS,
    )
    burst, host_burst = (
        f"workspace: {BURST} allowed files at once",
        f"workspace: {BURST} files of the host's at once",
    )
    return [
        Figure(one, ours.one, "ms", waiting.one, by_default, limit=limit_ms),
        Figure(one, ours.one, "ms", eager.one, by_step, limit=limit_ms),
        Figure(one, ours.one, "ms", inotify.one, by_inotify, wanted=1.5, limit=limit_ms),
        Figure(burst, ours.burst, "ms", waiting.burst, by_default, wanted=2.0),
        Figure(burst, ours.burst, "ms", eager.burst, by_step),
        Figure(burst, ours.burst, "ms", inotify.burst, by_inotify),
        Figure(
            "workspace: the host's edit in the copy, p50",
            back.one,
            "ms",
            inotify.one,
            by_inotify,
            wanted=2.0,
        ),
        Figure(host_burst, back.burst, "ms", inotify.burst, by_inotify),
    ]


async def _in_turns(place: Path) -> dict[str, Taken]:
    """What each way takes."""
    ones: dict[str, list[float]] = {way: [] for way in WAYS}
    bursts: dict[str, list[float]] = {way: [] for way in WAYS}
    async with Prober() as prober:
        for turn in range(ROUNDS):
            for way, opened in WAYS.items():
                async with opened(place / f"{way}{turn}") as sides:
                    for number in range(WRITES):
                        await asyncio.sleep(LONGEST_BATCH_S)  # what came of the one before is over
                        ones[way].append(
                            await prober.taken_ms(*sides, [f"one{number}"], "content\n" * 20)
                        )
                    for number in range(BURSTS):
                        await asyncio.sleep(LONGEST_BATCH_S)
                        names = [f"burst{number}-{one}.txt" for one in range(BURST)]
                        bursts[way].append(await prober.taken_ms(*sides, names, ""))
    return {
        way: Taken(statistics.median(ones[way]), statistics.median(bursts[way])) for way in WAYS
    }


type Way = Callable[[Path], contextlib.AbstractAsyncContextManager[tuple[Path, Path]]]


@contextlib.asynccontextmanager
async def _out(place: Path) -> AsyncIterator[tuple[Path, Path]]:
    """From the copy to the host."""
    host = make_repository(place / "host", {"free/a.txt": "a\n"})
    desk = Desk(place / "data", host)
    async with desk.running():
        yield desk.copy / "free", host / "free"
        await desk.until(lambda: all(request.settled_at for request in desk.requests()))
    desk.close()


@contextlib.asynccontextmanager
async def _back(place: Path) -> AsyncIterator[tuple[Path, Path]]:
    """What the person does on the host, to the copy."""
    async with _out(place) as (copy, host):
        yield host, copy


def _bare(loop: Callable[[Path, Path], contextlib.AbstractAsyncContextManager[None]]) -> Way:
    @contextlib.asynccontextmanager
    async def opened(place: Path) -> AsyncIterator[tuple[Path, Path]]:
        source, target = place / "source", place / "target"
        source.mkdir(parents=True)
        target.mkdir()
        async with loop(source, target):
            yield source, target

    return opened


WAYS: dict[str, Way] = {
    "out": _out,
    "back": _back,
    "inotify": _bare(_workspace_loops.inotify),
    "watchfiles": _bare(_workspace_loops.watchfiles),
    "watchfiles-step": _bare(
        lambda source, target: _workspace_loops.watchfiles(source, target, STEP_MS)
    ),
}


async def _undo(place: Path) -> list[Figure]:
    """Taking back a change of each of 1,000 files of 5 kB, beside copying these files plainly,
    and as durably; in turns."""
    host = make_repository(place / "host", {"x.txt": "x"})
    desk = Desk(place / "data", host)
    names = [f"{number // 100}/{number}.py" for number in range(UNDONE)]
    for name in names:
        (host / name).parent.mkdir(exist_ok=True)
        (host / name).write_text(f"a line of {name}\n" * 250)
    ours, durable, plain = [], [], []
    for turn in range(UNDOS):
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
    taken, name = statistics.median(ours), f"workspace: undo of {UNDONE} files"
    durably = "loop of copy, fsync and rename"
    return [
        Figure(name, taken, "ms", statistics.median(plain), "loop of shutil.copy2", wanted=2.0),
        Figure(name, taken, "ms", statistics.median(durable), durably, wanted=2.0),
    ]


def _change_all(sides: Sides, names: list[str], text: str) -> None:
    applier = Applier(sides.host, sides.blobs, sides.history)
    for name in names:
        host = look(sides.host, name)
        after = sides.blobs.keep(f"{text} of {name}\n".encode() * 250)
        action = FileChange(
            operation="write",
            path=name,
            before=host.token if host else None,
            after=after,
            mode=0o644,
        )
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
