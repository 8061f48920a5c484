"""End sandboxes that outlived their supervisor.

Each is named by a process's number and its start, so that a later process is never mistaken for it:
a number is used again once its process has ended; number and start together are not. A pidfd holds
the process before its start is checked, so a signal can't reach whatever took the number in
between.
"""

import contextlib
import os
import signal
from pathlib import Path


def started_ticks(pid: int) -> int:
    """When it was started, in clock ticks since boot (proc_pid_stat(5), fields 3 and 22); 0
    where it has ended, reaped or not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def kill(pid: int | None, started: int | None) -> bool:
    """Kill the sandbox whose init had this number and this start. Whether there was one."""
    if not pid or not started:
        return False
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if started_ticks(pid) != started:
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        return True
    finally:
        os.close(pidfd)
