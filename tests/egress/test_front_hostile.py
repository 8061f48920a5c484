"""Domain fronting and contradictory requests by raw sockets: the origin sees no byte of them.

Everything is allowed by the supervisor here: what is refused is refused by egress itself.
"""

import asyncio
import ssl
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import pytest

from supervisor.core.network.egress_wire import EgressRefused
from tests.egress.egress_harness import (
    Origin,
    Proxy,
    RefusedTunnelError,
    answer_of,
    body_of,
    status_of,
)
from tests.fakes.waiting import PATIENCE_S

pytestmark = pytest.mark.asyncio(loop_scope="module")


def at(origin: Origin, host: str = "origin.test") -> str:
    return f"{host}:{origin.port}"


PLAIN = {
    "another Host": "GET http://{o}/ HTTP/1.1\r\nHost: other.test:{p}\r\n\r\n",
    "another port in Host": "GET http://{o}/ HTTP/1.1\r\nHost: origin.test:1\r\n\r\n",
    "two Hosts": "GET http://{o}/ HTTP/1.1\r\nHost: {o}\r\nHost: other.test\r\n\r\n",
    "two equal Hosts": "GET http://{o}/ HTTP/1.1\r\nHost: {o}\r\nHost: {o}\r\n\r\n",
    "no Host": "GET http://{o}/ HTTP/1.1\r\n\r\n",
    "no Host in HTTP/1.0": "GET http://{o}/ HTTP/1.0\r\n\r\n",
    "Host with user": "GET http://{o}/ HTTP/1.1\r\nHost: a@{o}\r\n\r\n",
    "user in the target": "GET http://a:b@{o}/ HTTP/1.1\r\nHost: {o}\r\n\r\n",
    "origin form": "GET / HTTP/1.1\r\nHost: {o}\r\n\r\n",
    "the proxy's own page": "GET http://mitm.it/ HTTP/1.1\r\nHost: mitm.it\r\n\r\n",
    "https without CONNECT": "GET https://{o}/ HTTP/1.1\r\nHost: {o}\r\n\r\n",
    "another scheme": "GET ftp://{o}/ HTTP/1.1\r\nHost: {o}\r\n\r\n",
    "asterisk": "OPTIONS * HTTP/1.1\r\nHost: {o}\r\n\r\n",
    "lower-case method": "get http://{o}/ HTTP/1.1\r\nHost: {o}\r\n\r\n",
    "TRACE": "TRACE http://{o}/ HTTP/1.1\r\nHost: {o}\r\n\r\n",
    "HTTP/0.9": "GET http://{o}/\r\n\r\n",
    "HTTP/2 prior knowledge": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/3.7": "GET http://{o}/ HTTP/3.7\r\nHost: {o}\r\n\r\n",
    "two lengths": (
        "POST http://{o}/ HTTP/1.1\r\nHost: {o}\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"
    ),
    "two equal lengths": (
        "POST http://{o}/ HTTP/1.1\r\nHost: {o}\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab"
    ),
    "length list": "POST http://{o}/ HTTP/1.1\r\nHost: {o}\r\nContent-Length: 2, 2\r\n\r\nab",
    "signed length": "POST http://{o}/ HTTP/1.1\r\nHost: {o}\r\nContent-Length: +2\r\n\r\nab",
    "length and chunked": (
        "POST http://{o}/ HTTP/1.1\r\nHost: {o}\r\nContent-Length: 3\r\nTransfer-Encoding:"
        " chunked\r\n\r\n0\r\n\r\n"
    ),
    "chunked twice": (
        "POST http://{o}/ HTTP/1.1\r\nHost: {o}\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding:"
        " chunked\r\n\r\n0\r\n\r\n"
    ),
    "unknown coding": (
        "POST http://{o}/ HTTP/1.1\r\nHost: {o}\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"
    ),
    "coding with a tab": (
        "POST http://{o}/ HTTP/1.1\r\nHost: {o}\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n"
    ),
    "space before colon": "POST http://{o}/ HTTP/1.1\r\nHost: {o}\r\nContent-Length : 2\r\n\r\nab",
    "folded header": "GET http://{o}/ HTTP/1.1\r\nHost: {o}\r\nX-A: 1\r\n folded\r\n\r\n",
    "control in a value": "GET http://{o}/ HTTP/1.1\r\nHost: {o}\r\nX-A: a\x00b\r\n\r\n",
    "bare CR in a value": (
        "GET http://{o}/ HTTP/1.1\r\nHost: {o}\r\nX-A: a\rContent-Length: 5\r\n\r\n"
    ),
    "h2c upgrade": (
        "GET http://{o}/ HTTP/1.1\r\nHost: {o}\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade:"
        " h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
    ),
    "h2c in other letters": (
        "GET http://{o}/ HTTP/1.1\r\nHost: {o}\r\nConnection: Upgrade\r\nUpgrade: H2C\r\n\r\n"
    ),
    "h2c beside websocket": (
        "GET http://{o}/ HTTP/1.1\r\nHost: {o}\r\nConnection: Upgrade\r\nUpgrade: websocket,"
        " h2c\r\n\r\n"
    ),
    "settings only": (
        "GET http://{o}/ HTTP/1.1\r\nHost: {o}\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
    ),
    "upgrade to TLS": (
        "GET http://{o}/ HTTP/1.1\r\nHost: {o}\r\nConnection: Upgrade\r\nUpgrade: TLS/1.2\r\n\r\n"
    ),
    "raw non-ASCII path": "GET http://{o}/\xe9 HTTP/1.1\r\nHost: {o}\r\n\r\n",
    "backslash path": "GET http://{o}/a\\..\\b HTTP/1.1\r\nHost: {o}\r\n\r\n",
    "fragment": "GET http://{o}/a#b HTTP/1.1\r\nHost: {o}\r\n\r\n",
    "NUL in the host": (
        "GET http://evil\x00.origin.test:{p}/ HTTP/1.1\r\nHost: evil\x00.origin.test:{p}\r\n\r\n"
    ),
    "encoded NUL in the host": (
        "GET http://evil%00.origin.test:{p}/ HTTP/1.1\r\nHost: evil%00.origin.test:{p}\r\n\r\n"
    ),
    "space in the target": "GET http://{o}/a b HTTP/1.1\r\nHost: {o}\r\n\r\n",
    "long path": "GET http://{o}/" + "a" * 20_000 + " HTTP/1.1\r\nHost: {o}\r\n\r\n",
    "endless head": "GET http://{o}/ HTTP/1.1\r\nHost: {o}\r\nX: " + "a" * 200_000,
    "many headers": (
        "GET http://{o}/ HTTP/1.1\r\nHost: {o}\r\n"
        + "".join(f"X-{i}: 1\r\n" for i in range(300))
        + "\r\n"
    ),
    "garbage": "\x01\x02\x03\x04\r\n\r\n",
    "TLS to the proxy": "\x16\x03\x01\x00\x05hello\r\n\r\n",
    "SOCKS": "\x05\x01\x00\r\n\r\n",
    "CONNECT without port": "CONNECT origin.test HTTP/1.1\r\n\r\n",
    "CONNECT without Host": "CONNECT {o} HTTP/1.1\r\n\r\n",
    "CONNECT with a path": "CONNECT {o}/x HTTP/1.1\r\n\r\n",
    "CONNECT to port 0": "CONNECT origin.test:0 HTTP/1.1\r\n\r\n",
    "CONNECT with another Host": "CONNECT {o} HTTP/1.1\r\nHost: other.test:{p}\r\n\r\n",
    "CONNECT with a body": "CONNECT {o} HTTP/1.1\r\nHost: {o}\r\nContent-Length: 3\r\n\r\nabc",
    "CONNECT to a URL": "CONNECT http://{o}/ HTTP/1.1\r\nHost: {o}\r\n\r\n",
}


