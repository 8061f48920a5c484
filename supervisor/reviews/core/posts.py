"""Posts on a forge: a review's text and its remarks, composed from findings by templates.

Pure. A model's words are shown with their code, lists and emphasis (`safe_markdown`): no link, no
mention, no other markup. Else only text that this module writes itself is Markdown.
"""

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec

from supervisor.core.forge_acts import (
    CONFIDENCES,
    SEVERITIES,
    Act,
    Confidence,
    Forge,
    InlineComment,
    ReviewVerdict,
    Severity,
)
from supervisor.core.review_markdown import fenced, plain
from supervisor.core.safe_markdown import code_span, fitted, safe_line
from supervisor.reviews.core.findings import PlacedFinding
from supervisor.reviews.core.receipts import reason_words
from supervisor.reviews.core.tracking import RoundOutcome, TrackedFinding

# Findings of one review that are remarks beside the code; the rest stand in its text.
MOST_INLINE = 25
MOST_COMMENT_CHARS = 1_000
# GitHub takes 65,536 characters, Bitbucket 32,768.
MOST_BODY_CHARS = 60_000
_MOST_CHARS: dict[Forge, int] = {"github": MOST_BODY_CHARS, "bitbucket": 30_000}
_SUMMARY_CHARS = 4_000
# The maximum number of findings of earlier rounds that are listed, per kind.
MOST_LISTED = 30
_ADDRESS = re.compile(r"\b(?:https?|ftp)://|\bwww\.", re.IGNORECASE)


class PullTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A pull request at one head, as the templates take it."""

    forge: Forge
    repository: str
    number: int
    head: str
    fork: bool = False


# The two ends of a mark: invisible, or a code span where a forge shows HTML as it is.
MARK_START, MARK_END = r"(?:<!-- |`)gatehouse:", r"(?: -->|`)"
_MARK = re.compile(rf"{MARK_START}(note:)?([0-9a-f]+){MARK_END}")
_INVISIBLE = re.compile(r"<!-- gatehouse:(note:)?([0-9a-f]+) -->")
# These, and those of prompts and comments.
_ANY_MARK = re.compile(rf"{MARK_START}[a-z0-9:-]+{MARK_END}")
_COUNTS = re.compile(r"^(?:Findings: ([a-z0-9, ]+)\.|No (?:new )?findings\.)$", re.MULTILINE)


def as_mark(name: str, forge: Forge) -> str:
    """Return the line by which a post of ours is found again: invisible, but where a forge shows
    HTML as it is."""
    return f"<!-- gatehouse:{name} -->" if forge == "github" else f"`gatehouse:{name}`"


def mark(run_id: str, forge: Forge = "github") -> str:
    """Return the line that identifies our review of a run."""
    return as_mark(run_id, forge)


def note_mark(run_id: str, forge: Forge = "github") -> str:
    """Return the line that identifies a later round's review, whose summary is in an earlier
    review."""
    return as_mark(f"note:{run_id}", forge)


def act_mark(request_id: str, forge: Forge = "github") -> str:
    """Return the line that identifies one comment or reply, whatever its text."""
    return as_mark(f"act:{request_id}", forge)


def small(text: str, forge: Forge) -> str:
    """Return a line of ours in small letters, if the forge has them."""
    return f"<sub>{text}</sub>" if forge == "github" else text


def review_act(
    target: PullTarget,
    verdict: ReviewVerdict,
    summary: str,
    findings: Sequence[PlacedFinding],
    *,
    run_id: str,
    sections: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> Act:
    """Return the act that posts a review: up to `MOST_INLINE` findings as remarks beside the code,
    the rest in its text. `sections` are our lines about earlier rounds, `notes` our lines at its
    end."""
    inline = [one for one in findings if one.line][:MOST_INLINE]
    rest = [one for one in findings if one not in inline]
    comments = [comment_of(one) for one in inline]
    severities = [*(one.severity for one in comments), *(one.finding.severity for one in rest)]
    said = [summary, *(text for one in findings for text in words_of(one))]
    lines = [
        "## Review",
        "",
        fitted(summary, _SUMMARY_CHARS),
        "",
        _counts(severities, later=bool(sections)),
        "",
    ]
    for one in rest:
        lines += whole(one)
    lines += sections
    lines += (small(plain(note, one_line=True), target.forge) for note in notes)
    return Act(
        operation="post",
        forge=target.forge,
        repository=target.repository,
        number=target.number,
        head=target.head,
        verdict=verdict,
        body=marked_text(lines, mark(run_id, target.forge), target.forge),
        comments=tuple(comments),
        severity=_gravest(severities),
        confidence=_least_sure(
            [*(one.confidence for one in comments), *(one.finding.confidence for one in rest)]
        ),
        fork=target.fork,
        links=any(_ADDRESS.search(text) for text in said),
    )


def words_of(placed: PlacedFinding) -> tuple[str, ...]:
    """Return a finding's texts as the reader wrote them."""
    finding = placed.finding
    return finding.path, finding.title, finding.body, finding.suggestion or ""


