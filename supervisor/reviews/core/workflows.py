"""A workflow's event as its job reads it, and what the job says afterwards: outputs and a summary.

Pure. Sources: docs.github.com/actions, "Events that trigger workflows", "Workflow commands", "Using
secrets" (forks and Dependabot get none).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from supervisor.core.money import dollars
from supervisor.core.safe_markdown import code_span, fitted, safe_line
from supervisor.errors import UserError
from supervisor.reviews.core import deliveries, receipts
from supervisor.reviews.core.receipts import ReceiptFacts

PULL, COMMENT, BESIDE = "pull_request", "issue_comment", "pull_request_review_comment"
# The name of a webhook's event for each event of a workflow that is one.
WEBHOOKS = {PULL: PULL, "pull_request_target": PULL, COMMENT: COMMENT, BESIDE: BESIDE}
# The events that have the repository's jobs done.
OF_JOBS = ("schedule", "workflow_dispatch")
DEPENDABOT = "dependabot[bot]"
PERMISSIONS = "the job's permissions are in docs/action.md"
MOST_FINDINGS, MOST_OUTPUT_CHARS, MOST_BODY_CHARS = 100, 60_000, 1_000

type AnnotationLevel = Literal["warning", "error"]
# The outcomes by which a workflow's job fails.
FAILURES = ("failed", "refused")
# How an outcome is shown beside the job.
BESIDE_JOB: dict[str, AnnotationLevel] = {
    "failed": "error",
    "refused": "error",
    "held": "warning",
}


class WorkflowEvent(NamedTuple):
    """An event. `webhook`: the webhook's event that it is, "" where the repository's jobs are to be
    done; `number`: the pull request's; `is_without_secrets`: GitHub gives the job no secrets, and a
    token that only reads; `before`: the head before a push, "" where none is named."""

    webhook: str
    number: int
    is_without_secrets: bool
    before: str


class DoneReview(NamedTuple):
    """What became of an event. `facts`: the newest receipt, `is_earlier` if an earlier job left it;
    `findings`: the open ones, as stored;
    `refused`: what no rule allowed; `failed`: what the forge didn't take, and why."""

    facts: ReceiptFacts | None
    verdict: str
    summary: str
    findings: Sequence[Mapping[str, Any]]
    refused: Sequence[str]
    failed: Sequence[tuple[str, str]]
    url: str
    is_earlier: bool = False

    @property
    def outcome(self) -> str:
        """Return the receipt's outcome; `ignored` where there is none."""
        return self.facts.outcome if self.facts else "ignored"

    @property
    def cost(self) -> int:
        """Return what this job's review cost, in pico-dollars."""
        return self.facts.cost if self.facts and not self.is_earlier else 0

    @property
    def has_failed(self) -> bool:
        return bool(self.failed) or (self.outcome in FAILURES and not self.is_earlier)


class DoneJob(NamedTuple):
    """One run of a repository's job: how it ended, why, what it cost in pico-dollars, and the page
    of its pull request or issue, "" for none."""

    name: str
    outcome: str
    reason: str
    cost: int
    url: str


class DoneJobs(NamedTuple):
    """What became of the repository's jobs; `refused` and `failed` as in `DoneReview`."""

    jobs: Sequence[DoneJob]
    refused: Sequence[str]
    failed: Sequence[tuple[str, str]]

    @property
    def outcome(self) -> str:
        """Return the word for all of them: the worst, else whether anything was proposed."""
        known = {one.outcome for one in self.jobs}
        words = (*FAILURES, "held", "proposed", "nothing", "skipped")
        return next((one for one in words if one in known), "ignored")

    @property
    def cost(self) -> int:
        """Return what all of them cost, in pico-dollars."""
        return sum(one.cost for one in self.jobs)

    @property
    def has_failed(self) -> bool:
        return bool(self.failed) or self.outcome in FAILURES


def read_event(name: str, payload: Mapping[str, Any], repository: str) -> WorkflowEvent | None:
    """Return a workflow's event; None for one about no pull request. Raise `UserError` for an event
    that nothing is done for, and one of another repository."""
    if name in OF_JOBS:
        return WorkflowEvent("", 0, is_without_secrets=False, before="")
    if name not in WEBHOOKS:
        known = ", ".join((*WEBHOOKS, *OF_JOBS))
        raise UserError(f"nothing is done for the event `{name[:64]}`", f"use one of {known}")
    if deliveries.repository_name(payload).casefold() != repository.casefold():
        raise UserError("the event is about another repository", "use the event's own workflow")
    number = deliveries.pull_number(payload)
    if name == COMMENT:
        number = deliveries.commented_pull(payload)
    if number is None:
        return None
    before = payload.get("before")
    return WorkflowEvent(
        webhook=WEBHOOKS[name],
        number=number,
        is_without_secrets=name in (PULL, BESIDE)
        and (deliveries.is_from_fork(payload) or deliveries.sender(payload) == DEPENDABOT),
        before=before if isinstance(before, str) and deliveries.is_sha(before) else "",
    )


