"""The agent's calls: ask, wait, report; for one session, in either protocol.

`agent_api` serves them as JSON over HTTP, `mcp` as tools of the Model Context Protocol; both count
against one budget.

INVARIANT: the session is the listening socket's, given when the app is built; nothing that a caller
sends can change it.
INVARIANT: nothing here answers a request or names who answered, and no request of another session
can be read.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import count, islice
from typing import Any, NamedTuple

import msgspec
from litestar.exceptions import TooManyRequestsException

from supervisor.base.clock import Clock
from supervisor.core import approvals
from supervisor.core.actions import WORKSPACE, Action, Exec, Git, Packages, Proposal
from supervisor.core.approvals import is_settled, status
from supervisor.core.files.changes import name_fields
from supervisor.core.mcp_calls import ServerTool
from supervisor.core.policy.outside_acts import outside_acts
from supervisor.core.sessions import State, is_quarantined, remaining_s, state
from supervisor.core.verdicts import CHANGE_THE_COPY, KEPT, Verdict
from supervisor.errors import NotFoundError, RefusedError, UserError
from supervisor.gate.audit_lines import record_refusal
from supervisor.parts import Parts
from supervisor.server.agent.agent_bodies import (
    DeleteBody,
    EditBody,
    ExecBody,
    GitBody,
    MoveBody,
    PackagesBody,
    ProposalBody,
    WriteBody,
    content_of,
    folder,
    git_action,
    in_workspace,
    length_of,
    packages_action,
)
from supervisor.server.common.request_guard import CallBudget
from supervisor.server.common.views import (
    AgentRequest,
    agent_request,
    listed,
    shown_view,
    with_fields_of,
)
from supervisor.workspace.incoming.incoming import What

# An agent in a loop is slowed down before it fills the audit log: a burst of asks, then a rate per
# second.
ASKS_AT_ONCE = 200
ASKS_PER_S = 20.0
# INVARIANT (law 14): a text is searched for secrets and read as a command; so much of it counts as
# one more ask.
CHARS_PER_ASK = 1000
TOOLS_PER_ASK = 100
MOST_REFUSED = 300
# A list of requests ends after the request that passes this length, and is read in parts of this
# size.
MOST_LISTED_CHARS = 256 * 1024
LISTED_AT_ONCE = 10
# How often, and at which interval, the ledger is checked for a call.
BOOKS_LOOKS, BOOKS_EVERY_S = 50, 0.02


class SessionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that an agent may know of its session. `deadline_at` is in seconds since the
    epoch."""

    id: str
    state: State
    workspace: str
    deadline_at: float
    remaining_s: float
    model: str | None
    base: str | None


class BudgetFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Use of the session's own budget, as egress metered it. `used_percent` is that of its money or
    tokens, whichever is higher; `conclude`: the next model call should be the last."""

    used_percent: int
    conclude: bool


class HostChangeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A path that the person changed on the host meanwhile. `conflict`: the agent had changed it,
    too, and a person decides; all other changes are in the agent's copy by now. `hash` is
    BLAKE2b-256 of the host's content, where it is a file."""

    path: str
    what: What
    hash: str | None
    at: float


class HostChangesView(msgspec.Struct, frozen=True, kw_only=True):
    """`changes` are newest first, only the last few hundred; `conflicts` are the paths that wait
    for an answer; `refused` are the first few hundred paths of the agent's copy that are never
    carried over, each with the reason."""

    changes: list[HostChangeFacts]
    conflicts: list[str]
    refused: dict[str, str]


class AgentAsk(NamedTuple):
    """Something that an agent may ask for: a route of the JSON API, and a tool. `call` takes a
    `body`."""

    path: str
    tool: str
    summary: str
    body: type[msgspec.Struct]
    call: Callable[[Any], Awaitable[approvals.Request]]


def asks(calls: "AgentCalls") -> tuple[AgentAsk, ...]:
    """Return everything that an agent may ask for."""
    return (
        AgentAsk("/v1/exec", "run_command", "Run a command", ExecBody, calls.exec),
        AgentAsk("/v1/files/write", "write_file", "Write a file", WriteBody, calls.write),
        AgentAsk("/v1/files/edit", "edit_file", "Replace text in a file", EditBody, calls.edit),
        AgentAsk("/v1/files/delete", "delete_file", "Delete a file", DeleteBody, calls.delete),
        AgentAsk("/v1/files/move", "move_file", "Move a file", MoveBody, calls.move),
        AgentAsk(
            *("/v1/packages", "run_package_manager", "Run a package manager"),
            *(PackagesBody, calls.packages),
        ),
        AgentAsk("/v1/git", "run_git", "Run a git operation", GitBody, calls.git),
        AgentAsk(
            "/v1/policy-proposals", "propose_rule", "Propose a rule", ProposalBody, calls.propose
        ),
    )


