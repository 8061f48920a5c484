"""Named secrets end to end: swapped in at their own hosts only, denied and on record elsewhere,
and nowhere to be found afterwards."""

import asyncio
import base64
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
import trustme

from supervisor.core.network.credentials import credentials_of, parse_credentials
from supervisor.core.secrets.secret_forms import SecretForms
from supervisor.egress.protocols.sigv4 import Keys, Signed, resign
from tests.egress.egress_harness import Origin, running_origin
from tests.fakes.processes import bytes_if_shown
from tests.fakes.waiting import PATIENCE_S
from tests.network.conftest import Setting, really_started, setting

SECRET = "s3cret-value-0123456789"
PLACEHOLDER = "gatehouse-placeholder-it-0123456789abcdef"


@pytest_asyncio.fixture
async def origin() -> AsyncIterator[Origin]:
    async with running_origin(None) as found:
        yield found


@pytest_asyncio.fixture
async def desk(
    tmp_path: Path, authority: trustme.CA, origin: Origin, command: tuple[str, ...] | None
) -> AsyncIterator[Setting]:
    text = (
        f"version: 1\ncredentials: {{it: {{hosts: 'origin.test:{origin.port}', header:"
        " authorization, methods: [GET, POST], paths: [/me/**]}}\n"
    )
    (binding,) = parse_credentials(text, "credentials.yaml")
    (credential,) = credentials_of(binding, PLACEHOLDER, SECRET)
    async with setting(tmp_path, authority, command=command) as place:
        place.office.policy(
            f"allow:\n  - network(127.0.0.1:{origin.port})\n  -"
            f" network(origin.test:{origin.port})\n  - network(other.test:{origin.port})\n"
        )
        plain = type(credential)(
            **{
                **{f: getattr(credential, f) for f in credential.__struct_fields__},
                "scheme": "http",
            }
        )
        await place.broker.open_session(place.session_id, place.listener, [plain])
        yield place


async def send(place: Setting, origin: Origin, *, host: str = "origin.test", path: str = "/me/x",
headers: str = "", body: bytes = b"", method: str = "POST", chunks: int = 0) -> bytes:  # fmt: skip
    reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
    length = "Transfer-Encoding: chunked" if chunks else f"Content-Length: {len(body)}"
    try:
        writer.write(
            f"{method} http://{host}:{origin.port}{path} HTTP/1.1\r\nHost:"
            f" {host}:{origin.port}\r\n{length}\r\n{headers}Connection: close\r\n\r\n".encode()
        )
        if chunks:
            for at in range(0, len(body), chunks):
                piece = body[at : at + chunks]
                writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            writer.write(b"0\r\n\r\n")
        else:
            writer.write(body)
        try:
            return await reader.read()
        except ConnectionError:
            return b""
    finally:
        writer.close()


def seen(origin: Origin) -> bytes:
    return bytes(origin.received)


async def test_it_is_swapped_in_where_it_belongs(desk: Setting, origin: Origin) -> None:
    answer = await send(desk, origin, headers=f"Authorization: Bearer {PLACEHOLDER}\r\n")
    assert answer.startswith(b"HTTP/1.1 200")
    assert f"Bearer {SECRET}".encode() in seen(origin)
    assert PLACEHOLDER.encode() not in seen(origin)


async def test_a_changed_value_goes_out_at_once_and_a_removed_one_no_more(
    desk: Setting, origin: Origin
) -> None:
    header = f"Authorization: Bearer {PLACEHOLDER}\r\n"
    await send(desk, origin, headers=header)
    credential = desk.broker._sessions[desk.session_id].credentials[0]
    changed = msgspec.structs.replace(credential, secret="another-value-0123456789")
    desk.broker.put_credentials(desk.session_id, [changed])
    answer = await send(desk, origin, headers=header)
    assert b"Bearer another-value-0123456789" in seen(origin)
    assert SECRET.encode() not in answer
    before = len(origin.received)
    desk.broker.put_credentials(desk.session_id, [])
    await send(desk, origin, headers=header)
    after = bytes(origin.received)[before:]
    assert PLACEHOLDER.encode() in after
    assert b"value-0123456789" not in after
    desk.broker.put_credentials(desk.session_id, [credential])
    await send(desk, origin, headers=header)
    assert seen(origin).count(SECRET.encode()) == 2
    desk.broker.put_credentials("no session", [credential])


