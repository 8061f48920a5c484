"""What becomes of a connection, a request, a message where a hook of ours raises: refused, cut or dropped, each in mitmproxy's own way.

mitmproxy itself would log it and let the request go through (`addonmanager.safecall`; so does `hooks`, by which they are called). It is
separate from `guard`, which decides what may go on: here nothing ever may. It must never raise.
"""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import structlog
from mitmproxy import connection as mitm_connection
from mitmproxy import flow as mitm_flow
from mitmproxy import http
from mitmproxy.proxy import layer as mitm_layer
from mitmproxy.proxy import server_hooks

from supervisor.egress import exchange, refusals
from supervisor.egress.dialler import PIN
from supervisor.egress.failures import where
from supervisor.egress.layers import RefuseLayer

log = structlog.get_logger("egress")


def closes[S, T](refuse: Callable[[T], None]) -> Callable[[Callable[[S, T], Any]], Callable[[S, T], Any]]:
    """Make a hook fail closed: whatever it raises ends in `refuse(data)`. One that waits for nothing stays plain (`hooks`)."""

    def decorate(hook: Callable[[S, T], Any]) -> Callable[[S, T], Any]:
        @functools.wraps(hook)
        async def run(self: S, data: T) -> None:
            with _closing(hook, refuse, data):
                await hook(self, data)

        @functools.wraps(hook)
        def run_plain(self: S, data: T) -> None:
            with _closing(hook, refuse, data):
                hook(self, data)

        return run if inspect.iscoroutinefunction(hook) else run_plain

    return decorate


@contextlib.contextmanager
def _closing[T](hook: Callable[..., Any], refuse: Callable[[T], None], data: T) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        refuse(data)
        log.error("hook failed", hook=hook.__name__, error=where(error))
    except BaseException:
        refuse(data)
        raise


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
