"""How a command line is explained: every command that was found in it, how it was reached, and the word by which a rule misses it.

Decides nothing (see `explain`). What was found and which rules spoke of it is told by `exec_trace`, the judge itself; whether a word is
covered is asked of `exec_patterns`. Only the words are made here.
"""

import posixpath
from collections.abc import Iterator, Sequence
from itertools import groupby

from msgspec.structs import replace

from supervisor.core.actions import Action, Effect, Exec
from supervisor.core.command_rules import CommandJudge
from supervisor.core.exec_candidates import quote
from supervisor.core.exec_patterns import ExecPattern, PatternWord, compile_pattern, covers, might_touch, touches
from supervisor.core.exec_places import outside_words
from supervisor.core.exec_rules import Rules
from supervisor.core.exec_tables import basename, opaque_words, runs_input
from supervisor.core.exec_trace import Step, Trace
from supervisor.core.explain import FAR, Look, Topic, excepted, miss
from supervisor.core.rules import Policy
from supervisor.core.shell_words import Word, from_bytes_text
from supervisor.core.verdicts import Context, Forced, Rule

MOST_CHARS = 120
_SPARE = "would cover it too; another rule that does is asked first"
_NAME_ONLY = frozenset({0})


class Reading:
    """A command line as it was understood, command by command; as one whole where no command is found in it."""

    def __init__(self, policy: Policy, action: Action, context: Context) -> None:
        assert isinstance(action, Exec)
        judge = policy.judge_for("exec")
        assert isinstance(judge, CommandJudge)
        self.action, self.context = action, context
        rules, lists = judge.in_force(context)
        self.keys = {id(rule): key for key, rule in enumerate(rules)}
        self.watch = self._trace(lists)
        self.steps = self.watch.steps
        self.names = {basename(word.text) for step in self.steps for word in step.words}
        self.alone: dict[tuple[int, tuple[str, ...]], Trace[int]] = {}
        self.facts = [("in", _relative(self.watch.cwd, context.workspace) or f"{self.watch.cwd}, not of the workspace")]
        self.forced = _forced(self.watch.problems_of_line)
        self.topics = [self._topic(step) for step in self.steps] or [Topic("line", _cut(action.command))]

    def _trace(self, lists: "dict[Effect, Rules[int]]") -> Trace[int]:
        roots = (self.context.workspace,)
        watch = Trace(self.action.command, self.action.cwd, lists["allow"], lists["ask"], lists["deny"], roots)
        watch.judge()
        return watch

    def _topic(self, step: Step[int]) -> Topic:
        is_wrapper = step.unwrapped is not None and not step.needs_rule
        forced = tuple(_forced(step.problems))
        is_free = not step.is_judged or is_wrapper
        return Topic("command", _cut(_line(step.words)), tuple(self._notes(step)), forced, is_free, self._alone(step))

    def _alone(self, step: Step[int]) -> Exec | None:
        """The command as a line of its own, in the folder where it runs."""
        here = next(iter(step.here)) if len(step.here) == 1 else self.watch.cwd
        return Exec(command=_line(step.words), cwd=here) if step.is_judged else None

    def _notes(self, step: Step[int]) -> Iterator[str]:
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
            yield "runs another command" if step.needs_rule else "needs no rule: what it runs is judged"
        opaque = [step.words[at] for at in sorted(opaque_words(step.words)) if at not in step.inside]
        if opaque and step.needs_rule and not step.covering:
            yield f"no wildcard covers {_listed(opaque)}"
        unknown = [word for word in step.words if not word.is_literal]
        if unknown:
            yield f"not known before it runs: {_listed(unknown)}"

    # -- what a rule says

    def look(self, rule: Rule, at: int) -> Look:
        """What a rule says of one command."""
        pattern = compile_pattern(rule.pattern)
        if rule.effect == "allow" and pattern.is_bare:
            return Look(False, "a bare allow rule allows nothing: name the commands", 1, "never")
        said = self._said(self.watch, rule, self.keys[id(rule)], at)
        if said:
            return Look(True, said)
        if self._may_fit(rule, pattern):
            if self._fits_alone(rule, rule.exceptions, at):
                is_spare = self.context.is_active(rule)
                return Look(True, _SPARE if is_spare else "fits", stopped="spare" if is_spare else None)
            if rule.exceptions and self._fits_alone(rule, (), at):
                taking = (one for one in rule.exceptions if not self._fits_alone(rule, (one,), at))
                return excepted(next(taking, rule.exceptions[0]))
        if at >= len(self.steps):
            return miss("no command is found that it could be about", FAR)
        return self._miss(rule.effect, pattern, self.steps[at])

    def _said(self, watch: Trace[int], rule: Rule, key: int, at: int) -> str:
        """What a trace tells of a rule and a command; empty where the rule doesn't speak of it."""
        if rule.effect == "allow":
            covering = watch.steps[at].covering if at < len(watch.steps) else ()
            return f"covers `{self.topics[at].text}`" if key in covering else ""
        against = watch.steps[at].against if at < len(watch.steps) else {}
        if key in against:
            return f"is about `{against[key]}`"
        words = watch.against_line.get(key)
        if words == "":
            return "is about every command"
        # What stands somewhere in a text that can't be read is said once.
        return f"is about `{words}`, which the text may hold" if words is not None and at == 0 else ""

    def _may_fit(self, rule: Rule, pattern: ExecPattern) -> bool:
        """Whether a rule that says nothing among the others has to be tried alone: a matter of time, not of the answer."""
        if rule.effect != "allow" and self.context.is_active(rule) and not rule.exceptions:
            return False
        name = pattern.words[0].literal
        return rule.effect != "allow" or name is None or basename(name) in self.names

    def _fits_alone(self, rule: Rule, exceptions: tuple[str, ...], at: int) -> bool:
        key = (self.keys[id(rule)], exceptions)
        if key not in self.alone:
            entry = (0, compile_pattern(rule.pattern), tuple(map(compile_pattern, exceptions)))
            effects: tuple[Effect, ...] = ("allow", "ask", "deny")
            self.alone[key] = self._trace({one: Rules([entry] if one == rule.effect else []) for one in effects})
        return bool(self._said(self.alone[key], rule, 0, at))

    # -- why a rule doesn't

    def _miss(self, effect: Effect, pattern: ExecPattern, step: Step[int]) -> Look:
        if effect != "allow":
            return _touch_miss(pattern, step.words)
        if not step.needs_rule:
            if pattern.words[0].literal != basename(step.words[0].text):
                return _other_program(pattern.words[0], step.words[0])
            return miss(f"`{step.words[0].text}` needs no rule here", 3)
        if not step.forms:
            return miss(f"where `{step.words[0].text}` lies can't be told, so no rule covers it", FAR - 1)
        outside = [outside_words(form, step.here, self.watch.roots) for form in step.forms]
        looks = [_cover_miss(pattern, *pair, step.inside) for pair in zip(step.forms, outside, strict=True)]
        return min(looks, key=lambda look: look.distance)


