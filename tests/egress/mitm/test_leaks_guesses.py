"""An agent that has an origin repeat guesses of what a credential begins with, and looks which
of them egress holds back: it learns little, and is found out."""

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest
import pytest_asyncio

from supervisor.core.network.egress_wire import Credential, EgressRefused
from supervisor.egress.admission.egress_sessions import MOST_BEGINNINGS, MOST_ECHOES
from supervisor.egress.admission.secrets import ECHOED, ECHOED_OFTEN, GUESSED
from tests.egress.egress_harness import Origin, Proxy, status_of
from tests.egress.mitm.test_leaks import all_of, answering, unchunked
from tests.egress.mitm.test_leaks_given_back import in_pieces
from tests.egress.mitm.test_leaks_pieces import asking

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLACEHOLDER = "gatehouse-placeholder-it-0123456789"
SECRET = "sk-ant-api03-Zm9vYmFyQmF6UXV4_0123456789"
# What everybody knows of it.
KNOWN = len("sk-ant-api03-")
ENDLESS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n.\r\n"


def credential(port: int) -> Credential:
    return Credential(
        placeholder=PLACEHOLDER,
        secret=SECRET,
        header="authorization",
        hosts=(f"origin.test:{port}",),
        scheme="http",
    )


async def heard(proxy: Proxy, port: int, *headers: str) -> bytes:
    reader, writer = await proxy.open()
    writer.write(asking(port, *headers))
    found = await all_of(reader)
    writer.close()
    return found


async def told(proxy: Proxy, why: str = GUESSED) -> None:
    await proxy.supervisor.until_one(lambda one: isinstance(one, EgressRefused) and one.why == why)


async def test_who_guesses_a_credential_letter_by_letter_learns_a_few(
    proxy: Proxy, http: Origin
) -> None:
    proxy.credentials(credential(http.port))
    learnt = 0
    for length in range(KNOWN + 1, len(SECRET)):
        guess = SECRET[:length]
        http.respond = lambda head, guess=guess: in_pieces(f"{guess} no".encode(), len(guess))  # type: ignore[misc]
        if unchunked(await heard(proxy, http.port)) != f"{guess} no".encode():
            break
        learnt += 1
    assert learnt == MOST_BEGINNINGS
    await told(proxy)
    http.reset()
    assert GUESSED.encode() in await heard(proxy, http.port, f"Authorization: Bearer {PLACEHOLDER}")
    assert http.untouched


async def test_who_guesses_a_credential_in_one_answer_learns_a_few(
    proxy: Proxy, http: Origin
) -> None:
    proxy.credentials(credential(http.port))
    guesses = [SECRET[:length].encode() + b" no, " for length in range(KNOWN + 1, len(SECRET))]
    said = (
        b"".join(b"%x\r\n%s\r\n5\r\n no, \r\n" % (len(one) - 5, one[:-5]) for one in guesses)
        + b"0\r\n\r\n"
    )
    http.respond = lambda head: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + said
    assert guesses[MOST_BEGINNINGS + 1] not in unchunked(await heard(proxy, http.port))
    await told(proxy)


@dataclass
class Pausing:
    """An origin that says something and then nothing."""

    port: int
    says: Callable[[], bytes]


@pytest_asyncio.fixture(loop_scope="module")
async def pausing() -> AsyncIterator[Pausing]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(ENDLESS + made.says())
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    made = Pausing(server.sockets[0].getsockname()[1], lambda: b"")
    yield made
    server.close()


async def test_who_hangs_up_once_it_knows_learns_no_more_of_a_credential(
    proxy: Proxy, pausing: Pausing
) -> None:
    proxy.credentials(credential(pausing.port))
    begun = 0
    for length in range(KNOWN + 1, len(SECRET)):
        guess = SECRET[:length].encode()
        pausing.says = lambda guess=guess: b"%x\r\n%s\r\n" % (len(guess), guess)  # type: ignore[misc]
        reader, writer = await proxy.open()
        writer.write(asking(pausing.port))
        answer = await reader.readuntil(b"\r\n\r\n")
        if status_of(answer) != 200:
            writer.close()
            break
        answer += await reader.readuntil(b".")
        writer.close()
        assert guess not in answer
        begun += 1
    assert 0 < begun < len(SECRET) - KNOWN - 1, "it could go on"
    await told(proxy)


