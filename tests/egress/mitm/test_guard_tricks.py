"""How other proxies of this kind were got around, and a test for each way: whatever a client says,
the origin sees no byte of it.

`TRICKS` is the list; what has no test elsewhere is tried here, by raw sockets.
"""

import asyncio
import contextlib
import re
import ssl
from pathlib import Path

import pytest

from supervisor.core.network.egress_wire import Answer, Question
from supervisor.egress.mitm.guard import UNASKED as UNASKED_FOR
from tests.egress.egress_harness import (
    Decide,
    Origin,
    Proxy,
    allow,
    answer_of,
    body_of,
    deny,
    running_egress,
    serving,
    status_of,
)
from tests.egress.hellos import client_hello, extension, with_extension
from tests.egress.test_front_hostile import at, h2_headers, over_h2
from tests.fakes.waiting import PATIENCE_S

pytestmark = pytest.mark.asyncio(loop_scope="module")
TESTS = Path(__file__).parents[2]

TRICKS = {
    "an empty list of allowed hosts opens everything": [
        "network/test_egress_questions_tricks.py::test_an_empty_policy_opens_nothing"
    ],
    "a NUL cuts the name that is resolved, not the one that is compared": [
        "egress/test_front_hostile.py::test_a_contradictory_request_never_reaches_the_origin",
        "egress/mitm/test_guard_tricks.py::test_a_host_that_is_no_name_is_not_connected_to",
        "egress/test_tunnels.py::test_tls_to_anything_else_is_refused",
    ],
    "SOCKS, or any other protocol, to the proxy's port": [
        "egress/test_front_hostile.py::test_a_contradictory_request_never_reaches_the_origin"
    ],
    "a connection that was allowed lends its verdict to the next request": [
        "egress/mitm/test_guard_tricks.py::test_a_later_request_of_an_allowed_connection_is_refused_by_itself",
        "egress/test_front_hostile.py::test_each_request_of_a_kept_connection_is_asked_about",
        "egress/test_front_hostile.py::test_pipelined_requests_are_asked_about_one_by_one",
    ],
    "Host names another host than the one that is dialled": [
        "egress/test_front_hostile.py::test_a_contradictory_request_never_reaches_the_origin",
        "egress/test_front_hostile.py::test_contradictions_inside_of_tls",
        "egress/test_front_hostile.py::test_http2_contradictions",
    ],
    "raw TCP through CONNECT": [
        "egress/test_front_hostile.py::test_raw_bytes_in_a_connect_are_never_relayed",
        "egress/test_tunnels.py::test_what_is_no_tls_is_refused",
    ],
    "domain fronting: TLS names another host than CONNECT": [
        "egress/test_front_hostile.py::test_another_server_name_in_tls_ends_the_connection",
        "egress/test_tunnels.py::test_tls_to_anything_else_is_refused",
        "egress/test_tunnels.py::test_a_second_hello_with_another_name_is_refused",
    ],
    "an encrypted ClientHello hides the name": [
        "egress/mitm/test_guard_tricks.py::test_of_an_encrypted_hello_nothing_passes_what_looks_inside",
        "egress/test_tunnels.py::test_tls_to_anything_else_is_refused",
    ],
    "the plain-HTTP path skips the rules about methods and paths": [
        "network/test_egress_questions_tricks.py::test_no_spelling_of_a_path_gets_around_a_rule",
        "network/test_egress_questions_what_is_open.py::test_of_a_plain_request",
    ],
    "a request behind a body, or in one": [
        "egress/test_front_hostile.py::test_a_second_request_behind_a_refused_one_is_not_smuggled",
        "egress/mitm/test_guard_tricks.py::test_what_hides_behind_a_body_is_a_request_of_its_own",
        "egress/test_tunnels.py::test_what_follows_a_refused_connect_is_no_request",
    ],
    "lengths and codings that contradict each other": [
        "egress/test_front_hostile.py::test_a_contradictory_request_never_reaches_the_origin",
        "egress/test_front_hostile.py::test_http2_contradictions",
        "egress/mitm/test_guard_tricks.py::test_a_body_with_two_readings_carries_no_second_request",
    ],
    "an upgrade to h2c": [
        "egress/test_front_hostile.py::test_a_contradictory_request_never_reaches_the_origin",
        "egress/test_front_hostile.py::test_contradictions_inside_of_tls",
    ],
    "an upgrade to WebSocket that fails, and goes on as HTTP": [
        "egress/mitm/test_guard_tricks.py::test_what_follows_a_websocket_that_never_was_is_judged"
    ],
    "an origin that switches protocols though nobody asked it to": [
        "egress/mitm/test_guard_tricks.py::test_an_origin_that_switches_protocols_unasked_opens_nothing"
    ],
    "dot segments, parameters, encoded slashes and percent-encodings in a path": [
        "network/test_egress_questions_tricks.py::test_no_spelling_of_a_path_gets_around_a_rule",
        "egress/test_front_hostile.py::test_a_path_reaches_the_rules_and_the_origin_as_it_was_written",
    ],
    "a tunnel to a host with a credential skips its rules": [
        "egress/test_tunnels.py::test_a_host_with_a_credential_is_looked_into_whatever_is_said",
        "network/test_network_tunnels.py::test_a_host_with_a_credential_is_looked_into",
    ],
    "a name that leads inside, at once or at the second look-up": [
        "egress/loop/test_addresses.py::test_an_allow_that_does_not_name_the_address_reaches_none",
        "egress/loop/test_addresses.py::test_addresses_that_the_rules_do_not_allow_are_not_dialled",
    ],
    "a redirect to what is denied": [
        "egress/loop/test_addresses.py::test_a_redirect_is_a_request_like_any_other"
    ],
    "a name that is looked up before it is judged carries data out": [
        "egress/loop/test_addresses.py::test_a_name_is_looked_up_only_after_it_was_allowed",
        "escape/test_escape.py::test_every_attempt_is_stopped",
    ],
    "the supervisor's own addresses are exempt, or reachable through the proxy": [
        "egress/loop/test_addresses.py::test_gatehouse_is_refused_even_where_a_rule_names_it",
        "egress/loop/test_addresses.py::test_gatehouse_is_refused_in_every_spelling",
        "egress/loop/test_addresses.py::test_a_listener_on_every_address_is_refused_at_each",
        "egress/test_front_hostile.py::test_connect_says_why",
    ],
    "the proxy's own pages": [
        "egress/test_front_hostile.py::test_a_contradictory_request_never_reaches_the_origin"
    ],
    "QUIC: an origin advertises it": [
        "egress/mitm/test_guard_tricks.py::test_another_way_round_is_not_advertised",
        "egress/mitm/test_http2.py::test_nobody_is_sent_round_by_http3",
    ],
    "an exception lets the request through": [
        "egress/loop/test_failures.py::test_a_part_that_raises_lets_nothing_through",
        "egress/loop/test_failures.py::test_a_part_of_the_tunnel_that_raises_passes_nothing_on",
    ],
    "asking again until somebody is tired": [
        "network/test_egress_questions_held.py::test_what_was_denied_is_denied_again_without_a_card",
        "network/test_egress_questions_held.py::test_the_policy_says_how_long_and_a_loop_is_one_card",
    ],
}


