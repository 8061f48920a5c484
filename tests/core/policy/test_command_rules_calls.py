"""Calls of MCP servers: never contained, and never the same action as a program of that name."""

from typing import Any

import pytest

from supervisor.core.actions import Action, Exec, McpCall, McpTools
from supervisor.core.lab.check import answer_line
from supervisor.core.lab.explain import explain
from supervisor.core.lab.lint import lint
from supervisor.core.policy.evaluate import evaluate
from supervisor.core.policy.policy_text import policy_from_data
from supervisor.core.policy.suggest import options, suggest
from supervisor.core.verdicts import Verdict
from tests.tables import each_row

ADD = 'mcp__notes__add {"a":"x y","b":"../c"}'


def call(tool: str = "add", arguments: str = '{"a":1}', **more: Any) -> McpCall:
    return McpCall(server="notes", tool=tool, arguments=arguments, **more)


def verdict(action: Action, *, mode: str = "contained", **lists: list[str]) -> Verdict:
    policy = policy_from_data({"modes": {"exec": mode}, **lists})
    return evaluate(policy, action, now=0.0, uses={}, is_contained=True)


@each_row(
    ("rule", "action", "decision"),
    [
        ("exec(mcp__notes__add *)", call(), "allow"),
        ("exec(mcp__notes__* *)", call(), "allow"),
        ("exec(mcp__notes__add '{\"a\":1}')", call(), "allow"),
        ("exec(mcp__notes__add '{\"a\":'*'}')", call(), "allow"),
        ("exec(mcp__notes__add)", call(), "ask"),
        ("exec(mcp__notes__add *)", call("delete"), "ask"),
        ("exec(mcp__notes__add '{\"a\":2}')", call(), "ask"),
        # What begins otherwise, and what matches everything, allows no call.
        ("exec(*__notes__add *)", call(), "ask"),
        ("exec(* *)", call(), "ask"),
        ("exec(./mcp__notes__add *)", call(), "ask"),
        # A shell's words in an argument are no commands; a path that climbs is spelled out.
        ("exec(mcp__notes__add *)", call(arguments='{"a":"$(rm -rf x); y"}'), "allow"),
        ("exec(mcp__notes__add *)", call(arguments='{"a":"b/../c"}'), "ask"),
        # And the reverse: such a rule is about no program.
        ("exec(mcp__notes__add *)", Exec(command="mcp__notes__add x"), "ask"),
        ("exec(mcp__notes__add *)", Exec(command="/usr/bin/mcp__notes__add x"), "ask"),
        ("exec(mcp__notes__add *)", Exec(command="timeout 5 mcp__notes__add x"), "ask"),
        ("exec(mcp__notes__add *)", Exec(command='mcp__notes__add {"a":1}'), "ask"),
    ],
)
def test_a_rule_allows(rule: str, action: Action, decision: str) -> None:
    assert verdict(action, mode="ask", allow=[rule]).decision == decision


@pytest.mark.parametrize("mode", ["contained", "ask"])
def test_a_call_that_no_rule_is_about_is_asked_and_may_become_a_rule(mode: str) -> None:
    found = verdict(call(), mode=mode)
    assert (found.decision, found.is_contained, found.sticky) == ("ask", False, False)
    assert verdict(call(), mode="deny").decision == "deny"


def test_the_agents_own_server_is_contained_as_its_commands_are() -> None:
    assert verdict(call(by_agent=True)).is_contained
    assert verdict(call(by_agent=True), mode="ask").decision == "ask"


@each_row(
    ("lists", "decision"),
    [
        ({"deny": ["exec(mcp__notes__*)"]}, "deny"),
        ({"deny": ["exec(mcp__notes__add *)"], "allow": ["exec(mcp__notes__* *)"]}, "deny"),
        ({"ask": ["exec(mcp__notes__add *)"], "allow": ["exec(mcp__notes__* *)"]}, "ask"),
        ({"deny": ["exec(*)"]}, "deny"),
        # However a rule's one word comes to be a call's name, it is about all arguments.
        ({"deny": ["exec(mcp_*)"], "allow": ["exec(mcp__notes__* *)"]}, "deny"),
        ({"deny": ["exec(*__add)"], "allow": ["exec(mcp__notes__* *)"]}, "deny"),
        ({"ask": ["exec(*notes__a*)"], "allow": ["exec(mcp__notes__* *)"]}, "ask"),
        ({"deny": ["exec(rm *)"]}, "ask"),
    ],
)
def test_stricter_rules_count_for_calls_too(lists: dict[str, list[str]], decision: str) -> None:
    found = verdict(call(arguments='{"a":"rm -rf x"}'), **lists)
    assert found.decision == decision


def test_arguments_that_no_call_has_are_warned_about() -> None:
    never = ['exec(mcp__notes__add {"a":1})', "exec(mcp__notes__add x)"]
    fine = ["exec(mcp__notes__add '{\"a\":1}')", "exec(mcp__notes__add *)", "exec(rm {x})"]
    policy = policy_from_data({"deny": [*never, *fine]})
    assert ["one word of JSON" in one for one in policy.warnings] == [True, True]
    # The same words of a program are its own.
    program = Exec(command="rm__add x")
    assert verdict(program, mode="ask", deny=["exec(*__add)"]).decision == "ask"


def test_always_offers_this_call_and_this_tool() -> None:
    rules = [one.rule for one in suggest(call(arguments='{"a":"it\'s *"}'))]
    assert rules[1] == "exec(mcp__notes__add *)"
    assert len(rules) == 2


def test_changed_tools_are_always_asked() -> None:
    action = McpTools(server="notes", digest="d", changes=())
    found = verdict(action, allow=["exec(mcp__notes__* *)"])
    assert (found.decision, found.sticky) == ("ask", True)


def test_examples_and_checked_lines_name_calls() -> None:
    rule = {"rule": "exec(mcp__notes__add *)", "match": ['mcp__notes__add {"a":1}']}
    rule["not_match"] = ["mcp__notes__add x"]
    policy = policy_from_data({"allow": [rule]})
    line = b'{"id":"1","category":"exec","command":"mcp__notes__add {\\"a\\":1}"}'
    assert answer_line(line, policy, None, 0.0)["verdict"] == "allow"


def test_an_explanation_tells_which_rule_covers_a_call() -> None:
    lists = {"allow": ["exec(mcp__notes__add *)", "exec(mcp__notes__list *)"]}
    found = explain(policy_from_data(lists), call(), now=0.0)
    outcomes = {one.rule.text: one.outcome for one in found.looked}
    assert outcomes == {
        "exec(mcp__notes__add *)": "decides",
        "exec(mcp__notes__list *)": "missed",
    }
    assert found.verdict.decision == "allow"


def test_an_allow_rule_without_arguments_is_said_to_allow_nothing() -> None:
    policy = policy_from_data({"allow": ["exec(mcp__notes__add)"]})
    (found,) = lint(policy, None, 0.0).findings
    assert found.kind == "never"
    assert "write `exec(mcp__notes__add *)`" in found.remedy


def test_a_call_of_the_agents_own_server_gives_no_rule() -> None:
    assert suggest(call())
    assert suggest(call(by_agent=True)) == ()
    assert options(call(by_agent=True)) == ()
