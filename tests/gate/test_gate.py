"""The gate: every ask becomes a recorded verdict, only an allowed or approved one becomes a
Grant, once, for just that action."""

import asyncio
import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from supervisor.core.actions import Exec, FileChange, Git, Network, Proposal, fingerprint, title
from supervisor.core.approvals import Request, status
from supervisor.core.lab.past import read_history
from supervisor.errors import NotFoundError, RefusedError, StorageError, UserError
from supervisor.gate.audit_lines import record_refusal
from supervisor.gate.gate import Grant, Refused
from supervisor.records.approval_queue import MOST_PENDING_PER_SESSION
from supervisor.store import requests as store
from tests.fakes.gated import World, answer_all, connect, granted, refused, session


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


# -- verdicts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("allowed.example.org", "allowed"),
        ("denied.example.org", "denied"),
        ("other.example.net", "pending"),
        ("asked.example.org", "pending"),
    ],
)
def test_an_ask_becomes_what_the_rules_say_and_is_recorded(
    world: World, host: str, expected: str
) -> None:
    request = world.ask(connect(host))
    assert status(request) == expected
    (record,) = world.events("request_asked")
    assert (record["verdict"], record["rule"], record["why"]) == (
        request.decision,
        request.rule,
        request.why,
    )


def test_the_why_travels(world: World) -> None:
    request = world.ask(connect("denied.example.org"))
    answer = refused(world.gate.claim(request.id, "s1"))
    assert "it tracks people" in answer.why
    assert answer.why == request.why == world.events("request_asked")[0]["why"]
    assert answer.rule == request.rule == "network(denied.example.org)"


def test_a_written_ask_is_sticky_and_an_unmatched_one_is_not(world: World) -> None:
    assert world.ask(connect("asked.example.org")).sticky
    assert not world.ask(connect("other.example.net")).sticky


def test_a_proposal_is_always_asked(world: World) -> None:
    world.policy.write_text("version: 1\nmodes: {network: allow, filesystem: allow, git: allow}\n")
    assert status(world.ask(Proposal(effect="allow", rule="network(*.example.org)"))) == "pending"


# -- grants ---------------------------------------------------------------------------------------


def test_a_grant_is_given_once_and_used_once(world: World) -> None:
    action = connect("allowed.example.org")
    request = world.ask(action)
    grant = granted(world.gate.claim(request.id, "s1"))
    assert (
        "used" in refused(world.gate.claim(request.id, "s1")).why
        or status(world.gate.queue.get(request.id)) == "used"
    )
    grant.use(action)
    with pytest.raises(RefusedError, match="used before"):
        grant.use(action)


def test_a_grant_is_for_the_judged_action_only(world: World) -> None:
    request = world.ask(
        Network(
            operation="request",
            host="allowed.example.org",
            port=443,
            scheme="https",
            method="GET",
            path="/a",
        )
    )
    grant = granted(world.gate.claim(request.id, "s1"))
    with pytest.raises(RefusedError, match="not the action that was judged"):
        grant.use(
            Network(
                operation="request",
                host="allowed.example.org",
                port=443,
                scheme="https",
                method="GET",
                path="/b",
            )
        )
    with pytest.raises(RefusedError, match="used before"):  # a wrong try spends it
        grant.use(world.gate.queue.action_of(request))


def test_pending_denied_expired_and_foreign_requests_give_no_grant(world: World) -> None:
    pending = world.ask(connect("other.example.net"))
    refused(world.gate.claim(pending.id, "s1"))
    world.gate.resolve(pending.id, "approved", by="operator")
    refused(world.gate.claim(pending.id, "s2"))
    granted(world.gate.claim(pending.id, "s1"))
    closed = world.ask(connect("closed.example.net"))
    world.gate.answers.close("the session ended", closed.id)
    assert refused(world.gate.claim(closed.id, "s1")).why == "the session ended"
    with pytest.raises(NotFoundError):
        world.gate.claim("nonsense", "s1")


# -- answers --------------------------------------------------------------------------------------