@pytest.mark.parametrize("named", sorted({one for tests in TRICKS.values() for one in tests}))
async def test_every_trick_is_tried_by_a_test_that_exists(named: str) -> None:
    path, _, name = named.partition("::")
    text = (TESTS / path).read_text()
    assert re.search(rf"^(async )?def {name}\(", text, re.MULTILINE)


def only(path: str) -> Decide:
    """Allow connections and requests for this path; deny all else."""

    def decide(question: Question) -> Answer:
        action = question.action
        is_fine = action.operation == "connect" or (
            action.path == path and action.method in ("GET", "POST")
        )
        return allow(question) if is_fine or question.after is not None else deny(question)

    return decide


# -- hosts ----------------------------------------------------------------------------------------

NO_NAMES = {
    "NUL": "origin.test\x00.evil.test",
    "NUL in front": "evil.test\x00.origin.test",
    "encoded NUL": "evil.test%00.origin.test",
    "a slash": "evil.test/.origin.test",
    "a question mark": "evil.test?.origin.test",
    "a user": "origin.test@evil.test",
    "a bracket": "[origin.test]",
    "a tab": "evil.test\t.origin.test",
    "a zone": "[fe80::1%25lo]",
    "a label too long": f"{'a' * 64}.origin.test",
    "an empty label": "evil..origin.test",
    "fullwidth": "\uff4frigin.test",
    "a raw byte": "or\xefgin.test",
}


