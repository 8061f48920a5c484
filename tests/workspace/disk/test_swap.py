"""What the person saves in the very moment of an effect is never destroyed by it."""

import errno
import os
import random
import threading
from pathlib import Path

import pytest

from supervisor.core.actions import FileChange, content_hash
from supervisor.core.files.changes import Want, to_action
from supervisor.workspace.apply.apply import Applier
from supervisor.workspace.disk import swap
from supervisor.workspace.disk.beneath import Root
from supervisor.workspace.disk.blobs import BlobStore
from supervisor.workspace.disk.host_errors import StaleError
from tests.workspace.conftest import Desk


def action(blobs: BlobStore, before: bytes, after: bytes) -> FileChange:
    return to_action("a.txt", Want("write", content_hash(before), blobs.keep(after), 0o644))


def save(path: Path, text: str) -> None:
    draft = path.with_name("draft")
    draft.write_text(text)
    draft.rename(path)


@pytest.mark.parametrize("how", ["rename", "in place", "deleted", "folder", "link"])
def test_a_save_after_the_last_look(tmp_path: Path, how: str) -> None:
    host, blobs = tmp_path / "host", BlobStore(tmp_path / "blobs")
    host.mkdir()
    path = host / "a.txt"
    path.write_text("old\n")

    def at(step: str) -> None:
        if step != "checked":
            return
        match how:
            case "rename":
                save(path, "person\n")
            case "in place":
                path.write_text("person's\n")
            case "deleted":
                path.unlink()
            case "folder":
                path.unlink()
                path.mkdir()
                (path / "inner").write_text("person\n")
            case "link":
                path.unlink()
                path.symlink_to("elsewhere")

    root = Root(host)
    with pytest.raises(StaleError):
        Applier(root, blobs, None, at=at).apply(
            action(blobs, b"old\n", b"agent\n"), "r", lambda rebuilt: None
        )
    found = {
        "rename": lambda: path.read_text() == "person\n",
        "in place": lambda: path.read_text() == "person's\n",
        "deleted": lambda: not os.path.lexists(path),
        "folder": lambda: (path / "inner").read_text() == "person\n",
        "link": lambda: path.is_symlink(),
    }
    assert found[how]()
    assert [one.name for one in host.iterdir()] in (["a.txt"], [])
    root.close()
    blobs.close()


def test_saved_once_more_while_it_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, ours = tmp_path / "a.txt", tmp_path / "ours"
    path.write_text("1\n")
    ours.write_text("ours\n")
    real, calls = swap._exchange, 0

    def exchange(folder: int, one: str, other: str) -> None:
        nonlocal calls
        calls += 1
        if calls in (2, 3):
            save(path, f"{calls}\n")
        real(folder, one, other)

    monkeypatch.setattr(swap, "_exchange", exchange)
    fd = os.open(tmp_path, os.O_RDONLY)
    assert not swap.replace(fd, "ours", "a.txt", lambda leaf, status: False)
    os.close(fd)
    assert path.read_text() == "3\n"  # the newest, whatever came out meanwhile
    assert calls == 4


@pytest.mark.parametrize("is_saved_again", [False, True])
def test_taken_away_while_it_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_saved_again: bool
) -> None:
    path, ours = tmp_path / "a.txt", tmp_path / "ours"
    path.write_text("saved\n")
    ours.write_text("ours\n")
    real, real_move, calls = swap._exchange, swap.move_new, 0

    def exchange(folder: int, one: str, other: str) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            path.rename(tmp_path / "a.txt~")  # an editor that makes room first
        real(folder, one, other)

    def move(folder: int, leaf: str, to_folder: int, to_leaf: str) -> None:
        if is_saved_again:
            path.write_text("again\n")
        real_move(folder, leaf, to_folder, to_leaf)

    monkeypatch.setattr(swap, "_exchange", exchange)
    monkeypatch.setattr(swap, "move_new", move)
    fd = os.open(tmp_path, os.O_RDONLY)
    assert not swap.replace(fd, "ours", "a.txt", lambda leaf, status: False)
    os.close(fd)
    assert path.read_text() == ("again\n" if is_saved_again else "saved\n")
    assert ours.exists() == is_saved_again  # the older save, as always


@pytest.mark.parametrize("knows_rename", [True, False])
def test_a_file_system_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, knows_rename: bool
) -> None:
    def refuse(*words: object, **more: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    def rename(*words: object) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "link", refuse)
    if not knows_rename:
        monkeypatch.setattr(swap, "_rename", rename)
    (tmp_path / "ours").write_text("ours\n")
    fd = os.open(tmp_path, os.O_RDONLY)
    swap.link_new(fd, "ours", "a.txt")
    assert (tmp_path / "a.txt").read_text() == "ours\n"
    if knows_rename:
        (tmp_path / "ours").write_text("ours\n")
        save(tmp_path / "a.txt", "saved in that instant\n")
        with pytest.raises(FileExistsError):
            swap.link_new(fd, "ours", "a.txt")
        assert (tmp_path / "a.txt").read_text() == "saved in that instant\n"
    os.close(fd)