def test_an_answer_is_given_once_and_says_by_whom(world: World) -> None:
    request = world.ask(connect("other.example.net"))
    answered = world.gate.resolve(
        request.id, "denied", by="operator (browser)", reason="use the mirror"
    )
    assert status(answered) == "denied"
    with pytest.raises(UserError, match="already denied"):
        world.gate.resolve(request.id, "approved", by="operator")
    (record,) = world.events("request_answered")
    assert (record["by"], record["reason"], record["answer"]) == (
        "operator (browser)",
        "use the mirror",
        "denied",
    )
    assert (
        refused(world.gate.claim(request.id, "s1")).why
        == "denied by operator (browser): use the mirror"
    )


def test_an_answer_to_another_request_than_was_shown_is_refused(world: World) -> None:
    request = world.ask(connect("other.example.net"))
    with pytest.raises(UserError, match="not the request that was shown"):
        world.gate.resolve(request.id, "approved", by="operator", shown_fingerprint="0" * 64)
    assert status(world.gate.queue.get(request.id)) == "pending"


def test_a_superseded_or_expired_request_can_not_be_approved(world: World) -> None:
    older = world.ask(Exec(command="x"))
    world.gate.answers.close("expired", older.id)
    with pytest.raises(UserError, match="already expired"):
        world.gate.resolve(older.id, "approved", by="operator")


def test_identical_asks_are_one_request_and_are_counted(world: World) -> None:
    first = world.ask(connect("other.example.net"))
    second = world.ask(connect("other.example.net"))
    assert (second.id, second.asked_times) == (first.id, 2)
    assert world.ask(connect("other.example.net"), session_id="s2").id != first.id


def test_what_a_person_denied_stays_denied_in_this_session(world: World) -> None:
    request = world.ask(connect("other.example.net"))
    world.gate.resolve(request.id, "denied", by="operator")
    again = world.ask(connect("other.example.net"))
    assert (again.id, status(again)) == (request.id, "denied")
    assert status(world.ask(connect("other.example.net"), session_id="s2")) == "pending"


def test_a_newer_change_of_the_same_file_supersedes_the_older(world: World) -> None:
    world.policy.write_text("version: 1\nmodes: {filesystem: ask}\n")
    older = world.ask(FileChange(operation="write", path="a.txt", after="1" * 64))
    newer = world.ask(FileChange(operation="write", path="a.txt", after="2" * 64))
    older = world.gate.queue.get(older.id)
    assert status(older) == "superseded"
    assert older.superseded_by == newer.id
    assert older.answer == "denied"
    assert [
        status(one)
        for one in (newer, world.ask(FileChange(operation="write", path="b.txt", after="1" * 64)))
    ] == [
        "pending",
        "pending",
    ]
    with pytest.raises(UserError, match="already superseded"):
        world.gate.resolve(older.id, "approved", by="operator")


async def test_a_new_rule_answers_the_waiting_requests_that_it_matches(world: World) -> None:
    asked = [
        world.ask(connect(host)) for host in ("a.example.net", "b.example.net", "c.example.com")
    ]
    rule_id = world.gate.rulings.policies.add_rule(
        "allow", "network(*.example.net)", why="", by="operator"
    )
    await world.gate.answers.rejudge(by=f"rule {rule_id}")
    assert [status(world.gate.queue.get(request.id)) for request in asked] == [
        "approved",
        "approved",
        "pending",
    ]
    assert {record["by"] for record in world.events("request_answered")} == {f"rule {rule_id}"}


def test_a_flood_is_denied_and_not_queued(world: World) -> None:
    for number in range(MOST_PENDING_PER_SESSION):
        assert status(world.ask(connect(f"h{number}.example.net"))) == "pending"
    assert status(world.ask(connect("one-more.example.net"))) == "denied"
    assert status(world.ask(connect("one-more.example.net"), session_id="s2")) == "pending"


