"""Composition root: build every part from settings, start and stop them in order.

    start   data folder locked -> database, audit -> policy -> gate -> egress -> operator's door ->
            sessions that a crash left
    stop    sessions (denied, last pass, agents ended) -> operator's clients told -> egress -> hits,
            audit, lock

Nothing is global: two supervisors on two data folders can run in one process. `run_session` is one
session from its start to its end, and `handle_signals` what ends a supervisor.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from supervisor.app import data_folder, file_watch
from supervisor.app.session_parts import SessionSetup
from supervisor.base import log
from supervisor.base.clock import Clock, RealClock
from supervisor.channels.branches import Branches
from supervisor.channels.exec import ExecBroker, SpecFor
from supervisor.channels.fetches import Fetches
from supervisor.channels.git import GitBroker
from supervisor.channels.git_pack import CopiedCommits
from supervisor.channels.install_sandbox import InstallSandbox
from supervisor.channels.job_results import JobResults
from supervisor.channels.package_plans import PackagePlans
from supervisor.channels.packages import PackageBroker
from supervisor.channels.proposals import ProposalBroker
from supervisor.channels.registry_client import RegistryClient
from supervisor.core.actions import Exec, FileChange
from supervisor.core.approvals import Request
from supervisor.core.budget import parse_budget
from supervisor.core.forge_acts import Act
from supervisor.core.network.credentials import check_secret
from supervisor.core.secrets.redact import Redactor
from supervisor.errors import GatehouseError, SandboxError, StorageError
from supervisor.gate import audit_lines
from supervisor.gate.gate import Gate
from supervisor.ledger.spending import Spending, read_prices
from supervisor.network.ca import ensure_ca, system_bundle, write_bundle, write_java_store
from supervisor.network.model_hosts import model_hosts_of
from supervisor.network.network import NetworkBroker
from supervisor.network.network_log import NetworkLog
from supervisor.records.approval_queue import ApprovalQueue
from supervisor.records.audit import Audit, watch_audit
from supervisor.records.audit_heads import Heads
from supervisor.records.kill_switch import KillSwitch
from supervisor.records.policy_files import PolicyFiles
from supervisor.reviews.routes import reviews_api, reviews_page
from supervisor.reviews.service import ReviewService
from supervisor.sandbox.base import Sandbox, Spec
from supervisor.sandbox.bubblewrap import Bubblewrap
from supervisor.sandbox.compose import Compose
from supervisor.sandbox.containment import PROBE, Containment
from supervisor.server.app import build_agent_app, build_operator_app
from supervisor.server.common.auth import OperatorAuth
from supervisor.server.common.listening import ANYWHERE, LOOPBACK, listen, own_addresses
from supervisor.server.common.serve import serve_agent, serve_operator
from supervisor.server.operator.routes import page_frame, pages
from supervisor.sessions.credentials import NamedSecrets
from supervisor.sessions.kept_copies import KeptCopies
from supervisor.sessions.session_manager import SessionManager
from supervisor.sessions.session_sandboxes import PROXY_PORT
from supervisor.sessions.standing import standing
from supervisor.sessions.start_session import StartSession
from supervisor.settings import ROOT, Settings
from supervisor.store.engine import open_database
from supervisor.workspace.channel import WorkspaceChannel
from supervisor.workspace.quarantines import Quarantines
from supervisor.workspace.undo.undo import MARK, Undo

HITS_EVERY_S = 2.0
COPIES_EVERY_S = 600.0
STOPPED = "Gatehouse was stopped"


class SupervisorParts:
    """Every part of one supervisor. `names` stands in for DNS (tests)."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        sandbox: Sandbox | None = None,
        names: dict[str, tuple[str, ...]] | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock or RealClock()
        self.redactor = Redactor([key for key in settings.model_keys.values() if key])
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
        self.tasks: asyncio.TaskGroup | None = None
        # The review service, for as long as it is open on these parts.
        self.reviews: ReviewService | None = None
        self.named_secrets = NamedSecrets()
        self.quarantines = Quarantines(self.clock, self.audit, self.redactor)
        self.surroundings = SessionSetup(
            named_secrets=self.named_secrets,
            settings=settings,
            gate=self.gate,
            queue=self.queue,
            network=self.network,
            spending=self.spending,
            ca_bundle=inside,
            java_store=write_java_store(settings.data_dir / "ca-bundle.p12", inside),
            serve_agent=self._serve_agent,
            now=self.clock.now,
            quarantines=self.quarantines,
            names=names,
        )
        self.left = self.surroundings.left
        self.kept_copies = KeptCopies(
            settings.sessions_dir, settings.kept_copies_bytes, self._needs_copy
        )
        self.files = file_watch.watched(
            settings,
            self.gate.rulings.policy_sets,
            self.spending,
            self.named_secrets,
            self.load_secrets,
            self.surroundings,
        )
        self.sessions = SessionManager(
            engine=self.engine,
            audit=self.audit,
            clock=self.clock,
            sandbox=self.sandbox,
            surroundings=self.surroundings,
            folder=settings.sessions_dir,
            max_uptime_s=settings.max_uptime_s,
        )
        self.surroundings.quarantined.keep_answer = self.sessions.record_review
        self.sessions.on_change(
            lambda session: self.network.keep_bodies(session.id, is_on=session.keep_bodies)
        )
        self._register_brokers()

    def workspace_of(self, session_id: str) -> WorkspaceChannel | None:
        """Return the workspace channel of a session that hasn't ended."""
        return self.surroundings.channel(session_id)

    @property
    def has_reviews(self) -> bool:
        """Return whether the review service is on."""
        return self.reviews is not None

    def card_extras(self, request: Request) -> dict[str, bool]:
        """Return what the review service says to a card."""
        return reviews_page.card_extras(self, request)

    def undoing(self, session_id: str) -> AbstractAsyncContextManager[Undo]:
        """Yield a session's undo, running or ended."""
        return self.surroundings.undoing(self.sessions.get(session_id))

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
                check_secret(name, key)
        await self.named_secrets.load(
            self.settings.bindings_file, self.settings.secrets_dir, self.redactor
        )

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

    def _register_brokers(self) -> None:
        def tool_spec(session_id: str, action: Exec) -> Spec:
            return self.surroundings.tool_spec(self.sessions.get(session_id), action)

        def command_spec(session_id: str, action: Exec) -> Spec:
            return self.surroundings.command_spec(self.sessions.get(session_id), action)

        run = ExecBroker(
            self.gate, self.sandbox, command_spec, self.surroundings.lend_proxy, self._with_scripts
        )
        self.installs = install_broker(
            *(self.gate, self.sandbox, self.network, self.surroundings, self.clock, tool_spec),
            is_offered=self.settings.backend == "bubblewrap",
        )
        self.gate.handlers.on_ready("packages", "agent_api", self.installs.carry_out)
        commits = CopiedCommits(
            self.sandbox,
            lambda session_id, action: self.surroundings.copy_spec(
                self.sessions.get(session_id), action
            ),
            lambda session_id: Path(self.sessions.get(session_id).workspace),
            lambda session_id: self.settings.sessions_dir / session_id,
            self.named_secrets.login_for,
        )
        fetches = Fetches(self.gate, commits, self.settings.hold_s)
        self.pushes = GitBroker(self.gate, commits, fetches)
        self.branches = Branches(self.gate, commits)
        self.surroundings.job_results = JobResults(
            self.gate, commits, self.pushes, self.spending.cost_words
        )
        self.containment = Containment(
            self.sandbox,
            lambda session_id: tool_spec(session_id, Exec(command=PROBE)),
            self._containment_checked,
        )
        self.surroundings.containment = self.containment
        self.gate.handlers.on_ready("git", "agent_api", self.pushes.carry_out)
        self.surroundings.exec_broker = run
        self.gate.handlers.on_ready("exec", "agent_api", run.carry_out)
        self.gate.handlers.on_ready("sandbox", "agent_api", ProposalBroker(self.gate).carry_out)
        self.gate.handlers.on_ready("filesystem", "agent_api", self._apply_change)
        self.gate.handlers.on_ready("filesystem", "workspace", self._apply_change)
        self.gate.handlers.on_ready_together("filesystem", "workspace", self._apply_changes)

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

    async def _serve_agent(
        self, session_id: str, listener: socket.socket
    ) -> Callable[[], Awaitable[None]]:
        assert self.tasks is not None
        door = serve_agent(build_agent_app(self, session_id), listener)
        self.tasks.create_task(door.run(), name=f"agent-door-{session_id}")
        await door.started.wait()
        return door.stop