@pytest.mark.parametrize("text", PLAIN.values(), ids=PLAIN)
async def test_a_contradictory_request_never_reaches_the_origin(
    proxy: Proxy, http: Origin, text: str
) -> None:
    data = text.replace("{o}", at(http)).replace("{p}", str(http.port))
    answer = await proxy.send(data.encode("latin-1"), eof=True)
    assert status_of(answer) != 200
    assert http.untouched


OVERRIDES = {
    "another method": "X-HTTP-Method-Override: DELETE",
    "in Microsoft's words": "x-http-method: DELETE",
    "in IBM's": "X-METHOD-OVERRIDE: delete",
    "as a CGI reads it": "X_HTTP_Method_Override: DELETE",
    "once right and once not": "X-HTTP-Method-Override: POST\r\nX-HTTP-Method-Override: DELETE",
    "two at once": "X-HTTP-Method-Override: POST, DELETE",
    "another path": "X-Original-URL: /admin",
    "in other words": "x-rewrite-url: /admin",
    "the same path": "X-Original-URL: /",
}


@pytest.mark.parametrize("header", OVERRIDES.values(), ids=OVERRIDES)
async def test_no_header_makes_another_request_of_it(
    proxy: Proxy, http: Origin, header: str
) -> None:
    """Servers that obey it would do what no rule and no binding allowed."""
    answer = await proxy.send(
        f"POST http://{at(http)}/ HTTP/1.1\r\nHost: {at(http)}\r\n{header}\r\n\r\n".encode()
    )
    assert status_of(answer) == 403
    assert header.partition(":")[0].lower().replace("_", "-") in body_of(answer)["why"]
    assert "one thing only" in body_of(answer)["remedy"]
    assert http.untouched


