"""One egress process for all tests of a module; each test has a session, a plain and a TLS
origin of its own, to which nothing of another comes late."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import trustme

from supervisor.core.network.egress_wire import ForbidEndpoints
from tests.egress.egress_harness import (
    PATIENCE_S,
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
async def egress(
    data_dir: Path, upstream_ca: Path, request: pytest.FixtureRequest
) -> AsyncIterator[FakeSupervisor]:
    """`HOLD_S` of the module says how long it waits for answers; a module with `LOOKS_AT_PROCESS`
    has it started as the product starts it."""
    hold_s: float = getattr(request.module, "HOLD_S", PATIENCE_S)
    preface = "" if getattr(request.module, "LOOKS_AT_PROCESS", False) else None
    async with running_egress(data_dir, upstream_ca, hold_s=hold_s, preface=preface) as supervisor:
        yield supervisor


@pytest.fixture(scope="module")
def origin_tls(authority: trustme.CA) -> ssl.SSLContext:
    return server_context(authority, "origin.test", "two.test", "127.0.0.1")


_count = iter(range(1_000_000))


@pytest_asyncio.fixture(loop_scope="module")
async def proxy(egress: FakeSupervisor) -> AsyncIterator[Proxy]:
    """A new session for each test."""
    egress.reset()
    session_id = f"session-{next(_count)}"
    async with serving(egress, session_id) as proxy:
        yield proxy
    egress.send(ForbidEndpoints(endpoints=()))


@pytest_asyncio.fixture(loop_scope="module")
async def http() -> AsyncIterator[Origin]:
    async with running_origin() as origin:
        yield origin


@pytest_asyncio.fixture(loop_scope="module")
async def https(origin_tls: ssl.SSLContext) -> AsyncIterator[Origin]:
    async with running_origin(origin_tls) as origin:
        yield origin


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def egress_with_table(
    tmp_path_factory: pytest.TempPathFactory, upstream_ca: Path, request: pytest.FixtureRequest
) -> AsyncIterator[FakeSupervisor]:
    table: dict[str, tuple[str, ...]] = request.module.TABLE
    async with running_egress(
        tmp_path_factory.mktemp("table"), upstream_ca, names=table
    ) as supervisor:
        yield supervisor


@pytest_asyncio.fixture(loop_scope="module")
async def proxy_with_table(egress_with_table: FakeSupervisor) -> AsyncIterator[Proxy]:
    """A new session of an egress whose names are the module's `TABLE`."""
    egress_with_table.reset()
    session_id = f"session-{next(_count)}"
    async with serving(egress_with_table, session_id) as proxy:
        yield proxy
    egress_with_table.send(ForbidEndpoints(endpoints=()))
