"""An origin that gives the agent back what it was sent, in every form that is known and by every
way that an answer has: the agent sees none of it.

The credential is one that a service could give out; the origin is one that repeats whatever it
is told, as pages for debugging do.
"""

import asyncio
import base64
import contextlib
import gzip
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
import trustme
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from supervisor.core.network.egress_wire import Credential, EgressRefused, Settled
from supervisor.core.secrets.secret_forms import SecretForms
from supervisor.core.secrets.token_shapes import MARK
from supervisor.egress.admission.secrets import ECHOED, FOUND_IN_BODY
from tests.core.secret_writings import WRITINGS
from tests.egress.egress_harness import Origin, Proxy, body_of, status_of
from tests.egress.h2_client import h2_client
from tests.egress.mitm.test_leaks import all_of, answering, unchunked
from tests.fakes.h2_origin import h2_origin
from tests.fakes.waiting import PATIENCE_S

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLACEHOLDER = "gatehouse-placeholder-it-0123456789"
SECRET = 'sk-ant-api03-Zm9v+YmFy/"100%"&x_0123456789'
FORMS = SecretForms([SECRET])
BEGINS = SecretForms([SECRET[:16]])


def credential(port: int) -> Credential:
    return Credential(
        placeholder=PLACEHOLDER,
        secret=SECRET,
        header="authorization",
        hosts=(f"origin.test:{port}",),
        scheme="http",
    )


async def heard(
    proxy: Proxy, http: Origin, said: bytes, more: str = f"Authorization: Bearer {PLACEHOLDER}\r\n"
) -> bytes:
    """All that the agent has of an answer."""
    http.respond = lambda head: said
    target = f"origin.test:{http.port}"
    reader, writer = await proxy.open()
    writer.write(
        f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n{more}Connection: close\r\n\r\n".encode()  # noqa: E501
    )
    found = await all_of(reader)
    writer.close()
    return found


def in_pieces(body: bytes, size: int, *headers: str) -> bytes:
    pieces = (body[at : at + size] for at in range(0, len(body), size))
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return (
        "\r\n".join(("HTTP/1.1 200 OK", "Transfer-Encoding: chunked", *headers, "", "")).encode()
        + chunks
        + b"0\r\n\r\n"
    )


def tiny_blocks(body: bytes) -> bytes:
    """gzip of which each byte has a block of its own."""
    import zlib

    packer = zlib.compressobj(0, zlib.DEFLATED, 31)
    return (
        b"".join(
            packer.compress(body[at : at + 1]) + packer.flush(zlib.Z_FULL_FLUSH)
            for at in range(len(body))
        )
        + packer.flush()
    )


WAYS: dict[str, Callable[[bytes], bytes]] = {
    "a body": answering,
    "small chunks": lambda said: in_pieces(said, 3),
    "events": lambda said: in_pieces(b"event: x\ndata: " + said.replace(b"\n", b"") + b"\n\n", 11,
    "Content-Type: text/event-stream"),
    "gzip in tiny blocks": lambda said: in_pieces(tiny_blocks(said), 5, "Content-Encoding: gzip"),
    "gzip for the way": lambda said: in_pieces(gzip.compress(said), 5).replace(b"chunked",
    b"gzip, chunked"),
    "gzip for the way, to the end of the connection": lambda said: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nConnection: close\r\n\r\n" + gzip.compress(said),  # noqa: E501
    "an error page": lambda said: answering(b"<h1>500</h1>" + said).replace(b"200 OK", b"500 Oops"),
    "a header": lambda said: answering(b"", "X-Said: " + said.decode().replace("\n", "")),
    "where to go": lambda said: answering(b"", "Location: /?t=" + said.decode().replace("\n",
    "")).replace(b"200 OK", b"302 Found"),
    "a cookie": lambda said: answering(b"", "Set-Cookie: a=" + said.decode().replace("\n",
    "") + "; Path=/"),
    "the reason": lambda said: answering(b"").replace(b"OK", said.replace(b"\n", b"")),
    "no header at all": lambda said: b"HTTP/1.1 200 OK\r\n" + said.replace(b"\n",
    b"") + b"\r\n\r\n",
    "no status": lambda said: said.replace(b"\n", b"") + b"\r\n\r\n",
    "an early answer": lambda said: b"HTTP/1.1 103 Early Hints\r\nLink: " + said.replace(b"\n",
    b"") + b"\r\n\r\n" + answering(b"x"),
    "a length that is none": lambda said: b"HTTP/1.1 200 OK\r\nContent-Length: " + said.replace(b"\n", b"") + b"\r\n\r\n",  # noqa: E501
    "a chunk's length": lambda said: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + said.replace(b"\n", b"") + b"\r\n",  # noqa: E501
    "a chunk's extension": lambda said: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;a=" + said.replace(b"\n", b"") + b"\r\nx\r\n0\r\n\r\n",  # noqa: E501
    "a trailer": lambda said: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-T: " + said.replace(b"\n", b"") + b"\r\n\r\n",  # noqa: E501
}  # fmt: skip


