"""Whatever becomes of the supervisor, nothing is let through without it: it is gone, silent, or
says what nobody understands."""

import asyncio
import os
import signal
import socket
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from supervisor.core.network.egress_wire import Answer, Draw, Question
from supervisor.egress.admission.egress_sessions import Kind
from tests.egress.egress_harness import (
    PATIENCE_S,
    Origin,
    allow,
    answer_of,
    body_of,
    running_egress,
    serving,
    status_of,
)
from tests.egress.hellos import client_hello, server_hello
from tests.egress.loop.test_failures import request_to
from tests.egress.tls_listener import Listener

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_when_the_supervisor_is_gone_what_waits_is_refused_and_egress_ends(
    tmp_path: Path, upstream_ca: Path, http: Origin
) -> None:
    async with (
        running_egress(tmp_path, upstream_ca) as supervisor,
        serving(supervisor, "s") as proxy,
    ):
        supervisor.decide = lambda question: None
        sending = asyncio.create_task(proxy.send(request_to(http)))
        await supervisor.until(Question)
        supervisor.sock.close()
        answer = await sending
        assert status_of(answer) == 403
        assert "supervisor is gone" in body_of(answer)["why"]
        assert await supervisor.child.wait() == 0
    assert http.untouched


STAYS = "from supervisor.egress import app\napp.FAREWELL_S = 3600.0"


@pytest.mark.parametrize("is_unread", [True, False])
async def test_what_goes_on_ends_at_once_when_the_supervisor_is_gone(
    tmp_path: Path, upstream_ca: Path, is_unread: bool
) -> None:
    """So it does when a person stops everything: not once the others have read their refusals. When
    these have gone, egress ends."""
    listener = Listener()
    listener.says = lambda data: server_hello() if is_unread else b""
    server = await asyncio.start_server(listener.serve, "127.0.0.1", 0)
    listener.port = server.sockets[0].getsockname()[1]
    async with (
        running_egress(tmp_path, upstream_ca, preface=STAYS) as supervisor,
        serving(supervisor, "s") as proxy,
    ):
        goes_on = lambda question: msgspec.structs.replace(  # noqa: E731
            allow(question), look_inside=not is_unread
        )
        supervisor.decide = lambda question: (
            None if question.action.host == "other.test" else goes_on(question)
        )
        waiting, hangs_up = await proxy.open()
        hangs_up.write(b"GET http://other.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n")
        await supervisor.until(Question)
        reader, writer = await proxy.open()
        target = f"origin.test:{listener.port}"
        if is_unread:
            writer.write(
                f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()
                + client_hello("origin.test")
            )
            await reader.readuntil(server_hello())
        else:
            head = (
                f"POST http://{target}/ HTTP/1.1\r\nHost: {target}\r\nTransfer-Encoding:"
                " chunked\r\n\r\n"
            )
            writer.write(head.encode() + b"5\r\nhello\r\n")
            await listener.until(lambda: b"hello" in listener.received)
        supervisor.sock.shutdown(socket.SHUT_RDWR)
        await listener.until(lambda: not listener.open)
        assert "supervisor is gone" in body_of(await answer_of(waiting))["why"]
        assert supervisor.child.returncode is None
        hangs_up.close()
        async with asyncio.timeout(PATIENCE_S):
            assert await supervisor.child.wait() == 0
        writer.close()
    server.close()


@pytest.mark.parametrize("kind", ["CONNECT", "request", "bytes_out", "requests"])
async def test_an_allow_that_comes_together_with_the_end_lets_nothing_out(
    tmp_path: Path, upstream_ca: Path, http: Origin, kind: str
) -> None:
    """So it may be when a person stops everything: both are read before whoever waits has its
    turn."""
    target = f"origin.test:{http.port}"
    async with running_egress(tmp_path, upstream_ca, preface="") as supervisor:
        pid = supervisor.child.pid
        tasks: list[asyncio.Task[None]] = []

        async def answered_at_the_end(question: Question | Draw) -> None:
            await asyncio.sleep(0.1)  # it has nothing left to do, and waits
            os.kill(pid, signal.SIGSTOP)
            while " T " not in Path(f"/proc/{pid}/stat").read_text():
                os.sched_yield()
            allowed = Answer(
                question_id=question.question_id,
                decision="allow",
                private_ok=True,
                look_inside=False,
                granted=1000,
            )
            supervisor.send(allowed)
            supervisor.sock.shutdown(socket.SHUT_RDWR)
            os.kill(pid, signal.SIGCONT)

        async with serving(supervisor, "other") as other:
            assert status_of(await other.send(request_to(http))) == 200  # mitmproxy is started
        async with serving(supervisor, "s") as proxy:
            is_draw = kind in get_args(Kind)
            if (
                not is_draw
            ):  # its name is known then, and what covers it is drawn: nothing else is asked
                assert status_of(await proxy.send(request_to(http))) == 200
            http.reset()
            if is_draw:
                supervisor.grant = lambda draw: (
                    tasks.append(asyncio.create_task(answered_at_the_end(draw)))
                    if draw.kind == kind
                    else supervisor.grant_all(draw)
                )
            else:
                supervisor.decide = answered_at_the_end  # type: ignore[assignment]
            reader, writer = await proxy.open()
            connect = (
                f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()
                + client_hello("origin.test")
            )
            writer.write(connect if kind == "CONNECT" else request_to(http))
            assert "supervisor is gone" in body_of(await answer_of(reader))["why"]
            assert await supervisor.child.wait() == 0
            writer.close()
    assert http.untouched


async def test_a_kept_connection_is_refused_too_when_the_supervisor_is_gone(
    tmp_path: Path, upstream_ca: Path, http: Origin
) -> None:
    async with (
        running_egress(tmp_path, upstream_ca) as supervisor,
        serving(supervisor, "s") as proxy,
    ):
        reader, writer = await proxy.open()
        writer.write(request_to(http))
        assert status_of(await answer_of(reader)) == 200
        http.reset()
        supervisor.sock.close()
        writer.write(request_to(http))
        assert status_of(await answer_of(reader)) != 200
        writer.close()
    assert http.untouched


async def test_a_silent_supervisor_is_a_denial(
    tmp_path: Path, upstream_ca: Path, http: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the hold and 10 s of grace; shortened by a negative hold."""
    async with (
        running_egress(tmp_path, upstream_ca, hold_s=-9.5) as supervisor,
        serving(supervisor, "s") as proxy,
    ):
        supervisor.decide = lambda question: None
        answer = await proxy.send(request_to(http))
    assert status_of(answer) == 403
    assert "in time" in body_of(answer)["why"]
    assert http.untouched


async def test_an_answer_to_another_question_lets_nothing_through(
    tmp_path: Path, upstream_ca: Path, http: Origin
) -> None:
    async with (
        running_egress(tmp_path, upstream_ca, hold_s=-9.5) as supervisor,
        serving(supervisor, "s") as proxy,
    ):
        supervisor.decide = lambda question: Answer(
            question_id=question.question_id + 1, decision="allow"
        )
        assert status_of(await proxy.send(request_to(http))) == 403
    assert http.untouched


async def test_rubbish_on_the_channel_ends_egress(
    tmp_path: Path, upstream_ca: Path, http: Origin
) -> None:
    async with running_egress(tmp_path, upstream_ca) as supervisor:
        supervisor.sock.send(b"\xc1 this is no message")
        assert await supervisor.child.wait() == 0
