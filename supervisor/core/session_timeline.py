"""What a session asked and changed, from the short facts of its requests.

Pure. The timeline has an entry for each request, from asked to done; changed files that were asked
or answered together are one. The list of changed files has each path once.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Literal, NamedTuple, get_args

from supervisor.core.actions import Category, Effect
from supervisor.core.approval_states import Answer, status_of

type ChangeState = Literal[
    "conflict", "waiting", "failed", "in part", "applied", "undone", "denied", "expired"
]
STATES: tuple[ChangeState, ...] = get_args(ChangeState.__value__)
# Changed files of which each comes so soon after the other are one entry.
TOGETHER_S = 3.0


class RequestFacts(NamedTuple):
    """What a timeline needs of each request; there can be 20,000. `has_failed`, `is_undone`: what
    its outcome says."""

    id: str
    asked_at: float
    category: Category
    decision: Effect
    answer: Answer | None
    answered_at: float | None
    superseded_by: str | None
    closed_at: float | None
    used_at: float | None
    settled_at: float | None
    has_failed: bool
    is_undone: bool


class ChangeFacts(NamedTuple):
    """What a list of changed files needs of each request."""

    id: str
    subject: str
    decision: Effect
    answer: Answer | None
    superseded_by: str | None
    closed_at: float | None
    used_at: float | None
    settled_at: float | None
    in_part: bool
    has_failed: bool
    is_undone: bool


class RequestGroup(NamedTuple):
    """Requests of one entry, newest first. Times are seconds since the epoch."""

    ids: tuple[str, ...]
    newest_at: float
    oldest_at: float


def together(asked: Iterable[RequestFacts]) -> Iterator[RequestGroup]:
    """Yield the entries of requests that come newest first."""
    found: list[RequestFacts] = []
    for one in asked:
        if found and not _is_same(found[-1], one):
            yield _entry(found)
            found = []
        found.append(one)
    if found:
        yield _entry(found)


class ChangedPath(NamedTuple):
    """A path's newest request, where it stands, and the requests whose effect on it holds."""

    newest: ChangeFacts
    state: ChangeState
    applied: tuple[str, ...]


def changed_paths(changed: Iterable[ChangeFacts], conflicts: Collection[str]) -> list[ChangedPath]:
    """Return each path once, of changes that come newest first: those that wait for a person
    before the others. `conflicts` are the requests that contradict the person's own change."""
    found: dict[str, list[ChangeFacts]] = {}
    for one in changed:
        found.setdefault(one.subject, []).append(one)
    paths = [
        ChangedPath(
            some[0],
            _state(some[0], conflicts),
            tuple(one.id for one in some if _holds(one)),
        )
        for some in found.values()
    ]
    return sorted(paths, key=lambda path: STATES.index(path.state))


def _state(one: ChangeFacts, conflicts: Collection[str]) -> ChangeState:
    match status_of(one._asdict().__getitem__):
        case "pending":
            return "conflict" if one.id in conflicts else "waiting"
        case "allowed" | "approved":
            return "waiting"
        case "used" if one.is_undone:
            return "undone"
        case "used" if one.has_failed:
            return "failed"
        case "used":
            return "in part" if one.in_part else "applied"
        case "denied":
            return "denied"
        case _:
            return "expired"


def _holds(one: ChangeFacts) -> bool:
    return one.settled_at is not None and not one.has_failed and not one.is_undone


def _entry(asked: list[RequestFacts]) -> RequestGroup:
    return RequestGroup(tuple(one.id for one in asked), asked[0].asked_at, asked[-1].asked_at)


def _is_same(newer: RequestFacts, older: RequestFacts) -> bool:
    if newer.category != "filesystem" or older.category != "filesystem":
        return False
    if newer.answered_at != older.answered_at or _standing(newer) != _standing(older):
        return False
    return newer.answered_at is not None or newer.asked_at - older.asked_at <= TOGETHER_S


def _standing(one: RequestFacts) -> tuple[str, bool, bool, bool]:
    """Return where a request stands, as far as that is said in one word."""
    facts = one._asdict()
    is_settled = one.settled_at is not None
    return status_of(facts.__getitem__), is_settled, one.has_failed, one.is_undone
