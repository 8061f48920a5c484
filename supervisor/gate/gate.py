"""The gate: turns what an agent wants into a recorded verdict, and alone makes proofs of it.

    ask      kill switch -> rules (pure) -> audit record -> Request: allowed, denied or pending
    resolve  the operator's answer to a pending request (never the agent's: no agent route leads
             here)
    claim    allowed or approved -> Grant, once
    decide   ask, wait for the answer, claim; `decide_by_rules` where rules alone answer
    lease    what belongs to something granted and still open -> Lease
    Grant.use(action)   right before the effect: the action, built anew from what would be done,
                        must be the judged one
    settle   what came of it -> audit record

Every way to fail ends in a denial with a why (law 3). The gate holds no channel and carries
nothing out itself: what became ready goes to the `handlers` that channels register. Its parts:

    queue     the requests as stored        rulings         what rules say, unrecorded
    handlers  who carries out what          answers         closing, judging anew
    repeats   what is asked again           pending_writes  facts not in the database yet
    printing  what is printed meanwhile
"""

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec

from supervisor.base import log
from supervisor.base.clock import Clock
from supervisor.base.event_loop import slices
from supervisor.core.actions import Action, Network, fingerprint, subject
from supervisor.core.approvals import (
    SUPERSEDED,
    Answer,
    Origin,
    Request,
    RequestId,
    explanation,
    status,
)
from supervisor.core.policy.rules import Policy, Verdict
from supervisor.core.secrets import command_secrets
from supervisor.core.secrets.redact import Redactor, redacted
from supervisor.core.verdicts import INBOX_FULL, SESSION_ENDED
from supervisor.errors import ChangedError, StorageError
from supervisor.gate import audit_lines
from supervisor.gate.answering import PREPARED, Answering, Answers
from supervisor.gate.audit_lines import VerdictLines, record_refusal
from supervisor.gate.grants import Grant, Lease, Refused, refused_by, taken, unanswered
from supervisor.gate.handlers import Handlers
from supervisor.gate.printing import Printing
from supervisor.gate.repeats import Repeats
from supervisor.gate.rulings import Rulings
from supervisor.records.approval_queue import ApprovalQueue
from supervisor.records.audit import Audit, Encoded
from supervisor.records.kill_switch import KillSwitch
from supervisor.records.policy_files import PolicyFiles

__all__ = ["Gate", "Grant", "Lease", "Outcome", "Refused"]

NO_LINES: Mapping[str, Encoded | None] = MappingProxyType({})
NOTHING_SENT_BACK: Mapping[str, str] = MappingProxyType({})
FULL = Verdict(decision="deny", why=INBOX_FULL, remedy="wait for answers", by_policy=False)
MOST_REASON_CHARS = 2000

type Outcome = Literal["done", "failed"]


class PendingWrites:
    """Facts not yet in the database: rule match counts, kept in memory so that a verdict costs no
    write, and outcomes that couldn't be written because the disk was full.

    `uses` is how often each rule ever matched, by rule id.
    """

    def __init__(self, queue: ApprovalQueue, clock: Clock) -> None:
        self._queue = queue
        self._clock = clock
        self._hits: Counter[str] = Counter()
        self._owed: dict[str, dict[str, Any]] = {}
        self.uses = {rule: hits for rule, (hits, _) in queue.read_rule_hits().items()}

    def count(self, rule_id: str) -> None:
        """Count a match of a rule."""
        self._hits[rule_id] += 1
        self.uses[rule_id] = self.uses.get(rule_id, 0) + 1

    def settle(self, outcomes: Mapping[str, dict[str, Any]]) -> None:
        """Keep outcomes by request id, each once; where the database can't be written now,
        `write` does it later."""
        new = {
            request_id: facts
            for request_id, facts in outcomes.items()
            if request_id not in self._owed
        }
        if not new:
            return  # what rules alone allowed is no request
        try:
            self._queue.settle_all(new, self._clock.now())
        except StorageError as error:
            self._owed |= new
            log.error("outcomes not stored", error=str(error), requests=list(new))

    def note_taken_back(self, whys: Mapping[str, str | None]) -> None:
        """Note on requests, by id, that the operator undid their effect; None: the effect is in
        force again.
        """
        self.write()
        self._queue.note_taken_back(whys)

    def write(self) -> None:
        """Write all of it to the database. Raise `StorageError` if that still fails; nothing is
        lost then.
        """
        self._queue.settle_all(self._owed, self._clock.now())
        self._owed.clear()
        if self._hits:
            self._queue.add_rule_hits(self._hits, self._clock.now())
            self._hits.clear()


