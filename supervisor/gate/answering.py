"""The end of waiting: answers at once, many in turns or many as one; answers by rules; closing.

    now        one step of the event loop, one transaction
    in turns   some at a time, each part one transaction; between two parts everybody else is
               served. After a crash each part is answered whole, or waits whole
    as one     all in one transaction, offered together; reading, audit lines and telling watchers
               are done in turns around it

It decides nothing: rules and the operator do. INVARIANT: each answer is a compare-and-swap: only a
request that is still pending is answered.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from supervisor.base import log
from supervisor.base.clock import Clock
from supervisor.base.event_loop import slices
from supervisor.core.approvals import Answer, Request, status
from supervisor.core.policy.rules import Policy
from supervisor.errors import ChangedError, StorageError
from supervisor.gate import audit_lines
from supervisor.gate.handlers import Handlers
from supervisor.gate.rulings import Rulings
from supervisor.records.approval_queue import ApprovalQueue
from supervisor.records.audit import Audit, Event

# Each costs up to a millisecond (rules, a wish's likeness, the page), and whoever else asks waits
# for a few such parts.
IN_TURN = 10
# Between the time of an answer and its line at most: the lines of thousands are made before both.
SAID_WITHIN_S = 600.0
# Of those that are only read, encoded or told.
PREPARED = 100


class Answering(NamedTuple):
    """An answer to a request. `rule`: the rule that gave it. `in_part`: as in `Request`."""

    request_id: str
    answer: Answer
    reason: str
    rule: str | None = None
    in_part: bool = False


class Answers:
    """Answers the requests of one gate."""

    def __init__(
        self,
        queue: ApprovalQueue,
        audit: Audit,
        handlers: Handlers,
        rulings: Rulings,
        clock: Clock,
    ) -> None:
        self._queue = queue
        self._audit = audit
        self._handlers = handlers
        self._rulings = rulings
        self._clock = clock
        self._unsaid: list[tuple[Event, audit_lines.LineFields]] = []

    def now(self, answering: Sequence[Answering], by: str) -> list[Request]:
        """Answer the requests that are still pending, in one step. Return those answered."""
        with self._queue.together():
            made = self._made(answering, by, self._clock.now())
            answered = self._queue.answer_all([request for request, _ in made])
        done = {request.id for request in answered}
        self._record([fields for request, fields in made if request.id in done])
        self._end(answered)
        return answered

    async def in_turns(self, answering: Sequence[Answering], by: str) -> list[Request]:
        """Call `now` for a few requests at a time."""
        answered: list[Request] = []
        async for part in slices(answering, IN_TURN):
            answered += self.now(part, by)
        return answered

    async def as_one(
        self, answering: Sequence[Answering], by: str, *, all_of_them: bool
    ) -> list[Request]:
        """Answer the requests that are still pending in one transaction, and offer them together.
        With `all_of_them`, raise `ChangedError` and answer nothing if one is no longer pending.
        """
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

    async def rejudge(self, by: str) -> list[Request]:
        """Answer the waiting requests that the current rules decide, after a change of the policy.
        Return those answered.

        A few at a time; but a session's requests that are carried out as all or nothing are
        answered in one transaction.
        """
        answered: list[Request] = []
        judged_by: dict[str, Policy] = {}
        together: dict[str, list[Answering]] = {}
        async for part in slices(self._queue.pending_ids(), IN_TURN):
            alone: list[Answering] = []
            for request in self._queue.get_all(part):
                session_id = request.session_id
                judged_by.setdefault(session_id, self._rulings.policies_of(session_id).current())
                if said := self._by_rules(request):
                    is_together = self._handlers.is_together(request)
                    (together.setdefault(session_id, []) if is_together else alone).append(said)
            answered += self.now(alone, by)
        for session_id, of_session in together.items():
            # Else whoever changed it judges anew.
            if self._rulings.policies_of(session_id).current() is judged_by[session_id]:
                answered += await self.as_one(of_session, by, all_of_them=False)
        return answered

    def _by_rules(self, request: Request) -> Answering | None:
        """Return the rules' answer to a request; None where they ask, or it waits no more."""
        if status(request) != "pending" or not self._rulings.is_open(request.session_id):
            return None
        verdict = self._rulings.verdict(self._queue.action_of(request), request.session_id)
        if verdict.decision == "ask":
            return None
        said: Answer = "approved" if verdict.decision == "allow" else "denied"
        return Answering(request.id, said, verdict.why, verdict.rule)

    def close(self, why: str, *request_ids: str) -> None:
        """End requests that no longer need an answer, in one transaction and one write to the
        record.
        """
        closed = self._queue.close_all(request_ids, why, self._clock.now())
        self._audit.record_all([audit_lines.request_closed(one, why) for one in closed])

    def close_session(
        self, session_id: str, why: str, *, keep: Callable[[Request], bool] = lambda request: False
    ) -> int:
        """End every pending or ready request of a session, except those in `keep`.
        Return how many.
        """
        left = self._queue.pending(session_id) + self._queue.ready(session_id)
        closing = [request.id for request in left if not keep(request)]
        self.close(why, *closing)
        return len(closing)

    def complete_record(self) -> None:
        """At start-up, write audit lines missing after a crash: the database had the answer or end,
        the record didn't yet.
        """
        since, said = self._audit.said_of_requests(SAID_WITHIN_S)
        missing = [
            line
            for request in self._queue.ended_since(since)
            for line in audit_lines.ends_of(request)
            if (line[0], request.id) not in said
        ]
        with contextlib.suppress(StorageError):  # `Audit.failure` says so, and nothing is allowed
            self._audit.record_all(missing)

    def offer_ready(self) -> None:
        """At start-up after a crash, offer ready requests that weren't carried out to their
        channels.
        """
        self._handlers.offer(
            [one for one in self._queue.ready() if self._rulings.is_open(one.session_id)]
        )

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
        # `claim` gives no grant. Then their lines come before the next.
        self._unsaid += map(audit_lines.request_answered, lines)
        try:
            self._audit.record_all(self._unsaid)
        except StorageError as error:
            log.error("answers not recorded", error=str(error), number=len(lines))
        else:
            self._unsaid = []

    def _end(self, answered: Sequence[Request]) -> None:
        self._handlers.offer([request for request in answered if request.answer == "approved"])
