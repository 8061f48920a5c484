"""Costs of models over time: chart and sums on the Spend tab, also as JSON.

All of it comes from the ledger in the database, so it survives a restart. `core.spend_chart` draws
the chart; this module has its times and words. It decides nothing.
"""

from datetime import date, datetime, time, timedelta
from typing import Any, Literal, NamedTuple

import msgspec
from litestar import Response, get
from litestar.params import FromQuery

from supervisor.core.budget import KINDS, SCOPES, Kind, Scope, amount
from supervisor.core.models.spend_chart import (
    DAY_S,
    HEIGHT,
    LEFT,
    MOST_MODELS,
    OTHERS,
    WIDTH,
    Chart,
    Column,
    ColumnPart,
    draw,
    shares,
    width_for,
)
from supervisor.core.money import dollars, microusd
from supervisor.core.sessions import Session
from supervisor.ledger.spending import BudgetStanding
from supervisor.parts import Parts
from supervisor.server.common.spend_views import ModelSpend, model_spend, notice
from supervisor.server.operator.operator_api import AnyRequest, parts_of
from supervisor.server.operator.pages import page_frame
from supervisor.store.spending import OfTime

Span = Literal["session", "day", "month", "all"]
SPANS: dict[Span, str] = {
    "session": "This session",
    "day": "Today",
    "month": "30 days",
    "all": "All",
}
_SCOPE_NAMES: dict[Scope, str] = {"session": "this session", "day": "today", "total": "in total"}
# Most labels under the columns, so that they don't overlap.
_MOST_LABELS = 8