def has_address(text: str) -> bool:
    """Return whether a text has an address that a forge may turn into a link."""
    return bool(_ADDRESS.search(text))


def held_comment(
    target: PullTarget, reason: str, cap: str, refills_at: float | None, *, day: str
) -> Act:
    """Return the comment that says a review waits for money. `reason` is a code of `receipts`,
    `cap` the limit in words. Its mark stays the same all day, so it is posted once a day."""
    when = "When the limit is raised"
    if refills_at is not None:
        when = f"On {datetime.fromtimestamp(refills_at, UTC):%Y-%m-%d at %H:%M} UTC"
    parts = (target.forge, target.repository.lower(), target.number, day)
    digest = hashlib.blake2b(msgspec.msgpack.encode(parts), digest_size=8).hexdigest()
    lines = (
        "## Review",
        "",
        f"The review waits: {reason_words(reason).removeprefix('held: ')}.",
        "",
        f"The limit is {cap}. {when} the newest head is reviewed by itself; nobody has to do"
        " anything.",
        "",
        mark(digest, target.forge),
    )
    return Act(
        operation="comment",
        forge=target.forge,
        repository=target.repository,
        number=target.number,
        head=target.head,
        body="\n".join(lines),
        fork=target.fork,
    )


def run_of(body: str) -> str:
    """Return the run whose summary our post shows; "" if it has no such mark."""
    found = _last_mark(body)
    return found[2] if found and not found[1] else ""


def reviewed_by(body: str) -> str:
    """Return the run that posted a review, also if its summary is in an earlier one; "" for a
    review that isn't ours."""
    found = _last_mark(body)
    return found[2] if found else ""


def _last_mark(body: str) -> re.Match[str] | None:
    """Return the last mark in a post, which is ours; an earlier one is quoted from the code. Where
    a mark of another kind ends the post, it has none of these: they are quoted, too. A code span
    counts at the very end alone: a model may write one."""
    if own := own_mark(body):
        return _MARK.fullmatch(own)
    found = None
    for found in _INVISIBLE.finditer(body):  # noqa: B007
        pass
    return found


def own_mark(body: str) -> str:
    """Return the mark at a post's end, of whatever kind; "" for none."""
    line = body.rstrip().rpartition("\n")[2]
    return line if _ANY_MARK.fullmatch(line) else ""


def without_mark(body: str) -> str:
    """Return a post's text without the mark at its end, which nobody sees there."""
    return body.rstrip().removesuffix(own_mark(body)).rstrip()


def note_act(act: Act) -> Act:
    """Return a later round's review: its comments and verdict under one line of text. Its summary
    replaces the one that is already on the pull request."""
    count = len(act.comments)
    said = f"{count} new finding{'' if count == 1 else 's'}"
    if not count:
        said = "Approved" if act.verdict == "approve" else "Changes are requested"
    body = f"{said}; the summary above is up to date.\n\n{note_mark(run_of(act.body), act.forge)}"
    return msgspec.structs.replace(act, body=body)


def marked(act: Act, request_id: str) -> Act:
    """Return a comment or reply with the mark by which it can be found again."""
    line = act_mark(request_id, act.forge)
    return msgspec.structs.replace(act, body=f"{act.body.rstrip()}\n\n{line}")


def undo_act(
    target: PullTarget,
    review_ids: Sequence[str],
    comment_ids: Sequence[str],
    *,
    by: str,
    run_id: str,
) -> Act:
    """Return the act that takes back a run's post. Its text says who took it back; `comment_ids`
    are deleted, and the `review_ids` with a verdict are dismissed."""
    line = f"This review was taken back by {plain(by, one_line=True)}."
    return Act(
        operation="undo",
        forge=target.forge,
        repository=target.repository,
        number=target.number,
        head=target.head,
        body=line,
        title=run_id,
        fork=target.fork,
        targets=(*review_ids, *(f"review:{one}" for one in comment_ids)),
    )


