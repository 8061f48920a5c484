"""One run of a scheduled job: its code, a session that maintains a copy of it, and an act.

The session has no forge credentials. What it changed is judged and committed outside of it
(`channels.job_results`); this asks for the act that pushes the commit and opens a pull request.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import msgspec
from sqlalchemy import Connection, Engine

from supervisor.base import log
from supervisor.base.clock import Clock
from supervisor.core import forge_acts
from supervisor.core.files.write_scope import judge
from supervisor.core.forge_acts import Act
from supervisor.core.jobs import (
    DEFAULT_MIN_AGE,
    MOST_GLOBS,
    Changed,
    Job,
    JobResult,
    Updated,
    refusal,
)
from supervisor.core.money import dollars
from supervisor.core.packages.updates import (
    MOST_LOCKS,
    lock_of,
    parse_updates,
    update_lines,
    updated,
    updating,
)
from supervisor.core.secrets.token_shapes import without_tokens
from supervisor.core.sessions import Session
from supervisor.core.text.duration import parse_duration
from supervisor.core.text.globs import Glob
from supervisor.errors import GatehouseError
from supervisor.reviews.budgets import WAIT, Budgets, payer_of_job
from supervisor.reviews.clones import (
    Checkout,
    CloneError,
    Clones,
    WantedBranch,
    jobs_clone_name,
)
from supervisor.reviews.configurations import Configurations
from supervisor.reviews.core.config.effective import JobPlan, model_of
from supervisor.reviews.core.config.shapes import GlobSet, IssueOutput
from supervisor.reviews.core.forge_people import is_same_person, person_name
from supervisor.reviews.core.job_posts import (
    PREFIX,
    BranchPull,
    Standing,
    branch_of,
    issue_act,
    job_mark,
    pull_act,
    standing,
)
from supervisor.reviews.core.receipts import NO_BUDGET, reason_words
from supervisor.reviews.forges.base import ForgeError, Forges, PullFacts, RepositoryFacts
from supervisor.reviews.job_schedule import OWN, RepositoryJobs
from supervisor.reviews.reconcile import facts_of
from supervisor.reviews.store import allowances, holds, jobs, queries

# When a run that failed for the moment, or has no money, is tried again.
RETRY_S, NO_MONEY_S, WAIT_S = 120.0, 60.0, 1.0
# A job that fails so often in a row is paused.
MOST_FAILURES = 3
NOTHING = "there was nothing to change"
MOST_PACK_BYTES = 16 << 20


class JobSettings(NamedTuple):
    """`most_pulls`: how many open pull requests of jobs a repository may have. `author` (`Name
    <mail>`, "" for Gatehouse) makes the commits. `note`: a line for every pull request."""

    most_pulls: int = 3
    author: str = ""
    signed_off: bool = False
    note: str = ""


class Maintainers(Protocol):
    """Starts and watches sessions that maintain."""

    async def maintain(
        self, folder: Path, job: Job, *, name: str, budget: str, model: str = "", runtime: str = ""
    ) -> str:
        """Start a session on a checkout; return its id."""

    async def maintained(self, session_id: str) -> Session:
        """Return the session once it has ended. Its copy is kept until `dropped`."""

    async def commit_of(self, session: Session) -> bytes:
        """Return the pack of the commit that is the session's result."""

    async def dropped(self, session_id: str) -> None:
        """Remove the session's copy."""

    def stop(self, session_id: str) -> None:
        """Begin to end the session."""

    def cost(self, session_id: str) -> int:
        """Return the session's spending, in pico-dollars."""

    def refusal(self, session_id: str) -> str:
        """Return why its last model call was refused for lack of money; "" if it wasn't."""


class JobRunEnd(NamedTuple):
    """How a run ended: `proposed`, `nothing`, `skipped`, `refused`, `failed` or `stopped`."""

    outcome: str
    reason: str = ""
    act: Act | None = None


class _Work(NamedTuple):
    """A run under way."""

    run: jobs.JobRun
    job: jobs.RepositoryJob
    repository: queries.Repository
    branch: str


