"""Changed files for the pages: hunks with check boxes, types, images and flags.

The flags must not be overlooked. Plain data for `parts/change.html`, no markup, no decision; lines
are `server/common/diff_views.py`'s. Secrets are redacted here, once more than before storage;
`render` makes deceptive characters visible. It must never let a hunk be chosen that isn't
completely on the page.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from supervisor.core.actions import FileChange, FileStep
from supervisor.core.approvals import Request
from supervisor.core.files.change_card import HAZARD_NOTES, ChangeCard
from supervisor.core.files.changes import is_content
from supervisor.core.files.content_flags import LONG_LINE_CHARS, MOST_LINES, Flags, Layout
from supervisor.core.text.content_types import Image
from supervisor.core.text.display import visible
from supervisor.core.text.generated import generated_as
from supervisor.errors import NotFoundError
from supervisor.parts import Parts
from supervisor.server.common.diff_views import (
    NO_TEXTS,
    DiffView,
    Texts,
    colours_of,
    gap_rows,
    gaps_of,
    rows_in,
    view_of,
    without_secrets,
)
from supervisor.server.operator.shown_changes import (
    FIRST_ROWS,
    card_of,
    diffs_of,
    is_folded,
    part_from,
    seen_word,
    texts_in,
)

# A card of many files waits so long for their colours.
COLOURS_S = 3.0
_PROSE_ENDS = (".md", ".markdown")


class SideView(msgspec.Struct, frozen=True, kw_only=True):
    """Content that isn't shown as text, before (`old`) or after (`new`)."""

    label: str
    side: str
    facts: str
    hash: str
    image: Image | None


