"""Hunks of one file from the diff that git printed.

Pure. A forge shows the same hunks, so a remark that it accepts stands in one of them. As in
`text_diff`, nothing is left out or cut.
"""

import re

from supervisor.core.files.text_diff import (
    MOST_WORD_PAIRS,
    DiffLine,
    Hunk,
    Span,
    TextDiff,
    highlight,
)

_HEAD = re.compile(r"@@ -([0-9]{1,9})(?:,([0-9]{1,9}))? \+([0-9]{1,9})(?:,([0-9]{1,9}))? @@")
_NO_NEWLINE = "\\"


def read_patch(patch: str) -> TextDiff:
    """Return what `git diff` printed about one file, with the words marked that changed."""
    reader = _Reader()
    for line in patch.split("\n"):
        reader.read(line)
    reader.end()
    lines = [line for hunk in reader.hunks for line in hunk.lines]
    return TextDiff(
        tuple(reader.hunks),
        sum(line.kind == "added" for line in lines),
        sum(line.kind == "removed" for line in lines),
    )


class _Reader:
    """Reads a patch line by line. Before the first hunk there are git's own lines."""

    def __init__(self) -> None:
        self.hunks: list[Hunk] = []
        self._head: re.Match[str] | None = None
        self._lines: list[DiffLine] = []
        self._removed: list[str] = []
        self._added: list[str] = []
        self._notes: dict[str, str] = {}
        self._old = self._new = self._pairs = 0

    def read(self, line: str) -> None:
        """Read the next line."""
        if head := _HEAD.match(line):
            self.end()
            self._head = head
            self._old, self._new = int(head[1]), int(head[3])
        elif self._head is None or not line:
            return
        elif line[0] == "-":
            if self._added:
                self._changed()
            self._removed.append(line[1:])
        elif line[0] == "+":
            self._added.append(line[1:])
        elif line[0] == _NO_NEWLINE:
            self._notes["added" if self._added else "removed"] = line
        else:
            self._changed()
            self._lines.append(DiffLine("context", ((line[1:], False),), self._old, self._new))
            self._old, self._new = self._old + 1, self._new + 1

    def end(self) -> None:
        """End the hunk that is read."""
        self._changed()
        if self._head is not None:
            counts = [int(self._head[at] or 1) for at in (2, 4)]
            starts = [int(self._head[at]) for at in (1, 3)]
            hunk = Hunk(starts[0], counts[0], starts[1], counts[1], tuple(self._lines))
            self.hunks.append(hunk)
        self._lines = []

    def _changed(self) -> None:
        """Add the changed lines that were read to the hunk."""
        marked: list[tuple[tuple[Span, ...], tuple[Span, ...]]] = []
        for pair in zip(self._removed, self._added, strict=False):
            if self._pairs < MOST_WORD_PAIRS:
                self._pairs += 1
                marked.append(highlight(*pair))
        for at, text in enumerate(self._removed):
            spans = marked[at][0] if at < len(marked) else ((text, False),)
            self._lines.append(DiffLine("removed", spans, self._old, None))
            self._old += 1
        self._note("removed")
        for at, text in enumerate(self._added):
            spans = marked[at][1] if at < len(marked) else ((text, False),)
            self._lines.append(DiffLine("added", spans, None, self._new))
            self._new += 1
        self._note("added")
        self._removed, self._added = [], []

    def _note(self, kind: str) -> None:
        if kind in self._notes:
            self._lines.append(DiffLine("note", ((self._notes.pop(kind), False),)))
