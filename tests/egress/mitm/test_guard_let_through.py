"""What is allowed arrives, whole and unchanged; what isn't gets 403 with the reason and leaves
the origin untouched."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from supervisor.core.network.egress_wire import Abandoned, Answer, Question
from tests.egress.egress_harness import (
    Origin,
    Proxy,
    RefusedTunnelError,
    allow,
    answer_of,
    body_of,
    deny,
    nobody_at,
    running_egress,
    serving,
    status_of,
)
from tests.egress.hellos import client_hello

pytestmark = pytest.mark.asyncio(loop_scope="module")


def get(origin: Origin, path: str = "/hello?x=1", host: str = "origin.test") -> bytes:
    return f"GET http://{host}:{origin.port}{path} HTTP/1.1\r\nHost: {host}:{origin.port}\r\n\r\n".encode()  # noqa: E501


async def test_a_plain_request_is_asked_about_and_passed_on(proxy: Proxy, http: Origin) -> None:
    answer = await proxy.send(get(http))
    assert status_of(answer) == 200
    assert b"GET /hello?x=1 HTTP/1.1" in answer
    first, second = proxy.supervisor.questions
    assert first.session_id == proxy.session_id
    action = first.action
    assert (action.operation, action.method, action.scheme) == ("request", "GET", "http")
    assert (action.host, action.port, action.path) == ("origin.test", http.port, "/hello?x=1")
    assert action.resolved == ()
    assert second.after == first.question_id
    assert second.action.resolved == ("127.0.0.1",)
    settled = await proxy.supervisor.settled()
    assert (settled.outcome, settled.detail["status"]) == ("done", 200)


async def test_a_denied_request_gets_the_reason_and_the_origin_nothing(
    proxy: Proxy, http: Origin
) -> None:
    proxy.supervisor.decide = deny
    answer = await proxy.send(get(http))
    assert status_of(answer) == 403
    assert b"content-type: application/json" in answer.lower()
    assert b"connection: close" in answer.lower()
    assert body_of(answer) == {
        "error": "denied",
        "why": "denied by a test",
        "remedy": "do without",
        "rule": "network(origin.test)",
        "request_id": "r-1",
    }
    assert http.untouched


async def test_https_is_asked_about_twice_and_decrypted(
    proxy: Proxy, https: Origin, ca_file: Path
) -> None:
    reader, writer = await proxy.tunnel(f"origin.test:{https.port}", trust=ca_file)
    for path in ("/one", "/two"):
        writer.write(f"GET {path} HTTP/1.1\r\nHost: origin.test:{https.port}\r\n\r\n".encode())
        assert status_of(await answer_of(reader)) == 200
    writer.close()
    connect, addresses, one, two = proxy.supervisor.questions
    assert connect.action.operation == "connect"
    assert addresses.after == connect.question_id
    assert [(q.action.scheme, q.action.path, q.action.sni, q.in_tunnel) for q in (one, two)] == [
        ("https", "/one", "origin.test", True),
        ("https", "/two", "origin.test", True),
    ]
    assert one.connection_id == connect.connection_id
    assert one.action.resolved == ("127.0.0.1",)
    assert https.connections == 1


async def test_a_denied_connect_is_answered_by_itself(
    proxy: Proxy, https: Origin, ca_file: Path
) -> None:
    proxy.supervisor.decide = deny
    with pytest.raises(RefusedTunnelError) as refused:
        await proxy.tunnel(f"origin.test:{https.port}", trust=ca_file)
    assert refused.value.answer.startswith(b"HTTP/1.1 403 denied by a test\r\n")
    assert refused.value.body["why"] == "denied by a test"
    assert https.untouched


async def test_a_request_in_an_allowed_connection_can_be_denied(
    proxy: Proxy, https: Origin, ca_file: Path
) -> None:
    proxy.supervisor.decide = lambda question: (
        deny(question) if question.in_tunnel else allow(question)
    )
    reader, writer = await proxy.tunnel(f"origin.test:{https.port}", trust=ca_file)
    writer.write(f"GET /secret HTTP/1.1\r\nHost: origin.test:{https.port}\r\n\r\n".encode())
    answer = await answer_of(reader)
    writer.close()
    assert answer.startswith(b"HTTP/1.1 403 denied by a test\r\n")
    assert https.untouched


async def test_a_held_request_goes_on_when_it_is_approved(proxy: Proxy, http: Origin) -> None:
    asked = asyncio.Event()
    approved = asyncio.Event()

    async def hold(question: Question) -> Answer:
        if question.after is None:
            asked.set()
            await approved.wait()
        return allow(question)

    proxy.supervisor.decide = hold
    sending = asyncio.create_task(proxy.send(get(http)))
    await asked.wait()
    assert http.untouched
    approved.set()
    assert status_of(await sending) == 200


async def test_a_request_that_nobody_answered_says_so(proxy: Proxy, http: Origin) -> None:
    proxy.supervisor.decide = lambda question: Answer(
        question_id=question.question_id,
        decision="ask_timeout",
        why="nobody answered",
        request_id="r-2",
    )
    answer = await proxy.send(get(http))
    assert status_of(answer) == 403
    assert body_of(answer)["error"] == "not answered in time"
    assert body_of(answer)["request_id"] == "r-2"
    assert http.untouched


async def test_a_client_that_leaves_while_held_is_not_waited_for(
    proxy: Proxy, http: Origin
) -> None:
    proxy.supervisor.decide = lambda question: None
    _, writer = await proxy.open()
    writer.write(get(http))
    question = await proxy.supervisor.until(Question)
    writer.close()
    abandoned = await proxy.supervisor.until(Abandoned)
    assert abandoned.question_id == question.question_id
    assert http.untouched


async def test_bodies_pass_both_ways(proxy: Proxy, http: Origin) -> None:
    body = b"x" * 300_000
    http.respond = lambda head: (
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    head = (
        f"POST http://origin.test:{http.port}/up HTTP/1.1\r\nHost:"
        f" origin.test:{http.port}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    answer = await proxy.send(head.encode() + body)
    assert answer.endswith(body)
    assert bytes(http.received).endswith(body)


async def test_the_body_of_a_refused_request_is_not_kept_and_the_reason_arrives(
    proxy: Proxy, http: Origin
) -> None:
    proxy.supervisor.decide = deny
    for framing in ("Content-Length: 200000", "Transfer-Encoding: chunked"):
        head = (
            f"POST http://origin.test:{http.port}/up HTTP/1.1\r\nHost:"
            f" origin.test:{http.port}\r\n{framing}\r\n\r\n"
        )
        body = (
            b"x" * 200_000
            if "Length" in framing
            else b"30d40\r\n" + b"x" * 200_000 + b"\r\n0\r\n\r\n"
        )
        assert status_of(await proxy.send(head.encode() + body)) == 403
    assert http.untouched


async def test_a_long_body_waits_while_mitmproxy_is_started(
    tmp_path: Path, upstream_ca: Path, http: Origin
) -> None:
    body = b"x" * 3_000_000
    async with (
        running_egress(tmp_path, upstream_ca) as supervisor,
        serving(supervisor, "s") as proxy,
    ):
        head = (
            f"POST http://origin.test:{http.port}/up HTTP/1.1\r\nHost:"
            f" origin.test:{http.port}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        assert status_of(await proxy.send(head.encode() + body)) == 200
    assert bytes(http.received).endswith(body)


async def test_a_name_that_was_looked_up_before_is_judged_with_its_addresses_at_once(
    proxy: Proxy, http: Origin
) -> None:
    for _ in range(2):
        assert status_of(await proxy.send(get(http))) == 200
    first, second, third = proxy.supervisor.questions
    assert (first.action.resolved, second.after) == ((), first.question_id)
    assert (third.action.resolved, third.after) == (("127.0.0.1",), None)
    proxy.supervisor.decide = lambda question: Answer(
        question_id=question.question_id, decision="allow", settle=True
    )
    http.reset()
    assert status_of(await proxy.send(get(http))) == 403  # allowed, but not though it is private
    assert http.untouched


@pytest.mark.parametrize("is_tunnel", [False, True])
async def test_a_name_at_whose_addresses_nobody_answers_is_looked_up_anew(
    proxy: Proxy, is_tunnel: bool
) -> None:
    proxy.supervisor.decide = lambda question: msgspec.structs.replace(
        allow(question), look_inside=not is_tunnel
    )
    with nobody_at() as port:
        target = f"origin.test:{port}"
        request = (
            f"{f'CONNECT {target}' if is_tunnel else f'GET http://{target}/'} HTTP/1.1\r\nHost:"
            f" {target}\r\n\r\n"
        )
        for _ in range(2):
            answer = await proxy.send(request.encode() + client_hello("origin.test") * is_tunnel)
            assert status_of(answer) == 502
    assert [question.action.resolved for question in proxy.supervisor.questions] == [
        (),
        ("127.0.0.1",),
    ] * 2
