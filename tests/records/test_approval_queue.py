"""Whoever waits for an answer is woken by it, each of them, and by nothing else."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.gated import World, answer_all, connect


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


async def test_all_who_wait_for_a_request_are_woken_by_its_answer_and_no_others(
    world: World, tasks: asyncio.TaskGroup
) -> None:
    asked, other = (world.ask(connect(host)) for host in ("a.example.org", "b.example.org"))
    waiting = [tasks.create_task(world.queue.next_change(asked.id, 60)) for _ in range(2)]
    elsewhere = tasks.create_task(world.queue.next_change(other.id, 60))
    await asyncio.sleep(0)
    answer_all(world.gate, [asked.id], "approve", by="tester")
    assert await asyncio.gather(*waiting) == [True, True]
    assert not elsewhere.done()
    answer_all(world.gate, [other.id], "deny", by="tester")
    assert await elsewhere


async def test_who_waits_in_vain_is_told_and_may_wait_again(world: World) -> None:
    asked = world.ask(connect("a.example.org"))
    for _ in range(2):
        assert not await world.queue.next_change(asked.id, 0.01)