def taken(act: Act, kept: Collection[str], texts: Mapping[str, str]) -> Act:
    """Return the part of a review that a person approved: the comments of these findings in the
    person's words, and `body` as its text. The mark stays, and the counts say how many remain."""
    comments = [
        msgspec.structs.replace(
            one, body=texts.get(one.finding, one.body)[: _MOST_CHARS[act.forge]]
        )
        for one in act.comments
        if one.finding in kept
    ]
    dropped = [one.severity for one in act.comments if one.finding not in kept]
    body = act.body
    if "body" in texts:
        text = _ANY_MARK.sub("", texts["body"][: _MOST_CHARS[act.forge]]).rstrip()
        body = f"{text}\n\n{own}" if (own := own_mark(act.body)) else text
    found = _COUNTS.search(body)
    if dropped and found:
        parts = [one.split(" ") for one in (found[1] or "").split(", ") if one]
        said = {name: int(count) for count, name in parts}
        left = {name: said.get(name, 0) - dropped.count(name) for name in SEVERITIES}
        severities = [name for name, count in left.items() for _ in range(count)]
        body = body[: found.start()] + _counts(severities) + body[found.end() :]
    levels = [one.severity for one in comments] if len(dropped) < len(act.comments) else []
    return msgspec.structs.replace(
        act,
        comments=tuple(comments),
        body=body,
        severity=_gravest(levels) or act.severity,
        links=act.links or any(_ADDRESS.search(text) for text in texts.values()),
    )


def without_places(act: Act) -> Act:
    """Return the same review with its remarks moved into its text."""
    parts = [f"{code_span(f'{one.path}:{one.line}')}\n\n{one.body}" for one in act.comments]
    line = own_mark(act.body)
    text = [without_mark(act.body), *(line for one in parts for line in ("", one))]
    return msgspec.structs.replace(act, comments=(), body=marked_text(text, line, act.forge))


def marked_text(blocks: Sequence[str], line: str, forge: Forge) -> str:
    """Return as many of these blocks as the forge takes, each whole, then our mark."""
    size, kept = 0, list[str]()
    for one in blocks:
        size += len(one) + 1
        if size > _MOST_CHARS[forge]:
            kept += ["", "(cut here: see the receipt for the rest)"]
            break
        kept.append(one)
    return "\n".join([*kept, "", line])


def comment_of(placed: PlacedFinding) -> InlineComment:
    """Return the remark that shows a finding beside its code."""
    finding = placed.finding
    head = _head(placed)
    suggestion = ""
    if finding.suggestion is not None and len(finding.suggestion) <= MOST_COMMENT_CHARS:
        suggestion = "\n\n" + fenced(finding.suggestion, "suggestion")
    room = max(100, MOST_COMMENT_CHARS - len(head) - len(suggestion) - 2)
    start = placed.start_line if placed.start_line < placed.line else 0
    return InlineComment(
        finding=placed.id,
        path=finding.path,
        line=placed.line,
        start_line=start,
        body=f"{head}\n\n{fitted(finding.body, room)}{suggestion}",
        severity=finding.severity,
        confidence=finding.confidence,
    )


def whole(placed: PlacedFinding) -> list[str]:
    """Return the lines that show a whole finding in a text."""
    finding = placed.finding
    where = finding.path if finding.line is None else f"{finding.path}:{finding.line}"
    body = fitted(finding.body, MOST_COMMENT_CHARS)
    return [_head(placed), "", code_span(where), "", body, ""]


def _head(placed: PlacedFinding) -> str:
    finding = placed.finding
    return f"**{finding.severity}: {safe_line(finding.title)}** `{placed.id[:8]}`"


def _counts(severities: Sequence[Severity], *, later: bool = False) -> str:
    found = [f"{severities.count(one)} {one}" for one in SEVERITIES if one in severities]
    if found:
        return f"Findings: {', '.join(found)}."
    # Open findings of earlier rounds are listed below.
    return "No new findings." if later else "No findings."


def _gravest(severities: Sequence[Severity]) -> Severity | Literal[""]:
    return min(severities, key=SEVERITIES.index, default="")


def _least_sure(confidences: Sequence[Confidence]) -> Confidence | Literal[""]:
    return max(confidences, key=CONFIDENCES.index, default="")


def round_sections(outcome: RoundOutcome, *, number: int, threads_stay: bool) -> list[str]:
    """Return the lines of a review's text about its earlier rounds. `threads_stay`: the App may not
    resolve threads, so the text says that they stay open."""
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
        words, where = safe_line(one.finding.title), code_span(one.finding.path)
        lines.append(f"- {one.finding.severity}: {words} ({where}) `{one.id[:8]}`")
    if len(found) > MOST_LISTED:
        lines.append(f"- and {len(found) - MOST_LISTED} more")
    return [*lines, ""]
