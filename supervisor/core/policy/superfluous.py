"""Superfluous rules: those that can never match, and those that another rule covers.

Compares patterns only. `lint` reports the findings for every rule of a policy; `judge_proposal`
uses them to refuse a rule that an agent proposes and that would change nothing. It must never call
a rule superfluous that some action needs; in doubt it says nothing.

INVARIANT: removing every rule that is `never` or `covered` changes no decision.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import Literal

import msgspec

from supervisor.core.actions import Effect, Proposal
from supervisor.core.policy.categories import compiled, contains, keys_above, never, own_key
from supervisor.core.policy.category import AnyRule, ProtectedBy
from supervisor.core.policy.file_rules import FileJudge
from supervisor.core.policy.policy_text import merge, parse_rule, policy_from_data
from supervisor.core.policy.rules import Policy
from supervisor.core.verdicts import STRICTNESS, Rule, Verdict
from supervisor.errors import PolicyError

type FindingKind = Literal["never", "covered", "expired", "unused", "wide"]
_ASKED = Verdict("ask", "a change of the policy is always asked", sticky=True)


class RuleFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One fault of one rule. `what` continues a sentence that starts with the rule; `by` is the
    rule that covers it, empty for other kinds."""

    kind: FindingKind
    effect: Effect
    rule: str
    rule_id: str
    source: str
    line: int
    what: str
    remedy: str
    by: str = ""

    def __str__(self) -> str:
        where = (
            f"{self.source}:{self.line}: "
            if self.line
            else f"{self.source}: "
            if self.source
            else ""
        )
        return f"{where}{self.kind}: {self.effect} {self.rule} {self.what}; {self.remedy}"


def adds_nothing(policy: Policy, rule: Rule, now: float) -> RuleFinding | None:
    """Return why one of the policy's rules has no effect, or no effect of its own; None if it has
    one."""
    files = policy.judge_for("filesystem")
    assert isinstance(files, FileJudge)
    others = [
        one for one in policy.rules if one.category == rule.category and not has_expired(one, now)
    ]
    return Superfluous(others, policy, files.protected).of(rule)


def has_expired(rule: Rule, now: float) -> bool:
    """Return whether the rule ended at or before `now`, in seconds since the epoch."""
    return rule.expires_at is not None and now >= rule.expires_at


def finding(kind: FindingKind, rule: Rule, what: str, remedy: str, by: str = "") -> RuleFinding:
    """Return one finding about a rule."""
    return RuleFinding(
        kind=kind, effect=rule.effect, rule=rule.text, rule_id=rule.id, source=rule.source,
        line=rule.line, what=what,
        remedy=remedy, by=by,
    )  # fmt: skip


class Superfluous:
    """The rules in force, indexed by literal text, so that each is compared with a few."""

    def __init__(self, rules: Sequence[Rule], policy: Policy, protected_by: ProtectedBy) -> None:
        self.policy = policy
        self.protected_by = protected_by
        self.numbers = {id(rule): number for number, rule in enumerate(rules)}
        self.found: dict[Hashable, list[AnyRule]] = defaultdict(list)
        for one in map(compiled, rules):
            if _is_unconditional(one.rule):
                self.found[own_key(one)].append(one)

    def of(self, rule: Rule) -> RuleFinding | None:
        """Return why the rule has no effect, or no effect of its own."""
        inner = compiled(rule)
        remark = never(inner, self.protected_by, self.policy.mode_of(rule.category))
        if remark is not None:
            return finding("never", rule, remark.what, remark.remedy)
        outer = min(self.outer(inner), key=lambda one: -STRICTNESS[one.rule.effect], default=None)
        if outer is None:
            return None
        by = f"{outer.rule.effect} {outer.rule.text}"
        where = _where(outer.rule)
        if outer.rule.effect != rule.effect:
            verb = "denied" if outer.rule.effect == "deny" else "asked"
            what = f"never decides: all that it is about is {verb} by {outer.rule.text}{where}"
            return finding("never", rule, what, "remove one of them", by)
        says = "says the same as" if contains(inner, outer, self.protected_by) else "is covered by"
        return finding("covered", rule, f"{says} {outer.rule.text}{where}", "remove it", by)

    def outer(self, inner: AnyRule) -> Iterator[AnyRule]:
        """Return the rules that make this one superfluous; of two equal rules, the later one is
        superfluous."""
        number = self.numbers[id(inner.rule)]
        for key in dict.fromkeys(keys_above(inner)):
            for one in self.found.get(key, ()):
                if one.rule is inner.rule or not contains(one, inner, self.protected_by):
                    continue
                is_earlier = self.numbers[id(one.rule)] < number
                if (
                    is_earlier
                    or not _is_unconditional(inner.rule)
                    or not contains(inner, one, self.protected_by)
                ):
                    yield one


def _where(rule: Rule) -> str:
    return f" ({rule.source}:{rule.line})" if rule.source and rule.line else ""


def _is_unconditional(rule: Rule) -> bool:
    """Return whether it is in force always, everywhere and any number of times."""
    return not rule.is_limited and not rule.until_session_ends


def judge_proposal(policy: Policy, proposal: Proposal, now: float) -> Verdict:
    """Return the verdict on a proposed rule, given the rules in force. `now` is in seconds since
    the epoch."""
    try:
        rule = parse_rule(proposal.rule, proposal.effect)
    except PolicyError as error:
        return Verdict(
            "deny", f"the proposed rule can't be used: {error.message}", remedy=error.remedy
        )
    proposed = policy_from_data({proposal.effect: [rule.text]}, "the proposal")
    finding = adds_nothing(merge(policy, proposed), proposed.rules[0], now)
    if finding is None:
        return _ASKED
    # The place of a rule in force concerns only the operator.
    why = (
        f"{finding.by} answers all that {rule.text} is about"
        if finding.by
        else f"{rule.text} {finding.what}"
    )
    remedy = "propose one that changes something, or do without it"
    return Verdict("deny", f"the proposed rule would change nothing: {why}", remedy=remedy)
