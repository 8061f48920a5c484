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
from litestar.exceptions import MethodNotAllowedException
from litestar.handlers import ASGIRouteHandler

from supervisor.server.agent.agent_calls import AgentCalls

PATH = "/mcp"


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
        serve = await asyncio.to_thread(_load)
        await serve(calls, scope, receive, send)

    return serve_mcp


def _load() -> Callable[[AgentCalls, Any, Any, Any], Awaitable[None]]:
    from supervisor.server.agent import mcp_tools

    return mcp_tools.serve
