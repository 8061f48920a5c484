"""Ignored new files on either side, by the host's own ignore files.

`.gatehouseignore` is read first (`own_ignores`). Where it says nothing, git is asked on the host,
where the agent can't have changed the ignore files. The answers are cached. A path that host and
copy once agreed on is never ignored; the caller must check that. It must never read an ignore file
of the copy.
"""

import asyncio
import itertools
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from supervisor.workspace.disk.beneath import Root
from supervisor.workspace.disk.git_files import ignored, is_left_out
from supervisor.workspace.trees.own_ignores import FILE_NAME, OwnIgnores

IGNORE_FILES = (".gitignore", FILE_NAME)

MOST_REMEMBERED = 200_000


class Ignores:
    """Answers for one workspace. If `is_git` is false, git is asked only about repositories inside
    it. `top` is the repository around the workspace, where it isn't one itself. `is_out` says of a
    path that it is ignored, whatever the files say."""

    def __init__(
        self,
        host: Root,
        is_git: bool,
        top: Path | None = None,
        is_out: Callable[[str], bool] | None = None,
    ) -> None:
        self._workspace = host.path
        self._own = OwnIgnores(host)
        self._is_git = is_git or top is not None
        self._top = top
        self._is_out = is_out
        self._known: dict[str, bool] = {}
        self._repositories: set[str] = set()

    def found_repository(self, folder: str) -> None:
        """Note that a folder of the workspace is a repository. Git finds it by itself where the
        workspace is a repository, too."""
        if folder and not self._is_git and folder not in self._repositories:
            self._repositories.add(folder)
            self._known.clear()

    def forget(self) -> None:
        """Forget all answers, since the ignore files may have changed."""
        self._known.clear()
        self._own.forget()

    async def among(self, names: Collection[str]) -> set[str]:
        """Return the ignored ones of the names. A folder's name ends with a slash. Don't ask about
        paths below an ignored one."""
        if not names:
            return set()
        said = await asyncio.to_thread(self._verdicts, names)
        unsaid = [name for name, is_out in said.items() if is_out is None]
        without_git = {
            name for name in unsaid if is_left_out(name) and self._repository_of(name) is None
        }
        return (
            {name for name, is_out in said.items() if is_out}
            | without_git
            | await self._by_git(unsaid)
        )

    def _verdicts(self, names: Iterable[str]) -> dict[str, bool | None]:
        out = {name for name in names if self._is_out(name)} if self._is_out else set()
        return {name: name in out or self._own.verdict(name) for name in names}

    async def _by_git(self, names: Iterable[str]) -> set[str]:
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
            top = None if repository else self._top
            found = await ignored(self._workspace / repository, [name[cut:] for name in below], top)
            out |= {name if not cut else f"{repository}/{name}" for name in found}
        return out

    def _key(self, name: str) -> str:
        return self._repository_of(name) or ""

    def _repository_of(self, name: str) -> str | None:
        """Return the folder of the innermost repository around a name, or None where there is
        none."""
        if self._is_git:
            return ""
        folder = name.rstrip("/").rpartition("/")[0]
        while folder and folder not in self._repositories:
            folder = folder.rpartition("/")[0]
        return folder or None
