"""What the pages show of requests and changed files: plain data for the templates, no markup, no decision.

Secrets are redacted here, once more than before storage; deceptive characters are made visible by `render`, for every value.
It must never shorten what would take effect without saying so: a person approves what the card shows.
"""

import unicodedata
from typing import Any

import structlog

from supervisor.core.actions import CATEGORIES, Category, FileChange, category_of, title
from supervisor.core.approvals import Request, explanation, status
from supervisor.core.change_card import HAZARD_NOTES, ChangeCard
from supervisor.core.text_diff import DiffLine, TextDiff
from supervisor.server import action_words
from supervisor.server.parts import Parts
from supervisor.server.time_words import clock_text
from supervisor.server.views import may_always

log = structlog.get_logger("pages")

# Cards that a page starts with. The rest is fetched when these are answered: 500 diffs at once help nobody.
MOST_CARDS = 60
# Lines of a diff on a card before "show all".
FIRST_LINES = 60
MOST_ODD_LETTERS = 4
DIFFS_S = 0.2
_LONG_LINES, _LONG_CHARS = 14, 1200
_STATUS_CLASS = {"approved": "good", "used": "good", "allowed": "good", "denied": "bad", "expired": "bad"}
# Scripts that nobody mistakes for Latin, however many of their letters a text has.
_PLAIN_SCRIPTS = ("LATIN", "CJK", "HIRAGANA", "KATAKANA", "HANGUL", "ARABIC", "HEBREW", "DEVANAGARI", "THAI")


class Budget:
    """How long the diffs of one answer may take. An agent chooses what is compared, so a page may not wait for all of it."""

    def __init__(self, parts: Parts) -> None:
        self._clock = parts.clock
        self._until = parts.clock.monotonic() + DIFFS_S

    def is_left(self) -> bool:
        """Whether another diff may be begun."""
        return self._clock.monotonic() < self._until


def card(parts: Parts, request: Request, budget: Budget | None = None) -> dict[str, Any]:
    """A request as its card. The diff is only made for what still waits, and where the budget is spent when it comes into view."""
    redact = parts.redactor.text
    current = status(request)
    category = category_of(request.action)
    session = parts.sessions.get(request.session_id)
    text = redact(title(request.action))
    has_change = current == "pending" and isinstance(request.action, FileChange)
    is_now = has_change and (budget is None or budget.is_left())
    return {
        "id": request.id,
        "category": category,
        "label": action_words.LABELS[category],
        "asks": action_words.asks(request.action),
        "title": text,
        "warnings": [*action_words.warnings(request.action), *_text_warnings(text)],
        "details": [(label, redact(value)) for label, value in action_words.details(request.action)],
        "status": current,
        "status_word": request.answer or ("allowed" if request.decision == "allow" else current),
        "status_class": _STATUS_CLASS.get(current, ""),
        "why": redact(request.why),
        "explanation": redact(explanation(request)),
        "reason": redact(request.reason),
        "rule": redact(request.rule or ""),
        "may_always": may_always(request),
        "sticky_why": _sticky_why(request),
        "asked_times": request.asked_times,
        "asked_at": request.asked_at,
        "asked_text": clock_text(request.asked_at),
        "hold_until": request.hold_until,
        "deadline_at": session.deadline_at,
        "fingerprint": request.fingerprint,
        "session_id": request.session_id,
        "workspace_name": workspace_name(session.workspace),
        "change": change(parts, request) if is_now else None,
        "has_later_change": has_change and not is_now,
        "has_conflict": has_change and "conflict" in getattr(request.action, "hazards", ()),
        "delivery": redact(action_words.delivery(request)),
    }


def sections(parts: Parts, requests: list[Request]) -> list[dict[str, Any]]:
    """A section for every category, in order, also for those that nothing waits in; the cards oldest first."""
    budget = Budget(parts)
    cards: dict[Category, list[dict[str, Any]]] = {category: [] for category in CATEGORIES}
    for request in requests[:MOST_CARDS]:
        cards[category_of(request.action)].append(card(parts, request, budget))
    return [
        {"category": category, "label": action_words.LABELS[category], "cards": found}
        for category, found in cards.items()
    ]


def change(parts: Parts, request: Request, *, whole: bool = False) -> dict[str, Any] | None:
    """What a request would change in a file; None where it is about no file, or its session is gone."""
    workspace = parts.workspace_of(request.session_id)
    if workspace is None or not isinstance(request.action, FileChange):
        return None
    try:
        shown: ChangeCard = workspace.card(request)
    except Exception as error:  # one card that can't be compared must not take the inbox away
        log.warning("no change to show", request=request.id, error=str(error))
        return _no_change(request)
    return shown_change(parts, request.id, shown, most_lines=None if whole else FIRST_LINES)


