"""Rules about acts on a forge as a category: containment, width, examples and candidates.

How a rule is matched is known by `review_rules`.
"""

from collections.abc import Iterator, Sequence

from supervisor.core.actions import title
from supervisor.core.forge_acts import OPERATION_WORDS, Act
from supervisor.core.policy import review_rules
from supervisor.core.policy.category import (
    FAR,
    AnyRule,
    Candidate,
    ProtectedBy,
    Reading,
    Remark,
    RuleCategory,
    RuleLook,
    Topic,
    look_at,
    miss,
)
from supervisor.core.policy.review_rules import ReviewJudge, ReviewPattern, SeenAct, forced, special
from supervisor.core.verdicts import CompiledRule, Context, Rule, Verdict


def _contains(outer: AnyRule, inner: AnyRule, _: ProtectedBy) -> bool:
    return outer.is_broad == inner.is_broad and review_rules.within(
        inner.pattern, outer.pattern, is_allow=not outer.is_broad
    )


def _wide(pattern: ReviewPattern) -> Remark | None:
    bare = Remark("covers every act on every forge", "name operation and repositories")
    return bare if pattern.is_bare else None


def _width(pattern: ReviewPattern) -> str:
    does = "every act" if pattern.operation == "*" else f"the act `{pattern.operation}`"
    owner, name = pattern.owner, pattern.name
    where = f"the repository {owner}/{name}"
    if "*" in owner + name:
        where = "every repository" if owner == name == "*" else f"repositories like {owner}/{name}"
    levels = {"up to": pattern.up_to, "of confidence": pattern.confidence}
    narrowed = "".join(f", {what} {level}" for what, level in levels.items() if level)
    spelled = "".join(f", with {flag}" for flag in sorted(pattern.flags))
    return f"{does} on {where}{narrowed}{spelled}"


def _candidates(action: Act, _: str) -> Iterator[Candidate]:
    flags = "".join(f" {flag}" for flag in special(action))
    level = f" --up-to={action.severity}" if action.severity not in ("", "critical") else ""
    owner = action.repository.partition("/")[0]
    for repository, label, where in (
        (action.repository, "narrow", "in this repository"),
        (f"{owner}/*", "broad", f"in every repository of {owner}"),
    ):
        explains = f"{OPERATION_WORDS[action.operation]} {where}"
        if level:
            explains += f", where nothing is graver than {action.severity}"
        rule = f"review({action.operation} {action.forge}:{repository}{level}{flags})"
        is_narrow = label == "narrow"
        yield Candidate("narrow" if is_narrow else "broad", rule, is_narrow, explains)


def _read(judge: ReviewJudge, _: Sequence[Rule], action: Act, __: Context) -> Reading:
    facts = [("repository", f"{action.forge}:{action.repository}")]
    seen = judge.canonical(action)
    if isinstance(seen, Verdict):
        return Reading(facts)
    notes = tuple(f"a rule has to spell {one}" for one in sorted(seen.flags))
    topic = Topic("act", title(action), notes, forced(action), alone=action)

    def look(rule: Rule, _: int) -> RuleLook:
        one = CompiledRule(rule, review_rules.compile_pattern)
        return look_at(one, seen, f"`{rule.pattern}` covers `{topic.text}`", _miss)

    return Reading(facts, (topic,), look)


def _miss(pattern: ReviewPattern, seen: SeenAct, broad: bool) -> RuleLook:
    if not seen.is_at(pattern):
        return miss("it is about another operation or repository", FAR)
    lacking = sorted(seen.flags - pattern.flags)
    if lacking and not broad:
        return miss(f"it doesn't spell {' '.join(lacking)}")
    return miss("its options leave this act out")


CATEGORY = RuleCategory(
    check=review_rules.check_pattern,
    compile=review_rules.compile_pattern,
    judge=lambda rules, _: review_rules.ReviewJudge(rules),
    contains=_contains,
    key=lambda _: "",
    keys_above=lambda _: iter([""]),
    wide=_wide,
    width=_width,
    example=review_rules.example_act,
    candidates=_candidates,
    read=_read,
)
