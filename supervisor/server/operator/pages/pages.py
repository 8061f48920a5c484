"""What stands on every page: the banner with the kill switch.

`error_bodies` shows errors: a page for a visit, and for htmx the one JSON body, whose text the
page's script shows.
"""

from litestar import Response, get, post

from supervisor.server.operator import decisions
from supervisor.server.operator.operator_api import AnyRequest, caller, live_of, parts_of
from supervisor.server.operator.pages import page_frame


@get("/parts/banner", include_in_schema=False, sync_to_thread=False)
def banner_part(request: AnyRequest) -> Response[str]:
    return page_frame.html("parts/banner.html", **page_frame.banner(parts_of(request)))


@post("/stop-all", include_in_schema=False, status_code=200, sync_to_thread=False)
def stop_all(request: AnyRequest) -> Response[str]:
    """Deny everything from now on (kill switch)."""
    parts = parts_of(request)
    try:
        decisions.stop_all(parts, by=caller(request).name)
    finally:
        live_of(request).status_changed()
    return page_frame.html("parts/banner.html", **page_frame.banner(parts))


@post("/resume", include_in_schema=False, status_code=200, sync_to_thread=False)
def resume(request: AnyRequest) -> Response[str]:
    """Return to the rules."""
    parts = parts_of(request)
    decisions.resume(parts, by=caller(request).name)
    live_of(request).status_changed()
    return page_frame.html("parts/banner.html", **page_frame.banner(parts))
