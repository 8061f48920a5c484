"""Permissions of folders that both sides have: carried in both directions, never by chance, and
taken back."""

import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.core.actions import FileChange
from supervisor.core.approvals import Request, status
from supervisor.core.files.undo_steps import Selection
from supervisor.workspace.undo.undo import UndoRefusedError
from tests.fakes.gated import answer_all
from tests.workspace.conftest import Desk


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def action(request: Request) -> FileChange:
    assert isinstance(request.action, FileChange)
    return request.action


async def brought(desk: Desk) -> None:
    """What the person did on the host, is in the copy."""
    async with desk.channel._turn:
        await (await desk.channel._open()).incoming.run(None)


async def take_all_back(desk: Desk) -> None:
    async with desk.channel.undoing() as undo:
        plan = await undo.plan(Selection())
        await undo.carry_out(Selection(), token=plan.token, by="tester")


async def test_a_change_by_the_agent_is_one_request_and_is_undone(desk: Desk) -> None:
    (desk.host / "src").chmod(0o2755)
    async with desk.running(start=False):
        (desk.copy / "src").chmod(0o700)
        await desk.compared()
        request = desk.pending()["src"]
        assert (action(request).operation, action(request).mode, action(request).hazards) == (
            "chmod",
            0o700,
            (),
        )
        card = await desk.channel.card(request)
        assert (card.content, card.old_mode, card.new_mode, card.is_stale) == (
            "none",
            0o755,
            0o700,
            False,
        )
        assert list(desk.pending()) == ["src"]
        desk.approve(request)
        await desk.settled(request)
        assert mode(desk.host / "src") == 0o2700  # the set-id bit is the host's own
        await brought(desk)
        await desk.compared()
        assert not desk.pending()
        await take_all_back(desk)
        assert mode(desk.host / "src") == 0o2755
        await brought(desk)
        assert mode(desk.copy / "src") & 0o777 == 0o755
        await desk.compared()
        assert not desk.pending()


async def test_a_denied_change_is_left_and_one_taken_back_asks_nothing(desk: Desk) -> None:
    async with desk.running(start=False):
        (desk.copy / "src").chmod(0o700)
        await desk.compared()
        request = desk.pending()["src"]
        desk.deny(request)
        await desk.compared()
        assert (mode(desk.host / "src"), desk.pending()) == (0o755, {})
        (desk.copy / "src").chmod(0o711)
        await desk.compared()
        request = desk.pending()["src"]
        (desk.copy / "src").chmod(0o755)
        await desk.compared()
        assert desk.pending() == {}
        assert status(desk.gate.queue.get(request.id)) != "pending"
        assert mode(desk.host / "src") == 0o755


async def test_rules_judge_it_by_the_folders_path(desk: Desk) -> None:
    for name in ("free/in", "closed/in"):
        (desk.host / name).mkdir()
        (desk.host / name / "file").write_text("x")
    async with desk.running(start=False):
        for name in ("free/in", "closed/in"):
            (desk.copy / name).chmod(0o750)
        await desk.compared()
        # No new executable, though a folder has such bits. One that opens it to others is asked.
        assert mode(desk.host / "free/in") == 0o750
        assert mode(desk.host / "closed/in") == 0o755
        assert not desk.pending()
        assert [status(one) for one in desk.requests("closed/in")] == ["denied"]


async def test_a_change_by_the_person_is_brought(desk: Desk) -> None:
    async with desk.running(start=False):
        await desk.compared()
        (desk.host / "src").chmod(0o750)
        (desk.copy / "src/app.py").write_text("so that an overlay has the folder, too\n")
        await brought(desk)
        assert mode(desk.copy / "src") == 0o750
        (desk.host / "src").chmod(0o711)
        await brought(desk)
        assert mode(desk.copy / "src") == 0o711
        await desk.compared()
        assert list(desk.pending()) == ["src/app.py"]


