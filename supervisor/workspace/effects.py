"""Effects of a session's file requests: claims the grant, has the host changed, settles, and brings the copy along.

It is separate from `channel` because everything with an effect is here, and nothing else. Whoever calls holds the channel's turn.
It must never carry out what the gate gave no grant for, or read content from the copy instead of the request's snapshot.
"""

import asyncio
from collections.abc import Callable

from supervisor.core.actions import FileChange
from supervisor.core.approvals import Request, status
from supervisor.core.changes import EditError, Want, apply_edit, name_of, to_action
from supervisor.errors import GatehouseError
from supervisor.gate import Gate, Grant, Refused
from supervisor.workspace.apply import Applier
from supervisor.workspace.looking import decode, encode, look_quietly, read_file
from supervisor.workspace.placing import Applied, StaleError, clean_leftovers
from supervisor.workspace.scan import signature_at
from supervisor.workspace.sides import Sides
from supervisor.workspace.to_end import to_end

# What an edit asked for: old text, new text, whether all of it.
type Edit = tuple[str, str, bool]


class Effects:
    """Of one session. `settled(name, failed)` is called after each; `at` is `Applier`'s, for tests."""

    def __init__(
        self,
        sides: Sides,
        gate: Gate,
        session_id: str,
        settled: Callable[[str, bool], None],
        at: Callable[[str], None],
    ) -> None:
        self._sides = sides
        self._gate = gate
        self._session_id = session_id
        self._settled = settled
        self._applier = Applier(sides.host, sides.blobs, sides.history, at=at)
        self._copy_applier = Applier(sides.copy, sides.blobs, None)
        self._edits: dict[str, Edit] = {}

    def remember_edit(self, request_id: str, edit: Edit) -> None:
        """What the request's edit was: to say why it no longer fits, and to make it in a copy that moved on."""
        self._edits[request_id] = edit

    async def carry_out(self, request: Request) -> None:
        """Carry out a request that is allowed or approved. A second call finds it used."""
        request = self._gate.get(request.id)
        if status(request) not in ("allowed", "approved"):
            return
        action = self.action_of(request)
        if request.origin == "agent_api" and (why := await asyncio.to_thread(self._why_stale, request, action)):
            self._gate.close(request.id, why)
            return
        grant = self._gate.claim(request.id, self._session_id)
        if isinstance(grant, Grant):
            await self._effect(request, action, grant)

    async def recover(self) -> None:
        """Clean up after the last supervisor and finish what it had begun. Level: the host's state says what happened."""
        intents = list(self._sides.history.open.values())
        await asyncio.to_thread(clean_leftovers, self._sides.host, intents)
        for request in self._gate.unsettled(self._session_id):
            if isinstance(request.action, FileChange) and request.origin != "egress":
                grant = self._gate.resume(request.id, self._session_id)
                if isinstance(grant, Refused):
                    continue
                # `apply` finds it done already, or finds `before` still there and does it, or finds neither and refuses.
                await self._effect(request, self.action_of(request), grant)

    def action_of(self, request: Request) -> FileChange:
        """The request's action, which is one of files."""
        action = self._gate.action_of(request)
        if not isinstance(action, FileChange):
            raise TypeError(f"the workspace was given {type(action).__name__}")
        return action

    async def _effect(self, request: Request, action: FileChange, grant: Grant) -> None:
        name = name_of(action)
        try:
            applied = await to_end(lambda: self._apply(request, action, grant))
        except GatehouseError as error:
            self._gate.settle(grant, "failed", {"error": str(error), "stale": isinstance(error, StaleError)})
            self._settled(name, True)
            return
        detail: dict[str, object] = {"path": action.path, "operation": action.operation, "hash": action.after}
        if request.origin == "agent_api":
            detail["copy"] = await asyncio.to_thread(self._into_copy, request, action)
        self._sides.agreed(name, applied.known, request.id)
        if action.operation == "delete":
            detail["folders_removed"] = await asyncio.to_thread(self._prune, name, request.id)
        self._gate.settle(grant, "done", detail)
        self._edits.pop(request.id, None)
        self._settled(name, False)

    def _apply(self, request: Request, action: FileChange, grant: Grant) -> Applied:
        # Only a file that came to be in the copy has a time worth keeping.
        mine = signature_at(self._sides.copy, name_of(action)) if request.origin == "workspace" else None
        return self._applier.apply(action, request.id, grant.use, mtime_ns=mine[1] if mine else None)

    def _prune(self, name: str, request_id: str) -> list[str]:
        removed = self._applier.prune(name, lambda folder: look_quietly(self._sides.copy, folder) is None, request_id)
        for folder in removed:
            self._sides.agreed(folder, None, request_id)
        return removed

    def _into_copy(self, request: Request, action: FileChange) -> str:
        """After the host, the copy: what the agent sees then. What it wrote there itself meanwhile is kept where it
        can't be merged, and becomes a change of its own."""
        name = name_of(action)
        mine = look_quietly(self._sides.copy, name)
        after = action.after
        if action.operation == "edit" and (mine is None or mine.token != action.before):
            after = self._edited_copy(request, name) if mine is not None and mine.kind == "file" else None
            if after is None:
                return "left as it was: it holds other text"
        wanted = Want("write", mine.token if mine else None, after, action.mode)
        try:
            self._copy_applier.apply(to_action(name, wanted), request.id, lambda rebuilt: None)
        except GatehouseError as error:
            return f"left as it was: {error.message}"
        return "changed too"

    def _edited_copy(self, request: Request, name: str) -> str | None:
        edit = self._edits.get(request.id)
        if edit is None:
            return None
        try:
            text = apply_edit(decode(read_file(self._sides.copy, name)), *edit)
        except (EditError, OSError, GatehouseError):
            return None
        return self._sides.blobs.keep(encode(text))

    def _why_stale(self, request: Request, action: FileChange) -> str | None:
        """Why an approved write or edit no longer fits the host; None where it does, or is done already."""
        name = name_of(action)
        host = look_quietly(self._sides.host, name)
        token = host.token if host else None
        if token in (action.before, action.after):
            return None
        why = f"stale: `{action.path}` changed on the host since this was asked; nothing was overwritten"
        edit = self._edits.get(request.id)
        if edit is not None:
            try:
                apply_edit(decode(read_file(self._sides.host, name)), *edit)
            except EditError as error:
                return f"{why} ({error})"
            except (OSError, GatehouseError):
                return why
            return f"{why} (the old text is still there: ask for the edit again)"
        return why
