"""Connections to origins as those of HTTP/2 come and go beneath their client's, which lasts: none is missed, and none is kept."""

import asyncio
import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme
from mitmproxy import connection
from mitmproxy.connection import ConnectionState
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http import GetHttpConnection, HTTPMode

from supervisor.egress.layers import GuardedHttpLayer
from tests.egress.egress_harness import Proxy, nobody_at, server_context
from tests.egress.h2_client import h2_client

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


def server(state: ConnectionState) -> connection.Server:
    one = connection.Server(address=("origin.test", 443))
    one.state = state
    return one


async def test_those_that_are_over_are_kept_only_where_a_request_still_has_one() -> None:
    client = connection.Client(peername=("127.0.0.1", 1), sockname=("127.0.0.1", 2), state=ConnectionState.OPEN)
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
