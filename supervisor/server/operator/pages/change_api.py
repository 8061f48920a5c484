"""Routes of a changed file: its lines, hunks, images, and conflicts with the person's change.

The operator's alone: the agent's app has none of these. Each handler parses, calls the session's
workspace and renders; texts are redacted and made visible here. An image's bytes come from an
agent: it is served as one of four types that its own first bytes name, and nothing else is served.
A conflict has two answers besides yes and no, git's merge and the host's version; both change the
agent's copy, too.
"""

import asyncio
from typing import Annotated, Any, Literal

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from markupsafe import Markup

from supervisor.core.approvals import Request, status
from supervisor.core.files.conflict_card import ConflictCard
from supervisor.core.files.text_diff import TextDiff
from supervisor.errors import GatehouseError, NotFoundError, UserError
from supervisor.parts import Parts
from supervisor.server.common.diff_views import DiffView, colours_of, view_of
from supervisor.server.common.request_views import RequestView, request_view
from supervisor.server.common.views import shown_data
from supervisor.server.operator import change_views
from supervisor.server.operator.decisions import shown_by
from supervisor.server.operator.operator_api import AnyRequest, CallBody, Id, caller, parts_of
from supervisor.server.operator.pages import page_frame
from supervisor.server.operator.pages.page_frame import Form, ids_in
from supervisor.server.operator.pages.request_cards import card_after
from supervisor.server.operator.shown_changes import Seen, must_be_seen, part_from
from supervisor.workspace.apply.partial import Rest
from supervisor.workspace.channel import WorkspaceChannel

MOST_HUNKS = 4000
_IMAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; sandbox",
    "content-disposition": "inline",
}
MOST_ROWS = 200
type How = Literal["merge", "host"]

_TITLES = (
    "Your change on the host",
    "The agent's change",
    "The merge: what approving it changes on the host",
)
_WORDS = {
    "edited": "edited it",
    "created": "made it",
    "deleted": "deleted it",
    "replaced": "put something else there",
}


class PartBody(CallBody, frozen=True, kw_only=True):
    """`fingerprint` is that of the request as it was shown, `hunks` are ids from its card. `rest`:
    whether the others keep waiting (`pending`) or are denied (`drop`). `seen`: as in `AnswerBody`.
    """

    fingerprint: str = ""
    seen: Seen = ""
    hunks: Annotated[list[str], msgspec.Meta(min_length=1, max_length=MOST_HUNKS)]
    rest: Rest = "pending"


class PartView(msgspec.Struct, frozen=True, kw_only=True):
    """`request` is the approved one for the chosen hunks; `rest` is for the others, if it was made
    already: differences in the agent's copy are asked about again a moment later. `taken` of
    `hunks` were chosen."""

    request: RequestView
    rest: RequestView | None
    taken: int
    hunks: int


class GiveHostBody(CallBody, frozen=True, kw_only=True):
    """`fingerprint` is that of the request as it was shown."""

    fingerprint: str = ""


class MergeBody(GiveHostBody, frozen=True, kw_only=True):
    """`merged` is the hash of the merge that was shown."""

    merged: str


@post("/api/requests/{request_id:str}/approve-part", status_code=200)
async def approve_part(request: AnyRequest, request_id: Id, data: JSONBody[PartBody]) -> PartView:
    """Approve some hunks of a file's change and apply them. The rest keeps waiting, or is
    denied."""
    parts = parts_of(request)
    asked = parts.queue.get(request_id)
    workspace = _workspace(parts, asked)
    fingerprint = shown_by(data.fingerprint)
    if status(asked) == "pending" and fingerprint == asked.fingerprint:
        await must_be_seen(parts, asked, data.seen)
    done = await workspace.answer_part(
        request_id, data.hunks, data.rest, by=caller(request).name, fingerprint=fingerprint
    )
    return PartView(
        request=request_view(done.part, parts),
        rest=None if done.rest is None else request_view(done.rest, parts),
        taken=done.taken,
        hunks=done.hunks,
    )


@get("/api/requests/{request_id:str}/image/{side:str}")
async def image(
    request: AnyRequest, request_id: Id, side: FromPath[Literal["old", "new"]]
) -> Response[bytes]:
    """Return an image as it is, or as it would become. Only a PNG, JPEG, GIF or WebP image of
    bounded size is served."""
    parts = parts_of(request)
    asked = parts.queue.get(request_id)
    found = await _workspace(parts, asked).image(asked, side)
    if found is None:
        raise NotFoundError("this image can't be shown", "see the sizes and hashes on the card")
    shown, data = found
    return Response(data, media_type=shown.media_type, headers=_IMAGE_HEADERS)


