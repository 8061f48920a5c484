"""Changed files for the pages: hunks with check boxes, types, images and flags.

The flags must not be overlooked. Plain data for `parts/change.html`, no markup, no decision.
Secrets are redacted here, once more than before storage; `render` makes deceptive characters
visible. It must never let a hunk be chosen that isn't completely on the page.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from supervisor.core.actions import FileChange, FileStep
from supervisor.core.approvals import Request
from supervisor.core.files.change_card import HAZARD_NOTES, ChangeCard
from supervisor.core.files.changes import is_content
from supervisor.core.files.content_flags import LONG_LINE_CHARS, MOST_LINES, Flags, Layout
from supervisor.core.files.text_diff import DiffLine, Hunk, TextDiff
from supervisor.core.text.content_types import Image
from supervisor.parts import Parts
from supervisor.server.operator.shown_changes import (
    FIRST_ROWS,
    card_of,
    diffs_of,
    is_folded,
    part_from,
    rows_in,
    rows_of,
    rows_of_hunk,
    seen_word,
)


async def change(parts: Parts, request: Request, *, whole: bool = False) -> dict[str, Any] | None:
    """Return what a request would change in a file, or None where it isn't about a file."""
    if not isinstance(request.action, FileChange):
        return None
    shown = await card_of(parts, request)
    if shown is None:
        return _no_change(request)
    is_whole = whole and not shown.below
    most_rows = part_from(shown.diff, 0) if is_whole else FIRST_ROWS
    made = shown_change(parts, request.id, shown, most_rows=most_rows)
    if shown.may_choose and shown.old_mode != shown.new_mode:
        made["notes"].append("ticked changes alone leave the mode as it is")
    below = [_below(parts, request.id, one) for one in shown.below]
    is_all = not made["hidden"] and (not shown.below or not is_folded(shown))
    # The steps whose contents are read are shown here; the rest is only named.
    rest = request.action.steps[len(below) :]
    return (
        made
        | {"may_choose": shown.may_choose, "warnings": _warnings(shown)}
        | {"next": most_rows if is_whole else 0, "is_beginning": not is_whole}
        | {"seen": seen_word(request) if is_all else ""}
        | _swap(parts, shown, below, rest)
    )


def _swap(
    parts: Parts, shown: ChangeCard, below: list[dict[str, Any]], rest: Sequence[FileStep]
) -> dict[str, Any]:
    """Return what is removed and added with a swapped path; empty where it isn't swapped."""
    if shown.operation != "swap":
        return {}
    gone = sum(one["is_gone"] for one in below) + sum(step.operation == "delete" for step in rest)
    return {
        "below": below,
        "rest": [_of_step(parts, step) for step in rest],
        "gone": gone,
        "made": len(below) + len(rest) - gone,
        "rows_below": sum(rows_in(one.diff) for one in shown.below) if is_folded(shown) else 0,
    }


def _of_step(parts: Parts, step: FileStep) -> dict[str, Any]:
    """Return the text about a path below a swapped one whose content isn't read."""
    is_gone = step.operation == "delete"
    state = (step.before if is_gone else step.after) or ""
    return {
        "path": step.path,
        "is_gone": is_gone,
        "facts": parts.redactor.text(
            _what(state, None if is_gone else step.mode, step.link_target)
        ),
        "warnings": [
            (one, HAZARD_NOTES.get(one, "never allowed by a rule")) for one in step.hazards
        ],
    }


def _what(state: str, mode: int | None, target: str | None, size: int | None = None) -> str:
    """Return what a path is, in a few words; `state` is a token as in `before` and `after`."""
    what = "folder" if state == "dir" else "file" if is_content(state) else state.partition(":")[0]
    facts = [what if target is None else f"link -> {target}"]
    facts += [f"{size:,} bytes"] if size is not None else []
    return ", ".join([*facts, *([f"mode {mode & 0o7777:o}"] if mode is not None else [])])


def _below(parts: Parts, change_id: str, shown: ChangeCard) -> dict[str, Any]:
    """Return one path below a swapped one, as a line and what it opens."""
    made = shown_change(parts, change_id, shown, most_rows=FIRST_ROWS)
    is_gone = shown.operation == "delete"
    state = (shown.before if is_gone else shown.after) or ""
    size = shown.old_size if is_gone else shown.new_size
    hazards = [(one, HAZARD_NOTES.get(one, "never allowed by a rule")) for one in shown.hazards]
    text = _what(state, None if is_gone else shown.new_mode, shown.link_target, size)
    return made | {
        "is_gone": is_gone,
        "facts": parts.redactor.text(text),
        "warnings": [*hazards, *_warnings(shown)],
    }


