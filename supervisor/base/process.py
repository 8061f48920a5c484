"""Start processes. No other module may.

It decides how a program is started: always from a list of arguments, never through a shell, always
with an explicit environment (the supervisor's own holds secrets), by an absolute path, in `/`
unless the caller names a folder of ours, with every descriptor closed that isn't handed over by
name, and in a session of its own so that the whole tree can be ended. It must never take a string
to be split, inherit the environment or the folder, or leave a tree running after its time.

Starting uses `subprocess.Popen` (vfork and exec in C, safe beside threads and cheap beside a large
heap) rather than the loop's own `subprocess_exec`: uvloop's forks and runs Python in the child.
Waiting uses a pidfd, so an end is never missed, and a signal never hits a recycled pid.
"""

import asyncio
import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

from supervisor.base.search_path import absolute_entries
from supervisor.errors import UserError

PIPE = subprocess.PIPE
DEVNULL = subprocess.DEVNULL
STDOUT = subprocess.STDOUT

type OnPrinted = Callable[[bytes], None]
# Called with each block of standard output, and of standard error.
type Printed = tuple[OnPrinted, OnPrinted]

DEFAULT_OUTPUT_LIMIT_BYTES = 16 * 1024 * 1024
# How long what a finished program left in its pipes may take to read. Its group has been killed by
# then: only a process that moved to another session and kept the pipe can hold it open.
DRAIN_S = 1.0
# Rounds of stopping a tree before it is killed: each finds what was forked during the round before.
FREEZE_ROUNDS = 16
READ_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Completed:
    """A program that ended. `exit_code` is 128 + signal where a signal ended it; `truncated`
    says output was dropped."""

    argv: tuple[str, ...]
    exit_code: int
    stdout: bytes
    stderr: bytes
    truncated: bool = False
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        """It ended by itself, with 0, and all of its output is here."""
        return self.exit_code == 0 and not self.timed_out and not self.truncated


class Child:
    """A running program. `stdout` and `stderr` are streams where PIPE was asked for, `stdin` a
    raw descriptor to write to."""

    def __init__(
        self, argv: tuple[str, ...], popen: subprocess.Popen[bytes], own_session: bool
    ) -> None:
        self.argv = argv
        self.pid = popen.pid
        self.stdin: IO[bytes] | None = popen.stdin
        self.stdout: asyncio.StreamReader | None = None
        self.stderr: asyncio.StreamReader | None = None
        self._popen = popen
        self._own_session = own_session
        self._pidfd = os.pidfd_open(popen.pid)
        self._transports: list[asyncio.BaseTransport] = []
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(self._pidfd, self._on_end)

    @property
    def returncode(self) -> int | None:
        """Its exit code, 128 + signal where a signal ended it; None while it runs."""
        return self._ended.result() if self._ended.done() and not self._ended.cancelled() else None

    async def wait(self) -> int:
        """Wait for its end and give `returncode`. May be called any number of times, at the same
        time too."""
        return await asyncio.shield(self._ended)

    def send_signal(self, number: signal.Signals) -> None:
        """Signal the program itself; nothing happens when it has ended."""
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def kill_tree(self) -> None:
        """SIGKILL to the program, its session's group and every descendant found in /proc.

        The tree is stopped first, so that nothing forks away between being seen and being killed.
        """
        frozen: list[int] = []
        for _ in range(FREEZE_ROUNDS):
            self.send_signal(signal.SIGSTOP)
            fresh = [
                pid
                for pid in (descendants(self.pid) if self._pidfd >= 0 else [])
                if pid not in frozen
            ]
            if not fresh:
                break
            for pid in fresh:
                _signal_pid(pid, signal.SIGSTOP)
            frozen += fresh
        self._kill_group()
        self.send_signal(signal.SIGKILL)
        for pid in frozen:
            _signal_pid(pid, signal.SIGKILL)

    async def end(self) -> None:
        """Close it, and wait for its end even where we are cancelled: nothing of it runs
        afterwards."""
        self.close()
        try:
            await self.wait()
        except asyncio.CancelledError:
            await asyncio.wait({self._ended})
            raise

    def close(self) -> None:
        """Kill what still runs and give back the pipes. The end is then still waited for by the
        loop."""
        if self.returncode is None:
            self.kill_tree()
        for transport in self._transports:
            transport.close()
        if self.stdin is not None:
            with contextlib.suppress(OSError):
                self.stdin.close()

    async def connect(self) -> None:
        """Make streams of the pipes. Called once, by `spawn`."""
        try:
            if self._popen.stdout is not None:
                self.stdout = await self._reader(self._popen.stdout)
            if self._popen.stderr is not None:
                self.stderr = await self._reader(self._popen.stderr)
        except BaseException:
            if self._popen.stderr is not None:
                # the loop closes what it was given, which this one may not have been yet
                self._popen.stderr.close()
            raise

    async def _reader(self, pipe: IO[bytes]) -> asyncio.StreamReader:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=READ_BYTES, loop=loop)
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader, loop=loop), pipe
        )
        self._transports.append(transport)
        return reader

    def _kill_group(self) -> None:
        # INVARIANT: only before the leader is reaped, so that the number still means this group.
        if self._own_session and self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def _on_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        # The leader is a zombie and still pins its number: end what it left in its group, then reap
        # it.
        self._kill_group()
        code = self._popen.wait()
        os.close(self._pidfd)
        self._pidfd = -1
        if not self._ended.done():
            self._ended.set_result(exit_code(code))


