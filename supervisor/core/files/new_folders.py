"""New parent folders of a file, and their permissions.

Pure. If only its owner may enter a new folder, a file in it must never be readable by others on the
host, not for an instant: so the folder's permissions belong to the action that makes it. It must
never make a folder more open than the action says.
"""

from collections.abc import Sequence

import msgspec

from supervisor.core.actions import FileChange, NewFolder
from supervisor.core.files.changes import (
    ANY_MODE,
    OWNER,
    PERMISSIONS,
    is_usual,
    is_wider,
    name_fields,
)

# The folders above a path that the host doesn't have, outermost first, with their permissions in
# the copy; ANY_MODE if the umask set those.
type FolderModes = tuple[tuple[str, int], ...]


def meant(mode: int) -> int:
    """Return the permissions of a folder in the copy in the form of `FolderModes`."""
    return ANY_MODE if is_usual(mode) else mode & PERMISSIONS


def with_way(action: FileChange, way: FolderModes) -> FileChange:
    """Return the action with the parent folders that it creates."""
    made = tuple(
        NewFolder(path=name_fields(name)[0], mode=mode) for name, mode in way if mode != ANY_MODE
    )
    is_wide = "wider" not in action.hazards and any(is_wider("dir", one.mode, None) for one in made)
    hazards = (*action.hazards, "wider") if is_wide else action.hazards
    return msgspec.structs.replace(action, folders=made, hazards=hazards)


def holds_for(before: FolderModes, now: FolderModes) -> bool:
    """Return whether a request about these new folders, made when they were `before`, still asks
    the same. Folders that were created since are no longer new, and don't matter."""
    asked = dict(before)
    return all(asked.get(name, ANY_MODE) == mode for name, mode in now)


def modes_on_way(action: FileChange) -> dict[int, int]:
    """Return the permissions with which each folder above the path is made, by its depth: 0 is
    directly in the workspace. A folder that shall keep out its owner doesn't yet: a change of its
    own closes it."""
    return {folder.path.count("/"): folder.mode | OWNER for folder in action.folders}


def made_with(action: FileChange, name: str) -> int:
    """Return the permissions with which the folder `name`, above the action's path, was made.
    ANY_MODE: by umask."""
    return modes_on_way(action).get(name.count("/"), ANY_MODE)


def notes(folders: Sequence[NewFolder]) -> tuple[str, ...]:
    """Return notes on the new folders for a person."""
    return tuple(f"also makes the folder {one.path} with mode {one.mode:o}" for one in folders)
