"""Ask git about the host's folder: tracked files, ignored files, its own folder.

Git looks at a view of the host's repository (`git.repository_view`), and never at the agent's copy.
The user's excludes file is ours: `node_modules` and `.venv`, weaker than all other ignore lines.
`!node_modules/` in a `.gitignore` or a `.gatehouseignore` brings them back, and files tracked below
them belong. A repository with its own excludes file uses that instead. It must never run a git
command that writes to the host's repository.
"""

import asyncio
import contextlib
import os
import stat
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple

from supervisor.base.process import Completed
from supervisor.errors import GatehouseError
from supervisor.git.host_repository import GitFolder, HostRepository, config_of, git_folder_of
from supervisor.git.repository_view import view_of
from supervisor.git.run_git import GitPlace, run_git

GIT_TIMEOUT_S = 120.0
LIST_LIMIT_BYTES = 256 << 20
MOST_EXCLUDES_BYTES = 1 << 20
# A submodule in the output of `ls-files -s -z`.
_SUBMODULE = b"\x00160000 "
MOST_RESTARTS = 16
# Git reads `git/ignore` in it (gitignore(5), core.excludesFile).
GIT_HOME = Path(__file__).parent / "git_home"
OWN_EXCLUDES = GIT_HOME / "git" / "ignore"
# Folders left out of the copy by default, which package managers make.
LEFT_OUT = frozenset(
    line.rstrip("/") for line in OWN_EXCLUDES.read_text().splitlines() if line.endswith("/")
)


class _Seen(NamedTuple):
    """A repository as git sees it, and the folder of it in question: `prefix` ends with a slash, or
    is empty."""

    view: GitPlace
    prefix: str
    excludes: str

    async def git(self, *words: str, stdin: bytes | None = None) -> Completed:
        return await run_git(
            self.view,
            *words,
            config=(f"core.excludesFile={self.excludes}",),
            stdin=stdin,
            timeout_s=GIT_TIMEOUT_S,
            limit_bytes=LIST_LIMIT_BYTES,
        )


@contextlib.asynccontextmanager
async def _seen(folder: Path, top: Path | None) -> AsyncIterator[_Seen | None]:
    """Yield the repository at `top`, or at the folder itself; None where it can't be used."""
    repository = top or folder
    git = await asyncio.to_thread(git_folder_of, repository)
    if not isinstance(git, GitFolder):
        yield None
        return
    prefix = "" if folder == repository else f"{folder.relative_to(repository)}/"
    async with contextlib.AsyncExitStack() as opened:
        try:
            named = dict(await config_of(git)).get("core.excludesfile", "")
            excludes = await asyncio.to_thread(_excludes, repository, named)
            host = HostRepository(repository, git)
            view = await opened.enter_async_context(view_of(host, refs=False))
        except GatehouseError:
            view = None
        yield None if view is None else _Seen(view, prefix, excludes)


def _excludes(repository: Path, named: str) -> str:
    """Return the file of ignore patterns outside the tree: the repository's own, if that is plain
    and short, else ours."""
    with contextlib.suppress(OSError, RuntimeError):  # of a home that there isn't
        path = repository / Path(named).expanduser()
        status = path.stat()
        if named and stat.S_ISREG(status.st_mode) and status.st_size <= MOST_EXCLUDES_BYTES:
            return str(path)
    return str(OWN_EXCLUDES)


async def files_of(folder: Path, top: Path | None = None) -> list[str] | None:
    """Return tracked and untracked-not-ignored paths relative to the folder, sorted, or None where
    git can't read it. `top` is the repository's folder, where `folder` is only a part of it; the
    paths are then of `folder` alone.

    A submodule or a nested repository is one entry, with or without a trailing slash.
    """
    return await _list(folder, "-c", "-o", "--exclude-standard", top=top)


async def ignored_of(folder: Path, top: Path | None = None) -> list[str]:
    """Return the existing ignored paths, sorted. A completely ignored folder is one entry with a
    trailing slash."""
    return await _list(folder, "-o", "-i", "--exclude-standard", "--directory", top=top) or []


async def hide(copy: Path, names: Sequence[str]) -> None:
    """Make git ignore in a fresh copy that these tracked files are missing, so that no commit there
    deletes them.

    This is the one git command on a copy: nobody else has written to it yet, and its configuration
    is ours.
    """
    tracked = set(await _list(copy, "-c") or [])
    text = b"".join(os.fsencode(name) + b"\0" for name in names if name in tracked)
    if text:
        place = GitPlace(copy / ".git", copy)
        await run_git(place, "update-index", "-z", "--skip-worktree", "--stdin", stdin=text)


async def _list(folder: Path, *words: str, top: Path | None = None) -> list[str] | None:
    listed = await _ls_files(folder, *words, top=top)
    return (
        None
        if listed is None
        else sorted({os.fsdecode(name) for name in listed.split(b"\0") if name})
    )


