"""Apply several host changes as one: all of them, or none.

First every `before` is checked. Then all new content is written beside its place, where nobody sees
it and a full disk is noticed. Only then come deletions, folders and renames. If one fails, those
already made are reverted from their before-contents, by the journal's intents. So kill -9 at any
moment leaves a batch that the next start completes or reverts as a whole.

It must never overwrite what somebody else wrote meanwhile, not even to put back the old content.
"""

import contextlib
import errno
import functools
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from supervisor.core.actions import FileChange
from supervisor.core.files.changes import Seen, name_of, names_of
from supervisor.core.files.undo_steps import (
    CHANGES_WITHIN,
    MADE_FOLDER,
    HeldContent,
    is_mode_of_folder,
    lets_in,
)
from supervisor.errors import GatehouseError, StorageError
from supervisor.workspace.apply.apply import Applier
from supervisor.workspace.apply.crash_leftovers import clean_leftovers
from supervisor.workspace.apply.placing import Applied
from supervisor.workspace.apply.restore import Restorer
from supervisor.workspace.apply.staging import Staged, Use
from supervisor.workspace.disk.host_errors import StaleError, stale
from supervisor.workspace.trees.history import History
from supervisor.workspace.trees.journal import BatchBegun, Intent, decode_name, encode_name
from supervisor.workspace.trees.trees import Sides

MOST_NAMED = 5
# Something blocks a folder's place, or lies in a folder to be removed.
_IN_THE_WAY = {
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENOTEMPTY,
    errno.ELOOP,
    errno.EEXIST,
    errno.ENOENT,
}

# A request, and a path as named in intents.
type _Key = tuple[str, str]


class BatchChange(NamedTuple):
    """One change of a batch; a swap is several of one request. `use` is its grant's, `mtime_ns` as
    in `Applier.apply`."""

    request_id: str
    action: FileChange
    use: Use
    mtime_ns: int | None

    @property
    def name(self) -> str:
        return name_of(self.action)

    @property
    def key(self) -> _Key:
        return self.request_id, encode_name(self.name)

    @property
    def keys(self) -> list[_Key]:
        """Return the keys of all its intents; a rename has two."""
        names = names_of(self.action) if self.action.operation == "rename" else [self.name]
        return [(self.request_id, encode_name(name)) for name in names]


class BatchError(GatehouseError):
    """Nothing of the batch is in effect, except what the message names. `name` is the path that
    prevented it; empty where there was none."""

    http_status = 409

    def __init__(self, name: str, cause: BaseException | None, left: Sequence[str]) -> None:
        known = cause if isinstance(cause, GatehouseError) else None
        why = known.message if known else f"`{name}`: {cause}" if name else str(cause)
        text = f"nothing of this was carried out: {why}"
        if left:
            text += f"; not put back: {'; '.join(left[:MOST_NAMED])}"
        super().__init__(text, known.remedy if known else "look at the path and try again")
        self.name = name
        self.why = why
        self.is_stale = isinstance(cause, StaleError)