def shown_change(
    parts: Parts, change_id: str, shown: ChangeCard, *, most_rows: int
) -> dict[str, Any]:
    """Return a card of a change for `parts/change.html`, with its first rows."""
    hunks, hidden = shown_hunks(parts, shown.diff, most_rows=most_rows)
    return {
        "id": change_id,
        "path": shown.path,
        "added": shown.diff.added,
        "removed": shown.diff.removed,
        "is_new": shown.old_size is None and shown.new_size is not None,
        "is_stale": shown.is_stale,
        "notes": [parts.redactor.text(note) for note in _notes(shown)],
        "mark": shown.mark,
        "warnings": [],
        "sides": _sides(shown),
        "may_choose": False,
        "hunks": hunks,
        "number": len(shown.diff.hunks),
        "lines": rows_in(shown.diff),
        "chars": sum(len(line.text) for hunk in shown.diff.hunks for line in hunk.lines),
        "hidden": hidden,
        "unseen": False,
        "seen": "",
        "next": 0,
        "is_beginning": True,
    }


async def further(parts: Parts, request: Request, start: int) -> dict[str, Any] | None:
    """Return the part of a change that begins at row `start`, counted over all its differences, for
    `parts/change_rows.html`; None where there is none."""
    card = await card_of(parts, request)
    if card is None:
        return None
    before = 0
    for path, diff in diffs_of(card):
        rows = rows_in(diff)
        if start < before + rows:
            end = min(part_from(diff, start - before), rows)
            hunks, _ = shown_hunks(parts, diff, start=start - before, most_rows=end)
            left = sum(rows_in(one) for _, one in diffs_of(card)) - before - end
            return {
                "id": request.id,
                "path": path if card.below else "",
                "hunks": hunks,
                "may_choose": card.may_choose,
                "number": len(diff.hunks),
                "next": before + end,
                "left": left,
                "seen": "" if left else seen_word(request),
            }
        before += rows
    return None


def shown_hunks(
    parts: Parts, diff: TextDiff, *, most_rows: int, start: int = 0
) -> tuple[list[dict[str, Any]], int]:
    """Return the rows of a difference from `start` up to `most_rows` in their hunks, and how many
    more there are."""
    hunks: list[dict[str, Any]] = []
    at = 0
    for number, hunk in enumerate(diff.hunks, 1):
        rows = rows_of_hunk(hunk)
        if at + rows > start and at < most_rows:
            hunks.append(_hunk(parts, number, hunk, max(0, start - at), most_rows - at))
        at += rows
    return hunks, max(0, at - most_rows)


def _hunk(parts: Parts, number: int, hunk: Hunk, first: int, end: int) -> dict[str, Any]:
    """Return a hunk. `number` is its number on the command line. It may be chosen if all of it is
    on the page."""
    shown: list[dict[str, Any]] = []
    at = 0
    for line in hunk.lines:
        count = rows_of(line)
        if at + count > first and at < end:
            shown += _rows(parts, line, count)[max(0, first - at) : end - at]
        at += count
    return {
        "id": hunk.id,
        "number": number,
        "header": hunk.header if first == 0 else f"{hunk.header}, continued",
        "is_whole": first == 0 and at <= end,
        "lines": shown,
    }


