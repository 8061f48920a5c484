"""What an agent asks again: a denial stands for a while, and a loop makes no more cards than a
person can look at."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.core.actions import Action, Exec, FileChange, Network
from supervisor.core.approvals import Answer, Request, status
from supervisor.core.policy.repeats import BACK_OFF_S
from supervisor.gate.gate import Gate, Grant, Refused
from supervisor.gate.repeats import MOST_ALIKE, MOST_CONNECTIONS
from tests.fakes.gated import World, connect


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def search(query: str) -> Network:
    return Network(
        operation="request",
        host="api.example.net",
        port=443,
        scheme="https",
        method="GET",
        path=f"/search?q={query}",
    )


def deny(world: World, action: Action) -> Request:
    return world.gate.resolve(world.ask(action).id, "denied", by="operator", reason="not now")


def remedy(gate: Gate, request: Request) -> str:
    return gate.repeats.remedy_of(request)


def test_a_denied_wish_is_denied_at_once_in_other_words_and_may_be_asked_again_later(
    world: World,
) -> None:
    denied = deny(world, search("1"))
    world.clock.advance(40)
    for again in (search("1"), search("2")):
        found = world.ask(again)
        assert (found.id, status(found), found.answer_reason) == (denied.id, "denied", "not now")
        assert (
            "`GET https://api.example.net/search?q=1` was denied 40s ago; ask again after"
            in found.remedy
        )
        assert "(in 20s)" in found.remedy
    assert world.queue.pending() == []
    # Each is on record as what it is, with the person's reason.
    paths = [one["action"]["path"] for one in world.events("verdict_given")]
    assert paths == ["/search?q=1", "/search?q=2"]
    assert {one["why"] for one in world.events("verdict_given")} == {"denied by operator: not now"}
    world.clock.advance(20)
    assert status(world.ask(search("2"))) == "pending"


def test_it_stands_longer_each_time_and_at_last_to_the_end_of_the_session(world: World) -> None:
    for back_off_s in BACK_OFF_S:
        denied = deny(world, connect("other.example.net"))
        world.clock.advance(back_off_s - 1)
        assert world.ask(connect("other.example.net")).id == denied.id
        world.clock.advance(1)
    deny(world, connect("other.example.net"))
    world.clock.advance(1e6)
    again = world.ask(connect("other.example.net"))
    assert status(again) == "denied"
    assert "isn't asked again in this session" in again.remedy
    assert status(world.ask(connect("other.example.net"), session_id="s2")) == "pending"


def test_the_agent_learns_when_to_ask_again_from_the_denial_itself(world: World) -> None:
    denied = deny(world, connect("other.example.net"))
    assert remedy(world.gate, denied).startswith("ask again after ")
    assert isinstance(refused := world.gate.claim(denied.id, "s1"), Refused)
    assert (refused.why, refused.remedy) == (
        "denied by operator: not now",
        remedy(world.gate, denied),
    )
    assert (
        remedy(world.gate, world.ask(connect("denied.example.org")))
        == "ask the operator for a rule, or do without it"
    )


async def test_what_is_held_is_told_too(world: World) -> None:
    deny(world, search("1"))
    refused = await world.gate.decide(search("2"), session_id="s1", origin="egress", hold_s=30)
    assert isinstance(refused, Refused)
    assert refused.why == "denied by operator: not now"
    assert "ask again after" in refused.remedy


def test_a_person_can_lift_it_and_that_survives_a_restart(world: World, tmp_path: Path) -> None:
    denied = deny(world, search("1"))
    world.clock.advance(BACK_OFF_S[0])
    deny(world, search("2"))
    assert status(world.ask(search("3"))) == "denied"
    lifted = world.gate.repeats.lift(denied, "by operator")
    assert {one.action.path for one in lifted if isinstance(one.action, Network)} == {
        "/search?q=1",
        "/search?q=2",
    }
    assert {status(one) for one in lifted} == {"denied"}
    assert remedy(world.gate, world.gate.queue.get(denied.id)) == ""
    world.close()
    again = World(tmp_path, world.policy)
    assert status(again.ask(search("3"))) == "pending"
    again.close()


def test_a_denial_survives_a_restart(world: World, tmp_path: Path) -> None:
    denied = deny(world, search("1"))
    world.close()
    again = World(tmp_path, world.policy)
    assert again.ask(search("2")).id == denied.id
    again.close()


def test_a_rule_that_allows_it_lifts_it(world: World) -> None:
    deny(world, search("1"))
    world.gate.rulings.policies.add_rule(
        "allow", "network(GET https://api.example.net/search)", why="", by="operator"
    )
    assert status(world.ask(search("1"))) == "allowed"


def test_a_changed_file_that_was_denied_stays_denied(world: World) -> None:
    change = FileChange(operation="write", path="a.txt", after="1" * 64)
    denied = deny(world, change)
    world.clock.advance(1e6)
    assert world.ask(change).id == denied.id
    assert (
        status(world.ask(FileChange(operation="write", path="a.txt", after="2" * 64))) == "pending"
    )


def test_what_was_superseded_or_expired_was_denied_by_nobody(world: World) -> None:
    request = world.ask(Exec(command="make a"))
    world.gate.answers.close("nobody needs it", request.id)
    assert status(world.ask(Exec(command="make  a"))) == "pending"


def test_the_person_sees_what_is_asked_in_vain(world: World) -> None:
    seen: list[str] = []
    world.gate.repeats.on_change = seen.append
    deny(world, search("1"))
    assert world.gate.repeats.quiet() == []
    for number in range(3):
        world.ask(search(str(number)))
    (quiet,) = world.gate.repeats.quiet()
    (denied,) = quiet.denied
    assert (denied.title, denied.asked_again) == ("GET https://api.example.net/search?q=1", 3)
    assert denied.until == world.clock.now() + BACK_OFF_S[0]
    assert seen == ["s1"] * 3
    world.gate.repeats.lift(world.gate.queue.get(denied.request_id), "by operator")
    assert world.gate.repeats.quiet() == []
    assert seen[3:]
    world.gate.rulings.close_session("s1")
    assert world.gate.repeats.quiet() == []


# -- too much at once -----------------------------------------------------------------------------


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(200):
        await asyncio.sleep(0)


def answer_all(world: World, answer: Answer, *about: str) -> None:
    for one in world.queue.pending():
        if isinstance(one.action, Network) and one.action.host in about:
            world.gate.resolve(one.id, answer, by="operator")


def hosts(world: World) -> list[str]:
    return [one.action.host for one in world.queue.pending("s1") if isinstance(one.action, Network)]


async def test_a_loop_over_many_hosts_makes_a_bounded_number_of_cards(
    world: World, tasks: asyncio.TaskGroup
) -> None:
    asking = [
        tasks.create_task(
            world.gate.decide(
                connect(f"h{n}.example.net"), session_id="s1", origin="egress", hold_s=30
            )
        )
        for n in range(MOST_CONNECTIONS + 5)
    ]
    await settle()
    assert len(hosts(world)) == MOST_CONNECTIONS
    (quiet,) = world.gate.repeats.quiet()
    assert quiet.held_count == 5
    assert f"connect h{MOST_CONNECTIONS}.example.net:443" in quiet.held
    # An answer makes room for one more, which was held and not refused.
    answer_all(world, "approved", "h0.example.net")
    await settle()
    assert isinstance(asking[0].result(), Grant)
    assert len(hosts(world)) == MOST_CONNECTIONS
    assert f"h{MOST_CONNECTIONS}.example.net" in hosts(world)
    # One that has a card joins it, however many wait; and another session has room of its own.
    joined = tasks.create_task(
        world.gate.decide(connect("h1.example.net"), session_id="s1", origin="egress", hold_s=30)
    )
    other = tasks.create_task(
        world.gate.decide(connect("x.example.net"), session_id="s2", origin="egress", hold_s=30)
    )
    await settle()
    assert max(one.asked_times for one in world.queue.pending("s1")) == 2
    assert len(world.queue.pending("s2")) == 1
    for _ in range(2):
        answer_all(world, "denied", *hosts(world), "x.example.net")
        await settle()
    assert {type(await one) for one in (*asking[1:], joined, other)} == {Refused}
    assert world.gate.repeats.quiet() == []


async def test_a_loop_over_one_path_makes_few_cards_and_a_rule_answers_all_of_it(
    world: World, tasks: asyncio.TaskGroup
) -> None:
    asking = [
        tasks.create_task(
            world.gate.decide(search(str(n)), session_id="s1", origin="egress", hold_s=30)
        )
        for n in range(MOST_ALIKE + 4)
    ]
    await settle()
    assert len(world.queue.pending("s1")) == MOST_ALIKE
    world.gate.rulings.policies.add_rule(
        "allow", "network(GET https://api.example.net/search)", why="", by="operator"
    )
    await world.gate.answers.rejudge(by="rule")
    assert {type(await one) for one in asking} == {Grant}


async def test_who_is_held_in_vain_is_told_so(world: World) -> None:
    for n in range(MOST_CONNECTIONS):
        world.ask(connect(f"h{n}.example.net"), origin="egress")
    refused = await world.gate.decide(
        connect("one-more.example.net"), session_id="s1", origin="egress", hold_s=0
    )
    assert isinstance(refused, Refused)
    assert (refused.decision, refused.request_id) == ("ask", None)
    assert f"{MOST_CONNECTIONS} requests of this session for the network wait" in refused.why
    allowed = await world.gate.decide(
        connect("allowed.example.org"), session_id="s1", origin="egress", hold_s=0
    )
    assert isinstance(allowed, Grant)


async def test_a_retry_loop_that_nobody_answers_stays_one_card(world: World) -> None:
    for _ in range(30):
        refused = await world.gate.decide(
            connect("other.example.net"), session_id="s1", origin="egress", hold_s=0
        )
        assert isinstance(refused, Refused)
    (card,) = world.queue.pending("s1")
    assert card.asked_times == 30


async def test_what_nobody_waits_for_any_more_makes_room_and_what_found_none_is_on_record(
    world: World,
) -> None:
    def asked(host: str) -> None:
        world.ask(connect(host), origin="egress", hold_s=30)

    for n in range(MOST_CONNECTIONS):
        asked(f"h{n}.example.net")
        world.clock.advance(1)
    refused = await world.gate.decide(
        connect("early.example.net"), session_id="s1", origin="egress", hold_s=0
    )
    assert isinstance(refused, Refused)
    (on_record,) = [
        one for one in world.events("verdict_given") if one["action"]["host"] == "early.example.net"
    ]
    assert (on_record["verdict"], on_record["why"]) == ("deny", refused.why)
    # The agent gave up on the first ten; the last of those it waits for still.
    world.clock.advance(20)
    asked("h9.example.net")
    for n in range(9):
        await world.gate.decide(
            connect(f"late{n}.example.net"), session_id="s1", origin="egress", hold_s=0
        )
    assert "h9.example.net" in hosts(world)
    assert not {f"h{n}.example.net" for n in range(9)} & set(hosts(world))
    assert {f"late{n}.example.net" for n in range(9)} <= set(hosts(world))
    assert len(hosts(world)) == MOST_CONNECTIONS
    assert all("needed the place" in one["why"] for one in world.events("request_closed"))


async def test_of_those_that_are_alike_too(world: World) -> None:
    for n in range(MOST_ALIKE + 2):
        await world.gate.decide(search(str(n)), session_id="s1", origin="egress", hold_s=0)
        world.clock.advance(1)
    assert [
        one.action.path for one in world.queue.pending("s1") if isinstance(one.action, Network)
    ] == [f"/search?q={n}" for n in range(2, MOST_ALIKE + 2)]


async def test_a_card_whose_clients_hung_up_says_so_at_once_and_waits_again_at_the_next_try(
    world: World, tasks: asyncio.TaskGroup
) -> None:
    def ask(host: str) -> asyncio.Task[Grant | Refused]:
        return tasks.create_task(
            world.gate.decide(connect(host), session_id="s1", origin="egress", hold_s=30)
        )

    asked_at = world.clock.now()
    first = ask("left.example.net")
    await settle()
    world.clock.advance(10)
    second, other = ask("left.example.net"), ask("other.example.net")
    await settle()
    card = world.queue.pending("s1")[0]
    assert card.hold_until == asked_at + 40
    second.cancel()
    await settle()
    assert world.gate.queue.get(card.id).hold_until == asked_at + 30  # as long as the other waits
    first.cancel()
    await settle()
    assert world.gate.queue.get(card.id).hold_until == world.clock.now()
    found = world.queue.pending_but([], "s1", limit=9, now=world.clock.now())
    assert [one.action.host for one in found if isinstance(one.action, Network)] == [
        "other.example.net",
        "left.example.net",
    ]
    third = ask("left.example.net")
    await settle()
    again = world.gate.queue.get(card.id)
    assert (again.hold_until, again.asked_times) == (world.clock.now() + 30, 3)
    answer_all(world, "approved", "left.example.net", "other.example.net")
    assert {type(await one) for one in (third, other)} == {Grant}


async def test_who_asks_and_hangs_up_in_a_loop_makes_no_more_cards_than_who_waits(
    world: World, tasks: asyncio.TaskGroup
) -> None:
    async def ask_and_hang_up(host: str) -> None:
        asking = tasks.create_task(
            world.gate.decide(connect(host), session_id="s1", origin="egress", hold_s=30)
        )
        await settle()
        asking.cancel()
        await settle()

    for n in range(2 * MOST_CONNECTIONS):
        await ask_and_hang_up(f"h{n}.example.net")
    await ask_and_hang_up("h0.example.net")
    assert len(hosts(world)) == len(world.events("request_asked")) == MOST_CONNECTIONS
    assert world.events("request_closed") == []
    world.clock.advance(30)
    await ask_and_hang_up("late.example.net")
    assert len(world.events("request_closed")) == 1
    assert "late.example.net" in hosts(world)
