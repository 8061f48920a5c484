"""Put on record what host and copy agree on after an effect.

It is separate from `effects` because nothing here changes the host; the copy changes only where it
was to follow. It must never record an agreement that the copy doesn't hold: the next comparison
would take the difference for a change of the agent's.
"""

import asyncio
import contextlib
import stat
from collections.abc import Sequence

from supervisor.core.actions import FileChange
from supervisor.core.approvals import Request
from supervisor.core.files.changes import Known, Want, name_of, names_of, to_action
from supervisor.core.files.new_folders import made_with
from supervisor.errors import GatehouseError
from supervisor.workspace.apply.apply import Applier
from supervisor.workspace.apply.moving import look_at_ends
from supervisor.workspace.apply.placing import Applied
from supervisor.workspace.disk.scan import signature_at
from supervisor.workspace.trees.one_file import look_quietly
from supervisor.workspace.trees.trees import Sides


class Agreement:
    """Records what one session's two sides agree on. `applier` is the copy's."""

    def __init__(self, sides: Sides, applier: Applier) -> None:
        self._sides = sides
        self._applier = applier
        self._followers: dict[str, str | None] = {}

    def follow_with_copy(self, request_id: str, expected: str | None) -> None:
        """Once the request is carried out the copy gets its content, too, if it holds `expected`
        (a token) still."""
        self._followers[request_id] = expected

    async def record(self, request: Request, action: FileChange, applied: Applied) -> None:
        """Put on record what both sides agree on now. INVARIANT: after a conflict they do only
        where the copy holds the same: else the copy's version would count as a change of the
        agent's alone, and a rule could apply it over the person's."""
        name = name_of(action)
        if applied.folders:
            await asyncio.to_thread(self._agree_on_folders, request, action, applied.folders)
        if action.operation == "rename":
            await asyncio.to_thread(self._agree_on_both, request, action, applied)
        elif "conflict" not in action.hazards or await asyncio.to_thread(
            self._copy_holds, request, action
        ):
            self._sides.agreed(
                name, applied.known, request.id, by_agent=request.origin == "workspace"
            )
        else:
            self._sides.history.confirm_alone(request.id, name)

    def _agree_on_folders(self, request: Request, action: FileChange, made: Sequence[str]) -> None:
        """Agree on new parent folders, with the permissions that they were made with: where the
        copy's differ by now, or keep out their owner, that is a change to ask about. A folder that
        the copy lacks is brought."""
        by_agent = request.origin == "workspace"
        for folder in made:
            host = signature_at(self._sides.host, folder)
            has_both = by_agent or signature_at(self._sides.copy, folder) is not None
            if has_both and host is not None and stat.S_ISDIR(host[4]):
                known = Known("dir", made_with(action, folder), host_signature=host)
                self._sides.agreed(folder, known, by_agent=by_agent)

    def _agree_on_both(self, request: Request, action: FileChange, applied: Applied) -> None:
        """A rename: each of its two paths for itself. Where the copy has nothing at the new one,
        an agent that asked for the move hasn't got it yet: nothing is agreed about it, so that
        it counts as made on the host, and is brought. An agent that had it there deleted it
        since."""
        old, new = look_at_ends(self._sides.copy, action)
        name, to = names_of(action)
        has_all = old is None and new is not None and new.token == action.after
        was_there = new is not None or request.origin == "workspace"
        if was_there and (has_all or "conflict" not in action.hazards):
            self._sides.agreed(
                to, applied.known, request.id, by_agent=request.origin == "workspace"
            )
        else:
            self._sides.history.confirm_alone(request.id, to)
        if old is None or "conflict" not in action.hazards:
            self._sides.agreed(name, None, request.id)
        else:
            self._sides.history.confirm_alone(request.id, name)

    def _copy_holds(self, request: Request, action: FileChange) -> bool:
        """Return whether the copy has the host's new state, bringing it there where it was to
        follow."""
        name = name_of(action)
        mine = look_quietly(self._sides.copy, name)
        if request.id in self._followers and self._followers.pop(request.id) == (
            mine.token if mine else None
        ):
            wanted = Want("write", mine.token if mine else None, action.after, action.mode)
            with contextlib.suppress(GatehouseError):  # the agent was faster: it stays a conflict
                self._applier.apply(to_action(name, wanted), request.id, lambda rebuilt: None)
            mine = look_quietly(self._sides.copy, name)
        return (mine.token if mine else None) == action.after
