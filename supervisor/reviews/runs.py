"""One run: fetches the code, has a reader review it in a sandbox, and turns findings into an act.

The reader has no forge credentials, and its changes never leave its copy. Its report is checked
against the code here, before anybody is asked to post it.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec
from sqlalchemy import Engine

from supervisor.base import log
from supervisor.base.clock import Clock
from supervisor.core.forge_acts import SEVERITIES, Act, ReviewVerdict, Severity
from supervisor.core.orders import Order, order_text
from supervisor.core.secrets.token_shapes import without_tokens
from supervisor.core.session_names import pull_name
from supervisor.core.sessions import Session
from supervisor.errors import GatehouseError
from supervisor.reviews.budgets import Budgets
from supervisor.reviews.clones import Checkout, CloneError, Clones, WantedCode, clone_name
from supervisor.reviews.configurations import Configurations
from supervisor.reviews.core import findings, posts, slots
from supervisor.reviews.core.config.effective import config_digest, review_model
from supervisor.reviews.core.config.shapes import Strictness
from supervisor.reviews.core.diffs import skipped_words
from supervisor.reviews.core.findings import Finding, PlacedFinding
from supervisor.reviews.core.posts import round_sections
from supervisor.reviews.core.prompts import ignored
from supervisor.reviews.core.receipts import HEAD_MOVED, Outcome, partial_words
from supervisor.reviews.core.retries import ProviderTrouble
from supervisor.reviews.core.tracking import RoundOutcome, TrackedFinding
from supervisor.reviews.forges.base import REVIEW_ID, ForgeError, Forges, HeadSource
from supervisor.reviews.mention_answers import Mentions
from supervisor.reviews.prompt_runs import Prompts, PromptSession
from supervisor.reviews.reconcile import facts_of, trust_of
from supervisor.reviews.rounds import ReviewRound, Rounds
from supervisor.reviews.signed_receipts import Receipts
from supervisor.reviews.store import queries
from supervisor.reviews.stored_slots import Slots
from supervisor.reviews.targets import target_of
from supervisor.reviews.tidying import Tidying

BEAT_S = 20.0
NOTHING_NEW = "Nothing that can be reviewed changed since the last round."
# The lowest severity that is posted, by strictness.
FLOORS: dict[Strictness, Severity] = {"lenient": "medium", "balanced": "low", "strict": "low"}
# How many lines around a finding, and characters of each, are shown.
AROUND, MOST_CODE_CHARS = 3, 300


class Readers(Protocol):
    """Starts and watches readers: a reader is a session over a checkout."""

    async def start(
        self,
        folder: Path,
        base: str,
        *,
        name: str,
        may_run: bool,
        quarantined: bool,
        order: str,
        budget: str,
        model: str = "",
        runtime: str = "",
    ) -> str:
        """Start a reader; return the session's id. `name`: what people call it; `may_run`: it may
        run the commands that a policy allows. `quarantined`: it reads only by reference, since the
        code is untrusted. `order`: its further instructions; `budget`: its spending limit; `model`
        and `runtime`: "" for the service's own.
        """

    async def wait(self, session_id: str) -> Session:
        """Return the session once it has ended."""

    def stop(self, session_id: str) -> None:
        """Begin to end the session."""

    def cost(self, session_id: str) -> int:
        """Return the session's spending, in pico-dollars."""

    def spent(self, session_id: str) -> int | None:
        """Return its final spending once it and all its calls have ended; None before."""

    def refusal(self, session_id: str) -> str:
        """Return why its last model call was refused for lack of money; "" if it wasn't."""

    def trouble(self, session_id: str) -> ProviderTrouble | None:
        """Return the last response of its model's provider, if that was an error."""


class _ProviderError(GatehouseError):
    """Raised if the model's provider gave a reader no answer."""

    def __init__(self, trouble: ProviderTrouble) -> None:
        super().__init__(trouble.why)
        self.until = trouble.until


class _HeadMovedError(GatehouseError):
    """Raised if the head is another one by now; that one is wanted."""


