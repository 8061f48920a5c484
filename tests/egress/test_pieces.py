"""Answers in pieces: in several ranges, and in pieces that each end in what a credential begins with. The agent sees no credential, and egress keeps no answer."""

import pytest

from supervisor.core.egress_wire import Credential, Refused
from supervisor.egress.leaks import MOST_WAITING_BYTES
from supervisor.egress.secrets import BEGUN, IN_RANGES
from tests.egress.egress_harness import Origin, Proxy, answer_of, body_of, status_of
from tests.egress.test_given_back import in_pieces
from tests.egress.test_leaks import all_of, answering, unchunked

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLACEHOLDER = "gatehouse-placeholder-it-0123456789"
SECRET = "sk-ant-api03-Zm9vYmFy_0123456789"
HALF = len(SECRET) // 2


# Wherever a text of its first letter is cut, it ends in what this begins with.
STUTTERING = "a" * 16 + "-0123456789"


def credential(port: int, secret: str = SECRET) -> Credential:
    return Credential(
        placeholder=PLACEHOLDER, secret=secret, header="authorization", hosts=(f"origin.test:{port}",), scheme="http"
    )


def asking(port: int, *headers: str, host: str = "origin.test") -> bytes:
    lines = (f"GET http://{host}:{port}/ HTTP/1.1", f"Host: {host}:{port}", "Connection: close", *headers, "", "")
    return "\r\n".join(lines).encode()


async def heard(proxy: Proxy, said: bytes) -> bytes:
    reader, writer = await proxy.open()
    try:
        writer.write(said)
        return await all_of(reader)
    finally:
        writer.close()


async def told(proxy: Proxy, why: str) -> None:
    await proxy.supervisor.until_one(lambda one: isinstance(one, Refused) and one.why == why)


def in_ranges(kind: str = "multipart/byteranges; boundary=x") -> bytes:
    """What a server makes of `bytes=0-15,16-31` of a page that says the credential (RFC 9110 14.6)."""
    part = b"--x\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-15/32\r\n\r\n"
    body = part + SECRET[:HALF].encode() + b"\r\n" + part + SECRET[HALF:].encode() + b"\r\n--x--\r\n"
    return answering(body, f"Content-Type: {kind}").replace(b"200 OK", b"206 Partial Content")


@pytest.mark.parametrize(
    "ranges",
    [
        ["Range: bytes=0-15,16-31"],
        ["Range: bytes=0-15, -16"],
        ["range:bytes=0-15", "RANGE: bytes=16-31"],
        ["Range: bytes=0-15,16-31", "If-Range: x"],
        ["Range: bytes=0-15,,16-31"],
        ["Request-Range: bytes=0-15,16-31"],
        ["Range: bytes=0-31", "request-range:bytes=0-15,16-31"],
    ],
)
async def test_several_ranges_are_asked_of_no_host_with_a_credential(
    proxy: Proxy, http: Origin, ranges: list[str]
) -> None:
    proxy.credentials(credential(http.port))
    http.respond = lambda head: in_ranges()
    answer = await proxy.send(asking(http.port, f"Authorization: Bearer {PLACEHOLDER}", *ranges))
    assert status_of(answer) == 403
    assert body_of(answer)["why"] == IN_RANGES
    assert http.untouched
    await told(proxy, IN_RANGES)
    # Neither where no credential goes out with this request: it may have with another.
    assert body_of(await proxy.send(asking(http.port, *ranges)))["why"] == IN_RANGES
    assert http.untouched
    assert (await proxy.supervisor.settled()).outcome == "failed"


async def test_one_range_is_and_several_are_of_other_hosts(proxy: Proxy, http: Origin) -> None:
    proxy.credentials(credential(http.port))
    for headers, host in ((["Range: bytes=0-15"], "origin.test"), (["Range: bytes=0-1,5-9"], "other.test")):
        assert status_of(await proxy.send(asking(http.port, *headers, host=host))) == 200
    assert b"Range: bytes=0-15" in http.received
    assert b"Range: bytes=0-1,5-9" in http.received


@pytest.mark.parametrize(
    "kind",
    [
        "multipart/byteranges; boundary=x",
        " Multipart/ByteRanges;boundary=x",
        # Apache's, to whoever asks with `Request-Range` or calls itself `MSIE 3`.
        "multipart/x-byteranges; boundary=x",
    ],
)
@pytest.mark.parametrize("asked", ["Range: bytes=0-15", "X-Range: bytes=0-15,16-31", "Accept: */*"])
async def test_an_answer_in_several_ranges_is_not_passed_on_whoever_asked_for_it(
    proxy: Proxy, http: Origin, kind: str, asked: str
) -> None:
    proxy.credentials(credential(http.port))
    http.respond = lambda head: in_ranges(kind)
    answer = await heard(proxy, asking(http.port, f"Authorization: Bearer {PLACEHOLDER}", asked))
    assert SECRET.encode() in http.received
    assert SECRET[:HALF].encode() not in answer
    assert SECRET[HALF:].encode() not in answer
    await told(proxy, IN_RANGES)


@pytest.mark.parametrize("size", [512, 4096])
async def test_an_origin_whose_every_piece_begins_a_credential_fills_nothing(
    proxy: Proxy, http: Origin, size: int
) -> None:
    proxy.credentials(credential(http.port, STUTTERING))
    http.respond = lambda head: in_pieces(b"a" * 2 * MOST_WAITING_BYTES, size)
    found = await heard(proxy, asking(http.port, f"Authorization: Bearer {PLACEHOLDER}"))
    assert b"aaaa" not in found
    await told(proxy, BEGUN)
    http.respond = lambda head: in_pieces(b"a" * (MOST_WAITING_BYTES // 8), size)
    found = await heard(proxy, asking(http.port, f"Authorization: Bearer {PLACEHOLDER}"))
    assert unchunked(found) == b"a" * (MOST_WAITING_BYTES // 8)


async def test_some_pieces_may_end_so_by_chance(proxy: Proxy, http: Origin) -> None:
    proxy.credentials(credential(http.port))
    body = (b"." * 10_234 + SECRET[:6].encode()) * 20 + b"the end"
    half = (b"." * 10_234 + SECRET[:6].encode()) * 20 + b"." * 10_240
    http.respond = lambda head: in_pieces(half + half + body, 10_240)
    found = await heard(proxy, asking(http.port, f"Authorization: Bearer {PLACEHOLDER}"))
    assert unchunked(found) == half + half + body


async def test_the_requests_behind_it_are_answered(proxy: Proxy, http: Origin) -> None:
    """A refusal is its own connection's last."""
    proxy.credentials(credential(http.port))
    reader, writer = await proxy.open()
    writer.write(asking(http.port, "Range: bytes=0-1,5-9"))
    assert status_of(await answer_of(reader)) == 403
    writer.close()
    assert status_of(await proxy.send(asking(http.port))) == 200
