"""What a prompt says on a forge, by its format and its type of comment."""

from typing import Any

import pytest

from supervisor.core.forge_acts import Act
from supervisor.reviews.core.config.effective import PromptPlan
from supervisor.reviews.core.diffs import ChangedFile, ShownLines
from supervisor.reviews.core.posts import MOST_BODY_CHARS, PullTarget, run_of
from supervisor.reviews.core.prompt_posts import (
    mark_of,
    prompt_act,
    prompt_and_run,
    prompt_mark,
)
from supervisor.reviews.core.prompts import ChosenPrompt, PromptReport, report_of

TARGET = PullTarget(forge="github", repository="acme/shop", number=1, head="a" * 40)
FILES = [ChangedFile("a.py", "a.py", "M", 1, 0, (ShownLines(1, 20),))]
FINDINGS = [
    {"path": "a.py", "line": 5, "severity": "high", "title": "Hole", "body": "It *leaks*.",
     "confidence": "high"},
    {"path": ".", "severity": "low", "title": "Whole", "body": "All", "confidence": "high"},
    {"path": "b.py", "severity": "medium", "title": "Other", "body": "See http://evil.example",
     "confidence": "low"},
]  # fmt: skip


def report(findings: Any = FINDINGS, **more: Any) -> PromptReport:
    plan = PromptPlan(**{"id": "p", "prompt": "x", "title": "Se*curity", "tools": ()} | more)
    said = {"summary": "Seen @ada.", "findings": findings, "confidence": "high"}
    chosen = ChosenPrompt(plan, ("a.py", "b.py", *(f"f{n}.py" for n in range(150))))
    return report_of(chosen, said | {"notes": ["one"]}, FILES, lambda _: [""] * 20)


def act(one: PromptReport, *, recorded: bool = False) -> Act:
    return prompt_act(TARGET, one, run_id="ab12", recorded=recorded)


def test_a_comment_on_the_pull_request_has_all_of_it() -> None:
    made = act(report())
    assert (made.operation, made.verdict, made.comments, made.title) == ("comment", "", (), "p")
    assert (made.repository, made.number, made.head) == ("acme/shop", 1, "a" * 40)
    assert (made.severity, made.confidence, made.links) == ("high", "low", True)
    assert made.body.startswith("## Se\\*curity\n\nSeen \\@ ada")
    assert all(one in made.body for one in ("Hole", "It *leaks*", "Whole", "Other", "- one"))
    assert made.body.endswith(prompt_mark("p", "ab12"))
    assert run_of(made.body) == "", "it is no review of ours, whose summary is edited in place"


def test_a_review_has_what_can_stand_beside_the_code() -> None:
    made = act(report(comment="review"))
    assert (made.operation, made.verdict) == ("post", "comment")
    (comment,) = made.comments
    assert (comment.path, comment.line, comment.severity) == ("a.py", 5, "high")
    assert "Hole" not in made.body
    assert "Whole" in made.body


@pytest.mark.parametrize(
    ("form", "has", "lacks"),
    [
        ("findings", "**high: Hole** ", "- [ ]"),
        ("checklist", "- [ ] **high** Hole (`a.py:5`): It \\*leaks\\*.", "**high: Hole**"),
        ("narrative", "\nHole (`a.py:5`):\n\nIt *leaks*.", "high"),
    ],
)
def test_formats(form: Any, has: str, lacks: str) -> None:
    body = act(report(format=form)).body.rpartition("<sub>")[0]
    assert has in body
    assert lacks not in body
    if form != "findings":
        assert "Whole (the whole change)" in body
        assert "(`b.py`)" in body


@pytest.mark.parametrize("form", ["findings", "checklist", "narrative"])
def test_nothing_found(form: Any) -> None:
    made = act(report([], format=form))
    assert (made.severity, made.confidence, made.links) == ("", "high", False)
    assert "Seen" in made.body
    assert "- [ ]" not in made.body


def test_what_was_left_out_is_said() -> None:
    body = act(report()._replace(below_floor=2, beyond_limit=3, outside=4)).body
    assert "Left out below the floor low: 2." in body
    assert "Left out beyond maxFindings: 3." in body
    assert "Left out outside of its files: 4." in body
    assert "Left out" not in act(report()).body


def test_a_recorded_model_is_said() -> None:
    assert "no model looked at the code" in act(report(), recorded=True).body
    assert "no model" not in act(report()).body


def test_a_text_that_is_too_long_keeps_its_mark() -> None:
    long = [
        {"path": f"f{n}.py", "severity": "low", "title": "t", "body": "x" * 1_000}
        for n in range(150)
    ]
    body = act(report(long)).body
    assert len(body) < MOST_BODY_CHARS + 200
    assert "(cut here" in body
    assert mark_of(body) == prompt_mark("p", "ab12")
    assert mark_of("nothing") == ""
    assert (prompt_and_run(body), prompt_and_run("nothing")) == (("p", "ab12"), ("", ""))
    # What `why` quotes of the code.
    quoted = f"Why.\n\n```\n{prompt_mark('p', 'dead')}\n```"
    assert (mark_of(quoted), prompt_and_run(quoted)) == ("", ("", ""))
    assert mark_of(f"{quoted}\n\n{prompt_mark('p', 'ab12')}\n") == prompt_mark("p", "ab12")


def test_no_notes() -> None:
    assert "Notes:" not in act(report()._replace(notes=[])).body
