"""What the agent deletes in an overlay before both sides agreed on it: asked about, and never back
again unasked.

In a copy there is no such thing: what the agent sees, both sides have agreed on. Here the
person's new file shines through at once, and a file of the agent's own leaves no trace when it
goes.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.core.actions import FileChange
from tests.workspace.conftest import Desk

APP = "src/app.py"


@pytest.fixture
def desk(tmp_path: Path, host: Path) -> Iterator[Desk]:
    made = Desk(tmp_path / "data", host, is_overlay=True)
    yield made
    made.close()


@pytest.mark.parametrize("first", ["host", "copy"])
async def test_what_the_agent_deletes_before_it_was_agreed_on_is_asked_about(
    desk: Desk, first: str
) -> None:
    """A file of the person's shows through at once; in a copy it couldn't be deleted before it
    was brought."""
    async with desk.running(start=False):
        await look(desk, "host")
        for name in ("new.txt", "free/new.txt", "src/sub/deep.py", "build/o", "free/gone.txt"):
            (desk.host / name).parent.mkdir(exist_ok=True)
            (desk.host / name).write_text("person\n")
            assert (desk.copy / name).read_text() == "person\n"
        for name in ("new.txt", "free/new.txt", "free/gone.txt"):
            (desk.copy / name).unlink()
        shutil.rmtree(desk.copy / "src/sub")
        shutil.rmtree(desk.copy / "build")  # ignored: nobody speaks of it
        (desk.host / "free/gone.txt").unlink()
        for where in (first, "copy", "host", "copy"):
            await look(desk, where)
        for name in ("new.txt", "free/new.txt", "src/sub/deep.py", "free/gone.txt", "build"):
            assert not os.path.lexists(desk.copy / name), name
        assert set(desk.pending()) == {"new.txt", "free/new.txt", "src/sub/deep.py"}
        for request in desk.pending().values():
            assert request.action.operation == "delete"  # type: ignore[union-attr]
            assert "conflict" in request.action.hazards  # type: ignore[union-attr]  # a rule for `free` isn't enough
        assert (desk.host / "free/new.txt").read_text() == "person\n"
        await desk.approve_all()
        for name in ("new.txt", "free/new.txt", "src/sub"):
            assert not os.path.lexists(desk.host / name)
        # What the person makes there after that is new to the agent.
        for name in ("new.txt", "free/gone.txt"):
            (desk.host / name).write_text("again\n")
        await look(desk, "host")
        await look(desk, "copy")
        assert desk.pending() == {}
        for name in ("new.txt", "free/gone.txt"):
            assert (desk.copy / name).read_text() == "again\n"


async def test_what_is_put_into_a_deleted_folder_later_is_brought(desk: Desk) -> None:
    async with desk.running(start=False):
        await look(desk, "host")
        shutil.rmtree(desk.copy / "src")
        (desk.host / "src/later.py").write_text("person\n")
        await look(desk, "host")
        await look(desk, "copy")
        assert (desk.copy / "src/later.py").read_text() == "person\n"
        assert "src/later.py" not in desk.pending()
        assert set(desk.pending()) == {APP, "src/util.py"}


async def test_what_was_hidden_from_the_agent_is_no_deletion_of_its(desk: Desk) -> None:
    async with desk.running(start=False):
        await look(desk, "host")
        (desk.host / "late.log").write_text("SECRET")
        os.mkfifo(desk.host / "pipe")
        await look(desk, "host")
        assert not os.path.lexists(desk.copy / "late.log")
        await desk.channel.stop()
        desk.new_channel()
        async with desk.channel._turn:
            await desk.channel._open()
        (desk.host / ".gitignore").write_text("")
        (desk.host / "pipe").unlink()
        (desk.host / "pipe").write_text("a file now\n")
        await look(desk, "copy")
        await look(desk, "host")
        await look(desk, "copy")
        assert desk.requests() == []
        assert (desk.copy / "late.log").read_text() == "SECRET"
        assert (desk.copy / "pipe").read_text() == "a file now\n"


@pytest.mark.parametrize("name", ["free/made.txt", "fresh/deep/made.txt", "src/moved.py"])
async def test_deleted_while_the_host_was_given_it(desk: Desk, name: str) -> None:
    """What was in the upper folder alone leaves no trace there."""

    def deleted(step: str) -> None:
        if step == "placed" and os.path.lexists(desk.copy / name):
            shutil.rmtree(desk.copy / "fresh") if name.startswith("fresh") else (
                desk.copy / name
            ).unlink()

    desk.new_channel(deleted)
    async with desk.running(start=False):
        await look(desk, "host")
        if name == "src/moved.py":
            (desk.copy / APP).rename(desk.copy / name)
        else:
            (desk.copy / name).parent.mkdir(parents=True, exist_ok=True)
            (desk.copy / name).write_text("agent\n")
        await look(desk, "copy")
        for request in desk.pending().values():
            desk.approve(request)
            await desk.settled(request)
        await desk.until(lambda: all(one.settled_at for one in desk.requests()))
        assert (desk.host / name).exists()
        for where in ("host", "copy", "host", "copy"):
            await look(desk, where)
        assert not os.path.lexists(desk.copy / name)
        if not name.startswith("free/"):
            assert (desk.pending()[name].action).operation == "delete"  # type: ignore[union-attr]
        await desk.approve_all()
        assert not (desk.host / name).exists()
        assert not (desk.host / "fresh").exists()
        assert (desk.host / "src/util.py").exists()


async def test_after_a_crash_before_the_first_walk_the_way_to_what_was_agreed_is_known(
    desk: Desk,
) -> None:
    async with desk.running(start=False):
        (desk.copy / APP).write_text("agent\n")
        await look(desk, "copy")
        desk.approve(desk.pending()[APP])
        await desk.settled(desk.requests()[-1])
        shutil.rmtree(desk.copy / "src")
        (desk.copy / "src").write_text("a file now\n")
        await desk.channel.stop()
        desk.new_channel()
        await look(desk, "host")
        await look(desk, "copy")
        # What it never walked over it can't tell from what the person put there since.
        assert "`src/util.py`, which this session never had" in desk.channel.refused()["src"]
        (desk.host / "src/util.py").unlink()
        await look(desk, "copy")
        action = desk.pending()["src"].action
        assert isinstance(action, FileChange)
        assert (action.operation, [step.path for step in action.steps]) == ("swap", [APP])


async def test_a_whole_pass_notices_a_replaced_folder_too(desk: Desk) -> None:
    """With no event to say so: the kernel lists nothing of what the agent has put there since."""
    async with desk.running(start=False):
        await look(desk, "host")
        list((desk.copy / "src").iterdir())
        shutil.rmtree(desk.host / "src")
        (desk.copy / "src/own.py").write_text("agent\n")
        await desk.approve_all()
        assert (desk.host / "src/own.py").exists()
        await look(desk, "host")
        assert [path.name for path in (desk.copy / "src").iterdir()] == ["own.py"]
        assert desk.pending() == {}


async def look(desk: Desk, where: str) -> None:
    """One pass, as the loops would make it; with no copy yet, its first."""
    async with desk.channel._turn:
        opened = await desk.channel._open()
        opened.ignores.forget()
        if where == "host":
            await opened.incoming.run(None)
        else:
            await opened.comparison.run(None)
            opened.incoming.copy_changed(None)


@pytest.mark.parametrize("by_pass", [True, False])
async def test_a_folder_of_the_persons_that_comes_and_goes_as_a_whole_is_gone_in_the_copy(
    desk: Desk, by_pass: bool
) -> None:
    """However many files it had, and though the upper folder has that folder, too; and where the
    watcher saw it before any pass did."""
    async with desk.running(start=False):
        await look(desk, "host")
        opened = desk.channel._opened
        assert opened is not None
        (desk.host / "mine").mkdir()
        for number in range(60):
            (desk.host / f"mine/{number}.txt").write_text("person\n")
        if by_pass:
            await look(desk, "host")
            await look(desk, "copy")
        for number in range(60):
            assert (desk.copy / f"mine/{number}.txt").read_text() == "person\n"
        shutil.rmtree(desk.host / "mine")
        for _ in range(2):
            async with desk.channel._turn:
                await opened.incoming.run(None if by_pass else {"", "mine"})
            await look(desk, "copy")
        assert not os.path.lexists(desk.copy / "mine")
        assert desk.pending() == {}
        assert opened.incoming.notices() == []
        (desk.host / "mine").mkdir()
        (desk.host / "mine/1.txt").write_text("again\n")
        await look(desk, "host")
        assert [one.name for one in (desk.copy / "mine").iterdir()] == ["1.txt"]
        assert (desk.copy / "mine/1.txt").read_text() == "again\n"


async def test_what_the_agent_has_in_a_folder_that_the_person_deletes_stays_its_own(
    desk: Desk,
) -> None:
    async with desk.running(start=False):
        await look(desk, "host")
        (desk.host / "mine").mkdir()
        for number in range(60):
            (desk.host / f"mine/{number}.txt").write_text("person\n")
        await look(desk, "host")
        (desk.copy / "mine/3.txt").write_text("agent\n")
        (desk.copy / "mine/new.txt").write_text("agent\n")
        shutil.rmtree(desk.host / "mine")
        for where in ("host", "host", "copy"):
            await look(desk, where)
        assert sorted(one.name for one in (desk.copy / "mine").iterdir()) == ["3.txt", "new.txt"]
        assert set(desk.pending()) == {"mine/3.txt", "mine/new.txt"}
        assert "conflict" in desk.pending()["mine/3.txt"].action.hazards  # type: ignore[union-attr]
