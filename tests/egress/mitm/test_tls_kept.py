"""What TLS keeps from connection to connection lends nothing: not an origin's proof, not a
host's certificate, not another session's secrets."""

import asyncio
import datetime
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import trustme
from mitmproxy import connection as mitm_connection
from mitmproxy import ctx
from mitmproxy import tls as mitm_tls
from mitmproxy.certs import CertStore
from mitmproxy.connection import ConnectionState
from mitmproxy.options import CONF_BASENAME, Options
from mitmproxy.proxy.context import Context

from supervisor.base.clock import RealClock
from supervisor.egress.admission.egress_sessions import EgressSession, Sessions
from supervisor.egress.mitm import tls as egress_tls
from supervisor.network import ca
from tests.egress.egress_harness import (
    FakeSupervisor,
    Proxy,
    body_of,
    running_origin,
    server_context,
    serving,
    status_of,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


def expired(authority: trustme.CA) -> ssl.SSLContext:
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("origin.test", not_after=past).configure_cert(context)
    return context


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (lambda authority: server_context(authority, "elsewhere.test"), "can't be trusted"),
        (expired, "can't be trusted"),
        (lambda authority: server_context(trustme.CA(), "origin.test"), "can't be trusted"),
    ],
    ids=["another name", "expired", "nobody vouches for it"],
)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_an_origin_proves_itself_each_time(
    proxy: Proxy,
    authority: trustme.CA,
    ca_file: Path,
    bad: Callable[[trustme.CA], ssl.SSLContext],
    why: str,
    version: ssl.TLSVersion,
) -> None:
    """The same host and port, once proven, is refused when what it shows no longer holds; and
    let through again when it does."""
    shown = [server_context(authority, "origin.test")]
    context = server_context(authority, "origin.test")
    context.maximum_version = version

    def show(sock: ssl.SSLSocket | ssl.SSLObject, name: str | None, first: ssl.SSLContext) -> None:
        sock.context = shown[0]

    context.sni_callback = show
    async with running_origin(context) as origin:
        target = f"origin.test:{origin.port}"
        assert status_of(await proxy.get_inside(target, ca_file)) == 200
        assert status_of(await proxy.get_inside(target, ca_file)) == 200
        origin.reset()
        shown[0] = bad(authority)
        for _ in range(2):
            answer = await proxy.get_inside(target, ca_file)
            assert status_of(answer) == 502
            assert why in body_of(answer)["why"]
        assert not origin.received
        shown[0] = server_context(authority, "origin.test")
        assert status_of(await proxy.get_inside(target, ca_file)) == 200


async def test_each_host_is_shown_by_its_own_certificate(
    proxy: Proxy, authority: trustme.CA, ca_file: Path
) -> None:
    async with running_origin(server_context(authority, "origin.test", "two.test")) as origin:
        for host in ("origin.test", "two.test", "origin.test", "two.test"):
            _, writer = await proxy.tunnel(f"{host}:{origin.port}", trust=ca_file)
            shown = writer.get_extra_info("peercert")["subjectAltName"]
            writer.close()
            assert shown == (("DNS", host),)


def _once(
    proxy: Proxy, target: str, context: ssl.SSLContext, resumed: ssl.SSLSession | None
) -> ssl.SSLSocket:
    """A request and its answer, in the thread of a blocking client: asyncio's can't resume."""
    sock = socket.create_connection(("127.0.0.1", proxy.port), timeout=20)
    sock.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    said = b""
    while not said.endswith(b"\r\n\r\n"):
        said += sock.recv(1)
    client = context.wrap_socket(sock, server_hostname="origin.test", session=resumed)
    client.sendall(f"GET / HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    assert client.recv(65536).startswith(b"HTTP/1.1 200")
    return client


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_what_lets_a_client_resume_is_worth_nothing_in_another_session(
    egress: FakeSupervisor,
    proxy: Proxy,
    authority: trustme.CA,
    ca_file: Path,
    version: ssl.TLSVersion,
) -> None:
    context = ssl.create_default_context(cafile=str(ca_file))
    context.maximum_version = version
    async with (
        running_origin(server_context(authority, "origin.test")) as origin,
        serving(egress, f"another-{version}") as another,
    ):
        target = f"origin.test:{origin.port}"
        first = await asyncio.to_thread(_once, proxy, target, context, None)
        session = first.session
        assert session is not None
        again = await asyncio.to_thread(_once, proxy, target, context, session)
        elsewhere = await asyncio.to_thread(_once, another, target, context, session)
    assert (again.session_reused, elsewhere.session_reused) == (True, False)
    # INVARIANT: who resumes is asked about like anybody else.
    asked = [one.session_id for one in egress.questions if one.action.operation == "request"]
    assert asked == [proxy.session_id, proxy.session_id, another.session_id]
    for client in (first, again, elsewhere):
        client.close()


def _started(addon: egress_tls.GuardedTls, client_id: str, sni: str | None) -> mitm_tls.TlsData:
    client = mitm_connection.Client(
        peername=("127.0.0.1", 1), sockname=("127.0.0.1", 2), state=ConnectionState.OPEN
    )
    client.id, client.sni = client_id, sni
    data = mitm_tls.TlsData(client, Context(client, Options()))
    addon.tls_start_client(data)
    return data


async def test_what_is_kept_is_bounded_and_nothing_unchecked_gets_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egress_tls, "MOST_CONTEXTS", 2)
    monkeypatch.setattr(ctx, "options", Options(upstream_cert=False), raising=False)
    ca.ensure_ca(tmp_path, RealClock())
    session, another = EgressSession("s"), EgressSession("another")
    known = {
        name: SimpleNamespace(server_name_ok=True, target=(name, 443), session=session)
        for name in ("a.test", "b.test", "c.test")
    }
    known["elsewhere"] = SimpleNamespace(
        server_name_ok=True, target=("a.test", 443), session=another
    )
    known["unchecked"] = SimpleNamespace(
        server_name_ok=False, target=("a.test", 443), session=session
    )
    addon = egress_tls.GuardedTls(cast("Sessions", SimpleNamespace(of_client=known.get)))
    addon.certstore = CertStore.from_store(tmp_path, CONF_BASENAME, 2048)  # type: ignore[no-untyped-call]
    elsewhere = _started(addon, "elsewhere", "a.test").ssl_conn
    kept = [
        _started(addon, name, name).ssl_conn
        for name in ("a.test", "b.test", "a.test", "c.test", "a.test")
    ]
    assert None not in kept
    used = [one.get_context() for one in kept if one is not None]
    assert used[0] is used[2] is used[4]
    assert used[0] is not used[1]
    assert len(addon._contexts[session]) == 2
    # However a name is spelled, or left out, it is the same host; and no session makes another's be
    # forgotten.
    spelled = [
        _started(addon, "a.test", sni).ssl_conn for sni in ("A.TEST", "a.test.", "A.tEsT.", None)
    ]
    assert {one.get_context() for one in spelled if one is not None} == {used[0]}
    again = _started(addon, "elsewhere", "a.test").ssl_conn
    assert elsewhere is not None
    assert again is not None
    assert again.get_context() is elsewhere.get_context() is not used[0]
    assert _started(addon, "unchecked", "a.test").ssl_conn is None
    assert _started(addon, "stranger", "a.test").ssl_conn is None
