"""Requests that wait: keeps their facts in the database, wakes whoever waits, and tells whoever
watches.

It decides nothing: `gate` does. Kept in memory alone is the action as it was asked, since the
database must hold no secret. Waiting needs no state of its own. A waiter looks at the facts,
sleeps until some fact of its request changes, and looks again; so a wait that is begun anew
after a restart finds the same answer.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine

from supervisor.core.actions import Action, Category, targets
from supervisor.core.approval_states import FINAL
from supervisor.core.approvals import SUPERSEDED, Origin, Request, status
from supervisor.core.files.change_tree import Waiting
from supervisor.errors import NotFoundError
from supervisor.store import requests as store

# An agent that floods the inbox is denied, not queued (a full queue is a denial, law 3).
MOST_PENDING_PER_SESSION = 500
MOST_CHANGES_PER_SESSION = 20_000


class _Joint(NamedTuple):
    """A transaction that is open, and what changed in it."""

    connection: Connection
    changed: list[Request]


class ApprovalQueue:
    """The requests of all sessions. `on_change` callbacks get each request after any of its
    facts changed."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiters: dict[str, set[asyncio.Event]] = {}
        self._session_waiters: dict[str, asyncio.Event] = {}
        self._watchers: list[Callable[[Request], None]] = []
        self._joint: _Joint | None = None
        self._as_asked: dict[str, Action] = {}

    def on_change(self, callback: Callable[[Request], None]) -> None:
        """Call `callback(request)`, in the event loop, after each change. It must not block or
        raise."""
        self._watchers.append(callback)

    # -- facts: each is one transaction, and a compare-and-swap: None where another was first

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Make the changes of this block one transaction: all of them are facts at its end, or
        none is. It must not await."""
        if self._joint is not None:
            yield
            return
        changed: list[Request] = []
        with self._engine.begin() as connection:
            self._joint = _Joint(connection, changed)
            try:
                yield
            finally:
                self._joint = None
        for request in changed:
            self.announce(request)

    def add_all(
        self, requests: Sequence[Request], why: str = SUPERSEDED
    ) -> list[tuple[Request, Request]]:
        """Record new requests. Those that wait for the same thing were denied in the same
        transaction, and told `why`; they are given back, each with the one that superseded it.
        The same thing is any path of a move's two: of what waits, no two requests are about one
        path."""
        superseded: list[tuple[Request, Request]] = []
        with self._transaction() as (connection, changed):
            for part in _of_distinct_subjects(requests):
                asked = {
                    about: one
                    for one in part
                    if one.decision != "deny"
                    for about in targets(one.subject)
                }
                sessions = {one.session_id for one in part}
                older = [o for one in sessions for o in store.pending_about(connection, one, asked)]
                pairs = [
                    (one, asked[next(about for about in targets(one.subject) if about in asked)])
                    for one in older
                ]
                denied = store.supersede_all(connection, pairs, why)
                store.add_all(connection, part)
                superseded += [(one, newer) for one, (_, newer) in zip(denied, pairs, strict=True)]
                changed.extend([*denied, *part])
        return superseded

    def ask_again(self, request_id: str, hold_until: float | None) -> Request | None:
        """The same ask came once more."""
        return self._change(lambda c: store.ask_again(c, request_id, hold_until))

    def hold_until(self, request_id: str, until: float) -> Request | None:
        """Whoever waits for it is gone sooner than was said."""
        return self._change(lambda c: store.hold_until(c, request_id, until))

    def answer_all(self, answered: Sequence[Request]) -> list[Request]:
        """Record the answers that these requests carry, for those that are pending; these."""
        return self._change_all(lambda c: store.answer_all(c, answered))

    def answer_untold(self, answered: Sequence[Request], *, all_of_them: bool) -> set[str]:
        """The same for so many that the caller announces them in turns, later: the ids of those
        answered. `ChangedError`, and nothing was answered, where they aren't `all_of_them`."""
        with self._engine.begin() as connection:
            if all_of_them:
                store.answer_exactly(connection, answered)
                return {one.id for one in answered}
            return {one.id for one in store.answer_all(connection, answered)}

    def close_all(self, request_ids: Sequence[str], why: str, at: float) -> list[Request]:
        """End those of the requests that are pending or ready."""
        return self._change_all(lambda c: store.close_all(c, request_ids, why, at))

    def lift_all(self, request_ids: Sequence[str], why: str, at: float) -> list[Request]:
        """End what the denials of these requests mean for later ones."""
        return self._change_all(lambda c: store.lift_all(c, request_ids, why, at))

    def use_all(self, requests: Sequence[Request], at: float) -> list[Request]:
        """Give those of the requests out that are ready, once."""
        return self._change_all(lambda c: store.use_all(c, requests, at))

    def settle_all(self, outcomes: Mapping[str, dict[str, object]], at: float) -> list[Request]:
        """Record by id what carrying out gave, once."""
        return self._change_all(lambda c: store.settle_all(c, outcomes, at))

    def note_taken_back(self, whys: Mapping[str, str | None]) -> list[Request]:
        """Say by id that the person took back what requests did, or with None that it is in
        force again."""
        return self._change_all(lambda c: store.note_taken_back(c, whys))

    def find(self, request_id: str) -> Request | None:
        """Return the request with all its facts, or None."""
        return self.read(lambda c: store.get(c, request_id))

    def get(self, request_id: str) -> Request:
        """Return the request with all its facts, or raise `NotFoundError`."""
        request = self.find(request_id)
        if request is None:
            raise NotFoundError(
                f"no request has the id `{request_id[:64]}`",
                "see the inbox or `gatehouse approvals`",
            )
        return request

    def get_all(self, request_ids: Collection[str]) -> list[Request]:
        """Return those of the requests that there are, in the order of their ids."""
        return self.read(lambda c: store.get_all(c, list(request_ids)))

    def keep_as_asked(self, request_id: str, action: Action) -> None:
        """Keep the action, secrets and all, until its request is over."""
        self._as_asked[request_id] = action

    def as_asked(self, request_id: str) -> Action | None:
        """Return the action that was kept; None after the request's end, and after a restart."""
        return self._as_asked.get(request_id)

    def action_of(self, request: Request) -> Action:
        """Return the action as it was asked. After a restart one that held a secret is only known
        redacted, and no grant fits it."""
        return self._as_asked.get(request.id, request.action)

    def pending_about(self, session_id: str, subjects: Collection[str]) -> list[Request]:
        """Those of a session that wait and are about any of these: what a new request about them
        supersedes."""
        return self.read(lambda c: store.pending_about(c, session_id, subjects))

    def pending(self, session_id: str | None = None) -> list[Request]:
        """Those that wait for an answer, oldest first."""
        return self.read(lambda c: store.pending(c, session_id))

    def pending_in(self, category: Category, limit: int) -> list[Request]:
        """The first of a category that wait, oldest first."""
        return self.read(lambda c: store.pending_in(c, category, limit))

    def pending_ids(self) -> list[str]:
        """The ids of all that wait, oldest first."""
        return self.read(store.pending_ids)

    def waiting(self) -> int:
        """Return how many wait for an answer."""
        return self.read(store.count_waiting)

    def waiting_changes(self) -> dict[str, int]:
        """Return how many changed files wait, by session."""
        return self.read(store.waiting_changes)

    def pending_but(
        self,
        without_changes_of: Sequence[str],
        session_id: str | None = None,
        *,
        limit: int,
        now: float,
    ) -> list[Request]:
        """The first that wait, without the changed files of these sessions, which are shown as
        one: those that somebody waits for still, then those that were left; each oldest first."""
        return self.read(lambda c: store.pending_but(c, without_changes_of, session_id, limit, now))

    def pending_ids_but(
        self, without_changes_of: Sequence[str], session_id: str | None = None, *, now: float
    ) -> list[str]:
        """The ids of all of these, in the same order."""
        return self.read(lambda c: store.pending_ids_but(c, without_changes_of, session_id, now))

    def changes_of(self, session_id: str) -> list[Waiting]:
        """The changed files of a session that wait, oldest first. May be called in a thread, for
        there can be thousands."""
        with self._engine.connect() as connection:
            return store.changes_of(connection, session_id)

    def open_changes(self, session_id: str) -> list[str]:
        """The stored actions of those changes of a session's files that are not over: one may
        still be carried out."""
        return self.read(lambda c: store.open_changes(c, session_id))

    def last_answered_changes(self, session_id: str) -> list[tuple[Any, dict[str, Any] | None]]:
        """Answer and outcome of those changed files of a session that were answered last, at
        once. May be called in a thread."""
        with self._engine.connect() as connection:
            return store.last_answered_changes(connection, session_id)

    def ready(self, session_id: str | None = None) -> list[Request]:
        """Those that may be carried out and weren't, oldest first."""
        return self.read(lambda c: store.ready(c, session_id))

    def denied(self, session_id: str) -> list[Request]:
        """Those of a session that a person denied, oldest first, but for changed files and for
        denials that were lifted."""
        return self.read(lambda c: store.denied(c, session_id))

    def unsettled(self) -> list[Request]:
        """Those that were begun and whose outcome isn't known."""
        return self.read(store.unsettled)

    def ended_since(self, at: float) -> list[Request]:
        """Those that were answered or closed since then, oldest first."""
        return self.read(lambda c: store.ended_since(c, at))

    def of_session(self, session_id: str, limit: int = 1000, offset: int = 0) -> list[Request]:
        """A session's requests, newest first, from the one at `offset` on."""
        return self.read(lambda c: store.of_session(c, session_id, limit, offset))

    def newest(self, limit: int = 100, category: Category | None = None) -> list[Request]:
        """The last requests of all sessions, newest first; of one category where it is given."""
        return self.read(lambda c: store.newest(c, limit, category))

    def earlier_all(self, session_id: str, fingerprints: Sequence[str]) -> dict[str, Request]:
        """By fingerprint, the newest asked request of the session for exactly this action."""
        return self.read(lambda c: store.latest_for_fingerprints(c, session_id, fingerprints))

    def room(self, session_id: str, origin: Origin) -> int:
        """Return how many further requests of the session may wait. Changed files have room of
        their own: they are shown as one."""
        is_change = origin == "workspace"
        waiting = self.read(lambda c: store.count_pending(c, session_id, of_workspace=is_change))
        return (MOST_CHANGES_PER_SESSION if is_change else MOST_PENDING_PER_SESSION) - waiting

    def add_rule_hits(self, counts: Mapping[str, int], at: float) -> None:
        """Add to how often rules matched, by their id."""
        with self._engine.begin() as connection:
            store.add_rule_hits(connection, counts, at)

    def rule_hits(self) -> dict[str, tuple[int, float]]:
        """Rule id -> (matches, the last one in seconds since the epoch)."""
        return self.read(store.read_rule_hits)

    def read[T](self, operation: Callable[[Connection], T]) -> T:
        """Run a query; in a `together` block it sees what the block changed."""
        if self._joint is not None:
            return operation(self._joint.connection)
        with self._engine.connect() as connection:
            return operation(connection)

    # -- waiting and watching ---------------------------------------------------------------------

    async def next_change(self, request_id: str, timeout_s: float) -> bool:
        """Wait until a fact of the request changes; False when the time ran out first."""
        event = asyncio.Event()
        self._waiters.setdefault(request_id, set()).add(event)
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            return False
        finally:
            waiting = self._waiters[request_id]
            waiting.discard(event)
            if not waiting:
                del self._waiters[request_id]
        return True

    async def next_change_in_session(self, session_id: str) -> None:
        """Wait until a fact of any of a session's requests changes."""
        event = self._session_waiters.setdefault(session_id, asyncio.Event())
        await event.wait()

    def announce(self, request: Request) -> None:
        """Wake the waiters of a request and tell the watchers."""
        if status(request) in FINAL or request.settled_at is not None:
            self._as_asked.pop(request.id, None)
        for event in self._waiters.get(request.id, ()):
            event.set()
        waiting = self._session_waiters.pop(request.session_id, None)
        if waiting is not None:
            waiting.set()
        for watcher in self._watchers:
            watcher(request)

    def _change(self, operation: Callable[[Connection], Request | None]) -> Request | None:
        changed = self._change_all(lambda c: [one for one in [operation(c)] if one is not None])
        return changed[0] if changed else None

    def _change_all(self, operation: Callable[[Connection], list[Request]]) -> list[Request]:
        with self._transaction() as (connection, changed):
            requests = operation(connection)
            changed.extend(requests)
        return requests

    @contextlib.contextmanager
    def _transaction(self) -> Iterator["_Joint"]:
        """The block's that we are in, else one of our own. Watchers hear of changes when they
        are facts."""
        with self.together():
            assert self._joint is not None
            yield self._joint


def _of_distinct_subjects(requests: Sequence[Request]) -> Iterator[list[Request]]:
    """In order, in parts that have each subject once: of two for the same thing the later
    supersedes the earlier."""
    part: list[Request] = []
    subjects: set[str] = set()
    for request in requests:
        if not subjects.isdisjoint(targets(request.subject)):
            yield part
            part, subjects = [], set()
        part.append(request)
        subjects.update(targets(request.subject))
    if part:
        yield part
