"""The operator's pages on a loopback port, over real gate, queue, audit and policies, and an agent
that asks for things.

Files are the one thing that is made up: `SampleWorkspace` keeps both sides of each change and
lets the real `make_card` compare.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from litestar import Litestar

from supervisor.base.clock import RealClock
from supervisor.core.actions import (
    Action,
    Exec,
    FileChange,
    Git,
    Network,
    Packages,
    Proposal,
    content_hash,
    fingerprint,
)
from supervisor.core.approvals import Origin, Request
from supervisor.core.files.change_card import ChangeCard, ReadContent, Side, make_card
from supervisor.core.sessions import Session
from supervisor.core.text.content_types import Image, image_of
from supervisor.gate.gate import Refused
from supervisor.reviews.pages import jobs_page, metrics, reviews_page
from supervisor.server.app import build_agent_app, build_operator_app
from supervisor.server.common.auth import OperatorAuth
from supervisor.server.common.listening import listen
from supervisor.server.common.serve import Serving, serve_operator
from tests.fakes.parts import FakeParts

POLICY = """\
version: 1
allow:
  - exec(git status)
ask:
  - rule: exec(make deploy)
    why: it reaches production
deny:
  - exec(rm -rf *)
"""


class SampleWorkspace:
    """Both sides of every change that was asked for, by the request's fingerprint."""

    def __init__(self) -> None:
        self.sides: dict[str, tuple[Side | None, Side | None, bool]] = {}

    async def read_contents[T](self, read: Callable[[ReadContent], T]) -> T:
        return read(self._content)

    def _content(self, digest: str, limit_bytes: int) -> bytes | None:
        for _, new, _ in self.sides.values():
            if new is not None and new.data is not None and content_hash(new.data) == digest:
                return new.data[:limit_bytes]
        return None

    async def with_scripts(self, action: Exec) -> Exec:
        return action

    async def card(self, request: Request) -> ChangeCard:
        assert isinstance(request.action, FileChange)
        old, new, is_stale = self.sides.get(request.fingerprint, (None, None, False))
        return make_card(request.action, old, new, "another" if is_stale else request.action.before)

    async def contents(self, request: Request) -> tuple[bytes, bytes] | None:
        old, new, is_stale = self.sides.get(request.fingerprint, (None, None, False))
        if is_stale or (old is None and new is None):
            return None
        return (old and old.data) or b"", (new and new.data) or b""

    async def image(self, request: Request, side: str) -> tuple[Image, bytes] | None:
        found = self.sides[request.fingerprint][0 if side == "old" else 1]
        data = found.data if found is not None else None
        image = image_of(data or b"", len(data or b""))
        return None if image is None or data is None else (image, data)

    def host_changes(self) -> None:
        return None

    def refused(self) -> dict[str, str]:
        return {}


