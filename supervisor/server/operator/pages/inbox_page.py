"""The inbox: a list of what waits at the left, and one of it as a card at the right.

Rows are grouped by session. What somebody waits for comes first, in its group and among the groups.
Several changed files that came at once are one row. The list is bounded: what isn't in it follows
as the first are answered, and the filters and the search look through all.
"""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, get_args

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, FromQuery

from supervisor.core.actions import CATEGORIES, Category, FileChange, category_of, title
from supervisor.core.approvals import Answer, Request, failure, status
from supervisor.core.session_names import SessionIdentity
from supervisor.core.sessions import Session, remaining_s
from supervisor.core.text.duration import format_duration
from supervisor.errors import GatehouseError, UserError
from supervisor.parts import Parts
from supervisor.server.common import action_words
from supervisor.server.common.action_words import Flag
from supervisor.server.common.request_views import alone_why, flags_of, request_view, state_of
from supervisor.server.common.views import identity_of
from supervisor.server.operator import decisions, rules_view
from supervisor.server.operator.change_sets import ChangeSets
from supervisor.server.operator.operator_api import AnyRequest, Id, caller, parts_of
from supervisor.server.operator.pages import (
    left_page,
    page_frame,
    quiet_page,
    request_cards,
    sessions_page,
)
from supervisor.server.operator.pages.page_frame import Form, ids_in, marks_in
from supervisor.server.operator.pages.request_cards import MOST_REASON_CHARS
from supervisor.server.operator.pages.told_page import told

# Rows that a list holds, and requests that a search or a filter looks through.
MOST_ROWS = 200
MOST_LOOKED_THROUGH = 5000
MOST_ANSWERED = 8
# Of more at once no common rule is looked for.
MOST_UNDER_ONE_RULE = 30
# Much more of an action than a row shows; the card has all of it.
MOST_LINE_CHARS = 4096
# Changed files of a session that came less than this apart are one row, in seconds.
TOGETHER_S = 3.0
# Of these so many are named.
MOST_NAMED = 3
# What the id of a row of several changed files begins with, before the session's.
_SET = "changes:"


class InboxRow(msgspec.Struct, frozen=True, kw_only=True):
    """What can be answered, in a line. Times are seconds since the epoch. `urgency` sorts: what
    somebody waits for until then, what waits, what nobody waits for any more. `is_alone`: it is
    never answered together with others."""

    id: str
    href: str
    category: Category
    line: str
    more: str = ""
    flags: tuple[Flag, ...] = ()
    asked_at: float
    urgency: tuple[int, float]
    hold_until: float | None = None
    held_left: str = ""
    is_alone: bool = False
    fingerprint: str = ""
    state: str = "waiting"
    state_words: str = ""

    @property
    def icon(self) -> str:
        """What its kind's icon is called."""
        return action_words.WORDS[self.category].icon


class ListedPart(NamedTuple):
    """What of the inbox is listed: `show` is a category, `flagged` or `all`, `session` an id or
    empty, `find` are words."""

    show: str = "all"
    find: str = ""
    session: str = ""

    def has(self, row: InboxRow, name: str) -> bool:
        """Return whether a row of the session of that name is listed."""
        kept = self.show not in CATEGORIES or row.category == self.show
        if self.show == "flagged":
            kept = bool(row.flags)
        words = f"{row.line}\n{row.more}\n{name}".lower()
        return kept and all(word in words for word in self.find.lower().split())


_ALL = ListedPart()


@get("/", include_in_schema=False)
async def inbox(
    request: AnyRequest,
    show: FromQuery[str] = "all",
    find: FromQuery[str] = "",
    session: FromQuery[str] = "",
) -> Response[str]:
    """Return the inbox, or a part of it, with what comes first in it as the card."""
    listed = await _listed(request, ListedPart(show, find.strip()[:200], session))
    first = next((one.id for group in listed["groups"] for one in group["rows"]), "")
    return await _page(request, listed, await _pane(request, first) if first else {})


