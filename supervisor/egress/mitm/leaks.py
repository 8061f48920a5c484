"""Keep secrets in bodies from passing: placeholders up, real credentials down.

    a body, long or short, coded or not    up: a short one before any of it is sent, a long one in
                                           transit
    trailers, WebSocket messages,          up and down
    pings, pongs and closes
    an answer's head and body              down: an origin that echoes its request would show the
                                           agent a real credential. A short answer is inspected
                                           before any of it is passed on, so that the client reads
                                           why it is refused; a long one in transit

It decides only what is found; where something was already sent, the connection is cut. Unreadable
bodies are refused, up and down. A credential in an answer ends the answer before any piece with a
revealing part of it. Not found: a credential that an origin splits over the answers to different
requests, or over different messages.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mitmproxy import http
from mitmproxy.websocket import WebSocketMessage

from supervisor.core.actions import Network
from supervisor.core.secrets.secret_forms import SecretForms, in_any_case, with_halves
from supervisor.core.text.numbers import whole_number
from supervisor.egress.admission import secrets
from supervisor.egress.admission.admission import Admission
from supervisor.egress.admission.egress_sessions import PIECE_BYTES, ClientConnection, Wait
from supervisor.egress.admission.secrets import BodyScan, HeaderSwap
from supervisor.egress.mitm import exchange
from supervisor.egress.mitm.body_inspection import Inspection, look_at
from supervisor.egress.protocols.codings import Decoder

# A body up to this length is inspected before any of it is sent.
WHOLE_BYTES = 64 * 1024
# Most of an answer that is held back while each of its pieces ends in the beginning of a
# credential, which by chance one in millions does. A piece may be a single byte.
MOST_KEPT_BACK_BYTES = 256 * 1024
_KEY = "gatehouse_leaks"
_SWITCHED = 101
_WITHOUT_BODY = (204, 304)
# RFC 9110 14.6, and the older form that servers send to old clients (Apache's `use_range_x`), which
# ask with the second header.
_IN_RANGES = ("multipart/byteranges", "multipart/x-byteranges")
_OF_PARTS = ("range", "request-range", "if-range")

# mitmproxy's value for whether, and through which function, a body streams.
type Stream = Callable[[bytes], Iterable[bytes] | bytes] | bool


@dataclass(eq=False)
class _Watch:
    """One request and its answer. `back` holds the real credentials that must not come back."""

    connection: ClientConnection
    action: Network
    placeholders: SecretForms
    back: SecretForms
    up: BodyScan
    down: BodyScan


class _Waiting:
    """Held-back pieces that wait for the next one, up to a limit."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._bytes = 0

    def takes(self, piece: bytes) -> bool:
        """Take one more piece if there is room. Return whether there was."""
        if self._bytes > MOST_KEPT_BACK_BYTES:
            return False
        self._pieces.append(piece)
        self._bytes += len(piece) + PIECE_BYTES
        return True

    def all(self) -> list[bytes]:
        """Return all pieces, and hold them back no longer."""
        found, self._pieces, self._bytes = self._pieces, [], 0
        return found


