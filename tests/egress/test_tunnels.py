"""Connections that nothing looks into, by raw sockets: TLS to the host that was allowed passes
whole, and of all else the origin sees no byte. Everything is allowed by the supervisor here."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from supervisor.core.network.egress_wire import (
    Abandoned,
    Answer,
    CloseConnection,
    CloseSession,
    Credential,
    EgressRefused,
    Question,
)
from tests.egress.egress_harness import (
    Origin,
    Proxy,
    RefusedTunnelError,
    allow,
    answer_of,
    body_of,
    deny,
    status_of,
)
from tests.egress.hellos import (
    RETRY_RANDOM,
    client_hello,
    extension,
    message,
    record,
    records,
    server_hello,
    server_name,
    with_extensions,
)
from tests.egress.test_front_hostile import RAW
from tests.egress.tls_listener import HELLO, HOST, Listener, origin, rest
from tests.fakes.waiting import PATIENCE_S

__all__ = ["origin"]

pytestmark = pytest.mark.asyncio(loop_scope="module")
LOOKS_AT_PROCESS = True


def unread(question: Question) -> Answer:
    return Answer(
        question_id=question.question_id,
        decision="allow",
        private_ok=True,
        settle=True,
        look_inside=False,
    )


@pytest_asyncio.fixture(loop_scope="module")
async def tunnels(proxy: Proxy) -> Proxy:
    """A session whose connections are passed on unread."""
    proxy.supervisor.decide = unread
    return proxy


async def connected(
    proxy: Proxy, port: int, more: bytes = b""
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await proxy.open()
    writer.write(f"CONNECT {HOST}:{port} HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n".encode() + more)
    assert status_of(await answer_of(reader)) == 200
    return reader, writer


# -- what passes ----------------------------------------------------------------------------------


async def test_tls_passes_from_end_to_end(
    tunnels: Proxy, https: Origin, upstream_ca: Path, ca_file: Path
) -> None:
    reader, writer = await tunnels.tunnel(f"{HOST}:{https.port}", trust=upstream_ca)
    for path in ("/one", "/two"):
        writer.write(f"GET {path} HTTP/1.1\r\nHost: whatever.test\r\n\r\n".encode())
        assert status_of(await answer_of(reader)) == 200
    writer.close()
    connect, addresses = tunnels.supervisor.questions
    assert (connect.action.operation, addresses.after) == ("connect", connect.question_id)
    settled = await tunnels.supervisor.settled()
    assert (settled.question_id, settled.outcome, settled.detail["way"]) == (
        connect.question_id,
        "done",
        "tunnel",
    )
    assert isinstance(settled.detail["up_bytes"], int)
    assert isinstance(settled.detail["down_bytes"], int)
    assert settled.detail["up_bytes"] > 500
    assert settled.detail["down_bytes"] > 500
    with pytest.raises(ssl.SSLError):  # the origin's own certificate, not ours
        await tunnels.tunnel(f"{HOST}:{https.port}", trust=ca_file)


async def test_an_address_needs_no_server_name(
    tunnels: Proxy, https: Origin, upstream_ca: Path
) -> None:
    reader, writer = await tunnels.tunnel(f"127.0.0.1:{https.port}", trust=upstream_ca)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert status_of(await answer_of(reader)) == 200
    writer.close()


CUTS: dict[str, list[bytes]] = {
    "one segment": [HELLO],
    "a byte at a time": [HELLO[at : at + 1] for at in range(len(HELLO))],
    "many records": [records(message(HELLO), [1, 2, 3, 4, 60, 1])],
    "records and segments": [
        records(message(HELLO), [3, 90])[at : at + 7] for at in range(0, len(HELLO) + 10, 7)
    ],
}


@pytest.mark.parametrize("segments", CUTS.values(), ids=CUTS)
async def test_a_hello_passes_as_it_was_cut(
    tunnels: Proxy, origin: Listener, segments: list[bytes]
) -> None:
    whole = b"".join(segments)
    origin.says = lambda data: server_hello() if origin.received == whole else b""
    reader, writer = await connected(tunnels, origin.port)
    for segment in segments:
        writer.write(segment)
        await writer.drain()
        await asyncio.sleep(0)
    assert await reader.readexactly(len(server_hello())) == server_hello()
    assert origin.received == whole
    writer.close()


async def test_a_hello_that_comes_with_its_connect_passes(tunnels: Proxy, origin: Listener) -> None:
    origin.says = lambda data: server_hello()
    reader, writer = await connected(tunnels, origin.port, HELLO)
    assert await reader.readexactly(len(server_hello())) == server_hello()
    assert origin.received == HELLO
    writer.close()


async def test_what_a_client_says_after_its_hello_waits_for_the_answer(
    tunnels: Proxy, origin: Listener
) -> None:
    origin.says = lambda data: server_hello() if origin.received == HELLO else b""
    early = record(b"early data", kind=23)
    reader, writer = await connected(tunnels, origin.port, HELLO + early)
    assert await reader.readexactly(len(server_hello())) == server_hello()
    await origin.until(lambda: origin.received == HELLO + early)
    writer.close()


async def test_a_retry_passes_with_its_second_hello(tunnels: Proxy, origin: Listener) -> None:
    retry, second = server_hello(RETRY_RANDOM), record(b"\x01", kind=20) + HELLO
    origin.says = lambda data: retry if origin.received == HELLO else server_hello()
    reader, writer = await connected(tunnels, origin.port, HELLO)
    assert await reader.readexactly(len(retry)) == retry
    writer.write(second)
    assert await reader.readexactly(len(server_hello())) == server_hello()
    assert origin.received == HELLO + second
    writer.close()


async def begun(
    tunnels: Proxy, origin: Listener
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A tunnel whose hellos have passed; the origin's counts are as new."""
    origin.says = lambda data: server_hello()
    reader, writer = await connected(tunnels, origin.port, HELLO)
    await reader.readexactly(len(server_hello()))
    origin.received.clear()
    origin.says = lambda data: b""
    return reader, writer


