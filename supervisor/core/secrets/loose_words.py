"""Lenient tokenizer of shell text, with the span of each word.

It decides where a word begins and ends, and which parts of it are text or expansions. `shell`
judges commands and refuses what it can't read; this reader never gives up, so that hiding secrets
works on half a command, a here-document or a sentence. No rule may ever rely on it.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

# A mark of something hidden before: it isn't a secret, and white space in it doesn't end a word.
HIDDEN = re.compile(r"\[hidden(?:: [0-9,]{1,12} characters)?\]|\[redacted\]")
MOST_DEPTH = 4
MOST_DOCUMENTS = 50
_PLAIN = re.compile(r"[^\s\\'\"$`;&|()<>\[]+")
_IN_DOUBLE = re.compile(r"[^\\\"$`\[]+")
_DOUBLE = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_ANSI = re.compile(r"\$'(?:[^'\\]|\\.)*'", re.DOTALL)
_EXPANSION = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|\{[^{}\s]*\}|[0-9@*#?$!-])")
_OPERATORS = (
    "|&",
    "||",
    "&&",
    "&>",
    ">&",
    ">>",
    "<<<",
    "<<",
    ";",
    "&",
    "|",
    "(",
    ")",
    "<",
    ">",
    "\n",
)


class Run(NamedTuple):
    """A part of a word: its source span and its meaning. `acts`: an expansion, or one of our own
    marks; never hidden."""

    start: int
    end: int
    text: str
    acts: bool = False


class LooseWord(NamedTuple):
    """A word. `text` is what a program would get, with expansions as written."""

    start: int
    end: int
    text: str
    runs: tuple[Run, ...]

    def stretches(self, begin: int, end: int | None = None) -> Iterator[tuple[int, int]]:
        """Return the source spans of the text's characters from `begin` on, without the parts that
        act."""
        at = 0
        stop = len(self.text) if end is None else end
        for run in self.runs:
            first, last = max(begin, at), min(stop, at + len(run.text))
            if first < last and not run.acts:
                is_escape = run.end - run.start != len(run.text)
                yield (
                    (run.start, run.end)
                    if is_escape
                    else (run.start + first - at, run.start + last - at)
                )
            at += len(run.text)


class LooseCommand(NamedTuple):
    """The words up to an operator. `feeds`: it is piped into the next command. `fed`: the words of
    here-strings and here-documents."""

    words: tuple[LooseWord, ...]
    feeds: bool = False
    fed: tuple[LooseWord, ...] = ()


def commands(
    text: str, start: int = 0, end: int | None = None, depth: int = 0
) -> Iterator[LooseCommand]:
    """Return the commands in a stretch of a text, including those inside quotes and
    substitutions."""
    reader = _Reader(text, start, len(text) if end is None else end)
    yield from reader.read()
    if depth < MOST_DEPTH:
        for first, last in reader.inner:
            yield from commands(text, first, last, depth + 1)


class _Reader:
    """One pass over a text. `inner` collects the stretches that may hold commands of their own."""

    def __init__(self, text: str, start: int, end: int) -> None:
        self.text = text
        self.i = start
        self.end = end
        self.inner: list[tuple[int, int]] = []
        self.runs: list[Run] = []
        self.begun: int | None = None
        self.words: list[LooseWord] = []
        self.fed: list[LooseWord] = []
        self.redirection = ""
        self.delimiters: list[str] = []
        self.room = MOST_DOCUMENTS
        # A text with many unclosed quotes is searched to its end only once.
        self.last_single = text.rfind("'", start, self.end)

    def read(self) -> Iterator[LooseCommand]:
        while self.i < self.end:
            operator = self.step()
            if operator is not None:
                yield from self.end_command(operator)
        self.end_word()
        yield from self.end_command("")

    def step(self) -> str | None:
        """Read one step further. Return the operator that ends a command, or None."""
        text, i = self.text, self.i
        run = _PLAIN.match(text, i, self.end)
        if run:
            self.add(Run(i, run.end(), run[0]))
            return None
        char = text[i]
        if char == "`":
            self.end_word()
            self.i += 1
            return ";"
        operator = next((one for one in _OPERATORS if text.startswith(one, i)), None)
        if operator is not None:
            self.end_word()
            self.i += len(operator)
            self.redirection = operator
            if operator == "\n":
                self.documents()
            return None if operator[0] in "<>" or operator == "&>" else operator
        if char.isspace():
            self.end_word()
            self.i += 1
        elif char in "'\"":
            self.quoted(char)
        elif char == "$":
            self.dollar()
        elif char == "[":
            self.bracket()
        else:
            self.escape()
        return None

    def add(self, run: Run) -> None:
        if self.begun is None:
            self.begun = run.start
        self.runs.append(run)
        self.i = run.end

    def end_word(self) -> None:
        if self.begun is None:
            return
        word = LooseWord(
            self.begun, self.i, "".join(run.text for run in self.runs), tuple(self.runs)
        )
        if self.redirection == "<<" and self.room > 0:
            self.room -= 1
            self.delimiters.append(word.text.removeprefix("-"))
        (self.fed if self.redirection == "<<<" else self.words).append(word)
        self.runs, self.begun, self.redirection = [], None, ""

    def documents(self) -> None:
        """Read the here-documents of the line that ended: first as words of their own, then once
        more as any text."""
        at = self.i
        for delimiter in self.delimiters:
            ends = re.compile(rf"^\t*{re.escape(delimiter)}$", re.MULTILINE).search(
                self.text, at, self.end
            )
            stop = ends.start() if ends else self.end
            body = self.text[at:stop].rstrip("\n")
            self.fed.append(LooseWord(at, at + len(body), body, (Run(at, at + len(body), body),)))
            at = ends.end() + 1 if ends else self.end
        self.delimiters = []

    def end_command(self, operator: str) -> Iterator[LooseCommand]:
        if self.words or self.fed:
            yield LooseCommand(tuple(self.words), operator in ("|", "|&"), tuple(self.fed))
        self.words, self.fed = [], []

    def quoted(self, quote: str) -> None:
        start = self.i
        if quote == "'":
            close = self.text.find("'", start + 1, self.end) if start < self.last_single else -1
        else:
            found = _DOUBLE.match(self.text, start, self.end)
            close = found.end() - 1 if found else -1
        if close < 0:
            # An apostrophe, or a quote that was cut off.
            self.add(Run(start, start + 1, quote))
            return
        self.add(Run(start, start + 1, ""))
        self.inner.append((start + 1, close))
        if quote == "'":
            self.marked(start + 1, close)
        else:
            self.in_double(close)
        self.add(Run(close, close + 1, ""))

    def marked(self, start: int, end: int) -> None:
        """Return text unchanged, except for what was hidden before."""
        for found in HIDDEN.finditer(self.text, start, end):
            self.add(Run(start, found.start(), self.text[start : found.start()]))
            self.add(Run(found.start(), found.end(), found[0], acts=True))
            start = found.end()
        self.add(Run(start, end, self.text[start:end]))

    def in_double(self, end: int) -> None:
        while self.i < end:
            run = _IN_DOUBLE.match(self.text, self.i, end)
            char = self.text[self.i]
            if run:
                self.add(Run(self.i, run.end(), run[0]))
            elif char == "\\":
                self.escape(kept='"\\$`')
            elif char == "`":
                close = self.text.find("`", self.i + 1, end)
                close = end if close < 0 else close + 1
                self.add(Run(self.i, close, self.text[self.i : close], acts=True))
            elif char == "$":
                self.dollar(end)
            else:
                self.bracket()

    def escape(self, kept: str = "") -> None:
        following = self.text[self.i + 1 : self.i + 2]
        if following == "\n":
            self.i += 2
            return
        text = following if not kept or following in kept else "\\" + following
        self.add(Run(self.i, min(self.i + 2, self.end), text or "\\"))

    def bracket(self) -> None:
        found = HIDDEN.match(self.text, self.i, self.end)
        self.add(
            Run(self.i, found.end(), found[0], acts=True) if found else Run(self.i, self.i + 1, "[")
        )

    def dollar(self, end: int | None = None) -> None:
        """Read an expansion; `end` is where the quote that contains it ends."""
        start, stop = self.i, self.end if end is None else end
        ansi = _ANSI.match(self.text, start, stop) if end is None else None
        simple = _EXPANSION.match(self.text, start, stop)
        if ansi:
            self.add(Run(start, start + 2, ""))
            self.marked(start + 2, ansi.end() - 1)
            self.add(Run(ansi.end() - 1, ansi.end(), ""))
        elif simple:
            self.add(Run(start, simple.end(), simple[0], acts=True))
        elif self.text.startswith("$(", start):
            close = _closing(self.text, start + 1, stop)
            if end is None:  # what stands in quotes is read once more as a whole
                self.inner.append((start + 2, close))
            self.add(Run(start, close, self.text[start:close], acts=True))
        else:
            self.add(Run(start, start + 1, "$"))


def _closing(text: str, start: int, end: int) -> int:
    """Return the offset after the parenthesis that closes the one at `start`; the end if none
    does."""
    open_ones = 0
    for i in range(start, end):
        open_ones += (text[i] == "(") - (text[i] == ")")
        if open_ones == 0:
            return i + 1
    return end
