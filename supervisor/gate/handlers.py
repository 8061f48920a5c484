"""Hands ready requests to their channels, a session's together where the channel can.

It decides nothing and makes no grant. A failing channel affects no other: its requests are settled
as failed, with the reason.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from supervisor.base import log
from supervisor.core.actions import Action, Category, category_of
from supervisor.core.approvals import Origin, Request
from supervisor.core.secrets.redact import Redactor
from supervisor.gate.grants import Grant

type ReadyHandler = Callable[[Request], Awaitable[None]]
type ClaimedHandler = Callable[[Request, Grant], Awaitable[None]]
type GroupHandler = Callable[[Sequence[Request]], Awaitable[None]]


class Handlers:
    """`settle` records the outcomes of requests, by id."""

    def __init__(
        self, redactor: Redactor, settle: Callable[[Mapping[str, dict[str, Any]]], None]
    ) -> None:
        self._redactor = redactor
        self._settle = settle
        self._each: dict[tuple[Category, Origin], ReadyHandler] = {}
        self._together: dict[tuple[Category, Origin], GroupHandler] = {}
        self._claimed: dict[
            tuple[Category, Origin], tuple[Callable[[str], bool], ClaimedHandler]
        ] = {}
        self._tasks: asyncio.TaskGroup | None = None

    def on_ready(self, category: Category, origin: Origin, handler: ReadyHandler) -> None:
        """Register a handler for requests of this kind that are allowed or approved."""
        self._each[category, origin] = handler

    def on_ready_together(self, category: Category, origin: Origin, handler: GroupHandler) -> None:
        """Register a handler that carries out several requests of a session, ready at once, as all
        or nothing.
        """
        self._together[category, origin] = handler

    def on_claimed(
        self,
        category: Category,
        origin: Origin,
        has_room: Callable[[str], bool],
        handler: ClaimedHandler,
    ) -> None:
        """Register a handler for requests of this kind that rules allow: they are claimed as they
        are asked, where `has_room(session_id)` says that they would begin at once."""
        self._claimed[category, origin] = (has_room, handler)

    def begins_at_once(self, action: Action, origin: Origin, session_id: str) -> bool:
        """Return whether such a request, if rules allow it, is claimed as it is asked."""
        known = self._claimed.get((category_of(action), origin))
        return self._tasks is not None and known is not None and known[0](session_id)

    def begin(self, request: Request, grant: Grant) -> None:
        """Carry out a request that was claimed as it was asked."""
        _, handler = self._claimed[category_of(request.action), request.origin]
        assert self._tasks is not None
        self._tasks.create_task(
            self._carry_out(handler(request, grant), [request]), name=f"carry-out-{request.id}"
        )

    def is_together(self, request: Request) -> bool:
        """Return whether several such requests that are ready at once are carried out as all or
        nothing.
        """
        return (category_of(request.action), request.origin) in self._together

    def run_in(self, tasks: asyncio.TaskGroup) -> None:
        """Set the task group that handlers run in. Before that, ready requests wait for
        `Gate.offer_ready`.
        """
        self._tasks = tasks

    def run(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a channel's own loop beside them. If it fails, only it ends."""
        if self._tasks is None:
            work.close()
            raise RuntimeError("there is no task group yet")
        task = self._tasks.create_task(_logged(work, name), name=name)
        task.add_done_callback(
            lambda _: work.close()
        )  # cancelled before it began, nothing else would
        return task

    def offer(self, requests: Sequence[Request]) -> None:
        """Give requests to the handlers of their kind; a session's together where the handler takes
        several.
        """
        groups: dict[tuple[Category, Origin, str], list[Request]] = {}
        for request in requests:
            groups.setdefault(
                (category_of(request.action), request.origin, request.session_id), []
            ).append(request)
        for (category, origin, _), group in groups.items():
            together, each = (
                self._together.get((category, origin)),
                self._each.get((category, origin)),
            )
            if self._tasks is None:
                continue
            if together is not None and len(group) > 1:
                self._tasks.create_task(
                    self._carry_out(together(group), group), name=f"carry-out-{group[0].id}"
                )
            elif each is not None:
                for request in group:
                    self._tasks.create_task(
                        self._carry_out(each(request), [request]), name=f"carry-out-{request.id}"
                    )

    async def _carry_out(self, work: Awaitable[None], requests: Sequence[Request]) -> None:
        try:
            await work
        except Exception as error:  # a channel that fails must not take the others along
            log.exception("carrying out failed", requests=[request.id for request in requests])
            facts = {
                "ok": False,
                "error": f"carrying it out failed: {self._redactor.text(str(error))[:500]}",
            }
            self._settle({request.id: facts for request in requests})


async def _logged(work: Coroutine[Any, Any, None], name: str) -> None:
    try:
        await work
    except Exception:
        log.exception("a loop ended", loop=name)
