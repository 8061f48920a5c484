"""Memory of what was asked about a path, and whether its outcome still holds.

A change that couldn't be carried out is asked again after a while: the disk may have room by then.
A change that a person answered becomes a card anew, one that a rule allows is tried anew, both with
the obstacle as the reason. It is separate from `compare`, which finds what differs, because it
looks at no file. It must never ask so often that a disk which stays full fills the record: each
wait is twice as long.
"""

from collections.abc import Mapping
from typing import NamedTuple

from supervisor.core.actions import FileChange
from supervisor.core.approvals import Request, status
from supervisor.core.files.new_folders import FolderModes, holds_for

# Less than a full comparison comes after, so that the next one asks.
FIRST_S = 20.0
LONGEST_S = 3600.0


type AskedKey = tuple[str, str | None, int | None, str | None]


class LastAsked(NamedTuple):
    """The last request about a path: `key` is the change without the host's old state, `other` the
    other path of a rename, `tries` how many requests for the same failed before, `way` its new
    parent folders, `repositories` those of the action."""

    key: AskedKey
    fingerprint: str
    request_id: str
    other: str = ""
    tries: int = 0
    way: FolderModes = ()
    repositories: tuple[str, ...] = ()

    def target(self, name: str) -> str:
        """Return the path that the request about `name` creates."""
        return self.key[3] or name if self.key[0] == "rename" else name


class ToAsk(NamedTuple):
    """A path that differs in a way that must be asked about; `key`, `other` and `way` are as in
    `LastAsked`. `mark`: the fingerprint of the action without the folders around it."""

    name: str
    key: AskedKey
    mark: str
    action: FileChange
    other: str = ""
    way: FolderModes = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Every path that it is about."""
        return (self.name, self.other) if self.other else (self.name,)


def failure(request: Request) -> str:
    """Return why a request couldn't be carried out; empty where it could."""
    if status(request) != "used" or request.outcome is None or request.outcome.get("ok"):
        return ""
    return str(request.outcome.get("error") or "it failed")


def is_due(request: Request, tries: int, now: float) -> bool:
    """Return whether a request that failed after `tries` others for the same is to be asked once
    more. `now`: seconds since the epoch."""
    if not failure(request) or request.settled_at is None:
        return False
    waited_s = now - request.settled_at
    # A clock that was set back mustn't keep it waiting for as long as it was wrong.
    return waited_s < 0 or waited_s >= min(LONGEST_S, FIRST_S * 2 ** min(tries, 20))


def still_speaks(request: Request, before: LastAsked, now: ToAsk, *, last: bool) -> bool:
    """Return whether what became of an earlier request for the same change holds for it still."""
    if before.key != now.key or not holds_for(before.way, now.way):
        return False
    if before.repositories != now.action.repositories:
        return False  # the rules may say another thing by now
    current = status(request)
    if before.fingerprint != now.mark:
        return current == "denied"  # the host moved on, the refused change is the same
    return not (last and (failure(request) or current == "superseded"))


def tries_of(before: LastAsked | None, earlier: Mapping[str, Request], now: ToAsk) -> int:
    """Count the failed requests for the same in a row; `earlier` are those known, by id."""
    if before is None or before.key != now.key:
        return 0
    request = earlier.get(before.request_id)
    return before.tries + 1 if request is not None and failure(request) else 0