class ChangeView(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a file as pages show it. `warnings` are (name, note); `generated` says what kind
    of generated file it is; `may_render`: its Markdown can be shown rendered.

    `unseen`: it can't be shown, so it can't be approved. `seen`: the word to approve it with, once
    all of it is here. `is_beginning`: the rest is fetched in its place, else from row `next` on,
    where of a further part `left` rows follow; its `path` is set where it is of several files.
    """

    id: str
    path: str
    diff: DiffView = DiffView()
    is_new: bool = False
    is_gone: bool = False
    is_stale: bool = False
    notes: tuple[str, ...] = ()
    mark: str = ""
    generated: str = ""
    warnings: tuple[tuple[str, str], ...] = ()
    sides: tuple[SideView, ...] = ()
    may_choose: bool = False
    may_render: bool = False
    unseen: bool = False
    seen: str = ""
    next: int = 0
    left: int = 0
    is_beginning: bool = True
    facts: str = ""
    swap: "SwapView | None" = None


class SwapView(msgspec.Struct, frozen=True, kw_only=True):
    """What goes (`gone` paths) and comes (`made`) with a swapped path; `rows` of it are folded. Of
    `rest` the contents aren't read."""

    below: tuple[ChangeView, ...]
    rest: tuple[ChangeView, ...]
    gone: int
    made: int
    rows: int


async def change(
    parts: Parts, request: Request, *, whole: bool = False, may_choose: bool = True
) -> ChangeView | None:
    """Return what a request would change in a file, or None where it isn't about a file. Without
    `may_choose` it is answered as a whole."""
    if not isinstance(request.action, FileChange):
        return None
    shown = await card_of(parts, request)
    if shown is None:
        note = "what this would change can't be shown, so it can't be approved: deny it"
        return ChangeView(id=request.id, path="", notes=(note,), unseen=True)
    is_whole = whole and not shown.below
    most_rows = part_from(shown.diff, 0) if is_whole else FIRST_ROWS
    texts = await texts_in(parts, request, shown)
    made = await asyncio.to_thread(
        shown_change, parts, request.id, shown, most_rows=most_rows, texts=texts
    )
    is_all = not made.diff.hidden and (not shown.below or not is_folded(shown))
    may_choose = shown.may_choose and may_choose
    alone = (
        ("ticked changes alone leave the mode as it is",)
        if may_choose and shown.old_mode != shown.new_mode
        else ()
    )
    return msgspec.structs.replace(
        made,
        notes=(*made.notes, *alone),
        may_choose=may_choose,
        may_render=bool(texts.new) and shown.path.lower().endswith(_PROSE_ENDS),
        warnings=_warnings(shown),
        next=most_rows if is_whole else 0,
        is_beginning=not is_whole,
        seen=seen_word(request) if is_all else "",
        swap=await _swap(parts, request, shown),
    )


async def _swap(parts: Parts, request: Request, shown: ChangeCard) -> SwapView | None:
    """Return what is removed and added with a swapped path; None where it isn't swapped."""
    if shown.operation != "swap" or not isinstance(request.action, FileChange):
        return None
    views = await coloured_changes(parts, request.id, shown.below, most_rows=FIRST_ROWS)
    below = tuple(_below(parts, view, one) for view, one in zip(views, shown.below, strict=True))
    # The steps whose contents are read are shown here; the rest is only named.
    rest = request.action.steps[len(below) :]
    gone = sum(one.is_gone for one in below) + sum(step.operation == "delete" for step in rest)
    return SwapView(
        below=below,
        rest=tuple(_of_step(parts, request.id, step) for step in rest),
        gone=gone,
        made=len(below) + len(rest) - gone,
        rows=sum(rows_in(one.diff) for one in shown.below) if is_folded(shown) else 0,
    )


def _of_step(parts: Parts, change_id: str, step: FileStep) -> ChangeView:
    is_gone = step.operation == "delete"
    state = (step.before if is_gone else step.after) or ""
    return ChangeView(
        id=change_id,
        path=step.path,
        is_gone=is_gone,
        facts=parts.redactor.text(_what(state, None if is_gone else step.mode, step.link_target)),
        warnings=_hazards(step.hazards),
    )


def _hazards(hazards: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple((one, HAZARD_NOTES.get(one, "never allowed by a rule")) for one in hazards)


def _what(state: str, mode: int | None, target: str | None, size: int | None = None) -> str:
    """Return what a path is, in a few words; `state` is a token as in `before` and `after`."""
    what = "folder" if state == "dir" else "file" if is_content(state) else state.partition(":")[0]
    facts = [what if target is None else f"link -> {target}"]
    facts += [f"{size:,} bytes"] if size is not None else []
    return ", ".join([*facts, *([f"mode {mode & 0o7777:o}"] if mode is not None else [])])


def _below(parts: Parts, view: ChangeView, shown: ChangeCard) -> ChangeView:
    """Return one path below a swapped one, as a line and what it opens."""
    is_gone = shown.operation == "delete"
    state = (shown.before if is_gone else shown.after) or ""
    size = shown.old_size if is_gone else shown.new_size
    text = _what(state, None if is_gone else shown.new_mode, shown.link_target, size)
    return msgspec.structs.replace(
        view,
        facts=parts.redactor.text(text),
        warnings=(*_hazards(shown.hazards), *_warnings(shown)),
    )


async def coloured_changes(
    parts: Parts, change_id: str, cards: Sequence[ChangeCard], *, most_rows: int
) -> list[ChangeView]:
    """Return `shown_change` of each, in colours where only the differences are at hand. A card
    waits `COLOURS_S` for them: what comes later stays plain."""
    loop = asyncio.get_running_loop()
    until = loop.time() + COLOURS_S
    found = []
    for card in cards:
        texts = NO_TEXTS
        if loop.time() < until:
            texts = await colours_of(parts.renderer, card.path, card.diff)
        found.append(
            await asyncio.to_thread(
                shown_change, parts, change_id, card, most_rows=most_rows, texts=texts
            )
        )
    return found


def shown_change(
    parts: Parts,
    change_id: str,
    shown: ChangeCard,
    *,
    most_rows: int,
    texts: Texts = NO_TEXTS,
) -> ChangeView:
    """Return a card of a change for `parts/change.html`, with its first rows."""
    return ChangeView(
        id=change_id,
        path=shown.path,
        diff=view_of(shown.diff, parts.redactor.text, texts, most_rows=most_rows),
        is_new=shown.old_size is None and shown.new_size is not None,
        is_gone=shown.operation == "delete",
        is_stale=shown.is_stale,
        notes=tuple(parts.redactor.text(note) for note in _notes(shown)),
        mark=shown.mark,
        generated=generated_as(shown.path),
        sides=tuple(_sides(shown)),
    )


async def further(parts: Parts, request: Request, start: int) -> ChangeView | None:
    """Return the part of a change that begins at row `start`, counted over all its differences, for
    `parts/change_rows.html`; None where there is none."""
    card = await card_of(parts, request)
    if card is None:
        return None
    texts = await texts_in(parts, request, card)
    before = 0
    for path, diff in diffs_of(card):
        rows = rows_in(diff)
        if start < before + rows:
            end = min(part_from(diff, start - before), rows)
            left = sum(rows_in(one) for _, one in diffs_of(card)) - before - end
            redact = parts.redactor.text
            if card.below:
                texts = await colours_of(parts.renderer, path, diff)
            first = start - before
            return ChangeView(
                id=request.id,
                path=path if card.below else "",
                diff=await asyncio.to_thread(
                    view_of, diff, redact, texts, start=first, most_rows=end
                ),
                may_choose=card.may_choose,
                next=before + end,
                left=left,
                seen="" if left else seen_word(request),
            )
        before += rows
    return None


async def unchanged(parts: Parts, request: Request, number: int, start: int) -> dict[str, Any]:
    """Return the unchanged lines above hunk `number` (from 0), from the gap's line `start` on.
    Raise `NotFoundError` where there are none."""
    card = await card_of(parts, request)
    texts = await texts_in(parts, request, card) if card is not None else NO_TEXTS
    gaps = gaps_of(card.diff, texts) if card is not None else []
    gap = gaps[number] if number < len(gaps) else None
    if gap is None or start >= gap.lines:
        raise NotFoundError("there are no more lines here", "look at the card as it is now")
    rows, left = await asyncio.to_thread(gap_rows, gap, parts.redactor.text, texts, start)
    return {"id": request.id, "rows": rows, "left": left, "start": start + len(rows)}


async def rendered(parts: Parts, request: Request) -> list[tuple[str, str | None]]:
    """Return a Markdown file before and after, as HTML that loads and leads nowhere; None where it
    takes too long, or is too large."""
    card = await card_of(parts, request)
    texts = await texts_in(parts, request, card) if card is not None else NO_TEXTS
    if not texts.new and not texts.old:
        raise NotFoundError("this file can't be shown rendered", "look at its lines")
    shown = [
        (label, visible(parts.redactor.text("".join(lines))))
        for label, lines in (("before", texts.old), ("after", texts.new))
        if lines
    ]
    return [(label, await parts.renderer.prose(text)) for label, text in shown]


def card_without_secrets(shown: ChangeCard, parts: Parts) -> ChangeCard:
    """Return the card with redacted lines in its diff."""
    redact = parts.redactor.text
    hunks = tuple(
        msgspec.structs.replace(
            hunk,
            lines=tuple(
                msgspec.structs.replace(line, spans=without_secrets(line, redact))
                for line in hunk.lines
            ),
        )
        for hunk in shown.diff.hunks
    )
    below = tuple(card_without_secrets(one, parts) for one in shown.below)
    return msgspec.structs.replace(
        shown, below=below, diff=msgspec.structs.replace(shown.diff, hunks=hunks)
    )


def _warnings(shown: ChangeCard) -> tuple[tuple[str, str], ...]:
    return (*_of_flags(shown.flags), *_of_layout(shown.layout))


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


def _sides(shown: ChangeCard) -> list[SideView]:
    """Return what is said of content that isn't shown as text: before and after."""
    if shown.content not in ("binary", "large"):
        return []
    sides = [
        ("before", "old", shown.old_type, shown.old_size, shown.before, shown.old_image),
        ("after", "new", shown.new_type, shown.new_size, shown.after, shown.new_image),
    ]
    return [
        SideView(
            label=label,
            side=side,
            facts=", ".join(_facts(kind, size, image)),
            hash=digest or "",
            image=image,
        )
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
