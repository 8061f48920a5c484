"""The programs' door: what any program in a session's sandboxes may ask, without a token.

A call is one POST. Its answer is a stream of JSON lines, each sent as soon as it is known:

    {"waits": TEXT, "id": ID, "page": URL}         once, where a person is asked
    {"out": TEXT}, {"err": TEXT}                   what git or a package manager prints
    {"exit": CODE, "why": TEXT, "remedy": TEXT}    the last one; a reason where it was refused

INVARIANT: the session is the listening socket's. Nothing here answers a request, and nothing can be
had that the agent's own door wouldn't give.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any

import msgspec
from litestar import post
from litestar.params import JSONBody
from litestar.response import Stream
from litestar.types import ControllerRouterHandler

from supervisor.core.actions import title
from supervisor.core.approvals import Request, failure, is_settled, status
from supervisor.errors import GatehouseError
from supervisor.server.agent.agent_bodies import GitBody
from supervisor.server.agent.agent_calls import AgentCalls

# How long a wait for news lasts before it is begun anew.
NEWS_S = 60.0
# A program that went with its whole session leaves its request to be answered; the session's end is
# known this soon.
GONE_S = 2.0
GONE = "the program that asked has gone"

type AnswerLine = dict[str, Any]


class ProgramAsks:
    """The asks of one session's programs. `page` is the address of the operator's page."""

    def __init__(self, calls: AgentCalls, page: str) -> None:
        self._calls = calls
        self._page = page
        self._waiting: Counter[str] = Counter()

    def answer(
        self, ask: Awaitable[Request], outcome: Callable[[Request], Iterable[AnswerLine]]
    ) -> Stream:
        """Return the stream for one ask. `outcome` gives the lines of a request that was carried
        out, before the last one."""
        return Stream(self._encoded(ask, outcome), media_type="application/x-ndjson")

    async def _encoded(
        self, ask: Awaitable[Request], outcome: Callable[[Request], Iterable[AnswerLine]]
    ) -> AsyncIterator[bytes]:
        async for line in self._lines(ask, outcome):
            yield msgspec.json.encode(line) + b"\n"

    async def _lines(
        self, ask: Awaitable[Request], outcome: Callable[[Request], Iterable[AnswerLine]]
    ) -> AsyncIterator[AnswerLine]:
        calls = self._calls
        try:
            request = await ask
        except GatehouseError as error:
            yield {"exit": 1, "why": error.message, "remedy": error.remedy}
            return
        with self._waited_for(request):
            if status(request) == "pending":
                waits = calls.parts.redactor.text(title(request.action))
                yield {"waits": waits, "id": request.id, "page": self._page}
            while not is_settled(request):
                request = await calls.news(request.id, NEWS_S)
        if status(request) == "used":
            for line in outcome(request):
                yield line
        yield self._last(request)

    def _last(self, request: Request) -> AnswerLine:
        seen = self._calls.view(request)
        if status(request) != "used":
            return {"exit": 1, "why": seen.why, "remedy": seen.remedy}
        if failed := failure(request):
            code = (request.outcome or {}).get("exit_code") or 1
            return {"exit": code, "why": self._calls.parts.redactor.text(failed)}
        return {"exit": 0}

    @contextlib.contextmanager
    def _waited_for(self, request: Request) -> Iterator[None]:
        """Withdraw the request if the last program that waits for it goes before the answer."""
        self._waiting[request.id] += 1
        is_left = False
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            is_left = True
            raise
        finally:
            self._waiting[request.id] -= 1
            if is_left and request.origin == "agent_tool":
                handlers = self._calls.parts.gate.handlers
                handlers.run(self._withdraw(request.id), f"withdraw-{request.id}")

    async def _withdraw(self, request_id: str) -> None:
        await asyncio.sleep(GONE_S)
        parts, session_id = self._calls.parts, self._calls.session_id
        found = parts.queue.find(request_id)
        is_over = parts.sessions.get(session_id).agent_exited_at is not None
        if found and status(found) == "pending" and not (is_over or self._waiting[request_id]):
            parts.gate.answers.close(GONE, request_id)


def handlers(calls: AgentCalls, page: str) -> list[ControllerRouterHandler]:
    """Return every route of the programs' door, for one session."""
    asks = ProgramAsks(calls, page)

    @post("/v1/git", status_code=200, summary="Run a git operation that reaches a remote")
    async def run_git(data: JSONBody[GitBody]) -> Stream:
        calls.spend()
        return asks.answer(calls.git(data), lambda request: ())

    return [run_git]
