"""A session's timeline and its list of changed files, from the short facts of its requests."""

from typing import Any

import pytest

from supervisor.core.session_timeline import (
    TOGETHER_S,
    ChangedPath,
    ChangeFacts,
    RequestFacts,
    RequestGroup,
    changed_paths,
    together,
)

ASKED = RequestFacts(
    "a", 100.0, "filesystem", "ask", None, None, None, None, None, None, False, False
)
CHANGED = ChangeFacts("a", "x.py", "ask", None, None, None, None, None, False, False, False)


def asked(request_id: str, **facts: Any) -> RequestFacts:
    return ASKED._replace(id=request_id, **facts)


def groups(*found: RequestFacts) -> list[tuple[str, ...]]:
    return [one.ids for one in together(found)]


def test_changes_that_come_soon_after_each_other_are_one_entry() -> None:
    found = list(together([asked("c", asked_at=104.0), asked("b", asked_at=102.0), asked("a")]))
    assert found == [RequestGroup(("c", "b", "a"), 104.0, 100.0)]
    assert list(together([])) == []


DONE = {"answer": "approved", "used_at": 7.0, "settled_at": 8.0}


@pytest.mark.parametrize(
    ("newer", "is_one"),
    [
        ({}, True),
        ({"asked_at": 100.1 + TOGETHER_S}, False),
        ({"category": "exec"}, False),
        ({"superseded_by": "x", "answer": "denied"}, False),
        ({"closed_at": 5.0}, False),
        ({"decision": "allow"}, False),
        ({"answered_at": 5.0, "answer": "approved"}, False),
    ],
)
def test_what_stands_elsewhere_is_an_entry_of_its_own(newer: dict[str, Any], is_one: bool) -> None:
    assert groups(asked("b", **newer), ASKED) == ([("b", "a")] if is_one else [("b",), ("a",)])


@pytest.mark.parametrize(
    ("newer", "is_one"),
    [
        ({"asked_at": 9000.0}, True),
        ({"answered_at": 6.0}, False),
        ({"has_failed": True}, False),
        ({"is_undone": True}, False),
        ({"settled_at": None}, False),
    ],
)
def test_changes_that_were_answered_as_one_are_one(newer: dict[str, Any], is_one: bool) -> None:
    older = asked("a", answered_at=5.0, **DONE)
    found = groups(older._replace(id="b", **newer), older)
    assert found == ([("b", "a")] if is_one else [("b",), ("a",)])


def test_commands_are_entries_of_their_own() -> None:
    assert groups(asked("b", category="exec"), asked("a", category="exec")) == [("b",), ("a",)]


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        ({}, "waiting"),
        ({"id": "in conflict"}, "conflict"),
        ({"answer": "approved"}, "waiting"),
        ({"decision": "allow"}, "waiting"),
        (DONE, "applied"),
        (DONE | {"in_part": True}, "in part"),
        (DONE | {"has_failed": True}, "failed"),
        (DONE | {"is_undone": True}, "undone"),
        ({"answer": "denied"}, "denied"),
        ({"decision": "deny"}, "denied"),
        ({"closed_at": 4.0}, "expired"),
        ({"superseded_by": "b", "answer": "denied"}, "expired"),
    ],
)
def test_a_path_stands_where_its_newest_request_does(facts: dict[str, Any], state: str) -> None:
    newest = CHANGED._replace(**facts)
    applied = (newest.id,) if state in ("applied", "in part") else ()
    assert changed_paths([newest], {"in conflict"}) == [ChangedPath(newest, state, applied)]  # type: ignore[arg-type]


def test_each_path_is_there_once_and_what_waits_comes_first() -> None:
    done = CHANGED._replace(id="old", **DONE)
    other = CHANGED._replace(id="other", subject="y.py", **DONE)
    found = changed_paths([other, CHANGED._replace(id="new"), done], ())
    assert [(one.newest.id, one.state, one.applied) for one in found] == [
        ("new", "waiting", ("old",)),
        ("other", "applied", ("other",)),
    ]
