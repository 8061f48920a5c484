"""Watcher of the copy's folders by inotify(7): wakes the comparison.

Level-triggered: it reports no changes, only folders to look at. It uses one watch for each folder
worth comparing. watchfiles isn't used because it follows symlinks (an agent that links to `/` would
make the supervisor watch the whole host, tried with 1.3.0), and because its latency is its polling
step, at a cost when idle. A lost event, an overflow or too few watches only bring the next full
comparison forward. It must never watch what it reached through a symlink, and never be relied on
alone.
"""

import asyncio
import contextlib
import ctypes
import errno
import os
import struct
from collections.abc import Awaitable, Callable, Iterable

from supervisor.workspace.disk.beneath import PathError, Root

DEBOUNCE_S = 0.05
LONGEST_BATCH_S = 0.3
READ_BYTES = 64 * 1024
# Each watch takes about a kilobyte of the kernel's memory, and the user's editor needs some, too.
MOST_WATCHED = 50_000
# Without events, full passes take at most this share of the time, but come at least this often.
REST_SHARE = 0.004
LONGEST_REST_S = 300.0
_HEADER = struct.Struct("iIII")
# During a flood of events, mostly caused by ourselves, each look slows their cause.
FLOOD_READS = 16
FLOOD_PAUSE_S = 0.005
MOST_NAMED = 1000

# inotify(7). Not IN_MODIFY: a file is compared when its writer closes it; full comparisons find
# files that stay open.
IN_ATTRIB, IN_CLOSE_WRITE, IN_MOVED_FROM, IN_MOVED_TO = 0x4, 0x8, 0x40, 0x80
IN_CREATE, IN_DELETE, IN_Q_OVERFLOW, IN_IGNORED = 0x100, 0x200, 0x4000, 0x8000
IN_ONLYDIR, IN_EXCL_UNLINK, IN_ISDIR = 0x1000000, 0x4000000, 0x40000000
_MASK = (
    IN_ATTRIB
    | IN_CLOSE_WRITE
    | IN_MOVED_FROM
    | IN_MOVED_TO
    | IN_CREATE
    | IN_DELETE
    | IN_ONLYDIR
    | IN_EXCL_UNLINK
)

_libc = ctypes.CDLL(None, use_errno=True)


def at_rest_s(usual_s: float, pass_s: float) -> float:
    """Return the wait before the next full pass when nothing happens. One pass takes `pass_s`."""
    return max(usual_s, min(pass_s / REST_SHARE, LONGEST_REST_S))