def shown_change(parts: Parts, change_id: str, shown: ChangeCard, *, most_lines: int | None) -> dict[str, Any]:
    """A card of a change for `parts/change.html`, with its first lines, or all of them."""
    lines = [(hunk.header, line) for hunk in shown.diff.hunks for line in hunk.lines]
    kept = lines[:most_lines]
    return {
        "id": change_id,
        "path": shown.path,
        "added": shown.diff.added,
        "removed": shown.diff.removed,
        "is_new": shown.old_size is None and shown.new_size is not None,
        "is_stale": shown.is_stale,
        "notes": [parts.redactor.text(note) for note in _notes(shown)],
        "hunks": _hunks(kept, parts),
        "lines": len(lines),
        "hidden": len(lines) - len(kept),
    }


def shown_hunks(parts: Parts, diff: TextDiff, *, most_lines: int) -> tuple[list[dict[str, Any]], int]:
    """The first lines of a difference in their hunks, and how many more there are."""
    lines = [(hunk.header, line) for hunk in diff.hunks for line in hunk.lines]
    return _hunks(lines[:most_lines], parts), max(0, len(lines) - most_lines)


def _no_change(request: Request) -> dict[str, Any]:
    note = "what this would change can't be shown: deny it, or look at the workspace yourself"
    facts: dict[str, Any] = {"id": request.id, "path": "", "added": 0, "removed": 0, "is_new": False, "is_stale": False}
    return facts | {"notes": [note], "hunks": [], "lines": 0, "hidden": 0}


def odd_letters(text: str) -> str:
    """The letters in a text that can pass for others, spelled out: such as a Cyrillic one in a host name. Empty where there are none."""
    found = []
    for char in dict.fromkeys(text):
        if char.isascii() or unicodedata.category(char)[0] in "CZ":
            continue  # controls, marks and odd spaces are spelled out where they stand
        name = unicodedata.name(char, "unnamed character")
        if name.startswith("FULLWIDTH") or not name.startswith(_PLAIN_SCRIPTS):
            found.append(f"{char} is {name.lower()} (U+{ord(char):04X})")
    more = len(found) - MOST_ODD_LETTERS
    return ", ".join(found[:MOST_ODD_LETTERS]) + (f" and {more} more" if more > 0 else "")


def workspace_name(path: str) -> str:
    """The last part of a path: what people call a project."""
    return path.rstrip("/").rpartition("/")[2] or path


def _text_warnings(text: str) -> list[tuple[str, str]]:
    found = []
    lines = text.count("\n") + 1
    if lines > _LONG_LINES or len(text) > _LONG_CHARS:
        found.append(("long", f"{lines:,} lines, {len(text):,} characters: scroll to read all of it"))
    if odd := odd_letters(text):
        found.append(("letters that can pass for others", odd))
    return found


def _sticky_why(request: Request) -> str:
    if category_of(request.action) == "sandbox":
        return "a change of the policy is always yours to decide"
    return f"the rule {request.rule} says so" if request.rule else "no rule can allow this; approving it holds once"


def _notes(shown: ChangeCard) -> list[str]:
    hazards = {HAZARD_NOTES.get(hazard) for hazard in shown.hazards}  # these have a place of their own
    notes = [note for note in shown.notes if note not in hazards]
    if shown.content in ("binary", "large"):
        kind = "binary content" if shown.content == "binary" else "too large to be shown"
        notes.append(f"{kind}: {_size(shown.old_size)} before, {_size(shown.new_size)} after")
        notes.append(f"BLAKE2b of the new content: {shown.after or 'none'}")
    elif shown.truncated:
        notes.append("too long to be shown whole: lines are left out or cut")
    elif shown.content == "text" and not shown.diff.hunks:
        notes.append("an empty file" if shown.new_size == 0 else "the content stays as it is")
    if shown.new_mode is not None and shown.old_mode is not None and shown.new_mode != shown.old_mode:
        notes.append(f"mode {shown.old_mode & 0o7777:o} becomes {shown.new_mode & 0o7777:o}")
    return notes


def _hunks(lines: list[tuple[str, DiffLine]], parts: Parts) -> list[dict[str, Any]]:
    hunks: list[dict[str, Any]] = []
    for header, line in lines:
        if not hunks or hunks[-1]["header"] != header:
            hunks.append({"header": header, "lines": []})
        hunks[-1]["lines"].append(
            {
                "kind": line.kind,
                "old": line.old_number,
                "new": line.new_number,
                "spans": _redacted(line, parts),
            }
        )
    return hunks


def _redacted(line: DiffLine, parts: Parts) -> list[tuple[str, bool]]:
    """The spans of a line. A secret may lie across two of them, so a line that holds one is shown without highlights."""
    whole = parts.redactor.text(line.text)
    return list(line.spans) if whole == line.text else [(whole, False)]


def _size(size: int | None) -> str:
    return "nothing" if size is None else f"{size:,} bytes"
