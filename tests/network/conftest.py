"""A real gate on a folder, and a network broker with a real egress process behind it."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
import trustme

from supervisor.base.clock import RealClock
from supervisor.core.approvals import Request
from supervisor.core.budget import Limits
from supervisor.core.secrets.redact import Redactor
from supervisor.core.sessions import Session, SessionId
from supervisor.gate.gate import Gate
from supervisor.ledger.spending import Spending, read_prices
from supervisor.network import ca, network
from supervisor.network.network import NetworkBroker
from supervisor.network.network_log import NetworkLog
from supervisor.records.approval_queue import ApprovalQueue
from supervisor.records.audit import Audit
from supervisor.records.kill_switch import KillSwitch
from supervisor.records.policy_files import PolicyFiles
from supervisor.settings import ROOT
from supervisor.store import requests as store
from supervisor.store.engine import open_database
from tests.egress.egress_harness import NAMES, PATIENCE_S, Origin, running_origin, server_context
from tests.fakes import warm_egress
from tests.fakes.model_api import ModelApi

# Hosts that are known to serve models, each of them this machine here.
VENDORS = ("api.openai.com", "us.openrouter.ai", "bedrock-runtime.eu-west-1.amazonaws.com")


@dataclass
class Office:
    """The gate and all that it stands on."""

    folder: Path
    gate: Gate
    queue: ApprovalQueue
    audit: Audit
    kill_switch: KillSwitch
    policies: PolicyFiles
    clock: RealClock
    network_log: NetworkLog
    spending: Spending

    def policy(self, text: str) -> None:
        """Put another policy in force."""
        (self.folder / "policy-base.yaml").write_text("version: 1\n" + text)

    def open(self, session_id: str, policy_text: str = "", budget: str = "") -> Session:
        now = self.clock.now()
        session = Session(
            id=SessionId(session_id),
            kind="agent",
            workspace="/tmp",
            command=("sh",),
            token_hash="",
            created_at=now,
            deadline_at=now + 3600,
            policy_text=policy_text,
            budget=budget,
        )
        self.gate.rulings.open_session(session)
        self.spending.open_session(session)
        return session

    def pending(self) -> list[Request]:
        return self.queue.read(store.pending)

    async def asked(self) -> Request:
        """The one request that waits, once there is one."""
        changed = asyncio.Event()
        self.queue.on_change(lambda request: changed.set())
        async with asyncio.timeout(PATIENCE_S):
            while not self.pending():
                changed.clear()
                await changed.wait()
        (request,) = self.pending()
        return request

    def audited(self, event: str) -> list[str]:
        self.audit.flush()
        lines = (self.folder / "audit.log").read_text().splitlines()
        return [line for line in lines if f'"event":"{event}"' in line]


@contextlib.contextmanager
def office(folder: Path) -> Iterator[Office]:
    clock = RealClock()
    redactor = Redactor([])
    (folder / "policy-base.yaml").write_text("version: 1\n")
    engine = open_database(folder / "gatehouse.db")
    audit = Audit(folder / "audit.log", clock, redactor)
    kill_switch = KillSwitch(folder / "stopped")
    policies = PolicyFiles(folder / "policy-base.yaml", folder / "policy.yaml", clock)
    queue = ApprovalQueue(engine)
    prices = read_prices(ROOT / "policy/prices.yaml")
    spending = Spending(engine, audit, clock, prices, per_day=Limits(), total=Limits())
    gate = Gate(
        policies=policies,
        queue=queue,
        audit=audit,
        kill_switch=kill_switch,
        clock=clock,
        redactor=redactor,
    )
    try:
        network_log = NetworkLog(clock, redactor)
        yield Office(
            folder, gate, queue, audit, kill_switch, policies, clock, network_log, spending
        )
    finally:
        audit.close()
        engine.dispose()


@dataclass
class Setting:
    """A broker that serves one session on a socket of this machine."""

    office: Office
    broker: NetworkBroker
    port: int
    listener: socket.socket
    ca_file: Path
    session_id: str = "session-1"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextlib.asynccontextmanager
async def setting(
    folder: Path,
    authority: trustme.CA,
    *,
    hold_s: float = PATIENCE_S,
    command: tuple[str, ...] | None = None,
) -> AsyncIterator[Setting]:
    """`command` starts egress; without, it is a fork of a warm one."""
    certificate = ca.ensure_ca(folder / "ca", RealClock())
    authority.cert_pem.write_to_path(str(folder / "upstream.pem"))
    with (
        office(folder) as records,
        socket.create_server(("127.0.0.1", 0)) as listener,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(network, "EGRESS", command or warm_egress.command())
        broker = NetworkBroker(
            records.gate,
            records.network_log,
            ca_directory=folder / "ca",
            ca_certificate=certificate,
            upstream_ca_bundle=folder / "upstream.pem",
            hold_s=hold_s,
            spending=records.spending,
            model_hosts=("models.test",),
            names=NAMES | dict.fromkeys(("models.test", *VENDORS), ("127.0.0.1",)),
        )
        # As a sandbox has it: the authorities of the origins too, for what is passed on unread.
        bundle = ca.write_bundle(folder / "bundle.pem", certificate, folder / "upstream.pem")
        found = Setting(records, broker, listener.getsockname()[1], listener, bundle)
        records.open(found.session_id)
        async with asyncio.TaskGroup() as tasks:
            await broker.start(tasks)
            await broker.open_session(found.session_id, listener)
            try:
                yield found
            finally:
                await broker.stop()


@pytest.fixture
def command() -> tuple[str, ...] | None:
    """How egress is started (`setting`)."""
    return None


# Where a test looks at the process itself: started as the product starts it.
really_started = pytest.mark.parametrize("command", [network.EGRESS], ids=["started"])


@pytest_asyncio.fixture
async def place(
    tmp_path: Path, authority: trustme.CA, command: tuple[str, ...] | None
) -> AsyncIterator[Setting]:
    async with setting(tmp_path, authority, command=command) as found:
        yield found


@pytest_asyncio.fixture
async def http() -> AsyncIterator[Origin]:
    async with running_origin() as origin:
        yield origin


@pytest_asyncio.fixture
async def https(authority: trustme.CA) -> AsyncIterator[Origin]:
    async with running_origin(
        server_context(authority, "origin.test", "other.test", "127.0.0.1")
    ) as origin:
        yield origin


@pytest_asyncio.fixture
async def api() -> AsyncIterator[ModelApi]:
    found = ModelApi()
    found.gate.set()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()


@pytest_asyncio.fixture
async def desk(
    tmp_path: Path, authority: trustme.CA, api: ModelApi, command: tuple[str, ...] | None
) -> AsyncIterator[Setting]:
    async with setting(tmp_path, authority, command=command) as place:
        place.office.policy(
            f"allow:\n  - network(127.0.0.1:{api.port})\n  - network(models.test:{api.port})\n  -"
            f" network(origin.test:{api.port})\n"
        )
        yield place
