"""The compose backend: agent and commands run in two containers beside the supervisor's.

The containers are made by compose.yaml, which says what they may; this only hands jobs to the
runner in each (agent_image/runner.py), by a socket on a volume that supervisor and container share.
What a job's listening sockets hear is served from here, as in a bubblewrap sandbox, so neither
container has a network. It must never trust a runner with more than output: what it hands over is
checked.

One session at a time, and one command at a time: each container has one loopback interface, and
what a socket there may reach is one session's, or one command's.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import socket
import struct
import termios
from pathlib import Path
from typing import Any, Literal

import msgspec

from supervisor.errors import SandboxError
from supervisor.sandbox import seccomp
from supervisor.sandbox.base import (
    CA_BUNDLE,
    JAVA_STORE,
    OnListeners,
    OnOutput,
    Spec,
    Stats,
    ToolResult,
)
from supervisor.sandbox.findings import CheckResult
from supervisor.sandbox.running import Capture, OutputBudget, Pump, result_of

type Container = Literal["agent", "tools"]
SIDES: tuple[Container, ...] = ("agent", "tools")
START_S = 20.0
MOST_BYTES = 200_000
MOST_DESCRIPTORS = 16


class ComposeRunning:
    """See `base.Running`. It has no process number here: that is another container's."""

    def __init__(self, side: Container, link: "_Link", budget: OutputBudget) -> None:
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
        """See `base.Running`."""
        return self._killed_why

    @property
    def truncated(self) -> bool:
        """See `base.Running`."""
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

    def _on_output_end(self) -> None:
        if all(pump.descriptor < 0 for pump in self._pumps):
            self.master_fd = None
            self._output_ended.set()

    async def wait(self) -> int:
        """See `base.Running`."""
        code = await self._link.ended()
        if code is None:
            self._killed_why = self._killed_why or "its container stopped"
            for pump in self._pumps:
                pump.close()
            self._on_output_end()
            return 137
        await self._output_ended.wait()
        return code

    def terminate(self) -> None:
        """See `base.Running`."""
        self._link.signal(signal.SIGTERM)

    def kill(self, why: str = "") -> None:
        """See `base.Running`."""
        self._killed_why = self._killed_why or why
        self._link.signal(signal.SIGKILL)

    def pause(self) -> str:
        """See `base.Running`."""
        if self._paused_at is None:
            self._paused_at = asyncio.get_running_loop().time()
        self._link.signal(signal.SIGSTOP)
        return "signals"

    def unpause(self) -> None:
        """See `base.Running`."""
        if self._paused_at is not None:
            self._paused_s += asyncio.get_running_loop().time() - self._paused_at
            self._paused_at = None
        self._link.signal(signal.SIGCONT)

    def resize(self, rows: int, columns: int) -> None:
        """See `base.Running`."""
        if self.master_fd is not None:
            size = struct.pack("HHHH", rows, columns, 0, 0)
            fcntl.ioctl(self.master_fd, termios.TIOCSWINSZ, size)

    def stats(self) -> Stats:
        """See `base.Running`. The engine knows the rest (`docker stats`)."""
        return Stats(processes=0, memory_bytes=0, cpu_s=0.0, output_bytes=self._budget.seen_bytes)


class Compose:
    """The backend. `control` is a folder that has a volume for each container."""

    def __init__(self, control: Path) -> None:
        self._control = control
        self._doors: dict[Container, socket.socket] = {}
        self._idle: dict[Container, asyncio.Queue[_Link]] = {}
        self._running: set[ComposeRunning] = set()
        self._tool_turn = asyncio.Lock()
        self._is_paused = False

    def open(self) -> None:
        """See `base.Sandbox.open`. Runners come by themselves, and come again."""
        for side in SIDES:
            if side in self._doors:
                continue
            path = self._control / side / "runner.sock"
            try:
                path.unlink(missing_ok=True)
                door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                door.bind(str(path))
            except OSError as error:
                raise SandboxError(
                    f"no socket for the {side} container at {path}: {error.strerror}",
                    "start it by compose.yaml, which has the volume",
                ) from error
            door.listen(8)
            door.setblocking(False)
            self._doors[side] = door
            self._idle[side] = asyncio.Queue()
            asyncio.get_running_loop().add_reader(door, self._accept, side)

    async def start(
        self,
        spec: Spec,
        *,
        on_output: OnOutput,
        on_error: OnOutput | None = None,
        on_listeners: OnListeners | None = None,
    ) -> ComposeRunning:
        """See `base.Sandbox.start`."""
        if any(one.side == "agent" and not one.is_over for one in self._running):
            raise SandboxError(
                "compose runs one session at a time", "wait for the other's end, or stop it"
            )
        return await self._start("agent", spec, on_output, on_error, on_listeners)

    async def run_tool(
        self, spec: Spec, *, timeout_s: float, on_listeners: OnListeners | None = None
    ) -> ToolResult:
        """See `base.Sandbox.run_tool`."""
        out, err = Capture(), Capture()
        async with self._tool_turn:
            running = await self._start("tools", spec, out, err, on_listeners)
            return await result_of(running, out, err, timeout_s)

    def pause(self, copy: Path) -> str:
        """See `base.Sandbox.pause`."""
        self._is_paused = True
        return next(iter([one.pause() for one in self._alive()]), "")

    def unpause(self, copy: Path) -> None:
        """See `base.Sandbox.unpause`."""
        self._is_paused = False
        for running in self._alive():
            running.unpause()

    async def check(self) -> list[CheckResult]:
        """See `base.Sandbox.check`."""
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
        """See `base.Sandbox.close`."""
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
            _Link(made, self._idle[side].put_nowait)

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
        try:
            async with asyncio.timeout(START_S):
                outputs, listeners = await _handed(link, _job(side, spec, on_error), spec)
            running = ComposeRunning(side, link, OutputBudget(spec.limits.output_bytes))
            running.listeners = listeners
            running.master_fd = outputs[0] if spec.tty else None
            if on_listeners is not None:
                await on_listeners(listeners)
        except TimeoutError as error:
            link.close()
            raise SandboxError(
                f"the {side} container didn't start the command within {START_S:g} s",
                "look at its log: docker compose logs",
            ) from error
        except BaseException:
            link.close()
            raise
        sinks = [on_output] if on_error is None or spec.tty else [on_output, on_error]
        running.attach(outputs, sinks)
        self._running.add(running)
        link.send({"go": True})
        if self._is_paused:
            running.pause()
        return running

    async def _runner(self, side: Container) -> "_Link":
        """Return a connection of a runner that waits; one that hung up meanwhile is passed over."""
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


