"""Judge a command line by exec patterns: allow, ask, deny or nothing.

Judges one line under three lists of patterns. It must never allow a line unless a rule of its own
covers every command in it, at any depth.
"""

import re
from collections.abc import Hashable, Sequence
from typing import Literal

import msgspec

from supervisor.core.shell.exec_commands import ExecCommand, ParsedLine, show
from supervisor.core.shell.exec_index import IndexEntry, Rules
from supervisor.core.shell.exec_matching import LineRules
from supervisor.core.shell.exec_patterns import ExecPattern, compile_pattern, covers
from supervisor.core.shell.exec_places import MOVES, Places, within
from supervisor.core.shell.exec_tables import is_shell_state, program_name, runs_input
from supervisor.core.shell.exec_wrappers import Payload, Unwrapped
from supervisor.core.shell.shell import parse
from supervisor.core.shell.shell_words import Word

__all__ = [
    "ExecPattern",
    "Judgement",
    "Rules",
    "compile_pattern",
    "judge",
    "show",
    "spelled_commands",
]

MAX_DEPTH = 8
MAX_JUDGED = 2_000
MAX_NESTED_CHARS = 10_000
MAX_NESTED_WORDS = 6_000
_NOT_POSIX = re.compile(
    r"\$['\"]|&>|<<<|\|&|\{[^{}]*(?:,|\.\.)|>&\s*[^0-9\s-]|\[\[|\bfunction\b|\bselect\b"
)
_ROUGH_MARKS = re.compile(r"[\s'\"\\;&|()<>{}`]")

type Decision = Literal["allow", "ask", "deny"]


class Judgement[K: Hashable](msgspec.Struct, frozen=True, gc=False):
    """Judgement of a line. `decision` is None if no rule decides: the category's mode does then.
    `keys`: the deciding rules.

    `never_allow`: the line holds something that no rule may allow, named in `why`. `commands`:
    every command found, as text. `open`: if only rules are missing, the uncovered commands, with
    their names as a rule would have to spell them. `unread`: why the commands may not be all that
    would run; empty if they are.
    """

    decision: Decision | None
    keys: tuple[K, ...] = ()
    why: str = ""
    never_allow: bool = False
    commands: tuple[str, ...] = ()
    open: tuple[tuple[Word, ...], ...] = ()
    unread: str = ""


def _rules[K: Hashable](entries: "Sequence[IndexEntry[K]] | Rules[K]") -> Rules[K]:
    return entries if isinstance(entries, Rules) else Rules(entries)


def judge[K: Hashable](
    text: str,
    cwd: str,
    *,
    allow: "Sequence[IndexEntry[K]] | Rules[K]",
    ask: "Sequence[IndexEntry[K]] | Rules[K]",
    deny: "Sequence[IndexEntry[K]] | Rules[K]",
    workspace_roots: Sequence[str],
    line: ParsedLine | None = None,
) -> Judgement[K]:
    """Judge the command line `text`, run in `cwd` (absolute, or relative to the first root).

    An entry is (key, pattern) or (key, pattern, exceptions). Pass `Rules` if the same lists judge
    more than one line, and `line` if `text` is parsed already. Never raises. The strictest decision
    wins: deny, ask, allow.
    """
    try:
        judge = LineJudge(text, cwd, _rules(allow), _rules(ask), _rules(deny), workspace_roots)
        judge.line = line
        return judge.judge()
    except Exception as error:  # law 3: an exception is never an allow
        return Judgement(
            "deny", why=f"the command can't be judged ({type(error).__name__})", never_allow=True
        )


def spelled_commands(text: str) -> list[tuple[str, ...]]:
    """Return the words of each command that a line would run, including commands behind wrappers
    and in texts that shells run. Commands with expansions are left out."""
    none: Rules[int] = Rules([])
    line = LineJudge(text, ".", none, none, none, ())
    line.judge()
    return [
        tuple([word.text for word in command.words])
        for command in line.found
        if command.is_spelled_out
    ]


