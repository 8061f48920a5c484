"""What a command line is besides a command, and whether it is nothing else."""

import pytest

from supervisor.core.actions import Exec, Git, Packages
from supervisor.core.policy.evaluate import evaluate
from supervisor.core.policy.outside_acts import outside_acts
from supervisor.core.policy.policy_text import policy_from_data
from tests.tables import each_row

ALONE = [
    ("git push origin main", "."),
    ("cd app && npm i x", "app"),
    ("cd app; cd sub && npm i x | tail -5", "app/sub"),
    ("git -C app push origin main", "app"),
    ("timeout 60 npm install x 2>&1 | tail -3; echo done", "."),
    ("bash -c 'pip install x'", "."),
    ("npm ci || true; cd app", "."),
]
MORE = [
    "npm ci && npm test",
    "git commit -m x && git push",
    "pip install x && pip install y",
    "X=1 npm i x",
    "npm i $X",
    "npm i x > log",
    "for one in a b; do npm i x; done",
    "ls | xargs npm install",
    "sudo pip install x",
    "cd .. && npm i x",
    "git -C ../other push origin main",
    "cd $X && npm i x",
    "[ -f package.json ] && npm ci",
    "echo $(npm i x)",
    "sh build.sh && git push origin main",
    "bash --rcfile evil -i; git fetch origin",
    "timeout 5; npm i x",
]
NOTHING = [
    "git status",
    "npm test",
    "npm run install",
    "./git push",
    "echo git push",
    "git commit -m 'npm install x'",
    "python -m pytest",
    "pip list",
]


@pytest.mark.parametrize(("line", "folder"), ALONE)
def test_one_act_is_found_with_its_folder(line: str, folder: str) -> None:
    found = outside_acts(Exec(command=line))
    assert len(found.acts) == 1
    assert found.alone is not None
    assert isinstance(found.alone, Git | Packages)
    assert found.alone.cwd == folder
    assert found.alone.by_exec


@each_row("line", MORE)
def test_a_line_that_does_more_is_no_act_alone(line: str) -> None:
    found = outside_acts(Exec(command=line))
    assert found.acts
    assert found.alone is None


def test_beside_the_whole_of_a_line_only_the_folder_changes() -> None:
    for line, is_whole in [
        ("npm i x", True),
        ("cd app && npm i x", True),
        ("git -C app fetch origin", True),
        ("cat .env; npm i x", False),
        ("timeout 60 npm i x", False),
        ("npm ci && npm test", False),
    ]:
        assert outside_acts(Exec(command=line)).is_whole is is_whole, line


@pytest.mark.parametrize("line", NOTHING)
def test_what_only_looks_like_one_is_none(line: str) -> None:
    assert outside_acts(Exec(command=line)).acts == ()


def test_a_folder_below_the_workspace_is_kept() -> None:
    found = outside_acts(Exec(command="cd sub && git push origin x", cwd="app"))
    assert found.alone is not None
    assert found.alone.cwd == "app/sub"


def test_an_act_that_came_as_a_command_meets_the_rules_of_both() -> None:
    push = outside_acts(Exec(command="git push origin bot/x")).alone
    assert push is not None
    allowed = {"allow": ["git(push origin bot/*)"]}
    for rules, wanted in [
        (allowed, "allow"),
        (allowed | {"ask": ["exec(git push *)"]}, "ask"),
        (allowed | {"deny": ["exec(git push *)"]}, "deny"),
        (allowed | {"modes": {"exec": "deny"}}, "deny"),
        ({"allow": ["exec(git push *)"]}, "ask"),
    ]:
        assert evaluate(policy_from_data(rules), push, now=0.0).decision == wanted, rules


def test_deny_of_a_package_beats_allow_of_its_command() -> None:
    policy = policy_from_data(
        {"allow": ["exec(pip install *)"], "deny": ["packages(pip:requests)"]}
    )
    verdict = evaluate(policy, Exec(command="pip install requests"), now=0.0)
    assert (verdict.decision, verdict.rule) == ("deny", "packages(pip:requests)")


def test_a_line_starts_by_its_own_verdict_unless_a_part_is_denied() -> None:
    policy = policy_from_data(
        {"allow": ["exec(npm *)", "exec(git commit *)", "exec(git push *)"],
         "ask": ["git(push main)"], "deny": ["packages(npm:evil)", "git(push --force *)"]}
    )  # fmt: skip
    for line, starts, whole in [
        ("npm ci && npm test", "allow", "ask"),
        ("git commit -m x && git push origin main", "allow", "ask"),
        ("npm install evil && npm test", "deny", "deny"),
        ("git push -f origin x; npm test", "deny", "deny"),
        ("make && npm ci", "ask", "ask"),
    ]:
        action = Exec(command=line)
        assert evaluate(policy, action, now=0.0).decision == starts, line
        assert evaluate(policy, action, now=0.0, with_parts=True).decision == whole, line


def test_words_that_are_not_known_yet_are_denied_by_rules_only() -> None:
    denying = policy_from_data({"deny": ["packages(npm:evil)"], "modes": {"exec": "contained"}})
    for line, starts, whole in [
        ("for p in a b; do npm install $p; done", "allow", "ask"),
        ("git push $REMOTE HEAD:x; echo", "allow", "ask"),
        ("git push -u origin $(git branch --show-current) && gh pr create", "allow", "ask"),
        ("npm install evil $p", "allow", "ask"),
        ("npm --tag $t install evil", "deny", "deny"),
        ("npm install 'a b;c'; echo", "deny", "deny"),
        ("npm --loglevel warn --fetch-retries 0 install evil; echo", "deny", "deny"),
        ("npm install evil --note=$'\\x01'; echo", "deny", "deny"),
        ("cargo +nightly install evil; echo", "allow", "ask"),
    ]:
        action = Exec(command=line)
        contained = {"now": 0.0, "is_contained": True}
        assert evaluate(denying, action, **contained).decision == starts, line
        assert evaluate(denying, action, **contained, with_parts=True).decision == whole, line
    long = Exec(command=f"npm install evil {'x' * 10_000}")
    assert evaluate(denying, long, now=0.0, is_contained=True).decision == "ask"
