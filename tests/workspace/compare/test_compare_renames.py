"""A file that has another name in the copy is one request: asked, judged, applied, refused and
taken back as one."""

import contextlib
import os
import shutil
from pathlib import Path

import pytest

from supervisor.core.actions import FileChange, fingerprint
from supervisor.core.approvals import Request, status
from supervisor.core.files.change_tree import Waiting
from supervisor.core.files.changes import names_of
from supervisor.core.files.undo_steps import Selection
from supervisor.errors import UserError
from supervisor.workspace.compare import compare
from tests.fakes.gated import answer_all
from tests.workspace.conftest import Desk, make_repository
from tests.workspace.undo.test_undo import plan, tree, undo

APP, NEW = "src/app.py", "lib/main.py"


def moved(desk: Desk, old: str = APP, new: str = NEW) -> None:
    (desk.copy / new).parent.mkdir(parents=True, exist_ok=True)
    shutil.move(desk.copy / old, desk.copy / new)  # an overlay has no rename of a host's folder


def waiting(desk: Desk) -> list[tuple[str, str, str | None]]:
    """What is asked: operation, path, and where to."""
    actions = [request.action for request in desk.pending().values()]
    return sorted(
        (one.operation, one.path, one.to) for one in actions if isinstance(one, FileChange)
    )


async def asked_once(desk: Desk, old: str = APP, new: str = NEW) -> Request:
    """The one request that waits, which is a rename."""
    await desk.compared()
    assert waiting(desk) == [("rename", old, new)]
    (request,) = desk.pending().values()
    return request


async def test_a_rename_is_one_request_and_one_card(desk: Desk) -> None:
    async with desk.running():
        inode = (desk.host / APP).stat().st_ino
        moved(desk)
        request = await asked_once(desk)
        assert isinstance(request.action, FileChange)
        assert Waiting(request.id, "", 0.0, request.action, False).what == "renamed"
        card = await desk.channel.card(request)
        assert (card.path, card.operation, card.content, card.is_stale) == (
            APP,
            "rename",
            "none",
            False,
        )
        desk.approve(request)
        assert (await desk.settled(request)).outcome["ok"]
        assert not (desk.host / APP).exists()
        assert (desk.host / NEW).stat().st_ino == inode
        await desk.compared()
        assert len(desk.requests()) == 1
        # Both sides agree on it: the person's next edit reaches the copy, the agent's next one is
        # asked about.
        (desk.host / NEW).write_text("person\n")
        await desk.until(lambda: (desk.copy / NEW).read_text() == "person\n")
        (desk.copy / NEW).write_text("agent\n")
        assert (await desk.asked(NEW)).action.operation == "write"  # type: ignore[union-attr]


LATIN, OTHER = os.fsdecode(b"src/caf\xe9.py"), os.fsdecode(b"src/na\xefve \xff.py")


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        (APP, LATIN, (APP, "src/caf\\xe9.py")),
        (LATIN, APP, ("src/caf\\xe9.py", APP)),
        (LATIN, OTHER, ("src/caf\\xe9.py", "src/na\\xefve \\xff.py")),
    ],
)
async def test_names_that_are_not_utf8_are_renamed_like_any(
    desk: Desk, old: str, new: str, shown: tuple[str, str]
) -> None:
    (desk.host / "src/app.py").rename(desk.host / old)
    # What would be hit if the name that is shown were taken for the name.
    (desk.host / "src/caf\\xe9.py").write_text("another file\n")
    before = tree(desk.host)
    async with desk.running():
        (desk.copy / old).rename(desk.copy / new)
        request = await asked_once(desk, *shown)
        assert isinstance(request.action, FileChange)
        assert names_of(request.action) == (old, new)
        assert fingerprint(request.action) == request.fingerprint
        assert not (await desk.channel.card(request)).is_stale
        desk.approve(request)
        assert (await desk.settled(request)).outcome["ok"]
        assert [os.path.lexists(desk.host / name) for name in (old, new)] == [False, True]
        await desk.compared()
        assert len(desk.requests()) == 1
        await undo(desk, Selection(ids=(request.id,)))
        assert tree(desk.host) == before


