"""Preview of a rule before it is saved: past requests that it would answer.

Decides nothing: a person looks at this and saves the rule, or doesn't. Pure, over the record
(`past`); the caller chooses how much of it. It must never make a rule look more useful than it is:
a match counts only if the rules in force and this one together would have answered the whole
action, and a request that can't be judged any more is counted apart.
"""

from collections import Counter
from collections.abc import Iterable

import msgspec

from supervisor.core.actions import Category, Effect, category_of, title
from supervisor.core.lab.past import Past
from supervisor.core.lab.replay import Again, why_not
from supervisor.core.policy.policy_text import entry_of, merge, policy_from_data
from supervisor.core.policy.rules import Policy, Rule

MOST_TITLES = 4
_PAST = {"allow": "allowed", "deny": "denied", "ask": "asked"}


class PastGroup(msgspec.Struct, frozen=True):
    """Some past actions: their number, and the titles of the first few different ones, as agents
    wrote them."""

    count: int = 0
    titles: tuple[str, ...] = ()


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """Past requests of the rule's category that a person was asked (`asked`), and those of them
    that the rule would have answered: a person had `approved` or `denied` them, or nobody did
    (`unanswered`).

    `by_rules`: actions that rules had let through and this rule would have denied or asked.
    `redacted`: requests that can't be judged because a secret was cut out; no other number includes
    them. An `ask` rule answers nothing: there the numbers say what it would have asked every time.
    """

    effect: Effect
    category: Category
    asked: int
    approved: PastGroup
    denied: PastGroup
    unanswered: PastGroup
    by_rules: PastGroup
    redacted: int

    @property
    def answered(self) -> int:
        """Return how many requests it would have answered."""
        return self.approved.count + self.denied.count + self.unanswered.count

    @property
    def against(self) -> PastGroup:
        """Return the requests that a person had answered the other way: the reason to look
        twice."""
        return {"allow": self.denied, "deny": self.approved, "ask": PastGroup()}[self.effect]


def preview(rule: Rule, history: Iterable[Past], in_force: Policy | None = None) -> Preview:
    """Return what `rule` would have answered. `in_force` are the rules that it would join; None: it
    stands alone."""
    alone = policy_from_data({rule.effect: [entry_of(rule)]}, "the new rule")
    again = Again(alone if in_force is None else merge(in_force, alone))
    found = _Found(rule)
    for past in history:
        if category_of(past.action) == rule.category:
            found.add(past, again)
    return found.whole()


def relevant(past: Past, effect: Effect) -> bool:
    """Return whether a rule with this effect could have changed anything: a card, or for a stricter
    rule also an allowed action."""
    return past.was_asked or (effect != "allow" and past.verdict == "allow")


def sentence(seen: Preview) -> str:
    """Return the numbers in words, without the titles: an agent wrote those, so they need
    escaping."""
    verb = "asked every time" if seen.effect == "ask" else "answered"
    requests = (
        f"1 {seen.category} request"
        if seen.asked == 1
        else f"the last {seen.asked} {seen.category} requests"
    )
    if not seen.asked:
        said = f"no earlier {seen.category} request to compare with"
    elif not seen.answered:
        said = f"would have {verb} none of {requests}"
    else:
        said = f"would have {verb} {seen.answered} of {requests}: {_by_answer(seen)}"
    if seen.by_rules.count:
        said += f"; would have {_PAST[seen.effect]} {seen.by_rules.count} that rules allowed"
    if seen.redacted:
        said += f"; {seen.redacted} more held a secret, so nobody can tell"
    return said


def _by_answer(seen: Preview) -> str:
    parts = (
        (seen.approved.count, "you approved"),
        (seen.denied.count, "you denied"),
        (seen.unanswered.count, "you didn't answer"),
    )
    return ", ".join(f"{count} {words}" for count, words in parts if count)


class _Found:
    """Running counts of a preview."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._asked = self._redacted = 0
        self._counts: Counter[str] = Counter()
        self._titles: dict[str, dict[str, None]] = {
            name: {} for name in ("approved", "denied", "unanswered", "by_rules")
        }

    def add(self, past: Past, again: Again) -> None:
        if not relevant(past, self._rule.effect):
            return
        if why_not(past) is not None:
            self._redacted += past.is_redacted
            return
        self._asked += past.was_asked
        verdict = again.verdict(past)
        # A change of one of Gatehouse's own files is always asked, so no allow rule answers it.
        if (
            verdict.decision != self._rule.effect
            or self._rule.text not in verdict.rules
            or (verdict.decision == "allow" and not past.by_policy)
        ):
            return
        group = "by_rules" if not past.was_asked else past.persons_answer or "unanswered"
        self._counts[group] += 1
        if len(self._titles[group]) < MOST_TITLES:
            self._titles[group][title(past.action)] = None

    def whole(self) -> Preview:
        groups = {
            name: PastGroup(self._counts[name], tuple(titles))
            for name, titles in self._titles.items()
        }
        return Preview(
            effect=self._rule.effect,
            category=self._rule.category,
            asked=self._asked,
            redacted=self._redacted,
            **groups,
        )
