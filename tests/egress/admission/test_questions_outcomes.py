"""Outcomes that egress reports: gathered for a moment, each once, in order, and never more of
them held than a few."""

import asyncio

from supervisor.core.network.egress_wire import Answer, FromEgress, Outcomes, Settled, encode
from supervisor.egress.admission.link import LinkDownError
from supervisor.egress.admission.questions import MOST_GATHERED, Questions
from tests.fakes.waiting import PATIENCE_S


class Told:
    """Stands for the link: what was sent."""

    def __init__(self, *, is_down: bool = False) -> None:
        self.sent: list[int] = []
        self.packets = 0
        self.changed = asyncio.Event()
        self._is_down = is_down

    def send(self, message: FromEgress, *, always: bool = False) -> None:
        assert always, "what went out is told, however much waits"
        assert isinstance(message, Settled | Outcomes)
        encode(message)  # `ValueError` where it is too long, as of the link
        self.changed.set()
        if self._is_down:
            raise LinkDownError
        together = message.settled if isinstance(message, Outcomes) else (message,)
        self.packets += 1
        self.sent += [one.question_id for one in together]


def questions(told: Told) -> Questions:
    return Questions(told, hold_s=1.0)  # type: ignore[arg-type]


def settle(asked: Questions, *question_ids: int) -> None:
    for question_id in question_ids:
        asked.settle(Answer(question_id=question_id, decision="allow", settle=True), "done", {})


async def test_outcomes_are_sent_together_and_again_later() -> None:
    told = Told()
    asked = questions(told)
    for batch in ([1, 2, 3], [4], [5, 6]):
        told.changed.clear()
        before = list(told.sent)
        settle(asked, *batch)
        assert told.sent == before
        async with asyncio.timeout(PATIENCE_S):
            await told.changed.wait()
        assert told.sent == before + batch


async def test_many_are_sent_at_once() -> None:
    told = Told()
    settle(questions(told), *range(MOST_GATHERED))
    assert told.sent == list(range(MOST_GATHERED))
    assert told.packets == 1


async def test_what_is_too_long_for_one_packet_is_sent_each_by_itself() -> None:
    told = Told()
    asked = questions(told)
    headers = tuple((f"x-{number}", "x" * 300) for number in range(60))
    for question_id in range(MOST_GATHERED):
        asked.settle(
            Answer(question_id=question_id, decision="allow", settle=True), "done", {}, headers
        )
    assert told.sent == list(range(MOST_GATHERED))
    assert told.packets == MOST_GATHERED


async def test_outcomes_that_nobody_waits_for_are_not_sent() -> None:
    told = Told()
    asked = questions(told)
    asked.settle(Answer(question_id=1, decision="allow"), "done", {})
    settle(asked, *range(MOST_GATHERED))
    assert told.sent == list(range(MOST_GATHERED))


async def test_a_supervisor_that_is_gone_is_told_nothing() -> None:
    down, gone = Told(is_down=True), Told()
    settle(questions(down), *range(MOST_GATHERED))
    asked = questions(gone)
    settle(asked, 1)
    asked.deny_all()
    settle(asked, *range(2, MOST_GATHERED + 1))
    assert (down.sent, gone.sent) == ([], [])
