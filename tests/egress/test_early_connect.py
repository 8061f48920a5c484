"""A client that is likely to be allowed is told of its tunnel while the supervisor is asked:
whatever the answer is then, the origin sees neither a connection nor a byte before it."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from supervisor.core.actions import Network
from supervisor.core.network.egress_wire import (
    Abandoned,
    Answer,
    CloseSession,
    Credential,
    ForbidEndpoints,
    PutCredentials,
    Question,
    RulesChanged,
    ToEgress,
)
from supervisor.egress.admission.egress_sessions import EgressSession, Sessions
from supervisor.egress.early_connect import LIKELY_S, MOST_KEPT, Likely
from tests.egress.egress_harness import (
    FakeSupervisor,
    Origin,
    Proxy,
    answer_of,
    body_of,
    deny,
    nobody_at,
    running_egress,
    serving,
    status_of,
)
from tests.egress.hellos import client_hello, server_hello
from tests.egress.tls_listener import HELLO, HOST, Listener, origin, rest
from tests.fakes.clock import FakeClock
from tests.fakes.waiting import PATIENCE_S

__all__ = ["origin"]

pytestmark = pytest.mark.asyncio(loop_scope="module")

ACCESS_DENIED = b"\x15\x03\x03\x00\x02\x02\x31"
NOT_REACHED = b"\x15\x03\x03\x00\x02\x02\x50"


def lasting(question: Question) -> Answer:
    """By rules alone, unread."""
    return Answer(
        question_id=question.question_id,
        decision="allow",
        private_ok=True,
        settle=True,
        look_inside=False,
        lasts=True,
    )


async def ask(
    proxy: Proxy, port: int, more: bytes = b""
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await proxy.open()
    writer.write(f"CONNECT {HOST}:{port} HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n".encode() + more)
    return reader, writer


async def one_passes(proxy: Proxy, origin: Listener) -> None:
    """A whole tunnel, from its CONNECT to its end; the origin and the supervisor have seen
    nothing afterwards."""
    origin.says = lambda data: server_hello()
    reader, writer = await ask(proxy, origin.port)
    assert status_of(await answer_of(reader)) == 200
    writer.write(HELLO)
    assert await reader.readexactly(len(server_hello())) == server_hello()
    writer.close()
    await origin.until(lambda: not origin.open)
    await proxy.supervisor.settled()
    origin.received.clear()
    origin.connections = 0
    proxy.supervisor.messages.clear()


class Silent:
    """A supervisor that answers only when it is told how."""

    def __init__(self, supervisor: FakeSupervisor) -> None:
        self._supervisor = supervisor
        self._answer: asyncio.Future[Callable[[Question], Answer]] = (
            asyncio.get_running_loop().create_future()
        )
        supervisor.decide = self._decide

    async def _decide(self, question: Question) -> Answer:
        return (await asyncio.shield(self._answer))(question)

    def answer(self, how: Callable[[Question], Answer]) -> None:
        self._answer.set_result(how)


@pytest_asyncio.fixture(loop_scope="module")
async def likely(proxy: Proxy, origin: Listener) -> Proxy:
    """A session that had a connection to the origin allowed by rules."""
    proxy.supervisor.decide = lasting
    await one_passes(proxy, origin)
    return proxy


async def told(
    proxy: Proxy, origin: Listener
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Silent]:
    """A client that was told of its tunnel, and said its hello, while the supervisor is silent."""
    silent = Silent(proxy.supervisor)
    reader, writer = await ask(proxy, origin.port)
    assert status_of(await answer_of(reader)) == 200
    writer.write(HELLO)
    await writer.drain()
    await proxy.supervisor.until(Question)
    assert await origin.untouched()
    return reader, writer, silent


# -- before the answer ----------------------------------------------------------------------------


async def test_the_client_is_told_at_once_and_nothing_goes_out_before_the_answer(
    likely: Proxy, origin: Listener
) -> None:
    reader, writer, silent = await told(likely, origin)
    silent.answer(lasting)
    assert await reader.readexactly(len(server_hello())) == server_hello()
    assert origin.received == HELLO
    assert origin.connections == 1
    (question,) = likely.supervisor.questions
    assert question.action.resolved == ("127.0.0.1",)
    writer.close()


async def test_a_denial_after_that_is_told_in_tls_and_the_next_in_http(
    likely: Proxy, origin: Listener
) -> None:
    reader, writer, silent = await told(likely, origin)
    silent.answer(deny)
    assert await rest(reader) == ACCESS_DENIED
    writer.close()
    reader, writer = await ask(likely, origin.port)
    answer = await answer_of(reader)
    assert status_of(answer) == 403
    assert body_of(answer)["why"] == "denied by a test"
    writer.close()
    assert await origin.untouched()


async def test_a_client_without_tls_reads_the_denial_as_text(
    likely: Proxy, origin: Listener
) -> None:
    silent = Silent(likely.supervisor)
    reader, writer = await ask(likely, origin.port, b"GET / HTTP/1.1\r\n\r\n")
    assert status_of(await answer_of(reader)) == 200
    silent.answer(deny)
    answer = await answer_of(reader)
    assert status_of(answer) == 403
    assert body_of(answer)["why"] == "denied by a test"
    writer.close()
    assert await origin.untouched()


async def test_a_session_that_ends_meanwhile_reaches_nothing(
    likely: Proxy, origin: Listener
) -> None:
    reader, writer, silent = await told(likely, origin)
    likely.supervisor.send(CloseSession(session_id=likely.session_id))
    assert await rest(reader) == b""
    silent.answer(lasting)
    await likely.supervisor.until(Abandoned)
    writer.close()
    assert await origin.untouched()


async def test_a_client_that_leaves_meanwhile_reaches_nothing(
    likely: Proxy, origin: Listener
) -> None:
    _, writer, silent = await told(likely, origin)
    writer.transport.abort()
    await likely.supervisor.until(Abandoned)
    silent.answer(lasting)
    assert (await likely.supervisor.settled()).outcome == "failed"
    assert await origin.untouched()


async def test_a_flood_meanwhile_is_cut_off(likely: Proxy, origin: Listener) -> None:
    reader, writer, silent = await told(likely, origin)
    writer.write(bytes(8_000_000))
    assert await rest(reader) == b""
    writer.close()
    silent.answer(lasting)
    await likely.supervisor.until(Abandoned)
    assert await origin.untouched()


async def test_a_supervisor_that_dies_meanwhile_lets_nothing_out(
    tmp_path: Path, upstream_ca: Path, origin: Listener
) -> None:
    async with (
        running_egress(tmp_path, upstream_ca) as supervisor,
        serving(supervisor, "session") as proxy,
    ):
        supervisor.decide = lasting
        await one_passes(proxy, origin)
        reader, writer, _ = await told(proxy, origin)
        supervisor.sock.shutdown(socket.SHUT_RDWR)
        assert await rest(reader) == ACCESS_DENIED
        writer.close()
        async with asyncio.timeout(PATIENCE_S):
            await supervisor.child.wait()
    assert await origin.untouched()


async def test_another_name_than_was_allowed_is_not_passed(likely: Proxy, origin: Listener) -> None:
    reader, writer = await ask(likely, origin.port, client_hello("other.test"))
    assert status_of(await answer_of(reader)) == 200
    assert (await rest(reader))[:1] == b"\x15"
    writer.close()
    await origin.until(lambda: not origin.open)
    assert not origin.received


async def test_an_origin_that_is_gone_is_told_in_tls_and_the_next_in_http(likely: Proxy) -> None:
    listener = Listener()
    server = await asyncio.start_server(listener.serve, "127.0.0.1", 0)
    listener.port = server.sockets[0].getsockname()[1]
    await one_passes(likely, listener)
    server.close()
    await server.wait_closed()
    with nobody_at(listener.port):
        reader, writer = await ask(likely, listener.port, HELLO)
        assert status_of(await answer_of(reader)) == 200
        assert await rest(reader) == NOT_REACHED
        writer.close()
        reader, writer = await ask(likely, listener.port, HELLO)
        answer = await answer_of(reader)
        assert status_of(answer) == 502
        assert "can't be reached" in body_of(answer)["why"]
        writer.close()


async def test_what_is_looked_into_after_all_is(
    likely: Proxy, https: Origin, upstream_ca: Path, ca_file: Path
) -> None:
    target = f"{HOST}:{https.port}"
    _, writer = await likely.tunnel(target, trust=upstream_ca)
    writer.close()
    await likely.supervisor.settled()
    likely.supervisor.decide = lambda question: msgspec.structs.replace(
        lasting(question), look_inside=True
    )
    reader, writer = await likely.tunnel(target, trust=ca_file)
    writer.write(f"GET /seen HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    assert status_of(await answer_of(reader)) == 200
    assert likely.supervisor.questions[-1].action.path == "/seen"
    writer.close()


# -- who is told only with the answer -------------------------------------------------------------


async def is_told_early(proxy: Proxy, origin: Listener) -> bool:
    """Whether a client is told before the supervisor answers: a denial, which it reads in HTTP
    where it wasn't."""
    proxy.supervisor.decide = deny
    reader, writer = await ask(proxy, origin.port, HELLO)
    status = status_of(await answer_of(reader))
    writer.close()
    assert status in (200, 403)
    assert await origin.untouched()
    return status == 200


