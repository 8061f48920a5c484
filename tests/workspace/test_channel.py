"""The whole way of a change: copy, watcher, gate, host. Real files, real git, real database."""

import contextlib
import os
import shutil

import pytest

from supervisor.core.actions import content_hash
from supervisor.core.approvals import status
from supervisor.errors import UserError
from tests.workspace.conftest import Desk


async def test_an_allowed_change_reaches_the_host(desk: Desk) -> None:
    async with desk.running():
        (desk.copy / "free/new.txt").write_text("made\n")
        (desk.copy / "free/a.txt").write_text("changed\n")
        await desk.until(lambda: (desk.host / "free/new.txt").exists())
        await desk.until(lambda: (desk.host / "free/a.txt").read_text() == "changed\n")
        (desk.copy / "free/a.txt").unlink()
        await desk.until(lambda: not (desk.host / "free/a.txt").exists())
        await desk.until(lambda: all(r.settled_at for r in desk.requests()))
        assert [r.outcome["ok"] for r in desk.requests()] == [True] * 3
        await desk.compared()
        assert len(desk.requests()) == 3  # nothing is asked twice


async def test_an_asked_change_is_a_card_and_is_applied_when_approved(desk: Desk) -> None:
    async with desk.running():
        (desk.copy / "src/app.py").write_text("one = 1\ntwo = 22\nthree = 3\n")
        request = await desk.asked("src/app.py")
        card = await desk.channel.card(request)
        assert card.content == "text"
        assert [(line.kind, line.text) for line in card.diff.hunks[0].lines] == [
            ("context", "one = 1"),
            ("removed", "two = 2"),
            ("added", "two = 22"),
            ("context", "three = 3"),
        ]
        assert (desk.host / "src/app.py").read_text() == "one = 1\ntwo = 2\nthree = 3\n"
        desk.approve(request)
        done = await desk.settled(request)
        assert done.outcome["ok"]
        assert (desk.host / "src/app.py").read_text() == "one = 1\ntwo = 22\nthree = 3\n"
        await desk.compared()
        assert len(desk.requests()) == 1


async def test_a_denied_change_stays_away_until_its_content_changes(desk: Desk) -> None:
    async with desk.running():
        (desk.copy / "src/app.py").write_text("bad\n")
        desk.deny(await desk.asked("src/app.py"))
        (desk.copy / "closed/c.txt").write_text("bad\n")
        await desk.until(lambda: desk.requests("closed/c.txt"))
        for _ in range(3):
            os.utime(desk.copy / "src/app.py")
            os.utime(desk.copy / "closed/c.txt")
            await desk.compared()
        assert len(desk.requests()) == 2
        assert all(status(request) == "denied" for request in desk.requests())
        (desk.copy / "src/app.py").write_text("other\n")
        assert (await desk.asked("src/app.py")).action.after == content_hash(b"other\n")
        assert (desk.host / "src/app.py").read_text().startswith("one")
        assert (desk.host / "closed/c.txt").read_text() == "c\n"


async def test_a_change_taken_back_closes_its_request(desk: Desk) -> None:
    async with desk.running():
        original = (desk.copy / "src/app.py").read_text()
        (desk.copy / "src/app.py").write_text("bad\n")
        (desk.copy / "fresh.py").write_text("fresh\n")
        first, second = await desk.asked("src/app.py"), await desk.asked("fresh.py")
        (desk.copy / "src/app.py").write_text(original)
        (desk.copy / "fresh.py").unlink()
        await desk.until(lambda: not desk.pending())
        for request in (first, second):
            closed = desk.gate.queue.get(request.id)
            assert status(closed) == "expired"
            assert "as the host again" in closed.closed_why


async def test_a_newer_version_supersedes_the_card_and_only_it_can_be_applied(desk: Desk) -> None:
    async with desk.running():
        (desk.copy / "src/app.py").write_text("first\n")
        first = await desk.asked("src/app.py")
        (desk.copy / "src/app.py").write_text("second\n")
        await desk.until(lambda: desk.pending()["src/app.py"].id != first.id)
        assert status(desk.gate.queue.get(first.id)) == "superseded"
        with pytest.raises(UserError):
            desk.approve(first)
        second = desk.pending()["src/app.py"]
        desk.approve(second)
        await desk.settled(second)
        assert (desk.host / "src/app.py").read_text() == "second\n"


