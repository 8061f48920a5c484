"""The toast: what a person just did, and its undo, where it can be undone.

It comes with the page's answer (`told`), and is fetched anew until the outcome is known. Undo takes
back what the person just saw applied, exactly or not at all; what it can't take back it doesn't
offer.
"""

from collections.abc import Sequence
from typing import Any

from litestar import Response, get, post
from litestar.enums import MediaType
from litestar.params import FromQuery

from supervisor.core.actions import FileChange, title
from supervisor.core.approvals import Request, status
from supervisor.core.files.undo_steps import Selection
from supervisor.errors import GatehouseError, UserError
from supervisor.parts import Parts
from supervisor.server.common.request_views import state_of
from supervisor.server.common.views import shown
from supervisor.server.operator import decisions
from supervisor.server.operator.operator_api import AnyRequest, Id, caller, parts_of
from supervisor.server.operator.pages import page_frame
from supervisor.server.operator.pages.page_frame import Form, ids_in
from supervisor.workspace.trees.trees import COPY

# Of more at once the toast offers no undo, since their ids are sent with it.
MOST_TOLD = 200
_CHANGED = page_frame.news("requests", "inbox", "quiet")
_SAID = ("denied", "failed", "expired", "superseded", "undone")


@get("/parts/told", include_in_schema=False)
async def told_part(
    request: AnyRequest, of: FromQuery[str] = "", together: FromQuery[str] = ""
) -> Response[str]:
    """Return the toast about these requests as it is now."""
    parts = parts_of(request)
    number = int(together) if together.isdecimal() and len(together) < 9 else 0
    return page_frame.html(
        "parts/told.html", **_values(parts, ids_in(of)[:MOST_TOLD], together=number)
    )


@post("/undo", include_in_schema=False, status_code=200)
async def undo_told(request: AnyRequest, data: Form) -> Response[str]:
    """Undo what a toast or a settled card is about. Return the toast that says so, or why not."""
    parts, by = parts_of(request), caller(request).name
    ids = ids_in(data.get("of", ""))[:MOST_TOLD]
    problem = ""
    try:
        if rule_id := data.get("rule", ""):
            words = f"Removed again: {await decisions.remove_rule(parts, rule_id, by=by)}"
        elif not ids:
            raise UserError("nothing is named to undo", "reload the page")
        elif isinstance(parts.queue.get(ids[0]).action, FileChange):
            words = await _take_back(parts, ids[0], by, is_batch="together" in data)
        else:
            lifted = [decisions.lift_denial(parts, one, by=by) for one in ids]
            words = "The agent may ask again" if lifted else ""
    except GatehouseError as error:
        words, problem = str(error), ids[0] if ids else ""
    values = {"words": shown(words, parts.redactor), "look": problem, "is_bad": bool(problem)}
    text = page_frame.render("parts/told.html", **(_NOTHING | values))
    return Response(text, media_type=MediaType.HTML, headers=_CHANGED)


@get("/parts/progress/{session_id:str}", include_in_schema=False, sync_to_thread=False)
def progress_part(request: AnyRequest, session_id: Id) -> Response[str]:
    """Return how far effects are that are carried out together in a session."""
    found = parts_of(request).progress(session_id)
    return page_frame.html("parts/progress.html", progress=found)


def told(
    answer: Response[str], parts: Parts, ids: Sequence[str], *, together: int = 0, rule_id: str = ""
) -> Response[str]:
    """Return an answer of the page with the toast about these requests, beside its place.
    `together`: so many changed files were answered as one, the first of them is named."""
    if ids:
        values = _values(parts, ids, together=together, rule_id=rule_id)
        answer.content += page_frame.render("parts/told.html", **values)
    return answer


_NOTHING: dict[str, Any] = {
    "words": "",
    "look": "",
    "is_bad": False,
    "undo": None,
    "again": "",
    "progress": None,
}


def _values(
    parts: Parts, ids: Sequence[str], *, together: int = 0, rule_id: str = ""
) -> dict[str, Any]:
    """Return the values of `parts/told.html`."""
    requests = parts.queue.get_all(ids)
    if not requests or status(requests[0]) == "pending":
        return _NOTHING
    first, number = requests[0], together or len(requests)
    state, words = state_of(first, parts.clock.now())
    said = words if state in _SAID else "approved"
    if number > 1:
        files = " files" if isinstance(first.action, FileChange) else ""
        said = f"{number:,}{files} {state if state in _SAID else said}"
    else:
        said = f"{said[:1].upper()}{said[1:]}: {title(first.action)}"
    undo = undo_of(parts, requests, rule_id=rule_id, together=together)
    done = parts.progress(first.session_id) if together else None
    of = ",".join(ids[:MOST_TOLD])
    return _NOTHING | {
        "words": shown(f"Rule saved. {said}" if rule_id else said, parts.redactor),
        "look": first.id if number == 1 else "",
        "undo": undo,
        "again": f"of={of}&together={together or ''}" if state == "doing" and not undo else "",
        "session": first.session_id,
        "progress": done if state == "doing" else None,
    }


def undo_of(
    parts: Parts, requests: Sequence[Request], *, rule_id: str = "", together: int = 0
) -> dict[str, Any] | None:
    """Return the words and the values of the button that undoes these answers; None where they
    can't be undone."""
    if rule_id:
        return {"words": "Undo", "vals": {"rule": rule_id}}
    first = requests[0]
    if isinstance(first.action, FileChange):
        copy = parts.settings.sessions_dir / first.session_id / COPY
        is_done = state_of(first, parts.clock.now())[0] == "done"
        if not is_done or (len(requests) > 1 and not together) or not copy.is_dir():
            return None
        return {"words": "Undo", "vals": {"of": first.id} | ({"together": 1} if together else {})}
    ids = [one.id for one in requests if one.answer == "denied" and one.closed_at is None]
    is_open = parts.gate.rulings.is_open(first.session_id)
    if len(ids) < len(requests) or len(ids) > MOST_TOLD or not is_open:
        return None
    words = "Let it ask again" if len(ids) == 1 else "Let them ask again"
    return {"words": words, "vals": {"of": ",".join(ids)}}


async def _take_back(parts: Parts, request_id: str, by: str, *, is_batch: bool) -> str:
    """Undo one applied change, or those that were answered with it, and say so."""
    async with parts.undoing(parts.queue.get(request_id).session_id) as undo:
        batch = undo.batches_of([request_id]).get(request_id, "") if is_batch else ""
        selection = Selection(ids=(batch or request_id,))
        plan = await undo.plan(selection)
        done = await undo.carry_out(selection, token=plan.token, by=by)
    return f"Undone: {done.what}"
