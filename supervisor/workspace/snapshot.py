"""The agent's private copy of the host's folder, made at the start of a session.

It decides what goes in: of a git repository the tracked and the untracked-not-ignored files and a self-contained
`.git` (`git_copy`), of any other folder everything; never sockets, fifos, devices, set-id bits or the supervisor's own
data. It is separate because it is the only part that reads the whole folder. It must never follow a symlink, share an
inode with the host, or change anything on the host.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from supervisor.core.changes import Known, kind_of, signature_of
from supervisor.errors import StorageError, UserError
from supervisor.workspace import git_copy
from supervisor.workspace.beneath import DIRECTORY, FILE, PathError, Root, split
from supervisor.workspace.git_files import files_of
from supervisor.workspace.journal import write_baseline

FICLONE = 0x40049409  # linux/fs.h
BLOCK_BYTES = 1 << 20
MOST_SKIPPED_NAMED = 100
PROGRESS_EVERY_FILES = 256
PROGRESS_EVERY_BYTES = 32 << 20
# What ends the copy, where any other error of one file only leaves that file out.
_FATAL = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE}

type Progress = Callable[[int, int, int], None]


class CopyReport(msgspec.Struct, frozen=True):
    """What was copied. `baseline` maps each path to what both sides then held; `skipped` are (path, why), at most
    MOST_SKIPPED_NAMED of `skipped_count`; `notes` are lines for the person."""

    files: int
    folders: int
    bytes: int
    is_git: bool
    baseline: dict[str, Known]
    notes: tuple[str, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    skipped_count: int = 0


class Source(msgspec.Struct, frozen=True):
    """Some names below a folder (a trailing slash: a folder itself), and where in the copy they go."""

    folder: Path
    names: list[str]
    prefix: str = ""
    into_baseline: bool = True


async def make_copy(
    workspace: Path, target: Path, *, exclude: Sequence[Path] = (), on_progress: Progress | None = None
) -> CopyReport:
    """Copy the folder to `target`, which must not exist, and write `baseline.msgpack` beside it.

    `exclude` are folders that are left out wherever they are. `on_progress(done, total, bytes)` is called in the event
    loop. Raises UserError where the workspace can't be read, StorageError where the copy can't be written.
    """
    workspace = await asyncio.to_thread(_readable, workspace)
    notes: list[str] = []
    sources, is_git = await _plan(workspace, exclude, notes)
    loop = asyncio.get_running_loop()

    def tell(done: int, total: int, size: int) -> None:
        if on_progress is not None:
            loop.call_soon_threadsafe(on_progress, done, total, size)

    def copy() -> _Copier:
        target.mkdir(mode=0o700, parents=True)
        copier = _Copier(target, exclude, tell, sum(len(source.names) for source in sources))
        try:
            for source in sources:
                copier.copy(source)
            copier.finish()
        finally:
            copier.close()
        write_baseline(target.parent, copier.baseline)
        return copier

    try:
        done = await asyncio.to_thread(copy)
        for repository, prefix in [(s.folder, s.prefix) for s in sources if s.into_baseline]:
            notes += await git_copy.finish(repository, target / prefix)
    except FileExistsError as error:
        raise StorageError(f"`{error.filename}` exists already", "a session's copy is made once") from error
    except OSError as error:
        raise StorageError(f"can't write the copy: {error.strerror}", "make room in the data folder") from error
    return CopyReport(
        files=done.files,
        folders=len(done.folders),
        bytes=done.bytes,
        is_git=is_git,
        baseline=done.baseline,
        notes=tuple(notes),
        skipped=tuple(done.skipped),
        skipped_count=done.skipped_count,
    )


def _readable(workspace: Path) -> Path:
    try:
        with os.scandir(workspace):
            return workspace.resolve()
    except FileNotFoundError as error:
        raise UserError(f"there is no folder `{workspace}`", "give the path of an existing folder") from error
    except NotADirectoryError as error:
        raise UserError(f"`{workspace}` is not a folder", "give the folder that holds the code") from error
    except PermissionError as error:
        raise UserError(f"`{workspace}` can't be read", "check its permissions") from error


async def _plan(folder: Path, exclude: Sequence[Path], notes: list[str], prefix: str = "") -> tuple[list[Source], bool]:
    """What to copy of a folder and of the repositories nested in it."""
    git = await git_copy.find(folder, notes)
    names = await files_of(folder) if git is not None else None
    if git is None or names is None:
        if git is not None:
            notes.append(f"git can't list `{folder}`: all of it is copied")
        names = await asyncio.to_thread(_walk, folder, exclude)
    nested = await asyncio.to_thread(_nested_repositories, folder, names)
    sources = [Source(folder, [name for name in names if name not in nested], prefix)]
    for name in sorted(nested):
        inner, _ = await _plan(folder / name, exclude, notes, f"{prefix}{name.rstrip('/')}/")
        sources += inner
    if git is not None:
        sources += [
            Source(part, names, f"{prefix}.git/", into_baseline=False)
            for part, names in await asyncio.to_thread(git.parts)
        ]
    return sources, git is not None


def _nested_repositories(folder: Path, names: list[str]) -> set[str]:
    """Those of the names that are repositories: git lists a submodule without a slash, an untracked repository with one."""
    base = f"{folder}/"
    found: set[str] = set()
    for name in names:
        with contextlib.suppress(OSError):
            if stat.S_ISDIR(os.lstat(base + name).st_mode) and os.path.lexists(f"{base}{name}/.git"):
                found.add(name)
    return found


def _walk(folder: Path, exclude: Sequence[Path]) -> list[str]:
    """Every name below a folder, folders with a slash; a nested repository is one name, git's own folder none."""
    root = Root(folder, out_of_bounds=exclude)
    names: list[str] = []

    def visit(fd: int, prefix: str) -> None:
        with os.scandir(fd) as listing:
            found = sorted(listing, key=lambda entry: entry.name)
        for entry in found:
            if entry.name == ".git":
                continue
            if not entry.is_dir(follow_symlinks=False):
                names.append(prefix + entry.name)
                continue
            names.append(f"{prefix}{entry.name}/")
            with contextlib.suppress(OSError):
                inner = os.open(entry.name, DIRECTORY, dir_fd=fd)
                try:
                    nested = _has(inner, ".git")
                    if not nested and not root.is_forbidden(os.fstat(inner)):
                        visit(inner, f"{prefix}{entry.name}/")
                finally:
                    os.close(inner)

    try:
        visit(root.fd, "")
    finally:
        root.close()
    return names


