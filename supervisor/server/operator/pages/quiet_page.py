"""The page of requests without a card: repeated denials, and requests waiting for room.

It shows the content of `Gate.repeats`. `decisions` has the two actions: lift a denial, and deny
everything that is held.
"""

from typing import Any

from litestar import Response, get, post
from litestar.params import FromPath

from supervisor.errors import GatehouseError
from supervisor.gate.repeats import Denied, Quiet
from supervisor.parts import Parts
from supervisor.server.common.request_views import RequestView, request_view
from supervisor.server.common.views import clock_text, identity_of, shown
from supervisor.server.operator import decisions
from supervisor.server.operator.operator_api import AnyRequest, HeldDenied, caller, parts_of
from supervisor.server.operator.pages import page_frame


@get("/parts/quiet", include_in_schema=False, sync_to_thread=False)
def quiet_part(request: AnyRequest) -> Response[str]:
    return _part(parts_of(request))


@post(
    "/requests/{request_id:str}/lift",
    include_in_schema=False,
    status_code=200,
    sync_to_thread=False,
)
def lift_from_page(request: AnyRequest, request_id: FromPath[str]) -> Response[str]:
    """Lift a denial. Return the list as it is afterwards; a refusal is shown above it."""
    parts = parts_of(request)
    try:
        decisions.lift_denial(parts, request_id, by=caller(request).name)
    except GatehouseError as error:
        return _part(parts, str(error))
    return _part(parts)


@post("/sessions/{session_id:str}/held/deny", include_in_schema=False, status_code=200)
async def deny_held_from_page(request: AnyRequest, session_id: FromPath[str]) -> Response[str]:
    """Deny everything that is held. Return the list as it is afterwards; above it, why nothing was
    denied. The cards follow by themselves."""
    parts = parts_of(request)
    session = parts.sessions.get(session_id)
    try:
        await decisions.deny_held(parts, session.id, by=caller(request).name)
    except GatehouseError as error:
        return _part(parts, str(error))
    return _part(parts)


@post("/api/sessions/{session_id:str}/held/deny", status_code=200)
async def deny_held(request: AnyRequest, session_id: FromPath[str]) -> HeldDenied:
    """Deny all held connections of a session, including those without a card."""
    parts = parts_of(request)
    session = parts.sessions.get(session_id)
    return HeldDenied(denied=await decisions.deny_held(parts, session.id, by=caller(request).name))


@get("/api/quiet", sync_to_thread=False)
def list_quiet(request: AnyRequest) -> list[Quiet]:
    """Return what the open sessions ask without a card: repeats of denied requests, and requests
    that wait for room in the inbox."""
    return seen(parts_of(request))


@post("/api/requests/{request_id:str}/lift", status_code=200, sync_to_thread=False)
def lift(request: AnyRequest, request_id: FromPath[str]) -> list[RequestView]:
    """Let a denied request be asked again at once, in any words. Return the denials that no longer
    hold; the requests themselves stay denied."""
    parts = parts_of(request)
    found = decisions.lift_denial(parts, request_id, by=caller(request).name)
    return [request_view(one, parts) for one in found]


def values(parts: Parts, error: str = "") -> dict[str, Any]:
    """Return the values of `parts/quiet.html`."""
    return {
        "error": error,
        "quiet": [
            {
                "view": one,
                "who": identity_of(parts, parts.sessions.get(one.session_id)),
                "until": {
                    denied.request_id: clock_text(denied.until or 0) for denied in one.denied
                },
                "more": one.held_count - len(one.held),
                "all_held": _all_held(parts, one.session_id),
            }
            for one in seen(parts)
        ],
    }


def _all_held(parts: Parts, session_id: str) -> int:
    """Return how many connections of a session are held, with a card and without."""
    cards = sum(one.origin == "egress" for one in parts.queue.pending(session_id))
    return cards + len(parts.gate.repeats.held_connections(session_id))


def seen(parts: Parts) -> list[Quiet]:
    """Return the part of it that a person may see."""
    return [_shown(one, parts) for one in parts.gate.repeats.quiet()]


def _shown(one: Quiet, parts: Parts) -> Quiet:
    denied = tuple(_denied(each, parts) for each in one.denied)
    held = tuple(shown(title, parts.redactor) for title in one.held)
    return Quiet(session_id=one.session_id, denied=denied, held=held, held_count=one.held_count)


def _denied(one: Denied, parts: Parts) -> Denied:
    return Denied(
        request_id=one.request_id,
        title=shown(one.title, parts.redactor),
        denied_at=one.denied_at,
        asked_again=one.asked_again,
        until=one.until,
    )


def _part(parts: Parts, error: str = "") -> Response[str]:
    return page_frame.html("parts/quiet.html", **values(parts, error))
