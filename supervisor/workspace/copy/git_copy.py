"""Self-contained `.git` for the copy, from a repository, worktree or submodule.

It decides which files of git's own folder are copied: objects, refs, index and state, all that
history and status need; never hooks, locks, other worktrees, or a configuration that names
programs, other files or credentials (that is rewritten from a list of harmless keys). It is
separate because `.git` is where a repository keeps what runs code and what points outside. It
must never follow a pointer that the other end doesn't confirm, and never write to the host.
"""

import asyncio
import os
import stat
from collections.abc import Set
from pathlib import Path

import msgspec

from supervisor.workspace.disk.git_files import clean_config, ignored, pack_all

_LONGEST_POINTER_BYTES = 8192
# Never copied, by their first component.
_LEFT_OUT = {
    "hooks",
    "worktrees",
    "modules",
    "config",
    "config.worktree",
    "commondir",
    "gitdir",
    "gc.pid",
    "locked",
}
# Entries of a common folder that belong to each worktree (gitrepository-layout(5)).
_PER_WORKTREE = (
    "index",
    "logs/HEAD",
    "info/sparse-checkout",
    "refs/bisect",
    "refs/worktree",
    "refs/rewritten",
)
_SHARED_FILES = {"description", "packed-refs", "shallow"}


class GitFolder(msgspec.Struct, frozen=True):
    """Folders of a repository: `common` for all worktrees, `own` for this one (None: it is the only
    one)."""

    common: Path
    own: Path | None = None

    def parts(self, *, without_objects: bool = False) -> list[tuple[Path, list[str]]]:
        """(folder, names to copy into the copy's `.git`), the second part's names apart from the
        first's."""
        apart = _LEFT_OUT | {"objects"} if without_objects else _LEFT_OUT
        if self.own is None:
            return [
                (
                    self.common,
                    [name for name in _walk(self.common, apart) if not _is_left_out(name)],
                )
            ]
        mine = [name for name in _walk(self.own, apart) if not _is_left_out(name)]
        taken = set(mine)
        shared = [
            name
            for name in _walk(self.common, apart)
            if not _is_left_out(name)
            and not _is_per_worktree(name)
            and (name not in taken or name.endswith("/"))
        ]
        return [(self.common, shared), (self.own, mine)]


async def find(repository: Path, notes: list[str]) -> GitFolder | None:
    """Return the git folder of this very folder (a repository around it doesn't count); None, with
    a note, where it can't be used."""
    found = await asyncio.to_thread(_find, repository)
    if isinstance(found, str):
        notes.append(found)
        return None
    return found


async def around(folder: Path) -> Path | None:
    """Return the repository around a folder without a `.git`; None where there is none, where it
    ignores the folder (as one of a whole home does), or where it is another user's: those would
    decide what is left out."""
    top = await asyncio.to_thread(_around, folder)
    if top is None or await ignored(top, [f"{folder.relative_to(top)}/"]):
        return None
    return top


async def finish(repository: Path, copy: Path) -> list[str]:
    """Write the copy's configuration, and fetch the objects that the repository borrows from
    another; notes."""
    target = copy / ".git"
    found = await asyncio.to_thread(_find, repository)
    if not isinstance(found, GitFolder) or not target.is_dir():
        return []
    config = await clean_config(
        found.common / "config", (found.own or found.common) / "config.worktree"
    )
    await asyncio.to_thread(_prepare, target, config)
    if (found.common / "objects/info/alternates").exists() and not await pack_all(
        repository, target / "objects/pack"
    ):
        return [
            f"objects that `{repository}` borrows from another repository could not be copied: its"
            " history is incomplete"
        ]
    return []


def _around(folder: Path) -> Path | None:
    if os.path.lexists(folder / ".git"):
        return None
    top = next((one for one in folder.parents if os.path.lexists(one / ".git")), None)
    if top is None or (top / ".git").lstat().st_uid != os.geteuid():
        return None
    return top if isinstance(_find(top), GitFolder) else None


def _find(repository: Path) -> GitFolder | str | None:
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
    if not stat.S_ISREG(status.st_mode) or status.st_size > _LONGEST_POINTER_BYTES:
        return (
            f"`{pointer}` is neither a folder nor a pointer of git's: copied without git features"
        )
    text = pointer.read_text("utf-8", "replace")
    if not text.startswith("gitdir: "):
        return f"`{pointer}` is not a pointer of git's: copied without git features"
    own = (repository / text.removeprefix("gitdir: ").rstrip("\n")).resolve()
    # INVARIANT: a pointer is followed only where its target points back. A folder from elsewhere
    # must not be able to name any repository of the user's and have it copied to where the agent
    # reads it.
    if _first_line(own / "commondir") is not None:
        common = (own / (_first_line(own / "commondir") or "")).resolve()
        back = own / (_first_line(own / "gitdir") or "")
        if back.parent.resolve() / back.name == pointer and own.parent == common / "worktrees":
            return GitFolder(common, own)
    elif (back_to := _worktree_of(own)) is not None and (own / back_to).resolve() == repository:
        return GitFolder(own)
    return f"`{pointer}` points to `{own}`, which does not point back: copied without git features"


def _worktree_of(folder: Path) -> str | None:
    """`core.worktree` of a submodule's configuration, as git writes it."""
    try:
        lines = (folder / "config").read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    for line in lines:
        key, separator, value = line.partition("=")
        if separator and key.strip().lower() == "worktree":
            return value.strip().strip('"')
    return None


def _first_line(path: Path) -> str | None:
    try:
        return path.read_text("utf-8", "replace").split("\n", 1)[0]
    except OSError:
        return None


def _walk(folder: Path, apart: Set[str]) -> list[str]:
    names: list[str] = []
    for at, folders, files in os.walk(folder, followlinks=False):
        inside = os.path.relpath(at, folder)
        prefix = "" if inside == "." else f"{inside}/"
        folders.sort()
        if not prefix:
            folders[:] = [name for name in folders if name not in apart]
        names += [f"{prefix}{name}/" for name in folders if not (Path(at) / name).is_symlink()]
        names += [prefix + name for name in files]
    return sorted(names)


def _is_left_out(name: str) -> bool:
    first = name.split("/", 1)[0]
    leaf = name.rstrip("/").rsplit("/", 1)[-1]
    return (
        first in _LEFT_OUT
        or first.startswith("fsmonitor--daemon")
        or leaf.endswith(".lock")
        or leaf.startswith("tmp_obj_")
        or name in ("objects/info/alternates", "objects/info/http-alternates")
    )


def _is_per_worktree(name: str) -> bool:
    if "/" not in name:
        return name not in _SHARED_FILES
    return any(name.rstrip("/") == own or name.startswith(f"{own}/") for own in _PER_WORKTREE)


def _prepare(target: Path, config: str) -> None:
    for name in ("objects/info", "objects/pack", "refs/heads", "refs/tags"):
        (target / name).mkdir(parents=True, exist_ok=True)
    (target / "config").write_text(config, "utf-8", errors="replace")
