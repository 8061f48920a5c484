"""The slots in the database: an event changes one row, and what is to be done is done after it.

The only place that starts runs. `core.reviews.slots` says what an event makes of a slot.
"""

import secrets
from collections.abc import Callable

from msgspec.structs import replace
from sqlalchemy import Connection, Engine

from supervisor.base.clock import Clock
from supervisor.core.reviews import slots
from supervisor.core.reviews.slots import AbortRun, LeaveReceipt, StartRun
from supervisor.queue.base import Queue
from supervisor.reviews.budgets import WAIT, Budgets
from supervisor.reviews.receipts import Receipts
from supervisor.store.reviews import allowances, queries


class Slots:
    """One per supervisor. `quiet_s` and `longest_wait_s`: how long pushes are waited for."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        queue: Queue,
        receipts: Receipts,
        budgets: Budgets,
        *,
        quiet_s: float,
        longest_wait_s: float,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._queue = queue
        self._receipts = receipts
        self._budgets = budgets
        self._quiet_s = quiet_s
        self._longest_wait_s = longest_wait_s
        self.abort: Callable[[str], None] = lambda run_id: None

    def happened(self, pull_id: int, event: slots.Event) -> slots.Slot:
        """Take an event; return the slot after it."""
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
                    self.abort(effect.run_id)
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
            before, event, now, quiet_s=self._quiet_s, longest_wait_s=self._longest_wait_s
        )

    def _paid(
        self, connection: Connection, pull_id: int, event: slots.Due, start: StartRun
    ) -> slots.Due:
        """Reserve the money of a run that would start; the event that says whether it may."""
        why = self._budgets.reserve(connection, pull_id, start.run_id, start.attempt)
        if why == WAIT:
            return replace(event, held=True)
        return replace(event, no_budget=why)

    def end_leases(self) -> None:
        """At the start of the one machine there is: what an earlier process ran is lost."""
        self._budgets.lose()
        with self._engine.begin() as connection:
            queries.end_leases(connection, self._clock.now())

    def drain(self) -> None:
        """Look at every slot whose wait or lease may be over, and offer again what nobody took."""
        now = self._clock.now()
        self._budgets.settle_over()
        for held in self._budgets.refilled():
            self.happened(held.pull_id, slots.Wanted(held.head, full=held.full))
        with self._engine.connect() as connection:
            waiting = queries.slots_to_look_at(connection, now)
            offered = queries.unclaimed(connection)
        for pull_id in waiting:
            self.happened(pull_id, slots.LeaseOver())
            self.happened(pull_id, slots.Due(secrets.token_hex(8)))
        for run_id in offered:
            self._queue.put(run_id)
