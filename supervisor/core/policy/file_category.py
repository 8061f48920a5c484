"""Path rules as a category: containment, faults, width, examples and candidates.

`file_rules` knows how a rule is matched.
"""

import posixpath
from collections.abc import Iterator, Sequence

from supervisor.core.actions import FileChange
from supervisor.core.policy.category import (
    FAR,
    ONE_WILDCARD,
    SPELLED_OUT,
    WHOLE_TREE,
    AnyRule,
    Candidate,
    Option,
    ProtectedBy,
    Reading,
    Remark,
    RuleCategory,
    RuleLook,
    Topic,
    excepted,
    miss,
)
from supervisor.core.policy.file_rules import (
    FileJudge,
    check_pattern,
    exception_for,
    fits,
    force_of,
    places_of,
    spells_out,
    tidy,
)
from supervisor.core.policy.protected_names import Protected
from supervisor.core.text import globs
from supervisor.core.text.globs import Glob, longest_segment, path_in_path, spelled_segments
from supervisor.core.text.paths import WorkspacePath, canonical, fold
from supervisor.core.verdicts import Context, Mode, Rule

# A swap may have thousands of paths.
MOST_PATHS = 20


def _compile(pattern: str) -> Glob:
    # A bare category means everything, not only the first level.
    return Glob("**" if pattern == "*" else tidy(pattern))


def _contains(outer: AnyRule, inner: AnyRule, protected_by: ProtectedBy) -> bool:
    wide: Glob = outer.pattern
    narrow: Glob = inner.pattern
    if not path_in_path(wide.text, narrow.text):
        return False
    if inner.is_broad and not path_in_path(fold(wide.text), fold(narrow.text)):
        return False
    # A rule that spells out a protected name lifts its protection; a wildcard doesn't. A deny rule
    # lifts nothing, and takes precedence.
    return (
        outer.rule.effect == "deny"
        or narrow.literal in (None, wide.literal)
        or not protected_by(narrow.literal)
    )


def _never(glob: Glob, protected_by: ProtectedBy, _: Mode) -> Remark | None:
    """Return why a rule never matches. A wildcard reaches no protected name, so a rule whose paths
    all contain one allows nothing."""
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


def _options(action: FileChange) -> Iterator[Option]:
    path = canonical(action.path, action.path_b64).text
    yield Option(f"filesystem({globs.escape(path)})", SPELLED_OUT)
    folder = posixpath.dirname(path)
    if not folder:
        # Files at the top control the rest (build files, settings), so they are offered one by one.
        return
    yield Option(f"filesystem({globs.escape(folder)}/*)", ONE_WILDCARD, 2, path)
    above = folder
    while above:
        yield Option(f"filesystem({globs.escape(above)}/**)", WHOLE_TREE, 3, folder)
        above = posixpath.dirname(above)


# -- explained -------------------------------------------------------------------------------------


def _read(judge: FileJudge, rules: Sequence[Rule], action: FileChange, context: Context) -> Reading:
    facts = _facts(action)
    try:
        seen = places_of(action)
    except ValueError:
        return Reading(facts)
    places = seen[:MOST_PATHS]
    names = [judge.name_of(place) for place in places]

    def look(rule: Rule, at: int) -> RuleLook:
        return _look(rule, places[at].path, names[at])

    def topic(at: int) -> Topic:
        path, name, forced = places[at].path, names[at], list(places[at].forced)
        # Whether the path's protected name is for a rule to answer.
        is_spelled = name is not None and any(
            rule.effect != "deny"
            and spells_out(rule, path)
            and context.is_active(rule)
            and look(rule, at).counts
            for rule in rules
        )
        if name is not None and not is_spelled:
            forced.append(force_of(name))
        written: str | None = path.text
        if not action.steps:
            shown, encoded = (action.to, action.to_b64) if at else (action.path, action.path_b64)
            written = shown if encoded is None else path.text
        notes = tuple(_notes(path, written, name if is_spelled else None))
        alone = FileChange(operation="write", path=path.text, repositories=action.repositories)
        return Topic("path", path.text, notes, tuple(forced), alone=alone)

    topics = [topic(at) for at in range(len(places))]
    return Reading(facts, topics, look, (), len(seen) - len(places))


