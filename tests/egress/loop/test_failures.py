"""Whatever breaks, nothing is let through: hooks that raise, a supervisor that is gone or silent,
floods.

Each broken egress is a process of its own, in which one named part raises (`broken_egress.py`).
"""

import asyncio
import contextlib
import os
import signal
import socket
import ssl
from pathlib import Path

import dns.message
import pytest

from supervisor.core.network.egress_wire import Answer, OpenListener, Question
from tests.egress.egress_harness import (
    PATIENCE_S,
    Origin,
    Proxy,
    RefusedTunnelError,
    answer_of,
    body_of,
    deny,
    running_egress,
    serving,
    status_of,
)
from tests.fakes.processes import bytes_if_shown

pytestmark = pytest.mark.asyncio(loop_scope="module")

BEFORE = [
    f"{how}.{hook}"
    for how in ("Guard", "Raw")
    for hook in (
        "client_connected",
        "next_layer",
        "requestheaders",
        "tls_clienthello",
        "server_connect",
    )
    if (how, hook)
    != ("Raw", "client_connected")  # only says earlier what each other step finds by itself
]
INSIDE = [
    "front._first_head",
    "connect_head.read",
    "Front._find_way",
    "Front._judge_head",
    "Front._look_into",
    "Egress._look_inside",
    "inspector._build",
    "inspector._streams",
    "Held.connection_made",
    "Held.data_received",
    "Client.connection_made",
    "Admission.admit",
    "Admission._pin",
    "checks.split_authority",
    "checks.connect",
    "checks.head",
    "checks.destination",
    "checks.server_name",
    "secrets.swaps",
    "addresses.refusal",
    "GuardedTls.tls_start_client",
    "GuardedTls.tls_start_server",
    "Allowances.take",
    "Allowances.cover",
    "Session.use",
    "Handler._is_covered",
    "Guard.request",
    "Leaks.begin",
    "Leaks.requested",
    "Meter.may_be_call",
    "exchange.of",
]
# The same for a connection that nothing looks into; `Raw.` is a callback that raises with nothing
# around it.
UNREAD = [
    "front._first_head",
    "connect_head.read",
    "Front._find_way",
    "Front._judge_head",
    "Admission.admit",
    "Admission._pin",
    "checks.split_authority",
    "checks.connect",
    "checks.tunnelled_name",
    "addresses.refusal",
    "secrets.has_any",
    "Likely.is_allowed",
    "Likely.reached",
    "Tunnels.run",
    "Tunnels._dial",
    "Tunnels._greet",
    "Tunnels._hello",
    "HelloReader.read",
    "tunnels.asks_again",
    "Tunnel.run",
    "Tunnel._begin",
    "Tunnel._tick",
    "Allowances.take",
    "Session.use",
    *(
        f"{how}{end}"
        for how in ("", "Raw.")
        for end in (
            "Held.connection_made",
            "Held.data_received",
            "Relay.data_received",
            "Counted.data_received",
        )
    ),
]
# What ends a tunnel, or holds it up: where it raises, both ends are cut, and nobody else's.
ENDS = [
    "Relay.eof_received",
    "Counted.eof_received",
    "Relay.pause_writing",
    "Relay.resume_writing",
    "Relay.connection_lost",
    "Held.eof_received",
    "Held.connection_lost",
    "Sessions.disconnect",
    "Admission.ended",
]
# What these break is after the verdict or not on every path; the request that is refused by the
# supervisor stays refused.
AFTER = [
    "Likely.failed",
    "layers.refusal_response",
    "Guard.responseheaders",
    "Guard.response",
    "Guard.error",
    "Raw.responseheaders",
    "Raw.response",
    "Leaks.answered",
    "Leaks.ended",
]
# Hooks of what is refused whatever it is, and of the end of things: all of them at once. What is
# denied stays so.
REST = [
    "body_piece",
    "http_connect",
    "tls_failed_client",
    "tcp_start",
    "udp_start",
    "dns_request",
    "websocket_message",
    "websocket_end",
    "server_connect_error",
    "client_disconnected",
]
AFTER += [",".join(f"{how}.{hook}" for hook in REST) for how in ("Guard", "Raw")]


