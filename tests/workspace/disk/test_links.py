"""Links that lead out of the workspace, as `policy check` sees them."""

import os
from pathlib import Path

import pytest

from supervisor.core.lab.check import OnDisk
from supervisor.workspace.disk.links import look, why_outside


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    (root / "src").mkdir(parents=True)
    (root / "src/a.py").write_text("a")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("s")
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "file-out").symlink_to("../outside/secret")
    (root / "inside").symlink_to("src")
    (root / "round").symlink_to("about")
    (root / "about").symlink_to("round")
    (root / "dangling").symlink_to("/nowhere/at/all")
    os.link(tmp_path / "outside/secret", root / "hard")
    os.link(root / "src/a.py", root / "src/b.py")
    return root


@pytest.mark.parametrize(
    "path",
    [
        "out/secret",
        "out/new",
        "file-out",
        "hard",
        "out/deep/new",
        "dangling",
        "dangling/x",
        "round",
        "round/x",
    ],
)
def test_what_leads_out_is_named(workspace: Path, path: str) -> None:
    assert path in (why_outside(str(workspace), path) or "")


@pytest.mark.parametrize(
    "path", ["src/a.py", "src/b.py", "src/new.py", "new/deep/file", "inside/a.py", "."]
)
def test_what_stays_is_left_to_the_rules(workspace: Path, path: str) -> None:
    assert why_outside(str(workspace), path) is None


def test_a_root_that_is_itself_reached_by_a_link(workspace: Path) -> None:
    link = workspace.with_name("link")
    link.symlink_to(workspace)
    assert why_outside(str(link), "src/a.py") is None
    assert why_outside(str(link), "out/secret") is not None


def test_a_look_follows_links_inside(workspace: Path) -> None:
    root = str(workspace)
    assert look(root, "src/a.py") == look(root, "new/file") == OnDisk()
    assert look(root, "inside/new.py") == OnDisk(path="src/new.py")
    assert look(root, "inside") == OnDisk(path="src", is_link=True)
    assert look(root, "out/secret").why is not None
    assert look(str(workspace / "missing"), "inside") == OnDisk()
    assert look(root, "na\udcffme") == OnDisk()
