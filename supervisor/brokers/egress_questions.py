"""How the gate is asked about what egress wants to let through.

    a CONNECT, a plain request      decided: a person may be asked, and the client is held meanwhile
    the addresses of either         judged by the rules, once the name was looked up
    a request inside of a CONNECT   judged by the rules; where none speaks, or only the one that had the CONNECT asked,
                                    the person's answer to the CONNECT covers it

A connection to a host that only host rules speak of is passed on unread, and of a WebSocket only the upgrade is judged. Since nothing
inside of either is ever asked about, it lasts as long as the rules allow it: `reconsider` names those that they don't any more.

It is separate from `network` because it knows nothing of processes and sockets. Whatever fails in here is a denial (law 3).
"""

import asyncio

import msgspec
import structlog

from supervisor.core import url_secrets
from supervisor.core.actions import Network, fingerprint
from supervisor.core.egress_wire import TELL_OPERATOR, Answer, CloseConnection, Draw, Question, Reserve, Settled
from supervisor.core.egress_wire import Refused as RefusedByEgress
from supervisor.core.rules import Verdict
from supervisor.core.verdicts import Passing
from supervisor.errors import StorageError
from supervisor.gate import Gate, Grant, Refused

log = structlog.get_logger("network")

_NOBODY_WAITS = "nobody waited for the answer any more"


class _Approved(msgspec.Struct, frozen=True):
    """A CONNECT that a person approved. `question_id` is the one whose end is the connection's."""

    host: str
    port: int
    rule: str | None
    question_id: int


class _Tunnel(msgspec.Struct, frozen=True):
    """A connection in which nothing is asked, or the request that made one a WebSocket.

    As it was allowed, and with the addresses that it goes to once they were judged.
    """

    session_id: str
    connection_id: str
    action: Network
    judged: Network
    by_person: bool


