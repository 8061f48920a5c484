"""Cache of verdicts for one compiled policy.

Decides whether a question equals an answered one: the action, and everything else that the verdict
depends on. It lives in the `Policy`, so another policy starts with an empty cache. INVARIANT: a
cached verdict is the one that would be given anew; in doubt nothing is cached.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import msgspec

from supervisor.core.actions import Action, Category
from supervisor.core.verdicts import Context, Rule, Verdict

MAX_VERDICTS = 2_048
# Longer actions are judged each time: an agent's data must not fill the memory.
MAX_ACTION_CHARS = 4_000
# A policy with more rules of limited use than this has too many states for caching verdicts.
MAX_LIMITED = 64


class _Limits(NamedTuple):
    """The ways in which verdicts of one category can change under one policy: times when rules end,
    sessions, and uses."""

    moments: Sequence[float]
    has_sessions: bool
    limited: Sequence[Rule]
    ending: Sequence[Rule]


class VerdictCache:
    """A bounded cache of verdicts; the least recently used is dropped first."""

    __slots__ = ("_limits", "_rules", "_verdicts")

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._limits: dict[Category, _Limits] = {}
        self._verdicts: OrderedDict[Hashable, Verdict] = OrderedDict()

    def __len__(self) -> int:
        return len(self._verdicts)

    def key(self, category: Category, action: Action, context: Context) -> Hashable | None:
        """Return a verdict's cache key; None if it must not be cached."""
        limits = self._limits_in(category)
        if len(limits.limited) > MAX_LIMITED or context.now != context.now:
            return None
        # INVARIANT: the key contains every field of `Context` that some rule of the category looks
        # at.
        return (
            action,
            bisect_right(limits.moments, context.now),
            context.workspace,
            context.session_id if limits.has_sessions else None,
            context.forbidden_endpoints,
            context.remotes,
            tuple(map(context.has_uses_left, limits.limited)),
            context.disputed if limits.moments else None,
            context.is_contained,
        )

    def ending(self, category: Category) -> Sequence[Rule]:
        """Return the rules of a category that have a time limit or a limit of uses."""
        return self._limits_in(category).ending

    def _limits_in(self, category: Category) -> _Limits:
        limits = self._limits.get(category)
        if limits is None:
            limits = self._limits[category] = _limits_of(
                [rule for rule in self._rules if rule.category == category]
            )
        return limits

    def get(self, key: Hashable) -> Verdict | None:
        """Return the cached verdict, if there is one."""
        try:
            found = self._verdicts.get(key)
        except TypeError:  # an action with something in it that can still change
            return None
        if found is not None:
            self._verdicts.move_to_end(key)
        return found

    def keep(self, key: Hashable, action: Action, verdict: Verdict) -> None:
        """Cache a verdict, if its action may be cached."""
        if not _is_small(action):
            return
        self._verdicts[key] = verdict
        if len(self._verdicts) > MAX_VERDICTS:
            self._verdicts.popitem(last=False)


def _limits_of(rules: Sequence[Rule]) -> _Limits:
    return _Limits(
        sorted({rule.expires_at for rule in rules if rule.expires_at is not None}),
        any(rule.session is not None for rule in rules),
        [rule for rule in rules if rule.uses is not None],
        [rule for rule in rules if rule.uses is not None or rule.expires_at is not None],
    )


def _is_small(action: Action) -> bool:
    """Return whether an action is small, and holds nothing that can still change (a list instead of
    a tuple)."""
    chars = 0
    for value in msgspec.structs.astuple(action):
        if isinstance(value, str):
            chars += len(value)
        elif isinstance(value, tuple) and value and not isinstance(value[0], str):
            return False  # a swap's steps
        elif isinstance(value, tuple):
            chars += sum(map(len, value))
        elif isinstance(value, list):
            return False
    return chars <= MAX_ACTION_CHARS
