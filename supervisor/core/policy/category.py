"""One category of rules as one object, with every question about its patterns.

`categories` has the table of them. A function of an `outer` and an `inner` rule never returns True
when unsure, so that no needed rule is removed.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from supervisor.core.actions import Action, Effect
from supervisor.core.policy.protected_names import Protected, Protection
from supervisor.core.verdicts import CompiledRule, Context, Forced, Judge, Mode, Rule, Sought

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


# Weight of a rule in the search for a smaller set: two literal ones weigh as much as one and a half
# with a wildcard.
SPELLED_OUT, ONE_WILDCARD, WHOLE_TREE = 2, 3, 6


class Option(NamedTuple):
    """A rule that may be learned, once at least `least` different pieces of `evidence` were
    approved for it.

    With empty evidence, each approved request counts for itself.
    """

    rule: str
    weight: int
    least: int = 1
    evidence: str = ""


def exact(candidates: Iterator[Candidate]) -> Iterator[Option]:
    """Return an option that learns only the exact candidate, from two approvals."""
    yield from (Option(one.rule, SPELLED_OUT, 2) for one in candidates if one.label == "exact")


# What became of a rule, the most telling first.
#   decides    it made the verdict
#   overruled  it matches, but a stricter rule does too
#   partly     it covers a part of the action, and another part has no rule
#   held       it fits, but here no rule counts, or none that uses a wildcard
#   excepted   it fits, but for its own exception
#   inactive   expired, of another session, or used up
#   never      a bare allow rule of a category where bare rules allow nothing
#   spare      it would decide, but another rule answers before it is asked
#   missed     it doesn't match
type RuleOutcome = Literal[
    "decides", "overruled", "partly", "held", "excepted", "inactive", "never", "spare", "missed"
]
OUTCOMES: tuple[RuleOutcome, ...] = (
    "decides", "overruled", "partly", "held", "excepted", "inactive", "never", "spare", "missed",
)  # fmt: skip


# How far a rule is from matching: up to NEAR it is worth a look.
NEAR = 4
FAR = 9
# If an action has more parts than this, only the first ones are treated separately.
MOST_PARTS = 200


class RuleLook(NamedTuple):
    """One rule's answer about one part. `why` is one line: what covers it, what differs, or what
    stops it.

    `fits` ignores the rule's time limit, its exceptions, and what no rule lifts. `stopped` says why
    a rule that fits (or would, if it weren't bare) doesn't count.
    """

    fits: bool
    why: str
    distance: int = 0
    stopped: RuleOutcome | None = None

    @property
    def counts(self) -> bool:
        """Return whether the rule matches the part, as long as it is in force."""
        return self.fits and self.stopped is None


def excepted(exception: str) -> RuleLook:
    """Return the look of a rule that would fit without one of its exceptions."""
    return RuleLook(
        True, f"fits, but its exception `{exception}` takes this out", stopped="excepted"
    )


def miss(why: str, distance: int = NEAR) -> RuleLook:
    """Return the look of a rule that doesn't fit."""
    return RuleLook(False, why, distance)


class Topic(NamedTuple):
    """A part of an action that is judged on its own, as a category's reader names it. `is_free`: it
    needs no rule.

    `alone` is the part as an action of its own: rules for it are suggested from that action.
    """

    kind: str
    text: str
    notes: tuple[str, ...] = ()
    forced: tuple[Forced, ...] = ()
    is_free: bool = False
    alone: Action | None = None


class Reading(NamedTuple):
    """An action as its judge read it, part by part; without topics if it can't be read.

    `look` returns what a rule of the category says about the topic at this position. `forced`: what
    no rule lifts for the whole action. `left_out`: how many more topics there are beyond
    `MOST_PARTS`.
    """

    facts: Sequence[tuple[str, str]] = ()
    topics: Sequence[Topic] = ()
    look: Callable[[Rule, int], RuleLook] = lambda *_: miss("")
    forced: Sequence[Forced] = ()
    left_out: int = 0


def look_at[Pattern](
    rule: CompiledRule[Pattern],
    part: Sought[Pattern],
    how: str,
    missing: Callable[[Pattern, Any, bool], RuleLook],
) -> RuleLook:
    """Return what a rule says about one part, by the judge's own comparison. `how` says how the
    rule covers it; `missing` tells what differs if it doesn't, for an allow rule or a stricter one.
    """
    if not (part.is_touched if rule.is_broad else part.is_covered)(rule.pattern):
        return missing(rule.pattern, part, rule.is_broad)
    exception = rule.exception_for(part)
    return RuleLook(True, how) if exception is None else excepted(exception)


type AnyRule = CompiledRule[Any]


class RuleCategory(NamedTuple):
    """The meaning of a category's rules. A `pattern` is what `compile` returns."""

    # Raises `PolicyError` for a text that isn't valid in the list of an effect; returns a warning,
    # or nothing. Cheap: it needn't compile.
    check: Callable[[str, Effect], str]
    compile: Callable[[str], Any]
    judge: Callable[[Sequence[Rule], Protection], Judge[Any]]
    # How a judge of these rules reads an action, for `explain`.
    read: Callable[[Any, Sequence[Rule], Any, Context], Reading]
    # Whether an outer rule makes an inner one redundant: see `categories.contains`.
    contains: Callable[[AnyRule, AnyRule, ProtectedBy], bool]
    # The most selective literal text of a pattern, and that of each pattern which could contain it.
    key: Callable[[Any], Hashable]
    keys_above: Callable[[Any], Iterator[Hashable]]
    # A pattern's scope in words; what an allow rule lets through beyond its own words.
    width: Callable[[Any], str]
    wide: Callable[[Any], Remark | None]
    # The action that a rule's example stands for.
    example: Callable[[str], Action]
    # Rules that would allow an action, commands being run in a folder.
    candidates: Callable[[Any, str], Iterator[Candidate]]
    # Rules that may be learned from an approved action.
    options: Callable[[Any], Iterator[Option]] = lambda _: iter(())
    # Why an allow rule can match no action.
    never: Callable[[Any, ProtectedBy, Mode], Remark | None] = lambda *_: None
    # Whether `width` leaves it to `wide` to describe what the words don't show.
    is_wide_unsaid: bool = False


def like(what: str, text: str) -> str:
    """Describe what a word of a pattern stands for: one thing, or all similar things."""
    return f"every {what} like {text}" if "*" in text else f"the {what} {text}"