async def test_a_half_closed_tunnel_still_carries_the_answer(
    tunnels: Proxy, origin: Listener
) -> None:
    reader, writer = await begun(tunnels, origin)
    writer.write(b"last words")
    writer.write_eof()
    await origin.until(lambda: origin.received == b"last words" and not origin.open)
    assert await rest(reader) == b""
    writer.close()
    assert (await tunnels.supervisor.settled()).detail["end"] == "closed"


async def test_much_passes_both_ways_to_a_slow_reader(tunnels: Proxy, origin: Listener) -> None:
    much = bytes(range(256)) * 80_000
    reader, writer = await begun(tunnels, origin)
    origin.says = lambda data: much if data.endswith(b"now") else b""
    writer.write(much + b"now")
    await origin.until(lambda: len(origin.received) == len(much) + 3)
    before = memory_bytes(tunnels)
    async with asyncio.timeout(PATIENCE_S):
        assert await reader.readexactly(len(much)) == much
    assert memory_bytes(tunnels) - before < 20_000_000
    writer.close()


def memory_bytes(proxy: Proxy) -> int:
    status = Path(f"/proc/{proxy.supervisor.child.pid}/status").read_text()
    return next(
        int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")
    )


# -- what doesn't ---------------------------------------------------------------------------------


@pytest.mark.parametrize("data", RAW.values(), ids=RAW)
async def test_what_is_no_tls_is_refused(tunnels: Proxy, origin: Listener, data: bytes) -> None:
    reader, writer = await connected(tunnels, origin.port)
    writer.write(data)
    writer.write_eof()
    answer = await rest(reader)
    writer.close()
    await origin.until(lambda: not origin.open)
    assert not origin.received
    assert status_of(answer) != 200
    if data[:1].isalpha():
        assert "TLS" in body_of(answer)["why"]
        assert f"network(* http://{HOST}:{origin.port}/**)" in body_of(answer)["remedy"]


HELLOS = {
    "another name": client_hello("other.test"),
    "a name below it": client_hello("sub.origin.test"),
    "a name above it": client_hello("test"),
    "no name": client_hello(None),
    "an address": with_extensions(extension(0, server_name(b"127.0.0.1"))),
    "two names": with_extensions(extension(0, server_name(b"origin.test", b"other.test"))),
    "the right name second": with_extensions(extension(0, server_name(b"other.test",
    b"origin.test"))),
    "the extension twice": with_extensions(extension(0, server_name(b"origin.test")), extension(0,
    server_name(b"other.test"))),
    "NUL in the name": with_extensions(extension(0, server_name(b"origin.test\x00.other.test"))),
    "another outer name": with_extensions(extension(0, server_name(b"public.test")),
    extension(0xFE0D, bytes(64))),
    "another name in many records": records(message(client_hello("other.test")), [5, 40, 1]),
    "another message behind it": record(message(HELLO) + b"\x01\x00\x00\x00"),
    "an alert": record(b"\x02\x28", kind=21),
    "data": record(b"GET / HTTP/1.1\r\n\r\n", kind=23),
    "an empty record": b"\x16\x03\x01\x00\x00" + HELLO,
    "SSL 2": b"\x80\x2e\x01\x03\x01" + bytes(64),
    "half a hello": HELLO[:100],
}  # fmt: skip


