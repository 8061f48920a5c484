"""One running supervisor: its parts, started and stopped in order.

    start   data folder locked -> database, audit -> policy -> gate -> egress -> operator's door ->
            sessions that a crash left
    stop    sessions (denied, last pass, agents ended) -> operator's clients told -> egress -> hits,
            audit, lock

`run_session` runs one session from start to end; `handle_signals` ends a supervisor on a signal.
"""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from supervisor.base import log
from supervisor.base.clock import Clock
from supervisor.core import waiting_lines
from supervisor.core.actions import FileChange
from supervisor.core.forge_acts import Act
from supervisor.errors import SandboxError, StorageError
from supervisor.gate.audit_lines import record_unknown
from supervisor.parts import Parts
from supervisor.records import data_folder
from supervisor.records.audit import watch_audit
from supervisor.records.policy_files import PolicyFiles
from supervisor.reviews.pages import jobs_page, metrics, reviews_page
from supervisor.sandbox.base import Sandbox
from supervisor.server.agent.agent_calls import budget_of_asks
from supervisor.server.app import build_agent_app, build_operator_app, build_programs_app
from supervisor.server.common.auth import OperatorAuth
from supervisor.server.common.listening import ANYWHERE, LOOPBACK, listen, own_addresses
from supervisor.server.common.request_guard import CallBudget
from supervisor.server.common.serve import LazyServing, Serving, serve_agent, serve_operator
from supervisor.sessions.standing import standing
from supervisor.sessions.start_session import StartSession
from supervisor.sessions.surroundings import Doors
from supervisor.settings import Settings

HITS_EVERY_S = 2.0
COPIES_EVERY_S = 600.0
STOPPED = "Gatehouse was stopped"


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
        self._told = waiting_lines.targets(settings.tell, "GATEHOUSE_TELL")
        self.parts = Parts(
            settings,
            clock=clock,
            sandbox=sandbox,
            names=names,
            doors=Doors(self._serve_agent, self._serve_programs),
            card_extras=reviews_page.card_extras,
        )
        for target in self._told:
            self.parts.redactor.add(target.url)
        self.findings: list[str] = []
        self._tasks = asyncio.TaskGroup()
        self._own_ports: set[int] = set()
        self._stop = asyncio.Event()
        self.hurry = asyncio.Event()
        self._copies_due = 0.0
        self._programs: dict[str, Any] = {}
        self._asks: dict[str, CallBudget] = {}

    @property
    def port(self) -> int:
        """Return the port of the operator's page."""
        return self._door.port

    def login_url(self) -> str:
        """Return a URL that signs one browser in, once."""
        return self.auth.login_url()

    @property
    def stopping(self) -> bool:
        """Return whether shutdown was requested."""
        return self._stop.is_set()

    def request_stop(self, *, is_hurried: bool = False) -> None:
        """Begin an orderly shutdown; for signal handlers. `is_hurried`: don't wait for running
        reviews.
        """
        self._stop.set()
        if is_hurried:
            self.hurry.set()

    async def wait_for_stop(self) -> None:
        """Wait until shutdown is requested."""
        await self._stop.wait()

    async def __aenter__(self) -> "Supervisor":
        parts = self.parts
        try:
            await parts.load_secrets()
            await parts.load_mcp_servers()
            parts.sandbox.open()
            await self._tasks.__aenter__()
            parts.gate.handlers.run_in(self._tasks)
            parts.sessions.run_in(self._tasks)
            # Compose publishes the port on the host's 127.0.0.1 alone.
            is_published = parts.settings.backend == "compose"
            listener = listen(parts.settings.port, ANYWHERE if is_published else LOOPBACK)
            self.auth = OperatorAuth(port=listener.getsockname()[1], clock=parts.clock)
            self._app = build_operator_app(
                parts,
                self.auth,
                (reviews_page, jobs_page, metrics),
            )
            self._door = serve_operator(self._app, listener)
            self._tasks.create_task(self._door.run(), name="operator-door")
            await self._door.started.wait()
            self.parts.surroundings.take_page(f"http://127.0.0.1:{self.port}")
            parts.own_port = self._forbid
            parts.own_port(self.port)
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
                *self._start_telling(),
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
            await parts.renderer.stop()
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

    def _forbid(self, port: int) -> None:
        """Have no session reach a port of ours, as those before."""
        self._own_ports.add(port)
        addresses = ("127.0.0.1", "::1", *own_addresses())
        own = tuple((one, port) for one in addresses for port in sorted(self._own_ports))
        self.parts.network.forbid(own)
        self.parts.gate.rulings.forbid_endpoints(frozenset(own))

    def _start_telling(self) -> list[asyncio.Task[None]]:
        if not self._told:
            return []
        from supervisor.app.telling import Telling  # a client that few need takes long to import

        changed = self._app.state["live"].status_changed
        telling = Telling(self.parts, self._told, f"http://127.0.0.1:{self.port}", changed)
        return [self._tasks.create_task(telling.run(), name="telling")]

    async def _serve_agent(
        self, session_id: str, listener: socket.socket
    ) -> Callable[[], Awaitable[None]]:
        asks = self._asks_of(session_id)
        door = serve_agent(build_agent_app(self.parts, session_id, asks), listener)
        self._tasks.create_task(door.run(), name=f"agent-door-{session_id}")
        await door.started.wait()

        async def stop() -> None:
            await door.stop()
            self._programs.pop(session_id, None)
            self._asks.pop(session_id, None)

        return stop

    def _asks_of(self, session_id: str) -> CallBudget:
        """Return what both doors of a session may ask together."""
        return self._asks.setdefault(session_id, budget_of_asks(self.parts.clock))

    async def _serve_programs(
        self, session_id: str, listener: socket.socket
    ) -> Callable[[], Awaitable[None]]:
        def build() -> Any:
            if session_id not in self._programs:
                page = f"http://127.0.0.1:{self.port}"
                asks = self._asks_of(session_id)
                app = build_programs_app(self.parts, session_id, page, asks)
                self._programs[session_id] = app
            return self._programs[session_id]

        def run(serving: Serving) -> None:
            self._tasks.create_task(serving.run(), name=f"programs-door-{session_id}")

        return LazyServing(listener, build, run).stop

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
                record_unknown(self.parts.audit, request.id, request.session_id)
                self.findings.append(
                    f"request {request.id} was being carried out when the supervisor died; it may"
                    " or may not have happened"
                )


async def run_session(
    supervisor: Supervisor, wanted: StartSession, started: Callable[[str], None]
) -> int:
    """Run one session to its end. Return the exit code of `gatehouse run`: the agent's, or 0 where
    MAX_UPTIME or a person ended it.
    """
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
    """Shut down in order on SIGTERM, SIGINT and SIGHUP. SIGINT, or a second signal, doesn't wait
    for running reviews.
    """
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        supervisor.request_stop(is_hurried=number == signal.SIGINT or supervisor.stopping)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup
            loop.add_signal_handler(number, stop, number)
