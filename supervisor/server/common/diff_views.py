"""Differences of texts as pages show them: coloured rows, changed words, and what lies between.

`templates/diff.html` renders them: `diff.hunks(view)`, and `diff.file(view)` with a head around it.
For something at a line (a finding, a comment) give `at`, and call with a block:
`{% call(thing) diff.hunks(view) %} ... {% endcall %}` puts the block below each line that has one.
Everything is redacted here, and each character that deceives is spelled out. It must never show a
row that `core/files/text_diff.py` didn't give.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from markupsafe import Markup, escape

from supervisor.base.renderer import Colours
from supervisor.core.files.text_diff import (
    DiffLine,
    Hunk,
    LineKind,
    Span,
    TextDiff,
    space_only,
    split_lines,
)
from supervisor.core.text.display import visible

# A longer line takes several rows.
ROW_CHARS = 2000
# Unchanged lines that are shown at once.
GAP_ROWS = 1000
# A difference further down a file has no colours where the whole text isn't at hand.
MOST_COLOURED_LINES = 20_000
# How far above a hunk its section is looked for, and how much of its head is shown.
_SECTION_LINES = 500
_SECTION_CHARS = 80
_SIGNS: dict[LineKind, str] = {"added": "+", "removed": "\N{MINUS SIGN}"}
_CSS: dict[LineKind, str] = {"added": "add", "removed": "rem"}
_END_OF_LINE = Markup('<span class="blanks" title="this line ends in CR LF">CR</span>')

type Redact = Callable[[str], str]


class Painter(Protocol):
    """What colours texts: `base/renderer.py`."""

    async def colours(self, path: str, text: str) -> Colours: ...


class Texts(NamedTuple):
    """Both sides of a difference as a whole, for what its hunks leave out: lines between them, and
    colours that depend on what stands above."""

    old: Sequence[str] = ()
    new: Sequence[str] = ()
    old_colours: Colours = ()
    new_colours: Colours = ()


NO_TEXTS = Texts()


class DiffRow(NamedTuple):
    """A line, or a part of a long one. `code` is its text as markup; `things` stand below it.
    `is_space`: it differs from the other side in white space only."""

    kind: LineKind
    old: int | None
    new: int | None
    text: str
    code: Markup
    is_space: bool = False
    things: tuple[Any, ...] = ()

    @property
    def sign(self) -> str:
        return _SIGNS.get(self.kind, "")

    @property
    def at(self) -> str:
        """Return its place: `n12` for line 12 as it becomes, `o11` for line 11 as it was."""
        number = self.old if self.kind == "removed" else self.new
        return f"{'o' if self.kind == 'removed' else 'n'}{number}" if number is not None else ""

    @property
    def css(self) -> str:
        return f"{_CSS.get(self.kind, self.kind)}{' space' if self.is_space else ''}"


class Gap(NamedTuple):
    """Unchanged lines that aren't shown: `lines` of them, after `old` and `new` lines. `number` is
    that of the hunk below, from 0."""

    number: int
    old: int
    new: int
    lines: int


class HunkView(NamedTuple):
    """Rows of a hunk. `number` counts from 1; `is_whole`: all its rows are here; `gap` is above;
    `section` is the head of what it stands in, where that can be told."""

    id: str
    number: int
    header: str
    span: str
    is_whole: bool
    is_continued: bool
    rows: tuple[DiffRow, ...]
    gap: Gap | None
    section: str = ""


class DiffView(NamedTuple):
    """A difference, or a part of it. `rows` counts those of the whole, `hidden` those that follow;
    `number` is how many hunks there are; `tail` is what is unchanged below the last one.
    `is_crlf`: every line ends in CR LF, so it stands at none."""

    added: int = 0
    removed: int = 0
    hunks: tuple[HunkView, ...] = ()
    number: int = 0
    rows: int = 0
    chars: int = 0
    hidden: int = 0
    tail: Gap | None = None
    is_crlf: bool = False

    @property
    def shown(self) -> int:
        """Return the row that follows those that are here."""
        return self.rows - self.hidden


async def texts_of(painter: Painter, path: str, old: bytes, new: bytes) -> Texts:
    """Return two contents with their colours; nothing where one isn't text."""
    try:
        old_text, new_text = old.decode(), new.decode()
    except UnicodeDecodeError:
        return NO_TEXTS
    colours = await asyncio.gather(painter.colours(path, old_text), painter.colours(path, new_text))
    return Texts(split_lines(old_text), split_lines(new_text), *colours)


