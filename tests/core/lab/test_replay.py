"""The record under another policy: against a second, naive way to say the same, and by example."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.core.actions import Action, Effect, Exec, FileChange, Git, Network, Proposal, title
from supervisor.core.approvals import Answer
from supervisor.core.lab.past import Past
from supervisor.core.lab.replay import MOST_KNOWN, Again, ChangedVerdict, Replay, replay
from supervisor.core.policy.evaluate import evaluate
from supervisor.core.policy.policy_text import DENY_ALL, policy_from_data
from supervisor.core.policy.rules import Policy
from supervisor.core.secrets.token_shapes import MARK
from supervisor.core.verdicts import OWN_FILE, STRICTNESS
from supervisor.errors import PolicyError
from tests.examples import examples

BY = "operator (browser)"


def past(action: Action | str, verdict: Effect = "ask", **facts: Any) -> Past:
    made = Exec(command=action) if isinstance(action, str) else action
    return Past(
        **(
            {"at": 100.0, "session": "s", "action": made, "verdict": verdict, "why": "recorded"}
            | facts
        )
    )


def asked(action: Action | str, answer: Answer | None = None, **facts: Any) -> Past:
    return past(
        action, answer=answer, answered_by=BY if answer else None, **({"request": "r"} | facts)
    )


def under(history: list[Past], **policy: Any) -> Replay:
    return replay(iter(history), policy_from_data(policy))


def steps(found: Replay) -> list[tuple[str, str, Effect, Effect, int]]:
    return [
        (one.kind, one.action, one.before.verdict, one.after.verdict, one.count)
        for one in found.changes
    ]


def test_an_empty_record() -> None:
    found = under([])
    assert (found.judged, found.same, found.wider, found.tighter, found.changes) == (0, 0, 0, 0, ())


@pytest.mark.parametrize("before", ["allow", "ask", "deny"])
@pytest.mark.parametrize("after", ["allow", "ask", "deny"])
def test_wider_is_a_looser_verdict_and_tighter_a_stricter(before: Effect, after: Effect) -> None:
    found = under([past("make x", before)], **{after: ["exec(make x)"]})
    step = STRICTNESS[after] - STRICTNESS[before]
    assert (found.wider, found.same, found.tighter) == (step < 0, step == 0, step > 0)
    assert [change.kind for change in found.changes] == (
        [] if step == 0 else ["wider" if step < 0 else "tighter"]
    )


def test_changes_name_both_rules_and_are_told_once() -> None:
    history = [
        past("make x", "deny", rule="exec(make *)", session="a"),
        past("make x", "deny", rule="exec(make *)", session="a", at=101.0),
        past("make x", "deny", rule="exec(make *)", session="b"),
        past("make y", "deny", rule="exec(make *)"),
    ]
    found = under(history, allow=["exec(make *)"])
    first, second = found.changes
    assert (first.count, first.sessions, second.count) == (3, 2, 1)
    assert (first.before.rule, first.before.why) == ("exec(make *)", "recorded")
    assert (first.after.verdict, first.after.rule) == ("allow", "exec(make *)")


def test_the_same_verdict_by_another_rule_is_no_change() -> None:
    found = under([past("make x", "allow", rule="exec(make x)")], allow=["exec(make *)"])
    assert (found.same, found.changes) == (1, ())


def test_the_same_command_elsewhere_is_the_same_change() -> None:
    history = [past(Exec(command="ls", cwd=cwd)) for cwd in (".", "src")]
    assert steps(under(history, allow=["exec(ls)"])) == [("wider", "ls", "ask", "allow", 2)]


# -- what a person said ---------------------------------------------------------------------------


def test_what_goes_against_a_person_comes_first() -> None:
    history = [
        *[past("make often")] * 5,
        past("make longer", "deny"),
        asked("make evil", "denied"),
        asked("npm publish", "approved"),
        past("npm view x", "allow"),
    ]
    found = under(history, allow=["exec(make *)"], deny=["exec(npm *)"])
    assert [(change.action, change.contradicts) for change in found.changes] == [
        ("make evil", "allows what was denied"),
        ("make longer", ""),
        ("make often", ""),
        ("npm publish", "denies what was approved"),
        ("npm view x", ""),
    ]
    assert found.answers == {
        "approved": {"allow": 0, "ask": 0, "deny": 1},
        "denied": {"allow": 1, "ask": 0, "deny": 0},
    }


def test_answers_that_rules_gave_contradict_nobody() -> None:
    history = [
        past("make x", answer="denied", answered_by="rule ab, saved by operator (cli)", request="r")
    ]
    found = under(history, allow=["exec(make x)"])
    assert (found.wider, found.changes[0].denied, found.changes[0].contradicts) == (1, 0, "")
    assert sum(found.answers["denied"].values()) == 0


def test_what_is_asked_again_is_counted_though_nothing_changed() -> None:
    found = under(
        [asked("make x", "approved"), asked("make y", "approved")], allow=["exec(make x)"]
    )
    assert found.answers["approved"] == {"allow": 1, "ask": 1, "deny": 0}
    assert found.same == 1


# -- what isn't decided anew ----------------------------------------------------------------------


def test_what_can_not_be_judged_is_counted_apart_with_why() -> None:
    history = [
        past(f"curl {MARK}", is_redacted=True),
        past("make x", "deny", by_policy=False),
        past("make y", "deny", by_policy=False, is_redacted=True),
        past("make z", "allow"),
    ]
    found = under(history, allow=["exec(curl *)", "exec(make *)"])
    assert (found.not_decided, found.judged) == ({"redacted": 1, "not_by_policy": 2}, 4)
    assert (found.same, found.wider) == (1, 0)


def test_own_files_are_asked_at_the_least() -> None:
    change = past(
        FileChange(operation="write", path="policy.yaml", after="x"),
        why=OWN_FILE,
        by_policy=False,
        request="r",
    )
    assert under([change], allow=["filesystem(**)"]).same == 1
    assert under([change]).same == 1
    tighter = under([change], deny=["filesystem(policy.yaml)"])
    assert steps(tighter) == [("tighter", "write policy.yaml", "ask", "deny", 1)]


def test_a_proposal_is_asked_under_any_policy() -> None:
    assert (
        under(
            [asked(Proposal(effect="allow", rule="exec(cmake *)"), "denied")],
            allow=["exec(make *)"],
        ).same
        == 1
    )


# -- as it was then -------------------------------------------------------------------------------


def test_rules_are_in_force_at_the_time_of_the_record() -> None:
    entry = {
        "rule": "exec(make x)",
        "expires": "1970-01-01T00:01:40+00:00",
    }  # 100 s after the epoch
    history = [past("make x", at=99.9), past("make x", at=100.0), past("make x", at=99.0)]
    assert steps(under(history, allow=[entry])) == [("wider", "make x", "ask", "allow", 2)]


def test_uses_are_counted_in_order() -> None:
    history = [past("make x", session=str(number)) for number in range(5)]
    found = under(history, allow=[{"rule": "exec(make x)", "uses": 2}])
    assert (found.wider, found.same) == (2, 3)


def test_rules_of_one_session() -> None:
    history = [past("make x", session="a"), past("make x", session="b")] * 2
    found = under(history, allow=[{"rule": "exec(make x)", "session": "b"}])
    assert (found.wider, found.same, found.changes[0].sessions) == (2, 2, 1)


def test_remotes_are_those_that_the_session_knew() -> None:
    push = Git(operation="push", remote="upstream", refspecs=("main",))
    history = [past(push, remotes=("upstream",)), past(push), past(push, remotes=("origin",))]
    found = under(history, allow=["git(push upstream main)"])
    assert sorted(steps(found)) == [
        ("tighter", "git push upstream main", "ask", "deny", 2),
        ("wider", "git push upstream main", "ask", "allow", 1),
    ]


def test_rules_that_a_session_alone_had_hold_for_it_and_for_no_other() -> None:
    model = Network(operation="request", host="model.example.org", port=443, scheme="https",
    method="POST", path="/v1/messages")  # fmt: skip
    own = '{"version":1,"allow":[{"rule":"network(POST https://model.example.org/v1/messages)"}]}'
    history = [past(model, "allow", own_rules=own), past(model, "allow", session="other")]
    found = under(history)
    assert (found.same, found.tighter) == (1, 1)
    assert under(history, deny=["network(model.example.org)"]).tighter == 2


def test_own_rules_that_can_not_be_read_are_said() -> None:
    with pytest.raises(PolicyError, match="the own rules of session s"):
        under([past("make x", own_rules="allow: [nonsense")])


def test_no_policy_at_all_denies_everything() -> None:
    found = replay([past("make x", "allow"), past("make y", "deny")], DENY_ALL)
    assert (found.tighter, found.same) == (1, 1)


# -- memory and order -----------------------------------------------------------------------------


def test_what_is_remembered_is_bounded() -> None:
    again = Again(policy_from_data({"allow": ["exec(make 7)"]}))
    for number in range(MOST_KNOWN + 10):
        again.verdict(past(FileChange(operation="write", path=f"a/{number}")))
    assert len(again._known) <= MOST_KNOWN


def test_the_order_of_changes_does_not_depend_on_that_of_the_record() -> None:
    history = [past(f"make {number}", "deny") for number in range(20)]
    assert (
        under(history, allow=["exec(make *)"]).changes
        == under(history[::-1], allow=["exec(make *)"]).changes
    )


ENTRIES = (
    "exec(make *)", "exec(make a)", "exec(git *)", "filesystem(src/**)", "filesystem(*.md)",
    "network(*.example.org)",
    "network(a.example.org)", "git(push origin main)", "git(main)",
)  # fmt: skip
ACTIONS: tuple[Action, ...] = (
    *(Exec(command=text) for text in ("make a", "make b", "git log", "make a && git log",
    "make a; rm x", "make $(x)")),
    *(FileChange(operation="write", path=path) for path in ("src/a.py", "a.md", ".git/x",
    ".envrc")),
    *(Network(operation="connect", host=host, port=443) for host in ("a.example.org",
    "b.example.org", "example.org", "127.0.0.1")),
    Git(operation="push", remote="origin", refspecs=("main",)),
    Git(operation="push", remote="origin", refspecs=("main",), force=True),
)  # fmt: skip
EFFECTS: tuple[Effect, ...] = ("allow", "ask", "deny")


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    data: dict[str, list[Any]] = {}
    for entry in draw(st.lists(st.sampled_from(ENTRIES), max_size=6, unique=True)):
        effect = draw(st.sampled_from(EFFECTS))
        detail = draw(
            st.sampled_from(
                [{}, {}, {"expires": "1970-01-01T00:00:05+00:00"}, {"session": "s1"}, {"uses": 2}]
            )
        )
        data.setdefault(effect, []).append(
            {"rule": entry} | (detail if effect == "allow" or "uses" not in detail else {})
        )
    return policy_from_data(data)


PASTS = st.builds(
    lambda action, verdict, at, session, remotes, answer: past(
        action, verdict, at=float(at), session=session, remotes=remotes,
        answer=answer if verdict == "ask" else None, answered_by=BY,
        request="r" if verdict == "ask" else None,
    ),
    st.sampled_from(ACTIONS), st.sampled_from(EFFECTS), st.integers(0, 9), st.sampled_from(["s1",
    "s2"]),
    st.sampled_from([(), ("origin",), ("upstream",)]), st.sampled_from([None, "approved",
    "denied"]),
)  # fmt: skip


def naive(history: list[Past], policy: Policy) -> dict[tuple[Any, ...], int]:
    """Each judgement by itself, nothing remembered."""
    uses: dict[str, int] = {}
    found: dict[tuple[Any, ...], int] = {}
    for one in history:
        remotes = frozenset(one.remotes) if one.remotes else None
        verdict = evaluate(policy, one.action, now=one.at, session_id=one.session,
        configured_remotes=remotes, uses=dict(uses))  # fmt: skip
        if verdict.rule_id:
            uses[verdict.rule_id] = uses.get(verdict.rule_id, 0) + 1
        key = (title(one.action), one.verdict, verdict.decision, verdict.rule)
        found[key] = found.get(key, 0) + 1
    return {key: count for key, count in found.items() if key[1] != key[2]}


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(PASTS, max_size=25), policies())
def test_it_agrees_with_judging_each_alone(history: list[Past], policy: Policy) -> None:
    found = replay(history, policy)
    assert {(one.action, one.before.verdict, one.after.verdict,
    one.after.rule): one.count for one in found.changes} == naive(history, policy)  # fmt: skip
    assert found.judged == len(history)
    wider = [one for one in found.changes if one.kind == "wider"]
    assert sum(one.count for one in wider) == found.wider
    assert all(STRICTNESS[one.after.verdict] < STRICTNESS[one.before.verdict] for one in wider)
    assert list(found.changes[: len(wider)]) == wider


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(PASTS, max_size=15), policies())
def test_a_record_made_by_a_policy_is_the_same_under_it(
    history: list[Past], policy: Policy
) -> None:
    judge = Again(policy)
    made = []
    for one in history:
        verdict = judge.verdict(one)
        made.append(
            past(one.action, verdict.decision, at=one.at, session=one.session, remotes=one.remotes)
        )
    assert replay(made, policy).same == len(made)


def test_changes_say_what_they_contradict() -> None:
    change: ChangedVerdict = under(
        [asked("make x", "denied"), asked("make x", "approved")], allow=["exec(make x)"]
    ).changes[0]
    assert (change.approved, change.denied, change.contradicts) == (1, 1, "allows what was denied")
