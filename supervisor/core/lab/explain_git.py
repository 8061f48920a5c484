"""Explain a git operation: remote, refs, options, and where a rule differs.

Decides nothing (see `explain`). `git_rules` tells whether a rule fits; only the wording is made
here.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from supervisor.core.actions import Action, Git
from supervisor.core.lab.explanation import FAR, MOST_PARTS, RuleLook, Topic, excepted, miss
from supervisor.core.policy.git_refs import (
    REACHES,
    Ref,
    agrees,
    harmless,
    joined_tags,
    parse_command,
    refs_of,
    rough_actions,
    special_flags,
)
from supervisor.core.policy.git_rules import (
    GitJudge,
    GitPattern,
    compile_pattern,
    covers,
    options_agree,
    subjects,
    touches,
    why_unread,
    word_covers,
)
from supervisor.core.policy.rules import Policy
from supervisor.core.text.words import fits, is_star
from supervisor.core.verdicts import Context, Forced, Rule

_KINDS = {
    "mapping": "a mapping",
    "tag": "a tag",
    "ref": "not a branch",
    "unknown": "which branch it is isn't said",
}


class _Case(NamedTuple):
    """One ref of an operation, as the judge compares it with a rule."""

    action: Git
    ref: Ref | None
    flags: frozenset[str]


class GitReading:
    """A `Git` action as it was understood, ref by ref. No topic where it contradicts itself or a
    name is none."""

    def __init__(self, policy: Policy, action: Action, context: Context) -> None:
        assert isinstance(action, Git)
        judge = policy.judge_for("git")
        assert isinstance(judge, GitJudge)
        if action.command is not None and not action.operation and not action.flags:
            action = parse_command(action.command, action.cwd)
        self.facts: list[tuple[str, str]] = []
        self.forced: list[Forced] = []
        self.left_out = 0
        self.topics: list[Topic] = []
        # Stand-ins for an unreadable command, for deny rules.
        self.rough: list[_Case] = []
        self.cases: list[_Case] = []
        if not agrees(action):
            return
        self.unread = why_unread(action)
        if self.unread is not None:
            self.rough = _rough(action.command or "")
            forced = (Forced("ask", f"{self.unread}, so no rule may allow it"),)
            self.topics = [Topic("command", action.command or action.operation, forced=forced)]
            return
        self.facts = _facts(action, context)
        cases = _cases(action)
        self.cases = cases[:MOST_PARTS]
        self.left_out = len(cases) - len(self.cases)
        self.forced = [item for case in cases[MOST_PARTS:] for item in judge.forced(*case, context)]
        self.topics = [
            Topic(
                "ref" if case.ref else "operation",
                _name(case),
                _notes(case.ref),
                tuple(judge.forced(*case, context)),
                alone=_alone(case, at),
            )
            for at, case in enumerate(self.cases)
        ]

    def look(self, rule: Rule, at: int) -> RuleLook:
        """Return what a rule says of one ref, or of the unreadable command."""
        if not self.cases:
            return self._look_roughly(rule)
        pattern, case = compile_pattern(rule.pattern), self.cases[at]
        broad = rule.effect != "allow"
        if not (touches if broad else covers)(pattern, *case):
            return _touch_miss(pattern, case) if broad else _cover_miss(pattern, case)
        exception = _exception(rule, case)
        return (
            excepted(exception)
            if exception
            else RuleLook(True, f"`{rule.pattern}` covers `{self.topics[at].text}`")
        )

    def _look_roughly(self, rule: Rule) -> RuleLook:
        if rule.effect != "deny":
            return miss(f"{self.unread}: only deny rules are asked", FAR)
        for case in self.rough:
            if touches(compile_pattern(rule.pattern), *case) and not _exception(rule, case):
                return RuleLook(True, f"the text may hold `{_name(case)}`")
        return miss("nothing that the text may hold is what it is about", FAR)


def _rough(command: str) -> list[_Case]:
    """As the judge reads it: a word that is no ref hides no other."""
    found: list[_Case] = []
    for action in rough_actions(command):
        for refspecs in (*((refspec,) for refspec in action.refspecs), ()):
            found += _cases(msgspec.structs.replace(action, refspecs=refspecs))
    return found


def _cases(action: Git) -> list[_Case]:
    try:
        refs: list[Ref | None] = [*refs_of(action)] or [None]
    except ValueError:
        return []
    flags = special_flags(action)
    return [_Case(action, ref, flags) for ref in refs]


def _alone(case: _Case, at: int) -> Git:
    """One ref of an operation as an operation of its own; all the words of one that takes no
    refs."""
    if case.ref is None:
        return msgspec.structs.replace(case.action, command=None)
    refspecs = joined_tags(case.action.refspecs)[at : at + 1]
    return msgspec.structs.replace(case.action, refspecs=tuple(refspecs), command=None)


def _exception(rule: Rule, case: _Case) -> str | None:
    takes_out = touches if rule.effect == "allow" else covers
    return next((one for one in rule.exceptions if takes_out(compile_pattern(one), *case)), None)


def _name(case: _Case) -> str:
    words = [case.action.operation, case.action.remote or ""]
    words += case.action.refspecs if case.ref is None else [case.ref.text]
    return " ".join(word for word in words if word)


def _facts(action: Git, context: Context) -> list[tuple[str, str]]:
    facts = [("operation", action.operation)]
    if action.remote is not None:
        is_known = action.remote in context.remotes or action.operation not in REACHES | {"clone"}
        facts.append(("remote", action.remote if is_known else f"{action.remote} (not configured)"))
    if action.operation in REACHES:
        facts.append(("known remotes", ", ".join(sorted(context.remotes)) or "none"))
    special = special_flags(action)
    if special:
        facts.append(
            ("options", f"{', '.join(sorted(special))} (only a rule that says so covers it)")
        )
    return facts


def _notes(ref: Ref | None) -> tuple[str, ...]:
    if ref is None:
        return ()
    what = [_KINDS[ref.kind]] if ref.kind in _KINDS else []
    if ref.kind == "mapping":
        what = [f"moves `{ref.name}` at the remote to what `{ref.source}` is here"]
    return (*what, *(["forces"] if ref.force else []), *(["deletes"] if ref.delete else []))


# -- what differs ---------------------------------------------------------------------------------


def _cover_miss(pattern: GitPattern, case: _Case) -> RuleLook:
    """Return why an allow rule doesn't cover one ref: a word first, then the options."""
    if pattern.is_bare and not case.flags:
        return miss("a wildcard alone covers plain pushes and fetches of branches only", 2)
    words = RuleLook(True, "") if pattern.is_bare else _words_miss(pattern, case)
    if not words.fits or options_agree(pattern.options, case.flags, case.action.operation):
        return words
    wanted = pattern.options - harmless(case.action.operation)
    unsaid = sorted(case.flags - wanted)
    if unsaid:
        return miss(f"doesn't say {_options(unsaid)}, and only a rule that does covers it", 1)
    return miss(f"is only about {_options(sorted(wanted - case.flags))}, which isn't there", 2)