# Names the session of a prompt of a pull request; of "", that of its review.
type NamePrompt = Callable[[str], str]
# Requests an act in a repository's session, and tells whether rules allow one.
type AskAct = Callable[[Act, str, str], None]
type AllowsAct = Callable[[Act, str], bool]


class Runs:
    """The runs of one supervisor. `under_way` has the ids of the runs in progress; `idle` is set
    while there are none. `look` reads a pull request anew."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        forges: Forges,
        clones: Clones,
        rounds: Rounds,
        tidying: Tidying,
        configurations: Configurations,
        prompts: Prompts,
        mentions: Mentions,
        sessions: Readers,
        slots_: Slots,
        receipts: Receipts,
        budgets: Budgets,
        ask: AskAct,
        allows: AllowsAct,
        look: Callable[[queries.Repository, int], Awaitable[str]],
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._forges = forges
        self._clones = clones
        self._rounds = rounds
        self._tidying = tidying
        self._configurations = configurations
        self._prompts = prompts
        self._mentions = mentions
        self._sessions = sessions
        self._slots = slots_
        self._receipts = receipts
        self._budgets = budgets
        self._ask = ask
        self._allows = allows
        self._look = look
        self._running: dict[str, str] = {}
        self._cut: set[str] = set()
        self.under_way: set[str] = set()
        self.idle = asyncio.Event()
        self.idle.set()

    async def handle(self, run_id: str) -> None:
        """Carry out a run of the queue, if it is still wanted and nobody else has claimed it."""
        if not self._slots.may_start():
            return
        begun = self._clock.monotonic()
        with self._engine.begin() as connection:
            run = queries.claim(connection, run_id, self._clock.now())
            if run is None:
                return
            pull = queries.pull(connection, run.pull_id)
            queries.change_run(connection, run.id, base_ref=pull.base_ref)
            repository = queries.repository_of(connection, pull.repository_id)
        REVIEW_ID.set(run.id)
        self.under_way.add(run.id)
        self.idle.clear()
        try:
            await self._do(run, pull, repository, begun)
        except asyncio.CancelledError:
            self._slots.give_back(run, "ended")
            raise
        finally:
            self.under_way.discard(run.id)
            self._cut.discard(run.id)
            if not self.under_way:
                self.idle.set()

    def abort(self, run_id: str) -> None:
        """End the sessions of a run."""
        for key, session_id in self._running.items():
            if key.partition(":")[0] == run_id:
                self._sessions.stop(session_id)

    def stop_all(self) -> None:
        """End all running reviews, because everything is stopped; they are queued again."""
        self._cut |= self.under_way
        for session_id in self._running.values():
            self._sessions.stop(session_id)

    async def _do(
        self,
        run: queries.ReviewRun,
        pull: queries.PullRequest,
        repository: queries.Repository,
        begun: float,
    ) -> None:
        failed, may_retry, outcome = "", False, "failed"
        until: float | None = None
        was_review = not pull.draft
        # Inside the block, because a task group wraps exceptions that leave it.
        async with self._beating(run):
            try:
                outcome = await self._review(run, pull, repository, begun)
            except (ForgeError, CloneError) as error:
                failed, may_retry = str(error)[:500], error.may_retry
                # The forge had too many calls: that is no failed attempt.
                until = error.retry_at if isinstance(error, ForgeError) else None
            except _HeadMovedError:
                outcome, was_review = self._receipt(run, "skipped", HEAD_MOVED), False
            except _ProviderError as error:
                failed, may_retry, until = str(error), True, error.until
            except GatehouseError as error:
                failed = str(error)[:500]
            except Exception as error:
                log.exception("a run failed", run=run.id)
                words = f"internal error: {type(error).__name__}: {error}"
                failed = without_tokens(words)[:500]
        if run.id in self._cut or self._slots.is_stopped():
            self._slots.give_back(run, "stopped")
            return
        if until is not None:
            self._slots.give_back(run, failed, outcome="held", until=until)
            self._receipts.leave(run.pull_id, run.head_sha, outcome="held", reason=failed, run=run)
            return
        self._change(
            run.id,
            ended_at=self._clock.now(),
            outcome=slots.failed_outcome(run.attempt, may_retry=may_retry) if failed else outcome,
            reason=failed,
            duration_ms=(self._clock.monotonic() - begun) * 1000,
        )
        ended = slots.Ended(
            *(run.id, run.attempt), failed=failed, may_retry=may_retry, was_review=was_review
        )
        self._slots.happened(run.pull_id, ended)
        self._budgets.settle_over()
        if not failed and self._mentions.wants_more(run.pull_id):
            self._slots.happened(run.pull_id, slots.Wanted(run.head_sha, again=True))

    async def _still_at(
        self, head: str, repository: queries.Repository, number: int, source: HeadSource
    ) -> None:
        if source.sha not in ("", head):
            # Nobody told of that.
            await self._look(repository, number)
            raise _HeadMovedError("the head moved on")

    async def _review(
        self,
        run: queries.ReviewRun,
        pull: queries.PullRequest,
        repository: queries.Repository,
        begun: float,
    ) -> str:
        """Review a head; return the outcome."""
        forge, place = self._forges.of(repository), facts_of(repository)
        source = await forge.head_source(place, pull.number)
        await self._still_at(run.head_sha, repository, pull.number, source)
        with self._engine.connect() as connection:
            of_pull = queries.runs_of(connection, pull.id)
        is_moved = queries.is_for_other_base(of_pull, run.head_sha, pull.base_ref)
        await self._tidying.approvals(repository, pull, run.head_sha, is_moved=is_moved)
        wanted = WantedCode(
            name=clone_name(repository.forge, repository.full_name),
            url=repository.clone_url,
            token=await forge.clone_token(place),
            number=pull.number,
            base_ref=pull.base_ref,
            base_sha=pull.base_sha,
            head_sha=run.head_sha,
            head=source,
        )

        async def read_diff() -> bytes:
            """Return the run's head's diff: the forge gives that of whichever head it has."""
            diff = await forge.pull_diff(place, pull.number)
            now = await forge.head_source(place, pull.number)
            await self._still_at(run.head_sha, repository, pull.number, now)
            return diff

        async with self._clones.checkout(wanted, read_diff) as checkout:
            trust = trust_of(pull)
            # Not at the merge base, because its author chose that.
            revision = pull.base_sha if trust == "base" else run.head_sha
            config = await self._configurations.effective(repository, checkout, revision)
            globs = [one.value for one in config.ignore]
            left_out = await asyncio.to_thread(ignored, checkout.files, globs)
            checkout = checkout._replace(files=left_out)
            looked_at = [one.path for one in checkout.files if not one.skipped]
            round_ = await self._rounds.begin(run, pull, checkout)
            run = self._change(
                run.id,
                base_sha=checkout.base,
                files=looked_at,
                skipped=skipped_words(checkout.files),
                setup_ms=(self._clock.monotonic() - begun) * 1000,
                since_sha=round_.since,
                trust=trust,
                partial=checkout.left_out,
                config_revision=revision,
                config_digest=config_digest(config),
                config_notes=list(config.notes),
            )
            if not looked_at:
                return self._receipt(run, "skipped", "empty")
            called = self._mentions.called(repository, pull, config)
            said: tuple[ReviewVerdict, str, list[Finding]] = ("comment", NOTHING_NEW, [])
            is_new = not round_.since or not {one.path for one in round_.touched}.isdisjoint(
                looked_at
            )
            if is_new or called or pull.draft:
                guidance, skills = await self._rounds.guidance(checkout, revision, looked_at)
                order = Order(
                    title=pull.title,
                    body=pull.body,
                    since=round_.since,
                    files=tuple(looked_at) if run.skipped else (),
                    known=round_.remarks(),
                    guidance=guidance,
                    skills=skills,
                    checklist=tuple(one.value for one in config.checklist),
                    strictness=config.strictness.value,
                    reasoning=config.reasoning.value or "",
                    temperature=config.temperature.value,
                )
                model = review_model(config)
                named = partial(pull_name, repository.full_name, pull.number, round_.number)
                read_prompt = partial(self._read_prompt, run, checkout, named)
                facts = (run, pull, checkout, config, order, read_prompt, called)
                only_called = not is_new and not pull.draft
                async with self._prompts.running(*facts, only_called=only_called) as going:
                    # Nobody wants a review of a draft yet.
                    if is_new and not pull.draft:
                        order = msgspec.structs.replace(order, notes=await going.notes())
                        run, said = await self._read(
                            run, checkout, named, order, model=model, parts=going.parts
                        )
                    await going.ended()
                run = self._prompts.conclude(going, pull, repository)
                self._mentions.answered(repository, called)
                if pull.draft:
                    return self._receipt(run, "skipped", "draft")
            verdict, summary, found = said
            paths = {one.path for one in found} | round_.paths()
            lines = await self._rounds.lines(checkout, paths)
            placed = await asyncio.to_thread(findings.place, found, checkout.files, lines.get)
            floor = FLOORS[config.strictness.value]
            outcome = await self._rounds.end(run, checkout, round_, placed, lines, floor=floor)
            code = {one.id: _code(one, lines.get(one.finding.path, ())) for one in outcome.post}
        await self._tidying.threads(repository, pull, run.head_sha, outcome.gone)
        return self._conclude(run, pull, repository, (verdict, summary, round_, outcome), code)

    async def _read_prompt(
        self,
        run: queries.ReviewRun,
        checkout: Checkout,
        named: NamePrompt,
        order: Order,
        model: str,
        parts: int,
    ) -> PromptSession:
        """Have a reader carry out a prompt, with read-only tools."""
        session = await self._session(
            run, checkout, named, order, may_run=False, model=model, parts=parts
        )
        return PromptSession(session, self._sessions.cost(session.id))

    async def _read(
        self,
        run: queries.ReviewRun,
        checkout: Checkout,
        named: NamePrompt,
        order: Order,
        *,
        model: str,
        parts: int,
    ) -> tuple[queries.ReviewRun, tuple[ReviewVerdict, str, list[Finding]]]:
        """Have a reader review the code; return its report."""
        may_run = run.trust == "head"
        session = await self._session(
            run, checkout, named, order, may_run=may_run, model=model, parts=parts, is_main=True
        )
        if session.review is None:
            refusal = self._sessions.refusal(session.id)
            trouble = None if refusal else self._sessions.trouble(session.id)
            if trouble is not None:
                raise _ProviderError(trouble)
            why = refusal or session.end_reason
            raise GatehouseError(f"the reader gave no review: {why}")
        left_out = session.review.get("left_out", ())
        why = str(session.review.get("partial", ""))
        said = (run.partial, partial_words(why, left_out, run.files))
        run = self._change(
            run.id,
            partial="; ".join(filter(None, said)),
            model=str(session.review.get("model", "")),
            cost=run.cost + self._sessions.cost(session.id),
        )
        return run, findings.read_review(session.review)

    async def _session(
        self,
        run: queries.ReviewRun,
        checkout: Checkout,
        named: NamePrompt,
        order: Order,
        *,
        may_run: bool,
        model: str,
        parts: int,
        is_main: bool = False,
    ) -> Session:
        """Run a reader within the run's money, until it ends or nobody waits for it."""

        with self._engine.connect() as connection:
            pull = queries.pull(connection, run.pull_id)
            repository = queries.repository_of(connection, pull.repository_id)
        runtime, _ = self._configurations.runtime(repository)

        def start(budget: str) -> Awaitable[str]:
            return self._sessions.start(
                checkout.folder,
                checkout.base,
                name=named(order.prompt.id if order.prompt else ""),
                may_run=may_run,
                quarantined=run.trust != "head",
                order=order_text(order),
                budget=budget,
                model=model,
                runtime=runtime,
            )

        session_id = await self._budgets.start(run.id, start, parts=parts)
        key = run.id if is_main else f"{run.id}:{session_id}"
        self._running[key] = session_id
        if is_main:
            self._change(run.id, session_id=session_id)
        try:
            return await self._sessions.wait(session_id)
        except asyncio.CancelledError:
            self._sessions.stop(session_id)
            raise
        finally:
            del self._running[key]

    def _conclude(
        self,
        run: queries.ReviewRun,
        pull: queries.PullRequest,
        repository: queries.Repository,
        said: tuple[ReviewVerdict, str, ReviewRound, RoundOutcome],
        code: Mapping[str, Sequence[tuple[int, str, bool]]],
    ) -> str:
        """Store the review, request the act that posts it if there is anything to post, and leave
        its receipt; return the outcome."""
        verdict, summary, round_, outcome = said
        placed = [_placed(one) for one in outcome.post]
        target = target_of(repository, pull, run.head_sha)
        notes = [f"{len(run.skipped)} files were left out: see the check."] if run.skipped else []
        if run.partial:
            notes.append(f"This review is partial: {run.partial}.")
        with self._engine.connect() as connection:
            is_moved = queries.pull(connection, pull.id).base_ref != run.base_ref
        if verdict == "approve" and (run.partial or run.skipped or is_moved):
            # Don't approve what wasn't fully read.
            verdict = "comment"
        if run.model == "recorded":
            notes.append("A recorded model played this review: no model looked at the code.")
        threads_stay = not repository.may_resolve
        sections = round_sections(outcome, number=round_.number, threads_stay=threads_stay)
        compose = partial(
            posts.review_act,
            target,
            summary=summary,
            findings=placed,
            run_id=run.id,
            sections=sections,
            notes=notes,
        )
        act = compose(verdict=verdict)
        if verdict != "comment" and not self._allows(act, repository.session_id):
            # A verdict is given only if a rule spells it.
            act = compose(verdict="comment")
        open_ = [*outcome.post, *outcome.carried, *outcome.back]
        review = {
            "verdict": verdict,
            "summary": summary,
            "round": round_.number,
            "configuration": round_.configuration,
            "open": len(open_),
            "gone": len(outcome.gone),
            "post": [one.id for one in placed],
            "inline": [one.finding for one in act.comments],
            "findings": [
                {"id": one.id, "start_line": one.start_line, "line": one.line}
                | {"finding": msgspec.to_builtins(one.finding), "code": code[one.id]}
                for one in placed
            ],
        }
        run = self._change(run.id, review=review)
        if placed or outcome.gone or outcome.back or act.verdict == "approve":
            self._ask(act, repository.session_id, f"the review of {run.head_sha[:12]}")
        counts: dict[str, int] = {
            severity: count
            for severity in SEVERITIES
            if (count := sum(one.finding.severity == severity for one in open_))
        }
        return self._receipt(run, "found" if open_ else "clean", findings_=counts)

    def _receipt(
        self,
        run: queries.ReviewRun,
        outcome: Outcome,
        reason: str = "",
        findings_: dict[str, int] | None = None,
    ) -> str:
        self._receipts.leave(
            run.pull_id, run.head_sha, outcome=outcome, reason=reason, run=run, findings=findings_
        )
        return outcome

    @contextlib.asynccontextmanager
    async def _beating(self, run: queries.ReviewRun) -> AsyncIterator[None]:
        """Report that the run is alive, until the block ends."""

        async def beat() -> None:
            while True:
                self._slots.happened(run.pull_id, slots.Beat(run.id, run.attempt))
                await asyncio.sleep(BEAT_S)

        async with asyncio.TaskGroup() as tasks:
            beating = tasks.create_task(beat(), name=f"beat-{run.id}")
            try:
                yield
            finally:
                beating.cancel()

    def _change(self, run_id: str, **facts: object) -> queries.ReviewRun:
        with self._engine.begin() as connection:
            queries.change_run(connection, run_id, **facts)
            found = queries.run(connection, run_id)
        assert found is not None
        return found


def _placed(one: TrackedFinding) -> PlacedFinding:
    return PlacedFinding(one.id, one.finding, one.start_line, one.line)


def _code(placed: TrackedFinding, lines: Sequence[str]) -> list[tuple[int, str, bool]]:
    """Return the code around a finding: number, text, and whether the finding is about that
    line."""
    if not placed.line:
        return []
    first, last = max(1, placed.start_line - AROUND), min(len(lines), placed.line + AROUND)
    return [
        (number, lines[number - 1][:MOST_CODE_CHARS], placed.start_line <= number <= placed.line)
        for number in range(first, last + 1)
    ]
