"""Explain a command line: its commands, their origin, and where rules miss.

Decides nothing. `Trace` runs the judge of `exec_rules` and records which commands were found, how,
and which rules matched each; `exec_patterns` is asked word by word whether words are covered or
meant. Verdicts don't pay for this. INVARIANT: nothing here changes the judge's answer.
"""

import posixpath
from bisect import bisect_left
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any, NamedTuple

from msgspec.structs import replace

from supervisor.core.actions import Effect, Exec, McpCall
from supervisor.core.policy.category import (
    FAR,
    MOST_PARTS,
    NEAR,
    Reading,
    RuleLook,
    Topic,
    excepted,
    miss,
)
from supervisor.core.policy.command_rules import CommandJudge, RuleList, list_of, pattern_of
from supervisor.core.shell.exec_candidates import quote
from supervisor.core.shell.exec_commands import ExecCommand, ParsedLine
from supervisor.core.shell.exec_patterns import (
    ExecPattern,
    PatternWord,
    compile_pattern,
    covers,
    might_touch,
    touches,
)
from supervisor.core.shell.exec_places import outside_words
from supervisor.core.shell.exec_rules import Judgement, LineJudge, Rules
from supervisor.core.shell.exec_tables import basename, opaque_words
from supervisor.core.shell.exec_wrappers import Payload, Unwrapped
from supervisor.core.shell.shell import contexts
from supervisor.core.shell.shell_words import Word, from_bytes_text
from supervisor.core.verdicts import Context, Forced, Rule

MOST_CHARS = 120
# Bounds of the time that an explanation of a long line may take: it then tells less, and nothing
# else.
MOST_ALIKE = 40
MOST_STEPS_ALONE = 20_000
_BARE = RuleLook(False, "a bare allow rule allows nothing: name the commands", 1, "never")
UNKNOWN_NAME = miss("the name of the command holds an expansion: no rule covers it", FAR)
_NAME_ONLY = frozenset({0})


# -- the judge, followed step by step -------------------------------------------------------------


class JudgedCommand[K: Hashable]:
    """One judged command.

    `via`: how it was reached, outermost first. `here`: every folder that it may run in. `forms`:
    the words as allow rules compare them; none if the meaning of the name can't be told. `inside`:
    the positions of words that are judged as a payload. `unwrapped`: the command that it runs.
    `is_judged` is False for a `cd` that needs no rule. `needs_rule` is True for a wrapper that
    needs a rule besides its payload's. `covering`: the allow rules that cover it. `against`: the
    deny and ask rules that name it, each with the words that it names. `problems`: the parts of it
    that no rule may allow.
    """

    def __init__(self, words: tuple[Word, ...], via: tuple[str, ...], here: frozenset[str]) -> None:
        self.words, self.via, self.here = words, via, here
        self.forms: tuple[tuple[Word, ...], ...] = ()
        self.inside: frozenset[int] = frozenset()
        self.unwrapped: Unwrapped | None = None
        self.is_judged = False
        self.needs_rule = False
        self.covering: tuple[K, ...] = ()
        self.against: dict[K, str] = {}
        self.problems: list[str] = []


