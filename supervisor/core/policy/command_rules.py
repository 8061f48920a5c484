"""Verdict on a command line: applies a policy's exec rules.

Knows which rules are in force and which are bare, and words the verdict; `exec_rules` judges the
commands themselves. It is imported with the first exec rule or command, and tree-sitter with the
first command, so that other users don't pay for them.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from supervisor.core.actions import Action, Effect, Exec, McpCall
from supervisor.core.mcp_calls import PREFIX
from supervisor.core.shell.exec_commands import ParsedLine, read_line
from supervisor.core.shell.exec_patterns import ExecPattern, compile_pattern
from supervisor.core.shell.exec_rules import Judgement, Rules, judge
from supervisor.core.shell.shell import Command, Script
from supervisor.core.shell.shell_words import Word
from supervisor.core.verdicts import (
    ASK_FOR_A_RULE,
    CONTAINED,
    NOT_CONTAINED,
    Context,
    Judge,
    Mode,
    Rule,
    Verdict,
    by_mode,
    by_rules,
)

# `call` are the allow rules for calls of MCP servers; the last two are deny and ask rules as such
# calls see them.
type RuleList = Effect | Literal["call", "deny_call", "ask_call"]

_NONE: frozenset[int] = frozenset()
GUARD_RAIL = "an exec deny rule is a guard-rail: what a command can reach is decided by the sandbox"


def check_pattern(pattern: str, effect: Effect) -> str:
    """Raise `PolicyError` if the pattern isn't valid; return a warning if it never matches."""
    compiled = compile_pattern(pattern)
    if compiled.is_bare and effect == "allow":
        return f"`exec({pattern})` is bare, so it allows nothing: name the commands"
    arguments = compiled.words[1].literal if len(compiled.words) > 1 else None
    if list_of("allow", compiled) == "call" and arguments and not _is_json(arguments):
        return (
            f"`exec({pattern})` never matches: arguments of a call are one word of JSON; write"
            " them between single quotes, or `*` for any"
        )
    return ""


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return False
    return True


class _Seen(NamedTuple):
    """A command line as rules see it: its commands and its folder. `call`: the call of an MCP
    server that it stands for."""

    text: str
    cwd: str
    line: ParsedLine
    call: McpCall | None = None


def _as_command(call: McpCall) -> _Seen:
    """Return a call as the command of two words that rules are written for. It is never parsed."""
    words = (Word(f"{PREFIX}{call.server}__{call.tool}"), Word(call.arguments))
    return _Seen("", ".", ParsedLine(Script(commands=(Command(words),))), call)


def pattern_of(effect: Effect, text: str) -> ExecPattern:
    """Return the pattern of a rule."""
    pattern = compile_pattern(text)
    is_call = effect != "allow" and list_of("allow", pattern) == "call"
    return _of_calls(pattern) if is_call else pattern


def _of_calls(pattern: ExecPattern) -> ExecPattern:
    """Return the pattern of a deny or ask rule for calls. A call always has arguments: a rule that
    names none is about all of them."""
    return pattern if len(pattern.words) > 1 else replace(pattern, has_tail=True)


def list_of(effect: Effect, pattern: ExecPattern) -> RuleList:
    """Return the list that a rule is in: an allow rule for calls of MCP servers allows no program,
    and no other allows a call."""
    name = pattern.words[0]
    start = name.parts[0] if name.literal is None else name.literal
    return "call" if effect == "allow" and start.startswith(PREFIX) else effect


