"""Bring the person's changes from the host into the copy.

Level-triggered (law 8): the watcher of the host's folders only wakes a comparison of the host with
the last agreement of both sides. A path that only the host changed is brought into the copy. No
gate is asked, since nothing leaves the sandbox by that. A path that both sides changed is left to
`compare`, which asks a person.

The same ignore rules apply as in `compare`. Git's own folder is never synced: the copy's repository
is the agent's own. It must never write to the host, follow a link on either side, or replace what
the agent wrote meanwhile.
"""

import asyncio
import errno
import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Literal, NamedTuple

import msgspec

from supervisor.base.clock import Clock, RealClock
from supervisor.base.event_loop import to_end
from supervisor.core.actions import FileChange
from supervisor.core.files.changes import (
    OWNER,
    PERMISSIONS,
    Known,
    Seen,
    Signature,
    Want,
    signature_of,
    to_action,
)
from supervisor.core.files.host_changes import NOTHING, Incoming, incoming, steps
from supervisor.errors import GatehouseError, UserError
from supervisor.workspace.apply.apply import Applier
from supervisor.workspace.apply.placing import TEMPORARY_PREFIX
from supervisor.workspace.disk.beneath import FILE, PathError, Root, is_git_name
from supervisor.workspace.disk.host_errors import StaleError, stale
from supervisor.workspace.disk.overlay_changes import Upper
from supervisor.workspace.disk.scan import (
    TooLargeError,
    UnsteadyError,
    each_entry,
    look,
    steady_digest,
)
from supervisor.workspace.disk.watch import Watcher, at_rest_s
from supervisor.workspace.incoming.new_files import NewFiles
from supervisor.workspace.trees.ignores import IGNORE_FILES, Ignores
from supervisor.workspace.trees.trees import Sides
from supervisor.workspace.trees.walk import Walk

CHUNK = 64
FULL_PASS_S = 60.0
IMPATIENT_S = 1.0
# Where the host can't be watched completely, full passes take at most this share of the time.
PASS_SHARE = 0.05
# More vanished files than this are believed only if they stay away: a folder that is being deleted
# or replaced passes through every intermediate state.
FEW_VANISHED = 20
MOST_NAMED = 100
MOST_REMEMBERED = 200

_NOT_YET: Signature = (-1, 0, 0, 0, 0)

What = Literal["created", "changed", "deleted", "conflict"]


class HostChange(msgspec.Struct, frozen=True):
    """A change that the person made while the agent worked. `digest` is the host's content, where
    it is a file; `at` is in seconds since the epoch."""

    name: str
    what: What
    digest: str | None
    at: float


class _Found(NamedTuple):
    """One examined and handled path. If `is_agreed`, both sides now agree on `known`."""

    name: str
    verdict: Incoming = NOTHING
    host: Seen | None = None
    what: What | None = None
    known: Known | None = None
    is_agreed: bool = False
    problem: str = ""
    unsteady: bool = False


