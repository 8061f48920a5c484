"""Connections to origins as those of HTTP/2 come and go beneath their client's, which lasts:
none is missed, and none is kept."""

import asyncio
import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h2.config
import h2.connection
import pytest
import trustme
from hyperframe.frame import GoAwayFrame
from mitmproxy import connection
from mitmproxy import http as mitm_http
from mitmproxy.connection import ConnectionState
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http import GetHttpConnection, HTTPMode
from mitmproxy.proxy.layers.http._base import ReceiveHttp
from mitmproxy.proxy.layers.http._events import RequestHeaders, ResponseProtocolError

from supervisor.core.network.egress_wire import Answer, Question
from supervisor.egress.mitm.http2 import BoundedHttp2Client
from supervisor.egress.mitm.layers import GuardedHttpLayer
from tests.egress.egress_harness import Proxy, allow, deny, nobody_at, server_context
from tests.egress.h2_client import h2_client
from tests.fakes.h2_origin import HELLO, h2_origin

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await reader.read()
    writer.close()


async def test_one_that_could_not_be_reached_is_dialled_anew(
    proxy: Proxy, authority: trustme.CA, ca_file: Path
) -> None:
    with nobody_at() as port:
        async with h2_client(proxy, f"origin.test:{port}", ca_file) as client:
            assert (await client.answered("/")).status == 502
            context = server_context(authority, "origin.test")
            async with await asyncio.start_server(answers, "127.0.0.1", port, ssl=context):
                assert (await client.answered("/")).status == 200


async def test_what_one_took_before_it_goes_away_is_answered_and_the_rest_asked_elsewhere(
    proxy: Proxy, authority: trustme.CA, ca_file: Path
) -> None:
    async with (
        h2_origin(authority, "origin.test") as origin,
        h2_client(proxy, f"origin.test:{origin.port}", ca_file) as client,
    ):
        streams = [client.ask("/leaving")[1] for _ in range(2)]
        await origin.until_it_leaves()
        assert (await client.answered("/")).status == 200
        assert origin.connections == 2
        origin.answer_last()
        await client.until(lambda: all(stream.over for stream in streams))
        assert [(stream.status, stream.body) for stream in streams] == [(200, HELLO)] * 2
        await origin.until_left(1)
        assert (await client.answered("/")).status == 200
        assert origin.connections == 2


async def test_one_that_goes_away_is_left_with_the_last_that_is_given_up_and_nothing_else_ends(
    proxy: Proxy, authority: trustme.CA, ca_file: Path
) -> None:
    async with (
        h2_origin(authority, "origin.test") as origin,
        h2_client(proxy, f"origin.test:{origin.port}", ca_file) as client,
    ):
        numbers = [client.ask("/leaving")[0] for _ in range(2)]
        await origin.until_it_leaves()
        _, beside = client.ask("/open")
        await client.until(lambda: beside.status == 200)
        for number in numbers:
            client.reset(number)
        await origin.until_left(1)
        assert (await client.answered("/")).status == 200
        assert not beside.over
        assert origin.connections == 2


async def test_who_waits_for_its_turn_at_one_that_hangs_up_is_told(
    proxy: Proxy, authority: trustme.CA, ca_file: Path
) -> None:
    asked: list[str | None] = []

    def decide(question: Question) -> Answer:
        asked.append(question.action.path)
        return deny(question) if question.action.path == "/denied" else allow(question)

    proxy.supervisor.decide = decide
    async with (
        h2_origin(authority, "origin.test") as origin,
        h2_client(proxy, f"origin.test:{origin.port}", ca_file) as client,
    ):
        origin.most_streams = 1
        assert (await client.answered("/")).status == 200
        client.ask("/lies", method="POST", end=False)
        await origin.until_one_lies()
        waiting = [client.ask("/waits")[1] for _ in range(2)]
        await proxy.supervisor.until_one(lambda _: asked.count("/waits") == 2)
        assert (await client.answered("/denied")).status == 403, (
            "those that were allowed have come as far as that"
        )
        origin.hang_up()
        await client.until(lambda: all(stream.over for stream in waiting))
        assert [stream.status for stream in waiting] == [502, 502]


def server(state: ConnectionState) -> connection.Server:
    one = connection.Server(address=("origin.test", 443))
    one.state = state
    return one


async def test_connections_that_are_over_are_kept_only_where_a_request_still_has_one() -> None:
    client = connection.Client(
        peername=("127.0.0.1", 1), sockname=("127.0.0.1", 2), state=ConnectionState.OPEN
    )
    context = Context(client, SimpleNamespace(validate_inbound_headers=True, proxy_debug=False))  # type: ignore[arg-type]
    unused: Any = SimpleNamespace(up=None)
    layer = GuardedHttpLayer(context, HTTPMode.transparent, unused, lambda: None)
    over, waiting, had = (server(ConnectionState.CLOSED) for _ in range(3))
    open_one, half = server(ConnectionState.OPEN), server(ConnectionState.CAN_WRITE)
    layer.connections = dict.fromkeys((client, over, waiting, had, open_one, half), unused)
    layer.streams = {1: SimpleNamespace(context=SimpleNamespace(server=had))}  # type: ignore[dict-item]
    wanted = GetHttpConnection(("other.test", 443), tls=False, via=None)
    layer.waiting_for_establishment[waiting].append(wanted)
    asked = list(layer.get_connection(wanted))
    (dialled,) = [one.connection for one in asked if isinstance(one, commands.OpenConnection)]
    assert layer.connections.keys() == {client, waiting, had, open_one, half, dialled}
    assert list(layer._handle_event(events.ConnectionClosed(over))) == [], "it is told of it late"


async def test_one_that_goes_away_is_left_once_it_answered_what_it_took_though_it_did_not_take_all() -> (  # noqa: E501
    None
):
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
    context.server = server(ConnectionState.OPEN)
    layer = BoundedHttp2Client(context)
    peer = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    peer.initiate_connection()

    def said(event: events.Event) -> list[commands.Command]:
        return list(layer.handle_event(event))

    def comes(data: bytes) -> list[commands.Command]:
        return said(events.DataReceived(context.server, data))

    for one in said(events.Start()):
        assert isinstance(one, commands.SendData)
        peer.receive_data(one.data)
    request = mitm_http.Request.make("GET", "https://origin.test/")
    request.http_version, request.authority = "HTTP/2.0", "origin.test"
    for number in (1, 3):
        for one in said(RequestHeaders(number, request, end_stream=True)):
            assert isinstance(one, commands.SendData)
            peer.receive_data(one.data)
    comes(peer.data_to_send())
    (told,) = comes(GoAwayFrame(last_stream_id=1).serialize())
    assert isinstance(told, ReceiveHttp)
    assert isinstance(told.event, ResponseProtocolError)
    assert told.event.stream_id == 3
    peer.send_headers(1, [(":status", "204")], end_stream=True)
    assert any(isinstance(one, commands.CloseConnection) for one in comes(peer.data_to_send()))
