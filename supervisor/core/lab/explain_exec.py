"""Explain a command line: its commands, their origin, and where rules miss.

Decides nothing (see `explain`). `exec_trace`, the judge itself, tells which commands were found and
which rules matched them; `exec_patterns` tells whether a word is covered. Only the wording is made
here.
"""

import posixpath
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from supervisor.core.actions import Action, Effect, Exec
from supervisor.core.lab.explain_exec_misses import (
    UNKNOWN_NAME,
    View,
    cover_miss,
    other_program,
    touch_miss,
)
from supervisor.core.lab.explanation import FAR, MOST_PARTS, NEAR, RuleLook, Topic, excepted, miss
from supervisor.core.policy.command_rules import CommandJudge
from supervisor.core.policy.rules import Policy
from supervisor.core.shell.exec_candidates import quote
from supervisor.core.shell.exec_patterns import ExecPattern, compile_pattern
from supervisor.core.shell.exec_places import outside_words
from supervisor.core.shell.exec_rules import Rules
from supervisor.core.shell.exec_tables import basename, opaque_words
from supervisor.core.shell.exec_trace import JudgedCommand, Trace
from supervisor.core.shell.shell_words import Word, from_bytes_text
from supervisor.core.verdicts import Context, Forced, Rule

MOST_CHARS = 120
# Bounds of the time that an explanation of a long line may take: it then tells less, and nothing
# else.
MOST_ALIKE = 40
MOST_STEPS_ALONE = 20_000
_BARE = RuleLook(False, "a bare allow rule allows nothing: name the commands", 1, "never")


