"""Folders that keep out their owner, as an ordinary user has them: what can be done is done and
undone, all else says why."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.core.approvals import Request
from supervisor.core.files.undo_steps import Selection
from tests.fakes.gated import answer_all
from tests.fakes.nobody import as_before, become_nobody
from tests.fakes.own_process import KILLED, KilledAt, exit_code
from tests.workspace.compare.test_compare_folder_modes import action, brought, mode, take_all_back
from tests.workspace.compare.test_folder_swaps import tree
from tests.workspace.conftest import Desk

type Plain = Callable[[], Desk]


def shut(copy: Path) -> None:
    """A file becomes a folder with folders in it that keep out whoever isn't root."""
    (copy / "free/a.txt").unlink()
    (copy / "free/a.txt/ro/in").mkdir(parents=True)
    (copy / "free/a.txt/none").mkdir()
    (copy / "free/a.txt/ro/one").write_text("one\n")
    (copy / "free/a.txt/ro/in/two").write_text("two\n")
    for name, permissions in (("ro/in", 0o555), ("ro", 0o500), ("none", 0), ("", 0o550)):
        (copy / "free/a.txt" / name).chmod(permissions)


def modes(folder: Path) -> dict[str, int]:
    """Whoever isn't root can't look into the one that nobody may enter."""
    return {name: mode(folder / "free/a.txt" / name) for name in ("", "ro", "ro/in", "none")}


MODES = {"": 0o550, "ro": 0o500, "ro/in": 0o555, "none": 0}


async def answered(desk: Desk) -> Request:
    await desk.compared()
    (request,) = desk.requests()
    assert action(request).operation == "swap"
    return await desk.settled(request)


async def test_a_swap_to_such_a_folder_is_done_undone_and_done_again(plain: Plain) -> None:
    desk = plain()
    async with desk.running(start=False):
        before = tree(desk.host)
        shut(desk.copy)
        done = await answered(desk)
        assert done.outcome is not None
        assert done.outcome["ok"], done.outcome
        assert modes(desk.host) == MODES
        assert (desk.host / "free/a.txt/ro/in/two").read_text() == "two\n"
        async with desk.channel.undoing() as undo:
            plan = await undo.plan(Selection())
            first = await undo.carry_out(Selection(), token=plan.token, by="tester")
            assert tree(desk.host) == before
            again = Selection(ids=(first.undo,))
            plan = await undo.plan(again)
            await undo.carry_out(again, token=plan.token, by="tester")
        assert modes(desk.host) == MODES
        assert (desk.host / "free/a.txt/ro/in/two").read_text() == "two\n"
        await take_all_back(desk)
        assert tree(desk.host) == before


def lives_and_dies(plain: Plain, at: KilledAt, *, is_undone: bool) -> None:
    """Nobody's supervisor, in a process of its own that is killed while it shuts the folders or,
    where `is_undone`, opens them again."""
    desk = plain()
    desk.close()
    with as_before():
        assert exit_code(_live_and_die, desk.data, desk.host, at, is_undone) == KILLED


def _live_and_die(data: Path, host: Path, at: KilledAt, is_undone: bool) -> None:
    become_nobody()

    async def live() -> None:
        desk = Desk(data, host)
        desk.new_channel(at)
        async with desk.running(start=False):
            shut(desk.copy)
            if is_undone:
                await answered(desk)
                await take_all_back(desk)
            else:
                await desk.compared()

    asyncio.run(live())


@pytest.mark.parametrize(
    ("step", "number"),
    [("placed", 2), ("placed", 4), ("shutting", 1), ("shutting", 2), ("shutting", 4)],
)
def test_a_kill_in_the_middle_of_it_is_made_good(plain: Plain, step: str, number: int) -> None:
    lives_and_dies(plain, KilledAt(step, number), is_undone=False)

    async def next_start() -> None:
        desk = plain()
        async with desk.running(copy=False, start=False):
            await desk.compared()
            (request,) = desk.requests()
            assert (await desk.settled(request)).outcome["ok"]  # type: ignore[index]
            assert modes(desk.host) == MODES
            assert (desk.host / "free/a.txt/ro/in/two").read_text() == "two\n"
            await take_all_back(desk)
            assert (desk.host / "free/a.txt").read_text().startswith("one")
            assert not list(desk.host.rglob(".gatehouse-*"))

    asyncio.run(next_start())


@pytest.mark.parametrize("number", [1, 3, 7, 10])
def test_a_kill_in_the_middle_of_the_undo_is_made_good(plain: Plain, number: int) -> None:
    """Which opens three folders, removes six paths and brings back one."""
    lives_and_dies(plain, KilledAt("step", number), is_undone=True)

    async def next_start() -> None:
        desk = plain()
        async with desk.running(copy=False, start=False):
            async with desk.channel.undoing():
                pass
            assert (desk.host / "free/a.txt").read_text().startswith("one")
            assert not list(desk.host.rglob(".gatehouse-*"))

    asyncio.run(next_start())


