"""The page of requests without a card: repeated denials, and requests waiting for room.

It shows the content of `Gate.repeats`. `decisions` has the two actions: lift a denial, and deny
everything that is held.
"""

from typing import Any

import msgspec
from litestar import Response, get, post

from supervisor.gate.repeats import Quiet
from supervisor.parts import Parts
from supervisor.server.common.request_views import RequestView, request_view
from supervisor.server.common.views import identity_of, view_of
from supervisor.server.operator import decisions
from supervisor.server.operator.operator_api import AnyRequest, Id, caller, parts_of
from supervisor.server.operator.pages import page_frame


class HeldDenied(msgspec.Struct, frozen=True, kw_only=True):
    """How many connections were denied."""

    denied: int


@get("/parts/quiet", include_in_schema=False, sync_to_thread=False)
def quiet_part(request: AnyRequest) -> Response[str]:
    return page_frame.html("parts/quiet.html", quiet=values(parts_of(request)))


@post(
    "/api/sessions/{session_id:str}/held/deny",
    status_code=200,
    response_headers=page_frame.news("quiet"),
)
async def deny_held(request: AnyRequest, session_id: Id) -> HeldDenied:
    """Deny all held connections of a session, including those without a card."""
    parts = parts_of(request)
    session = parts.sessions.get(session_id)
    return HeldDenied(denied=await decisions.deny_held(parts, session.id, by=caller(request).name))


@get("/api/quiet", sync_to_thread=False)
def list_quiet(request: AnyRequest) -> list[Quiet]:
    """Return what the open sessions ask without a card: repeats of denied requests, and requests
    that wait for room in the inbox."""
    return _seen(parts_of(request))


@post(
    "/api/requests/{request_id:str}/lift",
    status_code=200,
    response_headers=page_frame.news("quiet"),
)
async def lift(request: AnyRequest, request_id: Id) -> list[RequestView]:
    """Let a denied request be asked again at once, in any words. Return the denials that no longer
    hold; the requests themselves stay denied."""
    parts = parts_of(request)
    found = decisions.lift_denial(parts, request_id, by=caller(request).name)
    return [request_view(one, parts) for one in found]


def values(parts: Parts) -> list[dict[str, Any]]:
    """Return the rows of `parts/quiet.html`."""
    return [
        {
            "view": one,
            "who": identity_of(parts, parts.sessions.get(one.session_id)),
            "more": one.held_count - len(one.held),
            "all_held": _all_held(parts, one.session_id),
        }
        for one in _seen(parts)
    ]


def _all_held(parts: Parts, session_id: str) -> int:
    """Return how many connections of a session are held, with a card and without."""
    cards = sum(one.origin == "egress" for one in parts.queue.pending(session_id))
    return cards + len(parts.gate.repeats.held_connections(session_id))


def _seen(parts: Parts) -> list[Quiet]:
    """Return the part of it that a person may see."""
    return [view_of(Quiet, one, parts.redactor) for one in parts.gate.repeats.quiet()]