async def test_one_is_told_early_and_the_next_is_not(likely: Proxy, origin: Listener) -> None:
    assert await is_told_early(likely, origin)
    assert not await is_told_early(likely, origin)


CREDENTIAL = Credential(
    placeholder="placeholder-12", secret="s3cret", header="x-api-key", hosts=(HOST,)
)
FORGOTTEN: dict[str, Callable[[Proxy], ToEgress]] = {
    "other rules": lambda proxy: RulesChanged(),
    "other listeners": lambda proxy: ForbidEndpoints(endpoints=(("127.0.0.2", 1),)),
    "a credential": lambda proxy: PutCredentials(
        session_id=proxy.session_id, credentials=(CREDENTIAL,)
    ),
}


@pytest.mark.parametrize("message", FORGOTTEN.values(), ids=FORGOTTEN)
async def test_what_may_change_the_answer_is_waited_for(
    likely: Proxy, origin: Listener, message: Callable[[Proxy], ToEgress]
) -> None:
    likely.supervisor.send(message(likely))
    assert not await is_told_early(likely, origin)


NOT_LASTING: dict[str, Callable[[Question], Answer]] = {
    "a person, or a rule with a limit": lambda question: msgspec.structs.replace(
        lasting(question), lasts=False
    ),
    "looked into": lambda question: msgspec.structs.replace(lasting(question), look_inside=True),
}


