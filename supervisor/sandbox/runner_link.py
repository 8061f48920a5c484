"""A runner's connection in the compose backend, and the messages on it.

Containers run an agent's code, so it must never trust a runner with more than output. Messages are
bounded, a message out of turn ends the connection, and every received descriptor was requested, or
is closed.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from supervisor.errors import SandboxError
from supervisor.sandbox import seccomp
from supervisor.sandbox.base import OnOutput, Spec, files_in_etc

MOST_BYTES = 200_000
MOST_SAID_BYTES = 16 * 1024
MOST_DESCRIPTORS = 16
MOST_WHY = 500
SEE_LOG = "look at its log: docker compose logs"
# Linux' Documentation/admin-guide/devices.txt: /dev/ptmx, the device of a terminal's master.
PTMX = os.makedev(5, 2)


class _Said(msgspec.Struct, forbid_unknown_fields=True):
    """A runner's possible messages, one at a time."""

    hello: int = 0
    ready: Annotated[list[int], msgspec.Meta(max_length=MOST_DESCRIPTORS)] | None = None
    error: str = ""
    exit: Annotated[int, msgspec.Meta(ge=0, le=255)] | None = None


_SAID = msgspec.json.Decoder(_Said)


class RunnerLink:
    """A runner's connection. `on_hello` is called once the runner waits for a job.

    INVARIANT: a message out of turn, or with unrequested descriptors, ends the connection, and
    every descriptor is taken by somebody or closed.
    """

    def __init__(self, sock: socket.socket, on_hello: Callable[["RunnerLink"], None]) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._on_hello: Callable[[RunnerLink], None] | None = on_hello
        self._news: asyncio.Future[tuple[_Said, list[int]]] | None = None
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

    async def answer(self, message: dict[str, Any], files: list[int]) -> tuple[_Said, list[int]]:
        """Send a job. Return its answer with its descriptors. Raise SandboxError where the runner
        is gone."""
        news: asyncio.Future[tuple[_Said, list[int]]]
        news = self._news = asyncio.get_running_loop().create_future()
        if self.is_lost:
            self._lose()
        else:
            self.send(message, files)
        try:
            return await news
        finally:
            self._news = None

    async def ended(self) -> int | None:
        """Wait for the job's end. Return its exit code, or None where the runner is gone without
        one."""
        await self._over.wait()
        return self.exit_code

    @property
    def is_over(self) -> bool:
        """Return whether the job has ended, or its runner is gone."""
        return self._over.is_set()

    def close(self) -> None:
        """Hang up; the runner then ends what it runs."""
        if not self.is_lost:
            self.is_lost = True
            asyncio.get_running_loop().remove_reader(self._sock)
            self._sock.close()
            self._over.set()
            self._lose()

    def _lose(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_exception(SandboxError("the container stopped", SEE_LOG))

    def _read(self) -> None:
        descriptors: list[int] = []
        try:
            data, descriptors, _, _ = socket.recv_fds(self._sock, MOST_SAID_BYTES, MOST_DESCRIPTORS)
            if not self._take(_SAID.decode(data), descriptors):
                close_all(descriptors)
                self.close()
        except BlockingIOError:
            return
        except (OSError, ValueError, msgspec.MsgspecError, RecursionError):
            close_all(descriptors)
            self.close()

    def _take(self, said: _Said, descriptors: list[int]) -> bool:
        """Handle a message. Return False where it is out of turn, or the last one."""
        if self._news is not None and not self._news.done() and said.exit is None:
            self._news.set_result((said, descriptors))
            return True
        if self._on_hello is not None and said.hello and not descriptors:
            on_hello, self._on_hello = self._on_hello, None
            on_hello(self)
            return True
        self.exit_code = said.exit
        return False


def job_of(spec: Spec, on_error: OnOutput | None) -> dict[str, Any]:
    return {
        "command": spec.command,
        "env": spec.env,
        "cwd": spec.cwd,
        "tty": spec.tty,
        "split": on_error is not None and not spec.tty,
        "ports": spec.ports,
        "home": spec.home_files,
        "files": [inside for _, inside in _files(spec)],
    }


def _files(spec: Spec) -> list[tuple[Path, str]]:
    """Return the host files that a job needs, with their places. Folders (Python, the agent's
    program) are in the image."""
    return files_in_etc(spec) + [
        (one, inside) for one, inside in spec.readonly_binds if one.is_file()
    ]


def _memfd(opened: contextlib.ExitStack, data: bytes) -> int:
    descriptor = os.memfd_create("filter", os.MFD_CLOEXEC)
    opened.callback(os.close, descriptor)
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


async def handed(
    link: RunnerLink, job: dict[str, Any], spec: Spec
) -> tuple[list[int], dict[int, socket.socket]]:
    """Hand a job over, and take the outputs and listening sockets that the runner hands over for
    it, checked."""
    with contextlib.ExitStack() as opened:
        files = [opened.enter_context(file.open("rb")).fileno() for file, _ in _files(spec)]
        # The same filters as in a bubblewrap sandbox, in addition to the engine's: no socket in the
        # workspace can be reached.
        files += [_memfd(opened, program) for program in seccomp.programs()]
        if len(msgspec.json.encode({"start": job})) > MOST_BYTES:
            raise SandboxError("the command is too long for a container", "use a shorter one")
        said, descriptors = await link.answer({"start": job}, files)
    listeners: dict[int, socket.socket] = {}
    count = 2 if job["split"] else 1
    try:
        if said.ready is None or len(descriptors) != count + len(spec.ports):
            why = said.error[:MOST_WHY] or "it handed over something else"
            raise SandboxError(f"the container can't start it: {why}", SEE_LOG)
        for output in descriptors[:count]:
            _check_output(output, is_terminal=spec.tty)
        for port, descriptor in zip(spec.ports, descriptors[count:], strict=True):
            listeners[port] = _listener(descriptor, port)
    except BaseException:
        for one in listeners.values():
            one.detach()
        close_all(descriptors)
        raise
    return descriptors[:count], listeners


def _check_output(descriptor: int, *, is_terminal: bool) -> None:
    status = os.fstat(descriptor)
    if is_terminal:
        is_right = stat.S_ISCHR(status.st_mode) and status.st_rdev == PTMX
    else:
        is_right = stat.S_ISFIFO(status.st_mode)
    if not is_right:
        raise SandboxError("the container handed over no output", SEE_LOG)


def _listener(descriptor: int, port: int) -> socket.socket:
    """INVARIANT: only a listening socket on a loopback interface is served, and nothing else that a
    container may hand over."""
    is_right = stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    if is_right:
        made = socket.socket(fileno=descriptor)
        is_right = (made.family, made.type) == (socket.AF_INET, socket.SOCK_STREAM)
        is_right = is_right and made.getsockname() == ("127.0.0.1", port)
        is_right = is_right and bool(made.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
        if is_right:
            made.setblocking(False)
            return made
        made.detach()
    raise SandboxError("the container handed over no listening socket", SEE_LOG)


def close_all(descriptors: Iterable[int], listeners: Mapping[int, socket.socket] = {}) -> None:
    for one in descriptors:
        os.close(one)
    for listener in listeners.values():
        listener.close()
