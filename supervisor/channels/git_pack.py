"""Takes commits out of a private copy: git runs in a tool sandbox there and only yields a pack.

This is the one side that runs with the agent's configuration. It must never give the sandbox a
network.
"""

import asyncio
import hashlib
import os
import shlex
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from supervisor.channels.exec import SpecFor
from supervisor.channels.git_staging import LoginFor, Staging
from supervisor.core.actions import Exec
from supervisor.core.git.scoped_commit import CommittedFile
from supervisor.core.jobs import Changed
from supervisor.core.text.ref_names import is_full, is_oid
from supervisor.errors import RefusedError
from supervisor.git.host_repository import repository_at
from supervisor.sandbox.base import Sandbox

PACK_S = 120.0
MOST_TEXT_BYTES = 16 << 20
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
git update-ref --stdin < {updates}
"""
_PULL = """
set -euo pipefail
ref={ref}
[ -n "$ref" ] || ref=refs/remotes/{remote}/$(git symbolic-ref --short HEAD)
git pull {joins} . "$ref" 2>&1
"""
_FETCHED = "/run/gatehouse/fetched.pack"
_MOVED = "/run/gatehouse/moved-refs"


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
        `RefusedError` where the folder is a link that leads out of it, or in a repository that
        isn't the workspace's own."""
        workspace = self._host_folder(session_id).resolve()
        there = (workspace / cwd).resolve()
        if not there.is_relative_to(workspace):
            raise RefusedError(f"`{cwd}` leads out of the workspace", "name a folder in it")
        host = await repository_at(workspace, str(there.relative_to(workspace)))
        if isinstance(host, str):
            raise RefusedError(host, "push from the workspace's own repository")
        if workspace != host.top and workspace.is_relative_to(host.top):
            raise RefusedError(
                "the workspace is a part of a repository, so git doesn't work in its copy",
                f"start on `{host.top}` for commits and pushes",
            )
        folder = self._own_folder(session_id) / "git"
        folder.mkdir(parents=True, exist_ok=True)
        name = "root"
        if workspace != host.top:
            place = os.fsencode(host.top.relative_to(workspace))
            name = f"submodule-{hashlib.sha256(place).hexdigest()[:24]}"
        staging = Staging(folder / f"{name}.git", host, workspace, self._login_for)
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

    async def commit(
        self, session_id: str, base: str, message: str, author: str, files: Sequence[CommittedFile]
    ) -> tuple[str, list[Changed]]:
        """Make one commit of these files on `base`, of which nothing comes from the copy's git.
        Return it, and in what its tree differs from the base's, as objects say."""
        staging = await self.staging(session_id, ".")
        made = await staging.commit(base, message, author, files)
        return made, await staging.changes(base, made)

    async def keep_job(self, session_id: str, branch: str, oid: str) -> None:
        """Keep a commit as the job's branch: that is what is taken and pushed."""
        await (await self.staging(session_id, ".")).keep_job(branch, oid)

    async def texts(self, session_id: str, commit: str, paths: Iterable[str]) -> dict[str, str]:
        """Return files of a commit as text, by path; "" for what isn't there."""
        staging, found = await self.staging(session_id, "."), dict[str, str]()
        for path in paths:
            named = f"{commit}:{path}"
            try:
                data = await staging.read("cat-file", "blob", named, limit_bytes=MOST_TEXT_BYTES)
            except RefusedError:
                data = b""
            found[path] = data.decode(errors="replace")
        return found

    async def put(self, session_id: str, cwd: str, pack: bytes, refs: dict[str, str]) -> None:
        """Store a pack in the copy, and set these refs to their object ids."""
        updates = "".join(f"option no-deref\nupdate {ref} {oid}\n" for ref, oid in refs.items())
        script = _PUT.format(pack=_FETCHED, updates=_MOVED)
        with tempfile.TemporaryDirectory(dir=self._own_folder(session_id) / "git") as folder:
            # By files: there may be more than fits into a program's arguments.
            came, moved = Path(folder) / "pack", Path(folder) / "refs"
            await asyncio.to_thread(came.write_bytes, pack)
            await asyncio.to_thread(moved.write_text, updates)
            await self._run(
                *(session_id, cwd, script, "git can't store what came"),
                binds=((came, _FETCHED), (moved, _MOVED)),
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
