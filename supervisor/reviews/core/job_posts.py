"""Pull requests of scheduled jobs: their branch, whether a job may run, and what they say.

Pure. A job has one branch, and one open pull request at most. Its newest commit stands in an
invisible line at the end of the text, so that what is ours can be told from the forge alone.
"""

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from supervisor.core.forge_acts import Act, Forge
from supervisor.core.jobs import Job, JobResult, scope_words
from supervisor.core.review_markdown import fenced, plain
from supervisor.core.safe_markdown import code_span, fitted, safe_line
from supervisor.core.text.display import visible
from supervisor.reviews.core.allowances import day_of
from supervisor.reviews.core.posts import (
    MARK_END,
    MARK_START,
    as_mark,
    has_address,
    marked_text,
    own_mark,
    small,
)

PREFIX = "gatehouse/"
REST_S = 30 * 86_400.0
_MOST_FOUND = 20
_SUMMARY_CHARS, _ASKED_CHARS, _OUTPUT_CHARS = 4_000, 2_000, 6_000
_LINE = "Gatehouse-Job:"
_MARK = re.compile(rf"{MARK_START}job:([a-z0-9-]+):([0-9a-f]+):([0-9a-f]+){MARK_END}")


class JobMark(NamedTuple):
    """What made the text of a pull request: a run of a job, and its commit."""

    job: str
    run_id: str
    commit: str


class BranchPull(NamedTuple):
    """A pull request of a job's branch. `commit`: what its text says that we pushed last, if we
    opened it. `closed_at` in seconds since the epoch, 0 if it is open or merged."""

    number: int
    is_open: bool
    head: str
    commit: str
    closed_at: float


class Standing(NamedTuple):
    """Whether a job may run now: `why` not, if it may not. `number`: the open pull request that it
    would update; `lease`: what we pushed last, "" if the branch isn't there."""

    why: str = ""
    number: int = 0
    lease: str = ""


def branch_of(repository: str, job: str) -> str:
    """Return the one branch that a job may push."""
    named = hashlib.sha256(f"{repository.casefold()}:{job}".encode()).hexdigest()
    return f"{PREFIX}{job}-{named[:8]}"


def standing(
    pulls: Sequence[BranchPull],
    head: str,
    ours: Collection[str],
    *,
    now: float,
    others: int,
    most: int,
) -> Standing:
    """Return whether a job may run. `pulls`: those of its branch, newest first; `head`: the
    branch's commit, "" for none; `ours`: the commits that we made for it; `others`: how many open
    pull requests other jobs have in the repository, of `most` together."""
    opened = next((one for one in pulls if one.is_open), None)
    known = {*ours, *(one.commit for one in pulls)}
    if head and head not in known:
        where = f"of #{opened.number} " if opened else ""
        return Standing(f"somebody else's commit is on the branch {where}by now: it is theirs")
    if opened is not None:
        return Standing("", opened.number, head)
    if pulls and pulls[0].closed_at + REST_S > now:
        until = day_of(pulls[0].closed_at + REST_S)
        return Standing(f"#{pulls[0].number} was closed unmerged: the job rests until {until}")
    if others >= most:
        return Standing(f"{others} pull requests of jobs are open already, and {most} may be")
    return Standing(lease=head)


def commit_line(job: str, tree: str) -> str:
    """Return the trailer by which a job's commit is known. It names the tree: who amends the commit
    has another one."""
    return f"{_LINE} {job} {tree}"


def with_line(message: bytes, line: str) -> bytes:
    """Return a commit's message with this trailer in place of an earlier one."""
    kept = [one for one in message.split(b"\n") if not one.startswith(_LINE.encode())]
    said = b"\n".join(kept).rstrip()
    is_trailer = said.rpartition(b"\n")[2].startswith(b"Signed-off-by: ")
    return said + (b"\n" if is_trailer else b"\n\n") + line.encode() + b"\n"


