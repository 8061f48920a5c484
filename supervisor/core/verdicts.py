"""Rules, verdicts, and how matches become one verdict: shared by all judges.

Decides only the order of strictness (deny, ask, allow, mode) and the wording of the reason. It
never looks at an action.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Literal, NamedTuple, Protocol

import msgspec

from supervisor.core.actions import Action, Category, Effect

# Reasons with which Gatehouse itself refuses or asks, whatever rules and modes say;
# `Verdict.by_policy` distinguishes such verdicts from a policy's.
STOPPED = "everything is stopped"
SESSION_ENDED = "the session has ended"
INBOX_FULL = "too many requests of this session wait already"
NOTHING_IN_FORCE = "no policy could be read, so everything is denied"
NOT_EVALUATED = "the rules could not be evaluated"
OWN_FILE = (
    "Gatehouse itself reads this file (its policy, code or pages): a change of it is always asked"
)
KEPT = "what a job changes is judged as a whole, once it is done"
CHANGE_THE_COPY = "change the file in the copy"
OUT_OF_SCOPE = "it is outside the scope of this job, so it is always asked, and by itself"

# What a category does when no rule matches. `contained`, only for exec: a command that can't change
# anything outside runs without a question.
type Mode = Effect | Literal["contained"]

STRICTNESS: dict[Effect, int] = {"allow": 0, "ask": 1, "deny": 2}
_PAST = {"allow": "allowed", "ask": "asked", "deny": "denied"}
_MODE_VERB = {"allow": "allows", "ask": "asks", "deny": "denies"}
ASK_FOR_A_RULE = "ask the operator for a rule, or do without it"


class Rule(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One entry of a policy. `text` is `category(pattern)` as it is shown; `line` is 1-based, 0 if
    there is no file.

    `expires_at` is in seconds since the epoch; `session` binds the rule to one session; `uses` is
    how often an allow rule may match. `exceptions`, `match` and `not_match` are patterns and
    examples without their category.
    """

    effect: Effect
    category: Category
    pattern: str
    text: str
    id: str
    why: str = ""
    added_by: str = ""
    added_at: float | None = None
    expires_at: float | None = None
    until_session_ends: bool = False
    session: str | None = None
    uses: int | None = None
    exceptions: tuple[str, ...] = ()
    match: tuple[str, ...] = ()
    not_match: tuple[str, ...] = ()
    source: str = ""
    line: int = 0

    @property
    def is_limited(self) -> bool:
        """Return whether it has a limit and so isn't always in force."""
        return self.expires_at is not None or self.session is not None or self.uses is not None


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """Answer of the rules. `sticky`: "always allow" must not be offered. `rules`: the text of every
    rule that made it. `by_policy` is False if Gatehouse itself decided, whatever a policy says."""

    decision: Effect
    why: str
    rule: str | None = None
    rule_id: str | None = None
    remedy: str = ""
    sticky: bool = False
    rules: tuple[str, ...] = ()
    by_policy: bool = True
    # The command runs without a question because it is contained, and no rule allows it.
    is_contained: bool = False


# For an action that came both as fields and as a command line.
CONTRADICTS_ITSELF = Verdict(
    "deny",
    "the fields of this action and its command don't say the same",
    remedy="send one of them",
)


class Passing(NamedTuple):
    """Facts of an allowed connection. `looks_inside`: a rule concerns requests to its host, so it
    is decrypted. `is_limited`: the rule that allowed it has a time limit or a limit of uses."""

    looks_inside: bool
    is_limited: bool


