"""The record read back: logs of other versions, torn, strange or long."""

import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from supervisor.core.actions import (
    fingerprint,
)
from supervisor.core.lab.past import (
    iterate,
    of_session,
    read_history,
)
from supervisor.errors import UserError
from supervisor.records.audit import EVENTS
from tests.core.lab.test_past import BY, run
from tests.tables import each_row


def line(event: str, **fields: Any) -> bytes:
    return json.dumps({"seq": 1, "at": 5.0, "event": event, **fields}).encode() + b"\n"


def judged(command: str, **fields: Any) -> bytes:
    action = msgspec.to_builtins(run(command))
    facts = {
        "session": "s",
        "category": "exec",
        "action": action,
        "fingerprint": fingerprint(run(command)),
    }
    return line(
        "verdict_given", **(facts | {"verdict": "allow", "rule": None, "why": "w"} | fields)
    )


@pytest.mark.parametrize(
    ("fields", "by_policy"),
    [
        ({}, True),
        ({"why": "the session has ended"}, False),
        ({"why": "the session has ended", "rule": "exec(x)"}, True),
        ({"why": "everything is stopped: a\nb"}, False),
        ({"why": "`::1` port 1 is Gatehouse itself, which is never reached"}, False),
        ({"why": "x: the rules could not be evaluated: KeyError"}, True),
        ({"by": "egress"}, False),
        # The field counts, whatever the text.
        ({"why": "the session has ended", "by_policy": True}, True),
        ({"why": "in words of a later version", "by_policy": False}, False),
    ],
)
def test_lines_of_before_are_told_by_their_texts_and_newer_ones_by_their_field(
    fields: dict[str, Any], by_policy: bool
) -> None:
    (past,) = read_history([judged("a", **fields)], "a")
    assert past.by_policy is by_policy


def test_an_empty_log() -> None:
    assert read_history([], "a") == ()
    assert read_history([b'{"torn": '], "a") == ()


def test_a_last_line_without_its_break_is_being_written() -> None:
    whole = judged("a")
    assert len(read_history([whole, whole[:-1]], "a")) == 1
    assert len(read_history([whole, whole[:40]], "a")) == 1


@each_row(
    "bad",
    [
        b"\n",
        b"nonsense\n",
        b"\xff\xfe\n",
        b"[]\n",
        b'{"at": 1}\n',
        b'{"event": 1, "at": 1}\n',
        b"[" * 100_000 + b"\n",
        line("verdict_given", session="s", verdict="allow"),
        judged("a", verdict="perhaps"),
        judged("a", action={"category": "teleport"}),
        judged("a", action={"category": "exec", "command": "a", "unknown": 1}),
        line("request_answered", request="r", answer="maybe", by="x"),
        line("session_started", workspace="/x"),
    ],
)
def test_a_line_that_is_none_of_ours_is_named(bad: bytes) -> None:
    with pytest.raises(UserError, match=r"^here\.log:2: not a record of the audit log"):
        read_history([judged("a"), bad], "here.log")
    with pytest.raises(UserError, match=r"^here\.log:2: "):
        list(iterate([judged("a"), bad], "here.log", {}))


def test_events_of_a_newer_version_are_passed_over_and_so_are_new_fields() -> None:
    lines = [
        line("moon_landed", action={"category": "teleport"}, verdict=7),
        judged("a", new_field={"x": 1}),
    ]
    assert [past.verdict for past in read_history(lines, "a")] == ["allow"]


@each_row(
    "event",
    sorted(set(EVENTS) - {"verdict_given", "request_asked", "request_answered", "session_started"}),
)
def test_every_other_event_of_ours_is_passed_over(event: str) -> None:
    assert read_history([line(event, rule={}, answer=3)], "a") == ()


def test_half_of_a_surrogate_pair_does_not_make_a_log_unreadable() -> None:
    """An agent names a file so; Python's JSON writes it into an error's text, and other readers
    refuse it."""
    settled = line("effect_settled", detail={"error": "can't open \udcff"})
    assert len(read_history([settled, judged("a", why="\udcff: odd")], "a")) == 1


def test_a_request_that_stands_twice_counts_once() -> None:
    asked = judged("a", request="r1", verdict="ask").replace(b"verdict_given", b"request_asked")
    answers = [
        line("request_answered", request="r1", answer=answer, by=BY)
        for answer in ("approved", "denied")
    ]
    (past,) = read_history([asked, *answers, asked], "a")
    assert past.answer == "approved"


def test_an_answer_whose_question_is_in_an_older_log_is_nobodys() -> None:
    assert (
        read_history([line("request_answered", request="r1", answer="approved", by=BY)], "a") == ()
    )


def test_a_session_whose_start_is_in_an_older_log_knows_no_more_than_its_id() -> None:
    (past,) = read_history([judged("a")], "a")
    assert (past.session, past.workspace, past.remotes, past.own_rules) == ("s", "", (), "")


def test_sessions_apart() -> None:
    lines = [
        judged("a", session="s1"),
        judged("b", session="t"),
        judged("c", session="s1"),
        judged("d", session="s2"),
    ]
    past = read_history(lines, "a")
    assert [one.action.command for one in of_session(past, "s")] == ["a", "c", "d"]  # type: ignore[union-attr]


@pytest.mark.untraced
def test_a_long_log_is_read_in_bounded_memory() -> None:
    """20,000 lines: iterating holds one judgement at a time."""

    def lines() -> Iterator[bytes]:
        for number in range(20_000):
            yield judged(f"make target-{number} " + "x" * 200)

    tracemalloc.start()
    try:
        count = sum(1 for _ in iterate(lines(), "a", {}))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 20_000
    assert peak_bytes < 2_000_000
