"""Compiled policy: rules, modes and protected names, with one judge per category.

    deny rule > ask rule > allow rule > mode of the category; order never matters

`evaluate` is the entry point, and turns an exception in here into a denial. The judge of each
category knows what its patterns mean (`file_rules`, `network_rules`, `git_rules`, `package_rules`,
`command_rules`); it indexes its rules when it is first asked.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from supervisor.core.actions import Action, Category, Effect, Network
from supervisor.core.policy.categories import rule_category
from supervisor.core.policy.protected_names import Protection
from supervisor.core.verdicts import Context, Judge, Mode, Passing, Rule, Verdict

__all__ = ["Policy", "Rule", "Verdict"]

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_MOST_NEAR = 3


class Policy:
    """Compiled, immutable policy: rules, modes and protected names. Build one with `policy_text`,
    never by hand.

    `ending` are the rules that hold for a limited time. `modes` holds only explicit modes;
    `mode_of` knows the default. `warnings` are for the author. `hold_s` is how long an asked
    connection is held for an answer; None if the policy doesn't say.
    """

    __slots__ = (
        "_judges",
        "ending",
        "hold_s",
        "is_deny_all",
        "modes",
        "passing",
        "protection",
        "rules",
        "source",
        "warnings",
    )

    def __init__(
        self,
        rules: Sequence[Rule] = (),
        modes: Mapping[Category, Mode] = MappingProxyType({}),
        *,
        protection: Protection | None = None,
        warnings: Sequence[str] = (),
        source: str = "",
        is_deny_all: bool = False,
        hold_s: float | None = None,
    ) -> None:
        self.rules = tuple(rules)
        self.ending = tuple(rule for rule in self.rules if rule.expires_at is not None)
        self.modes: Mapping[Category, Mode] = MappingProxyType(dict(modes))
        self.protection = protection or Protection()
        self.warnings = tuple(warnings)
        self.source = source
        self.is_deny_all = is_deny_all
        self.hold_s = hold_s
        self._judges: dict[Category, Judge[Any]] = {}
        # Asked for each allowed connection; the answer never changes for one policy.
        self.passing = functools.lru_cache(maxsize=1024)(self._passing)

    def mode_of(self, category: Category) -> Mode:
        """Return the mode of a category: the explicit one, else ask. Never `allow` for exec and
        packages."""
        mode: Mode = "deny" if self.is_deny_all else self.modes.get(category, "ask")
        return "ask" if mode == "allow" and category in ("exec", "packages") else mode

    def of(self, category: Category, effect: Effect | None = None) -> tuple[Rule, ...]:
        """Return the rules of a category; with an effect, only those with that effect."""
        return tuple(
            rule
            for rule in self.rules
            if rule.category == category and effect in (None, rule.effect)
        )

    def judge_for(self, category: Category) -> Judge[Any]:
        """Return the category's judge, indexed at the first call."""
        judge = self._judges.get(category)
        if judge is None:
            judge = self._judges[category] = rule_category(category).judge(
                self.of(category), self.protection
            )
        return judge

    def verdict(self, category: Category, action: Action, context: Context) -> Verdict:
        """Return the verdict of the category's rules and mode."""
        return self.judge_for(category).judge(action, self.mode_of(category), context)

    def reaching(self, action: Network, context: Context) -> Verdict | None:
        """Return the verdict on a connection with its addresses, if one rule allows both its name
        and its addresses, in the same words; else None."""
        by_name = self.verdict("network", msgspec.structs.replace(action, resolved=()), context)
        whole = self.verdict("network", action, context)
        is_one = (by_name.rule_id, by_name.why) == (whole.rule_id, whole.why)
        if not is_one or by_name.decision != "allow" or whole.decision != "allow":
            return None
        return whole

    def is_limited(self, category: Category, rule: str) -> bool:
        """Return whether any rule of this text has a time limit or a limit of uses."""
        return any(
            one.text == rule and (one.uses is not None or one.expires_at is not None)
            for one in self.of(category)
        )

    def _passing(self, host: str, rule: str | None) -> Passing:
        """Return the facts of an allowed connection to a host, whether or not a rule with this text
        allowed it."""
        return Passing(self.looks_into(host), rule is not None and self.is_limited("network", rule))

    def looks_into(self, host: str) -> bool:
        """Return whether any rule judges the host's requests by method or path: then it is always
        decrypted, never tunnelled.

        True for an invalid host.
        """
        from supervisor.core.policy.network_rules import NetworkJudge

        judge = self.judge_for("network")
        return not isinstance(judge, NetworkJudge) or judge.looks_into(host)


class InForce(NamedTuple):
    """The rules in force for a session, and those that have expired. Without a policy, everything
    is denied."""

    policy: Policy | None
    over: frozenset[str]

    def is_same(self, other: "InForce | None") -> bool:
        """Return whether ongoing connections get the same verdicts under both."""
        return (
            other is not None
            and self.policy is not None
            and self.policy is other.policy
            and self.over == other.over
        )


def allowing_near(
    policy: Policy,
    action: Network,
    *,
    now: float,
    session_id: str,
    disputed: frozenset[str] = frozenset(),
) -> list[str]:
    """Return the text of every allow rule in force, without a limit of uses, that names the
    action's host."""
    from supervisor.core.policy.network_rules import NetworkJudge

    judge = policy.judge_for("network")
    context = Context(now, "", session_id, frozenset(), frozenset(), None, disputed)
    return judge.allowing(action, context.is_active) if isinstance(judge, NetworkJudge) else []


def host_ports(policy: Policy, context: Context) -> set[int]:
    """Return the ports of this machine that rules in force are about, other than deny rules."""
    from supervisor.core.policy.network_rules import NetworkJudge

    judge = policy.judge_for("network")
    return judge.host_ports(context.is_active) if isinstance(judge, NetworkJudge) else set()


def open_near(action: Network, judge: Callable[[Network], Verdict], rules: Sequence[str]) -> str:
    """Return what a policy allows near a denied request, in words for the agent.

    These are the methods that are allowed on the same path, or else `rules`, those that allow
    something at the same host; empty if there are none. `judge` gives the verdict on another
    method.
    """
    others = [one for one in _METHODS if action.operation == "request" and one != action.method]
    open_ones = [
        one
        for one in others
        if judge(msgspec.structs.replace(action, method=one)).decision == "allow"
    ]
    if open_ones:
        return f"allowed on this path: {', '.join(open_ones)}"
    more = f" and {len(rules) - _MOST_NEAR} more" if len(rules) > _MOST_NEAR else ""
    return f"allowed at this host: {', '.join(rules[:_MOST_NEAR])}{more}" if rules else ""
