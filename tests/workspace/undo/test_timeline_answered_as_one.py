"""What was answered as one is one row when a person looks back: taken back as one, or one by
one, also after a restart."""

import pytest

from supervisor.core.files.undo_steps import Selection
from supervisor.errors import NotFoundError
from supervisor.workspace.undo.timeline import Row
from supervisor.workspace.undo.undo_plan import UndoPlan
from tests.fakes.gated import answer_all
from tests.workspace.conftest import Desk

ONLY_COPIED = "the history is the same in both modes"
NAMES = [f"src/part/{number}.txt" for number in range(12)]


async def answered(desk: Desk, *names: str) -> None:
    """The person approves what waits about these as one."""
    await desk.compared()
    requests = [desk.pending()[name] for name in names]
    answer_all(desk.gate, [one.id for one in requests], "approved", by="tester")
    for request in requests:
        await desk.settled(request)


async def worked(desk: Desk) -> None:
    """One change, then twelve answered as one, then another."""
    (desk.copy / "README.md").write_text("first\n")
    await answered(desk, "README.md")
    (desk.copy / "src/part").mkdir()
    for name in NAMES:
        (desk.copy / name).write_text(f"{name}\n")
    await answered(desk, *NAMES)
    (desk.copy / "src/app.py").write_text("last\n")
    await answered(desk, "src/app.py")


async def rows(desk: Desk, of: str = "") -> list[Row]:
    async with desk.channel.undoing() as undo:
        return list(undo.timeline(of).rows)


async def undone(desk: Desk, selection: Selection) -> UndoPlan:
    async with desk.channel.undoing() as undo:
        plan = await undo.plan(selection)
        return await undo.carry_out(selection, token=plan.token, by="tester")


def there(desk: Desk) -> int:
    return sum((desk.host / name).exists() for name in NAMES)


async def test_one_row_before_and_after_it_is_taken_back(desk: Desk) -> None:
    async with desk.running(start=False):
        await worked(desk)
        before = await rows(desk)
        assert [(row.operation, row.count, row.requests, row.folder) for row in before] == [
            ("write", 1, 1, ""), ("write", 12, 12, "src/part"), ("write", 1, 1, ""),
        ]  # fmt: skip
        assert before[1].number == 13
        plan = await undone(desk, Selection(ids=(before[1].id,)))
        assert plan.what == "12 changes"
        assert there(desk) == 0
        after = await rows(desk)
        assert [(row.operation, row.count, row.in_force, row.taken_back) for row in after] == [
            ("write", 1, True, 0), ("write", 12, False, 12), ("write", 1, True, 0), ("undo", 12,
             True, 0),
        ]  # fmt: skip
        assert (desk.host / "src/app.py").read_text() == "last\n"
        await undone(desk, Selection(ids=(after[3].id,)))
        assert there(desk) == 12


async def test_each_of_it_can_be_taken_back_alone(desk: Desk) -> None:
    async with desk.running(start=False):
        await worked(desk)
        batch = (await rows(desk))[1].id
        each = await rows(desk, batch)
        assert sorted(row.paths for row in each) == sorted((name,) for name in NAMES)
        await undone(desk, Selection(ids=(each[3].id,)))
        assert not (desk.host / each[3].paths[0]).exists()
        whole = (await rows(desk))[1]
        assert (whole.in_force, whole.taken_back, whole.requests) == (True, 1, 12)
        assert [row.in_force for row in await rows(desk, batch)] == [
            number != 3 for number in range(12)
        ]
        await undone(desk, Selection(ids=(batch,)))
        assert there(desk) == 0


@pytest.mark.parametrize(("after", "left"), [(0, 0), (1, 12)], ids=["before", "after"])
async def test_rewinding_to_before_and_after_it(desk: Desk, after: int, left: int) -> None:
    async with desk.running(start=False):
        await worked(desk)
        await undone(desk, Selection(after=(await rows(desk))[after].number))
        assert there(desk) == left
        assert (desk.host / "README.md").read_text() == "first\n"
        assert "last" not in (desk.host / "src/app.py").read_text()


async def test_a_restart_forgets_nothing_of_it(desk: Desk) -> None:
    async with desk.running(start=False):
        await worked(desk)
        before = await rows(desk)
    desk.new_channel()
    async with desk.running(copy=False, start=False):
        assert await rows(desk) == before
        await undone(desk, Selection(ids=(before[1].id,)))
        assert there(desk) == 0


async def test_what_came_to_nothing_is_no_row(desk: Desk) -> None:
    """One of the paths changed on the host since: nothing was done, and there is nothing to take
    back."""
    async with desk.running(start=False):
        for name in ("README.md", "src/app.py"):
            (desk.copy / name).write_text("agent\n")
        await desk.compared()
        requests = list(desk.pending().values())
        (desk.host / "src/app.py").write_text("person\n")
        answer_all(desk.gate, [one.id for one in requests], "approved", by="tester")
        for request in requests:
            await desk.settled(request)
        assert await rows(desk) == []
        with pytest.raises(NotFoundError):
            await undone(desk, Selection(ids=("batch-none-0",)))


async def test_different_changes_in_different_folders(desk: Desk) -> None:
    async with desk.running(start=False):
        (desk.copy / "README.md").unlink()
        (desk.copy / "src/app.py").write_text("agent\n")
        (desk.copy / "src/util.py").chmod(0o755)
        await answered(desk, "README.md", "src/app.py", "src/util.py")
        (row,) = await rows(desk)
        assert (row.operation, row.folder, row.count) == ("change", "", 3)
        async with desk.channel.undoing() as undo:
            assert undo.line_counts(row.id) == (1, 4)
