"""Routes of conflicts: what the person and the agent both changed, git's merge of it, and the two
answers beyond yes and no.

The operator's alone: the agent's app has none of these. Both answers change the agent's
copy, too. Each handler parses, calls the session's workspace and renders; texts are redacted and
made visible here.
"""

from typing import Annotated, Any, Literal

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, JSONBody, QueryParameter, URLEncodedBody
from litestar.types import ControllerRouterHandler

from supervisor.core.approvals import Request
from supervisor.core.files.conflict_card import ConflictCard
from supervisor.core.files.text_diff import TextDiff
from supervisor.errors import GatehouseError, NotFoundError, UserError
from supervisor.parts import Parts
from supervisor.server.common.views import OperatorRequest, operator_request, shown_data
from supervisor.server.operator.change_views import shown_hunks
from supervisor.server.operator.decisions import shown_by
from supervisor.server.operator.routes import page_frame
from supervisor.server.operator.routes.operator_api import AnyRequest, caller, parts_of
from supervisor.server.operator.routes.request_cards import card
from supervisor.server.operator.shown_changes import part_from
from supervisor.workspace.channel import WorkspaceChannel

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


class MergeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`merged` is the hash of the merge that was shown, `fingerprint` that of the request."""

    merged: str
    fingerprint: str = ""


class GiveHostBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`fingerprint` is that of the request as it was shown."""

    fingerprint: str = ""


@get("/api/requests/{request_id:str}/conflict")
async def get_conflict(request: AnyRequest, request_id: FromPath[str]) -> dict[str, Any]:
    """Return what each side did since they last agreed, and the merge of both where git can make
    one."""
    parts = parts_of(request)
    shown = await _card(parts, request_id)
    data: dict[str, Any] = shown_data(msgspec.to_builtins(shown), parts.redactor)
    return data


@post("/api/requests/{request_id:str}/merge", status_code=200)
async def merge(
    request: AnyRequest, request_id: FromPath[str], data: JSONBody[MergeBody]
) -> OperatorRequest:
    """Apply the merge that was shown, on the host and in the agent's copy: the request that
    stands for it."""
    parts = parts_of(request)
    workspace = _workspace(parts, parts.queue.get(request_id))
    mark = shown_by(data.fingerprint)
    made = await workspace.apply_merge(
        request_id, data.merged, by=caller(request).name, fingerprint=mark
    )
    return operator_request(made, parts)


@post("/api/requests/{request_id:str}/give-host", status_code=200)
async def give_host(
    request: AnyRequest, request_id: FromPath[str], data: JSONBody[GiveHostBody]
) -> OperatorRequest:
    """Deny, and give the host's version to the agent's copy."""
    parts = parts_of(request)
    workspace = _workspace(parts, parts.queue.get(request_id))
    denied = await workspace.give_host(
        request_id, by=caller(request).name, fingerprint=shown_by(data.fingerprint)
    )
    return operator_request(denied, parts)


# -- parts of the page ----------------------------------------------------------------------------


@get("/parts/conflict/{request_id:str}", include_in_schema=False)
async def conflict_part(request: AnyRequest, request_id: FromPath[str]) -> Response[str]:
    """Both sides' changes and the merge, with their buttons."""
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
        sides=[
            (title, side, _diff(parts, diff, MOST_ROWS))
            for side, (title, diff) in enumerate(zip(_TITLES, _diffs(shown), strict=True))
        ],
    )


@get("/parts/conflict/{request_id:str}/rows", include_in_schema=False)
async def conflict_rows_part(
    request: AnyRequest,
    request_id: FromPath[str],
    side: Annotated[int, QueryParameter(ge=0, le=2)],
    start: Annotated[int, QueryParameter(ge=0)],
) -> Response[str]:
    """The part of one of the differences that begins at this row."""
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
        diff=_diff(parts, found, end, start),
    )


@post("/requests/{request_id:str}/conflict/{how:str}", include_in_schema=False, status_code=200)
async def answer_conflict(
    request: AnyRequest,
    request_id: FromPath[str],
    how: FromPath[How],
    data: URLEncodedBody[dict[str, str]],
) -> Response[str]:
    """Merge, or give the agent the host's version: the cards as they are afterwards."""
    parts = parts_of(request)
    by = caller(request).name
    asked = parts.queue.get(request_id)
    try:
        workspace, fingerprint = _workspace(parts, asked), shown_by(data.get("fingerprint", ""))
        if how == "merge":
            await workspace.apply_merge(
                request_id, data.get("merged", ""), by=by, fingerprint=fingerprint
            )
        else:
            await workspace.give_host(request_id, by=by, fingerprint=fingerprint)
    except NotFoundError:
        raise
    except GatehouseError as error:
        shown = await card(parts, parts.queue.get(request_id)) | {"error": str(error)}
        return page_frame.html("parts/some_cards.html", error, cards=[shown])
    return page_frame.html(
        "parts/some_cards.html", cards=[await card(parts, parts.queue.get(request_id))]
    )


def handlers() -> list[ControllerRouterHandler]:
    """Every route of this module."""
    return [get_conflict, merge, give_host, conflict_part, conflict_rows_part, answer_conflict]


# -- inside ---------------------------------------------------------------------------------------


async def _card(parts: Parts, request_id: str) -> ConflictCard:
    asked = parts.queue.get(request_id)
    return await _workspace(parts, asked).conflict_card(asked)


def _workspace(parts: Parts, asked: Request) -> WorkspaceChannel:
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


def _diff(
    parts: Parts, found: TextDiff | None, most_rows: int, start: int = 0
) -> dict[str, Any] | None:
    """A difference for the page, its rows from `start` on; None where there is nothing to show."""
    if found is None or not found.hunks:
        return None
    hunks, hidden = shown_hunks(parts, found, most_rows=most_rows, start=start)
    facts = {"added": found.added, "removed": found.removed, "next": most_rows}
    return facts | {"hunks": hunks, "hidden": hidden}
