"""Write scope of a job: which paths it may change, and the proof that it changed no others.

Pure. Globs are those of rules; a glob that begins with `!` excludes paths again, and exclusions
alone include everything else. Without any glob, the scope is the whole workspace.
"""

from collections.abc import Iterable, Sequence

from supervisor.core.actions import FileChange
from supervisor.core.jobs import ScopeProof
from supervisor.core.text import globs
from supervisor.core.text.paths import canonical, fold
from supervisor.errors import PolicyError, UserError


class WriteScope:
    """A checked scope. `words` are the globs as given."""

    def __init__(self, words: Sequence[str]) -> None:
        """Raise `UserError` if a glob can't be used."""
        self.words = tuple(words)
        found = [_glob(word.removeprefix("!"), word) for word in words]
        self._include = [
            glob for glob, word in zip(found, words, strict=True) if not word.startswith("!")
        ]
        self._exclude = [
            globs.Glob(fold(glob.text))
            for glob, word in zip(found, words, strict=True)
            if word.startswith("!")
        ]

    def has(self, path: str, path_b64: str | None = None) -> bool:
        """Return whether a path is within the scope. Anything but a plain path isn't."""
        try:
            name = canonical(path, path_b64)
        except ValueError:
            return False
        if name.is_odd and self.words:
            return False
        # As for deny rules: every spelling that some file system treats as the same name.
        if any(glob.matches(fold(name.text)) for glob in self._exclude):
            return False
        return not self._include or any(glob.matches(name.text) for glob in self._include)

    def covers(self, change: FileChange) -> bool:
        """Return whether the whole change is within the scope."""
        return all(self.has(*named) for named in _names(change))

    def proof(self, changes: Iterable[FileChange]) -> ScopeProof:
        """Return the proof for a job's changes."""
        named = {one for change in changes for one in _names(change)}
        outside = sorted(one[0] for one in named if not self.has(*one))
        return ScopeProof(inside=len(named) - len(outside), outside=tuple(outside))


def _names(change: FileChange) -> list[tuple[str, str | None]]:
    """Return each path of a change, as shown and encoded."""
    named = [(change.path, change.path_b64), *((s.path, s.path_b64) for s in change.steps)]
    return named if change.to is None else [*named, (change.to, change.to_b64)]


def _glob(text: str, word: str) -> globs.Glob:
    is_relative = not text.startswith("/") and not {"", ".", ".."} & set(text.split("/"))
    if not is_relative:
        raise UserError(
            f"the scope `{word}` is no path below the workspace", "write it like docs/**"
        )
    try:
        globs.check(text, word)
    except PolicyError as error:
        raise UserError(f"the scope: {error.message}", error.remedy) from error
    return globs.Glob(text)
