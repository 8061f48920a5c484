"""Holds that a verdict which is remembered is the one that would be given anew, and that
remembering is bounded."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.actions import Action, Exec, FileChange, Git, Network, Packages, category_of
from supervisor.core.policy import verdict_cache
from supervisor.core.policy.evaluate import evaluate
from supervisor.core.policy.policy_text import policy_from_data
from supervisor.core.policy.rules import Policy
from supervisor.core.policy.verdict_cache import VerdictCache
from supervisor.core.verdicts import Context, Verdict

# Two rules of each kind that can end, in every category, so that each moment, session and count
# changes some verdict.
RULES: dict[str, Any] = {
    "version": 1,
    "allow": [
        {"rule": "network(api.example.org)", "expires": "1970-01-01T00:01:40Z"},
        {"rule": "network(10.0.0.5)", "uses": 2, "id": "net"},
        {"rule": "filesystem(src/*)", "session": "s1"},
        {"rule": "filesystem(docs/*)", "expires": "1970-01-01T00:03:20Z"},
        {"rule": "exec(git status *)", "uses": 1, "id": "status"},
        {"rule": "exec(ls *)", "session": "s2"},
        "exec(./run *)",
        {"rule": "git(push origin feature/*)", "expires": "1970-01-01T00:01:40Z"},
        {"rule": "git(push fork main)", "session": "s1"},
        {"rule": "packages(npm:left-pad)", "uses": 3, "id": "pad"},
    ],
    "ask": [{"rule": "filesystem(docs/a.md)", "expires": "1970-01-01T00:01:40Z"}],
    "deny": [
        {"rule": "exec(git status -v)", "session": "s2"},
        {"rule": "network(*.example.org)", "session": "s3"},
    ],
}
ACTIONS: list[Action] = [
    Network(operation="connect", host="api.example.org", port=443),
    Network(operation="connect", host="api.example.org", port=443, resolved=("203.0.113.9",)),
    Network(operation="connect", host="api.example.org", port=443, resolved=("127.0.0.1",)),
    Network(operation="connect", host="10.0.0.5", port=443),
    FileChange(operation="write", path="src/a.py"),
    FileChange(operation="write", path="docs/a.md"),
    FileChange(operation="write", path=".git/config"),
    Exec(command="git status"),
    Exec(command="git status -v"),
    Exec(command="ls && git status"),
    Exec(command="./run x", cwd="/work/tree"),
    Git(operation="push", remote="origin", refspecs=("feature/x",)),
    Git(operation="push", remote="fork", refspecs=("main",)),
    Packages(manager="npm", operation="install", names=("left-pad",)),
]
CONTEXTS = st.fixed_dictionaries(
    {
        "now": st.sampled_from(
            [0.0, 99.0, 100.0, 101.0, 199.9, 200.0, 1e9, float("nan"), float("-inf")]
        ),
        "session_id": st.sampled_from([None, "s1", "s2", "s3"]),
        "workspace": st.sampled_from(["/workspace/merged", "/work/tree"]),
        "configured_remotes": st.sampled_from(
            [None, frozenset({"fork"}), frozenset({"origin", "fork"})]
        ),
        "forbidden_endpoints": st.sampled_from(
            [frozenset[Any](), frozenset({("203.0.113.9", 443)}), frozenset({("10.0.0.5", 0)})]
        ),
        "uses": st.one_of(
            st.none(),
            st.dictionaries(
                st.sampled_from(["net", "status", "pad"]), st.integers(min_value=0, max_value=4)
            ),
        ),
    }
)


def fresh() -> Policy:
    return policy_from_data(RULES)


@given(st.lists(st.tuples(st.sampled_from(ACTIONS), CONTEXTS), min_size=2, max_size=40))
def test_what_is_remembered_is_what_would_be_said_anew(
    asked: list[tuple[Action, dict[str, Any]]],
) -> None:
    kept = fresh()
    for action, context in [*asked, *reversed(asked)]:
        assert evaluate(kept, action, **context) == evaluate(fresh(), action, **context)


@pytest.mark.parametrize("seed", range(3))
def test_the_same_over_thousands_of_steps_of_one_policy(seed: int) -> None:
    choose, kept, bare = random.Random(seed), fresh(), fresh()
    for _ in range(2_000):
        action = choose.choice(ACTIONS)
        context: dict[str, Any] = {
            "now": choose.choice([0.0, 99.9, 100.0, 199.0, 200.0, 300.0]),
            "session_id": choose.choice([None, "s1", "s2", "s3"]),
            "uses": choose.choice([None, {}, {"status": 1}, {"net": 2, "pad": 3}, {"pad": 2}]),
            "configured_remotes": choose.choice([None, frozenset({"origin", "fork"})]),
        }
        forgetful(bare)
        assert evaluate(kept, action, **context) == evaluate(bare, action, **context)


def forgetful(policy: Policy) -> None:
    policy._verdicts = VerdictCache(policy.rules)


def test_the_same_question_is_answered_from_memory() -> None:
    policy = fresh()
    action = Exec(command="git status")
    first = evaluate(policy, action, now=1, uses={})
    assert evaluate(policy, Exec(command="git status"), now=50, uses={"status": 0}) is first, (
        "no rule ends in between"
    )
    assert evaluate(policy, action, now=50, uses={"status": 1}) is not first


def test_another_policy_remembers_nothing_of_the_last() -> None:
    action = FileChange(operation="write", path="src/a.py")
    allowing = policy_from_data({"allow": ["filesystem(src/*)"]})
    assert evaluate(allowing, action, now=0).decision == "allow"
    assert (
        evaluate(policy_from_data({"deny": ["filesystem(src/*)"]}), action, now=0).decision
        == "deny"
    )
    assert len(policy_from_data({})._verdicts) == 0


def test_only_so_many_verdicts_are_kept_and_the_latest_used_stay() -> None:
    policy = policy_from_data({"allow": ["filesystem(src/*)"]})
    used = FileChange(operation="write", path="src/used")
    first = evaluate(policy, used, now=0)
    for number in range(verdict_cache.MAX_VERDICTS * 2):
        evaluate(policy, FileChange(operation="write", path=f"src/{number}"), now=0)
        if number % 500 == 0:
            assert evaluate(policy, used, now=0) is first
    assert len(policy._verdicts) == verdict_cache.MAX_VERDICTS


@pytest.mark.parametrize(
    "action",
    [
        Exec(command="x" * 5_000),
        FileChange(operation="write", path="a", after="x" * 5_000),
        Git(operation="push", remote="origin", refspecs=tuple("branch" for _ in range(1_000))),
        Git(operation="push", remote="origin", refspecs=["main"]),  # type: ignore[arg-type]
    ],
)
def test_what_is_long_or_can_change_is_judged_each_time(action: Action) -> None:
    policy = fresh()
    assert evaluate(policy, action, now=0) == evaluate(policy, action, now=0)
    assert len(policy._verdicts) == 0


def test_a_policy_with_many_limited_rules_remembers_none_of_their_category() -> None:
    rules = [
        {"rule": f"exec(tool{number})", "uses": 1}
        for number in range(verdict_cache.MAX_LIMITED + 1)
    ]
    policy = policy_from_data({"allow": rules})
    evaluate(policy, Exec(command="tool1"), now=0, uses={})
    assert len(policy._verdicts) == 0
    evaluate(policy, ACTIONS[0], now=0, uses={})
    assert len(policy._verdicts) == 1


def test_an_error_is_not_remembered() -> None:
    class Broken(dict[str, int]):
        def get(self, *_: Any) -> Any:
            raise RuntimeError

    policy = fresh()
    assert evaluate(policy, Exec(command="git status"), now=0, uses=Broken()).decision == "deny"
    assert evaluate(policy, Exec(command="git status"), now=0, uses={}).decision == "allow"


def test_every_field_of_a_context_is_part_of_the_question() -> None:
    """A new field of `Context` must be added to `VerdictCache.key`, and here."""
    assert Context._fields == (
        "now",
        "workspace",
        "session_id",
        "forbidden_endpoints",
        "remotes",
        "uses",
        "disputed",
        "is_contained",
    )
    cache = VerdictCache(fresh().rules)
    plain = Context(0.0, "/w", None, frozenset(), frozenset(), {})
    others: dict[str, Any] = {
        "now": 150.0,
        "workspace": "/v",
        "session_id": "s1",
        "forbidden_endpoints": frozenset({("127.0.0.1", 1)}),
        "remotes": frozenset({"origin"}),
        "uses": {"status": 1, "net": 2, "pad": 3},
        "disputed": frozenset({"net"}),
        "is_contained": True,
    }
    for field, value in others.items():
        seen = {
            cache.key(category_of(action), action, context)
            == cache.key(category_of(action), action, plain)
            for action in (Exec(command="ls"), ACTIONS[0], ACTIONS[11])
            for context in (plain._replace(**{field: value}),)
        }
        assert False in seen, field


def test_a_rule_that_ended_at_the_beginning_of_time_is_not_in_force() -> None:
    policy = policy_from_data({"allow": [{"rule": "exec(ls)", "expires": "1970-01-01T00:00:00Z"}]})
    assert evaluate(policy, Exec(command="ls"), now=0).decision == "ask"
    assert isinstance(evaluate(policy, Exec(command="ls"), now=-1), Verdict)


def test_a_rule_is_limited_where_any_of_its_text_ends_by_time_or_by_uses() -> None:
    policy = policy_from_data(RULES)
    assert policy.is_limited("network", "network(api.example.org)")
    assert policy.is_limited("network", "network(10.0.0.5)")
    assert not policy.is_limited("network", "network(*.example.org)")
    assert not policy.is_limited("git", "network(10.0.0.5)")
    assert not policy.is_limited("filesystem", "filesystem(src/*)")
    policy = policy_from_data(
        {"version": 1, "allow": ["network(a.test)", {"rule": "network(a.test)", "uses": 1}]}
    )
    assert policy.is_limited("network", "network(a.test)")
