"""The supervisor's parts for tests of the doors: real gate, queue, audit, policies and store in
a folder, and small stand-ins for what needs a sandbox (sessions, the workspace). Built twice on
the same folder, the second is what a restart finds.
"""

import asyncio
import contextlib
import hmac
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import Any, Literal

from supervisor.base.renderer import Renderer
from supervisor.core.actions import Exec, FileChange, Git, Packages, content_hash
from supervisor.core.approvals import Request
from supervisor.core.budget import Limits
from supervisor.core.files.change_card import ChangeCard, ReadContent, Side, make_card
from supervisor.core.files.conflict_card import ConflictCard
from supervisor.core.git.push_card import PushCard
from supervisor.core.git.taken_branch import TakenBranch
from supervisor.core.secrets.redact import Redactor
from supervisor.core.sessions import Session, SessionId
from supervisor.core.text.content_types import Image
from supervisor.errors import NotFoundError, RefusedError, UserError
from supervisor.gate.gate import Gate, Refused
from supervisor.gate.left_to_answer import LeftToAnswer
from supervisor.ledger.spending import Spending, read_prices
from supervisor.network.network_log import NetworkLog
from supervisor.parts import Parts
from supervisor.records.approval_queue import ApprovalQueue
from supervisor.records.audit import Audit
from supervisor.records.kill_switch import KillSwitch
from supervisor.records.policy_files import PolicyFiles
from supervisor.reviews.pages import reviews_page
from supervisor.reviews.service import ReviewService
from supervisor.sandbox.base import Running
from supervisor.server.common.auth import OperatorAuth
from supervisor.sessions import session_output
from supervisor.sessions.kept_copies import KeptCopies
from supervisor.sessions.session_manager import SessionManager
from supervisor.sessions.start_session import StartSession
from supervisor.settings import Settings, from_environment
from supervisor.store import sessions as session_store
from supervisor.store.engine import open_database
from supervisor.workspace.apply.partial import PartAnswered, Rest
from supervisor.workspace.incoming.incoming import HostChanges
from supervisor.workspace.quarantines import Quarantines
from supervisor.workspace.undo.undo import Undo
from tests.fakes.clock import FakeClock

POLICY = """\
version: 1
allow:
  - exec(git status)
ask:
  - exec(make deploy)
deny:
  - exec(rm -rf *)
"""
SECRET = "hunter2-hunter2"
PORT = 3700


class FakeSessions:
    """Sessions as records, without sandboxes. `start` makes one that runs at once; tokens are
    kept in `tokens`."""

    def __init__(self, engine: Any, clock: FakeClock, folder: Path) -> None:
        self._engine = engine
        self._folder = folder
        self._clock = clock
        self.tokens: dict[str, str] = {}
        self.stopped: list[tuple[str, str, str]] = []
        self.sandboxes: dict[str, Running] = {}
        self.switched: list[tuple[str, bool, str]] = []
        self.reviews: dict[str, dict[str, Any]] = {}
        self._numbers: dict[str, int] = {}
        self._on_change: list[Callable[[Session], None]] = []
        self._on_output: list[Callable[[str, bytes], None]] = []
        self.opened: Callable[[Session], None] = lambda session: None

    def add(self, session_id: str, workspace: str = "/tmp/project", **facts: Any) -> Session:
        token = f"token-of-{session_id}"
        now = self._clock.now()
        session = Session(
            id=SessionId(session_id),
            kind=facts.pop("kind", "agent"),
            workspace=workspace,
            command=facts.pop("command", ("sh",)),
            token_hash=content_hash(token.encode()),
            created_at=now,
            deadline_at=now + 3600,
            started_at=now,
            **facts,
        )
        self.tokens[session_id] = token
        with self._engine.begin() as connection:
            session_store.add(connection, session)
        self.opened(session)
        for watcher in self._on_change:
            watcher(session)
        return session

    async def start(self, wanted: StartSession) -> Session:
        if not wanted.workspace.is_dir():
            raise UserError(
                f"workspace `{wanted.workspace}` does not exist", "give the folder of the project"
            )
        return self.add(
            f"started-{len(self.tokens)}", str(wanted.workspace), command=wanted.command
        )

    def pause(self, session_id: str, *, by: str) -> Session:
        return self.change(session_id, paused_at=self._clock.now())

    def unpause(self, session_id: str, *, by: str) -> Session:
        return self.change(session_id, paused_at=None)

    async def stop(self, session_id: str, *, reason: str, by: str) -> None:
        self.get(session_id)
        self.stopped.append((session_id, reason, by))

    def get(self, session_id: str) -> Session:
        with self._engine.connect() as connection:
            session = session_store.get(connection, session_id)
        if session is None:
            raise NotFoundError(
                f"no session has the id `{session_id}`", "`gatehouse sessions` lists them"
            )
        return session

    ids: Any = SessionManager.ids
    identity: Any = SessionManager.identity
    live: Any = SessionManager.live
    ended: Any = SessionManager.ended

    def recent(self, limit: int = 100) -> list[Session]:
        with self._engine.connect() as connection:
            return session_store.newest(connection, limit)

    def change(self, session_id: str, **facts: Any) -> Session:
        with self._engine.begin() as connection:
            session = session_store.change(connection, session_id, **facts)
        for watcher in self._on_change:
            watcher(session)
        return session

    def keep_bodies(self, session_id: str, *, is_on: bool, by: str) -> Session:
        if self.get(session_id).ended_at is not None:
            raise UserError("the session has ended", "bodies of a running session can be kept")
        self.switched.append((session_id, is_on, by))
        return self.change(session_id, keep_bodies=is_on)

    def close_branch(self, session_id: str, closed: str) -> bool:
        return False

    def last_of_job(self, name: str) -> Session | None:
        return None

    def with_branches(self) -> list[Session]:
        return []

    def authenticate(self, session_id: str, token: str) -> bool:
        session = self.get(session_id)
        return (
            hmac.compare_digest(session.token_hash, content_hash(token.encode()))
            and session.ended_at is None
        )

    def say(self, session_id: str, data: bytes) -> None:
        """The agent prints something."""
        self.folder(session_id).mkdir(parents=True, exist_ok=True)
        session_output.mark_time(self.folder(session_id), self._clock.now())
        session_output.append(self.folder(session_id), data)
        for watcher in self._on_output:
            watcher(session_id, data)

    def output(self, session_id: str, offset: int) -> tuple[bytes, int]:
        self.get(session_id)
        return session_output.read(self.folder(session_id), offset)

    def output_size(self, session_id: str) -> int:
        return session_output.size(self.folder(session_id))

    def folder(self, session_id: str) -> Path:
        return self._folder / session_id

    def resize(self, session_id: str, rows: int, columns: int) -> None:
        if session_id in self.sandboxes:
            self.sandboxes[session_id].resize(rows, columns)

    def progress(self, session_id: str) -> dict[str, int] | None:
        return None

    def running(self, session_id: str) -> Running | None:
        return self.sandboxes.get(session_id)

    def on_change(self, callback: Callable[[Session], None]) -> None:
        self._on_change.append(callback)

    def on_output(self, callback: Callable[[str, bytes], None]) -> None:
        self._on_output.append(callback)

    def record_review(self, session_id: str, review: dict[str, Any]) -> Session:
        self.reviews[session_id] = review
        return self.change(session_id, review=review)


