"""Compare copy and host, take snapshots, and ask the gate about each difference.

Level-triggered (law 8). One comparison looks at some folders, or at all. Each path that differs
from the last agreement becomes at most one request, and a path that returns to it ends its request.
An answered change isn't asked again until its content differs. It only asks: nothing here has an
effect on the host.

A renamed file is one request, not two (`path_findings`). Git's own folder in the copy is never
compared, since a single commit changes dozens of its files (`refused_paths`). It must never read a
path other than below the copy's descriptor, or judge a change by an event instead of by contents.
"""

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from supervisor.base.clock import Clock, RealClock
from supervisor.base.event_loop import to_end
from supervisor.core.actions import FileChange, fingerprint
from supervisor.core.approvals import Request, status
from supervisor.core.files.changes import (
    ANY_MODE,
    PERMISSIONS,
    SPECIAL,
    Known,
    Signature,
    Want,
    agree,
    is_text,
    rename_of,
    to_action,
)
from supervisor.core.files.host_changes import is_known_of
from supervisor.core.files.new_folders import FolderModes, holds_for, with_way
from supervisor.core.files.swaps import made_by
from supervisor.gate.gate import Gate, Grant
from supervisor.workspace.compare.copy_side import CopySide
from supervisor.workspace.compare.examining import Examiner
from supervisor.workspace.compare.folder_swaps import FolderSwaps
from supervisor.workspace.compare.large_snapshots import LargeSnapshots
from supervisor.workspace.compare.path_findings import PathFinding, Renames
from supervisor.workspace.compare.refused_paths import Refusals, SessionGit
from supervisor.workspace.disk.beneath import PathError
from supervisor.workspace.disk.scan import readable_entries, signature_at
from supervisor.workspace.disk.watch import Watcher
from supervisor.workspace.trees.ignores import Ignores
from supervisor.workspace.trees.repositories import Repositories
from supervisor.workspace.trees.trees import Sides, Ways
from supervisor.workspace.trees.walk import Walk

REASON = "changed in the private copy"
HELD_UP = "could not be carried out before: {}"
# Paths examined, asked about and carried out in one go; the rest of the loop waits meanwhile.
CHUNK = 500
# A failed change is asked again after this long, doubled each time: a disk that stays full must not
# fill the record. Less than the interval of full comparisons, so that the next one asks.
FIRST_S = 20.0
LONGEST_S = 3600.0

type _AskedKey = tuple[str, str | None, int | None, str | None]


class _LastAsked(NamedTuple):
    """The last request about a path. `key` is the change without the host's old state, `other` the
    other path of a rename, `tries` how many earlier requests for the same failed, `way` its new
    parent folders, `repositories` those of the action."""

    key: _AskedKey
    fingerprint: str
    request_id: str
    other: str = ""
    tries: int = 0
    way: FolderModes = ()
    repositories: tuple[str, ...] = ()

    def target(self, name: str) -> str:
        """Return the path that the request about `name` creates."""
        return self.key[3] or name if self.key[0] == "rename" else name


class _ToAsk(NamedTuple):
    """A path with a difference to ask about. `key`, `other` and `way` are as in `_LastAsked`.
    `mark` is the fingerprint of the action without the folders around it."""

    name: str
    key: _AskedKey
    mark: str
    action: FileChange
    other: str = ""
    way: FolderModes = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return every path that it is about."""
        return (self.name, self.other) if self.other else (self.name,)


def _failure(request: Request) -> str:
    """Return why a request couldn't be carried out; empty if it could."""
    if status(request) != "used" or request.outcome is None or request.outcome.get("ok"):
        return ""
    return str(request.outcome.get("error") or "it failed")


def _is_due(request: Request, tries: int, now: float) -> bool:
    """Return whether to ask again about a request that failed after `tries` others for the same.
    `now`: seconds since the epoch."""
    if not _failure(request) or request.settled_at is None:
        return False
    waited_s = now - request.settled_at
    # A clock that was set back mustn't delay it by the same time.
    return waited_s < 0 or waited_s >= min(LONGEST_S, FIRST_S * 2 ** min(tries, 20))


def _still_speaks(request: Request, before: _LastAsked, now: _ToAsk, *, last: bool) -> bool:
    """Return whether the outcome of an earlier request for the same change still holds."""
    if before.key != now.key or not holds_for(before.way, now.way):
        return False
    if before.repositories != now.action.repositories:
        return False  # the rules may say another thing by now
    current = status(request)
    if before.fingerprint != now.mark:
        return current == "denied"  # the host moved on, the refused change is the same
    return not (last and (_failure(request) or current == "superseded"))


