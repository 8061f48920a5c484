"""The agent's calls as tools of the Model Context Protocol,
https://modelcontextprotocol.io/specification.

A tool's arguments are exactly the body of the JSON route for the same call: one type says what
is understood, and its JSON Schema is what a client is told. A tool that asks waits a while for
the answer, since a model that is told "pending" at once would only ask again; what still waits
then is fetched with `wait_for_request`. A refusal is a result with `is_error`, which models
read, and not a protocol error, which clients swallow.
"""

import traceback
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any, NamedTuple

import msgspec
import structlog
from litestar.exceptions import HTTPException
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

import supervisor
from supervisor.core import approvals
from supervisor.core.approvals import is_settled
from supervisor.core.reviews.quarantine import CALLS
from supervisor.errors import GatehouseError, UserError
from supervisor.server.agent import quarantine_calls
from supervisor.server.agent.agent_bodies import (
    FILE_BODY_BYTES,
    DeleteBody,
    EditBody,
    ExecBody,
    GitBody,
    MoveBody,
    PackagesBody,
    ProposalBody,
    ReviewBody,
    WriteBody,
)
from supervisor.server.agent.agent_calls import AgentCalls
from supervisor.server.agent.quarantine_calls import QuarantineCallView
from supervisor.server.common.errors import body_of
from supervisor.server.common.views import AgentRequest

log = structlog.get_logger("server")

# Clients commonly give up on a call after 60 s.
WAIT_S = 45.0
INSTRUCTIONS = (
    "You work in a sandbox on a private copy of the workspace. Edit files of the copy freely; what"
    " these tools do reaches the person's machine, so rules or the person decide it. A result says"
    " what was decided and why; follow its remedy instead of asking again. `pending` means that the"
    " person has not answered yet: call wait_for_request with the id."
)


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
    """`call` takes a `body` and gives what is shown. `asks`: it counts against the session's
    budget. `is_checked`: its arguments are, before the call. What it is for is said by the body's
    own text, but where `description` is given."""

    body: type[msgspec.Struct]
    call: Callable[[Any], Awaitable[object]]
    description: str = ""
    asks: bool = True
    is_checked: bool = True


async def serve(calls: AgentCalls, scope: Any, receive: Any, send: Any) -> None:
    """Answer one POST."""
    # A manager of its own for each: it serves only while its `run` lasts, and a stateless one has
    # nothing to keep.
    manager = StreamableHTTPSessionManager(
        _server(calls), json_response=True, stateless=True, max_request_body_size=FILE_BODY_BYTES
    )
    async with manager.run():
        await manager.handle_request(scope, receive, send)


def tools(calls: AgentCalls) -> dict[str, Tool]:
    """Every tool, by name."""

    def ask[Body](
        call: Callable[[Body], Awaitable[approvals.Request]],
    ) -> Callable[[Body], Awaitable[AgentRequest]]:
        return partial(_ask_and_wait, calls, call)

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
        "run_command": Tool(ExecBody, ask(calls.exec)),
        "write_file": Tool(WriteBody, ask(calls.write)),
        "edit_file": Tool(EditBody, ask(calls.edit)),
        "delete_file": Tool(DeleteBody, ask(calls.delete)),
        "move_file": Tool(MoveBody, ask(calls.move)),
        "run_package_manager": Tool(PackagesBody, ask(calls.packages)),
        "run_git": Tool(GitBody, ask(calls.git)),
        "propose_rule": Tool(ProposalBody, ask(calls.propose)),
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
    """Every tool in quarantine, by name."""
    return {name.casefold(): _reading(calls, name, body) for name, body in CALLS.items()}


def _reading(calls: AgentCalls, name: str, body: type[msgspec.Struct]) -> Tool:
    """One of the tools in quarantine. What its arguments may be is decided with the call."""

    async def read(arguments: dict[str, Any]) -> object:
        return await quarantine_calls.call(calls, name, arguments)

    return Tool(body, read, asks=False, is_checked=False)


async def _ask_and_wait[Body](
    calls: AgentCalls, call: Callable[[Body], Awaitable[approvals.Request]], data: Body
) -> AgentRequest:
    """The request when it is settled, or as it is after `WAIT_S` seconds."""
    request = await call(data)
    left_at = calls.parts.clock.monotonic() + WAIT_S
    while not is_settled(request) and calls.parts.queue.find(request.id) is not None:
        left_s = left_at - calls.parts.clock.monotonic()
        if left_s <= 0:
            break
        request = await calls.news(request.id, left_s)
    return calls.view(request)


def _server(calls: AgentCalls) -> Server[Any]:
    offered = reading_tools(calls) if calls.is_quarantined else tools(calls)

    async def list_tools(
        _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[_described(name, tool) for name, tool in offered.items()]
        )

    async def call_tool(
        _: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        return await _call(calls, offered.get(params.name), params)

    return Server(
        "gatehouse",
        version=supervisor.__version__,
        instructions=quarantine_calls.INSTRUCTIONS if calls.is_quarantined else INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def _call(
    calls: AgentCalls, tool: Tool | None, params: types.CallToolRequestParams
) -> types.CallToolResult:
    """Run one tool. What goes wrong is told as on the JSON routes, by the same function."""
    try:
        if tool is None and calls.is_quarantined:
            return _reading_result(await quarantine_calls.call(calls, params.name, {}))
        if tool is None:
            raise UserError(f"there is no tool `{params.name[:64]}`", "list the tools")
        if tool.asks:
            calls.spend()
        given = params.arguments or {}
        found = await tool.call(_arguments(tool, given) if tool.is_checked else given)
    except Exception as error:
        if not isinstance(error, GatehouseError | HTTPException):
            trace = "".join(traceback.format_exception(error))
            log.error("tool failed", tool=params.name[:64], trace=calls.parts.redactor.text(trace))
        return _result(body_of(error)[1], is_error=True)
    if isinstance(found, QuarantineCallView):
        return _reading_result(found)
    refused = isinstance(found, AgentRequest) and found.decided and not found.allowed
    return _result(found, is_error=refused)


def _reading_result(found: QuarantineCallView) -> types.CallToolResult:
    """As plain text: what is read is long, and JSON would escape it."""
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=found.text)], is_error=not found.allowed
    )


def _arguments(tool: Tool, arguments: dict[str, Any]) -> msgspec.Struct:
    try:
        return msgspec.convert(arguments, tool.body)
    except msgspec.ValidationError as error:
        raise UserError(
            f"the arguments aren't understood: {error}", "compare them with the tool's schema"
        ) from error


def _result(shown: object, *, is_error: bool) -> types.CallToolResult:
    """As data, and once more as text for clients that know no structured content."""
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=msgspec.json.encode(shown).decode())],
        structured_content=msgspec.to_builtins(shown),
        is_error=is_error,
    )


def _described(name: str, tool: Tool) -> types.Tool:
    schema = msgspec.json.schema(tool.body, ref_template="#/$defs/{name}")
    own = schema["$defs"].pop(tool.body.__name__)
    if not schema["$defs"]:
        del schema["$defs"]
    del schema["$ref"]
    return types.Tool(
        name=name, description=tool.description or _said(tool.body), input_schema=own | schema
    )


def _said(body: type[msgspec.Struct]) -> str:
    return " ".join((body.__doc__ or "").split())
