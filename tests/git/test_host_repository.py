"""Which repository a folder is in, and its files read as data."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.errors import GatehouseError
from supervisor.git.host_repository import (
    GitFolder,
    HostRepository,
    borrowed_from,
    checked_out,
    config_of,
    git_folder_of,
    repository_at,
    repository_of,
)
from supervisor.git.repository_view import view_of
from tests.fakes.supervised import git, make_repository
from tests.git.hostile_repository import Hostile
from tests.tables import share

PATIENCE_S = 60.0


@pytest.fixture
def top(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project")


def test_the_nearest_repository_is_the_one(top: Path) -> None:
    whole = HostRepository(top, GitFolder(top / ".git"))
    assert repository_of(top) == whole == repository_of(top / "src")
    # An embedded one that is tracked is a folder like others.
    subprocess.run(["git", "clone", "-q", "--bare", str(top), str(top / "src/x")], check=True)
    assert repository_of(top / "src/x") == whole
    # Whatever lies nearer is the end of the search, if it can be used or not.
    (top / "src/.git").write_text("gitdir: ../.git\n")
    assert repository_of(top / "src") is None
    assert repository_of(top.parent) is None


def test_worktrees_and_submodules_point_back(top: Path) -> None:
    git(top, "worktree", "add", "-q", "../tree")
    tree = top.parent / "tree"
    common = top / ".git"
    assert git_folder_of(tree) == GitFolder(common, common / "worktrees/tree")
    assert checked_out(GitFolder(common)) == {"refs/heads/main", "refs/heads/tree"}
    (common / "worktrees/tree/gitdir").write_text("/elsewhere/.git\n")
    assert "does not point back" in str(git_folder_of(tree))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_a_repository_around_that_is_another_user_s_is_none(top: Path) -> None:
    for place in (top / ".git", top):
        shutil.chown(place, 1234)
    part = top / "src"
    assert repository_of(part) is None
    # Where the folder is theirs as well, it is what the person asked for.
    shutil.chown(part, 1234)
    assert repository_of(part) is not None


async def test_a_registered_submodule_is_one_of_the_workspace(tmp_path: Path, top: Path) -> None:
    other = make_repository(tmp_path / "other")
    words = ("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "--name", "a/b")
    git(top, *words, str(other), "deps/sub")
    found = await repository_at(top, "deps/sub/src")
    assert found == HostRepository(top / "deps/sub", GitFolder(top / ".git/modules/a/b"))
    assert await repository_at(top, "deps") == repository_of(top)
    # One that only `.gitmodules` names, with a git folder that came with the tree, isn't.
    shutil.move(top / ".git/modules/a/b", top / "deps/gitdir")
    (top / "deps/sub/.git").write_text("gitdir: ../gitdir\n")
    git(top, "config", "--file", "deps/gitdir/config", "core.worktree", "../sub")
    assert isinstance(git_folder_of(top / "deps/sub"), GitFolder)
    assert "no registered submodule" in str(await repository_at(top, "deps/sub"))


async def test_a_submodule_of_a_linked_worktree_is_its_own(tmp_path: Path, top: Path) -> None:
    words = ("-c", "protocol.file.allow=always", "submodule", "--quiet")
    git(top, *words, "add", str(make_repository(tmp_path / "other")), "sub")
    git(top, "-c", "user.name=a", "-c", "user.email=a@x", "commit", "-qm", "Add sub")
    linked = tmp_path / "linked"
    git(top, "worktree", "add", "-q", "-b", "linked", str(linked))
    git(linked, *words, "update", "--init")
    found = await repository_at(linked, "sub")
    assert isinstance(found, HostRepository), found
    assert found.git.here.is_relative_to(top / ".git/worktrees/linked/modules")


@pytest.mark.parametrize("name", ["../../deps/gitdir", "..", "x/../../../deps/gitdir", "link"])
async def test_no_name_of_a_submodule_leads_out(top: Path, name: str) -> None:
    folder = top / "deps/gitdir"
    subprocess.run(["git", "clone", "-q", "--bare", str(top), str(folder)], check=True)
    git(folder, "config", "core.bare", "false")
    git(folder, "config", "core.worktree", "../sub")
    (top / "deps/sub").mkdir()
    (top / "deps/sub/.git").write_text("gitdir: ../gitdir\n")
    (top / ".gitmodules").write_text(f'[submodule "{name}"]\n\tpath = deps/sub\n\turl = x\n')
    (top / ".git/modules").mkdir()
    (top / ".git/modules/link").symlink_to(folder)
    assert "no registered submodule" in str(await repository_at(top, "deps/sub"))


def fifo(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(8 << 30)


FILES = (
    "config", "config.worktree", "HEAD", "packed-refs", "shallow", "index", "refs/heads/main",
    "refs/heads/taken-1", "info/exclude", "info/attributes", "info/sparse-checkout",
    "objects/info/alternates", "commondir", "gitdir", "worktrees", "logs/HEAD",
)  # fmt: skip


@pytest.mark.parametrize("kind", share([fifo, endless, large], fifo))
@pytest.mark.parametrize("name", FILES)
async def test_no_file_of_it_is_read_without_an_end(
    tmp_path: Path, name: str, kind: Callable[[Path], None]
) -> None:
    hostile = Hostile(tmp_path, "own", ())
    path = hostile.workspace / ".git" / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    kind(path)
    async with asyncio.timeout(PATIENCE_S):
        await hostile.ask_everything()


@pytest.mark.parametrize("kind", [fifo, endless, large])
async def test_nor_is_what_a_pointer_leads_to(tmp_path: Path, kind: Callable[[Path], None]) -> None:
    for name in ("commondir", "gitdir", "config"):
        folder = tmp_path / name
        (folder / "own").mkdir(parents=True)
        (folder / ".git").write_text("gitdir: own\n")
        if name == "gitdir":
            (folder / "own/commondir").write_text(".\n")
        kind(folder / "own" / name)
        assert "does not point back" in str(git_folder_of(folder))
    kind(tmp_path / ".git")
    assert "neither a folder nor a pointer" in str(git_folder_of(tmp_path))


async def test_no_link_is_read_through(tmp_path: Path, top: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text('[remote "origin"]\n\turl = https://leaked.example/x\n')
    (top / ".git/config").unlink()
    (top / ".git/config").symlink_to(elsewhere)
    (top / ".gitmodules").symlink_to(elsewhere)
    (top / ".git/refs/heads/x").symlink_to(elsewhere)
    (top / ".git/info/exclude").unlink()
    (top / ".git/info/exclude").symlink_to(elsewhere)
    found = repository_of(top)
    assert found is not None
    assert await config_of(found.git) == []
    async with view_of(found) as view:
        held = [one.read_bytes() for one in view.folder.rglob("*") if one.is_file()]
    assert not any(b"leaked" in one for one in held)


def test_lists_of_borrowed_objects_are_bounded(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for one in (first, second):
        (one / "info").mkdir(parents=True)
    assert not borrowed_from(first)
    (first / "info/alternates").write_text(f"# a note\n{second}\n")
    (second / "info/alternates").write_text(f"{first}\n")
    assert borrowed_from(first)
    (second / "info/alternates").unlink()
    (second / "info/alternates").symlink_to("/dev/zero")
    with pytest.raises(GatehouseError, match="can't be used"):
        borrowed_from(first)