@get("/requests/{request_id:str}", include_in_schema=False)
async def request_page(request: AnyRequest, request_id: Id) -> Response[str]:
    """Return the inbox with this request as the card, whether it still waits or not."""
    card = await _pane(request, request_id)
    return await _page(request, await _listed(request), card, is_on_card=True)


@get("/parts/inbox", include_in_schema=False)
async def list_part(
    request: AnyRequest,
    show: FromQuery[str] = "all",
    find: FromQuery[str] = "",
    session: FromQuery[str] = "",
) -> Response[str]:
    """Return the list as it is now, or a part of it."""
    listed = await _listed(request, ListedPart(show, find.strip()[:200], session))
    return await asyncio.to_thread(page_frame.html, "parts/inbox_list.html", **listed)


@get("/parts/card/{request_id:str}", include_in_schema=False)
async def card_part(request: AnyRequest, request_id: Id) -> Response[str]:
    """Return a request's card as it is now."""
    pane = await _pane(request, request_id)
    return page_frame.html("parts/set_card.html" if "set" in pane else "parts/card.html", **pane)


@post("/parts/batch", include_in_schema=False, status_code=200)
async def batch_part(request: AnyRequest, data: Form) -> Response[str]:
    """Return the card of several selected requests, `ids` comma-separated."""
    return await _batch(request, ids_in(data.get("ids", ""))[:MOST_ROWS])


@post("/batch/{answer:str}", include_in_schema=False, status_code=200)
async def answer_batch(request: AnyRequest, answer: FromPath[Answer], data: Form) -> Response[str]:
    """Answer the requests that the card showed, `id:fingerprint` each: all of them or none."""
    parts = parts_of(request)
    shown = marks_in(data.get("shown", ""))
    try:
        done = await decisions.answer_shown(
            parts,
            request.app.state["change_sets"],
            answer,
            by=caller(request).name,
            shown=shown,
            reason=data.get("reason", "").strip()[:MOST_REASON_CHARS] if answer == "denied" else "",
        )
    except UserError as error:
        return await _batch(request, list(shown), error)
    answered = await _batch(request, list(shown), answered=len(done.answered))
    return told(answered, parts, [one.id for one in done.answered])


async def _batch(
    request: AnyRequest,
    ids: Sequence[str],
    error: UserError | None = None,
    answered: int | None = None,
) -> Response[str]:
    """Return the card of several requests. What needs a look of its own is shown, and left out."""
    return await asyncio.to_thread(_batch_now, parts_of(request), ids, error, answered)


def _batch_now(
    parts: Parts, ids: Sequence[str], error: UserError | None, answered: int | None
) -> Response[str]:
    now = parts.clock.now()
    waiting = [one for one in parts.queue.get_all(ids) if status(one) == "pending"]
    waiting.sort(key=lambda one: one.asked_at)
    left_out = {one.id: why for one in waiting if (why := alone_why(one, flags_of(one)))}
    together = [one for one in waiting if one.id not in left_out]
    alone = [one for one in waiting if one.id in left_out]
    return page_frame.html(
        "parts/batch.html",
        error,
        rows=[request_view(one, parts) for one in together],
        left_out=[(_redacted(parts, _row(one, now)), left_out[one.id]) for one in alone],
        selected=len(ids),
        answered=answered,
        error=str(error) if error else "",
        one_rule=_one_rule(parts, together) if 1 < len(together) <= MOST_UNDER_ONE_RULE else None,
    )


def _one_rule(parts: Parts, asked: Sequence[Request]) -> dict[str, Any] | None:
    """Return a rule that would answer all of these, and what it would have answered; None where
    there is none."""
    first, *others = asked
    for offered in decisions.suggestions(parts, first.id, "allow"):
        try:
            for one in others:
                decisions.check_candidate(parts, one, "allow", offered.rule)
        except GatehouseError:
            continue  # it would not answer all of them
        seen = rules_view.preview_of_rule(parts, "allow", offered.rule, leaving_out=first.id)
        return {"offered": offered, "seen": seen, "id": first.id}
    return None


