"""Explain a policy's answer: how it read an action, what each rule says, what would change it.

Decides nothing, saves nothing, and never raises. The verdict is `evaluate`'s own, with which it
must never disagree; each category tells how its judge read the action (`category`). It is separate
because a verdict has to be quick, and this may take its time. Nothing here is escaped: the caller
does that when showing it.

INVARIANT: if the first suggestion for each part is added to the policy, all of them together, the
verdict becomes an allow. This is tried before anything is offered. A denial that no rule lifts gets
a sentence instead.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

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
from supervisor.core.policy.categories import rule_category
from supervisor.core.policy.category import (
    FAR,
    NEAR,
    OUTCOMES,
    Candidate,
    Reading,
    RuleLook,
    RuleOutcome,
    Topic,
)
from supervisor.core.policy.evaluate import ORIGIN, evaluate_in, verdicts_on_acts
from supervisor.core.policy.policy_text import merge, policy_from_data
from supervisor.core.policy.rules import Policy
from supervisor.core.policy.suggest import suggest
from supervisor.core.verdicts import STRICTNESS, Context, Forced, Mode, Rule, Verdict

MOST_LACKING = 10
# Basis of the verdict: rules, something that no allow rule lifts, the category's mode; `free`:
# nothing has to allow it; `always`: a proposal, which is always asked; `nothing`: no policy is in
# force.
type Basis = Literal["rules", "forced", "mode", "free", "always", "nothing"]
type PartAnswer = Literal["allow", "ask", "deny", "free", "open"]


class ActionPart(msgspec.Struct, frozen=True):
    """A part of the action: a command, a path, a connection, an address, a ref, a package.

    `answer` is what the rules in force say about it alone: `open` if none matches, `free` if it
    needs no rule. `rules` are those that gave it. `forced`: why no allow rule lifts an ask or a
    deny. `notes` tell how it was found and read.
    """

    kind: str
    text: str
    answer: PartAnswer
    rules: tuple[str, ...] = ()
    forced: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    alone: Action | None = None


class Looked(msgspec.Struct, frozen=True):
    """A rule and what it says of the action. `parts`: positions in `Explanation.parts` that it
    matches. `distance`: 0 if it fits, up to `NEAR` if little differs."""

    rule: Rule
    outcome: RuleOutcome
    why: str
    parts: tuple[int, ...] = ()
    distance: int = 0


class AllowSuggestion(msgspec.Struct, frozen=True):
    """An allow rule that would be enough for the part at this position; `explains` says what else
    it would allow."""

    part: int
    rule: str
    label: str
    explains: str


class Explanation(msgspec.Struct, frozen=True):
    """Everything about one verdict.

    `facts` are (what, value) pairs: how the action was understood. `parts_left_out`: how many more
    parts there are. `forced`: what no allow rule lifts. `mode` is what the category does if no rule
    matches; `basis` says whether that decided. `looked`: every rule of the category, the most
    telling first. `others`: how many rules of each other category weren't looked at. `suggestions`:
    allow rules; the first of each part together are enough for an allow. `advice` says what else to
    do if rules aren't enough. `trouble` is empty unless the explanation is incomplete.
    """

    category: Category
    action: str
    verdict: Verdict
    basis: Basis
    mode: Mode
    facts: tuple[tuple[str, str], ...] = ()
    parts: tuple[ActionPart, ...] = ()
    parts_left_out: int = 0
    forced: tuple[str, ...] = ()
    looked: tuple[Looked, ...] = ()
    others: tuple[tuple[Category, int], ...] = ()
    suggestions: tuple[AllowSuggestion, ...] = ()
    advice: str = ""
    trouble: str = ""


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
    """Return the verdict of `evaluate` for the same arguments, `with_parts`, and its explanation.
    Pure, and never raises."""
    remotes = ORIGIN if configured_remotes is None else configured_remotes
    # Outside a session: as if commands were contained.
    context = Context(
        now, workspace, session_id, forbidden_endpoints, remotes, uses, is_contained=True
    )

    def judge(under: Policy) -> Verdict:
        return evaluate_in(under, action, context, with_parts=True)

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


def _explained(
    plain: Explanation,
    policy: Policy,
    action: Action,
    context: Context,
    judge: Callable[[Policy], Verdict],
) -> Explanation:
    category, verdict = plain.category, plain.verdict
    judge_of_it, rules = policy.judge_for(category), policy.of(category)
    reading = rule_category(category).read(judge_of_it, rules, action, context)
    # Judged as if a missing rule only led to a question: then a denial that no rule made is one
    # that nothing lifts.
    asked = judge_of_it.judge(action, "ask", context)
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
    looked = _look_at(rules, _Case(reading, verdict, forced, context))
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
        found, suggestions=_suggestions(found, action, policy, context.workspace, judge)
    )
    return msgspec.structs.replace(found, advice=_advice(found))


def _acts_of(
    policy: Policy, action: Action, context: Context
) -> list[tuple[Category, Git | Packages, Verdict]]:
    """Return every push, fetch and install in a command line, and its verdict."""
    acts = verdicts_on_acts(policy, action, context) if isinstance(action, Exec) else ()
    return [(category_of(one), one, verdict) for one, verdict in acts]


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


# -- what would change it -------------------------------------------------------------------------


def _suggestions(
    explained: Explanation,
    action: Action,
    policy: Policy,
    workspace: str,
    judge: Callable[[Policy], Verdict],
) -> tuple[AllowSuggestion, ...]:
    """Return allow rules that would be enough: for the whole action if possible, else part by part;
    none if an allow rule isn't enough.

    `judge` asks another policy about the same action.
    """
    lacking = [
        (at, part)
        for at, part in enumerate(explained.parts)
        if part.answer == "open" or part.forced
    ]
    if (
        explained.verdict.decision == "allow"
        or explained.verdict.rules
        or not 0 < len(lacking) <= MOST_LACKING
    ):
        return ()
    if (
        explained.category == "filesystem"
        and explained.verdict.decision == "deny"
        and explained.basis == "forced"
    ):
        # A rule that spells out a denied name would lift it, but it is never the right way for
        # `.git`: the remedy is.
        return ()
    whole = suggest(action, workspace=workspace)
    offered = [(lacking[0][0], whole)] if whole and _is_enough(whole[:1], policy, judge) else []
    if not offered:
        offered = [(at, _candidates(part, workspace)) for at, part in lacking]
        first = [found[0] for _, found in offered if found]
        if len(first) < len(offered) or not _is_enough(first, policy, judge):
            return ()
    unique = {
        one.rule: AllowSuggestion(at, one.rule, one.label, one.explains)
        for at, found in offered
        for one in found
    }
    return tuple(unique.values())


def _candidates(part: ActionPart, workspace: str) -> tuple[Candidate, ...]:
    return suggest(part.alone, workspace=workspace) if part.alone is not None else ()


def _is_enough(
    candidates: Sequence[Candidate], policy: Policy, judge: Callable[[Policy], Verdict]
) -> bool:
    rules = policy_from_data({"allow": [one.rule for one in candidates]})
    return judge(merge(policy, rules)).decision == "allow"


def _advice(explained: Explanation) -> str:
    """Return advice for a case that no allow rule helps; empty if there is none."""
    verdict = explained.verdict
    if explained.basis == "rules" and verdict.decision != "allow":
        deciding = [one.rule for one in explained.looked if one.outcome == "decides"]
        where = ", ".join(dict.fromkeys(map(_where, deciding)))
        asks = (
            "it asks every time, and no allow rule changes that"
            if verdict.decision == "ask"
            else "no allow rule lifts it"
        )
        return f"{asks}: take the rule out, or name this in its `except` ({where})"
    if explained.basis == "forced" and not explained.suggestions:
        if verdict.decision == "ask":
            return (
                "a person is asked each time; written without what is named above, it is judged by"
                " the rules alone"
            )
        return verdict.remedy
    if explained.basis == "mode" and verdict.decision != "allow" and not explained.suggestions:
        return (
            "an allow rule for every part that has none; what no wildcard covers has to be"
            " spelled out"
        )
    return ""


def _where(rule: Rule) -> str:
    place = f"{rule.source}:{rule.line}" if rule.source and rule.line else rule.source
    return f"{rule.effect} {rule.text}{f', {place}' if place else ''}"


# -- as plain data --------------------------------------------------------------------------------


def as_data(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation as plain data with stable keys, for JSON: see `gatehouse policy explain
    --json`."""
    verdict = explanation.verdict
    return {
        "category": explanation.category,
        "action": explanation.action,
        "verdict": verdict.decision,
        "why": verdict.why,
        "remedy": verdict.remedy,
        "rule": verdict.rule,
        "rules": list(verdict.rules),
        "sticky": verdict.sticky,
        "basis": explanation.basis,
        "mode": explanation.mode,
        "forced": list(explanation.forced),
        "understood": dict(explanation.facts),
        "parts": [_part_data(part) for part in explanation.parts],
        "parts_left_out": explanation.parts_left_out,
        "looked_at": [_looked_data(one) for one in explanation.looked],
        "not_looked_at": dict(explanation.others),
        "suggestions": [msgspec.to_builtins(one) for one in explanation.suggestions],
        "advice": explanation.advice,
        "trouble": explanation.trouble,
    }


def _part_data(part: ActionPart) -> dict[str, Any]:
    return {
        "kind": part.kind,
        "text": part.text,
        "answer": part.answer,
        "rules": list(part.rules),
        "forced": list(part.forced),
        "notes": list(part.notes),
    }


def _looked_data(one: Looked) -> dict[str, Any]:
    rule = one.rule
    return {
        "rule": rule.text,
        "effect": rule.effect,
        "id": rule.id,
        "rule_why": rule.why,
        "source": rule.source,
        "line": rule.line,
        "outcome": one.outcome,
        "why": one.why,
        "parts": list(one.parts),
        "distance": one.distance,
    }
