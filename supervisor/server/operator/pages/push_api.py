"""Routes of pushes: moved refs, their commits, and changes at the remote.

The operator's alone: the agent's app has none of these. git reads a push from its staging
repository, and it is answered only as a whole.
"""

import asyncio
from collections.abc import Sequence
from itertools import batched
from typing import Any

import msgspec
from litestar import Response, get

from supervisor.core.git.push_card import NamedFile, PushCard, RefMove
from supervisor.core.text.display import visible
from supervisor.errors import GatehouseError
from supervisor.parts import Parts
from supervisor.server.common.views import shown_data
from supervisor.server.operator.change_views import ChangeView, coloured_changes
from supervisor.server.operator.operator_api import AnyRequest, Id, parts_of
from supervisor.server.operator.pages import page_frame
from supervisor.server.operator.shown_changes import FIRST_ROWS

_NAMES_AT_ONCE = 1000
# How many elements of a move's lists are scanned at once.
_PIECES = {
    "commits": 1, "lost": 1, "files": 1, "passing": 1,
    "more_files": _NAMES_AT_ONCE, "more_passing": _NAMES_AT_ONCE,
}  # fmt: skip
_WORDS = {"new": "new", "moved": "moves on", "rewritten": "is rewritten", "deleted": "is deleted"}


@get("/api/requests/{request_id:str}/push")
async def get_push(request: AnyRequest, request_id: Id) -> dict[str, Any]:
    """Return the refs that a push moves, with commits and changed files, and what must not be
    overlooked."""
    parts = parts_of(request)
    card = await parts.pushes.card(parts.queue.get(request_id))
    return await asyncio.to_thread(_told, parts, card)


@get("/parts/push/{request_id:str}", include_in_schema=False)
async def push_part(request: AnyRequest, request_id: Id) -> Response[str]:
    """Return the same as a part of the card."""
    parts = parts_of(request)
    try:
        card = await parts.pushes.card(parts.queue.get(request_id))
    except GatehouseError as error:
        return page_frame.html("parts/push.html", id=request_id, error=str(error))
    files = [
        await coloured_changes(
            parts, request_id, (*move.files, *move.passing), most_rows=FIRST_ROWS
        )
        for move in card.moves
    ]
    return await asyncio.to_thread(_part, parts, request_id, card, files)


def _told(parts: Parts, card: PushCard) -> dict[str, Any]:
    """Return a card as data. Its lists are scanned piece by piece: one search of all the text would
    block everything else."""
    data = msgspec.to_builtins(card)
    lists = [{key: move.pop(key) for key in _PIECES} for move in data["moves"]]
    told: dict[str, Any] = shown_data(data, parts.redactor)
    for move, found in zip(told["moves"], lists, strict=True):
        for key, size in _PIECES.items():
            pieces = batched(found[key], size, strict=False)
            move[key] = [one for some in pieces for one in shown_data(list(some), parts.redactor)]
    return told


def _part(
    parts: Parts, request_id: str, card: PushCard, files: list[list[ChangeView]]
) -> Response[str]:
    told = _told(parts, card)
    moves = [
        data | _files(parts, move, views)
        for data, move, views in zip(told["moves"], card.moves, files, strict=True)
    ]
    return page_frame.html(
        "parts/push.html", id=request_id, words=_WORDS, **told | {"moves": moves}
    )


def _files(parts: Parts, move: RefMove, shown_files: list[ChangeView]) -> dict[str, Any]:
    """Return the files of a move, with their differences in rows."""
    files = shown_files[: len(move.files)]
    return {
        "files": files,
        "passing": shown_files[len(move.files) :],
        "more_file_names": _names(parts, move.more_files),
        "more_passing_names": _names(parts, move.more_passing),
        "added": sum(one.diff.added for one in files),
        "removed": sum(one.diff.removed for one in files),
    }


def _names(parts: Parts, files: Sequence[NamedFile]) -> list[str]:
    """Return a line for each file of which only the name is shown."""
    lines = (
        f"{visible(one.path, one_line=True)}  {one.what}"
        f"{'' if one.was_searched else ', not searched for secrets'}"
        for one in files
    )
    pieces = batched(lines, _NAMES_AT_ONCE, strict=False)
    return [parts.redactor.text("\n".join(some)) for some in pieces]
