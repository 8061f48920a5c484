"""What the agent asks of files through its API: deletions, writes and moves. The real channel,
gate and files."""

import asyncio
import os
import random

import pytest

from supervisor.core.actions import FileChange, content_hash
from supervisor.core.approvals import Request, explanation, status
from supervisor.core.files.changes import MOST_EDITED_CHARS
from supervisor.core.files.undo_steps import Selection
from supervisor.errors import GatehouseError, RefusedError, UserError
from supervisor.workspace.apply.agent_changes import MOVED
from tests.workspace.conftest import Desk

APP = "src/app.py"
TEXT = "one = 1\ntwo = 2\nthree = 3\n"
FREE = """\
version: 1
allow: ["filesystem(src/**)", "filesystem(lib/**)", "filesystem(free/**)"]
deny: ["filesystem(closed/**)"]
"""


async def done(desk: Desk, request: Request) -> Request:
    """Approved by the person, and carried out."""
    desk.approve(request)
    settled = await desk.settled(request)
    assert settled.outcome is not None, explanation(settled)
    return settled


def change(request: Request) -> FileChange:
    assert isinstance(request.action, FileChange)
    return request.action


async def undo_all(desk: Desk) -> None:
    async with desk.channel.undoing() as undo:
        plan = await undo.plan(Selection())
        await undo.carry_out(Selection(), token=plan.token, by="tester")


# -- delete ---------------------------------------------------------------------------------------


async def test_delete_removes_the_file_on_both_sides_and_is_undone(desk: Desk) -> None:
    async with desk.running():
        request = await desk.channel.delete(APP, "unused")
        assert (status(request), request.reason, change(request).before) == (
            "pending",
            "unused",
            content_hash(TEXT.encode()),
        )
        assert (desk.host / APP).exists()
        card = await desk.channel.card(request)
        assert (card.operation, card.diff.removed) == ("delete", 3)
        settled = await done(desk, request)
        assert settled.outcome["copy"] == "changed too"
        assert not (desk.host / APP).exists()
        assert not (desk.copy / APP).exists()
        await desk.compared()
        assert len(desk.requests()) == 1
        await undo_all(desk)
        assert (desk.host / APP).read_text() == TEXT


async def test_delete_of_a_link_and_of_an_empty_folder(desk: Desk) -> None:
    (desk.host / "link").symlink_to("src/app.py")
    (desk.host / "empty").mkdir()
    async with desk.running():
        for name in ("link", "empty"):
            assert (await done(desk, await desk.channel.delete(name, ""))).outcome["ok"]
            assert not os.path.lexists(desk.host / name)
            assert not os.path.lexists(desk.copy / name)
        assert (desk.host / APP).read_text() == TEXT
        await desk.compared()
        assert len(desk.requests()) == 2


async def test_a_folder_that_holds_something_is_never_deleted(desk: Desk) -> None:
    (desk.host / "empty").mkdir()
    async with desk.running():
        with pytest.raises(UserError, match="delete the files in it one by one"):
            await desk.channel.delete("src", "")
        assert desk.requests() == []
        request = await desk.channel.delete("empty", "")
        (desk.host / "empty/theirs").write_text("person\n")
        settled = await done(desk, request)
        assert not settled.outcome["ok"]
        assert (desk.host / "empty/theirs").read_text() == "person\n"


async def test_a_deletion_of_what_the_person_changed_is_refused(desk: Desk) -> None:
    async with desk.running():
        request = await desk.channel.delete(APP, "")
        async with desk.channel._turn:
            (desk.host / APP).write_text("person\n")
            desk.approve(request)
        settled = await desk.settled(request)
        assert "stale" in explanation(settled)
        assert content_hash(b"person\n") in explanation(settled)
        assert (desk.host / APP).read_text() == "person\n"