async def test_what_is_applied_is_what_was_shown(desk: Desk) -> None:
    """The agent writes again after the person looked and before the answer is carried out."""
    async with desk.running():
        (desk.copy / "src/app.py").write_text("shown\n")
        request = await desk.asked("src/app.py")
        async with desk.channel._turn:  # the watcher can't get in between
            (desk.copy / "src/app.py").write_text("swapped\n")
            desk.approve(request)
        await desk.settled(request)
        assert (desk.host / "src/app.py").read_text() == "shown\n"
        assert (await desk.asked("src/app.py")).action.after == content_hash(b"swapped\n")


async def test_a_file_that_the_person_edited_meanwhile_is_not_overwritten(desk: Desk) -> None:
    async with desk.running():
        (desk.copy / "src/app.py").write_text("agent\n")
        request = await desk.asked("src/app.py")
        (desk.host / "src/app.py").write_text("person\n")
        assert (await desk.channel.card(request)).is_stale
        desk.approve(request)
        done = await desk.settled(request)
        assert not done.outcome["ok"]
        assert done.outcome["stale"]
        assert "changed on the host since" in done.outcome["error"]
        assert (desk.host / "src/app.py").read_text() == "person\n"
        again = await desk.asked("src/app.py")
        assert again.action.hazards == ("conflict",)
        assert again.action.before == content_hash(b"person\n")
        assert "replaces what is there now" in (await desk.channel.card(again)).notes[0]


async def test_a_rule_never_overwrites_the_persons_edit(desk: Desk) -> None:
    async with desk.running():
        (desk.host / "free/a.txt").write_text("person\n")
        (desk.host / "free/theirs.txt").write_text("person\n")
        (desk.copy / "free/a.txt").write_text("agent\n")
        (desk.copy / "free/theirs.txt").write_text("agent\n")
        assert (await desk.asked("free/a.txt")).action.hazards == ("conflict",)
        assert (await desk.asked("free/theirs.txt")).action.hazards == ("conflict",)
        assert (desk.host / "free/a.txt").read_text() == "person\n"


async def test_the_persons_own_changes_are_never_undone(desk: Desk) -> None:
    async with desk.running():
        await desk.until(lambda: not desk.channel._now.sides.without_digest())
        (desk.host / "free/a.txt").unlink()
        (desk.host / "free/theirs.txt").write_text("person\n")
        (desk.host / "src/util.py").write_text("person\n")
        os.utime(desk.copy / "src/util.py")
        with contextlib.suppress(FileNotFoundError):  # an overlay may show the deletion by now
            os.utime(desk.copy / "free/a.txt")
        await desk.compared()
        assert desk.requests("free/a.txt") == []
        assert desk.requests("free/theirs.txt") == []
        assert not (desk.host / "free/a.txt").exists()
        assert (desk.host / "src/util.py").read_text() == "person\n"


async def test_ignored_files_stay_in_the_copy_by_the_hosts_word_only(desk: Desk) -> None:
    async with desk.running():
        (desk.copy / "build/deep").mkdir(parents=True)
        (desk.copy / "build/deep/out.o").write_text("x")
        (desk.copy / "free/trace.log").write_text("x")
        (desk.copy / ".gitignore").write_text("build/\n*.log\nfree/hidden.txt\n")
        (desk.copy / "free/hidden.txt").write_text("x")
        await desk.until(lambda: (desk.host / "free/hidden.txt").exists())
        await desk.asked(".gitignore")
        await desk.compared()
        assert {r.action.path for r in desk.requests()} == {".gitignore", "free/hidden.txt"}


async def test_git_in_the_copy_is_the_agents_own(desk: Desk) -> None:
    async with desk.running():
        hook = desk.copy / ".git/hooks/post-checkout"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\ntouch /tmp/owned\n")
        hook.chmod(0o755)
        (desk.copy / "src/.GIT").mkdir()
        (desk.copy / "src/.GIT/config").write_text("[core]\n")
        await desk.compared()
        await desk.compared()
        assert not (desk.host / ".git/hooks/post-checkout").exists()
        assert not (desk.host / "src/.GIT").exists()
        assert not desk.pending()
        assert {".git/hooks/post-checkout", "src/.GIT"} <= desk.refusals().keys()
        assert (desk.data / "audit.log").read_text().count(".git/hooks/post-checkout") == 1


