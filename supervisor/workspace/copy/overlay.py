"""Prepare the private copy as an overlay over the host's folder.

The host's folder shines through, and the agent's changes go to the session's folder. This decides
what the agent must not see although it could shine through, and hides it before the mount (a
whiteout in the upper folder): what the ignore files leave out of a copy, the supervisor's own data,
and every `.git`, which is replaced by a repository of the agent's own as in a copy. Its objects are
borrowed from the read-only workspace as `git clone --shared` does; where that isn't possible, they
are copied.

It is separate from `snapshot`, which copies. It must never read the whole tree's contents, nor
let a path be seen that a copy would not have.
"""

import asyncio
import contextlib
import os
import shutil
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from supervisor.errors import SandboxError, StorageError
from supervisor.sandbox.base import LOWER
from supervisor.sandbox.overlay_mount import (
    FOLDERS,
    REMEDY,
    OverlayMount,
    Preparing,
    make_removable,
)
from supervisor.workspace.copy import git_copy
from supervisor.workspace.copy.contents import grouped
from supervisor.workspace.copy.copy_pool import CopyFolders, copy_all, pieces
from supervisor.workspace.copy.overlay_plan import Plan, look_over
from supervisor.workspace.copy.snapshot import readable
from supervisor.workspace.disk.beneath import DIRECTORY, Root
from supervisor.workspace.disk.file_systems import why_unfit
from supervisor.workspace.disk.git_files import hide
from supervisor.workspace.disk.overlay_changes import OPAQUE, UPPER
from supervisor.workspace.trees.journal import write_baseline
from supervisor.workspace.trees.overlay_facts import OverlayFacts, write_facts

# A change time is a tick of the kernel's clock old at most: 10 ms at its slowest (CONFIG_HZ=100).
TICK_S = 0.002
MOST_TICKS = 50


class MadeOverlay(NamedTuple):
    """`notes` are lines for the person."""

    mount: OverlayMount
    notes: tuple[str, ...]


async def make_overlay(
    workspace: Path,
    folder: Path,
    *,
    exclude: Sequence[Path] = (),
    include_ignored: bool = False,
    at_least: int = 0,
) -> MadeOverlay | None:
    """Make the session's folder ready and mount; None where the workspace has fewer files than
    `at_least`.

    Raises SandboxError where this workspace can't be shown by an overlay or the kernel refuses,
    UserError and StorageError as `make_copy`; nothing is left behind then, nor after None, and a
    copy can be made instead.
    """
    workspace = await asyncio.to_thread(readable, workspace)
    host = Root(workspace, out_of_bounds=exclude)
    mount: OverlayMount | None = None
    try:
        async with await Preparing.start() as preparing:  # it starts up while we look
            start_ns = await _start(folder)
            plan = await look_over(host, exclude, include_ignored=include_ignored)
            if plan.files >= at_least:
                notes = await _prepare(host, folder, plan)
                facts = _facts(start_ns, plan, include_ignored=include_ignored)
                await asyncio.to_thread(_write_down, folder, facts)
                mount = await preparing.mount(workspace, folder)
        if mount is not None:
            return MadeOverlay(mount, tuple(notes))
    except OSError as error:
        await asyncio.to_thread(clear, folder)
        raise StorageError(
            f"can't make the overlay: {error.strerror}", "make room in the data folder"
        ) from error
    except BaseException:
        if mount is not None:
            mount.close()
        clear(folder)
        raise
    finally:
        host.close()
    await asyncio.to_thread(clear, folder)
    return None


async def _start(folder: Path) -> int:
    """Make the folders; a change time that every change on the host from now on has at least,
    and none before had."""
    for name in FOLDERS:
        (folder / name).mkdir(mode=0o700, parents=True)
    mark = folder / "work" / "start"
    mark.touch()
    first = mark.stat().st_ctime_ns
    for _ in range(MOST_TICKS):
        mark.chmod(0o600)
        if (now := mark.stat().st_ctime_ns) > first:
            mark.unlink()
            return now
        await asyncio.sleep(TICK_S)
    raise StorageError("the data folder's file system keeps no exact times", REMEDY)


def _facts(start_ns: int, plan: Plan, *, include_ignored: bool) -> OverlayFacts:
    apart = (*plan.hidden, *plan.apart, *(f"{prefix}.git" for prefix in plan.repositories))
    return OverlayFacts(
        start_ns, tuple(os.fsencode(name.rstrip("/")) for name in apart), include_ignored
    )


def _write_down(folder: Path, facts: OverlayFacts) -> None:
    write_facts(folder, facts)
    write_baseline(folder, {})


