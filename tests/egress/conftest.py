"""One egress process, one plain and one TLS origin for all tests of a module; each test gets them as new."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import trustme

from supervisor.core.egress_wire import CloseSession, ForbidEndpoints
from tests.egress.egress_harness import (
    FakeSupervisor,
    Origin,
    Proxy,
    running_egress,
    running_origin,
    server_context,
    serving,
)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def ca_file(data_dir: Path) -> Path:
    return data_dir / "ca" / "mitmproxy-ca-cert.pem"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def egress(data_dir: Path, upstream_ca: Path, request: pytest.FixtureRequest) -> AsyncIterator[FakeSupervisor]:
    """`HOLD_S` of the module says how long it waits for answers."""
    hold_s: float = getattr(request.module, "HOLD_S", 5.0)
    async with running_egress(data_dir, upstream_ca, hold_s=hold_s) as supervisor:
        yield supervisor


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plain_origin() -> AsyncIterator[Origin]:
    async with running_origin() as origin:
        yield origin


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tls_origin(authority: trustme.CA) -> AsyncIterator[Origin]:
    async with running_origin(server_context(authority, "origin.test", "two.test", "127.0.0.1")) as origin:
        yield origin


_count = iter(range(1_000_000))


@pytest_asyncio.fixture(loop_scope="module")
async def proxy(egress: FakeSupervisor) -> AsyncIterator[Proxy]:
    """A new session for each test."""
    egress.reset()
    session_id = f"session-{next(_count)}"
    async with serving(egress, session_id) as proxy:
        yield proxy
    egress.send(CloseSession(session_id=session_id))
    egress.send(ForbidEndpoints(endpoints=()))


@pytest_asyncio.fixture(loop_scope="module")
async def http(plain_origin: Origin) -> Origin:
    plain_origin.reset()
    return plain_origin


@pytest_asyncio.fixture(loop_scope="module")
async def https(tls_origin: Origin) -> Origin:
    tls_origin.reset()
    return tls_origin


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def egress_with_table(
    tmp_path_factory: pytest.TempPathFactory, upstream_ca: Path, request: pytest.FixtureRequest
) -> AsyncIterator[FakeSupervisor]:
    table: dict[str, tuple[str, ...]] = request.module.TABLE
    async with running_egress(tmp_path_factory.mktemp("table"), upstream_ca, names=table) as supervisor:
        yield supervisor


@pytest_asyncio.fixture(loop_scope="module")
async def proxy_with_table(egress_with_table: FakeSupervisor) -> AsyncIterator[Proxy]:
    """A new session of an egress whose names are the module's `TABLE`."""
    egress_with_table.reset()
    session_id = f"session-{next(_count)}"
    async with serving(egress_with_table, session_id) as proxy:
        yield proxy
    egress_with_table.send(CloseSession(session_id=session_id))
    egress_with_table.send(ForbidEndpoints(endpoints=()))
