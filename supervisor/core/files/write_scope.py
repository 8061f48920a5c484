"""Write scope of a job: which paths it may change, and the proof that it changed no others.

Pure. Globs are those of rules; a glob that begins with `!` excludes paths again, and exclusions
alone include everything else. Without any glob, the scope is the whole workspace. INVARIANT: no
scope covers a protected name, a link, a submodule or a new executable.
"""

import re
from collections.abc import Iterable, Sequence

from supervisor.core.actions import FileChange
from supervisor.core.files.changes import names_of
from supervisor.core.jobs import MOST_KEPT, Changed, Job, ScopeProof
from supervisor.core.policy.file_rules import OF_REPOSITORY, hazard_names, protected_name
from supervisor.core.text import globs
from supervisor.core.text.paths import canonical, fold
from supervisor.errors import PolicyError, UserError

# What no job makes, by the name of its hazard.
ODD = {
    "symlink": "a symlink",
    "new-executable": "a new executable",
    "setuid": "set-uid",
}
# What interpreters and test runners leave: names of folders and files, and their endings. New ones
# are never a job's result.
LEFTOVERS = frozenset(
    {
        *("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis"),
        *(".tox", ".nox", ".eggs", ".coverage", "htmlcov", ".ipynb_checkpoints"),
        *(".nyc_output", ".eslintcache", ".stylelintcache", ".phpunit.cache"),
        *(".phpunit.result.cache", ".rspec_status", ".gradle", ".scannerwork"),
    }
)
LEFTOVER_ENDINGS = (".pyc", ".pyo", ".tsbuildinfo")
# NTFS makes such names for long ones.
_SHORT = re.compile(r"[^.~]{1,7}~[0-9]+(?:\.[^.]{0,3})?\Z")


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


def judge(job: Job, changes: Iterable[Changed]) -> ScopeProof:
    """Return the proof of what a job changed: the one judgement for a folder, a branch and a pull
    request. `refusal` says what it forbids."""
    scope, each = WriteScope(job.scope), {one.path: one for one in changes}
    inside, lines, blocked, outside = 0, 0, list[str](), list[str]()
    for _, one in sorted(each.items()):
        lines += one.lines
        if why := one.odd or _why_blocked(one.path):
            blocked.append(f"{one.shown} ({why})")
        elif not scope.has(one.path):
            outside.append(one.shown)
        else:
            inside += 1
    kept = outside[:MOST_KEPT], blocked[:MOST_KEPT]
    return ScopeProof(
        inside=inside,
        outside=tuple(kept[0]),
        blocked=tuple(kept[1]),
        more=len(outside) + len(blocked) - len(kept[0]) - len(kept[1]),
        too_many=_over(job, len(each), lines),
        lines=lines,
    )


def changed(action: FileChange) -> list[Changed]:
    """Return the paths of a changed file as `judge` takes them."""
    found = hazard_names(action)
    # One that is replaced or removed, too.
    before = (action.before, *(step.before for step in action.steps))
    if any(state is not None and state.startswith("symlink:") for state in before):
        found.add("symlink")
    odd = next((word for name, word in ODD.items() if name in found), "")
    return [
        Changed(name, OF_REPOSITORY if action.repositories else odd) for name in names_of(action)
    ]


def is_leftover(path: str) -> bool:
    """Return whether a new file is only what interpreters and test runners leave."""
    return path.endswith(LEFTOVER_ENDINGS) or not LEFTOVERS.isdisjoint(path.split("/"))


def _why_blocked(path: str) -> str:
    """Return why no job may change a path, in whatever spelling; "" if one may. A backslash parts
    names on Windows, and a colon ends the name of a drive there, or begins that of a stream."""
    slashed = path.replace("\\", "/")
    names = [name.partition(":")[0] for name in slashed.split("/")]
    if any(_SHORT.match(name.rstrip(" .")) for name in names):
        return "a short name, which may stand for another file"
    spelled = (path, "/".join(names), slashed.replace(":", "/"))
    found = next(filter(None, map(protected_name, spelled)), None)
    return "" if found is None else f"{found.pattern}: {found.why}"


def _over(job: Job, files: int, lines: int) -> str:
    if job.max_files is not None and files > job.max_files:
        return f"{files:,} files, and at most {job.max_files:,} are let through"
    if job.max_diff_lines is not None and lines > job.max_diff_lines:
        return f"{lines:,} changed lines, and at most {job.max_diff_lines:,} are let through"
    return ""


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