async def test_no_rule_allows_a_rename_to_a_name_that_is_not_utf8(desk: Desk) -> None:
    async with desk.running():
        moved(desk, "free/a.txt", os.fsdecode(b"free/caf\xe9"))
        request = await asked_once(desk, "free/a.txt", "free/caf\\xe9")
        assert "isn't UTF-8" in request.why
        (desk.host / os.fsdecode(b"free/caf\xe9")).write_text("the person's\n")
        desk.approve(request)
        assert not (await desk.settled(request)).outcome["ok"]
        assert (desk.host / os.fsdecode(b"free/caf\xe9")).read_text() == "the person's\n"


async def test_taken_back_like_any_change(desk: Desk) -> None:
    (desk.host / APP).chmod(0o755)
    before = tree(desk.host)
    async with desk.running():
        moved(desk)
        request = await asked_once(desk)
        desk.approve(request)
        await desk.settled(request)
        shown = await plan(desk, Selection(ids=(request.id,)))
        assert {(file.name, file.doing) for file in shown.files} == {
            (NEW, "removed"), ("lib", "removed"), (APP, "brought back"),
        }  # fmt: skip
        done = await undo(desk, Selection(ids=(request.id,)))
        assert tree(desk.host) == before
        await desk.compared()
        assert desk.pending() == {}
        await undo(desk, Selection(ids=(done.undo,)))
        assert (desk.host / NEW).exists()
        assert not (desk.host / APP).exists()


async def test_a_folder_of_many_files(desk: Desk) -> None:
    names = [f"{number % 7}/{number}.txt" for number in range(compare.CHUNK + 20)]
    for name in names:
        (desk.host / "many" / name).parent.mkdir(parents=True, exist_ok=True)
        (desk.host / "many" / name).write_text(
            "all the same\n" if int(Path(name).stem) % 2 else f"{name}\n"
        )
    for number in range(7):
        (desk.host / f"many/{number}/__init__.py").touch()
    before = tree(desk.host)
    async with desk.running():
        shutil.move(desk.copy / "many", desk.copy / "other")
        await desk.compared()
        wanted = [*names, *(f"{number}/__init__.py" for number in range(7))]
        assert waiting(desk) == sorted(
            ("rename", f"many/{name}", f"other/{name}") for name in wanted
        )
        answered = answer_all(
            desk.gate, [one.id for one in desk.pending().values()], "approved", by="tester"
        )
        for request in answered:
            assert (await desk.settled(request)).outcome["ok"]
        assert not (desk.host / "many").exists()
        assert tree(desk.host / "other") == tree(desk.copy / "other")
        await desk.compared()
        assert desk.pending() == {}
        await undo(desk)
        assert tree(desk.host) == before


async def test_what_was_edited_on_the_way_is_two_changes(desk: Desk) -> None:
    async with desk.running():
        moved(desk)
        (desk.copy / NEW).write_text("other\n")
        await desk.compared()
        assert waiting(desk) == [("delete", APP, None), ("write", NEW, None)]


async def test_the_mode_counts_too(desk: Desk) -> None:
    async with desk.running():
        moved(desk)
        (desk.copy / NEW).chmod(0o755)
        await desk.compared()
        assert waiting(desk) == [("delete", APP, None), ("write", NEW, None)]
        assert "new-executable" in desk.pending()[NEW].action.hazards  # type: ignore[union-attr]


async def test_a_hard_link_is_no_rename(desk: Desk) -> None:
    async with desk.running():
        moved(desk, APP, NEW)
        os.link(desk.copy / NEW, desk.copy / "lib/again.py")
        await desk.compared()
        assert {operation for operation, _, _ in waiting(desk)} == {"delete", "write"}
        assert len(waiting(desk)) == 3


