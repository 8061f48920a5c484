"""The laws of the engine, searched by Hypothesis: what must hold for every policy and every
action."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from supervisor.core.actions import (
    Action,
    Effect,
    Exec,
    FileChange,
    Git,
    Network,
    Packages,
    fingerprint,
)
from supervisor.core.policy.category import Candidate
from supervisor.core.policy.evaluate import evaluate
from supervisor.core.policy.policy_text import merge, parse_rule, policy_from_data
from supervisor.core.policy.rules import Policy, Verdict
from supervisor.core.policy.suggest import suggest
from supervisor.core.shell.shell import parse
from supervisor.core.text.hosts import canonical_host
from supervisor.core.text.paths import canonical
from supervisor.core.verdicts import STRICTNESS
from tests.fakes.law_worlds import (
    ACTIONS,
    EFFECTS,
    HOST_PATTERNS,
    HOSTS,
    LISTS,
    MODES,
    RULES,
    WILD_ACTIONS,
)
from tests.fakes.naive_rules import naive_verdict

NOW = 1_790_000_000.0


def policy_of(lists: dict[str, Any], modes: dict[str, str]) -> Policy:
    return policy_from_data({**lists, "modes": modes})


def judge(policy: Policy, action: Action) -> Verdict:
    return evaluate(policy, action, now=NOW)


@given(LISTS, MODES, RULES, ACTIONS)
def test_adding_a_deny_rule_never_loosens(
    lists: dict[str, Any], modes: dict[str, str], rule: str, action: Action
) -> None:
    before = policy_of(lists, modes)
    after = policy_of({**lists, "deny": [*lists["deny"], rule]}, modes)
    assert STRICTNESS[judge(after, action).decision] >= STRICTNESS[judge(before, action).decision]


@given(LISTS, MODES, RULES, ACTIONS)
def test_adding_an_ask_rule_turns_no_deny_rule_and_no_ask_into_an_allow(
    lists: dict[str, Any], modes: dict[str, str], rule: str, action: Action
) -> None:
    before = policy_of(lists, modes)
    after = policy_of({**lists, "ask": [*lists["ask"], rule]}, modes)
    first, second = judge(before, action), judge(after, action)
    assert not (second.decision == "allow" and first.decision != "allow")
    assert not (first.decision == "deny" and first.rule and second.decision != "deny")


@given(LISTS, MODES, ACTIONS, st.randoms(use_true_random=False))
def test_the_order_of_rules_never_matters(
    lists: dict[str, Any], modes: dict[str, str], action: Action, random: Any
) -> None:
    shuffled = {effect: random.sample(rules, len(rules)) for effect, rules in lists.items()}
    one, two = policy_of(lists, modes), policy_of(shuffled, modes)
    assert judge(one, action) == judge(two, action)


@given(LISTS, LISTS, MODES, ACTIONS)
def test_merging_is_the_same_in_any_order(
    one: dict[str, Any], two: dict[str, Any], modes: dict[str, str], action: Action
) -> None:
    first, second = policy_of(one, modes), policy_of(two, {})
    assert judge(merge(first, second), action) == judge(merge(second, first), action)


@given(ACTIONS, MODES)
def test_a_bare_rule_never_allows_a_command_or_a_package(
    action: Action, modes: dict[str, str]
) -> None:
    bare = [
        f"{category}({text})" for category in ("exec", "packages") for text in ("*", "**", "* *")
    ]
    policy = policy_of({"allow": bare}, modes)
    assert len(policy.warnings) == len(bare)
    if isinstance(action, Exec | Packages):
        assert judge(policy, action).decision != "allow"


@given(LISTS, MODES, ACTIONS)
def test_a_verdict_says_why_and_names_its_rules(
    lists: dict[str, Any], modes: dict[str, str], action: Action
) -> None:
    policy = policy_of(lists, modes)
    verdict = judge(policy, action)
    assert verdict.why
    assert "\n" not in verdict.why
    assert (verdict.rule is None) == (not verdict.rules)
    assert verdict.rule is None or verdict.rule in verdict.rules
    assert set(verdict.rules) <= {rule.text for rule in policy.rules}
    assert verdict.remedy or verdict.decision != "deny" or verdict.rule is None
    assert verdict.decision != "deny" or "could not be evaluated" not in verdict.why


@given(ACTIONS)
def test_every_suggestion_parses_matches_and_isn_t_bare(action: Action) -> None:
    found = suggest(action)
    assert len(found) <= 3
    assert [one.default for one in found] == [True, *[False] * (len(found) - 1)][: len(found)]
    for candidate in found:
        assert parse_rule(candidate.rule, "allow")
        policy = policy_from_data({"allow": [candidate.rule]})
        assert not policy.warnings
        assert (
            evaluate(
                policy, action, now=NOW, configured_remotes=frozenset({"origin", "evil", "main"})
            ).decision
            == "allow"
        )


def reach(candidate: Candidate, of: Action, other: Action) -> bool:
    """Whether another action is within what the label of a candidate says."""
    match of, other:
        case FileChange(), FileChange():
            mine, its = canonical(of.path).text, canonical(other.path).text
            folder = mine.rpartition("/")[0]
            within = {
                "exact": its == mine,
                "narrow": its.rpartition("/")[0] == folder,
                "broad": f"{its}/".startswith(f"{folder}/"),
            }
            return within[candidate.label] and (
                other.to is None or candidate.label != "exact" or canonical(other.to).text == mine
            )
        case Network(), Network():
            mine, its = canonical_host(of.host), canonical_host(other.host)
            return its == mine or (
                candidate.label == "broad" and its.endswith("." + ".".join(mine.split(".")[-2:]))
            )
        case Exec(), Exec():
            # Of an exact command only other spellings of the same words.
            listed = [
                [
                    [word.text for word in c.words]
                    for c in parse(action.command).commands
                    if c.words[0].text != "cd"
                ]
                for action in (of, other)
            ]
            words = 3 if candidate.rule.startswith("exec(git") else 1
            return (
                listed[0] == listed[1]
                if candidate.label == "exact"
                else all(c[: words - 1] == listed[0][0][: words - 1] for c in listed[1])
            )
        case (Git(), Git()) | (Packages(), Packages()):
            return True
    return False


@given(ACTIONS, ACTIONS)
def test_a_suggestion_is_no_wider_than_its_label_says(action: Action, other: Action) -> None:
    for candidate in suggest(action):
        policy = policy_from_data({"allow": [candidate.rule]})
        if judge(policy, other).rule == candidate.rule and judge(policy, other).decision == "allow":
            assert reach(candidate, action, other), (candidate, other)


# -- the second evaluator -------------------------------------------------------------------------
# More rules than an index looks through one by one, in every shape that it tells apart: by folder,
# by ending, by a name inside.
PLAIN_PATHS = st.lists(
    st.sampled_from(["a", "b", "src", "x.py", "y.md", "ab", "SRC", "X.py", ".z", "b.tar.gz"]),
    min_size=1,
    max_size=5,
).map("/".join)
NAIVE_GLOBS = st.lists(
    st.sampled_from(["a", "b", "src", "SRC", "x.py", ".z", "*", "**", "**", "*.py", "*.gz", "?",
    "[ab]", "[!a]*", "x*", "*b*", "s*c", "b.*.gz"]),
    min_size=1, max_size=5,
).map("/".join)  # fmt: skip
NAIVE_HOSTS = st.one_of(
    HOST_PATTERNS.filter(lambda text: text[-1] != "4"),
    st.builds(
        "{}{}{}".format, st.sampled_from(["", "*."]), st.sampled_from(["", "a.", "b.", "x.a."]),
        st.sampled_from(["example.com", "other.example.net"])
    ),
    st.builds("{} https://{}/{}".format, st.sampled_from(["GET", "POST", "*", "GET,POST"]), HOSTS,
    st.sampled_from(["**", "a/*", "a", "a/b", "*/b", "a/**/c"])),
    st.builds("{}:{}".format, HOSTS, st.sampled_from([443, 80, 8443])),
)  # fmt: skip
PATTERN_LISTS = {
    "filesystem": st.fixed_dictionaries(
        {effect: st.lists(NAIVE_GLOBS, max_size=40) for effect in EFFECTS}
    ),
    "network": st.fixed_dictionaries(
        {effect: st.lists(NAIVE_HOSTS, max_size=30) for effect in EFFECTS}
    ),
}


def as_rules(category: str, lists: dict[str, list[str]]) -> dict[str, list[str]]:
    return {
        effect: [f"{category}({one})" for one in patterns] for effect, patterns in lists.items()
    }


@given(PATTERN_LISTS["filesystem"], st.sampled_from(EFFECTS), PLAIN_PATHS)
def test_a_naive_evaluator_agrees_on_files(
    lists: dict[str, list[str]], mode: Effect, path: str
) -> None:
    policy = policy_of(as_rules("filesystem", lists), {"filesystem": mode})
    verdict = judge(policy, FileChange(operation="write", path=path))
    assert verdict.decision == naive_verdict("filesystem", lists, mode, path), verdict


@given(
    PATTERN_LISTS["network"], st.sampled_from(EFFECTS), HOSTS, st.sampled_from([80, 443, 8443]),
    st.sampled_from([(None, None), ("GET", "/a/b"), ("POST", "/a"), ("GET", "/"), ("POST",
    "/a/b/c"), ("GET+", "/a/b"), ("POST+", "/a")]),
)  # fmt: skip
def test_a_naive_evaluator_agrees_on_hosts(
    lists: dict[str, list[str]],
    mode: Effect,
    host: str,
    port: int,
    request: tuple[str | None, str | None],
) -> None:
    policy = policy_of(as_rules("network", lists), {"network": mode})
    method, path = request
    if method is None:
        action = Network(operation="connect", host=host, port=port)
    else:
        action = Network(
            operation="request",
            host=host,
            port=port,
            scheme="https",
            method=method.rstrip("+"),
            path=path,
        )
        action = msgspec.structs.replace(action, has_body=method.endswith("+"))
    verdict = judge(policy, action)
    assert verdict.decision == naive_verdict("network", lists, mode, (host, port, method, path)), (
        verdict
    )


# -- what an approval is bound to, and what is left when all else fails ---------------------------


def effect_of(action: Action) -> Action:
    """What would take effect: `fingerprint` leaves out where a name led to, which is judged anew
    each time."""
    return replace(action, resolved=()) if isinstance(action, Network) else action


@given(ACTIONS | WILD_ACTIONS, ACTIONS | WILD_ACTIONS)
def test_unequal_actions_never_share_a_fingerprint(one: Action, two: Action) -> None:
    try:
        marks = (fingerprint(one), fingerprint(two))
    except (
        UnicodeEncodeError,
        OverflowError,
    ):  # lone surrogates and huge numbers never get past the wire
        return
    assert (marks[0] == marks[1]) == (effect_of(one) == effect_of(two))


@pytest.mark.parametrize("category", ["exec", "filesystem", "network", "git", "packages"])
def test_a_broken_judge_denies(category: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 3: an exception inside is a denial with a why, never an allow."""
    actions: dict[str, Action] = {
        "exec": Exec(command="ls"),
        "filesystem": FileChange(operation="write", path="a"),
        "network": Network(operation="connect", host="a.example.com", port=443),
        "git": Git(operation="push"),
        "packages": Packages(manager="npm", operation="install"),
    }
    policy = policy_from_data({"modes": {"filesystem": "allow"}})

    class Broken:
        def judge(self, *_: object) -> Verdict:
            raise RuntimeError

    policy._judges[category] = Broken()  # type: ignore[index]
    assert judge(policy, actions[category]).decision == "deny"