def is_our_commit(job: str, author: str, tree: str, message: str, committer: str) -> bool:
    """Return whether a run of this job made a commit, and nobody changed it. `author` makes ours;
    both are written `Name <mail>`.
    Who may push to the branch could forge that, and would lose that commit alone."""
    return committer == author and message.rstrip().split("\n")[-1] == commit_line(job, tree)


def job_mark(body: str) -> JobMark | None:
    """Return what the line at a text's end says of a job; None if there is none."""
    found = _MARK.fullmatch(own_mark(body))
    return found and JobMark(*found.groups())


def pull_act(
    forge: Forge,
    repository: str,
    task: Job,
    result: JobResult,
    standing_: Standing,
    *,
    updated: Sequence[str] = (),
    found: Sequence[Mapping[str, Any]] = (),
    title: str,
    base: str,
    said: Sequence[str],
    notes: Sequence[str],
    run_id: str,
    secrets: bool,
) -> Act:
    """Return the act that pushes a job's commit and has a pull request say what it is. `said`: the
    configured words, and those of the model; `notes`: our own, at the end. `updated`: the versions
    that it changes; `found`: what was held back or mended, in the agent's words."""
    lines = [part for text in said if text for part in (fitted(text, _SUMMARY_CHARS), "")]
    lines += ["**Updated**", "", fenced("\n".join(updated)), ""] if updated else []
    for one in found[:_MOST_FOUND]:
        body = fenced(visible(str(one["body"])[-_ASKED_CHARS:]))
        lines += [f"**{safe_line(one['title'])}**", "", body, ""]
    lines += ["**Asked**", "", fenced(task.prompt.strip()[:_ASKED_CHARS]), ""]
    lines += [f"**Scope**: {plain(scope_words(task, result.proof), one_line=True)}.", ""]
    lines += _tests(task, result)
    lines += [small(plain(note, one_line=True), forge) for note in notes]
    return Act(
        operation="update-pr" if standing_.number else "open-pr",
        forge=forge,
        repository=repository,
        number=standing_.number,
        head=result.commit,
        title=visible(title, one_line=True)[:250],
        body=marked_text(lines, as_mark(f"job:{task.name}:{run_id}:{result.commit}", forge), forge),
        branch=task.branch_name,
        base=base,
        targets=(standing_.lease,) if standing_.lease else (),
        scope=task.scope,
        secrets=secrets,
        links=any(map(has_address, (title, *said))),
    )


def issue_act(
    forge: Forge,
    repository: str,
    task: Job,
    review: Mapping[str, Any],
    *,
    number: int,
    title: str,
    said: str,
    notes: Sequence[str],
    run_id: str,
) -> Act:
    """Return the act that opens an issue with a job's report, or replaces the one at `number`."""
    texts = [said, str(review.get("summary", "")), *map(str, review.get("notes", ()))]
    lines = [part for text in texts if text for part in (fitted(text, _SUMMARY_CHARS), "")]
    for one in review.get("findings", ()):
        where = code_span(f"{one['path']}:{one['line']}" if one.get("line") else one["path"])
        lines += [f"**{one['severity']}: {safe_line(one['title'])}** {where}", ""]
        lines += [fitted(one["body"], _ASKED_CHARS), ""]
        texts += [one["title"], one["body"]]
    lines += [small(plain(note, one_line=True), forge) for note in notes]
    return Act(
        operation="open-issue",
        forge=forge,
        repository=repository,
        number=number,
        title=visible(title, one_line=True)[:250],
        body=marked_text(lines, as_mark(f"job:{task.name}:{run_id}:0", forge), forge),
        links=any(map(has_address, (title, *texts))),
    )


def _tests(task: Job, result: JobResult) -> list[str]:
    if result.tests == "none":
        return ["**Tests**: none were configured.", ""]
    why = f" ({plain(result.tests_why, one_line=True)})" if result.tests_why else ""
    lines = [f"**Tests**: {code_span(task.tests)} {result.tests}{why}.", ""]
    if result.tests_output:
        lines += [fenced(result.tests_output[-_OUTPUT_CHARS:]), ""]
    return lines