class Context(NamedTuple):
    """Inputs of a verdict besides policy and action. `uses` is None if nobody counts them.

    `disputed` are the ids of rules that have expired by `now` or by the elapsed time, but not by
    both (`supervisor.records.policy_files`). `is_contained`: a check at the session's start found
    that commands can't change anything outside.
    """

    now: float
    workspace: str
    session_id: str | None
    forbidden_endpoints: frozenset[tuple[str, int]]
    remotes: frozenset[str]
    uses: Mapping[str, int] | None
    disputed: frozenset[str] = frozenset()
    is_contained: bool = False

    def is_active(self, rule: Rule) -> bool:
        """Return whether a rule is in force here and now."""
        if rule.expires_at is not None and self.is_over(rule):
            return False
        if rule.session is not None and rule.session != self.session_id:
            return False
        return rule.uses is None or self.has_uses_left(rule)

    def is_over(self, rule: Rule) -> bool:
        """Return whether it has expired. INVARIANT: a disputed rule counts in the stricter way: an
        allow rule has expired, a deny or ask rule hasn't."""
        over = rule.expires_at is not None and self.now >= rule.expires_at
        return (rule.effect == "allow") if rule.id in self.disputed else over

    def has_uses_left(self, rule: Rule) -> bool:
        """Return whether a rule with a limit of uses may match once more. Without a count it allows
        nothing (law 3)."""
        return (
            self.uses is not None
            and rule.uses is not None
            and self.uses.get(rule.id, 0) < rule.uses
        )


class Judge[Seen](ABC):
    """The rules of one category, indexed once. Patterns are compiled when they are first needed.

    A verdict takes two steps: `canonical` reads the action, independently of the rules; `decide`
    finds the rules that match. Only the second step grows with a policy, so it has an index.
    """

    @staticmethod
    @abstractmethod
    def canonical(action: Action) -> Seen | Verdict:
        """Return the action in the canonical form that rules compare, or a verdict if it has
        none."""

    @abstractmethod
    def decide(self, seen: Seen, mode: Mode, context: Context) -> Verdict:
        """Return the verdict on an action in its canonical form."""

    def judge(self, action: Action, mode: Mode, context: Context) -> Verdict:
        """Return the verdict on an action of this category."""
        seen = self.canonical(action)
        return seen if isinstance(seen, Verdict) else self.decide(seen, mode, context)


class Sought[Pattern](Protocol):
    """Subject of a rule look-up, which patterns match in two ways: narrow for allow, broad for deny
    and ask."""

    def is_covered(self, pattern: Pattern) -> bool:
        """Return whether an allow rule covers it."""

    def is_touched(self, pattern: Pattern) -> bool:
        """Return whether a deny or ask rule applies to it."""


class CompiledRule[Pattern]:
    """A rule with its compiled pattern. `is_broad`: it is a deny or ask rule."""

    __slots__ = ("exceptions", "is_broad", "pattern", "rule")

    def __init__(self, rule: Rule, compile_pattern: Callable[[str], Pattern]) -> None:
        self.rule = rule
        self.is_broad = rule.effect != "allow"
        self.pattern = compile_pattern(rule.pattern)
        self.exceptions = tuple(map(compile_pattern, rule.exceptions))

    def matches(self, sought: Sought[Pattern]) -> bool:
        """Return whether the rule matches. Exceptions are matched the other way round, so both err
        on the stricter side."""
        if not (
            sought.is_touched(self.pattern) if self.is_broad else sought.is_covered(self.pattern)
        ):
            return False
        return not self.exceptions or self.exception_for(sought) is None

    def exception_for(self, sought: Sought[Pattern]) -> str | None:
        """Return the exception that excludes the subject from the rule; None if there is none."""
        takes_out = sought.is_covered if self.is_broad else sought.is_touched
        texts = zip(self.rule.exceptions, self.exceptions, strict=True)
        return next((text for text, one in texts if takes_out(one)), None)


class Forced(NamedTuple):
    """An answer at least this strict, which no allow rule lifts."""

    decision: Literal["ask", "deny"]
    why: str
    remedy: str = ""
    sticky: bool = True


