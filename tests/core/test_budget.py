"""Budgets: how they are written, and that no interleaving of calls overruns one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from supervisor.core.budget import (
    KINDS,
    PORTIONS,
    SCOPES,
    UNLIMITED,
    Amounts,
    Limits,
    Over,
    Scope,
    amount,
    explain,
    first_over,
    format_budget,
    must_conclude,
    nearly_used,
    parse_budget,
    portion,
    used_percent,
)
from supervisor.core.money import PICOUSD
from supervisor.errors import UserError
from tests.tables import each_row


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", Limits()),
        ("5usd", Limits(cost=5 * PICOUSD)),
        ("$5", Limits(cost=5 * PICOUSD)),
        ("0.50 USD", Limits(cost=PICOUSD // 2)),
        (
            "5$, 2Mtokens ,300requests, 1.5mb",
            Limits(cost=5 * PICOUSD, tokens=2_000_000, requests=300, bytes_out=1_500_000),
        ),
        ("0usd", Limits(cost=0)),
        (
            "$5,2M-tokens,1000-requests,100MB",
            Limits(cost=5 * PICOUSD, tokens=2 * 10**6, requests=1000, bytes_out=10**8),
        ),
        ("3 k-tokens", Limits(tokens=3000)),
    ],
)
def test_budgets_as_people_write_them(text: str, wanted: Limits) -> None:
    assert parse_budget(text, "MAX_COST") == wanted


@each_row(
    "text",
    [
        "5",
        "usd",
        "-5usd",
        "$5usd",
        "5eur",
        "5usd,6usd",
        "1.5requests",
        "0.0000001usd",
        "999999999999usd",
        "\uff15usd",
        "5usd 3",
        "$5-",
        "5--tokens",
        "5-2M-tokens",
    ],
)
def test_what_is_no_budget_is_said(text: str) -> None:
    with pytest.raises(UserError, match="MAX_COST") as caught:
        parse_budget(text, "MAX_COST")
    assert "5usd" in caught.value.remedy


limits = st.builds(Limits, cost=st.none() | st.integers(0, 10**9).map(lambda n: n * 10**6),
tokens=st.none() | st.integers(0, 10**9), requests=st.none() | st.integers(0, 10**6),
bytes_out=st.none() | st.integers(0, 10**12))  # fmt: skip


@given(limits)
def test_written_and_read_again(given_limits: Limits) -> None:
    assert parse_budget(format_budget(given_limits), "x") == given_limits
    assert bool(given_limits) == any(getattr(given_limits, kind) is not None for kind in KINDS)


NONE: dict[Scope, Limits] = dict.fromkeys(SCOPES, Limits())
NOTHING: dict[Scope, Amounts] = dict.fromkeys(SCOPES, Amounts())


def test_what_fits_and_what_doesnt() -> None:
    assert first_over(NONE, NOTHING, Amounts(cost=10**18)) is None
    tight = NONE | {"day": Limits(cost=10, requests=1)}
    assert first_over(tight, NOTHING, Amounts(cost=10, requests=1)) is None
    assert first_over(tight, NOTHING | {"day": Amounts(cost=1)}, Amounts(cost=10)) == Over(
        "day", "cost", 10, 1, 10
    )
    assert first_over(tight, NOTHING | {"session": Amounts(cost=5)}, Amounts(cost=10)) is None
    assert first_over(tight, NOTHING, Amounts(requests=2)) == Over("day", "requests", 1, 0, 2)


def test_the_notice_at_80_percent() -> None:
    tight = NONE | {"session": Limits(cost=10, tokens=100)}
    assert nearly_used(tight, NOTHING | {"session": Amounts(cost=7, tokens=79)}) == []
    assert nearly_used(tight, NOTHING | {"session": Amounts(cost=8, tokens=80)}) == [
        ("session", "cost"),
        ("session", "tokens"),
    ]


@pytest.mark.parametrize(
    ("limits", "used", "percent"),
    [
        (Limits(), Amounts(cost=10, tokens=10), 0),
        (Limits(requests=1), Amounts(requests=1), 0),
        (Limits(cost=1000), Amounts(cost=849), 84),
        (Limits(cost=1000, tokens=100), Amounts(cost=10, tokens=90), 90),
        (Limits(cost=0), Amounts(), 100),
    ],
)
def test_how_much_is_used_of_what_is_nearer(limits: Limits, used: Amounts, percent: int) -> None:
    assert used_percent(limits, used) == percent
    assert must_conclude(limits, used, reserved=Amounts(), cost=Amounts()) == (percent >= 85)


def test_it_concludes_while_another_turn_and_the_last_one_still_fit() -> None:
    limits, used = Limits(cost=1000), Amounts(cost=300)
    reserved = Amounts(cost=400, tokens=10**9)
    assert not must_conclude(limits, used, reserved=reserved, cost=Amounts(cost=100))
    assert must_conclude(limits, used, reserved=reserved, cost=Amounts(cost=101))


def test_what_a_person_is_offered() -> None:
    assert Over("session", "cost", 5 * PICOUSD, 5 * PICOUSD - 1, 2).step == PICOUSD
    assert Over("session", "cost", 5 * PICOUSD, 5 * PICOUSD, PICOUSD + 1).step == 2 * PICOUSD
    assert Limits(cost=5, tokens=None).raised(Amounts(cost=3, tokens=3)) == Limits(cost=8)
    line = explain(Over("session", "cost", 5 * PICOUSD, 4 * PICOUSD, 2 * PICOUSD))
    assert (
        line
        == "the budget of this session is $5.00: $4.00 of it are used or reserved, and this may"
        " need $2.00"
    )
    assert [
        amount("bytes_out", 1_500_000),
        amount("requests", 1),
        amount("tokens", 7),
        amount("bytes_out", 999),
        amount("bytes_out", 64_000),
        amount("bytes_out", 2 * 10**9),
        amount("tokens", 10**6),
    ] == [
        "1.5 MB",
        "1 request",
        "7 tokens",
        "999 B",
        "64.0 kB",
        "2.0 GB",
        "1,000,000 tokens",
    ]


@pytest.mark.parametrize(
    ("limit", "used", "wanted", "found"),
    [
        (None, 0, 1, UNLIMITED),
        (160, 0, 1, 10),
        (160, 150, 1, 1),
        (160, 0, 50, 50),
        (10**6, 0, 1, PORTIONS["requests"]),
    ],
)
def test_a_portion_is_what_is_wanted_or_a_part_of_what_is_left(
    limit: int | None, used: int, wanted: int, found: int
) -> None:
    limits: dict[Scope, Limits] = {scope: Limits() for scope in SCOPES} | {
        "day": Limits(requests=limit)
    }
    have: dict[Scope, Amounts] = dict.fromkeys(SCOPES, Amounts(requests=used))
    assert portion(limits, have, "requests", wanted) == found


class Interleaving(RuleBasedStateMachine):
    """Calls that are reserved and settled in any order, at most for what was reserved: the limit
    holds throughout."""

    def __init__(self) -> None:
        super().__init__()
        self.limit = 1000
        self.granted = 0
        self.spent = 0
        self.reserved: list[int] = []
        self.settled: list[int] = []

    def used(self) -> dict[Scope, Amounts]:
        return NOTHING | {"total": Amounts(cost=self.spent + sum(self.reserved))}

    def limits(self) -> dict[Scope, Limits]:
        return NONE | {"total": Limits(cost=self.limit).raised(Amounts(cost=self.granted))}

    @rule(most=st.integers(0, 700))
    def reserve(self, most: int) -> None:
        over = first_over(self.limits(), self.used(), Amounts(cost=most))
        if over is None:
            self.reserved.append(most)
        else:
            assert over.used + over.wanted > over.limit

    @rule(most=st.integers(1, 700))
    def is_raised(self, most: int) -> None:
        over = first_over(self.limits(), self.used(), Amounts(cost=most))
        if over is not None:
            self.granted += over.step
            assert first_over(self.limits(), self.used(), Amounts(cost=most)) is None

    @precondition(lambda self: bool(self.reserved))
    @rule(which=st.integers(0, 10**6), share=st.floats(0, 1))
    def settle(self, which: int, share: float) -> None:
        most = self.reserved.pop(which % len(self.reserved))
        cost = int(most * share)
        self.spent += cost
        self.settled.append(cost)

    @invariant()
    def nothing_is_overrun(self) -> None:
        assert self.spent + sum(self.reserved) <= self.limit + self.granted
        assert self.spent == sum(self.settled)


TestInterleaving = Interleaving.TestCase
