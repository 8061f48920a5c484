"""Cards of requests: values, parts of pages, answers of "yes", "no" and "always".

Values are plain data for the templates, no markup, no decision. Secrets are redacted here, once
more than before storage; `render` makes deceptive characters visible, for every value. It must
never shorten what would take effect without saying so: a person approves what the card shows. A
refused answer is shown in the card's place with status 200, since htmx leaves a page unchanged on
an error status.
"""

import asyncio
import unicodedata
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.types import ControllerRouterHandler

from supervisor.core.actions import (
    CATEGORIES,
    Category,
    FileChange,
    Packages,
    category_of,
    subject,
    title,
)
from supervisor.core.approvals import Answer, Request, explanation, failure, last_printed, status
from supervisor.core.files.change_tree import FEW_CHANGES
from supervisor.core.sessions import Session, job_words
from supervisor.core.text.duration import format_duration
from supervisor.errors import ChangedError, GatehouseError, NotFoundError, UserError
from supervisor.parts import Parts
from supervisor.server.common import action_words
from supervisor.server.common.action_words import install_words
from supervisor.server.common.views import (
    clock_text,
    identity_of,
    listed,
    may_always,
    width_of,
)
from supervisor.server.operator import decisions, rules_view
from supervisor.server.operator.change_views import change, further
from supervisor.server.operator.operator_api import AnyRequest, caller, live_of, parts_of
from supervisor.server.operator.pages import page_frame
from supervisor.server.operator.pages.page_frame import Form
from supervisor.server.operator.rules_view import preview_of_proposal

# Cards that a page starts with. The rest is fetched when these are answered: 500 diffs at once help
# nobody.
MOST_CARDS = 60
MOST_ODD_LETTERS = 4
DIFFS_S = 0.2
_STATUS_CLASS = {
    "approved": "good",
    "used": "good",
    "allowed": "good",
    "denied": "bad",
    "expired": "bad",
}
# Scripts that nobody mistakes for Latin, however many of their letters a text has.
_PLAIN_SCRIPTS = (
    "LATIN",
    "CJK",
    "HIRAGANA",
    "KATAKANA",
    "HANGUL",
    "ARABIC",
    "HEBREW",
    "DEVANAGARI",
    "THAI",
)
REQUEST_ROWS = 100
type YesOrNo = Literal["allow", "deny"]
MOST_REASON_CHARS = 500
_LASTING = (
    ("always", "until you remove it"),
    ("session", "until this session ends"),
    ("15m", "for 15 minutes"),
    ("1h", "for an hour"),
    ("24h", "for a day"),
)
_ANSWER_OF: dict[YesOrNo, Answer] = {"allow": "approved", "deny": "denied"}


class DiffTime:
    """Time limit for the diffs of one answer. An agent chooses what is compared, so a page may not
    wait for all of it."""

    def __init__(self, parts: Parts) -> None:
        self._clock = parts.clock
        self._until = parts.clock.monotonic() + DIFFS_S

    def is_left(self) -> bool:
        """Return whether there is time for another diff."""
        return self._clock.monotonic() < self._until


@get("/parts/cards", include_in_schema=False)
async def cards_part(request: AnyRequest, ids: FromQuery[str]) -> Response[str]:
    """Return the cards with these ids, comma-separated, as they are now. Unknown ones are left
    out."""
    parts = parts_of(request)
    found = [parts.queue.find(one) for one in ids.split(",")[:MOST_CARDS]]
    budget = DiffTime(parts)
    cards = [await card(parts, one, budget) for one in found if one is not None]
    return await asyncio.to_thread(page_frame.html, "parts/some_cards.html", cards=cards)


@get("/parts/change/{request_id:str}", include_in_schema=False)
async def change_part(request: AnyRequest, request_id: FromPath[str]) -> Response[str]:
    """Return the whole diff of a card."""
    parts = parts_of(request)
    return page_frame.html(
        "parts/change.html", change=await change(parts, parts.queue.get(request_id), whole=True)
    )


@get("/parts/change/{request_id:str}/rows", include_in_schema=False)
async def change_rows_part(
    request: AnyRequest, request_id: FromPath[str], start: Annotated[int, QueryParameter(ge=0)]
) -> Response[str]:
    """Return the part of a long change that begins at this row."""
    parts = parts_of(request)
    found = await further(parts, parts.queue.get(request_id), start)
    if found is None:
        raise NotFoundError("this change has no more lines", "look at the card as it is now")
    return page_frame.html("parts/change_rows.html", change=found)


