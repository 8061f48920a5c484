"""`explain` says what `evaluate` says, for anything; and what it says besides is what a person needs to know."""

import json
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core import explain_exec
from supervisor.core.actions import Action, Exec, FileChange, Git, Network, Packages, Proposal, category_of
from supervisor.core.check import action_of
from supervisor.core.exec_patterns import compile_pattern
from supervisor.core.exec_rules import Rules, judge, show
from supervisor.core.exec_trace import Trace
from supervisor.core.explain import explain
from supervisor.core.explanation import NEAR, OUTCOMES, Explanation, Looked, as_data
from supervisor.core.git_refs import parse_command
from supervisor.core.policy_text import DENY_ALL, merge, policy_from_data
from supervisor.core.rules import Policy, Verdict, evaluate
from supervisor.core.verdicts import Rule
from supervisor.errors import PolicyError
from tests.fakes.law_worlds import ACTIONS, EFFECTS, MODES, PATTERNS, WIDE, WILD_ACTIONS

NOW = 1_790_000_000.0
CASES = Path(__file__).resolve().parents[1] / "golden" / "policy_cases"

# -- random worlds: rules with details, and command lines with structure -------------------------------------------------------
EXEC_PATTERNS = st.sampled_from(
    ["git log *", "git *", "git push --force *", "ls *", "ls", "*", "rm *", "rm {workspace}", "pytest", "timeout 5 ls", "find *", "sudo *",
     "bash -c *", "bash -c 'ls; rm x'", "* --version", "./run *", "xargs *", "echo *", "git -C src log", "env ls *"]
)  # fmt: skip
SIMPLE = st.sampled_from(
    ["git log", "git log -3", "git -C src log", "git -C /tmp log", "git push -f origin x", "ls", "ls -la", "rm x", "rm -rf ../x", "pytest",
     "find . -delete", "find . -exec rm {} +", "sudo rm x", "cd src", "cd ..", "./run x", "src/run", "echo $X", "$X y", "echo $(rm x)",
     "cat <(ls)", "X=1 ls", "python --version", "git --version", "echo a > b", "/tmp/ls", "true", "xargs rm", "eval 'rm x'",
     "bash -c 'ls; rm x'", "bash -c \"ls $(id)\"", "timeout 5 ls", "env -S 'ls'", "rm *.py", "sh", "}"]
)  # fmt: skip
WRAPPED = st.tuples(st.sampled_from(["", "", "timeout 5 ", "nice ", "sudo ", "! ", "./nice "]), SIMPLE).map("".join)
LINES = st.lists(st.tuples(WRAPPED, st.sampled_from(["; ", " && ", " | ", " || ", "\n", " & "])), min_size=1, max_size=4).map(
    lambda parts: "".join(f"{command}{operator}" for command, operator in parts[:-1]) + parts[-1][0]
)  # fmt: skip
EXECS = st.tuples(LINES, st.sampled_from([".", "src", "/tmp", ".."])).map(
    lambda both: Exec(command=both[0], cwd=both[1])
)
ALL_PATTERNS = {
    **PATTERNS,
    "exec": EXEC_PATTERNS,
    "filesystem": PATTERNS["filesystem"] | st.sampled_from([".env", "**/.env", ".git/config", ".github/**"]),
    "network": PATTERNS["network"] | st.sampled_from(["10.0.0.1", "10.0.0.0/8", "10.0.0.1:8443"]),
}
FILES = st.builds(
    FileChange, operation=st.sampled_from(["write", "rename", "symlink", "chmod"]),
    path=st.sampled_from(["a", "src/a.py", ".env", ".git/config", ".github/x.yml", "A/B", "../x"]),
    to=st.none() | st.sampled_from(["b", ".env", "src/b"]), mode=st.none() | st.sampled_from([0o644, 0o755]),
)  # fmt: skip
HOSTS = st.builds(
    Network, operation=st.just("connect"), host=st.sampled_from(["a.example.com", "10.0.0.1", "example.com", "169.254.169.254"]),
    port=st.sampled_from([443, 8443]), resolved=st.sampled_from([(), ("10.0.0.1",), ("10.0.0.1", "10.9.9.9"), ("93.184.216.34",)]),
)  # fmt: skip
SOME_ACTIONS: st.SearchStrategy[Action] = ACTIONS | EXECS | FILES | HOSTS


@st.composite
def entries(draw: st.DrawFn, effect: str, categories: tuple[str, ...] = tuple(sorted(ALL_PATTERNS))) -> dict[str, Any]:
    category = draw(st.sampled_from(categories))
    entry: dict[str, Any] = {"rule": f"{category}({draw(ALL_PATTERNS[category])})"}
    if draw(st.booleans()):
        return entry
    entry["except"] = draw(st.lists(ALL_PATTERNS[category].map(lambda text: f"{category}({text})"), max_size=2))
    entry |= draw(
        st.sampled_from(
            [{}, {"expires": "2020-01-01"}, {"expires": "2999-01-01"}, {"session": "s1"}, {"session": "s2"}]
        )
    )
    if effect == "allow":
        entry |= draw(st.sampled_from([{}, {"uses": 0}, {"uses": 5}]))
    return entry


LISTS = st.fixed_dictionaries({effect: st.lists(entries(effect), max_size=4) for effect in EFFECTS})
ARGUMENTS: dict[str, Any] = {"now": NOW, "session_id": "s1", "uses": {}}


def policy_of(lists: dict[str, Any], modes: dict[str, str] | None = None) -> Policy | None:
    try:
        return policy_from_data({**lists, "modes": modes or {}})
    except PolicyError:
        return None


def deciding(found: Explanation) -> set[tuple[str, str]]:
    return {(one.rule.effect, one.rule.text) for one in found.looked if one.outcome == "decides"}


def used(verdict: Verdict) -> set[tuple[str, str]]:
    return {(verdict.decision, text) for text in verdict.rules}


# -- it never disagrees ----------------------------------------------------------------------------------------------------------