@pytest.mark.parametrize("host", NO_NAMES.values(), ids=NO_NAMES)
async def test_a_host_that_is_no_name_is_not_connected_to(
    proxy: Proxy, http: Origin, host: str
) -> None:
    target = f"{host}:{http.port}"
    for text in (
        f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n",
        f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n",
    ):
        answer = await proxy.send(text.encode("utf-8", "surrogateescape"), eof=True)
        assert status_of(answer) in (0, 400, 403)
    assert http.untouched


async def test_of_an_encrypted_hello_nothing_passes_what_looks_inside(
    proxy: Proxy, https: Origin
) -> None:
    """Egress answers it itself, by the outer name: the origin is not even dialled."""
    reader, writer = await proxy.open()
    writer.write(f"CONNECT {at(https)} HTTP/1.1\r\nHost: {at(https)}\r\n\r\n".encode())
    assert status_of(await answer_of(reader)) == 200
    writer.write(
        with_extension(client_hello("origin.test"), extension(0xFE0D, b"\x00" + bytes(200)))
    )
    async with asyncio.timeout(PATIENCE_S):
        assert (await reader.readexactly(6))[
            ::5
        ] == b"\x16\x02"  # a handshake record with a ServerHello
    writer.close()
    assert https.untouched


# -- requests of one connection -------------------------------------------------------------------


async def test_a_later_request_of_an_allowed_connection_is_refused_by_itself(
    proxy: Proxy, http: Origin, https: Origin, ca_file: Path
) -> None:
    proxy.supervisor.decide = only("/fine")
    reader, writer = await proxy.open()
    for path, expected in (("/fine", 200), ("/other", 403)):
        writer.write(f"GET http://{at(http)}{path} HTTP/1.1\r\nHost: {at(http)}\r\n\r\n".encode())
        assert status_of(await answer_of(reader)) == expected
    writer.close()
    assert b"/other" not in http.received
    reader, writer = await proxy.tunnel(at(https), trust=ca_file)
    for path, expected in (("/fine", 200), ("/other", 403)):
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {at(https)}\r\n\r\n".encode())
        assert status_of(await answer_of(reader)) == expected
    writer.close()
    assert b"/other" not in https.received
    status, _ = await over_h2(proxy, https, ca_file, h2_headers(https, path="/other"))
    assert status == 403
    assert b"/other" not in https.received


BODIES = {
    "behind a length": "Content-Length: 5\r\n\r\nhello",
    "behind chunks": "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "behind a chunk's extension": "Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\n\r\n",
    "behind a trailer": "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-A: b\r\n\r\n",
    "behind nothing": "Content-Length: 0\r\n\r\n",
    "behind an expectation": "Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_what_hides_behind_a_body_is_a_request_of_its_own(
    proxy: Proxy, http: Origin, body: str
) -> None:
    proxy.supervisor.decide = only("/fine")
    smuggled = f"GET http://{at(http)}/smuggled HTTP/1.1\r\nHost: {at(http)}\r\n\r\n"
    await everything(
        proxy, f"POST http://{at(http)}/fine HTTP/1.1\r\nHost: {at(http)}\r\n{body}{smuggled}"
    )
    assert b"/smuggled" not in http.received
    assert {q.action.path for q in proxy.supervisor.questions} <= {"/fine", "/smuggled"}


