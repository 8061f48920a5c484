"""Who carries out what became ready: each kind of request by its channel, several of a session at
once together where it can.

It decides nothing and makes no grant. A channel that fails takes nobody along: what it had is
settled as failed, with the reason.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from supervisor.base import log
from supervisor.core.actions import Category, category_of
from supervisor.core.approvals import Origin, Request
from supervisor.core.secrets.redact import Redactor

type ReadyHandler = Callable[[Request], Awaitable[None]]
type GroupHandler = Callable[[Sequence[Request]], Awaitable[None]]


class Handlers:
    """`settle` says with requests, by id, what came of them."""

    def __init__(
        self, redactor: Redactor, settle: Callable[[Mapping[str, dict[str, Any]]], None]
    ) -> None:
        self._redactor = redactor
        self._settle = settle
        self._each: dict[tuple[Category, Origin], ReadyHandler] = {}
        self._together: dict[tuple[Category, Origin], GroupHandler] = {}
        self._tasks: asyncio.TaskGroup | None = None

    def on_ready(self, category: Category, origin: Origin, handler: ReadyHandler) -> None:
        """Have requests of this kind carried out once they are allowed or approved."""
        self._each[category, origin] = handler

    def on_ready_together(self, category: Category, origin: Origin, handler: GroupHandler) -> None:
        """Have several requests of one session that became ready at once carried out as all or
        nothing."""
        self._together[category, origin] = handler

    def is_together(self, request: Request) -> bool:
        """Return whether such requests are carried out as all or nothing where several became
        ready at once."""
        return (category_of(request.action), request.origin) in self._together

    def run_in(self, tasks: asyncio.TaskGroup) -> None:
        """The task group that they run in; before it is known, what is ready waits for
        `Gate.offer_ready`."""
        self._tasks = tasks

    def run(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a channel's own loop beside them. Where it fails it ends, and takes nobody along."""
        if self._tasks is None:
            work.close()
            raise RuntimeError("there is no task group yet")
        task = self._tasks.create_task(_logged(work, name), name=name)
        task.add_done_callback(
            lambda _: work.close()
        )  # cancelled before it began, nothing else would
        return task

    def offer(self, requests: Sequence[Request]) -> None:
        """Give each kind of request to its handler: together, where it takes several of a
        session at once."""
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
