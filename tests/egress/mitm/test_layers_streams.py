"""What doesn't end soon: server-sent events arrive as they come, WebSockets pass, half-closed
and slow clients don't hang."""

import asyncio
import base64
import contextlib
import hashlib
import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.egress.egress_harness import Origin, Proxy, answer_of, deny, status_of
from tests.fakes.waiting import PATIENCE_S

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def events() -> AsyncIterator[tuple[int, asyncio.Event]]:
    """An origin that sends the second event only when the test saw the first."""
    seen = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding:"
            b" chunked\r\n\r\n"
        )
        writer.write(b"b\r\ndata: one\n\n\r\n")
        await seen.wait()
        writer.write(b"b\r\ndata: two\n\n\r\n0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1], seen
    server.close()


async def test_events_arrive_as_they_are_sent(
    proxy: Proxy, events: tuple[int, asyncio.Event]
) -> None:
    port, seen = events
    reader, writer = await proxy.open()
    writer.write(
        f"GET http://origin.test:{port}/ HTTP/1.1\r\nHost: origin.test:{port}\r\n\r\n".encode()
    )
    async with asyncio.timeout(PATIENCE_S):
        await reader.readuntil(b"data: one")
        seen.set()
        await reader.readuntil(b"data: two")
    writer.close()


@pytest_asyncio.fixture(loop_scope="module")
async def echo() -> AsyncIterator[int]:
    """A WebSocket origin that sends each frame back, unmasked."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        key = next(
            line.split(": ")[1]
            for line in head.split("\r\n")
            if line.lower().startswith("sec-websocket-key")
        )
        accept = base64.b64encode(
            hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()
        ).decode()
        writer.write(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection:"
            f" Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n".encode()
        )
        try:
            while True:
                first, length = await reader.readexactly(2)
                mask = await reader.readexactly(4)
                data = await reader.readexactly(length & 0x7F)
                plain = bytes(byte ^ mask[index % 4] for index, byte in enumerate(data))
                writer.write(bytes([first, len(plain)]) + plain)
        except asyncio.IncompleteReadError:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


def upgrade(port: int) -> bytes:
    key = base64.b64encode(os.urandom(16)).decode()
    return (
        f"GET http://origin.test:{port}/ws HTTP/1.1\r\nHost: origin.test:{port}\r\nConnection:"
        " Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key:"
        f" {key}\r\n\r\n"
    ).encode()


async def test_a_websocket_is_judged_as_a_request_and_passes(proxy: Proxy, echo: int) -> None:
    reader, writer = await proxy.open()
    writer.write(upgrade(echo))
    assert status_of(await answer_of(reader)) == 101
    async with asyncio.timeout(PATIENCE_S):
        for text in (b"one", b"two"):
            writer.write(bytes([0x81, 0x80 | len(text)]) + bytes(4) + text)
            assert await reader.readexactly(2 + len(text)) == bytes([0x81, len(text)]) + text
    writer.close()
    assert proxy.supervisor.questions[0].action.path == "/ws"


async def test_a_denied_websocket_is_a_403(proxy: Proxy, echo: int) -> None:
    proxy.supervisor.decide = deny
    assert status_of(await proxy.send(upgrade(echo))) == 403


async def test_a_switch_of_protocols_that_nobody_asked_for_is_cut_off(
    proxy: Proxy, http: Origin
) -> None:
    http.respond = lambda head: (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: raw\r\nConnection: Upgrade\r\n\r\n"
    )
    reader, writer = await proxy.open()
    writer.write(
        f"GET http://origin.test:{http.port}/ HTTP/1.1\r\nHost: origin.test:{http.port}\r\n\r\n".encode()  # noqa: E501
    )
    await answer_of(reader)
    http.received.clear()
    writer.write(b"raw bytes after the switch\r\n\r\n")
    async with asyncio.timeout(PATIENCE_S):
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()
    assert b"raw bytes" not in http.received


async def test_an_alternative_service_is_not_advertised(proxy: Proxy, http: Origin) -> None:
    http.respond = lambda head: (
        b'HTTP/1.1 200 OK\r\nAlt-Svc: h3=":443"\r\nContent-Length: 0\r\n\r\n'
    )
    answer = await proxy.send(
        f"GET http://origin.test:{http.port}/ HTTP/1.1\r\nHost: origin.test:{http.port}\r\n\r\n".encode()  # noqa: E501
    )
    assert b"alt-svc" not in answer.lower()


async def test_a_flood_of_data_behind_a_refusal_is_cut_off(proxy: Proxy, http: Origin) -> None:
    proxy.supervisor.decide = deny
    reader, writer = await proxy.open()
    head = (
        f"POST http://origin.test:{http.port}/ HTTP/1.1\r\nHost:"
        f" origin.test:{http.port}\r\nContent-Length: 1000000000\r\n\r\n"
    )
    writer.write(head.encode())
    assert status_of(await answer_of(reader)) == 403
    sent = 0
    async with asyncio.timeout(PATIENCE_S):
        try:
            while sent < 200_000_000:
                writer.write(b"x" * 65536)
                await writer.drain()
                sent += 65536
        except ConnectionError:
            pass
    writer.close()
    assert sent < 200_000_000
    assert http.untouched
