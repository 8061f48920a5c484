"""The private copy as an overlay: what is hidden, what the kernel leaves undefined, what a forged
mark can't do.

Everything else that holds for a copy is tested for both: the `desk` fixture comes in both modes.
"""

import contextlib
import mmap
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.core.approvals import status
from supervisor.workspace.copy.overlay import MadeOverlay, make_overlay
from supervisor.workspace.copy.private_copy import make_private_copy
from supervisor.workspace.disk.beneath import Root
from supervisor.workspace.trees.overlay_facts import Since
from tests.workspace.conftest import Desk, git, make_repository

APP = "src/app.py"


@pytest.fixture
def desk(tmp_path: Path, host: Path) -> Iterator[Desk]:
    made = Desk(tmp_path / "data", host, is_overlay=True)
    yield made
    made.close()


async def made_of(host: Path, folder: Path, **options: object) -> MadeOverlay:
    made = await make_overlay(host, folder, **options)  # type: ignore[arg-type]
    assert made is not None
    return made


def view(made: MadeOverlay) -> Path:
    return Path(f"/proc/{os.getpid()}/fd/{made.mount.merged_fd}")  # for programs that we start, too


def tree_of(folder: Path) -> set[str]:
    """What is in a folder, but for git's own."""
    names = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    return {name for name in names if ".git" not in name.split("/")}


# -- what the agent must not see ------------------------------------------------------------------


async def test_what_a_copy_leaves_out_is_not_there(tmp_path: Path) -> None:
    files = {
        ".gitignore": ".env\nnode_modules/\n*.log\n!keep.log\n",
        "src/a.py": "a",
        "keep.log": "k",
    }
    host = make_repository(tmp_path / "host", files)
    (host / ".env").write_text("SECRET")
    (host / "src/debug.log").write_text("SECRET")
    (host / "node_modules/pkg").mkdir(parents=True)
    (host / "node_modules/pkg/index.js").write_text("x")
    (host / "untracked.txt").write_text("u")
    (host / "state").mkdir()
    (host / "state/token").write_text("SECRET")
    (host / "src").chmod(0o750)
    os.utime(host / "src", ns=(1, 10**18))
    made = await made_of(host, tmp_path / "s", exclude=(host / "state",))
    try:
        shown = view(made)
        assert {path.name for path in shown.iterdir()} == {
            ".git",
            ".gitignore",
            "src",
            "keep.log",
            "untracked.txt",
        }
        assert [path.name for path in (shown / "src").iterdir()] == ["a.py"]
        for name in (".env", "src/debug.log", "node_modules/pkg/index.js", "state/token"):
            assert not os.path.lexists(shown / name)
            assert (host / name).exists()
        assert stat.S_IMODE((shown / "src").stat().st_mode) == 0o750
        assert (shown / "src").stat().st_mtime_ns == 10**18
        assert git(tmp_path, "-C", str(host), "status", "--short").split() == [
            "??",
            "state/",
            "??",
            "untracked.txt",
        ]
    finally:
        made.mount.close()


async def test_gatehouseignore_and_include_ignored_count_as_in_a_copy(tmp_path: Path) -> None:
    files = {
        ".gitignore": "out/\n*.env\n",
        ".gatehouseignore": "secrets/\n*.pem\n!local.env\n",
        "secrets/key": "SECRET",
        "deep/er/x.pem": "SECRET",
        "a.txt": "a",
    }
    host = make_repository(tmp_path / "host", files)
    for name in ("local.env", "other.env", "out/o", "out/k.pem"):
        (host / name).parent.mkdir(exist_ok=True)
        (host / name).write_text("x")
    always = {".gitignore", ".gatehouseignore", "a.txt", "deep", "deep/er", "local.env"}
    for include, more in ((False, set()), (True, {"other.env", "out", "out/o"})):
        copied = await make_private_copy(
            host, tmp_path / f"c{include}", "copy", include_ignored=include
        )
        assert copied.mount is None
        made = await made_of(host, tmp_path / f"o{include}", include_ignored=include)
        try:
            there = tree_of(tmp_path / f"c{include}/merged")
            assert tree_of(view(made)) - {"deep", "deep/er"} == there - {"deep", "deep/er"}
            assert tree_of(view(made)) == always | more
        finally:
            made.mount.close()


