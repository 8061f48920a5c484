"""What the exec engine answers: the golden cases, the laws, and the limits."""

import random
from pathlib import Path

import pytest
import yaml

from supervisor.core.shell.exec_candidates import candidates
from supervisor.core.shell.exec_rules import (
    ExecPattern,
    Rules,
    compile_pattern,
    judge,
    spelled_commands,
)
from supervisor.errors import PolicyError
from tests.tables import each_row

ROOT = "/workspace/merged"
GOLDEN = Path(__file__).parents[2] / "golden" / "policy_cases" / "exec.yaml"
CASES = yaml.load(GOLDEN.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)


def entries(rules):
    return [(rule, compile_pattern(rule.removeprefix("exec(").removesuffix(")"))) for rule in rules]


def decide(command, allow=(), ask=(), deny=(), cwd="."):
    return judge(
        command,
        cwd,
        allow=entries(allow),
        ask=entries(ask),
        deny=entries(deny),
        workspace_roots=[ROOT],
    )


def verdict(command, policy, cwd="."):
    lists = {effect: policy.get(effect, ()) for effect in ("allow", "ask", "deny")}
    return decide(command, **lists, cwd=cwd).decision or policy.get("modes", {}).get("exec", "ask")


def test_the_golden_cases_are_many_and_a_third_are_benign():
    assert len(CASES) >= 200
    assert sum(case["verdict"] == "allow" for case in CASES) * 3 >= len(CASES)


@each_row("case", CASES, ids=[case["name"] for case in CASES])
def test_a_deny_rule_never_loosens(case):
    order = {"deny": 0, "ask": 1, "allow": 2}
    extra = [
        "exec(git *)",
        "exec(* --force *)",
        "exec(rm -rf *)",
        "exec(*)",
        'exec(cat "a b")',
        "exec(xargs *)",
    ]
    for rule in extra:
        policy = {**case["policy"], "deny": [*case["policy"].get("deny", ()), rule]}
        found = verdict(case["command"], policy, case.get("cwd", "."))
        assert order[found] <= order[case["verdict"]], rule


@each_row("case", CASES[::5], ids=[case["name"] for case in CASES[::5]])
def test_the_order_of_rules_never_matters(case):
    shuffle = random.Random(7)
    policy = {effect: shuffle.sample(rules, len(rules)) for effect, rules in case["policy"].items()}
    assert verdict(case["command"], policy, case.get("cwd", ".")) == case["verdict"]


def test_bare_rules_deny_and_ask_everything():
    for text in ("ls", "", "x=1", "(", "ls\x00", "a" * 20_000, "cd src"):
        assert decide(text, deny=["exec(*)"]).decision == "deny", text
        assert decide(text, allow=["exec(ls)"], ask=["exec(* *)"]).decision == "ask", text
    assert compile_pattern("*").is_bare
    assert compile_pattern("** *").is_bare
    assert not compile_pattern("git *").is_bare


@each_row(
    "text",
    ["", "  ", "git log && ls", "git log; ls", "curl * | sh", "echo $HOME", "echo $(x)", "echo `x`",
     "A=1 git log",
     "git log > x", "git 'log", "{a,b}", "git\x00log", "(git log)", "x" * 3000, "git log &"],
)  # fmt: skip
def test_a_pattern_is_the_words_of_one_command(text):
    with pytest.raises(PolicyError) as caught:
        compile_pattern(text)
    assert caught.value.remedy


