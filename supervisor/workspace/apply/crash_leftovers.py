"""Remove temporary files and empty folders that a crash left on the host.

The journal names them. Such a file is beside its target path, or in the folder that was there then,
wherever the person has moved it. Its name alone identifies it: it has 96 random bits and was
recorded before the file was made, so no file of the user's has it. It must never remove a file by
any other name, follow a link, or enter git's own folder or the supervisor's data.
"""

import contextlib
import errno
import os
from collections.abc import Collection, Iterable, Mapping

from supervisor.base import log
from supervisor.core.files.changes import name_fields
from supervisor.workspace.apply.placing import TEMPORARY_PREFIX
from supervisor.workspace.apply.rechecks import holds
from supervisor.workspace.disk.beneath import PathError, Root, is_git_name
from supervisor.workspace.disk.swap import aside_of, discard, move_new
from supervisor.workspace.trees.journal import Intent, decode_name

_HOLDS_SOMETHING = (errno.ENOTEMPTY, errno.EEXIST)
# As for a walk: an endless tree must not keep a session from starting.
MOST_ENTRIES = 500_000


def clean_leftovers(
    root: Root, intents: Iterable[Intent], *, anywhere: bool = False
) -> dict[str, str]:
    """Remove leftovers. Return the remaining ones by path, with a reason for the person. With
    `anywhere`, those that aren't beside their path are searched in the whole workspace."""
    leaves = {
        intent.temporary: decode_name(intent.name).rpartition("/")[2]
        for intent in intents
        if intent.temporary.startswith(TEMPORARY_PREFIX) and "/" not in intent.temporary
    }
    left: dict[str, str] = {}
    missing: dict[str, str] = {}
    for intent in intents:
        if intent.temporary not in leaves:
            continue
        name = decode_name(intent.name)
        try:
            with root.parent(name) as (fd, leaf):
                left |= _put_back_aside(fd, aside_of(intent.temporary, leaf), leaf, intent)
                left |= _clear(fd, intent.temporary, leaf, name.rpartition("/")[0], leaves)
        except (OSError, PathError):
            missing[intent.temporary] = leaves[intent.temporary]
    if anywhere and missing:
        left |= _clear_anywhere(root, missing, leaves)
    shown = {name_fields(path)[0]: name_fields(why)[0] for path, why in left.items()}
    for path, why in shown.items():
        log.warning("left in the workspace", path=path, why=why)
    return shown


def _clear(
    folder: int, temporary: str, leaf: str, place: str, ours: Collection[str]
) -> dict[str, str]:
    """Remove a leftover, with our own entries in it. If somebody has put something into a
    swapped-out folder since, give it a visible name and return that. Raise OSError."""
    if _is_discarded(folder, temporary):
        return {}
    for _, folders, files, fd in os.fwalk(temporary, topdown=False, dir_fd=folder):
        for name in (*folders, *files):
            if name in ours:
                with contextlib.suppress(OSError):
                    discard(fd, name)
    if _is_discarded(folder, temporary):
        return {}
    aside = aside_of(temporary, leaf)
    move_new(folder, temporary, folder, aside)
    return {
        _path(
            place, aside
        ): f"somebody put it into the folder `{leaf}` while that was being replaced"
    }


def _is_discarded(folder: int, name: str) -> bool:
    """Remove it. Return False where it is a folder that isn't empty. Raise OSError."""
    try:
        discard(folder, name)
    except OSError as error:
        if error.errno not in _HOLDS_SOMETHING:
            raise
        return False
    return True


def _put_back_aside(folder: int, aside: str, leaf: str, intent: Intent) -> dict[str, str]:
    """Revert a two-step swap that a crash cut: the old file has a temporary second name, and gets
    its own back. If that name is taken by now, a kept file is removed; any other stays visible, and
    is reported."""
    try:
        status = os.stat(aside, dir_fd=folder, follow_symlinks=False)
        move_new(folder, aside, folder, leaf)
        return {}
    except FileNotFoundError:
        return {}
    except FileExistsError:
        before = intent.before
    if (
        before is not None
        and before.digest is not None
        and holds(folder, aside, before.digest, status.st_size)
    ):
        os.unlink(aside, dir_fd=folder)
        return {}
    place = decode_name(intent.name).rpartition("/")[0]
    return {_path(place, aside): f"it was `{leaf}` until that was replaced"}


def _clear_anywhere(root: Root, leaves: Mapping[str, str], ours: Collection[str]) -> dict[str, str]:
    left: dict[str, str] = {}
    waiting, entries = [""], 0
    while waiting and entries < MOST_ENTRIES:
        folder = waiting.pop()
        with contextlib.suppress(OSError, PathError), root.directory(folder) as fd:
            with os.scandir(fd) as listing:
                found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in listing]
            entries += len(found)
            for name, is_folder in found:
                if name in leaves:
                    try:
                        left |= _clear(fd, name, leaves[name], folder, ours)
                    except OSError as error:
                        left[_path(folder, name)] = f"it can't be removed: {error.strerror}"
                elif is_folder and not is_git_name(name):
                    waiting.append(_path(folder, name))
    return left


def _path(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
