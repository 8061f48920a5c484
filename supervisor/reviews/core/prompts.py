"""Prompts of a pull request: which run, on which files, and which of their findings count.

Pure. Conditions, limits, the severity floor and the number of findings are enforced here, whatever
a model says; `prompt_posts` composes the posts.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from supervisor.core.forge_acts import SEVERITIES, Confidence
from supervisor.core.orders import Order, PromptOrder, Told
from supervisor.core.text.globs import Glob
from supervisor.core.text.providers import PROVIDERS
from supervisor.reviews.core.config.effective import PromptPlan, is_offered
from supervisor.reviews.core.config.shapes import (
    GlobSet,
    NameSet,
    PromptConditions,
    SeverityFloor,
)
from supervisor.reviews.core.diffs import ChangedFile
from supervisor.reviews.core.findings import Finding, LinesOf, PlacedFinding, place
from supervisor.reviews.core.forge_people import person_name

PromptEnd = Literal["done", "skipped", "not-wanted", "failed"]
MOST_NOTES = 20
# The reader's introduction to a comment that called for a prompt.
ARGUMENTS = "arguments of the comment"
_FLOORS: dict[SeverityFloor, int] = {
    "low": SEVERITIES.index("low"),
    "medium": SEVERITIES.index("medium"),
    "high": SEVERITIES.index("high"),
}


class PromptSubject(NamedTuple):
    """The input of conditions: a pull request, and the files that it changes."""

    draft: bool
    labels: Sequence[str]
    author: str
    files: Sequence[ChangedFile]


class ChosenPrompt(NamedTuple):
    """A prompt that runs, and the files that it looks at; empty means all."""

    plan: PromptPlan
    files: tuple[str, ...]


class PromptOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a prompt, kept with its run. `reason` says why it didn't run. These findings
    don't count: those `below_floor`, `beyond_limit`, `outside` its files, and `known` from an
    earlier run. `told` are the ids of the findings in its post; `is_said`: it posts something;
    `is_settled`: the post is on the forge, or a person denied it. `cost` is in pico-dollars."""

    id: str
    title: str
    end: PromptEnd
    reason: str = ""
    mode: str = ""
    session_id: str = ""
    model: str = ""
    summary: str = ""
    confidence: str = ""
    findings: list[dict[str, Any]] = []
    below_floor: int = 0
    beyond_limit: int = 0
    outside: int = 0
    known: int = 0
    cost: int = 0
    told: list[str] = []
    is_said: bool = False
    is_settled: bool = False


class PromptReport(NamedTuple):
    """The part of an answer that counts: its findings, gravest first, and how many were dropped."""

    plan: PromptPlan
    summary: str
    findings: list[PlacedFinding]
    notes: list[str]
    confidence: Confidence
    below_floor: int = 0
    beyond_limit: int = 0
    outside: int = 0


def is_posted(plan: PromptPlan) -> bool:
    """Return whether a prompt posts its findings itself."""
    return plan.mode in ("separate_comment", "both")


def is_fed(plan: PromptPlan) -> bool:
    """Return whether the main reader is told a prompt's findings."""
    return plan.mode in ("feed_main", "both")


def wants_drafts(plans: Collection[PromptPlan]) -> bool:
    """Return whether some prompt asks for drafts."""
    return any(one.conditions.draft is True for one in plans)


def called_plan(plan: PromptPlan, comment: str) -> PromptPlan:
    """Return the plan of a command that a comment called: it posts its own findings, whatever the
    conditions. Text after the command is passed as data, never in the prompt."""
    text = plan.prompt
    for name in ("${command.args}", "${command.argv}"):
        text = text.replace(name, f"(the data `{ARGUMENTS}` below)")
    return msgspec.structs.replace(
        plan,
        id=f"called-{comment}",
        prompt=text,
        title=plan.title or plan.id,
        command=plan.id,
        mode="separate_comment",
        conditions=PromptConditions(),
    )


