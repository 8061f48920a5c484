"""The compose backend: agent and commands run in two containers beside the supervisor's.

compose.yaml makes the containers and decides what they may do. This module only passes jobs to the
runner in each (agent_image/runner.py), by a socket on a volume that supervisor and container share.
A job's listening sockets are served from here, as in a bubblewrap sandbox, so neither container has
a network. `runner_link` checks what a runner sends.

Only one session and one command run at a time: each container has one loopback interface, and a
socket there must reach only one session or one command.
"""

import asyncio
import contextlib
import fcntl
import functools
import signal
import socket
import struct
import termios
from pathlib import Path
from typing import Literal

from supervisor.errors import SandboxError
from supervisor.sandbox.base import OnListeners, OnOutput, SandboxLimits, Spec, Stats, ToolResult
from supervisor.sandbox.check_result import CheckResult
from supervisor.sandbox.limits import DISK_INTERVAL_S, disk_is_full, missing_disk_bytes
from supervisor.sandbox.runner_link import SEE_LOG, RunnerLink, close_all, handed, job_of
from supervisor.sandbox.running import Capture, OutputBudget, Pump, result_of

type Container = Literal["agent", "tools"]
SIDES: tuple[Container, ...] = ("agent", "tools")
START_S = 20.0
# How long a runner may take to report the end of a killed job; then the connection is closed.
KILL_S = 10.0
# All writers have ended by then, so the rest of the output is ready to read.
DRAIN_S = 5.0
# Connections of one container: its runner has one, and a health check now and then.
MOST_LINKS = 8


class ComposeRunning:
    """Implements `base.Running`. It has no process number here: the process is in another
    container."""

    def __init__(self, side: Container, link: RunnerLink, budget: OutputBudget) -> None:
        self.pid = 0
        self.pid_started = 0
        self.listeners: dict[int, socket.socket] = {}
        self.limits_in_force: tuple[str, ...] = ("compose.yaml",)
        self.master_fd: int | None = None
        self.side = side
        self._link = link
        self._budget = budget
        self._pumps: list[Pump] = []
        self._output_ended = asyncio.Event()
        self._killed_why = ""
        self._paused_at: float | None = None
        self._paused_s = 0.0

    @property
    def killed_why(self) -> str:
        return self._killed_why

    @property
    def truncated(self) -> bool:
        return self._budget.truncated

    @property
    def is_over(self) -> bool:
        """Return whether nothing of it is left."""
        return self._link.is_over and self._output_ended.is_set()

    @property
    def paused_s(self) -> float:
        """Return how long it was paused so far, in seconds."""
        now = asyncio.get_running_loop().time()
        return self._paused_s + (0.0 if self._paused_at is None else now - self._paused_at)

    def attach(self, descriptors: list[int], sinks: list[OnOutput]) -> None:
        """Pass on the output of these descriptors, which are ours from here on."""
        self._pumps = [
            Pump(descriptor, self._budget, sink, self._on_output_end)
            for descriptor, sink in zip(descriptors, sinks, strict=True)
        ]

    def watch_disk(self, copy: Path, limits: SandboxLimits) -> None:
        """End it when the disk of its copy gets too full. The engine enforces the other bounds."""
        if self.is_over:
            return
        if why := disk_is_full(missing_disk_bytes(copy, limits)):
            self.kill(why)
        else:
            loop = asyncio.get_running_loop()
            loop.call_later(DISK_INTERVAL_S, self.watch_disk, copy, limits)

    def _on_output_end(self) -> None:
        if all(pump.descriptor < 0 for pump in self._pumps):
            self.master_fd = None
            self._output_ended.set()

    async def wait(self) -> int:
        code = await self._link.ended()
        if code is None:
            self._killed_why = self._killed_why or "its container stopped"
            self._drop_output()
            return 137
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await self._output_ended.wait()
        self._drop_output()
        return code

    def _drop_output(self) -> None:
        for pump in self._pumps:
            pump.close()
        self._on_output_end()

    def terminate(self) -> None:
        self._link.signal(signal.SIGTERM)

    def kill(self, why: str = "") -> None:
        self._killed_why = self._killed_why or why
        self._link.signal(signal.SIGKILL)
        asyncio.get_running_loop().call_later(KILL_S, self._link.close)

    def pause(self) -> str:
        if self._paused_at is None:
            self._paused_at = asyncio.get_running_loop().time()
        self._link.signal(signal.SIGSTOP)
        return "signals"

    def unpause(self) -> None:
        if self._paused_at is not None:
            self._paused_s += asyncio.get_running_loop().time() - self._paused_at
            self._paused_at = None
        self._link.signal(signal.SIGCONT)

    def resize(self, rows: int, columns: int) -> None:
        if self.master_fd is not None:
            size = struct.pack("HHHH", rows, columns, 0, 0)
            fcntl.ioctl(self.master_fd, termios.TIOCSWINSZ, size)

    def stats(self) -> Stats:
        """Return what is known here; the engine knows the rest (`docker stats`)."""
        return Stats(processes=0, memory_bytes=0, cpu_s=0.0, output_bytes=self._budget.seen_bytes)


