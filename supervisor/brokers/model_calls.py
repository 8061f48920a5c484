"""How egress is answered that wants to let a model call out: reserved, or held until a person adds to the budget, or denied.

It is separate from `egress_questions`: the request itself was allowed by the rules before this is asked; here it is only about what it may
cost. Whatever fails in here is a denial (law 3).
"""

import structlog

from supervisor.core.actions import BudgetRaise
from supervisor.core.budget import Over, explain
from supervisor.core.egress_wire import Answer, Reserve, Spent
from supervisor.errors import StorageError
from supervisor.gate import Gate, Grant
from supervisor.spending import Spending

log = structlog.get_logger("spending")

AT_LIMIT = "stop here, or ask the operator to add to the budget"
# A call that needs more raises than this is denied: somebody answers, but something else spends.
MOST_RAISES = 20


class ModelCalls:
    """The model calls of one egress process, from its start to its end. Without `spending` every one is denied."""

    def __init__(self, gate: Gate, spending: Spending | None, hold_s: float, *, ask_at_limit: bool) -> None:
        self._gate = gate
        self._spending = spending
        self._hold_s = hold_s
        self._ask_at_limit = ask_at_limit
        self._reservations: dict[int, str] = {}

    async def answer(self, wanted: Reserve) -> Answer:
        """Whether the call may go out. Never raises but when it is cancelled."""
        if self._spending is None:
            return _deny(wanted, "model calls are not metered here", "see the supervisor's log")
        try:
            return await self._reserve(wanted, self._spending)
        except StorageError as error:
            return _deny(wanted, error.message, error.remedy)
        except Exception as error:
            log.exception("reserving failed", error=type(error).__name__)
            return _deny(wanted, "the ledger failed while it looked at this", "see the supervisor's log")

    def spent(self, spent: Spent) -> None:
        """Settle a call that went out."""
        reservation = self._reservations.pop(spent.question_id, None)
        if reservation is None or self._spending is None:
            return
        try:
            self._spending.settle(reservation, spent.usage)
        except StorageError as error:  # it stays at what was reserved, and is settled so at the next start
            log.error("not settled", error=str(error), reservation=reservation)

    def lose_all(self) -> None:
        """Egress is gone: what its calls used isn't known."""
        for question_id in list(self._reservations):
            self.spent(Spent(question_id=question_id, usage=None))

    async def _reserve(self, wanted: Reserve, spending: Spending) -> Answer:
        for _ in range(MOST_RAISES):
            found = spending.reserve(wanted.session_id, wanted.host, wanted.call)
            if isinstance(found, str):
                self._reservations[wanted.question_id] = found
                return Answer(question_id=wanted.question_id, decision="allow", settle=True)
            if not isinstance(found, Over):
                return self._refuse(wanted, found.why, found.remedy)
            refusal = await self._ask(wanted, spending, found)
            if refusal is not None:
                return refusal
        return self._refuse(wanted, "the budget was raised, and used up by others, again and again", AT_LIMIT)

    async def _ask(self, wanted: Reserve, spending: Spending, over: Over) -> Answer | None:
        """A denial, or None where the limit is higher now."""
        why = explain(over)
        if not self._ask_at_limit:
            return self._refuse(wanted, why, AT_LIMIT)
        action = BudgetRaise(
            scope=over.scope,
            of=spending.key(over.scope, wanted.session_id),
            kind=over.kind,
            limit=over.limit,
            by=over.step,
        )
        answer = await self._gate.decide(
            action, session_id=wanted.session_id, reason=why, origin="egress", hold_s=self._hold_s
        )
        if isinstance(answer, Grant):
            answer.use(action)
            try:
                spending.raise_limit(wanted.session_id, over, action.by)
            except StorageError as error:
                self._gate.settle(answer, "failed", {"error": error.message})
                raise
            self._gate.settle(answer, "done", {})
            return None
        # Of several that waited for one answer only one gets the grant; the limit is higher for all of them.
        if spending.is_raised(wanted.session_id, over):
            return None
        return self._refuse(wanted, f"{why}; {answer.why}", AT_LIMIT, request_id=answer.request_id)

    def _refuse(self, wanted: Reserve, why: str, remedy: str, request_id: str | None = None) -> Answer:
        facts = {"host": wanted.host, "api": wanted.call.api, "model": wanted.call.model, "why": why}
        self._gate.audit.record("budget_refused", session=wanted.session_id, **facts)
        return _deny(wanted, why, remedy, request_id)


def _deny(wanted: Reserve, why: str, remedy: str, request_id: str | None = None) -> Answer:
    return Answer(question_id=wanted.question_id, decision="deny", why=why, remedy=remedy, request_id=request_id)
