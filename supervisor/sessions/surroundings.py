"""Everything around one session: its channels, its doors, and the sockets lent to it.

`session_manager` says when; this says with what. It decides nothing about actions: that is the
gate's.
"""

import asyncio
import contextlib
import socket
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from supervisor import settings as environment
from supervisor.channels.exec import ExecBroker, GiveBack
from supervisor.channels.job_results import JobResults
from supervisor.channels.started_programs import StartedPrograms
from supervisor.core.actions import Exec, FileChange, Packages, category_of
from supervisor.core.agents.inside import (
    AGENT_PORT,
    PROGRAMS_PORT,
    can_listen_at,
)
from supervisor.core.approvals import Request, is_settled, status
from supervisor.core.jobs import JobResult
from supervisor.core.mcp_servers_file import McpServer
from supervisor.core.network.egress_wire import Credential, Listener
from supervisor.core.sessions import Session, is_quarantined, keeps_changes
from supervisor.errors import NotFoundError
from supervisor.gate.gate import Gate
from supervisor.gate.left_to_answer import LeftToAnswer, can_wait
from supervisor.ledger.spending import Spending
from supervisor.network.network import NetworkBroker
from supervisor.records.approval_queue import ApprovalQueue
from supervisor.sandbox import session_home
from supervisor.sandbox.base import DOOR_PORT, NAMES_PORT, Spec
from supervisor.sandbox.containment import Containment
from supervisor.sandbox.toolchains import tools_of
from supervisor.sessions import conversations, workspace_git
from supervisor.sessions.named_secrets import NamedSecrets
from supervisor.sessions.quarantined_sessions import KeepAnswer, QuarantinedSessions
from supervisor.sessions.session_plans import SessionPlans, must_have_copy
from supervisor.sessions.session_sandboxes import (
    GIT_CONFIG,
    PROXY_PORT,
    SessionSandboxes,
    StartingShell,
    Within,
    watched,
    with_programs,
)
from supervisor.sessions.start_session import StartSession
from supervisor.settings import ROOT, Settings
from supervisor.workspace.channel import WorkspaceChannel
from supervisor.workspace.copy import shared_copy
from supervisor.workspace.copy.private_copy import make_private_copy, move_copy
from supervisor.workspace.disk.overlay_changes import UPPER
from supervisor.workspace.quarantines import Quarantines
from supervisor.workspace.undo.undo import Undo, reopened

# What egress serves at a sandbox's ports; at all others, the port of this machine.
_KINDS: dict[int, Listener] = {PROXY_PORT: "proxy", DOOR_PORT: "door", NAMES_PORT: "names"}
MOST_HOST_PORTS = 16
DEFAULT_DATA = ROOT / "data"

type ServeDoor = Callable[[str, socket.socket], Awaitable[GiveBack]]


class Doors(NamedTuple):
    """Each serves a door of a session on a listening socket inside a sandbox, and gives what stops
    it: the agent's, and that of all its programs."""

    agent: ServeDoor
    programs: ServeDoor


class _OpenSession:
    """What ends with one session."""

    def __init__(self, session: Session, channel: WorkspaceChannel, caller: StartingShell) -> None:
        self.session = session
        self.channel = channel
        self.caller = caller
        self.enforces_exec_rules = False
        self.stop_doors: tuple[GiveBack, ...] = ()
        self.listeners: tuple[socket.socket, ...] = ()


