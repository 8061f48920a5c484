"""Tracking: how a further review of a pull request changes the known findings.

Pure. A finding keeps its id over rebases, renames, shifted lines and rewording. The model isn't
asked about earlier findings: each is posted once, a person's decision stands, and a finding whose
code is gone is fixed, whether a reader mentions it or not.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from supervisor.core.forge_acts import SEVERITIES, Severity
from supervisor.reviews.core.diffs import ChangedFile
from supervisor.reviews.core.findings import (
    Finding,
    LinesOf,
    PlacedFinding,
    find_quote,
    folded,
    identity,
)

FindingState = Literal["new", "open", "fixed", "justified", "wont-fix", "stale", "contested"]
Said = Literal["", "justified", "wont-fix"]
SaidScope = Literal["", "pull", "repository"]

# How long a person's decision for a whole repository holds; one for a pull request holds while it
# is open.
REPOSITORY_SAID_S = 180 * 86_400.0
# How many rounds in a row an unposted finding is kept without being seen again.
MOST_UNCONFIRMED = 2
FIRST_STRICT_ROUND, FIRST_SILENT_ROUND = 3, 6
_WORD = re.compile(r"\w+")
# The part of a word that counts (`fails` and `failure` are equal), and the words that are ignored.
_STEM_CHARS = 6
_EMPTY_WORDS = frozenset(
    (
        *("a", "an", "and", "are", "as", "at", "be", "but", "by", "can", "could", "for", "from"),
        *("has", "have", "if", "in", "into", "is", "it", "its", "may", "might", "not", "of", "on"),
        *("or", "should", "so", "such", "than", "that", "the", "then", "there", "this", "to"),
        *("use", "used", "uses", "using", "was", "when", "where", "which", "will", "with"),
        *("without", "would"),
    )
)
# The share of equal words from which two titles count as saying the same: measured on 583 pairs of
# one comment in two wordings and 614 of two comments on one change (72 % and 7 % at 0.4; 31 % and 3
# % at 0.6), words alone, without the path, code and place that are asked for besides.
_ALIKE, _SAME_TITLE, _SAME_WORDS = 0.4, 0.6, 0.8
_NEAR_LINES = 5
_MIN_QUOTE_CHARS = 8


class TrackedFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding over the rounds of its pull request. `line` and `start_line` are those at the
    newest head, 0: nowhere in the change. `new`: found, and to be posted; `open`: posted, or held
    back. `said_until`: seconds since the epoch, None for as long as the pull request is open.
    `unconfirmed`: for how many rounds in a row it waits to be posted without being seen again."""

    id: str
    finding: Finding
    state: FindingState
    line: int = 0
    start_line: int = 0
    is_posted: bool = False
    said: Said = ""
    said_scope: SaidScope = ""
    said_until: float | None = None
    unconfirmed: int = 0


class HeadCode(NamedTuple):
    """The code at the new head: the change against the base, the lines of any file, files that were
    renamed since the last round (old path to new), and the changes since then."""

    files: Sequence[ChangedFile]
    lines_of: LinesOf
    renames: Mapping[str, str] = {}
    touched: Sequence[ChangedFile] = ()


class RoundOutcome(NamedTuple):
    """The outcome of a round. `tracked` is every finding with its new facts. The others are parts
    of it: to be posted now; posted before and still open; posted before and gone now; gone before
    and back; found but below this round's floor."""

    tracked: list[TrackedFinding]
    post: list[TrackedFinding]
    carried: list[TrackedFinding]
    gone: list[TrackedFinding]
    back: list[TrackedFinding]
    kept_back: list[TrackedFinding]
    contested: list[TrackedFinding]


