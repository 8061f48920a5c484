"""Undo over the real channel: what was applied is taken back exactly, or refused with the
reason, and nothing in between."""

import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.core.approvals import explanation, status
from supervisor.core.files.undo_steps import Selection
from supervisor.errors import GatehouseError, NotFoundError, StorageError, UserError
from supervisor.workspace.disk.host_errors import StaleError
from supervisor.workspace.undo.undo import MARK, UndoRefusedError
from supervisor.workspace.undo.undo_plan import UndoPlan
from tests.fakes.gated import answer_all
from tests.workspace.conftest import SESSION, Desk

ALL = Selection()

type Tree = dict[str, tuple[object, ...]]


def tree(folder: Path, *, times: bool = True) -> Tree:
    """Everything in a folder but git's own: kind and mode, content or target, and the times of
    files and links."""
    found: Tree = {}
    for path in below(folder):
        seen = path.lstat()
        mode = seen.st_mode
        content = (
            path.readlink()
            if stat.S_ISLNK(mode)
            else path.read_bytes()
            if stat.S_ISREG(mode)
            else None
        )
        time_ns = seen.st_mtime_ns if times and not stat.S_ISDIR(mode) else 0
        found[str(path.relative_to(folder))] = (mode, content, time_ns)
    return found


def below(folder: Path) -> Iterator[Path]:
    """All paths; folders that keep out their owner, too, who isn't kept out while it is looked
    into them."""
    for path in sorted(folder.iterdir()):
        if path.name == ".git":
            continue
        yield path
        mode = path.lstat().st_mode
        if not stat.S_ISDIR(mode):
            continue
        is_shut = mode & stat.S_IRWXU != stat.S_IRWXU
        if is_shut:
            path.chmod(stat.S_IMODE(mode) | stat.S_IRWXU)
        yield from below(path)
        if is_shut:
            path.chmod(stat.S_IMODE(mode))


async def plan(desk: Desk, selection: Selection = ALL, *, merge: bool = False) -> UndoPlan:
    async with desk.channel.undoing() as undo:
        return await undo.plan(selection, merge=merge)


async def undo(desk: Desk, selection: Selection = ALL, *, merge: bool = False) -> UndoPlan:
    """Look, and do what was shown."""
    shown = await plan(desk, selection, merge=merge)
    async with desk.channel.undoing() as undo:
        return await undo.carry_out(selection, token=shown.token, by="tester", merge=merge)


def events(desk: Desk, name: str) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in (desk.data / "audit.log").read_text().splitlines()]
    return [line for line in lines if line["event"] == name]


async def applied(desk: Desk) -> None:
    """Everything that the copy differs in is on the host."""
    await desk.approve_all()


async def test_everything_comes_back_exactly(desk: Desk) -> None:
    host = desk.host
    (host / "gone/deep").mkdir(parents=True)
    (host / "gone").chmod(0o750)
    (host / "gone/deep/old.bin").write_bytes(os.urandom(70_000))
    (host / "gone/deep/old.bin").chmod(0o600)
    (host / "run.sh").write_text("echo\n")
    (host / "run.sh").chmod(0o754)
    (host / "link").symlink_to("README.md")
    (host / "swap").write_text("a file\n")
    (host / "folder").mkdir()
    (host / "folder/in.txt").write_text("in\n")
    for number, path in enumerate(sorted(host.rglob("*"))):
        if ".git" not in path.parts:
            os.utime(
                path, ns=(1, 1_600_000_000_000_000_000 + number * 1_000_001), follow_symlinks=False
            )
    before = tree(host)
    async with desk.running():
        copy = desk.copy
        (copy / "src/app.py").write_text("changed\n")
        (copy / "new/er/file.txt").parent.mkdir(parents=True)
        (copy / "new/er/file.txt").write_text("new\n")
        (copy / "empty").mkdir()
        (copy / "gone/deep/old.bin").unlink()
        (copy / "gone/deep").rmdir()
        (copy / "gone").rmdir()
        (copy / "run.sh").chmod(0o644)
        (copy / "link").unlink()
        (copy / "link").symlink_to("src")
        (copy / "other-link").symlink_to("nowhere")
        (copy / "README.md").rename(copy / "READ.md")
        (copy / "swap").unlink()
        (copy / "swap").mkdir()
        (copy / "swap/inner.txt").write_text("inner\n")
        (copy / "folder/in.txt").unlink()
        (copy / "folder").rmdir()
        (copy / "folder").write_text("now a file\n")
        await applied(desk)
        changed = tree(host)
        assert (host / "swap/inner.txt").read_text() == "inner\n"
        assert (host / "folder").read_text() == "now a file\n"
        assert not (host / "gone").exists()
        done = await undo(desk)
        assert not done.problems
        assert tree(host) == before
        again = events(desk, "undo_started")[-1]
        await undo(desk, Selection(ids=(str(again["undo"]),)))
        assert tree(host, times=False) == {name: (*one[:2], 0) for name, one in changed.items()}
        await undo(desk)
        assert tree(host) == before