class HostChanges:
    """Host changes of one session. Calls must not overlap with each other or with a comparison: the
    channel holds its turn around them.

    `asked_anew(name)` is called for a path that both sides changed, and for one that they agree on
    again: a request about it is checked once more. `refresh` makes an overlay forget its cache of
    the host.
    """

    def __init__(
        self,
        sides: Sides,
        ignores: Ignores,
        asked_anew: Callable[[str], None],
        *,
        refresh: Callable[[], Awaitable[None]] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._refresh = refresh
        self._dead: set[str] = set()
        self._sides = sides
        self._ignores = ignores
        self._watcher = Watcher(sides.host)
        self._walk = _HostWalk(sides, ignores, self._watcher, self._note)
        self._asked_anew = asked_anew
        self._clock = clock or RealClock()
        self._conflicts: dict[str, Signature | None] = {}
        self._problems: dict[str, str] = {}
        self._later: set[str] = set()
        self._to_shut: dict[str, Seen] = {}
        self._vanished: frozenset[str] = frozenset()
        self._missing = ""
        self._pass_s = 0.0
        self.recent: deque[HostChange] = deque(maxlen=MOST_REMEMBERED)

    # -- what the channel calls -------------------------------------------------------------------

    def close(self) -> None:
        """Stop watching the host."""
        self._watcher.close()

    async def wait(self) -> set[str] | None:
        """Return the folders to look at next; None: all of them."""
        if self._later:
            patience_s = IMPATIENT_S
        elif self._watcher.is_partial:
            patience_s = min(FULL_PASS_S, max(IMPATIENT_S, self._pass_s / PASS_SHARE))
        else:
            patience_s = at_rest_s(FULL_PASS_S, self._pass_s)
        folders = await self._watcher.batch(patience_s)
        if folders is None or (not folders and not self._later):
            return None
        later, self._later = self._later, set()
        return folders | later

    async def run(self, folders: set[str] | None) -> set[str]:
        """Compare the entries of these host folders, and new folders below them; None: everything.
        Return the paths that the person changed."""
        begun = self._clock.monotonic()
        self._missing = await asyncio.to_thread(self._why_missing)
        if self._missing:
            return set()
        changed: set[str] = set()
        if folders is None:
            self._problems.clear()
        found = await self._walk.candidates(folders)
        await self._refresh_view()
        if folders is None:
            self._conflicts = {
                name: signature for name, signature in self._conflicts.items() if name in found
            }
        gone = sorted((name for name, is_there in found.items() if not is_there), reverse=True)
        gone = self._believed(gone)
        # Deletions first and innermost first, so that a folder is empty when its turn comes.
        names = gone + sorted(name for name, is_there in found.items() if is_there)
        for at in range(0, len(names), CHUNK):
            chunk = names[at : at + CHUNK]
            for one in await to_end(lambda chunk=chunk: self._deal_with_all(chunk)):  # type: ignore[misc]
                self._follow_up(one)
                if one.what is not None or one.verdict.verdict == "conflict":
                    changed.add(one.name)
        # Innermost first, and only now: their entries could not be created otherwise.
        for name in sorted(self._to_shut, reverse=True):
            self._follow_up(await to_end(lambda name=name: self._deal_with(name, self._shut)))  # type: ignore[misc]
        self._to_shut.clear()
        if folders is None:
            self._pass_s = self._clock.monotonic() - begun
        return changed

    def copy_changed(self, folders: set[str] | None) -> None:
        """Check conflicts in these folders again, since the agent changed something there."""
        for folder in {_folder(name) for name in self._conflicts}:
            if folders is None or folder in folders:
                self._watcher.wake(folder)

    def settled(self, name: str) -> None:
        """Note that a person's answer about the path was carried out."""
        self._conflicts.pop(name, None)

    async def give(self, name: str, mine: Seen | None, host: Seen | None) -> None:
        """Bring the host's version of a path into the copy, which must still hold `mine`. Raise
        `UserError` where that isn't possible."""
        known = self._sides.known(name)
        one = await to_end(
            lambda: self._deal_with(
                name, lambda name: self._bring(name, known, host, steps(mine, host))
            )
        )
        self._follow_up(one)
        if not one.is_agreed:
            why = one.problem or "one of them just changed again"
            raise UserError(f"the copy was left as it is: {why}", "look at the path and try again")

    def conflicts(self) -> list[str]:
        """Return the paths that both sides have changed without an answer yet."""
        return sorted(self._conflicts)

    def notices(self) -> list[str]:
        """Return notices for a person about this direction, one line each."""
        lines = [self._missing] if self._missing else []
        if self._problems:
            shown = [f"`{name}` ({why})" for name, why in list(self._problems.items())[:3]]
            more = len(self._problems) - len(shown)
            rest = f" and {more} more" if more else ""
            lines.append(f"not brought into the copy: {', '.join(shown)}{rest}")
        lines += [f"look through `{name}`: {why}" for name, why in self._sides.left_behind.items()]
        return lines

    # -- finding ----------------------------------------------------------------------------------

    async def _refresh_view(self) -> None:
        """If the copy is an overlay and the host deleted or replaced folders, make the copy show
        the new ones.

        Each folder is refreshed once: one that is in use in the sandbox (a process's working
        directory) stays the old one there. A failure is reported, and tried again the next time.
        """
        if self._refresh is not None and not self._walk.dead <= self._dead:
            try:
                await self._refresh()
            except GatehouseError as error:
                self._note("", error.message)
                return
        self._dead = self._walk.dead

    def _why_missing(self) -> str:
        """Return why the host's folder can't be examined; empty where it is there."""
        try:
            if os.fstat(self._sides.host.fd).st_nlink == 0:
                return (
                    "the workspace's folder was deleted on the host: the copy keeps what it has,"
                    " and nothing is synced any more; save what you need from the copy and end the"
                    " session"
                )
            for _ in each_entry(self._sides.host, ""):
                break
        except OSError as error:
            return (
                f"the workspace can't be read on the host ({error.strerror}): the copy keeps what"
                " it has"
            )
        return ""

    def _believed(self, gone: list[str]) -> list[str]:
        """Return the vanished paths that may be deleted from the copy now. Many at once must stay
        away for a while first. Where most of the workspace is gone, the copy keeps its files. Files
        that only shone through an overlay are lost already."""
        known = [
            name
            for name in gone
            if (was := self._sides.known(name)) is not None and was.kind != "dir"
        ]
        files = [name for name in known if self._sides.is_of_agent(name)]
        if len(files) <= FEW_VANISHED:
            self._vanished = frozenset()
            return gone
        now, before = frozenset(files), self._vanished
        self._vanished = now
        if not now <= before:
            self._later |= {_folder(name) for name in gone}
            return []
        total = self._sides.number_of_files()
        if len(files) * 2 > total:
            self._note(
                "",
                f"{len(files)} of {total} files are gone on the host: the copy keeps its own of"
                " them",
            )
            return []
        self._vanished = frozenset()
        return gone

    # -- looking and bringing (in a thread) -------------------------------------------------------

    def _deal_with_all(self, names: list[str]) -> list[_Found]:
        for name in names:
            self._sides.speak_of(name)
        with NewFiles(self._sides.host, self._sides.copy) as new:
            return [self._bring_new(name, new) or self._deal_with(name) for name in names]

    def _bring_new(self, name: str, new: NewFiles) -> _Found | None:
        if self._sides.known(name) is not None or self._sides.spellings.other(name) is not None:
            return None
        brought = new.bring(name)
        if brought is None:
            return None
        return _Found(name, host=brought.host, what="created", known=brought.known, is_agreed=True)

    def _deal_with(self, name: str, work: Callable[[str], _Found] | None = None) -> _Found:
        try:
            return (work or self._compare)(name)
        except UnsteadyError:
            return _Found(name, unsteady=True)
        except StaleError:
            return _Found(
                name, unsteady=True
            )  # one of the sides moved between look and write: look again
        except TooLargeError:
            return _Found(name, problem="the file is too large")
        except (PathError, GatehouseError) as error:
            cause = error.__cause__
            return _Found(
                name,
                problem=(
                    cause.strerror or str(cause) if isinstance(cause, OSError) else error.message
                ),
            )
        except OSError as error:
            return _Found(name, problem=error.strerror or str(error))

    def _compare(self, name: str) -> _Found:
        known = self._sides.known(name)
        host = look(
            self._sides.host,
            name,
            digest_of=_unless_same(known, known.host_signature if known else None),
        )
        mine = self._sides.look_at_copy(
            name, digest_of=_unless_same(known, known.copy_signature if known else None)
        )
        if mine is None and host is not None and self._sides.spellings.other(name) is not None:
            return _Found(name)  # the copy has it, in another spelling: by that it is compared
        verdict = incoming(self._sides.standing(name, mine, host), mine, host)
        if verdict.verdict == "agreed":
            both = _agreement(host, mine.signature if mine else None)
            what = _done(known, host) if not self._sides.is_of_agent(name) else None
            return _Found(name, verdict, host, what, known=both, is_agreed=True)
        if verdict.verdict == "bring":
            if host is not None:
                self._sides.pin(name, mine)
            return self._bring(name, known, host, verdict.steps)
        return _Found(name, verdict, host)

    def _bring(
        self, name: str, known: Known | None, host: Seen | None, steps: tuple[Want, ...]
    ) -> _Found:
        what = _done(known, host)
        made: Known | None = None
        for step in steps:
            try:
                made = self._apply(name, step, host)
            except GatehouseError as error:
                if (
                    not isinstance(error.__cause__, OSError)
                    or error.__cause__.errno != errno.ENOTEMPTY
                ):
                    raise
                # The agent has its own files in the folder, which belongs to the agent alone from
                # now on.
                return _Found(name, host=host, what=what, is_agreed=True)
        known = _agreement(host, made.host_signature if made else None)
        return _Found(name, host=host, what=what, known=known, is_agreed=True)

    def _shut(self, name: str) -> _Found:
        """Restore the mode of a new host folder that keeps out its owner, once all of it is in the
        copy."""
        host = self._to_shut[name]
        shutting = Want("chmod", "dir", "dir", host.mode & PERMISSIONS)
        return self._bring(name, self._sides.known(name), host, (shutting,))._replace(what=None)

    def _apply(self, name: str, step: Want, host: Seen | None) -> Known | None:
        """Do one step in the copy. Return its new state."""
        if (
            step.operation == "mkdir"
            and step.mode is not None
            and step.mode & OWNER != OWNER
            and host is not None
        ):
            self._to_shut[name] = host
            step = msgspec.structs.replace(step, mode=step.mode | OWNER)
        action = to_action(name, step)
        if step.link_target is not None and action.link_target != step.link_target:
            raise PathError("the link's target isn't text", "make it on the host only")

        def check(rebuilt: FileChange) -> None:
            # INVARIANT: the copy gets what was compared, though it is read from the host again.
            if rebuilt.after != action.after:
                raise stale(name)

        applier = Applier(self._sides.copy, _HostFile(self._sides.host, name), None, durable=False)
        mtime_ns = host.signature[1] if host is not None else None
        return applier.apply(action, "host", check, mtime_ns=mtime_ns).known

    # -- what came of it --------------------------------------------------------------------------

    def _follow_up(self, one: _Found) -> None:
        name, verdict = one.name, one.verdict.verdict
        self._problems.pop(name, None)
        before = self._conflicts.pop(name, _NOT_YET)
        if one.unsteady:
            self._later.add(_folder(name))
        elif one.problem:
            self._note(name, one.problem)
        elif one.is_agreed:
            # Not in the journal, as the copy isn't synced to the disk. A power cut could keep only
            # the journal's line, and the copy's old content would then count as a change of the
            # agent's.
            self._sides.agreed(name, one.known, journaled=False)
            if one.what is not None:
                self._remember(name, one.what, one.host)
            else:
                self._asked_anew(name)
            if name.rpartition("/")[2] in IGNORE_FILES:
                self._ignores.forget()
                self._watcher.wake()
        elif verdict == "conflict":
            now = one.host.signature if one.host is not None else None
            self._conflicts[name] = now
            if before != now:
                self._remember(name, "conflict", one.host)
                self._asked_anew(name)
        elif verdict == "never" and one.host is not None:
            self._note(name, f"a {one.host.kind} is never copied")
            self._sides.keep_from_agent([name])

    def _remember(self, name: str, what: What, host: Seen | None) -> None:
        self.recent.append(
            HostChange(name, what, host.digest if host is not None else None, self._clock.now())
        )

    def _note(self, name: str, why: str) -> None:
        if len(self._problems) < MOST_NAMED:
            self._problems[name] = why


class _HostFile:
    """A host file as the content that an effect on the copy is bound to."""

    def __init__(self, host: Root, name: str) -> None:
        self._host = host
        self._name = name

    def open(self, digest: str) -> int:
        """Open the file, whatever it holds now: the reader must check it against `digest`."""
        with self._host.parent(self._name) as (folder, leaf):
            return os.open(leaf, FILE, dir_fd=folder)


def _done(known: Known | None, host: Seen | None) -> What:
    """Describe the person's change since both sides agreed on `known`."""
    return "deleted" if host is None else "created" if known is None else "changed"


def _agreement(host: Seen | None, copy_signature: Signature | None) -> Known | None:
    if host is None:
        return None
    of = host.mode if host.kind != "dir" or copy_signature is None else copy_signature[4]
    return Known(
        host.kind, of & PERMISSIONS, host.digest, host.target, host.signature, copy_signature
    )


def _unless_same(
    known: Known | None, signature: Signature | None
) -> Callable[[int, os.stat_result], str] | None:
    """Return a digest function that skips the read where the signature belongs to a known
    digest."""
    if known is None or known.digest is None or signature is None:
        return None
    digest = known.digest
    return lambda fd, status: (
        digest if signature_of(status) == signature else steady_digest(fd, status)
    )


class _HostWalk:
    """Walk of one session's host, for paths that differ by signature from the baseline. Ignored
    folders and git's own aren't entered. `note(folder, why)` is called for a folder that can't be
    read. `dead`: see `Upper.dead`."""

    def __init__(
        self, sides: Sides, ignores: Ignores, watcher: Watcher, note: Callable[[str, str], None]
    ) -> None:
        self._sides = sides
        self.dead: set[str] = set()
        self._host = _Host(sides, ignores, note)
        self._walk = Walk(self._host, sides, ignores, watcher)

    async def candidates(self, folders: set[str] | None) -> dict[str, bool]:
        """Return paths that need a look, and whether something is there on the host."""
        found, visited, empty, is_whole = await self._walk.candidates(folders)
        await asyncio.to_thread(self._sides.keep_from_agent, self._host.take_ignored())
        if self._sides.upper is not None:
            self.dead = await asyncio.to_thread(
                self._dead, self._sides.upper, found, visited, folders is None
            )
        if folders is None and is_whole and self._sides.is_meeting_host:
            await asyncio.to_thread(self._sides.met_all)
        new = {
            name: name in empty
            for name in visited
            if found.get(name) and self._sides.known(name) is None
        }
        _drop_unneeded(found, new)
        return found

    def _dead(
        self, upper: Upper, found: dict[str, bool], visited: set[str], is_whole: bool
    ) -> set[str]:
        """See `Upper.dead`. A full pass needn't check every folder: a replaced one holds files that
        weren't agreed on, or those that the agent put into it."""
        likely = (
            {_folder(name) for name in found} | upper.folders_among(visited)
            if is_whole
            else visited
        )
        return upper.dead(likely | found.keys(), self._sides.host)


class _Host:
    """The host's side for the walk."""

    def __init__(self, sides: Sides, ignores: Ignores, note: Callable[[str, str], None]) -> None:
        self._sides = sides
        self._ignores = ignores
        self._note = note
        self._ignored: list[str] = []

    def entries(self, folder: str) -> Iterable[tuple[str, os.stat_result]]:
        entries = each_entry(self._sides.host, folder)
        return self._met(folder, entries) if self._sides.is_meeting_host else entries

    def _met(
        self, folder: str, entries: Iterable[tuple[str, os.stat_result]]
    ) -> Iterator[tuple[str, os.stat_result]]:
        for leaf, status in entries:
            self._sides.met_on_host(f"{folder}/{leaf}" if folder else leaf, status)
            yield leaf, status

    def gone(self, folder: str, seen: set[str], unseen: set[str]) -> set[str]:
        return self._sides.children(folder) - seen

    def is_gone(self, name: str) -> None:
        pass  # both sides agreed on it once

    def ignored(self, name: str) -> None:
        if not self._sides.shows_ignored:
            self._ignored.append(name)

    def take_ignored(self) -> list[str]:
        """Return the paths skipped since the last call."""
        names, self._ignored = self._ignored, []
        return names

    def is_hidden(self, leaf: str) -> bool:
        return is_git_name(leaf) or leaf.startswith(TEMPORARY_PREFIX)

    def agreed(self, name: str, known: Known | None) -> Signature | None:
        return known.host_signature if known is not None else None

    def differs(self, known: Known | None, mode: int) -> bool:
        if known is None or known.kind != "dir" or known.host_signature is None:
            return True
        return (known.host_signature[4] ^ mode) & PERMISSIONS != 0

    def enters(self, known: Known | None) -> bool:
        return known is None or known.kind != "dir"

    def found_git(self, folder: str) -> None:
        self._ignores.found_repository(folder)
        self._ignored.append(f"{folder}/.git" if folder else ".git")

    def is_empty_if_unreadable(self, folder: str, error: OSError) -> bool:
        self._note(folder, f"the folder can't be read on the host: {error.strerror}")
        return False


def _drop_unneeded(found: dict[str, bool], new_folders: dict[str, bool]) -> None:
    """Drop new folders that hold only ignored files. `new_folders`: whether each is empty."""
    holds: set[str] = {
        _folder(name) for name, is_there in found.items() if is_there and name not in new_folders
    }
    for name in sorted(new_folders, reverse=True):
        if new_folders[name] or name in holds:
            holds.add(_folder(name))
        else:
            found.pop(name, None)


def _folder(name: str) -> str:
    return name.rpartition("/")[0]
