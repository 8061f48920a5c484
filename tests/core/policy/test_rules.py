"""The order of strictness, expiry, sessions, uses, stickiness, and the words of a verdict."""

from typing import Any

import pytest

from supervisor.core.actions import (
    Action,
    BudgetRaise,
    Category,
    Exec,
    FileChange,
    Git,
    Network,
    Packages,
    Proposal,
)
from supervisor.core.policy.evaluate import evaluate, mode_verdict, names_addresses
from supervisor.core.policy.policy_text import DENY_ALL, merge, policy_from_data
from supervisor.core.policy.rules import InForce, Policy
from supervisor.core.verdicts import Rule, Verdict, combine
from supervisor.errors import PolicyError
from tests.tables import each_row

NOW = 1_790_000_000.0
WRITE = FileChange(operation="write", path="src/a.py")


def verdict(data: dict[str, Any], action: Action, **arguments: Any) -> Verdict:
    return evaluate(policy_from_data(data), action, now=arguments.pop("now", NOW), **arguments)


@each_row(
    ("lists", "mode", "expected", "rule"),
    [
        ({}, "ask", "ask", None),
        ({}, "allow", "allow", None),
        ({}, "deny", "deny", None),
        ({"allow": ["filesystem(src/**)"]}, "deny", "allow", "filesystem(src/**)"),
        ({"ask": ["filesystem(src/**)"]}, "allow", "ask", "filesystem(src/**)"),
        ({"ask": ["filesystem(src/**)"]}, "deny", "ask", "filesystem(src/**)"),
        ({"deny": ["filesystem(src/**)"]}, "allow", "deny", "filesystem(src/**)"),
        (
            {"allow": ["filesystem(src/a.py)"], "ask": ["filesystem(**)"]},
            "allow",
            "ask",
            "filesystem(**)",
        ),
        (
            {"allow": ["filesystem(src/a.py)"], "ask": ["filesystem(**)"], "deny": ["filesystem"]},
            "allow",
            "deny",
            "filesystem(*)",
        ),
        ({"allow": []}, "ask", "ask", None),
        ({"allow": None, "deny": None}, "ask", "ask", None),
    ],
)
def test_the_strictest_wins(
    lists: dict[str, Any], mode: str, expected: str, rule: str | None
) -> None:
    found = verdict({**lists, "modes": {"filesystem": mode}}, WRITE)
    assert (found.decision, found.rule) == (expected, rule)


def test_the_words() -> None:
    data = {
        "allow": [{"rule": "filesystem(src/**)", "id": "r1", "why": "the work"}, "filesystem(**)"],
        "deny": [{"rule": "filesystem(src/x)", "why": "no x"}],
    }
    allowed = verdict(data, WRITE)
    assert allowed.why == "allowed by filesystem(**)"
    assert allowed.rules == ("filesystem(**)", "filesystem(src/**)")
    denied = verdict(data, FileChange(operation="write", path="src/x"))
    assert denied.why == "denied by filesystem(src/x): no x"
    assert denied.remedy
    assert verdict({"allow": data["allow"][:1]}, WRITE).rule_id == "r1"
    assert verdict({}, WRITE).why == "no rule matches; filesystem asks"
    assert mode_verdict(Policy(), WRITE).why == "no rule matches; filesystem asks"


@each_row(
    ("data", "action", "sticky"),
    [
        ({}, WRITE, False),
        ({"ask": ["filesystem(src/**)"]}, WRITE, True),
        ({}, FileChange(operation="symlink", path="l"), True),
        ({}, FileChange(operation="write", path="a\nb"), True),
        ({}, FileChange(operation="write", path="a", hazards=("fifo",)), True),
        ({}, FileChange(operation="write", path=".env"), False),
        ({"ask": ["filesystem(.env)"]}, FileChange(operation="write", path=".env"), True),
        ({}, Network(operation="connect", host="a.example.com", port=443), False),
        (
            {},
            Network(
                operation="request",
                host="a.example.com",
                port=443,
                scheme="https",
                method="GET",
                path="/%2f",
            ),
            True,
        ),
        ({}, Exec(command="make"), False),
        ({}, Exec(command="make $(id)"), True),
        ({}, Git(operation="push", remote="origin", refspecs=("x",)), False),
        (
            {"ask": ["git(push main)"]},
            Git(operation="push", remote="origin", refspecs=("HEAD:main",)),
            True,
        ),
        ({}, Git(operation="", command="git push; id"), True),
        ({}, Packages(manager="npm", operation="install", names=("zod",)), False),
        (
            {},
            Packages(manager="npm", operation="install", names=("zod",), flags=("--registry=x",)),
            True,
        ),
        ({}, Proposal(effect="allow", rule="network(x.example.com)"), True),
    ],
)
def test_always_is_offered_only_where_no_rule_matched(
    data: dict[str, Any], action: Action, sticky: bool
) -> None:
    found = verdict(data, action)
    assert found.decision == "ask"
    assert found.sticky is sticky


