"""Portions of each session's budget of requests and bytes, drawn from the ledger.

It decides only whether outgoing traffic is covered. If it isn't, a portion is drawn, and everybody
who needs the same kind waits for that one answer. INVARIANT: uncovered traffic doesn't go out; a
missing answer and a lost supervisor are denials (law 3). Usage is reported in the background. Each
report gives back what was drawn and isn't needed, since a client may announce a long body and go
away.
"""

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from supervisor.base.clock import Clock
from supervisor.core.budget import PORTIONS, UNLIMITED
from supervisor.core.network.egress_wire import Answer
from supervisor.egress.admission.egress_sessions import EgressSession, Kind, Sessions
from supervisor.egress.admission.questions import GONE, Questions, denied, given_back

REPORT_S = 2.0
# After a denial, the next draw waits this long: a client that keeps trying asks the supervisor once
# in that time.
DENIED_S = 1.0
_ENDED = denied("the session has ended", "start a new session")
# Most that one draw asks for, whatever body length a request announces.
MOST_AT_ONCE = 2**40


class _Drawing(NamedTuple):
    """A draw that isn't answered yet."""

    found: asyncio.Future[Answer]
    wanted: int


def _is_as_much(count: int, denied: int) -> bool:
    """Return whether a draw of this size may share the denial of the other.

    Sizes are compared by powers of two, so that a series of ever smaller requests asks the
    supervisor only a few times.
    """
    return count.bit_length() >= denied.bit_length()


class Allowances:
    """The portions of all sessions in this process."""

    def __init__(self, questions: Questions, sessions: Sessions, clock: Clock) -> None:
        self._questions = questions
        self._sessions = sessions
        self._clock = clock
        self._draws: dict[tuple[EgressSession, Kind], _Drawing] = {}
        self._denied: dict[tuple[EgressSession, Kind], tuple[Answer, int, float]] = {}
        self._timer = asyncio.get_running_loop().call_later(REPORT_S, self._report_all)

    async def cover(self, session: EgressSession, kind: Kind, count: int) -> Answer | None:
        """Wait until the session has this much left. Return the denial where it can't get it."""
        count = min(count, MOST_AT_ONCE)
        while session.left[kind] < count:
            answer = await asyncio.shield(self.draw(session, kind, count))
            if answer.decision != "allow":
                return answer
        return None

    async def take(self, session: EgressSession, kind: Kind, count: int) -> Answer | None:
        """Use this much up. Return the denial where it isn't covered."""
        denied = await self.cover(session, kind, count)
        if denied is None:
            session.use(kind, count)
        return denied

    def draw(self, session: EgressSession, kind: Kind, count: int) -> asyncio.Future[Answer]:
        """Draw more for everybody who waits. Return the future answer; it is set once the session
        has its grant. A large draw is denied alone."""
        key = (session, kind)
        if session.closed:
            return _now(GONE if self._questions.is_alone else _ENDED)
        running = self._draws.get(key)
        if running is not None:
            return (
                running.found
                if _is_as_much(count, running.wanted)
                else self._draw_after(running, session, kind, count)
            )
        denial, denied_count, denied_at = self._denied.get(key, (None, 0, 0.0))
        is_recent = self._clock.monotonic() - denied_at < DENIED_S
        if denial is not None and is_recent and _is_as_much(count, denied_count):
            return _now(denial)
        found: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._draws[key] = _Drawing(found, count)
        # Reported first, so that the ledger knows what was sent of the last portion.
        self._report(session)

        def answered(answer: Answer) -> None:
            del self._draws[key]
            self._denied.pop(key, None)
            if session.closed and answer.granted:
                self._questions.used(given_back(session.id, {kind: answer.granted}))
            elif answer.decision == "allow":
                session.left[kind] += answer.granted
            else:
                self._denied[key] = (answer, count, self._clock.monotonic())
            if not found.done():
                found.set_result(answer)

        self._questions.draw(session.id, kind, count - session.left[kind], answered)
        return found

    def _draw_after(
        self, running: "_Drawing", session: EgressSession, kind: Kind, count: int
    ) -> asyncio.Future[Answer]:
        """Return the answer of the running draw where it is an allow; otherwise draw this amount
        separately, since the running draw asked for much more."""
        found: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def answered(drawn: asyncio.Future[Answer]) -> None:
            if drawn.result().decision == "allow":
                found.set_result(drawn.result())
            else:
                own = self.draw(session, kind, count)
                own.add_done_callback(lambda own: found.set_result(own.result()))

        running.found.add_done_callback(answered)
        return found

    def close(self, session: EgressSession) -> None:
        """Report the last usage of a session that sends no more, and give back the rest."""
        self._report(session, dict(session.left), is_last=True)
        for kind in session.left:
            self._denied.pop((session, kind), None)

    def _report(
        self,
        session: EgressSession,
        back: Mapping[Kind, int] = MappingProxyType({}),
        *,
        is_last: bool = False,
    ) -> None:
        used = session.used
        wanted = any(used.values()) or any(back.values())
        if is_last or (wanted and not self._questions.is_busy):  # else it adds up
            given = given_back(session.id, back)
            self._questions.used(msgspec.structs.replace(given, **used, is_last=is_last))
            for kind in used:
                used[kind] = 0
                session.left[kind] -= back.get(kind, 0)

    def _report_all(self) -> None:
        for session in self._sessions.all():
            self._report(session, {kind: self._idle(session, kind) for kind in session.left})
        self._timer = asyncio.get_running_loop().call_later(REPORT_S, self._report_all)

    def _idle(self, session: EgressSession, kind: Kind) -> int:
        """Return how much of a session's remaining portion isn't needed soon: all but the announced
        bytes if it sent nothing lately, otherwise what exceeds the next portion. Without a limit
        nothing is given back."""
        if session.left[kind] > UNLIMITED // 2:
            return 0
        needed = PORTIONS[kind] if session.used[kind] else 0
        if kind == "bytes_out" and session.left[kind] > needed:
            needed = max(needed, session.announced_bytes())
        return max(0, session.left[kind] - needed)


def _now(answer: Answer) -> asyncio.Future[Answer]:
    found: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    found.set_result(answer)
    return found


class BytesOut:
    """A session's byte budget as tunnels use it (`relay.Allowance`)."""

    def __init__(self, allowances: Allowances, session: EgressSession) -> None:
        self._allowances = allowances
        self._session = session

    def use(self, count: int) -> bool:
        """Use this many bytes if they are covered. Return whether they are."""
        return self._session.use("bytes_out", count)

    def draw(self, count: int) -> asyncio.Future[str]:
        """Draw more. Return why there is none; empty if there is some."""
        found: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def answered(drawn: asyncio.Future[Answer]) -> None:
            answer = drawn.result()
            found.set_result("" if answer.decision == "allow" else answer.why or "denied")

        self._allowances.draw(self._session, "bytes_out", count).add_done_callback(answered)
        return found
