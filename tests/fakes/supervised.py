"""A whole supervisor in this process, and what scenario tests ask of it: start a session, wait for
facts, answer.

Nothing here is a stand-in: sandbox, egress, database and git are the real ones. It waits for
events (a request, a session's fact, a line of output), never for time to pass; the time limits
only keep a test that fails from hanging.
"""

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from supervisor.app.app import Supervisor
from supervisor.core.actions import Category, category_of
from supervisor.core.approvals import Request, Status, status
from supervisor.core.sessions import Session
from supervisor.errors import UserError
from supervisor.network import network
from supervisor.sessions.start_session import StartSession
from supervisor.settings import Settings, from_environment
from tests.fakes import handlers_read_once, warm_egress

handlers_read_once.install()

# A bound for what should take milliseconds, on a machine that does ten other things.
PATIENCE_S = 45.0
OPERATOR = "the test"

type Answer = Literal["approved", "denied"]
type StartSupervisor = Callable[..., AbstractAsyncContextManager["Supervised"]]


def settings_in(folder: Path, policy: str = "version: 1\n", **changes: Any) -> Settings:
    """Settings with everything below `folder`, any free port, and `policy` as the policy."""
    policy_file = folder / "policy-of-test.yaml"
    policy_file.write_text(policy)
    base = from_environment()._replace(
        data_dir=folder / "data", port=0, policy_file=policy_file, max_uptime_s=300.0
    )
    return base._replace(**changes)


