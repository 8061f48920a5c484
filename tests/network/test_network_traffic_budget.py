"""Budgets of requests and bytes over a real egress: nothing that isn't covered reaches an
origin, whatever way it takes."""

import asyncio
import contextlib
import os
import re
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest
import pytest_asyncio
import trustme

from supervisor.core.budget import Amounts
from supervisor.core.sessions import Session
from tests.egress.egress_harness import (
    Origin,
    Proxy,
    RefusedTunnelError,
    answer_of,
    body_of,
    server_context,
    status_of,
)
from tests.fakes.waiting import PATIENCE_S
from tests.network.conftest import Setting, really_started

KB = 1000


@dataclass
class Sink:
    """A server that takes whatever comes, counts it, and answers each head."""

    port: int = 0
    taken_bytes: int = 0
    connections: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while data := await reader.read(65536):
                self.taken_bytes += len(data)
                if b"Upgrade: websocket" in data:
                    writer.write(
                        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection:"
                        b" Upgrade\r\n\r\n"
                    )
        writer.close()


@pytest_asyncio.fixture
async def sink(authority: trustme.CA) -> AsyncIterator[Sink]:
    found = Sink()
    server = await asyncio.start_server(
        found.serve, "127.0.0.1", 0, ssl=server_context(authority, "origin.test", "127.0.0.1")
    )
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()


def let(place: Setting, port: int, *, inside: bool = False, budget: str) -> Session:
    """Allow the origin, looked into or passed on unread, within a budget."""
    deny = f"deny:\n  - network(* https://origin.test:{port}/never/**)\n" if inside else ""
    place.office.policy(
        f"allow:\n  - network(origin.test:{port})\n  - network(127.0.0.1:{port})\n{deny}"
    )
    return place.office.open(place.session_id, budget=budget)


def used(place: Setting, mine: Session) -> Amounts:
    return place.office.spending.summary(mine).used["session"]


def proxy(place: Setting) -> Proxy:
    return Proxy(None, place.session_id, place.port)  # type: ignore[arg-type]


async def get(
    place: Setting,
    origin: Origin,
    path: str = "/x",
    more: str = "",
    through: Proxy | None = None,
) -> bytes:
    target = f"origin.test:{origin.port}"
    head = f"GET http://{target}{path} HTTP/1.1\r\nHost: {target}\r\n{more}\r\n"
    return await (through or proxy(place)).send(head.encode())


