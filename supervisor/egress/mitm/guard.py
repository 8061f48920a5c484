"""The addon that asks about every connection and request; only it lifts refusals.

    request -> checks -> credentials -> question (in a CONNECT: with its addresses; else as for a
    CONNECT, see `front`) -> go on

It lifts the layers' refusal on an explicit allow only. Each hook runs inside `closes`, which turns
any exception into a refusal; mitmproxy itself would log the exception and let the request go
through (`addonmanager.safecall`).
"""

import asyncio
import functools
import inspect
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from mitmproxy import connection as mitm_connection
from mitmproxy import flow as mitm_flow
from mitmproxy import http, tls
from mitmproxy.proxy import layer as mitm_layer
from mitmproxy.proxy import server_hooks

from supervisor.base import log
from supervisor.base.clock import Clock
from supervisor.core.actions import Network
from supervisor.core.models.model_errors import ModelError
from supervisor.core.network.egress_wire import Answer, Outcome
from supervisor.core.text.numbers import whole_number
from supervisor.egress.admission import secrets
from supervisor.egress.admission.admission import Admission
from supervisor.egress.admission.egress_sessions import ClientConnection, OpenQuestion, Sessions
from supervisor.egress.loop import refusals
from supervisor.egress.loop.dialler import PIN
from supervisor.egress.loop.failures import where
from supervisor.egress.loop.refusals import RefusalBody
from supervisor.egress.mitm import exchange, held_bodies
from supervisor.egress.mitm.bodies import BodyCapture
from supervisor.egress.mitm.body_inspection import BodyPiece
from supervisor.egress.mitm.exchange import LiveExchange
from supervisor.egress.mitm.layers import RefuseLayer, next_layer_for
from supervisor.egress.mitm.leaks import WHOLE_BYTES, Leaks
from supervisor.egress.mitm.meter import Meter
from supervisor.egress.mitm.signing import Signer
from supervisor.egress.protocols import checks, tls_failures

# Responses of unknown length stream; a short one of known length is sent in one piece.
BUFFERED_BYTES = WHOLE_BYTES
_SERVER_NAME = 0  # the extension's number: RFC 6066
_SWITCHED = 101  # of a WebSocket the request goes on for as long as it is open
UNASKED = "the origin switches to another protocol, which was not asked for"
# Hop-by-hop headers for this proxy only: RFC 9110 7.6.1 and 11.7.
# In the path of git's calls that push (gitprotocol-http(5)).
_PUSHES = "git-receive-pack"
_OURS = ("Proxy-Authorization", "Proxy-Connection", "Proxy-Authenticate")


def closes[S, T, R](
    refuse: Callable[[T], None],
) -> Callable[[Callable[[S, T], R]], Callable[[S, T], R]]:
    """Make a hook fail closed: any exception ends in `refuse(data)`."""

    def decorate(hook: Callable[[S, T], Any]) -> Callable[[S, T], Any]:
        @functools.wraps(hook)
        async def run(self: S, data: T) -> None:
            try:
                await hook(self, data)
            except BaseException as error:
                refuse(data)
                _note(hook, error)

        @functools.wraps(hook)
        def run_plain(self: S, data: T) -> Any:
            try:
                return hook(self, data)
            except BaseException as error:
                refuse(data)
                _note(hook, error)

        return run if inspect.iscoroutinefunction(hook) else run_plain

    return decorate


def _note(hook: Callable[..., Any], error: BaseException) -> None:
    """Log an error; re-raise those that end the task or the process."""
    if not isinstance(error, Exception):
        raise error
    log.error("hook failed", hook=hook.__name__, error=where(error))


def refuse_flow(flow: http.HTTPFlow) -> None:
    state = exchange.of(flow)
    state.is_allowed = False
    state.refusal = refusals.BROKEN


def kill_flow(flow: mitm_flow.Flow) -> None:
    exchange.of(flow).is_allowed = False
    if flow.killable:
        flow.kill()  # type: ignore[no-untyped-call]


