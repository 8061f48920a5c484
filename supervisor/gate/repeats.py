"""Repeated requests: asked already, denied a while ago, or more than a person can look at.

    identical, and it waits      one card with a count
    alike, and denied            denied at once for a while, with when it may be asked again; a
                                 person can lift that
    alike, and several wait      held without a card of its own until there is room, on connections;
                                 what nobody waits for any more makes room
    many connections wait        the same
    its clients all hung up      the card says so at once, and keeps its place for as long as it
                                 would have been held

INVARIANT: nothing here allows: the result is an earlier request, a denial or a wait. Denials are
derived from the requests in the database; only the counts that a person sees are kept here.
"""

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from supervisor.base import log
from supervisor.base.clock import Clock
from supervisor.core.actions import (
    Action,
    FileChange,
    Network,
    category_of,
    fingerprint,
    title,
)
from supervisor.core.approvals import Request, goes_on, status
from supervisor.core.policy.repeats import DenialCount, Likeness, likeness, remedy, standing
from supervisor.core.secrets.redact import Redactor, redacted
from supervisor.core.text.duration import format_duration
from supervisor.core.verdicts import Verdict
from supervisor.errors import StorageError
from supervisor.gate.grants import Refused
from supervisor.gate.rulings import Rulings
from supervisor.records.approval_queue import ApprovalQueue

# How many cards there may be that differ in next to nothing, and for connections of one session at
# all. The rest is held without.
MOST_ALIKE = 3
MOST_CONNECTIONS = 20
# A change of the rules may make room without any request changing, so whoever waits looks now and
# then.
LOOK_EVERY_S = 2.0
MOST_TITLES = 50
MOST_READ = 1000


class Denied(msgspec.Struct, frozen=True, kw_only=True):
    """An action that a person denied and that was asked again, `asked_again` times since Gatehouse
    started. It stays denied until `until`; None: to the end of the session.
    """

    request_id: str
    title: str
    denied_at: float
    asked_again: int
    until: float | None