@get("/parts/change/{request_id:str}", include_in_schema=False)
async def change_part(
    request: AnyRequest, request_id: Id, among: FromQuery[str] = ""
) -> Response[str]:
    """Return a change, up to the end of its first part; `among` many, only its beginning. What is
    `apart` there is answered as a whole."""
    parts = parts_of(request)
    asked = parts.queue.get(request_id)
    may_choose = among != "apart"
    found = await change_views.change(parts, asked, whole=not among, may_choose=may_choose)
    return page_frame.html("parts/change.html", change=found, is_in_set=bool(among))


@get("/parts/change/{request_id:str}/rows", include_in_schema=False)
async def change_rows_part(
    request: AnyRequest,
    request_id: Id,
    start: Annotated[int, QueryParameter(ge=0)],
    among: FromQuery[str] = "",
) -> Response[str]:
    """Return the part of a long change that begins at this row. What is `apart` among many is
    answered as a whole."""
    parts = parts_of(request)
    found = await change_views.further(parts, parts.queue.get(request_id), start)
    if found is None:
        raise NotFoundError("this change has no more lines", "look at the card as it is now")
    return page_frame.html("parts/change_rows.html", change=found, among=among)


@get("/parts/change/{request_id:str}/gap/{number:int}", include_in_schema=False)
async def change_gap_part(
    request: AnyRequest,
    request_id: Id,
    number: FromPath[int],
    start: Annotated[int, QueryParameter(ge=0)] = 0,
) -> Response[str]:
    """Return the unchanged lines above a hunk."""
    parts = parts_of(request)
    found = await change_views.unchanged(parts, parts.queue.get(request_id), number, start)
    return page_frame.html("parts/change_gap.html", gap=found)


@get("/parts/change/{request_id:str}/rendered", include_in_schema=False)
async def change_rendered_part(request: AnyRequest, request_id: Id) -> Response[str]:
    """Return a Markdown file before and after, rendered."""
    parts = parts_of(request)
    found = await change_views.rendered(parts, parts.queue.get(request_id))
    # It comes from the sanitiser: a few tags without attributes.
    sides = [(label, Markup(text) if text is not None else None) for label, text in found]  # noqa: S704
    return page_frame.html("parts/change_rendered.html", sides=sides)


@post("/requests/{request_id:str}/hunks", include_in_schema=False, status_code=200)
async def answer_hunks(request: AnyRequest, request_id: Id, data: Form) -> Response[str]:
    """Approve the ticked hunks. Return the new request's card in place of the answered one; if the
    answer didn't count, the old card with its ticks."""
    parts = parts_of(request)
    asked = parts.queue.get(request_id)
    chosen = ids_in(data.get("hunks", ""))[:MOST_HUNKS]
    rest: Rest = "drop" if data.get("rest") == "drop" else "pending"

    async def answered() -> Request:
        mark = shown_by(data.get("fingerprint", ""))
        done = await _workspace(parts, asked).answer_part(
            request_id, chosen, rest, by=caller(request).name, fingerprint=mark
        )
        return done.part  # it supersedes the request that was shown

    return await card_after(parts, request_id, answered())


def _workspace(parts: Parts, asked: Request) -> WorkspaceChannel:
    workspace = parts.workspace_of(asked.session_id)
    if workspace is None or asked.origin == "egress":
        raise UserError(
            "the session's workspace is not open", "the session has ended, or hasn't begun"
        )
    return workspace


@get("/api/requests/{request_id:str}/conflict")
async def get_conflict(request: AnyRequest, request_id: Id) -> dict[str, Any]:
    """Return each side's changes since they last agreed, and the merge of both where git can make
    one."""
    parts = parts_of(request)
    shown = await _card(parts, request_id)
    data: dict[str, Any] = shown_data(msgspec.to_builtins(shown), parts.redactor)
    return data


@post("/api/requests/{request_id:str}/merge", status_code=200)
async def merge(request: AnyRequest, request_id: Id, data: JSONBody[MergeBody]) -> RequestView:
    """Apply the merge that was shown, on the host and in the agent's copy. Return its request."""
    parts = parts_of(request)
    workspace = _workspace_in_conflict(parts, parts.queue.get(request_id))
    mark = shown_by(data.fingerprint)
    made = await workspace.apply_merge(
        request_id, data.merged, by=caller(request).name, fingerprint=mark
    )
    return request_view(made, parts)


