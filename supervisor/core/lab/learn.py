"""Learn a minimal policy from approvals, without allowing anything denied.

Decides which of the rules on offer (`suggest.options`) are proposed in addition to a base policy.
It asks the engine what a rule would do (`Judging`) instead of reasoning about it, so a wrong offer
costs a rule and opens no hole.

INVARIANT: base and proposal together allow nothing that was denied, and nothing that the base asks
or denies by a rule, by a protected name or by the nature of a command. It never saves anything: a
person reads the proposal first.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from supervisor.core.actions import (
    WORKSPACE,
    Action,
    Category,
    Exec,
    FileChange,
    McpTools,
    Proposal,
    category_of,
    fingerprint,
    title,
)
from supervisor.core.lab.past import Past
from supervisor.core.policy.category import Option
from supervisor.core.policy.command_rules import CommandJudge
from supervisor.core.policy.evaluate import evaluate, mode_verdict
from supervisor.core.policy.exec_category import exec_options
from supervisor.core.policy.policy_text import merge, policy_from_data
from supervisor.core.policy.rules import Policy, Verdict
from supervisor.core.policy.suggest import options
from supervisor.core.secrets.redact import Redactor, redacted
from supervisor.core.shell.shell_words import Word, from_bytes_text
from supervisor.core.verdicts import Context
from supervisor.errors import PolicyError

type WishKey = str | tuple[Word, ...]

NO_RULES: frozenset[str] = frozenset()
_MOST_POLICIES = 200
MOST_EXAMPLE_CHARS = 100
WAS_REDACTED = "it held a secret, and nothing is learned from those"
DENIED_TOO = "a rule for it would also answer something that was denied"
TOO_SELDOM = "approved too seldom for a rule"
NO_NARROW_RULE = "no narrow rule is known for"
SPELLED_OUT = "only a rule that spells out the arguments could allow"


class LearnedRule(msgspec.Struct, frozen=True, kw_only=True):
    """A proposed allow rule. `saves`: how many approved requests, of so many `sessions`, would be
    asked again without it.

    `example` is the title of one of these requests; `match` is an example for the rule itself,
    empty if no text is fit.
    """

    rule: str
    saves: int
    sessions: int
    example: str
    match: str = ""


class StaysAsked(msgspec.Struct, frozen=True, kw_only=True):
    """Approved requests that no proposed rule answers: the reason, how many, and the title of the
    first."""

    why: str
    count: int
    example: str


class Learned(msgspec.Struct, frozen=True, kw_only=True):
    """The proposal. `approved` and `denied` count requests of the history; `sessions` counts
    sessions with an approved request.

    `asked_before` and `asked_after`: how many of the history's requests aren't allowed by the base
    alone, and by the base with the proposal.
    """

    rules: tuple[LearnedRule, ...]
    stays: tuple[StaysAsked, ...]
    sessions: int
    approved: int
    denied: int
    asked_before: int
    asked_after: int

    def policy(self) -> Policy:
        """Return the proposed rules as a policy of their own."""
        return policy_of(one.rule for one in self.rules)


# -- what the engine says -------------------------------------------------------------------------


class Need(msgspec.Struct, frozen=True):
    """One thing that a rule must cover for a request to be allowed: a command of its line, or the
    whole action."""

    key: WishKey
    options: tuple[Option, ...]


def policy_of(rules: Iterable[str]) -> Policy:
    """Return a policy that allows by these rules alone."""
    return policy_from_data({"allow": list(rules)})


def is_fit(rule: str) -> bool:
    """Return whether the text is a rule without a warning (a bare rule has one)."""
    try:
        return not policy_of([rule]).warnings
    except PolicyError:
        return False


class Judging:
    """Verdicts in a future session: session rules have ended, and uses aren't counted."""

    def __init__(self, base: Policy, now: float, workspace: str) -> None:
        self.base = base
        # If a mode denies what no rule matches, the verdict doesn't distinguish a protected name
        # from any other: so judge as if all modes were `ask`.
        self._asking = base if base.is_deny_all else Policy(base.rules, protection=base.protection)
        self._now = now
        self._workspace = workspace
        self._policies: dict[frozenset[str], Policy] = {}
        self._own: dict[tuple[Category, frozenset[str]], frozenset[str]] = {}
        self._single: dict[str, Policy] = {}
        self._allows: dict[tuple[frozenset[str], str], bool] = {}
        self._covered: dict[tuple[str, str], frozenset[WishKey]] = {}

    def under(self, rules: frozenset[str]) -> Policy:
        """Return the base policy with some rules added."""
        if not rules:
            return self.base
        if rules not in self._policies:
            if len(self._policies) >= _MOST_POLICIES:
                self._policies.clear()
            parsed = [self._alone(rule).rules[0] for rule in sorted(rules)]
            self._policies[rules] = merge(self.base, Policy(parsed))
        return self._policies[rules]

    def verdict(self, past: Past) -> Verdict:
        """Return the base's verdict as if all its modes were `ask`."""
        return self._verdict(self._asking, past)

    def allows(self, rules: frozenset[str], past: Past) -> bool:
        """Return whether the base with the rules added allows the action. Only rules of the
        action's category can matter."""
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
        """Return the needs that rules must cover for the action to be allowed; none if it is
        already allowed, or no allow rule can allow it."""
        if self.base.is_deny_all or self.allows(NO_RULES, past):
            return ()
        if isinstance(past.action, Exec):
            return tuple(
                Need(words, exec_options(words))
                for words in self._open(self.base, past.action) or ()
            )
        # INVARIANT: if the verdict isn't just the mode's, a rule, a protected name or the kind of
        # action prevents an allow.
        if self.verdict(past) != mode_verdict(self._asking, past.action):
            return ()
        return (Need(fingerprint(past.action), options(past.action)),)

    def may_help(self, rule: str, past: Past, needs: Iterable[Need]) -> bool:
        """Return False only if the rule can't contribute to an allow.

        Each command of a line is covered on its own. Elsewhere an action may have several parts
        (refs, packages, both ends of a move).
        """
        if isinstance(past.action, Exec):
            return bool(self.covered(rule, past, needs))
        return rule.startswith(f"{category_of(past.action)}(")

    def covered(self, rule: str, past: Past, needs: Iterable[Need]) -> frozenset[WishKey]:
        """Return the needs that the rule alone would cover. The base has only its mode for these,
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
        """Return the commands of a line that no rule covers; None if something other than a missing
        rule prevents an allow."""
        judge = policy.judge_for("exec")
        assert isinstance(judge, CommandJudge)
        judgement = judge.judgement(
            action, Context(self._now, self._workspace, None, frozenset(), frozenset(), None)
        )
        return () if judgement.decision == "allow" else judgement.open or None


def _asked(past: Past) -> str:
    """Return everything in a past request that a verdict depends on."""
    return f"{fingerprint(past.action)} {past.remotes}"


# -- what is chosen -------------------------------------------------------------------------------


class _Request(msgspec.Struct, frozen=True):
    """An approved request that the base doesn't answer, though a rule could. `reach`: for each
    need, the rules that cover it."""

    past: Past
    needs: tuple[Need, ...]
    reach: Mapping[WishKey, frozenset[str]] = {}

    @property
    def is_reached(self) -> bool:
        return all(self.reach.get(need.key) for need in self.needs)

    def needs_one_of(self, rule: str, others: frozenset[str]) -> bool:
        """Return whether the rule covers a need that no other rule is known to cover."""
        return any(rule in rules and not rules & others for rules in self.reach.values())


def learn(
    history: Iterable[Past], base: Policy, *, now: float, workspace: str = WORKSPACE
) -> Learned:
    """Propose rules in addition to `base`, from the answers of a history. The same history gives
    the same proposal."""
    history = tuple(past for past in history if not isinstance(past.action, Proposal | McpTools))
    judging = Judging(base, now, workspace)
    asked, stays = _sorted(history, judging)
    chooser = _Chooser(asked, _refused(history, judging), judging)
    chosen = chooser.chosen()
    rules = frozenset(chosen)
    stays += [
        (chooser.why_not(one), one.past)
        for one in chooser.requests
        if not judging.allows(rules, one.past)
    ]
    return Learned(
        rules=tuple(_described(rule, chooser.lost(rules, rule)) for rule in chosen),
        stays=_grouped(stays),
        sessions=len({past.session for past in history if past.persons_answer == "approved"}),
        approved=sum(past.persons_answer == "approved" for past in history),
        denied=sum(map(_is_denied, history)),
        asked_before=sum(not judging.allows(NO_RULES, past) for past in history),
        asked_after=sum(not judging.allows(rules, past) for past in history),
    )


def _sorted(
    history: Sequence[Past], judging: Judging
) -> tuple[list[_Request], list[tuple[str, Past]]]:
    """Split the history into the requests to learn from and the requests that stay asked whatever
    is learned, with reasons."""
    asked: list[_Request] = []
    stays: list[tuple[str, Past]] = []
    redactor = Redactor()
    for past in history:
        if past.persons_answer != "approved" or judging.allows(NO_RULES, past):
            continue
        needs = judging.needs(past)
        if not past.by_policy:
            stays.append((past.why, past))
        elif not needs:
            stays.append((_kind(judging.verdict(past).why), past))
        elif past.is_redacted or redacted(past.action, redactor) != past.action:
            stays.append((WAS_REDACTED, past))
        else:
            asked.append(_Request(past, needs))
    return asked, stays


def _kind(why: str) -> str:
    """Return a verdict's reason without the words of the one command that it was about."""
    return why.partition(" (`")[0].partition("; exec ")[0]


