"""What a receipt says, to a machine and to a person."""

import json

import pytest

from supervisor.core.reviews.receipts import (
    CONCLUSIONS,
    REASONS,
    ReceiptFacts,
    check_summary,
    receipt_text,
)


def facts(**more) -> ReceiptFacts:
    base = {"forge": "github", "repository": "a/b", "number": 1, "head": "c" * 40, "at": 5.0}
    return ReceiptFacts(**base | {"outcome": "clean"} | more)


def test_its_text_is_the_same_for_the_same_facts() -> None:
    one = receipt_text(facts(findings={"low": 1, "high": 2}))
    assert one == receipt_text(facts(findings={"high": 2, "low": 1}))
    assert json.loads(one)["findings"] == {"high": 2, "low": 1}


@pytest.mark.parametrize("outcome", CONCLUSIONS)
@pytest.mark.parametrize("reason", REASONS)
def test_nothing_but_a_clean_review_is_a_success(outcome, reason) -> None:
    said = check_summary(facts(outcome=outcome, reason=reason))
    assert ("nothing was found" in said) == (outcome == "clean")
    assert (CONCLUSIONS[outcome] == "success") == (outcome == "clean")
    assert (CONCLUSIONS[outcome] == "failure") == (outcome == "failed")


def test_a_change_of_what_steers_reviews_is_named_and_whose_held() -> None:
    names = [".reviewerc", "CLAUDE.md"]
    followed = check_summary(facts(configuration=names, trust="head"))
    assert "(.reviewerc, CLAUDE.md); it was read as changed" in followed
    assert "the base's held" in check_summary(facts(configuration=names, trust="base"))


def test_a_person_reads_what_was_left_out_and_who_looked() -> None:
    said = check_summary(
        facts(
            outcome="found",
            findings={"high": 2},
            files=3,
            skipped=[f"x{n}.lock: generated @ada" for n in range(60)],
            model="recorded",
        )
    )
    assert "Findings: 2 high." in said
    assert "3 files were looked at." in said
    assert "and 10 more" in said
    assert " @ada" not in said
    assert "recorded model" in said
    assert check_summary(facts(outcome="failed", reason="git failed: x")).endswith("git failed: x.")
