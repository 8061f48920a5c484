"""A request's status is derived from its facts; what happened last in time doesn't decide, the
order of the facts does."""

from typing import Any

import pytest

from supervisor.core.actions import Exec
from supervisor.core.approvals import (
    Request,
    RequestId,
    explanation,
    failure,
    is_settled,
    last_printed,
    status,
)
from tests.tables import each_row


def request(**facts: Any) -> Request:
    known: dict[str, Any] = {"decision": "ask", "why": "no rule matches; exec asks", **facts}
    return Request(
        id=RequestId("r1"), session_id="s1", origin="agent_api", action=Exec(command="ls"),
        fingerprint="f", subject="s", asked_at=1.0, **known
    )  # fmt: skip


APPROVED: dict[str, Any] = {"answer": "approved", "answered_at": 2.0, "answered_by": "operator"}
DENIED: dict[str, Any] = {"answer": "denied", "answered_at": 2.0, "answered_by": "operator"}


@each_row(
    ("facts", "expected", "is_over"),
    [
        ({}, "pending", False),
        (APPROVED, "approved", False),
        (DENIED, "denied", True),
        ({"decision": "deny"}, "denied", True),
        ({"decision": "allow"}, "allowed", False),
        ({"closed_at": 3.0}, "expired", True),
        ({**APPROVED, "closed_at": 3.0}, "expired", True),
        ({"decision": "allow", "closed_at": 3.0}, "expired", True),
        ({"superseded_by": "r2"}, "superseded", True),
        ({**APPROVED, "superseded_by": "r2"}, "superseded", True),
        ({**APPROVED, "used_at": 3.0}, "used", False),
        # What was used stays used, whatever came after.
        ({**APPROVED, "used_at": 3.0, "superseded_by": "r2", "closed_at": 4.0}, "used", False),
        ({**APPROVED, "used_at": 3.0, "settled_at": 4.0}, "used", True),
        ({"decision": "allow", "used_at": 3.0, "settled_at": 4.0}, "used", True),
        # A denial isn't lifted because the request was closed later.
        ({**DENIED, "closed_at": 3.0}, "denied", True),
    ],
)
def test_the_status_follows_from_the_facts(
    facts: dict[str, Any], expected: str, is_over: bool
) -> None:
    assert status(request(**facts)) == expected
    assert is_settled(request(**facts)) is is_over


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, "no rule matches; exec asks"),
        (APPROVED, "approved by operator"),
        ({**DENIED, "answer_reason": "use make"}, "denied by operator: use make"),
        ({"closed_at": 3.0, "closed_why": "the session ended"}, "the session ended"),
        ({**APPROVED, "superseded_by": "r2"}, "superseded by a newer request for the same thing"),
        ({**APPROVED, "used_at": 3.0, "outcome": {"ok": True}}, "approved by operator"),
        (
            {
                **APPROVED,
                "used_at": 3.0,
                "outcome": {"ok": True, "taken_back": "undone by operator"},
            },
            "undone by operator",
        ),
        (
            {**APPROVED, "used_at": 3.0, "outcome": {"ok": True, "taken_back": "taken back by me"}},
            "taken back by me",
        ),
    ],
)
def test_the_why_is_that_of_the_present_status(facts: dict[str, Any], expected: str) -> None:
    assert explanation(request(**facts)) == expected


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (None, ""),
        ({"ok": True}, ""),
        ({"ok": True, "exit_code": 0}, ""),
        ({"ok": False}, "no reason was given"),
        ({"ok": False, "error": "the disk is full"}, "the disk is full"),
        (
            {"ok": False, "error": "killed: too much memory", "exit_code": 137},
            "killed: too much memory",
        ),
        ({"ok": True, "exit_code": 3}, "exit code 3"),
    ],
)
def test_what_failed_says_why(outcome: dict[str, Any] | None, expected: str) -> None:
    assert failure(request(**APPROVED, used_at=3.0, outcome=outcome)) == expected


def test_the_last_lines_of_both_streams_are_told() -> None:
    numbers = "\n".join(map(str, range(50)))
    assert last_printed({"stdout": numbers, "stderr": "broken\n"}) == "\n".join(
        [*map(str, range(11, 50)), "broken"]
    )
    assert len(last_printed({"stdout": "x" * 9000})) == 8000
    assert last_printed({"ok": False}) == last_printed(None) == ""