TWO_READINGS = {
    "a signed size": "+5\r\nhello\r\n0\r\n\r\n",
    "a negative size": "-1\r\nhello\r\n0\r\n\r\n",
    "a prefixed size": "0x5\r\nhello\r\n0\r\n\r\n",
    "an underscore": "0_5\r\nhello\r\n0\r\n\r\n",
    "a size with a space before": " 5\r\nhello\r\n0\r\n\r\n",
    "a size too large": "fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    "no size": "\r\nhello\r\n0\r\n\r\n",
    "a bare line feed": "5\nhello\n0\n\n",
    "more than the size": "3\r\nhello\r\n0\r\n\r\n",
    "a line feed in an extension": "5;a\nb\r\nhello\r\n0\r\n\r\n",
    "a zero in pieces": "00000\r\nhello",
}


@pytest.mark.parametrize("body", TWO_READINGS.values(), ids=TWO_READINGS)
async def test_a_body_with_two_readings_carries_no_second_request(
    proxy: Proxy, http: Origin, body: str
) -> None:
    proxy.supervisor.decide = only("/fine")
    smuggled = f"GET http://{at(http)}/smuggled HTTP/1.1\r\nHost: {at(http)}\r\n\r\n"
    head = (
        f"POST http://{at(http)}/fine HTTP/1.1\r\nHost: {at(http)}\r\nTransfer-Encoding:"
        " chunked\r\n\r\n"
    )
    await everything(proxy, head + body + smuggled)
    # Read as requests, as an origin would: none of them is the second.
    assert not re.search(rb"^GET [^ ]*/smuggled HTTP", bytes(http.received), re.MULTILINE)


