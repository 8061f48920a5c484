"""Bodies that must be seen whole: how much of them is held, and that what was refused for its
length is let go of."""

import asyncio
import gzip

import brotli
import pytest
import zstandard
from mitmproxy import connection, http
from mitmproxy.options import Options
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http import HTTPMode, ResponseData, SendHttp
from mitmproxy.test import tflow

from supervisor.egress.admission.egress_sessions import ClientConnection, EgressSession
from supervisor.egress.mitm import held_bodies
from supervisor.egress.mitm.body_inspection import said_by
from supervisor.egress.mitm.held_bodies import MOST_BODY_BYTES, HeldBodies, HeldBody
from supervisor.egress.mitm.layers import GuardedStream
from supervisor.egress.protocols.codings import STEP_BYTES


def of_session(name: str) -> ClientConnection:
    return ClientConnection(name, EgressSession(name), asyncio.Transport(), 0.0)


def held_flow(bodies: HeldBodies, connection: ClientConnection) -> tuple[http.HTTPFlow, HeldBody]:
    flow = tflow.tflow()
    flow.request.stream = True
    bodies.hold(flow, connection)
    bodies.hold(flow, connection)  # for two reasons at once
    assert flow.request.stream is False
    held = held_bodies.of(flow)
    assert held is not None
    return flow, held


def test_all_of_a_session_are_counted_together_and_let_go_of_once() -> None:
    bodies, mine = HeldBodies(), of_session("one")
    flows = [held_flow(bodies, mine) for _ in range(4)]
    held = [one for _, one in flows]
    assert not held[0].may_hold(MOST_BODY_BYTES + 1)
    assert all(one.may_hold(MOST_BODY_BYTES) for one in held[:3])
    assert not held[3].may_hold(1)
    assert held_flow(bodies, of_session("other"))[1].may_hold(MOST_BODY_BYTES)
    held_bodies.let_go(flows[0][0])
    held_bodies.let_go(flows[0][0])
    assert held[3].may_hold(MOST_BODY_BYTES)
    assert not held[0].may_hold(1)
    held_bodies.let_go(tflow.tflow())


def test_one_that_is_too_long_is_refused_and_takes_nothing_from_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(held_bodies, "MOST_BODY_BYTES", 10)
    monkeypatch.setattr(held_bodies, "MOST_BODIES_BYTES", 20)
    bodies, mine = HeldBodies(), of_session("one")
    client = connection.Client(peername=("127.0.0.1", 1), sockname=("127.0.0.1", 2))
    for _ in range(5):
        stream = GuardedStream(Context(client, Options()), 1)
        stream.mode, (stream.flow, _) = HTTPMode.regular, held_flow(bodies, mine)
        stream.request_body_buf += b"x" * 10
        assert list(stream.check_body_size(True)) == [], "it is held"
        stream.request_body_buf += b"x"
        said = [one.event for one in stream.check_body_size(True) if isinstance(one, SendHttp)]
        (body,) = (one.data for one in said if isinstance(one, ResponseData))
        assert held_bodies.TOO_LONG.encode() in body
        assert not stream.request_body_buf
    assert held_flow(bodies, mine)[1].may_hold(10)


def test_what_still_reads_one_that_is_gone_holds_nothing() -> None:
    bodies, mine = HeldBodies(), of_session("one")
    flow, held = held_flow(bodies, mine)
    held_bodies.let_go(flow)
    assert not held.may_hold(1)
    others = [held_flow(bodies, mine)[1] for _ in range(3)]
    assert all(one.may_hold(MOST_BODY_BYTES) for one in others)


async def test_a_packed_body_is_read_only_as_far_as_it_may_be_held() -> None:
    flow, connection = tflow.tflow(), of_session("one")
    says = b'{"model": "x"}'
    asked: list[int] = []

    def may_hold(count: int) -> bool:
        asked.append(count)
        return count <= 4 * STEP_BYTES

    for coding, pack in (
        ("gzip", gzip.compress),
        ("zstd", zstandard.compress),
        ("zstd, x-gzip", twice),
    ):
        flow.request.headers["content-encoding"] = coding
        flow.request.raw_content = pack(says)
        assert await said_by(flow, connection.session, may_hold) == says
        flow.request.raw_content = pack(says + b" " * (64 * STEP_BYTES))
        assert await said_by(flow, connection.session, may_hold) is None
        assert max(asked) <= 6 * STEP_BYTES
        assert asked[-1] == len(flow.request.raw_content), "what it said is held no longer"
    for coding, body in (("br", brotli.compress(says)), ("gzip", says), ("gzip, br", says)):
        flow.request.headers["content-encoding"] = coding
        flow.request.raw_content = body
        assert await said_by(flow, connection.session, may_hold) is None


def twice(body: bytes) -> bytes:
    return gzip.compress(zstandard.compress(body))