@given(LISTS, MODES, SOME_ACTIONS)
def test_the_rules_that_are_said_to_decide_are_those_that_did(
    lists: dict[str, Any], modes: dict[str, str], action: Action
) -> None:
    policy = policy_of(lists, modes)
    if policy is None:
        return
    found = explain(policy, action, **ARGUMENTS)
    assert found.verdict == evaluate(policy, action, **ARGUMENTS)
    assert not found.trouble
    assert deciding(found) == used(found.verdict)
    assert (found.basis == "rules") == bool(found.verdict.rules)
    # Every rule of the category, once; the others are counted.
    assert Counter(map(id, (one.rule for one in found.looked))) == Counter(map(id, policy.of(category_of(action))))
    assert len(found.looked) + sum(count for _, count in found.others) == len(policy.rules)
    assert [OUTCOMES.index(one.outcome) for one in found.looked] == sorted(
        OUTCOMES.index(one.outcome) for one in found.looked
    )
    assert all(one.why for one in found.looked)


@given(LISTS, SOME_ACTIONS)
def test_each_rule_alone_does_what_is_said_of_it(lists: dict[str, Any], action: Action) -> None:
    policy = policy_of(lists)
    if policy is None:
        return
    found = explain(policy, action, **ARGUMENTS)
    needed = {at for at, part in enumerate(found.parts) if part.answer != "free"}
    for one in found.looked:
        alone = explain(Policy([one.rule]), action, **ARGUMENTS)
        assert deciding(alone) == used(alone.verdict)
        decides = bool(deciding(alone))
        if one.outcome in ("missed", "excepted", "inactive", "never"):
            assert not decides, one
        elif one.outcome in ("decides", "overruled") and (one.rule.effect != "allow" or needed <= set(one.parts)):
            assert decides or alone.basis == "forced", one
        elif one.outcome == "spare" and len(found.parts) == 1:
            assert decides, one


@given(LISTS, SOME_ACTIONS)
def test_what_is_said_to_be_forced_no_allow_rule_lifts(lists: dict[str, Any], action: Action) -> None:
    """Where something forced the answer, even the widest rules that may be written leave it; what is suggested is enough."""
    policy = policy_of(lists)
    if policy is None:
        return
    found = explain(policy, action, **ARGUMENTS)
    if found.basis == "forced" and not found.suggestions and isinstance(action, FileChange):
        wide = merge(policy, policy_from_data({"allow": ["filesystem(**)"]}))
        assert evaluate(wide, action, **ARGUMENTS).decision == found.verdict.decision
    first = {one.part: one.rule for one in reversed(found.suggestions)}
    if first:
        wider = merge(policy, policy_from_data({"allow": list(first.values())}))
        assert evaluate(wider, action, **ARGUMENTS).decision == "allow"


@given(WILD_ACTIONS)
def test_no_action_raises(action: Action) -> None:
    for policy in (WIDE, Policy(), DENY_ALL):
        found = explain(policy, action, now=NOW)
        assert found.verdict == evaluate(policy, action, now=NOW)
        assert not found.trouble
        assert deciding(found) == used(found.verdict)
        json.dumps(as_data(found))


@cache
def golden() -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = []
    for path in sorted(CASES.glob("*.yaml")):
        loaded += yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    return loaded


@pytest.mark.timeout(600)  # thousands of cases, each under every rule
def test_every_golden_case_is_explained_as_it_is_judged() -> None:
    explained = 0
    for case in golden():
        fields = {key: value for key, value in case.items() if key not in ("name", "verdict", "policy")}
        try:
            action, policy = action_of(fields), policy_from_data(case.get("policy") or {})
        except (ValueError, PolicyError):  # the case is about that
            continue
        remotes = frozenset(case["remotes"]) if "remotes" in case else None
        found = explain(policy, action, now=NOW, configured_remotes=remotes, uses={})
        assert not found.trouble, case["name"]
        assert deciding(found) == used(found.verdict), case["name"]
        explained += 1
    assert explained > 1_000


def assert_followed(action: Exec, allow: Sequence[str], ask: Sequence[str], deny: Sequence[str]) -> None:
    """A judge that is followed answers as one that isn't, finds the same commands, and every rule of its answer is in some step."""

    def rules(patterns: Sequence[str], first: int) -> Rules[int]:
        compiled = [compile_pattern(text) for text in patterns]
        return Rules((first + at, one) for at, one in enumerate(compiled) if first or not one.is_bare)

    lists, roots = (rules(allow, 0), rules(ask, 1_000), rules(deny, 2_000)), ("/workspace/merged",)
    watch = Trace(action.command, action.cwd, *lists, roots)
    plain = judge(action.command, action.cwd, allow=lists[0], ask=lists[1], deny=lists[2], workspace_roots=roots)
    assert watch.judge() == plain
    assert tuple(show(step.words) for step in watch.steps) == plain.commands
    said = {key for step in watch.steps for key in (*step.covering, *step.against)} | set(watch.against_line)
    assert set(plain.keys) <= said
    for step in watch.steps:
        assert all((key >= 1_000) is (key in step.against) for key in (*step.covering, *step.against))


@given(
    EXECS,
    st.lists(EXEC_PATTERNS, max_size=8),
    st.lists(EXEC_PATTERNS, max_size=2),
    st.lists(EXEC_PATTERNS, max_size=2),
)
def test_following_a_judge_changes_nothing(action: Exec, allow: list[str], ask: list[str], deny: list[str]) -> None:
    assert_followed(action, allow, ask, deny)


def test_following_a_judge_changes_nothing_for_any_golden_case() -> None:
    for case in golden():
        if case["category"] == "exec":
            lists = case.get("policy") or {}
            texts = [
                [str(entry)[5:-1] for entry in lists.get(effect, []) if isinstance(entry, str)] for effect in EFFECTS
            ]
            assert_followed(Exec(command=case["command"], cwd=case.get("cwd", ".")), *texts)


def test_a_rule_that_was_found_once_is_asked_again_without_a_trace() -> None:
    """The judge doesn't ask a deny rule twice; that it is asked again for the steps must not leave a problem behind."""
    assert_followed(Exec(command="git push --force x; git push $X"), (), (), ("git push --force *",))
    found = explain(
        policy_from_data({"deny": ["exec(git push --force *)"]}), Exec(command="git push -f x; git push -f y"), now=NOW
    )
    assert found.looked[0].parts == (0, 1)


@given(EXECS, EXEC_PATTERNS)
def test_only_an_interpreter_is_said_to_run_what_it_reads(action: Exec, pattern: str) -> None:
    """The words of a miss are found by asking `covers`; this is what is left where every word fits."""
    found = explain(policy_from_data({"allow": [f"exec({pattern})"]}), action, now=NOW)
    if any("would run what it reads" in one.why for one in found.looked):
        assert any(part.text.split()[0] in ("sh", "python", "python3", "xargs", "bash") for part in found.parts)


