"""Fold long text so that nothing goes unnoticed.

Pure. Counts blanks, folds the middle, keeps the end in view. An agent can push the part that
matters out of sight with runs of blanks, many short lines, wide characters or sheer length. Page,
CLI, terminal and notifications all show its text through these functions. Runs of blanks become a
mark with their exact number; long text keeps its beginning and its end, with a count of what is
left out between. Before a person may approve, the caller must make sure that folded text was
unfolded.

INVARIANT: the end of a text is always shown, and head, omitted part and tail make up the whole
text.
"""

import re
import unicodedata
from typing import NamedTuple

from supervisor.core.text.display import MOST_STACKED, is_stacked, visible

_BLANKS = re.compile(r"[ \t\n]{2,}")
_PIECE = re.compile(r"[ \t\n]+|[^ \t\n]")
# Only our marks stand between these characters: in an agent's text, the characters are spelled out.
_OPEN, _CLOSE = "⟨", "⟩"
# One group, so that `split` tells the marks from what is between them.
MARK = re.compile(f"({_OPEN}[^{_OPEN}{_CLOSE}]*{_CLOSE})")
TAB_CELLS = 8
# The maximum length of a single character when spelled out.
_SPELLED_CELLS = len("\\u{10ffff}")
# The number of blanks that are shown unchanged: within a line, and at its start.
_MOST_WITHIN, _MOST_INDENT, _MOST_BREAKS = 8, 24, 3


class Size(NamedTuple):
    """An extent of text in display cells (a wide character takes two) and line breaks."""

    cells: int
    breaks: int


class FoldSize(NamedTuple):
    """Bounds of shown text: text that fits into `whole` is shown whole; of longer text, the parts
    that fit into `head` and `tail`. A mark has to fit into each."""

    whole: Size
    head: Size
    tail: Size
    one_line: bool = False


# The sum of head and tail is less than the whole, so that they never meet.
CARD = FoldSize(Size(1200, 16), Size(640, 9), Size(320, 5))
TERMINAL = CARD._replace(one_line=True)
LINE = FoldSize(Size(240, 0), Size(120, 0), Size(80, 0), one_line=True)


class Folded(NamedTuple):
    """`head` and `tail` as they are shown; between them, `characters` of the text with `breaks`
    line breaks are left out."""

    head: str
    tail: str = ""
    characters: int = 0
    breaks: int = 0

    @property
    def says(self) -> str:
        """Return how much is left out, in words; empty if nothing is."""
        if not self.characters:
            return ""
        if not self.breaks:
            return f"{self.characters:,} more characters"
        return (
            f"{self.breaks:,} more line{'' if self.breaks == 1 else 's'} / {self.characters:,}"
            " characters"
        )


def fold(text: str, room: FoldSize = CARD) -> Folded:
    """Return the text as it is shown: whole if there is room, else its beginning and its end."""
    if not is_folded(text, room):
        return Folded(marked(text, one_line=room.one_line))
    first = _fitting(text, room.head, room.one_line)
    last = len(text) - _fitting(text[::-1], room.tail, room.one_line, is_reversed=True)
    return Folded(
        head=marked(text[:first], one_line=room.one_line),
        tail=marked(text[last:], one_line=room.one_line),
        characters=last - first,
        breaks=text.count("\n", first, last),
    )


def is_folded(text: str, room: FoldSize = CARD) -> bool:
    """Return whether `fold` leaves something out."""
    return _fitting(text, room.whole, room.one_line) < len(text)


def line(text: str, room: FoldSize = LINE) -> str:
    """Return the text on one line, folded if it is long: for lists, terminals and notifications."""
    found = fold(text, room)
    return (
        found.head
        if not found.characters
        else f"{found.head} {_OPEN}… {found.says} …{_CLOSE} {found.tail}"
    )


def marked(text: str, *, one_line: bool = False) -> str:
    """Return the whole text, with long runs of blanks as marks that give their number, such as
    `⟨240 spaces⟩`."""
    if not text.isascii():
        for bracket in (_OPEN, _CLOSE):
            text = text.replace(bracket, f"\\u{{{ord(bracket):x}}}")
    return visible(_BLANKS.sub(lambda run: _blanks(run, one_line), text), one_line=one_line)


def cells(text: str) -> int:
    """Count the display cells of shown text, as terminals do (UAX 11)."""
    if text.isascii():
        return len(text) + (TAB_CELLS - 1) * text.count("\t")
    return sum(map(_cells_of, text))


def _cells_of(char: str) -> int:
    if char == "\t":
        return TAB_CELLS
    if is_stacked(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _blanks(found: re.Match[str], one_line: bool) -> str:
    """Return a run of blanks as it is shown."""
    run = found[0]
    *before, indent = map(cells, run.split("\n"))
    breaks = len(before)
    most_indent = _MOST_INDENT if breaks or found.start() == 0 else _MOST_WITHIN
    if breaks <= _MOST_BREAKS and max(before, default=0) <= _MOST_WITHIN and indent <= most_indent:
        return run
    counts = (("line break", breaks), ("space", run.count(" ")), ("tab", run.count("\t")))
    said = ", ".join(
        f"{number:,} {word}{'' if number == 1 else 's'}" for word, number in counts if number
    )
    mark = f"{_OPEN}{said}{_CLOSE}"
    return f"\n{mark}\n" if breaks and not one_line else mark


def _fitting(text: str, size: Size, one_line: bool, *, is_reversed: bool = False) -> int:
    """Return how many characters of the beginning fit. It never ends within a run of blanks."""
    if text.isascii() and text.isprintable() and len(text) <= size.cells:
        return len(text)
    left_cells, left_breaks, stacked, end = *size, 0, 0
    for piece in _PIECE.finditer(text):
        shown = marked(piece[0][::-1] if is_reversed else piece[0], one_line=one_line)
        stacked = stacked + 1 if is_stacked(piece[0][0]) else 0
        left_cells -= cells(shown) if stacked <= MOST_STACKED else _SPELLED_CELLS
        left_breaks -= shown.count("\n")
        if left_cells < 0 or left_breaks < 0:
            break
        end = piece.end()
    return end
