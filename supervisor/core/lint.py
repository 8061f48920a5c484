"""What is wrong with the rules of a policy, each rule looked at beside all others and beside the record.

Decides five things of a rule: it can never match, it is covered by another one, it has expired, it decided nothing for 30 days, or it
means more than it looks. Pure: whoever calls reads the files and the clock. It must never call a rule superfluous that some action
needs; where it can't tell, it says nothing (`rule_containment` and `rule_forms` hold that).

INVARIANT: taking away every rule that is `never` or `covered` changes no decision.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec

from supervisor.core.actions import Effect
from supervisor.core.file_rules import FileJudge
from supervisor.core.history import Past
from supervisor.core.replay import Again, why_not
from supervisor.core.rule_containment import Compiled, compiled, contains
from supervisor.core.rule_forms import ProtectedBy, never, wide
from supervisor.core.rule_lookup import keys_above, own_key
from supervisor.core.rules import Policy
from supervisor.core.verdicts import STRICTNESS, Rule

type Kind = Literal["never", "covered", "expired", "unused", "wide"]
UNUSED_DAYS = 30
_UNUSED_S = UNUSED_DAYS * 86_400


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong with one rule. `what` goes on after the rule; `by` is the rule that covers it, empty for other kinds."""

    kind: Kind
    effect: Effect
    rule: str
    rule_id: str
    source: str
    line: int
    what: str
    remedy: str
    by: str = ""

    def __str__(self) -> str:
        where = f"{self.source}:{self.line}: " if self.line else f"{self.source}: " if self.source else ""
        return f"{where}{self.kind}: {self.effect} {self.rule} {self.what}; {self.remedy}"


class Report(msgspec.Struct, frozen=True):
    """The findings, in the order of the rules. `notes`: what couldn't be looked at, and why."""

    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()


def lint(policy: Policy, history: Iterable[Past] | None, now: float) -> Report:
    """The findings of a policy. `history` is the record, None where there is none; `now` is in seconds since the epoch."""
    active = [rule for rule in policy.rules if not _has_expired(rule, now)]
    files = policy.judge_for("filesystem")
    assert isinstance(files, FileJudge)
    said: dict[int, Finding] = {}
    superfluous = _Superfluous(active, policy, files.protected)
    for rule in policy.rules:
        finding = _expired(rule) if _has_expired(rule, now) else superfluous.finding(rule)
        if finding is not None:
            said[id(rule)] = finding
    left = [rule for rule in active if id(rule) not in said]
    unused, notes = _unused(policy, left, history, now)
    findings: list[Finding] = []
    for rule in policy.rules:
        if id(rule) in said:
            findings.append(said[id(rule)])
            continue
        remark = wide(compiled(rule))
        if remark is not None:
            findings.append(_finding("wide", rule, remark.what, remark.remedy))
        if id(rule) in unused:
            findings.append(
                _finding("unused", rule, f"decided nothing for {UNUSED_DAYS} days", "remove it if nobody misses it")
            )
    return Report(tuple(findings), tuple(notes))


def adds_nothing(policy: Policy, rule: Rule, now: float) -> Finding | None:
    """Why one of the policy's rules says nothing, or nothing new, None where it does."""
    files = policy.judge_for("filesystem")
    assert isinstance(files, FileJudge)
    others = [one for one in policy.rules if one.category == rule.category and not _has_expired(one, now)]
    return _Superfluous(others, policy, files.protected).finding(rule)


def _finding(kind: Kind, rule: Rule, what: str, remedy: str, by: str = "") -> Finding:
    return Finding(
        kind=kind, effect=rule.effect, rule=rule.text, rule_id=rule.id, source=rule.source, line=rule.line, what=what,
        remedy=remedy, by=by,
    )  # fmt: skip


# -- expired ---------------------------------------------------------------------------------------------------------------


def _has_expired(rule: Rule, now: float) -> bool:
    return rule.expires_at is not None and now >= rule.expires_at


