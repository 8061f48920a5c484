"""Behind the head: no placeholder reaches a host that none is for, however it is sent, and no
real credential comes back to the agent."""

import asyncio
import base64
import contextlib
import gzip
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import brotli
import pytest
import pytest_asyncio
import trustme
import zstandard
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from supervisor.core.network.egress_wire import Credential, EgressRefused, Settled
from supervisor.egress.admission.secrets import ECHOED, FOUND_IN_BODY, UNREADABLE
from tests.egress.egress_harness import Origin, Proxy, answer_of, body_of, status_of
from tests.egress.h2_client import h2_client
from tests.fakes.h2_origin import H2Origin, h2_origin
from tests.fakes.waiting import PATIENCE_S

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLACEHOLDER = "gatehouse-placeholder-it-0123456789"
SECRET = 'the/real "secret" of this+test'
# One less than half of it.
HALF = len(SECRET) // 2 - 1
MUCH = bytes(200_000)


def credential(
    port: int, secret: str = SECRET, *, scheme: str = "http", basic: bool = False
) -> Credential:
    return Credential(
        placeholder=PLACEHOLDER,
        secret=secret,
        header="authorization",
        hosts=(f"origin.test:{port}",),
        scheme="https" if scheme == "https" else "http",
        basic=basic,
    )


async def all_of(reader: asyncio.StreamReader) -> bytes:
    """Everything until the end, or until it is cut off."""
    found = b""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(PATIENCE_S):
            while piece := await reader.read(65536):
                found += piece
    return found


async def told(proxy: Proxy, why: str) -> None:
    await proxy.supervisor.until_one(lambda one: isinstance(one, EgressRefused) and one.why == why)


# -- up -------------------------------------------------------------------------------------------


def chunked(body: bytes, size: int = 7000) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def unchunked(said: bytes) -> bytes:
    """What is in the chunks of a message, so far as they are whole."""
    _, _, rest = said.partition(b"\r\n\r\n")
    found = b""
    while b"\r\n" in rest:
        length, _, rest = rest.partition(b"\r\n")
        found, rest = found + rest[: int(length, 16)], rest[int(length, 16) + 2 :]
    return found


def framed(body: bytes, *headers: str, by_chunks: bool = False) -> tuple[str, bytes]:
    length = "Transfer-Encoding: chunked" if by_chunks else f"Content-Length: {len(body)}"
    return "\r\n".join((*headers, length, "", "")), chunked(body) if by_chunks else body


