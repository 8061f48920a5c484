"""Bounds of a sandbox: per-process limits in the kernel, and a watchdog over all.

There are three layers, each alone enough against an accident, together against an attack: rlimits,
set from outside on a process that can't run yet; a control group where the machine provides one
(`cgroups.py`); and always the watchdog, which counts a few times a second and ends the whole
sandbox, with the reason. The watchdog has a thread of its own, so a busy or stuck event loop
doesn't suspend the bounds. It must never rely on what a process says of itself, nor signal a
process number that may have been reused.
"""

import contextlib
import os
import resource
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from supervisor.base.clock import worked_s
from supervisor.base.process import descendants
from supervisor.sandbox.arguments import TMPFS
from supervisor.sandbox.base import HOME, SandboxLimits
from supervisor.sandbox.cgroups import Cgroup
from supervisor.sandbox.session_home import OURS

# Folders of a home on disk that may be in memory.
IN_HOME = tuple(f"{HOME}/{name}" for name in OURS)
INTERVAL_S = 0.2
# A disk fills faster than the rest: free room is checked this often between full looks.
DISK_INTERVAL_S = 0.05
# A look at thousands of processes takes long; the pause after it is this many times as long.
REST_FACTOR = 4
CPU_MARGIN_S = 2
# Open descriptors of a whole sandbox: each takes kernel memory that is counted nowhere else.
MOST_FILES = 65_536
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Address space that a program reserves for writing but never touches (thread stacks, heaps of node,
# bun and JVMs) is no memory. The rlimit only stops, at once, what is far beyond the bound; the
# watchdog and the group enforce the bound itself.
DATA_FACTOR = 2
DATA_FLOOR_BYTES = 2 * 1024**3
# Buffer of a socket of a pair, by default 208 kB everywhere (`seccomp` keeps it so). In a container
# the kernel may not show it.
UNIX_BYTES = 212_992
with contextlib.suppress(OSError):
    UNIX_BYTES = int(Path("/proc/sys/net/core/wmem_default").read_text())
# proc_net(5): how to read a socket's buffered bytes from a table's line.
QUEUES: dict[str, Callable[[list[str]], int]] = {
    **dict.fromkeys(
        ("tcp", "tcp6", "udp", "udp6"),
        lambda fields: sum(int(size, 16) for size in fields[4].split(":")),
    ),
    "netlink": lambda fields: int(fields[4]) + int(fields[5]),
    "unix": lambda _: UNIX_BYTES,
}


@dataclass(frozen=True, slots=True)
class Sample:
    """A sandbox's use at one moment. `cpu_s` never decreases. `missing_disk_bytes`: how far the
    disk is below its floor. `files`: open descriptors."""

    tasks: int
    memory_bytes: int
    cpu_s: float
    missing_disk_bytes: int = 0
    files: int = 0


@dataclass(slots=True)
class Watched:
    """One watched sandbox. `init_fd` is a pidfd of its init, whose end ends everything in it.

    `disk` is a folder of the file system that it writes to; None where it writes to none.
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
        """End all of it. The first reason is kept."""
        with self.lock:
            if not self.ended:
                self.killed_why = self.killed_why or why
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self.init_fd, signal.SIGKILL)

    def is_alive(self) -> bool:
        """Return whether its init still exists, so that its number belongs to no other process."""
        with self.lock, contextlib.suppress(ProcessLookupError):
            if not self.ended:
                signal.pidfd_send_signal(self.init_fd, 0)
                return True
        return False


def rlimits(limits: SandboxLimits) -> dict[int, int]:
    """Return the per-process bounds, by resource. NPROC counts per user namespace, the sandbox's
    own (Linux 5.14), but doesn't bind root."""
    bounds = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: limits.processes,
        resource.RLIMIT_NOFILE: limits.files,
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_DATA: max(limits.memory_bytes * DATA_FACTOR, DATA_FLOOR_BYTES),
        resource.RLIMIT_MEMLOCK: min(limits.memory_bytes, 64 * 1024**2),
        # POSIX queues and queued signals take kernel memory that no process shows.
        resource.RLIMIT_MSGQUEUE: 819_200,
        resource.RLIMIT_SIGPENDING: max(limits.processes, 1024),
        resource.RLIMIT_RTPRIO: 0,
        resource.RLIMIT_NICE: 0,
    }
    if limits.cpu_s is not None:
        # A little above the bound, so that the watchdog, which can report the reason, acts first.
        bounds[resource.RLIMIT_CPU] = max(1, limits.cpu_s) + CPU_MARGIN_S
    return bounds


