"""Requests left to answer after a session's end: changes, pushes, installs, proposals.

They stay answerable for a time; the session's copy and its policy are kept for them, without agent,
network or watchers. Level, not edge: what is left follows from the requests in the database, so
that a restart finds the same.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from supervisor.core.actions import FileChange, Git, Packages, Proposal
from supervisor.core.approvals import Request
from supervisor.core.text.duration import format_duration
from supervisor.gate.gate import Gate
from supervisor.records.approval_queue import ApprovalQueue

_WORDS = {FileChange: "change", Git: "push", Packages: "install", Proposal: "proposal"}
_PLURALS = {"push": "pushes"}


class LeftOfSession(NamedTuple):
    """The requests left of an ended session, kept until `until` (seconds since the epoch)."""

    session_id: str
    requests: tuple[Request, ...]
    until: float

    @property
    def counts(self) -> str:
        """Return the number of each kind, in words."""
        found: dict[str, int] = {}
        for request in self.requests:
            word = _WORDS.get(type(request.action), "request")
            found[word] = found.get(word, 0) + 1
        return ", ".join(
            f"{count} {word if count == 1 else _PLURALS.get(word, f'{word}s')}"
            for word, count in found.items()
        )


class LeftToAnswer:
    """The ended sessions whose parts are kept. `now` gives seconds since the epoch; they are kept
    for `keep_s` seconds.
    """

    def __init__(
        self, gate: Gate, queue: ApprovalQueue, now: Callable[[], float], keep_s: float
    ) -> None:
        self._gate = gate
        self._queue = queue
        self._now = now
        self._keep_s = keep_s
        self._until: dict[str, float] = {}

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._until

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._until))

    def add(self, session_id: str, ended_at: float | None = None) -> None:
        """Keep a session that has ended, now or some time ago."""
        self._until[session_id] = (self._now() if ended_at is None else ended_at) + self._keep_s

    def remove(self, session_id: str) -> None:
        """Forget a session: nothing is left to answer."""
        self._until.pop(session_id, None)

    def requests(self, session_id: str) -> tuple[Request, ...]:
        """Return the requests that wait for an answer or to be carried out."""
        begun = [one for one in self._queue.unsettled() if one.session_id == session_id]
        found = [*self._queue.pending(session_id), *self._queue.ready(session_id), *begun]
        newest_first = sorted(found, key=lambda one: one.asked_at, reverse=True)
        return tuple(filter(can_wait, newest_first))

    def all(self) -> list[LeftOfSession]:
        """Return the rest of every session, the longest kept first."""
        found = [
            LeftOfSession(session_id, requests, until)
            for session_id, until in self._until.items()
            if (requests := self.requests(session_id))
        ]
        return sorted(found, key=lambda one: one.until, reverse=True)

    def close_over(self) -> None:
        """Close the requests that nobody answered in time."""
        for session_id, until in self._until.items():
            if until <= self._now():
                why = f"nobody answered within {format_duration(self._keep_s)} of the session's end"
                self._gate.answers.close_session(session_id, why)


def can_wait(request: Request) -> bool:
    """Return whether a request can be carried out without its agent: a command or a connection
    can't."""
    action = request.action
    return (
        isinstance(action, FileChange | Proposal)
        or (isinstance(action, Git) and action.operation == "push")
        or (isinstance(action, Packages) and bool(action.index))
    )