async def test_every_git_folder_is_the_agents_own(tmp_path: Path) -> None:
    host = make_repository(tmp_path / "host", {"a.txt": "a"})
    inner = make_repository(host / "vendor/inner", {"b.txt": "b", ".gitignore": "*.key\n"})
    (inner / "x.key").write_text("SECRET")
    for repository in (host, inner):
        (repository / ".git/hooks/pre-commit").write_text("#!/bin/sh\n")
        (repository / ".git/config").write_text(
            '[core]\n\trepositoryformatversion = 0\n\tfsmonitor = /evil\n[remote "o"]\n\turl = https://u:pw@example.org/x\n'
        )
    made = await made_of(host, tmp_path / "s")
    try:
        shown = view(made)
        assert not os.path.lexists(shown / "vendor/inner/x.key")
        for repository in (shown, shown / "vendor/inner"):
            assert not (repository / ".git/hooks/pre-commit").exists()
            config = (repository / ".git/config").read_text()
            assert "evil" not in config
            assert "pw@" not in config
            assert not list((repository / ".git/objects").rglob("??/*"))  # borrowed, not copied
        assert (
            shown / ".git/objects/info/alternates"
        ).read_text() == "/workspace/lower/.git/objects\n"
        inside = (shown / "vendor/inner/.git/objects/info/alternates").read_text()
        assert inside == "/workspace/lower/vendor/inner/.git/objects\n"
    finally:
        made.mount.close()


async def test_objects_that_the_sandbox_could_not_reach_are_copied(tmp_path: Path) -> None:
    host = make_repository(tmp_path / "host", {"a.txt": "a"})
    git(host, "worktree", "add", "-q", str(tmp_path / "tree"), "-b", "other")
    git(tmp_path, "clone", "-q", "--shared", str(host), str(tmp_path / "borrower"))
    for number, folder in enumerate((tmp_path / "tree", tmp_path / "borrower")):
        made = await made_of(folder, tmp_path / f"s{number}")
        try:
            words = (
                "--git-dir",
                str(tmp_path / f"s{number}/upper/.git"),
                "--work-tree",
                str(folder),
            )
            assert git(tmp_path, *words, "log", "--format=%s").strip() == "first"
            git(tmp_path, *words, "fsck", "--strict")
            assert git(tmp_path, *words, "status", "--short") == ""
        finally:
            made.mount.close()


async def test_what_the_host_ignores_later_is_hidden_then(desk: Desk) -> None:
    (desk.host / "odd").mkdir()
    (desk.host / "odd/.git").write_text("gitdir: /etc\n")  # git takes it for nothing
    (desk.host / "odd/c.txt").write_text("c")
    async with desk.running():
        assert not os.path.lexists(desk.copy / "odd/.git")
        assert (desk.copy / "odd/c.txt").exists()
        (desk.host / "late.log").write_text("SECRET")
        (desk.host / "build").mkdir()
        (desk.host / "build/o").write_text("x")
        await desk.until(
            lambda: (
                not os.path.lexists(desk.copy / "late.log") and not (desk.copy / "build").exists()
            )
        )
        await desk.compared()
        assert desk.requests() == []
        assert (desk.host / "late.log").exists()


# -- what the kernel leaves undefined -------------------------------------------------------------


async def test_a_file_that_was_replaced_by_rename_is_written_through(desk: Desk) -> None:
    async with desk.running():
        for number in range(3):
            with (
                desk.copy / APP
            ).open() as held:  # the kernel remembers the old file, and has it in use
                (desk.host / "draft").write_text(f"version {number}\n")
                (desk.host / "draft").rename(desk.host / APP)
                wanted = f"version {number}\n"
                await desk.until(lambda wanted=wanted: (desk.copy / APP).read_text() == wanted)
                held.read()
        await desk.compared()
        assert desk.requests() == []


async def test_a_file_that_was_missing_when_it_was_looked_for_comes(desk: Desk) -> None:
    async with desk.running():
        assert not (desk.copy / "free/later.txt").exists()
        (desk.host / "free/later.txt").write_text("x\n")
        await desk.until(lambda: (desk.copy / "free/later.txt").exists())
        assert (desk.copy / "free/later.txt").read_text() == "x\n"
        await desk.compared()
        assert desk.requests() == []