async def until(found: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not found():
            await asyncio.sleep(0.01)


async def refuse(place: Setting) -> None:
    request = await place.office.asked()
    place.office.gate.resolve(request.id, "denied", by="operator", reason="enough")


async def approve(place: Setting) -> None:
    request = await place.office.asked()
    place.office.gate.resolve(
        request.id, "approved", by="operator", shown_fingerprint=request.fingerprint
    )


async def test_the_request_that_would_pass_the_limit_is_held_and_goes_on_when_a_person_adds_to_it(
    place: Setting, http: Origin
) -> None:
    mine = let(place, http.port, budget="3requests")
    for _ in range(3):
        assert status_of(await get(place, http)) == 200
    seen = len(http.received)
    async with asyncio.TaskGroup() as tasks:
        held = tasks.create_task(get(place, http))
        request = await place.office.asked()
        assert request.reason.startswith(
            "the budget of this session is 3 requests: 3 requests of it are used"
        )
        assert len(http.received) == seen
        await approve(place)
    assert status_of(held.result()) == 200
    assert place.office.spending.summary(mine).limits["session"].requests == 103


async def test_denied_it_is_refused_with_the_reason_and_not_asked_again(
    place: Setting, http: Origin
) -> None:
    let(place, http.port, budget="1requests")
    assert status_of(await get(place, http)) == 200
    seen = len(http.received)
    async with asyncio.TaskGroup() as tasks:
        held = tasks.create_task(get(place, http))
        await refuse(place)
    assert status_of(held.result()) == 403
    assert "the budget of this session is 1 request" in body_of(held.result())["why"]
    assert "enough" in body_of(held.result())["why"]
    for _ in range(20):
        assert status_of(await get(place, http)) == 403
    assert len(http.received) == seen
    assert place.office.pending() == []
    # The reason is on record once, however often it is tried.
    assert len(place.office.audited("budget_refused")) == 1


async def test_a_call_of_a_model_over_such_a_budget_reads_its_providers_own_error(
    place: Setting, http: Origin
) -> None:
    let(place, http.port, budget="0requests")
    head = (
        f"POST http://origin.test:{http.port}/v1/messages HTTP/1.1\r\nHost:"
        f" origin.test:{http.port}\r\nContent-Length: 2\r\n\r\n{{}}"
    )
    async with asyncio.TaskGroup() as tasks:
        held = tasks.create_task(proxy(place).send(head.encode()))
        await refuse(place)
    assert status_of(held.result()) == 402
    assert b"billing_error" in held.result()
    assert http.untouched


async def test_64_parallel_requests_overrun_nothing(place: Setting, http: Origin) -> None:
    mine = let(place, http.port, budget="20requests")
    place.broker._ask_at_limit = False  # as GATEHOUSE_AT_LIMIT=deny
    place.broker.end_connections()
    await place.broker.wait_healthy(after_starts=1)
    async with asyncio.TaskGroup() as tasks:
        calls = [tasks.create_task(get(place, http)) for _ in range(64)]
    codes = sorted(status_of(call.result()) for call in calls)
    assert codes == [200] * 20 + [403] * 44
    assert http.received.count(b"GET ") == 20
    assert used(place, mine).requests == 20


@pytest.mark.parametrize("inside", [False, True])
async def test_bytes_beyond_the_budget_never_reach_the_origin(
    place: Setting, sink: Sink, inside: bool
) -> None:
    mine = let(place, sink.port, inside=inside, budget="300kb")
    reader, writer = await proxy(place).tunnel(f"origin.test:{sink.port}", trust=place.ca_file)
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        writer.write(
            f"POST /up HTTP/1.1\r\nHost: origin.test:{sink.port}\r\nTransfer-Encoding:"
            " chunked\r\n\r\n".encode()
        )
        for _ in range(100):
            writer.write(b"2710\r\n" + b"x" * 10_000 + b"\r\n")
    request = await place.office.asked()
    assert "300.0 kB" in request.reason
    # Held: it waits in the kernel and here, and what went so far is within the limit.
    await until(lambda: sink.taken_bytes > 0)
    assert sink.taken_bytes <= 300 * KB
    assert used(place, mine).bytes_out <= 300 * KB
    await refuse(place)
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        assert not re.search(rb" 200 ", await reader.read())
    writer.transport.abort()
    await until(
        lambda: any(
            "the budget of this session" in one.error
            for one in place.office.network_log.of_session(place.session_id)
        )
    )
    assert sink.taken_bytes <= 300 * KB


@pytest.mark.parametrize("inside", [False, True])
async def test_once_a_person_adds_to_it_all_of_what_was_held_arrives(
    place: Setting, sink: Sink, inside: bool
) -> None:
    let(place, sink.port, inside=inside, budget="300kb")
    _, writer = await proxy(place).tunnel(f"origin.test:{sink.port}", trust=place.ca_file)
    body = (
        b"".join(
            b"2710\r\n" + bytes([65 + number % 26]) * 10_000 + b"\r\n" for number in range(100)
        )
        + b"0\r\n\r\n"
    )
    writer.write(
        f"POST /up HTTP/1.1\r\nHost: origin.test:{sink.port}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()  # noqa: E501
        + body
    )
    await approve(place)
    await until(lambda: sink.taken_bytes >= 1000 * KB)
    writer.close()


async def test_a_body_that_says_that_it_is_too_long_is_refused_before_any_of_it_goes_out(
    place: Setting, http: Origin
) -> None:
    let(place, http.port, budget="100kb")
    head = (
        f"POST http://origin.test:{http.port}/x HTTP/1.1\r\nHost:"
        f" origin.test:{http.port}\r\nContent-Length: 900000\r\n\r\n"
    )
    async with asyncio.TaskGroup() as tasks:
        held = tasks.create_task(proxy(place).send(head.encode() + b"x" * 1000))
        await refuse(place)
    assert status_of(held.result()) == 403
    assert "may need" in body_of(held.result())["why"]
    assert http.untouched


async def test_an_open_websocket_is_cut_off_at_the_limit(place: Setting, sink: Sink) -> None:
    let(place, sink.port, inside=True, budget="50kb")
    reader, writer = await proxy(place).tunnel(f"origin.test:{sink.port}", trust=place.ca_file)
    writer.write(
        f"GET /ws HTTP/1.1\r\nHost: origin.test:{sink.port}\r\nUpgrade: websocket\r\nConnection:"
        " Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key:"
        " AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
    )
    assert status_of(await answer_of(reader)) == 101
    message = b"\x82\xfe" + (4000).to_bytes(2) + b"\0\0\0\0" + b"x" * 4000
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        for _ in range(50):
            writer.write(message)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(refuse(place))
            await reader.read()
    writer.transport.abort()
    assert sink.taken_bytes <= 50 * KB


async def test_a_connection_that_is_passed_on_unread_counts_as_one_request(
    place: Setting, https: Origin
) -> None:
    mine = let(place, https.port, budget="1requests")
    _, writer = await proxy(place).tunnel(f"origin.test:{https.port}", trust=place.ca_file)
    writer.close()
    assert used(place, mine).requests == 1
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(refuse(place))
        with pytest.raises(RefusedTunnelError) as refused:
            await proxy(place).tunnel(f"origin.test:{https.port}", trust=place.ca_file)
    assert "the budget of this session is 1 request" in refused.value.body["why"]
    assert https.connections == 1


async def test_what_is_left_of_a_portion_is_given_back_when_the_session_ends(
    place: Setting, http: Origin
) -> None:
    mine = let(place, http.port, budget="1000requests,100mb")
    assert status_of(await get(place, http)) == 200
    assert used(place, mine).requests > 1
    await place.broker.close_session(place.session_id)
    await until(lambda: used(place, mine).requests == 1)
    assert 0 < used(place, mine).bytes_out < 1000


async def test_the_end_of_an_installs_connection_gives_back_nothing_of_its_session(
    place: Setting, http: Origin
) -> None:
    """It would be sent beyond the limit, a portion more for each install."""
    mine = let(place, http.port, budget="64requests")
    for number in range(1, 9):
        assert status_of(await get(place, http)) == 200
        with socket.create_server(("127.0.0.1", 0)) as listener:
            hosts = frozenset({("origin.test", http.port)})
            reach = await place.broker.open_reach(place.session_id, listener, hosts, own=None)
            install = Proxy(None, reach, listener.getsockname()[1])  # type: ignore[arg-type]
            assert status_of(await get(place, http, through=install)) == 200
            await place.broker.close_session(reach)
        await until(lambda number=number: used(place, mine).requests >= 2 * number)
    await place.broker.close_session(place.session_id)
    await place.broker.stop()
    assert used(place, mine).requests == 16 == http.received.count(b"GET ")


async def test_what_a_request_announced_that_was_aborted_is_given_back(
    place: Setting, http: Origin
) -> None:
    mine = let(place, http.port, budget="100mb")
    head = (
        f"POST http://origin.test:{http.port}/x HTTP/1.1\r\nHost:"
        f" origin.test:{http.port}\r\nContent-Length: 90000000\r\n\r\n"
    )
    _, writer = await asyncio.open_connection("127.0.0.1", place.port)
    writer.write(head.encode())
    await until(lambda: used(place, mine).bytes_out >= 90_000_000)
    writer.transport.abort()
    await until(lambda: used(place, mine).bytes_out < KB)


async def test_at_the_end_of_gatehouse_it_is_given_back_too(place: Setting, http: Origin) -> None:
    mine = let(place, http.port, budget="1000requests")
    assert status_of(await get(place, http)) == 200
    await place.broker.close_session(place.session_id)
    await place.broker.stop()
    assert used(place, mine).requests == 1


@really_started
async def test_when_egress_is_killed_what_it_held_counts_as_sent(
    place: Setting, http: Origin
) -> None:
    mine = let(place, http.port, budget="1000requests")
    assert status_of(await get(place, http)) == 200
    held = used(place, mine).requests
    assert place.broker.pid is not None
    os.kill(place.broker.pid, signal.SIGKILL)
    await place.broker.wait_healthy(after_starts=1)
    assert status_of(await get(place, http)) == 200
    assert used(place, mine).requests > held
    await place.broker.close_session(place.session_id)
    await until(lambda: used(place, mine).requests == held + 1)


async def test_without_a_budget_what_was_sent_is_shown(place: Setting, http: Origin) -> None:
    mine = let(place, http.port, budget="")
    assert status_of(await get(place, http)) == 200
    await until(lambda: used(place, mine).requests == 1)
