"""State machine of one pull request: what is wanted and done, and how each event changes it.

Pure: `step` returns the facts after an event, and the actions to take. The state is derived from
the facts. The caller keeps the facts in one row and changes them in the same transaction as the
actions, so that a crash can't separate the two.

INVARIANT: an event of a run that isn't the slot's, or of an earlier attempt, changes nothing. In
any order of events a slot has at most one run, and the newest head is reviewed or a receipt says
why not.
"""

from typing import Any, Literal

import msgspec
from msgspec.structs import replace

State = Literal["idle", "debouncing", "running", "pending-rerun"]

LEASE_S = 60.0
MOST_ATTEMPTS = 3
BACK_OFF_S = 30.0
DEAD_WAIT_S, LONGEST_DEAD_WAIT_S = 300.0, 3600.0
# A slot's run fields while it has no run.
_FRESH: dict[str, Any] = {"run_id": "", "run_sha": "", "attempt": 0, "lease_until": None}


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a pull request. Times are seconds since the epoch. `full`: the whole change
    is wanted, though parts of it were reviewed. `attempt` counts from 1 for the run of `run_id` at
    `run_sha`."""

    wanted_sha: str = ""
    first_wanted_at: float | None = None
    due_at: float | None = None
    full: bool = False
    run_id: str = ""
    run_sha: str = ""
    attempt: int = 0
    lease_until: float | None = None
    last_reviewed_sha: str = ""
    rounds: int = 0


class Wanted(msgspec.Struct, frozen=True):
    """Somebody wants this head reviewed: a push, or a person. `full`: review the whole change, even
    parts that were reviewed before. `again`: start a run though the head was reviewed."""

    head: str
    full: bool = False
    again: bool = False


class Due(msgspec.Struct, frozen=True):
    """The debounce may be over. `run_id` is the id for the run to start. `held`: no run may start
    now. `no_budget`: why there is no money for one."""

    run_id: str
    held: bool = False
    no_budget: str = ""


class Beat(msgspec.Struct, frozen=True):
    """The run is alive."""

    run_id: str
    attempt: int


class Ended(msgspec.Struct, frozen=True):
    """The run has ended: well, or `failed` with a reason; a retry may help. `was_review`: the head
    counts as reviewed; on a draft only prompts run."""

    run_id: str
    attempt: int
    failed: str = ""
    may_retry: bool = False
    was_review: bool = True


class GivenBack(msgspec.Struct, frozen=True):
    """The run was given up without a failure: nobody began it, or everything is stopped. It doesn't
    count as an attempt. `full`: it was to review the whole change. `until`: the earliest retry."""

    run_id: str
    attempt: int
    full: bool = False
    until: float = 0.0


class LeaseOver(msgspec.Struct, frozen=True):
    """The run's lease may have expired: it sent no sign of life for too long."""


class Closed(msgspec.Struct, frozen=True):
    """Nothing is wanted any more: closed, paused or disabled, by the reason code."""

    reason: str


type Event = Wanted | Due | Beat | Ended | GivenBack | LeaseOver | Closed


class StartRun(msgspec.Struct, frozen=True):
    run_id: str
    head: str
    attempt: int
    full: bool


class AbortRun(msgspec.Struct, frozen=True):
    run_id: str


class LeaveReceipt(msgspec.Struct, frozen=True):
    """A head isn't reviewed, or not now; `reason` is the code that says why."""

    head: str
    outcome: Literal["skipped", "held", "failed"]
    reason: str


type SlotEffect = StartRun | AbortRun | LeaveReceipt


def state(slot: Slot) -> State:
    """Return the slot's state."""
    if slot.lease_until is not None:
        return "running" if slot.wanted_sha == slot.run_sha else "pending-rerun"
    return "idle" if slot.due_at is None else "debouncing"


def step(
    slot: Slot,
    event: Event,
    now: float,
    *,
    debounce_s: float,
    longest_wait_s: float,
) -> tuple[Slot, tuple[SlotEffect, ...]]:
    """Return the facts after an event, and the actions to take."""
    is_running = slot.lease_until is not None
    match event:
        case Wanted():
            return _wanted(slot, event, now, debounce_s, longest_wait_s), ()
        case Due() if not is_running and slot.due_at is not None and slot.due_at <= now:
            return _due(slot, event, now)
        case Beat() if is_running and _is_of(slot, event):
            return replace(slot, lease_until=now + LEASE_S), ()
        case Ended() if is_running and _is_of(slot, event):
            return _ended(slot, event, now)
        case GivenBack() if is_running and _is_of(slot, event):
            full, due_at = slot.full or event.full, max(now, event.until)
            return replace(slot, first_wanted_at=now, due_at=due_at, full=full, **_FRESH), ()
        case LeaseOver() if slot.lease_until is not None and slot.lease_until <= now:
            over = Ended(slot.run_id, slot.attempt, failed="lease over", may_retry=True)
            after, effects = _ended(slot, over, now)
            # The process that had the run is gone: there is nothing to wait for.
            return (after if after.due_at is None else replace(after, due_at=now)), effects
        case Closed():
            return _closed(slot, event)
    return slot, ()