@pytest.mark.parametrize("data", HELLOS.values(), ids=HELLOS)
async def test_tls_to_anything_else_is_refused(
    tunnels: Proxy, origin: Listener, data: bytes
) -> None:
    reader, writer = await connected(tunnels, origin.port)
    writer.write(data)
    writer.write_eof()
    answer = await rest(reader)
    writer.close()
    await origin.until(lambda: not origin.open)
    assert not origin.received
    assert answer[:1] in (b"", b"\x15")


async def test_another_server_name_is_on_record_and_the_client_is_told(
    tunnels: Proxy, https: Origin, upstream_ca: Path
) -> None:
    with pytest.raises(ssl.SSLError, match=r"(?i)unrecognized.name"):
        await tunnels.tunnel(f"{HOST}:{https.port}", sni="other.test", trust=upstream_ca)
    refused = await tunnels.supervisor.until(EgressRefused)
    assert "TLS names `other.test`" in refused.why
    assert refused.action.sni == "other.test"
    assert not https.received
    settled = await tunnels.supervisor.settled()
    assert settled.outcome == "failed"


async def test_a_second_hello_with_another_name_is_refused(
    tunnels: Proxy, origin: Listener
) -> None:
    origin.says = lambda data: server_hello(RETRY_RANDOM)
    for together, goes_on in ((True, False), (False, False), (False, True), (False, True)):
        origin.received.clear()
        other = client_hello("other.test")
        reader, writer = await connected(tunnels, origin.port, HELLO + (other if together else b""))
        assert (await reader.readexactly(43))[11:43] == RETRY_RANDOM
        if goes_on:  # an answer that nobody asked for joins nothing
            origin.writer.write(server_hello())
            await origin.writer.drain()
        if not together:
            writer.write(other)
        await rest(reader)
        writer.close()
        await origin.until(lambda: not origin.open)
        assert origin.received == HELLO


