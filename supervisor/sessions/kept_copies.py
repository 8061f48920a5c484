"""Bounds the disk that copies of ended sessions use.

A copy is kept for what was left to answer, for `resume`, `take` and undo. Above the bound the
oldest go, but never one of a session that runs, or that something is left of. Output, review and
record of a session stay.
"""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import structlog

log = structlog.get_logger("sessions")

# What goes: the copy itself, of either kind, and contents that it shared with the host.
COPIES = ("merged", "upper", "work", "blobs", "quarantine")


class KeptCopies:
    """`folder` has a folder for each session, `is_needed(session_id)` says whose copy must stay.
    `total_bytes` is as it was measured last."""

    def __init__(self, folder: Path, limit_bytes: int, is_needed: Callable[[str], bool]) -> None:
        self.limit_bytes = limit_bytes
        self.total_bytes = 0
        self._folder = folder
        self._is_needed = is_needed
        # Of copies that nobody changes any more, which are measured once.
        self._sizes: dict[str, int] = {}

    async def tidy(self) -> list[str]:
        """Measure, and remove the oldest above the bound. Return the ids of their sessions."""
        by_age = await asyncio.to_thread(self._by_age)
        sizes = {one: await self._size(one) for one in by_age}
        total, removed = sum(sizes.values()), []
        for session_id in by_age:
            if total <= self.limit_bytes:
                break
            if sizes[session_id] and not self._is_needed(session_id):
                await asyncio.to_thread(_remove, self._folder / session_id)
                total -= sizes[session_id]
                self._sizes.pop(session_id, None)
                removed.append(session_id)
                log.info("copy removed", session=session_id, size_bytes=sizes[session_id])
        self.total_bytes = total
        return removed

    async def drop(self, session_id: str) -> None:
        """Remove one copy: nobody will look at it any more."""
        if not self._is_needed(session_id):
            await asyncio.to_thread(_remove, self._folder / session_id)
            self._sizes.pop(session_id, None)

    def _by_age(self) -> list[str]:
        found = [
            (entry.stat(follow_symlinks=False).st_mtime, entry.name)
            for entry in os.scandir(self._folder)
            if entry.is_dir(follow_symlinks=False)
        ]
        return [name for _, name in sorted(found)]

    async def _size(self, session_id: str) -> int:
        if session_id in self._sizes:
            return self._sizes[session_id]
        size = await asyncio.to_thread(_size_of, self._folder / session_id)
        if not self._is_needed(session_id):
            self._sizes[session_id] = size
        return size


def _size_of(folder: Path) -> int:
    """Return the bytes on disk of a session's copy."""
    total = 0
    for name in COPIES:
        for root, _, files in os.walk(folder / name):
            for file in files:
                with contextlib.suppress(OSError):
                    total += os.lstat(f"{root}/{file}").st_blocks * 512
    return total


def _remove(folder: Path) -> None:
    """Remove a copy. A folder without permissions, such as an overlay's own, gets them first."""
    for copy in (folder / name for name in COPIES):
        if copy.is_dir():
            copy.chmod(0o700)
            for root, folders, _ in os.walk(copy):
                for one in (Path(root, name) for name in folders):
                    if not one.is_symlink():
                        one.chmod(0o700)
            shutil.rmtree(copy)
