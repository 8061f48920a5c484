"""The one commit of a maintenance job: how its tree may differ from the base.

Pure, over bytes: a path is the bytes that git gives, not their decoding. INVARIANT: the stream that
`commit_stream` returns names the base and the given changes, and nothing else from the private
copy.

Sources: git-diff-tree(1) "RAW OUTPUT FORMAT", git-fast-import(1).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from supervisor.core.files.write_scope import ODD, is_leftover
from supervisor.core.jobs import Changed
from supervisor.core.text.display import visible

_LINK, _GITLINK, _PROGRAM = 0o120000, 0o160000, 0o100755
# As many lines as no limit lets through.
_UNCOUNTED = 10_000_000


class TreeChange(NamedTuple):
    """A path that differs: git's mode, 0 if it was deleted, the id of its content, and the mode
    before, 0 if it is new."""

    mode: int
    oid: str
    path: bytes
    old_mode: int

    @property
    def name(self) -> str:
        """Return the path as a text that stands for exactly these bytes."""
        return self.path.decode(errors="surrogateescape")

    @property
    def shown(self) -> str:
        """Return the path for a person, in one line."""
        return visible(self.path.decode(errors="backslashreplace"), one_line=True)

    @property
    def is_kept(self) -> bool:
        """Return whether it is more than what interpreters and test runners leave."""
        return bool(self.old_mode) or not is_leftover(self.name)

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
        return Changed(self.name, odd, lines.get(self.path, _UNCOUNTED))


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


def commit_stream(
    ref: str, base: str, changes: Sequence[TreeChange], message: str, author: str
) -> bytes:
    """Return the input with which `git fast-import` commits these changes of `base` as `ref`.
    `author` is what `author_of` returns."""
    said = message.encode(errors="replace")
    gone = [b"D %s" % _quoted(one.path) for one in changes if not one.mode]
    made = [
        b"M %o %s %s" % (one.mode, one.oid.encode(), _quoted(one.path))
        for one in changes
        if one.mode
    ]
    head = [
        b"commit %s" % ref.encode(),
        b"author %s now" % author.encode(errors="replace"),
        b"committer %s now" % author.encode(errors="replace"),
        b"data %d\n%s" % (len(said), said),
        b"from %s" % base.encode(),
    ]
    # Deletions first: a deleted file may make room for a folder.
    return b"\n".join([*head, *gone, *made, b"done", b""])


def _quoted(path: bytes) -> bytes:
    return b'"' + b"".join(b"\\%03o" % one for one in path) + b'"'
