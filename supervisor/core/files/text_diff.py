"""Line diffs with highlighted words, for cards, in bounded time.

Pure. The text comes from an agent, so a diff must not be able to hold up the supervisor: lines are
compared by Myers' greedy algorithm with a cap on the number of differences and of steps (E. W.
Myers, "An O(ND) Difference Algorithm and Its Variations", 1986), after common ends are cut off.
Past the cap the middle is shown as one replacement: longer than needed, never wrong. Words of a
line are compared the same way.

INVARIANT: the lines of a diff, context and removals in order, are the old text; context and
additions are the new one. Nothing is left out or cut: whoever shows the diff counts the lines that
they fold.
"""

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import msgspec

from supervisor.core.actions import content_hash

CONTEXT_LINES = 3
MOST_TEXT_BYTES = 1024 * 1024
MOST_COMPARED_LINES = 20_000
MOST_DIFFERENCES = 600
MOST_STEPS = 2_000_000
MOST_WORD_PAIRS = 400
MOST_WORDS_PER_LINE = 120
# If more words than this were removed and added, the lines have little in common, so none is
# marked.
MOST_WORD_DIFFERENCES = 72
# Lines longer than this aren't compared word by word.
MOST_WORDED_CHARS = 2000
# White space is compared only within blocks of at most this many lines.
MOST_SPACED_LINES = 2000
ID_CHARS = 32

LineKind = Literal["context", "added", "removed", "note"]
Span = tuple[str, bool]
_WORD = re.compile(r"\w+|\s+|[^\w\s]")
_NO_NEWLINE = "\\ no newline at the end of the file"


class DiffLine(msgspec.Struct, frozen=True):
    """One line of a hunk. `spans` are (text, highlighted) pieces without the line's newline;
    numbers count from 1."""

    kind: LineKind
    spans: tuple[Span, ...]
    old_number: int | None = None
    new_number: int | None = None

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.spans)


class Hunk(msgspec.Struct, frozen=True):
    """A run of changed lines with `CONTEXT_LINES` around. Starts count from 1, as `diff -u` does
    (0: before the first).

    `id` is that of `hunks.Piece`.
    """

    old_start: int
    old_count: int
    new_start: int
    new_count: int
    lines: tuple[DiffLine, ...]
    id: str = ""

    @property
    def header(self) -> str:
        return f"@@ -{self.old_start},{self.old_count} +{self.new_start},{self.new_count} @@"


class TextDiff(msgspec.Struct, frozen=True):
    """The difference of two contents. `binary` and `too_large` have no hunks."""

    hunks: tuple[Hunk, ...] = ()
    added: int = 0
    removed: int = 0
    binary: bool = False
    too_large: bool = False


def diff(old: bytes, new: bytes) -> TextDiff:
    """Return the difference of two files' contents; binary where either isn't UTF-8 text or holds a
    NUL."""
    if old == new:
        return TextDiff()
    if len(old) > MOST_TEXT_BYTES or len(new) > MOST_TEXT_BYTES:
        return TextDiff(too_large=True)
    try:
        old_text, new_text = old.decode(), new.decode()
    except UnicodeDecodeError:
        return TextDiff(binary=True)
    if "\0" in old_text or "\0" in new_text:
        return TextDiff(binary=True)
    return _diff_lines(split_lines(old_text), split_lines(new_text))


def split_lines(text: str) -> list[str]:
    """Return lines with their newline. Only LF ends a line: a form feed or U+2028 inside one is
    text, and shown as such."""
    lines = text.split("\n")
    last = lines.pop()
    return [line + "\n" for line in lines] + ([last] if last else [])


def count_lines(old: bytes, new: bytes) -> tuple[int, int] | None:
    """Count new and removed lines, None for binary content; fast enough for thousands of files.

    A line that only moved counts as neither, so the counts may be lower than a diff's, never
    higher.
    """
    if b"\0" in old or b"\0" in new:
        return None
    before, after = Counter(old.splitlines()), Counter(new.splitlines())
    return (after - before).total(), (before - after).total()


def unified(result: TextDiff, old_name: str, new_name: str) -> str:
    """Return the diff as `diff -u` writes it; empty if there are no hunks."""
    if not result.hunks:
        return ""
    marks = {"context": " ", "added": "+", "removed": "-", "note": ""}
    out = [f"--- {old_name}", f"+++ {new_name}"]
    for hunk in result.hunks:
        out.append(hunk.header)
        out += [marks[line.kind] + line.text for line in hunk.lines]
    return "\n".join(out) + "\n"