def apply_rlimits(pid: int, limits: SandboxLimits) -> None:
    """Set hard and soft bounds on another process, never above what it has. Raise OSError."""
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
        """Start to watch it. The thread works while there is something to watch, and sleeps
        otherwise."""
        with self._changed:
            self._watched.append(watched)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="sandbox-watchdog", daemon=True
                )
                self._thread.start()
            self._changed.notify()

    def forget(self, watched: Watched) -> None:
        """Stop watching it, since it has ended: nothing is read or signalled for it any more."""
        with self._changed, watched.lock:
            watched.ended = True
            if watched in self._watched:
                self._watched.remove(watched)
            self._changed.notify()

    def _run(self) -> None:
        spent_s = 0.0
        while True:
            with self._changed:
                while not self._watched:
                    self._changed.wait()
            # A pause first: a new sandbox has used nothing yet.
            pause_s = max(INTERVAL_S, REST_FACTOR * spent_s)
            while pause_s > 0:
                with self._changed:
                    self._changed.wait_for(lambda: not self._watched, DISK_INTERVAL_S)
                    watched = list(self._watched)
                pause_s = pause_s - DISK_INTERVAL_S if watched else 0
                for one in watched:
                    self._look(one, missing_disk)
            begun_s = worked_s()
            for one in watched:
                self._look(one, sample)
            spent_s = worked_s() - begun_s

    def _look(self, one: Watched, count: Callable[[Watched], Sample]) -> None:
        try:
            if why := exceeded(one, count(one)):
                one.kill(why)
        except Exception as error:
            # INVARIANT: fail closed: a sandbox whose use can't be counted isn't bounded, so it is
            # ended.
            one.kill(f"its use couldn't be counted: {error}")


def exceeded(one: Watched, now: Sample) -> str:
    """Return the exceeded bound, in words; "" where none is."""
    limits = one.limits
    if one.cgroup is not None and one.cgroup.out_of_memory():
        return f"memory above {limits.memory_bytes} bytes"
    if now.memory_bytes > limits.memory_bytes:
        return f"memory above {limits.memory_bytes} bytes"
    if now.tasks > limits.processes:
        return f"more than {limits.processes} processes"
    if now.files > MOST_FILES:
        return f"more than {MOST_FILES} open files"
    if limits.cpu_s is not None and now.cpu_s > limits.cpu_s:
        return f"more than {limits.cpu_s} s of CPU time"
    return disk_is_full(now.missing_disk_bytes)


def disk_is_full(missing_bytes: int) -> str:
    """Return why a sandbox is ended whose disk lacks this many bytes; "" where none are missing."""
    if not missing_bytes:
        return ""
    return f"the disk of its copy is nearly full: {missing_bytes} bytes too few are free"


def sample(one: Watched) -> Sample:
    """Count the sandbox's present use, from outside: its processes are its init's descendants."""
    pids = [one.init_pid, *descendants(one.init_pid)]
    tasks, cpu_s = 0, 0.0
    for pid in pids:
        threads, seconds = _stat(pid)
        tasks += threads
        cpu_s += seconds
    group = one.cgroup
    counted = group.cpu_s() if group is not None else None
    charged = group.memory_bytes() if group is not None else None
    memory = _memory_bytes(one, pids) if charged is None else charged
    one.last = Sample(
        tasks,
        memory,
        max(one.last.cpu_s, cpu_s if counted is None else counted),
        missing_disk_bytes(one.disk, one.limits),
        sum(map(_files, pids)),
    )
    return one.last


def missing_disk(one: Watched) -> Sample:
    """Check only the disk: how far its free room is below the floor."""
    return Sample(0, 0, 0.0, missing_disk_bytes(one.disk, one.limits))


