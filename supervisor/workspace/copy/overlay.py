"""Prepare the private copy as an overlay over the host's folder.

The host's folder shines through, and the agent's changes go to the session's folder. This module
decides what the agent must not see although it would shine through, and hides it before the mount
(a whiteout in the upper folder). Hidden are what the ignore files leave out of a copy, the
supervisor's own data, and every `.git`, which is replaced by the agent's own repository as in a
copy. Its objects are borrowed from the read-only workspace as `git clone --shared` does; where that
isn't possible, they are copied.

It must never read the whole tree's contents. INVARIANT: whatever a copy would leave out is hidden.
"""

import asyncio
import contextlib
import ctypes
import os
import shutil
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

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
from supervisor.workspace.copy.snapshot import readable
from supervisor.workspace.disk.beneath import DIRECTORY, Root
from supervisor.workspace.disk.git_files import LEFT_OUT, Listed, hide, listed
from supervisor.workspace.disk.overlay_changes import OPAQUE, UPPER
from supervisor.workspace.trees.journal import write_baseline
from supervisor.workspace.trees.overlay_facts import OverlayFacts, write_facts
from supervisor.workspace.trees.own_ignores import FILE_NAME, OwnIgnores

# A change time lags by at most one tick of the kernel's clock: 10 ms at its slowest
# (CONFIG_HZ=100).
TICK_S = 0.002
MOST_TICKS = 50
# statfs(2), linux/magic.h: local file systems, whose change times come from this kernel. All of
# them can be an overlay's lower layer.
LOCAL = {
    0xEF53: "ext4",
    0x58465342: "XFS",
    0x9123683E: "Btrfs",
    0x01021994: "tmpfs",
    0xF2F52010: "F2FS",
    0xCA451A4E: "bcachefs",
    0x2FC12FC1: "ZFS",
    0x794C7630: "overlayfs",
}
_STATFS_WORDS = 32
_libc = ctypes.CDLL(None, use_errno=True)


class Plan(msgspec.Struct):
    """Plan of an overlay. Paths are relative to the workspace."""

    # How many files a copy would have.
    files: int = 0
    # Paths that the agent must not see.
    hidden: list[str] = []
    # Paths that git ignores and the agent gets all the same, as its own.
    apart: list[str] = []
    # Paths that are hidden though git tracks them.
    left_out: list[str] = []
    # Folders with a `.git` (`""`: the workspace itself, else with a slash).
    repositories: list[str] = []


class Overview:
    """Lists what an overlay of one host folder must hide. Git lists it together with what belongs;
    single names are checked only where there is a `.gatehouseignore`."""

    def __init__(self, host: Root, *, include_ignored: bool) -> None:
        self._workspace = host.path
        self._own = OwnIgnores(host)
        self._include_ignored = include_ignored
        self._says_something = os.path.lexists(host.path / FILE_NAME)
        self.plan = Plan()

    async def of(self, prefix: str) -> None:
        """Add a folder, and the repositories in it. Raise OSError where it can't be read."""
        folder = self._workspace / prefix
        if await asyncio.to_thread(os.path.lexists, folder / ".git"):
            self.plan.repositories.append(prefix)
        git = await git_copy.find(folder, [])
        top = await git_copy.around(folder) if git is None and not prefix else None
        found = await listed(folder, top) if git is not None or top is not None else None
        if found is None:
            nested = await asyncio.to_thread(self._walk, prefix, by_default=True)
        else:
            nested = await self._by_git(prefix, found)
        for name in nested:
            if name not in self.plan.hidden and await asyncio.to_thread(
                os.path.lexists, self._workspace / name / ".git"
            ):
                await self.of(f"{name.rstrip('/')}/")

    async def _by_git(self, prefix: str, found: Listed) -> list[str]:
        """Read git's lists of a repository. Return the folders that may be other repositories."""
        self.plan.files += found.files
        self._says_something = self._says_something or found.holds(FILE_NAME)
        if self._says_something:
            await asyncio.to_thread(self._leave_out, [prefix + name for name in found.names()])
        return [prefix + name for name in found.nested] + await asyncio.to_thread(
            self._ignored, [prefix + name for name in found.ignored]
        )

    def _leave_out(self, names: Iterable[str]) -> None:
        """Hide the listed paths that `.gatehouseignore` leaves out; where it names a folder above
        one, hide that whole folder."""
        hidden: dict[str, None] = {}
        for name in names:
            if self._own.verdict(name) is True:
                parts = name.rstrip("/").split("/")
                above = ("/".join(parts[:number]) for number in range(1, len(parts)))
                hidden[
                    next((one for one in above if self._own.verdict(f"{one}/") is True), name)
                ] = None
                self.plan.left_out.append(name)
        self.plan.hidden += hidden

    def _ignored(self, names: Iterable[str]) -> list[str]:
        """Hide ignored paths. Add the repositories among those that are kept all the same."""
        nested: list[str] = []
        for name in names:
            verdict = self._own.verdict(name) if self._says_something else None
            if verdict is True or (verdict is None and not self._include_ignored):
                self.plan.hidden.append(name)
                continue
            if verdict is None:
                self.plan.apart.append(name)
            if os.path.lexists(self._workspace / name / ".git"):
                nested.append(name)
            elif name.endswith("/"):
                nested += self._walk(name)
        return nested

    def _walk(self, start: str, *, by_default: bool = False) -> list[str]:
        """Walk a folder outside git: count its files and hide named ones. Return the repositories
        below it. `by_default`: treat `LEFT_OUT` folders as ignored."""
        nested: list[str] = []
        waiting = [start]
        while waiting:
            prefix = waiting.pop()
            with contextlib.suppress(OSError), os.scandir(self._workspace / prefix) as listing:
                entries = list(listing)
                self._says_something = self._says_something or any(
                    entry.name == FILE_NAME for entry in entries
                )
                for entry in entries:
                    is_folder = entry.is_dir(follow_symlinks=False)
                    name = f"{prefix}{entry.name}/" if is_folder else prefix + entry.name
                    if entry.name == ".git":
                        continue
                    verdict = self._own.verdict(name) if self._says_something else None
                    if verdict is None and by_default and is_folder and entry.name in LEFT_OUT:
                        nested += self._ignored([name])
                    elif verdict is True:
                        self.plan.hidden.append(name)
                    elif not is_folder:
                        self.plan.files += 1
                    elif os.path.lexists(f"{entry.path}/.git"):
                        nested.append(name)
                    else:
                        waiting.append(name)
        return nested