def _backend(settings: Settings) -> Sandbox:
    if settings.backend == "compose":
        return Compose(settings.control_dir)
    return Bubblewrap(settings.data_dir / "sandbox")


class Supervisor:
    """One running supervisor: `async with Supervisor(settings) as supervisor` starts it, and
    leaving stops it in order."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        sandbox: Sandbox | None = None,
        names: dict[str, tuple[str, ...]] | None = None,
    ) -> None:
        self.parts = SupervisorParts(settings, clock=clock, sandbox=sandbox, names=names)
        self.findings: list[str] = []
        self._tasks = asyncio.TaskGroup()
        self._stop = asyncio.Event()
        self.hurry = asyncio.Event()
        self._copies_due = 0.0

    @property
    def port(self) -> int:
        """Return the port of the operator's page."""
        return self._door.port

    def login_url(self) -> str:
        """A URL that signs one browser in, once."""
        return self.auth.login_url()

    @property
    def stopping(self) -> bool:
        """Return whether somebody asked for the end."""
        return self._stop.is_set()

    def request_stop(self, *, is_hurried: bool = False) -> None:
        """Begin the orderly end; for signal handlers. `is_hurried`: wait for no review."""
        self._stop.set()
        if is_hurried:
            self.hurry.set()

    async def wait_for_stop(self) -> None:
        """Return when somebody asked for the end."""
        await self._stop.wait()

    async def __aenter__(self) -> "Supervisor":
        parts = self.parts
        try:
            await parts.load_secrets()
            parts.sandbox.open()
            await self._tasks.__aenter__()
            parts.gate.handlers.run_in(self._tasks)
            parts.sessions.run_in(self._tasks)
            parts.tasks = self._tasks
            # Compose publishes the port on the host's 127.0.0.1 alone.
            is_published = parts.settings.backend == "compose"
            listener = listen(parts.settings.port, ANYWHERE if is_published else LOOPBACK)
            self.auth = OperatorAuth(port=listener.getsockname()[1], clock=parts.clock)
            self._app = build_operator_app(
                parts,
                self.auth,
                (*pages.handlers(), *reviews_page.handlers(), *reviews_api.handlers()),
                error_page=page_frame.error_page,
            )
            self._door = serve_operator(self._app, listener)
            self._tasks.create_task(self._door.run(), name="operator-door")
            await self._door.started.wait()
            own = tuple((one, self.port) for one in ("127.0.0.1", "::1", *own_addresses()))
            parts.network.forbid(own)
            parts.gate.rulings.forbid_endpoints(frozenset(own))
            await parts.network.start(self._tasks)
            data_folder.write_contact(parts.settings.data_dir, self.port, self.auth.cli_token)
            parts.gate.answers.complete_record()
            with contextlib.suppress(StorageError):  # a page that says so helps more than no page
                parts.audit.record(
                    "supervisor_started",
                    pid=os.getpid(),
                    port=self._door.port,
                    **parts.policies.on_record(),
                )
            self._report_unknown_effects()
            if lost := parts.spending.lose_all():
                self.findings.append(
                    f"{lost} model calls were under way when the supervisor died; they count as"
                    " reserved"
                )
            self.findings += parts.sessions.take_up_sessions()
            for session in standing(parts.engine):
                parts.gate.rulings.open_session(session)
            parts.surroundings.take_up_left(parts.sessions.get)
            await parts.end_cut_undos()
            parts.gate.answers.offer_ready()
            parts.drop_ended_rules()
            self._rejudge(
                "the rules as they were at the start"
            )  # one that was saved just before a crash
            parts.policies.on_change = lambda is_saved: self._policy_changed(
                parts.policies, is_saved
            )
            parts.gate.rulings.policy_sets.on_change = self._policy_changed
            # Bytes inside an open stream or tunnel are never asked about again.
            parts.kill_switch.on_stop = parts.network.end_connections
            self._background = self._tasks.create_task(self._keep_house(), name="housekeeping")
            self._watching = (
                self._tasks.create_task(
                    watch_audit(parts.audit, self._app.state["live"].status_changed),
                    name="audit-watch",
                ),
                self._tasks.create_task(parts.files.run(self._file_read), name="file-watch"),
            )
        except BaseException:
            parts.close()
            raise
        return self

    async def __aexit__(self, *failure: object) -> None:
        parts = self.parts
        try:
            await parts.sessions.stop_all(STOPPED)
            await self._door.stop(STOPPED)
            await parts.network.stop()
            await parts.sandbox.close()
            self._background.cancel()
            for watching in self._watching:
                watching.cancel()
            await self._tasks.__aexit__(None, None, None)
            self._app.state["refused_attempts"].tell(is_end=True)
            with contextlib.suppress(StorageError):
                parts.audit.record("supervisor_stopped")
        finally:
            data_folder.remove_contact(parts.settings.data_dir)
            parts.close()

    async def _keep_house(self) -> None:
        was_stopped = False
        while True:
            await asyncio.sleep(HITS_EVERY_S)
            stopped = self.parts.kill_switch.reason() is not None
            if stopped and not was_stopped:  # by hand, perhaps
                self.parts.network.end_connections()
            was_stopped = stopped
            try:
                self.parts.drop_ended_rules()
                self.parts.network.reconsider()  # a rule may have run out
                self._app.state["refused_attempts"].tell()
                self.parts.gate.pending_writes.write()
                await self.parts.surroundings.tidy_left()
                await self._tidy_copies()
            except Exception as error:  # a full disk, mostly: it must not end the supervisor
                log.error("housekeeping failed", error=str(error))

    async def _tidy_copies(self) -> None:
        now = self.parts.clock.monotonic()
        if now >= self._copies_due:
            self._copies_due = now + COPIES_EVERY_S
            await self.parts.kept_copies.tidy()

    def _policy_changed(self, policies: PolicyFiles, is_saved: bool) -> None:
        with contextlib.suppress(StorageError):
            if policies.banner:
                self.parts.audit.record(
                    "policy_rejected", why=policies.banner, policy=str(policies.file)
                )
            else:
                self.parts.audit.record("policy_loaded", **policies.on_record())
        self._app.state["live"].policy_changed()
        self.parts.surroundings.reconsider()
        self.parts.network.rules_changed()
        if not is_saved:
            self._rejudge("a change of the policy file")

    def _file_read(self, kind: str, error: str | None) -> None:
        if kind != "policies":  # which say so themselves
            with contextlib.suppress(StorageError):
                self.parts.audit.record(
                    "file_rejected" if error else "file_loaded", kind=kind, why=error
                )
        self._app.state["live"].status_changed()

    def _rejudge(self, by: str) -> None:
        """Let the rules as they are answer what waits, in turns."""

        async def rejudge() -> None:
            await self.parts.gate.answers.rejudge(by)

        self.parts.gate.handlers.run(rejudge(), "rejudge")

    def _report_unknown_effects(self) -> None:
        """Effects that were begun when the supervisor died. Changes of files, and acts on a forge,
        are finished by their channel, which can tell."""
        for request in self.parts.queue.unsettled():
            if request.origin != "egress" and not isinstance(request.action, FileChange | Act):
                outcome = {
                    "ok": False,
                    "error": (
                        "the supervisor died while this was carried out; it may or may not have"
                        " happened"
                    ),
                }
                self.parts.queue.settle_all({request.id: outcome}, self.parts.clock.now())
                self.parts.audit.record(
                    "effect_unknown", request=request.id, session=request.session_id
                )
                self.findings.append(
                    f"request {request.id} was being carried out when the supervisor died; it may"
                    " or may not have happened"
                )


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


