"""Cards of requests: values, parts of pages, answers of "yes", "no" and "always".

Values are plain data for the templates, no markup, no decision. Secrets are redacted here, once
more than before storage; `render` makes deceptive characters visible, for every value. It must
never shorten what would take effect without saying so: a person approves what the card shows. A
refused answer is shown in the card's place with status 200, since htmx leaves a page unchanged on
an error status.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Annotated, Any, Literal

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from supervisor.base.event_loop import slices
from supervisor.core.actions import Category, FileChange, Packages
from supervisor.core.approvals import Answer, Request, last_printed, status
from supervisor.core.files.change_card import ChangeCard
from supervisor.core.files.line_comments import read_comments, reason_with
from supervisor.core.policy.category import Candidate
from supervisor.core.sessions import Session, job_words
from supervisor.core.text.duration import format_duration
from supervisor.errors import ChangedError, GatehouseError, NotFoundError, UserError
from supervisor.parts import Parts
from supervisor.server.common.action_words import install_words
from supervisor.server.common.request_views import RequestView, request_view
from supervisor.server.common.views import clock_text, identity_of, listed, shown, shown_data
from supervisor.server.operator import decisions, rules_view
from supervisor.server.operator.change_views import card_without_secrets, change
from supervisor.server.operator.operator_api import (
    AnyRequest,
    CallBody,
    Id,
    Limit,
    Text,
    caller,
    parts_of,
)
from supervisor.server.operator.pages import page_frame
from supervisor.server.operator.pages.page_frame import Form
from supervisor.server.operator.pages.told_page import told, undo_of
from supervisor.server.operator.rules_view import RulePreview, preview_of_proposal
from supervisor.server.operator.shown_changes import Seen, card_of, is_folded, seen_word
from supervisor.sessions.session_output import as_text, complete_part

type YesOrNo = Literal["allow", "deny"]
MOST_REASON_CHARS = 500
MOST_AT_ONCE = 1000
# Requests answered by a new rule that are returned completely; and views made before others have a
# turn.
MOST_ALSO = 100
IN_TURN = 20
RuleText = Annotated[str, msgspec.Meta(min_length=1, max_length=4000)]
Lasts = Annotated[str, msgspec.Meta(min_length=1, max_length=40)]
_LASTING = (
    ("15m", "15 min"),
    ("1h", "1 h"),
    ("24h", "24 h"),
    ("session", "this session"),
    ("always", "always"),
)
_ANSWER_OF: dict[YesOrNo, Answer] = {"allow": "approved", "deny": "denied"}


class AnswerBody(CallBody, frozen=True, kw_only=True):
    """`fingerprint` is that of the request as it was shown; without it nothing is answered.
    `always` is the text of a rule to save, without its list's name.

    `lasts` is how long that rule holds: `always`, `session`, or a duration such as `15m`.
    `with_scripts`: an approved install may run its install scripts. `seen`: the word that came with
    the complete changed file (`RequestDetail`); a folded change needs it to be approved.
    """

    reason: Text = ""
    fingerprint: str = ""
    always: RuleText | None = None
    lasts: Lasts = "always"
    with_scripts: bool = False
    seen: Seen = ""


class BulkBody(CallBody, frozen=True, kw_only=True):
    """`shown` maps the id of each shown request to its fingerprint: exactly these are answered, or
    none. `ids` alone don't say what was shown, so they answer nothing."""

    category: Category
    answer: Answer
    shown: Annotated[dict[str, str], msgspec.Meta(max_length=MOST_AT_ONCE)] = {}
    ids: Annotated[list[str], msgspec.Meta(max_length=MOST_AT_ONCE)] = []
    reason: Text = ""


class AnsweredView(msgspec.Struct, frozen=True, kw_only=True):
    """`also` are the first of the other waiting requests that the saved rule answered; `saved_in`
    is the rule's file."""

    request: RequestView
    rule_id: str | None
    saved_in: str | None
    also: list[RequestView]
    also_count: int


class RequestDetail(msgspec.Struct, frozen=True, kw_only=True):
    """`card` has the workspace's facts about a changed file: its diff, and whether it still
    applies. `preview` is for a proposed rule. `seen` is sent back with the approval of a change
    that pages fold (`is_folded`): this answer has the whole change."""

    request: RequestView
    card: Any
    preview: RulePreview | None
    seen: str
    is_folded: bool


# -- JSON -----------------------------------------------------------------------------------------


