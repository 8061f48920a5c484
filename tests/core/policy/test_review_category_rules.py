"""Rules of the category `review`: what an allow rule has to spell, and that deny and ask rules
match however an act is spelled."""

from typing import Any

import pytest

from supervisor.core.forge_acts import OPERATION_WORDS, Act, InlineComment, Operation
from supervisor.core.policy.categories import compiled, contains, width
from supervisor.core.policy.policy_text import policy_from_data
from supervisor.core.policy.review_category import OPERATIONS, compile_pattern, example_act, special
from supervisor.core.policy.suggest import suggest
from supervisor.core.review_markdown import plain
from supervisor.core.verdicts import Verdict
from supervisor.errors import PolicyError
from tests.fakes.ruled import ruled
from tests.tables import each_row


def act(**more: Any) -> Act:
    return Act(**{"operation": "post", "forge": "github", "repository": "acme/shop"} | more)


def verdict(one: Act, **rules: Any) -> Verdict:
    return ruled(one, **rules)


def decision(one: Act, **rules: Any) -> str:
    return verdict(one, **rules).decision


@each_row(
    ("rule", "one"),
    [
        ("post acme/shop", act()),
        ("post ACME/Shop", act(repository="Acme/SHOP")),
        ("post acme/*", act()),
        ("post */*", act()),
        ("* acme/shop", act(operation="check")),
        ("post github:acme/shop", act()),
        ("post acme/shop --up-to=medium", act(severity="low")),
        ("post acme/shop --up-to=medium", act(severity="medium")),
        ("post acme/shop --up-to=medium", act()),
        ("post acme/shop --confidence=medium", act(confidence="high")),
        ("post acme/shop --approve", act(verdict="approve")),
        ("post acme/shop --approve", act(verdict="comment")),
        ("post acme/shop --request-changes", act(verdict="request_changes")),
        ("post acme/shop --fork --links", act(fork=True, links=True)),
        ("open-pr acme/shop", act(operation="open-pr", head="a", scope=("docs/**",))),
        ("open-pr acme/shop --no-scope", act(operation="open-pr", head="a")),
        ("update-pr acme/shop", act(operation="update-pr", head="")),
    ],
)
def test_an_allow_rule_covers(rule: str, one: Act) -> None:
    assert decision(one, allow=[f"review({rule})"]) == "allow"


@pytest.mark.parametrize(
    ("rule", "one"),
    [
        ("post acme/shop", act(repository="acme/shop2")),
        ("post acme/shop", act(operation="comment")),
        ("post bitbucket:acme/shop", act()),
        ("post acme/shop", act(verdict="approve")),
        ("post acme/shop --approve", act(verdict="request_changes")),
        ("post acme/shop", act(fork=True)),
        ("post acme/shop", act(links=True)),
        ("open-pr acme/shop", act(operation="open-pr", head="a")),
        ("update-pr acme/shop", act(operation="update-pr", head="a")),
        ("post acme/shop --up-to=medium", act(severity="high")),
        ("post acme/shop --confidence=high", act(confidence="medium")),
    ],
)
def test_what_an_allow_rule_does_not_spell_it_does_not_cover(rule: str, one: Act) -> None:
    assert decision(one, allow=[f"review({rule})"]) == "ask"


def test_deny_and_ask_match_however_it_is_spelled() -> None:
    for one in (act(), act(verdict="approve", fork=True), act(severity="critical")):
        assert decision(one, allow=["review(* */* --approve --fork)"], deny=["review(post acme/*)"])
        assert decision(one, deny=["review(post acme/*)"]) == "deny"
        assert decision(one, allow=["review(* */*)"], ask=["review(* acme/shop)"]) == "ask"
    only_approvals = {
        "allow": ["review(post */* --approve)"],
        "deny": ["review(post */* --approve)"],
    }
    assert decision(act(verdict="approve"), **only_approvals) == "deny"
    assert decision(act(), **only_approvals) == "allow"
    grave = {"allow": ["review(post */*)"], "deny": ["review(post */* --up-to=medium)"]}
    assert decision(act(severity="low"), **grave) == "deny"
    assert decision(act(severity="high"), **grave) == "allow"


def test_a_commit_that_adds_what_looks_like_a_secret_no_rule_allows() -> None:
    one = act(operation="open-pr", head="a", scope=("docs/**",), secrets=True)
    assert decision(one, allow=["review(* */* --no-scope)"]) == "ask"


def test_what_looks_like_a_secret_no_rule_allows() -> None:
    said = verdict(act(body=f"use ghp_{'a' * 36}"), allow=["review(post */*)"])
    assert (said.decision, said.sticky) == ("ask", True)


@pytest.mark.parametrize(
    "token",
    [
        "ghp_" + "a1B2" * 9,
        f"ghs_123456_eyJ{'aB3_' * 9}.{'x-Y9' * 9}",
        "https://me:hunter22@acme.test/",
    ],
)
def test_what_looks_like_a_secret_no_rule_allows_escaped_in_markdown(token: str) -> None:
    said = [
        act(body=f"use {plain(token)}"),
        act(title=token),
        act(
            comments=(
                InlineComment(
                    finding="f", path="a.py", line=1, severity="low", body=plain(f"so: {token}")
                ),
            )
        ),
    ]
    for one in said:
        found = verdict(one, allow=["review(post */*)"])
        assert (found.decision, found.sticky) == ("ask", True)


@pytest.mark.parametrize("line", ["/approve", "  /lgtm", "```suggestion\n/merge\n```"])
def test_a_line_that_a_bot_may_take_for_a_command_no_rule_allows(line: str) -> None:
    comment = InlineComment(finding="f", path="a.py", line=1, severity="low", body=f"x\n{line}")
    for one in (act(body=f"x\n{line}"), act(comments=(comment,))):
        assert verdict(one, allow=["review(post */*)"]).decision == "ask"
    fine = act(body=f"{plain('/approve')}\n// code\na /approve")
    assert verdict(fine, allow=["review(post */*)"]).decision == "allow"