def _tries_of(before: _LastAsked | None, earlier: Mapping[str, Request], now: _ToAsk) -> int:
    """Return how many requests for the same failed in a row. `earlier` are the known ones, by
    id."""
    if before is None or before.key != now.key:
        return 0
    request = earlier.get(before.request_id)
    return before.tries + 1 if request is not None and _failure(request) else 0


class Comparison:
    """The comparison of one session. Calls must not overlap: the channel holds its turn around
    them."""

    def __init__(
        self,
        sides: Sides,
        gate: Gate,
        session_id: str,
        ignores: Ignores,
        watcher: Watcher,
        snapshots: LargeSnapshots,
        carry_out_all: Callable[[Sequence[Request], Mapping[str, Grant]], Awaitable[None]],
        clock: Clock | None = None,
    ) -> None:
        self._sides = sides
        self._gate = gate
        self._session_id = session_id
        self._ignores = ignores
        self._watcher = watcher
        self._snapshots = snapshots
        self._carry_out_all = carry_out_all
        self._clock = clock or RealClock()
        self._asked: dict[str, _LastAsked] = {}
        self._let_go: dict[str, _LastAsked] = {}
        self._compared: dict[str, Signature] = {}
        self._side = CopySide(sides, self._compared)
        self._walk = Walk(self._side, sides, ignores, watcher)
        self._refusals = Refusals(sides.copy, gate, session_id, self._compared)
        self._problems: dict[str, str] = {}
        self._held: dict[str, Signature | None] = {}
        self._swaps = FolderSwaps(sides, self._side, ignores, gate.redactor)
        self._git = SessionGit(sides.copy, gate, session_id)
        self._examiner = Examiner(sides, gate.redactor)
        self._room = 0
        self._is_whole = False
        self._found: list[FileChange] | None = None
        self.holds_back = False

    # -- what the channel calls -------------------------------------------------------------------

    async def begin(self) -> None:
        """Record what git's own folder holds before the agent does anything."""
        await self._git.look()

    async def run(self, folders: set[str] | None, *, last: bool = False) -> None:
        """Compare the entries of these folders, and new folders below them; None: everything.

        With `last`, nothing is held back or put off, and failed changes are tried once more.
        """
        found = await self._candidates(folders)
        self._is_whole = folders is None
        if folders is None:
            await self._git.look()
        if self._held and (last or self._free() > 0):
            # In any folder: both paths of a waiting rename are examined together.
            found |= await self._there(self._held)
            self._held.clear()
        await self._deal_with(found, last)
        await self._snapshots.tidy(whole=folders is None)

    async def found(self) -> tuple[list[FileChange], dict[str, str]]:
        """Compare everything as the next `run` would, and return the changes instead of asking
        about them, and what is never carried over, with reasons. Contents are kept until that run;
        a renamed file is two changes."""
        self._found = []
        self._side.repositories.clear()
        try:
            paths, _ = await asyncio.to_thread(self._swaps.gather, await self._candidates(None))
            await self._ask_about(sorted(paths), last=True)
            inner = await asyncio.to_thread(lambda: list(self._inner_repositories()))
            return self._found, self.refused() | dict.fromkeys(inner, "a repository of its own")
        finally:
            self._found = None
            self._compared.clear()

    def _inner_repositories(self) -> Iterator[str]:
        """Yield the git folders in the copy that the host hasn't."""
        for folder in filter(None, self._side.repositories):
            try:
                with self._sides.host.directory(folder) as fd:
                    os.stat(".git", dir_fd=fd, follow_symlinks=False)
            except (OSError, PathError):
                yield f"{folder}/.git"

    async def ask_now(self, names: Collection[str]) -> None:
        """Compare only these paths, and hold nothing back: for a copy that is no longer watched,
        since its session has ended."""
        await self._deal_with(await self._there(names), last=True)

    async def _there(self, names: Collection[str]) -> dict[str, bool]:
        return await asyncio.to_thread(lambda: {name: self._is_there(name) for name in names})

    async def _deal_with(self, found: dict[str, bool], last: bool) -> None:
        """Ask about paths that may differ. `found` says for each whether something is there."""
        found, parts = await asyncio.to_thread(self._swaps.gather, found)
        for name in parts:
            self._withdraw(name, "it is part of another change now")
            self._compared.pop(name, None)
        found = {name: there for name, there in found.items() if not self._is_held(name)}
        # Deletions first and innermost first, so that a folder is empty when its turn comes.
        gone = sorted((name for name, there in found.items() if not there), reverse=True)
        there = sorted(name for name, there in found.items() if there)
        renames = Renames(self._renamed_with)
        await self._ask_about([*gone, *there], last, renames)
        await self._ask_renames(renames, last)
        self._examiner.ahead.forget()
        self.holds_back = bool(self._held)

    async def expect(self, names: set[str]) -> list[str]:
        """Prepare for names that the next comparison will meet (folders end with a slash): ask git
        now whether they are ignored. Return the files worth prefetching. May be called without the
        turn."""
        shown = [name for name in names if not self._side.is_hidden(name.rpartition("/")[2])]
        out = await self._ignores.among(
            [name for name in shown if self._sides.known(name.rstrip("/")) is None]
        )
        return [name for name in shown if name not in out and not name.endswith("/")]

    async def look_ahead(self, names: Sequence[str]) -> None:
        """Examine these files now, for the next comparison. Call it with the turn."""
        await to_end(lambda: self._examiner.ahead.look(names))

    def is_stuck(self) -> bool:
        """Return whether something is held back and there is still no room for it."""
        return self.holds_back and self._free() <= 0

    def look_at(self, name: str) -> None:
        """Compare this path next time, whether or not the copy changes, since the host may have
        changed there."""
        self._compared.pop(name, None)

    def forget(self, name: str) -> None:
        """Compare a path that we changed again, and forget its requests."""
        asked = self._asked.pop(name, None)
        if asked is not None:
            self._let_go[name] = asked
        self._compared.pop(name, None)
        self._problems.pop(name, None)

    def ask_again(self, name: str, why: str) -> None:
        """Ask again, since an answer about the path had no effect. `why`: this path prevented
        others from being carried out."""
        self.forget(name)
        if why:
            self._problems[name] = HELD_UP.format(why)

    def refused(self) -> dict[str, str]:
        """Return the copy's paths that are never carried over, with reasons."""
        return self._refusals.reasons()

    def reconsider(self) -> None:
        """Ask again about changes that the former rules denied."""
        asked = list(self._asked.items())
        requests = self._gate.queue.get_all({one.request_id for _, one in asked})
        denied = {
            request.id
            for request in requests
            if status(request) == "denied" and request.answer is None
        }
        for name, one in asked:
            if one.request_id in denied:
                self.forget(name)
        self._refusals.clear()

    # -- finding ----------------------------------------------------------------------------------

    async def _candidates(self, folders: set[str] | None) -> dict[str, bool]:
        """Return the paths that need a look, and whether something is there."""
        self._take_back_pending()
        found = (await self._walk.candidates(folders)).found
        await asyncio.to_thread(self._add_asked, found, everything=folders is None)
        return found

    def _take_back_pending(self) -> None:
        """Restore forgotten requests whose cards still wait: such a card must keep its owner."""
        let_go, self._let_go = self._let_go, {}
        requests = (
            self._gate.queue.get_all({one.request_id for one in let_go.values()}) if let_go else []
        )
        pending = {request.id for request in requests if status(request) == "pending"}
        for name, asked in let_go.items():
            if asked.request_id in pending:
                self._asked.setdefault(name, asked)

    def _add_asked(self, found: dict[str, bool], *, everything: bool) -> None:
        """Add paths whose state differs from what was asked, in any folder: they may be gone with
        their folder. Of a rename, both paths are added. With `everything`, add all, because the
        host may have changed."""
        ways = Ways(self._sides)
        for name, asked in list(self._asked.items()):
            if name not in found:
                now = signature_at(self._sides.copy, name)
                is_as_asked = now is not None and now == self._compared.get(name)
                if (
                    everything
                    or not is_as_asked
                    or not holds_for(asked.way, ways.to(asked.target(name)))
                ):
                    found[name] = now is not None
        for name in [other for name in found if (other := self._renamed_with(name))]:
            found.setdefault(name, self._is_there(name))

    def _is_there(self, name: str) -> bool:
        return signature_at(self._sides.copy, name) is not None

    # -- asking -----------------------------------------------------------------------------------

    async def _ask_about(
        self, names: Sequence[str], last: bool, renames: Renames | None = None
    ) -> None:
        """Examine each path and handle it, in portions; possible ends of a rename are skipped where
        they are held."""
        for at in range(0, len(names), CHUNK):
            findings = await asyncio.to_thread(
                self._examiner.all, names[at : at + CHUNK], last, renames
            )
            wanted = [
                one for finding in findings if (one := await self._follow_up(finding)) is not None
            ]
            actions = await self._noted([one.action for one in wanted])
            noted = [
                one._replace(action=action) for one, action in zip(wanted, actions, strict=True)
            ]
            await self._ask_all(noted, last)

    async def _ask_renames(self, renames: Renames, last: bool) -> None:
        """Ask about each rename as one change, and about unpaired halves. Where rules deny the
        rename, each half is judged separately."""
        pairs = renames.pairs()
        actions = await self._noted([_rename(*pair) for pair in pairs])
        found = zip(pairs, actions, strict=True)
        wanted = [
            one for pair, action in found if (one := self._renaming(*pair, action)) is not None
        ]
        for at in range(0, len(wanted), CHUNK):
            await self._ask_all(wanted[at : at + CHUNK], last)
        asked = {one.name for one in wanted}
        await self._ask_about(renames.without([one for one in pairs if one[0] in asked]), last)

    def _renaming(self, old: str, finding: PathFinding, action: FileChange) -> _ToAsk | None:
        new, mine = finding.name, finding.mine
        assert mine is not None
        if self._gate.rulings.verdict(action, self._session_id).decision == "deny":
            return None
        self._compared[new] = mine.signature
        key = ("rename", mine.token, None, new)
        mark = fingerprint(msgspec.structs.replace(action, repositories=()))
        return _ToAsk(old, key, mark, with_way(action, finding.way), new, finding.way)

    async def _noted(self, actions: Sequence[FileChange]) -> list[FileChange]:
        """Return the actions with the repositories that their paths are in now."""
        looking = Repositories(self._sides)
        return await asyncio.to_thread(lambda: [looking.noted(action) for action in actions])

    def _renamed_with(self, name: str) -> str | None:
        """Return the other path of the rename that a path was last asked about as; empty where that
        request was no rename."""
        asked = self._asked.get(name)
        return None if asked is None else asked.other

    async def _follow_up(self, finding: PathFinding) -> _ToAsk | None:
        """Handle one path. Return its request to the gate, if any."""
        name, mine = finding.name, finding.mine
        if finding.unsteady:
            self._watcher.wake(name.rpartition("/")[0])
        elif finding.problem:
            self._refusals.refuse(name, to_action(name, Want("write", None)), finding.problem)
        elif finding.wanted is None:
            self._agree(finding)
        elif finding.wanted.operation == "mkdir" and await self._holds_something(name):
            self._withdraw(name, "a file in the folder carries it")
        elif finding.wanted.never:
            kind = next(hazard for hazard in finding.wanted.hazards if hazard in SPECIAL)
            self._refusals.refuse(
                name, to_action(name, finding.wanted), f"a {kind} never leaves the copy"
            )
        elif finding.wanted.link_target is not None and not is_text(finding.wanted.link_target):
            self._refusals.refuse(
                name,
                to_action(name, finding.wanted),
                "the link's target isn't UTF-8, so no request can name it",
            )
        elif finding.wanted.operation == "swap":
            return await self._swap(finding)
        else:
            wanted = finding.wanted
            self._refusals.forget(name)
            if mine is not None:
                self._compared[name] = mine.signature
            action = to_action(name, wanted)
            key = (wanted.operation, wanted.after, wanted.mode, wanted.link_target)
            return _ToAsk(
                name, key, fingerprint(action), with_way(action, finding.way), way=finding.way
            )
        return None

    async def _swap(self, finding: PathFinding) -> _ToAsk | None:
        """Ask about a swapped path with everything below it. A swap that must wait has no card, and
        is examined again each time: it waits for the host, which may report nothing."""
        name, mine = finding.name, finding.mine
        swap = await self._swaps.complete(finding)
        if swap.action is None:
            if swap.unsteady:
                self._watcher.wake(name.rpartition("/")[0])
            else:
                self._withdraw(name, swap.problem, keep_refusal=True)
                assert finding.wanted is not None
                self._refusals.refuse(name, to_action(name, finding.wanted), swap.problem)
                self._compared.pop(name, None)
            return None
        assert mine is not None
        self._refusals.forget(name)
        self._compared |= swap.members | {name: mine.signature}
        action = swap.action
        return _ToAsk(
            name,
            (action.operation, action.after, action.mode, made_by(action)),
            fingerprint(action),
            action,
        )

    def _agree(self, finding: PathFinding) -> None:
        """Record that both sides hold the same at a path, and end a request about it."""
        name, mine, host = finding.name, finding.mine, finding.host
        known = self._sides.known(name)
        if mine is None:
            self._compared.pop(name, None)
            if host is None and known is not None:
                self._sides.agreed(name, None)
        elif host is not None and agree(known, mine, host):
            self._compared[name] = mine.signature
            now = Known(
                mine.kind,
                mine.mode & PERMISSIONS,
                mine.digest,
                mine.target,
                host.signature,
                mine.signature,
            )
            if known is None or mine.kind != "dir" or not is_known_of(known, mine, host):
                self._sides.agreed(name, now)
        elif known is not None and known.kind == mine.kind:
            self._compared[name] = mine.signature
            if mine.is_anew or known.mode == ANY_MODE:
                mode = mine.mode & PERMISSIONS
                self._sides.agreed(
                    name, msgspec.structs.replace(known, mode=mode, copy_signature=mine.signature)
                )
        self._withdraw(name, "the private copy is as the host again")

    async def _holds_something(self, folder: str) -> bool:
        """Return whether a new folder holds anything besides git's and our own files: it is created
        with those entries, or ignored with them. An unreadable folder counts as empty until it is
        readable."""
        found = await asyncio.to_thread(readable_entries, self._sides.copy, folder)
        return any(not self._side.is_hidden(leaf) for leaf, _ in found)

    async def _ask_all(self, wanted: Sequence[_ToAsk], last: bool) -> None:
        """Ask the gate about all these paths at once, and carry out what rules allow."""
        if self._found is not None:
            self._found += [one.action for one in wanted]
            return
        if not wanted:
            return
        self._room = self._free()
        asked = [self._asked[one.name].request_id for one in wanted if one.name in self._asked]
        earlier: dict[str, Request] = {
            request.id: request for request in self._gate.queue.get_all(asked)
        }
        is_tight = not last and self._room < len(wanted)
        to_ask: list[_ToAsk] = []
        for one in wanted:
            before = self._asked.get(one.name)
            request = earlier.get(before.request_id) if before is not None else None
            if (
                before is not None
                and request is not None
                and _still_speaks(request, before, one, last=last)
            ):
                if not (self._is_whole and _is_due(request, before.tries, self._clock.now())):
                    continue
                self._problems[one.name] = HELD_UP.format(_failure(request))
            if is_tight and self._must_wait(one, request):
                self._held |= {name: self._compared.pop(name, None) for name in one.names}
            else:
                to_ask.append(one)
        # Paths that blocked others before come last, each with its reason.
        to_ask.sort(key=self._problem_of)
        requests, grants = list[Request](), dict[str, Grant]()
        for reason, some in itertools.groupby(to_ask, key=self._problem_of):
            found, given = self._gate.ask_and_claim_all(
                [one.action for one in some],
                session_id=self._session_id,
                origin="workspace",
                reason=reason or REASON,
                held_up=bool(reason),
            )
            requests += found
            grants |= given
        for one, request in zip(to_ask, requests, strict=True):
            for name, other in zip(one.names, reversed(one.names), strict=True):
                before = self._asked.get(name)
                tries = _tries_of(before, earlier, one)
                other = other if one.other else ""
                self._asked[name] = _LastAsked(
                    one.key, one.mark, request.id, other, tries, one.way, one.action.repositories
                )
        ready = [
            one for one in requests if one.id in grants or status(one) in ("allowed", "approved")
        ]
        if ready:
            await self._carry_out_all(ready, grants)

    def _problem_of(self, one: _ToAsk) -> str:
        return next((why for name in one.names if (why := self._problems.get(name))), "")

    def _must_wait(self, one: _ToAsk, earlier: Request | None) -> bool:
        """Return whether another card would be too many now. Requests that need no card, or replace
        one, go on."""
        if earlier is not None and status(earlier) == "pending":
            return False
        if self._gate.rulings.verdict(one.action, self._session_id).decision != "ask":
            return False
        self._room -= 1
        return self._room < 0

    def _withdraw(self, name: str, why: str, *, keep_refusal: bool = False) -> None:
        asked = self._asked.pop(name, None)
        if not keep_refusal:
            self._refusals.forget(name)
        if (
            asked is not None
            and not self._is_other_end_of(asked)
            and self._state(asked) == "pending"
        ):
            self._gate.answers.close(why, asked.request_id)

    def _is_other_end_of(self, asked: _LastAsked) -> bool:
        """Return whether the request is a rename that still covers this path as its other end."""
        other = self._asked.get(asked.other)
        return other is not None and other.request_id == asked.request_id

    def _state(self, asked: _LastAsked) -> str:
        return status(self._gate.queue.get(asked.request_id))

    def _free(self) -> int:
        return self._gate.queue.room(self._session_id, "workspace")

    def _is_held(self, name: str) -> bool:
        """Return whether a path waits for room and is unchanged since."""
        return name in self._held and self._held[name] == signature_at(self._sides.copy, name)


def _rename(old: str, finding: PathFinding) -> FileChange:
    assert finding.mine is not None
    return rename_of(old, finding.name, finding.mine.token)
