"""Prompts of a pull request: which run, on which files, and what of an answer counts."""

import json
from typing import Any

import msgspec
import pytest

from supervisor.core.orders import Order, Told
from supervisor.reviews.core.config import shapes
from supervisor.reviews.core.config.effective import ModelChoice, PromptPlan
from supervisor.reviews.core.diffs import ChangedFile, ShownLines
from supervisor.reviews.core.prompts import (
    ChosenPrompt,
    PromptOutcome,
    PromptSubject,
    arguments_told,
    called_plan,
    choose,
    fed_text,
    ignored,
    is_called,
    outcome_words,
    prompt_order,
    report_of,
    wants_drafts,
    without_known,
)
from tests.tables import each_row


def file(path: str, *, old: str = "", added: int = 10, skipped: str = "") -> ChangedFile:
    return ChangedFile(path, old or path, "M", added, 2, (ShownLines(1, 50),), skipped)


FILES = (file("src/a.py"), file("src/b.py"), file("docs/x.md", old="old/x.md"))


def plan(**more: Any) -> PromptPlan:
    return PromptPlan(**{"id": "p", "prompt": "Look", "title": "P", "tools": ()} | more)


def subject(**more: Any) -> PromptSubject:
    facts: dict[str, Any] = {"draft": False, "labels": ["Bug"], "author": "Ada", "files": FILES}
    return PromptSubject(**facts | more)


def conditions(**more: Any) -> PromptPlan:
    return plan(conditions=shapes.PromptConditions(**more))


def names(*include: str, exclude: tuple[str, ...] | None = None) -> shapes.NameSet:
    return shapes.NameSet(include=include or None, exclude=exclude)


def changed(value: Any) -> shapes.ChangedPaths:
    return shapes.ChangedPaths(changed=value)


@each_row(
    "one",
    [
        plan(),
        conditions(draft=False),
        conditions(labels=names("bug", "other")),
        conditions(labels=names(exclude=("wip",))),
        conditions(labels=shapes.NameSet()),
        conditions(authors=names("ada")),
        conditions(authors=names(exclude=("bob",))),
        conditions(paths=changed(True)),
        conditions(paths=changed(("src/**",))),
        conditions(paths=changed(("old/**",))),
        conditions(paths=shapes.ChangedPaths()),
        plan(files=shapes.GlobSet(include=("docs/**",))),
        plan(files=shapes.GlobSet(include=("old/**",))),
        plan(files=shapes.GlobSet(exclude=("src/**",))),
        plan(limits=shapes.PromptLimits(max_files=3, max_diff_lines=36)),
        plan(asked=ModelChoice(provider="anthropic")),
    ],
)
def test_it_runs(one: PromptPlan) -> None:
    runs, others = choose([one], subject())
    assert [each.plan for each in runs] == [one]
    assert others == []


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (conditions(draft=True), "no draft"),
        (conditions(labels=names("other")), "labels"),
        (conditions(labels=names("bug", exclude=("BUG",))), "labels"),
        (conditions(authors=names("bob")), "author"),
        (conditions(authors=names(exclude=("ADA",))), "author"),
        (conditions(paths=changed(False)), "no file of its own changed"),
        (conditions(paths=changed(("lib/**",))), "no file of its own changed"),
        (plan(files=shapes.GlobSet(include=("lib/**",))), "no file of its own changed"),
        (plan(files=shapes.GlobSet(include=("src/*",), exclude=("src/**",))),
         "no file of its own changed"),
    ],
)  # fmt: skip
def test_its_conditions_do_not_hold(one: PromptPlan, reason: str) -> None:
    chosen, (outcome,) = choose([one], subject())
    assert chosen == []
    assert (outcome.end, outcome.reason) == ("not-wanted", reason)


def test_drafts_are_for_prompts_that_ask_for_them() -> None:
    asks = conditions(draft=True)
    chosen, (outcome,) = choose([asks, plan()], subject(draft=True))
    assert [one.plan for one in chosen] == [asks]
    assert outcome.reason == "draft"
    assert wants_drafts([plan(), asks])
    assert not wants_drafts([plan(), conditions(draft=False)])


