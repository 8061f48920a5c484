"""HTTP/2 of a client to an origin that speaks HTTP/1: each request goes out with a head that
says where its body ends, so that no body is read as a request."""

import asyncio
import contextlib
import ssl
from pathlib import Path

import h11
import pytest
import trustme

from supervisor.core.network.egress_wire import Credential, EgressRefused
from tests.egress.egress_harness import Origin, Proxy
from tests.egress.h2_client import H2Client, Stream, h2_client
from tests.fakes.h2_origin import h2_origin
from tests.fakes.waiting import PATIENCE_S

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLACEHOLDER = "gatehouse-placeholder-it-0123456789"
SIGNED = (
    f"AWS4-HMAC-SHA256 Credential={PLACEHOLDER}/20260101/eu-west-1/s3/aws4_request,"
    f" SignedHeaders=host;x-amz-date, Signature={'0' * 64}"
)
# A body that is signed is held until it is whole.
WAYS: dict[str, list[tuple[str, str]]] = {
    "streamed": [],
    "held": [("authorization", SIGNED), ("x-amz-date", "20260101T000000Z")],
}
# More than mitmproxy keeps to send it in one piece.
LONG_BYTES = 65_537
PIECE_BYTES = 16_000


def at(origin: Origin) -> str:
    return f"origin.test:{origin.port}"


def smuggled(origin: Origin) -> bytes:
    return (
        f"DELETE /forbidden HTTP/1.1\r\nHost: {at(origin)}\r\nX-Key: of-the-agent\r\n\r\n".encode()
    )


def signs(proxy: Proxy, origin: Origin) -> None:
    proxy.credentials(
        Credential(
            placeholder=PLACEHOLDER,
            secret="AKREAL:the-real-secret",
            header="authorization",
            hosts=(at(origin),),
            signs=True,
        )
    )


def requests(received: bytes) -> list[tuple[str, dict[str, str], bytes]]:
    """What an HTTP/1 server takes it for: of each request its line's beginning, its headers and
    its body."""
    found: list[tuple[str, dict[str, str], bytes]] = []
    server = h11.Connection(h11.SERVER)
    server.receive_data(received)
    while True:
        event = server.next_event()
        if isinstance(event, h11.Request):
            headers = {name.decode(): value.decode() for name, value in event.headers}
            found.append((f"{event.method.decode()} {event.target.decode()}", headers, b""))
        elif isinstance(event, h11.Data):
            line, headers, body = found.pop()
            found.append((line, headers, body + event.data))
        elif event is h11.PAUSED:
            for said in (
                h11.Response(status_code=200, headers=[("Content-Length", "0")]),
                h11.EndOfMessage(),
            ):
                server.send(said)  # type: ignore[arg-type]
            server.start_next_cycle()
        elif event is h11.NEED_DATA:
            assert server.our_state in (h11.IDLE, h11.SEND_RESPONSE)
            return found