def test_long_commands_fill_the_inbox_sooner(world: World) -> None:
    """All of each is shown: five hundred would hold the page for seconds."""
    waiting = 0
    while status(world.ask(Exec(command=f"echo {waiting} {'x' * 64_000}"))) == "pending":
        waiting += 1
    assert 10 < waiting < 50
    assert status(world.ask(Exec(command="ls"))) == "denied"
    assert status(world.ask(Exec(command="ls"), session_id="s2")) == "pending"


# -- waiting --------------------------------------------------------------------------------------


async def test_decide_waits_for_the_answer(world: World, tasks: asyncio.TaskGroup) -> None:
    deciding = tasks.create_task(
        world.gate.decide(connect("other.example.net"), session_id="s1", hold_s=30)
    )
    await asyncio.sleep(0)
    (request,) = world.queue.read(lambda c: store.pending(c))
    world.gate.resolve(request.id, "approved", by="operator")
    grant = granted(await deciding)
    grant.use(connect("other.example.net"))
    world.gate.settle(grant, "done", {"status": 200})
    assert world.gate.queue.get(request.id).outcome == {"ok": True, "status": 200}


async def test_a_hold_that_runs_out_leaves_the_request_in_the_inbox_and_a_later_try_finds_the_answer(  # noqa: E501
    world: World,
) -> None:
    first = refused(
        await world.gate.decide(connect("other.example.net"), session_id="s1", hold_s=0)
    )
    assert first.decision == "ask"
    assert first.request_id is not None
    assert status(world.gate.queue.get(first.request_id)) == "pending"
    world.gate.resolve(first.request_id, "approved", by="operator")
    granted(await world.gate.decide(connect("other.example.net"), session_id="s1", hold_s=0))
    again = refused(
        await world.gate.decide(connect("other.example.net"), session_id="s1", hold_s=0)
    )
    assert again.request_id != first.request_id  # one approval, one connection


async def test_ready_requests_are_carried_out_and_again_offered_after_a_restart(
    world: World, tmp_path: Path
) -> None:
    request = world.ask(Exec(command="make deploy"))
    world.gate.resolve(
        request.id, "approved", by="operator"
    )  # no handler yet: as if the supervisor died here
    world.close()
    reborn = World(tmp_path)
    carried: list[Request] = []

    async def carry_out(ready: Request) -> None:
        carried.append(ready)
        grant = granted(reborn.gate.claim(ready.id, ready.session_id))
        grant.use(reborn.gate.queue.action_of(ready))
        reborn.gate.settle(grant, "done", {})

    async with asyncio.TaskGroup() as tasks:
        reborn.gate.handlers.on_ready("exec", "agent_api", carry_out)
        reborn.gate.handlers.run_in(tasks)
        reborn.gate.answers.offer_ready()
    assert [one.id for one in carried] == [request.id]
    assert status(reborn.gate.queue.get(request.id)) == "used"
    async with asyncio.TaskGroup() as tasks:
        reborn.gate.handlers.run_in(tasks)
        reborn.gate.answers.offer_ready()
    assert len(carried) == 1
    reborn.close()


def test_a_deny_rule_that_comes_after_the_answer_holds(world: World) -> None:
    approved, allowed = (
        world.ask(connect("other.example.org")),
        world.ask(connect("allowed.example.org")),
    )
    world.gate.resolve(approved.id, "approved", by="operator")
    for host in ("other.example.org", "allowed.example.org"):
        world.gate.rulings.policies.add_rule("deny", f"network({host})", why="", by="operator")
    for request in (approved, allowed):
        assert "network(" in (refused(world.gate.claim(request.id, "s1")).rule or "")
        assert status(world.gate.queue.get(request.id)) == "expired"
    assert not world.events("effect_started")


async def test_an_approval_whose_grant_was_refused_is_offered_again_when_it_is_asked_again(
    world: World, tasks: asyncio.TaskGroup
) -> None:
    grants: list[Grant | Refused] = []
    done = asyncio.Event()

    async def carry_out(request: Request) -> None:
        grants.append(world.gate.claim(request.id, request.session_id))
        done.set()

    world.gate.handlers.on_ready("exec", "agent_api", carry_out)
    world.gate.handlers.run_in(tasks)
    request = world.ask(Exec(command="make"))
    world.kill_switch.stop("lunch")
    world.gate.resolve(request.id, "approved", by="operator")
    await done.wait()
    done.clear()
    world.kill_switch.resume()
    assert world.ask(Exec(command="make")).id == request.id
    await done.wait()
    refused(grants[0])
    granted(grants[1])


