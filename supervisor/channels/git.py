"""Carries out approved pushes: exactly the objects that were shown, by the person's own git.

    asked      the commits are taken out of the private copy into a staging repository, and the
               action says which ref moves from what to what
    approved   git pushes these object ids, on condition that the remote is as it was shown

The agent's git runs in a tool sandbox and only yields a pack; git outside never reads the private
copy. The person's credentials are used outside alone: no sandbox sees them.
"""

import asyncio
import shlex
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import msgspec

from supervisor.base.process import Completed
from supervisor.channels.exec import SpecFor
from supervisor.channels.git_staging import Staging, is_oid, shown_url
from supervisor.channels.push_cards import push_card
from supervisor.core.actions import Exec, Git, RefUpdate
from supervisor.core.approvals import Request
from supervisor.core.git.push_card import PushCard
from supervisor.core.git.push_wishes import PushWish, push_wishes
from supervisor.errors import GatehouseError, RefusedError, UserError
from supervisor.gate.gate import Gate, Grant, Refused
from supervisor.sandbox.base import Sandbox

PACK_S = 120.0
MOST_SAID = 16_000
# git-push(1): what it says of a ref that isn't where the lease says.
STALE = "stale info"
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


class GitBroker:
    """`spec_for(session_id, action)` describes a tool sandbox; `host_folder(session_id)` is the
    workspace, `own_folder(session_id)` where the session's staging repositories are kept."""

    def __init__(
        self,
        gate: Gate,
        sandbox: Sandbox,
        spec_for: SpecFor,
        host_folder: Callable[[str], Path],
        own_folder: Callable[[str], Path],
    ) -> None:
        self._gate = gate
        self._sandbox = sandbox
        self._spec_for = spec_for
        self._host_folder = host_folder
        self._own_folder = own_folder
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def planned(self, session_id: str, action: Git) -> Git:
        """Return a push with exactly what it would do. `RefusedError` where it can't be done."""
        if action.operation != "push":
            raise RefusedError(
                f"`git {action.operation}` is not carried out",
                "push works; everything else works in your own copy",
            )
        try:
            wishes = push_wishes(action)
        except ValueError as error:
            raise RefusedError(str(error), "push branches or tags by their names") from error
        async with self._turns[session_id]:
            staging = await self._staging(session_id, action.cwd)
            url = await staging.remote_url(action.remote)
            updates = await self._updates(session_id, action, staging, url, wishes)
        return msgspec.structs.replace(action, url=shown_url(url), updates=updates)

    async def _staging(self, session_id: str, cwd: str) -> Staging:
        folder = self._own_folder(session_id) / "git"
        folder.mkdir(parents=True, exist_ok=True)
        name = "root" if cwd in ("", ".") else cwd.replace("/", "%2F")
        staging = Staging(folder / f"{name}.git", self._host_folder(session_id) / cwd)
        await staging.open()
        return staging

    async def _updates(
        self,
        session_id: str,
        action: Git,
        staging: Staging,
        url: str,
        wishes: tuple[PushWish, ...],
    ) -> tuple[RefUpdate, ...]:
        there = await staging.refs_at(url)
        known = sorted(set(there.values()))
        sources = [wish.source for wish in wishes if wish.source]
        heads: dict[str, tuple[str, str]] = {}
        pack = b""
        if sources:
            heads, pack = await self._pack(session_id, action.cwd, sources, known)
        updates = []
        for wish in wishes:
            new, name = heads.get(wish.source, ("", ""))
            ref = wish.target or name
            if not ref.startswith("refs/"):
                raise RefusedError(
                    f"`{wish.source}` is no branch or tag", "name one, as in `git push origin main`"
                )
            old = there.get(ref, "")
            if not wish.source and not old:
                raise RefusedError(f"the remote has no `{ref}` to delete", "nothing is to be done")
            if new != old:
                updates.append(RefUpdate(ref, old, new))
        if not updates:
            raise RefusedError("the remote has all of this already", "nothing is to be done")
        wanted = [one.ref for one in updates if one.old]
        await staging.fetch(url, wanted or (["HEAD"] if "HEAD" in there else []))
        if pack:
            have = [oid for oid in known if await staging.has(oid)]
            await staging.take_in(pack, [one.new for one in updates if one.new], have)
        for one in updates:
            rewrites = one.old and one.new and not await staging.is_ancestor(one.old, one.new)
            if rewrites and not action.force:
                raise RefusedError(
                    f"`{one.ref}` has commits at the remote that yours lacks",
                    "fetch and merge them first, or ask for a push with --force",
                )
        return tuple(updates)

    async def _pack(
        self, session_id: str, cwd: str, sources: list[str], known: list[str]
    ) -> tuple[dict[str, tuple[str, str]], bytes]:
        """Return by source its object id and full name, and a pack of what isn't known."""
        script = _PACK.format(sources=shlex.join(sources), known=shlex.join(known) or "")
        spec = self._spec_for(session_id, Exec(command=script, cwd=cwd, timeout_s=int(PACK_S)))
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
            heads[source] = (oid, name)
        return heads, pack

    async def card(self, request: Request) -> PushCard:
        """Return what a push would move, out of its staging repository. `UserError` where the
        request is none, or there is nothing of it."""
        action = request.action
        if not isinstance(action, Git) or not action.updates:
            raise UserError("this is no push that could be shown", "see what its request says")
        staging = await self._staging(request.session_id, action.cwd)
        return await push_card(staging, action, self._gate.redactor)

    async def carry_out(self, request: Request) -> None:
        """Push what a ready request shows, and settle it with what git and the remote said."""
        grant = self._gate.claim(request.id, request.session_id)
        if isinstance(grant, Refused):
            return
        action = self._gate.queue.action_of(request)
        assert isinstance(action, Git)
        try:
            async with self._turns[request.session_id]:
                done = await self._push(grant, action)
            facts = _facts(done)
            if not done.ok and STALE in str(facts["error"]):
                facts |= await self._asked_again(action, request)
        except GatehouseError as error:
            facts = {"error": str(error)}
        except asyncio.CancelledError:
            self._gate.settle(grant, "failed", {"error": "Gatehouse stopped during the push"})
            raise
        self._gate.settle(grant, "failed" if "error" in facts else "done", facts)

    async def _push(self, grant: Grant, action: Git) -> Completed:
        staging = await self._staging(grant.session_id, action.cwd)
        url = await staging.remote_url(action.remote)
        grant.use(msgspec.structs.replace(action, url=shown_url(url)))
        leases = [f"--force-with-lease={one.ref}:{one.old}" for one in action.updates]
        specs = [f"{one.new}:{one.ref}" for one in action.updates]
        return await staging.remotely(
            "push", "--porcelain", "--no-verify", *leases, "--end-of-options", url, *specs
        )

    async def _asked_again(self, action: Git, request: Request) -> dict[str, object]:
        """Ask for the same push anew, since the remote isn't as it was shown."""
        wanted = msgspec.structs.replace(action, url="", updates=())
        try:
            planned = await self.planned(request.session_id, wanted)
        except GatehouseError as error:
            return {"error": f"the remote changed since the push was shown, and now: {error}"}
        again = self._gate.ask(
            planned, session_id=request.session_id, reason=request.reason, origin=request.origin
        )
        said = f"the remote changed since the push was shown, so it is asked again as {again.id}"
        return {"error": said, "asked_again": again.id}


def _facts(done: Completed) -> dict[str, object]:
    """Return what git and the remote said of a push, whole."""
    texts = (text.decode(errors="replace").strip() for text in (done.stdout, done.stderr))
    said = "\n".join(filter(None, texts))[-MOST_SAID:]
    if done.timed_out:
        return {"error": f"the push took too long: {said}"}
    return {"said": said} if done.ok else {"error": f"the push was refused: {said}"}
