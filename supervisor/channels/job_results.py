"""Results of a maintenance job once its agent is done: tests, scope proof, commit, push.

The person requested all of it when starting the job, but its effects pass the gate like any
agent's: the tests are a command that starting the job approved, and a push is asked.
"""

import asyncio
import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from supervisor.base import log
from supervisor.base.plain_files import read_small
from supervisor.channels.git import GitBroker
from supervisor.channels.git_pack import CopiedCommits
from supervisor.core.actions import Exec, FileChange, Git
from supervisor.core.approvals import Request, explanation, failure, is_settled, status
from supervisor.core.files.write_scope import WriteScope, changed, judge
from supervisor.core.git.scoped_commit import TreeChange
from supervisor.core.jobs import Job, JobResult, ScopeProof, Tests, result_words
from supervisor.core.sessions import Session
from supervisor.errors import ChangedError, GatehouseError
from supervisor.gate.gate import Gate

TESTS_S = 3600.0
# Whatever a job changed belongs to its proof.
MOST_ASKED = 10_000_000
# Of a file that may be the person's own; a larger one counts as the job's.
MOST_OWN_BYTES = 16 << 20
BY = "the person who started the job"
BRANCHES = "gatehouse/"


class JobResults:
    """One per supervisor. `cost(session)` says what it has cost so far, for a person."""

    def __init__(
        self,
        gate: Gate,
        commits: CopiedCommits,
        pushes: GitBroker,
        cost: Callable[[Session], str],
    ) -> None:
        self._gate = gate
        self._queue = gate.queue
        self._commits = commits
        self._pushes = pushes
        self._cost = cost

    async def of(self, session: Session, job: Job) -> JobResult:
        """Find out what the job changed, run its tests on that, and commit it where it is to be a
        branch. What goes wrong is said in the result."""
        if job.branch:
            return await self._branch_of(session, job)
        result = JobResult(proof=await asyncio.to_thread(self._proof, session.id, job))
        if result.is_empty:
            return result
        tests, why = await self._tested(session.id, job)
        return JobResult(proof=result.proof, tests=tests, tests_why=why)

    async def _branch_of(self, session: Session, job: Job) -> JobResult:
        """The same for a branch. INVARIANT: our git makes the commit, of what was taken in before
        the tests ran and is within the scope; nothing that runs in the copy can add to it."""
        base, scope = session.base or "", WriteScope(job.scope)
        changes = [one for one in await self._commits.changes(session.id, base) if one.is_kept]
        inside = [one for one in changes if not one.changed({}).odd and scope.has(one.name)]
        other, workspace = set(changes) - set(inside), Path(session.workspace)
        outside = set(await asyncio.to_thread(_of_the_job, other, workspace))
        # What it had carried to the folder is there, too.
        outside |= set((await asyncio.to_thread(self._proof, session.id, job)).outside)
        proof = ScopeProof(inside=len(inside), outside=tuple(sorted(outside)))
        result = JobResult(proof=proof)
        if result.is_empty:
            return result
        tests, why = await self._tested(session.id, job)
        result = msgspec.structs.replace(result, tests=tests, tests_why=why)
        if not inside:
            return result
        branch = f"{BRANCHES}{job.name or 'maintenance'}-{session.id[:8]}"
        result = msgspec.structs.replace(result, branch=branch)
        said = result_words(job, result)
        title = job.prompt.strip().splitlines()[0][:72]
        await self._commits.commit(session.id, branch, base, f"{title}\n\n{said}\n", inside)
        await self._ask_to_push(session, branch, f"{said}; {self._cost(session)}")
        return result

    def _proof(self, session_id: str, job: Job) -> ScopeProof:
        return judge(job, [one for action in self._asked(session_id) for one in changed(action)])

    def _asked(self, session_id: str) -> list[FileChange]:
        """Return the changes of files that were asked about, and not replaced since."""
        return [
            action
            for one in self._queue.of_session(session_id, MOST_ASKED)
            if status(one) != "superseded"
            and isinstance(action := self._queue.action_of(one), FileChange)
        ]

    async def _tested(self, session_id: str, job: Job) -> tuple[Tests, str]:
        if not job.tests:
            return "none", ""
        request = self._gate.ask(
            Exec(command=job.tests, timeout_s=TESTS_S),
            session_id=session_id,
            reason="the job's tests",
        )
        if status(request) == "pending":
            try:
                request = self._gate.resolve(
                    request.id, "approved", by=BY, shown_fingerprint=request.fingerprint
                )
            except ChangedError:
                request = self._queue.get(request.id)
        request = await self._settled(request)
        if status(request) != "used":
            return "not run", explanation(request)
        why = failure(request)
        return ("failed", why) if why else ("passed", "")

    async def _settled(self, request: Request) -> Request:
        while not is_settled(request) and self._queue.find(request.id) is not None:
            await self._queue.next_change(request.id, TESTS_S)
            request = self._queue.get(request.id)
        return request

    async def _ask_to_push(self, session: Session, branch: str, reason: str) -> None:
        """Ask for the push of a branch to `origin`, where there is one: it waits for an answer
        also after the session."""
        if "origin" not in session.remotes:
            return
        wanted = Git(operation="push", remote="origin", refspecs=(f"{branch}:{branch}",))
        try:
            planned = await self._pushes.planned(session.id, wanted)
            self._gate.ask(planned, session_id=session.id, reason=reason)
        except GatehouseError as error:
            log.warning("a job's branch can't be pushed", session=session.id, why=str(error))


def _of_the_job(changes: Iterable[TreeChange], workspace: Path) -> list[str]:
    """Return the names of what differs from the commit and isn't so in the person's folder: what
    was there uncommitted before is theirs, not the job's."""
    return [one.shown for one in changes if not _is_the_persons(one, workspace)]


def _is_the_persons(change: TreeChange, workspace: Path) -> bool:
    path = workspace / os.fsdecode(change.path)
    if os.pardir in path.parts:
        return False
    try:
        data = read_small(path, MOST_OWN_BYTES)
    except FileNotFoundError:
        return change.mode == 0
    except OSError:
        return False
    # As git names contents (git-hash-object(1)).
    kind = "sha1" if len(change.oid) == 40 else "sha256"
    named = hashlib.new(kind, b"blob %d\0" % len(data) + data, usedforsecurity=False)
    return change.mode != 0 and named.hexdigest() == change.oid