class _Link:
    """A runner's connection. `on_hello` is called once it says that it waits for a job."""

    def __init__(self, sock: socket.socket, on_hello: Any) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._on_hello = on_hello
        self._news: asyncio.Queue[tuple[dict[str, Any], list[int]] | None] = asyncio.Queue()
        self._over = asyncio.Event()
        self.exit_code: int | None = None
        self.is_lost = False
        asyncio.get_running_loop().add_reader(sock, self._read)

    def send(self, message: dict[str, Any], descriptors: list[int] | None = None) -> None:
        """Send one message. A runner that is gone is noticed by its end."""
        with contextlib.suppress(OSError):
            socket.send_fds(self._sock, [json.dumps(message).encode()], descriptors or [])

    def signal(self, number: signal.Signals) -> None:
        """Have the runner send a signal to all of the job."""
        if not self.is_lost and self.exit_code is None:
            self.send({"signal": int(number)})

    async def news(self) -> tuple[dict[str, Any], list[int]]:
        """Return the next message and its descriptors; SandboxError where the runner is gone."""
        found = await self._news.get()
        if found is None:
            raise SandboxError("the container stopped", "look at its log: docker compose logs")
        return found

    async def ended(self) -> int | None:
        """Wait for the job's end; its exit code, None where the runner is gone without one."""
        await self._over.wait()
        return self.exit_code

    @property
    def is_over(self) -> bool:
        """Return whether the job has ended, or its runner is gone."""
        return self._over.is_set()

    def close(self) -> None:
        """Hang up: the runner ends what it runs."""
        if not self.is_lost:
            self.is_lost = True
            asyncio.get_running_loop().remove_reader(self._sock)
            self._sock.close()
            self._over.set()
            self._news.put_nowait(None)

    def _read(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._sock, MOST_BYTES, MOST_DESCRIPTORS)
            message = json.loads(data) if data else None
        except BlockingIOError:
            return
        except (OSError, ValueError):
            message, descriptors = None, []
        if not isinstance(message, dict):
            self.close()
        elif message.get("hello"):
            self._on_hello(self)
        elif isinstance(message.get("exit"), int):
            self.exit_code = message["exit"]
            self._over.set()
            self.close()
        else:
            self._news.put_nowait((message, descriptors))


def _job(side: Container, spec: Spec, on_error: OnOutput | None) -> dict[str, Any]:
    return {
        "command": spec.command,
        "env": spec.env,
        "cwd": spec.cwd,
        "tty": spec.tty,
        "split": on_error is not None and not spec.tty,
        "ports": spec.ports,
        "home": spec.home_files,
        "is_agent": side == "agent",
        "files": [inside for _, inside in _files(spec)],
    }


def _files(spec: Spec) -> list[tuple[Path, str]]:
    """Return the files of the host that a job needs, with their places. Folders (Python, the
    agent's program) are in the image."""
    trusted = ((spec.ca_bundle, CA_BUNDLE), (spec.java_store, JAVA_STORE))
    found = [(file, inside) for file, inside in trusted if file is not None]
    return found + [(one, inside) for one, inside in spec.readonly_binds if one.is_file()]


def _memfd(opened: contextlib.ExitStack, data: bytes) -> int:
    descriptor = os.memfd_create("filter", os.MFD_CLOEXEC)
    opened.callback(os.close, descriptor)
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


async def _handed(
    link: _Link, job: dict[str, Any], spec: Spec
) -> tuple[list[int], dict[int, socket.socket]]:
    """Hand a job over, and take what the runner hands over for it: outputs and listening
    sockets, checked."""
    with contextlib.ExitStack() as opened:
        files = [opened.enter_context(file.open("rb")).fileno() for file, _ in _files(spec)]
        # The same as in a bubblewrap sandbox, above what the engine forbids: no socket that lies in
        # the workspace can be reached.
        files += [_memfd(opened, program) for program in seccomp.programs()]
        if len(msgspec.json.encode({"start": job})) > MOST_BYTES:
            raise SandboxError("the command is too long for a container", "use a shorter one")
        link.send({"start": job}, files)
        message, descriptors = await link.news()
    count = 2 if job["split"] else 1
    if "error" in message or len(descriptors) != count + len(spec.ports):
        for one in descriptors:
            os.close(one)
        raise SandboxError(
            f"the container can't start it: {message.get('error', 'it handed over too little')}",
            "look at its log: docker compose logs",
        )
    listeners = {}
    for port, descriptor in zip(spec.ports, descriptors[count:], strict=True):
        listener = socket.socket(fileno=descriptor)
        listener.setblocking(False)
        listeners[port] = listener
        # INVARIANT: what is served is a listening socket on a loopback interface, and nothing else
        # that a container may hand over.
        is_listening = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        if listener.family != socket.AF_INET or not is_listening:
            raise SandboxError("the container handed over no listening socket", "restart it")
    return descriptors[:count], listeners
