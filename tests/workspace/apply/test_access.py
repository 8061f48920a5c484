"""A file that replaces another is for those that the other was for, and for nobody else."""

import asyncio
import os
import stat
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.core.files.undo_steps import Selection
from supervisor.workspace.apply.access import closed
from tests.fakes.nobody import as_before, become_nobody
from tests.fakes.own_process import KILLED, KilledAt, exit_code
from tests.workspace.conftest import Desk

ONLY_COPIED = "these are steps on the host's side, which is the same under an overlay"
OF_ANOTHER_GROUP = 54321
LIST = "system.posix_acl_access"
NOBODY = 0xFFFFFFFF


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("mode", "becomes"),
    [
        (0o644, 0o644),
        (0o664, 0o644),
        (0o640, 0o600),
        (0o604, 0o600),
        (0o775, 0o755),
        (0o2755, 0o755),
        (0o600, 0o600),
    ],
)
def test_what_both_a_group_and_all_others_have_is_left(mode: int, becomes: int) -> None:
    assert closed(mode) == becomes


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
async def test_a_group_that_cannot_be_kept_gives_its_rights_to_no_other(
    plain: Callable[[], Desk],
) -> None:
    """The person's file is for a group that they aren't in: neither applied nor taken back does it
    become their own group's."""
    desk = plain()
    path = desk.host / "src/app.py"
    path.chmod(0o640)
    with as_before():
        os.chown(path, path.stat().st_uid, OF_ANOTHER_GROUP)
    async with desk.running():
        (desk.copy / "src/app.py").write_text("of the agent\n")
        request = await desk.asked("src/app.py")
        desk.approve(request)
        await desk.settled(request)
        assert path.read_text() == "of the agent\n"
        assert (path.stat().st_gid != OF_ANOTHER_GROUP, mode_of(path)) == (True, 0o600)
        await desk.compared()
        assert "src/app.py" not in desk.pending()
        async with desk.channel.undoing() as undo:
            plan = await undo.plan(Selection())
            assert not plan.problems
            await undo.carry_out(Selection(), token=plan.token, by="tester")
        assert path.read_text() == "one\ntwo\nof src/app.py\n"
        assert mode_of(path) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_kill_after_it_was_placed_with_fewer_permissions_is_made_good(
    plain: Callable[[], Desk],
) -> None:
    desk = plain()
    desk.close()
    path = desk.host / "src/app.py"
    path.chmod(0o640)
    with as_before():
        os.chown(path, path.stat().st_uid, OF_ANOTHER_GROUP)
        assert exit_code(_write_and_die, desk.data, desk.host) == KILLED
    assert (path.read_text(), mode_of(path)) == ("of the agent\n", 0o600)

    async def next_start() -> None:
        desk = plain()
        async with desk.running(copy=False):
            (request,) = desk.requests()
            done = await desk.settled(request)
            assert done.outcome is not None
            assert done.outcome["ok"], done.outcome
            await desk.compared()
            assert desk.pending() == {}
            async with desk.channel.undoing() as undo:
                plan = await undo.plan(Selection())
                await undo.carry_out(Selection(), token=plan.token, by="tester")
            assert path.read_text() == "one\ntwo\nof src/app.py\n"

    asyncio.run(next_start())


def _write_and_die(data: Path, host: Path) -> None:
    become_nobody()

    async def live() -> None:
        desk = Desk(data, host)
        desk.new_channel(KilledAt("placed"))
        async with desk.running():
            (desk.copy / "src/app.py").write_text("of the agent\n")
            desk.approve(await desk.asked("src/app.py"))
            await asyncio.sleep(60)  # killed long before

    asyncio.run(live())


async def test_an_access_list_stays_with_its_path(desk: Desk) -> None:
    """Its mask stands where a file's group bits do: without the list the group would get them."""
    path, plain = desk.host / "README.md", desk.host / "src/app.py"
    entries = [(1, 6, NOBODY), (2, 6, 1000), (4, 0, NOBODY), (0x10, 6, NOBODY), (0x20, 0, NOBODY)]
    held = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *one) for one in entries)
    try:
        os.setxattr(path, LIST, held)
        os.setxattr(desk.host / "src", "system.posix_acl_default", held)
    except OSError:
        pytest.skip("this file system has no access lists")
    assert mode_of(path) == 0o660
    async with desk.running():
        for name in ("README.md", "src/app.py"):
            (desk.copy / name).write_text("of the agent\n")
        await desk.approve_all()
        assert path.read_text() == plain.read_text() == "of the agent\n"
        assert os.getxattr(path, LIST) == held
        assert LIST not in os.listxattr(plain)
        assert mode_of(plain) == 0o644


async def test_what_the_person_took_from_others_is_not_given_back_unseen(desk: Desk) -> None:
    """After a session's end nothing watches the host: its permissions may be others than those
    that the card was made for."""
    async with desk.running():
        (desk.copy / "README.md").write_text("of the agent\n")
        await desk.compared()
        request = await desk.asked("README.md")
        await desk.channel.stop()
        (desk.host / "README.md").chmod(0o600)
        desk.approve(request)
        done = await desk.settled(request)
        assert done.outcome is not None
        assert not done.outcome["ok"]
        assert mode_of(desk.host / "README.md") == 0o600
        assert (desk.host / "README.md").read_text() == "hello\n"
