"""Tell clients of their tunnel early, where a connection is likely to be allowed.

A client makes its first TLS message while the supervisor is still asked; that saves a tenth of a
new connection. Likely is no verdict: a name is looked up, an origin dialled and a byte passed on
only after the supervisor's answer for this very connection. Where that is no, or the origin can't
be reached, the client is told so in TLS instead of HTTP. This happens to one connection at most:
everything that may change the answer clears what was likely. It decides only when a client is told,
never what it may do.
"""

from supervisor.base.clock import Clock
from supervisor.core.actions import Network
from supervisor.core.network.egress_wire import Answer
from supervisor.egress.admission.egress_sessions import EgressSession, Sessions

# How long a connection that was allowed says something of the next.
LIKELY_S = 60.0
# What covers a first TLS message: who has less left is told in HTTP that it is used up.
LEAST_BYTES_OUT = 16 * 1024
MOST_KEPT = 1024


class Likely:
    """One per process; what it knows is in the sessions, and ends with them."""

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
        """Note that a connection was allowed by this answer, and its origin reached."""
        if answer.lasts:
            if len(session.likely) >= MOST_KEPT:
                session.likely.clear()
            session.likely[action.host, action.port] = self._clock.monotonic() + LIKELY_S

    def failed(self, session: EgressSession, action: Network) -> None:
        """Note that a connection wasn't allowed, or its origin not reached."""
        session.likely.pop((action.host, action.port), None)

    def forget(self) -> None:
        """Forget everything: the rules may have changed."""
        for session in self._sessions.all():
            session.likely.clear()