def test_a_prompt_for_what_did_not_change_sees_the_whole_change() -> None:
    one = plan(
        files=shapes.GlobSet(include=("CHANGELOG.md",)),
        conditions=shapes.PromptConditions(paths=changed(False)),
    )
    chosen, _ = choose([one], subject())
    assert chosen == [ChosenPrompt(one, ())]
    chosen, _ = choose([one], subject(files=[file("CHANGELOG.md")]))
    assert chosen == []


def test_it_looks_at_its_own_files_and_at_nothing_skipped() -> None:
    one = plan(files=shapes.GlobSet(include=("src/**", ".github/**"), exclude=("src/b*",)))
    files = [*FILES, file(".github/x.yml"), file("src/lock", skipped="generated")]
    (chosen,), _ = choose([one], subject(files=files))
    assert chosen.files == ("src/a.py", ".github/x.yml")


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (shapes.PromptLimits(max_files=2), "3 files, and maxFiles is 2"),
        (shapes.PromptLimits(max_diff_lines=35), "36 changed lines, and maxDiffLines is 35"),
    ],
)
def test_over_a_limit_it_is_skipped_with_the_reason(
    limits: shapes.PromptLimits, reason: str
) -> None:
    chosen, (outcome,) = choose([plan(limits=limits)], subject())
    assert chosen == []
    assert (outcome.end, outcome.reason) == ("skipped", reason)


def test_a_limit_counts_its_own_files_alone() -> None:
    one = plan(limits=shapes.PromptLimits(max_files=1), files=shapes.GlobSet(include=("docs/**",)))
    assert len(choose([one], subject())[0]) == 1


def test_a_provider_that_there_is_none_of() -> None:
    _, (outcome,) = choose([plan(asked=ModelChoice(provider="other"))], subject())
    assert (outcome.end, outcome.reason) == (
        "skipped", "its provider is other, and those known are anthropic, aws, bedrock, openai",
    )  # fmt: skip


def test_files_that_the_configuration_ignores() -> None:
    files = ignored([file("a/b.py"), file("a/c.py", skipped="binary"), file("d.py")], ["a/**"])
    assert [one.skipped for one in files] == ["ignored by the configuration", "binary", ""]
    assert ignored(FILES, []) == list(FILES)


# -- what its reader is told ----------------------------------------------------------------------


def test_what_its_categories_do_not_give_is_not_told() -> None:
    order = Order(
        title="T", body="B", since="a", checklist=("x",), strictness="strict",
        guidance=(Told(source="CLAUDE.md", text="g"),), notes=(Told(source="n", text="n"),),
    )  # fmt: skip
    asked = ModelChoice(reasoning="low", temperature=0.5)
    told = prompt_order(ChosenPrompt(plan(tools=("github.read",), asked=asked), ("a.py",)), order)
    assert (told.title, told.body, told.files) == ("T", "B", ("a.py",))
    assert told.guidance == order.guidance
    assert (told.since, told.checklist, told.strictness, told.notes) == ("", (), "", ())
    assert told.prompt is not None
    assert (told.prompt.text, told.prompt.tools) == ("Look", ("github.read",))
    assert (told.reasoning, told.temperature) == ("low", 0.5)
    without = prompt_order(ChosenPrompt(plan(tools=("git.read",)), ()), order)
    assert (without.title, without.body) == ("", "")
    assert without.reasoning == ""


# -- what of an answer counts ---------------------------------------------------------------------


def finding(severity: str, title: str, **more: Any) -> dict[str, Any]:
    return {
        "path": "src/a.py", "line": 5, "severity": severity, "title": title, "body": "b",
        "confidence": "high",
    } | more  # fmt: skip


REVIEW = {
    "summary": "Seen.",
    "verdict": "comment",
    "notes": ["a note"],
    "confidence": "low",
    "findings": [
        finding("low", "l"),
        finding("critical", "c", path="."),
        finding("medium", "m", line=500),
        finding("high", "h"),
    ],
}


def chosen(**more: Any) -> ChosenPrompt:
    return ChosenPrompt(plan(**more), ())


def lines(path: str) -> list[str]:
    return ["x"] * 60


@pytest.mark.parametrize(
    ("floor", "titles", "below"),
    [("low", "chml", 0), ("medium", "chm", 1), ("high", "ch", 2)],
)
def test_the_floor_of_severity(floor: Any, titles: str, below: int) -> None:
    report = report_of(chosen(severity_floor=floor), REVIEW, FILES, lines)
    assert "".join(one.finding.title for one in report.findings) == titles
    assert (report.below_floor, report.beyond_limit) == (below, 0)


