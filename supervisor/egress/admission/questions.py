"""Questions that wait for the supervisor's answer.

It decides only that a missing answer is a denial: a full queue, a lost channel, a time-out, an
answer that comes too late. Refusals of egress itself are reported, too: the first of each kind at
once, then as counts.
"""

import asyncio
import functools
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import batched

import msgspec

from supervisor.core.actions import Network
from supervisor.core.models.model_calls import ModelCall
from supervisor.core.models.usage import Usage
from supervisor.core.network.egress_wire import (
    Abandoned,
    Answer,
    Body,
    Draw,
    EgressRefused,
    Moving,
    Outcome,
    Outcomes,
    Question,
    Reserve,
    Settled,
    Spent,
    Used,
)
from supervisor.egress.admission.egress_sessions import ClientConnection, Kind, Sessions
from supervisor.egress.admission.link import Link, LinkDownError
from supervisor.egress.loop.coarse_timeouts import wait
from supervisor.egress.loop.refusals import BUSY

# Beyond this number the answer is no: an agent that floods the gate must not exhaust it for the
# others.
MOST_OPEN = 2048
MOST_OPEN_PER_SESSION = 256
# How much longer egress waits for an answer than the supervisor holds a question.
GRACE_S = 10.0
# How long, and how many, outcomes are gathered: the supervisor, often on the same processor, is
# woken once for all of them.
GATHER_S = 0.05
MOST_GATHERED = 64
# How often counted refusals are reported.
EVERY_S = 30.0
# Hosts of one session that are counted separately in that time. Beyond that, refusals are counted
# by kind, and beyond `MOST_KINDS` all together.
MOST_APART = 32
MOST_KINDS = 96
# Clients' words stand in backticks in a why. Without them and without port numbers, the kind
# remains.
_SAID = re.compile(r"`[^`]*`|[0-9]+")
PROGRESS_EVERY_S = 1.0
# Entries in one progress packet, of at most 30 bytes each.
MOST_AT_ONCE = 1000

type _Key = tuple[str, str, str]


class Tally:
    """Aggregates the refusals of egress itself: an agent may be refused thousands of times a
    second, and every audit line stays on disk.

    INVARIANT: the reported numbers add up to all refusals. Reports that a full channel rejects are
    sent later, and one session's reports are bounded whatever it sends. Only a killed egress loses
    its last numbers, and its end is recorded. `tell` returns whether the supervisor was told.
    """

    def __init__(self, tell: Callable[[EgressRefused], bool]) -> None:
        self._tell = tell
        self._untold: dict[_Key, EgressRefused] = {}
        self._per_session: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def refused(self, session_id: str, action: Network, why: str) -> None:
        """Count one more refusal."""
        key = self._key(session_id, action.host, why)
        before = self._untold.get(key)
        refused = EgressRefused(session_id=session_id, action=action, why=why)
        if before is None:
            self._per_session[session_id] += 1
            self._untold[key] = msgspec.structs.replace(
                refused, count=0 if self._tell(refused) else 1
            )
        else:
            self._untold[key] = msgspec.structs.replace(refused, count=before.count + 1)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(EVERY_S, self._tell_all)

    def close(self, session_id: str) -> None:
        """Report and forget a session's numbers."""
        for key in [key for key in self._untold if key[0] == session_id]:
            self._tell_one(key)

    def _tell_all(self) -> None:
        for key in list(self._untold):
            self._tell_one(key)
        again = bool(self._untold)
        self._timer = (
            asyncio.get_running_loop().call_later(EVERY_S, self._tell_all) if again else None
        )

    def _tell_one(self, key: _Key) -> None:
        """Report the count of a kind that continues; a kind that stopped has nothing left to
        report."""
        refused = self._untold[key]
        if not refused.count:
            del self._untold[key]
            self._per_session[key[0]] -= 1
            if not self._per_session[key[0]]:
                del self._per_session[key[0]]
        elif self._tell(refused):
            self._untold[key] = msgspec.structs.replace(refused, count=0)

    def _key(self, session_id: str, host: str, why: str) -> _Key:
        kind = _SAID.sub("", why)
        for key in ((session_id, kind, host), (session_id, kind, "")):
            if key in self._untold:
                return key
        told = self._per_session[session_id]
        if told < MOST_APART:
            return session_id, kind, host
        return (session_id, kind, "") if told < MOST_KINDS else (session_id, "", "")


def denied(why: str, remedy: str = "") -> Answer:
    """Return a denial that egress makes itself."""
    return Answer(question_id=0, decision="deny", why=why, remedy=remedy)


