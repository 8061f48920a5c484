"""Worst cases for readers of hostile text: made from each expression itself, and how long they
take (law 14).

A case is a piece of text that is repeated up to a size, with what may stand before and behind it.
Time is that of this process' CPU: what else runs here doesn't count.
"""

import gc
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator

# The parser of `re` itself; no public name gives its tree.
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as sre_parser  # type: ignore[attr-defined]
from types import FrameType
from typing import Any, NamedTuple

LARGE = 64_000
# Beyond 10,000 characters many a text is refused unread.
SMALL = 4_000
# CPU time at four times the size: twice that of a linear reader.
MOST_GROWTH = 8.0
# What takes less at 64 kB holds nothing, and is measured too badly to compare.
FLOOR_S = 0.03
# CPU time that a case gets; what takes more is as good as endless.
MOST_S = 3.0
# What ends a text so that an expression fails at its end.
_ENDS = ("", "\0", "\n")
_OPENING, _CLOSING = "([{<\"'`", ")]}>\"'`"


class Case(NamedTuple):
    """`before`, then `unit` as often as it fits, then `behind`."""

    unit: str
    before: str = ""
    behind: str = ""

    def text(self, size: int) -> str:
        times = max(1, (size - len(self.before) - len(self.behind)) // len(self.unit))
        return self.before + self.unit * times + self.behind

    def __str__(self) -> str:
        shown = [repr(one[:40]) for one in (self.before, self.unit, self.behind)]
        return f"{shown[0]} + {shown[1]} * n + {shown[2]}"


class Slow(NamedTuple):
    """What a reader took for its slowest case, in seconds; None where it was ended."""

    case: Case
    at_middle: float
    at_large: float | None

    @property
    def is_bad(self) -> bool:
        return self.at_large is None or (
            self.at_large > FLOOR_S and self.at_large > MOST_GROWTH * self.at_middle
        )


class _EndedError(BaseException):
    pass


def _end(_number: int, _frame: FrameType | None) -> None:
    raise _EndedError


def taken_s(read: Callable[[str], object], text: str, rounds: int = 1) -> float | None:
    """CPU seconds, the best of some rounds; None where it had to be ended."""
    best = MOST_S
    before = signal.signal(signal.SIGVTALRM, _end)
    # A collection walks whatever the tests before left behind: not the reader's time.
    collects = gc.isenabled()
    gc.disable()
    try:
        for _ in range(rounds):
            signal.setitimer(signal.ITIMER_VIRTUAL, MOST_S)
            start = time.process_time()
            read(text)
            taken = time.process_time() - start
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            best = min(best, taken)
    except _EndedError:
        return None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        if collects:
            gc.enable()
    return best


def _often_s(read: Callable[[str], object], case: Case, size: int) -> float:
    """CPU seconds of what takes little, by many rounds: some kernels count in steps of 10 ms. Each
    text is another one, since some readers know what they read last."""
    start, times = time.process_time(), 0
    while (taken := time.process_time() - start) < 0.1 and times < 200:
        read(case.text(size + times * len(case.unit)))
        times += 1
    return taken / times


def slowest(read: Callable[[str], object], cases: Iterable[Case], most: int = LARGE) -> Slow | None:
    """The case that grows most beyond what is allowed, at 4 kB or at `most`, else that which takes
    longest."""
    worst: Slow | None = None
    for case in cases:
        for size in dict.fromkeys((min(SMALL, most), most)):
            # What grows too fast does so each time; what was disturbed once doesn't.
            for _ in range(3):
                one = _measured(read, case, size)
                if not one.is_bad:
                    break
            else:
                return one
            if worst is None or (one.at_large or 0) > (worst.at_large or 0):
                worst = one
    return worst


def _measured(read: Callable[[str], object], case: Case, most: int) -> Slow:
    large, middle = case.text(most), case.text(most // 4)
    once = taken_s(read, large)
    if once is None:
        return Slow(case, taken_s(read, middle) or MOST_S, None)
    if once <= FLOOR_S:
        return Slow(case, once / 4, once)
    return Slow(case, _often_s(read, case, most // 4), taken_s(read, large, 3))


def of_tokens(tokens: Iterable[str]) -> Iterator[Case]:
    """Each token repeated, behind each opening one, nested and left open."""
    for one in dict.fromkeys(tokens):
        yield Case(one)
        for behind in _ENDS[1:3]:
            yield Case(one, behind=behind)
        yield Case(f"{one} ")
        yield Case(f"{one}\n")
        for opening, closing in zip(_OPENING, _CLOSING, strict=True):
            yield Case(one, before=opening)
            yield Case(f"{opening}{one}")
            yield Case(f"{one}{closing}")


def of_expression(expression: re.Pattern[Any], most: int) -> list[Case]:
    """Each piece of it, and each run of its pieces from a start on, repeated behind what leads
    there; and its literal characters, two and two. Of all these at most so many, evenly drawn."""
    text = expression.pattern
    text = text.decode("latin-1") if isinstance(text, bytes) else text
    tree = sre_parser.parse(text, expression.flags & ~re.DEBUG)
    found: dict[Case, None] = {}
    units = dict.fromkeys(_units(tree, ""))
    for behind in _ENDS:
        for separator in ("", " ", "\n"):
            for before, unit in units:
                for start in ("", before):
                    if unit:
                        found[Case(unit + separator, start, behind)] = None
    letters = dict.fromkeys(_literals(tree))
    for one in letters:
        for other in letters:
            found |= dict.fromkeys([Case(one + other), Case(other, before=one)])
    cases = list(found)
    return cases[:: max(1, -(-len(cases) // most))]


def _literals(tree: Any) -> Iterator[str]:
    for item in tree:
        kind, value = item
        if kind in (sre.LITERAL, sre.NOT_LITERAL):
            yield chr(value)
        elif kind is sre.IN:
            yield from (chr(code) for part, code in value if part is sre.LITERAL)
        for inner in _inside(item):
            yield from _literals(inner)


def _units(tree: Any, before: str) -> Iterator[tuple[str, str]]:
    """(what stands before, what is repeated), for every stretch of items of every sequence."""
    lead = before
    items = list(tree)
    for at, item in enumerate(items):
        for piece in _samples(item):
            yield lead, piece
        for inner in _inside(item):
            yield from _units(inner, lead)
        for end in range(at + 2, min(len(items), at + 6) + 1):
            yield lead, "".join(_sample(one) for one in items[at:end])
            yield lead, "".join([*_samples(one), ""][-2] for one in items[at:end] if _sample(one))
        lead += _sample(item)
    if len(items) > 1:
        yield before, lead.removeprefix(before)


def _inside(item: Any) -> list[Any]:
    kind, value = item
    if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        return [value[2]]
    if kind is sre.SUBPATTERN:
        return [value[3]]
    if kind is sre.BRANCH:
        return list(value[1])
    if kind in (sre.ASSERT, sre.ASSERT_NOT):
        return [value[1]]
    if kind is sre.ATOMIC_GROUP:
        return [value]
    if kind is sre.GROUPREF_EXISTS:
        return [one for one in value[1:] if one is not None]
    return []


def _sample(item: Any) -> str:
    return next(iter(_samples(item)), "")


def _samples(item: Any) -> Iterator[str]:
    """Texts that an item takes, the plainest first."""
    kind, value = item
    if kind is sre.LITERAL:
        yield chr(value)
    elif kind is sre.NOT_LITERAL:
        yield "a" if value != ord("a") else "b"
    elif kind is sre.ANY:
        yield "a"
    elif kind is sre.IN:
        yield from _members(value)
    elif kind in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        least = max(1, min(value[0], 300))
        for one in _samples_of(value[2]):
            yield one * least
    elif kind is sre.BRANCH:
        for branch in value[1]:
            yield from _samples_of(branch)
    elif kind is sre.SUBPATTERN:
        yield from _samples_of(value[3])
    elif kind is sre.ATOMIC_GROUP:
        yield from _samples_of(value)


def _samples_of(tree: Any) -> Iterator[str]:
    items = list(tree)
    if len(items) == 1:
        yield from _samples(items[0])
    else:
        yield "".join(map(_sample, items))


def _members(items: Any) -> Iterator[str]:
    """A character of each part of a class; of a negated one what it takes."""
    if items and items[0][0] is sre.NEGATE:
        out = {code for kind, code in items[1:] if kind is sre.LITERAL}
        ranges = [code for kind, code in items[1:] if kind is sre.RANGE]
        spaces = any(kind is sre.CATEGORY for kind, _ in items[1:])
        for char in "a1 -!" if not spaces else "a-!":
            if ord(char) not in out and not any(a <= ord(char) <= b for a, b in ranges):
                yield char
        return
    for kind, code in items:
        if kind is sre.LITERAL:
            yield chr(code)
        elif kind is sre.RANGE:
            yield chr(code[0])
        elif kind is sre.CATEGORY:
            name = str(code)
            yield (
                " "
                if name.endswith("_SPACE") and "NOT" not in name
                else ("1" if name.endswith("CATEGORY_DIGIT") else "a")
            )