@pytest.mark.parametrize("touched", [False, True])
async def test_a_folder_that_was_replaced_shows_the_new_one(desk: Desk, touched: bool) -> None:
    async with desk.running():
        list((desk.copy / "src").iterdir())
        if touched:
            (desk.copy / "src/own.py").write_text("own\n")
            await desk.asked("src/own.py")
        shutil.rmtree(desk.host / "src")
        (desk.host / "src").mkdir()
        (desk.host / "src/fresh.py").write_text("fresh\n")
        wanted = {"fresh.py", "own.py"} if touched else {"fresh.py"}

        def names() -> set[str]:
            with contextlib.suppress(OSError):
                return {path.name for path in (desk.copy / "src").iterdir()}
            return set()

        await desk.until(lambda: names() == wanted)
        await desk.compared()
        assert {request.action.path for request in desk.requests()} <= {"src/own.py"}  # type: ignore[union-attr]
        assert (desk.host / "src/fresh.py").read_text() == "fresh\n"


async def test_another_branch_on_the_host(desk: Desk) -> None:
    git(desk.host, "checkout", "-q", "-b", "other")
    shutil.rmtree(desk.host / "src")
    (desk.host / "lib/deep").mkdir(parents=True)
    (desk.host / "lib/deep/x.py").write_text("x\n")
    (desk.host / "README.md").write_text("other\n")
    git(desk.host, "add", "-A")
    git(desk.host, "commit", "-q", "-m", "other")
    git(desk.host, "checkout", "-q", "main")

    def seen(side: Path) -> dict[str, str]:
        with contextlib.suppress(OSError):
            return {
                name: (side / name).read_text() for name in tree_of(side) if (side / name).is_file()
            }
        return {}

    async with desk.running():
        list((desk.copy / "src").iterdir())
        for branch in ("other", "main", "other"):
            git(desk.host, "checkout", "-q", branch)
            await desk.until(lambda: seen(desk.copy) == seen(desk.host) != {})
        await desk.compared()
        assert desk.requests() == []


async def test_the_host_renames_what_the_agent_has_changed(desk: Desk) -> None:
    """The kernel takes both names for the agent's file, until we have written the host's to the
    new one."""
    async with desk.running():
        (desk.copy / APP).write_text("agent\n")
        await desk.asked(APP)
        (desk.host / APP).rename(desk.host / "src/moved.py")
        await desk.until(lambda: (desk.copy / "src/moved.py").exists())
        await desk.until(lambda: (desk.copy / "src/moved.py").read_text().startswith("one = 1"))
        assert (desk.copy / APP).read_text() == "agent\n"
        await desk.compared()
        assert (desk.host / "src/moved.py").read_text().startswith("one = 1")
        assert "src/moved.py" not in desk.pending()


# -- what both sides began with -------------------------------------------------------------------


def test_what_is_newer_than_the_start_or_moved_there_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "old/in").mkdir(parents=True)
    for name in ("old/in/a", "old/b", "top", "moved", "set"):
        (tmp_path / name).write_text("x")
    (tmp_path / "hidden").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    start_ns = _mark(tmp_path / "mark")
    (tmp_path / "new").write_text("x")
    (tmp_path / "old").rename(tmp_path / "renamed")
    (tmp_path / "moved").rename(tmp_path / "moved2")
    os.utime(tmp_path / "set", ns=(1, 1))  # a time can be set back, its change can't
    host = Root(tmp_path)
    since = Since(host, start_ns, lambda name: name == "hidden")
    try:
        assert since.at("top") is not None
        for name in (
            "new",
            "renamed",
            "renamed/b",
            "renamed/in/a",
            "moved2",
            "set",
            "hidden",
            "pipe",
            "nowhere",
            "../x",
        ):
            assert since.at(name) is None, name
    finally:
        host.close()


def _mark(path: Path) -> int:
    path.touch()
    first = path.stat().st_ctime_ns
    while path.stat().st_ctime_ns == first:
        path.chmod(0o600)
    return path.stat().st_ctime_ns


