"""Posts of a prompt: a comment on the pull request, or a review beside its code.

Pure, and by templates, as in `posts`: of a model's Markdown, code, lists and emphasis stay.
"""

import re

from supervisor.core.forge_acts import CONFIDENCES, SEVERITIES, Act, Forge
from supervisor.core.review_markdown import plain
from supervisor.core.safe_markdown import code_span, fitted, safe_line
from supervisor.reviews.core import posts
from supervisor.reviews.core.findings import PlacedFinding
from supervisor.reviews.core.posts import MOST_INLINE, PullTarget
from supervisor.reviews.core.prompts import PromptReport

_SUMMARY_CHARS, _DETAILS_CHARS, _NOTE_CHARS = 4_000, 1_000, 500
_MARK = re.compile(rf"{posts.MARK_START}prompt:([a-z0-9-]+):([0-9a-f]+){posts.MARK_END}")


def prompt_mark(prompt_id: str, run_id: str, forge: Forge = "github") -> str:
    """Return the line that identifies a prompt's post."""
    return posts.as_mark(f"prompt:{prompt_id}:{run_id}", forge)


def mark_of(body: str) -> str:
    """Return the mark of a prompt's post; "" if it has none. Only a mark at the end counts: others
    are quoted from the code."""
    found = _own_mark(body)
    return found[0] if found else ""


def prompt_and_run(body: str) -> tuple[str, str]:
    """Return the prompt of a post, and its run; both "" if it has no such mark."""
    found = _own_mark(body)
    return (found[1], found[2]) if found else ("", "")


def _own_mark(body: str) -> re.Match[str] | None:
    return _MARK.fullmatch(posts.own_mark(body))


def prompt_act(target: PullTarget, report: PromptReport, *, run_id: str, recorded: bool) -> Act:
    """Return the act that posts a report: a `review` puts as many findings as possible beside the
    code and the rest in its text; an `issue` puts all in its text. `recorded`: a recorded model was
    used."""
    plan = report.plan
    is_review = plan.comment == "review"
    beside = [one for one in report.findings if one.line][:MOST_INLINE] if is_review else []
    rest = [one for one in report.findings if one not in beside]
    comments = [posts.comment_of(one) for one in beside]
    found = [text for one in report.findings for text in posts.words_of(one)]
    said = [report.summary, *report.notes, *found]
    severities = [one.finding.severity for one in report.findings]
    return Act(
        operation="post" if is_review else "comment",
        forge=target.forge,
        repository=target.repository,
        number=target.number,
        head=target.head,
        verdict="comment" if is_review else "",
        title=plan.id,
        body=_body(report, rest, target.forge, run_id=run_id, recorded=recorded),
        comments=tuple(comments),
        severity=min(severities, key=SEVERITIES.index, default=""),
        confidence=max(
            [report.confidence, *(one.finding.confidence for one in report.findings)],
            key=CONFIDENCES.index,
        ),
        fork=target.fork,
        links=any(posts.has_address(text) for text in said),
    )


def _body(
    report: PromptReport,
    rest: list[PlacedFinding],
    forge: Forge,
    *,
    run_id: str,
    recorded: bool,
) -> str:
    plan = report.plan
    lines = [f"## {plain(plan.title, one_line=True)}", "", fitted(report.summary, _SUMMARY_CHARS)]
    lines += ["", *_FORMATS[plan.format](rest)]
    if report.notes:
        notes = [safe_line(one[:_NOTE_CHARS]) for one in report.notes]
        lines += ["Notes:", "", *(f"- {one}" for one in notes), ""]
    lines += [posts.small(one, forge) for one in _small(report, recorded=recorded)]
    return posts.marked_text(lines, prompt_mark(plan.id, run_id, forge), forge)


def _small(report: PromptReport, *, recorded: bool) -> list[str]:
    said = [f"Prompt `{report.plan.id}` of `.reviewerc`; confidence {report.confidence}."]
    if report.below_floor:
        floor = report.plan.severity_floor
        said.append(f"Left out below the floor {floor}: {report.below_floor}.")
    if report.beyond_limit:
        said.append(f"Left out beyond maxFindings: {report.beyond_limit}.")
    if report.outside:
        said.append(f"Left out outside of its files: {report.outside}.")
    if recorded:
        said.append("A recorded model played this prompt: no model looked at the code.")
    return said


def _findings(rest: list[PlacedFinding]) -> list[str]:
    return [line for one in rest for line in posts.whole(one)]


def _narrative(rest: list[PlacedFinding]) -> list[str]:
    lines: list[str] = []
    for one in rest:
        details = fitted(one.finding.body, _DETAILS_CHARS)
        lines += [f"{safe_line(one.finding.title)} ({_where(one)}):", "", details, ""]
    return lines


def _checklist(rest: list[PlacedFinding]) -> list[str]:
    lines = []
    for one in rest:
        title = safe_line(one.finding.title)
        details = safe_line(one.finding.body[:_DETAILS_CHARS])
        lines.append(f"- [ ] **{one.finding.severity}** {title} ({_where(one)}): {details}")
    return [*lines, ""] if lines else []


def _where(one: PlacedFinding) -> str:
    if one.finding.path == ".":
        return "the whole change"
    path = one.finding.path
    return code_span(path if one.finding.line is None else f"{path}:{one.finding.line}")


_FORMATS = {"findings": _findings, "narrative": _narrative, "checklist": _checklist}
