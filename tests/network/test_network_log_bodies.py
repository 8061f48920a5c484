"""Bodies of decrypted requests: nothing is kept unless it was asked for; then their beginnings,
and never a secret. Headers of responses are always kept, without what authenticates."""

import asyncio
import base64
import contextlib
import gzip
import json
import urllib.parse
from collections.abc import Callable

import pytest

from supervisor.core.network.egress_wire import Credential
from supervisor.core.network.exchanges import Bodies, Exchange
from supervisor.egress.protocols.checks import MOST_SHOWN_BYTES
from supervisor.network.network_log import MOST_BODY_CHARS
from tests.egress.egress_harness import Origin, Proxy, answer_of, status_of
from tests.fakes.waiting import PATIENCE_S
from tests.network.conftest import Setting

REAL = "real-key-0123456789abcdef"
PLACEHOLDER = "gatehouse-placeholder-42"


def keep(place: Setting, *, is_on: bool = True) -> None:
    """As the switch of the Network tab."""
    place.broker.keep_bodies(place.session_id, is_on=is_on)


def let(place: Setting, origin: Origin) -> None:
    place.office.policy(
        f"allow:\n  - network(origin.test:{origin.port})\n  - network(127.0.0.1:{origin.port})\n"
    )


def answers(make: Callable[[bytes], bytes], more: str = "") -> Callable[[bytes], bytes]:
    """Answers a head with what `make` makes of it."""

    def respond(head: bytes) -> bytes:
        body = make(head)
        return (
            f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n{more}Content-Length:"
            f" {len(body)}\r\n\r\n".encode()
            + body
        )

    return respond


async def send(place: Setting, origin: Origin, body: bytes, more: str = "") -> bytes:
    target = f"origin.test:{origin.port}"
    head = f"POST http://{target}/x HTTP/1.1\r\nHost: {target}\r\n{more}"
    if "chunked" not in more:
        head += f"Content-Length: {len(body)}\r\n"
    return await Proxy(None, place.session_id, place.port).send(head.encode() + b"\r\n" + body)  # type: ignore[arg-type]