class Trace[K: Hashable](LineJudge[K]):
    """A judge that records its steps.

    `problems_of_line` and `against_line` concern the line and no single command; a bare rule has no
    words there.
    """

    def __init__(
        self,
        text: str,
        cwd: str,
        allow: Rules[K],
        ask: Rules[K],
        deny: Rules[K],
        roots: Sequence[str],
    ) -> None:
        super().__init__(text, cwd, allow, ask, deny, roots)
        self.steps: list[JudgedCommand[K]] = []
        self.problems_of_line: list[str] = []
        self.against_line: dict[K, str] = {}
        self._by_key: dict[K, list[int]] = {}
        self._at = -1
        self._via: tuple[str, ...] = ()
        self._contexts = contexts(text)

    def judge(self) -> Judgement[K]:
        """Return the judgement; afterwards the steps show how it was reached."""
        found = super().judge()
        # A bare rule applies to every command; other rules that are in no step match somewhere in a
        # text that can't be read.
        placed = {key for step in self.steps for key in step.against}
        said = self.against_line
        self.against_line = {
            key: said.get(key, "") for key in {**self.denied, **self.asked} if key not in placed
        }
        return found

    def by_key(self, key: K) -> Sequence[int]:
        """Return the steps that a rule covers or applies to."""
        if not self._by_key:
            for at, step in enumerate(self.steps):
                for one in (*step.covering, *step.against):
                    self._by_key.setdefault(one, []).append(at)
        return self._by_key.get(key, ())

    # -- what is found

    def visit(self, line: ParsedLine, depth: int) -> bool:
        for construct in line.script.constructs:
            self._blame(construct)
        return super().visit(line, depth)

    def note(self, command: ExecCommand) -> bool:
        places = self._contexts.get(tuple(word.text for word in command.words))
        via = (*self._via, places.pop(0)) if places else self._via
        self.steps.append(JudgedCommand(command.words, tuple(one for one in via if one), self.here))
        self._at = len(self.steps) - 1
        return super().note(command)

    def command(self, command: ExecCommand, *rest: Any) -> bool:
        outer, first = self._at, len(self.steps)
        is_allowed = super().command(command, *rest)
        self.steps[first].is_judged = True
        self._at = outer
        return is_allowed

    def payload(self, payload: Payload, *rest: Any) -> bool:
        name = basename(self.steps[self._at].words[0].text)
        label = f"run by `{name}`" if payload.text is None else f"in the text that `{name}` runs"
        with self._inside(label, payload.text):
            return super().payload(payload, *rest)

    def look_into(self, text: str, depth: int) -> None:
        name = self.steps[self._at].words[0].text if self._at >= 0 else ""
        label = (
            f"in the text of `{name}`"
            if name in ("eval", "trap")
            else "in a text that is fed to a program"
        )
        with self._inside(label, text):
            super().look_into(text, depth)

    @contextmanager
    def _inside(self, label: str, text: str | None) -> Iterator[None]:
        """Record, within a payload, how its commands are reached, and in which text they stand."""
        kept = self._at, self._via, self._contexts
        self._via = (*(self.steps[self._at].via if self._at >= 0 else ()), label)
        self._contexts = contexts(text) if text is not None else {}
        yield
        self._at, self._via, self._contexts = kept

    # -- what is said of it

    def problem(self, what: str) -> None:
        if what not in self.problems:
            self._blame(what)
        super().problem(what)

    def _blame(self, what: str) -> None:
        target = self._blamed()
        if what not in target:
            target.append(what)

    def _blamed(self) -> list[str]:
        """Return the list of problems, of a step or of the line, to which a new problem belongs."""
        return self.steps[self._at].problems if self._at >= 0 else self.problems_of_line

    def wrapped(
        self,
        command: ExecCommand,
        unwrapped: Unwrapped,
        line: ParsedLine,
        depth: int,
        tails: tuple[tuple[K, ExecPattern], ...],
    ) -> bool:
        step, first = self.steps[self._at], self._at
        step.unwrapped = unwrapped
        inside = unwrapped.inside
        rules = [
            *self.covering(command, inside),
            *(t for t in tails if covers(t[1], command.words, inside)),
        ]
        is_allowed = super().wrapped(command, unwrapped, line, depth, tails)
        # A rule that spells out wrapper and payload covers every command in it: they aren't asked
        # about alone.
        spelling = tuple(dict.fromkeys(key for key, pattern in rules if pattern.is_exact))
        if spelling:
            for one in self.steps[first:]:
                one.covering, one.needs_rule = one.covering or spelling, True
        return is_allowed

    def cover(self, command: ExecCommand, inside: frozenset[int], *rest: Any) -> bool:
        step = self.steps[self._at]
        seen = self.from_root(command)
        step.forms = (
            tuple(form.words for form in self.forms(seen, inside)) if seen is not None else ()
        )
        step.inside, step.needs_rule = inside, True
        kept, self.allowed = self.allowed, {}
        is_allowed = super().cover(command, inside, *rest)
        step.covering = tuple(self.allowed)
        self.allowed = {**kept, **self.allowed}
        return is_allowed

    def hold(
        self, command: ExecCommand, rules: Sequence[Any], found: dict[K, str], verb: str
    ) -> None:
        super().hold(command, rules, found, verb)
        # The judge asks each rule until it matches once; a trace lists every match.
        blamed, problems = self._blamed(), self.problems
        kept, self.problems = list(blamed), list(problems)
        again: dict[K, str] = {}
        super().hold(command, rules, again, verb)
        self.problems, blamed[:] = problems, kept
        against = self.steps[self._at].against if self._at >= 0 else self.against_line
        for key in again:
            against.setdefault(key, command.shown)


# -- read ------------------------------------------------------------------------------------------


def read(
    judge: CommandJudge, _: Sequence[Rule], action: Exec | McpCall, context: Context
) -> Reading:
    """Return how the judge read a command line."""
    one = ExecReading(judge, action, context)
    return Reading(one.facts, one.topics, one.look, one.forced, one.left_out)


