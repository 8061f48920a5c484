"""Carries out approved pushes: exactly the objects that were shown, by the person's own git.

    asked      the commits are taken out of the private copy into a staging repository, and the
               action says which ref moves from what to what
    approved   git pushes these object ids, on condition that the remote is as it was shown

The agent's git runs in a tool sandbox and only yields a pack; git outside never reads the private
copy. The person's credentials are used only outside: no sandbox sees them.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from supervisor.base.process import Completed
from supervisor.channels.fetches import OPERATIONS, Fetches, endpoint
from supervisor.channels.git_pack import MOST_KNOWN, CopiedCommits, CopiedHead
from supervisor.channels.git_staging import Remote, Staging
from supervisor.channels.push_cards import push_card
from supervisor.core.actions import Git, RefUpdate
from supervisor.core.approvals import Request
from supervisor.core.git.push_card import PushCard
from supervisor.core.git.remote_addresses import shown_url
from supervisor.core.git.wishes import (
    ALL_THERE,
    NOT_AHEAD,
    STALE,
    PushWish,
    check_leases,
    push_wishes,
)
from supervisor.core.text.ref_names import RemoteRefs, is_full, own_refs
from supervisor.errors import GatehouseError, RefusedError, UserError
from supervisor.gate.gate import Gate, Grant, Refused

MOST_SAID = 16_000


class GitBroker:
    """One per supervisor."""

    def __init__(self, gate: Gate, commits: CopiedCommits, fetches: Fetches) -> None:
        self._gate = gate
        self._fetches = fetches
        self._commits = commits
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def planned(self, session_id: str, action: Git) -> Git:
        """Return the action with exactly what it would do. `RefusedError` where it can't be
        done."""
        if action.operation in OPERATIONS:
            return await self._fetches.planned(session_id, action)
        if action.operation != "push":
            raise RefusedError(
                f"`git {action.operation}` is not carried out",
                "push, fetch, pull and ls-remote are; all else works in your own copy",
            )
        try:
            wishes = push_wishes(action)
        except ValueError as error:
            raise RefusedError(str(error), "push branches or tags by their names") from error
        async with self._turns[session_id]:
            staging = await self._commits.staging(session_id, action.cwd)
            remote = await staging.remote(action.remote, is_push=True)
            self._check_host(session_id, remote.url)
            updates = await self._updates(session_id, action, staging, remote, wishes)
        return msgspec.structs.replace(action, url=shown_url(remote.url), updates=updates)

    def _check_host(self, session_id: str, url: str) -> None:
        """`RefusedError` where a deny rule names the host: planning a push reads the remote."""
        host = endpoint(url)
        if host is not None:
            verdict = self._gate.rulings.verdict(host, session_id)
            if verdict.decision == "deny" and verdict.rule is not None:
                raise RefusedError(verdict.why, verdict.remedy, rule=verdict.rule)

    async def _updates(
        self,
        session_id: str,
        action: Git,
        staging: Staging,
        remote: Remote,
        wishes: tuple[PushWish, ...],
    ) -> tuple[RefUpdate, ...]:
        there = await staging.refs_at(remote)
        try:
            check_leases(action, there.ids)
        except ValueError as error:
            raise RefusedError(str(error), "fetch, and look at what came") from error
        asked = {"HEAD", *(wish.target for wish in wishes)}
        first = [oid for ref, oid in there.ids.items() if ref in asked]
        known = list(dict.fromkeys([*first, *there.ids.values()]))[:MOST_KNOWN]
        jobs = await staging.job_branches()
        heads = {name: CopiedHead(oid, f"refs/heads/{name}") for name, oid in jobs.items()}
        wanted = dict.fromkeys(wish.source for wish in wishes if wish.source)
        sources = [source for source in wanted if source not in jobs]
        pack = b""
        if sources:
            found, pack = await self._commits.pack(session_id, action.cwd, sources, known)
            heads |= found
        updates = _updates(wishes, heads, there)
        if not updates:
            raise RefusedError(ALL_THERE, "nothing is to be done")
        moved = [one.ref for one in updates if one.old]
        await staging.fetch(remote, moved or _begun_from(there.ids))
        if pack:
            have = [oid for oid in known if await staging.has(oid)]
            await staging.take_in(pack, [one.new for one in updates if one.new], have)
        for one in updates:
            if one.new and not await staging.is_commit(one.new):
                raise RefusedError(f"`{one.new[:12]}` is no commit", "push a branch or tag of one")
            if one.new and await staging.is_tag_of_tag(one.new):
                raise RefusedError(f"`{one.ref}` is a tag of a tag", "tag the commit itself")
            rewrites = one.old and one.new and not await staging.is_ancestor(one.old, one.new)
            if rewrites and not action.force:
                raise RefusedError(
                    f"`{one.ref}` {NOT_AHEAD}",
                    "fetch and merge them first, or ask for a push with --force",
                )
        return updates

    def listed(self, request_id: str) -> RemoteRefs:
        """Return the refs that a program's fetch has found at the remote, for a short while."""
        return self._fetches.listed(request_id)

    async def card(self, request: Request) -> PushCard:
        """Return what a push would move, from its staging repository. `UserError` if the request
        isn't a push, or nothing of it is left.
        """
        action = request.action
        if not isinstance(action, Git) or not action.updates:
            raise UserError("this is no push that could be shown", "see what its request says")
        staging = await self._commits.staging(request.session_id, action.cwd)
        return await push_card(staging, action, self._gate.redactor)

    async def carry_out(self, request: Request) -> None:
        """Carry out a ready request as shown, and settle it with the output of git and
        the remote.
        """
        action = self._gate.queue.action_of(request)
        assert isinstance(action, Git)
        if action.operation in OPERATIONS:
            await self._fetches.carry_out(request, action)
            return
        grant = self._gate.claim(request.id, request.session_id)
        if isinstance(grant, Refused):
            return
        try:
            async with self._turns[request.session_id]:
                facts = await self._push(grant, action)
            if STALE in str(facts.get("error", "")):
                facts |= await self._asked_again(action, request)
        except GatehouseError as error:
            facts = {"error": str(error)}
        except asyncio.CancelledError:
            self._gate.settle(grant, "failed", {"error": "Gatehouse stopped during the push"})
            raise
        self._gate.settle(grant, "failed" if "error" in facts else "done", facts)

    async def _push(self, grant: Grant, action: Git) -> dict[str, object]:
        """Push what was shown, and compare what the remote has before and afterwards."""
        staging = await self._commits.staging(grant.session_id, action.cwd)
        remote = await staging.remote(action.remote, is_push=True)
        grant.use(msgspec.structs.replace(action, url=shown_url(remote.url)))
        before = await staging.refs_at(remote)
        _check_still(action, before)
        printed = self._gate.printing.streams_of(grant)
        done = await staging.push(remote, action.updates, printed)
        facts = _facts(done)
        if done.ok:
            more = _moved_besides(action, before, await staging.refs_at(remote))
            if more:
                facts["error"] = f"done, but the remote moved {more} along, which it hadn't listed"
        return facts

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