@get("/api/requests", sync_to_thread=False)
def list_requests(
    request: AnyRequest,
    filter_status: Annotated[
        Literal["pending", "ready", "all"], QueryParameter(name="status")
    ] = "pending",
    session_id: FromQuery[str | None] = None,
    limit: Limit = 200,
    without_large_sets: FromQuery[bool] = False,
) -> list[RequestView]:
    """Return requests that wait for an answer: first those whose agent still waits, each group
    oldest first. `ready`: those that may be carried out; `all`: any, newest first.

    `without_large_sets` leaves out those that `/api/changes` has.
    """
    parts = parts_of(request)
    if filter_status == "pending":
        large = list(request.app.state["change_sets"].large()) if without_large_sets else []
        found = parts.queue.pending_but(large, session_id, limit=limit, now=parts.clock.now())
    elif filter_status == "ready":
        found = parts.queue.ready(session_id)
    else:
        found = (
            parts.queue.newest(limit)
            if session_id is None
            else parts.queue.of_session(session_id, limit)
        )
    return [request_view(one, parts) for one in listed(found[:limit])]


@get("/api/requests/{request_id:str}")
async def get_request(request: AnyRequest, request_id: Id) -> RequestDetail:
    """Return one request, with what the workspace shows of it while it waits."""
    parts = parts_of(request)
    found = parts.queue.get(request_id)
    card = await card_of(parts, found)
    return RequestDetail(
        request=request_view(found, parts),
        card=None if card is None else await asyncio.to_thread(_as_shown, card, parts),
        preview=rules_view.preview_of_proposal(parts, found),
        seen=seen_word(found),
        is_folded=card is not None and is_folded(card),
    )


def _as_shown(card: ChangeCard, parts: Parts) -> Any:
    return shown_data(msgspec.to_builtins(card_without_secrets(card, parts)), parts.redactor)


@post("/api/requests/{request_id:str}/approve", status_code=200)
async def approve(request: AnyRequest, request_id: Id, data: JSONBody[AnswerBody]) -> AnsweredView:
    """Approve a request. With `always`, save an allow rule, which also answers other matching
    requests."""
    return await _answer(request, request_id, "approved", data)


@post("/api/requests/{request_id:str}/deny", status_code=200)
async def deny(request: AnyRequest, request_id: Id, data: JSONBody[AnswerBody]) -> AnsweredView:
    """Deny a request. With `always`, save a deny rule, which also answers other matching
    requests."""
    return await _answer(request, request_id, "denied", data)


async def _answer(
    request: AnyRequest, request_id: str, given: Answer, data: AnswerBody
) -> AnsweredView:
    parts = parts_of(request)
    said = msgspec.structs.asdict(data)
    done = await decisions.answer(parts, request_id, given, by=caller(request).name, **said)
    return AnsweredView(
        request=request_view(done.request, parts),
        rule_id=done.rule_id,
        saved_in=done.saved_in and shown(done.saved_in, parts.redactor),
        also=await views_of(parts, done.also[:MOST_ALSO]),
        also_count=len(done.also),
    )


async def views_of(parts: Parts, requests: Sequence[Request]) -> list[RequestView]:
    """Return views, made in portions: one takes a third of a millisecond."""
    return [request_view(one, parts) async for part in slices(requests, IN_TURN) for one in part]


@get("/api/requests/{request_id:str}/suggestions", sync_to_thread=False)
def suggestions(
    request: AnyRequest, request_id: Id, effect: FromQuery[Literal["allow", "deny"]]
) -> list[Candidate]:
    """Return the rules that "always" offers, the default first; empty where it may not be
    offered."""
    return decisions.suggestions(parts_of(request), request_id, effect)


@post("/api/requests/bulk", status_code=200)
async def bulk(request: AnyRequest, data: JSONBody[BulkBody]) -> list[RequestView]:
    """Answer requests of a category: exactly those that were shown, or none. An approval leaves out
    changed files that need a separate look. Return the answered requests."""
    parts = parts_of(request)
    done = await decisions.answer_shown(
        parts,
        request.app.state["change_sets"],
        data.answer,
        by=caller(request).name,
        shown=data.shown,
        category=data.category,
        reason=data.reason,
    )
    return await views_of(parts, done.answered)


# -- cards ----------------------------------------------------------------------------------------


