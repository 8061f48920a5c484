"""One run: the code is fetched, a reader looks at it in a sandbox, and its findings become an act.

The reader has no credentials of the forge's, and nothing that it changes leaves its copy. What it
reports is checked against the code here, before anybody is asked to post it.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec
import structlog
from sqlalchemy import Engine

from supervisor.base.clock import Clock
from supervisor.core.act import SEVERITIES, Act
from supervisor.core.act import Forge as ForgeName
from supervisor.core.reviews import findings, posts, slots
from supervisor.core.reviews.diffs import skipped_words
from supervisor.core.reviews.findings import PlacedFinding
from supervisor.core.reviews.receipts import Outcome, partial_words
from supervisor.core.sessions import Session
from supervisor.errors import GatehouseError
from supervisor.forges.base import Forge, ForgeError
from supervisor.reviews.budgets import Budgets
from supervisor.reviews.clones import Checkout, CloneError, Clones, WantedCode
from supervisor.reviews.receipts import Receipts
from supervisor.reviews.reconcile import facts_of, may_write
from supervisor.reviews.slots import Slots
from supervisor.store.reviews import queries

log = structlog.get_logger("reviews")

BEAT_S = 20.0
# What is shown of the code beside a finding.
AROUND, MOST_CODE_CHARS = 3, 300


class Readers(Protocol):
    """What runs a reader: a session over a checkout."""

    async def start(self, folder: Path, base: str, *, may_run: bool, budget: str) -> str:
        """Start it; the session's id. `may_run`: it may run the commands that a policy lets it."""

    async def wait(self, session_id: str) -> Session:
        """Return the session once it has ended."""

    def stop(self, session_id: str) -> None:
        """Begin its end."""

    def cost(self, session_id: str) -> int:
        """Return what it spent, in pico-dollars."""

    def spent(self, session_id: str) -> int | None:
        """Return the same once it and all of its calls are over; None before."""

    def refusal(self, session_id: str) -> str:
        """Return why its last call of a model was refused for want of money; "" where none was."""


# Asks for an act in a repository's session, and says whether rules allow one.
type AskAct = Callable[[Act, str, str], None]
type AllowsAct = Callable[[Act, str], bool]