class _FailedError(Exception):
    """One change failed; the cause says why."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class _Tries:
    """Failed roll-backs, with reasons. `is_stuck`: some may succeed once the disk works again."""

    def __init__(self) -> None:
        self.why: list[str] = []
        self.is_stuck = False

    def succeeds(self, work: Callable[[], None]) -> bool:
        try:
            work()
        except (GatehouseError, OSError) as error:
            self.why.append(error.message if isinstance(error, GatehouseError) else str(error))
            self.is_stuck = self.is_stuck or not _is_of_person(error)
            return False
        return True


class Batch:
    """Carries out host changes of one session together. Blocking: call it in a thread, one at a
    time."""

    def __init__(self, sides: Sides, applier: Applier, at: Callable[[str], None]) -> None:
        self._root = sides.host
        self._left_behind = sides.left_behind
        self._history: History = sides.history
        self._applier = applier
        self._restorer = Restorer(sides.host, sides.history, at=lambda step: at(f"back {step}"))
        self._at = at

    def carry_out(self, batch: BatchBegun, changes: Sequence[BatchChange]) -> list[Applied]:
        """Apply all changes. Return each outcome, in order. Raise BatchError where none was
        applied.

        Repeated after a crash with the same changes, it does the rest.
        """
        self._end_earlier(batch)
        is_resumed = self._history.open_batch is not None
        begun = set[_Key]()
        try:
            self._history.begin_batch(batch)
            self._at("batch begun")
            with self._applier.sharing_syncs(), self._history.counting(len(changes)):
                done = self._do_all(changes, begun)
            self._at("batch done")
            self._history.end_batch(batch, rolled_back=False)
        except Exception as error:  # whatever it is: what was done has to be put back
            name, cause = (
                (error.name, error.__cause__) if isinstance(error, _FailedError) else ("", error)
            )
            left = self.roll_back(batch, None if is_resumed else begun)
            raise BatchError(name, cause, left) from cause
        self._at("batch ended")
        return done

    def roll_back(
        self, batch: BatchBegun, begun: Collection[_Key] | None = None, *, is_last: bool = False
    ) -> list[str]:
        """Undo the effects of the batch's intents. Return those that failed, with reasons. `begun`
        are the changes whose effects may have happened, so that nothing the person did is taken for
        one. It is None after a crash: then any may have happened.

        A path that the person changed since belongs to the person. INVARIANT: its content before
        the batch isn't lost: the effect counts as done, and can be undone like any other. Failures
        of the disk alone are retried at the next start, and for the last time before the next
        batch: they must never block later changes.
        """
        self._at("rolling back")
        ids = set(batch.requests)
        intents = [intent for intent in self._history.open.values() if intent.request in ids]
        self._left_behind.update(clean_leftovers(self._root, intents))
        self._open_folders(intents)
        tries = _Tries()
        stays: list[Intent] = []
        newest_first = intents[::-1]
        for intent in sorted(newest_first, key=_order_back):
            is_meant = begun is None or (intent.request, intent.name) in begun
            # Nothing is placed before the old content is kept.
            if (
                is_meant
                and not tries.succeeds(functools.partial(self._take_back, batch, intent))
                and self._history.has_before(intent)
            ):
                stays.append(intent)
            # Folders are made while the batch is prepared.
            tries.succeeds(functools.partial(self._take_back_folders, batch, intent))
        for intent in newest_first:
            self._set_folder_time(intent)
        if is_last or not tries.is_stuck:
            with contextlib.suppress(
                OSError
            ):  # the journal can't be written: the next start finds all of it put back
                stays.sort(key=intents.index)
                self._history.end_batch(batch, rolled_back=True, stays=stays)
        self._at("rolled back")
        return tries.why

    def _end_earlier(self, batch: BatchBegun) -> None:
        """Finish rolling back an earlier batch as far as possible, before another relies on the
        history."""
        earlier = self._history.open_batch
        if earlier is not None and earlier.id != batch.id:
            self.roll_back(earlier, is_last=True)
            if self._history.open_batch is not None:
                raise GatehouseError(
                    "earlier changes can't be put back: the journal can't be written", "make room"
                )

    def _do_all(self, changes: Sequence[BatchChange], begun: set[_Key]) -> list[Applied]:
        host = self._check_all(changes)
        self._at("batch checked")
        staged: dict[_Key, Staged] = {}
        # A path in a folder of this batch waits for the folder: made early as a parent, the folder
        # would block itself.
        folders = {change.name for change in changes if _makes_folder(change.action)}
        with self._applier.staging_together():
            for change in changes:
                request_id, action, use, mtime_ns = change
                self._history.count()
                with _about(change.name):
                    if action.operation in ("delete", "rename"):
                        self._applier.keep(action, host[change.key])
                        continue  # nothing is written for it
                    if change.name.rpartition("/")[0] in folders:
                        continue
                    ready = self._applier.stage(
                        action, host[change.key], request_id, use, mtime_ns=mtime_ns
                    )
                if ready is not None:
                    staged[change.key] = ready
        self._at("batch staged")
        done: dict[_Key, Applied] = {}
        for change in sorted(changes, key=lambda change: order(change.action)):
            begun.update(change.keys)
            with _about(change.name):
                try:
                    done[change.key] = self._do(change, host[change.key], staged.get(change.key))
                except StaleError:
                    if change.action.operation != "rename":
                        begun.discard(change.key)  # nothing of it happened
                    raise
        for change in sorted(changes, key=lambda change: -change.name.count("/")):
            with _about(change.name):
                done[change.key] = self._applier.shut(change.action, done[change.key])
        return [done[change.key] for change in changes]

    def _do(self, change: BatchChange, host: Seen | None, staged: Staged | None) -> Applied:
        if staged is not None:
            return self._applier.place(staged)
        if change.action.operation == "rename":
            return self._applier.move(change.action, change.request_id, change.use)
        return self._applier.carry_out(
            change.action, host, change.request_id, change.use, mtime_ns=change.mtime_ns
        )

    def _check_all(self, changes: Sequence[BatchChange]) -> dict[_Key, Seen | None]:
        """Return the host's state of each path. A rename's paths are checked again later."""
        host: dict[_Key, Seen | None] = {}
        for change in changes:
            with _about(change.name):
                if change.action.operation == "rename":
                    host[change.key] = self._applier.check_move(change.action, change.request_id)
                else:
                    host[change.key] = self._applier.check(change.action, change.request_id)
        return host

    def _has_folder(self, name: str) -> bool:
        try:
            with self._root.parent(name):
                return True
        except OSError:
            return False

    def _open_folders(self, intents: Sequence[Intent]) -> None:
        """Open folders that the batch made and already shut: their entries are removed first."""
        for intent in intents:
            if _is_folder(intent.after) and not _is_folder(intent.before):
                with contextlib.suppress(OSError, GatehouseError):
                    self._restorer.let_in(decode_name(intent.name), intent.after)

    def _set_folder_time(self, intent: Intent) -> None:
        """Restore a folder's time, now that all its entries are back."""
        before = intent.before
        if before is not None and before.kind == "dir" and before.mtime_ns:
            with (
                contextlib.suppress(OSError, GatehouseError),
                self._root.directory(decode_name(intent.name)) as fd,
            ):
                os.utime(fd, ns=(before.mtime_ns, before.mtime_ns))

    def _take_back(self, batch: BatchBegun, intent: Intent) -> None:
        name = decode_name(intent.name)
        if intent.before is not None and not self._has_folder(name):
            raise stale(
                name
            )  # what the batch took from there is back by now: the person took it away
        # A crash may have separated making a folder from setting its mode.
        expected = (
            MADE_FOLDER if intent.before is None and _is_folder(intent.after) else intent.after
        )
        if _is_swap(intent):
            # Two steps, and a crash may have done either: remove the new entry if it came, and
            # bring the old one back.
            with contextlib.suppress(StaleError):
                came = MADE_FOLDER if _is_folder(intent.after) else intent.after  # shut or not
                self._restorer.restore(batch.id, name, None, came)
            expected = None
        self._restorer.restore(batch.id, name, intent.before, expected)

    def _take_back_folders(self, batch: BatchBegun, intent: Intent) -> None:
        for folder in reversed(intent.folders):
            try:
                self._restorer.restore(batch.id, decode_name(folder), None, MADE_FOLDER)
            except GatehouseError as error:
                if not _is_of_person(error):
                    raise
                # it still holds another path of the batch, which is removed later, or somebody
                # else's
                return


