"""The agent's calls as tools of the Model Context Protocol, https://modelcontextprotocol.io.

A tool's arguments are exactly the body of the JSON route for the same call. A tool that asks waits
a while for the answer, since a model that is told "pending" at once would only ask again. If the
request still waits then, the agent calls `wait_for_request`. `mcp_server` speaks the protocol.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any, NamedTuple

import msgspec

from supervisor.core import approvals
from supervisor.core.approvals import is_settled
from supervisor.core.quarantine.quarantine import CALLS
from supervisor.server.agent import quarantine_calls
from supervisor.server.agent.agent_bodies import ReviewBody
from supervisor.server.agent.agent_calls import AgentCalls, asks
from supervisor.server.common.views import AgentRequest

# Clients commonly give up on a call after 60 s.
WAIT_S = 45.0


class WaitBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Wait until there is news of a request, at most `wait_s` seconds."""

    request_id: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    wait_s: Annotated[float, msgspec.Meta(ge=0, le=WAIT_S)] = WAIT_S


class ListBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """This session's requests, newest first."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=200)] = 50


class NoBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """No arguments."""


class Tool(NamedTuple):
    """A tool. `call` takes a `body` and returns what is shown. `asks`: it counts against the
    session's budget. `is_checked`: its arguments are validated before the call. `description`
    replaces the body's own text as the tool's description."""

    body: type[msgspec.Struct]
    call: Callable[[Any], Awaitable[object]]
    description: str = ""
    asks: bool = True
    is_checked: bool = True


def tools(calls: AgentCalls) -> dict[str, Tool]:
    """Return every tool, by name."""

    async def wait(data: WaitBody) -> AgentRequest:
        return calls.view(await calls.news(data.request_id, data.wait_s))

    async def requests(data: ListBody) -> dict[str, object]:
        return {"requests": calls.requests(data.limit)}

    async def facts(_: NoBody) -> object:
        return calls.facts()

    async def host_changes(_: NoBody) -> object:
        return calls.host_changes()

    async def report(data: ReviewBody) -> dict[str, object]:
        await quarantine_calls.report_review(calls, data)
        return {"ok": True}

    return {
        **{
            one.tool: Tool(one.body, partial(_ask_and_wait, calls, one.call)) for one in asks(calls)
        },
        "report_review": Tool(ReviewBody, report),
        "wait_for_request": Tool(WaitBody, wait, asks=False),
        "list_requests": Tool(ListBody, requests, asks=False),
        "session_facts": Tool(
            NoBody, facts, "This session: its state, workspace and the time left.", asks=False
        ),
        "host_changes": Tool(
            NoBody,
            host_changes,
            "What the person changed on the host meanwhile, and what never gets there.",
            asks=False,
        ),
    }


def reading_tools(calls: AgentCalls) -> dict[str, Tool]:
    """Return every tool in quarantine, by name."""
    return {name.casefold(): _reading(calls, name, body) for name, body in CALLS.items()}


def _reading(calls: AgentCalls, name: str, body: type[msgspec.Struct]) -> Tool:
    """Return one of the tools in quarantine. Its arguments are checked with the call."""

    async def read(arguments: dict[str, Any]) -> object:
        return await quarantine_calls.call(calls, name, arguments)

    return Tool(body, read, asks=False, is_checked=False)


async def _ask_and_wait[Body](
    calls: AgentCalls, call: Callable[[Body], Awaitable[approvals.Request]], data: Body
) -> AgentRequest:
    return await until_settled(calls, await call(data))


async def until_settled(calls: AgentCalls, request: approvals.Request) -> AgentRequest:
    """Return the request when it is settled, or as it is after `WAIT_S` seconds."""
    left_at = calls.parts.clock.monotonic() + WAIT_S
    while not is_settled(request) and calls.parts.queue.find(request.id) is not None:
        left_s = left_at - calls.parts.clock.monotonic()
        if left_s <= 0:
            break
        request = await calls.news(request.id, left_s, request.session_id)
    return calls.view(request)
