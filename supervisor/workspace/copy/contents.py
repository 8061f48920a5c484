"""Choose what belongs in the private copy, folder by folder.

    a git repository    tracked files, untracked ones that git doesn't ignore, and a self-contained
                        `.git` (`git_copy`)
    a folder in one     the same, without the `.git`
    any other folder    everything; a repository in it as above

`.gatehouseignore` has the last word (`own_ignores`). A path that git ignores is copied only where
somebody wants it, and then belongs to the agent: it is in no baseline, so neither direction ever
compares it.

It only reads names. It must never go through a symlink or into what is out of bounds.
"""

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

from supervisor.workspace.copy import git_copy
from supervisor.workspace.copy.copy_pool import CopyTask, pieces
from supervisor.workspace.copy.copying import FolderBatch
from supervisor.workspace.disk.beneath import PathError, Root, split
from supervisor.workspace.disk.git_files import LEFT_OUT, files_of, ignored_of
from supervisor.workspace.trees.own_ignores import OwnIgnores

# Below a folder with a shorter path, no path can be too long, whatever characters it has.
SURELY_SHORT = 500

type Folders = dict[str, list[str]]


class FolderContents:
    """Contents of one host folder. Names are relative to it; `repositories` are those found so far,
    "" for the folder itself.

    `skipped`: paths that can't be copied, with reasons; `left_out`: paths that `.gatehouseignore`
    names, though git would list them.
    """

    def __init__(self, host: Root, *, include_ignored: bool) -> None:
        self._host = host
        self._own = OwnIgnores(host)
        self._include_ignored = include_ignored
        self.notes: list[str] = []
        self.skipped: list[tuple[str, str]] = []
        self.left_out: list[str] = []
        self.repositories: list[str] = []

    async def of(self, folder: str, *, into_baseline: bool = True) -> list[CopyTask]:
        """Return what to copy of a folder. A repository in it is one leaf: call `of_nested` for
        it."""
        path = self._host.path / folder
        git = await git_copy.find(path, self.notes)
        top = await git_copy.around(path) if git is None and not folder else None
        listed = await files_of(path, top) if git is not None or top is not None else None
        if git is not None:
            self.repositories.append(folder)
        if listed is None:
            if git is not None:
                self.notes.append(f"git can't list `{path}`: all of it is copied")
            installed: list[str] = []
            found = pieces(
                await asyncio.to_thread(self._walk, folder, installed), into_baseline=into_baseline
            )
            for name in installed if self._include_ignored else ():
                found += pieces(await asyncio.to_thread(self._whole, name), into_baseline=False)
        else:
            groups = await asyncio.to_thread(self._belonging, folder, listed)
            kept, extra = await self._of_ignored(folder, path, top)
            found = pieces([*groups, *kept], into_baseline=into_baseline)
            found += pieces(extra, into_baseline=False)
        if git is not None:
            prefix = f"{folder}/.git/" if folder else ".git/"
            for part, names in await asyncio.to_thread(git_copy.parts, git):
                found += pieces(
                    self._checked(grouped(names)), str(part.resolve()), prefix, into_baseline=False
                )
        return found

    async def of_nested(self, folder: str, *, into_baseline: bool) -> list[CopyTask]:
        """Return what to copy of a nested repository; nothing where the folder is none."""
        if not await asyncio.to_thread(self._has_git, folder):
            return []
        return await self.of(folder, into_baseline=into_baseline)

    def _has_git(self, folder: str) -> bool:
        try:
            with self._host.directory(folder) as fd:
                os.stat(".git", dir_fd=fd, follow_symlinks=False)
        except (OSError, PathError):
            return False
        return True

    # -- what git lists ---------------------------------------------------------------------------

    def _belonging(self, folder: str, listed: list[str]) -> list[FolderBatch]:
        """Return git's list by folder, without the paths that `.gatehouseignore` names."""
        prefix = f"{folder}/" if folder else ""
        # Git lists an untracked repository with a slash, a submodule without: both are leaves.
        groups = self._checked(grouped(prefix + name.rstrip("/") for name in listed))
        return [(at, kept) for at, leaves in groups if (kept := self._kept(at, leaves))]

    def _kept(self, folder: str, leaves: list[str]) -> list[str]:
        if self._own.keeps_all(folder):
            return leaves
        prefix = f"{folder}/" if folder else ""
        kept = [leaf for leaf in leaves if self._own.verdict(prefix + leaf) is not True]
        if len(kept) < len(leaves):
            self.left_out += [prefix + leaf for leaf in leaves if leaf not in set(kept)]
        return kept

    async def _of_ignored(
        self, folder: str, path: Path, top: Path | None
    ) -> tuple[list[FolderBatch], list[FolderBatch]]:
        """Return the ignored paths that are copied all the same: named with `!` in
        `.gatehouseignore`, or wanted besides."""
        kept: list[FolderBatch] = []
        extra: list[FolderBatch] = []
        if not self._include_ignored and not self._own.says_to_keep():
            return kept, extra
        prefix = f"{folder}/" if folder else ""
        for name in await ignored_of(path, top):
            verdict = self._own.verdict(prefix + name)
            if verdict is True or (verdict is None and not self._include_ignored):
                continue
            (kept if verdict is False else extra).extend(
                await asyncio.to_thread(self._whole, prefix + name)
            )
        return kept, extra

    def _whole(self, name: str) -> list[FolderBatch]:
        if not name.endswith("/"):
            return self._checked(grouped([name]))
        if self._has_git(name[:-1]):
            return self._checked(grouped([name[:-1]]))  # a leaf, as any repository
        return self._walk(name[:-1])

    # -- folders without git ----------------------------------------------------------------------

    def _walk(self, start: str, installed: list[str] | None = None) -> list[FolderBatch]:
        """Return everything below a folder; a nested repository is a leaf, and git's own folder is
        skipped. With `installed`, paths named in `left_out` are skipped, too, and added to that
        list, each with a slash."""
        groups: Folders = {}
        waiting = [start]
        while waiting:
            folder = waiting.pop()
            try:
                with self._host.directory(folder) as fd:
                    groups[folder], inner = self._list(fd, folder, installed)
            except (PathError, OSError) as error:
                self.skipped.append((folder, _why(error)))
            else:
                waiting += inner
        return self._checked(groups)

    def _list(
        self, fd: int, folder: str, installed: list[str] | None
    ) -> tuple[list[str], list[str]]:
        """Return the leaves in a folder, and the folders to enter."""
        prefix = f"{folder}/" if folder else ""
        asks = not self._own.keeps_all(folder)
        leaves: list[str] = []
        inner: list[str] = []
        with os.scandir(fd) as listing:
            for entry in listing:
                name = entry.name
                is_folder = entry.is_dir(follow_symlinks=False)
                if name == ".git" or (
                    is_folder and self._host.is_forbidden(entry.stat(follow_symlinks=False))
                ):
                    continue
                path = f"{prefix}{name}/" if is_folder else prefix + name
                verdict = self._own.verdict(path) if asks else None
                if verdict:
                    continue
                if installed is not None and verdict is None and is_folder and name in LEFT_OUT:
                    installed.append(path)
                    continue
                if is_folder and not _holds_git(fd, name):
                    inner.append(prefix + name)
                else:
                    leaves.append(name)
        return sorted(leaves), sorted(inner, reverse=True)

    def _checked(self, groups: Folders) -> list[FolderBatch]:
        """Drop the names that sync never handles: too long, or equal to `.git` on some file
        system."""
        out: list[FolderBatch] = []
        for folder, leaves in groups.items():
            together = "\0".join(leaves)
            is_plain = (
                len(folder) < SURELY_SHORT
                and together.isascii()
                and "git" not in together.casefold()
            )
            try:
                if folder:
                    split(folder)
            except PathError as error:
                self.skipped.append((folder, error.message))
                continue
            if not is_plain:
                leaves = [
                    leaf
                    for leaf in leaves
                    if self._is_speakable(f"{folder}/{leaf}" if folder else leaf)
                ]
            out.append((folder, leaves))
        return out

    def _is_speakable(self, path: str) -> bool:
        try:
            split(path)
        except PathError as error:
            self.skipped.append((path, error.message))
            return False
        return True


def grouped(names: Iterable[str]) -> Folders:
    """Group names by folder. A name with a slash at its end is a folder, which may be empty."""
    groups: Folders = {}
    for name in names:
        folder, _, leaf = name.rpartition("/")
        leaves = groups.setdefault(folder, [])
        if leaf:
            leaves.append(leaf)
    return groups


def _holds_git(fd: int, name: str) -> bool:
    try:
        os.stat(f"{name}/.git", dir_fd=fd, follow_symlinks=False)
    except OSError:
        return False
    return True


def _why(error: PathError | OSError) -> str:
    if isinstance(error, PathError):
        return error.message
    return f"the folder can't be read: {error.strerror}"
