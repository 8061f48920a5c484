"""The agent's door as JSON over HTTP: its routes and answers.

It also keeps a repeated call from asking again. `agent_bodies` says which bodies are understood,
`agent_calls` does what they ask for, and the gate judges it.

INVARIANT: this module imports nothing that resolves a request (`decisions`, `operator_api`); a test
holds it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, JSONBody, QueryParameter
from litestar.types import ControllerRouterHandler, Empty

from supervisor.core import approvals
from supervisor.core.actions import content_hash
from supervisor.server.agent import quarantine_calls
from supervisor.server.agent.agent_bodies import (
    FILE_BODY_BYTES,
    EditBody,
    ReviewBody,
    ToolBody,
    WriteBody,
)
from supervisor.server.agent.agent_calls import (
    AgentAsk,
    AgentCalls,
    BudgetFacts,
    HostChangesView,
    SessionFacts,
    asks,
)
from supervisor.server.agent.tool_calls import ToolAnswer, judge_tool
from supervisor.server.common.error_bodies import ErrorBody
from supervisor.server.common.views import AgentRequest

LONGEST_WAIT_S = 60
REVIEW_BODY_BYTES = 2 * 1024 * 1024
MOST_REMEMBERED = 512

AnyRequest = Request[Any, Any, Any]


class Received(msgspec.Struct, frozen=True, kw_only=True):
    ok: bool = True


_ERRORS = {
    400: ResponseSpec(ErrorBody, description="The request isn't understood; nothing was asked"),
    401: ResponseSpec(ErrorBody, description="The token isn't this session's"),
    413: ResponseSpec(ErrorBody, description="The body is too long"),
    429: ResponseSpec(ErrorBody, description="Too many requests, or too many wrong tokens"),
}
_OF_ONE = {**_ERRORS, 404: ResponseSpec(ErrorBody, description="This session has no such request")}
_ASKED = {
    **_ERRORS,
    202: ResponseSpec(
        AgentRequest, description="A person is asked; wait with GET /v1/requests/{id}?wait=60"
    ),
    403: ResponseSpec(ErrorBody, description="Refused before it could be asked"),
}


_FILES = {
    **_ASKED,
    409: ResponseSpec(
        ErrorBody, description="The file is being changed on the host right now; read it again"
    ),
}


class _KeyedCalls:
    """Asks once only for a call that is sent again with its `Idempotency-Key` because its answer
    was lost."""

    def __init__(self, calls: AgentCalls) -> None:
        self._calls = calls
        self._remembered: OrderedDict[str, str] = OrderedDict()
        self._keyed = asyncio.Lock()

    async def once[Body: msgspec.Struct](
        self, request: AnyRequest, ask: Callable[[Body], Awaitable[approvals.Request]], data: Body
    ) -> Response[AgentRequest]:
        """Return 202 while a person is asked, else 200; the body has the outcome."""
        view = self._calls.view(await self._asked(request, ask, data))
        return Response(view, status_code=200 if view.decided else 202)

    async def _asked[Body: msgspec.Struct](
        self, request: AnyRequest, ask: Callable[[Body], Awaitable[approvals.Request]], data: Body
    ) -> approvals.Request:
        calls = self._calls
        key = request.headers.get("Idempotency-Key", "")[:200]
        if not key:
            calls.spend(data)
            return await ask(data)
        mark = content_hash(
            msgspec.msgpack.encode([key, request.scope["path"], await request.body()])
        )
        async with self._keyed:
            if known := self._remembered.get(mark):
                return calls.parts.queue.get(known)
            calls.spend(data)
            asked = await ask(data)
            if calls.parts.queue.find(asked.id) is not None:
                self._remembered[mark] = asked.id
                while len(self._remembered) > MOST_REMEMBERED:
                    self._remembered.popitem(last=False)
        return asked


def handlers(calls: AgentCalls) -> list[ControllerRouterHandler]:
    """Return every JSON route of the agent's door, for one session."""
    keyed = _KeyedCalls(calls)
    routes = [*(_route(keyed, one) for one in asks(calls)), _tool_calls(calls), _report(calls)]
    return [*routes, *_reads(calls), *quarantine_calls.handlers(calls)]


def _route(keyed: _KeyedCalls, one: AgentAsk) -> ControllerRouterHandler:

    async def ask(request: AnyRequest, data: Any) -> Response[AgentRequest]:
        return await keyed.once(request, one.call, data)

    ask.__name__ = ask.__qualname__ = one.tool
    ask.__annotations__["data"] = JSONBody[one.body]  # type: ignore[misc, name-defined]
    return post(
        one.path,
        status_code=200,
        responses=_FILES if one.path.startswith("/v1/files/") else _ASKED,
        summary=one.summary,
        request_max_body_size=FILE_BODY_BYTES if one.body in (WriteBody, EditBody) else Empty,
    )(ask)


def _tool_calls(calls: AgentCalls) -> ControllerRouterHandler:

    @post(
        "/v1/tool-calls",
        status_code=200,
        responses=_ERRORS,
        summary="May the agent's own tool run? Answers when rules or a person have",
    )
    async def ask_tool(data: JSONBody[ToolBody]) -> ToolAnswer:
        calls.spend(data)
        return await judge_tool(calls, data)

    return ask_tool


def _reads(calls: AgentCalls) -> list[ControllerRouterHandler]:

    @get("/v1/requests", responses=_ERRORS, summary="This session's requests, newest first")
    async def list_requests(
        limit: Annotated[int, QueryParameter(ge=1, le=200)] = 50,
    ) -> list[AgentRequest]:
        return calls.requests(limit)

    @get(
        "/v1/requests/{request_id:str}",
        responses=_OF_ONE,
        summary="One request; `wait` parks until there is news",
    )
    async def get_request(
        request_id: FromPath[str],
        wait: Annotated[float, QueryParameter(ge=0, le=LONGEST_WAIT_S)] = 0,
    ) -> AgentRequest:
        return calls.view(await calls.news(request_id, wait))

    @get("/v1/session", responses=_ERRORS, summary="The session's facts")
    async def get_session() -> SessionFacts:
        return calls.facts()

    @get(
        "/v1/changes",
        responses=_ERRORS,
        summary="What the person changed on the host, and what never gets there",
    )
    async def list_changes() -> HostChangesView:
        return calls.host_changes()

    @get("/v1/budget", responses=_ERRORS, summary="How much of the session's budget is used")
    async def get_budget() -> BudgetFacts:
        return await calls.budget()

    return [list_requests, get_request, get_session, list_changes, get_budget]


def _report(calls: AgentCalls) -> ControllerRouterHandler:

    @post(
        "/v1/review",
        status_code=200,
        responses=_ERRORS,
        summary="Hand over the review",
        request_max_body_size=REVIEW_BODY_BYTES,
    )
    async def report_review(data: JSONBody[ReviewBody]) -> Received:
        calls.spend(data)
        await quarantine_calls.report_review(calls, data)
        return Received()

    return report_review
