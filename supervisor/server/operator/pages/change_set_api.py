"""Many changed files of a session: the JSON API, and their page with its parts and forms.

Each handler parses and renders. Folders are plain text in the API and base64 in the pages: a name
that an agent chose must survive every attribute and every URL unchanged. It must never fill in what
the caller didn't say it saw.
"""

import asyncio
import base64
from typing import Annotated, Any

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from supervisor.core.actions import FileChange
from supervisor.core.approvals import Answer
from supervisor.core.files.change_tree import ChangeSet, Level, Shown
from supervisor.core.files.line_comments import LineComments, read_set_comments, reason_with
from supervisor.core.session_names import project_name
from supervisor.core.text.display import visible
from supervisor.errors import ChangedError, GatehouseError, NotFoundError, UserError
from supervisor.server.common.views import identity_of, shown
from supervisor.server.operator import decisions
from supervisor.server.operator.change_sets import ChangeSets, LeftOut, SetView
from supervisor.server.operator.operator_api import AnyRequest, CallBody, Id, Text, caller, parts_of
from supervisor.server.operator.pages import page_frame
from supervisor.server.operator.pages.page_frame import Form, ids_in, marks_in
from supervisor.server.operator.pages.request_cards import job_in_short, session_end
from supervisor.server.operator.pages.told_page import told

# With more files than this, folders of the tree are fetched when they are opened.
MOST_AT_ONCE = 500
MOST_REASON_CHARS = 500
# Files of which a part is approved, in one answer.
MOST_IN_PART = 200
type _Hunks = Annotated[dict[str, list[str]], msgspec.Meta(max_length=MOST_IN_PART)]
_HUNKS = msgspec.json.Decoder(_Hunks)


class SetAnswerBody(CallBody, frozen=True, kw_only=True):
    """`shown` is that of the folder `below`, as it was shown. `ticked` maps ids to fingerprints of
    changes that need a separate look and are approved all the same. An approval leaves out the ids
    `without`, and all in the folders `without_below` that isn't in one `with_below` further in.
    `comments` on lines, by id, are denied with them. Of an id in `hunks` only these are approved,
    the rest of it waits."""

    answer: Answer
    shown: Shown | None = None
    below: str = ""
    ticked: dict[str, str] = {}
    without: list[str] = []
    without_below: list[str] = []
    with_below: list[str] = []
    comments: dict[str, LineComments] = {}
    hunks: _Hunks = {}
    reason: Text = ""


class SetAnswered(msgspec.Struct, frozen=True, kw_only=True):
    """How many were answered, and what waits now."""

    answered: int
    changes: SetView


def sets_of(request: AnyRequest) -> ChangeSets:
    """Return the change sets of the operator's app."""
    found: ChangeSets = request.app.state["change_sets"]
    return found


# -- JSON -----------------------------------------------------------------------------------------


@get("/api/changes")
async def list_sets(request: AnyRequest) -> list[SetView]:
    """Return the changes of sessions whose waiting changes are shown as one card."""
    sets, found = sets_of(request), []
    for session_id in sets.large():
        await sets.learn(session_id)
        found.append(await sets.view(session_id))
    return found


@get("/api/sessions/{session_id:str}/changes")
async def get_set(request: AnyRequest, session_id: Id, below: FromQuery[str] = "") -> SetView:
    """Return a session's waiting changed files: one folder of them, and those that need a separate
    look."""
    await sets_of(request).learn(session_id)
    return await sets_of(request).view(session_id, below.strip("/"))


@post("/api/sessions/{session_id:str}/changes", status_code=200)
async def answer_set(
    request: AnyRequest, session_id: Id, data: JSONBody[SetAnswerBody]
) -> SetAnswered:
    """Answer for a folder of them, or all: exactly what was shown, or nothing."""
    sets = sets_of(request)
    await sets.learn(session_id)
    answered = await sets.answer(
        session_id,
        data.answer,
        by=caller(request).name,
        below=data.below.strip("/"),
        seen=data.shown,
        ticked=data.ticked,
        left=LeftOut(
            data.without,
            [one.strip("/") for one in data.without_below],
            [one.strip("/") for one in data.with_below],
        ),
        reason=data.reason,
        comments=data.comments,
        hunks=data.hunks,
    )
    return SetAnswered(answered=len(answered), changes=await sets.view(session_id))


