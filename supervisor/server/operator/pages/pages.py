"""What stands on every page: the banner with the kill switch.

`error_bodies` shows errors: a page for a visit, and for htmx the one JSON body, whose text the
page's script shows.
"""

from litestar import Response, get, post
from litestar.params import FromQuery, JSONBody

from supervisor.server.operator import decisions
from supervisor.server.operator.known_ids import KnownId, known_ids
from supervisor.server.operator.live import Banners
from supervisor.server.operator.operator_api import (
    AnyRequest,
    CallBody,
    Text,
    caller,
    live_of,
    parts_of,
)
from supervisor.server.operator.pages import page_frame


class WhyBody(CallBody, frozen=True, kw_only=True):
    """Why it is stopped."""

    reason: Text = ""


@get("/parts/banner", include_in_schema=False, sync_to_thread=False)
def banner_part(request: AnyRequest) -> Response[str]:
    return page_frame.html("parts/banner.html", banners=live_of(request).status())


@get("/api/status", sync_to_thread=False)
def get_status(request: AnyRequest) -> Banners:
    """Return the version and what is wrong: the policy's banner, the kill switch, an audit log that
    can't be written or was changed."""
    return live_of(request).status()


@get("/api/ids", sync_to_thread=False)
def find_ids(request: AnyRequest, start: FromQuery[str]) -> list[KnownId]:
    """Return what has an id that begins so, a few of each kind."""
    return known_ids(parts_of(request), start)


@post("/api/stop-all", status_code=200, response_headers=page_frame.news("banner"))
async def stop_all(request: AnyRequest, data: JSONBody[WhyBody | None] = None) -> Banners:
    """Deny everything from now on, whatever the rules say."""
    try:
        decisions.stop_all(
            parts_of(request), by=caller(request).name, reason=data.reason if data else ""
        )
    finally:
        live_of(request).status_changed()
    return live_of(request).status()


@post("/api/resume", status_code=200, response_headers=page_frame.news("banner"))
async def resume(request: AnyRequest) -> Banners:
    """Return to the rules."""
    decisions.resume(parts_of(request), by=caller(request).name)
    live_of(request).status_changed()
    return live_of(request).status()