def test_an_explanation_that_breaks_is_still_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(explain_exec, "Trace", broken)
    policy = policy_from_data({"allow": ["exec(ls)"]})
    found = explain(policy, Exec(command="ls"), now=NOW)
    assert found.verdict.decision == "allow"
    assert "RuntimeError" in found.trouble
    assert found.basis == "rules"
    assert explain(policy, Exec(command="id"), now=NOW).basis == "mode"


LONG = [
    (Exec(command="; ".join(f"echo {n}" for n in range(300))), "exec(echo 250)", "exec(echo *)"),
    (Exec(command="; ".join(f"echo {n}" for n in range(300)) + "; ls $(id)"), "exec(ls *)", "exec(echo *)"),
    (Git(operation="push", remote="origin", refspecs=tuple(f"b{n}" for n in range(300))), "git(b250)", "git(b*)"),
    (Packages(manager="npm", operation="install", names=tuple(f"p{n}" for n in range(300))), "packages(npm:p250)", "packages(npm:*)"),
    (Network(operation="connect", host="a.example.com", port=443, resolved=tuple(f"10.0.{n}.1" for n in range(250))),
     "network(10.0.249.1)", "network(*.example.com)"),
]  # fmt: skip


@pytest.mark.parametrize(("action", "rule", "wide"), LONG)
@pytest.mark.parametrize("effect", EFFECTS)
def test_of_a_long_action_the_first_parts_are_told_and_every_rule_counts(
    action: Action, rule: str, wide: str, effect: str
) -> None:
    policy = policy_from_data({"allow": [wide, "network(10.0.0.0/8)"], effect: [rule, wide, "network(10.0.0.0/8)"]})
    found = explain(policy, action, now=NOW)
    assert not found.trouble
    assert len(found.parts) == 200
    assert found.parts_left_out >= 50
    assert deciding(found) == used(found.verdict)
    assert not found.suggestions


def test_what_no_rule_may_allow_is_told_however_far_down_it_stands() -> None:
    policy = policy_from_data(
        {"allow": ["exec(echo *)", "exec(ls *)", "git(*)", "packages(npm:*)"], "ask": ["git(main)"]}
    )
    echoes = "; ".join(f"echo {n}" for n in range(300))
    refs = (*(f"b{n}" for n in range(300)), "HEAD")
    names = (*(f"p{n}" for n in range(300)), "./x")
    for action, why in (
        (Exec(command=f"{echoes}; sudo -X ls"), "what it runs can't be told"),
        (Git(operation="push", remote="origin", refspecs=refs), "which branches this pushes isn't said"),
        (Packages(manager="npm", operation="install", names=names), "`./x` is a path"),
    ):
        found = explain(policy, action, now=NOW)
        assert found.basis == "forced"
        assert any(why in one for one in found.forced)


# -- what is said of a rule --------------------------------------------------------------------------------------------------------


def told(
    action: Action, rule: str | dict[str, Any], effect: str = "allow", others: dict[str, list[str]] | None = None
) -> Looked:
    """What is said of one rule, among others."""
    lists = {one: [*(others or {}).get(one, []), *([rule] if one == effect else [])] for one in EFFECTS}
    text = rule if isinstance(rule, str) else rule["rule"]
    found = explain(policy_from_data(lists), action, **ARGUMENTS)
    return next(one for one in found.looked if one.rule.text == text and one.rule.effect == effect)


def file(path: str, to: str | None = None, **fields: Any) -> FileChange:
    return FileChange(operation="rename" if to else "write", path=path, to=to, **fields)


def request(method: str, host: str, path: str = "/", port: int = 443, scheme: Any = "https") -> Network:
    return Network(operation="request", host=host, port=port, scheme=scheme, method=method, path=path)


def connect(host: str, port: int = 443, *resolved: str) -> Network:
    return Network(operation="connect", host=host, port=port, resolved=resolved)


def git(words: str) -> Git:
    return Git(operation="", command=f"git {words}")


def packages(command: str) -> Packages:
    return Packages(manager="", operation="", command=command)


