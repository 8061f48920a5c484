"""Exec rules in terms of the policy: which are in force, which are bare, and the words of the
verdict."""

from typing import Any, cast

import pytest

from supervisor.core.actions import Exec
from supervisor.core.policy import command_rules
from supervisor.core.policy.evaluate import evaluate, evaluate_program
from supervisor.core.policy.policy_text import DENY_ALL, policy_from_data
from supervisor.core.policy.rules import Verdict
from supervisor.core.verdicts import ASK_FOR_A_RULE, Context
from tests.fakes.ruled import NOW, ruled


def verdict(command: str, **rules: Any) -> Verdict:
    return ruled(Exec(command=command), **rules)


def test_the_words_name_the_command_that_no_rule_allows() -> None:
    found = verdict("ls; cat a", allow=["exec(ls)"])
    assert (found.decision, found.why, found.sticky) == (
        "ask",
        "no rule allows `cat a`; exec asks",
        False,
    )
    assert verdict("", allow=["exec(ls)"]).why == "there is no command; exec asks"
    denied = verdict("cat a", modes={"exec": "deny"})
    assert (denied.decision, denied.why, denied.remedy) == (
        "deny",
        "no rule allows `cat a`; exec denies",
        ASK_FOR_A_RULE,
    )


def test_what_no_rule_may_allow_is_asked_and_offers_no_always() -> None:
    found = verdict("ls $(id)", allow=["exec(ls *)"])
    assert (found.decision, found.sticky, found.rule) == ("ask", True, None)
    assert found.why == "no rule may allow a command substitution (`$(id)`); exec asks"


def test_deny_and_ask_say_the_command_and_the_rules_why() -> None:
    found = verdict("ls; rm -fr x", deny=[{"rule": "exec(rm -rf *)", "why": "no trees"}])
    assert found.why == "denied by exec(rm -rf *): `rm -fr x`: no trees"
    assert found.rule == "exec(rm -rf *)"
    # A why that the words hold already isn't said again.
    said = verdict("rm x", ask=[{"rule": "exec(rm x)", "why": "rm"}])
    assert said.why == "asked by exec(rm x): `rm x`"
    assert said.sticky


def test_several_rules_are_all_named_the_first_in_order_leads() -> None:
    found = verdict("rm a", deny=["exec(rm a)", "exec(rm *)"])
    assert (found.rule, found.rules) == ("exec(rm *)", ("exec(rm *)", "exec(rm a)"))


def test_a_move_inside_the_workspace_needs_no_rule_but_never_overrules_the_mode() -> None:
    assert verdict("cd src").decision == "allow"
    assert verdict("cd src").rule is None
    assert verdict("cd src", modes={"exec": "deny"}).decision == "deny"
    assert verdict("cd ..").decision == "ask"


@pytest.mark.parametrize("pattern", ["*", "**", "* *", "** *"])
def test_a_bare_allow_rule_allows_nothing_and_says_so(pattern: str) -> None:
    policy = policy_from_data({"allow": [f"exec({pattern})"]})
    assert "is bare, so it allows nothing" in policy.warnings[0]
    assert evaluate(policy, Exec(command="ls"), now=NOW).decision == "ask"
    assert verdict("ls", deny=[f"exec({pattern})"]).decision == "deny"


def test_exceptions_turn_a_rule_round_but_can_not_be_talked_out_of_it() -> None:
    # Everything is excepted: nothing is left to deny, and nothing to allow.
    assert (
        verdict("git log", deny=[{"rule": "exec(git *)", "except": ["exec(*)"]}]).decision == "ask"
    )
    assert (
        verdict("git log", allow=[{"rule": "exec(git *)", "except": ["exec(*)"]}]).decision == "ask"
    )
    asked = [{"rule": "exec(git *)", "except": ["exec(git log *)"]}]
    assert verdict("git log -3", ask=asked).rule is None
    assert verdict("git push", ask=asked).rule == "exec(git *)"
    # An exception of an ask rule covers, so an expansion isn't excepted; one of an allow rule
    # touches, in any spelling.
    assert verdict("git $X", ask=asked).rule == "exec(git *)"
    allowed = [{"rule": "exec(git *)", "except": ["exec(git merge --squash)"]}]
    assert verdict("git merge --squash x", allow=allowed).decision == "ask"
    assert verdict("git merge x", allow=allowed).decision == "allow"


def test_rules_end_and_are_counted() -> None:
    policy = policy_from_data({"allow": [{"rule": "exec(ls)", "expires": "2027-01-31", "uses": 2,
    "id": "r"}], "deny": [{"rule": "exec(rm)", "session": "s1"}]})  # fmt: skip
    action = Exec(command="ls")
    end = 1_801_353_600.0
    assert evaluate(policy, action, now=end - 1, uses={"r": 1}).decision == "allow"
    assert evaluate(policy, action, now=end, uses={"r": 1}).decision == "ask"
    assert evaluate(policy, action, now=end - 1, uses={"r": 2}).decision == "ask"
    # Nobody counts: a limited rule allows nothing.
    assert evaluate(policy, action, now=end - 1).decision == "ask"
    assert evaluate(policy, Exec(command="rm"), now=0.0, session_id="s1").decision == "deny"
    assert evaluate(policy, Exec(command="rm"), now=0.0, session_id="s2").decision == "ask"


def test_what_can_not_be_judged_is_denied() -> None:
    """Law 3: an exception inside of the judge is a denial, with a why, and offers no rule."""
    broken = Exec(command="ls", cwd=cast("str", 3))
    found = ruled(broken, allow=["exec(ls)"])
    assert (found.decision, found.why) == ("deny", "the command can't be judged (TypeError)")
    assert (found.rule, found.remedy, found.sticky) == (None, ASK_FOR_A_RULE, True)


def of_program(command: str, **rules: Any) -> Verdict:
    policy = policy_from_data({"version": 1} | rules)
    context = Context(NOW, "/workspace/merged", None, frozenset(), frozenset(), None)
    return evaluate_program(policy, Exec(command=command), context)


@pytest.mark.parametrize("mode", ["contained", "ask", "deny"])
def test_a_program_meets_deny_and_ask_rules_and_no_mode(mode: str) -> None:
    rules: dict[str, Any] = {
        "modes": {"exec": mode},
        "allow": ["exec(ls)"],
        "ask": ["exec(touch *)"],
        "deny": [{"rule": "exec(rm -rf *)", "why": "no trees"}],
    }
    assert of_program("rm -f x", **rules).decision == "allow"
    assert of_program("sh -c 'a && $(b)'", **rules).decision == "allow"
    denied = of_program("env rm -fr x", **rules)
    assert (denied.decision, denied.rule) == ("deny", "exec(rm -rf *)")
    asked = of_program("bash -c 'touch x'", **rules)
    assert (asked.decision, asked.rules) == ("ask", ("exec(touch *)",))


def test_a_program_that_can_not_be_judged_is_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_rules, "judge", lambda *_, **__: 1 / 0)
    found = of_program("ls", allow=["exec(ls)"])
    assert (found.decision, found.by_policy) == ("deny", False)
    context = Context(NOW, "/workspace/merged", None, frozenset(), frozenset(), None)
    assert evaluate_program(DENY_ALL, Exec(command="ls"), context).decision == "deny"
