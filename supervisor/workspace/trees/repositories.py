"""Find repository folders around a change, when judging and before acting.

`core.policy.git_folders` knows what counts; this looks at the disk. Judging sees the host, the
agent's copy and all waiting changes together, so that no change is offered that would be refused,
in whatever order they are carried out. The guard sees the host as it is when a name is given, under
a lock that all sessions share. So two sessions can't each put half of a repository in place at
once.

It must never follow a symlink, or read more of a file than git does.
"""

import contextlib
import os
import stat
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from supervisor.core.actions import FileChange
from supervisor.core.files.changes import name_fields, name_of, names_of
from supervisor.core.files.swaps import single_changes
from supervisor.core.policy.git_folders import (
    FOLDER,
    HEAD,
    LEAVE_APART,
    MOST_HEAD_BYTES,
    PIECES,
    UNKNOWN,
    WORKSPACE_ITSELF,
    Pieces,
    RepositoryPiece,
    folders_around,
    has_piece,
    piece_of,
    repositories,
)
from supervisor.errors import GatehouseError, RefusedError
from supervisor.workspace.disk.beneath import DIRECTORY, FILE, PathError, Root, split
from supervisor.workspace.trees.trees import Sides

# Returns the first bytes of a kept content, or None where it isn't kept.
type Begins = Callable[[str], bytes | None]
# The result at each path; None: nothing is left there.
type MadePaths = Mapping[str, RepositoryPiece | None]

_ONE_AT_A_TIME = threading.Lock()


class Repositories:
    """Repository folders, for one run over many changes of a session: each folder is examined once.
    Blocking: call it in a thread.

    `waiting` are changes that may be carried out before these and that the copy doesn't show.
    """

    def __init__(self, sides: Sides, waiting: Sequence[FileChange] = ()) -> None:
        self._sides = sides
        self._begins: Begins = lambda digest: sides.blobs.read(digest, MOST_HEAD_BYTES - 1)
        self._waiting = {
            name: piece
            for one in waiting
            for name, piece in made_by(sides.host, one, self._begins).items()
            if piece
        }
        self._accounts: dict[tuple[str, bool], list[Pieces]] = {}

    def noted(self, action: FileChange) -> FileChange:
        """Return the action with the repositories around its paths."""
        made = self._waiting | made_by(self._sides.host, action, self._begins)
        found = repositories(names_of(action), made, self._held)
        return msgspec.structs.replace(action, repositories=shown(found))

    def _held(self, folder: str, must_look: bool) -> list[Pieces]:
        key = folder, must_look
        if key not in self._accounts:
            self._accounts[key] = [pieces_in(self._sides.host, PIECES, folder, must_look=must_look)]
            # INVARIANT: an overlay is asked only for what the agent put there, since it caches
            # whatever it is asked for.
            prefix = f"{folder}/" if folder else ""
            mine = [leaf for leaf in PIECES if self._sides.is_of_agent(prefix + leaf)]
            if mine:
                self._accounts[key].append(
                    pieces_in(self._sides.copy, mine, folder, must_look=must_look)
                )
        return self._accounts[key]


class RepositoryGuard:
    """Guard of the host's side. `consents` returns the repositories that a path was judged in, and
    may be changed in."""

    def __init__(self, root: Root, consents: Callable[[str], Collection[str]]) -> None:
        self._root = root
        self._consents = consents

    def check(self, action: FileChange, begins: Begins) -> None:
        """Refuse a change that git would take for part of another repository than the action was
        judged in. Raise RefusedError."""
        self._refuse(names_of(action), made_by(self._root, action, begins), action.repositories)

    def check_back(self, name: str, piece: RepositoryPiece) -> None:
        """Check a path that is put back."""
        self._refuse([name], {name: piece}, self._consents(name))

    def not_back(self, made: MadePaths) -> dict[str, str]:
        """Return which of the paths can't be put back together with all of these, and why."""
        coming = [name for name, piece in made.items() if piece is not None]
        wrong = {
            folder: would_take(shown([folder])[0])
            for folder in repositories(coming, made, self._held)
        }
        if not wrong:
            return {}
        whys: dict[str, str] = {}
        for name in coming:
            around = [
                one
                for one in folders_around(name)
                if one in wrong and shown([one])[0] not in self._consents(name)
            ]
            whys |= {name: wrong[around[0]]} if around else {}
        return whys

    @contextlib.contextmanager
    def naming(
        self, name: str, piece: Callable[[], RepositoryPiece], consent_of: str
    ) -> Iterator[None]:
        """Guard a block that gives something this name and makes the parent folders: no other
        relevant effect happens between the check and the block. `piece` is called if the name may
        be HEAD; `consent_of` is the path that it is done for. Raise RefusedError."""
        made = {name: piece() if piece_of(name.rpartition("/")[2]) == HEAD else FOLDER}
        with _ONE_AT_A_TIME if has_piece(name) else contextlib.nullcontext():
            self._refuse([name], made, self._consents(consent_of))
            yield

    def _refuse(self, names: Sequence[str], made: MadePaths, consented: Collection[str]) -> None:
        if not any(has_piece(name) or has_head_around(self._root, name) for name in names):
            return  # most paths: there is nothing to look at more closely
        if wrong := self._wrong(names, made, consented):
            raise RefusedError(f"{would_take(wrong)}; nothing was changed", LEAVE_APART)

    def _wrong(self, names: Sequence[str], made: MadePaths, consented: Collection[str]) -> str:
        found = shown(repositories(names, made, self._held))
        return next((folder for folder in found if folder not in consented), "")

    def _held(self, folder: str, must_look: bool) -> list[Pieces]:
        return [pieces_in(self._root, PIECES, folder, must_look=must_look)]


