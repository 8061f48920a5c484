"""File requests from the agent's API: write, edit, delete or move.

Each request names exact content. This module only asks: `effects` carries out what the gate allows.
The caller holds the channel's turn. It must never give a new request an id before an older one for
the same path is superseded, lose a waiting edit when another is asked for, or reveal to the agent
the content of a host file that its copy was never given.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Collection
from typing import NamedTuple

from supervisor.core.actions import WORKSPACE, FileChange, FileOperation, content_hash, subject
from supervisor.core.actions import decode as decode_action
from supervisor.core.approvals import SUPERSEDED, Request, status
from supervisor.core.files.changes import (
    EditError,
    Seen,
    Want,
    apply_edit,
    apply_edits,
    conflict,
    name_of,
    names_of,
    to_action,
)
from supervisor.core.files.new_folders import with_way
from supervisor.core.policy.git_folders import has_piece
from supervisor.errors import RefusedError, UserError
from supervisor.gate.audit_lines import record_refusal
from supervisor.gate.gate import Gate
from supervisor.workspace.apply.agent_edits import Edits
from supervisor.workspace.apply.effects import Effects
from supervisor.workspace.disk.beneath import PathError
from supervisor.workspace.disk.host_errors import StaleError, stale
from supervisor.workspace.disk.scan import (
    LARGEST_EDIT_BYTES,
    TooLargeError,
    UnsteadyError,
    decode,
    encode,
    look,
    read_file,
)
from supervisor.workspace.trees.repositories import Repositories
from supervisor.workspace.trees.secrets_seen import hazards_of_kept
from supervisor.workspace.trees.trees import Sides, Ways

COPY_INSIDE = f"{WORKSPACE}/"
CONTAINED = "contained in the newer request for this file"
MOVED = "superseded by a move of this file; edit it under its new name once it is moved"


class _Text(NamedTuple):
    """The content that an edit is made on. `before` is the host's state, which the request is
    about."""

    before: str | None
    operation: FileOperation
    mode: int
    content: bytes


class AgentChanges:
    """Requests about files that the agent of one session makes through its API."""

    def __init__(self, sides: Sides, gate: Gate, session_id: str, effects: Effects) -> None:
        self._sides = sides
        self._gate = gate
        self._session_id = session_id
        self._effects = effects

    async def write(self, path: str, content: bytes, reason: str) -> Request:
        """Ask to put `content` at `path`, on the host and in the copy, once it is allowed.

        The gate answers an impossible path with a recorded denial. An older request for the same
        file is superseded before the new one has an id.
        """
        name = canonical(path)
        action = FileChange(operation="write", path=name)
        await self._prepare(action, reason)
        host = await asyncio.to_thread(self._look_at_host, name)
        is_known_folder = (
            host is not None and host.kind == "dir" and self._sides.known(name) is not None
        )
        if (
            is_known_folder
            and self._gate.rulings.verdict(action, self._session_id).decision != "deny"
        ):
            raise UserError(f"can't write `{name}`: it is a folder", "choose another name")
        after = await asyncio.to_thread(self._sides.blobs.keep, content)
        is_file = host is not None and host.kind == "file"
        hazards = (
            *(("symlink",) if host is not None and host.kind == "symlink" else ()),
            *self._conflict(name, host),
        )
        wanted = Want(
            "write",
            host.token if host else None,
            after,
            host.mode & 0o777 if host is not None and is_file else 0o644,
            hazards=await self._with_secrets(name, hazards, after),
        )
        return await self._ask(to_action(name, wanted), reason)

    async def edit(self, path: str, old: str, new: str, replace_all: bool, reason: str) -> Request:
        """Ask to replace `old` by `new` in the file, which must hold it exactly once, or at least
        once with `replace_all`.

        While an earlier write or edit of the same file waits, this edit is made on its content, and
        the new request holds both. Raise `UserError` where the edit doesn't fit: then nothing is
        asked, and the earlier request keeps waiting.
        """
        name = canonical(path)
        if denied := await self._prepare(FileChange(operation="edit", path=name), reason):
            return denied
        edit = (old, new, replace_all)
        for older in self._pending(name):
            action = self._effects.action_of(older)
            if older.origin == "agent_api" and action.operation in ("write", "edit"):
                return await self._add_edit(older, action, edit, reason)
        text = await asyncio.to_thread(self._host_text, name)
        after = await asyncio.to_thread(
            self._edited, name, text.content, lambda now: apply_edit(now, *edit)
        )
        return await self._ask_edit(name, text, after, Edits("", (edit,), (reason,)), SUPERSEDED)

    async def delete(self, path: str, reason: str) -> Request:
        """Ask to delete a file, a link or an empty folder. Raise `UserError` where there is none,
        or the folder isn't empty.

        If the file's creation still waits, that request is closed and returned.
        """
        name = canonical(path)
        if denied := await self._prepare(FileChange(operation="delete", path=name), reason):
            return denied
        host = await asyncio.to_thread(self._look_at_host, name)
        if host is None:
            for older in self._pending(name):
                if older.origin == "agent_api" and self._effects.action_of(older).to is None:
                    self._gate.answers.close(
                        "the agent asked to delete it before it was answered", older.id
                    )
                    return self._gate.queue.get(older.id)
        host = self._seen_by_agent(name, host, "delete")
        if host.kind == "dir" and await asyncio.to_thread(self._holds_something, name):
            raise UserError(
                f"can't delete `{name}`: the folder holds something",
                "delete the files in it one by one",
            )
        wanted = Want("delete", host.token, hazards=self._conflict(name, host))
        return await self._ask(to_action(name, wanted), reason)

    async def move(self, path: str, to: str, reason: str) -> Request:
        """Ask to move a file to a free path. Raise `UserError` where it can't be moved there."""
        name, new = canonical(path), canonical(to)
        if not new.isprintable():
            raise UserError(
                "the new name holds what can't be shown", "choose letters, digits and signs"
            )
        action = FileChange(operation="rename", path=name, to=new)
        if denied := await self._prepare(action, reason):
            return denied
        if name == new:
            raise UserError(f"`{name}` is where it is to be moved", "name another path")
        host, there = await asyncio.to_thread(
            lambda: (self._look_at_host(name), self._look_at_host(new))
        )
        host = self._seen_by_agent(name, host, "move")
        if host.kind != "file":
            raise UserError(
                f"can't move `{name}`: it is a {_KINDS.get(host.kind, host.kind)}",
                "move files one by one",
            )
        if there is not None:
            raise UserError(
                f"can't move `{name}`: there is something at `{new}` on the host",
                "delete it first, or choose another name",
            )
        hazards = self._conflict(name, host)
        action = FileChange(
            operation="rename",
            path=name,
            to=new,
            before=host.token,
            after=host.token,
            hazards=hazards,
        )
        return await self._ask(action, reason, MOVED)

    async def host_changed(self, names: Collection[str]) -> None:
        """Ask again about waiting requests for these paths, which the person changed, against the
        host's new content.

        An edit that still fits stays the same edit. A complete file that was written without
        knowing the change is a conflict, even where the copy has followed the host by now. A
        request that no longer fits is closed with the reason.
        """
        if not names:
            return
        for request in self._gate.queue.pending_about(
            self._session_id, {_subject(name) for name in names}
        ):
            if request.origin == "agent_api" and isinstance(request.action, FileChange):
                with contextlib.suppress(
                    UserError, StaleError
                ):  # it is being written to: the next look will tell
                    await self._ask_anew(request, self._effects.action_of(request))

    # -- edits ------------------------------------------------------------------------------------

    async def _add_edit(
        self, older: Request, action: FileChange, edit: tuple[str, str, bool], reason: str
    ) -> Request:
        """Add another edit to a waiting request for the same file."""
        name = name_of(action)
        known = self._effects.edits.of(name, older.id)
        before = await asyncio.to_thread(self._look_at_host, name)
        if (before.token if before else None) == action.before:
            content = await asyncio.to_thread(self._waiting_content, action)
            text = _Text(action.before, action.operation, action.mode or 0o644, content)
            try:
                after = await asyncio.to_thread(
                    self._edited, name, content, lambda now: apply_edit(now, *edit)
                )
            except UserError:
                if known is not None and known.edits[-1] == edit:
                    return older  # the same was sent again
                raise
        elif known is not None:  # the person saved in between: all edits anew, on that
            text = await asyncio.to_thread(self._host_text, name)
            edits = (*known.edits, edit)
            after = await asyncio.to_thread(
                self._edited, name, text.content, lambda now: apply_edits(now, edits)
            )
        else:
            raise stale(name)
        held = None
        if action.operation == "edit" and known is not None:
            held = Edits("", (*known.edits, edit), (*known.reasons, reason))
        said = "; ".join(filter(None, (reason, older.reason)))
        return await self._ask_edit(name, text, after, held, CONTAINED, said, action.hazards)

    async def _ask_edit(
        self,
        name: str,
        text: _Text,
        after: str,
        held: Edits | None,
        superseding: str,
        reason: str = "",
        hazards: tuple[str, ...] = (),
    ) -> Request:
        hazards = await self._with_secrets(name, hazards, after)
        wanted = Want(text.operation, text.before, after, text.mode, hazards=hazards)
        request = await self._ask(
            to_action(name, wanted), held.reason if held else reason, superseding
        )
        if held is not None:
            self._effects.edits.remember(name, held._replace(request_id=request.id))
        return request

    async def _with_secrets(
        self, name: str, hazards: tuple[str, ...], after: str
    ) -> tuple[str, ...]:
        return await asyncio.to_thread(
            hazards_of_kept, self._sides, name, hazards, after, self._gate.redactor
        )

    def _edited(self, name: str, content: bytes, make: Callable[[str], str]) -> str:
        """In a thread: apply the edits, keep the result and return its hash. Raise `UserError`
        where they don't fit."""
        try:
            return self._sides.blobs.keep(encode(make(decode(content))))
        except EditError as error:
            now = f"its content is now {content_hash(content)}"
            remedy = "read the file again and give its present text"
            raise UserError(f"can't edit `{name}`: {error} ({now})", remedy) from error
        except UnicodeEncodeError as error:
            raise UserError(
                f"can't edit `{name}`: the new text is no Unicode", "write the file as a whole"
            ) from error

    def _waiting_content(self, action: FileChange) -> bytes:
        data = self._sides.blobs.read(action.after or "", LARGEST_EDIT_BYTES)
        if data is None or len(data) > LARGEST_EDIT_BYTES or content_hash(data) != action.after:
            raise UserError(
                f"`{action.path}` waits with a content that can't be edited", "write it as a whole"
            )
        return data

    def _host_text(self, name: str) -> _Text:
        """Return the host's file. Raise `UserError` where there is no such file, or it is too large
        to edit."""
        host = self._seen_by_agent(name, self._look_at_host(name), "edit")
        try:
            data = read_file(self._sides.host, name)
        except OSError as error:
            raise UserError(
                f"can't edit `{name}`: {error.strerror}", "read the file again"
            ) from error
        if host.kind != "file" or host.digest != content_hash(data):
            raise UserError(
                f"can't edit `{name}`: it is no file, or it just changed",
                "read it again, or use write",
            )
        return _Text(host.token, "edit", host.mode & 0o777, data)

    # -- asking -----------------------------------------------------------------------------------

    async def _prepare(self, action: FileChange, reason: str) -> Request | None:
        """Prepare a request before looking at the host: refuse impossible paths on record, then
        carry out approved requests for the same paths, so that the new request is about the result.
        """
        if self._gate.rulings.verdict(action, self._session_id).decision == "deny":
            return (
                await self._ask(action, reason) if action.operation != "write" else None
            )  # a write names its content
        for name in names_of(action):
            if why := await asyncio.to_thread(self._why_unreachable, name):
                record_refusal(self._gate.audit, action, self._session_id, why)
                raise RefusedError(
                    f"`{name}` can't be reached: {why}",
                    "name a path below the workspace's own folders",
                )
        for request in self._gate.queue.ready(self._session_id):
            if request.origin == "agent_api" and isinstance(request.action, FileChange):
                touched = names_of(self._effects.action_of(request))
                if not set(touched).isdisjoint(names_of(action)):
                    await self._effects.carry_out(request)
        return None

    def _why_unreachable(self, name: str) -> str:
        """Return why there can be no file at the path; empty where there can be one, or where
        nothing is there yet."""
        try:
            with self._sides.host.parent(name):
                return ""
        except FileNotFoundError:
            return ""
        except PathError as error:
            return error.message
        except OSError:
            return "a folder on the way is a symlink or a file on the host"

    async def _ask(self, action: FileChange, reason: str, superseding: str = SUPERSEDED) -> Request:
        """Ask the gate. INVARIANT: nothing awaits between superseding the older request and the
        new one's id."""
        if action.before is None or action.to is not None:
            way = await asyncio.to_thread(lambda: Ways(self._sides).to(names_of(action)[-1]))
            action = with_way(action, way)
        action = await asyncio.to_thread(self._noted, action)
        return self._gate.ask(
            action,
            session_id=self._session_id,
            reason=reason,
            origin="agent_api",
            superseding=superseding,
        )

    def _noted(self, action: FileChange) -> FileChange:
        """Return the action with the repositories that its paths are in now, or would be in after
        all other waiting changes: two changes may each be half of a repository."""
        try:
            if not any(map(has_piece, names_of(action))):
                return Repositories(self._sides).noted(action)
            open_changes = map(decode_action, self._gate.queue.open_changes(self._session_id))
            waiting = [one for one in open_changes if isinstance(one, FileChange)]
            return Repositories(self._sides, waiting).noted(action)
        except PathError:
            return action  # the gate hears of it all the same, and says no

    async def _ask_anew(self, request: Request, action: FileChange) -> None:
        name = name_of(action)
        host = await asyncio.to_thread(self._look_at_host, name)
        before = host.token if host is not None else None
        if before == action.before and action.to is None:
            return
        held = self._effects.edits.of(name, request.id)
        if action.operation == "write" or (action.operation == "edit" and held is None):
            hazards = tuple(dict.fromkeys((*action.hazards, "conflict")))
            wanted = Want("write", before, action.after, action.mode, hazards=hazards)
            await self._ask(to_action(name, wanted), request.reason)
            return
        why = await asyncio.to_thread(self._effects.why_stale, request, action)
        if why and (held is None or not await self._edit_anew(name, held)):
            self._gate.answers.close(why, request.id)

    async def _edit_anew(self, name: str, held: Edits) -> bool:
        """Apply the same edits to the host's new content. Return whether they fit."""
        try:
            text = await asyncio.to_thread(self._host_text, name)
            after = await asyncio.to_thread(
                self._edited, name, text.content, lambda now: apply_edits(now, held.edits)
            )
        except UserError:
            return False
        await self._ask_edit(name, text, after, held, CONTAINED)
        return True

    # -- looking ----------------------------------------------------------------------------------

    def _pending(self, name: str) -> list[Request]:
        found = self._gate.queue.pending_about(self._session_id, [_subject(name)])
        return [
            one for one in found if status(one) == "pending" and isinstance(one.action, FileChange)
        ]

    def _conflict(self, name: str, host: Seen | None) -> tuple[str, ...]:
        """Return the conflict of a request that replaces, deletes or moves the whole file, if the
        host holds a version that the session never saw."""
        known = self._sides.known(name)
        if known is None and host is None:
            return ()
        return conflict(known, host)

    def _seen_by_agent(self, name: str, host: Seen | None, verb: str) -> Seen:
        """Return the content that the agent may know of. INVARIANT: a file that was left out of the
        copy looks like a missing one. Otherwise the agent could spell out its content by trying
        which edits fit."""
        if host is None or not self._sides.is_seen_by_agent(name):
            raise UserError(
                f"can't {verb} `{name}`: there is no such file in this session",
                "list the folder, or use write",
            )
        return host

    def _holds_something(self, name: str) -> bool:
        try:
            with self._sides.host.directory(name) as fd, os.scandir(fd) as listing:
                return next(listing, None) is not None
        except OSError as error:
            raise UserError(
                f"`{name}` can't be read on the host: {error.strerror}", "choose another folder"
            ) from error

    def _look_at_host(self, name: str) -> Seen | None:
        try:
            return look(self._sides.host, name)
        except PathError:
            return None  # the gate hears of it all the same, and says no
        except UnsteadyError:
            raise stale(name) from None
        except TooLargeError:
            raise UserError(f"`{name}` is too large", "change it in the copy") from None
        except OSError as error:
            raise UserError(
                f"`{name}` can't be read on the host: {error.strerror}", "choose another file"
            ) from error


_KINDS = {"dir": "folder", "symlink": "link"}


def _subject(name: str) -> str:
    return subject(to_action(name, Want("write", None)))


def canonical(path: str) -> str:
    """Return an agent's path relative to the workspace's root, without its prefix, `.` and empty
    parts.

    Nothing else is resolved: `..` and absolute paths stay, for the gate to see and refuse.
    """
    name = path.removeprefix(COPY_INSIDE)
    if name.startswith("/"):
        return name
    return "/".join(part for part in name.split("/") if part not in ("", ".")) or name
