"""Undo: take chosen effects on the host back, all or nothing.

It works only from the session's history: each path gets back what it held before the first chosen
effect, if it still holds the result of the last one. The operator asks for it, never the agent, so
there is no grant. It has its own audit events, and the history has it like any effect: an undo can
be undone.

The baseline stays as it is, so for the comparison an undo is an edit of the person's. The copy's
state, which both sides agreed on before, is not asked for again until the agent changes it. Then it
is a conflict, which no rule answers.

It is all or nothing, also after kill -9 at any moment: the next start finishes an interrupted undo
or rolls it back. It must never do what wasn't shown.
"""

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from supervisor.base import log
from supervisor.base.event_loop import to_end
from supervisor.core.files.change_card import ChangeCard
from supervisor.core.files.changes import name_fields
from supervisor.core.files.undo_steps import (
    Effect,
    HeldContent,
    Restoration,
    Selection,
    held_of,
    in_force_until,
    is_same,
    with_open_folders,
)
from supervisor.errors import GatehouseError, NotFoundError, StorageError, UserError
from supervisor.gate.gate import Gate
from supervisor.workspace.apply.crash_leftovers import clean_leftovers
from supervisor.workspace.apply.restore import OPERATION, Restorer, StagedBack
from supervisor.workspace.disk.host_errors import StaleError
from supervisor.workspace.disk.scan import TooLargeError, UnsteadyError, look
from supervisor.workspace.trees.journal import Step, UndoBegun, decode_name, encode_name
from supervisor.workspace.trees.trees import Sides
from supervisor.workspace.undo.timeline import Timeline, line_counts, timeline
from supervisor.workspace.undo.undo_plan import UndoFile, UndoPlan, UndoPlanner

# In the session's folder during an undo, so that the next start finds an interrupted one.
MARK = "undo.begun"
MOST_NAMED = 20
# Number of files to write and sync before the first of them is placed.
TOGETHER = 200


class UndoRefusedError(GatehouseError):
    """Part of it can't be undone, so nothing was."""

    exit_code = 2
    http_status = 409