class LineJudge[K: Hashable](LineRules[K]):
    """Judges one line under three lists of rules. Use it once."""

    # The text, if the caller has parsed it already.
    line: ParsedLine | None = None
    # Above 0 if every later word was already looked at as the start of a command.
    guessed = 0
    nested_chars = nested_words = 0

    def __init__(
        self,
        text: str,
        cwd: str,
        allow: Rules[K],
        ask: Rules[K],
        deny: Rules[K],
        roots: Sequence[str],
    ) -> None:
        super().__init__(cwd, allow, ask, deny, roots)
        self.text = text
        self.unread = ""

    def judge(self) -> Judgement[K]:
        if self.roots and self.cwd != self.roots[0] and not within(self.cwd, self.roots):
            self.problem("a working directory outside the workspace")
        self.visit(self.line or ParsedLine(parse(self.text)), 0)
        if self.deny.bare or self.ask.bare:
            self.bare()
        shown = tuple([command.shown for command in self.found])
        if self.denied:
            return self.verdict("deny", self.denied, shown)
        if self.asked:
            return self.verdict("ask", self.asked, shown)
        if self.problems:
            why = f"no rule may allow {self.problems[0]}"
            return Judgement(None, why=why, never_allow=True, commands=shown, unread=self.unread)
        if self.open or not self.found:
            why = (
                f"no rule allows `{next(iter(self.open.values()))}`"
                if self.open
                else "there is no command"
            )
            return Judgement(None, why=why, commands=shown, open=tuple(self.open))
        return Judgement("allow", tuple(self.allowed), "every command is allowed", commands=shown)

    def verdict(
        self, decision: Decision, keys: dict[K, str], shown: tuple[str, ...]
    ) -> Judgement[K]:
        return Judgement(
            decision, tuple(keys), next(iter(keys.values())), bool(self.problems), shown
        )

    # -- finding every command

    def visit(self, line: ParsedLine, depth: int) -> bool:
        """Judge every command of a text; return whether each is allowed."""
        script = line.script
        self.problems.extend(script.constructs)
        self.unread = self.unread or script.unread
        for text in script.deny_texts:
            self.scan(text)
        is_allowed = True
        if line.may_move:
            is_allowed = self.visit_moving(line, depth)
        else:
            for command in line.commands:
                is_allowed = self.command(command, line, depth, ()) and is_allowed
        if script.bodies and any(runs_input(command.words) for command in line.commands):
            for body in script.bodies:
                self.look_into(body, depth)
        return is_allowed

    def visit_moving(self, line: ParsedLine, depth: int) -> bool:
        """Judge the commands of a text that may change the folder, each in the folder where it
        runs."""
        outside = self.here
        places = Places(self.here, self.roots)
        is_allowed = True
        for place, command in zip(line.script.commands, line.commands, strict=True):
            if places.is_free(place):
                self.note(command)
                self.restrict(command)
                continue
            places.before(place)
            self.here = frozenset(places.sure)
            if command.name not in MOVES and not all(within(one, self.roots) for one in self.here):
                self.problem("a command in a folder that may lie outside of the workspace")
            is_allowed = self.command(command, line, depth, ()) and is_allowed
        self.here = outside
        return is_allowed

    def look_into(self, text: str, depth: int) -> None:
        """Apply deny and ask rules to a text that a shell would run. The caller has already
        recorded that nothing allows it."""
        if depth < MAX_DEPTH and self.has_budget(text):
            self.visit(ParsedLine(parse(text)), depth + 1)
        else:
            self.unread = self.unread or "too much text behind shells to judge"
            self.scan(text)

    def has_budget(self, text: str) -> bool:
        self.nested_chars += len(text)
        return self.nested_chars <= MAX_NESTED_CHARS

    def note(self, command: ExecCommand) -> bool:
        self.found.append(command)
        if len(self.found) > MAX_JUDGED:
            self.limit("too many commands to judge")
            return False
        return True

    def limit(self, what: str) -> None:
        """Record a limit: what lies beyond it wasn't read."""
        self.problem(what)
        self.unread = self.unread or what

    def command(
        self,
        command: ExecCommand,
        line: ParsedLine,
        depth: int,
        tails: tuple[tuple[K, ExecPattern], ...],
    ) -> bool:
        """Judge one command and what it runs; return whether it is allowed. `tails`: the remaining
        words of rules for a wrapper."""
        words = command.words
        if not self.note(command):
            self.scan(" ".join(word.text for word in words))
            return False
        self.restrict(command)
        if line.script.has_input or not command.is_program:
            self.check_name(command, line, depth)
        unwrapped = command.unwrapped
        if unwrapped is None:
            return self.cover(command, frozenset(), tails)
        self.nested_words += len(words) if depth else 0
        is_deep = depth >= MAX_DEPTH
        if is_deep or self.nested_words > MAX_NESTED_WORDS:
            self.limit(
                f"more than {MAX_DEPTH} levels of wrappers"
                if is_deep
                else "too many words behind wrappers"
            )
            if self.guessed == 0:
                self.restrict_anywhere([words[1:]])
            if any(_ROUGH_MARKS.search(word.text) for word in words):
                self.scan(" ".join(word.text for word in words))
            return False
        return self.wrapped(command, unwrapped, line, depth, tails)

    def check_name(self, command: ExecCommand, line: ParsedLine, depth: int) -> None:
        words, name = command.words, command.words[0]
        if not name.is_literal:
            self.problem(f"an expansion in the name of a command (`{name.text[:40]}`)")
        elif is_shell_state(name.text) or (command.name == "exec" and len(words) == 1):
            self.problem(f"`{name.text}`")
            if name.text in ("eval", "trap") and len(words) > 1:
                self.look_into(" ".join(word.text for word in words[1:]), depth)
        elif not name.text:
            self.problem("a command without a name")
        elif line.script.has_input and runs_input(words):
            self.problem(f"input that `{name.text}` would run as a program")
            if len(line.commands) > 1:
                self.spoken(line)

    def spoken(self, line: ParsedLine) -> None:
        """Apply deny rules to the text that `echo` and `printf` may feed to an interpreter."""
        for command in line.commands:
            if command.name in ("echo", "printf"):
                texts = [word.text for word in command.words[1:]]
                self.scan("\n".join([*texts, " ".join(texts)]))

    def wrapped(
        self,
        command: ExecCommand,
        unwrapped: Unwrapped,
        line: ParsedLine,
        depth: int,
        tails: tuple[tuple[K, ExecPattern], ...],
    ) -> bool:
        if unwrapped.problem:
            self.problem(unwrapped.problem)
        if unwrapped.guesses and self.guessed == 0:
            self.restrict_anywhere([unwrapped.guesses])
            self.scan("\n".join(word.text for word in unwrapped.guesses if " " in word.text))
        covering = self.covering(command, unwrapped.inside)
        rules = [
            *covering,
            *(
                t
                for t in tails
                if covers(t[1], command.words, unwrapped.inside, opaque=command.opaque)
            ),
        ]
        # One rule spells out every word of wrapper and payload: inside, only constructs and deny
        # and ask rules remain to be judged, since these apply against any rule.
        spelled = [key for key, pattern in rules if pattern.is_exact]
        self.spelled += bool(spelled)
        self.guessed += bool(unwrapped.guesses)
        is_allowed = True
        for payload in unwrapped.payloads:
            # A rule that spells out what the wrapper runs (`sudo apt-get *`) is, from there on, a
            # rule for the payload.
            rest = tuple(
                (key, tail) for key, p in rules if (tail := p.behind(payload.start)) is not None
            )
            here = self.here
            self.here = frozenset({"/"}) if payload.is_elsewhere else here
            is_allowed = self.payload(payload, line, depth, rest) and is_allowed
            self.here = here
        self.spelled -= bool(spelled)
        self.guessed -= bool(unwrapped.guesses)
        if spelled:
            self.allowed.update(dict.fromkeys(spelled))
            return True
        # `./nice x` runs whatever file is there: only a system's wrapper is known to do no more
        # than its payload.
        if unwrapped.harmless and unwrapped.payloads and program_name(command.words[0].text):
            return is_allowed
        return self.cover(command, unwrapped.inside, tails, covering) and is_allowed

    def payload(
        self,
        payload: Payload,
        line: ParsedLine,
        depth: int,
        tails: tuple[tuple[K, ExecPattern], ...],
    ) -> bool:
        if payload.text is None:
            if " " in payload.words[0].text:
                # `hyperfine 'rm -rf x'`: a program of this kind gives its words to a shell.
                self.scan("\n".join(word.text for word in payload.words))
            return self.command(ExecCommand(payload.words), line, depth + 1, tails)
        if not self.has_budget(payload.text):
            self.problem("too much text inside other text to judge")
            self.scan(payload.text)
            return False
        inner = parse(payload.text)
        if payload.dialect != "bash" and _NOT_POSIX.search(payload.text):
            self.problem("a shell text that shells read differently")
        if line.script.has_input and not inner.has_input:
            inner = msgspec.structs.replace(inner, has_input=True)
        guessed, self.guessed = self.guessed, 0
        is_allowed = self.visit(ParsedLine(inner), depth + 1)
        self.guessed = guessed
        return is_allowed