@post("/api/requests/{request_id:str}/give-host", status_code=200)
async def give_host(
    request: AnyRequest, request_id: Id, data: JSONBody[GiveHostBody]
) -> RequestView:
    """Deny the request, and give the host's version to the agent's copy."""
    parts = parts_of(request)
    workspace = _workspace_in_conflict(parts, parts.queue.get(request_id))
    denied = await workspace.give_host(
        request_id, by=caller(request).name, fingerprint=shown_by(data.fingerprint)
    )
    return request_view(denied, parts)


@get("/parts/conflict/{request_id:str}", include_in_schema=False)
async def conflict_part(request: AnyRequest, request_id: Id) -> Response[str]:
    """Return both sides' changes and the merge, with their buttons."""
    parts = parts_of(request)
    try:
        shown = await _card(parts, request_id)
    except GatehouseError as error:
        return page_frame.html("parts/error.html", error=str(error))
    return page_frame.html(
        "parts/conflict.html",
        id=request_id,
        fingerprint=parts.queue.get(request_id).fingerprint,
        conflict=shown,
        why_not=parts.redactor.text(shown.why_not),
        host_did=_WORDS[shown.host_did],
        agent_did=_WORDS[shown.agent_did],
        next=MOST_ROWS,
        sides=[
            (title, side, await _diff(parts, request_id, diff, MOST_ROWS))
            for side, (title, diff) in enumerate(zip(_TITLES, _diffs(shown), strict=True))
        ],
    )


@get("/parts/conflict/{request_id:str}/rows", include_in_schema=False)
async def conflict_rows_part(
    request: AnyRequest,
    request_id: Id,
    side: Annotated[int, QueryParameter(ge=0, le=2)],
    start: Annotated[int, QueryParameter(ge=0)],
) -> Response[str]:
    """Return the part of one of the differences that begins at this row."""
    parts = parts_of(request)
    try:
        conflict = await _card(parts, request_id)
    except GatehouseError as error:
        return page_frame.html("parts/error.html", error=str(error))
    found = _diffs(conflict)[side]
    end = 0 if found is None else part_from(found, start)
    return page_frame.html(
        "parts/conflict_rows.html",
        id=request_id,
        side=side,
        conflict=conflict,
        diff=await _diff(parts, request_id, found, end, start),
        next=end,
    )


@post("/requests/{request_id:str}/conflict/{how:str}", include_in_schema=False, status_code=200)
async def answer_conflict(
    request: AnyRequest, request_id: Id, how: FromPath[How], data: Form
) -> Response[str]:
    """Merge, or give the agent the host's version. Return the cards as they are afterwards."""
    parts = parts_of(request)

    async def answered() -> None:
        workspace = _workspace_in_conflict(parts, parts.queue.get(request_id))
        by, mark = caller(request).name, shown_by(data.get("fingerprint", ""))
        if how == "merge":
            merged = data.get("merged", "")
            await workspace.apply_merge(request_id, merged, by=by, fingerprint=mark)
        else:
            await workspace.give_host(request_id, by=by, fingerprint=mark)

    return await card_after(parts, request_id, answered())


async def _card(parts: Parts, request_id: str) -> ConflictCard:
    asked = parts.queue.get(request_id)
    return await _workspace_in_conflict(parts, asked).conflict_card(asked)


def _workspace_in_conflict(parts: Parts, asked: Request) -> WorkspaceChannel:
    workspace = parts.workspace_of(asked.session_id)
    if workspace is None:
        raise UserError(
            "the session has ended", "its copy stays on the disk; compare the files yourself"
        )
    if "conflict" not in getattr(asked.action, "hazards", ()):
        raise UserError("the host did not change this path", "approve or deny it")
    return workspace


def _diffs(conflict: ConflictCard) -> tuple[TextDiff | None, ...]:
    return conflict.host_diff, conflict.agent_diff, conflict.merged_diff


async def _diff(
    parts: Parts, request_id: str, found: TextDiff | None, most_rows: int, start: int = 0
) -> DiffView | None:
    """Return a difference for the page, its rows from `start` on, or None where there is nothing to
    show."""
    if found is None or not found.hunks:
        return None
    path = getattr(parts.queue.get(request_id).action, "path", "")
    texts = await colours_of(parts.renderer, path, found)
    redact = parts.redactor.text
    return await asyncio.to_thread(view_of, found, redact, texts, most_rows=most_rows, start=start)
