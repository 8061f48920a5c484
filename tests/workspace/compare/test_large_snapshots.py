"""Large snapshots go when nothing refers to them any more, whatever ended that; and not before."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from supervisor.core.actions import FileChange, content_hash
from supervisor.core.files.undo_steps import Selection
from supervisor.workspace.disk.blobs import SMALL_BYTES
from supervisor.workspace.disk.merging import MOST_MERGED_BYTES
from tests.fakes.own_process import KILLED, exit_code
from tests.workspace.conftest import Desk

ONLY_COPIED = "snapshots are kept and dropped the same in both modes"
A, B = "a" * (SMALL_BYTES + 1), "b" * (SMALL_BYTES + 1)


def kept(desk: Desk) -> set[str]:
    """The large contents that are in the session's folder, by their first letter."""
    paths = [
        path for path in (desk.folder / "blobs").iterdir() if path.stat().st_size > SMALL_BYTES
    ]
    return {path.read_text()[0] for path in paths}


def swapped(desk: Desk, *contents: str) -> None:
    """The agent puts a folder with these files in the place of a file."""
    (desk.copy / "README.md").unlink()
    (desk.copy / "README.md").mkdir()
    for number, content in enumerate(contents):
        (desk.copy / "README.md" / f"{number}.txt").write_text(content)


async def test_of_a_folder_that_changes_while_its_card_waits(desk: Desk) -> None:
    async with desk.running(start=False):
        swapped(desk, A, "small")
        await desk.compared()
        assert kept(desk) == {"a"}
        (desk.copy / "README.md/0.txt").write_text(B)
        await desk.compared()
        assert kept(desk) == {"b"}
        request = desk.pending()["README.md"]
        desk.approve(request)
        await desk.settled(request)
        assert (desk.host / "README.md/0.txt").read_text() == B


async def test_of_a_folder_that_is_a_file_again(desk: Desk) -> None:
    async with desk.running(start=False):
        swapped(desk, A)
        await desk.compared()
        for path in (desk.copy / "README.md").iterdir():
            path.unlink()
        (desk.copy / "README.md").rmdir()
        (desk.copy / "README.md").write_text("hello\n")
        await desk.compared()
        assert not desk.pending()
        assert kept(desk) == set()


async def test_when_the_session_ends_with_its_card_open(desk: Desk) -> None:
    async with desk.running(start=False):
        swapped(desk, A)
        await desk.compared()
        desk.gate.answers.close_session(desk.requests()[0].session_id, "the session ended")
        assert kept(desk) == {"a"}
    assert kept(desk) == set()


async def test_that_wait_over_a_restart_stay_and_can_be_applied(desk: Desk) -> None:
    async with desk.running(start=False):
        swapped(desk, A)
        await desk.compared()
    assert kept(desk) == {"a"}
    desk.new_channel()
    async with desk.running(copy=False, start=False):
        (request,) = desk.pending().values()
        desk.approve(request)
        assert (await desk.settled(request)).outcome["ok"]  # type: ignore[index]
        assert (desk.host / "README.md/0.txt").read_text() == A


async def test_of_what_was_denied_and_is_asked_again(desk: Desk) -> None:
    """The folder was looked at before, and is as it was: its contents are had anew all the same."""
    async with desk.running(start=False):
        swapped(desk, A)
        await desk.compared()
        desk.deny(desk.pending()["README.md"])
        await desk.compared()
        assert kept(desk) == set()
        desk.channel._now.comparison.forget("README.md")
        (desk.host / "README.md").write_text("the person's\n")
        await desk.compared()
        request = desk.pending()["README.md"]
        assert kept(desk) == {"a"}
        desk.approve(request)
        assert (await desk.settled(request)).outcome["ok"]  # type: ignore[index]


async def test_another_path_and_another_channel_need_the_same(desk: Desk) -> None:
    """What the agent's API asks for isn't let go of because a file in the copy with the same
    content went, nor the other way round."""
    async with desk.running(start=False):
        swapped(desk, A)
        (desk.copy / "other").write_text(A)
        await desk.compared()
        asked = await desk.channel.write("third", A.encode(), "why")
        (desk.copy / "other").unlink()
        swapping = desk.pending()["README.md"]
        desk.deny(swapping)
        await desk.compared()
        assert kept(desk) == {"a"}
        later = await desk.channel.write("third", B.encode(), "why")
        await desk.compared()
        assert kept(desk) == {"b"}
        desk.approve(later)
        assert (await desk.settled(later)).outcome["ok"]  # type: ignore[index]
        assert (desk.host / "third").read_text() == B
        assert asked.id != later.id


async def test_what_was_applied_stays_for_undo_unless_nothing_reads_that_much(desk: Desk) -> None:
    async with desk.running(start=False):
        (desk.copy / "free/readable").write_text(A)
        (desk.copy / "free/huge").write_text(
            "h" + "\0" * MOST_MERGED_BYTES
        )  # no text, which isn't searched for secrets
        await desk.compared()
        desk.gate.pending_writes.write()  # what rules allow is on record as done a little later
        assert all(one.outcome for one in desk.requests())
        await desk.compared()
        assert kept(desk) == {"a"}
        # Neither is needed to take them back.
        desk.channel._now.sides.blobs.drop(content_hash(A.encode()))
        ids = tuple(one.id for one in desk.requests())
        async with desk.channel.undoing() as undo:
            plan = await undo.plan(Selection(ids=ids))
            undone = await undo.carry_out(Selection(ids=ids), token=plan.token, by="tester")
            assert not (desk.host / "free/huge").exists()
            again = await undo.plan(Selection(ids=(undone.undo,)))
            await undo.carry_out(Selection(ids=(undone.undo,)), token=again.token, by="tester")
        assert (desk.host / "free/readable").read_text() == A
        assert (desk.host / "free/huge").stat().st_size == MOST_MERGED_BYTES + 1


async def live_and_die(tmp_path: Path, host: Path) -> None:
    """Kept, superseded, and killed before what is over could be dropped."""
    desk = Desk(tmp_path / "data", host)
    async with desk.running(start=False):
        swapped(desk, A)
        await desk.compared()
        (desk.copy / "README.md/0.txt").write_text(B)
        desk.channel._now.snapshots._drop = lambda *given: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]
        await desk.compared()


def test_after_a_crash_nothing_is_left_and_what_waits_is_there(tmp_path: Path, host: Path) -> None:
    assert exit_code(live_and_die, tmp_path, host) == KILLED

    async def again() -> None:
        desk = Desk(tmp_path / "data", host)
        assert kept(desk) == {"a", "b"}
        async with desk.running(copy=False, start=False):
            await desk.compared()
            (request,) = desk.pending().values()
            assert isinstance(request.action, FileChange)
            assert kept(desk) == {"b"}
            desk.approve(request)
            assert (await desk.settled(request)).outcome["ok"]  # type: ignore[index]
            assert (desk.host / "README.md/0.txt").read_text() == B
        desk.close()

    asyncio.run(again())


async def test_a_disk_that_refuses_stops_no_comparison(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(digest: str) -> None:
        raise OSError(digest)

    async with desk.running(start=False):
        swapped(desk, A)
        await desk.compared()
        monkeypatch.setattr(desk.channel._now.sides.blobs, "drop", refusing)
        (desk.copy / "README.md/0.txt").write_text(B)
        await desk.compared()
        assert kept(desk) == {"a", "b"}
        monkeypatch.undo()
        await desk.compared()
        assert kept(desk) == {"b"}
