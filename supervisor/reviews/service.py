"""The review service: its parts, and the loops that keep them running.

`app` makes one if reviews are switched on, and gives it the means to start sessions.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, cast
from urllib.parse import urlsplit

from supervisor.base import log
from supervisor.base.clock import Clock
from supervisor.core.actions import Git
from supervisor.core.approvals import Request, status
from supervisor.core.budget import Limits
from supervisor.core.forge_acts import Act, Forge, spelled
from supervisor.core.money import PICOUSD
from supervisor.core.sessions import Session
from supervisor.errors import ChangedError, GatehouseError, NotFoundError, UserError
from supervisor.gate.gate import Gate, Refused
from supervisor.reviews.budgets import Budgets
from supervisor.reviews.clones import Clones, clone_name
from supervisor.reviews.configurations import Configurations
from supervisor.reviews.core import posts, prompt_posts
from supervisor.reviews.core.allowances import Caps, day_of
from supervisor.reviews.core.bitbucket_deliveries import BitbucketWebhooks
from supervisor.reviews.core.config.effective import ConfigLayer
from supervisor.reviews.core.deliveries import GitHubWebhooks, WebhookReader
from supervisor.reviews.core.diffs import ChangedFile, FilePatch
from supervisor.reviews.core.forge_pages import own_page
from supervisor.reviews.core.job_posts import job_mark
from supervisor.reviews.core.receipts import Neutral, Outcome, is_held
from supervisor.reviews.forges.base import ForgeError, Forges, RepositoryFacts
from supervisor.reviews.holds import Holds, HoldScope
from supervisor.reviews.job_pulls import JobPulls
from supervisor.reviews.job_runs import JobRuns, JobSettings, Maintainers
from supervisor.reviews.job_schedule import RepositoryJobs
from supervisor.reviews.mention_answers import Mentions
from supervisor.reviews.poster import Poster
from supervisor.reviews.prompt_runs import Prompts
from supervisor.reviews.queue.base import Queue
from supervisor.reviews.reconcile import Reconcile, facts_of
from supervisor.reviews.restoring import mark_to_keep
from supervisor.reviews.rounds import Rounds
from supervisor.reviews.runs import Readers, Runs
from supervisor.reviews.signed_receipts import Receipts
from supervisor.reviews.store import jobs, queries
from supervisor.reviews.store.figures import backlog
from supervisor.reviews.store.holds import Hold
from supervisor.reviews.stored_slots import Slots
from supervisor.reviews.take_back import TakeBack
from supervisor.reviews.targets import repository_named
from supervisor.reviews.tidying import Tidying
from supervisor.reviews.webhooks import Intake
from supervisor.store.engine import open_database

# How long current runs may take once the supervisor is told to stop.
DRAIN_S = 60.0
# More acts than a repository ever requests: all of them are searched for missing checks.
MOST_ACTS = 100_000
CONCURRENCY = 2
READERS: Mapping[str, WebhookReader] = {
    one.forge: one for one in (GitHubWebhooks(), BitbucketWebhooks())
}


class ReviewSettings(NamedTuple):
    """Settings of a review service. Times in seconds. `secrets` are those of each forge's webhooks;
    `poll_s` 0: no forge is ever asked for what nobody told."""

    database: Path
    clones: Path
    receipt_key: Path
    secrets: Mapping[str, bytes]
    debounce_s: float
    longest_wait_s: float
    poll_s: float = 300.0
    look_every_s: float = 1.0
    neutral: Neutral = "neutral"
    concurrency: int = CONCURRENCY
    caps: Caps = Caps(run=2 * PICOUSD)
    # Whether checks hold what a later service with an empty database has to know.
    keeps_in_checks: bool = False
    # Whether `!` calls us in a comment, as the App's name does.
    takes_bang: bool = False
    # The configuration that is stronger than that of every file.
    inputs: ConfigLayer | None = None
    # The limits of one run; its dollars are those of the caps.
    limits: Limits = Limits(cost=2 * PICOUSD)
    jobs: JobSettings = JobSettings()


class ServiceSessions(Readers, Maintainers, Protocol):
    """Starts readers, and sessions that maintain."""


class ReviewService:
    """See the module's text. `standing` opens the standing session of a repository, or finds it;
    `stopped` says why everything is stopped, None if it isn't."""

    def __init__(
        self,
        settings: ReviewSettings,
        *,
        clock: Clock,
        gate: Gate,
        forges: Forges,
        queue: Queue,
        sessions: ServiceSessions,
        standing: Callable[[str], str],
        stopped: Callable[[], str | None],
    ) -> None:
        migrations = Path(queries.__file__).parent / "migrations"
        self.settings = settings
        self.engine = open_database(settings.database, migrations)
        self._clock = clock
        self._gate = gate
        self.forges = forges
        self._queue = queue
        self._woken = asyncio.Event()
        self.receipts = Receipts(
            *(self.engine, clock, settings.receipt_key, self._ask, settings.neutral),
            self._kept,
        )
        self.budgets = Budgets(
            *(self.engine, clock, settings.caps, settings.limits),
            *(sessions.spent, self._ask, gate.audit.record),
        )
        self.holds = Holds(self.engine, clock, gate.audit, stopped)
        self._was_stopped = False
        self._recorded = set[tuple[str, str]]()
        self.slots = Slots(
            self.engine,
            clock,
            queue,
            self.receipts,
            self.budgets,
            debounce_s=settings.debounce_s,
            longest_wait_s=settings.longest_wait_s,
            holding=self.holds,
            abort=lambda run_id: self.runs.abort(run_id),
        )
        clones = self._clones = Clones(settings.clones)
        self.configurations = Configurations(self.engine, forges, clones, settings.inputs)
        self.reconcile = Reconcile(
            *(self.engine, clock, forges, READERS, self.slots, self.receipts),
            *(standing, self._withdraw),
            wants_drafts=self.configurations.wants_drafts,
            answer_comment=lambda *comment: self.mentions.handle(*comment),
        )
        # By the forge's name. INVARIANT: without a secret there is none.
        self.intakes = {
            name: Intake(self.engine, clock, READERS[name], secret, self._woken.set)
            for name, secret in settings.secrets.items()
        }
        self.rounds = Rounds(self.engine, clock, clones)
        self.mentions = Mentions(
            *(self.engine, clock, forges, READERS, self.slots),
            *(self.reconcile, self.rounds, self._ask),
            takes_bang=settings.takes_bang,
        )
        self.prompts = Prompts(self.engine, self.rounds, self._ask)
        self.runs = Runs(
            *(self.engine, clock, forges, clones, self.rounds, Tidying(forges, self._ask)),
            configurations=self.configurations,
            prompts=self.prompts,
            mentions=self.mentions,
            sessions=sessions,
            slots_=self.slots,
            receipts=self.receipts,
            budgets=self.budgets,
            ask=self._ask,
            allows=self._allows,
            look=self.reconcile.pull,
        )
        self.job_pulls = JobPulls(self.engine, forges, clones, self._ask)
        self.poster = Poster(
            *(gate, clock, forges, self._repository, self._came_to_nothing),
            *(self.job_pulls, self.holds.keeps),
        )
        self.schedule = RepositoryJobs(
            self.engine, clock, self.configurations, queue, gate.audit.record
        )
        self.job_runs = JobRuns(
            *(self.engine, clock, forges, clones, self.configurations),
            sessions=sessions,
            budgets=self.budgets,
            schedule=self.schedule,
            settings=settings.jobs,
            ask=self._ask,
            issue_of=self.job_pulls.issue_of,
            is_asked=lambda session_id, run_id: run_id in self.job_requests(session_id),
            may_start=self.slots.may_start,
        )
        self.take_back = TakeBack(self.engine, gate, forges)
        gate.handlers.on_ready("review", "reviews", self.poster.carry_out)
        gate.queue.on_change(self._answered)

    async def run(self, standing: Sequence[Session]) -> None:
        """Serve until cancelled. `standing`: the sessions whose acts an earlier supervisor may have
        begun and not finished."""
        self.slots.end_leases()
        self.schedule.take_up_lost()
        for session in standing:
            self._resume(session)
        self.set_missing_checks()
        ready = [one for one in self._gate.queue.ready() if one.origin == "reviews"]
        self._gate.handlers.offer(ready)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._look(), name="reviews-look")
            if self.settings.poll_s:
                tasks.create_task(self._poll(), name="reviews-poll")
            concurrency = self.settings.concurrency
            tasks.create_task(self._queue.serve(self._handle, concurrency), name="reviews-runs")

    async def drain(self, patience_s: float = DRAIN_S) -> None:
        """Start no more runs, and return once running ones have ended or the time limit has passed.
        The rest is given back when `run` is cancelled, and resumed at the next start."""
        self.slots.is_closing = True
        self.slots.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self.runs.idle.wait()
                await self.job_runs.idle.wait()

    def is_busy(self) -> bool:
        """Return whether anything that was wanted isn't over: a delivery, a run or an act."""
        with self.engine.connect() as connection:
            found = backlog(connection)
            # One that waits for money goes on once a day or month is over.
            of_jobs = any(
                one.claimed_attempt >= one.attempt or not is_held(one.reason)
                for one in jobs.unfinished(connection)
            )
        queue = self._gate.queue
        acts = any(one.origin == "reviews" for one in (*queue.ready(), *queue.unsettled()))
        return bool(found.unhandled or found.waiting or of_jobs or self.runs.under_way or acts)

    def hold(self, scope: HoldScope, key: str, *, by: str, why: str = "") -> list[Hold]:
        """Hold the named reviews and acts; return all holds. Raise `UserError` or `NotFoundError`
        if the name matches nothing."""
        self.holds.hold(scope, key, by=by, why=why)
        self.slots.drain()
        return self.holds.standing()

    def release(self, scope: HoldScope, key: str, *, by: str) -> list[Hold]:
        """Release a hold; return the remaining holds. Raise `NotFoundError` if it wasn't held."""
        self.holds.release(scope, key, by=by)
        self._woken.set()
        return self.holds.standing()

    async def close(self) -> None:
        """Release its resources."""
        await self.poster.close()
        await self.forges.close()
        self.engine.dispose()

    async def review_pull(self, name: str, number: int) -> str:
        """Have a pull request reviewed, even if it was before; return the outcome in a word."""
        return await self.reconcile.pull(self.repository_named(name), number, full=True)

    def set_enabled(self, repository_id: int, *, is_enabled: bool) -> None:
        """Switch the reviews of a repository on or off."""
        with self.engine.begin() as connection:
            queries.change_repository(connection, repository_id, enabled=is_enabled)

    def handle_again(self, delivery_id: str) -> None:
        """Have a delivery handled once more."""
        with self.engine.begin() as connection:
            known = (queries.delivery(connection, one, delivery_id) for one in READERS)
            found = next(filter(None, known), None)
            if found is None:
                raise NotFoundError(
                    f"no delivery has the id `{delivery_id[:64]}`",
                    "`gatehouse deliveries list` lists them",
                )
            queries.change_delivery(connection, found, handled_at=None, attempts=0, error="")
        self._woken.set()

    def answer_part(
        self,
        request_id: str,
        kept: Collection[str] | None,
        texts: Mapping[str, str],
        *,
        by: str,
        fingerprint: str,
    ) -> Request:
        """Approve a review with these findings (None: all), `texts` in a person's words; return
        what was approved. Raise `ChangedError` if the review isn't the one that was shown."""
        request = self._gate.queue.get(request_id)
        act = self._gate.queue.action_of(request)
        if fingerprint != request.fingerprint:
            raise ChangedError.other()
        if status(request) != "pending":
            raise ChangedError.already(status(request))
        if not isinstance(act, Act):
            raise UserError("this is no act on a forge", "answer it as it is")
        derived = act if kept is None else posts.taken(act, kept, texts)
        if derived == act:
            return self._gate.resolve(request_id, "approved", by=by, shown_fingerprint=fingerprint)
        with self._gate.queue.together():
            part = self._gate.ask(
                derived,
                session_id=request.session_id,
                reason="as the operator chose and worded it",
                origin="reviews",
            )
            if status(part) == "pending":
                part = self._gate.resolve(
                    part.id, "approved", by=by, shown_fingerprint=part.fingerprint, in_part=True
                )
        return part

    def pull_of_push(self, request: Request) -> Act | None:
        """Return the act that opens a pull request for a carried-out push; None for other requests,
        or if the push went to none of our repositories."""
        action = request.action
        if not isinstance(action, Git) or len(action.updates) != 1:
            return None
        ref = action.updates[0].ref.removeprefix("refs/heads/")
        done = request.outcome is not None and bool(request.outcome.get("ok"))
        repository = self._pushed_to(action.url) if done and action.updates[0].new else None
        if repository is None or ref in (repository.default_branch, action.updates[0].ref):
            return None
        return Act(
            operation="open-pr",
            forge=cast("Forge", repository.forge),
            repository=repository.full_name,
            title=ref,
            body="Opened from an approved push of a supervised session.",
            branch=ref,
            base=repository.default_branch,
        )

    def open_pull(self, request: Request, *, by: str) -> Request:
        """Open a pull request for what a push moved. The operator's wish is also the answer. Raise
        `UserError` if none can be opened."""
        act = self.pull_of_push(request)
        if act is None:
            raise UserError("no pull request can be opened of this", "push a branch first")
        session_id = self.repository_named(spelled(act.forge, act.repository)).session_id
        reason = f"opened from the push {request.id}"
        asked = self._gate.ask(act, session_id=session_id, reason=reason, origin="reviews")
        if status(asked) != "pending":
            return asked
        return self._gate.resolve(asked.id, "approved", by=by, shown_fingerprint=asked.fingerprint)

    def _pushed_to(self, url: str) -> queries.Repository | None:
        parts = urlsplit(url)
        name = parts.path.strip("/").removesuffix(".git")
        with self.engine.connect() as connection:
            for forge in self.forges:
                found = queries.repository(connection, forge.name, name)
                is_same = found is not None and urlsplit(found.clone_url).netloc == parts.netloc
                if is_same and parts.scheme in ("https", "http"):
                    return found
        return None

    def job_requests(self, session_id: str) -> dict[str, Request]:
        """Return the requests for acts of jobs in a repository's session, by their runs."""
        found: dict[str, Request] = {}
        for one in self._gate.queue.of_session(session_id, MOST_ACTS):
            if isinstance(one.action, Act) and (said := job_mark(one.action.body)):
                found.setdefault(said.run_id, one)
        return found

    def code_of(self, act: Act) -> dict[str, list[tuple[int, str, bool]]]:
        """Return the code beside each finding of a review, by finding: line number, text, and
        whether the finding is about that line."""
        run = self.run_of(act)
        said = (run.review if run is not None else None) or {}
        return {
            one["id"]: [(number, text, is_it) for number, text, is_it in one.get("code", ())]
            for one in said.get("findings", ())
        }

    def repository_named(self, name: str) -> queries.Repository:
        """Return a repository. Raise `NotFoundError` if there is none."""
        with self.engine.connect() as connection:
            return repository_named(connection, name)

    def pull_page(self, forge: str, repository: str, number: int) -> str:
        """Return the address of a pull request's page on its forge; "" for none."""
        found = self.forges.named(forge)
        return found.pull_page(repository, number) if found else ""

    def own_page(self, forge: str, url: str) -> str:
        """Return an address if it is one of the forge's pages; else ""."""
        found = self.forges.named(forge)
        return own_page(found.pages, url) if found else ""

    def notices(self) -> list[str]:
        """Return what people should know of our credentials: a token that expires soon."""
        found = []
        for forge in self.forges:
            try:
                found.append(forge.notice())
            except GatehouseError as error:
                found.append(str(error))
        return [one for one in found if one]

    def forge_title(self, forge: str) -> str:
        """Return what people call a forge."""
        found = self.forges.named(forge)
        return found.title if found else forge

    async def diff_of(self, act: Act, run: queries.ReviewRun) -> list[FilePatch]:
        """Return the change that a run read, file by file. Empty if its clone is gone."""
        name = clone_name(act.forge, act.repository)
        return await self._clones.known_diff(name, run.base_sha, run.head_sha)

    async def both_sides(
        self, act: Act, run: queries.ReviewRun, file: ChangedFile
    ) -> tuple[bytes, bytes]:
        """Return a file before and after the change that a run read."""
        name = clone_name(act.forge, act.repository)
        return await self._clones.both_sides(name, run.base_sha, run.head_sha, file)

    def run_of(self, act: Act) -> queries.ReviewRun | None:
        """Return the run that composed an act; None if none did."""
        run_id = posts.run_of(act.body) or prompt_posts.prompt_and_run(act.body)[1]
        with self.engine.connect() as connection:
            return queries.run(connection, run_id) if run_id else None

    # -- inside -----------------------------------------------------------------------------------

    async def _handle(self, run_id: str) -> None:
        if not await self.job_runs.handle(run_id):
            await self.runs.handle(run_id)

    def _ask(self, act: Act, session_id: str, reason: str) -> None:
        self._gate.ask(act, session_id=session_id, reason=reason, origin="reviews")

    def _kept(self, pull_id: int) -> str:
        return mark_to_keep(self.engine, pull_id) if self.settings.keeps_in_checks else ""

    def _allows(self, act: Act, session_id: str) -> bool:
        return self._gate.rulings.verdict(act, session_id).decision == "allow"

    def _repository(self, forge: str, name: str) -> RepositoryFacts:
        with self.engine.connect() as connection:
            found = queries.repository(connection, forge, name)
        if found is None:
            raise GatehouseError(f"{name} is no repository of ours any more")
        return facts_of(found)

    def _came_to_nothing(self, act: Act, reason: str, why: str) -> None:
        """Leave the receipt of a review that couldn't be posted. A check that can't be set is only
        recorded."""
        if prompt_posts.mark_of(act.body):
            self.prompts.came_to_nothing(act)
        if act.operation != "post" or act.prompt:
            log.warning("an act came to nothing", act=act.operation, why=why)
            return
        self._leave(act, "skipped" if reason == "head-moved" else "failed", reason)

    def _leave(self, act: Act, outcome: Outcome, reason: str) -> None:
        with self.engine.connect() as connection:
            repository = queries.repository(connection, act.forge, act.repository)
            pull = repository and queries.pull_numbered(connection, repository.id, act.number)
        if pull:
            self.receipts.leave(pull.id, act.head, outcome=outcome, reason=reason)

    def _answered(self, request: Request) -> None:
        """Leave the receipt of a denied review, and keep posted or denied findings from being
        posted again."""
        act = request.action
        if not isinstance(act, Act):
            return
        self.job_pulls.answered(request)
        is_prompts = bool(prompt_posts.mark_of(act.body))
        if not is_prompts and (act.operation != "post" or act.prompt):
            return
        outcome = request.outcome or {}
        is_posted = bool(outcome.get("ok")) and not outcome.get("taken_back")
        # A review that a newer one, or a part of it, replaced has an answer too, but nobody gave
        # it.
        is_denied = request.answer == "denied" and status(request) == "denied"
        if not is_denied and not is_posted:
            return
        if is_prompts:
            self.prompts.settled(act)
            return
        run = self.run_of(act)
        by = request.answered_by or "gatehouse"
        if is_denied:
            self._leave(act, "skipped", "denied")
            if run is not None:
                self.rounds.denied(run, by=by, why=request.answer_reason)
        elif run is not None:
            self.rounds.posted(run, [one.finding for one in act.comments], by=by)

    def _withdraw(self, repository: queries.Repository, number: int, why: str) -> None:
        """Close the open requests about a pull request: nobody wants them any more."""
        waiting = [
            one.id
            for one in self._gate.queue.pending(repository.session_id)
            if isinstance(one.action, Act)
            and one.action.number == number
            and (one.action.operation == "post" or prompt_posts.mark_of(one.action.body))
        ]
        if waiting:
            self._gate.answers.close(why, *waiting)

    def set_missing_checks(self) -> None:
        """Request the checks that were lost or denied, or have to keep something else by now."""
        with self.engine.connect() as connection:
            known = queries.all_repositories(connection)
        for one in known:
            requests = self._gate.queue.of_session(one.session_id, MOST_ACTS)
            self.receipts.set_missing(one.session_id, requests)

    def _resume(self, session: Session) -> None:
        def is_act(request: Request) -> bool:
            return isinstance(request.action, Act)

        for request, grant in self._gate.resume_all(session.id, is_act):
            if not isinstance(grant, Refused):
                self._gate.handlers.run(self.poster.do(request, grant), f"post-{request.id}")

    async def _look(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.settings.look_every_s):
                    await self._woken.wait()
            self._woken.clear()
            try:
                self._look_at_switch()
                await self.reconcile.handle_all()
                self.slots.drain()
                self.schedule.look()
            except Exception:
                log.exception("looking at what is wanted failed")

    def _record_notices(self) -> None:
        """Record what people should know of our credentials, once a day."""
        today = {(day_of(self._clock.now()), one) for one in self.notices()}
        for _, words in sorted(today - self._recorded):
            log.warning("a forge's credentials", why=words)
            self._gate.audit.record("forge_credentials", why=words)
        self._recorded = today

    def _look_at_switch(self) -> None:
        """End runs once everything is stopped, also by hand; afterwards set the checks that were
        denied meanwhile."""
        is_stopped = self.slots.is_stopped()
        if is_stopped and not self._was_stopped:
            self.runs.stop_all()
            self.job_runs.stop_all()
        if self._was_stopped and not is_stopped:
            self.set_missing_checks()
        self._was_stopped = is_stopped

    async def _poll(self) -> None:
        while True:
            self._record_notices()
            try:
                await self.reconcile.poll()
                await self.schedule.refresh()
                await self.job_pulls.tidy()
                await self.mentions.call_again()
            except ForgeError as error:
                log.warning("the forge can't be asked", error=str(error))
            except Exception:
                log.exception("the poll failed")
            await asyncio.sleep(self.settings.poll_s)
