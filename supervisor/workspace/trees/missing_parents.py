"""Parent folders that a new path needs on the host, with the copy's permissions.

Many paths share a folder, so each is looked at once. It must never follow a link, or change
anything.
"""

import stat

from supervisor.core.files.changes import ANY_MODE
from supervisor.core.files.new_folders import FolderModes, meant
from supervisor.workspace.disk.beneath import PathError, split
from supervisor.workspace.disk.scan import signature_at
from supervisor.workspace.trees.trees import Sides


class Ways:
    """For one run over many paths: each folder is looked at once. Blocking: call it in a thread."""

    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        self._ways: dict[str, FolderModes] = {"": ()}

    def to(self, name: str) -> FolderModes:
        """Return the folders that a path needs first."""
        folder = name.rpartition("/")[0]
        if folder not in self._ways:
            self._ways[folder] = self._look(folder)
        return self._ways[folder]

    def _look(self, folder: str) -> FolderModes:
        try:
            split(folder)
        except PathError:
            return ()  # nothing can be there
        if signature_at(self._sides.host, folder) is not None:
            return ()
        # A look for what isn't there would keep an overlay from showing it later.
        mine = signature_at(self._sides.copy, folder) if self._sides.is_of_agent(folder) else None
        mode = meant(mine[4]) if mine is not None and stat.S_ISDIR(mine[4]) else ANY_MODE
        return (*self.to(folder), (folder, mode))
