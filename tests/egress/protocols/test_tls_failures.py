"""TLS that can't be looked into: the cause is named, and the rule that would pass it on unread
instead."""

import asyncio
import ssl
from pathlib import Path

import pytest
import trustme

from supervisor.core.network.egress_wire import EgressRefused, Settled
from tests.egress.egress_harness import (
    Origin,
    Proxy,
    answer_of,
    body_of,
    running_origin,
    server_context,
    status_of,
)
from tests.egress.hellos import client_hello
from tests.fakes.waiting import PATIENCE_S

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_client_that_pins_is_told_on_record_which_rule_would_do(
    proxy: Proxy, https: Origin, upstream_ca: Path, version: ssl.TLSVersion
) -> None:
    reader, writer = await proxy.open()
    target = f"origin.test:{https.port}"
    writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    assert status_of(await answer_of(reader)) == 200
    context = ssl.create_default_context(cafile=str(upstream_ca))
    context.maximum_version = version
    with pytest.raises(ssl.SSLCertVerificationError):
        await writer.start_tls(context, server_hostname="origin.test")
    writer.close()
    refused = await proxy.supervisor.until(EgressRefused)
    assert "pinning" in refused.why
    assert f"`network({target})`" in refused.why
    assert https.untouched


async def test_a_client_that_just_hangs_up_is_on_record_too(proxy: Proxy, https: Origin) -> None:
    reader, writer = await proxy.open()
    target = f"origin.test:{https.port}"
    writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    assert status_of(await answer_of(reader)) == 200
    writer.write(client_hello("origin.test"))
    assert await reader.read(1)
    writer.close()
    assert "pinning" in (await proxy.supervisor.until(EgressRefused)).why


async def test_a_certificate_that_nobody_vouches_for(
    proxy: Proxy, https: Origin, ca_file: Path
) -> None:
    answer = await proxy.get_inside(f"other.test:{https.port}", ca_file)
    assert status_of(answer) == 502
    body = body_of(answer)
    assert "the certificate of `other.test` can't be trusted" in body["why"]
    assert f"`network(other.test:{https.port})`" in body["remedy"]
    await proxy.supervisor.until_one(
        lambda one: isinstance(one, Settled) and "be trusted" in str(one.detail.get("error"))
    )
    assert not https.received


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_an_origin_that_wants_a_certificate_of_the_client(
    proxy: Proxy, authority: trustme.CA, ca_file: Path, version: ssl.TLSVersion
) -> None:
    """With TLS 1.2 it breaks off the handshake; with 1.3 the client is through by then, and only
    sees that nothing follows."""
    context = server_context(authority, "origin.test")
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = context.maximum_version = version
    async with running_origin(context) as origin:
        answer = await proxy.get_inside(f"origin.test:{origin.port}", ca_file)
        assert not origin.received
    assert status_of(answer) == 502
    body = body_of(answer)
    assert "certificate of the client" in body["why"], body
    assert f"`network(origin.test:{origin.port})`" in body["remedy"]


async def test_an_origin_that_speaks_no_tls(proxy: Proxy, http: Origin, ca_file: Path) -> None:
    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.test ESMTP\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(shout, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    answer = await proxy.get_inside(f"origin.test:{port}", ca_file)
    server.close()
    assert status_of(answer) == 502
    assert "TLS with `origin.test` failed" in body_of(answer)["why"]


async def test_an_origin_that_is_not_there(proxy: Proxy, ca_file: Path) -> None:
    answer = await proxy.get_inside("origin.test:1", ca_file)
    assert status_of(answer) == 502
    assert "`origin.test` port 1 gave no response" in body_of(answer)["why"]


@pytest.mark.parametrize(
    "begins",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nhalf"],
    ids=["nothing", "half"],
)
@pytest.mark.parametrize("who", ["client", "origin"])
async def test_who_ended_a_response_before_its_end_is_told(
    proxy: Proxy, who: str, begins: bytes
) -> None:
    asked = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(begins)
        await writer.drain()
        asked.set()
        if who == "client":
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await proxy.open()
    writer.write(
        f"GET http://origin.test:{port}/ HTTP/1.1\r\nHost: origin.test:{port}\r\n\r\n".encode()
    )
    async with asyncio.timeout(PATIENCE_S):
        await asked.wait()
        if begins:
            await reader.readuntil(b"half")
        if who == "origin":
            await reader.read()
    writer.close()
    broken = "broke off its response" if begins else "hung up without a response"
    wanted = (
        "the client went away"
        if who == "client"
        else f"`origin.test` port {port} {broken}"
        if begins
        else broken
    )
    await proxy.supervisor.until_one(
        lambda one: isinstance(one, Settled) and wanted in str(one.detail.get("error"))
    )
    server.close()
