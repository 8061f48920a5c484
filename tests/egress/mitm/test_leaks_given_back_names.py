"""An origin that gives a credential back as the name of a header, which no library takes:
neither the agent nor the log has any of it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import trustme
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived, StreamReset

from supervisor.core.network.egress_wire import Settled
from supervisor.core.secrets.secret_forms import SecretForms
from tests.egress.egress_harness import (
    FakeSupervisor,
    Origin,
    Proxy,
    answer_of,
    body_of,
    running_egress,
    running_origin,
    server_context,
    serving,
    status_of,
)
from tests.egress.h2_client import h2_client
from tests.egress.mitm.test_leaks import PLACEHOLDER, credential
from tests.fakes.waiting import PATIENCE_S

pytestmark = pytest.mark.asyncio(loop_scope="module")

# In HTTP/2 the first is refused by h2, for its capitals, the second by mitmproxy, as no name.
SECRETS = {"capitals": "sk-REAL-0123456789", "other characters": "sk/real=0123456789"}


class Named:
    """An HTTP/2 origin that answers with what it was sent as a header's name; `/open` it goes on
    with until the client resets it."""

    def __init__(self) -> None:
        self.port = 0
        self.reset = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        config = H2Configuration(
            client_side=False,
            header_encoding="latin-1",
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
        h2 = H2Connection(config)
        h2.initiate_connection()
        writer.write(h2.data_to_send())
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                for event in h2.receive_data(data):
                    if isinstance(event, StreamReset):
                        self.reset.set()
                    if isinstance(event, RequestReceived) and event.stream_id is not None:
                        sent = {str(name): str(value) for name, value in event.headers or ()}
                        name = sent.get("authorization", "x-none").removeprefix("Bearer ")
                        h2.send_headers(event.stream_id, [(":status", "200"), (name, "x")])
                writer.write(h2.data_to_send())
        writer.close()


@pytest_asyncio.fixture(loop_scope="module")
async def named(authority: trustme.CA) -> AsyncIterator[Named]:
    named, context = Named(), server_context(authority, "origin.test")
    context.set_alpn_protocols(["h2"])
    server = await asyncio.start_server(named.serve, "127.0.0.1", 0, ssl=context)
    named.port = server.sockets[0].getsockname()[1]
    yield named
    server.close()


@pytest_asyncio.fixture(loop_scope="module")
async def own_egress(
    tmp_path: Path, upstream_ca: Path, capfd: pytest.CaptureFixture[str]
) -> AsyncIterator[FakeSupervisor]:
    """One whose standard error the test can read."""
    async with running_egress(tmp_path, upstream_ca) as supervisor:
        yield supervisor


async def is_nowhere(supervisor: FakeSupervisor, secret: str, heard: bytes) -> None:
    await supervisor.until_one(
        lambda one: (
            isinstance(one, Settled)
            and one.outcome == "failed"
            and "gave no response" in str(one.detail)
        )
    )
    for said in (heard, repr(supervisor.messages).encode()):
        assert not SecretForms([secret]).is_in(said)


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
@pytest.mark.parametrize("line", ["you sent {}", "{} {}"], ids=["with words", "twice"])
async def test_over_http1(
    own_egress: FakeSupervisor, secret: str, line: str, capfd: pytest.CaptureFixture[str]
) -> None:
    said = "\r\n".join(
        ("HTTP/1.1 200 OK", line.format(secret, secret) + ": x", "Content-Length: 2", "", "ok")
    )
    async with serving(own_egress, "s") as proxy, running_origin() as origin:
        proxy.credentials(credential(origin.port, secret))
        origin.respond = lambda head: said.encode()
        answer = await asked(proxy, origin)
        assert not SecretForms([secret]).is_in(answer)
        assert status_of(answer) == 502
        assert "malformed" in body_of(answer)["why"]
        await is_nowhere(own_egress, secret, answer)
    assert secret.encode() in origin.received
    assert secret not in capfd.readouterr().err


async def asked(proxy: Proxy, origin: Origin) -> bytes:
    """All that the agent has, behind which nothing comes."""
    target = f"origin.test:{origin.port}"
    reader, writer = await proxy.open()
    writer.write(
        f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\nAuthorization: Bearer"
        f" {PLACEHOLDER}\r\n\r\n".encode()
    )
    answer = await answer_of(reader) + await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
async def test_over_http2(
    own_egress: FakeSupervisor,
    named: Named,
    tmp_path: Path,
    secret: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    target = f"origin.test:{named.port}"
    async with serving(own_egress, "s") as proxy:
        proxy.credentials(credential(named.port, secret, scheme="https"))
        async with h2_client(proxy, target, tmp_path / "ca" / "mitmproxy-ca-cert.pem") as client:
            _, other = client.ask("/open")
            await client.until(lambda: other.status == 200)
            _, stream = client.ask("/named", more=[("authorization", f"Bearer {PLACEHOLDER}")])
            await client.until(lambda: stream.over)
            assert stream.status == 502
            assert b"gave no response" in stream.body
            if secret.islower():
                assert not other.over, "which is the fault of one stream alone"
                await asyncio.wait_for(named.reset.wait(), PATIENCE_S)
        await is_nowhere(own_egress, secret, stream.body)
    assert secret not in capfd.readouterr().err