def would_take(folder: str) -> str:
    """Return the reason against a change in this folder."""
    where = "the workspace itself" if folder == WORKSPACE_ITSELF else f"`{folder}`"
    return f"git would take {where} for a repository's own folder"


def shown(folders: Iterable[str]) -> tuple[str, ...]:
    """Return folders in the form used in actions."""
    return tuple(name_fields(folder)[0] or WORKSPACE_ITSELF for folder in folders)


def has_head_around(root: Root, name: str) -> bool:
    """Return whether the path or a folder on the way to it holds anything named HEAD. Each folder
    is opened once."""
    try:
        parts = split(name) if name else ()
    except PathError:
        return False  # nothing can be there
    with contextlib.ExitStack() as opened:
        fd = root.fd
        for part in (*parts, "."):
            with contextlib.suppress(FileNotFoundError):
                os.stat(HEAD, dir_fd=fd, follow_symlinks=False)
                return True
            try:
                fd = os.open(part, DIRECTORY, dir_fd=fd)
            except OSError:
                return False
            opened.callback(os.close, fd)
    return False


def pieces_in(root: Root, leaves: Iterable[str], folder: str, *, must_look: bool) -> Pieces:
    """Return the entries of these names in a folder, by the disk's own name matching. Unless
    `must_look`, return nothing where there is no HEAD."""
    found: dict[str, RepositoryPiece] = {}
    try:
        with root.directory(folder) as fd:
            for leaf in leaves:
                if (piece := piece_at(fd, leaf)) is not None:
                    found[leaf] = piece
                elif leaf == HEAD and not must_look:
                    break
    except (OSError, PathError):
        return {}  # nothing can be there, or nobody could use it
    return found


def piece_at(folder: int, leaf: str, known_as: str = "") -> RepositoryPiece | None:
    """Return the entry of a name in an open folder. `known_as`: the name that it will have. Raise
    OSError."""
    try:
        status = os.stat(leaf, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            return RepositoryPiece("symlink", os.fsencode(os.readlink(leaf, dir_fd=folder)))
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(status.st_mode):
        return FOLDER
    if not stat.S_ISREG(status.st_mode):
        return RepositoryPiece("other")
    return RepositoryPiece(
        "file", _first_bytes(folder, leaf) if piece_of(known_as or leaf) == HEAD else b""
    )


def _first_bytes(folder: int, leaf: str) -> bytes | None:
    try:
        fd = os.open(leaf, FILE, dir_fd=folder)
    except OSError:
        return None
    try:
        return os.read(fd, MOST_HEAD_BYTES)
    finally:
        os.close(fd)


def made_by(root: Root, action: FileChange, begins: Begins) -> dict[str, RepositoryPiece | None]:
    """Return an action's result at each of its paths. For a move, the host's file is read."""
    made: dict[str, RepositoryPiece | None] = {}
    for one in single_changes(action):
        name = name_of(one)
        if one.operation == "rename":
            made[name] = None
            made[names_of(one)[1]] = _moved(root, one, name)
        else:
            made[name] = _left_by(one, name, begins)
    return made


def _left_by(action: FileChange, name: str, begins: Begins) -> RepositoryPiece | None:
    if action.operation == "delete":
        return None
    if action.operation == "mkdir" or action.after == "dir":
        return FOLDER
    if action.link_target is not None or action.operation == "symlink":
        return RepositoryPiece("symlink", os.fsencode(action.link_target or ""))
    is_read = piece_of(name.rpartition("/")[2]) == HEAD
    return RepositoryPiece("file", begins(action.after) if is_read and action.after else None)


def _moved(root: Root, action: FileChange, name: str) -> RepositoryPiece:
    known_as = names_of(action)[1].rpartition("/")[2]
    try:
        with root.parent(name) as (fd, leaf):
            return piece_at(fd, leaf, known_as) or UNKNOWN
    except (OSError, GatehouseError):
        return UNKNOWN
