"""Which connections are likely to be allowed, so that their clients are told of their tunnel while
the supervisor is still asked.

A client makes its first TLS message in the time that the verdict takes. What is likely is no
verdict: a name is looked up, an origin dialled and a byte passed on only after the supervisor's
answer for this very connection. Where that is no after all, or the origin can't be reached, the
client is told so in TLS, not in HTTP; so that it happens to one connection at most, everything
that may have changed the answer forgets what was likely. It is apart from `front` because it
decides only when a client is told, never what it may do.
"""

from supervisor.base.clock import Clock
from supervisor.core.actions import Network
from supervisor.core.network.egress_wire import Answer
from supervisor.egress.admission.sessions import EgressSession, Sessions

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
        """Whether a connection is likely to be allowed, reached and covered."""
        return (
            session.likely.get((action.host, action.port), 0.0) > self._clock.monotonic()
            and session.left["requests"] >= 1
            and session.left["bytes_out"] >= LEAST_BYTES_OUT
        )

    def reached(self, session: EgressSession, action: Network, answer: Answer) -> None:
        """A connection was allowed by this answer, and its origin reached."""
        if answer.lasts:
            if len(session.likely) >= MOST_KEPT:
                session.likely.clear()
            session.likely[action.host, action.port] = self._clock.monotonic() + LIKELY_S

    def failed(self, session: EgressSession, action: Network) -> None:
        """A connection wasn't allowed, or its origin not reached."""
        session.likely.pop((action.host, action.port), None)

    def forget(self) -> None:
        """The rules may have changed, for all."""
        for session in self._sessions.all():
            session.likely.clear()
