"""One connection of HTTP/2 with request after request: of those that are over nothing is kept,
however they ended, neither of its client nor of its origin."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import h2.config
import h2.connection
import h2.events
import pytest
import pytest_asyncio
import trustme
from mitmproxy import connection
from mitmproxy import http as mitm_http
from mitmproxy.connection import ConnectionState
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http._events import (
    ErrorCode,
    RequestData,
    RequestEndOfMessage,
    RequestHeaders,
    RequestProtocolError,
)

from supervisor.core.network.egress_wire import Answer, Question
from supervisor.egress.mitm.http2 import MOST_REMEMBERED_RESETS, BoundedHttp2Client
from tests.egress.counting_egress import PREFACE, until_held
from tests.egress.egress_harness import FakeSupervisor, allow, deny, running_egress, serving
from tests.egress.h2_client import H2Client, h2_client
from tests.fakes.h2_origin import H2Origin, h2_origin

pytestmark = pytest.mark.asyncio(loop_scope="module")
AT_ONCE = 10
ROUNDS = 6
# What a few requests may leave until the next: far less than there are of any kind.
MOST_ENTRIES = 25
COUNTING = (
    PREFACE
    + """
import gc
from collections.abc import Sized

def held(egress):
    from supervisor.egress.mitm.http2 import BoundedHttp2Client, BoundedHttp2Server
    from supervisor.egress.mitm.layers import GuardedHttpLayer
    facts = {}
    gc.collect()
    for one in gc.get_objects():
        if isinstance(one, BoundedHttp2Client | BoundedHttp2Server | GuardedHttpLayer):
            for part in (one, getattr(one, "h2_conn", None)):
                for name, value in vars(part).items() if part else ():
                    if isinstance(value, Sized) and not isinstance(value, str | bytes | bytearray):
                        key = f"{type(one).__name__} {type(part).__name__}.{name}"
                        facts[key] = max(facts.get(key, 0), len(value))
    return facts
