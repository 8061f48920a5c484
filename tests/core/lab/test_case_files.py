"""Case files: every form that is well formed, every mistake with its line, and answers that are
`policy check`'s own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.lab.case_files import Case, failure_of, read_cases
from supervisor.core.lab.check import answer_line
from supervisor.core.policy.policy_text import parse_policy
from supervisor.core.policy.rules import Policy
from supervisor.errors import UserError
from tests.tables import each_row

ROOT = Path(__file__).parents[3]
NOW = 1_790_000_000.0
POLICY = "allow: [exec(ls *)]\ndeny: [exec(sudo *)]\n"


def only(text: str) -> Case:
    (case,) = read_cases(text, "f.yaml")
    return case


def test_a_case_is_the_line_that_policy_check_reads() -> None:
    case = only(
        '# first\n\n- {name: a b, category: exec, command: "ls -l", cwd: src, verdict: allow, why:'
        " w, rule: exec(ls *)}\n"
    )
    assert case == Case(
        "a b",
        "allow",
        {"category": "exec", "command": "ls -l", "cwd": "src"},
        "f.yaml",
        3,
        "w",
        "exec(ls *)",
    )
    assert not case.has_policy


def test_numbers_and_truth_are_what_json_has_and_all_else_is_text() -> None:
    case = only(
        "- {name: n, category: filesystem, operation: chmod, path: a, mode: 420, to: ~, hazards:"
        " [symlink], path_b64: 2026-01-01, link_target: 1.5, verdict: ask}\n"
    )
    assert case.fields == {
        "category": "filesystem", "operation": "chmod", "path": "a", "mode": 420, "to": None,
        "hazards": ["symlink"],
        "path_b64": "2026-01-01", "link_target": "1.5",
    }  # fmt: skip
    assert (
        only("- {name: n, category: git, operation: push, force: true, verdict: ask}").fields[
            "force"
        ]
        is True
    )


def test_in_a_policy_all_is_text_as_in_a_policy_file() -> None:
    case = only(
        "- {name: n, category: exec, command: x, verdict: allow,\n   policy: {version: 1, allow:"
        " [{rule: exec(x), uses: 20, expires: 2027-01-31, why: no}]}}\n"
    )
    assert case.fields["policy"] == {
        "version": "1",
        "allow": [{"rule": "exec(x)", "uses": "20", "expires": "2027-01-31", "why": "no"}],
    }
    assert case.has_policy
    assert failure_of(case, None, NOW) is None


def test_cases_may_share_a_policy_by_an_anchor() -> None:
    cases = read_cases(
        "- {name: a, category: exec, command: ls, policy: &p {allow: [exec(ls)]}, verdict: allow}\n"
        "- {name: b, category: exec, command: rm, policy: *p, verdict: ask}\n",
        "f.yaml",
    )
    assert [failure_of(case, None, NOW) for case in cases] == [None, None]


@each_row(
    ("text", "said"),
    [
        ("", "f.yaml: a case file is a list of cases; write"),
        ("a: b", "f.yaml:1: a case file is a list of cases"),
        ("-\n- [", "f.yaml:3: "),
        ("- a: [", "f.yaml:"),
        ("- text", "f.yaml:1: a case that is not a mapping"),
        ("- {? [a] : b}", "f.yaml:1: a key that is not text"),
        ("- {category: exec, verdict: ask}", "f.yaml:1: a case without a `name`"),
        ("- {name: 1, category: exec, verdict: ask}",
         "f.yaml:1: a case without a `name`; add `name:`, in quotes"),
        ("- {name: ' ', category: exec, verdict: ask}", "f.yaml:1: a case without a `name`"),
        ("- {name: a, category: exec}",
         "f.yaml:1: a case without a `verdict`; known are `allow`, `ask`, `deny`"),
        ("- {name: a, category: exec, verdict: alow}",
         "f.yaml:1: unknown verdict `alow`; did you mean `allow`?"),
        ("- {name: a, category: exec, verdict: true}", "f.yaml:1: unknown verdict `True`"),
        ("- {name: a, verdict: ask}", "f.yaml:1: a case without a `category`"),
        ("\n- name: a\n  category: network\n  verdict: ask\n  metod: GET\n",
         "f.yaml:5: unknown key `metod` in a case; did you mean `method`?"),
        ("- {name: a, category: exec, path: x, verdict: ask}",
         "f.yaml:1: unknown key `path` in a case"),
        ("- {name: a, categry: exec, verdict: ask}",
         "f.yaml:1: unknown key `categry` in a case; did you mean `category`?"),
        ("- name: a\n  verdict: ask\n  category: exce\n",
         "f.yaml:3: unknown category `exce`; did you mean `exec`?"),
        ("- {name: a, category: exec, verdict: ask,\n verdict: deny}",
         "f.yaml:2: the key `verdict` stands in one case twice"),
        ("- {name: a, category: exec, verdict: ask}\n- {name: a, category: git, verdict: ask}",
         "f.yaml:2: the name `a` stands on line 1 too"),
        ("- {name: a, category: exec, verdict: ask, why: [x]}", "f.yaml:1: `why` is not text"),
        ("- {name: a, category: exec, verdict: ask, rule: 3}", "f.yaml:1: `rule` is not text"),
        ("- {name: a, category: exec, command: !!bool x, verdict: ask}",
         "f.yaml:1: `x` is not a number or truth value"),
        ("- {name: a, category: exec, command: !!int x, verdict: ask}",
         "f.yaml:1: `x` is not a number or truth value"),
        ("- {name: a, category: exec, policy: {a: b, a: c}, verdict: ask}",
         "f.yaml:1: a key that is no text, or stands here twice"),
        ("- {name: a, category: exec, policy: {[a]: b}, verdict: ask}",
         "f.yaml:1: a key that is no text, or stands here twice"),
        ("- {name: a, category: exec, policy: &p {allow: [*p, *p]}, verdict: ask}",
         "nested too deeply, or an anchor inside of itself"),
        ("- {name: a, category: exec, command: *nowhere, verdict: ask}",
         "f.yaml:1: found undefined alias"),
        ("--- [a]\n--- [b]", "f.yaml:2: "),
        ("[" * 5000, "f.yaml"),
        ("- \ud800", "f.yaml: can't be read as YAML"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line_and_a_remedy(text: str, said: str) -> None:
    with pytest.raises(UserError) as error:
        read_cases(text, "f.yaml")
    assert said in str(error.value)
    assert error.value.remedy


@pytest.mark.parametrize("opening", ["[", "- ", "{a: ", "? "])
def test_no_depth_of_nesting_ends_the_process(opening: str) -> None:
    """`yaml.compose` recurses in C: this text ended the process before anything could be caught."""
    script = f"""
