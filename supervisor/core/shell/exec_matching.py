"""Match one line's commands with the allow, ask and deny rules, and note what matched.

It takes commands as given; `exec_rules` finds every command of a line. It must never leave out a
deny or ask rule that might touch a command.

There are two ways to match. *Covering* is for allow: every word is compared exactly, an opaque
argument only with a literal word of the rule, and a word with an expansion only if no expansion
could make it an option that matters. *Touching* is for deny and ask: the name is compared by its
basename, options match in any order, bundled or long, and the global options of git and others are
skipped. Exceptions are matched the other way round: an exception of an allow rule touches, and an
exception of a deny or ask rule covers, so that no exception can be tricked out of what it guards.
"""

import re
from collections.abc import Hashable, Sequence

import msgspec

from supervisor.core.shell.exec_commands import ExecCommand
from supervisor.core.shell.exec_index import ExecRule, Rules
from supervisor.core.shell.exec_patterns import (
    ExecPattern,
    could_touch,
    covers,
    might_touch,
    touches,
)
from supervisor.core.shell.exec_places import join, normal, outside_words, path_from_root, within
from supervisor.core.shell.exec_tables import basename
from supervisor.core.shell.shell_words import Word

MAX_SCANNED_CHARS = 100_000
# The maximum number of words that are looked at in a guessed command.
_WINDOW = 40
_ROUGH_SPLIT = re.compile(r"[\s;&|()<>{}`]+|\$\(")
_ROUGH_QUOTES = re.compile(r"['\"\\]")
_ROUGH_BREAK = re.compile(r"[;&|()<>{}`\n]+")


