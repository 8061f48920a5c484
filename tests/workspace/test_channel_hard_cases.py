"""What is rare and hard for sync: odd names, other file systems, huge and changing files, clocks
that go backwards.

File systems are mounted where this machine can do it; a test says which it needed, and is
skipped with that reason where not.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.core.actions import FileChange
from supervisor.core.approvals import Request, status
from supervisor.core.files.undo_steps import Selection
from supervisor.records import approval_queue
from supervisor.workspace.disk import blobs
from supervisor.workspace.disk.beneath import LONGEST_PATH_BYTES
from tests.fakes.gated import answer_all
from tests.workspace.conftest import Desk

GIGABYTE = 1 << 30
FLOOD_FILES = int(os.environ.get("FLOOD_FILES", "10000"))


def change(request: Request) -> FileChange:
    assert isinstance(request.action, FileChange)
    return request.action


def tree(folder: Path) -> dict[str, tuple[object, ...]]:
    """Every path below: kind, content or target, permissions."""
    found: dict[str, tuple[object, ...]] = {}
    for where, folders, files in os.walk(folder):
        for path in (Path(where, leaf) for leaf in (*folders, *files)):
            name = str(path.relative_to(folder))
            if path.is_symlink():
                found[name] = ("link", path.readlink())
            elif path.is_dir():
                found[name] = ("dir",)
            else:
                found[name] = ("file", path.read_bytes(), path.stat().st_mode & 0o777)
    return {name: entry for name, entry in found.items() if not f"{name}/".startswith(".git/")}


def leaves_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def approve_until_quiet(desk: Desk) -> None:
    for _ in range(8):
        await desk.compared()
        ids = [one.id for one in desk.pending().values()]
        if not ids:
            return
        for request in answer_all(desk.gate, ids, "approved", by="tester"):
            await desk.settled(request)
    raise AssertionError(f"still asked: {list(desk.pending())}")


# -- names ----------------------------------------------------------------------------------------


async def test_names_of_every_kind_travel_both_ways(desk: Desk) -> None:
    leaves = [
        b"not-\xff\xfe-text", b"\xe9", b"tab\there", b"new\nline", b"back\\slash", b"quote\"'",
        b"-rf", b"--", b"~", b"$HOME",
        b"*", b"?", b"[a]", b"a:b", b" lead", b"trail ", b"dots...", b"CON", b"\x1b[31m",
        b"e\xcc\x81", "é".encode(),
        "ﬁ".encode(), b"fi", "\u202egnp.exe".encode(), "zero\u200bwidth".encode(), b"n" * 255,
        "ü".encode() * 127,
    ]  # fmt: skip
    async with desk.running(start=False):
        async with desk.channel._turn:
            opened = await desk.channel._open()
        for folder in (desk.copy / "theirs", desk.host / "mine"):
            folder.mkdir()
            for leaf in leaves:
                (folder / os.fsdecode(leaf)).write_bytes(b"content of " + leaf)
        async with desk.channel._turn:
            await opened.incoming.run(None)
        await approve_until_quiet(desk)
        assert tree(desk.host) == tree(desk.copy)
        assert (
            len(leaves_of(desk.host / "theirs"))
            == len(leaves_of(desk.copy / "mine"))
            == len(leaves)
        )
        for side in (desk.copy, desk.host):
            shutil.rmtree(side / ("theirs" if side == desk.copy else "mine"))
        async with desk.channel._turn:
            await opened.incoming.run(None)
            await opened.incoming.run(
                None
            )  # many that vanish at once are believed when they stay away
        await approve_until_quiet(desk)
        assert tree(desk.host) == tree(desk.copy)
        assert not (desk.host / "theirs").exists()


async def test_a_name_that_is_too_long_is_refused_and_holds_nothing_up(desk: Desk) -> None:
    """Longer than a path may be: relative to descriptors it can be made, from outside it can't
    be reached."""
    async with desk.running(start=False):
        script = (
            "import os\nfor _ in range(40): os.mkdir('d' * 200); os.chdir('d' *"
            " 200)\nopen('deep.txt', 'w').close()"
        )
        subprocess.run([sys.executable, "-c", script], cwd=desk.copy, check=True)
        (desk.copy / "src/app.py").write_text("beside it\n")
        await approve_until_quiet(desk)
        assert (desk.host / "src/app.py").read_text() == "beside it\n"
        assert (
            max(len(os.fsencode(name)) for name in map(str, desk.host.rglob("*")))
            < LONGEST_PATH_BYTES
        )
        subprocess.run(["rm", "-rf", str(desk.copy / ("d" * 200))], check=True)
        await approve_until_quiet(desk)
        assert tree(desk.host) == tree(desk.copy)


async def test_the_longest_path_that_is_possible(desk: Desk) -> None:
    """4,096 bytes with the workspace's own path, which is what the kernel takes from a program
    that names it whole."""
    room = 4096 - 1 - len(os.fsencode(desk.copy)) - 1
    parts = ["p" * 200] * (room // 201)
    name = "/".join(parts)
    name += "/" + "f" * (room - len(name) - 1) if room - len(name) - 1 > 0 else ""
    async with desk.running(start=False):
        path = desk.copy / name
        path.parent.mkdir(parents=True)
        path.write_text("far down\n")
        await approve_until_quiet(desk)
        assert (desk.host / name).read_text() == "far down\n"
        shutil.rmtree(desk.copy / parts[0])
        await approve_until_quiet(desk)
        assert not (desk.host / parts[0]).exists()


@pytest.mark.many
async def test_folders_as_deep_as_a_path_may_be(desk: Desk) -> None:
    async with desk.running(start=False):
        deep = desk.copy / "/".join(["d"] * 240)
        deep.mkdir(parents=True)
        (deep / "x").write_text("x\n")
        too_deep = desk.copy / "/".join(["e"] * 400)
        too_deep.mkdir(parents=True)
        (too_deep / "x").write_text("x\n")
        await approve_until_quiet(desk)
        assert (desk.host / "/".join(["d"] * 240) / "x").read_text() == "x\n"
        assert not (desk.host / "/".join(["e"] * 400)).exists()
        assert any("too long" in why for why in desk.refusals().values()), desk.refusals()


# -- other file systems ---------------------------------------------------------------------------


@contextlib.contextmanager
def mounted(kind: str, folder: Path) -> Iterator[Path]:
    """A file system of a kind, on a file, or pytest.skip with what stood in the way."""
    image, place = folder / f"{kind}.img", folder / f"on-{kind}"
    place.mkdir()
    makers = {
        "ext4-casefold": ["mkfs.ext4", "-q", "-F", "-O", "casefold", "-E", "encoding=utf8"],
        "vfat": ["mkfs.vfat"],
        "xfs": ["mkfs.xfs", "-q", "-f", "-n", "version=ci"],
        "btrfs": ["mkfs.btrfs", "-q", "-f"],
        "ext4": ["mkfs.ext4", "-q", "-F"],
    }
    if kind == "tmpfs-casefold":
        command = [
            "mount",
            "-t",
            "tmpfs",
            "-o",
            "casefold=utf8-12.1.0,size=64m",
            "none",
            str(place),
        ]
    else:
        if shutil.which(makers[kind][0]) is None:
            pytest.skip(f"no {makers[kind][0]} on this machine")
        with image.open("wb") as file:
            file.truncate(400 << 20)
        made = subprocess.run(
            [*makers[kind], str(image)], capture_output=True, text=True, check=False
        )
        if made.returncode:
            pytest.skip(f"{makers[kind][0]}: {made.stderr.strip()[:200]}")
        command = ["mount", "-o", "loop", str(image), str(place)]
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this machine can't mount {kind}: {done.stderr.strip()[:200]}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("kind", ["xfs", "btrfs", "vfat"])
async def test_everyday_work_on_another_file_system(kind: str, tmp_path: Path) -> None:
    """Write, create, delete and undo, on a host whose file system is not the copy's."""
    with mounted(kind, tmp_path) as place:
        host = place / "work"
        host.mkdir()
        (host / "a.txt").write_text("old\n")
        (host / "b.txt").write_text("gone soon\n")
        desk = Desk(tmp_path / "data", host)
        async with desk.running(start=False):
            (desk.copy / "a.txt").write_text("new\n")
            (desk.copy / "b.txt").unlink()
            (desk.copy / "c/d").mkdir(parents=True)
            (desk.copy / "c/d/e.txt").write_text("made\n")
            await approve_until_quiet(desk)
            assert tree(host) == tree(desk.copy)
            async with desk.channel.undoing() as undo:
                plan = await undo.plan(Selection())
                await undo.carry_out(Selection(), token=plan.token, by="tester")
            assert (host / "a.txt").read_text() == "old\n"
            assert (host / "b.txt").read_text() == "gone soon\n"
            assert not (host / "c").exists()
        desk.close()


