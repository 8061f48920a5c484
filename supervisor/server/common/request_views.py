"""One request as the operator sees it: the value that pages render, and JSON and the CLI print.

Every text passes `view_of`: secrets are redacted once more than before storage, and deceptive
characters are made visible (law 6). Nothing is shortened: a person approves what is shown.
"""

import unicodedata
from collections.abc import Sequence
from typing import Any

import msgspec

from supervisor.core.actions import (
    Action,
    Category,
    Effect,
    Exec,
    Git,
    Network,
    Proposal,
    category_of,
    title,
)
from supervisor.core.approvals import (
    Answer,
    Origin,
    Request,
    Status,
    explanation,
    failure,
    is_settled,
    last_printed,
    status,
)
from supervisor.core.policy.policy_text import parse_rule
from supervisor.errors import PolicyError
from supervisor.parts import Parts
from supervisor.server.common import action_words
from supervisor.server.common.action_words import Flag
from supervisor.server.common.views import view_of

MOST_ODD_LETTERS = 4
# Longer actions are read alone.
MOST_TOGETHER_CHARS = 4096
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


class RequestView(msgspec.Struct, frozen=True, kw_only=True):
    """A request with all that is said about it. `fingerprint` is sent back with the answer, so that
    the answer is for what was shown. Times are seconds since the epoch.

    `title` is the exact action, `heading` what would happen, `question` what an answer answers,
    `approve_words` what its button says.
    `flags` are reasons to look twice while it waits, `details` labels and values that the title
    lacks. `asked_because` is why it was asked, `why` the reason for its present status. `state` is
    the status as pages name it: waiting, held, doing, done, undone, failed, denied, expired or
    superseded.
    `may_always`: whether a rule may be made of the answer (law 9); `sticky_why`: else why not.
    `delivery`: in words what came of a yes, `failure`: why that failed, `printed`: what it printed
    last then. `width`: how wide a proposed rule is, in words; else empty.
    """

    id: str
    session_id: str
    origin: Origin
    status: Status
    state: str
    state_words: str
    category: Category
    kind: str
    icon: str
    title: str
    heading: str
    question: str
    approve_words: str
    action: dict[str, Any]
    fingerprint: str
    decision: Effect
    asked_because: str
    why: str
    rule: str | None
    remedy: str
    reason: str
    flags: tuple[Flag, ...]
    details: tuple[tuple[str, str], ...]
    may_always: bool
    sticky_why: str
    width: str
    asked_at: float
    asked_times: int
    hold_until: float | None
    answer: Answer | None
    answered_at: float | None
    answered_by: str | None
    answer_reason: str
    superseded_by: str | None
    settled: bool
    outcome: dict[str, Any] | None
    delivery: str
    failure: str
    printed: str


def request_view(request: Request, parts: Parts) -> RequestView:
    """Return a request as the operator sees it."""
    action, current = request.action, status(request)
    category = category_of(action)
    state, state_words = state_of(request, parts.clock.now())
    why_failed = failure(request)
    return view_of(
        RequestView,
        request,
        parts.redactor,
        status=current,
        state=state,
        state_words=state_words,
        category=category,
        kind=action_words.WORDS[category].one,
        icon=action_words.WORDS[category].icon,
        title=title(action),
        heading=action_words.heading(action),
        question=action_words.question(action),
        approve_words=action_words.approve_words(action),
        asked_because=request.why,
        why=explanation(request),
        flags=flags_of(request) if current == "pending" else (),
        details=action_words.details(action),
        may_always=may_always(request),
        sticky_why=_sticky_why(request),
        width=width_of(action),
        settled=is_settled(request),
        delivery=action_words.delivery(request),
        failure=why_failed,
        printed=last_printed(request.outcome) if why_failed else "",
    )


def flags_of(request: Request) -> tuple[Flag, ...]:
    """Return what a person must not overlook, what leaves the machine first."""
    found = list(action_words.flags(request.action))
    noted = (
        ("how wide", width_of(request.action)),
        ("letters that can pass for others", odd_letters(title(request.action))),
        ("not possible", request.reason if request.held_up else ""),
    )
    found += [Flag(name, note, "alert", is_red=False) for name, note in noted if note]
    return tuple(found)


def alone_why(request: Request, flags: Sequence[Flag]) -> str:
    """Return why a request is only approved on its own card: what is flagged, what a rule asks
    every time, and what one line doesn't show whole. Empty where several are approved together.
    `flags` are those of `flags_of`."""
    if names := ", ".join(flag.name for flag in flags):
        return names
    action = request.action
    if request.sticky:
        return "asked every time"
    if isinstance(action, Git) and not action.updates:
        return ""
    if not isinstance(action, Exec | Network):
        return "what it would do is on its own card"
    return "too long to be read with others" if len(title(action)) > MOST_TOGETHER_CHARS else ""


def may_always(request: Request) -> bool:
    """Return whether "always" may be offered: not for requests of a written ask rule, nor for a
    change of the policy itself (law 9).
    """
    return (
        status(request) == "pending"
        and not request.sticky
        and category_of(request.action) != "sandbox"
    )


def _sticky_why(request: Request) -> str:
    match category_of(request.action):
        case "sandbox":
            return "a change of the policy is always yours to decide"
        case "budget":
            return "money is always yours to decide"
    if not request.sticky:
        return ""
    if request.rule:
        return f"{request.why} ({request.rule})"
    return "no rule can allow this; approving it holds once"


def width_of(action: Action) -> str:
    """Return how wide a proposed rule is, in words; empty for other requests and for an invalid
    rule.
    """
    if not isinstance(action, Proposal):
        return ""
    from supervisor.core.policy.categories import width

    try:
        return width(parse_rule(action.rule, action.effect))
    except PolicyError:
        return ""


def state_of(request: Request, now: float) -> tuple[str, str]:
    """Return a request's state as pages name it, and in words."""
    current = status(request)
    match current:
        case "pending":
            is_held = request.hold_until is not None and request.hold_until > now
            return ("held", "held") if is_held else ("waiting", "waits for you")
        case "denied":
            return "denied", "denied by you" if request.answer else "denied by a rule"
        case "expired" | "superseded":
            return current, current
    if failure(request):
        return "failed", "failed"
    if (request.outcome or {}).get("taken_back"):
        return "undone", "undone"
    words = action_words.delivery(request)
    is_done = current == "used" and (request.settled_at is not None or words == "let through")
    return ("done", words or "done") if is_done else ("doing", words or "approved")


def odd_letters(text: str) -> str:
    """Return a text's letters that look like others, spelled out, such as a Cyrillic one in a host
    name. Empty where there are none."""
    found: list[str] = []
    for char in dict.fromkeys(text):
        if len(found) > MOST_ODD_LETTERS:
            break
        if char.isascii() or unicodedata.category(char)[0] in "CZ":
            continue  # controls, marks and odd spaces are spelled out where they stand
        name = unicodedata.name(char, "unnamed character")
        if name.startswith("FULLWIDTH") or not name.startswith(_PLAIN_SCRIPTS):
            found.append(f"{char} is {name.lower()} (U+{ord(char):04X})")
    return ", ".join(found[:MOST_ODD_LETTERS]) + (
        " and more" if len(found) > MOST_ODD_LETTERS else ""
    )