def _cover_miss(pattern: ExecPattern, words: tuple[Word, ...], outside: frozenset[int], inside: frozenset[int]) -> Look:
    """The first word by which an allow rule misses a command. `covers` is asked; nothing is compared here."""
    opaque = opaque_words(words)

    def fits(count: int) -> bool:
        """Whether the first words are covered, however the command goes on."""
        cut = pattern.words[:count]
        has_tail = pattern.has_tail and count > len(pattern.words)
        part = replace(pattern, words=cut, has_tail=has_tail, stays_inside=has_tail and pattern.stays_inside)
        return covers(part, words[:count], inside | _NAME_ONLY, opaque=opaque, outside=outside)

    if not fits(1):
        return _other_program(pattern.words[0], words[0])
    most = len(words) if pattern.has_tail else min(len(words), len(pattern.words))
    at = next((count for count in range(2, most + 1) if not fits(count)), 0) - 1
    if at > 0:
        wanted = pattern.words[at] if at < len(pattern.words) else None
        look = _other_word(wanted, words[at], at, is_opaque=at in opaque - inside)
        if wanted is not None and any(word.text == wanted.literal for word in words[at:]):
            look = look._replace(distance=min(look.distance, 2))
        # A rule about any program that is used so (`* --version`) comes near to none.
        return look if pattern.words[0].literal is not None else look._replace(distance=FAR)
    if len(words) < len(pattern.words):
        distance = FAR if pattern.words[0].literal is None else 3 if len(words) == 1 else 2
        return miss(f"goes on with `{pattern.words[len(words)].raw}`; the command ends before", distance)
    if len(words) > len(pattern.words) and not pattern.has_tail:
        return miss(
            f"ends before `{words[len(pattern.words)].text}`; `exec({pattern.text} *)` would cover more words", 1
        )
    if runs_input(words):
        return miss(f"`{words[0].text}` would run what it reads: no wildcard covers that", 1)
    return miss("doesn't cover it as it stands here", 2)


