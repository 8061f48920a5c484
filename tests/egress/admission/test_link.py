"""The egress end of the channel: an answer that is there already waits for no turn of the loop."""

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
from supervisor.egress.admission.link import Link
from supervisor.egress.admission.questions import Questions
from supervisor.egress.admission.sessions import ClientConnection, EgressSession

ACTION = Network(operation="connect", host="a.test", port=443)


class At:
    """The supervisor of a machine with one processor: it has answered before `send` returns."""

    def __init__(self, sock: socket.socket, theirs: socket.socket) -> None:
        self._sock, self._theirs = sock, theirs
        self.answers = True

    def __getattr__(self, name: str) -> object:
        return getattr(self._sock, name)

    def fileno(self) -> int:
        return self._sock.fileno()

    def send(self, packet: bytes) -> int:
        sent = self._sock.send(packet)
        question = decode_from_egress(self._theirs.recv(MAX_MESSAGE_BYTES))
        if self.answers and isinstance(question, Question):
            self._theirs.send(encode(Answer(question_id=question.question_id, decision="allow")))
        return sent


async def test_an_answer_that_is_there_already_is_taken_at_once() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    at = At(ours, theirs)
    questions = Questions(hold_s=20)
    ends: list[str] = []
    link = Link(
        cast("socket.socket", at),
        lambda answer, _: questions.answered(cast("Answer", answer)),
        ends.append,
    )
    questions.link = link
    connection = ClientConnection("s/1", EgressSession("s"), cast("asyncio.Transport", None), 0.0)
    asking = questions.ask(connection, ACTION)
    try:
        asking.send(None)
    except StopIteration as answered:  # it never waited
        answer = answered.value
    assert answer.decision == "allow"
    assert not connection.waiting
    at.answers = False
    held = asyncio.create_task(questions.ask(connection, ACTION))
    await asyncio.sleep(0)
    assert len(connection.waiting) == 1
    connection.leave()
    assert (await held).decision == "deny"
    theirs.close()
    link.look()
    assert len(ends) == 1
    link.look()  # after the end it finds nothing
    assert len(ends) == 1
