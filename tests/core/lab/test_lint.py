"""Lint: each kind of finding, when it stays silent, and the law that what it calls superfluous
can be taken away."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.actions import Exec
from supervisor.core.lab.lint import RuleFinding, lint
from supervisor.core.lab.past import Past
from supervisor.core.policy.categories import compiled, contains, keys_above, own_key
from supervisor.core.policy.evaluate import evaluate
from supervisor.core.policy.policy_text import merge, parse_policy, policy_from_data
from supervisor.core.policy.rules import Policy
from supervisor.errors import PolicyError
from tests.fakes.rule_worlds import CATEGORIES, REMOTES, actions, patterns
from tests.tables import each_row

NOW = 1_790_000_000.0
DAY = 86_400.0


def findings(**lists: Any) -> list[RuleFinding]:
    return list(lint(policy_from_data(lists), None, NOW).findings)


def kinds(**lists: Any) -> list[tuple[str, str]]:
    return [(finding.kind, finding.rule) for finding in findings(**lists)]


# -- the law --------------------------------------------------------------------------------------


@st.composite
def policies(draw: st.DrawFn, category: str) -> Policy:
    """A policy of one category; many of its rules are made from another one of it, so that some
    contain others."""
    lists: dict[str, list[Any]] = {"allow": [], "ask": [], "deny": []}
    made: list[str] = []
    for _ in range(draw(st.integers(2, 6))):
        if draw(st.booleans()) and made:
            words = draw(st.sampled_from(made)).split(" ")
            at = draw(st.integers(0, len(words) - 1))
            instead: list[list[str]] = [["*"], [words[at], "*"], [words[at]], []]
            words[at : at + 1] = instead[draw(st.integers(0, 3))]
            pattern = " ".join(words)
        else:
            pattern = draw(patterns(category))
        made.append(pattern or "x")
        entry: dict[str, Any] = {"rule": f"{category}({pattern})"}
        if draw(st.integers(0, 5)) == 0:
            entry["except"] = [f"{category}({draw(patterns(category))})"]
        if draw(st.integers(0, 9)) == 0:
            entry["expires"] = draw(st.sampled_from(["2020-01-01", "2030-01-01", "session"]))
        effect = draw(st.sampled_from(["allow", "allow", "ask", "deny"]))
        if effect == "allow" and draw(st.integers(0, 15)) == 0:
            entry["uses"] = "3"
        try:
            policy_from_data({effect: [entry]})
        except PolicyError:
            continue
        lists[effect].append(entry)
    modes = ["ask", "deny"] if category in ("exec", "packages") else ["ask", "ask", "deny", "allow"]
    return policy_from_data({**lists, "modes": {category: draw(st.sampled_from(modes))}})


@pytest.mark.untraced
@pytest.mark.parametrize("category", CATEGORIES)
@given(data=st.data())
def test_taking_away_what_never_matches_or_is_covered_changes_no_decision(
    category: str, data: st.DataObject
) -> None:
    policy = numbered(data.draw(policies(category)))
    gone = {
        one.rule_id
        for one in lint(policy, None, NOW).findings
        if one.kind in ("never", "covered", "expired")
    }
    kept = [rule for rule in policy.rules if rule.id not in gone]
    less = Policy(kept, policy.modes, protection=policy.protection)
    for action in data.draw(st.lists(actions(category), min_size=4, max_size=12)):
        for session, uses in ((None, {}), ("s", None)):
            before, after = (
                evaluate(
                    one, action, now=NOW, configured_remotes=REMOTES, session_id=session, uses=uses
                )
                for one in (policy, less)
            )
            assert after.decision == before.decision, (before.why, after.why, sorted(gone))


def numbered(policy: Policy) -> Policy:
    """The same policy, each rule known apart."""
    rules = [
        msgspec.structs.replace(rule, id=f"{number}: {rule.text}")
        for number, rule in enumerate(policy.rules)
    ]
    return Policy(rules, policy.modes, protection=policy.protection)


@pytest.mark.parametrize("category", CATEGORIES)
@given(data=st.data())
def test_no_pair_is_left_out_that_would_be_a_finding(category: str, data: st.DataObject) -> None:
    rules = [compiled(rule) for rule in data.draw(policies(category)).rules]
    for outer in rules:
        for inner in rules:
            if contains(outer, inner, lambda _: None):
                assert own_key(outer) in set(keys_above(inner))


POLICIES = Path(__file__).resolve().parents[3] / "policy"
SHIPPED = [POLICIES / "default.yaml", *sorted((POLICIES / "examples").glob("*.yaml"))]


# A job that updates dependencies may update any of them: which ones, no rule knows beforehand.
WIDE = {
    "updates": [
        "packages(npm update *)", "packages(pnpm update *)", "packages(go get *)",
        "packages(cargo update *)", "packages(pip install --upgrade *)",
    ]
}  # fmt: skip


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_policy_that_we_ship_has_nothing_wrong(path: Path) -> None:
    found = lint(parse_policy(path.read_text(encoding="utf-8"), path.name), None, NOW).findings
    wide = [("wide", rule) for rule in WIDE.get(path.stem, ())]
    assert [(one.kind, one.rule) for one in found] == wide  # type: ignore[union-attr]


# -- covered --------------------------------------------------------------------------------------

COVERED = [
    ("exec(git log *)", "exec(git log -3)"),
    ("exec(git log *)", "exec(git log --oneline *)"),
    ("exec(git *)", "exec(git log *)"),
    ("exec(cat *)", "exec(cat src/*)"),
    ("exec(npm run *)", "exec(npm run test)"),
    ("exec(npm run *)", "exec(npm run test *)"),
    ("exec(rm *)", "exec(rm {workspace})"),
    ("exec(make *)", "exec(make -j4 test)"),
    ("exec(find *)", "exec(find . -name *)"),
    ("exec(pytest *)", "exec(pytest tests)"),
    ("exec(grep 'a b' *)", 'exec(grep "a b" x)'),
    ("exec(uv *)", "exec(uv sync *)"),
    ("exec(python *)", "exec(python tool.py *)"),
    ("filesystem(src/**)", "filesystem(src/a/*)"),
    ("filesystem(**/a/**/b)", "filesystem(x/a/y/z/b)"),
    ("filesystem(**/a/**/b)", "filesystem(a/**/a/b)"),
    ("filesystem(src/**)", "filesystem(src/a.py)"),
    ("filesystem(**/*.py)", "filesystem(src/*.py)"),
    ("filesystem(*)", "filesystem(a/b)"),
    ("filesystem(src/*.py)", "filesystem(src/a*.py)"),
    ("filesystem(src/[ab])", "filesystem(src/a)"),
    ("network(*.example.org)", "network(a.example.org)"),
    ("network(*.example.org)", "network(*.a.example.org)"),
    ("network(a.example.org)", "network(a.example.org:443)"),
    ("network(a.example.org)", "network(GET https://a.example.org/x/**)"),
    ("network(https://a.example.org/**)", "network(GET https://a.example.org/x/*)"),
    ("network(GET,HEAD https://a.example.org/x/**)", "network(GET https://a.example.org/x/y)"),
    ("network(10.0.0.0/8)", "network(10.1.2.3)"),
    ("git(feature/*)", "git(feature/a/*)"),
    ("git(feature/*)", "git(push origin feature/x)"),
    ("git(push feature/*)", "git(push origin feature/x)"),
    ("git(push origin *)", "git(push origin main)"),
    ("git(fetch origin)", "git(fetch origin main)"),
    ("git(push --force bot/*)", "git(push --force origin bot/x)"),
    ("packages(npm:zod)", "packages(npm install zod@1.0)"),
    ("packages(npm:@team/*)", "packages(npm:@team/ui)"),
    ("packages(npm install zod*)", "packages(npm install zod@1)"),
]


@each_row(("outer", "inner"), COVERED)
def test_an_allow_rule_within_another_is_covered(outer: str, inner: str) -> None:
    for order in ([outer, inner], [inner, outer]):
        found = [one for one in findings(allow=order) if one.kind == "covered"]
        assert [(one.rule, one.by) for one in found] == [(inner, f"allow {outer}")]


NOT_COVERED = [
    ("exec(git log *)", "exec(git logs)"),
    ("exec(git *)", "exec(git -c a=b log)"),
    ("exec(git log *)", "exec(git log --output=x)"),
    ("exec(git *)", "exec(git-lfs *)"),
    ("exec(tar *)", "exec(tar -xf a -I evil)"),
    ("exec(python *)", "exec(python)"),
    ("exec(cat *)", "exec(cat .env)"),
    ("exec(cat src/*)", "exec(cat src/*.py)"),
    ("exec(cat *)", "exec(cat -* x)"),
    ("exec(sudo *)", "exec(sudo apt-get *)"),
    ("exec(npm *)", "exec(npm exec eslint *)"),
    ("exec(bash *)", "exec(bash -c 'git log')"),
    ("exec(rm {workspace})", "exec(rm *)"),
    ("exec(rm {workspace})", "exec(rm build)"),
    ("exec(git log)", "exec(git log *)"),
    ("exec(timeout *)", "exec(timeout 5 x *)"),
    ("exec(xargs *)", "exec(xargs grep *)"),
    ("exec(find *)", "exec(find . -exec grep *)"),
    ("exec(git * a *)", "exec(git * b *)"),
    ("exec(./run *)", "exec(run x)"),
    ("filesystem(src/*)", "filesystem(src/**)"),
    ("filesystem(**)", "filesystem(.env)"),
    ("filesystem(src/a)", "filesystem(SRC/a)"),
    ("filesystem(*/b)", "filesystem(**/b)"),
    ("filesystem(**/a/**/b)", "filesystem(x/y/b)"),
    ("filesystem(a?)", "filesystem(a*)"),
    ("filesystem(src/[ab])", "filesystem(src/[abc])"),
    ("network(*.example.org)", "network(example.org)"),
    ("network(a.example.org)", "network(a.example.org:8443)"),
    ("network(GET https://a.example.org/x/**)", "network(a.example.org)"),
    ("network(https://a.example.org/**)", "network(http://a.example.org/x)"),
    ("network(8.0.0.0/5)", "network(10.1.2.3)"),
    ("git(feature/*)", "git(push --force feature/x)"),
    ("git(push origin *)", "git(push origin a:b)"),
    ("git(push origin *)", "git(push origin HEAD)"),
    ("git(feature/*)", "git(push origin feature/x:main)"),
    ("git(push docs)", "git(docs)"),
    ("packages(npm install zod)", "packages(npm install zod@1)"),
    ("packages(npm:zod)", "packages(npm ci)"),
    ("packages(npm:zod)", "packages(npm install -r zod)"),
    ("packages(npm install zod)", "packages(npm:zod)"),
    ("packages(npm install -D zod)", "packages(npm install zod)"),
]


@each_row(("outer", "inner"), NOT_COVERED)
def test_what_only_looks_covered_is_not(outer: str, inner: str) -> None:
    assert [
        one for one in findings(allow=[outer, inner]) if one.kind == "covered" and one.rule == inner
    ] == []


def test_of_two_that_say_the_same_the_later_one_is_named() -> None:
    policy = parse_policy("allow:\n- exec(ls *)\n- exec( ls  * )\n- exec(ls *)\n", "p.yaml")
    assert [str(one) for one in lint(policy, None, NOW).findings] == [
        "p.yaml:3: covered: allow exec( ls  * ) says the same as exec(ls *) (p.yaml:2); remove it",
        "p.yaml:4: covered: allow exec(ls *) says the same as exec(ls *) (p.yaml:2); remove it",
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("filesystem(./src//a)", "filesystem(src/a)"),
        ("packages(pip install Requests==1)", "packages(pip install requests==1)"),
        ("network(API.example.org.)", "network(api.example.org)"),
        ("git(push origin refs/heads/x)", "git(push origin x)"),
        ("exec('git' log)", "exec(git log)"),
    ],
)
def test_two_spellings_say_the_same(one: str, other: str) -> None:
    assert kinds(allow=[one, other]) == [("covered", other)]
    assert kinds(allow=[other, one]) == [("covered", one)]


def test_a_saved_rule_may_be_covered_by_the_policy_file() -> None:
    both = merge(
        parse_policy("allow: [exec(ls *)]", "a.yaml"),
        parse_policy("\nallow: [exec(ls -l)]", "b.yaml"),
    )
    assert [str(one) for one in lint(both, None, NOW).findings] == [
        "b.yaml:2: covered: allow exec(ls -l) is covered by exec(ls *) (a.yaml:1); remove it"
    ]


@pytest.mark.parametrize(
    "bound",
    [
        {"expires": "2030-01-01"},
        {"expires": "session"},
        {"uses": "3"},
        {"session": "s"},
        {"except": ["exec(ls -l)"]},
    ],
)
def test_a_rule_that_is_bound_covers_nothing(bound: dict[str, Any]) -> None:
    assert kinds(allow=[{"rule": "exec(ls *)", **bound}, "exec(ls -la)"]) == []


def test_a_rule_that_is_bound_may_be_covered() -> None:
    assert kinds(allow=["exec(ls *)", {"rule": "exec(ls *)", "expires": "2030-01-01"}]) == [
        ("covered", "exec(ls *)")
    ]
    assert kinds(allow=[{"rule": "exec(ls *)", "expires": "2030-01-01"}, "exec(ls *)"]) == [
        ("covered", "exec(ls *)")
    ]
    assert kinds(allow=["exec(ls *)", {"rule": "exec(ls *)", "except": ["exec(ls -l)"]}]) == [
        ("covered", "exec(ls *)")
    ]


def test_an_expired_rule_covers_nothing_and_is_named_itself() -> None:
    found = findings(allow=[{"rule": "exec(ls *)", "expires": "2020-01-01"}, "exec(ls -l)"])
    assert [(one.kind, one.what) for one in found] == [("expired", "ended on 2020-01-01")]


@pytest.mark.parametrize("effect", ["deny", "ask"])
def test_deny_and_ask_rules_cover_too(effect: str) -> None:
    assert kinds(**{effect: ["exec(rm *)", "exec(rm -rf /)"]}) == [("covered", "exec(rm -rf /)")]
    assert kinds(**{effect: ["git(main)", "git(push origin main)"]}) == [
        ("covered", "git(push origin main)")
    ]
    assert kinds(**{effect: ["filesystem(src/**)", "filesystem(SRC/a)"]}) == []
    assert kinds(**{effect: ["network(example.org)", "network(example.org:22)"]}) == [
        ("covered", "network(example.org:22)")
    ]
    assert kinds(**{effect: ["packages(npm *)", "packages(npm:zod)"]}) == []
    assert kinds(**{effect: ["packages(npm:zod)", "packages(npm install zod@1)"]}) == [
        ("covered", "packages(npm install zod@1)")
    ]
    assert (
        kinds(
            **{
                effect: [
                    "packages(npm:zod)",
                    "packages(npm install 'x;y')",
                    "packages(npm install ./zod)",
                ]
            }
        )
        == []
    )
    assert kinds(**{effect: ["exec(git push *)", "exec(git push --force *)"]}) == [], (
        "options are sought in any place"
    )


def test_rules_as_long_as_they_may_be_are_compared() -> None:
    deep = "a/" * 1_900
    assert kinds(allow=[f"filesystem({deep}**)", f"filesystem({deep}*/b)"]) == [
        ("covered", f"filesystem({deep}*/b)")
    ]
    words = "a " * 900
    assert kinds(allow=[f"exec(x {words}*)", f"exec(x {words} b)"]) == [
        ("covered", f"exec(x {words} b)")
    ]


# -- can never match ------------------------------------------------------------------------------

NEVER = [
    "exec(*)", "packages(*)", "exec(source x)", "exec(eval *)", "exec(export A)",
    "exec(env FOO=1 pytest *)", "exec(env FOO=1 pytest)",
    "exec(exec)", "filesystem(.git/**)", "filesystem(.git/hooks/*)", "filesystem(src/.git/*)",
    "filesystem(**/.env)",
    "filesystem(.github/**)", "network(metadata.google.internal)", "network(169.254.169.254)",
    "packages(npm install --registry x)",
    "packages(pip install)", "packages(npm install ./x)",
    "packages(npm install git+https://example.org/x)", "packages(npm install 'a b')",
]  # fmt: skip


@each_row("rule", NEVER)
def test_an_allow_rule_that_can_never_match_is_named(rule: str) -> None:
    (found,) = findings(allow=[rule])
    assert found.kind == "never"
    assert found.remedy


MATCH = [
    "exec(env pytest *)", "exec(env FOO=1 *)", "exec(ls *)", "filesystem(.git/config)",
    "filesystem(.env)", "filesystem(**/x)",
    "network(169.254.0.0/16)", "packages(npm ci)", "packages(npm install)", "packages(npm:zod@1)",
    "packages(pip install -r x.txt)",
]  # fmt: skip


@each_row("rule", MATCH)
def test_a_rule_that_may_match_is_not(rule: str) -> None:
    assert [one for one in findings(allow=[rule]) if one.kind == "never"] == []


@each_row("effect", ["ask", "deny"])
@each_row("rule", NEVER)
def test_a_stricter_rule_always_says_something(effect: str, rule: str) -> None:
    assert findings(**{effect: [rule]}) == []


def test_where_packages_are_denied_an_allow_rule_at_least_makes_them_a_question() -> None:
    assert kinds(allow=["packages(pip install)"], modes={"packages": "deny"}) == []


def test_a_protected_name_of_the_policy_counts_and_one_that_is_lifted_does_not() -> None:
    assert kinds(allow=["filesystem(deploy/*)"], protected={"deny": ["deploy/**"]}) == [
        ("never", "filesystem(deploy/*)")
    ]
    assert kinds(allow=["filesystem(.github/**)"], unprotected=[".github/**"]) == []


SHADOWED = [
    ("exec(git push *)", "exec(git push origin main)"),
    ("exec(*)", "exec(ls)"),
    ("filesystem(src/**)", "filesystem(src/*.py)"),
    ("network(*.example.org)", "network(GET https://a.example.org/x)"),
    ("git(main)", "git(push origin main)"),
    ("git(*)", "git(feature/*)"),
    ("packages(npm *)", "packages(npm ci)"),
    ("packages(npm:zod)", "packages(npm install zod@1)"),
]


@each_row("effect", ["ask", "deny"])
@each_row(("outer", "inner"), SHADOWED)
def test_an_allow_rule_below_a_stricter_one_never_decides(
    effect: str, outer: str, inner: str
) -> None:
    (found,) = [
        one for one in findings(**{"allow": [inner], effect: [outer]}) if one.effect == "allow"
    ]
    assert (found.kind, found.by) == ("never", f"{effect} {outer}")
    assert found.what.startswith("never decides: all that it is about is ")


def test_an_ask_rule_below_a_deny_rule_never_decides() -> None:
    assert kinds(ask=["exec(rm -rf /)"], deny=["exec(rm *)"]) == [("never", "exec(rm -rf /)")]


def test_a_looser_rule_covers_no_stricter_one() -> None:
    assert (
        kinds(allow=["exec(git log *)"], deny=["exec(git log -3)"], ask=["exec(git log -4)"]) == []
    )


def test_a_stricter_rule_with_exceptions_shadows_nothing() -> None:
    assert (
        kinds(allow=["exec(ls -l)"], deny=[{"rule": "exec(ls *)", "except": ["exec(ls -la)"]}])
        == []
    )


def test_a_rule_that_names_private_addresses_is_no_less_useful_where_all_is_asked() -> None:
    assert kinds(allow=["network(10.1.2.3)"], ask=["network(*)"]) == []
    assert kinds(allow=["network(10.1.2.3)"], deny=["network(*)"]) == [
        ("never", "network(10.1.2.3)")
    ]


# -- unused ---------------------------------------------------------------------------------------


def past(command: str, days_ago: float, rule: str | None = None) -> Past:
    return Past(
        at=NOW - days_ago * DAY,
        session="s",
        action=Exec(command=command),
        verdict="allow",
        rule=rule,
    )


def old(rule: str, days_ago: float = 60) -> dict[str, str]:
    return {"rule": rule, "added_at": str(NOW - days_ago * DAY)}


def unused(history: list[Past], *entries: Any) -> tuple[list[str], tuple[str, ...]]:
    report = lint(policy_from_data({"allow": list(entries)}), history, NOW)
    return [one.rule for one in report.findings if one.kind == "unused"], report.notes


LONG = past("true", 90)


def test_a_rule_that_decided_nothing_for_30_days_is_unused() -> None:
    assert unused(
        [LONG, past("ls -l", 40), past("cat x", 2)], old("exec(ls *)"), old("exec(cat *)")
    ) == (
        ["exec(ls *)"],
        (),
    )


def test_the_recorded_rule_counts_as_well_as_what_the_policy_says_now() -> None:
    assert unused([LONG, past("other", 2, "exec(ls *)")], old("exec(ls *)")) == ([], ())
    assert unused([LONG, past("ls", 2, "exec(gone *)")], old("exec(ls *)")) == ([], ())


def test_a_redacted_record_is_not_judged_anew() -> None:
    cut = msgspec.structs.replace(past("ls", 2), is_redacted=True)
    assert unused([LONG, cut], old("exec(ls *)")) == (["exec(ls *)"], ())


def test_a_young_rule_may_wait_for_its_first_use() -> None:
    assert unused([LONG], old("exec(ls *)", 20)) == ([], ())


def test_of_a_rule_that_doesnt_say_when_it_was_added_nothing_is_said() -> None:
    assert unused([LONG], "exec(ls *)") == (
        [],
        ("1 rule doesn't say when it was added, so nothing is said of unused ones among them",),
    )
    assert "2 rules don't say" in unused([LONG], "exec(ls *)", "exec(cat *)")[1][0]


@pytest.mark.parametrize("history", [[], [past("ls", 3)]])
def test_a_short_record_says_nothing(history: list[Past]) -> None:
    names, notes = unused(history, old("exec(ls *)"), old("exec(cat *)"))
    assert names == []
    assert "the record doesn't reach back 30 days" in notes[-1]


def test_without_a_record_that_is_said() -> None:
    report = lint(policy_from_data({"allow": [old("exec(ls *)")]}), None, NOW)
    assert report.findings == ()
    assert "there is no record" in report.notes[0]


def test_a_rule_that_is_used_often_may_still_be_wide() -> None:
    report = lint(policy_from_data({"allow": [old("exec(bash *)")]}), [LONG], NOW)
    assert [one.kind for one in report.findings] == ["wide", "unused"]
