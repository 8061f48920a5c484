"""Prompts of `.reviewerc` beside a review: each runs in its own session if its conditions hold.

A few run at the same time, each with a share of the run's budget. This module, not the model,
decides which parts of an answer count and which are posted.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec
from sqlalchemy import Engine

from supervisor.base import log
from supervisor.core.forge_acts import Act
from supervisor.core.orders import Order, Told
from supervisor.core.sessions import Session
from supervisor.errors import GatehouseError
from supervisor.reviews.budgets import NoAllowanceError
from supervisor.reviews.clones import Checkout
from supervisor.reviews.core import prompts
from supervisor.reviews.core.config.effective import EffectiveConfig, model_of
from supervisor.reviews.core.mentions import split_words
from supervisor.reviews.core.prompt_posts import prompt_act, prompt_and_run
from supervisor.reviews.core.prompts import (
    ChosenPrompt,
    PromptOutcome,
    PromptReport,
    PromptSubject,
)
from supervisor.reviews.rounds import Rounds
from supervisor.reviews.store import queries
from supervisor.reviews.targets import target_of

MOST_AT_ONCE = 4


class PromptSession(NamedTuple):
    """An ended session, and its cost in pico-dollars."""

    session: Session
    cost: int


# Runs a reader with an order and a model ("": the service's own), as one of several that share the
# run's money, and returns once it has ended.
type ReadPrompt = Callable[[Order, str, int], Awaitable[PromptSession]]


class PromptRuns:
    """The prompts of one run, while they run. `outcomes` is complete once `ended` has returned;
    `parts` counts the readers of the run, including the review's."""

    def __init__(self, run: queries.ReviewRun, told: dict[str, set[str]]) -> None:
        self.run = run
        self.told = told
        self.outcomes: list[PromptOutcome] = []
        self.reports: list[tuple[PromptReport, str]] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.fed: list[str] = []
        self.parts = 1
        self.arguments: dict[str, Told] = {}

    async def notes(self) -> tuple[Told, ...]:
        """Return the notes for the main reader, once every prompt that feeds it has ended."""
        feeding = [task for name, task in self.tasks.items() if name in self.fed]
        if feeding:
            await asyncio.wait(feeding)
        return tuple(
            Told(source=f"prompt {report.plan.id}", text=prompts.fed_text(report))
            for report, _ in self.reports
            if prompts.is_fed(report.plan)
        )

    async def ended(self) -> list[PromptOutcome]:
        """Return each prompt's outcome, once all have ended."""
        if self.tasks:
            await asyncio.wait(self.tasks.values())
        return self.outcomes


