"""What a review's text says of the rounds before it. Pure; templates over facts, no model's words
but titles, shown as plain text."""

from collections.abc import Sequence

from supervisor.core.review_markdown import plain
from supervisor.reviews.core.rounds import RoundOutcome, TrackedFinding

MOST_LISTED = 30


def round_sections(outcome: RoundOutcome, *, number: int, threads_stay: bool) -> list[str]:
    """Return the lines that a review's text gets from its rounds. `threads_stay`: the token may not
    resolve what is fixed, so that a reader has to be told."""
    lines: list[str] = []
    if number > 1:
        lines += [f"Round {number}.", ""]
    lines += _part("Open from before", outcome.carried)
    lines += _part("Back again", outcome.back)
    lines += _part("Fixed since", [one for one in outcome.gone if one.state == "fixed"])
    lines += _part("No longer part of the change", _with_state(outcome.gone, "stale"))
    if threads_stay and outcome.gone:
        lines += ["Their threads stay open here: the App may not resolve them.", ""]
    unconfirmed = sum(one.unconfirmed > 0 for one in outcome.post)
    if unconfirmed:
        lines += [f"Found before, and not looked at again in this round: {unconfirmed}.", ""]
    if outcome.kept_back:
        lines += [f"Below what this round posts, and kept: {len(outcome.kept_back)}.", ""]
    return lines


def _with_state(found: Sequence[TrackedFinding], state: str) -> list[TrackedFinding]:
    return [one for one in found if one.state == state]


def _part(title: str, found: Sequence[TrackedFinding]) -> list[str]:
    if not found:
        return []
    lines = [f"**{title}**", ""]
    for one in found[:MOST_LISTED]:
        words = plain(one.finding.title, one_line=True)
        where = plain(one.finding.path, one_line=True)
        lines.append(f"- {one.finding.severity}: {words} ({where}) `{one.id[:8]}`")
    if len(found) > MOST_LISTED:
        lines.append(f"- and {len(found) - MOST_LISTED} more")
    return [*lines, ""]
