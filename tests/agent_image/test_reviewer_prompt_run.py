"""A prompt's reader: its tools, what it is told, and its answer, checked strictly."""

import json
from typing import Any

import pytest

from agent_image.reviewer import prompt_run
from agent_image.reviewer.findings import Finding, InvalidReviewError
from agent_image.reviewer.orders import Order, PromptOrder
from agent_image.reviewer.repository import Change
from agent_image.reviewer.text import Quarantine

ANSWER: dict[str, Any] = {"summary": "s", "findings": [], "notes": ["n"], "confidence": "low"}
FOUND = {"title": "t", "severity": "high", "details": "d"}
CHANGE = Change("b" * 40, "a" * 40, ["a.py", "b.py"], [], "2 files")


def prompt(*tools: str) -> PromptOrder:
    return PromptOrder(id="p", text="Look <hard>.", tools=tools)


def block(**more: Any) -> str:
    return f"I looked.\n<review>\n{json.dumps(ANSWER | more)}\n</review>"


def located(location: str | None) -> Finding:
    (found,) = prompt_run.extract(block(findings=[FOUND | {"location": location}])).findings
    return found


@pytest.mark.parametrize(
    ("categories", "tools"),
    [
        ((), set()),
        (("filesystem",), {"read_file", "list_files", "find_files", "search"}),
        (("git.read",), {"git_diff"}),
        (("git.history",), {"git_log", "git_diff_range"}),
        (("github.read", "github.write", "repo.write"), set()),
    ],
)
def test_it_has_the_tools_of_its_categories_and_none_that_does_anything(
    categories: tuple[str, ...], tools: set[str]
) -> None:
    assert set(prompt_run.offered(prompt(*categories))) == tools


def test_it_is_told_its_task_and_sees_the_diff_only_where_it_may() -> None:
    quarantine = Quarantine()
    order = Order(prompt=prompt("git.read"), files=("a.py",))
    said = prompt_run.opening(order, CHANGE, "+ added", quarantine, ["What the author says:"])
    assert said.startswith("Your task:\n\nLook <hard>.")
    assert "a.py" in said
    assert "b.py" not in said
    assert "What the author says:" in said
    assert f'<{quarantine.mark} source="git diff">' in said
    blind = Order(prompt=prompt("filesystem"))
    said = prompt_run.opening(blind, CHANGE, "+ added", quarantine, [])
    assert "+ added" not in said
    assert "b.py" in said
    assert "Look" not in prompt_run.system(quarantine, 20)


def test_an_answer_is_a_review_without_a_verdict() -> None:
    review = prompt_run.extract(block(findings=[FOUND | {"suggestion": "x = 1"}]))
    assert (review.verdict, review.summary) == ("comment", "s")
    assert (review.notes, review.confidence) == (("n",), "low")
    (found,) = review.findings
    assert (found.path, found.line, found.body, found.suggestion) == (".", None, "d", "x = 1")
    assert (found.severity, found.confidence) == ("high", "low")


@pytest.mark.parametrize(
    ("location", "path", "start", "line"),
    [
        (None, ".", None, None),
        ("a.py", "a.py", None, None),
        ("src/a b.py:12", "src/a b.py", None, 12),
        ("a.py:12-15", "a.py", 12, 15),
        ("a.py:12-12", "a.py", None, 12),
        ("c:/x:3", "c:/x", None, 3),
    ],
)
def test_locations(location: str | None, path: str, start: int | None, line: int | None) -> None:
    found = located(location)
    assert (found.path, found.start_line, found.line) == (path, start, line)


@pytest.mark.parametrize("location", ["a.py:15-12", "a.py:0", "/etc/passwd:1", "../a.py"])
def test_locations_that_are_none(location: str) -> None:
    with pytest.raises(InvalidReviewError):
        located(location)


@pytest.mark.parametrize(
    "wrong",
    [
        {"verdict": "approve"},
        {"confidence": "sure"},
        {"notes": None},
        {"findings": [FOUND | {"severity": "info"}]},
        {"findings": [FOUND | {"path": "a.py"}]},
        {"findings": [{"title": "t", "severity": "low"}]},
        {"summary": ""},
    ],
)
def test_an_answer_is_checked_strictly(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidReviewError):
        prompt_run.extract(block(**wrong))
    with pytest.raises(InvalidReviewError):
        prompt_run.extract("no block")