class Prompts:
    """The prompts of one supervisor. `ask` requests an act in a repository's session."""

    def __init__(
        self, engine: Engine, rounds: Rounds, ask: Callable[[Act, str, str], None]
    ) -> None:
        self._engine = engine
        self._rounds = rounds
        self._ask = ask

    @contextlib.asynccontextmanager
    async def running(
        self,
        run: queries.ReviewRun,
        pull: queries.PullRequest,
        checkout: Checkout,
        config: EffectiveConfig,
        order: Order,
        read: ReadPrompt,
        called: Sequence[queries.WaitingMention] = (),
        *,
        only_called: bool = False,
    ) -> AsyncIterator[PromptRuns]:
        """Run the prompts whose conditions hold, and those that comments called, until the block
        ends; leaving it early stops them. `order` is that of the review; `only_called`: the others
        have nothing new to read."""
        subject = PromptSubject(pull.draft, pull.labels, pull.author, checkout.files)
        plans = [] if only_called else [one.value for one in config.prompts]
        chosen, others = await asyncio.to_thread(prompts.choose, plans, subject)
        commands = {one.value.id: one.value for one in config.commands}
        wished = [prompts.called_plan(commands[one.command], one.name) for one in called]
        more, not_more = await asyncio.to_thread(
            prompts.choose, wished, subject._replace(draft=False)
        )
        chosen, others = [*chosen, *more], [*others, *not_more]
        going = PromptRuns(run, self._told(run))
        going.arguments = {
            f"called-{one.name}": prompts.arguments_told(one.arguments, split_words(one.arguments))
            for one in called
        }
        going.outcomes += others
        going.parts = len(chosen) + 1
        going.fed = [one.plan.id for one in chosen if prompts.is_fed(one.plan)]
        turns = asyncio.Semaphore(MOST_AT_ONCE)
        failed: Exception | None = None
        async with asyncio.TaskGroup() as tasks:
            # Prompts that the review waits for start first.
            for one in sorted(chosen, key=lambda each: not prompts.is_fed(each.plan)):
                doing = self._do(going, one, checkout, order, read, turns)
                going.tasks[one.plan.id] = tasks.create_task(doing, name=f"prompt-{one.plan.id}")
            try:
                yield going
            except Exception as error:
                # Raised below, because a task group wraps exceptions that leave it.
                failed = error
                for task in going.tasks.values():
                    task.cancel()
        if failed is not None:
            raise failed

    async def _do(
        self,
        going: PromptRuns,
        chosen: ChosenPrompt,
        checkout: Checkout,
        order: Order,
        read: ReadPrompt,
        turns: asyncio.Semaphore,
    ) -> None:
        plan = chosen.plan
        outcome = PromptOutcome(id=plan.id, title=plan.title, end="failed", mode=plan.mode)
        try:
            async with turns:
                notes = [going.arguments[plan.id]] if plan.id in going.arguments else []
                wanted = prompts.prompt_order(chosen, order, notes)
                session, cost = await read(
                    wanted, model_of(plan.asked.provider, plan.asked.model), going.parts
                )
            outcome = msgspec.structs.replace(outcome, session_id=session.id, cost=cost)
            if session.review is None:
                raise GatehouseError(f"the reader gave no answer: {session.end_reason}")
            paths = {str(one["path"]) for one in session.review["findings"]}
            lines = await self._rounds.lines(checkout, paths)
            report = await asyncio.to_thread(
                prompts.report_of, chosen, session.review, checkout.files, lines.get
            )
            outcome = _done(outcome, report, model=str(session.review["model"]))
            going.reports.append((report, outcome.model))
        except NoAllowanceError as error:
            outcome = msgspec.structs.replace(outcome, end="skipped", reason=str(error))
        except (GatehouseError, msgspec.ValidationError, KeyError) as error:
            outcome = msgspec.structs.replace(outcome, reason=str(error)[:500])
        except Exception as error:
            log.exception("a prompt failed", run=going.run.id, prompt=plan.id)
            reason = f"internal error: {type(error).__name__}"
            outcome = msgspec.structs.replace(outcome, reason=reason)
        going.outcomes.append(outcome)

    def conclude(
        self,
        going: PromptRuns,
        pull: queries.PullRequest,
        repository: queries.Repository,
    ) -> queries.ReviewRun:
        """Store the prompts' outcomes, and request their posts. Return the run's facts."""
        acts: dict[str, Act] = {}
        target = target_of(repository, pull, going.run.head_sha)
        outcomes = {one.id: one for one in going.outcomes}
        for report, model in going.reports:
            known = going.told.get(report.plan.id)
            fresh = prompts.without_known(report, known or ())
            told = [one.id for one in fresh.findings]
            is_said = prompts.is_called(report.plan) or (
                prompts.is_posted(report.plan)
                and (
                    # The first time, even that nothing was found is posted; prose is posted for
                    # each head.
                    told or known is None or report.plan.format == "narrative"
                )
            )
            outcomes[report.plan.id] = msgspec.structs.replace(
                outcomes[report.plan.id],
                known=len(report.findings) - len(told),
                told=told if is_said else [],
                is_said=bool(is_said),
            )
            if is_said:
                is_recorded = model == "recorded"
                acts[report.plan.id] = prompt_act(
                    target, fresh, run_id=going.run.id, recorded=is_recorded
                )
        order = [one.id for one in going.outcomes]
        kept = [msgspec.to_builtins(outcomes[name]) for name in sorted(order)]
        with self._engine.begin() as connection:
            run = queries.run(connection, going.run.id)
            assert run is not None
            cost = run.cost + sum(one.cost for one in outcomes.values())
            queries.change_run(connection, run.id, prompts=kept, cost=cost)
            run = msgspec.structs.replace(run, prompts=kept, cost=cost)
        for prompt, act in acts.items():
            self._ask(act, repository.session_id, f"the prompt {prompt} on {act.head[:12]}")
        return run

    def settled(self, act: Act) -> None:
        """Record that a prompt's post is on the forge, or that a person denied it: it isn't posted
        again."""
        self._change(act, {"is_settled": True})

    def came_to_nothing(self, act: Act) -> None:
        """Record that a prompt's post failed: it may be posted again."""
        self._change(act, {"told": [], "is_said": False})

    def _change(self, act: Act, facts: dict[str, object]) -> None:
        prompt, run_id = prompt_and_run(act.body)
        with self._engine.begin() as connection:
            run = queries.run(connection, run_id) if run_id else None
            if run is not None:
                changed = [one | facts if one["id"] == prompt else one for one in run.prompts]
                queries.change_run(connection, run.id, prompts=changed)

    def _told(self, run: queries.ReviewRun) -> dict[str, set[str]]:
        """Return the findings that each prompt reported in earlier runs of the pull request, by the
        prompt's id; a prompt without earlier reports has no entry."""
        with self._engine.connect() as connection:
            earlier = queries.runs_of(connection, run.pull_id)
        found: dict[str, set[str]] = {}
        for one in earlier:
            for said in one.prompts if one.id != run.id else ():
                # This run's act replaces one that still waits, and repeats its findings.
                if said.get("is_said") and said.get("is_settled"):
                    found.setdefault(said["id"], set()).update(said["told"])
        return found


def _done(outcome: PromptOutcome, report: PromptReport, *, model: str) -> PromptOutcome:
    return msgspec.structs.replace(
        outcome,
        end="done",
        model=model,
        summary=report.summary[:2_000],
        confidence=report.confidence,
        findings=[
            {"id": one.id, "line": one.line} | msgspec.to_builtins(one.finding)
            for one in report.findings
        ],
        below_floor=report.below_floor,
        beyond_limit=report.beyond_limit,
        outside=report.outside,
    )