def budget_of_asks(clock: Clock) -> CallBudget:
    """Return the budget that the doors of one session share."""
    return CallBudget(clock, ASKS_AT_ONCE, ASKS_PER_S)


class AgentCalls:
    """One session's calls. Calls that ask return the request as it is right after the verdict:
    pending where a person is asked."""

    def __init__(
        self,
        parts: Parts,
        session_id: str,
        origin: approvals.Origin = "agent_api",
        budget: CallBudget | None = None,
    ) -> None:
        self.parts = parts
        self.session_id = session_id
        self._origin = origin
        self._budget = budget or budget_of_asks(parts.clock)

    def spend(self, data: msgspec.Struct) -> None:
        """Count one more ask, a long one as several. Raise HTTP 429 where there were too many."""
        self._spend(1 + length_of(data) // CHARS_PER_ASK)

    def _spend(self, asks: int) -> None:
        if not self._budget.spend(asks):
            raise TooManyRequestsException(
                "this session asks too often", headers={"Retry-After": "1"}
            )

    async def exec(self, data: ExecBody) -> approvals.Request:
        action = Exec(command=data.command, cwd=folder(data.cwd), timeout_s=data.timeout_s)
        by_channel = await self.by_channel(action, data.reason)
        return by_channel or self._ask(await self.as_run(action), data.reason)

    async def by_channel(self, line: Exec, reason: str) -> approvals.Request | None:
        """If the command line is a push, fetch or install and nothing else, ask for it; its own
        channel carries it out. Return None for another command, and for one that is denied."""
        alone = outside_acts(line).alone
        if alone is None or self.verdict(line).decision == "deny":
            return None
        return await self.planned(alone, reason)

    async def as_run(self, action: Exec) -> Exec:
        """Return a command with the scripts that it names, once it is known whether the session's
        sandbox contains commands."""
        if self.parts.gate.rulings.runs_contained(self.session_id):
            await self.parts.containment.checked(self.session_id)
        workspace = self.parts.workspace_of(self.session_id)
        return action if workspace is None else await workspace.with_scripts(action)

    async def packages(self, data: PackagesBody) -> approvals.Request:
        return await self.planned(packages_action(data), data.reason)

    async def git(self, data: GitBody) -> approvals.Request:
        return await self.planned(git_action(data), data.reason)

    async def planned(self, action: Git | Packages, reason: str) -> approvals.Request:
        """Plan what the action would do, and ask for that, unless rules deny it already."""
        if self.verdict(action).decision != "deny":
            try:
                if isinstance(action, Git):
                    if action.operation == "push" and self._is_job:
                        raise RefusedError(KEPT, CHANGE_THE_COPY)
                    action = await self.parts.pushes.planned(self.session_id, action)
                else:
                    action = await self.parts.installs.planned(self.session_id, action)
            except RefusedError as error:
                record_refusal(self.parts.audit, action, self.session_id, error.message)
                raise
        return self._ask(action, reason)

    @property
    def _is_job(self) -> bool:
        return self.parts.sessions.get(self.session_id).job is not None

    def verdict(self, action: Action) -> Verdict:
        """Return what the rules say, without recording it."""
        return self.parts.gate.rulings.verdict(action, self.session_id)

    async def propose(self, data: ProposalBody) -> approvals.Request:
        if self.parts.redactor.said(data.rule) != data.rule:
            raise UserError("the proposed rule holds a secret", "propose one without it")
        return self._ask(Proposal(effect=data.effect, rule=data.rule, why=data.why), data.why)

    async def write(self, data: WriteBody) -> approvals.Request:
        return await self.parts.running_workspace(self.session_id).write(
            in_workspace(data.path), content_of(data), data.reason
        )

    async def edit(self, data: EditBody) -> approvals.Request:
        path = in_workspace(data.path)
        return await self.parts.running_workspace(self.session_id).edit(
            path, data.old, data.new, data.replace_all, data.reason
        )

    async def delete(self, data: DeleteBody) -> approvals.Request:
        return await self.parts.running_workspace(self.session_id).delete(
            in_workspace(data.path), data.reason
        )

    async def move(self, data: MoveBody) -> approvals.Request:
        return await self.parts.running_workspace(self.session_id).move(
            in_workspace(data.path), in_workspace(data.to), data.reason
        )

    @property
    def is_quarantined(self) -> bool:
        """Return whether the session may only read what it is shown."""
        session = self.parts.sessions.get(self.session_id)
        return is_quarantined(session.kind, session.command)

    async def mcp_tools(self) -> list[tuple[str, str, ServerTool]]:
        """Return the tools of the operator's MCP servers: whole name, server, tool. It counts as an
        ask, a long list as several."""
        self._spend(1)
        if self.is_quarantined:
            return []
        found = await self.parts.mcp_servers.tools(self.session_id)
        self._spend(len(found) // TOOLS_PER_ASK)
        return found

    async def call_mcp(self, name: str, arguments: Mapping[str, Any]) -> approvals.Request:
        """Ask for a call of one of them."""
        return await self.parts.mcp_servers.ask(self.session_id, name, arguments)

    def keep_review(self, review: dict[str, Any]) -> None:
        """Keep the review agent's report, which has the fields of `ReviewBody`."""
        review = self.parts.redactor.data(review)
        self.parts.sessions.record_review(self.session_id, review)

    def requests(self, limit: int) -> list[AgentRequest]:
        """Return this session's requests, newest first. Only as many are returned as have short
        texts together (law 14)."""
        found = listed(islice(self._newest(), limit), MOST_LISTED_CHARS)
        return [self.view(one) for one in found]

    def _newest(self) -> Iterator[approvals.Request]:
        """Yield this session's requests, newest first, read a few at a time."""
        for start in count(0, LISTED_AT_ONCE):
            read = self.parts.queue.of_session(self.session_id, LISTED_AT_ONCE, start)
            yield from read
            if len(read) < LISTED_AT_ONCE:
                return

    async def news(self, request_id: str, wait_s: float, session_id: str = "") -> approvals.Request:
        """Return the request as soon as it is settled or its status changes; at the latest after
        `wait_s` seconds, as it is then. `session_id`: whose it is, where a call of ours asked for
        the agent on another's behalf.

        No state is kept: a wait that is repeated, even after a restart, reads the same facts.
        """
        parts = self.parts
        first: str | None = None
        left = parts.clock.monotonic() + wait_s
        while True:
            found = parts.queue.find(request_id)
            if found is None or found.session_id != (session_id or self.session_id):
                raise NotFoundError(
                    f"this session has no request `{request_id[:64]}`", "list its requests"
                )
            first = first or status(found)
            left_s = left - parts.clock.monotonic()
            if is_settled(found) or status(found) != first or left_s <= 0:
                return found
            if not await parts.queue.next_change(request_id, left_s):
                return parts.queue.find(request_id) or found

    def facts(self) -> SessionFacts:
        """Return the session's facts."""
        session = self.parts.sessions.get(self.session_id)
        left = remaining_s(session, self.parts.clock.now())
        return with_fields_of(
            session, SessionFacts, state=state(session), workspace=WORKSPACE, remaining_s=left
        )

    async def budget(self) -> BudgetFacts:
        """Return how much of the session's budget is used. Egress reports the end of its last call
        separately from the answer, so wait for that report briefly."""
        spending = self.parts.spending
        for _ in range(BOOKS_LOOKS):
            if spending.spent(self.session_id) is not None:
                break
            await asyncio.sleep(BOOKS_EVERY_S)
        percent, conclude = spending.pressure(self.session_id)
        return BudgetFacts(used_percent=percent, conclude=conclude)

    def host_changes(self) -> HostChangesView:
        """Return what the person changed on the host, and which of the agent's paths never get
        there."""
        workspace, redactor = self.parts.workspace_of(self.session_id), self.parts.redactor
        found = workspace.host_changes() if workspace is not None else None
        refused = workspace.refused() if workspace is not None else {}
        view = HostChangesView(
            changes=[
                HostChangeFacts(
                    path=name_fields(one.name)[0], what=one.what, hash=one.digest, at=one.at
                )
                for one in (reversed(found.recent) if found else ())
            ],
            conflicts=[name_fields(name)[0] for name in (found.conflicts() if found else ())],
            refused={
                name_fields(name)[0]: why for name, why in islice(refused.items(), MOST_REFUSED)
            },
        )
        return shown_view(view, redactor)

    def view(self, request: approvals.Request) -> AgentRequest:
        """Return a request as the agent sees it."""
        remedy = self.parts.gate.repeats.remedy_of(request)
        return agent_request(msgspec.structs.replace(request, remedy=remedy), self.parts.redactor)

    def _ask(self, action: Action, reason: str) -> approvals.Request:
        return self.parts.gate.ask(
            action, session_id=self.session_id, reason=reason, origin=self._origin
        )
