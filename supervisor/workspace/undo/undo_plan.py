"""Plan of an undo, path by path, with a token that stands for exactly this plan.

It merges where asked. It changes nothing on either side. It must never call a path undoable that
the person changed since.
"""

import asyncio
import contextlib
import os
from collections.abc import Sequence
from typing import Literal

import msgspec

from supervisor.core.actions import content_hash
from supervisor.core.files.change_card import ChangeCard, Side, make_card
from supervisor.core.files.changes import SPECIAL, Seen, Want, to_action
from supervisor.core.files.text_diff import MOST_TEXT_BYTES
from supervisor.core.files.undo_steps import (
    Effect,
    HeldContent,
    Restoration,
    Selection,
    chosen,
    held_of,
    is_same,
    kept_out_of,
    restorations,
)
from supervisor.errors import GatehouseError, NotFoundError, StorageError, UserError
from supervisor.workspace.apply.restore import piece_held
from supervisor.workspace.disk.beneath import Neighbours
from supervisor.workspace.disk.merging import MOST_MERGED_BYTES, merge_file
from supervisor.workspace.disk.scan import (
    TooLargeError,
    UnsteadyError,
    look,
    look_quietly,
    read_file,
)
from supervisor.workspace.trees.journal import encode_name
from supervisor.workspace.trees.repositories import RepositoryGuard
from supervisor.workspace.trees.trees import Sides

# `stays`: a folder that holds more than the session's entries, or was made anew since its removal.
# `nothing`: the path already has its old state.
Doing = Literal[
    "restored", "brought back", "removed", "mode", "merged", "stays", "nothing", "refused"
]


