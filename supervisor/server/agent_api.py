"""The agent's door: ask, wait, report. No route here answers a request, names who answered, or reads another session's.

INVARIANT: the session is the listening socket's, given when the app is built; nothing that a caller sends can change it.
INVARIANT: this module imports nothing that resolves a request (`decisions`, `operator_api`); a test holds it.

What bodies are understood is `agent_bodies`; the gate judges what they ask for.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, get, post
from litestar.exceptions import TooManyRequestsException
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, JSONBody, QueryParameter
from litestar.types import ControllerRouterHandler

from supervisor.clock import Clock
from supervisor.core import approvals
from supervisor.core.actions import Action, Exec, Proposal, content_hash
from supervisor.core.approvals import is_settled, status
from supervisor.core.changes import name_fields
from supervisor.core.redact import Redactor
from supervisor.core.sessions import State, remaining_s, state
from supervisor.errors import NotFoundError, RefusedError
from supervisor.server.agent_bodies import (
    FILE_BYTES,
    WORKSPACE,
    DeleteBody,
    EditBody,
    ExecBody,
    GitBody,
    MoveBody,
    PackagesBody,
    ProposalBody,
    ReviewBody,
    WriteBody,
    content_of,
    folder,
    git_action,
    in_workspace,
    packages_action,
)
from supervisor.server.errors import ErrorBody
from supervisor.server.parts import Parts, Workspace
from supervisor.server.views import AgentRequest, agent_request, shown
from supervisor.workspace.incoming import HostChange, What

LONGEST_WAIT_S = 60
FILE_BODY_BYTES = 3 * FILE_BYTES
REVIEW_BODY_BYTES = 2 * 1024 * 1024
# An agent in a loop is slowed down before it fills the audit log: this many asks at once, then so many a second.
ASKS_AT_ONCE = 200
ASKS_PER_S = 20.0
MOST_REMEMBERED = 512

AnyRequest = Request[Any, Any, Any]


class SessionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent may know of its session. `deadline_at` is in seconds since the epoch."""

    id: str
    state: State
    workspace: str
    deadline_at: float
    remaining_s: float
    model: str | None
    base: str | None


class HostChangeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A path that the person changed on the host meanwhile. `conflict`: the agent had changed it, too, and a person says
    what becomes of it; all else is in the agent's copy by now. `hash` is BLAKE2b-256 of the host's content, where it is a file."""

    path: str
    what: What
    hash: str | None
    at: float


class HostChangesView(msgspec.Struct, frozen=True, kw_only=True):
    """`changes` are newest first, and the last few hundred only; `conflicts` are the paths that wait for an answer."""

    changes: list[HostChangeFacts]
    conflicts: list[str]


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
    202: ResponseSpec(AgentRequest, description="A person is asked; wait with GET /v1/requests/{id}?wait=60"),
    403: ResponseSpec(ErrorBody, description="Refused before it could be asked"),
}


_FILES = {
    **_ASKED,
    409: ResponseSpec(ErrorBody, description="The file is being changed on the host right now; read it again"),
}


class AgentApi:
    """The handlers of one session's door."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._remembered: OrderedDict[str, str] = OrderedDict()
        self._keyed = asyncio.Lock()
        self._budget: _Budget | None = None

    def handlers(self) -> list[ControllerRouterHandler]:
        """Every route of the agent's door."""

        @post("/v1/exec", status_code=200, responses=_ASKED, summary="Run a command")
        async def ask_exec(request: AnyRequest, data: JSONBody[ExecBody]) -> Response[AgentRequest]:
            action = Exec(command=data.command, cwd=folder(data.cwd), timeout_s=data.timeout_s)
            return await self._ask(request, action, data.reason)

        @post("/v1/packages", status_code=200, responses=_ASKED, summary="Run a package manager")
        async def ask_packages(request: AnyRequest, data: JSONBody[PackagesBody]) -> Response[AgentRequest]:
            return await self._ask(request, packages_action(data), data.reason)

        @post("/v1/git", status_code=200, responses=_ASKED, summary="Run a git operation")
        async def ask_git(request: AnyRequest, data: JSONBody[GitBody]) -> Response[AgentRequest]:
            return await self._ask(request, git_action(data), data.reason)

        @post("/v1/policy-proposals", status_code=200, responses=_ASKED, summary="Propose a rule")
        async def propose(request: AnyRequest, data: JSONBody[ProposalBody]) -> Response[AgentRequest]:
            return await self._ask(request, Proposal(effect=data.effect, rule=data.rule, why=data.why), data.why)

        @get("/v1/requests", responses=_ERRORS, summary="This session's requests, newest first", sync_to_thread=False)
        def list_requests(
            request: AnyRequest, limit: Annotated[int, QueryParameter(ge=1, le=200)] = 50
        ) -> list[AgentRequest]:
            parts = _parts(request)
            found = parts.queue.of_session(self._session_id, limit)
            return [agent_request(one, parts.redactor) for one in found]

        @get(
            "/v1/requests/{request_id:str}", responses=_OF_ONE, summary="One request; `wait` parks until there is news"
        )
        async def get_request(
            request: AnyRequest,
            request_id: FromPath[str],
            wait: Annotated[float, QueryParameter(ge=0, le=LONGEST_WAIT_S)] = 0,
        ) -> AgentRequest:
            parts = _parts(request)
            return agent_request(await self._news(parts, request_id, wait), parts.redactor)

        @get("/v1/session", responses=_ERRORS, summary="The session's facts", sync_to_thread=False)
        def get_session(request: AnyRequest) -> SessionFacts:
            parts = _parts(request)
            session = parts.sessions.get(self._session_id)
            return SessionFacts(
                id=session.id,
                state=state(session),
                workspace=WORKSPACE,
                deadline_at=session.deadline_at,
                remaining_s=remaining_s(session, parts.clock.now()),
                model=session.model,
                base=session.base,
            )

        @get("/v1/changes", responses=_ERRORS, summary="What the person changed on the host", sync_to_thread=False)
        def list_changes(request: AnyRequest) -> HostChangesView:
            parts = _parts(request)
            workspace = parts.workspace_of(self._session_id)
            found = workspace.host_changes() if workspace is not None else None
            return HostChangesView(
                changes=[_host_change(one, parts.redactor) for one in reversed(found.recent)] if found else [],
                conflicts=[_path(name, parts.redactor) for name in found.conflicts()] if found else [],
            )

        @post(
            "/v1/review",
            status_code=200,
            responses=_ERRORS,
            summary="Hand over the review",
            request_max_body_size=REVIEW_BODY_BYTES,
            sync_to_thread=False,
        )
        def report_review(request: AnyRequest, data: JSONBody[ReviewBody]) -> Received:
            parts = _parts(request)
            self._spend(request)
            review = parts.redactor.data(msgspec.to_builtins(data))
            parts.sessions.record_review(self._session_id, review)
            return Received()

        return [
            ask_exec,
            ask_packages,
            ask_git,
            propose,
            *self._file_handlers(),
            list_requests,
            get_request,
            get_session,
            list_changes,
            report_review,
        ]

    def _file_handlers(self) -> list[ControllerRouterHandler]:

        @post(
            "/v1/files/write",
            status_code=200,
            responses=_FILES,
            summary="Write a file",
            request_max_body_size=FILE_BODY_BYTES,
        )
        async def ask_write(request: AnyRequest, data: JSONBody[WriteBody]) -> Response[AgentRequest]:
            content = content_of(data)
            workspace = self._workspace(request)
            path = in_workspace(data.path)
            return await self._once(request, lambda: workspace.write(path, content, data.reason))

        @post(
            "/v1/files/edit",
            status_code=200,
            responses=_FILES,
            summary="Replace text in a file",
            request_max_body_size=FILE_BODY_BYTES,
        )
        async def ask_edit(request: AnyRequest, data: JSONBody[EditBody]) -> Response[AgentRequest]:
            workspace = self._workspace(request)
            path = in_workspace(data.path)
            return await self._once(
                request, lambda: workspace.edit(path, data.old, data.new, data.replace_all, data.reason)
            )

        @post("/v1/files/delete", status_code=200, responses=_FILES, summary="Delete a file")
        async def ask_delete(request: AnyRequest, data: JSONBody[DeleteBody]) -> Response[AgentRequest]:
            workspace = self._workspace(request)
            path = in_workspace(data.path)
            return await self._once(request, lambda: workspace.delete(path, data.reason))

        @post("/v1/files/move", status_code=200, responses=_FILES, summary="Move a file")
        async def ask_move(request: AnyRequest, data: JSONBody[MoveBody]) -> Response[AgentRequest]:
            workspace = self._workspace(request)
            path, to = in_workspace(data.path), in_workspace(data.to)
            return await self._once(request, lambda: workspace.move(path, to, data.reason))

        return [ask_write, ask_edit, ask_delete, ask_move]

    async def _ask(self, request: AnyRequest, action: Action, reason: str) -> Response[AgentRequest]:
        """Ask the gate."""

        async def ask() -> approvals.Request:
            gate = _parts(request).gate
            return gate.ask(action, session_id=self._session_id, reason=reason, origin="agent_api")

        return await self._once(request, ask)

    async def _once(
        self, request: AnyRequest, ask: Callable[[], Awaitable[approvals.Request]]
    ) -> Response[AgentRequest]:
        """Ask, but not anew for a call that is sent again with its `Idempotency-Key` because its answer was lost."""
        parts = _parts(request)
        key = request.headers.get("Idempotency-Key", "")[:200]
        if not key:
            self._spend(request)
            return _reply(request, await ask())
        mark = content_hash(msgspec.msgpack.encode([key, request.scope["path"], await request.body()]))
        async with self._keyed:
            if known := self._remembered.get(mark):
                return _reply(request, parts.gate.get(known))
            self._spend(request)
            asked = await ask()
            if parts.queue.get(asked.id) is not None:
                self._remembered[mark] = asked.id
                while len(self._remembered) > MOST_REMEMBERED:
                    self._remembered.popitem(last=False)
        return _reply(request, asked)

    async def _news(self, parts: Parts, request_id: str, wait_s: float) -> approvals.Request:
        """The request as soon as it is settled or its status is another than now; else as it is after `wait_s` seconds.

        No state is kept: a wait that is begun anew, after a restart too, reads the same facts.
        """
        first: str | None = None
        left = parts.clock.monotonic() + wait_s
        while True:
            found = parts.queue.get(request_id)
            if found is None or found.session_id != self._session_id:
                raise NotFoundError(f"this session has no request `{request_id[:64]}`", "GET /v1/requests lists them")
            first = first or status(found)
            left_s = left - parts.clock.monotonic()
            if is_settled(found) or status(found) != first or left_s <= 0:
                return found
            if not await parts.queue.next_change(request_id, left_s):
                return parts.queue.get(request_id) or found

    def _workspace(self, request: AnyRequest) -> Workspace:
        workspace = _parts(request).workspace_of(self._session_id)
        if workspace is None:
            raise RefusedError("this session's workspace is not open", "wait until the session runs")
        return workspace

    def _spend(self, request: AnyRequest) -> None:
        if self._budget is None:
            self._budget = _Budget(_parts(request).clock)
        if not self._budget.spend():
            raise TooManyRequestsException("this session asks too often", headers={"Retry-After": "1"})


class _Budget:
    """How much may be asked: a token bucket."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left = float(ASKS_AT_ONCE)
        self._at = clock.monotonic()

    def spend(self) -> bool:
        now = self._clock.monotonic()
        self._left = min(float(ASKS_AT_ONCE), self._left + (now - self._at) * ASKS_PER_S)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


def handlers(session_id: str) -> list[ControllerRouterHandler]:
    """Every route of the agent's door, for one session."""
    return AgentApi(session_id).handlers()


def _parts(request: AnyRequest) -> Parts:
    parts: Parts = request.app.state["parts"]
    return parts


def _reply(request: AnyRequest, asked: approvals.Request) -> Response[AgentRequest]:
    """202 while a person is asked, else 200: what became of it stands in the body."""
    view = agent_request(asked, _parts(request).redactor)
    return Response(view, status_code=200 if view.decided else 202)


def _host_change(change: HostChange, redactor: Redactor) -> HostChangeFacts:
    return HostChangeFacts(path=_path(change.name, redactor), what=change.what, hash=change.digest, at=change.at)


def _path(name: str, redactor: Redactor) -> str:
    return shown(name_fields(name)[0], redactor)
