"""Facts about one command that don't depend on rules, computed once.

Caches what `exec_tables` and `exec_wrappers` find in its words, however many rules and lists look
at it. It must never hold anything that depends on a policy or a folder.
"""

from collections.abc import Sequence
from functools import cached_property

from supervisor.core.shell.exec_places import may_move
from supervisor.core.shell.exec_tables import (
    basename,
    is_shell_state,
    opaque_words,
    plain_form,
    program_name,
)
from supervisor.core.shell.exec_wrappers import Unwrapped, unwrap
from supervisor.core.shell.shell import Script, parse
from supervisor.core.shell.shell_words import Word

# Separates the words of a command in the index; a word that contains it only costs one more
# comparison.
SEPARATOR = "\0"
_MAX_SHOWN_CHARS = 120


class ExecCommand:
    """The words of one command. Everything else is computed when first asked for."""

    def __init__(self, words: tuple[Word, ...]) -> None:
        name = words[0].text
        self.words = words
        # The last part of its name, by which deny and ask rules know it.
        self.name = basename(name)
        # Whether the name is a path relative to the folder in which it is used.
        self.has_path = "/" in name and not name.startswith("/")

    @cached_property
    def is_program(self) -> bool:
        """Return whether its name is certain and runs a program rather than changing the shell."""
        name = self.words[0]
        if not name.is_literal or not name.text or is_shell_state(name.text):
            return False
        return len(self.words) > 1 or self.name != "exec"

    @cached_property
    def is_spelled_out(self) -> bool:
        """Return whether no word holds an expansion."""
        return all(word.is_literal for word in self.words)

    @cached_property
    def arguments(self) -> str:
        """Return the words after the name, joined."""
        return SEPARATOR.join([word.text for word in self.words[1:]])

    @cached_property
    def operands(self) -> frozenset[str]:
        """Return the literal texts after the name, without duplicates."""
        return frozenset([word.text for word in self.words[1:] if word.text])

    @cached_property
    def opaque(self) -> frozenset[int]:
        """Return the positions of the words that only a rule which spells them out may cover."""
        return opaque_words(self.words)

    @cached_property
    def unwrapped(self) -> Unwrapped | None:
        """Return the commands that this command runs as a wrapper."""
        return unwrap(self.words)

    @cached_property
    def plain(self) -> "tuple[ExecCommand, list[str]] | None":
        """Return the command without options that change nothing, and the folders of its `-C DIR`;
        None if there are no such options."""
        found = plain_form(self.words) if program_name(self.words[0].text) else None
        return None if found is None else (ExecCommand(found[0]), found[1])

    @cached_property
    def shown(self) -> str:
        """Return the command in one line, for a reason."""
        return show(self.words)


def show(words: Sequence[Word]) -> str:
    """Return a command in one line, for a reason."""
    text = " ".join([word.text for word in words]).replace("\n", " ")
    return text if len(text) <= _MAX_SHOWN_CHARS else text[: _MAX_SHOWN_CHARS - 3] + "..."


class ParsedLine:
    """A parsed text and its commands, in the order of the script."""

    __slots__ = ("commands", "may_move", "script")

    def __init__(self, script: Script) -> None:
        self.script = script
        self.commands = tuple([ExecCommand(command.words) for command in script.commands])
        self.may_move = may_move(script.commands)


def read_line(text: str) -> ParsedLine:
    """Parse a line into what rules are asked about, with every fact that doesn't depend on
    rules."""
    line = ParsedLine(parse(text))
    for command in line.commands:
        if command.is_program and command.unwrapped is None:
            _ = command.opaque, command.plain, command.operands, command.arguments
        _ = command.is_spelled_out, command.shown
    return line
