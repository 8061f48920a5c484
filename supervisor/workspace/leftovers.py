"""Temporary files and empty folders that a crash left in the host's workspace, by the journal's word.

Such a file is beside the path that it was for, or in the folder that was there then, wherever the person moved that since.
It is known by its name alone: 96 random bits that were put on record before it was made, so nothing of the user's has it.
It is separate from `placing` because it has no effect under way. It must never remove a file by any other name, follow a link,
or enter git's own folder or the supervisor's data.
"""

import contextlib
import errno
import os
from collections.abc import Iterable

from supervisor.workspace.beneath import PathError, Root, is_git_name
from supervisor.workspace.journal import Intent, decode_name
from supervisor.workspace.placing import TEMPORARY_PREFIX
from supervisor.workspace.swap import discard, move_new

# As for a walk: a tree that never ends must not keep a session from starting.
MOST_ENTRIES = 500_000


def clean_leftovers(root: Root, intents: Iterable[Intent], *, anywhere: bool = False) -> list[str]:
    """Remove them; their names. With `anywhere` those that aren't beside their path are looked for in the whole workspace."""
    removed: list[str] = []
    missing: set[str] = set()
    for intent in intents:
        if not intent.temporary.startswith(TEMPORARY_PREFIX) or "/" in intent.temporary:
            continue
        try:
            with root.parent(decode_name(intent.name)) as (fd, leaf):
                _clear(fd, intent.temporary, leaf)
        except (OSError, PathError):
            missing.add(intent.temporary)
        else:
            removed.append(intent.temporary)
    return removed + (_remove_anywhere(root, missing) if anywhere and missing else [])


def _clear(folder: int, temporary: str, leaf: str) -> None:
    """Remove it. A folder that was swapped out, and that somebody put something into since, gets a name that anybody sees."""
    try:
        discard(folder, temporary)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        move_new(folder, temporary, folder, leaf + temporary)


def _remove_anywhere(root: Root, names: set[str]) -> list[str]:
    removed: list[str] = []
    waiting, entries = [""], 0
    while waiting and entries < MOST_ENTRIES:
        folder = waiting.pop()
        with contextlib.suppress(OSError, PathError), root.directory(folder) as fd, os.scandir(fd) as listing:
            for entry in listing:
                entries += 1
                if entry.name in names:
                    discard(fd, entry.name)
                    removed.append(entry.name)
                elif entry.is_dir(follow_symlinks=False) and not is_git_name(entry.name):
                    waiting.append(f"{folder}/{entry.name}" if folder else entry.name)
    return removed