@pytest.mark.parametrize("answer", ["approve", "give"])
async def test_where_both_changed_it_a_person_says(desk: Desk, answer: str) -> None:
    async with desk.running(start=False):
        (desk.copy / "free").chmod(0o700)
        (desk.host / "free").chmod(0o775)
        await brought(desk)
        assert desk.channel._now.incoming.conflicts() == ["free"]
        await desk.compared()
        request = desk.pending()["free"]  # whatever the rule allows
        assert action(request).hazards == ("conflict",)
        assert (await desk.channel.conflict_card(request)).why_not
        if answer == "give":
            await desk.channel.give_host(request.id, by="tester", fingerprint=request.fingerprint)
        else:
            desk.approve(request)
            await desk.settled(request)
        expected = 0o700 if answer == "approve" else 0o775
        assert (mode(desk.host / "free"), mode(desk.copy / "free")) == (expected, expected)
        await brought(desk)
        await desk.compared()
        assert (desk.pending(), desk.channel._now.incoming.conflicts()) == ({}, [])


async def test_a_folder_made_anew_has_its_makers_umask(desk: Desk) -> None:
    """As `git checkout` of another branch and back does it, under another umask than the
    person's."""
    (desk.host / "src").chmod(0o775)
    async with desk.running(start=False):
        await desk.compared()
        shutil.copytree(desk.copy / "src", desk.copy / "aside")
        shutil.rmtree(desk.copy / "src")
        (desk.copy / "src").mkdir(mode=0o755)
        for file in (desk.copy / "aside").iterdir():
            file.rename(desk.copy / "src" / file.name)
        (desk.copy / "aside").rmdir()
        await desk.compared()
        assert desk.requests() == []
        assert mode(desk.host / "src") == 0o775
        (desk.copy / "src").chmod(0o700)  # but this is no umask
        await desk.compared()
        assert action(desk.pending()["src"]).mode == 0o700


async def test_a_new_folder_comes_with_its_file_and_counts_from_then_on(desk: Desk) -> None:
    async with desk.running(start=False):
        (desk.copy / "new/er").mkdir(parents=True)
        (desk.copy / "new").chmod(0o700)
        (desk.copy / "new/er/file").write_text("x")
        await desk.approve_all()
        assert [one.action.path for one in desk.requests()] == ["new/er/file"]  # type: ignore[union-attr]
        (desk.copy / "new/er").chmod(0o711)
        await desk.compared()
        assert list(desk.pending()) == ["new/er"]


async def test_set_id_and_sticky_bits_stay_in_the_copy(desk: Desk) -> None:
    async with desk.running(start=False):
        (desk.copy / "src").chmod(0o3755)
        await desk.compared()
        assert desk.requests() == []
        (desk.copy / "src").chmod(0o7775)
        await desk.approve_all()
        assert mode(desk.host / "src") == 0o775


async def test_a_restart_forgets_nothing(desk: Desk) -> None:
    if desk.is_overlay:
        pytest.skip("a mount ends with the supervisor")
    async with desk.running(start=False):
        (desk.copy / "src").chmod(0o700)
        (desk.copy / "new").mkdir(mode=0o711)
        (desk.copy / "new/x").write_text("x")
        await desk.approve_all()
        await desk.channel.stop()
        (desk.copy / "free").chmod(0o700)
        (desk.host / "src").chmod(0o750)
        desk.new_channel()
        await brought(desk)
        await desk.compared()
        assert mode(desk.copy / "src") == 0o750
        assert mode(desk.host / "free") == 0o700
        assert not desk.pending()


async def test_what_the_person_sets_in_between_is_not_replaced(desk: Desk) -> None:
    def at(step: str) -> None:
        if step == "intended":
            (desk.host / "src").chmod(0o711)

    desk.new_channel(at)
    async with desk.running(start=False):
        (desk.copy / "src").chmod(0o700)
        await desk.compared()
        request = desk.pending()["src"]
        desk.approve(request)
        assert not (await desk.settled(request)).outcome["ok"]  # type: ignore[index]
        assert mode(desk.host / "src") == 0o711


