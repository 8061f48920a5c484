"""The slot of a pull request: the table, and what holds in any order of events."""

import functools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.reviews.core.slots import (
    AbortRun,
    Beat,
    Closed,
    Due,
    Ended,
    Event,
    GivenBack,
    LeaseOver,
    LeaveReceipt,
    Slot,
    SlotEffect,
    StartRun,
    Wanted,
    dead_wait_s,
    failed_outcome,
    state,
)
from supervisor.reviews.core.slots import step as step_of_slot

# As GATEHOUSE_REVIEW_DEBOUNCE has it.
step = functools.partial(step_of_slot, debounce_s=15.0, longest_wait_s=120.0)


def after(*events: tuple[float, Event], slot: Slot | None = None) -> tuple[Slot, list[SlotEffect]]:
    """The facts after these events, each at its time, and all that was to be done."""
    found, done = slot or Slot(), []
    for now, event in events:
        found, effects = step(found, event, now)
        done += effects
    return found, done


RUNNING, _ = after((0, Wanted("a")), (15, Due("r1")))


def test_a_push_waits_for_quiet_and_starts_one_run() -> None:
    slot, done = after((0, Wanted("a")), (10, Wanted("b")), (20, Due("r")))
    assert (state(slot), slot.due_at, done) == ("debouncing", 25, [])
    slot, done = after((25, Due("r")), slot=slot)
    assert (state(slot), done) == ("running", [StartRun("r", "b", 1, full=False)])


def test_it_waits_two_minutes_from_the_first_push_at_most() -> None:
    slot, _ = after(*((at, Wanted(str(at))) for at in range(0, 119, 10)))
    assert slot.due_at == 120
    assert after((119, Wanted("last")), slot=slot)[0].due_at == 120


def test_the_same_head_again_changes_nothing_while_it_waits_runs_or_was_reviewed() -> None:
    waiting, _ = after((0, Wanted("a")))
    assert after((9, Wanted("a")), slot=waiting)[0] == waiting
    assert after((16, Wanted("a")), slot=RUNNING)[0] == RUNNING
    reviewed, _ = after((20, Ended("r1", 1)), slot=RUNNING)
    assert (state(reviewed), reviewed.last_reviewed_sha, reviewed.rounds) == ("idle", "a", 1)
    assert after((30, Wanted("a")), slot=reviewed)[0] == reviewed
    more, _ = after((30, Wanted("a", again=True)), (45, Due("r2")), slot=reviewed)
    assert (state(more), more.full) == ("running", False)
    done, _ = after((46, Ended("r2", 1)), slot=more)
    assert done.rounds == reviewed.rounds, "no further round of the same head"
    again, _ = after((30, Wanted("a", full=True)), slot=reviewed)
    assert (state(again), again.full) == ("debouncing", True)
    assert after((45, Due("r2")), slot=again)[1] == [StartRun("r2", "a", 1, full=True)]


def test_a_draft_that_prompts_looked_at_was_not_reviewed() -> None:
    looked_at, _ = after((20, Ended("r1", 1, was_review=False)), slot=RUNNING)
    assert (state(looked_at), looked_at.last_reviewed_sha, looked_at.rounds) == ("idle", "", 0)
    assert state(after((30, Wanted("a")), slot=looked_at)[0]) == "debouncing"


def test_a_push_in_the_middle_runs_again_once_at_the_newest_head() -> None:
    slot, _ = after((20, Wanted("b")), (21, Wanted("c")), slot=RUNNING)
    assert state(slot) == "pending-rerun"
    slot, _ = after((30, Ended("r1", 1)), slot=slot)
    assert (state(slot), slot.due_at, slot.last_reviewed_sha) == ("debouncing", 30, "a")
    assert after((30, Due("r2")), slot=slot)[1] == [StartRun("r2", "c", 1, full=False)]
    # Pushed back to what runs already.
    assert state(after((20, Wanted("b")), (21, Wanted("a")), slot=RUNNING)[0]) == "running"


def test_the_whole_change_may_be_wanted_while_a_part_of_it_is_reviewed() -> None:
    slot, _ = after((20, Wanted("a", full=True)), (30, Ended("r1", 1)), slot=RUNNING)
    assert after((30, Due("r2")), slot=slot)[1] == [StartRun("r2", "a", 1, full=True)]


def test_a_failure_is_tried_again_later_and_three_times_at_most() -> None:
    slot, _ = after((20, Ended("r1", 1, failed="forge", may_retry=True)), slot=RUNNING)
    assert (state(slot), slot.due_at) == ("debouncing", 50)
    slot, done = after((50, Due("other")), slot=slot)
    assert done == [StartRun("r1", "a", 2, full=False)]
    slot, _ = after((60, Ended("r1", 2, failed="forge", may_retry=True)), slot=slot)
    assert slot.due_at == 120
    slot, _ = after((120, Due("other")), slot=slot)
    slot, done = after((130, Ended("r1", 3, failed="forge", may_retry=True)), slot=slot)
    assert (state(slot), done) == ("idle", [LeaveReceipt("a", "failed", "forge")])


