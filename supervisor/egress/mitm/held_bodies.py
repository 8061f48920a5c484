"""Hold request bodies that must be seen whole: model calls, signed requests.

It decides only how much this process holds: of one body, and of all bodies of a session. `guard`
decides what is done with a whole body, `layers` what happens to one that is too long. INVARIANT: a
held body is released once, whichever way its request ends.
"""

from mitmproxy import http

from supervisor.egress.admission.egress_sessions import ClientConnection

# Above this the providers of models refuse a call, too.
MOST_BODY_BYTES = 32 * 1024 * 1024
# All bodies of a session that are held at once.
MOST_BODIES_BYTES = 96 * 1024 * 1024
TOO_LONG = (
    "a request whose body must be seen whole, such as a call of a model, is longer than"
    f" {MOST_BODY_BYTES >> 20} MB, or too many are sent at once"
)
_KEY = "gatehouse_held_body"


class HeldBody:
    """How much of one body is held. `held` is how much of all is, by session."""

    def __init__(self, session_id: str, held: dict[str, int]) -> None:
        self._session_id = session_id
        self._held = held
        self._bytes = 0
        self._is_over = False

    def may_hold(self, body_bytes: int) -> bool:
        """Return whether so much of the body may be held, beside the session's other bodies.
        Nothing of one that was let go of, by whoever still reads it."""
        if self._is_over:
            return False
        others = self._held.get(self._session_id, 0) - self._bytes
        if body_bytes > MOST_BODY_BYTES or others + body_bytes > MOST_BODIES_BYTES:
            return False
        self._held[self._session_id] = others + body_bytes
        self._bytes = body_bytes
        return True

    def let_go(self) -> None:
        """The body is held no longer."""
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
        """The request waits until its body is whole."""
        flow.request.stream = False
        if of(flow) is None:
            flow.metadata[_KEY] = HeldBody(connection.session.id, self._held)


def of(flow: http.HTTPFlow) -> HeldBody | None:
    """Return what is held of a flow's body; None where it isn't."""
    found = flow.metadata.get(_KEY)
    return found if isinstance(found, HeldBody) else None


def let_go(flow: http.HTTPFlow) -> None:
    """A flow's body is held no longer, if it was."""
    found = of(flow)
    if found is not None:
        found.let_go()