def is_called(plan: PromptPlan) -> bool:
    """Return whether a comment called for a prompt."""
    return plan.id.startswith("called-")


def arguments_told(arguments: str, argv: Sequence[str]) -> Told:
    """Return a comment's text after a command, for the reader: as written, and as words."""
    said = {"args": arguments, "argv": list(argv)}
    return Told(source=ARGUMENTS, text=msgspec.json.encode(said).decode())


def choose(
    plans: Sequence[PromptPlan], subject: PromptSubject
) -> tuple[list[ChosenPrompt], list[PromptOutcome]]:
    """Return the prompts that run, and outcomes with the reason for those that don't."""
    chosen, others = [], []
    for plan in plans:
        files = _own(plan.files, subject.files)
        why = _unmet(plan, subject, files)
        over = "" if why else _over(plan, files)
        if why or over:
            end: PromptEnd = "not-wanted" if why else "skipped"
            others.append(
                PromptOutcome(
                    id=plan.id, title=plan.title, end=end, reason=why or over, mode=plan.mode
                )
            )
        else:
            chosen.append(ChosenPrompt(plan, tuple(one.path for one in files)))
    return chosen, others


def ignored(files: Sequence[ChangedFile], globs: Sequence[str]) -> list[ChangedFile]:
    """Return the files, with those that a configuration ignores marked as skipped."""
    matchers = [Glob(one) for one in globs]
    return [
        one._replace(skipped="ignored by the configuration")
        if not one.skipped and any(glob.matches(one.path) for glob in matchers)
        else one
        for one in files
    ]


def prompt_order(chosen: ChosenPrompt, order: Order, notes: Sequence[Told] = ()) -> Order:
    """Return a prompt's order, derived from the review's: categories that the prompt doesn't have
    are left out. `notes` are added."""
    plan = chosen.plan
    is_told = "github.read" in plan.tools
    return Order(
        title=order.title if is_told else "",
        body=order.body if is_told else "",
        files=chosen.files,
        guidance=order.guidance,
        notes=tuple(notes),
        prompt=PromptOrder(id=plan.id, text=plan.prompt, tools=plan.tools),
        reasoning=plan.asked.reasoning or "",
        temperature=plan.asked.temperature,
    )


def report_of(
    chosen: ChosenPrompt,
    review: Mapping[str, Any],
    files: Sequence[ChangedFile],
    lines_of: LinesOf,
) -> PromptReport:
    """Return the part of a prompt's answer that counts, as its session recorded it. Raise
    `msgspec.ValidationError` if it is malformed."""
    plan = chosen.plan
    found = [
        msgspec.structs.replace(one, skill=f"prompt:{plan.id}")
        for one in msgspec.convert(review["findings"], list[Finding])
    ]
    # A finding in a file that the prompt was not to look at doesn't count.
    own = set(chosen.files or [one.path for one in files]) | {"."}
    placed = place([one for one in found if one.path in own], files, lines_of)
    floor = _FLOORS[plan.severity_floor]
    kept = [one for one in placed if SEVERITIES.index(one.finding.severity) <= floor]
    most = plan.limits.max_findings
    shown = kept if most is None else kept[:most]
    partial = str(review.get("partial", ""))
    early = [f"Partial: {partial}."] if partial else []
    return PromptReport(
        plan,
        str(review["summary"]),
        shown,
        [*early, *(str(one) for one in review.get("notes", ()))][:MOST_NOTES],
        msgspec.convert(review.get("confidence", "medium"), Confidence),
        below_floor=len(placed) - len(kept),
        beyond_limit=len(kept) - len(shown),
        outside=sum(one.path not in own for one in found),
    )


def without_known(report: PromptReport, told: Collection[str]) -> PromptReport:
    """Return a report without the findings that an earlier run of its prompt already reported."""
    return report._replace(findings=[one for one in report.findings if one.id not in told])


