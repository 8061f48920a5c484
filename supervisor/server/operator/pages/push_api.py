"""Routes of pushes: which refs would move, with which commits, and what they change at the remote.

The operator's alone: the agent's app has none of these. It is apart from `change_api` because a
push is read out of its staging repository by git, and answered only as a whole.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from litestar import Response, get
from litestar.params import FromPath
from litestar.types import ControllerRouterHandler

from supervisor.core.git.push_card import Commit, NamedFile, RefMove
from supervisor.core.text.display import visible
from supervisor.errors import GatehouseError
from supervisor.server.common.parts import Parts
from supervisor.server.common.time_words import clock_text
from supervisor.server.common.views import shown, shown_data
from supervisor.server.operator.change_views import shown_change
from supervisor.server.operator.operator_api import AnyRequest, parts_of
from supervisor.server.operator.pages import page_values
from supervisor.server.operator.shown_changes import FIRST_ROWS

_WORDS = {"new": "new", "moved": "moves on", "rewritten": "is rewritten", "deleted": "is deleted"}


@get("/api/requests/{request_id:str}/push")
async def get_push(request: AnyRequest, request_id: FromPath[str]) -> dict[str, Any]:
    """Return the refs that a push moves, with commits and changed files, and what must not be
    overlooked."""
    parts = parts_of(request)
    card = await parts.pushes.card(parts.queue.get(request_id))
    data: dict[str, Any] = shown_data(msgspec.to_builtins(card), parts.redactor)
    return data


@get("/parts/push/{request_id:str}", include_in_schema=False)
async def push_part(request: AnyRequest, request_id: FromPath[str]) -> Response[str]:
    """The same as a part of the card."""
    parts = parts_of(request)
    try:
        card = await parts.pushes.card(parts.queue.get(request_id))
    except GatehouseError as error:
        return page_values.html("parts/push.html", id=request_id, error=str(error))
    return page_values.html(
        "parts/push.html",
        id=request_id,
        url=shown(card.url, parts.redactor),
        flags=[(name, parts.redactor.text(note)) for name, note in card.flags],
        moves=[_move(parts, request_id, one) for one in card.moves],
    )


def handlers() -> list[ControllerRouterHandler]:
    """Every route of this module."""
    return [get_push, push_part]


def _move(parts: Parts, request_id: str, move: RefMove) -> dict[str, Any]:
    shown_files = [
        shown_change(parts, f"{request_id}-{at}", one, most_rows=FIRST_ROWS)
        for at, one in enumerate((*move.files, *move.passing))
    ]
    files = shown_files[: len(move.files)]
    return {
        "ref": parts.redactor.text(move.ref.removeprefix("refs/heads/")),
        "word": _WORDS[move.how],
        "old": move.old[:12],
        "new": move.new[:12],
        "commits": [_commit(parts, one) for one in move.commits],
        "more_commits": move.commit_count - len(move.commits),
        "files": files,
        "more_files": _names(parts, move.more_files),
        "passing": shown_files[len(move.files) :],
        "more_passing": _names(parts, move.more_passing),
        "tag": shown(move.tag, parts.redactor),
        "added": sum(one["added"] for one in files),
        "removed": sum(one["removed"] for one in files),
    }


def _names(parts: Parts, files: Sequence[NamedFile]) -> list[str]:
    """Return a line for each file that only its name is shown of."""
    lines = (
        f"{visible(one.path, one_line=True)}  {one.what}"
        f"{'' if one.was_searched else ', not searched for secrets'}"
        for one in files
    )
    return parts.redactor.text("\n".join(lines)).splitlines()


def _commit(parts: Parts, one: Commit) -> dict[str, Any]:
    redact = parts.redactor.text
    return {
        "id": one.id[:12],
        "author": redact(f"{one.author} <{one.email}>"),
        "subject": redact(one.subject),
        "body": redact(one.body),
        "at": one.at,
        "at_text": clock_text(one.at),
    }
