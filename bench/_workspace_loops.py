"""Baseline loops for a session's way to the host: follow a folder and copy changes, unchecked.

A copy is made by temporary file and rename, so that a reader sees whole files, as with us; nothing
is synced, judged, recorded or kept.
"""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

from watchfiles import awatch

from supervisor.workspace.disk.beneath import Root
from supervisor.workspace.disk.watch import Watcher

# watchfiles doesn't say from when on it watches: that this file was copied does.
FIRST = "first"


@contextlib.asynccontextmanager
async def inotify(source: Path, target: Path) -> AsyncIterator[None]:
    """Copy with only our own watcher, which waits as long for quiet as a session does."""
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
                    _copy(entry.path, target)

    async with _running(follow()):
        yield
    watcher.close()
    root.close()


@contextlib.asynccontextmanager
async def watchfiles(source: Path, target: Path, step_ms: int | None = None) -> AsyncIterator[None]:
    """Copy with a bare loop over watchfiles: at its defaults, or looking for events every
    `step_ms`."""
    options = {} if step_ms is None else {"step": step_ms}

    async def follow() -> None:
        async for changes in awatch(source, **options):
            for _, path in changes:
                with contextlib.suppress(FileNotFoundError):
                    _copy(path, target)

    async with _running(follow()):
        while not (target / FIRST).exists():
            (source / FIRST).touch()
            await asyncio.sleep(0.01)
        yield


@contextlib.asynccontextmanager
async def _running(work: "asyncio._CoroutineLike[None]") -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(work)
        yield
        following.cancel()


def _copy(path: str, target: Path) -> None:
    temporary = target / ".temporary"
    shutil.copyfile(path, temporary)
    temporary.rename(target / Path(path).name)