class ExecReading:
    """A command line as it was understood, command by command; as one whole where no command is
    found in it."""

    def __init__(self, policy: Policy, action: Action, context: Context) -> None:
        assert isinstance(action, Exec)
        judge = policy.judge_for("exec")
        assert isinstance(judge, CommandJudge)
        self.action, self.context = action, context
        rules, lists = judge.in_force(context)
        self.keys = {id(rule): key for key, rule in enumerate(rules)}
        self.watch = self._trace(lists)
        self.steps = self.watch.steps[:MOST_PARTS]
        self.left_out = len(self.watch.steps) - len(self.steps)
        self.names = {basename(word.text) for step in self.steps for word in step.words}
        self.budget = MOST_STEPS_ALONE
        self.known: dict[int, _Known] = {}
        shapes: dict[tuple[object, ...], int] = {}
        self.alike = [
            shapes.setdefault(
                (step.words, step.forms, step.inside, step.here, step.needs_rule), len(shapes)
            )
            for step in self.steps
        ]
        self.views: dict[int, list[View]] = {}
        self.missing: dict[tuple[bool, ExecPattern, int], RuleLook] = {}
        self.facts = [
            (
                "in",
                _relative(self.watch.cwd, context.workspace)
                or f"{self.watch.cwd}, not of the workspace",
            )
        ]
        further = [problem for step in self.watch.steps[MOST_PARTS:] for problem in step.problems]
        self.forced = _forced([*self.watch.problems_of_line, *further])
        self.topics = [self._topic(step) for step in self.steps] or [
            Topic("line", _cut(action.command))
        ]

    def _trace(self, lists: "dict[Effect, Rules[int]]") -> Trace[int]:
        roots = (self.context.workspace,)
        watch = Trace(
            self.action.command, self.action.cwd, lists["allow"], lists["ask"], lists["deny"], roots
        )
        watch.judge()
        return watch

    def _topic(self, step: JudgedCommand[int]) -> Topic:
        is_wrapper = step.unwrapped is not None and not step.needs_rule
        forced = tuple(_forced(step.problems))
        is_free = not step.is_judged or is_wrapper
        return Topic(
            "command",
            _cut(_line(step.words)),
            tuple(self._notes(step)),
            forced,
            is_free,
            self._alone(step),
        )

    def _alone(self, step: JudgedCommand[int]) -> Exec | None:
        """Return the command as a line of its own, in the folder where it runs."""
        here = next(iter(step.here)) if len(step.here) == 1 else self.watch.cwd
        return Exec(command=_line(step.words), cwd=here) if step.is_judged else None

    def _notes(self, step: JudgedCommand[int]) -> Iterator[str]:
        for label, times in groupby(step.via):
            count = len(list(times))
            yield label if count == 1 else f"{label}, {count} times over"
        if step.here != {self.watch.cwd}:
            yield _places(step.here, self.context.workspace)
        if not step.is_judged:
            yield "needs no rule: it stays inside of the workspace"
        elif step.words[0].text == "cd":
            yield "needs a rule: that it stays inside of the workspace can't be told"
        elif step.unwrapped is not None:
            yield (
                "runs another command"
                if step.needs_rule
                else "needs no rule: what it runs is judged"
            )
        opaque = [
            step.words[at] for at in sorted(opaque_words(step.words)) if at not in step.inside
        ]
        if opaque and step.needs_rule and not step.covering:
            yield f"no wildcard covers {_listed(opaque)}"
        unknown = [word for word in step.words if not word.is_literal]
        if unknown:
            yield f"not known before it runs: {_listed(unknown)}"

    # -- what a rule says

    def look(self, rule: Rule, at: int) -> RuleLook:
        """Return what a rule says of one command."""
        known = self.known.get(id(rule))
        if known is None:
            known = self.known[id(rule)] = self._known(rule)
        if known.pattern.is_bare and rule.effect == "allow":
            return _BARE
        if at in known.said:
            return known.said[at]
        if at >= len(self.steps):
            return miss("no command is found that it could be about", FAR)
        name = self.steps[at].words[0]
        if known.name is not None and known.name != basename(name.text):
            return known.other if name.is_literal else UNKNOWN_NAME
        return self._missing(rule.effect, known.pattern, at)

    def _known(self, rule: Rule) -> "_Known":
        """Return the facts of a rule that need no command."""
        pattern = compile_pattern(rule.pattern)
        said = {
            at: RuleLook(True, text)
            for at, text in self._said(self.watch, rule, self.keys[id(rule)])
        }
        if not self.context.is_active(rule):
            said |= {
                at: RuleLook(True, text) for at, text in self._tried(rule, pattern, rule.exceptions)
            }
        for at, _ in self._tried(rule, pattern, ()) if rule.exceptions else ():
            if at not in said:
                said[at] = excepted(self._taking(rule, pattern, at))
        name = pattern.words[0].literal
        return _Known(
            pattern, None if name is None else basename(name), said, other_program(pattern.words[0])
        )

    def _said(self, watch: Trace[int], rule: Rule, key: int) -> Iterator[tuple[int, str]]:
        """Return the commands that a rule matches, by a trace, each with the answer."""
        if rule.effect == "allow":
            for at in self._at(watch, key):
                yield at, f"covers `{self.topics[at].text}`"
            return
        if key in watch.against_line:
            words = watch.against_line[key]
            # A bare rule is about every command. What stands somewhere in a text that can't be read
            # is said once.
            for at in range(len(self.topics) if not words else 1):
                yield (
                    at,
                    f"is about `{words}`, which the text may hold"
                    if words
                    else "is about every command",
                )
        for at in self._at(watch, key):
            yield at, f"is about `{watch.steps[at].against[key]}`"

    def _at(self, watch: Trace[int], key: int) -> Iterator[int]:
        return (at for at in watch.by_key(key) if at < len(self.steps))

    def _tried(
        self, rule: Rule, pattern: ExecPattern, exceptions: tuple[str, ...]
    ) -> list[tuple[int, str]]:
        """Return the same for the rule alone, as if in force, with only these exceptions. Nothing
        where that would take too long."""
        name = pattern.words[0].literal
        self.budget -= len(self.steps) + 1
        if self.budget < 0 or (
            rule.effect == "allow" and name is not None and basename(name) not in self.names
        ):
            return []
        entry = (0, pattern, tuple(map(compile_pattern, exceptions)))
        effects: tuple[Effect, ...] = ("allow", "ask", "deny")
        watch = self._trace({one: Rules([entry] if one == rule.effect else []) for one in effects})
        return list(self._said(watch, rule, 0))

    def _taking(self, rule: Rule, pattern: ExecPattern, at: int) -> str:
        """Return the exception that takes a command out of a rule; the first, where only several
        together do."""
        for one in rule.exceptions:
            if at not in dict(self._tried(rule, pattern, (one,))):
                return one
        return rule.exceptions[0]

    # -- why a rule doesn't

    def _missing(self, effect: Effect, pattern: ExecPattern, at: int) -> RuleLook:
        """Return why a rule about the same program says nothing of a command; found once for all
        commands that are alike."""
        alike = self.alike[at]
        if alike >= MOST_ALIKE:
            return miss("doesn't match it", NEAR)
        key = (effect != "allow", pattern, alike)
        found = self.missing.get(key)
        if found is None:
            step = self.steps[at]
            found = (
                touch_miss(pattern, step.words)
                if effect != "allow"
                else self._cover_miss(pattern, step, alike)
            )
            self.missing[key] = found
        return found

    def _cover_miss(self, pattern: ExecPattern, step: JudgedCommand[int], alike: int) -> RuleLook:
        if not step.needs_rule:
            return miss(f"`{step.words[0].text}` needs no rule here", 3)
        if not step.forms:
            return miss(
                f"where `{step.words[0].text}` lies can't be told, so no rule covers it", FAR - 1
            )
        if alike not in self.views:
            roots = self.watch.roots
            self.views[alike] = [
                View(form, step.inside, opaque_words(form), outside_words(form, step.here, roots))
                for form in step.forms
            ]
        return min(
            (cover_miss(pattern, view) for view in self.views[alike]),
            key=lambda look: (not look.fits, look.distance),
        )


