"""The record read back: what real gates wrote, and what a log may look like otherwise."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.channels.proposals import ProposalBroker
from supervisor.core.actions import (
    Action,
    Exec,
    FileChange,
    Git,
    Network,
    Packages,
    Proposal,
)
from supervisor.core.lab.past import (
    Past,
    is_by_person,
    is_redacted,
    iterate,
    read_answers,
    read_history,
)
from supervisor.core.network.egress_wire import EgressRefused as RefusedByEgress
from supervisor.core.network.egress_wire import Question
from supervisor.core.secrets.token_shapes import MARK
from supervisor.gate.audit_lines import record_refusal
from supervisor.gate.gate import Gate, Refused
from supervisor.network.egress_questions import EgressQuestions
from supervisor.records import approval_queue
from supervisor.server.operator import decisions
from supervisor.server.operator.change_sets import ChangeSets
from tests.fakes.parts import SECRET, FakeParts

BY = "operator (browser)"


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[FakeParts]:
    made = FakeParts(tmp_path / "data")
    yield made
    made.close()


def history(parts: FakeParts) -> tuple[Past, ...]:
    lines = (parts.settings.data_dir / "audit.log").read_bytes().splitlines(keepends=True)
    whole = read_history(lines, "audit.log")
    assert (
        tuple(iterate(lines, "audit.log", read_answers(lines, "audit.log"))) == whole
    )  # the two ways are one
    return whole


def of(parts: FakeParts, action: Action) -> Past:
    (found,) = [past for past in history(parts) if past.action == action]
    return found


def run(command: str) -> Exec:
    return Exec(command=command)


def ask(parts: FakeParts, action: Action, session: str = "one") -> str:
    return parts.gate.ask(action, session_id=session).id


# -- what a gate records --------------------------------------------------------------------------


def test_what_rules_said_at_once(parts: FakeParts) -> None:
    for command in ("git status", "rm -rf /tmp/x"):
        parts.gate.lease(run(command), "one")
    allowed, denied = history(parts)
    assert (allowed.verdict, allowed.rule, allowed.was_asked, allowed.by_policy) == (
        "allow",
        "exec(git status)",
        False,
        True,
    )
    assert (denied.verdict, denied.rule, denied.outcome, denied.request) == (
        "deny",
        "exec(rm -rf *)",
        "deny",
        None,
    )
    assert allowed.session == denied.session == "one"
    assert allowed.at == parts.clock.now()
    assert "allowed by exec(git status)" in allowed.why


def test_requests_and_what_a_person_answered(parts: FakeParts) -> None:
    yes, no, open_one = (ask(parts, run(f"make {name}")) for name in ("yes", "no", "open"))
    parts.gate.resolve(yes, "approved", by=BY)
    parts.gate.resolve(no, "denied", by=BY, reason="no")
    approved, denied, waiting = history(parts)
    assert (approved.verdict, approved.answer, approved.outcome, approved.persons_answer) == (
        "ask",
        "approved",
        "allow",
        "approved",
    )
    assert (denied.answer, denied.outcome, denied.answered_by) == ("denied", "deny", BY)
    assert (waiting.answer, waiting.persons_answer, waiting.outcome, waiting.was_asked) == (
        None,
        None,
        "ask",
        True,
    )
    assert waiting.request == open_one


async def test_answers_in_bulk_are_a_persons(parts: FakeParts) -> None:
    ids = [ask(parts, run(f"make {number}")) for number in range(3)]
    shown = {one: parts.queue.get(one).fingerprint for one in ids}
    await decisions.answer_shown(
        parts, ChangeSets(parts), "approved", by=BY, shown=shown, category="exec"
    )
    assert [past.persons_answer for past in history(parts)] == ["approved"] * 3


async def test_answers_of_rules_that_changed_while_something_waited_are_nobodys(
    parts: FakeParts,
) -> None:
    """Each way in which rules answer what waits, by the code that does it: none may look like a
    person's answer."""
    first, second = ask(parts, run("npm test a")), ask(parts, run("npm test b"))
    mark = parts.queue.get(first).fingerprint
    await decisions.answer(
        parts, first, "approved", by=BY, fingerprint=mark, always="exec(npm test *)"
    )
    ask(parts, run("make removed"))
    rule_id, _ = await decisions.add_rule(parts, "ask", "exec(make removed)", why="", by=BY)
    parts.settings.policy_file.write_text("version: 1\nmodes: {exec: deny}\n")
    await decisions.remove_rule(parts, rule_id, by=BY)
    await parts.gate.answers.rejudge(by="a change of the policy file")  # what app does
    by_command = {
        past.action.command: past for past in history(parts) if isinstance(past.action, Exec)
    }
    assert by_command["npm test a"].persons_answer == "approved"
    ruled = by_command["npm test b"]
    assert (ruled.answer, ruled.persons_answer, ruled.request) == ("approved", None, second)
    mode = by_command["make removed"]
    assert (mode.answer, mode.persons_answer, mode.outcome) == ("denied", None, "deny")


