"""Hold request bodies that must be seen whole: model calls, signed requests.

It decides only how much this process holds, per body and per session. `guard` decides what is done
with a complete body, `layers` what happens to one that is too long. INVARIANT: a held body is
released once, however its request ends.
"""

from mitmproxy import http

from supervisor.egress.admission.egress_sessions import ClientConnection

# The providers of models refuse larger calls, too.
MOST_BODY_BYTES = 32 * 1024 * 1024
# All held bodies of a session together.
MOST_BODIES_BYTES = 96 * 1024 * 1024
TOO_LONG = (
    "a request whose body must be seen whole, such as a call of a model, is longer than"
    f" {MOST_BODY_BYTES >> 20} MB, or too many are sent at once"
)
_KEY = "gatehouse_held_body"


class HeldBody:
    """Counts how much of one body is held. `held` has the sums per session."""

    def __init__(self, session_id: str, held: dict[str, int]) -> None:
        self._session_id = session_id
        self._held = held
        self._bytes = 0
        self._is_over = False

    def may_hold(self, body_bytes: int) -> bool:
        """Return whether this much of the body may be held beside the session's other bodies. A
        released body may hold nothing, even if somebody still reads it."""
        if self._is_over:
            return False
        others = self._held.get(self._session_id, 0) - self._bytes
        if body_bytes > MOST_BODY_BYTES or others + body_bytes > MOST_BODIES_BYTES:
            return False
        self._held[self._session_id] = others + body_bytes
        self._bytes = body_bytes
        return True

    def let_go(self) -> None:
        """Release the body."""
        self._is_over = True
        left = self._held.pop(self._session_id, 0) - self._bytes
        self._bytes = 0
        if left > 0:
            self._held[self._session_id] = left


class HeldBodies:
    """One per process."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}

    def hold(self, flow: http.HTTPFlow, connection: ClientConnection) -> None:
        """Hold the request until its body is complete."""
        flow.request.stream = False
        if of(flow) is None:
            flow.metadata[_KEY] = HeldBody(connection.session.id, self._held)


def of(flow: http.HTTPFlow) -> HeldBody | None:
    """Return a flow's held body, or None where none is held."""
    found = flow.metadata.get(_KEY)
    return found if isinstance(found, HeldBody) else None


def let_go(flow: http.HTTPFlow) -> None:
    """Release a flow's body, if one is held."""
    found = of(flow)
    if found is not None:
        found.let_go()
