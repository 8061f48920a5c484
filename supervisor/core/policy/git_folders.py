"""Detection of git's own folders, whatever they are named.

Git doesn't ask for the name `.git`: it takes any folder with a valid HEAD, objects and refs for a
repository's own folder (its `is_git_directory`, in setup.c), and that folder's configuration names
programs that run at the next `git status` in there. So rules treat everything in such a folder as
`.git`. Pure: judging, carrying out and undo all use it. It must never call a folder harmless that
git would use.

Where git checks twice, this checks once and takes the stricter result: the types of HEAD, objects
and refs (a folder, a link to one, a file) don't matter, but the content of HEAD does; and with
`commondir` beside HEAD, as in a worktree's own folder, the rest may be anywhere. Mercurial and
Jujutsu recognise their folders by name alone (`data/protected.yaml`).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from supervisor.core.text.paths import fold

HEAD, OBJECTS, REFS, COMMONDIR = PIECES = ("HEAD", "objects", "refs", "commondir")
LEAVE_APART = (
    "leave HEAD, objects and refs out of one folder; only a rule that spells the path out lifts"
    " this"
)
# The workspace's own folder, as an action names it.
WORKSPACE_ITSELF = "."
# As much of HEAD as git reads.
MOST_HEAD_BYTES = 255
_BY_SPELLING = {fold(piece): piece for piece in PIECES}
# git's `validate_headref`: a reference below refs/, or the hash of a commit.
_VALID_HEAD = re.compile(rb"ref:[ \t\n\v\f\r]*refs/|[0-9a-fA-F]{40}")


class RepositoryPiece(NamedTuple):
    """An entry that may be part of a repository's folder. `begins`: a file's first bytes or a
    link's target; None if unreadable."""

    kind: Literal["file", "dir", "symlink", "other"]
    begins: bytes | None = b""


FOLDER = RepositoryPiece("dir")
UNKNOWN = RepositoryPiece("file", None)
# A folder's entries among `PIECES`.
type Pieces = Mapping[str, RepositoryPiece]


def piece_of(leaf: str) -> str | None:
    """Return the piece that some file system takes a name for; None for other names."""
    return _BY_SPELLING.get(fold(leaf))


def has_piece(name: str) -> bool:
    """Return whether a new path could complete a repository's folder above it."""
    return any(map(piece_of, name.split("/")))


def is_head(piece: RepositoryPiece) -> bool:
    """Return whether git accepts the content as HEAD. An unreadable HEAD counts."""
    if piece.kind == "symlink":
        return piece.begins is None or piece.begins.startswith(b"refs/")
    return piece.kind == "file" and (
        piece.begins is None or _VALID_HEAD.match(piece.begins) is not None
    )


def is_repository(pieces: Pieces) -> bool:
    """Return whether git would use a folder with these entries as a repository."""
    head = pieces.get(HEAD)
    return (
        head is not None
        and is_head(head)
        and (COMMONDIR in pieces or (OBJECTS in pieces and REFS in pieces))
    )


def folders_around(name: str) -> Iterator[str]:
    """Return the workspace (empty), each folder on the way to a path, and the path itself,
    outermost first."""
    yield ""
    at = -1
    while (at := name.find("/", at + 1)) >= 0:
        yield name[:at]
    yield name


def repositories(
    names: Iterable[str],
    made: Mapping[str, RepositoryPiece | None],
    held: Callable[[str, bool], Iterable[Pieces]],
) -> tuple[str, ...]:
    """Return the folders around these paths that are a repository's own, before or after a change,
    sorted.

    `made` is the result at each path (None: nothing). `held(folder, must_look)` returns the
    folder's entries on each side (the host's, the copy's), which are combined. Unless it must look,
    it may skip folders without a HEAD.
    """
    after = _by_folder(made)
    found = []
    for folder in {around for name in names for around in folders_around(name)}:
        changes = after.get(folder, {})
        accounts = list(held(folder, bool(changes)))
        if any(map(is_repository, accounts)) or (
            changes and is_repository(_with(accounts, changes))
        ):
            found.append(folder)
    return tuple(sorted(found))


def _with(accounts: Iterable[Pieces], changes: Mapping[str, RepositoryPiece | None]) -> Pieces:
    """Return a folder's entries after a change, over all sides; of several HEADs, one that git
    accepts."""
    there = [
        (leaf, piece)
        for account in accounts
        for leaf, piece in account.items()
        if leaf not in changes
    ]
    there += [(leaf, piece) for leaf, piece in changes.items() if piece is not None]
    whole: dict[str, RepositoryPiece] = {}
    for leaf, piece in there:
        # On a disk that folds case, another spelling is the same name; elsewhere both may exist.
        known = piece_of(leaf) or leaf
        if known not in whole or is_head(piece):
            whole[known] = piece
    return whole


def _by_folder(
    made: Mapping[str, RepositoryPiece | None],
) -> dict[str, dict[str, RepositoryPiece | None]]:
    """Group a change's results by folder and name: a new path below a name makes that name a
    folder."""
    after: dict[str, dict[str, RepositoryPiece | None]] = {}
    for name, there in made.items():
        parts = name.split("/")
        for at, part in enumerate(parts):
            is_last = at == len(parts) - 1
            if piece_of(part) is not None and (is_last or there is not None):
                pieces = after.setdefault("/".join(parts[:at]), {})
                if is_last:
                    pieces[part] = there
                else:
                    pieces.setdefault(part, FOLDER)
    return after