class JobRuns:
    """The runs of one supervisor's jobs. `ask` requests an act in a repository's session;
    `issue_of` returns the open issue of a job, 0 for none; `is_asked` tells whether an earlier
    attempt requested the act; `may_start` is false while everything stops."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        forges: Forges,
        clones: Clones,
        configurations: Configurations,
        sessions: Maintainers,
        budgets: Budgets,
        schedule: RepositoryJobs,
        settings: JobSettings,
        ask: Callable[[Act, str, str], None],
        issue_of: Callable[[RepositoryFacts, str], Awaitable[int]],
        is_asked: Callable[[str, str], bool],
        may_start: Callable[[], bool],
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._forges = forges
        self._clones = clones
        self._configurations = configurations
        self._sessions = sessions
        self._budgets = budgets
        self._schedule = schedule
        self._settings = settings
        self._ask = ask
        self._issue_of = issue_of
        self._is_asked = is_asked
        self._may_start = may_start
        self._running: dict[str, str] = {}
        self.idle = asyncio.Event()
        self.idle.set()

    async def handle(self, run_id: str) -> bool:
        """Carry out a run of the queue, if it is still wanted; return whether it is a job's."""
        with self._engine.begin() as connection:
            allowances.lock(connection)
            found = jobs.run(connection, run_id)
            if found is None:
                return False
            work = self._claimed(connection, found)
        if work is None:
            return True
        self._running[run_id] = ""
        self.idle.clear()
        try:
            await self._do(work)
        except asyncio.CancelledError:
            self._end(work, JobRunEnd("stopped", "Gatehouse was ended"))
            raise
        finally:
            del self._running[run_id]
            if not self._running:
                self.idle.set()
            self._budgets.settle_over()
        return True

    def stop_all(self) -> None:
        """End all runs, because everything is stopped; they are done again afterwards."""
        for session_id in filter(None, self._running.values()):
            self._sessions.stop(session_id)

    def _claimed(self, connection: Connection, run: jobs.JobRun) -> _Work | None:
        """Take a run and reserve its money; None if it has to wait."""
        job = jobs.job(connection, run.job_id)
        repository = queries.repository_of(connection, job.repository_id)
        hold = holds.hold_on(connection, repository.forge, repository.full_name, 0)
        if hold is not None or not self._may_start() or run.due_at > self._clock.now():
            return None
        if run.ended_at is not None or run.claimed_attempt >= run.attempt:
            return None
        payer = payer_of_job(repository, run.id)
        now, why = self._clock.now(), self._budgets.reserve(connection, payer, run.attempt)
        if why == NO_BUDGET["run"]:
            # A crash left it unknown what an earlier attempt spent: a new run takes its place.
            facts = {"ended_at": now, "outcome": "stopped", "reason": reason_words(why)}
            jobs.change_run(connection, run.id, **facts)
            jobs.change_job(connection, job.id, next_due_at=now)
            return None
        if why:
            # What an earlier attempt's session has left comes back once that is over.
            wait_s = WAIT_S if why == WAIT else NO_MONEY_S
            reason = "" if why == WAIT else reason_words(why)
            jobs.change_run(connection, run.id, due_at=now + wait_s, reason=reason)
            return None
        claimed = jobs.claim(connection, run.id)
        assert claimed is not None
        return _Work(claimed, job, repository, branch_of(repository.full_name, job.name))

    async def _do(self, work: _Work) -> None:
        may_retry, until = False, None
        try:
            end = await self._run(work)
        except (ForgeError, CloneError) as error:
            end, may_retry = JobRunEnd("failed", str(error)), error.may_retry
            until = error.retry_at if isinstance(error, ForgeError) else None
        except GatehouseError as error:
            end = JobRunEnd("failed", str(error))
        except Exception as error:
            log.exception("a job failed", run=work.run.id)
            words = f"internal error: {type(error).__name__}: {error}"
            end = JobRunEnd("failed", without_tokens(words))
        if end.outcome == "failed" and not self._may_start():
            end = JobRunEnd("stopped", "everything was stopped")
        if may_retry and work.run.attempt < jobs.MOST_ATTEMPTS:
            later = self._clock.now() + RETRY_S * 2 ** (work.run.attempt - 1)
            later = max(later, until or 0.0)
            facts = {"attempt": work.run.attempt + 1, "due_at": later, "reason": end.reason[:500]}
            self._change(work, **facts)
            return
        self._end(work, end)

    async def _run(self, work: _Work) -> JobRunEnd:
        run, repository = work.run, work.repository
        if self._is_asked(repository.session_id, run.id):
            return JobRunEnd("proposed")
        config = await self._configurations.of_default_branch(repository)
        plan = next((one.value for one in config.jobs if one.value.id == work.job.name), None)
        if plan is None or not config.scheduled.value:
            return JobRunEnd("skipped", "the configuration has no such job any more")
        if not plan.tools:  # a session without any named has them all
            return JobRunEnd("failed", "its tools are none that a job may have")
        stands = Standing()
        if plan.output.mode == "pr_create":
            if "repo.write" not in plan.tools:
                return JobRunEnd("failed", "its tools have no `repo.write`: it can change nothing")
            if not repository.may_resolve:
                return JobRunEnd("failed", "the App may not write contents and pull requests")
            stands = await self._standing(work, _base_of(plan, repository))
        if stands.why:
            return JobRunEnd("skipped", stands.why)
        base = WantedBranch(
            name=jobs_clone_name(repository.forge, repository.full_name),
            url=repository.clone_url,
            token=await self._forges.of(repository).clone_token(facts_of(repository)),
            branch=_base_of(plan, repository),
        )
        async with self._clones.branch_checkout(base, stands.lease) as checkout:
            if why := await self._unmet(work, plan, checkout):
                return JobRunEnd("skipped", why)
            return await self._maintain(work, plan, base, checkout, stands)

    async def _standing(self, work: _Work, base: str) -> Standing:
        """Ask the forge whether the job may run."""
        facts, forge = facts_of(work.repository), self._forges.of(work.repository)
        own = await forge.own_login()
        pulls = await forge.pulls_of_branch(facts, work.branch)
        for one in pulls:
            if one.is_open and not is_same_person(one.author, own):
                there = f"#{one.number} of its branch is {person_name(one.author)}'s"
                return Standing(f"{there}: close it, and the job opens its own")
            # A commit of one branch brings all of that along into another.
            if one.is_open and one.base_ref != base:
                there = f"#{one.number} of its branch goes into {one.base_ref}, not {base}"
                return Standing(f"{there}: close it, or give it that base")
        opened = await forge.open_pulls(facts)
        head = await forge.branch_head(facts, work.branch)
        with self._engine.connect() as connection:
            pushed = jobs.job(connection, work.job.id).pushed
            ours = jobs.commits_of(connection, work.job.id) | {pushed}
        others = [
            one
            for one in opened
            if is_same_person(one.author, own) and one.head_ref.startswith(PREFIX)
        ]
        return standing(
            [_branch_pull(one, own) for one in pulls],
            head,
            ours,
            now=self._clock.now(),
            others=sum(one.head_ref != work.branch for one in others),
            most=self._settings.most_pulls,
        )

    async def _unmet(self, work: _Work, plan: JobPlan, checkout: Checkout) -> str:
        """Return which condition doesn't hold; "" if all do."""
        wanted = plan.conditions
        if wanted.branch and not _is_in(wanted.branch, work.repository.default_branch):
            return "its conditions name other branches"
        if wanted.paths is None:
            return ""
        with self._engine.connect() as connection:
            before = [one for one in jobs.runs_of(connection, work.job.id) if one.base_sha]
        changed = await self._clones.rebased(checkout, before[0].base_sha) if before else None
        if changed is None or any(_is_in(wanted.paths, path) for path in changed if path):
            return ""
        return "none of the paths of its conditions changed since its last run"

    async def _maintain(
        self,
        work: _Work,
        plan: JobPlan,
        base: WantedBranch,
        checkout: Checkout,
        stands: Standing,
    ) -> JobRunEnd:
        task = _task(plan, work.branch, self._settings)
        self._change(work, base_sha=checkout.base, task=msgspec.to_builtins(task))
        start = partial(
            self._sessions.maintain,
            *(checkout.folder, task),
            name=f"{work.repository.full_name} · {work.job.name}",
            model=model_of(plan.asked.provider, plan.asked.model),
            runtime=self._configurations.runtime(work.repository)[0],
        )
        session_id = await self._budgets.start(work.run.id, lambda budget: start(budget=budget))
        self._running[work.run.id] = session_id
        self._change(work, session_id=session_id)
        try:
            session = await self._sessions.maintained(session_id)
            return await self._conclude(work, plan, task, base, checkout, session, stands)
        except asyncio.CancelledError:
            self._sessions.stop(session_id)
            raise
        finally:
            with contextlib.suppress(GatehouseError):
                await self._sessions.dropped(session_id)

    async def _conclude(
        self,
        work: _Work,
        plan: JobPlan,
        task: Job,
        base: WantedBranch,
        checkout: Checkout,
        session: Session,
        stands: Standing,
    ) -> JobRunEnd:
        """Make one commit of the session's result and of what was pushed before."""
        result = session.job_result
        if result is None or session.review is None:
            why = self._sessions.refusal(session.id) or session.end_reason
            return JobRunEnd("failed", f"the session has no result: {why}")
        if result.refused:
            return JobRunEnd("refused", result.refused)
        if plan.output.mode == "issue":
            return await self._report(work, plan, task, session.review, session.id)
        commit = result.commit or checkout.head
        # What was pushed and has no pull request gets one.
        if commit == checkout.base or (commit == stands.lease and stands.number):
            more = f", and #{stands.number} conflicts with {base.branch}"
            return JobRunEnd("nothing", f"{NOTHING}{more if checkout.has_conflict else ''}")
        taken = await self._sessions.commit_of(session) if result.commit else b""
        made = await self._clones.squashed(base, checkout, commit, taken, work.job.name)
        changes = await self._clones.take_commit(base, checkout.base, *made)
        proof = judge(task, changes)
        if why := refusal(task, proof):
            return JobRunEnd("refused", why)
        if len(made.pack) > MOST_PACK_BYTES:
            return JobRunEnd("refused", f"its commit has more than {MOST_PACK_BYTES >> 20} MB")
        if task.tests and not result.commit:
            why = "the commit is an earlier run's"
            result = msgspec.structs.replace(result, tests="not run", tests_why=why)
        result = msgspec.structs.replace(result, commit=made.commit, proof=proof)
        if task.updates is not None:
            found = await self._updated(work, checkout, made.commit, changes, result)
            result = msgspec.structs.replace(result, updated=found)
        facts = {"head_sha": made.commit, "pack": made.pack}
        self._change(work, **facts, result=msgspec.to_builtins(result))
        files = await self._clones.known_diff(base.name, checkout.base, made.commit)
        added = [_added(one.patch.decode("utf-8", "replace")) for one in files]
        # What can't be read may hold a secret.
        has_secrets = not files or any(one.facts.skipped for one in files)
        for text in added:
            # File by file beside the loop, since each takes its time.
            has_secrets = has_secrets or await asyncio.to_thread(_has_token, text)
        act = self._act(
            *(work, plan, task, session, result, stands),
            has_secrets=has_secrets,
            has_conflict=checkout.has_conflict,
        )
        return JobRunEnd("proposed", act=act)

    async def _updated(
        self,
        work: _Work,
        checkout: Checkout,
        commit: str,
        changes: list[Changed],
        result: JobResult,
    ) -> tuple[Updated, ...]:
        """Return the versions that the whole pull request changes. What the index says of them, the
        run says that brought them."""
        locks = [one.path for one in changes if lock_of(one.path)][:MOST_LOCKS]
        texts = {
            path: (
                await self._clones.text_at(checkout, checkout.base, path) or "",
                await self._clones.text_at(checkout, commit, path) or "",
            )
            for path in locks
        }
        with self._engine.connect() as connection:
            earlier = [one.result for one in jobs.runs_of(connection, work.job.id) if one.result]
        said = [msgspec.convert(one, JobResult) for one in reversed(earlier)]
        known = {(one.name, one.after): one for of in (*said, result) for one in of.updated}
        found = await asyncio.to_thread(updated, texts, ())
        return tuple(
            msgspec.structs.replace(one, published_at=there.published_at, link=there.link)
            if (there := known.get((one.name, one.after)))
            else one
            for one in found
        )

    async def _report(
        self, work: _Work, plan: JobPlan, task: Job, review: dict[str, Any], session_id: str
    ) -> JobRunEnd:
        """Have an issue say what the session found."""
        output, facts = plan.output.issue or IssueOutput(), facts_of(work.repository)
        number = await self._issue_of(facts, plan.id)
        review = review | {"findings": review.get("findings", ())[: plan.limits.max_findings]}
        if not number and not review.get("findings"):
            return JobRunEnd("nothing", "there was nothing to report")
        act = issue_act(
            cast("forge_acts.Forge", work.repository.forge),
            *(work.repository.full_name, task, review),
            number=number,
            title=output.title or plan.title,
            said=output.body or "",
            notes=self._notes(work, review, session_id),
            run_id=work.run.id,
        )
        return JobRunEnd("proposed", act=act)

    def _notes(self, work: _Work, review: dict[str, Any], session_id: str) -> list[str]:
        cost = dollars(self._sessions.cost(session_id))
        wanted = f"wanted by {work.run.wanted_by}" if work.run.wanted_by else "on its schedule"
        notes = [f"Made by the job {work.job.name} of .reviewerc, {wanted}, for {cost}."]
        if review.get("model") == "recorded":
            notes.append("A recorded model played this job: no model looked at the code.")
        return notes

    def _act(
        self,
        work: _Work,
        plan: JobPlan,
        task: Job,
        session: Session,
        result: JobResult,
        stands: Standing,
        *,
        has_secrets: bool,
        has_conflict: bool,
    ) -> Act:
        output, review = plan.output.pr, session.review or {}
        assert output is not None
        notes = self._notes(work, review, session.id)
        notes.append(f"It rewrites {work.branch} until somebody else's commit is there.")
        if self._settings.note:
            notes.append(self._settings.note)
        if has_conflict:
            notes.append("Its earlier commit conflicts with the base, so it was begun anew.")
        return pull_act(
            cast("forge_acts.Forge", work.repository.forge),
            work.repository.full_name,
            task,
            result,
            stands,
            updated=update_lines(result.updated, self._clock.now()),
            found=review.get("findings", ()) if task.updates is not None else (),
            title=output.title,
            base=_base_of(plan, work.repository),
            said=(output.body or "", str(review.get("summary", ""))),
            notes=notes,
            run_id=work.run.id,
            secrets=has_secrets,
        )

    def _end(self, work: _Work, end: JobRunEnd) -> None:
        """Record how a run ended, then request its act."""
        if end.act is not None:
            reason = f"the job {work.job.name}"
            self._ask(end.act, work.repository.session_id, reason)
        now, is_bad = self._clock.now(), end.outcome in ("failed", "refused")
        self._change(work, ended_at=now, outcome=end.outcome, reason=end.reason[:2_000])
        with self._engine.begin() as connection:
            failures = jobs.job(connection, work.job.id).failures + 1 if is_bad else 0
            facts: dict[str, object] = {"failures": failures}
            if end.outcome == "stopped":
                facts = {"next_due_at": now}
            jobs.change_job(connection, work.job.id, **facts)
        if is_bad and failures >= MOST_FAILURES:
            why = f"it failed {failures} times in a row: {end.reason}"
            self._schedule.pause(work.repository, work.job.name, by=OWN, why=why)

    def _change(self, work: _Work, **facts: object) -> None:
        with self._engine.begin() as connection:
            jobs.change_run(connection, work.run.id, **facts)


