"""Programs as people have them on their PATH: a version manager's, and a git that can't be
started."""

import os
import shutil
from pathlib import Path

import pytest

from tests.doors.conftest import Door, House, no_bug, one_line

pytestmark = [pytest.mark.timeout(300)]

RUN = ("run", "--workspace", "workspace", "--")


def made(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def pyenv(door: Door) -> Path:
    """A home with pyenv's shims in front of PATH, each of which starts pyenv; two versions."""
    root = door.folder / "home/.pyenv"
    made(root / "libexec/pyenv", "#!/bin/sh\necho the manager was started; exit 1\n")
    for name in ("python3", "tool", "sh"):
        made(root / f"shims/{name}", f'#!/bin/sh\nexec "{root}/libexec/pyenv" exec {name} "$@"\n')
    for version in ("3.12.9", "3.13.1"):
        (root / f"versions/{version}/lib").mkdir(parents=True)
        made(root / f"versions/{version}/bin/python3", f"#!/bin/sh\necho {version} runs $1\n")
    return root


def test_a_program_of_pyenv_runs_in_the_version_that_is_chosen(door: Door, pyenv: Path) -> None:
    home = {
        "HOME": str(pyenv.parent),
        "PATH": os.pathsep.join([str(pyenv / "shims"), os.environ["PATH"]]),
    }
    (pyenv / "version").write_text("3.12.9\n")
    done = door.run(*RUN, "python3", "x.py", **home)
    assert (done.returncode, done.stdout) == (0, "3.12.9 runs x.py\n"), no_bug(done)
    done = door.run(*RUN, "sh", "-c", "echo the system has it", **home)
    assert (done.returncode, done.stdout) == (0, "the system has it\n"), no_bug(done)
    one_line(door.run(*RUN, "tool", **home), "pyenv/version chooses", "give the path")


@pytest.mark.parametrize(
    ("git", "said"),
    [
        ("#!/bin/sh\necho broken >&2; exit 3\n", "exits with 3: broken"),
        ("no program\n", "can't start `git`"),
        ("", "it is in no absolute folder of PATH"),
    ],
)
def test_doctor_tells_of_a_git_that_can_not_be_started(door: Door, git: str, said: str) -> None:
    """As `run` would find it: an entry of PATH that isn't absolute is nobody's."""
    programs = door.folder / "programs"
    if git:
        made(programs / "git", git)
    for name in ("bwrap", "nft", "sh", "bash"):
        if found := shutil.which(name):
            programs.mkdir(exist_ok=True)
            (programs / name).symlink_to(found)
    (door.folder / "relative").mkdir()
    (door.folder / "relative/git").symlink_to(str(shutil.which("git")))
    done = door.run("doctor", PATH=f"relative::{programs}")
    assert "FAIL  git: " in no_bug(done), done.stdout
    assert said in done.stdout
    assert done.returncode == 1


def test_doctor_and_run_agree_where_all_is_well(house: House) -> None:
    assert "ok    git: git version" in house.run("doctor").stdout
    assert house.ok(*RUN, "git", "log", "--format=%s") == "begun\n"
