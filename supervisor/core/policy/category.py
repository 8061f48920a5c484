"""One category of rules as one object: everything that is asked of its patterns.

`categories` has the table of them, and puts these questions to the rules of any category. What
takes an `outer` and an `inner` rule never says yes where it can't tell: a rule would be removed
that somebody relied on.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from supervisor.core.actions import Action, Effect
from supervisor.core.policy.protected_names import Protected, Protection
from supervisor.core.verdicts import Judge, Mode, Rule

# Which protected name a path has.
type ProtectedBy = Callable[[str], Protected | None]
type Label = Literal["exact", "narrow", "broad"]


class Remark(NamedTuple):
    """A fault of a rule, as the rest of a sentence about it, and a remedy."""

    what: str
    remedy: str


class Candidate(msgspec.Struct, frozen=True):
    """A rule that may be saved. `explains` says in words what it would allow; exactly one candidate
    is the default."""

    label: Label
    rule: str
    default: bool
    explains: str


class Compiled(NamedTuple):
    """A rule with its pattern, compiled for its category."""

    rule: Rule
    pattern: Any

    @property
    def is_allow(self) -> bool:
        """Return whether it matches narrowly."""
        return self.rule.effect == "allow"

    @property
    def is_unconditional(self) -> bool:
        """Return whether it is in force always, everywhere and any number of times."""
        rule = self.rule
        return (
            rule.expires_at is None
            and rule.session is None
            and not rule.until_session_ends
            and rule.uses is None
        )


def nothing_remarked(*_: Any) -> None:
    """A category whose rules can always match."""


class RuleCategory(NamedTuple):
    """What a category's rules mean. A `pattern` is what `compile` returns.

    `check` raises `PolicyError` where a text can't stand in the list of `effect`; it returns a
    warning, or nothing. `judge` builds the judge of some rules. `contains`: see `categories`.
    `key` is the most telling literal text of a pattern, `keys_above` that of each pattern which
    could contain it. `never` says why an allow rule can match no action, `wide` what it lets
    through beyond its words; `width` describes a pattern's scope, and `is_wide_unsaid` that it
    leaves to `wide` what the words don't show. `example` is the action that a rule's example
    stands for, `candidates` are rules that would allow an action.
    """

    check: Callable[[str, Effect], str]
    compile: Callable[[str], Any]
    judge: Callable[[Sequence[Rule], Protection], Judge[Any]]
    contains: Callable[[Compiled, Compiled, ProtectedBy], bool]
    key: Callable[[Any], Hashable]
    keys_above: Callable[[Any], Iterator[Hashable]]
    wide: Callable[[Any], Remark | None]
    width: Callable[[Any], str]
    example: Callable[[str], Action]
    candidates: Callable[[Any, str], Iterator[Candidate]]
    never: Callable[[Any, ProtectedBy, Mode], Remark | None] = nothing_remarked
    is_wide_unsaid: bool = False


def like(what: str, text: str) -> str:
    """Describe what a word of a pattern is about: one thing, or all that are like it."""
    return f"every {what} like {text}" if "*" in text else f"the {what} {text}"
