"""The one commit of a maintenance job: how its tree may differ from the base.

Pure, over bytes: a path is the bytes that git gives, not their decoding. INVARIANT: the stream that
`commit_stream` returns names the base and the given changes, and nothing else from the private
copy.

Sources: git-diff-tree(1) "RAW OUTPUT FORMAT", git-fast-import(1).
"""

from collections.abc import Sequence
from typing import NamedTuple

from supervisor.core.text.display import visible

_AUTHOR = b"Gatehouse <gatehouse@localhost> now"
_GITLINK = 0o160000
_CACHE = b"__pycache__"


class TreeChange(NamedTuple):
    """A path that differs: git's mode, 0 if it was deleted, and the id of its content."""

    mode: int
    oid: str
    path: bytes
    is_new: bool

    @property
    def name(self) -> str:
        """Return the path as a text that stands for exactly these bytes."""
        return self.path.decode(errors="surrogateescape")

    @property
    def shown(self) -> str:
        """Return the path for a person, in one line."""
        return visible(self.path.decode(errors="backslashreplace"), one_line=True)

    @property
    def is_file(self) -> bool:
        """Return whether it is a file rather than a commit of another repository."""
        return self.mode != _GITLINK

    @property
    def is_kept(self) -> bool:
        """Return whether it is more than a leftover of Python."""
        return not self.is_new or _CACHE not in self.path.split(b"/")


def tree_changes(raw: bytes) -> tuple[TreeChange, ...]:
    """Parse `git diff-tree -r -z --raw --no-renames`."""
    pieces = iter(raw.split(b"\0"))
    found = []
    while head := next(pieces):
        old_mode, mode, _, oid, _ = head.decode().removeprefix(":").split(" ")
        path = next(pieces)
        found.append(TreeChange(int(mode, 8), oid, path, is_new=not int(old_mode, 8)))
    return tuple(found)


def commit_stream(ref: str, base: str, changes: Sequence[TreeChange], message: str) -> bytes:
    """Return the input with which `git fast-import` commits these changes of `base` as `ref`."""
    said = message.encode(errors="replace")
    gone = [b"D %s" % _quoted(one.path) for one in changes if not one.mode]
    made = [
        b"M %o %s %s" % (one.mode, one.oid.encode(), _quoted(one.path))
        for one in changes
        if one.mode
    ]
    head = [
        b"commit %s" % ref.encode(),
        b"author %s" % _AUTHOR,
        b"committer %s" % _AUTHOR,
        b"data %d\n%s" % (len(said), said),
        b"from %s" % base.encode(),
    ]
    # Deletions first: a deleted file may make room for a folder.
    return b"\n".join([*head, *gone, *made, b"done", b""])


def _quoted(path: bytes) -> bytes:
    return b'"' + b"".join(b"\\%03o" % one for one in path) + b'"'