NOISE = b"".join(number.to_bytes(4) for number in range(40_000))
FOUND = NOISE + PLACEHOLDER.encode() + NOISE
BODIES = {
    "gzip, short": framed(gzip.compress(b"key=" + PLACEHOLDER.encode()), "Content-Encoding: gzip"),
    "deflate, short": framed(
        zlib.compress(b"key=" + PLACEHOLDER.encode()), "Content-Encoding: Deflate "
    ),
    "gzip, long": framed(gzip.compress(FOUND, 1), "Content-Encoding: x-gzip"),
    "gzip, chunked": framed(gzip.compress(FOUND, 1), "Content-Encoding: gzip", by_chunks=True),
    "in small chunks": ("Transfer-Encoding: chunked\r\n\r\n", chunked(PLACEHOLDER.encode(), 7)),
    "in the second of two members": framed(
        gzip.compress(NOISE) + gzip.compress(PLACEHOLDER.encode()), "Content-Encoding: gzip"
    ),
    "deflate without its header": framed(
        zlib.compress(PLACEHOLDER.encode(), wbits=-15), "Content-Encoding: deflate"
    ),
    "not coded as it says": framed(PLACEHOLDER.encode(), "Content-Encoding: br"),
    "br": framed(brotli.compress(FOUND, quality=1), "Content-Encoding: br"),
    "br, short": framed(brotli.compress(b"key=" + PLACEHOLDER.encode()), "Content-Encoding: BR"),
    "zstd, chunked": framed(zstandard.compress(FOUND), "Content-Encoding: zstd", by_chunks=True),
    "gzip in gzip": framed(
        gzip.compress(gzip.compress(PLACEHOLDER.encode())), "Content-Encoding: gzip, gzip"
    ),
    "behind more than was ever looked at": framed(
        gzip.compress(NOISE * 500 + PLACEHOLDER.encode(), 1), "Content-Encoding: gzip"
    ),
    "at the end of much": framed(bytes(9_000_000) + PLACEHOLDER.encode()),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_no_coding_and_no_length_hides_a_placeholder(
    proxy: Proxy, http: Origin, body: tuple[str, bytes]
) -> None:
    proxy.credentials(credential(1))
    http.respond = lambda head: b""
    headers, data = body
    target = f"other.test:{http.port}"
    reader, writer = await proxy.open()
    writer.write(f"POST http://{target}/ HTTP/1.1\r\nHost: {target}\r\n{headers}".encode() + data)
    answer = await answer_of(reader)
    assert status_of(answer) != 200
    await told(proxy, FOUND_IN_BODY)
    assert PLACEHOLDER.encode() not in http.received
    assert PLACEHOLDER.encode() not in unchunked(http.received)
    if len(data) < 1000 and "chunked" not in headers:
        assert http.untouched
    writer.close()


@pytest.mark.parametrize("coding", ["", "gzip"])
async def test_a_coding_for_the_way_alone_hides_no_placeholder(
    proxy: Proxy, http: Origin, coding: str
) -> None:
    """Behind another request: of the first on a connection it is refused with its head."""
    proxy.credentials(credential(1))
    target = f"other.test:{http.port}"
    reader, writer = await proxy.open()
    writer.write(f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    assert status_of(await answer_of(reader)) == 200
    body = gzip.compress(gzip.compress(PLACEHOLDER.encode()) if coding else PLACEHOLDER.encode())
    said = f"Content-Encoding: {coding}\r\nTransfer-Encoding: gzip , Chunked\r\n\r\n"
    writer.write(
        f"POST http://{target}/ HTTP/1.1\r\nHost: {target}\r\n{said}".encode() + chunked(body)
    )
    await told(proxy, FOUND_IN_BODY)
    assert gzip.compress(PLACEHOLDER.encode())[10:-8] not in http.received
    writer.close()


@pytest_asyncio.fixture(loop_scope="module")
async def h2(authority: trustme.CA) -> AsyncIterator[H2Origin]:
    async with h2_origin(authority, "origin.test", "other.test") as found:
        yield found


@pytest.mark.parametrize("length", [(), (("content-length", "4"),)], ids=["streams", "short"])
async def test_trailers_carry_no_placeholder(
    proxy: Proxy, h2: H2Origin, ca_file: Path, length: tuple[tuple[str, str], ...]
) -> None:
    proxy.credentials(credential(1))
    async with h2_client(proxy, f"other.test:{h2.port}", ca_file) as client:
        number, stream = client.ask("/trailers", method="POST", end=False, more=length)
        client.send(number, b"body")
        client.send_trailers(number, [("x-checksum", PLACEHOLDER)])
        await told(proxy, FOUND_IN_BODY)
        if length:
            await client.until(lambda: stream.over)
            assert stream.status == 403
    assert not h2.trailers


# -- back -----------------------------------------------------------------------------------------


def answering(body: bytes, *headers: str) -> bytes:
    lines = "\r\n".join(("HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *headers, "", ""))
    return lines.encode() + body


BASIC = base64.b64encode(f"me:{SECRET}".encode()).decode()
ECHOES = {
    "a header": (answering(b"", f"X-Got: Bearer {SECRET}"), 403),
    "a redirect": (b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: /?k=" + quote(SECRET,
    safe="").encode() + b"\r\n\r\n", 403),
    "a short body": (answering(SECRET.encode()), 403),
    "in capitals": (answering(SECRET.upper().encode()), 403),
    "in capitals, in base64": (answering(base64.b64encode(SECRET.upper().encode())), 403),
    "as JSON": (answering(b'{"k":"the/real \\"secret\\" of this+test"}'), 403),
    "a long body": (answering(MUCH + SECRET.encode() + MUCH), 0),
    "compressed": (answering(gzip.compress(NOISE + SECRET.encode()), "Content-Encoding: gzip"), 0),
    "in the reason": (f"HTTP/1.1 200 {SECRET}\r\nContent-Length: 0\r\n\r\n".encode(), 403),
    "in a second member": (answering(gzip.compress(NOISE) + gzip.compress(SECRET.encode()),
    "Content-Encoding: gzip"), 0),
    "not coded as it says": (answering(SECRET.encode(), "Content-Encoding: gzip"), 403),
    "coded otherwise than it says": (answering(b"br?" + NOISE, "Content-Encoding: gzip"), 0),
    "coded by nobody knows what": (answering(b"?" + SECRET.encode(), "Content-Encoding: lz4"), 403),
}  # fmt: skip


@pytest.mark.parametrize("case", ECHOES.values(), ids=ECHOES)
async def test_an_origin_that_gives_the_credential_back_is_not_heard(
    proxy: Proxy, http: Origin, case: tuple[bytes, int]
) -> None:
    said, status = case
    proxy.credentials(credential(http.port, basic=True))
    http.respond = lambda head: said
    target = f"origin.test:{http.port}"
    reader, writer = await proxy.open()
    writer.write(
        f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\nAccept-Encoding: br, gzip;q=0.5\r\n"
        f"Authorization: Bearer {PLACEHOLDER}\r\n\r\n".encode()
    )
    answer = await answer_of(reader) if status else await all_of(reader)
    assert SECRET.encode() in http.received
    assert b"accept-encoding: identity\r\n" in http.received.lower()
    assert status_of(answer) == status or not status
    for form in (SECRET, SECRET.upper(), quote(SECRET, safe=""), SECRET.replace('"', '\\"')):
        assert form.encode() not in answer
    await told(proxy, UNREADABLE if b"br?" in said or b"lz4" in said else ECHOED)
    settled = await proxy.supervisor.settled()
    assert settled.detail["error"] in (ECHOED, UNREADABLE)
    if status:
        assert "credential" in body_of(answer)["why"]
    writer.close()


async def test_the_password_of_basic_credentials_is_not_given_back_either(
    proxy: Proxy, http: Origin
) -> None:
    proxy.credentials(credential(http.port, basic=True))
    sent = base64.b64encode(f"me:{PLACEHOLDER}".encode()).decode()
    target = f"origin.test:{http.port}"
    for said in (BASIC, SECRET):
        http.respond = lambda head, said=said: answering(said.encode())
        request = (
            f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\nAuthorization: Basic"
            f" {sent}\r\n\r\n"
        )
        try:
            answer = await proxy.send(request.encode())
        except asyncio.IncompleteReadError as error:
            answer = error.partial
        assert BASIC.encode() in http.received
        assert said.encode() not in answer


@pytest.mark.parametrize("size", [1, 7, len(SECRET) - 1])
async def test_the_agent_has_no_part_of_a_credential_that_comes_in_pieces(
    proxy: Proxy, http: Origin, size: int
) -> None:
    """An agent that chooses what an echo begins with chooses where the pieces end, too."""
    proxy.credentials(credential(http.port))
    pieces = [
        b"before " * 3,
        *(SECRET.encode()[at : at + size] for at in range(0, len(SECRET), size)),
        b" after",
    ]
    body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    http.respond = lambda head: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body
    target = f"origin.test:{http.port}"
    reader, writer = await proxy.open()
    writer.write(
        f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\nAuthorization: Bearer"
        f" {PLACEHOLDER}\r\n\r\n".encode()
    )
    heard = unchunked(await all_of(reader))
    assert SECRET[:4].encode() not in heard
    await told(proxy, ECHOED)
    writer.close()


async def test_what_is_cut_off_does_not_seem_whole(proxy: Proxy, http: Origin) -> None:
    """Of an answer without a length the end of its connection is the end."""
    proxy.credentials(credential(http.port))
    http.respond = lambda head: (
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + NOISE * 100 + SECRET.encode() + NOISE
    )
    target = f"origin.test:{http.port}"
    reader, writer = await proxy.open()
    writer.write(
        f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\nAuthorization: Bearer"
        f" {PLACEHOLDER}\r\n\r\n".encode()
    )
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(ConnectionError):
            await reader.read()
    await told(proxy, ECHOED)
    writer.close()


async def test_what_only_begins_like_a_credential_comes_whole(proxy: Proxy, http: Origin) -> None:
    proxy.credentials(credential(http.port))
    pieces = [b"a", SECRET[:5].encode(), SECRET[5:9].encode(), b" or not", SECRET[:HALF].encode()]
    body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    http.respond = lambda head: (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + body
    )
    target = f"origin.test:{http.port}"
    reader, writer = await proxy.open()
    writer.write(
        f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\nAuthorization: Bearer"
        f" {PLACEHOLDER}\r\nConnection: close\r\n\r\n".encode()
    )
    answer = await all_of(reader)
    assert unchunked(answer) == b"".join(pieces)
    assert answer.endswith(b"0\r\n\r\n")
    writer.close()


async def test_what_gives_nothing_back_passes_whole(proxy: Proxy, http: Origin) -> None:
    proxy.credentials(credential(http.port))
    target = f"origin.test:{http.port}"
    request = (
        f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\nAuthorization: Bearer"
        f" {PLACEHOLDER}\r\nConnection: close\r\n\r\n"
    )
    zipped = gzip.compress(NOISE)
    for said in (
        answering(NOISE),
        answering(zipped, "Content-Encoding: gzip"),
        answering(zipped + bytes(20) + zipped + b"\n", "Content-Encoding: gzip"),
        answering(zlib.compress(NOISE, wbits=-15), "Content-Encoding: deflate"),
        answering(NOISE[500:]).replace(b"200 OK", b"206 Partial Content"),
        answering(zipped[:500], "Content-Encoding: gzip").replace(
            b"200 OK", b"206 Partial Content"
        ),
        answering(brotli.compress(NOISE, quality=1), "Content-Encoding: br"),
        answering(zstandard.compress(gzip.compress(NOISE)), "Content-Encoding: gzip, zstd"),
        answering(b"", "Content-Encoding: gzip"),
        answering(b""),
    ):
        http.respond = lambda head, said=said: said
        reader, writer = await proxy.open()
        writer.write(request.encode())
        answer = await all_of(reader)
        writer.close()
        body = (
            unchunked(answer)
            if b"chunked" in answer.partition(b"\r\n\r\n")[0]
            else answer.partition(b"\r\n\r\n")[2]
        )
        assert body == said.partition(b"\r\n\r\n")[2]
    assert not [
        one for one in proxy.supervisor.of_type(EgressRefused) if one.session_id == proxy.session_id
    ]
    # A host that never gets the credential may say what it likes.
    http.respond = lambda head: answering(SECRET.encode())
    target = f"other.test:{http.port}"
    answer = await proxy.send(f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    assert SECRET.encode() in answer


async def test_a_part_of_a_coded_answer_is_not_heard_and_not_asked_for(
    proxy: Proxy, http: Origin
) -> None:
    """Without gzip's header what follows is deflate's: it would be read by the agent, and not
    here."""
    proxy.credentials(credential(http.port))
    zipped = gzip.compress(SECRET.encode())[10:]
    said = answering(zipped, "Content-Encoding: gzip").replace(b"200 OK", b"206 Partial Content")
    http.respond = lambda head: said
    target = f"origin.test:{http.port}"
    reader, writer = await proxy.open()
    writer.write(
        f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\nAccept-Encoding: gzip\r\nRange:"
        f" bytes=10-\r\nAuthorization: Bearer {PLACEHOLDER}\r\n\r\n".encode()
    )
    assert zipped[:8] not in await all_of(reader)
    assert b"accept-encoding: identity\r\n" in http.received.lower()
    await told(proxy, UNREADABLE)
    writer.close()


async def test_what_it_was_sent_with_another_request_is_not_given_back_either(
    proxy: Proxy, http: Origin
) -> None:
    proxy.credentials(credential(http.port))
    http.respond = lambda head: answering(b"", f"X-Last: {SECRET}")
    target = f"origin.test:{http.port}"
    answer = await proxy.send(
        f"GET http://{target}/last HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()
    )
    assert status_of(answer) == 403
    await told(proxy, ECHOED)


async def test_trailers_give_no_credential_back(proxy: Proxy, h2: H2Origin, ca_file: Path) -> None:
    """The origin sends the trailers of a request back."""
    proxy.credentials(credential(h2.port, scheme="https"))
    async with h2_client(proxy, f"origin.test:{h2.port}", ca_file) as client:
        number, stream = client.ask(
            "/trailers",
            method="POST",
            end=False,
            more=[("te", "trailers"), ("authorization", f"Bearer {PLACEHOLDER}")],
        )
        client.send(number, b"body")
        client.send_trailers(number, [("x-checksum", SECRET)])  # stands for an origin that knows it
        await told(proxy, ECHOED)
    assert SECRET not in str(stream.trailers)


# -- WebSockets -----------------------------------------------------------------------------------


@pytest_asyncio.fixture(loop_scope="module")
async def echo(heard: list[str | bytes]) -> AsyncIterator[int]:
    async def talk(connection: ServerConnection) -> None:
        await connection.send("hello")
        async for message in connection:
            heard.append(message)
            await connection.send(
                "you said: " + SECRET if message == "what did I say?" else message
            )

    async with serve(talk, "127.0.0.1", 0) as server:
        yield next(iter(server.sockets)).getsockname()[1]


async def all_messages(socket: ClientConnection) -> list[str | bytes]:
    """Everything until the end, or until it is cut off."""
    found = []
    with contextlib.suppress(ConnectionClosed):
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found.append(await socket.recv())
    return found


@pytest.fixture
def heard() -> list[str | bytes]:
    return []


@pytest.mark.parametrize(
    "said", [PLACEHOLDER, b"\0\1" + PLACEHOLDER.encode(), (PLACEHOLDER[:9], PLACEHOLDER[9:])]
)
async def test_messages_carry_no_placeholder(
    proxy: Proxy, echo: int, heard: list[str | bytes], said: str | bytes | tuple[str, str]
) -> None:
    proxy.credentials(credential(1))
    async with connect(f"ws://other.test:{echo}/", proxy=proxy.url) as socket:
        assert await socket.recv() == "hello"
        await socket.send("before")
        assert await socket.recv() == "before"
        with contextlib.suppress(ConnectionClosed):
            await socket.send(said)
        await all_messages(socket)
    await told(proxy, FOUND_IN_BODY)
    assert heard[0] == "before"
    assert not any(
        PLACEHOLDER.encode() in (one if isinstance(one, bytes) else one.encode())
        for one in heard[1:]
    )
    settled = await proxy.supervisor.settled()
    assert settled.detail["error"] == FOUND_IN_BODY


async def test_messages_give_no_credential_back(
    proxy: Proxy, echo: int, heard: list[str | bytes]
) -> None:
    proxy.credentials(credential(echo))
    headers = {"Authorization": f"Bearer {PLACEHOLDER}"}
    async with connect(
        f"ws://origin.test:{echo}/", proxy=proxy.url, additional_headers=headers
    ) as socket:
        await socket.send("what did I say?")
        assert await all_messages(socket) == ["hello"]
    await told(proxy, ECHOED)
    await proxy.supervisor.until(Settled)