def test_one_that_can_not_go_better_fails_at_once_and_a_new_head_has_its_own_attempts() -> None:
    slot, done = after((20, Ended("r1", 1, failed="no review")), slot=RUNNING)
    assert (state(slot), done) == ("idle", [LeaveReceipt("a", "failed", "no review")])
    slot, _ = after((20, Ended("r1", 1, failed="forge", may_retry=True)), slot=RUNNING)
    _, done = after((21, Wanted("b")), (50, Due("r2")), slot=slot)
    assert done == [StartRun("r2", "b", 1, full=False)]


def test_a_lease_that_runs_out_is_a_failure() -> None:
    slot, _ = after((70, Beat("r1", 1)), (75, LeaseOver()), slot=RUNNING)
    assert slot.lease_until == 130
    slot, _ = after((130, LeaseOver()), slot=slot)
    assert (state(slot), slot.due_at) == ("debouncing", 130)
    again = ((130, Due("r")), (190, LeaseOver()), (190, Due("r")), (250, LeaseOver()))
    slot, done = after(*again, slot=slot)
    done = done[-1:]
    assert (state(slot), done) == ("idle", [LeaveReceipt("a", "failed", "lease over")])


def test_what_is_given_back_is_wanted_again_at_once_and_was_no_attempt() -> None:
    slot, _ = after((0, Wanted("a", full=True)), (15, Due("r1")))
    slot, done = after((20, GivenBack("r1", 1, full=True)), slot=slot)
    assert (state(slot), slot.due_at, done) == ("debouncing", 20, [])
    assert after((20, Due("r2")), slot=slot)[1] == [StartRun("r2", "a", 1, full=True)]
    slot, _ = after((20, Wanted("b")), (21, GivenBack("r1", 1)), slot=RUNNING)
    assert after((21, Due("r2")), slot=slot)[1] == [StartRun("r2", "b", 1, full=False)]


def test_what_a_provider_limits_is_given_back_until_it_is_reset() -> None:
    slot, _ = after((20, GivenBack("r1", 1, until=400)), slot=RUNNING)
    assert (state(slot), slot.due_at, slot.attempt) == ("debouncing", 400, 0)
    assert after((399, Due("r2")), slot=slot)[1] == []


def test_dead_is_what_failed_thrice_and_might_go_better() -> None:
    assert [failed_outcome(n, may_retry=True) for n in (1, 2, 3)] == ["failed", "failed", "dead"]
    assert failed_outcome(3, may_retry=False) == "failed"
    assert [dead_wait_s(n) for n in (1, 2, 3, 4, 5, 5000)] == [300, 600, 1200, 2400, 3600, 3600]


def test_held_stays_and_without_money_a_receipt_says_so() -> None:
    waiting, _ = after((0, Wanted("a", full=True)))
    assert after((15, Due("r", held=True)), slot=waiting) == (waiting, [])
    slot, done = after((15, Due("r", no_budget="pull request")), slot=waiting)
    assert (state(slot), done) == ("idle", [LeaveReceipt("a", "held", "pull request")])
    over = LeaveReceipt("a", "skipped", "closed")
    assert after((20, Closed("closed")), slot=slot) == (Slot(), [over])
    slot, done = after((99, Wanted("a")), (114, Due("r")), slot=slot)
    assert done == [StartRun("r", "a", 1, full=True)]


def test_closed_ends_what_runs_and_what_waits() -> None:
    slot, done = after((20, Closed("closed")), slot=RUNNING)
    assert (state(slot), done) == (
        "idle",
        [AbortRun("r1"), LeaveReceipt("a", "skipped", "closed")],
    )
    waiting, _ = after((0, Wanted("a")))
    assert after((1, Closed("paused")), slot=waiting)[1] == [LeaveReceipt("a", "skipped", "paused")]
    assert after((1, Closed("closed"))) == (Slot(), [])


@pytest.mark.parametrize(
    "stale",
    [
        Beat("r0", 1),
        Beat("r1", 2),
        Ended("r0", 1),
        Ended("r1", 2),
        GivenBack("r1", 2),
        Due("r2"),
        LeaseOver(),
    ],
)
def test_what_is_stale_changes_nothing(stale: Event) -> None:
    assert after((20, stale), slot=RUNNING) == (RUNNING, [])
    assert after((20, stale)) == (Slot(), [])