class Matches:
    """The rules that match an action, by effect, and its forced answers."""

    __slots__ = ("allow", "ask", "deny", "forced")

    def __init__(self, rules: Iterable[Rule] = (), forced: Sequence[Forced] = ()) -> None:
        self.allow: list[Rule] = []
        self.ask: list[Rule] = []
        self.deny: list[Rule] = []
        self.forced = forced
        for rule in rules:
            (
                self.allow
                if rule.effect == "allow"
                else self.deny
                if rule.effect == "deny"
                else self.ask
            ).append(rule)

    def verdict(self, category: Category, mode: Mode) -> Verdict:
        """Return the verdict. INVARIANT: more matches in `deny`, `ask` or `forced` never give a
        looser verdict (law 1)."""
        if self.deny:
            return by_rules("deny", self.deny)
        for item in self.forced:
            if item.decision == "deny":
                return Verdict("deny", item.why, remedy=item.remedy or ASK_FOR_A_RULE)
        if self.ask:
            return by_rules("ask", self.ask)
        if self.forced:
            if not self.allow and mode == "deny":
                return by_mode(category, mode)
            item = self.forced[0]
            return Verdict(
                "ask", item.why, remedy=item.remedy, sticky=any(one.sticky for one in self.forced)
            )
        if self.allow:
            return by_rules("allow", self.allow)
        return by_mode(category, mode)


def verdict_of(
    rules: Sequence[Rule], forced: Sequence[Forced], category: Category, mode: Mode
) -> Verdict:
    """Return the verdict for these matching rules. `Matches` orders them; most actions don't need
    that."""
    if forced or len(rules) > 1:
        return Matches(rules, forced).verdict(category, mode)
    return by_rules(rules[0].effect, rules) if rules else by_mode(category, mode)


def by_rules(decision: Effect, rules: Sequence[Rule], why: str = "") -> Verdict:
    """Return the verdict that rules make: it names all of them, the first in alphabetical order
    first."""
    ordered = rules if len(rules) == 1 else sorted(rules, key=lambda rule: (rule.text, rule.id))
    lead = ordered[0]
    reason = f": {lead.why}" if lead.why and decision != "allow" else ""
    return Verdict(
        decision,
        why or f"{_PAST[decision]} by {lead.text}{reason}",
        rule=lead.text,
        rule_id=lead.id,
        remedy=ASK_FOR_A_RULE if decision == "deny" else "",
        sticky=decision == "ask",
        rules=(lead.text,)
        if len(ordered) == 1
        else tuple(dict.fromkeys(rule.text for rule in ordered)),
    )


CONTAINED = Verdict("allow", "runs contained: nothing outside can change", is_contained=True)
NOT_CONTAINED = "commands don't run contained here"


@cache
def by_mode(category: Category, mode: Mode) -> Verdict:
    """Return the verdict if no rule matches. The mode `contained` asks here: only a readable
    command line may run unasked, which `command_rules` decides."""
    if mode == "contained":
        return Verdict("ask", f"no rule matches; {category} asks")
    return Verdict(
        mode,
        f"no rule matches; {category} {_MODE_VERB[mode]}",
        remedy=ASK_FOR_A_RULE if mode == "deny" else "",
    )


def combine(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the strictest of several verdicts on parts of one action; it names all that are
    equally strict."""
    parts = list(dict.fromkeys(verdicts))
    if len(parts) == 1:
        return parts[0]
    worst = max((part.decision for part in parts), key=STRICTNESS.__getitem__)
    deciding = [part for part in parts if part.decision == worst]
    lead = next((part for part in deciding if part.rule), deciding[0])
    return Verdict(
        worst,
        "; ".join(dict.fromkeys(part.why for part in deciding[:3])),
        rule=lead.rule,
        rule_id=lead.rule_id,
        remedy=lead.remedy or next((part.remedy for part in deciding if part.remedy), ""),
        sticky=any(part.sticky for part in deciding),
        rules=tuple(dict.fromkeys(text for part in deciding for text in part.rules)),
        by_policy=any(part.by_policy for part in deciding),
    )