def failed_outcome(attempt: int, *, may_retry: bool) -> Literal["failed", "dead"]:
    """Return the outcome of a failed attempt: `dead` if a retry might help but no attempt is left.
    A dead head is tried again later."""
    return "dead" if may_retry and attempt >= MOST_ATTEMPTS else "failed"


def dead_wait_s(count: int) -> float:
    """Return how long a head waits after `count` dead runs: 5, 10, 20 minutes, an hour at most."""
    return min(DEAD_WAIT_S * 2.0 ** min(count - 1, 10), LONGEST_DEAD_WAIT_S)


def _wanted(
    slot: Slot, event: Wanted, now: float, debounce_s: float, longest_wait_s: float
) -> Slot:
    full = event.full or slot.full
    if slot.lease_until is not None:
        return replace(slot, wanted_sha=event.head, full=full)
    wants_more = event.full or event.again
    if slot.due_at is None and event.head == slot.last_reviewed_sha and not wants_more:
        return slot
    is_waiting = slot.due_at is not None and slot.first_wanted_at is not None
    first = slot.first_wanted_at if is_waiting else now
    assert first is not None
    if event.head == slot.wanted_sha and is_waiting:
        return replace(slot, full=full)
    return replace(
        slot,
        wanted_sha=event.head,
        first_wanted_at=first,
        due_at=min(now + debounce_s, first + longest_wait_s),
        full=full,
        # A new head has its own attempts.
        **({} if event.head == slot.run_sha else {"run_id": "", "run_sha": "", "attempt": 0}),
    )


def _due(slot: Slot, event: Due, now: float) -> tuple[Slot, tuple[SlotEffect, ...]]:
    if event.held:
        return slot, ()
    if event.no_budget:
        receipt = LeaveReceipt(slot.wanted_sha, "held", event.no_budget)
        return replace(_idle(slot), wanted_sha=slot.wanted_sha, full=slot.full), (receipt,)
    run_id = slot.run_id or event.run_id
    started = replace(
        slot,
        first_wanted_at=None,
        due_at=None,
        full=False,
        run_id=run_id,
        run_sha=slot.wanted_sha,
        attempt=slot.attempt + 1,
        lease_until=now + LEASE_S,
    )
    return started, (StartRun(run_id, started.run_sha, started.attempt, slot.full),)


def _ended(slot: Slot, event: Ended, now: float) -> tuple[Slot, tuple[SlotEffect, ...]]:
    is_newest = slot.wanted_sha == slot.run_sha
    reviewed = slot
    if not event.failed and event.was_review:
        rounds = slot.rounds + (slot.run_sha != slot.last_reviewed_sha)
        reviewed = replace(slot, last_reviewed_sha=slot.run_sha, rounds=rounds)
    if not is_newest or (slot.full and not event.failed):
        # A newer head, or the whole change of this one, is already wanted.
        return replace(reviewed, first_wanted_at=now, due_at=now, **_FRESH), ()
    if event.failed and event.may_retry and slot.attempt < MOST_ATTEMPTS:
        due_at = now + BACK_OFF_S * 2 ** (slot.attempt - 1)
        return replace(slot, lease_until=None, first_wanted_at=now, due_at=due_at), ()
    failed = (LeaveReceipt(slot.run_sha, "failed", event.failed),) if event.failed else ()
    return _idle(reviewed), failed


def _closed(slot: Slot, event: Closed) -> tuple[Slot, tuple[SlotEffect, ...]]:
    # A review that waited for money also counts as wanted.
    was_wanted = bool(slot.wanted_sha)
    receipt = (LeaveReceipt(slot.wanted_sha, "skipped", event.reason),) if was_wanted else ()
    abort = (AbortRun(slot.run_id),) if slot.lease_until is not None else ()
    return _idle(slot), (*abort, *receipt)


def _idle(slot: Slot) -> Slot:
    return Slot(last_reviewed_sha=slot.last_reviewed_sha, rounds=slot.rounds)


def _is_of(slot: Slot, event: Beat | Ended | GivenBack) -> bool:
    return (slot.run_id, slot.attempt) == (event.run_id, event.attempt)