HEADS = st.sampled_from("abcd")
EVENTS = st.one_of(
    st.builds(Wanted, HEADS, st.booleans()),
    st.builds(Due, st.just(""), st.booleans(), st.sampled_from(["", "day"])),
    st.builds(Beat, st.sampled_from(["r0", "r1", "r2"]), st.integers(1, 3)),
    st.builds(
        Ended,
        st.sampled_from(["r0", "r1", "r2"]),
        st.integers(1, 3),
        st.sampled_from(["", "bad"]),
        st.booleans(),
    ),
    st.builds(GivenBack, st.sampled_from(["r0", "r1", "r2"]), st.integers(1, 3), st.booleans()),
    st.just(LeaseOver()),
    st.just(Closed("closed")),
)


@given(st.lists(st.tuples(st.integers(0, 100), EVENTS), max_size=60))
def test_in_any_order_there_is_one_run_and_the_newest_head_is_not_forgotten(
    events: list[tuple[int, Event]],
) -> None:
    slot, now, newest, runs, answered = Slot(), 0.0, "", 0, set[str]()
    for wait, event in events:
        now += wait
        if isinstance(event, Due):
            event = Due(f"r{runs}", event.held, event.no_budget)
        if isinstance(event, Wanted):
            newest = event.head
            answered.discard(newest)
        was_running = slot.lease_until is not None
        before = slot
        slot, effects = step(slot, event, now)
        for effect in effects:
            if isinstance(effect, StartRun):
                assert not was_running
                assert slot.run_id == effect.run_id
                runs += 1
            elif isinstance(effect, LeaveReceipt):
                answered.add(effect.head)
        if slot.rounds > before.rounds:
            answered.add(before.run_sha)
        assert (slot.lease_until is None) or (slot.due_at is None)
        if newest and slot.last_reviewed_sha != newest and newest not in answered:
            assert state(slot) != "idle"
            assert slot.wanted_sha == newest
    # Whatever came, it settles: what is wanted is run, and ends.
    for _ in range(6):
        now += 1000
        slot, effects = step(slot, Due("last"), now)
        slot, _ = step(slot, Ended(slot.run_id, slot.attempt), now)
    assert state(slot) == "idle"


@given(st.lists(st.floats(0, 2), min_size=1, max_size=40), st.floats(1, 40))
def test_a_burst_gives_two_runs_at_most(pauses: list[float], takes: float) -> None:
    slot, now, started, runs = Slot(), 0.0, 0.0, 0
    pushes = [sum(pauses[: at + 1]) for at in range(len(pauses))]
    while now < pushes[-1] + 200:
        for at, push in enumerate(pushes):
            if now <= push < now + 0.5:
                slot, _ = step(slot, Wanted(f"head {at}"), push)
        if slot.lease_until is not None and now - started >= takes:
            slot, _ = step(slot, Ended(slot.run_id, slot.attempt), now)
        slot, effects = step(slot, Due(f"r{runs}"), now)
        if effects:
            started, runs = now, runs + 1
        now += 0.5
    assert runs <= 2
    assert slot.last_reviewed_sha == f"head {len(pushes) - 1}"


PENDING, _ = after((20, Wanted("b")), slot=RUNNING)
STATES = {
    "idle": Slot(),
    "debouncing": after((0, Wanted("a")))[0],
    "running": RUNNING,
    "pending-rerun": PENDING,
}
EVENTS_BY_NAME: dict[str, Event] = {
    "wanted": Wanted("b"),
    "wanted as it was": Wanted("a"),
    "due": Due("r"),
    "no money": Due("r", no_budget="day"),
    "ended": Ended("r1", 1),
    "failed, may go better": Ended("r1", 1, failed="x", may_retry=True),
    "failed": Ended("r1", 1, failed="x"),
    "given back": GivenBack("r1", 1),
    "lease over": LeaseOver(),
    "closed": Closed("closed"),
}


def drawn() -> list[str]:
    """The table as a diagram: each way from one state to another, with all that leads there."""
    ways: dict[tuple[str, str], list[str]] = {}
    for name, slot in STATES.items():
        for label, event in EVENTS_BY_NAME.items():
            to = state(step(slot, event, 500)[0])
            if to != name and label not in ways.setdefault((name, to), []):
                ways[name, to].append(label)
    lines = [
        f"    {start.replace('-', '_')} --> {end.replace('-', '_')}: {'; '.join(labels)}"
        for (start, end), labels in ways.items()
        if labels
    ]
    return ["stateDiagram-v2", "    [*] --> idle", *lines]


def test_the_diagram_of_the_page_is_the_table() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reviews.md").read_text()
    told = page.partition("```mermaid\n")[2].partition("\n```")[0].split("\n")
    assert told == drawn(), "\n".join(drawn())