async def run_session(
    supervisor: Supervisor, wanted: StartSession, started: Callable[[str], None]
) -> int:
    """Run one session to its end; the exit code of `gatehouse run`: the agent's own, 0 where
    MAX_UPTIME or a person ended it."""
    sessions = supervisor.parts.sessions
    session = await sessions.start(wanted)
    started(session.id)

    async def stop_with_supervisor() -> None:
        await supervisor.wait_for_stop()
        await sessions.stop(session.id, reason=STOPPED, by="operator")

    async with asyncio.TaskGroup() as tasks:
        stopping = tasks.create_task(stop_with_supervisor())
        final = await sessions.wait_ended(session.id)
        stopping.cancel()
    if final.ended_at is None:
        raise StorageError(
            "the session has ended, but its end couldn't be put on record",
            "see the lines above; `gatehouse audit` has what could be, and the next start the rest",
        )
    if final.started_at is None and not supervisor.stopping:
        raise SandboxError(final.end_reason)
    return final.exit_code or 0 if final.agent_exited_at is not None else 0


def handle_signals(supervisor: Supervisor) -> None:
    """SIGTERM, SIGINT and SIGHUP end the supervisor in order. SIGINT, or a second signal, waits
    for no review under way."""
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        supervisor.request_stop(is_hurried=number == signal.SIGINT or supervisor.stopping)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup
            loop.add_signal_handler(number, stop, number)