def command(level: AnnotationLevel, title: str, text: str) -> str:
    """Return the line that shows an annotation beside the job."""
    shown = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return f"::{level} title={title}::{shown}"


def annotations(done: DoneReview | DoneJobs) -> list[str]:
    """Return the lines that show what wasn't done beside the job."""
    lines = [command("warning", "Gatehouse: not allowed", one) for one in done.refused]
    lines += [
        command("warning", "Gatehouse: refused by GitHub", f"{what}: {why}; {PERMISSIONS}")
        for what, why in done.failed
    ]
    if isinstance(done, DoneJobs):
        return lines + [
            command(BESIDE_JOB[one.outcome], f"Gatehouse: {one.name} {one.outcome}", one.reason)
            for one in done.jobs
            if one.outcome in BESIDE_JOB
        ]
    facts = done.facts
    if facts is not None and facts.outcome in BESIDE_JOB and not done.is_earlier:
        words = receipts.reason_words(facts.reason)
        lines.append(command(BESIDE_JOB[facts.outcome], "Gatehouse: not reviewed", words))
    return lines


def output_lines(values: Mapping[str, str], boundary: str) -> str:
    """Return the lines that set a job's outputs. `boundary`: a word that stands in no value."""
    return "".join(f"{name}<<{boundary}\n{value}\n{boundary}\n" for name, value in values.items())


def outputs(done: DoneReview | DoneJobs) -> dict[str, str]:
    """Return what later steps may use."""
    said = {"outcome": done.outcome, "cost": dollars(done.cost).removeprefix("$")}
    if isinstance(done, DoneReview):
        return said | {
            "verdict": done.verdict,
            "findings": findings_json(done.findings),
            "pull-request-url": done.url,
        }
    jobs = [{"name": one.name, "outcome": one.outcome, "url": one.url} for one in done.jobs]
    return said | {
        "jobs": msgspec.json.encode(jobs).decode(),
        "pull-request-url": next((one.url for one in done.jobs if one.url), ""),
    }


def _job_summary(done: DoneJobs) -> str:
    lines = ["## Gatehouse jobs", ""]
    if not done.jobs:
        lines += ["The repository's `.reviewerc` has no such job on the default branch.", ""]
    for one in done.jobs:
        why = f": {safe_line(one.reason)}" if one.reason else ""
        where = f" {one.url}" if one.url else ""
        lines += [f"**{one.name}** {one.outcome}{why}. It cost {dollars(one.cost)}.{where}", ""]
    return "\n".join([*lines, *_not_done(done)])


def findings_json(found: Sequence[Mapping[str, Any]]) -> str:
    """Return findings as JSON: as many as an output may hold."""
    names = ("severity", "confidence", "path", "line", "title", "body", "skill", "state")
    shown = [
        {"id": one["identity"][:8]}
        | {name: one[name] for name in names}
        | {"body": one["body"][:MOST_BODY_CHARS]}
        for one in found[:MOST_FINDINGS]
    ]
    while len(text := msgspec.json.encode(shown).decode()) > MOST_OUTPUT_CHARS:
        shown.pop()
    return text


def summary(done: DoneReview | DoneJobs) -> str:
    """Return the Markdown that the job's page shows."""
    if isinstance(done, DoneJobs):
        return _job_summary(done)
    lines = ["## Gatehouse review", ""]
    if done.facts is None:
        return "\n".join([*lines, "Nothing was to be done for this event.", ""])
    lines += [receipts.check_summary(done.facts), ""]
    if done.summary:
        lines += [fitted(done.summary, 4_000), ""]
    for one in done.findings[:MOST_FINDINGS]:
        where = f"{one['path']}:{one['line']}" if one["line"] else one["path"]
        title = safe_line(one["title"])
        lines += [f"**{one['severity']}: {title}** `{one['identity'][:8]}` {code_span(where)}", ""]
        lines += [fitted(one["body"], MOST_BODY_CHARS), ""]
    if len(done.findings) > MOST_FINDINGS:
        lines += [f"and {len(done.findings) - MOST_FINDINGS} more", ""]
    lines += _not_done(done)
    lines.append(f"It cost {dollars(done.cost)}.")
    return "\n".join([*lines, ""])


def _not_done(done: DoneReview | DoneJobs) -> list[str]:
    lines: list[str] = []
    if done.refused:
        lines += ["**Not done, since no rule allows it and nobody answers here**", ""]
        lines += [*(f"- {code_span(one)}" for one in done.refused), ""]
    if done.failed:
        lines += ["**Not done, since the forge refused it**", ""]
        lines += [f"- {code_span(f'{what}: {why}')}" for what, why in done.failed]
        lines.append("")
    return lines