@post("/requests/{request_id:str}/{answer:str}", include_in_schema=False, status_code=200)
async def answer(
    request: AnyRequest, request_id: Id, answer: FromPath[Answer], data: Form
) -> Response[str]:
    """Approve or deny. Return the card as it is afterwards, also if somebody else was faster."""
    parts = parts_of(request)
    doing = decisions.answer(
        parts,
        request_id,
        answer,
        by=caller(request).name,
        reason=_reason(parts.queue.get(request_id), data) if answer == "denied" else "",
        fingerprint=data.get("fingerprint", ""),
        with_scripts=data.get("with_scripts") == "yes",
        seen=data.get("seen", ""),
    )
    return await card_after(parts, request_id, doing)


def _reason(request: Request, data: dict[str, str]) -> str:
    """Return why a request is denied: what the person wrote, and their comments on lines."""
    reason = data.get("reason", "").strip()[:MOST_REASON_CHARS]
    if not isinstance(request.action, FileChange):
        return reason
    return reason_with(reason, request.action.path, read_comments(data.get("comments", "")))


@get("/requests/{request_id:str}/always/{effect:str}", include_in_schema=False)
async def always(
    request: AnyRequest,
    request_id: Id,
    effect: FromPath[YesOrNo],
    lasts: FromQuery[str] = "always",
) -> Response[str]:
    """Return the rules that could be saved, and for how long. Nothing is saved yet."""
    return await _always(parts_of(request), request_id, effect, filled={"lasts": lasts})


@post("/requests/{request_id:str}/always/{effect:str}", include_in_schema=False, status_code=200)
async def save_always(
    request: AnyRequest, request_id: Id, effect: FromPath[YesOrNo], data: Form
) -> Response[str]:
    """Save the chosen rule and answer. On an error, the form shows it, and nothing was answered."""
    parts = parts_of(request)
    rule = (data.get("rule") or data.get("own", "")).strip()
    try:
        if effect == "allow" and parts.card_extras(parts.queue.get(request_id)).get("has_act"):
            raise UserError(
                "what is posted is chosen on the card", "post it there, and add a rule on Rules"
            )
        if not rule:
            raise UserError("no rule was chosen", "choose one, or write your own")
        done = await decisions.answer(
            parts,
            request_id,
            _ANSWER_OF[effect],
            by=caller(request).name,
            fingerprint=data.get("fingerprint", ""),
            always=rule,
            lasts=data.get("lasts", "always"),
            seen=data.get("seen", ""),
        )
    except NotFoundError:
        raise
    except GatehouseError as error:
        if isinstance(error, ChangedError) or status(parts.queue.get(request_id)) != "pending":
            return await card_part(parts, request_id, error)
        return await _always(parts, request_id, effect, error=str(error), filled=data)
    # The page learns of the other answered requests by itself: there can be thousands.
    answered = await card_part(parts, done.request.id)
    return told(answered, parts, [done.request.id], rule_id=done.rule_id or "")


@get("/parts/printed/{request_id:str}", include_in_schema=False, sync_to_thread=True)
def printed_part(request: AnyRequest, request_id: Id) -> Response[str]:
    """Return what a request that is carried out printed last."""
    parts = parts_of(request)
    lines = _last_lines(parts, parts.queue.get(request_id))
    return page_frame.html("parts/printed.html", lines=lines)


async def card_after(parts: Parts, request_id: str, doing: Awaitable[object]) -> Response[str]:
    """Answer a request. Return its card as it is then, with why the answer didn't count; where the
    answer gives another request, the card of that."""
    try:
        done = await doing
    except NotFoundError:
        raise
    except GatehouseError as error:
        return await card_part(parts, request_id, error)
    about = done.id if isinstance(done, Request) else request_id
    return told(await card_part(parts, about), parts, [about])


async def card_part(
    parts: Parts, request_id: str, refused: GatehouseError | None = None
) -> Response[str]:
    """Return a request's card as it is now; `refused`: above it stands why an answer didn't count.
    It may still wait, or somebody else was faster."""
    values = await card(parts, parts.queue.get(request_id), str(refused) if refused else "")
    return page_frame.html("parts/card.html", refused, **values)


