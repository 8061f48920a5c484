"""The workspace channel of one session: glues comparison, gate and effects together.

    agent writes to the copy -> watch -> compare -> gate.ask -> (a person) -> carry_out -> apply -> host
    agent API write, edit    ->          gate.ask -> (a person) -> carry_out -> apply -> host, and then the copy

Each step holds `_turn`, so that the comparison never sees an effect half done. What is applied is the snapshot that the
request is bound to; it is never read from the copy again. It is separate so that its parts stay testable alone. It must
never decide what may be done (the gate does) nor show what an approval wouldn't apply.
"""

import asyncio
import os
import posixpath
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import structlog

from supervisor.core.actions import FileChange, content_hash
from supervisor.core.approvals import Origin, Request, status
from supervisor.core.change_card import ChangeCard, Side, make_card
from supervisor.core.changes import (
    EditError,
    Seen,
    Want,
    apply_edit,
    conflict,
    name_of,
    to_action,
)
from supervisor.core.text_diff import MOST_TEXT_BYTES
from supervisor.errors import GatehouseError, NotFoundError, UserError
from supervisor.gate import Gate, Grant, Refused
from supervisor.workspace import git_copy
from supervisor.workspace.apply import Applier, StaleError, clean_leftovers, stale
from supervisor.workspace.beneath import FILE, PathError, Root, is_regular
from supervisor.workspace.compare import Comparison
from supervisor.workspace.ignores import Ignores
from supervisor.workspace.scan import UnsteadyError, look
from supervisor.workspace.sides import Sides
from supervisor.workspace.watch import Watcher

log = structlog.get_logger("workspace")

FULL_COMPARISON_S = 30.0
# Where something is held back or not watched, time is all that wakes us.
IMPATIENT_S = 1.0
DIGESTS_AT_ONCE = 64
LARGEST_EDIT_BYTES = 16 << 20
COPY_INSIDE = "/workspace/merged/"


class _Opened(NamedTuple):
    """What exists once the copy does."""

    sides: Sides
    applier: Applier
    copy_applier: Applier
    ignores: Ignores
    watcher: Watcher
    comparison: Comparison


