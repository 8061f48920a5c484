"""The state of one inspected request and its answer, from head to end.

The layers and the hooks of a flow share here, in one typed place, what may go on and why not. State
that only one module uses stays in that module, under its own key. This module decides nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from mitmproxy import flow as mitm_flow
from mitmproxy import http

from supervisor.core.actions import Network
from supervisor.core.models.model_errors import ModelError
from supervisor.egress.admission.egress_sessions import EgressSession
from supervisor.egress.loop.refusals import RefusalBody
from supervisor.egress.mitm.body_inspection import Direction

_KEY = "gatehouse_exchange"
_NO_VERDICT = RefusalBody()


@dataclass(eq=False, slots=True, repr=False)
class LiveExchange:
    """INVARIANT: without a decision, an exchange is refused: only `guard` ever sets `is_allowed`,
    and only after an explicit allow.

    set by `layers`
        authority       how the client wrote the target, which mitmproxy forgets: read by `guard`
        has_body        whether anything follows its head, by the head or by how it ends: read by
                        `guard`
        in_tunnel       whether it came inside of a CONNECT, or from a client that knows no proxy:
                        read by `guard`
        gave_up         whether its client, or the supervisor, ended it early: read by `guard` and
                        `meter`
    set by `guard`
        is_allowed      whether it may go on; `layers` may withdraw it: read by `layers` before
                        anything is dialled or sent
        action          what was asked about: read by `guard` where it is refused after all
        question_id     the question whose outcome hasn't been reported yet: read by `guard` and
                        `layers`
        early_status    the status of an answer that was over before its request: read by `guard`
                        when the request ends
        session         the session of an allowed exchange: read by `websockets`
        leave           what to call when its client gives it up during a hook: read by `layers`
    set by whoever refuses, for `layers` to answer with
        refusal         why it doesn't go on: set by `guard` and `layers`
        model_error     what a model's caller reads instead: set by `guard` and `meter`
    set by whoever inspects
        must_be_whole   whether its body is inspected before any of it is sent: set by `leaks`,
                        read by `guard`
        is_cut          whether it was cut off half-way: set by `leaks` and `layers`, read by
                        `layers`
        passes          whether a WebSocket's control frame may go on, given whether it is the
                        client's: set by `leaks`, read by `websockets`
        up, down        see `body_inspection.Direction`. Their `look`: set by `leaks` and `meter`,
                        read by `leaks`, `layers` and `websockets`; their room: set by `guard`, read
                        by `layers` and `websockets`
    """

    authority: str = ""
    has_body: bool = False
    in_tunnel: bool = False
    gave_up: bool = False
    is_allowed: bool = False
    action: Network | None = None
    question_id: int | None = None
    early_status: int | None = None
    session: EgressSession | None = None
    leave: Callable[[], None] | None = None
    refusal: RefusalBody = _NO_VERDICT
    model_error: ModelError | None = None
    must_be_whole: bool = False
    is_cut: bool = False
    passes: Callable[[bool, bytes], bool] | None = None
    up: Direction = field(default_factory=Direction)
    down: Direction = field(default_factory=Direction)


def of(flow: mitm_flow.Flow) -> LiveExchange:
    """Return the state of a flow of any kind. A new one allows nothing."""
    found: LiveExchange | None = flow.metadata.get(_KEY)
    if found is None:
        found = flow.metadata[_KEY] = LiveExchange()
    return found


def is_open_ended(request: http.Request) -> bool:
    """Return whether the head leaves the body's length open."""
    return "transfer-encoding" in request.headers or (
        request.is_http2 and "content-length" not in request.headers
    )