@pytest.mark.parametrize("size", [1, 2, 3])
async def test_what_comes_letter_by_letter_is_no_guess(
    proxy: Proxy, http: Origin, size: int
) -> None:
    """A text that has in it what every such credential begins with, and an origin that gives
    back all of one."""
    proxy.credentials(credential(http.port))
    text = f"write it as {SECRET[:KNOWN]}... in your settings".encode()
    http.respond = lambda head: in_pieces(text, size)
    for _ in range(MOST_BEGINNINGS + 1):
        assert unchunked(await heard(proxy, http.port)) == text
    http.respond = lambda head: in_pieces(SECRET.encode(), size)
    for _ in range(MOST_BEGINNINGS + 1):
        assert unchunked(await heard(proxy, http.port)) != SECRET.encode()
    await proxy.supervisor.until_one(
        lambda one: isinstance(one, EgressRefused) and one.why == ECHOED
    )
    http.respond = None
    assert status_of(await heard(proxy, http.port)) == 200


PAGE = b"you asked for it, so here it is: " * 40
# Once, since it has the time in it.
COMPRESSED = gzip.compress(PAGE)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_how_long_a_compressed_answer_is_isnt_told_before_it_was_looked_at(
    proxy: Proxy, http: Origin, method: str, version: str
) -> None:
    """The better a guess, the shorter what is compressed together with the credential
    (CVE-2013-3587)."""
    proxy.credentials(credential(http.port))
    said = answering(COMPRESSED, "Content-Encoding: gzip")
    http.respond = lambda head: (
        said if method == "GET" else said.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    )
    asked = asking(http.port, f"Authorization: Bearer {PLACEHOLDER}", "Accept-Encoding: gzip")
    reader, writer = await proxy.open()
    writer.write(
        asked.replace(b"GET", method.encode(), 1).replace(b"HTTP/1.1", f"HTTP/{version}".encode())
    )
    found = await all_of(reader)
    writer.close()
    assert b"accept-encoding: identity\r\n" in http.received.lower()
    assert status_of(found) == 200
    assert b"content-length" not in found.lower()
    body = unchunked(found) if version == "1.1" else found.partition(b"\r\n\r\n")[2]
    assert body == (COMPRESSED if method == "GET" else b"")


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
async def test_what_has_no_body_gets_none(proxy: Proxy, http: Origin, status: bytes) -> None:
    """And the next request on the connection is answered."""
    proxy.credentials(credential(http.port))
    said = answering(b"", "Content-Encoding: gzip").replace(b"200 OK", status)
    http.respond = lambda head: said.replace(
        b"Content-Length: 0", b"Content-Length: 99" if b"304" in status else b"X: 0"
    )
    reader, writer = await proxy.open()
    for _ in range(2):
        writer.write(asking(http.port).replace(b"Connection: close\r\n", b""))
        found = await reader.readuntil(b"\r\n\r\n")
        assert status in found
        assert b"content-length" not in found.lower()
        assert b"chunked" not in found.lower()
    writer.close()


async def test_what_isnt_compressed_says_its_length(proxy: Proxy, http: Origin) -> None:
    proxy.credentials(credential(http.port))
    http.respond = lambda head: answering(PAGE)
    found = await heard(proxy, http.port, f"Authorization: Bearer {PLACEHOLDER}")
    assert f"Content-Length: {len(PAGE)}\r\n".encode() in found


@pytest.mark.parametrize("where", ["body", "header"])
async def test_who_is_given_a_credential_back_again_and_again_is_told_no_more(
    proxy: Proxy, http: Origin, where: str
) -> None:
    """What passed of each before it was cut off may tell something, too."""
    proxy.credentials(credential(http.port))
    echo = answering(SECRET.encode()) if where == "body" else answering(b"", f"X-Echo: {SECRET}")
    http.respond = lambda head: echo
    for _ in range(MOST_ECHOES):
        assert ECHOED_OFTEN.encode() not in await heard(
            proxy, http.port, f"Authorization: Bearer {PLACEHOLDER}"
        )
    await told(proxy, ECHOED)
    http.reset()
    assert ECHOED_OFTEN.encode() in await heard(
        proxy, http.port, f"Authorization: Bearer {PLACEHOLDER}"
    )
    assert http.untouched
    await told(proxy, ECHOED_OFTEN)
    # Hosts that get none are none of it.
    other = asking(http.port, host="other.test")
    assert status_of(await proxy.send(other)) == 200