BASIC = base64.b64encode(f"u:{PLACEHOLDER}".encode()).decode()


@pytest.mark.parametrize(
    "request_of",
    [
        {"headers": f"Authorization: Bearer {PLACEHOLDER}\r\n", "host": "other.test"},
        {"headers": f"Authorization: Bearer {PLACEHOLDER}\r\n", "path": "/you/x"},
        {"headers": f"Authorization: Bearer {PLACEHOLDER}\r\n", "method": "DELETE"},
        {"headers": f"X-Other: {PLACEHOLDER}\r\n"},
        {"headers": f"Authorization: Basic {BASIC}\r\n", "host": "other.test"},
        {"path": f"/me/x?key={PLACEHOLDER}"},
        {"path": f"/{PLACEHOLDER}", "host": "other.test"},
        {"path": "/" + PLACEHOLDER.replace("-", "%2D"), "host": "other.test"},
        {"body": b"key=" + PLACEHOLDER.encode(), "host": "other.test"},
        {"body": b"x" * 60_000 + PLACEHOLDER.encode(), "host": "other.test"},
    ],
    ids=[
        "host",
        "path",
        "method",
        "header",
        "basic",
        "query",
        "in a path",
        "encoded",
        "body",
        "end of a body",
    ],
)
async def test_elsewhere_it_is_denied_and_on_record_and_the_origin_sees_nothing(
    desk: Setting, origin: Origin, request_of: dict
) -> None:  # type: ignore[type-arg]
    answer = await send(desk, origin, **request_of)
    assert answer.startswith(b"HTTP/1.1 403"), answer[:100]
    assert origin.untouched
    async with asyncio.timeout(PATIENCE_S):
        while not any('"by":"egress"' in line for line in desk.office.audited("verdict_given")):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("chunks", [0, 1000], ids=["long", "chunked"])
async def test_a_body_that_streams_is_cut_off_before_the_placeholder(
    desk: Setting, origin: Origin, chunks: int
) -> None:
    body = b"x" * 200_000 + PLACEHOLDER.encode() + b"y" * 1000
    answer = await send(desk, origin, host="other.test", body=body, chunks=chunks)
    assert b" 200 " not in answer[:20]
    assert PLACEHOLDER.encode() not in seen(origin)
    async with asyncio.timeout(PATIENCE_S):
        while not any("placeholder" in line for line in desk.office.audited("verdict_given")):
            await asyncio.sleep(0.01)


AWS = Keys("AKIDREAL00000000", "real-secret-0123456789/abc")
FAKE = Keys(PLACEHOLDER, PLACEHOLDER)


@pytest_asyncio.fixture
async def signing(desk: Setting, origin: Origin) -> Setting:
    text = f"version: 1\ncredentials: {{it: {{preset: aws, hosts: 'origin.test:{origin.port}'}}}}\n"
    (binding,) = parse_credentials(text, "credentials.yaml")
    (credential,) = credentials_of(binding, PLACEHOLDER, f"{AWS.access}:{AWS.secret}")
    await desk.broker.open_session(
        desk.session_id, desk.listener, [msgspec.structs.replace(credential, scheme="http")]
    )
    return desk


def aws_headers(
    origin: Origin, keys: Keys, body: bytes, *, says_hash: bool, host: str = "origin.test"
) -> dict[str, str]:
    """What a client of AWS sends that was given these keys."""
    headers = {"host": f"{host}:{origin.port}", "x-amz-date": "20260101T000000Z"}
    if says_hash:
        headers["x-amz-content-sha256"] = hashlib.sha256(body).hexdigest()
    names = ";".join(sorted(headers))
    made = resign(
        Signed(keys.access, "20260101", "us-east-1", "bedrock", tuple(names.split(";"))),
        keys,
        "POST",
        "/me/x",
        headers,
        body,
    )
    assert made is not None
    return {name: value for name, value in (headers | made).items() if name != "host"}


def lines(headers: dict[str, str]) -> str:
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())


