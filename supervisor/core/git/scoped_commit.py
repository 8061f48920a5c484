"""The one commit of a maintenance job: how its tree may differ from the base.

Pure, over bytes: a path is the bytes that git gives, not their decoding. INVARIANT: the stream that
`commit_stream` returns holds the base's name and the given files, and nothing else from the private
copy: no index, attribute, filter or object of it.

Sources: git-diff-tree(1) "RAW OUTPUT FORMAT", git-fast-import(1).
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from supervisor.core.actions import FileChange, content_hash
from supervisor.core.files.changes import is_content, name_of
from supervisor.core.files.swaps import single_changes
from supervisor.core.files.write_scope import ODD
from supervisor.core.jobs import Changed
from supervisor.core.text.display import visible
from supervisor.errors import RefusedError

_FILE, _PROGRAM, _LINK, _GITLINK = 0o100644, 0o100755, 0o120000, 0o160000
MOST_BYTES = 256 << 20
# As many lines as no limit lets through.
_UNCOUNTED = 10_000_000


class TreeChange(NamedTuple):
    """A path that differs: git's mode, 0 if it was deleted, the id of its content, and the mode
    before, 0 if it is new."""

    mode: int
    oid: str
    path: bytes
    old_mode: int

    def changed(self, lines: Mapping[bytes, int]) -> Changed:
        """Return it as `judge` takes it. `lines` is what `line_counts` says."""
        modes = {self.mode, self.old_mode}
        odd = ""
        if _GITLINK in modes:
            odd = "a submodule"
        elif _LINK in modes:
            odd = ODD["symlink"]
        elif self.mode == _PROGRAM and self.old_mode != _PROGRAM:
            odd = ODD["new-executable"]
        return Changed(os.fsdecode(self.path), odd, lines.get(self.path, _UNCOUNTED))


def tree_changes(raw: bytes) -> tuple[TreeChange, ...]:
    """Parse `git diff-tree -r -z --raw --no-renames`."""
    pieces = iter(raw.split(b"\0"))
    found = []
    while head := next(pieces):
        old_mode, mode, _, oid, _ = head.decode().removeprefix(":").split(" ")
        path = next(pieces)
        found.append(TreeChange(int(mode, 8), oid, path, int(old_mode, 8)))
    return tuple(found)


def line_counts(raw: bytes) -> dict[bytes, int]:
    """Parse `git diff-tree -r -z --numstat --text --no-renames`: the lines that were added and
    removed by path. A path that git didn't count has so many that any limit is over."""
    found = {}
    for line in raw.split(b"\0")[:-1]:
        added, removed, path = line.split(b"\t", 2)
        found[path] = _UNCOUNTED if b"-" in (added, removed) else int(added) + int(removed)
    return found


class CommittedFile(NamedTuple):
    """A file to commit, or to delete: then there is no `data`."""

    path: bytes
    data: bytes | None
    is_program: bool = False


def files_in(
    changes: Iterable[FileChange], read: Callable[[str, int], bytes | None]
) -> list[CommittedFile]:
    """Return what these changes make of the files. `read(hash, most)` gives a content.
    `RefusedError` where one isn't there as it was judged, or all are too much."""
    files, left = list[CommittedFile](), MOST_BYTES
    for one in (single for action in changes for single in single_changes(action)):
        path = os.fsencode(name_of(one))
        if one.operation == "swap" or (one.operation == "delete" and one.before != "dir"):
            files.append(CommittedFile(path, None))
        if one.after is None or not is_content(one.after):
            continue
        data = read(one.after, left)
        if data is None or len(data) > left or content_hash(data) != one.after:
            raise RefusedError(
                f"`{visible(one.path, one_line=True)}` can't be committed",
                f"a job's files may have {MOST_BYTES >> 20} MB together",
            )
        left -= len(data)
        files.append(CommittedFile(path, data, is_program=bool((one.mode or 0) & 0o111)))
    return files


def commit_stream(
    ref: str, base: str, files: Sequence[CommittedFile], message: str, author: str
) -> bytes:
    """Return the input with which `git fast-import` commits these files on `base` as `ref`.
    `author` is what `author_of` returns."""
    said, by = message.encode(errors="replace"), author.encode(errors="replace")
    # Deletions first: a deleted file may make room for a folder.
    gone = [b"D %s" % _quoted(one.path) for one in files if one.data is None]
    made = [
        b"M %o inline %s\ndata %d\n%s"
        % (_PROGRAM if one.is_program else _FILE, _quoted(one.path), len(one.data), one.data)
        for one in files
        if one.data is not None
    ]
    head = [
        b"commit %s" % ref.encode(),
        b"author %s now" % by,
        b"committer %s now" % by,
        b"data %d\n%s" % (len(said), said),
        b"from %s" % base.encode(),
    ]
    return b"\n".join([*head, *gone, *made, b"done", b""])


def _quoted(path: bytes) -> bytes:
    return b'"' + b"".join(b"\\%03o" % one for one in path) + b'"'
