"""The mode `contained`: a command that no rule is about runs without a question where it can change
nothing outside; what can't be read, and what rules ask or deny, is as in every other mode."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.actions import Exec
from supervisor.core.policy.evaluate import evaluate, mode_verdict
from supervisor.core.policy.policy_text import merge, parse_policy
from supervisor.core.policy.rules import Policy, Verdict
from supervisor.core.shell.exec_rules import MAX_DEPTH
from supervisor.core.shell.shell import MAX_CHARS
from supervisor.errors import PolicyError

RULES = """
version: 1
modes: {exec: MODE}
allow: [exec(git status)]
ask: [exec(git push *)]
deny: [exec(rm *)]
"""


def policy(mode: str = "contained", text: str = RULES) -> Policy:
    return parse_policy(text.replace("MODE", mode), "policy.yaml")


def verdict(command: str, *, holds: bool = True, under: Policy | None = None) -> Verdict:
    return evaluate(under or policy(), Exec(command=command), now=0.0, uses={}, is_contained=holds)


@pytest.mark.parametrize(
    "command",
    [
        "make test",
        "FOO=bar ./run.sh",
        "x=$(date); echo $x > out.txt",
        "cat > a.py <<'EOF'\nprint(1)\nEOF",
        "python -c 'print(1)'",
        "for f in *.py; do sed -i s/a/b/ $f; done",
        "sudo make install",
        "bash -c 'npm test && curl https://example.org'",
        "cd /etc && cat passwd",
    ],
)
def test_a_command_that_no_rule_is_about_runs(command: str) -> None:
    found = verdict(command)
    assert (found.decision, found.is_contained, found.rule) == ("allow", True, None)
    assert found.why == "runs contained: nothing outside can change"
    asked = verdict(command, holds=False)
    assert (asked.decision, asked.is_contained) == ("ask", False)
    assert asked.why.endswith("commands don't run contained here, so exec asks")


@pytest.mark.parametrize(
    ("command", "decision", "rule"),
    [
        ("git status", "allow", "exec(git status)"),
        ("echo $(rm -rf build)", "deny", "exec(rm *)"),
        ("make test; rm x", "deny", "exec(rm *)"),
        ("sh -c 'git push origin main'", "ask", "exec(git push *)"),
        ("x=1 git push", "ask", "exec(git push *)"),
    ],
)
def test_rules_count_as_ever(command: str, decision: str, rule: str) -> None:
    found = verdict(command)
    assert (found.decision, found.rule, found.is_contained) == (decision, rule, False)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("echo a\u202eb", "the hidden character U+202E"),
        ("echo a\x00b", "the hidden character U+0000"),
        ("echo 'never closed", "can't be parsed"),
        ("if true; then", "can't be parsed"),
        ("sh -c 'echo \"never closed'", "can't be parsed"),
        ("echo " + "a" * MAX_CHARS, "too long to judge"),
        ("echo a" + ";b" * 600, "too complex to judge"),
        ("env " * (MAX_DEPTH + 2) + "make", "levels of wrappers"),
        ("bash -c 'make " + "a" * 9990 + "'; bash -c 'make " + "b" * 10 + "'", "too long to judge"),
    ],
)
def test_what_can_not_be_read_is_asked(command: str, why: str) -> None:
    found = verdict(command)
    assert found.decision == "ask"
    assert why in found.why
    assert found.sticky


def test_other_modes_know_no_containment() -> None:
    for mode in ("ask", "deny"):
        assert verdict("make test", under=policy(mode)).decision == mode
    assert mode_verdict(policy(), Exec(command="make")).decision == "ask"


def test_only_commands_can_be_contained() -> None:
    with pytest.raises(PolicyError, match="`network` can't have the mode `contained`"):
        parse_policy("version: 1\nmodes: {network: contained}\n", "policy.yaml")
    with pytest.raises(PolicyError, match="unknown mode `contaned`"):
        parse_policy("version: 1\nmodes: {exec: contaned}\n", "policy.yaml")


@pytest.mark.parametrize(
    ("modes", "wanted"),
    [
        (("contained", "contained"), "contained"),
        (("contained", "ask"), "ask"),
        (("deny", "contained"), "deny"),
    ],
)
def test_of_several_policies_the_strictest_mode_counts(modes: tuple[str, str], wanted: str) -> None:
    assert merge(*map(policy, modes)).mode_of("exec") == wanted


WORDS = st.sampled_from(
    ["make", "rm", "x", "git", "push", "status", ";", "&&", "|", "$(", ")", "'", '"', ">", "\n",
     "{", "}", "if", "then", "fi", "<<EOF", "EOF", "A=1", "sh", "-c", "\u200b", "`", "for", "do"]
)  # fmt: skip


@given(st.lists(WORDS, max_size=14).map(" ".join))
def test_it_loosens_nothing_that_rules_say(command: str) -> None:
    contained, asking = verdict(command), verdict(command, under=policy("ask"))
    if asking.decision == "deny" or asking.rule:
        assert contained == asking
    elif contained.is_contained:
        assert asking.decision == "ask"
    assert verdict(command, holds=False).decision == asking.decision


def test_a_remembered_verdict_is_not_that_of_another_place() -> None:
    under: Any = policy()
    assert [verdict("make", holds=one, under=under).decision for one in (True, False, True)] == [
        "allow",
        "ask",
        "allow",
    ]
