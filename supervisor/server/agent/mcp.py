"""The agent's door at `/mcp`: the JSON routes' calls as Model Context Protocol tools.

This module has only the route. The protocol's library takes longer to import than all the rest of
the supervisor. So the first request that needs it loads it, on a thread: a session whose agent uses
JSON never pays for it.

INVARIANT: this route is behind the same door as every other; the protocol adds no other way in.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from litestar import asgi
from litestar.exceptions import ClientException, MethodNotAllowedException
from litestar.exceptions.http_exceptions import RequestEntityTooLarge
from litestar.handlers import ASGIRouteHandler

from supervisor.server.agent.agent_bodies import FILE_BODY_BYTES
from supervisor.server.agent.agent_calls import AgentCalls

PATH = "/mcp"
_WHITE = b" \t\r\n"
# Of one call, also of a review's report: the protocol's library takes microseconds per value.
MOST_VALUES = 10_000
_MARKS = (b"{", b"[", b",", b":")
_SLICE_BYTES = 256 * 1024
_NOT_ONE = "a call is one JSON object, no batch, and has no more values than a person could read"


def handler(calls: AgentCalls) -> ASGIRouteHandler:
    """Return the one route. Each POST is answered separately: there is no protocol session, so a
    restart loses nothing."""

    # `Any`: litestar's ASGI types and the protocol library's differ, but their dictionaries and
    # calls don't.
    @asgi(PATH, copy_scope=True)
    async def serve_mcp(scope: Any, receive: Any, send: Any) -> None:
        # A GET would open a stream for unrequested messages of the server. There are none: waiting
        # is a tool.
        if scope["method"] != "POST":
            raise MethodNotAllowedException(
                "the tools are called by POST", headers={"Allow": "POST"}
            )
        body = await _body(receive)
        if not body.lstrip(_WHITE).startswith(b"{") or await _has_too_many_values(body):
            raise ClientException(_NOT_ONE)
        serve = await asyncio.to_thread(_load)
        await serve(calls, scope, _again(body, receive), send)

    return serve_mcp


async def _body(receive: Any) -> bytes:
    """Return the whole body. INVARIANT (law 14): it isn't parsed before its length and number of
    values are known, since the protocol's library would take seconds."""
    body, is_over = bytearray(), False
    while not is_over:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientException("the client went away")
        body += message.get("body", b"")
        is_over = not message.get("more_body", False)
        if len(body) > FILE_BODY_BYTES:
            raise RequestEntityTooLarge
    return bytes(body)


async def _has_too_many_values(body: bytes) -> bool:
    """Return whether a body has more values than a call may have, whatever its texts contain.
    INVARIANT (law 14): it is scanned in slices, between which others have their turn."""
    values, is_text, escape = 0, False, b""
    for at in range(0, len(body), _SLICE_BYTES):
        # In a text, two backslashes stand for one, and a quotation mark after one doesn't end it.
        bare = (escape + body[at : at + _SLICE_BYTES]).replace(b"\\\\", b"")
        escape = b"\\" * bare.endswith(b"\\")
        parts = bare.removesuffix(b"\\").replace(b'\\"', b"").split(b'"')
        outside = b"".join(parts[is_text::2])
        is_text ^= len(parts) % 2 == 0
        values += sum(map(outside.count, _MARKS))
        if values > MOST_VALUES or b"\0" in bare:  # no UTF-8: its escapes are longer
            return True
        await asyncio.sleep(0)
    return False


def _again(body: bytes, receive: Any) -> Callable[[], Awaitable[Any]]:
    """Return a `receive` that returns the whole body first."""
    left: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]

    async def give() -> Any:
        return left.pop() if left else await receive()

    return give


def _load() -> Callable[[AgentCalls, Any, Any, Any], Awaitable[None]]:
    from supervisor.server.agent import mcp_server

    return mcp_server.serve
