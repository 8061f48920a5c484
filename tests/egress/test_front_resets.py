"""A reset, by the client and by the origin, in each state that a connection can be in: egress holds
afterwards what it held before.

Whatever was allowed has exactly one outcome, whatever was reserved is reported once, a question
that nobody waits for is given up, and an origin of what wasn't allowed sees no connection.
"""

import asyncio
import itertools
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio
import trustme

from supervisor.core.network.egress_wire import (
    Abandoned,
    Answer,
    CloseSession,
    Reserve,
    Settled,
    Spent,
)
from tests.egress.counting_egress import PREFACE, until_held
from tests.egress.egress_harness import (
    PATIENCE_S,
    FakeSupervisor,
    running_egress,
    server_context,
    serving,
)
from tests.egress.reset_states import BOTH, HOST, NOTHING_DIALLED, Far, Peer, Place, asking

pytestmark = pytest.mark.asyncio(loop_scope="module")

_numbers = itertools.count()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def counted(data_dir: Path, upstream_ca: Path) -> AsyncIterator[FakeSupervisor]:
    async with running_egress(
        data_dir, upstream_ca, hold_s=PATIENCE_S, preface=PREFACE
    ) as supervisor:
        yield supervisor


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def far_ends(authority: trustme.CA) -> AsyncIterator[tuple[Far, Far]]:
    async def open_far(context: ssl.SSLContext | None) -> tuple[Far, asyncio.Server]:
        far = Far()

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            far.connections += 1
            far.taken.put_nowait(Peer(reader, writer))

        server = await asyncio.start_server(take, "127.0.0.1", 0, ssl=context)
        far.port = server.sockets[0].getsockname()[1]
        return far, server

    plain, one = await open_far(None)
    tls, other = await open_far(server_context(authority, HOST))
    async with one, other:
        yield plain, tls


@pytest_asyncio.fixture(loop_scope="module")
async def place(
    counted: FakeSupervisor, far_ends: tuple[Far, Far], ca_file: Path
) -> AsyncIterator[Place]:
    counted.reset()
    session_id = f"s-{next(_numbers)}"  # of another nothing is looked up that was before
    async with serving(counted, session_id) as proxy:
        place = Place(counted, proxy, *far_ends, ca_file)
        counted.decide = place.decide
        await whole_request(place)
        yield place
    counted.send(CloseSession(session_id=session_id))
    for far in far_ends:
        while not far.taken.empty():
            far.taken.get_nowait().reset()
    for one in (place.client, place.origin):
        if one is not None:
            one.writer.close()


async def whole_request(place: Place) -> None:
    """Of one that goes its way: what looks inside has begun, and the session may send what it
    wants to."""
    client, origin = await place.request(
        asking(place.plain, host="other.test", headers="Connection: close\r\n")
    )
    origin.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    for one in (client, origin):
        one.writer.close()
    await until_held(place.supervisor, lambda facts: not (facts["connections"] or facts["clients"]))
    place.plain.connections = 0


async def nothing_stays(place: Place, before: dict[str, int]) -> None:
    """All is as it was, and told as it was."""
    supervisor = place.supervisor
    await until_held(supervisor, lambda facts: all(facts[name] <= before[name] for name in before))
    await supervisor.until_one(
        lambda one: place.allowed <= {said.question_id for said in supervisor.of_type(Settled)}
    )
    outcomes = Counter(one.question_id for one in supervisor.of_type(Settled))
    assert {count for number, count in outcomes.items() if number in place.allowed} <= {1}
    calls = {one.question_id for one in supervisor.of_type(Reserve)}
    if place.given:
        await supervisor.until_one(
            lambda one: place.given <= {said.question_id for said in supervisor.of_type(Spent)}
        )
    assert Counter(
        one.question_id for one in supervisor.of_type(Spent) if one.question_id in calls
    ) == Counter(place.given)


async def idle(place: Place) -> dict[str, int]:
    """What is held while nobody is connected."""
    return await until_held(
        place.supervisor, lambda facts: not (facts["connections"] or facts["clients"])
    )


@pytest.mark.parametrize("state", NOTHING_DIALLED, ids=lambda state: state.__name__)
async def test_a_client_that_resets_before_anything_is_dialled(
    place: Place, state: Callable[[Place], Awaitable[None]]
) -> None:
    before = await idle(place)
    await state(place)
    await until_held(place.supervisor, lambda facts: bool(facts["connections"]))
    assert place.client is not None
    place.client.reset()
    await until_held(place.supervisor, lambda facts: not facts["questions"])
    await answer_late(place)
    await nothing_stays(place, before)
    assert place.plain.connections + place.tls.connections == 0


async def answer_late(place: Place) -> None:
    """Who asked is gone; that what is allowed now has an outcome, too, is `nothing_stays`'s to
    see."""
    supervisor = place.supervisor
    calls = [one.question_id for one in supervisor.of_type(Reserve)]
    for number in [*place.open, *calls]:
        await supervisor.until_one(
            lambda said, number=number: said == Abandoned(question_id=number)
        )
        (place.given if number in calls else place.allowed).add(number)
        supervisor.send(Answer(question_id=number, decision="allow", private_ok=True, settle=True))


@pytest.mark.parametrize("by", ["client", "origin"])
@pytest.mark.parametrize("state", BOTH, ids=lambda state: state.__name__)
async def test_a_reset_with_both_ends(
    place: Place, state: Callable[[Place], Awaitable[None]], by: str
) -> None:
    before = await idle(place)
    await state(place)
    assert place.client is not None
    assert place.origin is not None
    (place.client if by == "client" else place.origin).reset()
    other = place.origin if by == "client" else place.client
    if by == "origin":
        place.client.writer.write(place.rest)
    try:
        async with asyncio.timeout(PATIENCE_S):
            # A client whose request isn't whole yet is told so, and may still send the rest.
            while (found := await other.reader.read(1 << 20)) and b" 502 " not in found:
                pass
    except (ConnectionError, ssl.SSLError):
        pass
    other.writer.close()
    await nothing_stays(place, before)
