"""Refusals of paths that are never carried over, each on record once for each state.

They are no cards: nobody could approve them.
"""

from typing import NamedTuple

from supervisor.core.actions import FileChange
from supervisor.core.files.changes import Signature
from supervisor.gate.audit_lines import record_refusal
from supervisor.gate.gate import Gate
from supervisor.workspace.disk.beneath import Root
from supervisor.workspace.disk.scan import signature_at


class RefusedPath(NamedTuple):
    """A path that is never carried over in the state that it is in: its signature then, and why."""

    signature: Signature | None
    why: str


class Refusals:
    """Refused paths of one session's copy. `compared` is what the comparison has looked at."""

    def __init__(
        self, copy: Root, gate: Gate, session_id: str, compared: dict[str, Signature]
    ) -> None:
        self._copy = copy
        self._gate = gate
        self._session_id = session_id
        self._compared = compared
        self._refused: dict[str, RefusedPath] = {}

    def refuse(self, name: str, action: FileChange, why: str) -> None:
        """Record that a path is never carried over as it is now."""
        now = signature_at(self._copy, name)
        before = self._refused.get(name)
        if before == RefusedPath(now, why):
            return
        self._refused[name] = RefusedPath(now, why)
        if now is not None:
            self._compared[name] = now
        record_refusal(self._gate.audit, action, self._session_id, why)

    def forget(self, name: str) -> None:
        """Record it anew, should the path be refused again."""
        self._refused.pop(name, None)

    def clear(self) -> None:
        """Forget all of them: the rules are others now."""
        self._refused.clear()

    def reasons(self) -> dict[str, str]:
        """Return the refused paths, with reasons."""
        return {name: refusal.why for name, refusal in self._refused.items()}
