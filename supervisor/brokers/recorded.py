"""Package and git requests: asked, answered and recorded. This version doesn't carry them out, and says so to the agent."""

from supervisor.core.actions import category_of
from supervisor.core.approvals import Request
from supervisor.gate import Gate, Refused

NOTE = "approved and recorded; this version of Gatehouse does not carry out {category} requests, so nothing was changed"


class RecordedBroker:
    """Settles ready requests without an effect, truthfully."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def carry_out(self, request: Request) -> None:
        """Spend the grant on nothing, and say so in the outcome."""
        grant = self._gate.claim(request.id, request.session_id)
        if isinstance(grant, Refused):
            return
        note = NOTE.format(category=category_of(request.action))
        self._gate.settle(grant, "failed", {"carried_out": False, "error": note})
