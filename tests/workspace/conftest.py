"""A session's workspace as it really is: host folder, private copy, and the real gate on a
database of its own."""

import asyncio
import contextlib
import json
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from supervisor.base.clock import RealClock
from supervisor.core.approvals import Request, status
from supervisor.core.secrets.redact import Redactor
from supervisor.core.sessions import Session, SessionId
from supervisor.gate.gate import Gate
from supervisor.records.approval_queue import ApprovalQueue
from supervisor.records.audit import Audit
from supervisor.records.kill_switch import KillSwitch
from supervisor.records.policy_files import PolicyFiles
from supervisor.store import requests as store
from supervisor.store.engine import open_database
from supervisor.workspace.channel import WorkspaceChannel
from supervisor.workspace.copy.overlay import make_overlay
from supervisor.workspace.copy.snapshot import CopyReport, make_copy
from tests.fakes.nobody import as_nobody
from tests.fakes.waiting import settled

POLICY = """\
version: 1
allow: ["filesystem(free/**)"]
deny: ["filesystem(closed/**)"]
"""
SESSION = "session-of-this-test"
# A bound for what should take milliseconds, on a machine that does ten other things.
PATIENCE_S = 60.0


def git(folder: Path, *words: str) -> str:
    """Real git, with an identity."""
    command = [
        "git",
        "-C",
        str(folder),
        "-c",
        "user.name=Test",
        "-c",
        "user.email=test@example.org",
        *words,
    ]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def make_repository(folder: Path, files: dict[str, str]) -> Path:
    """A repository with these files committed."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    return folder


class Desk:
    """One session: `host` and `copy` are the two sides, and the methods are what the person and
    the agent do."""

    def __init__(
        self, data: Path, host: Path, *, policy: str = POLICY, is_overlay: bool = False
    ) -> None:
        data.mkdir(parents=True, exist_ok=True)
        self.data, self.host = data, host
        self.folder = data / "sessions" / SESSION
        (data / "base.yaml").write_text(policy)
        clock, redactor = RealClock(), Redactor()
        self.engine = open_database(data / "gatehouse.db")
        self.audit = Audit(data / "audit.log", clock, redactor)
        self._open = contextlib.ExitStack()
        self._open.callback(self.engine.dispose)
        self._open.callback(self.audit.close)
        self.queue = ApprovalQueue(self.engine)
        self.gate = Gate(
            policies=PolicyFiles(data / "base.yaml", data / "policy.yaml", clock),
            queue=self.queue,
            audit=self.audit,
            kill_switch=KillSwitch(data / "stopped"),
            clock=clock,
            redactor=redactor,
        )
        self.report: CopyReport | None = None
        self.notes: tuple[str, ...] = ()
        self.is_overlay = is_overlay
        self.channel = self.new_channel()

    def new_channel(self, at: Callable[[str], None] = lambda step: None) -> WorkspaceChannel:
        self.channel = WorkspaceChannel(
            session_id=SESSION,
            workspace=self.host,
            folder=self.folder,
            gate=self.gate,
            protected=(self.data,),
            at=at,
        )
        return self.channel

    @contextlib.asynccontextmanager
    async def running(self, *, copy: bool = True, start: bool = True) -> AsyncIterator["Desk"]:
        """The session lives inside this."""
        session = Session(
            id=SessionId(SESSION),
            kind="agent",
            workspace=str(self.host),
            command=("true",),
            token_hash="",
            created_at=0.0,
            deadline_at=1e12,
        )
        async with asyncio.TaskGroup() as tasks:
            self.gate.handlers.run_in(tasks)
            for origin in ("workspace", "agent_api"):
                self.gate.handlers.on_ready(
                    "filesystem", origin, lambda request: self.channel.carry_out(request)
                )  # type: ignore[arg-type]
            self.gate.handlers.on_ready_together(
                "filesystem", "workspace", lambda requests: self.channel.carry_out_all(requests)
            )
            self.gate.rulings.open_session(session)
            if copy:
                await self._make_copy()
            if start:
                await self.channel.start()
                await self._met()
            try:
                yield self
            finally:
                await self.channel.stop()

    async def _make_copy(self) -> None:
        if not self.is_overlay:
            self.report = await make_copy(self.host, self.copy, exclude=(self.data,))
            return
        made = await make_overlay(self.host, self.folder, exclude=(self.data,))
        assert made is not None
        self.notes = made.notes
        self.channel.take_mount(made.mount)

    @property
    def copy(self) -> Path:
        """Where the agent works."""
        mounted = self.channel._mounted
        # The mount is in no tree that a path of ours leads to: the descriptor does, for programs
        # that we start, too.
        return (
            Path(f"/proc/{os.getpid()}/fd/{mounted.merged_fd}")
            if mounted is not None
            else self.folder / "merged"
        )

    def program(self, *command: str) -> list[str]:
        """The command line of a program that works in the copy, where the agent has it."""
        mounted = self.channel._mounted
        if mounted is None:
            return ["env", "-C", str(self.copy), *command]
        fds = f"/proc/{os.getpid()}/fd"
        within = [
            f"--user={fds}/{mounted.user_fd}",
            f"--mount={fds}/{mounted.mount_fd}",
            f"--wdns={mounted.place}",
        ]
        return ["nsenter", "--preserve-credentials", *within, "--", *command]

    async def _met(self) -> None:
        """In overlay mode, until the first walk over the host is over: until then every change
        of the host's is careful."""
        opened = self.channel._opened
        await self.until(lambda: opened is None or not opened.sides.is_meeting_host)

    def close(self) -> None:
        """Once: a second time it would close a descriptor that is another's by now."""
        self._open.close()

    # -- the person -------------------------------------------------------------------------------

    def approve(self, request: Request) -> None:
        self.gate.resolve(request.id, "approved", by="tester")

    def deny(self, request: Request) -> None:
        self.gate.resolve(request.id, "denied", by="tester", reason="no")

    def refusals(self) -> dict[str, str]:
        """What was put on record as refused without asking: path -> why."""
        lines = [json.loads(line) for line in (self.data / "audit.log").read_text().splitlines()]
        given = [line.get("data", line) for line in lines if "verdict_given" in line.values()]
        return {line["action"]["path"]: line["why"] for line in given if line["verdict"] == "deny"}

    # -- looking ----------------------------------------------------------------------------------

    def requests(self, path: str | None = None) -> list[Request]:
        """Oldest first."""
        found = self.queue.read(lambda c: store.of_session(c, SESSION))[::-1]
        return [request for request in found if path is None or request.action.path == path]  # type: ignore[union-attr]

    def pending(self) -> dict[str, Request]:
        return {r.action.path: r for r in self.queue.read(lambda c: store.pending(c, SESSION))}  # type: ignore[union-attr]

    async def walk_host(self) -> None:
        """One pass over the host: it tells an overlay what both sides began with."""
        async with self.channel._turn:
            await (await self.channel._open()).incoming.run(None)

    async def until(self, condition: Callable[[], object], what: str = "") -> None:
        """Wait, a change of a request or a moment at a time, until it holds."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with contextlib.suppress(OSError):  # what is looked at may go away while it is
                    if condition():
                        return
                await asyncio.sleep(0.01)

    async def asked(self, path: str) -> Request:
        """The pending request for a path, as soon as there is one."""
        await self.until(lambda: path in self.pending(), f"a request for {path}")
        return self.pending()[path]

    async def settled(self, request: Request) -> Request:
        done = await settled(self.queue, request.id, PATIENCE_S)
        assert done.settled_at is not None or status(done) not in (
            "pending",
            "approved",
            "allowed",
        ), done
        return done

    async def compared(self) -> None:
        """What the watcher would find, now."""
        async with self.channel._turn:
            opened = await self.channel._open()
            opened.ignores.forget()
            await opened.comparison.run(None)

    async def approve_all(self, rounds: int = 10) -> None:
        """Approve everything until nothing more is asked."""
        for _ in range(rounds):
            await self.compared()
            waiting = list(self.pending().values())
            if not waiting:
                return
            for request in waiting:
                self.approve(request)
                await self.settled(request)
        raise AssertionError(f"still asked: {list(self.pending())}")


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A small repository on the host."""
    files = {
        "README.md": "hello\n",
        "src/app.py": "one = 1\ntwo = 2\nthree = 3\n",
        "src/util.py": "x = 1\n",
        "free/a.txt": "a\n",
        "closed/c.txt": "c\n",
        ".gitignore": "build/\n*.log\n",
    }
    return make_repository(tmp_path / "host", files)


