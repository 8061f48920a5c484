"""The review service: its parts, and the loops that keep them going.

`app` makes one where reviews are switched on, and hands it what starts sessions.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import structlog

from supervisor.base.clock import Clock
from supervisor.core.act import Act
from supervisor.core.approvals import Request
from supervisor.core.reviews import slots
from supervisor.core.sessions import Session
from supervisor.errors import GatehouseError, NotFoundError
from supervisor.forges.base import Forge, ForgeError, RepositoryFacts
from supervisor.gate.gate import Gate, Refused
from supervisor.queue.base import Queue
from supervisor.reviews.clones import Clones
from supervisor.reviews.intake import Intake
from supervisor.reviews.poster import Poster
from supervisor.reviews.receipts import Receipts
from supervisor.reviews.reconcile import Reconcile, facts_of
from supervisor.reviews.runs import Readers, Runs
from supervisor.reviews.slots import Slots
from supervisor.store.engine import open_database
from supervisor.store.reviews import queries

log = structlog.get_logger("reviews")

LOOK_EVERY_S = 1.0
CONCURRENCY = 2


class ReviewSettings(NamedTuple):
    """What a review service runs with. Times in seconds."""

    database: Path
    clones: Path
    receipt_key: Path
    secret: bytes
    quiet_s: float = slots.QUIET_S
    longest_wait_s: float = slots.LONGEST_WAIT_S
    poll_s: float = 300.0
    concurrency: int = CONCURRENCY


class ReviewService:
    """See the module's text. `standing` opens the standing session of a repository, or finds it."""

    def __init__(
        self,
        settings: ReviewSettings,
        *,
        clock: Clock,
        gate: Gate,
        forge: Forge,
        queue: Queue,
        sessions: Readers,
        standing: Callable[[str], str],
    ) -> None:
        migrations = Path(queries.__file__).parent / "migrations"
        self.settings = settings
        self.engine = open_database(settings.database, migrations)
        self._clock = clock
        self._gate = gate
        self._forge = forge
        self._queue = queue
        self._woken = asyncio.Event()
        self.receipts = Receipts(self.engine, clock, settings.receipt_key, self._ask)
        self.slots = Slots(
            self.engine,
            clock,
            queue,
            self.receipts,
            quiet_s=settings.quiet_s,
            longest_wait_s=settings.longest_wait_s,
        )
        self.reconcile = Reconcile(self.engine, clock, forge, self.slots, self.receipts, standing)
        self.intake = Intake(self.engine, clock, settings.secret, self._woken.set)
        clones = Clones(settings.clones)
        self.runs = Runs(
            *(self.engine, clock, forge, clones, sessions, self.slots, self.receipts),
            *(self._ask, self._allows),
        )
        self.poster = Poster(gate, clock, forge, self._repository, self._came_to_nothing)
        gate.handlers.on_ready("review", "reviews", self.poster.carry_out)

    async def run(self, standing: Sequence[Session]) -> None:
        """Serve until cancelled. `standing`: the sessions whose acts an earlier supervisor may have
        begun and not ended."""
        for session in standing:
            self._resume(session)
        ready = [one for one in self._gate.queue.ready() if one.origin == "reviews"]
        self._gate.handlers.offer(ready)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._look(), name="reviews-look")
            tasks.create_task(self._poll(), name="reviews-poll")
            concurrency = self.settings.concurrency
            tasks.create_task(self._queue.serve(self.runs.handle, concurrency), name="reviews-runs")

    async def close(self) -> None:
        """Give back what it holds."""
        await self._forge.close()
        self.engine.dispose()

    async def review_pull(self, name: str, number: int) -> str:
        """Have a pull request reviewed, also where it was; return what became of that, in a
        word."""
        return await self.reconcile.pull(self.repository_named(name), number, full=True)

    def set_enabled(self, name: str, *, is_enabled: bool) -> None:
        """Switch the reviews of a repository on or off."""
        repository = self.repository_named(name)
        with self.engine.begin() as connection:
            queries.change_repository(connection, repository.id, enabled=is_enabled)

    def repository_named(self, name: str) -> queries.Repository:
        """Return a repository; `NotFoundError` where there is none."""
        with self.engine.connect() as connection:
            found = queries.repository(connection, "github", name)
        if found is None:
            raise NotFoundError(
                f"no repository is called `{name[:200]}`", "`gatehouse repos` lists them"
            )
        return found

    # -- inside -----------------------------------------------------------------------------------

    def _ask(self, act: Act, session_id: str, reason: str) -> None:
        self._gate.ask(act, session_id=session_id, reason=reason, origin="reviews")

    def _allows(self, act: Act, session_id: str) -> bool:
        return self._gate.rulings.verdict(act, session_id).decision == "allow"

    def _repository(self, forge: str, name: str) -> RepositoryFacts:
        with self.engine.connect() as connection:
            found = queries.repository(connection, forge, name)
        if found is None:
            raise GatehouseError(f"{name} is no repository of ours any more")
        return facts_of(found)

    def _came_to_nothing(self, act: Act, reason: str, why: str) -> None:
        """An act of a review came to nothing: its receipt says so. A check that can't be set has
        no receipt but the record."""
        if act.operation != "post":
            log.warning("an act came to nothing", act=act.operation, why=why)
            return
        with self.engine.connect() as connection:
            repository = queries.repository(connection, act.forge, act.repository)
            pull = repository and queries.pull_numbered(connection, repository.id, act.number)
        if pull:
            outcome = "skipped" if reason == "head-moved" else "failed"
            self.receipts.leave(pull.id, act.head, outcome=outcome, reason=reason)  # type: ignore[arg-type]

    def _resume(self, session: Session) -> None:
        def is_act(request: Request) -> bool:
            return isinstance(request.action, Act)

        for request, grant in self._gate.resume_all(session.id, is_act):
            if not isinstance(grant, Refused):
                self._gate.handlers.run(self.poster.do(request, grant), f"post-{request.id}")

    async def _look(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._woken.wait()
            self._woken.clear()
            try:
                await self.reconcile.handle_all()
                self.slots.drain()
            except Exception:
                log.exception("looking at what is wanted failed")

    async def _poll(self) -> None:
        while True:
            try:
                await self.reconcile.poll()
            except ForgeError as error:
                log.warning("the forge can't be asked", error=str(error))
            except Exception:
                log.exception("the poll failed")
            await asyncio.sleep(self.settings.poll_s)
