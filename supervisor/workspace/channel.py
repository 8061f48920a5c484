"""Workspace channel of one session: joins comparison, gate and effects.

    agent writes to the copy     -> watch -> compare -> gate.ask -> (a person) -> carry_out
                                 -> apply -> host
    agent API: write, edit, ...  -> gate.ask -> (a person) -> carry_out
                                 -> apply -> host, and then the copy

Each step holds `_turn`, so the comparison never sees a half-done effect. Applied content is the
snapshot that the request is bound to; it is never read from the copy again. It must never decide
what may be done (the gate does) nor show what an approval wouldn't apply.
"""

import asyncio
import contextlib
import posixpath
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from supervisor.base import log
from supervisor.base.event_loop import to_end
from supervisor.core.actions import Exec, FileChange
from supervisor.core.approvals import Request
from supervisor.core.files.change_card import ChangeCard, ReadContent
from supervisor.core.files.conflict_card import ConflictCard
from supervisor.core.files.write_scope import is_leftover
from supervisor.core.shell.exec_operands import operands
from supervisor.core.text.content_types import Image
from supervisor.errors import NotFoundError
from supervisor.gate.gate import Gate
from supervisor.sandbox.overlay_mount import OverlayMount, mount_overlay
from supervisor.workspace.apply.agent_changes import AgentChanges
from supervisor.workspace.apply.effects import Effects
from supervisor.workspace.apply.partial import PartAnswered, PartialAnswers, Rest
from supervisor.workspace.compare.cards import card_of, contents_in, image_in
from supervisor.workspace.compare.compare import Comparison
from supervisor.workspace.compare.large_snapshots import LargeSnapshots
from supervisor.workspace.copy import git_copy
from supervisor.workspace.disk.watch import Watcher, at_rest_s
from supervisor.workspace.incoming.conflicts import Conflicts
from supervisor.workspace.incoming.incoming import HostChanges
from supervisor.workspace.trees.history import History
from supervisor.workspace.trees.ignores import IGNORE_FILES, Ignores
from supervisor.workspace.trees.overlay_facts import read_facts
from supervisor.workspace.trees.scripts import scripts_in
from supervisor.workspace.trees.trees import Sides
from supervisor.workspace.undo.undo import Undo

FULL_COMPARISON_S = 30.0
MOST_COMPARED_FIRST = 2000
# Used while something is held back or not watched: then only time wakes the comparison.
IMPATIENT_S = 1.0
DIGESTS_AT_ONCE = 64


class _Opened(NamedTuple):
    """The parts that exist once there is a copy."""

    sides: Sides
    effects: Effects
    agent: AgentChanges
    ignores: Ignores
    watcher: Watcher
    comparison: Comparison
    incoming: HostChanges
    snapshots: LargeSnapshots
    conflicts: Conflicts
    partial: PartialAnswers
    undo: Undo


