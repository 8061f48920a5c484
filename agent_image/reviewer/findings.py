"""Findings: the shape of a review, and its parser from a model's reply.

Separate from the loop, because the shape is a contract with the supervisor. The text is a model's
and may echo the code under review, so every field is bounded and every path is checked; nothing
here is shown without escaping.
"""

import json
import re
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Annotated, Literal

import msgspec

Severity = Literal["critical", "high", "medium", "low", "info"]
Conclusion = Literal["approve", "comment", "request_changes"]

# The supervisor takes no longer report; said to the model, which can shorten it.
MAX_REVIEW_BYTES = 1_500_000
OPENING, CLOSING = "<review>", "</review>"
_FENCE = "```"


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One remark. `path` is relative to the workspace (`.` for the whole change), `line` and
    `start_line` count from 1 in the new file; `quote` is the code there, as it stands."""

    path: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    line: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] | None = None
    severity: Severity
    title: Annotated[str, msgspec.Meta(min_length=1, max_length=300)]
    body: Annotated[str, msgspec.Meta(min_length=1, max_length=20_000)]
    suggestion: Annotated[str, msgspec.Meta(max_length=20_000)] | None = None
    start_line: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] | None = None
    quote: Annotated[str, msgspec.Meta(max_length=5_000)] = ""
    confidence: Literal["high", "medium", "low"] = "medium"
    skill: Annotated[str, msgspec.Meta(max_length=100)] = ""


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """The model's conclusion. `left_out`: what it says that it didn't look at; `notes` and
    `confidence` are those of a prompt's answer."""

    summary: Annotated[str, msgspec.Meta(min_length=1, max_length=20_000)]
    verdict: Conclusion
    findings: Annotated[tuple[Finding, ...], msgspec.Meta(max_length=200)]
    notes: tuple[str, ...] = ()
    confidence: Literal["high", "medium", "low", ""] = ""
    left_out: Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=1000)], ...], msgspec.Meta(max_length=500)
    ] = ()


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of the review. Tokens are the model's own counts."""

    turns: int
    input_tokens: int
    output_tokens: int


class TracedCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call of a tool, cut: its input as JSON, and the beginning of its result."""

    tool: str
    input: str
    result: str
    is_error: bool = False


class TracedTurn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One reply of the model, cut, and the calls in it. Times in seconds: until the reply was
    there, and until its calls were done."""

    said: str
    seconds: float
    calls_s: float = 0.0
    input_tokens: int
    output_tokens: int
    calls: tuple[TracedCall, ...] = ()


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /v1/review`. `model` is `recorded` where no model looked at the code;
    `partial` why the review was concluded early, and `left_out` what it didn't look at."""

    model: str
    base: str | None
    head: str | None
    summary: str
    verdict: Conclusion
    findings: tuple[Finding, ...]
    usage: Usage
    turns: tuple[TracedTurn, ...] = ()
    notes: tuple[str, ...] = ()
    confidence: Literal["high", "medium", "low", ""] = ""
    partial: str = ""
    left_out: tuple[str, ...] = ()


class InvalidReviewError(ValueError):
    """No usable review in a reply; the message is written for the model to act on."""


def extract(reply: str) -> Review:
    """Return the checked review between `<review>` tags. Raises `InvalidReviewError` with the fault
    and its place."""
    return find_block(reply, lambda block: msgspec.json.decode(block, type=Review))


def find_block(reply: str, read: Callable[[str], Review]) -> Review:
    """Return what `read` makes of the text between the tags, checked. Raises as `extract`.

    A finding may quote the tags, and prose before the review may too. So the last closing tag
    counts, with the first opening tag from which the text is JSON.
    """
    end = reply.rfind(CLOSING)
    starts = [found.end() for found in re.finditer(re.escape(OPENING), reply) if found.end() <= end]
    if not starts:
        raise InvalidReviewError(f"no complete {OPENING}...{CLOSING} block was found in the reply")
    problem = ""
    for start in starts:
        try:
            review = read(_unfenced(reply[start:end]))
        except (msgspec.DecodeError, UnicodeError) as error:
            problem = problem or str(error)
            continue
        _check_paths(review)
        if len(json.dumps(msgspec.to_builtins(review))) > MAX_REVIEW_BYTES:
            raise InvalidReviewError(
                f"the review is longer than {MAX_REVIEW_BYTES} bytes; keep the findings that matter"
            )
        return review
    raise InvalidReviewError(f"the JSON between the review tags is not valid: {problem}")


def _unfenced(block: str) -> str:
    block = block.strip()
    inner = block.removeprefix(_FENCE).removesuffix(f"\n{_FENCE}")
    if len(inner) != len(block) - 2 * len(_FENCE) - 1:
        return block
    first, _, rest = inner.partition("\n")
    return rest if first.strip() in ("", "json") else block


def _check_paths(review: Review) -> None:
    for number, finding in enumerate(review.findings):
        path = PurePosixPath(finding.path)
        if path.is_absolute() or ".." in path.parts or not finding.path.isprintable():
            raise InvalidReviewError(
                f"the path of findings[{number}] is not a plain path below the workspace - at"
                f" `$.findings[{number}].path`"
            )
