"""What a session changed, each path once, against what was there before it.

Shared by page and parts. It must never show as applied what no longer holds, nor a content that
isn't kept.
"""

import asyncio
from collections import Counter

import msgspec

from supervisor.core.actions import FileChange
from supervisor.core.approvals import Request
from supervisor.core.files.change_card import ChangeCard
from supervisor.core.files.changes import name_of
from supervisor.core.session_timeline import ChangedPath, ChangeState, changed_paths
from supervisor.core.sessions import Session
from supervisor.errors import GatehouseError, NotFoundError
from supervisor.parts import Parts
from supervisor.server.common.views import shown
from supervisor.server.operator.shown_changes import card_of
from supervisor.workspace.compare import cards

# Paths of one page of the list.
MOST_PATHS = 200


class TouchedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A path that the session changed or wanted to. `request` is the newest about it, `undo` are
    the ids whose undo takes all of its effects there back, `is_older`: an earlier change of it
    holds, while the newest doesn't. `to`: the new name of a moved one."""

    request: str
    path: str
    to: str
    operation: str
    state: ChangeState
    undo: str
    is_older: bool


class TouchedFiles(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the list; `counts` are of all its paths, by state. `next`: how many to skip for
    the following ones, 0 if there are none."""

    files: list[TouchedFile]
    counts: dict[ChangeState, int]
    next: int


async def changed_files(parts: Parts, session: Session, skip: int = 0) -> TouchedFiles:
    """Return what a session changed, from the one at `skip` on."""
    paths = await asyncio.to_thread(_paths, parts, session)
    here = paths[skip : skip + MOST_PATHS]
    requests: dict[str, Request] = {
        one.id: one for one in parts.queue.get_all([one.newest.id for one in here])
    }
    counts = Counter(one.state for one in paths)
    files = [_file(parts, one, requests[one.newest.id]) for one in here]
    more = skip + MOST_PATHS if len(paths) > skip + MOST_PATHS else 0
    return TouchedFiles(files=files, counts=counts, next=more)


async def whole_change(parts: Parts, request: Request) -> ChangeCard:
    """Return what the session made of the path of a request, or wants to; against what was there
    before. `NotFoundError` where that is no longer kept."""
    action = request.action
    if not isinstance(action, FileChange):
        raise NotFoundError("this request isn't about a file", "see the session's changes")
    if request.settled_at is None and (card := await card_of(parts, request)) is not None:
        return card
    try:
        async with parts.undoing(request.session_id) as undo:
            found = await asyncio.to_thread(undo.whole_change, name_of(action))
            if found is not None:
                return found
            if request.settled_at is None:
                return await asyncio.to_thread(cards.card_of, undo.sides, action, parts.redactor)
    except GatehouseError as error:
        raise NotFoundError(f"it can't be shown any more: {error.message}") from error
    raise NotFoundError("it can't be shown any more: its content is no longer kept")


def _paths(parts: Parts, session: Session) -> list[ChangedPath]:
    changed = parts.queue.changed_of(session.id)
    waiting = parts.queue.changes_of(session.id)
    conflicts = {one.id for one in waiting if "conflict" in one.action.hazards}
    return changed_paths(changed, conflicts)


def _file(parts: Parts, path: ChangedPath, request: Request) -> TouchedFile:
    action = request.action
    assert isinstance(action, FileChange)
    is_new = action.operation == "write" and action.before is None
    return TouchedFile(
        request=request.id,
        path=shown(action.path, parts.redactor),
        to=shown(action.to or "", parts.redactor),
        operation="new" if is_new else action.operation,
        state=path.state,
        undo=",".join(path.applied),
        is_older=bool(path.applied) and path.state not in ("applied", "in part"),
    )
