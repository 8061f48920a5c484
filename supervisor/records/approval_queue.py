"""Waiting requests: keeps their facts in the database, wakes waiters, and notifies watchers.

It decides nothing: `gate` does. Only memory holds the original action, since the database must hold
no secret. Waiting needs no state of its own: a waiter reads the facts, sleeps until a fact of its
request changes, and reads again. So a wait that begins again after a restart finds the same answer.
"""

import asyncio
import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Concatenate, NamedTuple

from sqlalchemy import Connection, Engine

from supervisor.core.actions import Action, targets
from supervisor.core.approval_states import FINAL, Answer
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


def _query[**P, T](
    query: Callable[Concatenate[Connection, P], T],
) -> Callable[Concatenate["ApprovalQueue", P], T]:
    """Return a query of the store as a method of the queue."""

    @functools.wraps(query)
    def asked(queue: "ApprovalQueue", /, *given: P.args, **named: P.kwargs) -> T:
        return queue.read(lambda connection: query(connection, *given, **named))

    return asked


def _change[**P](
    change: Callable[Concatenate[Connection, P], list[Request]],
) -> Callable[Concatenate["ApprovalQueue", P], list[Request]]:
    """The same of a change, which watchers hear of."""

    @functools.wraps(change)
    def made(queue: "ApprovalQueue", /, *given: P.args, **named: P.kwargs) -> list[Request]:
        return queue.change(lambda connection: change(connection, *given, **named))

    return made


class ApprovalQueue:
    """The requests of all sessions. A method that is a query has its docstring in `store.requests`.

    `on_change` callbacks get each request after any of its facts changed.
    """

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

    # -- changes: each is one transaction, and a compare-and-swap: nothing where another was first

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
        """Record new requests. In the same transaction, requests that wait for the same thing are
        denied with `why`; return them, each with its successor. A move is about both its paths: no
        two waiting requests are about one path.
        """
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

    hold_until = _change(store.hold_until)
    answer_all = _change(store.answer_all)
    close_all = _change(store.close_all)
    lift_all = _change(store.lift_all)
    use_all = _change(store.use_all)
    settle_all = _change(store.settle_all)
    note_taken_back = _change(store.note_taken_back)

    def ask_again(self, request_id: str, hold_until: float | None) -> Request | None:
        """Count that the same action was asked again."""
        changed = self.change(lambda c: store.ask_again(c, request_id, hold_until))
        return changed[0] if changed else None

    def answer_untold(self, answered: Sequence[Request], *, all_of_them: bool) -> set[str]:
        """Answer many requests, which the caller announces later in turns. Return the ids of those
        answered. With `all_of_them`, raise `ChangedError` and answer nothing if one is no longer
        pending.
        """
        with self._engine.begin() as connection:
            if all_of_them:
                store.answer_exactly(connection, answered)
                return {one.id for one in answered}
            return {one.id for one in store.answer_all(connection, answered)}

    # -- queries ----------------------------------------------------------------------------------

    find = _query(store.get)
    get_all = _query(store.get_all)
    pending = _query(store.pending)
    pending_about = _query(store.pending_about)
    pending_in = _query(store.pending_in)
    ids_from = _query(store.ids_from)
    pending_ids = _query(store.pending_ids)
    pending_but = _query(store.pending_but)
    pending_ids_but = _query(store.pending_ids_but)
    count_waiting = _query(store.count_waiting)
    waiting_between = _query(store.waiting_between)
    waiting_changes = _query(store.waiting_changes)
    tallies = _query(store.tallies)
    open_changes = _query(store.open_changes)
    ready = _query(store.ready)
    denied = _query(store.denied)
    unsettled = _query(store.unsettled)
    ended_since = _query(store.ended_since)
    of_session = _query(store.of_session)
    timeline_of = _query(store.timeline_of)
    changed_of = _query(store.changed_of)
    newest = _query(store.newest)
    last_answered = _query(store.last_answered)
    latest_for_fingerprints = _query(store.latest_for_fingerprints)
    read_rule_hits = _query(store.read_rule_hits)

    def changes_of(self, session_id: str) -> list[Waiting]:
        """`store.changes_of`; may be called in a thread, for there can be thousands."""
        with self._engine.connect() as connection:
            return store.changes_of(connection, session_id)

    def last_answered_changes(
        self, session_id: str
    ) -> list[tuple[Answer, dict[str, object] | None]]:
        """`store.last_answered_changes`; may be called in a thread."""
        with self._engine.connect() as connection:
            return store.last_answered_changes(connection, session_id)

    def get(self, request_id: str) -> Request:
        """Return the request with all its facts, or raise `NotFoundError`."""
        request = self.find(request_id)
        if request is None:
            raise NotFoundError(
                f"no request has the id `{request_id[:64]}`",
                "see the inbox or `gatehouse approvals`",
            )
        return request

    def keep_as_asked(self, request_id: str, action: Action) -> None:
        """Keep the action, secrets and all, until its request is over."""
        self._as_asked[request_id] = action

    def as_asked(self, request_id: str) -> Action | None:
        """Return the original action; None after the request's end, and after a restart."""
        return self._as_asked.get(request_id)

    def action_of(self, request: Request) -> Action:
        """Return the action as it was asked. After a restart an action with a secret is known only
        in redacted form, which no grant fits.
        """
        return self._as_asked.get(request.id, request.action)

    def room(self, session_id: str, origin: Origin) -> int:
        """Return how many more requests of the session may wait. Changed files have a separate
        limit: they share one card.
        """
        is_change = origin == "workspace"
        waiting = self.read(lambda c: store.count_pending(c, session_id, of_workspace=is_change))
        return (MOST_CHANGES_PER_SESSION if is_change else MOST_PENDING_PER_SESSION) - waiting

    def add_rule_hits(self, counts: Mapping[str, int], at: float) -> None:
        """Add to the match counts of rules, by rule id."""
        with self._engine.begin() as connection:
            store.add_rule_hits(connection, counts, at)

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

    def is_awaited(self, request_id: str) -> bool:
        """Return whether anybody waits for a change of the request at this moment."""
        return request_id in self._waiters

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

    def change(self, operation: Callable[[Connection], list[Request]]) -> list[Request]:
        """Make a change, and notify waiters and watchers of the requests that it returns."""
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