def _has(fd: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


class _Copier:
    """Copies names in order, keeping the folders on the way open. Runs in one thread: more are slower in Python."""

    def __init__(
        self, target: Path, exclude: Sequence[Path], tell: Callable[[int, int, int], None], total: int
    ) -> None:
        self.files = self.bytes = self.skipped_count = 0
        self.folders: dict[str, int] = {}
        self.baseline: dict[str, Known] = {}
        self.skipped: list[tuple[str, str]] = []
        self._exclude = exclude
        self._tell = tell
        self._done, self._total = 0, total
        self._told_files = self._told_bytes = 0
        self._target = os.open(target, DIRECTORY)
        self._stack: list[tuple[str, int, int]] = []
        self._can_clone = True

    def close(self) -> None:
        """Give the descriptors back."""
        self._pop_to(0)
        if self._target >= 0:
            os.close(self._target)
            self._target = -1

    def copy(self, source: Source) -> None:
        """Copy one source's names. A name that can't be copied is skipped with its why; a full disk raises."""
        root = Root(source.folder, out_of_bounds=self._exclude)
        target = self._open_target(source)
        try:
            for name in source.names:
                self._one(root, target, source, name)
        finally:
            self._pop_to(0)
            os.close(target)
            root.close()
        self._tell(self._done, self._total, self.bytes)

    def finish(self) -> None:
        """Give the folders the modes that they have on the host, innermost first."""
        for name in sorted(self.folders, reverse=True):
            with contextlib.suppress(OSError):
                fd = os.open(name, DIRECTORY, dir_fd=self._target)
                try:
                    os.fchmod(fd, self.folders[name])
                finally:
                    os.close(fd)

    def _one(self, root: Root, target: int, source: Source, name: str) -> None:
        try:
            parts = split(name.rstrip("/"))
            folder = parts if name.endswith("/") else parts[:-1]
            source_fd, target_fd = self._enter(root, target, folder, source)
            if not name.endswith("/"):
                self._entry(source_fd, target_fd, parts[-1], source.prefix + name, source.into_baseline)
        except (PathError, OSError) as error:
            if isinstance(error, OSError) and error.errno in _FATAL:
                raise
            # A tracked file that was deleted, and what is out of bounds, are no news.
            if not isinstance(error, PathError | FileNotFoundError):
                self._skip(source.prefix + name, error.strerror or str(error))
        self._done += 1
        if (
            self._done - self._told_files >= PROGRESS_EVERY_FILES
            or self.bytes - self._told_bytes >= PROGRESS_EVERY_BYTES
        ):
            self._told_files, self._told_bytes = self._done, self.bytes
            self._tell(self._done, self._total, self.bytes)

    def _open_target(self, source: Source) -> int:
        fd = os.dup(self._target)
        for part in source.prefix.split("/"):
            if part:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=fd)
                inner = os.open(part, DIRECTORY, dir_fd=fd)
                os.close(fd)
                fd = inner
        return fd

    def _enter(self, root: Root, target: int, parts: list[str], source: Source) -> tuple[int, int]:
        common = 0
        while common < min(len(parts), len(self._stack)) and self._stack[common][0] == parts[common]:
            common += 1
        self._pop_to(common)
        for depth in range(common, len(parts)):
            from_fd, to_fd = self._stack[-1][1:] if self._stack else (root.fd, target)
            inner = os.open(parts[depth], DIRECTORY, dir_fd=from_fd)
            try:
                status = os.fstat(inner)
                if root.is_forbidden(status):
                    raise PathError("out of bounds")
                with contextlib.suppress(FileExistsError):
                    os.mkdir(parts[depth], 0o700, dir_fd=to_fd)
                made = os.open(parts[depth], DIRECTORY, dir_fd=to_fd)
            except BaseException:
                os.close(inner)
                raise
            self._stack.append((parts[depth], inner, made))
            self._remember_folder(source, "/".join(parts[: depth + 1]), status)
        return self._stack[-1][1:] if self._stack else (root.fd, target)

    def _remember_folder(self, source: Source, name: str, status: os.stat_result) -> None:
        mode = stat.S_IMODE(status.st_mode) & ~(stat.S_ISUID | stat.S_ISGID)
        self.folders[source.prefix + name] = mode
        if source.into_baseline:
            self.baseline[source.prefix + name] = Known("dir", mode)

    def _pop_to(self, depth: int) -> None:
        while len(self._stack) > depth:
            _, source_fd, target_fd = self._stack.pop()
            os.close(source_fd)
            os.close(target_fd)

    def _entry(self, source: int, target: int, leaf: str, path: str, into_baseline: bool) -> None:
        try:
            reading = os.open(leaf, FILE, dir_fd=source)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENXIO):  # a symlink, a socket
                raise
            known = self._not_a_file(source, target, leaf, path)
        else:
            try:
                before = os.fstat(reading)
                is_file = stat.S_ISREG(before.st_mode)
                known = self._file(reading, before, target, leaf) if is_file else None
            finally:
                os.close(reading)
            if not is_file:
                known = self._not_a_file(source, target, leaf, path)
        if into_baseline and known is not None:
            self.baseline[path] = known

    def _not_a_file(self, source: int, target: int, leaf: str, path: str) -> Known | None:
        status = os.stat(leaf, dir_fd=source, follow_symlinks=False)
        kind = kind_of(status.st_mode)
        if kind == "symlink":
            link = os.readlink(leaf, dir_fd=source)
            os.symlink(link, leaf, dir_fd=target)
            made = os.stat(leaf, dir_fd=target, follow_symlinks=False)
            return Known("symlink", 0o777, None, link, signature_of(status), signature_of(made))
        if kind == "dir":  # a submodule that isn't checked out
            os.mkdir(leaf, 0o700, dir_fd=target)
            self.folders[path] = stat.S_IMODE(status.st_mode) & 0o777
            return Known("dir", self.folders[path])
        self._skip(path, f"a {kind} is never copied")
        return None

    def _file(self, reading: int, before: os.stat_result, target: int, leaf: str) -> Known:
        mode = before.st_mode & 0o777
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        writing = os.open(leaf, flags, mode, dir_fd=target)
        try:
            self.bytes += self._content(reading, writing, before.st_size)
            os.utime(writing, ns=(before.st_atime_ns, before.st_mtime_ns))
            made = os.fstat(writing)
            if made.st_mode & 0o777 != mode:  # by our umask
                os.fchmod(writing, mode)
                made = os.fstat(writing)
        finally:
            os.close(writing)
        self.files += 1
        # Written to while it was copied: then nobody knows what both sides agreed on.
        signature = signature_of(before)
        steady = signature_of(os.fstat(reading)) == signature
        return Known("file", mode, None, None, signature if steady else None, signature_of(made))

    def _content(self, reading: int, writing: int, size: int) -> int:
        if self._can_clone and size:
            try:
                fcntl.ioctl(writing, FICLONE, reading)
            except OSError:
                self._can_clone = False  # not this file system; a second try costs a call for each file
            else:
                return size
        total = 0
        while True:
            wanted = min(BLOCK_BYTES, max(size - total, 0) + 1)
            block = os.read(reading, wanted)
            view = memoryview(block)
            while view:
                view = view[os.write(writing, view) :]
            total += len(block)
            # A short read at the expected end is the end; growth after it shows in the signature.
            if not block or (len(block) < wanted and total >= size):
                return total

    def _skip(self, path: str, why: str) -> None:
        self.skipped_count += 1
        if len(self.skipped) < MOST_SKIPPED_NAMED:
            self.skipped.append((path, why))