def space_only(lines: Sequence[DiffLine]) -> frozenset[int]:
    """Return the places of a hunk's changed lines that differ from the other side in white space
    only: their indent, blanks within or at the end, or a blank line that came or went."""
    found: set[int] = set()
    for is_context, run in itertools.groupby(range(len(lines)), lambda at: _is_context(lines[at])):
        block = () if is_context else tuple(run)
        sides = [[at for at in block if lines[at].kind == kind] for kind in ("removed", "added")]
        if not block or max(map(len, sides)) > MOST_SPACED_LINES:
            continue
        words = [["".join(lines[at].text.split()) for at in side] for side in sides]
        left, right = _numbered(*words)
        for pair in _matches(left, right, MOST_DIFFERENCES):
            found.update(side[at] for side, at in zip(sides, pair, strict=True))
        found.update(at for at in block if not lines[at].text.strip())
    return frozenset(found)


def _is_context(line: DiffLine) -> bool:
    return line.kind == "context"


def _diff_lines(old: list[str], new: list[str]) -> TextDiff:
    if max(len(old), len(new)) > MOST_COMPARED_LINES:
        return TextDiff(too_large=True)
    blocks = changed_blocks(old, new)
    added = sum(new_end - new_start for _, _, new_start, new_end in blocks)
    removed = sum(old_end - old_start for old_start, old_end, _, _ in blocks)
    writer = _Writer(old, new)
    groups = grouped(blocks)
    names = hunk_ids(old, new, groups)
    hunks = [writer.hunk(group, name) for group, name in zip(groups, names, strict=True)]
    return TextDiff(tuple(hunks), added, removed)


type TextLine = str | bytes
type Block = tuple[
    int, int, int, int
]  # old start, old end, new start, new end: that part is replaced by this one


def hunk_ids(
    old: Sequence[TextLine], new: Sequence[TextLine], groups: list[list[Block]]
) -> list[str]:
    """Return a name for each hunk, by its shown content. Hunks of one file that read the same
    differ by their place in the old file, so that a name never moves to another place."""
    places = [with_context(group, len(old)) for group in groups]
    marks = [_mark(old[place[0] : place[1]], new[place[2] : place[3]]) for place in places]
    times = Counter(marks)
    return [
        mark if times[mark] == 1 else f"{mark}-{place[0] + 1}"
        for mark, place in zip(marks, places, strict=True)
    ]


def _mark(old: Sequence[TextLine], new: Sequence[TextLine]) -> str:
    sides = (
        b"".join(line.encode() if isinstance(line, str) else line for line in side)
        for side in (old, new)
    )
    return content_hash("".join(map(content_hash, sides)).encode())[:ID_CHARS]


def changed_blocks(old: Sequence[TextLine], new: Sequence[TextLine]) -> list[Block]:
    """Return the replaced blocks, in order; no two are adjacent."""
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    old_end, new_end = len(old), len(new)
    while old_end > start and new_end > start and old[old_end - 1] == new[new_end - 1]:
        old_end, new_end = old_end - 1, new_end - 1
    left, right = _numbered(old[start:old_end], new[start:new_end])
    matches = _matches(left, right, MOST_DIFFERENCES)
    blocks: list[Block] = []
    at_old = at_new = 0
    for x, y in [*matches, (len(left), len(right))]:
        if x > at_old or y > at_new:
            blocks.append((start + at_old, start + x, start + at_new, start + y))
        at_old, at_new = x + 1, y + 1
    return blocks


def _numbered(*sides: Sequence[TextLine]) -> list[list[int]]:
    """Return a number for each line, the same for equal ones."""
    ids: dict[TextLine, int] = {}
    return [[ids.setdefault(line, len(ids)) for line in side] for side in sides]


def _matches(left: list[int], right: list[int], most: int) -> list[tuple[int, int]]:
    """Return the pairs of equal lines of a shortest edit script; none if it needs more than `most`
    differences, or passes MOST_STEPS equal lines."""
    furthest = {1: 0}
    trail: list[dict[int, int]] = []
    steps = 0
    for distance in range(min(len(left) + len(right), most) + 1):
        trail.append(furthest.copy())
        for k in range(-distance, distance + 1, 2):
            down = k == -distance or (k != distance and furthest[k - 1] < furthest[k + 1])
            x = furthest[k + 1] if down else furthest[k - 1] + 1
            y = x - k
            steps -= x
            while x < len(left) and y < len(right) and left[x] == right[y]:
                x, y = x + 1, y + 1
            furthest[k] = x
            steps += x
            if x >= len(left) and y >= len(right):
                return _walk_back(trail, len(left), len(right))
            if steps > MOST_STEPS:
                return []
    return []