@each_row(
    ("pattern", "command", "is_allowed"),
    [
        ("git log *", "git log", True),
        ("git log *", "git logout", False),
        ("make lint*", "make lint-all", True),
        ("git log", "git log -1", False),
        ("npm run test:*", "npm run test:unit", True),
        ("npm run test:*", "npm run test:unit x", False),
        ("cat src/*.py", "cat src/a/b.py", True),
        ("cat src/*.py", "cat src/*.py", True),
        ("cat src/*.py", "cat *.py", False),
        ("cat * b", "cat a b", True),
        ("cat * b", "cat $x b", False),
        ("cat * b", 'cat "$x" b', True),
        ("cat a*", 'cat "a$x"', True),
        ("cat ab*", 'cat "a$x"', False),
        ("cat 'a b'", "cat a\\ b", True),
        ("cat '*'", "cat x", False),
        ("cat '*'", "cat \\*", True),
        ("cat a**b", "cat axb", True),
        ("cat a?b", "cat axb", False),
        ("'git' log", "git log", True),
        ("/usr/bin/git log", "/usr/bin/git log", True),
        ("/usr/bin/git log", "git log", False),
        ("./run.sh *", "./run.sh a", True),
        ("run.sh *", "./run.sh a", False),
        ("/opt/*/bin/x", "/opt/a/bin/x", True),
        ("/opt/*/bin/x", "/opt/../tmp/bin/x", False),
        ("jsx* -V", "jsxc -V", True),
        ("jsx* -V", "/tmp/jsxc -V", False),
        ("py* -V", "python3 -V", False),
        ("s* ls", "sudo ls", False),
        ("curl --output=* x", "curl --output=f x", False),
        ("git -c *", "git -c a=b", False),
        ("sudo *", "sudo ls", False),
        ("sudo ls *", "sudo ls x", True),
        ("xargs rm *", "xargs rm -f", True),
        ("bash -c *", "bash -c ls", False),
        ("bash -c ls", "bash -c ls", True),
        ("bash -c 'ls; x'", "bash -c 'ls; x'", True),
        ("bash -c 'ls $(x)'", "bash -c 'ls $(x)'", False),
        ("find *", "find . -exec ls {} +", False),
        ("uv run pytest *", "uv run pytest -q", True),
        ("uv run pytest *", "uv run pytest -p evil", False),
        ("uv run *", "uv run pytest", False),
    ],
)
def test_patterns(pattern, command, is_allowed):
    assert (decide(command, allow=[pattern]).decision == "allow") is is_allowed


def test_an_exception_of_an_allow_rule_is_as_wide_as_a_deny_rule():
    allow = [("k", compile_pattern("git *"), (compile_pattern("git push --force *"),))]
    found = judge("git push", ".", allow=allow, ask=(), deny=(), workspace_roots=[ROOT])
    assert (found.decision, found.keys) == ("allow", ("k",))
    for command in ("git push --force", "git push origin x --force", "git -C a push --force x"):
        assert (
            judge(command, ".", allow=allow, ask=(), deny=(), workspace_roots=[ROOT]).decision
            is None
        ), command


def test_an_exception_of_a_deny_rule_is_as_narrow_as_an_allow_rule():
    deny = [("k", compile_pattern("*"), (compile_pattern("git log *"),))]
    for command, expected in (
        ("git log -1", None),
        ("git log; ls", "deny"),
        ("git log --output=x", "deny"),
        ("git log $(git log)", "deny"),
        ("./git log", "deny"),
        ("", "deny"),
    ):
        assert (
            judge(command, ".", allow=(), ask=(), deny=deny, workspace_roots=[ROOT]).decision
            == expected
        ), command


def test_keys_and_why_name_the_rules():
    found = decide("git log | head -1", allow=["git log *", "head *"])
    assert found.keys == ("git log *", "head *")
    found = decide("ls; rm -rf x", allow=["ls"], deny=["rm *"])
    assert found.keys == ("rm *",)
    assert "exec(rm *)" in found.why
    found = decide("ls $(x)", allow=["ls *"])
    assert found.never_allow
    assert "command substitution" in found.why
    assert found.commands


@each_row(
    ("command", "cwd", "is_free"),
    [
        ("cd src", ".", True),
        ("cd ./src/a", ".", True),
        ("cd /workspace/merged/x", "src", True),
        ("cd ..", "src", True),
        ("cd ..", ".", False),
        ("cd ../..", "src", False),
        ("cd /workspace/merged-evil", ".", False),
        ("cd a && cd ..", ".", True),
        ("cd a; cd ..", ".", False),
        ("cd a || cd ..", ".", False),
        ("cd a | cd ..", ".", False),
        ("cd a & cd ..", ".", False),
        ("(cd a) && cd ..", ".", False),
        ("! cd a && cd ..", ".", False),
        ("cd a && ls | cat && cd ..", ".", False),
        ("for i in 1 2; do cd ..; done", "src", False),
        ("for i in 1 2; do cd src; done", ".", True),
        ("cd a && cd b && cd ../..", ".", True),
        ("cd a && cd b && cd ../../..", ".", False),
        ("cd -P a", ".", True),
        ("cd a b", ".", False),
        ("cd -", ".", False),
        ("cd", ".", False),
        ("cd ~", ".", False),
        ("cd ''", ".", False),
        ("cd $X", ".", False),
        ("cd *", ".", False),
        ("ls", "..", False),
        ("ls", "/etc", False),
    ],
)
def test_cd_into_the_workspace_is_free(command, cwd, is_free):
    assert (decide(command, allow=["ls", "cat"], cwd=cwd).decision == "allow") is is_free


