"""Runs approved command lines in a tool sandbox of their own.

The sandbox has its own namespaces over the same private copy, so that code under review can't
tamper with the agent's loop or read its token. The command can reach the proxy and the programs'
door, but not the agent's API.
"""

import asyncio
import socket
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping

from supervisor.core.actions import Exec
from supervisor.core.approvals import Request
from supervisor.errors import GatehouseError
from supervisor.gate.gate import Gate, Grant, Refused
from supervisor.sandbox.base import Sandbox, Spec, ToolResult

# Two cores' worth of builds at once; further commands of the session wait their turn.
MOST_AT_ONCE = 4
# What is kept of each stream: an agent reads the end of a long build, and the record stays
# readable.
KEPT_BYTES = 64 * 1024

type SpecFor = Callable[[str, Exec], Spec]
type GiveBack = Callable[[], Awaitable[None]]
type WithScripts = Callable[[str, Exec], Awaitable[Exec]]
type LendPorts = Callable[[str, Mapping[int, socket.socket]], Awaitable[GiveBack]]


class ExecBroker:
    """`spec_for(session_id, action)` describes the tool sandbox; `lend_ports` has its listening
    sockets served, by egress and as the programs' door; `with_scripts` gives the action with the
    scripts that it names as they are now."""

    def __init__(
        self,
        gate: Gate,
        sandbox: Sandbox,
        spec_for: SpecFor,
        lend_ports: LendPorts,
        with_scripts: WithScripts,
    ) -> None:
        self._gate = gate
        self._sandbox = sandbox
        self._spec_for = spec_for
        self._lend_ports = lend_ports
        self._with_scripts = with_scripts
        self._turns: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(MOST_AT_ONCE)
        )
        self._running: defaultdict[str, set[asyncio.Task[None]]] = defaultdict(set)

    async def carry_out(self, request: Request) -> None:
        """Run the command of a ready request and settle it with its output."""
        async with self._turns[request.session_id]:
            grant = self._gate.claim(request.id, request.session_id)
            if isinstance(grant, Refused):
                return
            action = self._gate.queue.action_of(request)
            if not isinstance(action, Exec):
                raise TypeError(f"the exec broker was given {type(action).__name__}")
            # A task of its own, so that the end of the session can cancel it and nothing else.
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(
                    self._run(grant, action, request), name=f"exec-{request.id}"
                )
                self._running[request.session_id].add(running)
                running.add_done_callback(self._running[request.session_id].discard)

    def stop_session(self, session_id: str) -> None:
        """Kill a session's running commands: the agent that asked for them is gone."""
        for running in self._running.get(session_id, ()):
            running.cancel()

    async def until_stopped(self, session_id: str) -> None:
        """Wait until no command that was killed by `stop_session` can change the private copy
        any more."""
        stopped = [running for running in self._running.get(session_id, ()) if running.cancelling()]
        if stopped:
            await asyncio.wait(stopped)

    def forget_session(self, session_id: str) -> None:
        """The session has ended."""
        self._turns.pop(session_id, None)
        self._running.pop(session_id, None)

    async def _run(self, grant: Grant, action: Exec, request: Request) -> None:
        try:
            if request.decision == "ask" and (changed := await self._changed(action, request)):
                self._gate.settle(grant, "failed", changed)
                return
            grant.use(action)
            result = await self._in_tool_sandbox(grant, action)
        except GatehouseError as error:
            self._gate.settle(grant, "failed", {"error": str(error)})
            return
        except asyncio.CancelledError:
            self._gate.settle(
                grant, "failed", {"error": "the session ended while the command ran; it was killed"}
            )
            raise
        problem = _problem(result)
        if problem:
            self._gate.settle(grant, "failed", {"error": problem} | _outcome(result))
        else:
            self._gate.settle(grant, "done", _outcome(result))

    async def _changed(self, action: Exec, request: Request) -> dict[str, object]:
        """Of a command that a person was shown: what came of it instead where one of its scripts
        is another by now. It is asked again."""
        now = await self._with_scripts(request.session_id, action)
        if now == action:
            return {}
        names = sorted({one.path for one in set(now.scripts) ^ set(action.scripts)})
        again = self._gate.ask(
            now, session_id=request.session_id, reason=request.reason, origin=request.origin
        )
        said = (
            f"`{'`, `'.join(names)}` changed since the command was shown, so it is asked again as"
            f" {again.id}"
        )
        return {"error": said, "asked_again": again.id}

    async def _in_tool_sandbox(self, grant: Grant, action: Exec) -> ToolResult:
        session_id = grant.session_id
        on_output, on_error = self._gate.printing.streams_of(grant)
        lent: list[GiveBack] = []

        async def lend(listeners: Mapping[int, socket.socket]) -> None:
            lent.append(await self._lend_ports(session_id, listeners))

        try:
            return await self._sandbox.run_tool(
                self._spec_for(session_id, action),
                timeout_s=action.timeout_s,
                on_listeners=lend,
                last_bytes=KEPT_BYTES + 1,  # one more says that there was more
                on_output=on_output,
                on_error=on_error,
            )
        finally:
            for give_back in lent:
                await give_back()


def _problem(result: ToolResult) -> str:
    """Return why the command counts as failed; empty where it went well."""
    return result.killed_why or (f"exit code {result.exit_code}" if result.exit_code else "")


def _outcome(result: ToolResult) -> dict[str, object]:
    """Return what the agent is told: exit code and the end of each stream, as text."""
    return {
        "exit_code": result.exit_code,
        "stdout": _end(result.stdout),
        "stderr": _end(result.stderr),
        "truncated": result.truncated or max(len(result.stdout), len(result.stderr)) > KEPT_BYTES,
        "timed_out": result.timed_out,
        "killed_why": result.killed_why,
    }


def _end(data: bytes) -> str:
    return data[-KEPT_BYTES:].decode(errors="replace")
