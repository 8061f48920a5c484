"""What an agent asks of files through its API: turns a write or an edit into a request about exact content.

It is separate from `channel` because it only asks: the effect comes when the gate allows it, by `effects`. Whoever calls holds the
channel's turn. It must never give a new request an id before an older one for the same file is superseded.
"""

import asyncio
import contextlib
from collections.abc import Collection

from supervisor.core.actions import FileChange, content_hash
from supervisor.core.approvals import Request
from supervisor.core.changes import EditError, Seen, Want, apply_edit, conflict, name_of, to_action
from supervisor.errors import UserError
from supervisor.gate import Gate
from supervisor.workspace.beneath import PathError
from supervisor.workspace.effects import Effects
from supervisor.workspace.looking import decode, encode, read_file
from supervisor.workspace.placing import StaleError, stale
from supervisor.workspace.scan import UnsteadyError, look
from supervisor.workspace.sides import Sides

COPY_INSIDE = "/workspace/merged/"


class AgentChanges:
    """Of one session."""

    def __init__(self, sides: Sides, gate: Gate, session_id: str, effects: Effects) -> None:
        self._sides = sides
        self._gate = gate
        self._session_id = session_id
        self._effects = effects

    async def write(self, path: str, content: bytes, reason: str) -> Request:
        """Ask to put `content` at `path`, on the host and in the copy, once it is allowed.

        The gate's answer to a path that can't be one is a denial on record; an older request for the same file is
        superseded before the new one has an id.
        """
        name = canonical(path)
        after = await asyncio.to_thread(self._sides.blobs.keep, content)
        host = await asyncio.to_thread(self._look_at_host, name)
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
            hazards=hazards,
        )
        return self._ask(name, wanted, reason)

    async def edit(self, path: str, old: str, new: str, replace_all: bool, reason: str) -> Request:
        """Ask to replace `old` by `new` in the host's file, which must hold it exactly once, or at least once with
        `replace_all`. `UserError` where it doesn't: nothing is asked then, and nothing changed."""
        name = canonical(path)
        before, mode = await asyncio.to_thread(self._text_of, name)
        try:
            text = apply_edit(decode(before), old, new, replace_all)
        except EditError as error:
            now = f"its content is now {content_hash(before)}"
            remedy = "read the file again and give its present text"
            raise UserError(f"can't edit `{path}`: {error} ({now})", remedy) from error
        after = await asyncio.to_thread(self._sides.blobs.keep, encode(text))
        request = self._ask(name, Want("edit", content_hash(before), after, mode), reason)
        self._effects.remember_edit(request.id, (old, new, replace_all))
        return request

    async def host_changed(self, names: Collection[str]) -> None:
        """The person changed these paths: what waits about them is asked anew, about what the host holds now.

        An edit that still fits is the same edit. A whole file that was written without knowing of the change is a conflict,
        even where the copy has followed the host by now. What doesn't fit any more is closed with the reason.
        """
        if not names:
            return
        for request in self._gate.queue.pending(self._session_id):
            action = request.action
            if request.origin == "agent_api" and isinstance(action, FileChange) and name_of(action) in names:
                with contextlib.suppress(UserError, StaleError):  # it is being written to: the next look will tell
                    await self._ask_anew(request, self._effects.action_of(request), name_of(action))

    async def _ask_anew(self, request: Request, action: FileChange, name: str) -> None:
        host = await asyncio.to_thread(self._look_at_host, name)
        before = host.token if host is not None else None
        if before == action.before:
            return
        edit = self._effects.edit_of(request.id)
        if edit is None:
            hazards = tuple(dict.fromkeys((*action.hazards, "conflict")))
            self._ask(name, Want("write", before, action.after, action.mode, hazards=hazards), request.reason)
        elif why := await asyncio.to_thread(self._effects.why_stale, request, action):
            try:
                await self.edit(name, *edit, request.reason)
            except UserError:
                self._gate.close(request.id, why)

    def _ask(self, name: str, wanted: Want, reason: str) -> Request:
        return self._gate.ask(to_action(name, wanted), session_id=self._session_id, reason=reason, origin="agent_api")

    def _conflict(self, name: str, host: Seen | None) -> tuple[str, ...]:
        """For a write that replaces the whole file: whether the host holds something that the session never saw."""
        known = self._sides.known(name)
        if known is None and host is None:
            return ()
        return conflict(known, host)

    def _look_at_host(self, name: str) -> Seen | None:
        try:
            return look(self._sides.host, name)
        except PathError:
            return None  # the gate hears of it all the same, and says no
        except UnsteadyError:
            raise stale(name) from None
        except OSError as error:
            raise UserError(f"`{name}` can't be read on the host: {error.strerror}", "choose another file") from error

    def _text_of(self, name: str) -> tuple[bytes, int]:
        """The host's file and its mode. `UserError` where there is no such file, or it is too large to edit."""
        try:
            data = read_file(self._sides.host, name)
            seen = look(self._sides.host, name)
        except (OSError, UnsteadyError) as error:
            raise UserError(
                f"can't edit `{name}`: {error or 'it is being written to'}", "read the file again"
            ) from error
        if seen is None or seen.kind != "file" or seen.digest != content_hash(data):
            raise UserError(f"can't edit `{name}`: there is no such file on the host, or it just changed", "use write")
        return data, seen.mode & 0o777


def canonical(path: str) -> str:
    """An agent's path relative to the workspace's root: its own prefix, `.` and empty parts removed.

    Nothing else is resolved: `..` and absolute paths stay as they are, for the gate to see and refuse.
    """
    name = path.removeprefix(COPY_INSIDE)
    if name.startswith("/"):
        return name
    return "/".join(part for part in name.split("/") if part not in ("", ".")) or name