class SpendOfTime(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of all calls in one stretch of time, which begins at `at`, in seconds since the
    epoch."""

    at: float
    calls: int
    tokens: int
    cost_microusd: int


class SpendOverTime(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of models over a time: by stretches, at most 48, and by model, the dearest first.
    All but the dearest models are together, named `all others`."""

    calls: int
    cost_microusd: int
    times: list[SpendOfTime]
    models: list[ModelSpend]


class _Window(NamedTuple):
    """The time covered by a chart. Columns of days are counted by date, since not every day has 24
    hours."""

    since: float
    width_s: int
    columns: int

    @property
    def by_day(self) -> bool:
        return self.width_s >= DAY_S

    def column(self, when: int | str) -> int:
        """Return a column's number, from the ledger's unit."""
        if isinstance(when, int):
            return when
        return (date.fromisoformat(when) - _date(self.since)).days // (self.width_s // DAY_S)

    def at(self, number: int) -> float:
        """Return when a column begins."""
        if self.by_day:
            return _midnight(_date(self.since) + timedelta(days=number * (self.width_s // DAY_S)))
        return self.since + number * self.width_s


@get("/parts/spend", include_in_schema=False, sync_to_thread=False)
def spend_part(
    request: AnyRequest, session: FromQuery[str], span: FromQuery[Span] = "session"
) -> Response[str]:
    parts = parts_of(request)
    shown = values(parts, parts.sessions.get(session), span)
    return page_frame.html("parts/spend.html", spend=shown)


@get("/api/spend", sync_to_thread=False)
def spend_over_time(
    request: AnyRequest, session: FromQuery[str] = "", span: FromQuery[Span] = "all"
) -> SpendOverTime:
    """Return what models cost over time: of one session (`span=session`), or of all today, in the
    last 30 days, or ever."""
    parts = parts_of(request)
    chart, window = _chart(parts, parts.sessions.get(session) if session else None, span)
    return SpendOverTime(
        calls=chart.calls,
        cost_microusd=microusd(chart.cost),
        times=[
            SpendOfTime(
                at=window.at(one.number),
                calls=one.calls,
                tokens=one.tokens.total,
                cost_microusd=microusd(one.cost),
            )
            for one in chart.columns
        ],
        models=_models(parts, chart),
    )


def _models(parts: Parts, chart: Chart) -> list[ModelSpend]:
    return [
        model_spend(one.model, one.calls, one.cost, one.tokens, parts.redactor)
        for one in chart.series
    ]


def values(parts: Parts, session: Session, span: Span) -> dict[str, Any]:
    """Return the values of `parts/spend.html`."""
    chart, window = _chart(parts, session, span)
    models = _models(parts, chart)
    percents = shares([one.cost for one in chart.series])
    looks = (
        (share or ("<1" if one.cost else 0), "others" if one.is_others else one.mark)
        for one, share in zip(chart.series, percents, strict=True)
    )
    return {
        "session": session.id,
        "span": span,
        "spans": SPANS.items(),
        "sums": _sums(parts.spending.standing(session.id, session.budget)),
        "width": WIDTH,
        "height": HEIGHT,
        "left": LEFT,
        "ticks": chart.ticks,
        "columns": [_column(window, one, models) for one in chart.columns],
        "models": [(one, *look) for one, look in zip(models, looks, strict=True)],
        "calls": chart.calls,
        "cost": dollars(chart.cost),
        "title": _title(window, chart, span),
    }


def _chart(parts: Parts, session: Session | None, span: Span) -> tuple[Chart, _Window]:
    of_session = session.id if session is not None and span == "session" else None
    window = _window(parts, session, span)
    found = parts.spending.over_time(
        since=window.since,
        width_s=None if window.by_day else window.width_s,
        models=MOST_MODELS,
        others=OTHERS,
        session_id=of_session,
    )
    return draw((_part(window, one) for one in found), window.columns), window


def _part(window: _Window, one: OfTime) -> ColumnPart:
    return ColumnPart(
        window.column(one.when), one.model, one.calls, one.tokens, one.cost, one.first_at
    )


def _window(parts: Parts, session: Session | None, span: Span) -> _Window:
    """Return the shown time: a day and a month as they are, all else from its beginning, in columns
    of a fitting width."""
    now = parts.clock.now()
    today = _date(now)
    if span == "day":
        return _Window(_midnight(today), 3600, 24)
    if span == "month":
        return _Window(_midnight(today - timedelta(days=29)), DAY_S, 30)
    if session is not None and span == "session":
        began, ended = session.created_at, session.ended_at or now
    else:
        began, ended = parts.spending.began_at() or now, now
    width_s = width_for(ended - began)
    first = _midnight(_date(began))
    if width_s >= DAY_S:
        days = (_date(ended) - _date(began)).days
        return _Window(first, width_s, days // (width_s // DAY_S) + 1)
    since = first + (began - first) // width_s * width_s
    return _Window(since, width_s, int((ended - since) // width_s) + 1)


def _sums(found: BudgetStanding) -> list[dict[str, Any]]:
    """Return the three sums, each with its limits."""
    return [
        {
            "name": _SCOPE_NAMES[scope],
            "cost": dollars(found.used[scope].cost),
            "used": ", ".join(_used(found, scope)),
            "limits": [
                _limit(found, scope, kind)
                for kind in KINDS
                if getattr(found.limits[scope], kind) is not None
            ],
        }
        for scope in SCOPES
    ]


def _used(found: BudgetStanding, scope: Scope) -> list[str]:
    return [
        amount(kind, value) for kind in KINDS[1:] if (value := getattr(found.used[scope], kind))
    ]


def _limit(found: BudgetStanding, scope: Scope, kind: Kind) -> dict[str, Any]:
    most, have = getattr(found.limits[scope], kind), getattr(found.used[scope], kind)
    return {
        "words": f"{amount(kind, have)} of {amount(kind, most)}",
        "percent": min(100, have * 100 // most) if most else 100,
        "is_near": (scope, kind) in found.near,
        "notice": notice(found, scope, kind),
    }


def _column(window: _Window, column: Column, models: list[ModelSpend]) -> dict[str, Any]:
    words = _time_words(window, column.number)
    by_model = ", ".join(f"{models[bar.rank].model} {dollars(bar.cost)}" for bar in column.bars)
    every = -(-window.columns // _MOST_LABELS)
    return {
        "view": column,
        "middle": round(column.x + column.width / 2, 1),
        "cost": dollars(column.cost),
        "when": words,
        "label": _label(window, column.number) if column.number % every == 0 else "",
        "says": f"{words}: {dollars(column.cost)} in {_calls(column.calls)}"
        + (f" ({by_model})" if by_model else ""),
    }


def _title(window: _Window, chart: Chart, span: Span) -> str:
    of = {
        "session": "of this session",
        "day": "of all sessions today",
        "month": "of all sessions in the last 30 days",
    }
    return f"What model calls {of.get(span, 'of all sessions')} cost over time: {
        dollars(chart.cost)
    } in {_calls(chart.calls)}, in {window.columns} columns"


def _calls(count: int) -> str:
    return f"{count:,} {'call' if count == 1 else 'calls'}"


# -- times of this machine's zone -----------------------------------------------------------------


def _date(at: float) -> date:
    return datetime.fromtimestamp(at).astimezone().date()


def _midnight(day: date) -> float:
    return datetime.combine(day, time()).astimezone().timestamp()


def _label(window: _Window, number: int) -> str:
    at = datetime.fromtimestamp(window.at(number)).astimezone()
    if not window.by_day:
        return f"{at:%H:%M}"
    return f"{at:%Y-%m-%d}" if window.width_s > 7 * DAY_S else f"{at.day} {at:%b}"


def _time_words(window: _Window, number: int) -> str:
    begins = datetime.fromtimestamp(window.at(number)).astimezone()
    ends = datetime.fromtimestamp(window.at(number + 1)).astimezone()
    if not window.by_day:
        return f"{begins:%Y-%m-%d %H:%M} to {ends:%H:%M}"
    if window.width_s == DAY_S:
        return f"{begins:%Y-%m-%d}"
    return f"{begins:%Y-%m-%d} to {ends - timedelta(days=1):%Y-%m-%d}"
