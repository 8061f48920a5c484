"""Find the host's repository of a folder, and read it as data.

No git looks for it: a folder that only looks like a repository (an embedded bare one, HEAD and
objects that were tracked) isn't one, and one that another user owns isn't either. What stands in
its files is bounded, never read through a link, and never configures anything here.
"""

import asyncio
import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from supervisor.base.plain_files import read_small
from supervisor.errors import GatehouseError
from supervisor.git.run_git import run_git

MOST_POINTER_BYTES = 8192
MOST_CONFIG_BYTES = 1 << 20
type ConfigValues = list[tuple[str, str]]
# How git says yes in a configuration (git-config(1)).
YES = ("true", "yes", "on", "1")


class GitFolder(msgspec.Struct, frozen=True):
    """Folders of a repository: `common` for all worktrees, `own` for this one (None: it is the only
    one)."""

    common: Path
    own: Path | None = None

    @property
    def here(self) -> Path:
        """The folder with this worktree's HEAD and index."""
        return self.own or self.common


class HostRepository(msgspec.Struct, frozen=True):
    """A repository, and the folder of its files."""

    top: Path
    git: GitFolder


def git_folder_of(repository: Path) -> GitFolder | str | None:
    """Return the git folder of this very folder (a repository around it doesn't count); why, where
    it can't be used, or None."""
    pointer = repository / ".git"
    try:
        status = pointer.lstat()
    except OSError:
        return None
    if stat.S_ISDIR(status.st_mode):
        return (
            GitFolder(pointer)
            if (pointer / "HEAD").exists() and (pointer / "objects").is_dir()
            else None
        )
    text = _text_of(pointer)
    if text is None:
        return f"`{pointer}` is neither a folder nor a pointer of git's"
    if not text.startswith("gitdir: "):
        return f"`{pointer}` is not a pointer of git's"
    own = (repository / text.removeprefix("gitdir: ").rstrip("\n")).resolve()
    # INVARIANT: a pointer is followed only where its target points back. A folder from elsewhere
    # must not be able to name any repository of the user's and have it copied to where the agent
    # reads it.
    if (line := _first_line(own / "commondir")) is not None:
        common = (own / line).resolve()
        back = own / (_first_line(own / "gitdir") or "")
        if back.parent.resolve() / back.name == pointer and own.parent == common / "worktrees":
            return GitFolder(common, own)
    elif (back_to := _worktree_of(own)) is not None and (own / back_to).resolve() == repository:
        return GitFolder(own)
    return f"`{pointer}` points to `{own}`, which does not point back"


def repository_of(folder: Path) -> HostRepository | None:
    """Return the repository that a folder is the top of, or lies in: the nearest one, whoever owns
    it. None where there is none, it can't be used, or its owner is neither us nor the folder's."""
    folder = folder.resolve()
    top = next((one for one in (folder, *folder.parents) if os.path.lexists(one / ".git")), None)
    if top is None or not isinstance(found := git_folder_of(top), GitFolder):
        return None
    places = {top / ".git", found.common, found.here}
    try:
        owners = {os.geteuid(), folder.stat().st_uid}
        is_theirs = all(one.lstat().st_uid in owners for one in places)
    except OSError:
        return None
    return HostRepository(top, found) if is_theirs else None


async def config_of(git: GitFolder) -> ConfigValues:
    """Return keys, in lower case but for their middle part, and values of a repository's own
    configuration: nothing that it includes, nobody else's."""
    values = await _values(git.common / "config")
    if any(key == "extensions.worktreeconfig" and value.lower() in YES for key, value in values):
        values += await _values(git.here / "config.worktree")
    return values


async def submodule_paths(repository: HostRepository) -> dict[str, str]:
    """Return the paths of the submodules that the tree registers, with their names."""
    values = await _values(repository.top / ".gitmodules")
    return {
        value: key.removeprefix("submodule.").removesuffix(".path")
        for key, value in values
        if key.startswith("submodule.") and key.endswith(".path")
    }


async def repository_at(workspace: Path, cwd: str) -> HostRepository | str:
    """Return the workspace's own repository, or the registered submodule that a folder of the
    workspace is in; else why there is none.

    INVARIANT: a submodule counts where `.gitmodules` says so and its git folder is the one that git
    made below its parent's: a tree can't bring that.
    """
    found = await asyncio.to_thread(repository_of, workspace)
    if found is None:
        return "the workspace is no git repository"
    for here in await asyncio.to_thread(_repositories_on_way, workspace, cwd):
        name = (await submodule_paths(found)).get(str(here.relative_to(found.top)), "")
        inner = await asyncio.to_thread(_submodule, found, here, name)
        if inner is None:
            return f"`{cwd}` is in a repository of its own, no registered submodule of yours"
        found = inner
    return found


def _repositories_on_way(workspace: Path, cwd: str) -> list[Path]:
    here, found = workspace.resolve(), []
    for part in Path(cwd).parts:
        here /= part
        if os.path.lexists(here / ".git"):
            found.append(here)
    return found


def _submodule(parent: HostRepository, folder: Path, name: str) -> HostRepository | None:
    modules = parent.git.here / "modules"  # of a worktree, its own
    if not name or ".." in Path(name).parts or (modules / name).resolve() != modules / name:
        return None
    own = git_folder_of(folder)
    return HostRepository(folder, own) if own == GitFolder(modules / name) else None


def borrowed_from(objects: Path) -> bool:
    """Return whether the objects' folder borrows from others. `GatehouseError` where a list of
    these is no plain, short file: git would read it to its end."""
    waiting, seen = [objects], set[Path]()
    while waiting and len(seen) < 64:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        path = one / "info" / "alternates"
        if os.path.lexists(path):
            try:
                text = os.fsdecode(read_small(path, MOST_CONFIG_BYTES))
            except OSError as error:
                raise GatehouseError(f"`{path}` can't be used: {error.strerror}") from error
            waiting += [one / line for line in text.split("\n") if line and line[0] not in '#"']
    return len(seen) > 1


def checked_out(git: GitFolder) -> set[str]:
    """Return the full names of the branches that work trees have checked out."""
    found = set()
    with contextlib.suppress(OSError):
        trees = [git.common, *_folders(git.common / "worktrees")]
        for one in trees:
            line = _first_line(one / "HEAD") or ""
            if line.startswith("ref: "):
                found.add(line.removeprefix("ref: ").strip())
    return found


def _folders(parent: Path) -> Iterator[Path]:
    if parent.is_dir() and not parent.is_symlink():
        yield from parent.iterdir()


async def _values(config: Path) -> ConfigValues:
    try:
        data = await asyncio.to_thread(read_small, config, MOST_CONFIG_BYTES)
    except OSError:
        return []
    done = await run_git(None, "config", "--file", "-", "--no-includes", "--list", "-z", stdin=data)
    found = (item.partition("\n") for item in done.stdout.decode("utf-8", "replace").split("\0"))
    return [(key, value) for key, separator, value in found if separator]


def _worktree_of(folder: Path) -> str | None:
    """`core.worktree` of a submodule's configuration, as git writes it."""
    for line in (_text_of(folder / "config") or "").split("\n"):
        key, separator, value = line.partition("=")
        if separator and key.strip().lower() == "worktree":
            return value.strip().strip('"')
    return None


def _first_line(path: Path) -> str | None:
    text = _text_of(path)
    return None if text is None else text.split("\n", 1)[0]


def _text_of(path: Path) -> str | None:
    try:
        return read_small(path, MOST_CONFIG_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
