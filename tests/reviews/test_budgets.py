"""The money of reviews against a real database and a clock that is moved by hand: what starts, what
waits, what is said, and when it goes on."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from supervisor.core.budget import Limits, parse_budget
from supervisor.core.forge_acts import Act
from supervisor.errors import NotFoundError, UserError
from supervisor.records.audit import Audit
from supervisor.reviews.budgets import Budgets, NoAllowanceError, read_caps
from supervisor.reviews.core.allowances import Caps, LayerUse, day_of
from supervisor.reviews.core.slots import Closed, Due, Ended, Wanted, state
from supervisor.reviews.holds import Holds
from supervisor.reviews.signed_receipts import Receipts
from supervisor.reviews.store import allowances, queries
from supervisor.reviews.stored_slots import Slots
from supervisor.store.engine import open_database
from tests.fakes.clock import FakeClock

USD = 10**12
MIGRATIONS = Path(queries.__file__).parent / "migrations"
DAY_S = 86_400


class Waiting:
    """A queue that nobody serves."""

    def put(self, run_id: str) -> None:
        pass

    async def serve(self, handle: object, concurrency: int) -> None:
        pass


class World:
    """Slots with their money. `books` is what the ledger knows of each session: None while it or a
    call of it runs."""

    def __init__(self, folder: Path, caps: Caps, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.engine = open_database(folder / "reviews.db", MIGRATIONS)
        self.books: dict[str, int | None] = {}
        self.acts: list[Act] = []
        self.events: list[dict[str, Any]] = []
        self.budgets = self._budgets(caps)
        self.receipts = Receipts(self.engine, self.clock, folder / "receipts.key", self._ask)
        self.slots = Slots(
            self.engine,
            self.clock,
            Waiting(),
            self.receipts,
            self.budgets,
            debounce_s=1.0,
            longest_wait_s=10.0,
            holding=Holds(self.engine, self.clock, cast("Audit", None), lambda: None),
            abort=lambda run_id: None,
        )

    def _budgets(self, caps: Caps) -> Budgets:
        return Budgets(
            self.engine,
            self.clock,
            caps,
            Limits(cost=caps.run, tokens=10**6),
            self._spent,
            self._ask,
            lambda event, **facts: self.events.append({"event": event, **facts}),
        )

    def _ask(self, act: Act, session_id: str, reason: str) -> None:
        self.acts.append(act)

    def _spent(self, session_id: str) -> int | None:
        if session_id not in self.books:
            raise NotFoundError("no such session", "none")
        return self.books[session_id]

    def pull(self, number: int, repository: str = "acme/shop") -> int:
        """A pull request that is open."""
        with self.engine.begin() as connection:
            found = queries.repository(connection, "github", repository)
            known = found or queries.add_repository(
                connection, forge="github", full_name=repository, session_id=f"of-{repository}"
            )
            return queries.put_pull(connection, known.id, number, head_sha="a" * 40)

    def want(self, pull_id: int, head: str = "a" * 40) -> None:
        """Have it reviewed, and let the wait go by."""
        self.slots.happened(pull_id, Wanted(head))
        self.go_on(2)

    def go_on(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.slots.drain()

    def state(self, pull_id: int) -> str:
        with self.engine.connect() as connection:
            return state(queries.slot(connection, pull_id))

    def run_id(self, pull_id: int) -> str:
        with self.engine.connect() as connection:
            return queries.slot(connection, pull_id).run_id

    def session(self, pull_id: int, parts: int = 1) -> str:
        """Start a session of the run, as `Runs` does; its id is its budget's text."""
        run_id = self.run_id(pull_id)
        name = f"s{len(self.books)}"

        async def start(budget: str) -> str:
            self.books[name] = None
            self.started = budget
            return name

        return asyncio.run(self.budgets.start(run_id, start, parts=parts))

    def end(self, pull_id: int, cost: int | None = None, **more: Any) -> None:
        """End the run; `cost` is what its newest session came to."""
        if cost is not None:
            self.books[list(self.books)[-1]] = cost
        with self.engine.connect() as connection:
            slot = queries.slot(connection, pull_id)
        self.slots.happened(pull_id, Ended(slot.run_id, slot.attempt, **more))
        self.budgets.settle_over()

    def spend(self, pull_id: int, cost: int, head: str = "a" * 40) -> None:
        """A whole run that came to so much."""
        self.want(pull_id, head)
        assert self.state(pull_id) == "running"
        self.session(pull_id)
        self.end(pull_id, cost)

    def use(self, scope: str) -> LayerUse:
        return next(one for one in self.budgets.in_use() if one.layer.scope == scope)

    def comments(self) -> list[Act]:
        return [one for one in self.acts if one.operation == "comment"]

    def outcomes(self, pull_id: int) -> list[tuple[str, str]]:
        with self.engine.connect() as connection:
            found = queries.receipts_of(connection, [pull_id])
        return [(one.outcome, one.reason) for one in found]


