"""Caps on what reviews cost: in any order of events none is passed, and what wasn't used comes
back."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.reviews.core.allowances import (
    CAP_SCOPES,
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

USD = 10**12
DEFAULTS = Caps(run=2 * USD, pull=10 * USD, repository=5 * USD)
# 2026-11-26 23:30 UTC.
NOW = 1795735800.0
PAYER = Payer(forge="github", repository="Acme/Shop", number=7, run_id="r1")


def uses(*used_and_reserved: tuple[int, int], caps: Caps = DEFAULTS) -> list[LayerUse]:
    """The layers of a run, narrowest first; what isn't given is unused."""
    given_ = [*used_and_reserved, *[(0, 0)] * (len(CAP_SCOPES) - len(used_and_reserved))]
    found = layers(caps, PAYER, NOW)
    return [LayerUse(layer, *of) for layer, of in zip(found, given_, strict=True)]


def test_a_run_stands_under_five_layers() -> None:
    assert layers(DEFAULTS, PAYER, NOW) == (
        Layer("run", "r1", "", 2 * USD),
        Layer("pull", "github:acme/shop#7", "", 10 * USD),
        Layer("repository", "github:acme/shop", "2026-11-26", 5 * USD),
        Layer("owner", "github:acme", "2026-11", None),
        Layer("all", "", "2026-11-26", None),
    )
    assert tuple(one.scope for one in layers(DEFAULTS, PAYER, NOW)) == CAP_SCOPES


@pytest.mark.parametrize(
    ("period", "seconds"),
    [
        ("2026-11-26", 1795737600),
        ("2026-12-31", 1798761600),
        ("2026-11", 1796083200),
        ("2026-12", 1798761600),
        ("2028-02", 1835481600),
    ],
)
def test_a_day_and_a_month_are_over_at_midnight_utc(period: str, seconds: float) -> None:
    assert refills_at(period) == seconds
    of = month_of if period.count("-") == 1 else day_of
    assert of(seconds - 1) == period != of(seconds)


def test_a_life_never_refills() -> None:
    assert refills_at("") is None


def test_a_run_gets_what_the_tightest_layer_has_left() -> None:
    assert reservable(uses()) == 2 * USD
    assert reservable(uses((USD, 0))) == USD, "an earlier attempt used some"
    assert reservable(uses((0, 0), (0, 0), (2 * USD, 2 * USD))) == USD
    assert reservable(uses(caps=msgspec.structs.replace(DEFAULTS, all=USD))) == USD


def test_too_little_is_nothing() -> None:
    refused = reservable(uses((0, 0), (0, 0), (3 * USD, 2 * USD)))
    assert isinstance(refused, Layer)
    assert (refused.scope, refused.key) == ("repository", "github:acme/shop")
    almost = 5 * USD - USD // 2
    assert reservable(uses((0, 0), (0, 0), (almost, 0))) == USD // 2
    assert isinstance(reservable(uses((0, 0), (0, 0), (almost + 1, 0))), Layer)
    # The life of a pull request before a day: what comes back last is said first.
    both = reservable(uses((0, 0), (10 * USD, 0), (5 * USD, 0)))
    assert isinstance(both, Layer)
    assert both.scope == "pull"