async def test_the_persons_edit_before_the_first_walk_is_a_conflict(desk: Desk) -> None:
    async with desk.running(start=False):
        (desk.host / "free/a.txt").write_text("person\n")
        (desk.copy / "free/a.txt").write_text("agent\n")
        await desk.channel.start()
        request = await desk.asked("free/a.txt")  # though a rule allows free/**
        assert "conflict" in request.action.hazards  # type: ignore[union-attr]
        assert (desk.host / "free/a.txt").read_text() == "person\n"


# -- crashes --------------------------------------------------------------------------------------


async def test_a_crash_forgets_nothing(desk: Desk) -> None:
    async with desk.running():
        (desk.copy / "free/a.txt").write_text("applied\n")
        await desk.until(lambda: (desk.host / "free/a.txt").read_text() == "applied\n")
        await desk.until(lambda: all(one.settled_at for one in desk.requests()))
        (desk.copy / APP).write_text("agent\n")
        (desk.copy / "src/util.py").unlink()
        await desk.asked(APP)
        await desk.asked("src/util.py")
        await desk.channel.stop()  # the mount is gone
        assert list((desk.folder / "merged").iterdir()) == []
        (desk.host / "README.md").write_text("meanwhile\n")
        desk.new_channel()
        await desk.channel.start()
        await desk._met()
        await desk.compared()
        assert set(desk.pending()) == {APP, "src/util.py"}
        assert not any("conflict" in request.action.hazards for request in desk.pending().values())  # type: ignore[union-attr]
        assert (desk.copy / "README.md").read_text() == "meanwhile\n"
        await desk.approve_all()
        assert (desk.host / APP).read_text() == "agent\n"
        assert not (desk.host / "src/util.py").exists()
        assert (desk.host / "free/a.txt").read_text() == "applied\n"


