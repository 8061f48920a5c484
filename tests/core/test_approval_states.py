"""The tables of an approval's states: each combination of facts has one status, and final ones
stay."""

import itertools
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.approval_states import (
    BEGINNINGS,
    EVENTS,
    FACTS,
    FINAL,
    STATUSES,
    Event,
    after,
    begun,
    cases_for,
    cases_of,
    diagram,
    may_come,
    status_of,
)
from supervisor.settings import ROOT
from tests.tables import each_row

EVERY = [dict(zip(FACTS, values, strict=True)) for values in itertools.product(*FACTS.values())]


def holds(cases: list[dict], facts: dict) -> bool:  # type: ignore[type-arg]
    return any(all(facts[fact] in values for fact, values in case.items()) for case in cases)


@each_row("facts", EVERY)
def test_whatever_the_facts_there_is_one_status(facts: dict[str, Any]) -> None:
    found = [one for one in STATUSES if holds(cases_of(one), facts)]
    assert found == [status_of(facts.__getitem__)]


@each_row("facts", EVERY)
@each_row("event", EVENTS)
def test_an_event_may_come_where_its_conditions_hold(event: Event, facts: dict[str, Any]) -> None:
    assert may_come(event, facts.__getitem__) is holds(cases_for(event), facts)


@given(st.sampled_from(sorted(BEGINNINGS)), st.lists(st.sampled_from(sorted(EVENTS))))
def test_nothing_leaves_a_final_status_and_no_fact_is_taken_back(
    decision: str, events: list[Event]
) -> None:
    facts = begun(decision)
    assert status_of(facts.__getitem__) == BEGINNINGS[decision]
    for event in events:
        changed = after(facts, event) or facts
        assert all(changed[name] == value for name, value in facts.items() if value is not None)
        before, now = status_of(facts.__getitem__), status_of(changed.__getitem__)
        assert before == now or before not in (*FINAL, "used")
        assert now != "pending" or before == "pending"
        facts = changed


def test_a_decision_that_nobody_knows_has_no_status() -> None:
    with pytest.raises(ValueError, match="perhaps"):
        status_of(begun("perhaps").__getitem__)


def test_the_documented_diagram_is_drawn_from_the_tables() -> None:
    found = re.search(
        r"<!-- approval states:.*?-->\n```mermaid\n(.*?)\n```\n<!-- end -->",
        (ROOT / "docs/architecture.md").read_text(),
        re.DOTALL,
    )
    assert found is not None
    assert found[1] == diagram()
