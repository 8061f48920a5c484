"""The change of a pull request, file by file, as git prints it, and where remarks may stand.

Pure: it reads the output of `git diff`. A forge accepts a remark only inside a hunk, and a remark
elsewhere fails the whole review. So the bounds of a hunk count, not its lines.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from supervisor.core.text.generated import generated_as

MOST_DIFF_BYTES = 512 * 1024
MOST_LINE_CHARS = 5_000
# The pointer that a repository holds in place of the file (git-lfs's specification).
_LFS = b"\n+version https://git-lfs.github.com/spec/"
_HUNK = re.compile(rb"\n@@ -[0-9]+(?:,[0-9]+)? \+([0-9]+)(?:,([0-9]+))? @@")
_FILE = b"diff --git "
_SUBMODULE = "160000"


class ShownLines(NamedTuple):
    """Lines of a file that a diff shows: first and last of the new file, `last < first` if it shows
    none."""

    first: int
    last: int


class ChangedFile(NamedTuple):
    """A file of a change. `status` is git's letter (`A`, `M`, `D`, `R` ...). `skipped` says why the
    model isn't shown it, empty if it is."""

    path: str
    old_path: str
    status: str
    added: int
    deleted: int
    hunks: tuple[ShownLines, ...]
    skipped: str = ""

    def holds(self, start: int, line: int) -> bool:
        """Return whether these lines of the new file lie in one hunk."""
        return any(one.first <= start <= line <= one.last for one in self.hunks)


class FilePatch(NamedTuple):
    """A changed file, and git's diff of it."""

    facts: ChangedFile
    patch: bytes


def changed_files(raw: bytes, patch: bytes) -> list[ChangedFile]:
    """Return the files of a change, from `git diff --raw -z --no-abbrev` and `git diff` of the same
    change, both run without the tree's attributes."""
    return [one.facts for one in file_patches(raw, patch)]


def file_patches(raw: bytes, patch: bytes) -> list[FilePatch]:
    """Return the same, each file with its part of the diff."""
    entries = _entries(raw)
    starts = [0] if patch.startswith(_FILE) else []
    starts += [at + 1 for at in _found(b"\n" + _FILE, patch)]
    ends = [*starts[1:], len(patch)]
    parts = [patch[start:end] for start, end in zip(starts, ends, strict=False)]
    # A file that became a link has two entries in the diff: a deleted file and an added one.
    count = len(entries) + sum(one.status == "T" for one in entries)
    if len(parts) != count:
        raise ValueError(f"{count} files in git's list, {len(parts)} in its diff")
    left = iter(parts)
    found = []
    for one in entries:
        own = tuple(islice(left, 1 + (one.status == "T")))
        found.append(FilePatch(_file(one, *own), b"".join(own)))
    return found


class _Entry(NamedTuple):
    new_mode: str
    old_mode: str
    status: str
    old_path: str
    path: str


def _entries(raw: bytes) -> list[_Entry]:
    words = raw.split(b"\0")
    found, at = [], 0
    while at < len(words) and words[at]:
        old_mode, new_mode, _, _, status = words[at].decode().removeprefix(":").split()
        is_pair = status[0] in "RC"
        paths = [one.decode("utf-8", "surrogateescape") for one in words[at + 1 : at + 2 + is_pair]]
        found.append(_Entry(new_mode, old_mode, status[0], paths[0], paths[-1]))
        at += 2 + is_pair
    return found


def _file(entry: _Entry, part: bytes, other: bytes = b"") -> ChangedFile:
    heads, bodies = zip(*map(_parted, (part, other)), strict=True)
    head, body = b"".join(heads), b"".join(bodies)
    added, deleted = body.count(b"\n+"), body.count(b"\n-")
    hunks = []
    for at in _found(b"\n@@ ", body):
        if (found := _HUNK.match(body, at)) is not None:
            first, count = int(found[1]), int(found[2] or 1)
            hunks.append(ShownLines(first, first + count - 1))
    path = entry.path
    is_text = plain_text(path) == path and path.isprintable()
    skipped = _skipped(entry, head, body, is_text=is_text)
    return ChangedFile(path, entry.old_path, entry.status, added, deleted, tuple(hunks), skipped)


def _parted(part: bytes) -> tuple[bytes, bytes]:
    """Return head and hunks of one file's part of a diff."""
    head, _, body = part.partition(b"\n@@ ")
    return head, b"\n@@ " + body if body else b""


def _found(part: bytes, text: bytes) -> Iterator[int]:
    """Yield each position of a byte string; ten times as fast as a regular expression on
    megabytes."""
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)


def _skipped(entry: _Entry, head: bytes, body: bytes, *, is_text: bool) -> str:
    if _SUBMODULE in (entry.new_mode, entry.old_mode):
        return "a submodule"
    if not is_text:
        return "its name isn't plain text"
    if b"\nBinary files " in head:
        return "binary"
    if _LFS in body:
        return "kept by Git LFS"
    if generated_as(entry.path):  # named in the receipt, and not shown to the model
        return "generated"
    if len(body) > MOST_DIFF_BYTES:
        return f"{len(body) >> 10} kB of changes"
    if max(map(len, body.split(b"\n")), default=0) > MOST_LINE_CHARS:
        return f"a line of more than {MOST_LINE_CHARS:,} characters"
    return ""


def skipped_words(files: Sequence[ChangedFile]) -> list[str]:
    """Return for each file that was left out a text with the reason, which can be stored and sent:
    bytes of a name that aren't UTF-8 are shown as U+FFFD."""
    return [f"{plain_text(one.path)}: {one.skipped}" for one in files if one.skipped]


def unseen(
    files: Sequence[ChangedFile],
    touched: Sequence[ChangedFile],
    *,
    skipped: Sequence[str],
    rebased: Collection[str],
) -> set[str]:
    """Return the files of a change of which reviews haven't seen everything, given what an earlier
    round showed and what was `touched` since. These are the files that it `skipped` (in the words
    of `skipped_words`), under this name or the previous one, and those with another base now
    (`rebased`)."""
    left_out = {one.rpartition(": ")[0] for one in skipped}
    before = {one.path: one.old_path for one in touched}
    found = set()
    for one in files:
        names = {one.path, one.old_path, before.get(one.path, one.path)}
        was_left_out = not left_out.isdisjoint(map(plain_text, names))
        if not one.skipped and (was_left_out or not names.isdisjoint(rebased)):
            found.add(one.path)
    return found


def with_unseen(
    touched: Sequence[ChangedFile], files: Sequence[ChangedFile], names: Collection[str]
) -> list[ChangedFile]:
    """Return the changes since an earlier round, plus every changed line in the files `names`,
    which nobody has seen yet."""
    hunks = {one.path: one.hunks for one in files if one.path in names}
    known = {one.path for one in touched}
    return [
        *(one._replace(hunks=hunks.get(one.path, one.hunks)) for one in touched),
        *(
            one._replace(old_path=one.path, status="M")
            for one in files
            if one.path in names and one.path not in known
        ),
    ]


def plain_text(path: str) -> str:
    """Return a file name as text that can be stored and sent."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
