"""What an install and its plan reach through a real egress: they read, at their hosts, while the
rules allow it; a plan without a secret."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from supervisor.core.network.egress_wire import Credential
from tests.egress.egress_harness import Origin, status_of
from tests.network.conftest import Setting
from tests.network.test_network import curl, get, send
from tests.network.test_network_reconsidering_under_way import (
    Slow,
    change,
    going,
    kept,
    on_record,
    slow,
    until,
)

__all__ = ["slow"]  # a fixture

SECRET, PLACEHOLDER = "s3cret-of-an-index-0123456789", "gatehouse-placeholder-index"


@contextlib.asynccontextmanager
async def reaching(
    place: Setting, port: int, *, is_plan: bool, is_own: bool = True
) -> AsyncIterator[Setting]:
    """A socket that a command reaches `origin.test` through."""
    hosts = frozenset({("origin.test", port)})
    own = (hosts if is_own else frozenset()) if is_plan else None
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stand_in = await place.broker.open_reach(place.session_id, listener, hosts, own=own)
        yield replace(place, port=listener.getsockname()[1], listener=listener)
        await place.broker.close_session(stand_in)


@pytest.mark.parametrize("is_plan", [True, False])
async def test_it_reads_and_no_more(
    place: Setting, http: Origin, https: Origin, is_plan: bool
) -> None:
    for origin, scheme in ((http, "http"), (https, "https")):
        place.office.policy(f"allow:\n  - network(127.0.0.1:{origin.port})\n")
        url = f"{scheme}://origin.test:{origin.port}/x"
        async with reaching(place, origin.port, is_plan=is_plan) as lent:
            for method in ("PUT", "POST", "DELETE", "PATCH", "OPTIONS"):
                _, out = await curl(lent, "-X", method, url)
                assert out.split()[-2] == "403", (method, out)
                assert "only reads" in out
            _, out = await curl(lent, "--data", "x", "-X", "GET", url)
            assert out.split()[-2] == "403"
            assert not origin.received
            assert (await curl(lent, url))[1].split()[-2] == "200"
            assert (await curl(lent, "--head", url))[1].split()[-2] == "200"


async def test_a_plan_reads_elsewhere_only_what_the_rules_allow(
    place: Setting, http: Origin
) -> None:
    address = f"allow:\n  - network(127.0.0.1:{http.port})\n"
    place.office.policy(address)
    async with reaching(place, http.port, is_plan=True, is_own=False) as lent:
        answer = await send(lent, get(http))
        assert status_of(answer) == 403
        assert b"nothing is asked while an install is planned" in answer
        assert not place.office.pending()
        place.office.policy(f"{address}  - network(GET http://origin.test:{http.port}/**)\n")
        assert status_of(await send(lent, get(http))) == 200


async def test_a_plan_gets_no_secret_and_an_approved_install_does(
    place: Setting, http: Origin
) -> None:
    credential = Credential(
        placeholder=PLACEHOLDER,
        secret=SECRET,
        header="authorization",
        hosts=(f"origin.test:{http.port}",),
        scheme="http",
    )
    await place.broker.open_session(place.session_id, place.listener, [credential])
    place.office.policy(
        f"allow:\n  - network(127.0.0.1:{http.port})\n  - network(origin.test:{http.port})\n"
    )
    request = get(http).replace("\r\n", f"\r\nAuthorization: Bearer {PLACEHOLDER}\r\n", 1)
    async with reaching(place, http.port, is_plan=True) as lent:
        await send(lent, request)
    assert SECRET.encode() not in bytes(http.received)
    async with reaching(place, http.port, is_plan=False) as lent:
        assert status_of(await send(lent, request)) == 200
    assert SECRET.encode() in bytes(http.received)


@pytest.mark.parametrize("is_plan", [True, False])
async def test_a_deny_rule_that_is_saved_meanwhile_ends_it(
    place: Setting, slow: Slow, is_plan: bool
) -> None:
    address = f"allow:\n  - network(127.0.0.1:{slow.port})\n"
    place.office.policy(address)
    async with (
        reaching(place, slow.port, is_plan=is_plan) as lent,
        going(lent, slow, "/go/on") as exchange,
    ):
        change(place, f"{address}deny:\n  - network(unrelated.test)\n")
        assert not on_record(place)
        change(place, f"{address}deny:\n  - network(origin.test:{slow.port})\n")
        await exchange.is_cut()
        await slow.left.wait()
        assert status_of(await asyncio.wait_for(send(lent, get_of(slow)), 30)) == 403
    await until(lambda: not kept(place))
    assert '"session":"session-1"' in on_record(place)


def get_of(slow: Slow) -> str:
    return f"CONNECT origin.test:{slow.port} HTTP/1.1\r\nHost: origin.test:{slow.port}\r\n\r\n"
