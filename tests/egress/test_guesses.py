"""An agent that has an origin repeat guesses of what a credential begins with, and looks which of them egress holds back: it learns little, and is found out."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest
import pytest_asyncio

from supervisor.core.egress_wire import Credential, Refused
from supervisor.egress.secrets import ECHOED, GUESSED
from supervisor.egress.sessions import MOST_BEGINNINGS
from tests.egress.egress_harness import Origin, Proxy, status_of
from tests.egress.test_given_back import in_pieces
from tests.egress.test_leaks import all_of, unchunked
from tests.egress.test_pieces import asking

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLACEHOLDER = "gatehouse-placeholder-it-0123456789"
SECRET = "sk-ant-api03-Zm9vYmFyQmF6UXV4_0123456789"
# What everybody knows of it.
KNOWN = len("sk-ant-api03-")
ENDLESS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n.\r\n"


def credential(port: int) -> Credential:
    return Credential(
        placeholder=PLACEHOLDER, secret=SECRET, header="authorization", hosts=(f"origin.test:{port}",), scheme="http"
    )


async def heard(proxy: Proxy, port: int, *headers: str) -> bytes:
    reader, writer = await proxy.open()
    writer.write(asking(port, *headers))
    found = await all_of(reader)
    writer.close()
    return found


async def told(proxy: Proxy) -> None:
    await proxy.supervisor.until_one(lambda one: isinstance(one, Refused) and one.why == GUESSED)


async def test_who_guesses_a_credential_letter_by_letter_learns_a_few(proxy: Proxy, http: Origin) -> None:
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


async def test_nor_in_one_answer(proxy: Proxy, http: Origin) -> None:
    proxy.credentials(credential(http.port))
    guesses = [SECRET[:length].encode() + b" no, " for length in range(KNOWN + 1, len(SECRET))]
    said = b"".join(b"%x\r\n%s\r\n5\r\n no, \r\n" % (len(one) - 5, one[:-5]) for one in guesses) + b"0\r\n\r\n"
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


async def test_nor_does_one_who_hangs_up_once_it_knows(proxy: Proxy, pausing: Pausing) -> None:
    proxy.credentials(credential(pausing.port))
    for length in range(KNOWN + 1, len(SECRET)):
        guess = SECRET[:length].encode()
        pausing.says = lambda guess=guess: b"%x\r\n%s\r\n" % (len(guess), guess)  # type: ignore[misc]
        reader, writer = await proxy.open()
        writer.write(asking(pausing.port))
        answer = await reader.readuntil(b"\r\n\r\n")
        if status_of(answer) == 200:
            answer += await reader.readuntil(b".")
            assert guess not in answer
        writer.close()
        if status_of(answer) != 200:
            break
    else:
        pytest.fail("it could go on")
    await told(proxy)


@pytest.mark.parametrize("size", [1, 2, 3])
async def test_what_comes_letter_by_letter_is_no_guess(proxy: Proxy, http: Origin, size: int) -> None:
    """A text that has in it what every such credential begins with, and an origin that gives back all of one."""
    proxy.credentials(credential(http.port))
    text = f"write it as {SECRET[:KNOWN]}... in your settings".encode()
    http.respond = lambda head: in_pieces(text, size)
    for _ in range(MOST_BEGINNINGS + 1):
        assert unchunked(await heard(proxy, http.port)) == text
    http.respond = lambda head: in_pieces(SECRET.encode(), size)
    for _ in range(MOST_BEGINNINGS + 1):
        assert unchunked(await heard(proxy, http.port)) != SECRET.encode()
    await proxy.supervisor.until_one(lambda one: isinstance(one, Refused) and one.why == ECHOED)
    http.respond = None
    assert status_of(await heard(proxy, http.port)) == 200
