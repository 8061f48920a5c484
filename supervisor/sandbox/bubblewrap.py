"""The bubblewrap backend: start a Spec's sandbox, gated until bounds are set.

It must never start anything weaker than `arguments` says: any missing part (a namespace, the
filter, a bound, a socket) is a SandboxError.

A start goes like this. bubblewrap makes the namespaces and mounts. Inside, a gate (`sh`, on a
socket that only we hold), which already runs under the filter, reports that it is there and waits.
From outside, we set the bounds on the two processes that exist, and open and hand on the listening
sockets. Only then is the gate told to become the command. If the supervisor dies before that, the
gate reads the end of its input and nothing ever runs.
"""

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from supervisor.base.process import Child, children, spawn
from supervisor.core.text.numbers import whole_number
from supervisor.errors import SandboxError, UserError
from supervisor.sandbox import host_paths, seccomp
from supervisor.sandbox.arguments import PATH, arguments, covers_of_home
from supervisor.sandbox.base import (
    DOOR_PORT,
    HOME,
    OnListeners,
    OnOutput,
    Spec,
    ToolResult,
)
from supervisor.sandbox.cgroups import Cgroup
from supervisor.sandbox.check_result import CheckResult
from supervisor.sandbox.host import DEVICES, HostSystem, devices_of_others, read_host
from supervisor.sandbox.limits import Watchdog, Watched, apply_rlimits
from supervisor.sandbox.namespaces import NSENTER, Namespaces, PortOpener
from supervisor.sandbox.program_listener import ProgramListener
from supervisor.sandbox.running import BubblewrapRunning, Capture, OutputBudget, result_of

BWRAP = "/usr/bin/bwrap"
START_S = 20.0
INFO_BYTES = 64 * 1024
# The gate reports that it is there, waits for a whole line (end of input is no line), gives up the
# socket and becomes the command.
GATE = 'echo >&0 && read -r _ && exec "$@" </dev/null'
# The same of one that is held: folder and text of its command come later, each ended by a NUL.
GATE_HELD = (
    'echo >&0 && IFS= read -r -d "" folder && IFS= read -r -d "" text && cd -- "$folder"'
    ' && exec /bin/bash -c "$text" </dev/null'
)
# With a terminal, that becomes the input and (setsid -c) the controlling terminal of a new session.
GATE_TTY = 'echo >&0 && read -r _ && exec setsid -c "$@" <&1'


class HeldSandbox:
    """Implements `base.Held`."""

    def __init__(self, running: BubblewrapRunning, out: Capture, err: Capture) -> None:
        self._running = running
        self._out = out
        self._err = err

    @property
    def is_over(self) -> bool:
        return self._running.is_over

    async def run(
        self, command: str, cwd: str, *, timeout_s: float, on_output: OnOutput, on_error: OnOutput
    ) -> ToolResult:
        running, gate = self._running, self._running.gate
        assert gate is not None
        running.gate = None
        self._out.told, self._err.told = on_output, on_error
        limit_s = timeout_s - running.paused_s  # what it was paused before isn't the command's
        with gate, contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it was killed
            await asyncio.get_running_loop().sock_sendall(
                gate, b"".join(os.fsencode(word) + b"\0" for word in (cwd, command))
            )
        return await result_of(running, self._out, self._err, limit_s)

    async def end(self) -> None:
        if self._running.gate is not None:
            self._running.gate.close()
            self._running.gate = None
        self._running.kill("it wasn't needed any more")
        await self._running.wait()
        for listener in self._running.listeners.values():
            listener.close()