class ExecReading:
    """A command line as it was understood, command by command; as one whole if it has no
    command."""

    def __init__(self, judge: CommandJudge, action: Exec | McpCall, context: Context) -> None:
        self.seen, self.context = judge.canonical(action), context
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
            Topic("line", _cut(self.seen.text))
        ]

    def _trace(self, lists: "Mapping[RuleList, Rules[int]]") -> Trace[int]:
        roots, seen = (self.context.workspace,), self.seen
        allow = lists["allow" if seen.call is None else "call"]
        watch = Trace(seen.text, seen.cwd, allow, lists["ask"], lists["deny"], roots)
        watch.line = seen.line
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

    def _alone(self, step: JudgedCommand[int]) -> Exec | McpCall | None:
        """Return the command as a line of its own, in the folder where it runs."""
        if self.seen.call is not None:
            return self.seen.call
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
        """Return what a rule says about one command."""
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
        """Return the facts about a rule that don't depend on a command."""
        pattern = pattern_of(rule.effect, rule.pattern)
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
        """Return the commands that a rule matches in a trace, each with the answer."""
        if rule.effect == "allow":
            for at in self._at(watch, key):
                yield at, f"covers `{self.topics[at].text}`"
            return
        if key in watch.against_line:
            words = watch.against_line[key]
            # A bare rule applies to every command. A match somewhere in a text that can't be read
            # is reported once.
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
        """Return the same for the rule alone, as if in force, with only these exceptions. Return
        nothing if that would take too long."""
        name = pattern.words[0].literal
        self.budget -= len(self.steps) + 1
        if self.budget < 0 or (
            rule.effect == "allow" and name is not None and basename(name) not in self.names
        ):
            return []
        entry = (0, pattern, tuple(map(compile_pattern, exceptions)))
        kinds: tuple[RuleList, ...] = ("allow", "call", "ask", "deny")
        kind = list_of(rule.effect, pattern)
        watch = self._trace({one: Rules([entry] if one == kind else []) for one in kinds})
        return list(self._said(watch, rule, 0))

    def _taking(self, rule: Rule, pattern: ExecPattern, at: int) -> str:
        """Return the exception that excludes a command from a rule; the first one, if only several
        together do."""
        for one in rule.exceptions:
            if at not in dict(self._tried(rule, pattern, (one,))):
                return one
        return rule.exceptions[0]

    # -- why a rule doesn't

    def _missing(self, effect: Effect, pattern: ExecPattern, at: int) -> RuleLook:
        """Return why a rule about the same program says nothing about a command; computed once for
        all similar commands."""
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
    """Facts about a rule: its pattern, its program (None: any), the commands that it matches (among
    the others, or alone, in force and without exceptions), and the answer for other programs."""

    pattern: ExecPattern
    name: str | None
    said: dict[int, RuleLook]
    other: RuleLook


# -- the word by which a rule misses a command ----------------------------------------------------


class View(NamedTuple):
    """A command as allow rules compare it, with positions of words that need care: see
    `exec_patterns.covers`."""

    words: tuple[Word, ...]
    inside: frozenset[int]
    opaque: frozenset[int]
    outside: frozenset[int]

    def is_covered(self, pattern: ExecPattern) -> bool:
        """Return whether a pattern covers it."""
        return covers(pattern, self.words, self.inside, opaque=self.opaque, outside=self.outside)

    def starts_covered(self, pattern: ExecPattern, count: int) -> bool:
        """Return whether its first words are covered, however it continues: if they aren't, longer
        starts aren't either."""
        has_tail = pattern.has_tail and count > len(pattern.words)
        stays = has_tail and pattern.stays_inside
        start = replace(pattern, words=pattern.words[:count], has_tail=has_tail, stays_inside=stays)
        inside = self.inside | _NAME_ONLY
        return covers(start, self.words[:count], inside, opaque=self.opaque, outside=self.outside)


