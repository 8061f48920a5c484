"""A saved rule whose time, or session, is over goes away by itself, and its end is on record.
Nobody prolongs it by setting a clock."""

import contextlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from supervisor.core.actions import Effect, Network
from supervisor.parts import Parts
from supervisor.records.policy_files import Until
from supervisor.settings import from_environment
from tests.fakes.clock import FakeClock
from tests.fakes.gated import session


def test_the_end_of_a_rule_is_on_record(tmp_path: Path) -> None:
    clock = FakeClock()
    parts = Parts(from_environment()._replace(data_dir=tmp_path / "data"), clock=clock)
    try:
        parts.gate.rulings.open_session(session("one"))
        add = parts.policies.add_rule
        timed = add(
            "allow",
            "network(a.example.org)",
            why="",
            by="tester",
            until=Until(at=clock.now() + 900),
        )
        own = add(
            "deny", "network(b.example.org)", why="", by="tester", until=Until(session_id="one")
        )
        always = add("allow", "network(c.example.org)", why="", by="tester")
        clock.advance(899)
        parts.drop_ended_rules()
        assert ended(parts) == []
        clock.advance(1)
        parts.drop_ended_rules()
        parts.drop_ended_rules()
        assert [(one["rule_id"], one["effect"], one["until"]) for one in ended(parts)] == [
            (timed, "allow", clock.now())
        ]
        parts.gate.rulings.close_session("one")
        parts.drop_ended_rules()
        assert [(one["rule_id"], one["for_session"]) for one in ended(parts)[1:]] == [(own, "one")]
        assert always in parts.settings.saved_rules_file.read_text()
        assert timed not in parts.settings.saved_rules_file.read_text()
    finally:
        parts.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@contextlib.contextmanager
def running(tmp_path: Path, clock: FakeClock) -> Iterator[Parts]:
    found = Parts(from_environment()._replace(data_dir=tmp_path / "data"), clock=clock)
    try:
        found.gate.rulings.open_session(session("one"))
        yield found
    finally:
        found.close()


@pytest.fixture
def parts(tmp_path: Path, clock: FakeClock) -> Iterator[Parts]:
    with running(tmp_path, clock) as found:
        yield found


def verdict(parts: Parts) -> str:
    action = Network(operation="connect", host="a.example.org", port=443)
    return parts.gate.rulings.verdict(action, "one").decision


def near(parts: Parts) -> str:
    action = Network(operation="connect", host="a.example.org", port=8443)
    return parts.gate.rulings.open_near(action, "one")


def for_15_minutes(parts: Parts, clock: FakeClock, effect: Effect = "allow") -> str:
    until = Until(at=clock.now() + 900)
    return parts.policies.add_rule(
        effect, "network(a.example.org)", why="", by="tester", until=until
    )


def test_an_answer_for_15_minutes_is_over_then_though_the_clock_was_set_back(
    parts: Parts, clock: FakeClock
) -> None:
    rule_id = for_15_minutes(parts, clock)
    assert verdict(parts) == "allow"
    clock.set_by(-3600)
    clock.advance(890)
    assert verdict(parts) == "allow"
    assert near(parts)
    clock.advance(11)
    assert verdict(parts) == "ask"
    assert not near(parts)
    # Its end is final: the next start, by the clock on the wall alone, must not bring it back.
    parts.drop_ended_rules()
    assert [one["rule_id"] for one in ended(parts)] == [rule_id]
    assert rule_id not in parts.settings.saved_rules_file.read_text()


def test_a_clock_set_forth_ends_it_and_set_right_again_it_has_the_rest_of_its_time(
    parts: Parts, clock: FakeClock
) -> None:
    for_15_minutes(parts, clock)
    clock.set_by(86400)
    assert verdict(parts) == "ask"
    clock.set_by(-86400)
    clock.advance(890)
    assert verdict(parts) == "allow"
    clock.advance(11)
    assert verdict(parts) == "ask"


def test_what_is_given_after_the_clock_was_set_back_holds_as_long_as_it_says(
    parts: Parts, clock: FakeClock
) -> None:
    clock.set_by(-3600)
    for_15_minutes(parts, clock)
    clock.advance(890)
    assert verdict(parts) == "allow"
    clock.advance(11)
    assert verdict(parts) == "ask"


def test_a_denial_for_15_minutes_is_not_cut_short_by_a_clock_set_forth(
    parts: Parts, clock: FakeClock
) -> None:
    for_15_minutes(parts, clock, "deny")
    clock.set_by(86400)
    assert verdict(parts) == "deny"
    parts.drop_ended_rules()
    assert not ended(parts)
    clock.advance(901)
    assert verdict(parts) == "ask"
    parts.drop_ended_rules()
    assert len(ended(parts)) == 1


def test_a_denial_holds_while_the_clock_on_the_wall_says_so(parts: Parts, clock: FakeClock) -> None:
    for_15_minutes(parts, clock, "deny")
    clock.set_by(-3600)
    clock.advance(901)
    assert verdict(parts) == "deny"


def test_after_a_restart_what_was_given_in_the_future_is_over(
    tmp_path: Path, clock: FakeClock
) -> None:
    with running(tmp_path, clock) as parts:
        for_15_minutes(parts, clock)
    clock.set_by(-3600)
    with running(tmp_path, clock) as parts:
        assert verdict(parts) == "ask"
        parts.drop_ended_rules()
        assert len(ended(parts)) == 1
        clock.set_by(3600)
        assert verdict(parts) == "ask"


def test_after_a_restart_it_has_the_rest_of_its_time(tmp_path: Path, clock: FakeClock) -> None:
    with running(tmp_path, clock) as parts:
        for_15_minutes(parts, clock)
        clock.advance(600)
    with running(tmp_path, clock) as parts:
        clock.set_by(-500)  # still after it was given
        clock.advance(299)
        assert verdict(parts) == "allow"
        clock.advance(2)
        assert verdict(parts) == "ask"


def test_a_session_with_rules_of_its_own_is_no_exception(parts: Parts, clock: FakeClock) -> None:
    at = datetime.fromtimestamp(clock.now() + 900, UTC).isoformat()
    text = f"version: 1\nallow:\n  - {{rule: network(a.example.org), expires: '{at}'}}\n"
    own = msgspec.structs.replace(session("one"), policy_text=text)
    parts.gate.rulings.open_session(own)
    assert verdict(parts) == "allow"
    clock.set_by(-3600)
    clock.advance(890)
    assert verdict(parts) == "allow"
    clock.advance(11)
    assert verdict(parts) == "ask"


def ended(parts: Parts) -> list[dict[str, object]]:
    parts.audit.flush()
    records = [json.loads(line) for line in parts.settings.audit_log.read_text().splitlines()]
    return [one for one in records if one["event"] == "rule_ended"]
