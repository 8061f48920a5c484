"""Turns an agent's approved proposal into a saved rule. No rule can answer a proposal: it is always
asked.
"""

from supervisor.core.actions import Proposal
from supervisor.core.approvals import Request
from supervisor.errors import GatehouseError, StorageError, UserError
from supervisor.gate import audit_lines
from supervisor.gate.gate import Gate, Refused


class ProposalBroker:
    """Saves the rule that the operator approved, as it was shown."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def carry_out(self, request: Request) -> None:
        """Save the rule and let it answer waiting requests."""
        grant = self._gate.claim(request.id, request.session_id)
        if isinstance(grant, Refused):
            return
        action = self._gate.queue.action_of(request)
        if not isinstance(action, Proposal):
            raise TypeError(f"the proposal broker was given {type(action).__name__}")
        by = f"{request.answered_by}, on a proposal of session {request.session_id}"
        try:
            grant.use(action)
            rule_id = self._save(action, request, by)
        except (GatehouseError, OSError) as error:
            self._gate.settle(grant, "failed", {"error": str(error)})
            return
        self._gate.settle(grant, "done", {"rule_id": rule_id})
        await self._gate.answers.rejudge(by=f"rule {rule_id}")

    def _save(self, action: Proposal, request: Request, by: str) -> str:
        """The new rule's id. Its why comes from the request, which holds it redacted."""
        shown = request.action if isinstance(request.action, Proposal) else action
        if shown.rule != action.rule:
            raise UserError("the rule holds a secret", "propose one without it")
        policies = self._gate.rulings.policies_of(request.session_id)
        rule_id = policies.add_rule(action.effect, action.rule, why=shown.why, by=by)
        try:
            saved_in = str(policies.saved_file)
            event, fields = audit_lines.rule_added(
                rule_id, action.effect, action.rule, by=by, saved_in=saved_in
            )
            self._gate.audit.record(event, **fields)
        except StorageError:
            policies.remove_rule(rule_id)  # a rule that isn't on record must not be in force
            raise
        return rule_id
