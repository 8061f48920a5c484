"""A workspace that is a folder inside a repository: what that ignores stays out, as if the whole
were supervised."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.workspace.copy import git_copy
from tests.workspace.conftest import Desk, git, make_repository


@pytest.fixture
def top(tmp_path: Path) -> Path:
    files = {
        ".gitignore": "node_modules/\n.env\n",
        "svc/api/.gitignore": "*.log\n",
        "svc/api/app.py": "app\n",
        "other/x": "x\n",
    }
    made = make_repository(tmp_path / "top", files)
    api = made / "svc/api"
    (api / "kept.log").write_text("tracked all the same\n")
    git(made, "add", "-f", "svc/api/kept.log")
    git(made, "commit", "-q", "-m", "second")
    (api / "node_modules").mkdir()
    for name in (".env", "z.log", "node_modules/m", "new.txt"):
        (api / name).write_text("x\n")
    return made


@pytest.fixture(params=[False, True], ids=["copy", "overlay"])
def desk(request: pytest.FixtureRequest, tmp_path: Path, top: Path) -> Iterator[Desk]:
    made = Desk(tmp_path / "data", top / "svc/api", is_overlay=request.param)
    yield made
    made.close()


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


async def test_what_the_repository_around_ignores_stays_out_in_both_directions(desk: Desk) -> None:
    async with desk.running():
        assert files_in(desk.copy) == {".gitignore", "app.py", "kept.log", "new.txt"}
        (desk.copy / ".env").write_text("the agent's\n")
        (desk.copy / "node_modules").mkdir()
        (desk.copy / "node_modules/n").write_text("the agent's\n")
        (desk.copy / "kept.log").write_text("changed\n")
        await desk.asked("kept.log")
        await desk.compared()
        assert desk.pending().keys() == {"kept.log"}
        (desk.host / "late.log").write_text("the person's\n")
        (desk.host / "late.py").write_text("the person's\n")
        await desk.until(lambda: (desk.copy / "late.py").exists())
        await desk.until(
            lambda: not (desk.copy / "late.log").exists()
        )  # in an overlay it shows for a moment


async def test_a_repository_that_ignores_the_folder_says_nothing_about_it(tmp_path: Path) -> None:
    """Such as a whole home with `*` in its .gitignore: the copy would be empty."""
    home = make_repository(tmp_path / "home", {"x": "x"})
    (home / ".gitignore").write_text("*\n")
    (home / "work").mkdir()
    assert await git_copy.around(home / "work") is None
    (home / ".gitignore").write_text("*.log\n")
    assert await git_copy.around(home / "work") == home
    assert await git_copy.around(home) is None  # it is one itself


async def test_another_users_repository_or_a_broken_one_says_nothing(
    top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await git_copy.around(top / "svc/api") == top
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: 54321)
        assert await git_copy.around(top / "svc/api") is None
    shutil.rmtree(top / ".git/objects")
    assert await git_copy.around(top / "svc/api") is None
    (top / ".git").rename(tmp_path / "elsewhere")
    assert await git_copy.around(top / "svc/api") is None