def given_back(session_id: str, back: Mapping[Kind, int]) -> Used:
    """Return the report that a session won't send this much of what it drew."""
    return Used(
        session_id=session_id,
        requests_back=back.get("requests", 0),
        bytes_out_back=back.get("bytes_out", 0),
    )


class Questions:
    """All open questions of this process."""

    def __init__(self, link: Link, hold_s: float) -> None:
        self._link: Link | None = link  # None once the supervisor is gone
        self._hold_s = hold_s
        self._ids = itertools.count(1)
        self._open: dict[int, asyncio.Future[Answer]] = {}
        # Draws that weren't answered in time, with their session and kind.
        self._late: dict[int, tuple[str, Kind]] = {}
        self._per_session: Counter[str] = Counter()
        self._outcomes: list[Settled] = []
        self._refusals = Tally(self._send)

    @property
    def is_busy(self) -> bool:
        """Return whether new questions are refused because the supervisor doesn't keep up."""
        return self._link is not None and self._link.is_full

    @property
    def is_alone(self) -> bool:
        """Return whether the supervisor is gone: nothing passes any more."""
        return self._link is None

    async def ask(
        self,
        connection: ClientConnection,
        action: Network,
        *,
        in_tunnel: bool = False,
        is_upgrade: bool = False,
        after: int | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> Answer:
        """Return the supervisor's answer, or a denial of egress itself. Raise only if cancelled."""
        return await self._ask(
            connection,
            lambda question_id: Question(
                question_id=question_id,
                session_id=connection.session.id,
                connection_id=connection.id,
                action=action,
                in_tunnel=in_tunnel,
                is_upgrade=is_upgrade,
                after=after,
                headers=headers,
            ),
        )

    async def reserve(
        self, connection: ClientConnection, host: str, call: ModelCall, of: int
    ) -> Answer:
        """Return whether a model call may go out whose request was allowed as the question `of`.
        After an allow, call `spent`. Raise only if cancelled."""
        session_id = connection.session.id
        connection.quiet.add(of)
        try:
            return await self._ask(
                connection,
                lambda question_id: Reserve(
                    question_id=question_id, session_id=session_id, host=host, call=call, of=of
                ),
            )
        finally:
            connection.quiet.discard(of)

    def spent(self, answer: Answer, usage: Usage | None) -> None:
        """Report the usage of a reserved call."""
        self._tell(Spent(question_id=answer.question_id, usage=usage))

    def draw(
        self, session_id: str, kind: Kind, wanted: int, answered: Callable[[Answer], None]
    ) -> None:
        """Ask for more of a session's budget. `answered` is called exactly once; a grant that comes
        too late is given back. No connection waits for it directly."""
        if self.is_busy:
            answered(BUSY)
            return
        if self._link is None or len(self._open) >= MOST_OPEN:
            answered(denied("the supervisor can't be asked", "try again when Gatehouse runs"))
            return
        loop = asyncio.get_running_loop()
        question_id = next(self._ids)
        future: asyncio.Future[Answer] = loop.create_future()
        self._open[question_id] = future
        timer = loop.call_later(self._hold_s + GRACE_S, future.set_result, _LATE)

        def done(future: asyncio.Future[Answer]) -> None:
            del self._open[question_id]
            timer.cancel()
            if future.result() is _LATE:
                self._late[question_id] = session_id, kind
            answered(future.result())

        future.add_done_callback(done)
        try:
            self._link.send(
                Draw(question_id=question_id, session_id=session_id, kind=kind, wanted=wanted)
            )
        except (LinkDownError, ValueError):
            future.set_result(denied("the supervisor can't be asked", "try again"))

    def used(self, used: Used) -> None:
        """Report what a session sent and what it gives back."""
        self._tell(used)

    def tell(self, message: Body | Moving) -> None:
        """Report something that nothing depends on: the beginning of a body, or progress."""
        self._send(message)

    async def _ask(
        self, connection: ClientConnection, message: Callable[[int], Question | Reserve]
    ) -> Answer:
        session_id = connection.session.id
        if self._link is None:
            return GONE
        if self.is_busy:
            return BUSY
        if len(self._open) >= MOST_OPEN or self._per_session[session_id] >= MOST_OPEN_PER_SESSION:
            return denied("too many requests wait for an answer", "send fewer at a time")
        question_id = next(self._ids)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._open[question_id] = future
        self._per_session[session_id] += 1
        try:
            self._link.send(message(question_id))
            answer = await self._first(future, connection, question_id)
            # INVARIANT: an allow that arrived just before the channel ended lets nothing out.
            return GONE if self.is_alone and answer.decision == "allow" else answer
        except (LinkDownError, ValueError):
            return denied("the supervisor can't be asked", "try again")
        finally:
            del self._open[question_id]
            self._per_session[session_id] -= 1

    async def _first(
        self, future: asyncio.Future[Answer], connection: ClientConnection, question_id: int
    ) -> Answer:
        """Return the answer, unless the client goes away or the time runs out first."""
        connection.waiting[future] = asyncio.current_task()
        by = future.get_loop().time() + self._hold_s + GRACE_S
        try:
            answer = await wait(future, by, functools.partial(future.set_result, _LATE))
        finally:
            connection.waiting.pop(future, None)
        if answer.question_id != question_id:  # our own: the supervisor's comes too late
            self._tell(Abandoned(question_id=question_id))
        return answer

    def answered(self, answer: Answer) -> None:
        """Take an answer in. If nobody waits for it any more, give its grant back unused."""
        future = self._open.get(answer.question_id)
        if future is not None and not future.done():
            future.set_result(answer)
        elif answer.settle:
            self.settle(answer, "failed", {"error": "nobody waited for the answer any more"})
            # If it was a reservation, the call never went out. The supervisor ignores other ids.
            self.spent(answer, Usage(has_input=True, has_output=True, failed=True))
        elif late := self._late.pop(answer.question_id, None):
            self.used(given_back(late[0], {late[1]: answer.granted}))

    def settle(
        self,
        answer: Answer,
        outcome: Outcome,
        detail: dict[str, str | int | float | None],
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """Report the outcome of an allowed question."""
        if not answer.settle:
            return
        settled = Settled(
            question_id=answer.question_id, outcome=outcome, detail=detail, headers=headers
        )
        self._outcomes.append(settled)
        if len(self._outcomes) == 1:
            asyncio.get_running_loop().call_later(GATHER_S, self._send_outcomes)
        elif len(self._outcomes) >= MOST_GATHERED:
            self._send_outcomes()

    def refused(self, session_id: str, action: Network, why: str) -> None:
        """Report to the audit what egress refused by itself."""
        self._refusals.refused(session_id, action, why)

    def closed(self, session_id: str) -> None:
        """Forget a closed session's refusals."""
        self._refusals.close(session_id)

    def deny_all(self) -> None:
        """Deny everything that waits, since the supervisor is gone."""
        self._link = None
        for future in self._open.values():
            if not future.done():
                future.set_result(GONE)

    def _send_outcomes(self) -> None:
        outcomes, self._outcomes = self._outcomes, []
        if len(outcomes) > 1 and self._tell(Outcomes(settled=tuple(outcomes))):
            return
        # INVARIANT: outcomes that are too long for one packet together with their headers are sent
        # singly, not dropped.
        for one in outcomes:
            self._tell(one)

    def _tell(self, message: Abandoned | Settled | Outcomes | Spent | Used) -> bool:
        """Send what the record and the budget need, whatever is queued already. Without a
        supervisor nothing is sent."""
        return self._send(message, always=True)

    def _send(
        self,
        message: Abandoned | Settled | Outcomes | Moving | EgressRefused | Spent | Used | Body,
        *,
        always: bool = False,
    ) -> bool:
        """Send a report. Return whether it could be sent."""
        if self._link is None:
            return False
        try:
            self._link.send(message, always=always)
        except (LinkDownError, ValueError):
            return False
        return True


_LATE = denied("the supervisor gave no answer in time", "try again")
GONE = denied("the supervisor is gone", "try again when Gatehouse runs")


class Progress:
    """Reports now and then how much has moved, so that a person sees an upload early.

    These reports may be dropped: an exchange's outcome has its totals. There is one per process,
    from `start` until its loop ends. `tell` sends a message.
    """

    def __init__(self, sessions: Sessions, tell: Callable[[Moving], object]) -> None:
        self._sessions = sessions
        self._tell = tell
        self._told: dict[int, tuple[int, int]] = {}

    def start(self) -> None:
        """Report what moved, now and periodically."""
        now = dict(self._moving())
        news = [
            (question_id, *moved)
            for question_id, moved in now.items()
            if moved != self._told.get(question_id)
        ]
        self._told = now
        for some in batched(news, MOST_AT_ONCE, strict=False):
            self._tell(Moving(moved=some))
        asyncio.get_running_loop().call_later(PROGRESS_EVERY_S, self.start)

    def _moving(self) -> Iterator[tuple[int, tuple[int, int]]]:
        for session in self._sessions.all():
            for connection in session.connections:
                for question_id, unsettled in connection.unsettled.items():
                    moved = connection.moved_for(unsettled)
                    if any(moved):
                        yield question_id, moved
