"""Which paths of the host need a look: those that aren't as both sides last agreed, by their signatures alone.

It is separate from `incoming`, which looks at them and decides. It must never follow a link, enter what is ignored or git's
own folder, or take a folder that can't be read for an empty one.
"""

import asyncio
import os
import stat
from collections.abc import Callable

from supervisor.core.changes import signature_of
from supervisor.workspace.beneath import is_git_name
from supervisor.workspace.ignores import Ignores
from supervisor.workspace.placing import TEMPORARY_PREFIX
from supervisor.workspace.scan import entries
from supervisor.workspace.sides import Sides
from supervisor.workspace.watch import Watcher

# Beyond this a tree isn't followed any further in one go.
MOST_PATHS = 500_000


class HostWalk:
    """Of one session. `note(folder, why)` is called for a folder that can't be read."""

    def __init__(self, sides: Sides, ignores: Ignores, watcher: Watcher, note: Callable[[str, str], None]) -> None:
        self._sides = sides
        self._ignores = ignores
        self._watcher = watcher
        self._note = note

    async def candidates(self, folders: set[str] | None) -> dict[str, bool]:
        """Paths that need a look, and whether something is there on the host."""
        found: dict[str, bool] = {}
        new_folders: dict[str, bool] = {}
        visited: set[str] = set()
        waiting = {""} if folders is None else set(folders)
        paths = 0
        while waiting and paths < MOST_PATHS:
            level = sorted(waiting - visited)
            visited |= waiting
            waiting = set()
            listings = await asyncio.to_thread(self._list, level)
            ignored = await self._ignores.among(self._unknown(listings))
            for folder, listing in listings.items():
                paths += len(listing)
                waiting |= self._differing(folder, listing, ignored, found, everything=folders is None)
                if found.get(folder) and self._sides.known(folder) is None:
                    new_folders[folder] = not listing
        _drop_unneeded(found, new_folders)
        if folders is None:
            self._watcher.keep_only(visited)
        return found

    def _list(self, folders: list[str]) -> dict[str, dict[str, os.stat_result]]:
        """Each folder's entries by path. Watched first, so that nothing falls between. One that can't be read is left
        out: that isn't the same as empty."""
        out: dict[str, dict[str, os.stat_result]] = {}
        for folder in folders:
            self._watcher.add(folder)
            try:
                listing = entries(self._sides.host, folder)
            except OSError as error:
                self._note(folder, f"the folder can't be read on the host: {error.strerror}")
                continue
            if ".git" in listing:
                self._ignores.found_repository(folder)
            out[folder] = {
                f"{folder}/{leaf}" if folder else leaf: found
                for leaf, found in listing.items()
                if not is_git_name(leaf) and not leaf.startswith(TEMPORARY_PREFIX)
            }
        return out

    def _unknown(self, listings: dict[str, dict[str, os.stat_result]]) -> list[str]:
        return [
            f"{name}/" if stat.S_ISDIR(found.st_mode) else name
            for listing in listings.values()
            for name, found in listing.items()
            if self._sides.known(name) is None
        ]

    def _differing(
        self,
        folder: str,
        listing: dict[str, os.stat_result],
        ignored: set[str],
        found: dict[str, bool],
        *,
        everything: bool,
    ) -> set[str]:
        """Put what needs a look into `found`; the folders to go into next."""
        into: set[str] = set()
        for name, there in listing.items():
            is_folder = stat.S_ISDIR(there.st_mode)
            if (f"{name}/" if is_folder else name) in ignored:
                continue
            known = self._sides.known(name)
            was_folder = known is not None and known.kind == "dir"
            if is_folder and (everything or not was_folder or not self._watcher.is_watched(name)):
                into.add(name)
            if was_folder and not is_folder:
                into.add(name)  # not there any more as a folder: neither is what was in it
            if is_folder:
                if not was_folder:
                    found[name] = True
            elif known is None or known.host_signature != signature_of(there):
                found[name] = True
        for name in self._sides.children(folder) - listing.keys():
            known = self._sides.known(name)
            if known is not None and known.kind == "dir":
                into.add(name)
            found[name] = False
        return into


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
