"""The copy as the walk's side: which paths are compared and which are skipped.

It must never read a file.
"""

import stat
from collections.abc import Mapping

from supervisor.core.files.changes import PERMISSIONS, Known, Signature
from supervisor.workspace.apply.placing import TEMPORARY_PREFIX
from supervisor.workspace.trees.trees import Sides


class CopySide:
    """One session's copy, for the walk. `compared` are the signatures of paths examined since they
    were agreed on. `repositories` are the folders with a `.git` that a walk came across."""

    def __init__(self, sides: Sides, compared: Mapping[str, Signature]) -> None:
        self.entries = sides.copy_entries
        self.gone = sides.copy_gone
        self._speak_of = sides.speak_of
        self._compared = compared
        self.repositories: set[str] = set()

    def is_hidden(self, leaf: str) -> bool:
        return leaf == ".git" or leaf.startswith(TEMPORARY_PREFIX)

    def agreed(self, name: str, known: Known | None) -> Signature | None:
        return self._compared.get(name) or (known.copy_signature if known is not None else None)

    def differs(self, known: Known | None, mode: int) -> bool:
        return (
            known is None or known.kind != "dir" or known.mode != stat.S_IMODE(mode) & PERMISSIONS
        )

    def enters(self, known: Known | None) -> bool:
        return False  # a new folder's tree may be large, and is watched from the first look on

    def is_gone(self, name: str) -> None:
        self._speak_of(name)

    def ignored(self, name: str) -> None:
        pass  # the agent's own

    def found_git(self, folder: str) -> None:
        self.repositories.add(folder)  # they say nothing about what is ignored

    def is_empty_if_unreadable(self, folder: str, error: OSError) -> bool:
        return True  # what was in it is looked at one by one, which tells