async def spawn(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str],
    cwd: Path | str = "/",
    stdin: int | IO[bytes] | None = DEVNULL,
    stdout: int | IO[bytes] | None = DEVNULL,
    stderr: int | IO[bytes] | None = DEVNULL,
    pass_fds: Sequence[int] = (),
    start_new_session: bool = True,
) -> Child:
    """Start a program and return at once.

    `argv[0]` is looked up in the absolute folders of `env`'s PATH. INVARIANT (law 12): `cwd` is a
    folder that no agent, no repository and no stranger chose. None for a stream means the
    supervisor's own. When the program ends, what it left in its process group is killed (with
    `start_new_session`). The caller calls `close` in every case. Raises UserError when it can't be
    started.
    """
    # INVARIANT: a list, never one string: nothing here is ever split or expanded.
    assert not isinstance(argv, (str, bytes)), "argv is a list"
    words = tuple(str(word) for word in argv)
    if "PATH" in env:
        env = {**env, "PATH": absolute_entries(env["PATH"])}
    program = program_path(words[0], env.get("PATH", os.defpath))
    try:
        popen = subprocess.Popen(  # noqa: ASYNC220  # it blocks for the millisecond of vfork and exec, as asyncio's own does
            words,
            executable=program,
            env=dict(env),
            cwd=cwd,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=tuple(pass_fds),
            close_fds=True,
            start_new_session=start_new_session,
            bufsize=0,
        )
    except (OSError, ValueError) as error:
        raise UserError(
            f"can't start `{words[0]}`: {error}",
            "install it, or check the PATH that it is looked up in",
        ) from error
    child = Child(words, popen, start_new_session)
    try:
        await child.connect()
    except BaseException:
        await child.end()
        raise
    return child