async def test_a_header_that_repeats_the_method_contradicts_nothing(
    proxy: Proxy, http: Origin
) -> None:
    said = "X-HTTP-Method-Override: post \r\nX-Method: DELETE"
    answer = await proxy.send(
        f"POST http://{at(http)}/ HTTP/1.1\r\nHost: {at(http)}\r\n{said}\r\n\r\n".encode()
    )
    assert status_of(answer) == 200


async def test_a_second_request_behind_a_refused_one_is_not_smuggled(
    proxy: Proxy, http: Origin
) -> None:
    smuggled = f"GET http://{at(http)}/smuggled HTTP/1.1\r\nHost: {at(http)}\r\n\r\n"
    first = (
        f"POST http://{at(http)}/ HTTP/1.1\r\nHost: other.test\r\nContent-Length:"
        f" {len(smuggled)}\r\n\r\n"
    )
    assert status_of(await proxy.send((first + smuggled).encode())) == 403
    assert http.untouched


async def test_each_request_of_a_kept_connection_is_asked_about(proxy: Proxy, http: Origin) -> None:
    reader, writer = await proxy.open()
    for path in ("/1", "/2", "/3"):
        writer.write(f"GET http://{at(http)}{path} HTTP/1.1\r\nHost: {at(http)}\r\n\r\n".encode())
        assert status_of(await answer_of(reader)) == 200
    writer.close()
    assert [q.action.path for q in proxy.supervisor.questions if q.after is None] == [
        "/1",
        "/2",
        "/3",
    ]


async def test_pipelined_requests_are_asked_about_one_by_one(proxy: Proxy, http: Origin) -> None:
    reader, writer = await proxy.open()
    for path in ("/1", "/2"):
        writer.write(f"GET http://{at(http)}{path} HTTP/1.1\r\nHost: {at(http)}\r\n\r\n".encode())
    assert b"/1" in await answer_of(reader)
    assert b"/2" in await answer_of(reader)
    writer.close()
    assert [q.action.path for q in proxy.supervisor.questions if q.after is None] == ["/1", "/2"]


RAW = {
    "SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
    "zeros": b"\x00" * 64,
    "one byte": b"\x00",
    "half a TLS record": b"\x16\x03\x09garbage",
    "lower-case": b"hello there\r\n\r\n",
    "SMTP": b"EHLO me\r\n",
    "postgres": b"\x00\x00\x00\x08\x04\xd2\x16\x2f",
    "HTTP/2 in the clear": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a CONNECT in a CONNECT": b"CONNECT other.test:443 HTTP/1.1\r\n\r\n",
    "another Host": b"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n",
    "an absolute target": b"GET http://other.test/ HTTP/1.1\r\nHost: origin.test\r\n\r\n",
    "no Host": b"GET / HTTP/1.1\r\n\r\n",
    "words for ever": b"A" * 100_000,
}


@pytest.mark.parametrize("data", RAW.values(), ids=RAW)
async def test_raw_bytes_in_a_connect_are_never_relayed(
    proxy: Proxy, http: Origin, data: bytes
) -> None:
    reader, writer = await proxy.open()
    writer.write(f"CONNECT {at(http)} HTTP/1.1\r\nHost: {at(http)}\r\n\r\n".encode())
    assert status_of(await answer_of(reader)) == 200
    writer.write(data)
    writer.write_eof()
    try:
        answer = await answer_of(reader)
    finally:
        writer.close()
    assert status_of(answer) != 200
    assert http.untouched


async def test_plain_http_in_a_connect_is_judged_as_such(proxy: Proxy, http: Origin) -> None:
    reader, writer = await proxy.open()
    writer.write(
        f"CONNECT {at(http)} HTTP/1.1\r\nHost: {at(http)}\r\n\r\nGET /x HTTP/1.1\r\nHost:"
        f" {at(http)}\r\n\r\n".encode()
    )
    assert b"200 Connection established" in await reader.readuntil(b"\r\n\r\n")
    assert status_of(await answer_of(reader)) == 200
    writer.close()
    last = proxy.supervisor.questions[-1]
    assert (last.action.scheme, last.in_tunnel) == ("http", True)