class Quiet(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of a session that have no card. `held` has the first titles of those that wait
    for room.
    """

    session_id: str
    denied: tuple[Denied, ...]
    held: tuple[str, ...]
    held_count: int


class _Card(NamedTuple):
    """A request that waits. `place_until`: it gives its place to another from then on; who asked
    is gone by then, and may have gone before."""

    fingerprint: str
    like: Likeness | None
    is_connection: bool
    asked_at: float
    place_until: float | None

    def has_place_to_give(self, now: float) -> bool:
        return self.place_until is not None and self.place_until <= now


@dataclass(eq=False)
class _Waiter:
    """A request that waits for room. `turned_away`: why a person denied it meanwhile."""

    action: Action
    name: str
    turned_away: str = ""


@dataclass(eq=False)
class _Session:
    """`waiting`: by request id, what waits; `held_until`: of that, when those would have gone
    who hung up before. `denied`: by likeness, the requests that a person denied. `again`: how
    often that was asked since. `held`: what waits for room, and `titles` how often each is
    asked."""

    waiting: dict[str, _Card] = field(default_factory=dict)
    held_until: dict[str, float] = field(default_factory=dict)
    denied: dict[Likeness, dict[str, Request]] = field(default_factory=dict)
    again: Counter[Likeness] = field(default_factory=Counter)
    held: set[_Waiter] = field(default_factory=set)
    titles: Counter[str] = field(default_factory=Counter)

    def note(self, request: Request) -> None:
        """Note a request's current state."""
        if isinstance(request.action, FileChange):
            return
        current, like = status(request), likeness(request.action)
        self.waiting.pop(request.id, None)
        if current == "pending":
            is_connection = isinstance(request.action, Network)
            until = request.hold_until
            if until is not None:
                until = max(until, self.held_until.get(request.id, until))
            self.waiting[request.id] = _Card(
                request.fingerprint, like, is_connection, request.asked_at, until
            )
        else:
            self.held_until.pop(request.id, None)
        if like is None:
            return
        if current == "denied" and request.answer == "denied" and request.closed_at is None:
            self.denied.setdefault(like, {})[request.id] = request
        elif like in self.denied:
            self.denied[like].pop(request.id, None)
            if not self.denied[like]:
                del self.denied[like], self.again[like]


class Repeats:
    """The repeats of one gate. `on_change(session_id)` is called when the result of `quiet` for a
    session may have changed. `close(why, request_id)` ends a request.
    """

    def __init__(
        self,
        queue: ApprovalQueue,
        clock: Clock,
        redactor: Redactor,
        rulings: Rulings,
        close: Callable[[str, str], None],
    ) -> None:
        self._close = close
        self._queue = queue
        self._clock = clock
        self._redactor = redactor
        self._rulings = rulings
        self._sessions: dict[str, _Session] = {}
        self._waits: dict[str, list[float]] = {}
        self.on_change: Callable[[str], None] = lambda session_id: None
        queue.on_change(self._changed)

    # -- what was asked before --------------------------------------------------------------------

    def known(
        self, action: Action, session_id: str, earlier: Request | None, hold_until: float | None
    ) -> Request | None:
        """Return the earlier request that answers this one, and count the repeat: it waits, is
        approved and unused, or was denied. `earlier` is the newest for exactly this action.
        """
        if earlier is not None and status(earlier) in ("pending", "approved"):
            return self._queue.ask_again(
                earlier.id, hold_until if status(earlier) == "pending" else None
            )
        like = self._likeness(action)
        if like is not None:
            return self._denied_before(like, session_id)
        if earlier is not None and status(earlier) == "denied" and earlier.closed_at is None:
            return self._queue.ask_again(earlier.id, None)
        return None

    def remedy_of(self, request: Request) -> str:
        """Return the remedy for a request: its own, else, after a person's denial, when it may be
        asked again. A request that rules now deny (`deny --always`) may not be asked again.
        """
        if (ruled := self._ruled_out(request)) is not None:
            return ruled.remedy
        like = likeness(request.action)
        denied = None if like is None else self._of(request.session_id).denied.get(like)
        if request.remedy or not denied or request.id not in denied:
            return request.remedy
        return remedy(_standing(denied).until, self._clock.now())

    def _ruled_out(self, request: Request) -> Verdict | None:
        """Return what the rules say of a request that a person denied, where they deny it, too."""
        if request.answer != "denied":
            return None
        action = self._queue.action_of(request)
        verdict = self._rulings.verdict(action, request.session_id)
        return verdict if verdict.decision == "deny" else None

    def lift(self, request: Request, why: str) -> list[Request]:
        """Let a denied action be asked again at once. Return the denials that this lifts."""
        like = likeness(request.action)
        alike = {} if like is None else self._of(request.session_id).denied.get(like, {})
        return self._queue.lift_all(list(alike or {request.id: request}), why, self._clock.now())

    def _denied_before(self, like: Likeness, session_id: str) -> Request | None:
        session = self._of(session_id)
        denied, now = session.denied.get(like), self._clock.now()
        if denied is None or now >= (until := _standing(denied).until):
            return None
        last = max(denied.values(), key=_denied_at)
        session.again[like] += 1
        self.on_change(session_id)
        ago = format_duration(now - _denied_at(last))
        what = f"`{title(last.action)}` was denied {ago} ago; {remedy(until, now)}"
        counted = self._queue.ask_again(last.id, None) or last
        return msgspec.structs.replace(counted, remedy=what)

    # -- too much at once -------------------------------------------------------------------------

    def crowd(self, action: Action, session_id: str) -> str | None:
        """Return why there is no room for this action's card; None where there is room, it has a
        card, or it was denied. Requests that nobody waits for are ended if they take the room.
        """
        waiting = self._of(session_id).waiting
        mark = fingerprint(action)
        if any(mark == one.fingerprint for one in waiting.values()):
            return None
        like = self._likeness(action)
        alike = {
            known: one for known, one in waiting.items() if like is not None and like == one.like
        }
        if len(alike) >= MOST_ALIKE and not self._makes_room(alike):
            return f"{MOST_ALIKE} requests like this wait for an answer already"
        connections = {known: one for known, one in waiting.items() if one.is_connection}
        if (
            isinstance(action, Network)
            and len(connections) >= MOST_CONNECTIONS
            and not self._makes_room(connections)
        ):
            return (
                f"{MOST_CONNECTIONS} requests of this session for the network wait for an answer"
                " already"
            )
        return None

    def _makes_room(self, cards: dict[str, _Card]) -> bool:
        """Return whether one of these was left by whoever asked: the one that was asked first is
        ended."""
        now = self._clock.now()
        left = {known: one.asked_at for known, one in cards.items() if one.has_place_to_give(now)}
        if not left:
            return False
        self._close(
            "nobody waited for an answer any more, and another request needed the place",
            min(left, key=left.__getitem__),
        )
        return True

    async def until_room(
        self,
        action: Action,
        session_id: str,
        hold_s: float,
    ) -> tuple[Refused | None, float]:
        """Wait up to `hold_s` seconds for room for this action's card, as long as it would be
        asked. Return the refusal if there is still none, and the seconds left.
        """
        deadline = self._clock.monotonic() + hold_s
        waiter = _Waiter(action, title(redacted(action, self._redactor)))
        while True:
            if waiter.turned_away:
                return (
                    Refused(
                        why=waiter.turned_away, remedy="do without it, or say why it is needed"
                    ),
                    0.0,
                )
            asked = self._rulings.verdict(action, session_id)
            crowded = self.crowd(action, session_id) if asked.decision == "ask" else None
            left_s = max(0.0, deadline - self._clock.monotonic())
            if crowded is None:
                return None, left_s
            if not left_s:
                why = f"{crowded}: {asked.why}"
                return (
                    Refused(why=why, decision="ask", remedy="try again after they are answered"),
                    0.0,
                )
            with self._held(waiter, session_id), contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, LOOK_EVERY_S)):
                    await self._queue.next_change_in_session(session_id)

    # -- who waits for an answer ------------------------------------------------------------------

    @contextlib.contextmanager
    def waited_for(self, request: Request) -> Iterator[None]:
        """Wrap a client's wait for an answer, which lasts to the request's current limit.
        Cancelling means that the client hung up. Once all clients hung up, the card says so;
        otherwise the wait lasts as long as that of the others.

        INVARIANT: the card keeps its place for the whole hold, so a client that asks and hangs up
        in a loop makes no more cards than one that waits.
        """
        until, is_left = request.hold_until, False
        if until is None or not goes_on(request.origin, category_of(request.action)):
            yield
            return
        waits = self._waits.setdefault(request.id, [])
        waits.append(until)
        try:
            yield
        except asyncio.CancelledError:
            is_left = True
            raise
        finally:
            waits.remove(until)
            if not waits:
                del self._waits[request.id]
            if is_left:
                self._leave(request, max(waits, default=self._clock.now()))

    def _leave(self, request: Request, until: float) -> None:
        session = self._of(request.session_id)
        card = session.waiting.get(request.id)
        if card is None or card.place_until is None:
            return
        session.held_until[request.id] = card.place_until
        try:
            self._queue.hold_until(request.id, until)
        except StorageError as error:  # it is shown as waited for until its limit
            log.error("not noted that nobody waits", error=str(error), request=request.id)

    @contextlib.contextmanager
    def _held(self, waiter: _Waiter, session_id: str) -> Iterator[None]:
        session = self._of(session_id)
        session.held.add(waiter)
        session.titles[waiter.name] += 1
        self.on_change(session_id)
        try:
            yield
        finally:
            session.held.discard(waiter)
            session.titles[waiter.name] -= 1
            if session.titles[waiter.name] <= 0:
                del session.titles[waiter.name]
            self.on_change(session_id)

    def held_connections(self, session_id: str) -> list[Action]:
        """Return a session's connections that wait for room for a card."""
        return [one.action for one in self._of(session_id).held if isinstance(one.action, Network)]

    def turn_away(self, session_id: str, why: str) -> None:
        """Deny these at the next change of the session's requests. The caller records it first."""
        for one in self._of(session_id).held:
            if isinstance(one.action, Network):
                one.turned_away = why

    # -- for the person ---------------------------------------------------------------------------

    def quiet(self) -> list[Quiet]:
        """Return the requests without a card of the open sessions that have any. Denials that a
        rule took over are left out, for these don't expire.
        """
        found = [
            self._quiet(one, session)
            for one, session in self._sessions.items()
            if self._rulings.is_open(one)
        ]
        return [one for one in found if one.denied or one.held_count]

    def _quiet(self, session_id: str, session: _Session) -> Quiet:
        now = self._clock.now()
        denied = []
        for like, count in session.again.items():
            of_wish = session.denied[like]
            until = _standing(of_wish).until
            last = max(of_wish.values(), key=_denied_at)
            if until > now and not self._ruled_out(last):
                name, at = title(last.action), _denied_at(last)
                end = None if until == math.inf else until
                denied.append(
                    Denied(
                        request_id=last.id, title=name, denied_at=at, asked_again=count, until=end
                    )
                )
        held = tuple(session.titles)[:MOST_TITLES]
        return Quiet(
            session_id=session_id, denied=tuple(denied), held=held, held_count=len(session.titles)
        )

    # -- inside -----------------------------------------------------------------------------------

    def _of(self, session_id: str) -> _Session:
        """Return what is known of a session, from the database where it is asked for the first
        time."""
        found = self._sessions.get(session_id)
        if found is None:
            for over in [one for one in self._sessions if not self._rulings.is_open(one)]:
                del self._sessions[over]
            found = _Session()
            waiting = self._queue.pending_but(
                [session_id], session_id, limit=MOST_READ, now=self._clock.now()
            )
            for request in (*waiting, *self._queue.denied(session_id)):
                found.note(request)
            self._sessions[session_id] = found
        return found

    def _likeness(self, action: Action) -> Likeness | None:
        """As of the stored action, which has no secrets."""
        return None if likeness(action) is None else likeness(redacted(action, self._redactor))

    def _changed(self, request: Request) -> None:
        session = self._sessions.get(request.session_id)
        if session is not None:
            had = len(session.again)
            session.note(request)
            if len(session.again) != had:
                self.on_change(request.session_id)


def _denied_at(request: Request) -> float:
    return request.answered_at or request.asked_at


def _standing(denied: dict[str, Request]) -> DenialCount:
    return standing(map(_denied_at, denied.values()))
