"""The egress end of the channel: each question gets its own answer, and the end is told once."""

import asyncio
import socket
from typing import cast

from supervisor.core.actions import Network
from supervisor.core.network.egress_wire import (
    MAX_MESSAGE_BYTES,
    Answer,
    Question,
    decode_from_egress,
    encode,
)
from supervisor.egress.admission.egress_sessions import ClientConnection, EgressSession
from supervisor.egress.admission.link import Link
from supervisor.egress.admission.questions import Questions
from tests.fakes.waiting import PATIENCE_S

ACTION = Network(operation="connect", host="a.test", port=443)


async def test_answers_come_by_question_and_the_end_is_told_once() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ends: list[str] = []
    ended = asyncio.Event()

    def end() -> None:
        ends.append("once")
        ended.set()

    link = Link(ours, lambda answer, _: questions.answered(cast("Answer", answer)), end)
    questions = Questions(link, hold_s=20)
    connection = ClientConnection("s/1", EgressSession("s"), cast("asyncio.Transport", None), 0.0)
    asking = [asyncio.create_task(questions.ask(connection, ACTION)) for _ in range(2)]
    await asyncio.sleep(0)
    assert len(connection.waiting) == 2
    asked = [decode_from_egress(theirs.recv(MAX_MESSAGE_BYTES)) for _ in asking]
    question = asked[1]
    assert isinstance(question, Question)
    theirs.send(encode(Answer(question_id=question.question_id, decision="allow")))
    async with asyncio.timeout(PATIENCE_S):
        assert (await asking[1]).decision == "allow"
        assert not asking[0].done()
        connection.leave()
        assert (await asking[0]).decision == "deny"
        assert not connection.waiting
        theirs.close()
        await ended.wait()
    await asyncio.sleep(0.01)
    assert len(ends) == 1