@get("/parts/requests/{session_id:str}", include_in_schema=False, sync_to_thread=False)
def requests_part(request: AnyRequest, session_id: FromPath[str]) -> Response[str]:
    return page_frame.html("parts/requests.html", answered=answered(parts_of(request), session_id))


@post("/requests/{request_id:str}/{answer:str}", include_in_schema=False, status_code=200)
async def answer(
    request: AnyRequest, request_id: FromPath[str], answer: FromPath[Answer], data: Form
) -> Response[str]:
    """Approve or deny. Return the card as it is afterwards, also if somebody else was faster."""
    parts = parts_of(request)
    try:
        await decisions.answer(
            parts,
            request_id,
            answer,
            by=caller(request).name,
            reason=data.get("reason", "").strip()[:MOST_REASON_CHARS] if answer == "denied" else "",
            fingerprint=data.get("fingerprint", ""),
            with_scripts=data.get("with_scripts") == "yes",
            seen=data.get("seen", ""),
        )
    except NotFoundError:
        raise
    except GatehouseError as error:
        return await _unanswered(parts, request_id, error)
    return page_frame.html(
        "parts/some_cards.html", cards=[await card(parts, parts.queue.get(request_id))]
    )


@get("/requests/{request_id:str}/always/{effect:str}", include_in_schema=False)
async def always(
    request: AnyRequest,
    request_id: FromPath[str],
    effect: FromPath[YesOrNo],
    lasts: FromQuery[str] = "always",
) -> Response[str]:
    """Return the rules that could be saved, and for how long. Nothing is saved yet."""
    return await _always(parts_of(request), request_id, effect, filled={"lasts": lasts})


@post("/requests/{request_id:str}/always/{effect:str}", include_in_schema=False, status_code=200)
async def save_always(
    request: AnyRequest, request_id: FromPath[str], effect: FromPath[YesOrNo], data: Form
) -> Response[str]:
    """Save the chosen rule and answer. On an error, the form shows it, and nothing was answered."""
    parts = parts_of(request)
    rule = (data.get("rule") or data.get("own", "")).strip()
    try:
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
        if isinstance(error, ChangedError):
            return await _unanswered(parts, request_id, error)
        return await _always(parts, request_id, effect, error=str(error), filled=data)
    live_of(request).policy_changed()
    # The page learns of the other answered requests by itself: there can be thousands.
    return page_frame.html("parts/some_cards.html", cards=[await card(parts, done.request)])


@post("/bulk/{category:str}/{answer:str}", include_in_schema=False, status_code=200)
async def bulk(
    request: AnyRequest, category: FromPath[Category], answer: FromPath[Answer], data: Form
) -> Response[str]:
    """Answer all requests of a category that the page showed, `id:fingerprint` each; newer ones
    stay. If one has changed by now, none is answered, and each card says so. Changes that an
    approval left out show the reason."""
    parts = parts_of(request)
    shown = dict(one.split(":", 1) for one in data.get("shown", "").split(",") if ":" in one)
    try:
        sets = request.app.state["change_sets"]
        done = await decisions.answer_category(
            parts, sets, category, answer, by=caller(request).name, shown=shown
        )
    except UserError as error:
        return await _cards(parts, list(shown)[:MOST_CARDS], error)
    why = {one: f"left out, answer it alone: {note}" for one, note in done.left_out.items()}
    return await _cards(parts, list(shown)[:MOST_CARDS], left_out=why)


async def _unanswered(parts: Parts, request_id: str, error: GatehouseError) -> Response[str]:
    """Return the card as it is, and above it why the answer didn't count: it still waits, or
    somebody else was faster."""
    return await _cards(parts, [request_id], error)


