"""Every part of one supervisor, built from its settings.

Doors and pages are given them; `app.Supervisor` starts and stops them. Nothing is global: two
supervisors on two data folders can run in one process.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

from supervisor.base import log
from supervisor.base.clock import Clock, RealClock
from supervisor.base.file_watch import FileWatch, WatchedFiles
from supervisor.base.renderer import Renderer
from supervisor.channels.branches import Branches
from supervisor.channels.exec import ExecBroker
from supervisor.channels.fetches import Fetches
from supervisor.channels.git import GitBroker
from supervisor.channels.git_pack import CopiedCommits
from supervisor.channels.install_sandbox import InstallSandbox
from supervisor.channels.job_results import JobResults
from supervisor.channels.mcp_servers import Around, McpServers
from supervisor.channels.package_plans import PackagePlans
from supervisor.channels.packages import PackageBroker
from supervisor.channels.proposals import ProposalBroker
from supervisor.channels.registry_client import RegistryClient
from supervisor.core.actions import Exec
from supervisor.core.agents.agents import SIGNING_KEYS
from supervisor.core.agents.inside import AGENT_PORT
from supervisor.core.approvals import Request
from supervisor.core.budget import parse_budget
from supervisor.core.jobs import Updates
from supervisor.core.mcp_servers_file import McpServer, only_for_servers
from supervisor.core.network.credentials import check_secret
from supervisor.core.secrets.redact import Redactor
from supervisor.core.sessions import keeps_changes
from supervisor.core.verdicts import CHANGE_THE_COPY, KEPT
from supervisor.errors import GatehouseError, RefusedError, StorageError
from supervisor.gate import audit_lines
from supervisor.gate.gate import Gate
from supervisor.ledger.spending import Spending, read_prices
from supervisor.network.ca import ensure_ca, system_bundle, write_bundle, write_java_store
from supervisor.network.model_hosts import model_hosts_of
from supervisor.network.network import NetworkBroker
from supervisor.network.network_log import NetworkLog
from supervisor.records import data_folder
from supervisor.records.approval_queue import ApprovalQueue
from supervisor.records.audit import Audit
from supervisor.records.audit_heads import Heads
from supervisor.records.kill_switch import KillSwitch
from supervisor.records.policy_files import PolicyFiles
from supervisor.sandbox.base import Sandbox, Spec
from supervisor.sandbox.bubblewrap import Bubblewrap
from supervisor.sandbox.compose import Compose
from supervisor.sandbox.containment import PROBE, Containment
from supervisor.sessions.kept_copies import KeptCopies
from supervisor.sessions.mcp_programs import read_servers
from supervisor.sessions.named_secrets import NamedSecrets
from supervisor.sessions.session_manager import SessionManager
from supervisor.sessions.session_sandboxes import PROXY_PORT
from supervisor.sessions.surroundings import Doors, Surroundings, lend_ports
from supervisor.settings import ROOT, Settings
from supervisor.store.engine import open_database
from supervisor.workspace.channel import WorkspaceChannel
from supervisor.workspace.quarantines import Quarantines
from supervisor.workspace.undo.undo import MARK, Undo

type CardExtras = Callable[["Parts", Request], dict[str, Any]]


class Parts:
    """See the module's text. Without `doors` no session can be started. `card_extras` is what
    the review service says to a card, for `parts/card.html`; `reviews` is that service while it
    runs, which is of a package above this one. `names` stands in for DNS (tests)."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        sandbox: Sandbox | None = None,
        names: dict[str, tuple[str, ...]] | None = None,
        doors: Doors | None = None,
        card_extras: CardExtras = lambda _parts, _request: {},
    ) -> None:
        self.settings = settings
        self.clock = clock or RealClock()
        self.redactor = Redactor(
            [
                part
                for name, key in settings.model_keys.items()
                for part in (key, *(key.split(":", 2) if name in SIGNING_KEYS else ()))
                if part
            ]
        )
        data_folder.make_private(settings.data_dir)
        data_folder.make_private(settings.sessions_dir)
        data_folder.check_room(settings.data_dir)
        self._lock = data_folder.lock(settings.data_dir)
        self.engine = open_database(settings.database)
        self.audit = Audit(
            settings.audit_log, self.clock, self.redactor, Heads(settings.audit_log, self.engine)
        )
        self.kill_switch = KillSwitch(settings.data_dir / "stopped")
        self.policies = PolicyFiles(settings.policy_file, settings.saved_rules_file, self.clock)
        self.queue = ApprovalQueue(self.engine)
        self.gate = Gate(
            policies=self.policies,
            queue=self.queue,
            audit=self.audit,
            kill_switch=self.kill_switch,
            clock=self.clock,
            redactor=self.redactor,
            own_files=(
                *settings.files_it_is_told_by,
                ROOT / "supervisor",
                ROOT / "web",
                Path(sys.prefix),
            ),
        )
        parse_budget(settings.max_cost, "MAX_COST")
        self.spending = Spending(
            self.engine,
            self.audit,
            self.clock,
            read_prices(settings.prices_file),
            per_day=parse_budget(settings.max_cost_per_day, "MAX_COST_PER_DAY"),
            total=parse_budget(settings.max_cost_total, "MAX_COST_TOTAL"),
        )
        self.sandbox: Sandbox = sandbox or _backend(settings)
        authority = settings.data_dir / "ca"
        certificate = ensure_ca(authority, self.clock)
        extra = [settings.upstream_ca] if settings.upstream_ca else []
        # What nothing looks into shows the origin's certificate: the sandbox trusts as egress does.
        inside = write_bundle(
            settings.data_dir / "ca-bundle.pem", system_bundle(), certificate, *extra
        )
        upstream = write_bundle(settings.data_dir / "upstream-ca.pem", system_bundle(), *extra)
        self.network_log = NetworkLog(self.clock, self.redactor)
        self.network = NetworkBroker(
            self.gate,
            self.network_log,
            ca_directory=authority,
            ca_certificate=certificate,
            upstream_ca_bundle=upstream,
            hold_s=settings.hold_s,
            spending=self.spending,
            ask_at_limit=settings.ask_at_limit,
            model_hosts=model_hosts_of(settings),
            names=names,
        )
        self.renderer = Renderer()
        self.reviews: Any = None
        # Why a person can't be told elsewhere what waits, in a sentence; `app.telling` says so.
        self.untold: str | None = None
        # Has no session reach a port of ours.
        self.own_port: Callable[[int], None] = lambda port: None
        # Tells pages that something of their banners may have changed.
        self.status_changed: Callable[[], None] = lambda: None
        self._card_extras = card_extras
        self.named_secrets = NamedSecrets()
        self.quarantines = Quarantines(self.clock, self.audit, self.redactor)
        commits = CopiedCommits(
            self.sandbox,
            self._copy_spec,
            lambda session_id: Path(self.sessions.get(session_id).workspace),
            lambda session_id: settings.sessions_dir / session_id,
            self.named_secrets.login_for,
        )
        self.commits = commits
        self.pushes = GitBroker(self.gate, commits, Fetches(self.gate, commits, settings.hold_s))
        self.branches = Branches(self.gate, commits)
        self.containment = Containment(
            self.sandbox,
            lambda session_id: self._contained_spec(session_id, Exec(command=PROBE)),
            self._containment_checked,
        )
        self.exec_broker = ExecBroker(
            self.gate,
            self.sandbox,
            self._command_spec,
            partial(lend_ports, self.network, doors),
            self._with_scripts,
        )
        self.mcp_servers = McpServers(
            self.gate,
            self.sandbox,
            Around(
                self._mcp_spec,
                lambda server: self.named_secrets.of_server(server.credentials),
                self.network.open_server,
                self.network.close_session,
                PROXY_PORT,
                AGENT_PORT,
            ),
            settings.data_dir / "mcp-tools",
            self.clock,
        )
        self.surroundings = Surroundings(
            end_mcp_servers=self.mcp_servers.end_session,
            named_secrets=self.named_secrets,
            settings=settings,
            gate=self.gate,
            queue=self.queue,
            network=self.network,
            spending=self.spending,
            ca_bundle=inside,
            java_store=write_java_store(settings.data_dir / "ca-bundle.p12", inside),
            doors=doors,
            now=self.clock.now,
            quarantines=self.quarantines,
            keep_answer=lambda session_id, answer: self.sessions.record_review(session_id, answer),
            exec_broker=self.exec_broker,
            containment=self.containment,
            job_results=JobResults(self.gate, commits, self.pushes, self.spending.cost_words),
            names=names,
        )
        self.left = self.surroundings.left
        self.kept_copies = KeptCopies(
            settings.sessions_dir, settings.kept_copies_bytes, self._needs_copy
        )
        self.files = self._watched_files()
        self.sessions = SessionManager(
            engine=self.engine,
            audit=self.audit,
            clock=self.clock,
            sandbox=self.sandbox,
            surroundings=self.surroundings,
            folder=settings.sessions_dir,
            max_uptime_s=settings.max_uptime_s,
        )
        self.sessions.on_change(
            lambda session: self.network.keep_bodies(session.id, is_on=session.keep_bodies)
        )
        self.installs = self._install_broker(inside)
        self._register_handlers()

    def workspace_of(self, session_id: str) -> WorkspaceChannel | None:
        """Return the workspace channel of a session that hasn't ended."""
        return self.surroundings.channel(session_id)

    def running_workspace(self, session_id: str) -> WorkspaceChannel:
        """Return the same for what its agent asks; `RefusedError` where there is none, or all that
        the agent changes is judged at its end."""
        if keeps_changes(self.sessions.get(session_id)):
            raise RefusedError(KEPT, CHANGE_THE_COPY)
        workspace = self.workspace_of(session_id)
        if workspace is None:
            raise RefusedError(
                "this session's workspace is not open", "wait until the session runs"
            )
        return workspace

    def card_extras(self, request: Request) -> dict[str, Any]:
        """Return what the review service says to a card."""
        return self._card_extras(self, request)

    def undoing(self, session_id: str) -> AbstractAsyncContextManager[Undo]:
        """Yield a session's undo, running or ended."""
        return self.surroundings.undoing(self.sessions.get(session_id))

    def progress(self, session_id: str) -> tuple[int, int] | None:
        """Return how many of a session's effects are done, and of how many, while many are carried
        out or taken back together."""
        return self.surroundings.progress(session_id)

    async def end_cut_undos(self) -> None:
        """At start-up: finish or roll back undos that a crash cut short, of any session."""
        for mark in self.settings.sessions_dir.glob(f"*/{MARK}"):
            try:
                async with self.undoing(mark.parent.name):
                    pass
            except GatehouseError as error:
                log.error(
                    "an undo was cut short and can't be ended",
                    session=mark.parent.name,
                    error=str(error),
                )

    async def load_secrets(self) -> None:
        """Read the named secrets; `UserError` where one can't be, or where the key of a
        model is none."""
        for name, key in self.settings.model_keys.items():
            if key:
                check_secret(name, key, signs=name in SIGNING_KEYS)
        await self.named_secrets.load(
            self.settings.bindings_file, self.settings.secrets_dir, self.redactor
        )

    async def load_mcp_servers(self) -> None:
        """Read which MCP servers agents may use; `UserError` where the file can't be used."""
        servers = read_servers(self.settings.mcp_servers_file)
        self.named_secrets.keep_from_agents(only_for_servers(servers.values()))
        self.surroundings.credentials_changed()
        self.mcp_servers.use(servers)

    def _needs_copy(self, session_id: str) -> bool:
        waits = session_id in self.left or self.sessions.has_branch(session_id)
        return waits or self.gate.rulings.is_open(session_id)

    @property
    def files_banner(self) -> str | None:
        """Return the faults of prices and credentials; policies have a banner of their own."""
        return self.files.banner

    def close(self) -> None:
        """Give back what `__init__` took."""
        with contextlib.suppress(StorageError):
            self.gate.pending_writes.write()
        self.audit.close()
        self.engine.dispose()
        os.close(self._lock)

    def drop_ended_rules(self) -> None:
        """Take saved rules away whose time or session is over, and put that on record."""
        is_open, left = self.gate.rulings.is_open, self.left
        for policies in self.gate.rulings.policy_sets.all():
            for rule in policies.drop_ended(lambda one: not is_open(one) or one in left):
                event, fields = audit_lines.rule_ended(rule)
                self.audit.record(event, **fields)

    def _watched_files(self) -> FileWatch:
        """Policies, prices, credentials."""
        settings, policies = self.settings, self.gate.rulings.policy_sets

        async def look_at_policies() -> None:
            # They look at their files by themselves, also before every verdict: what a person saved
            # holds for the next one.
            _ = policies.banner

        async def use_prices() -> None:
            self.spending.use_prices(read_prices(settings.prices_file))

        async def use_credentials() -> None:
            await self.load_secrets()
            self.surroundings.credentials_changed()
            self.mcp_servers.end_changed()

        kinds = (
            WatchedFiles(
                "policies",
                lambda: [path for one in policies.all() for path in (one.file, one.saved_file)],
                look_at_policies,
            ),
            WatchedFiles("prices", lambda: [settings.prices_file], use_prices),
            WatchedFiles("MCP servers", lambda: [settings.mcp_servers_file], self.load_mcp_servers),
            WatchedFiles(
                "credentials",
                lambda: [settings.bindings_file, *self.named_secrets.value_files],
                use_credentials,
            ),
        )
        return FileWatch(kinds, busy=settings.data_dir)

    def _install_broker(self, ca_bundle: Path) -> PackageBroker:
        reach = (self.network.open_reach, self.network.close_session)
        runs = InstallSandbox(self.sandbox, self._tool_spec, self._install_spec, *reach, PROXY_PORT)
        registry = RegistryClient(*reach, ca_bundle)
        plans = PackagePlans(self.gate, runs, registry, self.clock.now, self._updates_of)
        return PackageBroker(
            *(self.gate, plans, runs),
            *(self.surroundings.reopen, self.surroundings.compare_left),
            is_offered=self.settings.backend == "bubblewrap",
        )

    def _register_handlers(self) -> None:
        handlers = self.gate.handlers
        handlers.on_ready("packages", "agent_api", self.installs.carry_out)
        handlers.on_ready("packages", "agent_tool", self.installs.carry_out)
        handlers.on_ready("git", "agent_api", self.pushes.carry_out)
        handlers.on_ready("git", "agent_tool", self.pushes.carry_out)
        broker = self.exec_broker
        handlers.on_ready("exec", "agent_api", broker.carry_out)
        handlers.on_claimed("exec", "agent_api", broker.has_room, broker.carry_out)
        handlers.on_ready("exec", "mcp", self.mcp_servers.carry_out)
        handlers.on_ready("sandbox", "mcp", self.mcp_servers.take_tools)
        handlers.on_ready("sandbox", "agent_api", ProposalBroker(self.gate).carry_out)
        handlers.on_ready("filesystem", "agent_api", self._apply_change)
        handlers.on_ready("filesystem", "workspace", self._apply_change)
        handlers.on_ready_together("filesystem", "workspace", self._apply_changes)

    def _updates_of(self, session_id: str) -> Updates | None:
        job = self.sessions.get(session_id).job
        return job.updates if job is not None else None

    def _tool_spec(self, session_id: str, action: Exec) -> Spec:
        return self.surroundings.tool_spec(self.sessions.get(session_id), action)

    def _command_spec(self, session_id: str, action: Exec) -> Spec:
        return self.surroundings.command_spec(self.sessions.get(session_id), action)

    def _mcp_spec(
        self, session_id: str, name: str, server: McpServer, variables: Mapping[str, str]
    ) -> Spec:
        session = self.sessions.get(session_id)
        return self.surroundings.mcp_spec(session, name, server, variables)

    def _install_spec(
        self, session_id: str, spec: Spec, shows_home: bool, places: tuple[str, ...]
    ) -> Spec:
        session = self.sessions.get(session_id)
        return self.surroundings.install_spec(session, spec, places, shows_home=shows_home)

    def _contained_spec(self, session_id: str, action: Exec) -> Spec:
        return self.surroundings.contained_spec(self.sessions.get(session_id), action)

    def _copy_spec(self, session_id: str, action: Exec) -> Spec:
        return self.surroundings.copy_spec(self.sessions.get(session_id), action)

    def _containment_checked(self, session_id: str, problems: tuple[str, ...]) -> None:
        with contextlib.suppress(StorageError):
            self.audit.record("containment_checked", session=session_id, problems=problems)
            self.gate.rulings.set_contained(session_id, is_contained=not problems)

    async def _with_scripts(self, session_id: str, action: Exec) -> Exec:
        channel = self.workspace_of(session_id)
        return action if channel is None else await channel.with_scripts(action)

    async def _apply_change(self, request: Request) -> None:
        channel = self.workspace_of(request.session_id)
        if channel is not None:
            await channel.carry_out(request)

    async def _apply_changes(self, requests: Sequence[Request]) -> None:
        channel = self.workspace_of(requests[0].session_id)
        if channel is not None:
            await channel.carry_out_all(requests)


def _backend(settings: Settings) -> Sandbox:
    if settings.backend == "compose":
        return Compose(settings.control_dir)
    return Bubblewrap(settings.data_dir / "sandbox")
