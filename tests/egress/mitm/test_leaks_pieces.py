"""Answers in pieces: in several ranges, and in pieces that each end in what a credential begins
with. The agent sees no credential, and egress keeps no answer."""

import base64
import re
from collections.abc import Callable

import msgspec
import pytest

from supervisor.core.network.egress_wire import Credential, EgressRefused
from supervisor.egress.admission.secrets import BEGUN, ECHOED, IN_RANGES
from supervisor.egress.mitm.leaks import MOST_KEPT_BACK_BYTES
from tests.egress.egress_harness import Origin, Proxy, status_of
from tests.egress.mitm.test_leaks import all_of, answering, unchunked
from tests.egress.mitm.test_leaks_given_back import in_pieces

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLACEHOLDER = "gatehouse-placeholder-it-0123456789"
SECRET = "sk-ant-api03-Zm9vYmFy_0123456789"
HALF = len(SECRET) // 2


# Wherever a text of its first letter is cut, it ends in what this begins with; of so short a one no
# half is searched for.
STUTTERING = "a" * 16 + "-01"


def credential(port: int, secret: str = SECRET) -> Credential:
    return Credential(
        placeholder=PLACEHOLDER,
        secret=secret,
        header="authorization",
        hosts=(f"origin.test:{port}",),
        scheme="http",
    )


def asking(port: int, *headers: str, host: str = "origin.test") -> bytes:
    lines = (
        f"GET http://{host}:{port}/ HTTP/1.1",
        f"Host: {host}:{port}",
        "Connection: close",
        *headers,
        "",
        "",
    )
    return "\r\n".join(lines).encode()


async def heard(proxy: Proxy, said: bytes) -> bytes:
    reader, writer = await proxy.open()
    try:
        writer.write(said)
        return await all_of(reader)
    finally:
        writer.close()


async def told(proxy: Proxy, why: str) -> None:
    await proxy.supervisor.until_one(lambda one: isinstance(one, EgressRefused) and one.why == why)


def in_ranges(kind: str = "multipart/byteranges; boundary=x") -> bytes:
    """What a server makes of `bytes=0-15,16-31` of a page that says the credential (RFC 9110
    14.6)."""
    part = b"--x\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-15/32\r\n\r\n"
    body = (
        part + SECRET[:HALF].encode() + b"\r\n" + part + SECRET[HALF:].encode() + b"\r\n--x--\r\n"
    )
    return answering(body, f"Content-Type: {kind}").replace(b"200 OK", b"206 Partial Content")


@pytest.mark.parametrize(
    "ranges",
    [
        ["Range: bytes=0-15"],
        ["Range: bytes=0-15,16-31"],
        ["range:bytes=0-15", "RANGE: bytes=16-31"],
        ["Range: bytes=0-15", "If-Range: x"],
        ["Request-Range: bytes=0-15,16-31"],
        ["Range: bytes=0-31", "request-range:bytes=0-15,16-31"],
    ],
)
async def test_all_is_asked_of_a_host_with_a_credential_where_its_client_asks_for_a_part(
    proxy: Proxy, http: Origin, ranges: list[str]
) -> None:
    proxy.credentials(credential(http.port))
    # Also where no credential goes out with this request: it may have with another.
    for headers in (ranges, [f"Authorization: Bearer {PLACEHOLDER}", *ranges]):
        assert status_of(await proxy.send(asking(http.port, *headers))) == 200
    assert SECRET.encode() in http.received
    assert b"range" not in http.received.lower()


async def test_a_part_is_asked_of_other_hosts(proxy: Proxy, http: Origin) -> None:
    proxy.credentials(credential(http.port))
    assert (
        status_of(await proxy.send(asking(http.port, "Range: bytes=0-1,5-9", host="other.test")))
        == 200
    )
    assert b"Range: bytes=0-1,5-9" in http.received


def page_in_parts(head: bytes) -> bytes:
    """A page that says what it was sent, of a server that makes any part of any page."""
    body = b"you sent " + b"".join(re.findall(rb"(?im)^authorization: (.*?)\r", head))
    asked = re.search(rb"(?im)^range: bytes=(\d+)-(\d*)\r", head)
    if asked is None:
        return answering(body)
    part = body[int(asked[1]) : int(asked[2] or len(body))]
    return answering(part).replace(b"200 OK", b"206 Partial Content")


