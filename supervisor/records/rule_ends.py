"""When rules that hold for a time are over: by the clock on the wall, and by the time that really
went by.

A rule's end is stored as a time of the clock on the wall, or a restart would forget it. But that
clock can be set: set back it would make "for 15 minutes" an hour. So while this process runs the
time that went by since a rule was first seen counts as well, and where the two disagree the
stricter holds (`core.verdicts.Context.is_over`). It decides nothing else, and is apart from
`policy_files` because files know nothing of clocks.

After a restart there is the clock on the wall alone: but a rule that was added in what is now
the future is over, since nobody can say how much of its time is left.
"""

import math
from collections.abc import Iterable

from supervisor.base.clock import Clock
from supervisor.core.policy.rules import Policy, Rule
from supervisor.core.verdicts import Context

# What `added_at` may lie ahead by rounding.
_ROUNDED_S = 1.0
_NONE: frozenset[str] = frozenset()

type _Key = tuple[str, float]


class RuleEnds:
    """One per `PolicyFiles`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends: dict[_Key, float] = {}

    def disputed(self, policy: Policy) -> frozenset[str]:
        """The ids of the policy's rules of which the two clocks disagree whether they are over."""
        return _NONE if not policy.ending else self._disputed(policy.ending)

    def is_over(self, rule: Rule) -> bool:
        """Return whether a rule's time is over, the stricter of both clocks."""
        now = self._clock.now()
        return Context(
            now, "", None, frozenset(), frozenset(), None, self._disputed([rule])
        ).is_over(rule)

    def _disputed(self, rules: Iterable[Rule]) -> frozenset[str]:
        now, went_by = self._clock.now(), self._clock.monotonic()
        found = []
        for rule in rules:
            if rule.expires_at is not None:
                end = self._end(rule, rule.expires_at, now, went_by)
                if (now >= rule.expires_at) != (went_by >= end):
                    found.append(rule.id)
        return frozenset(found) if found else _NONE

    def _end(self, rule: Rule, expires_at: float, now: float, went_by: float) -> float:
        """Its end in the time that goes by, noted when it is first seen."""
        key = (rule.id, expires_at)
        found = self._ends.get(key)
        if found is None:
            is_from_ahead = (
                rule.effect == "allow"
                and rule.added_at is not None
                and rule.added_at > now + _ROUNDED_S
            )
            found = self._ends[key] = -math.inf if is_from_ahead else went_by + expires_at - now
        return found
