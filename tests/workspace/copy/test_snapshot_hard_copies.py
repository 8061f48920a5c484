"""The private copy where it is hard: what is huge, odd, moving, unreadable, or doesn't fit."""

import asyncio
import contextlib
import errno
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.base.process import children
from supervisor.errors import StorageError, UserError
from supervisor.workspace import channel
from supervisor.workspace.copy import copy_pool, copying, snapshot
from supervisor.workspace.copy.copy_pool import CopyFolders, CopyTask, copy_all
from supervisor.workspace.copy.copying import Copier
from supervisor.workspace.copy.snapshot import make_copy
from supervisor.workspace.disk.beneath import Root
from supervisor.workspace.trees.journal import replay
from tests.fakes.nobody import as_nobody
from tests.workspace.conftest import Desk
from tests.workspace.copy.test_snapshot import names

ONLY_COPIED = "about copying"

GIGABYTE = 1 << 30


def pooled(monkeypatch: pytest.MonkeyPatch, pieces_of: int = 3) -> None:
    """Copy by processes, however few files there are."""
    monkeypatch.setattr(copy_pool, "FEW_FILES", 0)
    monkeypatch.setattr(copy_pool, "PIECE_FILES", pieces_of)
    monkeypatch.setattr(os, "process_cpu_count", lambda: 2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "plain"
    made.mkdir()
    return made


@contextlib.contextmanager
def mounted(at: Path, *words: str) -> Iterator[Path]:
    """A file system of our own; skips where this user or this kernel can't mount it."""
    at.mkdir(exist_ok=True)
    done = subprocess.run(["mount", *words, str(at)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"can't mount {' '.join(words)}: {done.stderr.strip()}")
    try:
        yield at
    finally:
        subprocess.run(["umount", str(at)], check=True)


def image(at: Path, megabytes: int, *words: str) -> Path:
    """A file with a file system in it; skips where the program that makes it is missing or
    refuses."""
    with at.open("wb") as file:
        file.truncate(megabytes << 20)
    try:
        done = subprocess.run([*words, str(at)], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip(f"no {words[0]}")
    if done.returncode:
        pytest.skip(f"{words[0]}: {done.stderr.strip()}")
    return at


# -- large ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_reading", [False, True])
async def test_a_sparse_file_of_4_gb_stays_sparse(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_reading: bool
) -> None:
    if by_reading:
        monkeypatch.delattr(os, "copy_file_range")
        monkeypatch.setattr(copying.Copier, "_some", _reading_only)
    with (folder / "image").open("wb") as file:
        for at in (0, GIGABYTE + 17, 3 * GIGABYTE):
            file.seek(at)
            file.write(b"data at %d" % at)
        file.truncate(4 * GIGABYTE)
    with (folder / "hole").open("wb") as file:
        file.truncate(GIGABYTE)
    await make_copy(folder, tmp_path / "s/merged")
    copy = tmp_path / "s/merged"
    for name in ("image", "hole"):
        status = (copy / name).stat()
        assert status.st_size == (folder / name).stat().st_size
        assert status.st_blocks * 512 < 1 << 20
    with (copy / "image").open("rb") as file:
        for at in (0, GIGABYTE + 17, 3 * GIGABYTE):
            file.seek(at)
            assert file.read(30).rstrip(b"\0") == b"data at %d" % at


def _reading_only(self: Copier, reading: int, writing: int, at: int, most: int) -> int:
    return os.pwrite(writing, os.pread(reading, min(most, 1 << 20), at), at)


@pytest.mark.many
async def test_a_hundred_thousand_files_in_one_folder(folder: Path, tmp_path: Path) -> None:
    (folder / "many").mkdir()
    for group in range(
        2
    ):  # an inode has at most 65,000 names on ext4; none of them is shared with the copy
        (folder / f"many/first{group}").write_text(f"{group}")
        for number in range(49_999):
            os.link(folder / f"many/first{group}", folder / f"many/{group}-{number}")
    told: list[tuple[int, int, int]] = []
    report = await make_copy(
        folder, tmp_path / "s/merged", on_progress=lambda *values: told.append(values)
    )
    assert report.files == len(list((tmp_path / "s/merged/many").iterdir())) == 100_000
    assert (tmp_path / "s/merged/many/1-7").read_text() == "1"
    assert (tmp_path / "s/merged/many/1-7").stat().st_nlink == 1
    assert told[-1][:2] == (100_000, 100_000)
    assert len(told) > 100
    assert len(replay(tmp_path / "s").baseline) == 100_001


# -- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["thread", "processes"])
async def test_names_that_are_no_text_and_names_as_long_as_they_may_be(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    if by == "processes":
        pooled(monkeypatch, 1)
    odd = [
        b"caf\xe9",
        b"\xff\xfe",
        b"new\nline",
        b"tab\t",
        b"\x1b[31m",
        "ü".encode(),
        b"x" * 255,
        b'quote"',
        b"back\\",
    ]
    for name in odd:
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_bytes(name)
    (folder / os.fsdecode(b"dir\xe9")).mkdir()
    (folder / os.fsdecode(b"dir\xe9/x")).symlink_to("to ü")
    (folder / "odd").symlink_to(os.fsdecode(b"to\xe9"))
    report = await make_copy(folder, tmp_path / "s/merged")
    assert report.skipped == (("odd", "the link's target isn't text"),)
    (folder / "odd").unlink()
    for name in odd:
        assert (
            Path(os.fsdecode(os.fsencode(tmp_path / "s/merged") + b"/" + name)).read_bytes() == name
        )
    assert set(replay(tmp_path / "s").baseline) == names(folder)


async def test_a_path_that_is_too_long_is_named_and_left_out(folder: Path, tmp_path: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("d" * 250, dir_fd=fd)
        inner = os.open("d" * 250, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(os.open("deepest", os.O_WRONLY | os.O_CREAT, dir_fd=fd))
    os.close(fd)
    (folder / "near").write_text("x")
    report = await make_copy(folder, tmp_path / "s/merged")
    assert (tmp_path / "s/merged/near").exists()
    assert [why for _, why in report.skipped] == ["the path is too long"]


async def test_a_part_of_300_characters_is_refused_clearly(desk: Desk) -> None:
    async with desk.running():
        for call in (
            desk.channel.write("free/" + "x" * 300, b"x", ""),
            desk.channel.move("free/a.txt", "é" * 300, ""),
        ):
            with pytest.raises(UserError, match="File name too long"):
                await call
        assert desk.requests() == []


# -- while it moves -------------------------------------------------------------------------------


async def test_a_file_that_grows_while_it_is_read_arrives_whole_in_the_end(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    growing = desk.host / "free/growing.log.txt"
    growing.write_text("begin\n")
    real = os.copy_file_range

    def copy_file_range(source: int, target: int, count: int, *more: int) -> int:
        done = real(source, target, count, *more)
        if os.fstat(source).st_ino == growing.stat().st_ino:
            with growing.open("a") as file:
                file.write("more\n")
        return done

    monkeypatch.setattr(os, "copy_file_range", copy_file_range)
    async with desk.running(start=False):
        assert desk.report is not None
        assert desk.report.baseline["free/growing.log.txt"].host_signature is None
        assert desk.report.baseline["free/a.txt"].host_signature is not None
        monkeypatch.undo()
        await desk.channel.start()
        await desk.until(
            lambda: (desk.copy / "free/growing.log.txt").read_text() == growing.read_text()
        )
        await desk.compared()
        assert desk.requests() == []


@pytest.mark.parametrize("by", ["thread", "processes"])
async def test_a_folder_that_becomes_a_symlink_during_the_copy_leads_nowhere(
    host: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    if by == "processes":
        pooled(monkeypatch)
    private = tmp_path / "private"
    private.mkdir()
    for name in ("app.py", "util.py", "c.txt"):
        (private / name).write_text("secret")
    real = snapshot.copy_all

    async def swapped(*args: object) -> None:
        (host / "src").rename(tmp_path / "away")
        (host / "src").symlink_to(private)
        (host / ".git/refs").rename(tmp_path / "refs")
        (host / ".git/refs").symlink_to(private)
        await real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(snapshot, "copy_all", swapped)
    report = await make_copy(host, tmp_path / "s/merged")
    assert ("src", "it was a folder when the copy began and isn't any more") in report.skipped
    assert b"secret" not in b"".join(
        path.read_bytes() for path in (tmp_path / "s").rglob("*") if path.is_file()
    )
    assert not [name for name in report.baseline if name.startswith("src/")]


async def test_a_folder_that_flickers_never_lets_a_secret_in(
    host: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that swaps a folder for a symlink and back, as fast as it can."""
    private = tmp_path / "private"
    private.mkdir()
    (private / "app.py").write_text("secret")
    pooled(monkeypatch, 1)
    script = 'cd "$1"; while :; do mv src away; ln -s "$2" src; rm src; mv away src; done'
    racing = subprocess.Popen(["sh", "-c", script, "sh", str(host), str(private)])
    try:
        for turn in range(20):
            await make_copy(host, tmp_path / f"s{turn}/merged")
    finally:
        racing.kill()
        racing.wait()
    for turn in range(20):
        found = [
            path for path in (tmp_path / f"s{turn}/merged").rglob("*.py") if not path.is_symlink()
        ]
        assert not [path for path in found if path.is_file() and path.read_text() == "secret"]


async def test_git_folders_are_only_entered_where_they_were_found(
    host: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / "private"
    private.mkdir()
    (private / "HEAD").write_text("secret")
    real = snapshot.copy_all

    async def swapped(*args: object) -> None:
        (host / ".git").rename(tmp_path / "away")
        (host / ".git").symlink_to(private)
        await real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(snapshot, "copy_all", swapped)
    report = await make_copy(host, tmp_path / "s/merged")
    assert set(report.skipped) == {
        (".git", "it was a folder when the copy began and isn't any more")
    }
    assert b"secret" not in b"".join(
        path.read_bytes() for path in (tmp_path / "s").rglob("*") if path.is_file()
    )
    assert (tmp_path / "s/merged/src/app.py").exists()


# -- what can't be read ---------------------------------------------------------------------------


@pytest.fixture
def open_to_anybody() -> Iterator[Path]:
    with as_nobody() as place:
        yield place


async def test_what_cannot_be_read_is_named_and_left_out(open_to_anybody: Path) -> None:
    folder = open_to_anybody / "work"
    (folder / "closed").mkdir(parents=True)
    (folder / "closed/in.txt").write_text("x")
    (folder / "locked.txt").write_text("x")
    (folder / "open.txt").write_text("x")
    (folder / "closed").chmod(0)
    (folder / "locked.txt").chmod(0)
    report = await make_copy(folder, open_to_anybody / "s/merged")
    assert dict(report.skipped) == {
        "closed": "the folder can't be read: Permission denied",
        "locked.txt": "Permission denied",
    }
    assert (open_to_anybody / "s/merged/open.txt").exists()
    assert set(report.baseline) == {"open.txt"}
    (folder / "closed").chmod(0o700)


async def test_a_device_is_named_and_left_out(folder: Path, tmp_path: Path) -> None:
    try:
        os.mknod(folder / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("this user may make no device")
    report = await make_copy(folder, tmp_path / "s/merged")
    assert report.skipped == (("null", "a device is never copied"),)


# -- ends -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["thread", "processes"])
async def test_a_full_disk_is_one_clear_error_and_leaves_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    before = children(os.getpid())
    if by == "processes":
        pooled(monkeypatch)
    for number in range(20):
        (folder / f"{number}").write_bytes(os.urandom(200_000))
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=2m", "none") as small:
        (small / "s").mkdir()
        with pytest.raises(StorageError, match="can't write the copy: No space left on device"):
            await make_copy(folder, small / "s/merged")
        assert list((small / "s").iterdir()) == []
    assert set(children(os.getpid())) <= set(before)


async def test_a_copy_that_is_cancelled_leaves_nothing_and_nobody(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = children(os.getpid())
    pooled(monkeypatch, 2)
    for number in range(300):
        (folder / f"{number}").write_text("x")
    begun = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        making = tasks.create_task(
            make_copy(folder, tmp_path / "s/merged", on_progress=lambda *values: begun.set())
        )
        await begun.wait()
        making.cancel()
        await asyncio.wait([making])
    assert making.cancelled()
    assert list((tmp_path / "s").iterdir()) == []
    assert set(children(os.getpid())) <= set(before)


async def test_processes_that_fail_together_have_all_ended(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = children(os.getpid())
    pooled(monkeypatch)
    met = asyncio.Barrier(2)

    async def full(*_: object) -> copying.Copied:
        await met.wait()
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(copy_pool, "_answer", full)
    work = [CopyTask("", "", [], into_baseline=True)] * 4
    with contextlib.closing(Root(folder)) as host, contextlib.closing(Root(tmp_path)) as target:
        place = CopyFolders(host.fd, target.fd, ())
        for _ in range(
            20
        ):  # who ends first has the other cancelled: in most rounds while that waits for its end
            with pytest.raises(OSError, match="full"):
                await copy_all(work, place, lambda *_: None, lambda _: None)
            assert set(children(os.getpid())) <= set(before)


async def test_a_process_that_dies_is_no_finished_copy(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pooled(monkeypatch)
    for number in range(30):
        (folder / f"{number}").write_text("x")
    monkeypatch.setattr(copy_pool, "_line", lambda piece: b"[rubbish\n")
    with pytest.raises(StorageError, match="ended before it was done"):
        await make_copy(folder, tmp_path / "s/merged")
    assert list((tmp_path / "s").iterdir()) == []


# -- reflinks -------------------------------------------------------------------------------------


async def test_where_the_file_system_can_it_shares_blocks_and_no_inode(tmp_path: Path) -> None:
    made = image(tmp_path / "image", 320, "mkfs.xfs", "-q", "-m", "reflink=1")
    with mounted(tmp_path / "mount", "-o", "loop", str(made)) as place:
        work = place / "work"
        work.mkdir()
        (work / "large").write_bytes(os.urandom(20 << 20))
        os.sync()
        before = os.statvfs(place).f_bavail
        await make_copy(work, place / "s/merged")
        os.sync()
        used = (before - os.statvfs(place).f_bavail) * os.statvfs(place).f_bsize
        assert used < 10 << 20
        (place / "s/merged/large").write_bytes(b"the agent's")
        assert (work / "large").stat().st_size == 20 << 20


def test_pieces_hold_every_leaf_once_and_in_order() -> None:
    groups = [
        ("", ["a"]),
        ("empty", []),
        ("many", [str(number) for number in range(1200)]),
        ("z", ["q"]),
    ]
    made = copy_pool.pieces(groups, into_baseline=True)
    assert [leaf for piece in made for _, leaves in piece.groups for leaf in leaves] == [
        x for _, g in groups for x in g
    ]
    assert {at for piece in made for at, _ in piece.groups} == {"", "empty", "many", "z"}
    assert max(piece.files for piece in made) <= copy_pool.PIECE_FILES


def test_a_name_that_is_there_already_is_never_written_over(folder: Path, tmp_path: Path) -> None:
    """As on a file system that takes two names for one."""
    (folder / "readme").write_text("host\n")
    target = tmp_path / "target"
    target.mkdir()
    (target / "readme").write_text("there\n")
    ends = os.open(folder, os.O_RDONLY), os.open(target, os.O_RDONLY)
    copied = Copier(*ends, ()).copy("", "", [("", ["readme"])], lambda size: None)
    for fd in ends:
        os.close(fd)
    assert copied.skipped == [
        ("readme", "the copy's file system takes its name for one that is there already")
    ]
    assert (target / "readme").read_text() == "there\n"


async def test_a_large_copy_is_compared_while_the_agent_starts(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "MOST_COMPARED_FIRST", 0)
    async with desk.running(start=False):
        (desk.copy / "free/a.txt").write_text("before the first comparison\n")
        await desk.channel.start()
        hooks = desk.copy / ".git/hooks"
        hooks.mkdir(exist_ok=True)
        (hooks / "post-commit").write_text("#!/bin/sh\n")
        await desk.until(
            lambda: (desk.host / "free/a.txt").read_text() == "before the first comparison\n"
        )
        (desk.copy / "free/b.txt").write_text("after it\n")
        await desk.until(lambda: (desk.host / "free/b.txt").exists())
        await desk.compared()
        assert ".git/hooks/post-commit" in desk.refusals()