def drop_message(flow: http.HTTPFlow) -> None:
    kill_flow(flow)
    if flow.websocket is not None and flow.websocket.messages:
        flow.websocket.messages[-1].drop()  # type: ignore[no-untyped-call]


def kill_http(flow: http.HTTPFlow) -> None:
    kill_flow(flow)


def refuse_client(client: mitm_connection.Client) -> None:
    client.error = "refused"


def refuse_server(data: server_hooks.ServerConnectionHookData) -> None:
    PIN.set(None)
    data.server.error = refusals.NOT_DIALLED.why


def refuse_layer(data: mitm_layer.NextLayer) -> None:
    data.layer = RefuseLayer(data.context)


class Guard:
    """Asks about connections and requests; see the module's docstring."""

    def __init__(
        self,
        sessions: Sessions,
        admission: Admission,
        clock: Clock,
        meter: Meter,
        bodies: BodyCapture,
        signer: Signer,
    ) -> None:
        self._sessions = sessions
        self._admission = admission
        self._clock = clock
        self._meter = meter
        self._leaks = Leaks(admission)
        self._bodies = bodies
        self._signer = signer

    # -- before anything is let through -----------------------------------------------------------

    @closes(refuse_client)
    def client_connected(self, client: mitm_connection.Client) -> None:
        if self._sessions.of_client(client.id) is None:
            refuse_client(client)

    @closes(refuse_layer)
    def next_layer(self, data: mitm_layer.NextLayer) -> None:
        connection = self._sessions.of_client(data.context.client.id)
        if connection is None:
            raise LookupError("a client of no session")
        said = data.data_client()  # type: ignore[no-untyped-call]
        unreadable = functools.partial(self._admission.refused_nameless, connection)
        data.layer = next_layer_for(data.context, said, connection, unreadable)

    @closes(refuse_flow)
    def http_connect(self, flow: http.HTTPFlow) -> None:
        # The front has already answered the CONNECT at the start of the connection. A CONNECT after
        # another request is refused.
        refuse_flow(flow)
        exchange.of(flow).refusal = RefusalBody(
            why="a CONNECT comes first on its connection", remedy="open a new connection for it"
        )

    @closes(refuse_flow)
    async def requestheaders(self, flow: http.HTTPFlow) -> None:
        refuse_flow(flow)
        connection = self._connection(flow)
        if flow.error is not None:
            self._admission.refused_nameless(connection)
            return  # mitmproxy found it malformed and answers 400
        state = exchange.of(flow)
        _let_leave(flow, state, connection)
        head = head_of(flow, state)
        target, why = target_of(state, connection, head)
        if target is None:
            self._admission.refused_nameless(connection)
            state.refusal = RefusalBody(why=why or "the request names no host")
            return
        host, port = target
        action = action_of(flow, state, connection, head, host, port)
        why = why or checks.head(head) or checks.destination(head, host, port)
        swaps, misplaced = secrets.swaps(connection.session.credentials, head, host, port)
        is_upgrade = bool(head.values(b"upgrade")) or head.method == "CONNECT"
        wrong = _contradiction(why, misplaced)
        if wrong is None and swaps and _PUSHES in unquote(action.path or "").lower():
            wrong = refusals.of_push()
        wrong = wrong or self._meter.over_websocket(flow, host, is_upgrade=is_upgrade)
        if wrong is not None:
            state.refusal = wrong
            self._admission.refused(connection, action, wrong.why)
            return
        answer = connection.over or await self._admission.admit(
            connection,
            action,
            in_tunnel=is_inside(state, connection),
            is_upgrade=is_upgrade,
            headers=checks.shown_headers(head.headers),
            body_bytes=announced_bytes(flow),
        )
        if answer.decision != "allow":
            state.refusal = refusals.of_answer(answer)
            if answer is connection.over:
                self._admission.refused(connection, action, answer.why)
            if answer.over_budget:
                state.model_error = self._meter.denial(flow, host, answer, is_upgrade=is_upgrade)
            return
        self._let_through(flow, state, connection, answer, action, swaps)
        wrong = self._ready(
            flow, connection, action, swaps, answer.question_id, is_upgrade=is_upgrade
        )
        if wrong is not None:
            self._take_back(flow, state, connection, wrong)
            return
        held = state.must_be_whole or held_bodies.of(flow) is not None
        if exchange.is_open_ended(flow.request) and not (held or flow.request.stream):
            # Streamed: the client may wait for an answer to its first piece (gRPC) before it sends
            # the next.
            flow.request.stream = True
        if connection.session.keep_bodies and not is_upgrade:
            self._bodies.begin(flow, connection.session, answer.question_id, held=held)

    @closes(refuse_flow)
    async def request(self, flow: http.HTTPFlow) -> None:
        connection = self._sessions.of_client(flow.client_conn.id)
        if connection is not None and "upgrade" not in flow.request.headers:
            connection.sending.discard(flow.id)
        self._bodies.requested(flow)
        if self._leaks.looks_at_request(flow) or self._meter.may_be_call(flow):
            await self._look_at_request(flow)
            return
        held_bodies.let_go(flow)
        if self._may_go_out(flow):
            self._goes_out(flow, None)

    async def _look_at_request(self, flow: http.HTTPFlow) -> None:
        try:
            if self._leaks.looks_at_request(flow):
                await self._leaks.look_at_request(flow)
            if self._may_go_out(flow):
                _let_leave(flow, exchange.of(flow), self._connection(flow))
                self._goes_out(flow, await self._meter.reserve(flow))
        finally:
            held_bodies.let_go(flow)

    def _may_go_out(self, flow: http.HTTPFlow) -> bool:
        """Return whether a complete request passed the inspection; withdraw it if it didn't."""
        why = self._leaks.requested(flow)
        refusal = self._signer.at_end(flow) if why is None else refusals.of_credential(why)
        if refusal is not None:
            self._take_back(flow, exchange.of(flow), self._connection(flow), refusal)
        return refusal is None

    def _goes_out(self, flow: http.HTTPFlow, error: ModelError | None) -> None:
        """Send it unless a budget forbids that (`error`). Its answer may already be over."""
        state = exchange.of(flow)
        if error is not None:
            state.is_allowed = False
            state.model_error = error
            self._settle(flow, state, "failed", {"error": error.why})
        elif state.early_status is not None:
            self._settle(flow, state, "done", {"status": state.early_status})

    @closes(
        lambda data: None
    )  # the refusal is `server_name_ok`, which `tls.GuardedTls` wants to see
    def tls_clienthello(self, data: tls.ClientHelloData) -> None:
        connection = self._sessions.of_client(data.context.client.id)
        if connection is None or connection.target is None:
            return
        connection.server_name_ok = False
        host, port = connection.target
        sni = data.context.client.sni
        was_sent = any(kind == _SERVER_NAME for kind, _ in data.client_hello.extensions)
        why = checks.server_name(sni, host, was_sent=was_sent)
        if why is None:
            connection.server_name_ok = True
        else:
            named = (sni or "")[:255]
            self._admission.refused(
                connection, Network(operation="connect", host=host, port=port, sni=named), why
            )

    @closes(lambda data: None)  # the handshake has failed whatever is said of it
    def tls_failed_client(self, data: tls.TlsData) -> None:
        connection = self._sessions.of_client(data.context.client.id)
        if connection is None or connection.target is None or not connection.server_name_ok:
            return
        host, port = connection.target
        refusal = tls_failures.of_client(data.conn.error or "", host, port)
        action = Network(operation="connect", host=host, port=port, sni=data.context.client.sni)
        self._admission.refused(connection, action, f"{refusal.why}; {refusal.remedy}")

    @closes(refuse_server)
    def server_connect(self, data: server_hooks.ServerConnectionHookData) -> None:
        PIN.set(None)
        connection = self._sessions.of_client(data.client.id)
        address = data.server.address
        pin = (
            connection.pins.get((address[0], address[1]))
            if connection is not None and address is not None
            else None
        )
        if pin is None or data.server.via is not None or data.server.transport_protocol != "tcp":
            refuse_server(data)
            return
        # mitmproxy dials in this same task, so only `PinnedLoop.create_connection` sees the pin.
        PIN.set(pin)

    @closes(kill_flow)
    def tcp_start(self, flow: mitm_flow.Flow) -> None:
        kill_flow(flow)

    @closes(kill_flow)
    def udp_start(self, flow: mitm_flow.Flow) -> None:
        kill_flow(flow)

    @closes(kill_flow)
    def dns_request(self, flow: mitm_flow.Flow) -> None:
        kill_flow(flow)

    # -- after ------------------------------------------------------------------------------------

    @closes(kill_http)
    def responseheaders(self, flow: http.HTTPFlow) -> None:
        response = flow.response
        if response is None:
            return
        if response.status_code == _SWITCHED:
            if "upgrade" in flow.request.headers:
                self._end_leak(flow)
            else:  # INVARIANT: what wasn't judged as a WebSocket never becomes one
                self._withhold(
                    flow,
                    RefusalBody(
                        why=UNASKED, remedy="the origin answers another request than this one"
                    ),
                )
            return
        response.headers.pop("alt-svc", None)  # it would send clients round by HTTP/3
        length = whole_number(response.headers.get("content-length", ""))
        if length is None or length > BUFFERED_BYTES:
            response.stream = True
        self._meter.answered(flow)
        self._end_leak(flow)
        self._bodies.answered(flow)

    @closes(lambda piece: None)  # what isn't seen doesn't go on
    async def body_piece(self, piece: BodyPiece) -> None:
        await piece.look.in_steps(piece.data)
        piece.is_seen = True

    @closes(drop_message)
    def websocket_message(self, flow: http.HTTPFlow) -> None:
        if flow.websocket is not None:
            self._leaks.said(flow, flow.websocket.messages[-1])
            # mitmproxy keeps all messages; the layer holds this one itself
            flow.websocket.messages.clear()

    @closes(kill_http)
    async def response(self, flow: http.HTTPFlow) -> None:
        if self._leaks.looks_at_answer(flow):
            await self._leaks.look_at_answer(flow)
        self._answered(flow)

    def _answered(self, flow: http.HTTPFlow) -> None:
        """Settle a complete answer."""
        why = self._leaks.ended(flow)
        if why is not None:
            self._withhold(flow, refusals.of_echo(why, flow.request.path))
            return
        status = flow.response.status_code if flow.response is not None else None
        self._meter.end(flow, complete=True)
        if status == _SWITCHED:
            return  # a WebSocket goes on
        state = exchange.of(flow)
        if flow.request.timestamp_end is None:
            state.early_status = status  # and what its client sends
        else:
            self._settle(flow, state, "done", {"status": status})

    @closes(lambda flow: None)
    def websocket_end(self, flow: http.HTTPFlow) -> None:
        self._settle(flow, exchange.of(flow), "done", {"status": _SWITCHED})

    @closes(lambda flow: None)
    def error(self, flow: http.HTTPFlow) -> None:
        held_bodies.let_go(flow)
        self._meter.end(flow, complete=False)
        state = exchange.of(flow)
        if state.early_status is not None:  # the rest of the request wasn't wanted any more
            self._settle(flow, state, "done", {"status": state.early_status})
            return
        why = "the connection ended before the response"
        if state.gave_up:
            why = "the client went away before it had all of the response"
        elif flow.error is not None:
            host, port = flow.request.data.host, flow.request.data.port
            refusal = tls_failures.of_origin(
                flow.error.msg, host, port, has_begun=flow.response is not None
            )
            state.refusal = refusal  # where the layer still has a response to give
            why = refusal.why
        elif not state.is_allowed:
            why = state.refusal.why
        self._settle(flow, state, "failed", {"error": why})

    @closes(lambda data: None)
    def server_connect_error(self, data: server_hooks.ServerConnectionHookData) -> None:
        connection = self._sessions.of_client(data.client.id)
        if connection is not None and data.server.address is not None:
            self._admission.unreachable(connection, data.server.address[0])

    @closes(lambda client: None)
    def client_disconnected(self, client: mitm_connection.Client) -> None:
        connection = self._sessions.of_client(client.id)
        if connection is None:
            return
        connection.leave()  # the front forgets it once the client has read, or is gone
        self._meter.client_left(connection)
        self._admission.ended_all(connection)

    # -- inside -----------------------------------------------------------------------------------

    def _connection(self, flow: http.HTTPFlow) -> ClientConnection:
        connection = self._sessions.of_client(flow.client_conn.id)
        if connection is None:
            raise LookupError("a flow of no session")
        return connection

    def _let_through(
        self,
        flow: http.HTTPFlow,
        state: LiveExchange,
        connection: ClientConnection,
        answer: Answer,
        action: Network,
        swaps: list[secrets.HeaderSwap],
    ) -> None:
        for name in _OURS:
            flow.request.headers.pop(name, None)
        for swap in swaps:
            if swap.signs:
                self._signer.wanted(
                    flow, swap.value
                )  # once the rest of the request is as it goes out
            else:
                flow.request.headers[swap.header] = swap.value
        flow.request.data.host = action.host
        flow.request.data.port = action.port
        connection.unsettled[answer.question_id] = OpenQuestion(
            answer,
            self._clock.monotonic(),
            flow_id=flow.id if flow.request.is_http2 else "",
            body_bytes=announced_bytes(flow),
        )
        state.action = action
        state.question_id = answer.question_id
        state.session = connection.session
        state.is_allowed = True
        connection.sending.add(flow.id)

    def _ready(
        self,
        flow: http.HTTPFlow,
        connection: ClientConnection,
        action: Network,
        swaps: list[secrets.HeaderSwap],
        question_id: int,
        *,
        is_upgrade: bool,
    ) -> RefusalBody | None:
        """Finish the outgoing head, and set up the body's inspection. Return the refusal where the
        request may not go out after all."""
        why = self._leaks.begin(
            flow, connection, action, swaps, is_for_model=self._meter.is_model_host(action.host)
        )
        if why is not None:
            return refusals.of_contradiction(why)
        self._meter.begin(flow, connection, action.host, question_id, is_upgrade=is_upgrade)
        if connection.session.keep_bodies:
            self._bodies.want_readable(flow)
        return self._signer.at_head(
            flow, connection
        )  # which signs what those before it have put there

    def _take_back(
        self,
        flow: http.HTTPFlow,
        state: LiveExchange,
        connection: ClientConnection,
        refusal: RefusalBody,
    ) -> None:
        """Refuse an allowed request before any of it is sent."""
        state.is_allowed = False
        state.refusal = refusal
        assert state.action is not None
        self._admission.refused(connection, state.action, refusal.why)
        self._settle(flow, state, "failed", {"error": refusal.why})

    def _end_leak(self, flow: http.HTTPFlow) -> None:
        """Refuse an answer whose head shows a credential."""
        why = self._leaks.answered(flow)
        if why is not None:
            self._withhold(flow, refusals.of_echo(why, flow.request.path))

    def _withhold(self, flow: http.HTTPFlow, refusal: RefusalBody) -> None:
        """Refuse an answer before any of it is passed on."""
        state = exchange.of(flow)
        state.refusal = refusal
        state.is_allowed = False
        self._meter.end(flow, complete=False)
        self._settle(flow, state, "failed", {"error": refusal.why})

    def _settle(
        self,
        flow: http.HTTPFlow,
        state: LiveExchange,
        outcome: Outcome,
        detail: dict[str, str | int | float | None],
    ) -> None:
        connection = self._sessions.of_client(flow.client_conn.id)
        question_id, state.question_id = state.question_id, None
        if connection is None or question_id is None:
            return
        self._bodies.end(flow)
        connection.sending.discard(flow.id)
        shown = shown_headers(flow, state, connection)
        self._admission.ended(
            connection,
            question_id,
            outcome,
            detail,
            shown,
        )


