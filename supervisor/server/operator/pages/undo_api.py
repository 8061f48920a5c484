"""Routes of undo: timeline, preview and undo; JSON for the CLI, parts for the page.

The operator's alone: the agent's app has none of these. `Undo` decides everything; this module
finds the session's `Undo` and calls it.
"""

from collections.abc import Iterator
from typing import Annotated

import msgspec
from litestar import Response, get, post
from litestar.enums import MediaType
from litestar.params import FromQuery, JSONBody, QueryParameter

from supervisor.core.files.change_card import ChangeCard
from supervisor.core.files.changes import name_fields
from supervisor.core.files.undo_steps import Selection
from supervisor.core.sessions import Session
from supervisor.core.text.numbers import whole_number
from supervisor.errors import ChangedError, GatehouseError, NotFoundError, UserError
from supervisor.parts import Parts
from supervisor.server.common.views import shown, shown_data, view_of
from supervisor.server.operator.change_views import ChangeView, coloured_changes, shown_change
from supervisor.server.operator.known_ids import to_undo
from supervisor.server.operator.operator_api import AnyRequest, CallBody, Id, caller, parts_of
from supervisor.server.operator.pages import page_frame
from supervisor.server.operator.pages.page_frame import Form
from supervisor.workspace.undo.timeline import Row
from supervisor.workspace.undo.undo import Undo
from supervisor.workspace.undo.undo_plan import UndoFile, UndoPlan

TIMELINE_ROWS = 200
_Skip = Annotated[int, QueryParameter(ge=0)]
# For one undo: files whose differences are shown, lines of each, and files that are named.
MOST_DIFFS = 50
MOST_LINES = 400
MOST_FILES = 2000
_ID = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class UndoBody(CallBody, frozen=True, kw_only=True):
    """A request for undo. `id`: a request, an undo or a whole session. `since`: everything after
    that time, in seconds since the epoch; `after`: everything after that place of the timeline.
    `session` defaults to the newest with changes."""

    id: _ID | None = None
    session: _ID | None = None
    since: float | None = None
    after: int | None = None
    merge: bool = False


class UndoNowBody(UndoBody, frozen=True, kw_only=True):
    """`token` is that of the preview that was seen; without it nothing is undone."""

    token: Annotated[str, msgspec.Meta(max_length=200)] = ""


class UndoFileView(msgspec.Struct, frozen=True, kw_only=True):
    """One path. `diff` are lines of a unified diff, for the first files; `problem` says why nothing
    at all would be undone."""

    path: str
    doing: str
    problem: str
    added: int
    removed: int
    notes: list[str]
    diff: list[str]