def _look(rule: Rule, path: WorkspacePath, name: Protected | None) -> RuleLook:
    if not fits(rule, path):
        return _miss(rule, path)
    exception = exception_for(rule, path)
    if exception is not None:
        return excepted(exception)
    if rule.effect == "allow" and name is not None and not spells_out(rule, path):
        why = (
            f"fits, but no wildcard covers the protected name `{name.pattern}`: only a rule"
            " that spells the path out"
        )
        return RuleLook(True, why, stopped="held")
    is_literal = Glob(tidy(rule.pattern)).literal is not None
    return RuleLook(
        True, f"names `{path.text}`" if is_literal else f"`{rule.pattern}` covers `{path.text}`"
    )


def _facts(action: FileChange) -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = [("operation", action.operation)]
    if action.link_target is not None:
        facts.append(("link to", action.link_target))
    if action.mode is not None:
        facts.append(("mode", f"{action.mode & 0o7777:o}"))
    if action.hazards:
        facts.append(("hazards", ", ".join(action.hazards)))
    return facts


def _notes(path: WorkspacePath, written: str | None, name: Protected | None) -> list[str]:
    notes = [] if written == path.text else [f"written as `{written}`"]
    if name is not None:
        notes.append(f"has the protected name `{name.pattern}`: {name.why}")
    if path.folded != path.text:
        notes.append(f"deny and ask rules see it as `{path.folded}` too")
    return notes


def _miss(rule: Rule, path: WorkspacePath) -> RuleLook:
    if rule.effect != "allow":
        return _difference(fold(tidy(rule.pattern)), path.folded)
    found = _difference(tidy(rule.pattern), path.text)
    if Glob(fold(tidy(rule.pattern))).matches(path.folded):
        return miss(
            "only the spelling differs: an allow rule compares upper and lower case, and Unicode"
            " forms",
            1,
        )
    return found


def _difference(pattern: str, path: str) -> RuleLook:
    """Return the first place where a glob and a path differ; only called if they do."""
    wanted, given = pattern.split("/"), path.split("/")
    for at, segment in enumerate(wanted):
        if segment == "**":
            return _behind_stars(wanted, at, given)
        if at >= len(given):
            return miss(f"is about what lies deeper than `{path}`", 1 if at else FAR)
        if not Glob(segment).matches(given[at]):
            what = "name" if at == len(given) - 1 else "folder"
            is_about = (
                f"`{segment}`"
                if at == len(wanted) - 1
                else f"what is below `{'/'.join(wanted[: at + 1])}`"
            )
            is_near = at > 0 or _same_name(wanted[-1], given[-1])
            return miss(
                f"is about {is_about}; here the {what} is `{given[at]}`", 3 if is_near else FAR
            )
    return _too_deep(wanted, given)


def _too_deep(wanted: Sequence[str], given: Sequence[str]) -> RuleLook:
    """Explain that every segment of the pattern fits, but the path is longer."""
    folder = "/".join(given[: len(wanted)])
    if wanted[-1].strip("*"):
        return miss(
            f"names `{folder}` itself, not what is below it: `{'/'.join(wanted)}/**` would be that",
            1,
        )
    wide = "/".join([*wanted[:-1], "**"])
    return miss(f"`*` stays in one folder, and `{folder}/` is one more: `{wide}` would cover it", 1)


def _behind_stars(wanted: Sequence[str], at: int, given: Sequence[str]) -> RuleLook:
    """Explain that the text after the first `**` isn't found."""
    rest = "/".join(wanted[at + 1 :])
    is_near = at > 0 or _same_name(wanted[-1], given[-1])
    where = f" below `{'/'.join(wanted[:at])}`" if at else ""
    return miss(
        f"is about `{rest}` at any depth{where}, which `{'/'.join(given[at:])}` isn't",
        2 if is_near else FAR,
    )


def _same_name(pattern: str, name: str) -> bool:
    return bool(pattern.strip("*")) and Glob(pattern).matches(name)


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
    read=_read,
    options=_options,
    never=_never,
)
