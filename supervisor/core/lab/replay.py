"""Replay the record under another policy, and list where the answers differ.

`evaluate` judges each action as it was, at the time it was, with what its session knew; this
compares. Pure, so that the same log and the same policy always give the same result. A judgement
that couldn't be repeated must never count as unchanged: it is counted apart, with the reason.

Never decided anew:
    a record with a secret cut out of it: what is left is another action
    a denial that no policy made (everything was stopped, the session had ended, egress refused by
    itself, ...): no policy changes it

A change of Gatehouse's own files is asked at the least here too, whatever a policy says. Rules that
only one session had are added to the policy, as they were then.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

import msgspec

from supervisor.core.actions import Action, Category, Effect, category_of, title
from supervisor.core.approvals import Answer
from supervisor.core.lab.past import Past
from supervisor.core.policy.evaluate import evaluate
from supervisor.core.policy.policy_text import EFFECTS, merge, parse_policy
from supervisor.core.policy.rules import Policy, Verdict
from supervisor.core.verdicts import STRICTNESS

Kind = Literal["wider", "tighter"]
# Why a judgement isn't made anew.
Reason = Literal["redacted", "not_by_policy"]
# The number of cached verdicts; agents repeat themselves.
MOST_KNOWN = 10_000


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict. `rule` is None if no rule made it; `why` then says what did."""

    verdict: Effect
    rule: str | None
    why: str


class ChangedVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """An action that would be answered differently. `count` is the number of its judgements; a
    person `approved` or `denied` some of them.

    `sessions` is the number of sessions with it; `action` is its title, as an agent wrote it.
    """

    kind: Kind
    category: Category
    action: str
    before: Said
    after: Said
    count: int
    sessions: int
    approved: int
    denied: int

    @property
    def contradicts(self) -> Literal["", "allows what was denied", "denies what was approved"]:
        """Return whether the policy contradicts a person's answer."""
        if self.after.verdict == "allow" and self.denied:
            return "allows what was denied"
        return "denies what was approved" if self.after.verdict == "deny" and self.approved else ""


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a replay. `same`, `wider` and `tighter` count judgements that were made anew;
    `not_decided` counts the others, by reason.

    `answers`: how many of the actions that a person approved or denied the policy allows, asks and
    denies. `changes`: the worst first.
    """

    same: int
    wider: int
    tighter: int
    not_decided: Mapping[Reason, int]
    answers: Mapping[Answer, Mapping[Effect, int]]
    changes: tuple[ChangedVerdict, ...]

    @property
    def judged(self) -> int:
        """Return the number of judgements in the record."""
        return self.same + self.wider + self.tighter + sum(self.not_decided.values())


class Again:
    """A policy that is asked about the past, in order: rules with a limited number of uses are used
    up as they were then."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._uses: Counter[str] = Counter()
        self._limited = {rule.category for rule in policy.rules if rule.uses is not None}
        self._ends = sorted(rule.expires_at for rule in policy.rules if rule.expires_at is not None)
        self._knows_sessions = any(rule.session is not None for rule in policy.rules)
        self._known: dict[object, Verdict] = {}

    def verdict(self, past: Past) -> Verdict:
        """Return the policy's verdict. INVARIANT: the key holds exactly what a verdict depends
        on."""
        if category_of(past.action) in self._limited:
            verdict = self._evaluate(past)
        else:
            session = past.session if self._knows_sessions else None
            key = (past.action, bisect_right(self._ends, past.at), session, past.remotes)
            known = self._known.get(key)
            if known is None:
                if len(self._known) >= MOST_KNOWN:
                    self._known.clear()
                known = self._known[key] = self._evaluate(past)
            verdict = known
        if verdict.rule_id is not None:
            self._uses[verdict.rule_id] += 1
        return verdict

    def _evaluate(self, past: Past) -> Verdict:
        return evaluate(
            self._policy,
            past.action,
            now=past.at,
            session_id=past.session,
            configured_remotes=frozenset(past.remotes) or None,
            uses=self._uses,
            is_contained=True,
        )


def why_not(past: Past) -> Reason | None:
    """Return why a judgement can't be made anew; None if it can."""
    if not past.by_policy and past.verdict == "deny":
        return "not_by_policy"
    return "redacted" if past.is_redacted else None