async def _cards(
    parts: Parts,
    request_ids: list[str],
    error: GatehouseError | None = None,
    left_out: Mapping[str, str] | None = None,
) -> Response[str]:
    """Return cards as they are now, each with its error if there is one."""
    budget = DiffTime(parts)
    said = dict.fromkeys(request_ids, str(error)) if error is not None else left_out or {}
    shown = [
        await card(parts, one, budget) | ({"error": said[one.id]} if one.id in said else {})
        for one in parts.queue.get_all(request_ids)
    ]
    return page_frame.html("parts/some_cards.html", error, cards=shown)


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
        return page_frame.html("parts/some_cards.html", cards=[await card(parts, found)])
    offered = [
        (one, rules_view.preview_of_rule(parts, effect, one.rule, leaving_out=request_id))
        for one in decisions.suggestions(parts, request_id, effect)
    ]
    chosen = sent.get("rule", "") if error else (offered[0][0].rule if offered else "")
    shown_card = await card(parts, found)
    return page_frame.html(
        "parts/always.html",
        card=shown_card,
        effect=effect,
        offered=offered,
        chosen=chosen,
        own=sent.get("own") or (offered[0][0].rule if offered else f"{shown_card['category']}()"),
        error=error,
        lasting=_LASTING,
        saved_in=str(parts.gate.rulings.policies_of(found.session_id).saved_file),
        lasts=sent.get("lasts", "always"),
    )


async def cards(parts: Parts, session_id: str | None = None) -> dict[str, Any]:
    """Return the values of `parts/cards.html`: what waits, of one session if it is given."""
    large = {
        one: number for one, number in parts.queue.waiting_changes().items() if number > FEW_CHANGES
    }
    now = parts.clock.now()
    waiting = parts.queue.pending_but(list(large), session_id, limit=MOST_CARDS + 1, now=now)
    first = listed(waiting[:MOST_CARDS])
    more = 0
    if len(first) < len(waiting):
        known = parts.queue.pending_ids_but(list(large), session_id, now=now)
        more = max(0, len(known) - len(first))
    here = {one: number for one, number in large.items() if session_id in (None, one)}
    return {"sections": await sections(parts, first), "more": more, "change_sets": here}


def answered(parts: Parts, session_id: str) -> list[dict[str, Any]]:
    """Return a session's requests that no longer wait, newest first."""
    asked = parts.queue.of_session(session_id, REQUEST_ROWS)
    found = listed(one for one in asked if status(one) != "pending")
    return [card_with(parts, one) for one in found]


async def card(parts: Parts, request: Request, budget: DiffTime | None = None) -> dict[str, Any]:
    """Return a request as its card. The diff is made only for waiting requests; if the budget is
    spent, it is made when it comes into view. Between many long cards the loop serves others (law
    14)."""
    await asyncio.sleep(0)
    is_now = status(request) == "pending" and (budget is None or budget.is_left())
    return card_with(parts, request, await change(parts, request) if is_now else None, budget)


def card_with(
    parts: Parts,
    request: Request,
    change: dict[str, Any] | None = None,
    budget: DiffTime | None = None,
) -> dict[str, Any]:
    """Return the same with a finished diff, or without one."""
    redact = parts.redactor.text
    current = status(request)
    category = category_of(request.action)
    session = parts.sessions.get(request.session_id)
    text = redact(title(request.action))
    width = width_of(request.action) if current == "pending" else ""
    has_change = current == "pending" and isinstance(request.action, FileChange)
    return {
        "id": request.id,
        "category": category,
        "label": action_words.LABELS[category],
        "asks": action_words.asks(request.action),
        "title": text,
        "warnings": [
            *action_words.warnings(request.action),
            *([("how wide", redact(width))] if width else []),
            *_text_warnings(text),
            *_problems(request, redact),
        ],
        "details": [(label, redact(value)) for label, value in action_words.details(request.action)]
        + (_proposed(parts, request, budget) if width else []),
        "status": current,
        "status_word": _status_word(request),
        "status_class": "bad" if failure(request) else _STATUS_CLASS.get(current, ""),
        "why": redact(request.why),
        "explanation": redact(explanation(request)),
        "reason": "" if _problems(request, redact) else redact(request.reason),
        "rule": redact(request.rule or ""),
        "may_always": may_always(request),
        "sticky_why": _sticky_why(request),
        "asked_times": request.asked_times,
        "asked_at": request.asked_at,
        "asked_text": clock_text(request.asked_at),
        "hold_until": request.hold_until,
        "held_left": format_duration((request.hold_until or 0) - parts.clock.now()),
        "ends": session_end(parts, session),
        "is_standing": session.kind == "standing",
        "fingerprint": request.fingerprint,
        "session_id": request.session_id,
        "origin": request.origin,
        "who": identity_of(parts, session),
        "change": change,
        "has_later_change": has_change and change is None,
        "has_conflict": has_change and "conflict" in getattr(request.action, "hazards", ()),
        "install": _install(parts, request) if current == "pending" else None,
        "has_push": current == "pending" and bool(getattr(request.action, "updates", ())),
        "delivery": redact(action_words.delivery(request)),
        "printed": redact(last_printed(request.outcome)) if failure(request) else "",
        "superseded_by": request.superseded_by or "",
        "about": _about(request),
        **parts.card_extras(request),
    }


