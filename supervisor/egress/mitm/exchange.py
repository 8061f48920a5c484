"""The state of one inspected request and its answer, from head to end.

The layers and the hooks of a flow share here what may go on, and why not, in one typed place. What
only one module remembers of a flow stays in that module, under a key of its own. It decides
nothing.
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
    """INVARIANT: one that nobody spoke of is refused: only `guard` ever sets `is_allowed`, and
    after an explicit allow only.

    set by `layers`
        authority       how the client wrote the target, which mitmproxy forgets: read by `guard`
        has_body        whether anything follows its head, by what the head says or by how it ends:
                        read by `guard`
        in_tunnel       whether it came inside of a CONNECT, or of a client that knows no proxy:
                        read by `guard`
        gave_up         whether its client ended it before its end, or the supervisor as if it had:
                        read by `guard` and `meter`
    set by `guard`
        is_allowed      whether it may go on; taken back by `layers`, too: read by
                        `layers` before anything is dialled or sent
        action          what was asked about: read by `guard` where it is refused after all
        question_id     the question whose outcome wasn't told yet: read by `guard` and `layers`
        early_status    of an answer that was over before its request: read by `guard` at the end of
                        that
        session         whose it is, once it is allowed: read by `websockets`
        leave           what to call when its client gives it up while a hook looks at it: read by
                        `layers`
    set by those who refuse, for `layers` to answer with
        refusal         why it doesn't go on: set by `guard` and `layers`
        model_error     what a call of a model reads instead: set by `guard` and `meter`
    set by those who look
        must_be_whole   whether its body is looked through before any of it is sent: set by `leaks`,
                        read by `guard`
        is_cut          whether it was cut off half-way: set by `leaks` and `layers`, read by
                        `layers`
        passes          whether a WebSocket's frame beside its messages may go on, by whether it is
                        the client's: set by `leaks`, read by `websockets`
        up, down        see `body_inspection.Direction`. Its look: set by `leaks` and `meter`, read
                        by `leaks`, `layers` and `websockets`; its room: set by `guard`, read by
                        `layers` and `websockets`
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
    """Return the state of a flow of any kind; a new one allows nothing."""
    found: LiveExchange | None = flow.metadata.get(_KEY)
    if found is None:
        found = flow.metadata[_KEY] = LiveExchange()
    return found


def is_open_ended(request: http.Request) -> bool:
    """Return whether nothing says how long the body will be."""
    return "transfer-encoding" in request.headers or (
        request.is_http2 and "content-length" not in request.headers
    )