@contextlib.asynccontextmanager
async def supervised(
    settings: Settings,
    *,
    names: dict[str, tuple[str, ...]] | None = None,
    egress: Sequence[str] = (),
    **parts: Any,
) -> AsyncIterator["Supervised"]:
    """A running supervisor; it ends in order when the block does. `egress` is the command that
    starts egress; without, it is a fork of a warm one. `parts` are further arguments of
    `Supervisor`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "EGRESS", egress or warm_egress.command())
        async with Supervisor(settings, names=names, **parts) as supervisor:
            yield Supervised(supervisor)


class Supervised:
    """One running supervisor. `until` is what all waiting goes through."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self.parts = supervisor.parts
        self._happened = asyncio.Event()
        self.parts.queue.on_change(lambda request: self._happened.set())
        self.parts.sessions.on_change(lambda session: self._happened.set())
        self.parts.sessions.on_output(lambda session_id, data: self._happened.set())

    async def until[T](self, found: Callable[[], T | None], what: str = "") -> T:
        """The first thing that `found` gives: it is called anew after each change of a request,
        a session or an output."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    self._happened.clear()
                    if (result := found()) is not None:
                        return result
                    await self._happened.wait()
        except TimeoutError:
            raise AssertionError(f"never happened: {what or found}\n{self.story()}") from None

    async def until_soon[T](self, found: Callable[[], T | None], what: str = "") -> T:
        """`until` for what no request, session or output tells of: looked at again and again."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while (result := found()) is None:
                    await asyncio.sleep(0.05)
                return result
        except TimeoutError:
            raise AssertionError(f"never happened: {what or found}\n{self.story()}") from None

    # -- sessions ---------------------------------------------------------------------------------

    async def start(self, workspace: Path, *command: str, **wanted: Any) -> Session:
        """Start a session; it goes on by itself."""
        return await self.parts.sessions.start(
            StartSession(workspace=workspace, command=command, **wanted)
        )

    async def ended(self, session: Session) -> Session:
        """The session once it has ended."""

        def found() -> Session | None:
            now = self.parts.sessions.get(session.id)
            return now if now.ended_at is not None else None

        return await self.until(found, "the session's end")

    async def agent_exited(self, session: Session) -> Session:
        """The session once its agent has exited."""

        def found() -> Session | None:
            now = self.parts.sessions.get(session.id)
            return now if now.agent_exited_at is not None or now.ended_at is not None else None

        return await self.until(found, "the agent's exit")

    async def run(self, workspace: Path, *command: str, **wanted: Any) -> tuple[Session, str]:
        """Run a session to its end: its last facts, and all it printed."""
        session = await self.ended(await self.start(workspace, *command, **wanted))
        return session, self.output(session)

    def output(self, session: Session) -> str:
        """All that the agent printed so far."""
        data, offset = self.parts.sessions.output(session.id, 0)
        while part := self.parts.sessions.output(session.id, offset)[0]:
            data, offset = data + part, offset + len(part)
        return data.decode(errors="replace")

    async def printed(self, session: Session, text: str) -> str:
        """The output once it holds `text`, or as it is when the agent has exited without."""

        def found() -> str | None:
            output = self.output(session)
            return (
                output
                if text in output or self.parts.sessions.get(session.id).ended_at is not None
                else None
            )

        output = await self.until(found, f"output with `{text}`")
        assert text in output, output
        return output

    # -- requests ---------------------------------------------------------------------------------

    def requests(self, session: Session | None = None) -> list[Request]:
        """Every request, oldest first."""
        ids = (
            [session.id]
            if session is not None
            else [one.id for one in self.parts.sessions.recent()]
        )
        found = [request for one in ids for request in self.parts.queue.of_session(one)]
        return sorted(found, key=lambda request: request.asked_at)

    async def asked(
        self,
        category: Category | None = None,
        *,
        where: Callable[[Request], bool] = lambda request: True,
    ) -> Request:
        """The first request that waits for an answer, of a category and so that `where` holds."""

        def found() -> Request | None:
            waiting = self.parts.queue.pending()
            fitting = [
                one for one in waiting if category in (None, category_of(one.action)) and where(one)
            ]
            return fitting[0] if fitting else None

        return await self.until(found, f"a request of {category or 'any category'}")

    async def became(self, request: Request, *wanted: Status, settled: bool = False) -> Request:
        """The request once its status is one of `wanted` (none: any but pending), and once it is
        settled."""

        def found() -> Request | None:
            now = self.parts.queue.get(request.id)
            fits = status(now) in wanted if wanted else status(now) != "pending"
            return now if fits and (not settled or now.settled_at is not None) else None

        return await self.until(found, f"{request.id} {wanted or 'answered'} settled={settled}")

    async def done(self, request: Request) -> dict[str, Any]:
        """What came of a request that is carried out."""
        return (await self.became(request, "used", settled=True)).outcome or {}

    def approve(self, request: Request, reason: str = "") -> Request:
        """What a person's click on Approve does."""
        return self.parts.gate.resolve(
            request.id,
            "approved",
            by=OPERATOR,
            reason=reason,
            shown_fingerprint=request.fingerprint,
        )

    def deny(self, request: Request, reason: str = "") -> Request:
        """What a person's click on Deny does."""
        return self.parts.gate.resolve(
            request.id, "denied", by=OPERATOR, reason=reason, shown_fingerprint=request.fingerprint
        )

    @contextlib.contextmanager
    def answering(self, answer: Callable[[Request], Answer | None]) -> Iterator[list[Request]]:
        """Answer what is asked, as soon as it is; None leaves a request waiting. Gives the list
        of what was answered."""
        answered: list[Request] = []
        active = True

        def look() -> None:
            for request in self.parts.queue.pending() if active else ():
                said = answer(request)
                if said is not None:
                    with contextlib.suppress(UserError):  # another was first
                        answered.append(self.parts.gate.resolve(request.id, said, by=OPERATOR))

        # Not from inside of the callback: the gate is in the middle of recording.
        self.parts.queue.on_change(
            lambda request: asyncio.get_running_loop().call_soon(look) and None
        )
        look()
        try:
            yield answered
        finally:
            active = False

    # -- records ----------------------------------------------------------------------------------

    def audit(self, kind: str | None = None, **facts: Any) -> list[dict[str, Any]]:
        """The audit's records of a kind (see `audit.record`) that have these facts, oldest
        first."""
        text = (self.parts.settings.data_dir / "audit.log").read_bytes()
        records = [msgspec.json.decode(line) for line in text.splitlines()]
        return [
            record
            for record in records
            if kind in (None, record.get("event"))
            and all(record.get(name) == value for name, value in facts.items())
        ]

    def story(self) -> str:
        """What happened, for a test that failed."""
        lines = [f"policy: {self.parts.policies.banner or 'in force'}"]
        for session in self.parts.sessions.recent():
            lines.append(
                f"session {session.kind} ended={session.end_reason!r} notices={session.notices}"
            )
            lines += [
                f"  {status(one)} {one.action} {one.why} {one.outcome}"
                for one in self.requests(session)
            ]
            lines.append(self.output(session)[-3000:])
        return "\n".join(lines)


def git(folder: Path, *words: str) -> str:
    """Run git there as nobody in particular; what it printed."""
    identity = (
        "-c",
        "user.name=Test",
        "-c",
        "user.email=test@example.org",
        "-c",
        "init.defaultBranch=main",
    )
    done = subprocess.run(
        ["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def make_repository(folder: Path, files: dict[str, str] | None = None) -> Path:
    """A git repository with one commit of `files`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (
        files or {"README.md": "# demo\n", "src/app.py": "def add(a, b):\n    return a + b\n"}
    ).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder
