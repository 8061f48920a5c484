"""Meter model calls: reserve before one goes out, read its usage on the way back.

    requestheaders   is it a call? then its body is held, up to a limit, instead of streamed
    request          its highest cost is asked for: the supervisor reserves it, or the client reads
                     the provider's own error
    responseheaders  the answer streams through unchanged, and is read on the way
    response, error  its usage is reported, whichever side hung up

INVARIANT: a reservation is reported exactly once: at the answer's end, at an error, or when the
client's connection is over; without a count where nobody saw the end. It holds no answer.
"""

from dataclasses import dataclass

from mitmproxy import http

from supervisor.core.models.call_bodies import read_call
from supervisor.core.models.model_calls import NO_BODY, Api, ModelCall, api_of, is_model_host
from supervisor.core.models.model_errors import (
    NO_WEBSOCKET,
    PLAIN_REQUESTS,
    ModelError,
    budget_error,
    plain_requests_only,
)
from supervisor.core.models.usage import Usage, UsageReader
from supervisor.core.network.egress_wire import Answer
from supervisor.core.text.numbers import whole_number
from supervisor.egress.admission.egress_sessions import ClientConnection
from supervisor.egress.admission.questions import Questions, denied
from supervisor.egress.admission.secrets import has_any
from supervisor.egress.loop.refusals import RefusalBody
from supervisor.egress.mitm import exchange, held_bodies
from supervisor.egress.mitm.body_inspection import Inspection, look_at, said_by
from supervisor.egress.mitm.held_bodies import HeldBodies
from supervisor.egress.protocols import checks
from supervisor.egress.protocols.codings import readable_only

# The key in `flow.metadata` of a flow's call.
CALL = "gatehouse_model_call"
# Usage of a call that never went out, or that no origin took.
NOTHING = Usage(has_input=True, has_output=True, failed=True)
_GONE = denied("the client went away", "try again")


@dataclass(eq=False)
class Metered:
    """One call, from its head to its end. `is_paid`: the host is known to serve models, or gets an
    operator's key. `question_id` is that of its request."""

    connection: ClientConnection
    api: Api
    host: str
    is_paid: bool
    question_id: int
    answer: Answer | None = None
    reader: UsageReader | None = None
    look: Inspection | None = None
    reported: bool = False


class Meter:
    """One per process. `model_hosts` are known to be model APIs, besides the public ones."""

    def __init__(
        self, questions: Questions, model_hosts: tuple[str, ...], held_bodies: HeldBodies
    ) -> None:
        self._questions = questions
        self._held_bodies = held_bodies
        self._model_hosts = frozenset(model_hosts)
        self._open: dict[ClientConnection, set[Metered]] = {}

    def is_model_host(self, host: str) -> bool:
        """Return whether a host is known to serve models."""
        return is_model_host(host, self._model_hosts)

    def over_websocket(
        self, flow: http.HTTPFlow, host: str, *, is_upgrade: bool
    ) -> RefusalBody | None:
        """Refuse a WebSocket for model calls, whatever the rules say. Return None for any other
        request."""
        if not is_upgrade or self._api(flow, host, is_upgrade=True) in (None, "unmetered"):
            return None
        exchange.of(flow).model_error = plain_requests_only()
        return RefusalBody(why=NO_WEBSOCKET, remedy=PLAIN_REQUESTS)

    def begin(
        self,
        flow: http.HTTPFlow,
        connection: ClientConnection,
        host: str,
        question_id: int,
        *,
        is_upgrade: bool,
    ) -> None:
        """Hold the body of an allowed request if it may be a call."""
        at_model_host = self.is_model_host(host)
        api = self._api(flow, host, is_upgrade=is_upgrade)
        if api is None:
            return
        # Where an operator's key is put in, an unreadable body also counts as a call: the host may
        # be a gateway.
        is_paid = at_model_host or has_any(
            connection.session.credentials, host, flow.request.data.port
        )
        flow.metadata[CALL] = Metered(connection, api, host, is_paid, question_id)
        self._held_bodies.hold(flow, connection)
        flow.request.headers["accept-encoding"] = readable_only(
            flow.request.headers.get("accept-encoding", "")
        )

    def denial(
        self, flow: http.HTTPFlow, host: str, answer: Answer, *, is_upgrade: bool
    ) -> ModelError | None:
        """Return the provider's own error where a budget denies a request whose head already shows
        a model call."""
        api = self._api(flow, host, is_upgrade=is_upgrade)
        return None if api is None else _refused(flow, api, host, answer)

    def may_be_call(self, flow: http.HTTPFlow) -> bool:
        """Return whether an allowed, complete request may be a call: `reserve` reads it, and
        asks."""
        return CALL in flow.metadata

    async def reserve(self, flow: http.HTTPFlow) -> ModelError | None:
        """Ask for a call's possible cost. Return the response where it mustn't go out. For other
        flows nothing is asked."""
        metered = flow.metadata.get(CALL)
        if not isinstance(metered, Metered):
            return None
        call = await self._call(flow, metered)
        if call is None:
            del flow.metadata[CALL]
            return None
        if exchange.of(
            flow
        ).gave_up:  # while its body was looked at: nobody is asked to raise a budget for it
            return _refused(flow, metered.api, metered.host, _GONE)
        answer = await self._questions.reserve(
            metered.connection, metered.host, call, metered.question_id
        )
        if answer.decision != "allow":
            return _refused(flow, metered.api, metered.host, answer)
        metered.answer = answer
        if metered.connection not in metered.connection.session.connections:
            self._report(metered, NOTHING)  # it left in the very moment of the answer
            return _refused(flow, metered.api, metered.host, _GONE)
        self._open.setdefault(metered.connection, set()).add(metered)
        return None

    def answered(self, flow: http.HTTPFlow) -> None:
        """Read the rest of the answer while it streams through."""
        metered = flow.metadata.get(CALL)
        response = flow.response
        if not isinstance(metered, Metered) or metered.answer is None or response is None:
            return
        headers = response.headers
        counted = (_count(headers, "input"), _count(headers, "output"))
        metered.reader = UsageReader(
            metered.api, response.status_code, headers.get("content-type", ""), counted
        )
        response.stream = True
        metered.look = look_at(exchange.of(flow).down, headers, metered.connection.session)
        metered.look.add(metered.reader.feed)

    def end(self, flow: http.HTTPFlow, *, complete: bool) -> None:
        """Report a call whose answer is over, or never came."""
        metered = flow.metadata.get(CALL)
        if not isinstance(metered, Metered):
            return
        if metered.reader is not None:
            self._report(metered, _end_of(metered, complete=complete))
        elif flow.server_conn.timestamp_tcp_setup is None:
            self._report(metered, NOTHING)
        else:
            self._report(metered, None)

    def client_left(self, connection: ClientConnection) -> None:
        """Report the remaining calls of a client whose connection is over."""
        for metered in list(self._open.get(connection, ())):
            self._report(metered, _end_of(metered, complete=False))

    def _report(self, metered: Metered, usage: Usage | None) -> None:
        if metered.answer is None or metered.reported:
            return
        metered.reported = True
        still = self._open.get(metered.connection, set())
        still.discard(metered)
        if not still:
            self._open.pop(metered.connection, None)
        self._questions.spent(metered.answer, usage)

    def _api(self, flow: http.HTTPFlow, host: str, *, is_upgrade: bool) -> Api | None:
        # Many gateways ignore the method and read any body.
        method = "POST" if _may_have_body(flow) else flow.request.method
        at_model_host = self.is_model_host(host)
        return api_of(method, _path(flow), host, is_upgrade=is_upgrade, at_model_host=at_model_host)

    async def _call(self, flow: http.HTTPFlow, metered: Metered) -> ModelCall | None:
        body = flow.request.raw_content or b""
        if not body and flow.request.method in NO_BODY and "upgrade" not in flow.request.headers:
            return None
        if metered.api == "unmetered":
            return ModelCall(api="unmetered", body_bytes=len(body))
        held = held_bodies.of(flow)
        said = (
            await said_by(flow, metered.connection.session, held.may_hold)
            if held is not None
            else None
        )
        body, is_encoded = (body, True) if said is None else (said, False)
        return read_call(
            metered.api,
            _path(flow),
            body,
            host=metered.host,
            headers=tuple(
                (name.decode("latin-1"), value.decode("latin-1"))
                for name, value in flow.request.headers.fields
            ),
            is_encoded=is_encoded,
            at_model_host=metered.is_paid,
        )


def _may_have_body(flow: http.HTTPFlow) -> bool:
    """Return whether the head allows a body; in HTTP/2 no head has to announce one."""
    is_unsaid = flow.request.is_http2 and "content-length" not in flow.request.headers
    return is_unsaid or checks.says_body(flow.request.headers.fields)


def _path(flow: http.HTTPFlow) -> str:
    return flow.request.data.path.decode("latin-1")


def _refused(flow: http.HTTPFlow, api: Api, host: str, answer: Answer) -> ModelError:
    """Return the provider's own error for a call that isn't sent."""
    return budget_error(
        api, answer.why, answer.remedy, answer.request_id, host=host, path=_path(flow)
    )


def _end_of(metered: Metered, *, complete: bool) -> Usage | None:
    """Return a call's usage as far as its answer reported it, or None where there was no answer."""
    if metered.reader is None or metered.look is None:
        return None
    return metered.reader.end(complete=complete, was_read=not metered.look.why)


def _count(headers: http.Headers, kind: str) -> int | None:
    return whole_number(headers.get(f"x-amzn-bedrock-{kind}-token-count", ""), 11)