def shows(said: bytes) -> bool:
    """Whether the agent could read it, or a good part of it, in what it heard."""
    body = unchunked(said) if b"chunked" in said else said.partition(b"\r\n\r\n")[2]
    with contextlib.suppress(EOFError, OSError):
        body += gzip.decompress(body)
    return any(forms.is_in(part) for forms in (FORMS, BEGINS) for part in (said, body))


@pytest.mark.parametrize("way", WAYS)
async def test_a_secret_is_given_back_in_no_form_by_no_way(
    proxy: Proxy, http: Origin, way: str
) -> None:
    proxy.credentials(credential(http.port))
    for writing, write in WRITINGS.items():
        found = await heard(proxy, http, WAYS[way](write(SECRET).encode()))
        assert not shows(found), (writing, found)
    assert SECRET.encode() in http.received


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-be", "utf-32"])
async def test_a_secret_is_not_given_back_in_wide_characters(
    proxy: Proxy, http: Origin, coding: str
) -> None:
    proxy.credentials(credential(http.port))
    for size in (1, 5, 4096):
        found = unchunked(
            await heard(proxy, http, in_pieces(f'{{"k": "{SECRET}"}}'.encode(coding), size))
        )
        assert not shows(found)
    await proxy.supervisor.until_one(
        lambda one: isinstance(one, EgressRefused) and one.why == ECHOED
    )


@pytest.mark.many
async def test_a_secret_is_not_given_back_in_what_an_origin_says_as_it_goes_away(
    proxy: Proxy, authority: trustme.CA, ca_file: Path
) -> None:
    """The debug data of GOAWAY (RFC 9113 6.8), of which an error would quote the first 20 bytes."""
    short = Credential(
        placeholder=PLACEHOLDER, secret="k-0123456789", header="authorization", hosts=()
    )
    async with h2_origin(authority, "origin.test") as h2:
        proxy.credentials(msgspec.structs.replace(short, hosts=(f"origin.test:{h2.port}",)))
        async with h2_client(proxy, f"origin.test:{h2.port}", ca_file) as client:
            _, stream = client.ask("/gone", more=[("authorization", PLACEHOLDER)])
            await client.until(lambda: stream.over)
    await proxy.supervisor.until_one(
        lambda one: isinstance(one, Settled) and "gave no" in str(one.detail)
    )
    assert stream.status == 502
    assert b"gave no response" in stream.body
    for said in (stream.body, str(proxy.supervisor.messages).encode()):
        assert not SecretForms([short.secret]).is_in(said)


async def test_what_is_shown_of_an_answer_has_no_secret_of_another_host_in_it(
    proxy: Proxy, http: Origin
) -> None:
    proxy.credentials(credential(1))
    assert b"X-Said" in await heard(proxy, http, answering(b"", f"X-Said: {SECRET}"), more="")
    shown = dict((await proxy.supervisor.settled()).headers)
    assert (shown["X-Said"], shown["Content-Length"]) == (MARK, "0")


# -- WebSockets: everything that a frame can carry ------------------------------------------------


