"""Findings: a reader's reports, checked against the code before anybody sees them.

Pure. The text is a model's, and may echo the code under review: every field is bounded, a quote
must be at its stated place, and a finding that has no place inside the change is kept for the
summary.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

from supervisor.core.forge_acts import SEVERITIES, Confidence, ReviewVerdict, Severity
from supervisor.reviews.core.diffs import ChangedFile

# How far from its stated place a quote is searched for, and how many lines are compared.
NEAR_LINES = 20
MOST_COMPARED = 500_000
_SPACES = re.compile(r"\s+")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A remark, as a reader reports it. `line` counts from 1 in the new file."""

    path: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    line: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] | None = None
    start_line: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] | None = None
    severity: Severity
    confidence: Confidence = "medium"
    title: Annotated[str, msgspec.Meta(min_length=1, max_length=300)]
    body: Annotated[str, msgspec.Meta(min_length=1, max_length=20_000)]
    quote: Annotated[str, msgspec.Meta(max_length=5_000)] = ""
    suggestion: Annotated[str, msgspec.Meta(max_length=20_000)] | None = None
    skill: Annotated[str, msgspec.Meta(max_length=100)] = ""


class PlacedFinding(NamedTuple):
    """A finding with its id, and the lines where a forge accepts it; `line` 0: nowhere in the
    change."""

    id: str
    finding: Finding
    start_line: int
    line: int


# Returns the lines of a file at the head; None if there is no such file.
type LinesOf = Callable[[str], Sequence[str] | None]


def read_review(review: Mapping[str, Any]) -> tuple[ReviewVerdict, str, list[Finding]]:
    """Return verdict, summary and findings of a recorded review. Raise `msgspec.ValidationError` if
    it isn't one. Mere notes are left out."""
    found = [one for one in review["findings"] if one["severity"] in SEVERITIES]
    verdict = msgspec.convert(review["verdict"], ReviewVerdict)
    return verdict, str(review["summary"]), msgspec.convert(found, list[Finding])


def place(
    findings: Sequence[Finding], files: Sequence[ChangedFile], lines_of: LinesOf
) -> list[PlacedFinding]:
    """Return the findings, gravest first, without duplicates, each at a place where it can stand.
    Equal code at another place of a file is another finding."""
    by_path = {one.path: one for one in files}
    placed: dict[tuple[str, int], PlacedFinding] = {}
    counts: dict[str, int] = {}
    for finding in sorted(findings, key=_order):
        start, line = _lines(finding, by_path.get(finding.path), lines_of)
        known = identity(finding)
        if (known, line) not in placed:
            counts[known] = counts.get(known, 0) + 1
            own = identity(finding, counts[known])
            placed[known, line] = PlacedFinding(own, finding, start, line)
    return list(placed.values())


def identity(finding: Finding, occurrence: int = 1) -> str:
    """Return a finding's id, which survives rebases and rewording: a hash of its kind, its path and
    the quoted code, or its title if it quotes none. `occurrence` counts equal findings in one file.
    """
    about = folded(finding.quote) or folded(finding.title).casefold()
    parts = (finding.skill, finding.path, about, *([occurrence] if occurrence > 1 else []))
    return hashlib.blake2b(msgspec.msgpack.encode(parts), digest_size=8).hexdigest()


def _lines(finding: Finding, file: ChangedFile | None, lines_of: LinesOf) -> tuple[int, int]:
    """Return the first and last line of a finding; zeros if it lies outside the change."""
    if file is None or finding.line is None:
        return 0, 0
    end = finding.line
    start = min(finding.start_line or end, end)
    if finding.quote:
        lines = lines_of(finding.path)
        found = None if lines is None else find_quote(finding.quote, lines, start)
        if found is None:
            return 0, 0
        start, end = found
    if file.holds(start, end):
        return start, end
    return (end, end) if file.holds(end, end) else (0, 0)


def find_quote(
    quote: str, lines: Sequence[str], near: int, *, within: int = NEAR_LINES
) -> tuple[int, int] | None:
    """Return the first and last line of the quoted code: the match nearest to its stated place,
    within `within` lines; None if there is none, or the search takes too long."""
    wanted = [text for one in quote.splitlines() if (text := folded(one))]
    if not wanted:
        return None
    first, last = max(1, near - within), min(near + within, len(lines))
    compared = 0
    for start in sorted(range(first, last + 1), key=lambda one: abs(one - near)):
        at, found = start, 0
        while found < len(wanted) and at <= len(lines) and compared < MOST_COMPARED:
            compared += 1
            text = folded(lines[at - 1])
            if text and wanted[found] not in text:
                break
            if text:
                found += 1
            elif at == start:
                break
            at += 1
        if found == len(wanted):
            return start, at - 1
    return None


def _order(finding: Finding) -> tuple[int, str, int]:
    return SEVERITIES.index(finding.severity), finding.path, finding.line or 0


def folded(text: str) -> str:
    """Return a text with its white space collapsed."""
    return _SPACES.sub(" ", text).strip()