async def test_write_by_the_api_reaches_both_sides_when_approved(desk: Desk) -> None:
    async with desk.running():
        request = await desk.channel.write("./docs/new.md", b"text\n", "notes")
        assert status(request) == "pending"
        assert request.reason == "notes"
        assert not (desk.copy / "docs").exists()
        desk.approve(request)
        done = await desk.settled(request)
        assert done.outcome["copy"] == "changed too"
        assert (desk.host / "docs/new.md").read_text() == "text\n"
        assert (desk.copy / "docs/new.md").read_text() == "text\n"
        await desk.compared()
        assert len(desk.requests()) == 1  # the watcher doesn't ask for what the API just did


async def test_edit_by_the_api(desk: Desk) -> None:
    async with desk.running():
        request = await desk.channel.edit("src/app.py", "two = 2", "two = 20", False, "why")
        assert request.action.operation == "edit"
        card = await desk.channel.card(request)
        removed = next(line for line in card.diff.hunks[0].lines if line.kind == "added")
        assert ("20", True) in removed.spans
        desk.approve(request)
        await desk.settled(request)
        for side in (desk.host, desk.copy):
            assert (side / "src/app.py").read_text() == "one = 1\ntwo = 20\nthree = 3\n"
        await desk.compared()
        assert len(desk.requests()) == 1


@pytest.mark.parametrize(
    ("old", "replace_all", "said"),
    [
        ("gone", False, "isn't in the file"),
        ("gone", True, "isn't in the file"),
        (" = ", False, "more than once"),
        ("", False, "empty"),
        ("one = 1", False, None),
        (" = ", True, None),
    ],
)
async def test_an_edit_must_fit(desk: Desk, old: str, replace_all: bool, said: str | None) -> None:
    async with desk.running():
        if said is None:
            assert (
                status(await desk.channel.edit("src/app.py", old, "new", replace_all, ""))
                == "pending"
            )
            return
        with pytest.raises(UserError, match=said):
            await desk.channel.edit("src/app.py", old, "new", replace_all, "")
        assert desk.requests() == []


async def test_a_stale_edit_is_refused_and_nothing_is_half_applied(desk: Desk) -> None:
    async with desk.running():
        request = await desk.channel.edit("src/app.py", "two = 2", "two = 20", False, "why")
        (desk.host / "src/app.py").write_text("one = 1\nthree = 3\n")
        desk.approve(request)
        done = await desk.settled(request)
        assert "stale" in done.closed_why
        assert "the old text isn't in the file" in done.closed_why
        assert (desk.host / "src/app.py").read_text() == "one = 1\nthree = 3\n"
        await desk.until(lambda: (desk.copy / "src/app.py").read_text() == "one = 1\nthree = 3\n")


async def test_a_newer_request_for_a_file_supersedes_the_older_at_once(desk: Desk) -> None:
    async with desk.running():
        first = await desk.channel.edit("src/app.py", "two = 2", "two = 20", False, "a")
        second = await desk.channel.write("src/app.py", b"whole\n", "b")
        assert status(desk.gate.queue.get(first.id)) == "superseded"
        assert desk.gate.queue.get(first.id).answer == "denied"
        desk.approve(second)
        await desk.settled(second)
        assert (desk.host / "src/app.py").read_text() == "whole\n"


async def test_an_edit_keeps_what_the_agent_wrote_in_its_copy(desk: Desk) -> None:
    async with desk.running():
        request = await desk.channel.edit("src/app.py", "two = 2", "two = 20", False, "a")
        (desk.copy / "src/app.py").write_text("one = 1\ntwo = 2\nthree = 3\nfour = 4\n")
        async with desk.channel._turn:
            pass
        await desk.until(lambda: len(desk.requests()) == 2 or "src/app.py" in desk.pending())
        if status(desk.gate.queue.get(request.id)) == "pending":
            desk.approve(request)
            await desk.settled(request)
            assert (desk.host / "src/app.py").read_text() == "one = 1\ntwo = 20\nthree = 3\n"
            assert (
                desk.copy / "src/app.py"
            ).read_text() == "one = 1\ntwo = 20\nthree = 3\nfour = 4\n"


@pytest.mark.parametrize(
    "path", ["../outside", "/etc/passwd", ".git/hooks/x", "a/../../x", ".git", "sub/.GIT/config"]
)
async def test_paths_that_leave_are_denied_on_record(desk: Desk, path: str) -> None:
    async with desk.running():
        request = await desk.channel.write(path, b"x", "")
        assert status(request) == "denied"


