"""Ask the gate about what egress wants to let through.

    a CONNECT, a plain request      decided: a person may be asked; the client is held meanwhile
    the addresses of either         judged by the rules, once the name was looked up
    a request inside of a CONNECT   judged by the rules. Where no rule matches, or only the one that
                                    had the CONNECT asked, the person's answer to the CONNECT covers
                                    it; else decided, and its addresses judged afterwards

Hosts matched only by host rules are tunnelled, a WebSocket is judged at its upgrade only, and a
request may run for hours: each lasts as long as the rules allow it. `reconsider` names those that
they no longer allow.

A failure in here is a denial (law 3).
"""

import asyncio
from collections.abc import Iterator, Mapping

import msgspec

from supervisor.base import log
from supervisor.core.actions import Network
from supervisor.core.network.egress_wire import (
    TELL_OPERATOR,
    Answer,
    CloseConnection,
    Draw,
    Question,
    Reserve,
    Settled,
)
from supervisor.core.network.egress_wire import EgressRefused as RefusedByEgress
from supervisor.core.policy.rules import InForce, Policy, Verdict
from supervisor.core.verdicts import Passing
from supervisor.errors import StorageError
from supervisor.gate import audit_lines
from supervisor.gate.audit_lines import record_refusal
from supervisor.gate.gate import Gate, Grant, Lease, Refused
from supervisor.network.reach import Reach

# Each takes about 0.1 ms.
JUDGED_AT_ONCE = 64
# Methods that change nothing at an origin (RFC 9110, 9.2.1).
_READING = ("GET", "HEAD")
_NOBODY_WAITS = "nobody waited for the answer any more"


class _Approved(msgspec.Struct, frozen=True):
    """A CONNECT that a person approved. `question_id` is the question that ends with the
    connection."""

    host: str
    port: int
    rule: str | None
    question_id: int


class _UnderWay(msgspec.Struct, frozen=True):
    """A connection inside which nothing is asked, or an allowed request, from its verdict until its
    end is reported.

    It is stored as it was allowed, with its addresses once they were judged. `is_told`: it is being
    ended.
    """

    session_id: str
    connection_id: str
    action: Network
    judged: Network
    by_person: bool
    is_told: bool = False


