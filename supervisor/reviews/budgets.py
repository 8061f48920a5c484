"""The money of reviews: reserved before a run starts, shared by its sessions, then returned.

`reviews.core.allowances` says how much a run may have, egress enforces each session's budget, and
the ledger has its real use. Facts are compared with the ledger regularly instead of being counted:
an attempt that no longer runs is settled once its sessions have ended and their last calls are in
the ledger.

INVARIANT: a run is started in the transaction that reserved its money in every layer.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, Engine

from supervisor.base.clock import Clock
from supervisor.core.budget import Limits, format_budget, parse_budget
from supervisor.core.forge_acts import Act
from supervisor.core.money import dollars
from supervisor.errors import GatehouseError, NotFoundError, UserError
from supervisor.reviews.core import posts
from supervisor.reviews.core.allowances import (
    NOTICE_PERCENTS,
    Caps,
    Layer,
    LayerUse,
    Payer,
    creeps,
    day_of,
    due_notices,
    layers,
    month_of,
    p95,
    proposed,
    refills_at,
    reservable,
    share,
)
from supervisor.reviews.core.receipts import NO_BUDGET
from supervisor.reviews.store import allowances, jobs, queries
from supervisor.reviews.store.allowances import Attempt, HeldSlot
from supervisor.reviews.targets import target_of

# How often to check whether reviews that wait for money may continue.
LOOK_EVERY_S = 60.0
DAY_S = 86_400.0
# Reserved money may be returned soon: by running reviews, and by an earlier attempt that isn't
# settled yet.
WAIT = "wait"
PICO_PER_MICRO = 10**6

# Returns a session's cost; None while it, or one of its calls, isn't over. Raises `NotFoundError`
# if the session isn't known.
type SpentBy = Callable[[str], int | None]
# Starts a session with a budget, as `core.budget` reads it; returns its id.
type StartPaid = Callable[[str], Awaitable[str]]
type RecordEvent = Callable[..., None]
type AskFor = Callable[[Act, str, str], None]


class NoAllowanceError(GatehouseError):
    """Raised if a session can't start because its run has no money left."""


