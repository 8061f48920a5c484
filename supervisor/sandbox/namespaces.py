"""Open listening sockets inside a sandbox's network, from outside.

Nothing of ours has to run in the sandbox. A socket always belongs to the network namespace that it
was made in. So a helper (`port_opener.py`) enters the namespace, listens, and passes the descriptor
back. Its holder then accepts the sandbox's connections, and knows by the socket which session they
come from. It must never open a socket in a namespace that isn't proven to be the sandbox's: a
mistake here would listen on the host.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import select
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from supervisor.base.process import Child, spawn
from supervisor.errors import SandboxError
from supervisor.sandbox.base import DOOR_PORT, NAMES_PORT
from supervisor.sandbox.redirect import steps
from supervisor.settings import for_our_python

NSENTER = "/usr/bin/nsenter"  # util-linux, as `setsid`
HELPER = Path(__file__).with_name("port_opener.py")
# linux/nsfs.h: the user namespace that owns a namespace. The process's own user namespace may be
# nested below it.
NS_GET_USERNS = 0xB701
ANSWER_S = 10.0
ANSWER_BYTES = 4096
MAX_PORTS = 32


class Namespaces:
    """One namespace of a sandbox (`net` or `mnt`) and the user namespace that owns it, held open.
    Call `close` when done."""

    def __init__(self, user_fd: int, fd: int) -> None:
        self.user_fd = user_fd
        self.fd = fd

    @classmethod
    def of(cls, pid: int, pidfd: int, kind: str, inode: int) -> "Namespaces":
        """Return the namespaces of a live process. `inode` is what bubblewrap reported for this
        namespace. Raise SandboxError."""
        try:
            fd = os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise SandboxError(
                f"the sandbox can't be entered: {error}", "see `gatehouse doctor`"
            ) from error
        try:
            found = os.fstat(fd).st_ino
            # INVARIANT: the namespace is the sandbox's own. The process still lives, so its number
            # is still its own, and this is the namespace that bubblewrap made for it, not the
            # supervisor's.
            if (
                _has_ended(pidfd)
                or found != inode
                or found == Path(f"/proc/self/ns/{kind}").stat().st_ino
            ):
                raise SandboxError("the sandbox ended, or isn't one", "see `gatehouse doctor`")
            user_fd = fcntl.ioctl(fd, NS_GET_USERNS)
        except OSError as error:
            os.close(fd)
            raise SandboxError(
                f"the sandbox has no owner to enter: {error}", "use Linux 4.9 or later"
            ) from error
        except BaseException:
            os.close(fd)
            raise
        os.set_inheritable(user_fd, False)
        return cls(user_fd, fd)

    def close(self) -> None:
        """Close both descriptors."""
        for descriptor in (self.user_fd, self.fd):
            with contextlib.suppress(OSError):
                os.close(descriptor)


class PortOpener:
    """The helper process, started when first needed and again when it has died."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._child: Child | None = None
        self._channel: socket.socket | None = None

    async def open(
        self, namespaces: Namespaces, ports: Sequence[int], *, redirected: bool = False
    ) -> dict[int, socket.socket]:
        """Return listening, non-blocking sockets on 127.0.0.1 inside, by port. Raise SandboxError;
        then none is left open.

        `redirected`: the door and the socket for names, too; `redirect` leads connections there.
        """
        if (
            len(ports) > MAX_PORTS
            or len(set(ports)) != len(ports)
            or not all(0 < port < 65536 for port in ports)
        ):
            raise SandboxError(
                f"can't listen on `{list(ports)}`", f"name up to {MAX_PORTS} different ports"
            )
        door, names = (DOOR_PORT, NAMES_PORT) if redirected else (None, None)
        opened = [*ports, *([DOOR_PORT, NAMES_PORT] if redirected else [])]
        request: dict[str, object] = {"ports": list(ports), "door": door, "names": names}
        listeners = await self._asked(namespaces, request, len(opened))
        return dict(zip(opened, listeners, strict=True))

    async def redirect(self, namespaces: Namespaces, door: socket.socket) -> None:
        """Redirect every TCP connection inside to its door, and prove it. Raise SandboxError; then
        it isn't to be relied on."""
        await self._asked(namespaces, {"redirect": steps(DOOR_PORT)}, 0, door.fileno())

    async def close_mounts(
        self,
        namespaces: Namespaces,
        paths: Sequence[str],
        own: Sequence[str] = (),
        closed: Sequence[str] = (),
        links: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Make mounts inside read-only, and cover paths below the home (`Covers`). Raise
        SandboxError."""
        lists = {"read_only": [*paths], "own": [*own], "closed": [*closed]}
        await self._asked(namespaces, {**lists, "links": [*links]}, 0)

    async def _asked(
        self, namespaces: Namespaces, request: dict[str, object], count: int, *more_fds: int
    ) -> list[socket.socket]:
        """Send one request at a time. Return the `count` sockets of its answer."""
        async with self._lock:
            try:
                async with asyncio.timeout(ANSWER_S):
                    return await self._ask(
                        namespaces, json.dumps(request).encode(), count, more_fds
                    )
            except (OSError, TimeoutError) as error:
                self._stop()
                raise SandboxError(
                    f"the socket helper failed: {error or 'no answer'}", "start the session again"
                ) from error
            except asyncio.CancelledError:
                # A late answer must not be taken for the next one's.
                self._stop()
                raise

    async def start(self) -> None:
        """Start the helper ahead of its first use."""
        async with self._lock:
            await self._started()

    async def close(self) -> None:
        """End the helper."""
        async with self._lock:
            child = self._child
            self._stop()
            if child is not None:
                await child.end()

    async def _started(self) -> socket.socket:
        if self._channel is not None and self._child is not None and self._child.returncode is None:
            return self._channel
        self._stop()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            ours.setblocking(False)
            argv = [sys.executable, "-I", "-S", str(HELPER), str(theirs.fileno())]
            try:
                self._child = await spawn(
                    argv, env=for_our_python(), cwd="/", pass_fds=[theirs.fileno()]
                )
            except BaseException:
                ours.close()
                raise
        self._channel = ours
        return ours

    async def _ask(
        self, namespaces: Namespaces, request: bytes, count: int, more_fds: Sequence[int]
    ) -> list[socket.socket]:
        channel = await self._started()
        socket.send_fds(channel, [request], [namespaces.user_fd, namespaces.fd, *more_fds])
        await readable(channel)
        answer, descriptors, flags, _ = socket.recv_fds(
            channel, ANSWER_BYTES, MAX_PORTS, socket.MSG_CMSG_CLOEXEC
        )
        listeners = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        why = "the helper ended" if not answer else json.loads(answer)["error"]
        if why is not None or flags & socket.MSG_CTRUNC or len(listeners) != count:
            for listener in listeners:
                listener.close()
            raise SandboxError(
                f"the sandbox can't be set up from outside: {why}", "see `gatehouse doctor`"
            )
        for listener in listeners:
            listener.setblocking(False)
        return listeners

    def _stop(self) -> None:
        if self._channel is not None:
            self._channel.close()
        if self._child is not None:
            self._child.close()
        self._channel = self._child = None


def _has_ended(pidfd: int) -> bool:
    return bool(select.select([pidfd], [], [], 0)[0])


async def readable(channel: socket.socket) -> None:
    """Wait until a non-blocking socket has something to read."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def arrived() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(channel, arrived)
    try:
        await ready
    finally:
        loop.remove_reader(channel)
