"""What a process holds, over time: memory, descriptors, threads, and whether memory grows.
Separate so that it is tested by itself."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.fakes.processes import open_files

MIB = 1024 * 1024


class Held(NamedTuple):
    """What one process holds at an instant. `memory_bytes` is resident and its own: not files,
    nor what is shared."""

    memory_bytes: int
    descriptors: int
    threads: int


def held_by(pid: int) -> Held:
    """Read from /proc."""
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return Held(int(status["RssAnon"].split()[0]) * 1024, open_files(pid), int(status["Threads"]))


def growth(points: Sequence[tuple[float, float]]) -> float:
    """How much the line of least squares through (time, value) rises from the first time to the
    last.

    A line through all of them, so that one low first or one high last sample says nothing.
    """
    count = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    if not spread:
        return 0.0
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    return slope * (points[-1][0] - points[0][0])


def size_of(folder: Path) -> int:
    """Bytes of the files in a folder, not below it."""
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