class Undo:
    """Undo in one session, over its opened sides. The caller holds the session's turn.

    `woken(name)` is called for each changed path. `at` is `Applier`'s, for tests.
    """

    def __init__(
        self,
        sides: Sides,
        gate: Gate,
        session_id: str,
        folder: Path,
        *,
        woken: Callable[[str], None] = lambda name: None,
        at: Callable[[str], None] = lambda step: None,
    ) -> None:
        self._sides = sides
        self._gate = gate
        self._session_id = session_id
        self._mark = folder / MARK
        self._woken = woken
        self._at = at
        self._restorer = Restorer(sides.host, sides.history, at=at)
        self._planner = UndoPlanner(sides)

    # -- looking back -----------------------------------------------------------------------------

    def timeline(self, of: str = "") -> Timeline:
        """Return what was applied and can be taken back, oldest first. See `timeline.timeline`."""
        return timeline(self._sides.history, of)

    def line_counts(self, row_id: str) -> tuple[int, int] | None:
        """See `timeline.line_counts`."""
        return line_counts(self._sides, row_id)

    def undos(self) -> list[UndoBegun]:
        """Return what was undone, oldest first."""
        return list(self._sides.history.undos.values())

    def batches_of(self, requests: Iterable[str]) -> dict[str, str]:
        """Return by request the id under which it was answered together with others."""
        wanted = set(requests)
        return {
            request: batch
            for batch, together in self._sides.history.batches.items()
            if len(together) > 1
            for request in together
            if request in wanted
        }

    @property
    def sides(self) -> Sides:
        """Return host and copy, to read them."""
        return self._sides

    def whole_change(self, name: str) -> ChangeCard | None:
        """Return what the session made of a path, against what was there before; None where it
        changed nothing there, or that is no longer kept."""
        return self._planner.whole_change(name)

    # -- what would be done -----------------------------------------------------------------------

    async def plan(self, selection: Selection, *, merge: bool = False) -> UndoPlan:
        """See `UndoPlanner.plan`."""
        return await self._planner.plan(selection, merge=merge)

    def card(self, file: UndoFile) -> ChangeCard:
        """See `UndoPlanner.card`."""
        return self._planner.card(file)

    # -- doing it ---------------------------------------------------------------------------------

    async def carry_out(
        self, selection: Selection, *, token: str, by: str, merge: bool = False
    ) -> UndoPlan:
        """Take back the selection that was shown as the plan with this `token`: all of it, or
        nothing.

        Raise StaleError where the plan has changed since it was shown, UndoRefusedError with each
        path that can't be undone and why, or another GatehouseError.
        """
        plan = await self.plan(selection, merge=merge)
        if plan.problems:
            raise UndoRefusedError(
                _listing("nothing was undone", plan.problems), "undo less, or merge: --merge"
            )
        if plan.token != token:
            raise StaleError(
                "what undoing would do is no longer what was shown; nothing was undone",
                "look again",
            )
        if not plan.effective:
            raise UserError(
                "nothing would change: everything is as it was before", "see the session's timeline"
            )
        wanted = [Restoration(file.name, file.to, file.now) for file in plan.effective]
        steps = tuple(
            Step(encode_name(one.name), one.to, one.expected) for one in with_open_folders(wanted)
        )
        undo_id = f"undo-{self._session_id}-{secrets.token_hex(4)}"
        undo = UndoBegun(undo_id, by, plan.what, self._sides.history.now(), plan.of, steps)
        self._gate.audit.record(
            "undo_started", session=self._session_id, undo=undo.id, by=by,
            of=list(plan.of[:MOST_NAMED]),
            files=[_text(file.name) for file in plan.effective[:MOST_NAMED]], count=len(wanted),
            merge=merge,
        )  # fmt: skip
        await self._finish(undo, resumed=False)
        return msgspec.structs.replace(plan, undo=undo.id)

    async def recover(self) -> None:
        """End an undo that a crash cut short: finish it, or roll it back where that isn't
        possible."""
        undo = self._sides.history.open_undo
        if undo is None:
            await asyncio.to_thread(self._mark.unlink, missing_ok=True)
            return
        intents = list(self._sides.history.open.values())
        self._sides.left_behind |= await asyncio.to_thread(
            clean_leftovers, self._sides.host, intents
        )
        try:
            await self._finish(undo, resumed=True)
        except GatehouseError as error:
            log.warning(
                "an undo that a crash cut short was not finished", undo=undo.id, error=str(error)
            )

    async def _finish(self, undo: UndoBegun, *, resumed: bool) -> None:
        earlier = [effect for effect in self._sides.history.effects() if effect.request != undo.id]
        error = await to_end(lambda: self._do(undo, resumed=resumed))
        for step in undo.steps:
            self._woken(decode_name(step.name))
        if error is None:
            self._tell_agent(undo, earlier)
        detail = {"outcome": "failed", "error": str(error)} if error else {"outcome": "done"}
        try:
            self._gate.audit.record(
                "undo_settled",
                session=self._session_id,
                undo=undo.id,
                by=undo.by,
                resumed=resumed,
                **detail,
            )
        except (
            StorageError
        ) as failure:  # it has happened: what isn't on record stops the next effect, not this
            log.error("undo not recorded", undo=undo.id, error=str(failure))
        if error is not None:
            raise error

    def _do(self, undo: UndoBegun, *, resumed: bool) -> GatehouseError | None:
        """In a thread: do the undo, or roll it back. Return None where all of it is done."""
        history = self._sides.history
        try:
            if resumed:
                self._planner.seen.clear()
                self._confirm_what_happened(undo)
            else:
                self._mark.touch()
                history.begin_undo(undo)
            self._at("begun")
            with self._restorer.together(), history.counting(len(undo.steps)):
                error = self._forward(undo)
                left = self._back(undo) if error is not None else []
            self._at("ending")
            history.end_undo(undo, rolled_back=error is not None and not left)
        except OSError as failure:
            return StorageError(
                f"the undo was cut short: {failure.strerror}",
                "make room; it is ended when the session is next opened",
            )
        self._mark.unlink(missing_ok=True)
        if error is None:
            return None
        if left:
            named = ", ".join(f"`{_text(name)}`" for name in left[:MOST_NAMED])
            return UndoRefusedError(
                f"{error.message}; and {named} could not be put back as before the undo",
                "look at it",
            )
        return UndoRefusedError(f"{error.message}; nothing was undone", error.remedy)

    def _confirm_what_happened(self, undo: UndoBegun) -> None:
        """Confirm effects whose line a crash prevented, by the host's state."""
        history = self._sides.history
        for intent in [intent for intent in history.open.values() if intent.request == undo.id]:
            if self._holds(decode_name(intent.name), intent.after):
                history.confirm_alone(undo.id, decode_name(intent.name))

    def _forward(self, undo: UndoBegun) -> GatehouseError | None:
        history = self._sides.history
        done = {intent.name: intent.after for intent in history.done if intent.request == undo.id}
        # Steps done before a crash are left out: the person's later changes there stay.
        passed = {
            step.name: number
            for number, step in enumerate(undo.steps)
            if step.name in done and is_same(done[step.name], step.to)
        }
        left = [
            step for number, step in enumerate(undo.steps) if number > passed.get(step.name, -1)
        ]
        for at in range(0, len(left), TOGETHER):
            error = self._forward_some(undo, left[at : at + TOGETHER])
            if error is not None:
                return error
        return None

    def _forward_some(self, undo: UndoBegun, steps: Sequence[Step]) -> GatehouseError | None:
        """Do these steps in order; staged files come first, and are synced together."""
        times = Counter(step.name for step in undo.steps)
        staged: dict[str, StagedBack] = {}
        try:
            with self._restorer.staging_together():
                for step in steps:
                    name = decode_name(step.name)
                    ready = None
                    if times[step.name] == 1:  # else something goes from there before
                        seen = self._planner.seen.get(name)
                        ready = self._restorer.stage(undo.id, name, step.to, step.expected, seen)
                    if ready is not None:
                        staged[step.name] = ready
            for step in steps:
                self._step(undo, step, staged.pop(step.name, None))
        except GatehouseError as error:
            return error
        finally:
            for one in staged.values():
                self._restorer.unstage(one)
        return None

    def _step(self, undo: UndoBegun, step: Step, staged: StagedBack | None) -> None:
        name = decode_name(step.name)
        self._sides.history.count()
        seen = self._planner.seen.pop(name, None)
        if staged is not None:
            applied = self._restorer.place(staged)
        else:
            applied = self._restorer.restore(undo.id, name, step.to, step.expected, seen)
        if applied.changed:
            self._sides.history.confirm_alone(undo.id, name)
        self._at("step")

    def _back(self, undo: UndoBegun) -> list[str]:
        """Take an undo's own effects back. Return the paths where that is no longer possible."""
        history = self._sides.history
        left: list[str] = []
        for intent in reversed([intent for intent in history.done if intent.request == undo.id]):
            name = decode_name(intent.name)
            try:
                if self._restorer.restore(undo.id, name, intent.before, intent.after).changed:
                    history.confirm_alone(undo.id, name)
                self._at("back")
            except GatehouseError as error:
                log.error(
                    "an undo could not be rolled back", undo=undo.id, path=name, error=str(error)
                )
                left.append(name)
        return left

    def _holds(self, name: str, held: HeldContent | None) -> bool:
        try:
            return is_same(held_of(look(self._sides.host, name)), held)
        except (OSError, GatehouseError, UnsteadyError, TooLargeError):
            return False

    # -- telling ----------------------------------------------------------------------------------

    def _tell_agent(self, undo: UndoBegun, earlier: Sequence[Effect]) -> None:
        """Note the undo with each request that is no longer in force, or is again, for an agent
        that asks."""
        undos = {one.id: one.of for one in self._sides.history.undos.values()}
        done = [
            Effect(0, undo.id, decode_name(step.name), OPERATION, step.expected, step.to, undo.at)
            for step in undo.steps
        ]
        before, after = in_force_until(earlier, done, undos)
        gone = [one for one in before - after if one not in undos]
        again = [one for one in after - before if one not in undos]
        why = f"taken back by {undo.by}; it is not applied again unless you change it again"
        try:
            self._gate.pending_writes.note_taken_back(
                {**dict.fromkeys(gone, why), **dict.fromkeys(again)}
            )
        except StorageError as failure:
            log.error("requests don't say that they were undone", undo=undo.id, error=str(failure))


@contextlib.asynccontextmanager
async def reopened(
    session_id: str, workspace: Path, folder: Path, gate: Gate, protected: Sequence[Path]
) -> AsyncIterator[Undo]:
    """Open the undo of a session that has ended. Raise `NotFoundError` where nothing of it is left
    to work with.

    The caller must ensure that only one is open per session.
    """
    try:
        sides = await asyncio.to_thread(lambda: Sides(workspace, folder, protected))
    except OSError as error:
        raise NotFoundError(
            f"what this session did can't be undone any more: {error.strerror}: `{error.filename}`",
            "take what was there from a backup or from git",
        ) from error
    try:
        undo = Undo(sides, gate, session_id, folder)
        await undo.recover()
        yield undo
    finally:
        sides.close()


def _listing(text: str, files: Sequence[UndoFile]) -> str:
    named = "; ".join(f"`{_text(file.name)}`: {file.problem}" for file in files[:MOST_NAMED])
    more = f"; and {len(files) - MOST_NAMED} more" if len(files) > MOST_NAMED else ""
    return f"{text}: {named}{more}"


def _text(name: str) -> str:
    return name_fields(name)[0]
