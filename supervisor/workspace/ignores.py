"""Which new files of the copy are nobody's business: what the host's own ignore files leave out (build output).

Asked of git on the host, where the agent can't have changed the ignore files, and remembered. A path that host and
copy once agreed on is never ignored; that is the caller's to know. It must never read an ignore file of the copy.
"""

from collections.abc import Iterable
from pathlib import Path

from supervisor.workspace.git_files import ignored

MOST_REMEMBERED = 200_000


class Ignores:
    """Answers for one workspace; with `is_git` false nothing is ignored."""

    def __init__(self, workspace: Path, is_git: bool) -> None:
        self._workspace = workspace
        self._is_git = is_git
        self._known: dict[str, bool] = {}

    def forget(self) -> None:
        """The ignore files may have changed."""
        self._known.clear()

    async def among(self, names: Iterable[str]) -> set[str]:
        """Those of the names that are ignored. A folder's name ends with a slash; what is below an ignored one isn't asked."""
        if not self._is_git:
            return set()
        asked = list(names)
        unknown = [name for name in asked if name not in self._known]
        if unknown:
            if len(self._known) > MOST_REMEMBERED:
                self._known.clear()
            out = await ignored(self._workspace, unknown)
            self._known.update((name, name in out) for name in unknown)
        return {name for name in asked if self._known.get(name, False)}
