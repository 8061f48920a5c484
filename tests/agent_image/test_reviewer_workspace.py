"""No path of a model leaves the workspace. Each way out is tried."""

import os
from pathlib import Path

import pytest

from agent_image.reviewer.workspace import PathError, Workspace


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "merged"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").write_text("inside\n")
    (tmp_path / "secret.txt").write_text("outside\n")
    (tmp_path / "merged-too").mkdir()
    (tmp_path / "merged-too" / "x").write_text("sibling\n")
    (root / "inner").symlink_to("src")
    (root / "out").symlink_to(tmp_path)
    (root / "out.txt").symlink_to(tmp_path / "secret.txt")
    (root / "loop").symlink_to("loop")
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("x")
    return root


@pytest.mark.parametrize(
    "name",
    ["../secret.txt", "src/../../secret.txt", "/etc/passwd", "out.txt", "out/secret.txt",
     "/proc/self/environ",
     "../merged-too/x", "inner/../../secret.txt", "loop", "", "a\0b", "nothing", "src/a.py/x",
     "x" * 5000],
)  # fmt: skip
def test_ways_out_are_refused(root: Path, name: str) -> None:
    with pytest.raises(PathError):
        Workspace(root).read(name, 100)


@pytest.mark.parametrize("name", ["src/a.py", "./src//a.py", "inner/a.py", "src/../src/a.py"])
def test_files_inside_are_read_also_through_inner_links(root: Path, name: str) -> None:
    assert Workspace(root).read(name, 100) == (b"inside\n", 7)


def test_an_absolute_path_inside_is_accepted(root: Path) -> None:
    assert Workspace(root).read(str(root / "src" / "a.py"), 3) == (b"ins", 7)


def test_a_swap_between_check_and_use_is_caught(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(root)
    checked = workspace.place

    def swap_after_check(name: str) -> tuple[Path, str]:
        placed = checked(name)
        (root / "src" / "a.py").unlink()
        (root / "src" / "a.py").symlink_to(root.parent / "secret.txt")
        return placed

    monkeypatch.setattr(workspace, "place", swap_after_check)
    with pytest.raises(PathError):
        workspace.read("src/a.py", 100)


def test_a_swapped_folder_is_caught(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root.parent / "a.py").write_text("outside")
    workspace = Workspace(root)
    checked = workspace.place

    def swap_after_check(name: str) -> tuple[Path, str]:
        placed = checked(name)
        (root / "src").rename(root / "moved")
        (root / "src").symlink_to(root.parent)
        return placed

    monkeypatch.setattr(workspace, "place", swap_after_check)
    with pytest.raises(PathError):
        workspace.read("src/a.py", 100)


def test_a_fifo_and_a_folder_are_no_files(root: Path) -> None:
    os.mkfifo(root / "pipe")
    for name in ("pipe", "src", "."):
        with pytest.raises(PathError):
            Workspace(root).read(name, 10)


def test_walk_stays_inside_and_leaves_git_out(root: Path) -> None:
    workspace = Workspace(root)
    assert list(workspace.walk("src")) == ["src/a.py"]
    assert "src/a.py" in list(workspace.walk("."))
    assert not [
        name for name in workspace.walk(".") if name.startswith(".git/") or "secret" in name
    ]
    assert list(workspace.walk(".", "*.py")) == ["src/a.py"]
    with pytest.raises(PathError):
        list(workspace.walk("out"))


def test_other_folders_are_read_by_their_whole_paths_and_no_further(root: Path) -> None:
    other = root.parent / "other"
    (other / "lib").mkdir(parents=True)
    (other / "lib" / "b.py").write_text("b = 1\n")
    (other / "out").symlink_to(root.parent / "secret.txt")
    workspace = Workspace(root, [other])
    assert workspace.read(f"{other}/lib/b.py", 100)[0] == b"b = 1\n"
    assert list(workspace.walk(str(other / "lib"))) == [f"{other}/lib/b.py"]
    assert workspace.relative(f"{other}/lib") == f"{other}/lib"
    assert workspace.relative("src/a.py") == "src/a.py"
    assert workspace.read(f"{other}/../{root.name}/src/a.py", 100)
    for name in (f"{other}/out", f"{other}/../secret.txt", str(root.parent)):
        with pytest.raises(PathError):
            workspace.read(name, 100)
    with pytest.raises(PathError):
        workspace.write(f"{other}/lib/b.py", b"x")
    with pytest.raises(PathError):
        Workspace(root).read(f"{other}/lib/b.py", 100)