class WorkspaceChannel:
    """The workspace channel of one session, built before the copy is made. Call `start` before the
    agent starts; then `final_pass`, then `stop`.

    `folder` is the session's own (`data/sessions/ID`), where `make_copy` makes the copy.
    `protected` are folders that nothing is ever written to, even inside the workspace: the
    supervisor's data. After a crash, every method may be called without `start`: what the last
    supervisor had begun is finished first. `at` is `Applier`'s, for tests. `is_job`: what
    interpreters and test runners leave counts as ignored.
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
        is_job: bool = False,
    ) -> None:
        self.session_id = session_id
        self._is_job = is_job
        # True once its session has ended: nothing watches the copy any more.
        self.has_ended = False
        self._workspace = workspace
        self._folder = folder
        self._gate = gate
        self._protected = protected
        self._at = at
        self._turn = asyncio.Lock()
        # Number of readers; `stop` waits for them before it closes.
        self._reading = 0
        self._unread = asyncio.Event()
        self._opened: _Opened | None = None
        self._mounted: OverlayMount | None = None
        self._loops: list[asyncio.Task[None]] = []

    # -- an overlay -------------------------------------------------------------------------------

    def take_mount(self, mounted: OverlayMount) -> None:
        """Take over the copy's overlay mount; this channel closes it at its end."""
        self._mounted = mounted

    @property
    def within(self) -> tuple[int, int] | None:
        """Return the namespaces that a sandbox over this copy must be started in
        (`Spec.within`)."""
        return None if self._mounted is None else (self._mounted.user_fd, self._mounted.mount_fd)

    async def _refresh_view(self, watcher: Watcher) -> None:
        """Make the view forget folders that the host has replaced. A watch would keep them in use,
        and they would stay."""
        watcher.forget()
        if self._mounted is not None:
            await self._mounted.refresh()

    # -- life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Settle what a crash left open, compare everything once, then watch and compare until
        `stop`.

        A large copy is compared while the agent starts: a session mustn't wait for a comparison
        that finds nothing.
        """
        async with self._turn:
            opened = await self._open()
            if opened.sides.number_of_files() <= MOST_COMPARED_FIRST:
                await opened.comparison.run(None)
            else:
                await opened.comparison.begin()
                opened.watcher.wake()
        if not self._loops:
            self._loops = [
                self._gate.handlers.run(self._follow(), f"workspace-{self.session_id}"),
                self._gate.handlers.run(self._follow_host(), f"workspace-host-{self.session_id}"),
                self._gate.handlers.run(
                    self._fill_digests(), f"workspace-digests-{self.session_id}"
                ),
            ]

    async def reopen(self) -> None:
        """Open both sides again after `stop`, and mount the copy if it is an overlay."""
        async with self._turn:
            await self._open()

    async def final_pass(self, why: str) -> None:
        """Compare everything once more. Allowed changes are applied before this returns; all others
        are recorded as requests.

        The copy stays. The caller closes the remaining requests, with its reason. Nothing happens
        where the copy was never finished.
        """
        async with self._turn:
            try:
                opened = await self._open()
            except FileNotFoundError:
                return
            opened.ignores.forget()
            await opened.comparison.run(None, last=True)

    async def found(self) -> tuple[list[FileChange], dict[str, str]]:
        """Return all changes without asking about any, and the paths that are never carried over,
        each with the reason. `read_contents` reads what the changes would write, until the next
        comparison. Nothing is found where the copy was never finished."""
        async with self._turn:
            try:
                opened = await self._open()
            except FileNotFoundError:
                return [], {}
            opened.ignores.forget()
            return await opened.comparison.found()

    async def stop(self) -> None:
        """Stop watching and close all descriptors. The copy and its snapshots stay on disk. May be
        called twice."""
        loops, self._loops = self._loops, []
        for loop in loops:
            loop.cancel()
        if loops:
            await asyncio.wait(loops)
        async with self._turn:
            opened, self._opened = self._opened, None
            while self._reading:
                self._unread.clear()
                await self._unread.wait()
            if opened is not None:
                await opened.snapshots.tidy(whole=True)
                opened.watcher.close()
                opened.incoming.close()
                opened.sides.close()
            if self._mounted is not None:
                self._mounted.close()
                self._mounted = None

    def reconsider(self) -> None:
        """Ask again about denied changes, since the rules changed or the kill switch was
        released."""
        if self._opened is not None:
            self._opened.comparison.reconsider()
            self._opened.watcher.wake()

    async def _follow(self) -> None:
        """Compare whenever something happens in the copy, and everything now and then, until
        cancelled."""
        waited_s, full_s = 0.0, FULL_COMPARISON_S
        while self._opened is not None:
            ignores, watcher, comparison = (
                self._opened.ignores,
                self._opened.watcher,
                self._opened.comparison,
            )
            patience_s = IMPATIENT_S if comparison.holds_back or watcher.is_partial else full_s
            folders = await watcher.batch(patience_s, self._expect)
            waited_s = 0.0 if folders != set() else waited_s + patience_s
            if waited_s and waited_s < full_s and comparison.is_stuck():
                continue
            if not folders:
                ignores.forget()
            try:
                async with self._turn:
                    begun = asyncio.get_running_loop().time()
                    await comparison.run(folders or None)
                    if not folders:
                        full_s = at_rest_s(
                            FULL_COMPARISON_S, asyncio.get_running_loop().time() - begun
                        )
                    self._now.incoming.copy_changed(folders or None)
                waited_s = 0.0
            except (
                Exception
            ):  # a comparison that fails is made again; it must not end the supervisor
                log.exception("comparing failed", session=self.session_id)
                await asyncio.sleep(IMPATIENT_S)
                watcher.wake()

    async def _expect(self, names: set[str]) -> None:
        """Prefetch what the next comparison needs about these names, while the copy isn't quiet."""
        files = await self._now.comparison.expect(names)
        async with self._turn:
            if self._opened is not None:
                await self._opened.comparison.look_ahead(files)

    async def _follow_host(self) -> None:
        """Bring the person's changes on the host into the copy, until cancelled."""
        folders: set[str] | None = None
        while self._opened is not None:
            try:
                async with self._turn:
                    if folders is None:
                        self._now.ignores.forget()
                    await self._now.agent.host_changed(await self._now.incoming.run(folders))
                folders = await self._now.incoming.wait()
            except Exception:  # as in `_follow`
                log.exception("following the host failed", session=self.session_id)
                await asyncio.sleep(IMPATIENT_S)
                folders = None

    async def _fill_digests(self) -> None:
        """Read the agreed contents' digests, a few files at a time, while the copy still has them.
        Later, they tell a file that the person changed from one that only looks changed."""
        sides = self._now.sides
        names = sides.without_digest()
        for at in range(0, len(names), DIGESTS_AT_ONCE):
            async with self._turn:
                if self._opened is None:
                    return
                await asyncio.to_thread(sides.fill_digests, names[at : at + DIGESTS_AT_ONCE])

    async def _open(self) -> _Opened:
        """Open both sides and recover, once. Raise FileNotFoundError where there is no finished
        copy."""
        if self._opened is None:
            protected = self._protected
            if self._mounted is None and read_facts(self._folder) is not None:  # after a crash
                self._mounted = await mount_overlay(self._workspace, self._folder)
            merged_fd = self._mounted.merged_fd if self._mounted is not None else None
            sides = await asyncio.to_thread(
                lambda: Sides(self._workspace, self._folder, protected, merged_fd)
            )
            is_git = await git_copy.find(self._workspace, []) is not None
            ignores = Ignores(
                sides.host,
                is_git,
                await git_copy.around(self._workspace),
                is_out=is_leftover if self._is_job else None,
            )
            watcher = Watcher(sides.copy, *([sides.upper.root] if sides.upper is not None else []))
            refresh = None if self._mounted is None else lambda: self._refresh_view(watcher)
            incoming = HostChanges(sides, ignores, self._ask_anew, refresh=refresh)
            snapshots = LargeSnapshots(sides, self._gate, self.session_id)
            effects = Effects(
                sides, self._gate, self.session_id, self._settled, self._at, self._ask_again
            )
            self._opened = _Opened(
                sides,
                effects,
                AgentChanges(sides, self._gate, self.session_id, effects),
                ignores,
                watcher,
                Comparison(
                    sides,
                    self._gate,
                    self.session_id,
                    ignores,
                    watcher,
                    snapshots,
                    effects.carry_out_all,
                ),
                incoming,
                snapshots,
                Conflicts(sides, self._gate, self.session_id, effects, incoming),
                PartialAnswers(
                    sides, self._gate, self.session_id, effects, self._ask_again, self._at
                ),
                Undo(
                    sides,
                    self._gate,
                    self.session_id,
                    self._folder,
                    woken=self._undone,
                    at=self._at,
                ),
            )
            await effects.recover()
            await self._opened.undo.recover()
        return self._opened

    # -- the agent's API --------------------------------------------------------------------------

    async def write(self, path: str, content: bytes, reason: str) -> Request:
        """See `AgentChanges.write`."""
        async with self._turn:
            return await self._tidied((await self._open()).agent.write(path, content, reason))

    async def edit(self, path: str, old: str, new: str, replace_all: bool, reason: str) -> Request:
        """See `AgentChanges.edit`."""
        async with self._turn:
            return await self._tidied(
                (await self._open()).agent.edit(path, old, new, replace_all, reason)
            )

    async def _tidied(self, asking: Awaitable[Request]) -> Request:
        request = await asking
        await self._now.snapshots.tidy()
        return request

    async def delete(self, path: str, reason: str) -> Request:
        """See `AgentChanges.delete`."""
        async with self._turn:
            return await (await self._open()).agent.delete(path, reason)

    async def move(self, path: str, to: str, reason: str) -> Request:
        """See `AgentChanges.move`."""
        async with self._turn:
            return await (await self._open()).agent.move(path, to, reason)

    async def with_scripts(self, action: Exec) -> Exec:
        """Return a command with the current content of the scripts that it names, from the private
        copy."""
        wanted = operands(action.command, action.cwd)
        found = (
            await asyncio.to_thread(scripts_in, (await self._open()).sides.copy, wanted)
            if wanted
            else ()
        )
        return msgspec.structs.replace(action, scripts=found)

    # -- what a person looks at, also after the session's end --------------------------------------

    async def card(self, request: Request) -> ChangeCard:
        """See `card_of`."""
        redactor = self._gate.redactor
        async with self._open_to_read() as opened:
            action = opened.effects.action_of(request)
            return await to_end(lambda: card_of(opened.sides, action, redactor))

    async def image(
        self, request: Request, side: Literal["old", "new"]
    ) -> tuple[Image, bytes] | None:
        """See `image_in`."""
        async with self._open_to_read() as opened:
            action = opened.effects.action_of(request)
            return await to_end(lambda: image_in(opened.sides, action, side))

    async def contents(self, request: Request) -> tuple[bytes, bytes] | None:
        """See `contents_in`."""
        async with self._open_to_read() as opened:
            action = opened.effects.action_of(request)
            return await to_end(lambda: contents_in(opened.sides, action))

    async def read_contents[T](self, read: Callable[[ReadContent], T]) -> T:
        """Run a function over contents of requests in a thread, and return its result. The function
        gets a reader that returns the start of a content, or None where it is missing."""
        async with self._open_to_read() as opened:
            return await to_end(lambda: read(opened.sides.blobs.read))

    @contextlib.asynccontextmanager
    async def _open_to_read(self) -> AsyncIterator[_Opened]:
        """Yield the parts, reopened if the session has ended. They stay open meanwhile."""
        opened = self._opened
        if opened is None:
            async with self._turn:
                opened = await self._open_again()
        self._reading += 1
        try:
            yield opened
        finally:
            self._reading -= 1
            self._unread.set()

    async def _open_again(self) -> _Opened:
        try:
            return await self._open()
        except FileNotFoundError:
            raise NotFoundError(
                "the session's copy was never finished, or is gone", "nothing of it can be applied"
            ) from None

    # -- some hunks: only ever called for the operator --------------------------------------------

    async def answer_part(
        self, request_id: str, hunks: Collection[str], rest: Rest, *, by: str, fingerprint: str
    ) -> PartAnswered:
        """Approve these hunks of a card and apply them; see `PartialAnswers.answer`."""
        async with self._turn:
            opened = await self._open_again()
            done = await opened.partial.answer(
                request_id, hunks, rest, by=by, fingerprint=fingerprint
            )
            await self._ask_unwatched([done.part], rest=rest == "pending")
            return done

    # -- conflicts: only ever called for the operator ---------------------------------------------

    async def conflict_card(self, request: Request) -> ConflictCard:
        """Return the card of a conflict: each side's change of the path, and the merge."""
        async with self._open_to_read() as opened:
            return await opened.conflicts.card(request)

    async def apply_merge(
        self, request_id: str, shown: str, *, by: str, fingerprint: str
    ) -> Request:
        """Apply the merge whose hash was `shown`, on the host and in the copy. Return the new,
        approved request."""
        async with self._open_to_read() as opened:
            content, mode = await opened.conflicts.merged(request_id, shown, fingerprint)
        async with self._turn:
            return await (await self._open_again()).conflicts.apply_merge(
                request_id, content, mode, by=by, fingerprint=fingerprint
            )

    async def give_host(self, request_id: str, *, by: str, fingerprint: str) -> Request:
        """Deny the request, and give the host's version to the agent's copy."""
        async with self._turn:
            return await (await self._open_again()).conflicts.give_host(
                request_id, by=by, fingerprint=fingerprint
            )

    # -- effects ----------------------------------------------------------------------------------

    async def carry_out(self, request: Request) -> None:
        """Carry out an allowed or approved request. The gate calls this; a second call finds the
        request used."""
        async with self._turn:
            await (await self._open()).effects.carry_out(request)
            await self._ask_unwatched([request])

    async def carry_out_all(self, requests: Sequence[Request]) -> None:
        """Carry out requests that became ready together; see `Effects.carry_out_all`."""
        async with self._turn:
            await (await self._open()).effects.carry_out_all(requests)
            await self._ask_unwatched(requests)

    async def until_idle(self) -> None:
        """Wait until nothing is being carried out. An effect may ask again at its end."""
        async with self._turn:
            pass

    async def _ask_unwatched(self, answered: Sequence[Request], *, rest: bool = False) -> None:
        """After the session's end, ask again at once about answers that had no effect; with `rest`,
        also about what is left of the others."""
        if self.has_ended and (names := self._now.effects.names_open(answered, rest=rest)):
            await self._now.comparison.ask_now(names)

    def _ask_again(self, name: str, why: str = "") -> None:
        """Ask again, since the answer had no effect because of another path. `why`: because of this
        path itself."""
        self._now.comparison.ask_again(name, why)
        self._now.watcher.wake(name.rpartition("/")[0])

    def _settled(self, name: str, failed: bool) -> None:
        """After an effect succeeded or failed, compare the path again, and the parent folders,
        where something may wait for it."""
        if failed:
            self._now.comparison.look_at(name)
        else:
            if posixpath.basename(name) in IGNORE_FILES:
                self._now.ignores.forget()
            self._now.comparison.forget(name)
            self._now.incoming.settled(name)
        while name:
            name = name.rpartition("/")[0]
            self._now.watcher.wake(name)

    def _ask_anew(self, name: str) -> None:
        """Ask again, since the request is out of date: the host changed where the agent did, too,
        or both agree again."""
        self._now.comparison.look_at(name)
        self._now.watcher.wake(name.rpartition("/")[0])

    def host_changes(self) -> HostChanges | None:
        """Return the person's changes, or None before the copy is open and after the end."""
        return self._opened.incoming if self._opened is not None else None

    @property
    def history(self) -> History | None:
        """Return what was applied; None before the copy is open and after the end."""
        return self._opened.undo.sides.history if self._opened is not None else None

    def refused(self) -> dict[str, str]:
        """Return the copy's paths that are never carried over, with reasons."""
        return self._opened.comparison.refused() if self._opened is not None else {}

    @contextlib.asynccontextmanager
    async def undoing(self) -> AsyncIterator[Undo]:
        """Yield the session's undo. Hold the turn meanwhile, so that nothing else happens to the
        workspace."""
        async with self._turn:
            yield (await self._open_again()).undo

    def _undone(self, name: str) -> None:
        """Note that the person took an effect back: requests about the path are out of date."""
        self._settled(name, True)

    # -- small things -----------------------------------------------------------------------------

    @property
    def _now(self) -> _Opened:
        if self._opened is None:
            raise NotFoundError(
                "the session's workspace is not open", "the session has ended, or hasn't begun"
            )
        return self._opened