def test_nothing_in_force_denies_everything() -> None:
    for action in (WRITE, Exec(command="ls"), Proposal(effect="allow", rule="x")):
        found = evaluate(DENY_ALL, action, now=NOW)
        assert (found.decision, found.by_policy) == ("deny", False)
    assert merge(DENY_ALL, policy_from_data({"allow": ["filesystem(**)"]})) is DENY_ALL


@pytest.mark.parametrize("category", ["network", "git", "packages"])
def test_rules_that_can_not_be_evaluated_deny_instead_of_failing(category: Category) -> None:
    """Law 3. No policy file brings such a rule in; whoever builds one by hand gets no hole."""
    broken = Rule(effect="allow", category=category, pattern="\0 (", text="broken", id="r1")
    actions = {
        "network": Network(operation="connect", host="a.example.org", port=443),
        "git": Git(operation="push"),
        "packages": Packages(manager="npm", operation="install", names=("a",)),
    }
    found = evaluate(
        Policy([broken], {"network": "allow", "git": "allow"}), actions[category], now=NOW
    )
    assert (found.decision, found.remedy) == ("deny", "report this as a bug")
    assert found.why.startswith("the rules could not be evaluated: ")
    assert not found.by_policy, "under another policy it would be another verdict"


def test_a_proposal_is_always_asked() -> None:
    data = {"modes": {"filesystem": "allow", "network": "allow"}}
    assert verdict(data, Proposal(effect="allow", rule="network(a.example.com)")).decision == "ask"


def test_a_raise_of_the_budget_is_always_asked() -> None:
    action = BudgetRaise(scope="session", of="s", kind="cost", limit=5, by=1)
    found = evaluate(Policy(), action, now=NOW)
    assert (found.decision, found.sticky) == ("ask", True)


def test_expiry_is_to_the_second() -> None:
    data = {"allow": [{"rule": "filesystem(src/**)", "expires": "2027-01-31"}]}
    end = 1_801_353_600.0
    assert verdict(data, WRITE, now=end - 1).decision == "allow"
    assert verdict(data, WRITE, now=end).decision == "ask"


def test_a_rule_of_a_session_is_for_that_session() -> None:
    data = {"allow": [{"rule": "filesystem(src/**)", "session": "s1"}]}
    assert verdict(data, WRITE, session_id="s1").decision == "allow"
    assert verdict(data, WRITE, session_id="s2").decision == "ask"
    assert verdict(data, WRITE).decision == "ask"
    ends = {"allow": [{"rule": "filesystem(src/**)", "expires": "session"}]}
    assert verdict(ends, WRITE, session_id="s1").decision == "allow"


def test_uses_are_counted_or_nothing_is_allowed() -> None:
    data = {"allow": [{"rule": "filesystem(src/**)", "id": "r", "uses": 2}]}
    assert verdict(data, WRITE).decision == "ask"
    assert verdict(data, WRITE, uses={}).decision == "allow"
    assert verdict(data, WRITE, uses={"r": 1}).decision == "allow"
    assert verdict(data, WRITE, uses={"r": 2}).decision == "ask"