class Watcher:
    """Watches folders below `root`, and those of the same names below `beside` if one place doesn't
    report everything (an overlay's view and its upper folder). Use it in the event loop only,
    except `add`, which may be called in a thread.

    `is_partial`: not every folder could be watched, so full comparisons must come often. `most`:
    how many folders may be watched.
    """

    def __init__(self, root: Root, *beside: Root, most: int = MOST_WATCHED) -> None:
        self._roots = (root, *beside)
        self._most = most
        self._fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self.is_partial = self._fd < 0
        self._folders: dict[int, str] = {}
        self._watched: dict[str, tuple[int, ...]] = {}
        self._dirty: set[str] = set()
        self._overflown = False
        self._named: set[str] = set()
        self._is_over = False
        self._reads = 0
        self._event = asyncio.Event()
        if self._fd >= 0:
            asyncio.get_running_loop().add_reader(self._fd, self._read)

    def close(self) -> None:
        """Stop watching."""
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def add(self, folder: str) -> None:
        """Watch a folder, not its subfolders. A missing one is skipped."""
        if self._fd < 0:
            return
        if len(self._watched) >= self._most and folder not in self._watched:
            self.is_partial = True
            return
        watches = tuple(watch for root in self._roots if (watch := self._add(root, folder)) >= 0)
        if watches:
            self._watched[folder] = watches
        else:
            self._watched.pop(folder, None)  # what can't be read now is looked into when it can

    def _add(self, root: Root, folder: str) -> int:
        try:
            with root.directory(folder) as fd:
                # The descriptor was opened without following symlinks, and stands for exactly that
                # folder.
                watch: int = _libc.inotify_add_watch(
                    self._fd, f"/proc/self/fd/{fd}".encode(), _MASK
                )
        except (OSError, PathError):
            return -1
        if watch < 0:
            self.is_partial = self.is_partial or ctypes.get_errno() in (errno.ENOSPC, errno.ENOMEM)
            return -1
        # A renamed folder keeps its watch; only its name here changes.
        if self._folders.get(watch, folder) != folder:
            self._watched.pop(self._folders[watch], None)
        self._folders[watch] = folder
        return watch

    def is_watched(self, folder: str) -> bool:
        """Return whether this folder's events arrive."""
        return folder in self._watched

    def keep_only(self, folders: Iterable[str]) -> None:
        """End the watches of folders that no longer exist."""
        for folder in self._watched.keys() - set(folders):
            for watch in self._watched.pop(folder):
                self._folders.pop(watch, None)
                _libc.inotify_rm_watch(self._fd, watch)

    def forget(self) -> None:
        """End all watches. The next batch covers everything, and folders are then watched again."""
        self.keep_only(())
        self.wake()

    def wake(self, folder: str | None = None) -> None:
        """Behave as if something had happened in the folder, or anywhere."""
        if folder is None:
            self._overflown = True
        else:
            self._dirty.add(folder)
        self._event.set()

    async def batch(
        self,
        longest_wait_s: float,
        meanwhile: Callable[[set[str]], Awaitable[object]] | None = None,
    ) -> set[str] | None:
        """Return the folders with events since the last call, once it is quiet for DEBOUNCE_S or
        after LONGEST_BATCH_S.

        None: anything may have happened anywhere. Empty: nothing was reported within
        `longest_wait_s`. While waiting for quiet, `meanwhile` is called with names that were
        created or written to (folders end with a slash). It isn't called with all of them, and its
        findings must not be relied on alone.
        """
        try:
            async with asyncio.timeout(longest_wait_s):
                await self._event.wait()
        except TimeoutError:
            return set()
        self._is_over = False
        async with asyncio.TaskGroup() as tasks:
            telling: asyncio.Task[None] | None = None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LONGEST_BATCH_S):
                    is_quiet = False
                    while not is_quiet:
                        if meanwhile is not None and (telling is None or telling.done()):
                            telling = tasks.create_task(self._tell(meanwhile))
                        is_quiet = not await self._more_within(DEBOUNCE_S)
            self._is_over = True
        self._event.clear()
        self._reads = 0
        self._named.clear()
        dirty, self._dirty = self._dirty, set()
        overflown, self._overflown = self._overflown, False
        return None if overflown else dirty

    async def _tell(self, meanwhile: Callable[[set[str]], Awaitable[object]]) -> None:
        """Report the names so far, and those that come meanwhile."""
        while self._named and not self._is_over:
            named, self._named = self._named, set()
            with contextlib.suppress(
                Exception
            ):  # what it was for is done again, and fails there where it must
                await meanwhile(named)

    async def _more_within(self, seconds: float) -> bool:
        self._event.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        return True

    def _read(self) -> None:
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return
        at = 0
        while at < len(data):
            watch, mask, _, length = _HEADER.unpack_from(data, at)
            leaf = data[at + _HEADER.size : at + _HEADER.size + length]
            at += _HEADER.size + length
            if mask & IN_Q_OVERFLOW:
                self._overflown = True
            elif mask & IN_IGNORED:
                folder = self._folders.pop(watch, None)
                if folder is not None and watch in self._watched.get(folder, ()):
                    del self._watched[folder]
            elif watch in self._folders:
                folder = self._folders[watch]
                self._dirty.add(folder)
                if (
                    mask & (IN_CREATE | IN_MOVED_TO | IN_CLOSE_WRITE)
                    and len(self._named) < MOST_NAMED
                ):
                    name = os.fsdecode(leaf.rstrip(b"\0")) + ("/" if mask & IN_ISDIR else "")
                    self._named.add(f"{folder}/{name}" if folder else name)
        self._event.set()
        self._reads += 1
        if self._reads > FLOOD_READS:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._fd)
            loop.call_later(FLOOD_PAUSE_S, self._read_on)

    def _read_on(self) -> None:
        if self._fd >= 0:
            asyncio.get_running_loop().add_reader(self._fd, self._read)