def test_what_is_no_repository_is_denied() -> None:
    for name in ("shop", "acme/", "/shop", "acme/shop/x"):
        assert decision(act(repository=name), allow=["review(* */*)"]) == "deny"


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("post", "names no operation and repository"),
        ("pots acme/shop", "did you mean `post`"),
        ("post acme", "OWNER/REPO"),
        ("post acme/shop --up-to=bad", "--up-to=critical"),
        ("post acme/shop --aprove", "did you mean `--approve`"),
    ],
)
def test_a_wrong_rule_says_what_is_wrong(text: str, remedy: str) -> None:
    with pytest.raises(PolicyError) as failed:
        compile_pattern(text)
    assert remedy in str(failed.value)


def test_one_that_allows_every_operation_is_warned_of() -> None:
    assert policy_from_data({"allow": ["review(* acme/shop)"]}).warnings
    assert not policy_from_data({"deny": ["review(* acme/shop)"]}).warnings


def test_an_example_is_an_act() -> None:
    one = example_act("post bitbucket:acme/shop --approve --fork --up-to=high --confidence=low")
    assert (one.forge, one.verdict, one.fork, one.severity) == (
        "bitbucket",
        "approve",
        True,
        "high",
    )
    assert example_act("post a/b --request-changes").verdict == "request_changes"
    assert list(special(example_act("post a/b --links"))) == ["--links"]
    assert list(special(example_act("open-pr a/b --no-scope"))) == ["--no-scope"]
    with pytest.raises(PolicyError):
        example_act("post acme/*")


@each_row("operation", OPERATIONS)
def test_each_operation_has_rules_of_its_own(operation: Operation) -> None:
    one = act(operation=operation, body="eyes", targets=("7",), number=3)
    rule = f"{operation} acme/shop"
    assert decision(one) == "ask"
    assert decision(one, allow=[f"review({rule})"]) == "allow"
    assert decision(one, allow=["review(* */*)"], deny=[f"review({rule})"]) == "deny"
    assert decision(act(operation="post"), allow=[f"review({rule})"]) == (
        "allow" if operation == "post" else "ask"
    )
    narrow, broad = suggest(one)
    assert narrow.rule == f"review({operation} github:acme/shop)"
    assert narrow.explains == f"{OPERATION_WORDS[operation]} in this repository"
    assert decision(one, allow=[broad.rule]) == "allow"


def test_always_offers_the_repository_and_its_owner() -> None:
    found = [one.rule for one in suggest(act(severity="medium"))]
    assert found == [
        "review(post github:acme/shop --up-to=medium)",
        "review(post github:acme/* --up-to=medium)",
    ]
    assert suggest(act(verdict="approve"))[0].rule == "review(post github:acme/shop --approve)"
    assert suggest(act(body=f"ghp_{'a' * 36}")) == ()


@pytest.mark.parametrize(
    ("outer", "inner", "is_within"),
    [
        ("post acme/*", "post acme/shop", True),
        ("* */*", "post acme/shop --up-to=low", True),
        ("post acme/shop --fork", "post acme/shop", True),
        ("post acme/shop", "post acme/shop --fork", False),
        ("post acme/shop --up-to=low", "post acme/shop", False),
        ("post acme/shop --up-to=low", "post acme/shop --up-to=low", True),
        ("post github:acme/shop", "post acme/shop", False),
        ("post acme/s*", "post acme/*", False),
        ("check acme/shop", "post acme/shop", False),
    ],
)
def test_one_rule_covers_another(outer: str, inner: str, is_within: bool) -> None:
    rules = policy_from_data({"allow": [f"review({outer})", f"review({inner})"]}).rules
    first, second = (next(r for r in rules if r.pattern == text) for text in (outer, inner))
    assert contains(compiled(first), compiled(second), lambda path: None) is is_within


def test_a_deny_rule_covers_another_with_the_same_options() -> None:
    rules = policy_from_data(
        {"deny": ["review(post acme/*)", "review(post acme/shop --fork)"]}
    ).rules
    wide, narrow = sorted(rules, key=lambda one: len(one.pattern))
    assert contains(compiled(wide), compiled(narrow), lambda path: None)
    assert not contains(compiled(narrow), compiled(wide), lambda path: None)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("post acme/shop", "the act `post` on the repository acme/shop"),
        ("* */*", "every act on every repository"),
        (
            "check acme/* --fork --up-to=low",
            "the act `check` on repositories like acme/*, up to low, with --fork",
        ),
    ],
)
def test_its_width_in_words(rule: str, words: str) -> None:
    (one,) = policy_from_data({"allow": [f"review({rule})"]}).rules
    assert width(one) == words


def test_a_deny_rule_is_about_its_own_operation_and_repositories() -> None:
    for rule in ("check acme/shop", "post acme/other", "post bitbucket:acme/shop"):
        assert decision(act(), allow=["review(post */*)"], deny=[f"review({rule})"]) == "allow"


def test_what_an_agent_wants_to_say_is_covered_only_where_that_is_spelled() -> None:
    said = act(operation="comment", by_agent=True)
    assert decision(said, allow=["review(comment acme/*)"]) == "ask"
    assert decision(said, allow=["review(comment acme/* --agent)"]) == "allow"
    assert decision(act(operation="comment"), allow=["review(comment acme/* --agent)"]) == "allow"
    assert decision(said, deny=["review(comment acme/*)"]) == "deny"
    assert next(one.rule for one in suggest(said)).endswith("--agent)")
