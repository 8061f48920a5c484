"""A rule that an agent proposes is asked, or refused at once where there is nothing to ask
about."""

import pytest

from supervisor.core.actions import Effect, Proposal
from supervisor.core.policy.evaluate import evaluate
from supervisor.core.policy.policy_text import policy_from_data
from supervisor.core.policy.rules import Verdict
from tests.tables import each_row

POLICY = policy_from_data(
    {
        "allow": [
            "exec(git log *)",
            {"rule": "exec(old *)", "expires": "2020-01-01"},
            "network(*.example.com)",
        ],
        "ask": ["git(push main)"],
        "deny": ["network(*.example.net)"],
    }
)


def proposed(effect: Effect, rule: str) -> Verdict:
    return evaluate(POLICY, Proposal(effect=effect, rule=rule), now=1_800_000_000.0)


@each_row(
    ("effect", "rule", "why"),
    [
        ("allow", "nonsense(", "the proposed rule can't be used: unknown category `nonsense`"),
        ("allow", "please let me", "`please let me` names no category"),
        ("allow", "", "names no category"),
        ("allow", "exec(ls) and more", "doesn't parse"),
        ("allow", "exec(ls\u200b)", "a hidden character"),
        ("allow", "network(*)", "would allow every host"),
        ("allow", "network(*.com)", "would allow everybody's hosts below the public suffix `com`"),
        ("allow", "exec(*)", "exec(*) is bare, and a bare rule allows no command"),
        ("allow", "exec(**)", "exec(**) is bare, and a bare rule allows no command"),
        ("allow", "exec", "exec(*) is bare"),
        ("allow", "packages(*)", "packages(*) is bare"),
        ("allow", "exec(eval *)", "which no rule may allow"),
        ("allow", "filesystem(.git/**)", "the protected name `.git/**` keeps denied"),
        ("allow", "network(169.254.169.254)", "never reached"),
        ("allow", "exec(git log -3)",
         "allow exec(git log *) answers all that exec(git log -3) is about"),
        ("allow", "exec(git log *)", "allow exec(git log *) answers all"),
        ("allow", "network(a.example.net)",
         "deny network(*.example.net) answers all that network(a.example.net) is about"),
        ("allow", "git(push main)", "ask git(push main) answers all"),
        ("deny", "network(a.example.net)", "deny network(*.example.net) answers all"),
    ],
)  # fmt: skip
def test_nonsense_and_what_would_change_nothing_is_refused_with_the_reason(
    effect: Effect, rule: str, why: str
) -> None:
    found = proposed(effect, rule)
    assert found.decision == "deny"
    assert why in found.why
    assert found.remedy


@pytest.mark.parametrize(
    ("effect", "rule"),
    [
        ("allow", "exec(make test)"),
        ("allow", "exec(old x)"),
        ("allow", "exec(git *)"),
        ("allow", "filesystem(**)"),
        ("deny", "network(*.com)"),
        ("deny", "exec(*)"),
        ("ask", "exec(git log *)"),
        ("deny", "network(a.example.com)"),
    ],
)
def test_whatever_would_change_something_is_asked(effect: Effect, rule: str) -> None:
    found = proposed(effect, rule)
    assert (found.decision, found.sticky) == ("ask", True), found.why
