"""SQL conditions on requests, from the tables of an approval's states.

Separate from the queries, which never name the facts behind a status themselves.
"""

from collections.abc import Iterable, Mapping
from functools import cache

from sqlalchemy import ColumnElement, and_, literal_column, or_

from supervisor.core.approval_states import (
    FACTS,
    KNOWN,
    Event,
    Status,
    Value,
    cases_for,
    cases_of,
)
from supervisor.store.tables import requests as table


@cache
def in_status(*statuses: Status) -> ColumnElement[bool]:
    """Return the condition that a request has one of these statuses."""
    return _any(case for status in statuses for case in cases_of(status))


@cache
def may_come(event: Event) -> ColumnElement[bool]:
    """Return the condition that this event may come upon a request."""
    return _any(cases_for(event))


def _any(cases: Iterable[Mapping[str, frozenset[Value]]]) -> ColumnElement[bool]:
    return or_(*(_all(case) for case in cases))


def _all(case: Mapping[str, frozenset[Value]]) -> ColumnElement[bool]:
    named = {fact: case[fact] for fact in FACTS if case.get(fact, FACTS[fact]) != FACTS[fact]}
    return and_(*(_is_among(fact, values) for fact, values in named.items()))


def _is_among(fact: str, values: frozenset[Value]) -> ColumnElement[bool]:
    # Literals, not parameters: only then does the index of those that wait serve
    # (https://www.sqlite.org/partialindex.html).
    column = table.c[fact]
    conditions: list[ColumnElement[bool]] = []
    if None in values:
        conditions.append(column.is_(None))
    if KNOWN in values:
        conditions.append(column.is_not(None))
    texts = sorted(one for one in values if isinstance(one, str))
    return or_(*conditions, *(column == literal_column(f"'{text}'") for text in texts))
