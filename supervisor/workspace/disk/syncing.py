"""Sync many files in groups, so that the disk flushes them in one go.

Snapshots, before-contents and new files on the host must each be synced before the next step. A
caller that postpones syncs here must do nothing that relies on them before `finish`. syncfs(2)
isn't used: it would wait for all writes on the machine. It must never take a failed sync for a
completed one.
"""

import os
from concurrent.futures import ThreadPoolExecutor

from supervisor.base.clock import RealClock

AT_ONCE = 8
# Each postponed sync keeps a descriptor open.
MOST_POSTPONED = 200
# A file system that syncs this fast (in memory, or with a cache that survives a power cut) is done
# before a thread would start.
QUICK_S = 0.0001
_CLOCK = RealClock()


class Syncs:
    """Files with a postponed sync. Blocking: call it in a thread, one at a time."""

    def __init__(self) -> None:
        self._fds: list[int] = []
        self._is_quick = True

    def add(self, fd: int) -> None:
        """Sync this open file at the next `finish`, at the latest. The caller may close it."""
        if self._is_quick:
            begun = _CLOCK.monotonic()
            os.fsync(fd)
            self._is_quick = _CLOCK.monotonic() - begun < QUICK_S
            return
        self._fds.append(os.dup(fd))
        if len(self._fds) >= MOST_POSTPONED:
            self.finish()

    def finish(self) -> None:
        """Return once all of them are durable. Raise OSError where one isn't."""
        fds, self._fds = self._fds, []
        try:
            parts = [fds[at::AT_ONCE] for at in range(min(AT_ONCE, len(fds)))]
            if len(fds) == 1:
                os.fsync(fds[0])
            elif fds:
                with ThreadPoolExecutor(len(parts), "fsync") as pool:
                    list(pool.map(_sync_each, parts))
        finally:
            for fd in fds:
                os.close(fd)


def _sync_each(fds: list[int]) -> None:
    for fd in fds:
        os.fsync(fd)