def outcome_words(outcomes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one line for each prompt that says what happened to it."""
    return [f"{one['id']}: {_ended(one)}" for one in outcomes]


def _ended(outcome: Mapping[str, Any]) -> str:
    if outcome["end"] == "not-wanted":
        return f"not wanted ({outcome['reason']})"
    if outcome["end"] != "done":
        return f"{outcome['end']}, {outcome['reason']}"
    count = len(outcome["findings"])
    dropped = outcome["below_floor"] + outcome["beyond_limit"] + outcome["outside"]
    more = [
        f"{number} {what}"
        for number, what in ((dropped, "left out"), (outcome["known"], "told before"))
        if number
    ]
    found = f"{count} finding{'' if count == 1 else 's'}"
    return f"{found} ({', '.join(more)})" if more else found


def fed_text(report: PromptReport) -> str:
    """Return a report in the form given to the main reader: data, as JSON."""
    findings = [
        {
            "severity": one.finding.severity,
            "path": one.finding.path,
            "line": one.finding.line,
            "title": one.finding.title,
            "details": one.finding.body,
        }
        for one in report.findings
    ]
    said = {"summary": report.summary, "findings": findings, "notes": report.notes}
    return msgspec.json.format(msgspec.json.encode(said)).decode()


# -- conditions -----------------------------------------------------------------------------------


def _unmet(plan: PromptPlan, subject: PromptSubject, files: Sequence[ChangedFile]) -> str:
    """Return the condition that fails; "" if all hold."""
    conditions = plan.conditions
    checks: list[tuple[bool, str]] = [
        # A draft is looked at only if the prompt asks for that.
        (subject.draft == bool(conditions.draft), "draft" if subject.draft else "no draft"),
        (_has(conditions.labels, subject.labels), "labels"),
        (_has(conditions.authors, [person_name(subject.author)]), "author"),
        (_changed(plan, subject.files, files), "no file of its own changed"),
    ]
    return next((why for holds, why in checks if not holds), "")


def _has(names: NameSet | None, given: Sequence[str]) -> bool:
    """Return whether names fit the wanted ones, in any letter case."""
    if names is None:
        return True
    folded = {one.casefold() for one in given}
    if any(one.casefold() in folded for one in names.exclude or ()):
        return False
    return names.include is None or any(one.casefold() in folded for one in names.include)


def _changed(
    plan: PromptPlan, everything: Sequence[ChangedFile], own: Sequence[ChangedFile]
) -> bool:
    wanted = plan.conditions.paths.changed if plan.conditions.paths else None
    if wanted is False:
        return not own
    if not own:
        return False
    if wanted is None or wanted is True:
        return True
    matchers = [Glob(one) for one in wanted]
    return any(_matches(glob, one) for glob in matchers for one in everything)


def _own(globs: GlobSet, files: Sequence[ChangedFile]) -> list[ChangedFile]:
    """Return the files that a prompt looks at, without those that no model is shown."""
    out = [Glob(one) for one in globs.exclude or ()]
    within = None if globs.include is None else [Glob(one) for one in globs.include]
    return [
        one
        for one in files
        if not one.skipped
        and not any(glob.matches(one.path) for glob in out)
        and (within is None or any(_matches(glob, one) for glob in within))
    ]


def _matches(glob: Glob, file: ChangedFile) -> bool:
    return glob.matches(file.path) or glob.matches(file.old_path)


def _over(plan: PromptPlan, files: Sequence[ChangedFile]) -> str:
    """Return the limit that keeps a prompt from starting; "" if there is none."""
    provider = plan.asked.provider
    if not is_offered(provider):
        return f"its provider is {provider}, and those known are {', '.join(PROVIDERS)}"
    limits = plan.limits
    lines = sum(one.added + one.deleted for one in files)
    if limits.max_files is not None and len(files) > limits.max_files:
        return f"{len(files):,} files, and maxFiles is {limits.max_files:,}"
    if limits.max_diff_lines is not None and lines > limits.max_diff_lines:
        return f"{lines:,} changed lines, and maxDiffLines is {limits.max_diff_lines:,}"
    return ""