ANSWERS = {
    "ssh": b"SSH-2.0-OpenSSH_9.2\r\n",
    "http": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "a certificate first": record(b"\x0b\x00\x00\x01\x00"),
    "a retry in pieces": records(message(server_hello(RETRY_RANDOM)), [10]),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_an_origin_that_does_not_answer_with_tls_is_cut_off(
    tunnels: Proxy, origin: Listener, answer: bytes
) -> None:
    origin.says = lambda data: answer
    reader, writer = await connected(tunnels, origin.port, HELLO + b"more of the client")
    assert answer not in await rest(reader)
    writer.close()
    await origin.until(lambda: not origin.open)
    assert origin.received == HELLO


async def test_an_origin_that_speaks_first_is_not_heard_before_the_hello(
    tunnels: Proxy, origin: Listener
) -> None:
    origin.greeting = b"SSH-2.0-OpenSSH_9.2\r\n"
    reader, writer = await connected(tunnels, origin.port)
    writer.write(b"SSH-2.0-client\r\n")
    assert b"OpenSSH" not in await rest(reader)
    writer.close()
    await origin.until(lambda: not origin.open)
    assert not origin.received


async def test_what_follows_a_refused_connect_is_no_request(tunnels: Proxy, http: Origin) -> None:
    tunnels.supervisor.decide = deny
    target = f"{HOST}:{http.port}"
    smuggled = f"GET http://{target}/smuggled HTTP/1.1\r\nHost: {target}\r\n\r\n"
    answer = await tunnels.send(
        f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n{smuggled}".encode()
    )
    assert status_of(answer) == 403
    assert body_of(answer) == {
        "error": "denied", "why": "denied by a test", "remedy": "do without",
        "rule": "network(origin.test)", "request_id": "r-1",
    }  # fmt: skip
    assert len(tunnels.supervisor.questions) == 1
    assert http.untouched


async def test_a_connect_behind_another_request_is_refused(tunnels: Proxy, http: Origin) -> None:
    target = f"{HOST}:{http.port}"
    reader, writer = await tunnels.open()
    writer.write(f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    assert status_of(await answer_of(reader)) == 200
    http.reset()
    writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    answer = await answer_of(reader)
    assert status_of(answer) == 403
    assert "comes first" in body_of(answer)["why"]
    writer.close()
    assert http.untouched


async def test_a_flood_while_the_answer_is_awaited_is_cut_off(
    tunnels: Proxy, origin: Listener
) -> None:
    tunnels.supervisor.decide = lambda question: None
    reader, writer = await tunnels.open()
    writer.write(
        f"CONNECT {HOST}:{origin.port} HTTP/1.1\r\nHost: {HOST}:{origin.port}\r\n\r\n".encode()
    )
    await tunnels.supervisor.until(Question)
    writer.write(bytes(8_000_000))
    assert await rest(reader) == b""
    writer.close()
    assert await origin.untouched()


async def test_a_client_that_leaves_while_held_is_not_waited_for(
    tunnels: Proxy, origin: Listener
) -> None:
    tunnels.supervisor.decide = lambda question: None
    _, writer = await tunnels.open()
    writer.write(
        f"CONNECT {HOST}:{origin.port} HTTP/1.1\r\nHost: {HOST}:{origin.port}\r\n\r\n".encode()
    )
    question = await tunnels.supervisor.until(Question)
    writer.close()
    await tunnels.supervisor.until_one(
        lambda one: one == Abandoned(question_id=question.question_id)
    )
    assert await origin.untouched()


async def test_an_origin_that_can_not_be_reached_is_a_502_with_the_reason(tunnels: Proxy) -> None:
    with pytest.raises(RefusedTunnelError) as refused:
        await tunnels.tunnel(f"{HOST}:1", trust=Path(__file__))
    assert status_of(refused.value.answer) == 502
    assert "can't be reached" in refused.value.body["why"]
    assert (await tunnels.supervisor.settled()).outcome == "failed"


async def test_gatehouse_is_never_dialled(tunnels: Proxy, origin: Listener) -> None:
    tunnels.forbid(("127.0.0.1", origin.port))
    with pytest.raises(RefusedTunnelError) as refused:
        await tunnels.tunnel(f"{HOST}:{origin.port}", trust=Path(__file__))
    assert "Gatehouse itself" in refused.value.body["why"]
    assert await origin.untouched()


async def test_a_host_with_a_credential_is_looked_into_whatever_is_said(
    tunnels: Proxy, https: Origin, ca_file: Path
) -> None:
    tunnels.credentials(
        Credential(
            placeholder="placeholder-12",
            secret="s3cret",
            header="x-api-key",
            hosts=(f"{HOST}:{https.port}",),
        )
    )
    reader, writer = await tunnels.tunnel(f"{HOST}:{https.port}", trust=ca_file)
    writer.write(
        f"GET / HTTP/1.1\r\nHost: {HOST}:{https.port}\r\nX-Api-Key: placeholder-12\r\n\r\n".encode()
    )
    assert status_of(await answer_of(reader)) == 200
    assert b"s3cret" in https.received
    writer.close()


# -- the end --------------------------------------------------------------------------------------


ENDS: dict[str, Callable[[Proxy], object]] = {
    "the session": lambda proxy: proxy.supervisor.send(CloseSession(session_id=proxy.session_id)),
    "the connection": lambda proxy: proxy.supervisor.send(
        CloseConnection(
            session_id=proxy.session_id,
            connection_id=proxy.supervisor.questions[0].connection_id,
            why="allowed no longer",
        )
    ),
}


@pytest.mark.parametrize(
    ("end", "error"),
    list(zip(ENDS.values(), (None, "allowed no longer"), strict=True)),
    ids=ENDS,
)
async def test_the_supervisor_can_end_a_tunnel_at_once(
    tunnels: Proxy, origin: Listener, end: Callable[[Proxy], object], error: str | None
) -> None:
    reader, writer = await begun(tunnels, origin)
    end(tunnels)
    assert await rest(reader) == b""
    await origin.until(lambda: not origin.open)
    writer.close()
    settled = await tunnels.supervisor.settled()
    assert settled.detail.get("error") == error


async def test_a_reset_of_either_side_ends_the_other(tunnels: Proxy, origin: Listener) -> None:
    _, writer = await begun(tunnels, origin)
    writer.transport.abort()
    await origin.until(lambda: not origin.open)
    assert not origin.received


async def test_a_client_that_leaves_before_its_hello_leaves_no_origin_open(
    tunnels: Proxy, origin: Listener
) -> None:
    for leave in ("abort", "close"):
        _, writer = await connected(tunnels, origin.port)
        await origin.until(lambda: origin.open == 1)
        getattr(writer.transport, leave)()
        await origin.until(lambda: not origin.open)
    assert not origin.received


async def test_a_denied_connection_reaches_nobody(tunnels: Proxy, origin: Listener) -> None:
    answers: list[Callable[[Question], Answer | Awaitable[Answer]]] = [
        deny,
        lambda question: allow(question) if question.after is None else deny(question),
    ]
    for decide in answers:
        tunnels.supervisor.decide = decide
        with pytest.raises(RefusedTunnelError):
            await tunnels.tunnel(f"{HOST}:{origin.port}", trust=Path(__file__))
    assert await origin.untouched()
