"""Take an action to an allow with checked addresses, or to a denial.

It knows nothing of mitmproxy. The order matters. The name is judged first and looked up only once
it is allowed, since a look-up already tells the name's owner something. The rules then judge the
addresses, which are checked here once more and pinned.
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

# How long the addresses of a plain-HTTP connection stay valid before they are judged again. Inside
# a CONNECT, each request is judged.
PIN_S = 30.0
NAMES_PORT = 53
# Contains spaces, so it can't be confused with a host name.
_NAMELESS = Network(operation="connect", host="(no host)", port=0)
UNJUDGED = "what can't be read, or names no host, can't be judged, so it is refused"


class Admission:
    """Admits the process's connections.

    `forbidden` are Gatehouse's own listeners; `forbid` replaces them. `allowances` cover outgoing
    traffic.
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
        """Return whether new connections can't be admitted at the moment."""
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
        """Return the answer. After an allow, the connection has a pinned address for the action's
        host and port, and the budget covers the request.

        `headers` are shown to the operator (`checks.shown_headers`). `body_bytes` is the body's
        length as far as it is known beforehand.
        """
        why = self._never(action)
        if why is not None:
            self.refused(connection, action, why)
            return denied(why, "no rule opens this address")
        pin = connection.pins.get((action.host, action.port))
        is_pinned = in_tunnel or (
            pin is not None and pin.judged_at > self._clock.monotonic() - PIN_S
        )
        # Addresses that this session already looked up are judged together with the name.
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
                # A connection without inspection is counted by its tunnel.
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
        """Report to the audit a refusal that egress made itself."""
        self._questions.refused(connection.session.id, action, why)

    def refused_nameless(self, connection: ClientConnection) -> None:
        """Report unreadable input or a request without a host. All reports of a session are counted
        as one host's; no rule could be asked about them."""
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
        """Report, once, the outcome of an allowed question of this connection. `headers` are the
        response headers to show."""
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
        """Report the remaining outcomes when the connection is over."""
        for question_id in list(connection.unsettled):
            self.ended(connection, question_id, "done", {})

    def unreachable(self, connection: ClientConnection, host: str) -> None:
        """Look the host up again next time, since none of its addresses answered."""
        self._resolver.forget(connection.session.id, host)

    def _never(self, action: Network) -> str | None:
        """Return why a literal address is never reached, whatever the rules say. Return None for
        names."""
        why = addresses.refusal(
            action.host, action.port, private_ok=True, forbidden=self._forbidden
        )
        return None if why == addresses.NOT_AN_ADDRESS else why

    async def _cover(self, connection: ClientConnection, body_bytes: int) -> Answer | None:
        """Use up the budget that a request needs. Return the denial where the budget doesn't cover
        it."""
        refused = await self.allowances.take(connection.session, "requests", 1)
        refused = refused or await self.allowances.cover(
            connection.session, "bytes_out", body_bytes
        )
        refused = refused or connection.over  # what its client sent meanwhile
        return refused or (GONE if self._questions.is_alone else None)

    async def _look_up(
        self, connection: ClientConnection, action: Network, allowed: Answer
    ) -> Answer | None:
        """Look up, judge and pin the addresses of an allowed action. Return the denial if any
        address is refused."""
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
        """Check and pin judged addresses. Return the denial if any address is refused."""
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
    """Deny an allowed action that may no longer begin, because it was withdrawn or its client has
    gone and nobody would report its end."""
    if connection not in connection.session.connections:
        return denied("the client went away", "try again")
    why = connection.withdrawn.pop(allowed.question_id, None)
    return None if why is None else denied(why)
