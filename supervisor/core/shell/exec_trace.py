"""Trace of a command line's judgement, step by step.

Runs the judge of `exec_rules` itself and writes down which commands were found, how, and which
rules matched each. Only an explanation needs this, and a verdict must not pay for it. INVARIANT:
nothing here changes what the judge answers.
"""

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from supervisor.core.shell.exec_commands import ExecCommand, ParsedLine
from supervisor.core.shell.exec_patterns import ExecPattern, covers
from supervisor.core.shell.exec_rules import Judgement, LineJudge, Rules
from supervisor.core.shell.exec_tables import basename
from supervisor.core.shell.exec_wrappers import Payload, Unwrapped
from supervisor.core.shell.shell import contexts
from supervisor.core.shell.shell_words import Word


class JudgedCommand[K: Hashable]:
    """One judged command.

    `via`: how it was reached, outermost first. `here`: every folder that it may run in. `forms`:
    the words as allow rules compare them, none where they can't tell what the name means;
    `inside`: the positions of words that are judged as a payload. `unwrapped`: what it runs in
    turn. `is_judged` is False for a `cd` that needs no rule; `needs_rule` for a wrapper that is
    no more than its payload too. `covering`: the allow rules that cover it; `against`: the deny
    and ask rules that name it, each with the words that it names. `problems`: what of it no rule
    may allow.
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
    """A judge that keeps its steps.

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
        """Return the judgement; afterwards the steps tell how it came to be."""
        found = super().judge()
        # A bare rule speaks of every command; others that are in no step match somewhere in a text
        # that can't be read.
        placed = {key for step in self.steps for key in step.against}
        said = self.against_line
        self.against_line = {
            key: said.get(key, "") for key in {**self.denied, **self.asked} if key not in placed
        }
        return found

    def by_key(self, key: K) -> Sequence[int]:
        """Return the steps that a rule covers or is about."""
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
        """Within a payload: remember how its commands are reached, and in which text they stand."""
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
        """Return the list of problems, of a step or the line, that a new problem belongs to."""
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
