"""Read an inspected request as the checks and the rules want it: head, target, action.

It is separate from `guard`, which decides what may go on: nothing here changes a flow.
"""

from mitmproxy import http

from supervisor.core.actions import Network
from supervisor.core.text.numbers import whole_number
from supervisor.egress.admission.sessions import ClientConnection
from supervisor.egress.mitm.exchange import LiveExchange
from supervisor.egress.protocols import checks


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
    """Return how long the request's body is by its head; 0 where that doesn't say."""
    return whole_number(flow.request.headers.get("content-length", "")) or 0


def is_inside(state: LiveExchange, connection: ClientConnection) -> bool:
    """Return whether the request belongs to the connection that was judged when it began."""
    return state.in_tunnel and not connection.is_plain


def shown_headers(
    flow: http.HTTPFlow, state: LiveExchange, connection: ClientConnection
) -> tuple[tuple[str, str], ...]:
    """Return an allowed answer's headers for a person to see, without secrets."""
    if flow.response is None or not state.is_allowed:
        return ()
    return checks.shown_headers(tuple(flow.response.headers.fields), connection.session.hides)
