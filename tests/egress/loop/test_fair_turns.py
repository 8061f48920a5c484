"""A session keeps no other waiting by what is much work for few bytes: counted in turns of the
loop and in what was done meanwhile, not in time."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import cast

import h2.connection
import pytest
import pytest_asyncio

from supervisor.egress.admission.egress_sessions import Sessions
from supervisor.egress.loop import fair_turns
from supervisor.egress.loop.fair_turns import LONG_S, QUANTUM_S, SHORT_BYTES, VERY_LONG_S, Share
from tests.egress.admission.test_egress_sessions_floods import request_to
from tests.egress.egress_harness import (
    FakeSupervisor,
    Origin,
    Proxy,
    answer_of,
    running_egress,
    serving,
    status_of,
)
from tests.fakes.waiting import PATIENCE_S


class Work:
    """Processor time that goes by when somebody says so, and how long was slept for it."""

    def __init__(self) -> None:
        self.worked_s = 0.0
        self.slept_s: list[float] = []
        self._sleep = asyncio.sleep

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        await self._sleep(0)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    found = Work()
    monkeypatch.setattr(fair_turns, "worked_s", lambda: found.worked_s)
    monkeypatch.setattr(fair_turns.asyncio, "sleep", found.sleep)  # type: ignore[attr-defined]
    return found


async def test_short_steps_follow_each_other_and_a_quantum_gives_others_their_turn(
    work: Work,
) -> None:
    one = Share()
    for _ in range(10):
        async with one:
            work.worked_s += QUANTUM_S / 4
    assert work.slept_s == [0, 0]


async def test_who_is_alone_gives_no_turns_and_pays_long_steps_back(work: Work) -> None:
    sessions = Sessions()
    alone, other = sessions.get("alone"), sessions.get("other")
    transport = cast("asyncio.Transport", None)
    assert sessions.connect(alone, transport, 0.0) is not None

    async def steps() -> list[float]:
        work.slept_s.clear()
        for _ in range(10):
            async with alone.share:
                work.worked_s += QUANTUM_S / 4
        async with alone.share:
            work.worked_s += LONG_S
        return work.slept_s

    assert await steps() == pytest.approx([LONG_S + QUANTUM_S / 2])
    connection = sessions.connect(other, transport, 0.0)
    assert connection is not None
    assert len(await steps()) == 3
    sessions.disconnect(connection)
    assert len(await steps()) == 1


async def test_a_long_step_is_paid_back(work: Work) -> None:
    one = Share()
    for took_s in (LONG_S * 3, QUANTUM_S / 2, LONG_S * 2):
        async with one:
            work.worked_s += took_s
    assert work.slept_s == pytest.approx([LONG_S * 3, LONG_S * 2 + QUANTUM_S / 2])


async def test_what_others_do_meanwhile_is_nobodys_debt(work: Work) -> None:
    one = Share()
    for _ in range(100):
        async with one:
            pass
        work.worked_s += 1.0
    assert not work.slept_s


async def test_a_step_that_raises_is_counted_and_keeps_no_turn(work: Work) -> None:
    one = Share()

    async def broken() -> None:
        async with one:
            work.worked_s += LONG_S
            raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await broken()
    assert work.slept_s == pytest.approx([LONG_S, LONG_S])


@pytest.mark.parametrize("connections", [1, 50])
async def test_many_connections_take_no_more_in_a_turn_than_one(
    work: Work, connections: int
) -> None:
    greedy, modest, order = Share(), Share(), []

    async def steps(of: Share, name: str, count: int) -> None:
        for _ in range(count):
            async with of:
                work.worked_s += QUANTUM_S
                order.append(name)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(connections):
            tasks.create_task(steps(greedy, "greedy", 30))
        await asyncio.sleep(0)
        await steps(modest, "modest", 20)
    until = max(at for at, name in enumerate(order) if name == "modest")
    assert order[:until].count("greedy") <= 3 * 20


async def test_after_a_very_long_step_what_comes_is_divided(work: Work) -> None:
    one, data = Share(), bytes(range(256)) * 256
    async with one:
        work.worked_s += LONG_S
    assert list(one.parts(data)) == [data]
    assert list(one.parts(b"")) == []
    async with one:
        work.worked_s += VERY_LONG_S
    parts = list(one.parts(data))
    assert b"".join(parts) == data
    assert {len(part) for part in parts} == {SHORT_BYTES}


# -- through the proxy ----------------------------------------------------------------------------

PING = b"\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678"
FLOODS = 4
# Of each. All together keep egress busy for more than a minute.
PINGS_EACH = 300_000
# What is done of it while one request of another session is answered: some reads of a connection,
# not of each.
FEW_PINGS = 60_000


async def pinged(proxy: Proxy, target: str, ca_file: Path, acknowledged: list[int]) -> None:
    """Send more pings than can be answered, and count those that are."""
    reader, writer = await proxy.tunnel(target, trust=ca_file, alpn=["h2"])
    client = h2.connection.H2Connection()
    client.initiate_connection()
    writer.write(client.data_to_send() + PING * PINGS_EACH)
    try:
        while data := await reader.read(65536):
            acknowledged.append(len(data) // len(PING))
    finally:
        writer.transport.abort()


@pytest.mark.asyncio(loop_scope="module")
async def test_frames_that_are_much_work_keep_no_other_session_waiting(
    egress: FakeSupervisor, proxy: Proxy, http: Origin, https: Origin, ca_file: Path
) -> None:
    async with serving(egress, f"{proxy.session_id}-other") as other:
        assert status_of(await other.send(request_to(http))) == 200  # mitmproxy is started
        acknowledged: list[int] = []
        floods = [
            asyncio.create_task(pinged(proxy, f"origin.test:{https.port}", ca_file, acknowledged))
            for _ in range(FLOODS)
        ]
        async with asyncio.timeout(PATIENCE_S):
            while not acknowledged:
                await asyncio.sleep(0.01)
        before = sum(acknowledged)
        assert status_of(await other.send(request_to(http))) == 200
        assert sum(acknowledged) - before < FEW_PINGS
        for one in floods:
            one.cancel()
        await asyncio.wait(floods)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def dividing(
    tmp_path_factory: pytest.TempPathFactory, upstream_ca: Path
) -> AsyncIterator[FakeSupervisor]:
    """An egress to which every step is a long one."""
    preface = (
        "from supervisor.egress.loop import fair_turns as turns; turns.VERY_LONG_S ="
        " turns.QUANTUM_S = -1.0; turns.SHORT_BYTES = 7"
    )
    async with running_egress(
        tmp_path_factory.mktemp("dividing"), upstream_ca, preface=preface
    ) as supervisor:
        yield supervisor


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("version", ["HTTP", "TLS"])
async def test_what_is_divided_is_the_same(
    dividing: FakeSupervisor,
    http: Origin,
    https: Origin,
    tmp_path_factory: pytest.TempPathFactory,
    version: str,
) -> None:
    body = bytes(range(256)) * 8
    origin = http if version == "HTTP" else https
    origin.respond = lambda head: (
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    )
    target = f"origin.test:{origin.port}"
    head = f"Host: {target}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    async with serving(dividing, f"divided-{version}") as proxy:
        if version == "HTTP":
            reader, writer = await proxy.open()
            line = f"POST http://{target}/ HTTP/1.1\r\n".encode()
        else:
            trust = tmp_path_factory.getbasetemp() / "dividing0" / "ca" / "mitmproxy-ca-cert.pem"
            reader, writer = await proxy.tunnel(target, trust=trust)
            line = b"POST / HTTP/1.1\r\n"
        for _ in range(2):
            origin.received.clear()
            writer.write(line + head + body)
            assert (await answer_of(reader)).endswith(b"\r\n\r\n" + body)
            assert origin.received.endswith(b"\r\n\r\n" + body)
        writer.close()