class Budgets:
    """The budgets of one supervisor's reviews. `limits` are those of one run; its dollars are
    `caps.run`."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        caps: Caps,
        limits: Limits,
        spent: SpentBy,
        ask: AskFor,
        record: RecordEvent,
    ) -> None:
        self.caps = caps
        self._engine = engine
        self._clock = clock
        self._limits = limits
        self._spent = spent
        self._ask = ask
        self._record = record
        self._look_at = 0.0

    # -- before a run ------------------------------------------------------------------------------

    def reserve(self, connection: Connection, payer: Payer, attempt: int) -> str:
        """Reserve the money that an attempt may use, in the caller's transaction, which begins with
        `allowances.lock`. Return "", `WAIT`, or the code of the reason why there is no money."""
        self._settle_over(connection)
        run_id = payer.run_id
        if allowances.open_attempt(connection, run_id):
            return WAIT
        now = self._clock.now()
        wanted = layers(self.caps, payer, now)
        uses = allowances.uses(connection, wanted)
        found = reservable(uses)
        if isinstance(found, int):
            allowances.reserve(connection, run_id, attempt, layers=wanted, amount=found, now=now)
            return ""
        found = reservable([one._replace(reserved=0) for one in uses])
        if isinstance(found, int):
            return WAIT
        self._look_at = now + LOOK_EVERY_S
        (use,) = (one for one in uses if one.layer == found)
        if found.scope != "run":
            self._notice(connection, use, payer, NOTICE_PERCENTS[-1:])
        return NO_BUDGET[found.scope]

    def refilled(self) -> list[HeldSlot]:
        """Return the reviews that waited for money and may continue: a period ended, a run returned
        money, or a cap was raised. Checked regularly, and after each settlement."""
        now = self._clock.now()
        if now < self._look_at:
            return []
        self._look_at = now + LOOK_EVERY_S
        known: dict[Layer, LayerUse] = {}
        with self._engine.connect() as connection:
            found = []
            for one in allowances.held_slots(connection):
                wanted = self._layers(connection, one.pull_id, "")
                fresh = [layer for layer in wanted if layer not in known]
                known |= zip(fresh, allowances.uses(connection, fresh), strict=True)
                if isinstance(reservable([known[layer] for layer in wanted]), int):
                    found.append(one)
        return found

    def say_held(self, pull_id: int, reason: str) -> None:
        """Ask to post a comment that a review waits for money: once a day per repository, or once
        per pull request that used up its own budget."""
        if reason not in NO_BUDGET.values() or reason == NO_BUDGET["run"]:
            return
        now = self._clock.now()
        day = day_of(now)
        with self._engine.connect() as connection:
            pull = queries.pull(connection, pull_id)
            repository = queries.repository_of(connection, pull.repository_id)
            wanted = self._layers(connection, pull_id, "")
        (layer,) = (one for one in wanted if NO_BUDGET[one.scope] == reason)
        scope = Layer("repository", str(repository.id), f"c{day}", None)
        if reason == NO_BUDGET["pull"]:
            scope = scope._replace(scope="pull", key=str(pull_id))
        act = posts.held_comment(
            target_of(repository, pull, pull.head_sha),
            reason,
            dollars(layer.cap or 0),
            refills_at(layer.period),
            day=day,
        )
        with self._engine.connect() as connection:
            if allowances.said(connection, scope):
                return
        # Requested before it is recorded: a crash in between requests the same comment again, which
        # replaces the first.
        self._ask(act, repository.session_id, "nothing is left of a budget")
        with self._engine.begin() as connection:
            allowances.say(connection, scope.scope, scope.key, scope.period, percent=0, now=now)

    # -- for people --------------------------------------------------------------------------------

    def in_use(self) -> list[LayerUse]:
        """Return the use of the caps in force; for pull requests, only those with at least half
        used."""
        now, caps = self._clock.now(), self.caps
        day, month = day_of(now), month_of(now)
        with self._engine.connect() as connection:
            found = [
                *allowances.in_use(connection, "all", day, caps.all),
                *allowances.in_use(connection, "owner", month, caps.owner),
                *allowances.in_use(connection, "repository", day, caps.repository),
            ]
            pulls = allowances.in_use(connection, "pull", "", caps.pull)
        half = [one for one in pulls if due_notices(one, ())]
        return found + half

    def proposals(self) -> dict[str, int]:
        """Return a higher daily cap, by the layer's key, for each repository whose present cap held
        reviews on three days of a week."""
        cap, since = self.caps.repository, self._clock.now() - 7 * DAY_S
        if cap is None:
            return {}
        with self._engine.connect() as connection:
            held = allowances.held_since(connection, NO_BUDGET["repository"], since)
        days: dict[str, list[str]] = {}
        for forge, name, at in held:
            days.setdefault(f"{forge}:{name.lower()}", []).append(day_of(at))
        return {
            key: more for key, found in days.items() if (more := proposed(cap, found)) is not None
        }

    def notices(self) -> list[tuple[str, str, str, int]]:
        """Return the notices given about the caps in force: scope, key, period, percent."""
        now = self._clock.now()
        current = ("", day_of(now), month_of(now))
        with self._engine.connect() as connection:
            said = allowances.notices(connection, now - 31 * DAY_S)
        return [one for one in said if one[2] in current]

    def spent_since(self, since: float) -> list[allowances.AttemptCost]:
        """Return the cost of each attempt since then, oldest first."""
        with self._engine.connect() as connection:
            return allowances.spent_since(connection, since)

    # -- while it runs -----------------------------------------------------------------------------

    async def start(self, run_id: str, start: StartPaid, *, parts: int = 1) -> str:
        """Start one of a run's `parts` sessions with its share of the money; return its id. Raise
        `NoAllowanceError` if the money was returned or is used up."""
        with self._engine.begin() as connection:
            allowances.lock(connection)
            attempt = allowances.open_attempt(connection, run_id)
            if attempt is None:
                raise NoAllowanceError(
                    "the run has no money any more", "it isn't wanted any longer"
                )
            given = [one.budget for one in allowances.sessions_of(connection, attempt)]
            amount = share(attempt.reserved, given, parts)
            # Whole micro-dollars, the smallest unit in which a budget is written.
            amount -= amount % PICO_PER_MICRO
            if amount <= 0:
                raise NoAllowanceError("the run's money is used up", "raise GATEHOUSE_REVIEW_COST")
            row = allowances.add_session(connection, attempt, amount)
        session_id = ""
        try:
            session_id = await start(
                format_budget(msgspec.structs.replace(self._limits, cost=amount))
            )
        finally:
            with self._engine.begin() as connection:
                allowances.session_started(connection, row, session_id)
        return session_id

    # -- after it ----------------------------------------------------------------------------------

    def lose(self) -> None:
        """At start-up, count as spent the money of sessions that an earlier process was about to
        start.
        """
        with self._engine.begin() as connection:
            allowances.lose_sessions(connection)

    def settle_over(self) -> None:
        """Return the money that ended attempts reserved but, by the ledger, didn't use."""
        with self._engine.connect() as connection:
            if not allowances.attempts_over(connection):
                return
        with self._engine.begin() as connection:
            allowances.lock(connection)
            self._settle_over(connection)

    def _settle_over(self, connection: Connection) -> None:
        for one in allowances.attempts_over(connection):
            cost = self._cost(connection, one)
            if cost is None:
                continue
            allowances.settle(connection, one, cost, self._clock.now())
            cost = self._cost_of_run(connection, one)
            # It is a run of one of the two.
            queries.change_run(connection, one.run_id, cost=cost)
            jobs.change_run(connection, one.run_id, cost=cost)
            self._look_at = 0.0
            self._notices(connection, one)

    def _cost(self, connection: Connection, one: Attempt) -> int | None:
        total = 0
        for session in allowances.sessions_of(connection, one):
            known = session.budget if session.lost else None
            if session.session_id:
                try:
                    known = self._spent(session.session_id)
                except NotFoundError:
                    # Its records are gone with the database that held them.
                    known = session.budget
            if known is None:
                return None
            total += known
        return total

    def _cost_of_run(self, connection: Connection, one: Attempt) -> int:
        (use,) = allowances.uses(connection, [Layer("run", one.run_id, "", None)])
        return use.used

    def _notices(self, connection: Connection, one: Attempt) -> None:
        payer = self._payer(connection, one.run_id)
        caps = {layer.scope: layer.cap for layer in layers(self.caps, payer, self._clock.now())}
        for layer in allowances.layers_of(connection, one):
            if layer.scope == "run":
                continue
            (use,) = allowances.uses(connection, [layer._replace(cap=caps[layer.scope])])
            due = due_notices(use, allowances.said(connection, use.layer))
            self._notice(connection, use, payer, due)
        self._notice_creeping(connection)

    def _notice(
        self, connection: Connection, use: LayerUse, payer: Payer, percents: Sequence[int]
    ) -> None:
        now, layer = self._clock.now(), use.layer
        for percent in percents:
            if allowances.say(
                connection, layer.scope, layer.key, layer.period, percent=percent, now=now
            ):
                found = queries.repository(connection, payer.forge, payer.repository)
                self._record(
                    "review_budget_used",
                    session=found.session_id if found else "",
                    scope=layer.scope,
                    key=layer.key,
                    period=layer.period,
                    percent=percent,
                    limit=layer.cap,
                    used=use.used,
                )

    def _notice_creeping(self, connection: Connection) -> None:
        """Record once a day that runs cost clearly more than in the week before."""
        now = self._clock.now()
        found = [one for one in allowances.spent_since(connection, now - 8 * DAY_S) if one.settled]
        today = [one.cost for one in found if one.at > now - DAY_S]
        before = [one.cost for one in found if one.at <= now - DAY_S]
        is_new = creeps(today, before) and allowances.say(
            connection, "p95", "", day_of(now), percent=95, now=now
        )
        if is_new:
            self._record("review_spend_creeps", p95=p95(today), before=p95(before))

    def _layers(self, connection: Connection, pull_id: int, run_id: str) -> tuple[Layer, ...]:
        return layers(self.caps, self.payer_of_pull(connection, pull_id, run_id), self._clock.now())

    def _payer(self, connection: Connection, run_id: str) -> Payer:
        run = queries.run(connection, run_id)
        if run is not None:
            return self.payer_of_pull(connection, run.pull_id, run_id)
        return payer_of_job(jobs.repository_of_run(connection, run_id), run_id)

    def payer_of_pull(self, connection: Connection, pull_id: int, run_id: str) -> Payer:
        """Return who pays for a run on a pull request."""
        pull = queries.pull(connection, pull_id)
        repository = queries.repository_of(connection, pull.repository_id)
        return Payer(
            forge=repository.forge,
            repository=repository.full_name,
            number=pull.number,
            run_id=run_id,
        )