async def test_a_crash_before_the_first_walk(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    async with desk.running(start=False):
        (desk.copy / APP).write_text("agent\n")
        (desk.copy / "closed/c.txt").unlink()
        await desk.channel.stop()
        (desk.host / "src/util.py").write_text("meanwhile\n")
        desk.new_channel()
        await desk.channel.start()
        assert (await desk.asked(APP)).action.before is not None  # type: ignore[union-attr]
        await desk.until(lambda: desk.requests("closed/c.txt"))
        assert status(desk.requests("closed/c.txt")[0]) == "denied"
        assert (desk.host / "src/util.py").read_text() == "meanwhile\n"


async def test_undo_after_the_end_needs_no_mount(desk: Desk) -> None:
    from supervisor.core.files.undo_steps import Selection
    from supervisor.workspace.undo.undo import reopened

    async with desk.running():
        (desk.copy / "free/a.txt").write_text("applied\n")
        await desk.until(lambda: (desk.host / "free/a.txt").read_text() == "applied\n")
        await desk.until(lambda: all(one.settled_at for one in desk.requests()))
    async with reopened(
        desk.channel.session_id, desk.host, desk.folder, desk.gate, (desk.data,)
    ) as undo:
        plan = await undo.plan(Selection())
        await undo.carry_out(Selection(), token=plan.token, by="tester")
    assert (desk.host / "free/a.txt").read_text() == "a\n"


# -- forged marks ---------------------------------------------------------------------------------


async def test_marks_can_not_be_made_through_the_mount(desk: Desk) -> None:
    async with desk.running():
        (desk.copy / "mine").mkdir()
        for name in ("opaque", "redirect", "metacopy", "origin", "whiteout"):
            for path in ("src", "mine", APP):
                with contextlib.suppress(OSError):
                    os.setxattr(desk.copy / path, f"user.overlay.{name}", b"y")
        for path in ("free/a.txt", "new"):
            with contextlib.suppress(FileNotFoundError):
                (desk.copy / path).unlink()
            with pytest.raises(PermissionError):
                os.mknod(desk.copy / path, stat.S_IFCHR, os.makedev(0, 0))
        await desk.compared()
        await desk.approve_all()
        upper = desk.folder / "upper"
        names = {
            name
            for path in ("src", APP)
            if (upper / path).exists()
            for name in os.listxattr(upper / path)
        }
        forged = {
            "user.overlay.opaque",
            "user.overlay.redirect",
            "user.overlay.metacopy",
            "user.overlay.whiteout",
        }
        assert not names & forged
        assert (desk.host / APP).exists()
        assert {request.action.path for request in desk.requests()} == {"free/a.txt", "mine"}  # type: ignore[union-attr]


def _opaque(upper: Path) -> None:
    (upper / "src").mkdir(exist_ok=True)
    os.setxattr(upper / "src", "user.overlay.opaque", b"y")


def _whiteout(upper: Path) -> None:
    (upper / "src").mkdir(exist_ok=True)
    os.mknod(upper / APP, stat.S_IFCHR, os.makedev(0, 0))


def _xattr_whiteout(upper: Path) -> None:
    (upper / "src").mkdir(exist_ok=True)
    (upper / APP).touch()
    os.setxattr(upper / APP, "user.overlay.whiteout", b"y")


def _redirect(upper: Path) -> None:
    (upper / "src").mkdir(exist_ok=True)
    os.setxattr(upper / "src", "user.overlay.redirect", b"/closed")
    os.setxattr(upper / "src", "user.overlay.metacopy", b"")


def _link_out(upper: Path) -> None:
    (upper / "src").symlink_to("/etc")


@pytest.mark.parametrize("forge", [_opaque, _whiteout, _xattr_whiteout, _redirect, _link_out])
async def test_a_forged_mark_in_the_upper_folder_deletes_and_reads_nothing(
    desk: Desk, forge: Callable[[Path], None]
) -> None:
    """As if the kernel had let the agent make one: what is asked is what the view shows, never
    what the mark says."""
    async with desk.running():
        assert (desk.copy / APP).exists()
        assert (desk.copy / "closed/c.txt").exists()
        forge(desk.folder / "upper")
        for _ in range(2):
            await desk.compared()
        for request in desk.requests():
            assert not (desk.copy / request.action.path).exists()  # type: ignore[union-attr]
        assert (desk.host / APP).exists()


async def test_a_file_of_the_host_is_only_ever_read(desk: Desk) -> None:
    before = (desk.host / APP).stat()
    async with desk.running():
        reading = os.open(desk.copy / APP, os.O_RDONLY)
        with pytest.raises(OSError):
            os.write(reading, b"x")
        with pytest.raises(OSError):
            mmap.mmap(reading, 0, mmap.MAP_SHARED, mmap.PROT_WRITE)
        writing = os.open(f"/proc/self/fd/{reading}", os.O_RDWR)
        os.write(writing, b"XXX")
        os.fchmod(reading, 0o777)
        os.link(desk.copy / "src/util.py", desk.copy / "linked.py")
        (desk.copy / "linked.py").write_text("changed\n")
        for fd in (reading, writing):
            os.close(fd)
        after = (desk.host / APP).stat()
        assert (after.st_mtime_ns, after.st_ctime_ns, after.st_mode) == (
            before.st_mtime_ns,
            before.st_ctime_ns,
            before.st_mode,
        )
        assert (desk.host / "src/util.py").read_text() == "x = 1\n"
        flags = os.statvfs(desk.copy).f_flag
        assert flags & os.ST_NOSUID
        assert flags & os.ST_NODEV


async def test_what_the_agent_made_and_deletes_again_is_deleted_on_the_host(desk: Desk) -> None:
    """To the kernel it never was in the host's folder, so no whiteout says that it is gone."""
    async with desk.running():
        (desk.copy / "free/new/deep").mkdir(parents=True)
        (desk.copy / "free/new/deep/x.txt").write_text("x\n")
        (desk.copy / "free/single.txt").write_text("x\n")
        await desk.until(
            lambda: (
                (desk.host / "free/new/deep/x.txt").exists()
                and (desk.host / "free/single.txt").exists()
            )
        )
        await desk.until(lambda: all(one.settled_at for one in desk.requests()))
        (desk.copy / "free/single.txt").unlink()
        shutil.rmtree(desk.copy / "free/new")
        await desk.until(lambda: not (desk.host / "free/single.txt").exists())
        await desk.until(lambda: not (desk.host / "free/new").exists())
        assert (desk.host / "free/a.txt").exists()