async def test_a_copy_beside_it_is_a_creation(desk: Desk) -> None:
    """Two new files with the content of the old one: the nearer name is the rename, the same
    every time."""
    async with desk.running():
        text = (desk.copy / APP).read_text()
        (desk.copy / APP).unlink()
        for name in ("other.py", "lib/app.py"):
            (desk.copy / name).parent.mkdir(exist_ok=True)
            (desk.copy / name).write_text(text)
        for _ in range(2):
            await desk.compared()
            assert waiting(desk) == [("rename", APP, "lib/app.py"), ("write", "other.py", None)]
        await desk.approve_all()
        assert (
            (desk.host / "lib/app.py").read_text() == (desk.host / "other.py").read_text() == text
        )


async def test_rules_judge_both_paths(desk: Desk) -> None:
    async with desk.running():
        # Allowed where both are.
        moved(desk, "free/a.txt", "free/new/b.txt")
        await desk.until(lambda: (desk.host / "free/new/b.txt").exists())
        await desk.until(lambda: not (desk.host / "free/a.txt").exists())
        assert [one.action.operation for one in desk.requests()] == ["rename"]  # type: ignore[union-attr]
        await desk.until(lambda: all(one.settled_at for one in desk.requests()))
        # Asked where one is.
        moved(desk, "free/new/b.txt", "plain.txt")
        await asked_once(desk, "free/new/b.txt", "plain.txt")


async def test_a_denied_end_leaves_the_other_half_judged_for_itself(desk: Desk) -> None:
    async with desk.running():
        moved(desk, "closed/c.txt", "free/c.txt")
        await desk.until(lambda: (desk.host / "free/c.txt").exists())
        await desk.compared()
        (denied,) = desk.requests("closed/c.txt")
        assert (status(denied), denied.action.operation) == ("denied", "delete")  # type: ignore[union-attr]
        assert (desk.host / "closed/c.txt").exists()


async def test_an_executable_stays_one_without_a_new_bit(desk: Desk) -> None:
    (desk.host / "free/run.sh").write_text("#!/bin/sh\n")
    (desk.host / "free/run.sh").chmod(0o755)
    async with desk.running():
        moved(desk, "free/run.sh", "free/go.sh")
        await desk.until(lambda: (desk.host / "free/go.sh").exists())
        assert (desk.host / "free/go.sh").stat().st_mode & 0o777 == 0o755


async def test_it_stays_one_request_whatever_is_looked_at(desk: Desk) -> None:
    async with desk.running():
        moved(desk)
        request = await asked_once(desk)
        (desk.copy / "src/other.py").write_text("wakes the old folder\n")
        await desk.asked("src/other.py")
        (desk.copy / "lib/other.py").write_text("wakes the new folder\n")
        await desk.asked("lib/other.py")
        assert desk.pending()[APP].id == request.id
        assert NEW not in desk.pending()


async def test_what_was_asked_as_two_stays_two(desk: Desk) -> None:
    """Copied first, deleted much later: the cards that a person may be reading aren't taken
    away."""
    async with desk.running():
        (desk.copy / "again.py").write_bytes((desk.copy / APP).read_bytes())
        first = await desk.asked("again.py")
        (desk.copy / APP).unlink()
        await desk.asked(APP)
        await desk.compared()
        assert waiting(desk) == [("delete", APP, None), ("write", "again.py", None)]
        assert desk.pending()["again.py"].id == first.id


async def test_renamed_again_edited_and_moved_back(desk: Desk) -> None:
    async with desk.running():
        moved(desk, APP, "second.py")
        first = await asked_once(desk, APP, "second.py")
        moved(desk, "second.py", "third.py")
        second = await asked_once(desk, APP, "third.py")
        assert status(desk.gate.queue.get(first.id)) == "superseded"
        (desk.copy / "third.py").write_text("edited\n")
        await desk.compared()
        assert waiting(desk) == [("delete", APP, None), ("write", "third.py", None)]
        assert status(desk.gate.queue.get(second.id)) == "superseded"
        (desk.copy / "third.py").unlink()
        (desk.copy / APP).write_bytes((desk.host / APP).read_bytes())
        await desk.compared()
        assert desk.pending() == {}


async def test_denied_it_is_not_asked_again_until_it_is_another(desk: Desk) -> None:
    async with desk.running():
        moved(desk, APP, "second.py")
        desk.deny(await asked_once(desk, APP, "second.py"))
        for _ in range(2):
            await desk.compared()
            assert desk.pending() == {}
        moved(desk, "second.py", "third.py")
        await asked_once(desk, APP, "third.py")