def _other_program(wanted: PatternWord, name: Word) -> Look:
    if not name.is_literal:
        return miss("the name of the command holds an expansion: no rule covers it", FAR)
    if basename(name.text) == (wanted.literal or ""):
        return miss(
            f"`{name.text}` isn't the system's `{wanted.literal}`: only a rule that names that path covers it", 2
        )
    return miss(f"is about another program, `{wanted.raw or wanted.literal}`", FAR)


def _other_word(wanted: PatternWord | None, word: Word, at: int, *, is_opaque: bool) -> Look:
    if wanted is not None and wanted.literal is not None:
        return miss(f"says `{wanted.literal}`; here word {at + 1} is `{word.text}`", 3 if at == 1 else 2)
    if is_opaque:
        return miss(f"no wildcard covers `{word.text}`: only a rule that spells it out", 1)
    if not word.is_literal:
        return miss(f"no wildcard covers `{word.text}`: what it becomes isn't known before it runs", 1)
    if wanted is None:
        return miss(f"`{word.text}` may lie outside of the workspace", 1)
    return miss(f"says `{wanted.raw}`; here word {at + 1} is `{word.text}`", 3 if at == 1 else 2)


def _touch_miss(pattern: ExecPattern, words: tuple[Word, ...]) -> Look:
    """Why a deny or ask rule isn't about a command."""
    name = replace(pattern, words=pattern.words[:1], has_tail=True, stays_inside=False)
    if not touches(name, words[:1]):
        wanted = pattern.words[0]
        return miss(f"is about another program, `{wanted.raw or wanted.literal}`", FAR)
    if might_touch(pattern, words):
        return miss("isn't surely about it, but an expansion may make it so: then no rule may allow it", 1)
    missing = next((one for one in pattern.words[1:] if not any(one.matches(word.text) for word in words[1:])), None)
    if missing is not None:
        return miss(f"says `{missing.raw}`, which isn't among its words", 3)
    return miss("has these words in other places", 2)


# -- how words are shown -----------------------------------------------------------------------------------------------------


def _forced(problems: Sequence[str]) -> list[Forced]:
    """What no rule may allow. Both readers of a line may have met the same; the one that tells where is kept."""
    return [
        Forced("ask", f"no rule may allow {what}")
        for what in problems
        if not any(other.startswith(f"{what} (") for other in problems)
    ]


def _line(words: Sequence[Word]) -> str:
    """A command as a rule would spell it, but for what isn't known before it runs."""
    return " ".join(quote(word.text) if word.is_literal else _written(word) for word in words)


def _written(word: Word) -> str:
    """A word as it stands in the line."""
    return from_bytes_text(word.raw) or word.text


def _listed(words: Sequence[Word]) -> str:
    return ", ".join(f"`{_cut(_written(word), 40)}`" for word in words[:3]) + (", ..." if len(words) > 3 else "")


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
    inside = sorted(folder for place in places if (folder := _relative(place, workspace)) is not None)
    outside = [] if len(inside) == len(places) else ["outside of the workspace"]
    return " or ".join([f"in {' or '.join(inside[:3])}", *outside] if inside else outside)