class CommandJudge(Judge[_Seen]):
    """The exec rules of a policy, compiled once for each set of them that is in force."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        # Sorted, so that not even the wording of a verdict depends on the order of the file.
        self._rules = tuple(sorted(rules, key=lambda rule: (rule.text, rule.id)))
        # The rules that aren't always in force.
        self._limited = tuple(index for index, rule in enumerate(self._rules) if rule.is_limited)
        self._compiled: tuple[frozenset[int], dict[RuleList, Rules[int]]] | None = None

    @staticmethod
    def canonical(action: Action) -> _Seen:
        """Return an `Exec` action, parsed, or a call as a command."""
        if isinstance(action, McpCall):
            return _as_command(action)
        assert isinstance(action, Exec)
        return _Seen(action.command, action.cwd, read_line(action.command))

    def decide(self, seen: _Seen, mode: Mode, context: Context) -> Verdict:
        """Return the verdict on a command line: every command in it must be allowed."""
        judgement = self._judgement(seen, context)
        if mode == "contained" and judgement.decision is None:
            if seen.call is None or seen.call.by_agent:
                return _contained(judgement, context)
            why = f"{judgement.why}; what an MCP server does is outside of the sandbox"
            return Verdict("ask", f"{why}, so exec asks", remedy=ASK_FOR_A_RULE)
        return self._verdict(judgement, mode)

    def judgement(self, action: Exec, context: Context) -> Judgement[int]:
        """Return the exec judgement of the command line, before it becomes a verdict."""
        return self._judgement(self.canonical(action), context)

    def restrictions(self, action: Exec, context: Context) -> Verdict:
        """Return the verdict of deny and ask rules on the command line; allow if none matches,
        whatever the mode."""
        judgement = self.judgement(action, context)
        if judgement.decision in ("deny", "ask"):
            return self._verdict(judgement, "deny")
        return Verdict("allow", "no deny or ask rule is about it")

    def _judgement(self, seen: _Seen, context: Context) -> Judgement[int]:
        lists = self.in_force(context)[1]
        return judge(
            seen.text,
            seen.cwd,
            allow=lists["allow"] if seen.call is None else lists["call"],
            ask=lists["ask" if seen.call is None else "ask_call"],
            deny=lists["deny" if seen.call is None else "deny_call"],
            workspace_roots=(context.workspace,),
            line=seen.line,
        )

    def in_force(self, context: Context) -> tuple[Sequence[Rule], dict[RuleList, Rules[int]]]:
        """Return all rules, and those in force, compiled, by their index. They are compiled again
        only if the set in force has changed. `call`: the allow rules for calls of MCP servers."""
        idle = _NONE
        if self._limited:
            idle = frozenset([i for i in self._limited if not context.is_active(self._rules[i])])
        if self._compiled is None or self._compiled[0] != idle:
            self._compiled = (
                idle,
                self._compile([i for i in range(len(self._rules)) if i not in idle]),
            )
        return self._rules, self._compiled[1]

    def _compile(self, active: Sequence[int]) -> dict[RuleList, Rules[int]]:
        lists: dict[RuleList, list[tuple[int, object, tuple[object, ...]]]] = {
            "allow": [],
            "call": [],
            "ask": [],
            "deny": [],
            "ask_call": [],
            "deny_call": [],
        }
        for index in active:
            rule = self._rules[index]
            pattern = pattern_of(rule.effect, rule.pattern)
            # INVARIANT: a bare allow rule never matches, in any spelling.
            if rule.effect == "allow" and pattern.is_bare:
                continue
            exceptions = tuple(map(compile_pattern, rule.exceptions))
            lists[list_of(rule.effect, pattern)].append((index, pattern, exceptions))
            if rule.effect != "allow":
                of_calls: RuleList = "ask_call" if rule.effect == "ask" else "deny_call"
                lists[of_calls].append((index, _of_calls(pattern), exceptions))
        return {effect: Rules(entries) for effect, entries in lists.items()}  # type: ignore[arg-type]

    def _verdict(self, judgement: Judgement[int], mode: Mode) -> Verdict:
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
    def _why(judgement: Judgement[int], rules: Sequence[Rule]) -> str:
        """Return the judge's own words, followed by the rule's reason; empty: use the standard
        words."""
        if judgement.decision == "allow" or not judgement.why:
            return ""
        lead = min(rules, key=lambda rule: (rule.text, rule.id))
        return (
            f"{judgement.why}: {lead.why}"
            if lead.why and lead.why not in judgement.why
            else judgement.why
        )


def _contained(judgement: Judgement[int], context: Context) -> Verdict:
    """Return the verdict on a command that no rule is about: it runs if it can't change anything
    outside. INVARIANT: a command that can't be read whole is asked, because deny and ask rules
    haven't seen all of it."""
    if judgement.unread:
        return Verdict("ask", f"no rule may allow {judgement.unread}; exec asks", sticky=True)
    if not context.is_contained:
        why = f"{judgement.why}; {NOT_CONTAINED}, so exec asks"
        return Verdict("ask", why, sticky=judgement.never_allow)
    return CONTAINED
