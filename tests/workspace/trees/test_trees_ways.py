"""A new folder's own permissions: on the host before anything is in it, on the card and on
record, never without an answer."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.core.actions import NewFolder
from supervisor.core.approvals import status
from supervisor.core.files.undo_steps import Selection
from tests.workspace.compare.test_compare_folder_modes import action, brought, mode
from tests.workspace.conftest import Desk

KEYS = (NewFolder(path="keys", mode=0o700),)


@pytest.fixture(autouse=True)
def _no_umask() -> Iterator[None]:
    """So that nothing is closed by luck."""
    before = os.umask(0)
    yield
    os.umask(before)


def make(folder: Path, permissions: int, *files: str) -> None:
    folder.mkdir(parents=True)
    for name in files:
        (folder / name).write_text("secret\n")
        (folder / name).chmod(0o644)  # one that others may write would be asked about
    folder.chmod(permissions)


class Witness:
    """Looks at every step of an effect whether anybody else could read what is in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: set[int] = set()

    def __call__(self, step: str) -> None:
        if self.folder.exists():
            self.seen.add(mode(self.folder))


async def test_what_a_rule_allows_is_never_open_to_others(desk: Desk) -> None:
    witness = Witness(desk.host / "free/keys")
    desk.new_channel(witness)
    async with desk.running(start=False):
        make(desk.copy / "free/keys", 0o700, "x", "y")
        await desk.compared()
        assert (desk.host / "free/keys/x").read_text() == "secret\n"
        assert (desk.host / "free/keys/y").exists()
        assert witness.seen == {0o700}
        await brought(desk)
        await desk.compared()
        assert len(desk.requests()) == 2


async def test_it_is_on_the_card_and_holds_until_the_last_answer(desk: Desk) -> None:
    witness = Witness(desk.host / "keys")
    desk.new_channel(witness)
    async with desk.running(start=False):
        make(desk.copy / "keys", 0o700, "x", "y")
        await desk.compared()
        asked = desk.pending()
        assert {path: action(one).folders for path, one in asked.items()} == {
            "keys/x": KEYS,
            "keys/y": KEYS,
        }
        assert (
            "also makes the folder keys with mode 700"
            in (await desk.channel.card(asked["keys/x"])).notes
        )
        assert '"folders":[{"path":"keys","mode":448}]' in (
            desk.data / "audit.log"
        ).read_text().replace(" ", "")
        for path in ("keys/x", "keys/y"):
            desk.approve(asked[path])
            assert (await desk.settled(asked[path])).outcome["ok"]  # type: ignore[index]
            await brought(desk)
            await desk.compared()  # the folder is there by now: nothing is asked anew for that
        assert witness.seen == {0o700}
        assert len(desk.requests()) == 2


async def test_denied_nothing_of_it_is_there(desk: Desk) -> None:
    async with desk.running(start=False):
        make(desk.copy / "keys", 0o700, "x")
        make(desk.copy / "closed/keys", 0o700, "x")
        await desk.compared()
        desk.deny(desk.pending()["keys/x"])
        await desk.compared()
        assert not desk.pending()
        assert not (desk.host / "keys").exists()
        assert not (desk.host / "closed/keys").exists()
        (desk.copy / "keys").chmod(0o755)  # another question
        await desk.compared()
        assert action(desk.pending()["keys/x"]).folders == ()


async def test_each_of_several_has_its_own_whatever_comes_in_it(desk: Desk) -> None:
    async with desk.running(start=False):
        make(desk.copy / "a/b/c", 0o700, "x")
        (desk.copy / "a").chmod(0o711)
        make(desk.copy / "l", 0o2750)
        (desk.copy / "l/link").symlink_to("x")
        make(desk.copy / "e/empty", 0o705)
        (desk.copy / "e").chmod(0o1700)
        make(desk.copy / "r/new", 0o770)
        (desk.copy / "src/app.py").rename(desk.copy / "r/new/app.py")
        await desk.approve_all()
        for name, expected in {
            "a": 0o711,
            "a/b": 0o777,
            "a/b/c": 0o700,
            "l": 0o750,
            "e": 0o700,
        }.items():
            assert mode(desk.host / name) == expected, name
        assert (mode(desk.host / "e/empty"), mode(desk.host / "r/new")) == (0o705, 0o770)
        assert (desk.host / "r/new/app.py").exists()
        made = {
            action(one).operation: [folder.path for folder in action(one).folders]
            for one in desk.requests()
        }
        assert made == {
            "write": ["a", "a/b/c"],
            "symlink": ["l"],
            "mkdir": ["e"],
            "rename": ["r/new"],
        }
        await brought(desk)
        await desk.compared()
        assert len(desk.requests()) == 4


