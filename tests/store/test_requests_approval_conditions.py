"""SQL on a real database finds exactly the requests whose facts have a status, whatever happened
to them."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, Engine, select

from supervisor.core.actions import Exec
from supervisor.core.approval_states import (
    BEGINNINGS,
    EVENTS,
    FACTS,
    KNOWN,
    STATUSES,
    Event,
    after,
    begun,
    status_of,
)
from supervisor.core.approvals import Request, RequestId, status
from supervisor.errors import ChangedError
from supervisor.store import requests as store
from supervisor.store.engine import open_database
from supervisor.store.requests import in_status, may_come
from supervisor.store.tables import requests as table

HISTORIES = st.lists(
    st.tuples(
        st.sampled_from(sorted(BEGINNINGS)), st.lists(st.sampled_from(sorted(EVENTS)), max_size=5)
    ),
    min_size=1,
    max_size=4,
)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    made = open_database(tmp_path_factory.mktemp("states") / "gatehouse.db")
    yield made
    made.dispose()


def asked(number: int, decision: Any) -> Request:
    return Request(
        id=RequestId(f"r{number}"), session_id="s", origin="agent_api", action=Exec(command="ls"),
        fingerprint="f", subject=f"exec:{number}", asked_at=float(number), decision=decision,
        why="w",
    )  # fmt: skip


def happen(connection: Connection, event: Event, request: Request) -> None:
    """As the queue does it, to a request that was read before."""
    answered = {"answered_at": 1.0, "answered_by": "operator"}
    if event in ("approve", "deny"):
        said = "approved" if event == "approve" else "denied"
        store.answer_all(connection, [msgspec.structs.replace(request, answer=said, **answered)])
    elif event == "supersede":
        newer = msgspec.structs.replace(request, id=RequestId("newer"))
        store.supersede_all(connection, [(request, newer)], "w")
    elif event == "close":
        store.close_all(connection, [request.id], "w", 2.0)
    elif event == "lift":
        store.lift_all(connection, [request.id], "w", 2.0)
    elif event == "claim":
        store.use_all(connection, [request], 3.0)
    else:
        store.settle_all(connection, {request.id: {"ok": True}}, 4.0)


def facts_of(request: Request) -> dict[str, Any]:
    return {
        name: KNOWN if KNOWN in FACTS[name] and value is not None else value
        for name in FACTS
        for value in [getattr(request, name)]
    }


@settings(deadline=None)
@given(histories=HISTORIES)
def test_after_any_events_table_status_and_sql_agree(
    engine: Engine, histories: list[tuple[str, list[Event]]]
) -> None:
    with engine.connect() as connection:
        model = {}
        for number, (decision, events) in enumerate(histories):
            store.add_all(connection, [asked(number, decision)])
            facts = begun(decision)
            for event in events:
                request = store.get(connection, f"r{number}")
                assert request is not None
                happen(connection, event, request)
                changed = after(facts, event)
                if changed is None:  # an illegal event changes nothing
                    assert store.get(connection, request.id) == request
                facts = changed or facts
            model[f"r{number}"] = facts
        for request_id, facts in model.items():
            stored = store.get(connection, request_id)
            assert stored is not None
            assert facts_of(stored) == facts
            assert status(stored) == status_of(facts.__getitem__)
        by_sql = {
            name: {one.id for one in connection.execute(select(table.c.id).where(in_status(name)))}
            for name in STATUSES
        }
        by_status: dict[str, set[str]] = {name: set() for name in STATUSES}
        for request_id, facts in model.items():
            by_status[status_of(facts.__getitem__)].add(request_id)
        assert by_sql == by_status
        for event in EVENTS:
            found = {
                one.id for one in connection.execute(select(table.c.id).where(may_come(event)))
            }
            assert found == {one for one, facts in model.items() if after(facts, event)}
        assert {one.id for one in store.pending(connection)} == by_status["pending"]
        ready = by_status["allowed"] | by_status["approved"]
        assert {one.id for one in store.ready(connection)} == ready
        assert {one.id for one in store.unsettled(connection)} == {
            one for one in by_status["used"] if model[one]["settled_at"] is None
        }
        connection.rollback()


def test_an_answer_that_comes_late_takes_all_back(engine: Engine) -> None:
    with engine.connect() as connection:
        store.add_all(connection, [asked(0, "ask"), asked(1, "ask")])
        happen(connection, "close", asked(1, "ask"))
        said = [msgspec.structs.replace(asked(number, "ask"), answer="denied") for number in (0, 1)]
        with pytest.raises(ChangedError):
            store.answer_exactly(connection, said)
        connection.rollback()


def test_those_that_wait_are_found_by_their_index(engine: Engine) -> None:
    with engine.connect() as connection:
        query = select(table.c.id).where(in_status("pending"), table.c.session_id == "s")
        text = str(query.compile(engine, compile_kwargs={"literal_binds": True}))
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}").all()
        assert "ux_requests_pending" in str(plan)
