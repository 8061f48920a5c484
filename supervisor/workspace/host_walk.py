"""Which paths of the host need a look: those that aren't as both sides last agreed, by their signatures alone.

It is separate from `incoming`, which looks at them and decides. It must never follow a link, enter what is ignored or git's
own folder, or take a folder that can't be read for an empty one.
"""

from collections.abc import Callable

from supervisor.core.changes import Known, Signature
from supervisor.workspace.beneath import is_git_name
from supervisor.workspace.ignores import Ignores
from supervisor.workspace.placing import TEMPORARY_PREFIX
from supervisor.workspace.sides import Sides
from supervisor.workspace.walk import Walk
from supervisor.workspace.watch import Watcher


class HostWalk:
    """Of one session. `note(folder, why)` is called for a folder that can't be read."""

    def __init__(self, sides: Sides, ignores: Ignores, watcher: Watcher, note: Callable[[str, str], None]) -> None:
        self._sides = sides
        self._walk = Walk(_Host(sides, ignores, note), sides, ignores, watcher)

    async def candidates(self, folders: set[str] | None) -> dict[str, bool]:
        """Paths that need a look, and whether something is there on the host."""
        found, visited, empty = await self._walk.candidates(folders)
        new = {name: name in empty for name in visited if found.get(name) and self._sides.known(name) is None}
        _drop_unneeded(found, new)
        return found


class _Host:
    """What the walk must know of the host's side."""

    def __init__(self, sides: Sides, ignores: Ignores, note: Callable[[str, str], None]) -> None:
        self.root = sides.host
        self._ignores = ignores
        self._note = note

    def is_hidden(self, leaf: str) -> bool:
        return is_git_name(leaf) or leaf.startswith(TEMPORARY_PREFIX)

    def agreed(self, name: str, known: Known | None) -> Signature | None:
        return known.host_signature if known is not None else None

    def differs(self, known: Known | None, mode: int) -> bool:
        return known is None or known.kind != "dir"

    def enters(self, known: Known | None) -> bool:
        return known is None or known.kind != "dir"

    def found_git(self, folder: str) -> None:
        self._ignores.found_repository(folder)

    def is_empty_if_unreadable(self, folder: str, error: OSError) -> bool:
        self._note(folder, f"the folder can't be read on the host: {error.strerror}")
        return False


def _drop_unneeded(found: dict[str, bool], new_folders: dict[str, bool]) -> None:
    """Of new folders only those that are empty, or have something in them that is brought: not those of ignored files.
    `new_folders`: whether each is empty."""
    holds: set[str] = {_folder(name) for name, is_there in found.items() if is_there and name not in new_folders}
    for name in sorted(new_folders, reverse=True):
        if new_folders[name] or name in holds:
            holds.add(_folder(name))
        else:
            found.pop(name, None)


def _folder(name: str) -> str:
    return name.rpartition("/")[0]