class UndoView(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of `undo`, done or previewed. `count` is of all paths; the first of them are
    listed, problems first. `forgotten` says that older changes can no longer be taken back."""

    session_id: str
    workspace: str
    what: str
    token: str
    undo: str
    count: int
    problems: int
    forgotten: str
    files: list[UndoFileView]


class TimelineRow(Row, frozen=True, kw_only=True):
    """One step of the timeline: a request, several that were answered together, or an undo. To
    rewind to its `number` means to undo everything after it. If there are several `requests`, `of`
    returns their rows one by one. `added` and `removed` count lines, where that is known."""

    added: int | None
    removed: int | None


class TimelineView(msgspec.Struct, frozen=True, kw_only=True):
    """Rows are newest first; `more` older ones follow. `forgotten` older changes can no longer be
    undone, and why."""

    rows: list[TimelineRow]
    more: int
    forgotten: int
    forgotten_why: str


@get("/api/sessions/{session_id:str}/timeline")
async def get_timeline(
    request: AnyRequest,
    session_id: Id,
    limit: Annotated[int, QueryParameter(ge=1, le=1000)] = TIMELINE_ROWS,
    skip: _Skip = 0,
    of: FromQuery[str] = "",
) -> TimelineView:
    """Return what a session applied to the host and can be taken back, newest first, without the
    `skip` newest. `of`: the id of several requests that were answered together, to get these one by
    one."""
    return await timeline(parts_of(request), session_id, limit, skip, of)


@post("/api/undo/preview", status_code=200)
async def preview_undo(request: AnyRequest, data: JSONBody[UndoBody]) -> UndoView:
    """Return what an undo would do. Nothing is done."""
    return await preview(parts_of(request), data)


@post("/api/undo", status_code=200)
async def undo(request: AnyRequest, data: JSONBody[UndoNowBody]) -> UndoView:
    """Undo everything as it was shown, or nothing."""
    return await carry_out(parts_of(request), data, by=caller(request).name)


# -- parts of the session's page ------------------------------------------------------------------


@get("/parts/timeline/{session_id:str}", include_in_schema=False)
async def timeline_part(
    request: AnyRequest, session_id: Id, skip: _Skip = 0, of: FromQuery[str] = ""
) -> Response[str]:
    """Return what was applied, newest first: a page of it, or of requests that were answered
    together."""
    try:
        found = await timeline(parts_of(request), session_id, TIMELINE_ROWS, skip, of)
    except NotFoundError as error:
        return page_frame.html(
            "parts/timeline.html", session_id=session_id, timeline=None, gone=str(error)
        )
    values = {"session_id": session_id, "timeline": found, "skip": skip, "of": of, "gone": ""}
    return page_frame.html("parts/timeline.html", **values)


@get("/parts/undo/{session_id:str}", include_in_schema=False)
async def undo_part(
    request: AnyRequest, session_id: Id, of: FromQuery[str] = "",
    after: FromQuery[str] = "",
    merge: FromQuery[str] = "",
) -> Response[str]:  # fmt: skip
    """Return what an undo would do, and the button that carries it out."""
    return await _undo_part(request, session_id, of=of, after=after, merge=merge)


@post("/sessions/{session_id:str}/undo", include_in_schema=False, status_code=200)
async def undo_now(request: AnyRequest, session_id: Id, data: Form) -> Response[str]:
    """Undo what was shown. An error is shown above what would be done now."""
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
    return Response(text.content, media_type=MediaType.HTML, headers=page_frame.news("requests"))


async def _undo_part(
    request: AnyRequest, session_id: str, *, of: str, after: str, merge: str, error: str = ""
) -> Response[str]:
    try:
        plan, files = await for_page(
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
        return Selection(ids=tuple(of.split(",")))
    if not after:
        return Selection()
    number = whole_number(after, 9)
    if number is None:
        raise UserError(f"`{after}` is not on the timeline", "reload the page")
    return Selection(after=number)


async def preview(parts: Parts, body: UndoBody) -> UndoView:
    """Return what an undo would do now."""
    session, selection = await _meant(parts, body)
    async with parts.undoing(session.id) as undo:
        plan = await undo.plan(selection, merge=body.merge)
        return _view(parts, session, plan, undo)


async def carry_out(parts: Parts, body: UndoNowBody, *, by: str) -> UndoView:
    """Undo, as it was shown."""
    session, selection = await _meant(parts, body)
    if not body.token:
        raise ChangedError.unsaid("send the `token` that `POST /api/undo/preview` gives")
    async with parts.undoing(session.id) as undo:
        plan = await undo.carry_out(selection, token=body.token, by=by, merge=body.merge)
    return _view(parts, session, plan, None)


async def for_page(
    parts: Parts, session_id: str, selection: Selection, *, merge: bool
) -> tuple[UndoPlan, list[tuple[UndoFile, ChangeView | None]]]:
    """Return the plan, and its first files each with its change for `parts/change.html`."""
    async with parts.undoing(session_id) as undo:
        plan = await undo.plan(selection, merge=merge)
        files = list(_with_cards(_in_order(plan)[:MOST_FILES], undo))
    cards = [card for _, card in files if card]
    views = iter(await coloured_changes(parts, "undo", cards, most_rows=MOST_LINES))
    return plan, [(file, next(views) if card else None) for file, card in files]


async def timeline(
    parts: Parts, session_id: str, limit: int, skip: int = 0, of: str = ""
) -> TimelineView:
    """Return what a session applied, with each change's added and removed lines, without the `skip`
    newest; with `of`, one by one what was answered together."""
    async with parts.undoing(session_id) as undo:
        found = undo.timeline(of)
        shown_rows = found.rows[::-1][skip : skip + limit]
        rows = [_row(parts, row, undo.line_counts(row.id)) for row in shown_rows]
    return TimelineView(
        rows=rows,
        more=max(0, len(found.rows) - skip - len(rows)),
        forgotten=found.forgotten,
        forgotten_why=found.forgotten_why,
    )


# -- inside ---------------------------------------------------------------------------------------


async def _meant(parts: Parts, body: UndoBody) -> tuple[Session, Selection]:
    """Return the session, and which of its changes to undo."""
    if sum(one is not None for one in (body.id, body.since, body.after)) > 1:
        raise UserError(
            "more than one thing to undo is named", "give an id, a time, or a place of the timeline"
        )
    selection = Selection(since=body.since, after=body.after)
    if body.id is None:
        return (
            parts.sessions.get(to_undo(parts, body.session))
            if body.session
            else await _newest(parts)
        ), selection
    any_id = to_undo(parts, body.id)
    session = _session_of(parts, any_id)
    if body.session is not None and not session.id.startswith(body.session):
        raise NotFoundError(f"`{body.id[:64]}` is not of that session", "leave the session out")
    return session, selection if session.id == any_id else Selection(ids=(any_id,))


def _session_of(parts: Parts, any_id: str) -> Session:
    """Return the session of a session's, an undo's or a request's id."""
    if any_id.startswith(("undo-", "batch-")):
        return parts.sessions.get(any_id.partition("-")[2].rpartition("-")[0])
    request = parts.queue.find(any_id)
    try:
        return parts.sessions.get(request.session_id if request is not None else any_id)
    except NotFoundError:
        raise NotFoundError(
            f"no request, undo or session has the id `{any_id[:64]}`",
            "copy it from the session's timeline",
        ) from None


async def _newest(parts: Parts) -> Session:
    """Return the newest session that applied anything that can be undone."""
    for session in parts.sessions.recent():
        try:
            async with parts.undoing(session.id) as undo:
                if undo.timeline().rows:
                    return session
        except NotFoundError:
            if session.started_at is not None and session.ended_at is None:
                raise  # a crash left it: an older one isn't what is meant
    raise UserError(
        "no session applied anything that could be undone", "`gatehouse sessions` lists them"
    )


def _view(parts: Parts, session: Session, plan: UndoPlan, undo: Undo | None) -> UndoView:
    files = _in_order(plan)[:MOST_FILES]
    return UndoView(
        session_id=session.id,
        workspace=shown(session.workspace, parts.redactor),
        what=plan.what,
        token=plan.token,
        undo=plan.undo,
        count=len(plan.effective),
        problems=len(plan.problems),
        forgotten=plan.forgotten,
        files=[_file(parts, file, card) for file, card in _with_cards(files, undo)],
    )


def _in_order(plan: UndoPlan) -> list[UndoFile]:
    """Return problems first, then files, then folders; unchanged paths are left out."""
    told = [file for file in plan.files if file.doing != "nothing"]
    return sorted(told, key=lambda file: (not file.problem, _is_folder(file)))


def _is_folder(file: UndoFile) -> bool:
    return any(held is not None and held.kind == "dir" for held in (file.to, file.now))


def _with_cards(
    files: list[UndoFile], undo: Undo | None
) -> Iterator[tuple[UndoFile, ChangeCard | None]]:
    left = MOST_DIFFS if undo is not None else 0
    for file in files:
        card = None
        if left and undo is not None and not file.problem and not _is_folder(file):
            card = undo.card(file)
            left -= 1
        yield file, card


def _file(parts: Parts, file: UndoFile, card: ChangeCard | None) -> UndoFileView:
    facts = shown_change(parts, "", card, most_rows=MOST_LINES) if card is not None else None
    diff: list[str] = []
    for hunk in facts.diff.hunks if facts else ():
        diff.append(hunk.header)
        marks = {"added": "+", "removed": "-", "context": " "}
        diff += [f"{marks.get(row.kind, '')}{row.text}" for row in hunk.rows]
    if facts and facts.diff.hidden:
        diff.append(f"... {facts.diff.hidden} more lines")
    return UndoFileView(
        path=shown(name_fields(file.name)[0], parts.redactor),
        doing=file.doing,
        problem=shown(file.problem, parts.redactor),
        added=facts.diff.added if facts else 0,
        removed=facts.diff.removed if facts else 0,
        notes=shown_data(list(facts.notes), parts.redactor) if facts else [],
        diff=shown_data(diff, parts.redactor),
    )


def _row(parts: Parts, row: Row, counts: tuple[int, int] | None) -> TimelineRow:
    added, removed = counts or (None, None)
    return view_of(TimelineRow, row, parts.redactor, added=added, removed=removed)
