"""Strict second reader of a line of bash, independent of tree-sitter.

Decides which words belong to commands, for lines that keep to a small, well-understood part of the
language. It must not share the mistakes of the parser that `shell` uses (tree-sitter): a line is
allowed only if both read the same words. It must never guess: anything outside its part of bash
raises a `GiveUp` that names it. Texts are byte texts (see `shell_words`).
"""

import re

import msgspec

from supervisor.core.shell.exec_secrets import names_a_secret
from supervisor.core.shell.shell_words import (
    ASSIGNMENT,
    DOUBLE_RUN,
    SIMPLE_EXPANSION,
    Word,
    ansi_c,
    ansi_c_end,
    from_bytes_text,
    literal_cat,
    resolve,
    to_bytes_text,
)

_RUN = re.compile(r"[^ \t\n;&|()<>\\'\"$`]+")
# Characters that end a word, and the end of the text.
_ENDS = frozenset({"", *" \t\n;&|<>)"})
_HEREDOC_DELIMITER = re.compile(r"'([A-Za-z0-9_.!-]+)'|\"([A-Za-z0-9_.!-]+)\"|\\([A-Za-z0-9_]+)")
# Names that a loop variable may not have, because a program or bash itself reads them.
_LOOP_VARIABLE = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*\Z")
_LOOP_VARIABLE_NOT = re.compile(r"proxy|^npm|^pip|^yarn|^histchars$|^auto_resume$|^git|^ld_")
_OPENERS = frozenset({"if", "then", "elif", "else", "do", "while", "until", "{", "!"})
_CLOSERS = frozenset({"fi", "done", "}"})
_REFUSED = {
    "case": "`case`",
    "esac": "`case`",
    "select": "`select`",
    "function": "a function",
    "coproc": "`coproc`",
    "[[": "a `[[` condition",
    "in": "a reserved word as a command",
}
RESERVED = frozenset({*_OPENERS, *_CLOSERS, *_REFUSED, "for", "time"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

type Span = tuple[int, int]


class GiveUp(Exception):  # noqa: N818
    """Raised if the line leaves the part of bash that is read here; the text names the cause.
    `so_far`: the outline before that place."""

    so_far: "Outline | None" = None


class Simple(msgspec.Struct, frozen=True, gc=False):
    """A simple command: the spans of its words.

    `is_joined`: it runs only if the command before it succeeded in the same shell (`a && b`).
    `in_loop`: it may run many times.
    """

    words: tuple[Span, ...]
    is_joined: bool = False
    in_loop: bool = False


class Outline(msgspec.Struct, frozen=True, gc=False):
    """Outline of a line. `data` holds (start, end, filler) of plain text; `bodies` are the
    here-documents and here-strings; `has_input`: a command is fed input."""

    commands: tuple[Simple, ...]
    data: tuple[tuple[int, int, str], ...]
    bodies: tuple[str, ...]
    has_input: bool


def word_end(source: str, start: int) -> int:
    """Return the offset after the word at `start`. Raise `GiveUp` at anything but text or a simple
    expansion."""
    i = start
    while True:
        run = _RUN.match(source, i)
        if run:
            i = run.end()
        char = source[i : i + 1]
        if char in _ENDS:
            return min(i, len(source))
        if char == "\\":
            i += 2
        elif char == "'":
            i = source.find("'", i + 1) + 1
            if i == 0:
                raise GiveUp("an unclosed quote")
        elif char == '"':
            i = _double_end(source, i + 1)
        elif char == "$":
            i = _dollar_end(source, i, quoted=False)
        elif char == "`":
            raise GiveUp("a command substitution")
        else:
            raise GiveUp("`(` inside a word")


def _double_end(source: str, start: int) -> int:
    i = start
    while i < len(source):
        run = DOUBLE_RUN.match(source, i)
        if run:
            i = run.end()
        elif source[i] == '"':
            return i + 1
        elif source[i] == "\\":
            i += 2
        elif source[i] == "$":
            i = _dollar_end(source, i, quoted=True)
        else:
            raise GiveUp("a command substitution")
    raise GiveUp("an unclosed quote")


def _dollar_end(source: str, i: int, *, quoted: bool) -> int:
    following = source[i + 1 : i + 2]
    if following == "'" and not quoted:
        end = ansi_c_end(source, i)
        if end < 0 or ansi_c(source[i + 2 : end - 1]) is None:
            raise GiveUp("a quote that can't be read")
        return end
    simple = SIMPLE_EXPANSION.match(source, i)
    if simple:
        return simple.end()
    if following == "(":
        literal = literal_cat(source, i) if quoted else None
        if literal is None:
            raise GiveUp("a command substitution")
        return literal[0]
    if following in ("{", "["):
        raise GiveUp("an expansion that does more than insert a variable")
    if following == '"' and not quoted:
        raise GiveUp("a translated string")
    return i + 1


class _Reader:
    """A single pass over a line. `at_start`: the next word would be a command's name or a
    reserved word."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.i = 0
        self.at_start = True
        self.closed = False
        self.words: list[Span] = []
        self.commands: list[Simple] = []
        self.data: list[tuple[int, int, str]] = []
        self.heredocs: list[tuple[str, bool]] = []
        self.bodies: list[str] = []
        self.has_input = False
        self.has_literals = "$(" in source
        # The operator before the command being read, and whether a following `&&` would show that
        # it ran here and succeeded.
        self.before = ""
        self.was_plain = False
        self.is_joined = False
        self.loops = 0

    def end_command(self, operator: str) -> None:
        if self.words:
            self.check_time()
            self.commands.append(Simple(tuple(self.words), self.is_joined, self.loops > 0))
        self.was_plain = bool(self.words) and self.before not in ("|", "|&", "!")
        if operator in ("|", "|&"):
            self.has_input = True
        self.words, self.at_start, self.closed, self.before = [], True, False, operator

    def check_time(self) -> None:
        """Check what follows the reserved word `time`: it takes `-p` and `--` only when written so
        and right after it; anything else there is a command's name."""
        raws = [self.source[start:end] for start, end in self.words]
        if raws[0] == "time":
            at = 1 + (raws[1:2] == ["-p"])
            at += raws[at : at + 1] == ["--"]
            if at < len(raws) and resolve(raws[at]).text.startswith("-"):
                raise GiveUp("`time` with options that the shell's own doesn't have")

    def read(self) -> Outline:
        source, size = self.source, len(self.source)
        while self.i < size:
            char = source[self.i]
            if char in " \t":
                self.i += 1
            elif char == "\\" and source[self.i + 1 : self.i + 2] == "\n":
                self.i += 2
            elif char == "\n":
                self.read_newline()
            elif char == "#":
                end = source.find("\n", self.i)
                self.i = size if end < 0 else end
            elif char in ";&|":
                self.read_operator()
            elif char in "<>":
                self.read_redirection("")
            elif char in "()":
                self.read_parenthesis()
            else:
                self.read_word()
        self.end_command("")
        if self.heredocs:
            raise GiveUp("a here-document without its end")
        return self.outline()

    def outline(self) -> Outline:
        """Return the outline so far, without here-documents whose text hasn't come yet."""
        data = self.data[: len(self.data) - len(self.heredocs)]
        return Outline(tuple(self.commands), tuple(data), tuple(self.bodies), self.has_input)

    def read_newline(self) -> None:
        self.i += 1
        # A newline right after an operator (`a &&` newline `b`) is only white space.
        if self.words or self.closed or not self.before:
            self.end_command("\n")
        self.read_heredocs()

    def read_operator(self) -> None:
        two = self.source[self.i : self.i + 2]
        if two == "&>":
            self.read_redirection("&")
            return
        if two in (";;", ";&"):
            raise GiveUp("`case`")
        if not self.words and not self.closed:
            raise GiveUp("an operator without a command")
        operator = two if two in ("&&", "||", "|&") else two[0]
        self.i += len(operator)
        self.end_command(operator)

    def read_parenthesis(self) -> None:
        if self.source[self.i] == ")":
            self.i += 1
            self.end_command(")")
            self.closed = True
            return
        if self.words or self.closed or self.source[self.i + 1 : self.i + 2] == "(":
            raise GiveUp("a function, an array or arithmetic")
        self.i += 1
        self.before = "("

    def read_redirection(self, descriptor: str) -> None:
        source, start = self.source, self.i
        if self.words and all(source[a:b] in ("time", "-p", "--") for a, b in self.words):
            raise GiveUp("`time` before a redirection")
        operator = next(one for one in _REDIRECTIONS if source.startswith(one, start))
        self.i += len(operator)
        if operator in ("<", ">") and source[self.i : self.i + 1] == "(":
            raise GiveUp("a process substitution")
        self.skip_blanks()
        if operator in ("<<", "<<-"):
            delimiter = _HEREDOC_DELIMITER.match(source, self.i)
            if delimiter is None or word_end(source, self.i) != delimiter.end():
                raise GiveUp("a here-document whose delimiter isn't plainly quoted")
            self.heredocs.append((delimiter[1] or delimiter[2] or delimiter[3], operator == "<<-"))
            self.has_input = True
            self.i = delimiter.end()
            self.data.append((start - len(descriptor), self.i, " "))
            return
        self.read_target(operator)

    def skip_blanks(self) -> None:
        while self.source[self.i : self.i + 1] in (" ", "\t"):
            self.i += 1

    def read_target(self, operator: str) -> None:
        start = self.i
        self.i = word_end(self.source, start)
        if self.i == start:
            raise GiveUp("a redirection without a target")
        self.mask_literals(start, self.i)
        target = resolve(self.source[start : self.i])
        reason = redirection_problem(operator, target)
        if reason:
            raise GiveUp(reason)
        if operator == "<<<":
            self.bodies.append(to_bytes_text(target.text))
        self.has_input = (
            self.has_input
            or (operator in ("<", "<<<") and target.text != "/dev/null")
            or operator == "<&"
        )

    def read_heredocs(self) -> None:
        for delimiter, is_tabbed in self.heredocs:
            start = self.i
            while True:
                if self.i >= len(self.source):
                    raise GiveUp("a here-document without its end")
                end = self.source.find("\n", self.i)
                end = len(self.source) if end < 0 else end
                line = self.source[self.i : end]
                line_start, self.i = self.i, end + 1
                if (line.lstrip("\t") if is_tabbed else line) == delimiter:
                    break
            self.bodies.append(self.source[start:line_start])
            self.data.append((start, end, " "))
            self.i = end
        self.heredocs = []

    def mask_literals(self, start: int, end: int) -> None:
        """Note the literal here-documents inside a word as data: the tree is built without
        looking into them."""
        at = self.source.find("$(", start, end)
        while at >= 0:
            literal = literal_cat(self.source, at)
            if literal is not None:
                self.data.append((at, literal[0], "x"))
            at = self.source.find("$(", literal[0] if literal else at + 2, end)

    def read_word(self) -> None:
        start = self.i
        end = word_end(self.source, start)
        raw = self.source[start:end]
        self.i = end
        if self.source[end : end + 1] in ("<", ">") and self.is_descriptor(raw):
            self.read_redirection(raw)
            return
        if self.has_literals:
            self.mask_literals(start, end)
        if self.closed:
            self.close_word(raw)
        elif self.at_start:
            self.start_word(start, end, raw)
        else:
            if raw in RESERVED and self.source[self.words[-1][0] : self.words[-1][1]] in (
                "time",
                "-p",
            ):
                raise GiveUp("`time` before a compound command")
            self.words.append((start, end))

    def is_descriptor(self, raw: str) -> bool:
        if raw.startswith("{") and raw.endswith("}") and _NAME.fullmatch(raw[1:-1]):
            raise GiveUp("a redirection that sets a variable")
        return raw.isascii() and raw.isdigit()

    def close_word(self, raw: str) -> None:
        """Check the word after `fi`, `done`, `}` or `)`: only another reserved word may follow."""
        if raw not in _CLOSERS and raw not in ("then", "do", "elif", "else"):
            raise GiveUp("a word after a compound command")
        self.closed = False
        self.start_word(0, 0, raw)

    def start_word(self, start: int, end: int, raw: str) -> None:
        if raw in _OPENERS:
            self.loops += raw in ("while", "until")
            self.before = raw
        elif raw in _CLOSERS:
            self.loops -= raw == "done"
            self.end_command(raw)
            self.closed = True
        elif raw == "for":
            self.read_for()
        elif raw in _REFUSED:
            raise GiveUp(_REFUSED[raw])
        elif ASSIGNMENT.match(raw):
            raise GiveUp("an assignment")
        else:
            self.at_start = False
            self.is_joined = self.before == "&&" and self.was_plain
            self.words.append((start, end))

    def read_for(self) -> None:
        self.skip_blanks()
        end = word_end(self.source, self.i)
        name = self.source[self.i : end]
        if not _LOOP_VARIABLE.match(name) or _LOOP_VARIABLE_NOT.search(name):
            raise GiveUp(f"`for` with the variable `{from_bytes_text(name)[:40]}`")
        self.i = end
        self.skip_blanks()
        end = word_end(self.source, self.i)
        if self.source[self.i : end] != "in":
            raise GiveUp("`for` without `in`")
        self.i = end
        while True:
            self.skip_blanks()
            if self.source[self.i : self.i + 2] == "\\\n":
                self.i += 2
                continue
            end = word_end(self.source, self.i)
            if end == self.i:
                break
            self.mask_literals(self.i, end)
            self.i = end
        if self.source[self.i : self.i + 1] not in (";", "\n"):
            raise GiveUp("`for` that can't be read")
        self.i += 1
        self.loops += 1
        self.before = "for"


_REDIRECTIONS = ("&>>", "&>", "<<<", "<<-", "<<", "<>", "<&", ">>", ">&", ">|", "<", ">")


def redirection_problem(operator: str, target: Word) -> str | None:
    """Return why no rule may allow this redirection; None if it only drops, copies or reads."""
    if not target.is_literal:
        return "a redirection whose target is expanded"
    if operator in ("<&", ">&") and re.fullmatch(r"[0-9]+-?|-", target.text):
        return None
    if operator in ("<", "<<<"):
        # bash opens network connections for /dev/tcp and /dev/udp by itself.
        is_device = (
            operator == "<"
            and re.match(r"/+dev/|/+proc/", target.text)
            and target.text != "/dev/null"
        )
        if operator == "<" and names_a_secret(target.text):
            return "input from a file that holds secrets"
        return "a redirection from a device" if is_device else None
    if operator in (">", ">>", ">|", "&>", "&>>", ">&") and target.text == "/dev/null":
        return None
    return "a redirection to a file"


def outline(source: str) -> Outline:
    """Return the outline of byte text `source`. Raise `GiveUp` if it leaves the part of bash that
    is read here."""
    reader = _Reader(source)
    try:
        return reader.read()
    except GiveUp as reason:
        reason.so_far = reader.outline()
        raise


def spans(source: str, start: int, end: int) -> tuple[Span, ...]:
    """Return the words between two offsets, split at blanks only. Raise `GiveUp` if one can't be
    read."""
    found: list[Span] = []
    i = start
    while i < end:
        stop = word_end(source, i)
        if stop > i:
            found.append((i, stop))
        i = max(stop, i + 1)
    return tuple(found)