@pytest.mark.parametrize(("first", "then"), [(0o700, 0o755), (0o755, 0o700), (0o700, 0o750)])
async def test_changed_before_the_answer_it_is_asked_anew(
    desk: Desk, first: int, then: int
) -> None:
    async with desk.running(start=False):
        make(desk.copy / "keys", first, "x")
        await desk.compared()
        before = desk.pending()["keys/x"]
        (desk.copy / "keys").chmod(then)
        async with desk.channel._turn:  # what the watcher would have it look at
            await desk.channel._now.comparison.run({""})
        now = desk.pending()["keys/x"]
        assert now.id != before.id
        assert status(desk.gate.queue.get(before.id)) == "superseded"
        assert action(now).folders == (
            () if then == 0o755 else (NewFolder(path="keys", mode=then),)
        )
        await desk.approve_all()
        assert mode(desk.host / "keys") == (0o777 if then == 0o755 else then)


async def test_changed_while_it_is_carried_out_it_is_one_more_request(desk: Desk) -> None:
    def at(step: str) -> None:
        if step == "placed":
            (desk.copy / "keys").chmod(0o700)

    desk.new_channel(at)
    async with desk.running(start=False):
        make(desk.copy / "keys", 0o755, "x")
        await desk.compared()
        request = desk.pending()["keys/x"]
        desk.approve(request)
        await desk.settled(request)
        await desk.compared()
        (asked,) = desk.pending().values()
        assert (action(asked).operation, action(asked).path, action(asked).mode) == (
            "chmod",
            "keys",
            0o700,
        )


async def test_a_folder_that_keeps_out_its_owner_is_shut_when_it_is_full(desk: Desk) -> None:
    async with desk.running(start=False):
        make(desk.copy / "free/ro", 0o500, "x", "y")
        await desk.compared()
        assert (mode(desk.host / "free/ro"), len(list((desk.host / "free/ro").iterdir()))) == (
            0o700,
            2,
        )
        await desk.compared()
        assert mode(desk.host / "free/ro") == 0o500
        assert [action(one).operation for one in desk.requests()] == ["write", "write", "chmod"]


async def test_made_anew_with_others_is_asked_about(desk: Desk) -> None:
    async with desk.running(start=False):
        await desk.compared()
        (desk.copy / "src/util.py").unlink()
        (desk.copy / "src/app.py").rename(desk.copy / "app.py")
        (desk.copy / "src").rmdir()
        (desk.copy / "src").mkdir(mode=0o700)
        (desk.copy / "src/secret").write_text("x")
        await desk.compared()
        assert action(desk.pending()["src"]).mode == 0o700


@pytest.mark.parametrize("theirs", [0o755, 0o700])
async def test_what_the_person_made_there_is_not_more_open_than_was_shown(
    desk: Desk, theirs: int
) -> None:
    async with desk.running(start=False):
        make(desk.copy / "keys", 0o700, "x")
        await desk.compared()
        request = desk.pending()["keys/x"]
        (desk.host / "keys").mkdir()
        (desk.host / "keys").chmod(theirs)
        desk.approve(request)
        done = await desk.settled(request)
        assert done.outcome is not None
        assert done.outcome["ok"] is (theirs == 0o700)
        assert (mode(desk.host / "keys"), (desk.host / "keys/x").exists()) == (
            theirs,
            theirs == 0o700,
        )


async def test_taken_back_and_brought_back(desk: Desk) -> None:
    witness = Witness(desk.host / "keys/in")
    desk.new_channel(witness)
    async with desk.running(start=False):
        make(desk.copy / "keys/in", 0o711, "x")
        (desk.copy / "keys").chmod(0o700)
        await desk.approve_all()
        async with desk.channel.undoing() as undo:
            plan = await undo.plan(Selection())
            done = await undo.carry_out(Selection(), token=plan.token, by="tester")
            assert not (desk.host / "keys").exists()
            last = Selection(ids=(done.undo,))
            plan = await undo.plan(last)
            await undo.carry_out(last, token=plan.token, by="tester")
        assert (mode(desk.host / "keys"), mode(desk.host / "keys/in")) == (0o700, 0o711)
        assert (desk.host / "keys/in/x").read_text() == "secret\n"
        assert witness.seen == {0o711}


async def test_what_is_asked_for_by_the_api_has_them_too(desk: Desk) -> None:
    async with desk.running(start=False):
        await desk.compared()
        make(desk.copy / "free/keys", 0o700)
        await desk.settled(await desk.channel.write("free/keys/x", b"secret\n", ""))
        assert mode(desk.host / "free/keys") == 0o700
        make(desk.copy / "keys", 0o700)
        request = await desk.channel.move("src/app.py", "keys/app.py", "")
        assert action(request).folders == KEYS
        desk.approve(request)
        await desk.settled(request)
        assert mode(desk.host / "keys") == 0o700
        await desk.settled(
            await desk.channel.write("free/other/x", b"public\n", "")
        )  # the copy has no such folder
        assert mode(desk.host / "free/other") == 0o777


async def test_the_persons_new_folder_has_them_in_the_copy(desk: Desk) -> None:
    async with desk.running(start=False):
        await desk.compared()
        make(desk.host / "mine/in", 0o750, "x")
        (desk.host / "mine").chmod(0o700)
        await brought(desk)
        assert (mode(desk.copy / "mine"), mode(desk.copy / "mine/in")) == (0o700, 0o750)
        assert (desk.copy / "mine/in/x").read_text() == "secret\n"
        await desk.compared()
        assert not desk.requests()
