"""What a receipt says, to a machine and to a person."""

import json

from supervisor.reviews.core.receipts import (
    CONCLUSIONS,
    MOST_NOTES,
    NO_BUDGET,
    REASONS,
    ReceiptFacts,
    check_id,
    check_summary,
    conclusion,
    is_held,
    partial_words,
    reason_words,
    receipt_facts,
    receipt_text,
)
from tests.tables import each_row


def facts(**more) -> ReceiptFacts:
    base = {"forge": "github", "repository": "a/b", "number": 1, "head": "c" * 40, "at": 5.0}
    return ReceiptFacts(**base | {"outcome": "clean"} | more)


def test_its_text_is_the_same_for_the_same_facts() -> None:
    one = receipt_text(facts(findings={"low": 1, "high": 2}))
    assert one == receipt_text(facts(findings={"high": 2, "low": 1}))
    assert json.loads(one)["findings"] == {"high": 2, "low": 1}
    assert receipt_text(receipt_facts(one)) == one


def test_a_check_is_found_again_and_a_lack_of_money_is_told_from_the_rest() -> None:
    assert check_id(7, "c" * 40) == f"gatehouse:7:{'c' * 12}"
    assert {code for code in REASONS if is_held(reason_words(code))} == set(NO_BUDGET.values())


@each_row("outcome", CONCLUSIONS)
@each_row("reason", REASONS)
def test_nothing_but_a_clean_review_is_a_success(outcome, reason) -> None:
    said = check_summary(facts(outcome=outcome, reason=reason))
    assert ("nothing was found" in said) == (outcome == "clean")
    # Before anybody let it be posted, nothing stands on the pull request.
    assert ("once a rule or a person allows it" in said) == (outcome == "found")
    assert (CONCLUSIONS[outcome] == "success") == (outcome == "clean")
    assert (CONCLUSIONS[outcome] == "failure") == (outcome == "failed")


def test_a_change_of_what_steers_reviews_is_named_and_whose_held() -> None:
    names = [".reviewerc", "CLAUDE.md"]
    followed = check_summary(facts(configuration=names, trust="head"))
    assert "(.reviewerc, CLAUDE.md); it was read as changed" in followed
    assert "the base's held" in check_summary(facts(configuration=names, trust="base"))


def test_what_the_configuration_left_out_is_named() -> None:
    said = check_summary(facts(config_notes=["a bad file"] * 30, prompts=["large: skipped"]))
    assert said.count("a bad file") == MOST_NOTES
    assert "Prompts: large: skipped." in said.replace("\\", "")
    assert "Configuration" not in check_summary(facts())


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


def test_a_review_of_a_part_is_no_success_and_says_what_it_left() -> None:
    words = partial_words("its money was nearly used", ["b.py", "elsewhere"], ["a.py", "b.py"])
    assert words == "its money was nearly used; not looked at: b.py"
    one = facts(skipped=["a.bin: binary"])
    assert conclusion(one) == "neutral"
    assert "reviewed in part" in check_summary(one)
    one = facts(partial=words)
    assert conclusion(one) == "neutral"
    assert conclusion(facts()) == "success"
    assert conclusion(one, "action_required") == "action_required"
    assert conclusion(facts(), "action_required") == "success"
    assert conclusion(facts(outcome="failed"), "action_required") == "failure"
    assert conclusion(facts(outcome="found"), "action_required") == "action_required"
    assert conclusion(facts(outcome="failed", partial=words)) == "failure"
    said = check_summary(one)
    assert "in part, and nothing was found in it" in said
    assert "This review is partial: its money was nearly used; not looked at: b.py." in said


def test_what_is_left_is_named_as_far_as_it_is_known() -> None:
    assert partial_words("", ["a.py"], ["a.py"]) == ""
    assert partial_words("x", ["other"], ["a.py"]) == "x; which files it left is not known"
    many = [f"{number}.py" for number in range(60)]
    assert partial_words("x", many, many).endswith("49.py and 10 more")


def test_a_review_without_money_says_when_it_goes_on() -> None:
    said = check_summary(facts(outcome="held", reason="no-budget-repository"))
    assert "held: no budget is left for this repository today" in said
    assert "after midnight UTC" in reason_words("no-budget-all")