def test_the_same_holds_for_exec() -> None:
    data = {
        "allow": [
            {"rule": "exec(make)", "expires": "2027-01-31"},
            {"rule": "exec(ls)", "session": "s"},
        ],
        "deny": [{"rule": "exec(rm *)", "why": "no"}],
    }
    assert verdict(data, Exec(command="make")).decision == "allow"
    assert verdict(data, Exec(command="make"), now=1_900_000_000.0).decision == "ask"
    assert verdict(data, Exec(command="ls"), session_id="s").decision == "allow"
    assert verdict(data, Exec(command="ls"), session_id="t").decision == "ask"
    assert verdict(data, Exec(command="rm -rf x")).why.endswith(": no")
    assert verdict({}, Exec(command="cd src")).decision == "allow"
    assert verdict({}, Exec(command="cd ..")).decision == "ask"
    assert verdict({"modes": {"exec": "deny"}}, Exec(command="cd src")).decision == "deny"


def test_a_mode_of_deny_is_stricter_than_a_forced_ask() -> None:
    data = {"modes": {"filesystem": "deny", "exec": "deny", "git": "deny", "packages": "deny"}}
    for action in (
        FileChange(operation="symlink", path="l"),
        Exec(command="$(id)"),
        Git(operation="", command="git push; id"),
        Packages(manager="", operation="", command="npm i; id"),
    ):
        assert verdict(data, action).decision == "deny"


def test_listeners_of_ours_are_never_reached() -> None:
    data = {
        "allow": [
            "network(127.0.0.1:9000)",
            "network(192.168.1.1:9000)",
            "network(93.184.216.34:9000)",
            "network([::1]:9000)",
        ]
    }
    ours = frozenset({("127.0.0.1", 9000), ("93.184.216.34", 0)})
    for host in ("127.0.0.1", "127.9", "::1", "93.184.216.34"):
        action = Network(operation="connect", host=host, port=9000)
        assert verdict(data, action, forbidden_endpoints=ours).decision == "deny", host
    assert (
        verdict(data, Network(operation="connect", host="127.0.0.1", port=9000)).decision == "allow"
    )
    assert (
        verdict(
            data,
            Network(operation="connect", host="192.168.1.1", port=9000),
            forbidden_endpoints=ours,
        ).decision
        == "allow"
    )


def test_private_addresses_that_a_rule_names() -> None:
    data = {"allow": ["network(db.example.com)", "network(10.0.0.0/8)", "network(0.0.0.0/1)"]}
    action = Network(
        operation="connect", host="db.example.com", port=443, resolved=("10.0.0.1", "93.184.216.34")
    )
    policy = policy_from_data(data)
    assert evaluate(policy, action, now=NOW).rules == (
        "network(10.0.0.0/8)",
        "network(db.example.com)",
    )
    assert names_addresses(policy, action, now=NOW)
    other = Network(operation="connect", host="db.example.com", port=443, resolved=("127.0.0.1",))
    assert evaluate(policy, other, now=NOW).decision == "deny"
    assert not names_addresses(policy, other, now=NOW)
    assert not names_addresses(
        policy, Network(operation="connect", host="db.example.com", port=443), now=NOW
    )


def test_hosts_that_are_looked_into() -> None:
    policy = policy_from_data(
        {
            "allow": ["network(plain.example.com)", "network(GET https://api.example.com/**)"],
            "deny": ["network(POST https://*.example.org/**)"],
        }
    )
    assert policy.looks_into("API.example.com.")
    assert policy.looks_into("a.b.example.org")
    assert not policy.looks_into("plain.example.com")
    assert policy.looks_into("not a host")
    assert policy.passing("api.example.com", None) == (True, False)
    assert policy.passing("plain.example.com", "network(plain.example.com)") == (False, False)
    limited = policy_from_data({"allow": [{"rule": "network(plain.example.com)", "uses": 1}]})
    assert limited.passing("plain.example.com", "network(plain.example.com)") == (False, True)


def test_a_deny_rule_by_url_opens_no_connection() -> None:
    connect = Network(operation="connect", host="api.example.com", port=443)
    assert (
        verdict({"deny": ["network(POST https://api.example.com/**)"]}, connect).decision == "ask"
    )
    assert (
        verdict(
            {"allow": ["network(GET https://api.example.com/**)"], "modes": {"network": "deny"}},
            connect,
        ).decision
        == "allow"
    )


