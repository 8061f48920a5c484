"""The slots in the database: an event changes one row; its actions follow.

No other module starts runs. `reviews.core.slots` decides how an event changes a slot.
"""

import secrets
from collections.abc import Callable

from msgspec.structs import replace
from sqlalchemy import Connection, Engine

from supervisor.base.clock import Clock
from supervisor.reviews.budgets import WAIT, Budgets
from supervisor.reviews.core import slots
from supervisor.reviews.core.slots import AbortRun, LeaveReceipt, StartRun
from supervisor.reviews.holds import Holds, words
from supervisor.reviews.queue.base import Queue
from supervisor.reviews.signed_receipts import Receipts
from supervisor.reviews.store import allowances, holds, queries
from supervisor.reviews.store.holds import Hold


class Slots:
    """The slots of one supervisor. `debounce_s` and `longest_wait_s`: how long to wait for further
    pushes. Once `is_closing` is set, no run starts any more."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        queue: Queue,
        receipts: Receipts,
        budgets: Budgets,
        *,
        debounce_s: float,
        longest_wait_s: float,
        holding: Holds,
        abort: Callable[[str], None],
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._queue = queue
        self._receipts = receipts
        self._budgets = budgets
        self._debounce_s = debounce_s
        self._longest_wait_s = longest_wait_s
        self._holding = holding
        self._told: set[tuple[int, int, str]] = set()
        self.is_closing = False
        self._abort = abort

    def happened(self, pull_id: int, event: slots.Event) -> slots.Slot:
        """Apply an event; return the slot after it."""
        now = self._clock.now()
        with self._engine.begin() as connection:
            allowances.lock(connection)
            before = queries.slot(connection, pull_id)
            slot, effects = self._step(before, event, now)
            if isinstance(event, slots.Due) and effects and isinstance(effects[0], StartRun):
                event = self._paid(connection, pull_id, event, effects[0])
                slot, effects = self._step(before, event, now)
            if slot != before:
                queries.put_slot(connection, pull_id, slot)
            for effect in effects:
                if isinstance(effect, StartRun):
                    queries.put_run(
                        connection,
                        effect.run_id,
                        pull_id=pull_id,
                        kind="review",
                        head_sha=effect.head,
                        attempt=effect.attempt,
                        full=effect.full,
                        wanted_at=now,
                    )
        for effect in effects:
            match effect:
                case StartRun():
                    self._queue.put(effect.run_id)
                case AbortRun():
                    self._abort(effect.run_id)
                case LeaveReceipt():
                    self._receipts.leave(
                        pull_id, effect.head, outcome=effect.outcome, reason=effect.reason
                    )
                    self._budgets.say_held(pull_id, effect.reason)
        return slot

    def _step(
        self, before: slots.Slot, event: slots.Event, now: float
    ) -> tuple[slots.Slot, tuple[slots.SlotEffect, ...]]:
        return slots.step(
            before, event, now, debounce_s=self._debounce_s, longest_wait_s=self._longest_wait_s
        )

    def _paid(
        self, connection: Connection, pull_id: int, event: slots.Due, start: StartRun
    ) -> slots.Due:
        """Reserve a run's money; return the event that says whether it may start."""
        payer = self._budgets.payer_of_pull(connection, pull_id, start.run_id)
        why = self._budgets.reserve(connection, payer, start.attempt)
        if why == WAIT:
            return replace(event, held=True)
        return replace(event, no_budget=why)

    def end_leases(self) -> None:
        """End every lease at start-up: with one machine, runs of an earlier process are lost."""
        self._budgets.lose()
        with self._engine.begin() as connection:
            queries.end_leases(connection, self._clock.now())

    def is_stopped(self) -> bool:
        """Return whether everything is stopped."""
        return self._holding.stopped() is not None

    def may_start(self) -> bool:
        """Return whether a run may start at all: not while everything is stopped or shutting
        down."""
        return not self.is_closing and not self.is_stopped()

    def give_back(
        self, run: queries.ReviewRun, why: str, *, outcome: str = "stopped", until: float = 0.0
    ) -> None:
        """End a run without a failure; its slot wants the newest head again, now or from `until`
        on."""
        with self._engine.begin() as connection:
            queries.change_run(
                connection, run.id, ended_at=self._clock.now(), outcome=outcome, reason=why
            )
        self.happened(run.pull_id, slots.GivenBack(run.id, run.attempt, run.full, until))

    def drain(self) -> None:
        """Check every slot whose debounce or lease may be over, and queue unclaimed runs again."""
        now = self._clock.now()
        self._budgets.settle_over()
        for waits in self._budgets.refilled():
            self.happened(waits.pull_id, slots.Wanted(waits.head, full=waits.full))
        may_start, held = self.may_start(), self._held()
        with self._engine.connect() as connection:
            waiting = queries.slots_to_look_at(connection, now)
            offered = queries.unclaimed(connection)
        for run in offered:
            if run.pull_id in held or not may_start:
                # Nobody began it: the head that is newest by then is reviewed instead.
                self.give_back(run, "not-begun")
                continue
            if run.pull_id in waiting:
                # It waits for its turn: no process had it that could be gone.
                self.happened(run.pull_id, slots.Beat(run.id, run.attempt))
            self._queue.put(run.id)
        for pull_id in waiting:
            self.happened(pull_id, slots.LeaseOver())
            if pull_id in held:
                self._hold(pull_id, *held[pull_id])
            elif may_start:
                self.happened(pull_id, slots.Due(secrets.token_hex(8)))

    def _held(self) -> dict[int, tuple[Hold, str]]:
        with self._engine.connect() as connection:
            if holds.standing(connection):
                return holds.held_slots(connection)
        self._told.clear()
        return {}

    def _hold(self, pull_id: int, hold: Hold, head: str) -> None:
        """Leave a slot unchanged, with one receipt that names the hold."""
        told = pull_id, hold.id, head
        if told in self._told:
            return
        self._told.add(told)
        slot = self.happened(pull_id, slots.Due(secrets.token_hex(8), held=True))
        if slots.state(slot) == "debouncing":
            self._receipts.leave(pull_id, head, outcome="held", reason=words(hold))
