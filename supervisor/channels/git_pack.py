"""Takes commits out of a private copy: git runs in a tool sandbox there and only yields a pack.

It is separate from `git_staging`, which stores the pack, because this is the one side that runs
with the agent's configuration. It must never give the sandbox a network.
"""

import asyncio
import shlex
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from supervisor.channels.exec import SpecFor
from supervisor.channels.git_staging import LoginFor, Staging
from supervisor.core.actions import Exec
from supervisor.core.text.ref_names import is_full, is_oid
from supervisor.errors import RefusedError
from supervisor.sandbox.base import Sandbox

PACK_S = 120.0
# Commits that the other side has: what they reach is left out of a pack. They are arguments of one
# program, whose length is bounded.
MOST_KNOWN = 500
# Printed in the sandbox before the pack: an object id and a full name for each source. A bare name
# is a branch or a tag, whatever else git would take it for.
_PACK = """
set -euo pipefail
for source in {sources}; do
  full=$source
  case $source in HEAD|refs/*) ;; *)
    for one in "refs/heads/$source" "refs/tags/$source"; do
      git show-ref --verify --quiet -- "$one" || continue
      [ "$full" = "$source" ] ||
        {{ echo "$source is a branch and a tag: say refs/heads/ or refs/tags/" >&2; exit 3; }}
      full=$one
    done
  esac
  id=$(git rev-parse --verify --quiet "$full") ||
    {{ echo "no branch or tag is called $source" >&2; exit 3; }}
  name=$(git rev-parse --symbolic-full-name "$full")
  echo "$id ${{name:--}}"
  ids="${{ids-}}$id
"
done
echo
{{ printf %s "$ids"
  for known in {known}; do ! git cat-file -e "$known" 2>/dev/null || echo "^$known"; done
}} | git pack-objects --revs --thin --stdout --delta-base-offset --quiet
"""


_PUT = """
set -euo pipefail
[ ! -s {pack} ] || git index-pack --stdin --fix-thin --strict < {pack} > /dev/null
printf %s {updates} | git update-ref --stdin
"""
_PULL = """
set -euo pipefail
ref={ref}
[ -n "$ref" ] || ref=refs/remotes/{remote}/$(git symbolic-ref --short HEAD)
git pull {joins} . "$ref" 2>&1
"""
# What differs from a commit, in it or beside it, ignored files left out.
_CHANGED = """
set -euo pipefail
git diff --name-only --no-renames --no-ext-diff -z {base} --
git ls-files --others --exclude-standard -z
"""
# All of that but `outside` as one commit, whatever was committed since.
_COMMIT = """
set -euo pipefail
git config user.email > /dev/null ||
  export GIT_AUTHOR_NAME=Gatehouse GIT_AUTHOR_EMAIL=gatehouse@localhost
git config user.email > /dev/null ||
  export GIT_COMMITTER_NAME=Gatehouse GIT_COMMITTER_EMAIL=gatehouse@localhost
git checkout --quiet -B {branch}
git reset --quiet --soft {base}
git add --all
[ -z {first} ] || git reset --quiet {base} -- {outside}
git -c core.hooksPath=/dev/null -c commit.gpgSign=false commit --quiet --no-verify -m {message}
"""
_FETCHED = "/run/gatehouse/fetched.pack"


class CopiedHead(NamedTuple):
    """What a name in the private copy stands for: an object id, and the full name of a ref, `-`
    where it is none."""

    oid: str
    ref: str


