"""The ledger: reserved before, settled after, never over a limit, and nothing forgotten by a
crash."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor.core.budget import Limits, Over, parse_budget
from supervisor.core.models.model_calls import ModelCall, Tokens
from supervisor.core.models.usage import Usage
from supervisor.core.money import PICOUSD
from supervisor.core.secrets.redact import Redactor
from supervisor.core.sessions import Session, SessionId
from supervisor.errors import PolicyError, StorageError, UserError
from supervisor.ledger.spending import Spending, read_prices
from supervisor.ledger.traffic import BudgetRefusal
from supervisor.records.audit import Audit
from supervisor.settings import ROOT
from supervisor.store.engine import open_database
from tests.examples import examples
from tests.fakes.clock import FakeClock

TABLE = read_prices(ROOT / "policy/prices.yaml")
HAIKU = ModelCall(
    api="messages", model="claude-haiku-4-5", body_bytes=952, max_output_tokens=1000,
    writes_cache=False, writes_long_cache=False
)  # fmt: skip
SMALL = msgspec.structs.replace(HAIKU, body_bytes=1, max_output_tokens=1)
# 3000 tokens in and 1000 out at $1 and $5 for a million.
HAIKU_MOST = 8 * PICOUSD // 1000


def session(name: str = "one", budget: str = "") -> Session:
    return Session(
        id=SessionId(name), kind="agent", workspace="/w", command=("a",), token_hash="",
        created_at=0, deadline_at=9, budget=budget
    )  # fmt: skip


@dataclass
class Place:
    folder: Path
    clock: FakeClock
    spending: Spending
    audit: Audit

    def audited(self, event: str) -> list[dict[str, object]]:
        self.audit.flush()
        lines = [json.loads(line) for line in (self.folder / "audit.log").read_text().splitlines()]
        return [line for line in lines if line["event"] == event]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[object]:
    made = []

    def place(per_day: str = "", total: str = "", folder: Path = tmp_path) -> Place:
        clock = FakeClock()
        engine = open_database(folder / "gatehouse.db")
        audit = Audit(folder / "audit.log", clock, Redactor([]))
        made.append((engine, audit))
        limits = {"per_day": parse_budget(per_day, "x"), "total": parse_budget(total, "x")}
        return Place(folder, clock, Spending(engine, audit, clock, TABLE, **limits), audit)

    yield place
    for engine, audit in made:
        audit.close()
        engine.dispose()


def usage(output: int = 10) -> Usage:
    return Usage(
        tokens=Tokens(input=100, output=output),
        model="claude-haiku-4-5-20251001",
        has_input=True,
        has_output=True,
    )


def test_a_call_is_reserved_at_its_most_and_settled_at_its_cost(make) -> None:  # type: ignore[no-untyped-def]
    place = make()
    place.spending.open_session(session())
    reserved = place.spending.reserve("one", "api.example.org", HAIKU)
    assert isinstance(reserved, str)
    assert place.spending.summary(session()).used["session"].cost == HAIKU_MOST
    charge = place.spending.settle(reserved, usage())
    assert charge.cost_picousd == 150 * 10**6
    assert place.spending.settle(reserved, usage(9)) is None
    found = place.spending.summary(session())
    assert (found.used["session"].cost, found.used["session"].tokens, found.by_model[0].calls) == (
        150 * 10**6,
        110,
        1,
    )
    assert [(one.model, one.calls) for one in found.by_model] == [("claude-haiku-4-5-20251001", 1)]
    assert [line["cost_picousd"] for line in place.audited("spend_settled")] == [150 * 10**6]
    assert len(place.audited("spend_reserved")) == 1


def test_a_limit_holds_and_may_be_raised(make) -> None:  # type: ignore[no-untyped-def]
    place = make()
    mine = session(budget="0.01usd")
    place.spending.open_session(mine)
    assert isinstance(place.spending.reserve("one", "h", HAIKU), str)
    over = place.spending.reserve("one", "h", HAIKU)
    assert over == Over("session", "cost", PICOUSD // 100, HAIKU_MOST, HAIKU_MOST)
    assert not place.spending.is_raised("one", over, "one")
    place.spending.raise_limit("one", over, over.step, "one")
    assert place.spending.is_raised("one", over, "one")
    assert isinstance(place.spending.reserve("one", "h", HAIKU), str)
    assert place.spending.summary(mine).limits["session"].cost == PICOUSD // 100 + PICOUSD
    assert len(place.audited("budget_raised")) == 1


def test_what_another_session_spends_is_not_counted(make) -> None:  # type: ignore[no-untyped-def]
    place = make()
    both = [session(name, budget="0.01usd") for name in ("one", "two")]
    for each in both:
        place.spending.open_session(each)
        assert isinstance(place.spending.reserve(each.id, "h", HAIKU), str)
    for each in both:
        assert place.spending.summary(each).used["session"].cost == HAIKU_MOST


def test_the_day_and_all_together_are_limits_of_every_session(make) -> None:  # type: ignore[no-untyped-def]
    place = make(per_day="0.01usd", total="0.03usd")
    for name in ("one", "two"):
        place.spending.open_session(session(name))
    assert isinstance(place.spending.reserve("one", "h", HAIKU), str)
    refused = place.spending.reserve("two", "h", HAIKU)
    assert isinstance(refused, Over)
    assert refused.scope == "day"
    place.clock.advance(24 * 3600)
    assert isinstance(place.spending.reserve("two", "h", HAIKU), str)
    place.clock.advance(24 * 3600)
    assert isinstance(place.spending.reserve("two", "h", HAIKU), str)
    place.clock.advance(24 * 3600)
    over = place.spending.reserve("one", "h", HAIKU)
    assert (over.scope, over.kind) == ("total", "cost")


def test_a_day_that_is_over_when_somebody_adds_to_it_isnt_the_next_one(make) -> None:  # type: ignore[no-untyped-def]
    place = make(per_day="0.01usd")
    place.spending.open_session(session())
    place.spending.reserve("one", "h", HAIKU)
    over = place.spending.reserve("one", "h", HAIKU)
    asked_for = place.spending.key("day", "one")
    place.clock.advance(24 * 3600)
    place.spending.raise_limit("one", over, over.step, asked_for)
    assert place.spending.standing().limits["day"].cost == PICOUSD // 100
    assert place.spending.is_raised("one", over, asked_for)
    assert not place.spending.is_raised("one", over, place.spending.key("day", "one"))


def test_80_percent_is_on_record_once_and_only_of_what_was_spent(make) -> None:  # type: ignore[no-untyped-def]
    place = make()
    mine = session(budget="0.02usd,9requests")
    place.spending.open_session(mine)
    both = [place.spending.reserve("one", "h", HAIKU) for _ in range(2)]
    assert place.spending.summary(mine).near == [("session", "cost")]
    for reserved in both:
        place.spending.settle(reserved, Usage(has_input=True, has_output=True, failed=True))
    assert place.spending.summary(mine).near == []
    assert place.audited("budget_nearly_used") == []
    place.spending.settle(place.spending.reserve("one", "h", HAIKU), usage(3200))
    place.spending.settle(place.spending.reserve("one", "h", SMALL), usage(1))
    (line,) = place.audited("budget_nearly_used")
    assert (line["scope"], line["kind"], line["used"]) == (
        "session",
        "cost",
        161 * PICOUSD // 10_000,
    )


def test_what_cant_be_metered_goes_out_only_without_a_budget_of_money(make) -> None:  # type: ignore[no-untyped-def]
    place = make()
    place.spending.open_session(session())
    place.spending.open_session(session("two", "5usd"))
    place.spending.open_session(session("three", "1requests"))
    call = ModelCall(api="unmetered", body_bytes=9)
    reserved = place.spending.reserve("one", "h", call)
    assert place.spending.settle(reserved, usage()).cost_picousd == 0
    assert isinstance(place.spending.reserve("two", "h", call), BudgetRefusal)
    assert isinstance(place.spending.reserve("three", "h", call), str)


def test_a_tool_that_costs_more_than_tokens_goes_out_only_without_a_budget_of_money(make) -> None:  # type: ignore[no-untyped-def]
    place = make()
    call = msgspec.structs.replace(HAIKU, bills_more=True)
    for name, budget, is_let_out in (
        ("one", "", True),
        ("two", "5usd", False),
        ("three", "5M-tokens", True),
    ):
        place.spending.open_session(session(name, budget))
        found = place.spending.reserve(name, "h", call)
        assert isinstance(found, str) is is_let_out
        if is_let_out:
            assert place.spending.settle(found, usage()).flags == ("bills_more",)


def test_an_ended_session_spends_nothing(make) -> None:  # type: ignore[no-untyped-def]
    place = make()
    place.spending.open_session(session())
    reserved = place.spending.reserve("one", "h", HAIKU)
    place.spending.close_session("one")
    assert isinstance(place.spending.reserve("one", "h", HAIKU), BudgetRefusal)
    assert place.spending.settle(reserved, usage()) is not None


def test_what_isnt_on_record_isnt_reserved(make) -> None:  # type: ignore[no-untyped-def]
    place = make()
    place.spending.open_session(session())
    place.audit.record = _fails  # type: ignore[method-assign]
    with pytest.raises(StorageError):
        place.spending.reserve("one", "h", HAIKU)
    assert place.spending.summary(session()).by_model == []


def _fails(event: str, **facts: object) -> None:
    raise StorageError("full", "make room")


@given(
    st.lists(
        st.tuples(st.sampled_from(["reserve", "settle", "lose"]), st.integers(0, 5000)), max_size=40
    ),
    st.integers(1, 60),
)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=examples(25),
    deadline=None,
)
def test_no_order_of_calls_overruns_and_the_sum_is_that_of_the_stub(
    tmp_path_factory, steps: list[tuple[str, int]], limit: int
) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path_factory.mktemp("ledger")
    engine = open_database(folder / "gatehouse.db")
    audit = Audit(folder / "audit.log", FakeClock(), Redactor([]))
    ledger = Spending(
        engine,
        audit,
        FakeClock(),
        TABLE,
        per_day=Limits(),
        total=Limits(cost=limit * PICOUSD // 1000),
    )
    mine = session()
    ledger.open_session(mine)
    under_way: list[str] = []
    stub = 0
    try:
        for step, number in steps:
            if step == "reserve":
                found = ledger.reserve("one", "h", HAIKU)
                if isinstance(found, str):
                    under_way.append(found)
            elif under_way:
                one = under_way.pop(number % len(under_way))
                said = None if step == "lose" else usage(number % 1000)
                ledger.settle(one, said)
                stub += HAIKU_MOST if said is None else (100 + 5 * (number % 1000)) * 10**6
            used = ledger.summary(mine).used["total"].cost
            assert used == stub + len(under_way) * HAIKU_MOST
            assert used <= limit * PICOUSD // 1000
    finally:
        audit.close()
        engine.dispose()


CRASHES = """
import sys
from pathlib import Path
from tests.ledger.test_spending import *
folder = Path(sys.argv[1])
engine = open_database(folder / "gatehouse.db")
ledger = Spending(engine, Audit(folder / "audit.log", FakeClock(), Redactor([])), FakeClock(), TABLE, per_day=Limits(), total=Limits())
ledger.open_session(session())
while True:
    one = ledger.reserve("one", "h", HAIKU)
    print("reserved", one, flush=True)
    two = ledger.reserve("one", "h", HAIKU)
    print("reserved", two, flush=True)
    ledger.settle(two, usage())
    print("settled", two, flush=True)