class EgressQuestions:
    """The questions of one egress process, from its start to its end."""

    def __init__(self, gate: Gate, hold_s: float) -> None:
        self._gate = gate
        self._hold_s = hold_s
        self._grants: dict[int, Grant] = {}
        self._approved: dict[str, _Approved] = {}
        self._tunnels: dict[int, _Tunnel] = {}
        # By the question of a name, which alone is reported as ended: that of its addresses, where a person allowed these.
        self._of_addresses: dict[int, int] = {}

    def by_rules(self, question: Question) -> Answer | None:
        """The answer to a connection whose addresses are known, where one rule allows it and them: at once, since that is nearly every one.

        None where it is for `answer` to say. Never raises.
        """
        if question.in_tunnel or question.after is not None or not question.action.resolved:
            return None
        try:
            grant = self._gate.decide_by_rules(question.action, question.session_id, reaching=True)
            if not isinstance(grant, Grant):
                return None
            named = msgspec.structs.replace(question.action, resolved=())
            # INVARIANT (core.network_rules): a verdict other than deny means that rules name every address that isn't public.
            answer = self._granted(question, grant, named, question.action, private_ok=True)
            return self._watched(answer, question) if question.is_upgrade else answer
        except Exception as error:
            return self._failed(question, error)

    async def answer(self, question: Question) -> Answer:
        """The gate's answer to what `by_rules` said nothing of. Never raises but when it is cancelled."""
        try:
            answer = await self._answer(question)
            if answer.decision == "allow":
                return self._watched(answer, question) if question.is_upgrade else answer
            return self._with_what_is_open(answer, question)
        except Exception as error:
            return self._failed(question, error)

    def _failed(self, question: Question, error: Exception) -> Answer:
        log.exception("question failed", error=type(error).__name__)
        return deny(
            question,
            "the gate failed while it looked at this",
            TELL_OPERATOR,
        )

    async def _answer(self, question: Question) -> Answer:
        if question.after is not None:
            return await self._judge_addresses(question, question.after)
        if question.in_tunnel:
            return await self._judge_inside(question)
        if question.action.resolved:
            return await self._decide_with_addresses(question)
        return await self._decide(question, question.action)

    def _watched(self, answer: Answer, question: Question) -> Answer:
        """An allowed upgrade is remembered until its connection ends, so that end has to be reported."""
        by_person = self._gate.rulings.verdict(question.action, question.session_id).decision == "ask"
        self._tunnels[question.question_id] = _Tunnel(
            question.session_id, question.connection_id, question.action, question.action, by_person
        )
        return msgspec.structs.replace(answer, settle=True)

    def _with_what_is_open(self, answer: Answer, question: Question) -> Answer:
        """A denial says what the agent may do instead."""
        near = self._gate.rulings.open_near(question.action, question.session_id)
        return msgspec.structs.replace(answer, remedy="; ".join(filter(None, (near, answer.remedy))))

    def settle(self, *settled: Settled) -> None:
        """Record what came of allowed questions, in one write."""
        ended = [(question_id, one) for one in settled for question_id in self._ending_with(one.question_id)]
        gone = {question_id for question_id, _ in ended}
        for question_id in gone:
            self._tunnels.pop(question_id, None)
        for connection_id, approved in list(self._approved.items()):
            if approved.question_id in gone:
                del self._approved[connection_id]
        grants = [(self._grants.pop(question_id, None), one) for question_id, one in ended]
        self._gate.settle_all([(grant, one.outcome, dict(one.detail)) for grant, one in grants if grant is not None])

    def _ending_with(self, question_id: int) -> tuple[int, ...]:
        of_addresses = self._of_addresses.pop(question_id, None)
        return (question_id,) if of_addresses is None else (question_id, of_addresses)

    def refused(self, refused: RefusedByEgress) -> None:
        """Put what egress refused by itself on record, like a verdict of the rules: so many that are alike in one line."""
        try:
            self._gate.audit.record(
                "verdict_given",
                session=refused.session_id,
                category="network",
                action=msgspec.to_builtins(url_secrets.hidden(refused.action)),
                fingerprint=fingerprint(refused.action),
                verdict="deny",
                rule=None,
                why=refused.why,
                by="egress",
                **({"count": refused.count} if refused.count > 1 else {}),
            )
        except StorageError as error:
            log.error("refusal not recorded", error=str(error))

    def settle_all(self, error: str) -> None:
        """Egress is gone: what came of its open grants isn't known."""
        grants, self._grants = self._grants, {}
        self._approved.clear()
        self._tunnels.clear()
        self._of_addresses.clear()
        for grant in grants.values():
            try:
                self._gate.settle(grant, "failed", {"error": error})
            except StorageError as failure:
                log.error("outcome not recorded", error=str(failure))

    def reconsider(self) -> list[CloseConnection]:
        """What to end: connections in which nothing is asked, and that the rules don't allow so any more. Never raises."""
        return [
            CloseConnection(session_id=tunnel.session_id, connection_id=tunnel.connection_id, why=why)
            for tunnel in self._tunnels.values()
            if (why := self._why_not(tunnel)) is not None
        ]

    def _why_not(self, tunnel: _Tunnel) -> str | None:
        """Why a connection may not go on; None while it may. What a person approved, only a denial ends."""
        rulings = self._gate.rulings
        verdict = rulings.verdict(tunnel.action, tunnel.session_id, is_running=True)
        if verdict.decision == "deny" or (verdict.decision == "ask" and not tunnel.by_person):
            return f"allowed no longer: {verdict.why}"
        of_addresses = rulings.verdict(tunnel.judged, tunnel.session_id, is_running=True)
        if of_addresses.decision == "deny":
            return f"allowed no longer: {of_addresses.why}"
        is_unread = tunnel.action.operation == "connect"
        looks_inside = is_unread and self._passing(tunnel.action, None, tunnel.session_id).looks_inside
        return "a rule looks into this host now" if looks_inside else None

    def _passing(self, action: Network, rule: str | None, session_id: str) -> Passing:
        try:
            return self._gate.rulings.passing(action.host, rule, session_id)
        except Exception as error:
            log.exception("looking inside failed", error=type(error).__name__)
            return Passing(looks_inside=True, is_limited=True)

    async def _decide(self, question: Question, action: Network) -> Answer:
        """By the gate, with a person where the rules ask for one."""
        session_id = question.session_id
        grant = self._gate.decide_by_rules(action, session_id)
        if grant is None:
            grant = await self._held(action, session_id, self._gate.rulings.hold_s(session_id, self._hold_s))
        if isinstance(grant, Refused):
            return Answer(
                question_id=question.question_id,
                decision="ask_timeout" if grant.decision == "ask" else "deny",
                why=grant.why,
                remedy=grant.remedy,
                rule=grant.rule,
                request_id=grant.request_id,
            )
        return self._granted(question, grant, action, action)

    async def _held(self, action: Network, session_id: str, hold_s: float) -> Grant | Refused:
        """The gate's answer to this one. Of several that wait on one card an approval lets one through: the others are held on, on a new
        card unless a rule speaks for them by now."""
        now = asyncio.get_running_loop().time
        until = now() + hold_s
        while True:
            grant = await self._gate.decide(action, session_id=session_id, origin="egress", hold_s=hold_s)
            if isinstance(grant, Grant) or not grant.is_taken:
                return grant
            hold_s = max(0.0, round(until - now(), 1))

    def _granted(
        self, question: Question, grant: Grant, action: Network, judged: Network, *, private_ok: bool = False
    ) -> Answer:
        """What was allowed may go out: `judged` is the action with as much of its addresses as was judged."""
        # What egress does when it is allowed is exactly this: it asked with what it is about to do.
        grant.use(judged)
        self._grants[question.question_id] = grant
        # A rule that was saved meanwhile may have answered instead of the person: a rule for one path lets a CONNECT be looked
        # into, and must not become an approval of everything inside.
        by_person = (
            grant.request_id is not None and self._gate.rulings.verdict(action, question.session_id).decision == "ask"
        )
        if action.operation == "connect" and by_person:
            self._approved[question.connection_id] = _Approved(
                action.host, action.port, grant.rule, question.question_id
            )
        passing = self._passing(action, grant.rule, question.session_id)
        looks_inside = action.operation != "connect" or passing.looks_inside
        if not looks_inside:
            self._tunnels[question.question_id] = _Tunnel(
                question.session_id, question.connection_id, action, judged, grant.request_id is not None
            )
        by_rules = grant.request_id is None
        return Answer(
            question_id=question.question_id,
            decision="allow",
            why=grant.why,
            rule=grant.rule,
            request_id=grant.request_id,
            private_ok=private_ok,
            settle=True,
            look_inside=looks_inside,
            lasts=by_rules and not passing.is_limited,
        )

    async def _decide_with_addresses(self, question: Question) -> Answer:
        """Both, where the addresses are known already and no rule allows both: the name, as ever, and then its addresses."""
        named = msgspec.structs.replace(question.action, resolved=())
        allowed = await self._decide(question, named)
        if allowed.decision != "allow":
            return allowed
        granted = self._grants[question.question_id]
        try:
            of_addresses = await self._judge_addresses(question, question.question_id)
        except BaseException:
            # Whoever asked went away while a person was asked about the addresses, and will report nothing.
            self.settle(Settled(question_id=question.question_id, outcome="failed", detail={"error": _NOBODY_WAITS}))
            raise
        if of_addresses.decision != "allow":
            self.settle(Settled(question_id=question.question_id, outcome="failed", detail={"error": of_addresses.why}))
            return of_addresses
        if self._grants.get(question.question_id) is not granted:
            # A person approved the addresses by a grant of their own, which is settled at the end.
            self._gate.settle(granted, "done", {})
        return msgspec.structs.replace(allowed, private_ok=of_addresses.private_ok)

    async def _judge_inside(self, question: Question) -> Answer:
        action = question.action
        verdict = self._gate.judge(action, question.session_id)
        if verdict.decision != "ask":
            return _of_verdict(question, verdict)
        approved = self._approved.get(question.connection_id)
        if approved is not None and (approved.host, approved.port) == (action.host, action.port):
            same_rule = verdict.rule is not None and verdict.rule == approved.rule
            if same_rule or not verdict.sticky:
                return Answer(
                    question_id=question.question_id, decision="allow", why="covered by the approval of its connection"
                )
        # Without the addresses: they may differ at the next try, and an approval is bound to the action.
        return await self._decide(question, msgspec.structs.replace(action, resolved=()))

    async def _judge_addresses(self, question: Question, after: int) -> Answer:
        grant = self._grants.get(after)
        if grant is None or not question.action.resolved:
            return deny(question, "these addresses belong to nothing that was allowed", "ask again")
        verdict = self._gate.judge(question.action, question.session_id, is_running=True)
        if verdict.decision == "deny":
            return _of_verdict(question, verdict)
        if after in self._tunnels:
            self._tunnels[after] = msgspec.structs.replace(self._tunnels[after], judged=question.action)
        if verdict.decision == "ask" and verdict.sticky and verdict.rule is not None and grant.request_id is None:
            # A written ask rule names the address of a name that a rule allowed: only now is there something to ask.
            decided = await self._decide(question, question.action)
            if decided.decision == "allow" and question.question_id != after:
                self._of_addresses[after] = question.question_id
            return msgspec.structs.replace(decided, private_ok=decided.decision == "allow")
        # INVARIANT (core.network_rules): a verdict other than deny means that rules name every address that isn't public.
        return Answer(
            question_id=question.question_id, decision="allow", why=grant.why, rule=verdict.rule, private_ok=True
        )


def deny(question: Question | Reserve | Draw, why: str, remedy: str) -> Answer:
    """A denial of our own."""
    return Answer(question_id=question.question_id, decision="deny", why=why, remedy=remedy)


def _of_verdict(question: Question, verdict: Verdict) -> Answer:
    """An allow or a denial by rules."""
    return Answer(
        question_id=question.question_id,
        decision="allow" if verdict.decision == "allow" else "deny",
        why=verdict.why,
        remedy=verdict.remedy,
        rule=verdict.rule,
    )