def _install(parts: Parts, request: Request) -> dict[str, Any] | None:
    """Return what an install would do, in words, or None where it is none."""
    if not isinstance(request.action, Packages) or not request.action.index:
        return None
    said = install_words(request.action, parts.clock.now())
    found: dict[str, Any] = parts.redactor.data(msgspec.to_builtins(said))
    return found


async def sections(parts: Parts, requests: list[Request]) -> list[dict[str, Any]]:
    """Return a section for every category, in order, including empty ones; cards are in the order
    of the requests."""
    budget = DiffTime(parts)
    cards: dict[Category, list[dict[str, Any]]] = {category: [] for category in CATEGORIES}
    for request in requests:
        cards[category_of(request.action)].append(await card(parts, request, budget))
    return [
        {
            "category": category,
            "label": action_words.LABELS[category],
            "cards": found,
        }
        for category, found in cards.items()
    ]


def odd_letters(text: str) -> str:
    """Return a text's letters that look like others, spelled out, such as a Cyrillic one in a host
    name. Empty where there are none."""
    found = []
    for char in dict.fromkeys(text):
        if char.isascii() or unicodedata.category(char)[0] in "CZ":
            continue  # controls, marks and odd spaces are spelled out where they stand
        name = unicodedata.name(char, "unnamed character")
        if name.startswith("FULLWIDTH") or not name.startswith(_PLAIN_SCRIPTS):
            found.append(f"{char} is {name.lower()} (U+{ord(char):04X})")
    more = len(found) - MOST_ODD_LETTERS
    return ", ".join(found[:MOST_ODD_LETTERS]) + (f" and {more} more" if more > 0 else "")


def job_in_short(parts: Parts, session: Session) -> str:
    """Return the outcome of a session's job, and its cost; empty where there is none yet."""
    said = job_words(session)
    return f"{said}; {parts.spending.cost_words(session)}" if said else ""


def session_end(parts: Parts, session: Session) -> dict[str, Any]:
    """Return until when a session's requests can be answered, for `parts/session_end.html`."""
    return {
        "deadline_at": session.deadline_at,
        "is_paused": session.paused_at is not None,
        "left_until": session.ended_at and session.ended_at + parts.settings.keep_left_s,
    }


def _status_word(request: Request) -> str:
    if request.in_part:
        return "approved in part"
    word = request.answer or ("allowed" if request.decision == "allow" else status(request))
    return f"{word}, failed" if failure(request) else word


def _about(request: Request) -> str:
    """Return the subject by which a newer card takes this one's place on the page, or follows it;
    empty where there is none."""
    is_followed = status(request) == "pending" or request.superseded_by or request.in_part
    return (
        f"{request.session_id} {subject(request.action)}"
        if is_followed and isinstance(request.action, FileChange)
        else ""
    )


def _problems(request: Request, redact: Callable[[str], str]) -> list[tuple[str, str]]:
    return [("not possible", redact(request.reason))] if request.held_up else []


def _proposed(parts: Parts, request: Request, budget: DiffTime | None) -> list[tuple[str, str]]:
    """Return what a proposed rule would have answered before, and what it would answer now."""
    if budget is not None and not budget.is_left():
        return [("on record", "not counted: there are too many cards at once")]
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


def _text_warnings(text: str) -> list[tuple[str, str]]:
    return [("letters that can pass for others", odd)] if (odd := odd_letters(text)) else []


def _sticky_why(request: Request) -> str:
    if category_of(request.action) == "sandbox":
        return "a change of the policy is always yours to decide"
    if category_of(request.action) == "budget":
        return "money is always yours to decide"
    return (
        f"the rule {request.rule} says so"
        if request.rule
        else "no rule can allow this; approving it holds once"
    )


def handlers() -> list[ControllerRouterHandler]:
    """Return every route of this module."""
    return [
        cards_part,
        change_part,
        change_rows_part,
        requests_part,
        answer,
        always,
        save_always,
        bulk,
    ]