def advance(
    known: Sequence[TrackedFinding],
    found: Sequence[PlacedFinding],
    code: HeadCode,
    *,
    number: int,
    now: float,
    is_wanted: bool = False,
    floor: Severity = "low",
    remembered: Sequence[TrackedFinding] = (),
) -> RoundOutcome:
    """Return the outcome of round `number` (from 1). `is_wanted`: a person asked for a whole
    review. `floor`: the least severity that is posted. `remembered`: people's decisions for the
    whole repository."""
    moved = [_moved(one, code.renames) for one in known]
    matches = _matched(moved, found)
    outcome = RoundOutcome([], [], [], [], [], [], [])

    def may_post(one: TrackedFinding) -> bool:
        return _may_post(one, code, number, is_wanted=is_wanted, floor=floor)

    for position, before in enumerate(moved):
        seen = matches.get(position)
        after = _seen(before, seen, now) if seen is not None else _unseen(before, code)
        _sort_in(outcome, before, after, may_post)
    taken = {id(one) for one in matches.values()}
    for placed in found:
        if id(placed) not in taken:
            fresh = _fresh(placed, [*moved, *remembered], now)
            _sort_in(outcome, None, fresh, may_post)
    return outcome


def say(
    one: TrackedFinding, said: Said, scope: SaidScope, now: float, until: float | None = None
) -> TrackedFinding:
    """Return a finding with a person's decision, which holds until `until` or for as long as its
    scope says."""
    if until is None and scope == "repository":
        until = now + REPOSITORY_SAID_S
    state: FindingState = said or "open"
    return replace(one, said=said, said_scope=scope, said_until=until, state=state)


def is_said(one: TrackedFinding, now: float) -> bool:
    """Return whether a person's decision on a finding still holds."""
    return bool(one.said) and (one.said_until is None or now < one.said_until)


def same(one: Finding, other: Finding) -> bool:
    """Return whether two findings are about the same thing: same rule class, path and quoted code,
    or so similar that one model only worded it differently."""
    if identity(one) == identity(other):
        return True
    if one.path != other.path:
        return False
    alike = _alike(one.title, other.title)
    quotes = folded(one.quote), folded(other.quote)
    short, long = sorted(quotes, key=len)
    if short and short in long and (len(short) >= _MIN_QUOTE_CHARS or short == long):
        return one.skill == other.skill or alike >= _ALIKE
    if all(quotes):
        # Findings about different code are different, unless almost every word is the same.
        return alike >= _SAME_WORDS and _is_near(one, other)
    return alike >= _SAME_TITLE or (
        alike >= _ALIKE and one.skill == other.skill and _is_near(one, other)
    )


# -- inside ---------------------------------------------------------------------------------------


def _moved(one: TrackedFinding, renames: Mapping[str, str]) -> TrackedFinding:
    path = renames.get(one.finding.path)
    return one if path is None else replace(one, finding=replace(one.finding, path=path))


def _matched(
    known: Sequence[TrackedFinding], found: Sequence[PlacedFinding]
) -> dict[int, PlacedFinding]:
    """Return the new findings that match a known one, by the known one's position; the surest
    matches count first."""
    matches: dict[int, PlacedFinding] = {}
    taken: set[int] = set()

    def match(is_it: Callable[[TrackedFinding, PlacedFinding], bool]) -> None:
        for number, placed in enumerate(found):
            if number in taken:
                continue
            for position, one in enumerate(known):
                if position not in matches and is_it(one, placed):
                    matches[position] = placed
                    taken.add(number)
                    break

    # One that was read from its comment has its short id alone.
    match(lambda one, placed: placed.id.startswith(one.id))
    match(lambda one, placed: identity(one.finding) == identity(placed.finding))
    match(lambda one, placed: same(one.finding, placed.finding))
    return matches


def _seen(before: TrackedFinding, placed: PlacedFinding, now: float) -> TrackedFinding:
    """Return a known finding that was reported again; once posted, its first wording stays."""
    here = replace(before, line=placed.line, start_line=placed.start_line, unconfirmed=0)
    if is_said(before, now):
        return replace(here, state=before.said or "wont-fix")
    if before.state == "contested":
        return here
    if not before.is_posted:
        here = replace(here, finding=placed.finding)
    state: FindingState = "new" if before.state == "new" and not before.is_posted else "open"
    return replace(here, state=state, said="", said_scope="", said_until=None)