class _RequestTerms(NamedTuple):
    """The common terms of requests that are asked for together. With `claims` those that rules
    allow begin at once. `held_up`: as in `Request`."""

    session_id: str
    reason: str
    origin: Origin
    hold_until: float | None = None
    claims: bool = False
    held_up: bool = False

    def request(self, action: Action, verdict: Verdict, redactor: Redactor, now: float) -> Request:
        """The request for one action, with the verdict on it."""
        return Request(
            id=RequestId(secrets.token_hex(16)),
            session_id=self.session_id,
            origin=self.origin,
            action=redacted(action, redactor),
            fingerprint=fingerprint(action),
            subject=subject(action),
            asked_at=now,
            decision=verdict.decision,
            why=redactor.said(verdict.why, action),
            reason=redactor.said(self.reason, action)[:MOST_REASON_CHARS],
            rule=verdict.rule,
            remedy=verdict.remedy,
            sticky=verdict.sticky,
            by_policy=verdict.by_policy,
            held_up=self.held_up,
            hold_until=self.hold_until,
            used_at=now if self.claims and verdict.decision == "allow" else None,
        )


class Gate:
    """The gate of one supervisor, as the module describes. Every method runs in the event loop."""

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
        self.queue = queue
        self.audit = audit
        self._clock = clock
        self.redactor = redactor
        self._begun: set[str] = set()
        self.pending_writes = PendingWrites(queue, clock)
        self.handlers = Handlers(redactor, self.pending_writes.settle)
        self.rulings = Rulings(policies, kill_switch, clock, self.pending_writes.uses, own_files)
        self._lines = VerdictLines(audit, redactor)
        self.answers = Answers(queue, audit, self.handlers, self.rulings, clock)
        self.repeats = Repeats(queue, clock, redactor, self.rulings, self.answers.close)
        self.printing = Printing()

    # -- asking -----------------------------------------------------------------------------------

    def ask(
        self,
        action: Action,
        *,
        session_id: str,
        reason: str = "",
        origin: Origin = "agent_api",
        hold_s: float | None = None,
        superseding: str = SUPERSEDED,
    ) -> Request:
        """Judge an action and record the request, whose outcome is `status(request)`.

        An identical action that still waits is the same request; one that the operator denied in
        this session stays denied; a newer one for the same subject supersedes the older, which
        is denied before this returns, and told why in `superseding`.
        """
        return self.ask_all(
            [action],
            session_id=session_id,
            reason=reason,
            origin=origin,
            hold_s=hold_s,
            superseding=superseding,
        )[0]

    def ask_all(
        self,
        actions: Sequence[Action],
        *,
        session_id: str,
        reason: str = "",
        origin: Origin = "agent_api",
        hold_s: float | None = None,
        superseding: str = SUPERSEDED,
    ) -> list[Request]:
        """`ask` for each, in one write to the record and one to the database. Where either
        fails, all are denied."""
        terms = _RequestTerms(
            session_id,
            reason,
            origin,
            None if hold_s is None else self._clock.now() + hold_s,
            claims=all(self.handlers.begins_at_once(one, origin, session_id) for one in actions),
        )
        requests, grants = self._ask_all(actions, terms, superseding)
        for one in requests:
            if one.id in grants:
                self.handlers.begin(one, grants[one.id])
        # What was approved before is offered again, too: its grant may have been refused (a full
        # disk, all stopped).
        self.handlers.offer([one for one in requests if status(one) in ("approved", "allowed")])
        return requests

    def ask_and_claim_all(
        self,
        actions: Sequence[Action],
        *,
        session_id: str,
        reason: str,
        origin: Origin,
        held_up: bool = False,
    ) -> tuple[list[Request], dict[str, Grant]]:
        """Do `ask_all` and, in the same two writes, `claim` what rules allow now. Claimed requests
        are used; their grants are returned by request id. The caller carries out all that is ready.
        `held_up`: as in `Request`.
        """
        terms = _RequestTerms(session_id, reason, origin, claims=True, held_up=held_up)
        return self._ask_all(actions, terms, SUPERSEDED)

    def _ask_all(
        self, actions: Sequence[Action], terms: _RequestTerms, superseding: str
    ) -> tuple[list[Request], dict[str, Grant]]:
        session_id = terms.session_id
        found: dict[int, Request] = {}
        new: dict[int, Request] = {}
        verdicts = self.rulings.verdicts(actions, session_id, used=self.pending_writes.count)
        marks = {
            at: fingerprint(actions[at])
            for at, verdict in enumerate(verdicts)
            if verdict.decision == "ask"
        }
        earlier = (
            self.queue.latest_for_fingerprints(session_id, list(marks.values())) if marks else {}
        )
        room = self.queue.room(session_id, terms.origin) if marks else 0
        for at, (action, verdict) in enumerate(zip(actions, verdicts, strict=True)):
            if at in marks:
                if known := self.repeats.known(
                    action, session_id, earlier.get(marks[at]), terms.hold_until
                ):
                    found[at] = known
                    if status(known) == "denied" and terms.origin != "workspace":
                        record_refusal(self.audit, action, session_id, explanation(known))
                    continue
                room -= 1
                verdict = verdict if room >= 0 else FULL
            if verdict.rule_id is not None and verdict.decision != "allow":
                self.pending_writes.count(verdict.rule_id)
            new[at] = terms.request(action, verdict, self.redactor, self._clock.now())
        recorded = dict(
            zip(new, self._record_requests(list(new.values()), superseding), strict=True)
        )
        for at, request in recorded.items():
            if request.decision != "deny":
                self.queue.keep_as_asked(request.id, actions[at])
        grants: dict[str, Grant] = {
            one.id: self._grant(one) for one in recorded.values() if one.used_at is not None
        }
        return [recorded[at] if at in recorded else found[at] for at in range(len(actions))], grants

    def decide_by_rules(
        self, action: Action, session_id: str, *, reaching: bool = False
    ) -> Grant | Refused | None:
        """Do `decide` by rules alone. Return None and record nothing where a person would be asked.
        `reaching`: judge name and addresses together (`Rulings.reaching`).
        """
        verdict = (self.rulings.reaching if reaching else self.rulings.verdict)(action, session_id)
        if verdict.decision == "ask":
            return None
        verdict = self._on_record(action, session_id, verdict)
        if verdict.decision == "deny":
            return refused_by(verdict)
        return Grant(
            session_id=session_id,
            bound_to=action,
            request_id=None,
            rule=verdict.rule,
            why=verdict.why,
        )

    def lease(
        self,
        action: Action,
        session_id: str,
        *,
        covers: Callable[[Verdict], bool] = lambda verdict: False,
        is_use: bool = True,
        own: Policy | None = None,
    ) -> Lease | Refused | None:
        """Return a lease for an action within something granted that is still open, the rules'
        denial, or None where a person has to be asked. The verdict is recorded.

        `covers(verdict)`: whether what was granted covers an action that the rules ask about.
        `is_use` False: the action was counted as a use of its rule when it was granted. `own`: the
        rules of an MCP server that it is of (`Rulings.of_server`).
        """
        if own is not None and isinstance(action, Network):
            verdict = self.rulings.of_server(own, action, session_id)
        else:
            verdict = self.rulings.verdict(action, session_id, is_running=not is_use)
        verdict = self._on_record(action, session_id, verdict, is_use=is_use)
        if verdict.decision == "deny":
            return refused_by(verdict)
        if verdict.decision == "ask" and not covers(verdict):
            return None
        return Lease(session_id=session_id, bound_to=action, verdict=verdict)

    def lease_traffic(self, session_id: str) -> Lease | Refused:
        """Return a lease on a portion of a session's traffic or model calls; a refusal while
        everything is stopped and after the session's end. The ledger counts the portion.
        """
        why = self.rulings.why_stopped()
        if why is None and not self.rulings.is_open(session_id):
            why = SESSION_ENDED
        if why is not None:
            return Refused(why=why, remedy="the operator can resume, or start a new session")
        return Lease(
            session_id=session_id,
            bound_to=None,
            verdict=Verdict(decision="allow", why="the session is open", by_policy=False),
        )

    async def decide(
        self,
        action: Action,
        *,
        session_id: str,
        reason: str = "",
        origin: Origin = "agent_api",
        hold_s: float,
    ) -> Grant | Refused:
        """Ask, wait up to `hold_s` seconds for an answer, and claim. For channels that let the
        agent wait.
        """
        at_once = self.decide_by_rules(action, session_id)
        if at_once is None:
            crowded, left_s = await self.repeats.until_room(action, session_id, hold_s)
            # A person's denial of all that waits is on record already.
            if crowded is not None and crowded.decision == "ask":
                record_refusal(self.audit, action, session_id, crowded.why)
            at_once = crowded or self.decide_by_rules(action, session_id)
        if at_once is not None:
            return at_once
        request = self.ask(
            action, session_id=session_id, reason=reason, origin=origin, hold_s=left_s
        )
        if status(request) == "denied":
            return self._refused(request)
        with self.repeats.waited_for(request):
            request = await self.wait(request.id, left_s)
        if status(request) == "pending":
            return unanswered(request, hold_s)
        return self.claim(request.id, session_id)

    async def wait(self, request_id: str, timeout_s: float) -> Request:
        """Return the request once it isn't pending, or when the time runs out. `NotFoundError`
        where there is none.
        """
        # Look, sleep until a fact changes, look again: so a wait that begins late, or anew, misses
        # nothing.
        deadline = self._clock.monotonic() + timeout_s
        while True:
            request = self.queue.get(request_id)
            left_s = deadline - self._clock.monotonic()
            if status(request) != "pending" or left_s <= 0:
                return request
            await self.queue.next_change(request_id, left_s)

    # -- answering: only ever called for the operator, or by the gate itself ----------------------

    def resolve(
        self,
        request_id: str,
        answer: Answer,
        *,
        by: str,
        reason: str = "",
        shown_fingerprint: str | None = None,
        in_part: bool = False,
    ) -> Request:
        """Answer a pending request. `ChangedError` where it is no longer pending, or isn't the
        one that was shown. `in_part`: as in `Request`."""
        request = self.queue.get(request_id)
        if shown_fingerprint is not None and shown_fingerprint != request.fingerprint:
            raise ChangedError.other()
        said = self._said([request_id], answer, reason, in_part=in_part)
        answered = self.answers.now(said, by)
        if not answered:
            raise ChangedError.already(status(self.queue.get(request_id)))
        return answered[0]

    async def resolve_in_turns(
        self, request_ids: Sequence[str], answer: Answer, *, by: str, reason: str = ""
    ) -> list[Request]:
        """Answer the requests that are still pending, a few at a time, so that other sessions don't
        wait long. Return those answered.
        """
        return await self.answers.in_turns(self._said(request_ids, answer, reason), by)

    async def resolve_as_one(
        self,
        request_ids: Sequence[str],
        answer: Answer,
        *,
        by: str,
        reason: str = "",
        sent_back: Mapping[str, str] = NOTHING_SENT_BACK,
    ) -> list[Request]:
        """Answer all in one transaction, and offer approved ones together. `sent_back`: requests
        that are denied in it, id to reason. `ChangedError` where one is no longer pending.
        """
        said = self._said(request_ids, answer, reason)
        for one, why in sent_back.items():
            said += self._said([one], "denied", why)
        return await self.answers.as_one(said, by, all_of_them=True)

    def _said(
        self, request_ids: Iterable[str], answer: Answer, reason: str, *, in_part: bool = False
    ) -> list[Answering]:
        said = self.redactor.said(reason)[:2000]
        return [Answering(one, answer, said, in_part=in_part) for one in request_ids]

    # -- acting -----------------------------------------------------------------------------------

    def claim(self, request_id: str, session_id: str) -> Grant | Refused:
        """Return the grant of an allowed or approved request, once; for any other the refusal."""
        request = self.queue.get(request_id)
        if stopped := self.rulings.why_stopped():
            return Refused(why=stopped, request_id=request_id)
        why = self._why_not(request, session_id)
        return why or self._begin_all([request], resumed=False)[request_id]

    async def claim_together(
        self, request_ids: Sequence[str], session_id: str
    ) -> list[Grant | Refused]:
        """Do `claim` for thousands of requests: one write to the record and one transaction;
        reading, judging and encoding before it yield to the event loop.
        """
        while True:
            policy, requests = self.rulings.policies_of(session_id).current(), list[Request]()
            refused: dict[str, Grant | Refused] = {}
            lines: dict[str, Encoded | None] = {}
            async for part in slices(request_ids, PREPARED):
                for request in self.queue.get_all(part):
                    if why := self._why_not(request, session_id):
                        refused[request.id] = why
                    else:
                        requests.append(request)
                        lines[request.id] = self.audit.encoded(
                            audit_lines.begun(request, resumed=False)
                        )
            # INVARIANT: nothing awaits from here on. What was judged under other rules is judged
            # anew.
            if self.rulings.policies_of(session_id).current() is not policy:
                continue
            if (stopped := self.rulings.why_stopped()) or not self.rulings.is_open(session_id):
                return [
                    Refused(why=stopped or SESSION_ENDED, request_id=one) for one in request_ids
                ]
            found = refused | self._begin_all(requests, resumed=False, lines=lines)
            return [found.get(one) or self._refused(self.queue.get(one)) for one in request_ids]

    def _why_not(self, request: Request, session_id: str) -> Refused | None:
        if status(request) not in ("allowed", "approved") or session_id != request.session_id:
            return self._refused(request)
        # A denial that came after the answer, while the request waited for its turn, holds too.
        verdict = self.rulings.verdict(self.queue.action_of(request), session_id)
        if verdict.decision == "deny":
            self.answers.close(verdict.why, request.id)
            return refused_by(verdict, request.id)
        return None

    def _refused(self, request: Request) -> Refused:
        if status(request) == "used":
            return taken(request)
        remedy = self.repeats.remedy_of(request)
        return Refused(
            why=explanation(request), rule=request.rule, remedy=remedy, request_id=request.id
        )

    def resume_all(
        self, session_id: str, which: Callable[[Request], bool]
    ) -> list[tuple[Request, Grant | Refused]]:
        """Grant again, once, the session's requests that an earlier supervisor began and whose
        outcome it didn't record before it died; `which` selects them. Return each with its grant.

        Only for effects that can tell that they were already done, and so aren't done twice.
        """
        left = [
            request
            for request in self.queue.unsettled()
            if request.session_id == session_id and request.id not in self._begun and which(request)
        ]
        if stopped := self.rulings.why_stopped():
            return [(one, Refused(why=stopped, request_id=one.id)) for one in left]
        grants = self._begin_all(left, resumed=True)
        return [(one, grants[one.id]) for one in left]

    def settle(self, grant: Grant, outcome: Outcome, detail: dict[str, Any]) -> None:
        """Record an effect's outcome. Since it has happened, a failing audit log stops the next
        effect, not this one.
        """
        self.settle_all([(grant, outcome, detail)])

    def settle_all(self, settled: Iterable[tuple[Grant, Outcome, dict[str, Any]]]) -> None:
        """Settle each, in one write to the record and one to the database."""
        redactor, settled = self.redactor, list(settled)
        self.printing.forget(grant.request_id for grant, _, _ in settled)
        facts = [
            (
                grant,
                _outcome_of(self.queue.as_asked(grant.request_id or ""), said, detail, redactor),
            )
            for grant, said, detail in settled
        ]
        self.pending_writes.settle(
            {grant.request_id: fact for grant, fact in facts if grant.request_id is not None}
        )
        try:
            self.audit.record_all(
                [audit_lines.effect_settled(grant, fact) for grant, fact in facts]
            )
        except StorageError as error:
            log.error(
                "effects not recorded",
                error=str(error),
                requests=[grant.request_id for grant, _ in facts],
            )

    # -- inside -----------------------------------------------------------------------------------

    def _begin_all(
        self,
        requests: Sequence[Request],
        *,
        resumed: bool,
        lines: Mapping[str, Encoded | None] = NO_LINES,
    ) -> dict[str, Grant | Refused]:
        """Record that effects begin, then give grants out: a kill between leaves a line, and no
        effect. `lines`: encoded before."""
        try:
            self.audit.record_all(
                [
                    audit_lines.effect_started(
                        lines.get(one.id) or audit_lines.begun(one, resumed=resumed)
                    )
                    for one in requests
                ]
            )
        except StorageError as error:
            return {
                one.id: Refused(why=error.message, remedy=error.remedy, request_id=one.id)
                for one in requests
            }
        made: dict[str, Grant | Refused] = {}
        now = self._clock.now()
        given = {one.id for one in requests}
        if not resumed:
            given = {one.id for one in self.queue.use_all(requests, now)}
        for request in requests:
            if request.id not in given:
                why = "this request was used before"
                made[request.id] = Refused(why=why, remedy="ask again", request_id=request.id)
            else:
                made[request.id] = self._grant(request)
        return made

    def _grant(self, request: Request) -> Grant:
        """The ONE place where a request becomes a Grant: its effect is on record as begun, and
        it as used."""
        self._begun.add(request.id)
        return Grant(
            session_id=request.session_id,
            bound_to=request.fingerprint,
            request_id=request.id,
            rule=request.rule,
            why=explanation(request),
        )

    def _record_requests(self, requests: Sequence[Request], superseding: str) -> list[Request]:
        """Audit first, then the database. Where either fails the requests are denied, and
        nothing was superseded."""
        try:
            self.audit.record_all(
                [
                    *(audit_lines.request_asked(one) for one in requests),
                    *(
                        audit_lines.effect_started(audit_lines.begun(one, resumed=False))
                        for one in requests
                        if one.used_at
                    ),
                ]
            )
            superseded = self.queue.add_all(requests, superseding)
        except StorageError as error:
            denial = {
                "decision": "deny",
                "why": error.message,
                "remedy": error.remedy,
                "used_at": None,
            }
            return [msgspec.structs.replace(request, **denial) for request in requests]
        self.audit.record_all(
            [
                audit_lines.request_superseded(older.id, newer.id, newer.session_id)
                for older, newer in superseded
            ]
        )
        return list(requests)

    def _on_record(
        self, action: Action, session_id: str, verdict: Verdict, *, is_use: bool = True
    ) -> Verdict:
        """The verdict, once it is on record and counted; a denial where that can't be."""
        try:
            self._lines.write(action, verdict, session_id)
        except StorageError as error:
            return Verdict(decision="deny", why=error.message, remedy=error.remedy)
        if verdict.rule_id is not None and is_use:
            self.pending_writes.count(verdict.rule_id)
        return verdict


def _outcome_of(
    action: Action | None, said: Outcome, detail: Mapping[str, Any], redactor: Redactor
) -> dict[str, Any]:
    """Return what came of an effect, without secrets: programs print those of their own command,
    too."""
    known = () if action is None else command_secrets.secrets_in(action)
    texts = {
        name: command_secrets.without(one, known)
        for name, one in detail.items()
        if isinstance(one, str)
    }
    shown = {name: redactor.printed(one) for name, one in texts.items()}
    facts: dict[str, Any] = redactor.data({"ok": said == "done", **detail, **shown})
    return facts