class WorkspaceChannel:
    """One session's. Built before the copy is; `start` before the agent's first instant; `final_pass`, then `stop`.

    `folder` is the session's own (`data/sessions/ID`), where `make_copy` makes the copy. `protected` are folders that
    nothing is ever written to, even inside the workspace: the supervisor's data. After a crash every method may be called
    without `start`: what the last supervisor had begun is finished first. `at` is `Applier`'s, for tests.
    """

    def __init__(
        self,
        *,
        session_id: str,
        workspace: Path,
        folder: Path,
        gate: Gate,
        protected: Sequence[Path] = (),
        at: Callable[[str], None] = lambda step: None,
    ) -> None:
        self.session_id = session_id
        self._workspace = workspace
        self._folder = folder
        self._gate = gate
        self._protected = protected
        self._at = at
        self._turn = asyncio.Lock()
        self._edits: dict[str, tuple[str, str, bool]] = {}
        self._opened: _Opened | None = None
        self._loops: list[asyncio.Task[None]] = []

    # -- life -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Watch the copy, settle what a crash left open, compare everything once, and go on comparing until `stop`."""
        async with self._turn:
            opened = await self._open()
            await opened.comparison.run(None)
        if not self._loops:
            self._loops = [
                self._gate.run(self._follow(), f"workspace-{self.session_id}"),
                self._gate.run(self._fill_digests(), f"workspace-digests-{self.session_id}"),
            ]

    async def final_pass(self, why: str) -> None:
        """Compare everything once more: what is allowed is applied before this returns, all else is on record as asked.

        The copy stays. Whoever ends the session closes the requests that remain, with its reason. Nothing happens where
        the copy was never finished.
        """
        log.info("final pass", session=self.session_id, why=why)
        async with self._turn:
            try:
                opened = await self._open()
            except FileNotFoundError:
                return
            opened.ignores.forget()
            await opened.comparison.run(None, last=True)

    async def stop(self) -> None:
        """Stop watching and give all descriptors back. The copy and its snapshots stay on disk. May be called twice."""
        loops, self._loops = self._loops, []
        for loop in loops:
            loop.cancel()
        if loops:
            await asyncio.wait(loops)
        async with self._turn:
            opened, self._opened = self._opened, None
            if opened is not None:
                opened.watcher.close()
                opened.sides.close()

    def reconsider(self) -> None:
        """The rules changed, or the kill switch was released: ask again what rules had denied."""
        if self._opened is not None:
            self._opened.comparison.reconsider()
            self._opened.watcher.wake()

    async def _follow(self) -> None:
        """Compare whenever something happens in the copy, and everything now and then. Ends by cancellation."""
        waited_s = 0.0
        while self._opened is not None:
            _, _, _, ignores, watcher, comparison = self._opened
            patience_s = IMPATIENT_S if comparison.holds_back or watcher.is_partial else FULL_COMPARISON_S
            folders = await watcher.batch(patience_s)
            waited_s = 0.0 if folders != set() else waited_s + patience_s
            if waited_s and waited_s < FULL_COMPARISON_S and comparison.is_stuck():
                continue
            if not folders:
                ignores.forget()
            try:
                async with self._turn:
                    await comparison.run(folders or None)
                waited_s = 0.0
            except Exception:  # a comparison that fails is made again; it must not end the supervisor
                log.exception("comparing failed", session=self.session_id)
                await asyncio.sleep(IMPATIENT_S)
                watcher.wake()

    async def _fill_digests(self) -> None:
        """Learn what both sides agreed on, a few files at a time, while the copy still shows it: so that later a file
        that the person changed can be told from one that only looks changed."""
        sides = self._now.sides
        names = sides.without_digest()
        for at in range(0, len(names), DIGESTS_AT_ONCE):
            async with self._turn:
                if self._opened is None:
                    return
                await asyncio.to_thread(sides.fill_digests, names[at : at + DIGESTS_AT_ONCE])

    async def _open(self) -> _Opened:
        """Open both sides and recover, once. FileNotFoundError where there is no finished copy."""
        if self._opened is None:
            protected = self._protected
            sides = await asyncio.to_thread(lambda: Sides(self._workspace, self._folder, protected))
            is_git = await git_copy.find(self._workspace, []) is not None
            ignores = Ignores(self._workspace, is_git)
            watcher = Watcher(sides.copy)
            self._opened = _Opened(
                sides,
                Applier(sides.host, sides.blobs, sides.journal, at=self._at),
                Applier(sides.copy, sides.blobs, None),
                ignores,
                watcher,
                Comparison(sides, self._gate, self.session_id, ignores, watcher, self._carry_out),
            )
            await self._recover()
        return self._opened

    # -- the agent's API ----------------------------------------------------------------------------------------------

    async def write(self, path: str, content: bytes, reason: str) -> Request:
        """Ask to put `content` at `path`, on the host and in the copy, once it is allowed.

        The gate's answer to a path that can't be one is a denial on record; an older request for the same file is
        superseded before the new one has an id.
        """
        name = canonical(path)
        async with self._turn:
            await self._open()
            after = await asyncio.to_thread(self._now.sides.blobs.keep, content)
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
        async with self._turn:
            await self._open()
            before, mode = await asyncio.to_thread(self._text_of, name)
            try:
                text = apply_edit(_decode(before), old, new, replace_all)
            except EditError as error:
                raise UserError(
                    f"can't edit `{path}`: {error}", "read the file again and give its present text"
                ) from error
            after = await asyncio.to_thread(self._now.sides.blobs.keep, _encode(text))
            request = self._ask(name, Want("edit", content_hash(before), after, mode), reason)
            self._edits[request.id] = (old, new, replace_all)
            return request

    def card(self, request: Request) -> ChangeCard:
        """What a person needs to see of a request for a file change. Reads at most a megabyte of each side."""
        action = self._action(request)
        host = self._look_quietly(name_of(action))
        old = new = None
        if host is not None and host.kind == "file":
            old = Side(self._read_host(name_of(action)), host.signature[0], host.mode)
        if action.after is not None and action.operation in ("write", "edit", "chmod") and action.after != "dir":
            blobs = self._now.sides.blobs
            new = Side(blobs.read(action.after, MOST_TEXT_BYTES), blobs.size(action.after), action.mode)
        return make_card(action, old, new, host.token if host else None)

    # -- effects ------------------------------------------------------------------------------------------------------

    async def carry_out(self, request: Request) -> None:
        """Carry out a request that is allowed or approved. Called by the gate; a second call finds it used."""
        async with self._turn:
            await self._open()
            await self._carry_out(request)

    async def _carry_out(self, request: Request) -> None:
        request = self._gate.get(request.id)
        if status(request) not in ("allowed", "approved"):
            return
        action = self._action(request)
        if request.origin == "agent_api" and (why := await asyncio.to_thread(self._why_stale, request, action)):
            self._gate.close(request.id, why)
            return
        grant = self._gate.claim(request.id, self.session_id)
        if isinstance(grant, Grant):
            await self._effect(request, action, grant)

    async def _effect(self, request: Request, action: FileChange, grant: Grant) -> None:
        name = name_of(action)
        try:
            known = await _to_end(lambda: self._now.applier.apply(action, request.id, grant.use))
        except GatehouseError as error:
            self._gate.settle(grant, "failed", {"error": str(error), "stale": isinstance(error, StaleError)})
            self._now.comparison.look_at(name)
            self._look_again(name)
            return
        detail: dict[str, object] = {"path": action.path, "operation": action.operation, "hash": action.after}
        if request.origin == "agent_api":
            detail["copy"] = await asyncio.to_thread(self._into_copy, request, action)
        self._now.sides.agreed(name, known, request.id)
        if action.operation == "delete":
            detail["folders_removed"] = await asyncio.to_thread(self._prune, name)
        self._gate.settle(grant, "done", detail)
        self._edits.pop(request.id, None)
        if posixpath.basename(name) == ".gitignore":
            self._now.ignores.forget()
        self._now.comparison.forget(name)
        self._look_again(name)

    def _look_again(self, name: str) -> None:
        """Have the folders on the way compared: what waited for this can go on."""
        while name:
            name = name.rpartition("/")[0]
            self._now.watcher.wake(name)

    def _prune(self, name: str) -> list[str]:
        removed = self._now.applier.prune(name, lambda folder: self._look_quietly(folder, self._now.sides.copy) is None)
        for folder in removed:
            self._now.sides.agreed(folder, None)
        return removed

    def _into_copy(self, request: Request, action: FileChange) -> str:
        """After the host, the copy: what the agent sees then. What it wrote there itself meanwhile is kept where it
        can't be merged, and becomes a change of its own."""
        name = name_of(action)
        mine = self._look_quietly(name, self._now.sides.copy)
        after = action.after
        if action.operation == "edit" and (mine is None or mine.token != action.before):
            after = self._edited_copy(request, name) if mine is not None and mine.kind == "file" else None
            if after is None:
                return "left as it was: it holds other text"
        wanted = Want("write", mine.token if mine else None, after, action.mode)
        try:
            self._now.copy_applier.apply(to_action(name, wanted), request.id, lambda rebuilt: None)
        except GatehouseError as error:
            return f"left as it was: {error.message}"
        return "changed too"

    def _edited_copy(self, request: Request, name: str) -> str | None:
        edit = self._edits.get(request.id)
        if edit is None:
            return None
        try:
            text = apply_edit(_decode(_read(self._now.sides.copy, name)), *edit)
        except (EditError, OSError, GatehouseError):
            return None
        return self._now.sides.blobs.keep(_encode(text))

    # -- after a crash ------------------------------------------------------------------------------------------------

    async def _recover(self) -> None:
        """Clean up after the last supervisor and finish what it had begun. Level: the host's state says what happened."""
        intents = self._now.sides.open_intents
        await asyncio.to_thread(clean_leftovers, self._now.sides.host, list(intents.values()))
        for request in self._gate.unsettled(self.session_id):
            if isinstance(request.action, FileChange) and request.origin != "egress":
                grant = self._gate.resume(request.id, self.session_id)
                if isinstance(grant, Refused):
                    continue
                # `apply` finds it done already, or finds `before` still there and does it, or finds neither and refuses.
                await self._effect(request, self._action(request), grant)

    # -- small things -------------------------------------------------------------------------------------------------

    @property
    def _now(self) -> _Opened:
        if self._opened is None:
            raise NotFoundError("the session's workspace is not open", "the session has ended, or hasn't begun")
        return self._opened

    def _ask(self, name: str, wanted: Want, reason: str) -> Request:
        origin: Origin = "agent_api"
        return self._gate.ask(to_action(name, wanted), session_id=self.session_id, reason=reason, origin=origin)

    def _action(self, request: Request) -> FileChange:
        action = self._gate.action_of(request)
        if not isinstance(action, FileChange):
            raise TypeError(f"the workspace was given {type(action).__name__}")
        return action

    def _conflict(self, name: str, host: Seen | None) -> tuple[str, ...]:
        """For a write that replaces the whole file: whether the host holds something that the session never saw."""
        known = self._now.sides.known(name)
        if known is None and host is None:
            return ()
        return conflict(known, host)

    def _look_at_host(self, name: str) -> Seen | None:
        try:
            return look(self._now.sides.host, name)
        except PathError:
            return None  # the gate hears of it all the same, and says no
        except UnsteadyError:
            raise stale(name) from None
        except OSError as error:
            raise UserError(f"`{name}` can't be read on the host: {error.strerror}", "choose another file") from error

    def _look_quietly(self, name: str, root: Root | None = None) -> Seen | None:
        try:
            return look(root or self._now.sides.host, name)
        except Exception:
            return None

    def _why_stale(self, request: Request, action: FileChange) -> str | None:
        """Why an approved write or edit no longer fits the host; None where it does, or is done already."""
        name = name_of(action)
        host = self._look_quietly(name)
        token = host.token if host else None
        if token in (action.before, action.after):
            return None
        why = f"stale: `{action.path}` changed on the host since this was asked; nothing was overwritten"
        edit = self._edits.get(request.id)
        if edit is not None:
            try:
                apply_edit(_decode(_read(self._now.sides.host, name)), *edit)
            except EditError as error:
                return f"{why} ({error})"
            except (OSError, GatehouseError):
                return why
            return f"{why} (the old text is still there: ask for the edit again)"
        return why

    def _text_of(self, name: str) -> tuple[bytes, int]:
        """The host's file and its mode. `UserError` where there is no such file, or it is too large to edit."""
        try:
            data = _read(self._now.sides.host, name)
            seen = look(self._now.sides.host, name)
        except (OSError, UnsteadyError) as error:
            raise UserError(
                f"can't edit `{name}`: {error or 'it is being written to'}", "read the file again"
            ) from error
        if seen is None or seen.kind != "file" or seen.digest != content_hash(data):
            raise UserError(f"can't edit `{name}`: there is no such file on the host, or it just changed", "use write")
        return data, seen.mode & 0o777

    def _read_host(self, name: str) -> bytes | None:
        try:
            return _read(self._now.sides.host, name, MOST_TEXT_BYTES + 1, cut=True)
        except (OSError, GatehouseError):
            return None


def canonical(path: str) -> str:
    """An agent's path relative to the workspace's root: its own prefix, `.` and empty parts removed.

    Nothing else is resolved: `..` and absolute paths stay as they are, for the gate to see and refuse.
    """
    name = path.removeprefix(COPY_INSIDE)
    if name.startswith("/"):
        return name
    return "/".join(part for part in name.split("/") if part not in ("", ".")) or name


def _read(root: Root, name: str, limit_bytes: int = LARGEST_EDIT_BYTES, *, cut: bool = False) -> bytes:
    with root.parent(name) as (folder, leaf):
        fd = os.open(leaf, FILE, dir_fd=folder)
    with os.fdopen(fd, "rb") as file:
        if not is_regular(os.fstat(fd)):
            raise PathError(f"`{name}` is not a regular file", "choose another")
        data = file.read(limit_bytes + 1)
    if len(data) > limit_bytes and not cut:
        raise UserError(f"`{name}` is too large to edit", f"at most {limit_bytes >> 20} MB; write it as a whole")
    return data[:limit_bytes]


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


async def _to_end[T](work: Callable[[], T]) -> T:
    """Run `work` in a thread, and to its end even if we are cancelled: an effect that nobody settles is a lost one."""
    future = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait({future})
        raise