def _rows(parts: Parts, line: DiffLine, count: int) -> list[dict[str, Any]]:
    """Return a line as shown: in one row, or without highlights in several."""
    facts = {"kind": line.kind, "old": line.old_number, "new": line.new_number}
    spans = _redacted(line.text, line.spans, parts)
    if count == 1:
        return [facts | {"spans": spans}]
    text = "".join(one for one, _ in spans)
    chars = -(-len(text) // count)
    cut = [text[at * chars : (at + 1) * chars] for at in range(count)]
    more = {"kind": line.kind, "old": None, "new": None}
    return [(more if at else facts) | {"spans": [(one, False)]} for at, one in enumerate(cut)]


def _redacted(
    text: str, spans: tuple[tuple[str, bool], ...], parts: Parts
) -> list[tuple[str, bool]]:
    """Return the spans of a line. A secret may cross two of them, so a line with one is shown
    without highlights."""
    whole = parts.redactor.text(text)
    return list(spans) if whole == text else [(whole, False)]


def without_secrets(shown: ChangeCard, parts: Parts) -> ChangeCard:
    """Return the card with redacted lines in its diff."""
    hunks = tuple(
        msgspec.structs.replace(
            hunk,
            lines=tuple(
                msgspec.structs.replace(line, spans=tuple(_redacted(line.text, line.spans, parts)))
                for line in hunk.lines
            ),
        )
        for hunk in shown.diff.hunks
    )
    below = tuple(without_secrets(one, parts) for one in shown.below)
    return msgspec.structs.replace(
        shown, below=below, diff=msgspec.structs.replace(shown.diff, hunks=hunks)
    )


def _no_change(request: Request) -> dict[str, Any]:
    note = "what this would change can't be shown, so it can't be approved: deny it"
    facts: dict[str, Any] = {
        "id": request.id,
        "path": "",
        "added": 0,
        "removed": 0,
        "is_new": False,
        "is_stale": False,
    }
    facts |= {"notes": [note], "mark": "", "warnings": [], "sides": [], "may_choose": False}
    return facts | {
        "hunks": [],
        "number": 0,
        "lines": 0,
        "chars": 0,
        "hidden": 0,
        "unseen": True,
        "seen": "",
    }


def _warnings(shown: ChangeCard) -> list[tuple[str, str]]:
    return [*_of_flags(shown.flags), *_of_layout(shown.layout)]


def _of_layout(layout: Layout) -> list[tuple[str, str]]:
    found = []
    if layout.long:
        found.append(
            ("very long lines", f"{_lines(layout.long)}, of more than {LONG_LINE_CHARS} characters")
        )
    if layout.blank:
        found.append(
            ("runs of blanks", f"from {_lines(layout.blank)} on, with what follows far off")
        )
    return found


def _of_flags(flags: Flags) -> list[tuple[str, str]]:
    found = []
    if flags.secret:
        found.append(
            ("secret", f"this adds something that looks like a secret ({_lines(flags.secret)})")
        )
    if flags.hidden:
        where = _lines(flags.hidden)
        has = "have" if len(flags.hidden) > 1 else "has"
        note = f"{where} {has} some, or some that change the order of others: they are spelled out"
        found.append(("characters that don't show", note))
    return found


def _lines(numbers: tuple[int, ...]) -> str:
    more = " and more" if len(numbers) == MOST_LINES else ""
    return f"line{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}{more}"


def _notes(shown: ChangeCard) -> list[str]:
    hazards = {
        HAZARD_NOTES.get(hazard) for hazard in shown.hazards
    }  # these have a place of their own
    notes = [note for note in shown.notes if note not in hazards]
    if shown.content == "large":
        notes.append("too large to be shown")
    elif shown.content == "text" and not shown.diff.hunks:
        notes.append("an empty file" if shown.new_size == 0 else "the content stays as it is")
    if replaced := _replaced(shown):
        notes.append(replaced)
    return [*notes, *_mode_note(shown)]


def _mode_note(shown: ChangeCard) -> list[str]:
    old, new = shown.old_mode, shown.new_mode
    if old is None or new is None or old == new or shown.operation == "swap":
        return []
    return [mode_words(old & 0o7777, new & 0o7777)]


def _replaced(shown: ChangeCard) -> str:
    """Return which other kind of entry is at this path now."""
    before = shown.before or ""
    if shown.operation == "swap":
        return ""  # the title says it
    if before.startswith("symlink:") and shown.operation != "delete":
        return "a symbolic link is there now; it is replaced, and what it points to stays"
    if (
        shown.operation == "symlink"
        and shown.before is not None
        and not before.startswith("symlink:")
    ):
        return "a file is there now; the link takes its place"
    return ""


def mode_words(old: int, new: int) -> str:
    """Return a change of permissions in words."""
    said = []
    for bit, words in ((0o111, "be executed"), (0o022, "be changed by others than its owner")):
        if bool(old & bit) != bool(new & bit):
            said.append(f"it can {'now' if new & bit else 'no longer'} {words}")
    return f"mode {old:o} becomes {new:o}" + (f": {', '.join(said)}" if said else "")


def _sides(shown: ChangeCard) -> list[dict[str, Any]]:
    """Return what is said of content that isn't shown as text: before and after."""
    if shown.content not in ("binary", "large"):
        return []
    sides = [
        ("before", "old", shown.old_type, shown.old_size, shown.before, shown.old_image),
        ("after", "new", shown.new_type, shown.new_size, shown.after, shown.new_image),
    ]
    return [
        {
            "label": label,
            "side": side,
            "facts": ", ".join(_facts(kind, size, image)),
            "hash": digest or "",
            "image": image,
        }
        for label, side, kind, size, digest, image in sides
        if size is not None
    ]


def _facts(kind: str, size: int | None, image: Image | None) -> list[str]:
    facts = [kind or "not read", f"{size:,} bytes"]
    return (
        [*facts[:1], f"{image.width} by {image.height} pixels", *facts[1:]]
        if image is not None
        else facts
    )