MISSES = [
    # exec: which word, and why a wildcard doesn't reach it
    (Exec(command="git stash"), "exec(git status *)", "says `status`; here word 2 is `stash`"),
    (Exec(command="git status -s"), "exec(git status)", "ends before `-s`; `exec(git status *)` would cover more"),
    (Exec(command="git"), "exec(git status *)", "goes on with `status`; the command ends before"),
    (Exec(command="git log --output=x"), "exec(git log *)", "no wildcard covers `--output=x`: only a rule that spells"),
    (Exec(command="git log --output=x y"), "exec(git log * y)", "no wildcard covers `--output=x`"),
    (Exec(command="find . -delete"), "exec(find *)", "no wildcard covers `-delete`"),
    (Exec(command="git log $X"), "exec(git log *)", "no wildcard covers `$X`"),
    (Exec(command="ls x$Y z"), "exec(ls * z)", "what it becomes isn't known before it runs"),
    (Exec(command="rm ../x"), "exec(rm {workspace})", "`../x` may lie outside of the workspace"),
    (Exec(command="./git log"), "exec(git log *)", "`./git` isn't the system's `git`"),
    (Exec(command="$X log"), "exec(git log *)", "the name of the command holds an expansion"),
    (Exec(command="ls"), "exec(git log *)", "is about another program, `git`"),
    (Exec(command="$X --version"), "exec(* --version)", "the name of the command holds an expansion"),
    (Exec(command="ls aa"), "exec(ls b*)", "says `b*`; here word 2 is `aa`"),
    (Exec(command="python"), "exec(python *)", "would run what it reads: no wildcard covers that"),
    (Exec(command="timeout 5 ls"), "exec(timeout *)", "`timeout` needs no rule here"),
    (Exec(command="cd $X; ./run"), "exec(./run)", "where `./run` lies can't be told"),
    (Exec(command=""), "exec(ls)", "no command is found"),
    # filesystem: which name, and how deep
    (file("tests/a.py"), "filesystem(src/*)", "is about what is below `src`; here the folder is `tests`"),
    (file("src/a.md"), "filesystem(src/*.py)", "is about `*.py`; here the name is `a.md`"),
    (file("src/x/a.py"), "filesystem(src/*)", "`*` stays in one folder, and `src/x/` is one more: `src/**` would cover"),
    (file("src/x/a.py"), "filesystem(src/x)", "names `src/x` itself, not what is below it: `src/x/**` would be that"),
    (file("src"), "filesystem(src/*)", "is about what lies deeper than `src`"),
    (file("src/a.md"), "filesystem(src/**/*.py)", "is about `*.py` at any depth below `src`, which `a.md` isn't"),
    (file("SRC/a.py"), "filesystem(src/a.py)", "only the spelling differs"),
    # network: which part
    (request("GET", "api.example.com"), "network(example.com)", "not the names below it (`*.example.com` would be)"),
    (request("GET", "example.com"), "network(*.example.com)", "covers the names below `example.com`, not `example.com`"),
    (request("GET", "evil.net"), "network(*.example.com)", "is about the names below `example.com`; here the host is"),
    (request("GET", "a.example.com", port=8443), "network(a.example.com)", "it means 80 and 443; here the port is 8443"),
    (request("GET", "a.example.com"), "network(a.example.com:8443)", "names the host, but port 8443"),
    (request("POST", "a.example.com"), "network(GET https://a.example.com/**)", "but GET; here the method is POST"),
    (request("get", "a.example.com"), "network(GET https://a.example.com/**)", "(methods are compared exactly)"),
    (request("GET", "a.example.com", "/b"), "network(GET https://a.example.com/a/*)", "`/a/*` doesn't cover the path `/b`"),
    (request("GET", "a.example.com", "/a//b"), "network(GET https://a.example.com/**)", "with empty segments (`//`)"),
    (request("GET", "a.example.com", "/", 443, "http"), "network(GET https://a.example.com:443/**)", "here the scheme is http"),
    (request("GET", "a.example.com", "/", 80, "http"), "network(GET https://a.example.com/**)", "but port 443"),
    (request("GET", "192.0.2.1"), "network(198.51.100.0/24)", "is about the addresses of `198.51.100.0/24`"),
    (request("GET", "a.example.com"), "network(192.0.2.0/24)", "only what is written as an address"),
    # git: which word, which option
    (git("push origin main"), "git(push origin feature/*)", "is about `feature/*`; here it is `main`"),
    (git("push origin main"), "git(feature/*)", "is about `feature/*`; here it is `main`"),
    (git("push -f origin main"), "git(push origin main)", "doesn't say `--force`, and only a rule that does covers it"),
    (git("push -f origin main"), "git(*)", "doesn't say `--force`"),
    (git("push -f origin main"), "git(main)", "is about plain pushes to the branch `main`"),
    (git("push origin main"), "git(push --force origin main)", "is only about `--force`, which isn't there"),
    (git("push origin main"), "git(fetch origin main)", "is about `fetch`; here the operation is `push`"),
    (git("push origin main"), "git(push upstream main)", "is about `upstream`; here it is `origin`"),
    (git("push origin HEAD"), "git(push origin *)", "which doesn't say what it moves: no wildcard covers it"),
    (git("push origin a:b"), "git(push origin *)", "a mapping: no wildcard reaches into one"),
    (git("push origin tag v1"), "git(push origin *)", "of another namespace"),
    (git("push origin tag v1"), "git(*)", "a wildcard alone covers plain pushes and fetches of branches only"),
    (git("fetch origin"), "git(push origin main)", "is about `push origin main`; this is `fetch origin`"),
    (git("push 'a"), "git(push a)", "only deny rules are asked"),
    # packages: which part
    (packages("npm install zod"), "packages(pip:zod)", "is about `pip`; here the manager is `npm`"),
    (packages("npm install zod"), "packages(npm uninstall zod)", "is about `uninstall`; here the operation is `install`"),
    (packages("npm install zod"), "packages(npm:left-pad)", "is about `left-pad`; here it is `zod`"),
    (packages("npm install zod@2"), "packages(npm install zod@1)", "only the version differs; `npm:zod` means every"),
    (packages("npm install zod"), "packages(npm install)", "names no package, so it is about `npm install` without"),
    (packages("npm ci"), "packages(npm:zod)", "is about the package `zod`; here none is named"),
    (packages("pip install -r a.txt"), "packages(pip:requests)", "is about a package; this is a file of requirements"),
    (packages("npm install zod"), "packages(npm install -D zod)", "is only about `-D`, which isn't there"),
    (packages("npm install; id"), "packages(npm:zod)", "the command can't be read, so only deny rules are asked"),
]  # fmt: skip


@pytest.mark.parametrize(("action", "rule", "why"), MISSES, ids=lambda value: value if isinstance(value, str) else "")
def test_why_an_allow_rule_misses(action: Action, rule: str, why: str) -> None:
    one = told(action, rule)
    assert (one.outcome, one.parts) == ("missed", ())
    assert why in one.why


STRICT_MISSES = [
    (Exec(command="ls"), "exec(sudo *)", "is about another program, `sudo`"),
    (Exec(command="ls push"), "exec(g*t push)", "is about another program, `g*t`"),
    (Exec(command="git push origin x"), "exec(git push --force *)", "says `--force`, which isn't among its words"),
    (Exec(command="git push $X"), "exec(git push --force *)", "an expansion may make it so: then no rule may allow it"),
    (Exec(command="git x push"), "exec(git push x)", "has these words in other places"),
    (file("src/a.md"), "filesystem(**/*.pem)", "is about `*.pem` at any depth, which `src/a.md` isn't"),
    (request("GET", "a.example.com"), "network(*:25)", "is about every host, but port 25; here the port is 443"),
    (connect("a.example.com"), "network(GET https://a.example.com/**)", "is about requests; this only opens a connection"),
    (git("push origin x"), "git(push --force *)", "is only about `--force`, which isn't there"),
    (git("push origin x"), "git(main)", "is about the branch `main`"),
    (git("push origin x"), "git(push origin main)", "is about `origin main`; this is `push origin x`"),
    (git("fetch origin"), "git(push origin main)", "here the operation is `fetch`"),
    (git("push 'a"), "git(fetch b)", "nothing that the text may hold is what it is about"),
    (packages("npm install zod"), "packages(npm install -D *)", "is only about `-D`, which isn't there"),
]  # fmt: skip


