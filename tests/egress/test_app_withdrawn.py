"""What was allowed and is allowed no longer: ended where it goes on, begun no more where it
hasn't, and nothing beside it is touched."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import trustme

from supervisor.core.network.egress_wire import Answer, CloseConnection, Question, Settled
from tests.egress.egress_harness import (
    Origin,
    Proxy,
    allow,
    answer_of,
    body_of,
    running_egress,
    serving,
    status_of,
)
from tests.egress.h2_client import h2_client
from tests.fakes.h2_origin import H2Origin, h2_origin

pytestmark = pytest.mark.asyncio(loop_scope="module")
WHY = "allowed no longer: a test"


@pytest_asyncio.fixture(loop_scope="module")
async def h2(authority: trustme.CA) -> AsyncIterator[H2Origin]:
    async with h2_origin(authority, "origin.test") as origin:
        yield origin


def withdrawn(question: Question) -> CloseConnection:
    return CloseConnection(
        session_id=question.session_id,
        connection_id=question.connection_id,
        why=WHY,
        question_id=question.question_id,
    )


def get(origin: Origin, path: str) -> bytes:
    return (
        f"GET http://origin.test:{origin.port}{path} HTTP/1.1\r\nHost:"
        f" origin.test:{origin.port}\r\n\r\n".encode()
    )


def withdraws_at_once(proxy: Proxy, path: str) -> None:
    """In the packet behind the answer: nobody has taken that up yet."""

    def decide(question: Question) -> Answer | None:
        if question.action.path != path:
            return allow(question)
        proxy.supervisor.send(allow(question))
        proxy.supervisor.send(withdrawn(question))
        return None

    proxy.supervisor.decide = decide


async def test_of_one_that_hasnt_begun_nothing_goes_out(proxy: Proxy, http: Origin) -> None:
    withdraws_at_once(proxy, "/gone")
    answer = await proxy.send(get(http, "/gone"))
    assert status_of(answer) == 403
    assert body_of(answer)["why"] == WHY
    assert http.untouched
    settled = await proxy.supervisor.settled()
    assert (settled.outcome, settled.detail["error"]) == ("failed", WHY)


async def test_of_one_of_several_that_hasnt_begun_nothing_goes_out(
    proxy: Proxy, h2: H2Origin, ca_file: Path
) -> None:
    withdraws_at_once(proxy, "/gone")
    async with h2_client(proxy, f"origin.test:{h2.port}", ca_file) as client:
        assert (await client.answered("/gone")).status == 403
        assert (await client.answered("/")).status == 200
    assert h2.requests == ["GET /"]


async def test_one_that_is_over_ends_nothing(proxy: Proxy, http: Origin) -> None:
    proxy.supervisor.decide = allow
    reader, writer = await proxy.open()
    for path in ("/one", "/two"):
        writer.write(get(http, path))
        assert status_of(await answer_of(reader)) == 200
        over = next(one for one in proxy.supervisor.questions if one.action.path == path)
        await proxy.supervisor.until_one(
            lambda one, over=over: isinstance(one, Settled) and one.question_id == over.question_id  # type: ignore[misc]
        )
        proxy.supervisor.send(withdrawn(over))
    writer.close()


SLOW_DIAL = """
import asyncio
from supervisor.egress.loop.dialler import PinnedLoop

dial = PinnedLoop.dial

async def dialled(self, *where):
    await asyncio.sleep(0.5)
    return await dial(self, *where)

PinnedLoop.dial = dialled
"""


async def test_while_its_origin_is_dialled_its_head_doesnt_go_out(
    tmp_path: Path, upstream_ca: Path, h2: H2Origin
) -> None:
    async with (
        running_egress(tmp_path, upstream_ca, preface=SLOW_DIAL) as supervisor,
        serving(supervisor, "s") as proxy,
        h2_client(proxy, f"origin.test:{h2.port}", tmp_path / "ca/mitmproxy-ca-cert.pem") as client,
    ):
        _, stream = client.ask("/gone")
        await supervisor.until_one(
            lambda one: isinstance(one, Question) and one.action.path == "/gone"
        )
        await asyncio.sleep(0.2)  # so that it is being dialled
        supervisor.send(withdrawn(supervisor.questions[-1]))
        await client.until(lambda: stream.over)
        assert stream.status == 0
        settled = await supervisor.until(Settled)
        assert (settled.outcome, settled.detail["error"]) == ("failed", WHY)
        assert (await client.answered("/")).status == 200
    assert h2.requests == ["GET /"]


@pytest.mark.parametrize("is_withdrawn", [True, False])
async def test_while_it_waits_for_its_turn_at_the_origin_nothing_of_it_goes_out(
    proxy: Proxy, h2: H2Origin, ca_file: Path, is_withdrawn: bool
) -> None:
    h2.most_streams = 1
    proxy.supervisor.decide = allow
    async with h2_client(proxy, f"origin.test:{h2.port}", ca_file) as client:
        assert (await client.answered("/")).status == 200
        first, lying = client.ask("/lies", method="POST", end=False)
        await h2.until_one_lies()
        number, stream = client.ask("/gone")
        await proxy.supervisor.until_one(
            lambda one: isinstance(one, Question) and one.action.path == "/gone"
        )
        gone = proxy.supervisor.questions[-1]
        await asyncio.sleep(0.2)  # so that it waits for its turn
        if is_withdrawn:
            proxy.supervisor.send(withdrawn(gone))
            await client.until(lambda: stream.over)
        else:
            client.reset(number)
        await proxy.supervisor.until_one(
            lambda one: isinstance(one, Settled) and one.question_id == gone.question_id
        )
        client.send(first, b"", end=True)
        await client.until(lambda: lying.over)
        assert (await client.answered("/after")).status == 200
    assert h2.requests == ["GET /", "POST /lies", "GET /after"]
