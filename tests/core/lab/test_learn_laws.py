"""Laws of what is learned, tried on histories and policies that Hypothesis makes up: no rule
that a denial or the base speaks against, none wider than it says."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.actions import Action
from supervisor.core.lab.learn import Learned, learn
from supervisor.core.lab.past import Past
from supervisor.core.packages.package_commands import parse_command as package
from supervisor.core.policy.evaluate import evaluate
from supervisor.core.policy.git_refs import parse_command as git
from supervisor.core.policy.policy_text import merge, policy_from_data
from supervisor.core.policy.rules import Policy
from tests.core.lab.test_learn import (
    NOW,
    allows,
    connect,
    past,
    request,
    run,
    write,
)

# A tracer would slow these down, and no branch is reached by them alone.
pytestmark = pytest.mark.untraced

# Programs and arguments that meet often, harmless ones and others.
COMMAND = st.sampled_from(
    ["cargo test", "cargo test -p a", "cargo build", "npm run build", "npm run build --watch",
     "npm run x", "make", "make clean",
     "git commit -m x", "git log -3", "git push origin dev", "rm build/x", "rm -rf /",
     "curl https://a.example.org", "sudo ls",
     "python a.py", "python a.py 1", "python -c 1", "./run", "./run --x", "sh x.sh", "cat a",
     "cat b", "xargs wc -l", "xargs rm",
     "timeout 5 cat a", "npx tsc", "gh run view 1", "gh pr merge 1", "cd sub", "ls > x",
     "echo $(id)", "git -c a=b log"]
)  # fmt: skip
LINES = st.tuples(
    COMMAND, st.lists(st.tuples(st.sampled_from([" && ", " | ", "; "]), COMMAND), max_size=2)
).map(lambda parts: parts[0] + "".join(joint + command for joint, command in parts[1]))
PATHS = st.lists(st.sampled_from(["src", "a", "b", "x.py", ".env"]), min_size=1, max_size=4).map(
    "/".join
)
ACTIONS: st.SearchStrategy[Action] = st.one_of(
    LINES.map(run),
    LINES.map(run),
    PATHS.map(write),
    st.sampled_from(["a.example.org", "b.example.org", "example.org", "10.0.0.1"]).map(connect),
    st.builds(
        request,
        st.sampled_from(["/a/x", "/a/y", "/a/b/z", "/c", "/"]),
        st.sampled_from(["GET", "POST"]),
    ),
    st.sampled_from(
        ["bot/a", "bot/b", "bot/c/d", "main", "-f origin bot/a", ":bot/a", "bot/a:main"]
    ).map(lambda ref: git(f"git push {ref}" if ref.startswith("-") else f"git push origin {ref}")),
    st.sampled_from(
        ["npm install a", "npm install a@1", "npm install b a", "pip install -e ."]
    ).map(package),
)
HISTORIES = st.lists(
    st.builds(
        past,
        ACTIONS,
        st.sampled_from(["approved", "approved", "approved", "denied", None]),
        session=st.sampled_from(["s1", "s2"]),
    ),
    max_size=14,
)
BASE_RULES = st.lists(
    st.sampled_from(
        ["exec(cargo *)", "exec(cat *)", "exec(git log *)", "exec(make clean)", "exec(npm run *)",
         "filesystem(src/*)",
         "filesystem(**/x.py)", "network(*.example.org)",
         "network(GET https://packages.example.org/a/**)", "git(push origin bot/*)",
         "git(main)", "packages(npm:a)", "exec(xargs *)", "exec(*)"]
    ),
    max_size=3,
)  # fmt: skip
BASES = st.fixed_dictionaries(
    {
        "allow": BASE_RULES,
        "ask": BASE_RULES,
        "deny": BASE_RULES,
        "modes": st.fixed_dictionaries(
            {
                "filesystem": st.sampled_from(["allow", "ask", "deny"]),
                "exec": st.sampled_from(["ask", "deny"]),
            }
        ),
    }
).map(policy_from_data)


def learned_beside(history: Sequence[Past], base: Policy) -> tuple[Learned, Policy]:
    learned = learn(history, base, now=NOW)
    return learned, merge(base, learned.policy())


@given(HISTORIES, BASES)
def test_law_no_rule_answers_what_was_denied_or_what_the_base_holds(
    history: list[Past], base: Policy
) -> None:
    _, policy = learned_beside(history, base)
    for one in history:
        remotes = frozenset(one.remotes)
        before = evaluate(base, one.action, now=NOW, configured_remotes=remotes)
        if before.decision != "allow" and (
            one.outcome == "deny" or before.rule is not None or before.sticky
        ):
            assert not allows(policy, one), one.action


@given(HISTORIES, BASES)
def test_law_everything_that_is_said_to_be_saved_is_saved(
    history: list[Past], base: Policy
) -> None:
    learned, policy = learned_beside(history, base)
    before = [one for one in history if not allows(base, one)]
    after = [one for one in history if not allows(policy, one)]
    assert (len(before), len(after)) == (learned.asked_before, learned.asked_after)
    saved = [one for one in before if one.answer == "approved" and allows(policy, one)]
    stay = [one for one in after if one.answer == "approved"]
    assert sum(one.count for one in learned.stays) == len(stay)
    for rule in learned.rules:
        without = merge(
            base,
            policy_from_data({"allow": [one.rule for one in learned.rules if one is not rule]}),
        )
        # INVARIANT of the proposal: each rule saves a prompt that no other does.
        assert rule.saves == sum(not allows(without, one) for one in saved) > 0


@given(HISTORIES, BASES)
def test_law_rules_are_narrow_and_load(history: list[Past], base: Policy) -> None:
    learned, _ = learned_beside(history, base)
    assert learned.policy().warnings == ()
    for one in learned.rules:
        policy_from_data({"allow": [{"rule": one.rule, "match": [one.match] if one.match else []}]})
    for line in (
        "rm -rf /",
        "curl https://a.example.org",
        "sudo ls",
        "python -c 1",
        "git push origin dev",
        "gh pr merge 1",
        "evil",
    ):
        assert not allows(learned.policy(), past(run(line)))
    for action in (
        write(".env"),
        write("a/.env"),
        write("top"),
        connect("c.example.org"),
        git("git push origin main"),
    ):
        assert not allows(learned.policy(), past(action))


@given(HISTORIES, BASES, st.randoms(use_true_random=False))
def test_law_the_same_answers_give_the_same_rules(
    history: list[Past], base: Policy, random: object
) -> None:
    shuffled = list(history)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    first = learn(history, base, now=NOW)
    assert learn(history, base, now=NOW) == first
    assert [one.rule for one in learn(shuffled, base, now=NOW).rules] == [
        one.rule for one in first.rules
    ]


@given(HISTORIES, BASES)
def test_law_what_was_learned_is_learned_once(history: list[Past], base: Policy) -> None:
    _, policy = learned_beside(history, base)
    assert learn(history, policy, now=NOW).rules == ()
