"""The gate: `ask` turns what an agent wants into a recorded verdict, and `claim` is the ONE place that makes a Grant.

    ask      kill switch -> rules (pure) -> audit record -> Request: allowed, denied or pending
    resolve  the operator's answer to a pending request (never the agent's: no agent route leads here)
    claim    allowed or approved -> Grant, once
    Grant.use(action)   right before the effect: the action, built anew from what is about to be done, must be the one
                        that was judged
    settle   what came of it -> audit record

Every way to fail ends in a denial with a why (law 3). The gate holds no channel and carries nothing out itself: channels
register what to do with a request that became ready (`on_ready`), and `offer_ready` offers what a crash left behind.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec
import structlog

from supervisor.approval_queue import MOST_PENDING_PER_SESSION, ApprovalQueue
from supervisor.audit import Audit
from supervisor.clock import Clock
from supervisor.core.actions import Action, Category, FileChange, category_of, fingerprint, subject
from supervisor.core.approvals import Answer, Origin, Request, RequestId, explanation, is_settled, status
from supervisor.core.redact import Redactor, redacted
from supervisor.core.rules import Policy, Verdict, evaluate
from supervisor.core.sessions import Session
from supervisor.errors import NotFoundError, StorageError, UserError
from supervisor.grants import Grant, Refused
from supervisor.kill_switch import KillSwitch
from supervisor.own_files import OWN_FILE, own_paths, touches
from supervisor.policy_files import PolicyFiles
from supervisor.unwritten import Unwritten

__all__ = ["Gate", "Grant", "Refused"]

log = structlog.get_logger("gate")

type ReadyHandler = Callable[[Request], Awaitable[None]]


class Gate:
    """See the module's text. One per supervisor; every method runs in the event loop."""

    def __init__(
        self,
        *,
        policies: PolicyFiles,
        queue: ApprovalQueue,
        audit: Audit,
        kill_switch: KillSwitch,
        clock: Clock,
        redactor: Redactor,
        own_files: Iterable[Path] = (),
    ) -> None:
        self.policies = policies
        self.queue = queue
        self.audit = audit
        self._kill_switch = kill_switch
        self._clock = clock
        self._redactor = redactor
        self._own_files = tuple(own_files)
        self._own_in: dict[str, frozenset[str]] = {}
        self._sessions: dict[str, Session] = {}
        self._handlers: dict[tuple[Category, Origin], ReadyHandler] = {}
        self._actions: dict[str, Action] = {}
        self._begun: set[str] = set()
        self._unwritten = Unwritten(queue, clock)
        self._own_endpoints: frozenset[tuple[str, int]] = frozenset()
        self._tasks: asyncio.TaskGroup | None = None

    # -- wiring -----------------------------------------------------------------------------------------------------

    def on_ready(self, category: Category, origin: Origin, handler: ReadyHandler) -> None:
        """What carries out requests of this kind once they are allowed or approved."""
        self._handlers[category, origin] = handler

    def run_handlers_in(self, tasks: asyncio.TaskGroup) -> None:
        """The task group that handlers run in; before it is known, ready requests wait for `offer_ready`."""
        self._tasks = tasks

    def run(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a channel's own loop beside the handlers. Where it fails it ends, and takes nobody along."""
        if self._tasks is None:
            work.close()
            raise RuntimeError("the gate has no task group yet")
        return self._tasks.create_task(_logged(work, name), name=name)

    def forbid_endpoints(self, endpoints: frozenset[tuple[str, int]]) -> None:
        """Gatehouse's own listeners, as (address, port): no rule lets an agent reach them."""
        self._own_endpoints = endpoints

    def open_session(self, session: Session) -> None:
        """Actions of this session may be judged from now on."""
        self._sessions[session.id] = session
        self._own_in[session.id] = own_paths(Path(session.workspace), self._own_files)

    def close_session(self, session_id: str) -> None:
        """Everything that this session asks from now on is denied."""
        self._sessions.pop(session_id, None)
        self._own_in.pop(session_id, None)

    # -- asking -----------------------------------------------------------------------------------------------------

    def judge(self, action: Action, session_id: str) -> Verdict:
        """What the rules say, recorded. Never raises, never asks anybody."""
        verdict = self._verdict(action, session_id)
        try:
            self._record_verdict(action, session_id, verdict)
        except StorageError as error:
            return Verdict(decision="deny", why=error.message, remedy=error.remedy)
        self._count(verdict)
        return verdict

    def preview(self, policy: Policy, action: Action, session_id: str) -> Verdict:
        """What `policy`, which need not be in force, says of an action. Records nothing, and grants nothing."""
        session = self._sessions.get(session_id)
        verdict = evaluate(
            policy,
            action,
            now=self._clock.now(),
            session_id=session_id,
            forbidden_endpoints=self._own_endpoints,
            configured_remotes=frozenset(session.remotes) if session and session.remotes else None,
            uses=self._unwritten.uses,
        )
        own = self._own_in.get(session_id)
        if own and verdict.decision != "deny" and isinstance(action, FileChange) and touches(action, own):
            # INVARIANT: what decides over the agent is never changed by a rule, however wide.
            return Verdict(decision="ask", why=OWN_FILE, sticky=True)
        return verdict

    def peek(self, action: Action, session_id: str) -> Verdict:
        """What the rules would say, recorded nowhere: to put off asking, never to act on. Never raises."""
        return self._verdict(action, session_id)

    def record_refusal(self, action: Action, session_id: str, why: str) -> None:
        """A channel refused by itself, before any rule: it is on record like a verdict. Never raises."""
        with contextlib.suppress(StorageError):
            self._record_verdict(action, session_id, Verdict(decision="deny", why=why))

    def ask(
        self,
        action: Action,
        *,
        session_id: str,
        reason: str = "",
        origin: Origin = "agent_api",
        hold_s: float | None = None,
    ) -> Request:
        """Judge an action and record the request; what it became is `status(request)`.

        An identical action that still waits is the same request; one that the operator denied in this session stays denied;
        a newer one for the same subject supersedes the older, which is denied before this returns.
        """
        verdict = self._verdict(action, session_id)
        mark = fingerprint(action)
        now = self._clock.now()
        hold_until = None if hold_s is None else now + hold_s
        if verdict.decision == "ask":
            if known := self._known(session_id, mark, hold_until):
                if status(known) == "approved":
                    self._offer(
                        known
                    )  # again: the first time its grant may have been refused (a full disk, all stopped)
                return known
            if self.queue.is_full(session_id):
                verdict = Verdict(
                    decision="deny",
                    why=f"{MOST_PENDING_PER_SESSION} requests of this session wait already",
                    remedy="wait for answers",
                )
        request = Request(
            id=RequestId(secrets.token_hex(16)),
            session_id=session_id,
            origin=origin,
            action=redacted(action, self._redactor),
            fingerprint=mark,
            subject=subject(action),
            asked_at=now,
            decision=verdict.decision,
            why=self._redactor.text(verdict.why),
            reason=self._redactor.text(reason)[:2000],
            rule=verdict.rule,
            remedy=verdict.remedy,
            sticky=verdict.sticky,
            hold_until=hold_until,
        )
        request = self._record_request(request, verdict)
        if request.decision != "deny":
            self._actions[request.id] = action
        self._count(verdict)
        if request.decision == "allow":
            self._offer(request)
        return request

    async def decide(
        self, action: Action, *, session_id: str, reason: str = "", origin: Origin = "agent_api", hold_s: float
    ) -> Grant | Refused:
        """Ask, wait up to `hold_s` seconds for an answer, claim. For channels that hold the agent meanwhile."""
        verdict = self._verdict(action, session_id)
        if verdict.decision != "ask":
            verdict = self.judge(action, session_id)
        if verdict.decision == "allow":
            return Grant(
                session_id=session_id, bound_to=fingerprint(action), request_id=None, rule=verdict.rule, why=verdict.why
            )
        if verdict.decision == "deny":
            return Refused(why=verdict.why, rule=verdict.rule, remedy=verdict.remedy)
        request = self.ask(action, session_id=session_id, reason=reason, origin=origin, hold_s=hold_s)
        request = await self.wait(request.id, hold_s)
        if status(request) == "pending":
            return Refused(
                why=f"nobody answered within {hold_s:g} s: {request.why}",
                decision="ask",
                rule=request.rule,
                remedy="the request stays in the inbox; try again after it is answered",
                request_id=request.id,
            )
        return self.claim(request.id, session_id)

    async def wait(self, request_id: str, timeout_s: float) -> Request:
        """The request as soon as it isn't pending, or as it is when the time runs out. `NotFoundError` where there is none."""
        return await self._until(lambda request: status(request) != "pending", request_id, timeout_s)

    async def wait_settled(self, request_id: str, timeout_s: float) -> Request:
        """The request as soon as nothing more can come of it, its outcome included; else as it is at the end."""
        return await self._until(is_settled, request_id, timeout_s)

    def get(self, request_id: str) -> Request:
        """The request, or `NotFoundError`."""
        request = self.queue.get(request_id)
        if request is None:
            raise NotFoundError(f"no request has the id `{request_id[:64]}`", "see the inbox or `gatehouse approvals`")
        return request

    # -- answering: only ever called for the operator, or by the gate itself ------------------------------------------------

    def resolve(
        self, request_id: str, answer: Answer, *, by: str, reason: str = "", shown_fingerprint: str | None = None
    ) -> Request:
        """Answer a pending request. `UserError` where it is no longer pending, or isn't the one that was shown."""
        request = self.get(request_id)
        if shown_fingerprint is not None and shown_fingerprint != request.fingerprint:
            raise UserError("this is not the request that was shown", "reload the inbox and look again")
        answered = self._answer(request, answer, by=by, reason=self._redactor.text(reason)[:2000])
        if answered is None:
            now = self.get(request_id)
            raise UserError(f"this request was already {status(now)}", "reload the inbox")
        return answered

    def rejudge_pending(self, by: str) -> list[Request]:
        """Answer the waiting requests that the rules, as they are now, decide. For every change of the policy."""
        changed = []
        for request in self.queue.pending():
            action = self._actions.get(request.id, request.action)
            verdict = self._verdict(action, request.session_id)
            if verdict.decision == "ask" or request.session_id not in self._sessions:
                continue
            answer: Answer = "approved" if verdict.decision == "allow" else "denied"
            answered = self._answer(request, answer, by=by, reason=verdict.why, rule=verdict.rule)
            if answered is not None:
                changed.append(answered)
        return changed

    def close(self, request_id: str, why: str) -> None:
        """End a request that nobody needs an answer to any more."""
        closed = self.queue.close(request_id, why, self._clock.now())
        if closed is not None:
            self._actions.pop(request_id, None)
            self.audit.record("request_closed", request=request_id, session=closed.session_id, why=why)

    def close_requests(
        self, session_id: str, why: str, *, keep: Callable[[Request], bool] = lambda request: False
    ) -> int:
        """End every request of a session that is pending or ready, but those that `keep` names; how many."""
        left = self.queue.pending(session_id) + self.queue.ready(session_id)
        closing = [request for request in left if not keep(request)]
        for request in closing:
            self.close(request.id, why)
        return len(closing)

    # -- acting -----------------------------------------------------------------------------------------------------

    def claim(self, request_id: str, session_id: str) -> Grant | Refused:
        """The grant of an allowed or approved request, once; the reason why not for any other."""
        request = self.get(request_id)
        if reason := self._kill_switch.reason():
            return Refused(why=f"everything is stopped: {reason}", request_id=request_id)
        if status(request) not in ("allowed", "approved") or session_id != request.session_id:
            return Refused(why=explanation(request), rule=request.rule, remedy=request.remedy, request_id=request_id)
        # A denial that came after the answer, while the request waited for its turn, holds too.
        if (verdict := self._verdict(self.action_of(request), session_id)).decision == "deny":
            self.close(request_id, verdict.why)
            return Refused(why=verdict.why, rule=verdict.rule, remedy=verdict.remedy, request_id=request_id)
        return self._begin(request, resumed=False)

    def unsettled(self, session_id: str) -> list[Request]:
        """What an earlier run of the supervisor began for this session, and died before it knew the outcome."""
        left = self.queue.unsettled()
        return [request for request in left if request.session_id == session_id and request.id not in self._begun]

    def resume(self, request_id: str, session_id: str) -> Grant | Refused:
        """The grant of an `unsettled` request anew, once: only for effects that can be found done and not be done twice."""
        if reason := self._kill_switch.reason():
            return Refused(why=f"everything is stopped: {reason}", request_id=request_id)
        found = [request for request in self.unsettled(session_id) if request.id == request_id]
        if not found:
            return Refused(why="this request isn't one that a crash left", remedy="ask again", request_id=request_id)
        return self._begin(found[0], resumed=True)

    def action_of(self, request: Request) -> Action:
        """The action as it was asked. After a restart one that held a secret is only known redacted, and no grant fits it."""
        return self._actions.get(request.id, request.action)

    def settle(self, grant: Grant, outcome: Literal["done", "failed"], detail: dict[str, Any]) -> None:
        """Record what came of an effect. It has happened: an audit that can't be written stops the next one, not this."""
        facts = self._redactor.data({"ok": outcome == "done", **detail})
        if grant.request_id is not None:
            self._actions.pop(grant.request_id, None)
            self._unwritten.settle(grant.request_id, facts)
        try:
            brief = {key: value for key, value in facts.items() if not isinstance(value, str) or len(value) <= 500}
            self.audit.record(
                "effect_settled",
                request=grant.request_id,
                session=grant.session_id,
                grant=grant.id,
                outcome=outcome,
                detail=brief,
            )
        except StorageError as error:
            log.error("effect not recorded", error=str(error), request=grant.request_id)

    def offer_ready(self) -> None:
        """Offer every request that may be carried out and wasn't to its channel: at start-up, after a crash."""
        for request in self.queue.ready():
            if request.session_id in self._sessions:
                self._offer(request)

    def write_hits(self) -> None:
        """Put what isn't in the database yet into it (see `Unwritten.write`); called now and then, and at the end."""
        self._unwritten.write()

    # -- inside -----------------------------------------------------------------------------------------------------

    async def _until(self, is_it: Callable[[Request], bool], request_id: str, timeout_s: float) -> Request:
        """Look, sleep until a fact changes, look again: so a wait that begins late, or anew, misses nothing."""
        deadline = self._clock.monotonic() + timeout_s
        while True:
            request = self.get(request_id)
            left_s = deadline - self._clock.monotonic()
            if is_it(request) or left_s <= 0:
                return request
            await self.queue.next_change(request_id, left_s)

    def _begin(self, request: Request, *, resumed: bool) -> Grant | Refused:
        """Record that an effect begins, then give its grant out: the ONE place where a request becomes a Grant."""
        # Who said yes stands here too: the line of the answer itself is missing where the disk was full just then.
        facts = {
            "request": request.id,
            "session": request.session_id,
            "fingerprint": request.fingerprint,
            "verdict": request.decision,
            "rule": request.rule,
            "by": request.answered_by,
        }
        try:
            self.audit.record("effect_started", **facts, resumed=resumed)
        except StorageError as error:
            return Refused(why=error.message, remedy=error.remedy, request_id=request.id)
        if not resumed and self.queue.use(request.id, request.session_id, self._clock.now()) is None:
            return Refused(why="this request was used before", remedy="ask again", request_id=request.id)
        self._begun.add(request.id)
        return Grant(
            session_id=request.session_id,
            bound_to=request.fingerprint,
            request_id=request.id,
            rule=request.rule,
            why=explanation(request),
        )

    def _verdict(self, action: Action, session_id: str) -> Verdict:
        reason = self._kill_switch.reason()
        if reason is not None:
            return Verdict(decision="deny", why=f"everything is stopped: {reason}", remedy="the operator can resume")
        session = self._sessions.get(session_id)
        if session is None:
            return Verdict(decision="deny", why="the session has ended", remedy="start a new session")
        try:
            policy = self.policies.for_session(session.policy_text)
            return self.preview(policy, action, session_id)
        except Exception as error:  # law 3: whatever goes wrong in here is a denial
            log.exception("verdict failed")
            return Verdict(decision="deny", why=f"the rules could not be evaluated: {type(error).__name__}")

    def _known(self, session_id: str, mark: str, hold_until: float | None) -> Request | None:
        """An earlier request for the same action that still speaks: pending, approved and unused, or denied by a person."""
        earlier = self.queue.earlier(session_id, mark)
        if earlier is None:
            return None
        current = status(earlier)
        if current in ("pending", "approved") or (current == "denied" and earlier.superseded_by is None):
            return self.queue.ask_again(earlier.id, hold_until if current == "pending" else None)
        return None

    def _record_request(self, request: Request, verdict: Verdict) -> Request:
        """Audit first, then the database. Where either fails the request is denied, and nothing was superseded."""
        try:
            self.audit.record(
                "request_asked",
                request=request.id,
                session=request.session_id,
                category=category_of(request.action),
                action=msgspec.to_builtins(request.action),
                fingerprint=request.fingerprint,
                reason=request.reason,
                verdict=verdict.decision,
                rule=verdict.rule,
                why=request.why,
            )
        except StorageError as error:
            return msgspec.structs.replace(request, decision="deny", why=error.message, remedy=error.remedy)
        try:
            superseded = self.queue.add(request)
        except StorageError as error:
            return msgspec.structs.replace(request, decision="deny", why=error.message, remedy=error.remedy)
        if superseded is not None:
            self._actions.pop(superseded.id, None)
            self.audit.record("request_superseded", request=superseded.id, by=request.id, session=request.session_id)
        return request

    def _answer(
        self, request: Request, answer: Answer, *, by: str, reason: str, rule: str | None = None
    ) -> Request | None:
        """The compare-and-swap of an answer; None where the request is no longer pending."""
        now = self._clock.now()
        answered = self.queue.answer(request.id, answer, at=now, by=by, reason=reason, rule=rule)
        if answered is None:
            return None
        # The answer is acknowledged by the database; the audit names it too, and while it can't, `claim` gives no grant.
        try:
            self.audit.record(
                "request_answered",
                request=request.id,
                session=request.session_id,
                answer=answer,
                by=by,
                reason=reason,
                rule=rule,
            )
        except StorageError as error:
            log.error("answer not recorded", error=str(error), request=request.id)
        if answer == "approved":
            self._offer(answered)
        else:
            self._actions.pop(request.id, None)
        return answered

    def _offer(self, request: Request) -> None:
        handler = self._handlers.get((category_of(request.action), request.origin))
        if handler is not None and self._tasks is not None:
            self._tasks.create_task(self._carry_out(handler, request), name=f"carry-out-{request.id}")

    async def _carry_out(self, handler: ReadyHandler, request: Request) -> None:
        try:
            await handler(request)
        except Exception as error:  # a channel that fails must not take the others along
            log.exception("carrying out failed", request=request.id)
            facts = {"ok": False, "error": f"carrying it out failed: {self._redactor.text(str(error))[:500]}"}
            self._unwritten.settle(request.id, facts)

    def _record_verdict(self, action: Action, session_id: str, verdict: Verdict) -> None:
        shown = redacted(action, self._redactor)
        self.audit.record(
            "verdict_given",
            session=session_id,
            category=category_of(action),
            action=msgspec.to_builtins(shown),
            fingerprint=fingerprint(action),
            verdict=verdict.decision,
            rule=verdict.rule,
            why=verdict.why,
        )

    def _count(self, verdict: Verdict) -> None:
        if verdict.rule_id is not None:
            self._unwritten.count(verdict.rule_id)


async def _logged(work: Coroutine[Any, Any, None], name: str) -> None:
    try:
        await work
    except Exception:
        log.exception("a loop ended", loop=name)