# Where a part is broken nothing may ever come; that long is waited for it to come nevertheless.
BROKEN_S = 3.0


async def answers(
    proxy: Proxy, http: Origin, https: Origin, ca_file: Path, patience_s: float = PATIENCE_S
) -> list[bytes]:
    """The answer to a plain request and to one by CONNECT and TLS; nothing where the connection
    was just cut, or nothing came."""
    target = f"origin.test:{http.port}"
    plain = b""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience_s):
            plain = await proxy.send(
                f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()
            )
    target = f"origin.test:{https.port}"
    try:
        async with asyncio.timeout(patience_s):
            reader, writer = await proxy.tunnel(target, trust=ca_file)
    except RefusedTunnelError as refused:
        return [plain, refused.answer]
    except (ssl.SSLError, OSError, asyncio.IncompleteReadError, TimeoutError):
        return [plain, b""]
    writer.write(f"GET / HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    try:
        async with asyncio.timeout(patience_s):
            return [plain, await answer_of(reader)]
    except (OSError, asyncio.IncompleteReadError, TimeoutError):
        return [plain, b""]
    finally:
        writer.close()


async def attempts(proxy: Proxy, http: Origin, https: Origin, ca_file: Path) -> list[int]:
    """The status of each of them; 0 where nothing came."""
    return [status_of(one) for one in await answers(proxy, http, https, ca_file)]


async def test_the_harness_lets_through_what_is_not_broken(
    tmp_path: Path, upstream_ca: Path, http: Origin, https: Origin
) -> None:
    async with (
        running_egress(tmp_path, upstream_ca, broken="nothing") as supervisor,
        serving(supervisor, "s") as proxy,
    ):
        ca_file = tmp_path / "ca" / "mitmproxy-ca-cert.pem"
        assert await attempts(proxy, http, https, ca_file) == [200, 200]


# What an agent and its user are told where HTTP can be answered: 403 and why, of a plain request
# and of one by CONNECT and TLS.
TOLD = {
    "Raw.requestheaders": "no verdict was given",
    **dict.fromkeys(
        ("Guard.server_connect", "Raw.server_connect"), "nothing was allowed to be dialled here"
    ),
}
FAILED = "egress failed while it looked at this"
# Not there: in TLS, or before it is known what a client speaks, where the connection can only be
# ended; and where what it sends isn't counted any more.
UNTOLD = {
    *(
        "Guard.client_connected",
        "Guard.next_layer",
        "Raw.next_layer",
        "Held.connection_made",
        "Held.data_received",
    ),
    *(
        "Client.connection_made",
        "exchange.of",
        "Allowances.take",
        "Allowances.cover",
        "Session.use",
        "Handler._is_covered",
    ),
}
# Where that is known of a plain request only.
UNTOLD_IN_TLS = {
    *(
        "Front._look_into",
        "Egress._look_inside",
        "inspector._build",
        "inspector._streams",
        "Guard.tls_clienthello",
    ),
    *("Raw.tls_clienthello", "GuardedTls.tls_start_client", "checks.server_name"),
}


# Where a part is only on one of the two paths, the other path goes on.
ONE_PATH = {
    "_judge_head": {"https"},
    "tls_clienthello": {"https"},
    "connect": {"https"},
    "server_name": {"https"},
    "tls_start_client": {"https"},
    "tls_start_server": {"https"},
}


@pytest.mark.parametrize("part", [*BEFORE, *INSIDE])
async def test_a_part_that_raises_lets_nothing_through(
    tmp_path: Path,
    upstream_ca: Path,
    http: Origin,
    https: Origin,
    part: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with (
        running_egress(tmp_path, upstream_ca, broken=part) as supervisor,
        serving(supervisor, "s") as proxy,
    ):
        ca_file = tmp_path / "ca" / "mitmproxy-ca-cert.pem"
        plain, tls = await answers(proxy, http, https, ca_file, BROKEN_S)
    assert status_of(tls) != 200
    assert not https.received
    if part.partition(".")[2] not in ONE_PATH:
        assert status_of(plain) != 200
        assert http.untouched
        if part not in UNTOLD:
            assert (status_of(plain), body_of(plain)["why"]) == (403, TOLD.get(part, FAILED))
    if (
        part == "GuardedTls.tls_start_server"
    ):  # of an origin whose TLS failed, whoever's fault that was
        assert (status_of(tls), body_of(tls)["error"]) == (502, "unreachable")
    elif part not in UNTOLD | UNTOLD_IN_TLS:
        assert (status_of(tls), body_of(tls)["why"]) == (403, TOLD.get(part, FAILED))
    assert "text of a client" not in capfd.readouterr().err


def unread(question: Question) -> Answer:
    return Answer(
        question_id=question.question_id,
        decision="allow",
        private_ok=True,
        settle=True,
        look_inside=False,
    )


async def test_the_harness_passes_on_unread_what_is_not_broken(
    tmp_path: Path, upstream_ca: Path, https: Origin
) -> None:
    async with (
        running_egress(tmp_path, upstream_ca, broken="nothing") as supervisor,
        serving(supervisor, "s") as proxy,
    ):
        supervisor.decide = unread
        assert await through_tunnel(proxy, https, upstream_ca, patience_s=PATIENCE_S) == 200


async def through_tunnel(
    proxy: Proxy,
    https: Origin,
    upstream_ca: Path,
    body_bytes: int = 0,
    patience_s: float = BROKEN_S,
) -> int:
    """The status of a request through a tunnel; 0 where it was cut off."""
    target = f"origin.test:{https.port}"
    https.respond = lambda head: (
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % body_bytes + bytes(body_bytes)
    )
    try:
        async with asyncio.timeout(patience_s):
            reader, writer = await proxy.tunnel(target, trust=upstream_ca)
            try:
                writer.write(f"GET / HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
                return status_of(await answer_of(reader))
            finally:
                writer.close()
    except RefusedTunnelError as refused:
        return status_of(refused.answer)
    except (ssl.SSLError, OSError, asyncio.IncompleteReadError, TimeoutError):
        return 0


@pytest.mark.parametrize("part", UNREAD)
async def test_a_part_of_the_tunnel_that_raises_passes_nothing_on(
    tmp_path: Path, upstream_ca: Path, https: Origin, part: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async with (
        running_egress(tmp_path, upstream_ca, broken=part) as supervisor,
        serving(supervisor, "s") as proxy,
    ):
        supervisor.decide = unread
        assert await through_tunnel(proxy, https, upstream_ca) != 200
        assert supervisor.child.returncode is None  # the others' connections go on
        if part == "Admission._pin":  # what was allowed before it broke is no grant that stays open
            assert (await supervisor.settled()).outcome == "failed"
    assert not https.received
    assert "text of a client" not in capfd.readouterr().err


@pytest.mark.parametrize("part", ENDS)
async def test_what_fails_at_the_end_of_one_connection_takes_no_other_along(
    tmp_path: Path, upstream_ca: Path, https: Origin, part: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async with (
        running_egress(tmp_path, upstream_ca, broken=part) as supervisor,
        serving(supervisor, "s") as proxy,
    ):
        supervisor.decide = unread
        for _ in range(2):
            await through_tunnel(proxy, https, upstream_ca, 3_000_000, PATIENCE_S)
        supervisor.decide = lambda question: Answer(
            question_id=question.question_id, decision="deny", why="no"
        )
        https.reset()
        assert await through_tunnel(proxy, https, upstream_ca) in (0, 403)
    assert https.untouched
    assert "text of a client" not in capfd.readouterr().err


@pytest.mark.parametrize("part", AFTER)
async def test_what_is_denied_stays_denied_whatever_else_breaks(
    tmp_path: Path, upstream_ca: Path, http: Origin, https: Origin, part: str
) -> None:
    async with running_egress(tmp_path, upstream_ca, broken=part) as supervisor:
        supervisor.decide = lambda question: Answer(
            question_id=question.question_id, decision="deny", why="no"
        )
        async with serving(supervisor, "s") as proxy:
            statuses = await attempts(proxy, http, https, tmp_path / "ca" / "mitmproxy-ca-cert.pem")
            assert statuses == ([0, 403] if part == "layers.refusal_response" else [403, 403])
    assert http.untouched
    assert https.untouched


def request_to(origin: Origin) -> bytes:
    target = f"origin.test:{origin.port}"
    return f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()


async def test_too_many_open_questions_of_a_session_are_denied_at_once(
    tmp_path: Path, upstream_ca: Path, http: Origin
) -> None:
    async with (
        running_egress(tmp_path, upstream_ca) as supervisor,
        serving(supervisor, "s") as proxy,
    ):
        supervisor.decide = lambda question: None
        writers = []
        for _ in range(256):
            _, writer = await proxy.open()
            writer.write(request_to(http))
            writers.append(writer)
        await supervisor.until(Question, 256)
        answer = await proxy.send(request_to(http))
        assert status_of(answer) == 403
        assert "too many" in body_of(answer)["why"]
        async with serving(supervisor, "other") as other:  # another session isn't held up
            supervisor.decide = lambda question: Answer(
                question_id=question.question_id, decision="allow", private_ok=True
            )
            assert status_of(await other.send(request_to(http))) == 200
        for writer in writers:
            writer.close()


async def test_egress_gives_up_what_it_does_not_need(tmp_path: Path, upstream_ca: Path) -> None:
    async with running_egress(tmp_path, upstream_ca, preface="") as supervisor:
        status = Path(f"/proc/{supervisor.child.pid}/status").read_text()
        assert "NoNewPrivs:\t1" in status
        limits = Path(f"/proc/{supervisor.child.pid}/limits").read_text()
        assert next(line for line in limits.splitlines() if "core file" in line).split()[4] == "0"
        assert b"KEY" not in bytes_if_shown(supervisor.child.pid, "environ")


async def test_egress_killed_leaves_nothing_open(
    tmp_path: Path, upstream_ca: Path, http: Origin
) -> None:
    async with (
        running_egress(tmp_path, upstream_ca, preface="") as supervisor,
        serving(supervisor, "s") as proxy,
    ):
        supervisor.decide = lambda question: None
        reader, writer = await proxy.open()
        writer.write(request_to(http))
        await supervisor.until(Question)
        os.kill(supervisor.child.pid, signal.SIGKILL)
        assert await answer_of(reader) == b""
        writer.close()
        await supervisor.ended.wait()
    assert http.untouched


async def test_a_socket_that_can_not_be_served_ends_nothing_else(
    tmp_path: Path, upstream_ca: Path
) -> None:
    """Neither the process nor what the session has besides, and it may be opened again."""
    no_thread_once = """
import threading
start = threading.Thread.start
def fail(thread):
    threading.Thread.start = start
    raise RuntimeError("can't start new thread")
threading.Thread.start = fail
"""
    loop = asyncio.get_running_loop()
    async with (
        running_egress(tmp_path, upstream_ca, preface=no_thread_once) as supervisor,
        serving(supervisor, "s") as proxy,
    ):
        supervisor.decide = deny
        reader, writer = await proxy.open()
        where = ("127.0.0.1", 0)
        for _ in range(2):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as names:
                names.bind(
                    where
                )  # at the same port the second time, which egress doesn't hold any more
                where = names.getsockname()
                supervisor.send(
                    OpenListener(session_id="s", listener_id=99, kind="names"), [names.fileno()]
                )
                writer.write(b"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n")
                assert status_of(await answer_of(reader)) == 403
                writer.close()
                reader, writer = await proxy.open()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.setblocking(False)
            client.connect(where)
            async with asyncio.timeout(PATIENCE_S):
                client.send(dns.message.make_query("a.test", "A").to_wire())
                assert await loop.sock_recv(client, 1024)
        writer.close()
