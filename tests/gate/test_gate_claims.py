"""What rules allow is asked for and claimed in one step: in the same two writes, and as safe as
one after the other."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from supervisor.core.actions import FileChange
from supervisor.core.approvals import Request, status
from supervisor.core.secrets.token_shapes import MARK
from supervisor.errors import RefusedError, StorageError
from supervisor.gate.gate import Grant, Refused
from tests.fakes.gated import World, granted, session

POLICY = """\
version: 1
allow: ["filesystem(free/**)"]
deny: ["filesystem(closed/**)"]
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    (tmp_path / "policy.yaml").write_text(POLICY)
    made = World(tmp_path)
    yield made
    made.close()


def change(path: str, after: str = "a") -> FileChange:
    return FileChange(operation="write", path=path, after=after * 64)


def claim(world: World, *actions: FileChange) -> tuple[list[Request], dict[str, Grant]]:
    return world.gate.ask_and_claim_all(
        actions, session_id="s1", reason="changed", origin="workspace"
    )


def test_only_what_rules_allow_is_claimed(world: World) -> None:
    actions = [change("free/a"), change("closed/b"), change("other/c"), change("free/d")]
    requests, grants = claim(world, *actions)
    assert [status(request) for request in requests] == ["used", "denied", "pending", "used"]
    assert list(grants) == [requests[0].id, requests[3].id]
    assert [status(world.gate.queue.get(request.id)) for request in requests] == [
        "used",
        "denied",
        "pending",
        "used",
    ]
    grants[requests[0].id].use(actions[0])
    with pytest.raises(RefusedError, match="used before"):
        grants[requests[0].id].use(actions[0])
    with pytest.raises(RefusedError, match="not the action that was judged"):
        grants[requests[3].id].use(actions[0])


def test_the_record_has_it_as_if_one_came_after_the_other(world: World) -> None:
    (first, second), grants = claim(world, change("free/a"), change("free/b"))
    world.gate.settle_all(
        [(grants[first.id], "done", {}), (grants[second.id], "failed", {"error": "no room"})]
    )
    told = [
        (record["event"], record["request"]) for record in world.events() if "request" in record
    ]
    assert told == [
        ("request_asked", first.id),
        ("request_asked", second.id),
        ("effect_started", first.id),
        ("effect_started", second.id),
        ("effect_settled", first.id),
        ("effect_settled", second.id),
    ]
    started = world.events("effect_started")[0]
    alone = world.ask(change("free/c"))
    granted(world.gate.claim(alone.id, "s1"))
    other = world.events("effect_started")[-1]
    assert started.keys() == other.keys()
    assert {key: started[key] for key in ("verdict", "rule", "by", "resumed")} == {
        key: other[key] for key in ("verdict", "rule", "by", "resumed")
    }
    assert world.queue.unsettled()[0].id == alone.id


def test_it_is_given_out_once(world: World) -> None:
    (request,), _ = claim(world, change("free/a"))
    assert isinstance(world.gate.claim(request.id, "s1"), Refused)
    assert world.queue.ready() == []
    # It is being carried out: nobody else finds it left over.
    assert world.gate.resume_all("s1", lambda one: True) == []


def test_a_crash_leaves_what_can_be_taken_up_again(world: World, tmp_path: Path) -> None:
    action = change("free/a")
    (request,), _ = claim(world, action)
    world.close()
    again = World(tmp_path)
    assert again.gate.resume_all("s1", lambda one: False) == []
    assert again.gate.resume_all("s2", lambda one: True) == []
    ((left, grant),) = again.gate.resume_all("s1", lambda one: True)
    assert left.id == request.id
    granted(grant).use(action)
    assert again.gate.resume_all("s1", lambda one: True) == []
    again.close()


@pytest.mark.parametrize(
    "where",
    ["supervisor.records.audit.Audit._append", "supervisor.records.approval_queue.store.add_all"],
)
def test_what_can_not_be_recorded_is_not_claimed(
    world: World, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def fails(*arguments: object) -> None:
        raise StorageError("the disk is full", "free it")

    monkeypatch.setattr(where, fails)
    requests, grants = claim(world, change("free/a"), change("free/b"))
    assert [(status(request), request.why, request.used_at) for request in requests] == [
        ("denied", "the disk is full", None)
    ] * 2
    assert grants == {}
    assert world.queue.unsettled() == []


def test_nothing_is_claimed_while_all_is_stopped_or_the_session_is_over(world: World) -> None:
    world.kill_switch.stop("a fire")
    assert claim(world, change("free/a"))[1] == {}
    world.kill_switch.resume()
    world.gate.rulings.close_session("s1")
    assert claim(world, change("free/a"))[1] == {}


def test_what_waits_for_the_same_path_is_superseded(world: World) -> None:
    older = world.ask(
        FileChange(operation="delete", path="free/a", before="b" * 64, hazards=("conflict",))
    )
    assert status(older) == "pending"
    (newer,), grants = claim(world, change("free/a"))
    assert list(grants) == [newer.id]
    assert world.gate.queue.get(older.id).superseded_by == newer.id


def test_a_secret_of_one_is_hidden_and_the_others_stay(world: World) -> None:
    actions = [change("free/hunter2hunter2"), change("free/plain")]
    requests, grants = claim(world, *actions)
    assert [request.action.path for request in requests] == [f"free/{MARK}", "free/plain"]  # type: ignore[union-attr]
    for request, action in zip(requests, actions, strict=True):
        grants[request.id].use(action)


def test_a_limit_of_uses_holds_among_those_that_are_asked_together(world: World) -> None:
    world.gate.rulings.open_session(
        session("s1", "version: 1\nallow: [{rule: filesystem(few/**), uses: 2, id: few}]\n")
    )
    paths: Sequence[str] = [f"few/{number}" for number in range(4)]
    requests, grants = claim(world, *map(change, paths))
    assert [status(request) for request in requests] == ["used", "used", "pending", "pending"]
    assert len(grants) == 2


def test_only_the_caller_says_that_a_change_was_held_up_and_an_answer_is_in_part(
    world: World,
) -> None:
    said = "could not be carried out before: x"
    by_agent = world.gate.ask(change("other/a"), session_id="s1", reason=said)
    (by_us,), _ = world.gate.ask_and_claim_all(
        [change("other/b")], session_id="s1", reason=said, origin="workspace", held_up=True
    )
    assert [(one.reason, one.held_up) for one in (by_agent, by_us)] == [(said, False), (said, True)]
    assert [one.problem for one in world.queue.changes_of("s1")] == [said]
    said = "in part, as I read it"
    whole = world.gate.resolve(by_agent.id, "approved", by="operator", reason=said)
    part = world.gate.resolve(by_us.id, "approved", by="operator", reason=said, in_part=True)
    assert [world.gate.queue.get(one.id).in_part for one in (whole, part)] == [False, True]