"""  # noqa: E501


def test_after_kill_9_what_was_said_is_there_and_the_rest_counts_as_reserved(
    make, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    command = [sys.executable, "-c", CRASHES, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        said = [child.stdout.readline().split() for _ in range(50)]
        child.send_signal(signal.SIGKILL)
        said += [line.split() for line in child.stdout if line.endswith("\n")]
    reserved = [words[1] for words in said if words[0] == "reserved"]
    settled = {words[1] for words in said if words[0] == "settled"}
    place = make()
    lost = place.spending.lose_all()
    found = place.spending.summary(session())
    of_model, *rest = found.by_model
    calls = of_model.calls + sum(one.calls for one in rest)
    assert calls >= len(reserved)
    assert lost >= len(reserved) - len(settled) - 1
    assert found.flags["lost"] == lost
    done = calls - lost
    assert found.used["session"].cost == lost * HAIKU_MOST + done * 150 * 10**6
    assert place.spending.lose_all() == 0


def test_a_price_table_that_cant_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="GATEHOUSE_PRICES"):
        read_prices(tmp_path / "none.yaml")
    (tmp_path / "prices.yaml").write_text("version: 1\nmodels: 3\n")
    with pytest.raises(PolicyError, match="`models` is not a mapping"):
        read_prices(tmp_path / "prices.yaml")