async def test_no_rule_deletes_or_moves_what_the_session_never_saw(desk: Desk) -> None:
    async with desk.running():
        async with desk.channel._turn:
            (desk.host / "free/a.txt").write_text("person\n")
            agent = (await desk.channel._open()).agent
            deleting = await agent.delete("free/a.txt", "")
            assert (status(deleting), change(deleting).hazards) == ("pending", ("conflict",))
            moving = await agent.move("free/a.txt", "free/b.txt", "")
            assert (status(moving), change(moving).hazards) == ("pending", ("conflict",))
        assert (desk.host / "free/a.txt").read_text() == "person\n"


async def test_what_waits_to_be_made_is_not_made_after_its_deletion(desk: Desk) -> None:
    async with desk.running():
        made = await desk.channel.write("fresh.py", b"x\n", "")
        closed = await desk.channel.delete("fresh.py", "")
        assert closed.id == made.id
        assert status(closed) == "expired"
        with pytest.raises(UserError, match="no such file"):
            await desk.channel.delete("fresh.py", "")


async def test_a_deletion_keeps_what_the_agent_wrote_in_its_copy(desk: Desk) -> None:
    async with desk.running():
        async with desk.channel._turn:
            (desk.copy / APP).write_text("own\n")
            request = await (await desk.channel._open()).agent.delete(APP, "")
            desk.approve(request)
        settled = await desk.settled(request)
        assert "left as it was" in settled.outcome["copy"]
        assert not (desk.host / APP).exists()
        assert (desk.copy / APP).read_text() == "own\n"
        again = await desk.asked(APP)
        assert (change(again).operation, change(again).before) == ("write", None)


# -- write ----------------------------------------------------------------------------------------


async def test_a_folder_is_never_written_over(desk: Desk) -> None:
    """Swapped for the new file, it would be under a temporary name with all that is in it."""
    async with desk.running():
        with pytest.raises(UserError, match="it is a folder"):
            await desk.channel.write("src", b"flat\n", "because")
        (desk.host / "build").mkdir()  # ignored: the session doesn't know of it, and isn't told
        (desk.host / "build/mine.txt").write_text("mine\n")
        request = await desk.channel.write("build", b"flat\n", "because")
        failed = await done(desk, request)
        assert not failed.outcome["ok"]
        assert "is a folder on the host; nothing was changed" in failed.outcome["error"]
        assert (desk.host / "build/mine.txt").read_text() == "mine\n"
        assert (desk.host / "src/app.py").read_text() == TEXT
        assert not list(desk.host.rglob(".gatehouse-*"))


# -- move -----------------------------------------------------------------------------------------


async def test_move_keeps_the_file_itself_and_is_undone_as_one(desk: Desk) -> None:
    os.utime(desk.host / APP, ns=(10**18, 10**18))
    (desk.host / APP).chmod(0o750)
    async with desk.running():
        inode = (desk.host / APP).stat().st_ino
        request = await desk.channel.move(APP, "lib/new/main.py", "better name")
        action = change(request)
        assert (action.operation, action.path, action.to) == ("rename", APP, "lib/new/main.py")
        assert action.before == action.after == content_hash(TEXT.encode())
        card = await desk.channel.card(request)
        assert (card.content, card.is_stale) == ("none", False)
        settled = await done(desk, request)
        assert settled.outcome["copy"] == "changed too"
        for side in (desk.host, desk.copy):
            assert not (side / APP).exists()
            assert (side / "lib/new/main.py").read_text() == TEXT
        moved = (desk.host / "lib/new/main.py").stat()
        assert (moved.st_ino, moved.st_mtime_ns, moved.st_mode & 0o777) == (inode, 10**18, 0o750)
        await desk.compared()
        assert len(desk.requests()) == 1
        await undo_all(desk)
        assert (desk.host / APP).read_text() == TEXT
        back = (desk.host / APP).stat()
        assert (back.st_mtime_ns, back.st_mode & 0o777) == (10**18, 0o750)
        assert not (desk.host / "lib").exists()


