"""Layout of the spending chart: stacked columns over time.

It decides only the picture: sums come from the ledger, words and colours from the page. However
long the history is, a chart has at most `MOST_COLUMNS` columns and `MOST_MODELS` models; the other
models are summed as one more. Amounts of money are pico-dollars; lengths are units of the picture,
`WIDTH` by `HEIGHT`.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import NamedTuple, TypedDict

from supervisor.core.models.model_calls import Tokens

MOST_COLUMNS = 48
MOST_MODELS = 5
# The name for all but the dearest models together; a model that an agent names so is among them.
OTHERS = "all others"
DAY_S = 86400
# How long a column may be, in seconds: minutes and hours, then days, weeks, and years of 52 weeks.
WIDTHS_S = (
    60,
    300,
    900,
    1800,
    3600,
    3 * 3600,
    6 * 3600,
    DAY_S,
    7 * DAY_S,
    28 * DAY_S,
    91 * DAY_S,
    364 * DAY_S,
)

WIDTH, HEIGHT = 960, 240
LEFT, TOP, BOTTOM = 72, 12, 30
_PLOT_WIDTH, _PLOT_HEIGHT = WIDTH - LEFT - 4, HEIGHT - TOP - BOTTOM
_MOST_TICKS = 4
# Every bar is at least this visible, however small its cost is compared with others.
_LEAST_HEIGHT = 1.5


class ColumnPart(NamedTuple):
    """One model's cost in one column; the first of its calls was made at `first_at`."""

    column: int
    model: str
    calls: int
    tokens: Tokens
    cost: int
    first_at: float = 0.0


class Series(NamedTuple):
    """One model over the whole time. `rank` is its place, the dearest first. `mark` is the number
    of its colour, by the order of first calls, so that a model keeps its colour while the chart
    grows. `is_others`: all models without a place of their own."""

    rank: int
    mark: int
    model: str
    is_others: bool
    calls: int
    tokens: Tokens
    cost: int


class Bar(NamedTuple):
    """One model's part of a column."""

    rank: int
    cost: int
    y: float
    height: float


class Column(NamedTuple):
    """One period of time."""

    number: int
    x: float
    width: float
    bars: tuple[Bar, ...]
    calls: int
    tokens: Tokens
    cost: int


class _Sums(TypedDict):
    calls: int
    tokens: Tokens
    cost: int


class Tick(NamedTuple):
    """A line of the scale."""

    y: float
    text: str


class Chart(NamedTuple):
    """The picture. `columns` has every period, including those without spending."""

    columns: tuple[Column, ...]
    series: tuple[Series, ...]
    ticks: tuple[Tick, ...]
    calls: int
    cost: int


def width_for(length_s: float) -> int:
    """Return the width of a column in seconds for a time of this length, so that there are at most
    `MOST_COLUMNS`."""
    for width_s in WIDTHS_S:
        # One more than fits, because neither end has to coincide with the edge of a column.
        if length_s <= width_s * (MOST_COLUMNS - 1):
            return width_s
    years = WIDTHS_S[-1]
    return int(-(-length_s // (years * (MOST_COLUMNS - 1)))) * years


def draw(parts: Iterable[ColumnPart], count: int) -> Chart:
    """Return the chart of `count` columns; parts outside of them go into the nearest column."""
    found = [part._replace(column=min(max(part.column, 0), count - 1)) for part in parts]
    by_model: dict[str, list[ColumnPart]] = defaultdict(list)
    by_column: dict[int, list[ColumnPart]] = defaultdict(list)
    for part in found:
        by_model[part.model].append(part)
        by_column[part.column].append(part)
    series = _series(by_model)
    highest, ticks = _scale(
        max((sum(part.cost for part in several) for several in by_column.values()), default=0)
    )
    ranks = {one.model: one.rank for one in series}
    columns = tuple(
        _column(number, count, by_column[number], ranks, highest) for number in range(count)
    )
    return Chart(
        columns, series, ticks, sum(one.calls for one in series), sum(one.cost for one in series)
    )


def _series(by_model: dict[str, list[ColumnPart]]) -> tuple[Series, ...]:
    """Sort models: the dearest first, the rest combined at the end."""
    names = sorted(
        by_model,
        key=lambda model: (model == OTHERS, -sum(part.cost for part in by_model[model]), model),
    )
    first = sorted(
        names,
        key=lambda model: (model == OTHERS, min(part.first_at for part in by_model[model]), model),
    )
    marks = {name: mark for mark, name in enumerate(first)}
    return tuple(
        Series(
            rank=rank,
            mark=marks[name],
            model=name,
            is_others=name == OTHERS,
            **_sums(by_model[name]),
        )
        for rank, name in enumerate(names)
    )


def shares(costs: Sequence[int]) -> list[int]:
    """Return whole percents that add up to 100: the rest after rounding down goes to those with the
    largest remainders."""
    whole = sum(costs)
    if not whole:
        return [0] * len(costs)
    found = [cost * 100 // whole for cost in costs]
    most_cut = sorted(range(len(costs)), key=lambda at: -(costs[at] * 100 % whole))
    for at in most_cut[: 100 - sum(found)]:
        found[at] += 1
    return found


def _sums(parts: list[ColumnPart]) -> _Sums:
    return {
        "calls": sum(part.calls for part in parts),
        "tokens": sum((part.tokens for part in parts), start=Tokens()),
        "cost": sum(part.cost for part in parts),
    }


def _column(
    number: int, count: int, parts: list[ColumnPart], ranks: dict[str, int], highest: int
) -> Column:
    step = _PLOT_WIDTH / count
    costs: dict[int, int] = defaultdict(int)
    for part in parts:
        costs[ranks[part.model]] += part.cost
    x, width = round(LEFT + number * step + step * 0.12, 1), round(step * 0.76, 1)
    return Column(number=number, x=x, width=width, bars=_bars(costs, highest), **_sums(parts))


def _bars(costs: dict[int, int], highest: int) -> tuple[Bar, ...]:
    """Stack a column's bars, the dearest model at the bottom."""
    found = []
    foot = float(TOP + _PLOT_HEIGHT)
    for rank in sorted(rank for rank, cost in costs.items() if cost):
        height = max(costs[rank] / highest * _PLOT_HEIGHT, _LEAST_HEIGHT)
        foot -= height
        found.append(Bar(rank, costs[rank], round(foot, 1), round(height, 1)))
    return tuple(found)


def _scale(most: int) -> tuple[int, tuple[Tick, ...]]:
    """Return the scale's end, and its lines: a few round amounts, starting with zero."""
    if most <= 0:
        return 1, (Tick(float(TOP + _PLOT_HEIGHT), "$0"),)
    step = _round_step(-(-most // _MOST_TICKS))
    count = -(-most // step)
    places = max(0, 12 - (len(str(step)) - 1))
    places = 2 if places == 1 else places  # cents are said as people say them
    ticks = [
        Tick(
            round(TOP + _PLOT_HEIGHT * (1 - number / count), 1),
            f"${Decimal(number * step).scaleb(-12):,.{places}f}",
        )
        for number in range(count + 1)
    ]
    return step * count, (Tick(ticks[0].y, "$0"), *ticks[1:])


def _round_step(least: int) -> int:
    """Return the next of 1, 2, 5, 10, 20 and so on."""
    power: int = 10 ** (len(str(least)) - 1)
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)
