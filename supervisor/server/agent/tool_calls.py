"""The agent's own tools: each call is judged right before the agent makes it.

An agent's hook asks here before each call of a tool (agent_image/hooks). Nothing is carried out in
this module: the tool runs in the agent's sandbox, or its agent is told why not.

    command     judged like a command of a tool sandbox, which has the same walls; if asked, it
                waits. Its channel carries out a push, fetch or install, so the tool itself doesn't
                run
    mcp         judged as a command: `mcp__SERVER__TOOL ARGUMENTS`
    edit        deny rules only: the change is asked about once, when it would leave the copy
    fetch       deny rules only: egress asks, once
    named       in quarantine, where reading is answered here and all else is denied

INVARIANT: a missing answer is a denial (law 3), and so is an unreadable one.
"""

import json
import posixpath
import shlex
from urllib.parse import urlsplit

import msgspec

from supervisor.core.actions import WORKSPACE, Action, Exec, FileChange, Network, title
from supervisor.core.approvals import Request, failure, is_settled, last_printed, status
from supervisor.core.text.urls import DEFAULT_PORTS
from supervisor.errors import RefusedError, UserError
from supervisor.gate.audit_lines import record_refusal
from supervisor.gate.gate import Refused
from supervisor.server.agent import quarantine_calls
from supervisor.server.agent.agent_bodies import (
    CommandTool,
    EditTool,
    FetchTool,
    McpTool,
    NamedTool,
    ToolBody,
    in_workspace,
)
from supervisor.server.agent.agent_calls import AgentCalls
from supervisor.server.agent.mcp_tools import tools

# The name of our own MCP server in an agent's settings. Its tools ask by themselves.
OWN_SERVER = "gatehouse"
MOST_OUTCOME_CHARS = 8000
# In quarantine: the names of tools that were reported by what they do.
_NAMES = {CommandTool: "Bash", EditTool: "Edit", FetchTool: "WebFetch", McpTool: "mcp__"}


class ToolAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the tool may run, and why or why not, for the model to read. `done`: it may not run
    because Gatehouse has already done its work, which is no failure."""

    allowed: bool
    why: str
    done: bool = False
    request_id: str | None = None


async def judge_tool(calls: AgentCalls, tool: ToolBody) -> ToolAnswer:
    """Return the answer, once there is one. After the time that connections are held, too, the
    session's tool calls are no longer held."""
    if calls.is_quarantined:
        return await _in_quarantine(calls, tool)
    match tool:
        case NamedTool():
            raise UserError("this session isn't in quarantine", "send what the tool does")
        case CommandTool():
            action = Exec(command=tool.command, cwd=_folder(tool.cwd), by_agent=True)
            return await _command(calls, action, tool.reason)
        case McpTool(server=server, name=name) if server == OWN_SERVER and name in tools(calls):
            return ToolAnswer(allowed=True, why="it asks by itself")
        case McpTool():
            words = (f"mcp__{tool.server}__{tool.name}", tool.arguments)
            return await _decided(
                calls, Exec(command=shlex.join(words), by_agent=True), tool.reason
            )
        case EditTool():
            path = posixpath.normpath(posixpath.join(WORKSPACE, tool.cwd, tool.path))
            if not path.startswith(f"{WORKSPACE}/"):
                return ToolAnswer(allowed=True, why="it is no file of the workspace")
            return _unless_denied(calls, FileChange(operation="write", path=in_workspace(path)))
        case FetchTool():
            return _unless_denied(calls, _reading(tool.url))


async def _in_quarantine(calls: AgentCalls, tool: ToolBody) -> ToolAnswer:
    """Answer in the tool's place: the tool itself would find no file. Only our own server's reading
    tools run, which ask by themselves."""
    if not isinstance(tool, NamedTool):
        tool = NamedTool(name=_NAMES[type(tool)])
    server, _, name = tool.name.removeprefix("mcp__").partition("__")
    if name and server == OWN_SERVER and quarantine_calls.is_reading(name):
        return ToolAnswer(allowed=True, why="it asks by itself")
    own = f"{OWN_SERVER}_"  # as OpenCode spells it
    if tool.name.startswith(own) and quarantine_calls.is_reading(tool.name.removeprefix(own)):
        return ToolAnswer(allowed=True, why="it asks by itself")
    found = await quarantine_calls.call(calls, tool.name, tool.arguments)
    done = f"Gatehouse has done `{tool.name}` itself; don't call it again\n{found.text}"
    return ToolAnswer(allowed=False, why=done if found.allowed else found.text)


