"""Table of rule categories, and the questions asked about a rule of any category.

To add a category, add its object (`category`) here, in a module of its own beside its judge.
INVARIANT: if `contains(outer, inner)` holds and `outer` is always in force, removing `inner`
changes no decision. The functions of the categories follow the two ways in which each judge
matches: *covers* (narrow) for allow, *touches* (broad) for ask and deny; a stricter outer rule must
touch whatever the inner one covers.
"""

from collections.abc import Callable, Hashable, Iterator
from functools import cache, lru_cache
from typing import Any

from msgspec.structs import replace

from supervisor.core.actions import RULE_CATEGORIES, WORKSPACE, Action, Category, Git
from supervisor.core.policy.category import AnyRule, ProtectedBy, Remark, RuleCategory
from supervisor.core.policy.protected_names import Protection
from supervisor.core.text.mistyped import nearest
from supervisor.core.verdicts import STRICTNESS, CompiledRule, Context, Mode, Rule, Verdict
from supervisor.errors import PolicyError

_NO_NAMES = Protection()
_CONTEXT = Context(0.0, WORKSPACE, None, frozenset(), frozenset({"origin"}), None)


@cache
def rule_category(category: Category) -> RuleCategory:
    """Return a category's object, imported at its first use. Raise `PolicyError` for a category
    without rules."""
    match category:
        case "exec":
            from supervisor.core.policy.exec_category import CATEGORY as EXEC

            return EXEC
        case "filesystem":
            from supervisor.core.policy.file_category import CATEGORY as FILESYSTEM

            return FILESYSTEM
        case "network":
            from supervisor.core.policy.network_category import CATEGORY as NETWORK

            return NETWORK
        case "git":
            from supervisor.core.policy.git_category import CATEGORY as GIT

            return GIT
        case "packages":
            from supervisor.core.policy.package_category import CATEGORY as PACKAGES

            return PACKAGES
        case "review":
            from supervisor.core.policy.review_category import CATEGORY as REVIEW

            return REVIEW
    raise PolicyError(f"no rules speak of `{category}`", nearest(category, RULE_CATEGORIES))


# -- which rules another makes superfluous --------------------------------------------------------


def compiled(rule: Rule) -> AnyRule:
    """Return the rule with its pattern; a policy holds only rules whose pattern can be read."""
    return CompiledRule(rule, rule_category(rule.category).compile)


def contains(outer: AnyRule, inner: AnyRule, protected_by: ProtectedBy) -> bool:
    """Return whether `outer`, while in force, makes `inner` redundant. False for an `outer` that is
    less strict.

    A rule that spells out a protected name lifts its protection.
    """
    if (
        outer.rule.category != inner.rule.category
        or STRICTNESS[outer.rule.effect] < STRICTNESS[inner.rule.effect]
    ):
        return False
    # The outer rule's exceptions don't matter if each has a counterpart in the inner rule.
    if not set(outer.rule.exceptions) <= (
        set(inner.rule.exceptions) if outer.is_broad == inner.is_broad else set()
    ):
        return False
    return rule_category(outer.rule.category).contains(outer, inner, protected_by)


def own_key(rule: AnyRule) -> Hashable:
    """Return a rule's key among possible containers: its most selective literal text.

    INVARIANT: if another rule contains this one, that rule's key is among this rule's `keys_above`.
    """
    category = rule.rule.category
    return category, rule_category(category).key(rule.pattern)


def keys_above(rule: AnyRule) -> Iterator[Hashable]:
    """Return the keys of every rule that could contain this one, each once or more: an index, so
    that a thousand rules are compared in a moment."""
    category = rule.rule.category
    yield from ((category, key) for key in rule_category(category).keys_above(rule.pattern))


# -- what a single rule means ---------------------------------------------------------------------


def never(rule: AnyRule, protected_by: ProtectedBy, mode: Mode) -> Remark | None:
    """Return why the rule can never match; None if no reason is known.

    `mode` is the category's mode.
    """
    if rule.is_broad:
        return None
    if rule.rule.uses == 0:
        return Remark("may be used 0 times", "say how often, e.g. `uses: 20`, or remove it")
    return rule_category(rule.rule.category).never(rule.pattern, protected_by, mode)


def wide(rule: AnyRule) -> Remark | None:
    """Return what an allow rule lets through beyond its words; None if nothing."""
    return None if rule.is_broad else rule_category(rule.rule.category).wide(rule.pattern)


def width(rule: Rule) -> str:
    """Describe a rule's scope in plain words for the person who would save it, and what its words
    don't show. It never makes a rule look narrower than it is."""
    one, category = compiled(rule), rule_category(rule.category)
    said = category.width(one.pattern)
    remark = wide(one) if category.is_wide_unsaid else None
    return said if remark is None else f"{said}; it {remark.what}"


# -- its examples ---------------------------------------------------------------------------------


def failing(rule: Rule) -> Iterator[tuple[str, bool]]:
    """Return the failing examples, each with whether the rule should have matched it."""
    alone = replace(rule, expires_at=None, session=None, uses=None) if rule.is_limited else rule
    judge = rule_category(rule.category).judge([alone], _NO_NAMES)
    for examples, expected in ((rule.match, True), (rule.not_match, False)):
        for example in examples:
            seen, context = _seen(rule.category, judge.canonical, example)
            verdict = seen if isinstance(seen, Verdict) else judge.decide(seen, "ask", context)
            if (verdict.decision == rule.effect and rule.text in verdict.rules) != expected:
                yield example, expected


# Many rules share an example, above all as one that they don't match.
@lru_cache(maxsize=256)
def _seen(
    category: Category, canonical: Callable[[Action], Any], example: str
) -> tuple[Any, Context]:
    """Return an example as its category's judge sees it, with the remote that it names
    configured."""
    action = rule_category(category).example(example)
    remote = action.remote if isinstance(action, Git) else None
    context = _CONTEXT._replace(remotes=frozenset({"origin", remote})) if remote else _CONTEXT
    return canonical(action), context