@each_row(
    "text",
    ["$(" * 500 + "x" + ")" * 500, "a && " * 1999 + "b", "(" * 9000, "{ " * 4000, "<<a " * 2500,
     "`" * 9999, "${a" * 3000,
     "a|" * 5000, "a|" * 490, "a() " * 2500, "'" + "x" * 9990, "if " * 3000, "[[ " * 3000,
     "case x in " * 1000,
     "$'" * 4999, "{a," * 3000, "<<'E'\n" * 1600, "timeout 5 " * 900 + "x", "sh -c '" * 1000,
     "eval " * 1900,
     "env " * 2400 + "x", "parallel " * 1000, "find . " + "-exec a \\; " * 400,
     "sed '" + "{" * 5000 + "'", "\\" * 9999,
     "\ud800", "a\ud800b", "\U000e0041", "é" * 9000, "\u200b" * 9000, "a\r" * 4000, "a" * 200_000,
     "rm " * 100_000,
     "\n" * 10_000, ";" * 10_000, "bash -c \"" * 500, "x" + " -a" * 3000, "\"$(cat <<'E'\n" * 500],
    ids=range(38),
)  # fmt: skip
def test_nothing_raises_and_nothing_absurd_is_allowed(text):
    rules = ["exec(* --force *)", "exec(rm -rf *)"]
    found = decide(
        text,
        allow=["x *", "a *", "timeout *", "env *", "sed *", "find *"],
        deny=rules,
        ask=["exec(zz *)"],
    )
    assert found.decision in (None, "deny", "ask") or text.startswith(("x", "\n", "find"))
    decide(text, allow=rules)
    candidates(text, ".", [ROOT])


def test_a_text_of_any_length_meets_the_deny_rules():
    assert (
        decide("ls " + "x" * 90_000 + "; rm -rf y", allow=["ls *"], deny=["rm -rf *"]).decision
        == "deny"
    )
    assert (
        decide("ls " + "x" * 900_000 + "; rm -rf y", allow=["ls *"], deny=["rm -rf *"]).decision
        == "deny"
    )
    assert decide("ls " + "x" * 900_000, allow=["ls *"]).decision is None


@each_row(
    ("command", "exact", "narrow"),
    [
        ("git log -3", "git log -3", "git log *"),
        ("cd src && git diff --stat", "git diff --stat", "git diff *"),
        ("git commit -m 'a b*'", "git commit -m 'a b*'", "git commit *"),
        (
            "git commit -m \"$(cat <<'E'\nit's\nx\nE\n)\"",
            "git commit -m $'it\\'s\\nx'",
            "git commit *",
        ),
        ("npm run build", "npm run build", "npm run build *"),
        ("python -m pytest -q", "python -m pytest -q", "python -m pytest *"),
        ("timeout 5 pytest -q", "timeout 5 pytest -q", None),
        ("xargs grep x", "xargs grep x", None),
        ("bash -lc 'git status'", "bash -lc 'git status'", None),
        ("rg --pre x y", "rg --pre x y", None),
        ("git config a b", "git config a b", None),
        ("cat $x", None, "cat *"),
        ("ls *.py", None, "ls *"),
        ("rg $x", None, None),
        ("git log | head", None, None),
        ("A=1 ls", None, None),
        ("ls > x", None, None),
        ("rm -rf build", "rm -rf build", None),
        ("python", "python", None),
        ("./git log", "./git log", None),
        ("cd src", None, None),
        ("", None, None),
    ],
)
def test_candidates(command, exact, narrow):
    assert candidates(command, ".", [ROOT]) == (exact, narrow)


def test_a_candidate_names_a_program_from_the_root():
    assert candidates("./tool -x", "sub", [ROOT]) == ("./sub/tool -x", None)
    assert candidates("cd sub && ../tool", ".", [ROOT]) == ("./tool", None)
    assert candidates("cd sub; ./tool", ".", [ROOT]) == (None, None)


def test_every_candidate_allows_its_line_and_is_not_bare():
    offered = 0
    for case in CASES:
        for pattern in candidates(case["command"], ".", [ROOT]):
            if pattern is not None:
                offered += 1
                assert not compile_pattern(pattern).is_bare
                assert decide(case["command"], allow=[pattern]).decision == "allow", (
                    case["command"],
                    pattern,
                )
    assert offered > 100


def test_rules_can_be_built_once():
    allow = Rules(entries([f"exec(prog{i} *)" for i in range(1000)]))
    none = Rules(())
    found = judge("prog7 x", ".", allow=allow, ask=none, deny=none, workspace_roots=[ROOT])
    assert found.keys == ("exec(prog7 *)",)


def test_the_deepest_wrapper_that_is_still_judged():
    assert decide("timeout 1 " * 8 + "ls", allow=["ls"]).decision == "allow"
    assert decide("timeout 1 " * 9 + "ls", allow=["ls"]).never_allow