def _task(plan: JobPlan, branch: str, settings: JobSettings) -> Job:
    scope = plan.write_scope or GlobSet()
    words = (*(scope.include or ()), *(f"!{one}" for one in scope.exclude or ()))
    if len(words) > MOST_GLOBS:
        raise GatehouseError(f"its writeScope has more than {MOST_GLOBS} globs", "use wider ones")
    age = parse_duration(plan.min_age or DEFAULT_MIN_AGE, "minAge")
    task = Job(
        prompt=plan.prompt,
        title=plan.output.pr.title if plan.output.pr is not None else "",
        name=plan.id,
        scope=words,
        tools=plan.tools,
        tests=plan.tests,
        branch=True,
        branch_name=branch,
        max_files=plan.limits.max_files,
        max_diff_lines=plan.limits.max_diff_lines,
        author=settings.author,
        signed_off=settings.signed_off,
        updates=parse_updates(plan.updates, age) if plan.updates else None,
    )
    return updating(task)


def _base_of(plan: JobPlan, repository: queries.Repository) -> str:
    output = plan.output.pr
    return (output.base if output is not None else None) or repository.default_branch


def _branch_pull(one: PullFacts, own: str) -> BranchPull:
    said = job_mark(one.body) if is_same_person(one.author, own) else None
    closed_at = 0.0 if one.is_open or one.is_merged else one.closed_at or 0.0
    return BranchPull(one.number, one.is_open, one.head_sha, said.commit if said else "", closed_at)


def _has_token(text: str) -> bool:
    return without_tokens(text) != text


def _added(patch: str) -> str:
    return "\n".join(one[1:] for one in patch.split("\n") if one.startswith("+"))


def _is_in(names: GlobSet, name: str) -> bool:
    if any(Glob(one).matches(name) for one in names.exclude or ()):
        return False
    return names.include is None or any(Glob(one).matches(name) for one in names.include)