async def colours_of(painter: Painter, path: str, found: TextDiff) -> Texts:
    """Return the colours of a difference whose texts aren't at hand: of its lines, as far as they
    can be told without what stands between. Nothing where its lines stand far down a file."""
    lines = [line for hunk in found.hunks for line in hunk.lines if line.kind != "note"]
    sides = []
    for numbered in (
        {line.old_number: line.text for line in lines if line.old_number is not None},
        {line.new_number: line.text for line in lines if line.new_number is not None},
    ):
        last = max(numbered, default=0)
        if last > MOST_COLOURED_LINES:
            return NO_TEXTS
        text = "\n".join(numbered.get(number, "") for number in range(1, last + 1))
        sides.append(await painter.colours(path, text))
    return Texts(old_colours=sides[0], new_colours=sides[1])


def view_of(
    found: TextDiff,
    redact: Redact,
    texts: Texts = NO_TEXTS,
    *,
    most_rows: int,
    start: int = 0,
    at: Mapping[int, Sequence[Any]] | None = None,
) -> DiffView:
    """Return the rows of a difference from `start` up to `most_rows`, in their hunks."""
    is_crlf = _is_crlf(found)
    writer = _Writer(redact, texts, at or {}, is_crlf)
    gaps = gaps_of(found, texts)
    hunks: list[HunkView] = []
    count = 0
    for number, hunk in enumerate(found.hunks, 1):
        rows = rows_of_hunk(hunk)
        if count + rows > start and count < most_rows:
            first, end = max(0, start - count), most_rows - count
            gap = gaps[number - 1] if first == 0 else None
            hunks.append(writer.hunk(number, hunk, first, end, gap))
        count += rows
    hidden = max(0, count - most_rows)
    return DiffView(
        added=found.added,
        removed=found.removed,
        hunks=tuple(hunks),
        number=len(found.hunks),
        rows=count,
        chars=sum(len(line.text) for hunk in found.hunks for line in hunk.lines),
        hidden=hidden,
        tail=None if hidden else gaps[-1],
        is_crlf=is_crlf,
    )


def gaps_of(found: TextDiff, texts: Texts) -> list[Gap | None]:
    """Return what is unchanged above each hunk, and below the last one; None where there is
    nothing, or the text isn't known."""
    if not texts.new or not found.hunks:
        return [None] * (len(found.hunks) + 1)
    gaps: list[Gap | None] = []
    old = new = 0
    for number, hunk in enumerate(found.hunks):
        first = hunk.old_start - bool(hunk.old_count)
        gaps.append(Gap(number, old, new, first - old) if first > old else None)
        old = first + hunk.old_count
        new = hunk.new_start - bool(hunk.new_count) + hunk.new_count
    left = len(texts.new) - new
    return [*gaps, Gap(len(found.hunks), old, new, left) if left > 0 else None]


def gap_rows(
    gap: Gap, redact: Redact, texts: Texts, start: int = 0
) -> tuple[tuple[DiffRow, ...], Gap | None]:
    """Return unchanged lines of a gap from its line `start` on, and what is still left of it."""
    writer = _Writer(redact, texts, {}, is_crlf=False)
    end = min(gap.lines, start + GAP_ROWS)
    rows = [
        row
        for at in range(start, end)
        for row in writer.rows(_context(texts.new[gap.new + at], gap.old + at, gap.new + at))
    ]
    left = gap.lines - end
    return tuple(rows), Gap(gap.number, gap.old + end, gap.new + end, left) if left else None


def _context(line: str, old: int, new: int) -> DiffLine:
    return DiffLine(
        "context", ((line.removesuffix("\n").removesuffix("\r"), False),), old + 1, new + 1
    )


def rows_in(found: TextDiff) -> int:
    """Count the rows that a difference takes."""
    return sum(map(rows_of_hunk, found.hunks))


def rows_of_hunk(hunk: Hunk) -> int:
    """Count the rows that a hunk takes."""
    return sum(map(rows_of, hunk.lines))