def test_the_gravest_findings_are_kept() -> None:
    limited = plan(limits=shapes.PromptLimits(max_findings=2), severity_floor="medium")
    report = report_of(ChosenPrompt(limited, ()), REVIEW, FILES, lines)
    assert [one.finding.severity for one in report.findings] == ["critical", "high"]
    assert (report.below_floor, report.beyond_limit) == (1, 1)


def test_what_is_outside_of_its_files_is_no_finding_of_its() -> None:
    report = report_of(ChosenPrompt(plan(), ("src/b.py",)), REVIEW, FILES, lines)
    assert [one.finding.title for one in report.findings] == ["c"]
    assert report.outside == 3
    (left,) = (finding("low", "x", path="lib/other.py"),)
    assert report_of(chosen(), REVIEW | {"findings": [left]}, FILES, lines).outside == 1


def test_a_finding_is_known_by_its_prompt() -> None:
    one, other = (report_of(chosen(id=name), REVIEW, FILES, lines) for name in ("a", "b"))
    assert {each.id for each in one.findings}.isdisjoint(each.id for each in other.findings)
    assert {each.finding.skill for each in one.findings} == {"prompt:a"}
    assert [each.line for each in one.findings] == [0, 5, 0, 5]


def test_what_was_told_before_is_not_told_again() -> None:
    report = report_of(chosen(), REVIEW, FILES, lines)
    told = [one.id for one in report.findings[:3]]
    assert [one.finding.title for one in without_known(report, told).findings] == ["l"]


def test_a_report_without_confidence_and_notes() -> None:
    report = report_of(chosen(), {"summary": "s", "findings": []}, FILES, lines)
    assert (report.confidence, report.notes, report.findings) == ("medium", [], [])


def test_a_report_that_was_concluded_early_says_so() -> None:
    report = report_of(chosen(), REVIEW | {"partial": "its money was nearly used"}, FILES, lines)
    assert report.notes == ["Partial: its money was nearly used.", "a note"]


@pytest.mark.parametrize(
    "wrong", [{"findings": [finding("info", "x")]}, {"confidence": "sure"}, {"findings": [{}]}]
)
def test_an_answer_that_is_none(wrong: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        report_of(chosen(), REVIEW | wrong, FILES, lines)


def test_what_became_of_each_is_told_in_a_line() -> None:
    done = PromptOutcome(id="a", title="A", end="done", findings=[{}])
    more = PromptOutcome(id="b", title="B", end="done", below_floor=1, outside=2, known=4)
    others = [
        PromptOutcome(id=end, title="T", end=end, reason="why")
        for end in ("skipped", "not-wanted", "failed")
    ]
    assert outcome_words(msgspec.to_builtins([done, more, *others])) == [
        "a: 1 finding",
        "b: 0 findings (3 left out, 4 told before)",
        "skipped: skipped, why",
        "not-wanted: not wanted (why)",
        "failed: failed, why",
    ]


def test_what_the_main_reader_is_told() -> None:
    told = json.loads(fed_text(report_of(chosen(), REVIEW, FILES, lines)))
    assert (told["summary"], told["notes"]) == ("Seen.", ["a note"])
    assert told["findings"][1] == {
        "severity": "high", "path": "src/a.py", "line": 5, "title": "h", "details": "b",
    }  # fmt: skip


def test_a_called_command_runs_whatever_the_conditions_and_its_arguments_are_told() -> None:
    own = plan(
        prompt="Look at ${command.args}, ${command.argv}",
        title="",
        mode="feed_main",
        conditions=shapes.PromptConditions(draft=True),
    )
    called = called_plan(own, "77")
    assert (called.id, called.title, called.command) == ("called-77", "p", "p")
    assert called.mode == "separate_comment"
    assert is_called(called)
    assert not is_called(own)
    assert "${" not in called.prompt
    (one,), _ = choose([called], subject())
    told = arguments_told("a b", ("a", "b"))
    order = prompt_order(one, Order(), [told])
    assert order.notes == (told,)
    assert told.text == '{"args":"a b","argv":["a","b"]}'