def test_remotes_that_are_configured() -> None:
    push = Git(operation="push", remote="up", refspecs=("x",))
    data = {"allow": ["git(push up *)"]}
    assert verdict(data, push).decision == "deny"
    assert verdict(data, push, configured_remotes=frozenset({"up"})).decision == "allow"
    assert verdict(data, push, configured_remotes=frozenset()).decision == "deny"


def test_fields_and_command_must_agree() -> None:
    for action in (
        Git(
            operation="push",
            remote="origin",
            refspecs=("feature/x",),
            command="git push origin main",
        ),
        Packages(manager="npm", operation="install", names=("zod",), command="npm install evil"),
    ):
        assert (
            verdict({"allow": ["git(push origin *)", "packages(npm:*)"]}, action).decision == "deny"
        )


def test_merging_keeps_the_strictest_mode_and_all_names() -> None:
    one = policy_from_data(
        {"modes": {"network": "allow", "git": "ask"}, "protected": {"ask": ["a.txt"]}}
    )
    two = policy_from_data(
        {
            "modes": {"network": "deny"},
            "protected": {"deny": ["b.txt"]},
            "unprotected": [".vscode/**"],
        }
    )
    both = merge(one, two)
    assert both.mode_of("network") == "deny"
    assert both.mode_of("git") == "ask"
    found = [
        evaluate(both, FileChange(operation="write", path=path), now=NOW).why
        for path in ("a.txt", "b.txt", ".vscode/x")
    ]
    assert found[0].startswith("protected name a.txt")
    assert found[1].startswith("protected name b.txt")
    assert found[2] == "no rule matches; filesystem asks"


def test_parts_are_combined_to_the_strictest() -> None:
    allow, ask, deny = (
        Verdict(one, one, rule=one, rules=(one,)) for one in ("allow", "ask", "deny")
    )  # type: ignore[arg-type]
    assert combine([allow]) is allow
    assert combine([allow, ask, deny]).rules == ("deny",)
    assert combine([allow, ask]).decision == "ask"
    assert combine([allow, Verdict("allow", "x", rule="x", rules=("x",))]).rules == ("allow", "x")


def test_no_judge_for_proposals() -> None:
    with pytest.raises(PolicyError, match="sandbox"):
        Policy().judge_for("sandbox")


def test_what_is_in_force_is_the_same_only_where_no_verdict_can_be_another() -> None:
    policy, other = policy_from_data({"version": 1}, "a"), policy_from_data({"version": 1}, "a")
    now = InForce(policy, frozenset())
    assert now.is_same(InForce(policy, frozenset()))
    assert not now.is_same(None)
    assert not now.is_same(InForce(other, frozenset()))
    assert not now.is_same(InForce(policy, frozenset({"one"})))
    assert not InForce(None, frozenset()).is_same(InForce(None, frozenset()))


def test_a_rule_that_ended_at_the_beginning_of_time_is_not_in_force() -> None:
    policy = policy_from_data({"allow": [{"rule": "exec(ls)", "expires": "1970-01-01T00:00:00Z"}]})
    assert evaluate(policy, Exec(command="ls"), now=0).decision == "ask"
    assert isinstance(evaluate(policy, Exec(command="ls"), now=-1), Verdict)


def test_a_rule_is_limited_where_any_of_its_text_ends_by_time_or_by_uses() -> None:
    policy = policy_from_data(
        {
            "allow": [
                {"rule": "network(api.example.org)", "expires": "1970-01-01T00:01:40Z"},
                {"rule": "network(10.0.0.5)", "uses": 2},
                {"rule": "filesystem(src/*)", "session": "s1"},
            ],
            "deny": [{"rule": "network(*.example.org)", "session": "s3"}],
        }
    )
    assert policy.is_limited("network", "network(api.example.org)")
    assert policy.is_limited("network", "network(10.0.0.5)")
    assert not policy.is_limited("network", "network(*.example.org)")
    assert not policy.is_limited("git", "network(10.0.0.5)")
    assert not policy.is_limited("filesystem", "filesystem(src/*)")
    policy = policy_from_data(
        {"version": 1, "allow": ["network(a.test)", {"rule": "network(a.test)", "uses": 1}]}
    )
    assert policy.is_limited("network", "network(a.test)")