async def test_a_move_is_never_over_anything(desk: Desk) -> None:
    async with desk.running():
        for taken in ("src/util.py", "src", "README.md/x"):
            with pytest.raises(GatehouseError):
                await desk.channel.move(APP, taken, "")
        with pytest.raises(UserError, match="where it is"):
            await desk.channel.move(APP, "./src//app.py", "")
        with pytest.raises(UserError, match="folder"):
            await desk.channel.move("src", "lib", "")
        assert desk.requests() == []
        request = await desk.channel.move(APP, "src/new.py", "")
        async with desk.channel._turn:
            (desk.host / "src/new.py").write_text("person\n")
            assert (await desk.channel.card(request)).is_stale
            desk.approve(request)
        assert "something at `src/new.py`" in explanation(await desk.settled(request))
        assert (desk.host / APP).read_text() == TEXT
        assert (desk.host / "src/new.py").read_text() == "person\n"


async def test_the_last_moments_save_is_never_lost_by_a_move(desk: Desk) -> None:
    """The person saves by rename between the look and the move, or makes the new path."""
    saved = {"checked": "src/new.py", "both intended": APP}

    for number, (when, what) in enumerate(saved.items()):
        to = f"src/new{number or ''}.py"

        def at(step: str, when: str = when, what: str = what) -> None:
            if step == when:
                (desk.host / "save").write_text("person\n")
                (desk.host / "save").rename(desk.host / what)

        desk.new_channel(at)
        async with desk.running(copy=number == 0):
            settled = await done(desk, await desk.channel.move(APP, to, ""))
            assert not settled.outcome["ok"]
            assert settled.outcome["stale"]
            assert (desk.host / what).read_text() == "person\n"
            assert (desk.host / APP).read_text() == ("person\n" if what == APP else TEXT)


