"""HTTP/2 that is looked into: each stream is judged on its own, holds up no other, and ends as
its client or its origin ends it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import trustme
from h2.errors import ErrorCodes

from supervisor.core.network.egress_wire import Abandoned, Answer, EgressRefused, Question, Settled
from tests.egress.egress_harness import Proxy, allow, deny, running_egress, serving
from tests.egress.h2_client import h2_client
from tests.fakes.h2_origin import HELLO, H2Origin, h2_origin
from tests.fakes.waiting import PATIENCE_S

# Longer than any test waits: what is given up earlier, isn't by the clock.
HOLD_S = 300.0
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def origin(authority: trustme.CA) -> AsyncIterator[H2Origin]:
    async with h2_origin(authority, "origin.test", "other.test") as origin:
        yield origin


def at(origin: H2Origin) -> str:
    return f"origin.test:{origin.port}"


class Person:
    """Answers by the path: `/denied` no, `/held` when `answer` is set, everything else yes."""

    def __init__(self, proxy: Proxy) -> None:
        proxy.supervisor.decide = self.decide
        self.asked = asyncio.Event()
        self.answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def decide(self, question: Question) -> Answer | asyncio.Task[Answer]:
        path = question.action.path or ""
        if path.startswith("/held"):
            self.asked.set()
            return asyncio.ensure_future(self._later(question))
        return deny(question) if path.startswith("/denied") else allow(question)

    async def _later(self, question: Question) -> Answer:
        return allow(question) if await asyncio.shield(self.answer) else deny(question)


async def test_streams_of_one_connection_are_judged_each_on_its_own(
    proxy: Proxy, origin: H2Origin, ca_file: Path
) -> None:
    person = Person(proxy)
    async with h2_client(proxy, at(origin), ca_file) as client:
        _, held = client.ask("/held")
        await person.asked.wait()
        _, denied = client.ask("/denied")
        allowed = await client.answered("/one")
        await client.until(lambda: denied.over)
        assert (allowed.status, allowed.body) == (200, HELLO)
        assert denied.status == 403
        assert b"denied by a test" in denied.body
        assert not held.over
        assert (await client.answered("/two")).status == 200, (
            "what waits holds up nothing, and a refusal ends nothing"
        )
        assert origin.requests == ["GET /one", "GET /two"]
        person.answer.set_result(True)
        await client.until(lambda: held.over)
        assert (held.status, held.body) == (200, HELLO)
    assert origin.requests == ["GET /one", "GET /two", "GET /held"]


async def test_nobody_is_sent_round_by_http3(proxy: Proxy, origin: H2Origin, ca_file: Path) -> None:
    """An origin may say where else it is by a header, and by frames of HTTP/2 (RFC 7838 3 and
    4)."""
    async with h2_client(proxy, at(origin), ca_file) as client:
        for _ in range(2):  # what is said between two requests, too
            stream = await client.answered("/elsewhere")
            assert (stream.status, stream.body, stream.headers["x-kept"]) == (200, HELLO, "1")
            assert "alt-svc" not in stream.headers
        assert client.elsewhere == 0


@pytest.mark.parametrize("says_yes", [True, False])
async def test_a_stream_that_is_reset_while_it_is_held_goes_nowhere(
    proxy: Proxy, origin: H2Origin, ca_file: Path, says_yes: bool
) -> None:
    person = Person(proxy)
    async with h2_client(proxy, at(origin), ca_file) as client:
        number, _ = client.ask("/held")
        await person.asked.wait()
        client.reset(number)
        gone = await proxy.supervisor.until(Abandoned)
        held = next(one for one in proxy.supervisor.questions if one.action.path == "/held")
        assert gone.question_id == held.question_id, "so that its card ends"
        person.answer.set_result(says_yes)
        assert (await client.answered("/after")).status == 200, "the connection goes on"
        if says_yes:
            # The grant came too late, and is given back unused.
            failed = {"question_id": held.question_id, "outcome": "failed"}
            await proxy.supervisor.until_one(
                lambda one: (
                    isinstance(one, Settled)
                    and {name: getattr(one, name) for name in failed} == failed
                )
            )
    assert origin.requests == ["GET /after"]


async def test_trailers_pass_both_ways(proxy: Proxy, origin: H2Origin, ca_file: Path) -> None:
    async with h2_client(proxy, at(origin), ca_file) as client:
        number, stream = client.ask(
            "/trailers", method="POST", end=False, more=[("te", "trailers")]
        )
        client.send(number, b"body")
        client.send_trailers(number, [("x-checksum", "12")])
        await client.until(lambda: stream.over)
    assert (stream.status, stream.body) == (200, HELLO)
    assert stream.trailers == {"grpc-status": "0", "x-checksum": "12"}
    assert origin.trailers == [("x-checksum", "12")]
    assert bytes(origin.received) == b"body"


async def test_a_response_ends_when_it_is_over_though_its_request_goes_on(
    proxy: Proxy, origin: H2Origin, ca_file: Path
) -> None:
    """A client that waits for it before it sends on, or ends, would wait for ever."""
    async with h2_client(proxy, at(origin), ca_file) as client:
        number, stream = client.ask("/enough", method="POST", end=False)
        client.send(number, b"body")
        await client.until(lambda: stream.over)
        assert (stream.status, stream.body, stream.resets) == (413, HELLO, [])
        client.send(number, b"more", end=True)
        assert (await proxy.supervisor.settled()).detail["status"] == 413
        assert (await client.answered("/")).status == 200
    assert origin.received == b"bodymore"


async def test_an_origin_that_answered_and_wants_no_more_of_the_request_is_passed_on_as_that(
    proxy: Proxy, origin: H2Origin, ca_file: Path
) -> None:
    async with h2_client(proxy, at(origin), ca_file) as client:
        number, stream = client.ask("/enough", method="POST", end=False)
        client.send(number, b"body")
        await client.until(lambda: stream.over)
        origin.refuse_more()
        await client.until(lambda: stream.resets == [ErrorCodes.NO_ERROR])
        settled = await proxy.supervisor.settled()
        assert (settled.outcome, settled.detail["status"]) == ("done", 413)
        assert (await client.answered("/")).status == 200
    assert origin.received == b"body"


async def test_a_response_that_ended_before_its_request_ends_once_however_slowly_it_is_taken(
    proxy: Proxy, origin: H2Origin, ca_file: Path
) -> None:
    async with h2_client(proxy, at(origin), ca_file) as client:
        client.take_at_once(4)
        number, stream = client.ask("/enough", method="POST", end=False)
        client.send(number, b"body")
        await client.until(lambda: stream.body == HELLO[:4])
        client.send(number, b"more", end=True)
        await proxy.supervisor.settled()
        client.take_at_once(1000)
        await client.until(lambda: stream.over)
        assert (stream.body, stream.resets) == (HELLO, [])
        assert (await client.answered("/")).status == 200


async def test_an_origin_that_answered_is_told_when_the_rest_of_the_request_is_given_up(
    proxy: Proxy, origin: H2Origin, ca_file: Path
) -> None:
    async with h2_client(proxy, at(origin), ca_file) as client:
        number, stream = client.ask("/enough", method="POST", end=False)
        client.send(number, b"body")
        await client.until(lambda: stream.over)
        client.reset(number)
        await origin.until_reset("/over")
        settled = await proxy.supervisor.settled()
        assert (settled.outcome, settled.detail["status"]) == ("done", 413)


SLOW_LOOK = """
import asyncio
from supervisor.egress.mitm.leaks import Leaks