@pytest.mark.parametrize("effect", ["ask", "deny"])
@pytest.mark.parametrize(
    ("action", "rule", "why"), STRICT_MISSES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_why_a_deny_or_ask_rule_misses(action: Action, rule: str, why: str, effect: str) -> None:
    one = told(action, rule, effect)
    if effect == "ask" and isinstance(action, Git) and "'" in str(action.command):
        why = "only deny rules are asked"
    assert one.outcome == "missed"
    assert why in one.why


HITS = [
    (Exec(command="git log -3"), "exec(git log *)", "allow", "covers `git log -3`"),
    (Exec(command="sudo id"), "exec(sudo *)", "deny", "is about `sudo id`"),
    (Exec(command="ls"), "exec(*)", "deny", "is about every command"),
    (file("src/a.py"), "filesystem(src/*)", "allow", "`src/*` covers `src/a.py`"),
    (file("src/a.py"), "filesystem(src/a.py)", "allow", "names `src/a.py`"),
    (request("GET", "A.Example.com."), "network(a.example.com)", "allow", "names `a.example.com`"),
    (request("GET", "a.example.com", "/x"), "network(GET https://*.example.com/*)", "allow", "`*.example.com` covers `a.example.com`, and `/*` covers the path"),
    (connect("192.0.2.7"), "network(192.0.2.0/24)", "allow", "`192.0.2.0/24` holds `192.0.2.7`"),
    (connect("a.example.com", 443, "192.0.2.7"), "network(192.0.2.0/24)", "deny", "`a.example.com` resolves into `192.0.2.0/24`"),
    (connect("a.example.com", 25), "network(*:25)", "deny", "every host, `a.example.com` too"),
    (connect("a.example.com"), "network(* https://*.example.com/**)", "deny", "denies every request to this host, so no connection is opened"),
    (connect("a.example.com"), "network(GET https://a.example.com/**)", "allow", "the connection is opened, and each request in it is judged"),
    (git("push origin feature/x"), "git(feature/*)", "allow", "`feature/*` covers `push origin feature/x`"),
    (git("push origin x; git push origin main"), "git(push origin main)", "deny", "the text may hold `push origin main`"),
    (git("push origin a..b main; x"), "git(push main)", "deny", "the text may hold `push origin main`"),
    (packages("npm install zod@1"), "packages(npm:zod)", "allow", "`npm:zod` covers `npm install zod@1`"),
    (packages("npm install x; npm install evil"), "packages(npm:evil)", "deny", "the text may hold `npm install evil`"),
    (packages("npm install -- -x evil; x"), "packages(npm:evil)", "deny", "the text may hold `npm install evil`"),
]  # fmt: skip


@pytest.mark.parametrize(("action", "rule", "effect", "why"), HITS)
def test_how_a_rule_matches(action: Action, rule: str, effect: str, why: str) -> None:
    one = told(action, rule, effect)
    assert (one.outcome, one.distance) == ("decides", 0)
    assert why in one.why


OTHERS: list[tuple[Action, str | dict[str, Any], dict[str, list[str]], str, str]] = [
    (Exec(command="ls; id"), "exec(ls)", {}, "partly", "command 1: covers `ls`; another command has no rule"),
    (Exec(command="git log"), "exec(git log)", {"deny": ["exec(git *)"]}, "overruled", "but deny exec(git *) is stricter"),
    (Exec(command="ls $(id)"), "exec(ls *)", {}, "held", "but no rule may allow a command substitution"),
    (Exec(command="ls"), "exec(*)", {}, "never", "a bare allow rule allows nothing"),
    (Exec(command="ls"), {"rule": "exec(ls)", "expires": "2020-01-01"}, {}, "inactive", "expired 2020-01-01 00:00 UTC; it would match"),
    (Exec(command="id"), {"rule": "exec(ls)", "expires": "2020-01-01"}, {}, "inactive", "besides, is about another program"),
    (Exec(command="ls"), {"rule": "exec(ls)", "session": "s2"}, {}, "inactive", "only for the session `s2`; it would match"),
    (Exec(command="ls"), {"rule": "exec(ls)", "uses": 0}, {}, "inactive", "used up: 0 of 0 uses; it would match"),
    (Exec(command="git push x"), {"rule": "exec(git *)", "except": ["exec(git pull)", "exec(git push *)"]}, {}, "excepted", "its exception `git push *` takes this out"),
    (Exec(command="git log; git diff"), {"rule": "exec(git *)", "except": ["exec(git log)", "exec(git diff)"]}, {}, "excepted", "command 1: fits, but its exception `git log`"),
    (Exec(command="git -C src log"), "exec(git log)", {"allow": ["exec(git -C src log)"]}, "spare", "another rule that does is asked first"),
    (file("a/.env"), "filesystem(**)", {}, "held", "no wildcard covers the protected name `.env*`"),
    (file(".git/config"), "filesystem(.git/*)", {}, "held", "no wildcard covers the protected name `.git/**`"),
    (file("a", hazards=("symlink",)), "filesystem(a)", {}, "held", "names `a`; but symlink is never allowed by a rule"),
    (file("a", "b"), "filesystem(a)", {}, "partly", "path 1: names `a`; another path has no rule"),
    (file("a"), {"rule": "filesystem(*)", "except": ["filesystem(a)"]}, {}, "excepted", "its exception `a` takes this out"),
    (file("../a"), "filesystem(**)", {}, "held", "no rule is asked: the action can't be read"),
    (request("GET", "a.example.com", "/a%2fb"), "network(a.example.com)", {}, "held", "an ambiguous path (an encoded slash) is never allowed"),
    (connect("a.example.com", 443, "10.0.0.1"), "network(a.example.com)", {}, "held", "`10.0.0.1`, which is a private address that no rule names"),
    (connect("a.example.com"), "network(GET https://a.example.com/**)", {"allow": ["network(a.example.com)"]}, "spare", "this connection has other rules"),
    (connect("a.example.com"), "network(GET https://a.example.com/**)", {"deny": ["network(* https://a.example.com/**)"]}, "spare", "this connection has other rules"),
    (connect("a.example.com"), {"rule": "network(*.example.com)", "except": ["network(a.example.com)"]}, {}, "excepted", "`a.example.com` takes this out"),
    (git("push evil main"), "git(push evil main)", {}, "held", "`evil` is not a remote that is configured"),
    (git("push origin"), "git(push origin)", {"ask": ["git(main)"]}, "held", "which branches this pushes isn't said"),
    (git("push origin a b"), "git(a)", {}, "partly", "ref 1: `a` covers `push origin a`; another ref has no rule"),
    (git("push origin a"), {"rule": "git(*)", "except": ["git(push origin a)"]}, {}, "excepted", "its exception `push origin a`"),
    (git("push -f origin x"), {"rule": "git(push --force origin *)", "except": ["git(push origin x)"]}, {}, "excepted", "its exception `push origin x`"),
    (packages("npm install Zod"), {"rule": "packages(npm:*)", "except": ["packages(npm:zod)"]}, {}, "excepted", "its exception `npm:zod`"),
    (packages("npm install zod --registry=x"), "packages(npm:zod)", {}, "held", "`--registry=x` could change where code comes from"),
    (packages("npm install zod"), "packages(*)", {}, "never", "a bare allow rule allows nothing"),
    (packages("npm install zod"), {"rule": "packages(npm:*)", "except": ["packages(npm:zod)"]}, {}, "excepted", "its exception `npm:zod`"),
]  # fmt: skip


@pytest.mark.parametrize(("action", "rule", "others", "outcome", "why"), OTHERS)
def test_what_stops_a_rule(
    action: Action, rule: str | dict[str, Any], others: dict[str, list[str]], outcome: str, why: str
) -> None:
    one = told(action, rule, others=others)
    assert one.outcome == outcome
    assert why in one.why


def test_an_exception_of_a_strict_rule_is_narrow() -> None:
    """It is compared as an allow rule would be, so what it doesn't spell stays denied."""
    forced = told(git("push -f origin x"), {"rule": "git(push *)", "except": ["git(x)"]}, "deny")
    cased = told(packages("npm install Zod"), {"rule": "packages(npm:*)", "except": ["packages(npm:zod)"]}, "deny")
    assert (forced.outcome, cased.outcome) == ("decides", "decides")


def test_exceptions_that_only_together_take_a_line_out() -> None:
    one = told(Exec(command="ls; id"), {"rule": "exec(*)", "except": ["exec(ls)", "exec(id)"]}, "deny")
    assert (one.outcome, one.why) == ("excepted", "command 1: fits, but its exception `ls` takes this out")


def test_uses_that_nobody_counts() -> None:
    policy = policy_from_data({"allow": [{"rule": "exec(ls)", "uses": 3}]})
    one = explain(policy, Exec(command="ls"), now=NOW).looked[0]
    assert (one.outcome, one.why) == ("inactive", "for 3 uses, which nobody counts here; it would match")


def test_an_allow_rule_that_comes_near_is_told_of_what_still_lacks_one() -> None:
    policy = policy_from_data({"allow": ["exec(npm run build)", "exec(npm run test)", "exec(cargo build)"]})
    found = explain(policy, Exec(command="npm run build && cargo fetch"), now=NOW)
    by_rule = {one.rule.text: one for one in found.looked}
    assert by_rule["exec(cargo build)"].why == "command 2: says `build`; here word 2 is `fetch`"
    twice = explain(policy, Exec(command="cargo fetch; cargo fetch"), now=NOW).looked
    assert "command 1: says `build`" in next(one.why for one in twice if one.rule.text == "exec(cargo build)")
    assert by_rule["exec(cargo build)"].distance <= NEAR < by_rule["exec(npm run test)"].distance


# -- what an action was understood as -----------------------------------------------------------------------------------------------


def parts_of(command: str, cwd: str = ".", **lists: list[str]) -> list[tuple[str, str, tuple[str, ...]]]:
    found = explain(policy_from_data(lists), Exec(command=command, cwd=cwd), now=NOW)
    return [(part.text, part.answer, part.notes) for part in found.parts]


def test_the_commands_of_a_line_and_how_they_were_reached() -> None:
    assert parts_of("timeout 5 bash -c 'cd src; ls' | xargs rm", allow=["exec(ls)"]) == [
        ("timeout 5 bash -c 'cd src; ls'", "free", ("in a pipe", "needs no rule: what it runs is judged")),
        ("bash -c 'cd src; ls'", "open", ("in a pipe", "run by `timeout`", "runs another command")),
        ("cd src", "free", ("in a pipe", "run by `timeout`", "in the text that `bash` runs", "needs no rule: it stays inside of the workspace")),
        ("ls", "allow", ("in a pipe", "run by `timeout`", "in the text that `bash` runs", "in src or the workspace's root")),
        ("xargs rm", "open", ("in a pipe", "runs another command")),
        ("rm ...", "open", ("in a pipe", "run by `xargs`", "not known before it runs: `...`")),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "part", "note"),
    [
        ("echo $(id)", "id", "in a command substitution"),
        ("cat <(id)", "id", "in a process substitution"),
        ("f() { id; }", "id", "in a function"),
        ("(id)", "id", "in a subshell"),
        ("for x in a; do id; done", "id", "in a loop"),
        ("if true; then id; fi", "id", "in an `if`"),
        ("eval 'id'", "id", "in the text of `eval`"),
        ("bash <<'EOF'\nid\nEOF", "id", "in a text that is fed to a program"),
        ("sh -c 'sh -c id'", "id", "in the text that `sh` runs, 2 times over"),
        ("find . -exec rm {} +", "rm {}", "run by `find`"),
        ("cd ..; ls", "ls", "in the workspace's root or outside of the workspace"),
        ("cd ..; ls", "cd ..", "needs a rule: that it stays inside of the workspace can't be told"),
        ("git log --output=x", "git log --output=x", "no wildcard covers `--output=x`"),
        ("ls $X", "ls $X", "not known before it runs: `$X`"),
    ],
)
def test_how_a_command_was_reached(command: str, part: str, note: str) -> None:
    assert note in next(notes for text, _, notes in parts_of(command) if text == part)


