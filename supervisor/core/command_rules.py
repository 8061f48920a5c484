"""The verdict on a command line: exec rules in terms of the policy.

Decides nothing about commands itself (`exec_rules` does); it knows which rules are in force, which are bare, and the words of the
verdict. tree-sitter is imported when a command is first judged, so that the other categories don't pay for it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from supervisor.core.actions import Action, Effect, Exec
from supervisor.core.verdicts import ASK_FOR_A_RULE, Context, Rule, Verdict, by_mode, by_rules

if TYPE_CHECKING:
    from supervisor.core.exec_rules import Judgement, Rules

GUARD_RAIL = "an exec deny rule is a guard-rail: what a command can reach is decided by the sandbox"


def check_pattern(pattern: str, effect: Effect) -> str:
    """Raise `PolicyError` where the pattern can't be one; a warning where it never matches."""
    from supervisor.core.exec_patterns import compile_pattern

    if compile_pattern(pattern).is_bare and effect == "allow":
        return f"`exec({pattern})` is bare, so it allows nothing: name the commands"
    return ""


class CommandJudge:
    """The exec rules of a policy. Those without expiry, session or uses are compiled once."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        # Sorted, so that the words of a verdict don't depend on the order of the file either.
        self._rules = tuple(sorted(rules, key=lambda rule: (rule.text, rule.id)))
        self._changes = any(rule.expires_at or rule.session or rule.uses is not None for rule in rules)
        self._compiled: tuple[tuple[int, ...], dict[Effect, Rules[int]]] | None = None

    def judge(self, action: Action, mode: Effect, context: Context) -> Verdict:
        """The verdict on an `Exec` action."""
        assert isinstance(action, Exec)
        return self._verdict(self.judgement(action, context), mode)

    def judgement(self, action: Exec, context: Context) -> "Judgement[int]":
        """What the rules say of the command line, command by command, before it becomes a verdict."""
        from supervisor.core.exec_rules import judge

        lists = self._lists(context)
        return judge(
            action.command,
            action.cwd,
            allow=lists["allow"],
            ask=lists["ask"],
            deny=lists["deny"],
            workspace_roots=(context.workspace,),
        )

    def _lists(self, context: Context) -> "dict[Effect, Rules[int]]":
        """The rules in force, compiled; again only where which are in force has changed."""
        every = range(len(self._rules))
        active = tuple(i for i in every if context.is_active(self._rules[i])) if self._changes else tuple(every)
        if self._compiled is None or self._compiled[0] != active:
            self._compiled = (active, self._compile(active))
        return self._compiled[1]

    def _compile(self, active: Sequence[int]) -> "dict[Effect, Rules[int]]":
        from supervisor.core.exec_patterns import compile_pattern
        from supervisor.core.exec_rules import Rules

        lists: dict[Effect, list[tuple[int, object, tuple[object, ...]]]] = {"allow": [], "ask": [], "deny": []}
        for index in active:
            rule = self._rules[index]
            pattern = compile_pattern(rule.pattern)
            # INVARIANT: a bare allow rule never matches, in any spelling.
            if not (rule.effect == "allow" and pattern.is_bare):
                lists[rule.effect].append((index, pattern, tuple(map(compile_pattern, rule.exceptions))))
        return {effect: Rules(entries) for effect, entries in lists.items()}  # type: ignore[arg-type]

    def _verdict(self, judgement: "Judgement[int]", mode: Effect) -> Verdict:
        rules = [self._rules[key] for key in judgement.keys]
        if judgement.decision is None:
            verdict = by_mode("exec", mode)
            return Verdict(
                verdict.decision,
                f"{judgement.why}; {verdict.why.removeprefix('no rule matches; ')}",
                remedy=verdict.remedy,
                sticky=judgement.never_allow,
            )
        if judgement.decision == "allow" and not rules:
            why = "`cd` to a folder inside the workspace needs no rule"
            return by_mode("exec", mode) if mode == "deny" else Verdict("allow", why)
        if not rules:
            # The judge gave up (law 3).
            return Verdict("deny", judgement.why, remedy=ASK_FOR_A_RULE, sticky=True)
        return by_rules(judgement.decision, rules, self._why(judgement, rules))

    @staticmethod
    def _why(judgement: "Judgement[int]", rules: Sequence[Rule]) -> str:
        """The judge's own words, with the rule's why behind them; empty: the usual words."""
        lead = min(rules, key=lambda rule: (rule.text, rule.id))
        if judgement.decision == "allow" or not judgement.why:
            return ""
        return f"{judgement.why}: {lead.why}" if lead.why and lead.why not in judgement.why else judgement.why
