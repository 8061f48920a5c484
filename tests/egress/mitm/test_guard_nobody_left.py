"""What is asked of the supervisor for a request that has nobody any more: it is told that the
request is over, or it would remember it for good."""

import asyncio
from pathlib import Path

import pytest

from supervisor.core.network.egress_wire import Draw
from tests.egress.egress_harness import Origin, running_egress, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_one_whose_client_leaves_while_it_waits_to_be_covered_is_over(
    tmp_path: Path, upstream_ca: Path, http: Origin
) -> None:
    """It was allowed, and its grant comes back: nobody waits any more for what it waits for."""
    async with (
        running_egress(tmp_path, upstream_ca) as supervisor,
        serving(supervisor, "s") as proxy,
    ):
        draws: list[Draw] = []
        supervisor.grant = draws.append
        _, writer = await proxy.open()
        writer.write(
            f"GET http://origin.test:{http.port}/ HTTP/1.1\r\nHost: origin.test:{http.port}\r\n\r\n".encode()  # noqa: E501
        )
        await supervisor.until_one(lambda one: isinstance(one, Draw) and one.kind == "bytes_out")
        supervisor.grant_all(draws.pop())
        await supervisor.until_one(lambda one: isinstance(one, Draw) and one.kind == "requests")
        writer.transport.abort()
        await asyncio.sleep(0.3)  # so that nothing of its connection is left
        supervisor.grant_all(draws.pop())
        settled = await supervisor.settled()
        assert settled.outcome == "failed"
    assert http.untouched