def test_what_no_rule_may_allow_is_said_where_it_stands() -> None:
    found = explain(Policy(), Exec(command="ls | sh; echo a > b"), now=NOW)
    by_text = {part.text: part.forced for part in found.parts}
    assert by_text == {"ls": (), "sh": ("no rule may allow input that `sh` would run as a program",), "echo a": ()}
    assert found.forced[0] == "no rule may allow a redirection to a file (`> b`)"
    assert found.basis == "forced"
    assert "a person is asked each time" in found.advice


def test_what_no_rule_may_allow_is_said_once() -> None:
    found = explain(Policy(), Exec(command="echo $(id) $(id)"), now=NOW)
    assert found.forced == ("no rule may allow a command substitution (`$(id)`)",)
    twice = explain(Policy(), Exec(command="env -S 'echo $(id)' -S 'echo $(id)' x"), now=NOW).parts[0]
    assert twice.forced.count("no rule may allow a command substitution (`$(id)`)") == 1


def test_where_a_line_runs() -> None:
    assert explain(Policy(), Exec(command="ls"), now=NOW).facts == (("in", "the workspace's root"),)
    assert explain(Policy(), Exec(command="ls", cwd="a/b"), now=NOW).facts == (("in", "a/b"),)
    assert explain(Policy(), Exec(command="ls", cwd="/etc"), now=NOW).facts == (("in", "/etc, not of the workspace"),)