@pytest_asyncio.fixture(loop_scope="module")
async def talker(says: list[tuple[str, str]], heard_frames: list[bytes]) -> AsyncIterator[int]:
    """Says what it is told to, and notes what pings carry."""

    async def talk(connection: ServerConnection) -> None:
        for how, what in says:
            if how == "ping":
                await connection.ping(what.encode())
            elif how == "pong":
                await connection.pong(what.encode())
            elif how == "close":
                await connection.close(1000, what)
            elif how == "fragments":
                await connection.send([what[at : at + 5] for at in range(0, len(what), 5)])
            else:
                await connection.send(what)
        async for message in connection:
            heard_frames.append(message if isinstance(message, bytes) else message.encode())  # noqa: PERF401  # as they come

    async with serve(talk, "127.0.0.1", 0) as server:
        yield next(iter(server.sockets)).getsockname()[1]


@pytest.fixture
def says() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def heard_frames() -> list[bytes]:
    return []


@pytest.mark.parametrize("how", ["message", "fragments", "ping", "pong", "close"])
@pytest.mark.parametrize(
    "writing", ["as it is", "base64", "JSON", "hexadecimal", "percent-encoded"]
)
async def test_a_secret_is_not_given_back_in_any_frame_of_a_websocket(
    proxy: Proxy, talker: int, says: list[tuple[str, str]], how: str, writing: str
) -> None:
    says.append((how, WRITINGS[writing](SECRET)))
    proxy.credentials(credential(talker))
    headers = {"Authorization": f"Bearer {PLACEHOLDER}"}
    got: list[bytes] = []
    async with connect(
        f"ws://origin.test:{talker}/", proxy=proxy.url, additional_headers=headers
    ) as socket:
        with contextlib.suppress(ConnectionClosed):
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    got.append(str(await socket.recv()).encode())
    got.append((socket.close_reason or "").encode())
    assert not FORMS.is_in(b" ".join(got))
    await proxy.supervisor.until_one(
        lambda one: isinstance(one, EgressRefused) and one.why == ECHOED
    )


@pytest.mark.parametrize("how", ["ping", "pong", "close", "long"])
async def test_a_placeholder_goes_out_in_no_frame(
    proxy: Proxy, talker: int, heard_frames: list[bytes], how: str
) -> None:
    proxy.credentials(credential(1))
    async with connect(f"ws://other.test:{talker}/", proxy=proxy.url, compression=None) as socket:
        with contextlib.suppress(ConnectionClosed):
            if how in ("ping", "pong"):
                await (socket.ping if how == "ping" else socket.pong)(PLACEHOLDER.encode())
                await socket.wait_closed()
            elif how == "close":
                await socket.close(1000, base64.b64encode(PLACEHOLDER.encode()).decode())
            else:
                await socket.send("x" * 1_000_000 + PLACEHOLDER)
                await socket.wait_closed()
    await proxy.supervisor.until_one(
        lambda one: isinstance(one, EgressRefused) and one.why == FOUND_IN_BODY
    )
    assert not heard_frames


async def test_a_server_of_git_lfs_that_repeats_the_key_is_refused_with_what_to_do(
    proxy: Proxy, http: Origin
) -> None:
    """As GitLab does: a client that is given no other key fetches the files with that one."""
    proxy.credentials(msgspec.structs.replace(credential(http.port), basic=True))
    basic = "Basic " + base64.b64encode(f"oauth2:{SECRET}".encode()).decode()
    header = {"header": {"Authorization": basic}}
    http.respond = lambda head: answering(
        msgspec.json.encode({"objects": [{"actions": {"download": header}}]})
    )
    target = f"origin.test:{http.port}"
    sent = base64.b64encode(f"oauth2:{PLACEHOLDER}".encode()).decode()
    answer = await proxy.send(
        f"POST http://{target}/g/p.git/info/lfs/objects/batch HTTP/1.1\r\nHost:"
        f" {target}\r\nAuthorization: Basic {sent}\r\nContent-Length: 0\r\n\r\n".encode()
    )
    assert basic.encode() in http.received
    assert status_of(answer) == 403
    assert body_of(answer)["why"] == ECHOED
    assert "GIT_LFS_SKIP_SMUDGE=1" in body_of(answer)["remedy"]
    assert (await proxy.supervisor.settled()).detail["error"] == ECHOED
