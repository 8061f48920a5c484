"""Ask git about the host's repository: its remotes, and the base of a review.

Git reads a view of the repository (`repository_view`), so nothing that the repository configures
runs. It must never reveal a password in a remote's URL.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from supervisor.core.git import remote_helper
from supervisor.core.git.remote_addresses import protocol_of, remotes_in, shown_url
from supervisor.core.git.remote_helper import KnownRemote
from supervisor.errors import UserError
from supervisor.git.host_repository import (
    HostRepository,
    config_of,
    repository_at,
    repository_of,
    submodule_paths,
)
from supervisor.git.repository_view import config_lines, view_of
from supervisor.git.run_git import SAFE_DIFF, GitPlace, run_git

MOST_REPOSITORIES = 100


async def remotes(workspace: Path) -> tuple[str, ...]:
    """Return names and URLs of the host repository's remotes; empty outside a repository."""
    repository = await asyncio.to_thread(repository_of, workspace)
    if repository is None:
        return ()
    found: dict[str, None] = {}
    for name, addresses in remotes_in(await config_of(repository.git)).remotes.items():
        # Without `user:password@`: this is stored and shown, and nothing that an agent asks for
        # needs the password.
        found |= {name: None} | {shown_url(url): None for url in addresses.urls}
    return tuple(found)


async def checked_base(workspace: Path, base: str | None) -> str | None:
    """Return the base revision, `auto` where none was given, None outside a git repository."""
    repository = await asyncio.to_thread(repository_of, workspace)
    if repository is None:
        if base not in (None, "none"):
            raise UserError(
                f"`{workspace}` is no git repository, so it has no base `{base}`",
                "leave --base out",
            )
        return None
    if base in (None, "auto", "none"):
        return base or "auto"
    async with view_of(repository) as view:
        if await _commit(view, base) is None:
            raise UserError(
                f"the base `{base}` is no revision of `{workspace}`",
                "give a branch, a tag or a commit",
            )
    return base


async def head(workspace: Path) -> str | None:
    """Return the commit that is checked out; None outside a repository, and before its first."""
    repository = await asyncio.to_thread(repository_of, workspace)
    if repository is None:
        return None
    async with view_of(repository) as view:
        return await _commit(view, "HEAD")


async def change(
    workspace: Path, base: str | None, limit_bytes: int, *, since: str = "", paths: Sequence[str]
) -> dict[str, Any]:
    """Return a commit's changes since another: `base`, `head`, `files`, `summary`, the first bytes
    of the `diff`, whether it `is_cut`, and which files it covers. The diff starts at `since` if
    given, and is limited to paths if any are given. Without a base it has the files alone.
    """
    repository = await asyncio.to_thread(repository_of, workspace)
    if repository is None:
        return _nothing(None)
    async with view_of(repository) as view:
        start, end = await _commit(view, base or ""), await _commit(view, "HEAD")
        if base in (None, "auto", "none") or start is None or end is None:
            return _nothing(end)
        between = ("--end-of-options", start, end, "--")
        names = await run_git(view, *SAFE_DIFF, "--name-only", "-z", *between)
        counts = await run_git(view, *SAFE_DIFF, "--shortstat", *between)
        earlier = await _commit(view, since) if since else None
        shown = ("--end-of-options", earlier or start, end)
        diff = await run_git(view, *SAFE_DIFF, *shown, "--", *paths, limit_bytes=limit_bytes)
        about = await run_git(view, *SAFE_DIFF, "--name-only", "-z", *shown, "--", *paths)
    if not (names.ok and counts.ok and about.ok and (diff.ok or diff.truncated)):
        said = diff.stderr.decode(errors="replace").strip()[-300:]
        raise UserError(f"the change can't be read: {said}", "see what git says in your repository")
    return {
        "base": start,
        "head": end,
        "files": _split(names.stdout),
        "summary": counts.stdout.decode(errors="replace").strip() or "no file differs",
        "diff": diff.stdout.decode(errors="replace"),
        "diff_files": _split(about.stdout),
        "is_cut": diff.truncated,
    }


def _split(names: bytes) -> list[str]:
    return [one for one in names.decode(errors="replace").split("\0") if one]


def _nothing(end: str | None) -> dict[str, Any]:
    return {"base": None, "head": end, "files": [], "summary": "no base to compare with"}


async def _commit(view: GitPlace, revision: str) -> str | None:
    found = await run_git(
        view, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"
    )
    return found.stdout.decode().strip() if found.ok else None


async def sandbox_config(workspace: Path) -> str:
    """Return the text of the configuration that git has in a session's sandboxes: the person's name
    and e-mail, and the remotes that the workspace's repositories have now."""
    identity: dict[str, str] = {}
    for key in ("user.name", "user.email"):
        said = await run_git(None, "config", "--global", "--get", key, as_person=True)
        if value := said.stdout.decode(errors="replace").strip():
            identity[key] = value
    values = remote_helper.sandbox_config(identity, await _known_remotes(workspace))
    return "".join(f"{line}\n" for pair in values for line in config_lines(*pair))


async def _known_remotes(workspace: Path) -> list[KnownRemote]:
    """Return the remotes of the workspace's repository and its submodules, without those inside the
    workspace, which git reaches by itself in the copy."""
    found, folders = list[KnownRemote](), ["."]
    for folder in folders:
        repository = await repository_at(workspace, folder)
        if not isinstance(repository, HostRepository) or repository.top != workspace / folder:
            continue
        for name, addresses in remotes_in(await config_of(repository.git)).remotes.items():
            found += [
                KnownRemote(folder, name, shown_url(url))
                for url in addresses.urls
                if _leads_out(url, repository.top, workspace)
            ]
        inner = [str(Path(folder) / one) for one in await submodule_paths(repository)]
        folders += inner[: MOST_REPOSITORIES - len(folders)]
    return found


def _leads_out(url: str, top: Path, workspace: Path) -> bool:
    try:
        if protocol_of(url) != "file":
            return True
    except ValueError:
        return False
    place = (top / unquote(url.removeprefix("file://"))).resolve()
    return not place.is_relative_to(workspace)
