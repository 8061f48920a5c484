"""Keep the beginnings of bodies for a person to see, where that was asked for.

It decides only how much of a body is kept, and removes what must never be seen: the secrets that
egress put into the request, and their placeholders. It neither delays nor changes a body. A failure
here loses a body, not a request.
"""

from collections.abc import Callable, Iterable
from typing import Literal

from mitmproxy import http

from supervisor.base import log
from supervisor.core.network.egress_wire import Body
from supervisor.core.secrets.token_shapes import MARK
from supervisor.egress.admission.egress_sessions import EgressSession
from supervisor.egress.admission.questions import Questions
from supervisor.egress.loop.failures import where
from supervisor.egress.protocols.codings import beginning, readable_only

# This much of each body is shown. A little more is read, so that a secret across the end is
# recognised.
MOST_BYTES = 64 * 1024
MARGIN_BYTES = 4 * 1024
KEPT = "gatehouse_bodies"


class _Taken:
    """The beginning of one body in transit."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.whole_bytes = 0

    def take(self, piece: bytes) -> None:
        self.whole_bytes += len(piece)
        self.data += piece[: max(0, MOST_BYTES + MARGIN_BYTES - len(self.data))]

    def tap(self, stream: object) -> Callable[[bytes], Iterable[bytes] | bytes]:
        """Return a stream function that records each piece and does what `stream` did."""

        def look(piece: bytes) -> Iterable[bytes] | bytes:
            self.take(piece)
            passed: Iterable[bytes] | bytes = stream(piece) if callable(stream) else piece
            return passed

        return look


class _Both:
    """The bodies of one request and its response."""

    def __init__(self, question_id: int, session: EgressSession) -> None:
        self.question_id = question_id
        self.session = session
        self.request, self.response = _Taken(), _Taken()


class BodyCapture:
    """One per process."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions

    def want_readable(self, flow: http.HTTPFlow) -> None:
        """Restrict the request's Accept-Encoding to codings that can be shown. Call it before the
        head is signed."""
        if "accept-encoding" in flow.request.headers:
            flow.request.headers["accept-encoding"] = readable_only(
                flow.request.headers["accept-encoding"]
            )

    def begin(
        self, flow: http.HTTPFlow, session: EgressSession, question_id: int, *, held: bool
    ) -> None:
        """Start to keep the bodies of an allowed request. `held`: its body is held until it is
        complete."""
        both = flow.metadata[KEPT] = _Both(question_id, session)
        length = flow.request.headers.get("content-length")
        if flow.request.stream or not (held or length is not None):
            # Streaming of a body of unknown length may begin half-way, so it streams from the start
            # to be seen completely.
            has_body = (
                length is not None
                or "transfer-encoding" in flow.request.headers
                or flow.request.is_http2
            )
            flow.request.stream = (
                both.request.tap(flow.request.stream) if has_body else flow.request.stream
            )

    def requested(self, flow: http.HTTPFlow) -> None:
        """Record the body of a held request, which is complete now."""
        both = flow.metadata.get(KEPT)
        if isinstance(both, _Both) and not flow.request.stream:
            both.request.take(flow.request.raw_content or b"")

    def answered(self, flow: http.HTTPFlow) -> None:
        """Record the response's body while it streams."""
        both = flow.metadata.get(KEPT)
        if isinstance(both, _Both) and flow.response is not None and flow.response.stream:
            flow.response.stream = both.response.tap(flow.response.stream)

    def end(self, flow: http.HTTPFlow) -> None:
        """Report the kept bodies, since the exchange is over."""
        both = flow.metadata.pop(KEPT, None)
        if (
            not isinstance(both, _Both) or not both.session.keep_bodies
        ):  # it may have been switched off meanwhile
            return
        try:
            if flow.response is not None and not flow.response.stream:
                both.response.take(flow.response.raw_content or b"")
            self._send(both, "request", flow.request.headers, both.request)
            if flow.response is not None:
                self._send(both, "response", flow.response.headers, both.response)
        except Exception as error:
            log.error("bodies not kept", error=where(error))

    def _send(
        self, both: _Both, of: Literal["request", "response"], headers: http.Headers, taken: _Taken
    ) -> None:
        if not taken.whole_bytes:
            return
        said = beginning(
            bytes(taken.data), headers.get("content-encoding", ""), MOST_BYTES + MARGIN_BYTES
        )
        data = both.session.hides.without(said, MARK.encode())
        self._questions.tell(
            Body(
                question_id=both.question_id,
                of=of,
                media_type=headers.get("content-type", "")[:200],
                data=data[: MOST_BYTES + MARGIN_BYTES],
                whole_bytes=taken.whole_bytes,
            )
        )