async def look_over(host: Root, exclude: Iterable[Path], *, include_ignored: bool) -> Plan:
    """Return which files a copy of the folder would have, and what it would leave out."""
    overview = Overview(host, include_ignored=include_ignored)
    for folder in exclude:
        with contextlib.suppress(ValueError):
            overview.plan.hidden.append(str(folder.resolve().relative_to(host.path)))
    await overview.of("")
    return overview.plan


class MadeOverlay(NamedTuple):
    """A mounted overlay. `notes` are lines for the person."""

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
    """Make the session's folder ready and mount. Return None where the workspace has fewer files
    than `at_least`.

    Raise SandboxError where an overlay can't show this workspace or the kernel refuses, UserError
    and StorageError as `make_copy`. After an error or None nothing is left behind, and a copy can
    be made instead.
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
    """Make the folders. Return the start: every later change on the host has a change time of at
    least this, and no earlier one has."""
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
    """Give the folders that we made the host's modes and times, except git's, which are our own."""
    for at, folders, _ in os.walk(upper):
        folders[:] = [name for name in folders if name != ".git"]
        name = os.path.relpath(at, upper)
        fd = _open(shown, name) if name != "." else os.dup(shown.fd)
        try:
            _take_status(fd, Path(at))
        finally:
            os.close(fd)


def _hide_all(shown: Root, upper: Path, names: Iterable[str]) -> None:
    # Sorted: a folder comes before its entries, which then need nothing any more.
    for name in sorted(name.rstrip("/") for name in names):
        parent, _, leaf = name.rpartition("/")
        _make_folders(shown, upper, parent)
        _whiteout(upper / parent / leaf)


def _whiteout(place: Path) -> None:
    # A character device 0:0 (a whiteout). Any user may make one (mknod(2), Linux 5.8); the agent
    # can't, since overlayfs refuses.
    with contextlib.suppress(FileExistsError, NotADirectoryError):
        os.mknod(place, stat.S_IFCHR, os.makedev(0, 0))


def _make_folders(shown: Root, upper: Path, name: str) -> None:
    """Make the parent folders, which take the place of the host's."""
    if not name or os.path.lexists(upper / name):
        return
    _make_folders(shown, upper, name.rpartition("/")[0])
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.close(_open(shown, name))
        (upper / name).mkdir(mode=0o700)


def _open(shown: Root, name: str) -> int:
    """Open a folder without `Root`: git's own folder may be on the way here."""
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
    """Give the agent a `.git` of its own, or hide the host's if that isn't possible."""
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
    """Copy these files of git's own folder."""
    root = str(await asyncio.to_thread(part.resolve))
    fd = os.open(upper, DIRECTORY)
    try:
        place = CopyFolders(host.fd, fd, tuple(sorted(host.forbidden)))
        work = pieces(list(grouped(names).items()), root, prefix, into_baseline=False)
        await copy_all(work, place, lambda piece, copied: None, lambda size: None)
    finally:
        os.close(fd)


def _borrowed(workspace: Path, common: Path) -> str | None:
    """Return the sandbox's read-only path of a repository's objects, or None where they lie outside
    the workspace or are borrowed themselves."""
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


def why_unfit(workspace: Path, folder: Path) -> str:
    """Return why an overlay in `folder` can't represent the workspace; empty if there is no known
    reason."""
    if folder.resolve().is_relative_to(workspace):
        return "the data folder lies in it (set GATEHOUSE_DATA to another place)"
    if workspace.is_relative_to(folder.resolve()):
        return "it lies in the session's own folder"
    if workspace.stat().st_uid != os.geteuid():
        return (
            "it belongs to another user than the one that Gatehouse runs as, so the agent could"
            " change nothing"
        )
    kind = kind_of(workspace)
    if kind not in LOCAL:
        return (
            f"its file system (type 0x{kind:x}) isn't a local one that is known to keep exact"
            " change times"
        )
    return ""


def kind_of(path: Path) -> int:
    """Return the file system's type by statfs(2), which Python's own `statvfs` leaves out."""
    words = (ctypes.c_long * _STATFS_WORDS)()
    if _libc.statfs(os.fsencode(path), ctypes.byref(words)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
    return words[0] & 0xFFFFFFFF