async def test_one_change_is_undone_and_the_rest_stays(desk: Desk) -> None:
    async with desk.running():
        for name in ("a", "b"):
            (desk.copy / f"free/{name}.txt").write_text(f"new {name}\n")
        await desk.until(lambda: len([r for r in desk.requests() if r.settled_at]) == 2)
        (request,) = desk.requests("free/a.txt")
        shown = await plan(desk, Selection(ids=(request.id,)))
        assert [(file.name, file.doing) for file in shown.files] == [("free/a.txt", "restored")]
        async with desk.channel.undoing() as it:
            card = it.card(shown.files[0])
        assert [(line.kind, line.text) for line in card.diff.hunks[0].lines] == [
            ("removed", "new a"),
            ("added", "a"),
        ]
        await undo(desk, Selection(ids=(request.id,)))
        assert (desk.host / "free/a.txt").read_text() == "a\n"
        assert (desk.host / "free/b.txt").read_text() == "new b\n"


async def test_the_copys_state_is_not_applied_again_until_the_agent_changes_it(desk: Desk) -> None:
    async with desk.running():
        (desk.copy / "free/a.txt").write_text("agent\n")
        (desk.copy / "free/fresh/new.txt").parent.mkdir()
        (desk.copy / "free/fresh/new.txt").write_text("agent\n")
        (desk.copy / "free/a.txt").chmod(0o600)
        await desk.until(lambda: (desk.host / "free/fresh/new.txt").exists())
        await desk.until(lambda: all(r.settled_at for r in desk.requests()))
        await applied(desk)
        (request, *_) = desk.requests("free/fresh/new.txt")
        number = len(desk.requests())
        async with desk.channel._turn:  # before what is incoming is looked at
            opened = await desk.channel._open()
            shown = await opened.undo.plan(ALL)
            await opened.undo.carry_out(ALL, token=shown.token, by="tester")
            await opened.comparison.run(None)
            await opened.comparison.run(None, last=True)
        assert (desk.host / "free/a.txt").read_text() == "a\n"
        assert not (desk.host / "free/fresh").exists()
        assert len(desk.requests()) == number
        told = desk.gate.queue.get(request.id)
        assert "taken back by tester" in explanation(told)
        (desk.copy / "free/a.txt").write_text("agent again\n")
        await desk.until(
            lambda: (desk.host / "free/a.txt").read_text() == "agent again\n" or desk.pending()
        )


async def test_after_an_undo_and_a_restart_nothing_is_applied_again(
    tmp_path: Path, host: Path
) -> None:
    desk = Desk(tmp_path / "data", host)
    async with desk.running():
        (desk.copy / "free/a.txt").write_text("agent\n")
        await desk.until(lambda: (host / "free/a.txt").read_text() == "agent\n")
        await desk.until(lambda: all(r.settled_at for r in desk.requests()))
        await undo(desk)
    desk.close()
    desk = Desk(tmp_path / "data", host)
    async with desk.running(copy=False, start=False):
        await desk.channel.final_pass("the end")
        await desk.compared()
    assert (host / "free/a.txt").read_text() == "a\n"
    desk.close()


async def test_a_file_that_the_person_edited_since_is_refused_by_name_and_nothing_is_undone(
    desk: Desk,
) -> None:
    async with desk.running():
        for name in ("src/app.py", "src/util.py", "README.md"):
            (desk.copy / name).write_text("agent\n")
        await applied(desk)
        (desk.host / "src/util.py").write_text("mine\n")
        (desk.host / "README.md").unlink()
        shown = await plan(desk)
        assert {file.name: file.problem for file in shown.problems} == {
            "src/util.py": "changed since by you or another session",
            "README.md": "deleted since by you or another session",
        }
        with pytest.raises(
            UndoRefusedError, match=r"`src/util.py`: changed since by you or another session"
        ):
            await undo(desk)
        assert (desk.host / "src/app.py").read_text() == "agent\n"
        assert (desk.host / "src/util.py").read_text() == "mine\n"
        assert not events(desk, "undo_started")


