"""Fail closed where a hook of ours raises: refuse, cut or drop.

mitmproxy itself would log it and let the request go through (`addonmanager.safecall`). It must
never raise.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from mitmproxy import connection as mitm_connection
from mitmproxy import flow as mitm_flow
from mitmproxy import http
from mitmproxy.proxy import layer as mitm_layer
from mitmproxy.proxy import server_hooks

from supervisor.base import log
from supervisor.egress.loop import refusals
from supervisor.egress.loop.dialler import PIN
from supervisor.egress.loop.failures import where
from supervisor.egress.mitm import exchange
from supervisor.egress.mitm.layers import RefuseLayer


def closes[S, T, R](
    refuse: Callable[[T], None],
) -> Callable[[Callable[[S, T], R]], Callable[[S, T], R]]:
    """Make a hook fail closed: whatever it raises ends in `refuse(data)`."""

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
    """Log an error; raise again what ends the task or the process."""
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
