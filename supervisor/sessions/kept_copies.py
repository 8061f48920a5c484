"""Bounds the disk that copies of ended sessions use.

A copy is kept for requests left to answer, `resume`, `take` and undo. Above the bound the oldest
are removed, but never that of a session that runs or has requests left. Output, review and record
of a session stay.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from supervisor.base import log
from supervisor.base.process import Completed, run
from supervisor.sandbox.session_home import FETCHED_FOLDER, HOME_FOLDER, INSTALLED_FOLDER

# What goes: the copy itself, of either kind, contents that it shared with the host, and its home.
COPIES = (
    *("merged", "upper", "work", "blobs", "quarantine"),
    *(HOME_FOLDER, INSTALLED_FOLDER, FETCHED_FOLDER),
)
# What such a folder is called while it is removed: nobody may go on with half a copy.
GOING = ".going"
# For one step over one copy; the next round goes on.
MOST_S = 600.0
MOST_SAID_CHARS = 500


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
                await _remove(self._folder / session_id)
                total -= sizes[session_id]
                self._sizes.pop(session_id, None)
                removed.append(session_id)
        self.total_bytes = total
        return removed

    async def drop(self, session_id: str) -> None:
        """Remove one copy that nobody needs any more."""
        if not self._is_needed(session_id):
            await _remove(self._folder / session_id)
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
        size = await _size_of(self._folder / session_id)
        if not self._is_needed(session_id):
            self._sizes[session_id] = size
        return size


async def _size_of(folder: Path) -> int:
    """Return the bytes on disk of a session's copy."""
    both = [*COPIES, *(f"{name}{GOING}" for name in COPIES)]
    done = await _on_copies(folder, ("du", "-sk"), both)
    lines = done.stdout.splitlines() if done is not None else []
    return sum(int(line.split()[0]) * 1024 for line in lines)


async def _remove(folder: Path) -> None:
    """Remove a copy, as far as it can be: renamed first, so that it is whole or gone whenever it is
    looked for. A folder without permissions, such as an overlay's own, gets them then."""
    for name in COPIES:
        # It isn't there, or what was left by an earlier removal is in the way and goes first.
        with contextlib.suppress(OSError):
            (folder / name).rename(folder / f"{name}{GOING}")
    await remove_all(folder, [f"{name}{GOING}" for name in COPIES])


async def remove_all(folder: Path, names: Sequence[str]) -> bool:
    """Remove these folders in a folder, in which an agent wrote. Return whether they are gone."""
    await _on_copies(folder, ("chmod", "-R", "u+rwx"), names)
    done = await _on_copies(folder, ("rm", "-rf"), names)
    return done is None or done.ok


async def _on_copies(
    folder: Path, command: tuple[str, ...], names: Iterable[str]
) -> Completed | None:
    """Run a program on these folders of a copy; None where there are none. An agent made what is in
    them, in paths longer than any call takes: these programs go from folder to folder, follow no
    link, and can be ended."""
    found = (folder / name for name in names)
    copies = [one for one in found if one.is_dir() and not one.is_symlink()]
    if not copies:
        return None
    done = await run(
        (*command, "--", *copies), env={"PATH": os.defpath, "LC_ALL": "C"}, timeout_s=MOST_S
    )
    if not done.ok:
        said = done.stderr.decode(errors="replace")[:MOST_SAID_CHARS]
        log.warning("not all of a copy was reached", session=folder.name, by=command[0], error=said)
    return done