def _unseen(before: TrackedFinding, code: HeadCode) -> TrackedFinding:
    """Return a known finding that wasn't reported again, judged by the code."""
    if before.said:
        return before
    path, quote = before.finding.path, before.finding.quote
    lines = code.lines_of(path)
    if before.state in ("fixed", "stale"):
        is_back = before.is_posted and lines and find_quote(quote, lines, 1, within=len(lines))
        if not is_back:
            return before
        before = replace(before, state="open")
    if lines is None:
        return replace(before, state="stale", line=0, start_line=0)
    start, line = before.start_line, before.line
    if folded(quote):
        place = find_quote(quote, lines, max(1, line), within=len(lines))
        if place is None:
            is_in = any(one.path == path for one in code.files)
            return replace(before, state="fixed" if is_in else "stale", line=0, start_line=0)
        start, line = place
    elif line and _touches(code.touched, path, start or line, line):
        return replace(before, state="fixed", line=0, start_line=0)
    shown = any(one.path == path and one.holds(start, line) for one in code.files)
    here = replace(before, line=line if shown else 0, start_line=start if shown else 0)
    if before.is_posted or before.state != "new":
        return here
    if before.unconfirmed >= MOST_UNCONFIRMED:
        return replace(here, state="stale")
    return replace(here, unconfirmed=before.unconfirmed + 1)


def _fresh(placed: PlacedFinding, known: Sequence[TrackedFinding], now: float) -> TrackedFinding:
    one = TrackedFinding(
        id=placed.id,
        finding=placed.finding,
        state="new",
        line=placed.line,
        start_line=placed.start_line,
    )
    for other in known:
        if is_said(other, now) and same(other.finding, placed.finding):
            return replace(
                one,
                state=other.said or "wont-fix",
                said=other.said,
                said_scope=other.said_scope,
                said_until=other.said_until,
            )
    if any(_undoes(placed.finding, other.finding) for other in known):
        return replace(one, state="contested")
    return one


def _undoes(later: Finding, earlier: Finding) -> bool:
    """Return whether a finding criticises code that an earlier finding asked for."""
    quoted = {folded(line) for line in later.quote.splitlines()} - {""}
    asked = {folded(line) for line in (earlier.suggestion or "").splitlines()} - {""}
    was = {folded(line) for line in earlier.quote.splitlines()}
    return later.path == earlier.path and bool(quoted) and quoted <= asked - was


def _sort_in(
    outcome: RoundOutcome,
    before: TrackedFinding | None,
    after: TrackedFinding,
    may_post: Callable[[TrackedFinding], bool],
) -> None:
    is_new = after.state == "new" or (after.state == "open" and not after.is_posted)
    if is_new:
        wanted = (before is not None and before.state == "new") or may_post(after)
        after = replace(after, state="new" if wanted else "open")
        (outcome.post if wanted else outcome.kept_back).append(after)
    elif after.state == "open":
        was_gone = before is not None and before.state in ("fixed", "stale")
        (outcome.back if was_gone else outcome.carried).append(after)
    elif after.state == "contested":
        outcome.contested.append(after)
    elif (
        after.state in ("fixed", "stale")
        and after.is_posted
        and before is not None
        and before.state != after.state
    ):
        outcome.gone.append(after)
    outcome.tracked.append(after)


def _may_post(
    one: TrackedFinding, code: HeadCode, number: int, *, is_wanted: bool, floor: Severity
) -> bool:
    """Return whether a round posts a finding: later rounds post fewer, whatever the model says."""
    severity = one.finding.severity
    if SEVERITIES.index(severity) > SEVERITIES.index(floor):
        return False
    if is_wanted or number <= 1:
        return True
    if number >= FIRST_SILENT_ROUND:
        return False
    if number < FIRST_STRICT_ROUND:
        return severity != "low"
    return severity in ("critical", "high") and _touches(
        code.touched, one.finding.path, one.start_line, one.line
    )


def _touches(touched: Sequence[ChangedFile], path: str, start: int, line: int) -> bool:
    return any(
        one.path == path and any(part.first <= line and start <= part.last for part in one.hunks)
        for one in touched
    )


def _alike(one: str, other: str) -> float:
    """Return the share of words that two titles have in common, from 0 to 1."""
    left, right = _words(one), _words(other)
    return len(left & right) / len(left | right) if left | right else 0.0


def _words(text: str) -> set[str]:
    words = set(_WORD.findall(text.casefold())) - _EMPTY_WORDS
    return {word[:_STEM_CHARS] for word in words}


def _is_near(one: Finding, other: Finding) -> bool:
    if one.line is None or other.line is None:
        return one.line == other.line
    return abs(one.line - other.line) <= _NEAR_LINES