def payer_of_job(repository: queries.Repository, run_id: str) -> Payer:
    """Return who pays for a job's run."""
    name = repository.full_name
    return Payer(forge=repository.forge, repository=name, number=0, run_id=run_id)


def read_caps(
    *, review: str, pull: str, repository_day: str, owner_month: str, all_day: str
) -> tuple[Caps, Limits]:
    """Read the caps and the limits of one run from the settings. Raise `UserError` if one isn't an
    amount of dollars."""
    limits = parse_budget(review, "GATEHOUSE_REVIEW_COST")
    if limits.cost is None:
        raise UserError("GATEHOUSE_REVIEW_COST names no dollars", "write 2usd, or 2usd,1M-tokens")
    caps: dict[str, Any] = {
        "pull": _cost(pull, "GATEHOUSE_PR_COST"),
        "repository": _cost(repository_day, "GATEHOUSE_REPO_DAY_COST"),
        "owner": _cost(owner_month, "GATEHOUSE_OWNER_MONTH_COST"),
        "all": _cost(all_day, "GATEHOUSE_ALL_DAY_COST"),
    }
    return Caps(run=limits.cost, **caps), limits


def _cost(text: str, name: str) -> int | None:
    limits = parse_budget(text, name)
    if msgspec.structs.replace(limits, cost=None):
        raise UserError(f"{name}: `{text}` is more than dollars", "write 5usd")
    return limits.cost
