"""Lint of a policy: each rule against all others and against the record.

Finds five faults of a rule: it can never match, another rule covers it, it has expired, it decided
nothing for 30 days, or it means more than it seems to. Pure: the caller reads the files and the
clock. It must never call a rule superfluous that some action needs; in doubt it says nothing
(`categories` ensures that).

INVARIANT: removing every rule that is `never` or `covered` changes no decision.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from supervisor.core.lab.past import Past
from supervisor.core.lab.replay import Again, why_not
from supervisor.core.policy.categories import compiled, wide
from supervisor.core.policy.file_rules import FileJudge
from supervisor.core.policy.rules import Policy
from supervisor.core.policy.superfluous import RuleFinding, Superfluous, finding, has_expired
from supervisor.core.verdicts import Rule

UNUSED_DAYS = 30
_UNUSED_S = UNUSED_DAYS * 86_400


class Report(msgspec.Struct, frozen=True):
    """The findings, in the order of the rules. `notes`: what couldn't be checked, and why."""

    findings: tuple[RuleFinding, ...]
    notes: tuple[str, ...] = ()


def lint(policy: Policy, history: Iterable[Past] | None, now: float) -> Report:
    """Return the findings of a policy. `history` is the record, None if there is none; `now` is in
    seconds since the epoch."""
    active = [rule for rule in policy.rules if not has_expired(rule, now)]
    files = policy.judge_for("filesystem")
    assert isinstance(files, FileJudge)
    said: dict[int, RuleFinding] = {}
    superfluous = Superfluous(active, policy, files.protected)
    for rule in policy.rules:
        found = _expired(rule) if has_expired(rule, now) else superfluous.of(rule)
        if found is not None:
            said[id(rule)] = found
    left = [rule for rule in active if id(rule) not in said]
    unused, notes = _unused(policy, left, history, now)
    findings: list[RuleFinding] = []
    for rule in policy.rules:
        if id(rule) in said:
            findings.append(said[id(rule)])
            continue
        remark = wide(compiled(rule))
        if remark is not None:
            findings.append(finding("wide", rule, remark.what, remark.remedy))
        if id(rule) in unused:
            findings.append(
                finding(
                    "unused",
                    rule,
                    f"decided nothing for {UNUSED_DAYS} days",
                    "remove it if nobody misses it",
                )
            )
    return Report(tuple(findings), tuple(notes))


# -- expired --------------------------------------------------------------------------------------


def _expired(rule: Rule) -> RuleFinding:
    day = datetime.fromtimestamp(rule.expires_at or 0.0, UTC).date().isoformat()
    return finding("expired", rule, f"ended on {day}", "remove it, or give it another date")


# -- unused ---------------------------------------------------------------------------------------


def _unused(
    policy: Policy, rules: Sequence[Rule], history: Iterable[Past] | None, now: float
) -> tuple[frozenset[int], list[str]]:
    """Return the rules (by identity) that decided nothing for 30 days, and what couldn't be
    checked."""
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
            f"the record doesn't reach back {UNUSED_DAYS} days, so nothing can be said of rules"
            " that aren't used"
        )
        return frozenset(), notes
    return frozenset(id(rule) for rule in old if rule.text not in used), notes


def _count(undated: int) -> str:
    return (
        "1 rule doesn't say when it was added"
        if undated == 1
        else f"{undated} rules don't say when they were added"
    )
