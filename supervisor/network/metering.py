"""Answer egress on model calls and traffic: reserve, hold for a budget, or deny.

The rules have allowed the request before; this is only about its cost. A failure in here is a
denial (law 3).
"""

import asyncio
import contextlib
from collections.abc import Callable

from supervisor.base import log
from supervisor.core.actions import BudgetRaise
from supervisor.core.budget import UNLIMITED, Over, explain
from supervisor.core.models.spend import Charge
from supervisor.core.network.egress_wire import TELL_OPERATOR, Answer, Draw, Reserve, Spent, Used
from supervisor.core.text.display import visible
from supervisor.errors import StorageError
from supervisor.gate.gate import Gate, Grant, Refused
from supervisor.ledger.spending import Spending
from supervisor.ledger.traffic import BudgetRefusal
from supervisor.network import reach

# Longest part of a model's name in a sentence.
MOST_MODEL_CHARS = 80
AT_LIMIT = "stop here, or ask the operator to add to the budget"
# A call that needs more raises than this is denied: somebody approves, but others spend the raise.
MOST_RAISES = 20
# How long a stopping Gatehouse waits for the last reports of sent traffic.
TOLD_S = 1.0


class ModelCalls:
    """The model calls and the traffic of one egress process, from its start to its end. Without
    `spending`, every call is denied, and no traffic is counted."""

    def __init__(
        self, gate: Gate, spending: Spending | None, hold_s: float, *, ask_at_limit: bool
    ) -> None:
        self._gate = gate
        self._spending = spending
        self._hold_s = hold_s
        self._ask_at_limit = ask_at_limit
        self._reservations: dict[int, str] = {}
        self._refused: dict[str, str] = {}
        self._untold: set[str] = set()
        self._told = asyncio.Event()

    async def answer(self, wanted: Reserve | Draw) -> Answer:
        """Return whether the call, or this much traffic, may go out. Raise only if cancelled."""
        if self._spending is None:
            if isinstance(wanted, Draw):
                return Answer(question_id=wanted.question_id, decision="allow", granted=UNLIMITED)
            return _deny(
                wanted,
                "model calls are not metered here",
                TELL_OPERATOR,
            )
        try:
            if isinstance(wanted, Draw):
                return await self._draw(wanted, self._spending)
            return await self._reserve(wanted, self._spending)
        except StorageError as error:
            return _deny(wanted, error.message, error.remedy)
        except Exception as error:
            log.exception("reserving failed", error=type(error).__name__)
            return _deny(
                wanted,
                "the ledger failed while it looked at this",
                TELL_OPERATOR,
            )

    def spent(self, spent: Spent) -> Charge | None:
        """Settle a call that went out. Return its cost, or None where it couldn't be recorded."""
        reservation = self._reservations.pop(spent.question_id, None)
        if reservation is None or self._spending is None:
            return None
        try:
            return self._spending.settle(reservation, spent.usage)
        except (
            StorageError
        ) as error:  # it stays at what was reserved, and is settled so at the next start
            log.error("not settled", error=str(error), reservation=reservation)
            return None

    def closing(self, session_id: str) -> None:
        """Expect egress's last traffic report for a closed session or stand-in."""
        self._untold.add(session_id)

    async def all_told(self) -> None:
        """Wait for the last report of every closed session, up to a time limit. Portions without a
        report then count as sent."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TOLD_S):
                while self._untold:
                    self._told.clear()
                    await self._told.wait()

    def used(self, used: Used) -> None:
        """Record what a session sent."""
        if used.is_last:
            self._untold.discard(used.session_id)
            self._told.set()
        if self._spending is None:
            return
        session_id = reach.of_session(used).session_id
        try:
            self._spending.traffic.use(
                session_id,
                {"requests": used.requests, "bytes_out": used.bytes_out},
                {"requests": used.requests_back, "bytes_out": used.bytes_out_back},
            )
        except StorageError as error:  # what was handed out for it goes on counting
            log.error("traffic not recorded", error=str(error), session=session_id)

    def lose_all(self) -> list[tuple[Spent, Charge | None]]:
        """Count outstanding calls and portions as used, since egress is gone. Yield what each call
        counts as."""
        self._untold.clear()
        self._told.set()
        ends = [Spent(question_id=question_id, usage=None) for question_id in self._reservations]
        lost = [(end, self.spent(end)) for end in ends]
        if self._spending is not None:
            try:
                self._spending.traffic.lose()
            except StorageError as error:
                log.error("traffic not recorded", error=str(error))
        return lost

    async def _reserve(self, wanted: Reserve, spending: Spending) -> Answer:
        found = await self._fit(
            wanted, spending, lambda: spending.reserve(wanted.session_id, wanted.host, wanted.call)
        )
        if isinstance(found, Answer):
            return found
        self._reservations[wanted.question_id] = found
        return Answer(question_id=wanted.question_id, decision="allow", settle=True)

    async def _draw(self, wanted: Draw, spending: Spending) -> Answer:
        found = await self._fit(
            wanted,
            spending,
            lambda: spending.traffic.draw(wanted.session_id, wanted.kind, wanted.wanted),
        )
        if isinstance(found, Answer):
            return found
        return Answer(question_id=wanted.question_id, decision="allow", granted=found)

    async def _fit[
        T: (
            str,
            int,
        )
    ](
        self,
        wanted: Reserve | Draw,
        spending: Spending,
        take: Callable[[], T | Over | BudgetRefusal],
    ) -> T | Answer:
        """Return the ledger's answer, after a person raised a limit if needed; or the denial."""
        for _ in range(MOST_RAISES):
            lease = self._gate.lease_traffic(wanted.session_id)
            if isinstance(lease, Refused):
                return _deny(wanted, lease.why, lease.remedy)
            lease.use(wanted.session_id)
            found = take()
            if isinstance(found, BudgetRefusal):
                return self._refuse(wanted, found.why, found.remedy)
            if not isinstance(found, Over):
                return found
            refusal = await self._ask(wanted, spending, found)
            if refusal is not None:
                return refusal
        return self._refuse(
            wanted, "the budget was raised, and used up by others, again and again", AT_LIMIT
        )

    async def _ask(self, wanted: Reserve | Draw, spending: Spending, over: Over) -> Answer | None:
        """Ask a person for more. Return the denial, or None where the limit is higher now."""
        why = explain(over)
        is_fixed = over.scope == "session" and spending.is_fixed(wanted.session_id)
        if is_fixed or not self._ask_at_limit:
            return self._refuse(wanted, why, AT_LIMIT)
        action = BudgetRaise(
            scope=over.scope,
            of=spending.key(over.scope, wanted.session_id),
            kind=over.kind,
            limit=over.limit,
            by=over.step,
        )
        answer = await self._gate.decide(
            action,
            session_id=wanted.session_id,
            reason=why if isinstance(wanted, Draw) else f"{_named(wanted, spending)}: {why}",
            origin="egress",
            hold_s=self._gate.rulings.hold_s(wanted.session_id, self._hold_s),
        )
        if isinstance(answer, Grant):
            answer.use(action)
            try:
                spending.raise_limit(wanted.session_id, over, action.by, action.of)
            except StorageError as error:
                self._gate.settle(answer, "failed", {"error": error.message})
                raise
            self._gate.settle(answer, "done", {})
            return None
        # If several waited for one answer, only one gets the grant; the limit is higher for all of
        # them.
        if spending.is_raised(wanted.session_id, over, action.of):
            return None
        return self._refuse(wanted, f"{why}; {answer.why}", AT_LIMIT, request_id=answer.request_id)

    def _refuse(
        self, wanted: Reserve | Draw, why: str, remedy: str, request_id: str | None = None
    ) -> Answer:
        facts = {"kind": wanted.kind} if isinstance(wanted, Draw) else _call_facts(wanted)
        # If requests are refused repeatedly for the same reason, only the first is recorded.
        if not (isinstance(wanted, Draw) and self._refused.get(wanted.session_id) == why):
            self._gate.audit.record("budget_refused", session=wanted.session_id, why=why, **facts)
        if isinstance(wanted, Draw):
            self._refused[wanted.session_id] = why
        elif self._spending is not None:
            self._spending.refusals[wanted.session_id] = why
        return _deny(wanted, why, remedy, request_id)


def _named(wanted: Reserve, spending: Spending) -> str:
    """Return a description of the call whose budget a person is asked to raise. The agent wrote its
    model's name."""
    model = visible(wanted.call.model[:MOST_MODEL_CHARS], one_line=True).replace("`", "'")
    named = (
        f"a call of `{model}` at {wanted.host}"
        if model
        else f"a call that names no model at {wanted.host}"
    )
    if model and wanted.call.steps > 1:
        named += (
            ", with tools that the provider runs itself, after each of which everything is read"
            " again"
        )
    return (
        named
        if spending.is_priced(wanted.call.model)
        else f"{named}, priced at the highest for want of a price"
    )


def _call_facts(wanted: Reserve) -> dict[str, str]:
    return {"host": wanted.host, "api": wanted.call.api, "model": wanted.call.model}


def _deny(wanted: Reserve | Draw, why: str, remedy: str, request_id: str | None = None) -> Answer:
    return Answer(
        question_id=wanted.question_id,
        decision="deny",
        why=why,
        remedy=remedy,
        request_id=request_id,
        over_budget=True,
    )