def _walk_back(trail: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for distance in range(len(trail) - 1, -1, -1):
        furthest = trail[distance]
        k = x - y
        down = k == -distance or (k != distance and furthest[k - 1] < furthest[k + 1])
        previous = k + 1 if down else k - 1
        from_x = furthest[previous]
        from_y = from_x - previous
        while x > max(from_x, 0) and y > max(from_y, 0):
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = from_x, from_y
    return pairs[::-1]


def grouped(blocks: list[Block]) -> list[list[Block]]:
    """Group blocks whose contexts touch: each group is one hunk."""
    groups: list[list[Block]] = []
    for block in blocks:
        if groups and block[0] - groups[-1][-1][1] <= 2 * CONTEXT_LINES:
            groups[-1].append(block)
        else:
            groups.append([block])
    return groups


def with_context(group: list[Block], old_lines: int) -> Block:
    """Return the lines of a hunk on both sides, context included."""
    old_start = max(0, group[0][0] - CONTEXT_LINES)
    new_start = group[0][2] - (group[0][0] - old_start)
    old_end = min(old_lines, group[-1][1] + CONTEXT_LINES)
    return old_start, old_end, new_start, group[-1][3] + old_end - group[-1][1]


class _Writer:
    """Turns blocks into hunks."""

    def __init__(self, old: list[str], new: list[str]) -> None:
        self._old, self._new = old, new
        self._pairs = 0

    def hunk(self, group: list[Block], name: str) -> Hunk:
        """Return the hunk of some neighbouring blocks."""
        old_at, old_end, new_at, new_end = with_context(group, len(self._old))
        lines: list[DiffLine] = []
        at_old, at_new = old_at, new_at
        for block in group:
            lines += self._context(at_old, block[0], at_new)
            lines += self._block(block)
            at_old, at_new = block[1], block[3]
        lines += self._context(at_old, old_end, at_new)
        old_count, new_count = old_end - old_at, new_end - new_at
        old_start, new_start = old_at + bool(old_count), new_at + bool(new_count)
        return Hunk(old_start, old_count, new_start, new_count, tuple(lines), name)

    def _context(self, start: int, end: int, new_start: int) -> list[DiffLine]:
        out: list[DiffLine] = []
        for offset, line in enumerate(self._old[start:end]):
            out += _line("context", line, None, start + offset + 1, new_start + offset + 1)
        return out

    def _block(self, block: Block) -> list[DiffLine]:
        old_start, old_end, new_start, new_end = block
        old, new = self._old[old_start:old_end], self._new[new_start:new_end]
        marked: dict[tuple[str, int], tuple[Span, ...]] = {}
        for index, (left, right) in enumerate(zip(old, new, strict=False)):
            if self._pairs < MOST_WORD_PAIRS:
                self._pairs += 1
                marked["removed", index], marked["added", index] = highlight(
                    left.rstrip("\n"), right.rstrip("\n")
                )
        out: list[DiffLine] = []
        for index, line in enumerate(old):
            out += _line(
                "removed", line, marked.get(("removed", index)), old_start + index + 1, None
            )
        for index, line in enumerate(new):
            out += _line("added", line, marked.get(("added", index)), None, new_start + index + 1)
        return out


def _line(
    kind: LineKind, line: str, spans: tuple[Span, ...] | None, old: int | None, new: int | None
) -> list[DiffLine]:
    made = [DiffLine(kind, spans or ((line.removesuffix("\n"), False),), old, new)]
    return made if line.endswith("\n") else [*made, DiffLine("note", ((_NO_NEWLINE, False),))]


def highlight(old: str, new: str) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """Return the two lines in spans, with differing words marked. Nothing is marked if the lines
    have little in common or are long."""
    plain = ((old, False),), ((new, False),)
    if old == new or max(len(old), len(new)) > MOST_WORDED_CHARS:
        return plain
    left, right = _WORD.findall(old), _WORD.findall(new)
    if max(len(left), len(right)) > MOST_WORDS_PER_LINE:
        return plain
    numbered = _numbered(left, right)
    matches = _matches(numbered[0], numbered[1], MOST_WORD_DIFFERENCES)
    if 2 * len(matches) < 0.4 * (len(left) + len(right)):
        return plain
    in_both = [{pair[side] for pair in matches} for side in (0, 1)]
    return _spans(left, in_both[0]), _spans(right, in_both[1])


def _spans(words: list[str], in_both: set[int]) -> tuple[Span, ...]:
    runs = itertools.groupby(range(len(words)), key=lambda at: at not in in_both)
    return tuple(("".join(words[at] for at in run), is_marked) for is_marked, run in runs)
