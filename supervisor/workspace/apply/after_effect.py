"""After an effect on the host: record what host and copy agree on, and update the copy.

Nothing here changes the host. It must never record an agreement that the copy doesn't hold: the
next comparison would take the difference for a change of the agent's. Nor may it fail an effect
that has happened: where the copy can't follow, that is reported.
"""

import asyncio
import contextlib
import stat
from collections.abc import Sequence

from supervisor.core.actions import FileChange
from supervisor.core.approvals import Request
from supervisor.core.files.changes import (
    EditError,
    Known,
    Seen,
    Want,
    apply_edits,
    name_of,
    names_of,
    rename_of,
    to_action,
)
from supervisor.core.files.new_folders import made_with
from supervisor.errors import GatehouseError
from supervisor.workspace.apply.agent_edits import AgentEdits
from supervisor.workspace.apply.apply import Applier
from supervisor.workspace.apply.moving import look_at_ends
from supervisor.workspace.apply.placing import Applied
from supervisor.workspace.disk.scan import decode, encode, look_quietly, read_file, signature_at
from supervisor.workspace.trees.trees import Sides

DONE = "changed too"
OTHER_TEXT = "left as it was: it holds other text"


class Agreement:
    """Records what the two sides of one session agree on. `applier` is the copy's."""

    def __init__(self, sides: Sides, applier: Applier) -> None:
        self._sides = sides
        self._applier = applier
        self._followers: dict[str, str | None] = {}

    def follow_with_copy(self, request_id: str, expected: str | None) -> None:
        """After the effect, give the copy the request's content too, if it still holds `expected`
        (a token)."""
        self._followers[request_id] = expected

    async def record(self, request: Request, action: FileChange, applied: Applied) -> None:
        """Record what both sides now agree on. INVARIANT: after a conflict they agree only where
        the copy holds the same. Otherwise the copy's version would count as the agent's change
        alone, and a rule could apply it over the person's."""
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
        """Agree on new parent folders with the permissions they were made with. If the copy's
        permissions differ by now, or keep out their owner, that is a change to ask about. A folder
        that the copy lacks isn't agreed on: it counts as new on the host, and is brought."""
        by_agent = request.origin == "workspace"
        for folder in made:
            host = signature_at(self._sides.host, folder)
            has_both = by_agent or signature_at(self._sides.copy, folder) is not None
            if has_both and host is not None and stat.S_ISDIR(host[4]):
                known = Known("dir", made_with(action, folder), host_signature=host)
                self._sides.agreed(folder, known, by_agent=by_agent)

    def _agree_on_both(self, request: Request, action: FileChange, applied: Applied) -> None:
        """Agree on each of a rename's two paths separately.

        Where the copy has nothing at the new path, there are two cases. If the agent asked for the
        move, it doesn't have the file there yet: nothing is agreed, so the file counts as made on
        the host and is brought. If the agent had it there, it deleted it since.
        """
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
        """Return whether the copy has the host's new state. If the copy was to follow, bring the
        state there first."""
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


class IntoCopy:
    """Updates one session's copy after a change that the agent asked for through its API.

    If the agent wrote to the file meanwhile and the two versions can't be merged, the agent's is
    kept and becomes a separate change. Blocking: call it in a thread. `applier` is the copy's.
    """

    def __init__(self, sides: Sides, applier: Applier, edits: AgentEdits) -> None:
        self._sides = sides
        self._applier = applier
        self._edits = edits

    def bring(self, request: Request, action: FileChange) -> str:
        """Repeat a host change in the copy. Return the outcome, for the agent."""
        mine = look_quietly(self._sides.copy, name_of(action))
        # Checked after looking: anything that shone through was the host's, before or after the
        # effect.
        shines_through = not self._sides.is_of_agent(name_of(action))
        try:
            if shines_through and action.operation != "rename":
                if action.after is not None:
                    self._sides.pin(name_of(action), mine)
                wanted = Want(
                    "delete" if action.after is None else "write",
                    token_of(mine),
                    action.after,
                    action.mode,
                )
                return (
                    DONE
                    if mine is None and action.after is None
                    else self._apply(request, name_of(action), wanted)
                )
            match action.operation:
                case "delete":
                    return self._delete(request, action, mine)
                case "rename":
                    return self._move(request, action, mine)
                case _:
                    return self._write(request, action, mine)
        except GatehouseError as error:
            return f"left as it was: {error.message}"
        except OSError as error:
            return f"left as it was: {error.strerror}"

    def _write(self, request: Request, action: FileChange, mine: Seen | None) -> str:
        name = name_of(action)
        after = action.after
        if action.operation == "edit" and (mine is None or mine.token != action.before):
            after = (
                self._edited(request, name) if mine is not None and mine.kind == "file" else None
            )
            if after is None:
                return OTHER_TEXT
        return self._apply(request, name, Want("write", token_of(mine), after, action.mode))

    def _delete(self, request: Request, action: FileChange, mine: Seen | None) -> str:
        if mine is not None and mine.token != action.before:
            return OTHER_TEXT
        return self._apply(request, name_of(action), Want("delete", action.before))

    def _move(self, request: Request, action: FileChange, mine: Seen | None) -> str:
        """Move the agent's own file, too, with whatever it wrote into it."""
        name, to = names_of(action)
        if mine is None or mine.kind != "file":
            there = look_quietly(self._sides.copy, to)
            return (
                DONE
                if there is not None and there.token == action.after
                else "left as it was: it has no such file"
            )
        if not self._sides.is_of_agent(to):
            # The host's file, moved a moment ago, already shows at the new place; the agent's file
            # replaces it.
            self._sides.keep_from_agent([to])
        self._applier.apply(rename_of(name, to, mine.token), request.id, lambda rebuilt: None)
        return DONE

    def _apply(self, request: Request, name: str, wanted: Want) -> str:
        self._applier.apply(to_action(name, wanted), request.id, lambda rebuilt: None)
        return DONE

    def _edited(self, request: Request, name: str) -> str | None:
        held = self._edits.of(name, request.id)
        if held is None:
            return None
        try:
            text = apply_edits(decode(read_file(self._sides.copy, name)), held.edits)
        except (EditError, OSError, GatehouseError):
            return None
        return self._sides.blobs.keep(encode(text))


def token_of(seen: Seen | None) -> str | None:
    """Return the token that an action uses for a state; the state may be nothing."""
    return seen.token if seen is not None else None
