"""Explain a policy's answer: how it read an action, and what each rule says.

Decides nothing. The verdict is `evaluate`'s own; the rest comes from the judges' own functions, one
rule and one part of the action at a time. It is separate from the judges because a verdict has to
be quick, and this may take its time. It must never disagree with `evaluate`, and it never raises.
Each category is read in `explain_exec`, `explain_filesystem`, ...; nothing here is escaped: the
caller does that when showing it.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from supervisor.core.actions import (
    RULE_CATEGORIES,
    WORKSPACE,
    Action,
    Category,
    Exec,
    Git,
    Packages,
    category_of,
    title,
)
from supervisor.core.lab.explanation import (
    FAR,
    NEAR,
    OUTCOMES,
    ActionPart,
    Basis,
    Explanation,
    Looked,
    PartAnswer,
    Reading,
    RuleLook,
    RuleOutcome,
    Topic,
)
from supervisor.core.policy.evaluate import ORIGIN, evaluate_in
from supervisor.core.policy.outside_acts import outside_acts
from supervisor.core.policy.rules import Policy
from supervisor.core.verdicts import STRICTNESS, Context, Forced, Rule, Verdict


def explain(
    policy: Policy,
    action: Action,
    *,
    now: float,
    workspace: str = WORKSPACE,
    session_id: str | None = None,
    forbidden_endpoints: frozenset[tuple[str, int]] = frozenset(),
    configured_remotes: frozenset[str] | None = None,
    uses: Mapping[str, int] | None = None,
) -> Explanation:
    """Return the verdict of `evaluate` for the same arguments, and why. Pure, and never raises."""
    remotes = ORIGIN if configured_remotes is None else configured_remotes
    # From outside of a session: as where commands are contained.
    context = Context(
        now, workspace, session_id, forbidden_endpoints, remotes, uses, is_contained=True
    )

    def judge(under: Policy) -> Verdict:
        return evaluate_in(under, action, context)

    category, verdict = category_of(action), judge(policy)
    others = tuple(
        (one, len(policy.of(one))) for one in RULE_CATEGORIES if one != category and policy.of(one)
    )
    plain = Explanation(
        category, title(action), verdict, "nothing", policy.mode_of(category), others=others
    )
    if policy.is_deny_all:
        return plain
    if category not in RULE_CATEGORIES:
        return msgspec.structs.replace(plain, basis="always")
    try:
        return _explained(plain, policy, action, context, judge)
    except Exception as error:
        trouble = (
            f"what the rules say could not be told apart ({type(error).__name__}): report this as"
            " a bug"
        )
        basis: Basis = "rules" if verdict.rules else "mode"
        return msgspec.structs.replace(plain, basis=basis, trouble=trouble)


def read(policy: Policy, action: Action, context: Context) -> Reading:
    """Return the reading of an action of a category that rules speak of."""
    match category_of(action):
        case "exec":
            from supervisor.core.lab import explain_exec

            return explain_exec.ExecReading(policy, action, context)
        case "filesystem":
            from supervisor.core.lab import explain_filesystem

            return explain_filesystem.FilesystemReading(policy, action, context)
        case "network":
            from supervisor.core.lab import explain_network

            return explain_network.NetworkReading(policy, action, context)
        case "git":
            from supervisor.core.lab import explain_git

            return explain_git.GitReading(policy, action, context)
        case "review":
            from supervisor.core.lab import explain_review

            return explain_review.ReviewReading(action)
        case _:
            from supervisor.core.lab import explain_packages

            return explain_packages.PackagesReading(action)


def _explained(
    plain: Explanation,
    policy: Policy,
    action: Action,
    context: Context,
    judge: Callable[[Policy], Verdict],
) -> Explanation:
    from supervisor.core.lab.explain_remedies import advice, suggestions

    category, verdict = plain.category, plain.verdict
    reading = read(policy, action, context)
    # Where a missing rule would only be asked: a denial that no rule made is then one that nothing
    # lifts.
    asked = policy.judge_for(category).judge(action, "ask", context)
    forced = [*reading.forced, *(item for topic in reading.topics for item in topic.forced)]
    if (
        asked.decision == "deny"
        and not asked.rules
        and not any(item.decision == "deny" for item in forced)
    ):
        forced.insert(0, Forced("deny", asked.why))
    acts = _acts_of(policy, action, context)
    forced += [
        Forced(one.decision, f"as {kind}: {one.why}")
        for kind, _, one in acts
        if one.decision != "allow"
    ]
    looked = _look_at(policy.of(category), _Case(reading, verdict, forced, context))
    looked += _deciding_elsewhere(policy, {kind for kind, _, _ in acts}, verdict)
    found = msgspec.structs.replace(
        plain,
        basis=_basis(verdict, reading, forced),
        facts=(*reading.facts, *((f"as {kind}", title(act)) for kind, act, _ in acts)),
        parts=tuple(_part(at, topic, looked, context) for at, topic in enumerate(reading.topics)),
        parts_left_out=reading.left_out,
        forced=tuple(dict.fromkeys(item.why for item in forced)),
        looked=tuple(sorted(looked, key=_telling)),
    )
    found = msgspec.structs.replace(
        found, suggestions=suggestions(found, action, policy, context.workspace, judge)
    )
    return msgspec.structs.replace(found, advice=advice(found))


def _acts_of(
    policy: Policy, action: Action, context: Context
) -> list[tuple[Category, Git | Packages, Verdict]]:
    """Return every push, fetch and install that a command line is besides, and its verdict."""
    acts = outside_acts(action).acts if isinstance(action, Exec) else ()
    return [(kind := category_of(one), one, policy.verdict(kind, one, context)) for one in acts]


def _deciding_elsewhere(
    policy: Policy, categories: set[Category], verdict: Verdict
) -> list[Looked]:
    """Return the rules of other categories that made the verdict on a command line."""
    return [
        Looked(rule, "decides", f"speaks of it as {rule.category}")
        for rule in policy.rules
        if rule.category in categories
        and rule.effect == verdict.decision
        and rule.text in verdict.rules
    ]


def _telling(one: Looked) -> tuple[int, int, int]:
    return OUTCOMES.index(one.outcome), one.distance, -STRICTNESS[one.rule.effect]


def _basis(verdict: Verdict, reading: Reading, forced: Sequence[Forced]) -> Basis:
    if verdict.rules:
        return "rules"
    if any(item.decision == verdict.decision for item in forced):
        return "forced"
    return (
        "free"
        if verdict.decision == "allow" and all(topic.is_free for topic in reading.topics)
        else "mode"
    )


def _part(at: int, topic: Topic, looked: Sequence[Looked], context: Context) -> ActionPart:
    """Return one part's answer: the strictest of the rules in force that match it."""
    speaking = [one.rule for one in looked if at in one.parts and context.is_active(one.rule)]
    answer: PartAnswer = "free" if topic.is_free else "open"
    rules: tuple[str, ...] = ()
    if speaking:
        strictest = max((rule.effect for rule in speaking), key=STRICTNESS.__getitem__)
        answer = strictest
        rules = tuple(dict.fromkeys(rule.text for rule in speaking if rule.effect == strictest))
    return ActionPart(
        topic.kind,
        topic.text,
        answer,
        rules,
        tuple(item.why for item in topic.forced),
        topic.notes,
        topic.alone,
    )


