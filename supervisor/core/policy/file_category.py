"""Path rules as a category: containment, faults, width, examples and candidates.

How a rule is matched is known by `file_rules`.
"""

from collections.abc import Iterator

from supervisor.core.actions import FileChange
from supervisor.core.policy.category import (
    Candidate,
    Compiled,
    ProtectedBy,
    Remark,
    RuleCategory,
)
from supervisor.core.policy.file_rules import FileJudge, check_pattern, tidy
from supervisor.core.text import globs
from supervisor.core.text.globs import Glob, longest_segment, path_in_path, spelled_segments
from supervisor.core.text.paths import canonical, fold
from supervisor.core.verdicts import Mode


def _compile(pattern: str) -> Glob:
    # A category alone is everything, not only the first level.
    return Glob("**" if pattern == "*" else tidy(pattern))


def _contains(outer: Compiled, inner: Compiled, protected_by: ProtectedBy) -> bool:
    wide: Glob = outer.pattern
    narrow: Glob = inner.pattern
    if not path_in_path(wide.text, narrow.text):
        return False
    if not inner.is_allow and not path_in_path(fold(wide.text), fold(narrow.text)):
        return False
    # A rule that spells a protected name out lifts its protection; a wildcard doesn't. A deny rule
    # lifts nothing, and wins.
    return (
        outer.rule.effect == "deny"
        or narrow.literal in (None, wide.literal)
        or not protected_by(narrow.literal)
    )


def _never(glob: Glob, protected_by: ProtectedBy, _: Mode) -> Remark | None:
    """A wildcard reaches no protected name, so a rule all of whose paths have one allows
    nothing."""
    if glob.literal is not None:
        return None
    literals = [found for one in glob.text.split("/") if (found := Glob(one).literal)]
    names = [
        name
        for one in ("/".join(glob.fixed), *literals)
        if one and (name := protected_by(one)) is not None
    ]
    strictest = min(names, key=lambda name: name.decision != "deny", default=None)
    if strictest is None:
        return None
    verb = "denied" if strictest.decision == "deny" else "asked"
    remedy = (
        "use a `git(...)` rule"
        if strictest.pattern.startswith(".git/")
        else "spell each path out, or remove it"
    )
    return Remark(
        f"reaches only what the protected name `{strictest.pattern}` keeps {verb}", remedy
    )


def _wide(glob: Glob) -> Remark | None:
    if set(glob.text.split("/")) <= {"*", "**"}:
        return Remark(
            "covers every file of the workspace but protected names",
            "name the folders that are meant",
        )
    return None


def _width(glob: Glob) -> str:
    if set(glob.text.split("/")) <= {"*", "**"} and "**" in glob.text:
        return "every file in the workspace"
    if glob.literal is not None:
        return f"the one path {glob.literal}"
    folder = "/".join(glob.fixed)
    rest = glob.text.removeprefix(f"{folder}/") if folder else glob.text
    if rest == "**":
        return f"every file below {folder}/"
    if rest == "*":
        return f"every file right in {folder or 'the top folder'}"
    return f"every path like {glob.text}"


def _example(example: str) -> FileChange:
    return FileChange(operation="write", path=example)


def _candidates(action: FileChange, _: str) -> Iterator[Candidate]:
    path = canonical(action.path, action.path_b64).text
    folder = path.rpartition("/")[0]
    pattern = globs.escape(folder) if folder else "."
    where = f"`{folder}`" if folder else "the top of the workspace"
    if action.operation == "swap":
        whole = f"filesystem({globs.escape(path)}/**)"
        yield Candidate(
            "narrow", whole, default=True, explains=f"`{path}` itself and everything below it"
        )
    yield Candidate(
        "narrow", f"filesystem({pattern}/*)", default=True, explains=f"files right in {where}"
    )
    yield Candidate(
        "exact", f"filesystem({globs.escape(path)})", default=False, explains="this path only"
    )
    if folder:
        yield Candidate(
            "broad",
            f"filesystem({pattern}/**)",
            default=False,
            explains=f"everything below {where}",
        )


CATEGORY = RuleCategory(
    check=check_pattern,
    compile=_compile,
    judge=FileJudge,
    contains=_contains,
    key=longest_segment,
    keys_above=lambda glob: iter(spelled_segments(glob)),
    wide=_wide,
    width=_width,
    example=_example,
    candidates=_candidates,
    never=_never,
)