async def test_a_wait_begun_anew_after_a_restart_finds_the_answer(
    world: World, tmp_path: Path, tasks: asyncio.TaskGroup
) -> None:
    request = world.ask(connect("other.example.net"))
    world.close()
    reborn = World(tmp_path)
    waiting = tasks.create_task(reborn.gate.wait(request.id, 30))
    await asyncio.sleep(0)
    reborn.gate.resolve(request.id, "approved", by="operator")
    assert status(await waiting) == "approved"
    reborn.close()


async def test_a_loop_that_is_cancelled_before_it_begins_is_closed(world: World) -> None:
    async def follow() -> None:
        await asyncio.Event().wait()

    work = follow()
    async with asyncio.TaskGroup() as tasks:
        world.gate.handlers.run_in(tasks)
        world.gate.handlers.run(work, "following").cancel()
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED


async def test_a_channel_that_fails_is_said_and_takes_nobody_along(world: World) -> None:
    async def fails(_: Request) -> None:
        raise RuntimeError("no hunter2hunter2 here")

    request = world.ask(Exec(command="x"))
    async with asyncio.TaskGroup() as tasks:
        world.gate.handlers.on_ready("exec", "agent_api", fails)
        world.gate.handlers.run_in(tasks)
        world.gate.resolve(request.id, "approved", by="operator")
    outcome = world.gate.queue.get(request.id).outcome
    assert outcome == {"ok": False, "error": "carrying it out failed: no [redacted] here"}


# -- secrets --------------------------------------------------------------------------------------


def test_a_secret_in_an_action_is_stored_nowhere_yet_the_action_can_be_carried_out(
    world: World, tmp_path: Path
) -> None:
    action = Exec(command="curl -H 'x-key: hunter2hunter2' https://example.org")
    request = world.ask(action, reason="with hunter2hunter2")
    world.gate.resolve(request.id, "approved", by="operator", reason="hunter2hunter2 is fine")
    grant = granted(world.gate.claim(request.id, "s1"))
    grant.use(world.gate.queue.action_of(request))
    world.gate.settle(grant, "done", {"stdout": "hunter2hunter2"})
    world.close()
    for path in tmp_path.iterdir():
        assert b"hunter2hunter2" not in path.read_bytes(), path


def test_what_authenticates_in_an_address_is_stored_nowhere_yet_the_request_can_go_out(
    world: World, tmp_path: Path
) -> None:
    action = Network(
        operation="request",
        host="example.org",
        port=443,
        scheme="https",
        method="GET",
        path="/?access_token=of-ada&a=1",
    )
    request = world.ask(action)
    assert title(request.action) == "GET https://example.org/?access_token=[hidden]&a=1"
    world.gate.resolve(request.id, "approved", by="operator", shown_fingerprint=fingerprint(action))
    grant = granted(world.gate.claim(request.id, "s1"))
    grant.use(world.gate.queue.action_of(request))
    again = world.ask(action)
    world.gate.resolve(again.id, "approved", by="operator")
    with pytest.raises(
        RefusedError
    ):  # a grant is for the address as it is, not for what is shown of it
        granted(world.gate.claim(again.id, "s1")).use(again.action)
    record_refusal(world.gate.audit, action, "s1", "for once")
    world.gate.lease(action, "s1")
    world.close()
    log = (tmp_path / "audit.log").read_bytes().splitlines(keepends=True)
    assert len(log) > 3
    for path in tmp_path.iterdir():
        assert b"of-ada" not in path.read_bytes(), path
    assert not any(past.is_redacted for past in read_history(log, "audit.log")), (
        "rules judge it as before"
    )


