"""Partial changes: the file that results from only the hunks that a person chose.

Pure. It works on bytes, by the lines of the card's diff, so that odd bytes (CRLF, no newline at the
end, invalid UTF-8) come out as they went in. The result must always consist of whole hunks of these
two files.

INVARIANT: choosing all hunks gives the new content, choosing none gives the old content, and
choosing some and then the rest gives the new content.
"""

from collections.abc import Collection

import msgspec

from supervisor.core.files.text_diff import (
    MOST_COMPARED_LINES,
    changed_blocks,
    grouped,
    hunk_ids,
    with_context,
)


class HunkSpan(msgspec.Struct, frozen=True):
    """Place of one hunk: lines `old_start` to `old_end` of the old file become `new_start` to
    `new_end` of the new one, context included. `id` names its shown content."""

    id: str
    old_start: int
    old_end: int
    new_start: int
    new_end: int


def pieces(old: bytes, new: bytes) -> tuple[HunkSpan, ...]:
    """Return the hunks of two contents, in order; none if they are equal, or have too many lines to
    be compared.

    An id stays the same in a newer version of either file as long as the hunk reads the same,
    including its context. Equal hunks of one file are told apart by their place in the old file, so
    an id never moves to another place.
    """
    old_lines, new_lines = lines_of(old), lines_of(new)
    if max(len(old_lines), len(new_lines)) > MOST_COMPARED_LINES:
        return ()
    groups = grouped(changed_blocks(old_lines, new_lines))
    names = hunk_ids(old_lines, new_lines, groups)
    return tuple(
        HunkSpan(name, *with_context(group, len(old_lines)))
        for name, group in zip(names, groups, strict=True)
    )


def choose(old: bytes, new: bytes, chosen: Collection[str]) -> bytes:
    """Return the old content with the chosen hunks of the new one. KeyError for an unknown id."""
    found = pieces(old, new)
    unknown = set(chosen) - {piece.id for piece in found}
    if unknown:
        raise KeyError(min(unknown))
    if len(set(chosen)) == len(found):
        return new if found else old
    old_lines, new_lines = lines_of(old), lines_of(new)
    out: list[bytes] = []
    at = 0
    for piece in found:
        out += old_lines[at : piece.old_start]
        is_taken = piece.id in chosen
        out += (
            new_lines[piece.new_start : piece.new_end]
            if is_taken
            else old_lines[piece.old_start : piece.old_end]
        )
        at = piece.old_end
    return b"".join(out + old_lines[at:])


def lines_of(content: bytes) -> list[bytes]:
    """Return lines with their newline, split as `text_diff.split_lines` splits text."""
    lines = content.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])