class UndoFile(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An undo's effect on one path. `problem` says why it can't be undone."""

    name: str
    doing: Doing
    to: HeldContent | None
    now: HeldContent | None
    problem: str = ""


class UndoPlan(msgspec.Struct, frozen=True, kw_only=True):
    """An undo's effects, in order. `token` names exactly this plan: pass it back to have it done.
    `undo` is the id of the undo that did it; `forgotten` says that older changes are no longer
    kept, and why."""

    what: str
    of: tuple[str, ...]
    files: tuple[UndoFile, ...]
    token: str
    undo: str = ""
    forgotten: str = ""

    @property
    def problems(self) -> list[UndoFile]:
        """Return the paths that prevent the undo."""
        return [file for file in self.files if file.problem]

    @property
    def effective(self) -> list[UndoFile]:
        """Return the paths that would change."""
        return [file for file in self.files if file.doing not in ("stays", "nothing", "refused")]


class UndoPlanner:
    """Plans undos of one session. `seen` is the last plan's look, by path, so that carrying out
    needn't read it again."""

    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        self.seen: dict[str, Seen] = {}
        self._before: dict[str, Seen] = {}
        self._last: dict[str, Effect] = {}

    async def plan(self, selection: Selection, *, merge: bool = False) -> UndoPlan:
        """Return the plan to take the selection back now. Raise `UserError` where there is nothing
        to take back.

        With `merge`, the person's later edits are merged where git can; otherwise those paths are
        problems.
        """
        if self._sides.history.open_undo is not None:
            raise StorageError(
                "an undo was cut short and isn't ended yet", "make room on the disk and start again"
            )
        history = self._sides.history.effects()
        ids = self._sides.history.requests_of(selection.ids)
        effects = chosen(history, msgspec.structs.replace(selection, ids=ids))
        if not effects:
            raise self._nothing(selection)
        self._last = {effect.name: effect for effect in history}
        wanted = restorations(history, effects)
        files = await asyncio.to_thread(self._examine_all, wanted)
        files = await asyncio.to_thread(self._without_repositories, files)
        if merge:
            files = [
                await self._merged(file, one) if file.doing == "refused" else file
                for file, one in zip(files, wanted, strict=True)
            ]
        of = tuple(dict.fromkeys(effect.request for effect in effects))
        token = content_hash(msgspec.json.encode((of, [_shown(file) for file in files])))
        what, forgotten = (
            self._words(selection, len(of)),
            "" if selection.ids else self._forgotten(),
        )
        return UndoPlan(what=what, of=of, files=tuple(files), token=token, forgotten=forgotten)

    def card(self, file: UndoFile) -> ChangeCard:
        """Return the difference that an undo would make to a path."""
        now, to = file.now, file.to
        old = self._side(now, host=file.name) if now is not None and now.kind == "file" else None
        new = self._side(to) if to is not None and to.kind == "file" else None
        return self._card_of(file, old, new)

    def _card_of(self, file: UndoFile, old: Side | None, new: Side | None) -> ChangeCard:
        now, to = file.now, file.to
        operation: Literal["write", "delete", "symlink", "mkdir"] = (
            "delete"
            if to is None
            else "symlink"
            if to.kind == "symlink"
            else "mkdir"
            if to.kind == "dir"
            else "write"
        )
        before, after = now.token if now else None, to.token if to else None
        target = to.link_target if to is not None and to.kind == "symlink" else None
        wanted = Want(operation, before, after, to.mode & 0o7777 if to else None, target)
        return make_card(to_action(file.name, wanted), old, new, before)

    def whole_change(self, name: str) -> ChangeCard | None:
        """Return the difference between a path before the session's first effect on it and after
        its last; None where there is none, or a content is no longer kept."""
        undos = self._sides.history.undos
        effects = [
            one
            for one in self._sides.history.effects()
            if one.name == name and one.request not in undos
        ]
        if not effects:
            return None
        before, after = effects[0].before, effects[-1].after
        sides = [self._kept_side(one, name) for one in (before, after)]
        if any(side is None for side in sides):
            return None
        now = UndoFile(name=name, doing="restored", to=after, now=before)
        return self._card_of(now, *(side or None for side in sides))

    def _kept_side(self, held: HeldContent | None, name: str) -> Side | Literal[False] | None:
        """Return a content that was once at a path: False where it was no file, None where it is
        no longer kept."""
        if held is None or held.kind != "file":
            return False
        data = self.content(held, MOST_TEXT_BYTES)
        if data is None and is_same(held_of(look_quietly(self._sides.host, name)), held):
            return self._side(held, host=name)
        return None if data is None else Side(data, len(data), held.mode)

    def _side(self, held: HeldContent, *, host: str | None = None) -> Side:
        if host is None:
            return Side(self.content(held, MOST_TEXT_BYTES), None, held.mode)
        try:
            data = read_file(self._sides.host, host, MOST_TEXT_BYTES + 1, cut=True)
        except (OSError, GatehouseError):
            data = None
        return Side(data, len(data) if data is not None else None, held.mode)

    def content(self, held: HeldContent | None, limit_bytes: int) -> bytes | None:
        """Return a file's old content, up to one byte more than the limit, or None where it is no
        file or no longer kept."""
        if held is None or held.kind != "file" or held.digest is None:
            return None
        kept = self._sides.history.kept
        found = kept.read(held.digest, limit_bytes)
        return found if found is not None else self._sides.blobs.read(held.digest, limit_bytes)

    def _nothing(self, selection: Selection) -> GatehouseError:
        went = f" ({text})" if (text := self._forgotten()) else ""
        if selection.ids:
            return NotFoundError(
                f"no applied change has the id `{selection.ids[0][:64]}`{went}",
                "see the session's timeline",
            )
        return UserError(
            f"no change was applied then that could be undone{went}", "see the session's timeline"
        )

    def _forgotten(self) -> str:
        gone = self._sides.history.forgotten
        return (
            f"{gone.number} older changes are no longer kept and stay as they are: {gone.why}"
            if gone.number
            else ""
        )

    def _words(self, selection: Selection, count: int) -> str:
        many = f"{count:,} change{'' if count == 1 else 's'}"
        if selection.ids:
            return many
        return (
            f"all {many}"
            if selection.after is None and selection.since is None
            else f"the last {many}"
        )

    # -- looking (in a thread) --------------------------------------------------------------------

    def _examine_all(self, wanted: Sequence[Restoration]) -> list[UndoFile]:
        swapped = {one.name for one in wanted if one.to is not None} & {
            one.name for one in wanted if one.to is None
        }
        gone: set[str] = set()
        folders = [one for one in wanted if one.expected is not None and one.expected.kind == "dir"]
        files: list[UndoFile] = []
        self._before, self.seen = self.seen, {}
        with contextlib.closing(Neighbours(self._sides.host)) as near:
            for one in wanted:
                file = self._examine(near, one, gone, folders, one.name in swapped)
                if one.to is None and file.doing in ("removed", "nothing"):
                    gone.add(one.name)
                files.append(file)
        return files

    def _without_repositories(self, files: Sequence[UndoFile]) -> list[UndoFile]:
        """Mark a problem at each path that, together with the others, would complete a git
        folder."""
        history, guard = (
            self._sides.history,
            RepositoryGuard(self._sides.host, self._sides.history.consents),
        )
        changing = [file for file in files if file.doing not in ("stays", "nothing", "refused")]
        made = {
            file.name: None if file.to is None else piece_held(file.to, history)
            for file in changing
        }
        whys = guard.not_back(made)
        return [
            (
                msgspec.structs.replace(file, doing="refused", problem=why)
                if (why := whys.get(file.name))
                else file
            )
            for file in files
        ]

    def _now(
        self, near: Neighbours, one: Restoration, folders: Sequence[Restoration]
    ) -> HeldContent | None:
        """Return a path's state. In a folder that stays shut until this undo opens it, return the
        state that the session left; it is compared once the folder is open."""
        try:
            seen = self._look(near, one)
        except PermissionError:
            if not kept_out_of(folders, one.name):
                raise
            return one.expected
        if seen is not None:
            self.seen[one.name] = seen
        return held_of(seen)

    def _look(self, near: Neighbours, one: Restoration) -> Seen | None:
        """Return a path's state. A file with the last plan's signature isn't read again if it can
        only be replaced by another file.

        INVARIANT: a replaced file is read again at that time (`placing`), but a removed one isn't,
        so it is read here.
        """
        before = self._before.get(one.name)
        is_replaced = (
            one.to is not None
            and one.to.kind == "file"
            and before is not None
            and before.kind == "file"
        )
        return look(near, one.name, known=before if is_replaced else None)

    def _examine(
        self,
        near: Neighbours,
        one: Restoration,
        gone: set[str],
        folders: Sequence[Restoration],
        is_swapped: bool,
    ) -> UndoFile:
        try:
            now = None if one.name in gone else self._now(near, one, folders)
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

    def _judge(
        self, one: Restoration, now: HeldContent | None, gone: set[str], is_swapped: bool
    ) -> tuple[Doing, str]:
        to = one.to
        if is_same(now, to):
            return "nothing", ""
        if (
            one.expected is None
            and now is not None
            and to is not None
            and now.kind == to.kind == "dir"
        ):
            return "stays", ""  # made anew since, as whoever did it meant it
        if not is_same(now, one.expected):
            return "refused", self._why_changed(one, now)
        if to is None:
            if now is None or now.kind != "dir" or self._will_be_empty(one.name, gone):
                return "removed", ""
            return (
                ("refused", "the folder holds what isn't the session's")
                if is_swapped
                else ("stays", "")
            )
        if to.kind in SPECIAL:
            return "refused", f"it was a {to.kind}, which isn't brought back"
        if to.kind == "file" and not self._sides.history.kept.has(to.digest or ""):
            return "refused", "what it held before is no longer kept"
        if now is None:
            return "brought back", ""
        return ("mode" if to.token == now.token else "restored"), ""

    def _why_changed(self, one: Restoration, now: HeldContent | None) -> str:
        """Return who changed it: the session's own later effect, or the person."""
        last = self._last.get(one.name)
        if last is not None and is_same(now, last.after) and not is_same(one.expected, last.after):
            return f"a later change of the session's is on top of it: undo {last.request} first"
        if now is None:
            return "deleted since by you or another session"
        return f"{'made' if one.expected is None else 'changed'} since by you or another session"

    def _will_be_empty(self, folder: str, gone: set[str]) -> bool:
        try:
            with self._sides.host.directory(folder) as fd:
                names = _listed(fd)
        except PermissionError:
            # it is opened before; if it isn't empty then, everything stays
            return True
        return all(f"{folder}/{leaf}" in gone for leaf in names)

    # -- merging ----------------------------------------------------------------------------------

    async def _merged(self, file: UndoFile, one: Restoration) -> UndoFile:
        to, base, now = one.to, one.expected, file.now
        if to is None or base is None or now is None or {to.kind, base.kind, now.kind} != {"file"}:
            return file
        contents = await asyncio.to_thread(self._three, one, file.name)
        if contents is None:
            return _refused(
                file,
                f"{file.problem}, and can't be merged: a content is no longer kept, or is too"
                " large",
            )
        merged = await merge_file(*contents)
        if merged.content is None:
            return _refused(file, f"{file.problem}, and can't be merged: {merged.why}")
        of_mode = (
            to if now.mode == base.mode else now
        )  # with its owner: a set-id bit is only for that one
        digest = await asyncio.to_thread(self._sides.history.kept.keep_bytes, merged.content)
        wanted = HeldContent("file", of_mode.mode, digest, uid=of_mode.uid, gid=of_mode.gid)
        doing: Doing = "nothing" if is_same(wanted, now) else "merged"
        return msgspec.structs.replace(file, doing=doing, to=wanted, problem="")

    def _three(self, one: Restoration, name: str) -> tuple[bytes, bytes, bytes] | None:
        """Return base (the last effect's result), ours (the person's edit), theirs (the state
        before)."""
        base, theirs = (
            self.content(one.expected, MOST_MERGED_BYTES),
            self.content(one.to, MOST_MERGED_BYTES),
        )
        try:
            ours = read_file(self._sides.host, name, MOST_MERGED_BYTES + 1)
        except (OSError, GatehouseError):
            return None
        return None if base is None or theirs is None else (base, ours, theirs)


def _shown(file: UndoFile) -> tuple[object, ...]:
    """Return the part of a path's state that a person saw: everything but times."""
    states = [None if held is None else (held.token, held.mode) for held in (file.now, file.to)]
    return (encode_name(file.name), file.doing, file.problem, *states)


def _refused(file: UndoFile, why: str) -> UndoFile:
    return msgspec.structs.replace(file, problem=why)


def _listed(fd: int) -> list[str]:
    with os.scandir(fd) as listing:
        return [entry.name for entry in listing]
