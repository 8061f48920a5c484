"""Undo: takes effects on the host back, all that was chosen or nothing, where the person hasn't changed it since.

It works from the session's history alone: what each path held before the first chosen effect is put back where the path
holds what the last one left. The operator asks for it, never the agent, so there is no grant; it is on the audit log by
its own events, and in the history like any effect: an undo can be undone.

The baseline stays as it is. So for the comparison an undo is an edit of the person's: the copy's state, which both sides
agreed on before, is not asked for again until the agent changes it, and then it is a conflict, which no rule answers.

It is separate from `restore`, which puts one path back, because the whole is decided here: what is shown first, what is
refused, and that kill -9 at any moment leaves an undo that the next start ends. It must never do what wasn't shown.
"""

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec
import structlog

from supervisor.core.actions import content_hash
from supervisor.core.change_card import ChangeCard, Side, make_card
from supervisor.core.changes import SPECIAL, Seen, Want, name_fields, to_action
from supervisor.core.text_diff import MOST_TEXT_BYTES
from supervisor.core.undoing import (
    Effect,
    Held,
    Restoration,
    Selection,
    chosen,
    held_of,
    in_force,
    is_same,
    restorations,
)
from supervisor.errors import GatehouseError, NotFoundError, StorageError, UserError
from supervisor.gate import Gate
from supervisor.workspace.journal import Step, UndoBegun, decode_name, encode_name
from supervisor.workspace.looking import read_file
from supervisor.workspace.merging import MOST_MERGED_BYTES, merge_file
from supervisor.workspace.placing import StaleError, clean_leftovers
from supervisor.workspace.restore import OPERATION, Restorer
from supervisor.workspace.scan import TooLargeError, UnsteadyError, look
from supervisor.workspace.sides import Sides
from supervisor.workspace.timeline import Timeline, line_counts, timeline
from supervisor.workspace.to_end import to_end

log = structlog.get_logger("undo")

# In the session's folder while an undo is under way, so that a start finds those that a crash cut short.
MARK = "undo.begun"
MOST_NAMED = 20

# `stays`: a folder that holds more than the session's. `nothing`: the path is as it was already.
Doing = Literal["restored", "brought back", "removed", "mode", "merged", "stays", "nothing", "refused"]


class UndoFile(msgspec.Struct, frozen=True, kw_only=True):
    """What an undo would do to one path. `problem` says why it can't."""

    name: str
    doing: Doing
    to: Held | None
    now: Held | None
    problem: str = ""


class UndoPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What an undo would do, in its order. `token` names exactly this: whoever has seen it gives it back to have it done.
    `undo` is the id of the undo that did it; `forgotten` says that older changes are no longer kept, and why."""

    what: str
    of: tuple[str, ...]
    files: tuple[UndoFile, ...]
    token: str
    undo: str = ""
    forgotten: str = ""

    @property
    def problems(self) -> list[UndoFile]:
        """The paths that keep all of it from being done."""
        return [file for file in self.files if file.problem]

    @property
    def effective(self) -> list[UndoFile]:
        """The paths that would change."""
        return [file for file in self.files if file.doing not in ("stays", "nothing", "refused")]


class UndoRefusedError(GatehouseError):
    """It can't be undone as a whole, so nothing was."""

    exit_code = 2
    http_status = 409


