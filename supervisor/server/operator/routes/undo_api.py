"""Routes of undo: the timeline, what an undo would do, and doing it; for the CLI as JSON, for the
session's page as parts.

The operator's alone: the agent's app has none of these. Each handler parses, calls one function
of `undoing` and renders.
"""

from typing import Annotated

from litestar import Response, get, post
from litestar.enums import MediaType
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter, URLEncodedBody
from litestar.types import ControllerRouterHandler

from supervisor.core.files.changes import name_fields
from supervisor.core.files.undoing import Selection
from supervisor.core.text.numbers import whole_number
from supervisor.errors import GatehouseError, NotFoundError, UserError
from supervisor.server.common.views import clock_text
from supervisor.server.operator import undoing
from supervisor.server.operator.routes import page_frame
from supervisor.server.operator.routes.operator_api import AnyRequest, caller, parts_of

TIMELINE_ROWS = 200
_Skip = Annotated[int, QueryParameter(ge=0)]
# Heard by the page: what is shown of requests and of the timeline is fetched anew.
_CHANGED = {"HX-Trigger": "gatehouse:requests"}


@get("/api/sessions/{session_id:str}/timeline")
async def get_timeline(
    request: AnyRequest,
    session_id: FromPath[str],
    limit: Annotated[int, QueryParameter(ge=1, le=1000)] = TIMELINE_ROWS,
    skip: _Skip = 0,
    of: FromQuery[str] = "",
) -> undoing.TimelineView:
    """Return what a session applied to the host and can be taken back, newest first, without the
    `skip` newest. `of`: the id of several that were answered as one, to have these one by one."""
    return await undoing.timeline(parts_of(request), session_id, limit, skip, of)


@post("/api/undo/preview", status_code=200)
async def preview_undo(request: AnyRequest, data: JSONBody[undoing.UndoBody]) -> undoing.UndoView:
    """Return what taking it back would do. Nothing is done."""
    return await undoing.preview(parts_of(request), data)


@post("/api/undo", status_code=200)
async def undo(request: AnyRequest, data: JSONBody[undoing.UndoNowBody]) -> undoing.UndoView:
    """Take it back: all of it as it was shown, or nothing."""
    return await undoing.carry_out(parts_of(request), data, by=caller(request).name)


# -- parts of the session's page ------------------------------------------------------------------


@get("/parts/timeline/{session_id:str}", include_in_schema=False)
async def timeline_part(
    request: AnyRequest, session_id: FromPath[str], skip: _Skip = 0, of: FromQuery[str] = ""
) -> Response[str]:
    """Return what was applied, newest first; a page of it, or of what was answered as one."""
    try:
        found = await undoing.timeline(parts_of(request), session_id, TIMELINE_ROWS, skip, of)
    except NotFoundError as error:
        return page_frame.html(
            "parts/timeline.html", session_id=session_id, timeline=None, gone=str(error)
        )
    rows = [(row, clock_text(row.at)) for row in found.rows]
    values = {
        "session_id": session_id,
        "timeline": found,
        "rows": rows,
        "skip": skip,
        "of": of,
        "gone": "",
    }
    return page_frame.html("parts/timeline.html", **values)


@get("/parts/undo/{session_id:str}", include_in_schema=False)
async def undo_part(
    request: AnyRequest, session_id: FromPath[str], of: FromQuery[str] = "",
    after: FromQuery[str] = "",
    merge: FromQuery[str] = "",
) -> Response[str]:  # fmt: skip
    """Return what an undo would do, and the button that has it done."""
    return await _undo_part(request, session_id, of=of, after=after, merge=merge)


@post("/sessions/{session_id:str}/undo", include_in_schema=False, status_code=200)
async def undo_now(
    request: AnyRequest, session_id: FromPath[str], data: URLEncodedBody[dict[str, str]]
) -> Response[str]:
    """Take back what was shown; an error is shown above what would be done now."""
    of, after, merge = data.get("of", ""), data.get("after", ""), data.get("merge", "")
    selection = _selection(of, after)
    parts = parts_of(request)
    try:
        async with parts.undoing(session_id) as it:
            token = data.get(
                "token", ""
            )  # never None: what was shown must be named, or nothing is done
            plan = await it.carry_out(
                selection, token=token, by=caller(request).name, merge=bool(merge)
            )
    except NotFoundError:
        raise
    except GatehouseError as error:
        return await _undo_part(
            request, session_id, of=of, after=after, merge=merge, error=str(error)
        )
    text = page_frame.html("parts/undone.html", what=plan.what, count=len(plan.effective))
    return Response(text.content, media_type=MediaType.HTML, headers=_CHANGED)


async def _undo_part(
    request: AnyRequest, session_id: str, *, of: str, after: str, merge: str, error: str = ""
) -> Response[str]:
    try:
        plan, files = await undoing.for_page(
            parts_of(request), session_id, _selection(of, after), merge=bool(merge)
        )
    except GatehouseError as failure:
        return page_frame.html("parts/error.html", error=error or str(failure))
    return page_frame.html(
        "parts/undo.html",
        session_id=session_id,
        plan=plan,
        files=[(name_fields(file.name)[0], file, change) for file, change in files],
        hidden=sum(file.doing != "nothing" for file in plan.files) - len(files),
        fields={"of": of, "after": after, "merge": merge, "token": plan.token},
        error=error,
    )


def _selection(of: str, after: str) -> Selection:
    if of:
        return Selection(ids=(of,))
    if not after:
        return Selection()
    number = whole_number(after, 9)
    if number is None:
        raise UserError(f"`{after}` is not on the timeline", "reload the page")
    return Selection(after=number)


def handlers() -> list[ControllerRouterHandler]:
    """Every route of this module."""
    return [get_timeline, preview_undo, undo, timeline_part, undo_part, undo_now]
