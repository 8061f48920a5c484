"""Bodies of decrypted requests: nothing is kept unless it was asked for; then their beginnings, and never a secret."""

import asyncio
import gzip
import re
from collections.abc import Callable

import msgspec
import pytest

from supervisor.core.egress_wire import Credential
from supervisor.core.exchanges import Bodies
from supervisor.network_log import MOST_BODY_CHARS
from tests.brokers.conftest import Setting
from tests.egress.egress_harness import Origin, Proxy, status_of

REAL = "real-key-0123456789abcdef"
PLACEHOLDER = "gatehouse-placeholder-42"


async def keep(place: Setting) -> None:
    """As GATEHOUSE_KEEP_BODIES=yes."""
    place.broker._configure = msgspec.structs.replace(place.broker._configure, keep_bodies=True)
    place.broker.end_connections()
    await place.broker.wait_healthy(after_starts=1)


def let(place: Setting, origin: Origin) -> None:
    place.office.policy(f"allow:\n  - network(origin.test:{origin.port})\n  - network(127.0.0.1:{origin.port})\n")


def answers(make: Callable[[bytes], bytes], more: str = "") -> Callable[[bytes], bytes]:
    """Answers a head with what `make` makes of it."""

    def respond(head: bytes) -> bytes:
        body = make(head)
        return (
            f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode() + body
        )

    return respond


async def send(place: Setting, origin: Origin, body: bytes, more: str = "") -> bytes:
    target = f"origin.test:{origin.port}"
    head = f"POST http://{target}/x HTTP/1.1\r\nHost: {target}\r\n{more}"
    if "chunked" not in more:
        head += f"Content-Length: {len(body)}\r\n"
    return await Proxy(None, place.session_id, place.port).send(head.encode() + b"\r\n" + body)  # type: ignore[arg-type]


async def kept(place: Setting) -> Bodies:
    """The bodies of the one exchange, once it has ended."""
    async with asyncio.timeout(20):
        while not [one for one in place.office.network_log.of_session(place.session_id) if one.ended_at is not None]:
            await asyncio.sleep(0.01)
    (found,) = place.office.network_log.bodies(place.session_id).values()
    return found


async def test_nothing_is_kept_unless_it_was_asked_for(place: Setting, http: Origin) -> None:
    let(place, http)
    assert status_of(await send(place, http, b"hello")) == 200
    async with asyncio.timeout(20):
        while not [one for one in place.office.network_log.of_session(place.session_id) if one.ended_at is not None]:
            await asyncio.sleep(0.01)
    assert place.office.network_log.bodies(place.session_id) == {}


@pytest.mark.parametrize(
    ("size", "chunked"), [(5, False), (70_000, False), (300_000, False), (5, True), (50_000, True)]
)
async def test_the_beginnings_of_both_bodies_are_kept(place: Setting, http: Origin, size: int, chunked: bool) -> None:
    let(place, http)
    await keep(place)
    http.respond = answers(lambda head: b"r" * size)
    body = b"q" * size
    # The origin of these tests reads no chunks: it answers the head, and what follows is a head that never ends.
    sent = b"%x\r\n%s\r\n0\r\n\r\n" % (size, body) if chunked else body
    answer = await send(place, http, sent, "Transfer-Encoding: chunked\r\nConnection: close\r\n" if chunked else "")
    assert answer.endswith(b"r" * size)
    found = await kept(place)
    assert found.request is not None
    assert found.response is not None
    assert found.request.text == "q" * min(size, MOST_BODY_CHARS)
    assert found.response.text == "r" * min(size, MOST_BODY_CHARS)
    assert (found.request.whole_bytes, found.response.whole_bytes) == (size, size)
    if not chunked:
        assert http.received.endswith(body)


async def test_a_credential_that_egress_put_in_is_seen_nowhere(place: Setting, http: Origin) -> None:
    let(place, http)
    target = f"origin.test:{http.port}"
    basic = Credential(
        placeholder=PLACEHOLDER, secret=REAL, header="authorization", hosts=(target,), scheme="http", basic=True
    )
    await place.broker.open_session(place.session_id, place.listener, [basic])
    await keep(place)
    # It says back what it was sent, as services for testing do, and once across the end of what is shown.
    http.respond = answers(
        lambda head: head + REAL.encode() + b"x" * (MOST_BODY_CHARS - len(head) - 35) + REAL.encode()
    )
    for header in (f"Bearer {PLACEHOLDER}", PLACEHOLDER):
        answer = await send(place, http, f"I was given {PLACEHOLDER}".encode(), f"Authorization: {header}\r\n")
        assert REAL.encode() in answer
    async with asyncio.timeout(20):
        while len(place.office.network_log.bodies(place.session_id)) < 2:
            await asyncio.sleep(0.01)
    for found in place.office.network_log.bodies(place.session_id).values():
        assert found.request is not None
        assert found.response is not None
        assert found.request.text == "I was given [redacted]"
        assert re.search(r"(?i)authorization: .*\[redacted\]", found.response.text)
        for length in range(8, len(REAL) + 1):
            assert REAL[:length] not in found.response.text


async def test_what_came_compressed_is_shown_as_its_reader_sees_it(place: Setting, http: Origin) -> None:
    let(place, http)
    await keep(place)
    http.respond = answers(lambda head: gzip.compress(b"plain words " * 10), "Content-Encoding: gzip\r\n")
    await send(place, http, b"x")
    found = await kept(place)
    assert found.response is not None
    assert found.response.text == "plain words " * 10


async def test_a_bomb_is_no_more_than_any_other_body(place: Setting, http: Origin) -> None:
    let(place, http)
    await keep(place)
    http.respond = answers(lambda head: gzip.compress(b"0" * 50_000_000), "Content-Encoding: gzip\r\n")
    await send(place, http, b"x")
    found = await kept(place)
    assert found.response is not None
    assert len(found.response.text) == MOST_BODY_CHARS
