"""The review's shape: what is accepted, and that each mistake is named."""

import json
from typing import Any

import pytest

from agent_image.reviewer.findings import InvalidReviewError, extract

GOOD: dict[str, Any] = {
    "summary": "fine",
    "verdict": "comment",
    "findings": [{"path": "a.py", "line": 3, "severity": "low", "title": "t", "body": "b"}],
}


def block(value: object) -> str:
    return f"<review>{json.dumps(value)}</review>"


def finding(**changes: object) -> dict[str, Any]:
    return GOOD | {"findings": [GOOD["findings"][0] | changes]}


def test_a_review_is_read() -> None:
    review = extract(f"words before\n{block(GOOD)}\nwords after")
    assert review.verdict == "comment"
    assert review.findings[0].line == 3
    assert review.findings[0].suggestion is None


@pytest.mark.parametrize(
    "reply",
    [
        f"I will end with a <review> block.\n{block(GOOD)}",
        block(finding(body="the text </review> and <review> in a finding")),
        f"<review>\n```json\n{json.dumps(GOOD)}\n```\n</review>",
        block(GOOD | {"unknown": 1}),
        block(finding(line=None, path=".")),
    ],
)
def test_harmless_variations_are_accepted(reply: str) -> None:
    assert extract(reply).summary == "fine"


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("no block at all", "no complete"),
        ("<review>{", "no complete"),
        ("</review><review>", "no complete"),
        ("<review>not json</review>", "not valid"),
        (block([]), "Expected `object`"),
        (block({"summary": "s"}), "missing required field `verdict`"),
        (block(GOOD | {"verdict": "lgtm"}), r"\$\.verdict"),
        (block(GOOD | {"summary": ""}), r"\$\.summary"),
        (block(finding(severity="huge")), r"\$\.findings\[0\]\.severity"),
        (block(finding(line=0)), r"\$\.findings\[0\]\.line"),
        (block(finding(line="3")), r"\$\.findings\[0\]\.line"),
        (block(finding(path="/etc/passwd")), "plain path"),
        (block(finding(path="a/../../b")), "plain path"),
        (block(finding(path="a\u202eb")), "plain path"),
        (block(GOOD | {"findings": GOOD["findings"] * 201}), r"\$\.findings"),
        (block(finding(body="x" * 20_001)), r"\$\.findings\[0\]\.body"),
    ],
)
def test_mistakes_are_named(reply: str, problem: str) -> None:
    with pytest.raises(InvalidReviewError, match=problem):
        extract(reply)