async def test_what_was_saved_between_the_check_and_the_rename_goes_back(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    from supervisor.workspace.apply import moving

    real = moving.move_new
    calls: list[str] = []

    def racing(folder: int, leaf: str, to_folder: int, to_leaf: str) -> None:
        if not calls:
            (desk.host / "save").write_text("person\n")
            (desk.host / "save").rename(desk.host / APP)
        calls.append(to_leaf)
        real(folder, leaf, to_folder, to_leaf)

    monkeypatch.setattr(moving, "move_new", racing)
    async with desk.running():
        settled = await done(desk, await desk.channel.move(APP, "src/new.py", ""))
        assert settled.outcome["stale"]
        assert calls == ["new.py", "app.py"]
        assert (desk.host / APP).read_text() == "person\n"
        assert not (desk.host / "src/new.py").exists()


async def test_a_file_system_without_renameat2_moves_too(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    from supervisor.workspace.disk import swap

    def none(*_: object) -> None:
        raise OSError(errno.EINVAL, "not here")

    monkeypatch.setattr(swap, "_rename", none)
    async with desk.running():
        assert (await done(desk, await desk.channel.move(APP, "lib/a.py", ""))).outcome["ok"]
        assert (desk.host / "lib/a.py").read_text() == TEXT
        assert not (desk.host / APP).exists()


async def test_a_move_takes_the_agents_own_text_along(desk: Desk) -> None:
    async with desk.running():
        async with desk.channel._turn:
            (desk.copy / APP).write_text("own\n")
            request = await (await desk.channel._open()).agent.move(APP, "lib/app.py", "")
            desk.approve(request)
        await desk.settled(request)
        assert (desk.host / "lib/app.py").read_text() == TEXT
        assert (desk.copy / "lib/app.py").read_text() == "own\n"
        again = await desk.asked("lib/app.py")
        assert (change(again).operation, change(again).before) == (
            "write",
            content_hash(TEXT.encode()),
        )
        assert not os.path.lexists(desk.copy / APP)


async def test_a_move_whose_file_the_copy_lacks_is_brought(desk: Desk) -> None:
    async with desk.running():
        async with desk.channel._turn:
            (desk.copy / APP).unlink()
            request = await (await desk.channel._open()).agent.move(APP, "lib/app.py", "")
            desk.approve(request)
        came = (await desk.settled(request)).outcome["copy"]
        assert came == "changed too" if desk.is_overlay else "no such file" in came
        await desk.until(lambda: (desk.copy / "lib/app.py").exists())
        await desk.compared()
        assert not desk.pending()
        assert (desk.host / "lib/app.py").read_text() == TEXT


async def test_a_comparison_between_the_answer_and_the_move_leaves_no_card_behind(
    desk: Desk,
) -> None:
    """It asks about the old path, which the copy lacks; by the move it is gone on the host, too."""
    async with desk.running():
        async with desk.channel._turn:
            opened = await desk.channel._open()
            (desk.copy / APP).unlink()
            request = await opened.agent.move(APP, "lib/app.py", "")
            desk.approve(request)
            await opened.comparison.run(None)
            assert desk.pending()[APP].action.operation == "delete"  # type: ignore[union-attr]
        await desk.settled(request)
        await desk.compared()
        assert not desk.pending()
        assert (desk.host / "lib/app.py").read_text() == TEXT


# -- one request for each path --------------------------------------------------------------------


async def test_a_move_is_about_both_of_its_paths(desk: Desk) -> None:
    async with desk.running():
        edit = await desk.channel.edit(APP, "two = 2", "two = 22", False, "")
        other = await desk.channel.write("lib/x.py", b"x\n", "")
        move = await desk.channel.move(APP, "lib/x.py", "")
        for older in (edit, other):
            assert status(desk.gate.queue.get(older.id)) == "superseded"
            assert desk.gate.queue.get(older.id).superseded_by == move.id
            assert explanation(desk.gate.queue.get(older.id)) == MOVED
        second = await desk.channel.move("src/util.py", "lib/x.py", "")
        assert status(desk.gate.queue.get(move.id)) == "superseded"
        third = await desk.channel.write("lib/x.py", b"y\n", "")
        assert status(desk.gate.queue.get(second.id)) == "superseded"
        fourth = await desk.channel.move("src/util.py", "lib/y.py", "")
        fifth = await desk.channel.delete("src/util.py", "")
        assert status(desk.gate.queue.get(fourth.id)) == "superseded"
        assert {one.id for one in desk.pending().values()} == {third.id, fifth.id}


async def test_the_copys_own_change_supersedes_a_move_and_the_other_way_round(desk: Desk) -> None:
    async with desk.running():
        move = await desk.channel.move(APP, "lib/x.py", "")
        (desk.copy / "lib").mkdir()
        (desk.copy / "lib/x.py").write_text("own\n")
        own = await desk.asked("lib/x.py")
        assert status(desk.gate.queue.get(move.id)) == "superseded"
        again = await desk.channel.move(APP, "lib/x.py", "")
        assert status(desk.gate.queue.get(own.id)) == "superseded"
        assert again.id != move.id


# -- hostile --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["../outside", "/etc/passwd", ".git/config", "a/../../x", ".git", "closed/c.txt", "."]
)
async def test_paths_that_may_not_be_are_denied_on_record(desk: Desk, path: str) -> None:
    async with desk.running():
        requests = [
            await desk.channel.edit(path, "a", "b", False, ""),
            await desk.channel.delete(path, ""),
            await desk.channel.move(path, "new", ""),
            await desk.channel.move(APP, path, ""),
        ]
        assert [status(request) for request in requests] == ["denied"] * 4
        assert all(request.why for request in requests)
        assert len(desk.requests()) == 4
        assert (desk.host / APP).read_text() == TEXT


async def test_a_way_over_a_symlink_is_refused_on_record(desk: Desk) -> None:
    outside = desk.data.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("s\n")
    (desk.host / "way").symlink_to(outside)
    async with desk.running():
        for ask in (
            desk.channel.write("way/secret", b"x", ""),
            desk.channel.edit("way/secret", "s", "x", False, ""),
            desk.channel.delete("way/secret", ""),
            desk.channel.move("way/secret", "mine", ""),
            desk.channel.move(APP, "way/new", ""),
        ):
            with pytest.raises(RefusedError, match="symlink"):
                await ask
        assert "symlink" in desk.refusals()["way/secret"]
        assert list(outside.iterdir()) == [outside / "secret"]


async def test_a_file_that_the_copy_was_never_given_can_not_be_spelled_out(desk: Desk) -> None:
    (desk.host / "secret.log").write_text("password=hunter2\n")
    async with desk.running():
        errors = set()
        for old in ("password", "s", "nothing", "password=hunter2\n"):
            with pytest.raises(UserError) as caught:
                await desk.channel.edit("secret.log", old, "x", False, "")
            errors.add(str(caught.value).replace("secret.log", "NAME"))
        with pytest.raises(UserError) as caught:
            await desk.channel.edit("nowhere.log", "x", "y", False, "")
        assert errors == {str(caught.value).replace("nowhere.log", "NAME")}
        for ask in (
            desk.channel.delete("secret.log", ""),
            desk.channel.move("secret.log", "free/mine", ""),
        ):
            with pytest.raises(UserError, match="no such file"):
                await ask
        request = await desk.channel.write("secret.log", b"x", "")
        async with desk.channel._turn:
            (desk.host / "secret.log").write_text("1234\n")
            desk.approve(request)
        assert content_hash(b"1234\n") not in explanation(await desk.settled(request))


async def test_what_is_no_text_and_what_is_too_much(desk: Desk) -> None:
    raw = b"\xff\xfe one \x00 two \x80\n"
    (desk.host / "raw.bin").write_bytes(raw)
    (desk.host / "many.txt").write_text("a" * 10_000_000)
    async with desk.running():
        await done(desk, await desk.channel.edit("raw.bin", " two ", " ZWEI ", False, ""))
        assert (desk.host / "raw.bin").read_bytes() == raw.replace(b"two", b"ZWEI")
        with pytest.raises(UserError, match="isn't in the file"):
            await desk.channel.edit("raw.bin", "q" * 8_000_000, "x", False, "")
        with pytest.raises(UserError, match="million characters"):
            await desk.channel.edit("many.txt", "a", "b" * 8_000_000, True, "")
        request = await desk.channel.edit("many.txt", "a", "b", True, "")
        assert MOST_EDITED_CHARS > 10_000_000
        await done(desk, request)
        assert (desk.host / "many.txt").read_text() == "b" * 10_000_000


async def test_races_over_one_file_end_in_one_state(desk: Desk) -> None:
    """Edits, writes, deletions and moves of one file, by rule and by hand, all at once, while
    the person approves."""
    draw = random.Random(7)
    said: list[str] = []
    async with desk.running():

        async def agent(number: int) -> None:
            channel = desk.channel
            for _ in range(6):
                ask = draw.choice(
                    (
                        lambda: channel.edit(APP, "two", "two", False, ""),
                        lambda: channel.edit(APP, "= 2", f"= {number}2", False, ""),
                        lambda: channel.write(APP, TEXT.encode() + b"%d\n" % number, ""),
                        lambda: channel.delete(APP, ""),
                        lambda: channel.move(APP, f"lib/{number}.py", ""),
                        lambda: channel.move(f"lib/{number}.py", APP, ""),
                    )
                )
                try:
                    await ask()
                except GatehouseError as error:
                    said.append(str(error))
                if draw.random() < 0.5:
                    for request in desk.pending().values():
                        try:
                            desk.approve(request)
                        except UserError as error:  # another was first
                            said.append(str(error))

        async with asyncio.TaskGroup() as tasks:
            for number in range(4):
                tasks.create_task(agent(number))
        assert all(text and "\n" not in text for text in said)
        touched: list[str] = []
        for request in desk.pending().values():
            touched += [change(request).path, *filter(None, [change(request).to])]
        assert len(touched) == len(set(touched))
        for request in desk.requests():
            if status(request) in ("approved", "used"):
                await desk.settled(request)
        assert not list(desk.host.rglob(".gatehouse-*"))
        async with desk.channel.undoing() as undo:
            rows = undo.timeline().rows
        if rows:
            await undo_all(desk)
        assert (desk.host / APP).read_text() == TEXT
        assert not (desk.host / "lib").exists()