async def _always(
    parts: Parts,
    request_id: str,
    effect: YesOrNo,
    *,
    error: str = "",
    filled: dict[str, str] | None = None,
) -> Response[str]:
    """Return the form of "always". `filled` is the form as it was sent, if it is shown again with
    an error."""
    sent = filled or {}
    found = parts.queue.get(request_id)
    if status(found) != "pending":
        return _put(await card_part(parts, request_id), "#pane", "outerHTML")
    offered = [
        (one, rules_view.preview_of_rule(parts, effect, one.rule, leaving_out=request_id))
        for one in decisions.suggestions(parts, request_id, effect)
    ]
    chosen = sent.get("rule", "") if error else (offered[0][0].rule if offered else "")
    view = request_view(found, parts)
    form = page_frame.html(
        "parts/always.html",
        card=view,
        effect=effect,
        offered=offered,
        chosen=chosen,
        own=sent.get("own") or (offered[0][0].rule if offered else f"{view.category}()"),
        error=error,
        lasting=_LASTING,
        saved_in=str(parts.gate.rulings.policies_of(found.session_id).saved_file),
        lasts=sent.get("lasts", "always"),
    )
    return _put(form, f"[id='always-{request_id}'] .always", "innerHTML")


def _put(answer: Response[str], target: str, swap: str) -> Response[str]:
    """Tell the page where an answer goes, whatever had been asked for."""
    answer.set_header("HX-Retarget", target)
    answer.set_header("HX-Reswap", swap)
    return answer


async def card(parts: Parts, request: Request, problem: str = "") -> dict[str, Any]:
    """Return the values of `parts/card.html`: the request's view, and what only its card shows. The
    diff is made only for a waiting request."""
    view = request_view(request, parts)
    session = parts.sessions.get(request.session_id)
    is_waiting = view.status == "pending"
    has_change = is_waiting and isinstance(request.action, FileChange)
    return {
        "card": view,
        "problem": problem,
        "undo": None if is_waiting else undo_of(parts, [request]),
        "last_lines": await asyncio.to_thread(_last_lines, parts, request),
        "asked_text": clock_text(request.asked_at),
        "held_left": format_duration((request.hold_until or 0) - parts.clock.now()),
        "held_share": _held_share(request, parts),
        "ends": session_end(parts, session),
        "is_standing": session.kind == "standing",
        "who": identity_of(parts, session),
        "change": await change(parts, request) if has_change else None,
        "has_conflict": has_change and "conflict" in getattr(request.action, "hazards", ()),
        "install": _install(parts, request) if is_waiting else None,
        "has_push": is_waiting and bool(getattr(request.action, "updates", ())),
        "proposed": _proposed(parts, request) if is_waiting and view.width else [],
        **parts.card_extras(request),
    }


def _last_lines(parts: Parts, request: Request) -> str:
    """Return what it printed last: so far, while it runs."""
    if request.settled_at is not None:
        return shown(last_printed(request.outcome), parts.redactor)
    out, err = (
        as_text(complete_part(one, is_final=False), parts.redactor)
        for one in parts.gate.printing.printed(request.id)
    )
    return last_printed({"stdout": out, "stderr": err})


def _held_share(request: Request, parts: Parts) -> int:
    """Return how much of the time is left in which the agent waits, in percent."""
    if request.hold_until is None:
        return 0
    whole = max(1.0, request.hold_until - request.asked_at)
    return round(100 * max(0.0, min(1.0, (request.hold_until - parts.clock.now()) / whole)))


def _install(parts: Parts, request: Request) -> dict[str, Any] | None:
    """Return what an install would do, in words, or None where it is none."""
    if not isinstance(request.action, Packages) or not request.action.index:
        return None
    said = install_words(request.action, parts.clock.now())
    found: dict[str, Any] = parts.redactor.data(msgspec.to_builtins(said))
    return found


def job_in_short(parts: Parts, session: Session) -> str:
    """Return the outcome of a session's job, and its cost; empty where there is none yet."""
    said = job_words(session)
    return f"{said}; {parts.spending.cost_words(session)}" if said else ""


def session_end(parts: Parts, session: Session) -> dict[str, Any]:
    """Return until when a session's requests can be answered, for `parts/session_end.html`."""
    return {
        # A standing one has no end that anybody waits for.
        "deadline_at": None if session.kind == "standing" else session.deadline_at,
        "is_paused": session.paused_at is not None,
        "left_until": session.ended_at and session.ended_at + parts.settings.keep_left_s,
    }


def _proposed(parts: Parts, request: Request) -> list[tuple[str, str]]:
    """Return what a proposed rule would have answered before, and what it would answer now."""
    seen = preview_of_proposal(parts, request)
    if seen is None:
        return []
    waiting = (
        f"{seen.waiting.count}: {'; '.join(seen.waiting.titles)}" if seen.waiting.count else ""
    )
    against = "; ".join(seen.against.titles)
    said = [
        ("on record", seen.summary),
        ("you had answered these the other way", against),
        ("waiting, answered by it", waiting),
    ]
    return [(label, value) for label, value in said if value]