async def test_merging_keeps_what_the_person_edited(desk: Desk) -> None:
    lines = [f"{number}\n" for number in range(12)]
    (desk.host / "long.txt").write_text("".join(lines))
    async with desk.running():
        (desk.copy / "long.txt").write_text("".join(["agent\n", *lines[1:]]))
        await applied(desk)
        (desk.host / "long.txt").write_text("".join(["agent\n", *lines[1:-1], "mine\n"]))
        (desk.host / "long.txt").chmod(0o600)
        with pytest.raises(UndoRefusedError):
            await undo(desk)
        shown = await plan(desk, merge=True)
        assert [file.doing for file in shown.files] == ["merged"]
        await undo(desk, merge=True)
        assert (desk.host / "long.txt").read_text() == "".join([*lines[:-1], "mine\n"])
        assert stat.S_IMODE((desk.host / "long.txt").stat().st_mode) == 0o600
        # And back again: the merge is an effect like any other.
        (begun,) = events(desk, "undo_started")
        await undo(desk, Selection(ids=(str(begun["undo"]),)))
        assert (desk.host / "long.txt").read_text() == "".join(["agent\n", *lines[1:-1], "mine\n"])


async def test_a_merge_keeps_the_set_id_bit_that_the_person_set_since(desk: Desk) -> None:
    async with desk.running():
        (desk.copy / "src/app.py").write_text("agent = 1\n")
        await applied(desk)
        (desk.host / "src/app.py").chmod(0o4755)
        await undo(desk, merge=True)
        assert (desk.host / "src/app.py").read_text() == "one = 1\ntwo = 2\nthree = 3\n"
        assert stat.S_IMODE((desk.host / "src/app.py").stat().st_mode) == 0o4755
        # What is on record is what is there: the undo can be undone.
        (begun,) = events(desk, "undo_started")
        await undo(desk, Selection(ids=(str(begun["undo"]),)))
        assert (desk.host / "src/app.py").read_text() == "agent = 1\n"


async def test_a_merge_conflict_is_refused_and_no_markers_are_written(desk: Desk) -> None:
    async with desk.running():
        (desk.copy / "README.md").write_text("agent\n")
        await applied(desk)
        (desk.host / "README.md").write_text("mine\n")
        with pytest.raises(UndoRefusedError, match="changed both ways"):
            await undo(desk, merge=True)
        assert (desk.host / "README.md").read_text() == "mine\n"


async def test_only_what_was_shown_is_done(desk: Desk) -> None:
    async with desk.running():
        (desk.copy / "README.md").write_text("agent\n")
        await applied(desk)
        shown = await plan(desk)
        (desk.copy / "src/app.py").write_text("agent\n")
        await applied(desk)
        async with desk.channel.undoing() as it:
            with pytest.raises(StaleError):
                await it.carry_out(ALL, token=shown.token, by="tester")
            with pytest.raises(StaleError):
                await it.carry_out(ALL, token="", by="tester")
        assert (desk.host / "README.md").read_text() == "agent\n"


async def test_a_change_beneath_another_is_refused_with_the_one_on_top(desk: Desk) -> None:
    async with desk.running():
        (desk.copy / "free/a.txt").write_text("one\n")
        await desk.until(lambda: (desk.host / "free/a.txt").read_text() == "one\n")
        await desk.until(lambda: all(r.settled_at for r in desk.requests()))
        (desk.copy / "free/a.txt").write_text("two\n")
        await desk.until(lambda: (desk.host / "free/a.txt").read_text() == "two\n")
        await desk.until(lambda: all(r.settled_at for r in desk.requests()))
        first, second = desk.requests("free/a.txt")
        with pytest.raises(UndoRefusedError, match=second.id):
            await undo(desk, Selection(ids=(first.id,)))
        await undo(desk, Selection(ids=(second.id,)))
        assert (desk.host / "free/a.txt").read_text() == "one\n"


async def test_files_of_the_person_in_a_folder_of_the_sessions_stay(desk: Desk) -> None:
    async with desk.running():
        (desk.copy / "free/made").mkdir()
        for name in ("one", "two"):
            (desk.copy / "free/made" / name).write_text(name)
            await desk.until(lambda name=name: (desk.host / "free/made" / name).exists())
            await desk.until(lambda: all(r.settled_at for r in desk.requests()))
        (desk.host / "free/made/mine").write_text("mine")
        (one,) = desk.requests("free/made/one")
        await undo(desk, Selection(ids=(one.id,)))
        assert sorted(path.name for path in (desk.host / "free/made").iterdir()) == ["mine", "two"]
        (two,) = desk.requests("free/made/two")
        shown = await plan(desk, Selection(ids=(two.id,)))
        assert [(file.name, file.doing) for file in shown.files] == [
            ("free/made/two", "removed"),
            ("free/made", "stays"),
        ]
        (desk.host / "free/made/mine").unlink()
        # The folder came with the first file; it goes with the last.
        await undo(desk, Selection(ids=(two.id,)))
        assert not (desk.host / "free/made").exists()