async def test_rm_rf_and_a_move_of_a_folder(desk: Desk) -> None:
    async with desk.running():
        shutil.move(
            desk.copy / "src", desk.copy / "lib"
        )  # an overlay has no rename of a host's folder: `mv` copies it
        await desk.asked("src/app.py")
        await desk.approve_all()
        assert not (desk.host / "src").exists()
        assert (desk.host / "lib/app.py").read_text().startswith("one")


async def test_swapping_files_folders_and_links(desk: Desk) -> None:
    async with desk.running():
        (desk.copy / "README.md").unlink()
        (desk.copy / "README.md").mkdir()
        (desk.copy / "README.md/inner.txt").write_text("x\n")
        for name in ("app.py", "util.py"):
            (desk.copy / "src" / name).unlink()
        (desk.copy / "src").rmdir()
        (desk.copy / "src").symlink_to("free")
        await desk.compared()
        await desk.approve_all()
        assert (desk.host / "README.md/inner.txt").read_text() == "x\n"
        assert (desk.host / "src").readlink().name == "free"


async def test_empty_folders_and_modes(desk: Desk) -> None:
    async with desk.running():
        (desk.copy / "empty").mkdir()
        request = await desk.asked("empty")
        assert request.action.operation == "mkdir"
        desk.approve(request)
        await desk.settled(request)
        assert (desk.host / "empty").is_dir()
        (desk.copy / "empty").rmdir()
        request = await desk.asked("empty")
        assert request.action.operation == "delete"
        desk.approve(request)
        await desk.settled(request)
        assert not (desk.host / "empty").exists()
        (desk.copy / "src/app.py").chmod(0o600)
        request = await desk.asked("src/app.py")
        assert (request.action.operation, request.action.mode) == ("chmod", 0o600)
        desk.approve(request)
        await desk.settled(request)
        assert (desk.host / "src/app.py").stat().st_mode & 0o777 == 0o600


async def test_a_folder_with_files_is_carried_by_them(desk: Desk) -> None:
    async with desk.running():
        (desk.copy / "a/b").mkdir(parents=True)
        (desk.copy / "a/b/f").write_text("x\n")
        await desk.compared()
        assert list(desk.pending()) == ["a/b/f"]
        await desk.approve_all()
        assert (desk.host / "a/b/f").read_text() == "x\n"


async def test_a_burst_of_files_arrives_whole(desk: Desk) -> None:
    async with desk.running():
        for number in range(300):
            (desk.copy / f"free/{number}.txt").write_text(f"{number}\n")
        await desk.until(lambda: len(list((desk.host / "free").iterdir())) == 301)
        await desk.until(lambda: all(request.settled_at for request in desk.requests()))
        assert all((desk.host / f"free/{n}.txt").read_text() == f"{n}\n" for n in range(300))
        assert len(desk.requests()) == 300


async def test_too_many_cards_wait_for_room_and_are_not_lost(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("supervisor.records.approval_queue.MOST_CHANGES_PER_SESSION", 5)
    async with desk.running():
        for number in range(12):
            (desk.copy / f"src/{number}.txt").write_text(f"{number}\n")
        await desk.compared()
        assert len(desk.pending()) == 5
        (desk.copy / "free/new.txt").write_text("allowed all the same\n")
        await desk.until(lambda: (desk.host / "free/new.txt").exists())
        assert len(desk.pending()) == 5
        await desk.approve_all()
        assert len(list((desk.host / "src").glob("*.txt"))) == 12


async def test_the_final_pass_loses_nothing(desk: Desk) -> None:
    async with desk.running():
        for loop in desk.channel._loops:
            loop.cancel()  # as if every event had been lost
        (desk.copy / "free/late.txt").write_text("late\n")
        (desk.copy / "src/app.py").write_text("late\n")
        await desk.channel.final_pass("the end")
        assert (desk.host / "free/late.txt").read_text() == "late\n"
        assert list(desk.pending()) == ["src/app.py"]
        desk.gate.answers.close_session("session-of-this-test", "the end")
        await desk.channel.final_pass("the end")
        assert not desk.pending()
        assert len(desk.requests()) == 2
        assert (desk.copy / "src/app.py").read_text() == "late\n"
        assert (desk.host / "src/app.py").read_text().startswith("one")