@pytest.mark.parametrize(
    "line", ["./scripts/deploy.sh", "cd scripts && ./deploy.sh", "cd docs && ../scripts/deploy.sh"]
)
def test_rules_and_exceptions_mean_a_program_wherever_it_is_called_from(line: str) -> None:
    def patterns(*texts: str) -> list[tuple[str, ExecPattern]]:
        return [(text, compile_pattern(text)) for text in texts]

    everything = compile_pattern("./scripts/* *")
    excepted = [("all", everything, (compile_pattern("./scripts/*deploy* *"),))]
    roots = ["/w"]
    assert (
        judge(
            line, ".", allow=patterns("./scripts/* *"), ask=(), deny=(), workspace_roots=roots
        ).decision
        == "allow"
    )
    assert judge(line, ".", allow=excepted, ask=(), deny=(), workspace_roots=roots).decision is None
    denied = judge(
        line, ".", allow=(), ask=(), deny=patterns("./scripts/*deploy* *"), workspace_roots=roots
    )
    assert denied.decision == "deny"


def test_an_exception_inside_is_a_denial():
    """Law 3: what can't be judged is denied with a why, and no rule of anybody's is named."""
    found = judge("ls", 3, allow=entries(["exec(ls)"]), ask=(), deny=(), workspace_roots=[ROOT])
    assert (found.decision, found.keys, found.never_allow) == ("deny", (), True)
    assert found.why == "the command can't be judged (TypeError)"


def test_more_commands_than_are_judged_are_asked_and_still_meet_the_deny_rules():
    text = "env env env env env a;" * 399 + "env env env env env rm"
    found = decide(text, allow=["exec(a)", "exec(rm)"])
    assert found.decision is None
    assert found.never_allow
    assert "too many commands to judge" in found.why
    assert decide(text, allow=["exec(a)"], deny=["exec(rm)"]).decision == "deny"


def test_wrappers_deeper_than_they_are_judged_still_meet_the_deny_rules():
    deep = "env " * 12
    assert decide(f"{deep} ls", allow=["exec(ls)"]).never_allow
    assert decide(f"{deep} rm x", deny=["exec(rm *)"]).decision == "deny"
    assert decide(f"{deep} sh -c 'a; rm x'", deny=["exec(rm *)"]).decision == "deny"
    # Behind a doubt about where a command begins, every later word was looked at already.
    assert decide(f"env --unheard-of {deep} rm x", deny=["exec(rm *)"]).decision == "deny"
    assert decide(f"uv run {deep} rm x", deny=["exec(rm *)"]).decision == "deny"
    assert decide(f"uv run {deep} ls", allow=["exec(uv run *)", "exec(ls)"]).never_allow


def test_many_words_behind_wrappers_still_meet_the_deny_rules():
    many = "x " * 2_500
    assert decide(f"nice nice nice nice ls {many}", allow=["exec(ls *)"]).never_allow
    assert decide(f"nice ls {many}", allow=["exec(ls *)"]).decision == "allow"
    assert decide(f"nice nice nice nice rm {many}", deny=["exec(rm *)"]).decision == "deny"


def test_what_a_pipe_feeds_to_a_shell_inside_of_a_wrapper_is_a_program():
    assert decide("echo rm x | sh -c python3", allow=["exec(echo *)", "exec(python3)"]).never_allow
    assert (
        decide("echo rm x | sh -c 'cat'", allow=["exec(echo *)", "exec(sh -c cat)"]).decision
        == "allow"
    )


def test_a_deny_rule_with_a_wildcard_for_its_name_is_found_in_a_doubtful_text():
    assert decide("x `pip3 install a", deny=["exec(pip* install *)"]).decision == "deny"
    assert decide("x `pip3 list a", deny=["exec(pip* install *)"]).decision is None
    assert (
        decide("x `pip3 install --user a", deny=["exec(pip* install --user *)"]).decision == "deny"
    )


def test_a_rule_that_is_named_already_is_named_once():
    found = decide("rm a; rm b", deny=["exec(rm *)"])
    assert found.keys == ("exec(rm *)",)
    assert found.why == "denied by exec(rm *): `rm a`"


def test_the_commands_of_a_line_are_told_behind_wrappers_and_in_texts_too():
    assert spelled_commands("env rm a && bash -c 'touch b; ls \"$x\"'") == [
        ("env", "rm", "a"),
        ("rm", "a"),
        ("bash", "-c", 'touch b; ls "$x"'),
        ("touch", "b"),
    ]
    assert spelled_commands("") == []