@pytest.mark.parametrize("how", ["edited", "deleted", "taken"])
async def test_what_the_person_did_meanwhile_is_never_lost(desk: Desk, how: str) -> None:
    async with desk.running():
        moved(desk)
        request = await asked_once(desk)
        path = desk.host / (NEW if how == "taken" else APP)
        path.parent.mkdir(exist_ok=True)
        path.unlink() if how == "deleted" else path.write_text("person\n")
        async with desk.channel._turn:
            with contextlib.suppress(
                UserError
            ):  # it was heard of before, and another card is there now
                desk.approve(request)
        await desk.settled(request)
        if how != "deleted":
            assert path.read_text() == "person\n"
        await desk.compared()
        for one in desk.pending().values():
            assert isinstance(one.action, FileChange)
            assert one.action.operation != "rename"
            assert how == "deleted" or one.action.path not in (APP,
            NEW) or "conflict" in one.action.hazards or one.action.before in (None,
            request.action.before)  # type: ignore[union-attr]  # fmt: skip


async def test_deleted_by_the_agent_before_it_was_carried_out(desk: Desk) -> None:
    async with desk.running():
        moved(desk)
        request = await asked_once(desk)
        async with desk.channel._turn:
            (desk.copy / NEW).unlink()
            desk.approve(request)
        await desk.settled(request)
        await desk.compared()
        # The person said yes to the rename; that the file is gone since is another question.
        await desk.until(lambda: (desk.host / NEW).exists() == (NEW in desk.pending()))
        await desk.approve_all()
        assert not (desk.host / APP).exists()
        assert not (desk.host / NEW).exists()


async def test_no_snapshot_is_made_of_what_the_host_has(desk: Desk, tmp_path: Path) -> None:
    (desk.host / "large.bin").write_bytes(os.urandom(2 << 20))
    async with desk.running():
        moved(desk, "large.bin", "moved.bin")
        request = await asked_once(desk, "large.bin", "moved.bin")
        assert desk.channel._now.sides.blobs.size(request.action.after or "") is None  # type: ignore[union-attr]
        desk.approve(request)
        await desk.settled(request)
        assert (desk.host / "moved.bin").read_bytes() == (desk.copy / "moved.bin").read_bytes()


async def test_where_the_inbox_is_full_it_waits_as_one(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    from supervisor.records import approval_queue

    monkeypatch.setattr(approval_queue, "MOST_CHANGES_PER_SESSION", 1)
    async with desk.running():
        (desk.copy / "first.txt").write_text("1\n")
        first = await desk.asked("first.txt")
        moved(desk)
        await desk.compared()
        assert waiting(desk) == [("write", "first.txt", None)]
        desk.deny(first)
        await desk.compared()
        assert waiting(desk) == [("rename", APP, NEW)]


async def test_one_that_can_not_be_done_keeps_the_others_of_its_answer(tmp_path: Path) -> None:
    """All that was answered at once, or nothing: with a rename that has become impossible,
    nothing."""
    desk = Desk(
        tmp_path / "data", make_repository(tmp_path / "host", {"a.txt": "a\n", "b.txt": "b\n"})
    )
    async with desk.running():
        (desk.copy / "a.txt").rename(desk.copy / "moved.txt")
        (desk.copy / "b.txt").write_text("changed\n")
        (desk.copy / "new.txt").write_text("new\n")
        await desk.compared()
        assert len(desk.pending()) == 3
        async with desk.channel._turn:
            (desk.host / "moved.txt").write_text("person\n")
            answered = answer_all(
                desk.gate, [one.id for one in desk.pending().values()], "approved", by="tester"
            )
        for request in answered:
            done = await desk.settled(request)
            assert done.outcome is not None
            assert not done.outcome["ok"]
        assert (desk.host / "a.txt").read_text() == "a\n"
        assert (desk.host / "b.txt").read_text() == "b\n"
        assert (desk.host / "moved.txt").read_text() == "person\n"
        assert not (desk.host / "new.txt").exists()
    desk.close()
