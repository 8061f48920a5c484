"""Which new files of the copy are nobody's business: what the host's own ignore files leave out (build output).

Asked of git on the host, where the agent can't have changed the ignore files, and remembered. A path that host and
copy once agreed on is never ignored; that is the caller's to know. It must never read an ignore file of the copy.
"""

import itertools
from collections.abc import Iterable
from pathlib import Path

from supervisor.workspace.git_files import ignored

MOST_REMEMBERED = 200_000


class Ignores:
    """Answers for one workspace; with `is_git` false nothing is ignored but what repositories inside it leave out."""

    def __init__(self, workspace: Path, is_git: bool) -> None:
        self._workspace = workspace
        self._is_git = is_git
        self._known: dict[str, bool] = {}
        self._repositories: set[str] = set()

    def found_repository(self, folder: str) -> None:
        """A folder of the workspace is a repository of its own. Git asks it by itself where the workspace is one, too."""
        if folder and not self._is_git and folder not in self._repositories:
            self._repositories.add(folder)
            self._known.clear()

    def forget(self) -> None:
        """The ignore files may have changed."""
        self._known.clear()

    async def among(self, names: Iterable[str]) -> set[str]:
        """Those of the names that are ignored. A folder's name ends with a slash; what is below an ignored one isn't asked."""
        asked = [name for name in names if self._repository_of(name) is not None]
        unknown = [name for name in asked if name not in self._known]
        if unknown:
            if len(self._known) > MOST_REMEMBERED:
                self._known.clear()
            out = await self._ignored(unknown)
            self._known.update((name, name in out) for name in unknown)
        return {name for name in asked if self._known.get(name, False)}

    async def _ignored(self, names: list[str]) -> set[str]:
        out: set[str] = set()
        for repository, below in itertools.groupby(sorted(names, key=self._key), key=self._key):
            cut = len(repository) + 1 if repository else 0
            found = await ignored(self._workspace / repository, [name[cut:] for name in below])
            out |= {name if not cut else f"{repository}/{name}" for name in found}
        return out

    def _key(self, name: str) -> str:
        return self._repository_of(name) or ""

    def _repository_of(self, name: str) -> str | None:
        """The folder of the repository that speaks for a path, None where there is none: the innermost one."""
        if self._is_git:
            return ""
        folder = name.rstrip("/").rpartition("/")[0]
        while folder and folder not in self._repositories:
            folder = folder.rpartition("/")[0]
        return folder or None
