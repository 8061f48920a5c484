"""Routes of one changed file's card: some of its hunks approved, and its images.

The operator's alone: the agent's app has none of these. Each handler
parses, calls one function and renders. An image is bytes of an agent's: it is served as one of
four types that its own first bytes name, and nothing else is served.
"""

from typing import Annotated, Literal

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, JSONBody, URLEncodedBody
from litestar.types import ControllerRouterHandler

from supervisor.core.approvals import Request, status
from supervisor.errors import GatehouseError, NotFoundError, UserError
from supervisor.parts import Parts
from supervisor.server.common.views import OperatorRequest, operator_request
from supervisor.server.operator.decisions import shown_by
from supervisor.server.operator.routes import page_frame
from supervisor.server.operator.routes.operator_api import AnyRequest, Seen, caller, parts_of
from supervisor.server.operator.routes.request_cards import card
from supervisor.server.operator.shown_changes import must_be_seen
from supervisor.workspace.apply.partial import Rest
from supervisor.workspace.channel import WorkspaceChannel

MOST_HUNKS = 4000
_IMAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; sandbox",
    "content-disposition": "inline",
}


class PartBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`fingerprint` is that of the request as it was shown, `hunks` are ids of its card's.
    `rest`: whether the others wait on (`pending`) or are denied (`drop`). `seen`: as in
    `AnswerBody`."""

    fingerprint: str = ""
    seen: Seen = ""
    hunks: Annotated[list[str], msgspec.Meta(min_length=1, max_length=MOST_HUNKS)]
    rest: Rest = "pending"


class PartView(msgspec.Struct, frozen=True, kw_only=True):
    """`request` stands for the chosen hunks and was approved; `rest` for the others, where it
    was made already: what differs in the agent's copy is asked again a moment later. `taken` of
    `hunks` were chosen."""

    request: OperatorRequest
    rest: OperatorRequest | None
    taken: int
    hunks: int


@post("/api/requests/{request_id:str}/approve-part", status_code=200)
async def approve_part(
    request: AnyRequest, request_id: FromPath[str], data: JSONBody[PartBody]
) -> PartView:
    """Approve some hunks of a file's change and apply them. The rest waits on, or is denied."""
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
        request=operator_request(done.part, parts),
        rest=None if done.rest is None else operator_request(done.rest, parts),
        taken=done.taken,
        hunks=done.hunks,
    )


@get("/api/requests/{request_id:str}/image/{side:str}")
async def image(
    request: AnyRequest, request_id: FromPath[str], side: FromPath[Literal["old", "new"]]
) -> Response[bytes]:
    """Return what an image is, or would become. Nothing but a PNG, JPEG, GIF or WebP image of
    bounded size is served."""
    parts = parts_of(request)
    asked = parts.queue.get(request_id)
    found = await _workspace(parts, asked).image(asked, side)
    if found is None:
        raise NotFoundError("this image can't be shown", "see the sizes and hashes on the card")
    shown, data = found
    return Response(data, media_type=shown.media_type, headers=_IMAGE_HEADERS)


# -- part of the page -----------------------------------------------------------------------------


@post("/requests/{request_id:str}/hunks", include_in_schema=False, status_code=200)
async def answer_hunks(
    request: AnyRequest, request_id: FromPath[str], data: URLEncodedBody[dict[str, str]]
) -> Response[str]:
    """Approve what is ticked: the card of what was approved, in the place of the one that was
    answered. Where the answer didn't count that one, with its ticks."""
    parts = parts_of(request)
    asked = parts.queue.get(request_id)
    chosen = [one for one in data.get("hunks", "").split(",")[:MOST_HUNKS] if one]
    rest: Rest = "drop" if data.get("rest") == "drop" else "pending"
    try:
        workspace = _workspace(parts, asked)
        mark = shown_by(data.get("fingerprint", ""))
        done = await workspace.answer_part(
            request_id, chosen, rest, by=caller(request).name, fingerprint=mark
        )
    except NotFoundError:
        raise
    except GatehouseError as error:
        shown = await card(parts, parts.queue.get(request_id)) | {"error": str(error)}
        return page_frame.html("parts/some_cards.html", error, cards=[shown])
    # The part's own card, as every page shows it: the request that was shown is superseded by it.
    shown = await card(parts, done.part) | {"takes_place_of": request_id}
    return page_frame.html("parts/some_cards.html", cards=[shown])


def handlers() -> list[ControllerRouterHandler]:
    """Every route of this module."""
    return [approve_part, image, answer_hunks]


# -- inside ---------------------------------------------------------------------------------------


def _workspace(parts: Parts, asked: Request) -> WorkspaceChannel:
    workspace = parts.workspace_of(asked.session_id)
    if workspace is None or asked.origin == "egress":
        raise UserError(
            "the session's workspace is not open", "the session has ended, or hasn't begun"
        )
    return workspace
