"""The agent's door: ask, wait, report. No route here answers a request, names who answered, or reads another session's.

INVARIANT: the session is the listening socket's, given when the app is built; nothing that a caller sends can change it.
INVARIANT: this module imports nothing that resolves a request (`decisions`, `operator_api`); a test holds it.

Bodies refuse unknown fields, so that a field like `approved` is an error instead of being passed over. Paths and working
folders are data: taken relative to the workspace, never opened here.
"""

import base64
import binascii
import posixpath
from collections import OrderedDict
from typing import Annotated, Any, Literal

import msgspec
from litestar import Request, Response, get, post
from litestar.exceptions import TooManyRequestsException
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, JSONBody, QueryParameter
from litestar.types import ControllerRouterHandler

from supervisor.clock import Clock
from supervisor.core import approvals
from supervisor.core.actions import Action, Effect, Exec, Git, Packages, Proposal, content_hash
from supervisor.core.approvals import status
from supervisor.core.sessions import State, remaining_s, state
from supervisor.errors import NotFoundError, RefusedError, UserError
from supervisor.server.errors import ErrorBody
from supervisor.server.parts import Parts, Workspace
from supervisor.server.views import AgentRequest, agent_request, is_settled
from supervisor.store import requests as store

WORKSPACE = "/workspace/merged"
LONGEST_WAIT_S = 60
COMMAND_CHARS = 64 * 1024
# The longest file that can be written or edited in one request; base64 and JSON escapes make the body longer.
FILE_BYTES = 8 * 1024 * 1024
FILE_BODY_BYTES = 3 * FILE_BYTES
REVIEW_BODY_BYTES = 2 * 1024 * 1024
LONGEST_COMMAND_S = 3600.0
# An agent in a loop is slowed down before it fills the audit log: this many asks at once, then so many a second.
ASKS_AT_ONCE = 200
ASKS_PER_S = 20.0
MOST_REMEMBERED = 512

AnyRequest = Request[Any, Any, Any]
_Reason = Annotated[str, msgspec.Meta(max_length=2000)]
_Path = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
_Command = Annotated[str, msgspec.Meta(min_length=1, max_length=COMMAND_CHARS)]
_Word = Annotated[str, msgspec.Meta(max_length=1024)]
_Words = Annotated[tuple[_Word, ...], msgspec.Meta(max_length=200)]
_Text = Annotated[str, msgspec.Meta(max_length=FILE_BYTES)]


class _Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class ExecBody(_Body, frozen=True, kw_only=True):
    """Run a command line under bash in a tool sandbox. `cwd` is relative to the workspace."""

    command: _Command
    cwd: _Path = "."
    reason: _Reason = ""
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=LONGEST_COMMAND_S)] = 120.0


class WriteBody(_Body, frozen=True, kw_only=True):
    """Write a file of the host's workspace. Exactly one of `content` (text) and `content_b64` (bytes, base64)."""

    path: _Path
    content: _Text | None = None
    content_b64: Annotated[str, msgspec.Meta(max_length=2 * FILE_BYTES)] | None = None
    reason: _Reason = ""


class EditBody(_Body, frozen=True, kw_only=True):
    """Replace text in a file of the host's workspace. It is denied as stale where `old` isn't there (any more)."""

    path: _Path
    old: Annotated[str, msgspec.Meta(min_length=1, max_length=FILE_BYTES)]
    new: _Text
    replace_all: bool = False
    reason: _Reason = ""


class PackagesBody(_Body, frozen=True, kw_only=True):
    """Run a package manager: its command line, or `manager` and `operation` with names and flags."""

    command: _Command | None = None
    manager: _Word = ""
    operation: _Word = ""
    names: _Words = ()
    flags: _Words = ()
    cwd: _Path = "."
    reason: _Reason = ""


class GitBody(_Body, frozen=True, kw_only=True):
    """A git operation that reaches beyond the private copy: its command line, or `operation` with the rest."""

    command: _Command | None = None
    operation: _Word = ""
    remote: _Word | None = None
    refspecs: _Words = ()
    force: bool = False
    delete: bool = False
    flags: _Words = ()
    cwd: _Path = "."
    reason: _Reason = ""


class ProposalBody(_Body, frozen=True, kw_only=True):
    """Propose a rule, as `category(pattern)`. A person always decides."""

    effect: Effect
    rule: Annotated[str, msgspec.Meta(min_length=1, max_length=4000)]
    why: _Reason = ""


class Finding(_Body, frozen=True, kw_only=True):
    """One remark of a review. `path` is relative to the workspace, `line` counts from 1."""

    path: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    severity: Literal["critical", "high", "medium", "low", "info"]
    title: Annotated[str, msgspec.Meta(min_length=1, max_length=300)]
    body: Annotated[str, msgspec.Meta(min_length=1, max_length=20_000)]
    line: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] | None = None
    suggestion: Annotated[str, msgspec.Meta(max_length=20_000)] | None = None


class Usage(_Body, frozen=True, kw_only=True):
    turns: Annotated[int, msgspec.Meta(ge=0)]
    input_tokens: Annotated[int, msgspec.Meta(ge=0)]
    output_tokens: Annotated[int, msgspec.Meta(ge=0)]


class ReviewBody(_Body, frozen=True, kw_only=True):
    """The review agent's report."""

    model: _Word
    base: _Word | None
    head: _Word | None
    summary: Annotated[str, msgspec.Meta(min_length=1, max_length=20_000)]
    verdict: Literal["approve", "comment", "request_changes"]
    findings: Annotated[tuple[Finding, ...], msgspec.Meta(max_length=200)]
    usage: Usage


class SessionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent may know of its session. `deadline_at` is in seconds since the epoch."""

    id: str
    state: State
    workspace: str
    deadline_at: float
    remaining_s: float
    model: str | None
    base: str | None


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


class AgentApi:
    """The handlers of one session's door."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._remembered: OrderedDict[str, str] = OrderedDict()
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

        @post(
            "/v1/files/write",
            status_code=200,
            responses=_ASKED,
            summary="Write a file",
            request_max_body_size=FILE_BODY_BYTES,
        )
        async def ask_write(request: AnyRequest, data: JSONBody[WriteBody]) -> Response[AgentRequest]:
            content = content_of(data)
            self._spend(request)
            workspace = self._workspace(request)
            return _reply(request, await workspace.write(in_workspace(data.path), content, data.reason))

        @post(
            "/v1/files/edit",
            status_code=200,
            responses=_ASKED,
            summary="Replace text in a file",
            request_max_body_size=FILE_BODY_BYTES,
        )
        async def ask_edit(request: AnyRequest, data: JSONBody[EditBody]) -> Response[AgentRequest]:
            self._spend(request)
            workspace = self._workspace(request)
            asked = await workspace.edit(in_workspace(data.path), data.old, data.new, data.replace_all, data.reason)
            return _reply(request, asked)

        @get("/v1/requests", responses=_ERRORS, summary="This session's requests, newest first", sync_to_thread=False)
        def list_requests(
            request: AnyRequest, limit: Annotated[int, QueryParameter(ge=1, le=200)] = 50
        ) -> list[AgentRequest]:
            parts = _parts(request)
            found = parts.queue.read(lambda c: store.of_session(c, self._session_id, limit))
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
            ask_write,
            ask_edit,
            list_requests,
            get_request,
            get_session,
            report_review,
        ]

    async def _ask(self, request: AnyRequest, action: Action, reason: str) -> Response[AgentRequest]:
        """Ask the gate. A call that is sent again with its `Idempotency-Key`, because its answer was lost, asks nothing new."""
        parts = _parts(request)
        key = request.headers.get("Idempotency-Key", "")[:200]
        mark = content_hash(msgspec.msgpack.encode([key, request.scope["path"], await request.body()])) if key else ""
        if known := self._remembered.get(mark):
            return _reply(request, parts.gate.get(known))
        self._spend(request)
        asked = parts.gate.ask(action, session_id=self._session_id, reason=reason, origin="agent_api")
        if mark and parts.queue.get(asked.id) is not None:
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


def in_workspace(path: str) -> str:
    """A path as it is written inside the sandbox, relative to the workspace where it names it. The channel judges the rest."""
    if "\0" in path:
        raise UserError("the path holds a NUL", "send a path without it")
    if path == WORKSPACE or path.startswith(WORKSPACE + "/"):
        return path[len(WORKSPACE) :].lstrip("/") or "."
    return path


def folder(cwd: str) -> str:
    """A working folder, relative to the workspace; `UserError` where it is outside. Its existence is the sandbox's matter."""
    relative = posixpath.normpath(in_workspace(cwd))
    if relative == ".." or relative.startswith(("/", "../")):
        raise UserError(f"the folder `{cwd[:200]}` is outside the workspace", f"use one below {WORKSPACE}")
    return relative


def content_of(data: WriteBody) -> bytes:
    """The bytes to write."""
    if (data.content is None) == (data.content_b64 is None):
        raise UserError("exactly one of `content` and `content_b64` is needed", "send the file's text as `content`")
    try:
        content = (
            (data.content or "").encode()
            if data.content_b64 is None
            else base64.b64decode(data.content_b64, validate=True)
        )
    except (UnicodeEncodeError, binascii.Error) as error:
        raise UserError(f"the content can't be decoded: {error}", "send base64 as `content_b64`") from error
    if len(content) > FILE_BYTES:
        raise UserError(
            f"the file has {len(content)} bytes, at most {FILE_BYTES} can be sent", "write it in the private copy"
        )
    return content


def packages_action(data: PackagesBody) -> Packages:
    """The action of a package request."""
    if data.command is not None:
        if data.manager or data.operation or data.names or data.flags:
            raise UserError(
                "`command` says it all; the other fields are for requests without it", "send one of the two"
            )
        words = data.command.split()
        manager, operation = (*words, "", "")[:2]
        return Packages(manager=manager, operation=operation, command=data.command, cwd=folder(data.cwd))
    if not (data.manager and data.operation):
        raise UserError(
            "`command`, or `manager` and `operation`, are needed", "send for example `npm install left-pad`"
        )
    return Packages(
        manager=data.manager, operation=data.operation, names=data.names, flags=data.flags, cwd=folder(data.cwd)
    )


def git_action(data: GitBody) -> Git:
    """The action of a git request."""
    if data.command is not None:
        if data.operation or data.remote or data.refspecs or data.flags or data.force or data.delete:
            raise UserError(
                "`command` says it all; the other fields are for requests without it", "send one of the two"
            )
        words = data.command.split()
        return Git(operation=(*words, "", "")[1], command=data.command, cwd=folder(data.cwd))
    if not data.operation:
        raise UserError("`command` or `operation` is needed", "send for example `git push origin my-branch`")
    return Git(
        operation=data.operation,
        remote=data.remote,
        refspecs=data.refspecs,
        force=data.force,
        delete=data.delete,
        flags=data.flags,
        cwd=folder(data.cwd),
    )


def _parts(request: AnyRequest) -> Parts:
    parts: Parts = request.app.state["parts"]
    return parts


def _reply(request: AnyRequest, asked: approvals.Request) -> Response[AgentRequest]:
    """202 while a person is asked, else 200: what became of it stands in the body."""
    view = agent_request(asked, _parts(request).redactor)
    return Response(view, status_code=200 if view.decided else 202)
