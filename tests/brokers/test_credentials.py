"""Named secrets end to end: swapped in at their own hosts only, denied and on record elsewhere, and nowhere to be found afterwards."""

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import trustme

from supervisor.core.credentials import credentials_of, parse_credentials
from tests.brokers.conftest import Setting, setting
from tests.egress.egress_harness import Origin, running_origin

SECRET = "s3cret-value-0123456789"
PLACEHOLDER = "gatehouse-placeholder-it-0123456789abcdef"


@pytest_asyncio.fixture
async def origin() -> AsyncIterator[Origin]:
    async with running_origin(None) as found:
        yield found


@pytest_asyncio.fixture
async def desk(tmp_path: Path, authority: trustme.CA, origin: Origin) -> AsyncIterator[Setting]:
    text = f"version: 1\ncredentials: {{it: {{hosts: 'origin.test:{origin.port}', header: authorization, methods: [GET, POST], paths: [/me/**]}}}}\n"
    (binding,) = parse_credentials(text, "credentials.yaml")
    (credential,) = credentials_of(binding, PLACEHOLDER, SECRET)
    async with setting(tmp_path, authority) as place:
        place.office.policy(
            f"allow:\n  - network(127.0.0.1:{origin.port})\n  - network(origin.test:{origin.port})\n  - network(other.test:{origin.port})\n"
        )
        plain = type(credential)(
            **{**{f: getattr(credential, f) for f in credential.__struct_fields__}, "scheme": "http"}
        )
        await place.broker.open_session(place.session_id, place.listener, [plain])
        yield place


async def send(place: Setting, origin: Origin, *, host: str = "origin.test", path: str = "/me/x", headers: str = "", body: bytes = b"", method: str = "POST", chunks: int = 0) -> bytes:  # fmt: skip
    reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
    length = "Transfer-Encoding: chunked" if chunks else f"Content-Length: {len(body)}"
    try:
        writer.write(
            f"{method} http://{host}:{origin.port}{path} HTTP/1.1\r\nHost: {host}:{origin.port}\r\n{length}\r\n{headers}Connection: close\r\n\r\n".encode()
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
    ids=["host", "path", "method", "header", "basic", "query", "in a path", "encoded", "body", "end of a body"],
)
async def test_elsewhere_it_is_denied_and_on_record_and_the_origin_sees_nothing(
    desk: Setting, origin: Origin, request_of: dict
) -> None:  # type: ignore[type-arg]
    answer = await send(desk, origin, **request_of)
    assert answer.startswith(b"HTTP/1.1 403"), answer[:100]
    assert origin.untouched
    async with asyncio.timeout(20):
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
    async with asyncio.timeout(20):
        while not any("placeholder" in line for line in desk.office.audited("verdict_given")):
            await asyncio.sleep(0.01)


async def test_what_is_long_and_holds_none_goes_through_whole(desk: Setting, origin: Origin) -> None:
    body = os.urandom(300_000)
    assert (await send(desk, origin, host="other.test", body=body)).startswith(b"HTTP/1.1 200")
    assert body in seen(origin)


async def test_the_secret_is_nowhere(
    desk: Setting, origin: Origin, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    answers = [await send(desk, origin, headers=f"Authorization: Bearer {PLACEHOLDER}\r\n")]
    answers += [await send(desk, origin, headers=f"Authorization: {PLACEHOLDER} x\r\n")]
    answers += [await send(desk, origin, headers=f"Authorization: Bearer {PLACEHOLDER}\r\n", host="other.test")]
    assert SECRET.encode() in seen(origin)
    assert not any(SECRET.encode() in answer for answer in answers)
    pid = desk.broker.pid
    for name in ("cmdline", "environ"):
        try:
            assert SECRET.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
        except PermissionError:
            continue  # better still: egress can't be looked at
    limits = Path(f"/proc/{pid}/limits").read_text()
    (core,) = (line for line in limits.splitlines() if line.startswith("Max core file size"))
    assert core.split()[4:6] == ["0", "0"]
    desk.office.audit.flush()
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path
    out, err = capfd.readouterr()
    assert SECRET not in out + err
