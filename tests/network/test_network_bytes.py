"""What a session sent where, as the Network tab has it: with its bytes, its end and its
headers."""

import asyncio

import pytest

from supervisor.egress.protocols.checks import shown_headers
from tests.egress.egress_harness import Origin, answer_of, status_of
from tests.fakes.waiting import PATIENCE_S
from tests.network.conftest import Setting
from tests.network.test_network import get, rules, send, settled


async def test_what_went_where_is_kept_with_its_bytes_and_its_end(
    place: Setting, http: Origin
) -> None:
    path = f"http://origin.test:{http.port}/**"
    place.office.policy(
        rules(http, allow=(f"network(GET {path})",), deny=(f"network(POST {path})",))
    )
    log = place.office.network_log
    more = (
        "Authorization: Basic cXV4OnF1eA==\r\nX-Api-Key: qux\r\nCookie: a=qux\r\nX-Note: "
        + "n" * 5000
        + "\r\n\r\n"
    )
    assert status_of(await send(place, get(http, "/a").removesuffix("\r\n") + more)) == 200
    assert status_of(await send(place, get(http).replace("GET", "POST", 1))) == 403
    async with asyncio.timeout(PATIENCE_S):
        while len(found := log.of_session(place.session_id)) < 2 or any(
            one.ended_at is None for one in found
        ):
            await asyncio.sleep(0.01)
    refused, sent = found
    assert (refused.verdict, refused.action.method, refused.status) == ("deny", "POST", None)
    assert (sent.verdict, sent.action.path, sent.status) == ("allow", "/a", 200)
    assert sent.rule == f"network(GET {path})"
    shown = dict(sent.headers)
    assert (shown["Authorization"], shown["X-Api-Key"], shown["Cookie"]) == (
        "[hidden]",
        "[hidden]",
        "[hidden]",
    )
    assert shown["X-Note"] == "n" * 300
    assert b"cXV4OnF1eA==" in http.received  # what is hidden is sent all the same
    assert sent.down_bytes > 0
    assert sent.up_bytes > 0
    assert sent.duration_s is not None
    place.broker._run.channel.cut()  # type: ignore[union-attr]
    await place.broker.wait_healthy(after_starts=1)
    assert status_of(await send(place, get(http, "/b"))) == 200  # question numbers begin anew
    async with asyncio.timeout(PATIENCE_S):
        while (newest := log.of_session(place.session_id)[0]).ended_at is None:
            await asyncio.sleep(0.01)
    assert (newest.action.path, newest.status, sent.action.path) == ("/b", 200, "/a")


async def test_bytes_of_requests_on_one_connection_add_up(place: Setting, http: Origin) -> None:
    place.office.policy(rules(http, allow=(f"network(origin.test:{http.port})",)))
    reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
    sent = received = 0
    for number in range(5):
        data = get(http, f"/{'x' * number * 1000}").encode()
        writer.write(data)
        sent, received = sent + len(data), received + len(await answer_of(reader))
    writer.close()
    await settled(place, 5)
    found = place.office.network_log.of_session(place.session_id)
    assert (sum(one.up_bytes for one in found), sum(one.down_bytes for one in found)) == (
        sent,
        received,
    )


async def test_what_is_sent_behind_an_early_answer_is_on_record(place: Setting) -> None:
    async def answer_at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        while await reader.read(65536):
            pass
        writer.close()

    async with await asyncio.start_server(answer_at_once, "127.0.0.1", 0) as origin:
        port = origin.sockets[0].getsockname()[1]
        place.office.policy(
            f"allow:\n  - network(origin.test:{port})\n  - network(127.0.0.1:{port})\n"
        )
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        head = (
            f"POST http://origin.test:{port}/ HTTP/1.1\r\nHost:"
            f" origin.test:{port}\r\nContent-Length: 1000000\r\n\r\n"
        )
        writer.write(head.encode() + bytes(100_000))
        assert status_of(await reader.readuntil(b"ok")) == 200
        assert place.office.audited("effect_settled") == []
        writer.write(bytes(900_000))
        await settled(place)
        writer.close()
    (one,) = place.office.network_log.of_session(place.session_id)
    assert (one.status, one.up_bytes) == (200, len(head) + 1_000_000)


@pytest.mark.parametrize(
    "name",
    [
        "CB-ACCESS-PASSPHRASE",
        "npm-otp",
        "X-GitHub-OTP",
        "X-Pwd",
        "X-Ticket",
        "api-sign",
        "X-Sid",
        "Set-Cookie",
    ],
)
def test_what_hides_a_value_in_an_address_hides_one_of_a_header(name: str) -> None:
    assert shown_headers(((name.encode(), b"a value"),)) == ((name, "[hidden]"),)
    assert shown_headers(((b"Content-Type", b"a"), (b"X-Design", b"b"))) == (
        ("Content-Type", "a"),
        ("X-Design", "b"),
    )


def test_what_is_left_of_a_model_s_limits_is_to_be_read() -> None:
    said = (
        ("x-ratelimit-remaining-tokens", "149984"),
        ("Access-Control-Allow-Credentials", "true"),
    )
    assert shown_headers(tuple((name.encode(), value.encode()) for name, value in said)) == said