def cover_miss(pattern: ExecPattern, view: View) -> RuleLook:
    """Return the first word by which an allow rule misses a command. `covers` decides; nothing is
    compared here."""
    if view.is_covered(pattern):
        return RuleLook(
            True, "would cover it too; another rule that does is asked first", stopped="spare"
        )
    words = view.words
    most = len(words) if pattern.has_tail else min(len(words), len(pattern.words))
    at = bisect_left(
        range(1, most + 1), True, key=lambda count: not view.starts_covered(pattern, count)
    )
    if at == 0:
        return _other_name(pattern.words[0], words[0])
    if at < most:
        wanted = pattern.words[at] if at < len(pattern.words) else None
        look = _other_word(wanted, words[at], at, is_opaque=at in view.opaque - view.inside)
        if wanted is not None and any(word.text == wanted.literal for word in words[at:]):
            look = look._replace(distance=min(look.distance, 2))
        # A rule for any program with these words (`* --version`) isn't near to any command.
        return look if pattern.words[0].literal is not None else look._replace(distance=FAR)
    if len(words) < len(pattern.words):
        distance = FAR if pattern.words[0].literal is None else 3 if len(words) == 1 else 2
        return miss(
            f"goes on with `{pattern.words[len(words)].raw}`; the command ends before", distance
        )
    if len(words) > len(pattern.words) and not pattern.has_tail:
        return miss(
            f"ends before `{words[len(pattern.words)].text}`; `exec({pattern.text} *)` would cover"
            " more words",
            1,
        )
    # The only remaining reason if the words fit one by one.
    return miss(f"`{words[0].text}` would run what it reads: no wildcard covers that", 1)


def other_program(wanted: PatternWord) -> RuleLook:
    return miss(f"is about another program, `{wanted.raw or wanted.literal}`", FAR)


def _other_name(wanted: PatternWord, name: Word) -> RuleLook:
    if not name.is_literal:
        return UNKNOWN_NAME
    if basename(name.text) == (wanted.literal or ""):
        return miss(
            f"`{name.text}` isn't the system's `{wanted.literal}`: only a rule that names that path"
            " covers it",
            2,
        )
    return other_program(wanted)


def _other_word(wanted: PatternWord | None, word: Word, at: int, *, is_opaque: bool) -> RuleLook:
    if wanted is not None and wanted.literal is not None:
        return miss(
            f"says `{wanted.literal}`; here word {at + 1} is `{word.text}`", 3 if at == 1 else 2
        )
    if is_opaque:
        return miss(f"no wildcard covers `{word.text}`: only a rule that spells it out", 1)
    if not word.is_literal:
        return miss(
            f"no wildcard covers `{word.text}`: what it becomes isn't known before it runs", 1
        )
    if wanted is None:
        return miss(f"`{word.text}` may lie outside of the workspace", 1)
    return miss(f"says `{wanted.raw}`; here word {at + 1} is `{word.text}`", 3 if at == 1 else 2)


def touch_miss(pattern: ExecPattern, words: tuple[Word, ...]) -> RuleLook:
    """Return why a deny or ask rule doesn't apply to a command."""
    name = replace(pattern, words=pattern.words[:1], has_tail=True, stays_inside=False)
    if not touches(name, words[:1]):
        return other_program(pattern.words[0])
    if might_touch(pattern, words):
        return miss(
            "isn't surely about it, but an expansion may make it so: then no rule may allow it", 1
        )
    missing = next(
        (one for one in pattern.words[1:] if not any(one.matches(word.text) for word in words[1:])),
        None,
    )
    if missing is not None:
        return miss(f"says `{missing.raw}`, which isn't among its words", 3)
    return miss("has these words in other places", 2)


# -- how words are shown --------------------------------------------------------------------------


def _forced(problems: Sequence[str]) -> list[Forced]:
    """Return what no rule may allow. If both readers of a line found the same problem, the one with
    a place is kept."""
    return [
        Forced("ask", f"no rule may allow {what}")
        for what in problems
        if not any(other.startswith(f"{what} (") for other in problems)
    ]


def _line(words: Sequence[Word]) -> str:
    """Write a command as a rule would spell it, with marks for words that aren't known before it
    runs."""
    return " ".join(quote(word.text) if word.is_literal else _written(word) for word in words)


def _written(word: Word) -> str:
    """Return a word as it stands in the line."""
    return from_bytes_text(word.raw) or word.text


def _listed(words: Sequence[Word]) -> str:
    return ", ".join(f"`{_cut(_written(word), 40)}`" for word in words[:3]) + (
        ", ..." if len(words) > 3 else ""
    )


def _cut(text: str, most: int = MOST_CHARS) -> str:
    text = text.replace("\n", " ")
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _relative(place: str, workspace: str) -> str | None:
    """Return a folder relative to the workspace's root; None if it isn't below it."""
    root = posixpath.normpath(workspace)
    if place == root:
        return "the workspace's root"
    return posixpath.relpath(place, root) if place.startswith(f"{root.rstrip('/')}/") else None


def _places(places: frozenset[str], workspace: str) -> str:
    """Return every folder that a command may run in, in words."""
    inside = sorted(
        folder for place in places if (folder := _relative(place, workspace)) is not None
    )
    outside = [] if len(inside) == len(places) else ["outside of the workspace"]
    return " or ".join([f"in {' or '.join(inside[:3])}", *outside] if inside else outside)
