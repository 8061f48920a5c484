"""Many new files of the host's at once: each is whole in the copy, none is asked about, nothing
of the agent's is replaced."""

import os
from pathlib import Path

import pytest

from supervisor.workspace.compare.examining import Examiner
from supervisor.workspace.disk.beneath import Root
from supervisor.workspace.incoming import new_files
from supervisor.workspace.incoming.new_files import NewFiles
from tests.workspace.conftest import Desk
from tests.workspace.incoming.test_incoming import tree

ONLY_COPIED = "a new file of the host's shows through an overlay by itself"


async def test_two_thousand_at_once_come_without_an_echo(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[str] = []
    ordinary: list[str] = []
    async with desk.running():
        await desk.compared()
        changes = desk.channel.host_changes()
        assert changes is not None
        real = changes._compare
        monkeypatch.setattr(changes, "_compare", lambda name: ordinary.append(name) or real(name))
        async with desk.channel._turn:
            for number in range(2000):
                path = desk.host / f"new/{number // 100}/{number}.py"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"{number}\n" * (number % 50))
            await changes.run(None)
        assert tree(desk.copy) == tree(desk.host)
        assert not [name for name in ordinary if name.endswith(".py")]
        examined = Examiner.one
        monkeypatch.setattr(
            Examiner,
            "one",
            lambda self, name, *more: looked_at.append(name) or examined(self, name, *more),
        )
        (desk.copy / "free/after.txt").write_text("x\n")
        await desk.until(lambda: (desk.host / "free/after.txt").exists())
        await desk.compared()
        assert not [name for name in looked_at if name.endswith(".py")]
        assert [request.action.path for request in desk.requests()] == ["free/after.txt"]  # type: ignore[union-attr]
        # What came so is agreed on like anything else: the agent's change of it is asked about, the
        # person's comes in.
        (desk.copy / "new/3/301.py").write_text("agent\n")
        await desk.asked("new/3/301.py")
        (desk.host / "new/3/302.py").write_text("person\n")
        await desk.until(lambda: (desk.copy / "new/3/302.py").read_text() == "person\n")


async def test_what_is_not_simple_goes_the_long_way(desk: Desk) -> None:
    async with desk.running():
        async with desk.channel._turn:
            (desk.host / "large.bin").write_bytes(os.urandom(new_files.LARGEST_BYTES + 1))
            (desk.host / "tool").write_text("#!/bin/sh\n")
            (desk.host / "tool").chmod(0o4755)
            (desk.host / "link").symlink_to("tool")
            (desk.host / "empty").touch()
            (desk.host / "both.txt").write_text("person\n")
            (desk.copy / "both.txt").write_text("agent\n")
            changes = desk.channel.host_changes()
            assert changes is not None
            await changes.run(None)
        await desk.until(
            lambda: (desk.copy / "large.bin").exists() and (desk.copy / "link").is_symlink()
        )
        assert (desk.copy / "large.bin").read_bytes() == (desk.host / "large.bin").read_bytes()
        assert (desk.copy / "tool").stat().st_mode & 0o7777 == 0o755
        assert (desk.copy / "empty").read_bytes() == b""
        assert (desk.copy / "both.txt").read_text() == "agent\n"
        assert changes.conflicts() == ["both.txt"]


@pytest.fixture
def ends(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("host/d", "copy/d", "private"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path / "host", tmp_path / "copy"


def test_links_changing_files_and_names_in_use_are_left_alone(
    ends: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, copy = ends
    (tmp_path / "private/secret").write_text("secret")
    (host / "d/link").symlink_to(tmp_path / "private/secret")
    (host / "away").symlink_to(tmp_path / "private")
    (host / "e").mkdir()
    (host / "e/x").write_text("x")
    (copy / "e").symlink_to(tmp_path / "private")
    os.mkfifo(host / "d/fifo")
    (host / "d/used").write_text("host")
    (copy / "d/used").write_text("agent")
    (host / "d/changing").write_text("one")
    (host / "d/good").write_text("good")
    (host / "d/good").chmod(0o751)
    roots = Root(host), Root(copy)
    real = os.read

    def read(fd: int, size: int) -> bytes:
        data = real(fd, size)
        if data == b"one":
            (host / "d/changing").write_text("two")
        return data

    monkeypatch.setattr(os, "read", read)
    with NewFiles(*roots) as new:
        for name in (
            "d/link",
            "away/secret",
            "e/x",
            "d/fifo",
            "d/used",
            "d/changing",
            "d/gone",
            "gone/x",
            "d/.git",
        ):
            assert new.bring(name) is None, name
        brought = new.bring("d/good")
    assert brought is not None
    status = (copy / "d/good").stat()
    assert (status.st_mode & 0o7777, status.st_nlink) == (0o751, 1)
    assert brought.known.copy_signature == (
        4,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_ino,
        status.st_mode,
    )
    assert sorted(path.name for path in copy.rglob("*")) == ["d", "e", "good", "used"]
    assert (copy / "d/used").read_text() == "agent"
    assert [path.name for path in (tmp_path / "private").iterdir()] == ["secret"]
    for root in roots:
        root.close()


def test_a_full_disk_leaves_no_half_file(
    ends: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    host, copy = ends
    (host / "d/x").write_text("x")

    def write(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", write)
    roots = Root(host), Root(copy)
    with NewFiles(*roots) as new:
        assert new.bring("d/x") is None
    assert list((copy / "d").iterdir()) == []
    for root in roots:
        root.close()