def _words_miss(pattern: GitPattern, case: _Case) -> RuleLook:
    """Return the first word that differs from the nearest of the names that an action has; a fit
    where none does."""
    words = pattern.words
    alike = [name for name in subjects(*case) if len(name) == len(words)]
    if not alike:
        return _other_form(words, case)
    name = min(
        alike, key=lambda one: [not word_covers(*pair) for pair in zip(words, one, strict=True)]
    )
    for at, (wanted, word) in enumerate(zip(words, name, strict=True)):
        if not word_covers(wanted, word):
            if at == 0 and len(words) > 1:
                return miss(f"is about `{wanted}`; here the operation is `{word}`", FAR)
            return miss(f"is about `{wanted}`; here it is `{word}`{_hint(wanted, word)}", 2)
    return RuleLook(True, "")


def _other_form(words: Sequence[str], case: _Case) -> RuleLook:
    operation = case.action.operation
    if len(words) == 1 and words[0] not in REACHES and operation == "push":
        return miss(f"is about plain pushes to the branch `{words[0]}`", 3)
    is_same = word_covers(words[0], operation)
    return miss(f"is about `{' '.join(words)}`; this is `{_name(case)}`", 3 if is_same else FAR)


def _hint(wanted: str, word: str) -> str:
    if "*" not in wanted:
        return ""
    if word in ("HEAD", "@", ":") or "*" in word:
        return ", which doesn't say what it moves: no wildcard covers it"
    if (":" in word) != (":" in wanted):
        return ", a mapping: no wildcard reaches into one"
    return (
        ", of another namespace"
        if word.startswith(("refs/", "tags/", "heads/", "remotes/"))
        else ""
    )


def _touch_miss(pattern: GitPattern, case: _Case) -> RuleLook:
    """Return why a deny or ask rule isn't about one ref."""
    words, operation = pattern.words, case.action.operation
    if touches(pattern._replace(options=frozenset()), *case):
        missing = sorted(pattern.options - harmless(operation))
        return miss(f"is only about {_options(missing)}, which isn't there", 2)
    if len(words) == 1 and operation == "push" and words[0] not in REACHES:
        return miss(f"is about the branch `{words[0]}`", 3)
    if len(words) > 1 and fits(words[0], operation):
        rest = " ".join(word for word in words[1:] if not is_star(word))
        return miss(f"is about `{rest}`; this is `{_name(case)}`", 3)
    return miss(f"is about `{' '.join(words)}`; here the operation is `{operation}`", FAR)


def _options(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
