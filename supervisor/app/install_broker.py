"""The parts that carry out installs, put together."""

from supervisor.app.session_parts import SessionSetup
from supervisor.base.clock import Clock
from supervisor.channels.exec import SpecFor
from supervisor.channels.install_sandbox import InstallSandbox
from supervisor.channels.package_plans import PackagePlans
from supervisor.channels.packages import PackageBroker
from supervisor.channels.registry_client import RegistryClient
from supervisor.gate.gate import Gate
from supervisor.network.network import NetworkBroker
from supervisor.sandbox.base import Sandbox
from supervisor.sessions.session_sandboxes import PROXY_PORT


def install_broker(
    gate: Gate,
    sandbox: Sandbox,
    network: NetworkBroker,
    setup: SessionSetup,
    clock: Clock,
    tool_spec: SpecFor,
    *,
    is_offered: bool,
) -> PackageBroker:
    """Return the channel of installs. `is_offered`: see `PackageBroker`."""
    reach = (network.open_reach, network.close_session)
    runs = InstallSandbox(sandbox, tool_spec, *reach, PROXY_PORT)
    registry = RegistryClient(*reach, setup.ca_bundle)
    plans = PackagePlans(gate, runs, registry, clock.now)
    return PackageBroker(gate, plans, runs, setup, is_offered=is_offered)
