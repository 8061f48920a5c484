"""Edits that the agent asks for through its API compose: one request, whatever waits, is under
way, or was saved by the person meanwhile."""

import asyncio

import pytest

from supervisor.core.actions import content_hash
from supervisor.core.approvals import explanation, status
from supervisor.errors import UserError
from supervisor.workspace.apply.agent_changes import CONTAINED
from supervisor.workspace.disk.blobs import SMALL_BYTES
from tests.workspace.apply.test_agent_changes import APP, FREE, TEXT, change, done
from tests.workspace.conftest import Desk


async def test_edits_of_one_file_compose_into_one_request(desk: Desk) -> None:
    async with desk.running():
        first = await desk.channel.edit(APP, "two = 2", "two = 22", False, "a")
        second = await desk.channel.edit(APP, "two = 22\nthree", "two = 22\nTHREE", False, "b")
        assert status(desk.gate.queue.get(first.id)) == "superseded"
        assert explanation(desk.gate.queue.get(first.id)) == CONTAINED
        assert change(second).before == content_hash(TEXT.encode())
        assert second.reason == "2 edits of this file: b; a"
        card = await desk.channel.card(second)
        assert (card.diff.added, card.diff.removed) == (2, 2)
        await done(desk, second)
        for side in (desk.host, desk.copy):
            assert (side / APP).read_text() == "one = 1\ntwo = 22\nTHREE = 3\n"
        third = await desk.channel.edit(APP, "THREE", "three", False, "c")
        assert third.reason == "c"


async def test_an_edit_that_does_not_fit_leaves_what_waits(desk: Desk) -> None:
    async with desk.running():
        first = await desk.channel.edit(APP, "two = 2", "two = 22", False, "a")
        with pytest.raises(
            UserError, match=content_hash(TEXT.replace("two = 2", "two = 22").encode())
        ):
            await desk.channel.edit(APP, "gone", "new", False, "b")
        assert status(desk.gate.queue.get(first.id)) == "pending"
        assert (await done(desk, first)).outcome["ok"]


async def test_the_same_edit_sent_again_is_the_request_that_waits(desk: Desk) -> None:
    async with desk.running():
        first = await desk.channel.edit(APP, "two = 2", "zwei = 2", False, "a")
        assert (await desk.channel.edit(APP, "two = 2", "zwei = 2", False, "a")).id == first.id
        assert len(desk.requests()) == 1


async def test_an_edit_is_made_on_a_file_that_waits_to_be_made(desk: Desk) -> None:
    async with desk.running():
        await desk.channel.write("fresh.py", b"one\ntwo\n", "new")
        request = await desk.channel.edit("fresh.py", "two", "zwei", False, "german")
        assert (change(request).operation, change(request).before) == ("write", None)
        assert request.reason == "german; new"
        await done(desk, request)
        assert (
            (desk.host / "fresh.py").read_text()
            == (desk.copy / "fresh.py").read_text()
            == "one\nzwei\n"
        )


async def test_all_edits_go_along_with_the_persons_save(desk: Desk) -> None:
    async with desk.running():
        await desk.channel.edit(APP, "two = 2", "two = 22", False, "a")
        second = await desk.channel.edit(APP, "three = 3", "three = 33", False, "b")
        (desk.host / APP).write_text("zero = 0\n" + TEXT)
        await desk.until(lambda: APP in desk.pending() and desk.pending()[APP].id != second.id)
        request = desk.pending()[APP]
        assert request.reason == "2 edits of this file: b; a"
        await done(desk, request)
        assert (desk.host / APP).read_text() == "zero = 0\none = 1\ntwo = 22\nthree = 33\n"


async def test_all_edits_are_made_in_a_copy_that_moved_on(desk: Desk) -> None:
    async with desk.running():
        async with desk.channel._turn:
            agent = (await desk.channel._open()).agent
            await agent.edit(APP, "two = 2", "two = 22", False, "")
            request = await agent.edit(APP, "three = 3", "three = 33", False, "")
            (desk.copy / APP).write_text("zero = 0\n" + TEXT)
            desk.approve(request)
        await desk.settled(request)
        assert (desk.host / APP).read_text() == "one = 1\ntwo = 22\nthree = 33\n"
        assert (desk.copy / APP).read_text() == "zero = 0\none = 1\ntwo = 22\nthree = 33\n"


async def test_edits_that_a_rule_allows_are_done_in_turn(desk: Desk) -> None:
    (desk.data / "base.yaml").write_text(FREE)
    async with desk.running():
        requests = await asyncio.gather(
            *(
                desk.channel.edit(APP, f"{word} = ", f"{word} == ", False, "")
                for word in ("one", "two", "three")
            )
        )
        for request in requests:
            assert (await desk.settled(request)).outcome["ok"], explanation(
                desk.gate.queue.get(request.id)
            )
        assert (desk.host / APP).read_text() == TEXT.replace("=", "==")


async def test_an_approval_that_is_under_way_comes_before_a_newer_edit(desk: Desk) -> None:
    async with desk.running():
        first = await desk.channel.edit(APP, "two = 2", "two = 22", False, "")
        async with desk.channel._turn:
            desk.approve(first)
            second = await (await desk.channel._open()).agent.edit(
                APP, "two = 22", "two = 222", False, ""
            )
        await done(desk, second)
        assert (await desk.settled(first)).outcome["ok"]
        assert (desk.host / APP).read_text() == TEXT.replace("two = 2", "two = 222")


async def test_after_a_restart_an_edit_is_still_made_on_what_waits(desk: Desk) -> None:
    async with desk.running():
        await desk.channel.edit(APP, "two = 2", "two = 22", False, "a")
    desk.new_channel()
    async with desk.running(copy=False):
        request = await desk.channel.edit(APP, "two = 22", "two = 222", False, "b")
        assert request.reason == "b; a"
        await done(desk, request)
        assert (desk.host / APP).read_text() == TEXT.replace("two = 2", "two = 222")


@pytest.mark.many
async def test_two_hundred_edits_are_one_request(desk: Desk) -> None:
    big = "".join(f"line {number:04}\n" for number in range(60_000))
    (desk.host / APP).write_text(big)
    async with desk.running():
        for number in range(200):
            request = await desk.channel.edit(
                APP, f"line {number:04}\n", f"changed {number}\n", False, f"{number}"
            )
        blobs = list((desk.folder / "blobs").rglob("*"))
        assert (
            sum(one.stat().st_size for one in blobs if one.is_file())
            < 4 * len(big)
            > 4 * SMALL_BYTES
        )
        assert request.reason.startswith("200 edits of this file: 199; 198;")
        assert len(desk.pending()) == 1
        await done(desk, request)
        expected = [f"changed {n}" if n < 200 else f"line {n:04}" for n in range(60_000)]
        assert (desk.host / APP).read_text().splitlines() == expected