"""
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def counted(data_dir: Path, upstream_ca: Path) -> AsyncIterator[FakeSupervisor]:
    async with running_egress(data_dir, upstream_ca, preface=COUNTING) as supervisor:
        yield supervisor


def decide(question: Question) -> Answer:
    return deny(question) if question.action.path == "/denied" else allow(question)


async def answered(client: H2Client, origin: H2Origin) -> None:
    streams = [client.ask("/")[1] for _ in range(2 * AT_ONCE)]
    await client.until(lambda: all(stream.over and stream.status == 200 for stream in streams))


async def sent(client: H2Client, origin: H2Origin) -> None:
    streams = []
    for _ in range(AT_ONCE):
        number, stream = client.ask("/trailers", method="POST", end=False)
        client.send(number, b"some")
        client.send_trailers(number, [("x-sum", "a")])
        streams.append(stream)
    await client.until(lambda: all(stream.over for stream in streams))


async def denied(client: H2Client, origin: H2Origin) -> None:
    streams = [client.ask("/denied")[1] for _ in range(AT_ONCE)]
    await client.until(lambda: all(stream.over and stream.status == 403 for stream in streams))


async def malformed(client: H2Client, origin: H2Origin) -> None:
    streams = [client.ask("/", method="CONNECT")[1] for _ in range(AT_ONCE)]
    await client.until(lambda: all(stream.over for stream in streams))


async def given_up(client: H2Client, origin: H2Origin) -> None:
    """Those that the origin answers, and those that wait for their turn there."""
    going_on = [client.ask("/open") for _ in range(AT_ONCE)]
    await client.until(lambda: all(stream.status == 200 for _, stream in going_on))
    waiting = [client.ask("/waits")[0] for _ in range(AT_ONCE)]
    (_, last) = client.ask("/denied")
    await client.until(lambda: last.over)
    for number in (*waiting, *(number for number, _ in going_on)):
        client.reset(number)


async def answered_early(client: H2Client, origin: H2Origin) -> None:
    """The answer ends first: then the request does, or its client gives it up."""
    going_on = [client.ask("/enough", method="POST", end=False) for _ in range(AT_ONCE)]
    for number, _ in going_on:
        client.send(number, b"some")
    await client.until(lambda: all(stream.over for _, stream in going_on))
    for number, _ in going_on:
        if number % 4 == 1:
            client.reset(number)
        else:
            client.send(number, b"more", end=True)


async def refused_early(client: H2Client, origin: H2Origin) -> None:
    """And its origin wants no more of it."""
    going_on = [client.ask("/no-more", method="POST", end=False) for _ in range(AT_ONCE)]
    for number, _ in going_on:
        client.send(number, b"some")
    await client.until(lambda: all(stream.resets for _, stream in going_on))


@pytest.mark.parametrize(
    "ask", [answered, sent, denied, malformed, given_up, answered_early, refused_early]
)
async def test_of_what_is_over_nothing_is_kept(
    counted: FakeSupervisor,
    authority: trustme.CA,
    ca_file: Path,
    ask: Callable[[H2Client, H2Origin], Awaitable[None]],
) -> None:
    counted.reset()
    counted.decide = decide
    async with (
        h2_origin(authority, "origin.test") as origin,
        serving(counted, ask.__name__) as proxy,
    ):
        origin.most_streams = AT_ONCE
        async with h2_client(proxy, f"origin.test:{origin.port}", ca_file) as client:
            for _ in range(ROUNDS):
                await ask(client, origin)
                assert (await client.answered("/")).status == 200
            resets = ROUNDS * AT_ONCE * 2 if "_" in ask.__name__ else 0

            def is_little(facts: dict[str, int]) -> bool:
                return all(
                    count <= MOST_ENTRIES + (resets if name.endswith("._closed_streams") else 0)
                    for name, count in facts.items()
                )

            await until_held(counted, is_little)
            assert origin.connections == 1


class Served:
    """A layer that speaks to an origin, and that origin: what it hears of each request."""

    def __init__(self) -> None:
        client = connection.Client(
            peername=("127.0.0.1", 1), sockname=("127.0.0.1", 2), state=ConnectionState.OPEN
        )
        options = SimpleNamespace(
            validate_inbound_headers=True,
            proxy_debug=False,
            http2_ping_keepalive=0,
            normalize_outbound_headers=False,
        )
        context = Context(client, options)  # type: ignore[arg-type]
        context.server = connection.Server(address=("origin.test", 443))
        context.server.state = ConnectionState.OPEN
        self.layer = BoundedHttp2Client(context)
        self.peer = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        self.peer.initiate_connection()
        self.heard: list[h2.events.Event] = []
        self.say(events.Start())

    def say(self, event: events.Event) -> None:
        for one in self.layer.handle_event(event):
            if isinstance(one, commands.SendData):
                self.heard += self.peer.receive_data(one.data)

    def begin(self, stream_id: int) -> None:
        request = mitm_http.Request.make("POST", "https://origin.test/")
        request.http_version, request.authority = "HTTP/2.0", "origin.test"
        del request.headers["content-length"]
        self.say(RequestHeaders(stream_id, request, end_stream=False))

    def answer(self, number: int) -> None:
        self.peer.send_headers(number, [(":status", "200")], end_stream=True)
        self.hear()

    def hear(self) -> None:
        self.say(events.DataReceived(self.layer.conn, self.peer.data_to_send()))
        self.layer.forget()


def late(stream_id: int) -> list[events.Event]:
    """Whatever may still be said of a request that has begun."""
    given_up = RequestProtocolError(stream_id, "given up", ErrorCode.CANCEL)
    return [
        RequestData(stream_id, b"late"),
        RequestEndOfMessage(stream_id),
        given_up,
        RequestData(stream_id, b"later"),
    ]


async def test_what_is_said_of_one_that_is_forgotten_goes_nowhere() -> None:
    served = Served()
    served.begin(1)
    served.answer(1)
    assert served.layer.our_stream_id == {1: 1}, "its request goes on"
    served.say(RequestEndOfMessage(1))
    served.layer.forget()
    assert not served.layer.our_stream_id
    for event in late(1):
        served.say(event)
    served.begin(3)
    served.heard.clear()
    for event in late(1):
        served.say(event)
    assert served.heard == []
    assert served.layer.our_stream_id == {3: 3}
    served.say(RequestData(3, b"its own"))
    (heard,) = served.heard
    assert isinstance(heard, h2.events.DataReceived)
    assert heard.data == b"its own"


async def test_of_those_that_were_reset_a_number_is_remembered_and_of_others_none() -> None:
    served = Served()
    for number in range(1, 2 * MOST_REMEMBERED_RESETS + 100, 2):
        served.begin(number)
        served.say(RequestProtocolError(number, "given up", ErrorCode.CANCEL))
    resets = number
    # What its origin said before it heard of that.
    frame = b"\0\0\1\1\4" + (resets - 100).to_bytes(4, "big") + b"\x88"
    served.say(events.DataReceived(served.layer.conn, served.peer.data_to_send() + frame))
    assert served.layer.conn.connected
    for number in range(resets + 2, resets + 200, 2):
        served.begin(number)
        served.say(RequestEndOfMessage(number))
        served.answer(number)
    assert not served.layer.h2_conn.open_outbound_streams
    closed = served.layer.h2_conn._closed_streams
    assert len(closed) == MOST_REMEMBERED_RESETS
    assert max(closed) == resets
    assert not served.layer.our_stream_id