def _expired(rule: Rule) -> Finding:
    day = datetime.fromtimestamp(rule.expires_at or 0.0, UTC).date().isoformat()
    return _finding("expired", rule, f"ended on {day}", "remove it, or give it another date")


# -- can never match, covered ------------------------------------------------------------------------------------------------


class _Superfluous:
    """The rules in force, found by what they spell out, so that each is compared with a few."""

    def __init__(self, rules: Sequence[Rule], policy: Policy, protected_by: ProtectedBy) -> None:
        self.policy = policy
        self.protected_by = protected_by
        self.numbers = {id(rule): number for number, rule in enumerate(rules)}
        self.found: dict[Hashable, list[Compiled]] = defaultdict(list)
        for one in map(compiled, rules):
            if one.is_unconditional:
                self.found[own_key(one)].append(one)

    def finding(self, rule: Rule) -> Finding | None:
        """Why the rule says nothing, or nothing new."""
        inner = compiled(rule)
        remark = never(inner, self.protected_by, self.policy.mode_of(rule.category))
        if remark is not None:
            return _finding("never", rule, remark.what, remark.remedy)
        outer = min(self.outer(inner), key=lambda one: -STRICTNESS[one.rule.effect], default=None)
        if outer is None:
            return None
        by = f"{outer.rule.effect} {outer.rule.text}"
        where = _where(outer.rule)
        if outer.rule.effect != rule.effect:
            verb = "denied" if outer.rule.effect == "deny" else "asked"
            what = f"never decides: all that it is about is {verb} by {outer.rule.text}{where}"
            return _finding("never", rule, what, "remove one of them", by)
        says = "says the same as" if contains(inner, outer, self.protected_by) else "is covered by"
        return _finding("covered", rule, f"{says} {outer.rule.text}{where}", "remove it", by)

    def outer(self, inner: Compiled) -> Iterator[Compiled]:
        """The rules that make this one superfluous; of two that say the same, the later one is."""
        number = self.numbers[id(inner.rule)]
        for key in dict.fromkeys(keys_above(inner)):
            for one in self.found.get(key, ()):
                if one.rule is inner.rule or not contains(one, inner, self.protected_by):
                    continue
                is_earlier = self.numbers[id(one.rule)] < number
                if is_earlier or not inner.is_unconditional or not contains(inner, one, self.protected_by):
                    yield one


def _where(rule: Rule) -> str:
    return f" ({rule.source}:{rule.line})" if rule.source and rule.line else ""


# -- unused ----------------------------------------------------------------------------------------------------------------


def _unused(
    policy: Policy, rules: Sequence[Rule], history: Iterable[Past] | None, now: float
) -> tuple[frozenset[int], list[str]]:
    """The rules (by identity) that decided nothing for 30 days, and what couldn't be told."""
    if history is None:
        return frozenset(), ["there is no record, so nothing can be said of rules that aren't used"]
    since = now - _UNUSED_S
    old = [rule for rule in rules if rule.added_at is not None and rule.added_at <= since]
    undated = sum(rule.added_at is None for rule in rules)
    notes = []
    if undated:
        notes.append(f"{_count(undated)}, so nothing is said of unused ones among them")
    used: set[str] = set()
    begins: float | None = None
    again = Again(policy)
    for past in history:
        begins = past.at if begins is None else begins
        if past.at < since or not old:
            continue
        if past.rule is not None:
            used.add(past.rule)
        if why_not(past) is None:
            used.update(again.verdict(past).rules)
    if begins is None or begins > since:
        notes.append(
            f"the record doesn't reach back {UNUSED_DAYS} days, so nothing can be said of rules that aren't used"
        )
        return frozenset(), notes
    return frozenset(id(rule) for rule in old if rule.text not in used), notes


def _count(undated: int) -> str:
    return "1 rule doesn't say when it was added" if undated == 1 else f"{undated} rules don't say when they were added"
