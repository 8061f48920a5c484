"""Flags on a file's new text: likely secrets, invisible characters, odd layout.

Pure. It reports only what is new: a secret or odd character that was also in the old text isn't
reported. It must never hold a secret: only line numbers.
"""

import re
from itertools import groupby
from typing import Literal

import msgspec

from supervisor.core.secrets.redact import Redactor
from supervisor.core.text.display import is_hidden

FlagName = Literal["secret", "hidden"]
MOST_LINES = 20
# Controls that are part of ordinary text: tab, form feed, and the carriage return of CRLF.
_ORDINARY = frozenset("\t\n\r\f")
# Longer than any line written by hand; and a run of blanks or empty lines long enough to push what
# follows out of sight.
LONG_LINE_CHARS = 500
_BLANK_RUN = re.compile(r"[ \t]{40}|\t{10}")
_MOST_EMPTY_LINES = 40


class Flags(msgspec.Struct, frozen=True):
    """Lines of the new text, counted from 1, at most MOST_LINES of each."""

    secret: tuple[int, ...] = ()
    hidden: tuple[int, ...] = ()

    @property
    def names(self) -> tuple[FlagName, ...]:
        found: list[FlagName] = []
        if self.secret:
            found.append("secret")
        if self.hidden:
            found.append("hidden")
        return tuple(found)


class Layout(msgspec.Struct, frozen=True):
    """Lines of the new text that could hide others, counted from 1, at most MOST_LINES of each:
    those that are `long`, and those in which a run of `blank`s begins. This is no hazard: the file
    can still be approved with others."""

    long: tuple[int, ...] = ()
    blank: tuple[int, ...] = ()


def layout_of(old: bytes, new: bytes) -> Layout:
    """Return odd layout in the new text's lines that the old text hasn't."""
    if old == new:
        return Layout()
    before, after = old.decode(errors="replace"), new.decode(errors="replace")
    known = set(before.split("\n"))
    lines = after.split("\n")
    fresh = [(number, line) for number, line in enumerate(lines, 1) if line not in known]
    long = [number for number, line in fresh if len(line) > LONG_LINE_CHARS]
    blank = {number for number, line in fresh if _BLANK_RUN.search(line)}
    if not _empty_runs(before.split("\n")):
        blank |= _empty_runs(lines)
    return Layout(tuple(long[:MOST_LINES]), tuple(sorted(blank)[:MOST_LINES]))


def _empty_runs(lines: list[str]) -> set[int]:
    """Return the starts of very long runs of blank lines."""
    found, at = set(), 1
    for is_empty, run in groupby(lines, key=lambda line: not line.strip()):
        length = len(list(run))
        if is_empty and length >= _MOST_EMPTY_LINES:
            found.add(at)
        at += length
    return found


def flags_of(old: bytes, new: bytes, redactor: Redactor, *, is_text: bool = True) -> Flags:
    """Return the flags of the new content that the old content hasn't. Only text (`is_text`) can
    hide characters."""
    if old == new:
        return Flags()
    before, after = old.decode(errors="replace"), new.decode(errors="replace")
    return Flags(
        _secret_lines(before, after, redactor), _hidden_lines(before, after) if is_text else ()
    )


def _secret_lines(old: str, new: str, redactor: Redactor) -> tuple[int, ...]:
    without = redactor.text(new)
    if without == new:
        return ()
    known = set(old.split("\n"))
    lines = [
        number
        for number, line in enumerate(new.split("\n"), 1)
        if line not in known and redactor.text(line) != line
    ]
    if not lines and redactor.text(old) == old:  # one that goes over several lines
        same = next(
            (at for at, (one, other) in enumerate(zip(new, without, strict=False)) if one != other),
            0,
        )
        lines = [new.count("\n", 0, same) + 1]
    return tuple(lines[:MOST_LINES])


def _hidden_lines(old: str, new: str) -> tuple[int, ...]:
    odd = {char for char in set(new) - _ORDINARY if not char.isprintable() or is_hidden(char)} - {
        " "
    }
    if not odd:
        return ()
    known = set(old.split("\n"))
    lines: list[int] = []
    for number, line in enumerate(new.split("\n"), 1):
        if line not in known and not odd.isdisjoint(line):
            lines.append(number)
            if len(lines) == MOST_LINES:
                break
    return tuple(lines)