async def test_answers_by_the_policy_file_and_by_proposals_are_nobodys(parts: FakeParts) -> None:
    waiting = ask(parts, run("make lint"))
    proposal = ask(parts, Proposal(effect="allow", rule="exec(make lint)"))
    parts.gate.resolve(proposal, "approved", by=BY)
    await ProposalBroker(parts.gate).carry_out(parts.queue.get(proposal))
    assert parts.queue.get(waiting).answer == "approved"
    past = of(parts, run("make lint"))
    assert (past.answer, past.persons_answer) == ("approved", None)
    proposed = of(parts, Proposal(effect="allow", rule="exec(make lint)"))
    assert (proposed.verdict, proposed.persons_answer, proposed.was_asked) == (
        "ask",
        "approved",
        True,
    )


@pytest.mark.parametrize("by", ["operator (browser)", "operator (cli)", "the test", "ada"])
def test_operators_are_persons(by: str) -> None:
    assert is_by_person(by)


@pytest.mark.parametrize(
    "by",
    [None, "", "gatehouse", "rule ab12, saved by operator (cli)", "a change of the policy file"],
)
def test_whoever_else_answered_is_no_person(by: str | None) -> None:
    assert not is_by_person(by)


def test_what_was_superseded_or_closed_has_no_answer(parts: FakeParts) -> None:
    older = FileChange(operation="write", path="a", after="1")
    newer = FileChange(operation="write", path="a", after="2")
    ask(parts, older)
    ask(parts, newer)
    closed = ask(parts, run("make late"))
    parts.gate.answers.close("the agent has exited", closed)
    assert [(past.answer, past.outcome) for past in history(parts)] == [(None, "ask")] * 3


def test_the_same_ask_twice_is_one_and_after_its_use_another(parts: FakeParts) -> None:
    first = ask(parts, run("make x"))
    assert ask(parts, run("make x")) == first
    parts.gate.resolve(first, "approved", by=BY)
    assert not isinstance(parts.gate.claim(first, "one"), Refused)
    second = ask(parts, run("make x"))
    assert second != first
    assert [(past.request, past.answer) for past in history(parts)] == [
        (first, "approved"),
        (second, None),
    ]


def test_a_session_is_known_by_its_beginning(parts: FakeParts) -> None:
    parts.audit.record(
        "session_started",
        session="s9",
        workspace="/home/me/x",
        remotes=["origin"],
        own_rules="version: 1\n",
        new_fact=1,
    )
    parts.audit.record("verdict_given", session="s9", category="exec", action={"category": "exec",
    "command": "x"}, fingerprint="", verdict="ask", rule=None, why="")  # fmt: skip
    (past,) = history(parts)
    assert (past.workspace, past.remotes, past.own_rules) == (
        "/home/me/x",
        ("origin",),
        "version: 1\n",
    )


def test_every_kind_of_action_comes_back(parts: FakeParts) -> None:
    actions: list[Action] = [
        run("make all"),
        FileChange(operation="write", path="src/a.py", after="x", hazards=("conflict",)),
        Network(operation="request", host="a.example.org", port=443, scheme="https", method="GET",
        path="/x", resolved=("192.0.2.1",)),
        Git(operation="push", remote="origin", refspecs=("main",)),
        Packages(manager="npm", operation="install", names=("left-pad",)),
        Proposal(effect="allow", rule="exec(make *)"),
    ]  # fmt: skip
    for action in actions:
        ask(parts, action)
    assert [past.action for past in history(parts)] == actions


# -- what no policy decided -----------------------------------------------------------------------


def stopped(parts: FakeParts) -> None:
    decisions.stop_all(parts, by=BY, reason="lunch\nbreak")
    parts.gate.lease(run("git status"), "one")
    ask(parts, run("git status"))


def ended(parts: FakeParts) -> None:
    parts.gate.lease(run("git status"), "no such session")


def nothing_in_force(parts: FakeParts) -> None:
    (parts.settings.data_dir / "policy.yaml").write_text("nonsense: [")
    again = FakeParts(parts.settings.data_dir)
    again.gate.lease(run("git status"), "one")
    again.close()


def full(parts: FakeParts) -> None:
    for number in range(4):
        ask(parts, run(f"make {number}"))


def failing(parts: FakeParts) -> None:
    parts.gate.rulings.policies.for_session = None  # type: ignore[assignment, method-assign]
    parts.gate.lease(run("git status"), "one")


def refused_by_egress(parts: FakeParts) -> None:
    action = Network(operation="connect", host="a.example.org", port=443, sni="b.example.org")
    EgressQuestions(parts.gate, 1, {}).refused(
        RefusedByEgress(session_id="one", action=action, why="TLS names another")
    )


def refused_by_the_workspace(parts: FakeParts) -> None:
    record_refusal(
        parts.gate.audit,
        FileChange(operation="write", path=".git/config"),
        "one",
        "git's own folder",
    )


def own_listener(parts: FakeParts) -> None:
    parts.gate.rulings.forbid_endpoints(frozenset({("127.0.0.1", 41234)}))
    parts.gate.lease(Network(operation="connect", host="127.0.0.1", port=41234), "one")


@pytest.mark.parametrize(
    "refuse",
    [
        stopped,
        ended,
        nothing_in_force,
        full,
        failing,
        refused_by_egress,
        refused_by_the_workspace,
        own_listener,
    ],
)
def test_refusals_of_gatehouse_itself_are_told_from_those_of_a_policy(
    parts: FakeParts, refuse: Callable[[FakeParts], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approval_queue, "MOST_PENDING_PER_SESSION", 3)
    refuse(parts)
    refused = [past for past in history(parts) if past.verdict == "deny"]
    assert refused
    assert [past.by_policy for past in refused] == [False] * len(refused), refused


def test_a_change_of_own_files_is_an_ask_of_no_policy(parts: FakeParts, tmp_path: Path) -> None:
    gate = Gate(
        policies=parts.policies, queue=parts.queue, audit=parts.audit,
        kill_switch=parts.kill_switch, clock=parts.clock,
        redactor=parts.redactor, own_files=[Path("/tmp/project/policy.yaml")],
    )  # fmt: skip
    gate.rulings.open_session(parts.sessions.get("one"))
    gate.ask(FileChange(operation="write", path="policy.yaml", after="x"), session_id="one")
    (past,) = history(parts)
    assert (past.verdict, past.by_policy, past.was_asked) == ("ask", False, True)


@pytest.mark.parametrize(
    "action",
    [
        run("rm -rf build"),
        run("echo 'the session has ended'"),
        Network(operation="connect", host="127.0.0.1", port=1),
        Network(operation="connect", host="the session has ended", port=1),
        FileChange(operation="write", path="../everything is stopped: x"),
        FileChange(operation="write", path=".git/x"),
        Git(operation="push", remote="elsewhere", refspecs=("main",)),
    ],
)
def test_an_agent_can_not_make_a_verdict_look_like_gatehouse_own(
    parts: FakeParts, action: Action
) -> None:
    parts.gate.lease(action, "one")
    assert [past.by_policy for past in history(parts)] == [True]


# -- secrets --------------------------------------------------------------------------------------


def test_an_action_with_a_secret_is_marked(parts: FakeParts) -> None:
    secret, plain = run(f"curl -H 'token: {SECRET}' https://a.example.org"), run(f"echo {MARK}")
    ask(parts, secret)
    parts.gate.lease(secret, "one")
    ask(parts, plain)
    parts.gate.lease(run("git status"), "one")
    asked, judged, typed, clean = history(parts)
    assert asked.is_redacted
    assert judged.is_redacted
    assert SECRET not in asked.action.command  # type: ignore[union-attr]
    assert not typed.is_redacted  # an agent can't hide what it asks by writing the mark itself
    assert not clean.is_redacted


def test_an_action_whose_fingerprint_is_of_another_version_is_not_taken_for_redacted() -> None:
    assert not is_redacted(run("make x"), "of a version with further fields")
    assert is_redacted(run(f"make {MARK}"), "of something else")
    assert is_redacted(Packages(manager="npm", operation="install", names=("x", MARK)), "")


async def test_what_egress_asks_about_one_connection(parts: FakeParts) -> None:
    """A request in a connection that a person approved is judged, and has no card of its own."""
    await decisions.add_rule(parts, "ask", "network(*.example.org)", why="", by=BY)
    questions = EgressQuestions(parts.gate, 0, {})
    inside = Network(operation="request", host="a.example.org", port=443, scheme="https",
    method="GET", path="/", resolved=("192.0.2.1",))  # fmt: skip
    question = Question(
        question_id=1, session_id="one", connection_id="c", action=inside, in_tunnel=True
    )
    await questions.answer(question)
    verdict, card = history(parts)
    assert (verdict.verdict, verdict.was_asked) == ("ask", False)
    assert (card.verdict, card.was_asked) == ("ask", True)


def test_a_log_goes_on_after_a_crash(parts: FakeParts, tmp_path: Path) -> None:
    """The next supervisor drops a torn line and takes up what waits: the same request, answered
    then."""
    waiting = ask(parts, run("make slow"))
    parts.gate.resolve(ask(parts, run("make done")), "approved", by=BY)
    with (parts.settings.data_dir / "audit.log").open("ab") as file:
        file.write(b'{"seq":99,"at":1,"event":"verdict_gi')
    assert [past.answer for past in history(parts)] == [None, "approved"]
    again = FakeParts(parts.settings.data_dir)
    again.gate.resolve(waiting, "denied", by=BY)
    again.audit.record("session_found_dead", session="one", killed=False)
    again.audit.record("effect_unknown", request=waiting, session="one")
    assert [past.persons_answer for past in history(again)] == ["denied", "approved"]
    assert not isinstance(again.gate.claim(history(again)[1].request or "", "one"), Refused)
    assert len(history(again)) == 2
    again.close()
