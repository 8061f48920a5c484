"""The state machine of an approval, as two tables: facts give a status, events set facts.

    STATES   which fact makes which status; the first row that holds decides
    EVENTS   in which statuses an event may come, and the facts that it sets

Rule 1: everything that says where a request stands is derived from these two. `approvals.status`
walks STATES, `store.requests` turns both into SQL, and the diagram in
docs/architecture.md is drawn from them.
Rule 2: facts are only ever added. What was used stays used, whatever comes after.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

Status = Literal["pending", "allowed", "approved", "denied", "superseded", "expired", "used"]
Answer = Literal["approved", "denied"]
Event = Literal["approve", "deny", "supersede", "close", "lift", "claim", "settle"]
STATUSES: tuple[Status, ...] = get_args(Status)


class Presence(Enum):
    """A condition on whether a fact has a value, such as a time or an id; the value itself doesn't
    matter."""

    KNOWN = "known"


KNOWN = Presence.KNOWN

type Value = str | Presence | None
type Facts = Mapping[str, Value]
# A condition: the allowed values of each fact. A fact that isn't named may have any value.
type Condition = Mapping[str, frozenset[Value]]

# Each fact that counts, with every value that it can have.
FACTS: Mapping[str, frozenset[Value]] = MappingProxyType(
    {
        "decision": frozenset({"ask", "allow", "deny"}),
        "answer": frozenset({None, "approved", "denied"}),
        "superseded_by": frozenset({None, KNOWN}),
        "closed_at": frozenset({None, KNOWN}),
        "used_at": frozenset({None, KNOWN}),
        "settled_at": frozenset({None, KNOWN}),
    }
)


class State(NamedTuple):
    """`status` holds where `fact` is `value` and no row above holds."""

    status: Status
    fact: str
    value: Value


STATES: tuple[State, ...] = (
    State("used", "used_at", KNOWN),
    State("superseded", "superseded_by", KNOWN),
    State("denied", "decision", "deny"),
    State("denied", "answer", "denied"),
    State("expired", "closed_at", KNOWN),
    State("allowed", "decision", "allow"),
    State("approved", "answer", "approved"),
    State("pending", "decision", "ask"),
)


class Change(NamedTuple):
    """An event: the statuses and facts in which it may come, and the facts that it sets."""

    statuses: tuple[Status, ...]
    sets: Facts
    needs: Facts = MappingProxyType({})


# A request begins with its `decision` alone: see BEGINNINGS.
EVENTS: Mapping[Event, Change] = MappingProxyType(
    {
        "approve": Change(("pending",), {"answer": "approved"}),
        "deny": Change(("pending",), {"answer": "denied"}),
        "supersede": Change(("pending",), {"superseded_by": KNOWN, "answer": "denied"}),
        "close": Change(("pending", "allowed", "approved"), {"closed_at": KNOWN}),
        # From now on, a person's denial no longer applies to later requests.
        "lift": Change(("denied",), {"closed_at": KNOWN}, {"answer": "denied", "closed_at": None}),
        "claim": Change(("allowed", "approved"), {"used_at": KNOWN}),
        # A failing channel also settles requests that it hadn't claimed yet.
        "settle": Change(
            ("used", "allowed", "approved", "expired"), {"settled_at": KNOWN}, {"settled_at": None}
        ),
    }
)
# No waiting request will be carried out any more.
FINAL: tuple[Status, ...] = ("denied", "superseded", "expired")
# The rules' answer to a new request, and its first status.
BEGINNINGS: Mapping[str, Status] = MappingProxyType(
    {"ask": "pending", "allow": "allowed", "deny": "denied"}
)


def status_of(fact: Callable[[str], object]) -> Status:
    """Return the status that follows from the facts; `fact(name)` is the value of one."""
    for row in STATES:
        value = fact(row.fact)
        if (value is not None) if row.value is KNOWN else (value == row.value):
            return row.status
    raise ValueError(f"no status follows from the decision `{fact('decision')}`")


def begun(decision: str) -> dict[str, Value]:
    """Return the facts of a request that was just asked."""
    return dict.fromkeys(FACTS) | {"decision": decision}


def may_come(event: Event, fact: Callable[[str], object]) -> bool:
    """Return whether the event may come for a request with these facts."""
    change = EVENTS[event]
    return status_of(fact) in change.statuses and all(
        fact(name) == value for name, value in change.needs.items()
    )


def after(facts: Facts, event: Event) -> dict[str, Value] | None:
    """Return the facts after an event; None if it may not come."""
    return {**facts, **EVENTS[event].sets} if may_come(event, facts.__getitem__) else None


def cases_of(status: Status) -> list[dict[str, frozenset[Value]]]:
    """Return conditions of which one holds exactly if this is the status."""
    cases = []
    for at, row in enumerate(STATES):
        if row.status == status:
            case = {row.fact: frozenset({row.value})}
            for above in STATES[:at]:
                known = case.get(above.fact, FACTS[above.fact])
                case[above.fact] = known - {above.value}
            cases.append(case)
    return cases


def cases_for(event: Event) -> list[dict[str, frozenset[Value]]]:
    """Return conditions of which one holds exactly if this event may come."""
    change = EVENTS[event]
    needed = {fact: frozenset({value}) for fact, value in change.needs.items()}
    return [
        {**case, **{fact: case.get(fact, FACTS[fact]) & one for fact, one in needed.items()}}
        for status in change.statuses
        for case in cases_of(status)
    ]


def diagram() -> str:
    """Return the state machine as a Mermaid state diagram."""
    lines = ["stateDiagram-v2"]
    lines += [f"    [*] --> {status}: rules say {said}" for said, status in BEGINNINGS.items()]
    for event, change in EVENTS.items():
        for status in change.statuses:
            lines.append(f"    {status} --> {_led_to(status, event)}: {event}")
    return "\n".join(lines)


def _led_to(status: Status, event: Event) -> Status:
    """Return the status after an event that comes in this status."""
    case, change = cases_of(status)[0], EVENTS[event]
    facts = {fact: min(case.get(fact, {None}), key=str) for fact in FACTS}
    return status_of({**facts, **change.needs, **change.sets}.__getitem__)
