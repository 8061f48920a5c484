"""Remedies: rules to write or change so that an action gets another answer.

Decides nothing, and saves nothing. INVARIANT: the first candidate of each part, added to the policy
all together, makes the verdict an allow: this is tried before anything is offered. A denial that no
rule lifts gets a sentence instead.
"""

from collections.abc import Callable, Sequence

from supervisor.core.actions import Action
from supervisor.core.lab.explanation import ActionPart, AllowSuggestion, Explanation
from supervisor.core.policy.category import Candidate
from supervisor.core.policy.policy_text import merge, policy_from_data
from supervisor.core.policy.rules import Policy
from supervisor.core.policy.suggest import suggest
from supervisor.core.verdicts import Rule, Verdict

MOST_LACKING = 10


def suggestions(
    explained: Explanation,
    action: Action,
    policy: Policy,
    workspace: str,
    judge: Callable[[Policy], Verdict],
) -> tuple[AllowSuggestion, ...]:
    """Allow rules that would be enough: for the action as a whole, else part by part; none where it
    takes more than an allow rule.

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
        # A rule that spells a denied name out would lift it, but for `.git` it is never the way:
        # the remedy is.
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


def advice(explained: Explanation) -> str:
    """Return advice where no allow rule helps; empty where there is none."""
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
