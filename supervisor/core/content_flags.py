"""What a person must not overlook in a file's new text: what looks like a secret, and characters that don't show. Pure.

It is separate from the card because whoever answers many changes at once asks only this. It looks at what is new: a secret
or an odd character that the old text had, too, is no news. It must never hold a secret: only the numbers of lines.
"""

from typing import Literal

import msgspec

from supervisor.core.hidden import is_hidden
from supervisor.core.redact import Redactor

FlagName = Literal["secret", "hidden"]
MOST_LINES = 20
# Controls that are part of ordinary text: tab, form feed, and the carriage return of CRLF.
_ORDINARY = frozenset("\t\n\r\f")


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


def flags_of(old: bytes, new: bytes, redactor: Redactor, *, is_text: bool = True) -> Flags:
    """What the new content has and the old one hasn't. Only what `is_text` has characters to hide."""
    if old == new:
        return Flags()
    before, after = old.decode(errors="replace"), new.decode(errors="replace")
    return Flags(_secret_lines(before, after, redactor), _hidden_lines(before, after) if is_text else ())


def _secret_lines(old: str, new: str, redactor: Redactor) -> tuple[int, ...]:
    without = redactor.text(new)
    if without == new:
        return ()
    known = set(old.split("\n"))
    lines = [
        number for number, line in enumerate(new.split("\n"), 1) if line not in known and redactor.text(line) != line
    ]
    if not lines and redactor.text(old) == old:  # one that goes over several lines
        same = next((at for at, (one, other) in enumerate(zip(new, without, strict=False)) if one != other), 0)
        lines = [new.count("\n", 0, same) + 1]
    return tuple(lines[:MOST_LINES])


def _hidden_lines(old: str, new: str) -> tuple[int, ...]:
    odd = {char for char in set(new) - _ORDINARY if not char.isprintable() or is_hidden(char)} - {" "}
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