# -- pages ----------------------------------------------------------------------------------------


@get("/changes/{session_id:str}", include_in_schema=False)
async def set_page(request: AnyRequest, session_id: Id) -> Response[str]:
    """Return the page of a session's waiting changes: a tree of files, and what changes in them."""
    await sets_of(request).learn(session_id)
    values = await _values(request, session_id)
    return page_frame.page(request, "changes.html", "inbox", **values)


@get("/parts/change_set/{session_id:str}", include_in_schema=False)
async def set_part(request: AnyRequest, session_id: Id) -> Response[str]:
    """Return what that page shows, as it is now."""
    await sets_of(request).learn(session_id)
    return page_frame.html("parts/change_set.html", **await _values(request, session_id))


@get("/parts/changes/{session_id:str}/files", include_in_schema=False)
async def files_part(
    request: AnyRequest,
    session_id: Id,
    start: Annotated[int, QueryParameter(ge=0)],
) -> Response[str]:
    """Return further files of the page."""
    await sets_of(request).learn(session_id)
    found = await sets_of(request).read(session_id)
    values = await asyncio.to_thread(_files, found, start)
    return page_frame.html("parts/change_files.html", session_id=session_id, key=encode, **values)


@get("/parts/changes/{session_id:str}/folder", include_in_schema=False)
async def folder_part(request: AnyRequest, session_id: Id, below: FromQuery[str]) -> Response[str]:
    """Return the content of one folder."""
    await sets_of(request).learn(session_id)
    found, folder = await sets_of(request).read(session_id), _decode(below)
    level = await asyncio.to_thread(found.level, folder)
    return page_frame.html(
        "parts/change_folder.html", level=level, opened={}, key=encode, session_id=session_id
    )


@get("/parts/changes/{session_id:str}/news", include_in_schema=False)
async def news_part(
    request: AnyRequest,
    session_id: Id,
    until: FromQuery[float],
    plain: FromQuery[str],
    careful: FromQuery[str],
) -> Response[str]:
    """Return whether what is shown still waits; the card itself is replaced only when the person
    says so."""
    now, before = [await sets_of(request).read(session_id, one) for one in (None, until)]
    later = len(now.waiting) - len(before.waiting)
    is_same = before.shown(before.waiting) == Shown(until=until, plain=plain, careful=careful)
    return page_frame.html(
        "parts/changes_news.html", session_id=session_id, later=later, is_same=is_same
    )


@post("/changes/{session_id:str}/{answer:str}", include_in_schema=False, status_code=200)
async def answer_part(
    request: AnyRequest, session_id: Id, answer: FromPath[Answer], data: Form
) -> Response[str]:
    """Approve or deny on the card. Return the card as it is afterwards; a refusal is shown on
    it."""
    await sets_of(request).learn(session_id)
    reason = data.get("reason", "").strip()[:MOST_REASON_CHARS] if answer == "denied" else ""
    by, hunks = caller(request).name, _hunks(data.get("hunks", "{}"))
    answered: list[str]
    try:
        if "one" in data and answer == "approved" and data["one"] in hunks:
            mark, chosen = data.get("fingerprint", ""), hunks[data["one"]]
            part = await sets_of(request).take_part(
                data["one"], chosen, by=by, fingerprint=decisions.shown_by(mark)
            )
            answered = [part.id]
        elif "one" in data:
            mark, answered = data.get("fingerprint", ""), [data["one"]]
            action = parts_of(request).queue.get(data["one"]).action
            if answer == "denied" and isinstance(action, FileChange):
                said = read_set_comments(data.get("comments", "")).get(data["one"], [])
                reason = reason_with(reason, action.path, said)
            await decisions.answer(
                parts_of(request),
                data["one"],
                answer,
                by=by,
                reason=reason,
                fingerprint=mark,
                seen=data.get("seen", ""),
            )
        else:
            # A page keeps comments on files that somebody has answered meanwhile. What changed
            # since is refused by what was shown.
            comments = read_set_comments(data.get("comments", ""))
            waiting = {one.id for one in (await sets_of(request).read(session_id)).waiting}
            done = await sets_of(request).answer(
                session_id,
                answer,
                by=by,
                below=_decode(data.get("below", "")),
                seen=_shown(data),
                ticked=marks_in(data.get("ticked", "")),
                left=LeftOut(
                    ids_in(data.get("without", "")),
                    _decoded(data.get("without_below", "")),
                    _decoded(data.get("with_below", "")),
                ),
                reason=reason,
                comments={one: said for one, said in comments.items() if one in waiting},
                hunks=hunks,
            )
            # What was denied with comments beside an approval isn't of it.
            answered = [one.id for one in done if one.answer == answer]
    except NotFoundError:
        raise
    except GatehouseError as error:
        return await _answered(request, session_id, error)
    page = await _answered(request, session_id)
    return told(page, parts_of(request), answered[:1], together=len(answered))