def _is_of_person(error: GatehouseError | OSError) -> bool:
    """Return whether a path can't be put back because the person changed it or a folder above it,
    so that trying again won't help."""
    if isinstance(error, StorageError):
        return False
    cause = error if isinstance(error, OSError) else error.__cause__
    return not isinstance(cause, OSError) or cause.errno in _IN_THE_WAY


@contextlib.contextmanager
def _about(name: str) -> Iterator[None]:
    """Name the path that a failure in the block is about."""
    try:
        yield
    except Exception as error:
        raise _FailedError(name) from error


def order(action: FileChange) -> tuple[int, int, str]:
    """Return the sort key of a batch: deletions innermost first, folders outermost first, then
    everything else. Modes of folders come last, innermost first, since one may take away the right
    to write. A mode that gives it comes first, outermost first."""
    name = name_of(action)
    depth = name.count("/")
    if (
        action.operation == "chmod"
        and action.after == "dir"
        and (action.mode or 0) & CHANGES_WITHIN == CHANGES_WITHIN
    ):
        return -1, depth, name
    if action.operation == "delete":
        return 0, -depth, name
    if _makes_folder(action):
        return 1, depth, name
    return (3, -depth, name) if action.after == "dir" else (2, 0, name)


def _makes_folder(action: FileChange) -> bool:
    return action.operation == "mkdir" or (action.operation == "swap" and action.after == "dir")


def _order_back(intent: Intent) -> int:
    """Return the sort key of a roll-back: modes of folders, then removals (which make room), then
    folders that something else replaced, then restored entries, and last the modes that would
    prevent it."""
    if is_mode_of_folder(intent.before, intent.after):
        return 0 if lets_in(intent.before) else 4
    if intent.before is None:
        return 1
    return 2 if _is_swap(intent) and intent.before.kind == "dir" else 3


def _is_folder(held: HeldContent | None) -> bool:
    return held is not None and held.kind == "dir"


def _is_swap(intent: Intent) -> bool:
    """Return whether a folder took the place of something else, or vice versa."""
    before, after = intent.before, intent.after
    return before is not None and after is not None and _is_folder(before) != _is_folder(after)
