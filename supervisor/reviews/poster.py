"""Carries out what was granted on a forge: the only part that holds what writes there.

It composes nothing and has no model. Before it acts it looks for what an earlier try left, so that
a crash posts nothing twice.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import structlog

from supervisor.base.clock import Clock
from supervisor.core.act import Act
from supervisor.core.approvals import Request
from supervisor.core.reviews import posts
from supervisor.errors import GatehouseError
from supervisor.forges.base import Forge, ForgeError, Posted, RepositoryFacts
from supervisor.gate.gate import Gate, Grant, Refused

log = structlog.get_logger("reviews")

FIRST_WAIT_S, LONGEST_WAIT_S = 15.0, 300.0
# A forge that is down so long is a failure.
PATIENCE_S = 6 * 3600.0
# How often an act that is held looks whether it still is.
HELD_LOOK_S = 1.0

UNPROCESSABLE = 422

type FindRepository = Callable[[str, str], RepositoryFacts]
# What a failed or moved act leaves: the act, and the code of the reason.
type Failed = Callable[[Act, str, str], None]


class MovedError(GatehouseError):
    """The head isn't what the act is about any more."""


class Poster:
    """One per supervisor. `failed` is told of an act that came to nothing; `keeps` says whether
    one has to wait: it is held, or everything is stopped."""

    def __init__(
        self,
        gate: Gate,
        clock: Clock,
        forge: Forge,
        find_repository: FindRepository,
        failed: Failed,
        keeps: Callable[[Act], bool] = lambda act: False,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._gate = gate
        self._clock = clock
        self._forge = forge
        self._find_repository = find_repository
        self._failed = failed
        self._keeps = keeps
        self._sleep = sleep
        self._tasks: set[asyncio.Task[Any]] = set()

    async def close(self) -> None:
        """End what waits for a release or for the forge. What was begun is looked for at the next
        start, what wasn't is done then."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @contextlib.contextmanager
    def _known(self) -> Iterator[None]:
        """Know the task that runs this, for as long as it does."""
        task = asyncio.current_task()
        assert task is not None
        is_outer = task not in self._tasks
        self._tasks.add(task)
        try:
            yield
        finally:
            if is_outer:
                self._tasks.discard(task)

    async def carry_out(self, request: Request) -> None:
        """Do what a ready request asks for, and settle it."""
        with self._known():
            await self._carry_out(request)

    async def _carry_out(self, request: Request) -> None:
        act = self._gate.queue.action_of(request)
        assert isinstance(act, Act)
        await self._released(act)
        grant = self._gate.claim(request.id, request.session_id)
        if not isinstance(grant, Refused):
            await self.do(request, grant)

    async def do(self, request: Request, grant: Grant) -> None:
        """Do what was granted, however long the forge is down, and settle it."""
        with self._known():
            await self._do(request, grant)

    async def _do(self, request: Request, grant: Grant) -> None:
        act = self._gate.queue.action_of(request)
        assert isinstance(act, Act)
        until, wait_s = self._clock.monotonic() + PATIENCE_S, FIRST_WAIT_S
        is_used = False
        while True:
            until += await self._released(act)
            try:
                if not is_used:
                    grant.use(act)
                    is_used = True
                posted = await self._try(act)
            except ForgeError as error:
                if error.may_retry and self._clock.monotonic() < until:
                    await self._sleep(self._wait_s(error, wait_s))
                    wait_s = min(2 * wait_s, LONGEST_WAIT_S)
                    continue
                self._gate.settle(grant, "failed", {"error": str(error), "status": error.status})
                self._failed(act, "not-posted", str(error))
            except MovedError as error:
                self._gate.settle(grant, "failed", {"error": str(error)})
                self._failed(act, "head-moved", str(error))
            except GatehouseError as error:
                self._gate.settle(grant, "failed", {"error": str(error)})
                self._failed(act, "not-posted", str(error))
            else:
                self._gate.settle(grant, "done", {"id": posted.id, "url": posted.url})
            return

    async def _released(self, act: Act) -> float:
        """Wait while an act is held; return how long that was, in seconds."""
        begun = self._clock.monotonic()
        while self._keeps(act):  # noqa: ASYNC110  # a person may set or remove the stop file by hand
            await asyncio.sleep(HELD_LOOK_S)
        return self._clock.monotonic() - begun

    def _wait_s(self, error: ForgeError, wait_s: float) -> float:
        if error.retry_at is None:
            return wait_s
        return max(1.0, min(error.retry_at - self._clock.now(), 3600.0))

    async def _try(self, act: Act) -> Posted:
        repository = self._find_repository(act.forge, act.repository)
        if act.operation == "check":
            external_id = f"gatehouse:{act.number}:{act.head[:12]}"
            return await self._forge.set_check(repository, act.head, act, external_id)
        if act.operation == "open-pr":
            return await self._forge.open_pull(repository, act)
        if act.operation != "post":
            raise GatehouseError(f"`{act.operation}` can't be done yet")
        run_id = posts.run_of(act.body)
        mark = posts.mark(run_id)
        known = run_id and await self._forge.find_review(repository, act.number, mark)
        if known:
            return known
        pull = await self._forge.pull(repository, act.number)
        if pull.head_sha != act.head:
            raise MovedError(
                f"the head is {pull.head_sha[:12]} by now, not {act.head[:12]}",
                "the new head is reviewed next",
            )
        try:
            return await self._forge.post_review(repository, act)
        except ForgeError as error:
            if error.status != UNPROCESSABLE or not act.comments:
                raise
            # The forge shows less of the diff than git has: the same words, in the text.
            return await self._forge.post_review(repository, posts.without_places(act))