# -- inside ---------------------------------------------------------------------------------------


async def _answered(
    request: AnyRequest, session_id: str, error: GatehouseError | None = None
) -> Response[str]:
    """Return the page's content as it is now; `error`: why an answer didn't count."""
    values = await _values(request, session_id, "" if error is None else str(error))
    return page_frame.html("parts/change_set.html", error, **values)


async def _values(request: AnyRequest, session_id: str, error: str = "") -> dict[str, Any]:
    """Return the values of `parts/change_set.html`."""
    parts, sets = parts_of(request), sets_of(request)
    session = parts.sessions.get(session_id)
    found = await sets.read(session_id)
    view, opened, files = await asyncio.to_thread(
        lambda: (sets.view_of(found, session_id), _opened(found), _files(found, 0))
    )
    return {
        "set": view,
        "session_id": session_id,
        "error": error,
        "who": identity_of(parts, session),
        "project": visible(project_name(session.workspace), one_line=True),
        "job": shown(job_in_short(parts, session), parts.redactor),
        "ends": session_end(parts, session),
        "level": view.level,
        "opened": opened,
        "key": encode,
        **files,
    }


def _opened(found: ChangeSet) -> dict[str, Level]:
    """Return the content of each folder, if there are few enough files to show all at once."""
    levels: dict[str, Level] = {}
    wanted = [""] if len(found.waiting) <= MOST_AT_ONCE else []
    while wanted:
        level = found.level(wanted.pop())
        levels[level.folder.path] = level
        wanted += [one.path for one in level.folders]
    return levels


def _files(found: ChangeSet, start: int) -> dict[str, Any]:
    """Return files that need no look of their own, by path, from number `start` on."""
    leaves = found.plain(start)
    end = start + len(leaves)
    plain = len(found.waiting) - len(found.notes)
    return {"leaves": leaves, "next_leaf": end, "more_leaves": plain - end}


def encode(path: str) -> str:
    """Return a folder's name for an attribute or a URL."""
    return base64.urlsafe_b64encode(path.encode()).decode()


def _decode(key: str) -> str:
    try:
        return base64.urlsafe_b64decode(key).decode()
    except ValueError:
        raise UserError("this folder is not in the list", "reload the page") from None


def _shown(data: dict[str, str]) -> Shown:
    """INVARIANT: it is never filled in from the present state: the caller must name what was shown,
    or nothing is answered."""
    try:
        return Shown(until=float(data["until"]), plain=data["plain"], careful=data["careful"])
    except (KeyError, ValueError):
        raise ChangedError.unsaid("reload the page") from None


def _decoded(text: str) -> list[str]:
    """Parse encoded paths, comma-separated; `/` is the whole workspace."""
    return [_decode(one).strip("/") for one in ids_in(text)]


def _hunks(text: str) -> dict[str, list[str]]:
    """Parse the ticked hunks of files that are approved in part, by id."""
    try:
        found: dict[str, list[str]] = _HUNKS.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise UserError("these ticks can't be read", "reload the page") from error
    return found