@pytest.mark.parametrize("asked", ["17-", "17-27", "27-", "0-"])
async def test_no_part_of_a_page_has_part_of_the_credential(
    proxy: Proxy, http: Origin, asked: str
) -> None:
    """From its second letter on nothing in it begins as the credential does."""
    proxy.credentials(credential(http.port))
    http.respond = page_in_parts
    found = await heard(
        proxy, asking(http.port, f"Authorization: Bearer {PLACEHOLDER}", f"Range: bytes={asked}")
    )
    assert SECRET.encode() in http.received
    assert not any(SECRET[at : at + 6].encode() in found for at in range(len(SECRET) - 6))
    await told(proxy, ECHOED)


TOKEN = "IQoJb3JpZ2luX2VjEHwaCXVzLWVhc3QtMSJHMEUCIQ"
SIGNED = (
    f"AWS4-HMAC-SHA256 Credential={PLACEHOLDER}/20260101/eu-west-1/%s/aws4_request, "
    f"SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, Signature={'0' * 64}"
)


@pytest.mark.parametrize(("service", "status"), [("s3", 200), ("execute-api", 403)])
async def test_a_part_of_an_object_of_s3_may_be_asked_for(
    proxy: Proxy, http: Origin, service: str, status: int
) -> None:
    """AWS's programs load long ones in parts, and sign which; nothing that was sent is in an
    object."""
    keys = credential(http.port, f"AKIDEXAMPLE:secret-key-0123456789:{TOKEN}")
    proxy.credentials(msgspec.structs.replace(keys, signs=True))
    headers = (
        "Range: bytes=0-15",
        "X-Amz-Date: 20260101T000000Z",
        "X-Amz-Content-SHA256: UNSIGNED-PAYLOAD",
    )
    said = await proxy.send(asking(http.port, f"Authorization: {SIGNED % service}", *headers))
    assert status_of(said) == status
    if status == 200:
        assert b"Range: bytes=0-15" in http.received
        assert TOKEN.encode() in http.received
    else:
        assert http.untouched


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
    http.respond = lambda head: in_pieces(b"a" * 2 * MOST_KEPT_BACK_BYTES, size)
    found = await heard(proxy, asking(http.port, f"Authorization: Bearer {PLACEHOLDER}"))
    assert b"aaaa" not in found
    await told(proxy, BEGUN)
    http.respond = lambda head: in_pieces(b"a" * (MOST_KEPT_BACK_BYTES // 8), size)
    found = await heard(proxy, asking(http.port, f"Authorization: Bearer {PLACEHOLDER}"))
    assert unchunked(found) == b"a" * (MOST_KEPT_BACK_BYTES // 8)


async def test_some_pieces_may_end_so_by_chance(proxy: Proxy, http: Origin) -> None:
    proxy.credentials(credential(http.port))
    body = (b"." * 10_234 + SECRET[:6].encode()) * 20 + b"the end"
    half = (b"." * 10_234 + SECRET[:6].encode()) * 20 + b"." * 10_240
    http.respond = lambda head: in_pieces(half + half + body, 10_240)
    found = await heard(proxy, asking(http.port, f"Authorization: Bearer {PLACEHOLDER}"))
    assert unchunked(found) == half + half + body


HALVES = {
    "cut at a fixed length": lambda text: f"bad header: {text[: HALF + 3]}...",
    "without its beginning": lambda text: f"...{text[5:]} is no key",
    "without its end, in base64": lambda text: base64.b64encode(
        f"Bearer {text[:-4]}".encode()
    ).decode(),
    "without its beginning, as numbers": lambda text: str(list(text[9:].encode())),
}


@pytest.mark.parametrize("cut", HALVES.values(), ids=HALVES)
async def test_half_of_the_credential_is_as_bad_as_all_of_it(
    proxy: Proxy, http: Origin, cut: Callable[[str], str]
) -> None:
    proxy.credentials(credential(http.port))
    http.respond = lambda head: answering(cut(SECRET).encode()).replace(
        b"200 OK", b"400 Bad Request"
    )
    found = await heard(proxy, asking(http.port, f"Authorization: Bearer {PLACEHOLDER}"))
    assert SECRET.encode() in http.received
    assert cut(SECRET).encode() not in found
    await told(proxy, ECHOED)