def _refused(history: Sequence[Past], judging: Judging) -> list[Past]:
    """Return the denied actions that an allow rule might allow, each once. No allow rule changes
    what the base allows, or asks or denies by a rule.

    A denial that no policy made (everything was stopped, the inbox was full) says nothing about the
    action.
    """
    found = {(fingerprint(past.action), past.remotes): past for past in history if _is_denied(past)}
    return [
        past
        for past in found.values()
        if not judging.allows(NO_RULES, past) and judging.verdict(past).rule is None
    ]


def _is_denied(past: Past) -> bool:
    return past.outcome == "deny" and (past.by_policy or past.persons_answer == "denied")


class _Chooser:
    """Chooses rules for the requests, among those that allow nothing refused."""

    def __init__(
        self, requests: Sequence[_Request], refused: Iterable[Past], judging: Judging
    ) -> None:
        self.refused = [(past, judging.needs(past)) for past in refused]
        self.judging = judging
        self.evidence: dict[str, set[str]] = {}
        self.options: dict[str, Option] = {}
        for number, request in enumerate(requests):
            for option in _options(request):
                self.options[option.rule] = option
                self.evidence.setdefault(option.rule, set()).add(
                    option.evidence or f"request {number}"
                )
        self.usable = frozenset(
            rule for rule in self.options if self.is_proven(rule) and is_fit(rule)
        )
        self.requests = [self.reached(request) for request in requests]
        self.offered: dict[str, list[_Request]] = {}
        for request in self.requests:
            for rule in frozenset().union(*request.reach.values()):
                self.offered.setdefault(rule, []).append(request)

    def is_proven(self, rule: str) -> bool:
        """Return whether enough different approved actions support the rule."""
        return len(self.evidence[rule]) >= self.options[rule].least

    def is_safe(self, rules: Iterable[str], added: str) -> bool:
        """Return whether nothing refused becomes allowed when one rule is added to a set known as
        safe.

        The rules are tested together: two rules that are harmless alone may together answer a line
        that was denied.
        """
        together = frozenset([*rules, added])
        return not any(
            self.judging.may_help(added, past, needs) and self.judging.allows(together, past)
            for past, needs in self.refused
        )

    def reached(self, request: _Request) -> _Request:
        reach: dict[WishKey, set[str]] = {}
        for option in _options(request):
            if option.rule in self.usable:
                for key in self.judging.covered(option.rule, request.past, request.needs):
                    reach.setdefault(key, set()).add(option.rule)
        return msgspec.structs.replace(
            request, reach={key: frozenset(rules) for key, rules in reach.items()}
        )

    def chosen(self) -> tuple[str, ...]:
        """Return the rules to propose, in the order of their names."""
        kept = frozenset(self.cover())
        # Fewer rules are easier to read, so a narrow rule is dropped if a wider one is needed
        # anyway.
        for rule in sorted(kept, key=lambda rule: (self.options[rule].weight, rule)):
            if not self.lost(kept, rule):
                kept -= {rule}
        return tuple(sorted(kept))

    def cover(self) -> list[str]:
        """Choose rules that cover every coverable need, greedily: the most different needs for the
        least weight."""
        left = {
            (need.key, request.reach[need.key])
            for request in self.requests
            if request.is_reached
            for need in request.needs
        }
        chosen: list[str] = []
        refused: set[str] = set()
        while best := self.best(left, refused):
            if self.is_safe(chosen, best):
                chosen.append(best)
                left = {need for need in left if best not in need[1]}
            else:
                refused.add(best)
        return chosen

    def best(self, left: Iterable[tuple[WishKey, frozenset[str]]], refused: set[str]) -> str | None:
        counts: dict[str, int] = {}
        for _, rules in left:
            for rule in rules - refused:
                counts[rule] = counts.get(rule, 0) + 1
        return min(counts, key=lambda rule: self.rank(rule, counts[rule]), default=None)

    def rank(self, rule: str, count: int) -> tuple[float, int, str]:
        weight = self.options[rule].weight
        return (-count / weight, weight, rule)

    def lost(self, rules: frozenset[str], rule: str) -> list[_Request]:
        """Return the requests that the rules answer, but wouldn't without this one."""
        others = rules - {rule}
        return [
            request
            for request in self.offered.get(rule, ())
            if request.needs_one_of(rule, others) and self.is_lost(request, rules, others)
        ]

    def is_lost(self, request: _Request, rules: frozenset[str], others: frozenset[str]) -> bool:
        """Return whether a request that no other rule is known to answer would be lost.

        Every rule that could cover a command was offered for it; in other categories a rule may
        cover more than the action it was offered for.
        """
        if isinstance(request.past.action, Exec):
            return all(request.reach.get(need.key, NO_RULES) & rules for need in request.needs)
        return self.judging.allows(rules, request.past) and not self.judging.allows(
            others, request.past
        )

    def why_not(self, request: _Request) -> str:
        """Return why a request stays asked, though the base only lacks a rule."""
        need = next((need for need in request.needs if not request.reach.get(need.key)), None)
        if need is None:
            return DENIED_TOO
        offered = [option.rule for option in need.options if is_fit(option.rule)]
        if any(not self.is_proven(rule) for rule in offered):
            return TOO_SELDOM
        return f"{SPELLED_OUT if offered else NO_NARROW_RULE} {_named(need, request.past.action)}"


