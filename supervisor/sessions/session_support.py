"""Protocol of the parts around a session: gate, egress, the agent's door, the workspace.

`app` builds them, `session_manager` calls them.
"""

import socket
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from supervisor.core.jobs import JobResult
from supervisor.core.sessions import Session
from supervisor.sandbox.base import Spec
from supervisor.sessions.start_session import StartSession


class SessionSupport(Protocol):
    """Parts that `app` puts around sessions. Every method may be called again for a session that a
    crash left."""

    async def plan(self, wanted: StartSession) -> dict[str, Any]:
        """Further facts of the session (`command`, `policy_text`, `model`, `notices`);
        `UserError` for bad input."""

    def spec(self, session: Session, token: str, *, tty: bool) -> Spec:
        """Return the sandbox of the agent."""

    def open(self, session: Session, wanted: StartSession | None = None) -> None:
        """The session's actions may be judged from now on. `wanted`: it is to be started."""

    def policy_on_record(self, session: Session) -> dict[str, Any]:
        """Return path and hash of the policy that judges it, for the record."""

    async def copy_workspace(
        self, session: Session, wanted: StartSession, on_progress: Callable[[int, int, int], None]
    ) -> tuple[str, ...]:
        """Make the private copy; return notes for the person."""

    async def attach(self, session: Session, listeners: Mapping[int, socket.socket]) -> None:
        """Serve the agent's door, lend the proxy's socket to egress, watch the copy: all before
        the agent's first instant."""

    async def final_pass(self, session: Session, why: str) -> None:
        """Compare the whole copy with the host once more."""

    def waits_for_person(self, session_id: str) -> bool:
        """Return whether changes of a session whose agent is done still wait for an answer, or for
        being applied."""

    async def until_something_is_answered(self, session_id: str) -> None:
        """Return when one of its requests changed."""

    async def finish_job(self, session: Session) -> JobResult | None:
        """Return what came of a maintenance session's work; None for every other."""

    def close_requests(self, session_id: str, why: str) -> None:
        """Deny what can't wait for an answer without the agent."""

    async def detach(self, session: Session) -> None:
        """Undo `attach` and `open`, as far as nothing is left to answer."""