async def _prepare(host: Root, folder: Path, plan: Plan) -> list[str]:
    """Fill the upper folder."""
    why = await asyncio.to_thread(why_unfit, host.path, folder)
    if why:
        raise SandboxError(f"the workspace can't be an overlay: {why}", REMEDY)
    upper = folder / UPPER
    notes: list[str] = []
    await asyncio.to_thread(_hide_all, host, upper, plan.hidden)
    for prefix in plan.repositories:
        await asyncio.to_thread(_make_folders, host, upper, prefix.rstrip("/"))
        left_out = [name.removeprefix(prefix) for name in plan.left_out if name.startswith(prefix)]
        notes += await _repository(host, prefix, upper, left_out)
    await asyncio.to_thread(_as_on_host, host, upper)
    return notes


def _as_on_host(shown: Root, upper: Path) -> None:
    """Give the folders that were made the modes and times of the host's; not git's, which are
    our own."""
    for at, folders, _ in os.walk(upper):
        folders[:] = [name for name in folders if name != ".git"]
        name = os.path.relpath(at, upper)
        fd = _open(shown, name) if name != "." else os.dup(shown.fd)
        try:
            _take_status(fd, Path(at))
        finally:
            os.close(fd)


def _hide_all(shown: Root, upper: Path, names: Iterable[str]) -> None:
    # Sorted: a folder goes before what is in it, which then needs nothing any more.
    for name in sorted(name.rstrip("/") for name in names):
        parent, _, leaf = name.rpartition("/")
        _make_folders(shown, upper, parent)
        _whiteout(upper / parent / leaf)


def _whiteout(place: Path) -> None:
    # A character device 0:0, which any user may make (mknod(2), Linux 5.8), and which the agent
    # can't: overlayfs refuses it.
    with contextlib.suppress(FileExistsError, NotADirectoryError):
        os.mknod(place, stat.S_IFCHR, os.makedev(0, 0))


def _make_folders(shown: Root, upper: Path, name: str) -> None:
    """The folders on the way, which take the place of the host's."""
    if not name or os.path.lexists(upper / name):
        return
    _make_folders(shown, upper, name.rpartition("/")[0])
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.close(_open(shown, name))
        (upper / name).mkdir(mode=0o700)


def _open(shown: Root, name: str) -> int:
    """Not by `Root`: git's own folder may be on the way here."""
    fd = os.dup(shown.fd)
    for part in name.split("/"):
        inner = os.open(part, DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = inner
    return fd


def _take_status(fd: int, place: Path) -> None:
    status = os.fstat(fd)
    place.chmod(stat.S_IMODE(status.st_mode) & 0o777)
    os.utime(place, ns=(status.st_atime_ns, status.st_mtime_ns))


async def _repository(host: Root, prefix: str, upper: Path, left_out: Sequence[str]) -> list[str]:
    """Give the agent a `.git` of its own; or hide the host's, where it can't be used."""
    notes: list[str] = []
    repository = host.path / prefix
    git = await git_copy.find(repository, notes)
    place = upper / prefix / ".git"
    if git is None:
        await asyncio.to_thread(_whiteout, place)
        return notes
    objects = await asyncio.to_thread(_borrowed, host.path, git.common)
    place.mkdir(mode=0o700)
    for part, names in await asyncio.to_thread(
        git_copy.parts, git, without_objects=objects is not None
    ):
        await _copy(host, part, names, upper, f"{prefix}.git/")
    notes += await git_copy.finish(repository, upper / prefix)
    if left_out:
        await hide(upper / prefix, left_out)
    if objects is not None:
        await asyncio.to_thread(
            (place / "objects/info/alternates").write_bytes, os.fsencode(objects) + b"\n"
        )
    await asyncio.to_thread(os.setxattr, place, OPAQUE, b"y")
    return notes


async def _copy(host: Root, part: Path, names: Iterable[str], upper: Path, prefix: str) -> None:
    """Copy these of git's own files."""
    root = str(await asyncio.to_thread(part.resolve))
    fd = os.open(upper, DIRECTORY)
    try:
        place = CopyFolders(host.fd, fd, tuple(sorted(host.forbidden)))
        work = pieces(list(grouped(names).items()), root, prefix, into_baseline=False)
        await copy_all(work, place, lambda piece, copied: None, lambda size: None)
    finally:
        os.close(fd)


def _borrowed(workspace: Path, common: Path) -> str | None:
    """Return the sandbox's read-only path of a repository's objects; None where they lie outside
    the workspace, or are borrowed themselves."""
    with contextlib.suppress(ValueError, OSError):
        inside = common.resolve().relative_to(workspace)
        objects = common / "objects"
        if stat.S_ISDIR(objects.lstat().st_mode) and not (objects / "info/alternates").exists():
            text = f"{LOWER}/{inside}/objects"
            return text if "\n" not in text else None
    return None


def clear(folder: Path) -> None:
    """Remove the result of `make_overlay`, so that a copy can be made instead. Never call it on a
    mounted one."""
    for name in ("overlay.msgpack", "baseline.msgpack"):
        (folder / name).unlink(missing_ok=True)
    make_removable(folder)
    for name in FOLDERS:
        shutil.rmtree(folder / name, ignore_errors=True)
