"""A rule that lets things be read lets nothing be sent: a GET or HEAD with a body, in every way
that one can be framed, with the real gate."""

from pathlib import Path
from typing import cast

import pytest

from tests.egress.egress_harness import FakeSupervisor, Origin, Proxy, answer_of, body_of, status_of
from tests.egress.h2_client import h2_client
from tests.network.conftest import Setting

BODY = b"what is carried out"
FRAMED = {
    "a length": b"Content-Length: %d\r\n\r\n%s" % (len(BODY), BODY),
    "chunks": b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY),
    "an expectation": b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY),
    "an upgrade": (
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nContent-Length: %d\r\n\r\n%s"
        % (len(BODY), BODY)
    ),
}
METHODS = ("GET", "HEAD")


def proxy_of(place: Setting) -> Proxy:
    return Proxy(cast("FakeSupervisor", None), place.session_id, place.port)


def rules(place: Setting, origin: Origin, what: str, mode: str = "ask") -> None:
    place.office.policy(
        f"modes: {{network: {mode}}}\nallow:\n  - network(127.0.0.1:{origin.port})\n  -"
        f" network({what})\n"
    )
    place.office.policies.current()


async def sent(place: Setting, origin: Origin, method: str, framed: bytes, *, tls: bool) -> bytes:
    """The answer to one request, plain or inside of a tunnel."""
    target = f"origin.test:{origin.port}"
    proxy = proxy_of(place)
    if not tls:
        return await proxy.send(
            f"{method} http://{target}/read/x HTTP/1.1\r\nHost: {target}\r\n".encode() + framed
        )
    reader, writer = await proxy.tunnel(target, trust=place.ca_file)
    writer.write(f"{method} /read/x HTTP/1.1\r\nHost: {target}\r\n".encode() + framed)
    answer = await answer_of(reader) if method == "GET" else await reader.readuntil(b"\r\n\r\n")
    writer.close()
    return answer


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "decrypted"])
async def test_what_a_rule_for_a_path_lets_be_read_takes_no_body_along(
    place: Setting, http: Origin, https: Origin, tls: bool
) -> None:
    origin, scheme = (https, "https") if tls else (http, "http")
    base = f"{scheme}://origin.test:{origin.port}"
    rules(place, origin, f"GET,HEAD {base}/read/**")
    for name, framed in FRAMED.items():
        answer = await sent(place, origin, "GET", framed, tls=tls)
        assert status_of(answer) == 403, name
        assert (
            body_of(answer)["why"]
            == f"network(GET,HEAD {base}/read/**) covers a GET, and this one has a body"
        )
        assert "without a body" in body_of(answer)["remedy"]
    assert not origin.received
    assert not place.office.pending(), "it is refused, not asked"


async def test_what_a_rule_for_a_path_lets_be_read_as_a_head_takes_no_body_along(
    place: Setting, https: Origin
) -> None:
    rules(place, https, f"GET,HEAD https://origin.test:{https.port}/read/**")
    for name in ("a length", "chunks", "an expectation"):
        assert status_of(await sent(place, https, "HEAD", FRAMED[name], tls=True)) == 403, name
    assert not https.received


@pytest.mark.parametrize(
    "what", ["origin.test:{}", "* https://origin.test:{}/read/**"], ids=["the host", "every method"]
)
async def test_a_rule_for_the_host_or_for_every_method_lets_it_go(
    place: Setting, https: Origin, what: str
) -> None:
    rules(place, https, what.format(https.port), mode="deny")
    for name in ("a length", "chunks"):
        https.reset()
        answer = await sent(place, https, "GET", FRAMED[name], tls=True)
        assert status_of(answer) == 200
        assert BODY in https.received


async def test_without_a_body_it_goes_out_as_ever(place: Setting, https: Origin) -> None:
    rules(place, https, f"GET https://origin.test:{https.port}/read/**", mode="deny")
    for framed in (b"\r\n", b"Content-Length: 0\r\n\r\n"):
        assert status_of(await sent(place, https, "GET", framed, tls=True)) == 200


async def test_over_http2_frames_behind_the_head_are_a_body(place: Setting, https: Origin) -> None:
    rules(place, https, f"GET,HEAD https://origin.test:{https.port}/read/**")
    target = f"origin.test:{https.port}"
    async with h2_client(proxy_of(place), target, Path(place.ca_file)) as client:
        for method in METHODS:
            for more in ((), (("content-length", str(len(BODY))),), (("content-length", "0"),)):
                number, stream = client.ask("/read/x", method=method, end=False, more=more)
                await client.until(lambda stream=stream: stream.over)
                assert (number, stream.status) == (number, 403), (method, more)
        number, stream = client.ask("/read/x", end=False)
        client.send_trailers(number, [("x-carried", "out")])
        await client.until(lambda: stream.over)
        assert stream.status == 403
        assert not https.received
        assert (await client.answered("/read/x")).status == 200
