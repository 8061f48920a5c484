"""The chart of what models cost: bounded whatever it is fed, its bars as high as their sums, its
scale round."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.models import spend_chart
from supervisor.core.models.model_calls import Tokens
from supervisor.core.models.spend_chart import (
    DAY_S,
    HEIGHT,
    LEFT,
    MOST_COLUMNS,
    OTHERS,
    TOP,
    WIDTH,
    ColumnPart,
    draw,
    shares,
    width_for,
)
from supervisor.core.money import PICOUSD

TOKENS = st.builds(Tokens, **dict.fromkeys(Tokens.__struct_fields__, st.integers(0, 10**9)))
FOOT = HEIGHT - spend_chart.BOTTOM


@pytest.mark.parametrize(
    ("length_s", "width_s"),
    [
        (0, 60),
        (47 * 60, 60),
        (47 * 60 + 1, 300),
        (5 * 3600, 900),
        (40 * DAY_S, DAY_S),
        (400 * DAY_S, 28 * DAY_S),
        (47 * 364 * DAY_S + 1, 2 * 364 * DAY_S),
    ],
)
def test_columns_are_as_long_as_the_time_needs(length_s: float, width_s: int) -> None:
    assert width_for(length_s) == width_s


@given(st.floats(0, 10**11), st.floats(0, 1))
def test_there_are_never_more_columns_than_fit(length_s: float, offset: float) -> None:
    width_s = width_for(length_s)
    assert (offset * width_s + length_s) // width_s + 1 <= MOST_COLUMNS


def test_models_are_stacked_the_dearest_at_the_bottom_and_the_rest_on_top() -> None:
    parts = [
        ColumnPart(0, "small", 1, Tokens(input=10), PICOUSD),
        ColumnPart(0, OTHERS, 9, Tokens(input=90), 5 * PICOUSD),
        ColumnPart(0, "large", 2, Tokens(input=20), 4 * PICOUSD),
        ColumnPart(2, "large", 1, Tokens(input=5), 2 * PICOUSD),
        ColumnPart(2, "free", 1, Tokens(input=5), 0),
    ]
    chart = draw(parts, 3)
    assert [(one.model, one.is_others, one.calls, one.tokens.input) for one in chart.series] == [
        ("large", False, 3, 25),
        ("small", False, 1, 10),
        ("free", False, 1, 5),
        (OTHERS, True, 9, 90),
    ]
    first, empty, last = chart.columns
    assert [bar.rank for bar in first.bars] == [0, 1, 3]
    assert [bar.cost for bar in first.bars] == [4 * PICOUSD, PICOUSD, 5 * PICOUSD]
    assert (first.cost, first.calls, empty.cost, empty.bars) == (10 * PICOUSD, 12, 0, ())
    assert first.bars[0].y + first.bars[0].height == FOOT
    assert last.bars[0].height == pytest.approx(first.bars[0].height / 2, abs=0.1)
    assert first.bars[2].y == TOP
    assert LEFT < first.x < empty.x < last.x < last.x + last.width < WIDTH
    assert (chart.calls, chart.cost) == (14, 12 * PICOUSD)


def test_a_model_keeps_its_colour_when_another_becomes_the_dearest() -> None:
    first = [
        ColumnPart(0, "small", 1, Tokens(), 9, first_at=1.0),
        ColumnPart(0, OTHERS, 1, Tokens(), 99, first_at=0.0),
        ColumnPart(0, "large", 1, Tokens(), 1, first_at=2.0),
    ]
    for more in (
        [],
        [
            ColumnPart(1, "large", 5, Tokens(), 99, first_at=7.0),
            ColumnPart(1, "late", 5, Tokens(), 999, first_at=7.0),
        ],
    ):
        marks = {one.model: one.mark for one in draw([*first, *more], 2).series}
        assert (marks["small"], marks["large"]) == (0, 1)
        assert marks[OTHERS] == len(marks) - 1


@pytest.mark.parametrize(
    ("costs", "percents"),
    [
        ([], []),
        ([0, 0], [0, 0]),
        ([1, 1, 1], [34, 33, 33]),
        ([2, 1], [67, 33]),
        ([996, 2, 2], [100, 0, 0]),
        ([10**40, 10**40], [50, 50]),
    ],
)
def test_shares_are_all_of_it_together(costs: list[int], percents: list[int]) -> None:
    assert shares(costs) == percents


@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=6))
def test_shares_add_up(costs: list[int]) -> None:
    assert sum(shares(costs)) == (100 if sum(costs) else 0)


def test_what_lies_outside_is_at_the_nearest_end() -> None:
    chart = draw(
        [ColumnPart(-4, "m", 1, Tokens(input=1), 1), ColumnPart(99, "m", 1, Tokens(input=1), 2)], 2
    )
    assert [one.cost for one in chart.columns] == [1, 2]


@pytest.mark.parametrize(
    ("most", "texts"),
    [
        (0, ["$0"]),
        (3, ["$0", "$0.000000000001", "$0.000000000002", "$0.000000000003"]),
        (PICOUSD // 100 * 7, ["$0", "$0.02", "$0.04", "$0.06", "$0.08"]),
        (PICOUSD, ["$0", "$0.50", "$1.00"]),
        (9 * PICOUSD, ["$0", "$5", "$10"]),
        (4000 * PICOUSD, ["$0", "$1,000", "$2,000", "$3,000", "$4,000"]),
    ],
)
def test_the_scale_is_round(most: int, texts: list[str]) -> None:
    ticks = draw([ColumnPart(0, "m", 1, Tokens(input=1), most)], 1).ticks
    assert [tick.text for tick in ticks] == texts
    assert ticks[0].y == FOOT
    assert ticks[-1].y == (TOP if most else FOOT)


@given(
    st.lists(
        st.builds(ColumnPart, st.integers(-3, 60), st.sampled_from("abc"), st.integers(0, 9),
        TOKENS,
        st.integers(0, 10**14)),
        max_size=60,
    ),
    st.integers(1, MOST_COLUMNS),
)  # fmt: skip
def test_sums_are_kept_and_nothing_leaves_the_picture(parts: list[ColumnPart], count: int) -> None:
    chart = draw(parts, count)
    assert chart.cost == sum(part.cost for part in parts) == sum(one.cost for one in chart.columns)
    for kind in Tokens.__struct_fields__:
        used = sum(getattr(part.tokens, kind) for part in parts)
        assert sum(getattr(one.tokens, kind) for one in chart.series) == used
        assert sum(getattr(one.tokens, kind) for one in chart.columns) == used
    assert len(chart.columns) == count
    for column in chart.columns:
        assert sum(bar.cost for bar in column.bars) == column.cost
        # A bar too small to be seen is drawn larger, so three of those may stand a little over the
        # top.
        assert all(TOP - 6 <= bar.y <= FOOT and bar.height > 0 for bar in column.bars)
