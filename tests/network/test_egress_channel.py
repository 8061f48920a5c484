"""The supervisor's end of the control channel: what comes at once is handed over together, and
whatever raises is the end."""

import asyncio
import socket
from collections.abc import Iterator

import pytest

from supervisor.core.network.egress_wire import FromEgress, Ready, Settled, encode
from supervisor.network.egress_channel import Channel
from tests.fakes.waiting import PATIENCE_S

type Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


def settled(question_id: int) -> Settled:
    return Settled(question_id=question_id, outcome="done", detail={})


async def test_messages_that_come_at_once_are_followed_by_one_pause(ends: Ends) -> None:
    ours, theirs = ends
    seen: list[FromEgress | str] = []
    channel = Channel(ours, seen.append, lambda: seen.append("pause"))
    messages = [Ready(), settled(1), settled(2)]
    for message in messages:
        theirs.send(encode(message))
    theirs.shutdown(socket.SHUT_WR)
    async with asyncio.timeout(PATIENCE_S):
        await channel.read()
    assert seen[: len(messages)] == messages
    assert set(seen[len(messages) :]) == {"pause"}


@pytest.mark.parametrize(
    "error", [ValueError("broken"), BlockingIOError("not the channel's"), OSError("no disk")]
)
@pytest.mark.parametrize("where", ["message", "pause"])
async def test_whatever_raises_is_the_end(ends: Ends, error: Exception, where: str) -> None:
    ours, theirs = ends

    def fail(*_: object) -> None:
        raise error

    channel = Channel(
        ours, *((fail, lambda: None) if where == "message" else (lambda message: None, fail))
    )
    theirs.send(encode(Ready()))
    async with asyncio.timeout(PATIENCE_S):
        if isinstance(error, OSError):
            await channel.read()
        else:
            with pytest.raises(ValueError, match="broken"):
                await channel.read()


async def test_what_cannot_be_read_is_the_end(ends: Ends) -> None:
    ours, theirs = ends
    seen: list[FromEgress] = []
    channel = Channel(ours, seen.append, lambda: None)
    theirs.send(encode(Ready()))
    theirs.send(b"\xc1")
    theirs.send(encode(Ready()))
    async with asyncio.timeout(PATIENCE_S):
        await channel.read()
    assert seen == [Ready()]
