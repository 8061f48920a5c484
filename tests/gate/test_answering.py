"""Many answers at once: others are served meanwhile, nothing is answered twice or by half, and
what belongs together stays so."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from supervisor.base.event_loop import slices
from supervisor.core.actions import Action, Exec, FileChange, content_hash
from supervisor.core.approvals import Request, status
from supervisor.errors import ChangedError
from supervisor.gate.answering import IN_TURN, PREPARED
from supervisor.records.audit import Audit, Encoded, Event
from supervisor.server.app import build_agent_app, build_operator_app
from supervisor.server.common.listening import listen
from supervisor.server.common.serve import serve_agent, serve_operator
from tests.fakes.gated import World, connect
from tests.fakes.own_process import KILLED, exit_code
from tests.fakes.parts import FakeParts

MANY = 20 * IN_TURN


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def hosts(number: int) -> list[Action]:
    return [connect(f"h{one}.example.net") for one in range(number)]


def changes(number: int) -> list[Action]:
    return [
        FileChange(operation="write", path=f"src/{one}.py", after=content_hash(b"%d" % one))
        for one in range(number)
    ]


def ask_all(world: World, actions: Sequence[Action], **more: str) -> list[str]:
    return [one.id for one in world.gate.ask_all(actions, session_id="s1", **more)]  # type: ignore[arg-type]


def states(world: World, ids: Sequence[str]) -> list[str]:
    return [status(one) for one in world.gate.queue.get_all(ids)]


async def served_during(world: World, work: Awaitable[object], ids: Sequence[str]) -> list[int]:
    """How many of these waited still, each time that another session was given a verdict."""
    task, waited = asyncio.ensure_future(work), []
    while not task.done():
        assert status(world.ask(connect("allowed.example.org"), "s2")) == "allowed"
        waited.append(states(world, ids).count("pending"))
        await asyncio.sleep(0)
    await task
    return waited


async def test_parts_of_a_list_come_in_order_with_a_turn_for_others_between() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    parts = [list(part) async for part in slices(range(7), 3)]
    counting.cancel()
    assert parts == [[0, 1, 2], [3, 4, 5], [6]]
    assert turns == 2


async def test_another_session_is_served_after_each_part_of_a_bulk_answer(world: World) -> None:
    ids = ask_all(world, hosts(MANY))
    waited = await served_during(
        world, world.gate.resolve_in_turns(ids, "denied", by="operator"), ids
    )
    assert set(waited) >= set(range(IN_TURN, MANY, IN_TURN))
    assert states(world, ids) == ["denied"] * MANY
    assert sorted(one["request"] for one in world.events("request_answered")) == sorted(ids)


async def test_another_session_is_served_while_a_new_rule_answers_what_waits(world: World) -> None:
    ids = ask_all(world, hosts(MANY))
    rule_id = world.gate.rulings.policies.add_rule(
        "deny", "network(*.example.net)", why="", by="operator"
    )
    waited = await served_during(world, world.gate.answers.rejudge(f"rule {rule_id}"), ids)
    assert set(waited) >= set(range(IN_TURN, MANY, IN_TURN))
    assert states(world, ids) == ["denied"] * MANY


async def test_another_session_is_served_while_a_rule_that_answers_nothing_is_tried(
    world: World,
) -> None:
    ids = ask_all(world, hosts(MANY))
    waited = await served_during(world, world.gate.answers.rejudge("a rule"), ids)
    assert waited.count(MANY) >= MANY // IN_TURN


async def test_what_ends_midway_left_whole_parts_and_the_rest_is_answered_once(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    ids = ask_all(world, hosts(MANY))
    task = asyncio.ensure_future(world.gate.resolve_in_turns(ids, "approved", by="operator"))
    while states(world, ids).count("approved") < 3 * IN_TURN:
        await asyncio.sleep(0)
    task.cancel()  # as if the supervisor died here
    with contextlib.suppress(asyncio.CancelledError):
        await task
    world.close()
    reborn = World(tmp_path)
    first = [
        one for one, found in zip(ids, states(reborn, ids), strict=True) if found == "approved"
    ]
    assert first == ids[: len(first)]
    assert 0 < len(first) < MANY
    assert len(first) % IN_TURN == 0
    assert [one["request"] for one in reborn.events("request_answered")] == first
    answered = await reborn.gate.resolve_in_turns(ids, "denied", by="operator")
    assert [one.id for one in answered] == ids[len(first) :]
    assert sorted(one["request"] for one in reborn.events("request_answered")) == sorted(ids)
    reborn.close()


# -- as one ---------------------------------------------------------------------------------------


class Offered:
    """A channel of changed files that notes what is offered to it at once."""

    def __init__(self, world: World, tasks: asyncio.TaskGroup) -> None:
        self.groups: list[list[str]] = []
        world.gate.handlers.run_in(tasks)
        world.gate.handlers.on_ready("filesystem", "workspace", self._one)
        world.gate.handlers.on_ready_together("filesystem", "workspace", self._several)

    async def _one(self, request: Request) -> None:
        self.groups.append([request.id])

    async def _several(self, requests: Sequence[Request]) -> None:
        self.groups.append([one.id for one in requests])


@pytest.fixture
async def tasks() -> AsyncIterator[asyncio.TaskGroup]:
    async with asyncio.TaskGroup() as made:
        yield made


def as_one(world: World, ids: Sequence[str]) -> Awaitable[object]:
    return world.gate.resolve_as_one(ids, "approved", by="operator")


def by_a_rule(world: World, ids: Sequence[str]) -> Awaitable[object]:
    world.gate.rulings.policies.add_rule("allow", "filesystem(src/*)", why="", by="operator")
    return world.gate.answers.rejudge("the rule")


@pytest.mark.parametrize("answer", [as_one, by_a_rule])
async def test_changed_files_become_approved_all_at_one_moment_and_are_offered_together(
    world: World,
    tasks: asyncio.TaskGroup,
    answer: Callable[[World, Sequence[str]], Awaitable[object]],
) -> None:
    ids = ask_all(world, changes(5 * PREPARED), origin="workspace")
    offered = Offered(world, tasks)
    waited = await served_during(world, answer(world, ids), ids)
    assert set(waited) == {0, len(ids)}  # never some of them
    assert len(waited) > 5  # and others were served before and after
    await asyncio.sleep(0)
    (together,) = offered.groups
    assert sorted(together) == sorted(ids)
    assert sorted(one["request"] for one in world.events("request_answered")) == sorted(ids)


async def test_as_one_answers_none_where_one_was_answered_meanwhile(
    world: World, tasks: asyncio.TaskGroup
) -> None:
    ids = ask_all(world, changes(5 * PREPARED), origin="workspace")
    offered = Offered(world, tasks)
    task = asyncio.ensure_future(world.gate.resolve_as_one(ids, "approved", by="operator"))
    await asyncio.sleep(0)
    world.gate.resolve(ids[0], "denied", by="another tab")
    with pytest.raises(ChangedError):
        await task
    assert states(world, ids) == ["denied"] + ["pending"] * (len(ids) - 1)
    assert offered.groups == []


async def test_what_is_sent_back_beside_an_approval_is_one_answer_with_it(
    world: World, tasks: asyncio.TaskGroup
) -> None:
    ids = ask_all(world, changes(4), origin="workspace")
    offered = Offered(world, tasks)
    world.gate.resolve(ids[3], "denied", by="another tab")
    with pytest.raises(ChangedError):
        await world.gate.resolve_as_one(
            ids[:2], "approved", by="operator", sent_back={ids[2]: "why?", ids[3]: "why?"}
        )
    assert states(world, ids) == ["pending"] * 3 + ["denied"]
    assert offered.groups == []
    await world.gate.resolve_as_one(
        ids[:2], "approved", by="operator", sent_back={ids[2]: "rename this"}
    )
    assert states(world, ids[2:]) == ["denied", "denied"]
    assert world.gate.queue.get(ids[2]).answer_reason == "rename this"
    await asyncio.sleep(0)
    (together,) = offered.groups
    assert sorted(together) == sorted(ids[:2])


@pytest.mark.parametrize("turns", [1, 3, 6, 8])
async def test_as_one_that_ends_midway_left_all_or_nothing(tmp_path: Path, turns: int) -> None:
    world = World(tmp_path)
    ids = ask_all(world, changes(5 * PREPARED), origin="workspace")
    task = asyncio.ensure_future(world.gate.resolve_as_one(ids, "approved", by="operator"))
    for _ in range(turns):
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    world.close()
    reborn = World(tmp_path)
    found = set(states(reborn, ids))
    assert found == ({"pending"} if turns < 5 else {"approved"})
    assert len(reborn.events("request_answered")) in (0, len(ids))
    reborn.close()


async def test_thousands_are_claimed_in_one_transaction_with_turns_for_others_before(
    world: World,
) -> None:
    ids = ask_all(world, changes(5 * PREPARED), origin="workspace")
    await world.gate.resolve_as_one(ids, "approved", by="operator")
    task = asyncio.ensure_future(world.gate.claim_together(ids, "s1"))
    used = []
    while not task.done():
        used.append(states(world, ids).count("used"))
        await asyncio.sleep(0)
    assert set(used) == {0}
    assert len(used) >= 5
    assert states(world, ids) == ["used"] * len(ids)
    assert [one["request"] for one in world.events("effect_started")] == ids


async def test_a_denial_that_comes_while_thousands_are_claimed_counts(world: World) -> None:
    ids = ask_all(world, changes(5 * PREPARED), origin="workspace")
    await world.gate.resolve_as_one(ids, "approved", by="operator")
    task = asyncio.ensure_future(world.gate.claim_together(ids, "s1"))
    await asyncio.sleep(0)
    world.gate.rulings.policies.add_rule("deny", "filesystem(src/0.py)", why="", by="operator")
    claimed = await task
    assert [one.why for one in claimed if "denied" in one.why] == [claimed[0].why]
    assert status(world.gate.queue.get(ids[0])) == "expired"


# -- over HTTP ------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def doors(
    folder: Path,
) -> AsyncIterator[tuple[FakeParts, httpx.AsyncClient, httpx.AsyncClient]]:
    """The operator's client, and the one of session two's agent, each on a real socket."""
    parts = FakeParts(folder)
    sock = listen(0)
    auth = parts.new_auth(sock.getsockname()[1])
    operator = serve_operator(build_operator_app(parts, auth), sock)
    agent = serve_agent(build_agent_app(parts, "two"), listen(0))
    async with parts.running(), asyncio.TaskGroup() as group:
        for serving in (operator, agent):
            group.create_task(serving.run())
            await serving.started.wait()
        bearer = {"authorization": f"Bearer {auth.cli_token}"}
        theirs = {"authorization": "Bearer token-of-two"}
        async with (
            httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{operator.port}", headers=bearer, timeout=90
            ) as cli,
            httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{agent.port}", headers=theirs, timeout=90
            ) as two,
        ):
            yield parts, cli, two
        for serving in (operator, agent):
            await serving.stop()
    parts.close()


@pytest.mark.parametrize("how", ["bulk", "rule"])
async def test_another_sessions_request_is_decided_while_the_answers_are_under_way(
    tmp_path: Path, how: str
) -> None:
    async with doors(tmp_path) as (parts, cli, two):
        asked = parts.gate.ask_all(
            [Exec(command=f"make {n}") for n in range(400)], session_id="one"
        )
        if how == "bulk":
            body = {
                "category": "exec",
                "answer": "denied",
                "shown": {one.id: one.fingerprint for one in asked},
            }
            answering = asyncio.ensure_future(cli.post("/api/requests/bulk", json=body))
        else:
            rule = {"effect": "deny", "rule": "exec(make *)"}
            answering = asyncio.ensure_future(cli.post("/api/rules", json=rule))
        waiting_then = []
        while not answering.done():
            answer = await two.post("/v1/exec", json={"command": "git status"})
            assert answer.json()["allowed"] is True
            waiting_then.append(len(parts.queue.pending("one")))
        done = await answering
        assert done.status_code == 200, done.text
        assert [one for one in waiting_then if 0 < one < len(asked)], waiting_then
        assert not parts.queue.pending("one")


class DiesAtTheLine(Audit):
    """Ends its process where a line of this event would be written: the database has the fact."""

    event = ""

    def record_all(self, events: Sequence[tuple[Event, Mapping[str, Any] | Encoded]]) -> None:
        if any(event == self.event for event, _ in events):
            os.kill(os.getpid(), signal.SIGKILL)
        super().record_all(events)


def answer_and_die(folder: Path, event: str) -> None:
    DiesAtTheLine.event = event
    world = World(folder, audit=DiesAtTheLine)
    first, second = world.ask(connect("a.test")), world.ask(connect("b.test"))
    world.gate.resolve(first.id, "approved", by="Ada", reason="it is ours")
    world.gate.answers.close("the agent has exited", second.id)


@pytest.mark.many
@pytest.mark.parametrize(
    ("event", "said"),
    [
        ("request_answered", {"answer": "approved", "by": "Ada", "reason": "it is ours"}),
        ("request_closed", {"why": "the agent has exited"}),
    ],
)
def test_what_a_kill_kept_out_of_the_record_is_there_after_the_next_start(
    tmp_path: Path, event: str, said: dict[str, str]
) -> None:
    assert exit_code(answer_and_die, tmp_path, event) == KILLED
    for _ in range(2):
        world = World(tmp_path)
        try:
            world.audit.record("supervisor_started", pid=1, port=1)
            world.gate.answers.complete_record()
            (line,) = world.events(event)
            assert said.items() <= line.items()
            (request,) = [one for one in world.queue.newest() if one.id == line["request"]]
            at = request.answered_at if event == "request_answered" else request.closed_at
            assert at is not None
            assert line["answered_at" if event == "request_answered" else "closed_at"] == at
        finally:
            world.close()
