"""What is ended the moment that the supervisor is gone, and who may still read why it was refused."""

import asyncio

import pytest

from supervisor.core.egress_wire import Answer
from supervisor.egress.sessions import Connection, Sessions, Unsettled


class Ending(asyncio.Transport):
    """Of a client; it notes that it was cut."""

    was_cut = False

    def abort(self) -> None:
        self.was_cut = True


CONNECT, REQUEST = 1, 2


@pytest.mark.parametrize(
    ("unsettled", "quiet", "waits", "is_cut"),
    [
        ([], [], False, False),
        ([], [], True, False),  # its first request
        ([REQUEST], [], False, True),
        ([REQUEST], [], True, True),  # another stream of HTTP/2 waits
        ([REQUEST], [REQUEST], True, False),  # its model call waits for the budget
        ([CONNECT], [CONNECT], True, False),  # a request inside of it waits
        ([CONNECT, REQUEST], [CONNECT], True, True),
        ([CONNECT, REQUEST], [CONNECT, REQUEST], True, False),
        ([CONNECT], [CONNECT], False, True),
    ],
)
async def test_what_goes_on_is_cut(unsettled: list[int], quiet: list[int], waits: bool, is_cut: bool) -> None:
    sessions = Sessions()
    transport = Ending()
    connection = sessions.connect(sessions.get("s"), transport, 0.0)
    assert isinstance(connection, Connection)
    for question_id in unsettled:
        connection.unsettled[question_id] = Unsettled(Answer(question_id=question_id, decision="allow"), 0.0)
    connection.quiet.update(quiet)
    if waits:
        connection.waiting[asyncio.get_running_loop().create_future()] = None
    sessions.cut_what_goes_on()
    assert transport.was_cut == is_cut