async def test_a_folder_swapped_for_a_link_is_not_followed(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir(mode=0o755)

    def at(step: str) -> None:
        if step == "intended":
            (desk.host / "src").rename(desk.host / "moved")
            (desk.host / "src").symlink_to(tmp_path / "outside")

    desk.new_channel(at)
    async with desk.running(start=False):
        (desk.copy / "src").chmod(0o700)
        await desk.compared()
        request = desk.pending()["src"]
        desk.approve(request)
        await desk.settled(request)
        assert (mode(tmp_path / "outside"), mode(desk.host / "moved")) == (0o755, 0o755)


# -- as a user who isn't root: what can't be read or written to -----------------------------------


async def test_a_folder_that_nobody_may_read_is_asked_about_and_loses_nothing(
    plain: Callable[[], Desk],
) -> None:
    desk = plain()
    async with desk.running(start=False):
        (desk.copy / "src/app.py").write_text("changed\n")
        await desk.compared()
        (desk.copy / "src").chmod(0)
        await desk.compared()
        assert set(desk.pending()) == {"src", "src/app.py"}
        request = desk.pending()["src/app.py"]
        desk.approve(request)  # what was shown is kept
        await desk.settled(request)
        await desk.compared()
        assert (desk.host / "src/app.py").read_text() == "changed\n"
        request = desk.pending()["src"]
        desk.approve(request)
        await desk.settled(request)
        assert mode(desk.host / "src") == 0
        await brought(desk)
        await desk.compared()
        assert desk.pending() == {}
        (desk.copy / "src").chmod(0o755)
        await desk.compared()
        request = desk.pending()["src"]
        desk.approve(request)
        await desk.settled(request)
        assert mode(desk.host / "src") == 0o755
        (desk.copy / "src/util.py").write_text("once more\n")
        await desk.compared()
        assert list(desk.pending()) == ["src/util.py"]
        await take_all_back(desk)
        assert (mode(desk.host / "src"), (desk.host / "src/app.py").read_text()[:3]) == (
            0o755,
            "one",
        )


async def test_what_was_made_in_an_unreadable_folder_is_found_when_it_can_be_read(
    plain: Callable[[], Desk],
) -> None:
    desk = plain()
    async with desk.running():
        (desk.copy / "src").chmod(0o300)
        await desk.asked("src")
        (desk.copy / "src/new.py").write_text("unseen\n")
        (desk.copy / "src").chmod(0o755)
        await desk.asked("src/new.py")
        assert "src" not in desk.pending()


@pytest.mark.parametrize(("before", "after"), [(0o555, 0o755), (0o755, 0o500)])
async def test_a_folder_opened_or_shut_and_changed_is_done_and_undone_as_one(
    plain: Callable[[], Desk], before: int, after: int
) -> None:
    desk = plain()
    (desk.host / "src").chmod(before)
    async with desk.running(start=False):
        src = desk.copy / "src"
        src.chmod(0o755)
        (src / "app.py").write_text("changed\n")
        (src / "util.py").unlink()
        (src / "new.py").write_text("new\n")
        src.chmod(after)
        await desk.compared()
        asked = list(desk.pending().values())
        assert len(asked) == 4
        answer_all(desk.gate, [one.id for one in asked], "approved", by="tester")
        for one in asked:
            assert (await desk.settled(one)).outcome["ok"]  # type: ignore[index]
        assert sorted(path.name for path in (desk.host / "src").iterdir()) == ["app.py", "new.py"]
        assert mode(desk.host / "src") == after
        await take_all_back(desk)
        assert mode(desk.host / "src") == before
        assert sorted(path.name for path in (desk.host / "src").iterdir()) == ["app.py", "util.py"]
        assert (desk.host / "src/app.py").read_text().startswith("one")


async def applied(desk: Desk, path: str) -> None:
    await desk.compared()
    request = desk.pending()[path]
    desk.approve(request)
    await desk.settled(request)


async def test_what_was_changed_before_its_folder_was_shut_is_taken_back_with_it(
    plain: Callable[[], Desk],
) -> None:
    """A folder that may be listed but not entered: nobody can say what is in it before it is
    opened."""
    desk = plain()
    async with desk.running(start=False):
        (desk.copy / "src/app.py").write_text("changed\n")
        await applied(desk, "src/app.py")
        (desk.copy / "src").chmod(0o644)
        await applied(desk, "src")
        await take_all_back(desk)
        assert mode(desk.host / "src") == 0o755
        assert (desk.host / "src/app.py").read_text().startswith("one")


async def test_what_the_person_changed_in_a_folder_that_is_shut_keeps_all_from_being_taken_back(
    plain: Callable[[], Desk],
) -> None:
    desk = plain()
    async with desk.running(start=False):
        (desk.copy / "src/app.py").write_text("changed\n")
        await applied(desk, "src/app.py")
        (desk.copy / "src").chmod(0o644)
        await applied(desk, "src")
        (desk.host / "src").chmod(0o755)
        (desk.host / "src/app.py").write_text("the person's\n")
        (desk.host / "src").chmod(0o644)
        with pytest.raises(UndoRefusedError, match=r"src/app\.py.*nothing was undone"):
            await take_all_back(desk)
        assert mode(desk.host / "src") == 0o644
        (desk.host / "src").chmod(0o755)
        assert (desk.host / "src/app.py").read_text() == "the person's\n"


async def test_where_one_of_several_fails_the_folder_is_as_it_was(
    plain: Callable[[], Desk],
) -> None:
    desk = plain()
    (desk.host / "src").chmod(0o555)

    def at(step: str) -> None:
        if step == "checked" and (desk.host / "src/app.py").read_text() == "changed\n":
            (desk.host / "src/util.py").write_text("saved in the last moment\n")

    desk.new_channel(at)
    async with desk.running(start=False):
        src = desk.copy / "src"
        src.chmod(0o755)
        (src / "app.py").write_text("changed\n")
        (src / "util.py").write_text("changed, too\n")
        await desk.compared()
        asked = list(desk.pending().values())
        answer_all(desk.gate, [one.id for one in asked], "approved", by="tester")
        for one in asked:
            assert not (await desk.settled(one)).outcome["ok"]  # type: ignore[index]
        assert (desk.host / "src/app.py").read_text().startswith("one")
        assert (desk.host / "src/util.py").read_text() == "saved in the last moment\n"
        assert mode(desk.host / "src") == 0o555
        assert sorted(path.name for path in (desk.host / "src").iterdir()) == ["app.py", "util.py"]


@pytest.mark.parametrize("since", ["", "by the person"])
async def test_a_folder_that_went_with_another_change_comes_back_as_it_was(
    desk: Desk, since: str
) -> None:
    folder = desk.host / "private"
    folder.mkdir()
    for name in "ab":
        (folder / name).write_text("secret\n")
    folder.chmod(0o700)
    async with desk.running(start=False):
        await desk.compared()
        (desk.copy / "private/a").unlink()
        (desk.copy / "private/b").unlink()
        (desk.copy / "private").rmdir()
        await desk.compared()
        asked = desk.pending()
        for name in ("private/a", "private/b"):
            desk.approve(asked[name])
            await desk.settled(asked[name])
        assert not folder.exists()
        if since:
            folder.mkdir()
            folder.chmod(0o755)
        for name in ("private/a", "private/b"):  # the folder went with the second
            async with desk.channel.undoing() as undo:
                selection = Selection(ids=(asked[name].id,))
                plan = await undo.plan(selection)
                assert not plan.problems
                await undo.carry_out(selection, token=plan.token, by="tester")
            assert mode(folder) == (0o755 if since else 0o700)
            assert (desk.host / name).read_text() == "secret\n"