# -- one rule -------------------------------------------------------------------------------------


class _Case(NamedTuple):
    """Everything that a rule is compared with: the action as read, and its verdict."""

    reading: Reading
    verdict: Verdict
    forced: Sequence[Forced]
    context: Context


def _look_at(rules: Sequence[Rule], case: _Case) -> list[Looked]:
    """Look at every rule."""
    topics = case.reading.topics
    looks = [[case.reading.look(rule, at) for at in range(len(topics))] for rule in rules]
    answered = {
        at
        for rule, row in zip(rules, looks, strict=True)
        if case.context.is_active(rule)
        for at, look in enumerate(row)
        if look.counts
    }
    # A near miss of an allow rule is explained by the parts that still lack a rule.
    lacking = [at for at in range(len(topics)) if at not in answered]
    every = range(len(topics))
    return [
        _looked(rule, row, (lacking if rule.effect == "allow" else ()) or every, case)
        for rule, row in zip(rules, looks, strict=True)
    ]


def _looked(rule: Rule, looks: Sequence[RuleLook], among: Sequence[int], case: _Case) -> Looked:
    parts = tuple(at for at, look in enumerate(looks) if look.counts)
    if not looks:
        outcome: RuleOutcome = "held" if case.verdict.decision == "deny" else "missed"
        return Looked(rule, outcome, "no rule is asked: the action can't be read", distance=FAR)
    at = min(parts or among, key=lambda at: (looks[at].stopped is None, looks[at].distance))
    look = looks[at]
    where = (
        f"{case.reading.topics[at].kind} {at + 1}: "
        if len(looks) > 1 and look.distance <= NEAR
        else ""
    )
    if not case.context.is_active(rule):
        besides = "it would match" if parts else f"besides, {where}{look.why}"
        return Looked(
            rule, "inactive", f"{_inactive(rule, case.context)}; {besides}", parts, look.distance
        )
    if parts:
        outcome, why = _counting(rule, [looks[at].why for at in parts], parts, case)
        return Looked(rule, outcome, why, parts)
    if (
        case.reading.left_out
        and rule.effect == case.verdict.decision
        and rule.text in case.verdict.rules
    ):
        return Looked(rule, "decides", f"speaks of a {case.reading.topics[at].kind} further on")
    return Looked(rule, look.stopped or "missed", f"{where}{look.why}", parts, look.distance)


def _counting(
    rule: Rule, whys: Sequence[str], parts: Sequence[int], case: _Case
) -> tuple[RuleOutcome, str]:
    """Return the effect of a rule that is in force and matches some part."""
    verdict, kind = case.verdict, case.reading.topics[parts[0]].kind
    how = whys[0] if len(set(whys)) == 1 else ""
    if len(case.reading.topics) > 1:
        speaks = "covers" if rule.effect == "allow" else "is about"
        said = f"{kind} {_numbers(parts)}: {how}" if how else f"{speaks} {kind} {_numbers(parts)}"
    else:
        said = how
    if rule.effect == verdict.decision and verdict.rules:
        return "decides", said
    if verdict.rules:
        return "overruled", f"{said}; but {verdict.decision} {verdict.rule} is stricter"
    lifting = next(
        (item.why for item in case.forced if STRICTNESS[item.decision] > STRICTNESS[rule.effect]),
        "",
    )
    if lifting:
        return "held", f"{said}; but {lifting}"
    return "partly", f"{said}; another {kind} has no rule"


def _numbers(parts: Sequence[int]) -> str:
    return ", ".join(str(at + 1) for at in parts[:6]) + (", ..." if len(parts) > 6 else "")


def _inactive(rule: Rule, context: Context) -> str:
    """Return why a rule isn't in force here and now."""
    if rule.expires_at is not None and context.is_over(rule):
        return f"expired {datetime.fromtimestamp(rule.expires_at, UTC):%Y-%m-%d %H:%M} UTC"
    if rule.session is not None and rule.session != context.session_id:
        return f"only for the session `{rule.session}`"
    if context.uses is None:
        return f"for {rule.uses} uses, which nobody counts here"
    return f"used up: {context.uses.get(rule.id, 0)} of {rule.uses} uses"