class Compose:
    """Implements `base.Sandbox`. `control` is a folder with a volume for each container."""

    def __init__(self, control: Path) -> None:
        self._control = control
        self._doors: dict[Container, socket.socket] = {}
        self._idle: dict[Container, asyncio.Queue[RunnerLink]] = {}
        self._links: dict[Container, list[RunnerLink]] = {}
        self._running: set[ComposeRunning] = set()
        self._tool_turn = asyncio.Lock()
        self._is_paused = False

    def open(self) -> None:
        """Listen for runners, which connect by themselves, and reconnect."""
        for side in SIDES:
            if side in self._doors:
                continue
            path = self._control / side / "runner.sock"
            try:
                path.unlink(missing_ok=True)
                door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                door.bind(str(path))
                # The runner is another user; the folder keeps others out.
                path.chmod(0o666)
            except OSError as error:
                raise SandboxError(
                    f"no socket for the {side} container at {path}: {error.strerror}",
                    "start it by compose.yaml, which has the volume",
                ) from error
            door.listen(8)
            door.setblocking(False)
            self._doors[side] = door
            self._idle[side] = asyncio.Queue()
            self._links[side] = []
            asyncio.get_running_loop().add_reader(door, self._accept, side)

    async def start(
        self,
        spec: Spec,
        *,
        on_output: OnOutput,
        on_error: OnOutput | None = None,
        on_listeners: OnListeners | None = None,
    ) -> ComposeRunning:
        if any(one.side == "agent" and not one.is_over for one in self._running):
            raise SandboxError(
                "compose runs one session at a time", "wait for the other's end, or stop it"
            )
        return await self._start("agent", spec, on_output, on_error, on_listeners)

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
        async with self._tool_turn:
            running = await self._start("tools", spec, out, err, on_listeners)
            return await result_of(running, out, err, timeout_s)

    async def hold(self, spec: Spec, *, on_listeners: OnListeners, last_bytes: int) -> None:
        """Its containers run one job at a time: none can wait for its command."""

    def pause(self, copy: Path) -> str:
        self._is_paused = True
        return next(iter([one.pause() for one in self._alive()]), "")

    def unpause(self, copy: Path) -> None:
        self._is_paused = False
        for running in self._alive():
            running.unpause()

    async def check(self) -> list[CheckResult]:
        self.open()
        await asyncio.sleep(1.0)
        return [
            CheckResult(
                name=f"{side} container",
                ok=not self._idle[side].empty(),
                detail="it waits for work" if not self._idle[side].empty() else "it isn't there",
                remedy="" if not self._idle[side].empty() else f"docker compose up {side}",
            )
            for side in SIDES
        ]

    async def close(self) -> None:
        for running in self._alive():
            running.kill("the supervisor stopped")
            await running.wait()
        loop = asyncio.get_running_loop()
        for side, door in self._doors.items():
            loop.remove_reader(door)
            door.close()
            while not self._idle[side].empty():
                self._idle[side].get_nowait().close()
        self._doors.clear()

    # -- inside -----------------------------------------------------------------------------------

    def _alive(self) -> list[ComposeRunning]:
        self._running = {one for one in self._running if not one.is_over}
        return list(self._running)

    def _accept(self, side: Container) -> None:
        with contextlib.suppress(OSError):
            made, _ = self._doors[side].accept()
            links = [one for one in self._links[side] if not one.is_lost]
            if len(links) == MOST_LINKS:
                made.close()
            else:
                links.append(RunnerLink(made, functools.partial(self._on_hello, side)))
            self._links[side] = links

    def _on_hello(self, side: Container, link: RunnerLink) -> None:
        idle = self._idle[side]
        waiting = [idle.get_nowait() for _ in range(idle.qsize())]
        for one in (*(one for one in waiting if not one.is_lost), link):
            idle.put_nowait(one)

    async def _start(
        self,
        side: Container,
        spec: Spec,
        on_output: OnOutput,
        on_error: OnOutput | None,
        on_listeners: OnListeners | None,
    ) -> ComposeRunning:
        if spec.redirected:
            raise SandboxError(
                "compose has no transparent network", "choose GATEHOUSE_NETWORK=proxy"
            )
        self.open()
        link = await self._runner(side)
        outputs: list[int] = []
        listeners: dict[int, socket.socket] = {}
        try:
            async with asyncio.timeout(START_S):
                outputs, listeners = await handed(link, job_of(spec, on_error), spec)
            running = ComposeRunning(side, link, OutputBudget(spec.limits.output_bytes))
            running.listeners = listeners
            running.master_fd = outputs[0] if spec.tty else None
            if on_listeners is not None:
                await on_listeners(listeners)
        except BaseException as error:
            link.close()
            close_all(outputs, listeners)
            if isinstance(error, TimeoutError):
                raise SandboxError(
                    f"the {side} container didn't start the command within {START_S:g} s",
                    SEE_LOG,
                ) from error
            raise
        sinks = [on_output] if on_error is None or spec.tty else [on_output, on_error]
        running.attach(outputs, sinks)
        self._running.add(running)
        running.watch_disk(spec.workspace_merged, spec.limits)
        link.send({"go": True})
        if self._is_paused:
            running.pause()
        return running

    async def _runner(self, side: Container) -> RunnerLink:
        """Return a connection of a waiting runner. One that hung up meanwhile is skipped."""
        try:
            async with asyncio.timeout(START_S):
                while True:
                    link = await self._idle[side].get()
                    if not link.is_lost:
                        return link
        except TimeoutError as error:
            raise SandboxError(
                f"the {side} container isn't there",
                f"start it: docker compose up {side}, and look at its log",
            ) from error