def _begun_from(ids: Mapping[str, str]) -> list[str]:
    """Return the remote's ref that a new one is compared with: what its HEAD is, else what it is
    likely to be; a HEAD may name a branch that isn't there."""
    likely = ("HEAD", "refs/heads/main", "refs/heads/master")
    branches = sorted(ref for ref in ids if ref.startswith("refs/heads/"))
    return [ref for ref in (*likely, *branches) if ref in ids][:1]


def _updates(
    wishes: Sequence[PushWish], heads: Mapping[str, CopiedHead], there: RemoteRefs
) -> tuple[RefUpdate, ...]:
    """Return what moves at the remote, whatever else is another name of it there included."""
    updates = dict[str, RefUpdate]()
    for wish in wishes:
        new = heads[wish.source].oid if wish.source else ""
        ref = wish.target or _own_ref(wish, heads[wish.source])
        if not new and ref not in there.ids:
            raise RefusedError(f"the remote has no `{ref}` to delete", "nothing is to be done")
        for one in _moved_with(ref, there, is_delete=not new):
            update = RefUpdate(one, there.ids.get(one, ""), new)
            if updates.setdefault(one, update) != update:
                raise RefusedError(
                    f"this push would move `{one}` in two ways", "push one ref at a time"
                )
    return tuple(one for one in updates.values() if one.new != one.old)


def _own_ref(wish: PushWish, head: CopiedHead) -> str:
    """Return the ref that is pushed under its own name. `RefusedError` where the copy's is no
    branch or tag, or another than the word says: a symbolic ref."""
    if not is_full(head.ref):
        raise RefusedError(
            f"`{wish.source}` is no branch or tag", "name one, as in `git push origin main`"
        )
    if wish.source != "HEAD" and head.ref not in own_refs(wish.source):
        raise RefusedError(
            f"`{wish.source}` is another name for `{head.ref}` in your copy",
            "push that by its name",
        )
    return head.ref


def _moved_with(ref: str, there: RemoteRefs, *, is_delete: bool) -> tuple[str, ...]:
    """Return what a push of a ref moves at the remote."""
    try:
        moved = there.moved_with(ref)
    except ValueError as error:
        raise RefusedError(str(error), "mend the remote") from error
    if other := there.taken_for(ref):
        raise RefusedError(f"git would push to the remote's `{other}` instead", "mend the remote")
    if is_delete and len(moved) > 1:
        raise RefusedError(
            f"the remote's `{ref}` is the same as `{moved[1]}`", "delete it at the remote"
        )
    return moved


def _check_still(action: Git, there: RemoteRefs) -> None:
    """`RefusedError` where the remote would move other refs than were shown. That each is where it
    was shown is the lease's to check."""
    shown = {one.ref for one in action.updates}
    for one in action.updates:
        more = set(_moved_with(one.ref, there, is_delete=not one.new)) - shown
        # What has the object already doesn't move.
        if any(there.ids.get(ref) != one.new for ref in more):
            raise RefusedError(
                f"the remote would move {', '.join(sorted(more))} along, which wasn't shown",
                "ask for the push again",
            )


def _moved_besides(action: Git, before: RemoteRefs, after: RemoteRefs) -> str:
    """Return the refs that have come to what was pushed and weren't shown: a remote doesn't list a
    name for a ref that isn't there yet, nor any in git's older protocol."""
    shown = {"HEAD", *(one.ref for one in action.updates)}
    pushed = {one.new for one in action.updates}
    changed = after.ids.items() - before.ids.items()
    return ", ".join(sorted(ref for ref, oid in changed if ref not in shown and oid in pushed))


def _facts(done: Completed) -> dict[str, object]:
    """Return what git and the remote said of a push, whole."""
    texts = (text.decode(errors="replace").strip() for text in (done.stdout, done.stderr))
    said = "\n".join(filter(None, texts))[-MOST_SAID:]
    if done.timed_out:
        return {"error": f"the push took too long: {said}"}
    return {"said": said} if done.ok else {"error": f"the push was refused: {said}"}