from supervisor.core.lab.case_files import read_cases
from supervisor.errors import UserError
try:
    read_cases({opening!r} * 100_000, "f.yaml")
except UserError as error:
    print(error)
"""
    ran = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("f.yaml:1: nested too deeply; ")


def test_anchors_cant_make_a_text_deeper_than_it_looks() -> None:
    levels = "".join(f"    - &l{n} [[[[*l{n - 1}]]]]\n" for n in range(1, 40))
    text = (
        "- name: a\n  category: exec\n  verdict: ask\n  policy:\n    allow:\n    - &l0"
        f" [x]\n{levels}"
    )
    with pytest.raises(UserError, match=r"f\.yaml:\d+: nested too deeply"):
        read_cases(text, "f.yaml")


def test_anchors_cant_make_a_small_text_huge() -> None:
    levels = "".join(f"- &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]\n" for n in range(1, 9))
    text = (
        "- name: a\n  category: exec\n  verdict: ask\n  policy:\n    allow:\n    - &l0"
        f" [x]\n{levels.replace('- &', '    - &')}"
    )
    with pytest.raises(UserError, match=r"f\.yaml:5: anchors make more than 100000 values"):
        read_cases(text, "f.yaml")


# -- judging --------------------------------------------------------------------------------------


def policy() -> Policy:
    return parse_policy(POLICY, "p.yaml")


def test_a_case_without_a_policy_is_judged_by_the_one_that_is_given() -> None:
    case = only("- {name: a, category: exec, command: ls, verdict: allow}")
    assert failure_of(case, policy(), NOW) is None
    assert failure_of(case, None, NOW) is not None


def test_a_failure_says_where_what_was_wanted_what_came_and_why() -> None:
    failure = failure_of(
        only("\n- {name: no root, category: exec, command: sudo id, verdict: ask, why: tested}"),
        policy(),
        NOW,
    )
    assert (
        str(failure)
        == "f.yaml:2: no root: wanted ask, got deny: denied by exec(sudo *): `sudo id` (the case"
        " says: tested)"
    )


def test_a_case_may_name_the_rule_that_must_decide() -> None:
    case = only("- {name: a, category: exec, command: ls, verdict: allow, rule: exec(ls)}")
    failure = failure_of(case, policy(), NOW)
    assert "wanted allow by exec(ls), got allow by exec(ls *): " in str(failure)
    unmatched = failure_of(
        only("- {name: a, category: exec, command: rm, verdict: ask, rule: exec(ls *)}"),
        policy(),
        NOW,
    )
    assert "wanted ask by exec(ls *), got ask by no rule: " in str(unmatched)


def test_a_line_that_cant_be_understood_is_denied_as_policy_check_denies_it() -> None:
    assert (
        failure_of(
            only("- {name: a, category: filesystem, operation: move, path: a, verdict: deny}"),
            policy(),
            NOW,
        )
        is None
    )


@given(
    st.sampled_from(["ls", "sudo id", "rm -rf x", "ls; id", "echo $(id)", ""]),
    st.sampled_from(["allow", "ask", "deny"]),
)
def test_the_answer_is_that_of_policy_check(command: str, wanted: str) -> None:
    text = json.dumps([{"name": "n", "category": "exec", "command": command, "verdict": wanted}])
    line: dict[str, Any] = {"category": "exec", "command": command}
    answer = answer_line(json.dumps(line).encode(), policy(), None, NOW)
    assert (failure_of(only(text), policy(), NOW) is None) == (answer["verdict"] == wanted)