CAPS = Caps(run=2 * USD, pull=10 * USD, repository=5 * USD)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, CAPS)
    yield made
    made.engine.dispose()


def test_a_run_reserves_in_every_layer_and_gives_back_what_it_did_not_use(world: World) -> None:
    one = world.pull(1)
    world.want(one)
    assert world.state(one) == "running"
    assert (world.use("repository").used, world.use("repository").reserved) == (0, 2 * USD)
    world.session(one)
    assert parse_budget(world.started, "x") == Limits(cost=2 * USD, tokens=10**6)
    world.end(one, 3 * USD // 10)
    use = world.use("repository")
    assert (use.used, use.reserved) == (3 * USD // 10, 0)
    with world.engine.connect() as connection:
        (run,) = queries.newest_runs(connection)
    assert run.cost == 3 * USD // 10


def test_while_others_hold_the_money_a_run_waits_and_says_nothing(world: World) -> None:
    pulls = [world.pull(number) for number in range(1, 5)]
    for one in pulls:
        world.want(one)
    # $2, $2, what is left of $5, and nothing.
    assert [world.state(one) for one in pulls] == ["running"] * 3 + ["debouncing"]
    assert world.use("repository").reserved == 5 * USD
    assert world.outcomes(pulls[3]) == []
    world.session(pulls[0])
    world.end(pulls[0], USD // 10)
    world.go_on(1)
    assert world.state(pulls[3]) == "running"


def test_nothing_left_is_held_said_once_a_day_and_goes_on_after_midnight(world: World) -> None:
    one, two = world.pull(1), world.pull(2)
    for _ in range(2):
        world.spend(one, 2 * USD, head=f"{_}" * 40)
    world.spend(two, 9 * USD // 10, head="b" * 40)
    world.want(one, "c" * 40)
    assert world.state(one) == "idle"
    assert world.outcomes(one)[-1] == ("held", "no-budget-repository")
    (check,) = [act for act in world.acts if act.operation == "check" and act.head == "c" * 40]
    assert check.conclusion == "neutral"
    (comment,) = world.comments()
    assert (comment.number, comment.repository) == (1, "acme/shop")
    # Pushed again, another one wanted, and looked at all day long: nothing more is said.
    world.want(two, "f" * 40)
    assert world.outcomes(two)[-1] == ("held", "no-budget-repository")
    world.want(one, "d" * 40)
    assert world.outcomes(one)[-1] == ("held", "no-budget-repository")
    today = day_of(world.clock.now())
    while day_of(world.clock.now() + 600) == today:
        world.go_on(600)
    assert len(world.comments()) == 1
    assert world.state(one) == "idle"
    with world.engine.begin() as connection:
        queries.put_pull(connection, 1, 1, head_sha="e" * 40)
    world.go_on(700)
    world.go_on(2)
    assert world.state(one) == "running"
    with world.engine.connect() as connection:
        assert queries.slot(connection, one).run_sha == "e" * 40, "the newest head"
    assert len(world.comments()) == 1


def test_another_day_without_money_is_another_comment(world: World) -> None:
    one = world.pull(1)
    for day in range(5):
        world.spend(one, 2 * USD, head=f"{day}" * 40)
        world.clock.advance(DAY_S)
    for _ in range(2):
        world.want(one, "f" * 40)
        assert world.outcomes(one)[-1] == ("held", "no-budget-pull")
        world.clock.advance(DAY_S)
        world.want(one, "e" * 40)
    assert len(world.comments()) == 3
    assert len({act.body for act in world.comments()}) == 3


def test_a_cap_that_is_raised_lets_it_go_on(world: World, tmp_path: Path) -> None:
    one = world.pull(1)
    for head in "12345":
        world.spend(one, 2 * USD, head=head * 40)
        world.clock.advance(DAY_S)
    world.want(one, "6" * 40)
    assert world.state(one) == "idle"
    world.go_on(3600)
    assert world.state(one) == "idle"
    raised = World(tmp_path, Caps(run=2 * USD, pull=12 * USD, repository=5 * USD), world.clock)
    raised.slots.drain()
    raised.go_on(2)
    assert raised.state(one) == "running"
    raised.engine.dispose()


def test_closed_or_disabled_it_does_not_come_back(world: World) -> None:
    one = world.pull(1)
    for head in "12345":
        world.spend(one, USD, head=head * 40)
    world.want(one, "6" * 40)
    assert world.state(one) == "idle"
    world.slots.happened(one, Closed("closed"))
    world.clock.advance(DAY_S)
    world.go_on(1)
    world.go_on(2)
    assert world.state(one) == "idle"


def test_notices_come_once_at_each_mark(world: World) -> None:
    one = world.pull(1)
    for cost in (24, 2, 10, 5, 8):
        world.spend(one, cost * USD // 10, head=f"{cost:040}")
    world.want(one, "e" * 40)
    told = [(one_["scope"], one_["percent"], one_["used"]) for one_ in world.events]
    # $2.40 is more than a run may reserve here; its books say so, and they count.
    assert told == [
        ("repository", 50, 26 * USD // 10),
        ("repository", 80, 41 * USD // 10),
        ("repository", 100, 49 * USD // 10),
    ]
    assert {one_["session"] for one_ in world.events} == {"of-acme/shop"}
    assert [one_[3] for one_ in world.budgets.notices()] == [100, 80, 50]
    world.clock.advance(DAY_S)
    assert world.budgets.notices() == []


def test_a_retry_counts_with_the_attempt_before(world: World) -> None:
    one = world.pull(1)
    world.want(one)
    world.session(one)
    # Its books aren't closed: what is left of the run isn't known.
    world.end(one, failed="forge", may_retry=True)
    world.go_on(31)
    assert world.state(one) == "debouncing"
    world.books["s0"] = 15 * USD // 10
    world.go_on(1)
    assert world.state(one) == "running"
    world.session(one)
    assert parse_budget(world.started, "x").cost == USD // 2
    world.end(one, USD // 2)
    assert world.use("repository").used == 2 * USD


def test_sessions_of_a_run_share_its_money(world: World) -> None:
    one = world.pull(1)
    world.want(one)
    budgets = []
    for _ in range(4):
        world.session(one, parts=4)
        budgets.append(parse_budget(world.started, "x").cost)
    assert budgets == [USD // 2] * 4
    with pytest.raises(NoAllowanceError):
        world.session(one, parts=4)


def test_a_session_that_could_not_start_took_no_money(world: World) -> None:
    one = world.pull(1)
    world.want(one)

    async def start(budget: str) -> str:
        raise UserError("no sandbox", "make one")

    with pytest.raises(UserError):
        asyncio.run(world.budgets.start(world.run_id(one), start))
    world.end(one, failed="no sandbox")
    with world.engine.connect() as connection:
        assert allowances.attempts_over(connection) == []
    assert world.budgets.in_use()[-1].used == 0


def test_a_run_that_is_not_wanted_any_more_starts_nothing(world: World) -> None:
    one = world.pull(1)
    world.want(one)
    run_id = world.run_id(one)
    world.slots.happened(one, Closed("closed"))
    world.go_on(1)
    assert world.use("repository").reserved == 0

    async def start(budget: str) -> str:
        raise AssertionError

    with pytest.raises(NoAllowanceError):
        asyncio.run(world.budgets.start(run_id, start))


def test_after_a_crash_all_of_it_counts_where_nobody_knows_better(
    world: World, tmp_path: Path
) -> None:
    one, two = world.pull(1), world.pull(2)
    world.want(one)
    world.want(two)
    world.session(one)
    with world.engine.begin() as connection:
        for pull_id in (one, two):
            assert queries.claim(connection, world.run_id(pull_id), world.clock.now())
        # It was about to start a session of two.
        attempt = allowances.open_attempt(connection, world.run_id(two))
        assert attempt is not None
        allowances.add_session(connection, attempt, 2 * USD)
    world.engine.dispose()
    after = World(tmp_path, CAPS, world.clock)
    after.books["s0"] = USD // 4
    after.slots.end_leases()
    after.slots.drain()
    # Of the first the books know what it used; of the other all of it counts, and a new run comes.
    assert after.state(one) == "running"
    assert after.state(two) == "idle"
    use = after.use("repository")
    assert use.used == 2 * USD + USD // 4
    assert use.reserved == USD + 3 * USD // 4
    assert after.comments() == []
    after.engine.dispose()


def test_where_the_books_are_gone_all_of_it_counts(world: World) -> None:
    one = world.pull(1)
    world.want(one)
    world.session(one)
    world.books.clear()
    world.end(one)
    assert world.use("repository").used == 2 * USD


def test_costs_that_creep_up_are_said_once_a_day(world: World) -> None:
    pulls = [world.pull(number, f"acme/r{number}") for number in range(30)]
    for one in pulls[:20]:
        world.spend(one, USD // 10)
    world.clock.advance(2 * DAY_S)
    for one in pulls[20:]:
        world.spend(one, USD // 2)
    (said,) = [one_ for one_ in world.events if one_["event"] == "review_spend_creeps"]
    assert (said["p95"], said["before"]) == (USD // 2, USD // 10)
    assert ("p95", "", day_of(world.clock.now()), 95) in world.budgets.notices()


def test_more_is_proposed_where_reviews_were_held_on_three_days(world: World) -> None:
    one = world.pull(1)
    for day in range(3):
        assert world.budgets.proposals() == {}
        for number in range(3):
            other = world.pull(10 * day + number + 2)
            world.spend(other, 17 * USD // 10)
        world.want(one, f"{day}" * 40)
        assert world.outcomes(one)[-1] == ("held", "no-budget-repository")
        world.slots.happened(one, Closed("closed"))
        world.clock.advance(DAY_S)
    assert world.budgets.proposals() == {"github:acme/shop": 10 * USD}


def test_however_many_reserve_at_once_no_cap_is_passed(tmp_path: Path) -> None:
    """Two supervisors' worth of threads, each with connections of its own, on one file."""
    worlds = [World(tmp_path, Caps(run=USD, pull=None, repository=7 * USD)) for _ in range(2)]
    pulls = [worlds[0].pull(number) for number in range(64)]

    for pull in pulls:
        worlds[0].slots.happened(pull, Wanted("a" * 40))
    for one in worlds:
        one.clock.advance(2)

    def start(number: int) -> str:
        return state(worlds[number % 2].slots.happened(pulls[number], Due(f"r{number}")))

    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(start, range(64)))
    assert found.count("running") == 7
    assert worlds[0].use("repository").reserved == 7 * USD
    for one in worlds:
        one.engine.dispose()


def test_caps_are_dollars() -> None:
    said = {"pull": "10usd", "repository_day": "$5", "owner_month": "", "all_day": ""}
    caps, limits = read_caps(review="2usd,1M-tokens", **said)
    assert caps == Caps(run=2 * USD, pull=10 * USD, repository=5 * USD)
    assert limits == Limits(cost=2 * USD, tokens=10**6)
    with pytest.raises(UserError, match="names no dollars"):
        read_caps(review="1M-tokens", **said)
    with pytest.raises(UserError, match="GATEHOUSE_PR_COST"):
        read_caps(review="2usd", **said | {"pull": "1M-tokens"})
