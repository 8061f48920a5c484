"""Update the copy after a change that the agent asked for through its API.

Where the agent wrote to the file meanwhile and the two can't be merged, its version is kept and
becomes a change of its own. It is separate from `effects` because it has no effect on the host. It
must never fail an effect that has happened: it reports a change that can't follow.
"""

from supervisor.core.actions import FileChange
from supervisor.core.approvals import Request
from supervisor.core.files.changes import (
    EditError,
    Seen,
    Want,
    apply_edits,
    name_of,
    names_of,
    rename_of,
    to_action,
)
from supervisor.errors import GatehouseError
from supervisor.workspace.apply.agent_edits import AgentEdits
from supervisor.workspace.apply.apply import Applier
from supervisor.workspace.trees.one_file import decode, encode, look_quietly, read_file
from supervisor.workspace.trees.trees import Sides

DONE = "changed too"
OTHER_TEXT = "left as it was: it holds other text"


class IntoCopy:
    """Updates of one session's copy. Blocking: call it in a thread. `applier` is the copy's."""

    def __init__(self, sides: Sides, applier: Applier, edits: AgentEdits) -> None:
        self._sides = sides
        self._applier = applier
        self._edits = edits

    def bring(self, request: Request, action: FileChange) -> str:
        """Repeat a host change in the copy; return the outcome, for the agent."""
        mine = look_quietly(self._sides.copy, name_of(action))
        # After the look: what shone through then was the host's, before the effect or after it.
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
        """Move the agent's own file, too, with what it wrote into it."""
        name, to = names_of(action)
        if mine is None or mine.kind != "file":
            there = look_quietly(self._sides.copy, to)
            return (
                DONE
                if there is not None and there.token == action.after
                else "left as it was: it has no such file"
            )
        if not self._sides.is_of_agent(to):
            # The host's own, moved a moment ago, shows at the new place already: the agent's file
            # goes before it.
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
    """Return how an action names a state that may be nothing."""
    return seen.token if seen is not None else None
