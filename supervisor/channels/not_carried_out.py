"""Package managers: asked, answered and recorded. This version doesn't carry them out, and says so
beforehand.

What has no channel is told to `handlers`, the one place that says so of a request: no Approve is
offered for it. What a rule allows is settled at once, without an effect. A channel that is
registered for one of the categories later takes its place here.
"""

from supervisor.core.actions import Category, category_of
from supervisor.core.approvals import Request
from supervisor.gate.gate import Gate, Refused

WHY: dict[Category, str] = {
    "packages": "this version of Gatehouse doesn't carry out installs",
}


class RecordedBroker:
    """Settles ready requests without an effect, truthfully."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def register(self) -> None:
        """Take the categories that nothing carries out."""
        for category, why in WHY.items():
            self._gate.handlers.on_ready(category, "agent_api", self.carry_out)
            self._gate.handlers.cannot(category, "agent_api", why)

    async def carry_out(self, request: Request) -> None:
        """Spend the grant on nothing, and say so in the outcome."""
        grant = self._gate.claim(request.id, request.session_id)
        if isinstance(grant, Refused):
            return
        note = (
            f"allowed and recorded, but {WHY[category_of(request.action)]}, so nothing was changed"
        )
        self._gate.settle(grant, "failed", {"carried_out": False, "error": note})