def rows_of(line: DiffLine) -> int:
    """Count the rows that a line takes."""
    return max(1, -(-len(line.text) // ROW_CHARS))


def without_secrets(line: DiffLine, redact: Redact) -> tuple[Span, ...]:
    """Return the spans of a line. A secret may cross two of them, so a line with one has no
    highlights."""
    whole = redact(line.text)
    return line.spans if whole == line.text else ((whole, False),)


def _is_crlf(found: TextDiff) -> bool:
    lines = [line for hunk in found.hunks for line in hunk.lines if line.kind != "note"]
    return bool(lines) and all(line.text.endswith("\r") for line in lines)


def _span(hunk: Hunk) -> str:
    """Return which lines a hunk has, in words."""
    side, first, count = (
        ("", hunk.new_start, hunk.new_count)
        if hunk.new_count
        else (" before", hunk.old_start, hunk.old_count)
    )
    if count <= 1:
        return f"line {first}{side}"
    return f"lines {first} to {first + count - 1}{side}"


class _Writer:
    """Turns lines into rows."""

    def __init__(
        self, redact: Redact, texts: Texts, at: Mapping[int, Sequence[Any]], is_crlf: bool
    ) -> None:
        self._redact, self._texts, self._at, self._is_crlf = redact, texts, at, is_crlf

    def hunk(self, number: int, hunk: Hunk, first: int, end: int, gap: Gap | None) -> HunkView:
        """Return rows `first` to `end` of a hunk."""
        shown: list[DiffRow] = []
        spaces = space_only(hunk.lines)
        at = 0
        for place, line in enumerate(hunk.lines):
            count = rows_of(line)
            if at + count > first and at < end:
                shown += self.rows(line, place in spaces)[max(0, first - at) : end - at]
            at += count
        return HunkView(
            id=hunk.id,
            number=number,
            header=hunk.header,
            span=_span(hunk),
            is_whole=first == 0 and at <= end,
            is_continued=first > 0,
            rows=tuple(shown),
            gap=gap,
            section=self._section(hunk) if first == 0 else "",
        )

    def _section(self, hunk: Hunk) -> str:
        """Return the nearest line above a hunk that has no indent and begins with a letter, as
        `diff -p` does."""
        above = self._texts.new[: max(0, hunk.new_start - 1)][-_SECTION_LINES:]
        heads = (line for line in reversed(above) if line[0].isalpha() or line[0] == "_")
        return self._redact(next(heads, "").rstrip())[:_SECTION_CHARS]

    def rows(self, line: DiffLine, is_space: bool = False) -> list[DiffRow]:
        """Return a line in one row, or without colours in several."""
        spans = without_secrets(line, self._redact)
        things = tuple(self._at.get(line.new_number or 0, ()))
        count = rows_of(line)
        if count == 1:
            text = "".join(one for one, _ in spans)
            code = self._code(line, spans)
            return [
                DiffRow(line.kind, line.old_number, line.new_number, text, code, is_space, things)
            ]
        text = "".join(one for one, _ in spans)
        chars = max(1, -(-len(text) // count))
        pieces = [text[at * chars : (at + 1) * chars] for at in range(count)]
        numbers = [(line.old_number, line.new_number), *[(None, None)] * (count - 1)]
        rows = [
            DiffRow(line.kind, *both, piece, _plain(piece), is_space)
            for both, piece in zip(numbers, pieces, strict=True)
        ]
        return [*rows[:-1], rows[-1]._replace(things=things)]

    def _code(self, line: DiffLine, spans: tuple[Span, ...]) -> Markup:
        is_redacted = spans is not line.spans
        has_end = line.text.endswith("\r")
        if has_end:
            last, is_marked = spans[-1]
            spans = (*spans[:-1], (last.removesuffix("\r"), is_marked))
        text = "".join(one for one, _ in spans)
        shown = visible(text)
        if shown == text:
            colours = () if is_redacted else self._colours(line)
            code = painted(spans, colours, _tag(line.kind))
        elif shown == "".join(visible(one) for one, _ in spans):
            code = painted(spans, (), _tag(line.kind))
        else:  # characters that deceive only beside each other: nothing may come between them
            code = escape(shown)
        return code + _END_OF_LINE if has_end and not self._is_crlf else code

    def _colours(self, line: DiffLine) -> Sequence[tuple[int, str]]:
        found, number = (
            (self._texts.old_colours, line.old_number)
            if line.kind == "removed"
            else (self._texts.new_colours, line.new_number)
        )
        return found[number - 1] if number is not None and number <= len(found) else ()


def _tag(kind: LineKind) -> str:
    return "del" if kind == "removed" else "ins"


def _plain(text: str) -> Markup:
    return escape(visible(text))


def painted(spans: Sequence[Span], colours: Sequence[tuple[int, str]], tag: str) -> Markup:
    """Return a line as markup: its pieces in the colours of `colours`, highlighted ones in `tag`.
    Every piece of text is escaped; classes are those of `base/render_worker.py`."""
    out: list[str] = []
    left = list(reversed(colours))
    for text, is_marked in spans:
        pieces: list[str] = []
        at = 0
        while at < len(text):
            length, css = left.pop() if left else (len(text), "")
            piece = text[at : at + length]
            if len(piece) < length:
                left.append((length - len(piece), css))
            at += len(piece)
            shown = _plain(piece)
            pieces.append(f'<span class="{css}">{shown}</span>' if css else str(shown))
        whole = "".join(pieces)
        out.append(f"<{tag}>{whole}</{tag}>" if is_marked else whole)
    return Markup("".join(out))  # noqa: S704  # each text in it was escaped above