class EgressQuestions:
    """The questions of one egress process, from its start to its end."""

    def __init__(self, gate: Gate, hold_s: float, reaches: Mapping[str, Reach]) -> None:
        """`reaches`: what approved commands may reach, by the id that egress uses for each."""
        self._gate = gate
        self._hold_s = hold_s
        self._reaches = reaches
        self._grants: dict[int, Grant] = {}
        self._approved: dict[str, _Approved] = {}
        self._under_way: dict[int, _UnderWay] = {}
        # By session: the rules in force when all its running traffic was judged last.
        self._judged_by: dict[str, InForce] = {}
        # By a name's question, the only one whose end is reported: the question about its
        # addresses, where a person allowed those.
        self._of_addresses: dict[int, int] = {}

    def by_rules(self, question: Question) -> Answer | None:
        """Answer at once a connection with known addresses if one rule allows both name and
        addresses, as nearly always. Return None where `answer` must be called. Never raises."""
        if question.in_tunnel or question.after is not None or not question.action.resolved:
            return None
        if question.session_id in self._reaches:
            return None
        try:
            grant = self._gate.decide_by_rules(question.action, question.session_id, reaching=True)
            if not isinstance(grant, Grant):
                return None
            named = msgspec.structs.replace(question.action, resolved=())
            # INVARIANT (core.network_rules): a verdict other than deny means that rules name every
            # address that isn't public.
            return self._granted(question, grant, named, question.action, private_ok=True)
        except Exception as error:
            return self._failed(question, error)

    async def answer(self, question: Question) -> Answer:
        """Return the gate's answer where `by_rules` gave none. Raise only if cancelled."""
        try:
            answer = await self._answer(question)
            return (
                answer if answer.decision == "allow" else self._with_what_is_open(answer, question)
            )
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
        if (reach := self._reaches.get(question.session_id)) is not None:
            return self._within(question, reach)
        if question.after is not None:
            return await self._judge_addresses(question, question.after)
        if question.in_tunnel:
            return await self._judge_inside(question)
        if question.action.resolved:
            return await self._decide_with_addresses(question)
        return await self._decide(question, question.action)

    def _within(self, question: Question, reach: Reach) -> Answer:
        """Answer for a command that installs, or for the plan of one: it may read at its hosts, and
        its approval covers what the rules ask about. Deny rules hold."""
        action, session_id = question.action, reach.session_id
        if reach.own is not None:
            return self._of_server(question, reach.own, session_id)
        host = (action.host, action.port)
        is_read = action.method in _READING and not action.has_body
        is_reading = action.operation == "connect" or is_read
        if host not in reach.hosts or not is_reading or question.is_upgrade:
            why = (
                f"an install only reads (GET, HEAD), and this is {action.method or 'an upgrade'}"
                if host in reach.hosts
                else f"an install reaches only what its card names, and {action.host} isn't there"
            )
            record_refusal(self._gate.audit, action, session_id, why)
            return deny(question, why, "ask for what is needed from there by itself")
        lease = self._gate.lease(
            action, session_id, covers=lambda verdict: host in reach.covered, is_use=False
        )
        if lease is None:
            return deny(question, "nothing is asked while an install is planned", "approve it")
        if not isinstance(lease, Lease):
            return _refusal(question, lease)
        why = "a planned or approved install reads at this host"
        return self._leased(question, lease, why, by_person=host in reach.covered)

    def _of_server(self, question: Question, own: Policy, session_id: str) -> Answer:
        """Answer for an operator's MCP server: its own rules allow, and cover what is asked because
        no rule matches. Nobody is asked for it where a rule says so (law 9)."""
        lease = self._gate.lease(
            question.action,
            session_id,
            covers=lambda verdict: verdict.rule is None,
            is_use=False,
            own=own,
        )
        if lease is None:
            why = "a rule asks about this host, and nobody is asked for an MCP server"
            record_refusal(self._gate.audit, question.action, session_id, why)
            return deny(question, why, "the operator can take that rule out, or the server")
        if not isinstance(lease, Lease):
            return _refusal(question, lease)
        return self._leased(question, lease, lease.verdict.why, by_person=True)

    def _leased(self, question: Question, lease: Lease, why: str, *, by_person: bool) -> Answer:
        action = question.action
        lease.use(lease.session_id, action)
        if question.after is not None:
            self._addresses_judged(question.after, action)
        elif action.operation == "request":
            self._goes_on(question, action, action, by_person=by_person)
        # INVARIANT (core.network_rules): a verdict other than deny means that rules name every
        # address that isn't public. A connection is looked into, whatever the rules say: each
        # request in it is judged by its method.
        return Answer(
            question_id=question.question_id,
            decision="allow",
            why=why,
            rule=lease.verdict.rule,
            private_ok=bool(action.resolved),
            settle=question.after is None and action.operation == "request",
        )

    def _with_what_is_open(self, answer: Answer, question: Question) -> Answer:
        """Add to a denial what the agent may do instead."""
        near = self._gate.rulings.open_near(question.action, question.session_id)
        return msgspec.structs.replace(
            answer, remedy="; ".join(filter(None, (near, answer.remedy)))
        )

    def settle(self, *settled: Settled) -> None:
        """Record the outcomes of allowed questions, in one write."""
        ended = [
            (question_id, one)
            for one in settled
            for question_id in self._ending_with(one.question_id)
        ]
        gone = {question_id for question_id, _ in ended}
        for question_id in gone:
            self._under_way.pop(question_id, None)
        for connection_id, approved in list(self._approved.items()):
            if approved.question_id in gone:
                del self._approved[connection_id]
        grants = [(self._grants.pop(question_id, None), one) for question_id, one in ended]
        self._gate.settle_all(
            [(grant, one.outcome, dict(one.detail)) for grant, one in grants if grant is not None]
        )

    def _ending_with(self, question_id: int) -> tuple[int, ...]:
        of_addresses = self._of_addresses.pop(question_id, None)
        return (question_id,) if of_addresses is None else (question_id, of_addresses)

    def refused(self, refused: RefusedByEgress) -> None:
        """Record refusals by egress like verdicts of the rules; equal ones share one line."""
        try:
            self._gate.audit.record_all(
                [
                    audit_lines.refused(
                        refused.action,
                        refused.session_id,
                        refused.why,
                        by="egress",
                        count=refused.count,
                    )
                ]
            )
        except StorageError as error:
            log.error("refusal not recorded", error=str(error))

    def settle_all(self, error: str) -> None:
        """Record unknown outcomes for all open grants, since egress is gone."""
        grants, self._grants = self._grants, {}
        self._approved.clear()
        self._under_way.clear()
        self._of_addresses.clear()
        for grant in grants.values():
            try:
                self._gate.settle(grant, "failed", {"error": error})
            except StorageError as failure:
                log.error("outcome not recorded", error=str(failure))

    def reconsider(self) -> Iterator[list[CloseConnection]]:
        """Yield the messages that end what the rules no longer allow. Never raises. Each step
        judges only as much as takes milliseconds, since a session may have tens of thousands of
        running requests. Sessions with unchanged rules are skipped."""
        by_session: dict[str, list[int]] = {}
        for question_id, one in self._under_way.items():
            by_session.setdefault(one.session_id, []).append(question_id)
        self._judged_by = {
            session_id: found
            for session_id, found in self._judged_by.items()
            if session_id in by_session
        }
        for session_id, question_ids in by_session.items():
            in_force = self._gate.rulings.in_force(self._judged_as(session_id))
            if in_force.is_same(self._judged_by.get(session_id)):
                continue
            for at in range(0, len(question_ids), JUDGED_AT_ONCE):
                yield self._ended(session_id, question_ids[at : at + JUDGED_AT_ONCE])
            self._judged_by[session_id] = (
                in_force  # as it was at first: what changed meanwhile is another one
            )

    def _judged_as(self, session_id: str) -> str:
        """Return the session whose rules judge what egress knows under this id."""
        reach = self._reaches.get(session_id)
        return session_id if reach is None else reach.session_id

    def _ended(self, session_id: str, question_ids: list[int]) -> list[CloseConnection]:
        """Return messages that end a session's open questions which may not continue."""
        still = {
            question_id: found
            for question_id in question_ids
            if (found := self._under_way.get(question_id))
        }
        actions = list(
            {action: None for one in still.values() for action in (one.action, one.judged)}
        )
        judged_as = self._judged_as(session_id)
        reach, rulings = self._reaches.get(session_id), self._gate.rulings
        if reach is not None and reach.own is not None:
            verdicts = [rulings.of_server(reach.own, one, judged_as) for one in actions]
        else:
            verdicts = rulings.verdicts(actions, judged_as, is_running=True)
        said = dict(zip(actions, verdicts, strict=True))
        return [
            self._ending(question_id, why)
            for question_id, one in still.items()
            if (why := self._why_not(one, said[one.action], said[one.judged]))
        ]

    def _ending(self, question_id: int, why: str) -> CloseConnection:
        """Return the message that ends it. If no grant records its end, record the verdict that
        does."""
        found = self._under_way[question_id]
        if not found.is_told:
            self._under_way[question_id] = msgspec.structs.replace(found, is_told=True)
            if question_id not in self._grants:
                of = self._judged_as(found.session_id)
                record_refusal(self._gate.audit, found.action, of, why)
        return CloseConnection(
            session_id=found.session_id,
            connection_id=found.connection_id,
            why=why,
            question_id=None if found.action.operation == "connect" else question_id,
        )

    def _why_not(self, found: _UnderWay, verdict: Verdict, of_addresses: Verdict) -> str | None:
        """Return why something may not continue, or None while it may. Only a denial ends what a
        person approved."""
        if verdict.decision == "deny" or (
            verdict.decision == "ask" and not self._by_person(found, verdict)
        ):
            return f"allowed no longer: {verdict.why}"
        if of_addresses.decision == "deny":
            return f"allowed no longer: {of_addresses.why}"
        is_unread = found.action.operation == "connect"
        looks_inside = (
            is_unread and self._passing(found.action, None, found.session_id).looks_inside
        )
        return "a rule looks into this host now" if looks_inside else None

    def _by_person(self, found: _UnderWay, verdict: Verdict) -> bool:
        """Return whether a person allowed it, or the connection around it."""
        return found.by_person or (
            found.action.operation == "request"
            and self._is_covered(found.connection_id, found.action, verdict)
        )

    def _passing(self, action: Network, rule: str | None, session_id: str) -> Passing:
        try:
            return self._gate.rulings.passing(action.host, rule, session_id)
        except Exception as error:
            log.exception("looking inside failed", error=type(error).__name__)
            return Passing(looks_inside=True, is_limited=True)

    async def _decide(self, question: Question, action: Network) -> Answer:
        """Ask the gate, and a person where the rules say so."""
        session_id = question.session_id
        grant = self._gate.decide_by_rules(action, session_id)
        if grant is None:
            grant = await self._held(
                action, session_id, self._gate.rulings.hold_s(session_id, self._hold_s)
            )
        if isinstance(grant, Refused):
            return _refusal(question, grant)
        return self._granted(question, grant, action, action)

    async def _held(self, action: Network, session_id: str, hold_s: float) -> Grant | Refused:
        """Return the gate's answer to this question. If several wait on one card, an approval lets
        one through; the others keep waiting, on a new card unless a rule matches them by now."""
        now = asyncio.get_running_loop().time
        until = now() + hold_s
        while True:
            grant = await self._gate.decide(
                action, session_id=session_id, origin="egress", hold_s=hold_s
            )
            if isinstance(grant, Grant) or not grant.is_taken:
                return grant
            hold_s = max(0.0, round(until - now(), 1))

    def _granted(
        self,
        question: Question,
        grant: Grant,
        action: Network,
        judged: Network,
        *,
        private_ok: bool = False,
    ) -> Answer:
        """Return the answer that lets an allowed action out. `judged` is the action with the
        addresses that were judged."""
        # After an allow, egress does exactly this: it asked with what it is about to do.
        grant.use(judged)
        self._grants[question.question_id] = grant
        # A rule saved meanwhile may have answered instead of the person. A rule for one path lets a
        # CONNECT be inspected, and must not become an approval of everything inside.
        by_person = (
            grant.request_id is not None
            and self._gate.rulings.verdict(action, question.session_id).decision == "ask"
        )
        if action.operation == "connect" and by_person:
            self._approved[question.connection_id] = _Approved(
                action.host, action.port, grant.rule, question.question_id
            )
        passing = self._passing(action, grant.rule, question.session_id)
        looks_inside = action.operation != "connect" or passing.looks_inside
        if not looks_inside or (action.operation == "request" and question.after is None):
            self._goes_on(question, action, judged, by_person=by_person)
        return Answer(
            question_id=question.question_id,
            decision="allow",
            why=grant.why,
            rule=grant.rule,
            request_id=grant.request_id,
            private_ok=private_ok,
            settle=True,
            look_inside=looks_inside,
            lasts=grant.request_id is None and not passing.is_limited,
        )

    def _goes_on(
        self, question: Question, action: Network, judged: Network, *, by_person: bool
    ) -> None:
        """Note that it is running, until `settle`: every noted question is answered so that its end
        is reported."""
        self._under_way[question.question_id] = _UnderWay(
            question.session_id, question.connection_id, action, judged, by_person
        )

    async def _decide_with_addresses(self, question: Question) -> Answer:
        """Decide where the addresses are known but no rule allows both: first the name, as always,
        then its addresses."""
        named = msgspec.structs.replace(question.action, resolved=())
        allowed = await self._decide(question, named)
        if allowed.decision != "allow":
            return allowed
        granted = self._grants[question.question_id]
        try:
            of_addresses = await self._judge_addresses(question, question.question_id)
        except BaseException:
            # The client went away while a person was asked about the addresses, and will report
            # nothing.
            self.settle(
                Settled(
                    question_id=question.question_id,
                    outcome="failed",
                    detail={"error": _NOBODY_WAITS},
                )
            )
            raise
        if of_addresses.decision != "allow":
            self.settle(
                Settled(
                    question_id=question.question_id,
                    outcome="failed",
                    detail={"error": of_addresses.why},
                )
            )
            return of_addresses
        if self._grants.get(question.question_id) is not granted:
            # A person approved the addresses with a separate grant, which is settled at the end.
            self._gate.settle(granted, "done", {})
        return msgspec.structs.replace(allowed, private_ok=of_addresses.private_ok)

    async def _judge_inside(self, question: Question) -> Answer:
        action = question.action
        lease = self._gate.lease(
            action,
            question.session_id,
            covers=lambda verdict: self._is_covered(question.connection_id, action, verdict),
        )
        if lease is None:
            # The name first, without the addresses: they may differ at the next try, and an
            # approval is bound to the action.
            return await self._decide_with_addresses(question)
        if isinstance(lease, Refused):
            return _refusal(question, lease)
        lease.use(question.session_id, action)
        self._goes_on(question, action, action, by_person=not lease.by_rules)
        why = lease.verdict.why if lease.by_rules else "covered by the approval of its connection"
        # Its end is reported, though there is no grant to settle.
        return Answer(
            question_id=question.question_id,
            decision="allow",
            why=why,
            rule=lease.verdict.rule if lease.by_rules else None,
            settle=True,
        )

    def _is_covered(self, connection_id: str, action: Network, verdict: Verdict) -> bool:
        """Return whether a request needs no question of its own, because a person approved the
        connection around it."""
        approved = self._approved.get(connection_id)
        if approved is None or (approved.host, approved.port) != (action.host, action.port):
            return False
        return not verdict.sticky or (verdict.rule is not None and verdict.rule == approved.rule)

    def _addresses_judged(self, question_id: int, judged: Network) -> None:
        found = self._under_way.get(question_id)
        if found is not None:
            self._under_way[question_id] = msgspec.structs.replace(found, judged=judged)

    async def _judge_addresses(self, question: Question, after: int) -> Answer:
        grant = self._grants.get(after)
        if grant is None or not question.action.resolved:
            return deny(question, "these addresses belong to nothing that was allowed", "ask again")
        # A written ask rule may name the address of a name that a rule allowed. Only then is there
        # something to ask; the grant covers everything else.
        lease = self._gate.lease(
            question.action,
            question.session_id,
            covers=lambda verdict: (
                not verdict.sticky or verdict.rule is None or grant.request_id is not None
            ),
            is_use=False,
        )
        if isinstance(lease, Refused):
            return _refusal(question, lease)
        self._addresses_judged(after, question.action)
        if lease is None:
            decided = await self._decide(question, question.action)
            if decided.decision == "allow" and question.question_id != after:
                self._of_addresses[after] = question.question_id
            return msgspec.structs.replace(decided, private_ok=decided.decision == "allow")
        lease.use(question.session_id, question.action)
        # INVARIANT (core.network_rules): a verdict other than deny means that rules name every
        # address that isn't public.
        return Answer(
            question_id=question.question_id,
            decision="allow",
            why=grant.why,
            rule=lease.verdict.rule,
            private_ok=True,
        )


def deny(question: Question | Reserve | Draw, why: str, remedy: str) -> Answer:
    """Return a denial of our own."""
    return Answer(question_id=question.question_id, decision="deny", why=why, remedy=remedy)


def _refusal(question: Question, refused: Refused) -> Answer:
    return Answer(
        question_id=question.question_id,
        decision="ask_timeout" if refused.decision == "ask" else "deny",
        why=refused.why,
        remedy=refused.remedy,
        rule=refused.rule,
        request_id=refused.request_id,
    )
