"""Explain a file change: paths, protected names, and where patterns differ.

Decides nothing (see `explain`). `file_rules` tells whether a rule fits; only the wording is made
here.
"""

from collections.abc import Sequence

from supervisor.core.actions import Action, FileChange
from supervisor.core.lab.explanation import FAR, RuleLook, Topic, excepted, miss
from supervisor.core.policy.file_rules import (
    FileJudge,
    exception_for,
    fits,
    force_of,
    hazards_of,
    spells_out,
    tidy,
)
from supervisor.core.policy.protected_names import Protected
from supervisor.core.policy.rules import Policy
from supervisor.core.text.globs import Glob
from supervisor.core.text.paths import WorkspacePath, canonical, fold
from supervisor.core.verdicts import Context, Forced, Rule

# Of a swap there may be thousands.
MOST_PATHS = 20


class FilesystemReading:
    """A `FileChange` as understood. No topic where one of its paths is outside the workspace."""

    def __init__(self, policy: Policy, action: Action, context: Context) -> None:
        assert isinstance(action, FileChange)
        judge = policy.judge_for("filesystem")
        assert isinstance(judge, FileJudge)
        self.forced: list[Forced] = []
        paths = _paths(action)
        self.left_out = max(0, len(paths) - MOST_PATHS)
        self.paths = paths[:MOST_PATHS]
        self.protected = [judge.protected(path.text, action.repositories) for path in self.paths]
        self.facts = _facts(action)
        self.topics = [
            self._topic(action, at, is_spelled=self._is_spelled(policy, at, context))
            for at in range(len(self.paths))
        ]

    def _topic(self, action: FileChange, at: int, *, is_spelled: bool) -> Topic:
        path, name = self.paths[at], self.protected[at]
        forced = list(hazards_of(action))
        if path.is_odd:
            forced.append(Forced("ask", f"{path.is_odd} is never allowed by a rule"))
        if name is not None and not is_spelled:
            forced.append(force_of(name))
        written: str | None = path.text
        if not action.steps:
            shown, encoded = (action.to, action.to_b64) if at else (action.path, action.path_b64)
            written = shown if encoded is None else path.text
        notes = tuple(_notes(path, written, name if is_spelled else None))
        alone = FileChange(operation="write", path=path.text, repositories=action.repositories)
        return Topic("path", path.text, notes, tuple(forced), alone=alone)

    def _is_spelled(self, policy: Policy, at: int, context: Context) -> bool:
        """Return whether a rule spells the path out, so that its protected name is this rule's to
        answer."""
        return self.protected[at] is not None and any(
            rule.effect != "deny"
            and spells_out(rule, self.paths[at])
            and context.is_active(rule)
            and self.look(rule, at).counts
            for rule in policy.of("filesystem")
        )

    def look(self, rule: Rule, at: int) -> RuleLook:
        """Return what a rule says of one of the paths."""
        path, name = self.paths[at], self.protected[at]
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


def _paths(action: FileChange) -> list[WorkspacePath]:
    try:
        moved = [] if action.to is None else [canonical(action.to, action.to_b64)]
        below = [canonical(step.path, step.path_b64) for step in action.steps]
        return [canonical(action.path, action.path_b64), *moved, *below]
    except ValueError:
        return []


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


# -- where a pattern parts from a path ------------------------------------------------------------


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
    """Return the first place where a glob and a path part; only called where they do."""
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
    """Every segment of the pattern fits, and the path goes on."""
    folder = "/".join(given[: len(wanted)])
    if wanted[-1].strip("*"):
        return miss(
            f"names `{folder}` itself, not what is below it: `{'/'.join(wanted)}/**` would be that",
            1,
        )
    wide = "/".join([*wanted[:-1], "**"])
    return miss(f"`*` stays in one folder, and `{folder}/` is one more: `{wide}` would cover it", 1)


def _behind_stars(wanted: Sequence[str], at: int, given: Sequence[str]) -> RuleLook:
    """Explain that the text behind the first `**` isn't found."""
    rest = "/".join(wanted[at + 1 :])
    is_near = at > 0 or _same_name(wanted[-1], given[-1])
    where = f" below `{'/'.join(wanted[:at])}`" if at else ""
    return miss(
        f"is about `{rest}` at any depth{where}, which `{'/'.join(given[at:])}` isn't",
        2 if is_near else FAR,
    )


def _same_name(pattern: str, name: str) -> bool:
    return bool(pattern.strip("*")) and Glob(pattern).matches(name)
