"""Self-contained `.git` for the copy, from a repository, worktree or submodule.

It decides which files of git's own folder are copied: objects, refs, index and state, all that
history and status need. Never copied are hooks, locks, other worktrees, or a configuration that
names programs, other files or credentials (that is rewritten from a list of harmless keys). `.git`
is where a repository keeps code to run and pointers to the outside. It must never follow a pointer
that the other end doesn't confirm, and never write to the host.
"""

import asyncio
import os
import re
from collections.abc import Set
from pathlib import Path

from supervisor.core.git.remote_addresses import shown_url
from supervisor.errors import GatehouseError
from supervisor.git.host_repository import GitFolder, borrowed_from, config_of, git_folder_of
from supervisor.git.repository_view import config_lines
from supervisor.workspace.disk.git_files import ignored, pack_all

# The configuration keys that the copy keeps: those that its format and its branches need. Any other
# may name a program to run, a file elsewhere or a credential.
_KEPT_KEYS = re.compile(
    r"core\.(repositoryformatversion|filemode|symlinks|ignorecase|precomposeunicode|autocrlf|eol|safecrlf|sparsecheckout|sparsecheckoutcone)"
    r"|extensions\.(objectformat|refstorage|preciousobjects)"
    r"|user\.(name|email)|init\.defaultbranch|pull\.rebase|push\.default|merge\.conflictstyle|diff\.(algorithm|renames)"
    r"|remote\..+\.(url|fetch)|branch\..+\.(remote|merge|rebase)|submodule\..+\.(url|active|update)",
    re.IGNORECASE | re.DOTALL,
)
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


def parts(git: GitFolder, *, without_objects: bool = False) -> list[tuple[Path, list[str]]]:
    """Return (folder, names to copy into the copy's `.git`) pairs. No file is in both lists."""
    apart = _LEFT_OUT | {"objects"} if without_objects else _LEFT_OUT
    shared = [name for name in _walk(git.common, apart) if not _is_left_out(name)]
    if git.own is None:
        return [(git.common, shared)]
    mine = [name for name in _walk(git.own, apart) if not _is_left_out(name)]
    taken = set(mine)
    shared = [
        name
        for name in shared
        if not _is_per_worktree(name) and (name not in taken or name.endswith("/"))
    ]
    return [(git.common, shared), (git.own, mine)]


async def find(repository: Path, notes: list[str]) -> GitFolder | None:
    """Return the git folder of this very folder (a repository around it doesn't count). Return
    None, with a note, where it can't be used."""
    found = await asyncio.to_thread(git_folder_of, repository)
    if isinstance(found, str):
        notes.append(f"{found}: copied without git features")
        return None
    return found


async def around(folder: Path) -> Path | None:
    """Return the repository around a folder without a `.git`, or None where there is none. A
    repository that ignores the folder (as one of a whole home does), or that is another user's,
    doesn't count: it would decide what is left out."""
    top = await asyncio.to_thread(_around, folder)
    if top is None or await ignored(top, [f"{folder.relative_to(top)}/"]):
        return None
    return top


async def finish(repository: Path, copy: Path) -> list[str]:
    """Write the copy's configuration, and fetch the objects that the repository borrows from
    another. Return notes."""
    target = copy / ".git"
    found = await asyncio.to_thread(git_folder_of, repository)
    if not isinstance(found, GitFolder) or not target.is_dir():
        return []
    await asyncio.to_thread(_prepare, target, await _clean_config(found))
    try:
        is_whole = not await asyncio.to_thread(
            borrowed_from, found.common / "objects"
        ) or await pack_all(repository, found, target / "objects/pack")
    except GatehouseError:
        is_whole = False
    if is_whole:
        return []
    return [
        f"objects that `{repository}` borrows from another repository could not be copied: its"
        " history is incomplete"
    ]


async def _clean_config(git: GitFolder) -> str:
    """Return a repository's configuration with only `_KEPT_KEYS`, and without credentials in URLs.
    A worktree's own configuration counts: it may hold a sparse checkout."""
    lines: list[str] = []
    for key, value in await config_of(git):
        if _KEPT_KEYS.fullmatch(key):
            lines += config_lines(key, shown_url(value))
    return "\n".join(["[core]", "\tbare = false", *lines]) + "\n"


def _around(folder: Path) -> Path | None:
    if os.path.lexists(folder / ".git"):
        return None
    top = next((one for one in folder.parents if os.path.lexists(one / ".git")), None)
    if top is None or (top / ".git").lstat().st_uid != os.geteuid():
        return None
    return top if isinstance(git_folder_of(top), GitFolder) else None


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
        if not os.path.lexists(target / name):  # of a reftable `refs/heads` is a file
            (target / name).mkdir(parents=True)
    (target / "config").write_text(config, "utf-8", errors="replace")
