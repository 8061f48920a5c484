"""Walk of the host: paths that differ by signature from the baseline.

It is separate from `incoming`, which looks at them and decides. It must never follow a link, enter
what is ignored or git's own folder, or take a folder that can't be read for an empty one.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator

from supervisor.core.files.changes import PERMISSIONS, Known, Signature
from supervisor.workspace.apply.placing import TEMPORARY_PREFIX
from supervisor.workspace.disk.beneath import is_git_name
from supervisor.workspace.disk.overlay_changes import Upper
from supervisor.workspace.disk.scan import each_entry
from supervisor.workspace.disk.watch import Watcher
from supervisor.workspace.trees.ignores import Ignores
from supervisor.workspace.trees.trees import Sides
from supervisor.workspace.trees.walk import Walk


class HostWalk:
    """Walk of one session's host. `note(folder, why)` is called for a folder that can't be read.
    `dead`: see `Upper.dead`."""

    def __init__(
        self, sides: Sides, ignores: Ignores, watcher: Watcher, note: Callable[[str, str], None]
    ) -> None:
        self._sides = sides
        self.dead: set[str] = set()
        self._host = _Host(sides, ignores, note)
        self._walk = Walk(self._host, sides, ignores, watcher)

    async def candidates(self, folders: set[str] | None) -> dict[str, bool]:
        """Paths that need a look, and whether something is there on the host."""
        found, visited, empty, is_whole = await self._walk.candidates(folders)
        await asyncio.to_thread(self._sides.keep_from_agent, self._host.take_ignored())
        if self._sides.upper is not None:
            self.dead = await asyncio.to_thread(
                self._dead, self._sides.upper, found, visited, folders is None
            )
        if folders is None and is_whole and self._sides.is_meeting_host:
            await asyncio.to_thread(self._sides.met_all)
        new = {
            name: name in empty
            for name in visited
            if found.get(name) and self._sides.known(name) is None
        }
        _drop_unneeded(found, new)
        return found

    def _dead(
        self, upper: Upper, found: dict[str, bool], visited: set[str], is_whole: bool
    ) -> set[str]:
        """See `Upper.dead`. Of a whole pass not every folder is looked at: one that was replaced
        holds other files than were agreed on, or those that the agent has put into it."""
        likely = (
            {_folder(name) for name in found} | upper.folders_among(visited)
            if is_whole
            else visited
        )
        return upper.dead(likely | found.keys(), self._sides.host)


class _Host:
    """The host's side for the walk."""

    def __init__(self, sides: Sides, ignores: Ignores, note: Callable[[str, str], None]) -> None:
        self._sides = sides
        self._ignores = ignores
        self._note = note
        self._ignored: list[str] = []

    def entries(self, folder: str) -> Iterable[tuple[str, os.stat_result]]:
        entries = each_entry(self._sides.host, folder)
        return self._met(folder, entries) if self._sides.is_meeting_host else entries

    def _met(
        self, folder: str, entries: Iterable[tuple[str, os.stat_result]]
    ) -> Iterator[tuple[str, os.stat_result]]:
        for leaf, status in entries:
            self._sides.met_on_host(f"{folder}/{leaf}" if folder else leaf, status)
            yield leaf, status

    def gone(self, folder: str, seen: set[str], unseen: set[str]) -> set[str]:
        return self._sides.children(folder) - seen

    def is_gone(self, name: str) -> None:
        pass  # both sides agreed on it once

    def ignored(self, name: str) -> None:
        if not self._sides.shows_ignored:
            self._ignored.append(name)

    def take_ignored(self) -> list[str]:
        """Return the paths skipped since the last call."""
        names, self._ignored = self._ignored, []
        return names

    def is_hidden(self, leaf: str) -> bool:
        return is_git_name(leaf) or leaf.startswith(TEMPORARY_PREFIX)

    def agreed(self, name: str, known: Known | None) -> Signature | None:
        return known.host_signature if known is not None else None

    def differs(self, known: Known | None, mode: int) -> bool:
        if known is None or known.kind != "dir" or known.host_signature is None:
            return True
        return (known.host_signature[4] ^ mode) & PERMISSIONS != 0

    def enters(self, known: Known | None) -> bool:
        return known is None or known.kind != "dir"

    def found_git(self, folder: str) -> None:
        self._ignores.found_repository(folder)
        self._ignored.append(f"{folder}/.git" if folder else ".git")

    def is_empty_if_unreadable(self, folder: str, error: OSError) -> bool:
        self._note(folder, f"the folder can't be read on the host: {error.strerror}")
        return False


def _drop_unneeded(found: dict[str, bool], new_folders: dict[str, bool]) -> None:
    """Drop new folders that hold only ignored files. `new_folders`: whether each is empty."""
    holds: set[str] = {
        _folder(name) for name, is_there in found.items() if is_there and name not in new_folders
    }
    for name in sorted(new_folders, reverse=True):
        if new_folders[name] or name in holds:
            holds.add(_folder(name))
        else:
            found.pop(name, None)


def _folder(name: str) -> str:
    return name.rpartition("/")[0]