def test_the_facts_of_a_request() -> None:
    found = explain(Policy(), request("GET", "BÜCHER.example.com", "/a/../b?q=1"), now=NOW)
    assert dict(found.facts) == {
        "host": "xn--bcher-kva.example.com (written as `BÜCHER.example.com`)",
        "below": "example.com",
        "port": "443",
        "scheme": "https",
        "method": "GET",
        "path": "/b (written as `/a/../b`; the query is left aside)",
    }
    assert found.parts[0].text == "GET https://xn--bcher-kva.example.com/b"


def test_the_facts_of_a_connection() -> None:
    action = Network(operation="connect", host="0x7f.1", port=8443, resolved=("64:ff9b::a00:1",), sni="x.example.com")
    found = explain(Policy(), action, now=NOW)
    facts = dict(found.facts)
    assert facts["host"] == "127.0.0.1 (written as `0x7f.1`)"
    assert facts["address"] == "127.0.0.1 (loopback)"
    assert facts["resolves to"] == "64:ff9b::a00:1 (never, stands for 10.0.0.1)"
    assert facts["TLS names"] == "x.example.com"
    assert [(part.kind, part.text) for part in found.parts] == [
        ("connection", "127.0.0.1:8443"), ("address", "127.0.0.1"), ("address", "64:ff9b::a00:1"),
    ]  # fmt: skip
    assert found.parts[1].notes == ("loopback: only a rule that names it lets it be dialled",)
    assert found.parts[2].notes == ("never: it is never dialled",)
    assert explain(Policy(), connect("::1", 80), now=NOW).parts[0].text == "[::1]:80"
    ambiguous = explain(Policy(), request("GET", "a.example.com", "/a%2fb"), now=NOW)
    assert "ambiguous: an encoded slash" in dict(ambiguous.facts)["path"]


def test_a_name_that_resolves_into_a_private_network_needs_both_rules() -> None:
    policy = policy_from_data({"allow": ["network(a.example.com)", "network(10.0.0.0/8)"]})
    found = explain(policy, connect("a.example.com", 443, "10.0.0.1"), now=NOW)
    assert found.verdict.decision == "allow"
    assert {one.rule.text: (one.outcome, one.parts) for one in found.looked} == {
        "network(a.example.com)": ("decides", (0,)),
        "network(10.0.0.0/8)": ("decides", (1,)),
    }
    assert [part.answer for part in found.parts] == ["allow", "allow"]


def test_the_facts_of_a_file() -> None:
    action = FileChange(operation="symlink", path="./Src//A", link_target="b", mode=0o777, hazards=("symlink",))
    found = explain(Policy(), action, now=NOW)
    assert dict(found.facts) == {"operation": "symlink", "link to": "b", "mode": "777", "hazards": "symlink"}
    assert found.parts[0].text == "Src/A"
    assert found.parts[0].notes == ("written as `./Src//A`", "deny and ask rules see it as `src/a` too")
    odd = explain(Policy(), file("a\x1b"), now=NOW).parts[0]
    assert odd.forced == ("a name with control or invisible characters is never allowed by a rule",)
    unnamed = explain(Policy(), FileChange(operation="write", path="", path_b64="Yf8="), now=NOW).parts[0]
    assert (unnamed.text, unnamed.notes) == ("a\udcff", ())
    assert unnamed.forced == ("a name that isn't UTF-8 is never allowed by a rule",)
    lifted = explain(policy_from_data({"allow": ["filesystem(.env)"]}), file(".env"), now=NOW)
    assert lifted.verdict.decision == "allow"
    assert "has the protected name `.env*`" in lifted.parts[0].notes[0]


def test_the_facts_of_a_git_operation() -> None:
    found = explain(Policy(), git("push -f evil +a:b tag v1"), now=NOW)
    facts = dict(found.facts)
    assert facts["remote"] == "evil (not configured)"
    assert facts["known remotes"] == "origin"
    assert facts["options"] == "--force (only a rule that says so covers it)"
    assert [(part.text, part.notes) for part in found.parts] == [
        ("push evil a:b", ("moves `b` at the remote to what `a` is here", "forces")),
        ("push evil refs/tags/v1", ("a tag",)),
    ]
    assert explain(Policy(), git("push origin :c"), now=NOW).parts[0].notes == ("deletes",)
    plain = dict(explain(Policy(), git("log"), now=NOW).facts)
    assert plain == {"operation": "log"}


def test_the_facts_of_a_package_operation() -> None:
    found = explain(Policy(), packages("pip install -r r.txt Requests==1 --pre -q"), now=NOW)
    facts = dict(found.facts)
    assert (facts["manager"], facts["operation"], facts["other flags"]) == ("pip", "install", "--pre")
    assert "-q" in facts["harmless flags"]
    assert [(part.kind, part.text) for part in found.parts] == [
        ("package", "pip install Requests==1"), ("package", "pip install -r r.txt"),
    ]  # fmt: skip
    unread = explain(Policy(), packages("npm install; id"), now=NOW)
    assert (unread.facts, [part.kind for part in unread.parts]) == ((), ["operation"])
    assert [part.kind for part in explain(Policy(), packages("brew install x"), now=NOW).parts] == ["operation"]