async def slowly(self, flow):
    await asyncio.sleep(0.5)

Leaks.looks_at_request = lambda self, flow: True
Leaks.look_at_request = slowly
"""


async def test_a_client_that_leaves_while_its_body_is_looked_at_is_on_record_as_that(
    tmp_path: Path, upstream_ca: Path, origin: H2Origin
) -> None:
    async with (
        running_egress(tmp_path, upstream_ca, preface=SLOW_LOOK) as supervisor,
        serving(supervisor, "s") as proxy,
        h2_client(proxy, at(origin), tmp_path / "ca/mitmproxy-ca-cert.pem") as client,
    ):
        number, _ = client.ask("/gone")
        await supervisor.until_one(
            lambda one: isinstance(one, Question) and one.action.path == "/gone"
        )
        await asyncio.sleep(0.2)  # so that it is being looked at
        client.reset(number)
        settled = await supervisor.until(Settled)
        assert settled.detail["error"] == "the client went away before it had all of the response"
    assert origin.requests == []


async def test_a_stream_flows_both_ways_at_once(
    proxy: Proxy, origin: H2Origin, ca_file: Path
) -> None:
    """As gRPC does: the next piece is sent only when the last came back."""
    async with h2_client(proxy, at(origin), ca_file) as client:
        number, stream = client.ask("/echo", method="POST", end=False, more=[("te", "trailers")])
        said = b""
        for piece in (b"one", b"two", b"three"):
            client.send(number, piece)
            said += piece
            await client.until(lambda so_far=said: stream.body == so_far)  # type: ignore[misc]
        client.send(number, b"", end=True)
        await client.until(lambda: stream.over)
    assert origin.requests == ["POST /echo"]


async def test_a_denied_stream_sends_nothing_of_its_body(
    proxy: Proxy, origin: H2Origin, ca_file: Path
) -> None:
    Person(proxy)
    async with h2_client(proxy, at(origin), ca_file) as client:
        number, stream = client.ask("/denied", method="POST", end=False)
        client.send(number, b"secret")
        await client.until(lambda: stream.over)
        assert stream.status == 403
    assert origin.untouched


async def test_an_origin_that_takes_no_more_streams_is_dialled_anew(
    proxy: Proxy, origin: H2Origin, ca_file: Path
) -> None:
    async with h2_client(proxy, at(origin), ca_file) as client:
        assert (await client.answered("/goaway")).status == 200
        assert (await client.answered("/after")).status == 200
    assert origin.requests == ["GET /goaway", "GET /after"]
    assert origin.connections == 2


async def test_a_reset_of_the_client_reaches_the_origin(
    proxy: Proxy, origin: H2Origin, ca_file: Path
) -> None:
    async with h2_client(proxy, at(origin), ca_file) as client:
        number, stream = client.ask("/open")
        await client.until(lambda: stream.status == 200)
        client.reset(number)
        await origin.until_reset("/open")
        assert (await client.answered("/after")).status == 200


@pytest.mark.parametrize(
    "more", [[], [(":protocol", "websocket")]], ids=["CONNECT", "extended CONNECT"]
)
async def test_a_connect_inside_is_refused(
    proxy: Proxy, origin: H2Origin, ca_file: Path, more: list[tuple[str, str]]
) -> None:
    """RFC 8441 would carry a WebSocket, and a bare CONNECT anything at all."""
    async with h2_client(proxy, at(origin), ca_file) as client:
        _, stream = client.ask("/chat", method="CONNECT", end=False, more=more)
        await client.until(lambda: stream.over or client.lost)
        assert stream.status != 200
    assert origin.untouched


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"


async def test_what_is_no_http2_is_on_record(proxy: Proxy, origin: H2Origin, ca_file: Path) -> None:
    proxy.supervisor.decide = allow
    reader, writer = await proxy.tunnel(at(origin), trust=ca_file, alpn=["h2"])
    writer.write(b"GET / HTTP/1.1\r\nHost: origin.test\r\n\r\n")
    await reader.read()
    writer.close()
    await proxy.supervisor.until_one(
        lambda one: isinstance(one, EgressRefused) and "can't be read" in one.why
    )


async def test_http2_in_the_clear_is_refused(proxy: Proxy, origin: H2Origin) -> None:
    answer = await proxy.send(PREFACE, eof=True)
    assert b" 200 " not in answer
    target = at(origin)
    reader, writer = await proxy.open()
    writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode() + PREFACE)
    async with asyncio.timeout(PATIENCE_S):
        answer = await reader.read()
    writer.close()
    assert b"HTTP/2" not in answer
    assert not origin.requests
