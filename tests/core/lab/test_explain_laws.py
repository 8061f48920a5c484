"""`explain` says what `evaluate` says, for anything: random worlds, every golden case, and
actions of hundreds of parts."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from supervisor.core.actions import Action, Exec, FileChange, Git, Network, Packages, category_of
from supervisor.core.lab.check import action_of
from supervisor.core.lab.explain import Explanation, as_data, explain
from supervisor.core.policy import exec_reading
from supervisor.core.policy.category import OUTCOMES
from supervisor.core.policy.evaluate import evaluate
from supervisor.core.policy.exec_reading import Trace
from supervisor.core.policy.outside_acts import outside_acts
from supervisor.core.policy.policy_text import DENY_ALL, merge, policy_from_data
from supervisor.core.policy.rules import Policy, Verdict
from supervisor.core.shell.exec_patterns import compile_pattern
from supervisor.core.shell.exec_rules import Rules, judge, show
from supervisor.errors import PolicyError
from tests.core.lab.test_explain import ARGUMENTS, NOW
from tests.fakes.law_worlds import ACTIONS, EFFECTS, MODES, PATTERNS, WIDE, WILD_ACTIONS
from tests.tables import each_row

CASES = Path(__file__).resolve().parents[2] / "golden" / "policy_cases"

# -- random worlds: rules with details, and command lines with structure --------------------------
EXEC_PATTERNS = st.sampled_from(
    ["git log *", "git *", "git push --force *", "ls *", "ls", "*", "rm *", "rm {workspace}",
     "pytest", "timeout 5 ls", "find *", "sudo *",
     "bash -c *", "bash -c 'ls; rm x'", "* --version", "./run *", "xargs *", "echo *",
     "git -C src log", "env ls *"]
)  # fmt: skip
SIMPLE = st.sampled_from(
    ["git log", "git log -3", "git -C src log", "git -C /tmp log", "git push -f origin x", "ls",
     "ls -la", "rm x", "rm -rf ../x", "pytest",
     "find . -delete", "find . -exec rm {} +", "sudo rm x", "cd src", "cd ..", "./run x", "src/run",
     "echo $X", "$X y", "echo $(rm x)",
     "cat <(ls)", "X=1 ls", "python --version", "git --version", "echo a > b", "/tmp/ls", "true",
     "xargs rm", "eval 'rm x'",
     "bash -c 'ls; rm x'", "bash -c \"ls $(id)\"", "timeout 5 ls", "env -S 'ls'", "rm *.py", "sh",
     "}"]
)  # fmt: skip
WRAPPED = st.tuples(
    st.sampled_from(["", "", "timeout 5 ", "nice ", "sudo ", "! ", "./nice "]), SIMPLE
).map("".join)
LINES = st.lists(st.tuples(WRAPPED, st.sampled_from(["; ", " && ", " | ", " || ", "\n", " & "])),
min_size=1, max_size=4).map(
    lambda parts: "".join(f"{command}{operator}" for command, operator in parts[:-1]) + parts[-1][0]
)  # fmt: skip
EXECS = st.tuples(LINES, st.sampled_from([".", "src", "/tmp", ".."])).map(
    lambda both: Exec(command=both[0], cwd=both[1])
)
INTERPRETERS = ("sh", "bash", "python", "python3", "perl", "node")
ALL_PATTERNS = {
    **PATTERNS,
    "exec": EXEC_PATTERNS,
    "filesystem": PATTERNS["filesystem"]
    | st.sampled_from([".env", "**/.env", ".git/config", ".github/**"]),
    "network": PATTERNS["network"] | st.sampled_from(["10.0.0.1", "10.0.0.0/8", "10.0.0.1:8443"]),
}
FILES = st.builds(
    FileChange, operation=st.sampled_from(["write", "rename", "symlink", "chmod"]),
    path=st.sampled_from(["a", "src/a.py", ".env", ".git/config", ".github/x.yml", "A/B", "../x"]),
    to=st.none() | st.sampled_from(["b", ".env", "src/b"]), mode=st.none() | st.sampled_from([0o644,
    0o755]),
)  # fmt: skip
HOSTS = st.builds(
    Network, operation=st.just("connect"), host=st.sampled_from(["a.example.com", "10.0.0.1",
    "example.com", "169.254.169.254"]),
    port=st.sampled_from([443, 8443]), resolved=st.sampled_from([(), ("10.0.0.1",), ("10.0.0.1",
    "10.9.9.9"), ("93.184.216.34",)]),
)  # fmt: skip
SOME_ACTIONS: st.SearchStrategy[Action] = ACTIONS | EXECS | FILES | HOSTS


@st.composite
def entries(
    draw: st.DrawFn, effect: str, categories: tuple[str, ...] = tuple(sorted(ALL_PATTERNS))
) -> dict[str, Any]:
    category = draw(st.sampled_from(categories))
    entry: dict[str, Any] = {"rule": f"{category}({draw(ALL_PATTERNS[category])})"}
    if draw(st.booleans()):
        return entry
    entry["except"] = draw(
        st.lists(ALL_PATTERNS[category].map(lambda text: f"{category}({text})"), max_size=2)
    )
    entry |= draw(
        st.sampled_from(
            [
                {},
                {"expires": "2020-01-01"},
                {"expires": "2999-01-01"},
                {"session": "s1"},
                {"session": "s2"},
            ]
        )
    )
    if effect == "allow":
        entry |= draw(st.sampled_from([{}, {"uses": 0}, {"uses": 5}]))
    return entry


LISTS = st.fixed_dictionaries({effect: st.lists(entries(effect), max_size=4) for effect in EFFECTS})


def policy_of(lists: dict[str, Any], modes: dict[str, str] | None = None) -> Policy:
    return policy_from_data({**lists, "modes": modes or {}})


def deciding(found: Explanation) -> set[tuple[str, str]]:
    return {(one.rule.effect, one.rule.text) for one in found.looked if one.outcome == "decides"}


def used(verdict: Verdict) -> set[tuple[str, str]]:
    return {(verdict.decision, text) for text in verdict.rules}


# -- it never disagrees ---------------------------------------------------------------------------


@given(LISTS, MODES, SOME_ACTIONS)
def test_the_rules_that_are_said_to_decide_are_those_that_did(
    lists: dict[str, Any], modes: dict[str, str], action: Action
) -> None:
    policy = policy_of(lists, modes)
    found = explain(policy, action, **ARGUMENTS)
    assert found.verdict == evaluate(policy, action, **ARGUMENTS, with_parts=True)
    assert not found.trouble
    assert deciding(found) == used(found.verdict)
    assert (found.basis == "rules") == bool(found.verdict.rules)
    # Every rule of the category, once; the others are counted.
    own = [one.rule for one in found.looked if one.rule.category == category_of(action)]
    assert Counter(map(id, own)) == Counter(map(id, policy.of(category_of(action))))
    assert len(own) + sum(count for _, count in found.others) == len(policy.rules)
    assert [OUTCOMES.index(one.outcome) for one in found.looked] == sorted(
        OUTCOMES.index(one.outcome) for one in found.looked
    )
    assert all(one.why for one in found.looked)


def only_allowed(*rules: str) -> dict[str, Any]:
    return {"allow": [{"rule": rule} for rule in rules], "ask": [], "deny": []}


# The second rule of each would decide if it were alone.
@example(only_allowed("exec(git -C src log)", "exec(git log)"), Exec(command="git -C src log"))
@example(
    only_allowed("network(a.example.com)", "network(GET https://a.example.com/**)"),
    Network(operation="connect", host="a.example.com", port=443),
)
@given(LISTS, SOME_ACTIONS)
def test_each_rule_alone_does_what_is_said_of_it(lists: dict[str, Any], action: Action) -> None:
    policy = policy_of(lists)
    found = explain(policy, action, **ARGUMENTS)
    needed = {at for at, part in enumerate(found.parts) if part.answer != "free"}
    if isinstance(action, Exec) and outside_acts(action).acts:
        return  # takes a rule of each category
    for one in found.looked:
        alone = explain(Policy([one.rule]), action, **ARGUMENTS)
        assert deciding(alone) == used(alone.verdict)
        decides = bool(deciding(alone))
        if one.outcome in ("missed", "excepted", "inactive", "never"):
            assert not decides, one
        elif one.outcome in ("decides", "overruled") and (
            one.rule.effect != "allow" or needed <= set(one.parts)
        ):
            assert decides or alone.basis == "forced", one
        elif one.outcome == "spare" and len(found.parts) == 1:
            assert decides, one


@given(LISTS, SOME_ACTIONS)
def test_what_is_said_to_be_forced_no_allow_rule_lifts(
    lists: dict[str, Any], action: Action
) -> None:
    """Where something forced the answer, even the widest rules that may be written leave it;
    what is suggested is enough."""
    policy = policy_of(lists)
    found = explain(policy, action, **ARGUMENTS)
    if found.basis == "forced" and not found.suggestions and isinstance(action, FileChange):
        wide = merge(policy, policy_from_data({"allow": ["filesystem(**)"]}))
        assert (
            evaluate(wide, action, **ARGUMENTS, with_parts=True).decision == found.verdict.decision
        )
    first = {one.part: one.rule for one in reversed(found.suggestions)}
    if first:
        wider = merge(policy, policy_from_data({"allow": list(first.values())}))
        assert evaluate(wider, action, **ARGUMENTS, with_parts=True).decision == "allow"


@given(WILD_ACTIONS)
def test_no_action_raises(action: Action) -> None:
    for policy in (WIDE, Policy(), DENY_ALL):
        found = explain(policy, action, now=NOW)
        assert found.verdict == evaluate(policy, action, now=NOW, with_parts=True)
        assert not found.trouble
        assert deciding(found) == used(found.verdict)
        json.dumps(as_data(found))


@cache
def golden() -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = []
    for path in sorted(CASES.glob("*.yaml")):
        loaded += yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    return loaded


@cache
def own_policy(text: str) -> Policy:
    """Of JSON: hundreds of cases share theirs."""
    return policy_from_data(json.loads(text))


def judged() -> Iterator[Any]:
    """The golden cases but those about what is no action or no policy."""
    for case in golden():
        fields = {
            key: value for key, value in case.items() if key not in ("name", "verdict", "policy")
        }
        with suppress(ValueError, PolicyError):
            action, policy = action_of(fields), own_policy(json.dumps(case.get("policy") or {}))
            remotes = frozenset(case["remotes"]) if "remotes" in case else None
            yield pytest.param(action, policy, remotes, id=case["name"])


@pytest.mark.untraced
@pytest.mark.timeout(600)  # thousands of cases, each under every rule
@each_row(("action", "policy", "remotes"), judged())
def test_every_golden_case_is_explained_as_it_is_judged(
    action: Action, policy: Policy, remotes: frozenset[str] | None
) -> None:
    found = explain(policy, action, now=NOW, configured_remotes=remotes, uses={})
    assert not found.trouble
    assert deciding(found) == used(found.verdict)


def test_most_golden_cases_are_about_an_action_and_a_policy() -> None:
    assert len(list(judged())) > len(golden()) * 9 // 10


def assert_followed(
    action: Exec, allow: Sequence[str], ask: Sequence[str], deny: Sequence[str]
) -> None:
    """A judge that is followed answers as one that isn't, finds the same commands, and every
    rule of its answer is in some step."""

    def rules(patterns: Sequence[str], first: int) -> Rules[int]:
        compiled = [compile_pattern(text) for text in patterns]
        return Rules(
            (first + at, one) for at, one in enumerate(compiled) if first or not one.is_bare
        )

    lists, roots = (rules(allow, 0), rules(ask, 1_000), rules(deny, 2_000)), ("/workspace/merged",)
    watch = Trace(action.command, action.cwd, *lists, roots)
    plain = judge(
        action.command,
        action.cwd,
        allow=lists[0],
        ask=lists[1],
        deny=lists[2],
        workspace_roots=roots,
    )
    assert watch.judge() == plain
    assert tuple(show(step.words) for step in watch.steps) == plain.commands
    said = {key for step in watch.steps for key in (*step.covering, *step.against)} | set(
        watch.against_line
    )
    assert set(plain.keys) <= said
    for step in watch.steps:
        assert all(
            (key >= 1_000) is (key in step.against) for key in (*step.covering, *step.against)
        )


@given(
    EXECS,
    st.lists(EXEC_PATTERNS, max_size=8),
    st.lists(EXEC_PATTERNS, max_size=2),
    st.lists(EXEC_PATTERNS, max_size=2),
)
def test_following_a_judge_changes_nothing(
    action: Exec, allow: list[str], ask: list[str], deny: list[str]
) -> None:
    assert_followed(action, allow, ask, deny)


@each_row("case", [case for case in golden() if case["category"] == "exec"], ids=itemgetter("name"))
def test_following_a_judge_changes_nothing_for_any_golden_case(case: dict[str, Any]) -> None:
    lists = case.get("policy") or {}
    texts = [
        [
            str(entry)[5:-1]
            for entry in lists.get(effect, [])
            if isinstance(entry, str) and entry.startswith("exec(")
        ]
        for effect in EFFECTS
    ]
    assert_followed(Exec(command=case["command"], cwd=case.get("cwd", ".")), *texts)


def test_a_rule_that_was_found_once_is_asked_again_without_a_trace() -> None:
    """The judge doesn't ask a deny rule twice; that it is asked again for the steps must not
    leave a problem behind."""
    assert_followed(
        Exec(command="git push --force x; git push $X"), (), (), ("git push --force *",)
    )
    found = explain(
        policy_from_data({"deny": ["exec(git push --force *)"]}),
        Exec(command="git push -f x; git push -f y"),
        now=NOW,
    )
    assert found.looked[0].parts == (0, 1)


def test_only_an_interpreter_is_said_to_run_what_it_reads() -> None:
    """The words of a miss are found by asking `covers`; this is what is left where every word
    fits."""
    said = set()
    for program in (*INTERPRETERS, "ls", "git", "rm", "find", "echo", "true", "pytest", "sudo"):
        for line in (program, f"{program} x", f"cat x | {program}", f"timeout 5 {program}"):
            for pattern in (f"{program} *", f"{program}", f"{program} x *", "* --version"):
                policy = policy_from_data({"allow": [f"exec({pattern})"]})
                found = explain(policy, Exec(command=line), now=NOW)
                if any("would run what it reads" in one.why for one in found.looked):
                    said.add(program)
    assert said == {*INTERPRETERS}


def test_an_explanation_that_breaks_is_still_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(exec_reading, "Trace", broken)
    policy = policy_from_data({"allow": ["exec(ls)"]})
    found = explain(policy, Exec(command="ls"), now=NOW)
    assert found.verdict.decision == "allow"
    assert "RuntimeError" in found.trouble
    assert found.basis == "rules"
    assert explain(policy, Exec(command="id"), now=NOW).basis == "mode"


LONG = [
    (Exec(command="; ".join(f"echo {n}" for n in range(300))), "exec(echo 250)", "exec(echo *)"),
    (Exec(command="; ".join(f"echo {n}" for n in range(300)) + "; ls $(id)"), "exec(ls *)",
     "exec(echo *)"),
    (Git(operation="push", remote="origin", refspecs=tuple(f"b{n}" for n in range(300))),
     "git(b250)", "git(b*)"),
    (Packages(manager="npm", operation="install", names=tuple(f"p{n}" for n in range(300))),
     "packages(npm:p250)", "packages(npm:*)"),
    (Network(operation="connect", host="a.example.com", port=443,
     resolved=tuple(f"10.0.{n}.1" for n in range(250))),
     "network(10.0.249.1)", "network(*.example.com)"),
]  # fmt: skip


@each_row(("action", "rule", "wide"), LONG)
@each_row("effect", EFFECTS)
def test_of_a_long_action_the_first_parts_are_told_and_every_rule_counts(
    action: Action, rule: str, wide: str, effect: str
) -> None:
    policy = policy_from_data(
        {"allow": [wide, "network(10.0.0.0/8)"], effect: [rule, wide, "network(10.0.0.0/8)"]}
    )
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
        (
            Git(operation="push", remote="origin", refspecs=refs),
            "which branches this pushes isn't said",
        ),
        (Packages(manager="npm", operation="install", names=names), "`./x` is a path"),
    ):
        found = explain(policy, action, now=NOW)
        assert found.basis == "forced"
        assert any(why in one for one in found.forced)
