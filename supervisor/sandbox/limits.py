"""Bounds of a sandbox: per-process limits in the kernel, and a watchdog over all.

Three layers, each alone enough against an accident, together against an attack: rlimits, set
from outside on a process that can't run yet; a control group where the machine gives one
(`cgroups.py`); and always the watchdog, which counts a few times a second and ends the whole
sandbox, with the reason. It has a thread of its own, so a busy or stuck event loop doesn't
suspend the bounds. It must never judge by a process's own word, nor signal by a number that may
have been reused.
"""

import contextlib
import os
import resource
import signal
import threading
from dataclasses import dataclass, field
from pathlib import Path

from supervisor.base.process import descendants
from supervisor.sandbox.base import SandboxLimits
from supervisor.sandbox.cgroups import Cgroup

INTERVAL_S = 0.2
CPU_MARGIN_S = 2
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Address space that a program reserves for writing but never touches (thread stacks, heaps of node,
# bun and JVMs) is no memory: the rlimit stops only what is far beyond the bound, at once; the
# watchdog and the group hold the bound itself.
DATA_FACTOR = 2
DATA_FLOOR_BYTES = 2 * 1024**3


@dataclass(frozen=True, slots=True)
class Sample:
    """A sandbox's use at one moment. `cpu_s` never goes down. `missing_disk_bytes`: how far the
    disk is below its floor."""

    tasks: int
    memory_bytes: int
    cpu_s: float
    missing_disk_bytes: int = 0


@dataclass(slots=True)
class Watched:
    """One sandbox under watch. `init_fd` is a pidfd of its init, whose end is the end of everything
    in it.

    `disk` is a folder of the file system that it writes to, None where it writes to none.
    """

    init_pid: int
    init_fd: int
    limits: SandboxLimits
    cgroup: Cgroup | None
    disk: Path | None = None
    killed_why: str = ""
    last: Sample = field(default_factory=lambda: Sample(0, 0, 0.0))
    ended: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def kill(self, why: str) -> None:
        """End all of it. The first reason stays."""
        with self.lock:
            if not self.ended:
                self.killed_why = self.killed_why or why
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self.init_fd, signal.SIGKILL)

    def is_alive(self) -> bool:
        """Return whether its init is there still, so that its number is no other process's."""
        with self.lock, contextlib.suppress(ProcessLookupError):
            if not self.ended:
                signal.pidfd_send_signal(self.init_fd, 0)
                return True
        return False


def rlimits(limits: SandboxLimits) -> dict[int, int]:
    """Return the per-process bounds, by resource. NPROC counts the sandbox's own user namespace
    (Linux 5.14), but not for root."""
    bounds = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: limits.processes,
        resource.RLIMIT_NOFILE: limits.files,
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_DATA: max(limits.memory_bytes * DATA_FACTOR, DATA_FLOOR_BYTES),
        resource.RLIMIT_MEMLOCK: min(limits.memory_bytes, 64 * 1024**2),
        # POSIX queues and queued signals are kernel memory that no process shows.
        resource.RLIMIT_MSGQUEUE: 819_200,
        resource.RLIMIT_SIGPENDING: max(limits.processes, 1024),
        resource.RLIMIT_RTPRIO: 0,
        resource.RLIMIT_NICE: 0,
    }
    if limits.cpu_s is not None:
        # A little above the bound, so that the watchdog, which can say why, comes first.
        bounds[resource.RLIMIT_CPU] = max(1, limits.cpu_s) + CPU_MARGIN_S
    return bounds


def apply_rlimits(pid: int, limits: SandboxLimits) -> None:
    """Set them on another process, hard and soft, never above what it has. Raises OSError."""
    for kind, bound in rlimits(limits).items():
        _, hard = resource.prlimit(pid, kind)
        value = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
        resource.prlimit(pid, kind, (value, value))


class Watchdog:
    """The thread that watches every sandbox of a backend."""

    def __init__(self) -> None:
        self._watched: list[Watched] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def watch(self, watched: Watched) -> None:
        """Begin; the thread looks while there is something to watch, and sleeps otherwise."""
        with self._changed:
            self._watched.append(watched)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="sandbox-watchdog", daemon=True
                )
                self._thread.start()
            self._changed.notify()

    def forget(self, watched: Watched) -> None:
        """It has ended: nothing is read or signalled for it any more."""
        with self._changed, watched.lock:
            watched.ended = True
            if watched in self._watched:
                self._watched.remove(watched)
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._watched:
                    self._changed.wait()
                # A pause first: what has just been started has used nothing yet.
                self._changed.wait_for(lambda: not self._watched, INTERVAL_S)
                watched = list(self._watched)
            for one in watched:
                self._look(one)

    def _look(self, one: Watched) -> None:
        try:
            if why := exceeded(one, sample(one)):
                one.kill(why)
        except Exception as error:
            # INVARIANT: fail closed: what can't be counted isn't bounded, so it doesn't go on.
            one.kill(f"its use couldn't be counted: {error}")


