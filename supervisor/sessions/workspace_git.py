"""Ask git about the host's repository: its remotes, and the base of a review.

It is separate from `app.session_parts`, which starts a session with the answers. It must never run
what the repository configures, nor reveal a password in a remote's URL.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from supervisor import settings as environment
from supervisor.base.process import Completed, run
from supervisor.errors import UserError

GIT_S = 30.0
# Of two commits: no filter of the working tree's is run, no converter and no other differ.
_SAFE_DIFF = (
    *("-c", "core.quotePath=false", "--literal-pathspecs", "diff"),
    *("--no-color", "--no-ext-diff", "--no-textconv"),
    *("--src-prefix=a/", "--dst-prefix=b/", "--submodule=short", "--find-renames"),
)
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]*@")


async def remotes(workspace: Path) -> tuple[str, ...]:
    """Return the names and URLs of the remotes that the host's repository knows; empty outside
    one."""
    listed = await _git(workspace, "config", "--null", "--get-regexp", r"^remote\..*\.url$")
    found: dict[str, None] = {}
    for entry in listed.stdout.decode(errors="replace").split("\0"):
        key, _, url = entry.partition("\n")
        if url:
            # Without `user:password@`: this is stored and shown, and nothing that an agent asks for
            # needs the password.
            found |= {
                key.removeprefix("remote.").removesuffix(".url"): None,
                _CREDENTIALS.sub("", url): None,
            }
    return tuple(found)


async def checked_base(workspace: Path, base: str | None) -> str | None:
    """Return the base revision, `auto` where none was given, None outside a git repository."""
    inside = await _git(workspace, "rev-parse", "--git-dir")
    if not inside.ok:
        if base not in (None, "none"):
            raise UserError(
                f"`{workspace}` is no git repository, so it has no base `{base}`",
                "leave --base out",
            )
        return None
    if base in (None, "auto", "none"):
        return base or "auto"
    found = await _git(
        workspace, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{base}^{{commit}}"
    )
    if not found.ok:
        raise UserError(
            f"the base `{base}` is no revision of `{workspace}`", "give a branch, a tag or a commit"
        )
    return base


async def head(workspace: Path) -> str | None:
    """Return the commit that is checked out; None outside a repository, and before its first."""
    found = await _git(workspace, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    return found.stdout.decode().strip() if found.ok else None


async def change(
    workspace: Path, base: str | None, limit_bytes: int, *, since: str = "", paths: Sequence[str]
) -> dict[str, Any]:
    """Return what a commit changed since another: `base`, `head`, `files`, `summary`, and of the
    `diff` so many bytes. The diff is `since` another commit where that is named, and of some paths
    only where there are any. Without a commit to begin with it is the files alone."""
    start, end = await _commit(workspace, base or ""), await head(workspace)
    if base in (None, "auto", "none") or start is None or end is None:
        return {"base": None, "head": end, "files": [], "summary": "no base to compare with"}
    between = ("--end-of-options", start, end, "--")
    names = await _git(workspace, *_SAFE_DIFF, "--name-only", "-z", *between)
    counts = await _git(workspace, *_SAFE_DIFF, "--shortstat", *between)
    shown = ("--end-of-options", (await _commit(workspace, since) if since else "") or start, end)
    diff = await _git(workspace, *_SAFE_DIFF, *shown, "--", *paths, limit_bytes=limit_bytes)
    text = diff.stdout.decode(errors="replace")
    return {
        "base": start,
        "head": end,
        "files": [one for one in names.stdout.decode(errors="replace").split("\0") if one],
        "summary": counts.stdout.decode(errors="replace").strip() or "no file differs",
        "diff": f"{text}\n[cut: the diff is longer]" if diff.truncated else text,
    }


async def _commit(workspace: Path, revision: str) -> str | None:
    found = await _git(
        workspace, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"
    )
    return found.stdout.decode().strip() if found.ok else None


async def identity() -> dict[str, str]:
    """Return the variables that give a commit the person's name and e-mail, as their own git has
    them."""
    found: dict[str, str] = {}
    for key, names in (("user.name", "NAME"), ("user.email", "EMAIL")):
        words = ("git", "config", "--global", "--get", key)
        said = await run(words, env=environment.for_own_git(), cwd="/", timeout_s=GIT_S)
        if value := said.stdout.decode(errors="replace").strip():
            found |= {f"GIT_{who}_{names}": value for who in ("AUTHOR", "COMMITTER")}
    return found


async def _git(workspace: Path, *words: str, limit_bytes: int = 16 << 20) -> Completed:
    """Ask git about the host's repository: nothing that the repository configures is run."""
    env = environment.inherited("PATH") | {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }
    harmless = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
    return await run(
        ("git", "-C", str(workspace), *harmless, *words),
        env=env,
        timeout_s=GIT_S,
        output_limit_bytes=limit_bytes,
    )
