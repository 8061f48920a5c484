"""Make the private copy by copying files at the start of a session.

It plans the contents (`contents`), has them copied (`copy_pool`), and writes the baseline: what
both sides then held. It must never leave half a copy behind, nor call it complete.
"""

import asyncio
import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from supervisor.base.event_loop import to_end
from supervisor.core.files.changes import Known, Signature, signature_of
from supervisor.errors import StorageError, UserError
from supervisor.workspace.copy import git_copy
from supervisor.workspace.copy.contents import FolderContents
from supervisor.workspace.copy.copy_pool import CopyFolders, CopyTask, copy_all
from supervisor.workspace.copy.copying import FOLDER, LINK, NOTHING, ROW, UNSTEADY, Copied
from supervisor.workspace.disk.beneath import DIRECTORY, Root
from supervisor.workspace.disk.git_files import hide
from supervisor.workspace.trees.journal import write_baseline

MOST_SKIPPED_NAMED = 100

type OnProgress = Callable[[int, int, int], None]


class CopyReport(msgspec.Struct, frozen=True):
    """Report of a copy. `baseline` maps each path to the state of both sides; `skipped` are (path,
    why) pairs, at most MOST_SKIPPED_NAMED of `skipped_count`; `notes` are lines for the person."""

    files: int
    folders: int
    bytes: int
    is_git: bool
    baseline: dict[str, Known]
    notes: tuple[str, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    skipped_count: int = 0


async def make_copy(
    workspace: Path,
    target: Path,
    *,
    exclude: Sequence[Path] = (),
    include_ignored: bool = False,
    on_progress: OnProgress | None = None,
) -> CopyReport:
    """Copy the folder to `target`, which must not exist, and write `baseline.msgpack` beside it.

    `exclude` are folders to leave out wherever they are. `include_ignored`: ignored paths are
    copied, too, as the agent's own. `on_progress(done, total, bytes)` is called in the event loop.
    After an error or a cancellation nothing is left. Raise UserError where the workspace can't be
    read, StorageError where the copy can't be written.
    """
    workspace = await asyncio.to_thread(readable, workspace)
    host = Root(workspace, out_of_bounds=exclude)
    copy = _Copy(host, target, FolderContents(host, include_ignored=include_ignored), on_progress)
    try:
        # A link leads to a volume that a container shares, which exists already.
        await asyncio.to_thread(_make_empty, target)
    except FileExistsError as error:
        host.close()
        raise StorageError(
            f"`{error.filename}` exists already", "a session's copy is made once"
        ) from error
    except OSError as error:
        host.close()
        raise _no_copy(error) from error
    try:
        return await copy.make()
    except BaseException as error:
        await to_end(lambda: shutil.rmtree(target, ignore_errors=True))
        if isinstance(error, OSError):
            raise _no_copy(error) from error
        raise
    finally:
        host.close()


class _Copy:
    """One copy in the making."""

    def __init__(
        self, host: Root, target: Path, contents: FolderContents, on_progress: OnProgress | None
    ) -> None:
        self._host = host
        self._target = target
        self._contents = contents
        self._on_progress = on_progress
        self._baseline: dict[str, Known] = {}
        self._folders: dict[str, int] = {}
        self._nested: list[tuple[str, bool]] = []
        self._skipped: list[tuple[str, str]] = []
        self._files = self._bytes = self._skipped_count = self._done = self._total = 0

    async def make(self) -> CopyReport:
        """Make the copy."""
        pieces = await self._contents.of("")
        fd = os.open(self._target.resolve(), DIRECTORY)
        try:
            place = CopyFolders(self._host.fd, fd, tuple(sorted(self._host.forbidden)))
            while pieces:
                self._total += sum(piece.files for piece in pieces)
                await copy_all(pieces, place, self._take, self._tell)
                # A folder that git or the walk named as one entry may be a nested repository.
                nested, self._nested = self._nested, []
                pieces = [
                    piece
                    for name, known in sorted(nested)
                    for piece in await self._contents.of_nested(name, into_baseline=known)
                ]
            await asyncio.to_thread(self._set_modes, fd)
        finally:
            os.close(fd)
        self._skip(self._contents.skipped)
        notes = list(self._contents.notes)
        for name in self._contents.repositories:
            notes += await git_copy.finish(self._host.path / name, self._target / name)
            prefix = f"{name}/" if name else ""
            out = [
                path.removeprefix(prefix)
                for path in self._contents.left_out
                if path.startswith(prefix)
            ]
            if out and (self._target / name / ".git").is_dir():
                await hide(self._target / name, out)
        await asyncio.to_thread(write_baseline, self._target.parent, self._baseline)
        return CopyReport(
            files=self._files,
            folders=len(self._folders),
            bytes=self._bytes,
            is_git="" in self._contents.repositories,
            baseline=self._baseline,
            notes=tuple(notes),
            skipped=tuple(self._skipped),
            skipped_count=self._skipped_count,
        )

    def _take(self, piece: CopyTask, copied: Copied) -> None:
        """Record one piece's outcome."""
        rows, links, at = copied.rows.tolist(), iter(copied.links), 0
        for folder, leaves in piece.groups:
            prefix = f"{piece.prefix}{folder}/" if folder else piece.prefix
            for leaf in leaves:
                self._row(piece, prefix + leaf, rows[at : at + ROW], links)
                at += ROW
        for path, mode in copied.folders:
            self._folder(path, mode, piece.into_baseline)
        self._skip(copied.skipped)
        self._bytes += copied.bytes
        self._done += piece.files
        self._tell(0)

    def _row(self, piece: CopyTask, path: str, row: list[int], links: Iterator[str]) -> None:
        what = row[0]
        if what == NOTHING:
            return
        if what == FOLDER:
            self._folder(path, row[1], piece.into_baseline)
            self._nested.append((path, piece.into_baseline))
            return
        target = next(links) if what == LINK else None
        self._files += what != LINK
        if piece.into_baseline:
            host: Signature | None = (
                (row[2], row[3], row[4], row[5], row[6]) if what != UNSTEADY else None
            )
            made = (row[7], row[8], row[9], row[10], row[11])
            self._baseline[path] = Known(
                "file" if target is None else "symlink", row[1], None, target, host, made
            )

    def _folder(self, path: str, mode: int, into_baseline: bool) -> None:
        self._folders[path] = mode
        if into_baseline:
            # Only this part of a folder's signature is ever compared.
            self._baseline[path] = Known(
                "dir", mode, host_signature=(0, 0, 0, 0, stat.S_IFDIR | mode)
            )

    def _skip(self, skipped: Sequence[tuple[str, str]]) -> None:
        self._skipped_count += len(skipped)
        self._skipped += skipped[: MOST_SKIPPED_NAMED - len(self._skipped)]

    def _tell(self, more_bytes: int) -> None:
        if self._on_progress is not None:
            self._on_progress(self._done, self._total, self._bytes + more_bytes)

    def _set_modes(self, fd: int) -> None:
        """Give the folders the host's modes, innermost first, and note which folders these are."""
        for name in sorted(self._folders, reverse=True):
            with contextlib.suppress(OSError):
                folder = os.open(name, DIRECTORY, dir_fd=fd)
                try:
                    os.fchmod(folder, self._folders[name])
                    known = self._baseline.get(name)
                    if known is not None:
                        made = signature_of(os.fstat(folder))
                        self._baseline[name] = msgspec.structs.replace(known, copy_signature=made)
                finally:
                    os.close(folder)


def _no_copy(error: OSError) -> StorageError:
    return StorageError(
        f"can't write the copy: {error.strerror or error}", "make room in the data folder"
    )


def readable(workspace: Path) -> Path:
    """Return the real folder. Raise UserError where there is none that can be read."""
    try:
        with os.scandir(workspace):
            return workspace.resolve()
    except FileNotFoundError as error:
        raise UserError(
            f"there is no folder `{workspace}`", "give the path of an existing folder"
        ) from error
    except NotADirectoryError as error:
        raise UserError(
            f"`{workspace}` is not a folder", "give the folder that holds the code"
        ) from error
    except PermissionError as error:
        raise UserError(f"`{workspace}` can't be read", "check its permissions") from error


def _make_empty(target: Path) -> None:
    """Make the folder. Raise `FileExistsError` where something is there already."""
    target.mkdir(mode=0o700, parents=True, exist_ok=target.is_symlink())
    with os.scandir(target) as entries:
        if next(entries, None) is not None:
            raise FileExistsError(errno.EEXIST, "not empty", str(target))