@pytest.mark.parametrize("answer", NOT_LASTING.values(), ids=NOT_LASTING)
async def test_what_was_allowed_for_once_is_waited_for(
    proxy: Proxy, origin: Listener, answer: Callable[[Question], Answer]
) -> None:
    proxy.supervisor.decide = answer
    reader, writer = await ask(proxy, origin.port)
    assert status_of(await answer_of(reader)) == 200
    writer.close()
    await proxy.supervisor.settled()
    origin.connections = 0
    assert not await is_told_early(proxy, origin)


async def test_another_port_and_another_session_are_waited_for(
    likely: Proxy, origin: Listener
) -> None:
    async with serving(likely.supervisor, f"{likely.session_id}-other") as other:
        assert not await is_told_early(other, origin)
    reader, writer = await ask(likely, 1, HELLO)
    assert status_of(await answer_of(reader)) == 403
    writer.close()


# -- what is kept ---------------------------------------------------------------------------------


def kept() -> tuple[Likely, EgressSession, FakeClock]:
    clock, sessions = FakeClock(), Sessions()
    session = sessions.get("session")
    session.left |= {"requests": 10, "bytes_out": 1_000_000}
    return Likely(sessions, clock), session, clock


ACTION = Network(operation="connect", host=HOST, port=443)
LASTING = Answer(question_id=1, decision="allow", lasts=True)


async def test_it_is_likely_for_a_while() -> None:
    likely, session, clock = kept()
    assert not likely.is_allowed(session, ACTION)
    likely.reached(session, ACTION, LASTING)
    assert likely.is_allowed(session, ACTION)
    clock.advance(LIKELY_S)
    assert not likely.is_allowed(session, ACTION)


@pytest.mark.parametrize(("requests", "bytes_out"), [(0, 1_000_000), (1, 16_000), (0, 0)])
async def test_it_is_not_likely_near_the_limit_of_a_budget(requests: int, bytes_out: int) -> None:
    likely, session, _ = kept()
    likely.reached(session, ACTION, LASTING)
    session.left |= {"requests": requests, "bytes_out": bytes_out}
    assert not likely.is_allowed(session, ACTION)


async def test_what_is_kept_is_bounded() -> None:
    likely, session, _ = kept()
    for port in range(1, 2 * MOST_KEPT):
        likely.reached(session, msgspec.structs.replace(ACTION, port=port), LASTING)
        assert len(session.likely) <= MOST_KEPT
