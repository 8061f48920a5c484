"""Answers to waiting requests, written down: at once, many in turns, or many as one.

    now        one step of the event loop, one transaction
    in turns   some at a time, each part one transaction; between two parts everybody else is
               served. After a crash each part is answered whole, or waits whole
    as one     all in one transaction, offered together; reading, audit lines and telling watchers
               are done in turns around it

It decides nothing: `gate` and the operator do. INVARIANT: each answer is a compare-and-swap:
only what is pending still is answered.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import structlog

from supervisor.base.clock import Clock
from supervisor.base.slices import slices
from supervisor.core.approvals import Answer, Request, status
from supervisor.errors import ChangedError, StorageError
from supervisor.gate import audit_lines
from supervisor.gate.handlers import Handlers
from supervisor.records.approval_queue import ApprovalQueue
from supervisor.records.audit import Audit

log = structlog.get_logger("gate")

# Each costs up to a millisecond (rules, a wish's likeness, the page), and whoever else asks waits
# for a few such parts.
IN_TURN = 10
# Of those that are only read, encoded or told.
PREPARED = 100


class Answering(NamedTuple):
    """What is to be said of a request. `rule`: the one that says it. `in_part`: as in `Request`."""

    request_id: str
    answer: Answer
    reason: str
    rule: str | None = None
    in_part: bool = False


class Answers:
    """One per gate. `forget(request_id)` drops what is known of a request that nothing more
    comes of."""

    def __init__(
        self,
        queue: ApprovalQueue,
        audit: Audit,
        handlers: Handlers,
        clock: Clock,
        forget: Callable[[str], object],
    ) -> None:
        self._queue = queue
        self._audit = audit
        self._handlers = handlers
        self._clock = clock
        self._forget = forget

    def now(self, answering: Sequence[Answering], by: str) -> list[Request]:
        """Answer those that are pending still, as one step; those answered."""
        with self._queue.together():
            made = self._made(answering, by, self._clock.now())
            answered = self._queue.answer_all([request for request, _ in made])
        done = {request.id for request in answered}
        self._record([fields for request, fields in made if request.id in done])
        self._end(answered)
        return answered

    async def in_turns(self, answering: Sequence[Answering], by: str) -> list[Request]:
        """`now` for some at a time."""
        answered: list[Request] = []
        async for part in slices(answering, IN_TURN):
            answered += self.now(part, by)
        return answered

    async def as_one(
        self, answering: Sequence[Answering], by: str, *, all_of_them: bool
    ) -> list[Request]:
        """Answer those that are pending still in one transaction, and offer them together.
        `ChangedError` where they aren't `all_of_them`: then nothing was answered."""
        at, made, lines = self._clock.now(), list[Request](), list[audit_lines.LineFields]()
        async for part in slices(answering, PREPARED):
            for request, fields in self._made(part, by, at):
                made.append(request)
                lines.append(self._audit.encoded(fields) or fields)
        if all_of_them and len(made) != len(answering):
            raise ChangedError.several()
        # INVARIANT: nothing awaits from here until they are offered: no step of a channel finds
        # only some of them answered.
        done = self._queue.answer_untold(made, all_of_them=all_of_them)
        self._record(
            [line for request, line in zip(made, lines, strict=True) if request.id in done]
        )
        answered = [request for request in made if request.id in done]
        self._end(answered)
        async for told in slices(answered, PREPARED):
            for request in self._queue.get_all([one.id for one in told]):
                self._queue.announce(request)
        return answered

    def _made(
        self, answering: Sequence[Answering], by: str, at: float
    ) -> list[tuple[Request, dict[str, Any]]]:
        """Of those that are pending, what they become, and the fields of the line about it."""
        said = {one.request_id: one for one in answering}
        found = []
        for request in self._queue.get_all(list(said)):
            if status(request) == "pending":
                _, answer, reason, rule, in_part = said[request.id]
                facts = {
                    "answer": answer,
                    "answered_at": at,
                    "answered_by": by,
                    "answer_reason": reason,
                    "in_part": in_part,
                }
                made = msgspec.structs.replace(
                    request, **facts, rule=request.rule if rule is None else rule
                )
                found.append((made, audit_lines.answered(made, rule)))
        return found

    def _record(self, lines: Sequence[audit_lines.LineFields]) -> None:
        # Answers are acknowledged by the database; the audit names them too, and while it can't,
        # `claim` gives no grant.
        try:
            self._audit.record_all(list(map(audit_lines.request_answered, lines)))
        except StorageError as error:
            log.error("answers not recorded", error=str(error), number=len(lines))

    def _end(self, answered: Sequence[Request]) -> None:
        for request in answered:
            if request.answer == "denied":
                self._forget(request.id)
        self._handlers.offer([request for request in answered if request.answer == "approved"])