class FakePushes:
    """Plans nothing: a push is asked as it came."""

    async def planned(self, session_id: str, action: Git) -> Git:
        return action

    async def card(self, request: Request) -> PushCard:
        raise UserError("this is no push that could be shown", "see what its request says")


class FakeInstalls:
    """Plans nothing: an install is asked as it came."""

    def __init__(self) -> None:
        self.with_scripts: list[str] = []

    async def planned(self, session_id: str, action: Packages) -> Packages:
        return action

    def allow_scripts(self, request_id: str, by: str) -> None:
        self.with_scripts.append(request_id)


class FakeContainment:
    """Nothing is checked, so that commands are asked about."""

    async def checked(self, session_id: str) -> tuple[str, ...]:
        return ("nothing is checked here",)

    def result(self, session_id: str) -> tuple[str, ...] | None:
        return None


class FakeBranches:
    """There is nothing to take."""

    async def take(self, session_id: str, branch: str, *, by: str) -> TakenBranch:
        raise RefusedError("your repository has all commits already", "")


class FakeWorkspace:
    """Asks for changes of files; carries nothing out."""

    def __init__(self, gate: Gate, session_id: str) -> None:
        self._gate = gate
        self._session_id = session_id

    async def write(self, path: str, content: bytes, reason: str) -> Request:
        action = FileChange(operation="write", path=path, after=content_hash(content))
        return self._gate.ask(action, session_id=self._session_id, reason=reason)

    async def edit(self, path: str, old: str, new: str, replace_all: bool, reason: str) -> Request:
        action = FileChange(
            operation="edit",
            path=path,
            before=content_hash(old.encode()),
            after=content_hash(new.encode()),
        )
        return self._gate.ask(action, session_id=self._session_id, reason=reason)

    async def delete(self, path: str, reason: str) -> Request:
        action = FileChange(operation="delete", path=path, before=content_hash(b"old"))
        return self._gate.ask(action, session_id=self._session_id, reason=reason)

    async def move(self, path: str, to: str, reason: str) -> Request:
        same = content_hash(b"old")
        action = FileChange(operation="rename", path=path, to=to, before=same, after=same)
        return self._gate.ask(action, session_id=self._session_id, reason=reason)

    async def with_scripts(self, action: Exec) -> Exec:
        return action

    async def card(self, request: Request) -> ChangeCard:
        assert isinstance(request.action, FileChange)
        old, new = Side(b"old\n", 4), Side(None, None)
        return make_card(request.action, old, new, request.action.before)

    async def contents(self, request: Request) -> tuple[bytes, bytes] | None:
        return None

    async def read_contents[T](self, read: Callable[[ReadContent], T]) -> T:
        return read(lambda digest, limit_bytes: None)

    async def image(
        self, request: Request, side: Literal["old", "new"]
    ) -> tuple[Image, bytes] | None:
        return None

    async def answer_part(
        self, request_id: str, hunks: Collection[str], rest: Rest, *, by: str, fingerprint: str
    ) -> PartAnswered:
        raise NotFoundError("nothing was changed", "see the request")

    def refused(self) -> dict[str, str]:
        return {}

    def host_changes(self) -> HostChanges | None:
        return None

    async def conflict_card(self, request: Request) -> ConflictCard:
        raise NotFoundError("nothing was changed on the host", "see the request")

    async def apply_merge(
        self, request_id: str, shown: str, *, by: str, fingerprint: str
    ) -> Request:
        raise NotFoundError("nothing was changed on the host", "see the request")

    async def give_host(self, request_id: str, *, by: str, fingerprint: str) -> Request:
        raise NotFoundError("nothing was changed on the host", "see the request")