def _options(request: _Request) -> Iterable[Option]:
    return (option for need in request.needs for option in need.options)


# -- saying so ------------------------------------------------------------------------------------


def _described(rule: str, saved: Sequence[_Request]) -> LearnedRule:
    return LearnedRule(
        rule=rule,
        saves=len(saved),
        sessions=len({request.past.session for request in saved}),
        example=min((title(request.past.action) for request in saved), key=_shortness),
        match=_match(rule, saved),
    )


def _match(rule: str, saved: Iterable[_Request]) -> str:
    """Return the shortest of the rule's matches that can serve as its example."""
    texts = {text for request in saved for text in _texts(rule, request)}
    for text in sorted(texts, key=_shortness):
        if len(text) <= MOST_EXAMPLE_CHARS and text.isprintable() and _is_example(rule, text):
            return text
    return ""


def _is_example(rule: str, text: str) -> bool:
    try:
        policy_from_data({"allow": [{"rule": rule, "match": [text]}]})
    except PolicyError:
        return False
    return True


def _texts(rule: str, request: _Request) -> list[str]:
    """Return the rule's matches in a request, in the form of a rule's examples."""
    action = request.past.action
    if isinstance(action, Exec):
        keys = [key for key, rules in request.reach.items() if rule in rules]
        return [
            " ".join(from_bytes_text(word.raw) or word.text for word in key)
            for key in keys
            if not isinstance(key, str)
        ]
    return [
        action.path if isinstance(action, FileChange) else title(action).removeprefix("connect ")
    ]


def _named(need: Need, action: Action) -> str:
    return (
        f"this {category_of(action)} request"
        if isinstance(need.key, str)
        else f"`{need.key[0].text[:40]}`"
    )


def _shortness(text: str) -> tuple[int, str]:
    return (len(text), text)


def _grouped(stays: Iterable[tuple[str, Past]]) -> tuple[StaysAsked, ...]:
    """Count what stays asked by reason, the most frequent first."""
    groups: dict[str, list[str]] = {}
    for why, past in stays:
        groups.setdefault(why, []).append(title(past.action))
    found = [
        StaysAsked(why=why, count=len(titles), example=titles[0]) for why, titles in groups.items()
    ]
    return tuple(sorted(found, key=lambda one: (-one.count, one.why)))
