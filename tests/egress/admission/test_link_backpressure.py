"""A supervisor that doesn't read: nothing new goes out, with the reason, and of what went out
nothing is lost."""

import asyncio
import socket
from pathlib import Path

import msgspec
import pytest

from supervisor.core.models.usage import Usage
from supervisor.core.network.egress_wire import Answer, CloseSession, Question, Settled, Spent, Used
from supervisor.egress.admission.link import Link, LinkDownError
from supervisor.egress.admission.questions import Questions
from tests.egress.egress_harness import (
    FakeSupervisor,
    Origin,
    Proxy,
    allow,
    answer_of,
    body_of,
    deny,
    running_egress,
    serving,
    status_of,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

TUNNELS = 12
# Fewer than there are tunnels, whose ends all have to be told; and the least that a channel can
# hold.
MOST_QUEUED = 6
FEW_BYTES = 1
MOST_CLIENTS = 64


def unread(question: Question) -> Answer:
    """Allowed; a connection is passed on unread."""
    return msgspec.structs.replace(
        allow(question), look_inside=question.action.operation != "connect"
    )


async def test_nothing_that_went_out_is_lost_and_nothing_new_goes_out(
    tmp_path: Path, upstream_ca: Path, http: Origin, https: Origin
) -> None:
    preface = f"from supervisor.egress.admission import link\nlink.MOST_QUEUED = {MOST_QUEUED}"
    async with (
        running_egress(
            tmp_path, upstream_ca, hold_s=60, preface=preface, channel_bytes=FEW_BYTES
        ) as supervisor,
        serving(supervisor, "s") as proxy,
    ):
        supervisor.decide = unread
        tunnels = [
            await proxy.tunnel(f"origin.test:{https.port}", trust=upstream_ca)
            for _ in range(TUNNELS)
        ]
        kept_reader, kept = await proxy.open()
        request = f"GET http://origin.test:{http.port}/ HTTP/1.1\r\nHost: origin.test:{http.port}\r\n\r\n".encode()  # noqa: E501
        kept.write(request)
        assert status_of(await answer_of(kept_reader)) == 200
        await supervisor.until(Settled)
        supervisor.reads.clear()
        supervisor.decide = lambda question: None  # of the one message that it waits for already

        waiting = await until_busy(proxy, https.port)
        connections = https.connections
        kept.write(request)
        said = await answer_of(kept_reader)
        assert status_of(said) == 503
        assert body_of(said)["error"] == "busy"
        http.reset()
        for _, writer in (*tunnels, *waiting):
            writer.close()
        # Whoever still waits gets another answer than who came first, whether or not it was seen to
        # leave.
        supervisor.decide = lambda question: (
            deny(question) if question.action.operation == "connect" else allow(question)
        )
        # What ended is told behind what waits already, once the supervisor reads again.
        supervisor.reads.set()
        await supervisor.until(Settled, 1 + TUNNELS)
        assert len({one.question_id for one in supervisor.of_type(Settled)}) >= 1 + TUNNELS
        assert (https.connections, http.untouched) == (
            connections,
            True,
        ), "nothing new went out meanwhile"

        while status_of(await proxy.send(request)) == 503:  # until the queue was read
            await asyncio.sleep(0)
        kept.close()
        supervisor.send(CloseSession(session_id="s"))
        await supervisor.until_one(lambda one: isinstance(one, Used) and one.is_last)
        assert sum(one.requests for one in supervisor.of_type(Used)) == TUNNELS + 2


async def until_busy(
    proxy: Proxy, port: int
) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Ask until nothing more is asked: who waits then. Who comes after reads why at once."""
    connect = f"CONNECT origin.test:{port} HTTP/1.1\r\nHost: origin.test:{port}\r\n\r\n".encode()
    waiting = [await proxy.open() for _ in range(MOST_CLIENTS)]
    for _, writer in waiting:
        writer.write(connect)
    answers = [asyncio.create_task(answer_of(reader)) for reader, _ in waiting]
    await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
    said = await proxy.send(connect)
    assert status_of(said) == 503
    assert "does not keep up" in body_of(said)["why"]
    assert body_of(said)["remedy"]
    for task in answers:
        task.cancel()
    return waiting


@pytest.mark.parametrize("is_full", [False, True])
async def test_what_a_call_used_is_told_however_much_waits(
    is_full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spend that isn't told is a budget overrun."""
    monkeypatch.setattr("supervisor.egress.admission.link.MOST_QUEUED", 5)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link = Link(theirs, lambda *_: None, lambda _: None)
    asked = Questions(link, hold_s=1.0)
    try:
        while is_full and not link.is_full:
            link.send(Used(session_id="s", requests=1, bytes_out=1))
        if is_full:
            with pytest.raises(LinkDownError):
                link.send(Used(session_id="s", requests=1, bytes_out=1))
        for number in range(20):
            asked.spent(Answer(question_id=number, decision="allow", settle=True), Usage())
        supervisor = FakeSupervisor(None, ours)  # type: ignore[arg-type]
        ours.setblocking(False)
        reader = asyncio.create_task(supervisor.read())
        await supervisor.until(Spent, 20)
        assert [one.question_id for one in supervisor.of_type(Spent)] == list(range(20))
        reader.cancel()
    finally:
        asyncio.get_running_loop().remove_reader(theirs)
        asyncio.get_running_loop().remove_writer(theirs)
        theirs.close()
        ours.close()
