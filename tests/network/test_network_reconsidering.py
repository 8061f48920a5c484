"""What goes on is judged again where that may tell something new, and never so much at once that
others wait for it."""

import asyncio
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from supervisor.core.actions import Network
from supervisor.core.network.egress_wire import CloseConnection, Question, Settled
from supervisor.network.egress_channel import Channel
from supervisor.network.egress_questions import JUDGED_AT_ONCE, EgressQuestions
from supervisor.network.network import Reconsidering
from tests.fakes.parts import FakeParts

DENIES = "version: 1\nmodes: {{network: deny}}\n"
MANY = 3 * JUDGED_AT_ONCE + 1
RULES = (
    "version: 1\nallow:\n  - rule: network(* https://a.example.org/**){expires}\nmodes: {{network:"
    " deny}}\n"
)


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[FakeParts]:
    made = FakeParts(tmp_path)
    yield made
    made.close()


@pytest.fixture
def questions(parts: FakeParts) -> EgressQuestions:
    return EgressQuestions(parts.gate, 0, {})


def put(folder: Path, text: str = RULES, expires: str = "") -> None:
    (folder / "base.yaml").write_text(text.format(expires=expires and f"\n    expires: {expires}"))


async def begin(questions: EgressQuestions) -> None:
    """As many requests as take long to judge, each another."""
    for number in range(MANY):
        action = Network(operation="request", host="a.example.org", port=443, scheme="https",
        method="GET", path=f"/{number}", resolved=("192.0.2.1",))  # fmt: skip
        question = Question(
            question_id=number, session_id="one", connection_id="c", action=action, in_tunnel=True
        )
        assert (await questions.answer(question)).decision == "allow"


def steps(questions: EgressQuestions) -> list[list[CloseConnection]]:
    return list(questions.reconsider())


async def test_much_is_judged_in_steps(
    tmp_path: Path, parts: FakeParts, questions: EgressQuestions
) -> None:
    put(tmp_path)
    await begin(questions)
    assert [len(step) for step in steps(questions)] == [0, 0, 0, 0]
    put(tmp_path, DENIES)
    found = questions.reconsider()
    assert len(next(found)) == JUDGED_AT_ONCE
    questions.settle(Settled(question_id=MANY - 1, outcome="done", detail={}))  # meanwhile
    assert [len(step) for step in found] == [JUDGED_AT_ONCE, JUDGED_AT_ONCE, 0]


async def test_nothing_is_judged_again_under_the_same_rules(
    tmp_path: Path, parts: FakeParts, questions: EgressQuestions
) -> None:
    put(tmp_path)
    await begin(questions)
    assert steps(questions)
    assert steps(questions) == []
    parts.clock.advance(3600)
    assert steps(questions) == []


async def test_but_where_a_rule_ran_out(
    tmp_path: Path, parts: FakeParts, questions: EgressQuestions
) -> None:
    put(tmp_path, expires=datetime.fromtimestamp(parts.clock.now() + 60, UTC).isoformat())
    await begin(questions)
    assert sum(map(len, steps(questions))) == 0
    parts.clock.advance(61)
    ended = [message for step in steps(questions) for message in step]
    assert {one.question_id for one in ended} == set(range(MANY))
    assert steps(questions) == []


async def test_a_change_meanwhile_is_looked_at_by_the_next_round(
    tmp_path: Path, parts: FakeParts, questions: EgressQuestions
) -> None:
    put(tmp_path)
    await begin(questions)
    round_under_way = questions.reconsider()
    assert next(round_under_way) == []
    put(tmp_path, DENIES)
    rest = [message for step in round_under_way for message in step]
    assert len(rest) == MANY - JUDGED_AT_ONCE
    assert {one.question_id for step in steps(questions) for one in step} == set(range(MANY))


async def test_where_egress_is_gone_there_is_nothing_to_judge(questions: EgressQuestions) -> None:
    """Whoever changes the rules in that moment is told of no error."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        async with asyncio.TaskGroup() as tasks:
            again = Reconsidering(
                tasks, questions, Channel(ours, lambda message: None, lambda: None)
            )
            again.begin()
            again.cancel()
        again.begin()
