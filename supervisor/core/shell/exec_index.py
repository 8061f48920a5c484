"""Index of exec rules by command, so that only a few have to be compared.

Leaves out only rules that can't cover or touch a command: a wrong index would be a security hole.
INVARIANT: it never leaves out a rule that matters, and keeps the rules' order.
"""

from collections.abc import Hashable, Iterable, Sequence
from operator import itemgetter

import msgspec

from supervisor.core.shell.exec_commands import SEPARATOR, ExecCommand
from supervisor.core.shell.exec_patterns import ExecPattern
from supervisor.core.shell.exec_tables import basename
from supervisor.core.text.prefixes import FEW, Prefixes

type IndexEntry[K] = tuple[K, ExecPattern] | tuple[K, ExecPattern, tuple[ExecPattern, ...]]


class ExecRule[K: Hashable](msgspec.Struct, frozen=True, gc=False):
    """A pattern with its exceptions, and the key by which its owner knows it."""

    key: K
    pattern: ExecPattern
    exceptions: tuple[ExecPattern, ...] = ()


class _Named[K: Hashable]:
    """The rules for one name. If there are many, they are found by their further words, through an
    index that is built when first needed."""

    __slots__ = ("_by_operand", "_by_start", "rules")

    def __init__(self) -> None:
        self.rules: list[ExecRule[K]] = []
        self._by_start: Prefixes[tuple[int, ExecRule[K]]] | None = None
        self._by_operand: dict[str, list[tuple[int, ExecRule[K]]]] | None = None

    def covering(self, command: ExecCommand) -> list[ExecRule[K]]:
        """Return the rules that could cover the command: its words must start with the words that
        the rule spells out."""
        if len(self.rules) <= FEW or not command.is_spelled_out:
            return self.rules
        if self._by_start is None:
            self._by_start = Prefixes(
                (_start(one[1].pattern), one) for one in enumerate(self.rules)
            )
        return _in_order(self._by_start.starting((command.arguments,)))

    def touching(self, command: ExecCommand) -> list[ExecRule[K]]:
        """Return the rules that could touch the command: an operand that the rule spells out must
        be among its words."""
        if len(self.rules) <= FEW or not command.is_spelled_out:
            return self.rules
        if self._by_operand is None:
            self._by_operand = {}
            for numbered in enumerate(self.rules):
                self._by_operand.setdefault(_operand(numbered[1].pattern), []).append(numbered)
        found = [*self._by_operand.get("", ())]
        for text in command.operands:
            rules = self._by_operand.get(text)
            if rules is not None:
                found += rules
        return _in_order(found)


def _start(pattern: ExecPattern) -> str:
    """Return the common start of the words after the name, joined, over all commands that the
    pattern covers."""
    parts: list[str] = []
    for word in pattern.words[1:]:
        parts.append(word.parts[0] if word.literal is None else word.literal)
        if word.literal is None:
            break
    return SEPARATOR.join(parts)


def _operand(pattern: ExecPattern) -> str:
    """Return a word that every touched command without expansions holds; empty if there is none."""
    operands = (
        word.literal
        for word in pattern.words[1:]
        if word.literal and not word.literal.startswith("-")
    )
    return next(operands, "")


def _in_order[K: Hashable](numbered: list[tuple[int, ExecRule[K]]]) -> list[ExecRule[K]]:
    if len(numbered) > 1:
        # A new list: the given one may be the index's own.
        numbered = sorted(numbered, key=itemgetter(0))
    return [rule for _, rule in numbered]


class Rules[K: Hashable]:
    """A list of exec rules, indexed by the literal name of the command. Build it once; it never
    changes."""

    def __init__(self, entries: Iterable[IndexEntry[K]]) -> None:
        self.by_name: dict[str, _Named[K]] = {}
        self.anywhere: list[ExecRule[K]] = []
        self.bare: list[ExecRule[K]] = []
        for entry in entries:
            rule = ExecRule(entry[0], entry[1], entry[2] if len(entry) == 3 else ())
            name = rule.pattern.words[0].literal
            if rule.pattern.is_bare:
                self.bare.append(rule)
            elif name is None:
                self.anywhere.append(rule)
            else:
                self.by_name.setdefault(basename(name), _Named()).rules.append(rule)

    def __bool__(self) -> bool:
        return bool(self.by_name or self.anywhere or self.bare)

    def every(self) -> list[ExecRule[K]]:
        """Return all rules."""
        return [
            *self.bare,
            *self.anywhere,
            *(rule for named in self.by_name.values() for rule in named.rules),
        ]

    def plausible(self, texts: set[str]) -> list[ExecRule[K]]:
        """Return the rules with a wildcard in the name whose other words are among the texts (for
        an option: its letters)."""
        letters = {letter for text in texts if text.startswith("-") for letter in text.lower()}
        return [
            rule
            for rule in self.anywhere
            if all(
                _could_be_among(w, texts, letters)
                for p in rule.pattern.words[1:]
                if (w := p.literal)
            )
        ]

    def covering(self, command: ExecCommand) -> Sequence[ExecRule[K]]:
        """Return the rules that could cover this command."""
        named = self.by_name.get(command.name)
        if named is None:
            return self.anywhere
        found = named.covering(command)
        return [*found, *self.anywhere] if self.anywhere else found

    def touching(
        self, command: ExecCommand, anywhere: Sequence[ExecRule[K]] | None = None
    ) -> Sequence[ExecRule[K]]:
        """Return the rules that could touch this command. `anywhere` replaces the rules with a
        wildcard in the name, for a caller that has a shorter list of them."""
        others = self.anywhere if anywhere is None else anywhere
        named = self.by_name.get(command.name)
        if named is None:
            return others
        found = named.touching(command)
        return [*found, *others] if others else found


def _could_be_among(word: str, texts: set[str], letters: set[str]) -> bool:
    """Return whether `touches` could find a rule's word: a bundled or abbreviated option, or a long
    form by its first letter."""
    if not word.startswith("-"):
        return word in texts
    return letters.issuperset(word[:3].lower() if word.startswith("--") else word.lower())