class Bubblewrap:
    """Implements `base.Sandbox`. One object serves a supervisor's sandboxes, in one event loop.

    `runtime_dir` holds the small /etc (by default a temporary directory). The event loop's thread
    must outlive all others: the kernel kills a sandbox when the thread that started it ends
    (PR_SET_PDEATHSIG(2const)).
    """

    def __init__(self, runtime_dir: Path | None = None, *, bwrap: str = BWRAP) -> None:
        self.program = bwrap if Path(bwrap).exists() else shutil.which("bwrap", path=PATH)
        self._given_dir = runtime_dir
        self._dir: Path | None = None
        self._host: HostSystem | None = None
        self._opener = PortOpener()
        self._watchdog = Watchdog()
        self._running: set[BubblewrapRunning] = set()
        self._paused: set[Path] = set()

    def open(self) -> None:
        """Do nothing: there is nothing to prepare before the first sandbox."""

    async def start(
        self,
        spec: Spec,
        *,
        on_output: OnOutput,
        on_error: OnOutput | None = None,
        on_listeners: OnListeners | None = None,
        is_held: bool = False,
    ) -> BubblewrapRunning:
        spec = host_paths.resolved(spec)
        host = self._prepared()
        start = _Start(spec, self._opener, self._watchdog, is_held=is_held)
        bwrap, options = self.found(), arguments(spec, host, covers=host_paths.covers(spec))
        try:
            async with asyncio.timeout(START_S):
                running = await start.go(bwrap, options, on_output, on_error, on_listeners)
        except TimeoutError as error:
            await start.undo()
            raise SandboxError(
                f"the sandbox wasn't ready after {START_S:g} s", "see `gatehouse doctor`"
            ) from error
        except (OSError, UserError) as error:
            await start.undo()
            raise SandboxError(
                f"the sandbox can't be started: {error}", "see `gatehouse doctor`"
            ) from error
        except BaseException:
            await start.undo()
            raise
        running.copy = spec.workspace_merged.resolve()
        self._running = {one for one in self._running if not one.is_over} | {running}
        if running.copy in self._paused:
            running.pause()
        return running

    def pause(self, copy: Path) -> str:
        self._paused.add(copy.resolve())
        return next(iter([one.pause() for one in self._over(copy)]), "")

    def unpause(self, copy: Path) -> None:
        self._paused.discard(copy.resolve())
        for running in self._over(copy):
            running.unpause()

    def _over(self, copy: Path) -> list[BubblewrapRunning]:
        folder = copy.resolve()
        return [one for one in self._running if one.copy == folder and not one.is_over]

    async def run_tool(
        self,
        spec: Spec,
        *,
        timeout_s: float,
        on_listeners: OnListeners | None = None,
        last_bytes: int | None = None,
        on_output: OnOutput | None = None,
        on_error: OnOutput | None = None,
    ) -> ToolResult:
        out, err = Capture(last_bytes, on_output), Capture(last_bytes, on_error)
        running = await self.start(spec, on_output=out, on_error=err, on_listeners=on_listeners)
        return await result_of(running, out, err, timeout_s)

    async def hold(self, spec: Spec, *, on_listeners: OnListeners, last_bytes: int) -> HeldSandbox:
        out, err = Capture(last_bytes), Capture(last_bytes)
        running = await self.start(
            spec, on_output=out, on_error=err, on_listeners=on_listeners, is_held=True
        )
        return HeldSandbox(running, out, err)

    async def check(self) -> list[CheckResult]:
        from supervisor.sandbox import machine_checks  # a sandbox that works never needs it

        return await machine_checks.check(self, self.program)

    async def close(self) -> None:
        for running in self._running:
            if not running.is_over:
                running.kill("the supervisor stopped")
                await running.wait()
        self._running.clear()
        await self._opener.close()
        if self._dir is not None:
            shutil.rmtree(self._dir, ignore_errors=True)
        self._dir = self._host = None

    def found(self) -> str:
        """Return the program. Raise SandboxError where there is none."""
        if self.program is None:
            raise SandboxError(
                "bubblewrap isn't installed", "install it (Debian, Ubuntu: apt install bubblewrap)"
            )
        return self.program

    def _own_dir(self) -> Path:
        """Return a directory of this object's alone: another supervisor, or doctor, must not remove
        what ours have mounted."""
        prefix = "gatehouse-etc-"
        parent = self._given_dir or Path(tempfile.gettempdir())
        parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in parent.glob(f"{prefix}*"):
            maker = path.name.removeprefix(prefix).partition("-")[0]
            with contextlib.suppress(
                FileNotFoundError
            ):  # another one that starts takes it away, too
                if (
                    whole_number(maker) is not None
                    and not Path("/proc", maker).exists()
                    and path.lstat().st_uid == os.geteuid()
                ):
                    shutil.rmtree(path, ignore_errors=True)
        self._dir = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=parent))
        return self._dir

    def _prepared(self) -> HostSystem:
        if self._host is None:
            try:
                self._host = read_host(self._own_dir() / "etc")
                Cgroup.sweep()
            except OSError as error:
                raise SandboxError(
                    f"no place for the sandbox's /etc: {error}", "check the data directory"
                ) from error
        return self._host


