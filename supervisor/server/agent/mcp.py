"""The agent's door at `/mcp`: the same calls as the JSON routes, as tools of the Model Context
Protocol.

Only the route is here. The protocol's library takes longer to import than all else of the
supervisor, so it is loaded by the first request that needs it, on a thread: a session whose agent
speaks JSON never pays for it.

INVARIANT: the door stands before this route like before every other; the protocol brings no way
in of its own.
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
# Of one call, a report of a review among them: the protocol's library takes microseconds for each.
MOST_VALUES = 10_000
_MARKS = (b"{", b"[", b",", b":")
_SLICE_BYTES = 256 * 1024
_NOT_ONE = "a call is one JSON object, no batch, and has no more values than a person could read"


def handler(calls: AgentCalls) -> ASGIRouteHandler:
    """The one route. Each POST is answered by itself: there is no protocol session, so nothing
    is lost by a restart."""

    # `Any`: litestar's types for ASGI and those of the protocol's library differ, the dictionaries
    # and calls don't.
    @asgi(PATH, copy_scope=True)
    async def serve_mcp(scope: Any, receive: Any, send: Any) -> None:
        # A GET would open a stream for what the server says unasked. There is none: waiting is a
        # tool.
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
    """Return the whole body. INVARIANT (law 14): nothing takes it apart before its length and
    number of values are known, which the protocol's library takes seconds for."""
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
    """Return whether a body has more values than a call, whatever its texts hold. INVARIANT (law
    14): it is looked at in slices, between which others have their turn."""
    values, is_text, escape = 0, False, b""
    for at in range(0, len(body), _SLICE_BYTES):
        # Two backslashes are one in a text, and one before a quotation mark doesn't end it.
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
    """`receive` that gives the whole body first."""
    left: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]

    async def give() -> Any:
        return left.pop() if left else await receive()

    return give


def _load() -> Callable[[AgentCalls, Any, Any, Any], Awaitable[None]]:
    from supervisor.server.agent import mcp_server

    return mcp_server.serve