async def test_nothing_to_undo_is_said(desk: Desk) -> None:
    async with desk.running():
        with pytest.raises(UserError, match="no change was applied"):
            await plan(desk)
        with pytest.raises(NotFoundError, match="no applied change has the id"):
            await plan(desk, Selection(ids=("0" * 32,)))
        (desk.copy / "README.md").write_text("agent\n")
        await applied(desk)
        await undo(desk)
        with pytest.raises(UserError, match="nothing would change"):
            await undo(desk)


async def test_what_goes_wrong_halfway_is_rolled_back(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk.running():
        for name in ("README.md", "src/app.py", "src/util.py"):
            (desk.copy / name).write_text("agent\n")
        (desk.copy / "src/new/file.py").parent.mkdir()
        (desk.copy / "src/new/file.py").write_text("agent\n")
        await applied(desk)
        before = tree(desk.host)
        shown = await plan(desk)
        steps = 0

        def at(step: str) -> None:
            nonlocal steps
            steps += step == "step"
            if step == "step" and steps == 3:
                (desk.host / "src/util.py").write_text("mine, just now\n")

        async with desk.channel.undoing() as it:
            monkeypatch.setattr(it, "_at", at)
            with pytest.raises(UndoRefusedError, match="nothing was undone"):
                await it.carry_out(ALL, token=shown.token, by="tester")
        after = tree(desk.host)
        assert after.pop("src/util.py")[1] == b"mine, just now\n"
        before.pop("src/util.py")
        assert {name: one[:2] for name, one in after.items()} == {
            name: one[:2] for name, one in before.items()
        }
        assert events(desk, "undo_settled")[0]["outcome"] == "failed"
        async with desk.channel.undoing() as it:
            assert all(row.operation != "undo" and row.in_force for row in it.timeline().rows)


async def test_links_on_the_way_are_never_followed(desk: Desk, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("agent\n")
    async with desk.running():
        (desk.copy / "free/a.txt").write_text("agent\n")
        await desk.until(lambda: (desk.host / "free/a.txt").read_text() == "agent\n")
        await desk.until(lambda: all(r.settled_at for r in desk.requests()))
        (desk.host / "free").rename(desk.host / "moved")
        (desk.host / "free").symlink_to(outside)
        with pytest.raises(GatehouseError):
            await undo(desk)
        assert (outside / "a.txt").read_text() == "agent\n"
        assert [path.name for path in outside.iterdir()] == ["a.txt"]


async def test_the_timeline_tells_what_is_in_force(desk: Desk) -> None:
    async with desk.running():
        (desk.copy / "README.md").write_text("hello\nagent\n")
        await applied(desk)
        (desk.copy / "made/x.txt").parent.mkdir()
        (desk.copy / "made/x.txt").write_text("x\n")
        await applied(desk)
        await undo(desk, Selection(after=1))
        async with desk.channel.undoing() as it:
            shown = it.timeline().rows
            counts = [it.line_counts(row.id) for row in shown]
        assert [(row.operation, row.paths, row.in_force) for row in shown] == [
            ("write", ("README.md",), True),
            ("write", ("made/x.txt",), False),
            ("undo", ("made/x.txt",), True),
        ]
        assert counts == [(1, 0), (1, 0), (0, 1)]
        assert shown[2].by == "tester"
        (made,) = desk.requests("made/x.txt")
        assert status(made) == "used"
        assert "taken back" in explanation(desk.gate.queue.get(made.id))
        await undo(desk, Selection(ids=(shown[2].id,)))
        assert (desk.host / "made/x.txt").read_text() == "x\n"
        assert "taken back" not in explanation(desk.gate.queue.get(made.id))
        async with desk.channel.undoing() as it:
            assert [row.in_force for row in it.timeline().rows] == [True, True, False, True]


async def test_what_is_no_longer_kept_is_said(desk: Desk) -> None:
    async with desk.running():
        async with desk.channel.undoing() as it:
            it._sides.history._most_bytes = 1 << 20
        (desk.host / "big.bin").write_bytes(os.urandom(700_000))
        for number in range(3):
            await desk.until(lambda: (desk.copy / "big.bin").exists())
            (desk.copy / "big.bin").write_bytes(os.urandom(700_000 + number))
            await applied(desk)
        shown = await plan(desk)
        assert "2 older changes are no longer kept" in shown.forgotten
        async with desk.channel.undoing() as it:
            told = it.timeline()
        assert (told.forgotten, len(told.rows)) == (2, 1)
        (*_, last) = desk.requests("big.bin")
        await undo(desk)
        assert (desk.host / "big.bin").stat().st_size == 700_001
        assert "taken back" in explanation(desk.gate.queue.get(last.id))


async def test_a_full_disk_in_the_middle_ends_the_undo_later(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk.running():
        for name in ("README.md", "src/app.py", "src/util.py"):
            (desk.copy / name).write_text("agent\n")
        await applied(desk)
        shown = await plan(desk)
        async with desk.channel.undoing() as it:
            journal = it._sides.journal
            written = 0
            write = type(journal).write

            def full(line: object) -> None:
                nonlocal written
                written += 1
                if written > 3:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                write(journal, line)  # type: ignore[arg-type]

            monkeypatch.setattr(
                it._sides.history, "_journal", type("Full", (), {"write": staticmethod(full)})
            )
            with pytest.raises(StorageError, match="cut short"):
                await it.carry_out(ALL, token=shown.token, by="tester")
            monkeypatch.undo()
            assert (desk.folder / MARK).exists()
            # Nothing else is undone before this one has ended.
            with pytest.raises(StorageError, match="cut short"):
                await it.plan(ALL)
            await it.recover()
            assert not (desk.folder / MARK).exists()
        assert (desk.host / "README.md").read_text() == "hello\n"
        assert (desk.host / "src/util.py").read_text() == "x = 1\n"
        assert events(desk, "undo_settled")[-1]["outcome"] == "done"


async def test_what_can_not_be_made_again_is_refused(desk: Desk) -> None:
    os.mkfifo(desk.host / "pipe")
    async with desk.running():
        await desk.until(
            lambda: not os.path.lexists(desk.copy / "pipe")
        )  # an overlay shows it until it was met
        (desk.copy / "pipe").write_text("agent\n")
        await applied(desk)
        assert (desk.host / "pipe").read_text() == "agent\n"
        with pytest.raises(UndoRefusedError, match="it was a fifo"):
            await undo(desk)
        assert (desk.host / "pipe").read_text() == "agent\n"


async def test_files_that_became_folders_in_one_answer_come_back(desk: Desk) -> None:
    """In one answer a file goes and another comes below its name: taken back in the wrong order,
    the first would be lost."""
    names = [f"thing{number}" for number in range(8)]
    for name in names:
        (desk.host / name).write_text(f"{name} was a file\n")
    before = tree(desk.host)
    async with desk.running(start=False):
        for name in names:
            (desk.copy / name).unlink()
            (desk.copy / name).mkdir()
            (desk.copy / name / "inner.txt").write_text(f"in {name}\n")
        await desk.compared()
        ids = [one.id for one in desk.pending().values()][::-1]  # whatever the order of the answers
        done = [
            await desk.settled(one) for one in answer_all(desk.gate, ids, "approved", by="tester")
        ]
        assert all(one.outcome and one.outcome["ok"] for one in done), [one.outcome for one in done]
        assert (desk.host / "thing3/inner.txt").read_text() == "in thing3\n"
        await undo(desk)
        assert tree(desk.host) == before


async def test_what_was_made_of_a_path_is_told_against_what_was_there_before(desk: Desk) -> None:
    async with desk.running():
        (desk.host / "mine.txt").write_text("mine\n")
        for text in ("first\n", "second\n"):
            (desk.copy / "README.md").write_text(text)
            (desk.copy / "new.txt").write_text(text)
            await applied(desk)
        await undo(desk, Selection(ids=(desk.queue.of_session(SESSION)[0].id,)))
        async with desk.channel.undoing() as it:
            changed, made = it.whole_change("README.md"), it.whole_change("new.txt")
            assert it.whole_change("mine.txt") is None
            assert len(it.undos()) == 1
            assert it.batches_of(["none"]) == {}
    for card, removed in ((changed, 1), (made, 0)):
        assert card is not None
        assert (card.diff.added, card.diff.removed) == (1, removed)
        assert [line.text for line in card.diff.hunks[0].lines][-1] == "second"