class Runs:
    """One per supervisor."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        forge: Forge,
        clones: Clones,
        sessions: Readers,
        slots_: Slots,
        receipts: Receipts,
        budgets: Budgets,
        ask: AskAct,
        allows: AllowsAct,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._forge = forge
        self._clones = clones
        self._sessions = sessions
        self._slots = slots_
        self._receipts = receipts
        self._budgets = budgets
        self._ask = ask
        self._allows = allows
        self._running: dict[str, str] = {}
        slots_.abort = self._abort

    async def handle(self, run_id: str) -> None:
        """Do a run that the queue gives, where it is still wanted and nobody has it."""
        begun = self._clock.monotonic()
        with self._engine.begin() as connection:
            run = queries.claim(connection, run_id, self._clock.now())
            if run is None:
                return
            pull = queries.pull(connection, run.pull_id)
            repository = queries.repository_of(connection, pull.repository_id)
        failed, may_retry, outcome = "", False, "failed"
        # Inside of the block: a task group wraps what leaves it.
        async with self._beating(run):
            try:
                outcome = await self._review(run, pull, repository, begun)
            except (ForgeError, CloneError) as error:
                failed, may_retry = str(error)[:500], error.may_retry
            except GatehouseError as error:
                failed = str(error)[:500]
            except Exception as error:
                log.exception("a run failed", run=run.id)
                failed = f"internal error: {type(error).__name__}: {error}"[:500]
        self._change(
            run.id,
            ended_at=self._clock.now(),
            outcome="failed" if failed else outcome,
            reason=failed,
            duration_ms=(self._clock.monotonic() - begun) * 1000,
        )
        self._slots.happened(
            run.pull_id, slots.Ended(run.id, run.attempt, failed=failed, may_retry=may_retry)
        )
        self._budgets.settle_over()

    async def _review(
        self,
        run: queries.ReviewRun,
        pull: queries.PullRequest,
        repository: queries.Repository,
        begun: float,
    ) -> str:
        """Review a head; return the outcome."""
        token = await self._forge.clone_token(facts_of(repository))
        wanted = WantedCode(
            name=f"{repository.forge}:{repository.full_name}",
            url=repository.clone_url,
            token=token,
            number=pull.number,
            base_ref=pull.base_ref,
            base_sha=pull.base_sha,
            head_sha=run.head_sha,
        )
        async with self._clones.checkout(wanted) as checkout:
            looked_at = [one.path for one in checkout.files if not one.skipped]
            run = self._change(
                run.id,
                base_sha=checkout.base,
                files=looked_at,
                skipped=skipped_words(checkout.files),
                setup_ms=(self._clock.monotonic() - begun) * 1000,
            )
            if not looked_at:
                return self._receipt(run, "skipped", "empty")
            session = await self._read(run, checkout, may_run=may_write(pull))
            if session.review is None:
                why = self._sessions.refusal(session.id) or session.end_reason
                raise GatehouseError(f"the reader gave no review: {why}")
            run = self._change(
                run.id,
                partial=partial_words(
                    str(session.review.get("partial", "")),
                    session.review.get("left_out", ()),
                    looked_at,
                ),
                model=str(session.review.get("model", "")),
                cost=run.cost + self._sessions.cost(session.id),
            )
            verdict, summary, found = findings.read_review(session.review)
            lines = await self._lines(checkout, [one.path for one in found])
            placed = findings.place(found, checkout.files, lines.get)
            code = {one.id: _code(one, lines.get(one.finding.path, ())) for one in placed}
        return self._conclude(run, pull, repository, (verdict, summary, placed), code)

    async def _read(self, run: queries.ReviewRun, checkout: Checkout, *, may_run: bool) -> Session:
        def start(budget: str) -> Awaitable[str]:
            return self._sessions.start(
                checkout.folder, checkout.base, may_run=may_run, budget=budget
            )

        session_id = await self._budgets.start(run.id, start)
        self._running[run.id] = session_id
        self._change(run.id, session_id=session_id)
        try:
            return await self._sessions.wait(session_id)
        finally:
            del self._running[run.id]

    async def _lines(self, checkout: Checkout, paths: Sequence[str]) -> Mapping[str, Sequence[str]]:
        changed = {one.path for one in checkout.files if one.status != "D" and not one.skipped}
        return {path: await self._clones.lines(checkout, path) for path in set(paths) & changed}

    def _conclude(
        self,
        run: queries.ReviewRun,
        pull: queries.PullRequest,
        repository: queries.Repository,
        said: tuple[Any, str, list[PlacedFinding]],
        code: Mapping[str, Sequence[tuple[int, str, bool]]],
    ) -> str:
        """AskAct for the act that the findings make, and leave the receipt."""
        verdict, summary, placed = said
        target = posts.PullTarget(
            forge=cast("ForgeName", repository.forge),
            repository=repository.full_name,
            number=pull.number,
            head=run.head_sha,
            fork=pull.fork,
        )
        notes = [f"{len(run.skipped)} files were left out: see the check."] if run.skipped else []
        if run.partial:
            notes.append(f"This review is partial: {run.partial}.")
            verdict = "comment" if verdict == "approve" else verdict
        if run.model == "recorded":
            notes.append("A recorded model played this review: no model looked at the code.")
        act = posts.review_act(target, verdict, summary, placed, run_id=run.id, notes=notes)
        if verdict != "comment" and not self._allows(act, repository.session_id):
            # A verdict is given only where a rule spells it.
            act = posts.review_act(target, "comment", summary, placed, run_id=run.id, notes=notes)
        review = {
            "verdict": verdict,
            "summary": summary,
            "findings": [
                {"id": one.id, "start_line": one.start_line, "line": one.line}
                | {"finding": msgspec.to_builtins(one.finding), "code": code[one.id]}
                for one in placed
            ],
        }
        run = self._change(run.id, review=review)
        if placed or act.verdict == "approve":
            self._ask(act, repository.session_id, f"the review of {run.head_sha[:12]}")
        counts: dict[str, int] = {
            severity: count
            for severity in SEVERITIES
            if (count := sum(one.finding.severity == severity for one in placed))
        }
        return self._receipt(run, "found" if placed else "clean", findings_=counts)

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
        """Say that the run is alive, until the block ends."""

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

    def _abort(self, run_id: str) -> None:
        session_id = self._running.get(run_id)
        if session_id is not None:
            self._sessions.stop(session_id)

    def _change(self, run_id: str, **facts: object) -> queries.ReviewRun:
        with self._engine.begin() as connection:
            queries.change_run(connection, run_id, **facts)
            found = queries.run(connection, run_id)
        assert found is not None
        return found


def _code(placed: PlacedFinding, lines: Sequence[str]) -> list[tuple[int, str, bool]]:
    """Return the code around a finding: number, text, and whether it is about that line."""
    if not placed.line:
        return []
    first, last = max(1, placed.start_line - AROUND), min(len(lines), placed.line + AROUND)
    return [
        (number, lines[number - 1][:MOST_CODE_CHARS], placed.start_line <= number <= placed.line)
        for number in range(first, last + 1)
    ]
