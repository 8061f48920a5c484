"""Explanation as plain data: an action's parts, and what each rule says of each.

Decides nothing and asks nothing: these are values, shared by `explain`, by the readers of the
categories (`explain_exec`, ...) and by those who show them. Nothing in them is escaped.
"""

from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from supervisor.core.actions import Action, Category
from supervisor.core.verdicts import Forced, Mode, Rule, Verdict

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
# Basis of the verdict: rules, something that no allow rule lifts, the category's mode; `free`:
# nothing has to allow it; `always`: a proposal, which is always asked; `nothing`: no policy is in
# force.
type Basis = Literal["rules", "forced", "mode", "free", "always", "nothing"]
type PartAnswer = Literal["allow", "ask", "deny", "free", "open"]

# How far a rule is from matching: up to NEAR it is worth a look.
NEAR = 4
FAR = 9
# Of an action with more parts than this only the first are told apart.
MOST_PARTS = 200


class RuleLook(NamedTuple):
    """One rule's answer on one part. `why` is one line: what covers it, what differs, or what stops
    it.

    `fits` ignores the rule's time limit, its exceptions, and what no rule lifts. `stopped` says why
    a rule that fits (or would, were it not bare) doesn't count.
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
    """Return the look of a rule that fits but for one of its exceptions."""
    return RuleLook(
        True, f"fits, but its exception `{exception}` takes this out", stopped="excepted"
    )


def miss(why: str, distance: int = NEAR) -> RuleLook:
    """Return the look of a rule that doesn't fit."""
    return RuleLook(False, why, distance)


class Topic(NamedTuple):
    """A part of an action that is judged on its own, as a category's reader names it. `is_free`: it
    needs no rule.

    `alone` is the part as an action of its own: rules for it are suggested from that.
    """

    kind: str
    text: str
    notes: tuple[str, ...] = ()
    forced: tuple[Forced, ...] = ()
    is_free: bool = False
    alone: Action | None = None


class Reading(Protocol):
    """A category's reading of an action. `forced`: what no rule lifts of the whole action.

    `left_out`: how many topics there are beyond `MOST_PARTS`, which are no topics here.
    """

    facts: list[tuple[str, str]]
    forced: list[Forced]
    topics: list[Topic]
    left_out: int

    def look(self, rule: Rule, at: int) -> RuleLook:
        """Return what a rule of the category says of the topic at this position."""


class ActionPart(msgspec.Struct, frozen=True):
    """A part of the action: a command, a path, a connection, an address, a ref, a package.

    `answer` is the answer of the rules in force to it alone: `open` where none matches, `free`
    where none has to. `rules` are those that gave it. `forced`: why no allow rule lifts an ask or a
    deny. `notes` tell how it was found and read.
    """

    kind: str
    text: str
    answer: PartAnswer
    rules: tuple[str, ...] = ()
    forced: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    alone: Action | None = None


class Looked(msgspec.Struct, frozen=True):
    """A rule that was looked at. `parts`: positions in `Explanation.parts` that it matches.
    `distance`: 0 where it fits, up to `NEAR` where little differs."""

    rule: Rule
    outcome: RuleOutcome
    why: str
    parts: tuple[int, ...] = ()
    distance: int = 0


class AllowSuggestion(msgspec.Struct, frozen=True):
    """An allow rule that would be enough for the part at this position; `explains` says what
    else it would allow."""

    part: int
    rule: str
    label: str
    explains: str


class Explanation(msgspec.Struct, frozen=True):
    """Everything about one verdict.

    `facts` are (what, value) pairs: what the action was understood as. `parts_left_out`: how
    many more there are. `forced`: what no allow rule lifts. `mode` is what the category does
    where no rule matches, whether or not it came to that (`basis`). `looked`: every rule of the
    category, the most telling first. `others`: how many rules of each other category weren't
    looked at. `suggestions`: allow rules, the first of each part together enough for an allow;
    `advice` where it takes something else. `trouble` is empty unless all this is incomplete.
    """

    category: Category
    action: str
    verdict: Verdict
    basis: Basis
    mode: Mode
    facts: tuple[tuple[str, str], ...] = ()
    parts: tuple[ActionPart, ...] = ()
    parts_left_out: int = 0
    forced: tuple[str, ...] = ()
    looked: tuple[Looked, ...] = ()
    others: tuple[tuple[Category, int], ...] = ()
    suggestions: tuple[AllowSuggestion, ...] = ()
    advice: str = ""
    trouble: str = ""


# -- as plain data --------------------------------------------------------------------------------


def as_data(explanation: Explanation) -> dict[str, Any]:
    """An explanation as plain data with stable keys, for JSON: see `gatehouse policy explain
    --json`."""
    verdict = explanation.verdict
    return {
        "category": explanation.category,
        "action": explanation.action,
        "verdict": verdict.decision,
        "why": verdict.why,
        "remedy": verdict.remedy,
        "rule": verdict.rule,
        "rules": list(verdict.rules),
        "sticky": verdict.sticky,
        "basis": explanation.basis,
        "mode": explanation.mode,
        "forced": list(explanation.forced),
        "understood": dict(explanation.facts),
        "parts": [_part_data(part) for part in explanation.parts],
        "parts_left_out": explanation.parts_left_out,
        "looked_at": [_looked_data(one) for one in explanation.looked],
        "not_looked_at": dict(explanation.others),
        "suggestions": [msgspec.to_builtins(one) for one in explanation.suggestions],
        "advice": explanation.advice,
        "trouble": explanation.trouble,
    }


def _part_data(part: ActionPart) -> dict[str, Any]:
    return {
        "kind": part.kind,
        "text": part.text,
        "answer": part.answer,
        "rules": list(part.rules),
        "forced": list(part.forced),
        "notes": list(part.notes),
    }


def _looked_data(one: Looked) -> dict[str, Any]:
    rule = one.rule
    return {
        "rule": rule.text,
        "effect": rule.effect,
        "id": rule.id,
        "rule_why": rule.why,
        "source": rule.source,
        "line": rule.line,
        "outcome": one.outcome,
        "why": one.why,
        "parts": list(one.parts),
        "distance": one.distance,
    }
