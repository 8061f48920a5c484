"""The private copy: what is in it, that it shares nothing with the host, and that its `.git`
stands alone."""

import os
import shutil
import socket
import stat
from pathlib import Path

import pytest

from supervisor.errors import StorageError, UserError
from supervisor.workspace.copy import copy_pool
from supervisor.workspace.copy.snapshot import make_copy
from supervisor.workspace.trees.journal import replay
from tests.workspace.conftest import git, make_repository


@pytest.fixture(params=["thread", "processes"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Few files are copied by a thread, many by processes: whatever is said here holds for both."""
    if request.param == "processes":
        monkeypatch.setattr(copy_pool, "FEW_FILES", 0)
        monkeypatch.setattr(copy_pool, "PIECE_FILES", 3)
        monkeypatch.setattr(os, "process_cpu_count", lambda: 2)
    return str(request.param)


def names(folder: Path) -> set[str]:
    """Everything below a folder but git's own."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if ".git" not in path.parts}


async def test_tracked_and_untracked_files_but_not_ignored_ones(host: Path, tmp_path: Path) -> None:
    (host / "build").mkdir()
    (host / "build/out.o").write_text("x")
    (host / "trace.log").write_text("x")
    (host / "kept.log").write_text("x")
    git(host, "add", "-f", "kept.log")
    (host / "untracked.txt").write_text("x")
    (host / "src/util.py").unlink()  # tracked, deleted
    told: list[tuple[int, int, int]] = []
    report = await make_copy(
        host, tmp_path / "s/merged", on_progress=lambda *values: told.append(values)
    )
    copy = tmp_path / "s/merged"
    files = {
        "README.md",
        "src/app.py",
        "free/a.txt",
        "closed/c.txt",
        "kept.log",
        "untracked.txt",
        ".gitignore",
    }
    assert names(copy) == files | {"src", "free", "closed"}
    assert report.is_git
    assert report.skipped_count == 0
    assert told[-1][0] == told[-1][1]
    assert git(copy, "status", "--porcelain") == git(host, "status", "--porcelain")
    assert git(copy, "log", "--format=%H") == git(host, "log", "--format=%H")
    assert stat.S_IMODE(copy.stat().st_mode) == 0o700
    state = replay(copy.parent)
    assert set(state.baseline) == names(copy)
    assert state.baseline["src/app.py"].host_signature is not None


async def test_modes_times_and_links_are_kept_and_nothing_is_shared(
    host: Path, tmp_path: Path
) -> None:
    tool = host / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o4751)
    os.utime(tool, ns=(1_000_000_000, 2_000_000_000))
    os.link(tool, host / "twin")
    (host / "link").symlink_to("/etc/passwd")
    (host / "dangling").symlink_to("nowhere")
    (host / "src").chmod(0o2750)
    await make_copy(host, tmp_path / "s/merged")
    copy = tmp_path / "s/merged"
    status = (copy / "tool").stat()
    assert stat.S_IMODE(status.st_mode) == 0o751
    assert status.st_mtime_ns == 2_000_000_000
    assert status.st_nlink == (copy / "twin").stat().st_nlink == 1
    assert (copy / "link").readlink() == Path("/etc/passwd")
    assert (copy / "dangling").is_symlink()
    assert stat.S_IMODE((copy / "src").stat().st_mode) == 0o750
    inodes = {path.lstat().st_ino for path in host.rglob("*")}
    assert not inodes & {path.lstat().st_ino for path in copy.rglob("*")}


async def test_special_files_are_named_and_left_out(
    host: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    os.mkfifo(folder / "fifo")
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("sock")
        report = await make_copy(folder, tmp_path / "s/merged")
    assert dict(report.skipped) == {
        "fifo": "a fifo is never copied",
        "sock": "a socket is never copied",
    }
    assert names(tmp_path / "s/merged") == set()


async def test_a_folder_without_git_is_copied_whole(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    (folder / "modules/x").mkdir(parents=True)
    (folder / "empty/deep").mkdir(parents=True)
    (folder / "modules/x/index.js").write_text("1")
    (folder / os.fsdecode(b"caf\xe9\n")).write_text("x")
    report = await make_copy(folder, tmp_path / "s/merged")
    assert not report.is_git
    assert names(tmp_path / "s/merged") == names(folder)
    assert set(replay(tmp_path / "s").baseline) == names(folder)


async def test_our_data_folder_inside_the_workspace_is_left_out(host: Path, tmp_path: Path) -> None:
    for folder in (host, tmp_path / "plain"):
        (folder / "state/sessions").mkdir(parents=True)
        (folder / "state/secret.txt").write_text("secret")
        copy = folder / "state/sessions/1/merged"
        await make_copy(folder, copy, exclude=(folder / "state",))
        assert not (copy / "state").exists()


async def test_hooks_and_dangerous_configuration_are_not_copied(host: Path, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    hook = host / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {marker}\n")
    hook.chmod(0o755)
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {marker}\n")
    program.chmod(0o755)
    for key in (
        "core.fsmonitor",
        "core.pager",
        "diff.external",
        "core.sshCommand",
        "filter.x.clean",
        "credential.helper",
    ):
        git(host, "config", key, str(program))
    git(host, "config", "include.path", str(tmp_path / "other.config"))
    git(host, "config", "http.extraheader", "AUTHORIZATION: basic c2VjcmV0")
    git(host, "config", "remote.origin.url", "https://me:secret@git.example.org/a/b.git")
    git(host, "config", "branch.main.remote", "origin")
    marker.unlink(missing_ok=True)
    await make_copy(host, tmp_path / "s/merged")
    assert not marker.exists()
    copy = tmp_path / "s/merged"
    assert not (copy / ".git/hooks").exists()
    config = (copy / ".git/config").read_text()
    for word in ("secret", "c2VjcmV0", str(program), "include", "fsmonitor"):
        assert word not in config
    assert git(copy, "config", "remote.origin.url").strip() == "https://git.example.org/a/b.git"
    assert git(copy, "config", "branch.main.remote").strip() == "origin"


async def test_a_worktree_becomes_a_repository_of_its_own(host: Path, tmp_path: Path) -> None:
    worktree = tmp_path / "worktree"
    git(host, "worktree", "add", "-q", "-b", "topic", str(worktree))
    (worktree / "README.md").write_text("topic\n")
    git(worktree, "commit", "-q", "-am", "topic")
    (worktree / "src/app.py").write_text("staged\n")
    git(worktree, "add", "src/app.py")
    report = await make_copy(worktree, tmp_path / "s/merged")
    copy = tmp_path / "s/merged"
    assert report.is_git
    assert report.notes == ()
    assert (copy / ".git").is_dir()
    host.rename(tmp_path / "away")
    assert git(copy, "log", "--format=%s", "topic") == "topic\nfirst\n"
    assert git(copy, "branch", "--show-current").strip() == "topic"
    assert git(copy, "status", "--porcelain") == "M  src/app.py\n"
    git(copy, "fsck", "--strict")
    git(copy, "commit", "-q", "-m", "in the copy")


@pytest.mark.parametrize("is_worktree", [False, True])
async def test_a_sparse_checkout_stays_one(host: Path, tmp_path: Path, is_worktree: bool) -> None:
    """Else git in the copy brings the left-out files back with the next switch, each of them a
    file to ask about."""
    folder = tmp_path / "clone"
    if is_worktree:
        git(host, "worktree", "add", "-q", "-b", "topic", str(folder))
    else:
        git(tmp_path, "clone", "-q", str(host), "clone")
    git(folder, "sparse-checkout", "set", "src")
    git(folder, "config", "--worktree", "core.pager", "/bin/echo")
    assert not (folder / "closed").exists()
    await make_copy(folder, tmp_path / "s/merged")
    copy = tmp_path / "s/merged"
    assert git(copy, "sparse-checkout", "list") == "src\n"
    git(copy, "commit", "-q", "--allow-empty", "-m", "in the copy")
    git(copy, "reset", "-q", "--hard", "HEAD~1")
    git(copy, "switch", "-q", "--detach")
    assert names(copy) == names(folder)
    assert git(copy, "status", "--porcelain") == ""
    assert "pager" not in (copy / ".git/config").read_text()
    assert not (copy / ".git/config.worktree").exists()


async def test_submodules_and_nested_repositories(host: Path, tmp_path: Path) -> None:
    library = make_repository(tmp_path / "library", {"lib.py": "lib\n", ".gitignore": "*.o\n"})
    git(
        host,
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "add",
        "-q",
        str(library),
        "vendor/lib",
    )
    git(host, "commit", "-q", "-m", "submodule")
    (host / "vendor/lib/out.o").write_text("x")
    make_repository(host / "nested", {"n.txt": "n\n"})
    report = await make_copy(host, tmp_path / "s/merged")
    copy = tmp_path / "s/merged"
    assert report.notes == ()
    assert (copy / "vendor/lib/.git").is_dir()
    assert not (copy / "vendor/lib/out.o").exists()
    (host / ".git").rename(tmp_path / "away")
    assert git(copy / "vendor/lib", "log", "--format=%s") == "first\n"
    assert git(copy / "vendor/lib", "status", "--porcelain") == ""
    assert git(copy / "nested", "log", "--format=%s") == "first\n"
    assert git(copy, "status", "--porcelain") == "?? nested/\n"
    assert "nested/n.txt" in report.baseline


async def test_borrowed_objects_are_brought_along(host: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--shared", str(host), "clone")
    await make_copy(tmp_path / "clone", tmp_path / "s/merged")
    host.rename(tmp_path / "away")
    copy = tmp_path / "s/merged"
    assert not (copy / ".git/objects/info/alternates").exists()
    git(copy, "fsck", "--full")
    assert git(copy, "log", "--format=%s") == "first\n"


@pytest.mark.parametrize(
    "pointer", ["gitdir: {private}/.git\n", "gitdir: {private}/.git", "rubbish", ""]
)
async def test_a_pointer_to_somebody_elses_repository_is_not_followed(
    tmp_path: Path, pointer: str
) -> None:
    private = make_repository(tmp_path / "private", {"secret.txt": "secret\n"})
    folder = tmp_path / "downloaded"
    folder.mkdir()
    (folder / "a.txt").write_text("a")
    (folder / ".git").write_text(pointer.format(private=private))
    report = await make_copy(folder, tmp_path / "s/merged")
    assert not report.is_git
    assert report.notes
    assert not (tmp_path / "s/merged/.git").exists()
    assert b"secret" not in b"".join(
        path.read_bytes() for path in (tmp_path / "s").rglob("*") if path.is_file()
    )


async def test_a_git_folder_that_is_a_symlink_is_not_followed(tmp_path: Path) -> None:
    private = make_repository(tmp_path / "private", {"secret.txt": "secret\n"})
    folder = tmp_path / "downloaded"
    folder.mkdir()
    (folder / ".git").symlink_to(private / ".git")
    report = await make_copy(folder, tmp_path / "s/merged")
    assert not report.is_git
    assert not (tmp_path / "s/merged/.git").exists()


async def test_bad_places_are_one_clear_error(host: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no folder"):
        await make_copy(tmp_path / "nowhere", tmp_path / "s/merged")
    with pytest.raises(UserError, match="not a folder"):
        await make_copy(host / "README.md", tmp_path / "s/merged")
    (tmp_path / "s/merged").mkdir(parents=True)
    with pytest.raises(StorageError, match="exists already"):
        await make_copy(host, tmp_path / "s/merged")


async def test_an_empty_repository(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "a.txt").write_text("a")
    await make_copy(folder, tmp_path / "s/merged")
    git(tmp_path / "s/merged", "add", "-A")
    git(tmp_path / "s/merged", "commit", "-q", "-m", "first")


async def test_a_repository_whose_refs_are_a_reftable_is_copied(tmp_path: Path) -> None:
    """Its `refs/heads` is a file."""
    host = make_repository(tmp_path / "host", {"a.txt": "a"})
    heads = host / ".git/refs/heads"
    shutil.rmtree(heads)
    heads.write_text("this repository uses the reftable format\n")
    await make_copy(host, tmp_path / "c/merged")
    assert (tmp_path / "c/merged/.git/refs/heads").read_text() == heads.read_text()
