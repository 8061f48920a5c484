"""Answers of an agent in quarantine: strict JSON, checked against the manifest, made inert.

    answer      `{verdict, summary, findings[], notes[]}`, nothing else, between `<review>` tags
                where there is more around it
    finding     its path is in the manifest, and its quote stands at its line; else it is dropped
                and counted
    text        no HTML comment, no hidden character, no image, no link, no `@name`, no `#123`, no
                slash command, in whichever reader it is shown

Pure. Code that passes a finding on composes it from templates: no model with tools reads it.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from supervisor.core.forge_acts import Confidence, ReviewVerdict
from supervisor.core.review_markdown import parted
from supervisor.core.text.display import visible

OPENING, CLOSING = "<review>", "</review>"
MOST_FINDINGS = 200
# The path of a finding about the whole change rather than a line.
WHOLE = "."
# The number of opening tags that are tried.
MOST_BLOCKS = 50
DropReason = Literal["shape", "path", "quote"]
_SPACES = re.compile(r"\s+")
_FENCE = "```"

_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
# Elements that load, link, or act; others are shown as text by every one of our templates.
_ELEMENT = re.compile(
    r"</?(?:a|area|audio|base|button|embed|form|iframe|image|img|input|link|meta|object|picture"
    r"|script|source|style|svg|track|video)\b[^>]*>?",
    re.IGNORECASE,
)
# Brackets that make an image or a link. Code has them, too, so they are only separated.
_BRACKETS = re.compile(r"!(?=\[)|\](?=[(\[:])")
# A scheme that a reader of Markdown knows has 32 characters at most.
_ADDRESS = re.compile(
    r"\b(?:[a-z][a-z0-9+.-]{0,63}://|www\.|(?:mailto|xmpp|javascript):|data:[a-z]+/)\S*",
    re.IGNORECASE,
)
_ADDRESS_HOST = re.compile(r"(?:://|www\.)(?:[^/@\s]*@)?([A-Za-z0-9.-]{0,100})")
_ENTITY = re.compile(r"&(?=#|[A-Za-z][A-Za-z0-9]*;)")
_COMMAND = re.compile(r"^([ \t>*-]*)/(?=[A-Za-z])", re.MULTILINE)


class BadAnswerError(ValueError):
    """Raised for a text that isn't an answer; the message is why, in a few words."""


class QuarantinedFinding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One remark. `line` and `start_line` count from 1; `quote` is the code there."""

    path: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    line: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] | None = None
    start_line: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] | None = None
    severity: Literal["critical", "high", "medium", "low", "info"]
    confidence: Confidence = "medium"
    title: Annotated[str, msgspec.Meta(min_length=1, max_length=300)]
    body: Annotated[str, msgspec.Meta(min_length=1, max_length=20_000)]
    quote: Annotated[str, msgspec.Meta(max_length=5_000)] = ""
    suggestion: Annotated[str, msgspec.Meta(max_length=20_000)] | None = None
    skill: Annotated[str, msgspec.Meta(max_length=100)] = ""


class QuarantineAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The valid part of an answer, inert. `dropped` counts the findings that weren't valid,
    `defused` the texts in which something would have acted."""

    verdict: ReviewVerdict
    summary: str
    findings: tuple[QuarantinedFinding, ...]
    notes: tuple[str, ...] = ()
    dropped: dict[DropReason, int] = {}
    defused: int = 0


class _Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    verdict: ReviewVerdict
    summary: Annotated[str, msgspec.Meta(min_length=1, max_length=20_000)]
    findings: Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MOST_FINDINGS)]
    notes: Annotated[
        list[Annotated[str, msgspec.Meta(max_length=5_000)]], msgspec.Meta(max_length=50)
    ] = []


class ReadAnswer(NamedTuple):
    """A well-formed answer, before its findings are checked against the code."""

    verdict: ReviewVerdict
    summary: str
    findings: list[QuarantinedFinding]
    notes: list[str]
    misshapen: int

    @property
    def paths(self) -> set[str]:
        """Return the paths whose lines are needed to check the findings."""
        return {one.path for one in self.findings}


type LinesOfFile = Mapping[str, Sequence[str]]


def read_answer(text: str) -> ReadAnswer:
    """Return the answer in an agent's text: the last block, else the whole. Raise `BadAnswerError`
    if it isn't one.

    A finding may quote the tags. So the last closing tag counts, with the first opening tag from
    which the text is an answer.
    """
    body, closed, _ = text.rpartition(CLOSING)
    blocks = body.split(OPENING)[1:] if closed else []
    tried = range(min(len(blocks), MOST_BLOCKS))
    problem = ""
    for place in [OPENING.join(blocks[number:]) for number in tried] or [text]:
        try:
            return _read(msgspec.json.decode(_unfenced(place.strip()), type=_Answer))
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            problem = problem or str(error)[:300]
    raise BadAnswerError(f"it isn't the JSON that was asked for: {problem}")