@pytest.mark.parametrize("chunks", [0, 50_000], ids=["length", "chunked"])
@pytest.mark.parametrize(
    ("size", "says_hash"), [(10, False), (10, True), (200_000, False), (200_000, True)]
)
async def test_a_request_to_aws_is_signed_anew(
    signing: Setting, origin: Origin, size: int, says_hash: bool, chunks: int
) -> None:
    body = b"z" * size
    fake = aws_headers(origin, FAKE, body, says_hash=says_hash)
    answer = await send(signing, origin, headers=lines(fake), body=body, chunks=chunks)
    assert answer.startswith(b"HTTP/1.1 200"), answer
    wanted = aws_headers(origin, AWS, body, says_hash=says_hash)["authorization"]
    assert wanted.encode() in seen(origin)
    assert AWS.secret.encode() not in seen(origin)
    assert PLACEHOLDER.encode() not in seen(origin)


async def test_what_cant_be_signed_anew_is_denied(signing: Setting, origin: Origin) -> None:
    body = b"z" * 200_000
    whole = aws_headers(origin, FAKE, body, says_hash=True)
    for headers, host in (
        (whole | {"x-amz-content-sha256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"}, "origin.test"),
        ({name: value for name, value in whole.items() if name != "x-amz-date"}, "origin.test"),
        (aws_headers(origin, Keys("AKIDOTHER", "x"), body, says_hash=True), "origin.test"),
        (aws_headers(origin, FAKE, body, says_hash=True, host="other.test"), "other.test"),
    ):
        answer = await send(signing, origin, host=host, headers=lines(headers), body=body)
        assert answer.startswith(b"HTTP/1.1 403"), answer[:200]
    assert origin.untouched


async def test_what_is_long_and_holds_none_goes_through_whole(
    desk: Setting, origin: Origin
) -> None:
    body = os.urandom(300_000)
    assert (await send(desk, origin, host="other.test", body=body)).startswith(b"HTTP/1.1 200")
    assert body in seen(origin)


# What an origin may say to have it quoted: by an error, in what is noted of an answer, by whoever
# looks at a body.
SAID_BACK = (
    f"HTTP/1.1 200 OK\r\n{SECRET}\r\n\r\n".encode(),
    f"HTTP/1.1 200 OK\r\nContent-Length: {SECRET}\r\n\r\n".encode(),
    f"{SECRET}\r\n\r\n".encode(),
    f"HTTP/1.1 302 {SECRET}\r\nLocation: /{SECRET}\r\nSet-Cookie: a={SECRET}\r\nContent-Length:"
    " 0\r\n\r\n".encode(),
    f"HTTP/1.1 200 OK\r\nContent-Encoding: {SECRET}\r\nContent-Length: 4\r\n\r\nabcd".encode(),
    f"HTTP/1.1 200 OK\r\nX-Hex: {SECRET.encode().hex()}\r\nContent-Length: 0\r\n\r\n".encode(),
    f"HTTP/1.1 500 No\r\nContent-Length: {len(SECRET)}\r\n\r\n{SECRET}".encode(),
)


@really_started
async def test_the_secret_is_nowhere(
    desk: Setting, origin: Origin, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    answers = [await send(desk, origin, headers=f"Authorization: Bearer {PLACEHOLDER}\r\n")]
    answers += [await send(desk, origin, headers=f"Authorization: {PLACEHOLDER} x\r\n")]
    answers += [
        await send(
            desk, origin, headers=f"Authorization: Bearer {PLACEHOLDER}\r\n", host="other.test"
        )
    ]
    assert SECRET.encode() in seen(origin)
    for said in SAID_BACK:
        origin.respond = lambda head, said=said: said
        answers += [await send(desk, origin, headers=f"Authorization: Bearer {PLACEHOLDER}\r\n")]
    forms = SecretForms([SECRET])
    assert not any(forms.is_in(answer) for answer in answers)
    pid = desk.broker.pid
    for name in ("cmdline", "environ"):
        assert SECRET.encode() not in bytes_if_shown(pid or 0, name)
    limits = Path(f"/proc/{pid}/limits").read_text()
    (core,) = (line for line in limits.splitlines() if line.startswith("Max core file size"))
    assert core.split()[4:6] == ["0", "0"]
    desk.office.audit.flush()
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or not forms.is_in(path.read_bytes()), path
    out, err = capfd.readouterr()
    assert not forms.is_in((out + err).encode())