class Surroundings:
    """The surroundings of one supervisor's sessions. Every method may be called again for a session
    that a crash left.

    `keep_answer` keeps what an agent in quarantine said with its session. `names` stands in for
    DNS.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        gate: Gate,
        queue: ApprovalQueue,
        network: NetworkBroker,
        spending: Spending,
        named_secrets: NamedSecrets,
        ca_bundle: Path,
        java_store: Path,
        doors: Doors | None,
        now: Callable[[], float],
        quarantines: Quarantines,
        keep_answer: KeepAnswer,
        exec_broker: ExecBroker,
        containment: Containment,
        end_mcp_servers: Callable[[str], Awaitable[None]],
        job_results: JobResults,
        names: Mapping[str, tuple[str, ...]] | None,
    ) -> None:
        self._quarantined = QuarantinedSessions(quarantines, settings.sessions_dir, keep_answer)
        self._settings = settings
        self._gate = gate
        self._queue = queue
        self._network = network
        self._spending = spending
        self._named_secrets = named_secrets
        self._doors = doors
        self.ca_bundle = ca_bundle
        self._opened: dict[str, _OpenSession] = {}
        self.left = LeftToAnswer(gate, queue, now, settings.keep_left_s)
        self._undos: dict[str, Undo] = {}
        self._undo_turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        # The default one too, where another is used: it may hold another supervisor's token and the
        # key of its authority.
        self._data_folders = tuple(dict.fromkeys((settings.data_dir, DEFAULT_DATA)))
        self._sandboxes = SessionSandboxes(
            settings, named_secrets, ca_bundle, java_store, self._data_folders
        )
        self._plans = SessionPlans(settings, gate, self._sandboxes, names)
        self._exec_broker = exec_broker
        self._containment = containment
        self._end_mcp_servers = end_mcp_servers
        self._job_results = job_results

    def take_page(self, address: str) -> None:
        """Take the address of the operator's page, which agents are told."""
        self._sandboxes.page = address

    def channel(self, session_id: str) -> WorkspaceChannel | None:
        """Return an open session's workspace channel."""
        opened = self._opened.get(session_id)
        return opened.channel if opened else None

    @contextlib.asynccontextmanager
    async def undoing(self, session: Session) -> AsyncIterator[Undo]:
        """Yield a session's undo, running or ended; one at a time for each session.

        `NotFoundError` where nothing of it is left to work with.
        """
        async with self._undo_turns[session.id]:
            channel = self.channel(session.id)
            if channel is None and session.ended_at is None:
                raise NotFoundError(
                    "the session was not taken up",
                    "run `gatehouse up`, which does that, and try again",
                )
            folder = self._settings.sessions_dir / session.id
            workspace = Path(session.workspace)
            opened = (
                channel.undoing()
                if channel is not None
                else reopened(session.id, workspace, folder, self._gate, self._data_folders)
            )
            async with opened as undo:
                self._undos[session.id] = undo
                try:
                    yield undo
                finally:
                    del self._undos[session.id]

    def progress(self, session_id: str) -> tuple[int, int] | None:
        """Return how many effects are done, and of how many, while many are applied or taken
        back."""
        channel, undo = self.channel(session_id), self._undos.get(session_id)
        history = undo.sides.history if undo else channel and channel.history
        return history.progress if history else None

    def reconsider(self) -> None:
        """Ask again about changes that the rules denied, since the rules changed."""
        for opened in self._opened.values():
            opened.channel.reconsider()

    # -- a session's start and end ---------------------------------------------------------------

    async def plan(self, wanted: StartSession) -> dict[str, Any]:
        """Return the start facts of a session of this kind; `UserError` where it can't
        be started.
        """
        found = await self._plans.plan(wanted, self._started_in(wanted))
        if is_quarantined(wanted.kind, wanted.command):
            self._quarantined.check_room()
        return found

    def spec(self, session: Session, token: str, *, tty: bool) -> Spec:
        """Return the agent's sandbox."""
        spec = self._sandboxes.of_agent(
            session, token, self._within(session), self._caller(session), tty=tty
        )
        spec = self._sandboxes.at_home(session, spec, owns_settings=True)
        spec = self._sandboxes.with_conversations(session, spec)
        spec = self._with_host_ports(session, self._quarantined.with_change(session, spec))
        return self._with_exec_rules(session, spec)

    def command_spec(self, session: Session, action: Exec) -> Spec:
        """Return the sandbox of a command that the agent asked for: its programs may ask, too."""
        return self._with_exec_rules(session, with_programs(self.contained_spec(session, action)))

    def contained_spec(self, session: Session, action: Exec) -> Spec:
        """Return the same without a way to ask, and a judge of the programs that it starts."""
        spec = self._sandboxes.at_home(session, self.tool_spec(session, action))
        return self._with_host_ports(session, spec)

    def _with_host_ports(self, session: Session, spec: Spec) -> Spec:
        """Return the same sandbox, which listens at the ports of this machine that rules name."""
        if is_quarantined(session.kind, session.command) or self._settings.backend == "compose":
            return spec
        known = self._gate.rulings.host_ports(session.id)
        ports = (*spec.ports, *list(filter(can_listen_at, known))[:MOST_HOST_PORTS])
        return msgspec.structs.replace(spec, ports=ports)

    def _with_exec_rules(self, session: Session, spec: Spec) -> Spec:
        opened = self._opened.get(session.id)
        if opened is None or not opened.enforces_exec_rules:
            return spec
        folders = frozenset(spec.env["PATH"].split(":"))
        programs = StartedPrograms(self._gate, session.id, folders, self._settings.hold_s)
        return watched(spec, programs.judge)

    def tool_spec(self, session: Session, action: Exec) -> Spec:
        """Return the sandbox of one command of ours, which sees nothing of the session's home."""
        return self._sandboxes.of_tool(
            session, action, self._within(session), self._caller(session)
        )

    def mcp_spec(
        self, session: Session, name: str, server: McpServer, variables: Mapping[str, str]
    ) -> Spec:
        """Return the sandbox of an operator's MCP server."""
        return self._sandboxes.of_mcp_server(session, name, server, variables)

    def install_spec(
        self, session: Session, spec: Spec, places: tuple[str, ...], *, shows_home: bool
    ) -> Spec:
        """Return an install's sandbox with where it puts what it installs outside of projects."""
        return self._sandboxes.filling(session, spec, places, shows_home=shows_home)

    def copy_spec(self, session: Session, action: Exec) -> Spec:
        """Return the sandbox of a command that only reads the private copy's repositories, also
        once the session has ended: of an overlay that isn't mounted any more, its upper folder
        has them whole."""
        spec = self.tool_spec(session, action)
        upper = self._settings.sessions_dir / session.id / UPPER
        if self._within(session) is None and upper.is_dir():
            return msgspec.structs.replace(spec, workspace_merged=upper)
        return spec

    def policy_on_record(self, session: Session) -> dict[str, Any]:
        """Return path and hash of its policy files."""
        return self._gate.rulings.policy_sets.of(session).on_record()

    def open(self, session: Session, wanted: StartSession | None = None) -> None:
        """Begin to judge its actions, and get ready to apply its changes."""
        self._gate.rulings.open_session(session)
        self._spending.open_session(session)
        opened = self._opened[session.id] = _OpenSession(
            session,
            WorkspaceChannel(
                session_id=session.id,
                workspace=Path(session.workspace),
                folder=self._settings.sessions_dir / session.id,
                gate=self._gate,
                protected=self._data_folders,
                is_job=session.job is not None,
            ),
            self._started_in(wanted),
        )
        if wanted is not None and is_quarantined(session.kind, session.command):
            self._quarantined.open(session)
        how = session.limits.exec_rules or self._settings.exec_rules
        opened.enforces_exec_rules = how == "enforce"

    async def copy_workspace(
        self, session: Session, wanted: StartSession, on_progress: Callable[[int, int, int], None]
    ) -> tuple[str, ...]:
        """Make the private copy, or take over that of an ended session; return notes for the
        person."""
        if is_quarantined(session.kind, session.command):
            return await self._quarantined.copy_workspace(session, self._data_folders, on_progress)
        folder = self._settings.sessions_dir / session.id
        git_config = await workspace_git.sandbox_config(Path(session.workspace))
        await asyncio.to_thread((folder / GIT_CONFIG).write_text, git_config, errors="replace")
        if self._settings.backend == "compose" and wanted.resume is None:
            await self._lend(folder)
        if wanted.resume is not None:
            await self._take_over(session, wanted.resume)
        if self._settings.backend == "bubblewrap":
            await asyncio.to_thread(session_home.prepare, folder / session_home.HOME_FOLDER)
            await asyncio.to_thread(self._sandboxes.prepare_stores, session)
            await asyncio.to_thread(conversations.prepare, session, self._settings)
        if wanted.resume is not None:
            return (f"it goes on with the copy of session {wanted.resume}",)
        include_ignored = wanted.include_ignored
        made = await make_private_copy(
            Path(session.workspace),
            self._settings.sessions_dir / session.id,
            wanted.copy or self._settings.copy_mode,
            exclude=self._data_folders,
            include_ignored=(
                self._settings.include_ignored if include_ignored is None else include_ignored
            ),
            on_progress=on_progress,
        )
        if made.mount is not None:
            self._opened[session.id].channel.take_mount(made.mount)
        return made.notes

    def _started_in(self, wanted: StartSession | None) -> StartingShell:
        """Return the shell that a session is started in; by default, this supervisor's."""
        given = None if wanted is None else wanted.binds
        path = None if wanted is None else wanted.search_path
        variables = None if wanted is None else wanted.environment
        return StartingShell(
            environment.search_path() if path is None else path,
            environment.of_the_caller() if variables is None else variables,
            tools_of(self._settings.binds if given is None else given, Path.home()),
        )

    async def attach(self, session: Session, listeners: Mapping[int, socket.socket]) -> None:
        """Watch the copy, lend the proxy's socket to egress and serve the agent's API, all before
        the agent starts.
        """
        opened = self._opened[session.id]
        # The doors close their own.
        doors = (AGENT_PORT, PROGRAMS_PORT)
        opened.listeners = tuple(one for port, one in listeners.items() if port not in doors)
        if not self._stays_in_copy(session):
            await opened.channel.start()
        await self._network.open_session(session.id, listeners[PROXY_PORT], self._credentials)
        self._network.keep_bodies(session.id, is_on=session.keep_bodies)
        for port, listener in listeners.items():
            if port not in (PROXY_PORT, *doors):
                kind = _KINDS.get(port, "host")
                await self._network.open_session(session.id, listener, kind=kind, port=port)
        assert self._doors is not None
        opened.stop_doors = (await self._doors.agent(session.id, listeners[AGENT_PORT]),)
        if PROGRAMS_PORT in listeners:
            stop = await self._doors.programs(session.id, listeners[PROGRAMS_PORT])
            opened.stop_doors += (stop,)
        if self._gate.rulings.runs_contained(session.id):
            check = self._containment.checked(session.id)
            self._gate.handlers.run(_to_end(check), f"containment-{session.id}")

    async def final_pass(self, session: Session, why: str) -> None:
        """Compare the whole copy with the host; nothing where no copy was made."""
        await self._quarantined.take_answer(session)
        await self._exec_broker.until_stopped(session.id)
        is_copied = (self._settings.sessions_dir / session.id / "merged").is_dir()
        if is_copied and not self._stays_in_copy(session):
            await self._opened[session.id].channel.final_pass(why)

    def waits_for_person(self, session_id: str) -> bool:
        """Return whether a file change waits for an answer or to be applied."""
        return any(_is_change(request) for request in self._open_requests(session_id))

    async def until_something_is_answered(self, session_id: str) -> None:
        """Return when any request of the session changed; after a second in any case, so that no
        lost event can hang a session."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._queue.next_change_in_session(session_id)

    async def finish_job(self, session: Session) -> JobResult | None:
        """Return the result of a job; None for every other session."""
        if session.job is None:
            return None
        self.close_requests(session.id, "the agent has exited")
        await self._exec_broker.until_stopped(session.id)
        return await self._job_results.of(session, session.job, self._opened[session.id].channel)

    def close_requests(self, session_id: str, why: str) -> None:
        """Deny the requests that can't wait without the agent, and end running commands."""
        self._exec_broker.stop_session(session_id)
        self._gate.answers.close_session(session_id, why, keep=can_wait)

    async def detach(self, session: Session) -> None:
        """Close the doors and stop watching. Requests left stay answerable; without any, the
        session's actions are no longer judged.
        """
        self._spending.close_session(session.id)
        await self._end_mcp_servers(session.id)
        await self._quarantined.close(session)
        async with self._undo_turns[session.id]:
            try:
                await self._detach(session)
            finally:
                self.left.add(session.id)
        await self.tidy_left()

    async def _detach(self, session: Session) -> None:
        opened = self._opened.get(session.id)
        await self._network.close_session(session.id)
        self._exec_broker.forget_session(session.id)
        self._containment.forget(session.id)
        if opened is not None:
            for stop in opened.stop_doors:
                await stop()
            opened.stop_doors = ()
            opened.channel.has_ended = True
            await opened.channel.stop()
            for listener in opened.listeners:
                listener.close()
            opened.listeners = ()
            folder = self._settings.sessions_dir / session.id
            await asyncio.to_thread(shared_copy.take_back, folder)

    # -- what is left to answer -------------------------------------------------------------------

    def take_up_left(self, find: Callable[[str], Session]) -> None:
        """At start-up, make the requests that ended sessions left answerable."""
        waiting = [*self._queue.get_all(self._queue.pending_ids()), *self._queue.ready()]
        for session in map(find, dict.fromkeys(one.session_id for one in waiting)):
            if session.ended_at is not None and session.id not in self._opened:
                self.open(session)
                self._opened[session.id].channel.has_ended = True
                self._spending.close_session(session.id)
                self.left.add(session.id, session.ended_at)

    async def tidy_left(self) -> None:
        """Close requests that nobody answered in time, forget sessions without requests left, and
        free what the others don't need meanwhile.
        """
        self.left.close_over()
        for session_id in self.left:
            requests = self.left.requests(session_id)
            if not requests and session_id in self._opened:
                await self._opened[session_id].channel.until_idle()
                requests = self.left.requests(session_id)  # what came to nothing waits again
            if not requests:
                self._gate.rulings.close_session(session_id)
                self.left.remove(session_id)
            if all(status(one) == "pending" for one in requests):
                self._spending.close_session(session_id)
                async with self._undo_turns[session_id]:
                    opened = self._opened.get(session_id)
                    if opened is not None:
                        await opened.channel.stop()
                    if not requests:
                        self._opened.pop(session_id, None)

    async def _take_over(self, session: Session, resumed: str) -> None:
        """Go on with the copy of a session that has ended. What it left of changes and installs is
        asked anew by this one."""
        folder = self._settings.sessions_dir
        must_have_copy(folder / resumed)
        async with self._undo_turns[resumed]:
            opened = self._opened.get(resumed)
            if opened is not None:
                await opened.channel.stop()
            left = [
                one.id
                for one in self.left.requests(resumed)
                if isinstance(one.action, FileChange | Packages) and status(one) == "pending"
            ]
            self._gate.answers.close(f"session {session.id} goes on with this copy", *left)
            await asyncio.to_thread(move_copy, folder / resumed, folder / session.id)
            if self._settings.backend == "compose":
                await self._lend(folder / session.id)
        await self.tidy_left()
        await self._opened[session.id].channel.reopen()

    async def _lend(self, folder: Path) -> None:
        running = {one for one in self._opened if one not in self.left}
        await asyncio.to_thread(
            shared_copy.lend, folder, self._settings.shared_copy, running.__contains__
        )

    async def reopen(self, session_id: str) -> None:
        """Mount an ended session's copy, if it is an overlay. Effects on it count in the session's
        own budget.
        """
        if session_id in self.left and session_id in self._opened:
            self._spending.open_session(self._opened[session_id].session)
            await self._opened[session_id].channel.reopen()

    async def compare_left(self, session_id: str) -> None:
        """Ask about changes in an ended session's copy, which is no longer watched. A job's were
        judged."""
        opened = self._opened.get(session_id)
        if session_id in self.left and opened is not None and opened.session.job is None:
            self._spending.close_session(session_id)
            await opened.channel.final_pass("an install was carried out")

    def credentials_changed(self) -> None:
        """Tell egress for every session. A running sandbox keeps its variables, so it lacks
        placeholders of new names.
        """
        for session_id in self._opened:
            self._network.put_credentials(session_id, self._credentials)

    # -- inside -----------------------------------------------------------------------------------

    @property
    def _credentials(self) -> tuple[Credential, ...]:
        return (*self._sandboxes.model_credentials(), *self._named_secrets.credentials)

    def _open_requests(self, session_id: str) -> list[Request]:
        return [
            request for request in self._queue.of_session(session_id) if not is_settled(request)
        ]

    def _stays_in_copy(self, session: Session) -> bool:
        """Return whether nothing that it changes is asked for, now at least: it leaves the copy as
        commits alone, or was only a pull request's code to read."""
        is_pull = Path(session.workspace).is_relative_to(self._settings.clones_dir)
        is_empty = is_quarantined(session.kind, session.command)
        return is_pull or is_empty or keeps_changes(session)

    def _caller(self, session: Session) -> StartingShell:
        opened = self._opened.get(session.id)
        return opened.caller if opened is not None else self._started_in(None)

    def _within(self, session: Session) -> Within:
        opened = self._opened.get(session.id)
        return opened.channel.within if opened is not None else None


async def lend_ports(
    network: NetworkBroker,
    doors: Doors | None,
    session_id: str,
    listeners: Mapping[int, socket.socket],
) -> GiveBack:
    """Serve a tool sandbox's sockets as its session's, until the returned function is
    called."""
    lent = contextlib.AsyncExitStack()
    try:
        for port, listener in listeners.items():
            # The sandbox closes its own before we can name it to egress again.
            ours = listener.dup()
            if port == PROGRAMS_PORT and doors is not None:
                lent.push_async_callback(await doors.programs(session_id, ours))
                continue
            lent.callback(ours.close)
            lent.push_async_callback(network.close_listener, session_id, ours)
            kind = _KINDS.get(port, "host")
            await network.open_session(session_id, ours, kind=kind, port=port)
    except BaseException:
        await lent.aclose()
        raise
    return lent.aclose


async def _to_end(check: Awaitable[object]) -> None:
    await check


def _is_change(request: Request) -> bool:
    return category_of(request.action) == "filesystem"