class Undo:
    """Of one session, over its opened sides. Whoever calls holds the session's turn.

    `woken(name)` is called for each path that was changed. `at` is `Applier`'s, for tests.
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
        self._seen: dict[str, Seen] = {}

    def timeline(self) -> Timeline:
        """What was applied and can be taken back, oldest first."""
        return timeline(self._sides.history)

    def line_counts(self, request: str) -> tuple[int, int] | None:
        """See `timeline.line_counts`."""
        return line_counts(self._sides, request)

    # -- what would be done -----------------------------------------------------------------------------------------------

    async def plan(self, selection: Selection, *, merge: bool = False) -> UndoPlan:
        """What taking the selection back would do now. `UserError` where there is nothing to take back.

        With `merge`, what the person edited since is merged where git can; otherwise those paths are problems.
        """
        if self._sides.history.open_undo is not None:
            raise StorageError("an undo was cut short and isn't ended yet", "make room on the disk and start again")
        history = self._sides.history.effects()
        effects = chosen(history, selection)
        if not effects:
            raise self._nothing(selection)
        wanted = restorations(history, effects)
        files = await asyncio.to_thread(self._examine_all, wanted)
        if merge:
            files = [
                await self._merged(file, one) if file.doing == "refused" else file
                for file, one in zip(files, wanted, strict=True)
            ]
        of = tuple(dict.fromkeys(effect.request for effect in effects))
        token = content_hash(msgspec.json.encode((of, [_shown(file) for file in files])))
        what, forgotten = self._words(selection, len(of)), "" if selection.ids else self._forgotten()
        return UndoPlan(what=what, of=of, files=tuple(files), token=token, forgotten=forgotten)

    def card(self, file: UndoFile) -> ChangeCard:
        """The difference that an undo would make to a path."""
        now, to = file.now, file.to
        operation: Literal["write", "delete", "symlink", "mkdir"] = (
            "delete" if to is None else "symlink" if to.kind == "symlink" else "mkdir" if to.kind == "dir" else "write"
        )
        before, after = now.token if now else None, to.token if to else None
        target = to.link_target if to is not None and to.kind == "symlink" else None
        wanted = Want(operation, before, after, to.mode & 0o7777 if to else None, target)
        old = self._side(now, host=file.name) if now is not None and now.kind == "file" else None
        new = self._side(to) if to is not None and to.kind == "file" else None
        return make_card(to_action(file.name, wanted), old, new, before)

    def _side(self, held: Held, *, host: str | None = None) -> Side:
        if host is None:
            return Side(self.content(held, MOST_TEXT_BYTES), None, held.mode)
        try:
            data = read_file(self._sides.host, host, MOST_TEXT_BYTES + 1, cut=True)
        except (OSError, GatehouseError):
            data = None
        return Side(data, len(data) if data is not None else None, held.mode)

    def content(self, held: Held | None, limit_bytes: int) -> bytes | None:
        """What a file held, up to one byte more than the limit; None where it is no file, or no longer kept."""
        if held is None or held.kind != "file" or held.digest is None:
            return None
        kept = self._sides.history.kept
        found = kept.read(held.digest, limit_bytes)
        return found if found is not None else self._sides.blobs.read(held.digest, limit_bytes)

    def _nothing(self, selection: Selection) -> GatehouseError:
        went = f" ({text})" if (text := self._forgotten()) else ""
        if selection.ids:
            return NotFoundError(
                f"no applied change has the id `{selection.ids[0][:64]}`{went}", "see the session's timeline"
            )
        return UserError(f"no change was applied then that could be undone{went}", "see the session's timeline")

    def _forgotten(self) -> str:
        gone = self._sides.history.forgotten
        return f"{gone.number} older changes are no longer kept and stay as they are: {gone.why}" if gone.number else ""

    def _words(self, selection: Selection, count: int) -> str:
        many = f"{count} change{'' if count == 1 else 's'}"
        if selection.ids:
            return many
        return f"all {many}" if selection.after is None and selection.since is None else f"the last {many}"

    # -- looking (in a thread) ----------------------------------------------------------------------------------------------

    def _examine_all(self, wanted: Sequence[Restoration]) -> list[UndoFile]:
        swapped = {one.name for one in wanted if one.to is not None} & {one.name for one in wanted if one.to is None}
        gone: set[str] = set()
        files: list[UndoFile] = []
        self._seen.clear()
        for one in wanted:
            file = self._examine(one, gone, one.name in swapped)
            if one.to is None and file.doing in ("removed", "nothing"):
                gone.add(one.name)
            files.append(file)
        return files

    def _examine(self, one: Restoration, gone: set[str], is_swapped: bool) -> UndoFile:
        try:
            seen = None if one.name in gone else look(self._sides.host, one.name)
            if seen is not None:
                self._seen[one.name] = seen
            now = held_of(seen)
            doing, problem = self._judge(one, now, gone, is_swapped)
        except UnsteadyError:
            now, doing, problem = None, "refused", "it is being written to"
        except TooLargeError:
            now, doing, problem = None, "refused", "it is too large now"
        except GatehouseError as error:
            now, doing, problem = None, "refused", error.message
        except OSError as error:
            now, doing, problem = None, "refused", f"it can't be read: {error.strerror}"
        return UndoFile(name=one.name, doing=doing, to=one.to, now=now, problem=problem)

    def _judge(self, one: Restoration, now: Held | None, gone: set[str], is_swapped: bool) -> tuple[Doing, str]:
        to = one.to
        if is_same(now, to):
            return "nothing", ""
        if not is_same(now, one.expected):
            return "refused", self._why_changed(one, now)
        if to is None:
            if now is None or now.kind != "dir" or self._will_be_empty(one.name, gone):
                return "removed", ""
            return ("refused", "the folder holds what isn't the session's") if is_swapped else ("stays", "")
        if to.kind in SPECIAL:
            return "refused", f"it was a {to.kind}, which isn't brought back"
        if to.kind == "file" and not self._sides.history.kept.has(to.digest or ""):
            return "refused", "what it held before is no longer kept"
        if now is None:
            return "brought back", ""
        return ("mode" if to.token == now.token else "restored"), ""

    def _why_changed(self, one: Restoration, now: Held | None) -> str:
        """Who changed it: the session's own later effect, or the person."""
        for effect in reversed(self._sides.history.effects()):
            if effect.name == one.name:
                if is_same(now, effect.after) and not is_same(one.expected, effect.after):
                    return f"a later change of the session's is on top of it: undo {effect.request} first"
                break
        if now is None:
            return "you deleted it since"
        return "you made it since" if one.expected is None else "you changed it since"

    def _will_be_empty(self, folder: str, gone: set[str]) -> bool:
        with self._sides.host.directory(folder) as fd:
            return all(f"{folder}/{leaf}" in gone for leaf in _listed(fd))

    # -- merging ------------------------------------------------------------------------------------------------------------

    async def _merged(self, file: UndoFile, one: Restoration) -> UndoFile:
        to, base, now = one.to, one.expected, file.now
        if to is None or base is None or now is None or {to.kind, base.kind, now.kind} != {"file"}:
            return file
        contents = await asyncio.to_thread(self._three, one, file.name)
        if contents is None:
            return _refused(file, f"{file.problem}, and can't be merged: a content is no longer kept, or is too large")
        merged = await merge_file(*contents)
        if merged.content is None:
            return _refused(file, f"{file.problem}, and can't be merged: {merged.why}")
        mode = to.mode if now.mode == base.mode else now.mode
        digest = await asyncio.to_thread(self._sides.history.kept.keep_bytes, merged.content)
        wanted = Held("file", mode, digest)
        doing: Doing = "nothing" if is_same(wanted, now) else "merged"
        return msgspec.structs.replace(file, doing=doing, to=wanted, problem="")

    def _three(self, one: Restoration, name: str) -> tuple[bytes, bytes, bytes] | None:
        """Base (what the last effect left), ours (what the person made of it), theirs (what was before)."""
        base, theirs = self.content(one.expected, MOST_MERGED_BYTES), self.content(one.to, MOST_MERGED_BYTES)
        try:
            ours = read_file(self._sides.host, name, MOST_MERGED_BYTES + 1)
        except (OSError, GatehouseError):
            return None
        return None if base is None or theirs is None else (base, ours, theirs)

    # -- doing it -----------------------------------------------------------------------------------------------------------

    async def carry_out(self, selection: Selection, *, token: str, by: str, merge: bool = False) -> UndoPlan:
        """Take the selection back, which was shown as the plan with this `token`. All of it is done, or nothing.

        Raises StaleError where what would be done isn't what was shown, UndoRefusedError with each path that can't be
        undone and why, or another GatehouseError.
        """
        plan = await self.plan(selection, merge=merge)
        if plan.problems:
            raise UndoRefusedError(_listing("nothing was undone", plan.problems), "undo less, or merge: --merge")
        if plan.token != token:
            raise StaleError("what undoing would do is no longer what was shown; nothing was undone", "look again")
        if not plan.effective:
            raise UserError("nothing would change: everything is as it was before", "see the session's timeline")
        steps = tuple(Step(encode_name(file.name), file.to, file.now) for file in plan.effective)
        undo_id = f"undo-{self._session_id}-{secrets.token_hex(4)}"
        undo = UndoBegun(undo_id, by, plan.what, self._sides.history.now(), plan.of, steps)
        self._gate.audit.record(
            "undo_started", session=self._session_id, undo=undo.id, by=by, of=list(plan.of[:MOST_NAMED]),
            files=[_text(file.name) for file in plan.effective[:MOST_NAMED]], count=len(steps), merge=merge,
        )  # fmt: skip
        await self._finish(undo, resumed=False)
        return msgspec.structs.replace(plan, undo=undo.id)

    async def recover(self) -> None:
        """End an undo that a crash cut short: finish it, or roll it back where it can't be."""
        undo = self._sides.history.open_undo
        if undo is None:
            await asyncio.to_thread(self._mark.unlink, missing_ok=True)
            return
        await asyncio.to_thread(clean_leftovers, self._sides.host, list(self._sides.history.open.values()))
        try:
            await self._finish(undo, resumed=True)
        except GatehouseError as error:
            log.warning("an undo that a crash cut short was not finished", undo=undo.id, error=str(error))

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
                "undo_settled", session=self._session_id, undo=undo.id, by=undo.by, resumed=resumed, **detail
            )
        except StorageError as failure:  # it has happened: what isn't on record stops the next effect, not this
            log.error("undo not recorded", undo=undo.id, error=str(failure))
        if error is not None:
            raise error

    def _do(self, undo: UndoBegun, *, resumed: bool) -> GatehouseError | None:
        """In a thread: forward, or back. None where all of it is done."""
        history = self._sides.history
        try:
            if resumed:
                self._seen.clear()
                self._confirm_what_happened(undo)
            else:
                self._mark.touch()
                history.begin_undo(undo)
            self._at("begun")
            with self._restorer.together():
                error = self._forward(undo)
                left = self._back(undo) if error is not None else []
            self._at("ending")
            history.end_undo(undo, rolled_back=error is not None and not left)
        except OSError as failure:
            return StorageError(
                f"the undo was cut short: {failure.strerror}", "make room; it is ended when the session is next opened"
            )
        self._mark.unlink(missing_ok=True)
        if error is None:
            return None
        if left:
            named = ", ".join(f"`{_text(name)}`" for name in left[:MOST_NAMED])
            return UndoRefusedError(
                f"{error.message}; and {named} could not be put back as before the undo", "look at it"
            )
        return UndoRefusedError(f"{error.message}; nothing was undone", error.remedy)

    def _confirm_what_happened(self, undo: UndoBegun) -> None:
        """A crash came between an effect and its line: the host says whether it happened."""
        history = self._sides.history
        for intent in [intent for intent in history.open.values() if intent.request == undo.id]:
            if self._holds(decode_name(intent.name), intent.after):
                history.confirm_alone(undo.id, decode_name(intent.name))

    def _forward(self, undo: UndoBegun) -> GatehouseError | None:
        history = self._sides.history
        done = {intent.name: intent.after for intent in history.done if intent.request == undo.id}
        last = {step.name: step.to for step in undo.steps}
        for step in undo.steps:
            name = decode_name(step.name)
            if step.name in done and any(is_same(done[step.name], to) for to in (step.to, last[step.name])):
                continue  # before a crash; what the person made of it since is theirs
            seen = self._seen.pop(name, None)
            try:
                if self._restorer.restore(undo.id, name, step.to, step.expected, seen).changed:
                    history.confirm_alone(undo.id, name)
                self._at("step")
            except GatehouseError as error:
                return error
        return None

    def _back(self, undo: UndoBegun) -> list[str]:
        """Take back what was done of an undo; the paths where that isn't possible any more."""
        history = self._sides.history
        left: list[str] = []
        for intent in reversed([intent for intent in history.done if intent.request == undo.id]):
            name = decode_name(intent.name)
            try:
                if self._restorer.restore(undo.id, name, intent.before, intent.after).changed:
                    history.confirm_alone(undo.id, name)
                self._at("back")
            except GatehouseError as error:
                log.error("an undo could not be rolled back", undo=undo.id, path=name, error=str(error))
                left.append(name)
        return left

    def _holds(self, name: str, held: Held | None) -> bool:
        try:
            return is_same(held_of(look(self._sides.host, name)), held)
        except (OSError, GatehouseError, UnsteadyError, TooLargeError):
            return False

    # -- telling ------------------------------------------------------------------------------------------------------------

    def _tell_agent(self, undo: UndoBegun, earlier: Sequence[Effect]) -> None:
        """Say it with each request that isn't in force any more, or is again: whoever asks for it hears why."""
        undos = {one.id: one.of for one in self._sides.history.undos.values()}
        done = [
            Effect(0, undo.id, decode_name(step.name), OPERATION, step.expected, step.to, undo.at)
            for step in undo.steps
        ]
        before, after = in_force(earlier, undos), in_force([*earlier, *done], undos)
        gone = [one for one in before - after if one not in undos]
        again = [one for one in after - before if one not in undos]
        why = f"taken back by {undo.by}; it is not applied again unless you change it again"
        try:
            self._gate.note_taken_back({**dict.fromkeys(gone, why), **dict.fromkeys(again)})
        except StorageError as failure:
            log.error("requests don't say that they were undone", undo=undo.id, error=str(failure))


@contextlib.asynccontextmanager
async def reopened(
    session_id: str, workspace: Path, folder: Path, gate: Gate, protected: Sequence[Path]
) -> AsyncIterator[Undo]:
    """The undo of a session that has ended. `NotFoundError` where nothing of it is left to work with.

    One at a time for each session: whoever calls sees to that.
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


def _shown(file: UndoFile) -> tuple[object, ...]:
    """What of a path a person saw: times aren't part of it."""
    states = [None if held is None else (held.token, held.mode) for held in (file.now, file.to)]
    return (encode_name(file.name), file.doing, file.problem, *states)


def _refused(file: UndoFile, why: str) -> UndoFile:
    return msgspec.structs.replace(file, problem=why)


def _listing(text: str, files: Sequence[UndoFile]) -> str:
    named = "; ".join(f"`{_text(file.name)}`: {file.problem}" for file in files[:MOST_NAMED])
    more = f"; and {len(files) - MOST_NAMED} more" if len(files) > MOST_NAMED else ""
    return f"{text}: {named}{more}"


def _text(name: str) -> str:
    return name_fields(name)[0]


def _listed(fd: int) -> list[str]:
    with os.scandir(fd) as listing:
        return [entry.name for entry in listing]