class CopiedCommits:
    """`spec_for(session_id, action)` describes a tool sandbox; `host_folder(session_id)` is the
    workspace, `own_folder(session_id)` where the session's staging repositories are kept."""

    def __init__(
        self,
        sandbox: Sandbox,
        spec_for: SpecFor,
        host_folder: Callable[[str], Path],
        own_folder: Callable[[str], Path],
        login_for: LoginFor,
    ) -> None:
        self._login_for = login_for
        self._sandbox = sandbox
        self._spec_for = spec_for
        self._host_folder = host_folder
        self._own_folder = own_folder

    async def staging(self, session_id: str, cwd: str) -> Staging:
        """Return the staging repository for the repository that a folder of the workspace is in.
        `RefusedError` where the folder is a link that leads out of it."""
        workspace = self._host_folder(session_id)
        there = workspace / cwd
        if not there.resolve().is_relative_to(workspace.resolve()):
            raise RefusedError(f"`{cwd}` leads out of the workspace", "name a folder in it")
        folder = self._own_folder(session_id) / "git"
        folder.mkdir(parents=True, exist_ok=True)
        name = "root" if cwd in ("", ".") else cwd.replace("/", "%2F")
        staging = Staging(folder / f"{name}.git", there, self._login_for)
        await staging.open()
        return staging

    async def pack(
        self, session_id: str, cwd: str, sources: list[str], known: list[str]
    ) -> tuple[dict[str, CopiedHead], bytes]:
        """Return what each source stands for, and a pack of what these reach and `known` doesn't.
        `RefusedError` where a source is nothing, or it is too much."""
        script = _PACK.format(sources=shlex.join(sources), known=shlex.join(known))
        made = await self._run(session_id, cwd, script, "git can't pack these commits")
        head, _, pack = made.partition(b"\n\n")
        lines = head.decode(errors="replace").split("\n")
        if len(lines) != len(sources):
            raise RefusedError("the copy says nothing readable of its refs", "see its refs")
        heads = {}
        for source, line in zip(sources, lines, strict=True):
            oid, _, name = line.partition(" ")
            if not is_oid(oid):
                raise RefusedError(f"`{source}` is no object", "name a branch or a tag")
            heads[source] = CopiedHead(oid, name if is_full(name) else "-")
        return heads, pack

    async def tips(self, session_id: str, cwd: str) -> list[str]:
        """Return the commits that the copy's refs stand for, the first of them: what the copy has,
        as it says itself."""
        script = f"git for-each-ref --count={MOST_KNOWN} --format='%(objectname)'"
        listed = await self._run(session_id, cwd, script, "the copy's refs can't be read")
        return [one for one in listed.decode(errors="replace").split() if is_oid(one)]

    async def changed(self, session_id: str, base: str) -> list[str]:
        """Return the paths of the copy that differ from a commit."""
        script = _CHANGED.format(base=shlex.quote(base))
        listed = await self._run(session_id, ".", script, "the changed files can't be read")
        names = listed.decode(errors="surrogateescape").split("\0")
        return list(dict.fromkeys(filter(None, names)))

    async def commit(
        self, session_id: str, branch: str, base: str, message: str, outside: Sequence[str]
    ) -> None:
        """Make one commit of all that differs from `base`, but for the paths `outside`, and check
        it out as `branch`."""
        words = {
            "branch": shlex.quote(branch),
            "base": shlex.quote(base),
            "message": shlex.quote(message),
            "outside": shlex.join(outside),
            "first": shlex.quote(outside[0] if outside else ""),
        }
        await self._run(session_id, ".", _COMMIT.format(**words), "git can't commit the changes")

    async def put(self, session_id: str, cwd: str, pack: bytes, refs: dict[str, str]) -> None:
        """Store a pack in the copy, and set these refs to their object ids."""
        updates = "".join(f"update {ref} {oid}\n" for ref, oid in refs.items())
        script = _PUT.format(pack=_FETCHED, updates=shlex.quote(updates))
        with tempfile.NamedTemporaryFile(dir=self._own_folder(session_id) / "git") as file:
            await asyncio.to_thread(file.write, pack)
            file.flush()
            await self._run(
                *(session_id, cwd, script, "git can't store what came"),
                binds=((Path(file.name), _FETCHED),),
            )

    async def pull(self, session_id: str, cwd: str, remote: str, ref: str, joins: list[str]) -> str:
        """Join a ref that was put here, or the checked-out branch's, with what is checked out.
        Return what git says."""
        words = {"ref": shlex.quote(ref), "remote": shlex.quote(remote), "joins": shlex.join(joins)}
        said = await self._run(session_id, cwd, _PULL.format(**words), "fetched, but not merged")
        return said.decode(errors="replace")

    async def _run(
        self,
        session_id: str,
        cwd: str,
        script: str,
        problem: str,
        binds: tuple[tuple[Path, str], ...] = (),
    ) -> bytes:
        """Run a script in the copy, without a network. Return its output."""
        spec = self._spec_for(session_id, Exec(command=script, cwd=cwd))
        spec = msgspec.structs.replace(
            spec, ports=(), redirected=False, readonly_binds=(*spec.readonly_binds, *binds)
        )
        made = await self._sandbox.run_tool(spec, timeout_s=PACK_S)
        if made.truncated:
            limit = spec.limits.output_bytes
            raise RefusedError(f"{problem}: it is larger than {limit} bytes", "do less at once")
        if made.exit_code != 0:
            said = made.killed_why or (made.stderr or made.stdout).decode(errors="replace").strip()
            raise RefusedError(f"{problem}: {said[-2000:]}", "see `git log` in your copy")
        return made.stdout
