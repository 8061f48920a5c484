"""Cached verdicts on past requests, under the base policy and with rules added.

Decides nothing: it asks `evaluate` and the judge of commands, and caches the answers, because
choosing rules asks the same things over and over. It must never answer from anything but the
engine.
"""

from collections.abc import Iterable

import msgspec

from supervisor.core.actions import Category, Exec, category_of, fingerprint
from supervisor.core.lab.history import Past
from supervisor.core.lab.learn_exec import exec_options
from supervisor.core.lab.learn_options import Option, options
from supervisor.core.policy.command_rules import CommandJudge
from supervisor.core.policy.evaluate import evaluate, mode_verdict
from supervisor.core.policy.policy_text import merge, policy_from_data
from supervisor.core.policy.rules import Policy, Verdict
from supervisor.core.shell.shell_words import Word
from supervisor.core.verdicts import Context
from supervisor.errors import PolicyError

type WishKey = str | tuple[Word, ...]

NO_RULES: frozenset[str] = frozenset()
_MOST_POLICIES = 200


class Need(msgspec.Struct, frozen=True):
    """One thing that a rule must cover for a request to be allowed: a command of its line, or
    the whole action."""

    key: WishKey
    options: tuple[Option, ...]


def policy_of(rules: Iterable[str]) -> Policy:
    """A policy that allows by these rules alone."""
    return policy_from_data({"allow": list(rules)})


def is_fit(rule: str) -> bool:
    """Return whether the text is a rule, and one without a warning (a bare one has one)."""
    try:
        return not policy_of([rule]).warnings
    except PolicyError:
        return False


class Judging:
    """Verdicts in a future session: rules that were bound to a session are over, and uses aren't
    counted."""

    def __init__(self, base: Policy, now: float, workspace: str) -> None:
        self.base = base
        # Where a mode denies what no rule matches, the verdict doesn't tell a protected name from
        # any other: ask as if all modes asked.
        self._asking = base if base.is_deny_all else Policy(base.rules, protection=base.protection)
        self._now = now
        self._workspace = workspace
        self._policies: dict[frozenset[str], Policy] = {}
        self._own: dict[tuple[Category, frozenset[str]], frozenset[str]] = {}
        self._single: dict[str, Policy] = {}
        self._allows: dict[tuple[frozenset[str], str], bool] = {}
        self._covered: dict[tuple[str, str], frozenset[WishKey]] = {}

    def under(self, rules: frozenset[str]) -> Policy:
        """Return the base with some rules beside it."""
        if not rules:
            return self.base
        if rules not in self._policies:
            if len(self._policies) >= _MOST_POLICIES:
                self._policies.clear()
            parsed = [self._alone(rule).rules[0] for rule in sorted(rules)]
            self._policies[rules] = merge(self.base, Policy(parsed))
        return self._policies[rules]

    def verdict(self, past: Past) -> Verdict:
        """Return the base's verdict, were its modes all `ask`."""
        return self._verdict(self._asking, past)

    def allows(self, rules: frozenset[str], past: Past) -> bool:
        """Return whether the base allows it with the rules beside it. Only rules of the action's
        category can tell."""
        own = self._of(category_of(past.action), rules)
        place = (own, _asked(past))
        if place not in self._allows:
            self._allows[place] = self._verdict(self.under(own), past).decision == "allow"
        return self._allows[place]

    def _of(self, category: Category, rules: frozenset[str]) -> frozenset[str]:
        place = (category, rules)
        if place not in self._own:
            self._own[place] = frozenset(rule for rule in rules if rule.startswith(f"{category}("))
        return self._own[place]

    def _verdict(self, policy: Policy, past: Past) -> Verdict:
        remotes = frozenset(past.remotes) or None
        return evaluate(
            policy,
            past.action,
            now=self._now,
            workspace=self._workspace,
            configured_remotes=remotes,
            is_contained=True,
        )

    def needs(self, past: Past) -> tuple[Need, ...]:
        """Return the needs that rules must cover for the action to be allowed; none where it is
        allowed, or no allow rule can allow it."""
        if self.base.is_deny_all or self.allows(NO_RULES, past):
            return ()
        if isinstance(past.action, Exec):
            return tuple(
                Need(words, exec_options(words))
                for words in self._open(self.base, past.action) or ()
            )
        # INVARIANT: a rule, a protected name or the kind of action stands against it where the
        # verdict isn't just the mode's.
        if self.verdict(past) != mode_verdict(self._asking, past.action):
            return ()
        return (Need(fingerprint(past.action), options(past.action)),)

    def may_help(self, rule: str, past: Past, needs: Iterable[Need]) -> bool:
        """Return False only where the rule can't be part of an allow.

        Each command of a line is covered on its own. Elsewhere an action may have several parts
        (refs, packages, both ends of a move).
        """
        if isinstance(past.action, Exec):
            return bool(self.covered(rule, past, needs))
        return rule.startswith(f"{category_of(past.action)}(")

    def covered(self, rule: str, past: Past, needs: Iterable[Need]) -> frozenset[WishKey]:
        """Return the needs that the rule alone would cover. For these the base has only its mode,
        so it isn't asked again."""
        if not rule.startswith(f"{category_of(past.action)}("):
            return frozenset()
        place = (rule, _asked(past))
        if place not in self._covered:
            keys = frozenset(need.key for need in needs)
            if isinstance(past.action, Exec):
                left = self._open(self._alone(rule), past.action)
                self._covered[place] = frozenset() if left is None else keys - frozenset(left)
            else:
                is_allowed = self._verdict(self._alone(rule), past).decision == "allow"
                self._covered[place] = keys if is_allowed else frozenset()
        return self._covered[place]

    def _alone(self, rule: str) -> Policy:
        if rule not in self._single:
            self._single[rule] = policy_of([rule])
        return self._single[rule]

    def _open(self, policy: Policy, action: Exec) -> tuple[tuple[Word, ...], ...] | None:
        """Return the commands of a line that no rule covers; None where something else than a
        missing rule stands against it."""
        judge = policy.judge_for("exec")
        assert isinstance(judge, CommandJudge)
        judgement = judge.judgement(
            action, Context(self._now, self._workspace, None, frozenset(), frozenset(), None)
        )
        return () if judgement.decision == "allow" else judgement.open or None


def _asked(past: Past) -> str:
    """All of a past request that a verdict depends on."""
    return f"{fingerprint(past.action)} {past.remotes}"
