"""What is ended the moment that the supervisor or its session is gone, and who may still read
why it was refused."""

import asyncio
import socket

import pytest

from supervisor.core.network.egress_wire import Answer
from supervisor.egress.admission.egress_sessions import ClientConnection, OpenQuestion, Sessions
from supervisor.egress.loop.dialler import PinnedLoop
from tests.fakes.waiting import PATIENCE_S


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
async def test_what_goes_on_is_cut(
    unsettled: list[int], quiet: list[int], waits: bool, is_cut: bool
) -> None:
    sessions = Sessions()
    transport = Ending()
    connection = sessions.connect(sessions.get("s"), transport, 0.0)
    assert isinstance(connection, ClientConnection)
    for question_id in unsettled:
        connection.unsettled[question_id] = OpenQuestion(
            Answer(question_id=question_id, decision="allow"), 0.0
        )
    connection.quiet.update(quiet)
    if waits:
        connection.waiting[asyncio.get_running_loop().create_future()] = None
    sessions.cut_what_goes_on()
    assert transport.was_cut == is_cut


def test_one_whose_client_is_gone_already_keeps_neither_its_origin_nor_another_connection() -> None:
    """On the loop of egress, whose transports go on giving a socket that was asked for once,
    though it has no descriptor any more."""
    with asyncio.Runner(loop_factory=PinnedLoop) as runner:
        assert sorted(runner.run(_cut_of_three())) == [0, 1, 2]


async def _cut_of_three() -> list[int]:
    """Those that were cut with their session, of three connections whose clients are closed by
    then."""
    sessions, ended = Sessions(), list[int]()
    accepted: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    server = await asyncio.start_server(
        lambda _, writer: accepted.put_nowait(writer), "127.0.0.1", 0
    )
    async with server, asyncio.timeout(PATIENCE_S):
        for number in range(3):
            with socket.create_connection(server.sockets[0].getsockname()):
                writer = await accepted.get()
            connection = sessions.connect(sessions.get("s"), writer.transport, 0.0)
            assert isinstance(connection, ClientConnection)
            connection.cut_origin = lambda number=number: ended.append(number)  # type: ignore[misc]
            assert writer.get_extra_info("socket").fileno() >= 0
            writer.transport.abort()
            while writer.get_extra_info("socket").fileno() >= 0:
                await asyncio.sleep(0.001)
        sessions.close("s")
    return ended