async def whole(client: H2Client, stream: Stream) -> int:
    await client.until(lambda: stream.over)
    return stream.status


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_body_of_unknown_length_is_no_second_request(
    proxy: Proxy, https: Origin, ca_file: Path, method: str, way: str
) -> None:
    signs(proxy, https)
    body = smuggled(https)
    async with h2_client(proxy, at(https), ca_file) as client:
        number, stream = client.ask("/allowed", method=method, end=False, more=WAYS[way])
        client.send(number, body, end=True)
        assert await whole(client, stream) == 200
    ((line, headers, sent),) = requests(bytes(https.received))
    assert (line, sent) == (f"{method} /allowed", body)
    framing = {
        name: headers[name] for name in ("content-length", "transfer-encoding") if name in headers
    }
    assert framing == (
        {"content-length": str(len(body))} if way == "held" else {"transfer-encoding": "chunked"}
    )
    behind = bytes(https.received).partition(b"\r\n\r\n")[2]
    assert behind == (body if way == "held" else b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
    assert [
        question.action.path for question in proxy.supervisor.questions if question.action.path
    ] == ["/allowed"]


@pytest.mark.parametrize("way", WAYS)
async def test_an_empty_piece_ends_no_body(
    proxy: Proxy, https: Origin, ca_file: Path, way: str
) -> None:
    """It would be a chunk of no length."""
    signs(proxy, https)
    async with h2_client(proxy, at(https), ca_file) as client:
        number, stream = client.ask("/allowed", method="POST", end=False, more=WAYS[way])
        for piece in (b"", b"one", b"", smuggled(https)):
            client.send(number, piece)
        client.send(number, b"", end=True)
        assert await whole(client, stream) == 200
    ((line, _, sent),) = requests(bytes(https.received))
    assert (line, sent) == ("POST /allowed", b"one" + smuggled(https))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("body", [b"", b"body"], ids=["no body", "a body"])
@pytest.mark.parametrize("says_length", [False, True], ids=["unknown length", "known length"])
async def test_trailers_are_dropped(
    proxy: Proxy, https: Origin, ca_file: Path, way: str, body: bytes, says_length: bool
) -> None:
    """There are origins that would take them for headers, which nobody judged."""
    signs(proxy, https)
    length = [("content-length", str(len(body)))] if says_length else []
    async with h2_client(proxy, at(https), ca_file) as client:
        number, stream = client.ask(
            "/allowed", method="POST", end=False, more=[*WAYS[way], *length]
        )
        if body:
            client.send(number, body)
        client.send_trailers(number, [("x-checksum", "12")])
        assert await whole(client, stream) == 200
    ((_, headers, sent),) = requests(bytes(https.received))
    assert sent == body
    assert b"x-checksum" not in https.received
    assert not ("content-length" in headers and "transfer-encoding" in headers)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("ends_at_once", [True, False])
async def test_no_body_is_none(
    proxy: Proxy, https: Origin, ca_file: Path, method: str, way: str, ends_at_once: bool
) -> None:
    signs(proxy, https)
    async with h2_client(proxy, at(https), ca_file) as client:
        number, stream = client.ask("/allowed", method=method, end=ends_at_once, more=WAYS[way])
        if not ends_at_once:
            client.send(number, b"", end=True)
        assert await whole(client, stream) == 200
    ((line, headers, sent),) = requests(bytes(https.received))
    assert (line, sent) == (f"{method} /allowed", b"")
    assert "content-length" not in headers
    assert ("transfer-encoding" in headers) == (way == "streamed" and not ends_at_once)


async def more_than_told(client: H2Client, number: int, length: int, extra: bytes) -> None:
    """Send a body of this length but for its last byte, which comes together with what is too
    much."""
    for begin in range(0, length - 1, PIECE_BYTES):
        await client.until(lambda: client.room(number) >= PIECE_BYTES)
        client.send(number, bytes(min(PIECE_BYTES, length - 1 - begin)))
    client.send(number, b"x" + extra)
    await client.until(lambda: client.lost)


@pytest.mark.parametrize("way", WAYS)
async def test_more_than_the_length_that_was_told_is_no_request(
    proxy: Proxy, https: Origin, ca_file: Path, way: str
) -> None:
    signs(proxy, https)
    for length in (4, LONG_BYTES) if way == "held" else (4,):
        async with h2_client(proxy, at(https), ca_file) as client:
            more = [*WAYS[way], ("content-length", str(length))]
            number, _ = client.ask("/allowed", method="POST", end=False, more=more)
            await more_than_told(client, number, length, smuggled(https))
    assert https.untouched


@pytest.mark.parametrize("ends", ["with its head", "with trailers"])
@pytest.mark.parametrize("version", ["http/1.1", "h2"])
async def test_less_than_the_length_is_no_request_that_the_next_one_completes(
    proxy: Proxy, https: Origin, authority: trustme.CA, ca_file: Path, ends: str, version: str
) -> None:
    async with h2_origin(authority, "origin.test") as of_http2:
        port = of_http2.port if version == "h2" else https.port
        async with h2_client(proxy, f"origin.test:{port}", ca_file) as client:
            begun = ends == "with trailers"
            number, _ = client.ask(
                "/allowed", method="POST", end=not begun, more=[("content-length", "50")]
            )
            if begun:
                client.send_trailers(number, [("x-checksum", "12")])
            await client.until(lambda: client.lost)
        await proxy.supervisor.until_one(
            lambda one: isinstance(one, EgressRefused) and "can't be read" in one.why
        )
        assert https.untouched
        assert of_http2.untouched


async def test_less_than_the_length_does_not_go_out_once_the_rest_is_on_its_way(
    proxy: Proxy, origin_tls: ssl.SSLContext, ca_file: Path
) -> None:
    received, begun, ended = bytearray(), asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while data := await reader.read(65536):
                received.extend(data)
                begun.set()
        ended.set()
        writer.close()

    async with (
        await asyncio.start_server(serve, "127.0.0.1", 0, ssl=origin_tls) as server,
        asyncio.timeout(PATIENCE_S),
    ):
        origin = Origin(server.sockets[0].getsockname()[1])
        async with h2_client(proxy, at(origin), ca_file) as client:
            more = [("content-length", str(LONG_BYTES))]
            number, _ = client.ask("/allowed", method="POST", end=False, more=more)
            await begun.wait()
            await more_than_told(client, number, LONG_BYTES, smuggled(origin))
        await ended.wait()
    assert len(received.partition(b"\r\n\r\n")[2]) < LONG_BYTES
    assert b"DELETE" not in received


async def test_what_was_said_is_on_record_and_not_how_it_went_out(
    proxy: Proxy, https: Origin, ca_file: Path
) -> None:
    async with h2_client(proxy, at(https), ca_file) as client:
        number, stream = client.ask("/allowed", method="POST", end=False, more=[("x-said", "1")])
        client.send(number, b"body", end=True)
        assert await whole(client, stream) == 200
    settled = await proxy.supervisor.settled()
    assert settled.outcome == "done"
    (asked,) = [one for one in proxy.supervisor.questions if one.action.path == "/allowed"]
    assert "transfer-encoding" not in repr(asked.headers).lower()