async def run(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str],
    cwd: Path | str = "/",
    stdin: bytes | None = None,
    timeout_s: float,
    output_limit_bytes: int = DEFAULT_OUTPUT_LIMIT_BYTES,
    memory_bytes: int | None = None,
    pass_fds: Sequence[int] = (),
    printed: Printed | None = None,
) -> Completed:
    """Run a program to its end and return its output. `printed` gets both streams as they come.

    `output_limit_bytes` bounds each of the two streams; more is read and dropped, and `truncated`
    is set. After `timeout_s` seconds the whole tree is killed and `timed_out` is set. A cancelled
    call kills the tree, too, and ends only after the program. Each of its processes may have
    `memory_bytes` of its own data, from before it reads any of `stdin`. Raises UserError when the
    program can't be started.
    """
    child = await spawn(
        argv,
        env=env,
        cwd=cwd,
        stdin=DEVNULL if stdin is None else PIPE,
        stdout=PIPE,
        stderr=PIPE,
        pass_fds=pass_fds,
    )
    if memory_bytes is not None:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(child.pid, resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    out, err = _Bounded(output_limit_bytes), _Bounded(output_limit_bytes)
    assert child.stdout is not None
    assert child.stderr is not None
    timed_out = False
    try:
        async with asyncio.TaskGroup() as tasks:
            pumps = [
                tasks.create_task(out.fill(child.stdout, printed and printed[0])),
                tasks.create_task(err.fill(child.stderr, printed and printed[1])),
            ]
            if stdin is not None:
                pumps.append(tasks.create_task(_feed(child, stdin)))
            try:
                async with asyncio.timeout(timeout_s):
                    code = await child.wait()
            except TimeoutError:
                timed_out = True
                child.kill_tree()
                code = await child.wait()
            await asyncio.wait(pumps, timeout=DRAIN_S)
            for pump in pumps:
                pump.cancel()
    finally:
        await child.end()
    return Completed(
        child.argv,
        code,
        bytes(out.data),
        bytes(err.data),
        out.truncated or err.truncated,
        timed_out,
    )


def program_path(name: str, search_path: str) -> str:
    """Return the absolute path of a program. `UserError` where there is none: a relative one is a
    file of whatever folder we happen to be in."""
    if name.startswith("/"):
        return name
    found = None if "/" in name else shutil.which(name, path=absolute_entries(search_path))
    if found is None:
        raise UserError(
            f"can't start `{name}`: it is in no absolute folder of PATH",
            "install it, or check the PATH that it is looked up in",
        )
    return found


def start_over(*options: str) -> NoReturn:
    """Become the same program in the same process again, with these options of Python's."""
    os.execv(sys.executable, [sys.executable, *options, *sys.orig_argv[1:]])  # noqa: S606


def exit_code(returncode: int) -> int:
    """Return the exit status by the shell's convention (POSIX 2.8.2): 128 + number where a signal
    ended the program."""
    return 128 - returncode if returncode < 0 else returncode


def children(pid: int) -> list[int]:
    """Return the direct children of all threads of a process (needs CONFIG_PROC_CHILDREN,
    proc_pid_children(5))."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += [int(word) for word in (task / "children").read_text().split()]
    return found


def descendants(pid: int) -> list[int]:
    """Every process below `pid`, nearest first, as far as /proc shows them now."""
    found: list[int] = []
    waiting = children(pid)
    while waiting:
        found += waiting
        waiting = [grandchild for child in waiting for grandchild in children(child)]
    return found


class _Bounded:
    """The first `limit_bytes` of a stream; the rest is read, so that the writer isn't blocked,
    and dropped."""

    def __init__(self, limit_bytes: int) -> None:
        self.data = bytearray()
        self.truncated = False
        self._limit_bytes = limit_bytes

    async def fill(self, stream: asyncio.StreamReader, told: OnPrinted | None) -> None:
        while block := await stream.read(READ_BYTES):
            if told is not None:
                told(block)
            room = self._limit_bytes - len(self.data)
            self.data += block[:room]
            self.truncated = self.truncated or len(block) > room


async def _feed(child: Child, data: bytes) -> None:
    """Write `data` to the program and close its input. A program that doesn't read it all is no
    error."""
    assert child.stdin is not None
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, child.stdin
    )
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    child.stdin = None  # the transport owns it now
    transport.set_write_buffer_limits(high=0)  # so that `drain` waits until everything is written
    try:
        writer.write(data)
        with contextlib.suppress(ConnectionError, BrokenPipeError):
            await writer.drain()
    finally:
        writer.close()


def _signal_pid(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