def _contradiction(why: str | None, misplaced: str | None) -> RefusalBody | None:
    """Return the refusal of a malformed request or a misplaced credential; no rule is asked about
    it."""
    if why is not None:
        return refusals.of_contradiction(why)
    return refusals.of_credential(misplaced) if misplaced is not None else None


def _let_leave(flow: http.HTTPFlow, state: LiveExchange, connection: ClientConnection) -> None:
    """End this hook's wait when the client gives up its request but keeps the connection."""
    state.leave = functools.partial(connection.leave, asyncio.current_task())
    state.down.room = connection.down
    if not flow.request.is_http2:  # there each stream waits by itself (`http2`)
        state.up.room = connection.up


def head_of(flow: http.HTTPFlow, state: LiveExchange) -> checks.Head:
    """Return the request's head as its client sent it."""
    request = flow.request
    return checks.Head(
        method=request.method,
        scheme=request.scheme,
        path=request.data.path,
        authority=state.authority,
        headers=tuple(request.headers.fields),
        http_version=request.http_version,
    )


def target_of(
    state: LiveExchange, connection: ClientConnection, head: checks.Head
) -> tuple[tuple[str, int] | None, str | None]:
    """Return the request's destination, and why its form forbids it."""
    if state.in_tunnel:
        absolute = bool(head.authority) and not head.is_http2
        return (
            connection.target,
            "an absolute target inside of CONNECT is refused" if absolute else None,
        )
    if not head.authority or head.is_http2:
        return None, "this is a proxy, and has no pages of its own"
    parts = checks.split_authority(head.authority)
    if parts is None:
        return None, "the target is not a valid host"
    target = (parts[0], parts[1] or checks.DEFAULT_PORTS.get(head.scheme, 0))
    return target, None if head.scheme == "http" else "https goes through CONNECT"