async def _command(calls: AgentCalls, action: Exec, reason: str) -> ToolAnswer:
    try:
        by_channel = await calls.by_channel(action, reason)
    except RefusedError as error:
        return ToolAnswer(allowed=False, why=f"{error.message}; {error.remedy}")
    if by_channel is not None:
        return await _carried_out(calls, by_channel)
    return await _decided(calls, await calls.as_run(action), reason)


async def _decided(calls: AgentCalls, action: Exec, reason: str) -> ToolAnswer:
    """Let the agent's tool run by a grant for exactly this command."""
    gate = calls.parts.gate
    proof = await gate.decide(
        action,
        session_id=calls.session_id,
        reason=reason,
        origin="agent_tool",
        hold_s=_hold_s(calls),
    )
    if isinstance(proof, Refused):
        return ToolAnswer(allowed=False, why=_said(proof), request_id=proof.request_id)
    try:
        # Its scripts may differ by now from those that were shown.
        proof.use(await calls.as_run(action) if proof.request_id else action)
    except RefusedError as error:
        gate.settle(proof, "failed", {"error": error.message})
        return ToolAnswer(allowed=False, why=f"{error.message}; {error.remedy}")
    gate.settle(proof, "done", {"run_by": "the agent's own tool"})
    return ToolAnswer(allowed=True, why=proof.why, request_id=proof.request_id)


async def _carried_out(calls: AgentCalls, request: Request) -> ToolAnswer:
    """Wait for the channel that does the tool's work. Its outcome is the reason why the tool
    doesn't run.

    It keeps waiting after the answer: a model that is told less would repeat the call.
    """
    now = calls.parts.clock.monotonic
    until = now() + _hold_s(calls)
    while not is_settled(request):
        if status(request) == "pending" and now() >= until:
            break
        request = await calls.news(request.id, max(1.0, until - now()))
    name = title(request.action)
    done = False
    if status(request) == "pending":
        why = (
            f"`{name}` waits for an answer of the person as request {request.id}, and will then be"
            " carried out by Gatehouse itself; don't run it again"
        )
    elif status(request) != "used":
        seen = calls.view(request)
        why = f"`{name}` is {seen.status}: {seen.why}" + (f"; {seen.remedy}" if seen.remedy else "")
    elif failed := failure(request):
        said = last_printed(calls.view(request).outcome)
        why = f"Gatehouse ran `{name}` itself, and it failed: {failed}\n{said}".rstrip()
    else:
        done = True
        why = (
            f"Gatehouse has run `{name}` itself, and it is done; don't run it again"
            f"{_output(calls, request)}"
        )
    return ToolAnswer(allowed=False, why=why, done=done, request_id=request.id)


def _output(calls: AgentCalls, request: Request) -> str:
    """Return what is known of the outcome besides its success."""
    outcome = calls.view(request).outcome or {}
    told = {name: value for name, value in outcome.items() if value and name not in ("ok", "error")}
    return f"\n{json.dumps(told)[:MOST_OUTCOME_CHARS]}" if told else ""


def _unless_denied(calls: AgentCalls, action: Action) -> ToolAnswer:
    verdict = calls.verdict(action)
    if verdict.decision != "deny":
        return ToolAnswer(allowed=True, why="no rule denies it; what leaves the sandbox is judged")
    record_refusal(calls.parts.audit, action, calls.session_id, verdict.why)
    why = f"{verdict.why}; {verdict.remedy}" if verdict.remedy else verdict.why
    return ToolAnswer(allowed=False, why=why)


def _reading(url: str) -> Network:
    try:
        parts = urlsplit(url if "//" in url else f"https://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(url)
        port = parts.port or DEFAULT_PORTS[parts.scheme]
    except ValueError as error:
        raise UserError(f"`{url[:200]}` is no URL of http or https", "send a whole one") from error
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Network(
        operation="request",
        host=parts.hostname,
        port=port,
        scheme="https" if parts.scheme == "https" else "http",
        method="GET",
        path=path,
    )


def _folder(cwd: str) -> str:
    """Return the folder relative to the workspace if it is in it, else as a whole path."""
    whole = posixpath.normpath(posixpath.join(WORKSPACE, cwd))
    return in_workspace(whole) if f"{whole}/".startswith(f"{WORKSPACE}/") else whole


def _hold_s(calls: AgentCalls) -> float:
    return calls.parts.gate.rulings.hold_s(calls.session_id, calls.parts.settings.hold_s)


def _said(refused: Refused) -> str:
    return f"{refused.why}; {refused.remedy}" if refused.remedy else refused.why