class _Start:
    """One start, step by step. `undo` reverts whatever was done, at any point."""

    def __init__(
        self, spec: Spec, opener: PortOpener, watchdog: Watchdog, *, is_held: bool
    ) -> None:
        self._is_held = is_held
        self._spec = spec
        self._opener = opener
        self._watchdog = watchdog
        self._child: Child | None = None
        self._watched: Watched | None = None
        self._running: BubblewrapRunning | None = None
        self._outputs: list[int] = []
        self._info_fd = -1
        self._programs: ProgramListener | None = None
        self._listeners: dict[int, socket.socket] = {}
        self._keep = contextlib.ExitStack()  # what only the start needs

    async def go(
        self,
        bwrap: str,
        options: list[str],
        on_output: OnOutput,
        on_error: OnOutput | None,
        on_listeners: OnListeners | None,
    ) -> BubblewrapRunning:
        """Do all steps. After any exception the caller calls `undo`."""
        with self._keep:
            gate = await self._launch(bwrap, options, split=on_error is not None)
            init_pid, inodes = await self._introduce()
            self._listeners = await self._listen(init_pid, inodes)
            if await asyncio.get_running_loop().sock_recv(gate, 16) != b"\n":
                raise SandboxError(
                    f"bubblewrap gave up: {await self._complaint()}", "see `gatehouse doctor`"
                )
            await self._close_mounts(init_pid, inodes)
            await self._redirect(init_pid, inodes)
            assert self._running is not None
            self._running.listeners = self._listeners
            self._running.limits_in_force = self._bound(init_pid)
            if on_listeners is not None:
                await on_listeners(self._listeners)
                self._listeners = {}  # theirs to close from now on
            self._pump(on_output, on_error)
            if not self._is_held:
                await asyncio.get_running_loop().sock_sendall(gate, b"go\n")
            else:
                self._running.gate = gate.dup()
                self._running.gate.setblocking(False)
        return self._running

    async def undo(self) -> None:
        """Kill started processes and close opened descriptors."""
        if self._programs is not None:
            self._programs.close()
        for listener in self._listeners.values():
            listener.close()
        for descriptor in self._outputs:
            os.close(descriptor)
        self._outputs = []
        if self._child is not None:
            await self._child.end()
        if self._running is not None:
            self._running.kill("it couldn't be started")
            self._running.on_output_end()
            await self._running.wait()
        elif self._watched is not None:
            os.close(self._watched.init_fd)

    async def _launch(self, bwrap: str, options: list[str], *, split: bool) -> socket.socket:
        """Start bubblewrap with the gate. Return our end of the gate's socket."""
        gate, gate_inside = socket.socketpair()
        self._keep.enter_context(gate)
        gate.setblocking(False)
        with gate_inside, contextlib.ExitStack() as handed:
            self._info_fd, info = self._pipe(handed)
            self._keep.callback(os.close, self._info_fd)
            filters = [_memfd(handed, program) for program in seccomp.programs()]
            files = {
                f"{HOME}/{path}": _memfd(handed, text.encode())
                for path, text in self._spec.home_files.items()
            }
            options = [*options, "--info-fd", str(info)]
            options += [word for path, one in files.items() for word in ("--file", str(one), path)]
            options += [word for one in filters for word in ("--add-seccomp-fd", str(one))]
            # Passed by descriptor: the environment holds the session's token, and every user of the
            # host can read an argument list.
            listed = _memfd(handed, b"".join(os.fsencode(word) + b"\0" for word in options))
            out, err = self._output(handed, split=split)
            launcher, watched = self._watching(handed)
            shell = ["/bin/sh", "-c", GATE_TTY if self._spec.tty else GATE, "sh"]
            if self._is_held:
                shell = ["/bin/bash", "-c", GATE_HELD]
            argv = [bwrap, "--args", str(listed), "--", *shell]
            self._child = await spawn(
                [*_entering(self._spec), *argv, *launcher, *self._spec.command],
                env={},
                cwd="/",
                stdin=gate_inside.fileno(),
                stdout=out,
                stderr=err,
                pass_fds=[info, listed, *filters, *files.values(), *watched],
            )
        return gate

    def _watching(self, handed: contextlib.ExitStack) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Return the words that precede the command if each program is judged, and the descriptors
        that they name."""
        if self._spec.programs is None:
            return (), ()
        ours, theirs = socket.socketpair()
        handed.enter_context(theirs)
        self._programs = ProgramListener(ours, self._spec.programs.judge)
        watched = (theirs.fileno(), _memfd(handed, seccomp.asking_before_programs()))
        return (*self._spec.programs.launcher, *map(str, watched)), watched

    def _pipe(self, handed: contextlib.ExitStack) -> tuple[int, int]:
        ours, theirs = os.pipe()
        handed.callback(os.close, theirs)
        os.set_blocking(ours, False)
        return ours, theirs

    def _output(self, handed: contextlib.ExitStack, *, split: bool) -> tuple[int, int]:
        """Open standard output and error: a terminal, one pipe for both (in the order written), or
        two."""
        if self._spec.tty:
            master, slave = os.openpty()
            handed.callback(os.close, slave)
            self._outputs = [master]
            return slave, slave
        ours, out = self._pipe(handed)
        self._outputs = [ours]
        if not split:
            return out, out
        ours, err = self._pipe(handed)
        self._outputs.append(ours)
        return out, err

    async def _introduce(self) -> tuple[int, dict[str, int]]:
        """Return the sandbox's init as reported by bubblewrap, held by a pidfd from here on, and
        the inodes of its namespaces."""
        assert self._child is not None
        try:
            info = json.loads(await _read_all(self._info_fd))
            init_pid, inodes = (
                int(info["child-pid"]),
                {kind: int(info[f"{kind}-namespace"]) for kind in ("net", "mnt")},
            )
            init_fd = os.pidfd_open(init_pid)
        except (ValueError, KeyError, ProcessLookupError) as error:
            raise SandboxError(
                f"bubblewrap gave up: {await self._complaint()}", "see `gatehouse doctor`"
            ) from error
        self._watched = Watched(
            init_pid=init_pid,
            init_fd=init_fd,
            limits=self._spec.limits,
            cgroup=None,
            disk=self._spec.workspace_merged.parent,
        )
        # INVARIANT: the pidfd belongs to bubblewrap's own child: the child is looked up after the
        # pidfd was taken, and a listed child isn't reaped yet.
        if init_pid not in children(self._child.pid):
            raise SandboxError(
                f"bubblewrap gave up: {await self._complaint()}", "see `gatehouse doctor`"
            )
        budget = OutputBudget(self._spec.limits.output_bytes)
        self._running = BubblewrapRunning(self._child, self._watched, self._watchdog, budget)
        return init_pid, inodes

    async def _listen(self, init_pid: int, inodes: dict[str, int]) -> dict[int, socket.socket]:
        if not self._spec.ports and not self._spec.redirected:
            return {}
        with self._entered(init_pid, "net", inodes) as namespaces:
            return await self._opener.open(
                namespaces, self._spec.ports, redirected=self._spec.redirected
            )

    async def _redirect(self, init_pid: int, inodes: dict[str, int]) -> None:
        """Redirect every connection to the door. bubblewrap has set up the loopback interface by
        now, and nothing runs yet."""
        if self._spec.redirected:
            with self._entered(init_pid, "net", inodes) as namespaces:
                await self._opener.redirect(namespaces, self._listeners[DOOR_PORT])

    async def _close_mounts(self, init_pid: int, inodes: dict[str, int]) -> None:
        """Cover what is ours of the home (`session_home`), and keep the agent from changing device
        files in its /dev. It would own them there if the supervisor owns the host's, as root does,
        whatever its number in a user namespace.

        bubblewrap has no bind that is read-only and allows devices. Reading and writing the devices
        stays possible.
        """
        devices = DEVICES if len(devices_of_others()) < len(DEVICES) else ()
        covers = covers_of_home(self._spec)
        if devices or self._spec.home is not None:
            with self._entered(init_pid, "mnt", inodes) as namespaces:
                await self._opener.close_mounts(namespaces, devices, *covers)

    @contextlib.contextmanager
    def _entered(self, init_pid: int, kind: str, inodes: dict[str, int]) -> Iterator[Namespaces]:
        assert self._watched is not None
        namespaces = Namespaces.of(init_pid, self._watched.init_fd, kind, inodes[kind])
        try:
            yield namespaces
        finally:
            namespaces.close()

    def _bound(self, init_pid: int) -> tuple[str, ...]:
        """Set the bounds on the only two processes there are, init and the gate. Return the layers
        that hold them."""
        assert self._watched is not None
        limits = self._spec.limits
        inside = children(init_pid)
        if len(inside) != 1:
            raise SandboxError("the sandbox ended before it began", "see `gatehouse doctor`")
        apply_rlimits(inside[0], limits)
        name = secrets.token_hex(8)
        group = Cgroup.make(name, memory_bytes=limits.memory_bytes, processes=limits.processes)
        if group is not None:
            self._watched.cgroup = group
            group.add([init_pid, *inside])
        self._watchdog.watch(self._watched)
        return ("rlimits", "watchdog", *(group.layers if group is not None else ()))

    def _pump(self, on_output: OnOutput, on_error: OnOutput | None) -> None:
        assert self._running is not None
        self._running.master_fd = self._outputs[0] if self._spec.tty else None
        sinks = (on_output, on_error or on_output)
        self._running.attach(self._outputs, sinks)
        self._outputs = []

    async def _complaint(self) -> str:
        """Return bubblewrap's last message before it gave up."""
        assert self._child is not None
        self._child.kill_tree()
        code = await self._child.wait()
        text = b"".join(_read_now(descriptor) for descriptor in self._outputs).decode(
            errors="replace"
        )
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[-1] if lines else f"exit code {code}"


