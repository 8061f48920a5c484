"""Rules that mean more than they look, one by one: what is wide, what only sounds so."""

import pytest

from supervisor.core.actions import Exec
from supervisor.core.lab.lint import lint
from supervisor.core.policy.categories import compiled, never, wide
from supervisor.core.policy.evaluate import evaluate
from supervisor.core.policy.policy_text import policy_from_data
from supervisor.core.text.data_tables import table
from tests.tables import each_row

WIDE = [
    ("exec(bash *)", "any script"),
    ("exec(/usr/bin/python3 *)", "any script"),
    ("exec(python3.13 -m *)", "as a module"),
    ("exec(make *)", "any target"),
    ("exec(npx *)", "as a package"),
    ("exec(npm exec *)", "as a package"),
    ("exec(docker run *)", "as an image"),
    ("exec(sudo *)", "as another user"),
    ("exec(ls*)", "any program"),
    ("exec(py* *)", "any program"),
    ("exec(cat src*)", "`*` crosses `/`"),
    ("filesystem(**)", "every file"),
    ("filesystem(*)", "every file"),
    ("filesystem(**/*)", "every file"),
    ("network(*.amazonaws.com)", "anybody can have a name"),
    ("network(8.0.0.0/7)", "of many owners"),
    ("network(2000::/3)", "of many owners"),
    ("git(*)", "every push"),
    ("packages(npm:*)", "every package"),
    ("packages(npm install *)", "every package"),
    ("packages(pip install requests*)", "begins like that"),
    ("packages(pip:django-*)", "begins like that"),
    ("packages(npm:zod)", "every version"),
    ("packages(npm install zod)", "every version"),
    ("packages(pip install requests[socks])", "every version"),
    ("packages(npm install @team/ui)", "every version"),
]


@each_row(("rule", "why"), WIDE)
def test_a_rule_that_is_wider_than_it_looks_is_named(rule: str, why: str) -> None:
    found = lint(policy_from_data({"allow": [rule]}), None, 0.0).findings
    assert [one.kind for one in found] == ["wide"]
    assert why in found[0].what
    assert found[0].remedy


NARROW = [
    "exec(cat src/*)", "exec(bash scripts/* *)", "exec(pytest tests/unit_* -q)",
    "exec(git *)", "exec(npm run *)", "exec(find *)", "exec(ls *)", "exec(pytest *)",
    "exec(python -m pytest *)", "exec(make test)",
    "exec(bash scripts/build.sh)", "exec(* --version)", "exec(./scripts/* *)",
    "exec(npm run test:*)",
    "exec(git push origin feature/*)", "exec(make docker-*)", "exec(ls --color=*)",
    "exec(rm {workspace})", "exec(node server.js *)",
    "filesystem(src/**)", "filesystem(**/*.py)", "network(*.example.org)", "network(10.0.0.0/8)",
    "network(192.0.2.0/24)",
    "git(push origin *)", "git(feature/*)", "packages(npm ci)", "packages(npm install zod@1.2.3)",
    "packages(npm:@team/*)",
    "packages(pip install requests==2.0)", "packages(pip install -r requirements.txt)",
    "packages(npm uninstall zod)",
    # How a version is written is each manager's own.
    "packages(* install zod)",
    "packages(npm install left-pad@1.*)", "exec(bash -c *)", "exec(bash -lc *)", "exec(sh -c *)",
    "exec(uv run *)", "exec(poetry run *)",
    "exec(set +*)", "exec(curl http://localhost/*)",
]  # fmt: skip


@each_row("rule", NARROW)
def test_a_rule_that_means_what_it_says_is_not(rule: str) -> None:
    assert lint(policy_from_data({"allow": [rule]}), None, 0.0).findings == ()


def decision(command: str, *rules: str) -> str:
    return evaluate(policy_from_data({"allow": [*rules]}), Exec(command=command), now=0.0).decision


@each_row("words", table("wide_rules")["runs_anything"])
def test_what_is_said_to_run_anything_needs_no_other_rule_for_it(words: str) -> None:
    start = words.replace("*", "3")
    assert "allow" in {
        decision(f"{start} {anything}", f"exec({start} *)") for anything in ("./evil.x", "evil x")
    }


RUN_BY_ITSELF = {"ssh": "host rm x"}


@each_row("words", table("wide_rules")["runs_allowed"])
def test_what_is_said_to_run_what_is_allowed_needs_a_rule_for_that(words: str) -> None:
    start = words.replace("*", "3")
    command = f"{start} {RUN_BY_ITSELF.get(words, 'rm x')}"
    assert decision(command, f"exec({start} *)") == "ask"
    assert decision(command, f"exec({start} *)", "exec(rm *)") == "allow"


@pytest.mark.parametrize("shell", ["bash -c", "bash -lc", "sh -c", "zsh -c"])
def test_a_rule_for_a_shell_is_not_wide_as_it_lets_nothing_run_that_could_not_without_it(
    shell: str,
) -> None:
    """POLICY exec 5: strictest of wrapper and payload."""
    assert lint(policy_from_data({"allow": [f"exec({shell} *)"]}), None, 0.0).findings == ()
    assert decision(f"{shell} 'git log && rm x'", f"exec({shell} *)", "exec(git log *)") == "ask"
    assert (
        decision(f"{shell} 'git log && rm x'", f"exec({shell} *)", "exec(git log *)", "exec(rm *)")
        == "allow"
    )
    assert decision(f"{shell} 'git log'", "exec(git log *)") == "ask", (
        "the shell itself needs a rule too"
    )


@each_row("effect", ["ask", "deny"])
@each_row("rule", [rule for rule, _ in WIDE])
def test_a_stricter_rule_may_be_as_wide_as_it_likes(effect: str, rule: str) -> None:
    assert lint(policy_from_data({effect: [rule]}), None, 0.0).findings == ()


@pytest.mark.parametrize("rule", ["exec(*)", "packages(*)"])
def test_a_bare_rule_that_allows_nothing_is_not_wide_but_never_matches(rule: str) -> None:
    bare = compiled(policy_from_data({"allow": [rule]}).rules[0])
    assert wide(bare) is None
    remark = never(bare, lambda _: None, "ask")
    assert remark is not None
    assert remark.what.startswith("is bare")


def test_a_rule_without_a_single_use_never_matches() -> None:
    policy = policy_from_data(
        {"allow": [{"rule": "exec(ls)", "uses": 0}, {"rule": "exec(pwd)", "uses": 1}]}
    )
    (found,) = lint(policy, None, 0.0).findings
    assert (found.kind, found.rule, found.what) == ("never", "exec(ls)", "may be used 0 times")


def test_a_rule_about_what_is_no_package_never_matches_and_is_not_wide() -> None:
    rule = "packages(npm install 'left;pad')"
    (found,) = lint(policy_from_data({"allow": [rule]}), None, 0.0).findings
    assert (found.kind, found.what) == (
        "never",
        "is never allowed: `left;pad` is not the name of a package",
    )
    assert (
        lint(policy_from_data({"allow": [rule], "modes": {"packages": "deny"}}), None, 0.0).findings
        == ()
    )