async def test_where_it_fails_at_last_nothing_of_it_is_left(plain: Plain) -> None:
    """Somebody opens a folder before it is shut: all of it goes back, what is shut already, too."""
    desk = plain()
    left = [2]

    def at(step: str) -> None:
        if step == "shutting":
            left[0] -= 1
            if left[0] == 0:
                (desk.host / "free/a.txt").chmod(0o777)

    desk.new_channel(at)
    async with desk.running(start=False):
        before = tree(desk.host)
        shut(desk.copy)
        done = await answered(desk)
        assert done.outcome is not None
        assert not done.outcome["ok"]
        assert tree(desk.host) == before


@pytest.mark.parametrize("kind", ["create", "change", "delete", "move", "folder"])
async def test_in_a_read_only_folder_of_the_persons_nothing_is_done_and_one_line_says_why(
    plain: Plain, kind: str
) -> None:
    desk = plain()
    async with desk.running(start=False):
        await desk.compared()
        match kind:
            case "create":
                (desk.copy / "free/new").write_text("new\n")
            case "change":
                (desk.copy / "free/a.txt").write_text("new\n")
            case "delete":
                (desk.copy / "free/a.txt").unlink()
            case "move":
                (desk.copy / "free/a.txt").rename(desk.copy / "free/b.txt")
            case _:
                (desk.copy / "free/new").mkdir()
        (desk.host / "free").chmod(0o555)
        before = tree(desk.host)
        await desk.compared()
        (request,) = desk.requests()
        done = await desk.settled(request)
        assert done.outcome is not None
        assert not done.outcome["ok"]
        assert (
            "can't be changed on the host: Permission denied; check the permissions on the host"
            in str(done.outcome["error"])
        )
        assert "\n" not in str(done.outcome["error"])
        assert action(request).path in str(done.outcome["error"])
        assert tree(desk.host) == before
        (desk.host / "free").chmod(0o755)


async def test_one_of_many_that_were_answered_together_takes_all_of_them_back(plain: Plain) -> None:
    desk = plain()
    for name in "bcde":
        (desk.host / name).mkdir()
        (desk.host / name / "old").write_text("old\n")
    async with desk.running(start=False):
        for name in "bcde":
            (desk.copy / name / "old").write_text("changed\n")
            (desk.copy / name / "new").write_text("new\n")
        await desk.compared()
        (desk.host / "c").chmod(0o500)
        before = tree(desk.host)
        asked = list(desk.pending().values())
        assert len(asked) == 8
        answer_all(desk.gate, [one.id for one in asked], "approved", by="tester")
        for one in asked:
            done = await desk.settled(one)
            assert done.outcome is not None
            assert str(done.outcome["error"]).startswith("nothing of this was carried out: `c/")
        assert tree(desk.host) == before


async def test_what_can_not_be_taken_back_is_left_as_it_is_and_said(plain: Plain) -> None:
    desk = plain()
    async with desk.running(start=False):
        (desk.copy / "free/a.txt").write_text("changed\n")
        (desk.copy / "free/b.txt").write_text("new\n")
        await desk.compared()
        (desk.host / "free").chmod(0o500)
        with pytest.raises(
            Exception, match=r"`free/.\.txt` can't be changed on the host: Permission denied"
        ):
            await take_all_back(desk)
        assert (desk.host / "free/a.txt").read_text() == "changed\n"
        (desk.host / "free").chmod(0o755)
        await take_all_back(desk)
        assert sorted(path.name for path in (desk.host / "free").iterdir()) == ["a.txt"]


async def test_the_copy_has_them_and_says_what_it_can_not_have(plain: Plain) -> None:
    desk = plain()
    (desk.host / "free").chmod(0o500)
    (desk.host / "src/secret").write_text("x")
    (desk.host / "src/secret").chmod(0)
    (desk.host / "hidden").mkdir(mode=0)
    async with desk.running(start=False):
        assert desk.report is not None
        said = " ".join(map(str, desk.report.skipped))
        assert "src/secret" in said
        assert "hidden" in said
        assert mode(desk.copy / "free") == 0o500
        assert (desk.copy / "free/a.txt").read_text().startswith("one")
        await desk.compared()
        assert desk.requests() == []


async def test_a_folder_that_nobody_may_enter_stops_nothing(plain: Plain) -> None:
    desk = plain()
    async with desk.running(start=False):
        (desk.copy / "dark").mkdir(mode=0)
        (desk.copy / "src/new.py").write_text("new\n")
        await desk.compared()
        assert set(desk.pending()) == {"dark", "src/new.py"}
        desk.approve(desk.pending()["dark"])
        await desk.settled(desk.requests("dark")[0])
        assert mode(desk.host / "dark") == 0


async def test_the_persons_own_is_full_in_the_copy_before_it_is_shut(plain: Plain) -> None:
    desk = plain()
    async with desk.running(start=False):
        await desk.compared()
        (desk.host / "mine/in").mkdir(parents=True)
        (desk.host / "mine/in/x").write_text("x\n")
        (desk.host / "mine/in").chmod(0o555)
        (desk.host / "mine").chmod(0o500)
        await brought(desk)
        assert (desk.copy / "mine/in/x").read_text() == "x\n"
        assert (mode(desk.copy / "mine"), mode(desk.copy / "mine/in")) == (0o500, 0o555)
        await desk.compared()
        assert desk.requests() == []
