"""In an overlay nobody reads a file before somebody changes it: when one that the person only
touched is taken for changed.

A touched file has another change time. That its content is still the one that both sides began
with has to be proven; where it can't be, a person is asked, whatever a rule allows, since the
alternative is to lose an edit.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.core.actions import FileChange
from tests.workspace.conftest import Desk

NAME = "free/a.txt"  # of which a rule allows all that isn't a conflict


@pytest.fixture
def desk(tmp_path: Path, host: Path) -> Iterator[Desk]:
    made = Desk(tmp_path / "data", host, is_overlay=True)
    yield made
    made.close()


async def brought(desk: Desk) -> None:
    async with desk.channel._turn:
        await (await desk.channel._open()).incoming.run(None)


def touched(path: Path) -> None:
    """Another change time and nothing else, as a backup by hard links or a `chmod` to what it
    was leaves it."""
    path.chmod(stat.S_IMODE(path.stat().st_mode))


def written(path: Path) -> None:
    """Another content of the same size under the old time."""
    status = path.stat()
    path.write_text("b" * status.st_size)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def opened_to_write(path: Path) -> None:
    """As an editor does it before the first change: the kernel copies the file up."""
    path.open("r+").close()


def actions(desk: Desk) -> list[FileChange]:
    return [one.action for one in desk.requests() if isinstance(one.action, FileChange)]


async def test_what_was_asked_about_before_the_touch_is_no_conflict(desk: Desk) -> None:
    async with desk.running(start=False):
        await brought(desk)
        (desk.copy / "src/app.py").write_text("once\n")
        await desk.compared()
        touched(desk.host / "src/app.py")
        (desk.copy / "src/app.py").write_text("twice\n")
        await brought(desk)
        await desk.compared()
        assert [one.hazards for one in actions(desk)] == [(), ()]
        assert desk.channel._now.incoming.conflicts() == []


async def test_what_was_seen_unchanged_before_the_touch_is_no_conflict(desk: Desk) -> None:
    async with desk.running(start=False):
        await brought(desk)
        opened_to_write(desk.copy / NAME)
        await desk.compared()
        touched(desk.host / NAME)
        (desk.copy / NAME).write_text("the agent's\n")
        await brought(desk)
        await desk.compared()
        assert [one.hazards for one in actions(desk)] == [()]
        assert (desk.host / NAME).read_text() == "the agent's\n"


async def test_an_edit_under_the_old_time_is_a_conflict_all_the_same(desk: Desk) -> None:
    async with desk.running(start=False):
        await brought(desk)
        opened_to_write(desk.copy / NAME)
        await desk.compared()
        written(desk.host / NAME)
        (desk.copy / NAME).write_text("the agent's\n")
        await brought(desk)
        await desk.compared()
        assert desk.pending()[NAME].action.hazards == ("conflict",)  # type: ignore[union-attr]
        assert (desk.host / NAME).read_text() == "bb"


async def test_a_touch_before_the_agents_change_is_no_conflict(desk: Desk) -> None:
    async with desk.running(start=False):
        await brought(desk)
        touched(desk.host / NAME)
        await brought(desk)
        (desk.copy / NAME).write_text("the agent's\n")
        await desk.compared()
        assert (desk.host / NAME).read_text() == "the agent's\n"


async def test_a_change_of_permissions_alone_needs_no_base(desk: Desk) -> None:
    async with desk.running(start=False):
        await brought(desk)
        (desk.copy / NAME).chmod(0o600)
        touched(desk.host / NAME)
        await brought(desk)
        assert desk.channel._now.incoming.conflicts() == []
        await desk.compared()
        assert actions(desk)[0].hazards == ()
        assert (stat.S_IMODE((desk.host / NAME).stat().st_mode), desk.pending()) == (0o600, {})


EDITS = {"touched": touched, "written": written, "another mode": lambda path: path.chmod(0o640)}


@pytest.mark.parametrize(
    ("agent", "did"),
    [
        ("write", "touched"), ("write", "written"), ("write", "another mode"), ("delete",
         "touched"), ("delete", "written"),
        ("chmod", "written"), ("chmod", "another mode"),
    ],
)  # fmt: skip
async def test_what_cannot_be_told_from_an_edit_is_asked(desk: Desk, agent: str, did: str) -> None:
    """Both between two looks, so that nobody ever saw what the agent's version was made of."""
    async with desk.running(start=False):
        await brought(desk)
        path = desk.copy / NAME
        match agent:
            case "write":
                path.write_text("the agent's\n")
            case "delete":
                path.unlink()
            case _:
                path.chmod(0o600)
        EDITS[did](desk.host / NAME)
        expected = (desk.host / NAME).read_bytes()
        await brought(desk)
        await desk.compared()
        assert "conflict" in desk.pending()[NAME].action.hazards  # type: ignore[union-attr]
        assert (desk.host / NAME).read_bytes() == expected