async def _ls_files(folder: Path, *words: str, top: Path | None) -> bytes | None:
    async with _seen(folder, top) as seen:
        if seen is None:
            return None
        below = ("--", seen.prefix) if seen.prefix else ()
        done = await seen.git("ls-files", "-z", *words, *below)
    if not done.ok:
        return None
    return _without(done.stdout, os.fsencode(seen.prefix)) if seen.prefix else done.stdout


def _without(listed: bytes, prefix: bytes) -> bytes:
    """Return lines of `ls-files` with paths relative to a folder."""
    lines = []
    for line in listed.split(b"\0"):
        facts, tab, path = line.rpartition(b"\t")
        lines.append(facts + tab + path.removeprefix(prefix))
    return b"\0".join(lines)


class Listed(NamedTuple):
    """Output of `ls-files -s`: `belonging`, and the paths that are left out (a folder as one, with
    a slash)."""

    belonging: bytes
    ignored: list[str]

    @property
    def files(self) -> int:
        """Return the number of files that belong."""
        return self.belonging.count(b"\0")

    @property
    def nested(self) -> list[str]:
        """Return the paths that may be nested repositories: submodules, and untracked ones, which
        end with a slash."""
        # Most lists have neither, and this search takes a hundredth of the time of splitting lines.
        if _SUBMODULE not in b"\0" + self.belonging and b"/\0" not in self.belonging:
            return []
        lines = self.belonging.split(b"\0")
        found = [line for line in lines if line.endswith(b"/") or line.startswith(_SUBMODULE[1:])]
        return [os.fsdecode(line.rpartition(b"\t")[2]) for line in found]

    def holds(self, leaf: str) -> bool:
        """Return whether a file of this name is included, in any folder."""
        name = os.fsencode(leaf) + b"\0"
        return any(before + name in b"\0" + self.belonging for before in (b"\0", b"\t", b"/"))

    def names(self) -> list[str]:
        """Return the names that belong."""
        return [
            os.fsdecode(line.rpartition(b"\t")[2]) for line in self.belonging.split(b"\0") if line
        ]


async def listed(folder: Path, top: Path | None = None) -> Listed | None:
    """Return the list of `files_of`, unparsed, and the paths it leaves out, or None where git can't
    read it."""
    # Both commands walk over the same folders: together they take as long as one.
    belonging, left_out = await asyncio.gather(
        _ls_files(folder, "-c", "-o", "-s", "--exclude-standard", top=top),
        _list(folder, "-o", "-i", "--exclude-standard", "--directory", top=top),
    )
    return None if belonging is None or left_out is None else Listed(belonging, left_out)


async def ignored(folder: Path, names: Sequence[str], top: Path | None = None) -> set[str]:
    """Return the paths among these that the host's ignore files leave out. A folder's name ends
    with a slash.

    A path that git can't judge (below a symlink, for example) counts as not ignored: it is then
    asked about, never dropped.
    """
    async with _seen(folder, top) as seen:
        return set() if seen is None else await _ignored(seen, names)


async def _ignored(seen: _Seen, names: Sequence[str]) -> set[str]:
    out: set[str] = set()
    waiting = list(names)
    before = b"./" + os.fsencode(seen.prefix)
    for _ in range(MOST_RESTARTS):
        if not waiting:
            break
        # With `./` in front, no name is taken for a pathspec with magic (`:(glob)x`).
        text = b"".join(before + os.fsencode(name) + b"\0" for name in waiting)
        done = await seen.git(
            *("check-ignore", "--no-index", "--verbose", "--non-matching", "-z", "--stdin"),
            stdin=text,
        )
        # Four fields each: source, line, pattern, path; no source: no pattern matched; `!`: matched
        # to be kept.
        fields = done.stdout.split(b"\0")
        answered = 0
        for at in range(0, len(fields) - 4, 4):
            source, _, pattern, path = fields[at : at + 4]
            answered += 1
            if source and not pattern.startswith(b"!"):
                out.add(os.fsdecode(path.removeprefix(before)))
        if done.exit_code in (0, 1):
            break
        waiting = waiting[answered + 1 :]  # it ends at the first path that it refuses
    return out


async def pack_all(repository: Path, git: GitFolder, target: Path) -> bool:
    """Write every object that the repository's refs and index reach as packs into `target`. Return
    whether that worked."""
    async with view_of(HostRepository(repository, git), logs=True) as view:
        done = await run_git(
            view,
            *("pack-objects", "--all", "--reflog", "--indexed-objects", "-q"),
            str(target / "pack"),
            stdin=b"",
            timeout_s=30 * GIT_TIMEOUT_S,
        )
    return done.ok


def is_left_out(name: str) -> bool:
    """Return whether a path is a folder left out by default, or lies in one; for folders that git
    doesn't know. A folder's name ends with a slash."""
    return not LEFT_OUT.isdisjoint(name.split("/")[:-1])