async def test_a_layer_that_raises_ends_the_connection(
    tmp_path: Path, upstream_ca: Path, http: Origin
) -> None:
    """mitmproxy notes it and leaves both sides waiting; a client that can provoke it must not
    hold a connection so."""
    chunked = (
        f"POST http://{at(http)}/ HTTP/1.1\r\nHost: {at(http)}\r\nTransfer-Encoding:"
        " chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    )
    async with (
        running_egress(tmp_path, upstream_ca, broken="BoundedReader.__call__") as supervisor,
        serving(supervisor, "s") as proxy,
    ):
        reader, writer = await proxy.open()
        writer.write(chunked.encode())
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()
        assert b"hello" not in http.received
        answer = await proxy.send(
            f"GET http://{at(http)}/ HTTP/1.1\r\nHost: {at(http)}\r\n\r\n".encode()
        )
        assert status_of(answer) == 200  # others go on


async def test_trailers_of_an_origin_are_left_out(proxy: Proxy, http: Origin) -> None:
    http.respond = lambda head: (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n"
    )
    reader, writer = await proxy.open()
    for _ in range(2):
        writer.write(f"GET http://{at(http)}/ HTTP/1.1\r\nHost: {at(http)}\r\n\r\n".encode())
        async with asyncio.timeout(PATIENCE_S):
            assert status_of(await reader.readuntil(b"\r\n\r\n")) == 200
            assert b"X-Sum" not in await reader.readuntil(b"0\r\n\r\n")
    writer.close()


async def everything(proxy: Proxy, text: str) -> bytes:
    """What comes back until the proxy closes or falls silent."""
    reader, writer = await proxy.open()
    found = b""
    try:
        writer.write(text.encode("latin-1"))
        writer.write_eof()
        async with asyncio.timeout(20):
            while data := await reader.read(65536):
                found += data
    except (TimeoutError, ConnectionError):
        pass
    finally:
        writer.close()
    return found


# -- other protocols ------------------------------------------------------------------------------

WEBSOCKET = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 777\r\nSec-WebSocket-Key:"
    " AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)
REFUSED = b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\n\r\n"
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n"


async def test_what_follows_a_websocket_that_never_was_is_judged(
    proxy: Proxy, http: Origin, https: Origin, ca_file: Path
) -> None:
    proxy.supervisor.decide = only("/fine")
    for origin in (http, https):
        origin.respond = lambda head: REFUSED
    reader, writer = await proxy.open()
    writer.write(
        f"GET http://{at(http)}/fine HTTP/1.1\r\nHost: {at(http)}\r\n{WEBSOCKET}\r\n".encode()
    )
    assert status_of(await answer_of(reader)) == 426
    writer.write(f"GET http://{at(http)}/smuggled HTTP/1.1\r\nHost: {at(http)}\r\n\r\n".encode())
    assert status_of(await answer_of(reader)) in (0, 403)
    writer.close()
    assert b"/smuggled" not in http.received
    reader, writer = await proxy.tunnel(at(https), trust=ca_file)
    writer.write(f"GET /fine HTTP/1.1\r\nHost: {at(https)}\r\n{WEBSOCKET}\r\n".encode())
    assert status_of(await answer_of(reader)) == 426
    writer.write(f"GET /smuggled HTTP/1.1\r\nHost: {at(https)}\r\n\r\n".encode())
    assert status_of(await answer_of(reader)) in (0, 403)
    writer.close()
    assert b"/smuggled" not in https.received


# By the last of them mitmproxy takes a request for one that asks for a WebSocket.
UNASKED = ["", "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"]


@pytest.mark.parametrize("more", UNASKED, ids=["plain", "half asked"])
@pytest.mark.parametrize("to", [b"h2c", b"websocket", b"raw"])
async def test_an_origin_that_switches_protocols_unasked_opens_nothing(
    proxy: Proxy, http: Origin, https: Origin, ca_file: Path, to: bytes, more: str
) -> None:
    proxy.supervisor.decide = only("/fine")
    for origin in (http, https):
        origin.respond = lambda head: SWITCHED % to
    reader, writer = await proxy.open()
    writer.write(f"GET http://{at(http)}/fine HTTP/1.1\r\nHost: {at(http)}\r\n{more}\r\n".encode())
    answer = await answer_of(reader)
    assert (status_of(answer), body_of(answer)["why"]) == (403, UNASKED_FOR)
    assert (await proxy.supervisor.settled()).outcome == "failed"
    await said(
        writer, reader, f"GET http://{at(http)}/smuggled HTTP/1.1\r\nHost: {at(http)}\r\n\r\n"
    )
    assert b"/smuggled" not in http.received
    reader, writer = await proxy.tunnel(at(https), trust=ca_file)
    writer.write(f"GET /fine HTTP/1.1\r\nHost: {at(https)}\r\n{more}\r\n".encode())
    assert status_of(await answer_of(reader)) == 403
    await said(writer, reader, f"GET /smuggled HTTP/1.1\r\nHost: {at(https)}\r\n\r\n")
    assert b"/smuggled" not in https.received


async def said(writer: asyncio.StreamWriter, reader: asyncio.StreamReader, text: str) -> None:
    """Say something, and wait for what becomes of it: an answer, or the end."""
    try:
        writer.write(text.encode())
        async with asyncio.timeout(5):
            await reader.read(65536)
    except (TimeoutError, ConnectionError, ssl.SSLError):
        pass
    finally:
        writer.close()


async def test_another_way_round_is_not_advertised(
    proxy: Proxy, http: Origin, https: Origin, ca_file: Path
) -> None:
    for origin in (http, https):
        origin.respond = lambda head: (
            b'HTTP/1.1 200 OK\r\nAlt-Svc: h3=":443"; ma=86400\r\nX-Kept: 1\r\nContent-Length:'
            b" 2\r\n\r\nok"
        )
    plain = await proxy.send(
        f"GET http://{at(http)}/ HTTP/1.1\r\nHost: {at(http)}\r\n\r\n".encode()
    )
    for answer in (plain, await proxy.get_inside(at(https), ca_file)):
        assert status_of(answer) == 200
        assert b"x-kept" in answer.lower()
        assert b"alt-svc" not in answer.lower()