def missing_disk_bytes(disk: Path | None, limits: SandboxLimits) -> int:
    """Return how many bytes are missing to the disk's floor; 0 where enough are free. On a small
    file system the floor is a twentieth."""
    if disk is None:
        return 0
    status = os.statvfs(disk)
    floor = min(limits.free_disk_bytes, status.f_blocks * status.f_frsize // 20)
    return max(0, floor - status.f_bavail * status.f_frsize)


def _files(pid: int) -> int:
    """Return how many descriptors a process has open: since Linux 6.2 the size of the folder that
    lists them."""
    folder = f"/proc/{pid}/fd"
    try:
        return os.stat(folder).st_size or len(os.listdir(folder))  # noqa: PTH116, PTH208
    except OSError:
        return 0


def _stat(pid: int) -> tuple[int, float]:
    """Return threads, and CPU seconds with those of waited-for children (proc_pid_stat(5), fields
    14 to 17 and 20)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0, 0.0
    return int(fields[17]), sum(int(value) for value in fields[11:15]) / TICKS_PER_S


def _memory_bytes(one: Watched, pids: list[int]) -> int:
    """Return the memory of these processes: anonymous and shared, swapped out or not, with page
    tables, socket buffers and files in memory file systems.

    The quick sum counts a shared page once per process, so it is only a first look. Above the
    limit, the proportional figure is read, which counts each page once; if it can't be read, the
    quick sum counts. A file in memory may or may not be mapped, so the larger of mapped shared
    memory and such files counts.
    """
    files, sockets = _tmpfs_bytes(one), _socket_bytes(one.init_pid)
    rows = [
        _kilobytes(Path(f"/proc/{pid}/status"), "RssAnon:", "RssShmem:", "VmSwap:", "VmPTE:")
        for pid in pids
    ]
    tables = sockets + sum(row[3] for row in rows)
    quick = [row[:3] for row in rows]
    if _total(quick, files) + tables > one.limits.memory_bytes:
        exact = [
            _kilobytes(Path(f"/proc/{pid}/smaps_rollup"), "Pss_Anon:", "Pss_Shmem:", "SwapPss:")
            for pid in pids
        ]
        quick = [fine if any(fine) else coarse for fine, coarse in zip(exact, quick, strict=True)]
    return _total(quick, files) + tables


def _total(rows: list[tuple[int, ...]], files: int) -> int:
    anonymous, shared, swapped = (sum(row[at] for row in rows) for at in range(3))
    return anonymous + swapped + max(files, shared)


def _tmpfs_bytes(one: Watched) -> int:
    """Return what the sandbox's own memory file systems hold; 0 where it has none."""
    found: dict[int, int] = {}
    if _has_own(one.init_pid, "mnt"):
        for path in (*TMPFS, "/dev/shm", *IN_HOME):  # noqa: S108
            with contextlib.suppress(OSError):
                place = os.open(
                    f"/proc/{one.init_pid}/root{path}", os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
                )
                try:
                    status, device = os.fstatvfs(place), os.fstat(place).st_dev
                finally:
                    os.close(place)
                if status.f_blocks * status.f_frsize <= one.limits.tmpfs_bytes:
                    found[device] = (status.f_blocks - status.f_bfree) * status.f_frsize
    return sum(found.values())


def _has_own(pid: int, namespace: str) -> bool:
    """Return whether a process is in another namespace of this kind than we are."""
    try:
        theirs = Path(f"/proc/{pid}/ns/{namespace}").readlink()
    except OSError:
        return True
    return theirs != Path(f"/proc/self/ns/{namespace}").readlink()


def _socket_bytes(init_pid: int) -> int:
    """Return what the sockets of a sandbox's network buffer, including those whose descriptors are
    in transit over another; 0 where it has no network of its own."""
    found = 0
    for table, held in QUEUES.items() if _has_own(init_pid, "net") else ():
        with contextlib.suppress(OSError), Path(f"/proc/{init_pid}/net/{table}").open() as lines:
            next(lines, "")
            found += sum(held(line.split()) for line in lines)
    return found


def _kilobytes(path: Path, *names: str) -> tuple[int, ...]:
    """Return the values of `Name:  N kB` lines, in bytes; zeros where the file can't be read."""
    try:
        found = {
            line.split()[0]: int(line.split()[1]) * 1024
            for line in path.read_text(errors="replace").splitlines()
            if line.startswith(names)
        }
    except OSError:
        found = {}
    return tuple(found.get(name, 0) for name in names)
