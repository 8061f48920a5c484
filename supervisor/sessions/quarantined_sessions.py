"""Parts around a session in quarantine: its copy, what it reviews, and its answer.

Its sandbox sees empty folders instead of the workspace; `workspace.quarantines` serves what it may
read of the copy.
"""

import asyncio
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from supervisor.core.orders import Order
from supervisor.core.quarantine.quarantine_answers import BadAnswerError, inert, read_answer
from supervisor.core.sessions import Session
from supervisor.errors import GatehouseError
from supervisor.sandbox.base import Spec
from supervisor.sessions import session_output, workspace_git
from supervisor.sessions.session_sandboxes import CHANGE
from supervisor.workspace.copy.private_copy import make_private_copy
from supervisor.workspace.copy.snapshot import OnProgress
from supervisor.workspace.quarantines import Quarantines
from supervisor.workspace.trees.trees import COPY

# What a reader of a change is given from the start: so much of the diff, and references of so many
# changed files.
CHANGE_BYTES, MOST_REFERENCES = 100_000, 100
# In how much of an agent's output its answer is looked for.
ANSWER_BYTES = 2 << 20
type KeepAnswer = Callable[[str, dict[str, Any]], object]


class QuarantinedSessions:
    """The sessions in quarantine of one supervisor. `folder` has a folder for each session;
    `keep_answer` stores a checked answer with its session.
    """

    def __init__(self, quarantines: Quarantines, folder: Path, keep_answer: KeepAnswer) -> None:
        self._quarantines = quarantines
        self._folder = folder
        self._keep_answer = keep_answer
        self._changes: dict[str, str] = {}
        self._to_answer: set[str] = set()

    def check_room(self) -> None:
        """Raise `NoRoomError` if the most sessions that may be in quarantine at once
        already are.
        """
        self._quarantines.check_room()

    def open(self, session: Session) -> None:
        """Take one of the places."""
        self._quarantines.open(session.id, self._own(session) / COPY)
        if session.kind == "quarantine":
            self._to_answer.add(session.id)

    async def copy_workspace(
        self, session: Session, exclude: Sequence[Path], on_progress: OnProgress
    ) -> tuple[str, ...]:
        """Make the copy that it reads from; return notes for the person."""
        folder = self._own(session)
        for one in (folder, folder.parent / COPY):
            one.mkdir(mode=0o700)
        workspace = Path(session.workspace)
        made = await make_private_copy(
            workspace, folder, "copy", exclude=exclude, on_progress=on_progress
        )
        notes = await self._quarantines.look(session.id)
        if session.kind == "review":
            order = msgspec.json.decode(session.order or "{}", type=Order)
            change = await workspace_git.change(
                workspace, session.base, CHANGE_BYTES, since=order.since, paths=order.files
            )
            shown = self._quarantines.references(session.id, change["files"][:MOST_REFERENCES])
            text = msgspec.json.encode(change | {"references": shown}).decode()
            self._changes[session.id] = text
        return (*made.notes, *notes)

    def with_change(self, session: Session, spec: Spec) -> Spec:
        """Return the sandbox with what a reader is to review."""
        change = self._changes.pop(session.id, None)
        if change is None:
            return spec
        return msgspec.structs.replace(spec, home_files={**spec.home_files, CHANGE: change})

    async def take_answer(self, session: Session) -> None:
        """Check the agent's final answer, and keep what passes: once."""
        if session.id not in self._to_answer:
            return
        self._to_answer.remove(session.id)
        review: dict[str, Any] = {"model": session.agent, "base": None, "head": None}
        try:
            said = session_output.tail(self._folder / session.id, ANSWER_BYTES)
            answer = await self._quarantines.answered(session.id, read_answer(said))
            review |= msgspec.to_builtins(answer) | {"is_answer": True}
        except (BadAnswerError, GatehouseError) as error:
            self._quarantines.refused_answer(session.id, str(error))
            why = f"There is no answer: {inert(str(error))}"
            review |= {"verdict": "comment", "summary": why, "findings": [], "is_answer": False}
        self._keep_answer(session.id, review)

    async def close(self, session: Session) -> None:
        """End the quarantine: overwrite its key and remove its copy."""
        self._quarantines.close(session.id)
        self._changes.pop(session.id, None)
        await asyncio.to_thread(shutil.rmtree, self._own(session), ignore_errors=True)

    def _own(self, session: Session) -> Path:
        return self._folder / session.id / "quarantine"
