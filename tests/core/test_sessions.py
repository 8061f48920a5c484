"""A session's state is derived from its facts."""

from typing import Any

import pytest

from supervisor.core.sessions import (
    OwnLimits,
    Session,
    SessionId,
    as_started,
    is_quarantined,
    own_limits,
    remaining_s,
    state,
)


def session(**facts: Any) -> Session:
    return Session(
        id=SessionId("s1"), kind="agent", workspace="/w", command=("sh",), token_hash="t",
        created_at=100.0, deadline_at=160.0, **facts
    )  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, "starting"),
        ({"started_at": 101.0}, "running"),
        ({"started_at": 101.0, "paused_at": 105.0}, "paused"),
        ({"started_at": 101.0, "agent_exited_at": 110.0, "exit_code": 0}, "waiting"),
        ({"started_at": 101.0, "agent_exited_at": 110.0, "stopping_at": 111.0}, "stopping"),
        ({"started_at": 101.0, "stopping_at": 111.0}, "stopping"),
        ({"started_at": 101.0, "stopping_at": 111.0, "ended_at": 112.0}, "ended"),
        # A start that failed: nothing ever ran.
        ({"ended_at": 101.0}, "ended"),
    ],
)
def test_the_state_follows_from_the_facts(facts: dict[str, Any], expected: str) -> None:
    assert state(session(**facts)) == expected


def test_the_time_that_is_left_is_never_negative() -> None:
    assert remaining_s(session(), 100.0) == 60.0
    assert remaining_s(session(), 160.0) == 0.0
    assert remaining_s(session(), 1_000.0) == 0.0


def test_the_time_that_is_left_stands_still_while_it_is_paused() -> None:
    paused = session(started_at=101.0, paused_at=130.0)
    assert remaining_s(paused, 140.0) == remaining_s(paused, 1_000.0) == 30.0


def test_the_record_of_a_start_says_how_it_may_reach_out_and_nothing_that_lets_somebody_in() -> (
    None
):
    told = as_started(
        session(network="transparent", keep_bodies=True, policy_text="deny: [network]")
    )
    assert (told["network"], told["keep_bodies"], told["own_rules"]) == (
        "transparent",
        True,
        "deny: [network]",
    )
    assert (told["session"], told["command"], told["deadline_at"]) == ("s1", ("sh",), 160.0)
    assert "token_hash" not in told


def test_only_the_bounds_that_a_session_has_of_its_own_are_named() -> None:
    assert own_limits(OwnLimits()) == []
    assert own_limits(OwnLimits(memory_bytes=256 << 20, cpu_s=90.0)) == [
        ("memory", "256 MB"), ("processor time", "1m 30s"),
    ]  # fmt: skip
    rest = OwnLimits(processes=2000, output_bytes=2 << 20, hold_s=5.0)
    assert own_limits(rest) == [
        ("processes", "2,000"),
        ("output", "2 MB"),
        ("asked connections held for", "5s"),
    ]
    assert as_started(session(limits=rest))["limits"] == {
        "processes": 2000,
        "output_bytes": 2 << 20,
        "hold_s": 5.0,
    }


def test_what_reads_in_quarantine() -> None:
    assert is_quarantined("quarantine", ("sh",))
    assert is_quarantined("review", ("gatehouse-review", "--pull", "--quarantine"))
    assert not is_quarantined("review", ("gatehouse-review", "--pull", "--read-only"))
    assert not is_quarantined("agent", ("sh", "--quarantine"))
