"""The agent's own tools: each call is judged right before the agent makes it.

An agent's hook asks here before each call of a tool (agent_image/hooks). Nothing is carried out in
this module: the tool runs in the agent's sandbox, or its agent is told why not.

    command     judged like a command of a tool sandbox, which has the same walls; if asked, it
                waits. A line that is an install and no more meets deny rules only: it is asked when
                it comes to it (`programs`)
    mcp         judged as a call of a server in the sandbox: `mcp__SERVER__TOOL ARGUMENTS`
    edit        deny rules only: the change is asked about once, when it would leave the copy
    fetch       deny rules only: egress asks, once
    named       in quarantine, where reading is answered here and all else is denied

INVARIANT: a missing answer is a denial (law 3), and so is an unreadable one.
"""

import posixpath
from typing import Any
from urllib.parse import urlsplit

import msgspec

from supervisor.core.actions import (
    WORKSPACE,
    Action,
    Exec,
    FileChange,
    McpCall,
    Network,
    Packages,
)
from supervisor.core.mcp_calls import PREFIX, spelled
from supervisor.core.packages.package_commands import (
    LEFT_ALONE,
    fetches,
    manager_named,
    risky_flags,
)
from supervisor.core.policy.outside_acts import outside_acts
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
# In quarantine: the names of tools that were reported by what they do.
_NAMES = {CommandTool: "Bash", EditTool: "Edit", FetchTool: "WebFetch", McpTool: "mcp__"}


class ToolAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the tool may run, and why or why not, for the model to read."""

    allowed: bool
    why: str
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
        case McpTool(server=server, name=name) if server == OWN_SERVER and (
            name in tools(calls) or name.startswith(PREFIX)
        ):
            return ToolAnswer(allowed=True, why="it asks by itself")
        case McpTool():
            return await _decided(calls, _call_of_own(calls, tool), tool.reason)
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
    if _asks_by_itself(action):
        return _unless_denied(calls, action)
    return await _decided(calls, await calls.as_run(action), reason)


def _asks_by_itself(action: Exec) -> bool:
    """Return whether the whole line is an install that what stands in for its package manager asks
    for before anything runs that its words or the copy name. Git runs the copy's hooks first."""
    found = outside_acts(action)
    if not (found.is_whole and isinstance(found.alone, Packages)):
        return False
    program = (found.alone.command or "").partition(" ")[0]
    return (
        manager_named(program) is not None
        and fetches(found.alone)
        and not LEFT_ALONE.intersection(found.alone.flags)
        and not risky_flags(found.alone)
    )


def _call_of_own(calls: AgentCalls, tool: McpTool) -> McpCall:
    """INVARIANT: no server of the agent's own passes for one of the operator's, whose rules are
    about other effects."""
    try:
        arguments = spelled(msgspec.json.decode(tool.arguments, type=dict[str, Any]))
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        why = f"the arguments of `{tool.name[:64]}` are no JSON object"
        raise UserError(why, "send one") from error
    action = McpCall(server=tool.server, tool=tool.name, arguments=arguments, by_agent=True)
    named = f"{tool.server}__{tool.name}".partition("__")[0]
    if named in calls.parts.mcp_servers.names:
        why = f"`{named}` is the name of an MCP server of the operator's, and this one is your own"
        record_refusal(calls.parts.audit, action, calls.session_id, why)
        raise RefusedError(why, f"call `{PREFIX}{named}__...` of `{OWN_SERVER}`, or rename yours")
    return action


async def _decided(calls: AgentCalls, action: Exec | McpCall, reason: str) -> ToolAnswer:
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
        if proof.request_id and isinstance(action, Exec):
            action = await calls.as_run(action)
        proof.use(action)
    except RefusedError as error:
        gate.settle(proof, "failed", {"error": error.message})
        return ToolAnswer(allowed=False, why=f"{error.message}; {error.remedy}")
    gate.settle(proof, "done", {"run_by": "the agent's own tool"})
    return ToolAnswer(allowed=True, why=proof.why, request_id=proof.request_id)


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
