"""What must not pass in what is looked into, behind its head: placeholders to a host that none of them is for, and real credentials on their way back.

    a body, long or short, coded or not    up: looked through before it is sent where it is short, else on its way
    trailers, messages of a WebSocket      up and down
    an answer, its head and its body       down: an origin that gives back what it was sent would show the agent what it must never see

It decides only what is found; where something was already sent the connection is cut off. It is separate from `guard` because it asks nobody. A credential in
an answer ends the answer before any piece with a part of it that tells: what a stranger's coding hides is refused, what an origin cuts in pieces and
sends on different requests, or in different messages, isn't found. Nor is a placeholder in a coding that isn't known; it opens nothing.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus

from mitmproxy import http
from mitmproxy.websocket import WebSocketMessage

from supervisor.core.actions import Network
from supervisor.core.secret_forms import SecretForms
from supervisor.egress import secrets
from supervisor.egress.admission import Admission
from supervisor.egress.codings import readable_only
from supervisor.egress.secrets import BodyScan, Swap
from supervisor.egress.sessions import Connection

# A body up to this is looked through before any of it is sent.
WHOLE_BYTES = 64 * 1024
_KEY = "gatehouse_leaks"

# mitmproxy's word for whether, and through what, a body streams.
type Stream = Callable[[bytes], Iterable[bytes] | bytes] | bool


@dataclass(eq=False)
class _Watch:
    """One request and its answer. `back` is what of real credentials must not come back with it."""

    connection: Connection
    action: Network
    placeholders: SecretForms
    back: SecretForms
    up: BodyScan
    down: BodyScan


class Leaks:
    """One per process."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    def begin(
        self, flow: http.HTTPFlow, connection: Connection, action: Network, swaps: list[Swap], *, is_for_model: bool
    ) -> BodyScan | None:
        """A request was let through: look at what follows. What its whole body has to pass before any of it is sent, where that is short."""
        headers = flow.request.headers
        # An agent tells its model what it sees, its own environment too; a placeholder opens nothing.
        session = connection.session
        foreign = secrets.foreign(session.credentials, action.host, action.port)
        placeholders = session.forms_of(frozenset() if is_for_model else foreign)
        back = session.forms_of(secrets.back(session.credentials, swaps, action.host, action.port))
        if back:
            headers["accept-encoding"] = readable_only(headers.get("accept-encoding", ""))
        if not (placeholders or back):
            return None
        up = BodyScan(placeholders, headers.get("content-encoding", ""))
        flow.metadata[_KEY] = _Watch(connection, action, placeholders, back, up, BodyScan(back))
        if not placeholders:
            return None
        length = headers.get("content-length", "")
        if length.isdigit() and int(length) <= WHOLE_BYTES:
            return up

        def look(piece: bytes) -> list[bytes]:
            if not connection.cut_for and up.finds(piece):
                self._cut(connection, action, secrets.FOUND_IN_BODY)
            # An empty piece would be a chunk of no length, which ends a body: the origin would take it for whole.
            return [] if connection.cut_for or not piece else [piece]

        if length or headers.get("transfer-encoding") or flow.request.is_http2:
            flow.request.stream = look
        return None

    def requested(self, flow: http.HTTPFlow) -> str | None:
        """The request is whole: why it may not be sent. Of one that streams only its trailers are left, and it is cut off instead."""
        watch = flow.metadata.get(_KEY)
        if not isinstance(watch, _Watch) or not secrets.hold(_fields(flow.request.trailers), watch.placeholders):
            return None
        flow.request.trailers = None
        if not flow.request.stream:
            return secrets.FOUND_IN_BODY
        self._cut(watch.connection, watch.action, secrets.FOUND_IN_BODY)
        return None

    def answered(self, flow: http.HTTPFlow) -> str | None:
        """The head of the answer: why it may not be passed on. Its body is looked through on its way."""
        watch, response = flow.metadata.get(_KEY), flow.response
        if not isinstance(watch, _Watch) or not watch.back or response is None:
            return None
        if secrets.hold((*response.headers.fields, (b"", response.data.reason)), watch.back):
            self._admission.refused(watch.connection, watch.action, secrets.ECHOED)
            return secrets.ECHOED
        down = BodyScan(watch.back, response.headers.get("content-encoding", ""))
        if not down.can_read:
            self._admission.refused(watch.connection, watch.action, secrets.UNREADABLE)
            return secrets.UNREADABLE
        if response.status_code == 101:
            return None
        response.stream = self._looking(watch, down, response.stream, response.status_code)
        return None

    def _looking(self, watch: _Watch, down: BodyScan, others: Stream, status: int) -> Callable[[bytes], list[bytes]]:
        """What looks at an answer's pieces before `others` do.

        INVARIANT: a piece that ends in the beginning of a credential waits for the next one: or an agent that chooses what comes before
        it (an echo of what it sent) would have it up to its last byte, and could guess that.
        """
        is_part = status == HTTPStatus.PARTIAL_CONTENT  # nothing of it can be decoded by itself
        waits: list[bytes] = []

        def look(piece: bytes) -> list[bytes]:
            if not watch.connection.cut_for and down.finds(piece):
                self._cut(watch.connection, watch.action, secrets.ECHOED)
            elif not (watch.connection.cut_for or down.can_read or is_part):
                self._cut(watch.connection, watch.action, secrets.UNREADABLE)
            if watch.connection.cut_for:
                return []
            waits.append(piece)
            if piece and down.is_begun:
                return []
            # An empty one would be a chunk of no length, which ends a body.
            passed = [one for part in waits for one in _by(others, part) if one]
            waits.clear()
            return passed

        return look

    def ended(self, flow: http.HTTPFlow) -> None:
        """The answer is whole but for its trailers."""
        watch, response = flow.metadata.get(_KEY), flow.response
        if isinstance(watch, _Watch) and response is not None and secrets.hold(_fields(response.trailers), watch.back):
            response.trailers = None
            self._cut(watch.connection, watch.action, secrets.ECHOED)

    def said(self, flow: http.HTTPFlow, message: WebSocketMessage) -> None:
        """A message of a WebSocket, either way."""
        watch = flow.metadata.get(_KEY)
        if not isinstance(watch, _Watch):
            return
        scan = watch.up if message.from_client else watch.down
        if watch.connection.cut_for or scan.finds(message.content):
            message.drop()  # type: ignore[no-untyped-call]
            self._cut(watch.connection, watch.action, secrets.FOUND_IN_BODY if message.from_client else secrets.ECHOED)

    def _cut(self, connection: Connection, action: Network, why: str) -> None:
        if not connection.cut_for:
            self._admission.refused(connection, action, why)
            connection.cut_for = why
        connection.cut()


def _by(stream: Stream, piece: bytes) -> Iterable[bytes]:
    """What a stream function makes of a piece."""
    found = stream(piece) if callable(stream) else piece
    return [found] if isinstance(found, bytes) else found


def _fields(headers: http.Headers | None) -> Iterable[tuple[bytes, bytes]]:
    return headers.fields if headers is not None else ()
