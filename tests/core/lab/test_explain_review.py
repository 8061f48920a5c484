"""Acts of the review service in the lab: explained, checked by a line, linted."""

import json
from typing import Any

import pytest

from supervisor.core.forge_acts import Act, Operation, act_title
from supervisor.core.lab.check import answer_line
from supervisor.core.lab.explain import explain
from supervisor.core.lab.lint import lint
from supervisor.core.policy.policy_text import policy_from_data
from supervisor.core.policy.review_category import OPERATIONS
from tests.tables import each_row


def act(**more: Any) -> Act:
    return Act(**{"operation": "post", "forge": "github", "repository": "acme/shop"} | more)


def looks(one: Act, **rules: Any) -> dict[str, str]:
    found = explain(policy_from_data(rules), one, now=0.0)
    return {seen.rule.text: seen.why for seen in found.looked}


def test_each_rule_says_why_it_is_or_is_not_about_it() -> None:
    approval = act(verdict="approve", severity="high")
    said = looks(
        approval,
        allow=[
            "review(post acme/shop)",
            "review(post acme/other)",
            "review(post acme/shop --approve)",
            "review(post acme/shop --approve --up-to=low)",
        ],
        deny=[{"rule": "review(* acme/*)", "except": ["review(post acme/shop --approve)"]}],
    )
    assert said["review(post acme/shop)"] == "it doesn't spell --approve"
    assert "another operation or repository" in said["review(post acme/other)"]
    assert "covers" in said["review(post acme/shop --approve)"]
    assert "options" in said["review(post acme/shop --approve --up-to=low)"]
    assert "review(* acme/*)" in said


def test_an_exception_of_an_allow_rule_and_a_name_that_is_none() -> None:
    excepted = ["review(post acme/other)", "review(post acme/shop)"]
    rules = {"allow": [{"rule": "review(post acme/*)", "except": excepted}]}
    assert looks(act(), **rules)
    assert "covers" in looks(act(repository="acme/third"), **rules)["review(post acme/*)"]
    assert explain(policy_from_data(rules), act(repository="x"), now=0.0).verdict.decision == "deny"


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ({"operation": "post", "repository": "acme/shop"}, "allow"),
        ({"operation": "post", "repository": "acme/shop", "verdict": "approve"}, "ask"),
        ({"operation": "post", "repository": "acme/shop", "severity": "low", "number": 3}, "allow"),
        ({"operation": "nothing", "repository": "acme/shop"}, "deny"),
        ({"repository": "acme/shop"}, "deny"),
    ],
)
def test_a_line_of_policy_check_is_answered(line: dict[str, Any], verdict: str) -> None:
    policy = policy_from_data({"allow": ["review(post acme/*)"]})
    found = answer_line(json.dumps({"category": "review", **line}).encode(), policy, None, 0.0)
    assert found["verdict"] == verdict


def test_lint_names_what_another_rule_covers_and_what_covers_everything() -> None:
    data = {"allow": ["review(post acme/*)", "review(post acme/shop)", "review(* */* --fork)"]}
    said = "\n".join(str(one) for one in lint(policy_from_data(data), None, 0.0).findings)
    assert "review(post acme/shop)" in said
    assert "covers every act on every forge" in said


@each_row("operation", OPERATIONS)
def test_each_operation_is_explained_in_words(operation: Operation) -> None:
    one = act(operation=operation, number=3, body="eyes", targets=("7",))
    (why,) = looks(one, allow=[f"review({operation} acme/shop)"]).values()
    assert why == f"`{operation} acme/shop` covers `{act_title(one)}`"
    line = {"category": "review", "operation": operation, "repository": "acme/shop"}
    policy = policy_from_data({"allow": [f"review({operation} acme/shop)"]})
    found = answer_line(json.dumps(line).encode(), policy, None, 0.0)
    assert found["verdict"] == "allow"