def test_a_file_system_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("old\n")
    (tmp_path / "ours").write_text("ours\n")

    def exchange(folder: int, one: str, other: str) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(swap, "_exchange", exchange)
    fd = os.open(tmp_path, os.O_RDONLY)
    assert swap.replace(fd, "ours", "a.txt", lambda leaf, status: True)
    os.close(fd)
    assert (tmp_path / "a.txt").read_text() == "ours\n"


def test_racing_saves_are_never_lost(tmp_path: Path) -> None:
    """A person saves by rename as fast as possible while effects are applied: of a save, either
    the person's next one or an effect that was about exactly it comes after it."""
    host, blobs = tmp_path / "host", BlobStore(tmp_path / "blobs")
    host.mkdir()
    path = host / "a.txt"
    path.write_text("start\n")
    replaced: list[str] = []
    done, tried, lost = threading.Event(), threading.Event(), []

    def person() -> None:
        pick = random.Random(3)
        for number in range(1500):
            mine = f"person {number}\n"
            save(path, mine)
            # An effect looks at a file once the tick of its save is over: now and then it gets that
            # far before the next save.
            for _ in range(pick.randrange(20 if number % 20 else 1500)):
                now = path.read_text()
                if now != mine and mine not in replaced:
                    # An effect took its place: it must have been about this very save, or gives it
                    # back at once.
                    if not any(
                        mine in replaced or path.read_text() == mine for _ in range(100_000)
                    ):
                        lost.append(mine)
                    break
            if number % 100 == 0:
                for _ in range(
                    2
                ):  # the second of these began after the save, so it comes to its end
                    tried.clear()
                    tried.wait(5)
        done.set()

    root = Root(host)
    applier = Applier(root, blobs, None)
    saving = threading.Thread(target=person)
    saving.start()
    applied = 0
    while not done.is_set():
        before = path.read_text()
        try:
            text = f"agent {applied}\n".encode()
            applier.apply(
                action(blobs, before.encode(), text),
                "r",
                lambda rebuilt, b=before: replaced.append(b),
            )  # type: ignore[misc]
            applied += 1
        except StaleError:
            continue
        finally:
            tried.set()
    saving.join()
    assert applied
    assert lost == []
    assert [one.name for one in host.iterdir()] == ["a.txt"]
    root.close()
    blobs.close()


@pytest.mark.parametrize("how", ["rename", "in place", "deleted"])
async def test_a_save_right_after_the_effect_is_never_taken_for_it(desk: Desk, how: str) -> None:
    """A rule allows the path: were the person's file what both sides agreed on, the next change
    would replace it unseen."""
    path = desk.host / "free/a.txt"
    saved: list[str] = []

    def at(step: str) -> None:
        if step == "placed" and not saved:
            saved.append(how)
            match how:
                case "rename":
                    save(path, "person\n")
                case "in place":
                    path.write_text("person\n")
                case "deleted":
                    path.unlink()

    desk.new_channel(at)
    async with desk.running(start=False):
        (desk.copy / "free/a.txt").write_text("agent\n")
        await desk.compared()
        (first,) = desk.requests()
        assert first.outcome is not None
        assert first.outcome["ok"]
        (desk.copy / "free/a.txt").write_text("agent again\n")
        await desk.compared()
        assert (path.read_text() if path.exists() else None) == (
            None if how == "deleted" else "person\n"
        )
        assert "conflict" in desk.pending()["free/a.txt"].action.hazards  # type: ignore[union-attr]


async def test_a_save_right_after_the_effect_reaches_the_copy(desk: Desk) -> None:
    def at(step: str) -> None:
        if step == "placed":
            save(desk.host / "free/a.txt", "person\n")

    desk.new_channel(at)
    async with desk.running(start=False):
        (desk.copy / "free/a.txt").write_text("agent\n")
        await desk.compared()
        async with desk.channel._turn:
            await desk.channel._now.incoming.run(None)
        assert (desk.copy / "free/a.txt").read_text() == "person\n"


@pytest.mark.parametrize("how", ["rename", "in place, and the time set back", "deleted"])
def test_a_save_after_the_last_look_where_nothing_can_be_swapped(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exchange(folder: int, one: str, other: str) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(swap, "_exchange", exchange)
    host, blobs = tmp_path / "host", BlobStore(tmp_path / "blobs")
    host.mkdir()
    path = host / "a.txt"
    path.write_text("old\n")
    status = path.stat()

    def at(step: str) -> None:
        if step != "checked":
            return
        match how:
            case "rename":
                save(path, "new\n")
            case "deleted":
                path.unlink()
            case _:
                path.write_text("new\n")
                os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    root = Root(host)
    with pytest.raises(StaleError):
        Applier(root, blobs, None, at=at).apply(
            action(blobs, b"old\n", b"agent\n"), "r", lambda rebuilt: None
        )
    assert [(one.name, one.read_text()) for one in host.iterdir()] == (
        [] if how == "deleted" else [("a.txt", "new\n")]
    )
    root.close()
    blobs.close()