@pytest.fixture(params=["copy", "overlay"])
def desk(tmp_path: Path, host: Path, request: pytest.FixtureRequest) -> "AsyncIterator[Desk]":
    """In both modes: whatever holds for a copy holds for an overlay, but where a module says why
    it isn't tried."""
    if request.param == "overlay" and (why := getattr(request.module, "ONLY_COPIED", "")):
        pytest.skip(why)
    made = Desk(tmp_path / "data", host, is_overlay=request.param == "overlay")
    yield made  # type: ignore[misc]
    made.close()


@pytest.fixture
def plain() -> Iterator[Callable[[], Desk]]:
    """A desk in copy mode of somebody who isn't root, and may not do everything. Called again:
    as a new supervisor has it."""
    with as_nobody() as place:
        made: list[Desk] = []

        def make() -> Desk:
            is_new = not (place / "host").exists()
            for name in ("src/app.py", "src/util.py", "free/a.txt") if is_new else ():
                (place / "host" / name).parent.mkdir(parents=True, exist_ok=True)
                (place / "host" / name).write_text(f"one\ntwo\nof {name}\n")
            made.append(Desk(place / "data", place / "host"))
            return made[-1]

        yield make
        for desk in made:
            desk.close()
            subprocess.run(
                ["chmod", "-R", "u+rwx", desk.host, desk.copy], check=False
            )  # for the removal