# -- large, many, changing ------------------------------------------------------------------------


async def test_a_file_that_grows_while_it_is_read(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both directions: the look sees that it changed under it, and nothing half-read is asked or
    brought."""
    whole: list[bytes] = []
    write_all = blobs.write_all

    def growing(fd: int, block: bytes) -> None:
        """A block was read, and goes into the snapshot: the file grows before it is looked at
        again."""
        write_all(fd, block)
        path = desk.copy / "grows.txt"
        if block.startswith(b"first\n") and len(whole) < 5:
            with path.open("ab") as file:
                file.write(b"more\n")
            whole.append(path.read_bytes())

    monkeypatch.setattr(blobs, "write_all", growing)
    async with desk.running(start=False):
        (desk.copy / "grows.txt").write_bytes(b"first\n")
        for _ in range(8):
            await desk.compared()
        request = desk.pending()["grows.txt"]
        desk.approve(request)
        await desk.settled(request)
        assert (
            (desk.host / "grows.txt").read_bytes()
            == (desk.copy / "grows.txt").read_bytes()
            == whole[-1]
        )


async def test_a_sparse_file_of_4_gigabytes_that_changes_at_its_end(desk: Desk) -> None:
    """Larger than what is carried over: refused with the reason, at once, and without filling
    the disk or the memory."""
    if desk.is_overlay:
        pytest.skip("an overlay copies up whole files, holes and all")
    async with desk.running(start=False):
        with (desk.copy / "huge.img").open("wb") as file:
            file.truncate(4 * GIGABYTE)
            file.seek(-1, os.SEEK_END)
            file.write(b"x")
        (desk.copy / "src/app.py").write_text("beside it\n")
        await desk.compared()
        assert desk.pending().keys() == {"src/app.py"}
        assert "too large" in desk.refusals()["huge.img"]
        assert not (desk.host / "huge.img").exists()
        kept = sum(path.stat().st_blocks * 512 for path in desk.folder.rglob("*") if path.is_file())
        assert kept < 64 << 20
        # Made on the host it stays there, and the copy is told why it hasn't got it.
        shutil.move(desk.copy / "huge.img", desk.host / "big.img")
        async with desk.channel._turn:
            await (await desk.channel._open()).incoming.run(None)
        assert not (desk.copy / "big.img").exists()
        notices = desk.channel._now.incoming.notices()
        assert any("big.img" in line and "too large" in line for line in notices), notices


@pytest.mark.many
@pytest.mark.timeout(600)
async def test_a_flood_of_files_in_one_folder_made_by_the_agent(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cards have an end: what fits waits, the rest is held back, and none of it reaches the
    host unasked. With FLOOD_FILES=100000 it takes a minute."""
    monkeypatch.setattr(
        approval_queue, "MOST_CHANGES_PER_SESSION", 1_000
    )  # cards cost time, and aren't the point here
    async with desk.running(start=False):
        (desk.copy / "many").mkdir()
        fd = os.open(desk.copy / "many", os.O_RDONLY)
        for number in range(FLOOD_FILES):
            os.close(os.open(f"{number}.txt", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=fd))
        os.close(fd)
        await desk.compared()
        assert not (desk.host / "many").exists()
        opened = desk.channel._now
        waiting = desk.queue.count_waiting()
        assert 1_000 <= waiting <= 1_500
        assert opened.comparison.holds_back
        # The flood taken back, nothing is left to answer, and an ordinary change is asked as ever.
        shutil.rmtree(desk.copy / "many")
        (desk.copy / "src/app.py").write_text("still seen\n")
        await desk.compared()
        assert desk.pending().keys() == {"src/app.py"}


# -- links, modes, clocks -------------------------------------------------------------------------


async def test_hard_links_inside_the_copy(desk: Desk) -> None:
    """Two names of one file are two files on the host, each with its own card; writing through
    one changes both."""
    async with desk.running(start=False):
        os.link(desk.copy / "src/app.py", desk.copy / "src/twin.py")
        await desk.compared()
        assert "hardlink" in change(desk.pending()["src/twin.py"]).hazards
        await approve_until_quiet(desk)
        assert (desk.host / "src/twin.py").stat().st_nlink == 1
        with (desk.copy / "src/twin.py").open("a") as file:
            file.write("four = 4\n")
        await desk.compared()
        assert desk.pending().keys() == {"src/app.py", "src/twin.py"}
        await approve_until_quiet(desk)
        assert (desk.host / "src/app.py").read_text().endswith("four = 4\n")
        assert tree(desk.host) == tree(desk.copy)


async def test_changes_of_the_mode_alone(desk: Desk) -> None:
    async with desk.running(start=False):
        (desk.copy / "src/app.py").chmod(0o755)
        (desk.copy / "src/util.py").chmod(0o600)
        await desk.compared()
        assert {change(one).operation for one in desk.pending().values()} == {"chmod"}
        before = (desk.host / "src/app.py").stat().st_mtime_ns
        await approve_until_quiet(desk)
        assert (desk.host / "src/app.py").stat().st_mode & 0o777 == 0o755
        assert (desk.host / "src/util.py").stat().st_mode & 0o777 == 0o600
        assert (desk.host / "src/app.py").stat().st_mtime_ns == before
        (desk.host / "src/app.py").chmod(0o700)
        async with desk.channel._turn:
            await desk.channel._now.incoming.run(None)
        assert (desk.copy / "src/app.py").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("at_s", [1.0, 10**9, 4 * 10**9])
async def test_times_that_lie_are_not_believed(desk: Desk, at_s: float) -> None:
    """The same size and the same time as before, in the past or in the future: the content
    counts, on both sides."""
    for name in ("src/app.py", "README.md"):
        os.utime(desk.host / name, (at_s, at_s))
    async with desk.running(start=False):
        async with desk.channel._turn:
            opened = await desk.channel._open()
        opened.sides.fill_digests(opened.sides.without_digest())
        for side, name in ((desk.copy, "src/app.py"), (desk.host, "README.md")):
            text = (side / name).read_text()
            before = (side / name).stat()
            (side / name).write_text(text.swapcase())
            os.utime(side / name, ns=(before.st_atime_ns, before.st_mtime_ns))
            assert (side / name).stat().st_size == before.st_size
        await desk.compared()
        assert desk.pending().keys() == {"src/app.py"}
        async with desk.channel._turn:
            await opened.incoming.run(None)
        assert (desk.copy / "README.md").read_text() == "HELLO\n"
        await approve_until_quiet(desk)
        assert (desk.host / "src/app.py").read_text() == "ONE = 1\nTWO = 2\nTHREE = 3\n"


async def test_a_clock_that_is_set_back(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor's clock jumps a day back between two effects: both are applied, in their
    order, and both undone."""
    async with desk.running(start=False):
        (desk.copy / "src/app.py").write_text("before the jump\n")
        await approve_until_quiet(desk)
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now - 86_400)
        (desk.copy / "src/app.py").write_text("after the jump\n")
        os.utime(desk.copy / "src/app.py", (now - 86_400, now - 86_400))
        await approve_until_quiet(desk)
        assert (desk.host / "src/app.py").read_text() == "after the jump\n"
        assert [status(one) for one in desk.requests("src/app.py")] == ["used", "used"]
        async with desk.channel.undoing() as undo:
            plan = await undo.plan(Selection())
            await undo.carry_out(Selection(), token=plan.token, by="tester")
        assert (desk.host / "src/app.py").read_text() == "one = 1\ntwo = 2\nthree = 3\n"