class FakeMcpServers:
    """The operator named none; `found` are the tools of those that a test names."""

    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()
        self.found: list[Any] = []

    async def tools(self, session_id: str) -> list[Any]:
        return self.found

    async def ask(self, session_id: str, name: str, arguments: Any) -> Request:
        raise RefusedError(f"there is no MCP server `{name}`", "list the tools")


class FakeParts:
    """`Parts` in a folder. Sessions `one` and `two` are open."""

    def __init__(self, folder: Path, policy: str = POLICY, clock: Any = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        base = folder / "base.yaml"
        if not base.exists():
            base.write_text(policy)
        self.settings: Settings = _settings(folder, base)
        self.clock = clock or FakeClock()
        self.redactor = Redactor([SECRET])
        self.engine = open_database(folder / "gatehouse.db")
        self.audit = Audit(folder / "audit.log", self.clock, self.redactor)
        self.kill_switch = KillSwitch(folder / "stopped")
        self.network_log = NetworkLog(self.clock, self.redactor)
        self.policies = PolicyFiles(base, folder / "policy.yaml", self.clock)
        self.queue = ApprovalQueue(self.engine)
        self.gate = Gate(
            policies=self.policies,
            queue=self.queue,
            audit=self.audit,
            kill_switch=self.kill_switch,
            clock=self.clock,
            redactor=self.redactor,
        )
        prices = read_prices(self.settings.prices_file)
        self.spending = Spending(
            self.engine, self.audit, self.clock, prices, per_day=Limits(), total=Limits()
        )
        self.sessions = FakeSessions(self.engine, self.clock, self.settings.sessions_dir)
        self.sessions.opened = self._open
        known = {session.id for session in self.sessions.recent()}
        for name in ("one", "two"):
            if name in known:
                self.sessions.tokens[name] = f"token-of-{name}"
                self._open(self.sessions.get(name))
            else:
                self.sessions.add(name)
        self.reviews: ReviewService | None = None
        self.kept_copies = KeptCopies(self.settings.sessions_dir, 10**9, lambda one: True)
        self.left = LeftToAnswer(self.gate, self.queue, self.clock.now, self.settings.keep_left_s)
        self.quarantines = Quarantines(self.clock, self.audit, self.redactor)
        self.pushes = FakePushes()
        self.installs = FakeInstalls()
        self.branches = FakeBranches()
        self.containment = FakeContainment()
        self.mcp_servers = FakeMcpServers()
        self.files_banner: str | None = None
        self.untold: str | None = None
        self.renderer = Renderer()
        self.carried_out: list[str] = []
        self.gate.handlers.on_ready("exec", "agent_api", self._run)

    def _open(self, session: Session) -> None:
        self.gate.rulings.open_session(session)
        self.spending.open_session(session)

    def card_extras(self, request: Request) -> dict[str, Any]:
        return reviews_page.card_extras(self, request)  # type: ignore[arg-type]

    def new_auth(self, port: int = PORT) -> OperatorAuth:
        return OperatorAuth(port=port, clock=self.clock)

    def workspace_of(self, session_id: str) -> FakeWorkspace | None:
        return FakeWorkspace(self.gate, session_id) if session_id in ("one", "two") else None

    running_workspace: Any = Parts.running_workspace

    def progress(self, session_id: str) -> tuple[int, int] | None:
        return None

    @contextlib.asynccontextmanager
    async def undoing(self, session_id: str) -> AsyncIterator[Undo]:
        """Nothing was ever applied in these sessions; tests of undo put in a real one."""
        self.sessions.get(session_id)
        raise NotFoundError("nothing was applied by this session", "see the session's page")
        yield

    async def _run(self, request: Request) -> None:
        grant = self.gate.claim(request.id, request.session_id)
        if isinstance(grant, Refused):
            return
        grant.use(self.gate.queue.action_of(request))
        self.carried_out.append(request.id)
        self.gate.settle(grant, "done", {"exit_code": 0, "stdout": "done"})

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["FakeParts"]:
        """With requests being carried out."""
        async with asyncio.TaskGroup() as tasks:
            self.gate.handlers.run_in(tasks)
            try:
                yield self
            finally:
                await self.renderer.stop()

    def close(self) -> None:
        self.audit.close()
        self.engine.dispose()


def _settings(folder: Path, base: Path) -> Settings:
    return from_environment()._replace(data_dir=folder, policy_file=base)
