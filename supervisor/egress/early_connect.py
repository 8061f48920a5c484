"""Tell clients early that their tunnel is open, where an allow is likely.

A client makes its first TLS message while the supervisor is still asked; that saves a tenth of a
new connection. Likely is no verdict: a name is looked up, an origin dialled and a byte passed on
only after the supervisor's answer for this very connection. On a denial or an unreachable origin,
the client is told in TLS instead of HTTP. That happens to one connection at most, because
everything that may change the answer clears the likely entries. It decides only when a client is
told, never what it may do.
"""

from supervisor.base.clock import Clock
from supervisor.core.actions import Network
from supervisor.core.network.egress_wire import Answer
from supervisor.egress.admission.egress_sessions import EgressSession, Sessions

# How long an allowed connection makes the next one likely.
LIKELY_S = 60.0
# Covers a first TLS message. A session with less left reads over HTTP that its budget is used up.
LEAST_BYTES_OUT = 16 * 1024
MOST_KEPT = 1024


class Likely:
    """One per process. Its entries are in the sessions, and end with them."""

    def __init__(self, sessions: Sessions, clock: Clock) -> None:
        self._sessions = sessions
        self._clock = clock

    def is_allowed(self, session: EgressSession, action: Network) -> bool:
        """Return whether a connection is likely to be allowed, reached and covered."""
        return (
            session.likely.get((action.host, action.port), 0.0) > self._clock.monotonic()
            and session.left["requests"] >= 1
            and session.left["bytes_out"] >= LEAST_BYTES_OUT
        )

    def reached(self, session: EgressSession, action: Network, answer: Answer) -> None:
        """Note that this answer allowed a connection and its origin was reached."""
        if answer.lasts:
            if len(session.likely) >= MOST_KEPT:
                session.likely.clear()
            session.likely[action.host, action.port] = self._clock.monotonic() + LIKELY_S

    def failed(self, session: EgressSession, action: Network) -> None:
        """Note that a connection wasn't allowed, or its origin wasn't reached."""
        session.likely.pop((action.host, action.port), None)

    def forget(self) -> None:
        """Forget everything: the rules may have changed."""
        for session in self._sessions.all():
            session.likely.clear()
