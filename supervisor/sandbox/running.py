"""A running bubblewrap sandbox: its output, signals and end; and leftover sandboxes.

The end is established by facts: bubblewrap's own end, a pidfd of the sandbox's init (whose end ends
everything in it), and the end of every output. It is over only once all three have occurred. The
loop's readers drive everything here, so an agent's output moves and its end is noticed whether or
not anybody waits.

A sandbox that outlived its supervisor is identified by its init's number and start, so a later
process is never mistaken for it. A pidfd holds the process before its start is checked, so a signal
can't reach a process that took the number in between.
"""

import asyncio
import contextlib
import fcntl
import itertools
import os
import signal
import socket
import struct
import termios
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from supervisor.base.process import Child, descendants
from supervisor.sandbox.base import OnOutput, Running, Stats, ToolResult
from supervisor.sandbox.limits import Watchdog, Watched, sample

READ_BYTES = 64 * 1024
# Removing a group can be refused for a moment after its last process has ended.
REMOVE_TRIES = 100
REMOVE_PAUSE_S = 0.02
# A process may be made while its maker is being stopped, so the search is repeated, at most this
# often.
MOST_ROUNDS = 20
# How many processes are held at a time for signalling.
BATCH = 256


class OutputBudget:
    """Bound on the passed-on output, over all streams of a sandbox."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.seen_bytes = 0
        self.truncated = False

    def take(self, block: bytes) -> tuple[bytes, bool]:
        """Return the part of `block` to pass on, and whether this reaches the limit."""
        room = max(0, self.limit_bytes - self.seen_bytes)
        self.seen_bytes += len(block)
        first = len(block) > room and not self.truncated
        self.truncated = self.truncated or first
        return block[:room], first


class Pump:
    """Reads a pipe or a terminal for as long as it is open, so that the program never blocks."""

    def __init__(
        self, descriptor: int, budget: OutputBudget, sink: OnOutput, on_end: Callable[[], None]
    ) -> None:
        self.descriptor = descriptor
        self._budget = budget
        self._sink = sink
        self._on_end = on_end
        os.set_blocking(descriptor, False)
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def close(self) -> None:
        """Stop reading and close the descriptor."""
        if self.descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self.descriptor)
            os.close(self.descriptor)
            self.descriptor = -1

    def _read(self) -> None:
        try:
            block = os.read(self.descriptor, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:  # EIO: the last process has closed the terminal
            block = b""
        if not block:
            self.close()
            self._on_end()
            return
        passed, reached = self._budget.take(block)
        if passed:
            self._sink(passed)
        if reached:
            self._sink(
                f"\n[gatehouse: output above {self._budget.limit_bytes} bytes is dropped]\n".encode()  # noqa: E501
            )


class Capture:
    """A sink that keeps its input, or only its end: at least `last_bytes`. `told` has it, too."""

    def __init__(self, last_bytes: int | None = None, told: OnOutput | None = None) -> None:
        self.data = bytearray()
        self.told = told
        self._last_bytes = last_bytes

    def __call__(self, block: bytes) -> None:
        self.data += block
        if self.told is not None:
            self.told(block)
        # Twice as much, so that a byte is moved at most once.
        if self._last_bytes is not None and len(self.data) > 2 * self._last_bytes:
            del self.data[: -self._last_bytes]


class BubblewrapRunning:
    """Implements `base.Running`."""

    def __init__(
        self, child: Child, watched: Watched, watchdog: Watchdog, budget: OutputBudget
    ) -> None:
        self.pid = watched.init_pid
        self.pid_started = started_ticks(watched.init_pid)
        self.listeners: dict[int, socket.socket] = {}
        self.limits_in_force: tuple[str, ...] = ()
        self.copy: Path | None = None
        self.master_fd: int | None = None
        # Of one that is held: where its command is sent.
        self.gate: socket.socket | None = None
        self._child = child
        self._watched = watched
        self._watchdog = watchdog
        self._budget = budget
        self._pumps: list[Pump] = []
        self._paused_at: float | None = None
        self._paused_s = 0.0
        self._signals: ThreadPoolExecutor | None = None
        self._init_ended = asyncio.Event()
        self._output_ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(watched.init_fd, self._on_init_end)

    @property
    def killed_why(self) -> str:
        """Return the bound, or the request, that ended it; "" where it ended by itself."""
        return self._watched.killed_why

    @property
    def truncated(self) -> bool:
        """Return whether output was dropped."""
        return self._budget.truncated

    @property
    def is_over(self) -> bool:
        """Return whether nothing of it is left."""
        return (
            self._child.returncode is not None
            and self._init_ended.is_set()
            and self._output_ended.is_set()
        )

    def attach(self, descriptors: Sequence[int], sinks: Sequence[OnOutput]) -> None:
        """Pass on the output of these descriptors, which are ours from here on. It isn't over
        before they end."""
        pairs = zip(descriptors, sinks, strict=False)
        self._pumps = [
            Pump(descriptor, self._budget, sink, self.on_output_end) for descriptor, sink in pairs
        ]

    def on_output_end(self) -> None:
        """Note that a stream has ended, or that there is none."""
        if all(pump.descriptor < 0 for pump in self._pumps):
            self.master_fd = None
            self._output_ended.set()

    async def wait(self) -> int:
        """Wait for the end. Any number of callers may wait; cancelling one doesn't affect the
        others."""
        code = await self._child.wait()
        # bubblewrap is gone, so its init has been told to go too (--die-with-parent); this doesn't
        # rely on it.
        self._signal_init()
        await self._init_ended.wait()
        await self._output_ended.wait()
        await self._clean_up()
        return code

    def terminate(self) -> None:
        self._signal_all(signal.SIGTERM, rounds=1)

    def pause(self) -> str:
        if self._paused_at is None:
            self._paused_at = asyncio.get_running_loop().time()
        cgroup = self._watched.cgroup
        if cgroup is not None and cgroup.freeze(is_frozen=True):
            return "cgroup freezer"
        self._signal_all(signal.SIGSTOP)
        return "signals"

    def unpause(self) -> None:
        if self._paused_at is not None:
            self._paused_s += asyncio.get_running_loop().time() - self._paused_at
            self._paused_at = None
        cgroup = self._watched.cgroup
        if cgroup is None or not cgroup.freeze(is_frozen=False):
            self._signal_all(signal.SIGCONT)

    @property
    def paused_s(self) -> float:
        """Return how long it was paused so far, in seconds."""
        now = asyncio.get_running_loop().time()
        return self._paused_s + (0.0 if self._paused_at is None else now - self._paused_at)

    def _signal_all(self, number: signal.Signals, rounds: int = MOST_ROUNDS) -> None:
        """Signal every process but its init, in order and in a thread: there may be thousands."""
        if self._watched.ended:
            return
        if self._signals is None:
            self._signals = ThreadPoolExecutor(1, "sandbox-signals")
        self._signals.submit(signal_all, self._watched, number, rounds)

    def kill(self, why: str = "") -> None:
        if self._paused_at is not None:
            # A version 1 freezer blocks signals.
            self.unpause()
        self._watched.kill(why)
        self._child.send_signal(signal.SIGKILL)

    def resize(self, rows: int, columns: int) -> None:
        if self.master_fd is not None:
            fcntl.ioctl(
                self.master_fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0)
            )

    def stats(self) -> Stats:
        now = self._watched.last if self._init_ended.is_set() else sample(self._watched)
        return Stats(
            processes=0 if self._init_ended.is_set() else now.tasks,
            memory_bytes=0 if self._init_ended.is_set() else now.memory_bytes,
            cpu_s=now.cpu_s,
            output_bytes=self._budget.seen_bytes,
        )

    def _signal_init(self) -> None:
        if not self._init_ended.is_set():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._watched.init_fd, signal.SIGKILL)

    def _on_init_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._watched.init_fd)
        group = self._watched.cgroup
        if group is not None and group.out_of_memory():
            self._watched.killed_why = (
                self._watched.killed_why
                or f"memory above {self._watched.limits.memory_bytes} bytes"
            )
        self._watchdog.forget(self._watched)
        os.close(self._watched.init_fd)
        self._init_ended.set()

    async def _clean_up(self) -> None:
        if self._signals is not None:
            self._signals.shutdown(wait=False, cancel_futures=True)
        group = self._watched.cgroup
        for _ in range(REMOVE_TRIES):
            if group is None or group.remove():
                break
            await asyncio.sleep(REMOVE_PAUSE_S)


def signal_all(watched: Watched, number: signal.Signals, rounds: int) -> None:
    """Signal every process of a sandbox but its init; in further rounds those made meanwhile."""
    done: set[int] = set()
    for _ in range(rounds):
        new = [pid for pid in descendants(watched.init_pid) if pid not in done]
        for batch in itertools.batched(new, BATCH, strict=False):
            _signal_batch(watched, batch, number)
        if not new:
            return
        done.update(new)


def _signal_batch(watched: Watched, pids: Iterable[int], number: signal.Signals) -> None:
    held: dict[int, int] = {}
    try:
        for pid in pids:
            with contextlib.suppress(OSError):
                held[pid] = os.pidfd_open(pid)
        # INVARIANT: these are still processes of this sandbox, which still exists: checked after
        # their pidfds were taken, so no number can belong to another.
        ours = held.keys() & set(descendants(watched.init_pid))
        if watched.is_alive():
            for pid in ours:
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(held[pid], number)
    finally:
        for descriptor in held.values():
            os.close(descriptor)


async def result_of(running: Running, out: Capture, err: Capture, timeout_s: float) -> ToolResult:
    """Run a command to its end, killing it at `timeout_s`. Return what it wrote."""
    timed_out = False
    try:
        code = await _within(running, timeout_s)
    except TimeoutError:
        timed_out = True
        running.kill(f"it took more than {timeout_s:g} s")
        code = await running.wait()
    except BaseException:
        running.kill("its caller went away")
        await running.wait()  # the caller may rely on it: nothing of it writes any more
        raise
    finally:
        for listener in running.listeners.values():
            listener.close()
    return ToolResult(
        exit_code=code,
        stdout=bytes(out.data),
        stderr=bytes(err.data),
        truncated=running.truncated,
        timed_out=timed_out,
        killed_why=running.killed_why,
    )


async def _within(running: Running, timeout_s: float) -> int:
    """Wait for the end, for this many seconds not counting pauses. Raise `TimeoutError` then."""
    now = asyncio.get_running_loop().time
    begun = now()
    while (left := timeout_s + running.paused_s - (now() - begun)) > 0:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                return await running.wait()
    raise TimeoutError


def started_ticks(pid: int) -> int:
    """Return when a process was started, in clock ticks since boot (proc_pid_stat(5), fields 3 and
    22); 0 where it has ended, reaped or not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def kill(pid: int | None, started: int | None) -> bool:
    """Kill the sandbox whose init had this number and this start. Return whether there was one."""
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