@pytest.mark.parametrize("sni", ["other.test", "xn--a", "origin.test.other.test"])
async def test_another_server_name_in_tls_ends_the_connection(
    proxy: Proxy, https: Origin, ca_file: Path, sni: str
) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await proxy.tunnel(at(https), sni=sni, trust=ca_file)
    refused = await proxy.supervisor.until(EgressRefused)
    assert "TLS names" in refused.why
    assert https.untouched


async def test_no_server_name_contradicts_nothing(
    proxy: Proxy, https: Origin, ca_file: Path
) -> None:
    reader, writer = await proxy.tunnel(f"127.0.0.1:{https.port}", trust=ca_file)
    writer.write(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{https.port}\r\n\r\n".encode())
    assert status_of(await answer_of(reader)) == 200
    writer.close()


TUNNELLED = {
    "another Host": "GET / HTTP/1.1\r\nHost: other.test\r\n\r\n",
    "another port": "GET / HTTP/1.1\r\nHost: origin.test:1\r\n\r\n",
    "an absolute target": "GET https://other.test/ HTTP/1.1\r\nHost: {o}\r\n\r\n",
    "an absolute target of the same host": "GET https://{o}/ HTTP/1.1\r\nHost: {o}\r\n\r\n",
    "a CONNECT": "CONNECT other.test:443 HTTP/1.1\r\nHost: other.test:443\r\n\r\n",
    "two lengths": (
        "POST / HTTP/1.1\r\nHost: {o}\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"
    ),
    "h2c": "GET / HTTP/1.1\r\nHost: {o}\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
    "raw bytes": "\x00\x01\x02\r\n\r\n",
    "TLS in TLS": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
}


@pytest.mark.parametrize("text", TUNNELLED.values(), ids=TUNNELLED)
async def test_contradictions_inside_of_tls(
    proxy: Proxy, https: Origin, ca_file: Path, text: str
) -> None:
    reader, writer = await proxy.tunnel(at(https), trust=ca_file)
    writer.write(text.replace("{o}", at(https)).encode("latin-1"))
    try:
        answer = await answer_of(reader)
    finally:
        writer.close()
    assert status_of(answer) != 200
    assert https.untouched


@pytest.mark.parametrize(
    "path",
    ["/%2e%2e/secret", "/a/../secret", "/a%2Fb", "//secret", "/a;b=c/../d", "/%00", "/%252e"],
)
async def test_a_path_reaches_the_rules_and_the_origin_as_it_was_written(
    proxy: Proxy, http: Origin, path: str
) -> None:
    await proxy.send(f"GET http://{at(http)}{path} HTTP/1.1\r\nHost: {at(http)}\r\n\r\n".encode())
    assert proxy.supervisor.questions[0].action.path == path
    assert bytes(http.received).startswith(f"GET {path} HTTP/1.1\r\n".encode())


@pytest.mark.parametrize("spelling", ["ORIGIN.test", "origin.test.", "Origin.TEST."])
async def test_every_spelling_of_a_name_is_one_name(
    proxy: Proxy, http: Origin, spelling: str
) -> None:
    target = f"{spelling}:{http.port}"
    answer = await proxy.send(f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    assert status_of(answer) == 200
    assert {q.action.host for q in proxy.supervisor.questions} == {"origin.test"}


# -- HTTP/2 ---------------------------------------------------------------------------------------


async def over_h2(
    proxy: Proxy, origin: Origin, ca_file: Path, headers: list[tuple[str, str]], body: bytes = b""
) -> tuple[int, bytes]:
    """Status and body of one request over HTTP/2, sent without the client's own validation; 0
    where it was cut off."""
    reader, writer = await proxy.tunnel(at(origin), trust=ca_file, alpn=["h2"])
    config = h2.config.H2Configuration(
        client_side=True, validate_outbound_headers=False, normalize_outbound_headers=False
    )
    connection = h2.connection.H2Connection(config)
    connection.initiate_connection()
    connection.send_headers(1, headers, end_stream=not body)
    if body:
        connection.send_data(1, body, end_stream=True)
    writer.write(connection.data_to_send())
    status, received = 0, b""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while data := await reader.read(65536):
                for event in connection.receive_data(data):
                    if isinstance(event, h2.events.ResponseReceived):
                        status = int(dict(event.headers)[b":status"])
                    elif isinstance(event, h2.events.DataReceived):
                        received += event.data
                    elif isinstance(
                        event,
                        h2.events.StreamEnded
                        | h2.events.StreamReset
                        | h2.events.ConnectionTerminated,
                    ):
                        return status, received
                writer.write(connection.data_to_send())
        return status, received
    finally:
        writer.close()


def h2_headers(origin: Origin, *more: tuple[str, str], **changed: str) -> list[tuple[str, str]]:
    pseudo = {"method": "GET", "scheme": "https", "authority": at(origin), "path": "/h2", **changed}
    return [*((f":{name}", value) for name, value in pseudo.items()), *more]


async def test_http2_is_let_through_to_an_http1_origin(
    proxy: Proxy, https: Origin, ca_file: Path
) -> None:
    status, _ = await over_h2(proxy, https, ca_file, h2_headers(https))
    assert status == 200
    assert bytes(https.received).startswith(b"GET /h2 HTTP/1.1\r\n")
    assert proxy.supervisor.questions[-1].action.path == "/h2"


async def test_a_refused_http2_request_gets_the_reason(
    proxy: Proxy, https: Origin, ca_file: Path
) -> None:
    status, body = await over_h2(proxy, https, ca_file, h2_headers(https, authority="other.test"))
    assert status == 403
    assert b"other.test" in body
    assert https.untouched


H2 = {
    "another authority": ({"authority": "other.test"}, ()),
    "an authority of another port": ({"authority": "origin.test:1"}, ()),
    "a Host beside the authority": ({}, (("host", "other.test"),)),
    "an empty authority": ({"authority": ""}, ()),
    "a second line in the path": (
        {"path": "/ HTTP/1.1\r\nHost: other.test\r\n\r\nGET /smuggled"},
        (),
    ),
    "a space in the path": ({"path": "/a b"}, ()),
    "a second line in the method": ({"method": "GET / HTTP/1.1\r\nX: "}, ()),
    "an absolute path": ({"path": "https://other.test/"}, ()),
    "a second line in a value": ({}, (("x-a", "1\r\nhost: other.test"),)),
    "chunked": ({"method": "POST"}, (("transfer-encoding", "chunked"),)),
    "upgrade": ({}, (("upgrade", "h2c"),)),
    "CONNECT": ({"method": "CONNECT"}, ()),
    "TRACE": ({"method": "TRACE"}, ()),
    "a wrong length": ({"method": "POST"}, (("content-length", "3"),)),
}


@pytest.mark.parametrize("case", H2.values(), ids=H2)
async def test_http2_contradictions(
    proxy: Proxy,
    https: Origin,
    ca_file: Path,
    case: tuple[dict[str, str], tuple[tuple[str, str], ...]],
) -> None:
    changed, more = case
    body = b"abcdef" if "content-length" in dict(more) else b""
    status, _ = await over_h2(proxy, https, ca_file, h2_headers(https, *more, **changed), body)
    assert status != 200
    assert https.untouched


async def test_what_is_for_the_proxy_stays_with_the_proxy(proxy: Proxy, http: Origin) -> None:
    await proxy.send(
        f"GET http://{at(http)}/ HTTP/1.1\r\nHost: {at(http)}\r\nProxy-Authorization: Basic"
        " x\r\nProxy-Connection: keep-alive\r\n\r\n".encode()
    )
    assert b"proxy-" not in bytes(http.received).lower()


async def test_a_refusal_of_egress_says_why(proxy: Proxy, http: Origin) -> None:
    answer = await proxy.send(
        f"GET http://{at(http)}/ HTTP/1.1\r\nHost: other.test\r\n\r\n".encode()
    )
    assert "other.test" in body_of(answer)["why"]
    refused = await proxy.supervisor.until(EgressRefused)
    assert refused.action.host_header == "other.test"


async def test_an_origin_that_nobody_vouches_for_is_refused(
    proxy: Proxy, https: Origin, ca_file: Path
) -> None:
    """Its certificate names origin.test and two.test, not other.test."""
    reader, writer = await proxy.tunnel(at(https, "other.test"), trust=ca_file)
    writer.write(f"GET / HTTP/1.1\r\nHost: {at(https, 'other.test')}\r\n\r\n".encode())
    answer = await answer_of(reader)
    writer.close()
    assert status_of(answer) == 502
    assert not https.received


async def test_connect_says_why(proxy: Proxy, https: Origin, ca_file: Path) -> None:
    proxy.forbid(("127.0.0.1", https.port))
    with pytest.raises(RefusedTunnelError) as refused:
        await proxy.tunnel(at(https), trust=ca_file)
    assert "Gatehouse itself" in refused.value.body["why"]
    assert https.untouched