def _unfenced(text: str) -> str:
    """Return the content of a Markdown fence; a text without a fence is unchanged."""
    inner = text.removeprefix(_FENCE).removesuffix(f"\n{_FENCE}")
    if len(inner) != len(text) - 2 * len(_FENCE) - 1:
        return text
    first, _, rest = inner.partition("\n")
    return rest if first.strip() in ("", "json") else text


def _read(answer: _Answer) -> ReadAnswer:
    findings, misshapen = [], 0
    for raw in answer.findings:
        try:
            findings.append(msgspec.json.decode(raw, type=QuarantinedFinding))
        except msgspec.DecodeError:
            misshapen += 1
    return ReadAnswer(answer.verdict, answer.summary, findings, answer.notes, misshapen)


def checked_answer(
    answer: ReadAnswer,
    manifest: Collection[str],
    lines: LinesOfFile,
    redact: Callable[[str], str],
) -> QuarantineAnswer:
    """Return the valid part of an answer, made inert. `lines` are those of the files that it names,
    as far as they could be read; `redact` removes secrets."""
    dropped: Counter[DropReason] = Counter()
    dropped["shape"] += answer.misshapen
    kept = []
    for finding in answer.findings:
        is_of_all = finding.path == WHOLE and finding.line is None and not finding.quote
        if finding.path not in manifest and not is_of_all:
            dropped["path"] += 1
        elif finding.quote and not _stands(finding, lines.get(finding.path, ())):
            dropped["quote"] += 1
        else:
            kept.append(_inert_finding(finding, redact))
    texts = [answer.summary, *answer.notes]
    texts += [text for one in answer.findings for text in (one.title, one.body, one.skill)]
    return QuarantineAnswer(
        defused=sum(inert(text) != text for text in texts),
        verdict=answer.verdict,
        summary=_said(answer.summary, redact, 20_000),
        findings=tuple(kept),
        notes=tuple(_said(one, redact, 5_000) for one in answer.notes),
        dropped={reason: count for reason, count in dropped.items() if count},
    )


def inert(text: str) -> str:
    """Return the text in a form that no reader of Markdown or HTML, and no forge, acts on."""
    text = visible(text.replace("\r\n", "\n"))
    # Removing one may leave another of the same kind behind.
    while (after := _without_markup(text)) != text:
        text = after
    return _COMMAND.sub(r"\1/ ", parted(text))


def _without_markup(text: str) -> str:
    text = _ELEMENT.sub(" ", _COMMENT.sub(" ", text))
    text = _BRACKETS.sub(lambda found: f"{found[0]} ", _ENTITY.sub("& ", text))
    return _ADDRESS.sub(_link_words, text)


def _link_words(found: re.Match[str]) -> str:
    host = _ADDRESS_HOST.search(found[0])
    return f"(a link to {host[1].replace('.', ' . ')})" if host and host[1] else "(a link)"


def _inert_finding(finding: QuarantinedFinding, redact: Callable[[str], str]) -> QuarantinedFinding:
    """Make a finding inert. Code is unchanged except for secrets: it is only shown in a block of
    code."""
    suggestion = finding.suggestion
    return msgspec.structs.replace(
        finding,
        title=_said(" ".join(finding.title.split()), redact, 300),
        body=_said(finding.body, redact, 20_000),
        quote=redact(finding.quote),
        suggestion=None if suggestion is None else redact(visible(suggestion))[:20_000],
        skill=redact(inert(finding.skill))[:100],
    )


def _said(text: str, redact: Callable[[str], str], most: int) -> str:
    return redact(inert(text)).strip()[:most] or "(nothing is left of it)"


def _stands(finding: QuarantinedFinding, lines: Sequence[str]) -> bool:
    """Return whether the quoted code is at its stated line: its first line at `start_line` or
    `line`, or its last one at `line`."""
    wanted = [folded for one in finding.quote.splitlines() if (folded := _folded(one))]
    line = finding.line
    if not wanted or line is None:
        return False
    starts = {finding.start_line or line, line, line - len(wanted) + 1}
    return any(_stands_at(wanted, lines, start) for start in starts)


def _stands_at(wanted: Sequence[str], lines: Sequence[str], start: int) -> bool:
    there = [folded for one in lines[max(0, start - 1) :][:200] if (folded := _folded(one))]
    first = lines[start - 1 : start]
    return (
        start >= 1
        and bool(first and _folded(first[0]))
        and len(there) >= len(wanted)
        and all(quoted in line for quoted, line in zip(wanted, there, strict=False))
    )


def _folded(text: str) -> str:
    return _SPACES.sub(" ", text).strip()


def dropped_words(dropped: Mapping[DropReason, Any]) -> str:
    """Return what was dropped, in words; empty if nothing was."""
    said: dict[DropReason, str] = {
        "shape": "not shaped as a finding",
        "path": "of a file that the manifest hasn't",
        "quote": "whose quote isn't at its line",
    }
    found = [f"{dropped[reason]} {words}" for reason, words in said.items() if dropped.get(reason)]
    return f"dropped: {', '.join(found)}" if found else ""