class _Known(NamedTuple):
    """A rule's pattern, its program (None: any), the commands that it matches (among the others, or
    alone, in force and without exceptions), and the answer for other programs."""

    pattern: ExecPattern
    name: str | None
    said: dict[int, RuleLook]
    other: RuleLook


# -- how words are shown --------------------------------------------------------------------------


def _forced(problems: Sequence[str]) -> list[Forced]:
    """Return what no rule may allow. Both readers of a line may have met the same; the one with a
    place is kept."""
    return [
        Forced("ask", f"no rule may allow {what}")
        for what in problems
        if not any(other.startswith(f"{what} (") for other in problems)
    ]


def _line(words: Sequence[Word]) -> str:
    """Write a command as a rule would spell it, with marks for what isn't known before it runs."""
    return " ".join(quote(word.text) if word.is_literal else _written(word) for word in words)


def _written(word: Word) -> str:
    """A word as it stands in the line."""
    return from_bytes_text(word.raw) or word.text


def _listed(words: Sequence[Word]) -> str:
    return ", ".join(f"`{_cut(_written(word), 40)}`" for word in words[:3]) + (
        ", ..." if len(words) > 3 else ""
    )


def _cut(text: str, most: int = MOST_CHARS) -> str:
    text = text.replace("\n", " ")
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _relative(place: str, workspace: str) -> str | None:
    """A folder as it is from the workspace's root; None where it isn't below."""
    root = posixpath.normpath(workspace)
    if place == root:
        return "the workspace's root"
    return posixpath.relpath(place, root) if place.startswith(f"{root.rstrip('/')}/") else None


def _places(places: frozenset[str], workspace: str) -> str:
    """Every folder that a command may run in, in words."""
    inside = sorted(
        folder for place in places if (folder := _relative(place, workspace)) is not None
    )
    outside = [] if len(inside) == len(places) else ["outside of the workspace"]
    return " or ".join([f"in {' or '.join(inside[:3])}", *outside] if inside else outside)