class LineRules[K: Hashable]:
    """Three lists of rules, and which of them matched the commands of one line so far."""

    # Above 0 inside a wrapper for which one rule spells out everything that it runs.
    spelled = 0

    def __init__(
        self,
        cwd: str,
        allow: Rules[K],
        ask: Rules[K],
        deny: Rules[K],
        roots: Sequence[str],
    ) -> None:
        self.allow, self.ask, self.deny = allow, ask, deny
        self.roots = normal(tuple(roots))
        root = self.roots[0] if self.roots else "/"
        self.cwd = root if cwd == "." else join(root, cwd)
        # Every folder in which the command being judged may run.
        self.here = frozenset((self.cwd,))
        self.problems: list[str] = []
        self.found: list[ExecCommand] = []
        self.denied: dict[K, str] = {}
        self.asked: dict[K, str] = {}
        self.allowed: dict[K, None] = {}
        self.open: dict[tuple[Word, ...], str] = {}

    def problem(self, what: str) -> None:
        if what not in self.problems:
            self.problems.append(what)

    def covering(self, command: ExecCommand, inside: frozenset[int]) -> list[tuple[K, ExecPattern]]:
        """Return the allow rules that cover the command. The opaque check skips the words `inside`
        a payload."""
        seen = self.from_root(command)
        if seen is not None:
            # The forms of the command that an exception may match: as written, and with its name as
            # a rule means it.
            spellings = (command.words,) if seen is command else (command.words, seen.words)
            for form in self.forms(seen, inside):
                rules = self.allow.covering(form)
                if rules and (found := self.covering_form(rules, form, inside, spellings)):
                    return found
        return []

    def covering_form(
        self,
        rules: Sequence[ExecRule[K]],
        form: ExecCommand,
        inside: frozenset[int],
        spellings: Sequence[tuple[Word, ...]],
    ) -> list[tuple[K, ExecPattern]]:
        words, opaque = form.words, form.opaque
        found = []
        for rule in rules:
            pattern = rule.pattern
            outside = outside_words(words, self.here, self.roots) if pattern.stays_inside else None
            if not covers(pattern, words, inside, opaque=opaque, outside=outside):
                continue
            if rule.exceptions and any(
                touches(e, given) or might_touch(e, given)
                for e in rule.exceptions
                for given in spellings
            ):
                continue
            found.append((rule.key, pattern))
        return found

    def cover(
        self,
        command: ExecCommand,
        inside: frozenset[int],
        tails: tuple[tuple[K, ExecPattern], ...],
        covering: Sequence[tuple[K, ExecPattern]] | None = None,
    ) -> bool:
        if self.spelled:
            return True
        if tails and (seen := self.from_root(command)) is not None:
            keys = [
                key
                for key, pattern in tails
                if covers(pattern, seen.words, inside, opaque=seen.opaque)
            ]
        else:
            keys = []
        if not keys:
            keys = [
                key for key, _ in (self.covering(command, inside) if covering is None else covering)
            ]
        if keys:
            self.allowed.update(dict.fromkeys(keys))
            return True
        self.open.setdefault((self.from_root(command) or command).words, command.shown)
        return False

    def forms(self, command: ExecCommand, inside: frozenset[int]) -> tuple[ExecCommand, ...]:
        """Return the command, and the command without options that change nothing: `--no-pager`,
        and `-C DIR` into the workspace, which is free like `cd DIR`."""
        if inside or command.plain is None:
            return (command,)
        form, folders = command.plain
        place = self.cwd
        for folder in folders:
            place = join(place, folder)
        is_free = place == self.cwd or (self.cwd_is_known() and within(place, self.roots))
        return (command, form) if is_free else (command,)

    def from_root(self, command: ExecCommand) -> ExecCommand | None:
        """Return the command with its name as a rule means it; None if that can't be told. `./run`
        in a rule is the workspace's own, whatever `cd` or `cwd` came before."""
        if not command.has_path or self.here <= set(self.roots[:1]):
            return command
        words = command.words
        seen = (
            path_from_root(words[0].text, next(iter(self.here)), self.roots)
            if len(self.here) == 1
            else None
        )
        return (
            ExecCommand((msgspec.structs.replace(words[0], text=seen), *words[1:]))
            if seen
            else None
        )

    def cwd_is_known(self) -> bool:
        return not any(command.words[0].text == "cd" for command in self.found)

    def restrict(self, command: ExecCommand) -> None:
        """Apply the deny and ask rules that touch the command, or might touch it once its
        expansions are known."""
        if rules := self.deny.touching(command):
            self.hold(command, rules, self.denied, "denied")
        if rules := self.ask.touching(command):
            self.hold(command, rules, self.asked, "asked")
        seen = self.from_root(command) if command.has_path else command
        if seen is not None and seen is not command:
            # `cd scripts && ./x` is what a rule calls `./scripts/x`.
            self.hold(seen, self.deny.touching(seen), self.denied, "denied")
            self.hold(seen, self.ask.touching(seen), self.asked, "asked")
        elif command.has_path and seen is None:
            # `cd /opt/tools && ./x` is `/opt/tools/x`, whatever else it may be.
            for place in sorted(self.here):
                there = msgspec.structs.replace(
                    command.words[0], text=join(place, command.words[0].text)
                )
                meant = ExecCommand((there, *command.words[1:]))
                self.hold(meant, self.deny.touching(meant), self.denied, "denied")
                self.hold(meant, self.ask.touching(meant), self.asked, "asked")

    def hold(
        self, command: ExecCommand, rules: Sequence[ExecRule[K]], found: dict[K, str], verb: str
    ) -> None:
        words = command.words
        for rule in rules:
            if rule.key in found or not could_touch(rule.pattern, words[0]):
                continue
            if rule.exceptions and any(
                covers(e, words, frozenset(), is_exception=True) for e in rule.exceptions
            ):
                continue
            if touches(rule.pattern, words):
                found[rule.key] = f"{verb} by exec({rule.pattern.text}): `{command.shown}`"
            elif not command.is_spelled_out and might_touch(rule.pattern, words):
                self.problem(
                    f"an expansion that may make `{command.shown}` what exec({rule.pattern.text})"
                    " names"
                )

    def restrict_anywhere(self, parts: Sequence[Sequence[Word]]) -> None:
        """Apply deny and ask rules to every command that might begin at any word of any part."""
        texts = {word.text for words in parts for word in words}
        for rules, found, verb in (
            (self.deny, self.denied, "denied"),
            (self.ask, self.asked, "asked"),
        ):
            anywhere = rules.plausible(texts) if rules.anywhere else []
            if not rules.by_name and not anywhere:
                continue
            for words in parts:
                for i, word in enumerate(words):
                    if anywhere or basename(word.text) in rules.by_name:
                        command = ExecCommand(tuple(words[i : i + _WINDOW]))
                        self.hold(command, rules.touching(command, anywhere), found, verb)

    def bare(self) -> None:
        for rules, found, verb in (
            (self.deny, self.denied, "denied"),
            (self.ask, self.asked, "asked"),
        ):
            for rule in rules.bare:
                excepted = bool(self.found) and not self.problems
                excepted = excepted and all(
                    any(
                        covers(e, command.words, frozenset(), is_exception=True)
                        for e in rule.exceptions
                    )
                    for command in self.found
                )
                if not excepted:
                    found.setdefault(rule.key, f"{verb} by exec({rule.pattern.text})")

    def scan(self, text: str) -> None:
        """Match deny and ask rules token by token on a text that is hard to read reliably. This
        matches too much rather than too little, so it is only ever stricter."""
        if not self.deny and not self.ask:
            return
        if len(text) > MAX_SCANNED_CHARS:
            why = f"{len(text)} characters are too long to check the rules on"
            self.denied.update((rule.key, why) for rule in self.deny.every())
            self.asked.update((rule.key, why) for rule in self.ask.every())
            return
        parts = [
            [Word(_ROUGH_QUOTES.sub("", token)) for token in part.split()]
            for part in _ROUGH_BREAK.split(text)
        ]
        self.restrict_anywhere(parts)
        if _ROUGH_QUOTES.search(text):
            bare = _ROUGH_QUOTES.sub("", text)
            self.restrict_anywhere([[Word(token) for token in _ROUGH_SPLIT.split(bare) if token]])