async def _page(
    request: AnyRequest,
    listed: dict[str, Any],
    pane: dict[str, Any],
    *,
    is_on_card: bool = False,
) -> Response[str]:
    parts = parts_of(request)
    values = {"quiet": quiet_page.values(parts)} | left_page.values(parts) | listed
    values["first_run"] = {} if pane else sessions_page.first_run(parts)
    return page_frame.page(request, "inbox.html", "inbox", is_on_card=is_on_card, **values, **pane)


async def _pane(request: AnyRequest, row_id: str) -> dict[str, Any]:
    """Return the values of the card of a row: a request, or `changes:SESSION`. Raise
    `NotFoundError` where there is none."""
    parts = parts_of(request)
    if not row_id.startswith(_SET):
        return await request_cards.card(parts, parts.queue.get(row_id))
    session = parts.sessions.get(row_id.removeprefix(_SET))
    sets: ChangeSets = request.app.state["change_sets"]
    await sets.learn(session.id)
    return {
        "set": await sets.view(session.id),
        "set_who": identity_of(parts, session),
    }


async def _listed(request: AnyRequest, wanted: ListedPart = _ALL) -> dict[str, Any]:
    parts = parts_of(request)
    sets: ChangeSets = request.app.state["change_sets"]
    return await asyncio.to_thread(_read, parts, sets.large(), wanted)


def _read(parts: Parts, large: dict[str, int], wanted: ListedPart) -> dict[str, Any]:
    """Return the values of `parts/inbox_list.html`."""
    now = parts.clock.now()
    waiting = parts.queue.pending_but(list(large), limit=MOST_LOOKED_THROUGH, now=now)
    rows: dict[str, list[InboxRow]] = {}
    for session_id, number in large.items():
        rows.setdefault(session_id, []).append(_set_row(session_id, number, now))
    for session_id, requests in _by_session(waiting).items():
        rows.setdefault(session_id, []).extend(_rows(session_id, requests, now))
    sessions = {one: parts.sessions.get(one) for one in rows}
    names = {one: identity_of(parts, session) for one, session in sessions.items()}
    held = sum(row.state == "held" for found in rows.values() for row in found)
    of_session = {one: found for one, found in rows.items() if wanted.session in ("", one)}
    groups = [
        _group(parts, sessions[session_id], names[session_id], kept, now)
        for session_id, found in of_session.items()
        if (kept := [row for row in found if wanted.has(row, names[session_id].name)])
    ]
    groups.sort(key=lambda group: group["rows"][0].urgency)
    shown, more = _first(parts, groups)
    return {
        "groups": shown,
        "more": more,
        "waiting": parts.queue.count_waiting(),
        "held": held,
        "chips": _chips([row for found in of_session.values() for row in found], wanted.show),
        "show": wanted.show if wanted.show in (*CATEGORIES, "flagged") else "all",
        "find": wanted.find,
        "session": wanted.session,
        "sessions": sorted((one.name, key) for key, one in names.items()),
        "answered": _answered(parts),
    }


def _redacted(parts: Parts, row: InboxRow) -> InboxRow:
    redact = parts.redactor.text
    return msgspec.structs.replace(
        row, line=redact(row.line[:MOST_LINE_CHARS]), more=redact(row.more[:MOST_LINE_CHARS])
    )


def _by_session(requests: Iterable[Request]) -> dict[str, list[Request]]:
    found: dict[str, list[Request]] = {}
    for one in requests:
        found.setdefault(one.session_id, []).append(one)
    return found


def _rows(session_id: str, requests: Sequence[Request], now: float) -> list[InboxRow]:
    """Return a session's rows: changed files that came together are one of them."""
    changes = [one for one in requests if _is_of_copy(one)]
    times = sorted(one.asked_at for one in changes)
    if not any(later - earlier < TOGETHER_S for earlier, later in pairwise(times)):
        return [_row(one, now) for one in requests]
    rest = [one for one in requests if not _is_of_copy(one)]
    return [
        *(_row(one, now) for one in rest),
        _set_row(session_id, len(changes), times[0], changes),
    ]


