"""What is known of a flow: one that nobody spoke of is refused, whatever kind it is of, and what
is known of one is never known of another."""

from collections.abc import Callable

import pytest
from mitmproxy import connection, flow
from mitmproxy.options import Options
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http import (
    ErrorCode,
    HTTPMode,
    ResponseHeaders,
    ResponseProtocolError,
    SendHttp,
)
from mitmproxy.test import tflow

from supervisor.egress.loop.refusals import BROKEN
from supervisor.egress.mitm import exchange
from supervisor.egress.mitm.guard import kill_flow, refuse_flow
from supervisor.egress.mitm.layers import GuardedStream


def stream() -> GuardedStream:
    client = connection.Client(peername=("127.0.0.1", 1), sockname=("127.0.0.1", 2))
    made = GuardedStream(Context(client, Options()), 1)
    made.mode, made.flow = HTTPMode.regular, tflow.tflow()
    return made


def test_what_nobody_spoke_of_is_refused_before_anything_is_dialled() -> None:
    for step in (
        lambda one: one.make_server_connection(),
        lambda one: one.check_killed(True),
        lambda one: one.handle_protocol_error(
            ResponseProtocolError(1, "", ErrorCode.CONNECT_FAILED)
        ),
    ):
        refused = stream()
        said = [one.event for one in step(refused) if isinstance(one, SendHttp)]
        (head,) = (one.response for one in said if isinstance(one, ResponseHeaders))
        assert head.status_code in (403, 502)
        assert refused.refused


def test_what_is_allowed_is_refused_once_a_hook_raised() -> None:
    allowed = stream()
    exchange.of(allowed.flow).is_allowed = True
    assert list(allowed.check_killed(True)) == []
    refuse_flow(allowed.flow)
    assert exchange.of(allowed.flow).refusal is BROKEN
    assert list(allowed.check_killed(True))
    assert allowed.refused


@pytest.mark.parametrize(
    "make", [tflow.tflow, tflow.ttcpflow, tflow.tudpflow, tflow.tdnsflow, tflow.twebsocketflow]
)
def test_every_kind_of_flow_begins_refused_and_is_killed(make: Callable[[], flow.Flow]) -> None:
    killed, other = make(), make()
    assert not exchange.of(killed).is_allowed
    exchange.of(killed).is_allowed = True
    assert exchange.of(killed) is exchange.of(killed)
    assert not exchange.of(other).is_allowed
    killed.live = True
    kill_flow(killed)
    assert not exchange.of(killed).is_allowed
    assert killed.error is not None
