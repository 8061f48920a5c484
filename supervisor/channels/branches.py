"""Takes an agent's branch into the host's repository, when the person says so.

INVARIANT: the checked-out tree, the index and existing branches stay as they are: the branch is
new, or one of ours that is fast-forwarded.
"""

import asyncio
from collections import defaultdict

import msgspec

from supervisor.channels.git_pack import MOST_KNOWN, CopiedCommits, CopiedHead
from supervisor.channels.git_staging import HostBranch, Staging
from supervisor.core.git.taken_branch import MOST_NAMES, TakenBranch, names_for
from supervisor.errors import RefusedError
from supervisor.gate.gate import Gate

_BRANCHES = "refs/heads/"


class Branches:
    """One per supervisor."""

    def __init__(self, gate: Gate, commits: CopiedCommits) -> None:
        self._gate = gate
        self._commits = commits
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def take(self, session_id: str, branch: str, *, by: str) -> TakenBranch:
        """Take a branch of a session's copy, the checked-out one where `branch` is empty.
        `RefusedError` if there is no such branch, or the host's repository has all its commits.
        """
        async with self._turns[session_id]:
            staging = await self._commits.staging(session_id, ".")
            theirs = await staging.host_branches()
            known = list(dict.fromkeys(one.oid for one in theirs.values()))[:MOST_KNOWN]
            tip = await self._tip(staging, session_id, branch, known)
            source = tip.ref.removeprefix(_BRANCHES)
            if not tip.ref.startswith(_BRANCHES):
                source = f"detached-{tip.oid[:8]}"
            count = await staging.count_commits(tip.oid, known)
            if not count:
                raise RefusedError(
                    f"your repository has all commits of `{source}` already",
                    "what isn't committed comes by the cards of changed files",
                )
            name = await _free_name(staging, theirs, source, tip.oid)
            await staging.into_host(tip.oid, name)
        taken = TakenBranch(source=source, branch=name, commit=tip.oid, commits=count)
        self._gate.audit.record(
            "branch_taken", session=session_id, by=by, **msgspec.structs.asdict(taken)
        )
        return taken

    async def _tip(
        self, staging: Staging, session_id: str, branch: str, known: list[str]
    ) -> CopiedHead:
        """Return the commit to take: of a job what was proven, else what the copy says."""
        jobs = await staging.job_branches()
        name = branch or next(iter(jobs), "")
        if name in jobs:
            return CopiedHead(jobs[name], f"{_BRANCHES}{name}")
        wanted = f"{_BRANCHES}{branch}" if branch else "HEAD"
        heads, pack = await self._commits.pack(session_id, ".", [wanted], known)
        await staging.take_in(pack, [heads[wanted].oid], known)
        return heads[wanted]


async def _free_name(staging: Staging, theirs: dict[str, HostBranch], source: str, new: str) -> str:
    """Return the first name that the host has no branch of, or one that was taken before and may
    move on: the branch's own, then ours."""
    names = await staging.names_in_use()
    for name in names_for(source):
        found = theirs.get(name)
        if not names.may_have(name, is_there=found is not None):
            continue
        if found is None or (
            not found.is_checked_out
            and await staging.was_taken(found.oid)
            and await staging.is_ancestor(found.oid, new)
        ):
            return name
    raise RefusedError(f"there are {MOST_NAMES} branches like `{source}`", "delete some of them")