class Site:
    """The parts of one Gatehouse and its operator's door. `restart` closes the door and opens it
    again on the same port."""

    def __init__(self, folder: Path, policy: str = POLICY) -> None:
        self.parts = FakeParts(folder, policy, RealClock())
        self.workspace = SampleWorkspace()
        self.parts.workspace_of = lambda session_id: self.workspace  # type: ignore[assignment, return-value]
        self.parts.gate.handlers.on_ready("filesystem", "agent_api", self._apply)
        self.tasks: asyncio.TaskGroup
        # Bound and never listening: while the door is closed, nobody else's connection is given its
        # port.
        self._place = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._place.bind(("127.0.0.1", 0))
        self.port: int = self._place.getsockname()[1]
        self.auth: OperatorAuth
        self.app: Litestar
        self._door: Serving | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def open(self, *, is_signed_out: bool = False) -> None:
        """Serve; with `is_signed_out` as a Gatehouse that was started anew does, which knows no
        cookie."""
        sock = listen(self.port)
        if is_signed_out or not hasattr(self, "auth"):
            self.auth = self.parts.new_auth(self.port)
        more = (reviews_page, jobs_page, metrics)
        self.app = build_operator_app(self.parts, self.auth, more)
        self._door = serve_operator(self.app, sock)
        self._running = self.tasks.create_task(self._door.run())
        await self._door.started.wait()

    async def close(self) -> None:
        """Stop serving, as a Gatehouse that ends."""
        if self._door is not None:
            await self._door.stop()
            await self._running
            self._door = None

    def leave(self) -> None:
        """For good."""
        self._place.close()
        self.parts.close()

    def agent_app(self, session_id: str = "one") -> Litestar:
        """The agent's door, in process."""
        return build_agent_app(self.parts, session_id)

    def ask(
        self,
        action: Action,
        *,
        reason: str = "",
        session_id: str = "one",
        origin: Origin = "agent_api",
        hold_s: float | None = None,
    ) -> Request:
        """The agent asks."""
        return self.parts.gate.ask(
            action, session_id=session_id, reason=reason, origin=origin, hold_s=hold_s
        )

    def ask_change(
        self,
        path: str,
        old: bytes | None,
        new: bytes | None,
        *,
        reason: str = "",
        hazards: tuple[str, ...] = (),
        is_stale: bool = False,
        session_id: str = "one",
        **more: Any,
    ) -> Request:
        """The agent asks for a change of a file."""
        action = FileChange(
            operation=more.pop("operation", "delete" if new is None else "write"),
            path=path,
            before=None if old is None else content_hash(old),
            after=None if new is None else content_hash(new),
            hazards=hazards,
            **more,
        )
        self.workspace.sides[fingerprint(action)] = (_side(old), _side(new), is_stale)
        return self.ask(action, reason=reason, session_id=session_id)

    async def _apply(self, request: Request) -> None:
        grant = self.parts.gate.claim(request.id, request.session_id)
        if not isinstance(grant, Refused):
            grant.use(self.parts.queue.action_of(request))
            self.parts.gate.settle(grant, "done", {"applied": True})


@contextlib.asynccontextmanager
async def serving(folder: Path, policy: str = POLICY) -> AsyncIterator[Site]:
    """A site that serves."""
    site = Site(folder, policy)
    async with site.parts.running(), asyncio.TaskGroup() as site.tasks:
        await site.open()
        try:
            yield site
        finally:
            await site.close()
    site.leave()


def fill(site: Site) -> list[Request]:
    """One request of each kind, as an agent at work makes them."""
    return [
        site.ask(
            Exec(command="pytest tests/parser -q --maxfail=1"),
            reason="I changed the tokenizer and want to see that nothing else broke.",
        ),
        site.ask_change("src/parser/tokens.py", OLD, NEW, operation="edit",
        reason="Escapes inside quotes were dropped."),
        site.ask(
            Network(
                operation="request",
                host="packages.example.org",
                port=443,
                scheme="https",
                method="GET",
                path="/simple/hypothesis/",
                resolved=("203.0.113.20",),
            ),
            origin="egress",
            hold_s=60,
        ),
        site.ask(
            Git(operation="push", remote="origin", refspecs=("fix/quoted-escapes",)),
            reason="The fix and its test are committed.",
        ),
        site.ask(Packages(manager="pip", operation="install", names=("hypothesis==6.140.0",)),
        reason="For the property test."),
        site.ask(
            Proposal(effect="allow", rule="exec(pytest *)", why="the tests are run often"),
            reason="I run the tests after each change.",
        ),
    ]  # fmt: skip


def _side(data: bytes | None) -> Side | None:
    return None if data is None else Side(data=data, size=len(data), mode=0o644)


def session_of(site: Site, session_id: str) -> Session:
    return site.parts.sessions.get(session_id)


OLD = b"""WORD = re.compile(r"[a-z]+")

def unquote(text: str) -> str:
    body = text[1:-1]
    return body
"""
NEW = rb"""WORD = re.compile(r"[a-z_]+")

def unquote(text: str) -> str:
    body = text[1:-1]
    return re.sub(r"\\(.)", r"\1", body)
"""