def test_a_push_to_a_remote_that_the_repository_does_not_know_is_denied(world: World) -> None:
    world.policy.write_text("version: 1\nallow: [git(feature)]\n")
    known = msgspec.structs.replace(
        session("s1"), remotes=("origin", "https://git.example.org/team/app.git")
    )
    world.gate.rulings.open_session(known)
    pushed = [
        world.ask(Git(operation="push", remote=remote, refspecs=("feature",)))
        for remote in ("origin", "elsewhere")
    ]
    assert [status(request) for request in pushed] == ["allowed", "denied"]


# -- several at once ------------------------------------------------------------------------------


def changes(count: int) -> list[FileChange]:
    return [
        FileChange(operation="write", path=f"src/{number}.py", after="a" * 64)
        for number in range(count)
    ]


def test_several_asks_are_one_step_and_each_is_what_it_would_be_alone(world: World) -> None:
    denied, allowed, asked = (
        connect("denied.example.org"),
        connect("allowed.example.org"),
        connect("x.example.net"),
    )
    first = world.ask(asked)
    found = world.gate.ask_all([denied, allowed, asked, connect("y.example.net")], session_id="s1")
    assert [status(request) for request in found] == ["denied", "allowed", "pending", "pending"]
    assert found[2].id == first.id
    assert [record["request"] for record in world.events("request_asked")] == [
        first.id, found[0].id, found[1].id, found[3].id,
    ]  # fmt: skip


def test_several_asks_are_all_denied_where_one_can_not_be_stored(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = world.ask(changes(1)[0], origin="workspace")

    def fails(connection: object, requests: Sequence[Request]) -> None:
        raise StorageError("the disk is full", "free it")

    monkeypatch.setattr("supervisor.records.approval_queue.store.add_all", fails)
    newer = msgspec.structs.replace(changes(1)[0], after="b" * 64)
    found = world.gate.ask_all([newer, *changes(3)[1:]], session_id="s1", origin="workspace")
    assert [(status(request), request.why) for request in found] == [
        ("denied", "the disk is full")
    ] * 3
    assert [request.id for request in world.queue.pending()] == [older.id]
    assert isinstance(world.gate.claim(older.id, "s1"), Refused)


async def test_what_is_approved_together_is_carried_out_together(
    world: World, tasks: asyncio.TaskGroup
) -> None:
    offered: list[list[str]] = []

    async def one(request: Request) -> None:
        offered.append([request.id])

    async def several(requests: Sequence[Request]) -> None:
        offered.append([request.id for request in requests])

    world.gate.handlers.run_in(tasks)
    world.gate.handlers.on_ready("filesystem", "workspace", one)
    world.gate.handlers.on_ready_together("filesystem", "workspace", several)
    asked = world.gate.ask_all(changes(4), session_id="s1", origin="workspace")
    other = world.gate.ask_all(changes(1), session_id="s2", origin="workspace")
    world.gate.resolve(asked[0].id, "denied", by="operator")
    ids = [request.id for request in (*asked, *other)]
    answered = answer_all(world.gate, ids, "approved", by="operator", reason="formatted")
    assert [request.id for request in answered] == ids[1:]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert sorted(offered) == sorted([ids[1:4], ids[4:]])
    assert [record["request"] for record in world.events("request_answered")] == ids
    claimed = await world.gate.claim_together(ids[:4], "s1")
    assert [isinstance(one, Grant) for one in claimed] == [False, True, True, True]
    assert not any(isinstance(one, Grant) for one in await world.gate.claim_together(ids[:4], "s1"))
    world.gate.settle_all([(granted(one), "done", {}) for one in claimed[1:]])
    assert [record["request"] for record in world.events("effect_settled")] == ids[1:4]
    assert world.queue.unsettled() == []


def test_changed_files_wait_beside_what_else_waits(world: World) -> None:
    world.gate.ask_all(changes(MOST_PENDING_PER_SESSION + 1), session_id="s1", origin="workspace")
    assert len(world.queue.pending()) == MOST_PENDING_PER_SESSION + 1
    assert status(world.ask(connect("other.example.net"))) == "pending"