@pytest.mark.parametrize(
    "action",
    [
        Git(operation="push", remote="origin", command="git push origin x"),
        Git(operation="push", remote="origin", refspecs=("-x",)),
        Packages(manager="npm", operation="install", command="npm install x"),
        Packages(manager="npm", operation="install", names=("$(id)",)),
        file("/etc/passwd"),
        FileChange(operation="rename", path="a"),
        connect("a b"),
    ],
)
def test_what_can_t_be_read_has_no_rules_to_match(action: Action) -> None:
    wide = policy_from_data({"allow": ["git(*)", "packages(npm:*)", "filesystem(**)", "network(*.example.com)"]})
    found = explain(wide, action, now=NOW)
    assert found.verdict.decision == "deny"
    assert found.basis == "forced"
    assert found.forced[0] == found.verdict.why
    assert {one.outcome for one in found.looked} == {"held"}
    assert not found.suggestions


# -- what made the verdict, and what would change it -----------------------------------------------------------------------------


def test_the_basis_of_a_verdict() -> None:
    ls = Exec(command="ls")
    assert explain(policy_from_data({"allow": ["exec(ls)"]}), ls, now=NOW).basis == "rules"
    denied = explain(policy_from_data({"modes": {"exec": "deny"}}), ls, now=NOW)
    assert (denied.basis, denied.mode, denied.verdict.decision) == ("mode", "deny", "deny")
    assert explain(Policy(), Exec(command="cd src"), now=NOW).basis == "free"
    assert explain(policy_from_data({"modes": {"git": "allow"}}), git("fetch origin"), now=NOW).basis == "mode"
    assert explain(DENY_ALL, ls, now=NOW).basis == "nothing"
    proposal = explain(policy_from_data({"allow": ["exec(ls)"]}), Proposal(effect="allow", rule="exec(ls)"), now=NOW)
    assert (proposal.basis, proposal.looked, proposal.others) == ("always", (), (("exec", 1),))


def offered(action: Action, **lists: Any) -> list[tuple[int, str]]:
    found = explain(policy_from_data(lists), action, now=NOW)
    return [(one.part, one.rule) for one in found.suggestions]


def test_rules_that_would_be_enough_are_offered_part_by_part() -> None:
    assert offered(Exec(command="ls && npm run build && git log"), allow=["exec(ls)"]) == [
        (1, "exec(npm run build)"), (1, "exec(npm run build *)"), (2, "exec(git log)"), (2, "exec(git log *)"),
    ]  # fmt: skip
    assert offered(Exec(command="bash -c 'ls; id'")) == [(0, "exec(bash -c 'ls; id')")]
    assert offered(file("a/x", "b/y"))[0::3] == [(0, "filesystem(a/*)"), (1, "filesystem(b/*)")]
    assert offered(git("push origin a b")) == [
        (0, "git(a)"), (0, "git(push origin a)"), (1, "git(b)"), (1, "git(push origin b)"),
    ]  # fmt: skip
    assert offered(git("push -f origin a b"))[0] == (0, "git(push --force origin a)")
    assert offered(packages("npm install a b@1 -D"))[1:3] == [(0, "packages(npm:a)"), (1, "packages(npm install b@1)")]
    assert offered(packages("pip install -r a.txt b"))[-1] == (1, "packages(pip install -r a.txt)")
    assert offered(connect("a.example.com", 443, "10.0.0.1"))[-1] == (1, "network(10.0.0.1)")
    assert offered(file(".env")) == [(0, "filesystem(.env)")]


def test_nothing_is_offered_that_would_not_be_enough() -> None:
    for command in ("ls $(id)", "ls | sh", "cd /tmp && ls", "rm $X && ls", "; ".join(f"run{i}" for i in range(11)), ""):
        assert offered(Exec(command=command)) == []
    assert offered(Exec(command="ls"), allow=["exec(ls)"]) == []
    assert offered(Exec(command="ls"), ask=["exec(ls)"]) == []
    assert offered(connect("169.254.169.254")) == []
    # A rule that spells it out would lift this, but the git broker is the way.
    denied = explain(Policy(), file("a", ".git/config"), now=NOW)
    assert (denied.suggestions, denied.advice) == ((), denied.verdict.remedy)
    # Rules that would do alone, but not here.
    assert offered(parse_command("git push evil x")) == []
    assert offered(parse_command("git push origin"), ask=["git(main)"]) == []


@pytest.mark.parametrize(
    ("action", "lists", "advice"),
    [
        (Exec(command="ls"), {"allow": ["exec(ls)"]}, ""),
        (Exec(command="ls"), {"deny": ["exec(ls)"]}, "no allow rule lifts it: take the rule out, or name this in its `except` (deny exec(ls)"),
        (Exec(command="ls"), {"ask": ["exec(ls)"]}, "it asks every time, and no allow rule changes that"),
        (Exec(command="cd /tmp"), {}, "an allow rule for every part that has none"),
        (file("../x"), {}, "name a path relative to the workspace's root"),
        (file("src/x"), {}, ""),
    ],
)  # fmt: skip
def test_advice_where_an_allow_rule_isn_t_enough(action: Action, lists: dict[str, Any], advice: str) -> None:
    found = explain(policy_from_data(lists), action, now=NOW)
    assert found.advice.startswith(advice)
    assert bool(found.advice) == bool(advice)


def test_advice_names_the_place_of_the_rule() -> None:
    rule = Rule(effect="deny", category="exec", pattern="ls", text="exec(ls)", id="x", source="p.yaml", line=7)
    assert "(deny exec(ls), p.yaml:7)" in explain(Policy([rule]), Exec(command="ls"), now=NOW).advice


def test_the_keys_of_the_data_are_stable() -> None:
    data = as_data(explain(policy_from_data({"allow": ["exec(ls)", "git(x)"]}), Exec(command="ls; id"), now=NOW))
    assert list(data) == [
        "category", "action", "verdict", "why", "remedy", "rule", "rules", "sticky", "basis", "mode", "forced", "understood", "parts",
        "parts_left_out", "looked_at", "not_looked_at", "suggestions", "advice", "trouble",
    ]  # fmt: skip
    assert list(data["parts"][0]) == ["kind", "text", "answer", "rules", "forced", "notes"]
    assert list(data["looked_at"][0]) == [
        "rule", "effect", "id", "rule_why", "source", "line", "outcome", "why", "parts", "distance",
    ]  # fmt: skip
    assert list(data["suggestions"][0]) == ["part", "rule", "label", "explains"]
    assert data["not_looked_at"] == {"git": 1}
    assert json.loads(json.dumps(data)) == data