def test_a_cap_smaller_than_a_useful_part_of_a_run_is_meant_too() -> None:
    small = msgspec.structs.replace(DEFAULTS, all=USD // 100)
    assert reservable(uses(caps=small)) == USD // 100
    nothing = msgspec.structs.replace(DEFAULTS, all=0)
    refused = reservable(uses(caps=nothing))
    assert isinstance(refused, Layer)
    assert refused.scope == "all"


def test_left_is_never_less_than_nothing() -> None:
    layer = layers(DEFAULTS, PAYER, NOW)[2]
    assert LayerUse(layer, 9 * USD, USD).left == 0
    assert LayerUse(layer._replace(cap=None), 9 * USD, USD).left is None


@pytest.mark.parametrize(
    ("used", "said", "due"),
    [
        (49, (), []),
        (50, (), [50]),
        (81, (), [50, 80]),
        (81, (50,), [80]),
        (120, (50, 80), [100]),
        (120, (50, 80, 100), []),
    ],
)
def test_each_mark_is_said_once(used: int, said: tuple[int, ...], due: list[int]) -> None:
    layer = Layer("repository", "x", "2026-11-26", 100)
    assert due_notices(LayerUse(layer, used, 1000), said) == due, "what is reserved may come back"


def test_where_there_is_no_cap_nothing_is_said() -> None:
    assert due_notices(LayerUse(Layer("all", "", "", None), 9**9, 0), ()) == []


def test_sessions_of_a_run_share_what_it_reserved() -> None:
    assert share(100, [], 1) == 100
    assert share(100, [], 3) == 33
    assert share(100, [33, 33], 3) == 33
    assert share(100, [33, 33, 33], 3) == 1, "one more than was said gets the rest"
    assert share(100, [100], 1) == 0
    assert share(100, [], 0) == 100


@given(st.integers(0, 10**6), st.lists(st.integers(1, 9), max_size=12))
def test_however_they_are_started_they_never_have_more_together(
    reserved: int, parts: list[int]
) -> None:
    shares: list[int] = []
    for number in parts:
        shares.append(share(reserved, shares, number))
    assert sum(shares) <= reserved


def test_the_95th_percentile() -> None:
    assert p95([]) == 0
    assert p95([7]) == 7
    assert p95(range(1, 21)) == 19
    assert p95(range(1, 101)) == 95


@pytest.mark.parametrize(
    ("today", "before", "is_creeping"),
    [
        ([31] * 5, [20] * 20, True),
        ([30] * 5, [20] * 20, False),
        ([31] * 4, [20] * 20, False),
        ([31] * 5, [20] * 19, False),
    ],
)
def test_costs_that_creep_up(today: list[int], before: list[int], is_creeping: bool) -> None:
    assert creeps(today, before) is is_creeping


def test_more_is_proposed_where_a_cap_held_reviews_on_three_days() -> None:
    assert proposed(5, ["a", "b", "b"]) is None
    assert proposed(5, ["a", "b", "c"]) == 10


class Row(NamedTuple):
    """What one attempt of a run reserved, and used once it was over."""

    layers: tuple[Layer, ...]
    reserved: int
    used: int | None = None


def sums(rows: list[Row], wanted: Iterable[Layer]) -> list[LayerUse]:
    """What is used and reserved of layers, by rows that are written down."""
    found = []
    for layer in wanted:
        mine = [one for one in rows if layer[:3] in {other[:3] for other in one.layers}]
        used = sum(one.used for one in mine if one.used is not None)
        found.append(LayerUse(layer, used, sum(one.reserved for one in mine if one.used is None)))
    return found


CAPS = st.builds(
    Caps,
    run=st.integers(1, 300),
    **{
        name: st.one_of(st.none(), st.integers(0, 1000))
        for name in ("pull", "repository", "owner", "all")
    },
)
# Which run it is about (pull request, repository and hour follow from that), what part of its money
# it used, and whether a crash ended it.
EVENTS = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 100), st.booleans()), max_size=60)


@given(CAPS, EVENTS)
def test_in_any_order_of_reserve_end_and_crash_no_cap_is_passed(
    caps: Caps, events: list[tuple[int, int, bool]]
) -> None:
    rows: list[Row] = []
    running: dict[int, int] = {}
    for step, (which, part, crashed) in enumerate(events):
        if which in running:
            at = running.pop(which)
            mine = rows[at]
            before = [use.left for use in sums(rows, mine.layers)]
            # After a crash all of it counts as used.
            used = mine.reserved if crashed else mine.reserved * part // 100
            rows[at] = mine._replace(used=used)
            for was, use in zip(before, sums(rows, mine.layers), strict=True):
                assert use.left is None or was is None or use.left == was + mine.reserved - used
        else:
            # Every third is a new run each time, the others are attempts of the same one.
            run_id = f"{which}-{step}" if which % 3 == 0 else f"{which}"
            payer = Payer(
                forge="github",
                repository=f"o{which % 2}/r{which % 4}",
                number=which % 6,
                run_id=run_id,
            )
            wanted = layers(caps, payer, NOW + which * 3600)
            amount = reservable(sums(rows, wanted))
            if isinstance(amount, int):
                assert amount > 0
                running[which] = len(rows)
                rows.append(Row(wanted, amount))
        for use in sums(rows, {layer for one in rows for layer in one.layers}):
            assert use.layer.cap is None or use.used + use.reserved <= use.layer.cap, use