def _entering(spec: Spec) -> list[str]:
    """Return the words before bubblewrap's own that start it in the spec's namespaces, with the
    rights of an ordinary process.

    They name our own process's descriptors, not inherited ones, since none of those may stay open
    in the sandbox.
    """
    if spec.within is None:
        return []
    ours = f"/proc/{os.getpid()}/fd"
    user, mounts = spec.within
    return [
        NSENTER,
        "--preserve-credentials",
        f"--user={ours}/{user}",
        f"--mount={ours}/{mounts}",
        "--",
    ]


def _memfd(handed: contextlib.ExitStack, data: bytes) -> int:
    """Return a descriptor to read `data` from."""
    descriptor = os.memfd_create("gatehouse", os.MFD_CLOEXEC)
    handed.callback(os.close, descriptor)
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _read_now(descriptor: int) -> bytes:
    try:
        os.set_blocking(descriptor, False)
        return os.read(descriptor, INFO_BYTES)
    except OSError:
        return b""


async def _read_all(descriptor: int) -> bytes:
    """Read a non-blocking pipe to its end."""
    loop = asyncio.get_running_loop()
    data = bytearray()
    while True:
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(descriptor, _resolve, ready)
        try:
            await ready
        finally:
            loop.remove_reader(descriptor)
        block = os.read(descriptor, INFO_BYTES)
        if not block or len(data) > INFO_BYTES:
            return bytes(data)
        data += block


def _resolve(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)