def _is_of_copy(request: Request) -> bool:
    return request.origin == "workspace" and isinstance(request.action, FileChange)


def _set_row(
    session_id: str, number: int, asked_at: float, changes: Sequence[Request] = ()
) -> InboxRow:
    """Return the row of several changed files. `changes` are these, where there are only some."""
    flags = {flag.name: flag for one in changes for flag in action_words.flags(one.action)}
    titles = [title(one.action) for one in changes]
    more = f" and {number - MOST_NAMED} more" if number > MOST_NAMED else ""
    return InboxRow(
        id=_SET + session_id,
        href=f"/requests/{_SET}{session_id}",
        category="filesystem",
        line=f"{number:,} changed files",
        more=", ".join(titles[:MOST_NAMED]) + more if titles else "",
        flags=tuple(flags.values()),
        asked_at=asked_at,
        urgency=(1, asked_at),
        is_alone=True,
    )


def _row(request: Request, now: float) -> InboxRow:
    """Return a request's row, not yet redacted."""
    state, words = state_of(request, now)
    is_open = state in ("waiting", "held")
    flags = flags_of(request)
    return InboxRow(
        id=request.id,
        href=f"/requests/{request.id}",
        category=category_of(request.action),
        line=title(request.action),
        more=_asked(request) if is_open else failure(request) or request.answer_reason,
        flags=flags if is_open else (),
        asked_at=request.asked_at,
        urgency=_urgency(request, now),
        hold_until=request.hold_until if state == "held" else None,
        held_left=format_duration((request.hold_until or now) - now),
        is_alone=bool(alone_why(request, flags)),
        fingerprint=request.fingerprint,
        state=state,
        state_words=words,
    )


def _asked(request: Request) -> str:
    if request.origin in ("agent_api", "agent_tool") and request.reason:
        return f"“{request.reason}”"
    return f"asked {request.asked_times} times" if request.asked_times > 1 else ""


def _group(
    parts: Parts, session: Session, who: SessionIdentity, rows: list[InboxRow], now: float
) -> dict[str, Any]:
    """Return the rows of one session. `ends` are the values of `parts/session_end.html`."""
    return {
        "session_id": session.id,
        "who": who,
        "ends": request_cards.session_end(parts, session),
        "left": format_duration(remaining_s(session, now)),
        "rows": sorted(rows, key=lambda row: row.urgency),
    }


def _urgency(request: Request, now: float) -> tuple[int, float]:
    """What is held comes first, by what runs out first; what nobody waits for any more last."""
    if request.hold_until is None:
        return (1, request.asked_at)
    return (0, request.hold_until) if request.hold_until > now else (2, request.asked_at)


def _first(parts: Parts, groups: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """Return as many as the list holds, and how many rows that leaves out."""
    shown: list[dict[str, Any]] = []
    room = MOST_ROWS
    for one in groups:
        if room > 0:
            rows = [_redacted(parts, row) for row in one["rows"][:room]]
            shown.append(one | {"rows": rows})
        room -= len(one["rows"])
    return shown, max(0, -room)


def _chips(rows: Sequence[InboxRow], show: str) -> list[tuple[str, str, str, int]]:
    """Return the filters: their value, name and icon, and how many rows each keeps."""
    found = [("all", "All", "", len(rows))]
    found.append(("flagged", "Flagged", "alert", sum(bool(row.flags) for row in rows)))
    for one in get_args(Category):
        number = sum(row.category == one for row in rows)
        words = action_words.WORDS[one]
        found.append((one, words.label, words.icon, number))
    return [one for one in found if one[3] or one[0] in ("all", show)]


def _answered(parts: Parts) -> list[InboxRow]:
    """Return what was answered last, newest first."""
    now = parts.clock.now()
    return [_redacted(parts, _row(one, now)) for one in parts.queue.last_answered(MOST_ANSWERED)]
