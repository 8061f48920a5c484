"""Takes commits out of a private copy: git runs in a tool sandbox there and only yields a pack.

It is separate from `git_staging`, which stores the pack, because this is the one side that runs
with the agent's configuration. It must never give the sandbox a network.
"""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from supervisor.channels.exec import SpecFor
from supervisor.channels.git_staging import Staging, is_oid
from supervisor.core.actions import Exec
from supervisor.errors import RefusedError
from supervisor.sandbox.base import Sandbox

PACK_S = 120.0
# Commits that the other side has: what they reach is left out of a pack. They are arguments of one
# program, whose length is bounded.
MOST_KNOWN = 500
# Printed in the sandbox before the pack: an object id and a full name for each source.
_PACK = """
set -euo pipefail
for source in {sources}; do
  id=$(git rev-parse --verify --quiet "$source") ||
    {{ echo "no branch or tag is called $source" >&2; exit 3; }}
  name=$(git rev-parse --symbolic-full-name "$source")
  echo "$id ${{name:--}}"
  ids="${{ids-}}$id
"
done
echo
{{ printf %s "$ids"
  for known in {known}; do ! git cat-file -e "$known" 2>/dev/null || echo "^$known"; done
}} | git pack-objects --revs --thin --stdout --delta-base-offset --quiet
"""


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
    ) -> None:
        self._sandbox = sandbox
        self._spec_for = spec_for
        self._host_folder = host_folder
        self._own_folder = own_folder

    async def staging(self, session_id: str, cwd: str) -> Staging:
        """Return the staging repository for the repository that a folder of the workspace is in."""
        folder = self._own_folder(session_id) / "git"
        folder.mkdir(parents=True, exist_ok=True)
        name = "root" if cwd in ("", ".") else cwd.replace("/", "%2F")
        staging = Staging(folder / f"{name}.git", self._host_folder(session_id) / cwd)
        await staging.open()
        return staging

    async def pack(
        self, session_id: str, cwd: str, sources: list[str], known: list[str]
    ) -> tuple[dict[str, CopiedHead], bytes]:
        """Return what each source stands for, and a pack of what these reach and `known` doesn't.
        `RefusedError` where a source is nothing, or it is too much."""
        script = _PACK.format(sources=shlex.join(sources), known=shlex.join(known))
        spec = msgspec.structs.replace(
            self._spec_for(session_id, Exec(command=script, cwd=cwd)), ports=(), redirected=False
        )
        made = await self._sandbox.run_tool(spec, timeout_s=PACK_S)
        if made.truncated:
            raise RefusedError(
                f"the commits are larger than {spec.limits.output_bytes} bytes together",
                "push fewer at once",
            )
        if made.exit_code != 0:
            said = made.killed_why or made.stderr.decode(errors="replace").strip()[-500:]
            raise RefusedError(
                f"git can't pack these commits: {said}", "see `git log` in your copy"
            )
        head, _, pack = made.stdout.partition(b"\n\n")
        heads = {}
        for source, line in zip(sources, head.decode(errors="replace").split("\n"), strict=True):
            oid, _, name = line.partition(" ")
            if not is_oid(oid):
                raise RefusedError(f"`{source}` is no object", "name a branch or a tag")
            heads[source] = CopiedHead(oid, name)
        return heads, pack
