"""Requests and changed files for the pages: plain data for the templates, no markup, no decision.

Secrets are redacted here, once more than before storage; deceptive characters are made visible
by `render`, for every value. It must never shorten what would take effect without saying so: a
person approves what the card shows.
"""

import asyncio
import unicodedata
from collections.abc import Callable
from typing import Any

import msgspec

from supervisor.core.actions import (
    CATEGORIES,
    Category,
    FileChange,
    Packages,
    category_of,
    subject,
    title,
)
from supervisor.core.approvals import Request, explanation, failure, last_printed, status
from supervisor.core.sessions import Session, job_words
from supervisor.core.text.duration import format_duration
from supervisor.server.common import action_words
from supervisor.server.common.install_words import install_words
from supervisor.server.common.parts import Parts
from supervisor.server.common.views import clock_text, may_always, width_of
from supervisor.server.operator.change_views import change
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


class DiffTime:
    """How long the diffs of one answer may take. An agent chooses what is compared, so a page
    may not wait for all of it."""

    def __init__(self, parts: Parts) -> None:
        self._clock = parts.clock
        self._until = parts.clock.monotonic() + DIFFS_S

    def is_left(self) -> bool:
        """Return whether another diff may be begun."""
        return self._clock.monotonic() < self._until


async def card(parts: Parts, request: Request, budget: DiffTime | None = None) -> dict[str, Any]:
    """A request as its card. The diff is only made for what still waits, and where the budget is
    spent when it comes into view. Of many long ones each leaves the loop to others (law 14)."""
    await asyncio.sleep(0)
    is_now = status(request) == "pending" and (budget is None or budget.is_left())
    return card_with(parts, request, await change(parts, request) if is_now else None, budget)


def card_with(
    parts: Parts,
    request: Request,
    change: dict[str, Any] | None = None,
    budget: DiffTime | None = None,
) -> dict[str, Any]:
    """The same with a diff that was made, or without one."""
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
        "workspace_name": session_name(session),
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
    """What an install would do, in words; None where it is none."""
    if not isinstance(request.action, Packages) or not request.action.index:
        return None
    said = install_words(request.action, parts.clock.now())
    found: dict[str, Any] = parts.redactor.data(msgspec.to_builtins(said))
    return found


async def sections(parts: Parts, requests: list[Request]) -> list[dict[str, Any]]:
    """A section for every category, in order, also for those that nothing waits in; the cards in
    the order of the requests."""
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
    """The letters in a text that can pass for others, spelled out: such as a Cyrillic one in a
    host name. Empty where there are none."""
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
    """Return what came of a session's job, and what it cost; empty where there is none yet."""
    said = job_words(session)
    return f"{said}; {parts.spending.cost_words(session)}" if said else ""


def session_end(parts: Parts, session: Session) -> dict[str, Any]:
    """Return until when what a session asks can be answered, for `parts/session_end.html`."""
    return {
        "deadline_at": session.deadline_at,
        "is_paused": session.paused_at is not None,
        "left_until": session.ended_at and session.ended_at + parts.settings.keep_left_s,
    }


def session_name(session: Session) -> str:
    """Return what people call its project; of a standing session, its repository."""
    if session.kind == "standing":
        return session.command[-1]
    return project_name(session.workspace)


def project_name(workspace: str) -> str:
    """Return the last part of a workspace's path; the path itself where that is empty (`/`)."""
    return workspace.rstrip("/").rpartition("/")[2] or workspace


def _status_word(request: Request) -> str:
    if request.in_part:
        return "approved in part"
    word = request.answer or ("allowed" if request.decision == "allow" else status(request))
    return f"{word}, failed" if failure(request) else word


def _about(request: Request) -> str:
    """Return what a newer card is about, too, that takes this one's place on the page, or
    follows it; empty where none does."""
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