async def ended(place: Setting, count: int = 1) -> list[Exchange]:
    """So many exchanges, once they have ended; the newest first."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = place.office.network_log.of_session(place.session_id)
            if len([one for one in found if one.ended_at is not None]) >= count:
                return found
            await asyncio.sleep(0.01)


async def kept(place: Setting) -> Bodies:
    """The bodies of the one exchange that was allowed, once its end is told: they are before
    that. Of one that is cut off the refusal is told first."""
    async with asyncio.timeout(PATIENCE_S):
        while not any(
            one.verdict == "allow" and one.ended_at is not None for one in await ended(place)
        ):
            await asyncio.sleep(0.01)
    (found,) = place.office.network_log.bodies(place.session_id).values()
    return found


async def test_nothing_is_kept_unless_it_was_asked_for(place: Setting, http: Origin) -> None:
    let(place, http)
    assert status_of(await send(place, http, b"hello")) == 200
    await ended(place)
    assert place.office.network_log.bodies(place.session_id) == {}


async def test_bodies_are_kept_while_that_is_on_and_by_a_new_egress_too(
    place: Setting, http: Origin
) -> None:
    let(place, http)
    http.respond = answers(lambda head: b"answer")
    for count, is_on in enumerate((True, False, True), start=1):
        keep(place, is_on=is_on)
        await send(place, http, b"%d" % count)
        await ended(place, count)
    place.broker.end_connections()
    await place.broker.wait_healthy(after_starts=1)
    await send(place, http, b"4")
    await ended(place, 4)
    bodies = place.office.network_log.bodies(place.session_id)
    assert [one.request.text for one in bodies.values() if one.request] == ["1", "3", "4"]
    place.broker.keep_bodies("nobody's", is_on=True)


async def test_switched_off_meanwhile_what_is_under_way_is_not_kept(
    place: Setting, http: Origin
) -> None:
    let(place, http)
    keep(place)
    target = f"origin.test:{http.port}"
    reader, writer = await Proxy(None, place.session_id, place.port).open()  # type: ignore[arg-type]
    writer.write(
        f"POST http://{target}/x HTTP/1.1\r\nHost: {target}\r\nContent-Length: 8\r\n\r\nques".encode()  # noqa: E501
    )
    async with asyncio.timeout(PATIENCE_S):
        while not place.office.network_log.of_session(place.session_id):
            await asyncio.sleep(0.01)
    keep(place, is_on=False)
    # Its answer comes by the same channel as the switch, after it.
    assert status_of(await send(place, http, b"other")) == 200
    writer.write(b"tion")
    assert status_of(await answer_of(reader)) == 200
    writer.close()
    await ended(place, 2)
    assert place.office.network_log.bodies(place.session_id) == {}


@pytest.mark.parametrize(
    ("size", "chunked"), [(5, False), (70_000, False), (300_000, False), (5, True), (50_000, True)]
)
async def test_the_beginnings_of_both_bodies_are_kept(
    place: Setting, http: Origin, size: int, chunked: bool
) -> None:
    let(place, http)
    keep(place)
    http.respond = answers(lambda head: b"r" * size)
    body = b"q" * size
    # The origin of these tests reads no chunks: it answers the head, and what follows is a head
    # that never ends.
    sent = b"%x\r\n%s\r\n0\r\n\r\n" % (size, body) if chunked else body
    answer = await send(
        place, http, sent, "Transfer-Encoding: chunked\r\nConnection: close\r\n" if chunked else ""
    )
    assert answer.endswith(b"r" * size)
    found = await kept(place)
    assert found.request is not None
    assert found.response is not None
    assert found.request.text == "q" * min(size, MOST_BODY_CHARS)
    assert found.response.text == "r" * min(size, MOST_BODY_CHARS)
    assert (found.request.whole_bytes, found.response.whole_bytes) == (size, size)
    if not chunked:
        assert http.received.endswith(body)


async def lend(place: Setting, origin: Origin, secret: str) -> None:
    """A credential that the session may use and that only signs: an answer that gives back what
    went out is cut off before it could be shown (`tests/egress/mitm/test_leaks.py`), and this
    one never goes out."""
    hosts = (f"origin.test:{origin.port}",)
    bound = Credential(
        placeholder=PLACEHOLDER,
        secret=secret,
        header="authorization",
        hosts=hosts,
        scheme="http",
        signs=True,
    )
    await place.broker.open_session(place.session_id, place.listener, [bound])


async def swap(place: Setting, origin: Origin) -> None:
    """One that goes out in place of its placeholder."""
    hosts = (f"origin.test:{origin.port}",)
    bound = Credential(
        placeholder=PLACEHOLDER, secret=REAL, header="authorization", hosts=hosts, scheme="http"
    )
    await place.broker.open_session(place.session_id, place.listener, [bound])


async def test_a_credential_that_egress_knows_is_seen_nowhere(place: Setting, http: Origin) -> None:
    let(place, http)
    await lend(place, http, REAL)
    keep(place)
    # Once it lies across the end of what is shown.
    http.respond = answers(
        lambda head: b"you sent " + REAL.encode() + b"x" * (MOST_BODY_CHARS - 44) + REAL.encode()
    )
    await send(place, http, f"I was given {PLACEHOLDER}".encode())
    found = await kept(place)
    assert found.request is not None
    assert found.response is not None
    assert found.request.text == "I was given [redacted]"
    assert found.response.text.startswith("you sent [redacted]xxx")
    for length in range(8, len(REAL) + 1):
        assert REAL[:length] not in found.response.text


async def test_a_credential_in_another_notation_is_seen_nowhere(
    place: Setting, http: Origin
) -> None:
    """The real key has characters that JSON may escape and URLs must."""
    real = 'real/key+0123456789="x"'
    let(place, http)
    await lend(place, http, real)
    keep(place)
    written = [
        json.dumps({"key": real}).replace("/", "\\/"),
        json.dumps(json.dumps({"key": real})),
        "key=" + urllib.parse.quote_plus(real),
        "Basic " + base64.b64encode(f"me:{real}".encode()).decode(),
        json.dumps({"file": base64.encodebytes(("x" * 80 + real).encode()).decode()}),
    ]
    http.respond = answers(lambda head: "\n".join(written).encode())
    await send(place, http, json.dumps({"said": urllib.parse.quote(PLACEHOLDER)}).encode())
    found = await kept(place)
    assert found.request is not None
    assert found.response is not None
    assert found.request.text == '{"said": "[redacted]"}'
    assert found.response.text.count("[redacted]") == len(written)
    for part in (
        real,
        "0123456789",
        *(base64.b64encode(real[at:].encode()).decode()[:12] for at in range(3)),
    ):
        assert part not in found.response.text


async def test_a_credential_in_halves_is_seen_nowhere(place: Setting, http: Origin) -> None:
    """What an origin gives back in halves is cut off; what was kept of it until then shows
    neither."""
    let(place, http)
    await swap(place, http)
    keep(place)
    first, second = REAL[: len(REAL) // 2], REAL[len(REAL) // 2 :]
    said = f"you sent {first} and then {second}".encode()
    http.respond = lambda head: (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding:"
        b" chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(said), said)
    )
    with contextlib.suppress(ConnectionResetError):
        await send(place, http, b"x", f"Authorization: Bearer {PLACEHOLDER}\r\n")
    found = await kept(place)
    assert found.response is not None
    assert found.response.text == "you sent [redacted] and then [redacted]"


async def test_headers_of_a_response_are_kept_without_what_authenticates(
    place: Setting, http: Origin
) -> None:
    let(place, http)
    await lend(place, http, REAL)
    said_back = (
        "Set-Cookie: session=c00kie\r\nX-You-Sent: Basic"
        f" {base64.b64encode(REAL.encode()).decode()}\r\nX-Also: {REAL}\r\n"
    )
    http.respond = answers(lambda head: b"hello", said_back + "X-Long: " + "x" * 5000 + "\r\n")
    await send(place, http, b"x")
    (one,) = await ended(place)
    found = dict(one.response_headers)
    assert found["Content-Type"] == "text/plain"
    assert found["Set-Cookie"] == "[hidden]"
    assert found["X-You-Sent"] == "Basic [redacted]=="
    assert found["X-Also"] == "[redacted]"
    assert len(found["X-Long"]) == MOST_SHOWN_BYTES
    assert REAL not in str(one)
    assert not any("X-Also" in line for line in place.office.audited("effect_settled")), (
        "headers are not put on record"
    )


async def test_what_was_refused_has_no_headers_of_a_response(place: Setting, http: Origin) -> None:
    place.office.policy("deny: [network]\n")
    await send(place, http, b"x")
    (one,) = await ended(place)
    assert one.headers
    assert one.response_headers == ()


async def test_what_came_compressed_is_shown_as_its_reader_sees_it(
    place: Setting, http: Origin
) -> None:
    let(place, http)
    keep(place)
    http.respond = answers(
        lambda head: gzip.compress(b"plain words " * 10), "Content-Encoding: gzip\r\n"
    )
    await send(place, http, b"x")
    found = await kept(place)
    assert found.response is not None
    assert found.response.text == "plain words " * 10


async def test_where_bodies_are_kept_only_codings_that_can_be_shown_are_asked_for(
    place: Setting, http: Origin
) -> None:
    let(place, http)
    taken = "Accept-Encoding: br, zstd, gzip;q=0.5\r\n"
    await send(place, http, b"x", taken)
    assert taken.strip().encode() in http.received
    keep(place)
    http.reset()
    await send(place, http, b"x", taken)
    assert b"Accept-Encoding: gzip;q=0.5\r\n" in http.received
    http.reset()
    await send(place, http, b"x")
    assert b"ccept-" not in http.received


async def test_a_bomb_is_no_more_than_any_other_body(place: Setting, http: Origin) -> None:
    let(place, http)
    keep(place)
    http.respond = answers(
        lambda head: gzip.compress(b"0" * 50_000_000), "Content-Encoding: gzip\r\n"
    )
    await send(place, http, b"x")
    found = await kept(place)
    assert found.response is not None
    assert len(found.response.text) == MOST_BODY_CHARS


async def test_of_an_answer_that_is_looked_at_as_its_client_leaves_the_end_is_told_as_it_was(
    place: Setting, http: Origin
) -> None:
    """All of it had come, which is known only once it was looked at."""
    let(place, http)
    await swap(place, http)
    keep(place)
    said = gzip.compress(b"0" * 10_000_000)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
    http.respond = lambda _: b"%s%x\r\n%s\r\n0\r\n\r\n" % (head, len(said), said)
    target = f"origin.test:{http.port}"
    reader, writer = await Proxy(None, place.session_id, place.port).open()  # type: ignore[arg-type]
    writer.write(
        f"GET http://{target}/x HTTP/1.1\r\nHost: {target}\r\nAuthorization: Bearer"
        f" {PLACEHOLDER}\r\n\r\n".encode()
    )
    async with asyncio.timeout(PATIENCE_S):
        await reader.readuntil(b"\r\n\r\n")
    writer.close()
    found = await kept(place)
    assert found.response is not None
    assert len(found.response.text) == MOST_BODY_CHARS
    (one,) = await ended(place)
    assert one.status == 200
    assert ("Content-Encoding", "gzip") in one.response_headers
