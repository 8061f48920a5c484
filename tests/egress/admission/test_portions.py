"""What covers traffic: who asks for much is denied for oneself, and nobody else for it."""

import asyncio
from collections.abc import Callable

import pytest

from supervisor.base.clock import RealClock
from supervisor.core.network.egress_wire import Answer, Used
from supervisor.egress.admission.egress_sessions import EgressSession, Kind, Sessions
from supervisor.egress.admission.portions import Allowances, BytesOut

LEFT = 500_000


class Ledger:
    """Stands for the questions: grants what is left, and answers when it is told to."""

    is_busy = False
    is_alone = False

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.told: list[Used] = []
        self._open: list[Callable[[], None]] = []

    def used(self, used: Used) -> None:
        self.told.append(used)

    def draw(
        self, session_id: str, kind: Kind, wanted: int, answered: Callable[[Answer], None]
    ) -> None:
        self.asked.append(wanted)
        allowed = wanted <= LEFT
        answer = Answer(
            question_id=1,
            decision="allow" if allowed else "deny",
            granted=wanted if allowed else 0,
            why="" if allowed else f"{wanted} are too many",
        )
        self._open.append(lambda: answered(answer))

    async def answer(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        waiting, self._open = self._open, []
        for one in waiting:
            one()


@pytest.fixture
async def desk() -> tuple[Allowances, EgressSession, Ledger]:
    sessions, ledger = Sessions(), Ledger()
    return Allowances(ledger, sessions, RealClock()), sessions.get("s"), ledger  # type: ignore[arg-type]


async def test_one_who_needs_little_is_not_denied_with_one_who_asks_for_much(
    desk: tuple[Allowances, EgressSession, Ledger],
) -> None:
    allowances, session, ledger = desk
    much = asyncio.create_task(allowances.cover(session, "bytes_out", 10_000_000))
    await asyncio.sleep(0)
    little = BytesOut(allowances, session).draw(100)
    taken = asyncio.create_task(allowances.take(session, "bytes_out", 50))
    await ledger.answer()
    denied = await much
    assert denied is not None
    assert denied.why == "10000000 are too many"
    await ledger.answer()
    assert await little == ""
    await ledger.answer()
    assert await taken is None


async def test_one_who_needs_little_is_not_denied_after_one_who_asked_for_much(
    desk: tuple[Allowances, EgressSession, Ledger],
) -> None:
    allowances, session, ledger = desk
    much = asyncio.create_task(allowances.cover(session, "bytes_out", 10_000_000))
    await ledger.answer()
    assert await much is not None
    little = BytesOut(allowances, session).draw(100)
    await ledger.answer()
    assert await little == ""


async def test_who_goes_on_trying_asks_the_supervisor_seldom(
    desk: tuple[Allowances, EgressSession, Ledger],
) -> None:
    """Also with a little less each time."""
    allowances, session, ledger = desk
    for count in range(LEFT + 1000, LEFT + 1, -1):
        trying = asyncio.create_task(allowances.cover(session, "bytes_out", count))
        await ledger.answer()
        assert await trying is not None
    assert len(ledger.asked) == 1


async def test_what_is_granted_after_the_end_is_given_back_and_nothing_more_asked_for(
    desk: tuple[Allowances, EgressSession, Ledger],
) -> None:
    allowances, session, ledger = desk
    waits = asyncio.create_task(allowances.cover(session, "bytes_out", 5000))
    await asyncio.sleep(0)
    session.stop_listening()
    allowances.close(session)
    await ledger.answer()
    denied = await waits
    assert denied is not None
    assert denied.why == "the session has ended"
    assert [one.bytes_out_back for one in ledger.told if one.bytes_out_back] == [5000]
    assert ledger.asked == [5000]
