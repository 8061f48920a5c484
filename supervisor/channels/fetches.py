"""Carries out fetches and pulls: the person's own git reads the remote, and git in a tool sandbox
puts the objects into the private copy.

    remote --person's git--> staging --pack--> private copy: objects, remote-tracking refs

The network rules judge the host first. No sandbox sees the person's credentials or the remote.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from supervisor.channels.git_pack import CopiedCommits
from supervisor.channels.git_staging import Remote, Staging
from supervisor.core.actions import Git, Network
from supervisor.core.approvals import Request
from supervisor.core.git.remote_addresses import shown_url
from supervisor.core.git.wishes import (
    JOINS,
    check_flags,
    remote_endpoint,
    tracking_ref,
    wanted_refs,
)
from supervisor.core.policy.git_refs import refs_of
from supervisor.core.text.ref_names import RemoteRefs, is_spelled
from supervisor.errors import GatehouseError, RefusedError
from supervisor.gate.gate import Gate, Grant, Refused

OPERATIONS = frozenset({"fetch", "pull", "ls-remote"})
# Programs of git that run for a session at once, on the host and with the person's credentials.
MOST_AT_ONCE = 4
_LEFT = "the program that asked has gone"
_MOST_SAID_REFS = 200
# Refs that are judged before something else may run.
_AT_ONCE = 50
# Of all lists that are kept for programs together, each counted as some refs more.
_KEPT_REFS = 200_000
_PER_LIST = 1000


class Fetches:
    """One per supervisor. `hold_s`: how long a fetch waits where its host is asked about."""

    def __init__(self, gate: Gate, commits: CopiedCommits, hold_s: float) -> None:
        self._gate = gate
        self._commits = commits
        self._hold_s = hold_s
        self._listed: dict[str, RemoteRefs] = {}
        self._turns: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(MOST_AT_ONCE)
        )

    async def planned(self, session_id: str, action: Git) -> Git:
        """Return the action with its destination. `RefusedError` where it can't be done, or the
        network rules deny the host.
        """
        try:
            check_flags(action)
        except ValueError as error:
            raise RefusedError(str(error), "leave the option out") from error
        async with self._turns[session_id]:
            staging = await self._commits.staging(session_id, action.cwd)
            remote = await staging.remote(action.remote, is_push=False)
        host = endpoint(remote.url)
        if host is not None:
            verdict = self._gate.rulings.verdict(host, session_id)
            if verdict.decision == "deny":
                raise RefusedError(verdict.why, verdict.remedy, rule=verdict.rule)
        return msgspec.structs.replace(action, url=shown_url(remote.url))

    def listed(self, request_id: str) -> RemoteRefs:
        """Return the refs that a program's fetch has found at the remote, without those that rules
        deny; none for one that was carried out long ago."""
        return self._listed.get(request_id, RemoteRefs({}, {}))

    def _keep_list(self, request: Request, there: RemoteRefs, without: Iterable[str] = ()) -> None:
        denied = set(without)
        ids = {name: oid for name, oid in there.ids.items() if name not in denied}
        self._listed[request.id] = there._replace(ids=ids)
        # Each program takes its own at once.
        while len(self._listed) > 1 and sum(map(_size, self._listed.values())) > _KEPT_REFS:
            del self._listed[next(iter(self._listed))]

    async def carry_out(self, request: Request, action: Git) -> None:
        """Carry out a ready request, and settle it with the result."""
        grant = self._gate.claim(request.id, request.session_id)
        if isinstance(grant, Refused):
            return
        try:
            facts: dict[str, object] = {"said": await self._fetch(grant, action, request)}
        except GatehouseError as error:
            facts = {"error": str(error)}
        except ValueError as error:
            facts = {"error": str(error)}
        except asyncio.CancelledError:
            self._gate.settle(grant, "failed", {"error": "Gatehouse stopped during the fetch"})
            raise
        self._gate.settle(grant, "failed" if "error" in facts else "done", facts)

    async def _fetch(self, grant: Grant, action: Git, request: Request) -> str:
        session_id = grant.session_id
        self._check_wanted(request)
        async with self._turns[session_id]:
            self._check_wanted(request)
            staging = await self._commits.staging(session_id, action.cwd)
            remote = await staging.remote(action.remote, is_push=False)
        # A person may be asked, so it keeps no other from its turn.
        await self._check_host(remote.url, request, grant)
        async with self._turns[session_id]:
            self._check_wanted(request)
            grant.use(msgspec.structs.replace(action, url=shown_url(remote.url)))
            return await self._fetched(session_id, action, request, staging, remote)

    def _check_wanted(self, request: Request) -> None:
        """`RefusedError` where the program that asked has gone, unless a person approved it:
        nobody would see what comes, and it would be begun without end."""
        is_program = request.origin == "agent_tool" and request.answer != "approved"
        if is_program and not self._gate.printing.is_followed(request.id):
            raise RefusedError(_LEFT, "ask again, and wait")

    async def _fetched(
        self, session_id: str, action: Git, request: Request, staging: Staging, remote: Remote
    ) -> str:
        if action.operation == "ls-remote":
            there = await staging.listed(remote, *(action.refspecs or ("*",)))
            self._keep_list(request, there)
            if request.origin == "agent_tool":
                return f"{len(there.ids)} refs"
            return "\n".join(f"{oid}\t{ref}" for ref, oid in there.ids.items())
        named = (ref.name for ref in refs_of(action) if is_spelled(ref.name))
        there = await staging.refs_at(remote, *(one for one in named if one.startswith("refs/")))
        wanted, left_out = await self._allowed(action, there, request)
        await staging.fetch(remote, list(wanted))
        if request.origin == "agent_tool":
            # The program's own git moves its refs.
            self._keep_list(request, there, left_out)
            wanted |= await self._tags_of_these(staging, remote, there, left_out)
            return await self._bring(staging, action, session_id, wanted, is_moved=False)
        refs = {tracking_ref(remote.name, name): oid for name, oid in wanted.items()}
        said = "".join([*left_out.values()][:_MOST_SAID_REFS])
        said += await self._bring(staging, action, session_id, refs)
        if action.operation == "pull":
            first = next(iter(refs)) if action.refspecs else ""
            joins = [flag for flag in action.flags if flag in JOINS]
            said += await self._commits.pull(session_id, action.cwd, remote.name, first, joins)
        return said

    async def _allowed(
        self, action: Git, there: RemoteRefs, request: Request
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Return the refs that are fetched, and what is said of each other. `RefusedError` where
        rules deny one that was named, or what it is another name for at the remote."""
        wanted, left_out = wanted_refs(action, there.ids), dict[str, str]()
        for number, name in enumerate(list(wanted)):
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
            for ref in there.moved_with(name):
                one = Git(operation=action.operation, remote=action.remote, refspecs=(ref,))
                verdict = self._gate.rulings.verdict(one, request.session_id)
                is_asked = verdict.decision == "ask" and request.answer != "approved"
                if verdict.decision == "deny" or (is_asked and verdict.rule):
                    if action.refspecs:
                        raise RefusedError(verdict.why, verdict.remedy, rule=verdict.rule)
                    left_out[name] = f"left out: {name} ({verdict.why})\n"
        for name in left_out:
            del wanted[name]
        return wanted, left_out

    async def _tags_of_these(
        self, staging: Staging, remote: Remote, there: RemoteRefs, without: Mapping[str, str]
    ) -> dict[str, str]:
        """Return the annotated tags of commits that were fetched, or are there: git fetches them
        along (git-fetch(1), `--tags`)."""
        known = await staging.sizes(list(there.peeled.values()))
        tags = {
            name: there.ids[name]
            for name, oid in there.peeled.items()
            if oid in known and name in there.ids and name not in without
        }
        has = await staging.sizes(list(tags.values()))
        await staging.fetch(remote, [name for name, oid in tags.items() if oid not in has])
        return tags

    async def _bring(
        self,
        staging: Staging,
        action: Git,
        session_id: str,
        refs: dict[str, str],
        *,
        is_moved: bool = True,
    ) -> str:
        """Put the commits of these refs into the private copy, and move the refs there if
        `is_moved`; what is said of it."""
        known = [
            oid
            for oid in await self._commits.tips(session_id, action.cwd)
            if await staging.has(oid)
        ]
        pack = await staging.pack(sorted(set(refs.values())), known)
        await self._commits.put(session_id, action.cwd, pack, refs if is_moved else {})
        lines = [f"{oid[:12]} {ref}" for ref, oid in refs.items()]
        more = len(lines) - _MOST_SAID_REFS
        return "\n".join(
            [*lines[:_MOST_SAID_REFS], *([f"and {more} more"] if more > 0 else []), ""]
        )

    async def _check_host(self, url: str, request: Request, grant: Grant) -> None:
        """`RefusedError` where the network rules don't let the host be reached. A person who
        approved the fetch saw where it goes; else a host that is asked about is asked for."""
        host = endpoint(url)
        if host is None:
            return
        session_id = request.session_id
        if request.answer == "approved":
            verdict = self._gate.rulings.verdict(host, session_id)
            if verdict.decision == "deny":
                raise RefusedError(verdict.why, verdict.remedy, rule=verdict.rule)
            return
        if self._gate.rulings.verdict(host, session_id).decision == "ask":
            waits = f"waiting for an answer: the connection to {host.host}:{host.port}\n"
            self._gate.printing.streams_of(grant)[1](waits.encode())
        allowed = await self._gate.decide(
            host, session_id=session_id, origin="egress", hold_s=self._hold_s
        )
        if isinstance(allowed, Refused):
            raise RefusedError(allowed.why, allowed.remedy, rule=allowed.rule)
        allowed.use(host)
        self._gate.settle(allowed, "done", {})


def _size(listed: RemoteRefs) -> int:
    return _PER_LIST + len(listed.ids) + len(listed.symbolic) + len(listed.peeled)


def endpoint(url: str) -> Network | None:
    """Return the connection that a remote needs; None for a path of this machine."""
    try:
        found = remote_endpoint(url)
    except ValueError as error:
        raise RefusedError(str(error), "fetch it yourself") from error
    return None if found is None else Network(operation="connect", host=found[0], port=found[1])
