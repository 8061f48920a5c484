"""The ledger of traffic: portions handed out, never over a limit, and nothing forgotten by a
crash."""

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor.core.budget import UNLIMITED, Amounts, Over, parse_budget
from supervisor.core.secrets.redact import Redactor
from supervisor.ledger.spending import Spending
from supervisor.ledger.traffic import BudgetRefusal
from supervisor.records.audit import Audit
from supervisor.settings import ROOT
from supervisor.store.engine import open_database
from supervisor.store.traffic import TrafficKind
from tests.examples import examples
from tests.fakes.clock import FakeClock
from tests.ledger.test_spending import TABLE, session

DAY_S = 24 * 3600


class Ledger:
    """`with_budgets` opens the sessions `one` and `two`."""

    def __init__(self, folder: Path, *, per_day: str = "", total: str = "") -> None:
        self.clock = FakeClock()
        self.engine = open_database(folder / "gatehouse.db")
        self.audit = Audit(folder / "audit.log", self.clock, Redactor([]))
        limits = {"per_day": parse_budget(per_day, "x"), "total": parse_budget(total, "x")}
        self.spending = Spending(self.engine, self.audit, self.clock, TABLE, **limits)
        self.traffic = self.spending.traffic

    def with_budgets(self, one: str = "", two: str = "") -> "Ledger":
        self.spending.open_session(session("one", one))
        self.spending.open_session(session("two", two))
        return self

    def used(self, name: str = "one") -> Amounts:
        return self.spending.summary(session(name)).used["session"]

    def close(self) -> None:
        self.audit.close()
        self.engine.dispose()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[object]:
    made = []

    def ledger(**limits: str) -> Ledger:
        made.append(Ledger(tmp_path, **limits))
        return made[-1]

    yield ledger
    for one in made:
        one.close()


def requests(count: int) -> dict[TrafficKind, int]:
    return {"requests": count, "bytes_out": 0}


def test_without_a_limit_there_is_no_end_and_what_was_sent_is_recorded(make) -> None:  # type: ignore[no-untyped-def]
    ledger = make().with_budgets("5usd")
    assert ledger.traffic.draw("one", "requests", 1) == UNLIMITED
    assert ledger.used() == Amounts()
    ledger.traffic.use("one", {"requests": 3, "bytes_out": 700})
    ledger.traffic.use("one", {"requests": 1, "bytes_out": 1})
    assert ledger.used() == Amounts(requests=4, bytes_out=701)
    assert ledger.used("two") == Amounts()


def test_so_much_as_stands_for_no_limit_counts_where_there_is_one(make) -> None:  # type: ignore[no-untyped-def]
    ledger = make().with_budgets("2000gb")
    assert ledger.traffic.draw("one", "bytes_out", UNLIMITED) == UNLIMITED
    assert ledger.used().bytes_out == UNLIMITED
    assert isinstance(ledger.traffic.draw("one", "bytes_out", UNLIMITED), Over)


def test_a_portion_counts_from_the_moment_it_is_handed_out(make) -> None:  # type: ignore[no-untyped-def]
    ledger = make().with_budgets("1000requests,10mb")
    portion = ledger.traffic.draw("one", "requests", 1)
    assert portion == 62  # a sixteenth of what is left
    assert ledger.used().requests == 62
    ledger.traffic.use("one", requests(2))
    assert ledger.used().requests == 62
    ledger.traffic.use("one", back=requests(60))
    assert ledger.used().requests == 2
    assert ledger.traffic.draw("one", "bytes_out", 9_000_000) == 9_000_000
    assert ledger.traffic.draw("one", "bytes_out", 2_000_000) == Over(
        "session", "bytes_out", 10**7, 9_000_000, 2_000_000
    )


def test_the_last_request_of_a_budget_is_still_allowed_and_no_more(make) -> None:  # type: ignore[no-untyped-def]
    ledger = make().with_budgets("1000requests")
    sent = 0
    while isinstance(portion := ledger.traffic.draw("one", "requests", 1), int):
        sent += portion
        ledger.traffic.use("one", requests(portion))
    assert sent == 1000
    over = ledger.traffic.draw("one", "requests", 1)
    ledger.spending.raise_limit("one", over, over.step, "one")
    assert isinstance(ledger.traffic.draw("one", "requests", 1), int)


