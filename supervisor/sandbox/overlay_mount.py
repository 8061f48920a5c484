"""Overlay over the workspace, mounted where only one sandbox sees it.

It makes a private copy without copying. `Preparing` is the helper (`overlay_mounter.py`) waiting in
namespaces of its own; `OverlayMount` is its result. It must never leave a mount in the host's own
tree, or one that outlives the supervisor: only our descriptors keep it.
"""

import asyncio
import contextlib
import json
import os
import socket
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from supervisor.base.process import Child, run, spawn
from supervisor.errors import SandboxError
from supervisor.sandbox.check_result import CheckResult, bad
from supervisor.sandbox.namespaces import readable
from supervisor.settings import for_our_python

HELPER = Path(__file__).with_name("overlay_mounter.py")
ANSWER_S = 10.0
ANSWER_BYTES = 4096
# The session's folders for its overlay. `upper` and `work` must be on one file system, and below no
# folder that is shown.
FOLDERS = ("lower", "upper", "work", "merged")
REMEDY = "use `--copy=copy`, or see `gatehouse doctor`"


class OverlayMount:
    """A mounted overlay: the namespaces to start a sandbox in, and the folder mounted there at
    `place`. Call `close` when done.

    The mount disappears when these descriptors are closed and no sandbox is left in it.
    """

    def __init__(self, place: Path, user_fd: int, mount_fd: int, merged_fd: int) -> None:
        self.place = place
        self.user_fd = user_fd
        self.mount_fd = mount_fd
        self.merged_fd = merged_fd

    async def refresh(self) -> None:
        """Make the kernel drop its unused caches of the view, by remounting it in place. Raise
        SandboxError.

        It caches look-ups, and folders that the host has deleted or replaced since; remounting
        makes it look again.
        """
        fds = [self.user_fd, self.mount_fd]
        argv = [sys.executable, "-I", "-S", str(HELPER), *map(str, fds), str(self.place)]
        done = await run(argv, env=for_our_python(), cwd="/", timeout_s=ANSWER_S, pass_fds=fds)
        if not done.ok:
            why = done.stderr.decode(errors="replace").strip() or "no answer"
            raise SandboxError(f"the overlay can't be refreshed: {why}", REMEDY)

    def close(self) -> None:
        """Close the descriptors. May be called twice."""
        for fd in (self.merged_fd, self.mount_fd, self.user_fd):
            if fd >= 0:
                os.close(fd)
        self.user_fd = self.mount_fd = self.merged_fd = -1


class Preparing:
    """The helper, started ahead of its one use. The upper folder is prepared while it starts."""

    def __init__(self, child: Child, channel: socket.socket) -> None:
        self._child = child
        self._channel = channel

    @classmethod
    async def start(cls) -> Self:
        """Start the helper."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            ours.setblocking(False)
            argv = [sys.executable, "-I", "-S", str(HELPER), str(theirs.fileno())]
            try:
                child = await spawn(argv, env=for_our_python(), cwd="/", pass_fds=[theirs.fileno()])
            except BaseException:
                ours.close()
                raise
        return cls(child, ours)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._channel.close()
        await self._child.end()

    async def mount(self, lower: Path, folder: Path) -> OverlayMount:
        """Mount `folder/upper` over `lower` at `folder/merged`. Raise SandboxError with the step
        that the kernel refused."""
        status = await asyncio.to_thread(lower.stat)
        request = {
            "lower": str(lower),
            "identity": [status.st_dev, status.st_ino],
            "folder": str(folder),
        }
        try:
            async with asyncio.timeout(ANSWER_S):
                self._channel.send(json.dumps(request).encode())
                await readable(self._channel)
                data, fds, flags, _ = socket.recv_fds(
                    self._channel, ANSWER_BYTES, len(FOLDERS), socket.MSG_CMSG_CLOEXEC
                )
        except (OSError, TimeoutError) as error:
            raise SandboxError(
                f"the overlay can't be mounted: {error or 'no answer'}", REMEDY
            ) from error
        answer = json.loads(data) if data else {"error": "the helper ended", "step": "prepare"}
        if answer["error"] is not None or len(fds) != 3 or flags & socket.MSG_CTRUNC:
            for fd in fds:
                os.close(fd)
            raise SandboxError(
                f"the overlay can't be mounted: {answer.get('step', 'answer')}: {answer['error']}",
                REMEDY,
            )
        return OverlayMount(folder / "merged", *fds)


async def mount_overlay(lower: Path, folder: Path) -> OverlayMount:
    """Start the helper and mount, in one go."""
    async with await Preparing.start() as preparing:
        return await preparing.mount(lower, folder)


async def check(place: Path) -> CheckResult:
    """Check for doctor whether an overlay can be mounted with its upper folder below `place`, and
    works as it must."""
    name = "overlay"
    try:
        with tempfile.TemporaryDirectory(prefix="gatehouse-overlay-", dir=place) as made:
            why = await _trial(Path(made))
    except OSError as error:
        why = f"`{place}` can't be written: {error.strerror}"
    if not why:
        return CheckResult(
            name=name,
            ok=True,
            detail="can be mounted: large workspaces are ready at once",
            needed=False,
        )
    remedy = (
        "use Linux 5.12 or later, user namespaces without restrictions and a data folder on ext4,"
        " XFS, Btrfs or tmpfs"
    )
    return bad(name, f"{why}; every private copy is copied", remedy, needed=False)


async def _trial(folder: Path) -> str:
    for name in FOLDERS:
        (folder / name).mkdir()
    source = folder / "source"
    source.mkdir()
    (source / "file").write_text("before")
    (source / "sub").mkdir()
    try:
        mounted = await mount_overlay(source, folder)
    except SandboxError as error:
        return error.message
    try:
        await asyncio.to_thread(_write_and_remove, mounted.merged_fd)
        await asyncio.to_thread(_replace, source / "sub", mounted.merged_fd)
        await mounted.refresh()
        if os.listdir(os.path.join(f"/proc/self/fd/{mounted.merged_fd}", "sub")) != ["new"]:  # noqa: PTH118, PTH208
            return "an overlay was mounted, but doesn't show a folder that was replaced"
        if (source / "file").read_text() != "before" or os.listdir(folder / "merged"):  # noqa: PTH208  # a path of our own
            return "an overlay was mounted, but isn't private"
        return ""
    except SandboxError as error:
        return error.message
    except OSError as error:
        return f"an overlay was mounted, but can't be written: {error.strerror}"
    finally:
        mounted.close()
        make_removable(folder)


def _write_and_remove(merged_fd: int) -> None:
    fd = os.open(
        "made", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=merged_fd
    )
    os.close(fd)
    os.unlink("file", dir_fd=merged_fd)


def _replace(folder: Path, merged_fd: int) -> None:
    """Make the kernel cache a folder of the host's, then replace the folder, as a branch switch
    does."""
    os.close(os.open("sub", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=merged_fd))
    folder.rmdir()
    folder.mkdir()
    (folder / "new").touch()


def make_removable(folder: Path) -> None:
    """Make the kernel's folder in `work` removable: it has no permissions at all, so give some to
    its owner."""
    with contextlib.suppress(OSError):
        (folder / "work" / "work").chmod(0o700)
