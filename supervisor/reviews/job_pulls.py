"""Carries out the acts of scheduled jobs: push the commit, then open or update the pull request.

Part of the poster: it has the forge's write token, for one push. INVARIANT: only the commit that a
person or a rule let out is pushed, to the one branch of its job, if that is still where the act
says; what it changes is judged once more here, from the objects that are pushed.
"""

import contextlib
from collections.abc import Callable
from typing import cast

import msgspec
from sqlalchemy import Engine

from supervisor.base import log
from supervisor.core import forge_acts
from supervisor.core.approvals import Request, is_settled
from supervisor.core.files.write_scope import judge
from supervisor.core.forge_acts import Act
from supervisor.core.jobs import Job, refusal
from supervisor.errors import GatehouseError
from supervisor.reviews.clones import Clones, WantedBranch, jobs_clone_name
from supervisor.reviews.core.diffs import FilePatch
from supervisor.reviews.core.job_posts import PREFIX, branch_of, job_mark
from supervisor.reviews.forges.base import ForgeError, Forges, Posted, RepositoryFacts
from supervisor.reviews.reconcile import facts_of
from supervisor.reviews.store import jobs, queries


class JobPulls:
    """The pull requests of one supervisor's jobs. `ask` requests an act in a repository's
    session."""

    def __init__(
        self,
        engine: Engine,
        forges: Forges,
        clones: Clones,
        ask: Callable[[Act, str, str], None],
    ) -> None:
        self._ask = ask
        self._engine = engine
        self._forges = forges
        self._clones = clones

    async def post(self, repository: RepositoryFacts, act: Act) -> Posted:
        """Carry an act out, as far as an earlier attempt didn't."""
        if act.operation == "delete-branch":
            return await self._delete(repository, act)
        if act.operation == "open-issue":
            return await self._put_issue(repository, act)
        name = act.repository
        wanted = WantedBranch(
            jobs_clone_name(act.forge, name), repository.clone_url, "", act.branch
        )
        lease = act.targets[0] if act.targets else ""
        if act.operation == "update-pr":
            pull = await self._forges.of(repository).pull(repository, act.number)
            if not pull.is_open or pull.head_ref != act.branch:
                raise GatehouseError(f"#{act.number} is closed by now", "the job runs again")
            if pull.base_ref != act.base:
                raise GatehouseError(
                    f"#{act.number} goes into {pull.base_ref} by now, not {act.base}",
                    "the next run looks at that",
                )
        head = await self._forges.of(repository).branch_head(repository, act.branch)
        if head != act.head:
            if head != lease:
                raise GatehouseError(
                    f"{act.branch} is at {head[:12] or 'no commit'} by now, not {lease[:12]}",
                    "the next run looks at that",
                )
            await self._check(wanted, repository, act)
            token = await self._forges.of(repository).push_token(repository)
            await self._clones.push(wanted._replace(token=token), act.head, lease)
        if act.operation == "update-pr":
            return await self._forges.of(repository).update_pull(repository, act)
        try:
            return await self._forges.of(repository).open_pull(repository, act)
        except ForgeError as error:
            if not error.may_retry and not lease:
                # Without a pull request nobody, not even the next run, would know whose it is.
                with contextlib.suppress(GatehouseError):
                    await self._delete(repository, act)
            raise

    async def _delete(self, repository: RepositoryFacts, act: Act) -> Posted:
        """Remove a job's branch, if nobody else put a commit there."""
        head = await self._forges.of(repository).branch_head(repository, act.branch)
        if head:
            if head != act.head or not act.branch.startswith(PREFIX):
                raise GatehouseError(f"{act.branch} is at {head[:12]} by now", "delete it by hand")
            pulls = await self._forges.of(repository).pulls_of_branch(repository, act.branch)
            if found := next((one for one in pulls if one.is_open), None):
                raise GatehouseError(f"#{found.number} is open", "it needs the branch")
            name = jobs_clone_name(act.forge, act.repository)
            token = await self._forges.of(repository).push_token(repository)
            wanted = WantedBranch(name, repository.clone_url, token, act.branch)
            await self._clones.push(wanted, "", head)
        return Posted(id=0)

    async def _put_issue(self, repository: RepositoryFacts, act: Act) -> Posted:
        """Open a job's issue, or replace the open one."""
        said = job_mark(act.body)
        if said is None:
            raise GatehouseError("no run of a job made this issue", "have the job run again")
        number = await self.issue_of(repository, said.job)
        return await self._forges.of(repository).put_issue(repository, act, number)

    async def issue_of(self, repository: RepositoryFacts, job: str) -> int:
        """Return the open issue of a job; 0 if there is none."""
        for one in await self._forges.of(repository).own_issues(repository):
            found = job_mark(one.body)
            if found and found.job == job:
                return one.number
        return 0

    async def tidy(self) -> None:
        """Request to delete the branches of merged and closed pull requests."""
        with self._engine.connect() as connection:
            pushed = jobs.pushed_jobs(connection)
        for job in pushed:
            with self._engine.connect() as connection:
                repository = queries.repository_of(connection, job.repository_id)
            if repository.removed_at is None:
                try:
                    await self._tidy(repository, job)
                except ForgeError as error:
                    log.warning("a branch can't be looked at", job=job.name, error=str(error))

    async def _tidy(self, repository: queries.Repository, job: jobs.RepositoryJob) -> None:
        facts, branch = facts_of(repository), branch_of(repository.full_name, job.name)
        pulls = await self._forges.of(repository).pulls_of_branch(facts, branch)
        if not pulls or pulls[0].is_open:
            return
        head = await self._forges.of(repository).branch_head(facts, branch)
        if head == job.pushed:
            act = Act(
                operation="delete-branch",
                forge=cast("forge_acts.Forge", repository.forge),
                repository=repository.full_name,
                head=head,
                branch=branch,
            )
            why = "merged" if pulls[0].is_merged else "closed"
            self._ask(act, repository.session_id, f"#{pulls[0].number} is {why}")
        # It is asked about once; or it is gone, or somebody else's by now.
        with self._engine.begin() as connection:
            jobs.change_job(connection, job.id, pushed="")

    async def _check(self, wanted: WantedBranch, repository: RepositoryFacts, act: Act) -> None:
        """Raise `GatehouseError` unless the commit is a run's, within its job's scope."""
        run = self.run_of(act)
        if run is None or run.task is None or run.head_sha != act.head:
            raise GatehouseError("no run of a job made this commit", "have the job run again")
        task = msgspec.convert(run.task, Job)
        is_own = act.branch == task.branch_name == branch_of(act.repository, task.name)
        if (
            not is_own
            or act.scope != task.scope
            or act.branch in (repository.default_branch, act.base)
        ):
            raise GatehouseError("the act isn't what the run proposed", "have the job run again")
        token = await self._forges.of(repository).clone_token(repository)
        reading = wanted._replace(token=token)
        changes = await self._clones.take_commit(reading, run.base_sha, act.head, run.pack)
        if why := refusal(task, judge(task, changes)):
            raise GatehouseError(f"refused: {why}", "have the job run again")

    def run_of(self, act: Act) -> jobs.JobRun | None:
        """Return the run that proposed an act; None if none did."""
        said = job_mark(act.body) if act.is_of_job else None
        with self._engine.connect() as connection:
            return jobs.run(connection, said.run_id) if said else None

    async def message_of(self, act: Act) -> str:
        """Return the message of an act's commit, "" if that can't be shown."""
        return await self._clones.message(jobs_clone_name(act.forge, act.repository), act.head)

    async def diff_of(self, act: Act) -> list[FilePatch]:
        """Return what an act's commit changes, file by file. Empty if that can't be shown."""
        run = self.run_of(act)
        if run is None:
            return []
        name = jobs_clone_name(act.forge, act.repository)
        found = await self._clones.known_diff(name, run.base_sha, act.head)
        if not found and run.pack:
            # The clone is a cache: the commit is put back into it.
            with contextlib.suppress(GatehouseError):
                facts = self._facts(run)
                token = await self._forges.of(facts).clone_token(facts)
                wanted = WantedBranch(name, facts.clone_url, token, act.branch)
                await self._clones.take_commit(wanted, run.base_sha, act.head, run.pack)
                found = await self._clones.known_diff(name, run.base_sha, act.head)
        return found

    def _facts(self, run: jobs.JobRun) -> RepositoryFacts:
        with self._engine.connect() as connection:
            return facts_of(jobs.repository_of_run(connection, run.id))

    def answered(self, request: Request) -> None:
        """Record what became of a run's act; its commit needn't be kept then."""
        act = request.action
        run = self.run_of(act) if isinstance(act, Act) and is_settled(request) else None
        if run is None:
            return
        with self._engine.begin() as connection:
            jobs.change_run(connection, run.id, pack=b"")
            if (request.outcome or {}).get("ok"):
                jobs.change_job(connection, run.job_id, pushed=run.head_sha)


def is_of_job(act: Act) -> bool:
    """Return whether an act is one of those that `JobPulls.post` carries out."""
    return bool(act.head) or act.operation == "open-issue"