def test_the_day_and_all_together_are_limits_of_every_session(make) -> None:  # type: ignore[no-untyped-def]
    ledger = make(per_day="10requests", total="15requests").with_budgets()
    assert ledger.traffic.draw("one", "requests", 6) == 6
    assert ledger.traffic.draw("two", "requests", 6).scope == "day"
    ledger.clock.advance(DAY_S)
    assert ledger.traffic.draw("two", "requests", 9) == 9
    over = ledger.traffic.draw("one", "requests", 1)
    assert (over.scope, over.limit, over.used) == ("total", 15, 15)


def test_what_was_drawn_on_one_day_and_sent_on_the_next_counts_on_the_first(make) -> None:  # type: ignore[no-untyped-def]
    ledger = make(per_day="100requests").with_budgets()
    assert ledger.traffic.draw("one", "requests", 20) == 20
    ledger.clock.advance(DAY_S)
    ledger.traffic.use("one", requests(20))
    assert ledger.spending.standing("one").used["day"].requests == 0
    assert ledger.spending.standing("one").used["total"].requests == 20


def test_80_percent_is_on_record_once_and_shown(make, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    ledger = make().with_budgets("10requests")
    mine = session("one", "10requests")
    ledger.traffic.draw("one", "requests", 7)
    assert ledger.spending.summary(mine).near == []
    ledger.traffic.draw("one", "requests", 1)
    ledger.traffic.draw("one", "requests", 1)
    assert ledger.spending.summary(mine).near == [("session", "requests")]
    ledger.audit.flush()
    assert (tmp_path / "audit.log").read_text().count("budget_nearly_used") == 1


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["draw", "use", "back", "lose"]),
            st.sampled_from(["one", "one+1", "one+2", "two"]),
            st.integers(1, 40),
        ),
        max_size=40,
    ),
    st.integers(1, 90),
)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=examples(25),
    deadline=None,
)
def test_no_order_overruns_and_what_was_sent_is_never_forgotten(
    tmp_path_factory, steps: list[tuple[str, str, int]], limit: int
) -> None:  # type: ignore[no-untyped-def]
    """Of several who draw for one session, each gives back only its own."""
    ledger = Ledger(tmp_path_factory.mktemp("ledger"), total=f"{limit}requests").with_budgets()
    have: Counter[str] = Counter()
    sent = lost = 0
    try:
        for step, who, count in steps:
            name = who.partition("+")[0]
            if step == "draw":
                found = ledger.traffic.draw(name, "requests", count)
                have[who] += found if isinstance(found, int) else 0
            elif step == "use":
                used = min(count, have[who])
                have[who] -= used
                sent += used
                ledger.traffic.use(name, requests(used))
            elif step == "back":
                ledger.traffic.use(name, back=requests(have.pop(who, 0)))
            else:
                lost += have.total()
                have.clear()
                ledger.traffic.lose()
            total = ledger.spending.standing().used["total"].requests
            assert total == sent + lost + have.total()
            assert total <= limit
    finally:
        ledger.close()


def test_an_ended_session_gets_no_portion_beyond_its_budget(make) -> None:  # type: ignore[no-untyped-def]
    ledger = make().with_budgets("10requests")
    ledger.spending.close_session("one")
    assert isinstance(ledger.traffic.draw("one", "requests", 1), BudgetRefusal)


CRASHES = """
import sys
from pathlib import Path
from tests.ledger.test_traffic import Ledger
ledger = Ledger(Path(sys.argv[1]), total="100000requests").with_budgets()
while True:
    print("drawn", ledger.traffic.draw("one", "requests", 5), flush=True)
    ledger.traffic.use("one", {"requests": 3, "bytes_out": 0})
    print("used 3", flush=True)
"""


def test_after_kill_9_all_that_was_handed_out_counts(make, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    command = [sys.executable, "-c", CRASHES, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        said = [child.stdout.readline().split() for _ in range(40)]
        child.send_signal(signal.SIGKILL)
        said += [line.split() for line in child.stdout if line.endswith("\n")]
    drawn = sum(int(words[1]) for words in said if words[0] == "drawn")
    ledger = make(total="100000requests").with_budgets()
    ledger.spending.lose_all()
    assert ledger.used().requests >= drawn
    ledger.traffic.use("one", back=requests(drawn))
    assert ledger.used().requests >= drawn, "nothing is given back of what nobody saw"
