"""Take an action to an allow with checked addresses, or to a denial.

It knows nothing of mitmproxy. The order matters. The name is judged first and looked up only once
it is allowed (a look-up already tells its owner something). The rules judge the addresses, which
are then checked here and pinned.
"""

import msgspec

from supervisor.base.clock import Clock
from supervisor.core.actions import Network
from supervisor.core.network.egress_wire import Answer, Outcome
from supervisor.egress.admission.egress_sessions import ClientConnection
from supervisor.egress.admission.portions import Allowances
from supervisor.egress.admission.questions import GONE, Questions, denied
from supervisor.egress.admission.resolver import Resolver
from supervisor.egress.loop import addresses
from supervisor.egress.loop.dialler import Pin
from supervisor.egress.loop.refusals import BROKEN

# How long the addresses of plain HTTP on one connection go without being judged again. In a CONNECT
# each request is.
PIN_S = 30.0
NAMES_PORT = 53
# What is no host name can't be confused with one.
_NAMELESS = Network(operation="connect", host="(no host)", port=0)
UNJUDGED = "what can't be read, or names no host, can't be judged, so it is refused"


class Admission:
    """Admits the process's connections. `forbidden` are Gatehouse's own listeners; `forbid`
    replaces them. `allowances` cover the traffic that goes out.
    """

    def __init__(
        self, questions: Questions, resolver: Resolver, clock: Clock, allowances: Allowances
    ) -> None:
        self.allowances = allowances
        self._questions = questions
        self._resolver = resolver
        self._clock = clock
        self._forbidden: frozenset[tuple[str, int]] = frozenset()

    @property
    def is_busy(self) -> bool:
        """Return whether new connections can't be admitted now."""
        return self._questions.is_busy

    def forbid(self, endpoints: frozenset[tuple[str, int]]) -> None:
        """Set the addresses that are never dialled."""
        self._forbidden = endpoints

    async def admit(
        self,
        connection: ClientConnection,
        action: Network,
        *,
        in_tunnel: bool = False,
        is_upgrade: bool = False,
        headers: tuple[tuple[str, str], ...] = (),
        body_bytes: int = 0,
    ) -> Answer:
        """Return the answer. After an allow the connection has a pinned address for the action's
        host and port, and the budget covers the request.

        `headers` are for the person to see (`checks.shown_headers`); `body_bytes` is as much of
        the body as is known before it comes.
        """
        why = self._never(action)
        if why is not None:
            self.refused(connection, action, why)
            return denied(why, "no rule opens this address")
        pin = connection.pins.get((action.host, action.port))
        is_pinned = in_tunnel or (
            pin is not None and pin.judged_at > self._clock.monotonic() - PIN_S
        )
        # What this session was allowed to look up before is judged in one go.
        known = () if is_pinned else self._resolver.known(connection.session.id, action.host)
        asked = msgspec.structs.replace(action, resolved=known) if known else action
        answer = await self._questions.ask(
            connection, asked, in_tunnel=in_tunnel, is_upgrade=is_upgrade, headers=headers
        )
        if answer.decision != "allow":
            return answer
        try:
            if is_pinned:
                refused = (
                    None if pin is not None else denied("the connection has no checked address")
                )
            elif known:
                refused = self._pin(connection, asked, private_ok=answer.private_ok)
            else:
                refused = await self._look_up(connection, action, answer)
            if refused is None and action.operation == "request":
                # The tunnel counts a connection that nothing looks into.
                refused = await self._cover(connection, body_bytes)
        except BaseException:
            self._questions.settle(answer, "failed", {"error": BROKEN.why})
            raise
        refused = refused or _over(connection, answer)
        if refused is not None:
            self._questions.settle(answer, "failed", {"error": refused.why})
            return refused
        return answer

    def refused(self, connection: ClientConnection, action: Network, why: str) -> None:
        """Report a refusal of our own, for the audit."""
        self._questions.refused(connection.session.id, action, why)

    def refused_nameless(self, connection: ClientConnection) -> None:
        """Report unreadable input or a request without a host, all of a session's as one; nobody
        could be asked about it."""
        self._questions.refused(connection.session.id, _NAMELESS, UNJUDGED)

    def refused_name(self, session_id: str, host: str, why: str) -> None:
        """Report that a session's name server refused a name."""
        self._questions.refused(
            session_id, Network(operation="connect", host=host, port=NAMES_PORT), why
        )

    def ended(
        self,
        connection: ClientConnection,
        question_id: int,
        outcome: Outcome,
        detail: dict[str, str | int | float | None],
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """Report, once, the outcome of an allowed question of this connection; `headers` are the
        response's, to be shown.
        """
        found = connection.unsettled.pop(question_id, None)
        if found is None:
            return
        facts = {
            **detail,
            **connection.moved_for(found)._asdict(),
            "duration_s": round(self._clock.monotonic() - found.started_at, 3),
        }
        if not found.is_all:
            connection.ended = connection.moved()
        if why := found.ended_for or connection.cut_for:
            facts["error"] = why
        self._questions.settle(found.answer, outcome, facts, headers)

    def ended_all(self, connection: ClientConnection) -> None:
        """Report the outcomes that are left: the connection is over."""
        for question_id in list(connection.unsettled):
            self.ended(connection, question_id, "done", {})

    def unreachable(self, connection: ClientConnection, host: str) -> None:
        """Look a host up again next time: none of its addresses answered."""
        self._resolver.forget(connection.session.id, host)

    def _never(self, action: Network) -> str | None:
        """Return why a literal address is never reached, whatever the rules say; None for names."""
        why = addresses.refusal(
            action.host, action.port, private_ok=True, forbidden=self._forbidden
        )
        return None if why == addresses.NOT_AN_ADDRESS else why

    async def _cover(self, connection: ClientConnection, body_bytes: int) -> Answer | None:
        """Use up what a request needs. Return the denial where it isn't covered."""
        refused = await self.allowances.take(connection.session, "requests", 1)
        refused = refused or await self.allowances.cover(
            connection.session, "bytes_out", body_bytes
        )
        refused = refused or connection.over  # what its client sent meanwhile
        return refused or (GONE if self._questions.is_alone else None)

    async def _look_up(
        self, connection: ClientConnection, action: Network, allowed: Answer
    ) -> Answer | None:
        """Look up, judge and pin the addresses of an allowed action. Return the denial where one is
        refused."""
        found = await self._resolver.addresses(connection.session.id, action.host)
        if not found:
            return denied(f"the name `{action.host}` has no address", "check the name")
        judged = msgspec.structs.replace(action, resolved=found)
        answer = await self._questions.ask(connection, judged, after=allowed.question_id)
        return (
            answer
            if answer.decision != "allow"
            else self._pin(connection, judged, private_ok=answer.private_ok)
        )

    def _pin(
        self, connection: ClientConnection, judged: Network, *, private_ok: bool
    ) -> Answer | None:
        """Check and pin judged addresses. Return the denial where one is refused."""
        host, port = judged.host, judged.port
        for address in judged.resolved:
            why = addresses.refusal(address, port, private_ok=private_ok, forbidden=self._forbidden)
            if why is not None:
                self.refused(connection, judged, why)
                return denied(why, "a rule must name the address itself")
        connection.pins[host, port] = Pin(
            host, port, judged.resolved, private_ok, self._clock.monotonic()
        )
        return None


def _over(connection: ClientConnection, allowed: Answer) -> Answer | None:
    """Deny what was allowed where it may no longer begin, or nobody would report its end because
    its client has gone."""
    if connection not in connection.session.connections:
        return denied("the client went away", "try again")
    why = connection.withdrawn.pop(allowed.question_id, None)
    return None if why is None else denied(why)