class Leaks:
    """One per process."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    def begin(
        self,
        flow: http.HTTPFlow,
        connection: ClientConnection,
        action: Network,
        swaps: list[HeaderSwap],
        *,
        is_for_model: bool,
    ) -> str | None:
        """Set up the inspection of an allowed request and its answer. Return why it may not be sent
        after all: its body can't be inspected."""
        headers, session = flow.request.headers, connection.session
        # An agent tells its model what it sees, including its own environment; a placeholder opens
        # nothing.
        foreign = secrets.foreign(session.credentials, action.host, action.port)
        placeholders = session.forms_of(frozenset() if is_for_model else foreign)
        real = secrets.back(session.credentials, swaps, action.host, action.port)
        back = session.forms_of(with_halves(in_any_case(real)))
        if not (placeholders or back):
            return None
        if back:
            self._ask_for_all(flow, connection, action)
            # INVARIANT: compression is off. An agent whose text is compressed together with the
            # credential could infer the credential from the length.
            headers["accept-encoding"] = "identity"
            if session.beginnings.are_guesses or session.beginnings.are_echoes:
                return secrets.GUESSED if session.beginnings.are_guesses else secrets.ECHOED_OFTEN
        watch = flow.metadata[_KEY] = _Watch(
            connection, action, placeholders, back, BodyScan(placeholders), BodyScan(back)
        )
        return self._watch_body(flow, watch) if placeholders else None

    def _ask_for_all(
        self, flow: http.HTTPFlow, connection: ClientConnection, action: Network
    ) -> None:
        """INVARIANT: an agent doesn't choose where an answer begins and ends: part of a credential
        from its second letter on isn't found.

        Every client must accept the whole where it asked for a part (RFC 9110 14.2).
        """
        headers = flow.request.headers
        authorization = headers.get("authorization", "")
        if not secrets.is_for_s3(
            connection.session.credentials, authorization, action.host, action.port
        ):
            for name in _OF_PARTS:
                headers.pop(name, None)

    def _watch_body(self, flow: http.HTTPFlow, watch: _Watch) -> str | None:
        headers = flow.request.headers
        length = whole_number(headers.get("content-length", ""))
        if not (length or headers.get("transfer-encoding") or flow.request.is_http2):
            return None
        state = exchange.of(flow)
        look = look_at(state.up, headers, watch.connection.session)
        if look.why:
            return look.why
        look.add(watch.up.see, raw=watch.up.see_raw)
        if length is not None and length <= WHOLE_BYTES:
            state.must_be_whole = True
            return None

        def passed(piece: bytes) -> list[bytes]:
            why = secrets.FOUND_IN_BODY if watch.up.found else look.why
            if why:
                self._cut(flow, watch, why)
            # An empty piece would be a chunk of length 0, which ends a body: the origin would take
            # it for complete.
            return [] if watch.connection.cut_for or not piece else [piece]

        flow.request.stream = passed
        return None

    def looks_at_request(self, flow: http.HTTPFlow) -> bool:
        """Return whether a complete request that didn't stream is to be inspected now
        (`look_at_request`)."""
        watch = flow.metadata.get(_KEY)
        return (
            isinstance(watch, _Watch)
            and exchange.of(flow).up.look is not None
            and not flow.request.stream
        )

    async def look_at_request(self, flow: http.HTTPFlow) -> None:
        """Inspect the whole request."""
        look = exchange.of(flow).up.look
        assert look is not None
        await look.in_steps(flow.request.raw_content or b"")

    def requested(self, flow: http.HTTPFlow) -> str | None:
        """Return why an inspected whole request may not be sent. One that streamed is cut off
        instead; only its trailers are left."""
        watch = flow.metadata.get(_KEY)
        if not isinstance(watch, _Watch):
            return None
        look = exchange.of(flow).up.look
        if look is not None:
            if not flow.request.stream and (watch.up.found or look.why):
                return secrets.FOUND_IN_BODY if watch.up.found else look.why
            look.end()
        if not secrets.hold(_fields(flow.request.trailers), watch.placeholders):
            return None
        flow.request.trailers = None
        if not flow.request.stream:
            return secrets.FOUND_IN_BODY
        self._cut(flow, watch, secrets.FOUND_IN_BODY)
        return None

    def answered(self, flow: http.HTTPFlow) -> str | None:
        """Return why the answer may not be passed on, judged by its head. Its body is inspected in
        transit."""
        watch, response = flow.metadata.get(_KEY), flow.response
        if not isinstance(watch, _Watch) or response is None:
            return None
        if response.status_code == _SWITCHED:
            self._watch_messages(flow, watch)
        if not watch.back:
            return None
        why = ""
        if secrets.hold((*response.headers.fields, (b"", response.data.reason)), watch.back):
            why = secrets.ECHOED
        elif response.status_code != _SWITCHED:
            look = look_at(exchange.of(flow).down, response.headers, watch.connection.session)
            why = secrets.UNREADABLE if look.why else ""
            if response.headers.get("content-type", "").strip().lower().startswith(_IN_RANGES):
                why = secrets.IN_RANGES
            look.add(watch.down.see, raw=watch.down.see_raw)
            if look.is_coded:
                _hide_length(flow, response)
            if response.stream:
                response.stream = self._passing(flow, watch, look, response.stream)
        if why:
            self._tell(watch, why)
        return why or None

    def _tell(self, watch: _Watch, why: str) -> None:
        """Record a finding, and count it."""
        if why == secrets.ECHOED:
            watch.connection.session.beginnings.echoes += 1
        self._admission.refused(watch.connection, watch.action, why)

    def _passing(
        self, flow: http.HTTPFlow, watch: _Watch, look: Inspection, others: Stream
    ) -> Callable[[bytes], list[bytes]]:
        """Return what passes an answer's pieces on to `others`, once they were looked at.

        INVARIANT: a piece that ends in the beginning of a credential waits for the next one: or an
        agent that chooses what comes before it (an echo of what it sent) would have it up to its
        last byte, and could guess that. What waits is bounded: an origin that has every piece end
        so is cut off.

        That a piece waits tells such an agent that it guessed right what the credential begins
        with: `Beginnings` counts that.
        """
        waits = _Waiting()
        wait = Wait(watch.connection.session.beginnings)

        def passed(piece: bytes) -> list[bytes]:
            if watch.down.found or look.why:
                self._cut(flow, watch, secrets.ECHOED if watch.down.found else secrets.UNREADABLE)
            elif not waits.takes(piece):
                self._cut(flow, watch, secrets.BEGUN)
            begun = watch.down.begun if piece else ()
            wait.goes_on(begun, is_whole=watch.down.found)
            if watch.connection.session.beginnings.are_guesses:
                self._cut(flow, watch, secrets.GUESSED)
            if watch.connection.cut_for or begun:
                return []
            if not piece:
                look.end()
            # An empty one would be a chunk of no length, which ends a body.
            return [one for part in waits.all() for one in _by(others, part) if one]

        return passed

    def looks_at_answer(self, flow: http.HTTPFlow) -> bool:
        """Return whether an answer that is whole is to be looked at now (`look_at_answer`), and
        didn't stream."""
        watch, response = flow.metadata.get(_KEY), flow.response
        if not isinstance(watch, _Watch) or not watch.back or response is None:
            return False
        return not response.stream and response.status_code != _SWITCHED

    async def look_at_answer(self, flow: http.HTTPFlow) -> None:
        """Inspect the whole answer."""
        look = exchange.of(flow).down.look
        assert look is not None
        assert flow.response is not None
        await look.in_steps(flow.response.raw_content or b"")

    def ended(self, flow: http.HTTPFlow) -> str | None:
        """Return why an inspected whole answer may not be passed on. One that streamed is cut off
        instead; only its trailers are left."""
        watch, response = flow.metadata.get(_KEY), flow.response
        if not isinstance(watch, _Watch) or not watch.back or response is None:
            return None
        if not self.looks_at_answer(flow):
            if secrets.hold(_fields(response.trailers), watch.back):
                response.trailers = None
                self._cut(flow, watch, secrets.ECHOED)
            return None
        look = exchange.of(flow).down.look
        assert look is not None
        look.end()
        is_echo = watch.down.found or secrets.hold(_fields(response.trailers), watch.back)
        why = secrets.ECHOED if is_echo else secrets.UNREADABLE if look.why else None
        if why is not None:
            response.raw_content = None  # nor is it kept for anybody to see
            self._tell(watch, why)
        return why

    def _watch_messages(self, flow: http.HTTPFlow, watch: _Watch) -> None:
        """Set up the inspection of the WebSocket that the request becomes. The contents of pings,
        pongs and the close go on beside the messages."""
        beside = {True: BodyScan(watch.placeholders), False: BodyScan(watch.back)}
        watch.up, watch.down = BodyScan(watch.placeholders), BodyScan(watch.back)
        state, turn = exchange.of(flow), watch.connection.session.turn
        state.up.look, state.down.look = (
            Inspection(Decoder(""), turn),
            Inspection(Decoder(""), turn),
        )
        state.up.look.add(watch.up.see)
        state.down.look.add(watch.down.see)

        def passes(from_client: bool, data: bytes) -> bool:
            beside[from_client].see(data)
            if beside[from_client].found:
                self._cut(flow, watch, secrets.FOUND_IN_BODY if from_client else secrets.ECHOED)
            return not watch.connection.cut_for

        state.passes = passes

    def said(self, flow: http.HTTPFlow, message: WebSocketMessage) -> None:
        """Take an inspected WebSocket message, either way."""
        watch = flow.metadata.get(_KEY)
        if not isinstance(watch, _Watch):
            return
        scan = watch.up if message.from_client else watch.down
        if watch.connection.cut_for or scan.found:
            message.drop()  # type: ignore[no-untyped-call]
            self._cut(flow, watch, secrets.FOUND_IN_BODY if message.from_client else secrets.ECHOED)

    def _cut(self, flow: http.HTTPFlow, watch: _Watch, why: str) -> None:
        exchange.of(flow).is_cut = True
        if not watch.connection.cut_for:
            self._tell(watch, why)
            watch.connection.cut_for = why
        watch.connection.cut()


def _hide_length(flow: http.HTTPFlow, response: http.Response) -> None:
    """Pass an answer on without stating its length: chunked in HTTP/1.1. A response without a body
    ends with its head (RFC 9112 6.3)."""
    had_length = response.headers.pop("content-length", None) is not None
    has_body = flow.request.method != "HEAD" and response.status_code not in _WITHOUT_BODY
    if had_length and has_body and flow.request.http_version == "HTTP/1.1":
        response.headers["transfer-encoding"] = "chunked"


def _by(stream: Stream, piece: bytes) -> Iterable[bytes]:
    """Return a stream function's result for a piece."""
    found = stream(piece) if callable(stream) else piece
    return [found] if isinstance(found, bytes) else found


def _fields(headers: http.Headers | None) -> Iterable[tuple[bytes, bytes]]:
    return headers.fields if headers is not None else ()
