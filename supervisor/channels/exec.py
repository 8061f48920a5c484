"""Runs approved command lines in a tool sandbox of their own.

The sandbox has its own namespaces over the same private copy, so that code under review can't
tamper with the agent's loop or read its token. The command can reach the proxy and the programs'
door, but not the agent's API.
"""

import asyncio
import contextlib
import socket
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from supervisor.core.actions import Exec
from supervisor.core.approvals import Request
from supervisor.errors import GatehouseError
from supervisor.gate.gate import Gate, Grant, Refused
from supervisor.sandbox.base import MERGED, Held, OnOutput, Sandbox, Spec, ToolResult

# Two cores' worth of builds at once; further commands of the session wait their turn.
MOST_AT_ONCE = 4
# What is kept of each stream: an agent reads the end of a long build, and the record stays
# readable.
KEPT_BYTES = 64 * 1024

type SpecFor = Callable[[str, Exec], Spec]
type GiveBack = Callable[[], Awaitable[None]]
type WithScripts = Callable[[str, Exec], Awaitable[Exec]]
type LendPorts = Callable[[str, Mapping[int, socket.socket]], Awaitable[GiveBack]]


# A held sandbox reads its command byte by byte: a longer one starts a sandbox of its own.
MOST_HELD_CHARS = 4096


class _Lent:
    """The listening sockets of one sandbox, while they are served."""

    def __init__(self, lend_ports: LendPorts, session_id: str) -> None:
        self._lend_ports = lend_ports
        self._session_id = session_id
        self._given: list[GiveBack] = []

    async def lend(self, listeners: Mapping[int, socket.socket]) -> None:
        """Have them served."""
        self._given.append(await self._lend_ports(self._session_id, listeners))

    async def give_back(self) -> None:
        """Have them served no more."""
        while self._given:
            await self._given.pop()()


class _Waiting(NamedTuple):
    """A sandbox that waits for a session's next command, for all that `spec` says of it."""

    held: Held
    spec: Spec
    lent: _Lent

    async def end(self) -> None:
        try:
            await self.held.end()
        finally:
            await self.lent.give_back()


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
        self._waiting: dict[str, _Waiting] = {}
        # Of a session: what has a sandbox wait, or ends one that does.
        self._beside: defaultdict[str, set[asyncio.Task[None]]] = defaultdict(set)
        self._stopped: set[str] = set()

    def has_room(self, session_id: str) -> bool:
        """Return whether a command of the session would begin at once."""
        turns = self._turns.get(session_id)
        return turns is None or not turns.locked()

    async def carry_out(self, request: Request, grant: Grant | None = None) -> None:
        """Run the command of a ready request, which may be claimed already, and settle it with
        its output."""
        async with self._turns[request.session_id]:
            claimed = grant or self._gate.claim(request.id, request.session_id)
            if isinstance(claimed, Refused):
                return
            action = self._gate.queue.action_of(request)
            if not isinstance(action, Exec):
                raise TypeError(f"the exec broker was given {type(action).__name__}")
            # A task of its own, so that the end of the session can cancel it and nothing else.
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(
                    self._run(claimed, action, request), name=f"exec-{request.id}"
                )
                self._running[request.session_id].add(running)
                running.add_done_callback(self._running[request.session_id].discard)

    def stop_session(self, session_id: str) -> None:
        """Kill a session's running commands: the agent that asked for them is gone."""
        for running in self._running.get(session_id, ()):
            running.cancel()
        if session_id not in self._stopped:  # later on there is nothing beside but ends
            for beside in self._beside.get(session_id, ()):
                beside.cancel()
        self._stopped.add(session_id)
        if waiting := self._waiting.pop(session_id, None):
            self._run_beside(session_id, waiting.end())

    async def until_stopped(self, session_id: str) -> None:
        """Wait until no command that was killed by `stop_session` can change the private copy
        any more."""
        stopped = [running for running in self._running.get(session_id, ()) if running.cancelling()]
        if stopped := [*stopped, *self._beside.get(session_id, ())]:
            await asyncio.wait(stopped)

    def forget_session(self, session_id: str) -> None:
        """The session has ended."""
        self._turns.pop(session_id, None)
        self._running.pop(session_id, None)
        self._beside.pop(session_id, None)
        self._stopped.discard(session_id)

    def _run_beside(self, session_id: str, work: Coroutine[Any, Any, None]) -> None:
        task = self._gate.handlers.run(work, f"waiting-sandbox-{session_id}")
        self._beside[session_id].add(task)
        task.add_done_callback(self._beside[session_id].discard)

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
        printed = self._gate.printing.streams_of(grant)
        spec = self._spec_for(session_id, action)
        if waiting := self._taken(session_id, action, spec):
            result = await self._in_waiting(waiting, action, spec, printed)
        else:
            result = await self._in_new(session_id, action, spec, printed)
        if session_id not in self._stopped and not self._beside[session_id]:
            self._run_beside(session_id, self._have_one_wait(session_id, spec))
        return result

    async def _in_new(
        self, session_id: str, action: Exec, spec: Spec, printed: tuple[OnOutput, OnOutput]
    ) -> ToolResult:
        lent = _Lent(self._lend_ports, session_id)
        try:
            return await self._sandbox.run_tool(
                spec,
                timeout_s=action.timeout_s,
                on_listeners=lent.lend,
                last_bytes=KEPT_BYTES + 1,  # one more says that there was more
                on_output=printed[0],
                on_error=printed[1],
            )
        finally:
            await lent.give_back()

    async def _in_waiting(
        self, waiting: _Waiting, action: Exec, spec: Spec, printed: tuple[OnOutput, OnOutput]
    ) -> ToolResult:
        try:
            return await waiting.held.run(
                action.command,
                spec.cwd,
                timeout_s=action.timeout_s,
                on_output=printed[0],
                on_error=printed[1],
            )
        finally:
            await waiting.lent.give_back()

    def _taken(self, session_id: str, action: Exec, spec: Spec) -> _Waiting | None:
        """Return the sandbox that waits for this session's next command, if it is the one that
        the command would get; it is nobody else's from here on."""
        if len(action.command) > MOST_HELD_CHARS or "\0" in action.command:
            return None
        waiting = self._waiting.get(session_id)
        if waiting is None or waiting.held.is_over or waiting.spec != _without_command(spec):
            return None
        del self._waiting[session_id]
        return waiting

    async def _have_one_wait(self, session_id: str, spec: Spec) -> None:
        """Have a sandbox ready for the next command, which most likely has all of this but its
        words. Where each program is judged there is none: the first may be anything."""
        bare, before = _without_command(spec), self._waiting.get(session_id)
        if spec.programs is not None or (before is not None and before.spec == bare):
            return
        lent, held = _Lent(self._lend_ports, session_id), None
        with contextlib.suppress(GatehouseError):  # the next command starts one, and says why not
            try:
                held = await self._sandbox.hold(
                    bare, on_listeners=lent.lend, last_bytes=KEPT_BYTES + 1
                )
            finally:
                if held is None:
                    await lent.give_back()
        if held is None:
            return
        # The one before may have been taken meanwhile: then it isn't ours to end.
        before = self._waiting.pop(session_id, None)
        self._waiting[session_id] = _Waiting(held, bare, lent)
        if before is not None:
            await before.end()


def _without_command(spec: Spec) -> Spec:
    return replace(spec, command=("/bin/bash",), cwd=MERGED)


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