def exceeded(one: Watched, now: Sample) -> str:
    """Return the bound that is exceeded, in words; "" where none is."""
    limits = one.limits
    if one.cgroup is not None and one.cgroup.out_of_memory():
        return f"memory above {limits.memory_bytes} bytes"
    if now.memory_bytes > limits.memory_bytes:
        return f"memory above {limits.memory_bytes} bytes"
    if now.tasks > limits.processes:
        return f"more than {limits.processes} processes"
    if limits.cpu_s is not None and now.cpu_s > limits.cpu_s:
        return f"more than {limits.cpu_s} s of CPU time"
    if now.missing_disk_bytes > 0:
        return (
            f"the disk of its copy is nearly full: {now.missing_disk_bytes} bytes too few are free"
        )
    return ""


def sample(one: Watched) -> Sample:
    """Count the sandbox's present use, from outside: its processes are the descendants of its
    init."""
    pids = [one.init_pid, *descendants(one.init_pid)]
    tasks, cpu_s = 0, 0.0
    for pid in pids:
        threads, seconds = _stat(pid)
        tasks += threads
        cpu_s += seconds
    group = one.cgroup
    counted = group.cpu_s() if group is not None else None
    charged = group.memory_bytes() if group is not None else None
    memory = _memory_bytes(pids, one.limits.memory_bytes) if charged is None else charged
    missing = (
        _missing_disk_bytes(one.disk, one.limits.free_disk_bytes) if one.disk is not None else 0
    )
    one.last = Sample(
        tasks, memory, max(one.last.cpu_s, cpu_s if counted is None else counted), missing
    )
    return one.last


def _missing_disk_bytes(folder: Path, wanted_bytes: int) -> int:
    """Return how many bytes are missing to the disk's floor; 0 where enough are free. A small file
    system keeps a twentieth."""
    status = os.statvfs(folder)
    floor = min(wanted_bytes, status.f_blocks * status.f_frsize // 20)
    return max(0, floor - status.f_bavail * status.f_frsize)


def _stat(pid: int) -> tuple[int, float]:
    """Threads, and CPU seconds with those of waited-for children (proc_pid_stat(5), fields 14 to
    17 and 20)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0, 0.0
    return int(fields[17]), sum(int(value) for value in fields[11:15]) / TICKS_PER_S


def _memory_bytes(pids: list[int], limit_bytes: int) -> int:
    """Anonymous and shared memory of these processes.

    The quick sum counts a page once for each process that shares it, so it is only a first look:
    above the limit the proportional figure is read, which counts each page once. Where that may
    not be read, the quick one stands. A memfd may or may not be mapped, so of mapped shared
    memory and memfds the larger counts.
    """
    memfds = sum(_memfd_bytes(pids).values())
    quick = [_kilobytes(Path(f"/proc/{pid}/status"), "RssAnon:", "RssShmem:") for pid in pids]
    if sum(a for a, _ in quick) + max(memfds, sum(s for _, s in quick)) > limit_bytes:
        exact = [
            _kilobytes(Path(f"/proc/{pid}/smaps_rollup"), "Pss_Anon:", "Pss_Shmem:") for pid in pids
        ]
        quick = [fine if any(fine) else coarse for fine, coarse in zip(exact, quick, strict=True)]
    return sum(a for a, _ in quick) + max(memfds, sum(s for _, s in quick))


def _kilobytes(path: Path, *names: str) -> tuple[int, ...]:
    """Return the values of `Name:  N kB` lines, in bytes; zeros where the file can't be read."""
    try:
        found = {
            line.split()[0]: int(line.split()[1]) * 1024
            for line in path.read_text().splitlines()
            if line.startswith(names)
        }
    except OSError:
        found = {}
    return tuple(found.get(name, 0) for name in names)


def _memfd_bytes(pids: list[int]) -> dict[int, int]:
    """Memory in memfds by inode: written to but never mapped, it shows in no process's resident
    set."""
    found: dict[int, int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(entry.path).startswith("/memfd:"):  # noqa: PTH115
                        status = os.stat(entry.path)  # noqa: PTH116
                        found[status.st_ino] = status.st_blocks * 512
    return found