def replay(history: Iterable[Past], policy: Policy) -> Replay:
    """Replay the record under `policy`. `history` is read once, in its order, and needn't fit into
    memory.

    Raise `PolicyError` if the rules that only one session had can't be read back.
    """
    told = _Told()
    judges: dict[str, Again] = {}
    for past in history:
        reason = why_not(past)
        if reason is not None:
            told.not_decided[reason] += 1
            continue
        if past.own_rules not in judges:
            judges[past.own_rules] = Again(_with_own(policy, past))
        told.add(past, _at_least_asked(past, judges[past.own_rules].verdict(past)))
    return told.whole()


def _with_own(policy: Policy, past: Past) -> Policy:
    if not past.own_rules:
        return policy
    return merge(policy, parse_policy(past.own_rules, f"the own rules of session {past.session}"))


def _at_least_asked(past: Past, verdict: Verdict) -> Verdict:
    """Return an ask instead of an allow for a change of Gatehouse's own files: no policy allows
    it."""
    if past.by_policy or verdict.decision == "deny":
        return verdict
    return Verdict("ask", past.why, sticky=True)


class _Key(NamedTuple):
    """Key by which changes are grouped."""

    kind: Kind
    category: Category
    action: str
    before: Effect
    before_rule: str | None
    after: Effect
    after_rule: str | None


class _Group:
    """The judgements of one change. The reasons shown are the first judgement's."""

    def __init__(self, before_why: str, after_why: str) -> None:
        self.before_why, self.after_why = before_why, after_why
        self.count = 0
        self.sessions: set[str] = set()
        self.answers: Counter[Answer] = Counter()


class _Told:
    """Running counts of a replay."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.not_decided: Counter[Reason] = Counter()
        self.answers: dict[Answer, Counter[Effect]] = {"approved": Counter(), "denied": Counter()}
        self.groups: dict[_Key, _Group] = {}

    def add(self, past: Past, verdict: Verdict) -> None:
        answer = past.persons_answer
        if answer is not None:
            self.answers[answer][verdict.decision] += 1
        step = STRICTNESS[verdict.decision] - STRICTNESS[past.verdict]
        if step == 0:
            self.counts["same"] += 1
            return
        kind: Kind = "wider" if step < 0 else "tighter"
        self.counts[kind] += 1
        group = self.groups.setdefault(_key(kind, past, verdict), _Group(past.why, verdict.why))
        group.count += 1
        group.sessions.add(past.session)
        if answer is not None:
            group.answers[answer] += 1

    def whole(self) -> Replay:
        return Replay(
            same=self.counts["same"],
            wider=self.counts["wider"],
            tighter=self.counts["tighter"],
            not_decided=dict(self.not_decided),
            answers={
                answer: {effect: found[effect] for effect in EFFECTS}
                for answer, found in self.answers.items()
            },
            changes=tuple(
                sorted((_change(key, group) for key, group in self.groups.items()), key=_rank)
            ),
        )


def _key(kind: Kind, past: Past, verdict: Verdict) -> _Key:
    action: Action = past.action
    return _Key(
        kind,
        category_of(action),
        title(action),
        past.verdict,
        past.rule,
        verdict.decision,
        verdict.rule,
    )


def _change(key: _Key, group: _Group) -> ChangedVerdict:
    return ChangedVerdict(
        kind=key.kind,
        category=key.category,
        action=key.action,
        before=Said(verdict=key.before, rule=key.before_rule, why=group.before_why),
        after=Said(verdict=key.after, rule=key.after_rule, why=group.after_why),
        count=group.count,
        sessions=len(group.sessions),
        approved=group.answers["approved"],
        denied=group.answers["denied"],
    )


def _rank(change: ChangedVerdict) -> tuple[object, ...]:
    """Return the sort key: wider changes first; then those against a person's answer, the longer
    step, the further end, the more frequent; no ties."""
    after = STRICTNESS[change.after.verdict]
    step = abs(after - STRICTNESS[change.before.verdict])
    return (
        change.kind != "wider",
        not change.contradicts,
        -step,
        after if change.kind == "wider" else -after,
        -change.count,
        change.category,
        change.action,
        change.before.verdict,
        change.before.rule or "",
        change.after.rule or "",
    )