def action_of(
    flow: http.HTTPFlow,
    state: LiveExchange,
    connection: ClientConnection,
    head: checks.Head,
    host: str,
    port: int,
) -> Network:
    """Return the action that the request asks for."""
    pin = connection.pins.get((host, port)) if is_inside(state, connection) else None
    said = head.values(b"host")
    return Network(
        operation="request",
        host=host,
        port=port,
        scheme="https" if head.scheme == "https" else "http",
        method=head.method[:64],
        path=head.path[: checks.MOST_PATH_BYTES].decode("ascii", "backslashreplace"),
        sni=flow.client_conn.sni if state.in_tunnel else None,
        host_header=(said[0] if said else head.authority)[:255] or None,
        resolved=pin.addresses if pin is not None else (),
        has_body=state.has_body,
    )


def announced_bytes(flow: http.HTTPFlow) -> int:
    """Return the body length that the request's head announces; 0 where it announces none."""
    return whole_number(flow.request.headers.get("content-length", "")) or 0


def is_inside(state: LiveExchange, connection: ClientConnection) -> bool:
    """Return whether the request belongs to the connection that was judged when it began."""
    return state.in_tunnel and not connection.is_plain


def shown_headers(
    flow: http.HTTPFlow, state: LiveExchange, connection: ClientConnection
) -> tuple[tuple[str, str], ...]:
    """Return an allowed answer's headers to show to a person, without secrets."""
    if flow.response is None or not state.is_allowed:
        return ()
    return checks.shown_headers(tuple(flow.response.headers.fields), connection.session.hides)
