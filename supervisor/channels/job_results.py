"""Results of a maintenance job once its agent is done: tests, scope proof, commit, push.

    agent exits -> tests -> the copy's changes -> judge -> cards of changed files
                                                       -> our commit -> judge -> branch, push

The person requested all of it when starting the job, but its effects pass the gate like any
agent's: the tests are a command that starting the job approved, and a push is asked. INVARIANT:
whatever is outside the scope refuses all of it.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace

from supervisor.base import log
from supervisor.channels.git import GitBroker
from supervisor.channels.git_pack import CopiedCommits
from supervisor.channels.job_updates import update_words, updated_by
from supervisor.core.actions import Exec, FileChange, Git
from supervisor.core.approvals import Request, explanation, failure, is_settled, status
from supervisor.core.files.change_card import ReadContent
from supervisor.core.files.write_scope import changed, judge
from supervisor.core.git.scoped_commit import files_in
from supervisor.core.jobs import (
    Changed,
    Job,
    JobResult,
    Tests,
    author_of,
    job_title,
    refusal,
    result_words,
)
from supervisor.core.packages.updates import updates_title
from supervisor.core.sessions import Session
from supervisor.errors import ChangedError, GatehouseError
from supervisor.gate.gate import Gate

TESTS_S = 3600.0
MOST_OUTPUT_LINES = 40
MOST_OUTPUT_CHARS = 4000
BY = "the person who started the job"
BRANCHES = "gatehouse/"


class JobCopy(Protocol):
    """The private copy of a job's session."""

    async def found(self) -> tuple[list[FileChange], dict[str, str]]:
        """Return its changes, and what is never carried over, with reasons."""

    async def read_contents[T](self, read: Callable[[ReadContent], T]) -> T:
        """Run a function over contents of the changes."""


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

    async def of(self, session: Session, job: Job, copy: JobCopy) -> JobResult:
        """Run the job's tests, judge what is changed by then, and commit it where it is to be a
        branch. What goes wrong is said in the result."""
        try:
            result = await self._of(session, job, copy)
        except GatehouseError as error:
            result = JobResult(refused=str(error))
        self._gate.audit.record(
            "job_done",
            session=session.id,
            job=job.name,
            result=result_words(job, result),
            refused=result.refused,
            branch=result.branch,
            commit=result.commit,
        )
        return result

    async def _of(self, session: Session, job: Job, copy: JobCopy) -> JobResult:
        result, changes = await _judged(job, JobResult(), copy)
        if result.is_empty or result.refused:
            return result
        if job.tests:
            # Whatever the tests wrote counts as the job's.
            result = await self._tested(session.id, job)
            result, changes = await _judged(job, result, copy)
        if result.is_empty or result.refused or not job.branch:
            return result
        return await self._committed(session, job, result, changes, copy)

    async def _committed(
        self,
        session: Session,
        job: Job,
        result: JobResult,
        changes: list[FileChange],
        copy: JobCopy,
    ) -> JobResult:
        """Commit what was judged, and judge it again by the objects: that is what is pushed."""
        files = await copy.read_contents(lambda read: files_in(changes, read))
        branch = job.branch_name or f"{BRANCHES}{job.name or 'maintenance'}-{session.id[:8]}"
        base, author = session.base or "", author_of(job)
        said = [job_title(job), result_words(job, result)]
        if job.updates is not None:
            updated = await updated_by(session, files, self._commits, self._gate)
            said = [updates_title(updated), *update_words(session, updated), said[1]]
            result = replace(result, updated=updated)
        said += [f"Signed-off-by: {author}"] if job.signed_off else []
        commit, differs = await self._commits.commit(
            session.id, base, "\n\n".join(said) + "\n", author, files
        )
        result = await _proven(job, result, differs)
        if result.is_empty or result.refused:
            return result
        await self._commits.keep_job(session.id, branch, commit)
        result = replace(result, branch=branch, commit=commit)
        reason = f"{result_words(job, result)}; {self._cost(session)}"
        await self._ask_to_push(session, branch, reason)
        return result

    async def _tested(self, session_id: str, job: Job) -> JobResult:
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
            return JobResult(tests="not run", tests_why=explanation(request))
        why = failure(request)
        said: Tests = "failed" if why else "passed"
        return JobResult(tests=said, tests_why=why, tests_output=_output(request))

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


async def _judged(job: Job, result: JobResult, copy: JobCopy) -> tuple[JobResult, list[FileChange]]:
    """Return the result with the proof of what the copy holds now, and the changes."""
    changes, never = await copy.found()
    paths = [one for action in changes for one in changed(action)]
    paths += [Changed(name, why) for name, why in never.items()]
    return await _proven(job, result, paths), changes


async def _proven(job: Job, result: JobResult, paths: list[Changed]) -> JobResult:
    proof = await asyncio.to_thread(judge, job, paths)
    return replace(result, proof=proof, refused=refusal(job, proof))


def _output(request: Request) -> str:
    """Return the end of what the tests printed. Secrets are redacted in an outcome."""
    outcome = request.outcome or {}
    text = "\n".join(str(outcome.get(one) or "").strip("\n") for one in ("stdout", "stderr"))
    return "\n".join(text.strip("\n").split("\n")[-MOST_OUTPUT_LINES:])[-MOST_OUTPUT_CHARS:]
